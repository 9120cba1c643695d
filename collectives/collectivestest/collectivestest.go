// Package collectivestest is the conformance suite of the collectives: every
// spec, collective, type, op, root and count, in place and out of place, over any
// transport, with and without faults.
//
//	errs := collectivestest.World(5, open, nbc.Options{}, func(c *collectives.Comm, e *nbc.Engine) error {
//		return collectivestest.Run(c, collectivestest.Every(5))
//	})
//
// A Case is one collective. All ranks run the same cases in the same order;
// contributions are unique per rank and index as far as the type has room, sum
// exactly in every type, and are held against a serial reference bit by bit.
package collectivestest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/kernels"
	"github.com/scaffe/scaffe/kernels/device"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/faulty"
	"github.com/scaffe/scaffe/nbc/inproc"
	"github.com/scaffe/scaffe/schedule"
)

// Case is one collective.
type Case struct {
	Spec       spec.Spec
	Collective schedule.Collective
	Datatype   mem.Datatype
	Op         mem.Op // of a reduction
	InPlace    bool   // for a broadcast it does not matter
	Root       int
	Count      int   // of the result
	Counts     []int // of a collective of parts
	Space      mem.Space
}

// String returns the case in words.
func (k Case) String() string {
	place := "out of place"
	if k.InPlace {
		place = "in place"
	}
	return fmt.Sprintf("%v of %d %v in %v memory, %v, root %d, counts %v, %s, spec %v", k.Collective, k.Count, k.Datatype, k.Space, k.Op, k.Root, k.Counts, place, k.Spec)
}

// Collectives lists the collectives that a spec serves.
func Collectives(s spec.Spec) []schedule.Collective {
	var served []schedule.Collective
	for _, c := range schedule.Collectives {
		if s.Serves(c) == nil {
			served = append(served, c)
		}
	}
	return served
}

// Specs returns every algorithm that collectives knows as a level of its own,
// every two of them composed that may be, by twos, threes and nodes, and some
// of three levels. Chunks are small, so that small buffers have several. The
// MPI library's own is not among them.
func Specs() []spec.Spec {
	var texts []string
	for _, low := range spec.Algorithms() {
		texts = append(texts, low, low+",chunk=64")
		for _, high := range spec.Algorithms() {
			for _, size := range []string{"2", "3", "node"} {
				texts = append(texts, fmt.Sprintf("%s:%s,chunk=64/%s,chunk=40", low, size, high))
			}
		}
		texts = append(texts, low+":2,chunk=48/chain:2,chunk=80/"+low, low+":node,chunk=48/"+low+":2,chunk=64/binomial")
	}
	var specs []spec.Spec
	for _, text := range texts {
		if s, err := spec.Parse(text); err == nil && !s.IsLibrary() {
			specs = append(specs, s)
		}
	}
	return specs
}

// Ops are the ops of a suite for a type.
func Ops(dt mem.Datatype) []mem.Op {
	if dt.Float() {
		return append(slices.Clone(mem.OpsOf(dt)), mem.Avg)
	}
	return mem.OpsOf(dt)
}

// Counts are the counts of a suite: none, one, a prime, and one that no chunk
// divides.
var Counts = []int{0, 1, 13, 100}

// Every returns the whole cross product for size ranks: every spec, collective, type,
// op, place, root and count. All ops are those of floating-point types and of one of the integers; of the others,
// which differ in their kernels alone, ops take turns.
func Every(size int) []Case {
	var cases []Case
	for i, k := range shapes(size, all(size)) {
		for _, dt := range mem.Datatypes {
			ops := Ops(dt)
			if !dt.Float() && dt != mem.Int32 && k.Collective.Reduces() {
				ops = ops[(i+int(dt))%len(ops):][:1]
			}
			for _, op := range ops {
				if !k.Collective.Reduces() && op != mem.Sum {
					continue
				}
				k.Datatype, k.Op = dt, op
				cases = append(cases, k)
			}
		}
	}
	return cases
}

// Sizes returns every spec, collective, place, root and count with a type of every size,
// which is all of a type that a schedule depends on, and ops in turn.
func Sizes(size int) []Case {
	of := map[int][]mem.Datatype{} // by size
	for _, dt := range mem.Datatypes {
		of[dt.Size()] = append(of[dt.Size()], dt)
	}
	var cases []Case
	for i, k := range shapes(size, all(size)) {
		for _, bytes := range []int{1, 2, 4, 8} {
			k.Datatype, k.Op = of[bytes][i%len(of[bytes])], mem.Sum
			if ops := Ops(k.Datatype); k.Collective != schedule.Bcast {
				k.Op = ops[(i/2)%len(ops)]
			}
			cases = append(cases, k)
		}
	}
	return cases
}

