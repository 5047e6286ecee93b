"""What no path of the model's graph connects does not influence each other at all.

A token, sample, pixel or element of an input becomes NaN, infinite or 1e30. What of the outputs that reaches is asked
of ONNX Runtime, without optimizations: all that any of several such values changes. Every other element must be the
same as before, to the bit. Many small networks stand side by side in one model, each with inputs of its own, so that
all of them are built at once; all of them are disturbed at once, too, and none may show in another.

Winograd's tiles are the one exception (docs/winograd.md): pixels of one image and group of channels that share a tile.
The last case says for exactly these that something shows, and that nothing does beyond.
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "lib")]

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, numpy_helper

import graphs as G
import tgc as T
from suite import Suite, expect

suite = Suite("influence")
OPTIONS = suite.parse()
TGC = T.find_tgc(OPTIONS.build).resolve()
SCRATCH = T.scratch(Path(OPTIONS.build).resolve() / "test-scratch" / "influence")
FLAGS = set(Path("/proc/cpuinfo").read_text().split()) if Path("/proc/cpuinfo").exists() else set()
SETS = [cpu for cpu, flag in (("generic", None), ("avx2", "fma"), ("avx512", "avx512dq"), ("avx512vnni", "avx512_vnni"))
        if flag is None or flag in FLAGS]
LOUD = (np.nan, np.inf, -np.inf, 1e30)

NETWORKS = {}       # kind -> functions that add a network to a Net


def network(kind):
    def register(function):
        NETWORKS.setdefault(kind, []).append(function)
        return function
    return register


class Net:
    """Networks side by side: what is made by a call is named by its function."""

    def __init__(self):
        self.random = np.random.default_rng(8)
        self.nodes, self.weights, self.inputs, self.outputs, self.arrays = [], [], [], [], {}
        self.part, self.count = "", 0

    def name(self):
        self.count += 1
        return f"{self.part}_{self.count}"

    def input(self, *shape, dtype=np.float32, most=None):
        """Drawn numbers; integers below `most`."""
        name = f"{self.part}_in{self.count}"
        self.count += 1
        array = self.random.standard_normal(shape) if most is None else self.random.integers(0, most, shape)
        self.arrays[name] = array.astype(dtype)
        self.inputs.append(G.value(name, shape, onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))))
        return name

    def constant(self, array):
        self.weights.append(numpy_helper.from_array(np.asarray(array), self.name()))
        return self.weights[-1].name

    def draw(self, *shape, by=None, dtype=np.float32):
        by = by or max(1, np.prod(shape[1:])) ** -0.5
        return self.constant((self.random.standard_normal(shape) * by).astype(dtype))

    def ints(self, *values):
        return self.constant(np.array(values, np.int64))

    def number(self, value, dtype=np.float32):
        return self.constant(np.array(value, dtype))

    def __call__(self, kind, *inputs, n=1, domain="", **attributes):
        names = [self.name() for _ in range(n)]
        self.nodes.append(G.node(kind, list(inputs), names, domain=domain, **attributes))
        return names[0] if n == 1 else names

    def give(self, *values):
        for value in values:
            name = f"{self.part}_out{self.count}"
            self.count += 1
            self.nodes.append(G.node("Identity", [value], [name]))
            self.outputs.append(name)

    def layer(self, x, k, n):
        return self("Add", self("MatMul", x, self.draw(k, n, by=k ** -0.5)), self.draw(n))

    def norm(self, x, n):
        return self("LayerNormalization", x, self.draw(n), self.draw(n), axis=-1)

    def model(self):
        m = G.model(self.nodes, self.inputs, [], self.weights, 21, ["com.microsoft"])
        m.ir_version = 10
        del m.graph.output[:]
        known = {v.name: v for v in onnx.shape_inference.infer_shapes(m).graph.value_info}
        for name in self.outputs:
            source = next(n.input[0] for n in self.nodes if n.output[0] == name)
            v = m.graph.output.add()
            v.name = name
            if source in known:
                v.type.CopyFrom(known[source].type)
            else:
                v.type.tensor_type.elem_type = TensorProto.FLOAT
        return m


# ----------------------------------------------------------------------------- products, sequences


def encoder(n, x, batch, tokens, width, heads, first):
    """A layer of a transformer, on [batch, tokens, width], or [tokens, batch, width] where tokens are first."""
    h, d = n.norm(x, width), width // heads
    order = [2, 1, 0, 3] if first else [0, 2, 1, 3]                        # to and from [?, heads, ?, d]
    lead = [tokens, batch] if first else [batch, tokens]
    q, k, v = (n("Transpose", n("Reshape", n.layer(h, width, width), n.ints(*lead, heads, d)),
                 perm=[1, 2, 0, 3] if first else [0, 2, 1, 3]) for _ in range(3))
    s = n("Mul", n("MatMul", q, n("Transpose", k, perm=[0, 1, 3, 2])), n.number(d ** -0.5))
    a = n("MatMul", n("Softmax", s, axis=-1), v)
    a = n("Reshape", n("Transpose", a, perm=[2, 0, 1, 3] if first else [0, 2, 1, 3]), n.ints(*lead, width))
    x = n("Add", x, n.layer(a, width, width))
    h = n.layer(n.norm(x, width), width, 4 * width)
    h = n("Mul", h, n("Add", n("Erf", n("Mul", h, n.number(0.7))), n.number(1.0)))
    return n("Add", x, n.layer(h, 4 * width, width))


@network("sequences")
def batch_first(n):
    n.give(encoder(n, n.input(3, 37, 64), 3, 37, 64, 4, False))


@network("sequences")
def batch_second(n):
    n.give(encoder(n, n.input(5, 50, 64), 50, 5, 64, 4, True))


@network("sequences")
def rows_of_products(n):
    for rows, k, columns in (1, 33, 37), (2, 64, 64), (7, 40, 130), (61, 128, 256), (128, 256, 512), (101, 64, 10):
        n.give(n.layer(n.input(rows, k), k, columns))
    n.give(n("Relu", n.layer(n.input(4, 64, 96), 96, 96)))
    n.give(n("MatMul", n.input(3, 19, 23), n.input(3, 23, 29)))
    n.give(n("Gemm", n.input(31, 17), n.draw(21, 31), transA=1, transB=1))


@network("sequences")
def rows_first(n):
    """All samples' rows are one axis, the words first."""
    x = n("Reshape", n("Transpose", n.input(3, 64, 128), perm=[1, 0, 2]), n.ints(192, 128))
    n.give(n.layer(x, 128, 128))


