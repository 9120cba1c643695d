// Package transporttest is the conformance suite of nbc.Transport. Every
// transport runs the same cases.
//
// A case is what one rank does; all ranks of a world run it together, each
// with its own transport. In one process they are goroutines, under mpirun
// they are processes.
package transporttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
)

// deadline bounds every wait of the suite.
const deadline = 60 * time.Second

// Case is one case of the suite.
type Case struct {
	Name string
	// Run is one rank's part. It returns what was wrong.
	Run func(t nbc.Transport) error
}

// Cases lists the suite. They can run one after the other on one world.
func Cases() []Case {
	return []Case{
		{"exchange", exchange},
		{"posted before sent", func(t nbc.Transport) error { return ordered(t, true) }},
		{"sent before posted", func(t nbc.Transport) error { return ordered(t, false) }},
		{"any order of receives", anyOrder},
		{"equal tags keep their order", equalTags},
		{"the whole tag counts", wholeTag},
		{"many identities in any order", identities},
		{"borrow and release", borrow},
		{"many in flight", many},
		{"memory of the Go heap", goHeap},
		{"length mismatch", mismatch},
		{"wake ends park", wake},
		{"notices", notices},
		{"its own memory", func(t nbc.Transport) error { return ownMemory(t, false) }},
		{"its own memory and other", func(t nbc.Transport) error { return ownMemory(t, true) }},
		{"handed over at once", eager},
		{"random traffic", traffic},
	}
}

// Abort is the last case of a world: rank 0 gives up, the others learn why.
// Nothing works on the world's transports afterwards.
func Abort(t nbc.Transport) error {
	const reason = "the disk is full\non this rank"
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	if t.Rank() == 0 {
		return GiveUp(ctx, t, reason)
	}
	for ctx.Err() == nil {
		_, err := t.Poll(make([]nbc.Completion, 4))
		var abort *nbc.AbortError
		if errors.As(err, &abort) {
			if abort.Rank != 0 || abort.Reason != reason {
				return fmt.Errorf("rank %d learned %+v", t.Rank(), abort)
			}
			return nil
		}
		if err != nil {
			return err
		}
		t.Park(time.Millisecond)
	}
	return fmt.Errorf("rank %d never learned of the abort", t.Rank())
}

// GiveUp calls Abort and polls meanwhile, as an engine does: Abort waits and
// does not poll itself.
func GiveUp(ctx context.Context, t nbc.Transport, reason string) error {
	result := make(chan error, 1)
	go func() { result <- t.Abort(ctx, reason) }()
	for {
		select {
		case err := <-result:
			return err
		default:
			_, _ = t.Poll(nil) // what has failed is why it gives up
			t.Park(time.Millisecond)
		}
	}
}

// driver polls a transport and keeps what ended.
type driver struct {
	nbc.Transport
	next  nbc.Token
	ended map[nbc.Token]nbc.Completion
}

func drive(t nbc.Transport) *driver {
	return &driver{Transport: t, ended: map[nbc.Token]nbc.Completion{}}
}

func (d *driver) token() nbc.Token {
	d.next++
	return d.next
}

func (d *driver) send(to int, tag nbc.Tag, b []byte) (nbc.Token, error) {
	tok := d.token()
	return tok, d.Send(tok, to, tag, offHeap(b))
}

func (d *driver) recv(from int, tag nbc.Tag, n int) (nbc.Token, mem.Buffer, error) {
	tok, dst := d.token(), mem.Alloc(n)
	return tok, dst, d.Recv(tok, from, tag, dst)
}

// look polls once and keeps what ended.
func (d *driver) look() error {
	done := make([]nbc.Completion, 3)
	n, err := d.Poll(done)
	if err != nil {
		return err
	}
	for _, c := range done[:n] {
		if _, twice := d.ended[c.Token]; twice {
			return fmt.Errorf("rank %d: operation %d ended twice", d.Rank(), c.Token)
		}
		d.ended[c.Token] = c
	}
	if n == 0 {
		d.Park(time.Millisecond)
	}
	return nil
}

