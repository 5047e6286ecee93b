"""Networks and samples of the suites of training: ONNX models of random weights, and PyTorch's of the same in reference.py."""

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import graphs as G
from threefry import halves, threefry


def random_weights(shapes, seed=3):
    r = np.random.default_rng(seed)
    return {n: (r.standard_normal(s) * (0.3 if len(s) > 1 else 0.1)).astype(np.float32) for n, s in shapes.items()}


def mlp(folder, outputs=3, batch=("N",)):
    w = random_weights({"w1": (6, 16), "b1": (16,), "w2": (16, outputs), "b2": (outputs,)})
    nodes = [helper.make_node("MatMul", ["x", "w1"], ["h"]), helper.make_node("Add", ["h", "b1"], ["i"]),
             helper.make_node("Gelu", ["i"], ["a"]), helper.make_node("MatMul", ["a", "w2"], ["s"]),
             helper.make_node("Add", ["s", "b2"], ["y"])]
    save(folder / "m.onnx", nodes, [("x", [*batch, 6])], [("y", [*batch, outputs])], w)
    return w


def cnn(folder):
    w = random_weights({"c1": (4, 2, 3, 3), "d1": (4,), "c2": (5, 4, 3, 3), "d2": (5,), "w": (20, 3), "b": (3,)})
    for k, n in (1, 4), (2, 5):
        w |= {f"scale{k}": np.linspace(0.5, 1.5, n, dtype=np.float32), f"shift{k}": np.zeros(n, np.float32),
              f"mean{k}": np.zeros(n, np.float32), f"var{k}": np.ones(n, np.float32)}
    def block(k, x, y, **conv):
        return [helper.make_node("Conv", [x, f"c{k}", f"d{k}"], [f"v{k}"], **conv),
                helper.make_node("Relu", [f"v{k}"], [f"r{k}"]),
                helper.make_node("BatchNormalization", [f"r{k}", f"scale{k}", f"shift{k}", f"mean{k}", f"var{k}"], [f"n{k}"]),
                helper.make_node("MaxPool", [f"n{k}"], [y], kernel_shape=[2, 2], strides=[2, 2])]
    nodes = [*block(1, "x", "p1", pads=[1, 1, 1, 1]), *block(2, "p1", "p2"), helper.make_node("Flatten", ["p2"], ["f"]),
             helper.make_node("Gemm", ["f", "w", "b"], ["y"])]
    save(folder / "m.onnx", nodes, [("x", ["N", 2, 12, 12])], [("y", ["N", 3])], w)
    return w


def lstm(folder):
    w = random_weights({"W": (1, 20, 3), "R": (1, 20, 5), "B": (1, 40), "w": (5, 3), "b": (3,)})
    nodes = [helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
             helper.make_node("LSTM", ["t", "W", "R", "B"], ["", "h"], hidden_size=5),
             helper.make_node("Squeeze", ["h", "zero"], ["s"]), helper.make_node("Gemm", ["s", "w", "b"], ["y"])]
    save(folder / "m.onnx", nodes, [("x", ["N", 7, 3])], [("y", ["N", 3])], w | {"zero": np.zeros(1, np.int64)})
    return w


def transformer(folder):
    """Causal attention of two heads, tied tables, layer norms: the parts of a GPT."""
    w = random_weights({"table": (11, 8), "place": (6, 8), "wq": (8, 8), "wk": (8, 8), "wv": (8, 8), "wo": (8, 8),
                        "up": (8, 16), "down": (16, 8), "shift1": (8,), "shift2": (8,)})
    w |= {"scale1": np.ones(8, np.float32), "scale2": np.linspace(0.5, 1.5, 8, dtype=np.float32)}
    fixed = {"split": np.array([0, 6, 2, 4]), "join": np.array([0, 6, 8]), "half": np.float32(0.5),
             "mask": np.triu(np.full((6, 6), -np.inf, np.float32), 1)}
    node = helper.make_node
    def heads(m):
        return [node("MatMul", ["y", f"w{m}"], [f"{m}1"]), node("Reshape", [f"{m}1", "split"], [f"{m}2"]),
                node("Transpose", [f"{m}2"], [m], perm=[0, 2, 3, 1] if m == "k" else [0, 2, 1, 3])]
    nodes = [node("Gather", ["table", "x"], ["g"]), node("Add", ["g", "place"], ["e"]),
             node("LayerNormalization", ["e", "scale1", "shift1"], ["y"], axis=-1), *heads("q"), *heads("k"), *heads("v"),
             node("MatMul", ["q", "k"], ["s0"]), node("Mul", ["s0", "half"], ["s1"]), node("Add", ["s1", "mask"], ["s2"]),
             node("Softmax", ["s2"], ["s3"], axis=-1), node("MatMul", ["s3", "v"], ["a0"]),
             node("Transpose", ["a0"], ["a1"], perm=[0, 2, 1, 3]), node("Reshape", ["a1", "join"], ["a2"]),
             node("MatMul", ["a2", "wo"], ["a3"]), node("Add", ["e", "a3"], ["e2"]),
             node("LayerNormalization", ["e2", "scale2", "shift2"], ["z"], axis=-1), node("MatMul", ["z", "up"], ["u0"]),
             node("Gelu", ["u0"], ["u1"]), node("MatMul", ["u1", "down"], ["u2"]), node("Add", ["e2", "u2"], ["e3"]),
             node("Transpose", ["table"], ["back"]), node("MatMul", ["e3", "back"], ["scores"])]
    names = {n: numpy_helper.from_array(np.asarray(a), n) for n, a in fixed.items()}
    constants = [node("Constant", [], [n], value=names[n]) for n in ("mask", "half")]
    save(folder / "m.onnx", [*constants, *nodes], [("x", ["N", 6], TensorProto.INT64)], [("scores", ["N", 6, 11])],
         w | {n: fixed[n] for n in ("split", "join")})
    return w


