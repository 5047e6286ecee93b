"""Prints the figures that the project states about itself, as measured here and now.

    .venv/bin/python bench/figures.py [--build build] [--quick]

tgc's own time and memory (wall and CPU seconds), the system compiler's time on what it wrote, how the time grows
with the graph, the arena against the largest live set, kernels per model, and the counts of
rules and views from the test logs. Correctness is not measured here: the tests hold it.
"""

import argparse
import json
import os
import platform
import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / "lib"), str(ROOT / "tests" / "models")]

import onnx

import catalog
import graphs
import tgc as T
from suite import Failure, Skip


def megabytes(nbytes):
    return f"{nbytes / 1e6:.1f} MB"


def describe_machine():
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    gcc = T.run(["gcc", "--version"]).out.decode().splitlines()[0]
    print(f"machine: {model.group(1) if model else platform.machine()}, {os.cpu_count()} cores; "
          f"{gcc}\n")


def best_of(count, command, **more):
    runs = [T.must(T.run_for_peak(command, **more)) for _ in range(count)]
    return min(runs, key=lambda done: done.cpu)


def times(done):
    return f"{done.seconds:.2f} s ({done.cpu:.2f} s CPU)"


def one_large_model(tgc, scratch):
    """tgc on resnet50, and cc -O2 on the result."""
    path = next(m for m in catalog.MODELS if m.name == "resnet50").locate()
    folder = T.scratch(scratch / "resnet50")
    size = path.stat().st_size
    done = best_of(3, [tgc, path, "-o", folder / "resnet50.c"], timeout=300)
    print(f"resnet50 ({megabytes(size)}) to C: {times(done)}, "
          f"{megabytes(done.peak)} at most, {done.peak / size:.2f} times the file")
    source = folder / "resnet50.c"
    print(f"  resnet50.c: {megabytes(source.stat().st_size)}, beside it: "
          + ", ".join(f"{p.name} {megabytes(p.stat().st_size)}" for p in sorted(folder.iterdir())
                      if p != source))
    for compiler in ("gcc", "clang"):
        done = T.must(T.run_for_peak([compiler, "-O2", "-c", source.name, "-o", f"{compiler}.o"],
                            cwd=folder, timeout=600))
        print(f"  {compiler} -O2: {times(done)}, {megabytes(done.peak)} at most")


def instructions(command):
    """How many a program executes, or None without valgrind. Unlike time, they do not depend on
    caches and neighbours."""
    if not shutil.which("valgrind"):
        return None
    done = T.must(T.run(["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null",
                         *command], timeout=600))
    return int(re.search(r"Collected : (\d+)", done.err).group(1))


def growth(tgc, scratch):
    """Time and instructions per node of generated graphs of 2,000 and 20,000 nodes."""
    seconds, counts = {}, {}
    folder = T.scratch(scratch / "growth")
    for nodes in (2000, 20000):
        onnx.save(graphs.blocks(nodes), folder / f"blocks{nodes}.onnx")
        command = [tgc, folder / f"blocks{nodes}.onnx", "-o", folder / "blocks.c"]
        done = best_of(5, command, timeout=300)
        seconds[nodes] = done.cpu / nodes
        counts[nodes] = instructions(command)
        count = f"{counts[nodes] / nodes:.0f} instructions" if counts[nodes] else "no valgrind"
        print(f"{nodes:6d} nodes: {times(done)}; a node: {1e6 * seconds[nodes]:.1f} us CPU, "
              f"{count}, {done.peak / nodes / 1000:.1f} KB")
    print(f"  growth per node: CPU time {seconds[20000] / seconds[2000]:.2f} times"
          + (f", instructions {counts[20000] / counts[2000] / 10:.3f} times"
             if counts[2000] else ""))


def per_model(tgc):
    """Kernels, arena and largest live set of every model at its first size."""
    import models_test
    print(f"\n{'model':26s} {'nodes':>6s} {'kernels':>8s} {'-O0':>6s} {'MFLOP':>9s} {'weights':>10s} "
          f"{'arena':>10s} {'live':>10s} {'over':>6s}")
    for model in catalog.MODELS:
        try:
            reference = models_test.reference(model)
            options = models_test.fixed_shapes(model, reference, model.sizes[0])
            info = T.info(tgc, reference.path, *options)
            plain = T.info(tgc, reference.path, *options, "-O0")
        except (Failure, Skip) as reason:
            print(f"{model.name:26s} {' '.join(str(reason).split())[:100]}")
            continue
        nodes = len(onnx.load(reference.path, load_external_data=False).graph.node)
        live = info.get("live_bytes")
        over = f"{100 * (info['arena_bytes'] / live - 1):5.1f}%" if live else "?"
        print(f"{model.name:26s} {nodes:6d} {kernels(info):8d} {kernels(plain):6d} "
              f"{info['flop'] / 1e6:9.1f} {megabytes(info['weight_bytes']):>10s} "
              f"{megabytes(info['arena_bytes']):>10s} {megabytes(live) if live else '?':>10s} {over:>6s}")


def kernels(info):
    return info["kernels"] if isinstance(info["kernels"], int) else len(info["kernels"])


def own_models(tgc):
    """Kernels of the small models whose fusion is stated."""
    print()
    for path in sorted((ROOT / "models").glob("*.tg")):
        try:
            info = T.info(tgc, path)
        except Failure as reason:
            print(f"{path.name:26s} {' '.join(str(reason).split())[:100]}")
            continue
        print(f"{path.name:26s} {kernels(info)} kernels, arena {info['arena_bytes']} bytes")


def test_counts(build):
    """Lines that test programs print about what they counted: 'figure: ...'."""
    log = build / "meson-logs" / "testlog.json"
    if not log.exists():
        print("\nno test log yet: run make check for the counts of rules and views")
        return
    print()
    for line in log.read_text().splitlines():
        test = json.loads(line)
        for figure in re.findall(r"^(?:# )?figure: (.*)", test.get("stdout") or "", re.M):
            print(f"{test['name']}: {figure}")


def main():
    parser = argparse.ArgumentParser(description="print the project's figures")
    parser.add_argument("--build", default="build")
    parser.add_argument("--quick", action="store_true", help="leave the table of models out")
    options = parser.parse_args()
    build = Path(options.build).resolve()
    tgc = T.find_tgc(build)
    scratch = build / "test-scratch" / "figures"
    describe_machine()
    for measure in (one_large_model, growth):
        try:
            measure(tgc, scratch)
        except (Failure, Skip) as reason:
            print(f"{measure.__name__}: {' '.join(str(reason).split())[:300]}")
    if not options.quick:
        per_model(tgc)
    own_models(tgc)
    test_counts(build)


if __name__ == "__main__":
    main()
