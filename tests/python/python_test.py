"""The Python module: calls, dtypes, run-time dimensions, messages, the cache, threads, forks.

The module runs from the tree with the tgc of the build; its cache is a folder of the tests' own.
The guide's page is run as it stands. Models are built by the C compiler, and in one of the cases, which
runs the others again in a process of its own, in process by LLVM.
"""

import doctest
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT / "tests" / "lib")]

import numpy as np
import onnx
from onnx import TensorProto

import graphs as G
import tgc as T
from module import import_module
from suite import Skip, Suite, expect

suite = Suite("python", jobs=1)
OPTIONS = suite.parse()
TGC = T.find_tgc(OPTIONS.build).resolve()
SCRATCH = T.scratch(Path(OPTIONS.build).resolve() / "test-scratch" / "python")
IN_PROCESS = os.environ.get("TGC_TEST_IN_PROCESS") == "1"
if not IN_PROCESS:
    os.environ["CC"] = os.environ.get("CC") or "cc"
case = suite.folder_case(SCRATCH)


tgc = import_module(TGC, SCRATCH / "cache")


def perceptron(folder):
    model = G.perceptron()
    onnx.save(model, folder / "m.onnx")
    return model, folder / "m.onnx"


def refused(call, *words):
    """The message of the tgc.Error that call() raises; every word must be in it."""
    try:
        call()
    except tgc.Error as error:
        missing = [word for word in words if word not in str(error)]
        expect(not missing, f"{missing} not in: {error}")
        return error
    raise AssertionError("no tgc.Error was raised")


def python(code, *arguments, **environment):
    """A process of its own that has imported the module."""
    return T.must(T.run([sys.executable, "-c", code, *arguments], env={
        "PYTHONPATH": str(ROOT / "python"), **environment}))


# ----------------------------------------------------------------------------------------- calls


@case("one input and one output: by place, by name, by a dict, into out=")
def _(folder):
    model, path = perceptron(folder)
    m = tgc.compile(path)
    x = np.random.default_rng(1).standard_normal((1, 8)).astype(np.float32)
    want = G.perceptron_reference(model, x)
    wide = np.zeros((1, 16), np.float32)
    wide[:, ::2] = x
    shifted = np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(1, 8)
    for y in (m(x), m(x=x), m({"x": x}), m(wide[:, ::2]), m(shifted), m(x.tolist()),
              m(np.asfortranarray(x))):
        np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-6)
        expect(y.dtype == np.float32 and y.shape == (1, 4), "dtype or shape")
    out = np.zeros((1, 4), np.float32)
    expect(m(x, out=out) is out and m(x, out={"y": out}) is out, "out= is what is returned")
    np.testing.assert_allclose(out, want, rtol=1e-5, atol=1e-6)
    expect(m(x) is not m(x), "each call has an array of its own")
    expect(m.inputs == ("x",) and m.outputs == ("y",) and "float32[1,8]" in repr(m), repr(m))


@case("dtypes, several inputs and outputs, names that are no identifiers")
def _(folder):
    kinds = {"FLOAT16": "float16", "DOUBLE": "float64", "BFLOAT16": "bfloat16", "BOOL": "bool",
             "INT8": "int8", "UINT8": "uint8", "INT16": "int16", "INT32": "int32",
             "INT64": "int64", "UINT64": "uint64", "STRING": "object"}
    nodes, inputs, outputs, feed = [], [], [], {}
    for kind, name in kinds.items():
        nodes.append(G.node("Concat", [f"{kind}:0", f"{kind}:0"], [f"{kind}:1"], axis=0))
        dtype = getattr(TensorProto, kind)
        inputs.append(G.value(f"{kind}:0", [3], dtype))
        outputs.append(G.value(f"{kind}:1", [6], dtype))
        if kind == "STRING":
            feed[f"{kind}:0"] = np.array(["a", "", "größer"], object)
        elif kind == "BFLOAT16":
            import ml_dtypes
            feed[f"{kind}:0"] = np.array([1, -2, 0.5], ml_dtypes.bfloat16)
        else:
            feed[f"{kind}:0"] = np.array([0, 1, 1 if kind == "BOOL" else 3], name)
    m = tgc.compile(G.model(nodes, inputs, outputs))
    found = m(feed)
    expect(list(found) == [v.name for v in outputs], "outputs by name, in order")
    for name, x in feed.items():
        y = found[name.replace(":0", ":1")]
        if x.dtype.name == "bfloat16":
            expect(y.dtype == np.uint16, "bf16 are bits")
            y = y.view(x.dtype)
        expect(y.dtype == x.dtype, f"{name}: {y.dtype}")
        expect(np.array_equal(y, np.concatenate([x, x])), f"{name}: {y}")
    by_place = m(*feed.values())
    expect(all(np.array_equal(by_place[n], found[n]) for n in found), "by place")
    out = np.zeros(6, np.int32)
    expect(m(feed, out={"INT32:1": out})["INT32:1"] is out, "out= by name")
    refused(lambda: m(feed, out=out), "out", "several outputs", "dict")
    refused(lambda: m({**feed, "STRING:0": np.zeros(3)}), "STRING:0", "str")
    refused(lambda: m({**feed, "BFLOAT16:0": np.zeros(3, np.float32)}), "ml_dtypes.bfloat16")
    refused(lambda: m({"BOOL:0": feed["BOOL:0"]}), "FLOAT16:0", "missing")


