// Package soak makes random programs of collectives and runs them: communicators
// made, duplicated and closed, persistent requests and ones that run once,
// started in different orders on each rank, blocking calls beside them, several
// goroutines, canceled contexts, and ranks that give up. Every result is compared
// with a plain sum.
//
// A program is a function of its seed and its number of ranks alone, and what
// each rank does of it a function of the program and the rank; so a failure can
// be had again, as far as it does not depend on timing. Every program is one that
// ranks may legally run: what can deadlock over MPI by its rules is not made.
//
// `make soak` runs programs over all transports for as long as asked, and a
// failure prints the command that runs the same again.
package soak

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/scaffe/scaffe/collectives/collectivestest"
	"github.com/scaffe/scaffe/collectives/selection"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/schedule"
)

// Options say what programs may do.
type Options struct {
	Ranks int
	Steps int // how many, about
	// Library allows calls of the MPI library's own collectives.
	Library bool
	// Abort ends the program with a rank that gives up.
	Abort bool
}

// Program is what all ranks run together.
type Program struct {
	Seed  uint64
	Ranks int
	steps []step
	comms [][]int // by communicator: the ranks of the world, in order
	calls []call  // of persistent requests
}

// A step is made of what all ranks know. Ranks that take no part in a step go on
// with the next.
type step interface{ String() string }

type (
	// split makes communicators of one: news[rank] is its index in
	// Program.comms, -1 for none.
	split struct {
		comm         int
		colors, keys []int // by rank of comm
		news         []int // by rank of the world
	}
	// closing closes communicators, and persistent requests of theirs.
	closing struct{ comms, requests []int }
	// prepare makes persistent requests.
	prepare struct{ requests []int }
	// blocking calls, some of whose callers do not wait for the end.
	blocking struct {
		call
		impatient []bool // by rank of the world
	}
	// batch starts persistent requests and collectives that run once, in another order
	// on each rank, and waits for them in yet another, between blocking calls.
	batch struct {
		requests []int
		once     []call
		between  []call
	}
	// lanes are run by a goroutine each.
	lanes []lane
	// abort lets a rank give up while the others wait for it.
	abort struct {
		rank  int
		waits call
	}
)

// lane makes calls on a communicator, and on a duplicate of it.
type lane struct {
	calls, onDup []call
}

// call is a collective.
type call struct {
	key        uint64 // of its data
	comm       int
	collective schedule.Collective
	dt         mem.Datatype
	op         mem.Op
	count      int
	root       int
	inPlace    bool
	spec       string // "": as selected
	priority   int
}

func (c call) String() string {
	return fmt.Sprintf("%v of %d %v %v on comm %d, root %d, in place %v, spec %q", c.collective, c.count, c.dt, c.op, c.comm, c.root, c.inPlace, c.spec)
}

func (s split) String() string {
	return fmt.Sprintf("split comm %d by colors %v, keys %v: %v", s.comm, s.colors, s.keys, s.news)
}

func (s closing) String() string {
	return fmt.Sprintf("close comms %v, requests %v", s.comms, s.requests)
}

func (s prepare) String() string { return fmt.Sprintf("prepare requests %v", s.requests) }

func (s blocking) String() string { return fmt.Sprintf("%v, impatient %v", s.call, s.impatient) }

func (s batch) String() string {
	return fmt.Sprintf("start requests %v beside %v, between %v", s.requests, s.once, s.between)
}

func (s lanes) String() string { return fmt.Sprintf("%d lanes: %v", len(s), []lane(s)) }

func (s abort) String() string { return fmt.Sprintf("rank %d gives up beside %v", s.rank, s.waits) }

// String lists the steps.
func (p *Program) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "program %d on %d ranks\n", p.Seed, p.Ranks)
	for i, s := range p.steps {
		fmt.Fprintf(&b, "%3d %v\n", i, s)
	}
	for i, c := range p.calls {
		fmt.Fprintf(&b, "request %d: %v\n", i, c)
	}
	return b.String()
}

