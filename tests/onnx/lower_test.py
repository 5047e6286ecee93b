"""How ONNX models are read: versions, functions, subgraphs, dimensions, and what is said of
models that cannot be.

Operators themselves are node_test.py's. Each case here makes one small model and runs it
through `tgc run`, against NumPy; or reads the message of a refusal.
"""

import hashlib
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "lib"))

import numpy as np
import onnx
from onnx import TensorProto, helper

import graphs as G
import tgc as T
from suite import Failure, Suite, expect

suite = Suite("lowering")
OPTIONS = suite.parse()
TGC = T.find_tgc(OPTIONS.build).resolve()
SCRATCH = Path(OPTIONS.build).resolve() / "test-scratch" / "lowering"
FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
case = suite.folder_case(SCRATCH)


def start(folder, model, inputs, *options):
    onnx.save(model, folder / "m.onnx")
    words = []
    for name, array in inputs.items():
        np.save(folder / f"{name}.npy", array)
        words += ["-i", f"{name}={name}.npy"]
    return T.run([TGC, "run", "m.onnx", "--target=c", *words, "--out-dir", "out", *options], cwd=folder, env=T.quickly())


def run_status(folder, model, inputs, *options):
    """What is said of a run that ends with a status."""
    return T.must(start(folder, model, inputs, *options), 1).err


def run(folder, model, inputs, *options):
    """The outputs of `tgc run`, by name."""
    T.must(start(folder, model, inputs, *options))
    return {path.stem: np.load(path) for path in (folder / "out").glob("*.npy")}


def refusal(folder, model, *options):
    onnx.save(model, folder / "m.onnx")
    done = T.must(T.run([TGC, "m.onnx", "-o", "m.c", *options], cwd=folder), 1)
    expect(not (folder / "m.c").exists(), "a refused model left an output")
    return done.err


def failure(folder, model, inputs, *options):
    """What `tgc run` says where the compiled model returns a status."""
    onnx.save(model, folder / "m.onnx")
    words = []
    for name, array in inputs.items():
        np.save(folder / f"{name}.npy", array)
        words += ["-i", f"{name}={name}.npy"]
    return T.must(T.run([TGC, "run", "m.onnx", "--target=c", *words, *options], cwd=folder, env=T.quickly()), 1).err


def check(actual, wanted):
    expect(actual.shape == wanted.shape, f"shape {actual.shape}, expected {wanted.shape}")
    expect(np.allclose(actual, wanted, rtol=1e-5, atol=1e-6), f"{actual}\nexpected\n{wanted}")


def says(text, *parts):
    for part in parts:
        expect(part in text, f"{part!r} is not in the message:\n{text}")


def ints(name, *values):
    return G.weight(name, np.array(values, np.int64))


def draw(*shape):
    return np.random.default_rng(7).standard_normal(shape).astype(np.float32)


# ------------------------------------------------------------------------------------- versions


@case("Softmax of opset 11 sees a matrix, of opset 13 one axis")
def _(folder):
    x = draw(2, 3, 4)
    for opset, axes in ((11, (1, 2)), (13, (1,))):
        m = G.model([G.node("Softmax", ["x"], ["y"], axis=1)], [G.value("x", [2, 3, 4])],
                    [G.value("y", [2, 3, 4])], opset=opset)
        e = np.exp(x - x.max(axis=axes, keepdims=True))
        check(run(folder, m, {"x": x})["y"], e / e.sum(axis=axes, keepdims=True))


@case("a signal of STFT has no last axis, as exporters write it")
def _(folder):
    x, w = draw(2, 20), np.hanning(8).astype(np.float32)
    m = G.model([G.node("STFT", ["x", "step", "w", "n"], ["y"], onesided=1)], [G.value("x", [2, 20])], [G.value("y", [2, 4, 5, 2])],
                [G.weight("step", np.array(4)), G.weight("w", w), G.weight("n", np.array(8))], opset=17)
    f = np.stack([np.fft.rfft(x[:, 4 * k:4 * k + 8] * w) for k in range(4)], 1)
    check(run(folder, m, {"x": x})["y"], np.stack([f.real, f.imag], -1).astype(np.float32))


@case("axes are an attribute in opset 11 and an input in opset 13")
def _(folder):
    x = draw(1, 3, 1)
    old = G.model([G.node("Squeeze", ["x"], ["y"], axes=[0])], [G.value("x", [1, 3, 1])],
                  [G.value("y", [3, 1])], opset=11)
    new = G.model([G.node("Squeeze", ["x", "a"], ["y"])], [G.value("x", [1, 3, 1])],
                  [G.value("y", [3, 1])], [ints("a", 0)], opset=13)
    for m in (old, new):
        check(run(folder, m, {"x": x})["y"], x[0])


@case("Add of opset 6 broadcasts from its axis on")
def _(folder):
    x, b = draw(2, 3, 4), draw(3)
    m = G.model([G.node("Add", ["x", "b"], ["y"], broadcast=1, axis=1)], [G.value("x", [2, 3, 4])],
                [G.value("y", [2, 3, 4])], [G.weight("b", b)], opset=6)
    check(run(folder, m, {"x": x})["y"], x + b.reshape(1, 3, 1))


@case("every unsupported operator is named at once, with version and nodes")
def _(folder):
    m = G.model([G.node("Frob", ["x"], ["a"], name="first"), G.node("Relu", ["a"], ["b"]),
                 G.node("Frob", ["b"], ["c"], name="second"),
                 G.node("Nicate", ["c"], ["y"], name="third", domain="some.where")],
                [G.value("x", [2])], [G.value("y", [2])], domains=["some.where"])
    says(refusal(folder, m), "Frob of opset 17", "0 'first', 2 'second'", "some.where.Nicate of opset 1",
         "3 'third'")


@case("an operator that this version does not have yet is refused")
def _(folder):
    m = G.model([G.node("Gelu", ["x"], ["y"])], [G.value("x", [2])], [G.value("y", [2])], opset=13)
    says(refusal(folder, m), "Gelu of opset 13", "at this version")


# ----------------------------------------------------------------------------------- dimensions


@case("open dimensions are named all at once, with the options to paste")
def _(folder):
    m = G.model([G.node("Relu", ["x"], ["y"])], [G.value("x", ["batch", 3, None])], [G.value("y", None)])
    text = refusal(folder, m)
    says(text, "'batch' (axis 0 of input 'x')", "'x_dim2' (axis 2 of input 'x')",
         "--dim batch=1 --dim x_dim2=1", "--dim batch=..8 --dim x_dim2=..8")
    done = T.run([TGC, "m.onnx", "-o", "m.c", "--dim", "batch=1", "--dim", "x_dim2<=8"], cwd=folder)
    T.must(done)


@case("one dim_param is one symbol: both inputs follow it")
def _(folder):
    m = G.model([G.node("Add", ["a", "b"], ["y"])], [G.value("a", ["n", 3]), G.value("b", ["n", 3])],
                [G.value("y", ["n", 3])])
    a, b = draw(5, 3), draw(5, 3)
    check(run(folder, m, {"a": a, "b": b}, "--dim", "n<=9")["y"], a + b)
    says(refusal(folder, m, "--shape", "a=2x3", "--shape", "b=4x3"), "'n' is 2 in input 'a'")


@case("Range of the run: a step of 0 and more elements than fit are a status")
def _(folder):
    m = G.model([G.node("Range", ["a", "b", "c"], ["y"])], [G.value(n, [], INT64) for n in "abc"],
                [G.value("y", None, INT64)])
    onnx.save(m, folder / "m.onnx")
    for level in ((), ("-O0",)):
        T.must(T.run([TGC, "m.onnx", "-o", "m.c", "--dim", "y_dim0<=12", *level], cwd=folder))
        T.build(folder / "m.c", folder / "m", "gcc", T.SANITIZE, main_by=TGC)
        program = T.Program(folder / "m", ["y"])
        for limits in ((0, 10, 3), (10, 0, -3), (10, 0, 3), (0, 12, 1), (0, 2 ** 62, 2 ** 62)):
            y = program.run([np.array(v) for v in limits])["y"]
            expect((y == np.arange(*limits)).all() and y.shape == np.arange(*limits).shape, f"{limits}: {y}")
        for limits in ((0, 10, 0), (0, 0, 0), (0, 13, 1), (-2 ** 63, 2 ** 63 - 1, 1), (2 ** 62, -2 ** 63, -1)):
            try:
                y = program.run([np.array(v) for v in limits])["y"]
            except Failure as status:
                says(str(status), "run: ")
            else:
                raise Failure(f"{limits}: {y}")


