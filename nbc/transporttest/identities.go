package transporttest

import (
	"fmt"
	"math/rand/v2"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
)

// identities sends hundreds of messages, each of its own identity, in one order
// and receives them in another: those of a window of calls, of old requests
// started again beside them, of many communicators. In every number of the tag
// there are ones that differ in their highest bits alone.
func identities(t nbc.Transport) error {
	const messages = 400
	d := drive(t)
	to, from := neighbors(t)
	tag := func(i int) nbc.Tag {
		g := nbc.Tag{Comm: 3, Instance: uint32(i / 8), Message: uint32(i % 2), Fingerprint: 5}
		switch i / 2 % 4 {
		case 1:
			g.Comm |= uint64(i/8) << 32
			g.Instance = 1 << 20
		case 2:
			g.Instance |= 1 << 31
		case 3:
			g.Fingerprint |= 1 << 31
		}
		return g
	}
	length := func(i int) int {
		switch {
		case i%50 == 0:
			return 70_000 + i
		case i%10 == 0:
			return 8192 - 120 + i
		}
		return i % 33
	}
	random := rand.New(rand.NewPCG(uint64(t.Rank()), 9)) // each rank has orders of its own
	toSend, toReceive := random.Perm(messages), random.Perm(messages)
	recvs, dsts := make([]nbc.Token, messages), make([]mem.Buffer, messages)
	var sends []nbc.Token
	for len(toSend)+len(toReceive) > 0 {
		if n := len(toSend); n > 0 && (len(toReceive) == 0 || random.IntN(2) == 0) {
			i := toSend[n-1]
			toSend = toSend[:n-1]
			s, err := d.send(to, tag(i), content(t.Rank(), i, length(i)))
			if err != nil {
				return err
			}
			sends = append(sends, s)
		} else if n := len(toReceive); n > 0 {
			i := toReceive[n-1]
			toReceive = toReceive[:n-1]
			var err error
			if i%3 == 0 {
				recvs[i] = d.token()
				err = d.RecvBorrow(recvs[i], from, tag(i), length(i))
			} else {
				recvs[i], dsts[i], err = d.recv(from, tag(i), length(i))
			}
			if err != nil {
				return err
			}
		}
		if random.IntN(8) == 0 {
			if err := d.look(); err != nil {
				return err
			}
		}
	}
	for i, r := range recvs {
		c, err := d.wait(r)
		if err != nil {
			return err
		}
		if c.Err != nil {
			return c.Err
		}
		got := dsts[i]
		if i%3 == 0 {
			got = c.Data
		}
		if got.Len() != length(i) {
			return fmt.Errorf("message %d has %d bytes, want %d", i, got.Len(), length(i))
		}
		if err := equal(mem.Bytes(got), from, i); err != nil {
			return err
		}
		if i%3 == 0 {
			d.Release(r)
		}
		dsts[i].Free()
	}
	if err := d.waitAll(sends...); err != nil {
		return err
	}
	return d.barrier()
}
