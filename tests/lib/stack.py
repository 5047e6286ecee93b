"""What an emitted program takes of its caller's stack, as compilers say it: -fstack-usage gives each function's
frame, the C text says who calls whom. Kernels are called through a table, whose entries are named like the
kernels; functions that a compiler has inlined have no frame of their own. libc's functions are not counted.
"""

import re
import shutil
from pathlib import Path

import tgc as T

LEVELS = ("-O1", "-O2", "-O3", "-Os")
NEWLIB = next((p for p in (Path("/usr/include/newlib"), Path("/usr/lib/arm-none-eabi/include")) if p.is_dir()), None)
THUMB = ("-mcpu=cortex-m4", "-mthumb", "-mfpu=fpv4-sp-d16", "-mfloat-abi=hard")
# name, compiler, flags
TARGETS = (
    ("x86-64 gcc", "gcc", ()),
    ("x86-64 clang 14", "clang-14", ()),
    ("x86-64 clang 19", "clang-19", ()),
    ("aarch64 gcc", "aarch64-linux-gnu-gcc", ()),
    ("aarch64 clang", "clang-14", ("--target=aarch64-linux-gnu",)),
    ("aarch64 clang 19", "clang-19", ("--target=aarch64-linux-gnu",)),
    ("thumbv7em gcc", "arm-none-eabi-gcc", THUMB),
    ("thumbv7em clang", "clang-14", ("--target=thumbv7em-none-eabihf", *THUMB, "-isystem", str(NEWLIB))),
    ("thumbv7em clang 19", "clang-19", ("--target=thumbv7em-none-eabihf", *THUMB, "-isystem", str(NEWLIB))),
)


def missing(target):
    """Why a target cannot be measured here; None: it can."""
    _, compiler, flags = target
    if not shutil.which(compiler):
        return f"no {compiler}"
    if "-isystem" in flags and not NEWLIB:
        return "no newlib headers"
    return None


def bound(header):
    """NAME_STACK_BYTES as a program's header defines it."""
    return int(re.search(r"#define \w+_STACK_BYTES (\d+)", Path(header).read_text()).group(1))


def calls(text):
    """Function -> functions that it names."""
    bodies = {}
    for found in re.finditer(r"^[A-Za-z_][^;={}#]*?\b(\w+)\([^;{}]*\)\n\{\n(.*?)^\}", text, re.M | re.S):
        bodies.setdefault(found.group(1), []).append(found.group(2))
    graph = {}
    for name, texts in bodies.items():
        named = set(re.findall(r"\b[A-Za-z_]\w*\b", " ".join(texts)))
        graph[name] = (named & bodies.keys()) - {name}
        for kernel in re.findall(r"kernels->(\w+)", " ".join(texts)):
            graph[name] |= {other for other in bodies if re.fullmatch(rf"{kernel}(_(avx|neon)\w*)?", other)}
    return graph


def frames(source, folder, compiler, flags):
    folder.mkdir(parents=True, exist_ok=True)
    T.must(T.run([compiler, "-std=c11", *flags, "-fstack-usage", "-S", source, "-o", folder / "net.s"], timeout=400))
    result = {}
    for line in (folder / "net.su").read_text().splitlines():
        place, size, kind = line.rsplit("\t", 2)
        name = re.sub(r"\.(isra|constprop|part|cold|lto_priv).*", "", place.rsplit(":", 1)[1])
        if not kind.startswith("static") and "bounded" not in kind:
            raise AssertionError(f"{name} has a frame without a bound: {line}")
        result[name] = max(int(size), result.get(name, 0))
    return result


def deepest(graph, frame, root):
    """The largest sum of frames from root down; the way there."""
    best = {}

    def visit(name, above):
        if name in above:
            raise AssertionError(f"{name} calls itself")
        if name not in best:
            below = max((visit(other, above | {name}) for other in graph.get(name, ())), default=(0, ()))
            best[name] = (frame.get(name, 0) + below[0], (name, *below[1]))
        return best[name]

    return visit(root, frozenset())


def measure(source, folder, target, levels=LEVELS, root="net_run"):
    """The most over the levels: bytes, level, the functions on the way."""
    _, compiler, flags = target
    graph = calls(Path(source).read_text())
    worst = (0, "", ())
    for level in levels:
        frame = frames(source, folder, compiler, (*flags, level))
        nbytes, way = deepest(graph, frame, root)
        worst = max(worst, (nbytes, level, tuple(f"{name} {frame[name]}" for name in way if frame.get(name))))
    return worst
