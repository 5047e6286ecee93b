"""What models of sequences and tables are made of, that other tests do not have: masks of booleans,
statistics of groups of channels, half precision, padding between quantizers, rows of quantized
embeddings, columns of bytes that are no whole vector, blocks of 4-bit weights, forests.

Each is compared with NumPy or with a reference that is written here, in every instruction set of
this machine, and what the vectors' kernels are made of is read from the C.
"""

import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "lib")]

import numpy as np
import onnx
from onnx import TensorProto

import graphs as G
import tgc as T
from suite import Suite, expect

suite = Suite("sequences")
OPTIONS = suite.parse()
TGC = T.find_tgc(OPTIONS.build).resolve()
SCRATCH = T.scratch(Path(OPTIONS.build).resolve() / "test-scratch" / "sequences")
SETS = ["generic", *[isa for isa in ("avx2", "avx512")
                     if isa in Path("/proc/cpuinfo").read_text() or isa + "f" in Path("/proc/cpuinfo").read_text()]]


def run(name, nodes, inputs, want, weights, error=1e-5, dtype=TensorProto.FLOAT, domains=(), opset=17):
    """y of the nodes is `want`, in each instruction set; with --all in C of all of them, too: others' tests compile that beside each other."""
    folder = T.scratch(SCRATCH / name)
    kinds = {k: onnx.helper.np_dtype_to_tensor_dtype(v.dtype) for k, v in inputs.items()}
    model = G.model(nodes, [G.value(k, list(v.shape), kinds[k]) for k, v in inputs.items()],
                    [G.value("y", list(want.shape), dtype)], weights, opset=opset, domains=domains)
    onnx.save(model, folder / "model.onnx")
    for isa in [*SETS, *([None] if OPTIONS.all else [])]:
        T.must(T.run([TGC, folder / "model.onnx", "-o", folder / "net.c",
                      *(["--cpu", isa] if isa else [])]))
        T.build(folder / "net.c", folder / "net", main_by=TGC)
        y = T.Program(folder / "net", ["y"]).run(list(inputs.values()))["y"].astype(np.float64)
        largest = np.abs(want).max()
        expect(y.shape == want.shape and np.abs(y - want).max() <= error * largest,
               f"{isa}: wrong by {np.abs(y - want).max():.3g}, the largest is {largest:.3g}")
    T.emit(TGC, folder / "model.onnx", folder / "wide.c", "--cpu=avx512vnni")
    return (folder / "wide.c").read_text()


def kernels(text, isa="avx512"):
    """The kernels of an instruction set, by the name of what they begin with."""
    found = re.findall(rf"static void (\w+)_{isa}(?:vnni)?\((.*?)^}}", text, re.M | re.S)
    expect(found, f"no kernels for {isa}")
    return {name: body for name, body in found}


def draw(random, *shape, by=1.0):
    return (random.standard_normal(shape) * by).astype(np.float32)


def softmax(x):
    power = np.exp(x - x.max(axis=-1, keepdims=True))
    return power / power.sum(axis=-1, keepdims=True)


@suite.case("attention behind a mask of booleans")
def masked():
    random = np.random.default_rng(1)
    x = draw(random, 1, 2, 3, 64, 32)
    mask = np.tril(np.ones((64, 64), bool))[None, None]
    q, k, v = (x[:, :, i].astype(np.float64) for i in range(3))
    want = softmax(np.where(mask, q @ k.transpose(0, 1, 3, 2) / 4, -3e38)) @ v
    nodes = [G.node("Split", ["x"], ["q1", "k1", "v1"], axis=2),
             *[G.node("Squeeze", [f"{n}1", "two"], [n]) for n in "qkv"],
             G.node("Transpose", ["k"], ["t"], perm=[0, 1, 3, 2]), G.node("MatMul", ["q", "t"], ["s"]),
             G.node("Mul", ["s", "c"], ["r"]), G.node("Where", ["mask", "r", "least"], ["m"]),
             G.node("Softmax", ["m"], ["p"], axis=-1), G.node("MatMul", ["p", "v"], ["y"])]
    weights = [G.weight("two", np.array([2])), G.weight("c", np.float32(0.25)),
               G.weight("least", np.float32(-3e38)), G.weight("mask", mask)]
    text = run("masked", nodes, {"x": x}, want, weights)
    expect(any("load_bool_f32x16" in body for body in kernels(text).values()),
           "the mask is no vector")


