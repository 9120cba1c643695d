package proto

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	pb "google.golang.org/protobuf/proto"
)

// validated parses and validates a net and returns the error's text.
func validated(text string) string {
	f, err := ParseNet("n", []byte(text))
	if err == nil {
		err = f.Validate()
	}
	if err == nil {
		return ""
	}
	return err.Error()
}

func manyErrors(n int) []string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("n:%d:1: unknown field \"zz\"", i+1))
	}
	return out
}

// TestNetErrors holds what users read against what they did.
func TestNetErrors(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{
			"typo in a field", "# a net\nlayer {\n  name: \"conv1\"\n  type: \"Convolution\"\n  # the kernel\n\n  convolution_parm { num_output: 1 }\n}\n",
			`n:7:3: unknown field "convolution_parm" in layer "conv1" (did you mean "convolution_param"?)`,
		},
		{
			"typo inside", `layer { name: "c" type: "Convolution" convolution_param { num_outputs: 3 } }`,
			`n:1:59: unknown field "num_outputs" in convolution_param of layer "c" (did you mean "num_output"?)`,
		},
		{
			"field of an inner message", `layer { name: "l" type: "LRN" local_size: 5 }`,
			`n:1:31: unknown field "local_size" in layer "l" (it belongs inside lrn_param)`,
		},
		{"nothing like it", `layer { name: "l" zzz: 5 }`, `n:1:19: unknown field "zzz" in layer "l"`},
		{"typo at the top", "nam: 'x'", `n:1:1: unknown field "nam" (did you mean "name"?)`},
		{"inside a message that is not a layer", "state { pase: TEST }", `n:1:9: unknown field "pase" in state (did you mean "phase"?)`},
		{
			"enum", `layer { name: "d" data_param { backend: LMBD } }`,
			`n:1:32: invalid backend LMBD in data_param of layer "d": want one of LEVELDB, LMDB`,
		},
		{
			"enum number", `layer { name: "d" data_param { backend: 7 } }`,
			`n:1:32: invalid backend 7 in data_param of layer "d": want one of LEVELDB, LMDB`,
		},
		{
			"wrong kind of value", "layer {\n  name: \"l\"\n  lrn_param { local_size: \"x\" }\n}",
			`n:3:27: invalid value for uint32 type: "x" in layer "l"`,
		},
		{"twice", "name: 'a'\nname: 'b'", `n:2:1: non-repeated field "name" is repeated`},
		{"open brace", "name: '{'\nlayer { include { }\n  name: \"l\" # }\n", `n:2:7: syntax error: this brace is not closed`},
		{"two errors in order", "foo: 1\nlayer { name: 'l' bar: 2 }", "n:1:1: unknown field \"foo\"\nn:2:19: unknown field \"bar\" in layer \"l\""},
		{"type typo", `layer { name: "c" type: "Convolutoin" }`, `n:1:19: layer "c": type "Convolutoin" is not supported (did you mean "Convolution"?)`},
		{"no type", `layer { name: "c" }`, `n:1:1: layer "c": has no type`},
		{
			"message of another type", "layer {\n name: 'r'\n type: 'ReLU'\n pooling_param { }\n}",
			`n:4:2: layer "r": a layer of type ReLU does not use pooling_param, only relu_param: remove it`,
		},
		{
			"message where none is used", `layer { name: "s" type: "Silence" loss_param { } }`,
			`n:1:35: layer "s": a layer of type Silence does not use loss_param: remove it`,
		},
		{
			"stochastic", `layer { name: "p" type: "Pooling" pooling_param { pool: STOCHASTIC } }`,
			`n:1:51: layer "p": pool: STOCHASTIC pooling is not supported: use MAX or AVE`,
		},
		{"leveldb", `layer { name: "d" type: "Data" data_param { backend: LEVELDB } }`, `n:1:45: layer "d": backend: ` + levelDB},
		{
			"no backend", `layer { name: "d" type: "Data" data_param { source: "x" } }`,
			`n:1:32: layer "d": has no backend, and Caffe's default is LEVELDB, which is not supported: convert the data set to LMDB and set backend: LMDB`,
		},
		{
			"no data_param", `layer { name: "d" type: "Data" }`,
			`n:1:1: layer "d": has no backend, and Caffe's default is LEVELDB, which is not supported: convert the data set to LMDB and set backend: LMDB`,
		},
		{"old transformation", `layer { name: "d" type: "Data" data_param { backend: LMDB mirror: true } }`, `n:1:59: layer "d": mirror: ` + oldPlace},
		{
			"filler", `layer { name: "i" type: "InnerProduct" inner_product_param { weight_filler { type: "gausian" } } }`,
			`n:1:78: layer "i": type: invalid value "gausian" (did you mean "gaussian"?)`,
		},
		{
			"filler in a list", `layer { name: "d" type: "DummyData" dummy_data_param { data_filler { type: "constant" } data_filler { type: "zzz" } } }`,
			`n:1:103: layer "d": type: invalid value "zzz": must be one of constant, uniform, gaussian, xavier, msra, bilinear`,
		},
		{
			"blobs", `layer { name: "s" type: "Silence" blobs { } }`,
			`n:1:35: layer "s": blobs: parameters do not belong in a net's text: start from a model with --weights FILE.caffemodel`,
		},
		{"both rules", `layer { name: "s" type: "Silence" include { } exclude { } }`, `n:1:47: layer "s": include and exclude cannot be used together: keep one kind`},
		{
			"propagate_down", `layer { name: "s" type: "Silence" bottom: "a" propagate_down: [true, false] }`,
			`n:1:47: layer "s": has 2 propagate_down for 1 bottoms: give none, or one each`,
		},
		{"debug", "debug_info: true", "n:1:1: debug_info: debug output is not supported: remove it"},
		{"negative", `layer { name: "i" type: "Input" input_param { shape { dim: 1 dim: -2 } } }`, `n:1:47: layer "i": shape [1 -2] has a negative extent`},
		{
			"overflow", `layer { name: "i" type: "Input" input_param { shape { dim: 4294967296 dim: 4294967296 } } }`,
			`n:1:47: layer "i": shape [4294967296 4294967296] has more than 2147483647 elements`,
		},
		{
			"two free axes", `layer { name: "r" type: "Reshape" reshape_param { shape { dim: -1 dim: -1 } } }`,
			`n:1:51: layer "r": shape [-1 -1] holds more than one -1`,
		},
		{"input without shape", "input: 'x'", `n:1:1: input "x" has no shape: add input_shape { dim: ... }`},
		{"too few input_dim", "input: 'x'\ninput_dim: 1", `n:2:1: 1 input_dim for 1 input: want four each`},
		{"too few input_shape", "input: 'x'\ninput: 'y'\ninput_shape { }", `n:3:1: 1 input_shape for 2 input: want one each`},
		{"shape without input", "input_shape { }", `n:1:1: input_shape or input_dim without input: name the inputs, or use an Input layer`},
		{"no name", "layer { 'a' }", `n:1:9: syntax error: invalid field name: ' in layer ""`},
		{"extension", "[a.b]: 1", `n:1:1: unknown field: [a.b]`},
		{"very many errors", strings.Repeat("zz: 1\n", 25), strings.Join(manyErrors(20), "\n") + "\nn:21:1: and 5 more errors"},
		{"deep", strings.Repeat("a{\n", 300), "n:201:2: braces nest more than 200 deep"},
		{"NUL", "name: 'x'\n \x00", `n:2:2: syntax error: invalid character '\x00': this is not a text file, or it is damaged`},
		{"escape", "\x1b[31mname: 1", `n:1:1: syntax error: invalid character '\x1b': this is not a text file, or it is damaged`},
		{"NUL in a string", "name: 'x\x00'", `n:1:7: syntax error: invalid character '\x00' in string`},
		{"byte order mark in the middle", "name: 'x'\n\uFEFFname: 'x'", `n:2:1: syntax error: invalid field name: \ufeff`},
		{"bytes", "layer { name: 'x' \xff\xfe: 1 }", `n:1:19: syntax error: invalid field name: \xff in layer "x"`},
		{"octal", "layer { name: 'x' param { lr_mult: 010 } }", `n:1:27: invalid lr_mult 010 in param of layer "x": want a decimal number without a leading 0`},
		{"negative octal", "layer { name: 'x' loss_weight: [1, -00] }", `n:1:19: invalid loss_weight -00 in layer "x": want a decimal number without a leading 0`},
		{"hexadecimal", "layer { name: 'x' param { lr_mult: 0x10 } }", `n:1:36: invalid value for float type: 0x10 in layer "x"`},
		{"lr_mult nan", "layer { name: 's' type: 'Split' param {\n lr_mult: nan } }", `n:2:2: layer "s": lr_mult: must be a finite number (got nan)`},
		{"loss_weight inf", "layer { name: 's' type: 'Silence' loss_weight: 1\n loss_weight: -inf }", `n:2:2: layer "s": loss_weight: must be a finite number (got -inf)`},
		{"too large for float32", "layer { name: 's' type: 'Split' param {\n decay_mult: 1e39 } }", `n:2:2: layer "s": decay_mult: must be a finite number (got +inf)`},
		{"old form nan", "layers { name: 's' type: SPLIT blobs_lr: 1\n blobs_lr: nan }", `n:2:2: layer "s": lr_mult: must be a finite number (got nan)`},
	} {
		if got := validated(c.text); got != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", c.name, got, c.want)
		}
	}
}

