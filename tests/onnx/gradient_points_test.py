"""Gradient (ai.onnx.preview.training) where it is a convention: at zeros, ties and edges, of first and of second order.

What is expected is what PyTorch 2 gives, but where a comment says so.
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "lib"))

import numpy as np

import graphs as G
from gradients import Gradients, close, draw, gradient, ints, model, one
from suite import Suite

suite = Suite("gradient-points")
GRADIENTS = Gradients(suite.parse(), "gradient-points")
INF = np.inf


def both(name, nodes, variables, first, second=None, weights=()):
    """nodes make y; the gradients of its sum by all variables, then those of the first gradient by all."""
    names = list(variables)
    outputs = [f"d_{n}" for n in names]
    whole = [*nodes, gradient(names, outputs, names, "y")]
    if second is not None:
        outputs += [f"dd_{n}" for n in names]
        whole.append(gradient(names, outputs[len(names):], names, outputs[0], None, "second"))
    variables = {n: np.array(a, float) for n, a in variables.items()}
    got = GRADIENTS.run(name, model(whole, variables, outputs, weights), variables)
    for k, want in enumerate([*first, *(second or [])]):
        close(f"{name}, {outputs[k]}", got[outputs[k]], np.array(want, float))


def y(kind, inputs, **attributes):
    return [G.node(kind, inputs, ["y"], **attributes)]


suite.add("Pow at base 0", both, "Pow", y("Pow", ["a", "b"]),
          {"a": [0, 0, 0, 0, 0, 0, 2], "b": [0, 1, 2, 0.5, -1, -0.5, 0]},
          [[0, 1, 0, INF, -INF, -INF, 0], [0, 0, 0, 0, -INF, -INF, np.log(2)]])
suite.add("Pow at base 0, again", both, "Pow, again", y("Pow", ["a", "b"]), {"a": [0, 0, 2], "b": [2, 3, 0]},
          [[0, 0, 0], [0, 0, np.log(2)]], [[2, 0, 0], [0, 0, 0.5]])      # PyTorch: 0 for 1/2
suite.add("Pow of a negative base by a constant", both, "Pow by 2", y("Pow", ["a", "b"]), {"a": [-2, 0, 3]},
          [[-4, 0, 6]], [[2, 2, 2]], [("b", np.array(2.0))])
suite.add("Sqrt at 0", both, "Sqrt", y("Sqrt", ["a"]), {"a": [0, 4]}, [[INF, 0.25]], [[-INF, -0.03125]])
NORM = y("ReduceL2", ["a", "axes"], keepdims=0)
suite.add("a norm at 0 has 0, as PyTorch's vector_norm", both, "norm", NORM, {"a": [[0, 0], [3, 4]]},
          [[[0, 0], [0.6, 0.8]]], [[[0, 0], [0.032, -0.024]]], [("axes", ints(1))])
suite.add("the root of a mean of squares", both, "root", [
    G.node("Mul", ["a", "a"], ["aa"]), G.node("ReduceMean", ["aa", "axes"], ["m"]), G.node("Sqrt", ["m"], ["y"])],
    {"a": [0, 0, 0]}, [[0, 0, 0]], [[0, 0, 0]], [("axes", ints(0))])
for factors in ("s", "half"), ("half", "s"):
    suite.add(f"the root of a scaled sum of squares: {' times '.join(factors)}", both, f"scaled root {factors[0]}", [
        G.node("ReduceSumSquare", ["a", "axes"], ["s"]), G.node("Mul", factors, ["m"]), G.node("Sqrt", ["m"], ["y"])], {"a": [[0, 0], [3, 4]]},
        [[[0, 0], [0.6 * 0.5 ** 0.5, 0.8 * 0.5 ** 0.5]]], None, [("axes", ints(1)), ("half", np.array(0.5))])
suite.add("Clip at its bounds, as PyTorch's clamp", both, "Clip", y("Clip", ["a", "low", "high"]), {"a": [-2, -1, 0, 0.5, 0.75, 1]},
          [[0, 1, 1, 1, 1, 0]], [np.zeros(6)], [("low", np.array(-1.0)), ("high", np.array(0.75))])
suite.add("Clip from 0 on is Relu there", both, "Clip, Relu", y("Clip", ["a", "low", "high"]), {"a": [-1, 0, 3, 6, 7]},  # PyTorch: relu6 has 0 at 6
          [[0, 0, 1, 1, 0]], None, [("low", np.array(0.0)), ("high", np.array(6.0))])
suite.add("Max and Min of equals beside a constant", both, "Max, Min", [       # PyTorch: halves
    G.node("Max", ["a", "c"], ["more"]), G.node("Min", ["a", "c"], ["less"]), G.node("Sub", ["more", "less"], ["y"])],
    {"a": [1, 2, 3]}, [[-1, 0, 1]], None, [("c", np.array(2.0))])
suite.add("Abs", both, "Abs", y("Abs", ["a"]), {"a": [0, -1, 2]}, [[0, -1, 1]], [[0, 0, 0]])
suite.add("Asin at the edge", both, "Asin", y("Asin", ["a"]), {"a": [1, 0]}, [[INF, 1]], [[INF, 0]])
suite.add("a softmax beside what is masked", both, "softmax", y("Softmax", ["a"]), {"a": [0, -INF, 1]}, [[0, 0, 0]])
EXPONENTIALS = [G.node("Sub", ["x", "m"], ["z"]), G.node("Exp", ["z"], ["e"])]
for shift, rows in ("one shift a row", 1), ("a shift for each element", 4):       # the second has a derivative by the shift
    suite.add(f"a softmax with {shift}", lambda shift=shift, rows=rows: GRADIENTS.check(
        shift, [*EXPONENTIALS, G.node("ReduceSum", ["e", "axes"], ["s"]), G.node("Div", ["e", "s"], ["r"])],
        {"x": draw(3, 4), "m": draw(3, rows)}, [("axes", ints(1))]))
for kind, divisor in ("along another axis", G.node("ReduceSum", ["e", "axes"], ["s"])), ("of others", G.node("ReduceSum", ["x", "axes"], ["s"])):
    suite.add(f"exponentials by a sum {kind}", lambda kind=kind, divisor=divisor: GRADIENTS.check(
        kind, [*EXPONENTIALS, divisor, G.node("Div", ["e", "s"], ["r"])],
        {"x": draw(3, 4, low=0.5), "m": draw(3, 1)}, [("axes", ints(0))]))
suite.add("a logarithm of a sum of exponentials", both, "logarithm", y("ReduceLogSumExp", ["a"], keepdims=0),
          {"a": [0, 0]}, [[0.5, 0.5]], [[0, 0]])
suite.add("a product, twice", both, "product", y("ReduceProd", ["a"], keepdims=0), {"a": [2, 0, 3]},
          [[0, 6, 0]], [[3, 5, 2]])
LONG = np.where(np.arange(140) == 77, 0, draw(2, 70, low=0.5).ravel()).reshape(2, 70)
suite.add("a product of many with one zero", lambda: GRADIENTS.check(
    "many", one("ReduceProd", ["x", "axes"]), {"x": LONG}, [("axes", ints(1))]))
suite.add("a cumulative product by exponentials", both, "cumulative",
          [G.node("CumSum", ["a", "zero"], ["s"]), G.node("Exp", ["s"], ["y"])], {"a": [0, 0, 0]}, [[3, 2, 1]],
          [[6, 5, 3]], [("zero", np.array(0))])
suite.add("a maximum of equals, over an axis", both, "extremes", y("ReduceMax", ["a", "axes"]),
          {"a": [[1, 3, 3, 3], [2, 0, 1, 1]]}, [[[0, 1 / 3, 1 / 3, 1 / 3], [1, 0, 0, 0]]], [np.zeros((2, 4))],
          [("axes", ints(1))])
suite.add("a product at one place, with no, one and two zeros", lambda: GRADIENTS.check(
    "factors", one("ScatterElements", ["x", "i", "u"], reduction="mul"), {"x": np.array([2, 0, 3, 0.0]), "u": np.array([0, 5, 2, 0, 0, 7.0])},
    [("i", ints(0, 0, 1, 1, 2, 3))]))
for kind, least in ("max", -9), ("min", 9):
    suite.add(f"equal extremes at one place share: {kind}", both, f"scatter {kind}",
              y("ScatterElements", ["x", "i", "u"], reduction=kind), {"x": [1, 2, least], "u": [1, 1, 2, 3 * np.sign(least), 5]},
              [[1 / 3, 0.5, 0], [1 / 3, 1 / 3, 0.5, *([0, 1] if kind == "max" else [1, 0])]], None, [("i", ints(0, 0, 1, 2, 2))])
suite.add("TopK of equals: those that come first", both, "TopK", [
    G.node("TopK", ["a", "k"], ["v", "i"], axis=0), G.node("Mul", ["v", "w"], ["y"])], {"a": [1, 3, 3, 3]},
    [[0, 1, 2, 0]], [[0, 0, 0, 0]], [("k", ints(2)), ("w", np.array([1.0, 2]))])
suite.add("TopK along each axis", lambda: [
    GRADIENTS.check(f"TopK {axis}", [G.node("TopK", ["x", "k"], ["r", "i"], axis=axis, largest=axis % 2)],
                    {"x": draw(3, 1, 4)}, [("k", ints(k))]) for axis, k in ((0, 2), (1, 1), (2, 4))])
suite.add("TopK's indices are constant", both, "indices", [
    G.node("TopK", ["a", "k"], ["v", "i"]), G.node("Cast", ["i"], ["f"], to=11), G.node("Mul", ["f", "v"], ["y"])],
    {"a": [5, 7, 6]}, [[0, 1, 2]], [[0, 0, 0]], [("k", ints(3))])
suite.add("Unique", lambda: GRADIENTS.check("Unique", [
    G.node("Floor", ["x"], ["f"]), G.node("Unique", ["f"], ["u", "first", "inverse", "counts"]),
    G.node("Gather", ["x", "first"], ["r"])], {"x": np.array([2.3, 0.1, 2.7, 5.5])}))

suite.main()
