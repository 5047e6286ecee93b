"""The compiler as a library: programs that know of tgc what is installed: tgc.h, tgc_target.h, libtgc.so, tgc.pc.

api.c and api.cpp use tgc.h as its comments say; faults.c makes every allocation fail once. What the library writes is compared with
what the command line writes. With --all, api.c runs against a library that is built with sanitizers.
"""

import ctypes
import functools
import json
import re
import shutil
import sys
import threading
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "lib")]

import numpy as np
import onnx
from onnx import TensorProto, helper

import tgc as T
from suite import Skip, Suite, expect

suite = Suite("api")
OPTIONS = suite.parse()
ROOT = T.ROOT
BUILD = Path(OPTIONS.build).resolve()
TGC = T.find_tgc(BUILD).resolve()
SCRATCH = T.scratch(BUILD / "test-scratch" / "api")
DIGITS = ROOT / "examples" / "digits.onnx"
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Werror"]
case = suite.folder_case(SCRATCH)
lock = threading.Lock()


# ------------------------------------------------------------------------------------- helpers


@functools.cache
def install_once():
    """By Meson's plan, but without Meson, whose install of another suite might be going on. Returns the folders of tgc.pc and of the library."""
    plan = json.loads(T.must(T.run(["meson", "introspect", BUILD, "--installed"])).out)
    root = SCRATCH / "installed"
    for source, target in plan.items():
        if re.match(r"libtgc\.|tgc\.h$|tgc_target\.h$|tgc\.pc$", Path(target).name):
            path = root / Path(target).relative_to("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            if Path(source).is_absolute():
                shutil.copy(source, path)
            else:                                   # a link, by the name that it has
                path.symlink_to(next((BUILD / "lib").glob("libtgc.so.*.*")).name)
    return tuple(next(root.rglob(name)).parent for name in ("tgc.pc", "libtgc.so.0"))


def flags():
    with lock:
        package, library = install_once()
    done = T.must(T.run(["pkg-config", "--cflags", "--libs", "tgc"], env={"PKG_CONFIG_PATH": str(package)}))
    return [*done.out.decode().split(), f"-Wl,-rpath,{library}", "-lpthread"]


programs = {}


def program(source, *words):
    """Compiled against the installed library."""
    exe = SCRATCH / source.replace(".", "_")
    options = flags()
    with lock:
        if source not in programs:
            compiler = ["c++", "-std=c++17"] if source.endswith(".cpp") else ["cc", "-std=gnu99"]
            T.must(T.run([*compiler, "-g", *WARNINGS, HERE / source, "-o", exe, *options]))
            programs[source] = exe
    return [programs[source], *words]


def has_llvm():
    lines = T.must(T.run([TGC, "--version"])).out.decode()
    return re.search(r"libLLVM: \d", lines) is not None


def make(command, status=0, **more):
    done = T.must(T.run(command, timeout=300, **more), status)
    return done.out.decode() + done.err


def bad_onnx(path):
    x, y, z = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [n]) for name, n in (("x", 2), ("y", 3), ("z", 2)))
    graph = helper.make_graph([helper.make_node("Add", ["x", "y"], ["z"], name="first")], "g", [x, y], [z])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]), path)
    return path


def text_model(path, *lines):
    path.write_text("tg 1\n" + "\n".join(lines) + "\n")
    return path


# --------------------------------------------------------------------------------------- cases


HEADERS = [ROOT / "lib/tgc.h", ROOT / "lib/tgc_target.h"]


@suite.case("tgc.h and tgc_target.h are C99 and C++11 without a warning")
def _():
    for words in (["cc", "-std=c99", "-xc"], ["cc", "-std=c11", "-xc"], ["c++", "-std=c++11", "-xc++"]):
        for header in HEADERS:
            T.must(T.run([*words, *WARNINGS, "-fsyntax-only", header]))


def exported():
    lines = T.must(T.run(["nm", "-D", "--defined-only", BUILD / "lib/libtgc.so"])).out.decode().splitlines()
    return {line.split()[2] for line in lines}