@case("run-time dimensions: sizes from the inputs, shapes from the run")
def _(folder):
    nodes = [G.node("MatMul", ["x", "w"], ["y"]), G.node("NonZero", ["x"], ["z"])]
    w = np.arange(12, dtype=np.float32).reshape(4, 3)
    model = G.model(nodes, [G.value("x", ["batch", 4])],
                    [G.value("y", ["batch", 3]), G.value("z", [2, "n"], TensorProto.INT64)],
                    [G.weight("w", w)])
    m = tgc.compile(model, dim={"batch": "..8"})
    for batch in (8, 3, 1, 0):
        x = np.random.default_rng(batch).integers(0, 2, (batch, 4)).astype(np.float32)
        found = m(x)
        np.testing.assert_allclose(found["y"], x @ w)
        expect(np.array_equal(found["z"], np.array(np.nonzero(x))), "shape known after the run")
    refused(lambda: m(np.zeros((9, 4), np.float32)), "'x'", "8 at most", "..9")
    refused(lambda: m(np.zeros((2, 5), np.float32)), "'x'", "float32[2,5]", "has to be 4")
    refused(lambda: m(x, out={"y": np.zeros((3, 3), np.float32)}), "bound", "(8, 3)")
    out = np.zeros((8, 3), np.float32)
    expect(m(np.ones((2, 4), np.float32), out={"y": out})["y"].base is not None, "a view of out")
    np.testing.assert_allclose(out[:2], np.ones((2, 4)) @ w)
    for bounds in ((2, 8), "2..8"):
        m = tgc.compile(model, dim={"batch": bounds})
        np.testing.assert_allclose(m(np.ones((2, 4), np.float32))["y"], np.ones((2, 4)) @ w)
        refused(lambda: m(np.ones((1, 4), np.float32)), "'x'", "2")
    refused(lambda: tgc.compile(model, dim={"batch": (8, 2)}), "8..2")
    fixed = tgc.compile(model, dim={"batch": 2})
    expect(fixed(np.ones((2, 4), np.float32))["y"].shape == (2, 3), "dim={'batch': 2}")


