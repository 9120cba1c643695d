//go:build cuda && cgo && linux && (amd64 || arm64)

package staging_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/faulty"
	"github.com/scaffe/scaffe/nbc/internal/gputest"
	"github.com/scaffe/scaffe/nbc/staging"
)

// least is the smallest piece.
const least = 4096

// watched counts what is under way on the transport below, and notes of what collectives its messages are.
type watched struct {
	nbc.Transport
	under, most map[string]int
	way         map[nbc.Token]string
	expected    int
	of          map[int]int // messages of collectives of so many bytes
}

func watch(t nbc.Transport) *watched {
	return &watched{t, map[string]int{}, map[string]int{}, map[nbc.Token]string{}, 0, map[int]int{}}
}

func (w *watched) Expect(bytes int) { w.expected = bytes }

func (w *watched) begins(way string, tok nbc.Token) {
	w.way[tok] = way
	w.under[way]++
	w.most[way] = max(w.most[way], w.under[way])
	w.of[w.expected]++
}

func (w *watched) Send(tok nbc.Token, to int, tag nbc.Tag, src mem.Buffer) error {
	w.begins("out", tok)
	return w.Transport.Send(tok, to, tag, src)
}

func (w *watched) Recv(tok nbc.Token, from int, tag nbc.Tag, dst mem.Buffer) error {
	w.begins("in", tok)
	return w.Transport.Recv(tok, from, tag, dst)
}

func (w *watched) Poll(done []nbc.Completion) (int, error) {
	n, err := w.Transport.Poll(done)
	for _, c := range done[:n] {
		w.under[w.way[c.Token]]--
	}
	return n, err
}

// poll polls a transport until something is so, and returns what has ended.
func poll(t *testing.T, s nbc.Transport, until func(ended int) bool) (all []nbc.Completion) {
	t.Helper()
	var done [8]nbc.Completion
	for end := time.Now().Add(time.Minute); !until(len(all)); {
		n, err := s.Poll(done[:])
		if err != nil {
			t.Fatal(err)
		}
		if all = append(all, done[:n]...); n == 0 {
			s.Park(time.Millisecond)
		}
		if time.Now().After(end) {
			t.Fatal("not within a minute")
		}
	}
	return all
}

// text returns n bytes of message i, which are nowhere like others of it.
func text(i, n int) []byte {
	b := make([]byte, n)
	for k, x := 0, uint32(i); k < n; k++ {
		x = x*1664525 + 1013904223
		b[k] = byte(x >> 24)
	}
	return b
}

// A message of any size takes a quarter of a ring at each end, and no more memory than that is pinned for it. The sender copies down and sends so many
// pieces before anybody wants them; another message passes by; the receiver expects as many. The transport below hears for each to what
// collective it belongs.
func TestHugeMessage(t *testing.T) {
	const ring, huge, pieces = 16 * least, 300*least + 5, 4
	for _, borrows := range []bool{false, true} {
		var below []*watched
		w := stack(t, 2, 0, staging.Options{Ring: ring, Piece: least}, func(inner nbc.Transport) nbc.Transport {
			below = append(below, watch(inner))
			return below[len(below)-1]
		}, nil)
		m, s, r := w.memory[0], w.ranks[0], w.ranks[1]
		var at [4]mem.Buffer // sent and received: the huge one, and a small one
		for i := range at {
			var err error
			if at[i], err = m.Alloc([]int{huge, huge, 100, 100}[i]); err != nil {
				t.Fatal(err)
			}
		}
		s.(nbc.Expecter).Expect(huge)
		err := errors.Join(m.Write(at[0], text(1, huge)), s.Send(1, 1, nbc.Tag{Message: 1}, at[0]))
		s.(nbc.Expecter).Expect(7)
		if err != nil {
			t.Fatal(err)
		}
		for range 50 {
			poll(t, s, func(int) bool { return below[0].under["out"] == pieces })
		}
		if n := staging.Pinned(s); n != pieces*least {
			t.Errorf("%d bytes are pinned for what nobody receives", n)
		}
		r.(nbc.Expecter).Expect(7)
		if err := errors.Join(m.Write(at[2], text(2, 100)), s.Send(2, 1, nbc.Tag{Message: 2}, at[2]), r.Recv(2, 0, nbc.Tag{Message: 2}, at[3])); err != nil {
			t.Fatal(err)
		}
		poll(t, s, func(int) bool { return below[0].under["out"] == pieces+1 })
		if ended := poll(t, r, func(ended int) bool { return ended == 1 }); ended[0].Token != 2 {
			t.Errorf("%+v has ended", ended[0])
		}

		r.(nbc.Expecter).Expect(huge)
		if borrows {
			err = r.(nbc.Carrier).RecvBorrowIn(mem.CUDA, 1, 0, nbc.Tag{Message: 1}, huge)
		} else {
			err = r.Recv(1, 0, nbc.Tag{Message: 1}, at[1])
		}
		r.(nbc.Expecter).Expect(7)
		if err != nil {
			t.Fatal(err)
		}
		var done [1]nbc.Completion
		ended := poll(t, r, func(ended int) bool {
			if n, err := s.Poll(done[:]); err != nil || n == 1 && done[0].Err != nil {
				t.Fatal(err, done[0].Err)
			}
			return ended == 1
		})
		got, lies := make([]byte, huge), at[1]
		if borrows {
			lies = ended[0].Data
		}
		if err := errors.Join(ended[0].Err, m.Read(got, lies)); err != nil || !bytes.Equal(got, text(1, huge)) {
			t.Fatal(errors.Join(err, errOther))
		}
		if borrows {
			r.Release(1)
		}
		for i, b := range below {
			way := []string{"out", "in"}[i]
			if b.most[way] < pieces-1 || b.most[way] > pieces+1 { // the small one beside
				t.Errorf("at most %d pieces are under way on the way %s", b.most[way], way)
			}
			if b.of[huge] < 300 || b.of[7] != 1 || len(b.of) != 2 || b.expected != 7 {
				t.Errorf("the messages on the way %s belong to collectives of %v bytes, the next to one of %d", way, b.of, b.expected)
			}
			if n := staging.Pinned(w.ranks[i]); n != (pieces+1)*least && n != pieces*least {
				t.Errorf("rank %d has %d bytes pinned", i, n)
			}
		}
	}
}

