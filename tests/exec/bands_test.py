"""Layers in bands (passes/plan/band.c): whatever the cache, the answer is the same. Windows of attention have
what is hard about them: a value is read along two of its axes at once, and by rows that are divided.
"""

import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "lib")]

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

import graphs as G
import tgc as T
from suite import Suite, expect

suite = Suite("bands")
OPTIONS = suite.parse()
TGC = T.find_tgc(OPTIONS.build).resolve()
SCRATCH = T.scratch(Path(OPTIONS.build).resolve() / "test-scratch" / "bands")
CACHES = ("0", "2K", "8K", "32K", "128K", "1M")


def window_attention(windows, side, heads, width, whole=True, seed=1):
    """Attention within windows of side x side places of an image, as Swin has it; not whole: the windows
    are not put back into the image."""
    random = np.random.default_rng(seed)
    down, across = windows
    c, places, count = heads * width, side * side, down * across

    def ints(name, *values):
        return G.weight(name, np.array(values, np.int64))

    def floats(name, *shape):
        return G.weight(name, (random.standard_normal(shape) / 4).astype(np.float32))

    weights = [ints("cut", 1, down, side, across, side, c), ints("flat", count, places, c),
               ints("heads", count, places, 3, heads, width), ints("back", count, places, c),
               ints("whole", 1, down, across, side, side, c), ints("image", 1, down * side, across * side, c),
               floats("wqkv", c, 3 * c), floats("bqkv", 3 * c), floats("wo", c, c), floats("bo", c),
               floats("place", 1, heads, places, places), G.weight("scale", np.float32(width ** -0.5))]
    weights += [G.weight(f"i{k}", np.array(k)) for k in range(3)]
    nodes = [G.node("Reshape", ["x", "cut"], ["a"]), G.node("Transpose", ["a"], ["b"], perm=[0, 1, 3, 2, 4, 5]),
             G.node("Reshape", ["b", "flat"], ["c"]), G.node("MatMul", ["c", "wqkv"], ["d"]),
             G.node("Add", ["d", "bqkv"], ["e"]), G.node("Reshape", ["e", "heads"], ["f"]),
             G.node("Transpose", ["f"], ["g"], perm=[2, 0, 3, 1, 4])]
    nodes += [G.node("Gather", ["g", f"i{k}"], [name], axis=0) for k, name in enumerate("qkv")]
    nodes += [G.node("Mul", ["q", "scale"], ["qs"]), G.node("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2]),
              G.node("MatMul", ["qs", "kt"], ["s"]), G.node("Add", ["s", "place"], ["sp"]),
              G.node("Softmax", ["sp"], ["p"], axis=-1), G.node("MatMul", ["p", "v"], ["o"]),
              G.node("Transpose", ["o"], ["ot"], perm=[0, 2, 1, 3]), G.node("Reshape", ["ot", "back"], ["h"]),
              G.node("MatMul", ["h", "wo"], ["l"]), G.node("Add", ["l", "bo"], ["m"]),
              G.node("Reshape", ["m", "whole"], ["n"]), G.node("Transpose", ["n"], ["r"], perm=[0, 1, 3, 2, 4, 5]),
              G.node("Reshape", ["r", "image"], ["w"]), G.node("Add", ["w", "x"], ["y"])]
    shape = [1, down * side, across * side, c]
    if not whole:
        nodes = nodes[:-3] + [G.node("Identity", ["m"], ["y"])]
    x = random.standard_normal(shape).astype(np.float32)
    result = shape if whole else [count, places, c]
    return G.model(nodes, [G.value("x", shape)], [G.value("y", result)], weights), x


def masked_attention(tokens, heads, width, seed=5):
    """Self-attention of one sample, whose mask is an input."""
    random = np.random.default_rng(seed)
    c = heads * width
    floats = {"wqkv": (c, 3 * c), "bqkv": (3 * c,), "wo": (c, c)}
    weights = [G.weight(k, (random.standard_normal(v) / 4).astype(np.float32)) for k, v in floats.items()]
    weights += [G.weight("cut", np.array([1, tokens, 3, heads, width])), G.weight("join", np.array([1, tokens, c])),
                G.weight("one", np.float32(1)), G.weight("low", np.float32(-1e4))]
    weights += [G.weight(f"i{k}", np.array(k)) for k in range(3)]
    nodes = [G.node("MatMul", ["x", "wqkv"], ["a"]), G.node("Add", ["a", "bqkv"], ["b"]),
             G.node("Reshape", ["b", "cut"], ["c"]), G.node("Transpose", ["c"], ["d"], perm=[2, 0, 3, 1, 4])]
    nodes += [G.node("Gather", ["d", f"i{k}"], [name], axis=0) for k, name in enumerate("qkv")]
    nodes += [G.node("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2]), G.node("MatMul", ["q", "kt"], ["s"]),
              G.node("Sub", ["one", "mask"], ["hide"]), G.node("Mul", ["hide", "low"], ["bias"]),
              G.node("Add", ["s", "bias"], ["t"]), G.node("Softmax", ["t"], ["p"], axis=-1),
              G.node("MatMul", ["p", "v"], ["o"]), G.node("Transpose", ["o"], ["r"], perm=[0, 2, 1, 3]),
              G.node("Reshape", ["r", "join"], ["u"]), G.node("MatMul", ["u", "wo"], ["y"])]
    x = random.standard_normal([1, tokens, c]).astype(np.float32)
    mask = np.ones([1, 1, 1, tokens], np.float32)
    mask[..., -tokens // 4:] = 0
    return G.model(nodes, [G.value("x", x.shape), G.value("mask", mask.shape)], [G.value("y", x.shape)], weights), \
        [x, mask]


def quantized_attention(tokens, width, seed=6):
    """Self-attention of one head whose tensors are bytes between all layers."""
    random = np.random.default_rng(seed)
    weights, nodes = [G.weight("zero", np.uint8(128))], []

    def coded(x, scale):
        weights.append(G.weight(f"{x}_s", np.float32(scale)))
        nodes.extend([G.node("QuantizeLinear", [x, f"{x}_s", "zero"], [f"{x}_q"]),
                      G.node("DequantizeLinear", [f"{x}_q", f"{x}_s", "zero"], [f"{x}_d"])])
        return f"{x}_d"

    x = coded("x", 1 / 32)

    def product(x, y):
        w = random.integers(-127, 128, (width, width)).astype(np.int8)
        weights.extend([G.weight(f"w{y}", w), G.weight(f"w{y}_s", np.float32(2 / 127 / width ** 0.5)),
                        G.weight(f"w{y}_z", np.int8(0))])
        nodes.extend([G.node("DequantizeLinear", [f"w{y}", f"w{y}_s", f"w{y}_z"], [f"w{y}_d"]),
                      G.node("MatMul", [x, f"w{y}_d"], [y])])

    for k in "qkv":
        product(x, k)
    nodes.append(G.node("Transpose", [coded("k", 1 / 32)], ["kt"], perm=[0, 2, 1]))
    nodes.append(G.node("MatMul", [coded("q", 1 / 32), "kt"], ["s"]))
    nodes.append(G.node("Softmax", [coded("s", 1 / 8)], ["p"], axis=-1))
    nodes.append(G.node("MatMul", [coded("p", 1 / 127), coded("v", 1 / 32)], ["o"]))
    product(coded("o", 1 / 32), "y")
    values = random.standard_normal([1, tokens, width]).astype(np.float32)
    return G.model(nodes, [G.value("x", values.shape)], [G.value("y", values.shape)], weights, opset=21), [values]


def convolutions(side, channels, seed=2):
    """Windows that overlap, a stride, a join of what two layers back was computed."""
    random = np.random.default_rng(seed)
    weights = [G.weight(f"w{k}", (random.standard_normal((channels, channels if k else 3, 3, 3)) / 6)
                        .astype(np.float32)) for k in range(4)]
    nodes = [G.node("Conv", ["x", "w0"], ["a"], pads=[1] * 4), G.node("Relu", ["a"], ["b"]),
             G.node("Conv", ["b", "w1"], ["c"], pads=[1] * 4), G.node("Add", ["c", "b"], ["d"]),
             G.node("Conv", ["d", "w2"], ["e"], pads=[1] * 4, strides=[2, 2]), G.node("Sigmoid", ["e"], ["f"]),
             G.node("MaxPool", ["f"], ["g"], kernel_shape=[3, 3], strides=[1, 1], pads=[1] * 4),
             G.node("Conv", ["g", "w3"], ["y"], pads=[2] * 4, dilations=[2, 2])]
    half = (side + 1) // 2
    x = random.standard_normal([1, 3, side, side]).astype(np.float32)
    return G.model(nodes, [G.value("x", [1, 3, side, side])], [G.value("y", [1, channels, half, half])],
                   weights), x


def mobile(side, width, seed=3):
    """Inverted residuals, one with a stride: expand, depthwise and project, with borders in between; and a
    dense block, each layer of which reads all before it."""
    random = np.random.default_rng(seed)
    weights, nodes = [], []

    def conv(x, y, channels_in, channels_out, k=1, group=1, relu=True, **attributes):
        w = random.standard_normal((channels_out, channels_in // group, k, k)) / (k * (channels_in / group) ** 0.5)
        weights.extend([G.weight(f"{y}_w", w.astype(np.float32)),
                        G.weight(f"{y}_b", (random.standard_normal(channels_out) / 8).astype(np.float32))])
        nodes.append(G.node("Conv", [x, f"{y}_w", f"{y}_b"], [f"{y}_c" if relu else y], group=group,
                            pads=[k // 2] * 4, **attributes))
        if relu:
            nodes.append(G.node("Relu", [f"{y}_c"], [y]))
        return y

    conv("x", "stem", 3, width, 3, strides=[2, 2])
    for k, stride in enumerate((1, 2, 1)):
        x = "stem" if k == 0 else f"r{k - 1}"
        conv(x, f"e{k}", width, 3 * width)
        conv(f"e{k}", f"d{k}", 3 * width, 3 * width, 3, group=3 * width, strides=[stride] * 2)
        conv(f"d{k}", f"p{k}" if stride == 1 else f"r{k}", 3 * width, width, relu=False)
        if stride == 1:
            nodes.append(G.node("Add", [f"p{k}", x], [f"r{k}"]))
    parts = ["r2"]
    for k in range(3):
        if k:
            nodes.append(G.node("Concat", parts, [f"j{k}"], axis=1))
        conv(f"j{k}" if k else "r2", f"s{k}", width * (k + 1), width)
        parts.append(conv(f"s{k}", f"t{k}", width, width, 3, relu=False))
    nodes.append(G.node("Concat", parts, ["j"], axis=1))
    conv("j", "y", 4 * width, 5, relu=False)
    x = random.standard_normal([1, 3, side, side]).astype(np.float32)
    size = (((side + 1) // 2) + 1) // 2
    return G.model(nodes, [G.value("x", [1, 3, side, side])], [G.value("y", [1, 5, size, size])], weights), x


def check(name, model, x, error=1e-4):
    folder = T.scratch(SCRATCH / name)
    onnx.save(model, folder / "net.onnx")
    inputs = x if isinstance(x, list) else [x]
    want = ReferenceEvaluator(model).run(None, {v.name: a for v, a in zip(model.graph.input, inputs)})[0]
    programs = set()
    for cache in CACHES:
        for more in ((), ("--cpu=generic", "--threads=3")):
            T.emit(TGC, folder / "net.onnx", folder / "net.c", "--cache", cache, *T.HERE, *more)
            source = (folder / "net.c").read_bytes()
            if source in programs:
                continue
            programs.add(source)
            T.build(folder / "net.c", folder / "net", main_by=TGC)
            got = T.Program(folder / "net", ["y"]).run(inputs)["y"]
            worst = float(np.abs(got - want).max())
            expect(worst < error * max(1, np.abs(want).max()), f"--cache={cache} {more}: wrong by {worst}")
    expect(len(programs) > 3, f"{len(programs)} programs: the cache makes no difference")


@suite.case("tiles need no more memory than the layer that they are made of")
def room():
    random = np.random.default_rng(4)
    shapes = {"w1": (16, 1, 3, 3), "w2": (48, 16, 3, 3)}
    weights = [G.weight(k, (random.standard_normal(v) / 6).astype(np.float32)) for k, v in shapes.items()]
    nodes = [G.node("Conv", ["x", "w1"], ["a"]), G.node("Relu", ["a"], ["b"]), G.node("Conv", ["b", "w2"], ["c"]),
             G.node("Relu", ["c"], ["d"]), G.node("MaxPool", ["d"], ["y"], kernel_shape=[2, 2], strides=[2, 2])]
    model = G.model(nodes, [G.value("x", [1, 1, 28, 28])], [G.value("y", [1, 48, 12, 12])], weights)
    x = random.standard_normal([1, 1, 28, 28]).astype(np.float32)
    folder = T.scratch(SCRATCH / "room")
    onnx.save(model, folder / "net.onnx")
    done = T.must(T.run([TGC, folder / "net.onnx", "-o", folder / "net.c"], env={"DEBUG": "2"}))
    T.build(folder / "net.c", folder / "net")
    want = ReferenceEvaluator(model).run(None, {"x": x})[0]
    error = np.abs(T.Program(folder / "net", ["y"]).run([x])["y"] - want).max() / np.abs(want).max()
    expect(error < 1e-5, f"errors of {error:.2g} of the largest output")
    expect(re.search("taken: [46]", done.err) and "bands:" in done.err, "no tiles in bands")
    arena = int(re.search(r"ARENA_BYTES (\d+)", (folder / "net.h").read_text()).group(1))
    layer = 4 * (16 * 26 * 26 + 48 * 24 * 24)
    expect(arena <= layer, f"an arena of {arena} bytes for a layer of {layer}")


for shape in (((8, 8), 4, 2, 16, False), ((4, 4), 7, 3, 8), ((2, 8), 4, 1, 16), ((1, 6), 3, 2, 4)):
    suite.add(f"attention in windows: {shape}",
              lambda shape=shape: check(f"windows_{'_'.join(map(str, shape[0]))}", *window_attention(*shape)))
suite.add("attention of one sample with a mask", lambda: check("masked", *masked_attention(24, 2, 16)))
suite.add("attention of one head by bytes", lambda: check("bytes", *quantized_attention(12, 4), error=0.03))
for size in ((24, 8), (17, 16), (32, 5)):
    suite.add(f"convolutions: {size[0]}x{size[0]}, {size[1]} channels",
              lambda size=size: check(f"convolutions_{size[0]}", *convolutions(*size)))
for size in ((30, 8), (37, 16)):
    suite.add(f"inverted residuals: {size[0]}x{size[0]}, {size[1]} channels",
              lambda size=size: check(f"mobile_{size[0]}", *mobile(*size)))


@suite.case("a chain with borders in between is one kernel, and its tensors are kept band by band")
def chain():
    folder = T.scratch(SCRATCH / "chain")
    onnx.save(mobile(64, 16)[0], folder / "net.onnx")
    arena = {}
    for cache in ("0", "1M"):
        done = T.must(T.run([TGC, folder / "net.onnx", "-o", folder / "net.c", "--cache", cache], env={"DEBUG": "2"}))
        arena[cache] = int(re.search(r"arena (\d+) bytes", done.err).group(1))
        groups = re.findall(r"^bands: (.*?):", done.err, re.M)
        expect(any(g.count(" < ") >= 3 for g in groups) == (cache == "0"), f"--cache={cache}: {groups}")
    expect(arena["0"] < 0.7 * arena["1M"], f"arenas of {arena}")


NORM = """tg 1
input %x : f32[1,24,48,48]
weight %v : f32[96,24,1,1] = normal(std=0.2, seed=1)
weight %w : f32[24,96,1,1] = normal(std=0.1, seed=2)
%c = conv2d(%x, %v)
%a = relu(%c)
%s = mul(%a, %a)
%n = reduce_sum(%s) {axes=[2,3], keep=true}
%m = reduce_mean(%n) {axes=[1], keep=true}
%g = sqrt(%m)
%b = div(%a, %g)
%y = conv2d(%b, %w)
output %y
"""


@suite.case("what is the same in all bands is computed in front of them")
def norm():
    folder = T.scratch(SCRATCH / "norm")
    (folder / "net.tg").write_text(NORM)
    x = np.random.default_rng(6).standard_normal((1, 24, 48, 48)).astype(np.float32)
    results = []
    for options in (("-O0",), ("--cache=64K",), ("--cache=64K", "--cpu=generic", "--threads=2")):
        T.emit(TGC, folder / "net.tg", folder / "net.c", *options)
        T.build(folder / "net.c", folder / "net", main_by=TGC)
        results.append(T.Program(folder / "net", ["y"]).run([x])["y"])
        banded = re.findall(r"^static void \w+\([^{]*\{\n((?:(?!^}).)*?)for \(int band\b", (folder / "net.c").read_text(),
                            re.M | re.S)
        expect(options == ("-O0",) or any(re.search(r"\bsum\w* \+= ", body) for body in banded),
               f"{options}: no sum in front of {len(banded)} bands")
    for y in results[1:]:
        worst = float(np.abs(y - results[0]).max() / np.abs(results[0]).max())
        expect(worst < 1e-5, f"wrong by {worst}")


SLIDING = """tg 1
input %n : f32[0<=N<=8]
input %x : f32[1,4,32,32]
weight %v : f32[16,4,3,3] = normal(std=0.2, seed=1)
weight %w : f32[16,16,3,3] = normal(std=0.1, seed=2)
%c = conv2d(%x, %v) {padding=1}
%a = relu(%c)
%p = pad(%a, f32(0)) {lo=[0,0,N,1], hi=[0,0,8-N,1]}
%y = conv2d(%p, %w)
output %y
%s = reduce_sum(%n) {axes=[0]}
output %s
"""


@suite.case("a border of a size known only at run time")
def sliding():
    folder = T.scratch(SCRATCH / "sliding")
    (folder / "net.tg").write_text(SLIDING)
    x = np.random.default_rng(5).standard_normal((1, 4, 32, 32)).astype(np.float32)
    programs = []
    for options in (("-O0",), ("--cache=0",), ("--cache=0", "--cpu=generic", "--no-winograd")):
        T.emit(TGC, folder / "net.tg", folder / "net.c", *options)
        T.build(folder / "net.c", folder / f"net{len(programs)}", main_by=TGC)
        programs.append(T.Program(folder / f"net{len(programs)}", ["y"]))
    for n in (0, 3, 8):
        want, *have = (p.run([np.zeros(n, np.float32), x])["y"] for p in programs)
        worst = max(float(np.abs(h - want).max()) for h in have)
        expect(worst < 1e-4, f"with {n} rows before the image: wrong by {worst}")


IMAGES = """tg 1
graph "images"
input %x : f32[n<=9, 16, 12, 12]
weight %w : f32[32, 16, 3, 3] = kaiming_uniform(seed=1)
weight %b : f32[32] = uniform(low=-0.1, high=0.1, seed=2)
weight %v : f32[32, 32, 3, 3] = kaiming_uniform(seed=3)
weight %d : f32[8, 512] = kaiming_uniform(seed=4)
%c = conv2d(%x, %w, %b)
%r = relu(%c)
%e = conv2d(%r, %v)
%p = max_pool2d(%e) {kernel=2}
%f = flatten(%p) {axis=1}
%y = linear(%f, %d)
output %y
"""


@suite.case("a batch that the run knows: images are bands, and rows are tiled")
def images():
    folder = T.scratch(SCRATCH / "images")
    (folder / "net.tg").write_text(IMAGES)
    x = np.random.default_rng(6).standard_normal((9, 16, 12, 12)).astype(np.float32)
    programs = []
    for options in (("-O0",), ("--cache=64K",), ("--cache=64K", "--threads=2"), ("--cache=8M",), ("--cpu=generic",)):
        T.emit(TGC, folder / "net.tg", folder / "net.c", *options)
        T.build(folder / "net.c", folder / f"net{len(programs)}", main_by=TGC)
        programs.append(T.Program(folder / f"net{len(programs)}", ["y"]))
    T.emit(TGC, folder / "net.tg", folder / "net.c", "--cache=64K", "--cpu=avx512")
    text = (folder / "net.c").read_text()
    expect("i < n / 4;" in text and "i < n / 2 % 2;" in text and "i < n % 2;" in text, "no tiles of the images' rows")
    for n in (0, 1, 2, 3, 7, 9):
        want, *have = (p.run([x[:n]])["y"] for p in programs)
        worst = max((float(np.abs(h - want).max()) for h in have if n), default=0)
        expect(worst < 1e-4 and all(h.shape == (n, 8) for h in have), f"{n} images: wrong by {worst}")


@suite.case("a huge size is refused at once")
def huge():
    folder = T.scratch(SCRATCH / "huge")
    shape = "f32[1,2,2147483647,32]"
    (folder / "net.tg").write_text(f"tg 1 input %q : {shape} input %k : {shape}\n"
                                   "%y = attention(%q, %k, %k)\noutput %y\n")
    done = T.run([TGC, folder / "net.tg", "-o", folder / "net.c"], timeout=20)
    expect(done.status == 1 and "smaller bounds" in done.err, done.describe())


@suite.case("bands leave a layer its columns")
def columns():
    folder = T.scratch(SCRATCH / "columns")
    w = np.random.default_rng(4).standard_normal((8, 8, 3, 39)).astype(np.float32)
    # z: something large, so that bands are to save time, not memory
    model = G.model([G.node("Conv", ["x", "w"], ["c"], pads=[1, 0, 1, 0]), G.node("Relu", ["c"], ["r"]),
                     G.node("Conv", ["r", "v"], ["y"], pads=[2] * 4),
                     G.node("Softmax", ["b"], ["s"]), G.node("Softmax", ["s"], ["z"])],
                    [G.value("x", [1, 8, 172, 302]), G.value("b", [2, 2000000])],
                    [G.value("y", [1, 1, 172, 264]), G.value("z", [2, 2000000])],
                    [G.weight("w", w), G.weight("v", w[:1, :, :1, :5].repeat(5, axis=2))])
    onnx.save(model, folder / "net.onnx")
    T.emit(TGC, folder / "net.onnx", folder / "net.c", "--cpu=avx512")
    scalar = len(re.findall(r"fmaf\([^;]*\bw\[", (folder / "net.c").read_text()))
    expect(scalar == 0, f"{scalar} products of scalars")


suite.main()
