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
	apart        map[int]*collectives.Comm // by server that does not work: the workers, and it as the last
	nothing      []float32                 // of Nothing
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
	t := &Team{all: comm, workers: workers, apart: map[int]*collectives.Comm{}}
	var nodes []int
	for _, r := range workers {
		nodes = append(nodes, comm.Nodes()[r])
	}
	t.layout = spec.LayoutOf(nodes)
	split := func(server int) (*collectives.Comm, error) {
		color := -1
		if comm.Rank() == server || t.Works(comm.Rank()) {
			color = 0
		}
		key := comm.Rank()
		if key == server { // behind the workers, so that these are as without it
			key = comm.Size()
		}
		return comm.Split(ctx, color, key)
	}
	var err error
	if t.working, err = split(-1); err != nil {
		return nil, err
	}
	for _, s := range servers {
		if t.Works(s) {
			continue
		}
		c, err := split(s)
		if err != nil {
			t.Close()
			return nil, err
		}
		t.apart[s] = c
	}
	return t, nil
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
	comm, found := t.apart[server]
	if !found {
		return nil, 0, fmt.Errorf("rank %d is neither a worker nor a server", server)
	}
	return comm, len(t.workers), nil
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
	for _, c := range t.apart {
		if c != nil {
			c.Close()
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
