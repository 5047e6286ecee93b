"""Run-time dimensions of 0: an empty batch, an empty cache, no detections.

Each model's dimensions take 0, 1 and 5, in all combinations, and its outputs are those of ONNX Runtime; where it refuses or
ends the process (named below), the outputs' shapes are what the operator's formula says. What a mean over nothing is,
nobody says: it is NaN here, as NumPy's is.
"""

import itertools
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "lib")]

import numpy as np
import onnx
import onnxruntime

import graphs as G
import tgc as T
from suite import Suite, expect

suite = Suite("zero")
OPTIONS = suite.parse()
TGC = T.find_tgc(OPTIONS.build).resolve()
SCRATCH = T.scratch(Path(OPTIONS.build).resolve() / "test-scratch" / "zero")
INT = onnx.TensorProto.INT64


def draw(*shape, seed=1):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def model(nodes, inputs, outputs, **weights):
    return G.model([G.node(*n[:3], **(n[3] if len(n) > 3 else {})) for n in nodes],
                   [G.value(*i) for i in inputs], [G.value(*o) for o in outputs],
                   [G.weight(name, w) for name, w in weights.items()])


MODELS = {
    "elementwise": model([("Relu", ["x"], ["r"]), ("Add", ["r", "z"], ["y"])], [("x", ["N", 6]), ("z", ["N", 6])], [("y", ["N", 6])]),
    "softmax of rows": model([("Softmax", ["x"], ["y"])], [("x", ["N", 5])], [("y", ["N", 5])]),
    "softmax over nothing": model([("Softmax", ["x"], ["y"])], [("x", [4, "N"])], [("y", [4, "N"])]),
    "sums": model([("ReduceSum", ["x"], ["a"], {"keepdims": 0}), ("ReduceSum", ["x", "i"], ["b"]), ("ReduceMax", ["x"], ["c"], {"axes": [0]}),
                   ("ReduceProd", ["x"], ["d"], {"axes": [0]})],
                  [("x", ["N", 5])], [("a", []), ("b", [1, 5]), ("c", [1, 5]), ("d", [1, 5])], i=np.array([0])),
    "product of rows": model([("MatMul", ["x", "w"], ["y"])], [("x", ["N", 64])], [("y", ["N", 96])], w=draw(64, 96)),
    "sum of a product": model([("MatMul", ["x", "z"], ["y"])], [("x", [6, "N"]), ("z", ["N", 32])], [("y", [6, 32])]),
    "attention": model([("MatMul", ["q", "k"], ["s"]), ("Softmax", ["s"], ["p"]), ("MatMul", ["p", "v"], ["y"])],
                       [("q", [2, "T", 16]), ("k", [2, 16, "S"]), ("v", [2, "S", 16])], [("y", [2, "T", 16])]),
    "convolutions": model([("Conv", ["x", "w"], ["c"], {"pads": [1] * 4}), ("MaxPool", ["c"], ["m"], {"kernel_shape": [2, 2], "strides": [2, 2]}),
                           ("GlobalAveragePool", ["m"], ["y"])], [("x", ["N", 3, 8, 8])], [("y", ["N", 16, 1, 1])], w=draw(16, 3, 3, 3)),
    "an empty cache": model([("Concat", ["past", "k"], ["all"], {"axis": 2}), ("Transpose", ["all"], ["t"], {"perm": [0, 1, 3, 2]}),
                             ("MatMul", ["q", "t"], ["s"]), ("Softmax", ["s"], ["a"]), ("MatMul", ["a", "all"], ["y"])],
                            [("past", [1, 4, "P", 16]), ("k", [1, 4, 1, 16]), ("q", [1, 4, 1, 16])], [("y", [1, 4, 1, 16]), ("all", [1, 4, "P1", 16])]),
    "rows of weights": model([("Gather", ["e", "i"], ["y"])], [("i", ["N"], INT)], [("y", ["N", 8])], e=draw(30, 8)),
    "norms": model([("LayerNormalization", ["x", "g", "b"], ["y"])], [("x", ["B", "T", 24])], [("y", ["B", "T", 24])], g=draw(24), b=draw(24)),
    "reshapes": model([("Reshape", ["x", "s"], ["f"]), ("Transpose", ["x"], ["y"], {"perm": [1, 0, 2]})], [("x", ["B", "T", 24])],
                      [("f", ["BT", 24]), ("y", ["T", "B", 24])], s=np.array([-1, 24])),
    "a size of 0 copies the input's": model([("Shape", ["x"], ["s"]), ("Gather", ["s", "one"], ["n"]), ("Concat", ["n", "minus"], ["to"], {"axis": 0}),
                                             ("Reshape", ["x", "to"], ["r"]), ("Reshape", ["x", "to"], ["k"], {"allowzero": 0}), ("Abs", ["r"], ["y"])],
                                            [("x", [3, "N"])], [("y", None), ("k", None)], one=np.array([1]), minus=np.array([-1])),
    "rows flattened and back": model([("Shape", ["x"], ["s"]), ("Reshape", ["x", "flat"], ["a"]), ("MatMul", ["a", "w"], ["b"]), ("Softmax", ["b"], ["c"]),
                                      ("Reshape", ["c", "s"], ["d"], {"allowzero": 1}), ("Transpose", ["d"], ["e"], {"perm": [0, 2, 1]}), ("Exp", ["e"], ["y"])],
                                     [("x", ["B", "T", 8])], [("y", ["B", 8, "T"])], flat=np.array([-1, 8]), w=draw(8, 8)),
    "the largest": model([("TopK", ["x", "k"], ["y", "i"]), ("ArgMax", ["x"], ["a"], {"axis": 1}), ("NonZero", ["x"], ["n"])], [("x", ["N", 9])],
                         [("y", ["N", 3]), ("i", ["N", 3], INT), ("a", ["N", 1], INT), ("n", [2, "K"], INT)], k=np.array([3])),
    "parts": model([("Split", ["x"], ["a", "b"], {"axis": 1}), ("Slice", ["x", "s", "e"], ["c"]), ("CumSum", ["x", "z"], ["d"])], [("x", ["N", 6])],
                   [("a", ["N", 3]), ("b", ["N", 3]), ("c", ["M", 6]), ("d", ["N", 6])], s=np.array([1]), e=np.array([100]), z=np.array(0)),
    "einsum": model([("Einsum", ["x", "z"], ["y"], {"equation": "bij,bjk->bik"})], [("x", ["B", 4, "K"]), ("z", ["B", "K", 6])], [("y", ["B", 4, 6])]),
    # i8 of seven bits: onnxruntime without VNNI saturates sums of two products beyond
    "quantized": model([("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]), ("MatMulInteger", ["q", "w", "z"], ["y"])], [("x", ["N", 32])],
                       [("y", ["N", 16], onnx.TensorProto.INT32)], w=(np.arange(512) % 128 - 64).astype(np.int8).reshape(32, 16)),
}
# ONNX Runtime ends the process: outputs without elements, by the operator's formula.
RECURRENT = model([("LSTM", ["x", "w", "r"], ["y"], {"hidden_size": 8})], [("x", ["S", "B", 4])], [("y", ["S", 1, "B", 8])],
                  w=draw(1, 32, 4), r=draw(1, 32, 8))


def build(name, graph, threads):
    folder = T.scratch(SCRATCH / f"{name.replace(' ', '_')}{threads}")
    symbols = sorted({d.dim_param for i in graph.graph.input for d in i.type.tensor_type.shape.dim if d.dim_param})
    onnx.save(graph, folder / "net.onnx")
    T.emit(TGC, folder / "net.onnx", folder / "net.c", f"--threads={threads}", *(f"--dim={s}<=9" for s in symbols))
    T.build(folder / "net.c", folder / "net", "gcc", (T.LEVEL, *(T.SANITIZE if OPTIONS.all else ())), main_by=TGC)
    return T.Program(folder / "net", [o.name for o in graph.graph.output]), symbols


def inputs_of(graph, sizes):
    random = np.random.default_rng(5)
    for value in graph.graph.input:
        shape = [d.dim_value if not d.dim_param else sizes[d.dim_param] for d in value.type.tensor_type.shape.dim]
        whole = value.type.tensor_type.elem_type == INT
        yield value.name, random.integers(0, 9, shape) if whole else random.standard_normal(shape).astype(np.float32)


def check(name, threads):
    graph = MODELS[name]
    program, symbols = build(name, graph, threads)
    quiet = onnxruntime.SessionOptions()
    quiet.log_severity_level = 4
    session = onnxruntime.InferenceSession(graph.SerializeToString(), quiet)
    for values in itertools.product((0, 1, 5), repeat=len(symbols)):
        sizes = dict(zip(symbols, values))
        feed = dict(inputs_of(graph, sizes))
        got = program.run(list(feed.values()))
        for output, want in zip(graph.graph.output, session.run(None, feed)):
            T.compare(f"{output.name} for {sizes}", got[output.name], want, 1e-4, 1e-5)


for name in MODELS:
    suite.add(f"{name}: dimensions of 0", check, name, 1)
suite.add("product of rows: dimensions of 0, by threads", check, "product of rows", 2)


@suite.case("rows flattened and back: the index divides by nothing, though sizes may be 0")
def undivided():
    folder = T.scratch(SCRATCH / "undivided")
    onnx.save(MODELS["rows flattened and back"], folder / "net.onnx")
    T.emit(TGC, folder / "net.onnx", folder / "net.c", "--dim=B<=9", "--dim=T<=9")
    text = (folder / "net.c").read_text()
    expect("floordiv_i64" not in text and "floormod_i64" not in text, "it divides")


@suite.case("an LSTM of no steps and of no samples")
def recurrent():
    program, symbols = build("lstm", RECURRENT, 1)
    for steps, batch in itertools.product((0, 1, 3), (0, 2)):
        got = program.run([np.zeros((steps, batch, 4), np.float32)])["y"]
        expect(got.shape == (steps, 1, batch, 8) and not got.any(), f"{steps} steps, {batch} samples: {got.shape}")


@suite.case("a mean over nothing is NaN")
def mean():
    program, _ = build("mean", model([("ReduceMean", ["x"], ["y"], {"axes": [0]})], [("x", ["N", 5])], [("y", [1, 5])]), 1)
    expect(np.isnan(program.run([np.zeros((0, 5), np.float32)])["y"]).all(), "it is no NaN")


@suite.case("0 is a status where the model forbids it")
def forbidden():
    graph = model([("Conv", ["x", "w"], ["y"])], [("x", [1, 3, "H", 8])], [("y", [1, 4, "R", 6])], w=draw(4, 3, 3, 3))
    program, _ = build("window", graph, 1)
    np.save(SCRATCH / "x.npy", np.zeros((1, 3, 0, 8), np.float32))
    done = T.must(T.run([program.exe, SCRATCH / "x.npy", "-o", SCRATCH]), 1)
    expect("run: " in done.err, f"no status, but {done.err}")


suite.main()