@suite.case("booleans as numbers and as conditions")
def booleans():
    random = np.random.default_rng(2)
    x, b = draw(random, 5, 37), random.integers(0, 2, (5, 37)).astype(bool)
    want = np.where(b & (x > 0), x, b.astype(np.float64))
    nodes = [G.node("Greater", ["x", "zero"], ["g"]), G.node("And", ["b", "g"], ["a"]),
             G.node("Cast", ["b"], ["f"], to=TensorProto.FLOAT), G.node("Where", ["a", "x", "f"], ["y"])]
    run("booleans", nodes, {"x": x, "b": b}, want, [G.weight("zero", np.float32(0))])


@suite.case("statistics of all channels run along memory, and are exact")
def groups():
    random = np.random.default_rng(3)
    x, w = draw(random, 1, 8, 1000), draw(random, 64, 8, 1)
    c = np.maximum(np.einsum("oik,nit->not", w.astype(np.float64), x), 0)
    want = (c - c.mean()) / np.sqrt(c.var() + 1e-5)
    want = np.einsum("oi,nit->not", np.eye(64)[::-1], want)
    nodes = [G.node("Conv", ["x", "w"], ["c"]), G.node("Relu", ["c"], ["r"]),
             G.node("Reshape", ["r", "flat"], ["f"]),
             G.node("InstanceNormalization", ["f", "one", "none"], ["i"], epsilon=1e-5),
             G.node("Reshape", ["i", "back"], ["b"]), G.node("Conv", ["b", "turn"], ["y"])]
    weights = [G.weight("w", w), G.weight("flat", np.array([1, 1, -1])),
               G.weight("back", np.array([1, 64, 1000])), G.weight("one", np.ones(1, np.float32)),
               G.weight("none", np.zeros(1, np.float32)),
               G.weight("turn", np.eye(64, dtype=np.float32)[::-1, :, None].copy())]
    text = run("groups", nodes, {"x": x}, want, weights, error=3e-4)   # one sum, in portable C
    body = next(b for n, b in kernels(text).items() if n.startswith("instance"))
    expect(re.search(r"sum\d* \+= load_f32x16", body) and " % " not in body,
           f"sums of single elements: {body}")


@suite.case("a layer behind a normalization reads its channels side by side")
def normalized():
    random = np.random.default_rng(4)
    x, w, v = draw(random, 1, 4, 200), draw(random, 64, 4, 5), draw(random, 32, 64, 3, by=0.1)
    c = np.stack([np.tensordot(w.astype(np.float64), x[0, :, t:t + 5], 2) for t in range(196)], 1)
    n = (c - c.mean(1, keepdims=True)) / np.sqrt(c.var(1, keepdims=True) + 1e-5)
    want = np.stack([np.tensordot(v.astype(np.float64), n[:, t:t + 3], 2) for t in range(0, 194, 2)], 1)[None]
    nodes = [G.node("Conv", ["x", "w"], ["c"]),
             G.node("InstanceNormalization", ["c", "one", "none"], ["i"], epsilon=1e-5),
             G.node("Conv", ["i", "v"], ["y"], strides=[2])]
    weights = [G.weight("w", w), G.weight("v", v), G.weight("one", np.ones(64, np.float32)),
               G.weight("none", np.zeros(64, np.float32))]
    text = run("normalized", nodes, {"x": x}, want, weights, error=1e-4)
    body = next(b for n, b in kernels(text).items() if n.startswith("instance"))
    expect("load_f32x16" in body, f"the normalization has no vectors: {body}")


