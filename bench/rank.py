#!/usr/bin/env python3
"""How well the cost model ranks: what it predicts of each kernel against what was measured.

    .venv/bin/python bench/rank.py [--build build] [--models resnet50 mlp ...] [--machine NAME] [--beam 8] [--turns 2] [--target c]

Two questions, since they are differently hard:

    kernels      Spearman's rank correlation of predicted and measured times over all kernels of all models, and
                 how far the predictions are off once a common factor is taken away
    candidates   within a kernel, over the tiles that `tgc tune` would measure: how much slower the chosen tile is
                 than the best one, and the rank correlation of the model's order with the measured one

Models are those of bench/models.py, as far as they can be made here, models/*.tg, and files. A kernel's time is the least of
all runs of all turns, in its place among the others. Kernels under a microsecond are left out: the clock is read before each.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
LEAST_US = 1.0
WORST = 10


def ranks(values):
    """Places from 1 on; equal ones share the mean of theirs."""
    order = sorted(range(len(values)), key=lambda i: values[i])
    rank = [0.0] * len(values)
    at = 0
    while at < len(order):
        end = at
        while end + 1 < len(order) and values[order[end + 1]] == values[order[at]]:
            end += 1
        for k in range(at, end + 1):
            rank[order[k]] = (at + end) / 2 + 1
        at = end + 1
    return rank


def spearman(a, b):
    """Rank correlation; None where one of them has no order."""
    a, b = ranks(a), ranks(b)
    n = len(a)
    mean = (n + 1) / 2
    above = sum((x - mean) * (y - mean) for x, y in zip(a, b))
    below = math.sqrt(sum((x - mean) ** 2 for x in a) * sum((y - mean) ** 2 for y in b))
    return above / below if below else None


def median(values):
    values = sorted(values)
    n = len(values)
    return (values[(n - 1) // 2] + values[n // 2]) / 2 if n else float("nan")


def find_models(names):
    made = {}
    for folder in sorted((ROOT / ".cache" / "bench").glob("*-*")):
        if (folder / "facts.json").exists():
            made[json.loads((folder / "facts.json").read_text())["name"]] = folder / "model.onnx"
    for path in sorted((ROOT / "models").glob("*.tg")):
        made[path.stem] = path
    made.update({Path(name).stem: Path(name) for name in names or [] if Path(name).is_file()})
    names = [Path(name).stem if Path(name).is_file() else name for name in names or []]
    missing = [name for name in names if name not in made]
    if missing:
        sys.exit(f"no such model: {' '.join(missing)}; there are: {' '.join(made)} (bench/models.py makes more)")
    return {name: path for name, path in made.items() if not names or name in names}


class Tool:
    def __init__(self, options):
        self.program = str(Path(options.build) / "cli" / "tgc")
        self.more = ["--cpu=native", *([f"--machine={options.machine}"] if options.machine else [])]
        self.target = f"--target={options.target}"
        self.environment = dict(os.environ, BEAM=str(options.beam), TGC_CACHE="0")

    def ask(self, *arguments):
        done = subprocess.run([self.program, *arguments, *self.more, "--json"], env=self.environment, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr.strip().split("\n")[-1])
        return json.loads(done.stdout)

    def times(self, model, *more):
        return {k["name"]: k for k in self.ask("bench", str(model), self.target, *more)["kernel_times"]}


def keep_least(times, new):
    for name, kernel in new.items():
        if name not in times or kernel["us"] < times[name]["us"]:
            times[name] = kernel


def list_choices(tool, model):
    """Of each kernel the tile choice with most candidates, of this machine's vectors: the portable variant does not run here."""
    best = {}
    for choice in tool.ask("info", str(model), "--why")["choices"]:
        if not choice["taken"].startswith("tile ") or len(choice["candidates"]) < 2 or " isa=generic" in choice["taken"]:
            continue
        before = best.get(choice["kernel"])
        if not before or len(choice["candidates"]) > len(before["candidates"]):
            best[choice["kernel"]] = choice
    return best


def key_of(line):
    return line.split()[1]


