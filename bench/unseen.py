"""Models outside the benchmark that are, or were, below the best runtime: tgc's C against it.

    python bench/unseen.py [--models A,B] [--tgc PATH]... [--threads 1,2] [--busy] [--quick] [--list]

Each is made anew from its recipe (bench/kinds.py: networks of onnx.helper, and what the
distribution's torch exports), with seeded random weights. Several --tgc are contenders in the
same rounds: the first is measured, the others are what it is compared with, such as the commit
before. `best` is the least time of the best runtime over that of the first tgc: above 1 it is
faster; `old` is the same for the others.
"""

import argparse
import os
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE)]

import compare
import kinds
import models
import prepare
import tgc as T
from suite import Failure, Skip

RUNTIMES = compare.RUNTIMES


class Comparison(compare.Comparison):
    """Several tgc, each by one compiler, and the runtimes."""

    def spec(self, kind, **more):
        return {**super().spec(kind, **more), "busy": self.bench.options.busy}

    def prepare(self):
        options = self.bench.options
        for number, tgc in enumerate(options.tgc):
            for compiler in options.compilers:
                contender = compare.Contender(f"tgc{number}-{compiler}",
                                              self.spec("emitted", symbol="net"))
                self.contenders.append(contender)
                folder = T.scratch(self.scratch / f"code-{number}-{compiler}")
                try:
                    contender.result.update(prepare.emit(tgc, self.folder / "model.onnx", folder,
                                                         self.threads, options.more))
                    library, about = prepare.build_emitted(compiler, folder)
                    contender.spec["library"] = str(library)
                    contender.result.update(about)
                except Failure as failure:
                    contender.result["broken"] = compare.shorten(failure)
        for peer in options.peers:
            contender = compare.Contender(peer, self.spec(peer))
            self.contenders.append(contender)
            try:
                if peer == "ncnn":
                    contender.spec["converted"] = prepare.convert_for_ncnn(self.folder)
            except Failure as failure:
                contender.result["broken"] = compare.shorten(failure)

    def summary(self):
        return {c.name: (min((s for part in c.samples for s in part), default=None),
                         c.result.get("broken")) for c in self.contenders}


def least(found, prefixes):
    """The least time of the contenders whose names begin so; None where none has one."""
    times = [time for name, (time, broken) in found.items()
             if time and not broken and name.startswith(prefixes)]
    return min(times, default=None)


def over(a, b):
    return f"{a / b:6.2f}" if a and b else f"{'-':>6s}"


class Bench:
    def __init__(self, options):
        self.options = options
        self.scratch = Path(options.build).resolve() / "bench-scratch" / f"unseen-{os.getpid()}"
        self.scratch.mkdir(parents=True, exist_ok=True)
        self.cores = options.cores
        self.driver = compare.build_driver(self.scratch)

    def run(self):
        options = self.options
        names = [f"tgc{n}-{c}" for n in range(len(options.tgc)) for c in options.compilers]
        for number, tgc in enumerate(options.tgc):
            print(f"tgc{number}: {tgc} {compare.first_line([str(tgc), '--version'])}")
        for threads in options.threads:
            print(f"\n{threads} thread{'s' * (threads > 1)}: microseconds, the least of all runs\n"
                  f"{'model':24s} " + " ".join(f"{n:>12s}" for n in [*names, *options.peers])
                  + f" {'best':>6s}" + " ".join(f" {'old' + str(n):>6s}"
                                                for n in range(1, len(options.tgc))), flush=True)
            for model in options.models:
                self.one(model, threads)
        shutil.rmtree(self.scratch, ignore_errors=True)

    def one(self, model, threads):
        try:
            folder = models.prepare(model)
        except (Failure, Skip) as reason:
            print(f"{model.name:24s} not made: {compare.shorten(reason)}", flush=True)
            return
        found = Comparison(self, model, folder, threads).run()
        own, best = least(found, "tgc0-"), least(found, RUNTIMES)
        cells = [f"{1e6 * time:12.2f}" if time and not broken else
                 f"{'wrong' if broken and 'wrong by' in broken else 'no':>12s}"
                 for time, broken in found.values()]
        print(f"{model.name:24s} {' '.join(cells)} {over(best, own)}"
              + "".join(f"  {over(least(found, f'tgc{n}-'), own)}"
                        for n in range(1, len(self.options.tgc))), flush=True)
        for name, (_, broken) in found.items():
            if broken:
                print(f"    {name}: {broken[:200]}", flush=True)


def parse():
    parser = argparse.ArgumentParser(description="models outside the benchmark")
    parser.add_argument("--models", type=lambda text: text.split(","),
                        help="names, or how they begin, separated by commas")
    parser.add_argument("--tgc", type=Path, action="append", help="build/cli/tgc unless given")
    parser.add_argument("--threads", type=compare.numbers, default=[1])
    parser.add_argument("--cores", type=compare.numbers,
                        default=sorted(os.sched_getaffinity(0)), help="the cores to run on")
    parser.add_argument("--peers", type=compare.words(RUNTIMES), default=list(RUNTIMES))
    parser.add_argument("--compilers", type=compare.words(compare.COMPILERS), default=["gcc"])
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--slice", type=float, help="seconds of a turn")
    parser.add_argument("--quick", action="store_true", help="few and short turns")
    parser.add_argument("--busy", action="store_true", help="count the processor's time, not the "
                        "wall's: for one thread on a machine that others use, too")
    parser.add_argument("--keep", action="store_true", help="keep the emitted code")
    parser.add_argument("--list", action="store_true", help="name the models, and end")
    parser.add_argument("--build", default="build", help="the folder to work in")
    parser.add_argument("more", nargs="*", help="options for tgc, behind --")
    options = parser.parse_args()
    options.tgc = [tgc.resolve() for tgc in options.tgc or [T.find_tgc(Path(options.build))]]
    options.weight_type = None
    if options.busy and options.threads != [1]:
        parser.error("--busy is for one thread")
    options.rounds = options.rounds or (4 if options.quick else 12)
    options.slice = options.slice or (0.05 if options.quick else 0.2)
    options.models = [m for m in kinds.MODELS
                      if not options.models or m.name.startswith(tuple(options.models))]
    if not options.models:
        parser.error("no such model; --list names them")
    return options


def main():
    options = parse()
    if options.list:
        for model in options.models:
            print(f"{model.name:24s} {model.set}")
        return
    Bench(options).run()


if __name__ == "__main__":
    main()
