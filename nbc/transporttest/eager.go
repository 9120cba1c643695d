package transporttest

import (
	"fmt"
	"time"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
)

// eager: messages that are handed over at once are messages like others, whichever
// side does so, and keep their order with them. A transport that is not nbc.Eager
// takes part with Send and Recv.
func eager(t nbc.Transport) error {
	e, _ := t.(nbc.Eager)
	d := drive(t)
	to, from := neighbors(t)
	if to == t.Rank() {
		return nil
	}
	for i, way := range []struct{ put, take bool }{{true, true}, {true, false}, {false, true}} {
		if err := eagerWay(d, e, uint32(i), to, from, way.put, way.take); err != nil {
			return fmt.Errorf("put %v, take %v: %w", way.put, way.take, err)
		}
	}
	return d.barrier()
}

// eagerMessages is more than any transport has room for at once.
const eagerMessages = 400

// eagerLength is that of message i.
func eagerLength(i int) int {
	return []int{0, 1, 8, 256, 257, 1000, 4096, 4097, 20000, 65536, 131071}[i%11]
}

// eagerWay sends messages of a tag each to the next rank, of one tag in between, and
// gets those of the one before, in the ways asked for.
func eagerWay(d *driver, e nbc.Eager, way uint32, to, from int, put, take bool) error {
	tag := func(i int) nbc.Tag {
		if i%3 == 0 {
			return nbc.Tag{Instance: 40 + way}
		}
		return nbc.Tag{Instance: 50 + way, Message: uint32(i)}
	}
	length := func(i int) int {
		if i%3 == 0 {
			return 24
		}
		return eagerLength(i)
	}
	sent, got := 0, 0
	var sends []nbc.Token
	m := memoryOf(d.Transport, true)
	var frees []func()
	for end := time.Now().Add(deadline); sent < eagerMessages || got < eagerMessages; {
		if time.Now().After(end) {
			return fmt.Errorf("rank %d: %d sent, %d received, then nothing", d.Rank(), sent, got)
		}
		if sent < eagerMessages {
			src := content(d.Rank(), sent, length(sent))
			b, free, err := m.alloc(max(1, len(src)))
			if err != nil {
				return err
			}
			frees = append(frees, free)
			b = b.Slice(0, len(src))
			copy(mem.Bytes(b), src)
			put := put && fits(e, to, len(src))
			switch {
			case put && e.Put(d.token(), to, tag(sent), b, sent%3 > 0):
				sent++
			case put && sent%2 == 0 && len(src) <= 4096: // no room now: wait for some
			default:
				s, err := d.send(to, tag(sent), src)
				if err != nil {
					return err
				}
				sends = append(sends, s)
				sent++
			}
		}
		if got < eagerMessages && (sent == eagerMessages || got < sent/2) {
			came, err := eagerGet(d, e, from, tag(got), got, length(got), take && fits(e, from, length(got)))
			if err != nil {
				return err
			}
			if came {
				got++
			}
		}
		if sent == eagerMessages/2 && put && e != nil {
			sends = append(sends, keep(e)...)
		}
		if err := d.look(); err != nil {
			return err
		}
	}
	for end := time.Now().Add(deadline); put && e != nil && len(e.Lent()) > 0; {
		if err := d.look(); err != nil || time.Now().After(end) {
			return fmt.Errorf("rank %d: messages are still lent: %w", d.Rank(), err)
		}
	}
	if err := d.waitAll(sends...); err != nil {
		return err
	}
	for _, free := range frees {
		free()
	}
	return nil
}

// keep has Poll report the ends of what is lent, and returns the tokens of that.
func keep(e nbc.Eager) (later []nbc.Token) {
	const base = 1 << 40
	for _, tok := range e.Lent() {
		later = append(later, base+tok)
	}
	e.Keep(base)
	return later
}

// fits reports whether a message to or from a rank may be handed over at once.
func fits(e nbc.Eager, rank, n int) bool {
	if e == nil {
		return false
	}
	room := e.EagerRoom(rank).Most
	return room > 0 && n <= room
}

// eagerGet receives message i of rank from, and reports whether it was there.
func eagerGet(d *driver, e nbc.Eager, from int, tag nbc.Tag, i, n int, take bool) (bool, error) {
	if !take {
		r, dst, err := d.recv(from, tag, n)
		if err != nil {
			return false, err
		}
		if err := d.waitAll(r); err != nil {
			return false, err
		}
		return true, equal(mem.Bytes(dst), from, i)
	}
	if _, ok := e.Take(from, nbc.Tag{Instance: 99}, n, mem.Buffer{}); ok {
		return false, fmt.Errorf("rank %d took a message that nobody has sent", d.Rank())
	}
	var dst mem.Buffer
	if i%2 == 0 {
		dst = mem.Alloc(n)
	}
	m, ok := e.Take(from, tag, n, dst)
	switch {
	case !ok && n > 4096: // it may be where no Take finds it
		return eagerGet(d, e, from, tag, i, n, false)
	case !ok:
		e.Linger(from, 1)
		return false, nil
	}
	err := equal(mem.Bytes(m), from, i)
	e.Taken(from)
	return true, err
}
