"""Values and gradients of graphs by PyTorch in f64, for gradient_graphs.py, by the interpreter that has it: reads a list of folders as
JSON from standard input. Each has graph.json (nodes as gradient_graphs.py writes them) and in.npz; torch.npz becomes the outputs, and
for each float input the gradient of `loss`, of the inputs as they are (0) and of two that are off by NOISE of themselves (1, 2).

Operators are those of opset 13 and above, by their definition in ONNX's specification; a node knows the shapes of its results.
"""

import itertools
import json
import sys
import traceback

import numpy as np
import torch
from torch.nn import functional as F

NOISE = 1e-11
DTYPES = {1: torch.float64, 10: torch.float64, 11: torch.float64, 2: torch.uint8, 3: torch.int8, 5: torch.int16, 6: torch.int32,
          7: torch.int64, 9: torch.bool, 4: torch.int32, 12: torch.int64, 13: torch.int64}
RULES = {}


class Unknown(Exception):
    """There is nothing here to compare with."""


def rule(*names):
    def register(function):
        RULES.update({name: function for name in names})
        return function
    return register


def tensor(array):
    """Unsigned integers, of which PyTorch has one, as wider ones."""
    array = np.asarray(array)
    wider = {"uint16": np.int32, "uint32": np.int64, "uint64": np.int64, "float32": np.float64, "float16": np.float64}
    return torch.tensor(array.astype(wider.get(array.dtype.name, array.dtype)))


class Node:
    def __init__(self, said, values):
        self.op, self.outputs, self.attributes, self.shapes = said["op"], said["outputs"], said["attributes"], said["shapes"]
        self.inputs = [values[name] if name else None for name in said["inputs"]]
        self.values = values

    def get(self, name, default=None):
        return self.attributes.get(name, default)

    def input(self, k):
        return self.inputs[k] if k < len(self.inputs) else None

    def ints(self, k):
        x = self.input(k)
        return None if x is None else [int(v) for v in x.reshape(-1).tolist()]

    def axis(self, name="axis", default=0, rank=None):
        return self.get(name, default) % max(1, self.inputs[0].ndim if rank is None else rank)

    def axes(self, k):
        axes = self.ints(k) if self.get("axes") is None else self.get("axes")
        return None if axes is None else [a % max(1, self.inputs[0].ndim) for a in axes]


# ------------------------------------------------------------------------------------------------------------------- elementwise

def elementwise(**functions):
    for name, function in functions.items():
        RULES[name] = lambda n, function=function: function(*n.inputs)


elementwise(Abs=torch.abs, Neg=torch.neg, Exp=torch.exp, Log=torch.log, Sqrt=torch.sqrt, Sin=torch.sin, Cos=torch.cos, Tan=torch.tan,
            Asin=torch.asin, Acos=torch.acos, Atan=torch.atan, Sinh=torch.sinh, Cosh=torch.cosh, Asinh=torch.asinh, Acosh=torch.acosh,
            Atanh=torch.atanh, Tanh=torch.tanh, Sigmoid=torch.sigmoid, Relu=F.relu, Softplus=lambda x: F.softplus(x, threshold=1e3),
            Softsign=F.softsign, Erf=torch.erf, Floor=torch.floor, Ceil=torch.ceil, Round=torch.round, Sign=torch.sign,
            Reciprocal=torch.reciprocal, HardSwish=F.hardswish, Mish=F.mish, Identity=lambda x: x, Not=torch.logical_not,
            BitwiseNot=torch.bitwise_not, IsNaN=torch.isnan, IsInf=torch.isinf, Add=torch.add, Sub=torch.sub, Mul=torch.mul, Pow=torch.pow,
            And=torch.logical_and, Or=torch.logical_or, Xor=torch.logical_xor, Less=torch.lt, Greater=torch.gt, Equal=torch.eq,
            LessOrEqual=torch.le, GreaterOrEqual=torch.ge, BitwiseAnd=torch.bitwise_and, BitwiseOr=torch.bitwise_or,
            BitwiseXor=torch.bitwise_xor, PRelu=lambda x, s: torch.where(x < 0, s * x, x), MatMul=torch.matmul,
            Where=lambda c, a, b: torch.where(c, a, b))
