"""Gradient (ai.onnx.preview.training) of loops and branches: recurrent layers, Scan, Loop, If."""

import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "lib"))

import numpy as np
from onnx import TensorProto, helper

import graphs as G
from gradients import DOUBLE, INT64, Gradients, close, draw, gradient, ints, model
from suite import Suite, expect

suite = Suite("gradient-loops")
GRADIENTS = Gradients(suite.parse(), "gradient-loops")
along = GRADIENTS.along
BOOL = TensorProto.BOOL

T, B, I, H = 4, 2, 3, 2


def recurrent(kind, directions=1, initial=True, lengths=False, peephole=False, twice=False, **attributes):
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind]
    variables = {"x": draw(T, B, I), "w": draw(directions, gates * H, I), "u": draw(directions, gates * H, H),
                 "b": draw(directions, 2 * gates * H)}
    inputs, weights = ["x", "w", "u", "b", ""], []
    if lengths:
        inputs[4] = "lengths"
        weights = [("lengths", np.array([4, 2], np.int32))]
    if initial:
        variables["h0"] = draw(directions, B, H)
        inputs.append("h0")
        if kind == "LSTM":
            variables["c0"] = draw(directions, B, H) + 0.1
            inputs.append("c0")
    if peephole:
        variables["p"] = draw(directions, 3 * H)
        inputs.append("p")
    attributes["direction"] = "bidirectional" if directions == 2 else attributes.get("direction", "forward")
    outputs = ["all", "last", "cell"] if kind == "LSTM" else ["all", "last"]
    ends = [G.node("Unsqueeze", [name, "first"], [f"{name}_"]) for name in outputs[1:]]
    nodes = [G.node(kind, inputs, outputs, hidden_size=H, **attributes), *ends,
             G.node("Concat", ["all", *[f"{name}_" for name in outputs[1:]]], ["r"], axis=0)]
    name = f"{kind} {directions} {initial} {lengths} {peephole} {twice} {attributes['direction']} {len(attributes)}"
    return along(name, nodes, variables, [*weights, ("first", ints(0))], twice)


for kind in ("LSTM", "GRU", "RNN"):
    suite.add(f"{kind}, twice", lambda kind=kind: recurrent(kind, twice=True))
    suite.add(f"{kind}, both directions, with lengths", lambda kind=kind: recurrent(kind, 2, lengths=True))
    suite.add(f"{kind}, backwards", lambda kind=kind: recurrent(kind, direction="reverse", initial=False))
suite.add("LSTM, peepholes", lambda: recurrent("LSTM", peephole=True))
suite.add("LSTM, input and forget gates are one", lambda: recurrent("LSTM", input_forget=1))
suite.add("GRU, linear before reset", lambda: recurrent("GRU", linear_before_reset=1))



def body(name, nodes, inputs, outputs, inits=()):
    """A subgraph; inputs and outputs: names and, of values, shapes."""
    kinds = {"c": BOOL, "c2": BOOL, "i": INT64}
    values = [[G.value(n, shape, kinds.get(n, DOUBLE)) for n, shape in part.items()] for part in (inputs, outputs)]
    return helper.make_graph(nodes, name, *values, [G.weight(n, a) for n, a in inits])


def loop(nodes, state, scans=None, inits=()):
    """The body of a Loop: i, c, state h.. -> c2, new state h2.., scans."""
    return body("body", [G.node("Identity", ["c"], ["c2"]), *nodes], {"i": [], "c": [], **state},
                {"c2": [], **{f"{n}2": shape for n, shape in state.items()}, **(scans or {})}, inits)


@suite.case("Loop: fewer iterations than rows, which begin with the second")
def some_rows():
    inner = loop([G.node("Add", ["i", "one"], ["at"]), G.node("Gather", ["rows", "at"], ["row"]), G.node("Mul", ["h", "row"], ["p"]),
                  G.node("Sin", ["p"], ["h2"])], {"h": [3]})
    along("some rows", [G.node("Loop", ["n", "", "x"], ["r"], body=inner)], {"x": draw(3), "rows": draw(5, 3)},
          [("n", np.array(2)), ("one", np.array(1))], twice=True)


