"""The library's functions against ONNX Runtime, and against NumPy where that has no such operator.

Each case writes a .tg graph whose inputs are weights, lets tgtool evaluate it (floats in double) with and without folding,
and compares. The tolerance is that of f32: the reference computes in it, and the interpreter rounds constants to it.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))
from suite import Suite, expect  # noqa: E402

suite = Suite("library")
DTYPES = {"float32": "f32", "float64": "f64", "float16": "f16", "int64": "i64", "int32": "i32", "bool": "bool", "uint8": "u8", "int8": "i8"}


def literal(array):
    flat = array.ravel()
    if array.dtype == bool:
        return ", ".join("true" if v else "false" for v in flat)
    if array.dtype.kind == "f":
        return ", ".join("inf" if v == np.inf else "-inf" if v == -np.inf else "nan" if v != v else repr(float(v)) for v in flat)
    return ", ".join(str(int(v)) for v in flat)


def graph(inputs, line, outputs):
    text = ["tg 1"]
    for name, array in inputs.items():
        dims = "[" + ", ".join(map(str, array.shape)) + "]" if array.ndim else ""
        text.append(f"weight %{name} : {DTYPES[str(array.dtype)]}{dims} = [{literal(array)}]")
    text.append(line)
    text += [f"output %{name}" for name in outputs]
    return "\n".join(text) + "\n"


def tgtool(*arguments):
    tool = Path(suite.options.build) / "tests/ir/tgtool"
    return subprocess.run([tool, *arguments], capture_output=True, text=True, timeout=120)


def evaluate(text, *flags):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "case.tg"
        path.write_text(text)
        done = tgtool(*flags, "eval", path)
    expect(done.returncode == 0, done.stderr[:2000] + "\n" + text[:500])
    result = {}
    for line in done.stdout.splitlines():
        head, _, values = line.partition(" =")
        name, _, kind = head.partition(" : ")
        dtype, _, dims = kind.partition("[")
        shape = [int(d) for d in dims.rstrip("]").split(",")] if dims else []
        result[name] = np.array([float(v) for v in values.split()]).reshape(shape)
    return result


def compare(got, want, rtol, atol):
    want = np.asarray(want)
    expect(list(got.shape) == list(want.shape), f"shape {got.shape}, expected {want.shape}")
    close = np.isclose(got, want.astype(np.float64), rtol=rtol, atol=atol, equal_nan=True)
    if not close.all():
        at = tuple(np.argwhere(~close)[0])
        raise AssertionError(f"at {at}: {got[at]!r}, expected {want[at]!r}; {np.sum(~close)} of {close.size} differ")


def check(inputs, line, want, rtol=2e-5, atol=2e-6):
    """want: name -> array, in the order of the results."""
    text = graph(inputs, line, want)
    for flags in ([], ["-O0"]):
        got = evaluate(text, *flags)
        for name, value in want.items():
            compare(got[name], value, rtol, atol)


def runtime(op, inputs, n=1, opset=21, **attributes):
    """ONNX Runtime's answer for one node; inputs: name -> array, None: absent."""
    names = [name if value is not None else "" for name, value in inputs.items()]
    node = helper.make_node(op, names, [f"y{k}" for k in range(n)], **attributes)
    infos = [helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for k, v in inputs.items() if v is not None]
    outs = [helper.make_empty_tensor_value_info(f"y{k}") for k in range(n)]
    model = helper.make_model(helper.make_graph([node], "g", infos, outs), opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {k: v for k, v in inputs.items() if v is not None})


