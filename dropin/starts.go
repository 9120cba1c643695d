package dropin

import (
	"context"
	"os"
	"runtime"
	"sync"
	"time"
	"unsafe"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/internal/host"
	"github.com/scaffe/scaffe/kernels"
	"github.com/scaffe/scaffe/kernels/device"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/mpi"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/overmpi"
	"github.com/scaffe/scaffe/nbc/shm"
)

// starts is what serves calls that do not block: an engine with a thread of its own, which starts with the first such call.
//
// Among ranks of one node that share memory it moves bytes through that alone and calls no MPI, so the program's level of threads
// does not matter. What the ranks have to exchange for it travels over the transport of the blocking calls' engine, while they set
// that up. Elsewhere it has a transport of its own over MPI, which its thread calls beside the program's: where that has asked
// for MPI_THREAD_MULTIPLE.
type starts struct {
	opts      nbc.Options
	transport nbc.Transport // nil where there is none

	mu     sync.Mutex
	engine *nbc.Engine // nil before the first call
	comm   *collectives.Comm
}

// open sets the transport up. exchange exchanges messages meanwhile. All ranks call it together.
func (s *starts) open(w *mpi.World, exchange nbc.Transport) (err error) {
	if w.Nodes().Count == 1 && sharesMemory() {
		if s.transport, err = overMemory(exchange); s.transport != nil || err != nil {
			return err
		}
	}
	if all, err := multiple(w); err != nil || !all {
		return err
	}
	s.transport, err = overMPI(w)
	return err
}

// sharesMemory reports whether the ranks of a node may share memory: SCAFFE_SHM=off says no.
func sharesMemory() bool { return os.Getenv("SCAFFE_SHM") != "off" }

// overMPI returns a transport over MPI and the memory that ranks of a node share.
func overMPI(w *mpi.World) (nbc.Transport, error) {
	open := func() (nbc.Transport, error) { return overmpi.New(w, overmpi.Options{}) }
	if sharesMemory() {
		open = shm.Over(open, shm.Options{})
	}
	return open()
}

// multiple reports whether any thread of all ranks may call MPI at any time.
func multiple(w *mpi.World) (bool, error) {
	mine, least := int32(0), int32(0)
	if w.ThreadLevel() == "multiple" {
		mine = 1
	}
	err := w.Comm().Allreduce(unsafe.Pointer(&mine), unsafe.Pointer(&least), 1, mem.Int32, mem.Min)
	return least == 1, err
}

// overMemory returns a transport that calls no MPI, nil where the ranks, which are all on one node, do not reach each other's memory.
func overMemory(exchange nbc.Transport) (nbc.Transport, error) {
	quiet := &silent{Transport: exchange, nodes: make([]int, exchange.Size())}
	t, err := shm.New(quiet, shm.Options{})
	quiet.over = true
	if err != nil {
		return nil, err
	}
	if reach, ok := t.(interface{ Reaches() bool }); ok && reach.Reaches() {
		return t, nil
	}
	return nil, t.Close()
}

// Starts reports whether calls that do not block can be served on this rank.
func (c *Comm) Starts() bool { return c.starts.transport != nil }

// MovesOn reports whether calls that add nothing gain too: between nodes, where the library does not go on with them while
// the program computes, or where the node has two cores for each rank, one of them for its thread, and mpirun bound this rank to no fewer.
func (c *Comm) MovesOn() bool {
	return c.world.Nodes().Count > 1 || runtime.NumCPU() >= 2 && host.Cores() >= 2*c.world.Size()
}

// Prepare readies a call that does not block: Start of the request begins it, any number of times, one after the other, and Close
// forgets it. All ranks prepare theirs in the same order.
func (c *Comm) Prepare(k Call) (*nbc.Request, error) {
	comm, err := c.starts.get(c.comm)
	if err != nil {
		return nil, err
	}
	return comm.Init(c.bind(k))
}

// get returns the communicator of the engine with a thread, which selects as another one does.
func (s *starts) get(like *collectives.Comm) (*collectives.Comm, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.comm != nil {
		return s.comm, nil
	}
	k, err := kernels.NewCPU()
	if err != nil {
		return nil, err
	}
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 1) // the thread has one while it is at work
	if s.engine, err = nbc.Start(func() (nbc.Transport, error) { return s.transport, nil }, device.CPU(k), s.opts); err != nil {
		return nil, err
	}
	s.comm = like.On(s.engine)
	return s.comm, nil
}

// close ends it, with nothing under way.
func (s *starts) close() error {
	switch {
	case s.engine != nil:
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) - 1)
		return s.engine.Close()
	case s.transport != nil:
		return s.transport.Close()
	}
	return nil
}

// silent is a transport that exchanges what is needed to set up the memory that ranks share. After that it moves nothing, and says
// nothing to MPI, whatever thread calls it.
type silent struct {
	nbc.Transport
	nodes []int
	over  bool
}

func (s *silent) Nodes() []int  { return s.nodes }
func (s *silent) Migrate() bool { return true }
func (s *silent) Wake()         {}
func (s *silent) Close() error  { return nil }

// Abort tells nobody: the ranks of a node hear of it through the memory that they share.
func (s *silent) Abort(context.Context, string) error { return nil }

func (s *silent) Poll(done []nbc.Completion) (int, error) {
	if s.over {
		return 0, nil
	}
	return s.Transport.Poll(done)
}

func (s *silent) Park(d time.Duration) {
	if !s.over {
		s.Transport.Park(d)
	}
}

// Send, Recv and RecvBorrow are refused once all is set up: every rank is reached through shared memory.
func (s *silent) Send(tok nbc.Token, to int, tag nbc.Tag, src mem.Buffer) error {
	if s.over {
		return shm.ErrClosed
	}
	return s.Transport.Send(tok, to, tag, src)
}

func (s *silent) Recv(tok nbc.Token, from int, tag nbc.Tag, dst mem.Buffer) error {
	if s.over {
		return shm.ErrClosed
	}
	return s.Transport.Recv(tok, from, tag, dst)
}

func (s *silent) RecvBorrow(tok nbc.Token, from int, tag nbc.Tag, n int) error {
	if s.over {
		return shm.ErrClosed
	}
	return s.Transport.RecvBorrow(tok, from, tag, n)
}
