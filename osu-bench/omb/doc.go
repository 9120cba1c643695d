// Package omb is what the programs of osu-bench share: options, measuring,
// validation and output of micro-benchmarks in the convention of the OSU
// Micro-Benchmarks (OMB 7.4). Their main functions are one line each.
//
//	mpirun -np 4 osu_reduce -m 1M:64M -T mpi_float -f
//	mpirun -np 4 osu_allreduce -m 4:64M -T mpi_float --algorithm mpi,tuned,chain:2/binomial
//
// It owns what is measured and how it is told. It must not know any algorithm:
// collectives are called as every program calls them, the MPI library's as a C
// program does.
//
// # What OMB's users know
//
// Options, defaults, headers and columns are OMB's; Parse has a command line's
// meaning, -h prints it. Sizes may have the suffixes K, M and G, -T more types,
// -k serves the broadcasts too. With one algorithm the table is OMB's to the
// byte, so that scripts written for OMB read it; one comment above the header says
// which spec serves which sizes.
//
// OMB's Avg is the mean over the ranks, so a reduction whose leaves are done
// early looks faster than it is; its -f shows the largest rank.
//
// # Comparing
//
// With several algorithms all run in the same process, taking turns iteration
// by iteration in an order drawn anew for each, after a barrier. A result is
// the time of the slowest rank in each iteration, and of those the median,
// with a confidence interval that supposes no distribution (order statistics).
// Two results whose intervals overlap are called the same.
//
// The MPI library's collective is called on MPI's thread, between two looks at
// a clock, after MPI_Barrier: what a C program would measure. Scaffe's is
// called from a goroutine and is done by another thread, whose notice and
// answer are part of its time. Nothing else runs on the engine meanwhile.
//
// Times are kept in memory and gathered when all iterations of a size are
// done.
//
// # Overlap
//
// The non-blocking programs measure the communication alone, then with a
// computation of its length (times --compute-scale) between the call and the
// wait. --compute spin computes on the core as OMB does; wait lets the time go
// by, as a CPU does whose accelerator computes. Scaffe's progress needs no call
// of Test, MPI's may: -t spreads some over the computation, for both.
//
// # Validation
//
// -c makes new data for every iteration, a hash of rank, index and iteration
// that every type sums exactly, and compares every element of every result.
package omb
