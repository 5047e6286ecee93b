"""Schedules of devices: products, convolutions, rows and attention as grids of threads and blocks, with sizes that no block divides,
and sizes that only a run knows, compute what the C target's programs do.

Each on the emulated device, whose checks find races and accesses out of bounds, by both rows of GPUs. What the passes chose is read off the
kernels: local memory and barriers where they pay, none where they do not, and no parts of one loop.
"""

import base64
import re
import sys
from pathlib import Path
from random import Random

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/lib"))
import emulator  # noqa: E402
import tgc as T  # noqa: E402
from library import Library  # noqa: E402
from suite import Suite, expect  # noqa: E402

suite = Suite("grid", jobs=1)       # the device is one of the process
UNSCALED = ("input %x : f32[{rows}, 96]\nweight %w : f32[96, 300] = normal(seed=3)\n%q = mul(%x, %x)\n%m = reduce_mean(%q) {{axes=[1], keep=true}}\n"
            "%e = add(%m, 1e-5)\n%s = sqrt(%e)\n%n = div(%x, %s)\n%y = matmul(%n, %w)\n")
# name: text, sizes of a run, whether generic-gpu's kernels have local memory; None: as they like
NETS = {
    "a product": ("input %a : f32[64, 96]\ninput %b : f32[96, 64]\n%y = matmul(%a, %b)\n", {}, True),
    "a product of odd sizes": ("input %a : f32[37, 50]\ninput %b : f32[50, 29]\n%y = matmul(%a, %b)\n", {}, None),
    "a product of rows that end anywhere, in steps that its sum does not": ("input %a : f32[200, 131]\ninput %b : f32[131, 203]\n%y = matmul(%a, %b)\n", {}, True),
    "an elementwise op on elements that are no whole vectors": ("input %a : f32[127, 129]\ninput %b : f32[127, 129]\n%y = mul(%a, %b)\n", {}, False),
    "products of a run's rows": ("input %a : f32[N<=90, 48]\nweight %w : f32[33, 48] = normal(seed=1)\nweight %b : f32[33] = normal(seed=2)\n"
                                 "%y = linear(%a, %w, %b)\n", {"N": 51}, None),
    "a batch of products": ("input %a : f32[3, 2, 24, 16]\ninput %b : f32[3, 2, 16, 40]\n%y = matmul(%a, %b)\n", {}, None),
    "the place of each row's largest, both sums by all threads of a block": ("input %x : f32[24, 3000]\n%y = argmax(%x) {axis=1, keep=false}\n", {}, True),
    "two sums of each row, the second by the first": ("input %x : f32[20, 1500]\n%y = reduce_log_sum_exp(%x) {axes=[1], keep=false}\n", {}, True),
    "one row": ("input %a : f32[1, 300]\nweight %w : f32[70, 300] = normal(seed=1)\nweight %b : f32[70] = normal(seed=2)\n%y = linear(%a, %w, %b)\n", {}, True),
    "few rows of a long sum, in parts": ("input %a : f32[3, 768]\ninput %b : f32[768, 52]\nweight %c : f32[52] = normal(seed=1)\n%p = matmul(%a, %b)\n%y = add(%p, %c)\n", {}, None),
    "one row of a long sum, by groups of threads": ("input %a : f32[1, 640]\nweight %b : f32[640, 70] = normal(seed=1)\n%y = matmul(%a, %b)\n", {}, True),
    "a norm and its product, for each block's columns": (
        "input %x : f32[1, 96]\nweight %s : f32[96] = normal(seed=1)\nweight %b : f32[96] = normal(seed=2)\nweight %w : f32[96, 300] = normal(seed=3)\n"
        "%a = layer_norm(%x, %s, %b) {axis=-1, eps=1e-5}\n%p = matmul(%a, %w)\n%y = relu(%p)\n", {}, True),
    "a norm and its product by rows of weights, in blocks of columns": (
        "input %x : f32[1, 96]\nweight %s : f32[96] = normal(seed=1)\nweight %b : f32[96] = normal(seed=2)\nweight %w : f32[5000, 96] = normal(seed=3)\n"
        "weight %c : f32[5000] = normal(seed=4)\n%a = layer_norm(%x, %s, %b) {axis=-1, eps=1e-5}\n%y = linear(%a, %w, %c)\n", {}, True),
    "a norm without scales and its product, by tiles": (UNSCALED.format(rows=40), {}, None),
    "a norm without scales and its product of few rows": (UNSCALED.format(rows=16), {}, None),
    "a convolution of many channels, in parts": ("input %x : f32[1, 256, 4, 4]\nweight %w : f32[20, 256, 3, 3] = normal(seed=1)\n%c = conv2d(%x, %w) {padding=1}\n%y = relu(%c)\n", {}, None),
    "a convolution": ("input %x : f32[1, 16, 14, 14]\nweight %w : f32[24, 16, 3, 3] = normal(seed=1)\nweight %b : f32[24] = normal(seed=2)\n"
                      "%y = conv2d(%x, %w, %b) {padding=1}\n", {}, None),
    "a convolution of a run's batch": ("input %x : f32[B<=3, 5, 9, 11]\nweight %w : f32[7, 5, 3, 3] = normal(seed=1)\nweight %b : f32[7] = normal(seed=2)\n"
                                       "%c = conv2d(%x, %w, %b) {padding=1, stride=2}\n%y = relu(%c)\n", {"B": 2}, None),
    "a depthwise convolution, several rows of each thread": (
        "input %x : f32[1, 4, 32, 32]\nweight %v : f32[64, 4, 1, 1] = normal(seed=1)\nweight %w : f32[64, 1, 3, 3] = normal(seed=2)\nweight %b : f32[64] = normal(seed=3)\n"
        "weight %u : f32[8, 64, 1, 1] = normal(seed=4)\n%a0 = conv2d(%x, %v)\n%a = relu(%a0)\n%c = conv2d(%a, %w, %b) {padding=1, groups=64}\n%r = relu(%c)\n%y = conv2d(%r, %u)\n",
        {}, None),
    "a depthwise convolution with a stride, of a batch": (
        "input %x : f32[3, 4, 45, 47]\nweight %v : f32[64, 4, 1, 1] = normal(seed=1)\nweight %w : f32[64, 1, 5, 5] = normal(seed=2)\nweight %u : f32[8, 64, 1, 1] = normal(seed=3)\n"
        "%a0 = conv2d(%x, %v)\n%a = relu(%a0)\n%c = conv2d(%a, %w) {padding=2, stride=2, groups=64}\n%r = relu(%c)\n%y = conv2d(%r, %u)\n", {}, None),
    "a pooling of a layer, several rows of each thread": (
        "input %x : f32[1, 4, 48, 48]\nweight %v : f32[64, 4, 1, 1] = normal(seed=1)\nweight %u : f32[8, 64, 1, 1] = normal(seed=3)\n"
        "%a0 = conv2d(%x, %v)\n%a = relu(%a0)\n%p = max_pool2d(%a) {kernel=3, stride=1, padding=1}\n%y = conv2d(%p, %u)\n", {}, None),
    "a tensor that is read with a border and without": (
        "input %x : f32[1, 4, 12, 12]\nweight %v : f32[8, 4, 1, 1] = normal(seed=1)\nweight %w : f32[8, 8, 3, 3] = normal(seed=2)\n"
        "weight %u : f32[8, 8, 1, 1] = normal(seed=3)\n%a0 = conv2d(%x, %v)\n%a = relu(%a0)\n%b = conv2d(%a, %w) {padding=1}\n%c = conv2d(%a, %u)\n%y = add(%b, %c)\n", {}, None),
    "two convolutions of one tensor, side by side": (
        "input %x : f32[1, 8, 9, 9]\nweight %u : f32[16, 8, 1, 1] = normal(seed=3)\nweight %w : f32[64, 16, 1, 1] = normal(seed=1)\nweight %v : f32[64, 16, 3, 3] = normal(seed=2)\n"
        "%s0 = conv2d(%x, %u)\n%s = relu(%s0)\n%a0 = conv2d(%s, %w)\n%a = relu(%a0)\n%b0 = conv2d(%s, %v) {padding=1}\n%b = relu(%b0)\n%y = concat(%a, %b) {axis=1}\n",
        {}, None),
    "branches of long sums, a kernel for each": (
        "input %x : f32[1, 96, 12, 12]\nweight %u : f32[64, 96, 1, 1] = normal(seed=3, std=0.05)\nweight %w : f32[48, 96, 3, 3] = normal(seed=1, std=0.05)\nweight %v : f32[20, 96, 5, 5] = normal(seed=2, std=0.05)\n"
        "%a0 = conv2d(%x, %u)\n%a = relu(%a0)\n%b0 = conv2d(%x, %w) {padding=1}\n%b = relu(%b0)\n%c = conv2d(%x, %v) {padding=2}\n%d = max_pool(%x) {kernel=3, stride=1, padding=1}\n"
        "%y = concat(%a, %b, %c, %d) {axis=1}\n", {}, None),
    "layers that join all that came before": (
        "input %x : f32[1, 8, 9, 9]\nweight %u : f32[8, 8, 3, 3] = normal(seed=3)\nweight %w : f32[8, 16, 3, 3] = normal(seed=1)\nweight %v : f32[8, 24, 3, 3] = normal(seed=2)\n"
        "%p = relu(%x)\n%a = conv2d(%p, %u) {padding=1}\n%c = concat(%p, %a) {axis=1}\n%r = relu(%c)\n%b = conv2d(%r, %w) {padding=1}\n"
        "%d = concat(%p, %a, %b) {axis=1}\n%s = tanh(%d)\n%e = conv2d(%s, %v) {padding=1}\n%f = concat(%p, %a, %b, %e) {axis=1}\n%y = sigmoid(%f)\n", {}, None),
    "a long sum, as two kernels": ("input %x : f32[1, 40000]\n%s = reduce_sum(%x) {axes=[1]}\n%y = relu(%s)\n", {}, True),
    "a maximum that no number of parts divides, as two kernels": ("input %x : f32[2, 30011]\n%y = reduce_max(%x) {axes=[1]}\n", {}, True),
    "a mean along columns, as two kernels": ("input %x : f32[9000, 3]\n%y = reduce_mean(%x) {axes=[0]}\n", {}, None),
    "a sum that is short enough for a block, as one kernel": ("input %x : f32[3, 2000]\n%y = reduce_sum(%x) {axes=[1]}\n", {}, True),
    "a sum of as many results as there are units, as one kernel": ("input %x : f32[300, 2048]\n%y = reduce_sum(%x) {axes=[1]}\n", {}, True),
    "a norm of a long row, each statistic apart": ("input %x : f32[1, 120000]\nweight %s : f32[120000] = normal(seed=1)\n%y = layer_norm(%x, %s)\n", {}, None),
    "a norm of short rows, as one kernel": ("input %x : f32[2, 3000]\n%y = softmax(%x) {axis=1}\n", {}, True),
    "a norm of groups of channels": ("input %x : f32[2, 12, 9, 9]\nweight %s : f32[12] = normal(seed=1)\nweight %b : f32[12] = normal(seed=2)\n"
                                     "%y = group_norm(%x, %s, %b) {groups=3}\n", {}, None),
    "softmax": ("input %x : f32[7, 300]\n%y = softmax(%x) {axis=-1}\n", {}, True),
    "softmax of a run's columns": ("input %x : f32[5, N<=200]\n%y = softmax(%x) {axis=-1}\n", {"N": 131}, True),
    "layer norm": ("input %x : f32[9, 150]\nweight %s : f32[150] = normal(seed=1)\nweight %b : f32[150] = normal(seed=2)\n%y = layer_norm(%x, %s, %b) {axis=-1, eps=1e-5}\n",
                   {}, True),
    "attention": ("input %q : f32[2, 2, 20, 16]\ninput %k : f32[2, 2, 33, 16]\ninput %v : f32[2, 2, 33, 16]\n%y = attention(%q, %k, %v)\n", {}, True),
    "causal attention of a run's length": ("input %q : f32[2, T<=40, 16]\ninput %k : f32[2, T, 16]\ninput %v : f32[2, T, 16]\n"
                                           "%y = attention(%q, %k, %v) {causal=true}\n", {"T": 27}, None),
    "attention of more keys than rows fit": ("input %q : f32[1, 16, 8]\ninput %k : f32[1, 5000, 8]\ninput %v : f32[1, 5000, 12]\n%y = attention(%q, %k, %v)\n", {}, True),
    "one query with more keys than local memory has scores for": ("input %q : f32[3, 1, 16]\ninput %k : f32[3, 4000, 16]\ninput %v : f32[3, 4000, 12]\n"
                                                                 "%y = attention(%q, %k, %v)\n", {}, True),
    "one query's attention and its projection": ("input %q : f32[1, 4, 1, 16]\ninput %k : f32[1, 4, 70, 16]\ninput %v : f32[1, 4, 70, 16]\n"
                                                 "weight %w : f32[64, 64] = normal(seed=1)\nweight %b : f32[64] = normal(seed=2)\n%a = attention(%q, %k, %v)\n"
                                                 "%p = permute(%a) {perm=[0, 2, 1, 3]}\n%r = reshape(%p) {shape=[1, 1, 64]}\n%y = linear(%r, %w, %b)\n", {}, None),
    "one query, keys of earlier runs and its own": (
        "input %x : f32[1, 300]\ninput %k : f32[2, 70, 16]\ninput %v : f32[2, 70, 16]\nweight %s : f32[300] = normal(seed=1)\nweight %b : f32[300] = normal(seed=2)\n"
        "weight %w : f32[96, 300] = normal(seed=3)\nweight %c : f32[96] = normal(seed=4)\n%n = layer_norm(%x, %s, %b)\n%p = linear(%n, %w, %c)\n%t = reshape(%p) {shape=[6, 1, 16]}\n"
        "%q = slice(%t) {axis=0, start=0, end=2}\n%k1 = slice(%t) {axis=0, start=2, end=4}\n%v1 = slice(%t) {axis=0, start=4, end=6}\n"
        "%ks = concat(%k, %k1) {axis=1}\n%vs = concat(%v, %v1) {axis=1}\n%y = attention(%q, %ks, %vs)\n", {}, True),
    "one query, a run's keys by several blocks": ("input %q : f32[3, 1, 16]\ninput %k : f32[3, T<=1500, 16]\ninput %v : f32[3, T, 20]\n%y = attention(%q, %k, %v)\n", {"T": 1100}, True),
    "one query, several blocks for fewer keys": ("input %q : f32[3, 1, 16]\ninput %k : f32[3, T<=1500, 16]\ninput %v : f32[3, T, 20]\n%y = attention(%q, %k, %v)\n", {"T": 2}, True),
    "one query, keys that heads share by several blocks, a mask": (
        "input %q : f32[1, 2, 2, 1, 16]\ninput %k : f32[1, 2, 1, 900, 16]\ninput %v : f32[1, 2, 1, 900, 24]\ninput %m : f32[1, 1, 1, 1, 900]\n"
        "%t = transpose(%k) {perm=[0, 1, 2, 4, 3]}\n%s = matmul(%q, %t)\n%a = add(%s, %m)\n%w = softmax(%a) {axis=-1}\n%y = matmul(%w, %v)\n", {}, True),
    "one query, keys by several blocks, as many as data say": (
        "input %q : f32[1, 2, 2, 1, 16]\ninput %k : f32[1, 2, 1, 900, 16]\ninput %v : f32[1, 2, 1, 900, 24]\ninput %n : f32[1]\n"
        "%n0 = mul(%n, 100.0)\n%n1 = add(%n0, 450.0)\n%many = cast(%n1) {to=i64}\n%j = iota(900)\n%seen = lt(%j, %many)\n"
        "%t = transpose(%k) {perm=[0, 1, 2, 4, 3]}\n%s = matmul(%q, %t)\n%a = where(%seen, %s, -inf)\n%w = softmax(%a) {axis=-1}\n%y = matmul(%w, %v)\n", {}, True),
    "attention in a window": ("input %q : f32[2, 3, T<=150, 16]\ninput %k : f32[2, 3, T, 16]\ninput %v : f32[2, 3, T, 16]\n"
                              "%y = attention(%q, %k, %v) {causal=true, window=20}\n", {"T": 133}, True),
    "attention with a mask that hides by numbers": ("input %q : f32[6, 40, 16]\ninput %k : f32[6, 300, 16]\ninput %v : f32[6, 300, 20]\ninput %m : f32[40, 300]\n"
                                                    "%y0 = attention(%q, %k, %v, %m)\n%y = gelu(%y0)\n", {}, True),
    "a chain of elementwise ops": ("input %x : f32[3, 5, 77]\n%a = exp(%x)\n%b = tanh(%a)\n%y = mul(%b, %x)\n", {}, False),
}