def rand(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def against_runtime(name, op, inputs, line, n=1, rtol=2e-5, atol=5e-6, opset=21, **attributes):
    def run():
        got = runtime(op, inputs, n, opset, **attributes)
        check({k: v for k, v in inputs.items() if v is not None}, line, {f"y{k}": got[k] for k in range(n)}, rtol, atol)
    suite.add(name, run)


def against_numpy(name, inputs, line, want, **tolerance):
    suite.add(name, lambda: check(inputs, line, {"y": want} if not isinstance(want, dict) else want, **tolerance))


# ---- contractions

for a, b in [((3, 4), (4, 5)), ((4,), (4, 5)), ((3, 4), (4,)), ((4,), (4,)), ((2, 3, 4), (4, 5)), ((2, 1, 3, 4), (3, 4, 5)), ((1, 1), (1, 1)),
             ((3, 0), (0, 2)), ((5, 2, 3), (1, 3, 2))]:
    A, B = rand(*a), rand(*b, seed=1)
    against_numpy(f"matmul {a} {b}", {"a": A, "b": B}, "%y = matmul(%a, %b)", A @ B)
A, B, C = rand(3, 4), rand(5, 4, seed=1), rand(5, seed=2)
against_numpy("gemm", {"a": A, "b": B, "c": C}, "%y = gemm(%a, %b, %c) {alpha=0.5, beta=2, trans_b=true}", 0.5 * A @ B.T + 2 * C)
against_numpy("linear", {"a": rand(2, 3, 4), "b": B, "c": C}, "%y = linear(%a, %b, %c)", rand(2, 3, 4) @ B.T + C)
against_numpy("linear f16", {"a": A.astype(np.float16), "b": B.astype(np.float16)}, "%y = linear(%a, %b)",
              (A.astype(np.float16).astype(np.float32) @ B.astype(np.float16).astype(np.float32).T).astype(np.float16), rtol=1e-3)
against_numpy("matmul i64", {"a": np.arange(6).reshape(2, 3), "b": np.arange(12).reshape(3, 4)}, "%y = matmul(%a, %b)",
              np.arange(6).reshape(2, 3) @ np.arange(12).reshape(3, 4))

for equation, shapes in [("ij,jk->ik", [(2, 3), (3, 4)]), ("ij->ji", [(2, 3)]), ("ii->i", [(3, 3)]), ("ii", [(3, 3)]), ("ij,ij->", [(2, 3), (2, 3)]),
                         ("i,j->ij", [(2,), (3,)]), ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]), ("...ij,...jk->...ik", [(2, 3, 4), (2, 4, 5)]),
                         ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 5)]), ("bhie,bhje->bhij", [(1, 2, 3, 4), (1, 2, 5, 4)]), ("ba", [(2, 3)]),
                         ("...i->i...", [(2, 3, 4)]), ("iij,jk", [(2, 2, 3), (3, 4)]), (" i j , j -> i ", [(2, 3), (3,)])]:
    x = {f"x{k}": rand(*s, seed=k) for k, s in enumerate(shapes)}
    operands = ", ".join(f"%{k}" for k in x)
    against_numpy(f"einsum {equation}", x, f'%y = einsum({operands}) {{equation="{equation}"}}', np.einsum(equation, *x.values()))

CONVS = [  # x, w, attributes of ONNX, attributes here
    ((2, 3, 7), (4, 3, 3), dict(), ""),
    ((2, 3, 7, 8), (4, 3, 3, 3), dict(pads=[1, 1, 1, 1]), "padding=1"),
    ((1, 4, 7, 8), (6, 2, 3, 2), dict(group=2, strides=[2, 1], pads=[1, 0, 2, 1]), "groups=2, stride=[2, 1], padding=[1, 0, 2, 1]"),
    ((1, 4, 7, 8), (8, 1, 3, 3), dict(group=4), "groups=4"),
    ((1, 2, 9, 9), (3, 2, 3, 3), dict(dilations=[2, 3], strides=[2, 2]), "dilation=[2, 3], stride=2"),
    ((1, 2, 5, 6, 7), (3, 2, 2, 3, 2), dict(pads=[0, 1, 0, 1, 1, 0], strides=[1, 2, 1]), "padding=[0, 1, 0, 1, 1, 0], stride=[1, 2, 1]"),
    ((1, 2, 8, 9), (3, 2, 3, 4), dict(auto_pad="SAME_UPPER", strides=[2, 2]), "auto_pad=same_upper, stride=2"),
    ((1, 2, 8, 9), (3, 2, 4, 3), dict(auto_pad="SAME_LOWER", strides=[3, 1]), "auto_pad=same_lower, stride=[3, 1]"),
    ((1, 2, 5, 5), (3, 2, 1, 1), dict(), ""),
    ((1, 1, 3, 3), (1, 1, 3, 3), dict(), ""),
]
for k, (x, w, onnx_attr, attr) in enumerate(CONVS):
    X = {"x": rand(*x), "w": rand(*w, seed=1), "b": rand(w[0], seed=2)}
    against_runtime(f"conv {k}", "Conv", X, f"%y0 = conv(%x, %w, %b) {{{attr}}}" if attr else "%y0 = conv(%x, %w, %b)", **onnx_attr)

TRANSPOSED = [
    ((2, 3, 7), (3, 4, 3), dict(), ""),
    ((1, 2, 4, 5), (2, 3, 3, 3), dict(strides=[2, 3]), "stride=[2, 3]"),
    ((1, 2, 4, 5), (2, 3, 3, 3), dict(strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1]), "stride=2, padding=1, output_padding=1"),
    ((1, 4, 4, 5), (4, 3, 3, 2), dict(strides=[2, 1], group=2, pads=[0, 1, 2, 0]), "stride=[2, 1], groups=2, padding=[0, 1, 2, 0]"),
    ((1, 2, 4, 5), (2, 3, 3, 3), dict(dilations=[2, 2], strides=[2, 1]), "dilation=2, stride=[2, 1]"),
    ((1, 2, 3, 4, 3), (2, 2, 2, 3, 2), dict(strides=[2, 1, 3]), "stride=[2, 1, 3]"),
    ((1, 2, 4, 4), (2, 1, 3, 3), dict(strides=[2, 2], auto_pad="SAME_UPPER"), "stride=2, auto_pad=same_upper"),
    ((1, 2, 4, 4), (2, 1, 3, 3), dict(strides=[2, 2], auto_pad="SAME_LOWER"), "stride=2, auto_pad=same_lower"),
    ((1, 2, 4, 4), (2, 1, 3, 3), dict(strides=[3, 2], output_shape=[10, 8]), "stride=[3, 2], output_size=[10, 8]"),
    ((1, 1, 2, 2), (1, 1, 1, 1), dict(strides=[3, 3]), "stride=3"),
]
for k, (x, w, onnx_attr, attr) in enumerate(TRANSPOSED):
    X = {"x": rand(*x), "w": rand(*w, seed=1), "b": rand(w[1] * onnx_attr.get("group", 1), seed=2)}
    against_runtime(f"conv_transpose {k}", "ConvTranspose", X, f"%y0 = conv_transpose(%x, %w, %b) {{{attr}}}" if attr else
                    "%y0 = conv_transpose(%x, %w, %b)", **onnx_attr)

