"""The cache of compiled models: what is found again and what is not, damage, rights, the limit, several processes at
once. What is asked each time is the answer itself; -v says whether it came out of the cache."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "lib")]

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import graphs as G
import tgc as T
from suite import Skip, Suite, expect

suite = Suite("cache")
OPTIONS = suite.parse()
TGC = T.find_tgc(OPTIONS.build).resolve()
SCRATCH = Path(OPTIONS.build).resolve() / "test-scratch" / "cache"
case = suite.folder_case(SCRATCH)
KEPT, FOUND = "cache: kept for the next time", "\ncache   "


def cached(folder, *words, status=0, **more):
    """Runs tgc with a cache of the folder's own."""
    more = {"TGC_CACHE": "1", "XDG_CACHE_HOME": str(folder / "xdg"), **more}
    return T.must(T.run([TGC, *words], cwd=folder, env=more), status)


def files(folder, kind=".code"):
    return sorted((folder / "xdg" / "tgc").glob("*" + kind))


def need_llvm():
    if "libLLVM: none" in T.must(T.run([TGC, "--version"])).out.decode():
        raise Skip("libLLVM is not installed (libllvm19), or tgc was built without the LLVM target")


def perceptron(folder, name="model.onnx"):
    need_llvm()
    model = G.perceptron()
    onnx.save(model, folder / name)
    return model


def check_misses(folder, *words, **more):
    done = cached(folder, "run", *words, "-v", **more)
    expect(KEPT in done.err and FOUND not in "\n" + done.err, f"this was to be compiled:\n{done.err}")
    return done.out


def check_hits(folder, *words, **more):
    done = cached(folder, "run", *words, "-v", **more)
    expect(FOUND in "\n" + done.err and "schedule" not in done.err, f"this was to be found:\n{done.err}")
    return done.out


@case("the second run has the first one's output, by verify and bench as well, and loads no LLVM")
def _(folder):
    perceptron(folder)
    first = check_misses(folder, "model.onnx")
    expect(check_hits(folder, "model.onnx") == first, "another output")
    expect(b"ran by LLVM" in first.splitlines()[-1], f"the last line is {first.splitlines()[-1]}")
    bench = cached(folder, "bench", "model.onnx", "-v")
    expect(FOUND in "\n" + bench.err and b"predicted" in bench.out and b"ran by LLVM" in bench.out, bench.err)
    again = cached(folder, "bench", "model.onnx", TGC_CACHE="0").out.decode()
    kernels = [[line.split()[4:] for line in text.splitlines()[1:-1]] for text in (bench.out.decode(), again)]
    expect(kernels[0] == kernels[1], f"bench's kernels differ: {kernels}")
    cached(folder, "run", "model.onnx", "--out-dir", ".")
    inputs = {i.name: i for i in onnx.load(folder / "model.onnx").graph.input}
    expect(len(inputs) == 1, "the model has one input")
    if shutil.which("ltrace") is None and Path("/proc/self/maps").exists():
        maps = subprocess.run([str(TGC), "bench", "model.onnx"], cwd=folder, capture_output=True,
                              env={**os.environ, "TGC_CACHE": "1", "XDG_CACHE_HOME": str(folder / "xdg"),
                                   "LD_DEBUG": "files"}, timeout=120)
        expect(b"libLLVM" not in maps.stderr, "libLLVM was loaded")


