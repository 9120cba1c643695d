package transporttest

import (
	"errors"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
)

// Memory is memory that a transport carries besides the host's (nbc.Carrier).
type Memory interface {
	Alloc(n int) (mem.Buffer, error)
	Free(b mem.Buffer)
	// Write makes b hold src, Read makes dst hold what b does. Both return when that is done.
	Write(b mem.Buffer, src []byte) error
	Read(dst []byte, b mem.Buffer) error
}

// In returns t as the cases want it, whose messages lie in m at both ends: every one is
// written there before it is sent, and read from there when it has come. Where mixed is set, one end or the other
// of some lies in host memory.
func In(m Memory, t nbc.Transport, mixed bool) nbc.Transport {
	o := &other{Transport: t, memory: m, mixed: mixed, under: map[nbc.Token]*otherOp{}}
	if n, ok := t.(nbc.Notifier); ok {
		return struct {
			*other
			nbc.Notifier
		}{o, n}
	}
	return o
}

// other is what In returns.
type other struct {
	nbc.Transport
	memory Memory
	mixed  bool
	under  map[nbc.Token]*otherOp
}

// otherOp is an operation in the other memory.
type otherOp struct {
	at      mem.Buffer // empty where it is borrowed
	dst     mem.Buffer // in host memory, of a receive
	borrows bool
}

// host reports whether the end of a message lies in host memory: by its identity, since messages of
// one identity lie in one memory.
func (o *other) host(tag nbc.Tag, n int, end uint32) bool {
	return n == 0 || o.mixed && (tag.Message+tag.Instance)%3 == end
}

func (o *other) begin(tok nbc.Token, n int, dst mem.Buffer) (*otherOp, error) {
	at, err := o.memory.Alloc(n)
	if err != nil {
		return nil, err
	}
	op := &otherOp{at: at, dst: dst}
	o.under[tok] = op
	return op, nil
}

func (o *other) Send(tok nbc.Token, to int, tag nbc.Tag, src mem.Buffer) error {
	if o.host(tag, src.Len(), 1) {
		return o.Transport.Send(tok, to, tag, src)
	}
	op, err := o.begin(tok, src.Len(), mem.Buffer{})
	if err == nil {
		err = o.memory.Write(op.at, mem.Bytes(src))
	}
	if err != nil {
		return err
	}
	return o.Transport.Send(tok, to, tag, op.at)
}

func (o *other) Recv(tok nbc.Token, from int, tag nbc.Tag, dst mem.Buffer) error {
	if o.host(tag, dst.Len(), 2) {
		return o.Transport.Recv(tok, from, tag, dst)
	}
	op, err := o.begin(tok, dst.Len(), dst)
	if err != nil {
		return err
	}
	return o.Transport.Recv(tok, from, tag, op.at)
}

func (o *other) RecvBorrow(tok nbc.Token, from int, tag nbc.Tag, n int) error {
	if o.host(tag, n, 2) {
		return o.Transport.RecvBorrow(tok, from, tag, n)
	}
	o.under[tok] = &otherOp{borrows: true}
	return o.Transport.(nbc.Carrier).RecvBorrowIn(mem.CUDA, tok, from, tag, n)
}

func (o *other) Poll(done []nbc.Completion) (int, error) {
	n, err := o.Transport.Poll(done)
	for i := range done[:n] {
		if op := o.under[done[i].Token]; op != nil {
			err = errors.Join(err, o.ended(&done[i], op))
		}
	}
	return n, err
}

// ended brings what has come to the host.
func (o *other) ended(c *nbc.Completion, op *otherOp) error {
	delete(o.under, c.Token)
	if !op.borrows {
		defer o.memory.Free(op.at)
	}
	switch {
	case c.Err != nil:
		return nil
	case op.borrows:
		if c.Data.Space() != mem.CUDA {
			return errors.New("what is borrowed lies in other memory than it was asked for in")
		}
		data := make([]byte, c.Data.Len())
		err := o.memory.Read(data, c.Data)
		c.Data = mem.Of(data)
		return err
	case op.dst.Len() == 0:
		return nil
	}
	return o.memory.Read(mem.Bytes(op.dst), op.at)
}
