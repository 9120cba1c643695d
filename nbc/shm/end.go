//go:build linux && (amd64 || arm64)

package shm

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
)

// grace is how long Close lets inner learn of what this rank has learned
// through shared memory.
const grace = time.Second

// Abort tells every other rank that this one gives up and why: those of this
// node through shared memory, all of them through inner. A rank that was itself
// told that another gave up has nothing to add.
func (t *Transport) Abort(ctx context.Context, reason string) error {
	if !t.tellNode(reason) {
		return nil
	}
	if t.over.Load() {
		return ErrClosed
	}
	t.telling.Add(1)
	defer t.telling.Add(-1)
	t.Wake()
	return t.inner.Abort(ctx, reason)
}

// tellNode marks the peers' control areas. It reports whether inner is to tell.
func (t *Transport) tellNode(reason string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over.Load() {
		return true
	}
	if t.gaveUp || t.heard.Load() {
		return false
	}
	t.gaveUp = true
	text := strings.ToValidUTF8(reason[:min(len(reason), reasonRoom)], "")
	copy(t.own.reason[:], text)
	atomic.StoreUint32(&t.own.reasonLen, uint32(len(text)))
	for _, p := range t.peers {
		atomic.CompareAndSwapUint32(&p.header.heard, 0, uint32(t.Rank()+1))
		wakePeer(p.header)
	}
	return true
}

// listen notices that a peer gave up.
func (t *Transport) listen() {
	by := atomic.LoadUint32(&t.own.heard)
	if by == 0 || int(by) > len(t.byRank) || t.byRank[by-1] == nil {
		return
	}
	h := t.byRank[by-1].header
	n := min(int(atomic.LoadUint32(&h.reasonLen)), reasonRoom)
	t.heard.Store(true)
	t.fault = &nbc.AbortError{Rank: int(by - 1), Reason: string(h.reason[:n])}
}

// Close drops what is under way, waits for the other ranks as inner does, and
// gives everything back, but for memory that was not freed.
func (t *Transport) Close() error {
	if t.over.Load() {
		return nil
	}
	if t.fault != nil {
		t.inform()
	}
	err := t.inner.Close()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over.Store(true)
	t.teardown()
	return err
}

// inform lets inner know of the failure, so that its Close does not wait for
// ranks that will not come.
func (t *Transport) inform() {
	var ended [16]nbc.Completion
	for end := time.Now().Add(grace / 2); t.heard.Load() && !t.innerFault && time.Now().Before(end); {
		if t.pollInner(ended[:]); !t.innerFault {
			t.inner.Park(time.Millisecond)
		}
	}
	if t.innerFault || t.gaveUp {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), grace/2)
	defer cancel()
	told := make(chan struct{})
	go func(reason string) {
		defer close(told)
		_ = t.inner.Abort(ctx, reason)
	}(t.fault.Error())
	for {
		select {
		case <-told:
			return
		default:
			_, _ = t.inner.Poll(ended[:])
			t.inner.Park(time.Millisecond)
		}
	}
}

// kept holds the memory of messages that were under way when their transport
// was closed: a peer that was told of it may be about to write to it.
var kept struct {
	mu      sync.Mutex
	buffers []mem.Buffer
}

// keep keeps what a peer may still use although this rank drops it: of memory in
// the Go heap nobody else would know.
func (t *Transport) keep() {
	kept.mu.Lock()
	defer kept.mu.Unlock()
	for _, o := range t.ops {
		if p := o.peer; p != nil && p.vm && o.buf.OnGoHeap() && atomic.LoadUint32(&p.header.left) == 0 {
			kept.buffers = append(kept.buffers, o.buf)
		}
	}
}

// teardown gives the memory back.
func (t *Transport) teardown() {
	t.forbidReading()
	if t.arena == nil {
		return
	}
	t.keep()
	atomic.StoreUint32(&t.own.left, 1)
	for _, o := range t.lent {
		if o.staged {
			t.arena.unstage(o.buf)
		}
	}
	clear(t.lent)
	for _, p := range t.peers {
		p.close()
	}
	t.arena.close()
}
