// Package selection chooses the spec that serves a collective.
//
//	s, err := selection.NewSelector(selection.Flags{Table: "cluster.table"})
//	choice, err := s.Select(layout, selection.Query{Collective: schedule.Reduce, Bytes: 64 << 20}, spec.Spec{})
//	fmt.Println(choice.Spec, choice.Why)
//
// What the call asks for comes first, then the Selector's sources in their order
// (flags, environment, the user's file), each a Spec for all calls or a tuning Table.
// Where none has a rule, the cost model decides: Candidates are the specs that make
// sense for a layout, Predict says how long package sim finds that each takes under a
// sim.Model. Costs are what was measured of a machine or of a GPU, Kept is how they are kept.
// Buffers in GPUs' memory (CUDA) are predicted by what the model has of GPUs; where it has nothing, as
// unregistered ones of the host.
// docs/tuning.md has the text form of tables; Lint finds what is odd in one.
//
// A choice is a function of the Selector, the layout and the query alone, to the last
// bit on every kind of processor: ranks whose Selectors are equal choose alike.
// Settings are a Selector as text, as it travels from rank to rank. Nothing here
// needs ranks that run, so the same questions can be asked about any cluster
// (scaffe explain).
package selection
