package mpi

import (
	"context"
	"fmt"
	"strings"
	"unsafe"

	"github.com/scaffe/scaffe/internal/host"
)

// AnySource, as the rank to receive from, accepts a message from any rank.
const AnySource = -1

// Built returns the library whose headers the program was compiled with, such
// as "Open MPI 4.1.4", or "" for a program without MPI (no build tag mpi).
func Built() string { return built() }

// World is all ranks that mpirun started together. Start makes it.
type World struct {
	rank, size int
	library    string
	major      int
	minor      int
	level      string
	tagUB      int
	cuda       Support
	nodes      Nodes
	launcher   Launcher
	notes      []string

	comm     *Comm
	attached bool // others started MPI, and end it

	over bool // finalized, or given up
	lost bool // a failure was reported: Finalize must not wait for the other ranks
}

// Support says whether a library has an optional feature.
type Support uint8

// The values of Support.
const (
	Unknown Support = iota // the library offers no way to ask
	No
	Yes
)

// String returns unknown, no or yes.
func (s Support) String() string { return [...]string{"unknown", "no", "yes"}[s] }

// Nodes says which ranks share a machine. Nodes are numbered from 0 in the order
// of their lowest ranks.
type Nodes struct {
	Of        []int // Of[rank] is the index of the rank's node
	Count     int   // number of nodes
	LocalRank int   // this rank among those on its node, by rank
	LocalSize int   // number of ranks on this rank's node
	Rivals    int   // ranks of other nodes that may run on this rank's cores: containers of one machine
}

// place is where a rank runs, as the others are told.
type place struct {
	lowest int64 // rank on its node
	kernel int64 // host.Kernel
	cores  host.CoreSet
}

// hereWith is this rank's place, on a node with the lowest rank given.
func hereWith(lowest int) place {
	return place{lowest: int64(lowest), kernel: host.Kernel(), cores: host.Allowed()}
}

// Ranks returns the ranks on a node, ascending.
func (n Nodes) Ranks(node int) []int {
	var ranks []int
	for r, k := range n.Of {
		if k == node {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

// newNodes numbers the nodes. at[r] is where rank r runs.
func newNodes(at []place, rank int) Nodes {
	n := Nodes{Of: make([]int, len(at))}
	index := map[int64]int{}
	for r, p := range at {
		k, ok := index[p.lowest]
		if !ok {
			k = len(index)
			index[p.lowest] = k
		}
		n.Of[r] = k
		if here := &at[rank]; p.lowest != here.lowest {
			if p.kernel != 0 && p.kernel == here.kernel && p.cores.Overlaps(here.cores) {
				n.Rivals++
			}
			continue
		}
		if r < rank {
			n.LocalRank++
		}
		n.LocalSize++
	}
	n.Count = len(index)
	return n
}

// String returns such as "4 ranks on 2 nodes".
func (n Nodes) String() string {
	return fmt.Sprintf("%s on %s", plural(len(n.Of), "rank"), plural(n.Count, "node"))
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Start starts MPI on the calling OS thread, which must be locked
// (runtime.LockOSThread) and makes all later calls unless Move passes them to
// another. A process can start MPI once.
//
// A *LauncherError says that the wrong mpirun was used; any other error that the
// program runs with another library than it was built for, or that the library
// did not start. Where the library itself refuses to start (no room in
// /dev/shm, a broken network) it prints its own message and ends the process,
// as the MPI standard prescribes.
func Start() (*World, error) { return start() }

// Attach returns the ranks of a communicator of an MPI that others have started and will end, as a world
// of its own; comm is the address of the MPI_Comm. All ranks of the communicator call it together. Unlike
// Start it touches nothing but that communicator, of which it makes a duplicate, and leaves it to the
// caller which thread calls: one that MPI allows that. Detach ends it.
func Attach(comm unsafe.Pointer) (*World, error) { return attach(comm) }

// Detach gives back what Attach made. All ranks call it together, unless the world is lost.
func (w *World) Detach() error {
	if !w.attached || w.over {
		return nil
	}
	if w.over = true; w.lost {
		return nil
	}
	return w.comm.Free()
}

// Move makes the calling thread, which must be locked, the one that makes all
// later calls, and reports whether the library allows that
// (MPI_THREAD_SERIALIZED). The caller makes sure that no two threads call at once.
func (w *World) Move() bool { return moveThread() }

// Rank returns this process's rank, 0 to Size-1.
func (w *World) Rank() int { return w.rank }

// Size returns the number of ranks.
func (w *World) Size() int { return w.size }

// Library returns the library that runs.
func (w *World) Library() Library { return ParseLibrary(w.library) }

// LibraryVersion returns the library's full description of itself, on one line.
func (w *World) LibraryVersion() string { return strings.Join(strings.Fields(w.library), " ") }

// StandardVersion returns the version of the MPI standard that the library
// implements, such as 3 and 1; 0 and 0 without MPI.
func (w *World) StandardVersion() (major, minor int) { return w.major, w.minor }

// ThreadLevel returns the thread support in force: single, funneled,
// serialized or multiple. This package asks for serialized and works with less:
// then Move returns false.
func (w *World) ThreadLevel() string { return w.level }

// TagUB returns the largest tag.
func (w *World) TagUB() int { return w.tagUB }

// CUDAAware says whether Isend and Irecv accept device pointers.
func (w *World) CUDAAware() Support { return w.cuda }

// Nodes says which ranks share a machine.
func (w *World) Nodes() Nodes { return w.nodes }

// Launcher returns who started this process.
func (w *World) Launcher() Launcher { return w.launcher }

// Notes returns what is unusual but allowed, each as one line.
func (w *World) Notes() []string { return w.notes }

// Comm returns this package's own duplicate of MPI_COMM_WORLD.
func (w *World) Comm() *Comm { return w.comm }

// Lost records that a rank has failed or given up: Finalize then neither waits
// for the other ranks nor calls MPI_Finalize.
func (w *World) Lost() { w.lost = true }

// Finalize ends MPI. All ranks call it; it waits for them until ctx ends, then
// returns ErrPeersGone. Called again it does nothing.
func (w *World) Finalize(ctx context.Context) error {
	if w.over {
		return nil
	}
	if err := onThread("MPI_Finalize"); err != nil {
		return err
	}
	w.over = true
	if w.lost {
		return ErrPeersGone
	}
	if err := w.meet(ctx); err != nil {
		return err
	}
	return w.finalize()
}

// meet waits until every rank has called it, or ctx ends.
func (w *World) meet(ctx context.Context) error {
	rs := w.NewRequests()
	if err := w.comm.Ibarrier(rs, 0); err != nil {
		return err
	}
	var done [1]Done
	for i := 0; ; i++ {
		n, err := rs.Testsome(done[:])
		if err == nil && n == 1 {
			err = done[0].Err
		}
		if err != nil || n == 1 {
			rs.Free()
			return err
		}
		if ctx.Err() != nil {
			return ErrPeersGone // rs is not freed: the library still refers to it
		}
		pause(i)
	}
}