RULES |= {
    "LeakyRelu": lambda n: F.leaky_relu(n.inputs[0], n.get("alpha", 0.01)),
    "Elu": lambda n: torch.where(n.inputs[0] < 0, n.get("alpha", 1.0) * torch.expm1(n.inputs[0].clamp(max=0)), n.inputs[0]),
    "Selu": lambda n: F.selu(n.inputs[0]),
    "Celu": lambda n: F.celu(n.inputs[0], n.get("alpha", 1.0)),
    "HardSigmoid": lambda n: (n.get("alpha", 0.2) * n.inputs[0] + n.get("beta", 0.5)).clamp(0, 1),
    "ThresholdedRelu": lambda n: F.threshold(n.inputs[0], n.get("alpha", 1.0), 0.0),
    "Gelu": lambda n: F.gelu(n.inputs[0], approximate=n.get("approximate", "none")),
    "Sum": lambda n: sum(n.inputs[1:], n.inputs[0]),
    "Mean": lambda n: sum(n.inputs[1:], n.inputs[0]) / len(n.inputs),
}


@rule("Shrink")
def shrink(n):
    x, lambd, bias = n.inputs[0], n.get("lambd", 0.5), n.get("bias", 0.0)
    return torch.where(x < -lambd, x + bias, torch.where(x > lambd, x - bias, torch.zeros_like(x)))


@rule("Max", "Min")
def extreme_of(n):
    x = n.inputs[0]
    for other in n.inputs[1:]:
        x = (torch.maximum if n.op == "Max" else torch.minimum)(x, other)
    return x


@rule("Div")
def div(n):
    a, b = n.inputs
    return a / b if a.is_floating_point() else torch.div(a, b, rounding_mode="trunc")


@rule("Mod")
def mod(n):
    return (torch.fmod if n.get("fmod", 0) else torch.remainder)(*n.inputs)


@rule("BitShift")
def bit_shift(n):
    return torch.bitwise_left_shift(*n.inputs) if n.get("direction") == "LEFT" else torch.bitwise_right_shift(*n.inputs)


@rule("Clip")
def clip(n):
    x, low, high = n.inputs[0], n.input(1), n.input(2)
    return x if low is None and high is None else x.clamp(low, high)


@rule("Cast")
def cast(n):
    return n.inputs[0].to(DTYPES[n.get("to")])


# ---------------------------------------------------------------------------------------------------------------------- movement

@rule("Transpose")
def transpose(n):
    return n.inputs[0].permute(n.get("perm") or list(reversed(range(n.inputs[0].ndim))))


@rule("Reshape", "Flatten", "Squeeze", "Unsqueeze")
def reshape(n):
    return n.inputs[0].reshape(n.shapes[0])


@rule("Expand")
def expand(n):
    return n.inputs[0].expand(n.shapes[0])


@rule("Tile")
def tile(n):
    return n.inputs[0].repeat(n.ints(1))


@rule("Concat")
def concat(n):
    return torch.cat(n.inputs, n.axis())


@rule("Split")
def split(n):
    return n.inputs[0].split([shape[n.axis()] for shape in n.shapes], n.axis())


@rule("Slice")
def slice_(n):
    x, starts, ends = n.inputs[0], n.ints(1), n.ints(2)
    axes, steps = n.ints(3) or range(len(starts)), n.ints(4) or [1] * len(starts)
    for start, end, axis, step in zip(starts, ends, axes, steps):
        size, axis = x.shape[axis], axis % x.ndim
        start, end = (v + size * (v < 0) for v in (start, end))
        start, end = (min(max(start, 0), size), min(max(end, 0), size)) if step > 0 else \
            (min(max(start, 0), size - 1), min(max(end, -1), size - 1))
        x = x.index_select(axis, torch.arange(start, end, step) if (end - start) * step > 0 else torch.zeros(0, dtype=torch.int64))
    return x


