"""What compilers make of whole emitted programs: recurrent networks and activations by clang 19,
integers that wrap under sanitizers and the optimizer, C++ without a warning.

The functions by themselves are in vectors_test.py.
"""

import shutil
import sys
import warnings
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "lib"))

import numpy as np
import onnx
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import graphs as G
import tgc as T
from suite import Skip, Suite, expect

suite = Suite("compilers")
OPTIONS = suite.parse()
TGC = T.find_tgc(OPTIONS.build).resolve()
SCRATCH = T.scratch(Path(OPTIONS.build).resolve() / "test-scratch" / "compilers")
warnings.simplefilter("ignore", RuntimeWarning)


def needs(*compilers):
    for compiler in compilers:
        if not shutil.which(compiler):
            raise Skip(f"no {compiler} here")


def draw(random, *shape, by=0.3):
    return (random.standard_normal(shape) * by).astype(np.float32)


# ----------------------------------------------------------------------------------- whole models


def recurrent(op, gates):
    random, hidden, width = np.random.default_rng(1), 40, 24
    return G.model([G.node(op, ["x", "W", "R", "B"], ["y"], hidden_size=hidden)],
                   [G.value("x", [9, 3, width])], [G.value("y", [9, 1, 3, hidden])],
                   [G.weight("W", draw(random, 1, gates * hidden, width)),
                    G.weight("R", draw(random, 1, gates * hidden, hidden)),
                    G.weight("B", draw(random, 1, 2 * gates * hidden))], opset=20)


def perceptron():
    """Both spellings of GELU, the other functions that choose among pieces."""
    random = np.random.default_rng(2)
    nodes = [G.node("MatMul", ["x", "W"], ["a"]), G.node("Gelu", ["a"], ["b"]),
             G.node("Gelu", ["a"], ["c"], approximate="tanh"), G.node("Tanh", ["a"], ["d"]),
             G.node("Mish", ["a"], ["e"]), G.node("Softplus", ["a"], ["f"]), G.node("Erf", ["a"], ["g"]),
             G.node("Less", ["b", "d"], ["m"]), G.node("Where", ["m", "e", "g"], ["h"]),
             G.node("Concat", ["b", "c", "d", "f", "h"], ["y"], axis=1)]
    return G.model(nodes, [G.value("x", [24, 32])], [G.value("y", [24, 480])],
                   [G.weight("W", draw(random, 32, 96, by=1.0))], opset=20)


MODELS = {"LSTM": lambda: recurrent("LSTM", 4), "GRU": lambda: recurrent("GRU", 3),
          "RNN": lambda: recurrent("RNN", 1), "GELU": perceptron}


def whole(name, compiler):
    """The program's own test, and the outputs."""
    needs(compiler)
    folder, model = T.scratch(SCRATCH / f"{name}-{compiler}"), MODELS[name]()
    onnx.save(model, folder / "model.onnx")
    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    x = draw(np.random.default_rng(3), *shape, by=2.0)
    expected = dict(zip(["y"], ReferenceEvaluator(model).run(None, {"x": x})))
    T.emit(TGC, folder / "model.onnx", folder / "net.c")
    for level in ("-O1", "-O2", "-O3") if OPTIONS.all else ("-O2",):
        T.build(folder / "net.c", folder / "net", compiler, (level,))
        T.must(T.run([folder / "net", "--selftest"]))
        T.compare_to_reference(T.Program(folder / "net", ["y"]).run([x]), expected, 1e-5, 1e-5)


for name in MODELS:
    for compiler, slow in (("clang-19", False), ("gcc-11", True), ("clang-13", True), ("clang-15", True),
                           ("clang-16", True)):
        suite.add(f"{name} by {compiler}", whole, name, compiler, slow=slow)

# ----------------------------------------------------------------------------- integers that wrap

KINDS = {np.int8: "i8", np.int16: "i16", np.int32: "i32", np.int64: "i64"}