BLOCKS = ("attention of more keys than rows fit", "attention in a window", "attention with a mask that hides by numbers")     # of keys
# launches: nothing is copied to get a border
LAUNCHES = {"a norm without scales and its product, by tiles": 2, "a norm without scales and its product of few rows": 1, "a norm of a long row, each statistic apart": 5, "a norm of groups of channels": 4, "layers that join all that came before": 8, "one row of a long sum, by groups of threads": 1, "one row": 1, "one query, keys of earlier runs and its own": 2, "a norm and its product, for each block's columns": 1, "a convolution": 1, "a tensor that is read with a border and without": 3, "attention": 1, "a chain of elementwise ops": 1}

# what a kernel has of vectors: columns that a thread reads of the copy, elements but for the last ones
VECTORS = {"a product of rows that end anywhere, in steps that its sum does not": r"load_aligned_f32x4\(local(.|\n)*fmaf\(",
           "an elementwise op on elements that are no whole vectors": r"store_aligned_f32x4\(global, &y\["}


def built(tgc, folder, text, target, *flags):
    place = folder / target
    place.mkdir(parents=True, exist_ok=True)
    (place / "net.tg").write_text(f"tg 1\n{text}" if "output" in text else f"tg 1\n{text}output %y\n")
    T.must(T.run([tgc, "net.tg", "-o", "net.c", f"--target={target}", *T.ARRAYS, *flags], cwd=place))
    T.build_shared(place / "net.c", "-lm", "-ldl")
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


