"""Other systems: emitted C for Windows (mingw's gcc, clang; Wine runs it), WebAssembly (clang, wasmtime), macOS (objects
alone: no SDK is needed) and musl.

portable_test.py compares results there with ONNX Runtime's. Here is what differs between systems: threads, sections for
weights, names of files, what Microsoft's compiler would refuse, and a share of the onnx package's node tests."""

import re
import shutil
import sys
import zlib
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "lib"), str(HERE.parent / "onnx")]

import numpy as np

import foreign
import node_test as N
import tgc as T
from suite import Skip, Suite, expect

EVERY = 300         # of the node tests
MODELS = T.ROOT / "models"
MUSL = Path("/usr/include/x86_64-linux-musl")
MINGW_HEADERS = Path("/usr/share/mingw-w64/include")
FORMS = ("string", "array", "incbin", "file")


def emit(folder, model, *options):
    T.scratch(folder)
    T.emit(TGC, model, folder / "net.c", *options)
    return folder


def build(folder, exe, compiler, *flags):
    done = T.must(T.run([*compiler, *T.WARNINGS, *flags, "net.c", "-o", exe, *([] if "-c" in flags else ["-lm"])], cwd=folder, timeout=300))
    expect("warning" not in done.err, done.err)
    return folder / exe


class System:
    """What compiles for a system, and what runs there."""

    def __init__(self, name, compiler, need, runner):
        self.name, self.compiler, self.need, self.runner = name, compiler, need, runner

    def build(self, folder, *flags):
        self.need()
        return build(folder, "net.exe", self.compiler, "-O2", "-DNET_MAIN", *flags)

    def selftest(self, exe, *words):
        return T.must(T.run([*self.runner(), exe, "--selftest", *words], timeout=120, cwd=exe.parent))


def windows_runner():
    return foreign.wine(OPTIONS.build)


SYSTEMS = {
    "windows": System("windows", (foreign.MINGW,), foreign.need_mingw, windows_runner),
    "windows by clang": System("windows", ("clang-19", "--target=x86_64-w64-mingw32"), foreign.need_mingw, windows_runner),
    "wasi": System("wasi", foreign.WASI, foreign.need_wasi, foreign.wasi),
    "wasi simd128": System("wasi simd128", (*foreign.WASI, "-msimd128"), foreign.need_wasi, foreign.wasi),
    "musl": System("musl", ("musl-gcc", "-static"), lambda: foreign.need("musl-gcc"), tuple),
}


def selftest(system, model, *options):
    """The program's own reference vectors; the compiler has nothing to warn of."""
    system.need()
    folder = emit(SCRATCH / f"{system.name}-{model.stem}-{len(options)}", model, *options)
    system.selftest(system.build(folder))


def weights(system, form):
    """Each form of weights. A file is looked for where the program is said to."""
    system.need()
    folder = emit(SCRATCH / f"{system.name}-{form}", MODELS / "mnist_cnn.tg", f"--weights={form}")
    system.selftest(system.build(folder), *(["--weights", folder / "net.weights"] if form == "file" else []))


def threads(system):
    """By any number of threads the same bits; where a system has none, the work is done all the same."""
    system.need()
    folder = emit(SCRATCH / f"{system.name}-threads", MODELS / "transformer_block.tg", "--threads=4")
    exe = system.build(folder, *(["-pthread"] if system.name == "musl" else []))
    np.save(folder / "x.npy", drawn(MODELS / "transformer_block.tg", "x"))
    seen = set()
    for count in ("1", "2", "4", "4"):
        T.must(T.run([*system.runner(), exe, "--threads", count, folder / "x.npy", "-o", T.scratch(folder / "out")]))
        seen.add((folder / "out" / "y.npy").read_bytes())
    expect(len(seen) == 1, "other bits by another number of threads")
    system.selftest(exe)


def drawn(model, name):
    """An input's values; a dimension that is known only at run time is 3."""
    shape = next(i["shape"] for i in T.info(TGC, model)["inputs"] if i["name"] == name)
    return np.random.default_rng(1).random([d if isinstance(d, int) else 3 for d in shape], np.float32)


