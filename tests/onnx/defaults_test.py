"""An attribute that is absent has its schema's default: every operator, version and attribute.

ROWS has nodes that leave their attributes out. Each is lowered as it is and once for each attribute that has
a default, with that default given; the graphs (.tg, -O0) must be equal. Quick: the nodes of an opset are one
model, once without and once with all defaults. --all gives each attribute alone, and then another value,
which must make another graph or be refused: an attribute without influence is in SILENT, or its default was
not tested.
"""

import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "lib"))

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper
from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

import tgc as T
from suite import Failure, Suite, expect

suite = Suite("defaults")
OPTIONS = suite.parse()
TGC = T.find_tgc(OPTIONS.build).resolve()
SCRATCH = T.scratch(Path(OPTIONS.build).resolve() / "test-scratch" / "defaults")
MS, NCHWC, ML, TRAINING = "com.microsoft", "com.microsoft.nchwc", "ai.onnx.ml", "ai.onnx.preview.training"
NEWEST = onnx.defs.onnx_opset_version()


class Run:
    """An input that the run brings, of a dtype by its name in TensorProto."""

    def __init__(self, dtype, *shape):
        self.dtype, self.shape = getattr(TensorProto, dtype), shape


def f(*shape):
    return Run("FLOAT", *shape)


def i(*shape):
    return Run("INT64", *shape)


def c(values, dtype=np.float32):
    return np.asarray(values, dtype)


def w(*shape, dtype=np.float32):
    return (np.arange(np.prod(shape, dtype=int)) % 7).astype(dtype).reshape(shape)


def n(*values):
    """A constant of the run's sizes: one number is a scalar, a list is a list."""
    return c(values[0] if len(values) == 1 else values, np.int64)


def z(value=3, dtype=np.uint8):
    return c(value, dtype)


# Defaults that are no values: CastMap has no place in C, GRU of opset 1 says "foward", no channels is none.
NONE = {("GRU", 1, "direction"), ("CastMap", "cast_to"), ("CastMap", "map_form"), ("CastMap", "max_map"), ("ReorderOutput", "channels")}
# Values other than the default where 1 more is none, and the words that replace words.
OTHER = {"stash_type": TensorProto.DOUBLE, "output_dtype": TensorProto.FLOAT16, "precision": TensorProto.DOUBLE, "output_datatype": TensorProto.DOUBLE,
         "dtype": TensorProto.INT64, "qk_matmul_output_mode": 3, "smooth_softmax": 1}
WORDS = {"NOTSET": "SAME_UPPER", "forward": "reverse", "nearest": "linear", "linear": "nearest", "bilinear": "nearest", "constant": "edge", "DCR": "CRD", "avg": "max",
         "round_prefer_floor": "ceil", "half_pixel": "align_corners", "asymmetric": "align_corners", "stretch": "not_larger", "up": "nearest", "zeros": "border",
         "mean": "sum", "RGB": "BGR", "NONE": "LOWER", "SUM": "MAX", "MAX": "L1", "LINEAR": "RBF", "_Unused": "other", "sqeuclidean": "euclidean"}
# Attributes that need not show: hints; what training or an output that is not there would need; a precision below that of f32; broadcast, without which shapes
# are equal. Where one shows all the same, that is no fault.
SILENT = {"broadcast", "output_sequence", "is_test", "momentum", "ratio", "chunk_size", "multi_class", "accuracy_level", "stash_type", "qk_output",
          ("MaxPool", "storage_order"), ("ReorderOutput", "channels")}


class Row:
    """A node whose attributes are absent but for those given. Inputs: Run, constants, None: absent, lists: sequences of them."""

    def __init__(self, domain, op, since, until, inputs, outputs, declared, attributes):
        self.domain, self.op, self.since, self.until = domain, op, since, until
        self.inputs, self.outputs, self.declared, self.attributes = inputs, outputs, declared, attributes


ROWS = []


def row(ops, *inputs, since=1, until=NEWEST, domain="", outputs=1, declared=None, **attributes):
    """declared: the output's shape, where the values of inputs decide it."""
    ROWS.extend(Row(domain, op, since, until, inputs, outputs, declared, attributes) for op in ops.split())


B = "BOOL"
image, narrow = f(1, 4, 6, 8), Run("UINT8", 1, 4, 6, 8)
scale, zero = c(0.5), z()