def causal(n, tokens, heads, d, mask):
    q, k, v = (n.input(2, heads, tokens, d) for _ in range(3))
    s = n("Add", n("MatMul", q, n("Transpose", k, perm=[0, 1, 3, 2])), mask)
    n.give(n("MatMul", n("Softmax", s, axis=-1), v))


@network("sequences")
def masked_attention(n):
    for tokens in 33, 64:
        causal(n, tokens, 3, 16, n.constant(np.triu(np.full((tokens, tokens), -np.inf, np.float32), 1)))
        causal(n, tokens, 3, 16, n.constant(np.triu(np.full((tokens, tokens), -1e4, np.float32), 1)))
    shown = n.constant(np.arange(29) < 23)
    q, k, v = (n.input(2, 4, 29, 8) for _ in range(3))
    s = n("MatMul", q, n("Transpose", k, perm=[0, 1, 3, 2]))
    s = n("Where", shown, s, n.number(-np.inf))
    n.give(n("MatMul", n("Softmax", s, axis=-1), v))
    few = n("MatMul", n.input(1, 4, 7, 32), n("Transpose", n.input(1, 4, 19, 32), perm=[0, 1, 3, 2]))
    n.give(n("Softmax", few, axis=-1), n("Softmax", few, axis=-2))


@network("sequences")
def microsoft_attention(n):
    q, k, v = n.input(2, 9, 32), n.input(2, 21, 32), n.input(2, 21, 32)
    n.give(n("MultiHeadAttention", q, k, v, domain="com.microsoft", num_heads=4))


@network("sequences")
def recurrent(n):
    x, h, lens = n.input(7, 5, 24), 20, n.constant(np.array([7, 3, 1, 5, 7], np.int32))
    for kind, gates in ("LSTM", 4), ("GRU", 3), ("RNN", 1):
        w, r, b = n.draw(2, gates * h, 24, by=0.2), n.draw(2, gates * h, h, by=0.2), n.draw(2, 2 * gates * h)
        for length in "", lens:
            y = n(kind, x, w, r, b, length, n=2, hidden_size=h, direction="bidirectional")
            n.give(*y)


@network("sequences")
def rows_alone(n):
    x = n.input(13, 37)
    n.give(n.norm(x, 37), n("Softmax", x, axis=-1), n("Softmax", x, axis=0), n("LogSoftmax", x, axis=-1))
    n.give(n("CumSum", x, n.number(1, np.int64)), n("CumSum", x, n.number(0, np.int64), reverse=1))
    n.give(n("Trilu", x), n("ReduceMean", x, n.ints(1)), n("ReduceSum", x, n.ints(0)), n("ReduceMax", x, n.ints(1)))
    n.give(n("ArgMax", x, axis=0), *n("TopK", x, n.ints(5), n=2), n("LpNormalization", x, axis=1))
    n.give(n("Hardmax", x, axis=1), n("ReduceLogSumExp", x, n.ints(0)), n("ReduceL2", x, n.ints(1)))
    n.give(n("Einsum", x, n.input(13, 37), equation="ij,ij->i"), n("Einsum", n.input(11, 11), equation="ii->i"))


