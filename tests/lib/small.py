"""Small models, one for each kind of kernel: what compilers take for a kernel (stack_test.py), or anything else that
is asked of each kind. Every one is named for what it computes and made of seeded weights; sizes are such that
tiles, vectors and what they leave over are there.

    MODELS      name -> (function that makes the model, tgc's further options)
"""

import numpy as np
from onnx import TensorProto as P

import graphs as G

MODELS = {}


class Net:
    """A model in the making: `net("Relu", x)` is a node and returns its result's name."""

    def __init__(self, **inputs):
        self.random = np.random.default_rng(1)
        self.inputs = [G.value(name, *(given if isinstance(given, tuple) else (given,))) for name, given in inputs.items()]
        self.nodes, self.weights = [], []

    def w(self, *shape, dtype=np.float32, scale=0.2):
        drawn = self.random.standard_normal(shape) * scale
        return self.data(self.random.integers(-9, 9, shape).astype(dtype) if np.dtype(dtype).kind in "iu" else drawn.astype(dtype))

    def data(self, array, dtype=None):
        self.weights.append(G.weight(f"w{len(self.weights)}", np.asarray(array, dtype)))
        return self.weights[-1].name

    def __call__(self, kind, *inputs, results=1, **attributes):
        names = [f"t{len(self.nodes)}_{k}" for k in range(results)]
        self.nodes.append(G.node(kind, list(inputs), names, **attributes))
        return names[0] if results == 1 else names

    def conv(self, x, cin, cout, k, group=1, **attributes):
        kernel = (k, k) if isinstance(k, int) else k
        if "pads" not in attributes and "auto_pad" not in attributes:
            attributes["pads"] = [n // 2 for n in kernel] * 2
        return self("Conv", x, self.w(cout, cin // group, *kernel), self.w(cout), group=group, **attributes)

    def model(self, *outputs, dtype=P.FLOAT, opset=17, domains=()):
        for node in self.nodes:
            node.domain = node.domain or ("com.microsoft" if domains else "")
        return G.model(self.nodes, self.inputs, [G.value(name, None, dtype) for name in outputs], self.weights, opset=opset,
                       domains=domains)


def small(name, *options):
    def register(function):
        MODELS[name] = (function, options)
        return function
    return register


def chain(name, shape, *kinds, dtype=P.FLOAT, result=None):
    """One operator after the other, elementwise."""
    def make():
        net, x = Net(x=(shape, dtype)), "x"
        for kind in kinds:
            x = kind(net, x) if callable(kind) else net(kind, x)
        return net.model(x, dtype=result or dtype)
    MODELS[name] = (make, ())


def layer(name, side, cin, cout, k, *after, options=(), **attributes):
    """A convolution and what follows it."""
    def make():
        rank = 2 if isinstance(k, int) else len(k)
        net = Net(x=[1, cin] + [side] * rank)
        x = net.conv("x", cin, cout, k, **attributes)
        for kind in after:
            x = kind(net, x) if callable(kind) else net(kind, x)
        return net.model(x)
    MODELS[name] = (make, options)


def silu(net, x):
    return net("Mul", x, net("Sigmoid", x))


def gelu(net, x):
    half = net("Add", net("Erf", net("Mul", x, net.data(0.70710678, np.float32))), net.data(1, np.float32))
    return net("Mul", net("Mul", x, half), net.data(0.5, np.float32))


def mish(net, x):
    return net("Mul", x, net("Tanh", net("Softplus", x)))


# ------------------------------------------------------------------------------------ convolutions

layer("conv 3x3", 20, 16, 24, 3, "Relu")
layer("conv 3x3 without Winograd", 20, 16, 24, 3, "Relu", options=("--no-winograd",))
layer("conv 3x3 of stride 2", 32, 16, 32, 3, "Relu", strides=[2, 2])
layer("conv 3x3 of an image, stride 2", 64, 3, 16, 3, "HardSwish", strides=[2, 2])
layer("conv 7x7 of an image, stride 2", 64, 3, 32, 7, "Relu", strides=[2, 2])
layer("conv 5x5", 20, 8, 16, 5, "Relu")
layer("conv 1x1", 14, 32, 48, 1, "Relu")
layer("conv 1x1 of odd channels", 13, 17, 33, 1)
layer("conv and sigmoid", 20, 8, 16, 3, "Sigmoid")
layer("conv 1x1 and silu", 14, 32, 48, 1, silu)
layer("conv 1x1 and tanh", 14, 32, 48, 1, "Tanh")
layer("conv 1x1 and gelu", 14, 32, 48, 1, gelu)
layer("conv 1x1 and mish", 14, 32, 48, 1, mish)
layer("conv dilated", 20, 8, 16, 3, "Relu", dilations=[2, 2], pads=[2, 2, 2, 2])
layer("conv in groups", 16, 32, 32, 3, "Relu", group=4)
layer("conv in many groups", 16, 32, 32, 3, "Relu", group=8)
layer("conv in groups of volumes", 8, 16, 16, (3, 3, 3), "Relu", group=4)
layer("conv of patches", 32, 3, 48, 4, strides=[4, 4], pads=[0, 0, 0, 0])
layer("conv depthwise", 28, 32, 32, 3, lambda net, x: net("Clip", x, net.data(0, np.float32), net.data(6, np.float32)), group=32)
layer("conv depthwise 5x5, stride 2", 28, 24, 24, 5, silu, group=24, strides=[2, 2])
layer("conv depthwise separable", 28, 16, 16, 3, lambda net, x: net.conv(net("Relu", x), 16, 32, 1), group=16)
layer("conv of sound", 256, 8, 16, (9,), "Relu")
layer("conv of volumes", 10, 4, 8, (3, 3, 3), "Relu")
layer("conv and max pool", 24, 8, 16, 3, "Relu", lambda net, x: net("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]))
layer("conv and mean", 14, 16, 32, 3, "Relu", lambda net, x: net("GlobalAveragePool", x))
layer("conv in bands", 40, 8, 16, 3, "Relu", lambda net, x: net.conv(x, 16, 8, 3), options=("--cache=0",))
layer("conv by half weights", 14, 32, 48, 1, options=("--weight-type=bf16",))


@small("conv transposed")
def conv_transposed():
    net = Net(x=[1, 16, 12, 12])
    return net.model(net("ConvTranspose", "x", net.w(16, 8, 4, 4), strides=[2, 2], pads=[1, 1, 1, 1]))


@small("residual block")
def residual():
    net = Net(x=[1, 16, 14, 14])
    return net.model(net("Relu", net("Add", "x", net.conv(net("Relu", net.conv("x", 16, 16, 3)), 16, 16, 3))))


@small("squeeze and excite")
def excite():
    net = Net(x=[1, 32, 14, 14])
    gate = net.conv(net("Relu", net.conv(net("GlobalAveragePool", "x"), 32, 8, 1)), 8, 32, 1)
    return net.model(net("Mul", "x", net("HardSigmoid", gate)))


layer("conv 1x1 of 8 to 64 channels", 24, 8, 64, 1, "Relu")
layer("conv depthwise 5x5, dilated", 24, 16, 16, 5, "Relu", group=16, dilations=[2, 2], pads=[4, 4, 4, 4])
layer("conv 3x3x3 and sigmoid", 6, 3, 12, (3, 3, 3), "Sigmoid", strides=[2, 2, 2])
layer("conv 3x3 of stride 2 and gelu", 20, 12, 20, 3, gelu, strides=[2, 2])


@small("convolutions and softplus")
def softplus_layers():
    net = Net(x=[1, 1, 9, 9])
    return net.model(net("Softplus", net.conv(net("Softplus", net.conv("x", 1, 12, 7)), 12, 16, 1)))


@small("resized and convolved")
def resized():
    net = Net(x=[1, 8, 10, 10])
    return net.model(net.conv(net("Resize", "x", "", net.data([1, 1, 2, 2], np.float32), mode="nearest"), 8, 12, 3))


# ----------------------------------------------------------------------------- products of matrices


@small("product")
def product():
    net = Net(x=[37, 64])
    return net.model(net("MatMul", "x", net.w(64, 80)))


@small("product and mish")
def product_mish():
    net = Net(x=[17, 31])
    return net.model(mish(net, net("Add", net("MatMul", "x", net.w(31, 48)), net.w(48))))


@small("product of one row")
def row():
    net = Net(x=[1, 256])
    return net.model(net("Gemm", "x", net.w(100, 256), net.w(100), transB=1))


def decoder(heads, rows):
    net = Net(q=[heads, rows, 16], k=[heads, 16, "n"], v=[heads, "n", 16])
    scores = net("Mul", net("MatMul", "q", "k"), net.data(0.25, np.float32))
    return net.model(net("MatMul", net("Softmax", scores, axis=-1), "v"))


for name, heads, rows in ("step of a decoder", 4, 1), ("four steps of a decoder", 1, 4), ("steps of a decoder's heads", 2, 3):
    MODELS[name] = (lambda heads=heads, rows=rows: decoder(heads, rows), ("--dim", "n<=40"))


@small("product of a run-time number of rows", "--dim", "n<=64")
def rows():
    net = Net(x=["n", 48])
    return net.model(gelu(net, net("MatMul", "x", net.w(48, 64))))


@small("product of two inputs")
def two_inputs():
    net = Net(x=[4, 24, 40], y=[4, 40, 33])
    return net.model(net("MatMul", "x", "y"))


@small("product of doubles")
def doubles():
    net = Net(x=([17, 32], P.DOUBLE))
    return net.model(net("Tanh", net("MatMul", "x", net.w(32, 24, dtype=np.float64))), dtype=P.DOUBLE)


@small("product of halves")
def halves():
    net = Net(x=([17, 64], P.FLOAT16))
    return net.model(net("Relu", net("MatMul", "x", net.w(64, 48, dtype=np.float16))), dtype=P.FLOAT16)


@small("product of integers")
def integers():
    net = Net(x=([9, 32], P.INT32), y=([32, 24], P.INT32))
    return net.model(net("MatMul", "x", "y"), dtype=P.INT32)


@small("product by Strassen", "--strassen", "--error=1e-2")
def strassen():
    net = Net(x=[256, 256])
    return net.model(net("MatMul", "x", net.w(256, 256)))


@small("product by int8 weights", "--weight-type=int8")
def int8_weights():
    net = Net(x=[1, 256])
    return net.model(net("MatMul", "x", net.w(256, 320)))


# ------------------------------------------------------------------------------------ attention, text


def attend(net, tokens, heads, size, mask=None):
    def split(x):
        return net("Transpose", net("Reshape", net("MatMul", x, net.w(heads * size, heads * size)),
                                    net.data([tokens, heads, size], np.int64)), perm=[1, 0, 2])
    scores = net("Mul", net("MatMul", split("x"), net("Transpose", split("x"), perm=[0, 2, 1])), net.data(0.25, np.float32))
    if mask is not None:
        scores = net("Add", scores, net.data(mask, np.float32))
    joined = net("Transpose", net("MatMul", net("Softmax", scores, axis=-1), split("x")), perm=[1, 0, 2])
    return net("Reshape", joined, net.data([tokens, heads * size], np.int64))


@small("attention")
def attention():
    net = Net(x=[50, 64])
    return net.model(attend(net, 50, 4, 16))


@small("attention behind a causal mask")
def causal():
    net = Net(x=[96, 32])
    return net.model(attend(net, 96, 2, 16, np.triu(np.full((96, 96), -1e9), 1)))


@small("attention with a bias for each distance")
def distances():
    net = Net(x=[40, 32])
    return net.model(attend(net, 40, 2, 16, np.random.default_rng(3).standard_normal((2, 40, 40))))


@small("normalized, two layers")
def normalized():
    net = Net(x=[12, 64])
    x = net("LayerNormalization", "x", net.w(64), net.w(64))
    return net.model(net("Add", "x", net("MatMul", gelu(net, net("MatMul", x, net.w(64, 128))), net.w(128, 64))))


@small("layer normalization")
def layer_normalization():
    net = Net(x=[20, 96])
    return net.model(net("LayerNormalization", "x", net.w(96), net.w(96)))


@small("embedding")
def embedding():
    net = Net(ids=([12], P.INT64))
    return net.model(net("LayerNormalization", net("Add", net("Gather", net.w(100, 48), "ids"), net.w(12, 48)), net.w(48), net.w(48)))


@small("rotary positions")
def rotary():
    net = Net(x=[4, 20, 32], p=[20, 16])
    a, b = net("Split", "x", results=2, axis=-1)
    sin, cos = net("Sin", "p"), net("Cos", "p")
    return net.model(net("Concat", net("Sub", net("Mul", a, cos), net("Mul", b, sin)),
                         net("Add", net("Mul", b, cos), net("Mul", a, sin)), axis=-1))


for kind, gates in ("LSTM", 4), ("GRU", 3), ("RNN", 1):
    def recurrent(kind=kind, gates=gates):
        net = Net(x=[6, 1, 20])
        return net.model(net(kind, "x", net.w(1, gates * 24, 20), net.w(1, gates * 24, 24), net.w(1, 2 * gates * 24), hidden_size=24,
                             **({"linear_before_reset": 1} if kind == "GRU" else {})))
    MODELS[kind] = (recurrent, ())

# -------------------------------------------------------------------------------- elementwise, reductions

for function in "Exp", "Log", "Tanh", "Erf", "Sigmoid", "Sin", "Atan", "Sinh", "Softplus", "Elu":
    chain(function, [5, 77], function)
chain("silu", [5, 77], silu)
chain("gelu", [5, 77], gelu)
chain("mish", [5, 77], mish)
chain("functions of halves", [5, 77], "Exp", "Tanh", dtype=P.FLOAT16)
chain("functions of doubles", [5, 77], "Sigmoid", "Exp", "Sin", dtype=P.DOUBLE)
chain("powers", [5, 77], "Abs", lambda net, x: net("Pow", x, net.w(77)))
chain("remainders", [5, 77], lambda net, x: net("Mod", x, net.w(77), fmod=1))
chain("doubles to bytes", [5, 77], lambda net, x: net("Cast", x, to=P.UINT8), dtype=P.DOUBLE, result=P.UINT8)
chain("halves to floats", [5, 77], lambda net, x: net("Cast", x, to=P.FLOAT), dtype=P.FLOAT16, result=P.FLOAT)
chain("long integers to floats", [5, 77], lambda net, x: net("Cast", x, to=P.FLOAT), dtype=P.INT64, result=P.FLOAT)
chain("quotients of integers", [5, 77], lambda net, x: net("Div", x, net.data(np.arange(1, 78), np.int64)), dtype=P.INT64)
chain("softmax", [9, 100], lambda net, x: net("Softmax", x, axis=-1))
chain("logarithm of a softmax", [9, 100], lambda net, x: net("LogSoftmax", x, axis=-1))
chain("softmax along columns", [9, 40], lambda net, x: net("Softmax", x, axis=0))
chain("norms", [9, 100], lambda net, x: net("LpNormalization", x, axis=-1, p=2))
chain("sums of rows", [9, 100], lambda net, x: net("ReduceSum", x, net.data([1], np.int64)))
chain("largest of columns", [33, 40], lambda net, x: net("ReduceMax", x, axes=[0]))
chain("places of the largest", [9, 100], lambda net, x: net("ArgMax", x, axis=1), result=P.INT64)
chain("cumulative sums", [9, 100], lambda net, x: net("CumSum", x, net.data(1, np.int64)))
chain("instance normalization", [1, 8, 12, 12], lambda net, x: net("InstanceNormalization", x, net.w(8), net.w(8)))
chain("local response", [1, 12, 9, 9], lambda net, x: net("LRN", x, size=5))
chain("max pool", [1, 16, 20, 20], lambda net, x: net("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]))
chain("average pool", [1, 16, 20, 20], lambda net, x: net("AveragePool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1]))
chain("average pool of large windows", [1, 16, 20, 20], lambda net, x: net("AveragePool", x, kernel_shape=[7, 7]))
chain("average pool of 5x5", [1, 16, 20, 20], lambda net, x: net("AveragePool", x, kernel_shape=[5, 5]))
chain("max pool of large windows", [1, 16, 20, 20], lambda net, x: net("MaxPool", x, kernel_shape=[7, 7]))
chain("transposition", [12, 20, 24], lambda net, x: net("Transpose", x, perm=[2, 0, 1]))
chain("transposition of five axes", [2, 3, 12, 5, 8], lambda net, x: net("Transpose", x, perm=[3, 0, 4, 2, 1]))
chain("pixel shuffle", [1, 16, 10, 10], lambda net, x: net("DepthToSpace", x, blocksize=2))
chain("reflected border", [1, 4, 12, 12], lambda net, x: net("Pad", x, net.data([0, 0, 2, 2] * 2, np.int64), mode="reflect"))
chain("linear resize", [1, 8, 10, 10], lambda net, x: net("Resize", x, "", net.data([1, 1, 2, 2], np.float32), mode="linear"))
chain("cubic resize", [1, 4, 10, 10], lambda net, x: net("Resize", x, "", net.data([1, 1, 1.7, 1.7], np.float32), mode="cubic"))


@small("joined")
def joined():
    net = Net(x=[1, 8, 10, 10], y=[1, 5, 10, 10])
    return net.model(net("Concat", net("Relu", "x"), net("Neg", "y"), axis=1))


@small("choice")
def choice():
    net = Net(x=[9, 100], y=[9, 100])
    return net.model(net("Where", net("Greater", "x", net.w(100)), "x", net("Exp", "y")))


@small("einsum")
def einsum():
    net = Net(x=[4, 10, 16], y=[4, 12, 16])
    return net.model(net("Einsum", "x", "y", equation="bik,bjk->ij"))


# -------------------------------------------------------------------------------------- places that are data


@small("GatherND")
def gather_nd():
    net = Net(x=[8, 9, 10], i=([6, 2], P.INT64))
    return net.model(net("GatherND", "x", "i"))


@small("GatherElements")
def gather_elements():
    net = Net(x=[8, 40], i=([8, 40], P.INT64))
    return net.model(net("GatherElements", "x", "i", axis=1))


@small("ScatterND")
def scatter_nd():
    net = Net(x=[8, 9, 10], i=([6, 2], P.INT64), u=[6, 10])
    return net.model(net("ScatterND", "x", "i", "u", reduction="add"))


@small("GridSample")
def grid_sample():
    net = Net(x=[1, 4, 16, 16], g=[1, 12, 12, 2])
    return net.model(net("GridSample", "x", "g", mode="bilinear"))


@small("largest five")
def top():
    net = Net(x=[6, 40])
    return net.model(net("TopK", "x", net.data([5], np.int64), results=2, axis=1)[0])


# ------------------------------------------------------------------------------------------------- bytes


@small("quantized product")
def quantized_product():
    net = Net(x=([17, 64], P.UINT8))
    one, zero = net.data(0.05, np.float32), net.data(128, np.uint8)
    return net.model(net("QLinearMatMul", "x", one, zero, net.w(64, 48, dtype=np.int8), one, net.data(0, np.int8), one, zero), dtype=P.UINT8)


@small("quantized conv")
def quantized_conv():
    net = Net(x=([1, 16, 14, 14], P.UINT8))
    one, zero = net.data(0.05, np.float32), net.data(128, np.uint8)
    return net.model(net("QLinearConv", "x", one, zero, net.w(24, 16, 3, 3, dtype=np.int8), one, net.data(0, np.int8), one, zero,
                         net.w(24, dtype=np.int32), pads=[1, 1, 1, 1]), dtype=P.UINT8)


@small("quantized conv 1x1")
def quantized_pointwise():
    net = Net(x=([1, 32, 14, 14], P.UINT8))
    one, zero = net.data(0.05, np.float32), net.data(128, np.uint8)
    return net.model(net("QLinearConv", "x", one, zero, net.w(48, 32, 1, 1, dtype=np.int8), one, net.data(0, np.int8), one, zero,
                         net.w(48, dtype=np.int32)), dtype=P.UINT8)


@small("product of bytes")
def bytes_product():
    net = Net(x=([16, 64], P.UINT8))
    return net.model(net("MatMulInteger", "x", net.w(64, 64, dtype=np.int8)), dtype=P.INT32)


@small("convolution of bytes")
def bytes_convolution():
    net = Net(x=([1, 20, 11, 11], P.UINT8))
    return net.model(net("ConvInteger", "x", net.w(20, 20, 5, 5, dtype=np.int8), net.data(117, np.uint8), pads=[2, 2, 2, 2]), dtype=P.INT32)


for name, m, k, n in ("product of two groups of bytes", 16, 8, 16), ("product of bytes in large tiles", 33, 64, 48):
    def product_of_bytes(m=m, k=k, n=n):
        net = Net(x=([m, k], P.UINT8))
        return net.model(net("MatMulInteger", "x", net.w(k, n, dtype=np.int8), net.data(117, np.uint8)), dtype=P.INT32)
    MODELS[name] = (product_of_bytes, ())


@small("quantized depthwise conv")
def quantized_depthwise():
    net = Net(x=([1, 16, 14, 14], P.UINT8))
    one, zero = net.data(0.05, np.float32), net.data(128, np.uint8)
    return net.model(net("QLinearConv", "x", one, zero, net.w(16, 1, 3, 3, dtype=np.int8), one, net.data(0, np.int8), one, zero,
                         net.w(16, dtype=np.int32), pads=[1, 1, 1, 1], group=16), dtype=P.UINT8)


@small("dynamically quantized product")
def dynamic_product():
    net = Net(x=[17, 64])
    q, scale, zero = net("DynamicQuantizeLinear", "x", results=3)
    sums = net("MatMulInteger", q, net.w(64, 48, dtype=np.int8), zero)
    return net.model(net("Mul", net("Cast", sums, to=P.FLOAT), net("Mul", scale, net.data(0.02, np.float32))))


@small("quantized and back")
def quantized_and_back():
    net = Net(x=[9, 100])
    one, zero = net.data(0.05, np.float32), net.data(128, np.uint8)
    q = net("QuantizeLinear", net("Tanh", net("DequantizeLinear", net("QuantizeLinear", "x", one, zero), one, zero)), one, zero)
    return net.model(q, dtype=P.UINT8)
