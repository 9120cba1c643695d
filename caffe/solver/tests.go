package solver

import (
	"fmt"
	"slices"

	"github.com/scaffe/scaffe/caffe/data"
	"github.com/scaffe/scaffe/caffe/net"
	"github.com/scaffe/scaffe/caffe/proto"
)

// testNet is one test net and this worker's share of its batches.
type testNet struct {
	net   *net.Net
	iters int // test_iter: batches of one test, over all workers
	part  data.Part
	weak  bool  // the data layers hold this worker's batches only
	next  int64 // the batch that the data layers give next
}

// buildTests builds the test nets, which use the training net's parameters.
func (s *Solver) buildTests(memory *net.Memory) error {
	files, err := s.file.TestNets()
	if err != nil {
		return err
	}
	for i, f := range files {
		t := &testNet{iters: int(s.param.GetTestIter()[i]), part: s.opts.Data.Part}
		t.part.Of = max(t.part.Of, 1)
		d := data.Options{Seed: s.opts.Data.Seed, Prefetch: s.opts.Data.Prefetch}
		// Where the batches divide evenly, this worker's are its parts of
		// global batches of Of times the size: no need to seek between them.
		if t.weak = t.iters%t.part.Of == 0; t.weak {
			d.Part = data.Part{Index: t.part.Index, Of: t.part.Of, Weak: true}
		}
		t.net, err = net.New(f, net.Options{Phase: proto.Phase_TEST, Data: d, Seed: s.Seed(), Rewrite: s.opts.Rewrite, MadeAs: s.opts.MadeAs, Memory: memory, GPU: s.opts.GPU})
		if err != nil {
			return fmt.Errorf("test net %d: %w", i, err)
		}
		s.tests = append(s.tests, t)
		if err := t.net.ShareWith(s.net); err != nil {
			return fmt.Errorf("test net %d: %w", i, err)
		}
	}
	return nil
}

// TestNets returns the test nets.
func (s *Solver) TestNets() []*net.Net {
	var ns []*net.Net
	for _, t := range s.tests {
		ns = append(ns, t.net)
	}
	return ns
}

// Warnings lists the warnings about the nets' files, each once, for a log; see
// net.Net.Warnings.
func (s *Solver) Warnings() []string {
	var all []string
	for _, n := range append([]*net.Net{s.net}, s.TestNets()...) {
		for _, w := range n.Warnings() {
			if !slices.Contains(all, w) {
				all = append(all, w)
			}
		}
	}
	return all
}

// TestAll tests every test net. See Test.
func (s *Solver) TestAll() error {
	for i := range s.tests {
		if _, err := s.Test(i); err != nil {
			return err
		}
	}
	return nil
}

// Test runs test net i over test_iter batches, this worker's share of them,
// and returns the mean scores over all workers' batches. The error is
// ErrInterrupted where Callbacks.Interrupted says so, on all workers between
// the same batches.
func (s *Solver) Test(i int) (Test, error) {
	t := s.tests[i]
	if err := call(s.Callbacks.OnParams, s.iter); err != nil {
		return Test{}, err
	}
	out := scores(t.net)
	sums := make([]float64, len(out)+1)                   // the last is the loss
	for first := 0; first < t.iters; first += t.part.Of { // all workers go round equally often
		if err := s.interrupted(); err != nil {
			return Test{}, err
		}
		k := first + t.part.Index
		if k >= t.iters || s.opts.Idle {
			continue
		}
		if err := t.seek(s.testNumber(), k); err != nil {
			return Test{}, fmt.Errorf("test of iteration %d: %w", s.iter, err)
		}
		loss, err := t.net.Forward()
		if err != nil {
			return Test{}, fmt.Errorf("test of iteration %d, batch %d: %w", s.iter, k, err)
		}
		t.next++
		addOutputs(sums[:len(out)], t.net, 1)
		sums[len(out)] += float64(loss)
	}
	sums, err := s.sum(sums)
	if err != nil {
		return Test{}, err
	}
	for j := range out {
		out[j].Value = sums[j] / float64(t.iters)
	}
	r := Test{
		Iter: s.iter, Net: i, Name: t.net.Name(), Batches: t.iters, Scores: out,
		Loss: sums[len(out)] / float64(t.iters), HasLoss: s.param.GetTestComputeLoss(),
	}
	if s.Events.OnTest != nil {
		s.Events.OnTest(r)
	}
	return r, nil
}

// testNumber counts the tests that an uninterrupted run has made before this
// iteration: each continues in the test data where the one before it stopped.
func (s *Solver) testNumber() int64 {
	every := int(s.param.GetTestInterval())
	if every == 0 {
		return 0
	}
	n := s.iter / every
	if !s.param.GetTestInitialization() {
		n--
	}
	return int64(max(n, 0))
}

// seek puts the data layers to batch k of a test, unless they are there.
func (t *testNet) seek(test int64, k int) error {
	want := test*int64(t.iters) + int64(k)
	if t.weak {
		want /= int64(t.part.Of)
	}
	if want == t.next {
		return nil
	}
	if err := t.net.SeekBatch(want); err != nil {
		return err
	}
	t.next = want
	return nil
}
