"""Every operator with every dtype that its schema allows: a model of one node compiles, or is
refused with a reason, and where ONNX Runtime or onnx's reference evaluator knows the answer, the
program gives it.

The models are those of the onnx package's node tests, a few for each operator, with the dtype of one
type variable of the schema replaced in its inputs and outputs, and their data converted.

The quick form compiles only, every second of them; --all runs the programs, too.
"""

import collections
import copy
import re
import shutil
import sys
import warnings
import zlib
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "lib"))

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, defs, helper, numpy_helper
from onnx.backend.test.case.node import collect_testcases
from onnx.reference import ReferenceEvaluator

import borders as B
import tgc as T
from suite import Failure, Suite

ort.set_default_logger_severity(4)
MODELS = 3  # for each operator
TOLERANCE = {"float64": 1e-6, "float32": 1e-4, "float16": 8e-3, "bfloat16": 3e-2}
NARROW = {"int4": (-8, 7), "uint4": (0, 15), "int2": (-2, 1), "uint2": (0, 3)}
COMPLEX = ("complex64", "complex128")
# (operator, type variable or *): why a dtype may be refused, in words of the message.
REFUSED = {
    ("BitCast", "T1"): "must name a type of",     # `to` has the width of the test's own input
    ("Col2Im", "T"): "dtype string",              # strings have no sum
    ("GridSample", "T1"): "nothing between",      # bools and strings, but for mode nearest
    ("Resize", "T1"): "nothing between",
    ("Upsample", "T"): "nothing between",
    ("Loop", "V"): "Add",                         # the body adds an f32 constant
    ("Scan", "V"): "Add",                         # bools and strings have no sum
    ("TfIdfVectorizer", "T"): "integers are expected",     # the test's pool is of integers
    ("LabelEncoder", "T1"): "are expected",       # the test's keys are strings
    ("ImageDecoder", "T1"): "",
}
# The test's `dtype` attribute, or what it declares of a sequence, fixes another dtype than the one
# put in: the model is not valid.
DECLARED = {"Bernoulli", "EyeLike", "SequenceInsert", "SplitToSequence", "DequantizeLinear",
            "LinearAttention"}
# Values that the reference leaves open or computes in its own way: why it is not asked.
NO_VALUES = {
    "Bernoulli": "random", "Dropout": "random", "Multinomial": "random", "RandomNormalLike": "random",
    "RandomUniformLike": "random",
    "Adam": "the reference gives every result the dtype of the first", "Momentum": "the same",
    "RMSNormalization": "the reference gives X's dtype, the schema says that of scale",
    "AffineGrid": "the reference computes bf16 in f32", "Det": "the same",
    "LayerNormalization": "the reference gives Mean and InvStdDev X's dtype",
    "OptionalGetElement": "the test's declarations hold one dtype", "OptionalHasElement": "the same",
    "OneHot": "the depth is declared by the output's shape", "NonZero": "so is the count",
    "GridSample": "the reference rounds its weights to X's dtype", "Resize": "the same",
    "MaxUnpool": "ONNX Runtime places elements by the declared shape",
    "DFT": "ONNX Runtime's sines are those of f32", "STFT": "the same",
    "ReduceProd": "overflows", "ReduceSumSquare": "the reference widens sums",
    "Trilu": "the reference fills strings with '0'",
    "ImageDecoder": "the data is a file",
    ("DequantizeLinear", "float4e2m1"): "the reference leaves the zero points of floats out",
}


def dtype_names():
    names = {f"tensor({k.lower()})": v for k, v in TensorProto.DataType.items()}
    return {k: v for k, v in names.items() if v}


TYPES = dtype_names()


class Variant:
    """A node test with the dtype of one type variable replaced."""

    def __init__(self, case, variable, type_text, bound):
        self.case, self.variable, self.dtype = case, variable, type_text[7:-1]
        self.code, self.bound = TYPES[type_text], bound

    def model(self):
        model = copy.deepcopy(self.case.model)
        graph = model.graph
        for value in [*graph.input, *graph.output]:
            if value.name in self.bound and value.type.HasField("tensor_type"):
                value.type.tensor_type.elem_type = self.code
        for weight in graph.initializer:
            if weight.name in self.bound:
                array = convert(numpy_helper.to_array(weight), self.code)
                weight.CopyFrom(numpy_helper.from_array(array, weight.name))
        return model

    def inputs(self, model):
        given = []
        for value, array in zip(B.graph_inputs(model), self.case.data_sets[0][0]):
            if value.name in self.bound and hasattr(array, "dtype"):
                array = convert(array, self.code)
            given.append(array)
        return given


def convert(array, code):
    dtype = helper.tensor_dtype_to_np_dtype(code)
    array = np.asarray(array)
    if code == TensorProto.STRING:
        return array.astype(np.str_).astype(object)
    if array.dtype.kind in "OUS":
        array = np.arange(array.size).reshape(array.shape)
    values = array.astype(np.float64)
    if dtype == np.bool_:
        return values > 0
    if dtype.name in NARROW:
        return np.clip(np.round(3 * values), *NARROW[dtype.name]).astype(np.int8).astype(dtype)
    if dtype.kind in "iu":
        values = np.round(3 * values) if array.dtype.kind == "f" else values
        values = np.abs(values) if dtype.kind == "u" else values
        return np.clip(values, np.iinfo(dtype).min, min(np.iinfo(dtype).max, 2 ** 31)).astype(dtype)
    if dtype.itemsize == 1:  # what is beyond them is NaN in some
        values = np.clip(values, -100, 100)
    return values.astype(np.float32).astype(dtype) if dtype.itemsize < 4 else values.astype(dtype)


