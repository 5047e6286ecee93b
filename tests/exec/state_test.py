"""What --state keeps from run to run, step by step against ONNX Runtime, which is given each state
by hand; and what is promised beside the numbers (state.c), with sanitizers, as C and as C++.
"""

import ctypes as C
import json
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "lib")]

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto

import graphs as G
import tgc as T
from library import Library
from suite import Skip, Suite, expect

suite = Suite("state")
OPTIONS = suite.parse()
TGC = T.find_tgc(OPTIONS.build).resolve()
SCRATCH = T.scratch(Path(OPTIONS.build).resolve() / "test-scratch" / "state")
onnxruntime.set_default_logger_severity(3)       # it warns of what some of these are about
F32, F16, I64, BOOL = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT64, TensorProto.BOOL


# One instruction set, but for those cases that are about several, and --all.
FEW = [] if OPTIONS.all else ["--cpu=generic"]


def states_options(states):
    return [word for out, name in states for word in ("--state", f"{out}={name}")]


def make(name, model, states, *options, flags=(T.LEVEL,)):
    """The folder with net.c, and the model in this process. The file's compiler sees all warnings."""
    folder = T.scratch(SCRATCH / name)
    onnx.save(model, folder / "net.onnx")
    T.must(T.run([TGC, folder / "net.onnx", "-o", folder / "net.c", *states_options(states), *FEW, *options]))
    T.must(T.run(["gcc", *T.WARNINGS, *flags, "-shared", "-fPIC", "net.c", "-o", "net.so", "-lm",
                  "-lpthread"], cwd=folder))
    return folder, Library(folder / "net.so")


HAS_LLVM = T.has_llvm(TGC)


def make_llvm(folder, states, *options):
    """The same model, in the same folder, as an object that LLVM writes."""
    T.must(T.run([TGC, "net.onnx", "-o", "llvm.o", "--name=net", "--target=llvm", *states_options(states),
                  *FEW, *options], cwd=folder))
    T.must(T.run(["gcc", "-shared", "llvm.o", "-o", "llvm.so", "-lm", "-lpthread"], cwd=folder))
    return Library(folder / "llvm.so", "net")


def follow(name, model, states, steps, *options, first=None, error=2e-5, sizes=(), flags=(T.LEVEL,)):
    """As C, and as LLVM's object where that is there: each step's outputs are ONNX Runtime's. steps: feeds of
    each."""
    folder, net = make(name, model, states, *options, flags=flags)
    session = onnxruntime.InferenceSession(str(folder / "net.onnx"),
                                           providers=["CPUExecutionProvider"])
    nets = [net]
    if HAS_LLVM:
        nets.append(make_llvm(folder, states, *options))
    for one in nets:
        follow_steps(one, session, states, steps, first, error, sizes)
    return folder, net


def follow_steps(net, session, states, steps, first, error, sizes):
    """Twice, with a reset between."""
    names = [v.name for v in session.get_outputs()]
    kept = {out for out, _ in states}
    for turn in range(2):
        now = dict(first)
        for number, feeds in enumerate(steps):
            want = dict(zip(names, session.run(names, {**feeds, **now})))
            size = {n: feeds[v].shape[a] for n, v, a in sizes}
            got = net.run(feeds, size)
            expect(set(got) == set(names) - kept, f"the outputs are {sorted(got)}")
            for key, array in got.items():
                w = np.asarray(want[key])
                expect(array.shape == w.shape, f"step {number}: {key} is {array.shape}, not {w.shape}")
                scale = np.abs(w.astype(np.float64)).max(initial=0)
                apart = np.abs(array.astype(np.float64) - w.astype(np.float64)).max(initial=0)
                expect(apart <= error * scale, f"turn {turn}, step {number}: {key} is wrong by {apart:.3g}"
                                               f", the largest is {scale:.3g}")
            now = {key: want[out] for out, key in states}
        net.reset()


def zeros(*shape, dtype=np.float32):
    return np.zeros(shape, dtype)


def draw(seed, *shape, by=0.4):
    return (np.random.default_rng(seed).standard_normal(shape) * by).astype(np.float32)


def check_promises(folder, plus=False):
    """state.c, as C with sanitizers and, if told to, as C++; and with LLVM's object."""
    driver = HERE / "state.c"
    if HAS_LLVM:
        T.must(T.run(["gcc", *T.WARNINGS, "-I.", driver, "llvm.o", "-o", "kept", "-lm", "-lpthread"], cwd=folder))
        T.must(T.run([folder / "kept"]))
    T.must(T.run(["gcc", *T.WARNINGS, *T.SANITIZE, "-I.", driver, "net.c", "-o", "checked", "-lm",
                  "-lpthread"], cwd=folder))
    T.must(T.run([folder / "checked"]))
    if not plus:
        return
    flags = [w.replace("c11", "c++17") for w in T.WARNINGS if w != "-Wvla"]
    T.must(T.run(["g++", "-x", "c++", *flags, "-O0", "-I.", driver, "net.c", "-o", "plus", "-lm",
                  "-lpthread"], cwd=folder))
    T.must(T.run([folder / "plus"]))


# ----------------------------------------------------------------------------------------- models

def recurrent(kind, frames=2, width=12, bands=5):
    gates = {"LSTM": 4, "GRU": 3}[kind]
    cell = kind == "LSTM"
    weights = [G.weight("W", draw(1, 1, gates * width, bands)), G.weight("R", draw(2, 1, gates * width, width)),
               G.weight("B", draw(3, 1, 2 * gates * width))]
    state = [G.value("h", [1, 1, width])] + [G.value("c", [1, 1, width])] * cell
    after = [G.value("h_next", [1, 1, width])] + [G.value("c_next", [1, 1, width])] * cell
    return G.model([G.node(kind, ["x", "W", "R", "B", "", "h", *["c"] * cell],
                           ["y", "h_next", *["c_next"] * cell], hidden_size=width)],
                   [G.value("x", [frames, 1, bands]), *state],
                   [G.value("y", [frames, 1, 1, width]), *after], weights)


def queue(channels=4, back=6, new=2):
    """A causal convolution over what was and what comes; of both, the last frames are kept."""
    return G.model(
        [G.node("Concat", ["past", "x"], ["all"], axis=2), G.node("Conv", ["all", "w"], ["y"]),
         G.node("Slice", ["all", "from", "to", "axis"], ["past_next"])],
        [G.value("x", [1, channels, new]), G.value("past", [1, channels, back])],
        [G.value("y", [1, 3, new]), G.value("past_next", [1, channels, back])],
        [G.weight("w", draw(4, 3, channels, back + 1)), G.weight("from", np.array([new])),
         G.weight("to", np.array([new + back])), G.weight("axis", np.array([2]))])


def attention(heads=2, size=8, rows=1, dtype=F32, batch=1, outside=False):
    """Rows of queries over a cache that grows by their keys and values."""
    kind = {F32: np.float32, F16: np.float16}[dtype]
    nodes = [G.node("Concat", ["past_k", "k"], ["present_k"], axis=2),
             G.node("Concat", ["past_v", "v"], ["present_v"], axis=2),
             G.node("Transpose", ["present_k"], ["t"], perm=[0, 1, 3, 2]),
             G.node("MatMul", ["q", "t"], ["s"]), G.node("Mul", ["s", "scale"], ["r"]),
             G.node("Softmax", ["r"], ["p"], axis=-1), G.node("MatMul", ["p", "present_v"], ["y"])]
    outputs = [G.value("y", [batch, heads, rows, size], dtype),
               G.value("present_k", [batch, heads, "total", size], dtype),
               G.value("present_v", [batch, heads, "total", size], dtype)]
    if outside:
        nodes.append(G.node("Identity", ["present_v"], ["seen"]))
        outputs.append(G.value("seen", [batch, heads, "total", size], dtype))
    return G.model(
        nodes, [*[G.value(n, [batch, heads, rows, size], dtype) for n in "qkv"],
                *[G.value(f"past_{n}", [batch, heads, "past", size], dtype) for n in "kv"]],
        outputs, [G.weight("scale", kind(0.35))])


