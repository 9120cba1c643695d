// Package tune finds the fastest spec for each collective and buffer size.
// Sweep measures specs against each other; Result.Table turns the measurements
// into a tuning table for package collectives, and Result.Report into a page
// with charts. Explain says which spec serves a call, and why.
//
//	res, err := tune.Sweep(ctx, comm, tune.Config{Out: "scaffe.table", Budget: time.Minute})
//	...
//	page, err := res.Write() // on one rank: the table and the page
//
// Sweep is a collective: every rank calls it with the same Config. It measures
// like this:
//
//   - The candidates for one size take turns, round by round, so that
//     whatever else the machine does affects them alike.
//   - A turn is one execution, or a burst of small ones, whose first do not count: they find
//     the caches as another candidate left them, which is not what a program meets.
//   - An execution starts after a barrier, on one node at the same moment. It counts with the time of the
//     slowest rank, a turn with the median of its executions, and a spec with the median of its turns.
//   - Specs that the cost model predicts to be far too slow are not measured. A
//     spec that takes more than twice as long as the best in the first rounds is
//     dropped.
//   - Sizes are visited from coarse to fine, so that a budget that runs out
//     leaves a table with fewer sizes, not with fewer collectives.
//
// All ranks know all times, and therefore decide alike without asking each
// other. After each size rank 0 saves the measurements next to the table
// (Config.Partial). A sweep that was interrupted continues from that file,
// provided that the machine, the layout and the Config are the same.
//
// The package contains no algorithm and starts no ranks.
package tune
