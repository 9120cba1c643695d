package transporttest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
)

// memory hands out the transport's own memory where it has some, ordinary
// memory otherwise, or a mixture.
type memory struct {
	nbc.Allocator
	taken int
	mixed bool
}

func memoryOf(t nbc.Transport, mixed bool) *memory {
	a, _ := t.(nbc.Allocator)
	return &memory{Allocator: a, mixed: mixed}
}

// alloc returns n bytes and how to give them back.
func (m *memory) alloc(n int) (mem.Buffer, func(), error) {
	m.taken++
	if m.Allocator == nil || m.mixed && m.taken%2 == 0 {
		b := mem.Alloc(n)
		return b, b.Free, nil
	}
	b, err := m.Alloc(n)
	if err == nil && (b.Len() != n || b.Space() != mem.Host) {
		err = fmt.Errorf("asked for %d bytes of host memory, got %d of %v", n, b.Len(), b.Space())
	}
	if !zero(mem.Bytes(b)) {
		return b, nil, errors.New("new memory is not zeroed")
	}
	return b, func() { m.Free(b) }, err
}

func zero(b []byte) bool { return len(b) == 0 || b[0] == 0 && bytes.Equal(b[1:], b[:len(b)-1]) }

// guarded is how many bytes around a message must stay as they are.
const guarded = 64

// ownMemory exchanges messages between neighbors out of and into the
// transport's own memory, freed and allocated again for every one; where mixed
// is set, only every second buffer is.
func ownMemory(t nbc.Transport, mixed bool) error {
	d, m := drive(t), memoryOf(t, mixed)
	to, from := neighbors(t)
	for turn := range 12 {
		for i, n := range sizes {
			tag := nbc.Tag{Instance: 9, Message: uint32(i)}
			src, freeSrc, err := m.alloc(n)
			if err != nil {
				return err
			}
			if turn%4 > 1 {
				m.taken++ // so that all four mixtures occur
			}
			dst, freeDst, err := m.alloc(n + 2*guarded)
			if err != nil {
				return err
			}
			copy(mem.Bytes(src), content(t.Rank(), turn, n))
			into := dst.Slice(guarded, n)
			r, s := d.token(), d.token()
			recv := func() error { return d.Recv(r, from, tag, into) }
			send := func() error { return d.Send(s, to, tag, src) }
			wait := func() error { return d.waitAll(r, s) }
			switch turn % 3 {
			case 0:
				err = errors.Join(recv(), d.barrier(), send(), wait())
			case 1:
				err = errors.Join(send(), d.barrier(), recv(), wait())
			default:
				err = errors.Join(recv(), send(), wait())
			}
			if err = errors.Join(err, equal(mem.Bytes(into), from, turn)); err != nil {
				return fmt.Errorf("turn %d, %d bytes: %w", turn, n, err)
			}
			if all := mem.Bytes(dst); !zero(all[:guarded]) || !zero(all[guarded+n:]) {
				return fmt.Errorf("turn %d: bytes next to a message of %d changed", turn, n)
			}
			freeSrc()
			freeDst()
		}
	}
	return d.barrier()
}

// traffic is random: few tags, so that many messages are told apart by their
// order alone, any mixture of receives, borrows held for a while, and memory.
func traffic(t nbc.Transport) error {
	g := &trafficTest{
		driver: drive(t), memory: memoryOf(t, true),
		random: rand.New(rand.NewPCG(7, uint64(t.Rank()))),
		sent:   make([]int, t.Size()), received: make([]int, t.Size()),
	}
	return errors.Join(g.begin(), g.end(), g.barrier())
}

// trafficTest is one rank's part of traffic.
type trafficTest struct {
	*driver
	memory         *memory
	random         *rand.Rand
	sent, received []int // messages begun, by peer

	sends, recvs []trafficOp // under way, oldest first
	held         []trafficOp // borrows that have ended and are not released
}

// trafficOp is a send or a receive of message k.
type trafficOp struct {
	tok     nbc.Token
	dst     mem.Buffer // of a receive that does not borrow
	from, k int
	free    func() // nil for a borrow
}

const (
	trafficMessages = 80 // to each rank
	trafficHeld     = 3  // borrows held at once, about
)

func trafficTag(k int) nbc.Tag { return nbc.Tag{Instance: 10, Message: uint32(k * 7 % 5)} }

func trafficLength(k int) int { return []int{0, 100, 257, 5000, 100_000}[k*7%5] }

// begin begins all sends and receives in random order, and looks at what has
// ended now and then.
func (g *trafficTest) begin() error {
	for left := 2 * trafficMessages * g.Size(); left > 0; {
		peer := g.random.IntN(g.Size())
		var err error
		switch n := g.random.IntN(5); {
		case n < 2 && g.sent[peer] < trafficMessages:
			err = g.send(peer)
			left--
		case n >= 2 && n < 4 && g.received[peer] < trafficMessages:
			err = g.receive(peer)
			left--
		case n == 4:
			err = g.look()
			g.release(trafficHeld)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (g *trafficTest) alloc(k int) (mem.Buffer, func(), error) {
	b, free, err := g.memory.alloc(max(1, trafficLength(k)))
	if err != nil {
		return mem.Buffer{}, nil, err
	}
	return b.Slice(0, trafficLength(k)), free, nil
}

func (g *trafficTest) send(peer int) error {
	k := g.sent[peer]
	g.sent[peer]++
	src, free, err := g.alloc(k)
	if err != nil {
		return err
	}
	copy(mem.Bytes(src), content(g.Rank(), k, trafficLength(k)))
	o := trafficOp{tok: g.token(), free: free}
	g.sends = append(g.sends, o)
	return g.Send(o.tok, peer, trafficTag(k), src)
}

func (g *trafficTest) receive(peer int) (err error) {
	k := g.received[peer]
	g.received[peer]++
	o := trafficOp{tok: g.token(), from: peer, k: k}
	if g.random.IntN(2) == 0 {
		g.recvs = append(g.recvs, o)
		return g.RecvBorrow(o.tok, peer, trafficTag(k), trafficLength(k))
	}
	if o.dst, o.free, err = g.alloc(k); err != nil {
		return err
	}
	g.recvs = append(g.recvs, o)
	return g.Recv(o.tok, peer, trafficTag(k), o.dst)
}

// release gives the oldest borrows back, until only a number is held.
func (g *trafficTest) release(keep int) {
	for len(g.held) > keep {
		g.Release(g.held[0].tok)
		g.held = g.held[1:]
	}
}

// end waits for everything, the receives in the order in which they began.
func (g *trafficTest) end() error {
	for _, o := range g.recvs {
		if err := g.settle(o); err != nil {
			return fmt.Errorf("random traffic: %w", err)
		}
		g.release(trafficHeld)
	}
	g.release(0)
	for _, o := range g.sends {
		if err := g.waitAll(o.tok); err != nil {
			return err
		}
		o.free()
	}
	return nil
}

// settle waits for a receive and looks at what has come.
func (g *trafficTest) settle(o trafficOp) error {
	c, err := g.wait(o.tok)
	if err = errors.Join(err, c.Err); err != nil {
		return err
	}
	got := o.dst
	if o.free == nil {
		got = c.Data
		g.held = append(g.held, o)
	} else {
		defer o.free()
	}
	if got.Len() != trafficLength(o.k) {
		return fmt.Errorf("message %d has %d bytes", o.k, got.Len())
	}
	return equal(mem.Bytes(got), o.from, o.k)
}
