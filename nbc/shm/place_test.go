//go:build linux && (amd64 || arm64)

package shm

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/scaffe/scaffe/chain"
	"github.com/scaffe/scaffe/direct"
	"github.com/scaffe/scaffe/kernels"
	"github.com/scaffe/scaffe/kernels/device"
	"github.com/scaffe/scaffe/linear"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/inproc"
	"github.com/scaffe/scaffe/scatter"
	"github.com/scaffe/scaffe/schedule"
)

// TestPlace: a sender that has heard of a receive writes the message there by itself, and says so by sending it from
// there; one that has not, or whose message has another length, has no place.
func TestPlace(t *testing.T) {
	ts := world(t, Options{}, 0, 0)
	const n = 100_000
	tag := nbc.Tag{Instance: 1}
	dst, err := ts[1].(nbc.Allocator).Alloc(n)
	if err != nil {
		t.Fatal(err)
	}
	sender := ts[0].(nbc.Placer)
	var done [4]nbc.Completion
	if _, ok := sender.Place(1, tag, n); ok {
		t.Error("there is a place for a message that nobody waits for")
	}
	if err := ts[1].Recv(1, 0, tag, dst); err != nil {
		t.Fatal(err)
	}
	if _, err := ts[0].Poll(done[:]); err != nil { // hears of the receive
		t.Fatal(err)
	}
	if _, ok := sender.Place(1, tag, n-1); ok {
		t.Error("there is a place for a message of another length")
	}
	if _, ok := sender.Place(1, nbc.Tag{Instance: 2}, n); ok {
		t.Error("there is a place for another message")
	}
	if _, ok := sender.Place(0, tag, n); ok {
		t.Error("there is a place at the sender itself")
	}
	place, ok := sender.Place(1, tag, n)
	if !ok {
		t.Fatal("there is no place for a message that is waited for")
	}
	mem.Bytes(place)[n-1] = 7
	if k, err := ts[1].Poll(done[:]); k != 0 || err != nil {
		t.Fatalf("the receive has ended (%d, %v) before its message was sent", k, err)
	}
	if err := errors.Join(ts[0].Send(1, 1, tag, place), drain(ts[0], 1), drain(ts[1], 1)); err != nil {
		t.Fatal(err)
	}
	if mem.Bytes(dst)[n-1] != 7 {
		t.Error("the message is not where the receiver wanted it")
	}
	private := mem.Alloc(n)
	defer private.Free()
	tag.Instance++
	if err := ts[1].Recv(1, 0, tag, private); err != nil {
		t.Fatal(err)
	}
	if _, err := ts[0].Poll(done[:]); err != nil {
		t.Fatal(err)
	}
	if _, ok := sender.Place(1, tag, n); ok {
		t.Error("there is a place in memory that is not shared")
	}
	if err := errors.Join(ts[0].Send(1, 1, tag, dst), drain(ts[0], 1), drain(ts[1], 1)); err != nil {
		t.Fatal(err)
	}
	all(t, ts, nbc.Transport.Close)
}

// spreading counts at how many places a device has stored its sums, and messages that are passed on.
type spreading struct {
	nbc.Spreader
	places *atomic.Int64
}

func (s spreading) ReduceTo(tok nbc.Token, dt mem.Datatype, op mem.Op, to, from []mem.Buffer) (bool, error) {
	s.places.Add(int64(len(to)))
	return s.Spreader.ReduceTo(tok, dt, op, to, from)
}

func (s spreading) CopyTo(tok nbc.Token, to []mem.Buffer, src mem.Buffer) (bool, error) {
	s.places.Add(int64(len(to)))
	return s.Spreader.CopyTo(tok, to, src)
}

// Spreads: at any number of places, however few bytes.
func (s spreading) Spreads(int, int) bool { return true }

