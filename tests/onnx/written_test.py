"""Models that tgc writes: with new weights, and from text graphs.

What is written must pass onnx.checker, give in ONNX Runtime what tgc gives, and be read by tgc again.
"""

import collections
import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "lib"), str(HERE.parent / "fuzz")]

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NotImplementedKernel

import graphs as G
import tgc as T
import written as random_graph
from suite import Suite, expect

suite = Suite("written")
OPTIONS = suite.parse()
BUILD = Path(OPTIONS.build).resolve()
TGC, TRAINED = T.find_tgc(OPTIONS.build).resolve(), BUILD / "tests/onnx/trained"
SCRATCH = T.scratch(BUILD / "test-scratch" / "written")
case = suite.folder_case(SCRATCH)
DTYPES = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16, "I64": np.int64, "I32": np.int32, "U8": np.uint8, "BOOL": np.bool_}


def random(seed=7):
    return np.random.default_rng(seed)


def safetensors(path):
    """The tensors of a file, by name."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    tensors, end = {}, 0
    for name, t in json.loads(data[8:8 + length]).items():
        begin, end = t["data_offsets"]
        tensors[name] = np.frombuffer(data[8 + length + begin:8 + length + end], DTYPES[t["dtype"]]).reshape(t["shape"])
    expect(8 + length + end == len(data), f"{path.name}: its tensors end at {end}, the file at {len(data) - 8 - length}")
    return tensors


def trained(folder, source, out, weights, *options, status=0):
    """Writes `source` with new weights as `out`; returns what was said."""
    words = []
    for i, (name, array) in enumerate(weights.items()):
        narrow = array.dtype == ml_dtypes.bfloat16
        np.save(folder / f"{i}.npy", array.view(np.uint16) if narrow else array)
        words.append(f"{name}={i}.npy" + (",bf16" if narrow else ""))
    done = T.must(T.run([TRAINED, *options, source, out, *words], cwd=folder), status)
    return done.err


def run_onnx(path, inputs):
    """By ONNX Runtime; where it has no kernel for a dtype, by the interpreter of the onnx package."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except NotImplementedKernel:
        reference = ReferenceEvaluator(str(path))
        return dict(zip(reference.output_names, reference.run(None, inputs)))
    return dict(zip((o.name for o in session.get_outputs()), session.run(None, inputs)))


def run_tgc(folder, model, inputs, *options):
    words = []
    for i, (name, array) in enumerate(inputs.items()):
        np.save(folder / f"in{i}.npy", array)
        words += ["-i", f"{name}=in{i}.npy"]
    T.scratch(folder / "out")
    T.must(T.run([TGC, "run", model, *words, "--out-dir", "out", *options], cwd=folder, env=T.quickly()))
    return {p.stem: np.load(p) for p in (folder / "out").glob("*.npy")}


def close(got, want, rtol=1e-5, atol=1e-6):
    expect(set(got) == set(want), f"outputs {sorted(got)}, expected {sorted(want)}")
    for name in want:
        expect(got[name].shape == want[name].shape and np.allclose(got[name], want[name], rtol, atol, equal_nan=True),
               f"{name}: {got[name].ravel()[:8]}\nexpected {want[name].ravel()[:8]}")


def same_bits(got, want, name):
    expect(got.dtype == want.dtype and got.shape == want.shape and got.tobytes() == want.tobytes(),
           f"{name}: {got.dtype}{got.shape} {got.ravel()[:6]}\nexpected {want.dtype}{want.shape} {want.ravel()[:6]}")


def without(m, names):
    """A copy of a model without what these initializers hold."""
    m = onnx.ModelProto.FromString(m.SerializeToString())
    for t in m.graph.initializer:
        if t.name in names:
            for field in ("raw_data", "float_data", "int32_data", "double_data"):
                t.ClearField(field)
    return m


# -------------------------------------------------------------------------------------------------- new weights