@suite.case("buckets of logarithms are those of f32")
def buckets():
    x = np.zeros(100, np.float32)
    n = np.arange(100)
    large = 8 + (np.log(np.maximum(n, 1).astype(np.float32) / np.float32(8)) / np.float32(np.log(16))
                 * np.float32(8)).astype(np.int64)
    want = np.where(n < 8, n, np.minimum(large, 15)).astype(np.float64)
    nodes = [G.node("Cast", ["n"], ["f"], to=TensorProto.FLOAT), G.node("Div", ["f", "eight"], ["d"]),
             G.node("Log", ["d"], ["l"]), G.node("Div", ["l", "log16"], ["q"]),
             G.node("Mul", ["q", "eight"], ["m"]), G.node("Cast", ["m"], ["i"], to=TensorProto.INT64),
             G.node("Add", ["i", "begin"], ["a"]), G.node("Min", ["a", "most"], ["b"]),
             G.node("Where", ["small", "n", "b"], ["w"]), G.node("Cast", ["w"], ["z"], to=TensorProto.FLOAT),
             G.node("Add", ["z", "x"], ["y"])]
    weights = [G.weight("n", np.maximum(n, 1) * (n > 0)), G.weight("eight", np.float32(8)),
               G.weight("log16", np.float32(np.log(16))), G.weight("begin", np.int64(8)),
               G.weight("most", np.int64(15)), G.weight("small", n < 8)]
    run("buckets", nodes, {"x": x}, want, weights, error=0)


# ---------------------------------------------------------------------------------- half precision


def halves(kind, name, dtype):
    random = np.random.default_rng(5)
    x = draw(random, 6, 45).astype(dtype)
    w, v = draw(random, 45, 70, by=0.2).astype(dtype), draw(random, 70, 83, by=0.2).astype(dtype)
    b = draw(random, 70).astype(dtype)
    f = lambda a: a.astype(np.float64)
    want = np.tanh(f(x) @ f(w) + f(b)) @ f(v)
    nodes = [G.node("MatMul", ["x", "w"], ["p"]), G.node("Add", ["p", "b"], ["s"]),
             G.node("Tanh", ["s"], ["t"]), G.node("MatMul", ["t", "v"], ["y"])]
    tensors = [onnx.helper.make_tensor(n, kind, a.shape, a.astype(np.float32).ravel())
               for n, a in (("w", w), ("b", b), ("v", v))]
    text = run(name, nodes, {"x": x}, want, tensors, error=2.0 ** (-10 if kind == TensorProto.FLOAT16 else -7),
               dtype=kind)
    bodies = kernels(text).values()
    expect(sum("fma_f32x16" in body for body in bodies) == 2, "the products have no vectors")
    expect("round_f16" not in text and "round_bf16" not in text, "something is rounded on its way")


suite.add("f16 is computed in f32", lambda: halves(TensorProto.FLOAT16, "f16", np.float16))


@suite.case("a window's halves are converted once")
def windows():
    random = np.random.default_rng(8)
    x, w = draw(random, 1, 40, 98).astype(np.float16), draw(random, 64, 40, 9, by=0.1).astype(np.float16)
    wide = np.pad(x[0].astype(np.float64), ((0, 0), (4, 4)))
    view = np.lib.stride_tricks.sliding_window_view(wide, 9, axis=1)
    want = np.maximum(np.einsum("cxk,ock->ox", view, w.astype(np.float64)), 0)[None]
    nodes = [G.node("Conv", ["x", "w"], ["c"], pads=[4, 4]), G.node("Relu", ["c"], ["y"])]
    weight = onnx.helper.make_tensor("w", TensorProto.FLOAT16, w.shape, w.astype(np.float32).ravel())
    run("windows", nodes, {"x": x}, want, [weight], error=2.0 ** -10, dtype=TensorProto.FLOAT16)
    live = T.info(TGC, SCRATCH / "windows" / "model.onnx", "--no-winograd")["live_bytes"]
    expect(live < 98 * 40 * 9 * 4, f"{live} bytes are alive: the windows lie there")


@suite.case("conversions from and to f16, of all numbers")
def conversions():
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    x = every[np.isfinite(every)]
    x = np.concatenate([x, x[:(-len(x)) % 64]])[None].repeat(2, 0)
    want = (x.astype(np.float32) * np.float32(0.7)).astype(np.float16).astype(np.float64)
    nodes = [G.node("Cast", ["x"], ["w"], to=TensorProto.FLOAT), G.node("Mul", ["w", "c"], ["m"]),
             G.node("Cast", ["m"], ["y"], to=TensorProto.FLOAT16)]
    text = run("conversions", nodes, {"x": x}, want, [G.weight("c", np.float32(0.7))], error=0,
               dtype=TensorProto.FLOAT16)
    expect("load_f16_f32x16" in text and "store_f16_f32x16" in text, "no vectors of f16")


# ----------------------------------------------------------------------------------------- bytes


