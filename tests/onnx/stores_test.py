"""What blocks of a product store: results that go through local memory, and leave as vectors of neighbours (opts STAGE_EPILOGUE, ALIAS_EPILOGUE), on the emulated
device, beside NumPy; assembled without a register in memory. Kernels that are broken are found: one whose threads store before all others have read
the copies whose memory it is, or load what nobody has stored yet."""

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
from cuda_test import of_text
from library import Library
from suite import Suite, expect

FAILED = 11
suite = Suite("stores", jobs=1)    # the device is one of the process
# The product alone; with what all rows share; with what is added to each element, and a function.
PLAIN, BIAS, RESIDUAL = "%y = cast(%c) {{to={dtype}}}\n", "%y = add(%c, %d)\n", "%e = add(%c, %d)\n%s = sigmoid(%e)\n%y = add(%s, %r)\n"
GEMM = """tg 1
input %a : {dtype}[{batch}{m}, {k}]
input %b : {dtype}[{batch}{k}, {n}]
input %d : {dtype}[{n}]
input %r : {dtype}[{batch}{m}, {n}]
%c = matmul(%a, %b)
{end}output %y as "y"
"""


# Blocks of 32 x 16, two waves of rows, whose copies have one part; of 64 x 64 by four waves, which read copies in panels themselves. The threads
# that store have so many columns each, of so many rows at a time.
TILE = """cover 0 axis=0 n=32
cover 0 axis=2 n=16
stage_epilogue {what} axis=1 n=8 to=3
divide 0 axis=2 n=16
divide 0 axis=4 n=8
grid 0 axis=0
grid 0 axis=1
item 0 axis=2
lanes 0 axis=4 n=2 kind=lane as=column
cover 0.sum0 axis=0 n=16
mma 0.sum0 axis=3 to=4 by=m16n8k16_{dtype}
stage_operand 0.sum0 axis=0 n=8 to=2 operand=0
stage_operand 0.sum0 axis=0 n=8 to={pair} operand=1
"""
PANELS = """cover 0 axis=0 n=64
cover 0 axis=2 n=64
stage_epilogue {what} axis=1 n=8 to=3
grid 0 axis=0
grid 0 axis=1
cover 0.sum0 axis=0 n=64
divide 0.sum0 axis=1 n=16
mma 0.sum0 axis=2 to=3 by=m64n64k16_{dtype}
stage_operand 0.sum0 axis=0 n=0 to=0 operand=0
stage_operand 0.sum0 axis=0 n=0 to=0 operand=1
swizzle 0.sum0 n=64 operand=0
swizzle 0.sum0 n=64 operand=1
pipeline 0.sum0 n={parts} how=bulk
"""
SECOND = "grid 1 axis=0\ngrid 1 axis=1\nitem 1 axis=3\n"


def opts(arch, n, end, dtype="f16", parts=2):
    rows, columns, threads = (64, 64, 128) if arch == "sm_90a" else (32, 16, 64)
    width = next(w for w in (8, 4, 2, 1) if n % w == 0)
    at_once = threads * width // columns
    lanes = f"divide 1 axis=3 n={width}\nlanes 1 axis=4 n={width} kind=lane as=column\n" if width > 1 else ""
    items = f"divide 1 axis=2 n={at_once}\nitem 1 axis=3\n" if at_once < rows else "item 1 axis=2\n"
    first = (PANELS if arch == "sm_90a" else TILE).format(what="0" if end == PLAIN else "0.sum0", dtype=dtype, pair=2 - n % 2, parts=parts)
    return first + lanes + SECOND + items + "alias_epilogue 0\n"


def tgtool(folder, arch, n, end, dtype="f16", parts=2):
    (folder / "net.opts").write_text(opts(arch, n, end, dtype, parts))
    T.must(T.run([Path(suite.options.build).resolve() / "tests/ir/tgtool", "-d", arch, "-s", ".", "cuda", "net.opts", "net.tg"], cwd=folder))
    return (folder / "net.cu").read_text()


def emit(folder, m, n, k, arch="sm_90a", dtype="f16", end=BIAS, batch=0):
    T.scratch(folder)
    cuda.need_nvrtc()
    text = GEMM.format(m=m, n=n, k=k, dtype=dtype, end=end.format(dtype=dtype), batch=f"{batch}, " if batch else "")
    unused = {"d": "%d" not in end, "r": "%r" not in end}
    (folder / "net.tg").write_text("".join(line + "\n" for line in text.splitlines() if not any(u and line.startswith(f"input %{name} ") for name, u in unused.items())))
    for out in ("net.c", "net.cu", "net.ptx"):
        T.must(T.run([T.find_tgc(suite.options.build), "net.tg", "-o", out, "--name=net", "--target=cuda", f"--cpu={arch}"], cwd=folder, timeout=120))
    return (folder / "net.cu").read_text()


def build(folder):
    T.build_shared(folder / "net.c", "-ldl")


def tensors(m, n, k, end, batch):
    random = np.random.default_rng(1)
    shape = {"a": (m, k), "b": (k, n), "d": (n,), "r": (m, n)}
    if batch:
        shape = {name: s if name == "d" else (batch, *s) for name, s in shape.items()}
    return {name: random.standard_normal(s).astype(np.float16) for name, s in shape.items() if name in "ab" or f"%{name}" in end}


def expected(x, end):
    c = x["a"].astype(np.float32) @ x["b"].astype(np.float32)
    if end != PLAIN:
        c = c + x["d"].astype(np.float32)
    return c if end != RESIDUAL else 1 / (1 + np.exp(-c)) + x["r"].astype(np.float32)


