"""bench-pytorch.py NET BATCH ITERATIONS [RANKS [RANK RENDEZVOUS]]

Trains a net of Caffe's with PyTorch on one thread a process and prints images
per second. NET is quick (CIFAR-10 quick) or alexnet; BATCH is per process. An
iteration is forward, backward and SGD with momentum and weight decay on
images that stay in memory. Several RANKS are DistributedDataParallel processes
over gloo: all of them, or RANK alone, which meets the others at RENDEZVOUS, a
file that all see and that is not there yet. The first WARM_UP iterations (3) do
not count. See bench-pytorch.
"""

import os
import sys
import tempfile
import time

os.environ["OMP_NUM_THREADS"] = "1"
import torch
from torch import nn

WARM_UP = int(os.environ.get("WARM_UP", "3"))


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

        dist.init_process_group("gloo", init_method="file://" + rendezvous, rank=rank, world_size=ranks)
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


def main():
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
