"""Results that lie over an input that nobody needs any more (passes/place/overlap.c), and how large arenas
are by that.

The reference is onnx's. Each model makes a large tensor, then one from it whose stores trail the loads:
both together are the arena's largest load. Every instruction set that runs here is compared, since
each has loops of its own.
"""

import json
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "lib")]

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

import graphs as G
import tgc as T
from suite import Suite, expect

suite = Suite("arena")
OPTIONS = suite.parse()
TGC = T.find_tgc(OPTIONS.build).resolve()
SCRATCH = T.scratch(Path(OPTIONS.build).resolve() / "test-scratch" / "arena")
FLAGS = set(Path("/proc/cpuinfo").read_text().split()) if Path("/proc/cpuinfo").exists() else set()
CPUS = ["generic"] + [cpu for cpu, flag in (("avx2", "avx2"), ("avx512", "avx512dq")) if flag in FLAGS]


def draw(*shape, seed=1):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def check(name, shape, nodes, weights=(), below=None):
    """y of the nodes, which read `big`, an expression of x. below: bytes that the arena is smaller than."""
    shape = list(shape)
    x = draw(*shape)
    weights = [G.weight(k, v) for k, v in dict(weights).items()]
    folder = T.scratch(SCRATCH / name)
    # x twice: `big` cannot be computed where it is read, nor put where x is
    nodes = [G.node("Softmax", ["x"], ["soft"], axis=-1), G.node("Add", ["soft", "x"], ["big"]), *nodes,
             G.node("Softmax", ["small"], ["y"], axis=-1)]
    model = G.model(nodes, [G.value("x", shape)], [G.value("y", None)], weights)
    onnx.save(model, folder / "model.onnx")
    want = ReferenceEvaluator(model).run(None, {"x": x})[0]
    turn = sum(name.encode())
    for k, cpu in enumerate(CPUS):
        for threads in (1, 3) if OPTIONS.all else (1, 3)[(turn + k) % 2:][:1]:         # in turn in the quick form
            out = folder / f"{cpu}{threads}"
            out.mkdir()
            T.must(T.run([TGC, folder / "model.onnx", "-o", out / "net.c", f"--cpu={cpu}", f"--threads={threads}"]))
            T.build(out / "net.c", out / "net", main_by=TGC)
            got = T.Program(out / "net", ["y"]).run([x])["y"]
            expect(np.allclose(got, want, rtol=1e-4, atol=1e-5), f"{cpu}, {threads} threads: wrong by {np.abs(got - want).max()}")
    if below:
        info = json.loads(T.must(T.run([TGC, "info", "--json", folder / "model.onnx"])).out)
        expect(info["arena_bytes"] < below, f"{info['arena_bytes']} bytes, less than {below} were expected")


def pool(op, **attributes):
    return [G.node(op, ["big"], ["small"], **attributes)]


BIG = 4 * 16 * 60 * 64
suite.add("pooling", check, "pool", (1, 16, 60, 64), pool("MaxPool", kernel_shape=[2, 2], strides=[2, 2]), (), BIG * 1.2)
suite.add("overlapping windows", check, "windows", (1, 16, 60, 64),
          pool("MaxPool", kernel_shape=[3, 3], strides=[2, 2]), (), BIG * 1.2)
suite.add("a border", check, "border", (1, 16, 60, 64),
          pool("AveragePool", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4, count_include_pad=1))
suite.add("as many rows as there were", check, "same", (1, 16, 60, 64),
          pool("AveragePool", kernel_shape=[3, 3], pads=[1] * 4))
suite.add("larger than what it is made of", check, "larger", (1, 8, 30, 32),
          [G.node("Resize", ["big", "", "scales"], ["small"], mode="nearest", coordinate_transformation_mode="asymmetric",
                  nearest_mode="floor")],
          {"scales": np.array([1, 1, 2, 2], np.float32)})
suite.add("a convolution with strides", check, "conv", (1, 16, 60, 64),
          [G.node("Conv", ["big", "w"], ["small"], strides=[2, 2], kernel_shape=[3, 3])],
          {"w": draw(8, 16, 3, 3, seed=2)})
suite.add("channels apart", check, "depthwise", (1, 16, 60, 64),
          [G.node("Conv", ["big", "w"], ["small"], strides=[2, 2], kernel_shape=[5, 5], pads=[2] * 4, group=16)],
          {"w": draw(16, 1, 5, 5, seed=3)})
suite.add("fewer channels", check, "pointwise", (1, 64, 20, 24),
          [G.node("Conv", ["big", "w"], ["small"], kernel_shape=[1, 1])], {"w": draw(24, 64, 1, 1, seed=4)})