@suite.case("a cast to f16 and back rounds vectors, beside a product, too")
def rounded_vectors():
    random = np.random.default_rng(12)
    x, w, b = draw(random, 40, 100), draw(random, 100, 48), draw(random, 48)
    half = x.astype(np.float16).astype(np.float64)
    there = [G.node("Cast", ["x"], ["h"], to=TensorProto.FLOAT16), G.node("Cast", ["h"], ["f"], to=TensorProto.FLOAT)]
    text = run("rounded_vectors", [*there, G.node("Mul", ["f", "three"], ["y"])], {"x": x}, half * 3,
               [G.weight("three", np.float32(3))], error=1e-7)
    expect(all("round_f16_f32x16" in body for body in kernels(text).values()), "f16 is rounded one by one")
    product = (x.astype(np.float64) @ w).astype(np.float32)
    want = product.astype(np.float16).astype(np.float64) + b
    nodes = [G.node("MatMul", ["x", "w"], ["p"]), G.node("Cast", ["p"], ["h"], to=TensorProto.FLOAT16),
             G.node("Cast", ["h"], ["f"], to=TensorProto.FLOAT), G.node("Add", ["f", "b"], ["y"])]
    text = run("rounded_products", nodes, {"x": x}, want, [G.weight("w", w), G.weight("b", b)], error=1e-3)
    expect(any("round_f16_f32x16" in body for body in kernels(text).values()), "f16 is rounded one by one")


@suite.case("a softmax over neighbours runs along them, though heads lie innermost")
def graph_attention():
    random = np.random.default_rng(16)
    x, edge = draw(random, 120, 48), random.random((120, 120, 1)) < 0.4
    left, right, w = draw(random, 8, 8), draw(random, 8, 8), draw(random, 48, 64, by=0.1)
    z = (x.astype(np.float64) @ w).reshape(120, 8, 8)
    score = (z * left).sum(2)[:, None] + (z * right).sum(2)
    score = np.where(edge, np.where(score < 0, score * 0.2, score), -1e9)
    power = np.exp(score - score.max(1, keepdims=True))
    want = np.einsum("ijh,jhk->ihk", power / power.sum(1, keepdims=True), z).reshape(120, 64)
    nodes = [G.node("MatMul", ["x", "w"], ["xw"]), G.node("Reshape", ["xw", "shape"], ["z"]),
             G.node("Mul", ["z", "left"], ["zl"]),
             G.node("ReduceSum", ["zl", "last"], ["l"], keepdims=0), G.node("Mul", ["z", "right"], ["zr"]),
             G.node("ReduceSum", ["zr", "last"], ["r"], keepdims=0), G.node("Unsqueeze", ["l", "one"], ["lu"]),
             G.node("Add", ["lu", "r"], ["a"]), G.node("LeakyRelu", ["a"], ["e"], alpha=0.2),
             G.node("Where", ["edge", "e", "far"], ["m"]), G.node("Softmax", ["m"], ["p"], axis=1),
             G.node("Einsum", ["p", "z"], ["s"], equation="ijh,jhk->ihk"), G.node("Reshape", ["s", "flat"], ["y"])]
    weights = [G.weight("left", left), G.weight("right", right), G.weight("w", w),
               G.weight("shape", np.array([120, 8, 8])), G.weight("flat", np.array([120, 64])),
               G.weight("last", np.array([2])), G.weight("one", np.array([1])), G.weight("far", np.float32(-1e9))]
    text = run("graph_attention", nodes, {"x": x, "edge": edge}, want, weights)
    expect(not any("exp_f32(" in body for body in kernels(text).values()), "scalar powers")