// TestNetAccepts holds what must not be an error.
func TestNetAccepts(t *testing.T) {
	for _, text := range []string{
		"",
		"layer { name: 'c' type: 'Convolution' convolution_param { engine: CUDNN force_nd_im2col: true } }",
		"layer { name: 'r' type: 'Reshape' reshape_param { shape { dim: 0 dim: -1 } } }",
		"layer { name: 'd' type: 'Data' data_param { backend: 1 prefetch: 3 rand_skip: 0 } }",
		"layer { name: 'd' type: 'Data' data_param { backend: LMDB } };\r\nlayer < name: 's', type: \"Sil\" 'ence' >\r\n",
		"debug_info: false",
		"\uFEFFname: 'a'",
		"name:\f'a'\v",
		"# a \x00 in a comment\nname: 'a\tb' # {{",
		"layer { name: 's' type: 'Silence' loss_weight: [0, 0.10, 1e3, 1.5F, -0] }",
		"layer { name: 'c' type: 'Convolution' convolution_param { num_output: 010 kernel_size: 0x3 } }",
		"name: '" + strings.Repeat("{", 300) + "'",
	} {
		if got := validated(text); got != "" {
			t.Errorf("%s\n%s", text, got)
		}
	}
}

// TestPlaces asks for the place of layers and fields in all the forms that the
// text format has.
func TestPlaces(t *testing.T) {
	text := "# txtpbfmt: disable\n" + // an order to the formatter, which must not be followed
		"# txtpbfmt: off\n" +
		"name: 'x' # here\n" +
		"layer: [{ name: 'a' type: 'Silence' }, {\n" +
		"   name: 'b'\n" +
		"   # which weights?\n" +
		"\tparam { lr_mult: 1 } param { lr_mult: 2 }\n" +
		"   loss_weight: [1,\n 2]\n" +
		"}]\r\n" +
		"\r\n" +
		"layer <name:'c'; type:'Silence'>\r\n" +
		"# txtpbfmt: on\n"
	f, err := ParseNet("f", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		pos  Pos
		want string
	}{
		{f.FieldPos("name"), "f:3:1"},
		{f.LayerPos(0), "f:4:9"},
		{f.LayerPos(0, "type"), "f:4:21"},
		{f.LayerPos(1), "f:4:40"},
		{f.LayerPos(1, "name"), "f:5:4"},
		{f.LayerPos(1, "param"), "f:7:2"},
		{f.LayerPos(1, "param[1]"), "f:7:23"},
		{f.LayerPos(1, "param[1]", "lr_mult"), "f:7:31"},
		{f.LayerPos(1, "param[1]", "decay_mult"), "f:7:23"},
		{f.LayerPos(1, "param[2]", "lr_mult"), "f:4:40"},
		{f.LayerPos(1, "loss_weight[1]"), "f:8:4"},
		{f.LayerPos(2), "f:12:1"},
		{f.LayerPos(2, "type"), "f:12:18"},
		{f.LayerPos(3), "f"},
		{f.LayerPos(-1), "f"},
		{f.FieldPos("state"), "f"},
	} {
		if c.pos.String() != c.want {
			t.Errorf("got %v, want %s", c.pos, c.want)
		}
	}
	if got := f.LayerError(2, []string{"type"}, "is %d", 3).Error(); got != `f:12:18: layer "c": is 3` {
		t.Errorf("got %s", got)
	}
}

