"""Attention under masks by place (passes/kernel/online_softmax.c, mask_bounds.c, mask_tables.c): however a model spells its mask, the
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
    T.build(folder / "net.c", folder / "net", main_by=TGC)
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
    return re.search(r"\bint key\b|\bspan\b", (folder / "net.c").read_text()) is not None


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


# ------------------------------------------------------------------------- operators of their own

def microsoft(kind, attributes, queries, keys, more=()):
    """An operator on [b, s, heads * e], and what it is in NumPy's terms."""
    names = ["q", "k", "v"] + [name for name, _ in more]
    inputs = [G.value("q", queries), G.value("k", keys), G.value("v", keys)]
    inputs += [G.value(name, list(array.shape), TensorProto.INT32) for name, array in more if name]
    node = helper.make_node(kind, names, ["y"], domain="com.microsoft", **attributes)
    return G.model([node], inputs, [G.value("y", queries)], (), 18, ["com.microsoft"])


def heads_of(x, n):
    return x.reshape(x.shape[0], x.shape[1], n, -1).transpose(0, 2, 1, 3)


@suite.case("com.microsoft's MultiHeadAttention, unidirectional")
def multi_head():
    random = np.random.default_rng(2)
    x = [random.standard_normal((2, 200, 64)).astype(np.float32) for _ in range(3)]
    model = microsoft("MultiHeadAttention", dict(num_heads=4, unidirectional=1), [2, 200, 64], [2, 200, 64])
    want = reference(*(heads_of(a, 4) for a in x), seen_by(200, 200))
    expect(loops(run("multi_head", model, want.transpose(0, 2, 1, 3).reshape(2, 200, 64), x)), "no blocks")


@suite.case("com.microsoft's GroupQueryAttention, with and without a window")
def group_query():
    random = np.random.default_rng(3)
    x = [random.standard_normal((1, 200, n)).astype(np.float32) for n in (64, 32, 32)]
    more = [("", None), ("", None), ("last", np.array([199], np.int32)), ("all", np.array([200], np.int32))]
    for window in (-1, 48):
        model = microsoft("GroupQueryAttention", dict(num_heads=4, kv_num_heads=2, local_window_size=window),
                          [1, 200, 64], [1, 200, 32], more)
        model.graph.input[-1].type.tensor_type.ClearField("shape")
        model.graph.input[-1].type.tensor_type.shape.dim.add().dim_value = 1
        model.graph.node[0].output.extend(["past_k", "past_v"])
        for name in ("past_k", "past_v"):
            model.graph.output.append(G.value(name, [1, 2, 200, 16]))
        left = None if window < 0 else window
        want = None
        for reach in ([left] if left is None else [left, left - 1]):
            want = reference(heads_of(x[0], 4), heads_of(x[1], 2), heads_of(x[2], 2), seen_by(200, 200, reach))
        run(f"group_query_{window}", model, want.transpose(0, 2, 1, 3).reshape(1, 200, 64),
            x + [more[2][1], more[3][1]])


# ------------------------------------------------------------------------------- what masks are of

DOCUMENTS = (0, 50, 170, 171, 300)


def documents():
    seen = np.zeros((300, 300), bool)
    for begin, end in zip(DOCUMENTS, DOCUMENTS[1:]):
        seen[begin:end, begin:end] = True
    return seen


@suite.case("a table of documents: begins and ends that are no line")
def table_of_documents():
    for threads in (1, 2):
        net = Net((1, 2, 300, 16))
        net.under(net.weight(documents()))
        inputs = draw(net)
        run("documents", net, reference(*inputs, documents()), inputs, f"--threads={threads}")


@suite.case("documents as numbers to add: the table stays, and costs what it costs as data")
def added_documents():
    table = np.where(documents(), 0, -INF).astype(np.float32)
    work = []
    for name in ("table", "data"):
        net = Net((1, 8, 300, 32))
        if name == "data":
            net.more.append(G.value("m", [300, 300]))
        net.attend(net.put("Add", [net.scores(), "m" if name == "data" else net.weight(table)]))
        inputs = draw(net)
        folder = run(f"added {name}", net, reference(*inputs, documents()), inputs + [table] * (name == "data"))
        done = T.must(T.run([folder / "net", "--bench", "0"]))
        work.append(re.search(r"([\d.]+) GFLOP,", done.out.decode() + done.err)[1])
    expect(work[0] == work[1], f"GFLOP as a table and as data: {work}")


@suite.case("a mask that is data is computed, whatever it says")
def data():
    net = Net((1, 2, 300, 16))
    net.more.append(G.value("m", [300, 300], TensorProto.BOOL))
    net.under("m")
    for seen in (seen_by(300, 300), np.random.default_rng(5).random((300, 300)) > 0.5):
        inputs = draw(net)
        folder = run("data", net, reference(*inputs, seen), inputs + [seen])
        expect(not loops(folder), "blocks, though nothing is known of the mask")