def described():
    """A perceptron with what a file may say besides: documentation, metadata, a producer, a type in between."""
    m = G.perceptron()
    m.producer_name, m.producer_version, m.doc_string, m.model_version = "trainer", "1.2", "what it is for", 3
    m.metadata_props.add(key="license", value="MIT")
    m.graph.doc_string = "two layers"
    m.graph.node[0].doc_string = "the first"
    m.graph.value_info.append(G.value("h", [1, 16]))
    return m


@case("initializers are replaced, all else is as it was")
def initializers(folder):
    m = described()
    w1, b1, w2, b2 = m.graph.initializer
    # three ways to store floats: raw, float_data, and another file
    b1.CopyFrom(helper.make_tensor("b1", TensorProto.FLOAT, [16], numpy_helper.to_array(b1).tolist()))
    onnx.save(m, folder / "m.onnx")
    new = {"w1": random().standard_normal((8, 16), np.float32), "b1": np.full(16, -0.0, np.float32)}
    trained(folder, "m.onnx", "n.onnx", new)
    written = onnx.load(folder / "n.onnx")
    onnx.checker.check_model(written, full_check=True)
    for t in written.graph.initializer:
        old = {"w2": w2, "b2": b2}.get(t.name)
        same_bits(numpy_helper.to_array(t), new[t.name] if old is None else numpy_helper.to_array(old), t.name)
    expect(without(written, new) == without(m, new), f"more than the weights differs:\n{written}")
    x = random(1).standard_normal((1, 8), np.float32)
    close(run_onnx(folder / "n.onnx", {"x": x}), {"y": G.perceptron_reference(written, x)})
    close(run_tgc(folder, "n.onnx", {"x": x}), {"y": G.perceptron_reference(written, x)})


@case("halves, doubles, a tied weight, one of a single element")
def dtypes(folder):
    f16, bf16, f64, one = (random().standard_normal((4, 4)).astype(d) for d in (np.float16, ml_dtypes.bfloat16, np.float64, np.float32))
    one = one[:1, :1]
    m = G.model(
        [G.node("Cast", [n], [n + "f"], to=TensorProto.FLOAT) for n in ("h", "b", "d")] +
        [G.node("MatMul", ["x", "hf"], ["1"]), G.node("MatMul", ["1", "bf"], ["2"]), G.node("MatMul", ["2", "hf"], ["3"]),
         G.node("Mul", ["3", "one"], ["4"]), G.node("MatMul", ["4", "df"], ["y"])],
        [G.value("x", [4, 4])], [G.value("y", [4, 4])],
        [G.weight("h", f16), helper.make_tensor("b", TensorProto.BFLOAT16, [4, 4], bf16.tobytes(), raw=True), G.weight("d", f64), G.weight("one", one)], opset=18)
    onnx.save(m, folder / "m.onnx")
    new = {"h": f16 * np.float16(2), "b": (bf16 * bf16).astype(bf16.dtype), "d": -f64, "one": one + 1}
    trained(folder, "m.onnx", "n.onnx", new)
    written = onnx.load(folder / "n.onnx")
    onnx.checker.check_model(written, full_check=True)
    for t in written.graph.initializer:
        same_bits(numpy_helper.to_array(t), new[t.name], t.name)
    h, b, d = (new[n].astype(np.float32) for n in ("h", "b", "d"))
    x = np.eye(4, dtype=np.float32)
    close(run_onnx(folder / "n.onnx", {"x": x}), {"y": h @ b @ h * new["one"] @ d}, 1e-4)
    trained(folder, "m.onnx", "n.safetensors", new)
    for name, array in safetensors(folder / "n.safetensors").items():
        same_bits(array, new[name], name)


