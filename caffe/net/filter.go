package net

import (
	"slices"

	"github.com/scaffe/scaffe/caffe/proto"
)

// meets reports whether rule r holds in state s: everything that r sets must
// hold.
func meets(s *proto.NetState, r *proto.NetStateRule) bool {
	if r.Phase != nil && r.GetPhase() != s.GetPhase() ||
		r.MinLevel != nil && s.GetLevel() < r.GetMinLevel() ||
		r.MaxLevel != nil && s.GetLevel() > r.GetMaxLevel() {
		return false
	}
	for _, stage := range r.GetStage() {
		if !slices.Contains(s.GetStage(), stage) {
			return false
		}
	}
	for _, stage := range r.GetNotStage() {
		if slices.Contains(s.GetStage(), stage) {
			return false
		}
	}
	return true
}

// included reports whether a layer is part of the net in state s: with include
// rules if one of them holds, otherwise unless an exclude rule holds.
func included(s *proto.NetState, p *proto.LayerParameter) bool {
	holds := func(r *proto.NetStateRule) bool { return meets(s, r) }
	if len(p.GetInclude()) > 0 {
		return slices.ContainsFunc(p.GetInclude(), holds)
	}
	return !slices.ContainsFunc(p.GetExclude(), holds)
}

// filter returns the nodes of those layers of p that the state selects.
func (b *builder) filter(p *proto.NetParameter, s *proto.NetState) ([]*node, error) {
	var nodes []*node
	for i, lp := range p.GetLayer() {
		nd := b.node(i)
		if len(lp.GetInclude()) > 0 && len(lp.GetExclude()) > 0 {
			return nil, nd.errorIn(path("exclude"), "has include and exclude rules: use one kind only")
		}
		if included(s, lp) {
			nodes = append(nodes, nd)
		}
	}
	return nodes, nil
}
