"""Attention's gradient by blocks of rows (passes/graph/block_rows*.c): right by C and LLVM and on the emulated devices, whatever the mask and however many
rows are left over; its memory is linear in the number of tokens; what a mask hides is not computed."""

import gc
import json
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "lib")]

import numpy as np

import emulator
import sizes_test as S
import tgc as T
from library import Library
from suite import Suite, expect

suite = Suite("block-rows", jobs=1)             # the device is one of the process
SMALL = "--cache=1K"                            # blocks of 16 rows

# name: heads, heads of keys, queries, keys, features, attributes, operands of a mask
CASES = {
    "whole blocks": (2, 2, 64, 64, 4, "", ""),
    "a row left over": (2, 1, 65, 64, 2, "", ""),
    "a prime number of queries": (1, 1, 67, 80, 3, "softcap=2.0", ""),
    "causal": (2, 2, 96, 96, 4, "causal=true", ""),
    "causal, some left over": (1, 1, 131, 131, 2, "causal=true", ""),
    "a window": (2, 2, 96, 96, 4, "causal=true, window=20", ""),
    "a window of one": (1, 1, 70, 70, 2, "causal=true, window=1", ""),
    "a window to both sides": (1, 1, 80, 80, 2, "window=9", ""),
    "groups of heads": (4, 2, 64, 48, 4, "", ""),
    "fewer queries than keys": (2, 2, 48, 112, 4, "causal=true", ""),
    "a mask that is data": (2, 2, 64, 64, 4, "", "bool"),
    "a bias that is data, and a mask": (2, 2, 64, 64, 4, "causal=true", "f32"),
}
ON_DEVICES = ("a row left over", "causal, some left over", "a window", "groups of heads", "a bias that is data, and a mask")


def text_of(name):
    h, hk, n, m, e, attributes, mask = CASES[name]
    third = f"input %m : {mask}[{n}, {m}]\n" if mask else ""
    return (f"input %q : f32[2, {h}, {n}, {e}]\ninput %k : f32[2, {hk}, {m}, {e}]\ninput %v : f32[2, {hk}, {m}, {e}]\n{third}"
            f"%y = attention(%q, %k, %v{', %m' if mask else ''}) {{{attributes}}}\n%loss = mul(%y, %y)\n%dq, %dk, %dv = gradient(%loss, %q, %k, %v)\n"
            "output %y\noutput %dq\noutput %dk\noutput %dv\n")


def feeds_of(name):
    h, hk, n, m, e, _, mask = CASES[name]
    random = np.random.default_rng(len(name))
    feeds = {x: random.standard_normal((2, heads, size, e)).astype(np.float32) for x, heads, size in (("q", h, n), ("k", hk, m), ("v", hk, m))}
    if mask:
        keep = random.random((n, m)) < 0.7
        keep[np.arange(n), np.minimum(np.arange(n), m - 1)] = True
        feeds["m"] = keep if mask == "bool" else random.standard_normal((n, m)).astype(np.float32)
    return feeds


