# What scaffe serves, called from Python.
import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD
n = 1 << 18
for _ in range(4):
    a, b = np.full(n, world.rank + 1.0), np.empty(n)
    world.Allreduce(a, b, op=MPI.SUM)
    assert (b == world.size * (world.size + 1) / 2).all()
    world.Allreduce(MPI.IN_PLACE, a, op=MPI.MAX)
    assert (a == world.size).all()
    x = np.arange(n) if world.rank == 1 else np.zeros(n, dtype=int)
    world.Bcast(x, root=1)
    assert x[-1] == n - 1
    world.Reduce(b, a, root=0)
    assert world.rank > 0 or (a == world.size * b).all()
    assert len(world.bcast({"k": list(range(1000))}, root=0)["k"]) == 1000
for _ in range(2):
    a, b = np.full(n, world.rank + 1.0), np.empty(n)
    c = np.arange(n) if world.rank == 1 else np.zeros(n, dtype=int)
    r = [world.Iallreduce(a, b, op=MPI.SUM), world.Ibcast(c, root=1)]
    MPI.Request.Waitall(r)
    assert (b == world.size * (world.size + 1) / 2).all() and c[-1] == n - 1
    r = world.Iallreduce(MPI.IN_PLACE, a, op=MPI.MAX)
    while not r.Test():
        pass
    assert (a == world.size).all()
k = n // world.size
a = np.repeat(np.arange(world.size) + 10.0 * world.rank, k)  # a block for each rank
b, c, d = np.empty_like(a), np.empty(k), np.empty_like(a)
MPI.Request.Waitall([world.Ialltoall(a, b), world.Ireduce_scatter_block(a, c, op=MPI.SUM)])
assert (b == np.repeat(10.0 * np.arange(world.size) + world.rank, k)).all()
assert (c == world.size * world.rank + 5 * world.size * (world.size - 1)).all()
world.Iallgather(c, d).Wait()
assert (d[::k] == world.size * np.arange(world.size) + 5 * world.size * (world.size - 1)).all()
if world.rank == 0:
    print("0 errors")
