"""Products of quantized values in integers: for each instruction set, against NumPy's integers.

One model holds all layers, so that each instruction set is one program. Processors that lack one
run the portable kernels, which must agree as well. The oracle's own tests of DOT and of groups of
bytes are in tests/unit/test_linear.c.
"""

import re
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "lib")]

import numpy as np
import onnx
from onnx import TensorProto

import graphs as G
from board import START
import tgc as T
from suite import Failure, Skip, Suite, expect

suite = Suite("integer")
OPTIONS = suite.parse()
TGC = T.find_tgc(OPTIONS.build).resolve()
SCRATCH = T.scratch(Path(OPTIONS.build).resolve() / "test-scratch" / "integer")
KIND = {"u8": (np.uint8, TensorProto.UINT8), "i8": (np.int8, TensorProto.INT8)}


def integers(random, kind, shape):
    limits = np.iinfo(KIND[kind][0])
    return random.integers(limits.min, limits.max + 1, shape).astype(KIND[kind][0])


def convolve(x, w, group=1, stride=1, pad=0):
    """Of integers, x already less its zero point."""
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    n, c, height, width = x.shape
    kernel, out, each = w.shape[2], w.shape[0] // group, c // group
    rows, columns = (height - kernel) // stride + 1, (width - kernel) // stride + 1
    y = np.zeros((n, w.shape[0], rows, columns), np.int64)
    for g in range(group):
        of, to = slice(g * each, (g + 1) * each), slice(g * out, (g + 1) * out)
        for i in range(kernel):
            for j in range(kernel):
                part = x[:, of, i:i + stride * rows:stride, j:j + stride * columns:stride]
                y[:, to] += np.einsum("oc,ncyx->noyx", w[to, :, i, j], part)
    return y


