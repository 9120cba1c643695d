package measure

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/scaffe/scaffe/caffe/net"
	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/replay/workload"
)

// A measurement has a time for every layer, whose sums are the net's, and
// becomes a profile that reads as it was written.
func TestMeasure(t *testing.T) {
	path := filepath.Join(t.TempDir(), "net.prototxt")
	if err := os.WriteFile(path, []byte(smallNet), 0o644); err != nil {
		t.Fatal(err)
	}
	n, err := net.Load(path, net.Options{Phase: proto.Phase_TRAIN, Rewrite: net.Synthetic(0, 3, 8, 8)})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	if _, err := Net(context.Background(), n, 0, 0); err == nil {
		t.Error("no iterations are no error")
	}
	before := n.Learnable()[0].Blob.Data()[0]
	m, err := Net(context.Background(), n, 1, 5)
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Layers) != len(n.Layers()) || m.Batch != 2 || m.Iterations != 5 {
		t.Fatalf("%+v", m)
	}
	var forward, backward Times
	for _, l := range m.Layers {
		for _, x := range []Times{l.Forward, l.Backward} {
			if x.Min < 0 || x.Min > x.Mean || x.Mean > x.Max {
				t.Errorf("%s: %v", l.Name, x)
			}
		}
		if !l.Input {
			forward.Mean += l.Forward.Mean
			backward.Mean += l.Backward.Mean
		}
	}
	// Means are rounded down.
	if d := m.Forward.Mean - forward.Mean; d < 0 || d > 20 {
		t.Errorf("layers sum to %v forward, the net to %v", forward.Mean, m.Forward.Mean)
	}
	if d := m.Backward.Mean - backward.Mean; d < 0 || d > 20 {
		t.Errorf("layers sum to %v backward, the net to %v", backward.Mean, m.Backward.Mean)
	}
	if n.Learnable()[0].Blob.Data()[0] != before || n.Hooks.BeforeForward != nil {
		t.Error("the parameters changed, or the hooks are still there")
	}
	p := m.Profile("here")
	if p.Elements() != 112+8+720 || p.Layers[0].Forward != 0 {
		t.Errorf("the profile is\n%s", p)
	}
	again, err := workload.Parse("x", p.String())
	if err != nil || again.String() != p.String() {
		t.Errorf("%v\n%s", err, p)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Net(ctx, n, 0, 1); err == nil {
		t.Error("a canceled context is no error")
	}
}
