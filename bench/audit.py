"""What compilers make of the inner loops of emitted C: FMAs, loads, stack traffic.

    python bench/audit.py NET.c [--compilers gcc,clang] [--flags=-mavx2 ...] [--all]
                          [--require 'conv.*:fma>=12,stack=0']...

Compiles the file with each compiler at -O2 (a cross compiler too: aarch64-linux-gnu-gcc), and
prints one line per kernel and variant of it: the innermost loop where its time goes, as far as
that can be told without running it. `sums` counts registers that gather a sum over the loop:
the tile. Each --require names C functions of kernels by a pattern and what must hold of that
loop, by the columns below; the exit status is 1 where it does not, or where no function matches.
"""

import argparse
import operator
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests" / "lib"))

import loops

COLUMNS = ("instructions", "fma", "multiply", "add", "sums", "loads", "stores", "stack", "calls",
           "bits", "depth")
COMPARE = {">=": operator.ge, "<=": operator.le, "=": operator.eq}


def parse_requirement(text):
    pattern, _, conditions = text.rpartition(":")
    parsed = []
    for condition in conditions.split(","):
        match = re.fullmatch(r"(\w+)(>=|<=|=)(\d+)", condition.strip())
        if not match or match.group(1) not in COLUMNS:
            raise argparse.ArgumentTypeError(
                f"{condition!r}: expected COLUMN>=N, COLUMN<=N or COLUMN=N with one of "
                f"{', '.join(COLUMNS)}")
        parsed.append((match.group(1), match.group(2), int(match.group(3))))
    return re.compile(pattern), parsed


def compile_object(compiler, flags, source, folder):
    target = Path(folder) / "net.o"
    done = subprocess.run([*compiler, "-O2", "-g", *flags, "-c", source.name, "-o", target],
                          cwd=source.parent or ".", stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(compiler)}: {done.stdout[-2000:]}")
    return target


PRINTED = (("instr", "instructions", 6), ("fma", "fma", 5), ("mul", "multiply", 5),
           ("add", "add", 5), ("sums", "sums", 5), ("load", "loads", 5),
           ("store", "stores", 6), ("stack", "stack", 6), ("call", "calls", 5), ("bits", "bits", 5))


def print_loops(title, found, kernels):
    print(f"\n{title}\n{'kernel':34s} {'MFLOP':>9s}"
          + "".join(f"{head:>{width}s}" for head, _, width in PRINTED))
    for loop in found:
        print(f"{loop.variant:34s} {kernels[loop.kernel] / 1e6:9.3f}"
              + "".join(f"{getattr(loop, column):{width}d}" for _, column, width in PRINTED))


def unmet(requirements, hot):
    """What of the requirements does not hold, a line each."""
    for pattern, conditions in requirements:
        matching = [loop for name, loop in hot.items() if pattern.fullmatch(name)]
        if not matching:
            yield f"no kernel with a loop matches {pattern.pattern}"
        for loop in matching:
            for column, sign, value in conditions:
                actual = getattr(loop, column)
                if not COMPARE[sign](actual, value):
                    yield f"{loop.variant}: {column} is {actual}, required {sign}{value}"


def main():
    parser = argparse.ArgumentParser(description="count the instructions of inner loops")
    parser.add_argument("source", type=Path)
    parser.add_argument("--compilers", default="gcc,clang")
    parser.add_argument("--flags", default="", help="more flags for the compilers")
    parser.add_argument("--all", action="store_true", help="every innermost loop, not the hottest")
    parser.add_argument("--require", action="append", default=[], type=parse_requirement)
    options = parser.parse_args()
    kernels = loops.kernels_of(options.source.read_text())
    order = {name: place for place, name in enumerate(kernels)}
    failed = False
    for name in options.compilers.split(","):
        compiler, flags = name.split(), options.flags.split()
        with tempfile.TemporaryDirectory() as folder:
            path = compile_object(compiler, flags, options.source, folder)
            found = loops.audit(path, options.source, compiler)
        hot = loops.hottest(found)
        shown = [loop for loop in found if loop.kernel] if options.all else \
            sorted(hot.values(), key=lambda loop: order[loop.kernel])
        print_loops(" ".join([name, "-O2", *flags]), shown, kernels)
        for line in unmet(options.require, hot):
            print(f"  UNMET {line}")
            failed = True
    sys.exit(failed)


if __name__ == "__main__":
    main()
