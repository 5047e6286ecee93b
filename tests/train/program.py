"""Programs of tgc --train for the suites of training: emitted, built with driver.c, and what they have done."""

import shutil
from pathlib import Path

import numpy as np

import tgc as T
from networks import NETWORKS, samples

HERE = Path(__file__).resolve().parent
STEPS = 100
RATE = 0.005


def emit(tgc, folder, model, *words, status=0, out="net.c"):
    return T.must(T.run([tgc, model, "-o", out, "--train", *words], cwd=folder, timeout=300), status)


def build(folder, batch, row, columns, targets=1, target="int64_t", runs=1, compiler="gcc", flags=("-O2",), exe="driver",
          rate=RATE, program="net.c"):
    shutil.copy(HERE / "driver.c", folder / "driver.c")
    defines = {"BATCH": batch, "ROW": row, "COLUMNS": columns, "TARGETS": targets, "TARGET": target, "RUNS_OF_A_STEP": runs,
               "RATE": round(rate * 10000)}
    T.must(T.run([compiler, *T.WARNINGS, *flags, "driver.c", program, "-o", exe, *(f"-D{k}={v}" for k, v in defines.items()),
                  "-lm", "-lpthread"], cwd=folder, timeout=300))


def put(folder, x, target, order="="):
    x.astype(np.float32).astype(f"{order}f4").tofile(folder / "x.bin")
    target.astype(target.dtype.newbyteorder(order)).tofile(folder / "target.bin")


class Made:
    """What a program has done: losses, what it evaluated, its parameters' bytes, the outputs. runner: words that run it."""

    def __init__(self, folder, mode="train", steps=STEPS, threads=0, exe="driver", runner=(), env=None):
        done = T.must(T.run([*runner, folder / exe, mode, steps, threads], cwd=folder, env=env, timeout=600))
        lines = done.out.decode().splitlines()
        self.losses = [float.fromhex(line) for line in lines[:-1]]
        self.loss, self.correct = map(float.fromhex, lines[-1].split()[1:])
        self.params = (folder / "params.bin").read_bytes()
        self.y = np.fromfile(folder / "y.bin", np.float32)


def draw(network, folder, order="="):
    """A model, and what trains it: 24 samples."""
    make, shape = NETWORKS[network]
    w = make(folder)
    samples(folder, shape, "cross_entropy")
    data = np.load(folder / "d.npz")
    put(folder, data["x"], data["target"], order)
    return w, int(np.prod(shape))
