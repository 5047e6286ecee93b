"""--math: what products of factors rounded to tf32, bf16 or f16 are, on every target.

NumPy rounds the factors here, independently, and adds exact products in float64: programs may differ from that by the order of their f32 sums
alone. Programs for devices run on the emulated one.
"""

import re
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE.parent / "lib")]

import numpy as np
import onnx

import cuda
import emulator
import graphs as G
import tgc as T
from suite import Failure, Skip, Suite, expect

suite = Suite("math", jobs=1)
OPTIONS = suite.parse()
TGC = T.find_tgc(OPTIONS.build).resolve()
SCRATCH = T.scratch(Path(OPTIONS.build).resolve() / "test-scratch" / "math")
TYPES = ("tf32", "bf16", "f16")


def rounded(x, kind):
    if kind == "f32":
        return np.float64(x)
    if kind == "f16":
        with np.errstate(over="ignore"):
            return np.float64(x.astype(np.float16))
    bits = np.ascontiguousarray(x).view(np.uint32).astype(np.uint64)
    if kind == "tf32":                 # half away from zero
        bits = bits + 0x1000 & 0xFFFFE000
    else:                              # half to even
        bits = bits + 0x7FFF + (bits >> 16 & 1) & 0xFFFF0000
    return np.where(np.isnan(x), x, bits.astype(np.uint32).view(np.float32)).astype(np.float64)


def values(random, *shape):
    """Some of them ties, of both signs."""
    x = random.uniform(-2, 2, shape).astype(np.float32)
    flat = x.reshape(-1)
    for k, bits in enumerate((0x3F801000, 0x3F803000, 0xBF801000, 0x3F808000, 0x3F818000, 0xBF818000)):
        flat[k::11] = np.array([bits], np.uint32).view(np.float32)
    return x


def windows(x):
    """x[n, c, y, x] with a border of 1 -> [n, y, x, c, 3, 3]"""
    return np.lib.stride_tricks.sliding_window_view(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), (2, 3)).transpose(0, 2, 3, 1, 4, 5)


def network():
    """A product with a weight and one of two inputs, which share a factor; a convolution; channels one by one, and a dot product, which stay
    as they are."""
    random = np.random.default_rng(5)
    w, f, d = values(random, 48, 36), values(random, 16, 8, 3, 3), values(random, 8, 1, 3, 3)
    inputs = {"x": values(random, 40, 48), "k": values(random, 48, 32), "i": values(random, 1, 8, 10, 12)}
    nodes = [G.node("MatMul", ["x", "w"], ["y"], name="y"), G.node("MatMul", ["x", "k"], ["z"], name="z"),
             G.node("Conv", ["i", "f"], ["c"], name="c", pads=[1, 1, 1, 1]),
             G.node("Conv", ["i", "d"], ["e"], name="e", pads=[1, 1, 1, 1], group=8),
             G.node("Mul", ["x", "x2"], ["p"], name="p"), G.node("ReduceSum", ["p", "axes"], ["s"], name="s", keepdims=0)]
    inputs["x2"] = values(random, 40, 48)
    model = G.model(nodes, [G.value(name, v.shape) for name, v in inputs.items()],
                    [G.value("y", [40, 36]), G.value("z", [40, 32]), G.value("c", [1, 16, 10, 12]), G.value("e", [1, 8, 10, 12]), G.value("s", [40])],
                    [G.weight("w", w), G.weight("f", f), G.weight("d", d), G.weight("axes", np.array([1], np.int64))])

    def want(kind):
        r = {name: rounded(v, kind) for name, v in (*inputs.items(), ("w", w), ("f", f))}
        i = np.float64(inputs["i"])
        return {"y": r["x"] @ r["w"], "z": r["x"] @ r["k"], "c": np.einsum("nyxcab,ocab->noyx", windows(r["i"]), r["f"]),
                "e": np.einsum("nyxcab,cab->ncyx", windows(i), np.float64(d[:, 0])), "s": np.sum(np.float64(inputs["x"]) * inputs["x2"], 1)}
    return model, inputs, want


