package gputest

import (
	"errors"
	"testing"
	"time"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
)

// Begun counts the copies that accelerators have begun.
type Begun struct{ n int }

// Of returns an accelerator whose copies are counted.
func (b *Begun) Of(a nbc.Accelerator) nbc.Accelerator { return counted{a, b} }

// Count returns how many.
func (b *Begun) Count() int { return b.n }

type counted struct {
	nbc.Accelerator
	begun *Begun
}

func (c counted) Copy(tok nbc.Token, dst, src mem.Buffer) (bool, error) {
	c.begun.n++
	return c.Accelerator.Copy(tok, dst, src)
}

// Drains tests a transport that has been drained (nbc.Drainer), the first of two ranks: it leaves memory alone that may then be freed, since copies
// under way have ended, and what arrives later is not copied. The stand-in would fail. slow makes its streams slow; memory and begun are
// those of the first rank.
func Drains(t *testing.T, ranks []nbc.Transport, memory *Memory, begun *Begun, slow func()) {
	t.Helper()
	const messages, size = 24, 40_000
	s := ranks[0]
	sent, err := memory.Device.Alloc(size)
	if err != nil {
		t.Fatal(err)
	}
	var got []mem.Buffer
	for i := range messages {
		b, err := memory.Device.Alloc(size)
		if err == nil {
			err = s.Recv(nbc.Token(i), 1, nbc.Tag{Message: uint32(i)}, b)
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, b)
	}
	slow()
	send := func(from, to int) {
		for i := from; i < to; i++ {
			if err := ranks[1].Send(nbc.Token(i), 0, nbc.Tag{Message: uint32(i)}, sent); err != nil {
				t.Fatal(err)
			}
		}
	}
	poll := func(until func() bool) {
		var done [8]nbc.Completion
		for end := time.Now().Add(time.Minute); !until(); {
			for _, r := range ranks {
				if _, err := r.Poll(done[:]); err != nil {
					t.Fatal(err)
				}
				r.Park(time.Millisecond)
			}
			if time.Now().After(end) {
				t.Fatal("not within a minute")
			}
		}
	}
	send(0, messages/2)
	poll(func() bool { return begun.n >= messages/4 })
	s.(nbc.Drainer).Drain()
	before := begun.n
	for _, b := range got {
		if err := memory.Device.Free(b); err != nil {
			t.Fatal(err)
		}
	}
	send(messages/2, messages)
	end := time.Now().Add(50 * time.Millisecond)
	poll(func() bool { return time.Now().After(end) })
	if begun.n != before {
		t.Errorf("%d copies have begun since", begun.n-before)
	}
	if err := s.Recv(messages, 1, nbc.Tag{}, sent); err == nil {
		t.Error("a message is taken")
	}
	ranks[1].(nbc.Drainer).Drain()
	if err := errors.Join(memory.Write(sent, make([]byte, size)), memory.Device.Free(sent)); err != nil {
		t.Error(err)
	}
}
