"""Sums in parts of several blocks, the last of which adds them within the same kernel (opt SPLIT_K, TICKET), on the emulated device, beside NumPy, run after
run; assembled without a register in memory. Kernels that are broken are found: one without a fence, without a barrier before it, that adds in each
block, or leaves its counters."""

import gc
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "lib"), str(HERE.parent / "exec")]

import numpy as np

import cuda
import emulator
import tgc as T
from cuda_test import WINDOW, of_text
from library import Library
from stores_test import BIAS, GEMM, PLAIN, RESIDUAL, expected
from suite import Suite, expect

FAILED = 11
suite = Suite("tickets", jobs=1)    # the device is one of the process
BYTES = """tg 1
input %x : u8[{m}, {k}]
input %w : i8[{k}, {n}]
weight %s : f32[{n}] = uniform(low=0.01, high=0.02, seed=4)
%a = cast(%x) {{to=f32}}
%b = cast(%w) {{to=f32}}
%c = matmul(%a, %b)
%y = mul(%c, %s)
output %y as "y"
"""
# The first one's result has a border, which other stores of its kernel are.
BORDER = """tg 1
input %x : f16[1, 1024, 7, 7]
weight %v : f16[256, 1024, 1, 1] = normal(std=0.1, seed=1)
weight %w : f16[64, 256, 3, 3] = normal(std=0.05, seed=2)
%a = conv2d(%x, %v)
%b = relu(%a)
%c = conv2d(%b, %w) {padding=1}
output %c as "y"
"""
# Blocks of 32 x 16, two waves of rows; of 64 x 64 by four waves, which read copies in panels themselves; of one element for each thread: {parts} blocks for each.
TILE = """cover 0 axis=0 n=32
cover 0 axis=2 n=16
divide 0.sum0 axis=0 n={terms}
split_k 0.sum0 axis=1 n=0 to=3
divide 0 axis=3 n=16
divide 0 axis=5 n=8
grid 0 axis=0
grid 0 axis=1
grid 0 axis=2
item 0 axis=3
lanes 0 axis=5 n=2 kind=lane as=column
cover 0.sum0 axis=0 n=16
mma 0.sum0 axis=4 to=5 by=m16n8k16_f16
stage_operand 0.sum0 axis=0 n=8 to=2 operand=0
stage_operand 0.sum0 axis=0 n=8 to=2 operand=1
"""
PANELS = """cover 0 axis=0 n=64
cover 0 axis=2 n=64
divide 0.sum0 axis=0 n={terms}
split_k 0.sum0 axis=1 n=0 to=3
grid 0 axis=0
grid 0 axis=1
grid 0 axis=2
cover 0.sum0 axis=0 n=64
divide 0.sum0 axis=1 n=16
mma 0.sum0 axis=3 to=4 by=m64n64k16_f16
stage_operand 0.sum0 axis=0 n=0 to=0 operand=0
stage_operand 0.sum0 axis=0 n=0 to=0 operand=1
swizzle 0.sum0 n=64 operand=0
swizzle 0.sum0 n=64 operand=1
pipeline 0.sum0 n=2 how=bulk
"""
EACH = """cover 0 axis=0 n=8
cover 0 axis=2 n=8
divide 0.sum0 axis=0 n={terms}
split_k 0.sum0 axis=1 n=0 to=3
grid 0 axis=0
grid 0 axis=1
grid 0 axis=2
item 0 axis=3
item 0 axis=4
"""
GRID = "grid 1 axis=0\ngrid 1 axis=1\ngrid 1 axis=2\n"
FORMS = {"tiles": ("sm_80", TILE, "divide 1 axis=4 n=2\nlanes 1 axis=5 n=2 kind=lane as=column\n" + GRID + "item 1 axis=4\ndivide 1 axis=3 n=8\nitem 1 axis=4\n"),
         "panels": ("sm_90a", PANELS, "divide 1 axis=4 n=4\nlanes 1 axis=5 n=4 kind=lane as=column\n" + GRID + "item 1 axis=4\ndivide 1 axis=3 n=8\nitem 1 axis=4\n"),
         "each": ("sm_80", EACH, GRID + "item 1 axis=3\nitem 1 axis=4\n")}