@case("Constant nodes: by the tensor's name, or that of what the node makes")
def constants(folder):
    w = random().standard_normal((3, 3), np.float32)
    named, unnamed = numpy_helper.from_array(w, "kernel"), numpy_helper.from_array(w + 1)
    m = G.model([G.node("Constant", [], ["k"], value=named), G.node("Constant", [], ["l"], value=unnamed),
                 G.node("MatMul", ["x", "k"], ["1"]), G.node("MatMul", ["1", "l"], ["y"])], [G.value("x", [3, 3])], [G.value("y", [3, 3])])
    onnx.save(m, folder / "m.onnx")
    trained(folder, "m.onnx", "n.onnx", {"kernel": w * 2, "l": w * 3})
    x = np.eye(3, dtype=np.float32)
    close(run_onnx(folder / "n.onnx", {"x": x}), {"y": w @ w * 6})
    trained(folder, "m.onnx", "n.tg", {"kernel": w * 2, "l": w * 3})
    close(run_tgc(folder, "n.tg", {"x": x}), {"y": w @ w * 6})


@case("weights in another file: inside where they fit, else beside the model")
def external(folder):
    w1, w2 = random().standard_normal((2, 32, 32), np.float32)
    m = G.model([G.node("MatMul", ["x", "w1"], ["h"]), G.node("MatMul", ["h", "w2"], ["1"]), G.node("Reshape", ["1", "shape"], ["y"])],
                [G.value("x", [2, 32])], [G.value("y", [64])], [G.weight("w1", w1), G.weight("w2", w2), G.weight("shape", np.array([64]))])
    onnx.save(m, folder / "m.onnx", save_as_external_data=True, location="m.bin", size_threshold=0)
    x = random(1).standard_normal((2, 32), np.float32)
    want = {"y": (x @ (w1 + 1) @ w2).ravel()}
    trained(folder, "m.onnx", "n.onnx", {"w1": w1 + 1})
    trained(folder, "m.onnx", "o.onnx", {"w1": w1 + 1}, "-m", "4000")
    (folder / "m.bin").unlink()
    expect(not (folder / "n.onnx.data").exists(), "n.onnx.data was written, which nothing needs")
    expect((folder / "o.onnx.data").stat().st_size == 2 * w1.nbytes and (folder / "o.onnx").stat().st_size < 1000,
           "the weights are not in o.onnx.data alone")
    for name in ("n.onnx", "o.onnx"):
        onnx.checker.check_model(str(folder / name), full_check=True)
        close(run_onnx(folder / name, {"x": x}), want, 1e-4, 1e-5)
    T.must(T.run([TGC, "verify", "n.onnx", "o.onnx"], cwd=folder, env=T.quickly()))


@case("a text graph: text and safetensors, safetensors alone, ONNX")
def text(folder):
    source = T.ROOT / "models/digits.tg"
    new = {"hidden.weight": random().standard_normal((64, 24), np.float32), "score.bias": np.arange(10, dtype=np.float32)}
    trained(folder, source, "n.tg", new)
    trained(folder, source, "n.onnx", new)
    trained(folder, source, "old.safetensors", {})
    trained(folder, source, "new.safetensors", new)
    expect("%hidden = relu(%h2)" in (folder / "n.tg").read_text() and "# Reads a digit" in (folder / "n.tg").read_text(), "the text is not the author's")
    old, written = safetensors(folder / "old.safetensors"), safetensors(folder / "new.safetensors")
    expect(sorted(written) == ["hidden.bias", "hidden.weight", "score.bias", "score.weight"], f"weights {sorted(written)}")
    for name, array in written.items():
        same_bits(array, new.get(name, old[name]), name)
    x = random(1).uniform(0, 1, (1, 64)).astype(np.float32)
    hidden = np.maximum(x @ written["hidden.weight"] + written["hidden.bias"], 0)
    e = np.exp(hidden @ written["score.weight"] + written["score.bias"])
    close(run_tgc(folder, "n.tg", {"picture": x}), {"probabilities": e / e.sum()}, 1e-4)
    close(run_onnx(folder / "n.onnx", {"picture": x}), {"probabilities": e / e.sum()}, 1e-4)


