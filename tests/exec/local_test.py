"""Local memory: stages that a block's threads share, by opts that no pass chooses yet.

A matrix product whose blocks keep rows of one operand, or their sums, in local memory computes the same on OpenCL's device as in NumPy, and
its program has barriers; without one of them the interpreter finds two threads that meet.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/lib"))
import tgc as T  # noqa: E402
from library import Library  # noqa: E402
from opencl import need_device  # noqa: E402
from suite import Suite, expect  # noqa: E402

suite = Suite("local", jobs=1)      # a driver is one of the process
KERNEL = ROOT / "tests/ir/golden/opts/block/kernel.tgk"
ROWS = "divide 0 axis=0 n=4\norder 0 axis=1 to=2\nthread 0 axis=0\nblock 0 axis=1 n={n}\npack 0.sum0 axis=1 n=40 operand=0 space=shared\n"
TILE = ("cover 0 axis=0 n=16\ncover 0 axis=2 n=16\ndivide 0 axis=1 n=4\ndivide 0 axis=4 n=4\ngrid 0 axis=0\ngrid 0 axis=3\n"
        "item 0 axis=2\nitem 0 axis=5\nlanes 0 axis=1 n=4 kind=lane as=row\nlanes 0 axis=3 n=4 kind=lane as=column\ndivide 0.sum0 axis=0 n=4\n")
SCHEDULES = {
    "rows of the first operand": ROWS.format(n=8),
    "more threads than turns": ROWS.format(n=64),
    "columns of the second operand, no grid": "block 0 axis=1 n=5\npack 0.sum0 axis=1 n=40 operand=1 space=shared\n",
    "both operands": ROWS.format(n=8) + "pack 0.sum0 axis=1 n=40 operand=1 space=shared\n",
    "sums": "thread 0 axis=0\nblock 0 axis=1 n=8\nstage 0.sum0 axis=1 space=shared\n",
    "a grid": "grid 0 axis=1\ngrid 0 axis=0\n",
    "a grid of blocks": "divide 0 axis=0 n=4\ndivide 0 axis=2 n=8\ngrid 0 axis=0\ngrid 0 axis=2\nitem 0 axis=1\nitem 0 axis=3\n",
    "tiles of blocks, with places beyond the columns": TILE,
    "tiles of blocks, both operands in local memory": TILE + "stage_operand 0.sum0 axis=0 n=1 to=1 operand=0\nstage_operand 0.sum0 axis=0 n=0 to=1 operand=1\n",
    "tiles of blocks, copies of two parts": TILE + "stage_operand 0.sum0 axis=0 n=4 to=4 operand=0\nstage_operand 0.sum0 axis=0 n=0 to=1 operand=1\npipeline 0.sum0 n=2 how=registers\n",
    "copies that are swizzled": TILE.replace("cover 0 axis=2 n=16", "cover 0 axis=2 n=32").replace("axis=4 n=4", "axis=4 n=8").replace("sum0 axis=0 n=4", "sum0 axis=0 n=8") + "stage_operand 0.sum0 axis=0 n=0 to=1 operand=1\nswizzle 0.sum0 n=32 operand=1\n",
    "sums by a block": "grid 0 axis=1\ngrid 0 axis=0\nfirst 0 n=16\nblock_reduce 0.sum0 axis=0 n=16\n",
    "sums in two steps": "grid 0 axis=1\ngrid 0 axis=0\nfirst 0 n=16\nblock_reduce 0.sum0 axis=0 n=16\nblock_reduce 0.sum1 axis=0 n=4\n",
    "sums by groups of threads, for columns that no block divides": "cover 0 axis=1 n=8\ngrid 0 axis=0\ngrid 0 axis=1\nslice_k 0.sum0 axis=0 n=4 to=2\n",
    "sums by groups of neighbouring threads": "cover 0 axis=1 n=8\ngrid 0 axis=0\ngrid 0 axis=1\nslice_k_adjacent 0.sum0 axis=0 n=4 to=2\n",
    "sums by groups of neighbouring threads, several places a block": "cover 0 axis=1 n=16\ndivide 0 axis=2 n=8\ngrid 0 axis=0\ngrid 0 axis=1\nslice_k_adjacent 0.sum0 axis=0 n=4 to=3\n",
    "sums in scratch of each thread": "thread 0 axis=0\nblock 0 axis=1 n=8\nstage 0.sum0 axis=2 space=scratch\n",
}


def tgtool(*arguments, text=None):
    command = [Path(suite.options.build).resolve() / "tests/ir/tgtool", *map(str, arguments)]
    return subprocess.run(command, input=text, capture_output=True, timeout=60, text=True)


def must(done):
    expect(done.returncode == 0, f"ends with {done.returncode}: {done.stderr}")
    return done.stdout


def linear(opts):
    with tempfile.NamedTemporaryFile("w", suffix=".opts") as file:
        file.write(opts)
        file.flush()
        ast = must(tgtool("apply", file.name, KERNEL))
    return must(tgtool("pass", "linearize", "-", text=ast))


@suite.case("the interpreter runs blocks phase by phase, and finds who meets without a barrier")
def phases():
    rows = "thread 0 axis=0\nblock 0 axis=1 n=4\npack 0.sum0 axis=1 n=10 operand=0 space=shared\n"
    want = must(tgtool("eval", KERNEL))
    for opts in (rows, "block 0 axis=1 n=4\nstage 0.sum0 axis=1 space=shared\n"):
        text = linear(opts)
        barriers = re.findall(r" *barrier\(\) \{id=\d+\}\n", text)
        expect(len(barriers) == 2, f"{len(barriers)} barriers:\n{text}")
        for block in (1, 2, 4, 7):
            expect(must(tgtool("-B", block, "eval", "-", text=text)) == want, f"blocks of {block} compute other values")
        for barrier in barriers if opts == rows else ():    # each thread reads the sums that it has made
            done = tgtool("-B", 4, "eval", "-", text=text.replace(barrier, ""))
            expect(done.returncode == 1 and "of a block meet at element" in done.stderr and "shared memory" in done.stderr,
                   f"without {barrier.strip()} nobody meets: {done.stderr}{done.stdout}")


@suite.case("what a block's stores pass on is behind a barrier each, and no thread's own scratch")
def passed():
    folder = ROOT / "tests/ir/golden/opts/share_scratch"
    ast = must(tgtool("apply", folder / "legal.opts", folder / "kernel.tgk"))
    text = must(tgtool("pass", "linearize", "-", text=ast))
    want = must(tgtool("eval", folder / "kernel.tgk"))
    barriers = re.findall(r" *barrier\(\) \{id=\d+\}\n", text)
    expect(len(barriers) == 3 and must(tgtool("-B", 8, "eval", "-", text=text)) == want, f"{len(barriers)} barriers, or other values:\n{text}")
    met = [tgtool("-B", 8, "eval", "-", text=text.replace(b, "")).returncode for b in barriers]
    expect(met == [0, 1, 1], f"who meets without each of the barriers: {met}")     # a thread reads the zero that it has stored
    done = tgtool("print", "-", text=ast.replace(" shared", ""))
    expect(done.returncode == 1 and "a block's threads pass scratch on that is each thread's own" in done.stderr, f"{done.returncode}: {done.stderr}")


@suite.case("a barrier that not all threads of a block reach is refused")
def divergence():
    text = linear("block 0 axis=1 n=4\nstage 0.sum0 axis=1 space=shared\n")
    inside = re.sub(r"( *)end r\d+\.block\n", lambda found: f"{found[1]}    barrier() {{id=9}}\n{found[0]}", text, count=1)
    done = tgtool("print", "-", text=inside)
    expect(done.returncode == 1 and "not all threads of a block come here equally often" in done.stderr, f"{done.returncode}: {done.stderr}")


def build_product(folder, opts, change=lambda text: text):
    """A product of two matrices by these opts, as a shared object; its C is changed first."""
    (folder / "net.tg").write_text("tg 1\ninput %a : f32[24, 64]\ninput %b : f32[64, 40]\n%c = matmul(%a, %b)\noutput %c\n")
    (folder / "net.opts").write_text(opts)
    must(tgtool("-t", 6, "-s", folder, "opencl", folder / "net.opts", folder / "net.tg"))
    source = (folder / "net.c").read_text()
    (folder / "net.c").write_text(change(source))
    T.build_shared(folder / "net.c", "-ldl")
    return source


def run_product(folder, status=0):
    """It computes the product, or ends with a status."""
    random = np.random.default_rng(1)
    a, b = random.standard_normal((24, 64), np.float32), random.standard_normal((64, 40), np.float32)
    got = list(Library(folder / "net.so", "net").run({"a": a, "b": b}, {}, status).values())[0]
    expect(status != 0 or np.allclose(got, a @ b, rtol=1e-5, atol=1e-5), f"off by {np.abs(got - a @ b).max()}")


def on_device(opts):
    need_device()
    with tempfile.TemporaryDirectory() as name:
        source = build_product(Path(name), opts)
        local = re.search("stage_operand|space=shared|block_reduce|slice_k", opts) is not None
        expect(("local float " in source) == local and ("barrier(CLK_LOCAL_MEM_FENCE)" in source) == local, "local memory, or none")
        run_product(Path(name))


def main():
    suite.parse()
    for name, opts in SCHEDULES.items():
        suite.add(f"OpenCL: {name}", on_device, opts)
    suite.main()


if __name__ == "__main__":
    main()
