// Package proto owns the Caffe file formats. It knows nothing of what a layer
// computes, of how data is stored, or of ranks.
//
//   - The messages: caffe.proto, with BVLC Caffe's names and field numbers, and
//     the code generated from it (go generate). A test compares each field
//     with a table of Caffe's.
//   - Text (.prototxt): ReadNet and ReadSolver return a NetFile or SolverFile:
//     the message together with the position of every layer and field, so that
//     an error found later can still name its line (NetFile.LayerError,
//     NetFile.LayerPos, FieldPos). Old forms are upgraded as Caffe does: layers
//     of 2014 and 2013 (V1LayerParameter, V0LayerParameter), input_dim,
//     solver_type. NetFile.Warnings lists what an upgrade leaves out.
//   - What scaffe supports of all that: layer types in LayerTypes, fields in
//     Support. A layer, a field or a value that is not supported is an error
//     with file, line and column (Validate), never silently ignored. Fields that
//     only select an implementation (engine, solver_mode, device_id,
//     layer_wise_reduce) are accepted and have no effect.
//   - Binary: ReadModel (.caffemodel, of any age), ReadState (.solverstate),
//     ReadBlob (mean files), ParseDatum (records of a data set), and a Writer,
//     whose files appear whole or not at all (package atomicfile). Unknown
//     fields are skipped. A file that is cut short or corrupt, or whose values do
//     not fit its shapes, is an ErrFormat with its path. A model cut exactly
//     between two layers is a smaller model in this format, as it is for Caffe:
//     callers that need every layer must check for every layer.
//
// Paths in solvers and nets are relative to the working directory, as in Caffe.
package proto

//go:generate sh -c "go build -o ../../.tools/protoc-gen-go google.golang.org/protobuf/cmd/protoc-gen-go && protoc -I../.. --plugin=protoc-gen-go=../../.tools/protoc-gen-go --go_out=../.. --go_opt=paths=source_relative caffe/proto/caffe.proto"