def compute_all(place):
    library = Library(place / "net.so")
    return {name: value.copy() for name, value in library.run(inputs(library, {}), {}).items()}


def check(tgc, scratch, name, row, *flags):
    text, sizes, local = NETS[name]
    folder = T.scratch(scratch / re.sub(r"\W+", "_", f"{name} {row}"))
    want = compute(built(tgc, folder, text, "c", "--cpu=generic"), sizes)
    place = built(tgc, folder, text, "opencl", f"--cpu={row}", *flags)
    source = (place / "net.c").read_text()
    expect("parts = (uint)" not in source, "a kernel goes by parts of one loop")
    if flags:
        expect("local float " not in source and "barrier(" not in source, "local memory")
    elif local is not None and row == "generic-gpu":
        expect(("local float " in source) == local and ("barrier(" in source) == local, "local memory, or none")
    expect("in parts" not in name or flags or len(re.findall("kernel void net_(matmul|conv)", source)) == 2, "not in parts")
    expect(flags or re.search(VECTORS.get(name, ""), source), "no vectors")
    launches = source.count("kernel void ")
    kernels = re.search(r", as (one|two) kernels?$", name)
    expect(flags or not kernels or row != "generic-gpu" or launches == (1 if kernels[1] == "one" else 2), f"{launches} launches")
    expect(flags or "a kernel for each" not in name or len(re.findall(r"kernel void net_conv2d_\d+(_\d+)?\(", source)) >= 3, "branches share a kernel")
    expect(flags or LAUNCHES.get(name, launches) == launches, f"{launches} launches")
    expect("in parts" not in name or len(re.findall("kernel void net_(matmul|conv)", source)) == 2, "not in parts")
    expect(flags or "several blocks" not in name or row != "generic-gpu" or "_parts(" in source, "keys of one block")
    expect("data say" not in name or "_parts(" not in source or re.search(r"bool inside = j \+ part\d*\*300 < at", source), "keys that no row sees are read")
    expect(flags or "several rows" not in name or len(re.findall(r"f32x4 xv\d*\b", re.search(r"kernel void net_\w+_1\(.*?^}", source, re.M | re.S)[0])) >= 5,
           "rows are not shared")
    expect(flags or name not in BLOCKS or "int span = 0; span <" in source, "no blocks of keys")
    return want, place, sizes