// wait waits for one operation.
func (d *driver) wait(tok nbc.Token) (nbc.Completion, error) {
	for end := time.Now().Add(deadline); time.Now().Before(end); {
		if c, ok := d.ended[tok]; ok {
			delete(d.ended, tok)
			return c, nil
		}
		if err := d.look(); err != nil {
			return nbc.Completion{}, err
		}
	}
	return nbc.Completion{}, fmt.Errorf("rank %d: operation %d never ended", d.Rank(), tok)
}

// waitAll waits for operations that must succeed.
func (d *driver) waitAll(toks ...nbc.Token) error {
	for _, tok := range toks {
		if c, err := d.wait(tok); err != nil || c.Err != nil {
			return errors.Join(err, c.Err)
		}
	}
	return nil
}

// barrier lets no rank continue before all have come; it uses a communicator of
// its own.
func (d *driver) barrier() error {
	for peer := range d.Size() {
		tag := nbc.Tag{Comm: 7, Message: 1}
		if peer == d.Rank() {
			continue
		}
		s, err := d.send(peer, tag, []byte{1})
		if err != nil {
			return err
		}
		r, _, err := d.recv(peer, tag, 1)
		if err != nil {
			return err
		}
		if err := d.waitAll(s, r); err != nil {
			return fmt.Errorf("barrier: %w", err)
		}
	}
	return nil
}

func offHeap(b []byte) mem.Buffer {
	m := mem.Alloc(len(b))
	copy(mem.Bytes(m), b)
	return m
}

// text is what all contents are parts of: made once, since each byte written costs the race detector more than its transfer.
var text = sync.OnceValue(func() []byte {
	words := make([]int64, 1<<19)
	x := uint64(1)
	for i := range words {
		x = x*6364136223846793005 + 1442695040888963407
		words[i] = int64(x ^ x>>29)
	}
	return mem.Bytes(mem.Of(words))
})

// content returns n bytes that no other (sender, message) has, to be read only.
func content(from, message, n int) []byte {
	at := (from*7919 + message*104729) % (1 << 18) * 8
	return text()[at : at+n : at+n]
}

func equal(got []byte, from, message int) error {
	if want := content(from, message, len(got)); !bytes.Equal(got, want) {
		return fmt.Errorf("message %d from rank %d arrived with other contents", message, from)
	}
	return nil
}

var sizes = []int{1, 7, 4096, 65537, 1<<20 + 3}

func exchange(t nbc.Transport) error {
	d := drive(t)
	for i, n := range sizes {
		var toks []nbc.Token
		got := make([]mem.Buffer, t.Size())
		for peer := range t.Size() {
			tag := nbc.Tag{Instance: 1, Message: uint32(i)}
			r, dst, err := d.recv(peer, tag, n)
			if err != nil {
				return err
			}
			s, err := d.send(peer, tag, content(t.Rank(), i, n))
			if err != nil {
				return err
			}
			got[peer] = dst
			toks = append(toks, r, s)
		}
		if err := d.waitAll(toks...); err != nil {
			return err
		}
		for peer, b := range got {
			if err := equal(mem.Bytes(b), peer, i); err != nil {
				return err
			}
		}
	}
	return d.barrier()
}

// neighbors returns the ranks after and before t's own in a ring.
func neighbors(t nbc.Transport) (to, from int) {
	return (t.Rank() + 1) % t.Size(), (t.Rank() + t.Size() - 1) % t.Size()
}

func ordered(t nbc.Transport, recvFirst bool) error {
	d := drive(t)
	to, from := neighbors(t)
	for i, n := range sizes {
		tag := nbc.Tag{Instance: 2, Message: uint32(i)}
		var r, s nbc.Token
		var dst mem.Buffer
		recv := func() (err error) { r, dst, err = d.recv(from, tag, n); return }
		send := func() (err error) { s, err = d.send(to, tag, content(t.Rank(), i, n)); return }
		first, second := send, recv
		if recvFirst {
			first, second = recv, send
		}
		if err := errors.Join(first(), d.barrier(), second(), d.waitAll(r, s)); err != nil {
			return err
		}
		if err := equal(mem.Bytes(dst), from, i); err != nil {
			return err
		}
	}
	return d.barrier()
}