CACHES = [("present_k", "past_k"), ("present_v", "past_v")]


def queries(n, heads=2, size=8, rows=1, dtype=np.float32, batch=1):
    count = rows if callable(rows) else lambda step: rows
    return [{name: draw(100 * step + k, batch, heads, count(step), size).astype(dtype)
             for k, name in enumerate("qkv")} for step in range(n)]


def empty(heads=2, size=8, dtype=np.float32, batch=1):
    return {f"past_{n}": zeros(batch, heads, 0, size, dtype=dtype) for n in "kv"}


# ------------------------------------------------------------------------------ states of one size

LSTM_STATES = [("h_next", "h"), ("c_next", "c")]


@suite.case("an LSTM: steps, promises, the program, tgc run, info")
def lstm():
    steps = [{"x": draw(step, 2, 1, 5)} for step in range(4)]
    first = {"h": zeros(1, 1, 12), "c": zeros(1, 1, 12)}
    folder, net = follow("lstm", recurrent("LSTM"), LSTM_STATES, steps, first=first)
    expect(net.info.state_count == 2 and net.info.states[0].input.name == b"h", "describe")
    check_promises(folder, plus=True)
    T.build(folder / "net.c", folder / "net", flags=T.SANITIZE)
    T.must(T.run([folder / "net", "--selftest"]))
    np.save(folder / "x.npy", steps[0]["x"])
    session = onnxruntime.InferenceSession(str(folder / "net.onnx"))
    for _ in range(3):
        y, *now = session.run(None, {"x": steps[0]["x"], **first})
        first = dict(zip(["h", "c"], now))
    (folder / "out").mkdir()
    T.must(T.run([folder / "net", folder / "x.npy", "-o", folder / "out", "--steps", "3"]))
    T.compare("y", np.load(folder / "out" / "y.npy"), y, 1e-4, 1e-6)
    for target in ("c", "llvm") if HAS_LLVM else ("c",):
        T.must(T.run([TGC, "run", folder / "net.onnx", f"--target={target}", *FEW, *states_options(LSTM_STATES),
                      "--steps", "3", "-i", f"x={folder / 'x.npy'}", "--out-dir", folder / target]))
        T.compare("y", np.load(folder / target / "y.npy"), y, 1e-4, 1e-6)
    info = T.info(TGC, folder / "net.onnx", *states_options(LSTM_STATES))
    expect([i["name"] for i in info["inputs"]] == ["x"] and [o["name"] for o in info["outputs"]] == ["y"] and
           info["states"][1] == {"output": "c_next", "input": "c", "dtype": "f32", "shape": [1, 1, 12],
                                 "grows": None} and info["state_bytes"] == net.info.state_bytes,
           f"info: {info}")
    expect(T.info(TGC, folder / "net.so")["states"] == info["states"], "info of the shared object")


@suite.case("an LSTM by LLVM for a machine with the other order of bytes")
def big_endian():
    compiler = ["s390x-linux-gnu-gcc", "-fexcess-precision=fast"]
    for tool in (compiler[0], "qemu-s390x"):
        if not shutil.which(tool):
            raise Skip(f"{tool} is not installed")
    T.need_llvm(TGC)
    folder = T.scratch(SCRATCH / "lstm-big-endian")
    onnx.save(recurrent("LSTM"), folder / "net.onnx")
    T.must(T.run([TGC, "net.onnx", "-o", "net.o", "--target=llvm", "--triple=s390x-linux-gnu",
                  *states_options(LSTM_STATES)], cwd=folder, env={"CC": " ".join(compiler)}))
    T.must(T.run([*compiler, *T.WARNINGS, "-I.", HERE / "state.c", "net.o", "-static", "-o", "kept", "-lm"],
                 cwd=folder))
    T.must(T.run(["qemu-s390x", folder / "kept"]))


@suite.case("a GRU by two threads and with vectors")
def gru():
    steps = [{"x": draw(step, 2, 1, 5)} for step in range(4)]
    follow("gru", recurrent("GRU", width=64), [("h_next", "h")], steps, "--threads=2", "--cpu=avx2",
           first={"h": zeros(1, 1, 64)})


@suite.case("a convolution's queue")
def frames():
    steps = [{"x": draw(step, 1, 4, 2)} for step in range(6)]
    folder, _ = follow("queue", queue(), [("past_next", "past")], steps, first={"past": zeros(1, 4, 6)})
    check_promises(folder)


def formula(nodes, weights=(), kind=F32, shape=(3, 5), outputs=("y",), states=("s",)):
    return G.model(nodes, [G.value("x", list(shape), kind), *[G.value(s, list(shape), kind) for s in states]],
                   [*[G.value(o, list(shape), kind) for o in outputs],
                    *[G.value(f"{s}_next", list(shape), kind) for s in states]], weights)


def places(net):
    """How many bytes of the arena are the states', by their pointers' table in the C."""
    text = (net / "net.c").read_text()
    table = text.split("state_places[] = {\n")[1].split("};")[0]
    return [line.split("{{")[1].split("}")[0].split(", ") for line in table.strip().splitlines()]


@suite.case("one place where the next value replaces the last, two where that is still read")
def in_place():
    decay = [G.weight("a", np.float32(0.5))]
    once = formula([G.node("Mul", ["s", "a"], ["t"]), G.node("Add", ["t", "x"], ["s_next"]),
                    G.node("Neg", ["s_next"], ["y"])], decay)
    late = formula([G.node("Mul", ["s", "a"], ["t"]), G.node("Add", ["t", "x"], ["s_next"]),
                    G.node("ReduceSum", ["s_next"], ["all"]), G.node("Div", ["s", "all"], ["y"])], decay)
    turned = G.model([G.node("Transpose", ["s"], ["t"]), G.node("Add", ["t", "x"], ["s_next"]),
                      G.node("Neg", ["s_next"], ["y"])],
                     [G.value("x", [5, 5]), G.value("s", [5, 5])], [G.value("y", [5, 5]), G.value("s_next", [5, 5])])
    for name, model, shape, one in (("once", once, (3, 5), True), ("late", late, (3, 5), False),
                                    ("turned", turned, (5, 5), False)):
        steps = [{"x": 1 + draw(step, *shape)} for step in range(5)]
        folder, _ = follow(name, model, [("s_next", "s")], steps, first={"s": zeros(*shape)})
        (a, b), = places(folder)
        expect((a == b) == one, f"{name}: places {a}, {b}")
        if not one:
            check_promises(folder)
    steps = [{"x": draw(step, 64, 999)} for step in range(3)]
    folder, _ = follow("large", formula([G.node("Mul", ["s", "a"], ["t"]), G.node("Add", ["t", "x"], ["s_next"]),
                                         G.node("Tanh", ["s_next"], ["y"])], decay, shape=(64, 999)),
                       [("s_next", "s")], steps, "--threads=3", first={"s": zeros(64, 999)})
    expect("share(self" in (folder / "net.c").read_text() and len({*places(folder)[0]}) == 1, "threads, in place")


@suite.case("states that change places with each other, and one output that is two of them")
def crossed():
    both = formula([G.node("Add", ["x", "b"], ["a_next"]), G.node("Mul", ["a", "half"], ["b_next"]),
                    G.node("Sub", ["a", "b"], ["y"])], [G.weight("half", np.float32(0.5))], states=("a", "b"))
    steps = [{"x": draw(step, 3, 5)} for step in range(5)]
    first = {"a": zeros(3, 5), "b": zeros(3, 5)}
    follow("crossed", both, [("a_next", "a"), ("b_next", "b")], steps, first=first)
    follow("exchanged", both, [("a_next", "b"), ("b_next", "a")], steps, first=first)
    twice = G.model([G.node("Add", ["x", "a"], ["t"]), G.node("Mul", ["t", "b"], ["u"]),
                     G.node("Tanh", ["u"], ["n"]), G.node("Sub", ["n", "a"], ["y"])],
                    [G.value(v, [3, 5]) for v in "xab"], [G.value("n", [3, 5]), G.value("y", [3, 5])])
    follow("twice", twice, [("n", "a"), ("n", "b")], [{"x": 1 + s["x"]} for s in steps], first=first)