# ---- pools

POOLS = [
    ((1, 2, 7), dict(kernel_shape=[3]), "kernel=3, stride=1"),
    ((2, 2, 7, 8), dict(kernel_shape=[2, 3], strides=[2, 2], pads=[1, 1, 0, 1]), "kernel=[2, 3], stride=2, padding=[1, 1, 0, 1]"),
    ((1, 2, 8, 8), dict(kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1), "kernel=3, stride=2, ceil_mode=true"),
    ((1, 2, 9, 7), dict(kernel_shape=[3, 3], strides=[2, 3], ceil_mode=1, pads=[1, 1, 1, 1]), "kernel=3, stride=[2, 3], ceil_mode=true, padding=1"),
    ((1, 1, 9, 9), dict(kernel_shape=[2, 2], dilations=[2, 3], strides=[1, 2]), "kernel=2, dilation=[2, 3], stride=[1, 2]"),
    ((1, 2, 4, 5, 6), dict(kernel_shape=[2, 2, 3], strides=[2, 1, 2]), "kernel=[2, 2, 3], stride=[2, 1, 2]"),
    ((1, 2, 8, 9), dict(kernel_shape=[3, 2], auto_pad="SAME_UPPER", strides=[2, 2]), "kernel=[3, 2], auto_pad=same_upper, stride=2"),
]
for k, (x, onnx_attr, attr) in enumerate(POOLS):
    against_runtime(f"max_pool {k}", "MaxPool", {"x": rand(*x)}, f"%y0, %y1 = max_pool(%x) {{{attr}}}", n=2, **onnx_attr)
    against_runtime(f"avg_pool {k}", "AveragePool", {"x": rand(*x)}, f"%y0 = avg_pool(%x) {{{attr}}}", **onnx_attr)
    against_runtime(f"avg_pool {k} include", "AveragePool", {"x": rand(*x)}, f"%y0 = avg_pool(%x) {{{attr}, count_include_pad=true}}",
                    count_include_pad=1, **onnx_attr)
    if "auto_pad" not in onnx_attr and "ceil_mode" not in onnx_attr:
        against_runtime(f"lp_pool {k}", "LpPool", {"x": rand(*x)}, f"%y0 = lp_pool(%x) {{{attr}, p=3}}", p=3, opset=18, **onnx_attr)
