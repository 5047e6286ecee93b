"""Convolutions by Winograd's tiles on devices: right on the emulated ones, and chosen where the device's model says that they gain.

Layers that the emulated device runs in seconds are too small to gain, so a tune file asks for tiles of each size: odd images, batches, groups,
dilations, one axis; and what follows element by element, which is to be computed where the tiles are stored. Results are the C target's without
tiles. What the model chooses is read from tgc info, of layers as networks have them.
"""

import gc
import json
import re
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "lib")]

import emulator
import sizes_test as S
import tgc as T
from library import Library
from suite import Suite, expect

suite = Suite("device-winograd", jobs=1)       # the device is one of the process


def conv(x, y, channels, out, more="padding=1", taps="3, 3", seed=1):
    return (f"weight %{y}_w : f32[{out}, {channels}, {taps}] = normal(std=0.1, seed={seed})\nweight %{y}_b : f32[{out}] = normal(seed={seed + 1})\n"
            f"%{y} = conv2d(%{x}, %{y}_w, %{y}_b) {{{more}}}\n")


def network(channels, size):
    """A residual block; its result is padded, pooled and read twice."""
    return (f"input %x : f32[2, 8, {size}, {size}]\n" + conv("x", "a0", 8, channels) + "%a = relu(%a0)\n" + conv("a", "b0", channels, channels, seed=3) +
            "%b = relu(%b0)\n" + conv("b", "c0", channels, channels, seed=5) + "%c1 = add(%c0, %a)\n%c = relu(%c1)\n" +
            conv("c", "d0", channels, 16, "padding=0", "1, 1", seed=7) + conv("c", "e0", channels, 16, seed=9) + "%f = add(%d0, %e0)\n%y = sigmoid(%f)\n")


# name: text, kernels; None: as it comes
LAYERS = {
    "an odd image": ("input %x : f32[1, 9, 13, 11]\n" + conv("x", "c", 9, 10) + "%y = relu(%c)\n", 4),
    "whole tiles of a batch": ("input %x : f32[3, 8, 12, 12]\n" + conv("x", "c", 8, 16) + "%y = relu(%c)\n", 4),
    "one row of tiles": ("input %x : f32[2, 16, 3, 5]\n" + conv("x", "c", 16, 8) + "%y = leaky_relu(%c)\n", None),
    "no border": ("input %x : f32[1, 8, 14, 17]\n" + conv("x", "c", 8, 12, "padding=0") + "%y = tanh(%c)\n", 4),
    "groups": ("input %x : f32[2, 24, 9, 9]\n" + conv("x", "c", 8, 24, "padding=1, groups=3") + "%y = relu(%c)\n", 4),
    "a dilation": ("input %x : f32[1, 8, 15, 13]\n" + conv("x", "c", 8, 8, "padding=2, dilation=2") + "%y = relu(%c)\n", 4),
    "a batch that the run knows": ("input %x : f32[N<=3, 8, 10, 10]\n" + conv("x", "c", 8, 8) + "%y = relu(%c)\n", 4),
    "a residual network": (network(16, 11), None),
    "a residual network of whole tiles": (network(8, 24), None),
}
CHOSEN = (128, 28, 32)                              # channels, size, images


def compute(path, name):
    library, random = Library(path), np.random.default_rng(1)
    sizes = {"N": 2} if "run knows" in name else {}
    shapes = {"x": tuple(sizes.get("N", n) if axis == 0 else n for axis, n in enumerate(library.info.inputs[0].bounds()))}
    feeds = {x: random.standard_normal(shape).astype(np.float32) for x, shape in shapes.items()}
    return library.run(feeds, sizes)["y"].astype(np.float64)


def taken(text):
    return re.findall(r"^winograd: .* taken: ([0-9x]+)$", text, re.M)


def asked(tgc, folder, options, side):
    """A tune file that asks for these tiles wherever they fit, the lines of other kinds left out."""
    done = T.must(T.run([tgc, "info", folder / "net.tg", "--why", "--json", *options]))
    lines = [c["taken"] for c in json.loads(done.out)["choices"] if c["taken"].startswith("winograd ")]
    expect(lines, "no layer was weighed")
    (folder / "net.tune").write_text("tgc-tune 3\n" + "".join(re.sub(r"side=\S+.*", f"side={side}\n", line) for line in sorted(set(lines))))
    return f"--tune={folder / 'net.tune'}"


