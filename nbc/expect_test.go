package nbc_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/inproc"
)

// expecting notes what it was told to expect at each operation.
type expecting struct {
	nbc.Transport
	now  int
	sent []int
}

func (x *expecting) Expect(bytes int) { x.now = bytes }

func (x *expecting) Send(tok nbc.Token, to int, tag nbc.Tag, src mem.Buffer) error {
	x.sent = append(x.sent, x.now)
	return x.Transport.Send(tok, to, tag, src)
}

// TestExpect: a transport knows for every operation how large its collective is, whichever
// turns they take.
func TestExpect(t *testing.T) {
	w := inproc.NewWorld(2, inproc.Options{})
	x := &expecting{}
	var engines [2]*nbc.Engine
	for r := range engines {
		e, err := nbc.Start(func() (nbc.Transport, error) {
			inner, err := w.Open(r)()
			if r == 1 {
				x.Transport = inner
				return x, err
			}
			return inner, err
		}, host(t), nbc.Options{Deadline: 30 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		engines[r] = e
	}
	counts := []int{100, 7}
	var requests [2][2]*nbc.Request
	for r, e := range engines {
		for i, count := range counts {
			req, err := e.Prepare(chainReduce(t, r, 2, count, 50), nbc.Binding{
				Name: "reduce", In: mem.Of(make([]float32, count)), Out: mem.Of(make([]float32, count)),
				Datatype: mem.Float32, Instance: uint32(i),
			})
			if err != nil {
				t.Fatal(err)
			}
			requests[r][i] = req
		}
	}
	for range 2 {
		for i := range counts {
			for r := range engines {
				if err := requests[r][i].Start(); err != nil {
					t.Fatal(err)
				}
			}
			for r := range engines {
				if err := requests[r][i].Wait(context.Background()); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if want := []int{400, 400, 28, 400, 400, 28}; !slices.Equal(x.sent, want) {
		t.Errorf("the sends belong to collectives of %v bytes, not %v", x.sent, want)
	}
}