against_runtime("max_pool ties", "MaxPool", {"x": np.zeros((1, 1, 5, 5), np.float32)}, "%y0, %y1 = max_pool(%x) {kernel=3, stride=2, padding=1}", n=2,
                kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
against_runtime("global_avg_pool", "GlobalAveragePool", {"x": rand(2, 3, 4, 5)}, "%y0 = global_avg_pool(%x)")
against_runtime("global_max_pool", "GlobalMaxPool", {"x": rand(2, 3, 4, 5)}, "%y0 = global_max_pool(%x)")

# ---- norms, softmax, reductions

X = rand(2, 6, 4, 5) * 3 + 1
S, B = rand(6, seed=1), rand(6, seed=2)
against_runtime("softmax", "Softmax", {"x": X}, "%y0 = softmax(%x) {axis=1}", axis=1)
against_runtime("softmax large", "Softmax", {"x": X * 1000}, "%y0 = softmax(%x)")
against_runtime("log_softmax", "LogSoftmax", {"x": X * 100}, "%y0 = log_softmax(%x) {axis=-2}", axis=-2)
against_runtime("hardmax", "Hardmax", {"x": np.round(X)}, "%y0 = hardmax(%x) {axis=2}", axis=2)
against_runtime("layer_norm", "LayerNormalization", {"x": X, "s": rand(4, 5, seed=1), "b": rand(4, 5, seed=2)}, "%y0 = layer_norm(%x, %s, %b) {axis=2}", axis=2)
against_numpy("rms_norm", {"x": X, "s": rand(5, seed=1)}, "%y = rms_norm(%x, %s)", X / np.sqrt(np.mean(X.astype(float) ** 2, -1, keepdims=True) + 1e-5) * rand(5, seed=1))
against_runtime("group_norm", "GroupNormalization", {"x": X, "s": S, "b": B}, "%y0 = group_norm(%x, %s, %b) {groups=3}", num_groups=3)
against_runtime("instance_norm", "InstanceNormalization", {"x": X, "s": S, "b": B}, "%y0 = instance_norm(%x, %s, %b)")
against_runtime("batch_norm", "BatchNormalization", {"x": X, "s": S, "b": B, "m": rand(6, seed=3), "v": np.abs(rand(6, seed=4)) + 0.1},
                "%y0 = batch_norm(%x, %s, %b, %m, %v)")
against_runtime("lp_normalize 1", "LpNormalization", {"x": X}, "%y0 = lp_normalize(%x) {axis=1, p=1}", axis=1, p=1)
against_runtime("lp_normalize 2", "LpNormalization", {"x": X}, "%y0 = lp_normalize(%x) {axis=-1, p=2}", axis=-1, p=2)
against_runtime("lrn", "LRN", {"x": X}, "%y0 = lrn(%x) {size=3, alpha=0.01, beta=0.6, bias=1.5}", size=3, alpha=0.01, beta=0.6, bias=1.5)
for name in ["Sum", "Mean", "Prod", "Max", "Min", "L1", "L2", "SumSquare", "LogSum", "LogSumExp"]:
    ours = {"SumSquare": "sum_square", "LogSum": "log_sum", "LogSumExp": "log_sum_exp"}.get(name, name.lower())
    for axes, keep in [([1], 1), ([0, 2], 0), ([0, 1, 2, 3], 0)]:
        against_runtime(f"reduce_{ours} {axes}", f"Reduce{name}", {"x": np.abs(X) / 4, "axes": np.array(axes)},
                        f"%y0 = reduce_{ours}(%x) {{axes={axes}, keep={'true' if keep else 'false'}}}", keepdims=keep, rtol=1e-4)
against_numpy("log_sum_exp of -inf", {"x": np.full((2, 3), -np.inf, np.float32)}, "%y = reduce_log_sum_exp(%x) {axes=[1]}", np.full(2, -np.inf))
against_numpy("reduce empty", {"x": np.zeros((2, 0), np.float32)}, "%y = reduce_sum(%x) {axes=[1]}", np.zeros(2))
for op, ours in [("ArgMax", "argmax"), ("ArgMin", "argmin")]:
    for last in (0, 1):
        against_runtime(f"{ours} last={last}", op, {"x": np.round(X)}, f"%y0 = {ours}(%x) {{axis=1, last={'true' if last else 'false'}}}", axis=1, keepdims=0,
                        select_last_index=last)
nan = np.array([[1, np.nan, 3, np.nan], [4, 2, 4, 1]], np.float32)
against_numpy("argmax of NaN", {"x": nan}, "%y = argmax(%x)", np.argmax(nan, -1))
for n in [1, 5, 64, 65, 200, 2100]:
    x = rand(2, n)
    for exclusive in (0, 1):
        for reverse in (0, 1):
            against_runtime(f"cumsum {n} exclusive={exclusive} reverse={reverse}", "CumSum", {"x": x, "a": np.array(1)},
                            f"%y0 = cumsum(%x) {{axis=1, exclusive={'true' if exclusive else 'false'}, reverse={'true' if reverse else 'false'}}}",
                            exclusive=exclusive, reverse=reverse, rtol=1e-4, atol=1e-4)
against_numpy("cumprod", {"x": rand(3, 7) + 1}, "%y = cumprod(%x) {axis=0}", np.cumprod(rand(3, 7) + 1, 0))

# ---- activations

X = np.concatenate([np.linspace(-8, 8, 33), [-100, -30, -1e-4, 0, 1e-4, 30, 100]]).astype(np.float32)
for op, ours, attributes in [("Relu", "relu", {}), ("LeakyRelu", "leaky_relu", dict(alpha=0.2)), ("ThresholdedRelu", "thresholded_relu", dict(alpha=0.7)),
                             ("Elu", "elu", dict(alpha=1.3)), ("Selu", "selu", {}), ("Celu", "celu", dict(alpha=0.7)), ("Sigmoid", "sigmoid", {}),
                             ("HardSigmoid", "hard_sigmoid", dict(alpha=0.3, beta=0.4)), ("HardSwish", "hard_swish", {}), ("Tanh", "tanh", {}),
                             ("Softplus", "softplus", {}), ("Softsign", "softsign", {}), ("Mish", "mish", {}), ("Gelu", "gelu", {})]:
    given = ", ".join(f"{k}={v}" for k, v in attributes.items())
    against_runtime(ours, op, {"x": X}, f"%y0 = {ours}(%x)" + (f" {{{given}}}" if given else ""), rtol=1e-4, atol=2e-6, **attributes)
against_runtime("gelu_tanh", "Gelu", {"x": X}, "%y0 = gelu_tanh(%x)", approximate="tanh", atol=1e-5)
against_runtime("soft_shrink", "Shrink", {"x": X}, "%y0 = soft_shrink(%x) {alpha=1.5, beta=0.5}", lambd=1.5, bias=0.5)
against_runtime("prelu", "PRelu", {"x": rand(2, 3, 4), "s": rand(3, 1, seed=1)}, "%y0 = prelu(%x, %s)")
d = X.astype(np.float64)
against_numpy("softplus, small values", {"x": d}, "%y = softplus(%x)", np.log1p(np.exp(-np.abs(d))) + np.maximum(d, 0), rtol=1e-12, atol=0)
against_numpy("log_sigmoid", {"x": d}, "%y = log_sigmoid(%x)", np.minimum(d, 0) - np.log1p(np.exp(-np.abs(d))), rtol=1e-12, atol=0)
against_numpy("silu", {"x": d}, "%y = silu(%x)", d / (1 + np.exp(-d)), rtol=1e-12)
against_numpy("clip", {"x": X}, "%y = clip(%x) {min=-1.5, max=2}", np.clip(X, -1.5, 2))

# ---- movement

X = rand(3, 4, 5)
for start, end, step in [(None, None, 1), (1, 3, 1), (-3, -1, 1), (0, 99, 2), (3, 0, -1), (None, None, -1), (None, None, -2), (-1, -99, -3), (4, 2, 1), (1, 4, 3), (99, None, -2)]:
    given = ", ".join(f"{k}={v}" for k, v in [("start", start), ("end", end), ("step", step)] if v is not None)
    against_numpy(f"slice {start}:{end}:{step}", {"x": X}, f"%y = slice(%x) {{axis=1, {given}}}", X[:, start:end:step])
against_numpy("tile", {"x": X}, "%y = tile(%x) {repeats=[2, 1, 3]}", np.tile(X, (2, 1, 3)))
against_numpy("transpose", {"x": X}, "%y = transpose(%x)", X.T)
against_numpy("flatten", {"x": X}, "%y = flatten(%x) {axis=2}", X.reshape(12, 5))
against_numpy("reshape -1", {"x": X}, "%y = reshape(%x) {shape=[5, -1, 2]}", X.reshape(5, -1, 2))
against_numpy("concat", {"x": X, "z": rand(3, 2, 5, seed=1)}, "%y = concat(%x, %z, %x) {axis=1}", np.concatenate([X, rand(3, 2, 5, seed=1), X], 1))
against_numpy("split", {"x": X}, "%y, %z = split(%x) {axis=1}", {"y": X[:, :2], "z": X[:, 2:]})
against_numpy("pad", {"x": X}, "%y = pad(%x, 7) {lo=[0, 1, 2], hi=[1, 0, 3]}", np.pad(X, [(0, 1), (1, 0), (2, 3)], constant_values=7))
against_numpy("pad negative", {"x": X}, "%y = pad(%x, 7) {lo=[0, -1, 2], hi=[1, 0, -3]}", np.pad(X[:, 1:, :-3], [(0, 1), (0, 0), (2, 0)], constant_values=7))
for mode in ["reflect", "edge", "wrap"]:
    against_numpy(f"pad_{mode}", {"x": X}, f"%y = pad_{mode}(%x) {{lo=[2, 1, 4], hi=[1, 3, 0]}}", np.pad(X, [(2, 1), (1, 3), (4, 0)], mode=mode))
against_numpy("pad_reflect twice around", {"x": rand(3)}, "%y = pad_reflect(%x) {lo=[7], hi=[9]}", np.pad(rand(3), (7, 9), mode="reflect"))
against_runtime("depth_to_space dcr", "DepthToSpace", {"x": rand(2, 12, 3, 4)}, "%y0 = depth_to_space(%x) {block=2}", blocksize=2)
against_runtime("depth_to_space crd", "DepthToSpace", {"x": rand(2, 12, 3, 4)}, "%y0 = depth_to_space(%x) {block=2, mode=crd}", blocksize=2, mode="CRD")
against_runtime("space_to_depth", "SpaceToDepth", {"x": rand(2, 3, 4, 6)}, "%y0 = space_to_depth(%x) {block=2}", blocksize=2)
for k in (-5, -1, 0, 1, 9):
    against_numpy(f"tril {k}", {"x": X}, f"%y = tril(%x) {{k={k}}}", np.tril(X, k))
    against_numpy(f"triu {k}", {"x": X}, f"%y = triu(%x) {{k={k}}}", np.triu(X, k))
against_numpy("eye", {}, "%y = eye() {rows=3, cols=5, k=1}", np.eye(3, 5, 1))
against_numpy("arange", {}, "%y = arange() {n=5, start=2, step=-3}", 2 - 3 * np.arange(5))
against_numpy("full", {}, "%y = full() {shape=[2, 3], value=1.5}", np.full((2, 3), 1.5))

# ---- gather, scatter

I = np.array([[0, -1], [2, 1]])
against_numpy("gather", {"x": X, "i": I}, "%y = gather(%x, %i) {axis=1}", np.take(X, I, 1))
for i in [np.array(2), np.array(-1), np.array([1, 3]), np.array([3, 2, 1]), np.array([-2, -1]), np.array([1]), np.array([2, 2]), np.array([], np.int64)]:
    against_numpy(f"gather {i.tolist()}", {"x": X, "i": i}, "%y = gather(%x, %i) {axis=1}", np.take(X, i, 1))
G = np.random.default_rng(0).integers(-4, 4, (3, 2, 5))
against_runtime("gather_elements", "GatherElements", {"x": X, "i": G}, "%y0 = gather_elements(%x, %i) {axis=1}", axis=1)
for batch, shape in [(0, (2, 3)), (0, (4, 1, 2)), (1, (3, 2, 1)), (1, (3, 2)), (2, (3, 4, 1))]:
    n = X.shape[batch:batch + shape[-1]]
    i = np.stack([np.random.default_rng(k).integers(-d, d, shape[:-1]) for k, d in enumerate(n)], -1)
    against_runtime(f"gather_nd {batch} {shape}", "GatherND", {"x": X, "i": i}, f"%y0 = gather_nd(%x, %i) {{batch_dims={batch}}}", batch_dims=batch)
U = rand(3, 2, 5, seed=3)
G2 = np.stack([np.random.default_rng(k).permutation(4)[:2] for k in range(15)], 0).reshape(3, 5, 2).transpose(0, 2, 1)
against_runtime("scatter_elements", "ScatterElements", {"x": X, "i": G2, "u": U}, "%y0 = scatter_elements(%x, %i, %u) {axis=1}", axis=1)
for reduction in ["add", "mul", "max", "min"]:
    against_runtime(f"scatter_elements {reduction}", "ScatterElements", {"x": X, "i": G, "u": U}, f"%y0 = scatter_elements(%x, %i, %u) {{axis=1, op={reduction}}}",
                    axis=1, reduction=reduction)
    i = np.array([[0, 1], [2, 3], [0, 1]])
    against_runtime(f"scatter_nd {reduction}", "ScatterND", {"x": X, "i": i, "u": rand(3, 5, seed=4)}, f"%y0 = scatter_nd(%x, %i, %u) {{op={reduction}}}",
                    reduction=reduction)
against_numpy("one_hot", {"i": np.array([0, 3, -1, 9])}, "%y = one_hot(%i) {depth=4}", np.array([[1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 0, 1], [0, 0, 0, 0]]))

# ---- resize

MODES = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric"]
for size in [(1, 1, 7, 9), (1, 1, 2, 3), (1, 1, 8, 10), (1, 1, 1, 5)]:
    x = rand(1, 1, 4, 5)
    for coordinates in MODES:
        def resize(name, line, rtol=1e-4, atol=1e-5, x=x, size=size, coordinates=coordinates, **attributes):
            against_runtime(f"resize {name} {coordinates} {size}", "Resize", {"x": x, "r": None, "s": None, "z": np.array(size)}, line, rtol=rtol, atol=atol,
                            coordinate_transformation_mode=coordinates, **attributes)
        for mode in ["linear", "cubic"]:
            resize(mode, f"%y0 = resize(%x) {{size={list(size)}, mode={mode}, coordinates={coordinates}}}", mode=mode)
        for rounding in ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]:
            if (coordinates, rounding, size[3]) == ("half_pixel_symmetric", "floor", 3):
                continue  # 1.5 / (3 / 5) - 0.5 is 2 or just below: where the runtime rounds differently
            resize(f"nearest {rounding}", f"%y0 = resize(%x) {{size={list(size)}, coordinates={coordinates}, rounding={rounding}}}", nearest_mode=rounding)
    for mode in ["linear", "cubic"]:
        against_runtime(f"resize {mode} antialias {size}", "Resize", {"x": x, "r": None, "s": None, "z": np.array(size)},
                        f"%y0 = resize(%x) {{size={list(size)}, mode={mode}, antialias=true}}", mode=mode, antialias=1, rtol=1e-4, atol=1e-5)
    against_runtime(f"resize cubic exclude_outside {size}", "Resize", {"x": x, "r": None, "s": None, "z": np.array(size)},
                    f"%y0 = resize(%x) {{size={list(size)}, mode=cubic, exclude_outside=true, cubic_a=-0.5}}", mode="cubic", exclude_outside=1,
                    cubic_coeff_a=-0.5, rtol=1e-4, atol=1e-5)