@case("inputs are checked as without it: shapes, names, data sets")
def _(folder):
    model = perceptron(folder)
    name = model.graph.input[0].name
    shape = [d.dim_value or 1 for d in model.graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    np.save(folder / "x.npy", x)
    np.save(folder / "y.npy", np.zeros((*shape, 2), np.float32))
    wanted = cached(folder, "run", "model.onnx", "-i", f"{name}=x.npy", TGC_CACHE="0").out
    check_misses(folder, "model.onnx", "-i", f"{name}=x.npy")
    expect(check_hits(folder, "model.onnx", "-i", f"{name}=x.npy") == wanted, "another output")
    np.save(folder / "x.npy", x + 1)
    expect(check_hits(folder, "model.onnx", "-i", f"{name}=x.npy") != wanted, "the input is the old one")
    for words in (["-i", "none=x.npy"], ["-i", f"{name}=y.npy"], ["-i", f"{name}=gone.npy"]):
        with_cache = cached(folder, "run", "model.onnx", *words, status=1)
        without = cached(folder, "run", "model.onnx", *words, status=1, TGC_CACHE="0")
        expect(with_cache.err == without.err, f"another message:\n{with_cache.err}\n{without.err}")


@case("data sets are verified, and a mismatch is one")
def _(folder):
    model = perceptron(folder)
    cached(folder, "run", "model.onnx", "--out-dir", "out", TGC_CACHE="0")
    output = np.load(next((folder / "out").glob("*.npy")))
    (folder / "data").mkdir()
    name = model.graph.input[0].name
    shape = [d.dim_value or 1 for d in model.graph.input[0].type.tensor_type.shape.dim]
    np.save(folder / "data" / "input_0.npy", np.ones(shape, np.float32))
    np.save(folder / "ones.npy", np.ones(shape, np.float32))
    cached(folder, "run", "model.onnx", "-i", f"{name}=ones.npy", "--out-dir", "out", TGC_CACHE="0")
    output = np.load(next((folder / "out").glob("*.npy")))
    np.save(folder / "data" / "output_0.npy", output)
    for round in range(2):
        done = cached(folder, "verify", "model.onnx", "--data", "data", "-v")
        expect((FOUND in "\n" + done.err) == (round == 1), done.err)
        expect(done.out.startswith(b"ok"), done.out)
    np.save(folder / "data" / "output_0.npy", output + 1)
    done = cached(folder, "verify", "model.onnx", "--data", "data", "-v", status=3)
    expect(FOUND in "\n" + done.err and b"MISMATCH" in done.out, done.err)


@case("another option, another weight, another tgc name: compiled anew; moved or copied: found")
def _(folder):
    model = perceptron(folder)
    first = check_misses(folder, "model.onnx")
    check_misses(folder, "model.onnx", "-O0")
    check_misses(folder, "model.onnx", "--fast-math")
    check_misses(folder, "model.onnx", "--name", "other")
    check_hits(folder, "model.onnx", "--max-memory", "1G")
    check_hits(folder, "model.onnx", "--steps", "2")
    (folder / "else").mkdir()
    shutil.copy(folder / "model.onnx", folder / "else" / "model.onnx")
    expect(check_hits(folder, "else/model.onnx") == first, "another output")
    weight = model.graph.initializer[0]
    weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight) * 2, weight.name))
    onnx.save(model, folder / "model.onnx")
    expect(check_misses(folder, "model.onnx") != first, "the old weights")
    expect(check_hits(folder, "else/model.onnx") == first, "the other is not found any more")


@case("weights beside the model count, and move with it")
def _(folder):
    model = perceptron(folder)
    onnx.save_model(model, folder / "outside.onnx", save_as_external_data=True, location="weights.bin",
                    size_threshold=0)
    first = check_misses(folder, "outside.onnx")
    check_hits(folder, "outside.onnx")
    (folder / "else").mkdir()
    for name in ("outside.onnx", "weights.bin"):
        shutil.copy(folder / name, folder / "else" / name)
    expect(check_hits(folder, "else/outside.onnx") == first, "another output")
    doubled = np.fromfile(folder / "weights.bin", np.float32) * 2
    doubled.tofile(folder / "weights.bin")
    expect(check_misses(folder, "outside.onnx") != first, "the old weights")
    (folder / "weights.bin").unlink()
    expect("weights.bin" in cached(folder, "run", "outside.onnx", status=1).err, "no message of the file")


SCALE = """tg 1
def "my.domain::Scale"(%%x) -> (%%y) {
    %%y = mul(%%x, %g)
}
"""


