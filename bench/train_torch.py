"""The networks of train.py in PyTorch, by the interpreter that has it.

    train_torch.py export NAME BATCH SAMPLES              writes m.onnx, as PyTorch exports it, and data.npz
    train_torch.py eager NAME BATCH EPOCHS OPTIMIZER      trains on data.npz: a line of JSON an epoch, its processor seconds; "forward" is
                                                          that of forward passes alone
    train_torch.py compiled NAME BATCH EPOCHS OPTIMIZER   the same by torch.compile
    train_torch.py memory NAME BATCH OPTIMIZER            the most bytes that tensors of a step take, beside parameters and states
    train_torch.py about                                  the version, whose matrix products it calls, whether it compiles"""

import json
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "train"))
from parity_reference import Block  # noqa: E402

LETTERS, TOKENS = 96, 256


class GPT(nn.Module):
    """Characters -> scores of the next one."""

    def __init__(self, width, layers, heads):
        super().__init__()
        self.table, self.place = nn.Embedding(LETTERS, width), nn.Parameter(torch.randn(TOKENS, width) * 0.02)
        self.blocks = nn.Sequential(*(Block(width, heads, True) for _ in range(layers)))
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, LETTERS)

    def forward(self, x):
        return self.out(self.norm(self.blocks(self.table(x) + self.place)))


class ViT(nn.Module):
    """Pictures, in squares of `patch` pixels -> scores of classes, from a token of its own."""

    def __init__(self, size, patch, width, layers, heads, classes):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        self.place = nn.Parameter(torch.randn(1, (size // patch) ** 2 + 1, width) * 0.02)
        self.blocks = nn.Sequential(*(Block(width, heads, False) for _ in range(layers)))
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.place
        return self.out(self.norm(self.blocks(x))[:, 0])


class LastState(nn.Module):
    def __init__(self, taken, width):
        super().__init__()
        self.cells = nn.LSTM(taken, width, batch_first=True)

    def forward(self, x):
        return self.cells(x)[1][0][0]


class Tokens(nn.Module):
    """A block's rows, with scores of classes of their mean."""

    def __init__(self, width, heads, layers):
        super().__init__()
        self.blocks, self.out = nn.Sequential(*(Block(width, heads, True) for _ in range(layers))), nn.Linear(width, 10)

    def forward(self, x):
        return self.out(self.blocks(x).mean(1))


def cnn():
    """tinygrad's MNIST example."""
    return nn.Sequential(nn.Conv2d(1, 32, 5), nn.ReLU(), nn.Conv2d(32, 32, 5), nn.ReLU(), nn.BatchNorm2d(32), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3), nn.ReLU(),
                         nn.Conv2d(64, 64, 3), nn.ReLU(), nn.BatchNorm2d(64), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(576, 10))


class Basic(nn.Module):
    """ResNet's basic block."""

    def __init__(self, taken, made, stride):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(taken, made, 3, stride, 1, bias=False), nn.BatchNorm2d(made), nn.ReLU(),
                                  nn.Conv2d(made, made, 3, 1, 1, bias=False), nn.BatchNorm2d(made))
        self.past = nn.Identity() if stride == 1 else nn.Sequential(nn.Conv2d(taken, made, 1, stride, bias=False), nn.BatchNorm2d(made))

    def forward(self, x):
        return F.relu(self.body(x) + self.past(x))


def resnet18():
    blocks = [Basic(max(64, made // 2) if not i else made, made, 2 if made > 64 and not i else 1) for made in (64, 128, 256, 512) for i in range(2)]
    return nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(512, 1000))


# name: the network, a sample's shape, None for characters; classes
NETS = {"cnn": (cnn, (1, 28, 28), 10), "lstm": (lambda: nn.Sequential(LastState(64, 128), nn.Linear(128, 10)), (32, 64), 10),
        "transformer": (lambda: Tokens(128, 4, 2), (128, 128), 10), "resnet18": (resnet18, (3, 224, 224), 1000),
        "vit": (lambda: ViT(224, 16, 192, 12, 3, 1000), (3, 224, 224), 1000), "gpt": (lambda: GPT(384, 6, 6), None, LETTERS)}
OPTIMIZERS = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": lambda p: torch.optim.SGD(p, lr=0.01)}


def export(name, batch, samples):
    make, shape, classes = NETS[name]
    net = make()
    x = torch.randn(samples, *shape) if shape else torch.randint(0, LETTERS, (samples, TOKENS))
    target = torch.randint(0, classes, (samples,) if shape else (samples, TOKENS))
    np.savez("data.npz", x=x.numpy(), target=target.numpy())
    torch.onnx.export(net, x[:batch], "m.onnx", input_names=["x"], output_names=["y"], dynamic_axes={"x": {0: "n"}, "y": {0: "n"}}, opset_version=17,
                      do_constant_folding=False, training=torch.onnx.TrainingMode.TRAINING)


def step_of(run, optimizer, x, y):
    optimizer.zero_grad(set_to_none=True)
    start = time.process_time()
    loss = F.cross_entropy(run(x).flatten(0, -2), y.flatten())
    forward = time.process_time() - start
    loss.backward()
    optimizer.step()
    return forward


def training(name, optimizer):
    data = np.load("data.npz")
    net = NETS[name][0]()
    return torch.tensor(data["x"]), torch.tensor(data["target"]).long(), net, OPTIMIZERS[optimizer](net.parameters())


def timed(name, batch, epochs, optimizer, compiled):
    x, y, net, by = training(name, optimizer)
    run = torch.compile(net) if compiled else net
    for _ in range(epochs):
        start = time.process_time()
        forward = sum(step_of(run, by, x[i:i + batch], y[i:i + batch]) for i in range(0, len(x), batch))
        print(json.dumps({"seconds": time.process_time() - start, "forward": forward}), flush=True)


def memory(name, batch, optimizer):
    x, y, net, by = training(name, optimizer)
    step_of(net, by, x[:batch], y[:batch])              # which makes the optimizer's states
    by.zero_grad(set_to_none=True)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        step_of(net, by, x[:batch], y[:batch])
    live = most = 0
    for event in sorted((e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"), key=lambda e: e.start_us()):
        live += event.nbytes()
        most = max(most, live)
    print(json.dumps({"bytes": most}))


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    warnings.simplefilter("ignore")
    do, *rest = sys.argv[1:]
    if do == "export":
        said, sys.stdout = sys.stdout, sys.stderr       # the exporter talks
        export(rest[0], *map(int, rest[1:]))
        sys.stdout = said
    elif do == "memory":
        memory(rest[0], int(rest[1]), rest[2])
    elif do in ("eager", "compiled"):
        timed(rest[0], int(rest[1]), int(rest[2]), rest[3], do == "compiled")
    else:
        blas = [line.split()[-1] for line in open("/proc/self/maps") if "blas" in line.lower()]
        print(json.dumps({"version": torch.__version__, "blas": sorted(set(blas)), "compiles": hasattr(torch, "compile")}))


main()