def names():
    """Names of files and folders beyond any code page, of what is read and what is written."""
    system = SYSTEMS["windows"]
    system.need()
    runner = system.runner()
    folder = emit(SCRATCH / "names", MODELS / "digits.tg", "--weights=file")
    exe = system.build(folder)
    odd = T.scratch(folder / "ñ 日本語 ☃")
    np.save(odd / "画像.npy", drawn(MODELS / "digits.tg", "picture"))
    (folder / "net.weights").rename(odd / "poids é.weights")
    T.must(T.run([*runner, exe, odd / "画像.npy", "--weights", odd / "poids é.weights", "-o", odd]))
    expect(np.load(odd / "probabilities.npy").shape[-1] == 10, "another shape")
    done = T.run([*runner, exe, odd / "無い.npy", "--weights", odd / "poids é.weights", "-o", odd])
    expect(done.status == 1 and "無い.npy" in done.err and "No such file" in done.err, done.describe())


def microsoft():
    """clang reads the C as Microsoft's compiler: no error and no warning but of strings, which are refused by name.
    Headers are mingw's, which that compiler would not take: what is said of them does not count."""
    foreign.need("clang-19")
    if not MINGW_HEADERS.exists():
        raise Skip("mingw-w64-common is not here")
    for model, options in (("mnist_cnn.tg", ("--threads=4", "--weights=array")), ("transformer_block.tg", ("--weights=file",)),
                           ("mlp.tg", ("--weights=array",))):
        folder = emit(SCRATCH / "microsoft", MODELS / model, *options)
        done = T.run(["clang-19", "--target=x86_64-pc-windows-msvc", "-fms-compatibility-version=19.40", "-fms-extensions", "-std=c11",
                      "-Wall", "-Wextra", "-Wpedantic", "-Wgnu", "-ferror-limit=0", "-fsyntax-only", "-D__MINGW_ATTRIB_NORETURN=",
                      "-isystem", MINGW_HEADERS, "-DNET_MAIN", "net.c"], cwd=folder)
        own = [line for line in done.err.splitlines() if re.match(r"net\.[ch]:\d", line) and "-Woverlength-strings" not in line]
        expect(not own, f"{model}: {own[:5]}")
    folder = emit(SCRATCH / "microsoft", MODELS / "mnist_cnn.tg", "--weights=string")
    text = (folder / "net.c").read_text()
    guard = re.search(r'#if defined _MSC_VER && !defined __clang__\n#error "([^"]*)"', text)
    expect(guard and "--weights=array" in guard.group(1), "long strings without a word")
    small = emit(SCRATCH / "microsoft", MODELS / "layer_norm.tg", "--weights=string")
    expect("_MSC_VER && !defined __clang__" not in (small / "net.c").read_text(), "a word without long strings")


MACHO_ARM64, MACHO = 0x100000c, 0xfeedfacf


def sections(data):
    """(segment, section): its size, of a 64-bit Mach-O object."""
    words = np.frombuffer(data[:32], "<u4")
    expect(words[0] == MACHO and words[1] == MACHO_ARM64, "no Mach-O object for ARM64")
    at, found = 32, {}
    for _ in range(words[4]):
        command, size = np.frombuffer(data[at:at + 8], "<u4")
        if command == 0x19:                                   # a segment of 64 bits
            count = int(np.frombuffer(data[at + 64:at + 68], "<u4")[0])
            for k in range(count):
                row = data[at + 72 + 80 * k:at + 72 + 80 * (k + 1)]
                key = tuple(row[i:i + 16].rstrip(b"\0").decode() for i in (16, 0))
                found[key] = found.get(key, 0) + int(np.frombuffer(row[40:48], "<u8")[0])
        at += int(size)
    return found


def macos(form, place):
    """An object, with musl's headers: no SDK. The weights are in a section that macOS has."""
    foreign.need("clang-19")
    if not MUSL.exists():
        raise Skip("musl-dev is not here")
    folder = emit(SCRATCH / f"macos-{form}-{len(place)}", MODELS / "mnist_cnn.tg", f"--weights={form}", "--threads=4")
    more = [f"-DNET_WEIGHTS_SECTION=\"{','.join(place)}\""] if place else []
    for compiler in ("clang-19", "clang-15", "clang"):        # the older ones have no #embed
        if not shutil.which(compiler):
            continue
        build(folder, f"{compiler}.o", (compiler, "--target=arm64-apple-macos11", "-nostdlibinc", "-isystem", MUSL), "-O1", "-c", *more)
        found = sections((folder / f"{compiler}.o").read_bytes())
        want = place or ("__TEXT", "__const")
        size = sum(n for key, n in found.items() if key in (want, ("__DATA", "__const")) or key == want)
        expect(size > 1 << 20, f"{compiler}: {found}")