class Layers:
    """A model of layers that have nothing to do with each other."""

    def __init__(self):
        self.random = np.random.default_rng(7)
        self.nodes, self.weights = [], []
        self.inputs, self.outputs, self.feeds = [], [], []
        self.want = {}
        self.quanta = {}

    def weight(self, name, array):
        self.weights.append(G.weight(name, np.asarray(array)))
        return name

    def input(self, name, kind, shape):
        x = integers(self.random, kind, shape)
        self.inputs.append(G.value(name, shape, KIND[kind][1]))
        self.feeds.append(x)
        return x.astype(np.int64)

    def output(self, name, want, kind):
        self.outputs.append(G.value(name, list(want.shape), kind))
        self.want[name] = want

    def matmul(self, name, rows, depth, columns, kinds=("u8", "i8"), zeros=(0, 0), batch=()):
        x = self.input(f"{name}_x", kinds[0], [*batch, rows, depth])
        w = integers(self.random, kinds[1], [depth, columns])
        self.weight(f"{name}_w", w)
        self.weight(f"{name}_xz", np.array(zeros[0], KIND[kinds[0]][0]))
        self.weight(f"{name}_wz", np.array(zeros[1], KIND[kinds[1]][0]))
        self.nodes.append(G.node("MatMulInteger", [f"{name}_x", f"{name}_w", f"{name}_xz",
                                                   f"{name}_wz"], [name], name=name))
        want = (x - zeros[0]) @ (w.astype(np.int64) - zeros[1])
        self.output(name, want.astype(np.int32), TensorProto.INT32)

    def product(self, name, rows, depth, columns, kinds=("u8", "u8"), zeros=(0, 0), batch=(),
                across=False, known=True):
        """Of two values of the run. across: what is summed up lies side by side in both of them, as
        in attention's scores."""
        x = self.input(f"{name}_x", kinds[0], [*batch, rows, depth])
        y = self.input(f"{name}_y", kinds[1],
                       [*batch, *((columns, depth) if across else (depth, columns))])
        right = f"{name}_y"
        if across:
            order = [*range(len(batch)), len(batch) + 1, len(batch)]
            self.nodes.append(G.node("Transpose", [right], [f"{name}_t"], perm=order))
            y, right = np.swapaxes(y, -1, -2), f"{name}_t"
        for k, side in enumerate("xy"):
            zero = np.array(zeros[k], KIND[kinds[k]][0])
            if known:
                self.weight(f"{name}_{side}z", zero)
            else:
                self.inputs.append(G.value(f"{name}_{side}z", [], KIND[kinds[k]][1]))
                self.feeds.append(zero)
        self.nodes.append(G.node("MatMulInteger", [f"{name}_x", right, f"{name}_xz", f"{name}_yz"],
                                 [name], name=name))
        want = (x - zeros[0]) @ (y - zeros[1])
        self.output(name, want.astype(np.int32), TensorProto.INT32)

    def conv(self, name, size, channels, out, kernel=3, kinds=("u8", "i8"), zeros=(0, 0), **more):
        x = self.input(f"{name}_x", kinds[0], [1, channels, size, size])
        group, stride, pad = more.get("group", 1), more.get("stride", 1), more.get("pad", 0)
        w = integers(self.random, kinds[1], [out, channels // group, kernel, kernel])
        self.weight(f"{name}_w", w)
        self.weight(f"{name}_xz", np.array(zeros[0], KIND[kinds[0]][0]))
        self.weight(f"{name}_wz", np.array(zeros[1], KIND[kinds[1]][0]))
        self.nodes.append(G.node("ConvInteger", [f"{name}_x", f"{name}_w", f"{name}_xz",
                                                 f"{name}_wz"], [name], name=name, group=group,
                                 strides=[stride] * 2, pads=[pad] * 4))
        want = convolve(x - zeros[0], w.astype(np.int64) - zeros[1], group, stride, pad)
        self.output(name, want.astype(np.int32), TensorProto.INT32)

    def shifted(self, name, shift):
        """Casts, a sum and padding, which no byte stands for if the shift is none's zero point."""
        x = self.input(f"{name}_x", "u8", [6, 30])
        w = integers(self.random, "i8", [32, 16])
        self.weight(f"{name}_w", w)
        self.weight(f"{name}_s", np.array(shift, np.int32))
        self.weight(f"{name}_p", np.array([0, 1, 0, 1], np.int64))
        self.nodes += [G.node("Cast", [f"{name}_x"], [f"{name}_c"], to=TensorProto.INT32),
                       G.node("Add", [f"{name}_c", f"{name}_s"], [f"{name}_a"]),
                       G.node("Pad", [f"{name}_a", f"{name}_p"], [f"{name}_q"]),
                       G.node("Cast", [f"{name}_w"], [f"{name}_v"], to=TensorProto.INT32),
                       G.node("MatMul", [f"{name}_q", f"{name}_v"], [name], name=name)]
        want = np.pad(x + shift, ((0, 0), (1, 1))) @ w.astype(np.int64)
        self.output(name, want.astype(np.int32), TensorProto.INT32)

    def dequantize(self, name, scale, zero, source, **more):
        self.weight(f"{name}_s", np.asarray(scale, np.float32))
        self.weight(f"{name}_z", zero)
        self.nodes.append(G.node("DequantizeLinear", [source, f"{name}_s", f"{name}_z"], [name],
                                 name=name, **more))
        return name

    def quantized_conv(self, name, size, channels, out, kernel=3, kind="u8", zero=100, pad=0,
                       relu=True):
        """Dequantized operands, bias, ReLU, quantized result: what stays in integers."""
        x = self.input(f"{name}_x", kind, [1, channels, size, size])
        w = integers(self.random, "i8", [out, channels, kernel, kernel])
        spread = 1 / (75 * np.sqrt(channels) * kernel)
        scale = (spread * (0.5 + self.random.random(out))).astype(np.float32)
        bias = (self.random.standard_normal(out) * 0.5).astype(np.float32)
        dtype = KIND[kind][0]
        self.weight(f"{name}_w", w)
        self.weight(f"{name}_b", bias)
        self.dequantize(f"{name}_xd", 0.02, np.array(zero, dtype), f"{name}_x")
        self.dequantize(f"{name}_wd", scale, np.zeros(out, np.int8), f"{name}_w", axis=0)
        self.nodes.append(G.node("Conv", [f"{name}_xd", f"{name}_wd", f"{name}_b"], [f"{name}_c"],
                                 name=name, pads=[pad] * 4))
        if relu:
            self.nodes.append(G.node("Relu", [f"{name}_c"], [f"{name}_r"], name=f"{name}_relu"))
        self.weight(f"{name}_ys", np.float32(0.03))
        middle = 20 if kind == "u8" else -20
        self.weight(f"{name}_yz", np.array(middle, dtype))
        self.nodes.append(G.node("QuantizeLinear", [f"{name}_r" if relu else f"{name}_c",
                                                    f"{name}_ys", f"{name}_yz"], [name],
                                 name=f"{name}_q"))
        sums = convolve(x - zero, w.astype(np.int64), pad=pad).astype(np.float64)
        real = sums * (np.float64(np.float32(0.02)) * scale.astype(np.float64)).reshape(1, -1, 1, 1)
        real += bias.reshape(1, -1, 1, 1)
        real = np.maximum(real, 0) if relu else real
        limits = np.iinfo(dtype)
        want = np.clip(np.rint(real / np.float64(np.float32(0.03))) + middle, limits.min, limits.max)
        self.output(name, want.astype(dtype), KIND[kind][1])
        self.quanta[name] = 1

    def model(self):
        return G.model(self.nodes, self.inputs, self.outputs, self.weights)


def layers():
    m = Layers()
    m.matmul("plain", 24, 128, 64)
    m.matmul("odd", 7, 36, 19, zeros=(3, 0))
    m.matmul("signed", 9, 64, 48, kinds=("i8", "i8"), zeros=(-5, 0))
    m.matmul("unsigned_weights", 5, 40, 33, kinds=("u8", "u8"), zeros=(200, 128))
    m.matmul("any_zero", 5, 40, 33, kinds=("u8", "u8"), zeros=(1, 77))
    m.matmul("depth_of_no_groups", 6, 41, 32, zeros=(9, 0))
    m.matmul("row", 1, 256, 1000, zeros=(128, 0))
    m.matmul("batch", 3, 32, 16, batch=(2, 4))
    m.product("scores", 18, 32, 40, zeros=(130, 5), batch=(2, 3), across=True)
    m.product("weighted", 18, 40, 32, zeros=(0, 132), batch=(2, 3))
    m.product("signs", 16, 36, 24, kinds=("i8", "i8"), zeros=(-128, 127))
    m.product("sign_and_none", 9, 64, 24, kinds=("i8", "u8"), zeros=(3, 255), across=True)
    m.product("none_and_sign", 33, 128, 16, kinds=("u8", "i8"), zeros=(255, -128))
    m.product("no_groups", 12, 30, 24, zeros=(7, 9), batch=(3,))
    m.product("no_groups_across", 12, 33, 16, zeros=(7, 9), across=True)
    m.product("zeros_of_the_run", 10, 16, 48, zeros=(200, 100), known=False)
    m.product("columns_left_over", 12, 32, 21, zeros=(7, 9))
    m.product("columns_left_over_few", 12, 20, 21, zeros=(7, 9))
    m.product("columns_filled", 9, 37, 50, zeros=(255, 1), batch=(2,), across=True)
    m.product("few_rows", 3, 64, 64, zeros=(1, 2))
    m.shifted("up", 5)
    m.shifted("down", -5)
    m.conv("colors", 11, 3, 16, zeros=(110, 0), pad=1, stride=2)
    m.conv("wide", 9, 32, 24, zeros=(255, 0), pad=1)
    m.conv("pointwise", 8, 20, 40, kernel=1)
    m.conv("groups", 8, 16, 32, group=2, pad=1, zeros=(7, 0))
    m.conv("depthwise", 9, 16, 16, group=16, pad=1, zeros=(7, 0))
    m.conv("signed_conv", 8, 6, 8, kinds=("i8", "i8"), zeros=(4, 0), pad=1)
    m.conv("grey", 10, 1, 8, pad=2, kernel=5, zeros=(1, 0))
    m.quantized_conv("q_wide", 10, 32, 48, pad=1)
    m.quantized_conv("q_colors", 12, 3, 20, pad=1, kernel=5)
    m.quantized_conv("q_signed", 9, 24, 40, kind="i8", zero=-3, pad=1, relu=False)
    m.quantized_conv("q_pointwise", 7, 64, 100, kernel=1)
    return m


MODEL = layers()
onnx.save(MODEL.model(), SCRATCH / "model.onnx")


def runs(program, runner=()):
    outputs = T.Program(program, list(MODEL.want), runner).run(MODEL.feeds)
    for key, want in MODEL.want.items():
        apart = np.abs(outputs[key].astype(np.int64) - want.astype(np.int64))
        allowed = MODEL.quanta.get(key, 0)
        expect(apart.max() <= allowed and (apart > 0).mean() <= 0.002,
               f"{key}: {(apart > 0).sum()} of {apart.size} differ, by up to {apart.max()}")


def agrees(name, *options):
    folder = T.scratch(SCRATCH / name)
    T.emit(TGC, SCRATCH / "model.onnx", folder / "net.c", *options)
    T.build(folder / "net.c", folder / "net", main_by=TGC)
    runs(folder / "net")


COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"
# processors without dot products, with those of one sign, with those of two
PROCESSORS = ("cortex-a53", "cortex-a76", "max")


def emulated(cpu):
    if not shutil.which(COMPILER) or not shutil.which(EMULATOR):
        raise Skip(f"{COMPILER} and {EMULATOR} are not here")
    folder = T.scratch(SCRATCH / f"emulated-{cpu}")
    T.emit(TGC, SCRATCH / "model.onnx", folder / "net.c", f"--cpu={cpu}")
    T.build(folder / "net.c", folder / "net", COMPILER, (T.LEVEL, "-static"), main_by=TGC)
    for processor in PROCESSORS:
        runs(folder / "net", (EMULATOR, "-cpu", processor))
    return folder / "net.c"


for cpu in ("generic", "avx2", "avx512", "avx512vnni", "neon"):
    suite.add(f"--cpu={cpu}", agrees, cpu, f"--cpu={cpu}")
for cpu in ("neondot", "neoni8mm"):
    suite.add(f"--cpu={cpu}, emulated, on processors with and without it", emulated, cpu)


for machine in ("cortex-m0", "cortex-m3", "cortex-m4"):
    suite.add(f"tiles of a {machine}'s registers", agrees, machine, f"--cpu={machine}")


def outputs_of(folder, cpu):
    T.scratch(folder)
    T.emit(TGC, SCRATCH / "model.onnx", folder / "net.c", f"--cpu={cpu}")
    T.build(folder / "net.c", folder / "net", flags=(T.LEVEL, "-ffp-contract=off"), main_by=TGC)
    return T.Program(folder / "net", list(MODEL.want)).run(MODEL.feeds)


@suite.case("words of bytes by the DSP extension, emulated: the instructions, and every bit as without")
def words():
    """Here in C, which gives every bit that the portable kernels give, and on a bare Cortex-M4, which tests itself."""
    plain, here = outputs_of(SCRATCH / "words-plain", "generic"), outputs_of(SCRATCH / "words-here", "cortex-m4")
    for key, want in plain.items():
        expect(np.array_equal(here[key], want), f"{key} differs")
    text = (SCRATCH / "words-here" / "net.c").read_text()
    expect(text.count("= dot_bytes(") > 12, f"{text.count('= dot_bytes(')} products of words")
    expect(len(re.findall(r"bits_f32\(.* \+ 12582912\.0f\)", text)) >= 3, "requantization goes by floats")
    expect("dot_bytes" not in (SCRATCH / "words-plain" / "net.c").read_text(), "--cpu=generic has them")
    if not shutil.which("arm-none-eabi-gcc") or not shutil.which("qemu-system-arm"):
        raise Skip("arm-none-eabi-gcc and qemu-system-arm are not here")
    folder = T.scratch(SCRATCH / "words-there")
    T.emit(TGC, SCRATCH / "model.onnx", folder / "net.c", "--cpu=cortex-m4", "--vectors=always")
    (folder / "start.c").write_text(START)
    T.must(T.run(["arm-none-eabi-gcc", T.LEVEL, "-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16", "-DNET_MAIN",
                  "-DSTACK=0x20400000", "net.c", "start.c", "--specs=rdimon.specs", "-Wl,--section-start=.vectors=0", "-o", "net", "-lm"],
                 cwd=folder, timeout=300))
    code = T.must(T.run(["arm-none-eabi-objdump", "-d", folder / "net"])).out.decode()
    expect(all(len(re.findall(rf"\b{name}\b", code)) > 24 for name in ("smlad", "uxtb16", "sxtb16")), "no instructions of the DSP extension")
    done = T.run(["qemu-system-arm", "-M", "mps2-an386", "-nographic", "-semihosting-config", "enable=on,target=native,arg=net,arg=--selftest",
                  "-kernel", folder / "net"], timeout=120)
    expect(done.status == 0 and done.out.count(b" elements agree with the reference") == len(MODEL.want), done.describe())


@suite.case("NEON's intrinsics are what they mean, emulated")
def meanings():
    if not shutil.which(COMPILER) or not shutil.which(EMULATOR):
        raise Skip(f"{COMPILER} and {EMULATOR} are not here")
    folder = T.scratch(SCRATCH / "intrinsics")
    sources = [T.ROOT / "tests" / "unit" / "test_intrinsic.c", *sorted((T.ROOT / "ir").glob("*.c"))]
    T.must(T.run([COMPILER, "-std=gnu11", "-O1" if OPTIONS.all else "-O0", "-static", f"-I{T.ROOT}", *sources, "-lm", "-o",
                  folder / "rows"], timeout=300))
    for processor, rows in zip(PROCESSORS, (6, 7, 9)):
        said = T.must(T.run([EMULATOR, "-cpu", processor, folder / "rows"], timeout=300)).out.decode()
        ran = [line for line in said.splitlines() if line.startswith("ok") and "# SKIP" not in line]
        expect(len(ran) == rows and "not ok" not in said, f"{processor}: {said}")


@suite.case("of NEON's dot products those are taken that the processor has")
def chosen():
    source = emulated("auto")
    for word, where in (("usdot", "max"), ("sdot", "cortex-a76")):
        text = source.read_text()
        expect(text.count(f'__asm__("{word} ') == 1, f"no {word} in the program")
        broken = source.parent / f"{word}.c"
        broken.write_text(text.replace(f'__asm__("{word} ', f'__asm__("brk #1; {word} '))
        T.must(T.run([COMPILER, "-std=c11", T.LEVEL, "-static", "-DNET_MAIN", broken, "-o",
                      source.parent / word, "-lm"], timeout=120))
        for processor in PROCESSORS:
            try:
                runs(source.parent / word, (EMULATOR, "-cpu", processor))
                taken = False
            except Failure:
                taken = True
            expect(taken == (processor == where), f"{word} on {processor}: {taken}")


# What LLVM's objects make sums of bytes of.
DOTS = {"neon": "addp", "neondot": "sdot", "neoni8mm": "usdot"}


def by_llvm(folder, processor, *options):
    """Runs LLVM's object on an emulated processor; what it is made of."""
    T.need_llvm(TGC)
    for tool in (COMPILER, EMULATOR):
        if not shutil.which(tool):
            raise Skip(f"{tool} is not here")
    T.scratch(folder)
    main = T.shared("main", T.compile_main, TGC, "net", COMPILER, ("-O1",))
    T.must(T.run([TGC, SCRATCH / "model.onnx", "-o", folder / "net.o", "--target=llvm", "--triple=aarch64-linux-gnu", *options],
                 env={"CC": COMPILER}))
    T.must(T.run([COMPILER, "-static", "net.o", main, "-lm", "-lpthread", "-o", "net"], cwd=folder))
    runs(folder / "net", (EMULATOR, "-cpu", processor))
    return T.must(T.run(["aarch64-linux-gnu-objdump", "-d", "net.o"], cwd=folder)).out.decode()


def emulated_by_llvm(cpu, processor):
    code = by_llvm(T.scratch(SCRATCH / f"llvm-{cpu}"), processor, f"--cpu={cpu}")
    counts = {word: len(re.findall(rf"\t{word}\t", code)) for word in DOTS.values()}
    expect(counts[DOTS[cpu]] > 100 and not counts["sdot" if cpu == "neoni8mm" else "usdot"], f"{counts}")


for cpu, processor in zip(DOTS, PROCESSORS):
    suite.add(f"--cpu={cpu} by LLVM, emulated", emulated_by_llvm, cpu, processor)
suite.add("-O0", agrees, "O0", "-O0")
suite.add("two threads", agrees, "threads", "--threads", "2")


def quantized(x, nodes, weights):
    """Nodes from x to q, then to bytes and back again."""
    weights = weights + [G.weight("s", np.float32(0.1)), G.weight("z", np.uint8(3))]
    nodes = nodes + [G.node("QuantizeLinear", ["q", "s", "z"], ["b"]),
                     G.node("DequantizeLinear", ["b", "s", "z"], ["y"])]
    return G.model(nodes, [G.value("x", x)], [G.value("y", x)], weights)


@suite.case("what was no integer is divided as it stands")
def divided():
    folder = T.scratch(SCRATCH / "divided")
    nodes = [G.node("Mul", ["x", "m"], ["q"])]
    onnx.save(quantized([40], nodes, [G.weight("m", np.float32(0.3))]), folder / "model.onnx")
    T.emit(TGC, folder / "model.onnx", folder / "net.uops", "--cpu=generic")
    expect(re.search(r" / 0\.1", (folder / "net.uops").read_text()), "there is no division by 0.1")


@suite.case("values that are used again and again are looked at a few times only")
def shared():
    folder = T.scratch(SCRATCH / "shared")
    nodes = []
    for k in range(60):
        x = f"v{k}" if k else "x"
        nodes += [G.node("Abs", [x], [f"a{k}"]), G.node("Add", [x, f"a{k}"], [f"v{k + 1}"])]
    nodes.append(G.node("Identity", ["v60"], ["q"]))
    onnx.save(quantized([40], nodes, []), folder / "model.onnx")
    T.must(T.run([TGC, folder / "model.onnx", "-o", folder / "net.c"], timeout=20))


@suite.case("what several layers read is kept as bytes, once")
def kept():
    folder = T.scratch(SCRATCH / "kept")
    rows, depth, columns = 24, 64, 48
    random = np.random.default_rng(3)
    x = random.standard_normal((rows, depth)).astype(np.float32)
    nodes, weights, want = [], [], []
    weights += [G.weight("s", np.float32(0.03)), G.weight("z", np.uint8(120)),
                G.weight("ws", np.float32(0.01)), G.weight("wz", np.int8(0))]
    q = np.clip(np.rint(x / np.float32(0.03)) + 120, 0, 255).astype(np.int64) - 120
    for k in range(3):
        w = integers(random, "i8", [depth, columns])
        weights.append(G.weight(f"w{k}", w))
        nodes += [G.node("QuantizeLinear", ["x", "s", "z"], [f"q{k}"]),
                  G.node("DequantizeLinear", [f"q{k}", "s", "z"], [f"d{k}"]),
                  G.node("DequantizeLinear", [f"w{k}", "ws", "wz"], [f"v{k}"]),
                  G.node("Gemm", [f"d{k}", f"v{k}"], [f"y{k}"])]
        want.append((q @ w.astype(np.int64)) * (0.03 * 0.01))
    onnx.save(G.model(nodes, [G.value("x", [rows, depth])],
                      [G.value(f"y{k}", [rows, columns]) for k in range(3)], weights),
              folder / "model.onnx")
    T.emit(TGC, folder / "model.onnx", folder / "net.c")
    arena = int(re.search(r"arena ([\d.]+) kB", (folder / "net.c").read_text())[1].split(".")[0])
    expect(arena < 2 * rows * depth / 1000 + 1, f"the arena is of {arena} kB")
    T.build(folder / "net.c", folder / "net", main_by=TGC)
    outputs = T.Program(folder / "net", ["y0", "y1", "y2"]).run([x])
    for k in range(3):
        expect(np.allclose(outputs[f"y{k}"], want[k], atol=1e-4), f"y{k} is wrong")


@suite.case("heads of columns read their weights once for several rows")
def heads():
    folder = T.scratch(SCRATCH / "heads")
    random = np.random.default_rng(5)
    weights = [G.weight("w", integers(random, "i8", [64, 96])),
               G.weight("n", np.array([16, 6, 16], np.int64))]
    nodes = [G.node("MatMulInteger", ["x", "w"], ["p"]), G.node("Reshape", ["p", "n"], ["h"]),
             G.node("Transpose", ["h"], ["y"], perm=[1, 0, 2])]
    onnx.save(G.model(nodes, [G.value("x", [16, 64], TensorProto.UINT8)],
                      [G.value("y", [6, 16, 16], TensorProto.INT32)], weights),
              folder / "model.onnx")
    T.emit(TGC, folder / "model.onnx", folder / "net.c", "--cpu=avx512vnni")
    body = re.search(r"^IN_vnni static void \w+\(.*?^\}", (folder / "net.c").read_text(),
                     re.M | re.S)[0]
    dots, loads = body.count("dot_vnni"), body.count("load_bytes")
    expect(dots >= 4 * loads > 0, f"{dots} sums of {loads} vectors of weights")


@suite.case("sums of bytes are what the kernels are made of")
def taken():
    folder = T.scratch(SCRATCH / "taken")
    T.emit(TGC, SCRATCH / "model.onnx", folder / "net.c")
    text = (folder / "net.c").read_text()
    for isa, dot in (("vnni", "dot_vnni"), ("dotprod", "dot_centered"), ("i8mm", "dot_mixed")):
        kernels = dict(re.findall(rf"^IN_{isa} static void (\w+)\((.*?)^\}}", text, re.M | re.S))
        dots = [name for name, body in kernels.items() if dot in body]
        # all but depthwise, grey, what is padded along its channels, products of few rows or odd
        # columns
        expect(len(dots) == len(MODEL.want) - 6,
               f"{isa}: {len(dots)} of {len(MODEL.want)} layers have sums of bytes: "
               f"{' '.join(dots)}")
    # what is multiplied by groups of bytes is stored so, by vectors or words
    for name in ("load_groups_i32x16(&", "store_bytes_i32x16(&", "store_four_bytes(&"):
        expect(name in text, f"no kernel has {name[:-2]}")


suite.main()