@suite.case("libtgc.so exports the functions of its headers, and has a soname")
def _():
    text = re.sub(r"/\*.*?\*/", "", "\n".join(header.read_text() for header in HEADERS), flags=re.S)
    declared = set(re.findall(r"^TGC_API [^;]*?\b(tgc_\w+)\(", text, re.M))
    expect(len(declared) > 25, f"they are read as {sorted(declared)}")
    expect(exported() == declared, f"other symbols: {exported() ^ declared}")
    dynamic = T.must(T.run(["readelf", "-d", BUILD / "lib/libtgc.so"])).out.decode()
    expect("Library soname: [libtgc.so.0]" in dynamic, dynamic)


# Of the compiler's start files and libgcc; protobuf-c's default texts, which are not written to; and what there is once in a
# process: gdb's list of code and its lock, and what the process that works for LLVM, not the caller's, tells by LLVM's handlers.
WRITABLE = r"registering\.\d+|told|version_told|tell|ending|lock|__jit_debug_descriptor|completed\.\d+|__dso_handle|__TMC_END__|_edata|_end|__bss_start|\w+__default_value|__cpu_\w+"


@suite.case("libtgc.so has no data that a call could change")
def _():
    sections = T.must(T.run(["readelf", "-SW", BUILD / "lib/libtgc.so"])).out.decode()
    writable = set(re.findall(r"\[ *(\d+)\] \.(?:data|bss|tdata|tbss) ", sections))
    expect(writable, sections)
    symbols = T.must(T.run(["readelf", "-sW", BUILD / "lib/libtgc.so"])).out.decode()
    found = [words[7] for words in (line.split() for line in symbols.splitlines())
             if len(words) == 8 and words[6] in writable and words[3] in ("OBJECT", "TLS", "NOTYPE")]
    wrong = [name for name in found if not re.fullmatch(WRITABLE, name)]
    expect(not wrong, f"these are global and can change: {wrong}")


def same_files(folder, kind, model, settings, *options):
    """What the library makes in memory is what the command line writes."""
    (folder / "here").mkdir()
    (folder / "there").mkdir()
    make(program("api.c", "files", kind, model, folder / "here", *settings))
    make([TGC, model, "-o", folder / "there" / f"net.{kind}", "--name=net", *options])
    names = [sorted(path.name for path in (folder / name).iterdir()) for name in ("here", "there")]
    expect(names[0] == names[1], f"files: {names}")
    for name in names[0]:
        if not name.endswith((".so", ".a")):        # by a compiler, which may write a path
            expect((folder / "here" / name).read_bytes() == (folder / "there" / name).read_bytes(), f"{name} differs")


for kind in ("c", "tg", "uops", "dot", "json", "so", "a"):
    @case(f"in memory as in files: .{kind}")
    def _(folder, kind=kind):
        same_files(folder, kind, DIGITS, ["name=net"])


@case("in memory as in files: .c with its weights beside it, options with values and without")
def _(folder):
    same_files(folder, "c", DIGITS, ["name=net", "weights=file", "cpu=avx2", "fast-math", "O=1"],
               "--weights=file", "--cpu=avx2", "--fast-math", "-O1")


@case("in memory as in files: .o and .ll by LLVM")
def _(folder):
    if not has_llvm():
        raise Skip("libLLVM is not here")
    model = text_model(folder / "net.tg", "input %x : f32[4, 3]", "%1 = relu(%x)", 'output %1 as "y"')
    for kind in ("o", "ll"):
        (folder / kind).mkdir()
        same_files(folder / kind, kind, model, ["name=net", "target=llvm"], "--target=llvm")


def runs(folder, *settings):
    """A model in memory with a size that the run decides, against NumPy."""
    model = text_model(folder / "net.tg", "input %x : f32[N<=7, 3]", "%1 = relu(%x)", "%2 = add(%1, %1)", 'output %2 as "y"')
    x = np.random.default_rng(1).standard_normal((5, 3)).astype(np.float32)
    (folder / "x").write_bytes(x.tobytes())
    maker = make(program("api.c", "run", model, folder / "x", 5, folder / "y", *settings))
    y = np.frombuffer((folder / "y").read_bytes(), np.float32).reshape(5, 3)
    expect(np.array_equal(y, 2 * np.maximum(x, 0)), f"{y}")
    return maker


