"""Derivatives as outputs: --gradient of ONNX models and texts, gradient() and stop_gradient() in texts, against differences in f64 and
against what is known by hand; params, states, entries, imports; what the cache, verify --data and emitted code make of them; mistakes.

The rules themselves, operator by operator, are the suite gradient's.
"""

import json
import re
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/lib"))
import graphs as G  # noqa: E402
import tgc as T  # noqa: E402
from suite import Suite, expect  # noqa: E402

suite = Suite("derivatives")
OPTIONS = suite.parse()
TGC = T.find_tgc(OPTIONS.build).resolve()
SCRATCH = T.scratch(Path(OPTIONS.build).resolve() / "test-scratch" / "derivatives")
DOUBLE, STEP = TensorProto.DOUBLE, 1e-5
case = suite.folder_case(SCRATCH)


def tgc(folder, *words, status=0, env=None):
    done = T.run([TGC, *words], cwd=folder, env={**T.quickly(), **(env or {})})
    expect(done.status == status, f"{words}: status {done.status}, not {status}\n{done.err}")
    return done


def run(folder, model, inputs, *options, env=None):
    T.scratch(folder / "out")
    words = []
    for name, array in inputs.items():
        np.save(folder / f"in_{name}.npy", array)
        words += ["-i", f"{name}=in_{name}.npy"]
    tgc(folder, "run", model, *words, "--out-dir", "out", *options, env=env)
    return {p.stem: np.load(p) for p in (folder / "out").glob("*.npy")}


def run_text(folder, text, inputs, *options):
    (folder / "m.tg").write_text("tg 1\n" + text)
    return run(folder, "m.tg", inputs, *options)


def draw(*shape, seed=3):
    return np.random.default_rng(seed).standard_normal(shape)


def close(got, want):
    expect(sorted(got) == sorted(want), f"outputs {sorted(got)}, expected {sorted(want)}")
    for name, value in want.items():
        value = np.asarray(value)
        expect(got[name].shape == value.shape and np.allclose(got[name], value, 1e-5, 1e-7),
               f"{name}: {got[name].ravel()[:6]} of {got[name].shape}\nexpected {value.ravel()[:6]} of {value.shape}")


def differences(function, at):
    """The derivative of the sum of function(), by differences."""
    slope = np.zeros(at.shape)
    for i in np.ndindex(*at.shape):
        sides = []
        for sign in (1, -1):
            moved = at.copy()
            moved[i] += sign * STEP
            sides.append(np.sum(function(moved)))
        slope[i] = (sides[0] - sides[1]) / (2 * STEP)
    return slope


# ------------------------------------------------------------------------------------------------- gradient() in texts

TEXT = """input %x : f64[4, 3]
param %w : f64[3] = [1, -2, 0.5]
param %b : f64 = [0.25]
%h = mul(%x, %w)
%s = add(%h, %b)
%t = tanh(%s)
%loss = mul(%t, %h)
%gx, %gw, %gb = gradient(%loss, %x, %w, %b)
%gh, %gt, %gs = gradient(%loss, %h, %t, %s)
output %gx
output %gw
output %gb
output %gh
output %gt
output %gs
"""


@case("by inputs, params and values inside, of which each gets its whole derivative")
def inside(folder):
    x, w, b = draw(4, 3), np.array([1, -2, 0.5]), np.array(0.25)
    t = np.tanh(x * w + b)
    slope = 1 - t * t
    close(run_text(folder, TEXT, {"x": x}),
          {"gx": differences(lambda v: np.tanh(v * w + b) * v * w, x), "gw": differences(lambda v: np.tanh(x * v + b) * x * v, w),
           "gb": differences(lambda v: np.tanh(x * w + v) * x * w, b), "gh": t + slope * x * w, "gt": x * w, "gs": slope * x * w})


