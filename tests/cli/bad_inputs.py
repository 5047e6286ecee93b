"""The table of bad inputs: files that must be refused, each with what the message must name.

Every entry writes its files into a folder and returns the path of the model. `names` are
words that must stand in the diagnostic: the file always does, the node where there is one.
"""

import functools
import inspect
import os
from dataclasses import dataclass, field
from typing import Callable

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import graphs as G


@dataclass
class Bad:
    name: str
    write: Callable                 # folder -> path of the model
    names: tuple = ()               # words that the message must have, besides the file's name
    options: tuple = ()
    may_pass: bool = False          # a damaged file can still be a valid model
    slow: bool = False


TABLE = []


def takes_folder(make):
    return not isinstance(make, functools.partial) and bool(inspect.signature(make).parameters)


def bad(name, *names, options=(), may_pass=False):
    """Registers a function that returns the model (bytes or ModelProto) for one entry."""
    def register(make):
        def write(folder):
            content = make(folder) if takes_folder(make) else make()
            if not isinstance(content, bytes):
                content = content.SerializeToString()
            (folder / "bad.onnx").write_bytes(content)
            return folder / "bad.onnx"
        TABLE.append(Bad(name, write, names, options, may_pass))
        return make
    return register


def add(name, content, *names, may_pass=False, slow=False):
    def write(folder):
        (folder / "bad.onnx").write_bytes(content)
        return folder / "bad.onnx"
    TABLE.append(Bad(name, write, names, may_pass=may_pass, slow=slow))


# ------------------------------------------------------------------------ the bytes themselves

GOOD = G.perceptron().SerializeToString()


def varint(n):
    out = bytearray()
    while n >= 128:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


def field_bytes(number, content):
    return varint(number << 3 | 2) + varint(len(content)) + content


def nested(depth, wrap, inside=b""):
    for _ in range(depth):
        inside = wrap(inside)
    return inside


HEADER = varint(1 << 3) + varint(8)                                # ir_version 8
OPSET = field_bytes(8, varint(2 << 3) + varint(17))                # opset_import, version 17


def with_graph(graph):
    return HEADER + field_bytes(7, graph) + OPSET


def subgraph(inside):
    """NodeProto { op_type: "If", attribute { name: "g", g: inside, type: GRAPH } } in a graph."""
    attribute = field_bytes(1, b"then_branch") + field_bytes(6, inside) + varint(20 << 3) + b"\x05"
    return field_bytes(1, field_bytes(4, b"If") + field_bytes(5, attribute))


add("empty file", b"")
add("text", b"this is not a model\n" * 20)
add("PNG", b"\x89PNG\r\n\x1a\n" + bytes(range(256)))
add("ELF", b"\x7fELF\x02\x01\x01" + bytes(500))
add("zeros", bytes(4096))
add("ones", b"\xff" * 4096)
for cut in range(1, 25):
    position = cut * (len(GOOD) - 6) // 24
    add(f"truncated at {position} of {len(GOOD)}", GOOD[:position])
random = np.random.default_rng(42)
for number in range(400):
    damaged = bytearray(GOOD)
    for _ in range(int(random.integers(1, 4))):
        damaged[int(random.integers(len(damaged)))] ^= 1 << int(random.integers(8))
    add(f"bits flipped {number}", bytes(damaged), may_pass=True, slow=number >= 60)
add("graphs nested 10,000 deep", with_graph(nested(10000, subgraph)))
add("graphs nested 200 deep", with_graph(nested(200, subgraph)))
add("types nested 10,000 deep", with_graph(field_bytes(11, field_bytes(1, b"x") + field_bytes(
    2, nested(10000, lambda t: field_bytes(4, field_bytes(1, t)))))))
add("two million bytes of empty nodes", with_graph(field_bytes(1, b"") * 1000000))
add("two million bytes of empty weights", with_graph(field_bytes(5, b"") * 1000000))
add("two million bytes of empty inputs", with_graph(field_bytes(11, b"") * 1000000))
add("a node with a million inputs", with_graph(field_bytes(1, field_bytes(1, b"") * 1000000)))
add("a weight with a million dimensions",
    with_graph(field_bytes(5, field_bytes(1, b"\x01" * 1000000))))
add("a length of 2^63", HEADER + varint(7 << 3 | 2) + varint(1 << 63))
add("a length of 2^32 - 1", HEADER + varint(7 << 3 | 2) + varint((1 << 32) - 1))
add("a varint without end", HEADER + b"\x38" + b"\xff" * 64)
add("field number 0", b"\x00\x01" * 64)
add("groups", b"\x0b" * 20000)


# ----------------------------------------------------------------------------------- the graph

X = G.value("x", [2, 3])
Y = G.value("y", [2, 3])


def one(kind, inputs, weights=(), outputs=("y",), shape=(2, 3), opset=17, **attributes):
    """One node named 'culprit' that reads x and the weights."""
    return G.model([G.node(kind, inputs, list(outputs), name="culprit", **attributes)], [X],
                   [G.value("y", list(shape))], weights, opset=opset)