@case("definitions of --library count; functions of --link are at addresses of one process, and not kept")
def _(folder):
    need_llvm()
    node = onnx.helper.make_node("Scale", ["x"], ["y"], domain="my.domain")
    value = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [3]) for n in "xy"]
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph([node], "g", value[:1], value[1:]), ir_version=9, opset_imports=[
        onnx.helper.make_opsetid("", 18), onnx.helper.make_opsetid("my.domain", 1)]), folder / "scale.onnx")
    words = ["scale.onnx", "--library", "own.tg"]
    (folder / "own.tg").write_text(SCALE % 2)
    first = check_misses(folder, *words)
    expect(check_hits(folder, *words) == first, "another output")
    (folder / "own.tg").write_text(SCALE % 3)
    expect(check_misses(folder, *words) != first, "the old definition")
    (folder / "own.tg").write_text('tg 1\nextern "my.domain::Scale"(%x : f32[N]) -> (%y : f32[N]) as "my_scale"\n')
    for factor in (2, 5):
        (folder / "own.c").write_text('#include "scale.h"\nint my_scale(const float *x, const int64_t x_shape[1], float *y, '
                                      "const int64_t y_shape[1]) { (void)y_shape; for (int64_t i = 0; i < x_shape[0]; i++) "
                                      f"y[i] = {factor} * x[i]; return 0; }}\n")
        done = cached(folder, "run", *words, "--link", "own.c", "-v")
        expect(KEPT not in done.err and FOUND not in "\n" + done.err, done.err)
        expect((done.out == first) == (factor == 2), f"{factor}: {done.out}")


@case("shapes that come from -i have each their own code")
def _(folder):
    need_llvm()
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])
    graph = helper.make_graph([helper.make_node("Tanh", ["x"], ["y"])], "g", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), folder / "m.onnx")
    for n in (2, 3):
        np.save(folder / f"{n}.npy", np.full((n, 4), 0.5, np.float32))
    check_misses(folder, "m.onnx", "-i", "x=2.npy")
    check_misses(folder, "m.onnx", "-i", "x=3.npy")
    expect(b"f32[2,4]" in check_hits(folder, "m.onnx", "-i", "x=2.npy"), "another shape")
    expect(b"f32[3,4]" in check_hits(folder, "m.onnx", "-i", "x=3.npy"), "another shape")
    expect("dim" in cached(folder, "run", "m.onnx", status=1).err, "the open dimension is not asked for")


@case("a program that depends on an input's value, of which a warning tells, is not kept")
def _(folder):
    need_llvm()
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [6])
    shape = helper.make_tensor_value_info("shape", TensorProto.INT64, [2])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node("Reshape", ["x", "shape"], ["y"])], "g", [x, shape], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), folder / "m.onnx")
    np.save(folder / "a.npy", np.array([2, 3]))
    np.save(folder / "b.npy", np.array([3, 2]))
    for name, text in (("a", b"f32[2,3]"), ("b", b"f32[3,2]"), ("a", b"f32[2,3]")):
        done = cached(folder, "run", "m.onnx", "-i", f"shape={name}.npy", "-v")
        expect(text in done.out and FOUND not in "\n" + done.err and "warning" in done.err, done.err)


@case("a library that has changed; functions of the user's are not kept")
def _(folder):
    need_llvm()
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node("Mine", ["x"], ["y"], domain="my")], "g", [x], [y])
    domains = [helper.make_opsetid("", 17), helper.make_opsetid("my", 1)]
    onnx.save(helper.make_model(graph, opset_imports=domains), folder / "m.onnx")
    define = 'tg 1\ndef "my::Mine"(%x) -> (%y) {{\n    %y = mul(%x, {}.0)\n}}\n'
    (folder / "l.tg").write_text(define.format(2))
    first = check_misses(folder, "m.onnx", "--library", "l.tg")
    check_hits(folder, "m.onnx", "--library", "l.tg")
    (folder / "l.tg").write_text(define.format(3))
    expect(check_misses(folder, "m.onnx", "--library", "l.tg") != first, "the old definition")
    (folder / "l.tg").write_text('tg 1\nextern "my::Mine"(%x : f32[N]) -> (%y : f32[N]) as "mine"\n')
    (folder / "f.c").write_text('#include "m.h"\nint mine(const float *x, const int64_t x_shape[1], float *y, const int64_t y_shape[1])\n'
                                "{\n    (void)y_shape;\n    for (int64_t i = 0; i < x_shape[0]; i++)\n        y[i] = x[i];\n    return 0;\n}\n")
    for _ in range(2):
        done = cached(folder, "run", "m.onnx", "--library", "l.tg", "--link", "f.c", "-v")
        expect("schedule" in done.err and KEPT not in done.err, done.err)


