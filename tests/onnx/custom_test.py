"""Custom operators: nodes of other domains that a --library file defines in .tg, or declares as C functions, on every target;
calls of both from .tg; mistakes, each with its message; hostile libraries.
"""

import ctypes
import json
import random
import re
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE.parent / "lib"))

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import tgc as T
from suite import Failure, Skip, Suite, expect

suite = Suite("custom")
OPTIONS = suite.parse()
TGC = T.find_tgc(OPTIONS.build).resolve()
case = suite.folder_case(Path(OPTIONS.build).resolve() / "test-scratch" / "custom")
FLOAT, INT32, DOUBLE = TensorProto.FLOAT, TensorProto.INT32, TensorProto.DOUBLE
MINE, TRAINING = "my.domain", "ai.onnx.preview.training"

LIBRARY = """tg 1
def "my.domain::Swish2"(%x, beta : float = 1.0) -> (%y) {
    %t = mul(%x, beta)
    %s = sigmoid(%t)
    %y = mul(%x, %s)
}
def "my.domain::Stats"(%x : f32[N, C], %bias? : f32[C], axis : int = 1, scales : floats = [1.0]) -> (%y : f32[N, C], %sum : f32[N]) {
    %y = layer_norm(%x, _, %bias) {axis=axis}
    %sum = reduce_sum(%x) {axes=[axis]}
}
extern "my.domain::Foo"(%x : f32[N, C], %w? : f32[C], alpha : float = 0.5, k : int, title : string = "a\\"b\\\\", at : ints = [], by : floats = [])
    -> (%y : f32[N, k * C], %count : i32) scratch(4 * N) as "my_foo"
"""

# It returns a status where anything is not as declared.
FOO = """#include "m.h"
#include <string.h>

int my_foo(const float *x, const int64_t x_shape[2], const float *w, const int64_t w_shape[1], float alpha, int64_t k,
           const char *title, const int64_t *at, size_t at_count, const float *by, size_t by_count,
           float *y, const int64_t y_shape[2], int32_t *count, const int64_t *count_shape, void *scratch, size_t scratch_bytes)
{
    int64_t n = x_shape[0], c = x_shape[1];
    float *sum = (float *)scratch;
    if (scratch_bytes != 4 * (size_t)n || (uintptr_t)scratch % 4 != 0 || y_shape[0] != n || y_shape[1] != k * c || count_shape)
        return 101;
    if (w ? w_shape[0] != c : w_shape != NULL)
        return 102;
    if (strcmp(title, "a\\"b\\\\") != 0 && strcmp(title, "other") != 0)
        return 103;
    if (at_count != 0 && (at_count != 3 || at[0] != 1 || at[1] != -2 || at[2] != INT64_C(1) << 40))
        return 104;
    if (by_count != 0 && (by_count != 2 || by[0] != 0.25f || by[1] != 0.1f))
        return 105;
    for (int64_t i = 0; i < n; i++) {
        sum[i] = 0;
        for (int64_t j = 0; j < c; j++)
            sum[i] += x[i * c + j] * (w ? w[j] : 1);
        if (sum[i] > 1000)
            return 123;
        for (int64_t j = 0; j < k * c; j++)
            y[i * k * c + j] = alpha * sum[i] + x[i * c + j % c];
    }
    *count = (int32_t)n;
    return 0;
}
"""


def foo(x, w, k, alpha=0.5):
    return np.tile(x, (1, k)) + alpha * (x * (1 if w is None else w)).sum(1, keepdims=True), np.int32(len(x))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def node(op, inputs, outputs, domain=MINE, **attributes):
    return helper.make_node(op, inputs, outputs, domain=domain, name=op.lower(), **attributes)


def value(name, shape=None, dtype=FLOAT):
    return helper.make_tensor_value_info(name, dtype, shape)


def save(folder, nodes, inputs, outputs, weights=(), functions=(), domain=MINE, library=LIBRARY):
    graph = helper.make_graph(nodes, "g", inputs, outputs, [numpy_helper.from_array(np.asarray(a), n) for n, a in weights])
    imports = [helper.make_opsetid("", 18), helper.make_opsetid(domain, 1), helper.make_opsetid(TRAINING, 1)]
    onnx.save(helper.make_model(graph, ir_version=9, opset_imports=imports, functions=list(functions)), folder / "m.onnx")
    (folder / "lib.tg").write_text(library)
    (folder / "foo.c").write_text(FOO)


def tgc(folder, *words, status=0, env=None):
    return T.must(T.run([TGC, *words], cwd=folder, env=env), status)


def run(folder, inputs, *words, model="m.onnx", env=None):
    for name, array in inputs.items():
        np.save(folder / f"{name}.npy", array)
    given = [word for name in inputs for word in ("-i", f"{name}={name}.npy")]
    shutil.rmtree(folder / "out", ignore_errors=True)
    done = tgc(folder, "run", model, *words, *given, "--out-dir", "out", env=env)
    return {p.stem: np.load(p) for p in (folder / "out").glob("*.npy")}, done


def close(got, want, what=""):
    for name, array in want.items():
        expect(got[name].shape == np.shape(array) and np.allclose(got[name], array, 1e-5, 1e-6), f"{what} {name}: {got[name]}\nexpected {array}")