def floats(*shape):
    return np.ones(shape, np.float32)


def ints(*values):
    return np.array(values, np.int64)


@bad("no graph")
def _():
    return HEADER + OPSET


@bad("no opset")
def _():
    m = G.perceptron()
    del m.opset_import[:]
    return m


@bad("an opset from the future", "999")
def _():
    return one("Relu", ["x"], opset=999)


@bad("a cycle", "first")
def _():
    return G.model([G.node("Add", ["x", "b"], ["a"], name="first"),
                    G.node("Neg", ["a"], ["b"], name="second")], [X], [G.value("b", [2, 3])])


@bad("a node that reads itself", "culprit")
def _():
    return one("Add", ["x", "y"])


@bad("a tensor that nothing makes", "culprit", "nowhere")
def _():
    return one("Add", ["x", "nowhere"])


@bad("an output that nothing makes", "nowhere")
def _():
    return G.model([G.node("Relu", ["x"], ["y"], name="n")], [X], [G.value("nowhere", [2, 3])])


@bad("a tensor made twice", "second", "y")
def _():
    return G.model([G.node("Relu", ["x"], ["y"], name="first"),
                    G.node("Neg", ["x"], ["y"], name="second")], [X], [Y])


@bad("a graph without outputs")
def _():
    return G.model([G.node("Relu", ["x"], ["y"])], [X], [])


@bad("an operator that does not exist", "culprit", "Frobnicate")
def _():
    return one("Frobnicate", ["x"])


@bad("three operators that do not exist, listed at once", "Frobnicate", "Whirl", "Spindle")
def _():
    return G.model([G.node("Frobnicate", ["x"], ["a"], name="n1"),
                    G.node("Whirl", ["a"], ["b"], name="n2"), G.node("Relu", ["b"], ["c"]),
                    G.node("Spindle", ["c"], ["y"], name="n3")], [X], [Y])


@bad("an operator of an unknown domain", "culprit", "org.nowhere")
def _():
    return G.model([G.node("Relu", ["x"], ["y"], name="culprit", domain="org.nowhere")], [X], [Y],
                   domains=["org.nowhere"])


@bad("a domain that is not imported, and unknown", "culprit", "org.nowhere")
def _():
    return G.model([G.node("Gelu", ["x"], ["y"], name="culprit", domain="org.nowhere")], [X], [Y])


@bad("too few inputs", "culprit", "Add")
def _():
    return one("Add", ["x"])


@bad("too many inputs", "culprit", "Relu")
def _():
    return one("Relu", ["x", "x"])


@bad("a required input left out", "culprit", "MatMul")
def _():
    return one("MatMul", ["x", ""])


@bad("too many outputs", "culprit", "Relu")
def _():
    return one("Relu", ["x"], outputs=("y", "z"))


@bad("an attribute of the wrong type", "culprit", "axis")
def _():
    return one("Softmax", ["x"], axis=1.5)


@bad("an axis out of range", "culprit", "axis")
def _():
    return one("Softmax", ["x"], axis=2)


@bad("a permutation that is none", "culprit", "axis 0")
def _():
    return one("Transpose", ["x"], perm=[0, 0])


@bad("a required attribute left out", "culprit", "axis")
def _():
    return one("Concat", ["x", "x"], shape=(4, 3))


@bad("a cast to an unknown type", "culprit", "to")
def _():
    return one("Cast", ["x"], to=77)


@bad("inner dimensions that differ", "culprit", "3", "4")
def _():
    return one("MatMul", ["x", "w"], [G.weight("w", floats(4, 5))], shape=(2, 5))


@bad("shapes that do not broadcast", "culprit", "3", "4")
def _():
    return one("Add", ["x", "w"], [G.weight("w", floats(4))])


@bad("types that differ", "culprit")
def _():
    return one("Add", ["x", "w"], [G.weight("w", ints(1, 2, 3))])


@bad("a type that the operator does not take", "culprit")
def _():
    return G.model([G.node("Sqrt", ["s"], ["y"], name="culprit")],
                   [G.value("s", [2], TensorProto.INT32)], [G.value("y", [2], TensorProto.INT32)])


@bad("a reshape to another number of elements", "culprit")
def _():
    return one("Reshape", ["x", "s"], [G.weight("s", ints(4, 2))], shape=(4, 2))


@bad("a reshape with two unknowns", "culprit")
def _():
    return one("Reshape", ["x", "s"], [G.weight("s", ints(-1, -1))])


@bad("a concatenation of unlike shapes", "culprit")
def _():
    return one("Concat", ["x", "w"], [G.weight("w", floats(2, 4))], axis=0, shape=(4, 3))


@bad("convolution channels that differ", "culprit")
def _():
    return G.model([G.node("Conv", ["i", "w"], ["y"], name="culprit")],
                   [G.value("i", [1, 3, 8, 8])], [G.value("y", [1, 4, 6, 6])],
                   [G.weight("w", floats(4, 5, 3, 3))])