row("Add Sub Mul Div Pow Greater Less", f(3, 4), f(3, 4))
row("Equal", i(3, 4), i(3, 4))
row("And Or Xor", Run(B, 3, 4), Run(B, 3, 4))
row("AffineGrid", f(1, 2, 3), n(1, 2, 3, 4))
row("ArgMax ArgMin", f(3, 4, 5))
row("ArgMax ArgMin", f(3, 4, 5), since=12)
row("Attention", f(1, 2, 4, 8), f(1, 2, 5, 8), f(1, 2, 5, 8), since=23, outputs=4)
row("AveragePool MaxPool", image, kernel_shape=[2, 3], pads=[1, 1, 0, 0], strides=[2, 3])
row("AveragePool MaxPool LpPool", image, kernel_shape=[2, 3])
row("LpPool", image, kernel_shape=[3, 3], strides=[2, 2])
row("MaxPool", image, since=8, outputs=2, kernel_shape=[2, 3], strides=[2, 3])
row("BatchNormalization", image, f(4), f(4), f(4), f(4), until=5, consumed_inputs=[0, 0, 0, 1, 1])
row("BatchNormalization", image, f(4), f(4), f(4), f(4), since=6)
row("BatchNormalization", image, f(4), f(4), f(4), f(4), since=14, outputs=3, training_mode=1)
row("BlackmanWindow HammingWindow HannWindow", n(9))
row("Cast", f(4), since=19, to=TensorProto.FLOAT8E4M3FN)
row("CastLike", f(4), Run("FLOAT8E4M3FN", 1), since=19)
row("Cast", f(4), since=24, to=TensorProto.FLOAT8E8M0)
row("CastLike", f(4), Run("FLOAT8E8M0", 1), since=24)
row("CausalConvWithState", f(1, 4, 6), f(4, 1, 3), f(4), outputs=2)
row("Celu Elu Gelu HardSigmoid LeakyRelu Selu Shrink Swish", f(3, 4))
row("ThresholdedRelu", f(3, 4), since=10)
row("Clip", f(3, 4), until=10)
row("ConcatFromSequence", [f(2, 3), f(2, 3)], axis=0)
row("Conv ConvTranspose", image, f(4, 4, 3, 3))
row("ConvInteger", narrow, Run("UINT8", 4, 4, 3, 3))
row("CumProd CumSum", f(3, 4), n(1))
row("DFT", f(1, 4, 6, 1))
row("DeformConv", image, f(4, 4, 2, 2), f(1, 8, 5, 7))
row("DepthToSpace SpaceToDepth", image, blocksize=2)
row("DequantizeLinear", Run("INT8", 2, 3), f(3), since=13)
row("DequantizeLinear", Run("INT8", 2, 4), f(2, 2), since=21, block_size=2)
row("Dropout", f(3, 4), until=10)
row("EyeLike", f(3, 4))
row("Flatten", f(2, 3, 4))
row("GRU", f(2, 3, 4), f(1, 15, 4), f(1, 15, 5), f(1, 30), hidden_size=5, outputs=2, direction="forward")
row("GRU", f(2, 3, 4), f(1, 15, 4), f(1, 15, 5), f(1, 30), hidden_size=5, since=3, outputs=2)
row("LSTM", f(2, 3, 4), f(1, 20, 4), f(1, 20, 5), f(1, 40), hidden_size=5, outputs=2)
row("RNN", f(2, 3, 4), f(1, 5, 4), f(1, 5, 5), f(1, 10), hidden_size=5, outputs=2, activations=["Tanh"])
row("RNN", f(2, 3, 4), f(2, 5, 4), f(2, 5, 5), f(2, 10), hidden_size=5, outputs=2, direction="bidirectional")
row("Gather", f(3, 4), n(1, 2))
row("GatherElements", f(3, 4), n([[0, 1, 1, 0]]))
row("GatherND", f(2, 2), n([[0], [1]]))
row("Gemm", f(4, 4), f(4, 4), f(4, 4))
row("GlobalLpPool", image)
row("GridSample", image, f(1, 4, 5, 2))
row("GroupNormalization", image, f(4), f(4), since=21, num_groups=2)
row("Hardmax LogSoftmax Softmax LpNormalization", f(2, 3, 4))
row("InstanceNormalization", image, f(4), f(4))
row("ImageDecoder", Run("UINT8", 99), declared=[8, 8, 3])
row("IsInf", f(3, 4))
row("LRN", image, size=3)
row("LayerNormalization", f(2, 3, 4), f(4), f(4), since=17)
row("RMSNormalization", f(2, 3, 4), f(4))
row("LinearAttention", f(1, 3, 8), f(1, 3, 8), f(1, 3, 8), None, f(1, 3, 8), f(1, 3, 2), outputs=2, q_num_heads=2, kv_num_heads=2)
row("MaxRoiPool", image, f(2, 5), pooled_shape=[2, 2])
row("MeanVarianceNormalization", image)
row("MelWeightMatrix", n(4), n(8), n(8000), c(10), c(3000))
row("Mod", i(3, 4), i(3, 4))
row("Multinomial", f(2, 5))
row("NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss", f(2, 3), i(2))
row("NonMaxSuppression", f(1, 6, 4), f(1, 1, 6), n([3]))
row("OneHot", i(2, 3), n(4), f(2))
row("Pad", f(3, 4), until=1, paddings=[1, 1, 0, 1])
row("Pad", f(3, 4), since=2, until=10, pads=[1, 1, 0, 1])
row("Pad", f(3, 4), n(1, 1, 0, 1), since=11)
row("QLinearConv", narrow, scale, zero, z(np.ones((4, 4, 3, 3))), scale, zero, scale, zero)
row("QuantizeLinear", f(2, 3), f(3), Run("INT8", 3), since=13)
row("QuantizeLinear", f(2, 3), f(3), Run("FLOAT8E4M3FN", 3), since=19)
row("QuantizeLinear", f(2, 4), f(2, 2), since=21, block_size=2)
row("RandomNormal RandomUniform", shape=[3], seed=1.0)
row("RandomNormalLike RandomUniformLike", f(3), seed=1.0)
row("Range", *[Run("FLOAT16")] * 3, since=27, declared=[8])
REDUCE = "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSumSquare"
row(REDUCE, f(3, 4), until=17)
row(REDUCE, f(3, 4), since=18)
row(REDUCE, f(3, 4), n([1]), since=18)
row("ReduceSum", f(3, 4))
row("ReduceSum", f(3, 4), n([1]), since=13)
row("Reshape", f(0, 3), n(0, 0), since=14)
row("Reshape", f(2, 3), n(2, 0), since=14)
row("Resize Upsample", image, c([1, 1, 1.5, 2.5]), since=9, until=10)
row("Upsample", image, until=1, height_scale=1.5, width_scale=2.0)
row("Upsample", image, since=7, until=8, scales=[1., 1., 1.5, 2.5])
for attributes in ({}, {"mode": "cubic"}, {"mode": "linear"}, {"coordinate_transformation_mode": "tf_crop_and_resize"}):
    row("Resize", image, c([0, 0, .1, .2, 1, 1, 1.3, 1.2]), c([1, 1, 1.5, 2.5]), since=11, **attributes)
