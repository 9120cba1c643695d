// Package proto owns the Caffe file formats: the messages (caffe.proto, with
// BVLC Caffe's field numbers), their text form with line numbers, their binary
// form, and the table of what scaffe supports of them.
//
// It knows nothing of layers' arithmetic, of data sets or of ranks.
package proto

//go:generate sh -c "go build -o ../../.tools/protoc-gen-go google.golang.org/protobuf/cmd/protoc-gen-go && protoc -I../.. --plugin=protoc-gen-go=../../.tools/protoc-gen-go --go_out=../.. --go_opt=paths=source_relative caffe/proto/caffe.proto"