@case("sizes that follow from others are compared, and found by what they are in")
def _(folder):
    def text(name, *inputs):
        lines = [f"input %{v}\n%{v[0]}2 = add(%{v[0]}, 1)\noutput %{v[0]}2 as \"{v[0]}2\"\n" for v in inputs]
        (folder / f"{name}.tg").write_text('tg 1\ngraph "g"\ndim n<=8\n' + "dim m<=8\n" * (len(inputs) > 1) + "".join(lines))
        return tgc.compile(folder / f"{name}.tg")

    pair = text("pair", "x : f32[n, 2*n]")
    for shape in ((3, 6), (8, 16), (0, 0)):
        expect(np.array_equal(pair(np.ones(shape, np.float32)), np.full(shape, 2)), f"{shape}")
    for shape in ((8, 0), (3, 5), (3, 7), (2, 6)):
        refused(lambda: pair(np.ones(shape, np.float32)), "'x'", "dimension 1", f"is {2 * shape[0]} by the other sizes")
    sums = text("sums", "x : f32[2*n+1]", "z : f32[n+m, 3*m]")
    ones = lambda *shape: np.ones(shape, np.float32)
    expect(sums(ones(7), ones(5, 6))["z2"].shape == (5, 6), "n and m stand alone nowhere")
    refused(lambda: sums(ones(6), ones(5, 6)), "'x'", "no value of its symbol")
    refused(lambda: sums(ones(7), ones(4, 6)), "'z'")
    refused(lambda: sums(ones(17), ones(16, 27)), "'z'")
    refused(lambda: sums(ones(7), ones(5, 6), dim={"n": 2}), "'x'", "5 by the other sizes")
    every = text("every", "x : f32[n, m]", "z : f32[n+m, floordiv(n+1,2), n*m+1, max(n,m), 16-n, floormod(n,3), min(n,m)]")
    for n, m in ((3, 2), (8, 8), (0, 5), (1, 7)):
        right = (n + m, (n + 1) // 2, n * m + 1, max(n, m), 16 - n, n % 3, min(n, m))
        expect(every(ones(n, m), ones(*right))["z2"].shape == right, f"{right}")
        for axis in range(len(right)):
            for step in (-1, 1):
                other = [size + step * (k == axis) for k, size in enumerate(right)]
                if other[axis] >= 0:
                    refused(lambda: every(ones(n, m), ones(*other)), "'z'")


GUARD = """
import ctypes, mmap, sys
import numpy as np, tgc
m = tgc.compile(sys.argv[1])
page = mmap.PAGESIZE
area = mmap.mmap(-1, 64 * page)
start = ctypes.addressof(ctypes.c_char.from_buffer(area))
libc = ctypes.CDLL(None)
assert libc.mprotect(ctypes.c_void_p(start + 63 * page), page, 0) == 0
for shape in ((1, 1, 384), (2, 3, 384), (1, 5, 384)):
    n = int(np.prod(shape))
    x = np.frombuffer(area, np.float32, n, 63 * page - 4 * n).reshape(shape)
    x[:] = np.arange(n).reshape(shape)
    y = m(x)
    c = x - x.mean(-1, keepdims=True)
    assert np.allclose(y, m(x.copy())) and y.shape == shape
print("within")
"""


@case("a run reads no memory beyond an input's own size")
def _(folder):
    done = python(GUARD, str(ROOT / "models" / "layer_norm.tg"))
    expect(done.out.strip() == b"within", done.describe())


# -------------------------------------------------------------------------------------- messages


@case("what is wrong with an input, an option or a model: which, found, expected, cure")
def _(folder):
    _, path = perceptron(folder)
    m = tgc.compile(path)
    x = np.zeros((1, 8), np.float32)
    refused(lambda: m(x.astype(float)), "'x'", "float32[1,8]", "float64[1,8]",
            "x.astype('float32')")
    refused(lambda: m(x.astype(">f4")), "'x'", "astype('float32')")
    for nothing in ("abc", None):
        refused(lambda: m(nothing), "'x'", "give an array of numbers")
    refused(lambda: m(x[0]), "'x'", "float32[8]", "x[np.newaxis]")
    refused(lambda: m(x.T), "'x'", "float32[8,1]", "dimension 0 has to be 1")
    refused(lambda: m(), "'x'", "missing")
    refused(lambda: m(x, x), "2 inputs", "the model has 1")
    refused(lambda: m(x, x=x), "twice")
    refused(lambda: m(z=x), "'z'", "'x' float32[1,8]")
    refused(lambda: m("text"), "'x'")
    refused(lambda: m([[1, "a"]]), "'x'")
    refused(lambda: m(x, out=np.zeros((1, 4))), "'y'", "float64", "np.empty")
    refused(lambda: m(x, out=np.zeros((1, 8), np.float32)[:, ::2]), "'y'", "another order")
    refused(lambda: m(x, out=x[:, :4]), "'y'", "overlaps an input")
    refused(lambda: m(x, out={"q": x}), "'q'", "'y'")
    refused(lambda: m(x, dim={"b": 1}), "'b'")
    refused(lambda: m.reset(), "no state", "--state")

    class Elsewhere:
        device = "cuda:0"

        def __dlpack_device__(self):
            return 2, 0

    refused(lambda: m(Elsewhere()), "'x'", "cuda:0", "x.cpu()")
    refused(lambda: tgc.compile(folder / "none.onnx"), "none.onnx", "No such file")
    refused(lambda: tgc.compile(b"no model"), "ModelProto")
    refused(lambda: tgc.compile(3), "int")
    refused(lambda: tgc.compile(path, options="--threads=2"), "list of words")
    refused(lambda: tgc.compile(path, options=["-o", "x"]), "-o", "save_c")
    refused(lambda: tgc.compile(path, options=["--thread=2"]), "--thread")
    refused(lambda: tgc.compile(path, dim={"b": 2}), "'b'")
    refused(lambda: tgc.compile(path, dim={"b": "2"}), "'b'", "'..8'")
    expect(refused(lambda: tgc.compile(path, options=["--cpu=none"])).status is None, "status")


@case("a status of the run is an error with its text and number")
def _(folder):
    model = G.model([G.node("Gather", ["w", "i"], ["y"])], [G.value("i", [2], TensorProto.INT64)],
                    [G.value("y", [2])], [G.weight("w", np.arange(5, dtype=np.float32))])
    m = tgc.compile(model)
    np.testing.assert_array_equal(m(np.array([4, 0])), [4, 0])
    error = refused(lambda: m(np.array([0, 7])), "index out of range; 'i' holds 0 to 7")
    expect(error.status == 10, f"status {error.status}")
    np.testing.assert_array_equal(m([1, 2]), [1, 2])


@case("a tgc that is missing, of another version or processor, and a missing C compiler")
def _(folder):
    _, path = perceptron(folder)
    code = "import sys, tgc\ntry:\n    tgc.compile(sys.argv[1])\nexcept tgc.Error as e:\n    print(e)"
    (folder / "old").write_text("#!/bin/sh\necho tgc 0.0.9\n")
    (folder / "other").write_bytes(b"\x7fELF\2\1\1" + bytes(60))
    for name in ("old", "other"):
        (folder / name).chmod(0o755)
    for name, words in [("none", ["no such file", "TGC"]), ("old", ["0.0.9", "one version"]),
                        ("other", ["cannot be run", "wheel of this processor"])]:
        said = python(code, str(path), TGC=str(folder / name)).out.decode()
        expect(all(word in said for word in [name, *words]), said)
    said = python(code, str(path), CC="no-such-cc -O1").out.decode()
    expect("no-such-cc" in said and "install a C compiler" in said, said)


# ----------------------------------------------------------------------------------------- cache


def entries():
    return {p for p in (SCRATCH / "cache" / "tgc" / "python").glob("*/model.so")}


@case("the cache goes by content: the model, its external data, options, compiler")
def _(folder):
    model, path = perceptron(folder)
    weights = folder / "data with blanks #1.bin"
    onnx.save(model, path, save_as_external_data=True, location=weights.name, size_threshold=0)
    x = np.ones((1, 8), np.float32)
    before = entries()
    first = tgc.compile(path)(x)
    made = entries() - before
    expect(len(made) == 1, f"one entry: {made}")
    (built,) = made
    stamp = built.stat().st_mtime_ns
    moved = folder / "moved"
    moved.mkdir()
    for file in (path, weights):
        (moved / file.name).write_bytes(file.read_bytes())
    for again in (path, str(path), moved / "m.onnx"):
        expect(np.array_equal(tgc.compile(again)(x), first), "the same answer")
    expect(entries() - before == made and built.stat().st_mtime_ns == stamp, "nothing was built")
    changed = bytearray(weights.read_bytes())
    changed[:64] = np.full(16, 2, np.float32).tobytes()
    weights.write_bytes(changed)
    other = tgc.compile(path)
    expect(not np.array_equal(other(x), first), "other weights, other answer")
    expect(len(entries() - before) == 2, "a second entry")
    expect(np.array_equal(tgc.compile(moved / "m.onnx")(x), first), "the first one is there")
    weights.write_bytes(changed[::-1])
    refused(lambda: other.info, "changed since it was compiled")
    refused(lambda: other.save_c(folder / "x.c"), "changed since it was compiled")
    expect(not (folder / "x.c").exists(), "nothing was written")
    left = [p.name for p in built.parents[1].iterdir() if p.name.startswith("new-")]
    expect(not left, f"left behind: {left}")


@case("processes that compile one model at once make one entry; a failure leaves none")
def _(folder):
    model = G.perceptron(seed=7)
    onnx.save(model, folder / "m.onnx")
    code = ("import sys, numpy, tgc\n"
            "print(tgc.compile(sys.argv[1])(numpy.ones((1, 8), 'f')).tolist())")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"),
                   "XDG_CACHE_HOME": str(folder / "cache")}
    running = [subprocess.Popen([sys.executable, "-c", code, str(folder / "m.onnx")],
                                env=environment, stdout=subprocess.PIPE) for _ in range(4)]
    answers = {p.communicate()[0] for p in running}
    expect(len(answers) == 1 and all(p.returncode == 0 for p in running), str(answers))
    cache = folder / "cache" / "tgc" / "python"
    expect(len(list(cache.glob("*/model.so"))) == 1, "one entry")
    done = T.run([sys.executable, "-c", code, str(folder / "m.onnx")],
                 env={**environment, "CC": "false"})
    expect(done.status == 1 and "'false' failed" in done.err, done.describe())
    expect(len(list(cache.iterdir())) == 3, "files, locks and the one entry")
    done = T.must(T.run([sys.executable, "-c", code, str(folder / "m.onnx")],
                        env={**environment, "XDG_CACHE_HOME": str(folder / "c2"),
                             "TGC_CACHE": "0"}))
    expect(done.out in answers and not (folder / "c2").exists(), "TGC_CACHE=0")