// Some returns every spec, collective, place and count with three roots, and types
// and ops in turn.
func Some(size int) []Case {
	cases := shapes(size, slices.Compact([]int{0, size / 2, size - 1}))
	for i := range cases {
		cases[i].Datatype = mem.Datatypes[i%len(mem.Datatypes)]
		if cases[i].Collective.Reduces() {
			ops := Ops(cases[i].Datatype)
			cases[i].Op = ops[(i/len(mem.Datatypes)+i)%len(ops)]
		}
	}
	return cases
}

func all(size int) []int {
	roots := make([]int, size)
	for r := range roots {
		roots[r] = r
	}
	return roots
}

// shapes returns everything but types and ops.
func shapes(size int, roots []int) []Case {
	var cases []Case
	for _, s := range Specs() {
		for _, v := range Collectives(s) {
			if v.Parts() && !v.Rooted() {
				cases = append(cases, gathers(s, v, size, 0)...)
				continue
			}
			if v == schedule.Alltoall {
				for _, each := range Counts {
					cases = append(cases, Case{Spec: s, Collective: v, Count: each * size})
				}
				continue
			}
			if v.Parts() {
				for _, root := range roots {
					cases = append(cases, gathers(s, v, size, root)...)
				}
				continue
			}
			for _, count := range Counts {
				for _, root := range roots {
					if v == schedule.Allreduce {
						root = 0
					}
					cases = append(cases, Case{Spec: s, Collective: v, Root: root, Count: count})
					if v != schedule.Bcast {
						cases = append(cases, Case{Spec: s, Collective: v, Root: root, Count: count, InPlace: true})
					}
					if v == schedule.Allreduce {
						break
					}
				}
			}
		}
	}
	return cases
}

// gathers returns the collectives of parts of a spec, with a root where there is one: parts that are equal,
// that grow and of which some are empty, each in place and not.
func gathers(s spec.Spec, v schedule.Collective, size, root int) (cases []Case) {
	equal, grow, few := make([]int, size), make([]int, size), make([]int, size)
	for r := range size {
		equal[r], grow[r] = 13, 7*r
	}
	few[size/2], few[size-1] = 100, 1
	for _, counts := range [][]int{equal, grow, few, make([]int, size)} {
		k := Case{Spec: s, Collective: v, Root: root, Counts: counts}
		for _, n := range counts {
			k.Count += n
		}
		inPlace := k
		inPlace.InPlace = true
		cases = append(cases, k, inPlace)
	}
	return cases
}

// inFlight is how many collectives Run has under way at once.
const inFlight = 24

// Run runs the cases on one rank, all of its communicator together, several at
// once. It returns what was wrong with the first that was.
func Run(c *collectives.Comm, cases []Case) error {
	m := newMemory(c)
	defer m.close()
	for group := range slices.Chunk(cases, inFlight) {
		var running []*Running
		for i := range group { // in another order on every rank
			running = append(running, nil)
			var err error
			if running[i], err = group[i].prepare(m); err != nil {
				return fmt.Errorf("%v: %w", group[i], err)
			}
		}
		for i := range running {
			k := (i + c.Rank()*7) % len(running)
			if err := running[k].request.Start(); err != nil {
				return fmt.Errorf("%v: %w", group[k], err)
			}
		}
		for i, r := range running {
			if err := r.Check(); err != nil {
				return fmt.Errorf("%v: %w", group[i], err)
			}
		}
	}
	return nil
}

// Running is a case under way on one rank.
type Running struct {
	c          *collectives.Comm
	k          Case
	request    *nbc.Request
	send, recv []byte // with room around, which must stay as it is
	memory     *memory
	copies     []placed // of the two in other memory
}

const (
	margin = 8
	filler = 0xa5
)

// inside returns the part of b that the collective may touch.
func inside(b []byte) mem.Buffer { return mem.Of(b[margin : len(b)-margin]) }

func (k Case) buffer() []byte { return k.bufferOf(k.Count) }

func (k Case) bufferOf(count int) []byte {
	return bytes.Repeat([]byte{filler}, k.Datatype.Bytes(count)+2*margin)
}

// part returns where a rank's part lies in the buffer of all.
func (k Case) part(rank int) schedule.Range { return schedule.Split(k.Counts)[rank] }

// Prepare prepares the case on one rank, in host memory.
func (k Case) Prepare(c *collectives.Comm) (*Running, error) { return k.prepare(newMemory(c)) }