def compare(want, got):
    expect(np.allclose(want, got, rtol=1e-4, atol=1e-4), f"off by {np.abs(want - got).max()}")


def emulated(device, tgc, scratch, name, row, *flags):
    want, place, sizes = check(tgc, scratch, name, row, *flags)
    with device.watch():
        compare(want, compute(place, sizes))


SIZES = [*range(1, 18), 20, 24, 28, 31, 32, 33, 36, 40, 48, 52, 63, 64, 65, 68, 96, 100, 128, 130, 256]
TERMS = [*SIZES, 300, 512, 1024, 1536]           # of sums


def random_product(random, k):
    """Two matrices or batches of them; weights as models have them, by rows or by columns; an epilogue, or none."""
    while True:
        m, n, terms = random.choice(SIZES), random.choice(SIZES), random.choice(TERMS)
        batch = random.choice([(), (), (), (2,), (3, 2)])
        if m * n * terms * 3 ** len(batch) < 400_000:
            break
    dims = "".join(f"{b}, " for b in batch)
    end = random.choice([f"%y{k} = relu(%p{k})", f"%y{k} = add(%p{k}, %p{k})", f"%y{k} = mul(%p{k}, %p{k})"])
    if not batch and random.random() < 0.4:
        return (f"input %a{k} : f32[{m}, {terms}]\nweight %w{k} : f32[{n}, {terms}] = normal(seed={k + 1})\nweight %b{k} : f32[{n}] = normal(seed={k + 9})\n"
                f"%p{k} = linear(%a{k}, %w{k}, %b{k})\n{end}\n")
    right = f"weight %b{k} : f32[{terms}, {n}] = normal(seed={k + 1})" if random.random() < 0.4 else f"input %b{k} : f32[{dims}{terms}, {n}]"
    return f"input %a{k} : f32[{dims}{m}, {terms}]\n{right}\n%p{k} = matmul(%a{k}, %b{k})\n{end}\n"