# A library that says so when it is loaded.
PLANTED = """#include <fcntl.h>
#include <stdlib.h>
__attribute__((constructor)) static void planted(void) { creat(getenv("PLANTED"), 0600); }
"""


@case("the cache runs nothing that another user could have put there, or changed")
def _(folder):
    onnx.save(G.perceptron(seed=7), folder / "m.onnx")
    (folder / "planted.c").write_text(PLANTED)
    T.must(T.run(["cc", "-shared", "-fPIC", folder / "planted.c", "-o", folder / "planted.so"]))
    planted, ran = (folder / "planted.so").read_bytes(), folder / "ran"
    xdg = folder / "shared"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "XDG_CACHE_HOME": str(xdg), "CC": "cc",
                   "PLANTED": str(ran)}
    code = "import numpy, tgc\nprint(tgc.compile('m.onnx')(numpy.ones((1, 8), 'f')).tolist())"

    def compiled(status=0):
        done = T.must(T.run([sys.executable, "-c", code], cwd=folder, env=environment), status)
        expect(not ran.exists(), "what was planted ran")
        return done

    xdg.mkdir()
    xdg.chmod(0o1777)
    os.umask(0o002)                             # as of users who share a group
    try:
        first = compiled().out
    finally:
        os.umask(0o022)
    place = xdg / "tgc" / "python"
    (library,) = place.glob("*/model.so")
    made = library.stat().st_mtime_ns
    expect(compiled().out == first and library.stat().st_mtime_ns == made, "it is not found again")
    entry = library.parent

    def plant():
        library.unlink()
        library.write_bytes(planted)

    def plant_link():
        library.unlink()
        library.symlink_to(folder / "planted.so")

    def plant_folder():
        entry.rename(place / "old")
        entry.mkdir()
        library.write_bytes(planted)

    def plant_linked_folder():
        (folder / "elsewhere").mkdir()
        (folder / "elsewhere" / "model.so").write_bytes(planted)
        entry.rename(place / "old2")
        entry.symlink_to(folder / "elsewhere")

    for how in (plant, plant_link, plant_folder, plant_linked_folder):
        how()
        expect(compiled().out == first, how.__name__)
        expect(not library.is_symlink() and library.read_bytes() != planted, f"{how.__name__}: it is still there")
    for path in (place.parent, place):
        for mode in (0o770, 0o702):
            path.chmod(mode)
            expect("others may write into" in compiled(1).err, f"{path}: {mode:o}")
        path.chmod(0o700)
        if os.geteuid() == 0:
            os.chown(path, 65534, 65534)
            expect("belongs to another user" in compiled(1).err, str(path))
            os.chown(path, 0, 0)
    xdg.chmod(0o777)
    expect("anyone may exchange what is in" in compiled(1).err, "a folder that anyone may rename")
    xdg.chmod(0o755)
    if os.geteuid() == 0:                       # an entry that nobody has planted, with all that it takes
        shutil.rmtree(xdg / "tgc")
        expect(compiled().out == first, "the first answer")
        shutil.copytree(xdg / "tgc", folder / "copy")
        shutil.rmtree(xdg / "tgc")
        shutil.copytree(folder / "copy", xdg / "tgc")
        plant()
        for path in [xdg / "tgc", *(xdg / "tgc").rglob("*")]:
            os.chown(path, 65534, 65534)
        expect("belongs to another user" in compiled(1).err, "nobody's cache")
        os.chown(xdg / "tgc", 0, 0)
        expect("belongs to another user" in compiled(1).err, "nobody's folder in it")
        os.chown(place, 0, 0)
        expect(compiled().out == first, "nobody's entry")