@case("a text graph that needs other files, or whose weights share a name, is written as its ops")
def not_alone(folder):
    w = random().standard_normal((3, 3), np.float32)
    onnx.save(G.model([G.node("MatMul", ["x", "k"], ["y"])], [G.value("x", [3, 3])], [G.value("y", [3, 3])], [G.weight("k", w)]), folder / "m.onnx")
    (folder / "m.tg").write_text('tg 1\nimport layer = "m.onnx"\ninput %x : f32[3, 3]\nweight %w : f32[3, 3] = ones()\n%h = matmul(%x, %w)\n%y = layer(%h)\noutput %y as "y"\n')
    (folder / "sub").mkdir()
    trained(folder, "m.tg", "sub/n.tg", {"w": w + 1})
    x = np.eye(3, dtype=np.float32)
    close(run_tgc(folder, "sub/n.tg", {"x": x}), {"y": (w + 1) @ w}, 1e-4)
    (folder / "t.tg").write_text('tg 1\ninput %x : f32[3]\nweight %a : f32[3] as "w" = ones()\nweight %b : f32[3] as "w" = zeros()\n%h = mul(%x, %a)\n%y = add(%h, %b)\noutput %y as "y"\n')
    trained(folder, "t.tg", "u.tg", {})
    close(run_tgc(folder, "u.tg", {"x": x[0]}), {"y": x[0]})


@case("what cannot be written is refused, and nothing is left")
def refused(folder):
    onnx.save(G.perceptron(), folder / "m.onnx")
    for out, weights, words in (
            ("n.onnx", {"w3": np.zeros(3, np.float32)}, "weight 'w3': error: the model has no weight of this name"),
            ("n.tg", {"w3": np.zeros(3, np.float32)}, "weight 'w3': error: the model has no weight of this name"),
            ("n.onnx", {"b1": np.zeros(3, np.float32)}, "is f32[16] in the model, but its new values are f32[3]"),
            ("n.safetensors", {"b1": np.zeros(16)}, "is f32[16] in the model, but its new values are f64[16]"),
            ("n.c", {}, "is written as .onnx, .tg or .safetensors")):
        said = trained(folder, "m.onnx", out, weights, status=1)
        expect(words in said, f"{out}: {said}")
    expect(sorted(p.name for p in folder.iterdir()) == ["0.npy", "m.onnx"], f"left: {sorted(p.name for p in folder.iterdir())}")



# -------------------------------------------------------------------------------------------------- text graphs as ONNX


def operators(m):
    return [n.op_type for n in m.graph.node]


def written(folder, source, inputs, *options, sizes=(), dims=(), rtol=1e-5, atol=1e-6, again=True):
    """Writes a graph as ONNX; compares ONNX Runtime with tgc, and tgc with itself, on these inputs."""
    bounds = [f"--dim={name}=..{n}" for name, n in sizes]
    done = T.must(T.run([TGC, source, "-o", "n.onnx", *options], cwd=folder))
    m = onnx.load(folder / "n.onnx")
    onnx.checker.check_model(m, full_check=True)
    want = run_tgc(folder, source, inputs, *options)
    close(run_onnx(folder / "n.onnx", inputs), want, rtol, atol)
    if again:
        close(run_tgc(folder, "n.onnx", inputs, *bounds), want, rtol, atol)
    return m


def uniform(*shape, seed=3):
    return random(seed).uniform(-1, 1, shape).astype(np.float32)


MODELS = T.ROOT / "models"


@case("digits: MatMul, Relu, Softmax, by the model's names")
def digits(folder):
    m = written(folder, MODELS / "digits.tg", {"picture": uniform(1, 64)})
    expect(operators(m) == ["MatMul", "Add", "Relu", "MatMul", "Add", "Softmax"], f"operators {operators(m)}")
    expect([n.name for n in m.graph.node] == ["h1", "Add", "hidden", "s1", "Add_2", "probabilities"], f"names {[n.name for n in m.graph.node]}")
    expect([t.name for t in m.graph.initializer] == ["hidden.weight", "hidden.bias", "score.weight", "score.bias"], "weights' names")
    T.must(T.run([TGC, "verify", MODELS / "digits.tg", "n.onnx"], cwd=folder, env=T.quickly()))


