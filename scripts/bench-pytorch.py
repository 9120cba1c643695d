"""bench-pytorch.py NET BATCH ITERATIONS [RANKS [RANK RENDEZVOUS]]
bench-pytorch.py replay PROFILE SCALE ITERATIONS RANKS RANK RENDEZVOUS

Trains a net of Caffe's with PyTorch on one thread a process and prints images
per second. NET is quick (CIFAR-10 quick) or alexnet; BATCH is per process. An
iteration is forward, backward and SGD with momentum and weight decay on
images that stay in memory. Several RANKS are DistributedDataParallel processes
over gloo: all of them, or RANK alone, which meets the others at RENDEZVOUS, a
file that all see and that is not there yet. The first WARM_UP iterations (3) do
not count. See bench-pytorch.

replay has waits in place of computation, as scaffe replay has: PROFILE is a
file, such as scaffe replay --show prints. Gradients go by gloo's allreduce in the
buckets of DistributedDataParallel, of 1 and then 25 MiB times SCALE, in backward
order, each as soon as its last gradient is there; the update waits for all. What
DistributedDataParallel does besides is left out: the copies between gradients and
buckets, the division, the hooks. In the first iteration, which is warm-up, every
sum is checked. Prints, of each iteration, the ms that the slowest rank takes.
"""

import datetime
import os
import sys
import tempfile
import time

os.environ["OMP_NUM_THREADS"] = "1"
import torch
from torch import nn

WARM_UP = int(os.environ.get("WARM_UP", "3"))
TIMEOUT = datetime.timedelta(minutes=5)  # of what waits for other ranks


def pool(kind):
    return kind(kernel_size=3, stride=2, ceil_mode=True)  # Caffe rounds up


def norm():
    return nn.LocalResponseNorm(5, alpha=1e-4, beta=0.75, k=1.0)


def relu():
    return nn.ReLU(inplace=True)


def quick():
    net = nn.Sequential(
        nn.Conv2d(3, 32, 5, padding=2), pool(nn.MaxPool2d), relu(),
        nn.Conv2d(32, 32, 5, padding=2), relu(), pool(nn.AvgPool2d),
        nn.Conv2d(32, 64, 5, padding=2), relu(), pool(nn.AvgPool2d),
        nn.Flatten(), nn.Linear(1024, 64), nn.Linear(64, 10),
    )
    return net, (3, 32, 32), 145578


def alexnet():
    net = nn.Sequential(
        nn.Conv2d(3, 96, 11, stride=4), relu(), norm(), pool(nn.MaxPool2d),
        nn.Conv2d(96, 256, 5, padding=2, groups=2), relu(), norm(), pool(nn.MaxPool2d),
        nn.Conv2d(256, 384, 3, padding=1), relu(),
        nn.Conv2d(384, 384, 3, padding=1, groups=2), relu(),
        nn.Conv2d(384, 256, 3, padding=1, groups=2), relu(), pool(nn.MaxPool2d),
        nn.Flatten(), nn.Linear(9216, 4096), relu(), nn.Dropout(0.5),
        nn.Linear(4096, 4096), relu(), nn.Dropout(0.5), nn.Linear(4096, 1000),
    )
    return net, (3, 227, 227), 60965224


def train(rank, ranks, name, batch, iterations, rendezvous):
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    net, shape, parameters = {"quick": quick, "alexnet": alexnet}[name]()
    assert sum(p.numel() for p in net.parameters()) == parameters
    images, labels = torch.randn(batch, *shape), torch.zeros(batch, dtype=torch.long)
    if ranks > 1:
        import torch.distributed as dist

        dist.init_process_group("gloo", init_method="file://" + rendezvous, rank=rank, world_size=ranks, timeout=TIMEOUT)
        net = nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4, momentum=0.9, weight_decay=5e-4)
    for i in range(-WARM_UP, iterations):
        if i == 0:
            start = time.perf_counter()
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(images), labels).backward()
        optimizer.step()
    if ranks > 1:
        dist.barrier()
    if rank == 0:
        print("%.2f" % (ranks * batch * iterations / (time.perf_counter() - start)), flush=True)


