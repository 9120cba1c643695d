package overmpi

import (
	"fmt"
	"slices"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
)

// loop carries messages from this rank to itself. They stay out of MPI, since
// Open MPI 4.1 cuts a message to oneself that is too long without a word.
type loop struct{ sends, recvs []looped }

type looped struct {
	tok     nbc.Token
	tag     nbc.Tag
	buf     mem.Buffer
	borrows bool
}

func (l *loop) send(t *Transport, tok nbc.Token, tag nbc.Tag, src mem.Buffer) error {
	s := looped{tok: tok, tag: tag, buf: src}
	if i := oldest(l.recvs, tag); i >= 0 {
		r := l.recvs[i]
		l.recvs = slices.Delete(l.recvs, i, i+1)
		return t.loopback(s, r)
	}
	l.sends = append(l.sends, s)
	return nil
}

func (l *loop) recv(t *Transport, tok nbc.Token, tag nbc.Tag, dst mem.Buffer, borrows bool) error {
	r := looped{tok, tag, dst, borrows}
	if i := oldest(l.sends, tag); i >= 0 {
		s := l.sends[i]
		l.sends = slices.Delete(l.sends, i, i+1)
		return t.loopback(s, r)
	}
	l.recvs = append(l.recvs, r)
	return nil
}

// oldest returns the index of the first with the tag, -1 for none.
func oldest(q []looped, tag nbc.Tag) int {
	return slices.IndexFunc(q, func(l looped) bool { return l.tag == tag })
}

// loopback delivers s to r.
func (t *Transport) loopback(s, r looped) error {
	c := nbc.Completion{Token: r.tok}
	switch {
	case s.buf.Len() != r.buf.Len():
		c.Err = fmt.Errorf("overmpi: %w: rank %d sends itself %d bytes where it expects %d as message %s",
			nbc.ErrLength, t.Rank(), s.buf.Len(), r.buf.Len(), describe(s.tag))
		if r.borrows {
			t.staging.put(r.buf)
		}
	case s.buf.Space() != mem.Host || r.buf.Space() != mem.Host:
		return fmt.Errorf("overmpi: rank %d sends itself %s memory; copy it on the device instead", t.Rank(), s.buf.Space())
	default:
		copy(mem.Bytes(r.buf), mem.Bytes(s.buf))
		if r.borrows {
			c.Data = r.buf
			t.lent[r.tok] = r.buf
		}
	}
	t.ended = append(t.ended, nbc.Completion{Token: s.tok}, c)
	t.rest.stir()
	return nil
}
