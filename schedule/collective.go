package schedule

import "fmt"

// Collective is a collective operation.
type Collective uint8

const (
	// Reduce combines everyone's In into the root's Out.
	Reduce Collective = iota
	// Bcast copies the root's Out to everyone's Out.
	Bcast
	// Allreduce combines everyone's In into everyone's Out.
	Allreduce
)

// Collectives lists every Collective.
var Collectives = []Collective{Reduce, Bcast, Allreduce}

var collectives = [...]string{Reduce: "reduce", Bcast: "bcast", Allreduce: "allreduce"}

// Valid reports whether c is one of Collectives.
func (c Collective) Valid() bool { return int(c) < len(collectives) }

// String returns reduce, bcast or allreduce.
func (c Collective) String() string {
	if c.Valid() {
		return collectives[c]
	}
	return fmt.Sprintf("collective(%d)", uint8(c))
}

// ParseCollective is the inverse of String.
func ParseCollective(s string) (Collective, error) {
	for _, c := range Collectives {
		if c.String() == s {
			return c, nil
		}
	}
	return 0, fmt.Errorf("unknown collective %q: use reduce, bcast or allreduce", s)
}

// Algorithm is a family of builders: what adds each collective to a Builder. A
// family may lack Reduce and Bcast, and then serves Allreduce alone; or an
// Allreduce of its own, which is then the reduction to the root joined to the
// broadcast.
type Algorithm struct {
	Reduce, Bcast, Allreduce func(*Builder, Params)
}

// Collectives lists those that the family has.
func (a Algorithm) Collectives() []Collective {
	if a.Reduce == nil {
		return []Collective{Allreduce}
	}
	return Collectives
}

// Add adds one of the family's collectives to b.
func (a Algorithm) Add(b *Builder, c Collective, p Params) {
	if c == Allreduce && a.Allreduce != nil {
		a.Allreduce(b, p)
		return
	}
	if c != Bcast {
		a.Reduce(b, p)
	}
	if c != Reduce {
		a.Bcast(b, p)
	}
}

// Build returns the schedules of all ranks; p.Rank does not matter.
func (a Algorithm) Build(c Collective, p Params) []*Schedule {
	all := make([]*Schedule, p.Size)
	for p.Rank = range p.Size {
		b := NewBuilder(p.Rank, p.Size, p.Count)
		a.Add(b, c, p)
		all[p.Rank] = b.Schedule()
	}
	return all
}