def objects():
    """Windows on ARM64 and on 32-bit x86: objects, which nothing here runs."""
    foreign.need("clang-19")
    if not MINGW_HEADERS.exists():
        raise Skip("mingw-w64-common is not here")
    folder = emit(SCRATCH / "windows-objects", MODELS / "mnist_cnn.tg", "--threads=4", "--weights=incbin")
    for triple, machine, *flags in (("aarch64-w64-mingw32", 0xaa64), ("i686-w64-mingw32", 0x14c, "-msse2"), ("x86_64-w64-mingw32", 0x8664)):
        build(folder, f"{triple}.o", ("clang-19", f"--target={triple}", "-isystem", MINGW_HEADERS), "-O1", "-c", "-DNET_MAIN", *flags)
        data = (folder / f"{triple}.o").read_bytes()
        expect(int.from_bytes(data[:2], "little") == machine, f"{triple}: an object for machine {data[:2].hex()}")


def node(case, told, folder):
    """One of the onnx package's tests, as WebAssembly: with vectors or without, by its name."""
    foreign.need_wasi()
    isa, *flags = (("simd128", "-msimd128"), ("generic",))[zlib.crc32(case.name.encode()) % 2]
    try:
        N.emit_case(TGC, case, folder, (f"--cpu={isa}",), told)
        T.must(T.run([*foreign.WASI, *flags, *T.WARNINGS, "-O1", "-DNODE_MAIN", "node.c", "-o", "node.wasm"], cwd=folder, timeout=120))
        N.check_results(case, folder / "node.wasm", foreign.wasi())
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def node_on_windows(case, told, folder):
    foreign.need_mingw()
    runner = windows_runner()
    try:
        N.emit_case(TGC, case, folder, (), told)
        T.must(T.run([foreign.MINGW, *T.WARNINGS, "-O1", "-DNODE_MAIN", "node.c", "-o", "node.exe"], cwd=folder, timeout=120))
        N.check_results(case, folder / "node.exe", runner)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


suite = Suite("everywhere")
OPTIONS = suite.parse()
TGC = T.find_tgc(OPTIONS.build).resolve()
SCRATCH = T.scratch(Path(OPTIONS.build).resolve() / "test-scratch" / "everywhere")
for key, system in SYSTEMS.items():
    for path in sorted(MODELS.glob("*.tg")):
        suite.add(f"{key}: {path.stem}", selftest, system, path, *(["--cpu=simd128"] if "simd128" in key else []),
                  slow=(key, path.stem) not in (("wasi", "mlp"), ("wasi simd128", "transformer_block"), ("musl", "mlp")))
    for form in FORMS:
        suite.add(f"{key}: --weights={form}", weights, system, form, slow=(key, form) != ("wasi", "file"))
    suite.add(f"{key}: threads", threads, system, slow=key not in ("wasi", "musl"))
suite.add("windows: names of files", names, slow=True)
suite.add("windows: objects for other processors", objects, slow=True)
suite.add("windows: what Microsoft's compiler takes", microsoft)
for form, place in (("string", ()), ("incbin", ()), ("incbin", ("__DATA", "__weights")), ("string", ("__DATA", "__weights"))):
    suite.add(f"macos: --weights={form} {','.join(place)}".strip(), macos, form, place, slow=form == "string")
cases = N.load_cases(OPTIONS.build)
for number, (name, told) in enumerate(N.read_lists()[0].items()):
    if name in cases and not N.libraries_of(cases[name]):
        suite.add(f"wasi: {name}", node, cases[name], told, SCRATCH / N.flat(name), slow=number % EVERY != 0)
        if number % 25 == 0:
            suite.add(f"windows: {name}", node_on_windows, cases[name], told, SCRATCH / f"{N.flat(name)}-windows", slow=True)
suite.main()
