package overmpi

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/mpi"
	"github.com/scaffe/scaffe/mpi/mpitest"
	"github.com/scaffe/scaffe/nbc"
)

// TestPutIsUnsentUntilMPIHasTakenIt: whoever sends goes on polling so long. The
// message may be overwritten at once, and goes to a receive as well as to Take.
func TestPutIsUnsentUntilMPIHasTakenIt(t *testing.T) {
	mpitest.On(t, with(func(t *Transport) error {
		to, from := (t.Rank()+1)%t.Size(), (t.Rank()+t.Size()-1)%t.Size()
		tag := func(i uint32) nbc.Tag { return nbc.Tag{Comm: 7, Message: i} }
		src, want := make([]byte, inlineRoom), bytes.Repeat([]byte{9}, inlineRoom)
		for i := range uint32(2) {
			copy(src, want)
			if !t.Put(0, to, tag(i), mem.Of(src), false) {
				return errors.New("Put refused a message")
			}
			clear(src)
		}
		if mpi.Built() == "" && !t.Unsent() { // that world takes nothing before it is polled
			return errors.New("Put says that MPI has taken what it has not")
		}
		got := make([]byte, inlineRoom)
		if err := t.Recv(1, from, tag(1), mem.Of(got)); err != nil {
			return err
		}
		var taken, received bool
		var done [4]nbc.Completion
		for end := time.Now().Add(within); !taken || !received || t.Unsent() || t.active > 0; {
			if m, ok := t.Take(from, tag(0), inlineRoom, mem.Buffer{}); ok {
				taken = bytes.Equal(mem.Bytes(m), want)
				t.Taken(from)
			}
			n, err := t.Poll(done[:])
			if err != nil {
				return err
			}
			received = received || n == 1 && done[0].Err == nil && bytes.Equal(got, want)
			if time.Now().After(end) {
				return fmt.Errorf("taken %v, received %v, unsent %v, %d under way", taken, received, t.Unsent(), t.active)
			}
		}
		return nil
	}))
}