# ---- attention, rope


def attention(q, k, v, bias=0.0, scale=None, softcap=0.0):
    q, k, v = (a.astype(np.float64) for a in (q, k, v))
    g = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, g, 1), np.repeat(v, g, 1)
    s = q @ k.transpose(0, 1, 3, 2) * (scale or 1 / np.sqrt(q.shape[-1]))
    s = softcap * np.tanh(s / softcap) if softcap else s
    s = s + bias
    with np.errstate(invalid="ignore"):
        top = s.max(-1, keepdims=True)
        e = np.where(np.isinf(s) & (s < 0), 0, np.exp(s - np.where(np.isinf(top), 0, top)))
    total = e.sum(-1, keepdims=True)
    return e / np.where(total == 0, 1, total) @ v


Q, K, V = rand(2, 4, 5, 8), rand(2, 2, 5, 8, seed=1), rand(2, 2, 5, 6, seed=2)
i, j = np.indices((5, 5))
against_numpy("attention", {"q": Q, "k": K, "v": V}, "%y = attention(%q, %k, %v)", attention(Q, K, V))
against_numpy("attention causal", {"q": Q, "k": K, "v": V}, "%y = attention(%q, %k, %v) {causal=true}", attention(Q, K, V, np.where(j <= i, 0, -np.inf)))
against_numpy("attention window", {"q": Q, "k": K, "v": V}, "%y = attention(%q, %k, %v) {causal=true, window=2, softcap=3, scale=0.7}",
              attention(Q, K, V, np.where((j <= i) & (i - j < 2), 0, -np.inf), 0.7, 3.0))
