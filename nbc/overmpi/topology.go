package overmpi

import "github.com/scaffe/scaffe/nbc"

var _ nbc.Topology = (*Transport)(nil)

// Nodes returns for every rank the index of its node.
func (t *Transport) Nodes() []int { return t.world.Nodes().Of }