@case("weights in a file of their own; info; save_c")
def _(folder):
    model, path = perceptron(folder)
    x = np.ones((1, 8), np.float32)
    m = tgc.compile(path, options=["--weights=file"])
    np.testing.assert_allclose(m(x), G.perceptron_reference(model, x), rtol=1e-5, atol=1e-6)
    m = tgc.compile(path.read_bytes(), options=["--threads=2"])
    info = m.info
    expect(info["inputs"] == [{"name": "x", "dtype": "f32", "shape": [1, 8]}] and
           info["operators"] == {"Gemm": 2, "Relu": 1}, str(info))
    m.save_c(folder / "net.c", name="first_net")
    T.must(T.run(["gcc", "-fsyntax-only", "-Wall", "-Werror", folder / "net.c"]))
    expect("first_net_run" in (folder / "net.h").read_text(), "name=")


# --------------------------------------------------------------------------------------- threads


@case("threads run at once, each in a context of its own, without the interpreter's lock")
def _(folder):
    n = 640
    w = np.random.default_rng(3).standard_normal((n, n)).astype(np.float32) / 25
    model = G.model([G.node("MatMul", ["x", "w"], ["h"]), G.node("MatMul", ["h", "w"], ["y"])],
                    [G.value("x", [n, n])], [G.value("y", [n, n])], [G.weight("w", w)])
    m = tgc.compile(model)
    x = [np.random.default_rng(k).standard_normal((n, n)).astype(np.float32) for k in range(3)]
    want = [m(v) for v in x]
    found, running = [None] * 3, threading.Event()

    def run(k):
        running.set()
        for _ in range(4):
            found[k] = m(x[k])

    threads = [threading.Thread(target=run, args=(k,)) for k in range(3)]
    for thread in threads:
        thread.start()
    running.wait()
    ticks = 0
    while any(thread.is_alive() for thread in threads):
        time.sleep(1e-4)
        ticks += 1
    expect(all(np.array_equal(f, w) for f, w in zip(found, want)), "answers of threads")
    expect(ticks > 10, f"the interpreter ran {ticks} times meanwhile")