@suite.case("integers, booleans, halves, a scalar, a value that the model has for the first run")
def kinds():
    count = G.model([G.node("Add", ["n", "x"], ["n_next"]), G.node("Cast", ["n_next"], ["y"], to=F32)],
                    [G.value("x", [], I64), G.value("n", [], I64)],
                    [G.value("y", []), G.value("n_next", [], I64)], [G.weight("n", np.array(40))])
    follow("count", count, [("n_next", "n")], [{"x": np.array(2)}] * 3, first={"n": np.array(40)})
    table = formula([G.node("Add", ["s", "x"], ["s_next"]), G.node("Neg", ["s_next"], ["y"])],
                    [G.weight("s", draw(9, 3, 5))])
    for more in ([], ["--weights=incbin"], ["--weights=array"]):
        folder, _ = follow("given", table, [("s_next", "s")], [{"x": draw(k, 3, 5)} for k in range(3)], *more,
                           first={"s": draw(9, 3, 5)})
    expect("begins as in the model" in (folder / "net.h").read_text(), "the header")
    folder, _ = T.scratch(SCRATCH / "file"), onnx.save(table, SCRATCH / "file" / "net.onnx")
    T.emit(TGC, folder / "net.onnx", folder / "net.c", "--state", "s_next=s", "--weights=file", "--cpu=generic")
    T.build(folder / "net.c", folder / "net")
    T.must(T.run([folder / "net", "--selftest"], cwd=folder))
    flags = G.model([G.node("Or", ["s", "x"], ["s_next"]), G.node("Not", ["s_next"], ["y"])],
                    [G.value("x", [7], BOOL), G.value("s", [7], BOOL)],
                    [G.value("y", [7], BOOL), G.value("s_next", [7], BOOL)])
    bits = [{"x": np.arange(7) == step} for step in range(4)]
    follow("flags", flags, [("s_next", "s")], bits, first={"s": zeros(7, dtype=bool)})
    halves = formula([G.node("Add", ["s", "x"], ["s_next"]), G.node("Neg", ["s_next"], ["y"])], kind=F16)
    follow("halves", halves, [("s_next", "s")], [{"x": draw(k, 3, 5).astype(np.float16)} for k in range(4)],
           first={"s": zeros(3, 5, dtype=np.float16)}, error=1e-3)


@suite.case("a batch of run-time size stays as it is until a reset")
def batch():
    model = G.model([G.node("Add", ["s", "x"], ["s_next"]), G.node("Neg", ["s_next"], ["y"])],
                    [G.value("x", ["batch", 3]), G.value("s", ["batch", 3])],
                    [G.value("y", ["batch", 3]), G.value("s_next", ["batch", 3])])
    _, net = follow("batch", model, [("s_next", "s")], [{"x": draw(k, 2, 3)} for k in range(3)],
                    "--dim", "batch<=4", first={"s": zeros(2, 3)}, sizes=[("batch", "x", 0)])
    net.run({"x": zeros(2, 3)}, {"batch": 2})
    net.run({"x": zeros(3, 3)}, {"batch": 3}, status=17)
    net.run({"x": zeros(2, 3)}, {"batch": 2})
    net.reset()
    net.run({"x": zeros(3, 3)}, {"batch": 3})


@suite.case("states of loops and conditions")
def control():
    body = onnx.helper.make_graph(
        [G.node("Identity", ["go"], ["go_on"]), G.node("Mul", ["v", "half"], ["u"]), G.node("Add", ["u", "s"], ["w"])],
        "body", [G.value("i", [], I64), G.value("go", [], BOOL), G.value("v", [3, 5])],
        [G.value("go_on", [], BOOL), G.value("w", [3, 5])])
    loop = formula([G.node("Loop", ["trips", "", "x"], ["r"], body=body), G.node("Identity", ["r"], ["s_next"]),
                    G.node("Sub", ["r", "s"], ["y"])],
                   [G.weight("trips", np.array(3)), G.weight("half", np.float32(0.5))])
    steps = [{"x": draw(step, 3, 5)} for step in range(4)]
    follow("loop", loop, [("s_next", "s")], steps, first={"s": zeros(3, 5)})
    sides = [onnx.helper.make_graph([node], side, [], [G.value(side, [3, 5])])
             for node, side in ((G.node("Add", ["s", "x"], ["more"]), "more"),
                                (G.node("Mul", ["s", "x"], ["less"]), "less"))]
    choice = formula([G.node("ReduceSum", ["s"], ["sum"], keepdims=0), G.node("LessOrEqual", ["sum", "zero"], ["low"]),
                      G.node("If", ["low"], ["s_next"], then_branch=sides[0], else_branch=sides[1]),
                      G.node("Neg", ["s_next"], ["y"])], [G.weight("zero", np.float32(0))])
    follow("choice", choice, [("s_next", "s")], steps, first={"s": zeros(3, 5)})


@suite.case("a run that fails leaves a state as it was, though all of it could be in one place")
def failing():
    model = G.model(
        [G.node("Add", ["s", "x"], ["s_next"]), G.node("Cast", ["words"], ["n"], to=F32), G.node("Add", ["n", "s"], ["y"])],
        [G.value("x", [3]), G.value("s", [3]), G.value("words", [3], TensorProto.STRING)],
        [G.value("s_next", [3]), G.value("y", [3])])
    folder, net = make("failing", model, [("s_next", "s")])
    good, bad = ((C.c_char_p * 3)(*words) for words in ((b"1", b"2", b"3"), (b"1", b"two", b"3")))
    text = {True: np.frombuffer(good, np.uint64), False: np.frombuffer(bad, np.uint64)}
    ones = np.ones(3, np.float32)
    for step, fine in enumerate((True, False, True, False, True)):
        got = net.run({"x": ones, "words": text[fine]}, status=0 if fine else 10)
        if fine:
            expect((got["y"] == [1 + step / 2, 2 + step / 2, 3 + step / 2]).all(), f"step {step}: {got['y']}")


# -------------------------------------------------------------------------------- states that grow

BOUND = ["--dim", "past<=9"]


def in_place_alone(folder, n):
    """Of what a run names, that many are of a cache's size, and all of them states."""
    body = (folder / "net.c").read_text().split("int net_run(")[1].split("\n}\n")[0]
    places = [line for line in body.splitlines() if "past + 1,8]" in line]
    expect(len(places) == n and all("(states +" in line for line in places), "\n".join(places))


@suite.case("a cache of keys and values grows in place, to its bound and no further")
def cache():
    folder, net = follow("cache", attention(), CACHES, queries(9), *BOUND, first=empty())
    check_promises(folder, plus=True)
    T.build(folder / "net.c", folder / "net", flags=T.SANITIZE)
    T.must(T.run([folder / "net", "--selftest"]))
    header = (folder / "net.h").read_text()
    expect("dim_past" not in header and "past grows from 0 to 9" in header, "the header")
    for step in queries(9):
        net.run(step)
    before = net.run(queries(1)[0], status=16)["y"]
    expect(not before.any(), "a run beyond the bound stores something")
    in_place_alone(folder, 2)


