"""Convolutions by Winograd's tiles, as f32 programs: how much they err, and that they are taken.

docs/winograd.md states the bounds. The reference is NumPy's, in double precision; what tile a
layer gets is read from DEBUG=2. The algebra is tested in tests/unit/test_schedule.c.
"""

import json
import re
import sys
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "lib")]

import numpy as np
import onnx

import amplifying
import double
import graphs as G
import tgc as T
from suite import Suite, expect

suite = Suite("winograd")
OPTIONS = suite.parse()
TGC = T.find_tgc(OPTIONS.build).resolve()
SCRATCH = T.scratch(Path(OPTIONS.build).resolve() / "test-scratch" / "winograd")

# Of random layers: the largest error by the largest output, and the root mean square error by
# that of the outputs, by the places of a tile's sides. (): a plain sum of products.
BOUND = {(): (2e-6, 1e-6), (4, 4): (2e-6, 1e-6), (6, 6): (6e-6, 2.5e-6), (8, 8): (3e-5, 8e-6),
         (8,): (6e-6, 2.5e-6), (10,): (1e-5, 4e-6), (10, 6): (3e-5, 8e-6)}


def layer(random, name, x, channels_in, channels_out, nodes, weights, group=1, kernel=(3, 3),
          **attributes):
    spread = np.sqrt(2 / (np.prod(kernel) * channels_in / group))
    w = random.standard_normal((channels_out, channels_in // group, *kernel)) * spread
    b = random.standard_normal(channels_out) * 0.1
    weights += [G.weight(f"{name}_w", w.astype(np.float32)), G.weight(f"{name}_b", b.astype(np.float32))]
    nodes.append(G.node("Conv", [x, f"{name}_w", f"{name}_b"], [name], name=name,
                        **{"pads": [k // 2 for k in kernel] * 2, **attributes}, group=group))
    return name


def convolve(x, w, b, group=1, dilations=None, strides=None):
    """In double precision, of the size of x but for the strides."""
    taps, size = w.shape[2:], x.shape[2:]
    dilations, strides = dilations or [1] * len(taps), strides or [1] * len(taps)
    border = [(k // 2 * d,) * 2 for k, d in zip(taps, dilations)]
    padded = np.pad(x.astype(np.float64), [(0, 0), (0, 0), *border])
    out, each = w.shape[0] // group, x.shape[1] // group
    y = np.zeros((x.shape[0], w.shape[0], *(-(-n // s) for n, s in zip(size, strides))))
    for g in range(group):
        rows, of = slice(g * out, (g + 1) * out), slice(g * each, (g + 1) * each)
        for at in np.ndindex(*taps):
            part = [slice(k * d, k * d + n, s)
                    for k, d, n, s in zip(at, dilations, size, strides)]
            y[:, rows] += np.einsum("oc,nc...->no...",
                                    w[(rows, slice(None), *at)].astype(np.float64),
                                    padded[(slice(None), of, *part)], optimize=True)
    return y + b.reshape(1, -1, *[1] * len(taps))


def emit(folder, model, *options):
    """The C file, and the tiles of the layers that were weighed."""
    onnx.save(model, folder / "model.onnx")
    done = T.must(T.run([TGC, folder / "model.onnx", "-o", folder / "net.c", *options],
                        env={"DEBUG": "2"}))
    return folder / "net.c", re.findall(r"^winograd: .* taken: ([0-9x]+)$", done.err, re.M)


def errors(size, channels, tile, *options, group=1, batch=1, kernel=(3, 3), **attributes):
    """tile: as DEBUG=2 prints it, the sides of the tiles; 0: none along that axis."""
    random = np.random.default_rng(np.prod(size) * channels)
    nodes, weights = [], []
    border = [k // 2 * d for k, d in zip(kernel, attributes.get("dilations", [1, 1]))]
    layer(random, "y", "x", channels, channels, nodes, weights, group, kernel,
          pads=border * 2, **attributes)
    shape = [batch, channels, *size]
    x = random.standard_normal(shape).astype(np.float32)
    w, b = (onnx.numpy_helper.to_array(v) for v in weights)
    want = convolve(x, w, b, group, **attributes)
    folder = T.scratch(SCRATCH / "_".join(map(str, (*size, channels, group, *kernel, *options))))
    source, tiles = emit(folder, G.model(nodes, [G.value("x", shape)],
                                         [G.value("y", list(want.shape))], weights), *T.HERE, *options)
    expect(tiles == ([tile] if tile else []), f"the tiles are {tiles}, {tile} was expected")
    expect("true ?" not in source.read_text(), "a choice between coefficients is left")
    T.build(source, folder / "net", main_by=TGC)
    program = T.Program(folder / "net", ["y"])
    y = program.run([x])["y"]
    error = np.abs(y - want)
    largest = error.max() / np.abs(want).max()
    mean = np.sqrt((error ** 2).mean() / (want ** 2).mean())
    sides = [int(m) for m in tile.split("x")] if tile else []
    places = tuple(m + k - 1 for m, k in zip(sides * (len(kernel) // max(len(sides), 1)), kernel)
                   if m)
    expect(largest <= BOUND[places][0] and mean <= BOUND[places][1],
           f"errors of {largest:.2g} of the largest output, {mean:.2g} in the mean; "
           f"{BOUND[places][0]:.2g} and {BOUND[places][1]:.2g} are allowed")


suite.add("F(2x2)", errors, (7, 7), 384, "2")
suite.add("F(4x4)", errors, (28, 28), 64, "4")
suite.add("F(4x4): a border that is cut off", errors, (26, 26), 48, "4")
suite.add("F(6x6)", errors, (30, 30), 48, "6")
suite.add("one axis of 5 taps", partial(errors, kernel=(5,)), (120,), 64, "6")
suite.add("one axis of 7 taps", partial(errors, kernel=(7,)), (96,), 64, "4")
suite.add("one axis of 9 taps", partial(errors, kernel=(9,)), (128,), 64, "2")
suite.add("5 x 5 taps", partial(errors, kernel=(5, 5)), (32, 32), 32, "4")
suite.add("7 x 3 taps with a dilation", partial(errors, kernel=(7, 3), dilations=[2, 1]), (64, 32), 16, "4")
suite.add("a stride along one axis", partial(errors, kernel=(3, 3), strides=[1, 2]), (30, 40), 64, "6")
suite.add("--no-winograd", errors, (28, 28), 64, "", "--no-winograd")
suite.add("-O0", errors, (12, 12), 32, "", "-O0")


@suite.case("groups and a batch")
def groups():
    errors((20, 20), 64, "4", group=2, batch=2)


@suite.case("channels that are no whole vectors are parts of them")
def parts():
    for cpu in ("avx2", "avx512"):
        errors((32, 32), 12, "4", f"--cpu={cpu}", kernel=(5, 5))
        errors((28, 28), 44, "4", f"--cpu={cpu}")
    for source in SCRATCH.glob("*--cpu=*/net.c"):
        vectors = re.findall(r"^IN_f32.*?^}", source.read_text(), re.M | re.S)
        scalar = re.findall(r"const float \w+ = (?:x|tile)\w*\[.*", "\n".join(vectors))
        expect(vectors and not scalar, f"{source}: {len(scalar)} scalar loads, as {scalar[:1]}")


@suite.case("a transposed convolution is two taps wide")
def transposed():
    import onnxruntime
    random = np.random.default_rng(6)
    w = (random.standard_normal((48, 32, 4, 4)) / 14).astype(np.float32)
    model = G.model([G.node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 2], pads=[1, 1, 1, 1])],
                    [G.value("x", [1, 48, 11, 14])], [G.value("y", [1, 32, 22, 28])],
                    [G.weight("w", w)])
    folder = T.scratch(SCRATCH / "transposed")
    source, tiles = emit(folder, model, *T.HERE)
    expect(tiles == ["3"], f"the tiles are {tiles}")
    x = random.standard_normal((1, 48, 11, 14)).astype(np.float32)
    want = onnxruntime.InferenceSession(folder / "model.onnx").run(None, {"x": x})[0]
    T.build(source, folder / "net", main_by=TGC)
    y = T.Program(folder / "net", ["y"]).run([x])["y"]
    largest = np.abs(y - want).max() / np.abs(want).max()
    expect(largest <= BOUND[4, 4][0], f"errors of {largest:.2g} of the largest output")


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
    source, tiles = emit(folder, model, *T.HERE)
    expect(len(tiles) == 9 and "0" not in tiles, f"the tiles are {tiles}")
    image = random.standard_normal((1, 32, 26, 26)).astype(np.float32)
    want = onnxruntime.InferenceSession(folder / "model.onnx").run(None, {"x": image})[0]
    T.build(source, folder / "net", main_by=TGC)
    program = T.Program(folder / "net", ["y"])
    T.compare_to_reference(program.run([image]), {"y": want}, rtol=1e-3, atol=1e-4)


# --------------------------------------------------------------------- the weights of a network


def three_layers():
    """The model's file: 64 channels; tiles of each layer pay."""
    random = np.random.default_rng(5)
    nodes, weights = [], []
    names = ["x", "c0", "c1", "y"]
    for name, x in zip(names[1:], names):
        layer(random, name, x, 64, 64, nodes, weights)
    folder = T.scratch(SCRATCH / "weights_budget")
    onnx.save(G.model(nodes, [G.value("x", [1, 64, 28, 28])], [G.value("y", [1, 64, 28, 28])], weights), folder / "model.onnx")
    return folder / "model.onnx"


def budgeted(model, *options):
    """The layers' tiles, bytes of weights, and the model's."""
    done = T.must(T.run([TGC, "info", model, "--json", *T.HERE, *options], env={"DEBUG": "2"}))
    said = json.loads(done.out)
    return re.findall(r"^winograd: .* taken: ([0-9x]+)$", done.err, re.M), said["weight_bytes"], said["model_weight_bytes"]


@suite.case("--weights-budget bounds what tiles add, and takes the ones that save most")
def weights_budget():
    model = three_layers()
    free, most, plain = budgeted(model)
    expect(free == ["4"] * 3 and most > 3 * plain, f"without a budget tiles are {free}, {most} bytes of {plain}")
    spent = []
    for ratio in (4.2, 3, 2.1, 1.5, 1.05):
        tiles, stored, _ = budgeted(model, f"--weights-budget={ratio}x")
        expect(stored <= ratio * plain, f"{ratio}x: {stored} bytes of {plain}")
        spent.append(stored)
        if ratio < 4:
            expect(tiles != free, f"{ratio}x: tiles {tiles}")
        if ratio > 1.5:
            expect(set(tiles) != {"0"}, f"{ratio}x leaves room, and no layer has tiles")
        again = budgeted(model, f"--weights-budget={int(ratio * plain)}")
        expect(again[:2] == (tiles, stored), f"{ratio}x in bytes: {again}")
    expect(spent == sorted(spent, reverse=True), f"a smaller budget takes more: {spent}")


@suite.case("--weights-budget that nothing fits is an error with what grows; other values are refused")
def weights_budget_refused():
    model = three_layers()
    # 60 channels: panels of 64
    nodes, weights = [], []
    layer(np.random.default_rng(6), "y", "x", 60, 60, nodes, weights, kernel=(1, 1))
    odd = model.with_name("odd.onnx")
    onnx.save(G.model(nodes, [G.value("x", [1, 60, 9, 9])], [G.value("y", [1, 60, 9, 9])], weights), odd)
    done = T.run([TGC, odd, "-o", odd.with_suffix(".c"), "--weights-budget=1x", "--cpu=avx2", "--machine=common"])
    expect(done.status == 1 and "--weights-budget allows" in done.err and "most grow Conv" in done.err and "y_w" in done.err, done.err)
    expect(not odd.with_suffix(".c").exists(), "an output is left")
    for value in ("0.9x", "x", "1.5", "-1x", "1.5xx", "nanx", "0", ""):
        done = T.run([TGC, "info", model, f"--weights-budget={value}"])
        expect(done.status == 2 and "--weights-budget" in done.err, f"{value}: {done.status} {done.err}")


# ------------------------------------------------------------------------- the error of a network


def told(folder, *options):
    """The largest tile of each layer, and what tgc says of the error that they add."""
    done = T.must(T.run([TGC, "info", folder / "model.onnx", "--json", *options],
                        env={"DEBUG": "2"}))
    tiles = re.findall(r"^winograd: .* taken: ([0-9x]+)$", done.err, re.M)
    return ([max(map(int, tile.split("x"))) for tile in tiles],
            json.loads(done.out)["error_estimate"])


def results(folder, inputs, output, *options):
    sub = T.scratch(folder / ("build" + "".join(options)))
    T.must(T.run([TGC, folder / "model.onnx", "-o", sub / "net.c", "--cpu=generic", "--machine=common", *options]))
    T.build(sub / "net.c", sub / "net", main_by=TGC)
    program = T.Program(sub / "net", [output])
    return [program.run([x])[output].astype(np.float64) for x in inputs]


def budget(name, make):
    """By default, with a limit that is none, and with one below what it would add: the errors keep
    to the limit, and tiles get smaller; the estimate is about what is measured."""
    folder = T.scratch(SCRATCH / name)
    model, feeds = make()
    onnx.save(model, folder / "model.onnx")
    random = np.random.default_rng(11)
    inputs = [feeds["x"]] + [random.standard_normal(feeds["x"].shape).astype(np.float32)]
    want = [next(iter(double.run(folder / "model.onnx", {"x": x}).values())) for x in inputs]
    most = [np.abs(y).max() for y in want]
    worst = lambda got: [np.abs(a - b).max() / m for a, b, m in zip(got, want, most)]
    free_tiles, free = told(folder, "--error=1")
    small_tiles, small = told(folder, f"--error={free / 4}")
    none_tiles, none = told(folder, "--error=0")
    expect(free_tiles.count(0) < len(free_tiles) and free > 0, f"the tiles are {free_tiles}")
    expect(none_tiles.count(0) == len(none_tiles) and none == 0,
           f"with --error=0 the tiles are {none_tiles}, the estimate {none}")
    expect(0 < small <= free / 4 and sum(small_tiles) < sum(free_tiles),
           f"limited to {free / 4:.2g}: {small:.2g} by tiles {small_tiles}, not {free_tiles}")
    output = model.graph.output[0].name
    plain = results(folder, inputs, output, "--error=0")
    code = re.sub(r'^ *".*$', "", (folder / "build--error=0" / "net.c").read_text(), flags=re.M)
    expect(not re.search(r"\bxi\b", code), "--error=0: a product of places is left")
    by_plain = worst(plain)
    for limit, estimate in ((1, free), (free / 4, small)):
        got = results(folder, inputs, output, f"--error={limit}")
        for e, p in zip(worst(got), by_plain):
            # two roundings of a small network differ by about what they are
            expect(e <= 1.5 * p + limit, f"errors of {e:.2g}, {p:.2g} without tiles; limit {limit:.2g}")
        added = max(np.abs(a - b).max() / m for a, b, m in zip(got, plain, most))
        expect(added / 10 <= estimate <= 10 * added,
               f"the estimate is {estimate:.2g}, tiles have changed results by {added:.2g}")


suite.add("error of a chain", budget, "chain", partial(amplifying.chain, 8, False, 24, 32))
suite.add("error of a chain that enlarges it", budget, "calibrated",
          partial(amplifying.chain, 10, True, 24, 32))
suite.add("error of a residual network", budget, "residual",
          partial(amplifying.residual, 4, 24, 32))
suite.add("error of joined branches", budget, "inception",
          partial(amplifying.inception, 2, 24, 28))
suite.add("error of normalized images", budget, "generator",
          partial(amplifying.generator, 1, 12, 48))


@suite.case("the budget is the same for all instruction sets, and where the batch is not known")
def same_budget():
    folder = T.scratch(SCRATCH / "same")
    model, _ = amplifying.chain(10, True, 24, 32)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    model.graph.output[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    onnx.save(model, folder / "model.onnx")
    fixed = [told(folder, "--dim", "batch=1", "--error=2e-6", f"--cpu={cpu}", "--machine=common")
             for cpu in ("generic", "avx2", "avx512", "neon")]
    expect(all(each == fixed[0] for each in fixed), f"tiles and estimates: {fixed}")
    tiles, estimate = told(folder, "--dim", "batch<=2", "--error=2e-6")
    expect(0 < estimate <= 2e-6 and any(tiles), f"of a batch: tiles {tiles}, error {estimate}")


@suite.case("where memory is scarce a rewrite has to save as much time as it takes memory; by -Os none may take more")
def scarce():
    folder = T.scratch(SCRATCH / "scarce")
    model, _ = amplifying.chain(3, True, 24, 32)
    onnx.save(model, folder / "model.onnx")
    none = told(folder, "--error=0", "--cpu=generic")[0]
    for options in (["--cpu=generic"], ["--cpu=cortex-m4"], ["--machine=small"], ["-Os"], ["-Os", "--machine=common"]):
        tiles, _ = told(folder, *options)
        expect(tiles == none and not any(tiles), f"{options}: tiles {tiles}")
    for options in ([], ["--cpu=generic", "--machine=common"], ["--cpu=cortex-m4", "--machine=common"], ["-Os", "-O2"]):
        tiles, _ = told(folder, *options)
        expect(any(tiles), f"{options}: no tiles")


@suite.case("--error that is no number of 0 or more is refused")
def wrong_error():
    for value in ("-1", "nan", "1x", "", "inf"):
        done = T.run([TGC, "model.onnx", "-o", "-", f"--error={value}"])
        expect(done.status == 2 and "--error" in done.err, f"--error={value}: {done.describe()}")


suite.main()
