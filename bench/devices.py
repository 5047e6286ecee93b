#!/usr/bin/env python3
"""What a run of the benchmark's models takes of each row of passes/target/devices.def, as `tgc info --target=TARGET --cpu=ROW` counts it.

    .venv/bin/python bench/devices.py [--build build] [--models resnet18 models/mlp.tg ...] [--rows adreno630 ...] [--together]

    launches     kernels of a run, those of a loop once
    MB, times    bytes that kernels read and write, each tensor once a kernel; beside them the least: inputs, outputs and weights once
    asked        bytes that all threads load and store, from a cache or memory; local memory aside
    local        the most local memory of a work-group
    --together   one table, of docs/benchmark.md's form: counts of the first row, ms of each
    ms           what the cost model expects by the row's facts, one kernel after the other: it is an estimate, not a measurement

Nothing is run: no driver and no device is needed. Models are those of bench/models.py, as far as they can be made here, and files.
"""

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path[:0] = [str(HERE), str(ROOT / "tests" / "lib")]

HEAD = "| model | launches | MB | times the least | asked MB | local KB | ms |\n|---|---|---|---|---|---|---|"


def all_rows():
    """{row: its target}"""
    text = (ROOT / "passes/target/devices.def").read_text()
    return dict(re.findall(r'^DEVICE\(\w+, "([\w-]+)".*\.target = "(\w+)"', text, re.M))


def find_models(names):
    """{name: path}, of files and of the benchmark's; what cannot be made here is said."""
    found = {name: Path(name) for name in names if Path(name).suffix in (".tg", ".onnx")}
    if names and len(found) == len(names):
        return found
    import models
    from suite import Skip
    for model in models.make_list():
        if names and model.name not in names:
            continue
        try:
            found[model.name] = models.prepare(model) / "model.onnx"
        except (Skip, OSError, ImportError) as missing:
            print(f"{model.name}: {missing}", file=sys.stderr)
    return found


def count(tgc, path, row):
    done = subprocess.run([tgc, "info", path, f"--target={all_rows()[row]}", f"--cpu={row}", "--json"], capture_output=True, text=True)
    if done.returncode:
        return None, done.stderr.splitlines()[0]
    return json.loads(done.stdout)["device"], None


def line(name, c):
    moved, least = c["moved_bytes"] / 1e6, c["least_bytes"] / 1e6
    return (f"| {name} | {c['launches']} | {moved:.1f} | {moved / least:.1f} | {c['asked_bytes'] / 1e6:.0f} | {c['local_bytes'] / 1024:.1f} |"
            f" {c['predicted_us'] / 1000:.2f} |")


def print_together(tgc, found, rows):
    print(f"| model | launches | MB moved | times the least | local KB | {' | '.join(rows)} |\n|{'---|' * (5 + len(rows))}")
    for name, path in found.items():
        counts = [count(tgc, path, row) for row in rows]
        first, why = counts[0]
        if not first:
            print(f"| {name} | {why} |", flush=True)
            continue
        moved = first["moved_bytes"] / 1e6
        ms = " | ".join(f"{c['predicted_us'] / 1000:.2f}" if c else "-" for c, _ in counts)
        print(f"| {name} | {first['launches']} | {moved:.1f} | {moved * 1e6 / first['least_bytes']:.1f} | {first['local_bytes'] / 1024:.1f} | {ms} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--models", nargs="*", default=[])
    parser.add_argument("--rows", nargs="*", default=list(all_rows()), choices=list(all_rows()))
    parser.add_argument("--together", action="store_true")
    options = parser.parse_args()
    found = find_models(options.models)
    if options.together:
        print_together(Path(options.build) / "cli/tgc", found, options.rows)
        return 0 if found else 1
    for row in options.rows:
        print(f"\n{row}\n\n{HEAD}")
        for name, path in found.items():
            counts, why = count(Path(options.build) / "cli/tgc", path, row)
            print(line(name, counts) if counts else f"| {name} | {why} | | | | | |", flush=True)
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main())
