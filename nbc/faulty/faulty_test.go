package faulty_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/faulty"
	"github.com/scaffe/scaffe/nbc/inproc"
	"github.com/scaffe/scaffe/nbc/transporttest"
)

func wrapped(t *testing.T, n int, p faulty.Plan) []*faulty.Transport {
	t.Helper()
	w := inproc.NewWorld(n, inproc.Options{})
	var all []*faulty.Transport
	for r := range n {
		inner, err := w.Open(r)()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, faulty.Wrap(inner, p))
	}
	return all
}

// TestConformance: delays and another order of completions are within what a
// transport may do.
func TestConformance(t *testing.T) {
	for _, p := range []faulty.Plan{{}, {Seed: 1, Delay: 4}, {Seed: 2, Reorder: true}, {Seed: 3, Delay: 9, Reorder: true}} {
		ranks := wrapped(t, 3, p)
		each := func(run func(nbc.Transport) error) error {
			errs := make([]error, len(ranks))
			var wg sync.WaitGroup
			for r, e := range ranks {
				wg.Go(func() { errs[r] = run(e) })
			}
			wg.Wait()
			return errors.Join(errs...)
		}
		for _, c := range append(transporttest.Cases(), transporttest.Case{Name: "abort", Run: transporttest.Abort}) {
			t.Run(fmt.Sprintf("%v/%s", p, c.Name), func(t *testing.T) {
				if err := each(c.Run); err != nil {
					t.Fatalf("%v: %v", p, err)
				}
			})
		}
	}
}

// history lets rank 0 send 20 messages to rank 1 and returns what came of them
// there, in the order in which it was heard.
func history(t *testing.T, p faulty.Plan) string {
	t.Helper()
	ranks := wrapped(t, 2, p)
	var told strings.Builder
	for i := range 20 {
		tag := nbc.Tag{Message: uint32(i)}
		if err := errors.Join(
			ranks[1].Recv(nbc.Token(i), 0, tag, mem.Of(make([]byte, 10))),
			ranks[0].Send(nbc.Token(i), 1, tag, mem.Of(make([]byte, 10))),
		); err != nil {
			t.Fatal(err)
		}
	}
	done := make([]nbc.Completion, 7)
	for turn := range 40 {
		for _, r := range []int{1, 0} {
			n, err := ranks[r].Poll(done)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range done[:n] {
				fmt.Fprintf(&told, "%d:%d:%d:%v ", turn, r, c.Token, c.Err)
			}
		}
	}
	return told.String()
}

// TestReplay: the same plan has the same history, another seed another.
func TestReplay(t *testing.T) {
	p := faulty.Plan{Seed: 4, Delay: 5, Reorder: true, Drop: 3, Cut: 8}
	once := history(t, p)
	if again := history(t, p); again != once {
		t.Errorf("%v went like this:\n%s\nand then like this:\n%s", p, once, again)
	}
	for _, want := range []string{"inproc: message of another length", fmt.Sprintf("rank 1 under %v", p)} {
		if !strings.Contains(once, want) {
			t.Errorf("no error says %q: %s", want, once)
		}
	}
	if strings.Contains(once, ":1:2:") || !strings.Contains(once, ":0:2:") {
		t.Errorf("the third message arrived, or its sender was not told so: %s", once)
	}
	p.Seed++
	if history(t, p) == once {
		t.Error("another seed changes nothing")
	}
}

// TestDie: a rank that has stopped does nothing any more, without an error.
func TestDie(t *testing.T) {
	ranks := wrapped(t, 2, faulty.Plan{Die: 2})
	b := mem.Of(make([]byte, 4))
	for i := range 3 {
		if err := ranks[0].Send(nbc.Token(i), 1, nbc.Tag{Message: uint32(i)}, b); err != nil {
			t.Fatal(err)
		}
		if dead := i >= 1; ranks[0].Dead() != dead {
			t.Errorf("after %d operations dead is %v", i+1, !dead)
		}
	}
	if err := ranks[0].Abort(context.Background(), "told after death"); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(ranks[0].Notify(1, []byte("told after death")), ranks[1].Notify(0, []byte("?"))); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, nbc.NoticeRoom)
	for r, rank := range ranks {
		if n, err := rank.Poll(make([]nbc.Completion, 4)); n != 0 || err != nil {
			t.Errorf("rank %d: %d, %v", r, n, err)
		}
		if from, _ := rank.NextNotice(buf); from >= 0 {
			t.Errorf("rank %d hears rank %d", r, from)
		}
	}
}