@case("a run by LLVM: sizes of a run, checks of inputs")
def _(folder):
    if not has_llvm():
        raise Skip("libLLVM is not here")
    expect("LLVM" in runs(folder), "LLVM did not run it")


@case("a run by the C compiler")
def _(folder):
    runs(folder, "target=c")


@case("sizes that follow from others are compared, and a call that is refused changes nothing")
def _(folder):
    model = text_model(folder / "net.tg", "input %x : f32[n<=8, 2*n]", "input %z : f32[m<=8, n+m]", "%1 = add(%x, %x)", "%2 = add(%z, %z)",
                       'output %1 as "y"', 'output %2 as "w"')
    for options in (["target=c"], []) if has_llvm() else (["target=c"],):
        make(program("api.c", "sizes", model, *options))


@case("a run by LLVM needs no C compiler")
def _(folder):
    if not has_llvm():
        raise Skip("libLLVM is not here")
    exe = program("api.c")[0]
    model = text_model(folder / "net.tg", "input %x : f32[N<=7, 3]", "%1 = relu(%x)", 'output %1 as "y"')
    (folder / "x").write_bytes(bytes(4 * 15))
    make([exe, "run", model, folder / "x", 5, folder / "y"], env={"PATH": str(folder), "CC": "/no/such/compiler"})


@case("state: kept between runs, and reset")
def _(folder):
    model = text_model(folder / "net.tg", "input %before : f32[1]", "input %x : f32[1]", "%1 = add(%before, %x)", "%2 = add(%1, %1)",
                       'output %2 as "y"', 'output %1 as "sum"')
    make(program("api.c", "state", model, "target=c"))


@case("entries: runs over one context, by number")
def _(folder):
    (folder / "net.tg").write_text("""tg 1
state %s : f32[1]
entry "add" {
    input %x : f32[1]
    %1 = add(%s, %x)
    keep %s = %1
    output %1 as "sum"
}
entry "look" {
    %1 = add(%s, %s)
    output %1 as "twice"
}
""")
    for options in (["target=c"], []) if has_llvm() else (["target=c"],):
        make(program("api.c", "entries", folder / "net.tg", *options))


@case("errors are data")
def _(folder):
    bad = text_model(folder / "bad.tg", "input %x : f32[2]", "%1 = reul(%x)", 'output %1 as "y"')
    make(program("api.c", "errors", bad_onnx(folder / "bad.onnx"), bad, DIGITS), cwd=folder)


@case("without libLLVM: a status, and what to do")
def _(folder):
    done = T.run(program("api.c", "run", DIGITS, DIGITS, 1, folder / "y"), env={"TGC_LLVM": "1"})
    expect(done.status == 1 and ("libLLVM is not installed" in done.err or "without the LLVM target" in done.err), done.describe())


@suite.case("every function with NULL")
def _():
    make(program("api.c", "nothing"))


@case("cancelled at each time that it is asked: nothing is left")
def _(folder):
    make(program("api.c", "cancel", DIGITS, folder))
    expect(sorted(path.name for path in folder.iterdir()) == ["net.c", "net.h"], f"{list(folder.iterdir())}")


@suite.case("two threads at once make what one makes")
def _():
    make(program("api.c", "threads", DIGITS))


@case("files, maps and temporary directories are as before, after good calls and bad ones")
def _(folder):
    (folder / "tmp").mkdir()
    make(program("api.c", "left", DIGITS, bad_onnx(folder / "bad.onnx"), folder / "net.c"), env={"TMPDIR": str(folder / "tmp")})
    expect(not list((folder / "tmp").iterdir()), f"left: {list((folder / 'tmp').iterdir())}")


MODELS = {"digits": DIGITS, "mlp": ROOT / "models/mlp.tg"}