@bad("a kernel larger than the image", "culprit")
def _():
    return G.model([G.node("Conv", ["i", "w"], ["y"], name="culprit")],
                   [G.value("i", [1, 1, 2, 2])], [G.value("y", [1, 1, 1, 1])],
                   [G.weight("w", floats(1, 1, 5, 5))])


@bad("strides of another rank", "culprit", "strides")
def _():
    return G.model([G.node("Conv", ["i", "w"], ["y"], name="culprit", strides=[1, 1, 1, 1, 1])],
                   [G.value("i", [1, 1, 8, 8])], [G.value("y", [1, 1, 6, 6])],
                   [G.weight("w", floats(1, 1, 3, 3))])


@bad("a stride of zero", "culprit", "strides")
def _():
    return G.model([G.node("Conv", ["i", "w"], ["y"], name="culprit", strides=[0, 1])],
                   [G.value("i", [1, 1, 8, 8])], [G.value("y", [1, 1, 6, 6])],
                   [G.weight("w", floats(1, 1, 3, 3))])


@bad("a group that does not divide the channels", "culprit", "group")
def _():
    return G.model([G.node("Conv", ["i", "w"], ["y"], name="culprit", group=3)],
                   [G.value("i", [1, 4, 8, 8])], [G.value("y", [1, 4, 6, 6])],
                   [G.weight("w", floats(4, 1, 3, 3))])


@bad("a declared output shape that is wrong", "y", may_pass=True)
def _():
    return one("Relu", ["x"], shape=(3, 3))


@bad("a constant index out of range", "culprit")
def _():
    return one("Gather", ["x", "i"], [G.weight("i", ints(5))], shape=(1, 3))


@bad("a split that does not add up", "culprit")
def _():
    return one("Split", ["x", "s"], [G.weight("s", ints(2, 2))], outputs=("y", "z"), axis=1)


@bad("more sizes of a split than outputs", "culprit", "3 sizes", "2 outputs")
def _():
    return one("Split", ["x", "s"], [G.weight("s", ints(1, 1, 1))], outputs=("y", "z"), axis=1)


@bad("a permutation with a negative axis", "culprit", "perm", "-1")
def _():
    return one("Transpose", ["x"], perm=[-1, 0])


@bad("a constant with two values", "culprit", "'value_float'", "'value_int'")
def _():
    return one("Constant", [], value_float=1.0, value_int=2)


@bad("a diagonal of axes that differ", "culprit", "sizes differ")
def _():
    return one("Einsum", ["x"], equation="zz->")


@bad("a tensor with raw and typed data", "'w'", "raw_data", "float_data")
def _():
    w = G.weight("w", np.ones(3, np.float32))
    w.float_data.extend([1.0] * 3)
    return one("Add", ["x", "w"], [w])


@bad("a tensor with two kinds of typed data", "'w'", "float_data", "int32_data")
def _():
    w = TensorProto(name="w", dims=[3], data_type=TensorProto.FLOAT, float_data=[1, 2, 3], int32_data=[1, 2, 3])
    return one("Add", ["x", "w"], [w])


@bad("a slice with a step of zero", "culprit")
def _():
    return one("Slice", ["x", "a", "b", "c", "d"],
               [G.weight("a", ints(0)), G.weight("b", ints(2)), G.weight("c", ints(0)),
                G.weight("d", ints(0))])


@bad("an If without a branch", "culprit", "else_branch")
def _():
    branch = helper.make_graph([G.node("Relu", ["x"], ["r"])], "then", [], [G.value("r", [2, 3])])
    return G.model([G.node("If", ["c"], ["y"], name="culprit", then_branch=branch)],
                   [X, G.value("c", [], TensorProto.BOOL)], [Y])


def sparse_weight(indices):
    values = helper.make_tensor("w", TensorProto.FLOAT, [3], [1.0, 2.0, 3.0])
    m = one("Add", ["x", "w"])
    m.graph.sparse_initializer.append(helper.make_sparse_tensor(
        values, helper.make_tensor("i", TensorProto.INT64, [3], indices), [2, 3]))
    return m


for kind, indices in (("that do not ascend", [4, 1, 5]), ("of which two are equal", [1, 1, 5]),
                      ("beyond the tensor", [1, 4, 6])):
    bad(f"indices of a sparse weight {kind}", "'w'", "of the sparse tensor is")(
        functools.partial(sparse_weight, indices))