@case("a size that may be 1 at run time is broadcast where it is")
def _(folder):
    m = G.model([G.node("Slice", ["x", "from", "to"], ["last"]), G.node("Less", ["z", "last"], ["y"]),
                 G.node("Where", ["y", "last", "z"], ["w"])],
                [G.value("x", ["n"]), G.value("z", [3, 2])], [G.value("y", None, BOOL), G.value("w", None)],
                [ints("from", -2), ints("to", 9)])
    z = draw(3, 2)
    for n in (1, 2, 7):
        x = draw(n) + 0.1
        for level in ((), ("-O0",)):
            got = run(folder, m, {"x": x, "z": z}, "--dim", "n<=7", *level)
            check(got["y"], z < x[-2:])
            check(got["w"], np.where(z < x[-2:], x[-2:], z))


@case("a branch of an If may give one row where the other gives all")
def _(folder):
    def side(name, start):
        node = G.node("Slice", ["x", start, "end", "axis"], [name])
        return helper.make_graph([node], name, [], [G.value(name, [1, 1, None, 2])])

    def pooled(s):
        return s[:, :, :1] * 0.5 + s[:, :, 1:2] * 0.5     # no row, if there is one

    x, w = draw(1, 1, 3, 2), draw(3, 1)
    for node, answer in ((G.node("Identity", ["w"], ["o"]), lambda s: s - w),
                         (G.node("AveragePool", ["s"], ["o"], kernel_shape=[2, 1], strides=[2, 1]),
                          lambda s: s - (pooled(s) if s.shape[2] > 1 else s[:, :, :0]))):
        m = G.model([G.node("If", ["c"], ["s"], then_branch=side("t", "two"), else_branch=side("e", "zero")),
                     node, G.node("Sub", ["s", "o"], ["y"])],
                    [G.value("c", [], BOOL), G.value("x", [1, 1, 3, 2])], [G.value("y", None)],
                    [ints("zero", 0), ints("two", 2), ints("end", 3), ints("axis", 2), G.weight("w", w)])
        for condition in (True, False):
            s = x[:, :, 2:] if condition else x
            check(run(folder, m, {"c": np.array(condition), "x": x})["y"], answer(s))


@case("one length by two names: taken for equal, and the run checks it")
def _(folder):
    m = G.model([G.node("Add", ["a", "b"], ["s"]), G.node("Concat", ["s", "b"], ["c"], axis=1),
                 G.node("Transpose", ["a"], ["t"], perm=[1, 0]), G.node("MatMul", ["t", "c"], ["y"])],
                [G.value("a", ["n", 3]), G.value("b", ["m", 3])], [G.value("y", None)])
    dims = ("--dim", "n<=9", "--dim", "m<=7")
    for n in (1, 5, 7):
        a, b = draw(n, 3), draw(n, 3) + 1
        check(run(folder, m, {"a": a, "b": b}, *dims)["y"], a.T @ np.concatenate([a + b, b], 1))
    for options in ((), ("-O0",)):
        says(run_status(folder, m, {"a": draw(4, 3), "b": draw(5, 3)}, *dims, *options),
             "do not go together")
    done = T.must(T.run([TGC, "m.onnx", "-o", "m.c", *dims], cwd=folder))
    says(done.err, "warning", "'n' = ", "'m' = ", "must be equal")


def caches(total):
    """A step of attention's keys, with a mask whose length is that of past and new ones."""
    return G.model([G.node("Concat", ["past", "new"], ["keys"], axis=0), G.node("Mul", ["keys", "mask"], ["y"])],
                   [G.value("past", ["past", 3]), G.value("new", ["new", 3]), G.value("mask", [total, 1])], [G.value("y", None)])


@case("a length that is the sum of two others, by a name of its own: the run checks it")
def _(folder):
    m, dims = caches("total"), ("--dim", "past<=9", "--dim", "new<=5", "--dim", "total<=14")
    for past, new in ((1, 1), (7, 3), (9, 5)):
        x = {"past": draw(past, 3), "new": draw(new, 3), "mask": draw(past + new, 1)}
        check(run(folder, m, x, *dims)["y"], np.concatenate([x["past"], x["new"]]) * x["mask"])
    says(run_status(folder, m, {"past": draw(4, 3), "new": draw(2, 3), "mask": draw(7, 1)}, *dims), "do not go together")
    says(refusal(folder, m, "--dim", "past=9", "--dim", "new<=5", "--dim", "total<=9"), "new + 9", "do not broadcast")   # for no sizes


@case("a dimension whose name is a sum of others' names is that sum")
def _(folder):
    for name in ("past + new", "new+past", " past+new "):
        m = caches(name)
        for past, new in ((1, 1), (7, 3)):
            x = {"past": draw(past, 3), "new": draw(new, 3), "mask": draw(past + new, 1)}
            check(run(folder, m, x, "--dim", "past<=9", "--dim", "new<=5")["y"], np.concatenate([x["past"], x["new"]]) * x["mask"])
    done = T.must(T.run([TGC, "m.onnx", "-o", "m.c", "--dim", "past<=9", "--dim", "new<=5"], cwd=folder))
    expect("must be equal" not in done.err, done.err)
    (folder / "m.c").unlink(), (folder / "m.h").unlink()
    m = caches("past + 2")
    x = {"past": draw(4, 3), "new": draw(2, 3), "mask": draw(6, 1)}
    check(run(folder, m, x, "--dim", "past<=9", "--dim", "new=2")["y"], np.concatenate([x["past"], x["new"]]) * x["mask"])
    x = {"past": draw(4, 3), "new": draw(1, 3), "mask": draw(5, 1)}      # a size that is given comes first
    check(run(folder, caches("past + new"), x, "--dim", "past=4", "--dim", "new=1", "--dim", "past + new=5")["y"],
          np.concatenate([x["past"], x["new"]]) * x["mask"])
    for name in ("past + other", "past +", "+", "past + 99999999999"):
        says(refusal(folder, caches(name), "--dim", "past<=9", "--dim", "new<=5"), f"this dimension is unknown: '{name}'")


@case("halves that meet again: for even sizes only")
def _(folder):
    m = G.model([G.node("MaxPool", ["x"], ["p"], kernel_shape=[2], strides=[2], ceil_mode=1),
                 G.node("Resize", ["p", "", "twice"], ["u"], mode="nearest"),
                 G.node("Add", ["x", "u"], ["y"])],
                [G.value("x", [1, 2, "n"])], [G.value("y", None)],
                [G.weight("twice", np.array([1, 1, 2], np.float32))])
    x = draw(1, 2, 6)
    pooled = x.reshape(1, 2, 3, 2).max(3).repeat(2, 2)
    check(run(folder, m, {"x": x}, "--dim", "n<=9")["y"], x + pooled)
    says(run_status(folder, m, {"x": draw(1, 2, 7)}, "--dim", "n<=9"), "do not go together")


@case("Reshape of an open dimension that does not come out even is a status")
def _(folder):
    for shape, good, bad in (((2, 6), 3, 4), ((-1, 6), 6, 4), ((0, -1, 3), None, None)):
        m = G.model([G.node("Reshape", ["x", "to"], ["r"]), G.node("Neg", ["r"], ["y"])],
                    [G.value("x", ["n", 4])], [G.value("y", None)], [ints("to", *shape)])
        if shape[0] == 0:
            m.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "m"
            good_x, bad_x = draw(2, 6), draw(2, 7)
        else:
            good_x, bad_x = draw(good, 4), draw(bad, 4)
        dims = ("--dim", "n<=9") + (("--dim", "m<=9") if shape[0] == 0 else ())
        wanted = good_x.reshape([good_x.shape[0] if d == 0 else d for d in shape])
        for level in ((), ("-O0",)):
            check(run(folder, m, {"x": good_x}, *dims, *level)["y"], -wanted)
            says(run_status(folder, m, {"x": bad_x}, *dims, *level), "do not go together")


@case("Squeeze of an open dimension that is not 1, and windows that do not fit, are a status")
def _(folder):
    squeeze = G.model([G.node("Squeeze", ["x", "first"], ["y"])], [G.value("x", ["n", 3])], [G.value("y", None)],
                      [ints("first", 0)])
    window = G.model([G.node("MaxPool", ["x"], ["y"], kernel_shape=[7])], [G.value("x", [1, 2, "n"])],
                     [G.value("y", None)])
    for level in ((), ("-O0",)):
        x = draw(1, 3)
        check(run(folder, squeeze, {"x": x}, "--dim", "n<=4", *level)["y"], x[0])
        says(run_status(folder, squeeze, {"x": draw(2, 3)}, "--dim", "n<=4", *level), "do not go together")
        x = draw(1, 2, 8)
        check(run(folder, window, {"x": x}, "--dim", "n<=9", *level)["y"],
              np.stack([x[:, :, :7].max(2), x[:, :, 1:].max(2)], 2))
        says(run_status(folder, window, {"x": draw(1, 2, 5)}, "--dim", "n<=9", *level), "an input holds a value")