def write(folder, text, arch, options=()):
    T.scratch(folder)
    cuda.need_nvrtc()
    (folder / "net.tg").write_text(text)
    for out in ("net.c", "net.cu", "net.ptx"):
        T.must(T.run([T.find_tgc(suite.options.build), "net.tg", "-o", out, "--name=net", "--target=cuda", f"--cpu={arch}", *options], cwd=folder, timeout=120))
    return (folder / "net.cu").read_text()


def by_opts(folder, form, m, n, k, parts, end=BIAS):
    arch, first, second = FORMS[form]
    text = GEMM.format(m=m, n=n, k=k, dtype="f16", end=end.format(dtype="f16"), batch="")
    unused = [name for name in "dr" if f"%{name}" not in end]
    write(folder, "".join(f"{line}\n" for line in text.splitlines() if not any(line.startswith(f"input %{name} ") for name in unused)), arch)
    (folder / "net.opts").write_text(first.format(terms=k // parts) + second)
    T.must(T.run([Path(suite.options.build).resolve() / "tests/ir/tgtool", "-d", arch, "-s", ".", "cuda", "net.opts", "net.tg"], cwd=folder))
    return (folder / "net.cu").read_text()


def build(folder):
    T.build_shared(folder / "net.c", "-ldl")
    cuda.text_of(folder / "net.cu")


def tensors(m, n, k, end, seed=1):
    random = np.random.default_rng(seed)
    shape = {"a": (m, k), "b": (k, n), "d": (n,), "r": (m, n)}
    return {name: random.standard_normal(s).astype(np.float16) for name, s in shape.items() if name in "ab" or f"%{name}" in end}


def product(device, folder, form, m, n, k, parts, end):
    """Two contexts, three runs, of which two have the same numbers: the same bits."""
    text = by_opts(folder, form, m, n, k, parts, end)
    expect(re.search(rf"ticket\(&counter\[[^;]*\], {parts}\)", text), text)
    build(folder)
    with device.watch(f"arch={FORMS[form][0].strip('sm_a')}"):
        one, two = (Library(folder / "net.so", "net") for _ in range(2))
        got = []
        for library, seed in ((one, 1), (two, 2), (one, 1)):
            x = tensors(m, n, k, end, seed)
            got.append(library.run(x, {})["y"].copy())
            y = got[-1].astype(np.float32)
            expect(np.allclose(y, expected(x, end), rtol=4e-3, atol=6e-2), f"off by {np.abs(y - expected(x, end)).max()}")
        expect(np.array_equal(got[0].view(np.uint16), got[2].view(np.uint16)), "other bits in another run")
        del one, two, library
        gc.collect()


def chosen(device, folder, text, arch, options, parts):
    """What the model takes: one launch, with a ticket, or none; three runs of the program's own check."""
    kernels = write(folder, text, arch, options)
    found = re.findall(r"= ticket\(&counter\w*\[[^;]*\], (\d+)\);", kernels)
    expect(bool(found) == parts, f"parts: {found}")
    T.build(folder / "net.c", folder / "net")
    env = emulator.cuda_environment(suite.options.build, folder / "net.cu", cache=folder / "kernels", device=f"arch={arch.strip('sm_a')}")
    for _ in range(2):
        done = T.run([folder / "net", "--selftest"], env=env, timeout=120)
        expect(done.status == 0 and not done.err, done.describe())
    said = T.must(T.run([cuda.ptxas(), "-v", f"--gpu-name={arch}", "net.ptx", "-o", "net.cubin"], cwd=folder, timeout=300))
    said = said.out.decode() + said.err
    found = re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", said)
    expect(found and all(pair == ("0", "0") for pair in found), said)
    ptx = (folder / "net.ptx").read_text()
    expect(all((word in ptx) == parts for word in ("atom.global.inc.u32", "membar.gl")) or "fence" in ptx, "no atomic operation, or no fence")


BROKEN = [("no fence before the count", r"__threadfence\(\);\s*(last = atomicInc)", r"\1", "race"),
          ("no fence behind the count", r"(last = atomicInc[^;]*;)\s*__threadfence\(\);", r"\1", "race"),
          ("no barrier before the fence", r"(int last = 0;\s*)__syncthreads\(\);", r"\1", "race"),
          ("each block adds", r"last = atomicInc[^;]*;", "last = 1;", "race|nobody has written"),
          ("the first block adds", r"(last = atomicInc[^=]*==) n - 1", r"\1 0", "race|nobody has written"),
          ("a counter is left", r"atomicInc\(counter, n - 1\)", "atomicInc(counter, n)", "a counter of blocks is not 0")]


def broken(device, folder, pattern, by, words):
    text = by_opts(folder, "tiles", 64, 32, 96, 3)
    wrong = re.sub(pattern, by, text)
    expect(wrong != text, f"no {pattern} in {text}")
    (folder / "net.cu").write_text(wrong)
    (folder / "net.c").write_text(of_text((folder / "net.c").read_text(), text, wrong))
    build(folder)
    device.begin("arch=80")
    Library(folder / "net.so", "net").run(tensors(64, 32, 96, BIAS), {}, FAILED)
    gc.collect()
    found = device.found()
    expect(any(re.search(words, line) for line in found), f"{words}: {found[:4]}")


def begun(device, folder):
    """Counters that nobody has set to 0 are found."""
    by_opts(folder, "tiles", 64, 32, 96, 3)
    (folder / "net.c").write_text((folder / "net.c").read_text().replace("status = begin_counters(self);", ""))
    T.build_shared(folder / "net.c", "-w", "-ldl")
    cuda.text_of(folder / "net.cu")
    device.begin("arch=80")
    Library(folder / "net.so", "net").run(tensors(64, 32, 96, BIAS), {}, FAILED)
    gc.collect()
    expect(any("nobody has written" in line for line in device.found()), "nothing is found")


def main():
    suite.parse()
    scratch = T.scratch(Path(suite.options.build).resolve() / "test-scratch" / "tickets")
    device = emulator.Device(suite.options.build, scratch, emulator.cuda_library)
    for form, end, m, n, k, parts in (("tiles", BIAS, 64, 32, 96, 3), ("tiles", RESIDUAL, 70, 40, 128, 4), ("tiles", PLAIN, 33, 24, 160, 2),
                                      ("panels", BIAS, 70, 72, 512, 4), ("panels", RESIDUAL, 128, 80, 384, 3), ("each", RESIDUAL, 19, 21, 60, 5)):
        name = {BIAS: "a bias", RESIDUAL: "a function and a residual", PLAIN: "nothing"}[end]
        suite.add(f"{form}, {m} x {n} x {k} in {parts} parts, with {name}", product, device, scratch / f"{form}-{m}", form, m, n, k, parts, end)
    for number, (name, text, arch, options, parts) in enumerate((
            ("a convolution of 7 x 7", WINDOW.format(c=256, o=128, size=3, h=7, w=7, stride=1, padding=1).replace("f16[2,", "f16[1,"), "sm_90a", (), True),
            ("convolutions with a border", BORDER, "sm_90a", (), True),
            ("16 rows", GEMM.format(m=16, n=128, k=4096, dtype="f16", end=BIAS, batch=""), "sm_90a", (), True),
            ("16 rows, sm_80", GEMM.format(m=16, n=128, k=4096, dtype="f16", end=BIAS, batch=""), "sm_80", (), True),
            ("bytes", BYTES.format(m=32, n=64, k=4096), "sm_80", (), True),
            ("short sums", GEMM.format(m=256, n=256, k=64, dtype="f16", end=BIAS, batch=""), "sm_80", (), False))):
        suite.add(f"chosen: {name}", chosen, device, scratch / f"chosen{number}", "".join(f"{line}\n" for line in text.splitlines() if not line.startswith("input %r")), arch, options, parts)
    for number, (name, pattern, by, words) in enumerate(BROKEN):
        suite.add(f"broken: {name}", broken, device, scratch / f"broken{number}", pattern, by, words)
    suite.add("broken: counters that do not begin", begun, device, scratch / "begun")
    suite.main()


if __name__ == "__main__":
    main()