func (k Case) prepare(m *memory) (*Running, error) {
	if k.Collective.Gathers() {
		return k.prepareParts(m)
	}
	if k.Collective.Parts() {
		return k.prepareScatter(m)
	}
	c := m.c
	r := &Running{c: c, k: k, send: k.buffer(), recv: k.buffer(), memory: m}
	if k.InPlace || k.Collective == schedule.Bcast {
		r.recv = r.send
	}
	if k.Collective != schedule.Bcast || c.Rank() == k.Root {
		r.fill(r.send, c.Rank())
	}
	send, err := r.place(r.send)
	if err != nil {
		return r, err
	}
	recv, err := r.place(r.recv)
	if err != nil {
		return r, err
	}
	r.request, err = c.Init(k.call(send, recv), collectives.With(k.Spec))
	return r, err
}

func (k Case) call(send, recv mem.Buffer) collectives.Call {
	return collectives.Call{Collective: k.Collective, Send: send, Recv: recv, Counts: k.Counts, Datatype: k.Datatype, Op: k.Op, Root: k.Root}
}

// prepareParts is Prepare of an allgather or gather.
func (k Case) prepareParts(m *memory) (*Running, error) {
	c := m.c
	own := k.part(c.Rank())
	r := &Running{c: c, k: k, send: k.bufferOf(own.Len), recv: k.buffer(), memory: m}
	if k.InPlace {
		r.fillPart(r.recv, c.Rank(), own.Off)
	} else {
		r.fillPart(r.send, c.Rank(), 0)
	}
	recv, err := r.place(r.recv)
	if err != nil {
		return r, err
	}
	send := recv
	if k.InPlace {
		send = recv.Slice(k.Datatype.Bytes(own.Off), k.Datatype.Bytes(own.Len))
	} else if send, err = r.place(r.send); err != nil {
		return r, err
	}
	r.request, err = c.Init(k.call(send, recv), collectives.With(k.Spec))
	return r, err
}

// prepareScatter is Prepare of a reduce-scatter or a scatter, of which all ranks have what to send, but the root's counts.
func (k Case) prepareScatter(m *memory) (*Running, error) {
	c := m.c
	own := k.part(c.Rank())
	r := &Running{c: c, k: k, send: k.buffer(), recv: k.bufferOf(own.Len), memory: m}
	r.fill(r.send, c.Rank())
	send, err := r.place(r.send)
	if err != nil {
		return r, err
	}
	recv := send
	if k.InPlace {
		recv = send.Slice(k.Datatype.Bytes(own.Off), k.Datatype.Bytes(own.Len))
	} else if recv, err = r.place(r.recv); err != nil {
		return r, err
	}
	r.request, err = c.Init(k.call(send, recv), collectives.With(k.Spec))
	return r, err
}

// fill stores rank's contribution in b.
func (r *Running) fill(b []byte, rank int) {
	for i := range r.k.Count {
		Put(r.k.Datatype, b[margin:], i, contribution(r.k.Datatype, r.k.Op, rank, i))
	}
}

// fillPart stores rank's part of an allgather or gather in b, from element off on.
func (r *Running) fillPart(b []byte, rank, off int) {
	for i := range r.k.part(rank).Len {
		Put(r.k.Datatype, b[margin:], off+i, contribution(r.k.Datatype, r.k.Op, rank, i))
	}
}

// Start starts the case.
func (r *Running) Start() error { return r.request.Start() }

// Check waits for the case and says what is wrong with its result.
func (r *Running) Check() error {
	defer r.request.Close()
	if err := r.request.Wait(context.Background()); err != nil {
		return err
	}
	if err := r.fetch(); err != nil {
		return err
	}
	k := r.k
	if k.Collective.Gathers() {
		return r.checkParts()
	}
	if k.Collective.Parts() {
		return r.checkScatter()
	}
	want, input := k.buffer(), k.buffer()
	switch hasResult := k.Collective != schedule.Reduce || r.c.Rank() == k.Root; {
	case k.Collective == schedule.Bcast:
		r.fill(want, k.Root)
	case k.Collective == schedule.Alltoall:
		each, me := k.Count/r.c.Size(), r.c.Rank()
		for i := range k.Count {
			Put(k.Datatype, want[margin:], i, contribution(k.Datatype, k.Op, i/each, me*each+i%each))
		}
	case hasResult:
		for i := range k.Count {
			x, err := result(k.Datatype, k.Op, r.c.Size(), i)
			if err != nil {
				return err
			}
			Put(k.Datatype, want[margin:], i, x)
		}
	case k.InPlace: // not the root
		r.fill(want, r.c.Rank())
	}
	if err := same("the result", k.Datatype, r.recv, want); err != nil {
		return err
	}
	if k.InPlace || k.Collective == schedule.Bcast {
		return nil
	}
	r.fill(input, r.c.Rank())
	return same("the input", k.Datatype, r.send, input)
}

