"""Values of one ONNX node at a time, and how much each may be off.

A node runs in ONNX Runtime with its optimizations off; where that has no kernel for a dtype,
onnx's reference evaluator runs it. Beside the exact value each float is tracked with noise: after
every inexact node one part is multiplied by 1 +- a few units of rounding. Where the tracks part,
the model amplifies rounding there, and no comparison can be stricter than that; where integers
part, a comparison or a floor is undecided. So random chains need no tolerance of their own. Two such
tracks go with each graph; what is wrong by them is looked at by a hundred.
"""

import warnings

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

ort.set_default_logger_severity(4)

TRACKS = 3  # the exact one and two with noise
DOUBTS = 100  # more, for what is wrong by these: of many that are equal two are the largest in two tracks
ROUNDING = {"float16": 2.0 ** -10, "float32": 2.0 ** -21, "float64": 2.0 ** -50}

# These round nothing: they get no noise of their own.
EXACT = {"Identity", "Neg", "Abs", "Relu", "Floor", "Ceil", "Round", "Sign", "Max", "Min", "Cast",
         "Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Slice", "Pad", "Expand",
         "Tile", "Concat", "Split", "DepthToSpace", "SpaceToDepth", "Gather", "GatherElements",
         "GatherND", "Trilu", "EyeLike", "OneHot", "ReverseSequence", "ReduceMax", "ReduceMin",
         "TopK", "MaxPool", "GlobalMaxPool", "Where", "Clip", "Hardmax", "Shape", "Size",
         "ConstantOfShape", "CenterCropPad", "MaxUnpool", "CastLike"}
# onnx's reference evaluator is wrong or lax about these (docs of its own tests say where).
NO_REFERENCE = {"Loop", "Scan", "If", "BatchNormalization", "Softmax", "LogSoftmax", "Hardmax",
                "GRU", "LSTM", "RNN", "LpNormalization", "LRN", "MaxPool", "AveragePool", "LpPool",
                "GlobalMaxPool", "GlobalAveragePool", "Unsqueeze", "Resize", "ConvTranspose", "Conv", "Upsample", "TopK", "Pad",
                "ArgMax", "ArgMin", "Mod", "Pow", "Div", "CumSum", "Clip", "Cast", "QuantizeLinear",
                "DequantizeLinear", "Max", "Min", "BitShift", "Einsum", "ScatterElements",
                "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare",
                "ReduceMean", "ReduceProd", "ReduceSum", "Shrink", "PRelu", "Gemm"}


class Rejected(Exception):
    """The node is no valid one, or its oracle has no answer."""


def proto_type(array):
    return helper.np_dtype_to_tensor_dtype(array.dtype)


def node_inputs(node):
    """Names that the node reads, those that its bodies take from outside included."""
    names = [name for name in node.input if name]
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            own = {v.name for v in attribute.g.input} | {t.name for t in attribute.g.initializer}
            for inner in attribute.g.node:
                names += [name for name in node_inputs(inner) if name not in own]
                own.update(inner.output)
            names += [v.name for v in attribute.g.output if v.name not in own]
    return list(dict.fromkeys(names))


class NodeOracle:
    """One node as a model of its own."""

    def __init__(self, node, opset, example):
        self.names = node_inputs(node)
        self.op_type = node.op_type
        inputs = [helper.make_tensor_value_info(name, proto_type(example[name]),
                                                [None] * example[name].ndim)
                  for name in self.names]
        outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
        graph = helper.make_graph([node], "one", inputs, outputs)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)],
                                  ir_version=10)
        self.reference = None
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        try:
            self.session = ort.InferenceSession(model.SerializeToString(), options,
                                                providers=["CPUExecutionProvider"])
        except Exception as why:
            if "NOT_IMPLEMENTED" not in str(why) or node.op_type in NO_REFERENCE:
                raise Rejected(str(why)) from None
            try:
                self.reference = ReferenceEvaluator(model)
            except Exception as other:
                raise Rejected(str(other)) from None

    def run(self, values):
        feeds = {name: values[name] for name in self.names}
        if self.op_type == "ReduceMean" and feeds[self.names[0]].size == 0:
            raise Rejected("undefined: the mean of nothing")
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                runner = self.reference or self.session
                results = runner.run(None, feeds)
            except Exception as why:
                raise Rejected(str(why)) from None
        if not all(isinstance(r, (np.ndarray, np.generic)) for r in results):
            raise Rejected("no tensor")
        if self.op_type == "MaxPool" and is_of_padding(results):
            raise Rejected("undefined: the largest of nothing but padding")
        return [np.asarray(r) for r in results]


