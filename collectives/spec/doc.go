// Package spec says how a collective is done: a Spec, as text that people write,
// and the schedules that it stands for.
//
//	s, err := spec.Parse("chain:8/binomial")
//	one, err := spec.Build(spec.Call{Collective: schedule.Reduce, Rank: 3, Size: 160, Count: n, ElemSize: 4}, s)
//
// A Spec has one algorithm per level: the ranks of each group reduce to their leader
// by the lowest level's, the leaders by the next one's, and so on; broadcasts go
// down the same way. Build composes the schedule of one rank from the builders of
// packages linear, chain, binomial, direct, scatter, ring, doubling and halving, one view (schedule.Builder.Sub)
// per level. Levels are joined by the ranges that they touch, so that the first chunk
// climbs while the second is still below.
//
// Everything here is data and pure functions: no engine, no memory, no network. All
// ranks that agree on a Call and a Spec have schedules that fit together, which
// package schedule/check proves.
package spec