def run(folder, m, n, k, end, batch=0, status=0):
    x = tensors(m, n, k, end, batch)
    cuda.text_of(folder / "net.cu")
    got = Library(folder / "net.so", "net").run(x, {}, status)["y"].astype(np.float32)
    expect(status or np.allclose(got, expected(x, end), rtol=4e-3, atol=4e-2), f"off by {np.abs(got - expected(x, end)).max()}")


def product(device, folder, m, n, k, arch, end, words, parts=2):
    emit(folder, m, n, k, arch, end=end)
    text = tgtool(folder, arch, n, end, parts=parts)
    for word in words:
        expect(word in text, f"no {word}")
    build(folder)
    with device.watch(f"arch={arch.strip('sm_a')}"):
        run(folder, m, n, k, end)
        gc.collect()


def chosen(device, folder, arch, m, n, k, end, batch, words=()):
    """Whatever the model takes, of batches, and where an engine stores boxes."""
    text = emit(folder, m, n, k, arch, end=end, batch=batch)
    for word in words:
        expect(word in text, f"no {word}")
    build(folder)
    with device.watch(f"arch={arch.strip('sm_a')}"):
        run(folder, m, n, k, end, batch)
        gc.collect()


def by_model(folder):
    """Products whose blocks do not go through places leave so; not one of few results in one block."""
    T.scratch(folder)
    for size, through in ((4096, True), (16, False)):
        (folder / "net.tg").write_text(GEMM.format(m=size, n=size, k=size, dtype="f16", end=RESIDUAL, batch=""))
        why = T.must(T.run([T.find_tgc(suite.options.build), "info", "--why", "net.tg", "--target=cuda", "--cpu=sm_80"], cwd=folder)).out.decode()
        expect(("stage_epilogue 0.sum0 " in why and "alias_epilogue 0" in why) == through, why)


def assembled(folder, arch, dtype, end):
    emit(folder, 512, 512, 512, arch, dtype, end)
    tgtool(folder, arch, 512, end, dtype)
    said = T.must(T.run([cuda.ptxas(), "-v", f"--gpu-name={arch}", "net.ptx", "-o", "net.cubin"], cwd=folder, timeout=300))
    text = said.out.decode() + said.err
    found = re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", text)
    expect(found and all(pair == ("0", "0") for pair in found) and not re.search("serialized|injected", text), text)
    expect(re.search(r"st\.global\.v4", (folder / "net.ptx").read_text()), "no vectors are stored")


# The barrier before the block's results are stored where copies were; the one behind.
BROKEN = [("copies are read yet", r"(    __syncthreads\(\);\n)(    #pragma unroll\n(?:(?!__syncthreads).*\n)*?.*put[48]\(&tile\w*\[)", r"\2", "race"),
          ("nobody has stored yet", r"(put[48]\(&tile\w*\[[^;]*;\n(?:    +\}\n)*)    __syncthreads\(\);\n", r"\1", "race")]


def broken(device, folder, pattern, by, words):
    emit(folder, 64, 32, 48, "sm_80", end=BIAS)
    text = tgtool(folder, "sm_80", 32, BIAS)
    wrong = re.sub(pattern, by, text)
    expect(wrong != text, f"no {pattern} in {text}")
    (folder / "net.cu").write_text(wrong)
    (folder / "net.c").write_text(of_text((folder / "net.c").read_text(), text, wrong))
    build(folder)
    device.begin("arch=80")
    run(folder, 64, 32, 48, BIAS, status=FAILED)
    gc.collect()
    found = device.found()
    expect(any(words in line for line in found), f"{words}: {found[:4]}")


def main():
    suite.parse()
    scratch = T.scratch(Path(suite.options.build).resolve() / "test-scratch" / "stores")
    device = emulator.Device(suite.options.build, scratch, emulator.cuda_library)
    ends = {"plain": PLAIN, "bias": BIAS, "residual": RESIDUAL}
    for arch in ("sm_80", "sm_90a"):
        for m, n, k, end, words in [(70, 72, 40, "plain", ["move16("]), (66, 32, 48, "bias", ["get16(", "put16("]), (99, 136, 72, "residual", ["get16(", "put16("]),
                                    *([(33, 41, 24, "residual", []), (35, 44, 26, "bias", ["put8("])] if arch == "sm_80" else [])]:
            k, n = (k + 96, n + 64) if arch == "sm_90a" else (k, n)      # two steps, two blocks at least
            suite.add(f"{arch}, {end}: {m} x {n} x {k}", product, device, scratch / f"{arch}-{m}", m, n, k, arch, ends[end], words)
        if arch == "sm_90a":
            suite.add("memory that the launch names", product, device, scratch / "launched", 70, 136, 264, arch, BIAS, ["BLOCK_ARRAY(unsigned char, memory, 65536, 0)"], 4)
        suite.add(f"{arch}: batches", chosen, device, scratch / f"{arch}-batches", arch, 130, 132, 72, BIAS, 2)
        for dtype in ("f16", "bf16"):
            for end in ends if dtype == "f16" else ("bias",):
                suite.add(f"ptxas: {arch}, {dtype}, {end}", assembled, scratch / f"ptx-{arch}-{dtype}-{end}", arch, dtype, ends[end])
    for arch in ("sm_90a", "sm_120"):
        suite.add(f"boxes, chosen: {arch}", chosen, device, scratch / f"boxes-{arch}", arch, 500, 520, 72, PLAIN, 0, ["bulk_store(&"])
    suite.add("what the model takes", by_model, scratch / "model")
    for number, (name, pattern, by, words) in enumerate(BROKEN):
        suite.add(f"broken: {name}", broken, device, scratch / f"broken{number}", pattern, by, words)
    suite.main()


if __name__ == "__main__":
    main()
