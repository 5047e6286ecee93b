"""The gain of `tgc tune` over the cost model's choices.

    bench/tune.py [--models policy_mlp mnist_cnn ...] [--beam 8]

Two libraries of a model: as the cost model chooses, and as tuned (`tgc tune`, BEAM=8). They are timed in turns, each turn some samples of each in
another order, and the least of all samples counts; the share of the turns in which the tuned one was faster says how sure that is.
Exit status 1: a file made a model slower by more than 2 %, or it could not be tuned.
"""

import argparse
import itertools
import json
import math
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests" / "lib")]

import compare
import models
import prepare
import tgc as T
import worker
from suite import Failure

LOSS = 1.02
SMALLEST = ["policy_mlp", "mnist_cnn", "lstm_vad", "mnist_cnn_b64", "mobilenet_v2"]


def tune(tgc, model, file, options):
    """Seconds that it takes."""
    return T.must(T.run([tgc, "tune", model, "-o", file], timeout=7200, env={"BEAM": str(options.beam)})).seconds


def libraries(tgc, model, files, folder, options):
    """By name; without the tuned one, if the file does not change the code."""
    made, first = {}, None
    for name, words in files.items():
        T.must(T.run([tgc, model, "-o", folder / "net.c", *words], timeout=900))
        text = (folder / "net.c").read_bytes()
        first = first or text
        if made and text == first:
            print(f"    {name}: the same code", flush=True)
            continue
        path, _ = prepare.build_emitted(options.compiler, folder)
        made[name] = path.rename(folder / f"net-{name}.so")         # a name is loaded once
    return made


def compare_times(contenders, turns, seconds):
    """The least time of each, and in how many of the turns it was less than the first one's."""
    least, wins = dict.fromkeys(contenders, math.inf), dict.fromkeys(contenders, 0)
    orders = itertools.cycle(itertools.permutations(contenders))
    for _, order in zip(range(turns), orders):
        turn = {name: min(worker.take_time(contenders[name], seconds, 2000)) for name in order}
        for name, time in turn.items():
            least[name] = min(least[name], time)
            wins[name] += time < turn["model"]
    return least, wins


def try_model(*what):
    """Whether no file made it slower; a model that cannot be tuned says why."""
    try:
        return measure(*what)
    except Failure as reason:
        print(f"{what[1]:20s} {str(reason).strip().splitlines()[-1][:200]}", flush=True)
        return False


def measure(tgc, name, folder, driver, options):
    place = models.prepare(next(model for model in models.MODELS if model.name == name))
    facts, model = json.loads((place / "facts.json").read_text()), place / "model.onnx"
    here = T.scratch(folder / name)
    took = tune(tgc, model, here / "tuned.tune", options)
    files = {"model": [], "tuned": ["--tune", here / "tuned.tune"]}
    contenders = {key: worker.Emitted({"folder": str(place), "driver": driver, "library": str(path), "symbol": "net"}, facts)
                  for key, path in libraries(tgc, model, files, here, options).items()}
    least, wins = compare_times(contenders, options.turns, options.seconds)
    said = ", ".join(f"{key} {1e6 * time:.2f}" + (f" (x{least['model'] / time:.3f}, faster in {wins[key]} of {options.turns} turns)"
                                                   if key != "model" else "") for key, time in least.items())
    print(f"{name:20s} us: {said}; tuned in {took:.0f} s", flush=True)
    return all(time <= LOSS * least["model"] for time in least.values())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--models", nargs="+", default=SMALLEST, metavar="NAME", choices=[model.name for model in models.MODELS])
    parser.add_argument("--beam", type=int, default=8)
    parser.add_argument("--compiler", default="gcc")
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=0.3, help="of each library in a turn")
    parser.add_argument("--core", type=int, default=min(os.sched_getaffinity(0)))
    options = parser.parse_args()
    os.sched_setaffinity(0, [options.core])
    tgc = T.find_tgc(options.build).resolve()
    folder = T.scratch(Path(options.build).resolve() / "bench-scratch" / "tune")
    driver = str(compare.build_driver(folder))
    about = compare.describe_machine(tgc)
    print(f"{about['cpu']}, {about['cores']} cores, {about['gcc']}; load {about['load']:.1f}", flush=True)
    slower = [name for name in options.models if not try_model(tgc, name, folder, driver, options)]
    print(f"load {os.getloadavg()[0]:.1f}")
    sys.exit(f"failed, or slower than without a file: {' '.join(slower)}" if slower else 0)


if __name__ == "__main__":
    main()
