// Package omb is what the programs of osu-bench share: options, measurement,
// validation and output of micro-benchmarks in the conventions of the OSU
// Micro-Benchmarks (OMB 7.4). The programs' main functions are one line each.
//
//	mpirun -np 4 osu_reduce -m 1M:64M -T mpi_float -f
//	mpirun -np 4 osu_allreduce -m 4:64M -T mpi_float --algorithm mpi,tuned,chain:2/binomial
//
// The package owns what is measured and how it is reported. It must not know any
// algorithm: it calls collectives as any program does, and the MPI library's as
// a C program does.
//
// # For users of OMB
//
// Options, defaults, headers and columns are OMB's; -h lists the options. Sizes
// may have the suffixes K, M and G, -T knows more types, and -k also applies to
// broadcasts. With one algorithm the table is OMB's to the byte, so that scripts
// written for OMB can read it; one comment above the header says which spec
// serves which sizes. Long option names must be written in full.
//
// OMB's Avg is the mean over the ranks, so that a reduction whose leaves finish
// early looks faster than it is; -f also shows the slowest rank.
//
// # Comparing
//
// Several algorithms run in one process and take turns, iteration by iteration,
// in an order drawn anew for each, after a barrier. A result is the median over
// the iterations of the slowest rank's time, with a confidence interval that
// assumes no distribution (order statistics). Two results whose intervals
// overlap are called the same.
//
// Up to 8 KiB a turn is a fiftieth of the iterations, back to back but for the
// barrier before each, as in a program that makes the same call again and again;
// with -c, and with roots that rotate, it is one.
//
// The MPI library's collective is executed on MPI's thread by a loop in C that reads
// the monotonic clock before and after each call, after MPI_Barrier: what OMB
// measures. Scaffe's is called from a goroutine, which executes it itself where the
// engine has nothing else to do; both readings of Go's clock are part of its time.
// Where ranks share cores, as the nodes of a lab do, they meet in scaffe's barrier instead:
// MPI_Barrier lets a loop in C go on at once, and what is called from Go, the
// library's own collective too, only when the others have had the core.
// Non-blocking, the library's is MPI_Ireduce and the like and MPI_Wait, also in C;
// under a computation it is called from Go.
//
// Times are kept in memory and gathered after the last iteration of a size.
//
// # Overlap
//
// The non-blocking programs measure the communication alone, and then with a
// computation of the same length (times --compute-scale) between the call and
// the wait. With --compute spin the core computes, as in OMB; with --compute wait
// it idles, as a CPU does while its accelerator computes. Scaffe makes progress
// without calls of Test, an MPI library may not: -t spreads some over the
// computation, for both.
//
// # Validation
//
// -c fills the buffers anew for every iteration, with a hash of rank, index and
// iteration that every type sums exactly, and compares every element of every
// result.
package omb
