"""What the cost model expects of devices' rows, by tgc info: a device that is better in every fact of its row is never expected to take longer,
kernels that multiply matrices take less than those that do not, and what limits a kernel is what its facts say. No device is needed.
"""

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/lib"))
import numpy as np  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

import tgc as T  # noqa: E402
from suite import Suite, expect  # noqa: E402

suite = Suite("device_cost")
TGC = T.find_tgc(suite.parse().build)
SLACK = 1.1         # a schedule is the best of those that were weighed before it was made, and its program has a little more


def product(m, k, n):
    return f"input %a : f32[{m}, {k}]\nweight %b : f32[{k}, {n}] = normal(seed=1)\n%y = matmul(%a, %b)\n"


def convolution(channels, size, to, groups=1):
    return (f"input %x : f32[1, {channels}, {size}, {size}]\nweight %w : f32[{to}, {channels // groups}, 3, 3] = normal(seed=1)\n"
            f"%y = conv2d(%x, %w) {{padding=1, groups={groups}}}\n")


def attention(tokens, features):
    return "".join(f"input %{x} : f32[1, 8, {tokens}, {features}]\n" for x in "qkv") + "%y = attention(%q, %k, %v)\n"


NETS = {
    "a product": product(512, 512, 512),
    "a large product": product(2048, 1024, 2048),
    "a product of few rows": product(16, 2048, 1024),
    "a product of a row": product(1, 768, 3072),
    "a convolution": convolution(64, 56, 64),
    "a convolution of small images": convolution(256, 14, 256),
    "a depthwise convolution": convolution(96, 56, 96, 96),
    "attention": attention(512, 64),
    "softmax": "input %x : f32[512, 1000]\n%y = softmax(%x) {axis=-1}\n",
    "elements": "input %x : f32[4000000]\n%a = exp(%x)\n%y = mul(%a, %x)\n",
}


def read_rows():
    """{row: (target, {fact: number})}, the rates of its instructions for matrices among them; of a unit, too."""
    text = (ROOT / "passes/target/devices.def").read_text()
    rates = re.findall(r"^MATRIX_OF\((\w+),\s*(\w+),\s*(\d+)\)", (ROOT / "passes/target/matrix.def").read_text(), re.M)
    rows = {}
    for name, row, rest in re.findall(r'^DEVICE\((\w+), "([\w-]+)",(.*?\.image_side = \d+)', text, re.M | re.S):
        if ".is_processor" in rest:
            continue
        facts = {fact: eval(value, {}) for fact, value in re.findall(r"\.(\w+) = ([\d. <]+)[,\n)]", rest + ",")}
        facts |= {f"{of} by matrices": float(rate) for device, of, rate in rates if device == name}
        facts.setdefault("cache_gbytes", 4 * facts["gbytes"])
        for fact in [f for f in facts if "matrices" in f or f in ("gflops", "cache_gbytes")]:
            facts[f"{fact} of a unit"] = facts[fact] / facts["units"]
        rows[row] = (re.search(r'\.target = "(\w+)"', rest).group(1), facts)
    return rows


def is_better(of, than):
    """In all facts: rates, what fits, how long things take."""
    same, less = ("wave", "group", "shuffle", "registers"), ("latency", "loading")
    of, than = ({**f, "loading": f.get("load", 2) / f["gflops of a unit"]} for f in (of, than))
    return (all(of[f] == than[f] for f in same if f in than) and all(of[f] <= than[f] for f in less) and
            all(of.get(f, 0) >= v for f, v in than.items() if f not in same + less + ("load", "image_pitch", "image_side")))


ROWS = read_rows()
PAIRS = [("sm_80", "sm_90a"), ("a14", "m1"), ("m1", "m1-max"), ("m1-pro", "m1-max")]


def write(folder, text):
    (folder / "net.tg").write_text("tg 1\n" + text + "output %y\n")
    return folder / "net.tg"


def info(text, row, *options):
    path = T.shared("nets", write, text)
    done = T.must(T.run([TGC, "info", path, f"--target={ROWS[row][0]}", f"--cpu={row}", *options]))
    return done.out if isinstance(done.out, str) else done.out.decode()


