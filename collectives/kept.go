package collectives

import (
	"context"
	"math"
	"slices"
	"sync/atomic"

	"github.com/scaffe/scaffe/nbc"
)

// Programs make the same few calls again and again. The requests of the last ones
// are kept, so that such a call is not prepared anew but for its number, which every
// rank counts whether it has kept a request or not. A blocking call executes the one
// that is kept; one that does not block, whose request belongs to its caller, makes
// another one like it (nbc.Request.Again).

// What a communicator keeps of each kind: requests of few bytes, and one of any size,
// since their buffers, and scratch memory, stay in use.
const (
	keptRoom      = 8
	keptCallBytes = 64 << 10
)

// keptCalls are calls that were made before.
type keptCalls struct {
	calls [keptRoom]*keptCall // the first is of any size
	next  int                 // where the last of few bytes is
}

// keptCall is a call that was made before.
type keptCall struct {
	call    call
	request *nbc.Request // of one that does not block: its caller's
	state   atomic.Int32
}

// States of a kept blocking call.
const (
	keptIdle   = iota
	keptBusy   // its request is being executed
	keptClosed // its request is closed, or is to be by whoever executes it
)

// close closes the request, or has whoever executes it close it.
func (k *keptCall) close() {
	if !k.call.blocking {
		return // its caller's
	}
	if k.state.Swap(keptClosed) == keptIdle {
		k.request.Close()
	}
}

// done ends an execution.
func (k *keptCall) done() {
	if !k.state.CompareAndSwap(keptBusy, keptIdle) {
		k.request.Close()
	}
}

// same reports whether the request of the one call serves the other.
func (k *call) same(o *call) bool {
	return k.collective == o.collective && k.send == o.send && k.recv == o.recv && k.root == o.root &&
		k.dt == o.dt && k.op == o.op && k.priority == o.priority && k.deadline == o.deadline &&
		k.credit == o.credit && k.buffers == o.buffers && k.blocking == o.blocking &&
		slices.Equal(k.spec.Levels, o.spec.Levels) && slices.Equal(k.counts, o.counts)
}

// run does a blocking call.
func (c *Comm) run(ctx context.Context, k *call, opts []Option) error {
	k.blocking = true
	k.with(c, opts)
	if kept, instance, fresh := c.findKept(k); kept != nil {
		err := kept.request.RunAs(ctx, instance, fresh)
		if err != nil {
			c.dropKept(kept)
		}
		kept.done()
		return err
	}
	r, err := c.init(*k)
	if err != nil {
		return err
	}
	if err := r.Run(ctx); err != nil || len(k.cuts) > 0 {
		r.Close()
		return err
	}
	r.Detach()
	c.keep(k, r)
	return nil
}

// start does a call that does not block.
func (c *Comm) start(k *call, opts []Option) (*nbc.Request, error) {
	k.with(c, opts)
	if len(k.cuts) == 0 {
		if kept, instance, fresh := c.findKept(k); kept != nil {
			return started(kept.request.Again(instance, fresh))
		}
	}
	r, err := started(c.init(*k))
	if err == nil && len(k.cuts) == 0 {
		c.keep(k, r)
	}
	return r, err
}

func started(r *nbc.Request, err error) (*nbc.Request, error) {
	if err != nil {
		return nil, err
	}
	if err := r.Start(); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// keptOf returns what is kept of calls of the same kind.
func (c *Comm) keptOf(k *call) *keptCalls {
	if k.blocking {
		return &c.kept[1]
	}
	return &c.kept[0]
}

// findKept returns the kept call that is alike, with the new call's number; nil where
// there is none. The request of a blocking one is the caller's, to be executed.
func (c *Comm) findKept(k *call) (kept *keptCall, instance uint32, fresh bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, kept := range &c.keptOf(k).calls {
		if kept == nil || !kept.call.same(k) {
			continue
		}
		if k.blocking && !kept.state.CompareAndSwap(keptIdle, keptBusy) {
			continue
		}
		instance := c.countLocked(false)
		return kept, instance, c.counts[0] < math.MaxInt32
	}
	return nil, 0, false
}

// keep keeps a request in place of the one that was kept first, or of the one
// larger than others.
func (c *Comm) keep(k *call, r *nbc.Request) {
	kept := &keptCall{call: *k, request: r}
	kept.call.counts, kept.call.spec.Levels = slices.Clone(k.counts), slices.Clone(k.spec.Levels)
	c.mu.Lock()
	all, at := c.keptOf(k), 0
	if k.bytes() <= keptCallBytes {
		all.next = all.next%(keptRoom-1) + 1
		at = all.next
	}
	old := all.calls[at]
	if c.closed {
		old = kept
	} else {
		all.calls[at] = kept
	}
	c.mu.Unlock()
	if old != nil {
		old.close()
	}
}

// dropKept forgets a kept call, which has failed.
func (c *Comm) dropKept(kept *keptCall) {
	c.mu.Lock()
	all := &c.keptOf(&kept.call).calls
	if at := slices.Index(all[:], kept); at >= 0 {
		all[at] = nil
	}
	c.mu.Unlock()
	kept.close()
}

// dropAllLocked forgets the kept requests and returns them, to be closed.
func (c *Comm) dropAllLocked() (old [2]keptCalls) {
	old, c.kept = c.kept, old
	return old
}

func closeKept(all [2]keptCalls) {
	for _, kept := range slices.Concat(all[0].calls[:], all[1].calls[:]) {
		if kept != nil {
			kept.close()
		}
	}
}