@suite.case("padding between quantizers is a halo, odd columns are whole vectors")
def padded():
    random = np.random.default_rng(6)
    x = draw(random, 1, 8, 50)
    q = lambda a, s, z: np.clip(np.rint(a / s) + z, 0, 255)
    w, v = (random.integers(-127, 128, s).astype(np.int8) for s in ((20, 8, 3), (20, 20, 3)))
    a = (q(x[0].astype(np.float64), 0.03, 120) - 120) * 0.03

    def layer(a, w):
        p = np.pad(a, ((0, 0), (4, 0)))
        return np.stack([np.tensordot(w.astype(np.float64) * 0.01, p[:, t:t + 5:2], 2) for t in range(50)], 1)

    h = (q(np.maximum(layer(a, w), 0), 0.02, 0)) * 0.02
    want = layer(h, v)[None]
    nodes = []
    for k, (name, s, z) in enumerate((("x", "sx", "zx"), ("r", "sr", "zr"))):
        nodes += [G.node("QuantizeLinear", [name, s, z], [f"q{k}"]),
                  G.node("DequantizeLinear", [f"q{k}", s, z], [f"d{k}"]),
                  G.node("Pad", [f"d{k}", "pads"], [f"p{k}"]),
                  G.node("QuantizeLinear", [f"p{k}", s, z], [f"e{k}"]),
                  G.node("DequantizeLinear", [f"e{k}", s, z], [f"f{k}"]),
                  G.node("DequantizeLinear", [f"w{k}", "sw", "zw"], [f"v{k}"]),
                  G.node("Conv", [f"f{k}", f"v{k}"], [f"c{k}"], dilations=[2])]
        nodes += [G.node("Relu", ["c0"], ["r"])] if k == 0 else [G.node("Identity", ["c1"], ["y"])]
    weights = [G.weight("sx", np.float32(0.03)), G.weight("zx", np.uint8(120)),
               G.weight("sr", np.float32(0.02)), G.weight("zr", np.uint8(0)),
               G.weight("sw", np.float32(0.01)), G.weight("zw", np.int8(0)), G.weight("w0", w),
               G.weight("w1", v), G.weight("pads", np.array([0, 0, 4, 0, 0, 0]))]
    text = run("padded", nodes, {"x": x}, want, weights, error=3e-3)
    bodies = [b for n, b in kernels(text).items() if n.startswith("conv")]
    expect(len(bodies) == 2 and all("dot_" in b for b in bodies), "layers without products of bytes")
    expect(all("int sum" not in b for b in bodies), f"columns that are left over are scalars: {bodies}")


@suite.case("the largest of signed bytes, flattened for a layer, is found by vectors")
def signed_pool():
    random = np.random.default_rng(17)
    x = draw(random, 1, 8, 40)
    w, v = (random.integers(-127, 128, s).astype(np.int8) for s in ((64, 8, 1), (64 * 20, 24)))
    q = lambda a, s, z: (np.clip(np.rint(a / s) + z, -128, 127) - z) * s
    h = q(np.maximum(np.tensordot(w[:, :, 0] * 0.01, q(x[0].astype(np.float64), 0.03, 5), 1), 0), 0.02, -128)
    want = h.reshape(64, 20, 2).max(2).reshape(1, -1) @ (v * 0.01)
    nodes, weights = [], [G.weight("w", w), G.weight("v", v), G.weight("ws", np.float32(0.01)),
                          G.weight("wz", np.int8(0))]

    def through(x, name, scale, zero):
        weights.extend([G.weight(f"{name}s", np.float32(scale)), G.weight(f"{name}z", np.int8(zero))])
        nodes.extend([G.node("QuantizeLinear", [x, f"{name}s", f"{name}z"], [f"{name}q"]),
                      G.node("DequantizeLinear", [f"{name}q", f"{name}s", f"{name}z"], [f"{name}d"])])
        return f"{name}d"

    nodes += [G.node("DequantizeLinear", [k, "ws", "wz"], [f"{k}d"]) for k in "wv"]
    nodes.append(G.node("Conv", [through("x", "a", 0.03, 5), "wd"], ["c"]))
    nodes.append(G.node("Relu", ["c"], ["r"]))
    nodes.append(G.node("MaxPool", [through("r", "b", 0.02, -128)], ["p"], kernel_shape=[2], strides=[2]))
    nodes.append(G.node("Flatten", [through("p", "d", 0.02, -128)], ["f"]))
    nodes.append(G.node("MatMul", [through("f", "e", 0.02, -128), "vd"], ["y"]))
    text = run("signed_pool", nodes, {"x": x}, want, weights, error=1e-3)
    expect(any(name.startswith("maxpool") for name in kernels(text)), "a pool without vectors")


