package net

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/scaffe/scaffe/caffe/proto"
)

const sized = `
layer { name: "data" type: "DummyData" top: "data" top: "target" dummy_data_param { shape { dim: %d dim: 8 } shape { dim: %[1]d dim: 4 } } }
layer { name: "ip1" type: "InnerProduct" bottom: "data" top: "ip1" inner_product_param { num_output: %d } }
layer { name: "ip2" type: "InnerProduct" bottom: "ip1" top: "ip2" inner_product_param { num_output: 4 } }
layer { name: "loss" type: "EuclideanLoss" bottom: "ip2" bottom: "target" top: "loss" }
`

// load builds a net from text for training.
func load(t *testing.T, text string, m *Memory) (*Net, error) {
	t.Helper()
	f, err := proto.ParseNet("net.prototxt", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return New(f, Options{Phase: proto.Phase_TRAIN, Memory: m})
}

// TestShapesBeyondMemory: what a prototxt may ask for is an error that names the
// layer and the bytes, before anything of that size is allocated.
func TestShapesBeyondMemory(t *testing.T) {
	const limit = 64 << 20
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"2000000000 outputs": {fmt.Sprintf(sized, 4, 2000000000), []string{`layer "ip1"`, "parameter 0", "[2000000000 8]", "6.4e+10 bytes", "at most 2147483647 elements"}},
		"4294967295 outputs": {fmt.Sprintf(sized, 4, uint32(4294967295)), []string{`layer "ip1"`, "1.374e+11 bytes"}},
		"fewer elements than a blob may have": {fmt.Sprintf(sized, 4, 200000000), []string{
			`layer "ip1"`, "parameter 0", "its parameters need 17.9 GiB of memory (19200000000 bytes), and 64.0 MiB of the 64.0 MiB available are left", "batch smaller",
		}},
		"a little more than memory":  {fmt.Sprintf(sized, 4, 1000000), []string{`layer "ip1"`, "its parameters need", "(96000000 bytes)"}},
		"several layers together":    {fmt.Sprintf(sized, 4, 450000), []string{`layer "ip2"`, "its parameters need 20.6 MiB of memory (21600000 bytes), and 17.", "of the 64.0 MiB available are left"}},
		"a batch beyond memory":      {fmt.Sprintf(sized, 200000, 64), []string{`layer "ip2"`, "its tops and the gradients of its bottoms need 51.9 MiB"}},
		"a batch beyond a blob":      {fmt.Sprintf(sized, 1000000, 4000), []string{`layer "ip1"`, "top 0", "[1000000 4000] takes 1.6e+10 bytes"}},
		"a batch filled at once":     {fmt.Sprintf(sized, 200000000, 64), []string{`layer "data"`, "top 0 of shape [200000000 8]: it needs 6.0 GiB"}},
		"a shape beyond a blob":      {fmt.Sprintf(sized, 2000000000, 64), []string{`layer "data"`, "[2000000000 8]"}},
		"a convolution's outputs":    {convolved("num_output: 4294967295 kernel_size: 1"), []string{`layer "conv"`, "parameter 0", "[4294967295 2 1 1]"}},
		"a convolution's kernel":     {convolved("num_output: 4 kernel_size: 60000 pad: 40000"), []string{`layer "conv"`, "parameter 0"}},
		"a convolution's padding":    {convolved("num_output: 4 kernel_size: 1 pad: 60000"), []string{`layer "conv"`, "top 0", "[1 4 120008 120008]"}},
		"a kernel that is no kernel": {convolved("num_output: 4 kernel_size: 4294967295 pad: 4294967295"), []string{`layer "conv"`, "out of range"}},
	} {
		n, err := load(t, c.text, NewMemory(limit))
		if err == nil {
			n.Close()
			t.Errorf("%s: no error", name)
			continue
		}
		for _, w := range append(c.want, "net.prototxt:") {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %q does not say %q", name, err, w)
			}
		}
		if strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %q is more than a line", name, err)
		}
	}
	var e *MemoryError
	if _, err := load(t, fmt.Sprintf(sized, 4, 1000000), NewMemory(limit)); !errors.As(err, &e) || e.Wanted != 96000000 || e.Limit != limit {
		t.Errorf("error %#v", err)
	}
}

func convolved(param string) string {
	return fmt.Sprintf(`
layer { name: "data" type: "DummyData" top: "data" dummy_data_param { shape { dim: 1 dim: 2 dim: 8 dim: 8 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" convolution_param { %s } }
`, param)
}

// TestMemoryOfANet: parameters three times (their first values, packed values and
// gradients), blobs between layers once, and the gradients that are computed.
func TestMemoryOfANet(t *testing.T) {
	params := (8*10 + 10) + (10*4 + 4)
	blobs := 5*8 + 5*4 + 5*10 + 5*4 + 1
	diffs := 5*10 + 5*4 // of ip1 and ip2
	want := int64(4 * (3*params + blobs + diffs))
	m := NewMemory(want)
	n, err := load(t, fmt.Sprintf(sized, 5, 10), m)
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	if m.used != want {
		t.Errorf("%d bytes counted, want %d", m.used, want)
	}
	if _, err := load(t, fmt.Sprintf(sized, 5, 10), NewMemory(want-1)); err == nil {
		t.Error("fits into a byte less")
	}
	if _, err := load(t, fmt.Sprintf(sized, 5, 10), NewMemory(-1)); err != nil {
		t.Errorf("without a limit: %v", err)
	}
}