def model_case(name, shapes, sizes=(), **more):
    def run(folder):
        written(folder, MODELS / f"{name}.tg", {n: uniform(*shape, seed=i) for i, (n, shape) in enumerate(shapes.items())}, sizes=sizes, **more)
    case(f"models: {name}")(run)


model_case("mlp", {"observation": (3, 64)}, [("B", 64)])
model_case("mnist_cnn", {"image": (2, 1, 28, 28)}, [("B", 64)])
model_case("gelu", {"x": (9,)}, [("N", 4096)])
model_case("layer_norm", {"x": (2, 5, 384)}, [("B", 32), ("T", 128)], atol=1e-5)
model_case("dot_product", {"a": (7,), "b": (7,)}, [("N", 1024)])
model_case("causal_attention", {"q": (2, 8, 6, 32), "k": (2, 2, 6, 32), "v": (2, 2, 6, 32)}, [("B", 4), ("T", 256)])
model_case("sliding_window_attention", {n: (2, 4, 20, 32) for n in "qkv"}, [("B", 4), ("T", 256)])
model_case("transformer_block", {"x": (2, 7, 128)}, [("B", 4), ("T", 128)], atol=1e-5)


def graph(folder, lines, inputs, dims="", **more):
    """A text graph of these lines, each `name = expression`, of which each makes an output."""
    types = {"float32": "f32", "float64": "f64", "float16": "f16", "bool": "bool"}
    sizes = {n: dims.get(n) if isinstance(dims, dict) else None for n in inputs}
    text = ["tg 1"]
    for name, array in inputs.items():
        kind = types.get(array.dtype.name) or array.dtype.name.replace("uint", "u").replace("int", "i")
        text.append(f"input %{name} : {kind}[{sizes[name] or ', '.join(map(str, array.shape))}]")
    for k, line in enumerate(lines):
        text.append(f"%r{k} = {line}")
    text += [f'output %r{k} as "r{k}"' for k in range(len(lines))]
    (folder / "m.tg").write_text("\n".join(text) + "\n")
    return written(folder, "m.tg", inputs, **more)


BOTH = "abs(%x)", "add(%x, %y)", "sub(%x, %y)", "mul(%x, %y)", "max(%x, %y)", "min(%x, %y)", "lt(%x, %y)", "eq(%x, %y)", "ne(%x, %y)", "where(%c, %x, %y)", \
    "div(%x, %y)", "mod(%x, %y)", "floormod(%x, %y)", "reduce(%x) {op=add, axes=[1]}", "reduce(%x) {op=max, axes=[0, 1]}", "reduce(%y) {op=min, axes=[0]}", \
    "cast(%x) {to=f32}", "cast(%x) {to=i64}", "cast(%x) {to=bool}", "stack(%i, %x, %y)", "pad(%x) {lo=[1, 0], hi=[0, 2]}", "flip(%x) {axes=[1]}", \
    "window(%x) {axis=1, out=2, kernel=2, stride=1}", "concat(%x, %y) {axis=1}"
FLOAT = "sqrt(%y)", "recip(%x)", "exp(%x)", "log(%y)", "sin(%x)", "cos(%x)", "tanh(%x)", "sinh(%x)", "cosh(%x)", "asinh(%x)", "atan(%x)", "floor(%x)", "ceil(%x)", "trunc(%x)", \
    "round(%x)", "isnan(%x)", "pow(%y, %x)", "neg(%x)", "sigmoid(%x)", "relu(%x)", "softmax(%x) {axis=0}", "gelu_tanh(%x)", "silu(%x)"
SINGLE = "tan(%x)", "asin(%z)", "acos(%z)", "acosh(%y)", "atanh(%z)", "erf(%x)", "gelu(%x)"
INTEGER = "and(%x, %y)", "or(%x, %y)", "xor(%x, %y)", "not(%x)", "floordiv(%x, %y)", "shl(%x, %s)", "shr(%x, %s)", "neg(%x)"