REDUCTIONS = ["reduce_sum", "reduce_max", "reduce_min", "reduce_mean", "reduce_l2", "reduce_log_sum_exp"]


def random_reduction(random, k):
    """Of many elements, most of the time to few results, along any of the axes; or a normalization, whose results are as many."""
    rank = random.randint(1, 4)
    while True:
        shape = [random.choice(SIZES[:20] + [300, 2048, 5003, 20000, 65536]) for _ in range(rank)]
        if 2_000 < np.prod(shape) < 150_000:
            break
    x = f"input %x{k} : f32[{', '.join(map(str, shape))}]\n"
    if rank > 1 and random.random() < 0.4:
        kind = random.choice(["softmax(%x{k}) {{axis={a}}}", "layer_norm(%x{k}) {{axis={a}}}", "group_norm(%x{k}) {{groups=1}}", "instance_norm(%x{k})"])
        return f"{x}%y{k} = {kind.format(k=k, a=random.randrange(rank))}\n"
    axes = sorted(random.sample(range(rank), random.randint(1, rank)))
    return f"{x}%r{k} = {random.choice(REDUCTIONS)}(%x{k}) {{axes={axes}, keep={random.choice(['true', 'false'])}}}\n%y{k} = {random.choice(['tanh', 'relu'])}(%r{k})\n"


