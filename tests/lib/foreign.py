"""Programs of other systems on this one: Windows' by Wine, WebAssembly's by wasmtime. What is missing skips the test."""

import atexit
import functools
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import tgc as T
from suite import Skip

MINGW = "x86_64-w64-mingw32-gcc"
WASI = ("clang-19", "--target=wasm32-wasi")
WASI_HEADERS = Path("/usr/include/wasm32-wasi")
BUILTINS = Path("/usr/lib/llvm-19/lib/clang/19/lib/wasi/libclang_rt.builtins-wasm32.a")


def need(*tools):
    for tool in tools:
        if not shutil.which(tool):
            raise Skip(f"{tool} is not here")


def need_mingw():
    need(MINGW)


def need_wasi():
    need(WASI[0], "wasm-ld-19")
    for path, package in ((WASI_HEADERS, "wasi-libc"), (BUILTINS, "libclang-rt-19-dev-wasm32")):
        if not path.exists():
            raise Skip(f"{package} is not here")


@functools.cache
def wine_program():
    for name in ("wine64", "wine", "/usr/lib/wine/wine64", "/usr/lib/wine/wine"):
        if shutil.which(name):
            return name
    return None


@functools.cache
def _wine(build):
    """Wine's folder is made once for a suite. Its server stays, since each start of it takes a second."""
    prefix = T.scratch(Path(build).resolve() / "test-scratch" / f"wine-{os.getpid()}")
    os.environ |= {"WINEPREFIX": str(prefix), "WINEDEBUG": "-all", "WINEDLLOVERRIDES": "mscoree,mshtml="}
    server = next((s for s in ("wineserver", "/usr/lib/wine/wineserver64", "/usr/lib/wine/wineserver") if shutil.which(s)), None)

    def end():
        if server:
            subprocess.run([server, "-k"], check=False, stderr=subprocess.DEVNULL)
            subprocess.run([server, "-w"], check=False, stderr=subprocess.DEVNULL)
        shutil.rmtree(prefix, ignore_errors=True)
    atexit.register(end)
    if server:
        subprocess.run([server, "-p60"], check=False, stderr=subprocess.DEVNULL)
    subprocess.run([wine_program(), "wineboot", "--init"], check=False, timeout=300, stdin=subprocess.DEVNULL,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return (wine_program(),)


def wine(build):
    """The words before a program of Windows."""
    if not wine_program():
        raise Skip("wine is not here")
    return _wine(str(build))


def wasi():
    """The words before a program of WASI."""
    if not importlib.util.find_spec("wasmtime"):
        raise Skip("the package wasmtime is not here")
    return (sys.executable, str(Path(__file__).with_name("wasi.py")))