@bad("a map as an input", "'m'", "is a map", "inputs of the graph")
def _():
    of_map = helper.make_map_type_proto(TensorProto.STRING, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
    m = G.model([G.node("DictVectorizer", ["m"], ["y"], name="culprit", domain="ai.onnx.ml",
                        string_vocabulary=["a", "b"])],
                [helper.make_value_info("m", of_map)], [Y], domains=["ai.onnx.ml"])
    return m


@bad("scales and sizes for one Resize", "culprit", "'n'", "both given")
def _():
    return one("Resize", ["x", "", "s", "n"], [G.weight("s", np.array([2, 2], np.float32)), G.weight("n", ints(4, 6))],
               shape=(4, 6))


@bad("regions of another type than the image", "culprit", "input 1 'r'", "dtype f32 is expected")
def _():
    return G.model([G.node("RoiAlign", ["i", "r", "b"], ["y"], name="culprit", sampling_ratio=2)],
                   [G.value("i", [1, 1, 8, 8]), G.value("r", [2, 4], TensorProto.INT64), G.value("b", [2], TensorProto.INT64)],
                   [G.value("y", None)])


@bad("lengths that are strings", "culprit", "input 1 'n'", "integers are expected")
def _():
    return G.model([G.node("ReverseSequence", ["x", "n"], ["y"], name="culprit")],
                   [X, G.value("n", [3], TensorProto.STRING)], [Y])


@bad("a range with a step of 0", "culprit", "'c'", "the step is 0")
def _():
    numbers = [G.weight(name, np.array(v, np.int64)) for name, v in (("a", 0), ("b", 5), ("c", 0))]
    return one("Range", ["a", "b", "c"], numbers, shape=(5,))


@bad("a tensor that doubles sixty times", "culprit", "--max-memory")
def _():
    body = helper.make_graph([G.node("Concat", ["a", "a"], ["b"], name="culprit", axis=0), G.node("Identity", ["c"], ["d"])], "body",
                             [G.value("i", [], TensorProto.INT64), G.value("c", [], TensorProto.BOOL), G.value("a", None)],
                             [G.value("d", [], TensorProto.BOOL), G.value("b", None)])
    return G.model([G.node("Loop", ["trips", "", "x"], ["y"], body=body)], [X], [G.value("y", None)],
                   [G.weight("trips", np.array(60, np.int64))])


@bad("an attribute that the operator does not have", "culprit", "'slope'", "LeakyRelu of opset 17", "alpha")
def _():
    return one("LeakyRelu", ["x"], slope=0.5)


@bad("an attribute of older versions", "culprit", "'axes'", "Squeeze of opset 13", "1 to 12")
def _():
    return one("Squeeze", ["x"], axes=[0], opset=13)


@bad("an attribute of newer versions", "culprit", "'allowzero'", "Reshape of opset 13", "14 and later")
def _():
    return one("Reshape", ["x", "s"], [G.weight("s", ints(2, 3))], allowzero=1, opset=13)


@bad("an input of newer versions", "culprit", "has 3 inputs", "Clip of opset 6")
def _():
    return one("Clip", ["x", "a", "a"], [G.weight("a", floats())], opset=6)


@bad("consumed_inputs after opset 5", "culprit", "consumed_inputs", "1 to 5")
def _():
    return one("Relu", ["x"], consumed_inputs=[0], opset=6)


@bad("mistakes in two attributes, listed at once", "culprit", "'alpha'", "int; ", "'beta'", "it has alpha")
def _():
    return one("Elu", ["x"], alpha=1, beta=1.0)


@bad("an attribute that an operator of com.microsoft does not have", "culprit", "approximate",
     "com.microsoft.Gelu")
def _():
    return G.model([G.node("Gelu", ["x"], ["y"], name="culprit", domain="com.microsoft",
                           approximate="tanh")], [X], [Y], domains=["com.microsoft"])


@bad("an attribute that is none, in a branch", "If", "then_branch", "culprit", "'alpha'")
def _():
    inside = [G.node("Relu", ["x"], ["r"], name="culprit", alpha=1.0)]
    branch = helper.make_graph(inside, "then", [], [G.value("r", [2, 3])])
    other = helper.make_graph([G.node("Neg", ["x"], ["s"])], "else", [], [G.value("s", [2, 3])])
    return G.model([G.node("If", ["c"], ["y"], name="if", then_branch=branch, else_branch=other)],
                   [X, G.value("c", [], TensorProto.BOOL)], [Y])


def calls_leaky(given, refers_to="alpha", kind="LeakyRelu"):
    """A function whose one node has an attribute that refers to the call's."""
    inside = helper.make_node(kind, ["a"], ["b"], name="culprit")
    inside.attribute.append(onnx.AttributeProto(name=refers_to, ref_attr_name="slope",
                                                type=onnx.AttributeProto.UNDEFINED))
    leaky = helper.make_function("local", "leaky", ["a"], ["b"], [inside],
                                 [helper.make_opsetid("", 17)], ["slope"])
    return G.model([G.node("leaky", ["x"], ["y"], name="call", domain="local", **given)], [X], [Y],
                   domains=["local"], functions=[leaky])


@bad("a call that gives a function's attribute another type", "leaky", "culprit", "'alpha'", "type int")
def _():
    return calls_leaky({"slope": 1})


@bad("a reference from an attribute that is none", "leaky", "culprit", "'gamma'", "it has alpha")
def _():
    return calls_leaky({"slope": 0.5}, "gamma")


@bad("a call without the attribute that an operator in the function requires", "culprit", "'axis' is missing")
def _():
    return calls_leaky({}, "axis", "Concat")


def function(name, calls):
    return helper.make_function("local", name, ["a"], ["b"],
                                [helper.make_node(calls, ["a"], ["b"], domain="local")],
                                [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)])


