package train

import (
	"context"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
)

// interrupts is what outsiders (signals) ask of this rank, and the agreement of
// all ranks to stop in the midst of a test or of the passes of an iteration. The
// agreement is a sum that is under way while a pass is computed: it costs no
// waiting, and takes effect a pass late.
type interrupts struct {
	requests func() (snapshot, stop bool) // nil: there are none
	ctx      context.Context

	sum     *nbc.Request // of asked; nil where there is nothing between whose passes to stop
	asked   []float64
	started bool

	// What was asked for since the last take.
	wantSnapshot, wantStop bool
}

// init makes what stop needs. It is a collective.
func (i *interrupts) init(ctx context.Context, comm *collectives.Comm) (err error) {
	i.ctx = ctx
	i.asked = make([]float64, 1)
	i.sum, err = comm.AllreduceInit(mem.Of(i.asked), mem.Of(i.asked), mem.Float64, mem.Sum)
	return err
}

func (i *interrupts) look() {
	if i.requests == nil {
		return
	}
	snapshot, stop := i.requests()
	i.wantSnapshot, i.wantStop = i.wantSnapshot || snapshot, i.wantStop || stop
}

// take returns what this rank was asked for since it was called last.
func (i *interrupts) take() (snapshot, stop bool) {
	i.look()
	snapshot, stop = i.wantSnapshot, i.wantStop
	i.wantSnapshot, i.wantStop = false, false
	return snapshot, stop
}

// stop reports whether any rank had been asked to stop when it came to the call
// before this one. It is a collective.
func (i *interrupts) stop() (bool, error) {
	if i.sum == nil {
		return false, nil
	}
	i.look()
	if err := i.settle(); err != nil || i.asked[0] > 0 {
		return err == nil, err
	}
	i.asked[0] = one(i.wantStop)
	err := i.sum.Start()
	i.started = err == nil
	return false, err
}

// settle waits for the sum under way, if there is one.
func (i *interrupts) settle() error {
	if !i.started {
		return nil
	}
	i.started = false
	return i.sum.Wait(i.ctx)
}

func (i *interrupts) close() {
	if i.sum != nil {
		i.sum.Close()
	}
}