against_numpy("attention offset", {"q": Q[:, :, :2], "k": K, "v": V}, "%y = attention(%q, %k, %v) {causal=true, offset=3}",
              attention(Q[:, :, :2], K, V, np.where(j <= i + 3, 0, -np.inf)[:2]))
M = np.random.default_rng(0).random((2, 1, 5, 5)) < 0.5
M[0, 0, 1] = False
against_numpy("attention bool mask", {"q": Q, "k": K, "v": V, "m": M}, "%y = attention(%q, %k, %v, %m)", attention(Q, K, V, np.where(M, 0, -np.inf)))
F = rand(4, 5, 5, seed=5)
against_numpy("attention float mask", {"q": Q, "k": K, "v": V, "m": F}, "%y = attention(%q, %k, %v, %m)", attention(Q, K, V, F))
N = np.array([2, 5])
against_numpy("attention nkeys", {"q": Q, "k": K, "v": V, "n": N}, "%y = attention(%q, %k, %v, _, %n)",
              attention(Q, K, V, np.where(j < N[:, None, None, None], 0, -np.inf)))
against_numpy("attention 3-D", {"q": Q[:, 0], "k": K[:, 0], "v": V[:, 0]}, "%y = attention(%q, %k, %v)", attention(Q[:, :1], K[:, :1], V[:, :1])[:, 0])
angle = np.arange(5)[:, None] * 10000.0 ** (-np.arange(0, 8, 2) / 8)
c, s = np.cos(angle), np.sin(angle)
a, b = Q[..., :4], Q[..., 4:]
against_numpy("rope", {"x": Q}, "%y = rope(%x)", np.concatenate([a * c - b * s, a * s + b * c], -1), atol=1e-5)
a, b = Q[..., ::2], Q[..., 1::2]
against_numpy("rope interleaved", {"x": Q}, "%y = rope(%x) {interleaved=true}", np.stack([a * c - b * s, a * s + b * c], -1).reshape(Q.shape), atol=1e-5)