def joined(spelling="stack", n=2, heads=2, size=8, rows=1, dtype=F32, batch=1, outside=False):
    """As older exports of GPT-2: keys and values of a layer in one tensor, [2, batch, heads, past, size].
    turned: keys lie across where they are joined; one: all layers in one tensor; early: rows are
    joined with the past before keys and values are."""
    kind = {F32: np.float32, F16: np.float16}[dtype]
    nodes, weights, inputs, outputs, x = [], [G.weight("scale", kind(0.35))], [], [], "q"
    shape = [batch, heads, rows, size]
    put = lambda op, ins, out, **more: nodes.append(G.node(op, ins, [out], **more)) or out
    weights += [G.weight(f"i{v}", np.array(v)) for v in range(2 * n)]
    weights += [G.weight(f"u{v}", np.array([v])) for v in range(2 * n + 1)]
    weights += [G.weight("all", np.array([0, 0, -1, 0, 0, 0][:6])), G.weight("halves", np.array([1, 1]))]
    one = spelling == "one"
    for k in range(1 if one else n):
        inputs.append(G.value(f"past_{k}", [2 * n if one else 2, batch, heads, "past", size], dtype))
        outputs.append(G.value(f"present_{k}", [2 * n if one else 2, batch, heads, "total", size], dtype))
    ends = []
    for k in range(n):
        past, parts = f"past_{0 if one else k}", []
        rows_of = {}
        for j, part in enumerate("kv"):
            name = f"{part}{k}"
            rows_of[part] = put("Mul", [x, f"m{name}"], f"new_{name}")
            weights.append(G.weight(f"m{name}", draw(7 * k + j, heads, 1, size, by=1.0).astype(kind)))
        if spelling == "split":
            nodes.append(G.node("Split", [past, "halves"], [f"pu_k{k}", f"pu_v{k}"], axis=0))
        for j, part in enumerate("kv"):
            name, at = f"{part}{k}", 2 * k + j if one else j
            if spelling == "split":
                before = put("Squeeze", [f"pu_{name}", "u0"], f"p_{name}")
            elif spelling == "slice":
                before = put("Slice", [past, f"u{at}", f"u{at + 1}", "u0"], f"s_{name}")
                before = put("Squeeze", [before, "u0"], f"p_{name}")
            else:
                before = put("Gather", [past, f"i{at}"], f"p_{name}", axis=0)
            if spelling == "turned" and part == "k":
                across = put("Transpose", [before], f"pt_{name}", perm=[0, 1, 3, 2])
                fresh = put("Transpose", [rows_of[part]], f"nt_{name}", perm=[0, 1, 3, 2])
                keys = put("Concat", [across, fresh], f"c_{name}", axis=3)
                now = put("Transpose", [keys], f"n_{name}", perm=[0, 1, 3, 2])
            elif spelling == "early":
                now = put("Unsqueeze", [before, "u0"], f"e_{name}")
                more = put("Unsqueeze", [rows_of[part], "u0"], f"f_{name}")
                up = put("Concat", [now, more], f"g_{name}", axis=3)
                now = put("Squeeze", [up, "u0"], f"n_{name}")
            else:
                now = put("Concat", [before, rows_of[part]], f"n_{name}", axis=2)
            parts.append(up if spelling == "early" else put("Unsqueeze", [now, "u0"], f"x_{name}"))
            rows_of[part] = now
        if one:
            ends += parts
        elif spelling == "sequence":
            nodes.append(G.node("SequenceConstruct", [f"n_k{k}", f"n_v{k}"], [f"seq{k}"]))
            nodes.append(G.node("ConcatFromSequence", [f"seq{k}"], [f"present_{k}"], axis=0, new_axis=1))
        else:
            put("Concat", parts, f"present_{k}", axis=0)
        if spelling == "whole":
            rows_of = {part: put("Gather", [f"present_{k}", f"i{j}"], f"w_{part}{k}", axis=0)
                       for j, part in enumerate("kv")}
        t = put("Transpose", [rows_of["k"]], f"t{k}", perm=[0, 1, 3, 2])
        s = put("Mul", [put("MatMul", [x, t], f"s{k}"), "scale"], f"r{k}")
        p = put("Softmax", [s], f"p{k}", axis=-1)
        a = put("MatMul", [p, rows_of["v"]], f"a{k}")
        x = put("Add", [x, a], f"y{k}")
    if one:
        put("Concat", ends, "present_0", axis=0)
    put("Identity", [x], "y")
    outputs.insert(0, G.value("y", shape, dtype))
    if outside:
        put("Identity", ["present_0"], "seen")
        outputs.append(G.value("seen", [2 * n if one else 2, batch, heads, "total", size], dtype))
    return (G.model(nodes, [G.value("q", shape, dtype), *inputs], outputs, weights),
            [(f"present_{k}", f"past_{k}") for k in range(1 if one else n)])


def no_past(model, dtype=np.float32, batch=1):
    """What the caches of a model begin with: no rows."""
    shape = lambda v: [0 if d.dim_param == "past" else batch if d.dim_param else d.dim_value
                       for d in v.type.tensor_type.shape.dim]
    return {v.name: zeros(*shape(v), dtype=dtype) for v in model.graph.input if v.name.startswith("past")}


SPELLINGS = ["stack", "split", "slice", "turned", "early", "sequence", "whole", "one"]


@suite.case("keys and values in one tensor, however that is spelled, grow in place")
def cache_of_two():
    for spelling in SPELLINGS:
        model, states = joined(spelling)
        steps = [{"q": draw(step, 1, 2, 1, 8)} for step in range(9)]
        folder, net = follow(f"joined_{spelling}", model, states, steps, *BOUND, first=no_past(model))
        body = (folder / "net.c").read_text().split("int net_run(")[1].split("\n}\n")[0]
        if spelling != "whole":
            places = [line for line in body.splitlines() if "past + 1" in line and "/* f32[" in line]
            expect(len(places) == 4 and all("(states +" in line for line in places), f"{spelling}:\n" + "\n".join(places))
        for step in steps:
            net.run(step)
        expect(not net.run(steps[0], status=16)["y"].any(), "a run beyond the bound stores something")
        if spelling in ("stack", "one"):
            check_promises(folder, plus=spelling == "one")
            T.build(folder / "net.c", folder / "net", flags=T.SANITIZE)
            T.must(T.run([folder / "net", "--selftest"]))


@suite.case("keys and values in one tensor: instruction sets, threads, -O0, halves, rows of run-time number, a batch")
def cache_of_two_variants():
    long = [{"q": draw(step, 1, 3, 1, 20)} for step in range(20)]
    model, states = joined(heads=3, size=20)
    for name, more in (("avx2", ["--cpu=avx2"]), ("avx512", ["--cpu=avx512"]), ("threads", ["--threads=3"]),
                       ("plain", ["-O0", "--cpu=generic"])):
        if not name.startswith("avx") or name in Path("/proc/cpuinfo").read_text():
            follow(f"two_{name}", model, states, long, "--dim", "past<=33", *more, first=no_past(model))
    model, states = joined(dtype=F16)
    follow("two_halves", model, states, [{"q": draw(step, 1, 2, 1, 8).astype(np.float16)} for step in range(6)], *BOUND,
           first=no_past(model, np.float16), error=1e-2)
    model, states = joined("turned", rows="new")
    chunks = [{"q": draw(step, 1, 2, [3, 1, 0, 2, 3][step], 8)} for step in range(5)]
    _, net = follow("two_chunks", model, states, chunks, *BOUND, "--dim", "new<=3", first=no_past(model),
                    sizes=[("new", "q", 2)])
    net.run({"q": draw(1, 1, 2, 1, 8)}, {"new": 1})
    model, states = joined(batch="batch", outside=True)
    follow("two_batch", model, states, [{"q": draw(step, 3, 2, 1, 8)} for step in range(6)], *BOUND, "--dim", "batch<=4",
           first=no_past(model, batch=3), sizes=[("batch", "q", 0)])
    model, states = joined(n=1)
    rows = {"past_0": draw(70, 2, 1, 2, 3, 8)}
    begun = onnx.ModelProto.FromString(model.SerializeToString())
    begun.graph.initializer.append(G.weight("past_0", rows["past_0"]))
    folder, _ = follow("two_begun", begun, states, [{"q": draw(step, 1, 2, 1, 8)} for step in range(6)], *BOUND, first=rows)
    check_promises(folder)
    folder = T.scratch(SCRATCH / "two_verified")
    data = T.scratch(folder / "data")
    onnx.save(model, folder / "net.onnx")
    session = onnxruntime.InferenceSession(str(folder / "net.onnx"))
    feeds = {"q": draw(1, 1, 2, 1, 8), "past_0": draw(2, 2, 1, 2, 4, 8)}
    for k, name in enumerate(feeds):
        np.save(data / f"input_{k}.npy", feeds[name])
    for k, array in enumerate(session.run(None, feeds)):
        np.save(data / f"output_{k}.npy", array)
    text = T.must(T.run([TGC, "verify", folder / "net.onnx", "--target=c", "--data", data, *FEW, *states_options(states),
                         *BOUND])).out
    expect(b"present_0: f32[2,1,2,5,8]" in text, text.decode())