def attention():
    """Exponentials are rounded before the sum over the values, after the largest is taken from them: the largest so far, where keys come by blocks
    of as many as the schedule says."""
    random = np.random.default_rng(6)
    inputs = {name: random.uniform(-1, 1, (2, n, 32)).astype(np.float32) for name, n in (("q", 64), ("k", 96), ("v", 96))}
    nodes = [G.node("Transpose", ["k"], ["t"], name="t", perm=[0, 2, 1]), G.node("MatMul", ["q", "t"], ["m"], name="m"),
             G.node("Softmax", ["m"], ["p"], name="p", axis=-1), G.node("MatMul", ["p", "v"], ["y"], name="y")]
    model = G.model(nodes, [G.value(name, v.shape) for name, v in inputs.items()], [G.value("y", [2, 64, 32])])

    def want(kind):
        q, k, v = (rounded(x, kind) for x in inputs.values())
        s = q @ k.transpose(0, 2, 1)

        def by_blocks(n):
            most, total, y = -np.inf, 0, 0
            for at in range(0, 96, n):
                of = s[..., at:at + n]
                now = np.maximum(most, of.max(-1, keepdims=True))
                p = np.exp(of - now)
                y = y * np.exp(most - now) + rounded(p.astype(np.float32), kind) @ v[:, at:at + n]
                total, most = total * np.exp(most - now) + p.sum(-1, keepdims=True), now
            return y / total
        return {"y": [by_blocks(n) for n in (96, 16, 32, 48)]}
    return model, inputs, want


def environment_of(target, folder):
    """Where a program for the target finds its device."""
    if target == "cuda":
        return emulator.cuda_environment(OPTIONS.build, folder / "net.cu", cache=folder / "kernels")
    if target == "opencl":
        return emulator.environment(OPTIONS.build, cache=folder / "kernels")
    return emulator.metal_environment(OPTIONS.build, cache=folder / "kernels") if target == "metal" else None


def check(make, kind, target, *options):
    tolerance = 2e-5
    folder = T.scratch(SCRATCH / f"{make.__name__}_{kind}_{target}{''.join(options)}")
    model, inputs, want = make()
    onnx.save(model, folder / "net.onnx")
    given = (f"--math={kind}", f"--target={target}", *options)
    if target == "cuda":
        cuda.need_nvrtc()
        for out in ("net.c", "net.cu"):            # the emulator runs the text
            T.must(T.run([TGC, "net.onnx", "-o", out, "--name=net", *given], cwd=folder))
    elif target != "llvm":
        T.emit(TGC, folder / "net.onnx", folder / "net.c", *given)
    names = list(want(kind))
    for name, x in inputs.items():
        np.save(folder / f"{name}.npy", x)
    if target == "llvm":
        T.need_llvm(TGC)
        T.must(T.run([TGC, "run", "net.onnx", *given, "--out-dir=.", *(f"-i{name}={name}.npy" for name in inputs)], cwd=folder))
        have = T.read_outputs(folder, names)
    else:
        T.build(folder / "net.c", folder / "net", "gcc", ("-O1", *(emulator.METAL_FLAGS if target == "metal" else ())))
        done = T.must(T.run([folder / "net", *(f"{name}.npy" for name in inputs), "-o", "."], cwd=folder, env=environment_of(target, folder)))
        expect("emulator:" not in done.err, done.err)
        have = T.read_outputs(folder, names)
    exact, least = want("f32"), {}
    for name, ways in want(kind).items():
        ways, of_floats = (x if isinstance(x, list) else [x] for x in (ways, exact[name]))
        most = np.abs(ways[0]).max()
        error = min(np.abs(have[name] - way).max() for way in ways) / most
        expect(error < tolerance, f"{name} is {error:.2g} of the largest from products of rounded factors")
        least[name] = np.abs(ways[0] - of_floats[0]).max() / most
    expect(max(least.values()) > 5 * tolerance, f"nothing would be rounded: {least}")


for kind in TYPES:
    for target, *options in (("c", "--cpu=auto"), ("c", "--cpu=generic"), ("c", "-O0"), ("llvm",), ("cuda",), ("opencl",), ("metal",)):
        suite.add(f"{kind}, {target} {' '.join(options)}".strip(), check, network, kind, target, *options)
