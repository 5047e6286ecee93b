"""Training steps of tgc train and of PyTorch (eager), one thread: processor time of a step and the geometric mean of their ratio.

    python bench/train.py [--build build] [--torch /usr/bin/python3] [--models cnn,lstm,transformer] [--optimizer adam] [--rounds 3] [--json FILE]

The networks: tinygrad's MNIST CNN (batch 64, batch norms by each batch's statistics), an LSTM over 32 steps and a transformer of two blocks with a
causal mask (batch 8, 128 tokens), all with cross entropy. Both contenders get the same shapes, and numbers drawn alike. They run in turns, each
in a process of its own, and the least time of an epoch counts. Processor time, not the clock's: other programs on the machine disturb it less.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

STEPS, EPOCHS = 8, 5                 # of an epoch, of a process


class Text:
    """A .tg, line by line."""

    def __init__(self, *inputs):
        self.lines = ["tg 1", *inputs]

    def param(self, name, *shape):
        init = "zeros()" if len(shape) == 1 else f"kaiming_uniform(seed={len(self.lines)})"
        self.lines.append(f"param %{name} : f32{list(shape)} = {init}")
        return f"%{name}"

    def scale(self, name, n):
        self.lines.append(f"param %{name} : f32[{n}] = ones()")
        return f"%{name}"

    def put(self, name, text):
        self.lines.append(f"%{name} = {text}")
        return f"%{name}"

    def end(self, y):
        return "\n".join([*self.lines, f"output {y}", ""])


def batch_norm(t, x, name, channels):
    def along(value):
        return f"reduce_mean({value}) {{axes=[0, 2, 3], keep=true}}"
    d = t.put(f"{name}_d", f"sub({x}, {t.put(f'{name}_m', along(x))})")
    var = t.put(f"{name}_v", along(t.put(f"{name}_q", f"mul({d}, {d})")))
    root = t.put(f"{name}_s", f"sqrt({t.put(f'{name}_e', f'add({var}, 1e-5)')})")
    n = t.put(f"{name}_n", f"div({d}, {root})")
    scale = t.put(f"{name}_g4", f"reshape({t.scale(f'{name}_g', channels)}) {{shape=[1, {channels}, 1, 1]}}")
    shift = t.put(f"{name}_b4", f"reshape({t.param(f'{name}_b', channels)}) {{shape=[1, {channels}, 1, 1]}}")
    return t.put(name, f"add({t.put(f'{name}_w', f'mul({n}, {scale})')}, {shift})")


def conv(t, x, name, taken, made, k):
    y = t.put(f"{name}_c", f"conv2d({x}, {t.param(f'{name}_w', made, taken, k, k)}, {t.param(f'{name}_b', made)})")
    return t.put(name, f"relu({y})")


def linear(t, x, name, taken, made):
    return t.put(name, f"linear({x}, {t.param(f'{name}_w', made, taken)}, {t.param(f'{name}_b', made)})")


def cnn():
    t = Text("input %x : f32[N<=64, 1, 28, 28]")
    x = batch_norm(t, conv(t, conv(t, "%x", "a", 1, 32, 5), "b", 32, 32, 5), "c", 32)
    x = t.put("d", f"max_pool2d({x}) {{kernel=2}}")
    x = batch_norm(t, conv(t, conv(t, x, "e", 32, 64, 3), "f", 64, 64, 3), "h", 64)
    x = t.put("j", f"max_pool2d({x}) {{kernel=2}}")
    x = t.put("k", f"flatten({x}) {{axis=1}}")
    return t.end(linear(t, x, "l", 576, 10))


def lstm():
    t = Text("input %x : f32[N<=64, 32, 64]")
    w, r, b = t.param("w", 1, 512, 64), t.param("r", 1, 512, 128), t.param("b", 1, 1024)
    t.lines.append(f"%y, %h, %c = lstm(%x, {w}, {r}, {b}) {{batch_first=true}}")
    return t.end(linear(t, t.put("last", "reshape(%h) {shape=[N, 128]}"), "l", 128, 10))


def transformer(d=128, heads=4, tokens=128):
    t = Text(f"input %x : f32[N<=8, {tokens}, {d}]")
    x = "%x"
    for i in range(2):
        def norm(x, name):
            return t.put(name, f"layer_norm({x}, {t.scale(f'{name}_g', d)}, {t.param(f'{name}_b', d)})")
        h = norm(x, f"n{i}")
        parts = []
        for part in "qkv":
            p = t.put(f"{part}{i}r", f"reshape({linear(t, h, f'{part}{i}', d, d)}) {{shape=[N, {tokens}, {heads}, {d // heads}]}}")
            parts.append(t.put(f"{part}{i}t", f"transpose({p}) {{perm=[0, 2, 1, 3]}}"))
        a = t.put(f"a{i}", f"attention({', '.join(parts)}) {{causal=true}}")
        a = t.put(f"a{i}t", f"transpose({a}) {{perm=[0, 2, 1, 3]}}")
        a = t.put(f"a{i}r", f"reshape({a}) {{shape=[N, {tokens}, {d}]}}")
        x = t.put(f"x{i}", f"add({x}, {linear(t, a, f'o{i}', d, d)})")
        f = t.put(f"f{i}g", f"gelu({linear(t, norm(x, f'm{i}'), f'f{i}', d, 4 * d)})")
        x = t.put(f"y{i}", f"add({x}, {linear(t, f, f'p{i}', 4 * d, d)})")
    return t.end(linear(t, t.put("mean", f"reduce_mean({x}) {{axes=[1]}}"), "l", d, 10))


# name: text, batch, shape of a sample
MODELS = {"cnn": (cnn, 64, (1, 28, 28)), "lstm": (lstm, 64, (32, 64)), "transformer": (transformer, 8, (128, 128))}

TORCH = '''
import sys, time
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
torch.set_num_threads(1)
torch.manual_seed(0)

class Last(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.LSTM(64, 128, batch_first=True)
    def forward(self, x):
        return self.l(x)[1][0][0]

class Block(nn.Module):
    def __init__(self, d=128, heads=4):
        super().__init__()
        self.n, self.m, self.heads = nn.LayerNorm(d), nn.LayerNorm(d), heads
        self.q, self.k, self.v, self.o = (nn.Linear(d, d) for _ in range(4))
        self.f, self.p = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
        self.register_buffer("mask", torch.full((128, 128), float("-inf")).triu(1))
    def forward(self, x):
        h = self.n(x)
        q, k, v = (p(h).view(*x.shape[:2], self.heads, -1).transpose(1, 2) for p in (self.q, self.k, self.v))
        a = torch.softmax(q @ k.transpose(2, 3) / q.shape[-1] ** 0.5 + self.mask, -1) @ v
        x = x + self.o(a.transpose(1, 2).reshape(x.shape))
        return x + self.p(F.gelu(self.f(self.m(x))))

class Mean(nn.Module):
    def forward(self, x):
        return x.mean(1)

NETS = {
    "cnn": lambda: nn.Sequential(nn.Conv2d(1, 32, 5), nn.ReLU(), nn.Conv2d(32, 32, 5), nn.ReLU(), nn.BatchNorm2d(32), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3),
                                 nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU(), nn.BatchNorm2d(64), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(576, 10)),
    "lstm": lambda: nn.Sequential(Last(), nn.Linear(128, 10)),
    "transformer": lambda: nn.Sequential(Block(), Block(), Mean(), nn.Linear(128, 10)),
}
OPTIMIZERS = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": lambda p: torch.optim.SGD(p, lr=0.01)}
name, batch, epochs, optimizer = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
data = np.load("data.npz")
x, y = torch.tensor(data["x"]), torch.tensor(data["target"]).long()
net = NETS[name]()
step = OPTIMIZERS[optimizer](net.parameters())
for epoch in range(epochs):
    start = time.process_time()
    for i in range(0, len(x), batch):
        step.zero_grad()
        F.cross_entropy(net(x[i:i + batch]), y[i:i + batch]).backward()
        step.step()
    print(time.process_time() - start, flush=True)
'''


def processor_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def of_tgc(tgc, folder, batch, optimizer):
    """Seconds of the least epoch: the process has spent so much more at a line of its log than at the one before."""
    command = [tgc, "train", "m.tg", "--data=data.npz", "--loss=cross_entropy", f"--optimizer={optimizer}", f"--batch={batch}", f"--epochs={EPOCHS}", "--seed=1",
               "--target=llvm", "--cpu=native", "--machine=host", "-o", "out.safetensors"]
    child = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    at, said = [], []
    for line in child.stderr:
        said.append(line)
        if " s" in line and child.poll() is None:
            at.append(processor_seconds(child.pid))
    if child.wait() or len(at) < 3:
        raise SystemExit(f"{' '.join(map(str, command))}\n{''.join(said)}")
    return min(b - a for a, b in zip(at, at[1:]))


def of_torch(python, folder, name, batch, optimizer):
    done = subprocess.run([python, "-c", TORCH, name, str(batch), str(EPOCHS), optimizer], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return min(map(float, done.stdout.split()))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--torch", default=sys.executable, help="a Python that has PyTorch")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--optimizer", default="adam", choices=("adam", "adamw", "sgd"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    tgc, random, rows = Path(options.build).resolve() / "cli/tgc", np.random.default_rng(1), []
    for name in options.models.split(","):
        text, batch, shape = MODELS[name]
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "m.tg").write_text(text())
            np.savez(Path(folder) / "data.npz", x=random.standard_normal((STEPS * batch, *shape)).astype(np.float32), target=random.integers(0, 10, STEPS * batch))
            least = {}
            for _ in range(options.rounds):
                for who, seconds in (("tgc", of_tgc(tgc, folder, batch, options.optimizer)),
                                     ("torch", of_torch(options.torch, folder, name, batch, options.optimizer))):
                    least[who] = min(least.get(who, math.inf), seconds)
        rows.append({"model": name, "batch": batch, **{f"{who}_ms": 1e3 * seconds / STEPS for who, seconds in least.items()}, "ratio": least["torch"] / least["tgc"]})
        print(f"{name:12} batch {batch:3}  tgc {rows[-1]['tgc_ms']:8.2f} ms a step  PyTorch {rows[-1]['torch_ms']:8.2f}  {rows[-1]['ratio']:.2f} of its speed", flush=True)
    mean = math.exp(sum(math.log(row["ratio"]) for row in rows) / len(rows))
    print(f"geometric mean: {mean:.2f} of PyTorch's speed")
    if options.json:
        options.json.write_text(json.dumps({"rows": rows, "geometric_mean": mean}, indent=1))


if __name__ == "__main__":
    main()
