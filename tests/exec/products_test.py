"""Matrix products by seven parts (passes/graph/matmul/strassen.c, --strassen): how much they err, and which are taken. What
attention (passes/graph/defer_division.c, pack_keys.c, share_stages.c) and two large products of a vector become.

docs/winograd.md states the bounds. The reference is NumPy's, in double precision; which products were
taken is read from DEBUG=2.
"""

import json
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "lib")]

import ml_dtypes
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
    done = T.must(T.run([TGC, folder / "model.onnx", "-o", folder / "net.c", *T.HERE, *options],
                        env={"DEBUG": "2"}))
    T.build(folder / "net.c", folder / "net", main_by=TGC)
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


suite.add("an even number of rows", product, (1, 128, 256), 512, ["taken"], "--strassen")
suite.add("an odd number of rows", product, (1, 101, 384), 768, ["taken"], "--strassen")
suite.add("a batch, transposed weights",
          lambda: product((3, 70, 512), 320, ["taken"], "--strassen", transposed=True))
suite.add("few rows are left alone", product, (1, 32, 384), 768, ["left"], "--strassen")
suite.add("small matrices are left alone", product, (1, 64, 64), 64, ["left"], "--strassen")
suite.add("an odd sum has no halves", product, (1, 128, 385), 768, [], "--strassen")
suite.add("nothing is by parts unless it is asked for", product, (1, 128, 256), 512, [])
suite.add("--no-winograd is about convolutions", product, (1, 128, 256), 512, ["taken"], "--strassen", "--no-winograd")
suite.add("-O0", product, (1, 64, 256), 512, [], "-O0", "--strassen")
suite.add("samples are never added", product, (101, 384), 768, [], "--strassen")


def samples(shape, inner, taken):
    """What is no number in one sample stays there. inner: the shape that the product sees; taken: of it."""
    random = np.random.default_rng(6)
    x, w = draw(random, *shape), draw(random, shape[-1], 512, by=shape[-1] ** -0.5)
    nodes = [G.node("Reshape", ["x", "inner"], ["a"]), G.node("MatMul", ["a", "w"], ["b"]),
             G.node("Reshape", ["b", "outer"], ["y"])]
    outer = (*shape[:-1], 512)
    weights = [G.weight("w", w), G.weight("inner", np.array(inner)), G.weight("outer", np.array(outer))]
    name = "samples_" + "_".join(map(str, (*shape, *inner)))
    got = run(name, nodes, x, x.astype(np.float64) @ w, weights, "--strassen")
    expect(got == taken, f"{got} of the products, {taken} was expected")
    x[1, ..., 3], x[2] = np.nan, 3e38
    y = T.Program(SCRATCH / name / "net", ["y"]).run([x])["y"]
    rest = np.isfinite(y).all(axis=tuple(range(1, y.ndim)))
    expect(not rest[1] and rest[[0, *range(3, len(x))]].all(), f"finite: {rest}")


suite.add("rows of one sample are added", samples, (40, 8, 512), (40, 8, 512), ["taken"])
suite.add("rows of all samples are one axis", samples, (4, 64, 512), (256, 512), ["taken"])
suite.add("samples of one row", samples, (128, 512), (128, 512), [])


