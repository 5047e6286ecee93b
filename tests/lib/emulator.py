"""The device emulator of tests/emulator/: built once for a state of its sources, a libOpenCL.so.1 that
emitted programs open instead of a driver's.

    python tests/lib/emulator.py build ./net --selftest          a program on it, by hand
    TGC_EMULATOR_CUDA=net.cu python ...                          of CUDA: the kernels' text, which tgc -o net.cu writes
    TGC_EMULATOR_AMD=net.hip python ...                          of HIP, likewise
    TGC_EMULATOR_DEVICE="double=0 local=8192" python ...         on a device that lacks something: tests/emulator/device.c
    TGC_EMULATOR_FAIL=7 TGC_EMULATOR_LOG=calls python ...        calls that fail, a list of them: tests/emulator/calls.c
"""

import contextlib
import ctypes
import functools
import gc
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import tgc as T
from library import Library
from opencl import Options
from suite import Failure, Skip, expect

SOURCES = Path(__file__).resolve().parents[1] / "emulator"
COMPILERS = ("clang", "clang-19")
BUILDING = threading.Lock()
METAL = "libmetal_emulator.so.1"
METAL_FLAGS = [f'-DMETAL_RUNTIME="{METAL}"', f'-DMETAL_FRAMEWORK="{METAL}"']      # where macOS has them there is nothing here
HALVES = ["-mf16c"] if platform.machine() == "x86_64" else []


def need_clang():
    """The compiler of kernels."""
    for name in COMPILERS:
        if shutil.which(name):
            return name
    raise Skip("the emulator compiles kernels by clang, which is not installed")


@functools.cache
def key(clang):
    files = [path for path in sorted(SOURCES.rglob("*")) if path.is_file() and "programs" not in path.parts]
    text = b"".join(path.read_bytes() for path in [*files, SOURCES.parents[1] / "ir/matrix.def"])
    version = subprocess.run([clang, "--version"], capture_output=True, check=True).stdout
    return hashlib.sha256(text + version).hexdigest()[:16]


def folder_of(build, make):
    clang = need_clang()
    folder = Path(build).resolve() / "test-scratch" / "emulated" / f"{key(clang)}-{make.__name__}"
    with BUILDING:
        if not folder.exists():
            remove_old(folder.parent)
            make(clang, folder)
    return folder


def library(build):
    """The library's path: in the build folder, under the name that drivers have."""
    return folder_of(build, opencl) / "libOpenCL.so.1"


def cuda_library(build):
    """CUDA's, likewise."""
    return folder_of(build, cuda) / "libcuda.so.1"


def amd_library(build):
    """HIP's, likewise."""
    return folder_of(build, amd) / "libamdhip64.so.6"


def metal_library(build):
    """Metal's framework and the Objective-C runtime, in one."""
    return folder_of(build, metal) / METAL


def stand_ins(build):
    """An environment in which tgc finds what stands for CUDA's and AMD's compilers, where programs are so many that the code which they make,
    and which nothing here runs, would take most of the time."""
    folder = folder_of(build, compilers)
    return {"TGC_NVRTC": str(folder / "libnvrtc.so.11.2"), "TGC_AMD": "clang", "TGC_CLANG": "30", "PATH": f"{folder}:{os.environ['PATH']}"}


def remove_old(folder):
    """Those of an hour ago: another suite may use a younger one."""
    for old in folder.iterdir() if folder.exists() else ():
        if time.time() - old.stat().st_mtime > 3600:
            shutil.rmtree(old, ignore_errors=True)


FLAGS = ["-std=c11", "-O2", "-g", "-fPIC", "-fvisibility=hidden", "-fno-omit-frame-pointer", "-Wall", "-Wextra", "-Wpedantic",
         "-Wshadow", "-Wconversion", "-Werror", f'-DTGC_EMULATOR_SOURCES="{SOURCES}"']
KERNELS = ("report", "calls", "device", "signature", "tensors", "shadow", "build", "elf", "blocks", "fiber", "builtins", "gpu", "matrix", "products", "transfer", "banks", "bulk", "leaving", "tickets")      # what all drivers share


def link(folder, name, sources, *others, flags=(), programs=(), objects=()):
    part = folder.with_name(f"{folder.name}.{os.getpid()}")
    part.mkdir(parents=True)
    for source in sources:
        T.must(T.run(["gcc", *FLAGS, *flags, "-c", source, "-o", part / f"{source.parent.name}_{source.stem}.o"], timeout=300))
    for job in others:
        T.must(T.run([*job, "-o", part / "other.o"], timeout=300))
    if name:
        T.must(T.run(["gcc", "-shared", f"-Wl,-soname,{name}", *objects, *part.glob("*.o"), "-o", part / name, "-Wl,--no-as-needed", "-lm", "-ldl", "-lpthread"]))
    for program, *files in programs:
        T.must(T.run(["gcc", *FLAGS, *files, "-o", part / program]))
    try:
        part.rename(folder)
    except OSError:                     # another suite was first
        shutil.rmtree(part)