row("Resize", image, None, None, n(1, 4, 9, 9), since=18)
row("Resize", image, None, c([1, 1, .5, .6]), since=18, mode="linear")
row("ReverseSequence", f(4, 4), i(4))
row("RoiAlign", image, f(2, 4), i(2))
row("RotaryEmbedding", f(1, 2, 3, 8), f(1, 3, 4), f(1, 3, 4))
row("STFT", f(1, 16, 1), n(4), f(8))
row("Scatter ScatterElements", f(3, 4), n([[0, 1, 1, 0]]), f(1, 4))
row("ScatterND", f(3, 4), n([[1]]), f(1, 4), since=16)
row("Shape", f(3, 4), since=15)
row("Split", f(4, 4), outputs=2, until=17, since=2)
row("Split", f(4, 4), n(1, 3), outputs=2, since=13)
row("SplitToSequence", f(4, 4))
row("SplitToSequence", f(4, 4), n(2))
row("StringNormalizer", Run("STRING", 3), stopwords=["The"])
row("SwiGLU", f(3, 4), f(3, 4))
row("TensorScatter", f(2, 2, 4, 4), f(2, 2, 1, 4), i(2))
row("TopK", f(3, 4), until=9, k=2, outputs=2)
row("TopK", f(3, 4), n([2]), since=10, outputs=2)
row("Trilu", f(3, 4))
row("Unique", i(5), outputs=1)