@case("windows with a stride, of the highest rank that they can have")
def windows_of_high_rank(folder):
    ones = ", ".join(["1"] * 11)
    x, c = draw(*[1] * 12, 8), draw(*[1] * 11, 2, 3, 3)
    text = f"""input %x : f64[{ones}, 1, 8]
input %c : f64[{ones}, 2, 3, 3]
%w = window(%x) {{axis=12, out=3, kernel=3, stride=2}}
%z = add(%w, %c)
%e = exp(%z)
%s = reduce_sum(%e)
%gx = gradient(%s, %x)
output %gx
"""
    parts = np.arange(3)[:, None] * 2 + np.arange(3)
    close(run_text(folder, text, {"x": x, "c": c}), {"gx": differences(lambda v: np.exp(v.reshape(8)[parts] + c.reshape(2, 3, 3)), x)})


@case("elementwise ops that ONNX's operators do not make")
def elementwise(folder):
    x, y, z = np.array([-1.3, -0.4, 0.6, 1.7]), np.array([0.7, -1.1, 0.25, -0.6]), draw(4)
    square = x * x + y * y
    want = {"exp2": [np.log(2) * 2 ** x], "exp1": [-np.exp(-x)], "mulacc": [y, x, np.ones(4)], "atan2": [y / square, -x / square],
            "floormod": [np.ones(4), -np.floor(x / y)], "mod": [np.ones(4), -np.trunc(x / y)], "stack": [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 1]]}
    lines = [*(f"input %{n} : f64[4]" for n in "xyz"), "weight %i : i64[4] = [-1, 1, 2, 5]", "%narrow = cast(%x) {to=f32}",
             "%two.f32 = exp2(%narrow)", "%two = cast(%two.f32) {to=f64}", "%two.x = gradient(%two, %x)", "output %two.x"]
    for op, slopes in want.items():
        operands = ", ".join(f"%{n}" for n in "xyz"[:len(slopes)])
        lines += [f"%{op} = {op}({'%i, ' * (op == 'stack')}{operands})",
                  f"{', '.join(f'%{op}.{n}' for n in 'xyz'[:len(slopes)])} = gradient(%{op}, {operands})",
                  *(f"output %{op}.{n}" for n in "xyz"[:len(slopes)])]
    close(run_text(folder, "\n".join([*lines, ""]), {"x": x, "y": y, "z": z}),
          {"two.x": want["exp2"][0]} | {f"{op}.{n}": slope for op, slopes in want.items() for n, slope in zip("xyz", slopes)})


@case("second derivatives, and a product of the Hessian with a vector")
def second(folder):
    w, v = draw(5), draw(5, seed=4)
    got = run_text(folder, """input %w : f64[5]
input %v : f64[5]
%e = exp(%w)
%sum = reduce_sum(%w) {keep=false}
%y = mul(%e, %sum)
%g = gradient(%y, %w)
%gv = mul(%g, %v)
%hv = gradient(%gv, %w)
%cube = pow(%w, 3)
%first = gradient(%cube, %w)
%second = gradient(%first, %w)
%third = gradient(%second, %w)
%fourth = gradient(%third, %w)
output %hv
output %second
output %third
output %fourth
""", {"w": w, "v": v})
    e = np.exp(w)
    hessian = np.diag(e * w.sum() + 2 * e) + e[:, None] + e[None, :] - 2 * np.diag(e)
    close(got, {"hv": hessian @ v, "second": 6 * w, "third": np.full(5, 6.0), "fourth": np.zeros(5)})


@case("rules simplify through no value that gradient names: equal values are two, and casts and moves stay")
def simplified(folder):
    x = draw(2, 3)
    got = run_text(folder, """input %x : f64[2, 3]
%a = reshape(%x) {shape=[3, 2]}
%b = reshape(%x) {shape=[3, 2]}
%flat = reshape(%a) {shape=[6]}
%c = cast(%x) {to=f64}
%n = neg(%x)
%m = neg(%n)
%p = mul(%flat, %flat)
%q = mul(%a, %b)
%r = mul(%m, %m)
%ga = gradient(%p, %a)
%gb = gradient(%q, %b)
%gn = gradient(%r, %n)
%gc = gradient(%c, %c)
output %ga
output %gb
output %gn
output %gc
""", {"x": x})
    close(got, {"ga": 2 * x.reshape(3, 2), "gb": x.reshape(3, 2), "gn": -2 * x, "gc": np.ones((2, 3))})
    text = tgc(folder, "m.tg", "-o", "-", "--emit=tg").out.decode()
    expect("stop_gradient" not in text and "neg(%0" not in text, f"variables are gone once the text is read:\n{text}")