FORK = """
import gc, os, sys, numpy as np, tgc
m = tgc.compile(sys.argv[1], options=["--threads=2"])
x = np.ones((256, 256), "f")
want = m(x)
child = os.fork()
same = np.array_equal(m(x), want)
if child == 0:
    del m                       # joins its own threads, not the parent's
    gc.collect()
    os._exit(0 if same else 1)
assert same and os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
print("both")
"""


@case("a forked process goes on with threads of its own")
def _(folder):
    w = np.random.default_rng(3).standard_normal((256, 256)).astype(np.float32)
    onnx.save(G.model([G.node("MatMul", ["x", "w"], ["y"])], [G.value("x", [256, 256])],
                      [G.value("y", [256, 256])], [G.weight("w", w)]), folder / "m.onnx")
    expect(python(FORK, str(folder / "m.onnx")).out.strip() == b"both", "an answer of each")


@case("entries: each called as a model of its own, over one state")
def _(folder):
    (folder / "net.tg").write_text("""tg 1
dim n<=4
state %s : f32[1]
entry "add" {
    input %x : f32[n]
    input %scale : f32[1]
    %a = reduce_sum(%x) {axes=[0], keep=true}
    %b = mul(%a, %scale)
    %1 = add(%s, %b)
    keep %s = %1
    output %1 as "sum"
    output %x as "same"
}
entry "look" {
    input %x : f32[1]
    %1 = add(%s, %x)
    output %1
}
""")
    for options in ([], ["--target=c"]):
        m = tgc.compile(str(folder / "net.tg"), options=options)
        expect(list(m.entries) == ["add", "look"] and m.entries["add"].inputs == ("x", "scale"), f"{m.entries}")
        add, look = m.entries["add"], m.entries["look"]
        got = add([1, 2, 3], scale=[2.0])
        expect(got["sum"] == [12] and list(got["same"]) == [1, 2, 3], f"{got}")
        expect(look([1.0], dim={"n": 1}) == [13], "the other entry reads the state")
        block = m.save()
        m.reset()
        expect(look([1.0], dim={"n": 1}) == [1], "as before the first run")
        m.restore(block)
        expect(add([1.0], [1.0])["sum"] == [13], "goes on")
        refused(lambda: m([1.0]), "several entries", "m.entries['add']")
        refused(lambda: add([1.0]), "'scale' is missing")
        refused(lambda: look([1.0]), "how large 'n' is")