for name, kinds in {"digits": ("c", "tg", "json"), "mlp": ("c", "uops", "program")}.items():
    for kind in kinds:
        @suite.case(f"each allocation fails once: {name}, {kind}")
        def _(name=name, kind=kind):
            expect("calls failed" in make(program("faults.c", MODELS[name], kind)), "nothing failed")


@case("each allocation fails once: a compiler of CUDA's that ends where it gets none is another process's end")
def _(folder):
    library = folder / "libnvrtc.so.12"
    T.must(T.run(["cc", "-shared", "-fPIC", *WARNINGS, HERE / "dying_nvrtc.c", "-o", library]))
    expect("calls failed" in make(program("faults.c", MODELS["mlp"], "cuda"), env={"TGC_NVRTC": str(library)}), "nothing failed")
    done = T.run([TGC, MODELS["mlp"], "-o", folder / "m.c", "--target=cuda"], env={"TGC_NVRTC": str(library), "DIES": "1"})
    expect(done.status == 1 and re.search(r"NVRTC 12\.9 does not end compiling the kernels for compute_80: it ended by signal 6 \(Aborted\)", done.err) and
           "terminate" not in done.err and not (folder / "m.c").exists(), done.describe())
    done = T.run([TGC, MODELS["mlp"], "-o", folder / "m.c", "--target=cuda", "--max-memory=64M"], env={"TGC_NVRTC": str(library), "GROWS": "1"})
    expect(done.status == 1 and re.search(r"by signal 6 \(Aborted\), as where it gets no memory: it may take \d+ MB, raise --max-memory", done.err),
           done.describe())


def each_fails(kind, **variables):
    """Density: a compile by LLVM makes a hundred thousand allocations."""
    said = make(program("faults.c", MODELS["mlp"], kind, 400 if OPTIONS.all else 2), env=variables)
    expect("calls failed" in said, "nothing failed")


@suite.case("each allocation fails once: LLVM's process, for objects, for a run and for CUDA")
def _():
    if not has_llvm():
        raise Skip("libLLVM is not here")
    each_fails("llvm")
    each_fails("open", TGC_CACHE="0")
    each_fails("cuda", TGC_NVRTC="none")


@suite.case("each allocation fails once: LLVM's process for AMD")
def _():
    if not has_llvm() or b"ld.lld: ld" not in T.must(T.run([TGC, "--version"])).out:
        raise Skip("libLLVM or ld.lld is not here")
    each_fails("amd")


@suite.case("opening a model by LLVM is cancelled at each time that it is asked: all memory is freed")
def _():
    if not has_llvm():
        raise Skip("libLLVM is not here")
    make(program("faults.c", DIGITS, "cancel"))


CACHED = {"TGC_CACHE": "1"}


def opened(folder, model, *settings, **more):
    """Opened from its file and from memory: whether LLVM was loaded, the bytes that both take, their first outputs."""
    done = T.must(T.run(program("api.c", "open", model, *settings), env={**CACHED, "XDG_CACHE_HOME": str(folder / "xdg"), **more}))
    expect(not done.err, f"it prints: {done.err}")
    loaded, nbytes, *first = done.out.decode().split()
    return loaded == "1", int(nbytes), first


def kept(folder, kind="code"):
    return sorted((folder / "xdg").rglob(f"*.{kind}"))


@case("the cache: what the library has opened is found again, and the command line's; an option and TGC_CACHE=0 do without")
def _(folder):
    T.need_llvm(TGC)
    loaded, _, want = opened(folder, DIGITS, "no-code-cache")
    expect(loaded and not kept(folder) and len(set(want)) == 1, f"no-code-cache: {want}, {kept(folder)}")
    opened(folder, DIGITS, TGC_CACHE="0")
    expect(not kept(folder), f"TGC_CACHE=0: {kept(folder)}")
    loaded, _, first = opened(folder, DIGITS)
    expect(loaded and first == want and len(kept(folder)) == 2, f"of a file and of memory: {first}, {kept(folder)}")
    loaded, _, first = opened(folder, DIGITS)
    expect(not loaded and first == want, "LLVM is loaded for what the cache has")
    loaded, _, first = opened(folder, DIGITS, "fast-math")
    expect(loaded and len(kept(folder)) == 4, "another option: it was found")