def some(*shape, seed=1):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


# ------------------------------------------------------------------------------- definitions

@case("a definition is fused")
def fused(folder):
    x = some(3, 5)
    save(folder, [node("Swish2", ["x"], ["a"], beta=2.0), node("Relu", ["a"], ["y"], "")], [value("x", ["N", 5])], [value("y")])
    want = {"y": np.maximum(x * sigmoid(2 * x), 0)}
    for level in ("-O0", "-O2"):
        close(run(folder, {"x": x}, "--library=lib.tg", level)[0], want, level)
    done = json.loads(tgc(folder, "info", "m.onnx", "--library=lib.tg", "--dim", "N=..8", "--json").out)
    expect(done["kernels"] == 1 and "functions" not in done, f"not one kernel: {done['kernel_list']}")
    expect(done["operators"] == {"Relu": 1, "my.domain.Swish2": 1}, str(done["operators"]))


@case("results, defaults, an operand that is left out")
def parts(folder):
    x, b = some(4, 6), some(6, seed=2)
    norm = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
    for inputs, outputs, want in ((["x", "b"], ["y", "s"], {"y": norm + b, "s": x.sum(1)}), (["x"], ["y"], {"y": norm}), (["x", ""], ["", "s"], {"s": x.sum(1)})):
        save(folder, [node("Stats", inputs, outputs)], [value("x", [4, 6]), value("b", [6])], [value(n) for n in outputs if n])
        close(run(folder, {"x": x, "b": b}, "--library=lib.tg")[0], want, inputs)


@case("Gradient goes through a definition, and not through a C function")
def gradient(folder):
    x = some(2, 3).astype(np.float64)
    nodes = [node("Swish2", ["x"], ["a"], beta=2.0), node("ReduceSum", ["a"], ["s"], "", keepdims=0),
             node("Gradient", ["x"], ["dx"], TRAINING, xs=["x"], y="s")]
    save(folder, nodes, [value("x", [2, 3], DOUBLE)], [value("dx", None, DOUBLE)])
    s = sigmoid(2 * x)
    close(run(folder, {"x": x}, "--library=lib.tg")[0], {"dx": s + 2 * x * s * (1 - s)})
    nodes[0] = node("Foo", ["x"], ["a"], k=1)
    save(folder, nodes, [value("x", [2, 3])], [value("dx")])
    done = tgc(folder, "run", "m.onnx", "--library=lib.tg", "--link=foo.c", status=1)
    expect("'my.domain::Foo' is a C function, which has no derivative; name its gradient, or define it in .tg" in done.err, done.err)
    expect("node 0" in done.err, done.err)


CURVES = """tg 1
def "my.domain::CurveGrad"(%x : f64[N, C], %w? : f64[C], %i : i64[C], %dy : f64[N, C], %ds : f64[N], a : float = 1.0) -> (%dx, %dw) {
    %q = mul(%x, %x)
    %p = mul(%q, a)
    %p3 = mul(%p, 3.0)
    %t = mul(%dy, %p3)
    %e = reshape(%ds) {shape=[N, 1]}
    %dx = add(%t, %e)
    %dw = reduce_sum(%dy) {axes=[0]}
}
extern "my.domain::CurveGradC"(%x : f64[N, C], %w? : f64[C], %i : i64[C], %dy : f64[N, C], %ds : f64[N], a : float) -> (%dx : f64[N, C], %dw : f64[C]) as "curve_grad"
extern "my.domain::Curve"(%x : f64[N, C], %w? : f64[C], %i : i64[C], a : float, k : int = 2) -> (%y : f64[N, C], %n : i32, %s : f64[N]) as "curve" gradient "my.domain::CURVE_GRADIENT"
"""
CURVE = """#include "m.h"
int curve(const double *x, const int64_t x_shape[2], const double *w, const int64_t w_shape[1], const int64_t *i, const int64_t i_shape[1],
          float a, int64_t k, double *y, const int64_t y_shape[2], int32_t *n, const int64_t *n_shape, double *s, const int64_t s_shape[1])
{
    (void)w_shape, (void)i, (void)i_shape, (void)y_shape, (void)n_shape, (void)s_shape;
    for (int64_t r = 0; r < x_shape[0]; r++) {
        s[r] = 0;
        for (int64_t c = 0; c < x_shape[1]; c++) {
            double v = x[r * x_shape[1] + c];
            y[r * x_shape[1] + c] = (double)a * v * v * v + (w ? w[c] : 0);
            s[r] += v;
        }
    }
    *n = (int32_t)k;
    return 0;
}
"""
CURVE_GRADIENT = """
int curve_grad(const double *x, const int64_t x_shape[2], const double *w, const int64_t w_shape[1], const int64_t *i, const int64_t i_shape[1],
               const double *dy, const int64_t dy_shape[2], const double *ds, const int64_t ds_shape[1], float a, double *dx,
               const int64_t dx_shape[2], double *dw, const int64_t dw_shape[1])
{
    (void)w, (void)w_shape, (void)i, (void)i_shape, (void)dy_shape, (void)ds_shape, (void)dx_shape;
    for (int64_t c = 0; c < dw_shape[0]; c++)
        dw[c] = 0;
    for (int64_t r = 0; r < x_shape[0]; r++)
        for (int64_t c = 0; c < x_shape[1]; c++) {
            int64_t at = r * x_shape[1] + c;
            dx[at] = 3 * (double)a * x[at] * x[at] * dy[at] + ds[r];
            dw[c] += dy[at];
        }
    return 0;
}
"""


