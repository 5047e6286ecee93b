"""Bulk copies: boxes of tensors that an engine copies to a block's memory (sm_90 on), by opts, without a device.

A product's program runs on the emulated device, whose copies arrive when their barrier's phase is waited for; PTX is assembled for sm_90a and
sm_120. Kernels that are broken are found: one that does not wait, waits for another phase, expects other bytes, or overwrites what is read."""

import gc
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "lib"), str(HERE.parent / "exec")]

import numpy as np

import cuda
import emulator
import tgc as T
from cuda_test import of_text
from library import Library
from suite import Suite, expect

OLD_DRIVER = 21
DEVICES = ("sm_90a", "sm_120")
suite = Suite("bulk", jobs=1)      # the device is one of the process

GEMM = """tg 1
input %a : f16[{m}, {k}]
input %b : f16[{k}, {n}]
%c = matmul(%a, %b)
output %c as "c"
"""
# Blocks of 64 x 32, two waves of rows and four of columns, in steps of 64.
TILE = """cover 0 axis=0 n=64
divide 0 axis=1 n=32
divide 0 axis=2 n=16
cover 0 axis=4 n=32
divide 0 axis=5 n=8
grid 0 axis=0
grid 0 axis=4
item 0 axis=1
item 0 axis=5
lanes 0 axis=2 n=2 kind=lane as=row
cover 0.sum0 axis=0 n={step}
divide 0.sum0 axis=1 n=16
matrix 0.sum0 axis=2 to=5 by=m16n8k16_f16
local 0.sum0 axis=0 n=0 to=0 operand=0
local 0.sum0 axis=0 n=0 to=0 operand=1
"""
SIZES = [(200, 136, 152), (65, 40, 264), (130, 72, 136), (128, 64, 256)]


def tgtool(folder, opts, model, device):
    (folder / "net.opts").write_text(opts)
    (folder / "net.tg").write_text(model)
    return subprocess.run([Path(suite.options.build).resolve() / "tests/ir/tgtool", "-d", device, "-s", folder, "cuda", folder / "net.opts", folder / "net.tg"],
                          capture_output=True, text=True, timeout=120)


def emit(folder, m, n, k, parts, device="sm_90a", step=64):
    T.scratch(folder)
    cuda.need_nvrtc()
    done = tgtool(folder, TILE.format(step=step) + f"pipeline 0.sum0 n={parts} how=bulk\n", GEMM.format(m=m, n=n, k=k), device)
    expect(done.returncode == 0, done.stderr)
    return (folder / "net.cu").read_text()


def build(folder):
    T.must(T.run(["gcc", "-O0", "-shared", "-fPIC", "net.c", "-o", "net.so", "-ldl"], cwd=folder))


def product(folder, m, n, k):
    random = np.random.default_rng(1)
    a, b = random.standard_normal((m, k)).astype(np.float16), random.standard_normal((k, n)).astype(np.float16)
    library = Library(folder / "net.so", "net")
    got = library.run({"a": a, "b": b})["c"].astype(np.float32)
    expect(np.allclose(got, a.astype(np.float32) @ b.astype(np.float32), rtol=2e-3, atol=2e-2), "another product")


def gemm(device, folder, m, n, k, parts):
    text = emit(folder, m, n, k, parts)
    expect("bulk_copy(" in text and "mbar_wait(" in text, "no bulk copies")
    build(folder)
    cuda.text_of(folder / "net.cu")
    with device.watch("arch=90"):
        product(folder, m, n, k)
        gc.collect()


def main():
    suite.parse()
    build_folder = suite.options.build
    scratch = T.scratch(Path(build_folder).resolve() / "test-scratch" / "bulk")
    device = emulator.Device(build_folder, scratch, emulator.cuda_library)
    for number, (m, n, k) in enumerate(SIZES):
        suite.add(f"product: {m} x {n} x {k}", gemm, device, scratch / f"gemm{number}", m, n, k, 2 + number % 2)
    suite.main()


if __name__ == "__main__":
    main()