@case("the cache: files that are damaged are not used, and are replaced; nothing is printed")
def _(folder):
    T.need_llvm(TGC)
    _, _, want = opened(folder, DIGITS)
    good = {path: path.read_bytes() for path in kept(folder) + kept(folder, "facts")}
    for change in (lambda b: b[:-1] + bytes([b[-1] ^ 1]), lambda b: b[:len(b) // 2] + bytes([b[len(b) // 2] ^ 64]) + b[len(b) // 2 + 1:],
                   lambda b: b[:100], lambda b: b""):
        for path, was in good.items():
            path.write_bytes(change(was))
        loaded, _, first = opened(folder, DIGITS)
        expect(loaded and first == want, f"damaged: {first}, {want} is expected")
        loaded, _, first = opened(folder, DIGITS)
        expect(not loaded and first == want, "they were not replaced")
    (folder / "xdg/tgc").chmod(0o777)                # where others can write
    loaded, _, first = opened(folder, DIGITS)
    expect(loaded and first == want, "a directory into which others can write was used")


@case("the cache: each allocation fails once as a model is opened from it")
def _(folder):
    T.need_llvm(TGC)
    where = {**CACHED, "XDG_CACHE_HOME": str(folder / "xdg")}
    make(program("api.c", "open", MODELS["mlp"]), env=where)
    expect("calls failed" in make(program("faults.c", MODELS["mlp"], "kept"), env=where), "nothing failed")


@case("an open model keeps its weights, and nothing else of its compile")
def _(folder):
    size = 1536
    weights = np.random.default_rng(1).standard_normal((size, size)).astype(np.float32)
    steps = [helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"x{i + 1}"]) for i in range(6)]
    values = [onnx.numpy_helper.from_array(weights + np.float32(i), f"w{i}") for i in range(6)]
    border = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, size]) for name in ("x0", "x6")]
    graph = helper.make_graph(steps, "g", border[:1], border[1:], values)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]), folder / "net.onnx")
    each = 6 * weights.nbytes
    if T.has_llvm(TGC):
        _, nbytes, _ = opened(folder, folder / "net.onnx", "no-code-cache")
        expect(nbytes < 2.6 * each, f"two of {each} bytes by LLVM take {nbytes}")
        opened(folder, folder / "net.onnx")
        _, nbytes, _ = opened(folder, folder / "net.onnx")
        expect(nbytes < each / 4, f"two of {each} bytes from the cache take {nbytes}")
    _, nbytes, _ = opened(folder, folder / "net.onnx", "target=c")
    expect(nbytes < each / 2, f"two of {each} bytes by the C compiler take {nbytes}")


@suite.case("from C++")
def _():
    expect("digits.c" in make(program("api.cpp", DIGITS)), "nothing was compiled")


# ------------------------------------------------------------------------------ docs/library.md

PAGE = (ROOT / "docs/library.md").read_text()


def block(kind):
    return re.search(rf"^```{kind}\n(.*?)^```", PAGE, re.M | re.S).group(1)


@case("the page's commands, and the same by ctypes")
def _(folder):
    shutil.copytree(ROOT / "examples", folder / "examples")
    with lock:
        package, library = install_once()
    where = {"PKG_CONFIG_PATH": str(package), "LD_LIBRARY_PATH": str(library)}
    wanted = re.search(r"It prints `(a 7, to 100%, by LLVM) \d+`", PAGE).group(1)
    if not has_llvm():
        raise Skip("libLLVM is not here")
    said = make(["sh", "-ec", block("sh")], cwd=folder, env=where)
    expect(said.startswith(wanted), said)
    said = make([sys.executable, "run.py"], cwd=folder / "examples/library", env=where)
    expect(said.startswith(wanted), said)
    done = T.run([sys.executable, "run.py", "libtgc.so.0", "none.onnx"], cwd=folder / "examples/library", env=where)
    expect(done.status == 1 and "cannot be opened" in done.err, done.describe())