// TestCaffe_UpgradeNetInput turns old inputs into an Input layer.
func TestCaffe_UpgradeNetInput(t *testing.T) {
	want := []*BlobShape{{Dim: []int64{1, 3, 2, 2}}, {Dim: []int64{4, 5, 6, 7}}}
	for _, text := range []string{
		"input: 'x' input: 'y'\ninput_shape { dim: [1, 3, 2, 2] } input_shape { dim: [4, 5, 6, 7] }\nlayer { name: 's' type: 'Silence' bottom: 'x' }",
		"input: ['x', 'y']\ninput_dim: [1, 3, 2, 2, 4, 5, 6, 7]\nlayer { name: 's' type: 'Silence' bottom: 'x' }",
	} {
		f, err := ParseNet("f", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		in := f.Net.Layer[0]
		if in.GetType() != "Input" || in.GetName() != "input" || !cmp.Equal(in.Top, []string{"x", "y"}) || len(f.Net.Input) != 0 {
			t.Errorf("got %v", f.Net)
		}
		for i, s := range in.GetInputParam().GetShape() {
			if !cmp.Equal(s.GetDim(), want[i].GetDim()) {
				t.Errorf("shape %d is %v, want %v", i, s, want[i])
			}
		}
		if a, b := f.LayerPos(0).String(), f.LayerPos(1).String(); a != "f:1:1" || b != "f:3:1" {
			t.Errorf("places are %s and %s", a, b)
		}
	}
}

// TestCaffe_UpgradeNetBatchNorm keeps the solver off the statistics.
func TestCaffe_UpgradeNetBatchNorm(t *testing.T) {
	f, err := ParseNet("f", []byte("layer { type: 'BatchNorm' param { lr_mult: 1 } param { name: 'v' } param { } } layer { type: 'BatchNorm' param { lr_mult: 1 } }"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range f.Net.Layer[0].Param {
		if p.GetLrMult() != 0 || p.GetDecayMult() != 0 {
			t.Errorf("got %v", p)
		}
	}
	if p := f.Net.Layer[1].Param[0]; p.GetLrMult() != 1 || p.GetDecayMult() != 1 {
		t.Errorf("a single param must stay as it is, got %v", p)
	}
}

func TestNetsWithoutAFile(t *testing.T) {
	f, err := NewNetFile("net of a test", &NetParameter{Layer: []*LayerParameter{{}}})
	if err != nil {
		t.Fatal(err)
	}
	if got := f.Validate(); got == nil || got.Error() != `net of a test: layer "": has no type` {
		t.Errorf("got %v", got)
	}
	old, err := NewNetFile("m", &NetParameter{Layers: []*V1LayerParameter{{Name: pb.String("r"), Type: V1LayerParameter_RELU.Enum()}}})
	if err != nil || old.Net.Layer[0].GetType() != "ReLU" || old.LayerPos(0).String() != "m" {
		t.Errorf("got %v, %v", old, err)
	}
}

func TestReadNetMissingFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none")
	if _, err := ReadNet(path); !os.IsNotExist(unwrapAll(err)) || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v", err)
	}
}

// unwrapAll returns the innermost error.
func unwrapAll(err error) error {
	for {
		u, ok := err.(interface{ Unwrap() error })
		if !ok || u.Unwrap() == nil {
			return err
		}
		err = u.Unwrap()
	}
}

// TestRulesNameFields keeps the support table in step with the schema: a rule
// for a field that is not there would never be asked.
func TestRulesNameFields(t *testing.T) {
	fields := map[string]bool{}
	ms := File_caffe_proto_caffe_proto.Messages()
	for i := range ms.Len() {
		for j := range ms.Get(i).Fields().Len() {
			fields[string(ms.Get(i).Fields().Get(j).FullName())] = true
		}
	}
	for _, r := range Support() {
		if !fields[r.Field] {
			t.Errorf("there is no field %s", r.Field)
		}
		if r.Why == "" {
			t.Errorf("%s: no reason is given", r.Field)
		}
	}
	for typ, params := range layerParams {
		for _, p := range params {
			if !fields["caffe.LayerParameter."+p] {
				t.Errorf("layer type %s: there is no field %s", typ, p)
			}
		}
	}
}