@rule("Pad")
def pad(n):
    x, pads, mode = n.inputs[0], n.ints(1), n.get("mode", "constant")
    axes = n.ints(3) or range(x.ndim)
    value = 0 if n.input(2) is None else n.input(2)
    for k, axis in enumerate(axes):
        before, after, axis = pads[k], pads[k + len(axes)], axis % x.ndim
        size = x.shape[axis]
        at = torch.arange(-before, size + after)
        if mode == "constant":
            inside = ((at >= 0) & (at < size)).reshape([-1 if a == axis else 1 for a in range(x.ndim)])
            got = x.index_select(axis, at.clamp(0, max(size - 1, 0))) if size else x.new_zeros([*x.shape[:axis], len(at), *x.shape[axis + 1:]])
            x = torch.where(inside, got, torch.as_tensor(value, dtype=x.dtype))
            continue
        if mode == "reflect":
            period = max(2 * size - 2, 1)
            at = at % period
            at = torch.where(at < size, at, period - at)
        x = x.index_select(axis, at % size if mode == "wrap" else at.clamp(0, size - 1))
    return x


@rule("DepthToSpace", "SpaceToDepth")
def blocks(n):
    x, b = n.inputs[0], n.get("blocksize")
    s, c, h, w = x.shape
    if n.op == "SpaceToDepth":
        return x.reshape(s, c, h // b, b, w // b, b).permute(0, 3, 5, 1, 2, 4).reshape(n.shapes[0])
    if n.get("mode", "DCR") == "CRD":
        return x.reshape(s, c // b // b, b, b, h, w).permute(0, 1, 4, 2, 5, 3).reshape(n.shapes[0])
    return x.reshape(s, b, b, c // b // b, h, w).permute(0, 3, 4, 1, 5, 2).reshape(n.shapes[0])


@rule("Trilu")
def trilu(n):
    return (torch.triu if n.get("upper", 1) else torch.tril)(n.inputs[0], n.ints(1)[0] if n.input(1) is not None else 0)


# ---------------------------------------------------------------------------------------------------------------- gather, scatter

@rule("Gather")
def gather(n):
    x, i, axis = n.inputs[0], n.inputs[1].long(), n.axis()
    got = x.index_select(axis, i.reshape(-1) % x.shape[axis])
    return got.reshape([*x.shape[:axis], *i.shape, *x.shape[axis + 1:]])


@rule("GatherElements")
def gather_elements(n):
    axis = n.axis()
    return n.inputs[0].gather(axis, n.inputs[1].long() % n.inputs[0].shape[axis])


def places(x, index):
    """What x's first axes are indexed by."""
    return tuple(index[..., k].long() % x.shape[k] for k in range(index.shape[-1]))


@rule("GatherND")
def gather_nd(n):
    return n.inputs[0][places(n.inputs[0], n.inputs[1])]


MODES = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


def scattered(x, axis, index, values, how):
    if how == "none":
        return x.scatter(axis, index, values)
    if how == "add":
        return x.scatter_add(axis, index, values)
    return product_of(x, axis, index, values) if how == "mul" else extreme_at(x, axis, index, values, how)


def targets(x, axis, index):
    """A mask [values, x]: which value lands where; small tensors only."""
    if x.numel() * index.numel() > 1 << 22:
        raise Unknown("a large scatter")
    grid = torch.arange(x.numel()).reshape(x.shape)
    part = grid[tuple(slice(0, k) if a != axis else slice(0, 1) for a, k in enumerate(index.shape))]
    step = int(np.prod(x.shape[axis + 1:]))
    flat = (part.expand(index.shape) + index * step).reshape(-1, 1)
    return flat == torch.arange(x.numel())


def product_of(x, axis, index, values):
    mask = targets(x, axis, index)
    each = torch.where(mask, values.reshape(-1, 1), torch.ones((), dtype=x.dtype))
    return x * each.prod(0).reshape(x.shape)


def extreme_at(x, axis, index, values, how):
    mask, sign = targets(x, axis, index), 1 if how == "max" else -1
    each = torch.where(mask, sign * values.reshape(-1, 1), torch.full((), -torch.inf, dtype=x.dtype))
    return sign * torch.cat([sign * x.reshape(1, -1), each]).amax(0).reshape(x.shape)


@rule("ScatterElements", "Scatter")
def scatter_elements(n):
    axis = n.axis()
    return scattered(n.inputs[0], axis, n.inputs[1].long() % n.inputs[0].shape[axis], n.inputs[2], n.get("reduction", "none"))


@rule("ScatterND")
def scatter_nd(n):
    x, index, values = n.inputs
    depth = index.shape[-1]
    at = sum((index[..., k].long() % x.shape[k]) * int(np.prod(x.shape[k + 1:depth])) for k in range(depth)).reshape(-1, 1)
    rows = x.reshape(int(np.prod(x.shape[:depth])), -1)
    values = values.reshape(len(at), -1)
    return scattered(rows, 0, at.expand(values.shape), values, n.get("reduction", "none")).reshape(x.shape)


@rule("OneHot")
def one_hot(n):
    index, depth, (off, on) = n.inputs[0].long(), n.ints(1)[0], n.inputs[2]
    axis = n.get("axis", -1) % (index.ndim + 1)
    at = torch.arange(depth).reshape([-1 if a == axis else 1 for a in range(index.ndim + 1)])
    wrapped = torch.where((index >= -depth) & (index < depth), index % depth, torch.full_like(index, -1))
    return torch.where(wrapped.unsqueeze(axis) == at, on, off)


# -------------------------------------------------------------------------------------------------------------------- reductions

@rule(*(f"Reduce{kind}" for kind in ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare")))
def reduce(n):
    x, axes = n.inputs[0], n.axes(1)
    if not axes:
        if n.get("noop_with_empty_axes", 0):
            return {"L1": x.abs(), "L2": x.abs(), "LogSum": x.log(), "LogSumExp": x, "SumSquare": x * x}.get(n.op[6:], x) \
                if x.is_floating_point() else x * x if n.op == "ReduceSumSquare" else x.abs() if n.op in ("ReduceL1", "ReduceL2") else x
        axes = list(range(x.ndim))
    if not x.ndim:
        x, axes = x.reshape(1), [0]
    integer = None if x.is_floating_point() else x.dtype
    x = x.to(torch.float64) if integer is not None else x
    made = {"Sum": lambda: x.sum(axes), "Mean": lambda: x.mean(axes), "Max": lambda: x.amax(axes), "Min": lambda: x.amin(axes),
            "Prod": lambda: product(x, axes), "L1": lambda: x.abs().sum(axes), "L2": lambda: torch.linalg.vector_norm(x, dim=axes),
            "LogSum": lambda: x.sum(axes).log(), "LogSumExp": lambda: x.logsumexp(axes), "SumSquare": lambda: (x * x).sum(axes)}
    y = made[n.op[6:]]().reshape(n.shapes[0])
    return y if integer is None else y.trunc().to(integer)


def product(x, axes):
    for axis in sorted(axes, reverse=True):
        x = x.prod(axis)
    return x


@rule("ArgMax", "ArgMin")
def arg(n):
    x, axis = n.inputs[0], n.axis()
    x = x.double()
    best = x.amax(axis, True) if n.op == "ArgMax" else x.amin(axis, True)
    at = torch.arange(x.shape[axis]).reshape([-1 if a == axis else 1 for a in range(x.ndim)])
    last = n.get("select_last_index", 0)
    found = torch.where(x == best, at, torch.full_like(at, -1 if last else x.shape[axis]))
    return (found.amax(axis) if last else found.amin(axis)).reshape(n.shapes[0])


@rule("TopK")
def top_k(n):
    """Of equal values the one that comes first."""
    x, axis, k = n.inputs[0], n.axis(default=-1), n.ints(1)[0]
    order = x.detach().sort(dim=axis, descending=bool(n.get("largest", 1)), stable=True).indices.narrow(axis, 0, k)
    return x.gather(axis, order), order


@rule("CumSum")
def cumsum(n):
    x, axis = n.inputs[0], n.ints(1)[0] % n.inputs[0].ndim
    x = x.flip(axis) if n.get("reverse", 0) else x
    y = x.cumsum(axis).to(x.dtype)
    y = y - x if n.get("exclusive", 0) else y
    return y.flip(axis) if n.get("reverse", 0) else y


@rule("Softmax", "LogSoftmax")
def softmax(n):
    return (F.softmax if n.op == "Softmax" else F.log_softmax)(n.inputs[0], n.axis(default=-1))


@rule("Hardmax")
def hardmax(n):
    x, axis = n.inputs[0], n.axis(default=-1)
    best = x == x.amax(axis, True)
    return (best & (best.cumsum(axis) == 1)).to(x.dtype)


# ----------------------------------------------------------------------------------------------------------------- normalization

def per_channel(v, x):
    return v.reshape([1, -1] + [1] * (x.ndim - 2))


@rule("LayerNormalization")
def layer_norm(n):
    x, axis = n.inputs[0], n.axis(default=-1)
    y = F.layer_norm(x, x.shape[axis:], eps=n.get("epsilon", 1e-5)) * n.inputs[1]
    return y if n.input(2) is None else y + n.inputs[2]


@rule("BatchNormalization")
def batch_norm(n):
    x, scale, shift, mean, var = n.inputs
    return F.batch_norm(x, mean, var, scale, shift, eps=n.get("epsilon", 1e-5)) if not mean.requires_grad and not var.requires_grad \
        else (x - per_channel(mean, x)) / (per_channel(var, x) + n.get("epsilon", 1e-5)).sqrt() * per_channel(scale, x) + per_channel(shift, x)


@rule("InstanceNormalization")
def instance_norm(n):
    x, scale, shift = n.inputs
    axes = list(range(2, x.ndim))
    off = x - x.mean(axes, True)
    return off / ((off * off).mean(axes, True) + n.get("epsilon", 1e-5)).sqrt() * per_channel(scale, x) + per_channel(shift, x)


@rule("GroupNormalization")
def group_norm(n):
    return F.group_norm(n.inputs[0], n.get("num_groups"), n.inputs[1], n.inputs[2], n.get("epsilon", 1e-5))


@rule("LRN")
def lrn(n):
    x, size = n.inputs[0], n.get("size")
    squares = F.pad((x * x).movedim(1, -1), ((size - 1) // 2, size // 2)).unfold(-1, size, 1).sum(-1).movedim(-1, 1)
    return x / (n.get("bias", 1.0) + n.get("alpha", 1e-4) / size * squares) ** n.get("beta", 0.75)


@rule("LpNormalization")
def lp_norm(n):
    x, axis = n.inputs[0], n.axis(default=-1)
    return x / torch.linalg.vector_norm(x, n.get("p", 2), axis, True)


@rule("MeanVarianceNormalization")
def mean_variance(n):
    x, axes = n.inputs[0], n.get("axes", [0, 2, 3])
    off = x - x.mean(axes, True)
    return off / ((off * off).mean(axes, True).sqrt() + 1e-9)


# ------------------------------------------------------------------------------------------------------------ products, windows

@rule("Gemm")
def gemm(n):
    a, b = (x.T if n.get(word, 0) else x for x, word in zip(n.inputs, ("transA", "transB")))
    y = n.get("alpha", 1.0) * (a @ b)
    return y if n.input(2) is None else y + n.get("beta", 1.0) * n.inputs[2]


@rule("Einsum")
def einsum(n):
    return torch.einsum(n.get("equation"), *n.inputs)


def borders(n, size, kernel, out):
    """Of each axis: stride, dilation, padding before, and behind as the result's size asks for."""
    rank = len(kernel)
    strides, dilations = n.get("strides", [1] * rank), n.get("dilations", [1] * rank)
    pads, auto = n.get("pads", [0] * 2 * rank), n.get("auto_pad", "NOTSET")
    found = []
    for a in range(rank):
        reach = dilations[a] * (kernel[a] - 1) + 1
        need = max((out[a] - 1) * strides[a] + reach - size[a], 0)
        before = {"SAME_UPPER": need // 2, "SAME_LOWER": need - need // 2, "VALID": 0}.get(auto, pads[a])
        found.append((strides[a], dilations[a], before, (out[a] - 1) * strides[a] + reach - size[a] - before))
    return found


def padded(x, edges, value):
    words = [v for _, _, before, after in reversed(edges) for v in (before, after)]
    return F.pad(x, words, value=value)        # cut where it is less than nothing


@rule("Conv")
def conv(n):
    x, w = n.inputs[:2]
    edges = borders(n, x.shape[2:], w.shape[2:], n.shapes[0][2:])
    function = (F.conv1d, F.conv2d, F.conv3d)[x.ndim - 3]
    return function(padded(x, edges, 0.0), w, n.input(2), [e[0] for e in edges], 0, [e[1] for e in edges], n.get("group", 1))


@rule("ConvTranspose")
def conv_transpose(n):
    x, w = n.inputs[:2]
    rank = x.ndim - 2
    function = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[rank - 1]
    y = function(x, w, None, n.get("strides", [1] * rank), 0, 0, n.get("group", 1), n.get("dilations", [1] * rank))
    pads, out = n.get("pads", [0] * 2 * rank), n.shapes[0][2:]
    words = [v for a in reversed(range(rank)) for v in (-pads[a], out[a] - y.shape[2 + a] + pads[a])]
    y = F.pad(y, words)
    return y if n.input(2) is None else y + per_channel(n.inputs[2], y)


def windows(x, edges, kernel, out, value):
    """[n, c, out..., kernel...]"""
    x = padded(x, edges, value)
    for a, (stride, dilation, _, _) in enumerate(edges):
        at = (torch.arange(out[a]) * stride)[:, None] + torch.arange(kernel[a]) * dilation
        axis = 2 + 2 * a
        x = x.index_select(axis, at.reshape(-1)).reshape([*x.shape[:axis], out[a], kernel[a], *x.shape[axis + 1:]])
    rank = len(edges)
    return x.permute([0, 1, *range(2, 2 + 2 * rank, 2), *range(3, 3 + 2 * rank, 2)]).flatten(2 + rank)


@rule("MaxPool", "AveragePool", "LpPool")
def pool(n):
    x, kernel, out = n.inputs[0], n.get("kernel_shape"), n.shapes[0][2:]
    edges = borders(n, x.shape[2:], kernel, out)
    if n.op == "MaxPool":
        most, at = windows(x, edges, kernel, out, -torch.inf).max(-1)
        places = torch.arange(x.numel(), dtype=x.dtype).reshape(x.shape)
        return most, windows(places, edges, kernel, out, -1.0).gather(-1, at[..., None])[..., 0].long()
    if n.op == "LpPool":
        return torch.linalg.vector_norm(windows(x, edges, kernel, out, 0.0), n.get("p", 2), -1)
    inside = torch.ones_like(x.detach())
    if n.get("count_include_pad", 0):           # what is padded counts, what ceil_mode adds does not
        pads = n.get("pads", [0] * 2 * len(kernel)) if n.get("auto_pad", "NOTSET") == "NOTSET" else None
        ends = [e[3] if pads is None else min(e[3], pads[a + len(kernel)]) for a, e in enumerate(edges)]
        inside = F.pad(inside, [v for (_, _, before, _), end in reversed(list(zip(edges, ends))) for v in (before, end)], value=1.0)
        edges_of = [(s, d, 0, after - end) for (s, d, _, after), end in zip(edges, ends)]
    else:
        edges_of = edges
    count = windows(inside, edges_of, kernel, out, 0.0).sum(-1)
    return windows(x, edges, kernel, out, 0.0).sum(-1) / count


@rule("GlobalAveragePool", "GlobalMaxPool")
def global_pool(n):
    axes = list(range(2, n.inputs[0].ndim))
    return n.inputs[0].mean(axes, True) if n.op == "GlobalAveragePool" else n.inputs[0].amax(axes, True)


def taps(n, out, size, scale):
    """Weights [out, size] of one axis of a Resize."""
    f = np.float32
    o, how = np.arange(out, dtype=f), n.get("coordinate_transformation_mode", "half_pixel")
    if how == "align_corners":
        at = o * f(0 if out == 1 else (size - 1) / f(out - 1))
    elif how == "asymmetric":
        at = o / f(scale)
    elif how == "pytorch_half_pixel" and out == 1:
        at = o * f(0)
    else:
        at = (o + f(0.5)) / f(scale) - f(0.5)
    weights = np.zeros((out, size))
    mode, nearest = n.get("mode", "nearest"), n.get("nearest_mode", "round_prefer_floor")
    for k, c in enumerate(at):
        if mode == "nearest":
            i = {"floor": np.floor(c), "ceil": np.ceil(c), "round_prefer_ceil": np.floor(c + f(0.5)),
                 "round_prefer_floor": np.ceil(c - f(0.5))}[nearest]
            weights[k, min(max(int(i), 0), size - 1)] = 1
            continue
        low = int(np.floor(c))
        t = float(c) - low
        if mode == "linear":
            c = min(max(float(c), 0), size - 1)
            low = int(np.floor(c))
            t, parts = c - low, {low: 1 - (c - low), low + 1: c - low}
        else:
            a = n.get("cubic_coeff_a", -0.75)
            near = lambda d: (a + 2) * d ** 3 - (a + 3) * d ** 2 + 1
            far = lambda d: a * d ** 3 - 5 * a * d ** 2 + 8 * a * d - 4 * a
            parts = {low - 1: far(1 + t), low: near(t), low + 1: near(1 - t), low + 2: far(2 - t)}
        for i, w in parts.items():
            weights[k, min(max(i, 0), size - 1)] += w
    return torch.tensor(weights)


@rule("Resize")
def resize(n):
    x, scales = n.inputs[0], n.inputs[2].tolist()
    for axis, (size, out, scale) in enumerate(zip(x.shape, n.shapes[0], scales)):
        if size != out or scale != 1:
            x = torch.tensordot(x, taps(n, out, size, scale), ([axis], [1])).movedim(-1, axis)
    return x


# ------------------------------------------------------------------------------------------------------- shapes, control, recurrent

@rule("Shape")
def shape(n):
    return torch.tensor(n.inputs[0].shape, dtype=torch.int64)


@rule("Size")
def size(n):
    return torch.tensor(n.inputs[0].numel())


@rule("ConstantOfShape")
def constant_of_shape(n):
    value = tensor(n.get("value", np.zeros(1)))
    return value.reshape([1] * len(n.shapes[0])).expand(n.shapes[0]) if n.shapes[0] else value.reshape([])


@rule("Constant")
def constant(n):
    return tensor(n.get("value"))


def body(graph, values, given):
    inside = {**values, **dict(zip(graph["inputs"], given))}
    for said in graph["nodes"]:
        run(said, inside)
    return [inside[name] for name in graph["outputs"]]


@rule("If")
def branch(n):
    return body(n.get("then_branch") if bool(n.inputs[0]) else n.get("else_branch"), n.values, [])


@rule("Loop")
def loop(n):
    count = 1 << 30 if n.input(0) is None else int(n.inputs[0])
    more, state, scans = n.input(1), list(n.inputs[2:]), []
    k = 0
    while k < count and (more is None or bool(more)):
        more, *rest = body(n.get("body"), n.values, [torch.tensor(k), torch.tensor(True) if more is None else more, *state])
        state, k = rest[:len(state)], k + 1
        scans.append(rest[len(state):])
    if not scans and n.shapes is None:
        raise Unknown("the shape of what a Loop inside of another stacks, which is nothing")
    return [*state, *(map(torch.stack, zip(*scans)) if scans else [torch.zeros(s, dtype=torch.float64) for s in n.shapes[len(state):]])]


@rule("Scan")
def scan(n):
    g, nscan = n.get("body"), n.get("num_scan_inputs")
    state, xs = list(n.inputs[:-nscan]), n.inputs[-nscan:]
    axes, ways = n.get("scan_input_axes", [0] * nscan), n.get("scan_input_directions", [0] * nscan)
    rows = [x.flip(a).unbind(a) if way else x.unbind(a) for x, a, way in zip(xs, axes, ways)]
    made = []
    for row in zip(*rows):
        got = body(g, n.values, [*state, *row])
        state = got[:len(state)]
        made.append(got[len(state):])
    columns = list(zip(*made))
    ways = n.get("scan_output_directions", [0] * len(columns))
    return [*state, *(torch.stack(c[::-1] if way else c, a) for c, a, way in zip(columns, n.get("scan_output_axes", [0] * len(columns)), ways))]


def recurrent(n, gates, step):
    x, w, r = n.inputs[:3]
    hidden = n.get("hidden_size")
    b = n.input(3)
    ways = {"forward": [0], "reverse": [1], "bidirectional": [0, 1]}[n.get("direction", "forward")]
    results, last = [], []
    for k, way in enumerate(ways):
        state = [torch.zeros(x.shape[1], hidden, dtype=x.dtype)] * 2
        bias = torch.zeros(2 * gates * hidden, dtype=x.dtype) if b is None else b[k]
        rows = []
        for t in range(x.shape[0])[::-1] if way else range(x.shape[0]):
            state = step(n, x[t] @ w[k].T, state, r[k], *bias.chunk(2))
            rows.append(state[0])
        results.append(torch.stack(rows[::-1] if way else rows))
        last.append(state[0])
    return torch.stack(results, 1), torch.stack(last)


@rule("RNN")
def rnn(n):
    return recurrent(n, 1, lambda n, xw, s, r, wb, rb: [torch.tanh(xw + s[0] @ r.T + wb + rb)] * 2)


@rule("GRU")
def gru(n):
    def step(n, xw, s, r, wb, rb):
        h = s[0]
        (xz, xr, xh), (bz, br, bh), (cz, cr, ch), (uz, ur, uh) = (v.chunk(3, -1 if v.ndim == 1 or v is xw else 0) for v in (xw, wb, rb, r))
        z, reset = torch.sigmoid(xz + h @ uz.T + bz + cz), torch.sigmoid(xr + h @ ur.T + br + cr)
        inner = reset * (h @ uh.T + ch) if n.get("linear_before_reset", 0) else (reset * h) @ uh.T + ch
        return [(1 - z) * torch.tanh(xh + inner + bh) + z * h] * 2
    return recurrent(n, 3, step)


@rule("LSTM")
def lstm(n):
    def step(n, xw, s, r, wb, rb):
        i, o, f, c = (xw + s[0] @ r.T + wb + rb).chunk(4, 1)
        cell = torch.sigmoid(f) * s[1] + torch.sigmoid(i) * torch.tanh(c)
        return [torch.sigmoid(o) * torch.tanh(cell), cell]
    return recurrent(n, 4, step)


# ------------------------------------------------------------------------------------------------------------------------- graphs

def run(said, values):
    node = Node(said, values)
    if node.op not in RULES:
        raise Unknown(node.op)
    made = RULES[node.op](node)
    made = [made] if isinstance(made, torch.Tensor) else made
    for name, x, shape in zip(node.outputs, made, node.shapes or itertools.repeat(None)):
        if shape is not None and list(x.shape) != shape:
            raise ValueError(f"{node.op} {node.attributes}: {list(x.shape)}, not {shape}")
        values[name] = x


def arrays_of(graph, given, noise):
    values = {}
    for k, (name, array) in enumerate(given.items()):
        x = tensor(array)
        if noise and x.is_floating_point():
            part = np.random.default_rng([noise, k]).uniform(-1, 1, array.shape)
            x = x * (1 + NOISE * torch.tensor(part))
        values[name] = x.requires_grad_() if name in graph["wanted"] else x
    leaves = [values[name] for name in graph["wanted"]]
    for said in graph["nodes"]:
        run(said, values)
    found = {f"out {noise} {name}": values[name].detach().numpy() for name in graph["outputs"]}
    if not noise:
        found |= {f"value {noise} {name}": x.detach().numpy() for name, x in values.items() if name not in given}
    loss = values["loss"]
    slopes = torch.autograd.grad(loss, leaves, allow_unused=True) if loss.requires_grad else [None] * len(leaves)
    return found | {f"grad {noise} {name}": (torch.zeros_like(x) if d is None else d).numpy()
                    for name, x, d in zip(graph["wanted"], leaves, slopes)}


def revived(node):
    """Tensors of attributes back from lists, those of bodies too."""
    for name, value in node["attributes"].items():
        if isinstance(value, dict) and "dtype" in value:
            node["attributes"][name] = np.array(value["data"], value["dtype"]).reshape(value["shape"])
        elif isinstance(value, dict):
            for inner in value["nodes"]:
                revived(inner)


def main():
    torch.set_num_threads(1)
    for folder in json.load(sys.stdin):
        with open(f"{folder}/graph.json") as file:
            graph = json.load(file)
        for node in graph["nodes"]:
            revived(node)
        given = dict(np.load(f"{folder}/in.npz"))
        try:
            made = {}
            for noise in range(3):
                made |= arrays_of(graph, given, noise)
            np.savez(f"{folder}/torch.npz", **made)
        except Exception as why:
            name = "unknown" if isinstance(why, Unknown) else "wrong"
            with open(f"{folder}/{name}.txt", "w") as file:
                file.write("".join(traceback.format_exception(why)[-3:]))


main()