def shared(_, folder):
    """Objects that all drivers have."""
    link(folder, None, [SOURCES / f"{name}.c" for name in KERNELS])


def shared_of(folder):
    """Those that are in the libraries beside this one, made now if they are not there."""
    other = folder.with_name(f"{folder.name.partition('-')[0]}-shared")
    if not other.exists():
        shared(None, other)
    return sorted(other.glob("*.o"))


def opencl(clang, folder):
    own = [path for path in SOURCES.glob("*.c") if path.stem not in KERNELS]
    link(folder, "libOpenCL.so.1", own, [clang, f"@{SOURCES}/opencl.flags", *HALVES, "-O0", "-g0", "-cl-std=CL1.2", "-include",
                                         SOURCES / "opencl.h", "-c", SOURCES / "opencl.cl"], objects=shared_of(folder))


def cuda(_, folder):
    link(folder, "libcuda.so.1", (SOURCES / "cuda").glob("*.c"), objects=shared_of(folder))


def amd(_, folder):
    """CUDA's driver with HIP's names."""
    link(folder, "libamdhip64.so.6", [SOURCES / "amd" / "own.c", *(SOURCES / "cuda" / f"{name}.c" for name in ("driver", "launch", "language"))],
         flags=("-include", SOURCES / "amd" / "names.h"), objects=shared_of(folder))


def metal(_, folder):
    link(folder, METAL, (SOURCES / "metal").glob("*.c"), objects=shared_of(folder))


def compilers(_, folder):
    own = SOURCES / "compilers"
    link(folder, "libnvrtc.so.11.2", [own / "nvrtc.c"], programs=[("clang-30", own / "clang.c", SOURCES / "signature.c", SOURCES / "tensors.c")])


def environment(build, which=library, **more):
    """For a process that is to find the emulator; more: device=, fail=, log=, report=."""
    return {"LD_LIBRARY_PATH": str(which(build).parent), "TGC_EMULATOR_CLANG": need_clang(), "TGC_EMULATOR_REPORT": "",
            "TGC_EMULATOR_DEVICE": "", **{f"TGC_EMULATOR_{name.upper()}": str(value) for name, value in more.items()}}


def cuda_environment(build, text, **more):
    """The same with CUDA's driver, where the kernels' text is in that file."""
    return {**environment(build, cuda_library, **more), "TGC_EMULATOR_CUDA": str(text)}


def amd_environment(build, text, **more):
    """The same with HIP's driver."""
    return {**environment(build, amd_library, **more), "TGC_EMULATOR_AMD": str(text)}


def metal_environment(build, **more):
    """The same with Metal, for programs that were compiled with METAL_FLAGS."""
    return environment(build, metal_library, **more)


class Device:
    """The emulator in this process: programs that are opened here find it by its name. which: library, cuda_library, amd_library or metal_library."""

    def __init__(self, build, folder, which=library):
        self.library = ctypes.CDLL(str(which(build)))
        self.report = Path(folder) / "report"
        os.environ["TGC_EMULATOR_CLANG"] = need_clang()
        os.environ["TGC_EMULATOR_REPORT"] = str(self.report)
        os.environ["TGC_EMULATOR_CACHE"] = str(folder)

    @contextlib.contextmanager
    def watch(self, device=""):
        """What runs within may report nothing, and releases all that it creates."""
        self.begin(device)
        yield self
        found = self.found()
        if found:
            raise Failure("\n".join(found[:8]))

    def refuses(self, program, device, status, words):
        """A device on which the program cannot run: init's status and words, nothing is misused or left."""
        told = []
        with self.watch(device):
            options = Options(on_error=Options.ERROR(lambda user, text: told.append(text.decode())))
            Library(program, "net", options=options, status=status)
            expect(re.search(words, " ".join(told)) if words else not told, f"{device}: {told}")
            gc.collect()

    def begin(self, device=""):
        os.environ["TGC_EMULATOR_DEVICE"] = device
        self.report.unlink(missing_ok=True)
        self.library.emulator_reset()

    @contextlib.contextmanager
    def log(self, path):
        """The driver's calls within, a line each."""
        os.environ["TGC_EMULATOR_LOG"] = str(path)
        self.library.emulator_reset()
        del os.environ["TGC_EMULATOR_LOG"]
        yield
        self.library.emulator_reset()

    def found(self):
        """The lines that were reported since begin()."""
        lines = self.report.read_text().splitlines() if self.report.exists() else []
        alive = self.library.emulator_live()
        return lines + ([f"{alive} objects are not released"] if alive else [])


if __name__ == "__main__":
    drivers = ":".join(str(which(sys.argv[1]).parent) for which in (library, cuda_library, amd_library))
    os.execvpe(sys.argv[2], sys.argv[2:], {**environment(sys.argv[1]), **os.environ, "LD_LIBRARY_PATH": drivers})
