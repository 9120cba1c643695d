// Package tune finds out which spec is the fastest where: it measures specs
// against each other over message sizes (Sweep), makes of that a tuning table
// for package collectives (Result.Table) and a page with plots for people
// (Result.Report), and explains what a selection comes to (Explain).
//
//	res, err := tune.Sweep(ctx, comm, tune.Config{Out: "scaffe.table", Budget: time.Minute})
//
// Sweep is a collective. Its way of measuring:
//
//   - Candidates of one size run in turns, one execution each a round, so that
//     whatever else the machine does meets them alike.
//   - An execution begins after a barrier; what counts is the last rank's time
//     (the maximum over ranks), and of all executions the median.
//   - The cost model leaves out what it predicts to be hopeless; what has taken
//     more than twice the best one's time in the first rounds is dropped.
//   - Sizes are visited coarse to fine, so that a budget that ends early leaves
//     a table of fewer sizes, not of fewer collectives.
//
// All ranks know all times and so decide alike without asking. After each size
// rank 0 keeps what was measured in a file beside the table (Config.Partial); a
// sweep that was interrupted goes on from it, provided that machine, layout
// and question are the same.
//
// It owns no algorithm and starts no ranks.
package tune