@case("stop_gradient: nothing passes through it, also in a text that was written; the value is x's")
def stop(folder):
    x = draw(4)
    text = """input %x : f64[4]
%r = round(%x)
%d = sub(%r, %x)
%fixed = stop_gradient(%d)
%y = add(%x, %fixed)
%z = mul(%y, %y)
output %z
"""
    want = {"z": np.round(x) ** 2, "grad.x": 2 * np.round(x)}
    close(run_text(folder, text, {"x": x}, "--gradient=z"), want)
    tgc(folder, "m.tg", "-o", "again.tg")
    expect("stop_gradient" in (folder / "again.tg").read_text(), (folder / "again.tg").read_text())
    for level in ("-O0", "-O2"):
        close(run(folder, "again.tg", {"x": x}, "--gradient=z", level), want)


@case("inside of definitions, branches and bodies of loops; in a --library for an ONNX model")
def regions(folder):
    x = draw(3)
    definition = """def slope(%x) -> (%y) {
    %h = mul(%x, %x)
    %s = mul(%h, %h)
    %by_h = gradient(%s, %h)
    %by_x = gradient(%s, %x)
    %y = add(%by_h, %by_x)
}
"""
    close(run_text(folder, definition + """input %x : f64[3]
input %flag : bool
%twice = mul(%x, 2.0)
%d = slope(%twice)
%b = if(%flag) then { %c = mul(%x, %x) %e = mul(%c, %x) %g = gradient(%e, %x) yield(%g) } else (%x)
%l = loop %i < 3 carry(%a = %x) {
    %sq = mul(%a, %a)
    %next = gradient(%sq, %a)
    next(%next)
}
output %d
output %b
output %l
""", {"x": x, "flag": np.array(True)}), {"d": 2 * (2 * x) ** 2 + 4 * (2 * x) ** 3, "b": 3 * x * x, "l": 8 * x})
    (folder / "lib.tg").write_text("tg 1\n" + definition.replace("def slope", 'def "my.domain::Slope"'))
    m = G.model([onnx.helper.make_node("Slope", ["x"], ["d"], domain="my.domain")], [G.value("x", [3], DOUBLE)], [G.value("d", [3], DOUBLE)],
                domains=["my.domain"])
    onnx.save(m, folder / "m.onnx")
    close(run(folder, "m.onnx", {"x": x}, "--library=lib.tg"), {"d": 2 * x ** 2 + 4 * x ** 3})


@case("a loop over a part of the rows, forwards and backwards")
def part_of_rows(folder):
    x, z = draw(6, 3), draw(1, 3, seed=4)
    for begin, order in (("%i + 1", (1, 2)), ("4 - %i", (4, 3))):
        def last(rows, start, order=order):
            for k in order:
                start = np.sin(start * rows[k])
            return start
        got = run_text(folder, f"""input %x : f64[6, 3]
input %z : f64[1, 3]
%l = loop %i < 2 carry(%a = %z) {{
    %row = shrink(%x) {{begin=[{begin}, 0], size=[1, 3]}}
    %p = mul(%a, %row)
    %next = sin(%p)
    next(%next)
}}
output %l as "y"
""", {"x": x, "z": z}, "--gradient=y")
        close(got, {"y": last(x, z), "grad.x": differences(lambda v: last(v, z), x), "grad.z": differences(lambda v: last(x, v), z)})


