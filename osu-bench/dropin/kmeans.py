"""A k-means in small batches, of an MPI program that knows nothing of scaffe: every rank has points of its own, and the sums of the centers' points
are those of all ranks. It prints the seconds of an iteration, the slowest rank's median, and of that the Allreduce.

    mpirun -np 4 python3 osu-bench/dropin/kmeans.py
    mpirun -np 4 bin/scaffe with python3 osu-bench/dropin/kmeans.py
"""

import statistics
import sys
import time

import numpy as np
from mpi4py import MPI

CENTERS, DIMENSIONS, POINTS = 1024, 4096, 64  # 32 MiB of centers in double precision; points of a batch
ITERATIONS = int(sys.argv[1]) if len(sys.argv) > 1 else 10

comm = MPI.COMM_WORLD
rng = np.random.default_rng(comm.rank)
points = rng.random((POINTS, DIMENSIONS))
centers = np.empty((CENTERS, DIMENSIONS))
if comm.rank == 0:
    centers[:] = np.random.default_rng(0).random(centers.shape)
comm.Bcast(centers)
sums, all_sums = np.empty_like(centers), np.empty_like(centers)
counts, all_counts = np.empty(CENTERS), np.empty(CENTERS)

whole, reduced = [], []
for _ in range(ITERATIONS):
    comm.Barrier()
    begun = time.perf_counter()
    nearest = ((centers**2).sum(axis=1) - 2 * points @ centers.T).argmin(axis=1)
    sums[:] = 0
    np.add.at(sums, nearest, points)
    counts[:] = np.bincount(nearest, minlength=CENTERS)
    adding = time.perf_counter()
    comm.Allreduce(sums, all_sums)
    comm.Allreduce(counts, all_counts)
    added = time.perf_counter()
    some = all_counts > 0
    centers[some] = all_sums[some] / all_counts[some, None]
    whole.append(time.perf_counter() - begun)
    reduced.append(added - adding)

times = np.array([statistics.median(whole), statistics.median(reduced), np.abs(centers).sum()])
slowest = np.empty_like(times)
comm.Allreduce(times, slowest, op=MPI.MAX)
if comm.rank == 0:
    print(f"iteration {slowest[0]:.4f} s, Allreduce {slowest[1]:.4f} s, centers {slowest[2]:.6f}")