for target in ("c", "llvm", "cuda"):
    def by_keys(target=target):
        check(attention, "bf16", target)
    suite.add(f"attention, {target}", by_keys)


# --------------------------------------------------------------------------------- pairs of bf16

FLAGS = set(Path("/proc/cpuinfo").read_text().split()) if Path("/proc/cpuinfo").exists() else set()
NEEDS = {"generic": "", "avx2": "fma", "avx512": "avx512dq", "avx512bf16": "avx512_bf16"}
COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"
# rows, terms, columns: around those of vectors, halves of vectors and tiles; pairs need an even number of terms
PRODUCTS = [(1, 64, 16), (13, 2, 32), (7, 34, 24), (9, 64, 40), (16, 48, 17), (33, 30, 64), (5, 31, 32), (50, 96, 8), (3, 10, 5)]
# channels, filters, side, kernel, stride
CONVOLUTIONS = [(8, 32, 9, 3, 1), (16, 24, 8, 1, 1), (6, 16, 11, 5, 2), (3, 16, 9, 3, 1)]


def layers():
    """Products and convolutions with weights, of many sizes."""
    random = np.random.default_rng(9)
    nodes, inputs, outputs, weights, want = [], {}, [], [], {}
    for i, (m, k, n) in enumerate(PRODUCTS):
        x, w = values(random, m, k), values(random, k, n)
        inputs[f"x{i}"] = x
        weights.append(G.weight(f"w{i}", w))
        nodes.append(G.node("MatMul", [f"x{i}", f"w{i}"], [f"y{i}"], name=f"y{i}"))
        want[f"y{i}"] = lambda kind, x=x, w=w: rounded(x, kind) @ rounded(w, kind)
    for i, (c, n, size, kernel, stride) in enumerate(CONVOLUTIONS):
        x, w = values(random, 1, c, size, size), values(random, n, c, kernel, kernel)
        pad = kernel // 2
        inputs[f"i{i}"] = x
        weights.append(G.weight(f"f{i}", w))
        nodes.append(G.node("Conv", [f"i{i}", f"f{i}"], [f"c{i}"], name=f"c{i}", pads=[pad] * 4, strides=[stride] * 2))
        def conv(kind, x=x, w=w, pad=pad, kernel=kernel, stride=stride):
            wide = np.pad(rounded(x, kind), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
            seen = np.lib.stride_tricks.sliding_window_view(wide, (kernel, kernel), (2, 3))[:, :, ::stride, ::stride]
            return np.einsum("ncyxab,ocab->noyx", seen, rounded(w, kind))
        want[f"c{i}"] = conv
    outputs = [G.value(name, list(f("f32").shape)) for name, f in want.items()]
    return G.model(nodes, [G.value(name, x.shape) for name, x in inputs.items()], outputs, weights), inputs, want


LAYERS = layers()


def agrees(folder, runner=(), exe="net"):
    """Each element is as near as f32 sums of exact products are, in whatever order."""
    _, inputs, want = LAYERS
    have = T.Program(folder / exe, list(want), runner=runner).run(list(inputs.values()))
    for name, f in want.items():
        exact = f("bf16")
        error = np.abs(have[name] - exact).max() / np.abs(exact).max()
        expect(error < 2e-6, f"{name} is {error:.2g} of the largest from products of rounded factors")
    return have


def emit_layers(name, *options):
    folder = T.scratch(SCRATCH / f"pairs-{name}")
    onnx.save(LAYERS[0], folder / "net.onnx")
    T.emit(TGC, folder / "net.onnx", folder / "net.c", "--math=bf16", *options)
    return folder


def pairs(cpu):
    folder = emit_layers(cpu, f"--cpu={cpu}")
    T.build(folder / "net.c", folder / "net", main_by=TGC)
    if NEEDS.get(cpu, "") and NEEDS[cpu] not in FLAGS:
        raise Skip(f"this processor lacks {NEEDS[cpu]}")
    agrees(folder)


for cpu in (*NEEDS, "auto", "native"):
    suite.add(f"pairs of bf16, --cpu={cpu}", pairs, cpu)


@suite.case("pairs of bf16, llvm")
def by_llvm():
    T.need_llvm(TGC)
    folder = emit_layers("llvm")
    _, inputs, want = LAYERS
    for name, x in inputs.items():
        np.save(folder / f"{name}.npy", x)
    T.must(T.run([TGC, "run", "net.onnx", "--math=bf16", "--target=llvm", "--out-dir=.", *(f"-i{name}={name}.npy" for name in inputs)], cwd=folder))
    have = T.read_outputs(folder, list(want))
    for name, f in want.items():
        exact = f("bf16")
        error = np.abs(have[name] - exact).max() / np.abs(exact).max()
        expect(error < 2e-6, f"{name} is {error:.2g} of the largest from products of rounded factors")


@suite.case("pairs of bf16: which kernels have them, and which programs")
def taken():
    folder = emit_layers("taken")
    text = (folder / "net.c").read_text()
    # all but those of an odd number of terms, and of fewer columns than a vector has lanes
    for isa in ("bf16", "bfdot"):
        kernels = re.findall(rf"^IN_{isa} static void (\w+)\((.*?)^\}}", text, re.M | re.S)
        with_pairs = [name for name, body in kernels if "dot_pairs" in body]
        least = sum(k % 2 == 0 and n >= 8 for _, k, n in PRODUCTS) + sum(c % 2 == 0 for c, *_ in CONVOLUTIONS)
        expect(len(with_pairs) == least, f"{isa}: {len(with_pairs)} of {least} layers have pairs: {with_pairs}")
    for options in (("--cpu=avx2",), ("--cpu=neoni8mm",), ("--target=opencl",)):
        T.emit(TGC, folder / "net.onnx", folder / "other.c", "--math=bf16", *options)
        expect("dot_bf16" not in (folder / "other.c").read_text(), f"{options}: pairs without an instruction for them")
    T.emit(TGC, folder / "net.onnx", folder / "other.c")
    expect("dot_bf16" not in (folder / "other.c").read_text(), "pairs that nobody has asked for")


@suite.case("pairs of bf16: a processor that says it has none takes the next variant")
def denied():
    if "avx512_bf16" not in FLAGS:
        raise Skip("this processor lacks AVX512_BF16")
    folder = emit_layers("denied")
    text = (folder / "net.c").read_text()
    found = '__builtin_cpu_supports("avx512bf16")'
    expect(found in text, "no question for AVX512_BF16")
    text, n = re.subn(r"return (?=_mm\d+_dpbf16_ps)", "__builtin_trap();\n    return ", text)
    expect(n > 0, "no pairs")
    for exe, source in (("with", text), ("without", text.replace(found, f"!{found}"))):
        (folder / "net.c").write_text(source)
        T.build(folder / "net.c", folder / exe, main_by=TGC)
    agrees(folder, exe="without")
    try:
        agrees(folder, exe="with")
    except Failure:
        return
    expect(False, "the instruction was never run")


def emulated(processor):
    for tool in (COMPILER, EMULATOR):
        if not shutil.which(tool):
            raise Skip(f"{tool} is not here")
    folder = emit_layers(f"arm-{processor}", "--cpu=auto")
    T.build(folder / "net.c", folder / "net", COMPILER, (T.LEVEL, "-static"), main_by=TGC)
    agrees(folder, runner=(EMULATOR, "-cpu", processor))


for processor in ("cortex-a53", "max"):
    suite.add(f"pairs of bf16, NEON, emulated: {processor}", emulated, processor)


@suite.case("pairs of bf16: what is not finite, and subnormal numbers")
def special():
    """A row has what its own elements make of it, and changes no other row; subnormal numbers may be zeros, as they are to the instructions."""
    folder = T.scratch(SCRATCH / "pairs-special")
    random = np.random.default_rng(4)
    x, w = values(random, 12, 64), values(random, 64, 32)
    onnx.save(G.model([G.node("MatMul", ["x", "w"], ["y"], name="y")], [G.value("x", x.shape)], [G.value("y", [12, 32])], [G.weight("w", w)]),
              folder / "net.onnx")
    T.emit(TGC, folder / "net.onnx", folder / "net.c", "--math=bf16")
    T.build(folder / "net.c", folder / "net", main_by=TGC)
    program = T.Program(folder / "net", ["y"])
    plain = program.run([x])["y"]
    x[1, 5], x[3, 8], x[5, :2], x[7] = np.nan, np.inf, (np.inf, -np.inf), 1e-40
    x[9, 3] = np.float32(3.4e38)                      # rounds to infinity
    y = program.run([x])["y"]
    ordinary = [row for row in range(12) if row not in (1, 3, 5, 7, 9)]
    expect((y[ordinary] == plain[ordinary]).all(), "other rows change")
    expect(np.isnan(y[1]).all(), "NaN")
    expect((y[3] == np.sign(rounded(w, "bf16")[8]) * np.inf).all(), "infinity")
    of = rounded(w, "bf16")[:2]
    expect((np.isnan(y[5]) == (np.sign(of[0]) == np.sign(of[1]))).all(), "infinities of both signs")
    expect((np.abs(y[7]) < 1e-37).all(), "subnormal numbers")
    expect((y[9] == np.sign(rounded(w, "bf16")[3]) * np.inf).all(), "beyond the largest")


def tolerance_of(source):
    return [float(number) for number in re.search(r"SELFTEST_RTOL = (.*), SELFTEST_ATOL = (.*);", source).groups()]


@suite.case("a self-test's tolerance")
def derived():
    """It follows from what is rounded: nothing in f32, eight times as much by bf16 as by f16, at most; and a sum that lacks one of its 128 terms
    is found."""
    found = {}
    for kind in ("f32", "tf32", "f16", "bf16"):
        folder = T.scratch(SCRATCH / f"tolerance_{kind}")
        T.emit(TGC, ROOT / "models" / "mlp.tg", folder / "net.c", f"--math={kind}", "--cpu=generic", "-O0")
        source = (folder / "net.c").read_text()
        found[kind] = tolerance_of(source)[1] - 1e-4
        broken = re.sub(r"k < 128; k\+\+\)(?=\n +sum \+=)", "k < 127; k++)", source, count=1)
        expect(broken != source, "no sum of 128 terms")
        for name, text, status in (("right", source, 0), ("broken", broken, 1)):
            (folder / name).mkdir()
            (folder / name / "net.c").write_text(text)
            (folder / name / "net.h").write_text((folder / "net.h").read_text())
            T.build(folder / name / "net.c", folder / name / "net", "gcc", ("-O1",))
            done = T.run([folder / name / "net", "--selftest"])
            expect(done.status == status, f"{kind}, {name}: {done.describe()}")
    expect(abs(found["f32"]) < 1e-9 < found["tf32"] < found["f16"] < found["bf16"] < 9 * found["f16"] < 5e-3, f"{found}")
    T.emit(TGC, ROOT / "models" / "mlp.tg", folder / "net.c", "--target=opencl", "--half-storage")
    expect(5e-4 < tolerance_of((folder / "net.c").read_text())[1] < 4e-3, "halves in memory")


@suite.case("beyond the largest half")
def beyond():
    """Infinite, of inputs and of weights, of which the compiler warns; a NaN stays one."""
    folder = T.scratch(SCRATCH / "beyond")
    model = G.model([G.node("MatMul", ["x", "w"], ["y"], name="y")], [G.value("x", [2, 8])], [G.value("y", [2, 8])],
                    [G.weight("w", np.diag([1, 1, 1, 70000, 1, 1, 1, 1]).astype(np.float32))])
    onnx.save(model, folder / "net.onnx")
    x = np.array([[65519, 1, 0, 0, 0, 0, 0, 0], [65520, 2, 0, 1, np.nan, 0, 0, 0]], np.float32)
    np.save(folder / "x.npy", x)
    for kind, most in (("f16", np.inf), ("bf16", 65536)):
        done = T.emit(TGC, folder / "net.onnx", folder / "net.c", f"--math={kind}")
        expect(("weight 'w' has an element beyond 65504" in done.err) == (kind == "f16"), done.err)
        T.build(folder / "net.c", folder / "net")
        T.must(T.run([folder / "net", "x.npy", "-o", "."], cwd=folder))
        y = T.read_outputs(folder, ["y"])["y"]
        expect(np.isnan(y[1]).any() and (y[0, 0] == (65504 if kind == "f16" else most)), y)


@suite.case("nodes that are left in f32")
def unrounded():
    folder = T.scratch(SCRATCH / "unrounded")
    model, inputs, want = network()
    onnx.save(model, folder / "net.onnx")
    for name, x in inputs.items():
        np.save(folder / f"{name}.npy", x)
    for options, left in ((("--math=bf16", "--math=y=f32"), "y"), (("--math=[a-z]=f32", "--math=bf16"), None), (("--math=c*=f32", "--math=z=f32", "--math=bf16"), "cz")):
        done = T.run([TGC, folder / "net.onnx", "-o", folder / "net.c", *options])
        if left is None:
            expect(done.status == 1 and "--math=[a-z]=f32: no node of that name" in done.err and "'y', 'z', 'c'" in done.err, done.describe())
            continue
        T.must(done)
        T.build(folder / "net.c", folder / "net", "gcc", ("-O1",))
        T.must(T.run([folder / "net", *(f"{name}.npy" for name in inputs), "-o", "."], cwd=folder))
        have = T.read_outputs(folder, list(want("f32")))
        for name, exact in want("f32").items():
            rounds = name in "yzc" and name not in left
            error = np.abs(have[name] - exact).max() / np.abs(exact).max()
            expect(error > 2e-4 if rounds else error < 2e-6, f"{options}: {name} is {error:.2g} of the largest from f32")
        expect(f"(--math), but for {', '.join(o[7:-4] for o in options if o.endswith('=f32'))}" in
               T.must(T.run([TGC, "info", folder / "net.onnx", *options])).out.decode(), "info")
    for words in (("--math=y=f32",), ("--math=bf16", "--math=y=bf16"), ("--math=bf16", "--math==f32")):
        done = T.run([TGC, folder / "net.onnx", "-o", folder / "no.c", *words])
        expect(done.status == 2 and "--math" in done.err and not (folder / "no.c").exists(), done.describe())


@suite.case("the same program for f32")
def default():
    folder = T.scratch(SCRATCH / "default")
    model, _, _ = network()
    onnx.save(model, folder / "net.onnx")
    T.emit(TGC, folder / "net.onnx", folder / "net.c")
    text = (folder / "net.c").read_bytes()
    T.emit(TGC, folder / "net.onnx", folder / "net.c", "--math=f32")
    expect((folder / "net.c").read_bytes() == text, "--math=f32 is not what there is without it")


@suite.case("what is told of it, and what is refused")
def told():
    folder = T.scratch(SCRATCH / "told")
    model, _, _ = network()
    onnx.save(model, folder / "net.onnx")
    expect(T.info(TGC, folder / "net.onnx")["math"] == "f32", "info")
    about = [T.info(TGC, folder / "net.onnx", f"--math={kind}") for kind in TYPES]
    expect([one["math"] for one in about] == list(TYPES), about)
    expect(about[1]["weight_bytes"] < 0.6 * about[0]["weight_bytes"], "weights of a product are halves in memory")
    expect("factors rounded to bf16" in T.must(T.run([TGC, "info", folder / "net.onnx", "--math=bf16"])).out.decode(), "info, as text")
    T.emit(TGC, folder / "net.onnx", folder / "net.c", "--math=f16")
    expect("rounded to f16" in (folder / "net.c").read_text()[:4000], "the C file's head")
    for option, found in (("--math=f64", "f32|tf32|bf16|f16"), ("--math=", "f32|tf32|bf16|f16"), ("--math", "f32|tf32|bf16|f16")):
        done = T.run([TGC, folder / "net.onnx", "-o", folder / "no.c", option])
        expect(done.status == 2 and "--math" in done.err and not (folder / "no.c").exists(), done.describe())
    done = T.run([TGC, folder / "net.onnx", "-o", folder / "no.c", "--math=bf16", "--strassen"])
    expect(done.status == 2 and "one of them alone" in done.err, done.describe())
    done = T.run([TGC, "verify", folder / "net.onnx", "--other=--math=bf16", "--rtol=1e-6"])
    expect(done.status == 3 and "largest difference" in done.out.decode() + done.err, done.describe())


suite.main()