@suite.case("a mask of fewer keys, of another dtype, with lengths: keys behind its end are hidden")
def short_mask():
    random, lengths = np.random.default_rng(6), np.array([3, 4], np.int64)
    seen = random.random((2, 3, 4, 4)) > 0.4
    seen[..., 0] = True
    every = np.concatenate([seen, np.zeros((2, 3, 4, 2), bool)], -1)
    every &= np.arange(6) < lengths[:, None, None, None]
    for proto, dtype in ((TensorProto.FLOAT, np.float32), (TensorProto.FLOAT16, np.float16),
                         (TensorProto.DOUBLE, np.float64), (TensorProto.BOOL, bool)):
        net = Net((2, 3, 4, 8), keys=6)
        net.more += [G.value("m", [2, 3, 4, 4], proto), G.value("n", [2], TensorProto.INT64)]
        net.nodes.append(G.node("Attention", ["q", "k", "v", "m", "", "", "n"], ["y"]))
        inputs = draw(net)
        mask = seen if dtype is bool else np.where(seen, 0, -INF).astype(dtype)
        run(f"short {dtype.__name__}", net, reference(*inputs, every), inputs + [mask, lengths], opset=24)


@suite.case("rows that see nothing: no numbers under -inf, the mean under a finite mask")
def rows_without_keys():
    seen = np.tril(np.ones((300, 300), bool), -3)
    for fill in (-INF, -1e9, LOWEST):
        net = Net((1, 2, 300, 16))
        net.under(net.weight(seen), fill)
        inputs = draw(net)
        expect(loops(run(f"hole_{fill}", net, reference(*inputs, seen, fill), inputs)), "no blocks")
    net = Net((1, 2, 300, 16))
    table = net.weight(np.where(seen, 0, LOWEST).astype(np.float32))
    net.attend(net.put("Add", [net.scores(), table]))
    inputs = draw(net)
    want = reference(*inputs, seen, LOWEST)         # which takes in whatever is added to it
    run("hole_added", net, want, inputs)


@suite.case("scores that outweigh a finite mask: what it hides is computed after all")
def outweighed():
    seen = seen_by(300, 300)
    for bound in ((), ("--threads=2",)):
        for scale in (1, 100):
            net = Net((1, 2, 300, 16))
            net.attend(net.put("Add", [net.scores(), net.weight(np.where(seen, 0, -1e4).astype(np.float32))]))
            inputs = draw(net, scale=scale)
            want = reference(*inputs, seen, -1e4, add=True)
            run(f"outweighed_{scale}", net, want, inputs, *bound, tolerance=1e-3)


@suite.case("masks by place that are not attention's are vectors")
def trilu():
    model = G.model([G.node("Trilu", ["x"], ["y"], upper=0)], [G.value("x", ["s", "s"])],
                    [G.value("y", ["s", "s"])], (), 18)
    x = np.random.default_rng(4).standard_normal((300, 300)).astype(np.float32)
    for options in (("--dim", "s=300"), ("--dim", "s<=400"), ("--cpu=generic", "--dim", "s=300")):
        folder = run("trilu", model, np.tril(x).astype(np.float64), [x], *options)
        expect("generic" in options[0] or "ramp_" in (folder / "net.c").read_text(), "no vectors")


@suite.case("halves whose columns are no whole vectors: a row's scores are computed once, and its sum is read once")
def halves():
    folder = T.scratch(SCRATCH / "halves")
    for queries, keys, columns in ((8, 16, 24), (13, 20, 40), (9, 33, 17)):
        (folder / "net.tg").write_text(f"tg 1\ninput %q : f16[1, 1, {queries}, {columns}]\ninput %k : f16[1, 1, {keys}, {columns}]\n"
                                       f"input %v : f16[1, 1, {keys}, {columns}]\n%y = attention(%q, %k, %v)\noutput %y\n")
        T.emit(TGC, folder / "net.tg", folder / "net.c")
        T.build(folder / "net.c", folder / "net")
        T.must(T.run([folder / "net", "--selftest"]))


@suite.case("the arena of long attention is that of one block")
def arena():
    for mask in (0, 1):
        net = Net((1, 4, 8192, 64))
        net.nodes.append(G.node("Attention", ["q", "k", "v"], ["y"], is_causal=mask))
        onnx.save(net.model(), SCRATCH / "long.onnx")
        about = T.info(TGC, SCRATCH / "long.onnx")
        expect(about["arena_bytes"] < 2 << 20, f"an arena of {about['arena_bytes']} bytes")


suite.main()
