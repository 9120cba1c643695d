// Package trace records what every rank does as a timeline, brings the ranks'
// clocks together, and says where the time goes.
//
// A rank adds typed events to its Recorder while it works. At the end the
// events of all ranks are gathered at rank 0, on one clock, as a Trace, which
// is written in Chrome's trace format, analysed, and drawn.
//
//	rec := trace.New(comm.Rank(), trace.Options{})
//	err := trace.Align(ctx, comm, rec)          // all ranks: the clocks, now
//	...
//	begin := rec.Now()
//	layer.Forward()
//	rec.Add(trace.Event{Kind: trace.Forward, Name: "conv1", Iter: 7, Layer: 2, Begin: begin, End: rec.Now()})
//	...
//	t, err := trace.Gather(ctx, comm, rec)      // all ranks; t is nil but on rank 0
//	err = t.Write("out.json")                 // and ReadFile reads it
//	fmt.Print(trace.Analyze(t).Text())
//
// A nil *Recorder is a recorder that is off: every method does nothing, so what
// is traced pays for a nil check only.
//
// The package knows kinds of events, and what follows from them. It does not
// know who emits them.
package trace