@case("an open dimension")
def dynamic(folder):
    x = draw(5, 2)
    got = run_text(folder, """input %x : f64[N<=8, 2]
param %w : f64[2] = [3, 4]
%h = mul(%x, %w)
%y = mul(%h, %h)
%g = gradient(%y, %w)
output %y
output %g
""", {"x": x}, "--gradient=y")
    w = np.array([3, 4.0])
    close(got, {"y": (x * w) ** 2, "g": 2 * w * (x * x).sum(0), "grad.w": 2 * w * (x * x).sum(0), "grad.x": 2 * x * w * w})


@case("a param is a weight: in C, by LLVM, written and read again; only it keeps its word")
def params(folder):
    text = """input %x : f32[3]
weight %w : f32[3] = [1, 2, 3]
param %p : f32[3] as "the p" = [4, 5, 6]
param %s : f32 = [0.5]
param %unused : f32[2] = zeros()
%a = mul(%x, %w)
%b = mul(%a, %p)
%y = mul(%b, %s)
output %y
"""
    x = np.array([1, 1, 2], np.float32)
    close(run_text(folder, text, {"x": x}), {"y": [2, 5, 18]})
    close(run_text(folder, text, {"x": x}, "--target=c"), {"y": [2, 5, 18]})
    tgc(folder, "m.tg", "-o", "once.tg")
    once = (folder / "once.tg").read_text()
    lines = [line for line in once.splitlines() if line.startswith(("param", "weight"))]
    expect(lines == ["weight %w : f32[3] = [1, 2, 3]", 'param %w0 : f32[3] as "the p" = [4, 5, 6]', "param %s : f32 = [0.5]"], once)
    again = T.scratch(folder / "again")
    tgc(folder, "once.tg", "-o", "again/once.tg")
    expect((again / "once.tg").read_text() == once, (again / "once.tg").read_text())
    close(run(folder, "once.tg", {"x": x}), {"y": [2, 5, 18]})


# ---------------------------------------------------------------------------------------------------------- --gradient

W1, B1, W2, B2, SCALE = draw(3, 4), draw(4), draw(4, 1), np.array([0.3]), np.array(1.5)
WEIGHTS = [("w1", W1), ("b1", B1), ("w2", W2), ("b2", B2), ("scale", SCALE)]
NODES = [G.node("Gemm", ["x", "w1", "b1"], ["h"]), G.node("Tanh", ["h"], ["t"]), G.node("Gemm", ["t", "w2", "b2"], ["p"]), G.node("Mul", ["p", "scale"], ["y"]),
         G.node("Shape", ["x"], ["size"]), G.node("Sin", ["other"], ["z"]), G.node("Constant", [], ["c"], value=G.weight("c", draw(2, 1))), G.node("Add", ["y", "c"], ["v"])]
INPUTS = {"x": draw(2, 3, seed=8), "other": draw(4, seed=9)}


def perceptron(folder):
    """Weights of one element, of rank 0 and 1; a constant of a node; outputs that depend on nothing, or on another input."""
    outputs = [("y", [2, 1], DOUBLE), ("size", [2], TensorProto.INT64), ("z", [4], DOUBLE), ("v", [2, 1], DOUBLE)]
    m = G.model(NODES, [G.value(n, a.shape, DOUBLE) for n, a in INPUTS.items()], [G.value(*o) for o in outputs], [G.weight(n, a) for n, a in WEIGHTS])
    onnx.save(m, folder / "m.onnx")
    return m


def forward(m, output, **changed):
    """The value of an output with other inputs or weights."""
    m = onnx.ModelProto.FromString(m.SerializeToString())
    for k, (name, _) in enumerate(WEIGHTS):
        if name in changed:
            m.graph.initializer[k].CopyFrom(G.weight(name, changed.pop(name)))
    return ReferenceEvaluator(m).run([output], {**INPUTS, **changed})[0]


