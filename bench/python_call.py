"""What a call from Python takes beside the model's own work: tgc's module and ONNX Runtime's.

    python bench/python_call.py [--build build] [--model policy_mlp] [--json FILE]

For both: microseconds of a call from Python, of a run through the C interface in a loop in C
(bench/driver.c, one thread), and the difference, the overhead. Best of many samples, the two
contenders in turns. Then seconds of tgc.compile() for a model that was never compiled, for one in
the cache in a new process (import included), and for one in the same process.
"""

import argparse
import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path[:0] = [str(ROOT / "python")]

import tgc as module

# tests/lib has a helper of the same name, which the modules below import
del sys.modules["tgc"]
sys.path[:1] = [str(HERE)]

import numpy as np
import onnxruntime

import compare
import models
import worker

CALLS, ROUNDS = 2000, 40

CACHED = """import time, sys
start = time.perf_counter()
import tgc
m = tgc.compile(sys.argv[1])
print(time.perf_counter() - start)
"""


def python_seconds(call):
    start = time.perf_counter()
    for _ in range(CALLS):
        call()
    return (time.perf_counter() - start) / CALLS


def c_seconds(driver, function, argument):
    seconds = (ctypes.c_double * 1)()
    if driver.bench_time(function, argument, 1, CALLS, ctypes.c_double(10), seconds, 0) < 1:
        raise SystemExit("a run failed")
    return seconds[0]


def compile_seconds(path, cache):
    """Never compiled; cached, in another process and in this one."""
    start = time.perf_counter()
    module.compile(path)
    cold = time.perf_counter() - start
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "XDG_CACHE_HOME": cache}
    process = min(float(subprocess.run([sys.executable, "-c", CACHED, str(path)], check=True,
                                       stdout=subprocess.PIPE, env=environment).stdout)
                  for _ in range(3))
    start = time.perf_counter()
    model = module.compile(path)
    return model, {"cold": cold, "cached_new_process": process,
                   "cached": time.perf_counter() - start}


def measure(path, folder, spec, facts):
    model, seconds = compile_seconds(path, folder)
    reference = worker.OnnxRuntime(spec, facts)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    arrays = reference.inputs
    feed = dict(zip(model.inputs, arrays))
    made, expected = model(*arrays), session.run(None, feed)
    made = list(made.values()) if isinstance(made, dict) else [made]
    for ours, theirs in zip(made, expected):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-5)
    context = model._take()
    state = worker.EmittedCall(ctypes.cast(context.run.func, ctypes.c_void_p), context.model,
                               ctypes.addressof(context.in_struct), ctypes.addressof(context.out_struct))
    driver = reference.driver
    calls = {
        ("tgc", "python"): lambda: python_seconds(lambda: model(*arrays)),
        ("tgc", "c"): lambda: c_seconds(driver, driver.bench_call_emitted, ctypes.byref(state)),
        ("onnxruntime", "python"): lambda: python_seconds(lambda: session.run(None, feed)),
        ("onnxruntime", "c"): lambda: c_seconds(driver, reference.call, reference.argument)}
    best = {key: min(values) for key, values in zip(calls, zip(
        *[[call() for call in calls.values()] for _ in range(ROUNDS)]))}
    table = {name: {kind: 1e6 * best[name, kind] for kind in ("python", "c")}
             for name in ("tgc", "onnxruntime")}
    for row in table.values():
        row["overhead"] = row["python"] - row["c"]
    return {"compile_seconds": seconds, "microseconds": table,
            "ratio": table["tgc"]["overhead"] / table["onnxruntime"]["overhead"]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build")
    parser.add_argument("--model", default="policy_mlp")
    parser.add_argument("--json")
    options = parser.parse_args()
    os.environ.setdefault("TGC", str(Path(options.build).resolve() / "cli" / "tgc"))
    folder = models.prepare(next(m for m in models.MODELS if m.name == options.model))
    facts = json.loads((Path(folder) / "facts.json").read_text())
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["XDG_CACHE_HOME"] = scratch
        spec = {"driver": str(compare.build_driver(scratch)), "folder": str(folder), "threads": 1}
        result = measure(Path(folder) / "model.onnx", scratch, spec, facts)
    print(f"{options.model:14s} {'Python':>8s} {'C':>8s} {'overhead':>8s}   us a call")
    for name, row in result["microseconds"].items():
        print(f"{name:14s} {row['python']:8.2f} {row['c']:8.2f} {row['overhead']:8.2f}")
    print(f"overhead of tgc / of ONNX Runtime: {result['ratio']:.2f}")
    print("tgc.compile(): " + ", ".join(f"{name} {seconds:.4f} s"
                                        for name, seconds in result["compile_seconds"].items()))
    if options.json:
        Path(options.json).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