@case("perf and gdb know the code's names, fresh and found")
def _(folder):
    perceptron(folder)
    env = {**os.environ, "TGC_CACHE": "1", "XDG_CACHE_HOME": str(folder / "xdg"), "TGC_PERF": "1"}
    for _ in range(2):
        process = subprocess.Popen([str(TGC), "run", "model.onnx"], cwd=folder, env=env, stdout=subprocess.DEVNULL)
        expect(process.wait(timeout=120) == 0, "the run failed")
        names = Path(f"/tmp/perf-{process.pid}.map")
        lines = names.read_text().splitlines()
        names.unlink()
        expect(any(line.endswith(" model_run") for line in lines) and len(lines) > 1, lines)
        expect(all(int(word, 16) > 0 for line in lines for word in line.split()[:2]), lines)
    if not shutil.which("gdb"):
        raise Skip("gdb is not installed")
    done = T.run(["gdb", "-batch", "-nx", "-ex", "set breakpoint pending on", "-ex", "break model_run", "-ex", "run", "-ex", "bt",
                  "--args", TGC, "run", "model.onnx"], cwd=folder, env={"TGC_CACHE": "1", "XDG_CACHE_HOME": str(folder / "xdg")})
    text = done.out.decode()
    if "ptrace" in done.err + text or "Could not trace" in done.err:
        raise Skip("no process can be traced here")
    expect("in model_run ()" in text, text + done.err)


@case("memory that LLVM does not get is an error, and the process does not abort")
def _(folder):
    need_llvm()
    names = [f"%w{k}" for k in range(12)]
    text = ["tg 1", 'graph "net"', 'input %x : f32[32, 64] as "x"',
            *(f"weight {name} : f32[64, 64] = uniform(low=-1, high=1, seed={k + 1})" for k, name in enumerate(names))]
    value = "%x"
    for k, name in enumerate(names):
        text += [f"%l{k} = linear({value}, {name})", f"%h{k} = {['tanh', 'relu', 'sigmoid'][k % 3]}(%l{k})"]
        value = f"%h{k}"
    (folder / "net.tg").write_text("\n".join([*text, f'output {value} as "y"']) + "\n")
    wanted = cached(folder, "run", "net.tg", "--target=llvm", TGC_CACHE="0").out
    failed = enough = 0
    for megabytes in range(150, 330, 6):
        if enough == 3 and "--all" not in sys.argv:      # more than is enough is not tried
            break
        limit = f"ulimit -v {megabytes << 10}; exec {TGC} run net.tg --target=llvm"
        done = T.run(["sh", "-c", limit], cwd=folder, env={"TGC_CACHE": "0"})
        if "cannot allocate memory for thread-local data" in done.err:     # libc's own loader ends the process
            continue
        expect(done.status in (0, 1), done.describe())
        expect(done.out.splitlines()[:1] == wanted.splitlines()[:1] if done.status == 0 else "error: " in done.err, done.describe())
        failed += done.status
        enough = 0 if done.status else enough + 1
    expect(failed > 2, "no limit was too low")