@case("of an ONNX model: by its inputs and initializers, those of one element, too, and by no constant of a node")
def of_onnx(folder):
    m = perceptron(folder)
    plain = {o: forward(m, o) for o in ("y", "size", "z", "v")}
    values = {**INPUTS, **dict(WEIGHTS)}
    want = {n: differences(lambda a, n=n: forward(m, "y", **{n: a}), values[n]) for n in ("x", "w1", "b1", "w2", "b2", "scale")}
    want_z = {"other": np.cos(INPUTS["other"])}
    for options in ([], ["--target=c"], ["-O0"]):
        close(run(folder, "m.onnx", INPUTS, "--gradient=y", *options), {**plain, **{f"grad.{n}": a for n, a in want.items()}})
    close(run(folder, "m.onnx", INPUTS, "--gradient=z"), {**plain, "grad.other": want_z["other"]})
    close(run(folder, "m.onnx", INPUTS, "--gradient=y", "--gradient", "z"),
          {**plain, **{f"grad.y.{n}": a for n, a in want.items()}, "grad.z.other": want_z["other"]})
    h = INPUTS["x"] @ W1 + B1
    slope = 1 - np.tanh(h) ** 2
    close(run(folder, "m.onnx", INPUTS, "--gradient=t", "--value=t", "--value=h"),
          {**plain, "t": np.tanh(h), "h": h, "grad.x": slope @ W1.T, "grad.b1": slope.sum(0), "grad.w1": INPUTS["x"].T @ slope})


@case("a weight that an operator takes as a scalar: the value of a Pad")
def scalar_operand(folder):
    x, factor = draw(3), draw(6)
    m = G.model([G.node("Pad", ["x", "pads", "value"], ["p"]), G.node("Mul", ["p", "factor"], ["y"])], [G.value("x", [3], DOUBLE)],
                [G.value("y", [6], DOUBLE)], [G.weight("pads", np.array([1, 2])), G.weight("value", np.array(0.5)), G.weight("factor", factor)])
    onnx.save(m, folder / "m.onnx")
    padded = np.concatenate([[0.5], x, [0.5, 0.5]])
    close(run(folder, "m.onnx", {"x": x}, "--gradient=y"),
          {"y": padded * factor, "grad.x": factor[1:4], "grad.value": factor[0] + factor[4] + factor[5], "grad.factor": padded})


@case("the order of outputs; info, bench, emitted C and its self-test; the text that is written")
def everywhere(folder):
    perceptron(folder)
    names = ["y", "size", "z", "v", "grad.x", "grad.w1", "grad.b1", "grad.w2", "grad.b2", "grad.scale"]
    info = json.loads(tgc(folder, "info", "m.onnx", "--gradient=y", "--json").out)
    expect([o["name"] for o in info["outputs"]] == names, f"{info['outputs']}")
    expect(info["outputs"][5]["shape"] == [3, 4] and info["outputs"][9]["shape"] == [], f"{info['outputs']}")
    tgc(folder, "bench", "m.onnx", "--gradient=y")
    tgc(folder, "m.onnx", "-o", "net.c", "--gradient=y")
    fields = re.findall(r"double \*(\w+);", (folder / "net.h").read_text())[len(INPUTS):]
    expect(fields == ["y", "z", "v", "grad_x", "grad_w1", "grad_b1", "grad_w2", "grad_b2", "grad_scale"], f"{fields}")
    T.must(T.run(["gcc", T.LEVEL, "-DNET_MAIN", "net.c", "-o", "net", "-lm"], cwd=folder))
    T.must(T.run(["./net", "--selftest"], cwd=folder))
    for way in ("--gradient=y", "--gradient=v"):
        tgc(folder, "m.onnx", "-o", "m.tg", way)
        said = tgc(folder, "run", "m.tg").out.decode()
        expect("grad.scale" in said and "grad.c" not in said, said)
    tgc(folder, "m.onnx", "-o", "with.tg", "--gradient=z")
    expect("mul(%20, f64(1.5))" in (folder / "with.tg").read_text(), "a weight of rank 0 is a constant again")


