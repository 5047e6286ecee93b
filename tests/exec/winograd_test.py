"""Convolutions by Winograd's tiles, as f32 programs: how much they err, and that they are taken.

docs/winograd.md states the bounds. The reference is NumPy's, in double precision; what tile a
layer gets is read from DEBUG=2. The algebra is tested in tests/unit/test_schedule.c.
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

suite = Suite("winograd")
OPTIONS = suite.parse()
TGC = T.find_tgc(OPTIONS.build).resolve()
SCRATCH = T.scratch(Path(OPTIONS.build).resolve() / "test-scratch" / "winograd")

# Of random layers: the largest error by the largest output, and the root mean square error by
# that of the outputs. 0: a plain sum of products.
BOUND = {0: (2e-6, 1e-6), 2: (2e-6, 1e-6), 4: (6e-6, 2.5e-6), 6: (3e-5, 8e-6)}


def layer(random, name, x, channels_in, channels_out, nodes, weights, group=1):
    spread = np.sqrt(2 / (9 * channels_in / group))
    w = random.standard_normal((channels_out, channels_in // group, 3, 3)) * spread
    b = random.standard_normal(channels_out) * 0.1
    weights += [G.weight(f"{name}_w", w.astype(np.float32)), G.weight(f"{name}_b", b.astype(np.float32))]
    nodes.append(G.node("Conv", [x, f"{name}_w", f"{name}_b"], [name], name=name,
                        pads=[1, 1, 1, 1], group=group))
    return name


def convolve(x, w, b, group=1):
    """In double precision."""
    n, c, height, width = x.shape
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    out, each = w.shape[0] // group, c // group
    y = np.zeros((n, w.shape[0], height, width))
    for g in range(group):
        rows, of = slice(g * out, (g + 1) * out), slice(g * each, (g + 1) * each)
        for i in range(3):
            for j in range(3):
                y[:, rows] += np.einsum("oc,ncyx->noyx", w[rows, :, i, j].astype(np.float64),
                                        padded[:, of, i:i + height, j:j + width], optimize=True)
    return y + b.reshape(1, -1, 1, 1)


def emit(folder, model, *options):
    """The C file, and the tiles of the layers that were weighed."""
    onnx.save(model, folder / "model.onnx")
    done = T.must(T.run([TGC, folder / "model.onnx", "-o", folder / "net.c", *options],
                        env={"DEBUG": "2"}))
    return folder / "net.c", [int(m) for m in re.findall(r"^winograd: .*: (\d)$", done.err, re.M)]


def errors(size, channels, tile, *options, group=1, batch=1):
    random = np.random.default_rng(size * channels + tile)
    nodes, weights = [], []
    layer(random, "y", "x", channels, channels, nodes, weights, group)
    shape = [batch, channels, size, size]
    folder = T.scratch(SCRATCH / f"{size}_{channels}_{tile}_{group}")
    source, tiles = emit(folder, G.model(nodes, [G.value("x", shape)], [G.value("y", shape)], weights),
                         *options)
    expect(tiles == ([tile] if tile else []), f"the tiles are {tiles}, {tile} was expected")
    x = random.standard_normal(shape).astype(np.float32)
    T.build(source, folder / "net")
    program = T.Program(folder / "net", ["y"])
    y = program.run([x])["y"]
    w, b = (onnx.numpy_helper.to_array(v) for v in weights)
    want = convolve(x, w, b, group)
    error = np.abs(y - want)
    largest = error.max() / np.abs(want).max()
    mean = np.sqrt((error ** 2).mean() / (want ** 2).mean())
    expect(largest <= BOUND[tile][0] and mean <= BOUND[tile][1],
           f"errors of {largest:.2g} of the largest output, {mean:.2g} in the mean; "
           f"{BOUND[tile][0]:.2g} and {BOUND[tile][1]:.2g} are allowed")


suite.add("F(2x2)", errors, 7, 384, 2)
suite.add("F(4x4)", errors, 28, 64, 4)
suite.add("F(4x4): a border that is cut off", errors, 26, 48, 4)
suite.add("F(6x6)", errors, 30, 48, 6)
suite.add("--no-winograd", errors, 28, 64, 0, "--no-winograd")
suite.add("-O0", errors, 12, 32, 0, "-O0")


@suite.case("groups and a batch")
def groups():
    errors(20, 64, 4, group=2, batch=2)


@suite.case("a residual network agrees with ONNX Runtime")
def residual_network():
    import onnxruntime
    random = np.random.default_rng(5)
    nodes, weights, x, channels = [], [], "x", 32
    for k, wider in enumerate((32, 32, 64, 64)):
        first = layer(random, f"a{k}", x, channels, wider, nodes, weights)
        nodes.append(G.node("Relu", [first], [f"r{k}"], name=f"r{k}"))
        second = layer(random, f"b{k}", f"r{k}", wider, wider, nodes, weights)
        if wider == channels:
            nodes.append(G.node("Add", [second, x], [f"s{k}"], name=f"s{k}"))
            second = f"s{k}"
        nodes.append(G.node("Relu", [second], [f"t{k}"], name=f"t{k}"))
        x, channels = f"t{k}", wider
    nodes.append(G.node("MaxPool", [x], ["p"], name="p", kernel_shape=[2, 2], strides=[2, 2]))
    layer(random, "y", "p", channels, channels, nodes, weights)
    folder = T.scratch(SCRATCH / "network")
    model = G.model(nodes, [G.value("x", [1, 32, 26, 26])], [G.value("y", [1, 64, 13, 13])], weights)
    source, tiles = emit(folder, model)
    expect(len(tiles) == 9 and all(tiles), f"the tiles are {tiles}")
    image = random.standard_normal((1, 32, 26, 26)).astype(np.float32)
    want = onnxruntime.InferenceSession(folder / "model.onnx").run(None, {"x": image})[0]
    T.build(source, folder / "net")
    program = T.Program(folder / "net", ["y"])
    T.compare_to_reference(program.run([image]), {"y": want}, rtol=1e-3, atol=1e-4)


suite.main()
