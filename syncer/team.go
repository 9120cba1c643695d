package syncer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
)

// Team says which ranks of a communicator work, which is to compute gradients, and has the
// communicators between them and the servers. Ranks that only serve take part in the scheme
// of the servers alone.
type Team struct {
	all, working *collectives.Comm
	workers      []int // ranks of all, ascending
	layout       spec.Layout
	apart        map[int]apart // by server that does not work
	nothing      []float32     // of Nothing
}

// apart is the workers and a server that does not work.
type apart struct {
	comm *collectives.Comm
	rank int // the server's
}

// Everyone is the team in which all ranks work.
func Everyone(comm *collectives.Comm) *Team {
	t := &Team{all: comm, working: comm, layout: comm.Layout()}
	for r := range comm.Size() {
		t.workers = append(t.workers, r)
	}
	return t
}

// NewTeam makes the team of workers, ascending, and of servers that may be others. It is a
// collective; all ranks must name the same.
func NewTeam(ctx context.Context, comm *collectives.Comm, workers, servers []int) (*Team, error) {
	if len(workers) == comm.Size() {
		return Everyone(comm), nil
	}
	t := &Team{all: comm, workers: workers, apart: map[int]apart{}}
	nodes := comm.Nodes()
	var of []int // the workers' nodes
	for _, r := range workers {
		of = append(of, nodes[r])
	}
	t.layout = spec.LayoutOf(of)
	color := -1
	if t.Works(comm.Rank()) {
		color = 0
	}
	var err error
	if t.working, err = comm.Split(ctx, color, comm.Rank()); err != nil {
		return nil, err
	}
	for _, s := range servers {
		if t.Works(s) {
			continue
		}
		a := apart{rank: t.turn(of, nodes[s])}
		color, key := color, 2*comm.Rank()
		if comm.Rank() == s {
			color, key = 0, 2*comm.Size()
			if a.rank < len(workers) {
				key = 2*workers[a.rank] - 1
			}
		}
		if a.comm, err = comm.Split(ctx, color, key); err != nil {
			t.Close()
			return nil, err
		}
		t.apart[s] = a
	}
	return t, nil
}

// turn returns before which worker the next server apart, on a node, is numbered, where the workers' nodes are
// those given. A broadcast sends to those behind its root first (linear.Bcast), and servers that all began
// with the same worker would share its port while others' stand idle; so they begin with one node after the other. One
// on a node with workers comes last, for nodes are numbered by their first ranks.
func (t *Team) turn(of []int, node int) int {
	if slices.Contains(of, node) {
		return len(of)
	}
	distinct := slices.Compact(slices.Sorted(slices.Values(of)))
	return slices.Index(of, distinct[len(t.apart)%len(distinct)])
}

// Works reports whether a rank of the communicator works.
func (t *Team) Works(rank int) bool { return slices.Contains(t.workers, rank) }

// All is the communicator of all ranks.
func (t *Team) All() *collectives.Comm { return t.all }

// Workers is the communicator of the workers; nil on a rank that only serves.
func (t *Team) Workers() *collectives.Comm { return t.working }

// Members are the workers, ascending, as ranks of all.
func (t *Team) Members() []int { return t.workers }

// Layout is how many workers there are on how many nodes.
func (t *Team) Layout() spec.Layout { return t.layout }

// HasLibrary reports whether the MPI library's own collectives may serve the workers, on
// every rank alike.
func (t *Team) HasLibrary() bool {
	return len(t.apart) == 0 && t.working == t.all && t.all.HasLibrary()
}

// Between returns the communicator of the workers and a server, which is a rank of all, and
// the server's rank in it; nil where this rank is neither.
func (t *Team) Between(server int) (comm *collectives.Comm, rank int, err error) {
	if i, works := slices.BinarySearch(t.workers, server); works {
		return t.working, i, nil
	}
	a, found := t.apart[server]
	if !found {
		return nil, 0, fmt.Errorf("rank %d is neither a worker nor a server", server)
	}
	return a.comm, a.rank, nil
}

// Nothing returns n elements that a rank that only serves contributes to a sum: −0, to which
// every number is added unchanged, +0 and −0 among them. Nobody may write to them.
func (t *Team) Nothing(n int) mem.Buffer {
	if len(t.nothing) < n {
		t.nothing = slices.Repeat([]float32{float32(math.Copysign(0, -1))}, n)
	}
	return mem.Of(t.nothing[:n])
}

// Close gives back what NewTeam has made.
func (t *Team) Close() {
	if t == nil {
		return
	}
	for _, a := range t.apart {
		if a.comm != nil {
			a.comm.Close()
		}
	}
	if t.working != nil && t.working != t.all {
		t.working.Close()
	}
}

// Absent is the syncer of a bucket that this rank has no part in: one that moves between
// workers, on a rank that only serves.
func Absent() Syncer { return absent{} }

type absent struct{}

var errAbsent = errors.New("syncer: this rank has no part of the bucket")

func (absent) Parts() []Part                       { return nil }
func (absent) Push() error                         { return nil }
func (absent) Pushed(context.Context) (int, error) { return 0, errAbsent }
func (absent) Pull(int) error                      { return nil }
func (absent) Pulled(context.Context) error        { return nil }
func (absent) Payload() nbc.Payload                { return nbc.Payload{} }
func (absent) Close()                              {}