@bad("a function that calls itself", "again")
def _():
    return G.model([G.node("again", ["x"], ["y"], name="culprit", domain="local")], [X], [Y],
                   domains=["local"], functions=[function("again", "again")])


@bad("two functions that call each other", "ping")
def _():
    return G.model([G.node("ping", ["x"], ["y"], name="culprit", domain="local")], [X], [Y],
                   domains=["local"],
                   functions=[function("ping", "pong"), function("pong", "ping")])


@bad("functions that double thirty times")
def _():
    chain = []
    for level in range(30):
        callee = ("Relu", "") if level == 0 else (f"f{level - 1}", "local")
        chain.append(helper.make_function(
            "local", f"f{level}", ["a"], ["c"],
            [helper.make_node(callee[0], ["a"], ["b"], domain=callee[1]),
             helper.make_node(callee[0], ["b"], ["c"], domain=callee[1])],
            [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]))
    return G.model([G.node("f29", ["x"], ["y"], name="culprit", domain="local")], [X], [Y],
                   domains=["local"], functions=chain)


def indexed(kind, index, updates=(1, 3), **attributes):
    """x at, or with something written at, a constant index."""
    names = ["x", "i"] + (["u"] if kind.startswith("Scatter") else [])
    return one(kind, names, [G.weight("i", np.array(index)), G.weight("u", floats(*updates))][:len(names) - 1],
               **attributes)


for kind, index, updates in (
        ("Gather", [-3], ()), ("GatherElements", [[9, 0, 0]], ()), ("GatherND", [[2, 0]], ()),
        ("ScatterElements", [[5, 0, 0]], (1, 3)), ("Scatter", [[5, 0, 0]], (1, 3)),
        ("ScatterND", [[7]], (1, 3))):
    bad(f"a constant index out of range of {kind}", "culprit", "input 1 'i'", "outside of its tensor")(
        functools.partial(indexed, kind, index, updates, opset=10 if kind == "Scatter" else 17))


@bad("an index of more coordinates than the tensor has axes", "culprit", "i64[1, 3]")
def _():
    return indexed("ScatterND", [[0, 0, 0]], (1,))


@bad("more of the largest than there are", "culprit", "k is 9")
def _():
    return one("TopK", ["x", "k"], [G.weight("k", ints(9))], outputs=("y", "z"))


@bad("a negative depth", "culprit", "-3", "at least 0")
def _():
    return G.model([G.node("OneHot", ["i", "d", "v"], ["y"], name="culprit")],
                   [G.value("i", [2], TensorProto.INT64)], [G.value("y", [2, 3])],
                   [G.weight("d", np.array(-3)), G.weight("v", floats(2))])


@bad("ranks that the operator does not take", "culprit", "rank 3", "f32[2, 3]")
def _():
    return one("Conv", ["x", "w"], [G.weight("w", floats(4, 3, 1, 1))])


@bad("version 0 of the operator set", "version 0")
def _():
    return one("Relu", ["x"], opset=0)


@bad("an operator older than its first version", "culprit", "Gelu", "opset 11")
def _():
    return one("Gelu", ["x"], opset=11)


@bad("a mode that there is not", "culprit", "swirl")
def _():
    return one("Pad", ["x", "p"], [G.weight("p", ints(0, 0, 0, 0))], mode="swirl")


@bad("more starts than axes", "culprit", "3 starts")
def _():
    return one("Slice", ["x", "a", "b"], [G.weight("a", ints(0, 0, 0)), G.weight("b", ints(1, 1, 1))])


@bad("an axis named twice", "culprit", "axis 1")
def _():
    return one("ReduceSum", ["x", "a"], [G.weight("a", ints(1, 1))])


@bad("a condition that is no bool", "culprit", "input 0 'x'")
def _():
    return one("Where", ["x", "x", "x"])


@bad("branches of different numbers of outputs", "culprit", "else_branch")
def _():
    def branch(name, count):
        return helper.make_graph([G.node("Relu", ["x"], [name])], "b", [], [G.value(name, [2, 3])] * count)
    return G.model([G.node("If", ["c"], ["y"], name="culprit", then_branch=branch("r", 1),
                           else_branch=branch("q", 2))], [X, G.value("c", [], TensorProto.BOOL)], [Y])


@bad("a Loop without a body", "culprit", "body")
def _():
    return G.model([G.node("Loop", ["t", "", "x"], ["y"], name="culprit")], [X], [Y],
                   [G.weight("t", np.array(2))])


@bad("a Scan without a body", "culprit", "body")
def _():
    return one("Scan", ["x"], num_scan_inputs=1)


