package staging

import (
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
)

// kind is what an op does.
type kind uint8

const (
	sends kind = iota
	receives
	borrows
)

// op is an operation on device memory, or on a piece of one.
type op struct {
	number   int // in its token
	kind     kind
	tok      nbc.Token // the caller's
	peer     int
	tag      nbc.Tag
	n        int      // bytes on the inner transport
	trailer  int      // how many of them are a trailer
	whole    *message // that it is a piece of
	at       int      // where in that
	expected int
	memory   mem.Buffer // of the device: the caller's, or what is lent to it
	slot     mem.Buffer
	of       *ring      // that the slot counts for
	data     mem.Buffer // what the inner transport has lent
	keeps    bool       // the inner transport keeps the message, and then data
	direct   bool       // a borrow whose message the inner transport takes to memory
	copying  bool
	copied   bool  // of a send: into its slot
	failed   error // of a send: why it was not
}

// ours marks the tokens that the inner transport is given for an op. An engine's begin with the number of
// a request under way, which never comes to that.
const ours = nbc.Token(1<<32-2) << 32

func (o *op) token() nbc.Token { return ours | nbc.Token(o.number) }

// own returns the op that a token names; nil for a caller's.
func (t *Transport) own(tok nbc.Token) *op {
	if tok>>32 != ours>>32 {
		return nil
	}
	return t.ops[uint32(tok)]
}

// add returns an op of the kind and identity given.
func (t *Transport) add(k kind, tok nbc.Token, peer int, tag nbc.Tag, n int) *op {
	if last := len(t.unused) - 1; last < 0 {
		o := &op{number: len(t.ops)}
		t.ops = append(t.ops, o)
		t.unused = append(t.unused, o)
	}
	last := len(t.unused) - 1
	o := t.unused[last]
	t.unused = t.unused[:last]
	*o = op{number: o.number, kind: k, tok: tok, peer: peer, tag: tag, n: n, expected: t.expected}
	t.active++
	return o
}

// begin returns the op for a message, or for its first piece.
func (t *Transport) begin(k kind, tok nbc.Token, peer int, tag nbc.Tag, n int, memory mem.Buffer) *op {
	if t.cuts(n) {
		return t.next(t.cut(k, tok, peer, tag, n, memory))
	}
	o := t.add(k, tok, peer, tag, n)
	o.memory = memory
	return o
}

// drop forgets an op.
func (t *Transport) drop(o *op) {
	*o = op{number: o.number}
	t.unused = append(t.unused, o)
	t.active--
}

// host returns the part of the slot that the message has on the inner transport.
func (o *op) host() mem.Buffer { return o.slot.Slice(0, o.n) }

// body returns how many of its bytes are the caller's.
func (o *op) body() int { return o.n - o.trailer }