// begin begins to receive a message of n bytes, in host memory or that of a GPU, and where borrows is set into memory of the transport's own.
func begin(m *gputest.Memory, t nbc.Transport, tag nbc.Tag, s mem.Space, n int, borrows bool) error {
	switch {
	case s == mem.Host:
		return t.Recv(1, 0, tag, mem.Alloc(n))
	case borrows:
		return t.(nbc.Carrier).RecvBorrowIn(s, 1, 0, tag, n)
	}
	b, err := m.Alloc(n)
	if err != nil {
		return err
	}
	return t.Recv(1, 0, tag, b)
}

// A piece that fails, on the GPU or on its way, ends its message with one error, once.
func TestPieceFails(t *testing.T) {
	const n = 20 * least
	for _, c := range []struct {
		what string
		plan faulty.Plan
		says string
	}{
		{"fail=cuMemcpyDtoHAsync_v2:5:700", faulty.Plan{}, "cuda:0 (stand-in 0)"},
		{"fail=cuMemcpyHtoDAsync_v2:5:700", faulty.Plan{}, "cuda:0 (stand-in 0)"},
		{"fail=cuMemHostAlloc:3:2", faulty.Plan{}, "cuda:0 (stand-in 0)"},
		{"fail=cuMemAlloc_v2:1:2", faulty.Plan{}, "cuda:0 (stand-in 0)"},
		{usual, faulty.Plan{Cut: 1}, "the first piece of a message of 81920 bytes"},
		{usual, faulty.Plan{Cut: 5}, "a piece of message 0 of collective 0 on the world: inproc: " + nbc.ErrLength.Error()},
	} {
		for _, borrows := range []bool{false, true} {
			if strings.Contains(c.what, "cuMemAlloc") && !borrows {
				continue
			}
			w := stack(t, 1, 0, staging.Options{Piece: least}, func(inner nbc.Transport) nbc.Transport { return faulty.Wrap(inner, c.plan) }, nil)
			m, s := w.memory[0], w.ranks[0]
			b, err1 := m.Alloc(n)
			into, err2 := m.Alloc(n)
			if err := errors.Join(err1, err2); err != nil {
				t.Fatal(err)
			}
			m.Free(into) // for begin
			tell(t, c.what)
			err := errors.Join(s.Send(2, 0, nbc.Tag{}, b), begin(m, s, nbc.Tag{}, mem.CUDA, n, borrows))
			seen := map[nbc.Token]int{}
			end := time.Now().Add(time.Minute)
			for more := 0; more < 200 && time.Now().Before(end); { // what is under way goes on
				var done [8]nbc.Completion
				k, e := s.Poll(done[:])
				for _, c := range done[:k] {
					seen[c.Token]++
					err = errors.Join(err, c.Err)
				}
				if err = errors.Join(err, e); err != nil {
					more++
				}
				s.Park(time.Millisecond)
			}
			if err == nil || !strings.Contains(err.Error(), c.says) || seen[1] > 1 || seen[2] > 1 {
				t.Errorf("%s %v: %v, %v", c.what, c.plan, err, seen)
			}
			tell(t, usual)
		}
	}
}

