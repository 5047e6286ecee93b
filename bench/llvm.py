"""Code that LLVM makes in process beside the C compilers' of the emitted C, and how long a first answer takes.

    bench/llvm.py models/mlp.tg 'minilm.onnx --dim batch=1 --dim length=128'

A word is a model with its options. Runs: `tgc bench` by LLVM, gcc and clang in turn, the least of all turns counts; the ratio is that of
the better compiler's time to LLVM's. First answers: `tgc run` as a process, from its start to its end, without the cache, with an empty
one, and from it; the least of --turns, the files in the system's cache. The stages of the least cold one are those that `-v` prints
(the weights are copied while LLVM works).
"""

import argparse
import json
import math
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MAKERS = {"LLVM": (["--target=llvm"], {}), "gcc": ([], {"CC": "gcc"}), "clang": ([], {"CC": "clang"})}


def run(words, more):
    """What it prints, and says besides; without the cache, if `more` does not say otherwise."""
    environment = {**os.environ, "TGC_CACHE": "0", **more}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{shlex.join(map(str, words))}: {done.stderr}")
    return done.stdout, done.stderr


def compare(tgc, model, turns):
    """Seconds of a run by each maker."""
    least = dict.fromkeys(MAKERS, math.inf)
    for _ in range(turns):
        for maker, (options, environment) in MAKERS.items():
            said = json.loads(run([tgc, "bench", *model, *options, "--json"], environment)[0])
            least[maker] = min(least[maker], said["min_seconds"])
    return least


def first_answers(tgc, model, turns):
    """Seconds of the process: cold, cold and kept, found; and the stages of the first."""
    def answer(more):
        start = time.perf_counter()
        _, said = run([tgc, "run", *model, "--target=llvm", "-v"], more)
        return time.perf_counter() - start, re.findall(r"^(\w[\w ]*?) +([\d.]+) ms", said, re.M)
    with tempfile.TemporaryDirectory() as folder:
        cold, stages = min(answer({}) for _ in range(turns))
        kept = {"XDG_CACHE_HOME": folder, "TGC_CACHE": "1"}
        return cold, answer(kept)[0], min(answer(kept)[0] for _ in range(turns)), stages


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", metavar="MODEL", help="a file, or a file with options in one word")
    parser.add_argument("--build", default=str(ROOT / "build"), help="Meson's build folder")
    parser.add_argument("--turns", type=int, default=10, help="of the process; a third of them for runs")
    parser.add_argument("--only", choices=("runs", "first"), help="one of the two")
    options = parser.parse_args()
    tgc, logs = Path(options.build) / "cli" / "tgc", []
    for word in options.models:
        model = shlex.split(word)
        name = Path(model[0]).stem
        if options.only != "first":
            least = compare(tgc, model, max(1, options.turns // 3))
            logs.append(math.log(min(least["gcc"], least["clang"]) / least["LLVM"]))
            times = ", ".join(f"{maker} {1e3 * s:.3f}" for maker, s in least.items())
            print(f"{name:24s} a run, ms: {times}; better of C / LLVM {math.exp(logs[-1]):.3f}", flush=True)
        if options.only != "runs":
            *seconds, stages = first_answers(tgc, model, options.turns)
            cold, kept, found = (1e3 * s for s in seconds)
            split = ", ".join(f"{stage} {float(ms):.1f}" for stage, ms in stages if stage != "total")
            print(f"{name:24s} first answer, ms: cold {cold:.1f} ({split}), cold and kept {kept:.1f}, found {found:.1f}", flush=True)
    if logs:
        print(f"geometric mean of {len(logs)}: {math.exp(sum(logs) / len(logs)):.3f}, the least {math.exp(min(logs)):.3f}")


if __name__ == "__main__":
    main()