@bad("as many bits as 2^32 more", "culprit", "'bits'", "4294967300")
def _():
    node = helper.make_node("MatMulNBits", ["x", "b", "s"], ["y"], name="culprit", domain="com.microsoft", K=32, N=2, bits=(1 << 32) + 4, block_size=32)
    model = G.model([node], [G.value("x", [2, 32])], [G.value("y", [2, 2])],
                    [G.weight("b", np.zeros((2, 1, 16), np.uint8)), G.weight("s", floats(2, 1))])
    model.opset_import.add(domain="com.microsoft", version=1)
    return model


@bad("a Scan over the least integer of inputs", "culprit", "num_scan_inputs")
def _():
    body = helper.make_graph([G.node("Abs", ["v"], ["s"])], "body", [G.value("v", [3])], [G.value("s", [3])])
    return one("Scan", ["x"], num_scan_inputs=-(1 << 31), body=body)


# ------------------------------------------------------------------------------ loops and folding


def looped(trips, scan, start="x"):
    outputs = [G.value("c2", [], TensorProto.BOOL), G.value("h2", [2, 3])] + [G.value("s", [2, 3])] * scan
    body = helper.make_graph(
        [G.node("Identity", ["c"], ["c2"]), G.node("Sin", ["h"], ["h2"]), G.node("Abs", ["h2"], ["s"])],
        "body", [G.value("i", [], TensorProto.INT64), G.value("c", [], TensorProto.BOOL),
                 G.value("h", [2, 3])], outputs)
    return G.model([G.node("Loop", ["t", "", start], ["y"] + ["z"] * scan, name="culprit", body=body)],
                   [X], [Y] + [G.value("z", None)] * scan,
                   [G.weight("t", np.array(trips)), G.weight("k", floats(2, 3))])


@bad("a convolution whose channels lie 2^33 elements apart", "--max-memory")
def _():
    return G.model([G.node("Conv", ["x", "w"], ["c"], name="culprit", pads=[1, 1, 1, 1]), G.node("Relu", ["c"], ["y"])],
                   [G.value("x", [1, 64, 28, 1 << 28])], [G.value("y", [1, 64, 28, 1 << 28])], [G.weight("w", floats(64, 64, 3, 3))])


@bad("a Loop of 10^9 iterations that keeps them all", "--max-memory")
def _():
    return looped(10 ** 9, True)


@bad("a Loop of 10^18 iterations that keeps them all", "more than memory can address")
def _():
    return looped(10 ** 18, True)


@bad("a size of 2^64, which wraps to 0", "culprit", "2^63")
def _():
    huge = G.value("x", [2**32, 2**32])
    return G.model([G.node("Flatten", ["x"], ["f"], name="culprit", axis=0), G.node("Relu", ["f"], ["y"])],
                   [huge], [Y])


@bad("a Loop of 10^9 iterations over constants", "culprit", may_pass=True)  # a run takes that long
def _():
    return looped(10 ** 9, False, "k")


@bad("a Loop of 10^9 iterations that fills a sequence", "culprit", "sequences")
def _():
    kind = helper.make_tensor_sequence_value_info
    body = helper.make_graph(
        [G.node("Identity", ["c"], ["c2"]), G.node("SequenceInsert", ["s", "x"], ["s2"])], "body",
        [G.value("i", [], TensorProto.INT64), G.value("c", [], TensorProto.BOOL),
         kind("s", TensorProto.FLOAT, None)],
        [G.value("c2", [], TensorProto.BOOL), kind("s2", TensorProto.FLOAT, None)])
    return G.model([G.node("SequenceEmpty", [], ["e"]),
                    G.node("Loop", ["t", "", "e"], ["q"], body=body, name="culprit"),
                    G.node("ConcatFromSequence", ["q"], ["y"], axis=0)], [X], [G.value("y", None)],
                   [G.weight("t", np.array(10 ** 9))])


def chain(kind, count, inputs, weights, *last):
    """`count` nodes, each of which has the one before it as its first input, and as the others
    where `inputs` says None."""
    nodes, name = [], "k"
    for i in range(count):
        nodes.append(G.node(kind, [name, *[name if more is None else more for more in inputs]], [f"c{i}"],
                            name=f"n{i}", **({"axis": 0} if kind == "Concat" else {})))
        name = f"c{i}"
    return G.model([*nodes, *[G.node(k, [name if n is None else n for n in names], [made],
                                     **({"to": TensorProto.FLOAT} if k == "Cast" else {}))
                              for k, names, made in last]], [X], [G.value("y", None)], weights)


@bad("constants that double forty times", "--max-memory")
def _():
    return chain("Concat", 40, [None], [G.weight("k", floats(2, 3))], ("ReduceSum", [None], "y"))


@bad("constants that double, of which positions are asked", "--max-memory")
def _():
    return chain("Tile", 26, ["two"], [G.weight("k", floats(3)), G.weight("two", ints(2))],
                 ("NonZero", [None], "z"), ("Cast", ["z"], "f"), ("ReduceMax", ["f"], "y"))


