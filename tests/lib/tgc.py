"""Running tgc, a C compiler and the program they make; tensors as .npy files; comparing.

Nothing here knows a model.
"""

import atexit
import contextlib
import fcntl
import fnmatch
import functools
import hashlib
import json
import os
import platform
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from suite import Failure, Skip

ROOT = Path(__file__).resolve().parents[2]
# What is tested is compiled now, and nothing is left in the caller's home.
os.environ.setdefault("TGC_CACHE", "0")

WARNINGS = ["-std=c11", "-Wall", "-Wextra", "-pedantic", "-Wconversion", "-Wshadow", "-Wvla",
            "-Wundef", "-Werror"]
# A report names the function, and the line where it is of undefined behaviour; lines of all, for a quarter more of the time, in the long form.
SANITIZE = [*(["-g"] if "--all" in sys.argv else []), "-O0", "-fsanitize=address,undefined"]
# For emitted C whose optimization is not what is tested: warns of what -O1 does, in less than half of its time.
# The long form builds by -O1.
LEVEL = "-O1" if "--all" in sys.argv else "-Og"
# In the quick form of tests of what programs compute the kernels that this processor runs, and no others: half of gcc's time. All others
# compile without a warning in a quarter of the onnx package's tests, in every second model, and by the suites that name them. Options behind it override it.
HERE = () if "--all" in sys.argv else ("--cpu=native",)
# -O0: clang's optimizer needs minutes for what the sanitizers add to a large kernel, with
# -fno-sanitize-recover still more. A report ends the program by what is set here.
os.environ.setdefault("UBSAN_OPTIONS", "halt_on_error=1:print_stacktrace=1")


@dataclass
class Done:
    """What a finished process left."""
    command: list
    status: int          # exit status; -N: ended by signal N
    out: bytes
    err: str
    seconds: float
    cpu: float           # seconds that it and its children computed
    peak: int            # bytes
    timed_out: bool

    def describe(self):
        how = f"exit status {self.status}"
        if self.timed_out:
            how = f"stopped after {self.seconds:.0f} s"
        elif self.status < 0:
            how = signal.Signals(-self.status).name
        tail = (self.err.strip() or self.out.decode(errors="replace").strip())[-3000:]
        return f"{' '.join(map(str, self.command))}\n{how}\n{tail}"


@contextlib.contextmanager
def environment(**values):
    """This process's variables within, for what it starts and for libraries that it has opened."""
    kept = {name: os.environ.get(name) for name in values}
    os.environ.update({name: str(value) for name, value in values.items()})
    try:
        yield
    finally:
        for name, value in kept.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def run_for_peak(command, **more):
    """run(), with time and peak of memory measured apart from this process's own."""
    with tempfile.NamedTemporaryFile(mode="r") as file:
        program = shutil.which(str(command[0])) or command[0]
        done = run([sys.executable, "-I", "-S", ROOT / "tests" / "lib" / "peak.py", file.name,
                    program, *command[1:]], **more)
        done.command = list(command)
        cpu, peak = file.read().split() or (0, 0)
        done.cpu, done.peak = float(cpu), int(peak)
        return done


# A run of hours beside other work takes so many times the time before it is thought to hang.
PATIENCE = float(os.environ.get("TGC_PATIENCE", "1"))


def run(command, timeout=120, cwd=None, env=None, stdin=None):
    """Runs to the end or the timeout. The peak has this process's own size as its floor."""
    words = [str(word) for word in command]
    words[1:1] = header_ahead(words, cwd)
    with open(os.memfd_create("out"), "rb") as out, open(os.memfd_create("err"), "rb") as err:
        for file in out, err:       # processes that write at once do not overwrite each other: a memfd's place is not locked
            fcntl.fcntl(file, fcntl.F_SETFL, os.O_APPEND)
        start = time.monotonic()
        process = subprocess.Popen(words, stdout=out, stderr=err,
                                   stdin=stdin or subprocess.DEVNULL, cwd=cwd,
                                   env={**os.environ, **env} if env else None,
                                   start_new_session=True)
        ended = os.pidfd_open(process.pid)
        waiting = select.poll()
        waiting.register(ended, select.POLLIN)
        in_time = waiting.poll(timeout * PATIENCE * 1000)
        os.close(ended)
        if not in_time:
            os.killpg(process.pid, signal.SIGKILL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.monotonic() - start
        out.seek(0)
        err.seek(0)
        return Done(list(command), process.returncode, out.read(),
                    err.read().decode(errors="replace"), seconds,
                    usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024,
                    not in_time)


def must(done, status=0):
    if done.status != status or done.timed_out:
        raise Failure(f"expected exit status {status}: {done.describe()}")
    return done


def source_files(pattern):
    """Files of the project whose names match, in order. Build folders, in which other suites make and delete files meanwhile, are not entered."""
    found = []
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in ("build", ".git", ".venv", ".cache")]
        found += [Path(folder) / name for name in fnmatch.filter(names, pattern)]
    return sorted(found)


