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
				return fmt.Errorf("turn %d: bytes beside a message of %d changed", turn, n)
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
	const messages = 80
	d, m := drive(t), memoryOf(t, true)
	random := rand.New(rand.NewPCG(7, uint64(t.Rank())))
	type pending struct {
		tok     nbc.Token
		dst     mem.Buffer
		from, k int
		free    func()
	}
	tag := func(k int) nbc.Tag { return nbc.Tag{Instance: 10, Message: uint32(k * 7 % 5)} }
	length := func(k int) int { return []int{0, 100, 257, 5000, 100_000}[k*7%5] }
	var sends, recvs, held []pending
	release := func() {
		d.Release(held[0].tok)
		held = held[1:]
	}
	settle := func() error { // the oldest receive
		p := recvs[0]
		recvs = recvs[1:]
		c, err := d.wait(p.tok)
		if err = errors.Join(err, c.Err); err != nil {
			return err
		}
		got := p.dst
		if p.free == nil {
			got = c.Data
			held = append(held, p)
		}
		if got.Len() != length(p.k) {
			return fmt.Errorf("message %d has %d bytes", p.k, got.Len())
		}
		if err := equal(mem.Bytes(got), p.from, p.k); err != nil {
			return fmt.Errorf("random traffic: %w", err)
		}
		if p.free != nil {
			p.free()
		}
		return nil
	}
	sent, received := make([]int, t.Size()), make([]int, t.Size())
	for left := 2 * messages * t.Size(); left > 0; {
		peer := random.IntN(t.Size())
		switch random.IntN(5) {
		case 0, 1:
			k := sent[peer]
			if k == messages {
				continue
			}
			src, free, err := m.alloc(max(1, length(k)))
			if err != nil {
				return err
			}
			src = src.Slice(0, length(k))
			copy(mem.Bytes(src), content(t.Rank(), k, length(k)))
			p := pending{tok: d.token(), free: free}
			if err := d.Send(p.tok, peer, tag(k), src); err != nil {
				return err
			}
			sends = append(sends, p)
			sent[peer]++
			left--
		case 2, 3:
			k := received[peer]
			if k == messages {
				continue
			}
			p := pending{tok: d.token(), from: peer, k: k}
			var err error
			if random.IntN(2) == 0 {
				err = d.RecvBorrow(p.tok, peer, tag(k), length(k))
			} else {
				p.dst, p.free, err = m.alloc(max(1, length(k)))
				p.dst = p.dst.Slice(0, length(k))
				err = errors.Join(err, d.Recv(p.tok, peer, tag(k), p.dst))
			}
			if err != nil {
				return err
			}
			recvs = append(recvs, p)
			received[peer]++
			left--
		default:
			if err := d.look(); err != nil {
				return err
			}
			if len(held) > 3 {
				release()
			}
		}
	}
	for len(recvs) > 0 {
		if err := settle(); err != nil {
			return err
		}
		for len(held) > 3 {
			release()
		}
	}
	for len(held) > 0 {
		release()
	}
	for _, p := range sends {
		if err := d.waitAll(p.tok); err != nil {
			return err
		}
		p.free()
	}
	return d.barrier()
}