def variants_of(case, schema):
    """One for each dtype of each type variable that an input has."""
    node, bound = case.model.graph.node[0], collections.defaultdict(set)
    inputs = set()
    for formals, names, kind in ((schema.inputs, node.input, "in"), (schema.outputs, node.output, "")):
        for k, name in enumerate(names):
            if name:
                variable = formals[min(k, len(formals) - 1)].type_str
                bound[variable].add(name)
                if kind:
                    inputs.add(variable)
    for constraint in schema.type_constraints:
        if constraint.type_param_str in inputs:
            for text in constraint.allowed_type_strs:
                if text in TYPES:
                    yield Variant(case, constraint.type_param_str, text, bound[constraint.type_param_str])


def collect():
    """Operator -> variants of its first tests with different inputs."""
    chosen, seen = collections.defaultdict(list), set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = collect_testcases(None)
    for case in cases:
        graph = case.model.graph
        if len(graph.node) != 1 or case.model.functions:
            continue
        node = graph.node[0]
        key = (node.domain, node.op_type)
        form = (*key, tuple(bool(name) for name in node.input))
        if form in seen or sum(f[:2] == key for f in seen) >= MODELS:
            continue
        seen.add(form)
        imports = {o.domain: o.version for o in case.model.opset_import}
        try:
            schema = defs.get_schema(node.op_type, imports[node.domain], node.domain)
        except (KeyError, defs.SchemaError):
            continue
        chosen[key] += variants_of(case, schema)
    return chosen


def refusal_is_right(operator, variant, message):
    if variant.dtype in COMPLEX:
        return "complex" in message
    if operator in DECLARED and "is declared as" in message:
        return True
    return REFUSED.get((operator, variant.variable), "\0") in message


def compile_variant(tgc, folder, operator, variant):
    """The pairs that the program takes; None if it was refused, and that is right."""
    model = variant.model()
    given = variant.inputs(model)
    plain = [a.astype(np.str_) if getattr(a, "dtype", None) == object else a for a in given]
    pairs, options = B.border(B.graph_inputs(model), plain)
    options = list(options)
    T.scratch(folder)
    tensors = {v.name for v in model.graph.input if v.type.HasField("tensor_type")}
    for k, (name, array) in enumerate(pairs):
        told = name in tensors and (name not in variant.bound or variant.dtype in ("int32", "int64"))
        if told and array.dtype.kind in "iub" and array.size <= 64 and "[" not in name:
            np.save(folder / f"told{k}.npy", T.as_npy(array))
            options += ["-i", f"{name}=told{k}.npy"]
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    done = T.run([tgc, "model.onnx", "-o", "node.c", *options], cwd=folder, timeout=60)
    what = f"{operator}, {variant.variable} = {variant.dtype}"
    if done.status == 1 and refusal_is_right(operator, variant, done.err):
        return None
    if done.status:
        raise Failure(f"{what}: {done.describe()}")
    return model, given, pairs


def answer(model, given):
    feeds = {v.name: a for v, a in zip(B.graph_inputs(model), given) if a is not None}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            if any(getattr(a, "dtype", None) == object for a in feeds.values()):
                raise TypeError("ONNX Runtime 1.31 loses strings that it gathers")
            options = ort.SessionOptions()
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
            options.intra_op_num_threads = 1
            session = ort.InferenceSession(model.SerializeToString(), options,
                                           providers=["CPUExecutionProvider"])
            return session.run(None, feeds)
        except Exception:  # no kernel, a type that Python cannot give it, ...
            try:
                return ReferenceEvaluator(model).run(None, feeds)
            except Exception:
                return None


def check_values(tgc, folder, operator, variant, model, given, pairs):
    wanted = answer(model, given)
    if wanted is None or any(w is None for w in wanted):
        return False
    try:
        wanted = B.border(model.graph.output, wanted)[0]
    except B.Unfit:
        return False
    T.build(folder / "node.c", folder / "node", flags=("-O0",), main_by=tgc)
    program = T.Program(folder / "node", [name for name, _ in wanted])
    got = program.run([array for _, array in pairs], timeout=60)
    for name, expected in wanted:
        tolerance = TOLERANCE.get(expected.dtype.name, 0.13)
        expected = expected.astype(got[name].dtype) if expected.dtype.kind == "U" else expected
        try:
            T.compare(name, got[name], expected, tolerance, tolerance)
        except Failure as why:
            raise Failure(f"{operator}, {variant.variable} = {variant.dtype}: {why}") from None
    return True


def check(tgc, folder, operator, variants, run):
    for number, variant in enumerate(variants):
        here = folder / str(number)
        compiled = compile_variant(tgc, here, operator, variant)
        left_open = operator in NO_VALUES or (operator, variant.dtype) in NO_VALUES
        if compiled and run and not left_open:
            check_values(tgc, here, operator, variant, *compiled)
        shutil.rmtree(here, ignore_errors=True)


def main():
    suite = Suite("types")
    options = suite.parse()
    tgc = T.find_tgc(options.build).resolve()
    scratch = T.scratch(Path(options.build).resolve() / "test-scratch" / "types")
    for (domain, operator), variants in sorted(collect().items()):
        name = f"{domain}.{operator}" if domain else operator
        if not options.all:          # every second one, of each operator others: a dtype is one of half of the operators
            variants = variants[zlib.crc32(name.encode()) % 2::2] or variants
        suite.add(f"{name}: {len(variants)} dtypes", check, tgc, scratch / name, operator, variants,
                  options.all)
    suite.main()


main()