def measure_candidates(tool, model, turns):
    """{kernel: [us of each candidate]}: in a round each kernel has its next candidate."""
    choices = list_choices(tool, model)
    times = {name: [math.inf] * len(c["candidates"]) for name, c in choices.items()}
    rounds = max((len(t) for t in times.values()), default=0)
    for _ in range(turns):
        for r in range(rounds):
            lines = {key_of(c["candidates"][r]): c["candidates"][r] for c in choices.values()
                     if r < len(c["candidates"])}
            with tempfile.NamedTemporaryFile("w", suffix=".tune") as file:
                file.write("tgc-tune 3\n" + "".join(line + "\n" for line in lines.values()))
                file.flush()
                try:
                    found = tool.times(model, f"--tune={file.name}")
                except RuntimeError as reason:
                    print(f"    round {r}: {reason}", flush=True)
                    continue
            for name, choice in choices.items():
                if r < len(choice["candidates"]) and lines[key_of(choice["candidates"][r])] == choice["candidates"][r]:
                    times[name][r] = min(times[name][r], found[name]["us"])
    return {name: (choices[name], t) for name, t in times.items() if math.inf not in t}


def report_kernels(all_kernels):
    rows = [(model, k) for model, k in all_kernels if k["us"] >= LEAST_US]
    measured, predicted = [k["us"] for _, k in rows], [k["predicted_us"] for _, k in rows]
    factor = median([math.log(p / m) for p, m in zip(predicted, measured) if p > 0])
    off = sorted(((abs(math.log(k["predicted_us"] / k["us"]) - factor), model, k) for model, k in rows
                  if k["predicted_us"] > 0), key=lambda o: o[0])
    print(f"kernels: {len(rows)}, rank correlation {spearman(predicted, measured):.3f}; predicted is "
          f"{math.exp(factor):.2f} of measured in the median, off that by a factor of {math.exp(median([o[0] for o in off])):.2f} "
          f"in the median, {math.exp(off[int(0.9 * len(off))][0]):.2f} for one in ten", flush=True)
    print(f"the {WORST} worst:")
    for _, model, k in reversed(off[-WORST:]):
        print(f"    {k['us']:10.1f} us, {k['predicted_us']:10.1f} predicted  {model} {k['name']}: {k['title'][:70]}")


def report_candidates(all_found):
    lost, orders, worst = [], [], []
    for model, name, choice, times in all_found:
        taken = choice["candidates"].index(choice["taken"]) if choice["taken"] in choice["candidates"] else 0
        if min(times) < LEAST_US:
            continue
        more = times[taken] / min(times) - 1
        order = spearman(list(range(len(times))), times)
        lost.append(more)
        orders += [order] if order is not None and len(times) > 2 else []
        worst.append((more, model, name, choice["taken"], choice["candidates"][times.index(min(times))], times[taken]))
    if not lost:
        return
    within = sum(more <= 0.05 for more in lost)
    print(f"candidates: of {len(lost)} kernels {100 * within / len(lost):.0f} % have a tile within 5 % of the best; "
          f"the median kernel loses {100 * median(lost):.1f} %; median rank correlation {median(orders):.2f}", flush=True)
    print(f"the {WORST} worst:")
    for more, model, name, taken, best, us in sorted(worst, key=lambda w: -w[0])[:WORST]:
        print(f"    {100 * more:5.1f} % of {us:9.1f} us  {model} {name}: {shape(taken)} -> {shape(best)}")


def shape(line):
    return " ".join(word for word in line.split()[2:] if not word.startswith(("isa=", "us=", "model=")))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--models", nargs="*")
    parser.add_argument("--machine", help="whose row predicts, and chooses; common otherwise")
    parser.add_argument("--beam", type=int, default=8, help="candidates of a nest; 1: kernels alone")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--target", default="c", choices=("c", "llvm"), help="who compiles the kernels that are timed")
    options = parser.parse_args()
    tool, kernels, found = Tool(options), [], []
    for name, path in find_models(options.models).items():
        try:
            times = {}
            for _ in range(options.turns):
                keep_least(times, tool.times(path))
            kernels += [(name, k) for k in times.values()]
            if options.beam > 1:
                found += [(name, kernel, *rest) for kernel, rest in
                          measure_candidates(tool, path, options.turns).items()]
        except RuntimeError as reason:
            print(f"{name}: {reason}", flush=True)
            continue
        rows = [k for k in times.values() if k["us"] >= LEAST_US]
        order = spearman([k["predicted_us"] for k in rows], [k["us"] for k in rows]) if len(rows) > 2 else None
        print(f"{name}: {len(rows)} kernels, {sum(k['us'] for k in rows):.0f} us, predicted "
              f"{sum(k['predicted_us'] for k in rows):.0f}" + (f", rank correlation {order:.3f}" if order else ""), flush=True)
    if kernels:
        report_kernels(kernels)
        report_candidates(found)


if __name__ == "__main__":
    main()