suite.add("a border around the result", check, "around", (1, 64, 40, 44),
          [G.node("Conv", ["big", "w"], ["c"]), G.node("Relu", ["c"], ["r"]),
           G.node("Conv", ["r", "v"], ["small"], strides=[2, 2], pads=[1] * 4)],
          {"w": draw(64, 64, 1, 1, seed=9) / 8, "v": draw(32, 64, 3, 3, seed=10) / 24}, 4 * 64 * 40 * 44 * 1.5)
suite.add("rows outside of channels", check, "channels", (1, 64, 40, 44),
          [G.node("Conv", ["big", "w"], ["c"]), G.node("Relu", ["c"], ["r"]),
           G.node("Conv", ["r", "v"], ["small"], strides=[2, 2], group=64)],
          {"w": draw(64, 64, 1, 1, seed=9) / 8, "v": draw(64, 1, 3, 3, seed=10) / 3}, 4 * 64 * 40 * 44 * 1.15)
suite.add("tiles beside a skip connection", check, "skip", (1, 32, 32, 32),
          [G.node("Conv", ["big", "w"], ["c"], pads=[1] * 4), G.node("Relu", ["c"], ["r"]),
           G.node("Conv", ["r", "v"], ["d"], pads=[1] * 4), G.node("Add", ["d", "big"], ["small"])],
          {"w": draw(32, 32, 3, 3, seed=11) / 17, "v": draw(32, 32, 3, 3, seed=12) / 17}, 4 * 32 * 32 * 32 * 4)
suite.add("tiles along one axis", check, "oblong", (1, 8, 58, 88),
          [G.node("Conv", ["big", "w"], ["c"], strides=[1, 3], pads=[2] * 4), G.node("Relu", ["c"], ["r"]),
           G.node("MaxPool", ["r"], ["small"], kernel_shape=[2, 2], strides=[2, 2])],
          {"w": draw(32, 8, 5, 5, seed=13) / 14}, 4 * 8 * 58 * 88 * 2.6)
suite.add("tiles of few channels beside a skip connection", check, "few", (1, 16, 32, 32),
          [G.node("Conv", ["big", "w"], ["c"], pads=[1] * 4), G.node("Relu", ["c"], ["r"]),
           G.node("Conv", ["r", "v"], ["d"], pads=[1] * 4), G.node("Add", ["d", "big"], ["small"])],
          {"w": draw(16, 16, 3, 3, seed=11) / 12, "v": draw(16, 16, 3, 3, seed=12) / 12}, 4 * 16 * 32 * 32 * 3)
suite.add("a bottleneck beside a skip connection", check, "bottleneck", (1, 64, 56, 56),
          [G.node("Conv", ["big", "w"], ["c"]), G.node("Relu", ["c"], ["r"]),
           G.node("Conv", ["r", "v"], ["d"], pads=[1] * 4), G.node("Relu", ["d"], ["s"]),
           G.node("Conv", ["s", "u"], ["e"]), G.node("Add", ["e", "big"], ["small"])],
          {"w": draw(16, 64, 1, 1, seed=14) / 8, "v": draw(16, 16, 3, 3, seed=15) / 12,
           "u": draw(64, 16, 1, 1, seed=16) / 4}, 4 * 64 * 56 * 56 * 1.5)
suite.add("a border beside what lives on", check, "stride", (1, 32, 40, 44),
          [G.node("Conv", ["big", "w"], ["c"]), G.node("Relu", ["c"], ["r"]),
           G.node("Conv", ["r", "v"], ["d"], pads=[1] * 4, strides=[2, 2]),
           G.node("Conv", ["big", "u"], ["e"], strides=[2, 2]), G.node("Add", ["d", "e"], ["small"])],
          {"w": draw(32, 32, 1, 1, seed=17) / 6, "v": draw(32, 32, 3, 3, seed=18) / 17,
           "u": draw(32, 32, 1, 1, seed=19) / 6}, 4 * 32 * 40 * 44 * 1.8)


def level(image, n):
    """Two layers, the second one of 256 channels, whose pixels lie in a row."""
    return [G.node("Conv", [image, "w"], [f"c{n}"], pads=[1] * 4), G.node("Relu", [f"c{n}"], [f"r{n}"]),
            G.node("Conv", [f"r{n}", "v"], [f"d{n}"], pads=[1] * 4), G.node("Relu", [f"d{n}"], [f"s{n}"]),
            G.node("Reshape", [f"s{n}", "shape"], [f"e{n}"])]