@case("a C function's gradient, which its declaration names, beside differences")
def named_gradient(folder):
    x, w, i = some(3, 4).astype(np.float64), some(4, seed=2).astype(np.float64), np.zeros(4, np.int64)
    (folder / "curve.c").write_text(CURVE)
    (folder / "both.c").write_text(CURVE + CURVE_GRADIENT)
    def graph(w_name):
        return [node("Curve", ["x", w_name, "i"], ["y", "n", "s"], a=0.5), node("Sin", ["y"], ["z"], ""), node("Mul", ["s", "s"], ["q"], ""),
                node("ReduceSum", ["z"], ["a"], "", keepdims=0), node("ReduceSum", ["q"], ["b"], "", keepdims=0), node("Add", ["a", "b"], ["l"], "")]
    inputs = [value("x", [3, 4], DOUBLE), value("w", [4], DOUBLE), value("i", [4], TensorProto.INT64)]
    def loss(x, w):
        return np.sin(0.5 * x ** 3 + w).sum() + (x.sum(1) ** 2).sum()
    def differences(of, v):
        h, d = 1e-5, np.zeros_like(v)
        for k in np.ndindex(v.shape):
            e = np.zeros_like(v)
            e[k] = h
            d[k] = (of(v + e) - of(v - e)) / (2 * h)
        return d
    for name, files in ("CurveGrad", "curve.c"), ("CurveGradC", "both.c"):
        for given in True, False:
            xs = ["x", "w"] if given else ["x"]
            save(folder, [*graph("w" if given else ""), node("Gradient", xs, [f"d{n}" for n in xs], TRAINING, xs=xs, y="l")],
                 inputs if given else [inputs[0], inputs[2]], [value(f"d{n}", None, DOUBLE) for n in xs])
            want = {"dx": differences(lambda v: loss(v, w if given else 0 * w), x), "dw": differences(lambda v: loss(x, v), w)}
            (folder / "lib.tg").write_text(CURVES.replace("CURVE_GRADIENT", name))
            feeds = {"x": x, "w": w, "i": i} if given else {"x": x, "i": i}
            got = run(folder, feeds, "--library=lib.tg", f"--link={files}")[0]
            for n in xs:
                expect(np.allclose(got[f"d{n}"], want[f"d{n}"], 1e-6, 1e-7), f"{name} d{n}: {got[f'd{n}']}, by differences {want[f'd{n}']}")


@case("gradients that do not fit, each with its message")
def gradients_that_do_not_fit(folder):
    save(folder, [node("F", ["x"], ["a"]), node("ReduceSum", ["a"], ["s"], "", keepdims=0), node("Gradient", ["x"], ["dx"], TRAINING, xs=["x"], y="s")],
         [value("x", [2, 3])], [value("dx")])
    head = "tg 1\n"
    function = 'extern "my.domain::F"(%x : f32[N, C]{}) -> (%y : f32[N, C]) as "f" gradient "my.domain::G"\n'
    right = 'def "my.domain::G"(%x : f32[N, C], %d : f32[N, C]{}) -> (%e) {{\n    %e = {}\n}}\n'
    for text, words in ((head + function.format(""), ["'my.domain::G', and no operator of that name stands before it"]),
                        (head + 'def "my.domain::G"(%x) -> (%e) {\n    %e = neg(%x)\n}\n' + function.format(""),
                         ["has 1 operands and 1 results", "takes its operands, then a gradient for each result of floats, 2"]),
                        (head + right.format(", k : int", "neg(%d)") + function.format(""), ["needs the attribute 'k', which 'my.domain::F' has not"]),
                        (head + right.format("", "reduce_sum(%d) {axes=[0]}") + function.format(""),
                         ["'my.domain::G', the gradient of 'my.domain::F', makes f32[3] for the operand %x, which is f32[2, 3]"])):
        (folder / "lib.tg").write_text(text)
        done = tgc(folder, "m.onnx", "--library=lib.tg", "-o", "m.c", status=1)
        for word in words:
            expect(word in done.err, done.err)


