"""NAME_STACK_BYTES beside what compilers take, of every small model (lib/small.py): how near the bound is.

    tests/stack_table.py RECORD                   measures what RECORD lacks, prints the table
    tests/stack_table.py RECORD --part K/N        of the models every N-th, from the K-th on
    tests/stack_table.py RECORD --table           prints the table of what RECORD holds
    tests/stack_table.py RECORD --levels -O1,-O3  of these levels; --filter: of these models

RECORD is a file of JSON lines: a program's frames as one compiler gives them at one level, under the digest of
the program's text. An interrupted run is taken up again where it ended, and a bound that changes needs no
compiler, since its figure is in the header. Exit status 1: something takes more than its bound.
"""

import argparse
import hashlib
import json
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / "lib")]

import onnx

import small
import stack
import tgc as T

TIMES, ROOM = 2, 320        # as stack_test.py has them


def emit(tgc, name, portable, folder):
    """The program's text and its bound."""
    make, options = small.MODELS[name]
    T.scratch(folder)
    onnx.save(make(), folder / "model.onnx")
    T.emit(tgc, folder / "model.onnx", folder / "net.c", "--name=net", *(["--cpu=generic"] if portable else []), *options)
    return (folder / "net.c").read_text(), stack.bound(folder / "net.h")


def read(path):
    """(digest, target, level) -> {function: bytes}"""
    lines = path.read_text().splitlines() if path.exists() else []
    return {tuple(key): frames for key, frames in map(json.loads, lines)}


def measure(text, digest, folder, known, levels, record):
    for target in stack.TARGETS:
        for level in levels:
            key = (digest, target[0], level)
            if key in known or stack.missing(target):
                continue
            known[key] = stack.frames(folder / "net.c", folder / "built", target[1], (*target[2], level))
            record.write(json.dumps([key, known[key]]) + "\n")
            record.flush()


def largest(text, digest, known):
    """Over all that was measured: bytes, where, the functions on the way, how many ways."""
    graph, worst, count = stack.calls(text), (0, "", ()), 0
    for (of, target, level), frames in known.items():
        if of == digest:
            nbytes, way = stack.deepest(graph, frames, "net_run")
            worst = max(worst, (nbytes, f"{target} {level}", tuple(f"{f} {frames[f]}" for f in way if frames.get(f))))
            count += 1
    return *worst, count


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("record", type=Path)
    parser.add_argument("--build", default="build")
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--filter", default="")
    parser.add_argument("--levels", default=",".join(stack.LEVELS), type=lambda s: s.split(","))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--table", action="store_true", help="measure nothing")
    options = parser.parse_args()
    part, parts = map(int, options.part.split("/"))
    chosen = [(name, portable) for name in small.MODELS if options.filter in name for portable in (False, True)][part - 1::parts]
    tgc, known = T.find_tgc(options.build).resolve(), read(options.record)
    with tempfile.TemporaryDirectory() as scratch, options.record.open("a") as record, ThreadPoolExecutor(options.jobs) as pool:
        def row(number):
            (name, portable), folder = chosen[number], Path(scratch) / str(number)
            text, bound = emit(tgc, name, portable, folder)
            digest = hashlib.sha256(text.encode()).hexdigest()[:16]
            if not options.table:
                measure(text, digest, folder, known, options.levels, record)
            took, where, way, count = largest(text, digest, known)
            return bound / max(took, 1), bound, took, count, name + (", portable" if portable else ""), where, way
        rows = sorted(pool.map(row, range(len(chosen))), reverse=True)
    rows = [r for r in rows if r[3]]
    for times, bound, took, count, name, where, way in rows:
        mark = "!" if took > bound else "*" if bound > max(TIMES * took, ROOM) else " "
        print(f"{mark} {times:5.2f} {bound:6} {took:6} {count:3}  {name}: {where}: {' > '.join(way)}")
    beyond, far = [r for r in rows if r[2] > r[1]], [r for r in rows if r[1] > max(TIMES * r[2], ROOM)]
    print(f"{len(rows)} programs, {sum(r[3] for r in rows)} builds: {len(beyond)} beyond the bound (!), "
          f"{len(far)} of more than {ROOM} bytes with a bound above {TIMES} times the largest (*), "
          f"mean {sum(r[0] for r in rows) / max(len(rows), 1):.2f}")
    sys.exit(1 if beyond else 0)


main()