@case("verify: recorded gradients behind recorded outputs, also out of the cache; two models; another level")
def verified(folder):
    perceptron(folder)
    got = run(folder, "m.onnx", INPUTS, "--gradient=y")
    data = T.scratch(folder / "data")
    for k, name in enumerate(INPUTS):
        np.save(data / f"input_{k}.npy", INPUTS[name])
    names = ["y", "size", "z", "v", "grad.x", "grad.w1", "grad.b1", "grad.w2", "grad.b2", "grad.scale"]
    for k, name in enumerate(names):
        np.save(data / f"output_{k}.npy", got[name])
    env = {"TGC_CACHE": "1", "XDG_CACHE_HOME": str(folder / "xdg")}
    for turn in range(2):
        said = tgc(folder, "verify", "m.onnx", "--gradient=y", "--data", "data", env=env).out.decode()
        expect(said.count("ok ") == len(names), f"turn {turn}: {said}")
    np.save(data / "output_5.npy", got["grad.w1"] + 1)
    for turn in range(2):
        said = tgc(folder, "verify", "m.onnx", "--gradient=y", "--data", "data", status=3, env=env).out.decode()
        expect("MISMATCH grad.w1" in said and said.count("MISMATCH") == 1, said)
    said = tgc(folder, "verify", "m.onnx", "--gradient=y", "--data", "data", "--target=c", status=3).out.decode()
    expect("MISMATCH grad.w1" in said, said)
    said = tgc(folder, "verify", "m.onnx", "--gradient=y", "--other=-O0").out.decode()
    expect(said.count("ok ") == len(names), said)


@case("the cache knows a program with gradients from one without, and from another OUT's")
def cached(folder):
    m = perceptron(folder)
    env = {"TGC_CACHE": "1", "XDG_CACHE_HOME": str(folder / "xdg"), "CC": ""}
    for _ in range(2):
        for options, n in (([], 4), (["--gradient=y"], 10), (["--gradient=z"], 5), (["--gradient=v"], 10), (["--gradient=y", "--gradient=z"], 11)):
            got = run(folder, "m.onnx", INPUTS, *options, env=env)
            expect(len(got) == n and np.allclose(got["y"], forward(m, "y")), f"{options}: {sorted(got)}")


@case("states are constants of a run; in a graph with entries gradients are outputs of OUT's entry")
def states(folder):
    text = """state %n : f64 = [3]
input %x : f64[2]
param %w : f64[2] = [1, 2]
%y = mul(%x, %n)
%z = mul(%y, %w)
%m = add(%n, 1.0)
keep %n = %m
output %z
"""
    x = np.array([1.0, 2])
    for target in ("--target=llvm", "--target=c") if T.has_llvm(TGC) else ("--target=c",):
        close(run_text(folder, text, {"x": x}, "--gradient=z", "--value=m", "--steps=3", target),
              {"z": [5, 20], "m": 6, "grad.x": [5, 10], "grad.w": [5, 10]})
    onnx.save(G.model([G.node("Mul", ["x", "past"], ["y"]), G.node("Add", ["past", "x"], ["new"]), G.node("Mul", ["y", "x"], ["z"])],
                      [G.value("x", [2], DOUBLE), G.value("past", [2], DOUBLE)], [G.value(n, [2], DOUBLE) for n in ("y", "new", "z")]), folder / "s.onnx")
    close(run(folder, "s.onnx", {"x": x}, "--gradient=z", "--state", "new=past", "--steps=3"), {"y": x * 2 * x, "z": 2 * x ** 3, "grad.x": 4 * x * x})
    said = tgc(folder, "run", "s.onnx", "--gradient=new", "--state", "new=past", status=1).err
    expect("s.onnx: --gradient=new: error: it is no output, but a state of --state" in said, said)
    entries = """param %w : f64[2] = [3, 4]
entry "a" {
    input %x : f64[2]
    %y = mul(%x, %w)
    output %y
    output %x as "same"
}
entry "b" {
    input %x : f64[2]
    %y = mul(%x, %x)
    %loss = mul(%y, %w)
    output %loss
}
entry "c" {
    input %z : f64[2]
    %s = mul(%z, %w)
    output %s as "last"
    output %z as "same"
}
"""
    for option, made in (("--gradient=y", {"a": {"grad.x": [3, 4], "grad.w": x}}), ("--gradient=loss", {"b": {"grad.x": 2 * x * [3, 4], "grad.w": x * x}}),
                         ("--gradient=last", {"c": {"grad.z": [3, 4], "grad.w": x}})):
        plain = {"a": {"y": x * [3, 4], "same": x}, "b": {"loss": x * x * [3, 4]}, "c": {"last": x * [3, 4], "same": x}}
        for entry, want in plain.items():
            close(run_text(folder, entries, {"z" if entry == "c" else "x": x}, option, f"--entry={entry}"), {**want, **made.get(entry, {})})
    said = tgc(folder, "run", "m.tg", "--entry=a", "--gradient=same", status=1).err
    expect("m.tg: --gradient=same: error: two entries have an output of this name" in said, said)


