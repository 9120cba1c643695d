package workload

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const text = `# a comment
net "two words"  # and another
source from #here, and
source    there
batch 32
update_ms 0.5
layer conv1 Convolution 10.000001 20 100 4
layer "a # b" ReLU 0 1.5
layer fc InnerProduct 0 0 8x12 8
`

// A file means what it says, and is the same when written and read again.
func TestParse(t *testing.T) {
	got, err := Parse("x", text)
	if err != nil {
		t.Fatal(err)
	}
	want := &Profile{
		Name: "x", Net: "two words", Source: "from #here, and\nthere", Batch: 32, Update: 500 * time.Microsecond,
		Layers: []Layer{
			{Name: "conv1", Type: "Convolution", Params: []int{100, 4}, Forward: 10*time.Millisecond + time.Nanosecond, Backward: 20 * time.Millisecond},
			{Name: "a # b", Type: "ReLU", Backward: 1500 * time.Microsecond},
			{Name: "fc", Type: "InnerProduct", Params: []int{96, 8}, Rows: 8, Cols: 12},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	again, err := Parse("x", got.String())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(got, again); diff != "" {
		t.Error(diff)
	}
	if got.Elements() != 208 || got.Bytes() != 832 || got.Compute() != 32*time.Millisecond+time.Nanosecond {
		t.Errorf("totals: %d elements, %d bytes, %v", got.Elements(), got.Bytes(), got.Compute())
	}
}

// Mistakes are named with their line.
func TestParseErrors(t *testing.T) {
	const layer = "\nlayer a b 1 2 3"
	for text, want := range map[string]string{
		"":                                  "x: batch must be between 1 and 16777216 (got 0)",
		"batch 1":                           "x: number of layers must be between 1 and 65536 (got 0)",
		"batch 1\nbatch 2" + layer:          "x:2: duplicate key batch",
		"batch one":                         `x:1: invalid batch size "one": want a whole number`,
		"batch -1":                          `x:1: invalid batch size "-1": want a whole number`,
		"batch +1":                          `x:1: invalid batch size "+1": want a whole number`,
		"batch":                             "x:1: missing batch size",
		"batch 1 2":                         `x:1: unexpected argument "2" of batch`,
		"batches 1":                         `x:1: unknown key "batches": want net, source`,
		"# c\n\nlayer a":                    "x:3: missing layer type",
		"layer a b 1":                       "x:1: missing backward time",
		"layer a b 1 2ms":                   `x:1: invalid backward time "2ms": want milliseconds`,
		"layer a b 1. 2":                    `x:1: invalid forward time "1.": want milliseconds`,
		"layer a b 1.1234567 2":             `x:1: invalid forward time "1.1234567": want milliseconds`,
		"layer a b -1 2":                    `x:1: invalid forward time "-1": want milliseconds`,
		"layer a b 99999999999 2":           `invalid forward time "99999999999"`,
		"layer a b 9999999999 2":            "x:1: layer \"a\": forward",
		"layer a b 1 2 3.5":                 `x:1: invalid number of elements "3.5": want a whole number`,
		"layer a b 1 2 0":                   `x:1: layer "a": invalid parameter of 0 elements`,
		"layer a b 1 2 3x":                  `x:1: invalid number of columns "": want a whole number`,
		"layer a b 1 2 3 4x5":               `x:1: invalid number of elements "4x5": want a whole number`,
		"layer a b 1 2 999999999x999999999": `x:1: invalid matrix "999999999x999999999"`,
		"factor_rows -1":                    `x:1: invalid number of rows "-1"`,
		"layer \"\" b 1 2":                  "missing name or type",
		"layer \"a b 1 2":                   "x:1: missing closing quote",
		"batch 1\nupdate_ms x" + layer:      `x:2: invalid update time "x": want milliseconds`,
		"batch 99999999" + layer:            "x: batch must be between 1 and 16777216 (got 99999999)",
		"batch 1" + layer + "\nlayer c b 1 2 68719476736": "too many parameters",
	} {
		_, err := Parse("x", text)
		var p *ParseError
		if !errors.As(err, &p) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// Whatever is read is written so that it reads the same.
func FuzzParse(f *testing.F) {
	f.Add(text)
	f.Add("batch 1\nlayer a b 1 2 3\nlayer \"\\n\" \"#\" 0.000001 0")
	f.Add("net \"\\xff\"\nsource \xff\x00\nbatch 1\nlayer é ü 1 2")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := Parse("x", text)
		if err != nil {
			return
		}
		q, err := Parse("x", p.String())
		if err != nil {
			t.Fatalf("%v in\n%s", err, p)
		}
		if q.String() != p.String() || !cmp.Equal(p.Layers, q.Layers) || p.Net != q.Net {
			t.Errorf("%s\nbecame\n%s", p, q)
		}
	})
}

func TestScale(t *testing.T) {
	p, err := Parse("x", text)
	if err != nil {
		t.Fatal(err)
	}
	q, err := p.Scale(2)
	if err != nil || q.Compute() != 2*p.Compute() || q.Elements() != p.Elements() || p.Layers[0].Backward != 20*time.Millisecond {
		t.Errorf("Scale(2): %v %v of %v", err, q, p)
	}
	if q, err = p.Shrink(0.25); err != nil || q.Layers[0].Elements() != 26 || q.Layers[0].Backward != 5*time.Millisecond || p.Layers[0].Params[0] != 100 {
		t.Errorf("Shrink(0.25): %v %v of %v", err, q, p)
	}
	if q, err = p.Shrink(1e-6); err != nil || q.Layers[0].Elements() != 2 {
		t.Errorf("Shrink(1e-6): %v %v", err, q)
	}
	// A matrix by its sides, and its bias and the rows of factors with them.
	if q, err = p.Shrink(0.25); err != nil || q.Layers[2].Rows != 4 || q.Layers[2].Cols != 6 || q.Layers[2].Params[0] != 24 || q.Layers[2].Params[1] != 4 || q.K() != 16 || p.K() != 32 || q.Batch != 32 {
		t.Errorf("Shrink(0.25): %v %v", err, q)
	}
	if again, err := Parse("x", q.String()); err != nil || again.K() != 16 {
		t.Errorf("a shrunk profile as text: %v %v", err, again)
	}
	for _, f := range []float64{-1, 1e10, nan()} {
		if _, err := p.Scale(f); err == nil {
			t.Errorf("Scale(%v) is no error", f)
		}
		if _, err := p.Shrink(f); err == nil {
			t.Errorf("Shrink(%v) is no error", f)
		}
	}
}

func nan() float64 { z := 0.0; return z / z }

// Load prefers neither a path that looks like a name nor hides what is wrong.
func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p")
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), "neither a file nor a built-in profile") {
		t.Error(err)
	}
	if err := os.WriteFile(path, []byte("batch x"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), path+":1:") {
		t.Error(err)
	}
	if p, err := Load(Builtins()[0]); err != nil || p.Name != Builtins()[0] {
		t.Error(p, err)
	}
}
