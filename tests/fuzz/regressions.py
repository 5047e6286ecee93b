"""What random graphs and exporters found, each as small as it gets: the model, its inputs, the answer.

Every case runs by default and with -O0.
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "lib")]

import numpy as np
import onnx
from onnx import TensorProto, helper

import graphs as G
import tgc as T
from suite import Suite

suite = Suite("regressions")
OPTIONS = suite.parse()
TGC = T.find_tgc(OPTIONS.build).resolve()
SCRATCH = Path(OPTIONS.build).resolve() / "test-scratch" / "regressions"

TYPES = {np.dtype(d): t for d, t in (("float32", TensorProto.FLOAT), ("float64", TensorProto.DOUBLE),
                                     ("float16", TensorProto.FLOAT16), ("int64", TensorProto.INT64),
                                     ("int32", TensorProto.INT32), ("bool", TensorProto.BOOL),
                                     ("uint8", TensorProto.UINT8), ("uint16", TensorProto.UINT16),
                                     ("uint32", TensorProto.UINT32), ("uint64", TensorProto.UINT64))}


def value(name, array):
    return G.value(name, list(array.shape), TYPES[array.dtype])


def check(name, nodes, inputs, outputs, weights=(), opset=G.OPSET, options=(), rtol=1e-5, atol=1e-6):
    """Inputs and outputs map names to arrays; options: of tgc, beside the level."""
    folder = T.scratch(SCRATCH / name)
    onnx.save(G.model(nodes, [value(n, a) for n, a in inputs.items()],
                      [value(n, a) for n, a in outputs.items()], weights, opset),
              folder / "model.onnx")
    for level in ((), ("-O0",)):
        T.emit(TGC, folder / "model.onnx", folder / "net.c", *T.HERE, *level, *options)
        T.build(folder / "net.c", folder / "net", main_by=TGC)
        got = T.Program(folder / "net", list(outputs)).run(list(inputs.values()))
        for output, want in outputs.items():
            T.compare(output, got[output], want, rtol, atol)


def ints(name, *values):
    return G.weight(name, np.array(values, np.int64))


def scalar(name, dtype, shape=()):
    return G.value(name, list(shape), dtype)


def doubling(trips, more=()):
    """A Loop that doubles what it carries; `more` are nodes of its body."""
    body = helper.make_graph(
        [helper.make_node("Add", ["h", "h"], ["h2"]), helper.make_node("Identity", ["c"], ["c2"]), *more],
        "body", [scalar("i", TensorProto.INT64), scalar("c", TensorProto.BOOL),
                 scalar("h", TensorProto.FLOAT, [2])],
        [scalar("c2", TensorProto.BOOL), scalar("h2" if not more else "h3", TensorProto.FLOAT, [2])])
    return [helper.make_node("Loop", ["trips", "", "start"], ["end"], body=body)], [ints("trips", trips)]


@suite.case("an output of the value that a loop starts with")
def loop_start():
    nodes, weights = doubling(3)
    x = np.array([1, -2], np.float32)
    check("loop_start", [helper.make_node("Abs", ["x"], ["start"]),
                         helper.make_node("Neg", ["start"], ["again"]), *nodes],
          {"x": x}, {"start": abs(x), "again": -abs(x), "end": 8 * abs(x)}, weights)


@suite.case("a loop's body that reads the value that the loop starts with")
def loop_start_inside():
    nodes, weights = doubling(3, [helper.make_node("Sub", ["h2", "start"], ["h3"])])
    x = np.array([1, -2], np.float32)
    check("loop_start_inside", [helper.make_node("Exp", ["x"], ["start"]), *nodes],
          {"x": x}, {"end": np.exp(x)}, weights)


@suite.case("backward slices that start before the first element")
def slice_clamp():
    x = np.arange(5, dtype=np.float32)
    for start, end, want in ((-6, -7, [0]), (-9, -99, [0]), (-5, -99, [0]), (9, -99, [4, 3, 2, 1, 0]),
                             (-6, 1, [])):
        check("slice_clamp", [helper.make_node("Slice", ["x", "start", "end", "axes", "steps"], ["y"])],
              {"x": x}, {"y": np.array(want, np.float32)},
              [ints("start", start), ints("end", end), ints("axes", 0), ints("steps", -1)])


@suite.case("reference vectors of more than 4095 bytes without weights")
def long_vectors():
    x = np.zeros((40, 40), np.float32)
    check("long_vectors", [helper.make_node("Neg", ["x"], ["y"])], {"x": x}, {"y": -x})


@suite.case("a function that vectors do not have is what a kernel stores")
def scalar_function_stored():
    x = np.random.default_rng(2).uniform(0.5, 2, (4, 33)).astype(np.float32)
    check("scalar_function_stored", [helper.make_node("Pow", ["x", "x"], ["power"]),
                                     helper.make_node("Mod", ["x", "power"], ["rest"], fmod=1)],
          {"x": x}, {"power": x ** x, "rest": np.fmod(x, x ** x)})


@suite.case("kernels that are alike but for a loop where the other has none")
def almost_twins():
    x = np.random.default_rng(1).permutation(16).reshape(2, 8, 1).astype(np.float32)
    check("almost_twins", [helper.make_node("ArgMin", ["x"], ["low"], axis=-2, select_last_index=1),
                           helper.make_node("ArgMin", ["x2"], ["least"], axis=-1)],
          {"x": x, "x2": x}, {"low": x.argmin(1, keepdims=True), "least": np.zeros((2, 8, 1), np.int64)})


@suite.case("rows of a resized image that lie beyond its border are equal to the last bit")
def resized_border():
    x = np.random.default_rng(5).standard_normal((1, 2, 20, 2)).astype(np.float32)
    y = np.repeat(x[:, :, :1], 2, 2)
    check("resized_border", [helper.make_node("Resize", ["x", "", "scales"], ["r"], mode="linear"),
                             helper.make_node("Slice", ["r", "begin", "end", "axis"], ["top"]),
                             helper.make_node("Equal", ["top", "first"], ["y"]),
                             helper.make_node("ReduceMin", ["top"], ["least"], axes=[2])],
          {"x": x, "first": y}, {"y": np.ones(y.shape, bool), "least": y.min(2, keepdims=True)},
          [G.weight("scales", np.array([1, 1, 3, 1], np.float32)), ints("begin", 0), ints("end", 2), ints("axis", 2)])


@suite.case("an intermediate value that would be called as a loop around it")
def loop_names():
    x = np.arange(8, dtype=np.float32).reshape(1, 1, 2, 4)
    check("loop_names", [helper.make_node("Resize", ["x", "", "scales"], ["y"], mode="linear")],
          {"x": x, "scales": np.array([1, 1, 0.5, 0.5], np.float32)},
          {"y": x.reshape(2, 2, 2).mean((0, 2)).reshape(1, 1, 1, 2)})


@suite.case("unsigned numbers beside the least and the largest")
def unsigned_limits():
    for dtype in ("uint8", "uint16", "uint32", "uint64"):
        most = np.iinfo(dtype).max
        x = np.array([0, 1, most], dtype)
        check("unsigned_limits", [helper.make_node("Less", ["x", "zero"], ["below"]),
                                  helper.make_node("Greater", ["x", "most"], ["above"]),
                                  helper.make_node("GreaterOrEqual", ["x", "zero"], ["all"]),
                                  helper.make_node("Less", ["x", "most"], ["others"]),
                                  helper.make_node("PRelu", ["x", "two"], ["y"])],
              {"x": x}, {"below": x < 0, "above": x > most, "all": x >= 0, "others": x < most, "y": x},
              [G.weight("zero", np.zeros(1, dtype)), G.weight("most", np.array([most], dtype)),
               G.weight("two", np.array([2], dtype))])


@suite.case("one value of a small type is stored to all lanes of a vector")
def small_value_stored():
    x = np.array([1.0001, -3, 70000], np.float32)
    with np.errstate(over="ignore"):
        want = np.repeat(x.astype(np.float16), 40).reshape(3, 40)
    check("half_stored", [helper.make_node("Cast", ["x"], ["half"], to=TensorProto.FLOAT16),
                          helper.make_node("Reshape", ["half", "column"], ["rows"]),
                          helper.make_node("Expand", ["rows", "shape"], ["y"])],
          {"x": x}, {"y": want}, [ints("column", 3, 1), ints("shape", 3, 40)])
    x = np.full((33, 3, 2), 7, np.uint8)                    # both taps of the window read the border
    check("byte_stored", [helper.make_node("MaxPool", ["x"], ["y"], ceil_mode=1, dilations=[3],
                                           kernel_shape=[2], pads=[1, 1], strides=[2])],
          {"x": x}, {"y": np.zeros((33, 3, 1), np.uint8)})


@suite.case("an index of a maximum among nothing but padding is -1")
def index_of_padding():
    x = np.arange(8, dtype=np.float32).reshape(1, 2, 2, 2)
    for order in (0, 1):
        pool = helper.make_node("MaxPool", ["x"], ["", "y"], dilations=[3, 1], kernel_shape=[2, 2],
                                pads=[1, 0, 1, 0], strides=[1, 1], storage_order=order)
        check(f"index_of_padding_{order}", [pool], {"x": x}, {"y": np.full((1, 2, 1, 1), -1)})


@suite.case("a cast to a half rounds, whatever is computed behind it")
def cast_rounds():
    x = np.array([1.0001, 1e30, -np.inf, 0.1, -70000, 3], np.float32)
    with np.errstate(over="ignore"):
        half = x.astype(np.float16).astype(np.float32)
    check("cast_rounds", [helper.make_node("Cast", ["x"], ["half"], to=TensorProto.FLOAT16),
                          helper.make_node("Cast", ["half"], ["y"], to=TensorProto.FLOAT),
                          helper.make_node("CastLike", ["x", "half"], ["like"]),
                          helper.make_node("Neg", ["like"], ["minus"]),
                          helper.make_node("Cast", ["minus"], ["z"], to=TensorProto.FLOAT)],
          {"x": x}, {"y": half, "z": -half})


@suite.case("a product's rests share a loop, and what no loop changes is known to all of them")
def shared_rests():
    rng = np.random.default_rng(7)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((19, 33), (236, 236)))
    rest = np.ones((19, 38), np.float32)
    short = helper.make_graph([helper.make_node("Neg", ["x"], ["a"])], "short", [],
                              [scalar("a", TensorProto.FLOAT, [19, 33])])
    long = helper.make_graph([helper.make_node("Concat", ["x", "x"], ["b"], axis=1)], "long", [],
                             [scalar("b", TensorProto.FLOAT, [19, 66])])
    wide = np.concatenate([x] * 6 + [rest], 1)
    check("shared_rests", [helper.make_node("If", ["c"], ["z"], then_branch=short, else_branch=long),
                           helper.make_node("Concat", ["z", "z", "z", "rest"], ["wide"], axis=1),
                           helper.make_node("MatMul", ["wide", "w"], ["y"])],
          {"x": x, "c": np.array(False)}, {"y": (wide.astype(float) @ w).astype(np.float32)},
          [G.weight("w", w), G.weight("rest", rest)], rtol=1e-4, atol=1e-4)


@suite.case("bands of a result without elements")
def empty_bands():
    rng = np.random.default_rng(8)
    x, scale, bias = (rng.standard_normal((1, 1, 7, 33)[2 * k > 0:]).astype(np.float32) for k in range(3))
    scale, bias = scale.reshape(7, 33), bias.reshape(7, 33)
    check("empty_bands", [helper.make_node("LayerNormalization", ["x", "scale", "bias"], ["norm"], axis=2),
                          helper.make_node("Tile", ["norm", "times"], ["y"])],
          {"x": x, "scale": scale, "bias": bias}, {"y": np.zeros((0, 1, 21, 66), np.float32)},
          [ints("times", 0, 1, 3, 2)], options=["--cache=0"])


@suite.case("a border that is longer than what a band reads of it")
def long_border():
    rng = np.random.default_rng(9)
    x, w, v = (rng.standard_normal(s).astype(np.float32) for s in ((64, 1, 2), (1, 4, 3), (3, 2, 3)))
    pads, wide = ((1, 6), (0, 3), (1, 2)), np.zeros((71, 4, 7), np.float32)
    wide[:, :, 1:6] = np.pad(x, pads)
    one = np.stack([(wide[:, :, k:k + 3] * w[0]).sum((1, 2)) for k in range(5)], 1)[:, None]
    two = np.repeat(one, 2, 1)
    want = np.stack([np.einsum("bck,ock->bo", two[:, :, k:k + 3], v) for k in range(3)], 2)
    check("long_border", [helper.make_node("Pad", ["x", "pads"], ["wide"]),
                          helper.make_node("Conv", ["wide", "w"], ["one"], kernel_shape=[3], pads=[1, 1]),
                          helper.make_node("Expand", ["one", "shape"], ["two"]),
                          helper.make_node("Conv", ["two", "v"], ["y"], kernel_shape=[3])],
          {"x": x, "w": w, "v": v}, {"y": want}, [ints("pads", 1, 0, 1, 6, 3, 2), ints("shape", 1, 2, 5)], options=["--cache=0"], rtol=1e-4, atol=1e-5)


@suite.case("keepdims of SplitToSequence counts without a split, or with one of 1")
def unbind():
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    for name, split, want in (("none", None, x[1]), ("one", np.array(1), x[1]), ("two", np.array(2), x[2:]),
                              ("each", np.array([1, 1, 1, 1]), x[1:2])):
        given = [] if split is None else [G.weight("split", split)]
        check(f"unbind_{name}", [helper.make_node("SplitToSequence", ["x", *["split"] * len(given)], ["parts"],
                                                  axis=0, keepdims=0),
                                 helper.make_node("SequenceAt", ["parts", "second"], ["y"])],
              {"x": x}, {"y": want}, [G.weight("second", np.array(1)), *given])


@suite.case("what is folded is infinite where f32 is")
def folded_overflow():
    w = np.array([-1e30, 2, 3], np.float32)
    check("folded_overflow", [helper.make_node("ReduceSumSquare", ["w"], ["square"], keepdims=1),
                              helper.make_node("Softmax", ["square"], ["p"], axis=0),
                              helper.make_node("Add", ["x", "p"], ["y"]),
                              helper.make_node("Mul", ["w", "w"], ["each"]),
                              helper.make_node("Div", ["each", "square"], ["part"]),
                              helper.make_node("Add", ["x", "part"], ["z"])],
          {"x": np.ones(3, np.float32)}, {"y": np.full(3, np.nan, np.float32),
                                          "z": np.array([np.nan, 1, 1], np.float32)}, [G.weight("w", w)], opset=17)


@suite.case("a product whose rows are those of two inputs, and of a loop")
def unknown_rows():
    rng = np.random.default_rng(9)
    x, scale, start = (rng.standard_normal(s).astype(np.float32) for s in ((5, 16), (16,), (1,)))
    body = helper.make_graph(
        [helper.make_node("Add", ["h", "h"], ["twice"]), helper.make_node("Identity", ["twice"], ["row"]),
         helper.make_node("Identity", ["c"], ["c2"])],
        "body", [scalar("i", TensorProto.INT64), scalar("c", TensorProto.BOOL), scalar("h", TensorProto.FLOAT, [1])],
        [scalar("c2", TensorProto.BOOL), scalar("twice", TensorProto.FLOAT, [1]),
         scalar("row", TensorProto.FLOAT, [1])])
    rows = start * np.array([[2], [4], [8], [16], [32]], np.float32)
    product = np.repeat(rows, 5, 1).T.astype(float) @ x
    centered = product - product.mean(1, keepdims=True)
    want = centered / np.sqrt((centered ** 2).mean(1, keepdims=True) + 1e-5) * scale
    check("unknown_rows", [helper.make_node("Loop", ["trips", "", "start"], ["", "rows"], body=body),
                           helper.make_node("Gemm", ["rows", "ones"], ["square"], transB=1),
                           helper.make_node("Gemm", ["square", "x"], ["product"], transA=1),
                           helper.make_node("LayerNormalization", ["product", "scale"], ["y"], axis=1)],
          {"start": start, "x": x, "scale": scale}, {"y": want.astype(np.float32)},
          [ints("trips", 5), G.weight("ones", np.ones((5, 1), np.float32))], opset=17, rtol=1e-4, atol=1e-4)


@suite.case("rows of zeros that padding made stay zeros, however large a product is")
def padded_rows():
    rng = np.random.default_rng(10)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((196, 768), (768, 768)))
    product = np.zeros((256, 768))
    product[:196] = x.astype(float) @ w
    product = np.concatenate([product[32:], product[:32]])
    want = product / np.maximum(np.sqrt((product ** 2).sum(1, keepdims=True)), 1e-12)
    check("padded_rows", [helper.make_node("Pad", ["x", "pads"], ["padded"]),
                          helper.make_node("Slice", ["padded", "c", "end", "one"], ["tail"]),
                          helper.make_node("Slice", ["padded", "zero", "c", "one"], ["head"]),
                          helper.make_node("Concat", ["tail", "head"], ["rolled"], axis=1),
                          helper.make_node("MatMul", ["rolled", "w"], ["product"]),
                          helper.make_node("ReduceL2", ["product"], ["norm"], axes=[2], keepdims=1),
                          helper.make_node("Max", ["norm", "least"], ["by"]),
                          helper.make_node("Div", ["product", "by"], ["y"])],
          {"x": x[None]}, {"y": want[None].astype(np.float32)},
          [ints("pads", 0, 0, 0, 0, 60, 0), ints("one", 1), ints("c", 32), ints("end", 256), ints("zero", 0), G.weight("w", w),
           G.weight("least", np.array([1e-12], np.float32))], opset=13, rtol=1e-4, atol=1e-5)


@suite.case("sums under a mask of booleans within a softmax: their columns lie apart")
def masked_sums():
    x = np.random.default_rng(11).standard_normal((16, 5)).astype(np.float32)
    sums = np.cumsum(x[::-1].astype(float), 0)[::-1] - x
    power = np.exp(sums - sums.max(0))
    check("masked_sums", [helper.make_node("CumSum", ["x", "axis"], ["sums"], exclusive=1, reverse=1),
                          helper.make_node("Softmax", ["sums"], ["y"], axis=0)],
          {"x": x}, {"y": (power / power.sum(0)).astype(np.float32)},
          [G.weight("axis", np.array(0))], opset=13)


@suite.case("a load of one place by lanes of which some do not read it")
def one_place():
    y = np.array(2.5, np.float32)
    x, i = np.random.default_rng(12).standard_normal((7, 9)).astype(np.float32), np.random.default_rng(13).integers(-9, 9, (6, 6))
    mean = (np.concatenate([np.zeros(3, np.float32), np.full(3, y)]) + np.take_along_axis(x[:6], i % 9, 1)) / 2
    check("one_place", [helper.make_node("Expand", ["v", "three"], ["e"]),
                        helper.make_node("Pad", ["e", "front"], ["p"]),
                        helper.make_node("GatherElements", ["x", "i"], ["g"], axis=1),
                        helper.make_node("Mean", ["p", "g"], ["m"]),
                        helper.make_node("Pad", ["m", "crop"], ["c"]),
                        helper.make_node("Mul", ["c", "c"], ["y"])],
          {"v": y, "x": x, "i": i}, {"y": (mean[1:5, 1:5] ** 2).astype(np.float32)},
          [ints("three", 3), ints("front", 3, 0), ints("crop", -1, -1, -1, -1)], opset=13, options=("--threads=2",))


@suite.case("what is known of unsigned numbers: equal to themselves, or once a bool")
def known_unsigned():
    x, b = np.array([0, 5, 2 ** 64 - 1], np.uint64), np.array([True, False, True])
    to = dict(to=TensorProto.UINT64)
    check("known_unsigned", [helper.make_node("Cast", ["b"], ["n"], **to),
                             helper.make_node("Less", ["nine", "n"], ["never"]),
                             helper.make_node("Less", ["n", "nine"], ["always"]),
                             helper.make_node("Equal", ["n", "nine"], ["unequal"]),
                             helper.make_node("Equal", ["n", "one"], ["same"]),
                             helper.make_node("GreaterOrEqual", ["x", "x"], ["self"]),
                             helper.make_node("Less", ["x", "x"], ["less"])],
          {"b": b, "x": x}, {"never": ~(b | True), "always": b | True, "unequal": ~(b | True), "same": b,
                             "self": b | True, "less": ~(b | True)},
          [G.weight("nine", np.array([9], np.uint64)), G.weight("one", np.array([1], np.uint64))], opset=16)
    check("known_unsigned", [helper.make_node("Cast", ["b"], ["n"], **to), helper.make_node("Less", ["nine", "n"], ["y"])],
          {"b": b[:1]}, {"y": np.array([False])}, [G.weight("nine", np.array([9], np.uint64))])
    check("known_unsigned", [helper.make_node("GreaterOrEqual", ["x", "x"], ["y"])], {"x": x}, {"y": b | True}, opset=16)


@suite.case("bits that are set or cleared decide a comparison: compilers warn of it")
def decided_bits():
    x = np.array([0, 12, 18, -1], np.int32)
    yes = np.ones(4, bool)
    check("decided_bits", [helper.make_node("BitwiseOr", ["x", "eighteen"], ["set"]),
                           helper.make_node("Cast", ["set"], ["or_bool"], to=TensorProto.BOOL),
                           helper.make_node("Cast", ["set"], ["wide"], to=TensorProto.INT64),
                           helper.make_node("Equal", ["set", "three"], ["or_eq"]),
                           helper.make_node("BitwiseAnd", ["x", "eighteen"], ["kept"]),
                           helper.make_node("Equal", ["kept", "three"], ["and_eq"]),
                           helper.make_node("Equal", ["kept", "eighteen"], ["both"])],
          {"x": x}, {"or_bool": yes, "wide": (x | 18).astype(np.int64), "or_eq": ~yes, "and_eq": ~yes, "both": (x & 18) == 18},
          [G.weight("eighteen", np.array([18], np.int32)), G.weight("three", np.array([3], np.int32))], opset=18)


@suite.case("attention over no keys is 0")
def no_keys():
    x = np.zeros((3, 2, 0), np.float32)
    check("no_keys", [helper.make_node("Softmax", ["x"], ["p"], axis=-1), helper.make_node("MatMul", ["p", "v"], ["y"])],
          {"x": x, "v": np.zeros((3, 0, 1), np.float32)}, {"y": np.zeros((3, 2, 1), np.float32)}, opset=13)


@suite.case("a transposed convolution that reads all of one padded axis at once, and mostly border along the other")
def border_beside_windows():
    rng = np.random.default_rng(12)
    x, w = rng.standard_normal((1, 3, 1, 1)).astype(np.float32), rng.standard_normal((3, 2, 3, 2)).astype(np.float32)
    # stride 2, dilation 2, pads 1, a column more: the one element falls between the places of rows 0 to 2 and columns 0, 1
    whole = np.zeros((1, 2, 5, 4), np.float32)
    for row in range(3):
        for column in range(2):
            whole[0, :, 2 * row, 2 * column] += x[0, :, 0, 0] @ w[:, :, row, column]
    want = whole[:, :, 1:4, 1:3]
    check("border_beside_windows", [helper.make_node("ConvTranspose", ["x", "w"], ["y"], dilations=[2, 2], kernel_shape=[3, 2],
                                                     output_padding=[0, 1], pads=[1, 1, 1, 1], strides=[1, 2])],
          {"x": x}, {"y": want}, [G.weight("w", w)], opset=14, rtol=1e-5, atol=1e-6)


@suite.case("a row whose first and last element stand once more: what is read lies one place before")
def border_of_one():
    x = np.arange(-60, 68, dtype=np.float32)
    for mode in ("edge", "reflect"):
        check("border_of_one", [helper.make_node("Pad", ["x", "pads"], ["y"], mode=mode)], {"x": x},
              {"y": np.pad(x, 1, mode=mode)}, [ints("pads", 1, 1)], opset=14)
        grid = x.reshape(2, 64)
        check("border_of_one", [helper.make_node("Pad", ["x", "pads"], ["p"], mode=mode), helper.make_node("Abs", ["p"], ["y"])],
              {"x": grid}, {"y": np.abs(np.pad(grid, ((0, 0), (1, 2)), mode=mode))}, [ints("pads", 0, 1, 0, 2)], opset=14)


suite.main()