@case("inside of subgraphs and of the model's functions; in front of both and of what is known")
def inside(folder):
    x = some(3, 4)
    swish = node("Swish2", ["x"], ["r"])
    branch = [helper.make_graph([n], "b", [], [value("r")]) for n in (swish, node("Identity", ["x"], ["r"], ""))]
    function = helper.make_function(MINE, "Twice", ["a"], ["c"], [node("Swish2", ["a"], ["b"]), node("Swish2", ["b"], ["c"])],
                                    [helper.make_opsetid(MINE, 1)])
    theirs = helper.make_function(MINE, "Swish2", ["a"], ["b"], [node("Neg", ["a"], ["b"], "")], [helper.make_opsetid("", 18)])
    nodes = [helper.make_node("If", ["c"], ["i"], then_branch=branch[0], else_branch=branch[1]), node("Twice", ["i"], ["y"])]
    save(folder, nodes, [value("x", [3, 4]), value("c", [], TensorProto.BOOL)], [value("y")], functions=[function, theirs])
    swished = x * sigmoid(x)
    for given in (True, False):
        once = swished if given else x
        want = once * sigmoid(once)
        close(run(folder, {"x": x, "c": np.array(given)}, "--library=lib.tg")[0], {"y": want * sigmoid(want)}, given)
    save(folder, [node("Relu", ["x"], ["y"], "")], [value("x", [3, 4])], [value("y")],
         library='tg 1\ndef "ai.onnx::Relu"(%x) -> (%y) { %y = neg(%x) }\n')
    close(run(folder, {"x": x}, "--library=lib.tg")[0], {"y": -x}, "Relu")


@case("several libraries, each of which calls the one before; f16")
def several(folder):
    x = some(2, 3).astype(np.float16)
    save(folder, [node("B", ["x"], ["y"], k=3)], [value("x", [2, 3], TensorProto.FLOAT16)], [value("y", None, TensorProto.FLOAT16)],
         library="tg 1\ndef half(%x : any[N, C]) -> (%y) { %y = mul(%x, 0.5) }\n")
    (folder / "b.tg").write_text('tg 1\ndef "my.domain::B"(%x, k : int) -> (%y) {\n  %h = half(%x)\n  %y = add(%h, k)\n}\n')
    close(run(folder, {"x": x}, "--library=lib.tg", "--library", "b.tg")[0], {"y": (x * 0.5 + 3).astype(np.float16)})
    done = tgc(folder, "run", "m.onnx", "--library=b.tg", "--library=lib.tg", status=1)
    expect("b.tg:3:8: error: there is no operation 'half'" in done.err, done.err)


@case("weights of a definition: in the library, and in a file beside it")
def weights(folder):
    x = some(2, 3)
    (folder / "sub").mkdir()
    np.arange(3, dtype=np.float32).tofile(folder / "sub/w.bin")
    text = 'tg 1\ndef "my.domain::Add"(%x : f32[N, C]) -> (%y) {{\n  weight %w : f32[3] = {}\n  %y = add(%x, %w)\n}}\n'
    for values, read, want in (('file("w.bin")', " sub/w.bin", np.arange(3)), ("[2, 3, 4]", "", np.arange(3) + 2), ("full(value=5)", "", np.full(3, 5))):
        save(folder, [node("Add", ["x"], ["a"]), node("Add", ["a"], ["y"])], [value("x", [2, 3])], [value("y")])
        (folder / "sub/lib.tg").write_text(text.format(values))
        close(run(folder, {"x": x}, "--library=sub/lib.tg")[0], {"y": x + 2 * want}, values)
        tgc(folder, "m.onnx", "-o", "m.c", "--library=sub/lib.tg", "-MD")
        expect((folder / "m.d").read_text() == f"m.c: m.onnx sub/lib.tg{read}\n", (folder / "m.d").read_text())
    (folder / "sub/lib.tg").write_text(text.format('file("../m.onnx")'))
    expect("path below" in tgc(folder, "m.onnx", "-o", "m.c", "--library=sub/lib.tg", status=1).err, "a file elsewhere")


@case("a cast of a definition rounds")
def rounds(folder):
    x = some(5, 3)
    save(folder, [node("Half", ["x"], ["h"]), node("Neg", ["h"], ["y"], "")], [value("x", [5, 3])], [value("y")],
         library='tg 1\ndef "my.domain::Half"(%x) -> (%y) {\n  %h = cast(%x) {to=f16}\n  %y = cast(%h) {to=f32}\n}\n')
    got, _ = run(folder, {"x": x}, "--library=lib.tg")
    expect(np.array_equal(got["y"], -x.astype(np.float16).astype(np.float32)), f"{got['y']}\n{x}")


# ------------------------------------------------------------------------------- C functions

def foo_model(folder, **more):
    """Swish2, then Foo with everything, then Foo with what can be left out left out."""
    save(folder, [node("Swish2", ["x"], ["a"]), node("Foo", ["a", "w"], ["b", "n"], k=2, alpha=0.25, at=[1, -2, 1 << 40], by=[0.25, 0.1], title="other"),
                  helper.make_node("Foo", ["b"], ["y"], domain=MINE, k=1)],
         [value("x", ["N", 5])], [value("y"), value("n", None, INT32)], [("w", np.arange(5, dtype=np.float32))], **more)


def foo_wanted(x):
    b, n = foo(x * sigmoid(x), np.arange(5, dtype=np.float32), 2, 0.25)
    return {"y": foo(b, None, 1)[0], "n": n}


NAMED = ["--library=lib.tg", "--dim", "N=..4", "--name=m"]