@case("the page's piece of C")
def _(folder):
    (folder / "piece.c").write_text("#include <tgc.h>\nint piece(const float *pixels, float *first);\n"
                                    f"int piece(const float *pixels, float *first)\n{{\n{block('c')}*first = *y;\nreturn 0;\n}}\n")
    T.must(T.run(["cc", "-std=c99", *WARNINGS, "-fsyntax-only", folder / "piece.c", *flags()]))


@suite.case("the page names what is in tgc.h, and variables that the library reads")
def _():
    text = (ROOT / "lib/tgc.h").read_text()
    for name in set(re.findall(r"\btgc_\w+(?=\()|\bTGC_(?:NO_MEMORY|OK|VERSION)\b", PAGE)):
        expect(name in text, f"{name} is not in tgc.h")
    read = set()
    for path in [*ROOT.glob("lib/*.c"), *ROOT.glob("backends/**/*.c"), *ROOT.glob("frontend/**/*.c"), *ROOT.glob("passes/**/*.c")]:
        read |= set(re.findall(r'\bgetenv\("(\w+)"\)', path.read_text()))
    listed = set(re.findall(r"`([A-Z_]{2,})`", PAGE)) - {"TGC_NO_MEMORY", "TGC_VERSION"}
    expect(read - {"PATH", "HOME", "LD_LIBRARY_PATH"} <= listed, f"variables that the page does not name: {read - listed}")


# --------------------------------------------------------------- docs/adding-a-target.md

TARGETS = (ROOT / "docs/adding-a-target.md").read_text()


def standard_normal(*shape):
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def close_to_c(folder, source, library, inputs, outputs):
    """The target's library against tgc's C target. The first input's first size is the run's."""
    words = []
    for name, array in inputs.items():
        np.save(folder / f"{name}.npy", array)
        words += ["-i", f"{name}={name}.npy"]
    make([TGC, "run", source, "--target=c", *words, "--out-dir", "out"], cwd=folder)
    want = [np.load(folder / "out" / f"{name}.npy") for name in outputs]
    got = [np.full_like(array, np.nan) for array in want]
    sizes = (ctypes.c_int64 * 9)(len(next(iter(inputs.values()))))     # and room for counters
    pointers = [(ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays)) for arrays in (list(inputs.values()), got)]
    ctypes.CDLL(str(folder / library)).run(*pointers, sizes)
    for name, g, w in zip(outputs, got, want):  # sums of a thousand terms in another order, and libm's functions
        expect(np.allclose(g, w, 1e-4, 1e-5), f"{library}, {name}: {g}\n{w} is expected")


def page_block(kind):
    return re.search(rf"^```{kind}\n(.*?)^```", TARGETS, re.M | re.S).group(1)


@case("a target outside the tree: the page's, by the page's commands, computes what the C target does")
def _(folder):
    toy = page_block("c")
    expect(toy.count("\n") <= 150, f"the example has {toy.count(chr(10))} lines")
    (folder / "toy.c").write_text(toy)
    shutil.copytree(ROOT / "models", folder / "models", ignore=shutil.ignore_patterns("demo"))
    words = flags()
    T.must(T.run(["cc", "-std=c99", *WARNINGS, "toy.c", "-o", "strict", *words], cwd=folder))
    with lock:
        package, library = install_once()
    make(["sh", "-ec", page_block("sh")], cwd=folder, env={"PKG_CONFIG_PATH": str(package), "LD_LIBRARY_PATH": str(library)})
    close_to_c(folder, "models/mlp.tg", "mlp.so", {"observation": standard_normal(5, 64)}, ["action"])
    close_to_c(folder, "models/mnist_cnn.tg", "cnn.so", {"image": standard_normal(3, 1, 28, 28)}, ["probabilities"])
    done = T.run([folder / "toy", "models/transformer_block.tg"], cwd=folder, env={"LD_LIBRARY_PATH": str(library)})
    expect(done.status == 1 and "the target 'toy' has no op" in done.err and not done.out, done.describe())