EARLY = 1e-4  # a timer is as late


def until(t):
    """Waits for a point in time, without a core."""
    if t - EARLY > time.perf_counter():
        time.sleep(t - EARLY - time.perf_counter())
    while time.perf_counter() < t:
        os.sched_yield()


def profile(path):
    """Of each layer: seconds forward and backward, elements of its parameters; and the seconds of an update."""
    layers, update = [], 0.0
    with open(path) as f:
        for line in f:
            words = line.split()
            if words[:1] == ["update_ms"]:
                update = float(words[1]) / 1e3
            if words[:1] != ["layer"]:
                continue
            sizes = []
            for extents in words[5:]:
                size = 1
                for n in extents.split("x"):
                    size *= int(n)
                sizes.append(size)
            layers.append((float(words[3]) / 1e3, float(words[4]) / 1e3, sizes))
    return layers, update


def replay(path, scale, iterations, ranks, rank, rendezvous):
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + rendezvous, rank=rank, world_size=ranks, timeout=TIMEOUT)
    layers, update = profile(path)
    params, owner = [], []  # in backward order, as DistributedDataParallel has them after its first iteration
    for i in reversed(range(len(layers))):
        for size in reversed(layers[i][2]):
            params.append(torch.empty(size))
            owner.append(i)
    limits = [max(1, int(scale * n)) for n in (dist._DEFAULT_FIRST_BUCKET_BYTES, 25 << 20)]
    assigned, _ = dist._compute_bucket_assignment_by_size(params, limits)
    # A bucket leaves after the backward pass of the layer that is its first in the net.
    leaves = {}
    for indices in sorted(assigned, key=max):
        bucket = torch.full((sum(params[i].numel() for i in indices),), float(rank + 1))
        leaves.setdefault(min(owner[i] for i in indices), []).append(bucket)
    assert sum(b.numel() for at in leaves.values() for b in at) == sum(sum(sizes) for _, _, sizes in layers)
    del params
    took = []
    dist.barrier()
    begun = time.perf_counter()
    for iteration in range(-WARM_UP, iterations):
        at, works = begun, []
        for forward, _, _ in layers:
            at += forward
        until(at)
        for i in reversed(range(len(layers))):
            at += layers[i][1]
            if i in leaves:
                until(at)
                works += [dist.all_reduce(bucket, async_op=True) for bucket in leaves[i]]
        until(at)
        for work in works:
            work.wait()
        until(max(at, time.perf_counter()) + update)
        end = time.perf_counter()
        if iteration >= 0:
            took.append(end - begun)
        elif iteration == -WARM_UP:
            for bucket in (b for at in leaves.values() for b in at):
                assert torch.all(bucket == ranks * (ranks + 1) / 2), "a sum is wrong"
                bucket.zero_()
            dist.barrier()
            end = time.perf_counter()
        begun = end
    slowest = torch.tensor(took, dtype=torch.float64)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    dist.barrier()
    if rank == 0:
        print("# %d buckets" % sum(len(at) for at in leaves.values()), file=sys.stderr)
        for t in slowest.tolist():
            print("%.3f" % (1e3 * t), flush=True)


def main():
    if sys.argv[1] == "replay":
        path, scale, iterations, ranks, rank, rendezvous = sys.argv[2:]
        replay(path, float(scale), int(iterations), int(ranks), int(rank), rendezvous)
        return
    name, batch, iterations = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    ranks = int(sys.argv[4]) if len(sys.argv) > 4 else 1
    if ranks == 1:
        train(0, 1, name, batch, iterations, "")
        return
    if len(sys.argv) > 6:
        train(int(sys.argv[5]), ranks, name, batch, iterations, sys.argv[6])
        return
    with tempfile.TemporaryDirectory() as d:
        torch.multiprocessing.spawn(train, (ranks, name, batch, iterations, d + "/rendezvous"), nprocs=ranks)


if __name__ == "__main__":
    main()