@case("the emitted program, with warnings and sanitizers, threads and run-time sizes")
def emitted(folder):
    foo_model(folder)
    for options, flags in (((), T.SANITIZE), (("-O0",), ["-O2"]), (("--threads=3",), ["-O2"]), (("--cpu=generic",), T.SANITIZE)):
        tgc(folder, "m.onnx", "-o", "m.c", *NAMED, *options)
        T.must(T.run(["gcc", *T.WARNINGS, *flags, "-c", "foo.c"], cwd=folder))
        T.build(folder / "m.c", folder / "m", flags=flags, libraries=["foo.o"])
        for n in (4, 1, 0):
            x = some(n, 5)
            close(T.Program(folder / "m", ["y", "n"]).run([x]), foo_wanted(x), f"{options} N={n}")
    T.must(T.run([folder / "m", "--selftest"], cwd=folder), 77)         # the interpreter does not know the function
    T.must(T.run(["g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-x", "c++", "-c", "m.c"], cwd=folder))
    header = (folder / "m.h").read_text()
    expect('/* my.domain::Foo */\nint my_foo(const float *x, const int64_t x_shape[2], const float *w, const int64_t w_shape[1],' in header, header)


@case("a status of the function ends the run and is returned")
def status(folder):
    foo_model(folder)
    big = np.full((2, 5), 1e4, np.float32)
    np.save(folder / "x.npy", big)
    for env in ({}, {"LLVM": "1"}) if T.has_llvm(TGC) else ({},):
        done = T.run([TGC, "run", "m.onnx", *NAMED, "--link=foo.c", "-i", "x=x.npy"], cwd=folder, env=env)
        expect(done.status == 1 and "status 123, of a C function" in done.err, done.describe())


@case("as .tg: all is in it, and writing it again is the identity")
def written(folder):
    foo_model(folder)
    tgc(folder, "m.onnx", "-o", "a.tg", *NAMED[:3])
    tgc(folder, "a.tg", "-o", "b.tg")
    tgc(folder, "a.tg", "-o", "c.tg", "--library=lib.tg")
    text = (folder / "a.tg").read_text()
    expect(text.count("\nextern ") == 1 and "def " not in text and text.count('= custom "my.domain::Foo"') == 2, text)
    expect(text == (folder / "b.tg").read_text() == (folder / "c.tg").read_text(), "not the identity")
    x = some(3, 5)
    close(run(folder, {"x": x}, "--link=foo.c", "--name=m", model="a.tg")[0], foo_wanted(x))
    tgc(folder, "m.onnx", "-o", "m.c", *NAMED)
    again = (folder / "m.c").read_text()
    other = folder / "elsewhere"
    other.mkdir()
    shutil.copy(folder / "m.onnx", other)
    tgc(other, "m.onnx", "-o", "m.c", "--library=../lib.tg", *NAMED[1:])
    expect((other / "m.c").read_text() == again, "other bytes from another folder")


def linked(folder):
    """What --link may name, by the kind of file."""
    T.must(T.run(["gcc", "-O2", "-fPIC", "-c", "foo.c"], cwd=folder))
    T.must(T.run(["ar", "rcs", "libfoo.a", "foo.o"], cwd=folder))
    T.must(T.run(["gcc", "-shared", "foo.o", "-o", "libfoo.so"], cwd=folder))
    return ["foo.c", "foo.o", "libfoo.a", "libfoo.so"]


@case("--link: .c, .o, .a and .so, for run, verify, bench, tune and a .so")
def links(folder):
    foo_model(folder)
    tgc(folder, "m.onnx", "-o", "m.c", *NAMED)
    x = some(4, 5)
    for file in linked(folder):
        close(run(folder, {"x": x}, *NAMED, f"--link={file}")[0], foo_wanted(x), file)
    tgc(folder, "verify", "m.onnx", "m.onnx", *NAMED, "--link=foo.c", "--other=-O0")
    tgc(folder, "bench", "m.onnx", *NAMED, "--link=foo.c", "--json")
    tgc(folder, "tune", "m.onnx", *NAMED[:3], "-o", "m.tune", "--link=foo.c")
    tgc(folder, "m.onnx", "-o", "m.so", *NAMED, "--link=foo.o", "-MD")
    expect((folder / "m.d").read_text() == "m.so: m.onnx lib.tg foo.o\n", (folder / "m.d").read_text())
    expect(T.must(T.run(["nm", "-D", "m.so"], cwd=folder)).out.count(b" T my_foo") == 1, "m.so has no my_foo")
    if "libLLVM: none" not in tgc(folder, "--version").out.decode():
        tgc(folder, "m.onnx", "-o", "l.so", *NAMED, "--link=foo.o", "--target=llvm")
        expect(T.must(T.run(["nm", "-D", "l.so"], cwd=folder)).out.count(b" T my_foo") == 1, "l.so has no my_foo")
    told = json.loads(tgc(folder, "info", "m.onnx", *NAMED, "--json").out)
    expect(told["functions"] == [{"function": "my_foo", "operator": "my.domain::Foo", "calls": 2}], str(told.get("functions")))
    done = tgc(folder, "run", "m.onnx", *NAMED, status=1)
    expect("'my.domain::Foo' is the C function my_foo(), which is not in this program" in done.err and "--link FILE.c" in done.err, done.err)
    (folder / "empty.c").write_text("int other;\n")
    expect("no file of --link defines" in tgc(folder, "run", "m.onnx", *NAMED, "--link=empty.c", status=1).err, "another file")
    expect("cannot be opened" in tgc(folder, "run", "m.onnx", *NAMED, "--link=none.c", status=1).err, "no file")
    (folder / "wrong.c").write_text("int my_foo(\n")
    expect("wrong.c" in tgc(folder, "run", "m.onnx", *NAMED, "--link=wrong.c", status=1).err, "a file that is no C")
    expect("leave it out here" in tgc(folder, "m.onnx", "-o", "n.c", *NAMED, "--link=foo.c", status=1).err, "with a .c")
    expect(not (folder / "n.c").exists(), "a failed compile left a file")