def predicted(text, row, *options):
    return json.loads(info(text, row, "--json", *options))["device"]["predicted_us"]


def limits(text, row, *options):
    """What limits each kernel, and how many us are expected of it, by --why."""
    why = info(text, row, "--why", *options)
    return list(zip(re.findall(r"limited by (.*)", why.split("legend")[0]), map(float, re.findall(r"; predicted ([\d.e+]+) us", why))))


def never_slower(text, *options):
    expected = {row: predicted(text, row, *options) for row in sorted(set(sum(PAIRS, ())))}
    worse = [f"{a} {expected[a]} us, {b} {expected[b]} us" for a, b in PAIRS if expected[b] > SLACK * expected[a]]
    expect(not worse, "; ".join(worse))


@suite.case("the pairs of rows are those of a device and a better one")
def pairs():
    for a, b in PAIRS:
        expect(ROWS[a][0] == ROWS[b][0] and is_better(ROWS[b][1], ROWS[a][1]), f"{a} {ROWS[a]}, {b} {ROWS[b]}")


for name, text in NETS.items():
    suite.add(f"a better device is not expected to be slower: {name}", never_slower, text)
    if "a" == name.split()[0]:
        suite.add(f"a better device is not expected to be slower: {name}, halves", never_slower, text, "--math=f16")


@suite.case("more arithmetic with less memory is expected to be faster where arithmetic counts")
def arithmetic():
    for name in ("a large product", "a convolution", "attention"):
        old, new = predicted(NETS[name], "sm_80"), predicted(NETS[name], "sm_89")
        expect(new < old, f"{name}: sm_80 {old} us, sm_89 {new} us")


@suite.case("products of matrices are expected to be faster than those of numbers, where there are units for them")
def matrices():
    for row, (target, facts) in ROWS.items():
        if facts.get("gflops") < max((v for f, v in facts.items() if f.endswith("F16 by matrices")), default=0):
            numbers, halves = predicted(NETS["a large product"], row), predicted(NETS["a large product"], row, "--math=f16")
            expect(halves < 0.7 * numbers, f"{row}: {numbers} us, by matrices {halves} us")


def long_attention(more="", tokens=4096, kind="f16"):
    inputs = "".join(f"input %{x} : {kind}[2, 32, {tokens}, 64]\n" for x in "qkv")
    return inputs + f"%y = attention(%q, %k, %v) {{{more}}}\n"


@suite.case("keys that a mask hides from a block of queries do not count, those of a length that the run reads do")
def hidden():
    for row in ("sm_90a", "sm_80", "gfx942"):
        whole, causal, window = (predicted(long_attention(more), row) for more in ("", "causal=true", "causal=true, window=256"))
        expect(0.5 * whole < causal < 0.65 * whole and window < 0.4 * causal, f"{row}: {whole} us, causal {causal}, in a window {window}")
    text = long_attention().replace("%y =", "input %n : i64[1]\n%i0 = iota(4096)\n%i = reshape(%i0) {shape=[1, 1, 1, 4096]}\n%seen = lt(%i, %n)\n%y =")
    read = predicted(text.replace("%v) {}", "%v, %seen)"), "sm_90a", "--max-memory=16G")
    expect(read > 0.9 * predicted(long_attention(), "sm_90a"), f"{read} us")


@suite.case("blocks that see most keys come first, and the last ones are short")
def order():
    for tokens, more, expected in ((4096, "causal=true", [16, None, 4]), (1024, "causal=true", [64, None]), (4096, "", [None, 64])):
        grid = re.search(r"grid: ([\dx ]+), ", info(long_attention(more, tokens), "sm_90a", "--why"))[1].split(" x ")
        expect(len(grid) == len(expected) and all(b in (None, int(a)) for a, b in zip(grid, expected)), f"{tokens} {more}: {grid}")
    grid = re.search(r"grid: ([\dx ]+), ", info(long_attention("causal=true"), "gfx942", "--why"))[1].split(" x ")
    expect(len(grid) == 2, f"a device of whose cache nothing is known: {grid}")