@bad("a shape that is a number squared 64 times", "y", may_pass=True)
def _():
    return chain("Mul", 64, [None], [G.weight("k", ints(3, 2))], ("Reshape", ["x", None], "y"))


@bad("branches within branches, twelve deep", may_pass=True)
def _():
    def branch(depth, name):
        if not depth:
            return helper.make_graph([G.node("Relu", ["x"], [f"r{name}"])], "b", [], [G.value(f"r{name}", [2, 3])])
        inner = G.node("If", ["c"], [f"q{name}"], then_branch=branch(depth - 1, name + "t"),
                       else_branch=branch(depth - 1, name + "e"))
        return helper.make_graph([inner], "b", [], [G.value(f"q{name}", [2, 3])])
    return G.model([G.node("If", ["c"], ["y"], then_branch=branch(11, "t"), else_branch=branch(11, "e"))],
                   [X, G.value("c", [], TensorProto.BOOL)], [Y])


# -------------------------------------------------------------------------------------- sizes


@bad("an input of 2^124 elements", "x")
def _():
    return G.model([G.node("Relu", ["x"], ["y"], name="n")],
                   [G.value("x", [1 << 62, 1 << 62])], [G.value("y", [1 << 62, 1 << 62])])


@bad("a negative dimension of a weight", "w")
def _():
    m = one("Add", ["x", "w"], [G.weight("w", floats(3))])
    m.graph.initializer[0].dims[0] = -3
    return m


@bad("a weight of 2^62 elements with 12 bytes", "w")
def _():
    m = one("Add", ["x", "w"], [G.weight("w", floats(3))])
    m.graph.initializer[0].dims[:] = [1 << 31, 1 << 31]
    return m


@bad("a weight with too few bytes", "w")
def _():
    m = one("Add", ["x", "w"], [G.weight("w", floats(3))])
    m.graph.initializer[0].raw_data = b"\0" * 8
    return m


@bad("a weight with too many bytes", "w")
def _():
    m = one("Add", ["x", "w"], [G.weight("w", floats(3))])
    m.graph.initializer[0].raw_data = b"\0" * 16
    return m


@bad("a weight of an unknown type", "w")
def _():
    m = one("Add", ["x", "w"], [G.weight("w", floats(3))])
    m.graph.initializer[0].data_type = 99
    return m


@bad("a tensor of rank 40", "w")
def _():
    m = one("Add", ["x", "w"], [G.weight("w", floats(1))])
    m.graph.initializer[0].dims[:] = [1] * 40
    return m


@bad("a constant of 2^40 elements", "culprit", may_pass=True)  # it need not be made
def _():
    return G.model([G.node("ConstantOfShape", ["s"], ["c"], name="culprit"),
                    G.node("ReduceSum", ["c"], ["y"], name="sum", keepdims=0)], [],
                   [G.value("y", [])], [G.weight("s", ints(1 << 20, 1 << 20))])


@bad("a product of dimensions beyond 2^63", "'y'")
def _():
    return one("Expand", ["x", "s"], [G.weight("s", ints(1 << 30, 1 << 30, 2, 3))],
               shape=(1 << 30, 1 << 30, 2, 3))


@bad("padding beyond 2^63", "culprit")
def _():
    return one("Pad", ["x", "p"], [G.weight("p", ints(1 << 62, 1 << 62, 1 << 62, 1 << 62))],
               shape=(1, 1))


@bad("a range of 10^18 numbers", "culprit", may_pass=True)  # nor this one
def _():
    return G.model([G.node("Range", ["a", "b", "c"], ["r"], name="culprit"),
                    G.node("ReduceSum", ["r"], ["y"], keepdims=0)], [],
                   [G.value("y", [], TensorProto.INT64)],
                   [G.weight("a", np.array(0, np.int64)), G.weight("b", np.array(10 ** 18)),
                    G.weight("c", np.array(1, np.int64))])


# ------------------------------------------------------------------------------ external data


def external(location, offset=None, length=None, **more):
    m = one("Add", ["x", "w"], [G.weight("w", floats(3))])
    tensor = m.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    entries = {"location": location, "offset": offset, "length": length, **more}
    for key, entry in entries.items():
        if entry is not None:
            tensor.external_data.add(key=key, value=str(entry))
    return m


def secret(folder):
    """A file outside of the model's folder, of the right size."""
    path = folder.parent / (folder.name + "-secret.bin")
    path.write_bytes(b"\0" * 12)
    return path


@bad("external data by an absolute path", "w")
def _(folder):
    return external(str(secret(folder)))


@bad("external data above the folder", "w")
def _(folder):
    return external(f"../{secret(folder).name}")


@bad("external data above the folder, by a detour", "w")
def _(folder):
    (folder / "sub").mkdir()
    return external(f"sub/../../{secret(folder).name}")