@network("sequences")
def picked(n):
    ids = n.input(3, 11, dtype=np.int64, most=50)
    n.give(encoder(n, n("Gather", n.draw(50, 32), ids), 3, 11, 32, 2, False))
    hot = n("OneHot", ids, n.ints(50), n.constant(np.array([0, 1], np.float32)))
    n.give(n("MatMul", hot, n.draw(50, 24)))
    x = n.input(9, 20)
    n.give(n("Gather", x, n.ints(8, 0, 3, 3)), n("GatherElements", x, n.constant(np.arange(60).reshape(3, 20) % 9)))
    n.give(n("ScatterND", x, n.constant(np.array([[2], [7]])), n.input(2, 20)))


@network("sequences")
def halves(n):
    x = n.input(3, 21, 48, dtype=np.float16)
    y = n("MatMul", x, n.draw(48, 40, dtype=np.float16))
    n.give(n("Softmax", y, axis=-1), n("LayerNormalization", y, n.draw(40, dtype=np.float16), axis=-1))


# ------------------------------------------------------------------------------------------ images


@network("images")
def windows(n):
    for shape, filters, group, more in (
            ((3, 8, 13, 11), 12, 1, dict(pads=[1] * 4)), ((2, 12, 9, 9), 24, 3, dict(pads=[1] * 4)),
            ((2, 16, 14, 14), 32, 1, dict(strides=[2, 2], pads=[1] * 4)), ((2, 24, 12, 13), 24, 24, dict(pads=[1] * 4)),
            ((1, 16, 14, 14), 16, 1, dict(dilations=[6, 6], pads=[6] * 4)), ((2, 19, 7, 7), 33, 1, {}),
            ((1, 16, 28, 28), 16, 1, dict(dilations=[12, 12], pads=[12] * 4))):
        k = 1 if not more else 3
        n.give(n("Relu", n("Conv", n.input(*shape), n.draw(filters, shape[1] // group, k, k), n.draw(filters), group=group,
                           **more)))
    n.give(n("Conv", n.input(2, 3, 24, 24), n.draw(16, 3, 7, 7), strides=[2, 2], pads=[3] * 4))
    n.give(n("Conv", n.input(2, 6, 40), n.draw(10, 6, 5), pads=[2, 2]))
    n.give(n("Conv", n.input(1, 3, 6, 7, 8), n.draw(5, 3, 3, 3, 3), pads=[1] * 6))
    n.give(n("Conv", n.input(1, 16, 12, 12), n.draw(16, 16, 1, 7), pads=[0, 3, 0, 3]))


@network("images")
def transposed(n):
    for k, stride, more in (3, 2, dict(pads=[1] * 4, output_padding=[1, 1])), (2, 2, {}), (4, 2, dict(pads=[1] * 4)), \
            (9, 3, {}), (3, 1, dict(pads=[1] * 4)), (5, 4, {}), (3, 2, dict(dilations=[2, 2])), (1, 2, {}):
        n.give(n("ConvTranspose", n.input(2, 8, 6, 7), n.draw(8, 10, k, k), n.draw(10), strides=[stride] * 2, **more))
    n.give(n("ConvTranspose", n.input(1, 12, 20), n.draw(12, 4, 3), strides=[2], group=3))
    n.give(n("ConvTranspose", n.input(1, 8, 9, 9), n.draw(8, 1, 5, 5), strides=[2, 2], pads=[2] * 4))


@network("images")
def pooled(n):
    x = n.input(2, 5, 12, 13)
    n.give(n("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4),
           n("MaxPool", x, kernel_shape=[2, 2], dilations=[3, 3]),
           n("AveragePool", x, kernel_shape=[3, 3], pads=[1] * 4), n("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2]),
           n("GlobalAveragePool", x), n("GlobalMaxPool", x), n("LRN", x, size=3),
           n("InstanceNormalization", x, n.draw(5), n.draw(5)))
    g = n.input(3, 12, 5, 5)
    n.give(n("GroupNormalization", g, n.draw(12), n.draw(12), num_groups=4),
           n("BatchNormalization", g, n.draw(12), n.draw(12), n.draw(12),
             n.constant(np.full(12, 0.5, np.float32))))


@network("images")
def moved(n):
    x, none = n.input(2, 4, 9, 10), n.constant(np.zeros(0, np.float32))
    for mode, by in ("nearest", 2), ("linear", 2), ("cubic", 2), ("linear", 1.5), ("nearest", 0.5):
        n.give(n("Resize", x, none, n.constant(np.array([1, 1, by, by], np.float32)), mode=mode))
    for mode in "constant", "reflect", "edge", "wrap":
        n.give(n("Pad", x, n.ints(0, 0, 2, 1, 0, 0, 1, 3), mode=mode))
    n.give(n("DepthToSpace", x, blocksize=2), n("Transpose", x, perm=[0, 2, 3, 1]), n("Concat", x, x, axis=2))
    n.give(n("Slice", x, n.ints(8), n.ints(0), n.ints(2), n.ints(-3)), n("Tile", x, n.ints(1, 2, 1, 2)))


@network("images")
def chain(n):
    """Layers that one kernel computes in bands of rows."""
    x = n.input(2, 8, 40, 40)
    h = n("Relu", n("Conv", x, n.draw(16, 8, 3, 3), n.draw(16), pads=[1] * 4))
    h = n("Clip", n("Conv", h, n.draw(16, 1, 3, 3), n.draw(16), pads=[1] * 4, group=16), n.number(0), n.number(6))
    h = n("AveragePool", n("Conv", h, n.draw(24, 16, 1, 1)), kernel_shape=[2, 2], strides=[2, 2])
    s = n("Sigmoid", n("Conv", n("GlobalAveragePool", h), n.draw(24, 24, 1, 1)))
    n.give(h, n("Mul", h, s), n("Resize", h, n.constant(np.zeros(0, np.float32)),
                                n.constant(np.array([1, 1, 2, 2], np.float32)), mode="nearest"))


@network("tiles")
def tiles(n):
    for shape, more in ((2, 32, 28, 28), {}), ((2, 32, 24, 25), dict(group=2)), ((3, 64, 14, 14), {}):
        n.give(n("Conv", n.input(*shape), n.draw(shape[1], shape[1] // more.get("group", 1), 3, 3), pads=[1] * 4, **more))
    n.give(n("Conv", n.input(2, 32, 200), n.draw(32, 32, 5), pads=[2, 2]))


# ------------------------------------------------------------------------------------------- bytes


def bytes_of(n, x, scale=0.05, zero=128):
    return n("DequantizeLinear", n("QuantizeLinear", x, n.number(scale), n.number(zero, np.uint8)), n.number(scale),
             n.number(zero, np.uint8))


def weight_of(n, *shape):
    w = n.constant(n.random.integers(-127, 128, shape).astype(np.int8))
    return n("DequantizeLinear", w, n.number(0.01), n.number(0, np.int8))


@network("bytes")
def quantized(n):
    for rows, k, columns in (5, 33, 40), (37, 64, 96):
        h = n("MatMul", bytes_of(n, n.input(rows, k)), weight_of(n, k, columns))
        n.give(bytes_of(n, n("Tanh", h), 0.01))
    for group in 1, 8:
        x = bytes_of(n, n.input(2, 8, 11, 12))
        n.give(bytes_of(n, n("Relu", n("Conv", x, weight_of(n, 16, 8 // group, 3, 3), pads=[1] * 4, group=group)), 0.1))
    q, k, v = (bytes_of(n, n.input(2, 3, 21, 16)) for _ in range(3))
    p = n("Softmax", n("MatMul", q, n("Transpose", k, perm=[0, 1, 3, 2])), axis=-1)
    n.give(bytes_of(n, n("MatMul", bytes_of(n, p, 1 / 255, 0), v)))


@network("bytes")
# i8 of seven bits: onnxruntime without VNNI saturates sums of two products beyond, so that what reaches them changes nothing
def whole_numbers(n):
    a, b = n.input(9, 30, dtype=np.uint8, most=256), n.constant(n.random.integers(-64, 64, (30, 21)).astype(np.int8))
    n.give(n("MatMulInteger", a, b, n.number(7, np.uint8)))
    x = n.input(2, 6, 9, 9, dtype=np.uint8, most=256)
    w = n.constant(n.random.integers(-64, 64, (10, 6, 3, 3)).astype(np.int8))
    n.give(n("ConvInteger", x, w, n.number(128, np.uint8), pads=[1] * 4))


# ---------------------------------------------------------------------------------------- the rule


def same(a, b):
    bits = f"u{a.dtype.itemsize}"
    return a.view(bits) == b.view(bits) if a.dtype.kind == "f" else a == b


def disturb(arrays, number, value, draw):
    """Of each input one element, or all that share one index of an axis. value None: a number is drawn."""
    changed, random, values = {}, np.random.default_rng(number), np.random.default_rng(draw)
    for name, array in arrays.items():
        array = changed[name] = array.copy()
        axis = number % 5 - 1
        at = [int(random.integers(s)) for s in array.shape]
        if 0 <= axis < array.ndim and array.shape[axis] > 1:
            at = [i if a == axis else slice(None) for a, i in enumerate(at)]
        if array.dtype.kind == "f":
            with np.errstate(over="ignore"):
                array[tuple(at)] = 3 * values.standard_normal(array[tuple(at)].shape) if value is None else value
        else:
            most = 256 if array.dtype == np.uint8 else 50
            array[tuple(at)] = (array[tuple(at)].astype(np.int64) + int(random.integers(1, most))) % most
    return changed


def make(kind):
    net = Net()
    for function in NETWORKS[kind]:
        net.part = function.__name__
        function(net)
    folder = T.scratch(SCRATCH / kind)
    onnx.save(net.model(), folder / "net.onnx")
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(folder / "net.onnx"), options)
    answer = lambda arrays: dict(zip(net.outputs, session.run(net.outputs, arrays)))
    base, cases = answer(net.arrays), []
    for number in range(5 if not OPTIONS.all else 15):
        reached, loud = {name: np.zeros(y.shape, bool) for name, y in base.items()}, []
        for k, value in enumerate((*LOUD, None, None, -5.0, 40.0, -40.0, 1e3, -1e3)):
            changed = disturb(net.arrays, number, value, k)
            loud += [(value, changed)] * (k < len(LOUD))
            for name, y in answer(changed).items():
                reached[name] |= ~same(y, base[name])
        cases.append((reached, loud))
    return net, folder, cases


def changes(kind, *options):
    """(output, value, part, what it changes, what of that it does not reach, what it reaches)"""
    net, folder, cases = T.shared("influence", lambda _, k: make(k), kind)
    inside = T.scratch(folder / ("".join(options) or "default"))
    T.emit(TGC, folder / "net.onnx", inside / "net.c", *T.HERE, *options)
    T.build(inside / "net.c", inside / "net", main_by=TGC)
    program = T.Program(inside / "net", net.outputs)
    order = [v.name for v in net.inputs]
    quiet = program.run([net.arrays[name] for name in order])
    for number, (reached, loud) in enumerate(cases):
        for value, arrays in loud:
            y = program.run([arrays[name] for name in order])
            for name in net.outputs:
                changed = ~same(y[name], quiet[name])
                yield name, value, number, changed, changed & ~reached[name], reached[name]


def holds(kind, *options):
    options = ("--no-winograd", *options) if kind == "images" else options
    problems = [f"{name}, {value} in part {number}: {wrong.sum()} of {wrong.size} elements that it does not reach change, "
                f"the first at {np.argwhere(wrong)[0].tolist()}"
                for name, value, number, _, wrong, _ in changes(kind, *options) if wrong.any()]
    expect(not problems, "\n".join(problems[:20]))


for kind in [k for k in NETWORKS if k != "tiles"]:
    for cpu in SETS:
        suite.add(f"{kind}, {cpu}", holds, kind, f"--cpu={cpu}", slow=True)
    suite.add(f"{kind} by two threads", holds, kind, f"--cpu={SETS[-1]}", "--threads=2")
    suite.add(f"{kind} in bands", holds, kind, f"--cpu={SETS[-1]}", "--cache=0", slow=True)


@suite.case("tiles of Winograd's are the one exception")
def tiles_alone():
    """An output shares a tile with one that is reached: in one sample and group, less than 6 pixels away."""
    reach, beyond = 5, 0
    for name, value, number, _, wrong, reached in changes("tiles", f"--cpu={SETS[-1]}"):
        near = reached.reshape(reached.shape[0], 2, -1, *reached.shape[2:]).any(axis=2)       # by group
        for axis in range(2, near.ndim):
            near = np.pad(near, [(reach, reach) if a == axis else (0, 0) for a in range(near.ndim)])
            near = np.lib.stride_tricks.sliding_window_view(near, 2 * reach + 1, axis).any(axis=-1)
        far = wrong & ~np.repeat(near, reached.shape[1] // 2, axis=1)
        expect(not far.any(), f"{name}, {value} in part {number}: changes at {np.argwhere(far)[:1].tolist()}")
        beyond += wrong.any()
    expect(beyond, "nothing is shared: no layer has tiles, or docs/numbers.md is out of date")


suite.main()