// Ends of a message that is cut which have different lengths, or lie in different memory, are an error at the receiver; whether that has a slot for it or
// not, and borrows or not.
func TestOtherMessages(t *testing.T) {
	const n = 10_000
	for _, c := range []struct {
		from      mem.Space
		sent      int
		to        mem.Space
		wanted    int
		oneLength bool // of the first pieces
	}{
		{mem.CUDA, n, mem.Host, n, false},
		{mem.Host, n, mem.CUDA, n, false},
		{mem.CUDA, n, mem.CUDA, n + 1, true},
		{mem.CUDA, 2 * n, mem.CUDA, n, false},
		{mem.CUDA, n, mem.CUDA, 3 * n, false},
		{mem.CUDA, n, mem.CUDA, 100, false},
		{mem.CUDA, 100, mem.CUDA, n, false},
	} {
		for i := range 4 {
			borrows, full := i&1 > 0, i&2 > 0
			w := stack(t, 2, 0, staging.Options{Ring: 1, Piece: least}, nil, nil)
			m, r := w.memory[1], w.ranks[1]
			src := mem.Alloc(c.sent)
			var err error
			if c.from == mem.CUDA {
				src, err = m.Alloc(c.sent)
			}
			if err == nil && full {
				var other mem.Buffer
				other, err = m.Alloc(8)
				err = errors.Join(err, r.Recv(3, 0, nbc.Tag{Message: 5}, other))
			}
			if err := errors.Join(err, w.ranks[0].Send(2, 1, nbc.Tag{}, src), begin(m, r, nbc.Tag{}, c.to, c.wanted, borrows)); err != nil {
				t.Fatal(err)
			}
			ended := poll(t, r, func(ended int) bool {
				if _, err := w.ranks[0].Poll(make([]nbc.Completion, 1)); err != nil {
					t.Fatal(err)
				}
				return ended == 1
			})
			if err := ended[0].Err; !errors.Is(err, nbc.ErrLength) || strings.Contains(err.Error(), "another message") != c.oneLength {
				t.Errorf("%+v: %v", c, err)
			}
		}
	}
}

// Messages of one identity keep their order, whether they are cut or not.
func TestOneIdentity(t *testing.T) {
	lengths := []int{50_000, 100, 4096, 50_000, 4097, 5000, 50_000, 7}
	for _, ring := range []int{0, 1} {
		w := stack(t, 2, 3, staging.Options{Ring: ring, Piece: least}, func(inner nbc.Transport) nbc.Transport {
			return faulty.Wrap(inner, faulty.Plan{Seed: 3, Delay: 3, Reorder: true})
		}, nil)
		if err := w.each(func(m *gputest.Memory, t nbc.Transport) error {
			got := make([]mem.Buffer, len(lengths))
			for i, n := range lengths {
				src, err1 := m.Alloc(n)
				dst, err2 := m.Alloc(n)
				if err := errors.Join(err1, err2, m.Write(src, text(i, n)), t.Send(nbc.Token(2*i), 1-t.Rank(), nbc.Tag{}, src), t.Recv(nbc.Token(2*i+1), 1-t.Rank(), nbc.Tag{}, dst)); err != nil {
					return err
				}
				got[i] = dst
			}
			if err := finish(t, 2*len(lengths)); err != nil {
				return err
			}
			for i, n := range lengths {
				b := make([]byte, n)
				if err := m.Read(b, got[i]); err != nil || !bytes.Equal(b, text(i, n)) {
					return fmt.Errorf("message %d: %w", i, errors.Join(err, errOther))
				}
			}
			return nil
		}); err != nil {
			t.Errorf("ring %d: %v", ring, err)
		}
	}
}

// A message that is cut arrives while its ring is full of others that are expected, and are sent after it.
func TestHeldRing(t *testing.T) {
	const n = 10 * least
	w := stack(t, 2, 0, staging.Options{Ring: 1, Piece: least}, nil, nil)
	if err := w.each(func(m *gputest.Memory, t nbc.Transport) error {
		first, err1 := m.Alloc(size)
		then, err2 := m.Alloc(n)
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		if t.Rank() == 1 {
			var none int
			if err := errors.Join(t.Recv(1, 0, nbc.Tag{Message: 1}, first), t.Recv(2, 0, nbc.Tag{Message: 2}, then), finish(only{t, 2, &none}, 1)); err != nil {
				return err
			}
			b := make([]byte, n)
			if err := m.Read(b, then); err != nil || !bytes.Equal(b, text(2, n)) {
				return errors.Join(err, errOther)
			}
			return errors.Join(t.Send(3, 0, nbc.Tag{}, then.Slice(0, 8)), finish(t, 2)) // the first one comes, too
		}
		return errors.Join(m.Write(then, text(2, n)), t.Recv(1, 1, nbc.Tag{}, first.Slice(0, 8)), t.Send(2, 1, nbc.Tag{Message: 2}, then), finish(t, 2),
			t.Send(3, 1, nbc.Tag{Message: 1}, first), finish(t, 1))
	}); err != nil {
		t.Error(err)
	}
}