@case("a file that is damaged anywhere, cut or empty is not used, and is replaced")
def _(folder):
    perceptron(folder)
    first = check_misses(folder, "model.onnx")
    whole = {path: path.read_bytes() for path in files(folder) + files(folder, ".facts")}
    for path, data in whole.items():
        for at in [*range(0, 64, 5), 70, len(data) // 3, len(data) // 2, len(data) - 1]:
            broken = bytearray(data)
            broken[at] ^= 0x11
            path.write_bytes(broken)
            expect(check_misses(folder, "model.onnx") == first, f"byte {at}: another output")
            expect(path.read_bytes() == data, f"byte {at}: the file is not replaced")
        for n in (0, 1, 63, 64, 4095, len(data) - 1):
            path.write_bytes(data[:n])
            expect(check_misses(folder, "model.onnx") == first, f"{n} bytes: another output")
        path.write_bytes(data + b"x")
        expect(check_misses(folder, "model.onnx") == first, "a byte more: another output")
    for path in files(folder):                            # another program's file under this name
        shutil.copy(files(folder, ".facts")[0], path)
        expect(check_misses(folder, "model.onnx") == first, "another file: another output")
        path.unlink()
        path.symlink_to(folder / "model.onnx")
        expect(check_misses(folder, "model.onnx") == first and not path.is_symlink(), "a link is followed")
    check_hits(folder, "model.onnx")


@case("a directory that is another's, or that others can write, is not used; nor one that cannot be written")
def _(folder):
    perceptron(folder)
    check_misses(folder, "model.onnx")
    place = folder / "xdg" / "tgc"
    expect(place.stat().st_mode & 0o777 == 0o700, f"made with {oct(place.stat().st_mode)}")
    expect(all(path.stat().st_mode & 0o777 == 0o600 for path in place.iterdir()), "files that others can read")
    for mode in (0o770, 0o702):
        place.chmod(mode)
        done = cached(folder, "run", "model.onnx", "-v")
        expect("cache: not used: " in done.err and "others may write" in done.err, done.err)
        expect("others may write" in cached(folder, "cache", status=1).err, "no message")
    place.chmod(0o755)
    check_hits(folder, "model.onnx")
    if os.geteuid() == 0:
        os.chown(place, 12345, -1)
        expect("belongs to another user" in cached(folder, "run", "model.onnx", "-v").err, "another's is used")
        os.chown(place, 0, -1)
    shutil.rmtree(place)
    place.write_text("a file")
    done = cached(folder, "run", "model.onnx", "-v")
    expect("cache: not used: " in done.err and b"ran by LLVM" in done.out, done.err)
    done = cached(folder, "run", "model.onnx", "-v", XDG_CACHE_HOME="/proc/none")
    expect("cache: not used: " in done.err and b"ran by LLVM" in done.out, done.err)
    done = cached(folder, "run", "model.onnx", "-v", XDG_CACHE_HOME="", HOME="")
    expect("neither XDG_CACHE_HOME nor HOME" in done.err, done.err)


def spoil(path, how, folder):
    """Puts something else in a file's place."""
    text = path.read_bytes()
    path.unlink()
    if how in ("empty", "short"):
        path.write_bytes(text[:7] if how == "short" else b"")
    elif how == "a pipe":
        os.mkfifo(path)
    elif how == "a link":
        (folder / "other").write_bytes(text)
        path.symlink_to(folder / "other")
    elif how == "a folder":
        path.mkdir()
    elif how == "writable for others":
        path.write_bytes(text)
        path.chmod(0o666)


SPOILT = ["empty", "short", "a pipe", "a link", "a folder", "writable for others"]


@case("what is no secret is replaced, and what is no file of the cache is not waited for")
def _(folder):
    perceptron(folder)
    first = check_misses(folder, "model.onnx")
    place = folder / "xdg" / "tgc"
    for how in SPOILT:
        if how == "a folder":
            continue
        spoil(place / "secret", how, folder)
        expect(check_misses(folder, "model.onnx") == first, f"secret, {how}: another output")
        check_hits(folder, "model.onnx")
        expect((place / "secret").is_file() and not (place / "secret").is_symlink(), f"secret is still {how}")
        spoil(place / "secret", how, folder)
        cached(folder, "cache", "--clear")
        expect([p.name for p in place.iterdir()] == ["secret"], f"secret, {how}: not cleared")
        check_misses(folder, "model.onnx")
    for kind in (".facts", ".code"):
        for how in SPOILT:
            (path,) = files(folder, kind)
            spoil(path, how, folder)
            done = cached(folder, "run", "model.onnx", "-v")
            expect(done.out == first and FOUND not in "\n" + done.err, f"{kind}, {how}:\n{done.err}")
            if how == "a folder":
                path.rmdir()
            check_misses(folder, "model.onnx") if how == "a folder" else check_hits(folder, "model.onnx")
    spoil(place / "secret", "a folder", folder)
    done = cached(folder, "run", "model.onnx", "-v")
    expect("secret is no file of tgc's and cannot be replaced; remove it" in done.err, done.err)
    expect("secret: Is a directory" in cached(folder, "cache", "--clear", status=1).err, "no reason")


@case("a directory that anyone may exchange is not used")
def _(folder):
    perceptron(folder)
    (folder / "xdg").mkdir()
    (folder / "xdg").chmod(0o777)
    done = cached(folder, "run", "model.onnx", "-v")
    expect("cache: not used: anyone may exchange what is in " in done.err, done.err)
    (folder / "xdg").chmod(0o1777)
    check_misses(folder, "model.onnx")
    check_hits(folder, "model.onnx")


@case("folders for other programs: made, sealed, checked")
def _(folder):
    place = folder / "xdg" / "tgc" / "p" / "q"
    said = cached(folder, "cache", "--folder=p/q").out.decode()
    expect(said == f"{place.resolve()}\n" and place.stat().st_mode & 0o777 == 0o700, said)

    def check(status, *texts):
        done = cached(folder, "cache", "--check=p/q", status=status)
        expect(all(text in done.err for text in texts), done.err)

    check(1, "seal: No such file")
    (place / "model.so").write_bytes(b"x" * 3000000)
    (place / "model.weights").write_bytes(b"the weights")
    (place / "model.so").chmod(0o775)
    cached(folder, "cache", "--seal=p/q")
    check(0)
    text = (place / "model.so").read_bytes()
    for at in (0, 2999999):
        (place / "model.so").write_bytes(text[:at] + b"y" + text[at + 1:])
        check(1, "not as they were sealed")
    (place / "model.so").write_bytes(text)
    check(0)
    (place / "more.so").write_bytes(b"")
    check(1, "not as they were sealed")
    (place / "more.so").unlink()
    for how in SPOILT:
        spoil(place / "model.weights", how, folder)
        check(1)
        (place / "model.weights").rmdir() if how == "a folder" else (place / "model.weights").unlink()
        (place / "model.weights").write_bytes(b"the weights")
        check(0)
    for path in (place, place.parent):
        path.chmod(0o777)
        check(1, "others may write into")
        path.chmod(0o700)
        if os.geteuid() == 0:
            os.chown(path, 65534, -1)
            check(1, "belongs to another user")
            os.chown(path, 0, -1)
    place.rename(place.parent / "r")
    expect("not as they were sealed" in cached(folder, "cache", "--check=p/r", status=1).err, "a seal of another name")
    place.symlink_to(place.parent / "r")
    check(1)
    for name in ("..", "p/../p", ".", "/tmp", "p//q"):
        expect("expected NAME" in cached(folder, "cache", f"--folder={name}", status=1).err, name)


@case("a variable of tgc's that cannot be read is an error, one that is not tgc's alone a warning")
def _(folder):
    perceptron(folder)
    for name, value in (("TGC_CACHE_BYTES", "abc"), ("TGC_CACHE_BYTES", "-1"), ("TGC_CACHE", "off"), ("TGC_PERF", "yes"),
                        ("TGC_LLVM", "new"), ("TGC_CLANG", "17.0")):
        done = cached(folder, "run", "model.onnx", status=2, **{name: value})
        expect(f"the environment's {name} has the value '{value}'; " in done.err and "expected" in done.err, done.err)
    for name, value in (("DEBUG", "express:*"), ("NOOPT", "x"), ("BEAM", "2x"), ("VIZ", "on"), ("CUDA", "/usr/local/cuda")):
        done = cached(folder, "run", "model.onnx", **{name: value})
        expect(f"warning: the environment's {name} has the value '{value}'; a whole number is expected" in done.err, done.err)
    cached(folder, "run", "model.onnx", TGC_CACHE_BYTES="512M", TGC_CACHE="1", TGC_PERF="0", DEBUG="", NOOPT="0")


@case("tinygrad's DEV names the target; what it does not know is said")
def _(folder):
    model = perceptron(folder)
    want = {name: cached(folder, "model.onnx", "-o", "-", f"--target={name}").out for name in ("c", "opencl", "metal")}
    for value, name in (("GPU", "opencl"), ("cl", "opencl"), ("METAL", "metal"), ("CPU", "c"), ("METAL:1", "metal")):
        done = cached(folder, "model.onnx", "-o", "-", DEV=value)
        expect(done.out == want[name], f"DEV={value} is not {name}")
        expect(("of which tgc reads 'METAL'" in done.err) == (":" in value), done.err)
    expect(cached(folder, "model.onnx", "-o", "-", "--target=c", DEV="METAL").out == want["c"], "--target does not win")
    for value in ("QCOM", "1"):
        done = cached(folder, "model.onnx", "-o", "-", DEV=value)
        expect(done.out == want["c"] and f"DEV has the value '{value}'" in done.err, done.err)


@case("TGC_CACHE=0, DEBUG and the C compiler: neither read nor written")
def _(folder):
    perceptron(folder)
    for more in ({"TGC_CACHE": "0"}, {"DEBUG": "1"}, {"CC": "cc"}):
        cached(folder, "run", "model.onnx", **more)
        expect(not files(folder), f"{more}: something is kept")
    check_misses(folder, "model.onnx")
    for more in ({"TGC_CACHE": "0"}, {"DEBUG": "1"}, {"CC": "cc"}):
        expect("schedule" in cached(folder, "run", "model.onnx", "-v", **more).err, f"{more}: not compiled")


@case("tgc cache says how much there is, --clear removes it")
def _(folder):
    perceptron(folder)
    expect(b": 0 files, 0 bytes" in cached(folder, "cache").out, "not empty")
    check_misses(folder, "model.onnx")
    (folder / "xdg" / "tgc" / "mine.txt").write_text("not tgc's")
    told = cached(folder, "cache").out.decode()
    expect(told.startswith(str(folder / "xdg" / "tgc") + ": 2 files, "), told)
    expect(b": 0 files, 0 bytes" in cached(folder, "cache", "--clear").out, "not empty")
    expect((folder / "xdg" / "tgc" / "mine.txt").exists(), "more than tgc's files is removed")
    check_misses(folder, "model.onnx")
    expect("no operand" in cached(folder, "cache", "x", status=2).err, "an operand is taken")
    expect("does not take" in cached(folder, "run", "model.onnx", "--clear", status=2).err, "--clear is taken")


@case("what was used longest ago goes first, and all of it stays below the limit")
def _(folder):
    perceptron(folder)
    names = [f"n{k}" for k in range(4)]
    check_misses(folder, "model.onnx", "--name", names[0])
    each = sum(path.stat().st_size for path in files(folder) + files(folder, ".facts"))
    limit = {"TGC_CACHE_BYTES": str(3 * each + 100)}
    for name in names[1:3]:
        check_misses(folder, "model.onnx", "--name", name, **limit)
    check_hits(folder, "model.onnx", "--name", names[0], **limit)     # now the last that was used
    check_misses(folder, "model.onnx", "--name", names[3], **limit)
    total = sum(path.stat().st_size for path in files(folder) + files(folder, ".facts"))
    expect(total <= 3 * each + 100, f"{total} bytes, {each} each")
    check_hits(folder, "model.onnx", "--name", names[0], **limit)
    check_misses(folder, "model.onnx", "--name", names[1], **limit)
    done = cached(folder, "run", "model.onnx", "--name", "large", "-v", TGC_CACHE_BYTES="1000")
    expect("cache: it cannot be kept" in done.err, done.err)


@case("four processes at once, while files are removed: each has the right output, and nothing is left over")
def _(folder):
    perceptron(folder)
    wanted = cached(folder, "run", "model.onnx", TGC_CACHE="0").out
    env = {**os.environ, "TGC_CACHE": "1", "XDG_CACHE_HOME": str(folder / "xdg")}
    for round in range(5):
        started = [subprocess.Popen([str(TGC), "run", "model.onnx"], cwd=folder, env=env, stdout=subprocess.PIPE,
                                    stderr=subprocess.PIPE) for _ in range(4)]
        if round % 2:
            for path in files(folder):
                path.unlink(missing_ok=True)
        for process in started:
            out, err = process.communicate(timeout=120)
            expect(process.returncode == 0 and out == wanted, (out, err))
    left = [path.name for path in (folder / "xdg" / "tgc").iterdir()]
    expect(len(left) <= 3 and not any(name.startswith("new-") for name in left), left)
    check_hits(folder, "model.onnx")


if __name__ == "__main__":
    sys.exit(suite.main())