func anyOrder(t nbc.Transport) error {
	const messages = 40
	d := drive(t)
	to, from := neighbors(t)
	var toks []nbc.Token
	for i := range messages {
		s, err := d.send(to, nbc.Tag{Instance: 3, Message: uint32(i)}, content(t.Rank(), i, 100+i))
		if err != nil {
			return err
		}
		toks = append(toks, s)
	}
	got := map[int]mem.Buffer{}
	for k := range messages {
		i := (k*17 + 5) % messages
		r, dst, err := d.recv(from, nbc.Tag{Instance: 3, Message: uint32(i)}, 100+i)
		if err != nil {
			return err
		}
		got[i] = dst
		toks = append(toks, r)
	}
	if err := d.waitAll(toks...); err != nil {
		return err
	}
	for i, b := range got {
		if err := equal(mem.Bytes(b), from, i); err != nil {
			return err
		}
	}
	return d.barrier()
}

func equalTags(t nbc.Transport) error {
	const messages = 20
	d := drive(t)
	to, from := neighbors(t)
	tag := nbc.Tag{Instance: 4}
	var toks []nbc.Token
	var got []mem.Buffer
	for i := range messages {
		s, err := d.send(to, tag, content(t.Rank(), i, 50))
		if err != nil {
			return err
		}
		r, dst, err := d.recv(from, tag, 50)
		if err != nil {
			return err
		}
		toks, got = append(toks, s, r), append(got, dst)
	}
	if err := d.waitAll(toks...); err != nil {
		return err
	}
	for i, b := range got {
		if err := equal(mem.Bytes(b), from, i); err != nil {
			return err
		}
	}
	return d.barrier()
}

func wholeTag(t nbc.Transport) error {
	d := drive(t)
	to, from := neighbors(t)
	tags := []nbc.Tag{
		{Comm: 1, Instance: 1, Message: 1},
		{Comm: 2, Instance: 1, Message: 1},
		{Comm: 1, Instance: 2, Message: 1},
		{Comm: 1, Instance: 1, Message: 2},
		{Comm: 1, Instance: 1, Message: 1, Fingerprint: 1},
	}
	var toks []nbc.Token
	got := make([]mem.Buffer, len(tags))
	for i, tag := range tags {
		s, err := d.send(to, tag, content(t.Rank(), i, 9))
		if err != nil {
			return err
		}
		toks = append(toks, s)
	}
	for i := len(tags) - 1; i >= 0; i-- {
		r, dst, err := d.recv(from, tags[i], 9)
		if err != nil {
			return err
		}
		got[i] = dst
		toks = append(toks, r)
	}
	if err := d.waitAll(toks...); err != nil {
		return err
	}
	for i, b := range got {
		if err := equal(mem.Bytes(b), from, i); err != nil {
			return err
		}
	}
	return d.barrier()
}

func borrow(t nbc.Transport) error {
	d := drive(t)
	to, from := neighbors(t)
	const messages = 10
	for _, n := range sizes {
		var sends, recvs []nbc.Token
		for i := range messages {
			tag := nbc.Tag{Instance: 5, Message: uint32(i)}
			r := d.token()
			if err := d.RecvBorrow(r, from, tag, n); err != nil {
				return err
			}
			s, err := d.send(to, tag, content(t.Rank(), i, n))
			if err != nil {
				return err
			}
			sends, recvs = append(sends, s), append(recvs, r)
		}
		for i, r := range recvs { // all are held at once
			c, err := d.wait(r)
			if err != nil || c.Err != nil {
				return errors.Join(err, c.Err)
			}
			if c.Data.Len() != n {
				return fmt.Errorf("borrowed %d bytes, asked for %d", c.Data.Len(), n)
			}
			if err := equal(mem.Bytes(c.Data), from, i); err != nil {
				return err
			}
		}
		for _, r := range recvs {
			d.Release(r)
		}
		if err := d.waitAll(sends...); err != nil {
			return err
		}
	}
	return d.barrier()
}

func many(t nbc.Transport) error {
	d := drive(t)
	to, from := neighbors(t)
	const messages = 500
	var toks []nbc.Token
	var got []mem.Buffer
	for i := range messages {
		tag := nbc.Tag{Instance: 6, Message: uint32(i)}
		r, dst, err := d.recv(from, tag, 64)
		if err != nil {
			return err
		}
		s, err := d.send(to, tag, content(t.Rank(), i, 64))
		if err != nil {
			return err
		}
		toks, got = append(toks, r, s), append(got, dst)
	}
	if err := d.waitAll(toks...); err != nil {
		return err
	}
	for i, b := range got {
		if err := equal(mem.Bytes(b), from, i); err != nil {
			return err
		}
	}
	return d.barrier()
}

