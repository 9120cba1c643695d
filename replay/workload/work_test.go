package workload

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The tables of work hold all parameters that the nets are known to have, and no others.
func TestWorkKnownCounts(t *testing.T) {
	for name, want := range map[string]int{
		"alexnet":      60_965_224,
		"googlenet":    13_378_280, // with its auxiliary heads
		"vgg19":        143_667_240,
		"vgg19_22k":    229_052_817,
		"inception_v3": 27_161_264, // with its auxiliary head
		"resnet50":     25_557_032,
		"resnet152":    60_192_808,
		// Two embeddings; an LSTM of 512 each way; the decoder's initial state; attention; the decoder's LSTM over a word and what
		// was attended to; its hidden layer; and the output.
		"sockeye": 512*(17_191+7_709) + 2*4*512*(2*512+2) + 2*1024*1025 + 1024*(2*1024+1) + 4*1024*(512+2*1024+2) + 1024*2049 + 7_709*1025,
	} {
		w, err := BuiltinWork(name)
		if err != nil {
			t.Fatal(err)
		}
		sum := 0
		for _, l := range w.Layers {
			sum += Layer{Params: l.Params}.Elements()
		}
		if sum != want {
			t.Errorf("%s has %d parameters, %d are known", name, sum, want)
		}
	}
}

// Sockeye's heaviest parameter is its first (P3, Figure 5).
func TestP3_SockeyesFirstIsTheHeaviest(t *testing.T) {
	p, err := Builtin("sockeye-p4000")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range p.Layers[1:] {
		for _, n := range l.Params {
			if n >= p.Layers[0].Params[0] {
				t.Errorf("%s has a parameter of %d", l.Name, n)
			}
		}
	}
}

// A table of work is the same when written and read again, and mistakes are
// named with their line.
func TestParseWork(t *testing.T) {
	w := &Work{Net: "small", Layers: []LayerWork{
		{Name: "conv", Type: "Convolution", Params: []int{108, 4}, MACs: 4 * 36 * 27, Values: 336, Weights: true},
		{Name: "relu", Type: "ReLU", Values: 288, Data: true},
		{Name: "ip", Type: "InnerProduct", Params: []int{720}, Rows: 5, Cols: 144, MACs: 720, Values: 149, Data: true, Weights: true},
		{Name: "none of it", Type: "Split"},
	}}
	again, err := ParseWork("x", w.String())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(w, again); diff != "" {
		t.Errorf("text form: %s", diff)
	}
	for text, want := range map[string]string{
		"net a b":                     `x:1: unexpected argument "b" of net`,
		"":                            "x: missing layers",
		"layer a b 1 2 some":          `x:1: invalid gradients "some"`,
		"net a\nlayer a b 1 -2 both":  `x:2: invalid number of values "-2": want a whole number`,
		"layer a b 1 2 both 0":        "invalid parameter of 0 elements",
		"layer a b 1 2 both 0x5":      `invalid matrix "0x5": want ROWSxCOLUMNS`,
		"# nothing\nlayers a b 1 2 -": `x:2: unknown key "layers"`,
	} {
		if _, err := ParseWork("x", text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}