def operands(dtype):
    r = random(5)
    if np.dtype(dtype).kind == "f":
        x, y = (r.uniform(-2, 2, (3, 4)) for _ in range(2))
        y = abs(y) + 0.5
    else:
        info = np.iinfo(dtype)
        x, y = r.integers(max(info.min, -1000), min(info.max, 1000), (3, 4)), r.integers(max(info.min, -3), 4, (3, 4))
    inputs = {"x": x.astype(dtype), "y": y.astype(dtype), "c": r.random((3, 4)) < 0.5, "i": r.integers(-1, 3, (3, 4))}
    if dtype == "float32":
        inputs["z"] = x.astype(dtype) / 3
    if np.dtype(dtype).kind != "f":
        inputs["s"] = r.integers(0, min(7, np.iinfo(dtype).bits - 1), (3, 4)).astype(dtype)
    return inputs


def each_op(folder, dtype):
    is_float = np.dtype(dtype).kind == "f"
    more = SINGLE if dtype == "float32" else ()
    lines = [*BOTH, *(FLOAT if is_float else INTEGER), *more]
    rtol = 2e-3 if dtype == "float16" else 1e-5
    graph(folder, lines, operands(dtype), rtol=rtol, atol=rtol)


for dtype in ("float32", "float64", "float16", "int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8"):
    case(f"elementwise ops, reductions and movement in {dtype}")(lambda folder, d=dtype: each_op(folder, d))


@case("bools: logic, reductions, choices, movement")
def bools(folder):
    r = random()
    lines = ["and(%a, %b)", "or(%a, %b)", "xor(%a, %b)", "not(%a)", "eq(%a, %b)", "ne(%a, %b)", "where(%c, %a, %b)", "cast(%a) {to=f32}", "pad(%a) {lo=[1, 0], hi=[0, 2]}",
             *(f"reduce(%a) {{op={op}, axes=[1]}}" for op in ("and", "or", "xor")), "flip(%a) {axes=[0]}", "concat(%a, %b) {axis=0}", "lt(%a, %b)"]
    graph(folder, lines, {n: r.random((3, 4)) < 0.5 for n in "abc"})


@case("places beside a tensor: 0 where it is read, nothing where it is written")
def places(folder):
    r = random()
    inputs = {"x": uniform(4, 5), "v": uniform(6), "i": r.integers(-2, 6, 6), "k": r.integers(-2, 7, 6), "u": r.permutation(4)[:3].astype(np.uint8),
              "e": r.integers(-6, 6, (2, 3))}
    lines = ["index(%x, %i, %k)", "scatter(%x, %v, %i, %k) {op=add}", "scatter(%x, %v, %i, %k) {op=max}", "gather(%x, %e) {axis=1}", "gather(%x, %u) {axis=0}"]
    graph(folder, lines, inputs)
    inputs = {"x": uniform(4), "i": np.array(-1), "v": np.array(2, np.float32)}
    for n in (1, 4):                                # a single place in what is open
        inputs["x"] = uniform(n)
        graph(folder, ["gather(%x, %i) {axis=0}", "scatter(%x, %v, %i)"], inputs, dims={"x": "N<=5"}, sizes=[("N", 5)])


@case("stop_gradient, which ONNX has not, is its operand")
def stopped(folder):
    graph(folder, ["stop_gradient(%x)", "stop_gradient(%y)"], {"x": uniform(4, 5), "y": random().random(3) < 0.5})


@case("open dimensions: sizes that stay, that are computed, that are 0")
def open_sizes(folder):
    lines = ["reshape(%x) {shape=[N*3, 4]}", "permute(%x) {perm=[0, 2, 1]}", "reshape(%x) {shape=[4, N, 3]}", "permute(%x) {perm=[1, 0, 2]}", "pad(%x) {lo=[0, 0, 0], hi=[N, 0, 1]}", "shrink(%x) {begin=[0, 1, 0], size=[N, 2, 4]}",
             "window(%x) {axis=0, out=floordiv(N + 1, 2), kernel=1, stride=2}", "flip(%x) {axes=[0]}", "iota(N*2)", "concat(%x, %x) {axis=0}", "reduce(%x) {op=add, axes=[0]}",
             "cast(%r8) {to=f32}", "softmax(%x) {axis=0}", "matmul(%x, %r1)", "reshape(%b) {shape=[1, 1, M]}", "expand(%r14) {shape=[N, 3, M]}", "mul(%r15, 2.0)"]
    for n in (4, 1, 0):
        graph(folder, lines, {"x": uniform(n, 3, 4), "b": uniform(5)}, dims={"x": "N<=9, 3, 4", "b": "M<=7"}, sizes=[("N", 9), ("M", 7)])


