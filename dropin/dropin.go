// Package dropin serves the collectives of a program that has its own MPI: its communicators, its buffers,
// its threads. libscaffe-mpi.so (mpi/interpose), which a program preloads or links, decides with the
// other ranks which calls are served; see docs/dropin.md.
//
// It owns what a communicator's ranks set up together, and the choice between scaffe and the program's
// library. It must not know how a program's calls are caught.
package dropin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/collectives/selection"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/kernels"
	"github.com/scaffe/scaffe/kernels/device"
	"github.com/scaffe/scaffe/launch"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/mpi"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/schedule"
)

const (
	// forever is for how long a call waits: MPI's own wait as long as their peers take. It is the one exception from the
	// rule that every wait has a deadline.
	forever = 10 * 365 * 24 * time.Hour
	// DefaultStall is after how long a call says what it waits for, unless SCAFFE_STALL has another time.
	DefaultStall = time.Minute
)

// Stall is after how long calls say what they wait for: SCAFFE_STALL, a time such as 90s, or off.
func Stall() (time.Duration, error) {
	text := os.Getenv("SCAFFE_STALL")
	switch text {
	case "":
		return DefaultStall, nil
	case "off":
		return forever, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return DefaultStall, fmt.Errorf("invalid SCAFFE_STALL=%s: want a time such as 90s, or off; taking %v", text, DefaultStall)
	}
	return min(d, forever), nil
}

// Comm is a communicator of the program's, with an engine of its own.
type Comm struct {
	world  *mpi.World
	engine *nbc.Engine
	comm   *collectives.Comm
	starts starts
	memory sync.Map // of unsafe.Pointer, what Alloc has returned: mem.Buffer
}

// Open sets up the ranks of a communicator, which all call it together, on a thread that MPI allows
// that; comm is the address of the MPI_Comm. warn is told what a person should know, also later, on other goroutines: what a call
// waits for on the rank that waits, the rest on rank 0.
func Open(comm unsafe.Pointer, warn func(string)) (*Comm, error) {
	w, err := mpi.Attach(comm)
	if err != nil {
		return nil, err
	}
	k, err := kernels.NewCPU()
	if err != nil {
		return nil, err
	}
	c := &Comm{world: w}
	open := func() (nbc.Transport, error) {
		t, err := overMPI(w)
		if err != nil {
			return nil, err
		}
		if err := c.starts.open(w, t); err != nil {
			return nil, errors.Join(err, t.Close())
		}
		return t, nil
	}
	stall, err := Stall()
	if err != nil && w.Rank() == 0 {
		warn(err.Error())
	}
	e, err := nbc.Start(open, device.CPU(k), nbc.Options{Guest: true, Deadline: stall, MaxDeadline: forever, Warn: warn})
	if err != nil {
		return nil, err
	}
	c.starts.opts = nbc.Options{Patient: true, Deadline: stall, MaxDeadline: forever, Warn: warn}
	c.engine, c.comm = e, collectives.World(e, collectives.Options{
		Buffers: selection.Unregistered, Measure: true, Machine: launch.Machine(0), Node: launch.Node(0),
	})
	warnings, err := c.comm.Configure(context.Background())
	if err != nil {
		return nil, fmt.Errorf("%w (%v)", err, c.Close())
	}
	if w.Rank() == 0 {
		for _, text := range warnings {
			warn(text)
		}
	}
	return c, nil
}

// Close ends what Open began. All ranks call it together.
func (c *Comm) Close() error {
	err := c.engine.Close() // when all ranks have come to it
	if e := c.starts.close(); err == nil {
		err = e
	}
	if e := c.world.Detach(); err == nil {
		err = e
	}
	return err
}

// Chooses reports whether scaffe serves a blocking call on that many bytes in memory that is not registered, rather than
// the program's own library: alike on all ranks. SCAFFE_ALGORITHM, and a table, count here as elsewhere.
func (c *Comm) Chooses(v schedule.Collective, dt mem.Datatype, bytes int) (bool, error) {
	choice, err := c.comm.Select(selection.Query{
		Collective: v, Bytes: bytes, Type: dt, Buffers: selection.Unregistered, Blocking: true, Library: true,
	}, spec.Spec{})
	if err != nil {
		return false, err
	}
	return !choice.Spec.IsLibrary(), nil
}

// Alloc returns memory that the ranks of the node share (registered memory), nil where there is none.
func (c *Comm) Alloc(bytes int) unsafe.Pointer {
	b, err := c.comm.Alloc(bytes)
	if err != nil || b.Len() == 0 {
		return nil
	}
	c.memory.Store(b.Pointer(), b)
	return b.Pointer()
}

// Free gives it back, and reports whether it was that.
func (c *Comm) Free(p unsafe.Pointer) bool {
	b, was := c.memory.LoadAndDelete(p)
	if was {
		c.comm.Free(b.(mem.Buffer))
	}
	return was
}

// Size is how many ranks the communicator has.
func (c *Comm) Size() int { return c.comm.Size() }

// Call is a collective as a rank of the program makes it. A reduction in place has the same Send and Recv; what this rank
// sends to an Allgather may be its part of Recv.
type Call struct {
	Collective schedule.Collective
	Datatype   mem.Datatype
	Op         mem.Op
	Root       int
	Count      int   // elements, of all parts or blocks together where there are some
	Counts     []int // of the parts, by rank; nil: they are equal
	Send, Recv unsafe.Pointer
}

// Do executes a call, on the thread that makes it.
func (c *Comm) Do(k Call) error { return c.comm.Do(context.Background(), c.bind(k)) }

// bind returns a call with its buffers.
func (c *Comm) bind(k Call) collectives.Call {
	v := k.Collective
	all := collectives.Call{Collective: v, Datatype: k.Datatype, Op: k.Op, Root: k.Root, Counts: k.Counts}
	send, recv := k.Count, k.Count // elements
	if v.Parts() {
		own := k.Count / c.Size()
		if k.Counts != nil {
			own = k.Counts[c.comm.Rank()]
		}
		if v.Gathers() {
			send = own
		} else {
			recv = own
		}
	}
	root := c.comm.Rank() == k.Root
	if v != schedule.Bcast && (v != schedule.Scatter || root) {
		all.Send = mem.At(k.Send, k.Datatype.Bytes(send), mem.Host)
	}
	if v != schedule.Reduce && v != schedule.Gather || root {
		all.Recv = mem.At(k.Recv, k.Datatype.Bytes(recv), mem.Host)
	}
	return all
}

// Describe says for a report how the ranks are joined, in a line.
func (c *Comm) Describe() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v, %s, threads %s", c.world.Nodes(), c.world.Library(), c.world.ThreadLevel())
	return b.String()
}