@suite.case("what limits a kernel")
def limited():
    for text, row, options, limit in (
            (NETS["elements"], "generic-gpu", [], "memory bandwidth"), (product(16, 16, 16), "sm_90a", [], "the launch"),
            (NETS["a large product"], "sm_80", [], "instruction issue")):
        found = max(limits(text, row, *options), key=lambda kernel: kernel[1])[0]
        expect(found == limit, f"{text}: {found}")


@suite.case("blocks of products that the units' cache does not hold run in groups of rows, others in order")
def groups():
    for size, row, grouped in ((8192, "sm_90a", True), (8192, "sm_80", True), (1024, "sm_90a", False), (8192, "gfx942", False)):
        text = f"input %a : f16[{size}, {size}]\ninput %b : f16[{size}, {size}]\n%y = matmul(%a, %b)\n"
        expect(bool(re.search(r"order 0 axis=\d to=1; (?:(?:stage_epilogue|swizzle) [^;]*; )*grid", info(text, row, "--why"))) == grouped, f"{size} on {row}")


@suite.case("boxes that an engine copies count once for each block")
def boxes():
    n = 4096
    why = info(f"input %a : f16[{n}, {n}]\ninput %b : f16[{n}, {n}]\n%y = matmul(%a, %b)\n", "sm_90a", "--why")
    nbytes, whole = float(re.search(r"blocks for ([\d.e+]+) KB", why)[1]) * 1024, 2 * 2 * n ** 3
    expect(whole / 256 < nbytes < whole / 64, f"{nbytes} bytes, of tiles of 64 to 256 {whole / 64} to {whole / 256}")


def at_least(row, nbytes, flop, of=None):
    """us: no kernel is faster than its device's memory, nor than the units that multiply."""
    facts = ROWS[row][1]
    rates = [rate for fact, rate in facts.items() if fact == "gflops" or (fact.endswith(" by matrices") and (of is None or of in fact))]
    return max(nbytes / facts["gbytes"], flop / max(rates)) / 1e3


BOUNDED = ("sm_80", "sm_90a", "sm_120", "generic-gpu", "gfx942", "gfx1100", "m1")


@suite.case("products of few rows and of many take as long as their bytes from memory and their products do")
def bounded_products():
    for m, k, n in ((16, 4096, 14336), (16, 14336, 4096), (128, 4096, 14336), (1, 4096, 4096), (4096, 4096, 4096)):
        text = f"input %a : f16[{m}, {k}]\ninput %b : f16[{n}, {k}]\n%y = linear(%a, %b)\n"
        for row in BOUNDED:
            least, expected = at_least(row, 2 * (m * k + k * n + m * n), 2 * m * k * n, "F16"), predicted(text, row)
            expect(expected >= least, f"{m} x {k} x {n} on {row}: {expected} us expected, {least} us by its bytes and products")


