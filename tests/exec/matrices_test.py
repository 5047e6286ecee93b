"""Products, convolutions and attention of random sizes by the devices that have matrix instructions, on the emulated device, beside what the C
target's programs compute: sizes that tiles do not divide, batches, weights by rows and columns, epilogues, sums longer than one block's; elements of
16 bits, bytes, and floats that --math lets them be rounded. Quick: one program for each row of devices."""

import gc
import shutil
import sys
from pathlib import Path
from random import Random

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "lib")]

import amd
import cuda
import emulator
import grid_test as R
import tgc as T
from library import Library
from suite import Suite, expect

suite = Suite("matrices", jobs=1)       # the device is one of the process
# target, row, what the emulated device is told of itself
ROWS = [("cuda", "sm_80", "arch=80"), ("cuda", "sm_90a", "arch=90"), ("amd", "gfx90a", "version=gfx90a"), ("amd", "gfx942", "version=gfx942"),
        ("amd", "gfx1100", "version=gfx1100"), ("amd", "gfx1201", "version=gfx1201"), ("metal", "m1", "")]
# the kernels' text, which the emulator needs, and where it looks for it
TEXTS = {"cuda": ("cu", cuda.text_of), "amd": ("hip", amd.text_of)}
LIBRARIES = {"cuda": emulator.cuda_library, "amd": emulator.amd_library, "metal": emulator.metal_library}
# elements, options, and how far a result may be off, of the largest one
WAYS = [("f16", (), 2e-3), ("bf16", (), 1.6e-2), ("f32", ("--math=f16",), 4e-3), ("f32", ("--math=bf16",), 3e-2), ("bytes", (), 2e-5), ("f32", (), 2e-5),
        ("f16", ("--vectors=always",), 2e-3), ("f32", ("--math=tf32",), 4e-3)]
LACKS = {("metal", "bf16"), ("metal", "--math=tf32"), ("amd", "--math=tf32")}         # which these refuse
PROGRAMS = 40


def random_attention(random, k):
    heads, length, keys, size = random.choice([1, 2, 3]), random.choice(R.SIZES[:26]), random.choice(R.SIZES[:30]), random.choice([8, 16, 24, 32, 40, 64])
    causal = " {causal=true}" if random.random() < 0.3 and length <= keys else ""
    return (f"input %q{k} : f32[2, {heads}, {length}, {size}]\ninput %k{k} : f32[2, {heads}, {keys}, {size}]\n"
            f"input %v{k} : f32[2, {heads}, {keys}, {size}]\n%y{k} = attention(%q{k}, %k{k}, %v{k}){causal}\n")


def text_of(random, elements):
    """Some of each kind, and an output of each."""
    kinds = (R.random_bytes,) if elements == "bytes" else (R.random_product, R.random_product, R.random_convolution, random_attention)
    parts = [random.choice(kinds)(random, k) for k in range(3)]
    text = "".join(parts) + "".join(f"output %y{k}\n" for k in range(len(parts)))
    return text if elements == "bytes" else text.replace(" f32[", f" {elements}[")


def as_elements(values, dtype):
    if dtype == "bf16":
        return (values.view(np.uint32) >> 16).astype(np.uint16)
    return values.astype({"f16": np.float16, "f32": np.float32}[dtype])


def as_floats(values):
    """Those of 16 bits that NumPy has no floats for are bf16."""
    return (values.astype(np.uint32) << 16).view(np.float32) if values.dtype == np.uint16 else values.astype(np.float64)


def compute(path):
    library, random = Library(path), np.random.default_rng(1)
    tensors = [library.info.inputs[k] for k in range(library.info.input_count)]
    feeds = {t.name.decode(): as_elements(random.standard_normal(t.bounds()).astype(np.float32), t.dtype.decode()) for t in tensors}
    return {name: as_floats(values) for name, values in library.run(feeds).items()}


def built(tgc, folder, target, *options):
    place = T.scratch(folder / target)
    outs = ["net.c", *([f"net.{TEXTS[target][0]}"] if target in TEXTS else [])]
    for out in outs:
        T.must(T.run([tgc, folder / "net.tg", "-o", out, f"--target={target}", *options], cwd=place))
    T.build_shared(place / "net.c", *emulator.METAL_FLAGS, "-lm", "-ldl")
    if target in TEXTS:
        TEXTS[target][1](place / outs[1])
    return place / "net.so"


def at_random(devices, tgc, scratch, seed, row, way):
    target, cpu, facts = row
    elements, options, off = way
    folder = T.scratch(scratch / f"{seed}-{cpu}")
    text = text_of(Random(seed), elements)
    (folder / "net.tg").write_text(f"tg 1\n{text}")
    want = compute(built(tgc, folder, "c", *(o for o in options if not o.startswith("--math"))))
    build = suite.options.build
    with T.environment(**emulator.stand_ins(build)):
        library = built(tgc, folder, target, f"--cpu={cpu}", *options)
    if target not in devices:
        devices[target] = emulator.Device(build, scratch, LIBRARIES[target])
    with devices[target].watch(facts):
        got = compute(library)
        gc.collect()
    for name, values in want.items():
        scale = np.abs(values).max(initial=0) or 1
        expect(np.abs(values - got[name]).max(initial=0) <= off * scale, f"{name} is off by {np.abs(values - got[name]).max()}, of {scale}:\n{text}")
    shutil.rmtree(folder)


def main():
    suite.parse()
    build = Path(suite.options.build).resolve()
    tgc, scratch, devices = build / "cli/tgc", T.scratch(build / "test-scratch" / "matrices"), {}
    for seed in range(PROGRAMS):
        for number, row in enumerate(ROWS):
            elements, options, _ = way = WAYS[(seed + number) % len(WAYS)]
            if not {(row[0], elements), *((row[0], option) for option in options)} & LACKS:
                suite.add(f"three at random, {seed}: {' '.join((row[1], elements, *options))}", at_random, devices, tgc, scratch, seed, row, way, slow=seed > 0)
    suite.main()


if __name__ == "__main__":
    main()
