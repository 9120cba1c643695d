//go:build cuda && cgo && linux && (amd64 || arm64)

package train_test

import (
	"errors"
	"testing"

	"github.com/scaffe/scaffe/exchange"
	"github.com/scaffe/scaffe/train"
)

// Claims of the S-Caffe paper about training on GPUs, over the driver's stand-in. How fast it is is measured on hardware alone (make gpu-check).

// TestSCaffe_DesignsOnGPUsGiveTheSameBits: the designs of sections 4.1 to 4.3 differ in when they communicate, on GPUs as elsewhere:
// parameters have the same bits after all of them.
func TestSCaffe_DesignsOnGPUsGiveTheSameBits(t *testing.T) {
	standIn(t)
	path, _ := files(t, 30)
	short(t, path)
	var first string
	for _, d := range append(exchange.All(), exchange.SCOBR) {
		got := mustRun(t, 2, path, func(_ int, c *train.Config) { c.Device, c.Design = onGPU(t, "cuda:0,0"), d }).snapshot
		switch {
		case len(got) == 0:
			t.Fatalf("%v: no snapshot", d)
		case first == "":
			first = string(got)
		case string(got) != first:
			t.Errorf("%v: other bits than by %v", d, exchange.SCB)
		}
	}
}

// TestSCaffe_StrongScalingOnGPUsTrainsAsOneGPU: solvers are symmetric, each of a GPU, and "the batch-size is divided by the number of GPUs" (sections
// 3.1 and 6.2): any number learns what one does, up to rounding.
func TestSCaffe_StrongScalingOnGPUsTrainsAsOneGPU(t *testing.T) {
	standIn(t)
	path, _ := files(t, 30)
	short(t, path)
	run := func(ranks int) curve {
		return mustRun(t, ranks, path, func(_ int, c *train.Config) { c.Device = onGPU(t, "cuda:0") })
	}
	one := run(1)
	for _, ranks := range []int{2, 3, 4} {
		c := run(ranks)
		if err := errors.Join(near(one.loss, c.loss), near(one.scores, c.scores)); err != nil {
			t.Errorf("%d GPUs: %v", ranks, err)
		}
	}
}
