"""Models whose heights, widths or lengths only the run knows, beside the same models with these sizes fixed.

    .venv/bin/python bench/open.py [--models unet,tcn] [--compiler gcc] [--cpu auto] [--rounds 9] [--json FILE] [-- --options of tgc]

Each model is compiled once with open sizes up to a bound, and once for each size at which it runs: the bound, a half of it, and an odd
size in between. The cells are the open program's processor time in milliseconds and, behind a slash, how many times the fixed one's that
is. The programs take turns in one process; of each the least time counts. Answers are compared. `--json` writes a report for
`bench/tables.py --keep`.
"""

import argparse
import json
import math
import os
import sys
import time
from datetime import date
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path[:0] = [str(ROOT / "tests" / "lib"), str(ROOT / "tests" / "models")]

import numpy as np

import tgc as T
from library import Library
from open_sizes import MODELS
from suite import expect


def sizes_of(bound):
    """The bound, a half of it, an odd size between the two."""
    return bound, bound // 2, (bound * 3 // 4) | 1


class Case:
    def __init__(self, name, options, folder):
        make, self.bound, square = MODELS[name]
        self.folder, self.options, self.symbols = folder, options, ("H", "W") if square else ("W",)
        (folder / "net.tg").write_text(make().text(self.bound))
        self.open = self.library("open", [f"{s}=..{self.bound}" for s in self.symbols])

    def library(self, stem, dims):
        options, source = self.options, self.folder / f"{stem}.c"
        T.must(T.run([options.tgc, self.folder / "net.tg", "-o", source, "--name=net", f"--cpu={options.cpu}", *options.more,
                      *(word for dim in dims for word in ("--dim", dim))], timeout=600))
        T.must(T.run([options.compiler, "-O2", "-shared", "-fPIC", source, "-o", source.with_suffix(".so"), "-lm", "-lpthread"], timeout=900))
        return Library(source.with_suffix(".so"))

    def at(self, size):
        """Milliseconds: (open, fixed)."""
        fixed = self.library(f"fixed{size}", [f"{s}={size}" for s in self.symbols])
        shape = fixed.info.inputs[0].bounds()
        x = np.random.default_rng(size).standard_normal(shape).astype(np.float32)
        both, results = (self.open, fixed), []
        for net in both:
            net.give({"x": x}, dict.fromkeys(self.symbols, size))
            expect(net.step() == 0, "a run fails")
            results.append(net.results()["y"])
        a, b = (r.reshape(-1)[:results[1].size] for r in results)
        error = float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30))
        if error > 1e-3:
            sys.exit(f"{self.folder.name}: answers differ by {error:.2g}")
        least = [math.inf, math.inf]
        for _ in range(self.options.rounds):
            for k, net in enumerate(both):
                n = max(1, int(self.options.slice / least[k])) if math.isfinite(least[k]) else 1
                start = time.process_time()
                for _ in range(n):
                    net.step()
                least[k] = min(least[k], (time.process_time() - start) / n)
        return [1e3 * s for s in least]


def machine():
    try:
        names = [line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else "a processor without a name"


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=str(ROOT / "build"), help="Meson's build folder")
    parser.add_argument("--tgc", type=Path, help="BUILD/cli/tgc unless given")
    parser.add_argument("--models", type=lambda text: text.split(","), default=list(MODELS), help=", ".join(MODELS))
    parser.add_argument("--compiler", default="gcc")
    parser.add_argument("--cpu", default="auto")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--slice", type=float, default=0.02, help="seconds of a turn")
    parser.add_argument("--json", type=Path, help="write a report for tables.py")
    parser.add_argument("more", nargs="*", help="options for tgc, behind --")
    options = parser.parse_args()
    options.tgc = (options.tgc or T.find_tgc(Path(options.build))).resolve()
    return options


def main():
    options = parse()
    scratch, rows = T.scratch(Path(options.build).resolve() / "bench-scratch" / f"open-{os.getpid()}"), []
    print(f"{'model':16s} {'bound':>18s} {'half':>18s} {'odd':>18s}")
    for name in options.models:
        case = Case(name, options, T.scratch(scratch / name))
        times = [case.at(size) for size in sizes_of(case.bound)]
        rows.append({"name": name, "bound": case.bound, "open": [round(o, 4) for o, _ in times],
                     "fixed": [round(f, 4) for _, f in times]})
        print(f"{name:16s} " + " ".join(f"{o:10.3f} / {o / f:5.2f}" for o, f in times), flush=True)
    if options.json:
        report = {"title": "Open sizes", "machine": machine(), "date": date.today().isoformat(), "command": "bench/open.py",
                  "versions": T.must(T.run([options.compiler, "--version"])).out.splitlines()[0] + ", -O2", "rows": rows}
        options.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