// TestSumsAreStoredWhereTheyAreWanted: ranks that divide sums up store them in each other's buffers, in place or not, and
// go on with the next call at once; one that sums for all lets the others copy.
func TestSumsAreStoredWhereTheyAreWanted(t *testing.T) {
	const count, chunk, rounds = 60_000, 20_000, 12
	for _, n := range []int{2, 3, 5} {
		for _, c := range []struct {
			name  string
			build func(*schedule.Builder, schedule.Params)
			least int // sums that are stored elsewhere, of all ranks and rounds: some may be made before they are waited for
			whole bool
		}{
			{"direct reduce", direct.Reduce, 1, false},
			{"direct allreduce", direct.Allreduce, n, true},
			{"linear reduce", linear.Reduce, 0, false},
		} {
			for _, inPlace := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %d ranks, in place %v", c.name, n, inPlace), func(t *testing.T) {
					var places atomic.Int64
					spread(t, n, &places, func(e *nbc.Engine) error {
						return sumRounds(e, c.build, count, chunk, rounds, true, inPlace, c.whole)
					})
					switch got := int(places.Load()); {
					case c.least == 0 && got > 0:
						t.Errorf("%d places", got)
					case !inPlace && got < c.least:
						t.Errorf("sums were stored at %d places, want %d or more", got, c.least)
					}
				})
			}
		}
	}
}

// TestMessagesAreStoredWhereTheyAreWanted: ranks that divide a broadcast up store what they receive in each other's buffers, again and
// again, wherever they and the root have theirs; where one rank passes all on, it is not stored elsewhere.
func TestMessagesAreStoredWhereTheyAreWanted(t *testing.T) {
	const count, rounds = 300_000, 8 // larger messages than a caller receives by itself
	for _, n := range []int{3, 4, 6} {
		for _, c := range []struct {
			name    string
			build   func(*schedule.Builder, schedule.Params)
			private int // the rank whose memory is private; -1: none's is
			from    int // from so many ranks on messages are stored at several places
		}{
			{"scatter", scatter.Bcast, -1, 3},
			{"scatter, the root's private", scatter.Bcast, 1, 4},
			{"scatter, another's private", scatter.Bcast, 0, 4},
			{"linear", linear.Bcast, -1, 7},
			{"chain", chain.Bcast, -1, 7},
		} {
			t.Run(fmt.Sprintf("%s, %d ranks", c.name, n), func(t *testing.T) {
				var places atomic.Int64
				spread(t, n, &places, func(e *nbc.Engine) error {
					return bcastRounds(e, c.build, schedule.Params{Rank: e.Rank(), Size: n, Root: 1, Count: count, Chunk: count / 3}, rounds, e.Rank() != c.private)
				})
				if got := places.Load(); got > 0 != (n >= c.from) {
					t.Errorf("messages were stored at %d places", got)
				}
			})
		}
	}
}

// bcastRounds broadcasts the root's numbers again and again, in the same buffers.
func bcastRounds(e *nbc.Engine, build func(*schedule.Builder, schedule.Params), p schedule.Params, rounds int, registered bool) error {
	out, give, err := numbers(e, p.Count, registered)
	if err != nil {
		return err
	}
	defer give()
	b := schedule.NewBuilder(p.Rank, p.Size, p.Count)
	build(b, p)
	plan, err := nbc.CompileOn(b.Schedule(), make([]int, p.Size))
	if err != nil {
		return err
	}
	r, err := e.Prepare(plan, nbc.Binding{Name: "bcast", Call: "bcast", Out: mem.Of(out), Datatype: mem.Int64, Instance: 1})
	if err != nil {
		return err
	}
	defer r.Close()
	for round := range rounds {
		for i := range out {
			out[i] = int64(-i)
			if p.Rank == p.Root {
				out[i] = int64(i + round)
			}
		}
		if err := r.Run(context.Background()); err != nil {
			return err
		}
		for i, got := range out {
			if got != int64(i+round) {
				return fmt.Errorf("rank %d, round %d, element %d: %d, want %d", p.Rank, round, i, got, i+round)
			}
		}
	}
	return nil
}