@suite.case("products by parts keep to the budget of error")
def budget():
    """Three layers, of which the first saves least for its error; each limit is below what more of them would add."""
    random = np.random.default_rng(12)
    sizes, nodes, weights, x = [256, 512, 1024, 768], [], [], "x"
    for k, (inner, columns) in enumerate(zip(sizes, sizes[1:])):
        weights.append(G.weight(f"w{k}", draw(random, inner, columns, by=(2 / inner) ** 0.5)))
        nodes += [G.node("MatMul", [x, f"w{k}"], [f"p{k}"]), G.node("Relu", [f"p{k}"], [f"r{k}"])]
        x = f"r{k}"
    folder = T.scratch(SCRATCH / "budget")
    onnx.save(G.model(nodes, [G.value("x", [1, 96, 256])], [G.value(x, [1, 96, 768])], weights),
              folder / "model.onnx")

    def told(*options):
        done = T.must(T.run([TGC, "info", folder / "model.onnx", "--json", *options], env={"DEBUG": "2"}))
        taken = re.findall(r"^strassen: .* (taken|left)$", done.err, re.M)
        return taken.count("taken"), json.loads(done.out)["error_estimate"]

    count, free = told("--strassen", "--error=1")
    expect(count == 3 and 1e-7 < free < 1e-4, f"without a limit {count} are taken, with an estimate of {free:.2g}")
    expect(told("--strassen") == (3, free), "by default they all fit")
    fewer, less = told("--strassen", f"--error={free * 0.9}")
    expect(0 < fewer < 3 and 0 < less <= free * 0.9, f"of {free * 0.9:.2g}, {fewer} with an estimate of {less:.2g}")
    expect(told("--strassen", "--error=0") == (0, 0), "--error=0 leaves them alone")
    expect(told() == (0, 0), "nothing is by parts unless it is asked for")
    data = draw(random, 1, 96, 256)
    want = data.astype(np.float64)
    for w in weights:
        want = np.maximum(want @ onnx.numpy_helper.to_array(w), 0)
    def result(*options):
        sub = T.scratch(folder / "_".join(options))
        T.must(T.run([TGC, folder / "model.onnx", "-o", sub / "net.c", *T.HERE, *options]))
        T.build(sub / "net.c", sub / "net", main_by=TGC)
        return T.Program(sub / "net", [x]).run([data])[x].astype(np.float64)

    plain = result("--error=1")
    by_plain = np.abs(plain - want).max() / want.max()
    for limit, estimate in ((1, free), (free * 0.9, less)):
        got = result("--strassen", f"--error={limit}")
        error, added = np.abs(got - want).max() / want.max(), np.abs(got - plain).max() / want.max()
        expect(error <= 1.5 * by_plain + limit, f"errors of {error:.2g}, {by_plain:.2g} without parts; limit {limit:.2g}")
        expect(added / 10 <= estimate <= 10 * added, f"the estimate is {estimate:.2g}, {added:.2g} were measured")


@suite.case("rows that meet elsewhere are no samples")
def words():
    random = np.random.default_rng(7)
    x, w = draw(random, 128, 512), draw(random, 512, 512, by=1 / 22)
    score = x.astype(np.float64) @ x.T / 22
    power = np.exp(score - score.max(axis=-1, keepdims=True))
    want = np.maximum(power / power.sum(axis=-1, keepdims=True) @ x, 0) @ w
    nodes = [G.node("Transpose", ["x"], ["t"], perm=[1, 0]), G.node("MatMul", ["x", "t"], ["r"]),
             G.node("Mul", ["r", "c"], ["s"]), G.node("Softmax", ["s"], ["p"], axis=-1),
             G.node("MatMul", ["p", "x"], ["m"]), G.node("Relu", ["m"], ["a"]), G.node("MatMul", ["a", "w"], ["y"])]
    got = run("words", nodes, x, want, [G.weight("w", w), G.weight("c", np.float32(1 / 22))], "--strassen")
    expect(got == ["taken"], f"{got} of the products")


@suite.case("a batch behind the rows: words first, samples second")
def words_first():
    random = np.random.default_rng(8)
    x, w = draw(random, 3, 64, 512), draw(random, 512, 512, by=1 / 22)
    nodes = [G.node("Transpose", ["x"], ["t"], perm=[1, 0, 2]), G.node("Reshape", ["t", "flat"], ["a"]),
             G.node("MatMul", ["a", "w"], ["y"])]
    want = x.astype(np.float64).transpose(1, 0, 2).reshape(192, 512) @ w
    got = run("words_first", nodes, x, want, [G.weight("w", w), G.weight("flat", np.array([192, 512]))],
              "--strassen")
    expect(got == ["taken"], f"{got} of the products")
    x[1] = np.nan
    y = T.Program(SCRATCH / "words_first" / "net", ["y"]).run([x])["y"].reshape(64, 3, 512)
    expect(np.isfinite(y[:, [0, 2]]).all(), "what is no number in one sample reaches another one")


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
    got = run("heads", nodes, x, want, weights, "--strassen")
    expect(got == ["taken"] * 2, f"{got} of the products")