def skip_without(words, done):
    if done.status == 1 and re.search(words, done.err):
        raise Skip(done.err.strip().splitlines()[0])
    return T.must(done)


@case("LLVM, in process and as an object")
def by_llvm(folder):
    foo_model(folder)
    tgc(folder, "m.onnx", "-o", "m.c", *NAMED)
    T.must(T.run(["gcc", *T.WARNINGS, "-O2", "-c", "foo.c"], cwd=folder))
    skip_without("LLVM", T.run([TGC, "run", "m.onnx", *NAMED, "--link=foo.o", "--target=llvm"], cwd=folder))
    for n in (4, 2, 0):
        x = some(n, 5)
        got, done = run(folder, {"x": x}, *NAMED, "--link=foo.o", "--target=llvm")
        close(got, foo_wanted(x), f"N={n}")
        expect(b"LLVM" in done.out, done.out)
    tgc(folder, "m.onnx", "-o", "m.o", *NAMED, "--target=llvm")
    expect(T.must(T.run(["nm", "m.o"], cwd=folder)).out.count(b" U my_foo") == 1, "my_foo is no undefined symbol")
    (folder / "main.c").write_text(MAIN)
    T.must(T.run(["gcc", T.LEVEL, "main.c", "m.o", "foo.o", "-o", "main", "-lm"], cwd=folder))
    x = some(3, 5)
    x.tofile(folder / "x.bin")
    T.must(T.run([folder / "main"], cwd=folder))
    close({"y": np.fromfile(folder / "y.bin", np.float32).reshape(3, 10)}, {"y": foo_wanted(x)["y"]}, "the object")


MAIN = """#include "m.h"
#include <stdalign.h>
#include <stdio.h>

static alignas(M_ARENA_ALIGN) unsigned char arena[M_ARENA_BYTES];

int main(void)
{
    static float x[20], y[40];
    int32_t n = 0;
    m *model;
    FILE *f = fopen("x.bin", "rb");
    m_inputs in = {x, 3};
    m_outputs out = {.y = y, .n = &n};
    if (!f || fread(x, 4, 15, f) != 15 || fclose(f) != 0 || m_init(&model, arena, sizeof arena, NULL) || m_run(model, &in, &out))
        return 1;
    m_close(model);
    f = fopen("y.bin", "wb");
    return n != 3 || fwrite(y, 4, 30, f) != 30 || fclose(f) != 0;
}
"""


@case("clang")
def by_clang(folder):
    foo_model(folder)
    tgc(folder, "m.onnx", "-o", "m.c", *NAMED)
    skip_without("clang", T.run([TGC, "run", "m.onnx", *NAMED, "--link=foo.c", "--target=clang"], cwd=folder))
    x = some(3, 5)
    close(run(folder, {"x": x}, *NAMED, "--link=foo.c", "--target=clang")[0], foo_wanted(x))


@case("OpenCL: the host calls the function")
def by_opencl(folder):
    foo_model(folder)
    T.emit(TGC, folder / "m.onnx", folder / "m.c", "--library", folder / "lib.tg", *NAMED[1:], "--target=opencl")
    T.must(T.run(["gcc", T.LEVEL, "-c", "foo.c"], cwd=folder))
    T.build(folder / "m.c", folder / "m", libraries=["foo.o", "-ldl"])
    x = some(3, 5)
    np.save(folder / "x.npy", x)
    (folder / "out").mkdir()
    skip_without("driver|device", T.run([folder / "m", "x.npy", "-o", "out"], cwd=folder))
    close(T.read_outputs(folder / "out", ["y", "n"]), foo_wanted(x))


@case("libtgc, in process")
def by_library(folder):
    foo_model(folder)
    library = Path(OPTIONS.build).resolve() / "lib/libtgc.so"
    if not library.exists():
        raise Skip("no libtgc.so in the build")
    lib = ctypes.CDLL(str(library))
    for name in ("tgc_compiler_new", "tgc_output_data"):
        getattr(lib, name).restype = ctypes.c_void_p
    compiler, model = ctypes.c_void_p(lib.tgc_compiler_new()), ctypes.c_void_p()
    target = "llvm" if T.has_llvm(TGC) else "c"
    for name, words in (("library", folder / "lib.tg"), ("link", folder / "foo.c"), ("dim", "N=3"), ("name", "m"), ("target", target)):
        expect(lib.tgc_set(compiler, name.encode(), str(words).encode()) == 0, name)
    expect(lib.tgc_source_file(compiler, str(folder / "m.onnx").encode()) == 0, "the model")
    expect(lib.tgc_open(compiler, ctypes.byref(model)) == 0, "it is not opened")
    x = some(3, 5)
    expect(lib.tgc_set_input(model, ctypes.c_size_t(0), x.ctypes.data_as(ctypes.c_void_p), None) == 0 and lib.tgc_run(model) == 0, "it does not run")
    y = np.ctypeslib.as_array(ctypes.cast(lib.tgc_output_data(model, ctypes.c_size_t(0)), ctypes.POINTER(ctypes.c_float)), (3, 10)).copy()
    lib.tgc_model_free(model)
    lib.tgc_compiler_free(compiler)
    close({"y": y}, {"y": foo_wanted(x)["y"]})