// TestSumsOfPrivateMemory: what the loop adds lands where the sum goes, unless that is where it was.
func TestSumsOfPrivateMemory(t *testing.T) {
	for _, n := range []int{2, 3} {
		for _, c := range []struct {
			name  string
			build func(*schedule.Builder, schedule.Params)
			whole bool
		}{
			{"direct reduce", direct.Reduce, false},
			{"direct allreduce", direct.Allreduce, true},
			{"linear reduce", linear.Reduce, false},
			{"chain reduce", chain.Reduce, false},
		} {
			for _, count := range []int{3 * (addedRoom/8 + 1), kernels.StreamFrom / 8} {
				for _, inPlace := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s, %d ranks, %d, in place %v", c.name, n, count, inPlace), func(t *testing.T) {
						var placed int64
						for _, of := range enginesWith(t, n, Options{Room: 1 << 28, forceShare: true}, func(e *nbc.Engine) error {
							return sumRounds(e, c.build, count, count/3, 3, false, inPlace, c.whole)
						}) {
							placed += of.placed.Load()
						}
						if placed > 0 == inPlace {
							t.Errorf("of %d messages is said where they may land", placed)
						}
					})
				}
			}
		}
	}
}

// spread is enginesWith with devices that store sums wherever they can.
func spread(t *testing.T, n int, places *atomic.Int64, f func(e *nbc.Engine) error) {
	t.Helper()
	w := inproc.NewWorld(n, inproc.Options{})
	k, err := kernels.NewCPU()
	if err != nil {
		t.Fatal(err)
	}
	err = each(n, func(r int) error {
		open := func() (nbc.Transport, error) {
			inner, err := w.Open(r)()
			if err != nil {
				return nil, err
			}
			return New(inner, Options{Room: 1 << 28, forceShare: true})
		}
		e, err := nbc.Start(open, struct {
			nbc.Device
			spreading
		}{device.CPU(k), spreading{device.CPU(k).(nbc.Spreader), places}}, nbc.Options{})
		if err != nil {
			return err
		}
		if err = f(e); err != nil { // or the others wait for this rank
			err = errors.Join(err, e.Abort(context.Background(), err.Error()))
		}
		return errors.Join(err, e.Close())
	})
	if err != nil {
		t.Fatal(err)
	}
}

// sumRounds sums the ranks' numbers again and again, in the same buffers.
func sumRounds(e *nbc.Engine, build func(*schedule.Builder, schedule.Params), count, chunk, rounds int, registered, inPlace, whole bool) error {
	n := e.Size()
	in, giveIn, err := numbers(e, count, registered)
	if err != nil {
		return err
	}
	defer giveIn()
	out := in
	if !inPlace {
		var giveOut func()
		if out, giveOut, err = numbers(e, count, registered); err != nil {
			return err
		}
		defer giveOut()
	}
	b := schedule.NewBuilder(e.Rank(), n, count)
	if !inPlace {
		b.Apart()
	}
	build(b, schedule.Params{Rank: e.Rank(), Size: n, Count: count, Chunk: chunk})
	p, err := nbc.CompileOn(b.Schedule(), make([]int, n))
	if err != nil {
		return err
	}
	r, err := e.Prepare(p, nbc.Binding{Name: "sum", Call: fmt.Sprint(count), In: mem.Of(in), Out: mem.Of(out), Datatype: mem.Int64, Op: mem.Sum, Instance: 1})
	if err != nil {
		return err
	}
	defer r.Close()
	for round := range rounds {
		for i := range in {
			in[i] = int64(i + e.Rank() + round)
		}
		if err := r.Run(context.Background()); err != nil {
			return err
		}
		for i, got := range out {
			if want := int64(n*(i+round) + n*(n-1)/2); got != want && (whole || e.Rank() == 0) {
				return fmt.Errorf("rank %d, round %d, element %d: %d, want %d", e.Rank(), round, i, got, want)
			}
		}
	}
	return nil
}