row("Binarizer", f(2, 3), domain=ML)
row("CategoryMapper", i(3), domain=ML, cats_int64s=[1, 2], cats_strings=["a", "b"])
row("CategoryMapper", Run("STRING", 3), domain=ML, cats_int64s=[1, 2], cats_strings=["a", "b"])
row("Imputer", f(2, 3), domain=ML, imputed_value_floats=[1.])
row("Imputer", i(2, 3), domain=ML, imputed_value_int64s=[1])
row("LabelEncoder", i(3), domain=ML, until=1, classes_strings=["a", "b"])
row("LabelEncoder", Run("STRING", 3), domain=ML, until=1, classes_strings=["a", "b"])
row("LabelEncoder", i(3), domain=ML, since=2, keys_int64s=[1, 2], values_strings=["a", "b"])
row("LabelEncoder", i(3), domain=ML, since=2, keys_int64s=[1, 2], values_floats=[3., 4.])
row("LabelEncoder", f(3), domain=ML, since=2, keys_floats=[1., 2.], values_int64s=[3, 4])
row("LinearClassifier", f(2, 3), domain=ML, outputs=2, coefficients=[1., 2., 3., 4., 5., 6.], intercepts=[0., 1.], classlabels_ints=[0, 1])
row("LinearClassifier", f(2, 3), domain=ML, outputs=2, coefficients=[1., 2., 3.], intercepts=[0.5], classlabels_ints=[0, 1])
row("LinearRegressor", f(2, 3), domain=ML, coefficients=[1., 2., 3.], intercepts=[.5])
row("Normalizer", f(2, 3), domain=ML)
row("OneHotEncoder", i(3), domain=ML, cats_int64s=[1, 2])
row("SVMClassifier", f(2, 2), domain=ML, outputs=2, coefficients=[1., 2.], support_vectors=[1., 2., 3., 4.], vectors_per_class=[1, 1], rho=[.5],
    classlabels_ints=[0, 1], kernel_params=[.5, .1, 2.])
row("SVMRegressor", f(2, 2), domain=ML, coefficients=[1., 2.], support_vectors=[1., 2., 3., 4.], rho=[.5], n_supports=2, kernel_params=[.5, .1, 2.])
row("SVMRegressor", f(2, 2), domain=ML, coefficients=[1., 2.], rho=[.5])
TREE = {"nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2], "nodes_featureids": [0, 0, 0], "nodes_values": [.5, 0., 0.],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"], "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0]}
row("TreeEnsembleRegressor", f(2, 2), domain=ML, n_targets=1, target_treeids=[0, 0], target_nodeids=[1, 2], target_ids=[0, 0], target_weights=[1., 2.], **TREE)
row("TreeEnsembleClassifier", f(2, 2), domain=ML, outputs=2, class_treeids=[0, 0], class_nodeids=[1, 2], class_ids=[0, 1], class_weights=[1., 2.],
    classlabels_int64s=[0, 1], **TREE)
row("TreeEnsemble", f(2, 2), domain=ML, since=5, n_targets=1, tree_roots=[0, 1], nodes_featureids=[0, 1], nodes_splits=numpy_helper.from_array(c([.5, .2])),
    nodes_modes=numpy_helper.from_array(z([0, 0])), nodes_truenodeids=[0, 2], nodes_trueleafs=[1, 1], nodes_falsenodeids=[1, 3], nodes_falseleafs=[1, 1], leaf_targetids=[0] * 4,
    leaf_weights=numpy_helper.from_array(c([1, 2, 3, 4])))
row("Adagrad", f(), i(), f(3), f(3), f(3), domain=TRAINING, outputs=2)
row("Adam", f(), i(), f(3), f(3), f(3), f(3), domain=TRAINING, outputs=3)

row("SimplifiedLayerNormalization", f(2, 3, 4), f(4))
row("Attention", f(1, 3, 8), f(8, 24), f(24), domain=MS, num_heads=2)
row("MultiHeadAttention", f(1, 3, 8), f(1, 3, 8), f(1, 3, 8), domain=MS, num_heads=2)
row("GroupQueryAttention", f(1, 3, 16), f(1, 3, 16), f(1, 3, 16), f(1, 2, 4, 8), f(1, 2, 4, 8), c([2], np.int32), c([3], np.int32), domain=MS, num_heads=2, kv_num_heads=2,
    outputs=3)