@case("sizes that are equal at none or one value are an error")
def _(folder):
    m = G.model([G.node("Add", ["a", "b"], ["y"], name="culprit")],
                [G.value("a", ["n", 3]), G.value("b", [4, 3])], [G.value("y", None)])
    for bound in ("n<=3", "n<=9"):
        says(refusal(folder, m, "--dim", bound), "culprit", "do not broadcast", "--dim n=N")


@case("a dimension that does not exist is an error that lists those that do")
def _(folder):
    m = G.model([G.node("Relu", ["x"], ["y"])], [G.value("x", ["n"])], [G.value("y", ["n"])])
    says(refusal(folder, m, "--dim", "m=3"), "'m'", "'n'")


@case("sizes computed in i32 and in floats stay dimensions")
def _(folder):
    """Half of n, by way of Cast, Mul and Floor, as exporters write it."""
    m = G.model([G.node("Shape", ["x"], ["s"]), G.node("Gather", ["s", "zero"], ["n"], axis=0),
                 G.node("Cast", ["n"], ["f"], to=FLOAT), G.node("Mul", ["f", "half"], ["h"]),
                 G.node("Floor", ["h"], ["g"]), G.node("Cast", ["g"], ["i"], to=TensorProto.INT32),
                 G.node("Cast", ["i"], ["end"], to=INT64), G.node("Slice", ["x", "zero", "end"], ["y"])],
                [G.value("x", ["n", 2])], [G.value("y", None)],
                [ints("zero", 0), G.weight("half", np.float32(0.5))])
    for n in (1, 4, 7):
        x = draw(n, 2)
        check(run(folder, m, {"x": x}, "--dim", "n<=9")["y"], x[:n // 2])


@case("Reshape with symbols: copies, infers and multiplies them")
def _(folder):
    m = G.model([G.node("Shape", ["x"], ["s"]), G.node("Gather", ["s", "zero"], ["n"], axis=0),
                 G.node("Mul", ["n", "three"], ["m"]), G.node("Concat", ["m", "minus"], ["to"], axis=0),
                 G.node("Reshape", ["x", "to"], ["y"])],
                [G.value("x", ["n", 3, 4])], [G.value("y", None)],
                [ints("zero", 0), ints("three", 3), ints("minus", -1)])
    x = draw(5, 3, 4)
    check(run(folder, m, {"x": x}, "--dim", "n<=6")["y"], x.reshape(15, 4))


@case("matrix products over two open dimensions, of which neither fills a tile")
def _(folder):
    m = G.model([G.node("MatMul", ["x", "w"], ["h"]), G.node("Relu", ["h"], ["r"]), G.node("MatMul", ["r", "v"], ["y"])],
                [G.value("x", ["b", "s", 48])], [G.value("y", None)],
                [G.weight("w", draw(48, 64) / 8), G.weight("v", draw(64, 48) / 8)])
    for b, s in ((1, 1), (3, 9), (8, 32)):
        x = draw(b, s, 48)
        wanted = np.maximum(x @ (draw(48, 64) / 8), 0) @ (draw(64, 48) / 8)
        got = run(folder, m, {"x": x}, "--dim", "b<=8", "--dim", "s<=32")["y"]
        expect(np.abs(got - wanted).max() < 1e-4, f"off by {np.abs(got - wanted).max()} at {b}, {s}")


@case("a shape that is run-time data needs a bound, which run is told")
def _(folder):
    m = G.model([G.node("Reshape", ["x", "to"], ["y"], name="turn")],
                [G.value("x", [6]), G.value("to", [2], INT64)], [G.value("y", None)])
    says(refusal(folder, m), "node 0 'turn' (Reshape)", "known only at run time", "--dim to_0=..8")
    x = draw(6)
    check(run(folder, m, {"x": x, "to": np.array([2, 3])})["y"], x.reshape(2, 3))
    for shape in ([2, 3], [3, -1], [1, 6], [-1, 2], [0, 1]):
        got = run(folder, m, {"x": x, "to": np.array(shape)}, "--dim", "to_0<=6")["y"]
        check(got, x.reshape([6 if d == 0 else d for d in shape]))
    says(failure(folder, m, {"x": x, "to": np.array([4, 2])}, "--dim", "to_0<=6"), "cannot use")


# ------------------------------------------------------------------------ functions, subgraphs


def function_model():
    """twice(x; alpha = 0.5) = outer(x) + LeakyRelu(x, alpha), outer(x) = -x, in nested functions
    with opset imports of their own."""
    outer = helper.make_function("own", "outer", ["x"], ["y"], [G.node("Neg", ["x"], ["y"])],
                                 [helper.make_opsetid("", 13)])
    leaky = G.node("LeakyRelu", ["x"], ["r"])
    reference = onnx.AttributeProto(name="alpha", type=onnx.AttributeProto.FLOAT, ref_attr_name="alpha")
    leaky.attribute.append(reference)
    twice = helper.make_function(
        "own", "twice", ["x"], ["y"],
        [G.node("outer", ["x"], ["o"], domain="own"), leaky, G.node("Add", ["o", "r"], ["y"])],
        [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)],
        attribute_protos=[helper.make_attribute("alpha", 0.5)])
    return G.model([G.node("twice", ["x"], ["t"], domain="own"),
                    G.node("twice", ["t"], ["y"], domain="own", alpha=2.0)],
                   [G.value("x", [4])], [G.value("y", [4])], domains=["own"], functions=[outer, twice])


@case("local functions: nested, with attribute references and defaults")
def _(folder):
    x = draw(4)
    t = -x + np.where(x < 0, 0.5 * x, x)
    check(run(folder, function_model(), {"x": x})["y"], -t + np.where(t < 0, 2 * t, t))


def branch(name, nodes, outputs, weights=()):
    return helper.make_graph(list(nodes), name, [], list(outputs), list(weights))


def if_model(then, other, cond_nodes=(), inputs=(), weights=()):
    node = G.node("If", ["c"], ["y"], name="choose", then_branch=then, else_branch=other)
    return G.model([*cond_nodes, G.node("Relu", ["x"], ["r"]), node],
                   [G.value("x", [3]), *inputs], [G.value("y", None)], weights)


@case("If: branches see the outer values; a run-time condition picks one")
def _(folder):
    then = branch("then", [G.node("Add", ["r", "x"], ["t"])], [G.value("t", [3])])
    other = branch("other", [G.node("Neg", ["r"], ["e"])], [G.value("e", [3])])
    m = if_model(then, other, inputs=[G.value("c", [], BOOL)])
    x = draw(3)
    r = np.maximum(x, 0)
    check(run(folder, m, {"x": x, "c": np.array(True)})["y"], r + x)
    check(run(folder, m, {"x": x, "c": np.array(False)})["y"], -r)


@case("If: a condition that is known leaves one branch, whatever the other's shape")
def _(folder):
    then = branch("then", [G.node("Add", ["r", "x"], ["t"])], [G.value("t", [3])])
    other = branch("other", [G.node("ReduceSum", ["r"], ["e"], keepdims=0)], [G.value("e", [])])
    cond = [G.node("Size", ["x"], ["s"]), G.node("Equal", ["s", "three"], ["c"])]
    x = draw(3)
    m = if_model(then, other, cond, weights=[G.weight("three", np.array(3, np.int64))])
    check(run(folder, m, {"x": x})["y"], np.maximum(x, 0) + x)


@case("If: branches of two ranks under a run-time condition are refused by both shapes")
def _(folder):
    then = branch("then", [G.node("Add", ["r", "x"], ["t"])], [G.value("t", [3])])
    other = branch("other", [G.node("ReduceSum", ["r"], ["e"], keepdims=0)], [G.value("e", [])])
    says(refusal(folder, if_model(then, other, inputs=[G.value("c", [], BOOL)])),
         "'choose'", "f32[3] if the condition holds and f32 otherwise")


@case("If: branches of two shapes under a run-time condition give the true shape")
def _(folder):
    then = branch("then", [G.node("Concat", ["r", "x"], ["t"], axis=0)], [G.value("t", [6])])
    other = branch("other", [G.node("Neg", ["r"], ["e"])], [G.value("e", [3])])
    m = if_model(then, other, inputs=[G.value("c", [], BOOL)])
    x = draw(3)
    r = np.maximum(x, 0)
    check(run(folder, m, {"x": x, "c": np.array(True)})["y"], np.concatenate([r, x]))
    check(run(folder, m, {"x": x, "c": np.array(False)})["y"], -r)


@case("If: a branch that cannot work with the sizes at hand is a status, with a warning")
def _(folder):
    then = branch("then", [G.node("Add", ["r", "x"], ["t"])], [G.value("t", [3])])
    other = branch("other", [G.node("Add", ["r", "w"], ["e"])], [G.value("e", [3])], [G.weight("w", draw(5))])
    m = if_model(then, other, inputs=[G.value("c", [], BOOL)])
    x = draw(3)
    check(run(folder, m, {"x": x, "c": np.array(True)})["y"], np.maximum(x, 0) + x)
    says(failure(folder, m, {"x": x, "c": np.array(False)}), "cannot use")


def loop_model(body_nodes, body_outputs, inits, outputs, inputs, trip):
    """Loop over `trip`; the body sees i, go and the values named in inits."""
    body = helper.make_graph(
        list(body_nodes), "body",
        [G.value("i", [], INT64), G.value("go", [], BOOL)] + [G.value(f"{name}_in", None) for name in inits],
        [G.value("go_on", [], BOOL)] + [G.value(name, None) for name in body_outputs])
    node = G.node("Loop", ["trip", "", *inits], [value.name for value in outputs], name="again", body=body)
    return G.model([node], inputs, outputs, [G.weight("trip", np.array(trip, np.int64))])


@case("Loop: carried and stacked values")
def _(folder):
    nodes = [G.node("Identity", ["go"], ["go_on"]), G.node("Add", ["s_in", "x"], ["s"]),
             G.node("Neg", ["s"], ["row"])]
    m = loop_model(nodes, ["s", "row"], ["s0"], [G.value("total", None), G.value("rows", None)],
                   [G.value("x", [3]), G.value("s0", [3])], 4)
    m.graph.node[0].attribute[0].g.input[2].name = "s_in"
    x, s = draw(3), draw(3)
    out = run(folder, m, {"x": x, "s0": s})
    check(out["total"], s + 4 * x)
    check(out["rows"], np.stack([-(s + k * x) for k in range(1, 5)]))


@case("Loop: more of them than a word has bits, each of which uses its counter and what it does not change")
def _(folder):
    nodes, count = [], 70
    for k in range(count):
        body = helper.make_graph(
            [G.node("Identity", ["go"], ["go_on"]), G.node("Cast", ["i"], ["turn"], to=FLOAT), G.node("Tanh", ["x"], ["same"]),
             G.node("Mul", ["turn", "same"], ["term"]), G.node("Mul", ["s_in", "half"], ["less"]), G.node("Add", ["less", "term"], ["s_out"])],
            "body", [G.value("i", [], INT64), G.value("go", [], BOOL), G.value("s_in", None)], [G.value("go_on", [], BOOL), G.value("s_out", None)])
        nodes.append(G.node("Loop", ["trip", "", f"s{k}"], [f"s{k + 1}"], body=body))
    m = G.model(nodes, [G.value("x", [3]), G.value("s0", [3])], [G.value(f"s{count}", None)], [ints("trip", 3), G.weight("half", np.array(0.5, np.float32))])
    x, s = draw(3), draw(3)
    want = s
    for turn in list(range(3)) * count:
        want = want / 2 + turn * np.tanh(x)
    check(run(folder, m, {"x": x, "s0": s})[f"s{count}"], want)


@case("Loop: values that grow are unrolled")
def _(folder):
    nodes = [G.node("Identity", ["go"], ["go_on"]), G.node("Concat", ["s_in", "x"], ["s"], axis=0)]
    m = loop_model(nodes, ["s"], ["s0"], [G.value("total", None)], [G.value("x", [3]), G.value("s0", [1])], 3)
    m.graph.node[0].attribute[0].g.input[2].name = "s_in"
    x, s = draw(3), draw(1)
    check(run(folder, m, {"x": x, "s0": s})["total"], np.concatenate([s, x, x, x]))


@case("Scan: two states, axes and directions")
def _(folder):
    body = helper.make_graph(
        [G.node("Add", ["s_in", "x_at"], ["s"]), G.node("Mul", ["s", "x_at"], ["row"])], "body",
        [G.value("s_in", [2]), G.value("x_at", [2])], [G.value("s", [2]), G.value("row", [2])])
    m = G.model([G.node("Scan", ["s0", "x"], ["last", "rows"], body=body, num_scan_inputs=1,
                        scan_input_axes=[1], scan_input_directions=[1], scan_output_axes=[1])],
                [G.value("s0", [2]), G.value("x", [2, 5])], [G.value("last", None), G.value("rows", None)])
    s, x = draw(2), draw(2, 5)
    rows, state = [], s
    for k in range(4, -1, -1):
        state = state + x[:, k]
        rows.append(state * x[:, k])
    out = run(folder, m, {"s0": s, "x": x})
    check(out["last"], state)
    check(out["rows"], np.stack(rows, axis=1))


# ---------------------------------------------------------------- sequences, optionals, randomness


def list_type(inner, make=helper.make_sequence_type_proto):
    return make(helper.make_tensor_type_proto(inner, None))


def list_model(nodes, inputs, outputs, opset=18):
    graph = helper.make_graph(nodes, "g", [helper.make_value_info(*v) for v in inputs], outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


@case("a sequence at the border is its tensors")
def _(folder):
    m = list_model([G.node("SequenceInsert", ["s", "x", "at"], ["y"]),
                    G.node("SequenceLength", ["y"], ["n"])],
                   [("s", list_type(FLOAT)), ("x", helper.make_tensor_type_proto(FLOAT, [2]))],
                   [helper.make_value_info("y", list_type(FLOAT)), G.value("n", [], INT64)])
    m.graph.initializer.append(helper.make_tensor("at", INT64, [], [1]))
    items = [draw(2, 3), draw(4)]
    onnx.save(m, folder / "m.onnx")
    for k, item in enumerate(items):
        np.save(folder / f"s{k}.npy", item)
    np.save(folder / "x.npy", draw(2))
    T.must(T.run([TGC, "run", "m.onnx", "--target=c", "--shape", "s=[2x3,4]", "-i", "s[0]=s0.npy", "-i",
                  "s[1]=s1.npy", "-i", "x=x.npy", "--out-dir", "out"], cwd=folder, env=T.quickly()))
    for k, wanted in enumerate([items[0], draw(2), items[1]]):
        check(np.load(folder / "out" / f"y_{k}_.npy"), wanted)
    check(np.load(folder / "out" / "n.npy"), np.array(3))


@case("a sequence without --shape prints the option")
def _(folder):
    m = list_model([G.node("SequenceLength", ["s"], ["n"])], [("s", list_type(FLOAT))],
                   [G.value("n", [], INT64)])
    says(refusal(folder, m), "graph input 's'", "--shape 's=[2x3,2x3,scalar]'")
    says(refusal(folder, m, "--shape", "s=absent"), "only optionals can be")
    says(refusal(folder, m, "--shape", "t=[2]", "--shape", "s=[2]"), "gives a list for 't'")


@case("an optional is there or not")
def _(folder):
    def optional(inner):
        return helper.make_optional_type_proto(helper.make_tensor_type_proto(inner, [3]))
    m = list_model([G.node("OptionalHasElement", ["o"], ["y"])], [("o", optional(FLOAT))],
                   [G.value("y", [], BOOL)])
    check(run(folder, m, {"o": draw(3)})["y"], np.array(True))
    check(run(folder, m, {}, "--shape", "o=absent")["y"], np.array(False))


@case("an If chooses sequences of one length item by item, of other shapes too")
def _(folder):
    def branch(name, first, second):
        nodes = [G.node("SequenceConstruct", [first, second], [name]),
                 G.node("Optional", [name], [f"{name}_opt"])]
        kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(FLOAT, None))
        outputs = [helper.make_value_info(name, kind),
                   helper.make_value_info(f"{name}_opt", helper.make_optional_type_proto(kind))]
        return helper.make_graph(nodes, name, [], outputs)

    one = np.array(1)
    m = G.model([G.node("If", ["c"], ["s", "o"], then_branch=branch("then", "a", "b"),
                        else_branch=branch("else", "b", "a")),
                 G.node("SequenceAt", ["s", "k"], ["y"]), G.node("OptionalGetElement", ["o"], ["t"]),
                 G.node("ConcatFromSequence", ["t"], ["z"], axis=0)],
                [G.value("c", [], BOOL), G.value("a", [3, 4]), G.value("b", [2, 4])],
                [G.value("y", None), G.value("z", [5, 4])], [G.weight("k", one)], opset=18)
    a, b = draw(3, 4), draw(2, 4)
    for c in (True, False):
        got = run(folder, m, {"c": np.array(c), "a": a, "b": b})
        check(got["y"], b if c else a)
        check(got["z"], np.concatenate([a, b] if c else [b, a]))


@case("Bernoulli draws with the probabilities given")
def _(folder):
    p = np.repeat(np.array([0, 0.25, 0.9, 1], np.float32), 20000)
    m = G.model([G.node("Bernoulli", ["x"], ["y"], seed=3.0)], [G.value("x", [80000])],
                [G.value("y", [80000])])
    y = run(folder, m, {"x": p})["y"].reshape(4, -1)
    expect(set(np.unique(y)) <= {0, 1}, "values other than 0 and 1")
    expect((np.abs(y.mean(axis=1) - p.reshape(4, -1)[:, 0]) <= [0, 0.0125, 0.0085, 0]).all(),
           f"means {y.mean(axis=1)}")                         # four standard deviations


@case("an index of the run outside of its tensor is a status, under sanitizers")
def _(folder):
    x = draw(3, 4)
    nodes = {"Gather": (["x", "i"], [2], {"axis": 1}), "GatherElements": (["x", "i"], [3, 2], {"axis": 1}),
             "GatherND": (["x", "i"], [2, 2], {}), "ScatterElements": (["x", "i", "u"], [3, 2], {"axis": 1}),
             "ScatterND": (["x", "i", "u"], [2, 2], {})}
    for kind, (inputs, shape, more) in nodes.items():
        update = draw(3, 2) if kind == "ScatterElements" else draw(2)
        m = G.model([G.node(kind, inputs, ["y"], **more)], [G.value("i", shape, INT64)], [G.value("y", None)],
                    [G.weight("x", x), G.weight("u", update)])
        onnx.save(m, folder / "m.onnx")
        T.emit(TGC, folder / "m.onnx", folder / "m.c")
        T.build(folder / "m.c", folder / "m", "clang", T.SANITIZE, main_by=TGC)
        for bad in (4, -5, 2 ** 40, -2 ** 63, 2 ** 63 - 1):
            index = np.zeros(shape, np.int64)
            index.flat[-1] = bad
            np.save(folder / "i.npy", index)
            says(T.must(T.run([folder / "m", folder / "i.npy", "-o", folder]), 1).err, "cannot use")


@case("a size that the run finds may be the one that is needed; if not, that is a status")
def _(folder):
    def side(name, end):
        return helper.make_graph([G.node("Slice", ["x", "zero", end], [name])], name, [], [G.value(name, [f"n{name}"])])

    x, w, b = draw(8), draw(6, 2), draw(6)
    for node, answer in ((G.node("MatMul", ["s", "w"], ["y"]), x[:6] @ w), (G.node("Add", ["s", "b"], ["y"]), x[:6] + b)):
        m = G.model([G.node("If", ["c"], ["s"], then_branch=side("t", "six"), else_branch=side("e", "three")), node],
                    [G.value("c", [], BOOL), G.value("x", [8])], [G.value("y", None)],
                    [ints("zero", 0), ints("six", 6), ints("three", 3), G.weight("w", w), G.weight("b", b)])
        check(run(folder, m, {"c": np.array(True), "x": x})["y"], answer)
        says(run_status(folder, m, {"c": np.array(False), "x": x}), "do not go together")


@case("a range of floats that a dimension ends is as long as the dimension, optimized or not")
def _(folder):
    m = G.model([G.node("Shape", ["x"], ["d"], start=1), G.node("Cast", ["d"], ["f"], to=FLOAT),
                 G.node("Squeeze", ["f"], ["end"]), G.node("Range", ["zero", "end", "one"], ["r"]),
                 G.node("Add", ["r", "half"], ["places"]), G.node("Mul", ["x", "places"], ["y"])],
                [G.value("x", [2, "n"])], [G.value("y", [2, "n"])],
                [G.weight(n, np.array(v, np.float32)) for n, v in (("zero", 0), ("one", 1), ("half", 0.5))])
    onnx.save(m, folder / "m.onnx")
    for level in ("-O0", "-O2"):
        said = T.emit(TGC, folder / "m.onnx", folder / "m.c", "--dim", "n<=9", level).err
        expect("must be equal" not in said, said)
        T.build(folder / "m.c", folder / "m", main_by=TGC)
        for n in (1, 7, 9):
            x = draw(2, n)
            check(T.Program(folder / "m", ["y"]).run([x])["y"], x * (np.arange(n) + 0.5))


def convolve(x, w, stride, dilation, lo, hi):
    """1-D, in the order of the definition."""
    padded = np.pad(x, ((0, 0), (0, 0), (lo, hi)))
    reach = dilation * (w.shape[2] - 1) + 1
    places = range(0, padded.shape[2] - reach + 1, stride)
    return np.stack([np.einsum("nck,mck->nm", padded[:, :, o:o + reach:dilation], w) for o in places], -1)


@case("taps of a convolution that meet padding alone are left out")
def _(folder):
    random = np.random.default_rng(7)
    fewer = 0
    for trial in range(24):
        size, k, stride, dilation = (int(random.integers(1, n)) for n in (9, 6, 4, 9))
        reach = dilation * (k - 1) + 1
        lo, hi = (int(random.integers(0, 2 * dilation * k)) for _ in range(2))
        if size + lo + hi < reach:
            continue
        x, w = draw(2, 3, size), draw(4, 3, k)
        want = convolve(x, w, stride, dilation, lo, hi)
        m = G.model([G.node("Conv", ["x", "w"], ["y"], pads=[lo, hi], strides=[stride], dilations=[dilation])],
                    [G.value("x", x.shape)], [G.value("y", want.shape)], [G.weight("w", w)])
        check(run(folder, m, {"x": x}, *(["-O0"] if trial % 2 else []))["y"], want)
        fewer += T.info(TGC, folder / "m.onnx", "-O0")["flop"] < 2 * want.size * 3 * k
    expect(fewer >= 3, f"{fewer} convolutions have become smaller")


@case("Multinomial draws classes by their unnormalized log-probabilities")
def _(folder):
    p = np.array([[0.1, 0.2, 0.7], [0.5, 0.25, 0.25]], np.float32)
    m = G.model([G.node("Multinomial", ["x"], ["y"], sample_size=40000, dtype=INT64, seed=5.0)],
                [G.value("x", [2, 3])], [G.value("y", [2, 40000], INT64)])
    y = run(folder, m, {"x": np.log(p) + 3})["y"]
    found = np.stack([np.bincount(row, minlength=3) / 40000 for row in y])
    expect(found.shape == p.shape and np.abs(found - p).max() < 0.01, f"{found}, expected {p}")


def roi_model(kind, rois, **attributes):
    inputs = ["x", "r"] if kind == "MaxRoiPool" else ["x", "r", "b"]
    values = [G.value("x", [2, 1, 6, 8]), G.value("r", list(rois.shape))]
    values += [G.value("b", [len(rois)], INT64)] * (kind == "RoiAlign")
    return G.model([G.node(kind, inputs, ["y"], **attributes)], values,
                   [G.value("y", [len(rois), 1, 2, 3])])


@case("MaxRoiPool takes the largest of what a bin touches")
def _(folder):
    x = draw(2, 1, 6, 8)
    rois = np.array([[0, 1, 1, 6, 4], [1, 0, 0, 7, 5], [1, -3, 2, 20, 3], [0, 30, 30, 40, 40]], np.float32)

    def pool(image, x1, y1, x2, y2):
        y = np.zeros((2, 3), np.float32)
        height, width = max(y2 - y1 + 1, 1), max(x2 - x1 + 1, 1)
        for i in range(2):
            for j in range(3):
                rows = slice(max(0, y1 + i * height // 2), max(0, y1 - (-(i + 1) * height // 2)))
                columns = slice(max(0, x1 + j * width // 3), max(0, x1 - (-(j + 1) * width // 3)))
                part = x[image, 0, rows, columns]
                y[i, j] = part.max() if part.size else 0
        return y

    want = np.stack([pool(*map(int, roi)) for roi in rois])[:, None]
    m = roi_model("MaxRoiPool", rois, pooled_shape=[2, 3])
    check(run(folder, m, {"x": x, "r": rois})["y"], want)
    rois[0, 0] = 2
    says(run_status(folder, m, {"x": x, "r": rois}), "an input holds a value")
    rois[0, 0] = np.nan
    says(run_status(folder, m, {"x": x, "r": rois}), "an input holds a value")


def sample(plane, y, x):
    """Between the plane's points: 0 outside, else the sum of the four around."""
    if not (-1 <= y <= plane.shape[0] and -1 <= x <= plane.shape[1]):
        return 0
    y, x = max(y, 0), max(x, 0)
    at = [min(int(y), plane.shape[0] - 1), min(int(x), plane.shape[1] - 1)]
    after = [min(at[0] + 1, plane.shape[0] - 1), min(at[1] + 1, plane.shape[1] - 1)]
    dy, dx = (y - at[0] if after[0] > at[0] else 0), (x - at[1] if after[1] > at[1] else 0)
    parts = [(1 - dy) * (1 - dx) * plane[at[0], at[1]], (1 - dy) * dx * plane[at[0], after[1]], dy * (1 - dx) * plane[after[0], at[1]], dy * dx * plane[after[0], after[1]]]
    return sum(parts)


@case("RoiAlign without a sampling ratio takes as many samples as the region has pixels")
def _(folder):
    x = draw(2, 1, 6, 8)
    rois, image = np.array([[0, 0, 8, 6], [1, 1, 7, 5]], np.float32), np.array([0, 1], np.int64)
    for mode in ("avg", "max"):
        shape = {"output_height": 2, "output_width": 3, "mode": mode}
        got = {}
        for ratio in (0, 3, 2):
            m = roi_model("RoiAlign", rois, sampling_ratio=ratio, **shape)
            got[ratio] = run(folder, m, {"x": x, "r": rois, "b": image})["y"]
        # 8 x 6 in 2 x 3 bins: 3 rows, ceil(8 / 3) columns of samples; 6 x 4: 2 by 2
        check(got[0][:1], got[3][:1])
        check(got[0][1:], got[2][1:])
        m = roi_model("RoiAlign", rois, **shape)
        # samples outside of the image are zeros, and not visited: some of 65,536 x 65,536 a box, else it would take minutes
        huge = np.array([[-60000, -60000, 130000, 70000], [20, 0, 130000, 70000]], np.float32)
        y = run(folder, m, {"x": np.abs(x), "r": huge, "b": image})["y"].reshape(-1)
        expect(not y[6:].any() and (y[:6].any() if mode == "avg" else y[:6].max() > 0), f"{mode}: {y}")
        part = np.array([[-4, -3, 12, 9], [-4, -3, 12, 9]], np.float32)
        want = np.zeros((2, 1, 2, 3), np.float32)
        inside = np.abs(x) if mode == "avg" else -np.abs(x)
        for r in range(2):
            for i in range(2):
                for j in range(3):
                    found = [sample(inside[r, 0], -3 + 6 * i + (v + 0.5) * 1.0, -4 + 16 / 3 * j + (u + 0.5) * (16 / 18)) for v in range(6) for u in range(6)]
                    want[r, 0, i, j] = np.mean(found) if mode == "avg" else np.max(found)
        legacy = roi_model("RoiAlign", part, **shape, coordinate_transformation_mode="output_half_pixel")
        check(run(folder, legacy, {"x": inside, "r": part, "b": image})["y"], want)
    for wrong in (np.inf, 1e9, np.nan):
        rois[1, 2] = wrong
        says(run_status(folder, m, {"x": x, "r": rois, "b": image}), "an input holds a value")


@case("the first versions of recurrent layers, Upsample and norms")
def _(folder):
    x = draw(5, 2, 3)
    for kind, gates in (("GRU", 3), ("LSTM", 4), ("RNN", 1)):
        w, r = draw(1, gates * 4, 3), draw(1, gates * 4, 4)
        got = []
        for opset, more in ((1, {"output_sequence": 1}), (7, {})):
            m = G.model([G.node(kind, ["x", "w", "r"], ["y"], hidden_size=4, **more)],
                        [G.value("x", [5, 2, 3])], [G.value("y", [5, 1, 2, 4])],
                        [G.weight("w", w), G.weight("r", r)], opset=opset)
            got.append(run(folder, m, {"x": x})["y"])
        check(*got)
    x = draw(1, 2, 2, 3)
    m = G.model([G.node("Upsample", ["x"], ["y"], height_scale=2.0, width_scale=3.0)],
                [G.value("x", [1, 2, 2, 3])], [G.value("y", [1, 2, 4, 9])], opset=1)
    check(run(folder, m, {"x": x})["y"], x.repeat(2, 2).repeat(3, 3))
    scale, bias = draw(2), draw(2)
    m = G.model([G.node("InstanceNormalization", ["x", "s", "b"], ["y"], consumed_inputs=[0, 0, 0])],
                [G.value("x", [1, 2, 2, 3])], [G.value("y", [1, 2, 2, 3])],
                [G.weight("s", scale), G.weight("b", bias)], opset=1)
    want = (x - x.mean((2, 3), keepdims=True)) / np.sqrt(x.var((2, 3), keepdims=True) + 1e-5)
    check(run(folder, m, {"x": x})["y"], want * scale[:, None, None] + bias[:, None, None])
    parameters = [draw(2, 2, 3), draw(2, 2, 3) + 1, draw(2, 2, 3), draw(2, 2, 3) ** 2 + 1]
    x = draw(4, 2, 2, 3)
    m = G.model([G.node("BatchNormalization", ["x", *"sbmv"], ["y"], spatial=0)],
                [G.value("x", [4, 2, 2, 3])], [G.value("y", [4, 2, 2, 3])],
                [G.weight(n, p) for n, p in zip("sbmv", parameters)], opset=7)
    s, b, mean, var = parameters
    check(run(folder, m, {"x": x})["y"], (x - mean) / np.sqrt(var + 1e-5) * s + b)


@case("recurrent layers of no step end as they start")
def _(folder):
    h0, c0 = draw(2, 2, 4), draw(2, 2, 4)
    for kind, gates in (("GRU", 3), ("LSTM", 4), ("RNN", 1)):
        starts = {"h0": h0} | ({"c0": c0} if kind == "LSTM" else {})
        outputs = ["y", "h", "c"][:1 + len(starts)]
        m = G.model([G.node(kind, ["x", "w", "r", "", "", *starts], outputs, hidden_size=4, direction="bidirectional")],
                    [G.value("x", [0, 2, 3]), *[G.value(n, a.shape) for n, a in starts.items()]],
                    [G.value(n, None) for n in outputs],
                    [G.weight("w", draw(2, gates * 4, 3)), G.weight("r", draw(2, gates * 4, 4))])
        got = run(folder, m, {"x": np.zeros((0, 2, 3), np.float32), **starts})
        expect(got["y"].shape == (0, 2, 2, 4), f"{got['y'].shape}")
        for name, start in zip(outputs[1:], starts.values()):
            check(got[name], start)


@case("the first versions of operators whose attributes and inputs changed places")
def _(folder):
    x, image = draw(2, 3, 4), draw(1, 2, 3, 4)
    column = x[0, :, 0].copy()
    scale, bias, mean, var = (draw(2) + k for k in range(4))
    batch, spread = image.mean((0, 2, 3)), image.var((0, 2, 3))
    wide = (slice(None), None, None)

    def normal(mean, var):
        return (image - mean[wide]) / np.sqrt(var[wide] + 1e-5) * scale[wide] + bias[wide]

    norm = {"s": scale, "b": bias, "m": mean, "v": var}
    trained = [normal(batch, spread), mean * 0.9 + batch * 0.1, var * 0.9 + spread * 0.1, batch, spread]
    floats = {n: np.array(v, np.float32) for n, v in (("three", [3]), ("one", [1]), ("parts", [1, 3]))}
    powers = sum(abs(image[:, :, i:2 + i, j:3 + j]) ** 3 for i in (0, 1) for j in (0, 1))
    for opset, kind, data, weights, attributes, *wanted in (
            (1, "Add", x, {"c": column}, dict(broadcast=1, axis=1), x + column[:, None]),
            (6, "Pow", x, {"c": np.float32([2])}, dict(broadcast=1), x ** 2),
            (1, "Concat", x, {}, {}, x),
            (1, "Pad", x, {}, dict(paddings=[0, 1, 0, 0, 0, 2], value=3.0),
             np.pad(x, ((0, 0), (1, 0), (0, 2)), constant_values=3)),
            (2, "Pad", x, {}, dict(pads=[0, 1, 0, 0, 0, 2], mode="reflect"),
             np.pad(x, ((0, 0), (1, 0), (0, 2)), mode="reflect")),
            (1, "Reshape", x, {}, dict(shape=[0, -1]), x.reshape(2, 12)),
            (1, "Slice", x, {}, dict(starts=[-2, 1], ends=[99, 3], axes=[2, 1]), x[:, 1:3, -2:]),
            (1, "Split", x, {}, dict(split=[1, 3], axis=2), x[..., :1], x[..., 1:]),
            (1, "Split", x, {"parts": floats["parts"]}, dict(axis=2), x[..., :1], x[..., 1:]),
            (1, "Tile", x, {"three": floats["three"], "one": floats["one"]}, {}, np.tile(x, (1, 3, 1))),
            (1, "LpPool", image, {}, dict(kernel_shape=[2, 2], p=3.0), powers ** (1 / 3)),
            (1, "GlobalLpPool", image, {}, dict(p=3.0), (abs(image) ** 3).sum((2, 3), keepdims=True) ** (1 / 3)),
            (6, "PRelu", x, {"c": column}, {}, np.where(x < 0, x * column[:, None], x)),
            (1, "Hardmax", x, {}, {}, np.eye(12, dtype=np.float32)[x.reshape(2, 12).argmax(1)].reshape(x.shape)),
            (1, "BatchNormalization", image, norm, dict(is_test=1, consumed_inputs=[0] * 5), normal(mean, var)),
            (6, "BatchNormalization", image, norm, {}, *trained),
            (9, "BatchNormalization", image, norm, {}, *trained),
            (6, "Dropout", x, {}, dict(is_test=1), x)):
        outputs = [f"y{k}" for k in range(len(wanted))]
        m = G.model([G.node(kind, ["x", *weights], outputs, **attributes)], [G.value("x", data.shape)],
                    [G.value(n, None) for n in outputs], [G.weight(n, w) for n, w in weights.items()], opset=opset)
        got = run(folder, m, {"x": data})
        for name, want in zip(outputs, wanted):
            expect(got[name].shape == want.shape and np.allclose(got[name], want, 1e-4, 1e-5),
                   f"{kind} of opset {opset}, {name}: {got[name]}\nexpected\n{want}")


# -------------------------------------------------------------------------------------- strings

STRING = TensorProto.STRING


def build_and_run(folder, model, inputs, status=0):
    """As run() and run_status(), through C: .npy files of strings are the programs' own. A model is built once."""
    data = model.SerializeToString()
    folder = folder / hashlib.sha256(data).hexdigest()[:8]
    if not (folder / "m").exists():
        folder.mkdir()
        (folder / "m.onnx").write_bytes(data)
        T.emit(TGC, folder / "m.onnx", folder / "m.c")
        T.must(T.run(["g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-Wno-deprecated", "-fsyntax-only", "-x", "c++",
                      "m.c"], cwd=folder))
        T.build(folder / "m.c", folder / "m", "clang", T.SANITIZE, main_by=TGC)
    program = T.Program(folder / "m", [value.name for value in model.graph.output])
    if not status:
        return program.run(list(inputs.values()))
    np.save(folder / "x.npy", *inputs.values())
    return T.must(T.run([folder / "m", folder / "x.npy", "-o", folder]), status).err


def cast_model(size, there, back):
    return G.model([G.node("Cast", ["x"], ["s"], to=STRING), G.node("Cast", ["s"], ["y"], to=back)],
                   [G.value("x", [size], there)], [G.value("s", [size], STRING), G.value("y", [size], back)],
                   opset=19)


@case("numbers become strings that read back the same")
def _(folder):
    random = np.random.default_rng(3)
    for dtype, code in ((np.float32, FLOAT), (np.float64, TensorProto.DOUBLE)):
        bits = random.integers(0, 2 ** 63, 400).astype(np.uint64) * 2
        x = (bits.view(np.float64) if dtype == np.float64 else bits.astype(np.uint32).view(np.float32))
        x = np.concatenate([x, np.array([0, -0.0, np.inf, -np.inf, np.nan, 0.1, 314.25, 1e-5], dtype)])
        got = build_and_run(folder, cast_model(len(x), code, code), {"x": x})
        expect(np.array_equal(got["y"], x, equal_nan=True), "a float changed")
        expect(list(got["s"][-6:]) == ["INF", "-INF", "NaN", "0.1", "314.25", "1e-05"], f"{got['s'][-6:]}")
    for dtype, code in ((np.int64, INT64), (np.uint64, TensorProto.UINT64), (np.int8, TensorProto.INT8)):
        x = np.array([np.iinfo(dtype).min, np.iinfo(dtype).max, 0, 7], dtype)
        got = build_and_run(folder, cast_model(4, code, code), {"x": x})
        expect(np.array_equal(got["y"], x) and list(got["s"]) == [str(v) for v in x], f"{got}")


@case("strings become numbers, or a status")
def _(folder):
    def model(to):
        return G.model([G.node("Cast", ["x"], ["y"], to=to)], [G.value("x", [8], STRING)],
                       [G.value("y", [8], to)], opset=19)

    text = np.array(["100.5", " 7 ", "1e2", "-3", "+4", "1E-5", "99999999999999999999", "-0"])
    check(build_and_run(folder, model(FLOAT), {"x": text})["y"], np.array([float(t) for t in text], np.float32))
    got = build_and_run(folder, model(INT64), {"x": text})["y"]
    check(got, np.array([100, 7, 100, -3, 4, 0, 2 ** 63 - 1, 0]))
    special = np.array(["nan", "INF", "-inf", "+INF", "1", "2", "3", "4"])
    got = build_and_run(folder, model(FLOAT), {"x": special})["y"]
    expect(np.array_equal(got, special.astype(np.float32), equal_nan=True), f"{got}")
    for wrong in ("Hello World!", "", "0x10", "1 2", "1.2.3", "nan(1)", "infinite"):
        says(build_and_run(folder, model(FLOAT), {"x": np.array([wrong] * 8)}, 1), "an input holds a value")
    says(build_and_run(folder, model(INT64), {"x": np.array(["NaN"] * 8)}, 1), "an input holds a value")


@case("strings are padded, repeated, told apart, carried by a loop")
def _(folder):
    x = np.array([["b", "a"], ["", "b"]])
    body = helper.make_graph(
        [G.node("Identity", ["c"], ["c2"]), G.node("Transpose", ["h"], ["h2"])], "body",
        [G.value("i", [], INT64), G.value("c", [], BOOL), G.value("h", [2, 2], STRING)],
        [G.value("c2", [], BOOL), G.value("h2", [2, 2], STRING)])
    m = G.model([G.node("Pad", ["x", "pads", "value"], ["padded"]),
                 G.node("Unique", ["x"], ["unique", "", "inverse"]),
                 G.node("NonZero", ["x"], ["some"]),
                 G.node("Resize", ["x", "", "scales"], ["twice"], mode="nearest"),
                 G.node("Trilu", ["x"], ["upper"]),
                 G.node("Loop", ["three", "", "x"], ["turned"], body=body)],
                [G.value("x", [2, 2], STRING)],
                [G.value("padded", [2, 4], STRING), G.value("unique", ["k"], STRING),
                 G.value("inverse", [4], INT64), G.value("some", [2, "n"], INT64),
                 G.value("twice", [2, 4], STRING), G.value("upper", [2, 2], STRING),
                 G.value("turned", [2, 2], STRING)],
                [ints("pads", 0, 1, 0, 1), G.weight("value", np.array("?", object)), ints("three", 3),
                 G.weight("scales", np.array([1, 2], np.float32))], opset=19)
    got = build_and_run(folder, m, {"x": x})
    unique, inverse = np.unique(x, return_inverse=True)
    want = {"padded": np.pad(x, ((0, 0), (1, 1)), constant_values="?"), "unique": unique,
            "inverse": inverse.ravel(), "some": np.array(np.nonzero(x != "")),
            "twice": x.repeat(2, 1), "upper": np.array([["b", "a"], ["", "b"]]), "turned": x.T}
    for name, expected in want.items():
        expect(np.array_equal(got[name], expected), f"{name}: {got[name]}, expected {expected}")


@case("NonZero of what is known has its shape at compile time")
def _(folder):
    some = np.array([[0, 3, 0], [4, 0, 5]], np.float32)
    x = draw(4, 6)
    m = G.model([G.node("ConstantOfShape", ["four"], ["ones"], value=helper.make_tensor("v", INT64, [1], [1])),
                 G.node("NonZero", ["ones"], ["row"]), G.node("Transpose", ["row"], ["rows"], perm=[1, 0]),
                 G.node("Squeeze", ["rows", "one"], ["list"]), G.node("Gather", ["x", "list"], ["same"]),
                 G.node("NonZero", ["some"], ["at"]), G.node("Gather", ["x", "at"], ["picked"], axis=1),
                 G.node("ConstantOfShape", ["four"], ["zeros"], value=helper.make_tensor("v", INT64, [1], [0])),
                 G.node("NonZero", ["zeros"], ["none"])],
                [G.value("x", [4, 6])], [G.value("same", [4, 6]), G.value("picked", [4, 2, 3]),
                                         G.value("none", [1, 0], INT64)],
                [ints("four", 4), ints("one", 1), G.weight("some", some)])
    got = build_and_run(folder, m, {"x": x})
    expect(np.array_equal(got["same"], x), "all rows are the tensor")
    expect(np.array_equal(got["picked"], x[:, np.array(np.nonzero(some))]), f"{got['picked']}")
    expect(got["none"].shape == (1, 0), f"{got['none'].shape}")
    expect("nonzero" not in next(folder.glob("*/m.c")).read_text().replace("NonZero", "").lower(), "a run looks for what is known")


@case("floats of 6 bits: packed weights, casts, quantization")
def _(folder):
    import ml_dtypes
    x = np.concatenate([draw(90) * 4, np.array([np.inf, -np.inf, 7.5, 7.75, 28, 30, 0.03], np.float32)])
    for kind, dtype in (("FLOAT6E2M3", ml_dtypes.float6_e2m3fn), ("FLOAT6E3M2", ml_dtypes.float6_e3m2fn)):
        code = getattr(TensorProto, kind)
        with np.errstate(invalid="ignore"):
            want = np.clip(x, -28, 28).astype(dtype).astype(np.float32)
        for raw in (True, False):
            weight = helper.make_tensor("w", code, [97], want.astype(dtype) if raw else want, raw=raw)
            m = G.model([G.node("Cast", ["x"], ["n"], to=code), G.node("Cast", ["n"], ["y"], to=FLOAT),
                         G.node("Cast", ["w"], ["z"], to=FLOAT),
                         G.node("QuantizeLinear", ["x", "one"], ["q"], output_dtype=code),
                         G.node("DequantizeLinear", ["q", "one"], ["d"])],
                        [G.value("x", [97])], [G.value(n, [97]) for n in "yzd"],
                        [weight, G.weight("one", np.array(1, np.float32))], opset=28)
            got = run(folder, m, {"x": x})
            for name in "yzd":
                check(got[name], want)


@case("Split in equal parts of an open axis")
def _(folder):
    outputs = [G.value(name, [f"{name}0", 2]) for name in "abc"]
    for opset, more in ((18, {"num_outputs": 3}), (13, {}), (11, {})):
        m = G.model([G.node("Split", ["x"], ["a", "b", "c"], axis=0, **more)], [G.value("x", ["h", 2])], outputs, opset=opset)
        for h in (0, 1, 4, 6) if opset == 18 else (0, 6):
            x, part = draw(h, 2), -(-h // 3)
            got = run(folder, m, {"x": x}, "--dim=h=..9")
            for k, name in enumerate("abc"):
                check(got[name], x[k * part:(k + 1) * part])
    says(run_status(folder, m, {"x": draw(4, 2)}, "--dim=h=..9"), "the run-time dimensions do not go together")


@case("a dimension with a lower bound: slices that need it, the status, the header, the text")
def _(folder):
    m = G.model([G.node("Slice", ["x", "zero", "two"], ["a"]), G.node("Slice", ["x", "two", "end"], ["b"]), G.node("Concat", ["b", "a"], ["y"], axis=0)],
                [G.value("x", ["h", 2])], [G.value("y", ["h", 2])], [ints("zero", 0), ints("two", 2), ints("end", 1 << 40)])
    for h in (2, 5, 9):
        x = draw(h, 2)
        check(run(folder, m, {"x": x}, "--dim=h=2..9")["y"], np.concatenate([x[2:], x[:2]]))
    says(run_status(folder, m, {"x": draw(1, 2)}, "--dim=h=2..9"), "'x'", "2")
    T.must(T.run([TGC, "m.onnx", "-o", "m.c", "--dim=h=2..9"], cwd=folder))
    header = (folder / "m.h").read_text()
    says(header, "#define M_MAX_H 9", "#define M_MIN_H 2", "2 to 9")
    says((folder / "m.c").read_text(), "in->dim_h < 2", "return M_DIM_OUT_OF_RANGE")
    T.must(T.run([TGC, "m.onnx", "-o", "m.tg", "--dim=h=2..9"], cwd=folder))
    text = (folder / "m.tg").read_text()
    says(text, "f32[2<=h<=9, 2]")
    T.must(T.run([TGC, "m.tg", "-o", "n.tg"], cwd=folder))
    expect((folder / "n.tg").read_text() == text, "what is read is not what was written")
    T.must(T.run([TGC, "m.tg", "-o", "n.tg", "--dim=h=3..5"], cwd=folder))
    says((folder / "n.tg").read_text(), "f32[3<=h<=5, 2]")
    expect("M_MIN_H" not in T.must(T.run([TGC, "m.onnx", "-o", "m.c", "--dim=h=..9"], cwd=folder)).err + (folder / "m.h").read_text(), "a least size of 0 has a macro")

@case("sizes that messages propose were tried: a window, skips, branches, a least size, and none that works")
def _(folder):
    def proposed(m, *options):
        """The options that the message has, each of which compiles."""
        text = refusal(folder, m, *options)
        lines = [line.split() for line in text.splitlines() if line.strip().startswith("--dim")]
        for words in lines:
            T.must(T.run([TGC, "m.onnx", "-o", "m.c", *words], cwd=folder))
            (folder / "m.c").unlink()
        return text, [" ".join(words) for words in lines]

    plain = G.model([G.node("Relu", ["x"], ["y"])], [G.value("x", ["n", "h"])], [G.value("y", ["n", "h"])])
    expect(proposed(plain)[1] == ["--dim n=1 --dim h=1", "--dim n=..8 --dim h=..8"], "all sizes work")
    window = G.model([G.node("Conv", ["x", "w"], ["y"])], [G.value("x", ["n", 1, "h"])], [G.value("y", ["n", 1, "r"])], [G.weight("w", draw(1, 1, 200))])
    expect(proposed(window)[1] == ["--dim n=1 --dim h=224", "--dim n=..8 --dim h=..256"], f"{proposed(window)}")
    for given in ("--dim=h=1", "--dim=h=..8"):
        text, lines = proposed(window, "--dim=n=1", given)
        says(text, "does not fit", "other sizes work")
        expect(lines and all("h=" in line for line in lines), text)
    halves = G.model([G.node("MaxPool", ["x"], ["d"], kernel_shape=[16, 16], strides=[16, 16]),
                      G.node("Resize", ["d", "", "scales"], ["u"]), G.node("Add", ["x", "u"], ["y"])],
                     [G.value("x", [1, 3, "h", "w"])], [G.value("y", [1, 3, "h", "w"])], [G.weight("scales", np.array([1, 1, 16, 16], np.float32))])
    expect(proposed(halves)[1][0] == "--dim h=16 --dim w=16", f"{proposed(halves)}")

    def branch(name, size):
        return helper.make_graph([G.node("Conv", ["x", f"w{size}"], [f"{name}_c"]), G.node("ReduceMean", [f"{name}_c"], [name], axes=[2], keepdims=0)], name, [], [G.value(name, [1, 1])])

    choice = G.model([G.node("If", ["c"], ["y"], then_branch=branch("t", 60), else_branch=branch("e", 30))], [G.value("c", [], BOOL), G.value("x", [1, 1, "h"])],
                     [G.value("y", [1, 1])], [G.weight("w60", draw(1, 1, 60)), G.weight("w30", draw(1, 1, 30))])
    text, lines = proposed(choice, "--dim=h=..8")
    says(text, "neither branch works", "other sizes work")
    expect(lines[0] == "--dim h=64", f"{lines}: of 32, one branch works")
    never = G.model([G.node("Concat", ["x", "k"], ["y"], axis=1)], [G.value("x", ["h", 3])], [G.value("y", None)], [G.weight("k", draw(5003, 2))])
    text, lines = proposed(never)
    says(text, "this dimension is unknown: 'h'", "no size that was tried works", "5003")
    expect(not lines, text)


suite.main()