@suite.case("attention is divided by its sums at last, long rows lie apart")
def attention():
    random = np.random.default_rng(4)
    x = draw(random, 1, 6, 512, 32)
    q, k, v = (x[:, 2 * i:2 * i + 2].astype(np.float64) for i in range(3))
    score = q[:, :, :300] @ k.transpose(0, 1, 3, 2) / 4
    power = np.exp(score - score.max(axis=-1, keepdims=True))
    want = power / power.sum(axis=-1, keepdims=True) @ v
    nodes = [G.node("Split", ["x"], ["a", "k", "v"], axis=1),
             G.node("Slice", ["a", "none", "rows", "axis"], ["q"]),
             G.node("Transpose", ["k"], ["t"], perm=[0, 1, 3, 2]), G.node("MatMul", ["q", "t"], ["s"]),
             G.node("Mul", ["s", "c"], ["r"]), G.node("Softmax", ["r"], ["p"], axis=-1),
             G.node("MatMul", ["p", "v"], ["y"])]
    weights = [G.weight("c", np.float32(0.25)), G.weight("none", np.array([0])),
               G.weight("rows", np.array([300])), G.weight("axis", np.array([2]))]
    run("attention", nodes, x, want, weights)
    text = (SCRATCH / "attention" / "net.c").read_text()
    kernel = re.search(r"^static void (?:softmax|matmul)_\d+\(.*?^}", text, re.M | re.S).group()
    expect(re.search(r"y\[[^\]]*\] = sum\S* / \w+", kernel), f"what is stored is no quotient: {kernel}")
    expect(not re.search(r"^ *(?!y\[)\w+\[[^\]]*\] = .* / \w*sum", kernel, re.M), f"quotients are kept: {kernel}")
    expect("row*528" in kernel, f"rows of 512 floats lie side by side: {kernel}")