def uniform(seed, shape):
    """As tgc train draws a matrix: with variance 1/3 over its longer side."""
    word = np.array([threefry(halves(seed), halves(i))[0] for i in range(shape[0] * shape[1])])
    return ((2 * (word >> 8) * 2.0 ** -24 - 1) / max(shape) ** 0.5).astype(np.float32).reshape(shape)


def lora(folder):
    """mlp, whose matrices are w + w.a w.b, of which w.a and w.b train, and nothing else."""
    w = mlp(folder)
    for k, name in enumerate(("w1", "w2")):
        rows, cols = w[name].shape
        w |= {f"{name}.a": uniform(2 * k, (rows, 2)), f"{name}.b": np.zeros((2, cols), np.float32)}
    return w


def deep(folder):
    """Eight layers with batch normalization: 94 states of a training by Adam."""
    w = {f"c{k}": (6, 6 if k else 2, 3, 3) for k in range(8)} | {"w": (864, 3), "b": (3,)}
    w = random_weights(w)
    for k in range(8):
        w |= {f"s{k}": np.ones(6, np.float32), f"h{k}": np.zeros(6, np.float32), f"m{k}": np.zeros(6, np.float32),
              f"v{k}": np.ones(6, np.float32)}
    node = helper.make_node
    nodes = [n for k in range(8) for n in (
        node("Conv", [f"r{k - 1}" if k else "x", f"c{k}"], [f"a{k}"], pads=[1, 1, 1, 1]),
        node("BatchNormalization", [f"a{k}", f"s{k}", f"h{k}", f"m{k}", f"v{k}"], [f"b{k}"]), node("Relu", [f"b{k}"], [f"r{k}"]))]
    save(folder / "m.onnx", [*nodes, node("Flatten", ["r7"], ["f"]), node("Gemm", ["f", "w", "b"], ["y"])],
         [("x", ["N", 2, 12, 12])], [("y", ["N", 3])], w)
    return w


KINDS = {"f16": (TensorProto.FLOAT16, np.float16), "bf16": (TensorProto.BFLOAT16, ml_dtypes.bfloat16)}


def halves_of(path, kind, inside=True):
    """The model of f32 in halves: all floats, or but for a Cast at either end."""
    proto, dtype = KINDS[kind]
    m = onnx.load(path)
    for i in m.graph.initializer:
        if i.data_type == TensorProto.FLOAT:
            i.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(i).astype(dtype), i.name))
    for n in m.graph.node:
        for a in n.attribute:
            if a.name == "value" and a.t.data_type == TensorProto.FLOAT:
                a.t.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(a.t).astype(dtype)))
    ends = [v for v in [*m.graph.input, *m.graph.output] if v.type.tensor_type.elem_type == TensorProto.FLOAT]
    for v in ends:
        if not inside:
            v.type.tensor_type.elem_type = proto
    if inside:
        names = {v.name: f"{v.name}.half" for v in ends}
        for n in m.graph.node:
            n.input[:] = [names.get(i, i) for i in n.input]
            n.output[:] = [names.get(o, o) for o in n.output]
        for v in m.graph.input:
            if v.name in names:
                m.graph.node.insert(0, helper.make_node("Cast", [v.name], [names[v.name]], to=proto))
        m.graph.node.extend(helper.make_node("Cast", [names[v.name]], [v.name], to=TensorProto.FLOAT) for v in m.graph.output if v.name in names)
    onnx.save(m, path)


def in_halves(make, kind):
    """The network with weights of halves; their values as f32."""
    def made(folder):
        w = make(folder)
        halves_of(folder / "m.onnx", kind)
        return {n: a.astype(KINDS[kind][1]).astype(np.float32) if a.dtype == np.float32 else a for n, a in w.items()}
    return made


NETWORKS = {"mlp": (mlp, (6,)), "cnn": (cnn, (2, 12, 12)), "lstm": (lstm, (7, 3)), "transformer": (transformer, None),
            "deep": (deep, (2, 12, 12)), "lora": (lora, (6,))}
NETWORKS |= {f"{n}.{kind}": (in_halves(make, kind), shape) for n, (make, shape) in NETWORKS.items() for kind in KINDS}


def save(path, nodes, inputs, outputs, weights):
    graph = helper.make_graph(nodes, "net", [G.value(*i) for i in inputs], [G.value(n, s) for n, s in outputs],
                              [numpy_helper.from_array(a, n) for n, a in weights.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)


def samples(folder, shape, loss, outputs=3, n=24, seed=5):
    r = np.random.default_rng(seed)
    if shape is None:
        tokens = r.integers(0, 11, (n, 7))
        np.savez(folder / "d.npz", x=tokens[:, :6], target=tokens[:, 1:])
        return
    x = r.standard_normal((n, *shape)).astype(np.float32)
    target = (r.integers(0, outputs, n) if loss == "cross_entropy"
              else r.random((n, outputs)).astype(np.float32) if loss == "bce_with_logits"
              else r.standard_normal((n, outputs)).astype(np.float32))
    np.savez(folder / "d.npz", x=x, target=target)
    return x, target


def weights_of(path):
    return {i.name: numpy_helper.to_array(i) for i in onnx.load(path).graph.initializer}