@suite.case("Loop: products with a weight, stacked states, a row by its number")
def with_weight():
    inner = loop([G.node("MatMul", ["h", "w"], ["m"]), G.node("Gather", ["rows", "i"], ["row"]),
                  G.node("Add", ["m", "row"], ["s"]), G.node("Tanh", ["s"], ["h2"]), G.node("Mul", ["h2", "h"], ["hh"])],
                 {"h": [2, 3]}, {"hh": [2, 3]})
    nodes = [G.node("Loop", ["n", "", "x"], ["last", "stack"], body=inner), G.node("ReduceSum", ["stack", "axis"], ["s"], keepdims=0),
             G.node("Add", ["last", "s"], ["r"])]
    along("with weight", nodes, {"x": draw(2, 3), "w": draw(3, 3), "rows": draw(5, 3)},
          [("n", np.array(4)), ("axis", ints(0))], twice=True)


@suite.case("Loop: no iteration, a state that is constant, integers beside it, powers")
def odd():
    inner = loop([G.node("Cast", ["i"], ["f"], to=DOUBLE), G.node("Mul", ["h", "x"], ["p"]), G.node("Add", ["p", "f"], ["h2"]),
                  G.node("Add", ["k", "one"], ["k2"]), G.node("Mul", ["h", "k"], ["q"])], {"h": [3], "k": [1]}, {"q": [3]},
                 [("one", np.array([1.0]))])
    for n in (0, 1, 3):
        nodes = [G.node("Loop", ["n", "", "a", "zero"], ["p", "k", "stack"], body=inner),
                 G.node("ReduceSum", ["stack", "axis"], ["s"], keepdims=0), G.node("Add", ["p", "s"], ["t"]),
                 G.node("Mul", ["t", "k"], ["tk"]), G.node("Add", ["tk", "x"], ["r"])]
        along(f"odd {n}", nodes, {"x": draw(3), "a": draw(3) + 2}, [("n", np.array(n)), ("axis", ints(0)),
                                                                   ("zero", np.array([0.5]))], twice=n == 3)


@suite.case("Scan: two inputs, one read backwards, a result stacked backwards")
def scan():
    inner = body("body", [G.node("Mul", ["a", "b"], ["ab"]), G.node("Add", ["h", "ab"], ["h2"]), G.node("Sin", ["h2"], ["y"])],
                 {"h": [3], "a": [3], "b": [3]}, {"h2": [3], "y": [3]})
    nodes = [G.node("Scan", ["x", "a", "b"], ["last", "stack"], body=inner, num_scan_inputs=2, scan_input_axes=[0, 1],
                    scan_input_directions=[0, 1], scan_output_directions=[1]),
             G.node("Mul", ["stack", "factors"], ["f"]), G.node("ReduceSum", ["f", "axis"], ["s"], keepdims=0),
             G.node("Mul", ["last", "s"], ["r"])]
    along("scan", nodes, {"x": draw(3), "a": draw(5, 3), "b": draw(3, 5)},
          [("axis", ints(0)), ("factors", draw(5, 3))], twice=True)


@suite.case("a Loop in a Loop")
def nested():
    inner = loop([G.node("Mul", ["h", "w"], ["p"]), G.node("Add", ["p", "outer"], ["q"]), G.node("Sin", ["q"], ["h2"])],
                 {"h": [3]}, {})
    inner.name = "inner"
    outer = loop([G.node("Mul", ["o", "x"], ["outer"]),
                  helper.make_node("Loop", ["m", "", "o"], ["o2"], body=inner)], {"o": [3]}, {"s": [3]})
    outer.node.append(G.node("Mul", ["o2", "w"], ["s"]))
    nodes = [G.node("Loop", ["n", "", "x"], ["last", "stack"], body=outer), G.node("ReduceSum", ["stack", "axis"], ["s_"], keepdims=0),
             G.node("Add", ["last", "s_"], ["r"])]
    along("nested", nodes, {"x": draw(3), "w": draw(3)}, [("n", np.array(3)), ("m", np.array(2)), ("axis", ints(0))], twice=True)


def choice(name, then, other, variables, weights=(), twice=True):
    """If by the sign of the sum of c, for both signs."""
    shape = list(variables["x"].shape)
    nodes = [G.node("ReduceSum", ["c"], ["cs"], keepdims=0), G.node("Less", ["zero", "cs"], ["b"]),
             helper.make_node("If", ["b"], ["t"], then_branch=body("then", then, {}, {"y": shape}),
                              else_branch=body("else", other, {}, {"y": shape})), G.node("Mul", ["t", "x"], ["r"])]
    for sign in (1, -1):
        along(f"{name} {sign}", nodes, {**variables, "c": np.array([0.3 * sign])},
              [*weights, ("zero", np.array(0.0))], twice)