def random_joins(seed):
    """A state that is cut along axes at random, down to parts that each get rows of their own, some of
    them made of what other parts have grown to, some turned; joined again, and read in part and whole."""
    rng = np.random.default_rng(seed)
    rank, count = int(rng.integers(2, 6)), int(rng.integers(1, 4))
    grows = int(rng.integers(rank))
    shape = [int(rng.integers(1, 6)) for _ in range(rank)]
    nodes, weights, named, sums = [], [], set(), ["x"]

    def number(v):
        if f"n{v}" not in named:
            named.add(f"n{v}")
            weights.append(G.weight(f"n{v}", np.array([v])))
        return f"n{v}"

    def put(op, ins, **more):
        nodes.append(G.node(op, ins, [f"t{len(nodes)}"], **more))
        return nodes[-1].output[0]

    def rows(box):
        """New rows of this box's shape: x times numbers, less the mean of what was summed up last."""
        shaped = list(box)
        shaped[grows] = count
        weights.append(G.weight(f"w{len(weights)}", rng.standard_normal(shaped).astype(np.float32) * 0.5))
        return put("Add", [put("Mul", [sums[-1 if rng.random() < 0.5 else 0], weights[-1].name]), weights[-1].name])

    def grow(past, box):
        if rng.random() < 0.3:
            perm = [int(a) for a in rng.permutation(rank)]
            back = [perm.index(a) for a in range(rank)]
            now = put("Concat", [put("Transpose", [past], perm=perm), put("Transpose", [rows(box)], perm=perm)],
                      axis=perm.index(grows))
            now = put("Transpose", [now], perm=back)
        else:
            now = put("Concat", [past, rows(box)], axis=grows)
        read = past if rng.random() < 0.15 else now
        sums.append(put("Tanh", [put("ReduceSum", [read], keepdims=0)]))
        return now

    def build(past, box, depth):
        wide = [a for a in range(rank) if a != grows and box[a] > 1]
        if depth == 0 or not wide or rng.random() < 0.2:
            return grow(past, box)
        axis = int(rng.choice(wide))
        ends = sorted({0, box[axis], *[int(v) for v in rng.integers(1, box[axis], 2)]})
        parts = []
        for lo, hi in zip(ends, ends[1:]):
            small = [hi - lo if a == axis else n for a, n in enumerate(box)]
            parts.append(build(put("Slice", [past, number(lo), number(hi), number(axis)]), small, depth - 1))
        if rng.random() < 0.2:
            parts = [put("Unsqueeze", [p, number(0)]) for p in parts]
            return put("Squeeze", [put("Concat", parts, axis=axis + 1), number(0)])
        return put("Concat", parts, axis=axis)

    whole = build("past", shape, 2)
    nodes.append(G.node("Identity", [whole], ["now"]))
    if rng.random() < 0.5:
        sums.append(put("ReduceSum", [put("Mul", ["now", "now"])], keepdims=0))
    nodes.append(G.node("Sum", sums, ["y"]))
    dims = lambda name: [name if a == grows else n for a, n in enumerate(shape)]
    first = {"past": zeros(*[0 if a == grows else n for a, n in enumerate(shape)])}
    return G.model(nodes, [G.value("x", []), G.value("past", dims("past"))],
                   [G.value("y", []), G.value("now", dims("total"))], weights), first


@suite.case("states of random parts, step by step")
def random_parts():
    options = [["-O0"], [], ["--threads=2"], ["--cpu=avx2"]]
    for seed in range(60 if OPTIONS.all else 10):
        model, first = random_joins(seed)
        steps = [{"x": np.array(0.3 * step - 0.5, np.float32)} for step in range(4)]
        folder, _ = follow(f"random_{seed}", model, [("now", "past")], steps, "--dim", "past<=13",
                           *options[seed % 4], first=first, flags=("-O0",))
        if seed % 5 == 0:
            T.build(folder / "net.c", folder / "net", flags=["-O0"])
            T.must(T.run([folder / "net", "--selftest"]))