row("GroupQueryAttention", f(1, 3, 16), f(1, 3, 16), f(1, 3, 16), f(1, 2, 4, 8), f(1, 2, 4, 8), c([2], np.int32), c([3], np.int32), *[None] * 7, f(8), f(8), domain=MS,
    num_heads=2, kv_num_heads=2)
row("QAttention", Run("UINT8", 1, 3, 8), z(np.ones((8, 24))), f(24), scale, scale, None, zero, zero, domain=MS, num_heads=2)
row("BiasSoftmax", f(2, 3, 4), f(2, 3, 4), domain=MS, is_inner_broadcast=0)
row("CDist", f(3, 4), f(5, 4), domain=MS)
row("CausalConvWithState", f(1, 4, 6), f(4, 1, 3), f(4), outputs=2, domain=MS)
row("DynamicQuantizeLSTM", f(2, 3, 4), z(np.ones((1, 4, 20))), z(np.ones((1, 5, 20))), None, None, None, None, None, c([.5]), z([3]), c([.5]), z([3]), domain=MS,
    hidden_size=5)
row("EmbedLayerNormalization", c([[1, 2]], np.int32), None, f(5, 4), f(6, 4), None, f(4), f(4), domain=MS, outputs=2)
row("QEmbedLayerNormalization", c([[1, 2]], np.int32), None, z(w(5, 4)), z(w(6, 4)), None, z(w(4)), z(w(4)), None, scale, scale, None, scale, scale,
    zero, zero, None, zero, zero, domain=MS, outputs=2)
row("FusedConv", image, f(4, 4, 3, 3), domain=MS)
row("NhwcConv NhwcFusedConv", image, f(8, 8, 3, 3), domain=MS)
row("FusedGemm", f(4, 4), f(4, 4), f(4, 4), domain=MS)
row("FusedMatMul TransposeMatMul", f(4, 4), f(4, 4), domain=MS)
row("FusedMatMul", f(4, 4, 4), f(4, 4, 4), domain=MS)
row("GatherBlockQuantized", z(w(4, 256)), n([1, 2]), f(4, 4), domain=MS)
row("GridSample", image, f(1, 4, 5, 2), domain=MS)
row("GroupNorm", f(1, 6, 4, 4), f(4), f(4), domain=MS, groups=2, activation=0)
row("SkipGroupNorm", f(1, 6, 4, 4), f(4), f(4), f(1, 6, 4, 4), domain=MS, groups=2, activation=0)
row("IsAllFinite", f(3, 4), f(2), domain=MS)
row("MatMulNBits", f(3, 32), z(w(8, 2, 8)), f(16), domain=MS, K=32, N=8, block_size=16)
row("NhwcMaxPool", narrow, domain=MS, kernel_shape=[3, 3], strides=[2, 2])
row("Pad", f(3, 4), n(1, 1, 0, 1), domain=MS)
row("QGemm", Run("UINT8", 4, 4), scale, zero, z(w(4, 4)), scale, zero, domain=MS)
row("QLinearAveragePool", narrow, scale, zero, scale, zero, domain=MS, kernel_shape=[2, 3], strides=[2, 3], pads=[1, 1, 0, 0])
row("QLinearConv", narrow, scale, zero, z(np.ones((4, 4, 3, 3))), scale, zero, scale, zero, domain=MS)
row("QLinearGlobalAveragePool", narrow, scale, zero, scale, zero, domain=MS)
row("QLinearLeakyRelu", narrow, scale, zero, c(0.25), zero, domain=MS)
row("QLinearSoftmax", narrow, scale, zero, c(1 / 256), z(0), domain=MS, opset=13)
row("QuickGelu ScaledSiLU Trilu", f(3, 4), domain=MS)
row("RelativePositionBias", f(32, 2), n([5]), n([6]), domain=MS, max_distance=20)
row("SkipLayerNormalization", f(2, 3, 4), f(2, 3, 4), f(4), f(4), domain=MS)
row("SkipSimplifiedLayerNormalization", f(2, 3, 4), f(2, 3, 4), f(4), domain=MS)
row("AveragePool MaxPool", f(1, 8, 6, 8), domain=NCHWC, kernel_shape=[2, 3], strides=[2, 3], pads=[1, 1, 0, 0])
row("Conv", f(1, 8, 6, 8), w(8, 8, 3, 3), domain=NCHWC)
row("ReorderInput", f(1, 8, 6, 8), domain=NCHWC)
row("ReorderOutput", f(1, 8, 6, 8), domain=NCHWC, channels=8)
row("Upsample", f(1, 8, 6, 8), domain=NCHWC, scales=[1, 1, 2, 2])


