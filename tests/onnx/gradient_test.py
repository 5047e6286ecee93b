"""Gradient (ai.onnx.preview.training) of what consists of elementwise, movement and reduce ops."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "lib"))

import numpy as np
from onnx import TensorProto, helper

import graphs as G
from gradients import DOUBLE, INT64, Gradients, close, draw, gradient, ints, model, one
from suite import Suite, expect

suite = Suite("gradient")
GRADIENTS = Gradients(suite.parse(), "gradient")
check, at, run = GRADIENTS.check, GRADIENTS.at, GRADIENTS.run


A, B, POSITIVE = draw(2, 3), draw(3), draw(2, 3, low=0.3)
for kind in ("Neg", "Abs", "Exp", "Sin", "Cos", "Tan", "Sinh", "Cosh", "Tanh", "Sigmoid", "Relu",
             "Softplus", "Softsign", "Elu", "Selu", "LeakyRelu", "HardSwish", "Mish", "Atan", "Asinh", "Floor"):
    suite.add(kind, check, kind, one(kind, ["a"]), {"a": A})
for kind in ("Sqrt", "Log", "Reciprocal"):
    suite.add(kind, check, kind, one(kind, ["a"]), {"a": POSITIVE})
for kind, x in (("Asin", A / 4), ("Acos", A / 4), ("Atanh", A / 4), ("Acosh", POSITIVE + 1)):
    suite.add(kind, check, kind, one(kind, ["a"]), {"a": x})
for kind in ("Add", "Sub", "Mul", "Max", "Min"):
    suite.add(kind, check, kind, one(kind, ["a", "b"]), {"a": A, "b": B})
suite.add("Div", check, "Div", one("Div", ["a", "b"]), {"a": A, "b": POSITIVE})
suite.add("Pow", check, "Pow", one("Pow", ["a", "b"]), {"a": POSITIVE, "b": B})
suite.add("Mod", check, "Mod", one("Mod", ["a", "b"], fmod=1), {"a": 3 * A, "b": POSITIVE})
suite.add("Clip", check, "Clip", one("Clip", ["a", "lo", "hi"]), {"a": A},
          [("lo", np.array(-0.5)), ("hi", np.array(0.7))])
suite.add("Where", check, "Where", one("Where", ["c", "a", "b"]), {"a": A, "b": draw(2, 1)},
          [("c", A > 0)])

X = draw(2, 3, 5)
for kind, inputs, weights, attributes in (
        ("Transpose", ["x"], [], {"perm": [2, 0, 1]}),
        ("Reshape", ["x", "s"], [("s", ints(5, 6))], {}),
        ("Slice", ["x", "b", "e", "a", "s"],
         [("b", ints(4, 0)), ("e", ints(0, 2)), ("a", ints(2, 1)), ("s", ints(-2, 1))], {}),
        ("Pad", ["x", "p"], [("p", ints(0, 1, 2, 1, 0, 0))], {}),
        ("Pad", ["x", "p"], [("p", ints(0, 1, 2, 0, 1, 3))], {"mode": "reflect"}),
        ("Expand", ["x", "s"], [("s", ints(2, 2, 3, 5))], {}),
        ("Tile", ["x", "s"], [("s", ints(1, 2, 3))], {}),
        ("Flatten", ["x"], [], {"axis": 2}),
        ("Gather", ["x", "i"], [("i", ints(2, 0, 2, -1))], {"axis": 1}),
        ("GatherElements", ["x", "i"], [("i", np.tile(ints(0, 4, 4, -1), (2, 3, 1)))], {"axis": 2}),
        ("GatherND", ["x", "i"], [("i", np.array([[1, 2], [0, 0], [1, 2]]))], {}),
        ("Concat", ["x", "x", "x"], [], {"axis": 1}),
        ("ReduceSum", ["x", "s"], [("s", ints(1))], {}),
        ("ReduceMean", ["x", "s"], [("s", ints(0, 2))], {}),
        ("ReduceMax", ["x", "s"], [("s", ints(2))], {}),
        ("ReduceMin", ["x", "s"], [("s", ints(0, 1))], {}),
        ("ReduceProd", ["x", "s"], [("s", ints(2))], {}),
        ("ReduceL2", ["x", "s"], [("s", ints(2))], {}),
        ("ReduceLogSumExp", ["x", "s"], [("s", ints(2))], {}),
        ("Softmax", ["x"], [], {"axis": 1}),
        ("LogSoftmax", ["x"], [], {"axis": -1}),
        ("CumSum", ["x", "s"], [("s", np.array(2))], {"reverse": 1}),
        ("Trilu", ["x"], [], {"upper": 0})):
    suite.add(f"{kind} {attributes or ''}", check, f"{kind}_{len(attributes)}_{len(weights)}",
              one(kind, inputs, **attributes), {"x": X}, weights)
suite.add("ScatterElements", check, "ScatterElements", one("ScatterElements", ["x", "i", "u"], axis=2),
          {"x": X, "u": draw(2, 3, 2)}, [("i", np.tile(ints(4, 1), (2, 3, 1)))])
suite.add("ScatterND", check, "ScatterND", one("ScatterND", ["x", "i", "u"], reduction="add"),
          {"x": X, "u": draw(3, 5)}, [("i", np.array([[1, 2], [0, 0], [1, 2]]))])

suite.add("MatMul", check, "MatMul", one("MatMul", ["a", "b"]), {"a": X, "b": draw(5, 4)})
suite.add("Gemm", check, "Gemm", one("Gemm", ["a", "b", "c"], transA=1, alpha=0.5),
          {"a": draw(3, 2), "b": draw(3, 4), "c": draw(4)})
suite.add("Einsum", check, "Einsum", one("Einsum", ["a", "b"], equation="bij,jk->bk"), {"a": X, "b": draw(5, 2)})
suite.add("Conv", check, "Conv",
          one("Conv", ["x", "w", "b"], pads=[1, 0, 0, 1], strides=[1, 2], dilations=[2, 1], group=2),
          {"x": draw(1, 2, 5, 6), "w": draw(4, 1, 2, 3), "b": draw(4)})
for name, shape, kernel, attributes in (
        ("stride beyond the kernel", (1, 1, 9), (2,), {"strides": [4]}),
        ("stride and dilation", (2, 1, 11), (3,), {"strides": [3], "dilations": [2], "pads": [2, 1]}),
        ("elements that no window reads", (1, 1, 8), (2,), {"strides": [3]}),
        ("one window", (1, 1, 4), (4,), {}),
        ("rows of the stride", (2, 1, 8), (3,), {"strides": [2], "pads": [1, 1]}),
        ("rows of the stride, three terms each", (1, 1, 9), (7,), {"strides": [3], "pads": [2, 1]}),
        ("rows of the stride, one term each", (1, 1, 9), (3,), {"strides": [3]}),
        ("rows of a stride beyond the kernel", (1, 1, 8), (2,), {"strides": [4]}),
        ("rows of two strides", (1, 1, 6, 8), (3, 5), {"strides": [2, 4], "pads": [1, 2, 1, 2]}),
        ("rows along one of two axes", (1, 1, 7, 8), (3, 3), {"strides": [2, 2]}),
        ("three dimensions", (1, 1, 3, 4, 4), (2, 3, 2), {"strides": [1, 1, 2]})):
    suite.add(f"Conv, {name}", check, f"Conv, {name}", one("Conv", ["x", "w"], **attributes),
              {"x": draw(*shape), "w": draw(2, 1, *kernel)})
suite.add("MaxPool", check, "MaxPool", one("MaxPool", ["x"], kernel_shape=[2, 3], strides=[1, 2]),
          {"x": draw(1, 2, 4, 7)})
for size, kernel, stride, pads in ((8, 3, 2, 1), (8, 5, 2, 0), (9, 3, 2, 1), (9, 4, 3, 0)):
    for kind in "MaxPool", "AveragePool":
        suite.add(f"{kind}, {kernel} of stride {stride} over {size}", check, f"{kind} {size} {kernel}",
                  one(kind, ["x"], kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pads] * 4), {"x": draw(1, 2, size, size)})
suite.add("AveragePool", check, "AveragePool",
          one("AveragePool", ["x"], kernel_shape=[2, 2], pads=[1, 1, 0, 0]), {"x": draw(1, 2, 4, 3)})
suite.add("LayerNormalization", check, "LayerNormalization", one("LayerNormalization", ["x", "s", "b"]),
          {"x": X, "s": draw(5), "b": draw(5)})
suite.add("BatchNormalization", check, "BatchNormalization", one("BatchNormalization", ["x", "s", "b", "m", "v"]),
          {"x": X, "s": draw(3), "b": draw(3)}, [("m", draw(3)), ("v", draw(3, low=0.5))])


@suite.case("Erf, of which the reference has single precision")
def erf():
    m = model([G.node("Erf", ["a"], ["y"]), gradient(["a"], ["d"], ["a"], "y")], {"a": A}, ["d"])
    close("erf", run("erf", m, {"a": A})["d"], 2 / np.pi ** 0.5 * np.exp(-A * A))


@suite.case("attention")
def attention():
    nodes = [G.node("Transpose", ["k"], ["t"], perm=[0, 2, 1]), G.node("MatMul", ["q", "t"], ["s"]),
             G.node("Softmax", ["s"], ["p"]), G.node("MatMul", ["p", "v"], ["r"])]
    check("attention", nodes, {"q": draw(2, 3, 4), "k": draw(2, 5, 4), "v": draw(2, 5, 4)})


@suite.case("by what lies in between, at another point, where there is no way, and twice")
def points():
    x, w, h1 = draw(4), draw(4), draw(4) + 2
    nodes = [G.node("Mul", ["x", "w"], ["h"]), G.node("Sin", ["h"], ["s"]), G.node("Mul", ["s", "w"], ["y"]),
             gradient(["h", "w"], ["d_h", "d_w"], ["h", "w"], "y"),
             gradient(["other", "w"], ["d_other"], ["h"], "y", ["w"], "at another point"),
             gradient(["x", "w"], ["first", ""], ["x", "w"], "y", None, "first"),
             gradient(["x", "w"], ["second", "mixed"], ["x", "w"], "first", None, "second"),
             gradient(["other"], ["none"], ["other"], "y", None, "no way")]
    outputs = ["d_h", "d_w", "d_other", "first", "second", "mixed", "none"]
    got = run("points", model(nodes, {"x": x, "w": w, "other": h1}, outputs),
              {"x": x, "w": w, "other": h1})
    want = {"d_h": np.cos(x * w) * w, "d_w": np.sin(x * w), "d_other": np.cos(h1) * w,
            "first": np.cos(x * w) * w * w, "second": -np.sin(x * w) * w ** 3,
            "mixed": 2 * w * np.cos(x * w) - w * w * x * np.sin(x * w), "none": np.zeros(4)}
    for name, expected in want.items():
        close(name, got[name], expected)


suite.add("products with no, one and two zeros", at, "products", [G.node("ReduceProd", ["x", "axes"], ["y"], keepdims=0)],
          np.array([[2, 3, 4.0], [2, 0, 4], [0, 3, 0]]), [[12, 8, 6], [0, 8, 0], [0, 0, 0]], [("axes", ints(1))])
suite.add("a maximum of equals shares, but not with a constant", at, "ties",
          [G.node("Mul", ["x", "x"], ["xx"]), G.node("Max", ["x", "xx"], ["m"]), G.node("Relu", ["x"], ["r"]),
           G.node("Add", ["m", "r"], ["y"])], np.array([1, 0, 2, -1.0]), [2.5, 0.5, 5, -2])


ONTO = np.random.default_rng(2).integers(-3, 3, (2, 4, 5))
for name, x, nodes, weights in (
        ("Resize, nearest down", draw(1, 2, 7, 5), one("Resize", ["x", "", "", "s"]), [("s", ints(1, 2, 3, 4))]),
        ("Resize, nearest up", draw(1, 2, 3, 5), one("Resize", ["x", "", "", "s"]), [("s", ints(1, 2, 7, 5))]),
        ("Resize, linear up", draw(1, 2, 3, 4), one("Resize", ["x", "", "", "s"], mode="linear"),
         [("s", ints(1, 2, 6, 7))]),
        ("Resize, linear down", draw(1, 1, 8, 5),
         one("Resize", ["x", "", "", "s"], mode="linear", coordinate_transformation_mode="align_corners"),
         [("s", ints(1, 1, 3, 4))]),
        ("Resize, cubic", draw(1, 1, 5, 4), one("Resize", ["x", "", "", "s"], mode="cubic"), [("s", ints(1, 1, 7, 3))]),
        ("Resize, antialiased", draw(1, 1, 9), one("Resize", ["x", "", "", "s"], mode="linear", antialias=1),
         [("s", ints(1, 1, 4))]),
        ("Gather of rows, some often, some never", draw(5, 3), one("Gather", ["x", "i"]), [("i", ints(4, 1, 4, -1, 0))]),
        ("Gather by a matrix", draw(2, 4, 3), one("Gather", ["x", "i"], axis=1), [("i", np.array([[3, 0], [0, 2]]))]),
        ("Gather of one", draw(3, 4), one("Gather", ["x", "i"], axis=1), [("i", np.array(2))]),
        ("GatherElements", draw(2, 3, 5), one("GatherElements", ["x", "i"], axis=1), [("i", ONTO)]),
        ("GatherND", draw(3, 4, 2), one("GatherND", ["x", "i"]), [("i", np.array([[[1, 2], [0, 3]], [[1, 2], [2, 0]]]))]),
        ("GatherND, batched", draw(2, 3, 4), one("GatherND", ["x", "i"], batch_dims=1), [("i", np.array([[2], [1]]))])):
    @suite.case(f"known places: {name} has a gradient without scatter, of second order, too")
    def known(name=name, x=x, nodes=nodes, weights=weights):
        check(name, nodes, {"x": x}, weights)
        twice = [*nodes, G.node("Sin", ["r"], ["y"]), gradient(["x"], ["d"], ["x"], "y"), G.node("Mul", ["d", "d"], ["dd"]),
                 gradient(["x"], ["second"], ["x"], "dd", None, "second")]
        m = model(twice, {"x": x}, ["d", "second"], weights)
        expect("scatter" not in GRADIENTS.text(f"{name}, text", m), "a scatter")
        step, sides = 1e-5, []
        way = draw(*x.shape)
        for at_x in (x - step * way, x + step * way):
            sides.append((run(f"{name}, side", m, {"x": at_x})["d"] ** 2).sum())
        close(name, (run(f"{name}, twice", m, {"x": x})["second"] * way).sum(), np.array(sides[1] - sides[0]) / (2 * step))


for kind in ("add", "mul", "max", "min"):
    suite.add(f"ScatterElements of {kind}", check, f"ScatterElements of {kind}",
              one("ScatterElements", ["x", "i", "u"], axis=1, reduction=kind),
              {"x": draw(2, 4), "u": draw(2, 5)}, [("i", np.array([[0, 3, 3, 1, 0], [2, 2, 2, 2, 1]]))])


@suite.case("a sum of many halves is one of singles")
def halves():
    graph = helper.make_graph(
        [G.node("Mul", ["x", "b"], ["m"]), G.node("ReduceMax", ["m", "axes"], ["y"], keepdims=0),
         gradient(["b", "x"], ["d"], ["b"], "m", ["x"])], "halves",
        [G.value("x", [5000], TensorProto.FLOAT16), G.value("b", [1], TensorProto.FLOAT16)],
        [G.value("d", None, TensorProto.FLOAT16)], [G.weight("axes", ints(0))])
    m = helper.make_model(graph, ir_version=8, opset_imports=[
        helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.preview.training", 1)])
    got = run("halves", m, {"x": np.ones(5000, np.float16), "b": np.ones(1, np.float16)})["d"]
    close("halves", got.astype(float), np.array([5000.0]))


@suite.case("what has no derivative is named, with its cause; as a step of an index it is none")
def refused():
    x = draw(1, 1, 4, 4)
    nodes = [G.node("Mul", ["x", "x"], ["h"]),
             helper.make_node("RoiAlign", ["h", "rois", "batch"], ["r"], name="crop", mode="max"),
             G.node("ReduceSum", ["r"], ["y"], keepdims=0), gradient(["x"], ["d"], ["x"], "y")]
    m = model(nodes, {"x": x}, ["d"], [("rois", np.array([[0, 0, 3, 3.0]])), ("batch", ints(0))])
    message = GRADIENTS.refused("roi", m)
    for part in ("'g'", "node 1 'crop' (RoiAlign)", "'roi_align_f64'", "host", "by values after it"):
        expect(part in message, message)
    rows, table = np.array([0.2, 2.7, 1.1]), draw(3, 2)
    check("index", [G.node("Cast", ["rows"], ["i"], to=INT64), G.node("Gather", ["table", "i"], ["r"])],
          {"table": table, "rows": rows})


def window(rank, stride, size):
    """The forward's sum and the gradient's, which reads one tensor with zeros around it."""
    nodes = [G.node("Conv", ["x", "w"], ["c"], strides=[stride] * rank, pads=[1] * 2 * rank), G.node("Mul", ["c", "c"], ["y"]),
             gradient(["x", "w"], ["d"], ["x"], "y", ["w"])]
    variables = {"x": draw(1, 2, *[size] * rank), "w": draw(3, 2, *[3] * rank)}
    text = GRADIENTS.text(f"window {rank} {stride} {size}", model(nodes, variables, ["d"]))
    expect("window(" in text and "scatter" not in text and text.count("reduce(") == 2, text)
    expect(stride > 1 or text.count(" pad(") <= 2, text)


for rank in 1, 2, 3:
    for stride, size in (1, 9), (2, 9), (2, 8):
        suite.add(f"the gradient of a window is no scatter; a convolution's is one sum of products: {rank} axes of {size}, stride {stride}",
                  window, rank, stride, size)


@suite.case("the gradient of a strided convolution keeps nothing for each pair of channels")
def strided():
    for size, stride in (15, 2), (16, 2), (16, 4), (17, 3):
        nodes = [G.node("Conv", ["x", "w"], ["c"], strides=[stride] * 2, pads=[1] * 4), G.node("Mul", ["c", "c"], ["y"]),
                 gradient(["x", "w"], ["d"], ["x"], "y", ["w"])]
        x, w = draw(2, 24, size, size), draw(32, 24, 3, 3)
        arena = GRADIENTS.arena(f"strided {size} {stride}", model(nodes, {"x": x, "w": w}, ["d"]))
        expect(arena < 3 * (x.nbytes + w.nbytes), f"{arena} bytes, of {x.nbytes} and {w.nbytes}")


@suite.case("a step of training lowers the loss")
def training():
    random = np.random.default_rng(1)
    x, target = random.standard_normal((16, 6)), random.standard_normal((16, 3))
    w = random.standard_normal((6, 3))
    nodes = [G.node("MatMul", ["x", "w"], ["p"]), G.node("Sub", ["p", "target"], ["e"]),
             G.node("Mul", ["e", "e"], ["ee"]), G.node("ReduceMean", ["ee"], ["loss"], keepdims=0),
             gradient(["w", "x", "target"], ["d"], ["w"], "loss", ["x", "target"]),
             G.node("Mul", ["d", "rate"], ["step"]), G.node("Sub", ["w", "step"], ["w2"])]
    inputs = {"x": x, "target": target, "w": w}
    losses = []
    for _ in range(4):
        got = run("training", model(nodes, inputs, ["loss", "w2"], [("rate", np.array(0.3))]), inputs)
        losses.append(float(got["loss"]))
        inputs["w"] = got["w2"]
    expect(losses == sorted(losses, reverse=True) and losses[-1] < losses[0] * 0.8, f"{losses}")


suite.main()
