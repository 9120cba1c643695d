package overmpi

import "github.com/scaffe/scaffe/nbc"

var (
	_ nbc.Topology = (*Transport)(nil)
	_ nbc.Hosted   = (*Transport)(nil)
)

// Nodes returns for every rank the index of its node.
func (t *Transport) Nodes() []int { return t.world.Nodes().Of }

// Rivals returns how many ranks of other nodes may run on this rank's cores.
func (t *Transport) Rivals() int { return t.world.Nodes().Rivals }