@case("in a loop and in a branch")
def control(folder):
    (folder / "m.tg").write_text("""tg 1
extern step(%a : f32[N], by : int) -> (%b : f32[N]) as "my_step"
input %x : f32[4]
input %go : bool
%y = loop %i < 3 carry(%a = %x) {
    %b = step(%a) {by=%i + 1}
    next(%b)
}
%z = if(%go) then { %c = step(%y) {by=10} yield(%c) } else (%y)
output %z
""")
    (folder / "step.c").write_text("#include <stdint.h>\nint my_step(const float *a, const int64_t *n, int64_t by, float *b, const int64_t *m);\n"
                                   "int my_step(const float *a, const int64_t *n, int64_t by, float *b, const int64_t *m)\n"
                                   "{\n    for (int64_t i = 0; i < n[0]; i++)\n        b[i] = a[i] + (float)by;\n    return *m != 4;\n}\n")
    for words in ([], ["-O0"], ["--target=llvm"]):
        for go in (True, False):
            if words == ["--target=llvm"]:
                skip_without("LLVM", T.run([TGC, "run", "m.tg", "--link=step.c", *words], cwd=folder))
            got, _ = run(folder, {"x": np.arange(4, dtype=np.float32), "go": np.array(go)}, "--link=step.c", *words, model="m.tg")
            close(got, {"z": np.arange(4) + 6 + 10 * go}, f"{words} {go}")


# ---------------------------------------------------------------------------------- mistakes

def mistake(title, words, nodes=None, library=LIBRARY, inputs=None, options=(), weights=()):
    """The message has these words; nothing is written."""
    def check(folder):
        save(folder, nodes or [node("Swish2", ["x"], ["y"])], inputs or [value("x", [3, 4])], [value("y")], weights, library=library)
        done = tgc(folder, "m.onnx", "-o", "m.c", "--library=lib.tg", *options, status=1)
        expect(" ".join(words.split()) in " ".join(done.err.split()), done.err)
        expect(not (folder / "m.c").exists() and not (folder / "m.h").exists(), "a failed compile left a file")
        expect("bug in tgc" not in done.err, done.err)
    case(f"mistake: {title}")(check)


BIAS = [("b", np.zeros(5, np.float32))]
mistake("an operand that does not fit",
        "m.onnx: node 0 'stats' (Stats), input 1 'b': error: found f32[5], expected f32[C], where N is 3 and C is 4: %bias of 'my.domain::Stats', lib.tg:7:40",
        [node("Stats", ["x", "b"], ["y"])], weights=BIAS)
mistake("another dtype", "node 0 'stats' (Stats), input 0 'x': error: found f64[3, 4], expected f32[N, C]", [node("Stats", ["x"], ["y"])],
        inputs=[value("x", [3, 4], DOUBLE)])
mistake("another rank", "input 0 'x': error: found f32[3, 4, 5], expected f32[N, C]", [node("Stats", ["x"], ["y"])], inputs=[value("x", [3, 4, 5])])
mistake("a missing operand", "node 0 'stats' (Stats): error: 'my.domain::Stats' needs operand 1, %x (lib.tg:7:24)", [node("Stats", [""], ["y"])])
mistake("too many operands", "input 1 'x': error: 'my.domain::Swish2' takes 1 operands, found 2", [node("Swish2", ["x", "x"], ["y"])])
mistake("too many outputs", "node 0 'swish2' (Swish2): error: the operator has 1 results, and the node 2 outputs", [node("Swish2", ["x"], ["y", "z"])])
mistake("an unknown attribute", "attribute 'gamma': error: 'my.domain::Swish2' has no attribute 'gamma'; it has beta", [node("Swish2", ["x"], ["y"], gamma=1.0)])
mistake("an attribute of another kind", "attribute 'beta': error: found an integer, expected a number: 'beta' of 'my.domain::Swish2', lib.tg:2:29",
        [node("Swish2", ["x"], ["y"], beta=1)])
mistake("a missing attribute", "node 0 'foo' (Foo): error: 'my.domain::Foo' needs the attribute 'k' (lib.tg:", [node("Foo", ["x"], ["y"])])
mistake("a tensor as an attribute", "attribute 'beta': error: an operator of a library takes integers, floats, a string, and lists of numbers; make this an input",
        [node("Swish2", ["x"], ["y"], beta=numpy_helper.from_array(np.zeros(2)))])
mistake("a sequence as an operand", "input 0 's': error: a tensor is expected, found a sequence or an optional",
        [node("SequenceConstruct", ["x"], ["s"], ""), node("Swish2", ["s"], ["y"])])