def scores_of(name, queries, shape, mask, heads=4):
    """Attention of the queries (None: constants) to `shape` keys, its mask x's last row (None: there is none): one
    kernel, which packs the keys and pads the scores."""
    random = np.random.default_rng(9)
    batch, n, d = shape
    x = draw(random, batch, n + 1, 2 * d)
    split = lambda a: a.reshape(a.shape[0], -1, heads, d // heads).transpose(0, 2, 1, 3)
    constant = draw(random, 1, 30, d)
    q = split(constant if queries is None else x[:, :queries, :d]).astype(np.float64)
    k, v = (split(x[:, :n, i * d:i * d + d]).astype(np.float64) for i in range(2))
    score = q @ k.transpose(0, 1, 3, 2) / 4
    if mask is not None:
        score = score + mask
    power = np.exp(score - score.max(axis=-1, keepdims=True))
    want = power / power.sum(axis=-1, keepdims=True) @ v
    cut = lambda y, axis, first, last: [G.node("Slice", ["x" if axis == 1 else "kv", first, last, f"axis{axis}"], [y])]
    nodes = [*cut("kv", 1, "zero", "n"), *cut("ks", 2, "zero", "d"), *cut("vs", 2, "d", "dd")]
    nodes += [G.node("Slice", ["x", "zero2", "rows", "axes"], ["q0"])] if queries is not None else []
    for a, b, perm in ("q0", "q", [0, 2, 1, 3]), ("ks", "k", [0, 2, 3, 1]), ("vs", "v", [0, 2, 1, 3]):
        nodes += [G.node("Reshape", [a, "heads"], [b + "h"]), G.node("Transpose", [b + "h"], [b], perm=perm)]
    nodes += [G.node("MatMul", ["q", "k"], ["s"]), G.node("Mul", ["s", "c"], ["r"]),
              *([] if mask is None else [G.node("Add", ["r", "mask"], ["m"])]),
              G.node("Softmax", ["r" if mask is None else "m"], ["p"], axis=-1), G.node("MatMul", ["p", "v"], ["y"])]
    weights = [G.weight("c", np.float32(0.25)), G.weight("heads", np.array([0, -1, heads, d // heads])),
               *(G.weight(a, np.array([b])) for a, b in (("zero", 0), ("n", n), ("d", d), ("dd", 2 * d), ("axis1", 1),
                                                         ("axis2", 2))),
               *([G.weight("q0", constant)] if queries is None else
                 [G.weight("zero2", np.array([0, 0])), G.weight("rows", np.array([queries, d])),
                  G.weight("axes", np.array([1, 2]))]),
               *([] if mask is None else [G.weight("mask", mask.astype(np.float32))])]
    run(name, nodes, x, want, weights)
    wide = SCRATCH / name / "wide.c"
    T.emit(TGC, SCRATCH / name / "model.onnx", wide, "--cpu=avx512")
    text = wide.read_text()
    kernels = re.findall(r"^static void (\w+_\d+)\(", text, re.M)
    expect(len(kernels) == 1, f"scores are kept in memory: {kernels}")
    wide = -(-n // 16) * 16
    kernel = re.search(r"^static void \w+_\d+\(.*?^}", text, re.M | re.S).group()
    expect(f"k*{wide} + j]" in kernel, f"keys are not packed: {kernel}")


suite.add("constant queries", scores_of, "constants", None, (1, 100, 64), None)
suite.add("constant queries of a batch, beside a mask", scores_of, "constants_mask", None, (2, 100, 64),
          np.where(np.arange(100) < 80, 0, -1e4)[None, None, None])
suite.add("constant queries of one head", scores_of, "constants_head", None, (1, 96, 16), None, 1)
suite.add("keys that are padded beside a mask", scores_of, "mask", 40, (1, 61, 64),
          np.random.default_rng(1).standard_normal((4, 40, 61)))
suite.add("keys that are padded beside a causal mask", scores_of, "causal", 61, (1, 61, 64),
          np.triu(np.full((61, 61), -np.inf), 1))
suite.add("a mask that is read across", scores_of, "across", 40, (1, 61, 64),
          np.random.default_rng(1).standard_normal((4, 61, 40)).transpose(0, 2, 1))
suite.add("fewer keys than two vectors have lanes", scores_of, "few", 20, (1, 20, 64), None)


def expect_vectors(name):
    """No sum of products goes element by element, nor is its result stored so."""
    wide = SCRATCH / name / "wide.c"
    T.emit(TGC, SCRATCH / name / "model.onnx", wide, "--cpu=avx512")
    text = wide.read_text()
    kernels = re.findall(r"^IN_f32x16 static void \w+\(.*?^}", text, re.M | re.S)
    expect(kernels and not any(re.search(r"fmaf\(|store_apart", kernel) for kernel in kernels),
           "a product has no vectors")


@suite.case("keys that lie side by side are padded to whole vectors")
def side_by_side():
    random = np.random.default_rng(12)
    heads, n, d = 3, 61, 32
    x = draw(random, 3, heads, n, d)
    score = x[0].astype(np.float64) @ x[1].reshape(heads, d, n)
    power = np.exp(score - score.max(axis=-1, keepdims=True))
    want = power / power.sum(axis=-1, keepdims=True) @ x[2]
    nodes = [G.node("Gather", ["x", str(i)], [name], axis=0) for i, name in enumerate("qkv")]
    nodes += [G.node("Reshape", ["k", "shape"], ["t"]), G.node("MatMul", ["q", "t"], ["s"]),
              G.node("Softmax", ["s"], ["p"], axis=-1), G.node("MatMul", ["p", "v"], ["y"])]
    run("side_by_side", nodes, x, want, [G.weight("shape", np.array([heads, d, n])),
                                         *(G.weight(str(i), np.array(i)) for i in range(3))])
    expect_vectors("side_by_side")
    expect("k*64 + j]" in (SCRATCH / "side_by_side" / "net.c").read_text(), "keys are not padded")


@suite.case("bare scores have vectors, beside a bias that is gathered")
def gathered_bias():
    random = np.random.default_rng(10)
    heads, n, d = 4, 64, 32
    x = draw(random, 4, heads, n, d)
    at = np.broadcast_to(random.integers(0, d, (n, n)), (heads, n, n)).copy()
    keys = x[1].reshape(heads, d, n)
    score = x[0].astype(np.float64) @ keys + np.take_along_axis(x[3], at, axis=2)
    power = np.exp(score - score.max(axis=-1, keepdims=True))
    want = power / power.sum(axis=-1, keepdims=True) @ x[2]
    nodes = [G.node("Gather", ["x", str(i)], [name], axis=0) for i, name in enumerate("qkvb")]
    nodes += [G.node("Reshape", ["k", "shape"], ["t"]), G.node("MatMul", ["q", "t"], ["s"]),
              G.node("GatherElements", ["b", "at"], ["g"], axis=2), G.node("Add", ["s", "g"], ["o"]),
              G.node("Softmax", ["o"], ["p"], axis=-1), G.node("MatMul", ["p", "v"], ["y"])]
    run("gathered_bias", nodes, x, want,
        [G.weight("at", at), G.weight("shape", np.array([heads, d, n])),
         *(G.weight(str(i), np.array(i)) for i in range(4))])
    expect_vectors("gathered_bias")


@suite.case("einsum leaves the features of a head innermost, whatever the letters are")
def einsum_heads():
    random = np.random.default_rng(11)
    n, heads, d = 32, 4, 16
    x = draw(random, n, 1, 64)
    w = {name: draw(random, 64, heads, d, by=1 / 8) for name in "qkvo"}
    q, k, v = (np.einsum("ibh,hnd->ibnd", x.astype(np.float64), w[name]) for name in "qkv")
    score = np.einsum("ibnd,jbnd->bnij", q, k)
    power = np.exp(score - score.max(axis=-1, keepdims=True))
    p = power / power.sum(axis=-1, keepdims=True)
    want = np.einsum("ibnd,hnd->ibh", np.einsum("bnij,jbnd->ibnd", p, v), w["o"])
    nodes = [G.node("Einsum", ["x", "w" + name], [name], equation="ibh,hnd->ibnd") for name in "qkv"]
    nodes += [G.node("Einsum", ["q", "k"], ["s"], equation="ibnd,jbnd->bnij"),
              G.node("Softmax", ["s"], ["p"], axis=-1),
              G.node("Einsum", ["p", "v"], ["u"], equation="bnij,jbnd->ibnd"),
              G.node("Einsum", ["u", "wo"], ["y"], equation="ibnd,hnd->ibh")]
    run("einsum_heads", nodes, x, want, [G.weight("w" + name, w[name]) for name in "qkvo"])
    expect_vectors("einsum_heads")


@suite.case("keys that are too many to be copied are no product by parts, but lie across")
def long_keys():
    random = np.random.default_rng(12)
    n, heads, d = 512, 2, 192
    x = draw(random, 1, n, heads * d)
    w = {name: draw(random, heads * d, heads * d, by=0.02) for name in "qkv"}
    q, k, v = ((x.astype(np.float64) @ w[name]).reshape(n, heads, d).transpose(1, 0, 2) for name in "qkv")
    score = q @ k.transpose(0, 2, 1) / 16
    power = np.exp(score - score.max(axis=-1, keepdims=True))
    want = power / power.sum(axis=-1, keepdims=True) @ v
    nodes = []
    for name in "qkv":
        nodes += [G.node("MatMul", ["x", "w" + name], ["p" + name]),
                  G.node("Reshape", ["p" + name, "shape"], ["r" + name]),
                  G.node("Transpose", ["r" + name], [name], perm=[1, 2, 0] if name == "k" else [1, 0, 2])]
    nodes += [G.node("MatMul", ["q", "k"], ["s"]), G.node("Mul", ["s", "scale"], ["m"]),
              G.node("Softmax", ["m"], ["p"], axis=-1), G.node("MatMul", ["p", "v"], ["y"])]
    got = run("long_keys", nodes, x, want,
              [G.weight("scale", np.float32(1 / 16)), G.weight("shape", np.array([n, heads, d])),
               *(G.weight("w" + name, w[name]) for name in "qkv")], "--strassen")
    expect(got == ["taken"] * 2, f"{got} of the products")


def long_attention(n, heads, d=64):
    """Of n tokens, from one product of all heads' queries, keys and values, and a projection behind it; its C for
    AVX-512."""
    random = np.random.default_rng(n)
    c = heads * d
    x = draw(random, 1, n, c)
    w, bias, back = draw(random, c, 3 * c, by=c ** -0.5), draw(random, 3 * c), draw(random, c, c, by=c ** -0.5)
    q, k, v = (x[0].astype(np.float64) @ w + bias).reshape(n, 3, heads, d).transpose(1, 2, 0, 3)
    score = q @ k.transpose(0, 2, 1) / 8
    power = np.exp(score - score.max(axis=-1, keepdims=True))
    heads_out = power / power.sum(axis=-1, keepdims=True) @ v
    want = heads_out.transpose(1, 0, 2).reshape(1, n, c) @ back.astype(np.float64)
    nodes = [G.node("MatMul", ["x", "w"], ["p"]), G.node("Add", ["p", "bias"], ["b"]),
             G.node("Reshape", ["b", "shape"], ["r"]), G.node("Transpose", ["r"], ["t"], perm=[2, 0, 3, 1, 4])]
    nodes += [G.node("Gather", ["t", f"at{i}"], [name], axis=0) for i, name in enumerate("qkv")]
    nodes += [G.node("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2]), G.node("Mul", ["q", "scale"], ["m"]),
              G.node("MatMul", ["m", "kt"], ["s"]), G.node("Softmax", ["s"], ["e"], axis=-1),
              G.node("MatMul", ["e", "v"], ["o"]), G.node("Transpose", ["o"], ["ot"], perm=[0, 2, 1, 3]),
              G.node("Reshape", ["ot", "flat"], ["f"]), G.node("MatMul", ["f", "back"], ["y"])]
    run(f"long_{n}", nodes, x, want,
        [G.weight("w", w), G.weight("bias", bias), G.weight("back", back), G.weight("scale", np.float32(1 / 8)),
         G.weight("shape", np.array([1, n, 3, heads, d])), G.weight("flat", np.array([1, n, c])),
         *(G.weight(f"at{i}", np.array(i)) for i in range(3))])
    folder = SCRATCH / f"long_{n}"
    T.emit(TGC, folder / "model.onnx", folder / "wide.c", "--cpu=avx512")
    return (folder / "wide.c").read_text()


@suite.case("a long attention's scores are kept by head, in bands of rows, or row by row where no bands divide them")
def long_scores():
    for n, heads in (1500, 6), (1031, 6):
        text = long_attention(n, heads)
        whole = re.findall(rf"f32\[[^]]*\b{n},{n}\b", text)
        expect(not whole, f"scores of {n} tokens are stored: {whole}")
        bands = re.search(r"for \(int band2? = 0", text)
        expect((bands is not None) == (n == 1500), f"{n} tokens: {'bands' if bands else 'no bands'}")
        alone = re.findall(r"sum\d* \+= \w+\[[^;]*\] \* \w+\[", text)
        expect(n % 4 or not alone, f"{n} tokens: sums of single products {alone}")
    expect(re.search(r"for \(int band2 = 0", long_attention(1500, 12)), "no bands by heads")


@suite.case("scores by the distance of key and query, made at run time, are a product of their own")
def distances():
    random = np.random.default_rng(13)
    heads, n, d = 4, 64, 16
    x = draw(random, 1, 3 * n, 64)
    w = {name: draw(random, 64, heads, d, by=1 / 8) for name in "qkvr"}
    q, k, v, r = (np.einsum("ih,hnd->nid", x[0, part].astype(np.float64), w[name])
                  for name, part in zip("qkvr", [slice(n)] * 3 + [slice(n, None)]))
    at = n + np.arange(n) - np.arange(n)[:, None]
    moved = np.take_along_axis(q @ r.transpose(0, 2, 1), np.broadcast_to(at, (heads, n, n)), axis=2)
    score = (q @ k.transpose(0, 2, 1) + moved) / 8
    power = np.exp(score - score.max(axis=-1, keepdims=True))
    want = (power / power.sum(axis=-1, keepdims=True) @ v).transpose(1, 0, 2)[None]
    nodes = [G.node("Split", ["x", "sizes"], ["words", "places"], axis=1)]
    nodes += [G.node("Einsum", ["places" if name == "r" else "words", "w" + name], [name],
                     equation="bih,hnd->bind") for name in "qkvr"]
    nodes += [G.node("Einsum", ["q", "k"], ["s"], equation="bind,bjnd->bnij"),
              G.node("Einsum", ["q", "r"], ["t0"], equation="bind,bjnd->bnij"),
              G.node("Reshape", ["t0", "turned"], ["t1"]),
              G.node("Slice", ["t1", "one", "end", "axis"], ["t2"]),
              G.node("Reshape", ["t2", "back"], ["t3"]), G.node("Slice", ["t3", "zero", "n", "last"], ["t"]),
              G.node("Add", ["s", "t"], ["o"]), G.node("Mul", ["o", "scale"], ["m"]),
              G.node("Softmax", ["m"], ["p"], axis=-1),
              G.node("Einsum", ["p", "v"], ["y"], equation="bnij,bjnd->bind")]
    weights = [*(G.weight("w" + name, w[name]) for name in "qkvr"), G.weight("sizes", np.array([n, 2 * n])),
               G.weight("scale", np.float32(1 / 8)),
               G.weight("turned", np.array([1, heads, 2 * n, n])), G.weight("back", np.array([1, heads, n, 2 * n - 1])),
               G.weight("one", np.array([1])), G.weight("end", np.array([2 * n])), G.weight("axis", np.array([2])),
               G.weight("zero", np.array([0])), G.weight("n", np.array([n])), G.weight("last", np.array([3]))]
    run("distances", nodes, x, want, weights)
    kernels = set(re.findall(r"^static void (einsum_\d+)\(", (SCRATCH / "distances" / "net.c").read_text(), re.M))
    expect(len(kernels) == 4, f"layers of words and of places, the product and attention are {kernels}")


@suite.case("what is no softmax, whose powers may be large, is divided before it is summed up")
def quotients():
    random = np.random.default_rng(6)
    both = draw(random, 2, 64, 64)
    both[0, :, 5] = 85
    x, v = both.astype(np.float64) * [[[1]], [[1e6]]]
    power = np.exp(x - np.minimum(x, 0).max(axis=1, keepdims=True))
    want = power / power.sum(axis=1, keepdims=True) @ v
    nodes = [G.node("Gather", ["x", "first"], ["a"]), G.node("Gather", ["x", "second"], ["b"]),
             G.node("Mul", ["b", "million"], ["v"]), G.node("Min", ["a", "zero"], ["m"]),
             G.node("ReduceMax", ["m"], ["l"], axes=[1]), G.node("Sub", ["a", "l"], ["d"]),
             G.node("Exp", ["d"], ["e"]), G.node("ReduceSum", ["e", "last"], ["s"]),
             G.node("Div", ["e", "s"], ["p"]), G.node("MatMul", ["p", "v"], ["y"])]
    weights = [G.weight("zero", np.float32(0)), G.weight("last", np.array([1])),
               G.weight("million", np.float32(1e6)), G.weight("first", np.array(0)),
               G.weight("second", np.array(1))]
    run("quotients", nodes, both, want, weights)


def huge_values(dtype, *options, bound=None):
    """Attention of values up to the largest float: means of them, which are finite though their sums are not."""
    random = np.random.default_rng(14)
    n, d = 150, 32
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    q, k, v = (random.standard_normal((2, n, d)) for _ in range(3))
    largest = float(ml_dtypes.finfo(dtype).max)
    v = np.where(np.arange(d) % 2, np.abs(v).clip(0.3, 0.9), v.clip(-0.9, 0.9)) * largest
    q, k, v = (a.astype(dtype) for a in (q, k, v))
    mask = np.where(random.random((n, n)) < 0.3, -np.inf, 0)
    mask[:, 0], mask[7], mask[8, 1:], mask[9] = 0, -3, -np.inf, np.where(np.arange(n) < 140, -np.inf, 0)
    score = q.astype(np.float64) @ k.astype(np.float64).transpose(0, 2, 1) * 0.25 + mask
    power = np.exp(score - score.max(axis=-1, keepdims=True))
    want = power / power.sum(axis=-1, keepdims=True) @ v.astype(np.float64)
    name = "_".join(["huge", np.dtype(dtype).name, str(bound), *options])
    folder = T.scratch(SCRATCH / name)
    size = "n" if bound else n
    inputs = [G.value(a, [2, size, d], kind) for a in "qkv"] + [G.value("mask", [size, size], kind)]
    nodes = [G.node("Transpose", ["k"], ["t"], perm=[0, 2, 1]), G.node("MatMul", ["q", "t"], ["s"]),
             G.node("Mul", ["s", "c"], ["r"]), G.node("Add", ["r", "mask"], ["m"]),
             G.node("Softmax", ["m"], ["p"], axis=-1), G.node("MatMul", ["p", "v"], ["y"])]
    onnx.save(G.model(nodes, inputs, [G.value("y", [2, size, d], kind)], [G.weight("c", np.array(0.25, dtype))], opset=13),
              folder / "model.onnx")
    T.emit(TGC, folder / "model.onnx", folder / "net.c", *T.HERE, *options, *([f"--dim=n<={bound}"] if bound else []))
    T.build(folder / "net.c", folder / "net", main_by=TGC)
    y = T.Program(folder / "net", ["y"]).run([q, k, v, mask.astype(dtype)])["y"]
    y = (y if y.dtype == np.dtype(dtype) else y.view(dtype)).astype(np.float64)
    expect(np.isfinite(y).all(), f"{(~np.isfinite(y)).sum()} of {y.size} elements are not finite")
    error = np.abs(y / largest - want / largest).max()
    expect(error < 30 * float(ml_dtypes.finfo(dtype).eps), f"an error of {error:.2g} of the largest number")
    expect(re.search(r"exp_f32\S*\(", (folder / "net.c").read_text()), "there is no softmax")


for one in np.float32, np.float16, ml_dtypes.bfloat16:
    suite.add(f"means of the largest {np.dtype(one).name} are finite", huge_values, one)
suite.add("means of the largest floats of a run-time number of keys", lambda: huge_values(np.float32, bound=300))
suite.add("means of the largest floats in plain C", lambda: huge_values(np.float32, "--cpu=generic"))


@suite.case("heads that are mixed keep the keys innermost, so that softmax has vectors")
def mixed_heads():
    random = np.random.default_rng(9)
    x, m, b = draw(random, 1, 12, 97, 32), draw(random, 4, 4), draw(random, 4)
    q, k, v = (x[:, 4 * i:4 * i + 4].astype(np.float64) for i in range(3))
    score = np.einsum("bhij,hg->bgij", q @ k.transpose(0, 1, 3, 2) / 8, m) + b[:, None, None]
    power = np.exp(score - score.max(axis=-1, keepdims=True))
    want = np.einsum("bhij,hg->bgij", power / power.sum(axis=-1, keepdims=True), m) @ v
    nodes = [G.node("Split", ["x"], ["q", "k", "v"], axis=1), G.node("Transpose", ["k"], ["t"], perm=[0, 1, 3, 2]),
             G.node("MatMul", ["q", "t"], ["r"]), G.node("Mul", ["r", "c"], ["s"]),
             G.node("Transpose", ["s"], ["last"], perm=[0, 2, 3, 1]), G.node("MatMul", ["last", "m"], ["n"]),
             G.node("Add", ["n", "b"], ["o"]), G.node("Transpose", ["o"], ["heads"], perm=[0, 3, 1, 2]),
             G.node("Softmax", ["heads"], ["p"], axis=-1), G.node("Transpose", ["p"], ["p2"], perm=[0, 2, 3, 1]),
             G.node("MatMul", ["p2", "m"], ["p3"]), G.node("Transpose", ["p3"], ["p4"], perm=[0, 3, 1, 2]),
             G.node("MatMul", ["p4", "v"], ["y"])]
    run("mixed_heads", nodes, x, want, [G.weight("c", np.float32(0.125)), G.weight("m", m), G.weight("b", b)])
    text = (SCRATCH / "mixed_heads" / "net.c").read_text()
    expect(re.search(r"^ +\S.*exp_f32x\d+\(load", text, re.M), "softmax has no vectors")


@suite.case("two large weights that one vector is multiplied by are two kernels, both packed")
def vectors():
    random = np.random.default_rng(5)
    x, u, w = draw(random, 1, 256), draw(random, 256, 512, by=1 / 16), draw(random, 256, 512, by=1 / 16)
    gate = x.astype(np.float64) @ u
    want = gate / (1 + np.exp(-gate)) * (x.astype(np.float64) @ w)
    nodes = [G.node("MatMul", ["x", "u"], ["g"]), G.node("Sigmoid", ["g"], ["s"]), G.node("Mul", ["g", "s"], ["a"]),
             G.node("MatMul", ["x", "w"], ["b"]), G.node("Mul", ["a", "b"], ["y"])]
    run("vectors", nodes, x, want, [G.weight("u", u), G.weight("w", w)])
    kernels = set(re.findall(r"static void (matmul_\d+|mul_\d+)\(", (SCRATCH / "vectors" / "net.c").read_text()))
    expect(len(kernels) == 2, f"kernels: {kernels}")


suite.main()
