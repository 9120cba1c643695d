package nbc_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/inproc"
)

// logged is a transport that writes down which instances' messages are sent, in order.
type logged struct {
	nbc.Transport
	mu   *sync.Mutex
	sent *[]uint32
}

func (l logged) Nodes() []int { return l.Transport.(nbc.Topology).Nodes() }

func (l logged) Send(tok nbc.Token, to int, tag nbc.Tag, src mem.Buffer) error {
	l.mu.Lock()
	*l.sent = append(*l.sent, tag.Instance)
	l.mu.Unlock()
	return l.Transport.Send(tok, to, tag, src)
}

// linked starts two engines on nodes of their own; it returns what rank 1 has
// sent so far.
func linked(t *testing.T) (engines [2]*nbc.Engine, sent func() []uint32) {
	t.Helper()
	w := inproc.NewWorld(2, inproc.Options{Nodes: []int{0, 1}})
	var mu sync.Mutex
	var logs [2][]uint32
	for r := range engines {
		open := func() (nbc.Transport, error) {
			inner, err := w.Open(r)()
			return logged{inner, &mu, &logs[r]}, err
		}
		e, err := nbc.Start(open, host(t), nbc.Options{Deadline: 20 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = e.Close() })
		engines[r] = e
	}
	return engines, func() []uint32 {
		mu.Lock()
		defer mu.Unlock()
		return append([]uint32(nil), logs[1]...)
	}
}

// chained prepares a chain reduction of chunks messages from rank 1 to rank 0.
func chained(t *testing.T, e *nbc.Engine, instance uint32, chunks, priority int) *nbc.Request {
	t.Helper()
	const chunk = nbc.LinkBytes / 4
	buf := mem.Of(make([]float32, chunks*chunk))
	r, err := e.Prepare(chainReduce(t, e.Rank(), 2, chunks*chunk, chunk), nbc.Binding{
		Name: "reduce", In: buf, Out: buf, Datatype: mem.Float32, Instance: instance, Priority: priority,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

func start(t *testing.T, rs ...*nbc.Request) {
	t.Helper()
	for _, r := range rs {
		if err := r.Start(); err != nil {
			t.Fatal(err)
		}
	}
}

func wait(t *testing.T, rs ...*nbc.Request) {
	t.Helper()
	for _, r := range rs {
		if err := r.Wait(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWhatIsNeededSoonerGoesFirst: a request that is needed sooner overtakes one
// that started before it, as soon as the link has room; equals keep the order
// of their starts. The clock is synctest's: no link's patience ends while a rank is slow.
func TestWhatIsNeededSoonerGoesFirst(t *testing.T) {
	synctest.Test(t, whatIsNeededSoonerGoesFirst)
}

func whatIsNeededSoonerGoesFirst(t *testing.T) {
	engines, sent := linked(t)
	const chunks = 10
	late := chained(t, engines[1], 1, chunks, 5)
	equal := chained(t, engines[1], 2, chunks, 5)
	soon := chained(t, engines[1], 3, chunks, 1)
	start(t, late)
	for len(sent()) < nbc.SendWindow { // its first messages fill the link: no receive is posted yet
		time.Sleep(time.Millisecond)
	}
	start(t, equal, soon)
	for len(sent()) == nbc.SendWindow { // patience lets one more go
		time.Sleep(time.Millisecond)
	}
	receivers := []*nbc.Request{chained(t, engines[0], 1, chunks, 0), chained(t, engines[0], 2, chunks, 0), chained(t, engines[0], 3, chunks, 0)}
	start(t, receivers...)
	wait(t, receivers...)
	wait(t, late, equal, soon)
	got := sent()
	if len(got) != 3*chunks {
		t.Fatalf("%d messages, want %d", len(got), 3*chunks)
	}
	position := func(instance uint32, n int) int { // of its n-th message
		for i, g := range got {
			if g == instance {
				if n--; n < 0 {
					return i
				}
			}
		}
		return -1
	}
	if last := position(3, chunks-1); last >= nbc.SendWindow+chunks+nbc.SendWindow {
		t.Errorf("the request that is needed soonest sent its last message as number %d: %v", last, got)
	}
	if position(1, chunks-1) > position(2, nbc.SendWindow) {
		t.Errorf("of equals the one that started first is not served first: %v", got)
	}
}

// TestLinksDoNotDeadlock: ranks that start requests in opposite orders end them,
// though the messages that fill the link are not expected yet.
func TestLinksDoNotDeadlock(t *testing.T) {
	synctest.Test(t, linksDoNotDeadlock)
}

func linksDoNotDeadlock(t *testing.T) {
	engines, _ := linked(t)
	const chunks = 8
	var senders, receivers []*nbc.Request
	for i := range 6 {
		senders = append(senders, chained(t, engines[1], uint32(i+1), chunks, i))
		receivers = append(receivers, chained(t, engines[0], uint32(i+1), chunks, 0))
	}
	start(t, senders...)
	for i := range receivers { // the last first, one after another
		r := receivers[len(receivers)-1-i]
		start(t, r)
		wait(t, r)
	}
	wait(t, senders...)
}
