"""Matrix products by seven parts (passes/strassen.c): how much they err, and which are taken.

docs/winograd.md states the bounds. The reference is NumPy's, in double precision; which products were
taken is read from DEBUG=2.
"""

import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "lib")]

import numpy as np
import onnx

import graphs as G
import tgc as T
from suite import Suite, expect

suite = Suite("products")
OPTIONS = suite.parse()
TGC = T.find_tgc(OPTIONS.build).resolve()
SCRATCH = T.scratch(Path(OPTIONS.build).resolve() / "test-scratch" / "products")

# Of the largest output, and the root mean square error by that of the outputs.
LARGEST, MEAN = 2e-6, 1e-6


def run(name, nodes, x, want, weights, *options):
    """Compares y with `want`; what was weighed, and whether it was taken."""
    folder = T.scratch(SCRATCH / name)
    onnx.save(G.model(nodes, [G.value("x", list(x.shape))], [G.value("y", list(want.shape))], weights),
              folder / "model.onnx")
    done = T.must(T.run([TGC, folder / "model.onnx", "-o", folder / "net.c", *options],
                        env={"DEBUG": "2"}))
    T.build(folder / "net.c", folder / "net")
    error = np.abs(T.Program(folder / "net", ["y"]).run([x])["y"] - want)
    largest = error.max() / np.abs(want).max()
    mean = np.sqrt((error ** 2).mean() / (want ** 2).mean())
    expect(largest <= LARGEST and mean <= MEAN,
           f"errors of {largest:.2g} of the largest output, {mean:.2g} in the mean")
    return re.findall(r"^strassen: .* (taken|left)$", done.err, re.M)


def draw(random, *shape, by=1.0):
    return (random.standard_normal(shape) * by).astype(np.float32)


def product(shape, columns, taken, *options, transposed=False):
    """x @ w + b, of a layer as PyTorch exports it, or with the weight transposed."""
    random = np.random.default_rng(shape[-1] + columns)
    x, w, b = draw(random, *shape), draw(random, shape[-1], columns, by=shape[-1] ** -0.5), draw(random, columns)
    want = x.astype(np.float64) @ w + b
    weights = [G.weight("w", w.T.copy() if transposed else w), G.weight("b", b)]
    nodes = [G.node("Transpose", ["w"], ["t"], perm=[1, 0])] if transposed else []
    nodes += [G.node("MatMul", ["x", "t" if transposed else "w"], ["p"]), G.node("Add", ["p", "b"], ["y"])]
    got = run("_".join(map(str, (*shape, columns, *options))), nodes, x, want, weights, *options)
    expect(got == taken, f"{got} of the products, {taken} was expected")


suite.add("an even number of rows", product, (1, 128, 256), 512, ["taken"])
suite.add("an odd number of rows", product, (101, 384), 768, ["taken"])
suite.add("a batch, transposed weights", lambda: product((3, 70, 512), 320, ["taken"], transposed=True))
suite.add("few rows are left alone", product, (32, 384), 768, ["left"])
suite.add("small matrices are left alone", product, (64, 64), 64, ["left"])
suite.add("an odd sum has no halves", product, (128, 385), 768, [])
suite.add("--no-winograd", product, (128, 256), 512, [], "--no-winograd")
suite.add("-O0", product, (64, 256), 512, [], "-O0")


@suite.case("heads, whose axes are split, with an epilogue and a residual")
def heads():
    random = np.random.default_rng(3)
    x, w, v = draw(random, 1, 97, 512), draw(random, 512, 512, by=1 / 22), draw(random, 512, 512, by=1 / 22)
    b = draw(random, 512)
    h = (x.astype(np.float64) @ w + b).reshape(1, 97, 8, 64).transpose(0, 2, 1, 3)
    p = np.tanh(h).transpose(0, 2, 1, 3).reshape(1, 97, 512)
    want = np.maximum(p @ v.astype(np.float64), 0) + x
    nodes = [G.node("MatMul", ["x", "w"], ["a"]), G.node("Add", ["a", "b"], ["c"]),
             G.node("Reshape", ["c", "heads"], ["d"]), G.node("Transpose", ["d"], ["e"], perm=[0, 2, 1, 3]),
             G.node("Tanh", ["e"], ["f"]), G.node("Transpose", ["f"], ["g"], perm=[0, 2, 1, 3]),
             G.node("Reshape", ["g", "flat"], ["h"]), G.node("MatMul", ["h", "v"], ["i"]),
             G.node("Relu", ["i"], ["j"]), G.node("Add", ["j", "x"], ["y"])]
    weights = [G.weight("w", w), G.weight("v", v), G.weight("b", b),
               G.weight("heads", np.array([1, 97, 8, 64])), G.weight("flat", np.array([1, 97, 512]))]
    got = run("heads", nodes, x, want, weights)
    expect(got == ["taken"] * 2, f"{got} of the products")


suite.main()