@case("state: kept from call to call, reset, saved and restored; threads take turns")
def _(folder):
    if "--state" not in T.must(T.run([TGC, "--help"])).out.decode():
        raise Skip("this tgc has no --state")
    model = G.model([G.node("Add", ["x", "h"], ["y"])],
                    [G.value("x", [3]), G.value("h", [3])], [G.value("y", [3])])
    twice = G.model([*model.graph.node, G.node("Add", ["y", "y"], ["z"])], model.graph.input,
                    [*model.graph.output, G.value("z", [3])])
    m = tgc.compile(twice, options=["--state=y=h"])
    x = np.arange(3, dtype=np.float32)
    expect(m.inputs == ("x",) and m.outputs == ("z",), f"{m}")
    np.testing.assert_array_equal(m(x), 2 * x)
    np.testing.assert_array_equal(m(x), 4 * x)
    block = m.save()
    np.testing.assert_array_equal(m(x), 6 * x)
    m.restore(block)
    np.testing.assert_array_equal(m(x), 6 * x)
    m.reset()
    np.testing.assert_array_equal(m(x), 2 * x)
    refused(lambda: m.restore(block[1:]), "restore", str(len(block)))
    other = tgc.compile(twice, options=["--state=y=h"])
    np.testing.assert_array_equal(other(x), 2 * x)      # a state of its own
    m.reset()
    threads = [threading.Thread(target=lambda: [m(x) for _ in range(50)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal(m(x), 2 * 201 * x)
    foreign = bytes(len(block))
    expect(refused(lambda: m.restore(foreign)).status, "another model's block is a status")


# ----------------------------------------------------------------------------------------- guide


@case("the commands of docs/guide/python.md, and what they print")
def _(folder):
    onnx.save(G.model([G.node("MatMul", ["x", "w"], ["y"])], [G.value("x", ["batch", 4])],
                      [G.value("y", ["batch", 2])],
                      [G.weight("w", np.ones((4, 2), np.float32))]), folder / "model.onnx")
    page = ROOT / "docs" / "guide" / "python.md"
    text = page.read_text()
    examples = doctest.DocTestParser().get_doctest(
        re.sub(r"^```.*$", "", text, flags=re.M), {}, page.name, str(page), 0)
    expect(len(examples.examples) > 10, "examples were found")
    said, home = [], os.getcwd()
    sys.modules["tgc"], helper = tgc, sys.modules["tgc"]
    os.chdir(folder)
    try:
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS |
                                       doctest.NORMALIZE_WHITESPACE)
        result = runner.run(examples, out=said.append)
    finally:
        os.chdir(home)
        sys.modules["tgc"] = helper
    expect(result.failed == 0, "".join(said)[-3000:])


def has_llvm():
    return re.search(r"libLLVM: \d", T.must(T.run([TGC, "--version"])).out.decode()) is not None


@case("in process, by LLVM: the cases before, where no C compiler works")
def _(folder):
    if IN_PROCESS:
        raise Skip("this is that process")
    if not has_llvm():
        raise Skip("libLLVM is not here")
    for name in ("cc", "gcc", "clang"):
        (folder / name).write_text("#!/bin/sh\nexit 1\n")
        (folder / name).chmod(0o755)
    done = T.run([sys.executable, __file__, "--build", OPTIONS.build, "--filter", "^(?!.*(cache|make one entry|C compiler))"],
                 env={"TGC_TEST_IN_PROCESS": "1", "CC": "", "PATH": f"{folder}:{os.environ['PATH']}"}, timeout=250)
    said = done.out.decode()
    expect(done.status == 0 and said.count("\nok ") > 8 and "\nnot ok" not in said, said + done.err)


@case("in process or not: what is asked for, and what is said where neither works")
def _(folder):
    _, path = perceptron(folder)
    code = ("import sys, tgc, tgc._inprocess as p\n"
            "try:\n    m = tgc.compile(sys.argv[1], options=sys.argv[2:])\n    print(isinstance(m._library, p.InProcess))\n"
            "except tgc.Error as e:\n    print(e)")

    def ask(*options, **environment):
        environment = {"CC": "", "TGC_CACHE": "0", **environment}
        return python(code, str(path), *options, **environment).out.decode().strip()
    expect(ask() == str(has_llvm()), "without a word: in process, if libLLVM is here")
    expect(ask("--target=c") == ask(CC="cc") == ask(C="1") == ask(TGC_LLVM="1") == "False", "C is asked for, or LLVM is not here")
    said = ask(TGC_LLVM="1", PATH=str(folder))
    expect("install a C compiler" in said and "LLVM" in said, said)
    (folder / "bad.onnx").write_bytes(b"no model")
    path = folder / "bad.onnx"
    said = ask()
    expect(said.count("not a well-formed") == 1, said)


@case("a training on arrays, and what it says of mistakes")
def _(folder):
    _, path = perceptron(folder)
    r = np.random.default_rng(3)
    x = r.standard_normal((60, 8)).astype(np.float32)
    target = (x @ r.standard_normal((8, 4))).argmax(1)
    data = {"x": x[:48], "target": target[:48]}
    t = tgc.train(path, data, folder / "t.onnx", loss="cross_entropy", valid={"x": x[48:], "target": target[48:]},
                  epochs=30, batch=8, lr=0.01)
    expect(t.path == folder / "t.onnx" and len(t.history) == t.epoch == 30 and t.step == 180, f"{t}")
    expect(t.loss < 0.5 * t.history[0]["loss"] and t.accuracy > 0.8 and t.valid_loss is not None, f"{t}")
    scores = np.concatenate([tgc.compile(t.path)(row[None]) for row in x[:48]])
    expect((scores.argmax(1) == target[:48]).mean() == t.accuracy, f"{t}")
    np.savez(folder / "d.npz", **data)
    same = tgc.train(onnx.load(path), folder / "d.npz", folder / "s.onnx", loss="cross_entropy", epochs=30, batch=8, lr=0.01)
    expect(same.loss == t.loss and same.valid_loss is None, f"{same}, {t}")
    refused(lambda: tgc.train(path, {"x": x}, folder / "u.onnx", loss="cross_entropy"), "nothing for 'target'")
    refused(lambda: tgc.train(path, data, folder / "u.onnx", loss="entropy"), "cross_entropy, mse")
    expect(not (folder / "u.onnx").exists(), "something was written")


@case("the module and the program have one version")
def _(folder):
    said = T.must(T.run([TGC, "--version"])).out.decode().split()[1]
    declared = re.search(r"version: '([^']+)'", (ROOT / "meson.build").read_text()).group(1)
    expect(tgc.__version__ == said == declared, f"{tgc.__version__}, {said}, {declared}")


suite.main()
