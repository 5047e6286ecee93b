"""Every .tg of the repository and every node test of the onnx package, compiled by every target: no access of the compiler's
own memory that is not its own, no overflow, no bug. The long form has a tgc that sanitizers watch, by which it runs whole
suites, too; the quick one takes a few.

    targets_test.py --all --filter cuda --results FILE --seconds 600       in parts
"""

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "lib"))

import mutants as M
import tgc as T
from sanitized import sanitized_tgc
from suite import Failure, Suite

suite = Suite("targets")
OPTIONS = suite.parse()
SCRATCH = Path(OPTIONS.build).resolve() / "test-scratch" / "targets"
SOURCES = M.Sources(OPTIONS.build)
GROUP, EVERY = 25, 60
# A network that has to be given dimensions, so that little of it is refused.
OPEN = ["--dim=*=..8"]
# What the cases here do not reach: training, derivatives, models that are written, what models are given by options.
SUITES = ("text", "library", "lowering", "defaults", "ml", "microsoft", "custom", "entries", "train", "written", "derivatives", "gradient",
          "gradient-points", "gradient-loops", "gradient-operators", "gradient-graphs", "regress", "report", "train-c")


class Lazy:
    """Built when the first case needs it."""
    fuzzer = None

    @classmethod
    def get(cls):
        with M.LOCK:
            if not cls.fuzzer:
                tgc = sanitized_tgc(OPTIONS.build, OPTIONS.jobs) if OPTIONS.all else T.find_tgc(OPTIONS.build).resolve()
                cls.fuzzer = M.Fuzzer(tgc, SCRATCH, SOURCES, OPTIONS.all)
        return cls.fuzzer


def compile_all(target, cpu, kind, start, every):
    fuzzer, failures = Lazy.get(), []
    found = SOURCES.tg if kind == "tg" else SOURCES.all()
    for name, content in found[start::every] if every > 1 else found[start:start + GROUP]:
        folder = T.scratch(SCRATCH / f"{target}-{cpu}-{kind}-{start}")
        (folder / f"model.{kind}").write_bytes(content)
        wrong = fuzzer.judge(kind, folder, [f"model.{kind}", *M.target_words(target, cpu), *(OPEN if kind == "onnx" else [])])
        if wrong:
            failures.append(f"{name} by {target}, {cpu}: {wrong}")
    if failures:
        raise Failure("\n".join(failures))


def run_suite(name):
    """The quick form of a suite by the tgc that sanitizers watch: these end with a status that no test expects."""
    words = [sys.executable, HERE.parent / "check.py", "--suites", name, "--build", OPTIONS.build, "--jobs", "1"]
    tgc = Lazy.get().tgc
    done = T.run(words, cwd=HERE.parents[1], timeout=3600, env={**os.environ, "TGC": str(tgc), "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1"})
    if done.status:
        raise Failure(done.describe())


for name in SUITES:
    suite.add(f"suite {name}", run_suite, name, slow=True)
for target, (_, cpus) in M.TARGETS.items():
    for number, cpu in enumerate(cpus or M.rows(target)):
        if number == 0:
            suite.add(f"{target} {cpu}, some of them", compile_all, target, cpu, "tg", len(target), EVERY)
        for kind, count in (("tg", len(SOURCES.tg)), ("onnx", 1900)):
            for start in range(0, count, GROUP):
                suite.add(f"{target} {cpu}, {kind} {start}..{start + GROUP - 1}", compile_all, target, cpu, kind, start, 1, slow=True)
suite.main()