# ---- recurrence

for direction in ["forward", "reverse", "bidirectional"]:
    n = 2 if direction == "bidirectional" else 1
    for lens in (None, np.array([3, 5, 1], np.int32)):
        for op, gates, outs in [("LSTM", 4, 3), ("GRU", 3, 2), ("RNN", 1, 2)]:
            X = {"x": rand(5, 3, 4), "w": rand(n, gates * 6, 4, seed=1), "r": rand(n, gates * 6, 6, seed=2), "b": rand(n, 2 * gates * 6, seed=3), "l": lens,
                 "h": rand(n, 3, 6, seed=4)}
            names = ", ".join(f"%y{k}" for k in range(outs))
            used = "%l" if lens is not None else "_"
            for variant in [{}, {"linear_before_reset": 1}] if op == "GRU" else [{}]:
                more = ", linear_before_reset=true" if variant else ""
                operands = dict(X)
                line = f"{names} = {op.lower()}(%x, %w, %r, %b, {used}, %h) {{direction={direction}{more}}}"
                if op == "LSTM":
                    operands |= {"c": rand(n, 3, 6, seed=5), "p": rand(n, 18, seed=6)}
                    line = f"{names} = lstm(%x, %w, %r, %b, {used}, %h, %c, %p) {{direction={direction}, clip=2}}"
                    variant = {"clip": 2.0}
                against_runtime(f"{op.lower()} {direction} {'lens ' if lens is not None else ''}{more}", op, operands, line, n=outs, hidden_size=6,
                                direction=direction, rtol=1e-4, atol=1e-5, **variant)


def batch_first():
    x, w, r = rand(3, 5, 4), rand(1, 18, 4, seed=1), rand(1, 18, 6, seed=2)
    y, h = runtime("GRU", {"x": x.transpose(1, 0, 2), "w": w, "r": r}, 2, hidden_size=6)
    check({"x": x, "w": w, "r": r}, "%y, %h = gru(%x, %w, %r) {batch_first=true}", {"y": y.transpose(2, 0, 1, 3), "h": h.transpose(1, 0, 2)}, atol=1e-5)