@bad("external data through a symbolic link", "w")
def _(folder):
    (folder / "link.bin").symlink_to(secret(folder))
    return external("link.bin")


@bad("external data through a linked folder", "w")
def _(folder):
    (folder / "sub").symlink_to(secret(folder).parent)
    return external(f"sub/{secret(folder).name}")


@bad("external data by a hard link", "w")
def _(folder):
    os.link(secret(folder), folder / "hard.bin")
    return external("hard.bin")


@bad("external data in a device", "w")
def _():
    return external("/dev/zero", length=12)


@bad("external data in a pipe", "w")
def _(folder):
    os.mkfifo(folder / "pipe")
    return external("pipe", length=12)


@bad("external data in a folder", "w")
def _(folder):
    (folder / "sub").mkdir()
    return external("sub")


@bad("external data that is missing", "w", "gone.bin")
def _():
    return external("gone.bin")


@bad("external data without a place", "w", "location")
def _():
    return external(None)


@bad("external data beyond the file's end", "w")
def _(folder):
    (folder / "data.bin").write_bytes(b"\0" * 16)
    return external("data.bin", offset=8, length=12)


@bad("external data at an offset that wraps", "w")
def _(folder):
    (folder / "data.bin").write_bytes(b"\0" * 16)
    return external("data.bin", offset=(1 << 64) - 4, length=12)


@bad("external data at a negative offset", "w")
def _(folder):
    (folder / "data.bin").write_bytes(b"\0" * 16)
    return external("data.bin", offset=-4, length=12)


@bad("external data of another length", "w")
def _(folder):
    (folder / "data.bin").write_bytes(b"\0" * 16)
    return external("data.bin", length=16)


@bad("external data with --no-external-data", "w", options=("--no-external-data",))
def _(folder):
    (folder / "data.bin").write_bytes(b"\0" * 12)
    return external("data.bin", length=12)


HOSTILE = {
    "end of comment": "a*/b",
    "start of comment": "a/*b",
    "line comment": "a//b",
    "trailing backslash": "a\\",
    "trigraph": "a??/",
    "trigraph end": "a??/\nint evil;",
    "newline": "a\n#error injected",
    "carriage return": "a\r#error injected",
    "quote": 'a"; int evil; char *s = "',
    "single quote": "a'b",
    "dollar": "a$b$(touch evil)`touch evil`",
    "percent": "a%n%s%p",
    "bidi": "a\u202e\u2066b\u2069",
    "unicode": "größe_日本語",
    "zero width": "a\u200bb",
    "not utf-8": b"a\xff\xfe\x80b",
    "nothing but signs": "/:.-",
    "keyword": "double",
    "reserved": "__attribute__",
    "digit first": "0x1F",
    "html": "</script><img src=x onerror=alert(1)>",
    "space": "a b\tc",
    "control": "a\x01\x1b[31mb\x7f",
    "long": "a" * 5000,
    "make": "a:b $$(shell touch evil) #c",
    "main": "main",
    "preprocessor": "#include",
    "digraph": "<% %:define",
    "pragma": '_Pragma("GCC error \\"x\\"")',
}


def rename(message, old, new):
    """Replaces a string everywhere in the model, bytes that are no UTF-8 included."""
    content = message.SerializeToString()
    if isinstance(new, str):
        new = new.encode()
    return _rename(content, old.encode(), new)


def _rename(content, old, new):
    """Rebuilds the wire format with the new string; follows length-delimited fields."""
    out, position = bytearray(), 0
    while position < len(content):
        start = position
        key, position = _read(content, position)
        kind = key & 7
        if kind == 0:
            _, position = _read(content, position)
            out += content[start:position]
        elif kind == 2:
            size, position = _read(content, position)
            inside = content[position:position + size]
            position += size
            if inside == old:
                inside = new
            elif old in inside:
                inside = _rename(inside, old, new)
            out += varint(key) + varint(len(inside)) + inside
        else:
            position += {1: 8, 5: 4}[kind]
            out += content[start:position]
    return bytes(out)


def _read(content, position):
    shift = result = 0
    while True:
        byte = content[position]
        result |= (byte & 127) << shift
        position, shift = position + 1, shift + 7
        if byte < 128:
            return result, position


def hostile_model(name, where):
    """A valid model that carries the name in one place, and the place's stem for the reader."""
    m = G.model([G.node("Gemm", ["PLACE_input", "PLACE_weight"], ["PLACE_inner"], name="PLACE_node",
                        doc_string="PLACE_doc"),
                 G.node("Relu", ["PLACE_inner"], ["PLACE_output"], name="bend")],
                [G.value("PLACE_input", [2, 3])], [G.value("PLACE_output", [2, 4])],
                [G.weight("PLACE_weight", np.arange(12, dtype=np.float32).reshape(3, 4) - 5)],
                name="PLACE_graph", producer_name="PLACE_producer")
    return rename(m, f"PLACE_{where}", name)


PLACES = ["input", "weight", "inner", "node", "doc", "output", "graph", "producer"]