// maker makes a program.
type maker struct {
	*Program
	o        Options
	random   *rand.Rand
	specs    []string
	open     []int // communicators that are open
	prepared []int // requests that are open
	key      uint64
}

// New returns the program of a seed.
func New(seed uint64, o Options) *Program {
	m := &maker{Program: &Program{Seed: seed, Ranks: o.Ranks}, o: o, random: rand.New(rand.NewPCG(seed, uint64(o.Ranks)))}
	for _, s := range collectivestest.Specs() {
		m.specs = append(m.specs, s.String())
	}
	world := make([]int, o.Ranks)
	for r := range world {
		world[r] = r
	}
	m.comms, m.open = [][]int{world}, []int{0}
	for len(m.steps) < o.Steps {
		m.step()
	}
	if o.Abort {
		c := m.call(0)
		c.collective, c.count = schedule.Allreduce, max(1, c.count)
		c.spec = "binomial"
		m.add(abort{m.random.IntN(o.Ranks), c})
		return m.Program
	}
	m.add(closing{m.open[1:], m.prepared})
	return m.Program
}

func (m *maker) add(s step) { m.steps = append(m.steps, s) }

func (m *maker) step() {
	switch k := m.random.IntN(100); {
	case k < 12 && len(m.open) < 12:
		m.split()
	case k < 18 && len(m.open) > 1:
		m.close()
	case k < 35 && len(m.prepared) < 60:
		m.prepare()
	case k < 55:
		m.blocking()
	case k < 90:
		m.batch()
	default:
		m.lanes()
	}
}

// comm returns an open communicator, the world most often.
func (m *maker) comm() int {
	if m.random.IntN(3) == 0 {
		return 0
	}
	return m.open[m.random.IntN(len(m.open))]
}

func (m *maker) split() {
	s := split{comm: m.comm(), news: slices.Repeat([]int{-1}, m.Ranks)}
	members := m.comms[s.comm]
	colors, reverse := 1, m.random.IntN(2) == 0
	if m.random.IntN(2) == 0 { // otherwise a Dup, or the same in another order
		colors = 1 + m.random.IntN(3)
	}
	made := map[int]int{}
	order := make([]int, len(members))
	for i := range members {
		color := m.random.IntN(colors)
		if colors > 1 && m.random.IntN(6) == 0 {
			color = -1
		}
		order[i] = i
		if reverse {
			order[i] = -i / 2 // some keys are equal
		}
		s.colors, s.keys = append(s.colors, color), append(s.keys, order[i])
	}
	byKey := slices.Clone(order)
	for i := range byKey {
		byKey[i] = i
	}
	slices.SortStableFunc(byKey, func(a, b int) int { return s.keys[a] - s.keys[b] })
	for _, i := range byKey {
		color := s.colors[i]
		if color < 0 {
			continue
		}
		c, ok := made[color]
		if !ok {
			c = len(m.comms)
			made[color] = c
			m.comms = append(m.comms, nil)
			m.open = append(m.open, c)
		}
		m.comms[c] = append(m.comms[c], members[i])
		s.news[members[i]] = c
	}
	m.add(s)
}

// close closes a communicator; its requests go with it, or live on.
func (m *maker) close() {
	i := 1 + m.random.IntN(len(m.open)-1)
	s := closing{comms: []int{m.open[i]}}
	m.open = slices.Delete(m.open, i, i+1)
	m.prepared = slices.DeleteFunc(m.prepared, func(r int) bool {
		gone := m.calls[r].comm == s.comms[0] && m.random.IntN(2) == 0 || m.random.IntN(10) == 0
		if gone {
			s.requests = append(s.requests, r)
		}
		return gone
	})
	m.add(s)
}

func (m *maker) prepare() {
	var s prepare
	for range 1 + m.random.IntN(8) {
		s.requests = append(s.requests, len(m.calls))
		m.prepared = append(m.prepared, len(m.calls))
		m.calls = append(m.calls, m.call(m.comm()))
	}
	m.add(s)
}