mistake("neither known nor defined", """m.onnx: error: operator my.domain.Nothing of opset 1 is not supported: node 0 'nothing' m.onnx: error: operator my.domain.Other of opset 1
        is not supported: node 1 'other' m.onnx: note: --library FILE.tg gives operators of your own""",
        [node("Nothing", ["x"], ["a"]), node("Other", ["a"], ["y"])])
mistake("inside of a definition", "lib.tg:3:8: in 'my.domain::F' of m.onnx: node 0 'f' (F): error: conv2d: x is f32[3, 4]; it must be [n, c, y, x]",
        [node("F", ["x"], ["y"])], 'tg 1\ndef "my.domain::F"(%x) -> (%y) {\n  %y = conv2d(%x, %x)\n}\n')
mistake("inside of a definition that a definition calls",
        "lib.tg:2:20: in 'f' of lib.tg:3:39, in 'my.domain::G' of m.onnx: node 0 'g' (G): error: declared f32[7], but the value is f32[3, 4]",
        [node("G", ["x"], ["y"])], 'tg 1\ndef f(%x) -> (%y : f32[7]) { %y = neg(%x) }\ndef "my.domain::G"(%x) -> (%y) { %y = f(%x) }\n')
mistake("a graph as a library", "lib.tg:2:1: error: found 'input', expected def or extern: a library has nothing else", library="tg 1\ninput %x : f32[3]\noutput %x\n")
mistake("no text", "lib.tg:1:1: error: found", library="hello\n")
mistake("two definitions of one name", "lib.tg:3:5: error: 'f' is defined already, line 2", library="tg 1\ndef f(%x) -> (%y) { %y = neg(%x) }\ndef f(%x) -> (%y) { %y = exp(%x) }\n")
mistake("a name that is nearly right", "lib.tg:3:39: error: there is no operation 'scales'; did you mean 'scale'?",
        library='tg 1\ndef scale(%x) -> (%y) { %y = neg(%x) }\ndef "my.domain::F"(%x) -> (%y) { %y = scales(%x) }\n')
mistake("a word of the format", "lib.tg:2:5: error: loop is an operation of the format", library="tg 1\ndef loop(%x) -> (%y) { %y = neg(%x) }\n")
mistake("no such file", "none.tg: error: cannot be opened", options=["--library=none.tg"])
mistake("a name of libc", "the C function of 'my.domain::Malloc' cannot be called malloc, which is a name of C, of libc, or of the emitted code",
        [node("Malloc", ["x"], ["y"])], 'tg 1\nextern "my.domain::Malloc"(%x : f32[N, C]) -> (%y : f32[N, C]) as "malloc"\n')
mistake("a name of the model's own", "the C function of 'my.domain::F' cannot be called m_run, which is a name of the model's own code",
        [node("F", ["x"], ["y"])], 'tg 1\nextern "my.domain::F"(%x : f32[N, C]) -> (%y : f32[N, C]) as "m_run"\n')
DEEP = "tg 1\ndef f0(%x) -> (%y) { %y = neg(%x) }\n" + "".join(f"def f{i}(%x) -> (%y) {{ %y = f{i - 1}(%x) }}\n" for i in range(1, 70))
mistake("too deep", "definitions call each other more than 64 deep", [node("F", ["x"], ["y"])], DEEP + 'def "my.domain::F"(%x) -> (%y) { %y = f69(%x) }\n')
WIDE = "tg 1\ndef f0(%x) -> (%y) { %y = neg(%x) }\n" + "".join(f"def f{i}(%x) -> (%y) {{ %a = f{i - 1}(%x) %y = f{i - 1}(%a) }}\n" for i in range(1, 40))
mistake("too many calls", "more than 20000 calls of definitions", [node("F", ["x"], ["y"])], WIDE + 'def "my.domain::F"(%x) -> (%y) { %y = f39(%x) }\n')


@case("hostile libraries: read or refused, never a crash")
def hostile(folder):
    foo_model(folder)
    choose = random.Random(3)
    pieces = ["def ", "extern ", "(", ")", "{", "}", "[", "]", "%", "?", ":", "->", "any", "f32[", "k", "N", "=", '"', "as ", "scratch(", "-", "999999999999999999999",
              "custom ", "\0", "\xff", "%y", "floordiv(", "if(", "loop %i < 3 ", "weight %w : f32[2] = [1, 2]\n", ",", "yield(%y)", "_", "inf", "<=4"]
    for n in range(4000 if OPTIONS.all else 300):
        data = list(LIBRARY)
        for _ in range(choose.randint(1, 4)):
            at, kind = choose.randrange(len(data)), choose.randrange(3)
            if kind == 0:
                data[at:at + choose.randint(1, 20)] = []
            elif kind == 1:
                data[at:at] = choose.choice(pieces)
            else:
                start = choose.randrange(len(LIBRARY))
                data[at:at] = LIBRARY[start:start + choose.randint(1, 60)]
        (folder / "lib.tg").write_text("".join(data), encoding="latin-1")
        done = T.run([TGC, "m.onnx", "-o", "-", "--emit=c", *NAMED], cwd=folder, timeout=20)
        if done.status not in (0, 1) or "bug in tgc" in done.err:
            raise Failure(f"mutation {n}: {done.describe()}\n{''.join(data)!r}")


suite.main()
