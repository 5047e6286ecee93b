"""Products, convolutions, attention, rows and layers of random sizes by each row of devices, on the emulated one, beside what the C target's programs
compute: sizes that tiles do not divide, batches, weights by rows and columns, epilogues, sums longer than one block's; elements of 16 bits, bytes, and
floats that --math lets them be rounded. Random graphs (tests/fuzz/) have more operators, and tensors too small for local memory and matrix
instructions. Quick: one program for each row of devices."""

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

suite = Suite("sizes", jobs=1)       # the device is one of the process
# target, row, what the emulated device is told of itself
ROWS = [("cuda", "sm_80", "arch=80"), ("opencl", "generic-gpu", ""), ("amd", "gfx90a", "version=gfx90a"), ("metal", "m1", ""), ("cuda", "sm_90a", "arch=90"),
        ("opencl", "adreno630", ""), ("amd", "gfx1100", "version=gfx1100"), ("amd", "gfx942", "version=gfx942"), ("opencl", "intel-xe", "local=65536 subgroup=16"),
        ("cuda", "sm_120", "arch=120"), ("amd", "gfx1201", "version=gfx1201")]
# the kernels' text, which the emulator needs, and where it looks for it
TEXTS = {"cuda": ("cu", cuda.text_of), "amd": ("hip", amd.text_of)}
LIBRARIES = {"opencl": emulator.library, "cuda": emulator.cuda_library, "amd": emulator.amd_library, "metal": emulator.metal_library}
# elements, options, how far a result may be off, of the largest one, and the targets
ALL, MATH, IMAGES = ("opencl", "cuda", "amd", "metal"), ("cuda", "amd", "metal"), ("opencl",)
WAYS = [("f16", (), 2e-3, ALL), ("bf16", (), 1.6e-2, ("opencl", "cuda", "amd")), ("f32", ("--math=f16",), 4e-3, MATH), ("f32", (), 2e-5, ALL), ("bytes", (), 2e-5, ALL),
        ("f32", ("--math=bf16",), 3e-2, ("cuda", "amd")), ("f32", ("--image",), 2e-5, IMAGES), ("f32", ("--math=tf32",), 4e-3, ("cuda",)),
        ("f32", ("--image", "--half-storage"), 8e-3, IMAGES), ("f32", ("--no-locals",), 2e-5, ALL)]
PROGRAMS = 60


def random_attention(random, k):
    heads, length, keys, size = random.choice([1, 2, 3]), random.choice(R.SIZES[:26]), random.choice(R.SIZES[:30]), random.choice([8, 16, 24, 32, 40, 64])
    causal = " {causal=true}" if random.random() < 0.3 and length <= keys else ""
    return (f"input %q{k} : f32[2, {heads}, {length}, {size}]\ninput %k{k} : f32[2, {heads}, {keys}, {size}]\n"
            f"input %v{k} : f32[2, {heads}, {keys}, {size}]\n%y{k} = attention(%q{k}, %k{k}, %v{k}){causal}\n")


def random_rows(random, k):
    """Sums along an axis, by many threads or few."""
    rows, columns = random.choice(R.SIZES), random.choice(R.TERMS)
    first, axis = random.choice([(1, -1), (3, -1), (3, 1)])
    middle = random.choice([f"%s{k} = softmax(%x{k}) {{axis={axis}}}\n",
                            f"weight %a{k} : f32[{columns}] = normal(seed=1)\nweight %c{k} : f32[{columns}] = normal(seed=2)\n"
                            f"%s{k} = layer_norm(%x{k}, %a{k}, %c{k}) {{axis=-1, eps=1e-5}}\n",
                            f"%m{k} = reduce_mean(%x{k}) {{axes=[{axis}], keep=true}}\n%s{k} = sub(%x{k}, %m{k})\n"])
    end = random.choice([f"%y{k} = mul(%s{k}, %x{k})\n", f"%y{k} = reduce_max(%s{k}) {{axes=[{axis}], keep=true}}\n", f"%y{k} = add(%s{k}, %s{k})\n"])
    return f"input %x{k} : f32[{first}, {rows}, {columns}]\n{middle}{end}"


def random_layers(random, k):
    """Two products with what models have between and behind them."""
    rows, width, inner = random.choice(R.SIZES), random.choice(R.SIZES[8:]), random.choice(R.SIZES[8:])
    between = random.choice(["gelu", "relu", "tanh"])
    return (f"input %x{k} : f32[{rows}, {width}]\nweight %u{k} : f32[{inner}, {width}] = normal(std=0.2, seed={k + 1})\n"
            f"weight %v{k} : f32[{width}, {inner}] = normal(std=0.2, seed={k + 9})\nweight %b{k} : f32[{inner}] = normal(seed={k + 3})\n"
            f"weight %s{k} : f32[{width}] = normal(seed={k + 4})\n%n{k} = layer_norm(%x{k}, %s{k}, %s{k}) {{axis=-1, eps=1e-5}}\n"
            f"%h{k} = linear(%n{k}, %u{k}, %b{k})\n%g{k} = {between}(%h{k})\n%o{k} = linear(%g{k}, %v{k}, %s{k})\n%y{k} = add(%o{k}, %x{k})\n")


def text_of(random, elements):
    """Some of each kind, and an output of each."""
    kinds = (R.random_bytes,) if elements == "bytes" else \
        (R.random_product, R.random_product, R.random_convolution, random_attention, random_rows, random_layers)
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
        T.must(T.run([tgc, folder / "net.tg", "-o", out, f"--target={target}", *T.ARRAYS, *options], cwd=place))
    T.build_shared(place / "net.c", *emulator.METAL_FLAGS, "-lm", "-ldl")
    if target in TEXTS:
        TEXTS[target][1](place / outs[1])
    return place / "net.so"


def at_random(devices, tgc, scratch, seed, row, way):
    target, cpu, facts = row
    elements, options, off, _ = way
    folder = T.scratch(scratch / f"{seed}-{cpu}")
    text = text_of(Random(seed), elements)
    (folder / "net.tg").write_text(f"tg 1\n{text}")
    want = compute(built(tgc, folder, "c", "--cpu=generic"))
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
    tgc, scratch, devices = build / "cli/tgc", T.scratch(build / "test-scratch" / "sizes"), {}
    for seed in range(PROGRAMS):
        for number, row in enumerate(ROWS):
            elements, options, _, targets = way = WAYS[(seed + number) % len(WAYS)]
            if row[0] in targets:
                suite.add(f"three at random, {seed}: {' '.join((row[1], elements, *options))}", at_random, devices, tgc, scratch, seed, row, way, slow=seed > 0)
    suite.main()


if __name__ == "__main__":
    main()