def defaults(schema):
    """{attribute: its default as an AttributeProto}"""
    found = {}
    for name, a in schema.attributes.items():
        value = getattr(a, "default_value", None)
        if value is None:
            value = AttributeProto()
            value.ParseFromString(a._default_value)
        if value.type:
            found[name] = value
    return found


def served():
    """{(domain, name): the first opset of it}"""
    text = (T.ROOT / "frontend" / "onnx" / "operators.def").read_text()
    first = {}
    for domain, name, since in re.findall(r'^OPERATOR\("([^"]*)",\s*"([^"]*)",\s*(\d+)', text, re.M):
        first[domain, name] = min(int(since), first.get((domain, name), 1000))
    return first


def schemas():
    """{(domain, name, version): defaults} of what tgc knows."""
    first, found, known = served(), {}, set()
    for s in onnx.defs.get_all_schemas_with_history():
        known.add((s.domain, s.name))
        if not s.deprecated and s.since_version >= first.get((s.domain, s.name), 1000):
            found[s.domain, s.name, s.since_version] = defaults(s)
    for s in get_all_operator_schema():
        if (s.domain, s.name) in first and (s.domain, s.name) not in known:
            found[s.domain, s.name, s.since_version] = defaults(s)
    return {key: value for key, value in found.items() if value}


class Node:
    """A row in one version of its operator; `number` sets its names apart in a model of many."""

    def __init__(self, row, version, number, known):
        self.row, self.version, self.number = row, version, number
        self.defaults = {k: v for k, v in known.items() if k not in row.attributes}
        self.where = f"{row.domain or 'ai.onnx'}.{row.op} of opset {version} ({number})"

    def add(self, graph, attributes):
        names = []
        for k, value in enumerate(self.row.inputs):
            names.append(self.add_input(graph, f"x{self.number}_{k}", value) if value is not None else "")
        outputs = [f"y{self.number}_{k}" for k in range(self.row.outputs)]
        made = helper.make_node(self.row.op, names, outputs, domain=self.row.domain, **self.row.attributes)
        made.attribute.extend(attributes)
        graph.node.append(made)
        graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs)
        if self.row.declared:
            graph.output[-1].CopyFrom(helper.make_tensor_value_info(outputs[0], TensorProto.UNDEFINED, self.row.declared))

    def add_input(self, graph, name, value):
        if isinstance(value, Run):
            graph.input.append(helper.make_tensor_value_info(name, value.dtype, value.shape))
        elif isinstance(value, list):
            items = [self.add_input(graph, f"{name}_{k}", item) for k, item in enumerate(value)]
            graph.node.append(helper.make_node("SequenceConstruct", items, [name]))
        else:
            graph.initializer.append(numpy_helper.from_array(value, name))
        return name


def lowered(folder, nodes, attributes_of, must=True):
    """The graph of a model of these nodes as text; None: it was refused."""
    graph = onnx.GraphProto(name="g")
    for node in nodes:
        node.add(graph, attributes_of(node))
    domain, version = nodes[0].row.domain, nodes[0].version
    imports = {"": version if domain == "" else 17, domain: version}
    m = helper.make_model(graph, opset_imports=[helper.make_opsetid(*item) for item in imports.items()], ir_version=10)
    (folder / "m.onnx").write_bytes(m.SerializeToString())
    for out in ("m.tg", "m.c"):
        done = T.run([TGC, "m.onnx", "-O0", "-o", out, "--nchwc-block=8"], cwd=folder)
        expect(done.status in (0, 1), done.describe())
        if "constant strings, which the .tg format" not in done.err:
            break
    if done.status != 0 and must:
        raise Failure(f"{nodes[0].where}: {done.err}")
    return (folder / out).read_text() if done.status == 0 else None


