package exchange

import (
	"fmt"
	"strings"
)

// Design is when parameters and gradients move: a row of the table below. The
// zero value is SCOBR.
type Design uint8

// The designs of S-Caffe.
const (
	SCOBR     Design = iota // section 4.3: reductions under backward, broadcasts under forward
	SCOB                    // section 4.2, Figure 5: all broadcasts at once, under forward
	SCOBNaive               // section 4.2, Figure 4: one broadcast ahead
	SCB                     // section 4.1: phases one after another
)

// designs are the rows, by Design. A design of another paper is one more row.
var designs = []row{
	SCOBR: {name: "SC-OBR", policies: [...]policy{
		Reduce:    {pushAt: afterLayers, pushAwaitedAt: onSum, pullAt: onSum, pullAwaitedAt: beforeForward},
		Allreduce: {pushAt: afterLayers, pushAwaitedAt: beforeForward},
	}},
	SCOB: {name: "SC-OB", policies: [...]policy{
		Reduce:    {pushAt: afterBackward, pushAwaitedAt: atFinish, pullAt: atStart, pullAwaitedAt: beforeForward},
		Allreduce: {pushAt: afterBackward, pushAwaitedAt: beforeForward},
	}},
	SCOBNaive: {name: "SC-OB-naive", policies: [...]policy{
		Reduce:    {pushAt: afterBackward, pushAwaitedAt: atFinish, pullAt: oneAhead, pullAwaitedAt: beforeForward},
		Allreduce: {pushAt: oneAhead, pushAwaitedAt: beforeForward},
	}},
	SCB: {name: "SC-B", packed: true, policies: [...]policy{
		Reduce:    {pushAt: afterBackward, pushAwaitedAt: atFinish, pullAt: atStart, pullAwaitedAt: beforeForward},
		Allreduce: {pushAt: afterBackward, pushAwaitedAt: atFinish},
	}},
}

// row is one design.
type row struct {
	name     string
	packed   bool      // all buckets move as one
	policies [2]policy // by Scheme
}

// policy says when a bucket's gradients start to move and when the computing
// goroutine waits for their sum, and the same of its parameters. A layer's
// forward pass waits for its buckets whatever the policy says.
type policy struct{ pushAt, pushAwaitedAt, pullAt, pullAwaitedAt point }

// point is a point of an iteration, in the order in which they come.
type point uint8

const (
	never         point = iota // there is nothing to pull
	atStart                    // the iteration begins
	oneAhead                   // the forward pass comes to the bucket before; for the first, the iteration begins
	beforeForward              // the forward pass comes to a layer that uses the bucket
	afterLayers                // the backward pass of the bucket's layers has ended
	afterBackward              // the backward pass of all layers has ended
	atFinish                   // the iteration's passes have ended
	onSum                      // whenever the sum has arrived and been used: the bucket's goroutine waits for it
)

// within returns the policy where the buckets' goroutines must not start a pull,
// if one does: with updateAtOnce no bucket is used before all sums have arrived,
// and the MPI library's collectives (library) must start in one order on all
// ranks.
func (p policy) within(updateAtOnce, library bool) policy {
	switch {
	case updateAtOnce:
		p.pushAwaitedAt = atFinish
		if p.pushAt == oneAhead { // of the next iteration
			p.pushAt = atFinish
		}
		if p.pullAt == onSum {
			p.pullAt = atFinish
		}
	case library && p.pullAt == onSum:
		p.pushAwaitedAt = atFinish
		if p.pullAt = atStart; p.pullAwaitedAt == atFinish {
			p.pullAt = atFinish
		}
	}
	return p
}

// All returns the designs, from the basic one to the one that overlaps the most.
func All() []Design { return []Design{SCB, SCOBNaive, SCOB, SCOBR} }

// String returns the paper's name, such as "SC-OBR".
func (d Design) String() string {
	if int(d) < len(designs) {
		return designs[d].name
	}
	return fmt.Sprintf("design(%d)", uint8(d))
}

// Parse is the inverse of String; case does not matter.
func Parse(s string) (Design, error) {
	for d := range designs {
		if strings.EqualFold(s, designs[d].name) {
			return Design(d), nil
		}
	}
	return 0, fmt.Errorf("unknown design %q: want SC-B, SC-OB-naive, SC-OB or SC-OBR", s)
}

// Scheme is how the gradients become new parameters everywhere.
type Scheme uint8

const (
	// Reduce sums at the root, which updates and broadcasts, as in S-Caffe.
	Reduce Scheme = iota
	// Allreduce sums everywhere, and every rank updates.
	Allreduce
)

// String returns reduce or allreduce.
func (s Scheme) String() string {
	if s == Reduce {
		return "reduce"
	}
	return "allreduce"
}

// ParseScheme is the inverse of String.
func ParseScheme(s string) (Scheme, error) {
	switch s {
	case "reduce":
		return Reduce, nil
	case "allreduce":
		return Allreduce, nil
	}
	return 0, fmt.Errorf("unknown scheme %q: want reduce (the root updates and broadcasts) or allreduce (every rank updates)", s)
}