ODD = [*range(1, 18), 4095, 4097]


def random_odd(random, k):
    """A product of two inputs or by weights, or an elementwise chain, whose rows end anywhere."""
    while True:
        m, n, terms = (random.choice(ODD if random.random() < 0.6 else ODD[-2:]) for _ in range(3))
        if m * n * terms < 1_200_000:
            break
    if random.random() < 0.2:
        return (f"input %a{k} : f32[{m}, {n}, {terms}]\ninput %b{k} : f32[{m}, {n}, {terms}]\nweight %c{k} : f32[{terms}] = normal(seed={k})\n"
                f"%p{k} = mul(%a{k}, %b{k})\n%y{k} = {random.choice([f'relu(%p{k})', f'add(%p{k}, %c{k})'])}\n")
    right = f"weight %b{k} : f32[{terms}, {n}] = normal(seed={k + 1})" if random.random() < 0.4 else f"input %b{k} : f32[{terms}, {n}]"
    return f"input %a{k} : f32[{m}, {terms}]\n{right}\n%y{k} = matmul(%a{k}, %b{k})\n"


def random_convolution(random, k):
    """Of any stride, and another one behind it, half the time, so that the first one's result has channels innermost."""
    while True:
        c, o, h, w = (random.choice(SIZES[:24]) for _ in range(4))
        size, stride = random.choice([1, 1, 2, 3, 3, 5]), random.choice([1, 1, 1, 2, 3])
        if h >= size and w >= size and c * o * h * w * size * size < 500_000 * stride * stride:
            break
    text = (f"input %x{k} : f32[{random.choice([1, 1, 2])}, {c}, {h}, {w}]\nweight %w{k} : f32[{o}, {c}, {size}, {size}] = normal(seed={k + 1})\n"
            f"weight %b{k} : f32[{o}] = normal(seed={k + 9})\n%p{k} = conv2d(%x{k}, %w{k}, %b{k}) {{padding={random.choice([0, size // 2])}, stride={stride}}}\n")
    if random.random() < 0.5:
        return f"{text}%y{k} = relu(%p{k})\n"
    more = random.choice(SIZES[:20])
    return f"{text}%r{k} = relu(%p{k})\nweight %v{k} : f32[{more}, {o}, 1, 1] = normal(seed={k + 17})\n%y{k} = conv2d(%r{k}, %v{k})\n"


def weights_of_bytes(random, name, *shape):
    data = random.randbytes(int(np.prod(shape)))
    return f"weight %{name} : i8{list(shape)} = base64(\"{base64.b64encode(data).decode()}\")\n"


def quantized(value, result, scale, middle):
    """Floats as bytes, and these as integers: %RESULT."""
    return (f"%{result}_m = mul(%{value}, %{result}_s)\n%{result}_r = round(%{result}_m)\n%{result}_a = add(%{result}_r, %{result}_z)\n"
            f"%{result}_l = max(%{result}_a, %{result}_0)\n%{result}_h = min(%{result}_l, %{result}_1)\n"
            f"%{result}_b = cast(%{result}_h) {{to=u8}}\n%{result} = cast(%{result}_b) {{to=i32}}\n",
            "".join(f"weight %{result}_{k} : f32[1] = [{v}]\n" for k, v in (("s", scale), ("z", middle), ("0", 0), ("1", 255))))