suite.add("levels that are joined", check, "levels", (1, 32, 32, 32),
          [G.node("MaxPool", ["big"], ["half"], kernel_shape=[2, 2], strides=[2, 2]), *level("big", 0), *level("half", 1),
           G.node("Concat", ["e0", "e1"], ["small"], axis=2)],
          {"w": draw(32, 32, 3, 3, seed=20) / 17, "v": draw(256, 32, 3, 3, seed=21) / 17,
           "shape": np.array([1, 256, -1])}, 4 * 32 * 32 * 32 * 19)
suite.add("taps that read the border", check, "taps", (1, 32, 28, 28),
          [G.node("Conv", ["big", "w"], ["small"], pads=[24] * 4, dilations=[24, 24])],
          {"w": draw(32, 32, 3, 3, seed=22) / 17}, 4 * 32 * 28 * 28 * 3.5)
suite.add("taps apart of groups and a batch", check, "apart", (2, 64, 20, 24),
          [G.node("Conv", ["big", "w"], ["small"], pads=[12, 12, 14, 12], dilations=[13, 12], group=2)],
          {"w": draw(32, 32, 3, 3, seed=23) / 17})
# each result begins below the one before, unless every other layer counts down
suite.add("a chain of results", check, "chain", (1, 64, 26, 8),
          [n for i, (a, b) in enumerate((("big", "b"), ("b", "c"), ("c", "d"), ("d", "small")))
           for n in (G.node("Conv", [a, "v"], [f"m{i}"], pads=[1] * 4, group=64), G.node("Relu", [f"m{i}"], [f"n{i}"]),
                     G.node("Conv", [f"n{i}", "w"], [f"o{i}"]), G.node("Relu", [f"o{i}"], [b]))],
          {"w": draw(64, 64, 1, 1, seed=24) / 8, "v": draw(64, 1, 3, 3, seed=25) / 3}, 4 * 64 * 26 * 8 * 1.8)
suite.add("the other way round", check, "flip", (64, 48, 16),
          [G.node("Slice", ["big", "from", "to", "axes", "steps"], ["small"])],
          {"from": np.array([-1]), "to": np.array([-1000]), "axes": np.array([0]), "steps": np.array([-2])})
suite.add("axes that change places", check, "transpose", (40, 24, 20),
          [G.node("Transpose", ["big"], ["t"], perm=[1, 0, 2]),
           G.node("Slice", ["t", "from", "to", "axes"], ["small"])],
          {"from": np.array([3]), "to": np.array([20]), "axes": np.array([0])})
suite.add("a matrix", check, "matrix", (96, 200), [G.node("MatMul", ["big", "w"], ["small"])],
          {"w": draw(200, 40, seed=5)})
suite.add("sums of rows", check, "rows", (50, 30, 40), [G.node("ReduceSum", ["big", "axes"], ["small"], keepdims=0)],
          {"axes": np.array([1])}, 4 * 50 * 30 * 40 * 1.1)


@suite.case("few intermediates are on the stack of a run")
def stack():
    weights = {"a": draw(64, 24, seed=6) / 8, "b": draw(24, 24, seed=7) / 5, "c": draw(24, 8, seed=8) / 5}
    nodes = [G.node("MatMul", ["x", "a"], ["h"]), G.node("Tanh", ["h"], ["i"]), G.node("MatMul", ["i", "b"], ["j"]),
             G.node("Tanh", ["j"], ["k"]), G.node("MatMul", ["k", "c"], ["y"])]
    folder = T.scratch(SCRATCH / "stack")
    onnx.save(G.model(nodes, [G.value("x", [1, 64])], [G.value("y", [1, 8])],
                      [G.weight(k, v) for k, v in weights.items()]), folder / "model.onnx")
    T.must(T.run([TGC, folder / "model.onnx", "-o", folder / "net.c"]))
    T.build(folder / "net.c", folder / "net", flags=(T.LEVEL, "-fsanitize=address,undefined"))
    x = draw(1, 64)
    want = np.tanh(np.tanh(x @ weights["a"]) @ weights["b"]) @ weights["c"]
    got = T.Program(folder / "net", ["y"]).run([x])["y"]
    expect(np.allclose(got, want, rtol=1e-4, atol=1e-5), f"wrong by {np.abs(got - want).max()}")
    arena = int(re.search(r"ARENA_BYTES (\d+)", (folder / "net.h").read_text()).group(1))
    expect(arena <= 128, f"an arena of {arena} bytes")


def refused(*options, model=T.ROOT / "models" / "mnist_cnn.tg"):
    """What an error says of a limit; nothing is written."""
    out = T.scratch(SCRATCH / "limit") / "net.c"
    for words in ([TGC, "info", model], [TGC, model, "-o", out]):
        done = T.run([*words, *options])
        expect(done.status == 1 and not out.exists(), done.describe())
    return done.err