def find_tgc(build):
    """The compiler under test: $TGC, or Meson's product."""
    KEPT.append(Path(build).resolve() / "test-scratch" / "kept")
    if "TGC" in os.environ:
        return Path(os.environ["TGC"])
    build = Path(build).resolve()
    for candidate in (build / "cli" / "tgc", build / "tgc"):
        if candidate.exists():
            return candidate
    raise SystemExit(f"no tgc in {build}: run make first")


@functools.lru_cache
def has_llvm(tgc):
    return "libLLVM: none" not in must(run([tgc, "--version"])).out.decode()


def need_llvm(tgc):
    if not has_llvm(tgc):
        raise Skip("libLLVM is not installed (libllvm19), or tgc was built without the LLVM target")


# The distribution's interpreter, for which it has PyTorch.
TORCH = "/usr/bin/python3"


@functools.cache
def torch_has(*modules):
    """Whether they are there; to import them takes seconds."""
    find = "import sys; from importlib.util import find_spec; sys.exit(not all(map(find_spec, sys.argv[1:])))"
    return run([TORCH, "-c", find, *modules]).status == 0


def need_torch():
    if not torch_has("torch"):
        raise Skip("the distribution's python3-torch is missing")


def file_stem(tensor):
    """The file name of a tensor, as the command line documents it."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", tensor)


def as_npy(array):
    """The array as its .npy file holds it. NumPy has no dtype for bf16, fp8 and the narrower
    ones: floats travel as their bits, integers narrower than a byte as bytes."""
    array = np.asarray(array)
    name = array.dtype.name
    if name in ("int4", "int2"):
        return array.astype(np.int8)
    if name in ("uint4", "uint2"):
        return array.astype(np.uint8)
    if name.startswith(("bfloat", "float8", "float6_", "float4")):
        return array.view({1: np.uint8, 2: np.uint16}[array.dtype.itemsize])
    return array


def is_float(array):
    return array.dtype.kind in "fc" or array.dtype.name.startswith(("bfloat", "float"))


class Program:
    """An emitted C file, compiled to a program that maps .npy files to .npy files."""

    def __init__(self, exe, output_names, runner=(), env=None):
        self.exe = Path(exe)
        self.runner = runner            # an emulator's words
        self.output_names = output_names
        self.env = env
        self.said = ""                  # by the last run, on standard error

    def run(self, arrays, timeout=120):
        """Runs on the arrays, in the graph's order of inputs; returns the outputs by name."""
        with tempfile.TemporaryDirectory() as folder:
            files = []
            for number, array in enumerate(arrays):
                files.append(f"{folder}/in{number}.npy")
                np.save(files[-1], as_npy(array))
            Path(folder, "out").mkdir()
            self.said = must(run([*self.runner, self.exe, *files, "-o", f"{folder}/out"], timeout=timeout,
                                 env=self.env)).err
            return read_outputs(Path(folder, "out"), self.output_names)


def read_outputs(folder, names):
    outputs = {}
    for name in names:
        path = folder / (file_stem(name) + ".npy")
        if not path.exists():
            raise Failure(f"no {path.name} among the results: "
                          f"{sorted(p.name for p in folder.iterdir())}")
        try:
            outputs[name] = np.load(path)
        except ValueError as why:
            raise Failure(f"{path.name} is no array of a plain dtype: {why}") from None
    return outputs


def emit(tgc, model, source, *options, timeout=120):
    """Compiles the model to C; the C file's stem is the model's C name."""
    return must(run([tgc, model, "-o", source, *options], timeout=timeout))