def random_bytes(random, k):
    """A product or a convolution of bytes, and a product of its result, as bytes: channels are innermost."""
    while True:
        c, o, h, w, more = (random.choice(range(4, 68, 4)) if random.random() < 0.8 else random.choice(SIZES[:24]) for _ in range(5))
        size, stride = random.choice([1, 1, 2, 3]), random.choice([1, 1, 2])
        if h >= size and w >= size and c * o * h * w * size * size < 500_000 * stride * stride:
            break
    first, facts = quantized(f"x{k}", f"q{k}", 40, 128)
    second, others = quantized(f"f{k}", f"p{k}", round(random.uniform(0.001, 0.01), 4), random.choice([0, 128]))
    return (f"input %x{k} : f32[{random.choice([1, 1, 2])}, {c}, {h}, {w}]\n{facts}{others}" + weights_of_bytes(random, f"w{k}", o, c, size, size) +
            weights_of_bytes(random, f"v{k}", more, o, 1, 1) + f"{first}%i{k} = cast(%w{k}) {{to=i32}}\n"
            f"%c{k} = conv2d(%q{k}, %i{k}) {{padding={random.choice([0, size // 2])}, stride={stride}}}\n%f{k} = cast(%c{k}) {{to=f32}}\n"
            f"{second}%j{k} = cast(%v{k}) {{to=i32}}\n%y{k} = conv2d(%p{k}, %j{k})\n")


def at_random(device, tgc, scratch, seed, row, kinds=(random_product, random_product, random_convolution), count=6):
    """Several products and convolutions of random sizes, by one program."""
    random = Random(seed)
    text = "".join(random.choice(kinds)(random, k) for k in range(count))
    folder = T.scratch(scratch / f"random_{seed}_{row}_{kinds[0].__name__}")
    text += "".join(f"output %y{k}\n" for k in range(count))
    want = compute_all(built(tgc, folder, text, "c", "--cpu=generic"))
    place = built(tgc, folder, text, "opencl", f"--cpu={row}")
    with device.watch():
        have = compute_all(place)
    for name, value in want.items():
        scale = 1 + np.abs(value).max()
        expect(np.allclose(value, have[name], rtol=1e-4, atol=2e-5 * scale), f"{name} is off by {np.abs(value - have[name]).max()}, of {scale}:\n{text}")
        expect(value.dtype != np.int32 or np.array_equal(value, have[name]), f"{name} is not exact:\n{text}")


def many_rows():
    """Many rows, so that a block of threads is one wave."""
    return ("input %x : f32[300, 150]\nweight %s : f32[150] = normal(seed=1)\nweight %b : f32[150] = normal(seed=2)\n"
            "%a = layer_norm(%x, %s, %b) {axis=-1, eps=1e-5}\n%y = softmax(%a) {axis=-1}\n")


def shuffled(device, tgc, scratch, subgroup):
    """Sums by shuffles: a work-group that is one sub-group exchanges them by that, others, and devices without, through local memory."""
    folder = T.scratch(scratch / f"shuffles_{subgroup}")
    want = compute(built(tgc, folder, many_rows(), "c", "--cpu=generic"), {})
    place = built(tgc, folder, many_rows(), "opencl", "--cpu=intel-xe")
    expect("= sum + shuffle_f32(exchanged, sum, 8);" in (place / "net.c").read_text(), "no shuffles")
    with device.watch(f"subgroup={subgroup}"):
        compare(want, compute(place, {}))


def divergent(device, tgc, scratch):
    """A shuffle that some threads do not come to is found."""
    folder = T.scratch(scratch / "divergent")
    place = built(tgc, folder, many_rows(), "opencl", "--cpu=intel-xe")
    source = (place / "net.c").read_text()
    broken = source.replace("sum = sum + shuffle_f32(exchanged, sum, 4);", "if (thread < 12) sum = sum + shuffle_f32(exchanged, sum, 4);", 1)
    expect(broken != source, "no shuffle to break")
    (place / "net.c").write_text(broken)
    T.must(T.run(["gcc", "-O0", "-shared", "-fPIC", "net.c", "-o", "net.so", "-lm", "-ldl"], cwd=place))
    device.begin("subgroup=16")
    library = Library(place / "net.so")
    try:
        library.run(inputs(library, {}), {}, 11)            # DEVICE_FAILED
    finally:
        found = device.found()
    expect(any("divergent operation of a sub-group" in line for line in found), f"no report of it: {found}")