def doubled(row):
    """The row with f64 for f32, in which a default shows that is no f32; None: it has no floats, or the operator takes no others."""
    inputs = [Run("DOUBLE", *v.shape) if isinstance(v, Run) and v.dtype == TensorProto.FLOAT else v for v in row.inputs]
    if row.domain or row.op == "Range" or not row.inputs or inputs[0] is row.inputs[0] or isinstance(inputs[0], list):
        return None
    found = [s for s in onnx.defs.get_all_schemas_with_history() if s.name == row.op and s.domain == "" and row.since <= s.since_version <= row.until]
    takes = [s.since_version for s in found if all("tensor(double)" in p.types for p, v, old in zip(s.inputs, inputs, row.inputs) if v is not old)]
    return Row("", row.op, min(takes), row.until, inputs, row.outputs, row.declared, row.attributes) if takes else None


SCHEMAS = schemas()
NODES = {}
for number, r in enumerate([*ROWS, *filter(None, map(doubled, ROWS))]):
    for (domain, op, version), known in SCHEMAS.items():
        if (domain, op) == (r.domain, r.op) and r.since <= version <= r.until:
            NODES.setdefault((domain, version), []).append(Node(r, version, number, known))


def check_batch(folder, nodes):
    """All at once; each alone, to name it, if there is something."""
    absent = lowered(folder, nodes, lambda node: [])
    if absent != lowered(folder, nodes, lambda node: node.defaults.values()):
        for node in nodes:
            check_each(folder, node)
        raise Failure("the graphs differ")


def check_each(folder, node):
    absent = lowered(folder, [node], lambda node: [])
    for name, value in node.defaults.items():
        expect(absent == lowered(folder, [node], lambda node: [value]),
               f"{node.where}: {name} is absent, and the graph is another than with its default, {helper.get_attribute_value(value)}")


def other(name, value):
    """A value that is not the default."""
    changed = AttributeProto()
    changed.CopyFrom(value)
    if value.type == AttributeProto.INT:
        changed.i = OTHER.get(name, {0: 1, 1: 0, -1: 0}.get(value.i, value.i + 1))
    elif value.type == AttributeProto.FLOAT:
        changed.f = OTHER.get(name, value.f * 0.75 + 0.3)
    elif value.type == AttributeProto.INTS:
        changed.ints[:] = value.ints[:-1]
    elif value.type == AttributeProto.STRING:
        changed.s = WORDS.get(value.s.decode(), "?").encode()
    elif value.type == AttributeProto.STRINGS:
        changed.strings[:] = [b"Relu"] * len(value.strings)
    return changed


def influences(folder, node):
    """The attributes of which another value makes another graph, or is refused."""
    absent = lowered(folder, [node], lambda node: [])
    return {name for name, value in node.defaults.items()
            if absent != lowered(folder, [node], lambda node: [other(name, value)], must=False)}


def check_influence(folder, domain, op, version, nodes):
    found = set().union(*(influences(folder, node) for node in nodes))
    missing = set(SCHEMAS[domain, op, version]) - found
    missing = {name for name in missing if not {name, (op, name), (op, version, name)} & (SILENT | NONE)}
    expect(not missing, f"no row shows the influence of: {missing}")


def check_rows():
    """Every default of a schema is absent from some row."""
    tested = {(*key, name) for key, nodes in BY_OPERATOR.items() for node in nodes for name in node.defaults}
    known = {(*key, name) for key, names in SCHEMAS.items() for name in names}
    known = {key for key in known if not {key[1:], (key[1], key[3])} & NONE}
    expect(tested >= known, f"no row for {sorted(known - tested)}")


BY_OPERATOR = {}
for (domain, version), nodes in NODES.items():
    for node in nodes:
        BY_OPERATOR.setdefault((domain, node.row.op, version), []).append(node)
    name = f"{domain or 'ai.onnx'} {version}"
    suite.add(f"{name}: {len(nodes)} nodes", check_batch, T.scratch(SCRATCH / name), nodes)
suite.add("every default has a node without it", check_rows)
for (domain, op, version), nodes in BY_OPERATOR.items():
    name = f"{domain or 'ai.onnx'} {op} {version}"
    suite.add(f"influence: {name}", check_influence, T.scratch(SCRATCH / name), domain, op, version, nodes, slow=True)
suite.main()
