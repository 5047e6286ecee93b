"""Small ONNX models made on the spot, for tests that need one of a certain kind."""

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 17


def value(name, shape, dtype=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, dtype, shape)


def weight(name, array):
    return numpy_helper.from_array(np.asarray(array), name)


def model(nodes, inputs, outputs, weights=(), opset=OPSET, domains=(), name="graph", **more):
    graph = helper.make_graph(list(nodes), name, list(inputs), list(outputs), list(weights))
    imports = [helper.make_opsetid("", opset)] + [helper.make_opsetid(d, 1) for d in domains]
    return helper.make_model(graph, opset_imports=imports, ir_version=8, **more)


def node(kind, inputs, outputs, **attributes):
    return helper.make_node(kind, inputs, outputs, **attributes)


def float8_layers(kind, seed=5):
    """A MatMul, a Gemm and a Conv of floats of 8 bits: their inputs quantized, weights stored as such with a scale for each column, the row or all."""
    random = np.random.default_rng(seed)
    narrow, number = getattr(ml_dtypes, f"float8_{kind}"), getattr(TensorProto, f"FLOAT8{kind.upper()}")

    def stored(name, array):
        return helper.make_tensor(name, number, array.shape, array.astype(narrow).tobytes(), raw=True)

    def scales(n):
        return random.uniform(0.01, 0.04, n).astype(np.float32)

    weights = [stored("w", random.standard_normal((192, 96))), stored("v", random.standard_normal((96, 192))), stored("k", random.standard_normal((32, 24, 3, 3))),
               weight("ws", scales(96)), weight("vs", scales(96)), weight("ks", np.float32(0.03)), weight("xs", np.float32(0.02)), weight("b", scales(96)),
               stored("zero", np.zeros(())), stored("zeros", np.zeros(96))]
    nodes = []
    for name in ("x", "c"):
        nodes += [node("QuantizeLinear", [name, "xs", "zero"], [f"{name}8"]), node("DequantizeLinear", [f"{name}8", "xs", "zero"], [f"{name}d"])]
    nodes += [node("DequantizeLinear", ["w", "ws", "zeros"], ["wd"], axis=1), node("DequantizeLinear", ["v", "vs", "zeros"], ["vd"], axis=0),
              node("DequantizeLinear", ["k", "ks", "zero"], ["kd"]), node("MatMul", ["xd", "wd"], ["p"], name="matmul"),
              node("Gemm", ["xd", "vd", "b"], ["g"], name="gemm", transB=1), node("Conv", ["cd", "kd"], ["y"], name="conv", pads=[1, 1, 1, 1])]
    return model(nodes, [value("x", [64, 192]), value("c", [1, 24, 9, 11])], [value("p", [64, 96]), value("g", [64, 96]), value("y", [1, 32, 9, 11])], weights, opset=21)


def perceptron(seed=1, n_in=8, n_hidden=16, n_out=4):
    """Two layers: enough operators for anything that is not about operators."""
    random = np.random.default_rng(seed)

    def draw(*shape):
        return (random.standard_normal(shape) * 0.5).astype(np.float32)

    return model(
        [node("Gemm", ["x", "w1", "b1"], ["h"], name="first"),
         node("Relu", ["h"], ["r"], name="bend"),
         node("Gemm", ["r", "w2", "b2"], ["y"], name="second")],
        [value("x", [1, n_in])], [value("y", [1, n_out])],
        [weight("w1", draw(n_in, n_hidden)), weight("b1", draw(n_hidden)),
         weight("w2", draw(n_hidden, n_out)), weight("b2", draw(n_out))])


def perceptron_reference(m, x):
    w = {t.name: numpy_helper.to_array(t) for t in m.graph.initializer}
    return np.maximum(x @ w["w1"] + w["b1"], 0) @ w["w2"] + w["b2"]


def blocks(nodes, seed=3, width=16, rows=4):
    """A deep graph of that many nodes: residual blocks of matrix products, normalization by
    the mean, activations, transposes and joins, as networks have them; sizes stay small."""
    random = np.random.default_rng(seed)
    made, weights, x, number = [], [], "x", 0

    def put(kind, inputs, **attributes):
        nonlocal number
        number += 1
        made.append(node(kind, inputs, [f"t{number}"], name=f"{kind}_{number}", **attributes))
        return f"t{number}"

    def draw(array):
        name = f"w{len(weights)}"
        weights.append(weight(name, array.astype(np.float32)))
        return name

    while number + 10 <= nodes:
        matrix = draw(random.standard_normal((width, width)) / width ** 0.5)
        shift = draw(0.1 * random.standard_normal(width))
        inner = put("Add", [put("MatMul", [x, matrix]), shift])
        inner = put("Tanh", [inner])
        turned = put("Transpose", [inner], perm=[1, 0])
        back = put("Transpose", [put("Relu", [turned])], perm=[1, 0])
        joined = put("Add", [x, back])
        centred = put("Sub", [joined, put("ReduceMean", [joined], axes=[1])])
        x = put("Mul", [centred, draw(np.full(width, 0.7))])
    while number < nodes:
        x = put("Neg", [x])
    return model(made, [value("x", [rows, width])], [value(x, [rows, width])], weights)


def loops():
    """Control flow on values that the run finds: a Loop whose trips are an input, and an If on what it has computed."""
    body = helper.make_graph(
        [node("Tanh", ["h"], ["t"]), node("Add", ["t", "x"], ["next"]), node("Identity", ["go"], ["go_on"])], "body",
        [value("i", [], TensorProto.INT64), value("go", [], TensorProto.BOOL), value("h", [4, 6])], [value("go_on", [], TensorProto.BOOL), value("next", [4, 6])])

    def branch(name, kind):
        return helper.make_graph([node(kind, ["last"], [name])], name, [], [value(name, [4, 6])])
    nodes = [node("Loop", ["trips", "", "x"], ["last"], body=body), node("ReduceSum", ["last"], ["sum"], keepdims=0),
             node("Less", ["sum", "zero"], ["negative"]),
             node("If", ["negative"], ["y"], then_branch=branch("a", "Neg"), else_branch=branch("b", "Exp"))]
    return model(nodes, [value("x", [4, 6]), value("trips", [], TensorProto.INT64)], [value("y", [4, 6])], [weight("zero", np.float32(0))])


def hosts_between():
    """Steps of the host between kernels: where the elements are that are not 0, and what is there."""
    nodes = [node("Relu", ["x"], ["r"]), node("NonZero", ["r"], ["at"]), node("Transpose", ["at"], ["rows"], perm=[1, 0]),
             node("GatherND", ["r", "rows"], ["found"]), node("Exp", ["found"], ["y"])]
    return model(nodes, [value("x", [4, 6])], [value("y", ["n"])])


# Programs for devices: straight kernels, control flow, steps of the host between kernels.
FAILING = {"plain": perceptron, "control flow": loops, "host steps": hosts_between}
