// Package trace records what every rank does as a timeline, aligns the ranks'
// clocks, and says where the time goes.
//
// Each rank adds typed events to its Recorder while it works. At the end, rank 0
// gathers the events of all ranks on one clock as a Trace, which can be written
// in Chrome's trace format, analyzed, and drawn.
//
//	rec := trace.New(comm.Rank(), trace.Options{})
//	err := trace.Align(ctx, comm, rec) // on all ranks: compares the clocks
//	...
//	begin := rec.Now()
//	layer.Forward()
//	rec.Add(trace.Event{Kind: trace.Forward, Name: "conv1", Iter: 7, Layer: 2, Begin: begin, End: rec.Now()})
//	...
//	t, err := trace.Gather(ctx, comm, rec) // on all ranks; t is nil except on rank 0
//	err = t.Write("out.json")              // ReadFile reads it
//	fmt.Print(trace.Analyze(t).Text())
//
// A nil *Recorder is a recorder that is off: all its methods do nothing, so that
// tracing that is not wanted costs a nil check.
//
// The package knows the kinds of events and what follows from them. It does not
// know who emits them.
package trace