def emulated(devices, tgc, scratch, name, row, side):
    target, cpu, facts = row
    text, kernels = LAYERS[name]
    folder = T.scratch(scratch / re.sub(r"\W+", "_", f"{name} {cpu} {side}"))
    (folder / "net.tg").write_text(f"tg 1\n{text}output %y\n")
    want = compute(S.built(tgc, folder, "c", "--no-winograd"), name)
    options = (f"--target={target}", f"--cpu={cpu}")
    options = (*options, asked(tgc, folder, options, side))
    info = T.must(T.run([tgc, "info", folder / "net.tg", "--json", *options], env={"DEBUG": "2"}))
    expect(str(side) in taken(info.err), f"tiles of {side} were asked for, there are {taken(info.err)}")
    launches = json.loads(info.out)["device"]["launches"]
    expect(kernels in (None, launches), f"{launches} launches, not {kernels}: an epilogue of its own?")
    with T.environment(**emulator.stand_ins(suite.options.build)):
        library = S.built(tgc, folder, target, *options[1:])
    if target not in devices:
        devices[target] = emulator.Device(suite.options.build, scratch, S.LIBRARIES[target])
    with devices[target].watch(facts):
        got = compute(library, name)
        gc.collect()
    expect(np.abs(want - got).max() <= 2e-5 * np.abs(want).max(), f"off by {np.abs(want - got).max()}, of {np.abs(want).max()}")


def told(tgc, folder, channels, size, images, *options):
    """What is taken for a layer, the launches, and the reasons."""
    (folder / "net.tg").write_text(f"tg 1\ninput %x : f32[{images}, {channels}, {size}, {size}]\n" + conv("x", "c", channels, channels) + "%y = relu(%c)\noutput %y\n")
    done = T.must(T.run([tgc, "info", folder / "net.tg", "--why", *options], env={"DEBUG": "2"}))
    said = done.out.decode()
    return taken(done.err), int(re.search(r"(\d+) launches", said)[1]), said


def chosen(tgc, scratch):
    """Where it gains, by each target's rows; and why not elsewhere."""
    folder = T.scratch(scratch / "chosen")
    for target, cpu in (("cuda", "sm_90a"), ("cuda", "sm_80"), ("opencl", "generic-gpu"), ("opencl", "adreno630"), ("amd", "gfx90a"), ("metal", "m1")):
        row = (f"--target={target}", f"--cpu={cpu}")
        tiles, launches, why = told(tgc, folder, *CHOSEN, *row)
        expect(tiles == ["4"] and 3 <= launches <= 4, f"{cpu}: tiles {tiles} in {launches} launches")
        expect("Winograd, tiles of 4" in why and "error: about" in why, f"{cpu}: {why}")
        tiles, launches, why = told(tgc, folder, 16, 8, 1, *row)
        expect(tiles == ["0"] and "sums of products" in why, f"{cpu}, a small layer: tiles {tiles}, {why}")
    row = ("--target=cuda", "--cpu=sm_90a")
    for options in (("--error=0",), ("--no-winograd",), ("--math=tf32",), ("--half-storage",), ("-O0",)):
        tiles, launches, _ = told(tgc, folder, *CHOSEN, *row, *options)
        expect(not any(t != "0" for t in tiles), f"{options}: tiles {tiles}")


def main():
    suite.parse()
    build = Path(suite.options.build).resolve()
    tgc, scratch, devices = build / "cli/tgc", T.scratch(build / "test-scratch" / "device-winograd"), {}
    suite.add("chosen where it gains", chosen, tgc, scratch)
    rows = S.ROWS[:4]
    for number, name in enumerate(LAYERS):
        for at, row in enumerate(rows):
            for side in (2, 4, 6):
                quick = (number + at) % 4 == 0 and side == (4, 2, 4, 6)[(number + at // 4) % 4]
                suite.add(f"{name}, tiles of {side}, {row[1]}", emulated, devices, tgc, scratch, name, row, side, slow=not quick)
    suite.main()


if __name__ == "__main__":
    main()
