package exchange

import (
	"fmt"
	"strings"

	"github.com/scaffe/scaffe/syncer/coordinator"
)

// Design is when parameters and gradients move: a row of the table below. The
// zero value is SCOBR.
type Design uint8

// The designs of S-Caffe, Poseidon's, and what Poseidon is compared with.
const (
	SCOBR     Design = iota // S-Caffe 4.3: reductions under backward, broadcasts under forward
	SCOB                    // 4.2, Figure 5: all broadcasts at once, under forward
	SCOBNaive               // 4.2, Figure 4: one broadcast ahead
	SCB                     // 4.1: phases one after another
	WFBP                    // Poseidon, Algorithm 2: as SC-OBR, and an iteration ends when all parameters are current
	TF                      // Poseidon 5.1, TensorFlow: gradients move as they come, parameters are asked for when the next iteration starts
)

// designs are the rows, by Design. A design of another paper is one more row.
var designs = []row{
	SCOBR: {
		name:       "SC-OBR",
		served:     policy{pushAt: afterLayers, pushAwaitedAt: onSum, pullAt: onSum, pullAwaitedAt: beforeForward},
		replicated: policy{pushAt: afterLayers, pushAwaitedAt: beforeForward},
	},
	SCOB: {
		name:       "SC-OB",
		served:     policy{pushAt: afterBackward, pushAwaitedAt: atFinish, pullAt: atStart, pullAwaitedAt: beforeForward},
		replicated: policy{pushAt: afterBackward, pushAwaitedAt: beforeForward},
	},
	SCOBNaive: {
		name:       "SC-OB-naive",
		served:     policy{pushAt: afterBackward, pushAwaitedAt: atFinish, pullAt: oneAhead, pullAwaitedAt: beforeForward},
		replicated: policy{pushAt: oneAhead, pushAwaitedAt: beforeForward},
	},
	SCB: {
		name: "SC-B", packed: true,
		served:     policy{pushAt: afterBackward, pushAwaitedAt: atFinish, pullAt: atStart, pullAwaitedAt: beforeForward},
		replicated: policy{pushAt: afterBackward, pushAwaitedAt: atFinish},
	},
	WFBP: {
		name:       "WFBP",
		served:     policy{pushAt: afterLayers, pushAwaitedAt: onSum, pullAt: onSum, pullAwaitedAt: atFinish},
		replicated: policy{pushAt: afterLayers, pushAwaitedAt: atFinish},
	},
	TF: {
		name:       "TF",
		served:     policy{pushAt: afterLayers, pushAwaitedAt: atFinish, pullAt: atStart, pullAwaitedAt: beforeForward},
		replicated: policy{pushAt: afterLayers, pushAwaitedAt: atFinish},
	},
}

// row is one design: what it does with schemes by which a root or servers update, and
// with those by which every rank does (Scheme.Replicated).
type row struct {
	name               string
	packed             bool // neighboring buckets of one scheme move as one
	served, replicated policy
}

// policy returns that of a scheme.
func (r row) policy(s Scheme) policy {
	if s.Replicated() {
		return r.replicated
	}
	return r.served
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

// together reports whether all buckets are awaited at one point, the end of the iteration: none of them is then needed
// sooner than the others.
func (p policy) together() bool {
	return p.pullAwaitedAt == atFinish || p.pullAt == never && p.pushAwaitedAt == atFinish
}

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

// clipped returns the policy where what is pushed depends on the gradients of all layers.
func (p policy) clipped() policy {
	if p.pushAt == afterLayers {
		p.pushAt = afterBackward
	}
	return p
}

// All returns S-Caffe's designs, from the basic one to the one that overlaps the most.
func All() []Design { return []Design{SCB, SCOBNaive, SCOB, SCOBR} }

// Names lists what Parse reads: S-Caffe's designs as All does, then Poseidon's and TensorFlow's.
func Names() []string {
	var names []string
	for _, d := range append(All(), WFBP, TF) {
		names = append(names, d.String())
	}
	return names
}

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
	return 0, fmt.Errorf("unknown design %q: want SC-B, SC-OB-naive, SC-OB, SC-OBR, WFBP or TF", s)
}

// Scheme is how the gradients become new parameters everywhere; choosing among them is
// package coordinator's.
type Scheme = coordinator.Scheme

// Auto leaves the scheme to choice (Choose).
const Auto = coordinator.Auto

// The schemes that an exchange executes.
const (
	// Reduce sums at the root, which updates and broadcasts, as in S-Caffe.
	Reduce = coordinator.Reduce
	// Allreduce sums everywhere, and every rank updates.
	Allreduce = coordinator.Allreduce
	// PS sums each KV pair at its server, which updates and broadcasts it: Poseidon.
	PS = coordinator.PS
	// Adam sends sufficient factors to a layer's one server, which rebuilds the sum,
	// updates and broadcasts.
	Adam = coordinator.Adam
	// OneBit sends a bit for each value to the owners of stripes, which send as much of
	// their sums to all ranks, each of which updates: lossy.
	OneBit = coordinator.OneBit
	// DGC sends the largest of what gradients have come to to all ranks, each of which updates: lossy.
	DGC = coordinator.DGC
	// SFB sends sufficient factors to all ranks, each of which rebuilds the sum and
	// updates.
	SFB = coordinator.SFB
)