STEPS = """input %x : f32[N<=7, 3]
input %go : bool[1]
%y, %z = loop %i < 10 carry(%a = %x) stack 4 {
    %n = loop %k < %i + 1 carry(%b = %a) {
        %c = add(%b, %x)
        next(%c)
    }
    %f = cast(%i) {to=f32}
    %s = mul(%a, %f)
    %w = lt(%i, 3)
    next(%n) while %w scan(%s)
}
%r = if (%go) then { %e = exp(%y) yield(%e) } else (%y)
output %r as "r"
output %z as "z" """


@case("a target outside the tree: loops and branches between kernels")
def _(folder):
    text_model(folder / "net.tg", *STEPS.splitlines())
    toy = page_block("c").replace("static int put_program", f'#include "{HERE}/steps.h"\n\nstatic int put_program')
    toy = re.sub(r'printf\("kernel%d\(\);\\n", p->step\[i\].kernel\);', "put_step(p, &p->step[i]);", toy)
    (folder / "toy.c").write_text(toy.replace('{"not", "i"', '{"if", "", ""}, {"loop", "", ""}, {"not", "i"'))
    T.must(T.run(["cc", *WARNINGS, "toy.c", "-o", "toy", *flags()], cwd=folder))
    (folder / "net.c").write_text(make([folder / "toy", "net.tg"], cwd=folder))
    T.must(T.run(["cc", "-O1", "-fwrapv", "-shared", "-fPIC", "net.c", "-o", "net.so", "-lm"], cwd=folder))
    for go in (False, True):
        close_to_c(folder, "net.tg", "net.so", {"x": standard_normal(5, 3) / 8, "go": np.array([go])}, ["r", "z"])


@case("tgc_target.h: what is refused, and programs whose numbers are of something")
def _(folder):
    host = text_model(folder / "host.tg", "input %x : f32[9]", "%v, %i = topk(%x) {k=2}", 'output %v as "y"')
    state = text_model(folder / "state.tg", "input %before : f32[1]", "input %x : f32[1]", "%1 = add(%before, %x)",
                       'output %1 as "y"', 'output %1 as "sum"')
    models = [path for path in sorted((ROOT / "models").glob("*.tg"))]
    make(program("target.c", MODELS["mlp"], host, state, *models))


# ---------------------------------------------------------------------------------- sanitizers


def sanitized(folder, kind, cases):
    build = folder / "build"
    T.must(T.run(["meson", "setup", build, ROOT, f"-Db_sanitize={kind}", "-Db_lundef=false", "-Dtests=disabled", "-Doptimization=1"]))
    T.must(T.run(["ninja", "-C", build, "-j", "2", "lib/libtgc.so.0.1.0"], timeout=1200))
    library = next((build / "lib").glob("libtgc.so.*.*"))
    exe = folder / "api"
    T.must(T.run(["cc", "-std=gnu99", "-g", f"-fsanitize={kind}", "-I", ROOT / "lib", HERE / "api.c", "-o", exe, library,
                  f"-Wl,-rpath,{library.parent}", "-lpthread"]))
    (folder / "suppressions").write_text("race:libLLVM\n")      # whose locks were compiled without the sanitizer
    for words in cases:
        make([exe, *words], cwd=folder, env={"TSAN_OPTIONS": f"suppressions={folder / 'suppressions'} die_after_fork=0"})


@case("under the thread sanitizer", slow=True)
def _(folder):
    sanitized(folder, "thread", [["threads", DIGITS]])


@case("under the address sanitizer, leaks included", slow=True)
def _(folder):
    bad = text_model(folder / "bad.tg", "input %x : f32[2]", "%1 = reul(%x)", 'output %1 as "y"')
    (folder / "out").mkdir()
    sanitized(folder, "address,undefined", [["errors", bad_onnx(folder / "bad.onnx"), bad, DIGITS], ["cancel", DIGITS, folder / "out"],
                                            ["threads", DIGITS], ["nothing"], ["open", DIGITS, "target=c"],
                                            *([["open", DIGITS]] if T.has_llvm(TGC) else [])])


if __name__ == "__main__":
    suite.main()