// checkParts is Check of an allgather or gather that has ended.
func (r *Running) checkParts() error {
	want := r.k.buffer()
	has := r.k.Collective == schedule.Allgather || r.c.Rank() == r.k.Root
	for rank := range r.c.Size() {
		if has || r.k.InPlace && rank == r.c.Rank() {
			r.fillPart(want, rank, r.k.part(rank).Off)
		}
	}
	if err := same("the result", r.k.Datatype, r.recv, want); err != nil || r.k.InPlace {
		return err
	}
	input := r.k.bufferOf(r.k.part(r.c.Rank()).Len)
	r.fillPart(input, r.c.Rank(), 0)
	return same("the input", r.k.Datatype, r.send, input)
}

// checkScatter is Check of a reduce-scatter or a scatter that has ended.
func (r *Running) checkScatter() error {
	own := r.k.part(r.c.Rank())
	want, input, off := r.k.bufferOf(own.Len), r.k.buffer(), 0
	r.fill(input, r.c.Rank())
	if r.k.InPlace { // all but the part stays as it was
		want, off = input, own.Off
	}
	for i := range own.Len {
		x := contribution(r.k.Datatype, r.k.Op, r.k.Root, own.Off+i)
		if r.k.Collective.Reduces() {
			var err error
			if x, err = result(r.k.Datatype, r.k.Op, r.c.Size(), own.Off+i); err != nil {
				return err
			}
		}
		Put(r.k.Datatype, want[margin:], off+i, x)
	}
	if r.k.InPlace {
		return same("the result", r.k.Datatype, r.send, want)
	}
	if err := same("the result", r.k.Datatype, r.recv, want); err != nil {
		return err
	}
	return same("the input", r.k.Datatype, r.send, input)
}

func same(what string, dt mem.Datatype, got, want []byte) error {
	if bytes.Equal(got, want) {
		return nil
	}
	i := 0
	for got[i] == want[i] {
		i++
	}
	if i < margin || i >= len(got)-margin {
		return fmt.Errorf("%s: byte %d outside of it was written", what, i-margin)
	}
	at := (i - margin) / dt.Size()
	from, to := margin+at*dt.Size(), margin+(at+1)*dt.Size()
	return fmt.Errorf("%s: element %d has the bytes %x, not %x", what, at, got[from:to], want[from:to])
}

// World runs f on n ranks of this process, each with an engine over what open
// returns, closes the engines, and returns how each rank ended.
func World(n int, open func(rank int) func() (nbc.Transport, error), opts nbc.Options, f func(c *collectives.Comm, e *nbc.Engine) error) []error {
	return WorldWith(n, func(r int) (nbc.Transport, nbc.Device, error) {
		k, err := kernels.NewCPU()
		if err != nil {
			return nil, nil, err
		}
		t, err := open(r)()
		return t, device.CPU(k), err
	}, opts, f)
}

// WorldWith is World with devices of the caller's.
func WorldWith(n int, open func(rank int) (nbc.Transport, nbc.Device, error), opts nbc.Options, f func(c *collectives.Comm, e *nbc.Engine) error) []error {
	errs := make([]error, n)
	engines := make([]*nbc.Engine, n)
	for r := range n {
		engines[r], errs[r] = nbc.StartWith(func() (nbc.Transport, nbc.Device, error) { return open(r) }, opts)
	}
	var wg sync.WaitGroup
	opened := errors.Join(errs...) == nil
	for r, e := range engines {
		if !opened {
			break
		}
		wg.Go(func() { errs[r] = f(collectives.World(e, collectives.Options{}), e) })
	}
	wg.Wait()
	for _, e := range engines {
		if e != nil {
			_ = e.Close()
		}
	}
	return errs
}

// Late runs f on n ranks of this process, whose messages come late, by a seed, unless that
// is 0.
func Late(t testing.TB, n int, seed uint64, f func(c *collectives.Comm) error) {
	t.Helper()
	w := inproc.NewWorld(n, inproc.Options{Seed: seed})
	open := func(r int) func() (nbc.Transport, error) {
		return func() (nbc.Transport, error) {
			at, err := w.Open(r)()
			if err != nil || seed == 0 {
				return at, err
			}
			return faulty.Wrap(at, faulty.Plan{Seed: seed + uint64(r), Delay: 3}), nil
		}
	}
	errs := World(n, open, nbc.Options{}, func(c *collectives.Comm, _ *nbc.Engine) error { return f(c) })
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}