@case("an imported model: its weights, of which two calls share one")
def imported(folder):
    w, x = draw(3, 3), draw(2, 3)
    onnx.save(G.model([G.node("MatMul", ["x", "w"], ["y"])], [G.value("x", [2, 3], DOUBLE)], [G.value("y", [2, 3], DOUBLE)], [G.weight("w", w)]), folder / "net.onnx")
    onnx.save(G.model([G.node("MatMul", ["x", "w"], ["y"])], [G.value("x", [2, 3], DOUBLE)], [G.value("y", [2, 3], DOUBLE)], [G.weight("w", w + 1)]), folder / "other.onnx")
    got = run_text(folder, """import net = "net.onnx"
import other = "other.onnx"
input %x : f64[2, 3]
%a = net(%x)
%b = net(%a)
%y = other(%b)
output %y
""", {"x": x}, "--gradient=y")
    v, one = w + 1, np.ones((2, 3))
    by_b = one @ v.T
    close(got, {"y": x @ w @ w @ v, "grad.x": by_b @ w.T @ w.T, "grad.w": (x @ w).T @ by_b + x.T @ (by_b @ w.T), "grad.w_2": (x @ w @ w).T @ one})


@case("a convolution of values under a pooling, and the gradient through it, are kernels of their own")
def apart(folder):
    """In the pooling's loops they would be element by element: a run's weights have no layout for its columns."""
    def pooled(x, y):
        return G.node("MaxPool", [x], [y], kernel_shape=[2, 2], strides=[2, 2])
    for name, nodes, more, shape, options, kernels in (
            ("below", [G.node("Conv", ["x", "w"], ["c"]), pooled("c", "p"), G.node("Conv", ["p", "v"], ["y"])],
             [G.value("v", [16, 16, 3, 3])], [2, 16, 3, 3], [], 3),      # and a copy of w
            ("above", [pooled("x", "p"), G.node("Conv", ["p", "w"], ["c"]), G.node("Mul", ["c", "r"], ["y"])],
             [G.value("r", [2, 16, 4, 4])], [2, 16, 4, 4], ["--gradient=y"], 11)):          # and copies of two factors
        inputs = [G.value("x", [2, 8, 12, 12]), G.value("w", [16, 8, 3, 3]), *more]
        onnx.save(G.model(nodes, inputs, [G.value("y", shape)]), folder / f"{name}.onnx")
        info = json.loads(tgc(folder, "info", f"{name}.onnx", "--json", *options).out)
        expect(info["kernels"] == kernels, f"{name}: {info['kernels']} kernels")


@case("a parameter that training changes is copied for a product that sums along its rows, not where its columns are contiguous")
def copied(folder):
    def copies(shape, product, rows):
        (folder / "m.tg").write_text(f"""tg 1
input %x : f32[{rows}, 8]
state %w : f32{shape} = uniform(seed=1)
%y = {product}(%x, %w)
%l = mul(%y, %y)
%g = gradient(%l, %w)
%s = mul(%g, 0.001)
%next = sub(%w, %s)
keep %w = %next
output %y
""")
        tgc(folder, "verify", "m.tg", "--other=-O0")
        kernels = json.loads(tgc(folder, "info", "m.tg", "--json").out)["kernel_list"]
        return sum(k["flop"] == 0 and [r["shape"] for r in k["reads"]] == [shape] for k in kernels)
    found = [copies([16, 8], "linear", 128), copies([16, 8], "linear", 63), copies([8, 16], "matmul", 128)]
    expect(found == [1, 0, 0], f"copies: {found}")


