"""Attention of many shapes, compiled for GPUs and run by none: dtypes, what --math rounds to, masks, groups of queries, sizes that a run says, sums and
columns that are no whole tiles. Whatever schedule is chosen, tgc's own checks of each stage hold (a mistake is exit status 70), and the text is there.
Quick: some dozens, drawn anew by no one; --all: hundreds."""

import random
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "lib")]

import tgc as T
from suite import Suite, expect

suite = Suite("attention")

ROWS = [("cuda", row) for row in ("sm_80", "sm_86", "sm_89", "sm_90a", "sm_120")] + [("amd", row) for row in ("gfx90a", "gfx942", "gfx1100", "gfx1201")] + \
       [("metal", row) for row in ("m1", "m3-max")] + [("opencl", row) for row in ("generic-gpu", "intel-xe", "adreno630")]
TEXTS = {"cuda": "cu", "amd": "hip", "metal": "metal", "opencl": "cl"}
DTYPES = ("f32", "f16", "bf16")
MATHS = ("f32", "tf32", "bf16", "f16")
HEADS = ((1, 1), (2, 2), (8, 2), (4, 1))                        # of queries, of keys
QUERIES, KEYS = (1, 7, 40, 64, 130, 512, "Q<=300"), (16, 40, 64, 100, 264, 2048, "K<=300")
FEATURES = ((64, 64), (64, 64), (128, 128), (40, 40), (32, 64), (80, 80), (7, 9), (256, 256))
MASKS = ("", "", "causal=true", "causal=true, window=50", "softcap=30.0", "mask", "mixed")
MANY, FEW, PART = 1200, 48, 8


def text_of(draw, dtype):
    (heads, groups), (d, columns), mask = draw.choice(HEADS), draw.choice(FEATURES), draw.choice(MASKS)
    queries, keys = draw.choice(QUERIES), draw.choice(KEYS)
    if "causal" in mask:
        keys = queries
    if queries == keys == "Q<=300":
        keys = queries = "T<=300"
    of_values = draw.choice([one for one in DTYPES if one != dtype]) if mask == "mixed" else dtype
    lines = [f"input %q : {dtype}[1, {heads}, {queries}, {d}]", f"input %k : {dtype}[1, {groups}, {keys}, {d}]", f"input %v : {of_values}[1, {groups}, {keys}, {columns}]"]
    if mask == "mask":
        lines.append(f"input %m : {dtype}[{str(queries).partition('<')[0]}, {str(keys).partition('<')[0]}]")
    if of_values != dtype:
        lines.append(f"%c = cast(%v) {{to={dtype}}}")
    more = "" if mask in ("mask", "mixed") else mask
    lines.append(f"%y = attention(%q, %k, {'%c' if of_values != dtype else '%v'}{', %m' if mask == 'mask' else ''}) {{{more}}}")
    return "tg 1\n" + "\n".join(lines) + "\noutput %y\n"


def case_of(number):
    """The shape, the processor and the options of a number. Neighbours have neighbouring dtypes, processors and options, so that some dozens have all pairs of
    dtypes and of what they are rounded to."""
    draw = random.Random(number)
    dtype, math, (target, row) = DTYPES[number % 3], MATHS[number // 3 % 4], ROWS[number * 5 % len(ROWS)]
    return text_of(draw, dtype), target, row, math


def compiles(tgc, folder, first):
    T.scratch(folder)
    for number in range(first, first + PART):
        text, target, row, math = case_of(number)
        (folder / f"a{number}.tg").write_text(text)
        out = f"a{number}.{TEXTS[target]}"
        done = T.run([tgc, f"a{number}.tg", "-o", out, f"--target={target}", f"--cpu={row}", f"--math={math}"], cwd=folder, timeout=120)
        expect(done.status == 0 and (folder / out).exists(), f"{done.describe()}\n{text}")


FOUND = {"rounded to f16, then to bf16": ("f16", 40, "sm_90a", "bf16")}


def found(tgc, folder, dtype, n, row, math):
    T.scratch(folder)
    (folder / "a.tg").write_text("tg 1\n" + "".join(f"input %{x} : {dtype}[2, {n}, 64]\n" for x in "qkv") + "%y = attention(%q, %k, %v)\noutput %y\n")
    T.must(T.run([tgc, "a.tg", "-o", "a.cu", "--target=cuda", f"--cpu={row}", f"--math={math}"], cwd=folder))
    text = (folder / "a.cu").read_text()
    expect(f"k16_{math}_own(" in text, "weights do not stay in registers")


def main():
    suite.parse()
    tgc, scratch = T.find_tgc(suite.options.build), T.scratch(Path(suite.options.build).resolve() / "test-scratch" / "attention")
    for number, (name, arguments) in enumerate(FOUND.items()):
        suite.add(f"found: {name}", found, tgc, scratch / f"found{number}", *arguments)
    for first in range(0, MANY, PART):
        suite.add(f"shapes {first} to {first + PART - 1}", compiles, tgc, scratch / f"{first}", first, slow=first >= FEW)
    suite.main()


if __name__ == "__main__":
    main()