@suite.case("If: each side, by what both read and by what one does")
def branches():
    choice("branches", [G.node("Mul", ["x", "w"], ["p"]), G.node("Sin", ["p"], ["y"])],
           [G.node("Exp", ["x"], ["e"]), G.node("Mul", ["e", "v"], ["y"])],
           {"x": draw(3), "w": draw(3), "v": draw(3)})


@suite.case("If: a side gives an outer value, or a constant; the other has a loop")
def loop_in_branch():
    inner = loop([G.node("Mul", ["h", "x"], ["p"]), G.node("Cos", ["p"], ["h2"])], {"h": [3]})
    choice("outer", [G.node("Identity", ["x"], ["y"])],
           [helper.make_node("Loop", ["n", "", "w"], ["y"], body=inner)], {"x": draw(3), "w": draw(3)}, [("n", np.array(3))])


@suite.case("If: the side that is not taken gives no NaN")
def guarded():
    x = np.array([0.0, 2.0])
    nodes = [G.node("ReduceMin", ["x"], ["least"], keepdims=0), G.node("Less", ["zero", "least"], ["b"]),
             helper.make_node("If", ["b"], ["y"], then_branch=body("then", [G.node("Log", ["x"], ["y"])], {}, {"y": [2]}),
                              else_branch=body("else", [G.node("Mul", ["x", "x"], ["y"])], {}, {"y": [2]}))]
    GRADIENTS.at("guarded", nodes, x, [0, 4], [("zero", np.array(0.0))])


@suite.case("a loop that a condition ends is refused, with its name and the cause")
def refused():
    inner = body("body", [G.node("Mul", ["h", "h"], ["h2"]), G.node("ReduceSum", ["h"], ["s"], keepdims=0),
                          G.node("Less", ["s", "most"], ["c2"])], {"i": [], "c": [], "h": [3]}, {"c2": [], "h2": [3]},
                 [("most", np.array(9.0))])
    m = model([helper.make_node("Loop", ["n", "", "x"], ["y"], name="grow", body=inner), gradient(["x"], ["d"], ["x"], "y")],
              {"x": draw(3)}, ["d"], [("n", np.array(100))])
    message = GRADIENTS.refused("condition", m)
    for part in ("node 0 'grow' (Loop)", "a condition ends the loop", "trip count"):
        expect(part in message, message)


@suite.case("sizes known only at run time, of steps and of the batch")
def symbols():
    nodes = [G.node("LSTM", ["x", "w", "u"], ["all", "last"], hidden_size=H), G.node("Mul", ["all", "all"], ["y"]),
             gradient(["x", "w", "u"], ["d_x", "d_w", "d_u"], ["x", "w", "u"], "y")]
    variables = {"x": draw(T, B, I), "w": draw(1, 4 * H, I), "u": draw(1, 4 * H, H)}
    m = model(nodes, variables, ["d_x", "d_w", "d_u"])
    want = GRADIENTS.run("fixed", m, variables)
    for dim, name in zip(m.graph.input[0].type.tensor_type.shape.dim, ("T", "B")):
        dim.dim_param = name
    got = GRADIENTS.run("symbols", m, variables, ["--dim", "T=..9", "--dim", "B=..4"])
    for name, value in want.items():
        close(name, got[name], value)


@suite.case("a layer's weights get one sum of products after the loop; rows of its input are no scatter, and forward is one loop")
def one_sum():
    nodes = [G.node("RNN", ["x", "w", "u"], ["all", "r"], hidden_size=H), G.node("Mul", ["r", "r"], ["y"]),
             gradient(["x", "w", "u"], ["d_x", "d_w", "d_u"], ["x", "w", "u"], "y")]
    m = model(nodes, {"x": draw(T, B, I), "w": draw(1, H, I), "u": draw(1, H, H)}, ["all", "d_x", "d_w", "d_u"])
    text = GRADIENTS.text("one sum", m)
    loop = text[text.rindex("= loop"):]
    expect("scatter" not in text and "(add" not in loop[:loop.index("next (")], text)
    expect(loop.count("reduce(") == 1 + 1 + 3, text)      # forward; to the state; then for each operand
    code = GRADIENTS.text("one sum, code", m, "c")
    expect(len(re.findall(r"for \(int64_t step", code)) == 2, "not one loop forwards, which keeps, and one backwards")


suite.main()