@suite.case("a wave's threads share a sum of as many blocks as they are, each with a scale")
def shared_blocks():
    """Of weights of 4 bits: no loop of the sum is long, all of them together are. One thread had the whole sum."""
    k, n, block = 4096, 256, 128
    given = {"w": np.random.default_rng(1).integers(0, 256, (n, k // block, block // 2), dtype=np.uint8), "s": np.full(n * k // block, 0.01, np.float16)}
    node = helper.make_node("MatMulNBits", ["x", "w", "s"], ["y"], domain="com.microsoft", K=k, N=n, bits=4, block_size=block)
    of = [[helper.make_tensor_value_info(name, TensorProto.FLOAT16, [1, size])] for name, size in (("x", k), ("y", n))]
    graph = helper.make_graph([node], "net", *of, [numpy_helper.from_array(value, name) for name, value in given.items()])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]

    def save(folder):
        (folder / "net.onnx").write_bytes(helper.make_model(graph, opset_imports=opsets).SerializeToString())
        return folder / "net.onnx"

    for row in ("sm_90a", "sm_80"):
        words = T.must(T.run([TGC, "info", T.shared("nibbles", save), "--target=cuda", f"--cpu={row}", "--why"])).out.decode()
        expect(re.search(r"\b(shuffle_reduce|slice_k|slice_k_adjacent|block_reduce) 0\.sum0", words), f"on {row}: {words[-2000:]}")


@suite.case("nothing is expected to be faster than its bytes from memory and its products")
def bounded():
    for name, text in NETS.items():
        for row in BOUNDED:
            for options in ((), ("--math=f16",)) if name.startswith("a") else ((),):
                found = json.loads(info(text, row, "--json", *options))
                least, expected = at_least(row, found["device"]["least_bytes"], found["flop"]), found["device"]["predicted_us"]
                expect(expected >= least, f"{name} {options} on {row}: {expected} us expected, {least} us by its bytes and products")


@suite.case("a program for several machines keeps to the least local memory of them")
def several():
    """A block's scores of 4 queries by 15000 keys fit one of the two; the other would have refused it, and one thread had a row."""
    text = "".join(f"input %{x} : f32[140, {n}, 16]\n" for x, n in (("q", 4), ("k", 15000), ("v", 15000))) + "%y = attention(%q, %k, %v)\n"
    path = T.shared("nets", write, text)
    done = T.must(T.run([TGC, "info", path, "--json", "--target=cuda", "--cpu=sm_90a,sm_80"]))
    both, alone = json.loads(done.out)["device"]["predicted_us"], predicted(text, "sm_90a")
    expect(both < 10 * alone, f"for both {both} us, for one {alone} us")


@suite.case("of a table the elements that are gathered count, once each")
def gathered():
    text = "input %i : i64[1, 7]\nweight %t : f32[30000, 64] = normal(seed=1)\n%r = gather(%t, %i) {axis=0}\n%y = relu(%r)\n"
    for row in ("generic-gpu", "sm_90a"):
        device = json.loads(info(text, row, "--json"))["device"]
        expect(device["least_bytes"] == device["moved_bytes"] == 7 * 8 + 2 * 7 * 64 * 4, f"{row}: {device}")
    whole = json.loads(info(text.replace("%i", "%at").replace("gather(%t, %at) {axis=0}", "add(%t, 1.0)"), "generic-gpu", "--json"))["device"]
    expect(whole["least_bytes"] == 2 * 30000 * 64 * 4, f"{whole}")


@suite.case("of threads that share a scatter's places one loads and stores each update")
def scattered():
    n, width = 4096, 1024
    text = f"input %x : f32[32768, {width}]\ninput %i : i64[{n}, 1]\ninput %u : f32[{n}, {width}]\n%y = scatter_nd(%x, %i, %u) {{op=add}}\n"
    for row in ("generic-gpu", "sm_90a"):
        why = info(text, row, "--why")
        kernel = re.search(r"^scatternd_0_1: (?:.|\n)*?threads ask for ([\d.e+]+) KB", why, re.M)
        each, asked = n * width * 4, float(kernel[1]) * 1024
        threads = width * int(re.search(r"grid: 1024 x (\d+)", kernel[0])[1])
        expect(threads > width, f"no places are shared: {kernel[0]}")
        expect(row == "generic-gpu" or threads >= 16 * width, f"{row}: {threads} threads")
        expect(3 * each < asked < 3.3 * each, f"{row}: {asked} bytes, {each} of updates, {threads} threads")


@suite.case("what the taps of a window read of one another's bytes counts once")
def taps():
    def depthwise(channels):
        path = T.shared("nets", write, f"input %x : f32[1, 32, 28, 28]\nweight %v : f32[{channels}, 32, 1, 1] = normal(seed=1)\n%a0 = conv2d(%x, %v)\n"
                        f"weight %w : f32[{channels}, 1, 3, 3] = normal(seed=1)\n%a = relu(%a0)\n%y0 = conv2d(%a, %w) {{padding=1, groups={channels}}}\n%y = relu(%y0)\n")
        why = T.must(T.run([TGC, "info", path, "--cpu=avx512", "--why"])).out.decode()
        return float(re.search(r"^conv2d_1: .*; predicted ([\d.e+]+) us", why, re.M)[1])
    few, more = depthwise(144), depthwise(192)      # the rows of a window fit into the L1 cache; those of its taps, each for itself, would not
    expect(more < 3 * few, f"{few} us, {more} us for a third more")


suite.main()
