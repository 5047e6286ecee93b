"""com.microsoft operators and models that ONNX Runtime has optimized or quantized, through the
emitted C, against onnxruntime.

A group is one model of many independent nodes, one for each combination of attributes and inputs,
so that it is compiled once. Each runs as it is compiled by default and with -O0. What onnxruntime
has no CPU kernel for is compared with numpy.
"""

import logging
import re
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "lib"))

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import tgc as T
from suite import Failure, Suite, expect

suite = Suite("microsoft")
OPTIONS = suite.parse()
TGC = T.find_tgc(OPTIONS.build).resolve()
SCRATCH = Path(OPTIONS.build).resolve() / "test-scratch" / "microsoft"
MS, NCHWC = "com.microsoft", "com.microsoft.nchwc"
F16, F32 = np.float16, np.float32
logging.disable(logging.WARNING)  # onnxruntime's quantizer advises at length
RNG = np.random.default_rng(5)


def draw(*shape, scale=1.0, dtype=F32):
    return (RNG.standard_normal(shape) * scale).astype(dtype)


def ints(low, high, *shape, dtype=np.int64):
    return RNG.integers(low, high, shape).astype(dtype)


def network(nodes, weights, inputs, outputs, opset=17):
    graph = helper.make_graph(nodes, "g", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def float_value(name, *shape):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def session(m, **more):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    for name, value in more.items():
        setattr(options, name, value)
    source = m.SerializeToString() if isinstance(m, onnx.ModelProto) else str(m)
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def compiled(folder, model, arrays, names, *options, compiler="gcc", flags=(T.LEVEL,)):
    """The outputs of the emitted program, by name."""
    T.must(T.run([TGC, model, "-o", "m.c", *T.HERE, *options], cwd=folder))
    T.build(folder / "m.c", folder / "m", compiler, flags, main_by=TGC)
    return T.Program(folder / "m", names).run(arrays)


def mismatch(actual, wanted, rtol, atol, steps):
    """What is wrong with an output; None: nothing. steps: by how much a few integers may differ."""
    wanted = np.asarray(wanted)
    if actual.shape != wanted.shape or actual.dtype != wanted.dtype:
        return f"{actual.dtype}{actual.shape}, expected {wanted.dtype}{wanted.shape}"
    if wanted.dtype.kind in "USiub":
        off = np.abs(actual.astype(np.int64) - wanted.astype(np.int64))
        equal = off.max(initial=0) <= steps and (off != 0).mean() <= 0.05 if off.size else True
    else:
        equal = np.allclose(actual.astype(np.float64), wanted.astype(np.float64), rtol, atol,
                            equal_nan=True)
    if equal:
        return None
    a, w = actual.astype(np.float64).ravel(), wanted.astype(np.float64).ravel()
    at = int(np.argmax(np.abs(a - w)))
    return f"{a[at]:.7g} at {at} of {a.size}, expected {w[at]:.7g}"


GROUPS = []


class Group:
    """Nodes of one model. Inputs are arrays, or `const(array)` for initializers; None: absent."""

    def __init__(self, name, opset=20):
        self.name, self.opset = name, opset
        self.nodes, self.inputs, self.weights, self.arrays = [], [], [], []
        self.checks = []
        GROUPS.append(self)
        for level in ("", "-O0"):
            suite.add(f"{name} {level}".strip(), self.run, level)
        suite.add(f"{name} sanitized", self.run, "", True, slow=True)

    def add(self, op, inputs, outputs=1, domain=MS, reference=None, rtol=1e-4, atol=1e-5, steps=0,
            **attributes):
        """outputs: how many, or a list of bools: which of them are asked for."""
        k = len(self.nodes)
        names = []
        for i, array in enumerate(inputs):
            name = f"n{k}_i{i}"
            if array is None:
                names.append("")
                continue
            names.append(name)
            array = array if isinstance(array, const) else np.asarray(array)
            if isinstance(array, const):
                self.weights.append(numpy_helper.from_array(array.array, name))
            else:
                dtype = helper.np_dtype_to_tensor_dtype(array.dtype)
                self.inputs.append(helper.make_tensor_value_info(name, dtype, array.shape))
                self.arrays.append(array)
        wanted = [True] * outputs if isinstance(outputs, int) else outputs
        out = [f"n{k}_{op}_o{i}" if there else "" for i, there in enumerate(wanted)]
        label = f"{op} {attributes}"
        self.nodes.append(helper.make_node(op, names, out, domain=domain, **attributes))
        self.checks.append((label, [o for o in out if o], reference, rtol, atol, steps))

    def model(self, nodes):
        outputs = [helper.make_empty_tensor_value_info(o) for n in nodes for o in n.output if o]
        used = {i for n in nodes for i in n.input}
        graph = helper.make_graph(nodes, "g", [i for i in self.inputs if i.name in used], outputs,
                                  [w for w in self.weights if w.name in used])
        imports = [helper.make_opsetid("", self.opset), helper.make_opsetid(MS, 1)]
        return helper.make_model(graph, opset_imports=imports, ir_version=9)

    def theirs(self, node, label, feed):
        m = self.model([node])
        try:
            return session(m).run(None, {i.name: feed[i.name] for i in m.graph.input})
        except Exception as why:
            raise Failure(f"{label}: onnxruntime: {why}") from None

    def run(self, level, sanitized=False):
        folder = T.scratch(SCRATCH / re.sub(r"\W", "_", f"{self.name}{level}{sanitized}"))
        more = {"compiler": "clang", "flags": tuple(T.SANITIZE)} if sanitized else {}
        feed = {i.name: a for i, a in zip(self.inputs, self.arrays)}
        try:
            m = self.model(self.nodes)
            onnx.save(m, folder / "m.onnx")
            names = [o.name for o in m.graph.output]
            actual = compiled(folder, "m.onnx", self.arrays, names, *([level] if level else []),
                              **more)
            wanted = {}
            for n, check in zip(self.nodes, self.checks):
                wanted.update(zip(check[1], check[2] or self.theirs(n, check[0], feed)))
            problems = []
            for label, outputs, _, rtol, atol, steps in self.checks:
                for o in outputs:
                    what = mismatch(actual[o], wanted[o], rtol, atol, steps)
                    if what:
                        problems.append(f"{label}, {o}: {what}")
            expect(not problems, "\n".join(problems[:6]) + f"\n{len(problems)} differ")
        finally:
            shutil.rmtree(folder, ignore_errors=True)


class const:
    def __init__(self, array):
        self.array = np.asarray(array)


# ------------------------------------------------------------------------------- elementwise, norms

g = Group("activations")
for shape in ((2, 3, 8), (5,), (0, 4)):
    g.add("Gelu", [draw(*shape)])
    g.add("FastGelu", [draw(*shape)], atol=1e-4)
    g.add("QuickGelu", [draw(*shape)])
    g.add("QuickGelu", [draw(*shape)], alpha=1.0)
g.add("FastGelu", [draw(2, 3, 8), draw(8)], atol=1e-4)
g.add("BiasGelu", [draw(2, 3, 8), draw(8)])
x, b = draw(2, 3, 8), draw(8)
half = (x + b)[..., 4:].astype(np.float64)
erf = np.vectorize(__import__("math").erf)
g.add("BiasSplitGelu", [x, b],
      reference=[((x + b)[..., :4] * half * 0.5 * (1 + erf(half / np.sqrt(2)))).astype(F32)])
s = draw(2, 3, 8)
g.add("BiasAdd", [x, b, s], reference=[x + b + s])
g.add("BiasDropout", [x, b, s], outputs=2, reference=[x + b + s, np.ones(x.shape, bool)])
e = np.exp(x + b - (x + b).max(-1, keepdims=True))
g.add("BiasSoftmax", [x, b], axis=2, is_inner_broadcast=0,
      reference=[e / e.sum(-1, keepdims=True)])
y = draw(2, 1, 8)
e = np.exp(x + y - (x + y).max(-1, keepdims=True))
g.add("BiasSoftmax", [x, y[:, 0]], axis=2, is_inner_broadcast=1,
      reference=[e / e.sum(-1, keepdims=True)])
g.add("ScaledSiLU", [x], alpha=0.5, reference=[x / (1 + np.exp(-x)) * F32(0.5)])
bad = np.array([1, np.inf, 2], F32), np.array([np.nan], F32)
g.add("IsAllFinite", [x, b], reference=[np.array(True)])
g.add("IsAllFinite", [bad[0], x], reference=[np.array(False)])
g.add("IsAllFinite", [bad[0]], isnan_only=1, reference=[np.array(True)])
g.add("IsAllFinite", [bad[1]], isinf_only=1, reference=[np.array(True)])

g = Group("normalizations", opset=16)
for simplified in (False, True):
    op = "SkipSimplifiedLayerNormalization" if simplified else "SkipLayerNormalization"
    beta = [] if simplified else [draw(16)]
    g.add(op, [draw(2, 5, 16), draw(2, 5, 16), draw(16), *beta], epsilon=1e-5)
    g.add(op, [draw(2, 5, 16), draw(2, 5, 16), draw(16), *beta, draw(16)])
    g.add(op, [draw(2, 5, 16), draw(2, 5, 16), draw(16), *(beta and [None]), draw(16)],
          outputs=[True, False, False, True])
    g.add(op, [draw(2, 5, 16), draw(5, 16), draw(16), *beta])
    g.add(op, [draw(2, 5, 16), draw(1, 5, 16), draw(16), *beta])
    g.add(op, [draw(7, 16), draw(7, 16), draw(16), *beta])
for axis in (-1, 1, -2):
    size = (4, 6) if axis != -1 else (6,)
    g.add("LayerNormalization", [draw(3, 4, 6), draw(*size), draw(*size)], domain="", axis=axis)
    g.add("LayerNormalization", [draw(3, 4, 6), draw(*size)], outputs=3, domain="", axis=axis,
          epsilon=1e-3)
    g.add("SimplifiedLayerNormalization", [draw(3, 4, 6), draw(*size)], domain="", axis=axis)
g.add("SimplifiedLayerNormalization", [draw(3, 4, 6), draw(6)], outputs=2, domain="", epsilon=1e-6,
      stash_type=1)
tables = [draw(20, 16), draw(12, 16), draw(2, 16)]
ids, segments = ints(0, 20, 2, 7, dtype=np.int32), ints(0, 2, 2, 7, dtype=np.int32)
mask = ints(0, 2, 2, 7, dtype=np.int32)
where = ints(0, 12, 2, 7, dtype=np.int32)
tail = [draw(16), draw(16)]
g.add("EmbedLayerNormalization", [ids, segments, *tables, *tail], outputs=2)
g.add("EmbedLayerNormalization", [ids, segments, *tables, *tail, mask], outputs=3)
g.add("EmbedLayerNormalization", [ids, None, tables[0], tables[1], None, *tail, mask], outputs=2)
g.add("EmbedLayerNormalization", [ids, segments, *tables, *tail, mask, where], outputs=3)
g.add("EmbedLayerNormalization", [ids, segments, *tables, *tail, None, where[:1]], epsilon=1e-3,
      outputs=2)
tables = [ints(0, 256, *t.shape, dtype=np.uint8) for t in (*tables, *tail)]
scales = [F32(RNG.uniform(0.01, 0.03)) for _ in tables]
zeros = [np.uint8(RNG.integers(100, 150)) for _ in tables]
g.add("QEmbedLayerNormalization", [ids, segments, *tables, mask, *map(const, scales),
                                   *map(const, zeros)], outputs=2, rtol=1e-3, atol=1e-4)


def group_norm(x, gamma, beta, groups, eps, silu):
    n, c = x.shape[:2]
    v = x.reshape(n, groups, -1).astype(np.float64)
    v = (v - v.mean(-1, keepdims=True)) / np.sqrt(v.var(-1, keepdims=True) + eps)
    wide = (1, c) + (1,) * (x.ndim - 2)
    v = v.reshape(x.shape) * gamma.reshape(wide) + beta.reshape(wide)
    return (v / (1 + np.exp(-v)) if silu else v).astype(F32)


x, gamma, beta, skip = draw(2, 8, 3, 4), draw(8), draw(8), draw(2, 8)
for silu in (0, 1):
    y = group_norm(x, gamma, beta, 4, 1e-5, silu)
    g.add("GroupNorm", [x, gamma, beta], groups=4, activation=silu, channels_last=0, reference=[y])
    g.add("GroupNorm", [x.transpose(0, 2, 3, 1).copy(), gamma, beta], groups=4, activation=silu,
          reference=[y.transpose(0, 2, 3, 1)])
    z = x + skip[:, :, None, None] + beta[:, None, None]
    y = group_norm(z, gamma, beta, 2, 1e-5, silu)
    g.add("SkipGroupNorm", [x.transpose(0, 2, 3, 1).copy(), gamma, beta, skip, beta], groups=2,
          outputs=2, activation=silu,
          reference=[y.transpose(0, 2, 3, 1), z.transpose(0, 2, 3, 1)])

# --------------------------------------------------------------------------- products, convolutions

g = Group("convolutions and products")
for activation, params in (("Relu", None), ("Sigmoid", None), ("Tanh", None), ("LeakyRelu", [0.2]),
                           ("Clip", [-0.5, 0.5]), ("HardSigmoid", [0.3, 0.4])):
    more = {"activation_params": params} if params else {}
    g.add("FusedConv", [draw(1, 4, 6, 5), draw(6, 4, 3, 3), draw(6)], activation=activation, **more)
g.add("FusedConv", [draw(2, 4, 6, 5), draw(6, 2, 3, 3), draw(6), draw(2, 6, 3, 3)], strides=[2, 2],
      pads=[1, 1, 1, 1], group=2, activation="Relu")
g.add("FusedConv", [draw(1, 4, 6, 5), draw(6, 4, 3, 3), None, draw(1, 6, 4, 3)])
g.add("FusedConv", [draw(1, 4, 9), draw(6, 4, 3)], auto_pad="SAME_UPPER", strides=[2],
      activation="Relu")
for activation, more in (("Relu", {}), ("LeakyRelu", {"activation_alpha": 0.3}), ("Tanh", {}),
                         ("HardSigmoid", {"activation_alpha": 0.3, "activation_beta": 0.6}),
                         ("Elu", {"activation_alpha": 0.7}), ("Softplus", {}), ("Softsign", {}),
                         ("ThresholdedRelu", {"activation_alpha": 0.4}),
                         ("Selu", {"activation_alpha": 1.5, "activation_gamma": 0.8})):
    g.add("FusedGemm", [draw(3, 4), draw(4, 5), draw(5)], activation=activation, **more)
g.add("FusedGemm", [draw(4, 3), draw(5, 4), draw(3, 5)], transA=1, transB=1, alpha=0.5, beta=2.0,
      activation="Sigmoid")
for a, b, more in (((2, 3, 4), (2, 4, 5), {}), ((3, 4), (4, 5), {"alpha": 0.25}),
                   ((2, 4, 3), (2, 4, 5), {"transA": 1}), ((2, 3, 4), (5, 4), {"transB": 1}),
                   ((2, 4, 3), (2, 5, 4), {"transA": 1, "transB": 1, "alpha": -2.0}),
                   ((3, 2, 4), (2, 4, 5), {"transBatchA": 1}),
                   ((4, 2, 3), (2, 4, 5), {"transBatchA": 1, "transA": 1}),
                   ((2, 3, 4), (4, 2, 5), {"transBatchB": 1}),
                   ((2, 6, 3, 4), (4, 2, 6, 5), {"transBatchB": 1})):
    g.add("FusedMatMul", [draw(*a), draw(*b)], **more)
g.add("FusedMatMul", [draw(4), draw(4, 5)], transA=1)
for shape in ((3, 3), (2, 5, 5), (2, 2, 8, 8)):
    g.add("Inverse", [draw(*shape) + 3 * np.eye(shape[-1], dtype=F32)], rtol=1e-3, atol=1e-4)
g.add("Inverse", [np.array([[0, 1, 2], [1, 0, 3], [4, -3, 8]], F32)], rtol=1e-3)
for metric in ("euclidean", "sqeuclidean"):
    g.add("CDist", [draw(4, 3), draw(5, 3)], metric=metric, atol=1e-4)

x, w, b = draw(3, 8), draw(8, 5), draw(5)
y = x @ w + b
y = y * 0.5 * (1 + np.tanh(np.sqrt(2 / np.pi) * (y + 0.044715 * y**3)))
g.add("GemmFastGelu", [x, w, b], reference=[y.astype(F32)])
g.add("TransposeMatMul", [draw(4, 3), draw(4, 5)], transA=1, alpha=0.5)
a, b = ints(-300, 300, 3, 4, dtype=np.int16), ints(-300, 300, 4, 5, dtype=np.int16)
g.add("MatMulInteger16", [a, b], reference=[a.astype(np.int32) @ b.astype(np.int32)])


def nhwc_conv(x, w, b):
    """Stride 1, no pads."""
    x = x.transpose(0, 3, 1, 2)
    m = network([helper.make_node("Conv", ["x", "w", "b"], ["y"])], [],
                [float_value("x", *x.shape), float_value("w", *w.shape),
                 float_value("b", *b.shape)],
                [float_value("y", None, None, None, None)])
    y, = session(m).run(None, {"x": x, "w": w, "b": b})
    return y.transpose(0, 2, 3, 1)


x, w, b, z = draw(1, 6, 5, 4), draw(6, 4, 3, 3), draw(6), draw(1, 4, 3, 6)
g.add("NhwcConv", [x, w, b], reference=[nhwc_conv(x, w, b)])
g.add("NhwcFusedConv", [x, w, b, z], activation="Relu",
      reference=[np.maximum(nhwc_conv(x, w, b) + z, 0)])

g = Group("forerunners of ai.onnx")
for upper in (0, 1):
    g.add("Trilu", [draw(4, 5)], upper=upper)
    g.add("Trilu", [ints(0, 9, 2, 3, 3), const(np.int64(-1))], upper=upper)
g.add("Unique", [np.array([3, 1, 3, 0, 1, 1, 7], F32)], outputs=3)
g.add("Pad", [draw(2, 3), const(np.array([0, 1, 2, 0])), const(np.float32(2.5))])
g.add("Pad", [draw(2, 4), const(np.array([0, 1, 0, 2]))], mode="reflect")
g.add("Range", [const(np.float32(1)), const(np.float32(4))])
g.add("Range", [const(np.int64(1)), const(np.int64(9)), const(np.int64(3))])
g.add("ExpandDims", [draw(2, 3), const(np.int32(-1))])
g.add("ExpandDims", [draw(2, 3), const(np.int32(1))])
g.add("GatherND", [draw(3, 4), ints(0, 3, 2, 2)])
g.add("GridSample", [draw(1, 2, 4, 5), draw(1, 3, 3, 2, scale=0.7)], mode="bilinear",
      padding_mode="border", align_corners=0)

# ---------------------------------------------------------------------------------------- attention

B, S, N, E = 2, 5, 4, 6
D = N * E


def masks(total, s=S):
    """Every form of a padding mask: lengths, ends and starts, by key, by query and key."""
    lengths = np.array([total, total - 2], np.int32)
    by_key = (np.arange(total) < lengths[:, None]).astype(np.int32)
    yield None
    yield lengths
    yield np.concatenate([lengths, np.array([0, 1], np.int32)])
    yield by_key
    yield np.repeat(by_key[:, None], s, 1) & np.tril(np.ones((s, total), np.int32), total - s)


def position_bias(table, size, most, both):
    """T5's: exact buckets for the near half, logarithmic ones up to the distance `most`."""
    count, heads = table.shape
    behind = np.arange(size)[:, None] - np.arange(size)
    bucket = np.zeros_like(behind)
    if both:
        count //= 2
        bucket, behind = (behind < 0) * count, np.abs(behind)
    behind, exact = np.maximum(behind, 0), count // 2
    far = np.log(np.maximum(behind, 1) / exact, dtype=F32) / np.log(most / exact, dtype=F32)
    far = np.minimum(exact + (far * (count - exact)).astype(int), count - 1)
    bucket = bucket + np.where(behind < exact, behind, far)
    return table.reshape(heads, -1)[:, bucket][None]


g = Group("relative positions and states")
for both in (0, 1):
    for table, size, most in ((draw(8, 4), 9, 6), (draw(32, 2), 40, 20)):
        g.add("RelativePositionBias", [table, const(np.int64(size)), const(np.int64(size))],
              is_bidirectional=both, max_distance=most,
              reference=[position_bias(table, size, most, both)])
for activation in ("none", "silu"):
    g.add("CausalConvWithState", [draw(2, 4, 7), draw(4, 1, 3), draw(4), draw(2, 4, 2)], outputs=2,
          activation=activation)
g.add("CausalConvWithState", [draw(2, 4, 7), draw(4, 1, 3), None, draw(2, 4, 4)], outputs=2, dilation=2)
g.add("CausalConvWithState", [draw(2, 7, 2, 3), draw(6, 1, 3), draw(6), draw(2, 2, 2, 3)], outputs=2,
      channels_last=1, activation="silu")
g.add("CausalConvWithState", [draw(2, 7, 4), draw(4, 1, 3)], outputs=2, channels_last=1)
for direction in ("forward", "reverse", "bidirectional"):
    d = 2 if direction == "bidirectional" else 1
    w = [const(ints(0, 256, d, i, 4 * 3, dtype=np.uint8)) for i in (5, 3)]
    quantization = []
    for _ in w:
        quantization += [const(np.full(d, 0.01, F32)), const(np.full(d, 120, np.uint8))]
    for lens, h, c, p, more in (
            (None, None, None, None, {}), (None, draw(d, 2, 3), draw(d, 2, 3), draw(d, 9, scale=0.3), {}),
            (np.array([4, 2], np.int32), None, draw(d, 2, 3), None, {"clip": 0.5}),
            (None, None, None, None, {"input_forget": 1, "activations": ["HardSigmoid", "Tanh", "Softsign"] * d,
                                      "activation_alpha": [0.2] * d, "activation_beta": [0.5] * d})):
        g.add("DynamicQuantizeLSTM", [draw(4, 2, 5), *w, draw(d, 24, scale=0.3), lens, h, c, p, *quantization],
              outputs=3, hidden_size=3, direction=direction, atol=2e-3, **more)

g = Group("Attention")
for uni in (0, 1):
    for m in masks(S):
        g.add("Attention", [draw(B, S, 8), draw(8, 3 * D, scale=0.4), draw(3 * D), m], num_heads=N,
              unidirectional=uni)
    for m in (None, ints(1, 2, B, S + 3, dtype=np.int32)):
        g.add("Attention", [draw(B, S, 8), draw(8, 3 * D, scale=0.4), draw(3 * D), m,
                            draw(2, B, N, 3, E)], outputs=2, num_heads=N, unidirectional=uni)


def attention(x, w, bias):
    """softmax(q k^T / sqrt(E) + bias) v, for what onnxruntime's CPU kernel does not take."""
    q, k, v = np.split((x @ w).reshape(B, S, 3 * N, E).transpose(0, 2, 1, 3), 3, axis=1)
    s = q @ k.transpose(0, 1, 3, 2) / np.sqrt(E) + bias
    e = np.exp(s - s.max(-1, keepdims=True))
    return ((e / e.sum(-1, keepdims=True)) @ v).transpose(0, 2, 1, 3).reshape(B, S, D).astype(F32)


square = np.tril(np.ones((1, 1, 8, 8), np.int32)).repeat(B, 0)
x, w, bias = draw(B, S, 8), draw(8, 3 * D, scale=0.4), draw(1, N, S, S)
g.add("Attention", [x, w, None, square], num_heads=N,
      reference=[attention(x, w, (square[:, :, :S, :S] - 1) * 1e4)])
g.add("Attention", [x, w, None, None, None, bias], num_heads=N, reference=[attention(x, w, bias)])
g.add("Attention", [draw(B, S, 8), draw(8, 3 * D), draw(3 * D), list(masks(S))[3], None,
                    draw(B, 1, S, S)], num_heads=N, scale=0.3, mask_filter_value=-50.0)
g.add("Attention", [draw(B, S, 8), draw(8, 2 * D + 8), draw(2 * D + 8)], num_heads=N,
      qkv_hidden_sizes=[D, D, 8])

g = Group("MultiHeadAttention")
for uni in (0, 1):
    for m in masks(S):
        if m is None or m.shape != (2 * B,):
            g.add("MultiHeadAttention", [draw(B, S, D), draw(B, S, D), draw(B, S, D), None, m],
                  num_heads=N, unidirectional=uni)
    g.add("MultiHeadAttention", [draw(B, S, D), draw(B, S, D), draw(B, S, 8), draw(2 * D + 8)],
          num_heads=N, unidirectional=uni, scale=0.2)
    for queries, keys in ((2, 5), (1, 4), (5, 2)):
        g.add("MultiHeadAttention", [draw(B, queries, D), draw(B, keys, D), draw(B, keys, D)],
              num_heads=N, unidirectional=uni)
    g.add("MultiHeadAttention", [draw(B, 2, D), draw(B, 2, D), draw(B, 2, D), None, None, None,
                                 draw(B, N, 3, E), draw(B, N, 3, E)], outputs=3, num_heads=N,
          unidirectional=uni)
g.add("MultiHeadAttention", [draw(B, S, D), draw(B, 7, D), draw(B, 7, D), None, None,
                             draw(1, 1, S, 7)], num_heads=N)
g.add("MultiHeadAttention", [draw(B, S, D), draw(B, 7, D), draw(B, 7, D), None,
                             list(masks(7))[3], draw(B, N, S, 7)], num_heads=N)
g.add("MultiHeadAttention", [draw(B, S, D), draw(B, N, 7, E), draw(B, N, 7, E)], num_heads=N)
g.add("MultiHeadAttention", [draw(B, S, D), draw(B, N, 7, E), draw(B, N, 7, E), draw(3 * D)], num_heads=N)


def grouped(new, past, lengths, groups=2, rotary=0, **attributes):
    """GroupQueryAttention of `new` positions behind caches of room `past` (None: none)."""
    total = int(max(lengths)) + 1
    packed = attributes.pop("packed", False)
    more = attributes.pop("more", [])
    b = len(lengths)
    q = [draw(b, new, (N + 2 * groups) * 16)] if packed else [
        draw(b, new, N * 16), draw(b, new, groups * 16), draw(b, new, groups * 16)]
    q += [None] * (3 - len(q))
    cache = [None, None] if past is None else [draw(b, groups, past, 16) for _ in range(2)]
    half = np.arange(20)[:, None] * 0.1 * np.arange(1, 9)
    tables = [np.cos(half).astype(F32), np.sin(half).astype(F32)] if rotary else []
    inputs = [*q, *cache, np.array(lengths, np.int32), const(np.array(total, np.int32)), *tables]
    if more:
        inputs += [None] * (9 - len(inputs)) + more
    return inputs, dict(outputs=3, num_heads=N, kv_num_heads=groups, do_rotary=rotary, **attributes)


g = Group("GroupQueryAttention")
EXTRAS = ({"rotary": 1}, {"local_window_size": 2}, {"smooth_softmax": 1}, {"groups": 4},
          {"rotary": 1, "packed": True, "rotary_interleaved": 1}, {"scale": 0.1, "softcap": 5.0},
          {"more": [None, None, draw(N)]}, {})
for k, (new, past, lengths) in enumerate(((5, None, (4, 4)), (1, 8, (5, 2)), (1, 6, (6, 3)),
                                          (3, 7, (6,)), (5, 9, (4,)))):
    for extra in EXTRAS[k % 2::2]:
        inputs, attributes = grouped(new, past, lengths, **extra)
        g.add("GroupQueryAttention", inputs, **attributes)
inputs, attributes = grouped(1, 8, (5, 2), more=[None, draw(B, N, 1, 6)])
g.add("GroupQueryAttention", inputs, **attributes)
inputs, attributes = grouped(1, 8, (5, 5), rotary=1, more=[np.array([[5], [5]])])
g.add("GroupQueryAttention", inputs, **attributes)

g = Group("RotaryEmbedding")
half = np.arange(12)[:, None] * 0.1 * np.arange(1, 4)
cos, sin = np.cos(half).astype(F32), np.sin(half).astype(F32)
for inter in (0, 1):
    g.add("RotaryEmbedding", [draw(B, S, D), np.array([3]), cos, sin], interleaved=inter)
    g.add("RotaryEmbedding", [draw(B, S, D), ints(0, 12, B, S), cos, sin], interleaved=inter)
    g.add("RotaryEmbedding", [draw(B, N, S, E), ints(0, 12, B, S), cos, sin], interleaved=inter)
    g.add("RotaryEmbedding", [draw(B, S, D), ints(0, 12, B, S), cos[:, :2].copy(),
                              sin[:, :2].copy()], interleaved=inter, num_heads=N,
          rotary_embedding_dim=4)

g = Group("half floats")


def add_half(op, inputs, outputs=1, **attributes):
    """In f16, against onnxruntime in f32 on the same numbers."""
    def narrow(a):
        if isinstance(a, const):
            return const(narrow(a.array))
        return a.astype(F16) if isinstance(a, np.ndarray) and a.dtype == F32 else a

    def wide(a):
        if isinstance(a, const):
            return const(wide(a.array))
        return a.astype(F32) if isinstance(a, np.ndarray) and a.dtype == F16 else a

    inputs = [narrow(a) for a in inputs]
    single = Group.__new__(Group)
    single.opset, single.nodes, single.checks = 20, [], []
    single.inputs, single.weights, single.arrays = [], [], []
    single.add(op, [wide(a) for a in inputs], outputs, **attributes)
    m = single.model(single.nodes)
    results = session(m).run(None, {i.name: a for i, a in zip(single.inputs, single.arrays)})
    g.add(op, inputs, outputs, reference=[narrow(r) for r in results], rtol=1e-2, atol=1e-2,
          **attributes)


add_half("FastGelu", [draw(2, 3, 8), draw(8)])
add_half("BiasGelu", [draw(2, 3, 8), draw(8)])
add_half("QuickGelu", [draw(2, 3, 8)])
add_half("SkipLayerNormalization", [draw(2, 5, 16), draw(2, 5, 16), draw(16), draw(16), draw(16)])
add_half("SkipSimplifiedLayerNormalization", [draw(2, 5, 16), draw(2, 5, 16), draw(16)])
add_half("FusedMatMul", [draw(2, 3, 4), draw(2, 5, 4)], transB=1, alpha=0.5)
add_half("FusedConv", [draw(1, 4, 6, 5), draw(6, 4, 3, 3), draw(6)], activation="Relu")
add_half("Attention", [draw(B, S, 8), draw(8, 3 * D, scale=0.4), draw(3 * D),
                       np.array([5, 3], np.int32)], num_heads=N, unidirectional=1)
add_half("MultiHeadAttention", [draw(B, S, D), draw(B, S, D), draw(B, S, D)], num_heads=N)
inputs, attributes = grouped(1, 8, (5, 2), rotary=1, smooth_softmax=1)
add_half("GroupQueryAttention", inputs, **attributes)
add_half("RotaryEmbedding", [draw(B, S, D), ints(0, 12, B, S), cos, sin])
add_half("MatMulNBits", [draw(2, 3, 32), const(ints(0, 256, 6, 2, 8, dtype=np.uint8)),
                         const(draw(6, 2, scale=0.1))], bits=4, N=6, K=32, block_size=16)

# ---------------------------------------------------------------------------------------- quantized

U8, I8 = np.uint8, np.int8


def number(d):
    return ints(0, 256, 1, dtype=U8).astype(d).reshape(())


def scale():
    return F32(RNG.uniform(0.01, 0.1))


def whole(d, *shape):
    info = np.iinfo(d)
    return ints(info.min, info.max + 1, *shape, dtype=d)


g = Group("quantized elementwise")
for d in (U8, I8):
    for op in ("QLinearAdd", "QLinearMul"):
        for a, b in (((2, 3, 8), (2, 3, 8)), ((2, 3, 8), (8,)), ((4, 1), (1, 5)), ((3, 4), ())):
            out = scale() * (8 if op == "QLinearMul" else 1)
            g.add(op, [whole(d, *a), scale(), const(number(d)), whole(d, *b), scale(),
                       const(number(d)), F32(out), const(number(d))], steps=1)
        a, b = whole(d, 9), whole(d, 9)
        y = (a * 0.1).astype(F32), (b * 0.3).astype(F32)
        y = np.rint((y[0] + y[1] if op == "QLinearAdd" else y[0] * y[1]) / F32(0.7))
        g.add(op, [a, F32(0.1), None, b, F32(0.3), None, F32(0.7), None], steps=1,
              reference=[np.clip(y, np.iinfo(d).min, np.iinfo(d).max).astype(d)])
    g.add("QLinearSigmoid", [whole(d, 40), const(scale()), const(number(d)), const(F32(1 / 256)),
                             const(d(0))], steps=1)
    g.add("QLinearLeakyRelu", [whole(d, 40), const(scale()), const(number(d)), const(scale()),
                               const(number(d))], steps=1, alpha=0.2)
    g.add("QLinearConcat", [scale(), number(d), whole(d, 2, 3), scale(), number(d), whole(d, 2, 4),
                            scale(), number(d)], axis=1, steps=1)
    g.add("QLinearSoftmax", [whole(d, 3, 10), const(scale()), const(number(d)), const(F32(1 / 256)),
                             const(d(0))], steps=1, axis=-1, opset=13)
    g.add("QLinearWhere", [ints(0, 2, 4, 5).astype(bool), whole(d, 4, 5), const(scale()),
                           const(number(d)), whole(d, 5), const(scale()), const(number(d)),
                           const(scale()), const(number(d))], steps=1)
    for last in (0, 1):
        x = whole(d, 1, 6, 7, 5)
        g.add("QLinearGlobalAveragePool", [x, scale(), number(d), scale(), number(d)],
              channels_last=last, steps=1)
        for more in ({}, {"pads": [1, 0, 1, 1], "count_include_pad": 1}, {"strides": [2, 2]},
                     {"pads": [1, 1, 1, 1], "strides": [2, 2], "ceil_mode": 1}):
            g.add("QLinearAveragePool", [x, scale(), number(d), scale(), number(d)],
                  channels_last=last, kernel_shape=[3, 2], steps=1, **more)
    g.add("NhwcMaxPool", [whole(d, 1, 6, 7, 5)], kernel_shape=[3, 2], pads=[1, 0, 1, 1],
          strides=[2, 1])
    g.add("QuantizeLinear", [draw(3, 4, scale=3), const(scale()), const(number(d))])
    g.add("QuantizeLinear", [draw(3, 4, scale=3), const(np.array([scale() for _ in range(4)])),
                             const(whole(d, 4))], axis=1)
    g.add("DequantizeLinear", [whole(d, 3, 4), const(np.array([scale() for _ in range(3)])),
                               const(whole(d, 3))], axis=0)
    a, b, za, zb = whole(d, 4), whole(d, 3, 4), number(d), number(d)
    product = (a.astype(np.int32) - np.int32(za)) * (b.astype(np.int32) - np.int32(zb))
    g.add("MulInteger", [a, za, b, zb], reference=[product])
    g.add("QLinearReduceMean", [x, F32(0.1), d(3), F32(0.1), d(5)], axes=[2, 3], keepdims=0,
          steps=1, reference=[np.clip(np.rint((x.astype(np.float64) - 3).mean((2, 3))) + 5,
                                      np.iinfo(d).min, np.iinfo(d).max).astype(d)])

def factor(d, *shape):
    """Bytes that others are multiplied by. Without VNNI onnxruntime adds two products of u8 by i8 in 16 bits, and saturates: so an i8 has seven bits."""
    return whole(d, *shape) if d == U8 else ints(-64, 64, *shape, dtype=d)


g = Group("quantized products")
for d in (U8, I8):
    g.add("DynamicQuantizeMatMul", [draw(3, 7), const(factor(d, 7, 5)), const(scale())], atol=1e-3)
    g.add("DynamicQuantizeMatMul", [draw(2, 3, 7), const(factor(d, 7, 5)),
                                    const(np.array([scale() for _ in range(5)])),
                                    const(whole(d, 5)), draw(5)], atol=1e-3)
    for e in (U8, I8) if d == U8 else (I8,):
        g.add("MatMulIntegerToFloat", [whole(d, 3, 7), factor(e, 7, 5), scale(), scale()])
        g.add("MatMulIntegerToFloat", [whole(d, 2, 3, 7), const(factor(e, 7, 5)), scale(),
                                       const(np.array([scale() for _ in range(5)])), number(d),
                                       const(whole(e, 5)), draw(5)], rtol=1e-3, atol=1e-3)
        for a, b in ((0, 0), (1, 0), (0, 1)):
            x, w = whole(d, *((7, 3) if a else (3, 7))), factor(e, *((5, 7) if b else (7, 5)))
            head = [x, scale(), const(number(d)), const(w), scale(), const(number(e))]
            bias = const(ints(-99, 99, 5, dtype=np.int32))
            g.add("QGemm", [*head, bias, F32(10.0), const(number(d))], transA=a, transB=b, steps=1)
            g.add("QGemm", [*head, bias], transA=a, transB=b, alpha=0.5)
        if d == I8:
            continue
        g.add("QAttention", [whole(d, B, S, 8), const(factor(e, 8, 3 * D)), draw(3 * D), scale(),
                             const(F32(0.01)), None, const(number(d)), const(number(e))],
              num_heads=N, rtol=1e-3, atol=1e-3)
        g.add("QAttention", [whole(d, B, S, 8), const(factor(e, 8, 3 * D)), draw(3 * D), scale(),
                             const(np.full(3 * D, 0.01, F32)), np.array([5, 3], np.int32),
                             const(number(d)), const(np.full(3 * D, 4, e)), draw(2, B, N, 3, E)],
              outputs=2, num_heads=N, unidirectional=1, rtol=1e-3, atol=1e-3)
    conv = [const(scale()), const(number(d)), const(whole(d, 6, 4, 3, 3)), const(scale()),
            const(d(0)), const(scale() * F32(9)), const(number(d))]
    g.add("QLinearConv", [whole(d, 1, 4, 6, 5), *conv], steps=1)
    g.add("QLinearConv", [whole(d, 1, 6, 5, 4), *conv], channels_last=1, pads=[1, 1, 1, 1], steps=1)


def packed_weights(bits, rows, depth, block, zeros):
    """What MatMulNBits takes beside its input: weights, scales, zero points of that kind."""
    blocks = (depth + block - 1) // block
    w = [const(ints(0, 256, rows, blocks, block * bits // 8, dtype=U8)),
         const(draw(rows, blocks, scale=0.1))]
    if zeros == "packed":
        w.append(const(ints(0, 256, rows, (blocks * bits + 7) // 8, dtype=U8)))
    elif zeros == "float":
        w.append(const(draw(rows, blocks, scale=2) + F32(2 ** (bits - 1))))
    return w


def times_packed(bits, depth, x, w, scales, zeros):
    """The product with float zero points, which onnxruntime has for 4 bits only."""
    q = w.array[..., None] >> (np.arange(8 // bits, dtype=U8) * U8(bits)) & U8(2**bits - 1)
    q = q.reshape(*w.array.shape[:2], -1)
    q = (q - zeros.array[..., None]) * scales.array[..., None]
    return (x @ q.reshape(len(q), -1)[:, :depth].T).astype(F32)


g = Group("weights of a few bits")
for bits in (4, 8, 2):
    for depth, block in ((32, 16), (64, 32), (40, 16), (128, 128)):
        for zeros in ("none", "packed", "float"):
            w, x = packed_weights(bits, 6, depth, block, zeros), draw(2, 3, depth)
            y = [times_packed(bits, depth, x, *w)] if zeros == "float" else None
            g.add("MatMulNBits", [x, *w], bits=bits, N=6, K=depth, block_size=block, reference=y,
                  rtol=1e-3, atol=1e-3)
w = packed_weights(4, 6, 32, 16, "packed")
g.add("MatMulNBits", [draw(3, 32), *w, None, const(draw(6))], bits=4, N=6, K=32, block_size=16,
      rtol=1e-3, atol=1e-3)
group = ints(0, 3, 40, dtype=np.int32)
w, x = packed_weights(4, 6, 40, 16, "none"), draw(2, 40)
g.add("MatMulNBits", [x, *w, None, const(group)], bits=4, N=6, K=40, block_size=16, rtol=1e-3, atol=1e-3)
# onnxruntime 1.31 mistakes zero points where there is a g_idx, even one that changes nothing.
w = packed_weights(4, 6, 40, 16, "float")
q = (w[0].array[..., None] >> np.array([0, 4], U8) & U8(15)).reshape(6, -1)[:, :40]
y = (x @ ((q - w[2].array[:, group]) * w[1].array[:, group]).T).astype(F32)
g.add("MatMulNBits", [x, *w, const(group)], bits=4, N=6, K=40, block_size=16, reference=[y], rtol=1e-3, atol=1e-3)
for zeros in (False, True):
    data = [const(ints(0, 256, 9, 16, dtype=U8)), ints(0, 9, 2, 3), const(draw(9, 2))]
    data += [const(ints(0, 256, 9, 1, dtype=U8))] if zeros else []
    g.add("GatherBlockQuantized", data, bits=4, block_size=16, gather_axis=0, quantize_axis=1)
    data = [const(ints(0, 256, 9, 32, dtype=U8)), ints(0, 9, 4), const(draw(9, 2))]
    data += [const(ints(0, 256, 9, 2, dtype=U8))] if zeros else []
    g.add("GatherBlockQuantized", data, bits=8, block_size=16, gather_axis=0, quantize_axis=1)


# ------------------------------------------------------------------------------------- whole models


class Nodes:
    """Collects nodes and random weights; each method returns the name of its output."""

    def __init__(self):
        self.nodes, self.weights = [], []

    def weight(self, *shape, scale=0.2, array=None):
        name = f"w{len(self.weights)}"
        array = draw(*shape, scale=scale) if array is None else np.asarray(array)
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def __call__(self, op, *inputs, **attributes):
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=f"{op}_{name}",
                                           **attributes))
        return name


def conv_net(channels=(20, 24)):
    n = Nodes()
    a, b = channels

    def conv(x, m, c, k, group=1, **more):
        return n("Conv", x, n.weight(m, c // group, k, k), n.weight(m), kernel_shape=[k, k],
                 pads=[k // 2] * 4, group=group, **more)

    x = n("Relu", conv("x", a, 3, 3, strides=[2, 2]))
    y = n("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    y = n("Relu", conv(y, b, a, 1))
    z = n("Sigmoid", conv(y, b, b, 3, group=b))
    z = n("Relu", n("Add", conv(z, b, b, 3), y))
    z = n("AveragePool", z, kernel_shape=[2, 2], strides=[2, 2])
    z = n("Clip", conv(z, 2 * b, b, 3), n.weight(array=F32(0)), n.weight(array=F32(6)))
    z = n("Flatten", n("GlobalAveragePool", z))
    z = n("Softmax", n("Gemm", z, n.weight(10, 2 * b), n.weight(10), transB=1), axis=1)
    n.nodes[-1].output[0] = "y"
    return (network(n.nodes, n.weights, [float_value("x", 1, 3, 32, 32)],
                    [float_value("y", 1, 10)]), {"x": draw(1, 3, 32, 32)})


def resize_net():
    """Two convolutions with an upsampled path between them, of channels that need padding."""
    n = Nodes()

    def conv(x, m, c):
        return n("Conv", x, n.weight(m, c, 3, 3), n.weight(m), kernel_shape=[3, 3], pads=[1] * 4)

    x = n("Relu", conv("x", 24, 24))
    up = n("Resize", x, "", n.weight(array=np.array([1, 1, 2, 2], F32)), mode="nearest",
           coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    linear = n("Resize", x, "", n.weight(array=np.array([1, 1, 2, 2], F32)), mode="linear",
               coordinate_transformation_mode="half_pixel")
    y = conv(n("Add", conv(up, 24, 24), linear), 40, 24)
    n("GlobalMaxPool", y)
    n.nodes[-1].output[0] = "y"
    return (network(n.nodes, n.weights, [float_value("x", 1, 24, 6, 6)],
                    [float_value("y", 1, 40, 1, 1)]), {"x": draw(1, 24, 6, 6)})


def bert_net(layers=2, width=32, heads=4, s=9):
    """A text encoder in the form that PyTorch exports: embeddings, attention, gelu."""
    n = Nodes()
    shape = n.weight(array=np.array([0, 0, heads, width // heads]))
    flat = n.weight(array=np.array([0, 0, width]))

    def norm(x):
        return n("LayerNormalization", x, n.weight(width), n.weight(width), epsilon=1e-12)

    def linear(x, a, b):
        return n("Add", n.weight(b), n("MatMul", x, n.weight(a, b)))

    mask = n("Cast", n("Unsqueeze", "mask", n.weight(array=np.array([1, 2]))), to=1)
    mask = n("Mul", n("Sub", n.weight(array=F32(1)), mask), n.weight(array=F32(-10000)))
    x = n("Add", n("Gather", n.weight(50, width), "ids"), n("Gather", n.weight(2, width), "types"))
    x = norm(n("Add", x, n.weight(1, s, width)))
    for _ in range(layers):
        q, k, v = (n("Reshape", linear(x, width, width), shape) for _ in range(3))
        q, v = (n("Transpose", t, perm=[0, 2, 1, 3]) for t in (q, v))
        k = n("Transpose", k, perm=[0, 2, 3, 1])
        scores = n("Div", n("MatMul", q, k), n.weight(array=F32((width // heads) ** 0.5)))
        y = n("MatMul", n("Softmax", n("Add", scores, mask), axis=-1), v)
        y = n("Reshape", n("Transpose", y, perm=[0, 2, 1, 3]), flat)
        x = norm(n("Add", linear(y, width, width), x))
        h = linear(x, width, 2 * width)
        erf = n("Erf", n("Div", h, n.weight(array=F32(2**0.5))))
        h = n("Mul", h, n("Add", erf, n.weight(array=F32(1))))
        h = n("Mul", h, n.weight(array=F32(0.5)))
        x = norm(n("Add", linear(h, 2 * width, width), x))
    n.nodes[-1].output[0] = "y"
    inputs = [helper.make_tensor_value_info(i, TensorProto.INT64, [2, s])
              for i in ("ids", "types", "mask")]
    feed = {"ids": ints(0, 50, 2, s), "types": ints(0, 2, 2, s),
            "mask": np.arange(s)[None] < np.array([[s], [s - 3]])}
    feed["mask"] = feed["mask"].astype(np.int64)
    return network(n.nodes, n.weights, inputs, [float_value("y", 2, s, width)]), feed


LEVELS = onnxruntime.GraphOptimizationLevel


def optimized(folder, m, level):
    """The model as onnxruntime's optimizer writes it."""
    onnx.save(m, folder / "plain.onnx")
    session(folder / "plain.onnx", graph_optimization_level=level,
            optimized_model_filepath=str(folder / "m.onnx"))
    return onnx.load(folder / "m.onnx")


def check_model(folder, feed, options=(), rtol=1e-3, atol=1e-4, close=0):
    """close: so many steps of quantization may the result be off, as a part of its range."""
    m = onnx.load(folder / "m.onnx")
    names = [o.name for o in m.graph.output]
    order = [i.name for i in m.graph.input]
    wanted = dict(zip(names, session(m).run(None, feed)))
    for level in ((), ("-O0",)):
        actual = compiled(folder, "m.onnx", [feed[i] for i in order], names, *options, *level)
        for name, w in wanted.items():
            spread = float(np.max(w) - np.min(w)) * close
            what = mismatch(actual[name], w, rtol, atol + spread, 0)
            expect(not what, f"{level}: {name}: {what}")


def operators(m):
    return {(n.domain, n.op_type) for n in m.graph.node}


def optimized_case(name, build, level, must_have, options=(), slow=False):
    def inside():
        folder = T.scratch(SCRATCH / re.sub(r"\W", "_", name))
        try:
            m, feed = build()
            have = operators(optimized(folder, m, level))
            missing = [op for op in must_have if op not in have]
            expect(not missing, f"no {missing} among {sorted(have)}: the case tests nothing")
            check_model(folder, feed, options)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    suite.add(name, inside, slow=slow)


optimized_case("convolutions, optimized: extended", conv_net, LEVELS.ORT_ENABLE_EXTENDED,
               [(MS, "FusedConv")])
optimized_case("an encoder, optimized: extended", bert_net, LEVELS.ORT_ENABLE_EXTENDED,
               [(MS, "SkipLayerNormalization"), (MS, "Gelu"), (MS, "FusedMatMul")])
# The weights' blocks are those of the processor that the test runs on.
WIDE = "avx512f" in Path("/proc/cpuinfo").read_text().split()
BLOCK = ("--nchwc-block", "16" if WIDE else "8")
optimized_case("convolutions, optimized: all", conv_net, LEVELS.ORT_ENABLE_ALL, [(NCHWC, "Conv")])
optimized_case("convolutions, optimized: all, blocks told", lambda: conv_net((16, 32)),
               LEVELS.ORT_ENABLE_ALL, [(NCHWC, "Conv"), (NCHWC, "ReorderOutput")], BLOCK)
optimized_case("upsampling, optimized: all", resize_net, LEVELS.ORT_ENABLE_ALL,
               [(NCHWC, "ReorderInput"), (NCHWC, "Upsample")])
optimized_case("an encoder, optimized: all", bert_net, LEVELS.ORT_ENABLE_ALL,
               [(MS, "SkipLayerNormalization")], slow=True)


@suite.case("an operator set that is not imported is assumed, with a warning; an initializer is no input")
def missing_import():
    folder = T.scratch(SCRATCH / "missing-import")
    nodes = [helper.make_node("Gelu", ["x"], ["g"], domain=MS), helper.make_node("Binarizer", ["g"], ["b"], domain="ai.onnx.ml", threshold=0.5),
             helper.make_node("Gelu", ["b"], ["h"], domain=MS), helper.make_node("Add", ["h", "w"], ["y"])]
    weight = numpy_helper.from_array(np.ones(4, F32), "w")
    m = network(nodes, [weight], [float_value("x", 4), float_value("w", 4)], [float_value("y", 4)])
    onnx.save(m, folder / "m.onnx")
    x = np.array([-1, 0.2, 0.9, 3], F32)
    np.save(folder / "x.npy", x)
    done = T.must(T.run([TGC, "run", "m.onnx", "-i", "x=x.npy", "--out-dir", "."], cwd=folder))
    np.testing.assert_allclose(np.load(folder / "y.npy"), session(m).run(None, {"x": x})[0], rtol=1e-5)
    expect(done.err.count("does not import") == 2 and "'com.microsoft'; version 1" in done.err and "'ai.onnx.ml'; version 5" in done.err, done.err)
    done = T.must(T.run([TGC, "run", "m.onnx", "-i", "w=ones"], cwd=folder), 1)
    expect("'w' a value (an initializer)" in done.err, done.err)


@suite.case("blocks that nothing tells are asked for")
def _():
    folder = T.scratch(SCRATCH / "blocks")
    try:
        m, _ = conv_net((16, 32))
        optimized(folder, m, LEVELS.ORT_ENABLE_ALL)
        done = T.must(T.run([TGC, "m.onnx", "-o", "m.c"], cwd=folder), 1)
        expect("--nchwc-block" in done.err, done.err)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# onnxruntime computes the layers of a quantized model with its own rounding, so that a difference
# of one step of quantization in the middle is a few in the result.


class Reader:
    def __init__(self, feed):
        self.feeds = iter([feed])

    def get_next(self):
        return next(self.feeds, None)

    def rewind(self):
        pass


def quantized_case(name, build, how, must_have, level=None, slow=False):
    def inside():
        folder = T.scratch(SCRATCH / re.sub(r"\W", "_", name))
        try:
            m, feed = build()
            onnx.save(m, folder / "plain.onnx")
            how(folder / "plain.onnx", folder / "quant.onnx", feed)
            m = onnx.load(folder / "quant.onnx")
            have = operators(m if level is None else optimized(folder, m, level))
            if level is None:
                onnx.save(m, folder / "m.onnx")
            missing = [op for op in must_have if op not in have]
            expect(not missing, f"no {missing} among {sorted(have)}: the case tests nothing")
            check_model(folder, feed, BLOCK, close=0.03)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    suite.add(name, inside, slow=slow)


def static(form, **more):
    def how(source, target, feed):
        from onnxruntime import quantization as q
        q.quantize_static(source, target, Reader(feed), quant_format=getattr(q.QuantFormat, form),
                          **more)
    return how


def dynamic(source, target, feed):
    from onnxruntime import quantization as q
    q.quantize_dynamic(source, target)


quantized_case("convolutions, quantized: QDQ", conv_net, static("QDQ"),
               [("", "QuantizeLinear"), ("", "DequantizeLinear")])
quantized_case("convolutions, quantized: QDQ by channel", conv_net, static("QDQ", per_channel=True),
               [("", "QuantizeLinear")], slow=True)
quantized_case("convolutions, quantized: QOperator", conv_net, static("QOperator"),
               [("", "QLinearConv"), (MS, "QLinearAdd"), (MS, "QLinearSigmoid"), (MS, "QGemm"),
                (MS, "QLinearGlobalAveragePool"), (MS, "QLinearAveragePool")])
quantized_case("convolutions, quantized: QDQ, optimized", conv_net, static("QDQ"),
               [(MS, "QGemm"), (MS, "QLinearAveragePool")], LEVELS.ORT_ENABLE_EXTENDED)
quantized_case("convolutions, quantized: QDQ, optimized: all", conv_net, static("QDQ"),
               [(MS, "QLinearConv")], LEVELS.ORT_ENABLE_ALL)
quantized_case("an encoder, quantized: dynamic", bert_net, dynamic,
               [("", "DynamicQuantizeLinear"), ("", "MatMulInteger")])
quantized_case("an encoder, quantized: dynamic, optimized", bert_net, dynamic,
               [(MS, "DynamicQuantizeMatMul")], LEVELS.ORT_ENABLE_EXTENDED)
quantized_case("an encoder, quantized: QOperator", bert_net, static("QOperator"),
               [("", "QLinearMatMul"), (MS, "QLinearAdd")], slow=True)


# ---------------------------------------------------------------------------------------- bad input


def spoiled(g, node, draws):
    """The node's model with one thing wrong, at random, and what that is."""
    m = g.model([node])
    n = m.graph.node[0]
    k = int(draws.integers(len(n.input)))
    kind = draws.integers(5)
    shapes = {i.name: i.type.tensor_type for i in m.graph.input}
    name = n.input[k]
    if kind == 0 or name not in shapes:
        n.input[k] = ""
        what = "is missing"
    elif kind == 1:
        del shapes[name].shape.dim[:]
        what = "is a scalar"
    elif kind == 2:
        shapes[name].shape.dim.add().dim_value = 3
        what = "has one more axis"
    elif kind == 3 and len(shapes[name].shape.dim):
        dims = shapes[name].shape.dim
        dims[int(draws.integers(len(dims)))].dim_value = int(draws.integers(0, 4))
        what = f"has the shape {[d.dim_value for d in dims]}"
    else:
        shapes[name].elem_type = int(draws.choice([1, 2, 3, 6, 7, 9, 10, 11, 16]))
        what = f"has the type {shapes[name].elem_type}"
    for a in n.attribute:
        if draws.integers(8) == 0 and a.type == onnx.AttributeProto.INT:
            a.i = int(draws.choice([-1, 0, 1, 3, 1 << 40]))
            what += f", {a.name} is {a.i}"
    attributes = {a.name: helper.get_attribute_value(a) for a in n.attribute}
    return m, f"{n.op_type} {attributes}: input {k} {what}"


def bad_input(g, times):
    draws = np.random.default_rng(len(g.nodes))
    folder = T.scratch(SCRATCH / (re.sub(r"\W", "_", g.name) + "_bad"))
    problems = []
    try:
        for node in g.nodes[::1 if times > 1 else 4]:
            for _ in range(times):
                m, what = spoiled(g, node, draws)
                onnx.save(m, folder / "m.onnx")
                done = T.run([TGC, "m.onnx", "-o", "m.c"], cwd=folder)
                if done.status not in (0, 1) or (done.status == 1 and not done.err.strip()):
                    problems.append(f"{what}: {done.describe()}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    expect(not problems, "\n".join(problems[:4]) + f"\n{len(problems)} went wrong")


for one in GROUPS:
    suite.add(f"{one.name}: bad input", bad_input, one, 1)
    suite.add(f"{one.name}: much bad input", bad_input, one, 12, slow=True)


if __name__ == "__main__":
    suite.main()