@suite.case("rows of a quantized embedding are picked as bytes")
def embedding():
    random = np.random.default_rng(7)
    table, row = random.integers(0, 256, (500, 48)).astype(np.uint8), random.integers(-500, 500, (2, 9))
    want = (table.astype(np.float64)[row] - 131) * 0.05
    nodes = [G.node("DequantizeLinear", ["table", "s", "z"], ["w"]), G.node("Gather", ["w", "x"], ["y"])]
    weights = [G.weight("table", table), G.weight("s", np.float32(0.05)), G.weight("z", np.uint8(131))]
    text = run("embedding", nodes, {"x": row}, want, weights)
    expect("24000" not in re.sub(r"/\*.*?\*/", "", text[:text.index("_weights")], flags=re.S),
           "the whole table is widened")
    expect(any("load_u8_f32x16" in body for body in kernels(text).values()), "rows without vectors")


@suite.case("weights of four bits in blocks")
def blocks():
    random = np.random.default_rng(8)
    for rows, zero in ((1, False), (5, True)):
        x = draw(random, rows, 128)
        w = random.integers(0, 256, (256, 4, 16)).astype(np.uint8)
        s = random.random((256, 4)).astype(np.float32) * 0.1
        z = random.integers(0, 256, (256, 2)).astype(np.uint8)
        q = np.stack([w & 15, w >> 4], -1).reshape(256, 4, 32).astype(np.float64)
        middle = np.stack([z & 15, z >> 4], -1).reshape(256, 4, 1) if zero else 8
        want = x.astype(np.float64) @ ((q - middle) * s[..., None]).reshape(256, 128).T
        nodes = [G.node("MatMulNBits", ["x", "w", "s", *(["z"] if zero else [])], ["y"],
                        domain="com.microsoft", K=128, N=256, bits=4, block_size=32)]
        weights = [G.weight("w", w), G.weight("s", s.ravel()), G.weight("z", z.ravel())]
        text = run(f"blocks{rows}", nodes, {"x": x}, want, weights[:2 + zero], domains=["com.microsoft"])
        expect(any("load_i8_f32x16" in body for body in kernels(text).values()), "no vectors of bytes")


# ---------------------------------------------------------------------------------------- forests


def forests(nrow, ntarget):
    random = np.random.default_rng(9)
    modes = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT"]
    x = draw(random, nrow, 6)
    x[::5, ::2] = np.round(x[::5, ::2])
    x[::3, 1], x[1, :] = np.nan, np.inf
    tree = {k: [] for k in ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids",
                            "falsenodeids", "missing_value_tracks_true")}
    leaf = {k: [] for k in ("treeids", "nodeids", "ids", "weights")}
    want = np.zeros((nrow, ntarget))

    def grow(t, depth, rows):
        """A subtree for these rows, its nodes in no order; its number."""
        number = len([k for k in tree["treeids"] if k == t])
        split = depth < 2 or (depth < 6 and random.random() < 0.6)
        mode, value = modes[random.integers(4)] if split else "LEAF", float(np.float32(random.integers(-2, 3) * 0.5))
        feature, missing = int(random.integers(6)), int(random.integers(2))
        at = len(tree["nodeids"])
        for k, v in zip(tree, (t, number, feature, value, mode, 0, 0, missing)):
            tree[k].append(v)
        if not split:
            for target in range(1 + number % ntarget):
                w = float(np.float32(random.standard_normal()))
                for k, v in zip(leaf, (t, number, target, w)):
                    leaf[k].append(v)
                want[rows, target] += w
            return number
        v = x[rows, feature]
        with np.errstate(invalid="ignore"):
            yes = {"BRANCH_LEQ": v <= value, "BRANCH_LT": v < value, "BRANCH_GTE": v >= value,
                   "BRANCH_GT": v > value}[mode] | (np.isnan(v) & bool(missing))
        tree["truenodeids"][at] = grow(t, depth + 1, rows[yes])
        tree["falsenodeids"][at] = grow(t, depth + 1, rows[~yes])
        return number

    for t in range(21):
        grow(t, 0, np.arange(nrow))
    nodes = [G.node("TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", n_targets=ntarget,
                    **{f"nodes_{k}": v for k, v in tree.items()}, **{f"target_{k}": v for k, v in leaf.items()})]
    text = run(f"forests_{nrow}", nodes, {"x": x}, want, [], domains=["ai.onnx.ml"])
    expect("tree_walk_f32" in text, "trees are walked one by one")
    expect("tree_rows_f32" in text, "rows walk one by one")


suite.add("forests of comparisons, walked together by several rows", forests, 45, 2)
suite.add("forests of comparisons, walked together by one row", forests, 5, 1)


suite.main()