def wrapping(dtype, n=200):
    """A model of all that can leave the type, its inputs, and what it gives."""
    random, limits = np.random.default_rng(4), np.iinfo(dtype)
    a, b = (random.integers(limits.min, limits.max, (n,), dtype, endpoint=True) for _ in "ab")
    a[:7] = [limits.min, limits.min, limits.max, limits.max, limits.min, -1, 0]
    b[:7] = [limits.min, -1, limits.max, 1, 2, limits.min, limits.min]
    b[b == 0] = 3
    four = dtype(4)
    with np.errstate(over="ignore"):
        quotient = np.array([abs(u) // abs(v) * (1 if (u < 0) == (v < 0) else -1)
                             for u, v in zip(a.tolist(), b.tolist())], object)
        quotient[quotient > limits.max] = limits.min
        quotient = quotient.astype(dtype)
        scaled = a * four
        want = {"add": a + b, "sub": a - b, "mul": a * b, "neg": -a, "abs": np.abs(a), "div": quotient,
                "square": a * a, "chain": (a - b) * a + b, "sum": np.add.reduce(a, keepdims=True, dtype=dtype),
                "product": np.multiply.reduce(a | 1, keepdims=True, dtype=dtype), "running": np.cumsum(a, dtype=dtype)}
        want["quarter"] = np.array([abs(int(v)) // 4 * (1 if v >= 0 else -1) for v in scaled], dtype)
    node = G.node
    nodes = [node("Add", ["a", "b"], ["add"]), node("Sub", ["a", "b"], ["sub"]), node("Mul", ["a", "b"], ["mul"]),
             node("Neg", ["a"], ["neg"]), node("Abs", ["a"], ["abs"]), node("Div", ["a", "b"], ["div"]),
             node("Mul", ["a", "a"], ["square"]), node("Mul", ["sub", "a"], ["t"]), node("Add", ["t", "b"], ["chain"]),
             node("ReduceSum", ["a"], ["sum"]), node("CumSum", ["a", "axis"], ["running"]),
             node("Mul", ["a", "four"], ["u"]), node("Div", ["u", "four"], ["quarter"]),
             node("BitwiseOr", ["a", "one"], ["odd"]), node("ReduceProd", ["odd"], ["product"])]
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    weights = [G.weight("four", four), G.weight("one", np.ones(1, dtype)), G.weight("axis", np.int64(0))]
    if dtype in (np.int8, np.int16):        # ONNX has no sums of these
        gone = {"ReduceSum", "ReduceProd", "CumSum"}
        nodes = [n for n in nodes if n.op_type not in gone and n.output[0] != "odd"]
        want = {k: v for k, v in want.items() if k not in ("sum", "product", "running")}
    else:
        nodes += [node("Reshape", ["a", "rows"], ["p"]), node("Reshape", ["b", "columns"], ["q"]),
                  node("MatMul", ["p", "q"], ["products"])]
        weights += [G.weight("rows", np.array([10, 20])), G.weight("columns", np.array([20, 10]))]
        with np.errstate(over="ignore"):
            want["products"] = a.reshape(10, 20) @ b.reshape(20, 10)
    model = G.model(nodes, [G.value("a", [n], kind), G.value("b", [n], kind)],
                    [G.value(k, list(v.shape), kind) for k, v in want.items()], weights, opset=20)
    return model, [a, b], want


def shifting(n=200):
    """Unsigned shifts, of amounts that leave the type too; u32 that wrap."""
    random = np.random.default_rng(5)
    a = random.integers(0, 1 << 32, n, np.uint32)
    b = random.integers(0, 32, n, np.uint32)
    nodes = [G.node("BitShift", ["a", "b"], ["left"], direction="LEFT"),
             G.node("BitShift", ["a", "b"], ["right"], direction="RIGHT"), G.node("Mul", ["a", "a"], ["square"]),
             G.node("Cast", ["a"], ["signed"], to=TensorProto.INT32), G.node("Mul", ["signed", "signed"], ["y"])]
    want = {"left": a << b, "right": a >> b, "square": a * a, "y": (a * a).view(np.int32)}
    model = G.model(nodes, [G.value(k, [n], TensorProto.UINT32) for k in "ab"],
                    [G.value(k, [n], helper.np_dtype_to_tensor_dtype(v.dtype)) for k, v in want.items()], [], opset=20)
    return model, [a, b], want


def functions(n=256):
    """Elementary functions of what they have no number for, and of all sizes."""
    random = np.random.default_rng(6)
    x = (random.standard_normal(n) * np.exp2(random.integers(-140, 120, n))).astype(np.float32)
    x[:10] = [np.nan, np.inf, -np.inf, 0, -0.0, 3.4e38, -3.4e38, 1e-45, -1e-45, -1]
    operators = ("Log", "Exp", "Tanh", "Erf", "Sigmoid", "Sqrt", "Floor", "Ceil", "Round", "Abs", "Neg", "Softplus", "Sign")
    model = G.model([G.node(op, ["x"], [op]) for op in operators], [G.value("x", [n])],
                    [G.value(op, [n]) for op in operators], [], opset=20)
    with np.errstate(all="ignore"):
        return model, [x], {"Log": np.log(x.astype(np.float64)).astype(np.float32), "Floor": np.floor(x)}


CASES = {**{f"{kind} that wraps": lambda dtype=dtype: wrapping(dtype) for dtype, kind in KINDS.items()},
         "shifts": shifting, "functions of negatives and infinities": functions}
# what UBSan calls undefined by default, and floats beyond an integer
SANITIZE = ("-fsanitize=undefined,float-cast-overflow", "-fno-sanitize-recover=all")


def defined(name, compiler, flags):
    """The outputs are right, nothing undefined happens."""
    needs(compiler)
    model, inputs, want = CASES[name]()
    folder = T.scratch(SCRATCH / "-".join([name, compiler, flags[0]]).replace(" ", "_").replace("=", "_"))
    onnx.save(model, folder / "model.onnx")
    names = [output.name for output in model.graph.output]
    T.emit(TGC, folder / "model.onnx", folder / "net.c")
    T.build(folder / "net.c", folder / "net", compiler, flags, main_by=TGC)
    outputs = T.Program(folder / "net", names).run(inputs)
    for key, expected in want.items():
        T.compare(key, outputs[key], expected, 1e-6, 0)


for name in CASES:
    for compiler, flags in (("gcc", ("-O1", *SANITIZE)), ("clang", ("-O1", *SANITIZE)), ("gcc", ("-O2",)),
                            ("clang-19", ("-O2",))):
        suite.add(f"{name}, by {compiler} {' '.join(flags[:2])}", defined, name, compiler, flags,
                  slow=name not in ("i32 that wraps", "functions of negatives and infinities"))

# -------------------------------------------------------------------------------------- warnings


def mixed():
    """Something of everything that has vectors of its own."""
    random = np.random.default_rng(7)
    weight = lambda name, *shape: G.weight(name, draw(random, *shape))      # noqa: E731
    bytes_of = lambda name, *shape: G.weight(name, random.integers(-99, 99, shape).astype(np.int8))      # noqa: E731
    node = G.node
    nodes = [node("Conv", ["x", "w"], ["c"], pads=[1] * 4), node("Gelu", ["c"], ["g"]),
             node("MaxPool", ["g"], ["m"], kernel_shape=[2, 2], strides=[2, 2]),
             node("Conv", ["m", "d"], ["e"], pads=[1] * 4, group=24), node("Sigmoid", ["e"], ["s"]),
             node("Mul", ["e", "s"], ["z"]), node("Flatten", ["z"], ["f"]), node("MatMul", ["f", "v"], ["h"]),
             node("LayerNormalization", ["h", "scale"], ["n"]), node("Softmax", ["n"], ["p"]),
             node("Log", ["p"], ["y"]), node("QuantizeLinear", ["c", "q", "zero"], ["u"]),
             node("ConvInteger", ["u", "b", "zero"], ["i"], pads=[1] * 4),
             node("Cast", ["c"], ["half"], to=TensorProto.FLOAT16), node("Exp", ["half"], ["k"]),
             node("LSTM", ["t", "W", "R"], ["l"], hidden_size=16)]
    return G.model(nodes, [G.value("x", [1, 3, 20, 20]), G.value("t", [4, 2, 16])],
                   [G.value("y", [1, 40]), G.value("i", [1, 16, 20, 20], TensorProto.INT32),
                    G.value("k", [1, 24, 20, 20], TensorProto.FLOAT16), G.value("l", [4, 1, 2, 16])],
                   [weight("w", 24, 3, 3, 3), weight("d", 24, 1, 3, 3), weight("v", 2400, 40),
                    G.weight("scale", np.ones(40, np.float32)), G.weight("q", np.float32(0.02)),
                    G.weight("zero", np.uint8(120)), bytes_of("b", 16, 24, 3, 3), weight("W", 1, 64, 16),
                    weight("R", 1, 64, 16)], opset=20)


def silent(compiler, flags):
    needs(compiler)
    folder = T.scratch(SCRATCH / "-".join(["silent", compiler, *flags]).replace("=", "-"))
    onnx.save(mixed(), folder / "model.onnx")
    T.emit(TGC, folder / "model.onnx", folder / "net.c")
    warned = T.must(T.run([compiler, *flags, "-c", "net.c", "-o", "net.o"], cwd=folder, timeout=300))
    expect(not warned.err, f"{compiler} {' '.join(flags)} says {warned.err.count('warning:')} times:\n"
           + warned.err[:1500])


CPP = ("-std=c++17", "-Wall", "-Wextra", "-x", "c++")
C = tuple(w for w in T.WARNINGS if w != "-Werror")
for compiler, flags, slow in (("g++", CPP, False), ("gcc", C, False), ("clang-19", C, False), ("gcc-11", C, True),
                              ("clang++", (*CPP, "-Wno-deprecated"), True)):
    for level in ("-O1", "-O2", "-O3"):
        suite.add(f"no warning by {compiler} {level}", silent, compiler, (level, *flags),
                  slow=slow or level != "-O2")

if __name__ == "__main__":
    suite.main()
