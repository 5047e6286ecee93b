"""What the contenders need before they can be timed: code built by tgc and by other compilers,
models converted for ncnn. Each function raises Failure with the reason where that cannot be."""

import importlib.util
import os
import re
import signal
import sys
import tempfile
from pathlib import Path

import tgc as T
from suite import Failure


def emit(tgc, model, folder, threads, options=()):
    """tgc's C of the model; seconds, and what tgc says about it."""
    # The most that a large model may take of memory is not for a benchmark to hold.
    done = T.must(T.run([tgc, model, "-o", folder / "net.c", "--threads", str(threads), *options],
                        timeout=900))
    return {"tgc_seconds": done.seconds, "source_bytes": (folder / "net.c").stat().st_size,
            "note": done.err.strip() or None}


def build_emitted(compiler, folder):
    library = folder / f"net-{compiler}.so"
    done = T.must(T.run([compiler, "-O2", "-shared", "-fPIC", "net.c", "-o", library.name, "-lm",
                         "-lpthread"], cwd=folder, timeout=900))
    return library, {"compile_seconds": done.seconds, "library_bytes": library.stat().st_size}


def build_emx(model, facts, folder):
    """emx-onnx-cgen's C of the model with a function that takes all tensors; the library, and the
    file with the weights."""
    T.scratch(folder)
    program = Path(sys.executable).parent / "emx-onnx-cgen"
    T.must(T.run([program, "compile", model, "net.c", "--model-name", "net"], cwd=folder,
                 timeout=600))
    loads = "net_load(" in (folder / "net.c").read_text()
    count = len(facts["inputs"]) + len(facts["outputs"])
    (folder / "call.c").write_text(
        '#include "net.c"\n'
        f"int bench_load(const char *path) {{ return {'net_load(path)' if loads else 'path != 0'}; }}\n"
        "int bench_call(void *argument) { void **t = argument; "
        f"net({', '.join(f't[{k}]' for k in range(count))}); return 0; }}\n")
    T.must(T.run(["gcc", "-O2", "-w", "-shared", "-fPIC", "call.c", "-o", "net.so", "-lm"],
                 cwd=folder, timeout=900))
    return {"library": str(folder / "net.so"), "weights": str(folder / "net.bin")}


def convert_for_ncnn(folder):
    """pnnx's conversion, kept beside the model. A conversion that fails is kept as its reason."""
    target = folder / "ncnn"
    reason = target / "failed.txt"
    if not target.exists():
        part = Path(tempfile.mkdtemp(dir=folder, prefix="ncnn-part-"))
        pnnx = Path(importlib.util.find_spec("pnnx").submodule_search_locations[0]) / "pnnx"
        (part / "model.onnx").symlink_to(folder / "model.onnx")
        done = T.run([pnnx, "model.onnx", "fp16=0"], cwd=part, timeout=600)
        (part / "log.txt").write_bytes(done.out + done.err.encode())
        if done.status != 0 or not (part / "model.ncnn.param").exists():
            (part / "failed.txt").write_text(last_words(done))
        for name in ("model.pnnx.bin", "model.pnnx.onnx", "model.onnx", "model.pnnxsim.onnx"):
            (part / name).unlink(missing_ok=True)
        os.replace(part, target)
    if reason.exists():
        raise Failure(reason.read_text())
    left = unconverted(target / "model.ncnn.param")
    if left:
        raise Failure(f"pnnx leaves operators that ncnn has not: {', '.join(left)}")
    return str(target)


def last_words(done):
    """How pnnx ended, and the last that it said in words."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", done.err + done.out.decode(errors="replace"))
    lines = [line.strip() for line in text.splitlines() if re.search(r"[a-z]{3}", line)]
    how = f"status {done.status}" if done.status >= 0 else signal.Signals(-done.status).name
    return f"pnnx: {how}: {' '.join(lines[-1:])[:200]}"


def unconverted(param):
    """Layers that pnnx could not express; ncnn's own have no dot in their kind."""
    kinds = {line.split()[0] for line in param.read_text().splitlines()[2:] if line.strip()}
    return sorted(kind for kind in kinds if "." in kind or "::" in kind)
