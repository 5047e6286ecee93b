"""Gradient (ai.onnx.preview.training) against differences: the derivative of the sum of an
expression's result, weighted at random, by each input, in f64.
"""

import json
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import graphs as G
import tgc as T
from suite import expect

DOUBLE, INT64 = TensorProto.DOUBLE, TensorProto.INT64
OPSET, STEP = 20, 1e-5


def model(nodes, variables, outputs, weights=(), opset=OPSET):
    graph = helper.make_graph(
        nodes, "gradient", [G.value(n, list(a.shape), DOUBLE) for n, a in variables.items()],
        [G.value(name, None, DOUBLE) for name in outputs], [G.weight(n, a) for n, a in weights])
    return helper.make_model(graph, ir_version=8, opset_imports=[
        helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.preview.training", 1)])


def gradient(inputs, outputs, xs, y, zs=None, name="g"):
    more = {"zs": zs} if zs else {}
    return helper.make_node("Gradient", inputs, outputs, name=name, domain="ai.onnx.preview.training",
                            xs=xs, y=y, **more)


def close(name, got, want):
    expect(got.shape == want.shape and np.allclose(got, want, 1e-4, 1e-6),
           f"{name}: {got.ravel()[:8]}\nexpected {want.ravel()[:8]}")


def weighted(nodes, variables, shape, weights, opset):
    """The model of the gradients of the sum of r, times random numbers of r's shape, and these."""
    factor = np.random.default_rng(5).standard_normal(shape)
    names = list(variables)
    whole = [*nodes, G.node("Mul", ["r", "factor"], ["weighted"]),
             G.node("ReduceSum", ["weighted"], ["y"], keepdims=0),
             gradient(names, [f"d_{n}" for n in names], names, "y")]
    return model(whole, variables, [f"d_{n}" for n in names], [*weights, ("factor", factor)], opset), factor


def draw(*shape, low=None):
    random = np.random.default_rng(sum(shape) + 3)
    return random.standard_normal(shape) if low is None else random.uniform(low, low + 2, shape)


def one(kind, inputs, **attributes):
    return [G.node(kind, inputs, ["r"], **attributes)]


def ints(*values):
    return np.array(values, np.int64)


class Gradients:
    """The cases of one suite: a tgc and a folder for each."""

    def __init__(self, options, name):
        self.tgc = T.find_tgc(options.build).resolve()
        # A C compiler takes most of a case's time, and is not what is tested.
        self.target = "llvm" if T.has_llvm(self.tgc) and not options.all else "c"
        self.scratch = T.scratch(Path(options.build).resolve() / "test-scratch" / name)

    def folder(self, name, m):
        folder = T.scratch(self.scratch / name.replace("/", "_"))
        onnx.save(m, folder / "m.onnx")
        return folder

    def run(self, name, m, variables, options=()):
        folder = self.folder(name, m)
        words = []
        for name, array in variables.items():
            np.save(folder / f"{name}.npy", array)
            words += ["-i", f"{name}={name}.npy"]
        T.must(T.run([self.tgc, "run", "m.onnx", f"--target={self.target}", *options, *words, "--out-dir", "out"], cwd=folder,
                     env=T.quickly() if self.target == "c" else None))
        return {p.stem: np.load(p) for p in (folder / "out").glob("*.npy")}

    def refused(self, name, m):
        """The message with which the model is refused."""
        return T.must(T.run([self.tgc, "m.onnx", "-o", "m.c"], cwd=self.folder(name, m)), 1).err

    def text(self, name, m, form="tg"):
        """The graph, as text; or the C."""
        folder = self.folder(name, m)
        T.must(T.run([self.tgc, "m.onnx", "-o", f"m.{form}"], cwd=folder))
        return (folder / f"m.{form}").read_text()

    def arena(self, name, m):
        return json.loads(T.must(T.run([self.tgc, "info", "--json", "m.onnx"], cwd=self.folder(name, m))).out)["arena_bytes"]

    def check(self, name, nodes, variables, weights=(), opset=OPSET):
        """nodes make r out of the variables; y is the sum of r times fixed random numbers."""
        forward = ReferenceEvaluator(model(nodes, variables, ["r"], weights, opset))
        names = list(variables)
        m, factor = weighted(nodes, variables, forward.run(None, variables)[0].shape, weights, opset)
        got = self.run(name, m, variables)
        for n in names:
            want = np.zeros(variables[n].shape)
            for i in np.ndindex(*want.shape):
                sides = []
                for sign in (1, -1):
                    moved = {**variables, n: variables[n].copy()}
                    moved[n][i] += sign * STEP
                    sides.append((forward.run(None, moved)[0] * factor).sum())
                want[i] = (sides[0] - sides[1]) / (2 * STEP)
            close(f"{name}: d{n}", got[f"d_{n}"], want)

    def along(self, name, nodes, variables, weights=(), twice=False, opset=OPSET):
        """check() where tgc itself is the function: along one random direction of all variables. twice: also
        the gradient of the sum of the gradients' squares. Returns the gradients."""
        forward = model(nodes, variables, ["r"], weights, opset)
        m, factor = weighted(nodes, variables, self.run(name, forward, variables)["r"].shape, weights, opset)
        names = list(variables)
        got = self.run(name, m, variables)
        if twice:
            squares = [G.node("ReduceSumSquare", [f"d_{n}"], [f"q_{n}"], keepdims=0) for n in names]
            seconds = [f"dd_{n}" for n in names]
            second = model([*m.graph.node, *squares, G.node("Sum", [f"q_{n}" for n in names], ["q"]),
                            gradient(names, seconds, names, "q", None, "second")], variables, seconds,
                           [*weights, ("factor", factor)], opset)
            got |= self.run(f"{name}, twice", second, variables)
        random = np.random.default_rng(11)
        ways = {n: random.standard_normal(a.shape) for n, a in variables.items()}
        side, size = [], []
        for sign in (1, -1):
            moved = {n: a + sign * STEP * ways[n] for n, a in variables.items()}
            side.append((self.run(f"{name}, side", forward, moved)["r"] * factor).sum())
            if twice:
                size.append(sum((d ** 2).sum() for d in self.run(f"{name}, side", m, moved).values()))
        close(f"{name}: d", sum((got[f"d_{n}"] * ways[n]).sum() for n in names),
              np.array(side[0] - side[1]) / (2 * STEP))
        if twice:
            close(f"{name}: dd", sum((got[f"dd_{n}"] * ways[n]).sum() for n in names),
                  np.array(size[0] - size[1]) / (2 * STEP))
        return got

    def at(self, name, nodes, x, want, weights=(), opset=OPSET):
        """The gradient of y at a point where it is a choice, or where differences fail."""
        m = model([*nodes, gradient(["x"], ["d"], ["x"], "y")], {"x": x}, ["d"], weights, opset)
        close(name, self.run(name, m, {"x": x})["d"], np.array(want))
