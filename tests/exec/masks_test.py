"""Attention under masks by place (passes/online.c, visible.c, places.c): however a model spells its mask, the
answer is NumPy's; what a mask hides is not computed, and what is data is.
"""

import json
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "lib")]

import numpy as np
import onnx
from onnx import TensorProto, helper

import graphs as G
import tgc as T
from suite import Suite, expect

suite = Suite("masks")
OPTIONS = suite.parse()
TGC = T.find_tgc(OPTIONS.build).resolve()
SCRATCH = T.scratch(Path(OPTIONS.build).resolve() / "test-scratch" / "masks")
LOWEST = float(np.finfo(np.float32).min)
INF = float("inf")


# ------------------------------------------------------------------------------------------ models

class Net:
    """y = softmax(q k' / sqrt(e) under a mask) v; q, k, v: [b, h, s, e]."""

    def __init__(self, shape, keys=None, heads=None, half=False, fixed=True):
        b, h, s, e = shape
        self.shape, self.kv = shape, (b, heads or h, keys or s, e)
        self.dtype = np.float16 if half else np.float32
        self.proto = TensorProto.FLOAT16 if half else TensorProto.FLOAT
        self.fixed, self.nodes, self.weights, self.more = fixed, [], [], []

    def put(self, kind, inputs, **attributes):
        name = f"t{len(self.nodes)}"
        self.nodes.append(G.node(kind, inputs, [name], **attributes))
        return name

    def weight(self, array):
        name = f"w{len(self.weights)}"
        self.weights.append(G.weight(name, array))
        return name

    def number(self, value):
        return self.weight(np.array(value, self.dtype))

    def places(self):
        """Rows [s, 1] and columns [1, t] of places."""
        made = []
        for name, axis in (("q", 1), ("k", 0)):
            size = self.put("Gather", [self.put("Shape", [name]), self.weight(np.array(2))])
            r = self.put("Range", [self.weight(np.array(0)), size, self.weight(np.array(1))])
            made.append(self.put("Unsqueeze", [r, self.weight(np.array([axis]))]))
        return made

    def scores(self):
        turned = self.put("Transpose", ["k"], perm=[0, 1, 3, 2])
        return self.put("Mul", [self.put("MatMul", ["q", turned]), self.number(self.shape[3] ** -0.5)])

    def attend(self, scores):
        self.nodes.append(G.node("MatMul", [self.put("Softmax", [scores], axis=-1), "v"], ["y"]))

    def under(self, seen, fill=-INF):
        self.attend(self.put("Where", [seen, self.scores(), self.number(fill)]))

    def model(self, opset=23, domains=()):
        def value(name, shape):
            dims = [shape[0], shape[1], shape[2] if self.fixed else ("s" if name in "qy" else "t"), shape[3]]
            if not self.fixed and self.shape[2] == self.kv[2]:
                dims[2] = "s"
            return helper.make_tensor_value_info(name, self.proto, dims)
        inputs = [value("q", self.shape), value("k", self.kv), value("v", self.kv)] + self.more
        return G.model(self.nodes, inputs, [value("y", self.shape)], self.weights, opset, domains)


def seen_by(s, t, left=None, right=0, offset=0):
    i, j = np.arange(s)[:, None] + offset, np.arange(t)[None]
    seen = np.ones((s, t), bool)
    if right is not None:
        seen &= j <= i + right
    if left is not None:
        seen &= j >= i - left
    return seen


def reference(q, k, v, seen, fill=-INF, add=False):
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], axis=1) for x in (k, v))
    s = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
    s = np.where(seen, s, s + fill if add else fill)
    with np.errstate(invalid="ignore"):
        p = np.exp(s - s.max(-1, keepdims=True))
        return p / p.sum(-1, keepdims=True) @ v


def run(name, net, want, inputs, *options, tolerance=None, **more):
    """The program of the net on q, k, v and whatever else there is."""
    folder = T.scratch(SCRATCH / re.sub(r"\W+", "_", name + "".join(options)))
    onnx.save(net if isinstance(net, onnx.ModelProto) else net.model(**more), folder / "net.onnx")
    T.emit(TGC, folder / "net.onnx", folder / "net.c", *options)
    T.build(folder / "net.c", folder / "net", flags=("-O1",), main_by=TGC)
    got = T.Program(folder / "net", ["y"]).run(inputs)["y"].astype(np.float64)
    half = inputs[0].dtype == np.float16
    tolerance = tolerance or (4e-3 if half else 3e-6)
    expect((np.isnan(got) == np.isnan(want)).all(), f"{name} {options}: numbers where there are none, or none")
    worst = np.nanmax(np.abs(got - want)) / max(1, np.nanmax(np.abs(want)))
    expect(worst < tolerance, f"{name} {options}: wrong by {worst:.2g}")
    return folder


