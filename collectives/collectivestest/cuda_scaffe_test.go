//go:build cuda && cgo && linux && (amd64 || arm64)

package collectivestest_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/scaffe/scaffe/collectives"
	ct "github.com/scaffe/scaffe/collectives/collectivestest"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/faulty"
	"github.com/scaffe/scaffe/schedule"
)

// Claims of the S-Caffe paper about reductions of GPUs' buffers, over the driver's stand-in. How fast they are is measured on hardware alone
// (make gpu-check).

// seen is what ranks' accelerators have been asked for.
type seen struct {
	mu              sync.Mutex
	copying, adding int // begun, and not reported
	together        int // how often one has begun beside the other
	onGPU, onHost   int // bytes that have been added
}

// watched is an accelerator that is looked at.
type watched struct {
	nbc.Accelerator
	s      *seen
	copies map[nbc.Token]bool // what is under way: a copy, or not
}

func (w watched) begun(tok nbc.Token, isCopy, done bool, err error) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	if done || err != nil {
		return
	}
	w.copies[tok] = isCopy
	if isCopy {
		w.s.copying++
	} else {
		w.s.adding++
	}
	if w.s.copying > 0 && w.s.adding > 0 {
		w.s.together++
	}
}

func (w watched) Copy(tok nbc.Token, dst, src mem.Buffer) (bool, error) {
	done, err := w.Accelerator.Copy(tok, dst, src)
	w.begun(tok, true, done, err)
	return done, err
}

func (w watched) Reduce(tok nbc.Token, dt mem.Datatype, op mem.Op, dst, a, b mem.Buffer) (bool, error) {
	done, err := w.Accelerator.Reduce(tok, dt, op, dst, a, b)
	w.s.mu.Lock()
	if dst.Space() == mem.CUDA {
		w.s.onGPU += dst.Len()
	} else {
		w.s.onHost += dst.Len()
	}
	w.s.mu.Unlock()
	w.begun(tok, false, done, err)
	return done, err
}

func (w watched) Poll(done []nbc.Completion) (int, error) {
	n, err := w.Accelerator.Poll(done)
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	for _, c := range done[:n] {
		isCopy, ours := w.copies[c.Token]
		switch {
		case !ours:
		case isCopy:
			w.s.copying--
		default:
			w.s.adding--
		}
		delete(w.copies, c.Token)
	}
	return n, err
}

// reduced runs one reduction of so many float32 on the GPU, whose result is checked, and returns what was seen.
func reduced(t *testing.T, ranks, count int, text string) *seen {
	t.Helper()
	s, err := spec.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	is := new(seen)
	watch := func(a nbc.Accelerator, _ bool) nbc.Accelerator {
		return watched{a, is, make(map[nbc.Token]bool)}
	}
	cases := []ct.Case{{Spec: s, Collective: schedule.Reduce, Datatype: mem.Float32, Op: mem.Sum, Count: count, Space: mem.CUDA}}
	if err := errors.Join(run(t, ranks, faulty.Plan{}, patient, watch, func(c *collectives.Comm) error { return ct.Run(c, cases) })...); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return is
}

// Sections 1 and 5: the hierarchical reduction is one of GPUs' buffers by kernels: of P ranks, P − 1 sums of each element, all by the GPU,
// whatever the chain size and the upper level.
func TestSCaffe_HierarchicalReduceAddsOnTheGPU(t *testing.T) {
	const count = 40_003
	for _, c := range []struct {
		ranks int
		text  string
	}{{8, "chain:4,chunk=16K/binomial"}, {8, "chain:2,chunk=64K/binomial"}, {8, "chain:4,chunk=16K/chain,chunk=16K"}, {6, "chain:4,chunk=32K/binomial"}, {8, "binomial"}, {5, "chain,chunk=8K"}} {
		s := reduced(t, c.ranks, count, c.text)
		if want := (c.ranks - 1) * 4 * count; s.onGPU != want || s.onHost != 0 {
			t.Errorf("%s, %d ranks: %d bytes were added on the GPU and %d on the host, not %d and none", c.text, c.ranks, s.onGPU, s.onHost, want)
		}
	}
}

// Section 5: "The chunked-chain algorithm is essentially a single-sided pipeline that transfers and overlaps the communication and
// reduction of successive chunks of a large buffer." In one piece, a rank waits for the one before; what is left is what an engine has not
// looked at yet when another one goes on.
func TestSCaffe_ChunksTravelWhileOthersAreAdded(t *testing.T) {
	const ranks, count = 4, 256 << 10
	chunks, piece := reduced(t, ranks, count, "chain,chunk=64K"), reduced(t, ranks, count, "chain,chunk=16M")
	if chunks.together < 50 || chunks.together < 5*piece.together {
		t.Errorf("copies and additions were under way together %d times in chunks, and %d times in one piece", chunks.together, piece.together)
	}
}