@case("loops, one in another, and choices")
def control(folder):
    (folder / "m.tg").write_text("""tg 1
input %x : f32[N<=6, 3]
input %c : bool
%n = reduce_sum(%x) {axes=[1]}
%0 : f32[N, 3], %1 : f32[4, N, 3] = loop %i < i64(4) while bool(true) carry(%s = %x) stack 4 {
  %d = add(%s, %x)
  %f = cast(%i) {to=f32}
  %g = mul(%d, %f)
  %e : f32[N, 3], %rows : f32[2, N] = loop %j < i64(2) while bool(true) carry(%t = %g) stack 2 {
    %u = mul(%t, f32(0.5))
    %v = add(%u, %x)
    %w = reduce_sum(%v) {axes=[1]}
    next(%v) while bool(true) scan(%w)
  }
  %r = reduce_sum(%rows) {axes=[0, 1]}
  %h = add(%e, %r)
  next(%h) while bool(true) scan(%d)
}
%2 : f32[N, 3] = if (%c) then (%0) else (%x)
output %0 as "last"
output %1 as "all"
output %2 as "chosen"
output %n as "n"
""")
    for n in (1, 5):
        for c in (False, True):
            m = written(folder, "m.tg", {"x": uniform(n, 3), "c": np.array(c)}, sizes=[("N", 6)], rtol=1e-4)
    expect(operators(m).count("Loop") == 1, f"operators {operators(m)}")


@case("what ONNX cannot say is refused")
def refused_graphs(folder):
    for lines, words in ((['input %x : f32[2]', '%y = atan2(%x, %x)', 'output %y as "y"'], "error: atan2 has no operator in ONNX"),
                         (['input %x : f32[2]', '%y : i32[2] = bitcast(%x) {to=i32}', 'output %y as "y"'], "bitcast has no operator in ONNX"),
                         (['input %x : f32[2]', 'state %s : f32[2]', '%y = add(%x, %s)', 'keep %s = %y', 'output %y as "y"'], "the graph has states"),
                         (['entry "a" {', 'input %x : f32[2]', '%y = neg(%x)', 'output %y as "y"', '}'], "the graph has entries"),
                         (['dim N <= 4', 'input %x : f32[2]', '%i = iota(N)', 'output %i as "i"'], "no input has the size 'N' as a dimension")):
        (folder / "m.tg").write_text("tg 1\n" + "\n".join(lines) + "\n")
        done = T.run([TGC, "m.tg", "-o", "m.onnx"], cwd=folder)
        expect(done.status == 1 and words in done.err and not (folder / "m.onnx").exists(), f"{lines}: {done.status} {done.err}")


# -------------------------------------------------------------------------------------------------- random graphs

GROUP, QUICK, LONG = 10, 40, 2000


def random_graphs(first):
    folder, tally = T.scratch(SCRATCH / f"random{first}"), collections.Counter()
    wrong = [w for w in (random_graph.Written(seed).check(TGC, folder, tally) for seed in range(first, first + GROUP)) if w]
    expect(not wrong, "\n".join(wrong))
    expect(tally["compared"] >= GROUP // 2, f"only {tally['compared']} of {GROUP} graphs were compared:\n{tally}")


for first in range(0, LONG, GROUP):
    suite.add(f"random graphs {first} to {first + GROUP - 1} through ONNX", random_graphs, first, slow=first >= QUICK)

suite.main()