def llama(n=2, heads=4, pairs=2, size=16, batch="batch_size", keep=1, packed=True, **more):
    """As onnxruntime's model builder writes it: GroupQueryAttention, whose lengths are sums of the
    attention mask. packed: queries, keys and values come of one product."""
    width, over = heads * size, [G.value("x", [batch, "sequence_length", heads * size]),
                                 G.value("attention_mask", [batch, "total_sequence_length"], I64)]
    outputs, angle = [G.value("y", [batch, "sequence_length", width])], np.arange(40)[:, None] * 0.3 / (1 + np.arange(size // 2))
    weights = [G.weight("one", np.array([1])), G.weight("at", np.array(1)),
               G.weight("cos", np.cos(angle).astype(np.float32)), G.weight("sin", np.sin(angle).astype(np.float32))]
    nodes = [G.node("ReduceSum", ["attention_mask", "one"], ["count"], keepdims=keep), G.node("Sub", ["count", "one"], ["last"]),
             G.node("Cast", ["last"], ["seqlens_k"], to=TensorProto.INT32), G.node("Shape", ["attention_mask"], ["mask_shape"]),
             G.node("Gather", ["mask_shape", "at"], ["all"], axis=0), G.node("Cast", ["all"], ["total"], to=TensorProto.INT32)]
    x = "x"
    for k in range(n):
        caches = [f"past_key_values.{k}.{part}" for part in ("key", "value")]
        fresh = [f"present.{k}.{part}" for part in ("key", "value")]
        over += [G.value(name, [batch, pairs, "past_sequence_length", size]) for name in caches]
        outputs += [G.value(name, [batch, pairs, "present_length", size]) for name in fresh]
        sizes = [width + 2 * pairs * size] if packed else [width, pairs * size, pairs * size]
        rows = []
        for j, wide in enumerate(sizes):
            weights.append(G.weight(f"w{k}.{j}", draw(9 * k + j, width, wide, by=0.3)))
            nodes.append(G.node("MatMul", [x, f"w{k}.{j}"], [f"rows{k}.{j}"]))
            rows.append(f"rows{k}.{j}")
        rows += [""] * (3 - len(rows))
        nodes.append(onnx.helper.make_node("GroupQueryAttention", [*rows, *caches, "seqlens_k", "total", "cos", "sin"],
                                           [f"a{k}", *fresh], domain="com.microsoft", num_heads=heads, kv_num_heads=pairs,
                                           do_rotary=1, **more))
        nodes.append(G.node("Add", [x, f"a{k}"], [f"x{k}"]))
        x = f"x{k}"
    nodes.append(G.node("Identity", [x], ["y"]))
    states = [(f"present.{k}.{part}", f"past_key_values.{k}.{part}") for k in range(n) for part in ("key", "value")]
    return G.model(nodes, over, outputs, weights, 18, ["com.microsoft"]), states


LLAMA_SIZES = [("batch_size", "x", 0), ("sequence_length", "x", 1), ("total_sequence_length", "attention_mask", 1)]
LLAMA_BOUNDS = ["--dim", "past_sequence_length<=20", "--dim", "batch_size<=2", "--dim", "sequence_length<=5", "--dim",
                "total_sequence_length<=20"]


def sentences(rows, batch=1, width=64, seed=0):
    total = np.cumsum(rows)
    return [{"x": draw(seed + step, batch, count, width), "attention_mask": np.ones((batch, total[step]), np.int64)}
            for step, count in enumerate(rows)]


@suite.case("GroupQueryAttention's caches, whose lengths are data, grow in place")
def group_query():
    steps = sentences([5, 1, 1, 3, 1, 1])
    for name, more, options in (("packed", {}, []), ("apart", dict(packed=False, keep=0), ["-O0"]),
                                ("window", dict(local_window_size=4), []), ("threads", dict(n=1), ["--threads=2"])):
        model, states = llama(**more)
        first = {key: zeros(1, 2, 0, 16) for _, key in states}
        folder, net = follow(f"llama_{name}", model, states, steps, *LLAMA_BOUNDS, *options, first=first, sizes=LLAMA_SIZES,
                             error=1e-4)
    in_place = (SCRATCH / "llama_packed" / "net.c").read_text().split("int net_run(")[1].split("\n}\n")[0]
    places = [line for line in in_place.splitlines() if "past_sequence_length + sequence_length,16] */" in line]
    expect(len(places) == 4 and all("(states +" in line for line in places), "\n".join(places))
    model, states = llama()
    folder, net = follow("llama_two", model, states, sentences([4, 1, 1], batch=2), *LLAMA_BOUNDS, sizes=LLAMA_SIZES,
                         first={key: zeros(2, 2, 0, 16) for _, key in states}, error=1e-4)
    size = lambda feeds: {n: feeds[v].shape[a] for n, v, a in LLAMA_SIZES}
    good = sentences([4, 1, 1], batch=2)
    first, second, third = (net.run(f, size(f))["y"] for f in good)
    net.reset()
    net.run(good[0], size(good[0]))
    net.run(good[2], size(good[2]), status=13)        # a mask of other length than past and new rows
    ragged = {**good[1], "attention_mask": np.array([[1] * 5, [0] + [1] * 4])}
    net.run(ragged, size(ragged), status=10)          # a sequence that is shorter than the cache
    expect((net.run(good[1], size(good[1]))["y"] == second).all(), "a run that failed has left something")
    expect((net.run(good[2], size(good[2]))["y"] == third).all(), "a run that failed has left something")


def has_no_cache(folder, shape, n):
    """Of a run's buffers that are as large as a cache, n are there, all of them states in one place."""
    body = (folder / "net.c").read_text().split("int net_run(")[1].split("\n}\n")[0]
    lines = [line for line in body.splitlines() if f"[{shape}] */" in line and "*const" in line]
    expect(len(lines) == n and all("(states +" in line for line in lines), "\n".join(lines))
    expect(all(a == b for a, b in places(folder)), f"places: {places(folder)}")


@suite.case("GroupQueryAttention's caches of one size get new rows where they lie, at places that are data")
def group_query_shared():
    bounds = ["--dim", "past_sequence_length=20", *LLAMA_BOUNDS[2:]]
    for name, options, more in (("packed", [], {}), ("plain", ["-O0"], dict(packed=False)), ("threads", ["--threads=2"], {}),
                                ("window", [], dict(local_window_size=4))):
        model, states = llama(**more)
        folder, net = follow(f"shared_{name}", model, states, sentences([5, 1, 1, 3, 1, 1]), *bounds, *options,
                             first={key: zeros(1, 2, 20, 16) for _, key in states}, sizes=LLAMA_SIZES, error=1e-4)
        if not options:
            has_no_cache(folder, "batch_size,2,20,16", 4)
    T.build(folder / "net.c", folder / "net", flags=T.SANITIZE)
    T.must(T.run([folder / "net", "--selftest"]))
    model, states = llama()
    steps = sentences([4, 1, 1, 1], batch=2)
    for step in steps[1:]:
        step["attention_mask"][1, :2] = 0             # the second sequence is two tokens shorter
    folder, net = follow("shared_ragged", model, states, steps, *bounds, sizes=LLAMA_SIZES,
                         first={key: zeros(2, 2, 20, 16) for _, key in states}, error=1e-4)


@suite.case("a cache whose axes are in another order while rows are stored, as PyTorch's index_put is exported, is one place")
def turned():
    for name, there, back, in_place in (("swapped", [2, 1, 0, 3], [2, 1, 0, 3], True), ("round", [2, 0, 1, 3], [1, 2, 0, 3], True),
                                        ("elsewhere", [2, 0, 1, 3], [2, 1, 0, 3], False)):
        shape = [3, 3, 5, 4]                          # (batch, head, position, feature)
        lead = [2] + [shape[a] for a in there[1:]]
        nodes = [G.node("Transpose", ["past"], ["led"], perm=there), G.node("Mul", ["x", "x"], ["rows"]),
                 G.node("Unsqueeze", ["at", "last"], ["places"]), G.node("ScatterND", ["led", "places", "rows"], ["put"]),
                 G.node("Transpose", ["put"], ["now"], perm=back), G.node("ReduceSum", ["now", "two"], ["y"])]
        if not in_place:                              # of shape (3, 5, 3, 4): heads are where positions were
            nodes[4:5] = [G.node("Transpose", ["put"], ["other"], perm=[1, 2, 0, 3]), G.node("Transpose", ["other"], ["now"], perm=[1, 0, 2, 3])]
        model = G.model(nodes, [G.value("x", lead), G.value("past", shape), G.value("at", [2], I64)],
                        [G.value("y", [3, 3, 1, 4]), G.value("now", shape)],
                        [G.weight("last", np.array([-1])), G.weight("two", np.array([2]))])
        steps = [{"x": draw(step, *lead), "at": np.array([step % 5, (2 * step + 3) % 5])} for step in range(5)]
        folder, _ = follow(f"turned_{name}", model, [("now", "past")], steps, first={"past": zeros(*shape)})
        body = (folder / "net.c").read_text().split("int net_run(")[1].split("\n}\n")[0]
        expect(("f32[5,3,3,4] */" in body) == (not in_place), f"{name}: a cache beside the state's place, or none:\n{body}")
        if in_place:
            has_no_cache(folder, "3,3,5,4", 1)


@suite.case("a state of which some places are overwritten is one place; two, where what it was is read or a call may fail")
def scattered():
    for name, node, extra in (
            ("tensor", G.node("TensorScatter", ["past", "rows", "at"], ["now"], axis=1), G.value("at", [2], I64)),
            ("elements", G.node("ScatterElements", ["past", "at", "rows"], ["now"], axis=1), G.value("at", [2, 1, 3], I64)),
            ("add", G.node("ScatterElements", ["past", "at", "rows"], ["now"], axis=1, reduction="add"),
             G.value("at", [2, 1, 3], I64)),
            ("nd", G.node("ScatterND", ["past", "at", "row"], ["now"]), G.value("at", [1, 2], I64))):
        shape = [d.dim_value for d in extra.type.tensor_type.shape.dim]
        nodes = [G.node("Mul", ["x", "x"], ["rows"]), G.node("Slice", ["rows", "zero", "one", "zero"], ["cut"]),
                 G.node("Squeeze", ["cut", "one"], ["row"]), node, G.node("ReduceSum", ["now", "one"], ["y"])]
        weights = [G.weight("zero", np.array([0])), G.weight("one", np.array([1]))]
        steps = [{"x": draw(step, 2, 1, 3), "at": (np.arange(np.prod(shape)).reshape(shape) * 3 + step) % (2 if name == "nd" else 5)}
                 for step in range(5)]
        for late in (False, True):
            more = [G.node("Sub", ["y", "was"], ["z"]), G.node("ReduceMax", ["past", "one"], ["was"])][::-1] if late else []
            ends = [G.value("z", [2, 1, 3])] if late else []
            model = G.model(nodes + more, [G.value("x", [2, 1, 3]), G.value("past", [2, 5, 3]), extra],
                            [G.value("y", [2, 1, 3]), G.value("now", [2, 5, 3]), *ends], weights, 24 if name == "tensor" else 18)
            folder, _ = follow(f"scatter_{name}_{late}", model, [("now", "past")], steps, first={"past": zeros(2, 5, 3)})
            (a, b), = places(folder)
            expect((a == b) == (not late), f"{name}, {late}: places {a}, {b}")
            if not late:
                has_no_cache(folder, "2,5,3", 1)
            if name == "add":
                check_promises(folder)
    words = [G.node("Cast", ["words"], ["n"], to=F32), G.node("Add", ["top", "n"], ["y"])]
    model = G.model([G.node("ScatterElements", ["past", "at", "x"], ["now"], axis=0), G.node("Tanh", ["now"], ["t"]),
                     G.node("TopK", ["t", "one"], ["top", "place"]), *words],
                    [G.value("x", [1]), G.value("at", [1], I64), G.value("past", [3]), G.value("words", [1], TensorProto.STRING)],
                    [G.value("y", [1]), G.value("now", [3])], [G.weight("one", np.array([1]))])
    folder, net = make("scatter_failing", model, [("now", "past")])
    good, bad = ((C.c_char_p * 1)(word) for word in (b"1", b"one"))
    for step, fine in enumerate((True, False, True)):
        feeds = {"x": np.ones(1, np.float32) * (step + 1), "at": np.array([step]),
                 "words": np.frombuffer(good if fine else bad, np.uint64)}
        got = net.run(feeds, status=0 if fine else 10)
        if fine:
            expect(abs(got["y"][0] - np.tanh(step + 1) - 1) < 1e-5, f"step {step}: {got['y']}")
    expect((np.frombuffer(net.save().tobytes()[64:76], np.float32) == [1, 0, 3]).all(), "a run that failed has left something")


@suite.case("a cache in each instruction set, by threads and at -O0")
def cache_variants():
    long = queries(20, heads=3, size=20)
    for name, more in (("generic", ["--cpu=generic"]), ("avx2", ["--cpu=avx2"]), ("avx512", ["--cpu=avx512"]),
                       ("threads", ["--threads=3"]), ("plain", ["-O0", "--cpu=generic"])):
        if name.startswith("avx") and name not in Path("/proc/cpuinfo").read_text():
            continue
        follow(f"cache_{name}", attention(heads=3, size=20), CACHES, long, "--dim", "past<=33", *more,
               first=empty(heads=3, size=20))


@suite.case("several rows at once, of run-time number; halves; a batch; the cache as an output, too")
def cache_kinds():
    chunks = queries(5, rows=lambda step: [3, 1, 0, 2, 3][step])
    _, net = follow("chunks", attention(rows="new"), CACHES, chunks, "--dim", "past<=9", "--dim", "new<=3",
                    first=empty(), sizes=[("new", "q", 2)])
    for step in chunks:
        net.run(step, {"new": step["q"].shape[2]})
    net.run(queries(1)[0], {"new": 1}, status=16)
    follow("halves_cache", attention(dtype=F16), CACHES, queries(6, dtype=np.float16), *BOUND,
           first=empty(dtype=np.float16), error=4e-3)
    follow("batch_cache", attention(batch=2), CACHES, queries(6, batch=2), *BOUND, first=empty(batch=2))
    follow("open", attention(batch="batch"), CACHES, queries(6, batch=2), *BOUND, "--dim", "batch<=3", first=empty(batch=2),
           sizes=[("batch", "q", 0)])
    follow("outside", attention(outside=True), CACHES, queries(6), *BOUND, first=empty())


@suite.case("a cache read at places that are data, by a host function, in part, and its past alone")
def cache_readers():
    nodes = [G.node("Concat", ["past", "x"], ["now"], axis=1), G.node("TopK", ["now", "one"], ["top", "place"], axis=1),
             G.node("Gather", ["now", "which"], ["picked"], axis=1), G.node("ReduceSum", ["past", "rows"], ["sum"], keepdims=0),
             G.node("Slice", ["now", "zero", "one", "rows"], ["oldest"]), G.node("Flatten", ["now"], ["flat"])]
    model = G.model(nodes, [G.value("x", [2, 1, 3]), G.value("past", [2, "past", 3]), G.value("which", [1], I64)],
                    [G.value("top", [2, 1, 3]), G.value("place", [2, 1, 3], I64), G.value("picked", [2, 1, 3]), G.value("sum", [2, 3]),
                     G.value("oldest", [2, 1, 3]), G.value("flat", [2, "wide"]), G.value("now", [2, "total", 3])],
                    [G.weight("zero", np.array([0])), G.weight("one", np.array([1])), G.weight("rows", np.array([1]))])
    steps = [{"x": draw(step, 2, 1, 3), "which": np.array([step // 2])} for step in range(5)]
    folder, _ = follow("readers", model, [("now", "past")], steps, "--dim", "past<=7", first={"past": zeros(2, 0, 3)})
    check_promises(folder)


def layers(n=3, heads=2, size=8):
    """Each layer's new rows are made of the one before, which has read its grown cache."""
    width, nodes, weights = heads * size, [], [G.weight("flat", np.array([1, 1, -1])),
                                               G.weight("split", np.array([1, 1, heads, size]))]
    inputs, outputs, x = [G.value("x", [1, 1, width])], [], "x"
    for k in range(n):
        for part in "qkv":
            weights.append(G.weight(f"{part}w{k}", draw(31 * k + ord(part), width, width)))
            nodes += [G.node("MatMul", [x, f"{part}w{k}"], [f"{part}a{k}"]),
                      G.node("Reshape", [f"{part}a{k}", "split"], [f"{part}b{k}"]),
                      G.node("Transpose", [f"{part}b{k}"], [f"{part}{k}"], perm=[0, 2, 1, 3])]
        for part in "kv":
            inputs.append(G.value(f"past_{part}{k}", [1, heads, "past", size]))
            outputs.append(G.value(f"now_{part}{k}", [1, heads, "total", size]))
            nodes.append(G.node("Concat", [f"past_{part}{k}", f"{part}{k}"], [f"now_{part}{k}"], axis=2))
        nodes += [G.node("Transpose", [f"now_k{k}"], [f"t{k}"], perm=[0, 1, 3, 2]),
                  G.node("MatMul", [f"q{k}", f"t{k}"], [f"s{k}"]), G.node("Softmax", [f"s{k}"], [f"p{k}"], axis=-1),
                  G.node("MatMul", [f"p{k}", f"now_v{k}"], [f"m{k}"]),
                  G.node("Transpose", [f"m{k}"], [f"u{k}"], perm=[0, 2, 1, 3]),
                  G.node("Reshape", [f"u{k}", "flat"], [f"f{k}"]), G.node("Add", [x, f"f{k}"], [f"x{k}"])]
        x = f"x{k}"
    nodes.append(G.node("Tanh", [x], ["y"]))
    return (G.model(nodes, inputs, [G.value("y", [1, 1, width]), *outputs], weights),
            [(f"now_{p}{k}", f"past_{p}{k}") for k in range(n) for p in "kv"])


@suite.case("caches of several layers, a cache that begins with rows of the model")
def cache_layers():
    model, states = layers()
    steps = [{"x": draw(step, 1, 1, 16)} for step in range(7)]
    folder, _ = follow("layers", model, states, steps, "--dim", "past<=8",
                       first={name: zeros(1, 2, 0, 8) for _, name in states})
    in_place_alone(folder, 6)
    T.build(folder / "net.c", folder / "net")
    T.must(T.run([folder / "net", "--selftest"]))
    begun = attention()
    rows = {f"past_{n}": draw(70 + k, 1, 2, 3, 8) for k, n in enumerate("kv")}
    begun.graph.initializer.extend(G.weight(name, array) for name, array in rows.items())
    folder, _ = follow("begun", begun, CACHES, queries(6), *BOUND, first=rows)
    check_promises(folder)


# ---------------------------------------------------------------------------- commands, bad inputs

def verify(target):
    if target == "--target=llvm":
        T.need_llvm(TGC)
    folder = T.scratch(SCRATCH / f"verify-{target[9:]}")
    data = T.scratch(folder / "data")
    onnx.save(attention(batch="batch"), folder / "net.onnx")
    feeds = {**queries(1)[0], "past_k": draw(1, 1, 2, 4, 8), "past_v": draw(2, 1, 2, 4, 8)}
    session = onnxruntime.InferenceSession(str(folder / "net.onnx"))
    for k, v in enumerate(session.get_inputs()):
        np.save(data / f"input_{k}.npy", feeds[v.name])
    want = session.run(None, feeds)
    for k, array in enumerate(want):
        np.save(data / f"output_{k}.npy", array)
    command = [TGC, "verify", folder / "net.onnx", "--data", data, target, *FEW, *states_options(CACHES), *BOUND, "--dim", "batch<=3"]
    text = T.must(T.run(command)).out.decode()
    expect(text.count("ok ") == 3 and "present_v: f32[1,2,5,8]" in text, text)
    np.save(data / "output_2.npy", want[2] + np.float32(1))
    T.must(T.run(command), status=3)
    np.save(folder / "past.npy", feeds["past_k"])
    np.save(folder / "more.npy", draw(2, 1, 2, 5, 8))
    T.must(T.run([TGC, "run", folder / "net.onnx", target, *FEW, *states_options(CACHES), *BOUND, "--dim", "batch<=3", "--steps=5",
                  "-i", f"past_k={folder / 'past.npy'}", "-i", f"past_v={folder / 'past.npy'}"]))
    done = T.must(T.run([TGC, "run", folder / "net.onnx", target, *FEW, *states_options(CACHES), *BOUND, "--dim", "batch<=3", "--steps=6",
                         "-i", f"past_k={folder / 'past.npy'}", "-i", f"past_v={folder / 'past.npy'}"]), status=1)
    expect("grow beyond the bound" in done.err, done.err)
    done = T.must(T.run([TGC, "run", folder / "net.onnx", target, *FEW, *states_options(CACHES), *BOUND, "--dim", "batch<=3",
                         "-i", f"past_k={folder / 'past.npy'}", "-i", f"past_v={folder / 'more.npy'}"]), status=1)
    expect("has 5 rows" in done.err and "'past_k'" in done.err, done.err)
    np.save(folder / "two.npy", draw(2, 2, 2, 4, 8))
    done = T.must(T.run([TGC, "run", folder / "net.onnx", target, *FEW, *states_options(CACHES), *BOUND, "--dim", "batch<=3",
                         "-i", f"past_k={folder / 'past.npy'}", "-i", f"past_v={folder / 'two.npy'}"]), status=1)
    expect("by the other sizes 'batch' is 1" in done.err, done.err)


for target in ("--target=c", "--target=llvm"):
    suite.add(f"verify sets states from recorded inputs and compares what is kept ({target})", verify, target)


@suite.case("tgc bench and tune run a state that is full again and again", slow=True)
def bench():
    folder = T.scratch(SCRATCH / "bench")
    onnx.save(attention(), folder / "net.onnx")
    T.must(T.run([TGC, "bench", folder / "net.onnx", *states_options(CACHES), *BOUND]))
    T.must(T.run([TGC, "tune", folder / "net.onnx", "-o", folder / "net.tune", *states_options(CACHES), *BOUND]))


@suite.case("a text graph with states")
def text_graph():
    folder = T.scratch(SCRATCH / "text")
    onnx.save(formula([G.node("Add", ["s", "x"], ["s_next"]), G.node("Neg", ["s_next"], ["y"])]),
              folder / "net.onnx")
    T.must(T.run([TGC, folder / "net.onnx", "-o", folder / "net.tg"]))
    done = T.must(T.run([TGC, folder / "net.onnx", "-o", folder / "no.tg", "--state", "s_next=s"]), status=1)
    expect("has no states" in done.err and not (folder / "no.tg").exists(), done.err)
    np.save(folder / "x.npy", np.ones((3, 5), np.float32))
    T.must(T.run([TGC, "run", folder / "net.tg", "--state", "s_next=s", "--steps", "4", "-i",
                  f"x={folder / 'x.npy'}", "--out-dir", folder / "out"]))
    expect((np.load(folder / "out" / "y.npy") == -4).all(), "four steps of ones")
    report = json.loads(T.must(T.run([TGC, folder / "net.tg", "-o", "-", "--emit=json", "--state", "s_next=s"])).out)
    expect([(s["output"], s["input"], s["grows"], s["block"]) for s in report["states"]] == [("s_next", "s", None, "arena")] and
           len(report["inputs"]) == 1, f"{report}")


@suite.case("what cannot be a state is said with names, shapes and a cure")
def refused():
    folder = T.scratch(SCRATCH / "refused")
    onnx.save(recurrent("LSTM"), folder / "lstm.onnx")
    onnx.save(attention(), folder / "cache.onnx")
    onnx.save(G.model([G.node("Concat", ["x", "past"], ["all"], axis=1), G.node("Cast", ["n"], ["m"], to=F32),
                       G.node("StringNormalizer", ["words"], ["more"], is_case_sensitive=0,
                              case_change_action="LOWER")],
                      [G.value("x", [1, 2]), G.value("past", [1, "past"]), G.value("n", [2], I64),
                       G.value("words", [4], TensorProto.STRING)],
                      [G.value("all", [1, "total"]), G.value("m", [2]), G.value("more", [4], TensorProto.STRING)]),
              folder / "odd.onnx")
    begun = attention()
    begun.graph.initializer.append(G.weight("past_k", draw(1, 1, 2, 3, 8)))
    onnx.save(begun, folder / "begun.onnx")
    wide = attention()
    wide.graph.initializer.append(G.weight("past_k", draw(1, 1, 2, 3, 7)))
    onnx.save(wide, folder / "wide.onnx")
    past = ["--dim", "past<=9"]
    for model, options, words in (
            ("lstm", ["--state", "h_nxt=h"], ["no output 'h_nxt' (did you mean 'h_next'?)", "'y', 'h_next', 'c_next'"]),
            ("lstm", ["--state", "h_next=z"], ["no input 'z'", "'x', 'h', 'c'"]),
            ("lstm", ["--state", "h_next=h", "--state", "c_next=h"], ["'h' is kept from 'h_next' already"]),
            ("lstm", ["--state", "y=h"], ["'y' is f32[2,1,1,12]", "'h' is f32[1,1,12]", "dtype and rank"]),
            ("lstm", ["--state", "h_next"], ["OUT=IN is expected"]),
            ("lstm", ["--state", "=h"], ["OUT=IN is expected"]),
            ("cache", ["--state", "present_k=past_k", "--shape", "past_k=?x?x4x?"],
             ["'present_k' is f32[1,2,5,8]", "'past_k' is f32[1,2,4,8]", "--dim"]),
            ("cache", ["--state", "present_k=past_v", *past], ["is Concat(input, new rows)"]),
            ("odd", ["--state", "all=past", *past], ["'all' is", "is Concat(input, new rows)"]),
            ("odd", ["--state", "m=n", *past], ["'m' is f32[2]", "'n' is i64[2]"]),
            ("odd", ["--state", "more=words", *past], ["holds strings"]),
            ("begun", [*states_options(CACHES), *past], ["begin with 3 and 0"]),
            ("wide", [*states_options(CACHES), *past], ["its value in the model is f32[1,2,3,7]"])):
        done = T.run([TGC, folder / f"{model}.onnx", "-o", folder / "no.c", *options])
        expect(done.status in (1, 2) and not (folder / "no.c").exists() and all(w in done.err for w in words),
               f"{options}: status {done.status}: {done.err}")
    for steps in ("0", "-1", "x"):
        T.must(T.run([TGC, "run", folder / "lstm.onnx", "--steps", steps]), status=2)


suite.main()