# Images and what a run permutes: name, text, the row, kernels, how many of them go through local memory.
IMAGE = ("input %x : {dtype}[{n}, {c}, {h}, {w}]\nweight %w : {dtype}[{o}, {c}, 7, 7] = normal(std=0.1, seed=1)\nweight %b : {dtype}[{o}] = normal(seed=2)\n"
         "%c = conv2d(%x, %w, %b) {{stride=2, padding=3}}\n%y = relu(%c)\n")
PERMUTED = "input %x : f32[{shape}]\n%p = permute(%x) {{perm={perm}}}\n%y = relu(%p)\n"
TURNED = [("three channels, read by windows", IMAGE.format(dtype="f32", n=1, c=3, h=32, w=32, o=64), "generic-gpu", 2, 2),
          ("three channels, where a launch takes longer", IMAGE.format(dtype="f32", n=1, c=3, h=32, w=32, o=16), "generic-gpu", 1, 0),
          ("rows that end anywhere", IMAGE.format(dtype="f32", n=2, c=8, h=61, w=67, o=16), "adreno630", 2, 3),
          ("a matrix", PERMUTED.format(shape="190, 301", perm=[1, 0]), "generic-gpu", 1, 1),
          ("a batch of five axes", PERMUTED.format(shape="2, 3, 33, 5, 70", perm=[1, 0, 3, 4, 2]), "generic-gpu", 1, 1),
          ("rows that stay rows", PERMUTED.format(shape="7, 50, 130", perm=[1, 0, 2]), "generic-gpu", 1, 0),
          ("few elements, each a thread's", PERMUTED.format(shape="5, 6", perm=[1, 0]), "generic-gpu", 1, 0)]


def turned(device, tgc, scratch, text, row, kernels, local):
    """What a kernel loads as neighbours along one axis and stores as neighbours along another is turned by blocks in local memory, where that pays; so is
    an input that windows read, with its border, where the copy and its reader take less than the reader alone."""
    folder = T.scratch(scratch)
    want = compute(built(tgc, folder, text, "c", "--cpu=generic"), {})
    place = built(tgc, folder, text, "opencl", f"--cpu={row}")
    source = (place / "net.c").read_text()
    found = source.count("kernel void "), len(re.findall(r"local float \w+\[", source))
    expect(found == (kernels, local), f"{found[0]} kernels, {found[1]} by local memory")
    with device.watch():
        compare(want, compute(place, {}))


def main():
    suite.parse()
    build = Path(suite.options.build).resolve()
    tgc, scratch = build / "cli/tgc", T.scratch(build / "test-scratch" / "grid")
    device = emulator.Device(build, scratch)
    for number, name in enumerate(NETS):
        for which, row in enumerate(("generic-gpu", "adreno630")):
            suite.add(f"{name}, {row}", emulated, device, tgc, scratch, name, row, slow=number % 2 != which)
    for seed in range(60):
        suite.add(f"six at random, {seed}", at_random, device, tgc, scratch, seed, ("generic-gpu", "adreno630")[seed % 2], slow=seed >= 2)
    for seed in range(40):
        suite.add(f"eight whose rows end anywhere, {seed}", at_random, device, tgc, scratch, seed, ("generic-gpu", "adreno630")[seed % 2], (random_odd,), 8,
                  slow=seed >= 2)
    for seed in range(40):
        row = ("generic-gpu", "adreno630")[seed % 2]
        suite.add(f"three of bytes at random, {seed}", at_random, device, tgc, scratch, seed, row, (random_bytes,), 3, slow=seed >= 2)
    for seed in range(60):
        suite.add(f"eight reductions at random, {seed}", at_random, device, tgc, scratch, seed, ("generic-gpu", "adreno630")[seed % 2], (random_reduction,), 8,
                  slow=seed >= 2)
    for name in ("attention", "causal attention of a run's length", "softmax"):
        suite.add(f"{name}, without local memory", emulated, device, tgc, scratch, name, "adreno630", "--no-locals")
    for number, (name, text, row, kernels, local) in enumerate(TURNED):
        suite.add(f"turned: {name}, {row}", turned, device, tgc, scratch / f"turned{number}", text, row, kernels, local)
    for subgroup in (16, 8, 0):
        suite.add(f"sums by shuffles, sub-groups of {subgroup}", shuffled, device, tgc, scratch, subgroup)
    suite.add("a divergent shuffle is found", divergent, device, tgc, scratch)
    suite.main()


if __name__ == "__main__":
    main()
