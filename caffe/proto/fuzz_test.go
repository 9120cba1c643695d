package proto

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"
	pb "google.golang.org/protobuf/proto"
)

// FuzzPrototxt reads any text as a net and as a solver: no panic, errors that
// name the file, and places within the text.
func FuzzPrototxt(f *testing.F) {
	for _, seed := range []string{
		"", "name: 'x'", "layer { name: 'c' type: 'Convolution' convolution_param { num_output: 1 kernel_size: [1, 2] } }",
		"layer: [{ name: 'a' }, < name: 'b' >]; # end\r\nlayer{}", "input: 'x' input_dim: [1, 2, 3, 4]", "input: 'x' input_shape { dim: -1 }",
		good, "net_param { layer { param { } param { } param { } type: 'BatchNorm' } } test_iter: 1", "solver_type: ADAM snapshot_format: HDF5",
		"# txtpbfmt: off\nname: 'x'", "%x%", "a{a{a{", "}", "[a]: 1", "layer: [", "name: \"\\\"\n", "x: 'a' \"b\" # c", "test_net_param { layers { } }", v0Net, v1Net,
		"layers { layer { type: 'padding' } bottom: 'a' top: 'a' } layers { layer { type: 'pool' pad: 1 } bottom: 'a' top: 'a' }",
		"layer { data_param { backend: 9999999999 } }", "layer {type:'Reshape' reshape_param { shape { dim: -1 dim: 0 } } }",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		lines := strings.Count(string(text), "\n") + 1
		if n, err := ParseNet("file", text); err != nil {
			checkFuzzed(t, err, lines)
		} else {
			for i := range n.Net.GetLayer() {
				if p := n.LayerPos(i, "type"); p.Line > lines {
					t.Errorf("layer %d stands at %v of %d lines", i, p, lines)
				}
			}
			checkFuzzed(t, n.Validate(), lines)
		}
		if s, err := ParseSolver("file", text); err != nil {
			checkFuzzed(t, err, lines)
		} else {
			checkFuzzed(t, s.Validate(), lines)
		}
	})
}

// checkFuzzed checks that every error is placed within the file.
func checkFuzzed(t *testing.T, err error, lines int) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			checkFuzzed(t, e, lines)
		}
		return
	}
	var e *Error
	if err == nil || errors.As(err, &e) && e.Pos.File == "file" && e.Pos.Line <= lines {
		return
	}
	t.Errorf("not placed within %d lines: %v", lines, err)
}

// FuzzCaffemodel reads any bytes as each kind of binary file: no panic, and
// what is taken has values that fit their shapes.
func FuzzCaffemodel(f *testing.F) {
	model, err := pb.Marshal(testModel())
	if err != nil {
		f.Fatal(err)
	}
	state, err := pb.Marshal(&SolverState{Iter: pb.Int32(7), History: testModel().Layer[0].Blobs})
	if err != nil {
		f.Fatal(err)
	}
	v0, v1 := &NetParameter{}, &NetParameter{}
	for text, m := range map[string]*NetParameter{v0Net: v0, v1Net: v1} {
		if err := prototext.Unmarshal([]byte(text), m); err != nil {
			f.Fatal(err)
		}
		m.Layers[0].Blobs = testModel().Layer[0].Blobs
		b, err := pb.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	for _, seed := range [][]byte{model, model[:len(model)/2], state, nil, []byte("\x89HDF\r\n\x1a\n"), {0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f}} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		net, s := &NetParameter{}, &SolverState{}
		if err := unmarshal(b, "model", net); err == nil && checkModel(net) == nil {
			for _, l := range net.GetLayer() {
				fuzzedBlobs(t, l.GetBlobs())
			}
		}
		if err := unmarshal(b, "state", s); err == nil && checkState(s) == nil {
			fuzzedBlobs(t, s.GetHistory())
		}
	})
}

func fuzzedBlobs(t *testing.T, bs []*BlobProto) {
	for _, b := range bs {
		n := 1
		for _, d := range BlobShapeOf(b) {
			n *= d
		}
		if n != len(BlobData(b)) {
			t.Errorf("%v was taken with %d values", BlobShapeOf(b), len(BlobData(b)))
		}
	}
}

// FuzzDatum reads any bytes as a record: no panic, and what is taken fits.
func FuzzDatum(f *testing.F) {
	good, err := MarshalDatum(&Datum{Channels: pb.Int32(1), Height: pb.Int32(2), Width: pb.Int32(2), Data: []byte("abcd"), Label: pb.Int32(1)})
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range [][]byte{good, good[:5], nil, {0x38, 1}, {0x38, 1, 0x22, 1, 'x'}} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := ParseDatum(b)
		if err != nil || d.GetEncoded() {
			return
		}
		n := int(d.GetChannels()) * int(d.GetHeight()) * int(d.GetWidth())
		if n <= 0 || n != len(d.GetData()) && n != len(d.GetFloatData()) {
			t.Errorf("%v was taken", d)
		}
	})
}
