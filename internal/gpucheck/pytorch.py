"""pytorch.py probe
pytorch.py NET BATCH ITERATIONS

Trains a net of Caffe's with PyTorch on the first GPU: forward, backward and SGD with momentum and weight decay, in f32
without TF32, on one batch that stays on the GPU. NET is alexnet or googlenet, layer by layer as scaffe's files have them.
Prints one JSON object: the images per second of the median iteration after WARM_UP. With probe it says what there is, or
in "missing" what is not.
"""

import json
import statistics
import sys
import time

WARM_UP = 5


def probe():
    try:
        import torch
    except ImportError as e:
        return {"missing": str(e)}
    if not torch.cuda.is_available():
        return {"missing": "PyTorch %s finds no GPU" % torch.__version__}
    if not torch.backends.cudnn.is_available():
        return {"missing": "PyTorch %s has no cuDNN" % torch.__version__}
    return {"torch": torch.__version__, "cuda": torch.version.cuda, "cudnn": str(torch.backends.cudnn.version())}


def alexnet(nn):
    def norm():
        return nn.LocalResponseNorm(5, alpha=5e-4, beta=0.75, k=2.0)

    def pool():
        return nn.MaxPool2d(3, 2, ceil_mode=True)  # Caffe rounds up

    def relu():
        return nn.ReLU(inplace=True)

    net = nn.Sequential(
        nn.Conv2d(3, 96, 11, stride=4), relu(), norm(), pool(),
        nn.Conv2d(96, 256, 5, padding=2, groups=2), relu(), norm(), pool(),
        nn.Conv2d(256, 384, 3, padding=1), relu(),
        nn.Conv2d(384, 384, 3, padding=1, groups=2), relu(),
        nn.Conv2d(384, 256, 3, padding=1, groups=2), relu(), pool(),
        nn.Flatten(), nn.Linear(9216, 4096), relu(), nn.Dropout(0.5),
        nn.Linear(4096, 4096), relu(), nn.Dropout(0.5), nn.Linear(4096, 1000),
    )
    return net, 227, 60965224


def googlenet(nn):
    import torch

    def conv(into, out, size, stride=1, pad=0):
        return [nn.Conv2d(into, out, size, stride=stride, padding=pad), nn.ReLU(inplace=True)]

    def norm():
        return nn.LocalResponseNorm(5, alpha=5e-4, beta=0.75, k=2.0)

    def pool(stride=2, pad=0):
        return nn.MaxPool2d(3, stride, padding=pad, ceil_mode=True)

    class Inception(nn.Module):
        def __init__(self, into, one, reduce3, three, reduce5, five, project):
            super().__init__()
            self.paths = nn.ModuleList([
                nn.Sequential(*conv(into, one, 1)),
                nn.Sequential(*conv(into, reduce3, 1), *conv(reduce3, three, 3, pad=1)),
                nn.Sequential(*conv(into, reduce5, 1), *conv(reduce5, five, 5, pad=2)),
                nn.Sequential(pool(1, 1), *conv(into, project, 1)),
            ])

        def forward(self, x):
            return torch.cat([path(x) for path in self.paths], 1)

    def auxiliary(into):
        return nn.Sequential(nn.AvgPool2d(5, 3, ceil_mode=True), *conv(into, 128, 1), nn.Flatten(),
                             nn.Linear(2048, 1024), nn.ReLU(inplace=True), nn.Dropout(0.7), nn.Linear(1024, 1000))

    class GoogLeNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.begin = nn.Sequential(
                *conv(3, 64, 7, 2, 3), pool(), norm(),
                *conv(64, 64, 1), *conv(64, 192, 3, pad=1), norm(), pool(),
                Inception(192, 64, 96, 128, 16, 32, 32), Inception(256, 128, 128, 192, 32, 96, 64), pool(),
                Inception(480, 192, 96, 208, 16, 48, 64))
            self.middle = nn.Sequential(
                Inception(512, 160, 112, 224, 24, 64, 64), Inception(512, 128, 128, 256, 24, 64, 64),
                Inception(512, 112, 144, 288, 32, 64, 64))
            self.end = nn.Sequential(
                Inception(528, 256, 160, 320, 32, 128, 128), pool(),
                Inception(832, 256, 160, 320, 32, 128, 128), Inception(832, 384, 192, 384, 48, 128, 128),
                nn.AvgPool2d(7), nn.Flatten(), nn.Dropout(0.4), nn.Linear(1024, 1000))
            self.aux1, self.aux2 = auxiliary(512), auxiliary(528)

        def forward(self, x):
            x = self.begin(x)
            y = self.middle(x)
            return self.end(y), self.aux1(x), self.aux2(y)

    return GoogLeNet(), 224, 13378280


WEIGHTS = (1, 0.3, 0.3)  # of the losses


def train(name, batch, iterations, device="cuda:0"):
    import torch
    from torch import nn

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True  # it takes the algorithms that are fastest here
    net, side, parameters = {"alexnet": alexnet, "googlenet": googlenet}[name](nn)
    have = sum(p.numel() for p in net.parameters())
    assert have == parameters, "%d parameters, not %d" % (have, parameters)
    net = net.to(device)
    images = torch.ones(batch, 3, side, side, device=device)
    labels = torch.zeros(batch, dtype=torch.long, device=device)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9, weight_decay=5e-4)
    wait = torch.cuda.synchronize if device != "cpu" else lambda: None
    took = []
    for _ in range(WARM_UP + iterations):
        wait()
        begin = time.perf_counter()
        optimizer.zero_grad()
        out = net(images)
        out = out if isinstance(out, tuple) else (out,)
        sum(w * nn.functional.cross_entropy(o, labels) for w, o in zip(WEIGHTS, out)).backward()
        optimizer.step()
        wait()
        took.append(time.perf_counter() - begin)
    return {"images_per_second": batch / statistics.median(took[WARM_UP:])}


if __name__ == "__main__":
    print(json.dumps(probe() if sys.argv[1] == "probe" else train(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