def expected(name, feeds):
    """The attention and its derivatives in f64."""
    h, hk, n, m, e, attributes, mask = CASES[name]
    q, k, v = (feeds[x].astype(np.float64) for x in "qkv")
    k, v = (np.repeat(x, h // hk, axis=1) for x in (k, v))
    s = q @ k.swapaxes(2, 3) / np.sqrt(e)
    cap = re.search(r"softcap=([\d.]+)", attributes)
    slope = np.ones_like(s)
    if cap:
        s, slope = float(cap[1]) * np.tanh(s / float(cap[1])), 1 - np.tanh(s / float(cap[1])) ** 2
    if mask == "f32":
        s = s + feeds["m"]
    at, key = np.arange(n)[:, None], np.arange(m)
    window = re.search(r"window=(\d+)", attributes)
    seen = np.ones((n, m), bool)
    seen &= key <= at if "causal" in attributes else True
    seen &= at - key < int(window[1]) if window else True
    seen &= feeds["m"] if mask == "bool" else True
    s = np.where(seen, s, -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    y = p @ v
    dy = 2 * y
    dp = dy @ v.swapaxes(2, 3)
    ds = p * (dp - (dp * p).sum(-1, keepdims=True)) * slope / np.sqrt(e)
    grouped = [x.reshape(2, hk, h // hk, m, e).sum(2) for x in (ds.swapaxes(2, 3) @ q, p.swapaxes(2, 3) @ dy)]
    return {"y": y, "dq": ds @ k, "dk": grouped[0], "dv": grouped[1]}


def compare(got, want, name):
    for x, value in want.items():
        worst = np.abs(got[x] - value).max()
        expect(worst <= 2e-5 * np.abs(value).max(), f"{name}: {x} is off by {worst}, of {np.abs(value).max()}")


def told(tgc, folder, *options):
    return json.loads(T.must(T.run([tgc, "info", folder / "net.tg", "--json", *options])).out)


def write(folder, name):
    T.scratch(folder)
    (folder / "net.tg").write_text(f"tg 1\n{text_of(name)}")


def on_processors(tgc, folder, name):
    """By C in one thread, and by LLVM in two, where the same bytes come out."""
    write(folder, name)
    feeds = feeds_of(name)
    want = expected(name, feeds)
    compare(Library(S.built(tgc, folder, "c", "--cpu=native", SMALL)).run(feeds), want, f"{name}, C")
    runs = []
    for threads in (1, 2):
        out = T.scratch(folder / f"threads{threads}")
        words = []
        for x, value in feeds.items():
            np.save(folder / f"{x}.npy", value)
            words += ["-i", f"{x}={folder / f'{x}.npy'}"]
        T.must(T.run([tgc, "run", folder / "net.tg", *words, "--out-dir", out, f"--threads={threads}", SMALL]))
        runs.append({x: np.load(out / f"{x}.npy") for x in want})
    compare(runs[0], want, f"{name}, LLVM")
    expect(all(np.array_equal(runs[0][x], runs[1][x]) for x in want), f"{name}: two threads have other bytes")


def on_device(devices, tgc, folder, name, row):
    target, cpu, facts = row
    write(folder, name)
    feeds = feeds_of(name)
    with T.environment(**emulator.stand_ins(suite.options.build)):
        library = S.built(tgc, folder, target, f"--cpu={cpu}", SMALL)
    if target not in devices:
        devices[target] = emulator.Device(suite.options.build, folder, S.LIBRARIES[target])
    with devices[target].watch(facts):
        got = Library(library).run(feeds)
        gc.collect()
    compare(got, expected(name, feeds), f"{name}, {cpu}")


def large(tgc, folder, tokens, attributes):
    T.scratch(folder)
    (folder / "net.tg").write_text("tg 1\n" + "".join(f"input %{x} : f32[1, 2, {tokens}, 32]\n" for x in "qkv") +
                                   f"%y = attention(%q, %k, %v) {{{attributes}}}\n%loss = mul(%y, %y)\n%dq, %dk, %dv = gradient(%loss, %q, %k, %v)\n" +
                                   "".join(f"output %{x}\n" for x in ("y", "dq", "dk", "dv")))
    return told(tgc, folder)


def is_linear(tgc, folder):
    """Memory of 1,024, 2,048 and 4,096 tokens, with and without masks."""
    for attributes in ("", "causal=true", "causal=true, window=100"):
        arena = [large(tgc, folder, tokens, attributes)["arena_bytes"] for tokens in (1024, 2048, 4096)]
        expect(arena[2] < 1.3 * 2 * arena[1] < 1.3 * 1.3 * 4 * arena[0] and arena[2] < 4 * 4096 * 4096, f"{attributes or 'no mask'}: {arena}")


def widths(info):
    """How many keys the blocks' scores have, with padding."""
    shapes = [w["shape"] for kernel in info["kernel_list"] for w in kernel["writes"]]
    return sorted({shape[-1] for shape in shapes if len(shape) == 5 and shape[1] == 1 and shape[3] > 1})


def leaves_out(tgc, folder):
    """What a mask hides: all blocks of a window are narrow, those of a causal mask are of eight widths."""
    every, causal, window = (widths(large(tgc, folder, 4096, attributes)) for attributes in ("", "causal=true", "causal=true, window=100"))
    expect(every[0] >= 4096, f"no mask: {every}")
    expect(causal[0] <= 4096 / 8 + 16 and len([w for w in causal if w <= 4096 * 9 / 16]) >= 4, f"causal: {causal}")
    expect(window[-1] <= 256 + 100 + 48, f"a window of 100: {window}")


def main():
    suite.parse()
    build = Path(suite.options.build).resolve()
    tgc, scratch, devices = build / "cli/tgc", T.scratch(build / "test-scratch" / "block-rows"), {}
    suite.add("memory is linear in tokens", is_linear, tgc, scratch / "linear")
    suite.add("what a mask hides is not computed", leaves_out, tgc, scratch / "masks")
    for name in CASES:
        folder = scratch / re.sub(r"\W+", "_", name)
        suite.add(f"{name}, processors", on_processors, tgc, folder, name)
        for number, row in enumerate(S.ROWS[:4]):
            quick = name in ON_DEVICES and (ON_DEVICES.index(name) + number) % 4 == 0
            suite.add(f"{name}, {row[1]}", on_device, devices, tgc, scratch / f"{folder.name}_{row[1]}", name, row, slow=not quick)
    suite.main()


if __name__ == "__main__":
    main()