@case("mistakes name what is wrong, and what there is")
def mistakes(folder):
    perceptron(folder)
    (folder / "m.tg").write_text("""tg 1
input %x : f32[4]
input %i : i64[4]
weight %w : f32[4] = ones()
%y = mul(%x, %w)
%j = add(%i, 1)
%f = cast(%j) {to=f32}
%s = stop_gradient(%y)
%l = loop %k < 3 carry(%a = %x) {
    %b = mul(%a, %a)
    %more = lt(%k, 2)
    next(%b) while %more
}
output %y
output %j
output %f
output %s
output %l
output %x as "grad.w"
""")
    outputs = "'y' (f32[4]), 'j' (i64[4]), 'f' (f32[4]), 's' (f32[4]), 'l' (f32[4]), 'grad.w' (f32[4])"
    for words, said in (
            (["m.tg", "--gradient=w"], f"m.tg: --gradient=w: error: there is no such output; the outputs are {outputs}, and --value NAME makes a value inside of the graph one"),
            (["m.tg", "--gradient=j"], f"m.tg: --gradient=j: error: it is i64[4], and only floats have a gradient; the outputs are {outputs}"),
            (["m.tg", "--gradient=s"], "m.tg: --gradient=s: error: it depends on no float input and no float weight; the inputs are 'x' (f32[4]), 'i' (i64[4])"),
            (["m.tg", "--gradient=f"], "m.tg: --gradient=f: error: it depends on no float input and no float weight; the inputs are"),
            (["m.tg", "--gradient=y"], "m.tg: --gradient=y: error: there is an output 'grad.w' already"),
            (["m.tg", "--gradient=y", "--gradient=y"], "m.tg: --gradient=y: error: it is given twice"),
            (["m.tg", "--gradient=l"], "m.tg: --gradient=l: error: gradient: "),
            (["m.onnx", "--gradient=size"], "m.onnx: --gradient=size: error: it is i64[2], and only floats have a gradient; the outputs are 'y' (f64[2, 1]), 'size' (i64[2])"),
            (["m.onnx", "--gradient=t"], "m.onnx: --gradient=t: error: there is no such output; the outputs are 'y' (f64[2, 1])")):
        done = tgc(folder, *words, "-o", "net.c", status=1)
        expect(said in done.err and not (folder / "net.c").exists(), f"{words}: {done.err}")
    said = tgc(folder, "run", "m.tg", "--gradient=", status=2).err
    expect("--gradient" in said, said)
    for line, said in (("%a, %b = gradient(%x, %x)", ":4:5: error: gradient has 1 results, 2 are named"),
                       ("%a = gradient(%x, %x) {axis=0}", ":4:24: error: gradient has no attribute 'axis'"),
                       ("%a : f32[3] = gradient(%x, %x)", ":4:6: error: declared f32[3], but the value is f32[4]"),
                       ("%a = gradient(%w, %x)\noutput %a", None), ('%a = gradient(%x, %"x")\noutput %a', None),
                       ('%"a b" = neg(%x) %y = neg(%"a b") %a = gradient(%y, %"a b") output %a', None),
                       ("%a = gradient(\n  %x, # of, %w)\n  %w)", None)):
        (folder / "e.tg").write_text(f"tg 1\ninput %x : f32[4]\nweight %w : f32 = [2]\n{line}\noutput %x\n")
        done = tgc(folder, "e.tg", "-o", "e.c", status=1 if said else 0)
        expect(not said or "e.tg" + said in done.err, done.err)


if __name__ == "__main__":
    suite.main()
