"""What changes the order of axes (passes/kernel/choose_tile.c, may_transpose; passes/vector/transpose_store.c):
Transpose of all kinds of sizes, alone and beside elementwise work, for each instruction set the
same as NumPy's; and that vectors do it.
"""

import platform
import re
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "lib")]

import numpy as np
import onnx

import graphs as G
import tgc as T
from suite import Skip, Suite, expect

suite = Suite("order")
OPTIONS = suite.parse()
TGC = T.find_tgc(OPTIONS.build).resolve()
SCRATCH = T.scratch(Path(OPTIONS.build).resolve() / "test-scratch" / "order")
COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"

# shape, permutation: whole tiles, rows and lanes left over, fewer rows than a vector has lanes,
# fewer than are worth it, an axis between the two, one outside, three dimensions turned around
SHAPES = [
    ([32, 48], [1, 0]), ([64, 1], [1, 0]), ([17, 35], [1, 0]), ([35, 17], [1, 0]),
    ([5, 100], [1, 0]), ([100, 5], [1, 0]), ([4, 16], [1, 0]), ([7, 7], [1, 0]),
    ([3, 50], [1, 0]), ([50, 3], [1, 0]), ([2, 20, 9, 5], [0, 2, 3, 1]),
    ([2, 9, 5, 20], [0, 3, 1, 2]), ([2, 13, 3, 21], [0, 2, 3, 1]), ([11, 6, 13], [2, 1, 0]),
    ([3, 16, 33], [2, 0, 1]), ([1, 1024, 4], [0, 2, 1]), ([6, 256], [1, 0]),
]


def model_of(beside):
    """beside: a scale along the old innermost axis, an addition along the new one, an activation."""
    inputs, nodes, weights, feeds, want = [], [], [], {}, {}
    random = np.random.default_rng(1)
    for k, (shape, perm) in enumerate(SHAPES):
        x = random.standard_normal(shape).astype(np.float32)
        feeds[f"x{k}"] = x
        inputs.append(G.value(f"x{k}", shape))
        y, name = np.transpose(x, perm), f"x{k}"
        if beside:
            scale = random.standard_normal(shape[-1]).astype(np.float32)
            shift = random.standard_normal(y.shape[-1]).astype(np.float32)
            weights += [G.weight(f"s{k}", scale), G.weight(f"b{k}", shift)]
            nodes += [G.node("Mul", [name, f"s{k}"], [f"m{k}"]),
                      G.node("Transpose", [f"m{k}"], [f"t{k}"], perm=perm),
                      G.node("Add", [f"t{k}", f"b{k}"], [f"a{k}"]),
                      G.node("Relu", [f"a{k}"], [f"y{k}"])]
            y = np.maximum(np.transpose(x * scale, perm) + shift, 0)
        else:
            nodes.append(G.node("Transpose", [name], [f"y{k}"], perm=perm))
        want[f"y{k}"] = y
    return G.model(nodes, inputs, [G.value(n, list(a.shape)) for n, a in want.items()], weights,
                   opset=16), feeds, want


def answers(beside, cpu, *options):
    flags = Path("/proc/cpuinfo").read_text()
    if cpu.startswith("avx") and (platform.machine() != "x86_64" or
                                  cpu.replace("avx512", "avx512f") not in flags):
        raise Skip(f"this machine has no {cpu}")
    if cpu == "neon" and not (shutil.which(COMPILER) and shutil.which(EMULATOR)):
        raise Skip(f"{COMPILER} or {EMULATOR} is not there")
    model, feeds, want = model_of(beside)
    folder = T.scratch(SCRATCH / "-".join(["beside" if beside else "alone", cpu, *options]))
    onnx.save(model, folder / "model.onnx")
    T.emit(TGC, folder / "model.onnx", folder / "net.c", f"--cpu={cpu}", *options)
    if cpu == "neon":
        T.build(folder / "net.c", folder / "net", COMPILER, (T.LEVEL, "-static"), main_by=TGC)
        program = T.Program(folder / "net", list(want), [EMULATOR])
    else:
        T.build(folder / "net.c", folder / "net", main_by=TGC)
        program = T.Program(folder / "net", list(want))
    found = program.run(list(feeds.values()))
    for (shape, perm), (name, y) in zip(SHAPES, want.items()):
        # a product that is added may be rounded once
        same = np.allclose(found[name], y, rtol=1e-5, atol=1e-6) if beside \
            else np.array_equal(found[name], y)
        expect(same, f"{shape} by {perm} is wrong by {np.abs(found[name] - y).max():.3g}")
    text = (folder / "net.c").read_text()
    turned = len(re.findall(r"^IN_\w+ static void \w+\((?:(?!^}).)*?\bevens_f32", text,
                            re.M | re.S))
    expect(cpu == "generic" or "-O0" in options or turned >= 10,
           f"{turned} kernels turn vectors around, at least 10 are expected")


for isa in ("generic", "avx2", "avx512", "neon"):
    suite.add(f"transposed, alone, by {isa}", answers, False, isa)
    suite.add(f"transposed, beside other work, by {isa}", answers, True, isa, slow=isa == "generic")
suite.add("transposed, by three threads", answers, True, "avx2", "--threads=3")

suite.main()