func goHeap(t nbc.Transport) error {
	d := drive(t)
	to, from := neighbors(t)
	src, dst := content(t.Rank(), 0, 300_000), make([]byte, 300_000)
	tag := nbc.Tag{Instance: 7}
	s, r := d.token(), d.token()
	if err := errors.Join(d.Recv(r, from, tag, mem.Of(dst)), d.Send(s, to, tag, mem.Of(src)), d.waitAll(r, s)); err != nil {
		return err
	}
	return errors.Join(equal(dst, from, 0), d.barrier())
}

func mismatch(t nbc.Transport) error {
	d := drive(t)
	to, from := neighbors(t)
	for i, want := range []int{10, 1000} { // rank sends 100: too long, too short
		tag := nbc.Tag{Instance: 8, Message: uint32(i)}
		r, _, err := d.recv(from, tag, want)
		if err != nil {
			return err
		}
		s, err := d.send(to, tag, content(t.Rank(), i, 100))
		if err != nil {
			return err
		}
		c, err := d.wait(r)
		if err != nil {
			return err
		}
		if !errors.Is(c.Err, nbc.ErrLength) {
			return fmt.Errorf("a message of 100 bytes was taken for one of %d: %v", want, c.Err)
		}
		if _, err := d.wait(s); err != nil {
			return err
		}
	}
	return d.barrier()
}

func wake(t nbc.Transport) error {
	d := drive(t)
	go t.Wake()
	t.Park(deadline / 2) // hangs for long, and shows in the suite's time, where Wake is lost
	if e, ok := t.(nbc.Eager); ok {
		if err := napEnds(e, t.Wake); err != nil {
			return err
		}
	}
	return d.barrier()
}

// napEnds: a nap ends with Wake, whichever of the two comes first.
func napEnds(e nbc.Eager, wake func()) error {
	ended := make(chan struct{})
	go func() {
		e.Nap(2 * deadline)
		close(ended)
	}()
	wake()
	select {
	case <-ended:
		return nil
	case <-time.After(deadline):
		return errors.New("a nap does not end with Wake")
	}
}

// noticeBurst is how many notices a rank tells another at a time: a stalled collective of many slices asks about each.
const noticeBurst = 16

// notices tells every other rank a few at a time, which must all arrive
// there, whole and in order, while it has nothing under way.
func notices(t nbc.Transport) error {
	d := drive(t)
	notifier, ok := t.(nbc.Notifier)
	if !ok {
		return d.barrier()
	}
	for to := range t.Size() {
		for i := 0; i < noticeBurst && to != t.Rank(); i++ {
			if err := notifier.Notify(to, content(t.Rank(), to+i, nbc.NoticeRoom-i)); err != nil {
				return err
			}
		}
	}
	heard := make([]int, t.Size())
	heard[t.Rank()] = noticeBurst
	buf := make([]byte, nbc.NoticeRoom)
	for end := time.Now().Add(deadline); slices.Min(heard) < noticeBurst; {
		if _, err := t.Poll(nil); err != nil {
			return err
		}
		for {
			from, n := notifier.NextNotice(buf)
			if from < 0 {
				break
			}
			if n != nbc.NoticeRoom-heard[from] {
				return fmt.Errorf("notice %d from rank %d has %d bytes", heard[from], from, n)
			}
			if err := equal(buf[:n], from, t.Rank()+heard[from]); err != nil {
				return err
			}
			heard[from]++
		}
		if time.Now().After(end) {
			return fmt.Errorf("rank %d heard %v notices, by rank, of %d each", t.Rank(), heard, noticeBurst)
		}
		t.Park(time.Millisecond)
	}
	if notifier.Notify(t.Size(), nil) == nil || notifier.Notify((t.Rank()+1)%t.Size(), make([]byte, nbc.NoticeRoom+1)) == nil {
		return errors.New("a notice to no rank, or one too long, was accepted")
	}
	return d.barrier()
}
