"""Schedules of devices: products, convolutions, rows and attention as grids of threads and blocks, with sizes that no block divides,
and sizes that only a run knows, compute what the C target's programs do.

Each on the emulated device, whose checks find races and accesses out of bounds, by both rows of GPUs. What the passes chose is read off the
kernels: local memory and barriers where they pay, none where they do not, and no parts of one loop.
"""

import re
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/lib"))
import emulator  # noqa: E402
import tgc as T  # noqa: E402
from library import Library  # noqa: E402
from suite import Suite, expect  # noqa: E402

suite = Suite("grid", jobs=1)       # the device is one of the process
# name: text, sizes of a run, whether generic-gpu's kernels have local memory; None: as they like
NETS = {
    "a product": ("input %a : f32[64, 96]\ninput %b : f32[96, 64]\n%y = matmul(%a, %b)\n", {}, True),
    "a product of odd sizes": ("input %a : f32[37, 50]\ninput %b : f32[50, 29]\n%y = matmul(%a, %b)\n", {}, None),
    "products of a run's rows": ("input %a : f32[N<=90, 48]\nweight %w : f32[33, 48] = normal(seed=1)\nweight %b : f32[33] = normal(seed=2)\n"
                                 "%y = linear(%a, %w, %b)\n", {"N": 51}, None),
    "a batch of products": ("input %a : f32[3, 2, 24, 16]\ninput %b : f32[3, 2, 16, 40]\n%y = matmul(%a, %b)\n", {}, None),
    "one row": ("input %a : f32[1, 300]\nweight %w : f32[70, 300] = normal(seed=1)\nweight %b : f32[70] = normal(seed=2)\n%y = linear(%a, %w, %b)\n", {}, True),
    "a convolution": ("input %x : f32[1, 16, 14, 14]\nweight %w : f32[24, 16, 3, 3] = normal(seed=1)\nweight %b : f32[24] = normal(seed=2)\n"
                      "%y = conv2d(%x, %w, %b) {padding=1}\n", {}, None),
    "a convolution of a run's batch": ("input %x : f32[B<=3, 5, 9, 11]\nweight %w : f32[7, 5, 3, 3] = normal(seed=1)\nweight %b : f32[7] = normal(seed=2)\n"
                                       "%c = conv2d(%x, %w, %b) {padding=1, stride=2}\n%y = relu(%c)\n", {"B": 2}, None),
    "softmax": ("input %x : f32[7, 300]\n%y = softmax(%x) {axis=-1}\n", {}, True),
    "softmax of a run's columns": ("input %x : f32[5, N<=200]\n%y = softmax(%x) {axis=-1}\n", {"N": 131}, True),
    "layer norm": ("input %x : f32[9, 150]\nweight %s : f32[150] = normal(seed=1)\nweight %b : f32[150] = normal(seed=2)\n%y = layer_norm(%x, %s, %b) {axis=-1, eps=1e-5}\n",
                   {}, True),
    "attention": ("input %q : f32[2, 2, 20, 16]\ninput %k : f32[2, 2, 33, 16]\ninput %v : f32[2, 2, 33, 16]\n%y = attention(%q, %k, %v)\n", {}, True),
    "causal attention of a run's length": ("input %q : f32[2, T<=40, 16]\ninput %k : f32[2, T, 16]\ninput %v : f32[2, T, 16]\n"
                                           "%y = attention(%q, %k, %v) {causal=true}\n", {"T": 27}, None),
    "attention of more keys than rows fit": ("input %q : f32[1, 16, 8]\ninput %k : f32[1, 5000, 8]\ninput %v : f32[1, 5000, 12]\n%y = attention(%q, %k, %v)\n", {}, True),
    "attention in a window": ("input %q : f32[2, 3, T<=150, 16]\ninput %k : f32[2, 3, T, 16]\ninput %v : f32[2, 3, T, 16]\n"
                              "%y = attention(%q, %k, %v) {causal=true, window=20}\n", {"T": 133}, True),
    "attention with a mask that hides by numbers": ("input %q : f32[6, 40, 16]\ninput %k : f32[6, 300, 16]\ninput %v : f32[6, 300, 20]\ninput %m : f32[40, 300]\n"
                                                    "%y0 = attention(%q, %k, %v, %m)\n%y = gelu(%y0)\n", {}, True),
    "a chain of elementwise ops": ("input %x : f32[3, 5, 77]\n%a = exp(%x)\n%b = tanh(%a)\n%y = mul(%b, %x)\n", {}, False),
}

BLOCKS = ("attention of more keys than rows fit", "attention in a window", "attention with a mask that hides by numbers")     # of keys


def built(tgc, folder, text, target, *flags):
    place = folder / target
    place.mkdir(parents=True, exist_ok=True)
    (place / "net.tg").write_text(f"tg 1\n{text}output %y\n")
    T.must(T.run([tgc, "net.tg", "-o", "net.c", f"--target={target}", *flags], cwd=place))
    T.must(T.run(["gcc", "-O1", "-shared", "-fPIC", "net.c", "-o", "net.so", "-lm", "-ldl"], cwd=place))
    return place


def inputs(library, sizes):
    random = np.random.default_rng(1)
    shape = [[d.size if not d.symbol else sizes[d.symbol.decode()] for d in (t.dim[a] for a in range(t.rank))]
             for t in (library.info.inputs[k] for k in range(library.info.input_count))]
    return {library.info.inputs[k].name.decode(): random.standard_normal(s).astype(np.float32) for k, s in enumerate(shape)}


def compute(place, sizes):
    library = Library(place / "net.so")
    feeds = inputs(library, sizes)
    return list(library.run(feeds, sizes).values())[0].copy()


def check(tgc, scratch, name, row):
    text, sizes, local = NETS[name]
    folder = T.scratch(scratch / re.sub(r"\W+", "_", f"{name} {row}"))
    want = compute(built(tgc, folder, text, "c"), sizes)
    place = built(tgc, folder, text, "opencl", f"--cpu={row}")
    source = (place / "net.c").read_text()
    expect("parts = (uint)" not in source, "a kernel goes by parts of one loop")
    if local is not None and row == "generic-gpu":
        expect(("local float " in source) == local and ("barrier(" in source) == local, "local memory, or none")
    expect(name not in BLOCKS or "int span = 0; span <" in source, "no blocks of keys")
    return want, place, sizes


def compare(want, got):
    expect(np.allclose(want, got, rtol=1e-4, atol=1e-4), f"off by {np.abs(want - got).max()}")


def emulated(device, tgc, scratch, name, row):
    want, place, sizes = check(tgc, scratch, name, row)
    with device.watch():
        compare(want, compute(place, sizes))


def main():
    suite.parse()
    build = Path(suite.options.build).resolve()
    tgc, scratch = build / "cli/tgc", T.scratch(build / "test-scratch" / "grid")
    device = emulator.Device(build, scratch)
    for name in NETS:
        for row in ("generic-gpu", "adreno630"):
            suite.add(f"{name}, {row}", emulated, device, tgc, scratch, name, row)
    suite.main()


if __name__ == "__main__":
    main()
