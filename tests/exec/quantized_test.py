"""Quantized layers as users' tools write them, for each instruction set, against onnx's reference.

Weights of u8 with any zero point, products of two values of the run, depthwise convolutions, pooling
of bytes, activations between conversions, dynamic quantization. What is rounded to bytes may differ
by one where the result is within a rounding error of the middle between two.
"""

import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "lib")]

import numpy as np
import onnx
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator

import graphs as G
import tgc as T
from suite import Suite, expect

suite = Suite("quantized")
OPTIONS = suite.parse()
TGC = T.find_tgc(OPTIONS.build).resolve()
SCRATCH = T.scratch(Path(OPTIONS.build).resolve() / "test-scratch" / "quantized")
DTYPE = {np.dtype(np.uint8): TensorProto.UINT8, np.dtype(np.int8): TensorProto.INT8,
         np.dtype(np.uint16): TensorProto.UINT16, np.dtype(np.float32): TensorProto.FLOAT}


class Layers:
    """A model of layers that have nothing to do with each other."""

    def __init__(self):
        self.random = np.random.default_rng(11)
        self.nodes, self.weights, self.inputs, self.outputs, self.feeds = [], [], [], [], {}
        self.kinds = {}

    def weight(self, name, array):
        self.weights.append(G.weight(name, np.asarray(array)))
        return name

    def bytes(self, shape, dtype=np.uint8):
        limits = np.iinfo(dtype)
        return self.random.integers(limits.min, limits.max + 1, shape).astype(dtype)

    def input(self, name, array):
        self.inputs.append(G.value(name, list(array.shape), DTYPE[array.dtype]))
        self.feeds[name] = array
        return name

    def node(self, kind, sources, result, **more):
        self.nodes.append(G.node(kind, sources, [result], **more))
        return result

    def output(self, name, shape, dtype):
        self.outputs.append(G.value(name, shape, DTYPE[np.dtype(dtype)]))
        self.kinds[name] = np.dtype(dtype)

    def dequantize(self, x, scale, zero, **more):
        self.weight(f"{x}_s", np.asarray(scale, np.float32))
        self.weight(f"{x}_z", zero)
        return self.node("DequantizeLinear", [x, f"{x}_s", f"{x}_z"], f"{x}_d", **more)

    def quantize(self, x, name, scale, zero, dtype=np.uint8):
        self.weight(f"{name}_qs", np.float32(scale))
        self.weight(f"{name}_qz", np.array(zero, dtype))
        return self.node("QuantizeLinear", [x, f"{name}_qs", f"{name}_qz"], name)

    def conv(self, name, channels, out, size, group=1, kernel=3, stride=1, dtype=np.int8, zero=0,
             shown=True):
        x = self.dequantize(self.input(f"{name}_x", self.bytes([1, channels, size, size])), 0.02,
                            np.uint8(113))
        w = self.weight(f"{name}_w", self.bytes([out, channels // group, kernel, kernel], dtype))
        taps = channels // group * kernel * kernel
        w = self.dequantize(w, (0.5 + self.random.random(out)) / (75 * np.sqrt(taps)),
                            np.full(out, zero, dtype), axis=0)
        b = self.weight(f"{name}_b", self.random.standard_normal(out).astype(np.float32))
        y = self.node("Conv", [x, w, b], f"{name}_y", group=group, strides=[stride] * 2,
                      pads=[kernel // 2] * 4)
        self.quantize(y, name, 0.03, 100)
        side = (size - 1) // stride + 1
        if shown:
            self.output(name, [1, out, side, side], np.uint8)

    def matmul(self, name, rows, depth, columns, batch=(), quantized=True, dtype=np.uint8):
        a = self.dequantize(self.input(f"{name}_a", self.bytes([*batch, rows, depth], dtype)),
                            0.02, np.array(7, dtype))
        b = self.dequantize(self.input(f"{name}_b", self.bytes([*batch, depth, columns], dtype)),
                            0.03, np.array(100, dtype))
        y = self.node("MatMul", [a, b], f"{name}_y" if quantized else name)
        if quantized:
            self.quantize(y, name, 0.03 * np.sqrt(depth), 120)
        self.output(name, [*batch, rows, columns], np.uint8 if quantized else np.float32)

    def attention(self, name, heads, rows, depth, dtype=np.uint8):
        """Scores, softmax and weighted values, each of them quantized."""
        middle, least = np.array(131, np.uint8), np.array(0, np.uint8)
        if dtype == np.int8:
            middle, least = np.array(-3, np.int8), np.array(-128, np.int8)
        q, k, v = (self.dequantize(self.input(f"{name}_{x}", self.bytes([heads, rows, depth], dtype)),
                                   0.02, middle) for x in "qkv")
        k = self.node("Transpose", [k], f"{name}_t", perm=[0, 2, 1])
        y = self.quantize(self.node("MatMul", [q, k], f"{name}_qk"), f"{name}_s", 0.1, middle, dtype)
        y = self.node("Div", [self.dequantize(y, 0.1, middle),
                              self.weight(f"{name}_root", np.float32(np.sqrt(depth)))], f"{name}_d")
        mask = np.where(self.random.random(rows) < 0.2, -10000, 0).astype(np.float32)
        y = self.node("Add", [y, self.weight(f"{name}_mask", mask)], f"{name}_a")
        y = self.node("Softmax", [y], f"{name}_p", axis=-1)
        y = self.dequantize(self.quantize(y, f"{name}_pq", 0.004, least, dtype), 0.004, least)
        self.quantize(self.node("MatMul", [y, v], f"{name}_pv"), name, 0.03, middle, dtype)
        self.output(name, [heads, rows, depth], dtype)

    def heads(self, name, rows, heads, depth):
        """Two layers, whose columns are heads; both sides of the transposition are quantized."""
        sides = []
        for side, order in (("q", [1, 0, 2]), ("k", [1, 2, 0])):
            x = self.dequantize(self.input(f"{name}_{side}x", self.bytes([rows, 24])), 0.02,
                                np.uint8(113))
            w = self.weight(f"{name}_{side}w", self.bytes([24, heads * depth], np.int8))
            w = self.dequantize(w, 0.0021347, np.int8(0))
            y = self.quantize(self.node("MatMul", [x, w], f"{name}_{side}m"), f"{name}_{side}",
                              0.01, 120)
            y = self.dequantize(y, 0.01, np.uint8(120))
            shape = self.weight(f"{name}_{side}n", np.array([rows, heads, depth], np.int64))
            y = self.node("Reshape", [y, shape], f"{name}_{side}r")
            y = self.node("Transpose", [y], f"{name}_{side}t", perm=order)
            y = self.quantize(y, f"{name}_{side}u", 0.01, 120)
            sides.append(self.dequantize(y, 0.01, np.uint8(120)))
        y = self.node("MatMul", sides, f"{name}_y")
        self.quantize(y, name, 0.05, 128)
        self.output(name, [heads, rows, rows], np.uint8)

    def qlinear_matmul(self, name, rows, depth, columns):
        a = self.input(f"{name}_a", self.bytes([3, rows, depth]))
        b = self.input(f"{name}_b", self.bytes([3, depth, columns]))
        facts = [self.weight(f"{name}_{k}", v) for k, v in
                 (("as", np.float32(0.02)), ("az", np.uint8(9)), ("bs", np.float32(0.03)),
                  ("bz", np.uint8(140)), ("ys", np.float32(0.04 * np.sqrt(depth))),
                  ("yz", np.uint8(99)))]
        self.node("QLinearMatMul", [a, *facts[:2], b, *facts[2:]], name)
        self.output(name, [3, rows, columns], np.uint8)

    def qlinear_conv(self, name, channels, out, size, group, zero):
        facts = [self.weight(f"{name}_{k}", v) for k, v in
                 (("xs", np.float32(0.02)), ("xz", np.uint8(9)),
                  ("w", self.bytes([out, channels // group, 3, 3])), ("ws", np.float32(0.003)),
                  ("wz", np.uint8(zero)), ("ys", np.float32(0.03)), ("yz", np.uint8(99)),
                  ("b", self.random.integers(-9000, 9000, out).astype(np.int32)))]
        x = self.input(f"{name}_x", self.bytes([1, channels, size, size]))
        self.node("QLinearConv", [x, *facts], name, group=group, pads=[1] * 4)
        self.output(name, [1, out, size, size], np.uint8)

    def qlinear_branches(self, name, channels, out, size):
        """Three layers of one input."""
        x = self.input(f"{name}_x", self.bytes([1, channels, size, size]))
        for k in "abc":
            facts = [self.weight(f"{name}_{k}{fact}", v) for fact, v in
                     (("xs", np.float32(0.02)), ("xz", np.uint8(9)),
                      ("w", self.bytes([out, channels, 1, 1], np.int8)), ("ws", np.float32(0.003)),
                      ("wz", np.int8(0)), ("ys", np.float32(0.03)), ("yz", np.uint8(99)))]
            self.node("QLinearConv", [x, *facts], f"{name}_{k}")
            self.output(f"{name}_{k}", [1, out, size, size], np.uint8)

    def dynamic(self, name, rows, depth, columns, dtype, zero):
        x = self.input(f"{name}_x", self.random.standard_normal((rows, depth)).astype(np.float32))
        self.nodes.append(G.node("DynamicQuantizeLinear", [x],
                                 [f"{name}_q", f"{name}_s", f"{name}_z"]))
        self.weight(f"{name}_w", self.bytes([depth, columns], dtype))
        self.weight(f"{name}_wz", np.array(zero, dtype))
        y = self.node("MatMulInteger", [f"{name}_q", f"{name}_w", f"{name}_z", f"{name}_wz"],
                      f"{name}_i")
        y = self.node("Cast", [y], f"{name}_f", to=TensorProto.FLOAT)
        self.weight(f"{name}_ws", np.float32(0.01))
        s = self.node("Mul", [f"{name}_s", f"{name}_ws"], f"{name}_m")
        self.node("Mul", [y, s], name)
        self.output(name, [rows, columns], np.float32)

    def image(self, name, out, size):
        """Colors as floats, some of them out of range."""
        x = self.random.standard_normal((1, 3, size, size)).astype(np.float32) * 3
        x[0, 0, 0, :2] = [1e6, -1e6]
        x = self.quantize(self.input(f"{name}_x", x), f"{name}_xq", 0.02, 109)
        self.weight(f"{name}_xs", np.float32(0.02))
        x = self.node("DequantizeLinear", [x, f"{name}_xs", f"{name}_xq_qz"], f"{name}_xd")
        w = self.dequantize(self.weight(f"{name}_w", self.bytes([out, 3, 3, 3], np.int8)), 0.004,
                            np.int8(0))
        y = self.node("Conv", [x, w], f"{name}_y", pads=[1] * 4)
        self.quantize(y, name, 0.2, 100)
        self.output(name, [1, out, size, size], np.uint8)

    def maximum(self, name, channels, size, dtype):
        if dtype == np.uint8:
            self.conv(f"{name}_x", 8, channels, size, kernel=1, shown=False)
        else:
            self.input(f"{name}_x", self.bytes([1, channels, size, size], dtype))
        x = f"{name}_x"
        y = self.node("MaxPool", [x], f"{name}_y", kernel_shape=[3, 3], strides=[2, 2],
                      pads=[1, 1, 1, 1])
        self.node("Transpose", [y], name, perm=[0, 2, 3, 1])
        self.output(name, [1, (size - 1) // 2 + 1, (size - 1) // 2 + 1, channels], dtype)

    def pooled(self, name, channels, size):
        """A convolution, ReLU, pooling with padding, quantized after the first and the last step."""
        self.conv(f"{name}_c", 8, channels, size, kernel=1, shown=False)
        self.weight(f"{name}_s", np.float32(0.03))
        self.weight(f"{name}_z", np.uint8(100))
        x = self.node("DequantizeLinear", [f"{name}_c", f"{name}_s", f"{name}_z"], f"{name}_d")
        x = self.node("Relu", [x], f"{name}_r")
        y = self.node("MaxPool", [x], f"{name}_y", kernel_shape=[3, 3], strides=[2, 2],
                      pads=[1, 1, 1, 1])
        y = self.quantize(y, f"{name}_q", 0.017, 3)
        self.node("Transpose", [y], name, perm=[0, 2, 3, 1])
        self.output(name, [1, (size - 1) // 2 + 1, (size - 1) // 2 + 1, channels], np.uint8)

    def joined(self, name, channels, size):
        """Two layers behind ReLU, joined: all of them quantized with zero points that are zero."""
        parts = []
        for k in "ab":
            self.conv(f"{name}_{k}", 8, channels, size, kernel=1, shown=False)
            x = self.dequantize(f"{name}_{k}", 0.03, np.uint8(100))
            y = self.quantize(self.node("Relu", [x], f"{name}_{k}r"), f"{name}_{k}q", 0.021, 0)
            parts.append(self.dequantize(y, 0.021, np.uint8(0)))
        y = self.node("Concat", parts, f"{name}_c", axis=1)
        y = self.quantize(y, f"{name}_q", 0.017, 0)
        y = self.dequantize(y, 0.017, np.uint8(0))
        y = self.node("MaxPool", [y], f"{name}_p", kernel_shape=[3, 3], strides=[2, 2])
        self.quantize(y, name, 0.017, 0)
        self.output(name, [1, 2 * channels, (size - 3) // 2 + 1, (size - 3) // 2 + 1], np.uint8)

    def activation(self, name, kind, shape, dtype=np.uint8):
        zero = 120 if dtype == np.uint8 else -10
        x = self.dequantize(self.input(f"{name}_x", self.bytes(shape, dtype)), 0.05,
                            np.array(zero, dtype))
        x = self.node("Reshape", [x, self.weight(f"{name}_n", np.array([-1], np.int64))],
                      f"{name}_r")
        if kind == "silu":
            y = self.quantize(self.node("Sigmoid", [x], f"{name}_g"), f"{name}_gq", 0.004, zero,
                              dtype)
            self.weight(f"{name}_ds", np.float32(0.004))
            y = self.node("DequantizeLinear", [y, f"{name}_ds", f"{name}_gq_qz"], f"{name}_gd")
            y = self.node("Mul", [x, y], f"{name}_y")
        else:
            y = self.node("Div", [self.node("Erf", [x], f"{name}_e"),
                                  self.weight(f"{name}_c", np.float32(0.3))], f"{name}_y")
        self.quantize(y, name, 0.04, zero, dtype)
        self.output(name, [int(np.prod(shape))], dtype)

    def residual(self, name, channels, size, dtype=np.uint8, spread=1.0):
        """relu(conv(x) + z), quantized after each step; spread: how much of it is out of range."""
        low = np.iinfo(dtype).min
        x = self.dequantize(self.input(f"{name}_x", self.bytes([1, channels, size, size], dtype)),
                            0.02, np.array(low + 113, dtype))
        z = self.dequantize(self.input(f"{name}_z", self.bytes([1, 4, size, size], dtype)), 0.02,
                            np.array(low + 99, dtype))
        v = self.dequantize(self.weight(f"{name}_v", self.bytes([channels, 4, 1, 1], np.int8)),
                            0.008, np.int8(0))
        z = self.quantize(self.node("Conv", [z, v], f"{name}_zc"), f"{name}_zq", 0.0171, low + 127,
                          dtype)
        z = self.dequantize(z, 0.0171, np.array(low + 127, dtype))
        w = self.weight(f"{name}_w", self.bytes([channels, channels, 3, 3], np.int8))
        w = self.dequantize(w, spread * (0.5 + self.random.random(channels)) / (225 * channels**0.5),
                            np.zeros(channels, np.int8), axis=0)
        b = self.weight(f"{name}_b", self.random.standard_normal(channels).astype(np.float32))
        y = self.node("Conv", [x, w, b], f"{name}_c", pads=[1] * 4)
        y = self.dequantize(self.quantize(y, f"{name}_cq", 0.0237, low + 130, dtype), 0.0237,
                            np.array(low + 130, dtype))
        y = self.quantize(self.node("Add", [y, z], f"{name}_a"), f"{name}_aq", 0.0311, low + 133,
                          dtype)
        y = self.dequantize(y, 0.0311, np.array(low + 133, dtype))
        self.quantize(self.node("Relu", [y], f"{name}_r"), name, 0.0149, low, dtype)
        self.output(name, [1, channels, size, size], dtype)

    def model(self):
        return G.model(self.nodes, self.inputs, self.outputs, self.weights, opset=21)


def layers():
    m = Layers()
    m.conv("depthwise", 24, 24, 11, group=24)
    m.conv("depthwise_apart", 32, 32, 12, group=32, stride=2, kernel=5)
    m.conv("depthwise_few", 3, 6, 9, group=3)
    m.conv("unsigned_weights", 8, 20, 9, dtype=np.uint8, zero=90)
    m.conv("unsigned_colors", 3, 16, 10, dtype=np.uint8, zero=131, stride=2)
    m.conv("unsigned_groups", 16, 16, 8, group=2, dtype=np.uint8, zero=3)
    m.matmul("two_values", 9, 32, 40, batch=(2,))
    m.matmul("two_values_deep", 5, 300, 16)
    m.matmul("two_values_float", 6, 24, 33, quantized=False)
    m.matmul("two_signed", 7, 16, 16, dtype=np.int8)
    m.attention("attention", 3, 48, 32)
    m.attention("attention_signed", 2, 24, 20, np.int8)
    m.attention("attention_odd", 2, 21, 16)
    m.attention("attention_filled", 2, 37, 40)
    m.heads("heads", 16, 3, 20)
    m.heads("heads_of_no_groups", 16, 2, 18)
    m.qlinear_matmul("linear", 10, 32, 24)
    m.qlinear_matmul("linear_deep", 4, 290, 20)
    m.dynamic("dynamic", 12, 64, 48, np.int8, 0)
    m.dynamic("dynamic_unsigned", 12, 66, 48, np.uint8, 31)
    m.maximum("largest", 32, 13, np.uint8)
    m.maximum("largest_signed", 6, 9, np.int8)
    m.activation("silu", "silu", [2, 37])
    m.activation("silu_signed", "silu", [3, 50], np.int8)
    m.activation("erf", "erf", [1, 40])
    m.activation("erf_all", "erf", [7, 99])
    m.activation("erf_all_signed", "erf", [5, 259], np.int8)
    m.pooled("pooled", 32, 11)
    m.image("image", 16, 37)
    m.joined("joined", 32, 13)
    m.qlinear_conv("linear_depthwise", 32, 32, 9, 32, 120)
    m.qlinear_conv("linear_conv", 12, 20, 7, 1, 77)
    m.qlinear_branches("branches", 40, 24, 9)
    m.residual("residual", 32, 7)
    m.residual("residual_wide", 64, 5, spread=9)
    m.residual("residual_signed", 48, 6, np.int8, spread=4)
    return m


MODEL = layers()
onnx.save(MODEL.model(), SCRATCH / "model.onnx")
WANT = dict(zip(MODEL.kinds, ReferenceEvaluator(str(SCRATCH / "model.onnx")).run(None, MODEL.feeds)))


def agrees(name, *options):
    folder = T.scratch(SCRATCH / name)
    T.emit(TGC, SCRATCH / "model.onnx", folder / "net.c", *options)
    T.build(folder / "net.c", folder / "net", main_by=TGC)
    outputs = T.Program(folder / "net", list(WANT)).run(list(MODEL.feeds.values()))
    for key, want in WANT.items():
        have, want = outputs[key].astype(np.float64), want.astype(np.float64)
        if MODEL.kinds[key].kind == "f":
            expect(np.allclose(have, want, rtol=1e-4, atol=1e-4), f"{key} is wrong")
            continue
        apart = np.abs(have - want)
        expect(apart.max() <= 1 and (apart > 0).mean() <= 0.01,
               f"{key}: {(apart > 0).sum()} of {apart.size} differ, by up to {apart.max()}")


for cpu in ("generic", "avx2", "avx512vnni", "neon"):
    suite.add(f"--cpu={cpu}", agrees, cpu, f"--cpu={cpu}")
suite.add("-O0", agrees, "O0", "-O0")


def chains(m, dtype):
    """Functions of one quantized tensor, quantized with another scale: middles between two integers
    are as frequent as scales are round."""
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    x = m.bytes([1, 1, 16, 16], dtype)
    x[...] = np.linspace(low, high, 256).astype(dtype).reshape(x.shape)
    one = {"Mul": 0.7, "Add": 0.35, "Sub": 0.9, "Div": 1.7}
    kinds = {"none": [], "relu": ["Relu"], "clip": ["Clip"], "negated": ["Neg"], "affine": ["Mul", "Add"],
             "moved": ["Transpose"], "offset": ["Add"], "scaled": ["Sub", "Div"], "largest": ["MaxPool"],
             "mean": ["AveragePool"]}
    more = {"Transpose": dict(perm=[0, 1, 3, 2]), "MaxPool": dict(kernel_shape=[3, 3]),
            "AveragePool": dict(kernel_shape=[1, 2])}
    scales = ((0.1, 0.2, low, low), (0.03, 0.04, low + 38, high - 17), (0.1, 0.04, low + 128, low),
              (0.25, 0.5, low + 9, low + 9), (0.3, 0.3, low + 5, low + 5))
    for k, (s, y, z, to) in enumerate(scales):
        d = m.dequantize(m.input(f"x_{np.dtype(dtype).name}{k}", x), s, np.array(z, dtype))
        for kind, nodes in kinds.items():
            v, name = d, f"{kind}_{np.dtype(dtype).name}{k}"
            for node in nodes:
                limits = [m.weight(f"{name}_{i}", np.float32(c))
                          for i, c in enumerate((-1.3, 2.7) if node == "Clip" else ())]
                by = [m.weight(f"{name}_{node}", np.float32(one[node]))] if node in one else limits
                v = m.node(node, [v, *by], f"{name}_{node}_y", **more.get(node, {}))
            m.quantize(v, name, y, to, dtype)
            side = {"largest": [14, 14], "mean": [16, 15]}.get(kind, [16, 16])
            m.output(name, [1, 1, *side], dtype)


@suite.case("a function of one quantized tensor has the bytes that its operators have")
def elsewhere():
    m = Layers()
    for dtype in (np.uint8, np.int8, np.uint16):
        chains(m, dtype)
    folder = T.scratch(SCRATCH / "elsewhere")
    onnx.save(m.model(), folder / "model.onnx")
    want = ReferenceEvaluator(str(folder / "model.onnx")).run(None, m.feeds)
    T.emit(TGC, folder / "model.onnx", folder / "net.c")
    T.build(folder / "net.c", folder / "net", main_by=TGC)
    have = T.Program(folder / "net", list(m.kinds)).run(list(m.feeds.values()))
    wrong = {k: int((have[k] != w).sum()) for k, w in zip(m.kinds, want) if (have[k] != w).any()}
    expect(not wrong, f"elements that differ: {wrong}")


@suite.case("sums of bytes that lie apart are compiled for devices with a grid")
def grids():
    folder, m = T.scratch(SCRATCH / "grids"), Layers()
    m.heads("heads", 64, 12, 32)
    onnx.save(m.model(), folder / "model.onnx")
    for row in ("generic-gpu", "adreno630"):
        T.emit(TGC, folder / "model.onnx", folder / "net.cl", "--target=opencl", f"--cpu={row}")


# Layers without a kernel that sums bytes of their own: depthwise ones; products of few rows; those
# whose columns are no whole vectors and sum up little; what is stored together with another layer's,
# or is computed by its function.
OTHERWISE = {"depthwise", "depthwise_apart", "depthwise_few", "linear_depthwise",
             "two_values_deep", "two_values_float", "two_signed", "linear_deep",
             "attention_signed_pv", "attention_odd_qk", "joined_b", "branches_b", "branches_c"}


@suite.case("bytes are what is read, by vectors; activations are tables")
def taken():
    folder = T.scratch(SCRATCH / "taken")
    T.emit(TGC, SCRATCH / "model.onnx", folder / "net.c", "--cpu=avx512vnni")
    text = (folder / "net.c").read_text()
    plain = dict(re.findall(r"^static void (\w+)\((.*?)^\}", text, re.M | re.S))
    wide = dict(re.findall(r"^IN_\w+ static void (\w+?)_avx512(?:vnni)?\((.*?)^\}", text, re.M | re.S))
    dots = [name for name, body in wide.items() if "dot_vnni" in body]
    kinds = ("Conv", "QLinearConv", "MatMul", "QLinearMatMul", "MatMulInteger")
    layers = {node.output[0].removesuffix("_y") for node in MODEL.nodes if node.op_type in kinds}
    expect(OTHERWISE <= layers, f"no layers are called {OTHERWISE - layers}")
    expect(len(dots) == len(layers - OTHERWISE),
           f"{len(dots)} kernels for {len(layers - OTHERWISE)} sums of bytes: {dots}")
    pools = [name for name in plain if name.startswith("maxpool")]
    expect(any(name in wide for name in pools), f"{pools} have no vectors")
    of_bytes = [name for name in pools if name in wide and "higher" in wide[name]]
    expect(len(of_bytes) == 2, f"only {of_bytes} of {pools} read bytes")
    products = [name for name in plain if "matmul" in name]
    expect(sum(name in wide for name in products) >= 11, f"of {products} few have vectors")
    computed = [n for kernels in (plain, wide) for n, b in kernels.items()
                if re.search(r"\b(exp|erf)_f32", b) and not n.startswith(("matmul", "softmax"))]
    expect(not computed, f"activations are computed at run time: {computed}")
    tables = re.findall(r"lookup(?:_i8)?_i32x16\(b", "".join(wide.values()))
    expect(len(tables) == 4, f"of four long activations {len(tables)} are looked up by vectors")
    expect(re.search(r"store_apart_u8_f32x16\(.*, 4, 16\)", text),
           "pixels' bytes are not stored side by side")
    depthwise = [b for n, b in wide.items() if "fma" in b and "conv" in n and "load_u8" in b and
                 "dot" not in b]
    expect(len(depthwise) >= 4, f"{len(depthwise)} depthwise convolutions read bytes")


@suite.case("sums that i32 does not hold are not taken for bytes")
def long_sums():
    """A zero point that leaves no i8: |w - zero| is up to 255, and 34,000 products of 255 * 255 are
    beyond 2^31; with a zero point in the middle the same number of products is held."""
    for zero in (0, 128, 255):
        folder = T.scratch(SCRATCH / f"long{zero}")
        m = Layers()
        count, columns = 34000, 16
        m.inputs.append(G.value("a", [3, count], TensorProto.UINT8))
        m.feeds["a"] = np.full((3, count), 255, np.uint8)
        weights = np.full((count, columns), 0 if zero else 255, np.uint8)
        one = m.weight("one", np.array(1e-6, np.float32))
        m.node("DequantizeLinear", ["a", one, m.weight("az", np.array(0, np.uint8))], "x")
        m.node("DequantizeLinear", [m.weight("w", weights), one, m.weight("wz", np.array(zero, np.uint8))], "v")
        m.node("MatMul", ["x", "v"], "y")
        m.output("y", [3, columns], np.float32)
        onnx.save(m.model(), folder / "model.onnx")
        T.emit(TGC, folder / "model.onnx", folder / "net.c")
        T.build(folder / "net.c", folder / "net", main_by=TGC)
        have = T.Program(folder / "net", ["y"]).run(list(m.feeds.values()))["y"]
        want = count * 255.0 * (int(weights[0, 0]) - zero) * 1e-12
        T.compare(f"zero point {zero}", have, np.full((3, columns), want, np.float32), 1e-3, 1e-9)


@suite.case("rows of embeddings that are normalized lie as they are read")
def embedded():
    folder = T.scratch(SCRATCH / "embedded")
    m = Layers()
    m.inputs.append(G.value("ids", [24], TensorProto.INT64))
    m.feeds["ids"] = m.random.integers(0, 50, 24)
    table = m.weight("table", m.random.standard_normal((50, 96)).astype(np.float32))
    places = m.weight("places", m.random.standard_normal((24, 96)).astype(np.float32))
    x = m.node("Add", [m.node("Gather", [table, "ids"], "rows"), places], "x")
    scale = m.weight("scale", m.random.standard_normal(96).astype(np.float32))
    n = m.node("LayerNormalization", [x, scale, m.weight("bias", np.zeros(96, np.float32))], "n")
    q = m.quantize(n, "q", 0.03, 128)
    m.node("MatMulInteger", [q, m.weight("w", m.bytes([96, 64], np.int8)), "q_qz"], "i")
    m.node("Cast", ["i"], "f", to=TensorProto.FLOAT)
    m.node("ReduceSum", ["n"], "t", keepdims=1)
    m.node("Add", ["f", "t"], "y")
    m.output("y", [24, 64], np.float32)
    onnx.save(m.model(), folder / "model.onnx")
    T.emit(TGC, folder / "model.onnx", folder / "net.c", "--cpu=avx512vnni")
    text = (folder / "net.c").read_text()
    expect(not re.search(r"y\[i \+ j\*24\]", text), "the rows lie apart")
    T.build(folder / "net.c", folder / "net", main_by=TGC)
    want = ReferenceEvaluator(str(folder / "model.onnx")).run(None, m.feeds)[0]
    have = T.Program(folder / "net", ["y"]).run(list(m.feeds.values()))["y"]
    expect(np.mean(np.abs(have - want) > 0.01) < 0.02, "y is wrong")


@suite.case("what is rounded and clamped again and again takes few operations")
def residuals():
    folder = T.scratch(SCRATCH / "residuals")
    T.emit(TGC, SCRATCH / "model.onnx", folder / "net.c", "--cpu=avx512vnni")
    bodies = re.findall(r"^IN_vnni static void \w+\((.*?)^\}", (folder / "net.c").read_text(),
                        re.M | re.S)
    for kind in ("u8", "i8"):
        body = next(b for b in bodies if f"nearest_{kind}_" in b and f"load_{kind}" in b)
        stores = body.count(f"nearest_{kind}_")
        expect(stores > 4 and f"store_{kind}_" not in body, f"{kind}: {stores} stores")
        # the sum and what it is added to are rounded, the result where it is stored, unless there is
        # a zero point to add; three clamps of
        # two sides each, of which the last one is within the one before; ReLU
        for part, most in (("round_", 2 + (kind == "i8")), ("higher_", 3), ("lower_", 2),
                           ("fma_", 1)):
            expect(body.count(part) == most * stores,
                   f"{kind}: {body.count(part)} {part} for {stores} stores")


suite.main()
