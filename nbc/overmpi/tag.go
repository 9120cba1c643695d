package overmpi

import (
	"fmt"
	"math/bits"

	"github.com/scaffe/scaffe/nbc"
)

// tagBits says how the bits of an MPI tag are shared out.
type tagBits struct{ comm, instance, message, print int }

// splitBits shares out the bits of the tags 0 to ub; see the package comment.
func splitBits(ub int) tagBits {
	all := bits.Len(uint(ub)+1) - 1 // so that 2^all-1 <= ub
	all = min(all, 31)
	b := tagBits{print: min(all/4, 6)}
	all -= b.print
	b.message = (2*all + 4) / 5
	b.instance = (all - b.message) * 7 / 10
	b.comm = all - b.message - b.instance
	return b
}

// wire returns the MPI tag of t.
func (b tagBits) wire(t nbc.Tag) int {
	low := func(x uint32, n int) int { return int(x & (1<<n - 1)) }
	wire := low(uint32(t.Comm), b.comm)
	wire = wire<<b.instance | low(t.Instance, b.instance)
	wire = wire<<b.message | low(t.Message, b.message)
	return wire<<b.print | low(t.Fingerprint, b.print)
}

// way is a direction of traffic with a peer under one MPI tag.
type way struct {
	peer, wire int32
	sending    bool
}

// identity is whose message uses a way at the moment, and how many do.
type identity struct {
	tag   nbc.Tag
	count int
}

// guard refuses messages that MPI would confuse.
type guard map[way]identity

func (g guard) enter(w way, tag nbc.Tag, b tagBits) error {
	id, busy := g[w]
	if busy && id.tag != tag {
		return fmt.Errorf("overmpi: messages %s and %s with rank %d are under way together and have one MPI tag: "+
			"at most %d instances of a communicator, %d communicators and %d messages from rank to rank in one schedule are told apart; "+
			"let fewer collectives run at once or use fewer communicators",
			describe(id.tag), describe(tag), w.peer, 1<<b.instance, 1<<b.comm, 1<<b.message)
	}
	g[w] = identity{tag, id.count + 1}
	return nil
}

func (g guard) leave(w way) {
	id := g[w]
	if id.count--; id.count > 0 {
		g[w] = id
		return
	}
	delete(g, w)
}

func describe(t nbc.Tag) string {
	return fmt.Sprintf("%d of instance %d on communicator %d", t.Message, t.Instance, t.Comm)
}