def figures(*options, model=T.ROOT / "models" / "mnist_cnn.tg"):
    info = json.loads(T.must(T.run([TGC, "info", "--json", model, *options])).out)
    return info.get("tensor_bytes", info["arena_bytes"]), info["weight_bytes"]


@suite.case("--max-arena: by how much, which kernel and tensors, and options with what they truly take")
def max_arena():
    arena, _ = figures("--cpu=avx512")
    T.must(T.run([TGC, "info", T.ROOT / "models" / "mnist_cnn.tg", "--cpu=avx512", f"--max-arena={arena}"]))
    said = refused("--cpu=avx512", f"--max-arena={arena - 1}")
    expect(f"takes {arena} bytes, 1 more than --max-arena={arena - 1}" in said and 'conv2d "c2"' in said, said)
    expect("f32[B,64,5,5] (409600 bytes)" in said and said.count(" bytes) of ") + said.count(", scratch of ") == 3, said)
    cures = re.findall(r"(--dim \S+|--[a-z]\S*|-Os) takes (\d+) \(enough\)", said)
    expect({"--dim B=1", "-Os", "--error=0", "--cpu=generic"} <= {option for option, _ in cures}, said)
    for option, takes in cures:
        options = [option] if option.startswith("--cpu") else ["--cpu=avx512", *option.split()]
        expect(figures(*options)[0] == int(takes), f"{option}: {figures(*options)[0]}, said are {takes}")
    T.must(T.run([TGC, "info", T.ROOT / "models" / "mnist_cnn.tg", "--cpu=generic", "--dim=B=1", "--max-arena=32K"]))
    said = refused("--cpu=generic", "--dim=B=1", "--max-arena=1K")
    expect("no option takes less: a smaller model is needed" in said, said)


@suite.case("--max-arena quotes a model's words for the shell")
def max_arena_quoted():
    folder = T.scratch(SCRATCH / "quoted")
    onnx.save(G.model([G.node("Relu", ["x"], ["a"]), G.node("Softmax", ["a"], ["b"]), G.node("Softmax", ["b"], ["y"], axis=0)],
                      [G.value("x", ["a b;touch pwn;", 64])], [G.value("y", ["a b;touch pwn;", 64])]), folder / "m.onnx")
    done = T.run([TGC, "info", folder / "m.onnx", "--dim", "a b;touch pwn;<=8", "--max-arena=1"])
    expect(done.status == 1 and "--dim 'a b;touch pwn;=1' takes" in done.err, done.err)


@suite.case("--max-flash: the largest weights by node and name, and what is enough")
def max_flash():
    _, flash = figures("--cpu=generic")
    said = refused("--cpu=generic", "--max-flash=512K")
    expect(f"{flash - (512 << 10)} more than --max-flash={512 << 10}" in said and 'linear "l1", w3' in said, said)
    takes = int(re.search(r"--weight-type=int8 takes (\d+) \(enough\)", said)[1])
    narrow = figures("--cpu=generic", "--weight-type=int8")[1]
    expect(0 <= takes - narrow < 64, f"{takes} bytes are said, {narrow} taken")       # the pool is aligned
    T.must(T.run([TGC, "info", T.ROOT / "models" / "mnist_cnn.tg", "--cpu=generic", f"--max-flash={flash}"]))
    said = refused("--cpu=generic", "--max-flash=4K", "--max-arena=4K")
    expect("more than --max-arena=4096" in said and "more than --max-flash=4096" in said, said)
    expect(said.count("not enough, a smaller model is needed") == 2, said)
    with open(T.ROOT / "models" / "gelu.tg", "rb") as model:
        done = T.run([TGC, "info", "-x", "tg", "-", "--max-arena=1"], stdin=model)
    expect(done.status == 1 and "standard input cannot be read again" in done.err, done.describe())


@suite.case("the tensors of a device are its memory's, beside the host's arena")
def device():
    said = T.must(T.run([TGC, "info", T.ROOT / "models" / "mnist_cnn.tg", "--target=cuda"])).out.decode()
    arena, tensors, live = map(int, re.search(r"arena: (\d+) bytes of the host's\ntensors on the device: (\d+) bytes, (\d+) of them alive",
                                              said).groups())
    expect(arena < 8192 and tensors >= live > 1 << 20, said)
    said = refused("--target=cuda", "--max-arena=1M")
    expect(f"the tensors on the device take {tensors} bytes" in said and "--dim B=1" in said, said)


suite.main()
