"""Random configurations of the operators that models use most, against ONNX Runtime.

Attributes, shapes and opsets are drawn; a configuration that ONNX Runtime refuses is drawn again. Those of
one opset are nodes of one model, which tgc compiles and runs at once. --all: many more, by --seed.
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "lib")]

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import tgc as T
from suite import Skip, Suite, expect

suite = Suite("operators")


def more(parser):
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=0, help="configurations of each opset")


OPTIONS = suite.parse(more)
TGC = T.find_tgc(OPTIONS.build).resolve()
SCRATCH = T.scratch(Path(OPTIONS.build).resolve() / "test-scratch" / "operators")
OPSETS = (7, 9, 10, 11, 13, 17, 19, 22)
TYPE = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.int64): TensorProto.INT64,
        np.dtype(np.int32): TensorProto.INT32, np.dtype(np.uint8): TensorProto.UINT8, np.dtype(bool): TensorProto.BOOL}


class Draw:
    """One node: inputs that the run brings, inputs that are data, attributes."""

    def __init__(self, random, opset):
        self.r, self.opset = random, opset
        self.kind, self.domain, self.inputs, self.attributes = None, "", [], {}
        self.outputs = 1                               # how many, or a list of which are wanted
        self.packed = {}                               # inputs of tgc that are otherwise than ONNX Runtime's
        self.rows = None                               # of the first output: how many rows of each sample count

    def one(self, *choices):
        return choices[self.r.integers(len(choices))]

    def size(self, low=1, high=9):
        return int(self.r.integers(low, high + 1))

    def maybe(self, chance=0.5):
        return bool(self.r.random() < chance)

    def shape(self, rank):
        return [self.size(1, 7) for _ in range(rank)]

    def floats(self, shape):
        return (self.r.standard_normal(shape) * 2).astype(np.float32)

    def run(self, array):
        self.inputs.append(("run", np.asarray(array)))

    def data(self, array):
        self.inputs.append(("data", np.asarray(array)))

    def none(self):
        self.inputs.append(("none", None))

    def set(self, chance=1.0, **attributes):
        if self.maybe(chance):
            self.attributes.update(attributes)

    def list(self, name, values, since):
        """An input from some opset on, an attribute before."""
        if self.opset >= since:
            self.data(np.array(values, np.int64))
        else:
            self.attributes[name] = [int(v) for v in values]


def windows(d, rank, pool):
    kernel = [d.size(1, 4) for _ in range(rank)]
    d.set(kernel_shape=kernel)
    d.set(0.7, strides=[d.size(1, 3) for _ in range(rank)])
    if d.maybe(0.4) and (not pool or d.opset >= 10):
        d.set(dilations=[d.size(1, 2) for _ in range(rank)])
    if d.maybe(0.5):
        d.set(pads=[int(d.r.integers(0, k)) for k in kernel * 2])
    elif d.maybe():
        d.set(auto_pad=d.one("VALID", "SAME_UPPER", "SAME_LOWER", "NOTSET"))
        if pool and "SAME" in d.attributes["auto_pad"]:
            d.attributes.pop("dilations", None)        # ONNX Runtime's size forgets them, onnx's inference does not
    return kernel


def pool(d):
    d.kind = d.one("MaxPool", "AveragePool", "LpPool")
    rank = d.one(1, 2, 2, 3)
    d.run(d.floats([d.size(1, 2), d.size(1, 3)] + [d.size(4, 11) for _ in range(rank)]))
    windows(d, rank, True)
    since = {"MaxPool": 10, "AveragePool": 10, "LpPool": 18}[d.kind]
    if d.opset >= since:
        d.set(0.5, ceil_mode=1)
    if d.kind == "AveragePool":
        d.set(0.5, count_include_pad=1)
        if d.opset < 19:
            d.attributes.pop("dilations", None)
    if d.kind == "LpPool":
        d.set(0.5, p=d.one(1, 2, 3))
        if d.opset < 18:
            d.attributes.pop("dilations", None)
    if d.kind == "MaxPool" and d.opset >= 8 and d.maybe(0.3):
        d.outputs = 2
        d.set(0.5, storage_order=1)


def convolution(d):
    d.kind = d.one("Conv", "ConvTranspose")
    rank, group = d.one(1, 2, 2), d.one(1, 1, 2)
    inner, outer = group * d.size(1, 3), group * d.size(1, 3)
    d.run(d.floats([d.size(1, 2), inner] + [d.size(4, 9) for _ in range(rank)]))
    kernel = windows(d, rank, False)
    first, second = (outer, inner // group) if d.kind == "Conv" else (inner, outer // group)
    d.data(d.floats([first, second] + kernel))
    if d.maybe():
        d.data(d.floats([outer]))
    d.set(group=group)
    if d.kind == "ConvTranspose" and "strides" in d.attributes:
        if any(k < s for k, s in zip(kernel, d.attributes["strides"])) and "SAME" in d.attributes.get("auto_pad", ""):
            d.attributes.pop("auto_pad")               # the size is the input's times the stride; not so in ONNX Runtime, which has no negative pads
        d.set(0.4, output_padding=[int(d.r.integers(0, s)) for s in d.attributes["strides"]])


def resize(d):
    d.kind = "Resize" if d.opset >= 10 else "Upsample"
    shape = [1, d.size(1, 3), d.size(2, 9), d.size(2, 9)]
    d.run(d.floats(shape))
    scales = np.array([1, 1, d.one(0.5, 0.6, 0.7, 1.3, 1.5, 2, 2.5, 3), d.one(0.5, 0.6, 0.8, 1.7, 2, 2.6)], np.float32)
    mode = d.one("nearest", "linear", "cubic") if d.opset >= 11 else d.one("nearest", "linear")
    if any(s != 1 and int(np.float32(n) * s) == n for n, s in zip(shape, scales)):
        scales[2:] = 2                                 # ONNX Runtime copies then
    if d.opset < 11:
        d.set(mode=mode)
        if d.opset < 9:
            d.set(scales=[float(max(s, 1)) for s in scales])
        else:
            d.data(scales if d.opset == 10 else np.maximum(scales, 1))
        return
    d.set(mode=mode, coordinate_transformation_mode=d.one(
        "half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric",
        *(["half_pixel_symmetric"] if d.opset >= 19 else []), *(["tf_crop_and_resize"] if mode != "cubic" else [])))
    if mode == "nearest":
        d.set(nearest_mode=d.one("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"))
    if mode == "cubic":
        d.set(0.5, cubic_coeff_a=d.one(-0.5, -0.75), exclude_outside=d.one(0, 1))
    crop = d.attributes["coordinate_transformation_mode"] == "tf_crop_and_resize"
    if crop or d.opset < 13:
        d.data(np.array([0, 0, 0.1, 0.2, 1, 1, 0.8, 0.9], np.float32))
    else:
        d.none()
    if crop:
        d.set(extrapolation_value=1.5)
    elif d.opset >= 18 and mode != "nearest" and d.attributes["coordinate_transformation_mode"] != "half_pixel_symmetric":
        d.set(0.3, antialias=1)
    sizes = d.maybe(0.4) or crop                       # its sizes of a scale forget the region, the text's do not
    if sizes:
        d.data(np.zeros(0, np.float32)) if d.opset < 13 else d.none()
        wanted = [d.one(*(k for k in range(1, 14) if k != n)) for n in shape[2:]]
        if d.opset >= 18 and not crop and d.maybe():
            d.set(axes=[2, 3])
            d.set(0.6, keep_aspect_ratio_policy=d.one("stretch", "not_larger", "not_smaller"))
            d.data(np.array(wanted, np.int64))
        else:
            d.data(np.array(shape[:2] + wanted, np.int64))
    elif d.opset >= 18 and not crop and d.maybe(0.3):
        d.set(axes=[3, 2])
        d.data(scales[2:])
    else:
        d.data(scales)


def clip(d):
    d.kind = "Clip"
    x = d.floats(d.shape(2))
    x.flat[0] = d.one(np.inf, -np.inf, 1) if d.opset < 11 else 1
    d.run(x)
    bounds = [b if d.maybe(0.6) else None for b in (-0.7, 0.9)]
    for name, bound in zip(("min", "max"), bounds):
        if d.opset < 11 and bound is not None:
            d.attributes[name] = bound
        elif d.opset >= 11:
            d.none() if bound is None else d.data(np.float32(bound))


def elementwise(d):
    d.kind = d.one("Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "PRelu", "Mod") if d.opset >= 10 else d.one("Add", "Mul", "Div")
    shape = d.shape(d.size(1, 4))
    other = [n if d.maybe(0.7) else 1 for n in shape][d.size(0, len(shape) - 1):]
    x, y = d.floats(shape), d.floats(other) + np.float32(0.01)
    if d.kind == "Mod":
        d.set(fmod=1)
    if d.kind == "Pow":
        x = np.abs(x)
    if d.kind in ("Max", "Min") and d.opset < 8:
        y = d.floats(shape)
    d.run(x)
    d.run(y)


def activation(d):
    kinds = {"Elu": "alpha", "Selu": "alpha", "LeakyRelu": "alpha", "HardSigmoid": "alpha", "ThresholdedRelu": "alpha", "Celu": "alpha",
             "Softplus": None, "Softsign": None, "Sigmoid": None, "Tanh": None, "Erf": None, "Relu": None, "HardSwish": None, "Gelu": None, "Mish": None,
             "Floor": None, "Abs": None, "Sign": None, "Round": None, "Swish": None, "Shrink": "lambd"}
    since = {"Celu": 12, "Erf": 9, "HardSwish": 14, "Gelu": 20, "Mish": 18, "Sign": 9, "Round": 11, "ThresholdedRelu": 10, "Shrink": 9, "Swish": 24}
    d.kind = d.one(*(k for k in kinds if since.get(k, 1) <= d.opset))
    d.run(d.floats(d.shape(3)))
    if kinds[d.kind]:
        d.set(0.5, **{kinds[d.kind]: float(np.float32(d.r.random() + 0.1))})
    if d.kind == "HardSigmoid":
        d.set(0.5, beta=0.3)
    if d.kind == "Selu":
        d.set(0.5, gamma=1.2)
    if d.kind == "Shrink":
        d.set(0.5, bias=0.25)
    if d.kind == "Gelu":
        d.set(0.5, approximate="tanh")


def softmax(d):
    d.kind = d.one("Softmax", "LogSoftmax", "Hardmax")
    shape = d.shape(d.size(1, 4))
    d.run(d.floats(shape))
    d.set(0.7, axis=int(d.r.integers(-len(shape) if d.opset >= 11 else 0, len(shape))))


def reduction(d):
    d.kind = "Reduce" + d.one("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSumExp", "SumSquare", "LogSum")
    shape = d.shape(d.size(1, 4))
    x = d.floats(shape)
    d.run(np.abs(x) + np.float32(0.1) if d.kind == "ReduceLogSum" else x)
    d.set(0.6, keepdims=d.one(0, 1))
    if d.maybe(0.7):
        n = d.size(1, len(shape))
        axes = sorted(int(a) for a in d.r.permutation(len(shape))[:n])
        d.list("axes", axes, 13 if d.kind == "ReduceSum" else 18)
    elif d.opset >= 18:
        d.set(0.4, noop_with_empty_axes=1)


def arg_extreme(d):
    d.kind = d.one("ArgMax", "ArgMin")
    shape = d.shape(3)
    d.run(d.r.integers(-3, 3, shape).astype(np.float32))
    d.set(0.7, axis=int(d.r.integers(0, 3)))
    d.set(0.5, keepdims=0)
    if d.opset >= 12:
        d.set(0.5, select_last_index=1)


def gemm(d):
    d.kind = "Gemm"
    m, k, n, ta, tb = d.size(), d.size(), d.size(), d.one(0, 1), d.one(0, 1)
    d.run(d.floats([k, m] if ta else [m, k]))
    d.data(d.floats([n, k] if tb else [k, n]))
    if d.opset < 11 or d.maybe(0.7):
        d.data(d.floats(d.one([n], [m, n], [1, n], [m, 1], [])))
    d.set(0.5, alpha=0.5)
    d.set(0.5, beta=1.5)
    d.set(transA=ta, transB=tb)


def matmul(d):
    d.kind = "MatMul"
    m, k, n = d.size(), d.size(), d.size()
    batch = d.shape(d.size(0, 2))
    d.run(d.floats([*batch, m, k] if d.maybe(0.8) else [k]))
    d.run(d.floats(d.one([k, n], [*batch, k, n], [k])))


def norm(d):
    d.kind = d.one("BatchNormalization", "InstanceNormalization", "LRN", *(["LayerNormalization"] if d.opset >= 17 else []),
                   *(["GroupNormalization"] if d.opset >= 21 else []), "LpNormalization")
    c = d.one(2, 4, 6)
    shape = [d.size(1, 2), c, d.size(2, 6), d.size(2, 6)]
    d.run(d.floats(shape))
    d.set(0.5, epsilon=0.01)
    if d.kind == "BatchNormalization":
        for k in range(4):
            d.data(np.abs(d.floats([c])) + np.float32(0.1))
    elif d.kind == "InstanceNormalization" or d.kind == "GroupNormalization":
        d.data(d.floats([c]))
        d.data(d.floats([c]))
        if d.kind == "GroupNormalization":
            d.set(num_groups=2)
    elif d.kind == "LayerNormalization":
        axis = d.size(1, 3)
        d.data(d.floats(shape[axis:]))
        if d.maybe():
            d.data(d.floats(shape[axis:]))
        d.set(axis=d.one(axis, axis - 4))
    else:
        d.attributes.clear()
        if d.kind == "LRN":
            d.set(size=d.one(1, 3, 5))
            d.set(0.5, alpha=0.02)
            d.set(0.5, beta=0.5)
            d.set(0.5, bias=2.0)
        else:
            d.set(0.6, axis=d.one(0, 1, -1))
            d.set(0.5, p=d.one(1, 2))


def movement(d):
    d.kind = d.one("Transpose", "Flatten", "Concat", "Squeeze", "Unsqueeze", "DepthToSpace", "SpaceToDepth", "Expand", "Tile", "Identity")
    if d.kind == "Expand" and d.opset < 8:
        d.kind = "Transpose"
    shape = d.shape(4)
    if d.kind == "DepthToSpace":
        shape[1] = 4 * d.size(1, 2)
        d.set(blocksize=2)
        if d.opset >= 11:
            d.set(0.5, mode=d.one("CRD", "DCR"))
    if d.kind == "SpaceToDepth":
        shape[2:] = [2 * d.size(1, 3), 2 * d.size(1, 3)]
        d.set(blocksize=2)
    if d.kind == "Squeeze":
        shape[1] = 1
    d.run(d.floats(shape))
    if d.kind == "Transpose":
        d.set(0.8, perm=[int(a) for a in d.r.permutation(4)])
    elif d.kind == "Flatten":
        d.set(0.8, axis=d.size(0, 4) - (5 if d.opset >= 11 and d.maybe(0.2) else 0))
        d.attributes["axis"] = max(d.attributes.get("axis", 1), -4)
    elif d.kind == "Concat":
        d.run(d.floats(shape))
        d.set(axis=int(d.r.integers(-4 if d.opset >= 11 else 0, 4)))
    elif d.kind == "Squeeze":
        d.list("axes", [1], 13)
    elif d.kind == "Unsqueeze":
        d.list("axes", d.one([0], [1, 3], [4]), 13)
    elif d.kind == "Expand":
        d.data(np.array([n if n > 1 else d.size() for n in shape], np.int64))
    elif d.kind == "Tile":
        d.data(np.array([d.size(1, 3) for _ in shape], np.int64))


def slices(d):
    d.kind = "Slice"
    shape = d.shape(3)
    d.run(d.floats(shape))
    starts, ends = [int(d.r.integers(-n - 2, n + 2)) for n in shape], [int(d.r.integers(-n - 2, n + 2)) for n in shape]
    if d.opset < 10:
        d.set(starts=starts, ends=ends, axes=[0, 1, 2])
        return
    steps = [d.one(1, 1, 2, -1, -2) for _ in shape]
    for v in (starts, ends, [0, 1, 2], steps):
        d.data(np.array(v, np.int64))


def pad(d):
    d.kind = "Pad"
    shape = [d.size(3, 7) for _ in range(3)]
    d.run(d.floats(shape))
    d.set(mode=d.one("constant", "reflect", "edge", *(["wrap"] if d.opset >= 19 else [])))
    pads = [int(d.r.integers(-1 if d.attributes["mode"] == "constant" else 0, 3)) for _ in range(6)]
    d.list("pads", pads, 11)
    if d.opset >= 11 and d.maybe():
        d.data(np.float32(0.5))
    elif d.opset < 11:
        d.set(0.5, value=0.5)


def gather(d):
    d.kind = d.one("Gather", *(["GatherElements", "GatherND"] if d.opset >= 11 else []))
    shape = [d.size(2, 6) for _ in range(3)]
    axis = int(d.r.integers(0, 3))
    d.run(d.floats(shape))
    low = -1 if d.opset >= 11 else 0
    if d.kind == "GatherND":
        d.run(d.r.integers(-1, 2, [d.size(1, 4), 2]).astype(np.int64))
        return
    index = d.shape(2) if d.kind == "Gather" else [n if a == axis else d.size(1, n) for a, n in enumerate(shape)]
    d.run(d.r.integers(low * shape[axis], shape[axis], index).astype(np.int64))
    d.set(axis=axis)


def split(d):
    d.kind = "Split"
    parts = [d.size(1, 4) for _ in range(d.size(2, 3))]
    axis = d.size(0, 2)
    shape = d.shape(3)
    equal = d.maybe(0.3)
    parts = [parts[0]] * len(parts) if equal else parts
    shape[axis] = sum(parts)
    d.run(d.floats(shape))
    d.set(axis=axis)
    d.outputs = len(parts)
    if equal and d.opset >= 18:
        d.set(num_outputs=len(parts))
    elif not equal:
        d.list("split", parts, 13)


def recurrent(d):
    d.kind = d.one("LSTM", "GRU", "RNN")
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[d.kind]
    steps, batch, width, hidden = d.size(1, 5), d.size(1, 3), d.size(1, 5), d.size(1, 5)
    direction = d.one("forward", "reverse", "bidirectional")
    n = 2 if direction == "bidirectional" else 1
    d.run(d.floats([steps, batch, width]))
    d.data(d.floats([n, gates * hidden, width]) * np.float32(0.4))
    d.data(d.floats([n, gates * hidden, hidden]) * np.float32(0.4))
    d.set(hidden_size=hidden, direction=direction)
    if d.maybe():
        d.data(d.floats([n, 2 * gates * hidden]))
        if d.maybe():
            d.data(d.r.integers(1, steps + 1, [batch]).astype(np.int32))
    d.set(0.3, clip=0.6)
    if d.kind == "GRU":
        d.set(0.5, linear_before_reset=1)
    d.outputs = 2


def key_mask(d, b, s, total):
    """A padding mask in one of its forms, or none."""
    lengths = d.r.integers(1, total + 1, b).astype(np.int32)
    by_key = (np.arange(total) < lengths[:, None]).astype(np.int32)
    form = d.one("none", "none", "lengths", "ends and starts", "packed", "by key", "of one row", "by query", "square")
    if form == "none":
        return d.none()
    starts = (lengths - d.r.integers(1, lengths + 1)).astype(np.int32)
    d.run({"lengths": lengths, "ends and starts": np.concatenate([lengths, starts]), "by key": by_key, "of one row": by_key[:1],
           "packed": np.concatenate([lengths, np.arange(b + 1) * s, np.arange(b + 1) * total]).astype(np.int32),
           "by query": np.maximum(d.r.integers(0, 2, [b, s, total]), np.arange(total) == 0).astype(np.int32),
           "square": np.tril(np.ones([b, 1, total + 2, total + 2], np.int32))}[form])


def score_bias(d, b, heads, s, total):
    if d.maybe(0.7):
        return d.none()
    d.run(d.floats([d.one(1, b), d.one(1, heads), s, total][d.one(0, 0, 0, 0, 1, 2):]))


def attention_attributes(d, heads):
    d.domain, d.outputs = "com.microsoft", 1
    d.set(num_heads=heads)
    d.set(0.3, scale=0.3)
    d.set(0.3, mask_filter_value=-3.0)
    d.set(0.3, unidirectional=1)


def fused_attention(d):
    d.kind = "Attention"
    b, s, heads, e, past = d.size(1, 3), d.size(1, 5), d.one(1, 2, 4), d.one(2, 4, 8), d.one(0, 0, 3)
    sizes = [heads * e, heads * e, heads * d.one(e, e, 3)]
    width = d.one(heads * e, 5)
    attention_attributes(d, heads)
    if sizes[2] != sizes[0] or d.maybe(0.2):
        d.set(qkv_hidden_sizes=sizes)
    d.run(d.floats([b, s, width]))
    d.data(d.floats([width, sum(sizes)]) * np.float32(0.3))
    d.data(d.floats([sum(sizes)]))                     # without it ONNX Runtime crashes
    key_mask(d, b, s, s + past)
    d.run(d.floats([2, b, heads, past, e])) if past else d.none()
    score_bias(d, b, heads, s, s + past)
    d.outputs = [True, past > 0 or sizes[2] == sizes[0] and d.maybe()]


def multi_head(d):
    d.kind = "MultiHeadAttention"
    b, s, heads, e, past = d.size(1, 3), d.size(1, 5), d.one(1, 2, 4), d.one(2, 4, 8), d.one(0, 0, 0, 3)
    t, ve = d.one(s, s, d.size(1, 6)), d.one(e, e, e, 3)
    attention_attributes(d, heads)
    form = d.one("apart", "apart", "apart", "in heads", "in heads", "pairs", "triples")
    t, ve = s if form == "triples" else t, e if form in ("pairs", "triples") else ve
    d.run(d.floats([b, s, heads * e]))
    d.run(d.floats([b, heads, t, e] if form == "in heads" else [b, t, heads * e]))
    d.run(d.floats([b, heads, t, ve] if form == "in heads" else [b, t, heads * ve]))
    if form in ("pairs", "triples"):                   # which ONNX Runtime has for CUDA alone
        first = 0 if form == "triples" else 1
        d.packed = {first: np.stack([x.reshape(b, t, heads, e) for _, x in d.inputs[first:]], 3), 1 + first: None, 2: None}
    d.data(d.floats([heads * (2 * e + ve)])) if d.maybe(0.4) else d.none()
    key_mask(d, b, s, past + t)
    score_bias(d, b, heads, s, past + t)
    if past:
        d.run(d.floats([b, heads, past, e]))
        d.run(d.floats([b, heads, past, ve]))
    d.outputs = [True, True, True] if past else d.one([True], [True, True, True])    # without presents ONNX Runtime reads beyond a past


def group_query(d):
    d.kind, d.domain = "GroupQueryAttention", "com.microsoft"
    pairs, e, b = d.one(1, 2), d.one(8, 16), d.size(1, 3)
    heads = pairs * d.one(1, 2, 3)
    first = d.maybe()
    s = d.size(1, 6) if first else d.one(1, 1, 1, 3)
    if s > 1 and not first:
        b = 1
    lengths = d.r.integers(s, 8, b) if not first else np.array([d.size(1, s) for _ in range(b)])
    if first:
        lengths[0] = s
    total = int(max(lengths))
    if d.maybe(0.3):
        d.run(d.floats([b, s, (heads + 2 * pairs) * e]))
        d.none()
        d.none()
    else:
        d.run(d.floats([b, s, heads * e]))
        d.run(d.floats([b, s, pairs * e]))
        d.run(d.floats([b, s, pairs * e]))
    room = total + d.one(0, 0, 3)
    for _ in range(2):
        d.run(d.floats([b, pairs, room, e])) if not first or d.maybe(0.3) and len(d.inputs) == 3 or d.inputs[3:] and d.inputs[3][1] is not None else d.none()
    d.run((lengths - 1).astype(np.int32).reshape(d.one([b], [b], [b, 1])))
    d.data(np.array(total, np.int32).reshape(d.one([], [1])))
    rotary = d.maybe(0.4)
    if rotary:
        angle = np.arange(room + 2)[:, None] * 0.1 * np.arange(1, d.one(e // 2, e // 2, e // 4 if e == 16 else e // 2) + 1)
        d.data(np.cos(angle).astype(np.float32))
        d.data(np.sin(angle).astype(np.float32))
        d.set(do_rotary=1)
        d.set(0.4, rotary_interleaved=1)
    else:
        d.none()
        d.none()
    if d.maybe(0.2):                                   # of a prompt ONNX Runtime takes the first one, and counts
        at = 0 if first else d.r.integers(0, room - s + 1, [b, 1])
        d.run((np.broadcast_to(at, [b, 1]) + np.arange(s)).astype(np.int64))
    else:
        d.none()
    d.run(d.floats([d.one(1, b), d.one(1, heads), s, total])) if d.maybe(0.2) else d.none()
    if d.maybe(0.2):
        d.data(d.floats([heads]))
    elif d.maybe(0.2):
        d.none()
        d.none()
        d.none()
        d.data(d.floats([e]))
        d.data(d.floats([e]))
    d.set(num_heads=heads, kv_num_heads=pairs)
    d.set(0.3, scale=0.3)
    d.set(0.3, softcap=2.0)
    d.set(0.3, local_window_size=d.size(1, 5))
    d.set(0.2, smooth_softmax=d.one(0, 1))
    d.set(0.2, causal=0)
    d.outputs = [True, True, True]                     # without presents ONNX Runtime reads beyond a past
    if first:                                          # rows of padding are nobody's
        d.rows = lengths
    if d.maybe(0.15) and (lengths == total).all():
        d.set(qk_output=d.one(1, 2))
        d.outputs = [True, True, True, True]


def onnx_attention(d):
    d.kind = "Attention"
    b, s, t, pairs, e, past = d.size(1, 3), d.size(1, 5), d.size(1, 6), d.one(1, 2), d.one(4, 8), d.one(0, 0, 3)
    heads, ve, flat = pairs * d.one(1, 2, 3), d.one(e, e, 3), d.maybe()
    for n, size, width in ((heads, s, e), (pairs, t, e), (pairs, t, ve)):
        d.run(d.floats([b, size, n * width] if flat else [b, n, size, width]))
    if flat:
        d.set(q_num_heads=heads, kv_num_heads=pairs)
    total = t + past
    if d.maybe():
        length = d.one(total, total, total, max(1, total - 2)) if d.opset >= 24 else total
        shape = [d.one(1, b), d.one(1, heads), d.one(s, s, s, 1), length][d.one(0, 0, 1, 2):]
        d.run(d.floats(shape) if d.maybe() else d.r.integers(0, 4, shape) > 0)
    else:
        d.none()
    if past:
        d.run(d.floats([b, pairs, past, e]))
        d.run(d.floats([b, pairs, past, ve]))
    elif d.opset >= 24 and d.maybe(0.3):
        d.none()
        d.none()
        d.run(d.r.integers(1, total + 1, [b]).astype(np.int64))
    if s > 1 or t == 1:                                # for one query ONNX Runtime forgets it
        d.set(0.3, is_causal=1)
    d.set(0.3, scale=0.3)
    d.set(0.3, softcap=2.0)
    d.outputs = [True, past > 0, past > 0, d.maybe(0.4)]
    if d.outputs[3]:
        d.set(qk_matmul_output_mode=d.one(0, 1, 2, 3))


ATTENTION = (fused_attention, multi_head, multi_head, group_query, onnx_attention, onnx_attention)
GROUPS = (pool, pool, pool, convolution, convolution, resize, resize, resize, clip, elementwise, activation, softmax, reduction, arg_extreme, gemm, matmul, norm,
          movement, slices, pad, gather, split, recurrent)


def node_of(d, k, packed=True):
    names, inputs, data, feeds = [], [], [], {}
    for i, (how, array) in enumerate(d.inputs):
        if packed and i in d.packed:
            array = d.packed[i]
            how = how if array is not None else "none"
        name = "" if how == "none" else f"n{k}_{i}"
        names.append(name)
        if how == "run":
            inputs.append(helper.make_tensor_value_info(name, TYPE[array.dtype], array.shape))
            feeds[name] = array
        elif how == "data":
            data.append(numpy_helper.from_array(array, name))
    while names and not names[-1]:
        names.pop()
    wanted = d.outputs if isinstance(d.outputs, list) else [True] * d.outputs
    outputs = [f"y{k}_{i}" if wanted[i] else "" for i in range(len(wanted))]
    node = helper.make_node(d.kind, names, outputs, name=f"node{k}", domain=d.domain, **d.attributes)
    return node, inputs, data, feeds, [name for name in outputs if name]


def model_of(nodes, inputs, data, outputs, opset):
    made = [helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in outputs]
    graph = helper.make_graph(nodes, "g", inputs, made, data)
    return helper.make_model(graph, opset_imports=imports_of(opset), ir_version=8)


def imports_of(opset):
    return [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]


def expected(ort, d, k):
    """What ONNX Runtime computes; None: it refuses the configuration, or the schema does."""
    node, inputs, data, feeds, outputs = node_of(d, k, packed=False)
    bare = helper.make_graph([node], "g", inputs, [onnx.ValueInfoProto(name=name) for name in outputs], data)
    model = helper.make_model(bare, opset_imports=imports_of(d.opset), ir_version=8)
    settings = ort.SessionOptions()
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    settings.log_severity_level = 4
    settings.intra_op_num_threads = 1
    try:
        if not d.domain:
            onnx.checker.check_node(node, _context(d.opset))
        results = ort.InferenceSession(model.SerializeToString(), settings).run(None, feeds)
    except Exception:
        return None
    if any(r.size == 0 for r in results):
        return None
    if d.kind == "Attention" and not d.domain:         # its hidden scores are the least finite number, not the text's -inf
        results = [np.where(r == np.finfo(np.float32).min, np.float32(-np.inf), r) for r in results]
    return dict(zip(outputs, results))


def _context(opset):
    c = onnx.checker.C.CheckerContext()
    c.ir_version = 8
    c.opset_imports = {"": opset}
    return c


def says(d):
    shapes = [f"{how}{list(a.shape)}{'' if a.size > 8 or how == 'run' else a.ravel().tolist()}" if a is not None else "-" for how, a in d.inputs]
    return f"{d.kind}-{d.opset} {d.attributes} of {', '.join(shapes)}"


def differs(have, want, rows=None):
    if rows is not None:
        have, want = (np.concatenate([sample[:n] for sample, n in zip(x, rows)]) for x in (have, want))
    if have.shape != want.shape:
        return f"shape {have.shape}, expected {want.shape}"
    if want.dtype.kind != "f":
        return f"{int((have != want).sum())} of {want.size} differ" if (have != want).any() else None
    with np.errstate(invalid="ignore"):
        size = np.abs(want[np.isfinite(want)]).max(initial=0)
        same = np.isclose(have, want, rtol=1e-4, atol=1e-4 * max(size, 1e-3), equal_nan=True)
    return None if same.all() else f"{int((~same).sum())} of {want.size} differ, the first {have[~same][0]}, expected {want[~same][0]}"


def compare(groups, opset, seed, count):
    try:
        import onnxruntime as ort
    except ImportError:
        raise Skip("onnxruntime is not installed")
    random = np.random.default_rng([seed, opset])
    drawn, k = {}, 0
    while len(drawn) < count and k < 20 * count:
        d = Draw(random, opset)
        groups[k % len(groups)](d)
        want = expected(ort, d, k)
        if want is not None:
            drawn[k] = d, want
        k += 1
    expect(len(drawn) == count, f"{len(drawn)} configurations of {k} are valid")
    compare_nodes(T.scratch(SCRATCH / f"{groups[0].__name__}_{opset}_{seed}"), opset, drawn)


def nearest(opset, kind, rounding, length, scale, size):
    """One axis of Resize; scale or size is None."""
    d = Draw(None, opset)
    d.kind, d.attributes = "Resize", {"mode": "nearest", "coordinate_transformation_mode": kind, "nearest_mode": rounding}
    d.run(np.arange(length, dtype=np.float32).reshape(1, length))
    d.data(np.array([0, 0.15, 1, 0.9], np.float32))    # which only tf_crop_and_resize reads
    d.data(np.array([] if scale is None else [1, scale], np.float32))
    if size is not None:
        d.data(np.array([1, size], np.int64))
    return d


def compare_ties(kind, lengths, scales, sizes):
    """Coordinates at and near the middle of two pixels, or a pixel: every rounding. ONNX Runtime copies where the size stays, and its sizes of scales forget the region."""
    import onnxruntime as ort
    opset = 11 if kind == "tf_half_pixel_for_nn" else 19
    drawn = {}
    for rounding in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"):
        for n in lengths:
            some = [(s, None) for s in scales if int(np.float32(n) * np.float32(s)) not in (0, n) and kind != "tf_crop_and_resize"]
            for scale, size in some + [(None, k) for k in sizes if k != n]:
                d, k = nearest(opset, kind, rounding, n, scale, size), len(drawn)
                drawn[k] = d, expected(ort, d, k)
    compare_nodes(T.scratch(SCRATCH / kind), opset, drawn)


def compare_nodes(folder, opset, drawn):
    nodes, inputs, data, feeds, outputs = [], [], [], {}, []
    for k, (d, want) in drawn.items():
        node, brought, held, fed, _ = node_of(d, k)
        nodes.append(node)
        inputs += brought
        data += held
        feeds.update(fed)
        outputs += [(name, TYPE[a.dtype], a.shape) for name, a in want.items()]
    onnx.save(model_of(nodes, inputs, data, outputs, opset), folder / "model.onnx")
    given = []
    for name, array in feeds.items():
        np.save(folder / f"{name}.npy", array)
        given += ["-i", f"{name}={folder / name}.npy"]
    (folder / "given").write_text("\n".join(given))
    T.must(T.run([TGC, "run", folder / "model.onnx", f"@{folder / 'given'}", "--out-dir", folder / "out", "-O1"], timeout=600))
    wrong = []
    for k, (d, want) in drawn.items():
        for name, array in want.items():
            how = differs(np.load(folder / "out" / f"{name}.npy"), array, d.rows if name.endswith("_0") else None)
            if how:
                wrong.append(f"node{k} {name}: {how}: {says(d)}")
    expect(not wrong, "\n".join(wrong))


KINDS = ("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric", "align_corners", "asymmetric", "tf_crop_and_resize", "tf_half_pixel_for_nn")
SCALES = (2 / 3, 1.5, 1.4, 0.7, 0.5, 10.5 / 10, 1 / 3, 0.75, 1.25, 0.6, 1.3, 2.5, 0.25, 1.7, 0.9, 1.1, 5 / 7, 0.3, 4)
for kind in KINDS:
    suite.add(f"nearest: {kind}", compare_ties, kind, (6, 7), SCALES[:4], (2, 5, 9, 19))
    for lengths in ((1, 2, 3), (5, 6, 7), (10, 12, 13)):
        suite.add(f"nearest: {kind}, {lengths}", compare_ties, kind, lengths, SCALES, range(1, 20), slow=True)
for opset in OPSETS:
    suite.add(f"opset {opset}", compare, GROUPS, opset, OPTIONS.seed, OPTIONS.count or 23)
for turn in range(1, 40):
    for opset in OPSETS:
        suite.add(f"opset {opset}, {turn}", compare, GROUPS, opset, OPTIONS.seed + turn, OPTIONS.count or 69, slow=True)
for turn in range(20):
    for opset in (23, 24):
        suite.add(f"attention {opset}, {turn}", compare, ATTENTION, opset, OPTIONS.seed + turn, OPTIONS.count or (69 if turn else 24), slow=turn > 0)

if __name__ == "__main__":
    suite.main()