suite.add("gru batch_first", batch_first)

# ---- regions

against_numpy("loop", {"x": np.array([1.0, 2.0], np.float32)},
              "%y, %z = loop %i < 10 carry(%a = %x) stack 4 {\n  %b = add(%a, %a)\n  %f = cast(%i) {to=f32}\n  %s = mul(%a, %f)\n"
              "  %c = lt(%i, 3)\n  next(%b) while %c scan(%s)\n}", {"y": np.array([16.0, 32.0]), "z": np.outer([0, 2, 8, 24], [1, 2])})
against_numpy("nested loops", {"x": np.array([1.0], np.float32)},
              "%y = loop %i < 3 carry(%a = %x) {\n  %n = loop %k < %i + 1 carry(%b = %a) {\n    %c = add(%b, %x)\n    next(%c)\n  }\n  next(%n)\n}", np.array([7.0]))
against_numpy("if", {"x": rand(3), "c": np.array([True])}, "%y = if (%c) then { %a = add(%x, 1) yield(%a) } else (%x)", rand(3) + 1)

# ---- symbolic dimensions: the same as with fixed ones

SYMBOLIC = [("[N*4, 3]", "[8, 3]", op) for op in
            ["cumsum(%x) {axis=0}", "cumsum(%x) {axis=0, reverse=true, exclusive=true}", "softmax(%x) {axis=0}", "reduce_mean(%x) {axes=[0]}",
             "slice(%x) {axis=0, start=-3, end=-1}", "slice(%x) {axis=0, start=1, step=3}", "slice(%x) {axis=0, step=-2}", "slice(%x) {axis=0, start=2, end=99}",
             "tile(%x) {repeats=[3, 1]}", "pad_reflect(%x) {lo=[5, 0], hi=[9, 1]}", "flatten(%x)", "argmax(%x) {axis=0}", "layer_norm(%x) {axis=0}",
             "topk(%x) {k=2, axis=0}", "resize(%x) {size=[5, 7], mode=linear}", "resize(%x) {size=[5, 7], mode=cubic}", "reshape(%x) {shape=[-1, 4]}",
             "resize(%x) {size=[5, 7], coordinates=align_corners}", "tril(%x)", "linear(%x, %x)", "einsum(%x, %x) {equation=\"ia,ib->ab\"}"]]
SYMBOLIC += [("[1, 2, N*4, N*3]", "[1, 2, 8, 6]", op) for op in
             ["max_pool(%x) {kernel=3, stride=2, ceil_mode=true}", "avg_pool(%x) {kernel=3, stride=2, ceil_mode=true, padding=1}", "depth_to_space(%x) {block=1}",
              "avg_pool(%x) {kernel=3, stride=2, auto_pad=same_upper}", "conv(%x, %x)", "global_avg_pool(%x)", "attention(%x, %x, %x) {causal=true, scale=1}",
              "conv_transpose(%w, %x) {stride=3, padding=1}", "group_norm(%x) {groups=2}", "space_to_depth(%x) {block=1}"]]


def symbolic(dims, fixed, op):
    results = []
    for shape in (dims.replace("N", "1<=N<=1000", 1) if dims.startswith("[N,") else dims, fixed):
        declare = "dim 1<=N<=1000\n" if "N" in shape else ""
        text = f"tg 1\n{declare}input %x : f32{shape}\nweight %w : f32[1, 1, 3, 2] = normal(seed=1)\n%y = {op}\noutput %y\n"
        if "conv_transpose" in op:
            text = text.replace("f32[1, 1, 3, 2]", "f32[1, 1, 9, 9]")
        results += [evaluate(text), evaluate(text, "-O0")]
    for other in results[1:]:
        compare(results[0]["y"], other["y"], 1e-6, 1e-7)


for dims, fixed, op in SYMBOLIC:
    suite.add(f"symbolic {op.split(' ')[0]} {op}", symbolic, dims, fixed, op)

# ---- random numbers: the uops and the C of initializers agree, and they are random


def random_numbers():
    for op, given, mean, deviation in [("uniform", "low=-1, high=3, ", 1, 4 / np.sqrt(12)), ("normal", "mean=2, std=3, ", 2, 3)]:
        text = f"tg 1\nweight %w : f32[4000] = {op}({given}seed=12345678901234)\n%y = {op}() {{shape=[4000], {given}seed=12345678901234}}\noutput %w\noutput %y\n"
        got = evaluate(text)
        compare(got["y"], got["w"], 1e-4, 1e-5)
        expect(abs(got["w"].mean() - mean) < 5 * deviation / np.sqrt(4000), "the mean is off")
        expect(abs(got["w"].std() / deviation - 1) < 0.08, "the deviation is off")


suite.add("random numbers", random_numbers)

suite.parse()
suite.main()