def is_of_padding(pooled):
    """ONNX Runtime's least float, or an index before the first one, is that of a window in the border."""
    return (pooled[0].dtype.kind == "f" and np.any(pooled[0] == np.finfo(pooled[0].dtype).min)
            or len(pooled) > 1 and np.any(pooled[1] == -1))


# A sum's error is that of its largest terms, however small it is itself.
SUMS = {"LayerNormalization", "MatMul", "Gemm", "Conv", "ConvTranspose", "ReduceSum", "ReduceMean", "Sub",
        "Add", "Sum", "Mean", "BatchNormalization", "InstanceNormalization", "GroupNormalization",
        "MeanVarianceNormalization", "Einsum", "CumSum", "Resize", "RNN", "GRU", "LSTM"}


# ONNX Runtime's sigmoid and tanh in these are off by 5e-7 of 1, however small they are.
RECURRENT = {"RNN", "GRU", "LSTM"}


def is_rough(node):
    """Also what has them in a body: its noise is that of its results."""
    bodies = [a.g for a in node.attribute if a.type == onnx.AttributeProto.GRAPH]
    return node.op_type in RECURRENT or any(
        inner.op_type in ("Sigmoid", "Tanh") or is_rough(inner) for body in bodies for inner in body.node)


def with_noise(array, track, random, sums=False, floor=0.0):
    """Every second track goes where the one before did not: of a value on an edge one falls on each side."""
    unit, sign = ROUNDING.get(array.dtype.name), 1 if track % 2 else -1
    if unit is None:
        return array
    dtype = array.dtype
    part = random.uniform(0.5, 1, array.shape) * random.choice([-1.0, 1.0], array.shape)
    with np.errstate(all="ignore"):
        if floor:
            array = (array + floor * random.choice([-1.0, 1.0], array.shape)).astype(dtype)
        finite = np.abs(array[np.isfinite(array)].astype(np.float64))
        if sums and finite.size:
            array = array.astype(np.float64) + unit * finite.max() * part * sign
            return (array * (1 + sign * unit * part)).astype(dtype)
        return (array.astype(np.float64) * (1 + sign * unit * part)).astype(array.dtype)


def mismatch(actual, tracks, rtol, atol):
    """What is wrong with a result, or None. Integers and bools are exact."""
    want = tracks[0]
    if actual.dtype != want.dtype or actual.shape != want.shape:
        return (f"is {actual.dtype}{list(actual.shape)}, "
                f"expected {want.dtype}{list(want.shape)}")
    if want.size == 0:
        return None
    if want.dtype.kind != "f":
        wrong = actual != want
        for other in tracks[1:]:
            wrong &= want == other
    else:
        a, e = actual.astype(np.float64), want.astype(np.float64)
        finite = np.abs(e[np.isfinite(e)])
        scale = float(finite.max()) if finite.size else 0.0
        if want.dtype == np.float16:
            rtol, atol = 4 * rtol, max(atol, 1e-3)
        with np.errstate(invalid="ignore"):
            room = rtol * np.abs(e) + atol * scale + 1e-9
            undecided, apart = np.zeros(e.shape, bool), np.zeros(e.shape)
            for number, other in enumerate(tracks[1:], 1):
                o = other.astype(np.float64)
                same = (o == e) | (np.isnan(o) & np.isnan(e))
                undecided |= ~same & ~(np.isfinite(o) & np.isfinite(e))
                off = np.where(same | undecided, 0, np.abs(o - e))
                if number < TRACKS:
                    room = room + 16 * off
                else:
                    apart = np.maximum(apart, off)
            room = room + 16 * apart
            # a result that overflows the dtype is no better known than one that just does not
            close = (np.abs(a - e) <= room) | (a == e) | (np.isnan(a) & np.isnan(e)) | undecided
        wrong = ~close
    wrong = np.asarray(wrong)
    if not wrong.any():
        return None
    where = tuple(int(i) for i in np.argwhere(wrong)[0]) if want.ndim else ()
    return (f"{int(wrong.sum())} of {want.size} elements wrong; first at {list(where)}: "
            f"{actual[where]}, expected {want[where]}")