@functools.cache
def shared_folder():
    folder = Path(tempfile.mkdtemp(prefix="tgc-shared-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


SHARED = {}
SHARING = threading.Lock()


def shared(kind, make, *key):
    """What make(folder, *key) returns, made once in this process, in a folder of its own."""
    with SHARING:
        if (kind, key) not in SHARED:
            folder = shared_folder() / f"{kind}{len(SHARED)}"
            folder.mkdir()
            SHARED[kind, key] = make(folder, *key)
        return SHARED[kind, key]


KEPT = []                   # where kept() has its folders, once find_tgc() knows it


@functools.cache
def identity(compiler):
    return str(os.path.realpath(shutil.which(compiler))) + must(run([compiler, "--version"])).out.decode()


def kept_place(compiler, words):
    root = KEPT[-1] if KEPT else shared_folder()
    return root / hashlib.sha256("\0".join([identity(compiler), *map(str, words)]).encode()).hexdigest()[:24]


def kept(compiler, words, make):
    """A folder with what make(folder) has put there by that compiler: once for these words, which are all that it depends on. It stays in the
    build folder, for other suites and other runs."""
    folder = kept_place(compiler, words)
    root = folder.parent
    root.mkdir(parents=True, exist_ok=True)
    if not folder.exists():
        for old in root.iterdir():
            if time.time() - old.stat().st_mtime > KEPT_SECONDS:
                shutil.rmtree(old, ignore_errors=True)
        part = Path(tempfile.mkdtemp(dir=root))
        make(part)
        try:
            part.rename(folder)
        except OSError:             # another suite was first
            shutil.rmtree(part)
    os.utime(folder)
    return folder


KEPT_SECONDS = 7 * 24 * 3600


def parsed(compiler, flags):
    """A header that gcc finds parsed: <immintrin.h>, which takes them a third of a second."""
    def parse(folder):
        (folder / "ahead.h").write_text("#include <immintrin.h>\n")
        must(run([compiler, *flags, "-x", "c-header", "ahead.h", "-o", "ahead.h.gch"], cwd=folder))
    return kept(compiler, ["ahead", *flags], parse) / "ahead.h"


# What of a command a parsed header depends on, and what has no such header.
PARSED_BY = re.compile(r"-(O|f|m|g|std=|pthread$|pedantic)")
NOT_PARSED = re.compile(r"-(E|M|x|m32|include|target|D_|-)|.*\.(cpp|cc|cxx|h)$")


def header_ahead(words, cwd):
    """Options for a command of gcc's that compiles an emitted file with the header: from the second time on that one of such flags runs."""
    if platform.machine() != "x86_64" or not re.fullmatch(r"gcc(-\d+)?", os.path.basename(words[0])) or any(map(NOT_PARSED.match, words[1:])):
        return []
    heads = []
    for word in words[1:]:
        if word.endswith(".c") and os.path.isfile(path := os.path.join(cwd or ".", word)):
            with open(path, errors="replace") as file:
                heads.append(file.read(1 << 16))
    if not any("\n#include <immintrin.h>\n" in head for head in heads) or any(re.search(r"^#define _\w+_SOURCE", head, re.M) for head in heads):
        return []
    flags = [word for word in words[1:] if PARSED_BY.match(word)]
    if not kept_place(words[0], ["once", *flags]).exists():
        kept(words[0], ["once", *flags], lambda folder: None)
        return []
    return ["-include", str(parsed(words[0], flags))]


def parse_ahead_for_run(folder):
    """The word by which `cc` as tgc calls it finds <immintrin.h> parsed already; none where that is not gcc for such a processor."""
    is_gcc = "gcc" in Path(os.path.realpath(shutil.which("cc") or "")).name
    if not is_gcc or platform.machine() != "x86_64":
        return ""
    return f" -include {parsed('cc', [LEVEL, '-std=c11', '-fPIC', '-pthread'])}"


def quickly():
    """An environment in which tgc's runs by the C compiler take a third of the time, where what that makes of the C is not what is tested: LEVEL,
    and the intrinsics' header parsed once."""
    return {} if "--all" in sys.argv else {"CC": f"cc {LEVEL}{shared('ahead-run', parse_ahead_for_run)}"}


def compile_main(folder, tgc, stem, compiler, flags, options=("--cpu=generic",), states=False):
    """The object of the main program that emitted files of that stem hold. All that it knows
    of a model, but for its selftest, it asks the library; so that of whole_main.tg, which needs
    all parts of it, serves all models of a target without states, or with them."""
    source = (Path(__file__).parent / "whole_main.tg").read_text()
    is_device = any(o.startswith("--target=") and o != "--target=c" for o in options)
    left_out = "|".join(["string|%t"] * is_device + ["state|keep|%next"] * (not states))
    source = "".join(line for line in source.splitlines(True) if not left_out or not re.search(rf"({left_out})\b", line))
    (folder / "whole_main.tg").write_text(source if states else source.replace("%kept", "1.0"))
    emit(tgc, folder / "whole_main.tg", folder / f"{stem}.c", "--vectors=never", *options)
    text = (folder / f"{stem}.c").read_text()
    library, main = text.split(f"\n#ifdef {stem.upper()}_MAIN\n")
    text = "".join(re.findall("^#include.*\n", library, re.M)) + main.rpartition("#endif")[0]
    header = (folder / f"{stem}.h").read_text()

    def compile_it(folder):
        (folder / "main.c").write_text(text)
        (folder / f"{stem}.h").write_text(header)
        must(run([compiler, *WARNINGS, *flags, "-c", "main.c"], cwd=folder))
    return kept(compiler, [text, header, *WARNINGS, *flags], compile_it) / "main.o"


def level_by_turns(source):
    """LEVEL for a third of the programs, by the C's text; the others are not optimized, which is not what their suites test: two thirds of the time."""
    return LEVEL if "--all" in sys.argv or zlib.crc32(source.read_bytes()) % 3 == 0 else "-O0"


def build(source, exe, compiler="gcc", flags=None, timeout=300, libraries=(), main_by=None, main_options=("--cpu=generic",)):
    """Builds the emitted file as a program, without a warning. With main_by, a tgc, only the
    library is this file's: the program has no selftest, and takes half of the time to build."""
    source = Path(source)
    flags = flags or (level_by_turns(source) if main_by else LEVEL,)
    if main_by:
        states = f"{source.stem}_reset(" in source.with_suffix(".h").read_text()
        main = shared("main", compile_main, main_by, source.stem, compiler, tuple(flags), main_options, states)
    else:
        main = f"-D{source.stem.upper()}_MAIN"
    return must(run([compiler, *WARNINGS, *flags, source.name, main, "-o", Path(exe).resolve(),
                     *libraries, "-lm", "-lpthread"], timeout=timeout, cwd=source.parent))


@functools.cache
def quick_compiler():
    return shutil.which("tcc")


# Weights as tcc reads them, where it is here: it has no u"" strings.
ARRAYS = ("--weights=array",) if quick_compiler() else ()


def build_shared(source, *flags, name=None):
    """The emitted file as SOURCE.so, or of that name, for tests of what its kernels compute: by tcc, in a tenth of the time, where it is here and
    knows all that the file has; else by gcc, which does not optimize."""
    source = Path(source)
    words = ["-shared", source.name, "-o", name or source.with_suffix(".so").name, *flags]
    if quick_compiler() and run([quick_compiler(), "-std=c11", *words], cwd=source.parent).status == 0:
        return
    must(run(["gcc", "-O0", "-fPIC", *words], cwd=source.parent))


def build_quickly(source, exe, *flags):
    """The emitted file as a program, for tests of what its kernels compute: likewise, but without a warning by gcc where there is no tcc."""
    source = Path(source)
    words = [f"-D{source.stem.upper()}_MAIN", source.name, "-o", Path(exe).resolve(), *flags, "-lm", "-ldl", "-lpthread"]
    if not quick_compiler() or run([quick_compiler(), "-std=c11", *words], cwd=source.parent).status:
        build(source, exe, "gcc", ("-O0", *flags))


def info(tgc, model, *options):
    return json.loads(must(run([tgc, "info", model, "--json", *options])).out)


def compare(name, actual, expected, rtol, atol):
    """Floats within atol + rtol*|expected|, NaN and infinities alike; everything else exact.
    `actual` is as read from a .npy file, `expected` in the model's own dtype."""
    expected = np.asarray(expected)
    stored = as_npy(expected)
    if actual.dtype != stored.dtype:
        raise Failure(f"{name}: dtype {actual.dtype}, expected {stored.dtype} "
                      f"for {expected.dtype}")
    if actual.shape != expected.shape:
        raise Failure(f"{name}: shape {actual.shape}, expected {expected.shape}")
    if not is_float(expected):
        wrong = np.asarray(actual != stored)
        if np.any(wrong):
            _mismatch(name, actual, stored, wrong, "not equal")
        return
    if stored.dtype != expected.dtype:
        actual = actual.view(expected.dtype)
    a, e = actual.astype(np.float64), expected.astype(np.float64)
    with np.errstate(invalid="ignore"):
        close = np.isfinite(e) & (np.abs(a - e) <= atol + rtol * np.abs(e))
    wrong = np.asarray(~(close | (a == e) | (np.isnan(a) & np.isnan(e))))
    if np.any(wrong):
        _mismatch(name, actual, expected, wrong, f"beyond rtol {rtol:g}, atol {atol:g}")


def _mismatch(name, actual, expected, wrong, what):
    where = np.argwhere(wrong)[0] if expected.ndim else ()
    index = tuple(int(i) for i in where)
    raise Failure(f"{name}: {int(np.sum(wrong))} of {wrong.size} elements {what}; "
                  f"first at {list(index)}: {actual[index]}, expected {expected[index]}")


def compare_to_reference(outputs, expected, rtol=1e-3, atol=1e-4):
    """The project's bar for whole models: atol scales with the largest expected magnitude."""
    for name, reference in expected.items():
        reference = np.asarray(reference)
        scale = 1.0
        if is_float(reference) and reference.size:
            finite = reference[np.isfinite(reference)]
            scale = float(np.max(np.abs(finite))) if finite.size else 1.0
        compare(name, outputs[name], reference, rtol, atol * scale)


def scratch(folder):
    """A fresh folder of that name."""
    shutil.rmtree(folder, ignore_errors=True)
    Path(folder).mkdir(parents=True)
    return Path(folder)