def draw(net, seed=1, scale=1.0):
    random = np.random.default_rng(seed)
    return [(scale * random.standard_normal(x)).astype(net.dtype) for x in (net.shape, net.kv, net.kv)]


def loops(folder):
    """Whether the kernel runs over blocks of keys."""
    return re.search(r"\bspan\b", (folder / "net.c").read_text()) is not None


# --------------------------------------------------------------------------------------- spellings

def causal_less(net):
    i, j = net.places()
    net.under(net.put("Not", [net.put("Less", [i, j])]))


def causal_less_or_equal(net):
    i, j = net.places()
    net.under(net.put("LessOrEqual", [j, i]))


def causal_greater(net):
    i, j = net.places()
    hidden = net.put("Greater", [j, i])
    net.attend(net.put("Where", [hidden, net.number(-INF), net.scores()]))


def causal_greater_or_equal(net):
    i, j = net.places()
    net.under(net.put("GreaterOrEqual", [i, j]))


def square(net, value):
    size = [net.put("Gather", [net.put("Shape", [x]), net.weight(np.array([2]))]) for x in "qk"]
    return net.put("ConstantOfShape", [net.put("Concat", size, axis=0)],
                   value=helper.make_tensor("v", net.proto, [1], [value]))


def causal_trilu(net):
    lower = net.put("Trilu", [square(net, 1.0)], upper=0)
    net.under(net.put("Cast", [lower], to=TensorProto.BOOL))


def causal_trilu_added(net):
    one = net.weight(np.array(1))
    net.attend(net.put("Add", [net.scores(), net.put("Trilu", [square(net, -INF), one], upper=1)]))


def causal_operator(net):
    net.nodes.append(G.node("Attention", ["q", "k", "v"], ["y"], is_causal=1))


def causal_table(net):
    net.under(net.weight(seen_by(net.shape[2], net.kv[2])))


def causal_table_added(net):
    seen = seen_by(net.shape[2], net.kv[2])[None, None]
    net.attend(net.put("Add", [net.scores(), net.weight(np.where(seen, 0, -INF).astype(net.dtype))]))


CAUSAL = [causal_less, causal_less_or_equal, causal_greater, causal_greater_or_equal, causal_trilu,
          causal_trilu_added, causal_operator, causal_table, causal_table_added]
LEFT, RIGHT = 40, 9


def window_places(net):
    i, j = net.places()
    ahead = net.put("Sub", [j, i])
    near = net.put("LessOrEqual", [ahead, net.weight(np.array(RIGHT))])
    net.under(net.put("And", [near, net.put("GreaterOrEqual", [ahead, net.weight(np.array(-LEFT))])]))


def window_hidden(net):
    i, j = net.places()
    right = net.put("Less", [net.put("Add", [i, net.weight(np.array(RIGHT))]), j])
    left = net.put("Less", [j, net.put("Sub", [i, net.weight(np.array(LEFT))])])
    hidden = net.put("Or", [left, right])
    net.attend(net.put("Where", [hidden, net.number(-INF), net.scores()]))


def window_table(net):
    net.under(net.weight(seen_by(net.shape[2], net.kv[2], LEFT, RIGHT)))


WINDOW = [window_places, window_hidden, window_table]


def check(spell, shape, half, fixed, threads, left=None, right=0):
    net = Net(shape, half=half, fixed=fixed)
    spell(net)
    inputs = draw(net)
    want = reference(*inputs, seen_by(shape[2], shape[2], left, right))
    bound = () if fixed else ("--dim", f"s<={max(shape[2], 300)}")
    name = f"{spell.__name__}_{shape[2]}_{'f16' if half else 'f32'}"
    folder = run(name, net, want, inputs, "--cpu=native", f"--threads={threads}", *bound)
    expect(loops(folder) or shape[2] < 96 and fixed, f"{name}: the loops run over all keys")


for number, spell in enumerate(CAUSAL + WINDOW):
    window = dict(left=LEFT, right=RIGHT) if spell in WINDOW else {}
    for k, size in enumerate((1, 7, 64, 257, 1000)):
        for half in (False, True):
            for fixed in (True, False):
                if not fixed and "table" in spell.__name__:
                    continue
                for threads in (1, 2):
                    quick = size in (7, 257) and (number + k + half + fixed + threads) % 8 == 0
                    suite.add(f"{spell.__name__}: {size} tokens, {'f16' if half else 'f32'}, "
                              f"{'fixed' if fixed else 'bounded'}, {threads} threads",
                              lambda spell=spell, size=size, half=half, fixed=fixed, threads=threads,
                              window=window: check(spell, (1, 2, size, 16), half, fixed, threads, **window),
                              slow=not quick)


suite.main()