func (m *maker) blocking() {
	c := m.comm()
	for range 1 + m.random.IntN(4) {
		s := blocking{call: m.call(c), impatient: make([]bool, m.Ranks)}
		switch m.random.IntN(8) {
		case 0:
			for r := range s.impatient {
				s.impatient[r] = m.random.IntN(2) == 0
			}
		case 1:
			if m.o.Library {
				s.call = m.library()
			}
		}
		m.add(s)
	}
}

func (m *maker) batch() {
	var s batch
	few := 1 + m.random.IntN(12)
	for _, i := range m.random.Perm(len(m.prepared)) {
		if len(s.requests) < few {
			s.requests = append(s.requests, m.prepared[i])
		}
	}
	for range m.random.IntN(6) {
		s.once = append(s.once, m.call(m.comm()))
	}
	for range max(0, m.random.IntN(5)-2) {
		s.between = append(s.between, m.call(m.comm()))
	}
	m.add(s)
}

func (m *maker) lanes() {
	var s lanes
	for _, i := range m.random.Perm(len(m.open)) {
		if len(s) == 3 {
			break
		}
		var l lane
		for range 1 + m.random.IntN(3) {
			l.calls = append(l.calls, m.call(m.open[i]))
		}
		for range m.random.IntN(3) {
			l.onDup = append(l.onDup, m.call(m.open[i]))
		}
		s = append(s, l)
	}
	m.add(s)
}

// counts are of elements: none, odd ones, around what goes in one envelope for
// every size of element, more, and a few large.
func (m *maker) count(dt mem.Datatype) int {
	switch m.random.IntN(12) {
	case 0:
		return m.random.IntN(2)
	case 1, 2:
		return max(0, 8<<10/dt.Size()+m.random.IntN(5)-2)
	case 3, 4:
		return 1000 + m.random.IntN(20_000)
	case 5:
		if m.random.IntN(4) == 0 {
			return 100_000 + m.random.IntN(200_000)
		}
	}
	return 1 + m.random.IntN(100)
}

func (m *maker) call(comm int) call {
	m.key++
	c := call{
		key: m.key, comm: comm, collective: schedule.Collectives[m.random.IntN(len(schedule.Collectives))],
		dt: mem.Datatypes[m.random.IntN(len(mem.Datatypes))], root: m.random.IntN(len(m.comms[comm])),
		inPlace: m.random.IntN(2) == 0, priority: m.random.IntN(3),
	}
	ops := collectivestest.Ops(c.dt)
	c.op = ops[m.random.IntN(len(ops))]
	if m.random.IntN(3) == 0 { // calls that differ in nothing but their number
		c.collective, c.dt, c.op, c.root, c.count = schedule.Bcast, mem.Float32, mem.Sum, 0, []int{8, 5000}[m.random.IntN(2)]
		return c
	}
	c.count = m.count(c.dt)
	m.fit(&c)
	if m.random.IntN(2) == 0 {
		if text := m.specs[m.random.IntN(len(m.specs))]; serves(text, c.collective) && c.count <= 500 { // their chunks are small
			c.spec = text
		}
	}
	return c
}

// fit makes a call one that the ranks of its communicator may make: an alltoall has equal blocks, and is not in place.
func (m *maker) fit(c *call) {
	if c.collective == schedule.Alltoall {
		c.count -= c.count % len(m.comms[c.comm])
		c.inPlace = false
	}
}

// library returns a call of the MPI library's own.
func (m *maker) library() call {
	c := m.call(0)
	c.spec, c.count = "mpi", max(len(m.comms[0]), c.count)
	m.fit(&c)
	c.dt = []mem.Datatype{mem.Float32, mem.Float64, mem.Int32, mem.Int64, mem.Int8, mem.Uint16}[m.random.IntN(6)]
	ops := mem.OpsOf(c.dt)
	c.op = ops[m.random.IntN(len(ops))]
	if selection.Wraps(c.collective, c.dt, c.op) { // which a library may do, or not
		c.op = mem.Max
	}
	return c
}
