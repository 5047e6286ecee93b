"""Compilers' flags and processors that change what C's floats are: an emitted file is right, or the
compiler refuses it with #error, never wrong in silence.

-ffast-math and its parts reassociate, forget NaN and infinity, and make the processor flush what is
below the normal numbers; x87 computes in more digits than float has (FLT_EVAL_METHOD is 2);
s390x stores the most significant byte first. Each model here is compiled once and built in all these
ways; the results are ONNX Runtime's, within the tolerance for whole models, and NaN where it has NaN.
"""

import functools
import re
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "lib"))

import numpy as np
import onnx
from onnx import TensorProto

import foreign
import graphs as G
from board import START
import tgc as T
from suite import Failure, Skip, Suite, expect

suite = Suite("portable")
OPTIONS = suite.parse()
TGC = T.find_tgc(OPTIONS.build).resolve()
SCRATCH = T.scratch(Path(OPTIONS.build).resolve() / "test-scratch" / "portable")
INF, NAN = np.inf, np.nan


# ---------------------------------------------------------------------------------------- models

def model(*parts):
    return G.model(*parts, opset=20)


def floats(random, *shape, scale=0.3):
    return (random.standard_normal(shape) * scale).astype(np.float32)


SPECIAL = [0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 0.49999997, 1e-20, -1e-20, 8388609.0, 1e9, 1e20, -1e20,
           88.5, -87.0, INF, -INF, NAN]
UNARY = ["Exp", "Tanh", "Sigmoid", "Erf", "Sin", "Cos", "Tan", "Round", "Floor", "Ceil", "Sqrt", "Log",
         "Atan", "Sinh", "Asinh", "Softplus", "IsNaN", "Abs", "Neg", "Reciprocal", "Gelu", "Relu", "Sign"]


def functions():
    """Every kind of elementwise function, with NaN, infinities and what lies between integers."""
    random = np.random.default_rng(1)
    x = np.concatenate([SPECIAL, random.uniform(-12, 12, 174), np.arange(-8, 8) + 0.5])
    y = random.choice([0.5, 2.0, 3.0, -1.0, 1.7], x.size)
    nodes = [G.node(kind, ["x"], [kind], name=kind) for kind in UNARY]
    out = [G.value(kind, [x.size], TensorProto.BOOL if kind == "IsNaN" else TensorProto.FLOAT)
           for kind in UNARY]
    for name, kind, inputs in (("Pow", "Pow", ["a", "y"]), ("Max", "Max", ["x", "y"]),
                               ("Min", "Min", ["y", "x"]), ("Fmod", "Mod", ["a", "y"]),
                               ("AsinhOfAbs", "Asinh", ["a"])):
        nodes.append(G.node(kind, inputs, [name], name=name, **({"fmod": 1} if kind == "Mod" else {})))
        out.append(G.value(name, [x.size]))
    return model([G.node("Abs", ["x"], ["a"], name="abs"), *nodes],
                   [G.value("x", [x.size]), G.value("y", [x.size])], out,
                   []), {"x": x.astype(np.float32), "y": y.astype(np.float32)}


def doubles():
    """Doubles: rounding next to halves, where 64 bits of significand round twice."""
    random = np.random.default_rng(2)
    x = np.concatenate([SPECIAL, np.nextafter(np.arange(-4, 4) + 0.5, 9), random.uniform(-9, 9, 60),
                        np.nextafter(np.arange(-4, 4) + 0.5, -9), [2.0**52 - 0.5, 2.0**51 + 0.5]])
    kinds = ["Round", "Floor", "Ceil", "Exp", "Log", "Sqrt", "Sigmoid", "IsNaN"]
    D = TensorProto.DOUBLE
    return model([G.node(k, ["x"], [k], name=k) for k in kinds], [G.value("x", [x.size], D)],
                   [G.value(k, [x.size], TensorProto.BOOL if k == "IsNaN" else D) for k in kinds],
                   []), {"x": x}


def halves():
    """Halves, those below the normal ones among them."""
    x = np.arange(0, 1 << 16, 7, dtype=np.uint16).view(np.float16)
    H = TensorProto.FLOAT16
    return model([G.node("Cast", ["x"], ["wide"], name="wide", to=TensorProto.FLOAT),
                    G.node("Mul", ["wide", "third"], ["part"], name="part"),
                    G.node("Cast", ["part"], ["back"], name="back", to=H)],
                   [G.value("x", [x.size], H)],
                   [G.value("wide", [x.size]), G.value("back", [x.size], H)],
                   [G.weight("third", np.float32(0.3125))]), {"x": x}


def image():
    """Convolutions with biases by Winograd, a depthwise one, a norm, a pooling, a classifier."""
    random = np.random.default_rng(3)
    w = [G.weight("a", floats(random, 16, 3, 3, 3)), G.weight("a0", floats(random, 16)),
         G.weight("b", floats(random, 32, 16, 3, 3, scale=0.1)), G.weight("b0", floats(random, 32)),
         G.weight("c", floats(random, 32, 1, 3, 3)), G.weight("c0", floats(random, 32)),
         G.weight("f", floats(random, 10, 32)), G.weight("f0", floats(random, 10)),
         G.weight("gain", floats(random, 32)), G.weight("shift", floats(random, 32)),
         G.weight("mean", floats(random, 32)), G.weight("var", np.abs(floats(random, 32)) + 0.1)]
    nodes = [G.node("Conv", ["x", "a", "a0"], ["c1"], name="c1", pads=[1, 1, 1, 1]),
             G.node("Relu", ["c1"], ["r1"], name="r1"),
             G.node("Conv", ["r1", "b", "b0"], ["c2"], name="c2", pads=[1, 1, 1, 1]),
             G.node("BatchNormalization", ["c2", "gain", "shift", "mean", "var"], ["n2"], name="n2"),
             G.node("HardSwish", ["n2"], ["h2"], name="h2"),
             G.node("MaxPool", ["h2"], ["p2"], name="p2", kernel_shape=[3, 3], strides=[2, 2],
                    pads=[1, 1, 1, 1]),
             G.node("Conv", ["p2", "c", "c0"], ["c3"], name="c3", pads=[1, 1, 1, 1], group=32),
             G.node("Sigmoid", ["c3"], ["s3"], name="s3"), G.node("Mul", ["c3", "s3"], ["m3"], name="m3"),
             G.node("GlobalAveragePool", ["m3"], ["g"], name="g"), G.node("Flatten", ["g"], ["v"], name="v"),
             G.node("Gemm", ["v", "f", "f0"], ["logits"], name="logits", transB=1),
             G.node("Softmax", ["logits"], ["p"], name="p", axis=1)]
    return model(nodes, [G.value("x", [1, 3, 24, 24])],
                   [G.value("c2", [1, 32, 24, 24]), G.value("p", [1, 10])], w), \
        {"x": floats(random, 1, 3, 24, 24, scale=1)}


def sequence():
    """LSTM, GRU, and attention behind a mask of -inf, one of whose rows is hidden altogether."""
    random = np.random.default_rng(4)
    S, E, H = 9, 12, 16
    w = [G.weight("lw", floats(random, 1, 4 * H, E)), G.weight("lr", floats(random, 1, 4 * H, H)),
         G.weight("lb", floats(random, 1, 8 * H)), G.weight("gw", floats(random, 1, 3 * H, E)),
         G.weight("gr", floats(random, 1, 3 * H, H)), G.weight("gb", floats(random, 1, 6 * H)),
         G.weight("q", floats(random, E, H)), G.weight("k", floats(random, E, H)),
         G.weight("v", floats(random, E, H)), G.weight("root", np.float32(0.25)),
         G.weight("gain", floats(random, H)), G.weight("one", np.array([1])),
         G.weight("mask", np.where(np.tri(S, k=-1) + np.eye(S) * (np.arange(S) > 0) > 0, 0,
                                   -INF).astype(np.float32))]
    nodes = [G.node("LSTM", ["x", "lw", "lr", "lb"], ["", "lstm"], name="lstm", hidden_size=H),
             G.node("GRU", ["x", "gw", "gr", "gb"], ["", "gru"], name="gru", hidden_size=H,
                    linear_before_reset=1),
             G.node("Squeeze", ["x", "one"], ["rows"], name="rows"),
             *[G.node("MatMul", ["rows", n], [f"{n}1"], name=f"{n}1") for n in "qkv"],
             G.node("Transpose", ["k1"], ["k2"], name="k2", perm=[1, 0]),
             G.node("MatMul", ["q1", "k2"], ["s0"], name="s0"), G.node("Mul", ["s0", "root"], ["s1"], name="s1"),
             G.node("Add", ["s1", "mask"], ["s2"], name="s2"), G.node("Softmax", ["s2"], ["s3"], name="s3", axis=1),
             G.node("ReduceMax", ["s2", "one"], ["top"], name="top", keepdims=0),
             G.node("MatMul", ["s3", "v1"], ["y"], name="y"),
             G.node("LayerNormalization", ["y", "gain"], ["n"], name="n"),
             G.node("LogSoftmax", ["q1"], ["l"], name="l", axis=1)]
    return model(nodes, [G.value("x", [S, 1, E])],
                   [G.value("lstm", [1, 1, H]), G.value("gru", [1, 1, H]), G.value("n", [S, H]),
                    G.value("top", [S]), G.value("l", [S, H])], w), \
        {"x": floats(random, S, 1, E, scale=1)}


def quantized():
    """A convolution and a product of bytes, as quantizers write them, and a scale found at run time."""
    random = np.random.default_rng(5)
    w = [G.weight("xs", np.float32(0.02)), G.weight("xz", np.uint8(128)),
         G.weight("w", random.integers(-127, 128, (16, 8, 3, 3)).astype(np.int8)),
         G.weight("ws", np.abs(floats(random, 16, scale=0.01)) + 0.001),
         G.weight("wz", np.zeros(16, np.int8)),
         G.weight("b", random.integers(-500, 500, 16).astype(np.int32)),
         G.weight("bs", np.float32(0.02) * (np.abs(floats(random, 16, scale=0.01)) + 0.001)),
         G.weight("ys", np.float32(0.05)), G.weight("yz", np.uint8(100)),
         G.weight("m", random.integers(-64, 64, (16, 20)).astype(np.int8)), G.weight("mz", np.int8(0))]
    nodes = [G.node("QuantizeLinear", ["x", "xs", "xz"], ["xq"], name="xq"),
             G.node("DequantizeLinear", ["xq", "xs", "xz"], ["xd"], name="xd"),
             G.node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], name="wd", axis=0),
             G.node("DequantizeLinear", ["b", "bs"], ["bd"], name="bd", axis=0),
             G.node("Conv", ["xd", "wd", "bd"], ["c"], name="c", pads=[1, 1, 1, 1]),
             G.node("Relu", ["c"], ["r"], name="r"),
             G.node("QuantizeLinear", ["r", "ys", "yz"], ["yq"], name="yq"),
             G.node("DequantizeLinear", ["yq", "ys", "yz"], ["y"], name="y"),
             G.node("GlobalAveragePool", ["y"], ["g"], name="g"), G.node("Flatten", ["g"], ["f"], name="f"),
             G.node("DynamicQuantizeLinear", ["f"], ["fq", "fs", "fz"], name="fq"),
             G.node("MatMulInteger", ["fq", "m", "fz", "mz"], ["sums"], name="sums"),
             G.node("Cast", ["sums"], ["wide"], name="wide", to=TensorProto.FLOAT),
             G.node("Mul", ["wide", "fs"], ["z"], name="z")]
    return model(nodes, [G.value("x", [1, 8, 11, 11])], [G.value("y", [1, 16, 11, 11]), G.value("z", [1, 20])],
                   w), {"x": floats(random, 1, 8, 11, 11, scale=1)}


MODELS = {make.__name__: make for make in (functions, doubles, halves, image, sequence, quantized)}
# each element apart, where one large value would hide the others' errors
APART = {"functions": (2e-5, 1e-6), "doubles": (1e-11, 1e-13), "halves": (1e-7, 0)}


@functools.cache
def reference(name):
    """The model, its inputs and the results that ONNX Runtime has for them."""
    import onnxruntime
    from onnx.reference import ReferenceEvaluator

    made, feeds = MODELS[name]()
    run = ReferenceEvaluator(made).run if name in APART else onnxruntime.InferenceSession(
        made.SerializeToString(), providers=["CPUExecutionProvider"]).run
    names = [o.name for o in made.graph.output]
    with np.errstate(all="ignore"):
        want = dict(zip(names, run(None, feeds)))
    return made, list(feeds.values()), want


@functools.cache
def emitted(name, *options):
    """A folder with net.c."""
    folder = T.scratch(SCRATCH / "".join((name, *options)))
    onnx.save(reference(name)[0], folder / "model.onnx")
    T.emit(TGC, folder / "model.onnx", folder / "net.c", *options)
    return folder


CURES = ("-fno-finite-math-only", "-msse2 -mfpmath=sse", "--weights=array")


def refused(done, flags):
    """Did the compiler stop at an #error that names what to do, which was not done?"""
    named = [cure for cure in CURES if re.search(rf"error: .*{cure}", done.err)]
    return done.status != 0 and any(not set(cure.split()) <= set(flags) for cure in named)


def build(folder, compiler, flags, exe):
    return T.run([compiler, "-Wfatal-errors", *flags, "-DNET_MAIN", "net.c", "-o", exe, "-lm"],
                 cwd=folder, timeout=300)


def program_name(compiler, flags):
    return re.sub(r"[^A-Za-z0-9]+", "_", " ".join([compiler, *flags])) + ".exe"        # mingw's gcc would add that


def right(name, compiler, flags, runner=(), options=()):
    """The build is right, and says so by itself."""
    folder, (_, arrays, want) = emitted(name, *options), reference(name)
    if any("weight-type" in option for option in options):    # what the same file gives here
        T.must(build(folder, "gcc", ("-O2",), "here"))
        want = T.Program(folder / "here", list(want)).run(arrays)
    exe = program_name(compiler, flags)
    done = build(folder, compiler, flags, exe)
    if refused(done, flags):
        return "refused"
    T.must(done)
    warnings = [line for line in done.err.splitlines() if "warning:" in line]
    expect(all("-Wdeprecated-ofast" in line for line in warnings), done.err[:2000])
    got = T.Program(folder / exe, list(want), runner).run(arrays)
    if name in APART:
        for key, value in want.items():
            T.compare(key, got[key], value, *APART[name])
    else:
        quantum = {"y": 0.051} if name == "quantized" else {}
        for key, value in want.items():
            if key in quantum:
                T.compare(key, got[key], value, 0, quantum[key])
                expect(np.mean(got[key] != value) < 0.01, f"{key}: too many quanta")
            else:
                T.compare_to_reference(got, {key: value})
    T.must(T.run([*runner, folder / exe, "--selftest"], timeout=120))
    return "right"


def here(*tools):
    for tool in tools:
        if not shutil.which(tool):
            raise Skip(f"{tool} is not here")


def all_right(compiler, flags, runner=(), options=()):
    """All models; what is refused for one is so for all (but weights of bytes have no order)."""
    here(compiler)
    if runner == ("wine",):
        runner = foreign.wine(OPTIONS.build)
    elif runner == ("wasi",):
        foreign.need_wasi()
        runner = foreign.wasi()
    here(*runner[:1])
    problems = []
    for name in MODELS:
        try:
            right(name, compiler, flags, runner, options)
        except Failure as why:
            problems.append(f"{name}: {str(why)[:600]}")
    if problems:
        raise Failure("\n".join(problems))


FINITE = "-fno-finite-math-only"
NATIVE = [("-O2", "-ffast-math", FINITE), ("-O2", "-ffast-math"), ("-Ofast",), ("-Ofast", FINITE),
          ("-O3", "-funsafe-math-optimizations"), ("-O2", "-ffinite-math-only"),
          ("-O1", "-ffast-math", FINITE), ("-O0", "-ffast-math", FINITE),
          ("-O3", "-march=native", "-ffast-math", FINITE),
          ("-O3", "-fassociative-math", "-fno-signed-zeros", "-fno-trapping-math")]
for compiler in ("gcc", "clang", "clang-13", "clang-14", "clang-15", "clang-16", "clang-19"):
    for number, flags in enumerate(NATIVE):
        first = compiler in ("gcc", "clang") and number < 2
        suite.add(f"{compiler} {' '.join(flags)}", all_right, compiler, flags, slow=not first)

CROSS = [
    ("i686-linux-gnu-gcc", ("-O2", "-static"), "", False),
    ("i686-linux-gnu-gcc", ("-O0", "-static"), "", True),
    ("i686-linux-gnu-gcc", ("-O3", "-static", "-std=c11"), "", True),
    ("i686-linux-gnu-gcc", ("-O2", "-static", "-ffast-math", FINITE), "", True),
    ("i686-linux-gnu-gcc", ("-O2", "-static", "-msse2", "-mfpmath=sse"), "", True),
    ("arm-linux-gnueabihf-gcc", ("-O2", "-static", "-mfpu=neon", "-ffast-math", FINITE), "qemu-arm", False),
    ("arm-linux-gnueabihf-gcc", ("-O3", "-static", "-mfpu=neon-vfpv4", "-Ofast", FINITE), "qemu-arm", True),
    ("arm-linux-gnueabihf-gcc", ("-O3", "-static", "-mfpu=neon", "-funsafe-math-optimizations"),
     "qemu-arm", True),
    ("aarch64-linux-gnu-gcc", ("-O2", "-static", "-ffast-math", FINITE), "qemu-aarch64", True),
    ("riscv64-linux-gnu-gcc", ("-O2", "-static", "-ffast-math", FINITE), "qemu-riscv64", True),
    ("s390x-linux-gnu-gcc", ("-O2", "-static"), "qemu-s390x", False),
    ("s390x-linux-gnu-gcc", ("-O2", "-static", "-ffast-math", FINITE), "qemu-s390x", True),
    ("clang-19", ("-O2", "--target=wasm32-wasi"), "wasi", True),
    ("clang-19", ("-O0", "--target=wasm32-wasi"), "wasi", True),
    ("clang-19", ("-O3", "--target=wasm32-wasi", "-msimd128", "-ffast-math", FINITE), "wasi", True),
    ("x86_64-w64-mingw32-gcc", ("-O2",), "wine", True),
    ("x86_64-w64-mingw32-gcc", ("-O0",), "wine", True),
    ("x86_64-w64-mingw32-gcc", ("-O3", "-ffast-math", FINITE), "wine", True),
    ("clang-19", ("-O2", "--target=x86_64-w64-mingw32"), "wine", True),
]
for level, slow in (("-O2", False), ("-O0", True)):
    suite.add(f"clang-19 {level} --target=wasm32-wasi, tiles of vectors", all_right, "clang-19",
              (level, "--target=wasm32-wasi", "-msimd128"), ("wasi",), ("--cpu=simd128",), slow=slow)
for compiler, flags, emulator, slow in CROSS:
    suite.add(f"{compiler} {' '.join(flags)}", all_right, compiler, flags,
              (emulator,) if emulator else (), slow=slow)

for name, flags, options, slow in (
        ("in numbers", ("-O2", "-static"), ("--weights=array",), False),
        ("in narrow numbers", ("-O2", "-static"), ("--weights=array", "--weight-type=bf16"), True),
        ("in numbers, -O0", ("-O0", "-static"), ("--weights=array",), True)):
    suite.add(f"big-endian, weights {name}", all_right, "s390x-linux-gnu-gcc", flags, ("qemu-s390x",),
              options, slow=slow)


for cpu in ("generic", "avx512"):
    suite.add(f"halves below the normal ones where the processor flushes such floats: --cpu={cpu}",
              lambda cpu=cpu: right("halves", "gcc", ("-Ofast", FINITE), (), (f"--cpu={cpu}",)), slow=cpu != "generic")


@suite.case("big-endian: bytes for weights are refused, numbers are named")
def byte_order():
    here("s390x-linux-gnu-gcc")
    for name in ("image", "sequence"):
        done = build(emitted(name), "s390x-linux-gnu-gcc", ("-O1", "-fsyntax-only"), "none")
        expect(refused(done, ()) and "--weights=array" in done.err, done.describe())


@suite.case("a .npy file of the other byte order is read")
def foreign_npy():
    (made, (x, y), _), folder = reference("functions"), emitted("functions", "--cpu=generic")
    T.build(folder / "net.c", folder / "net", main_by=TGC)
    program = T.Program(folder / "net", [o.name for o in made.graph.output])
    here_order, other = program.run([x, y]), program.run([x.astype(">f4"), y.astype(">f4")])
    for key, value in here_order.items():
        expect(value.tobytes() == other[key].tobytes(), f"{key} differs")


@suite.case("--selftest finds NaN, infinity and other numbers, even where there is said to be no NaN")
def selftest():
    """What refuses flags is taken out; a stored number is changed."""
    folder = T.scratch(SCRATCH / "selftest")
    onnx.save(G.perceptron(), folder / "model.onnx")
    T.emit(TGC, folder / "model.onnx", folder / "net.c", "--weights=array", "--cpu=generic")
    text = re.sub(r"#error .*", "", (folder / "net.c").read_text())
    stored = re.compile(r"-?\d\.\d+(e-?\d+)?f(?=,)").search(text, text.rindex("_data["))
    for compiler in ("gcc", "clang"):
        for number in ("NAN", "INFINITY", "9.75f", stored.group()):
            (folder / "changed.c").write_text(text[:stored.start()] + number + text[stored.end():])
            T.must(T.run([compiler, "-w", "-O2", "-ffinite-math-only", "-DNET_MAIN", "changed.c",
                          "-o", "changed", "-lm"], cwd=folder, timeout=300))
            done = T.run([folder / "changed", "--selftest"])
            expect(done.status == (number != stored.group()), f"{number}: {done.describe()}")


# ---------------------------------------------------------------------------------- square roots

def pieces():
    """runtime/math.c as a C file of its own, with main() behind it."""
    return (T.ROOT / "runtime" / "math.c").read_text()


ROOTS = r"""
#include <stdbool.h>
#include <stdio.h>
%s
int main(void)
{
    int wrong = 0;
    uint64_t s = 88172645463325252u;
    for (long i = 0; i < COUNT; i++) {
        s ^= s << 13;
        s ^= s >> 7;
        s ^= s << 17;
        float x = float_bits(i < 4 ? (uint32_t)i << 31 | (i & 2 ? 0x7f800000u : 0) : (uint32_t)s),
              a = sqrt_f32(x), b = sqrtf(x);
        double v = double_bits(i < 4 ? (uint64_t)i << 63 | (i & 2 ? 0x7ff0000000000000u : 0)
                               : i & 1 ? s : s & (0x000fffffffffffffu >> i %% 50)),
               c = sqrt_f64(v), d = sqrt(v);
        wrong += bits_f32(a) != bits_f32(b) && !(a != a && b != b);
        wrong += bits_f64(c) != bits_f64(d) && !(c != c && d != d);
    }
    printf("%%d wrong\n", wrong);
    return wrong != 0;
}
"""


def square_roots(compiler, flags, emulator, count):
    here(compiler, *([emulator] if emulator else []))
    folder = T.scratch(SCRATCH / program_name("root" + compiler, flags))
    (folder / "roots.c").write_text(ROOTS % pieces())
    T.must(T.run([compiler, "-w", *flags, f"-DCOUNT={count}", "roots.c", "-o", "roots", "-lm"],
                 cwd=folder))
    T.must(T.run([*([emulator] if emulator else []), folder / "roots"], timeout=120))


for compiler, flags, emulator, count, slow in (
        ("gcc", ("-O2",), "", 2000000, True),
        ("gcc", ("-O2", "-U__SSE2__"), "", 1000000, False),
        ("clang", ("-O1", "-U__SSE2__"), "", 1000000, True),
        ("s390x-linux-gnu-gcc", ("-O2", "-static"), "qemu-s390x", 50000, False),
        ("riscv64-linux-gnu-gcc", ("-O2", "-static"), "qemu-riscv64", 50000, False),
        ("aarch64-linux-gnu-gcc", ("-O2", "-static"), "qemu-aarch64", 50000, True),
        ("arm-linux-gnueabihf-gcc", ("-O2", "-static"), "qemu-arm", 50000, False)):
    suite.add(f"square roots are rounded as IEEE 754 says: {compiler} {' '.join(flags)}",
              square_roots, compiler, flags, emulator, count, slow=slow)

M4F = ("-mcpu=cortex-m4", "-mthumb", "-mfpu=fpv4-sp-d16", "-mfloat-abi=hard")
PROCESSORS = {        # compiler, options: the instruction, or None for integers' digits
    "Cortex-M4F": ("arm-none-eabi-gcc", M4F, r"vsqrt\.f32"),
    "Cortex-M4F, no errno": ("arm-none-eabi-gcc", (*M4F, "-fno-math-errno"), r"vsqrt\.f32"),
    "Cortex-M7": ("arm-none-eabi-gcc", ("-mcpu=cortex-m7", "-mthumb", "-mfloat-abi=hard"),
                  r"vsqrt\.f32"),
    "Cortex-M0": ("arm-none-eabi-gcc", ("-mcpu=cortex-m0", "-mthumb"), None),
    "Cortex-M3": ("arm-none-eabi-gcc", ("-mcpu=cortex-m3", "-mthumb"), None),
    "Cortex-M4F by clang": ("clang", ("--target=thumbv7em-none-eabihf", *M4F[:1], *M4F[2:]),
                            r"vsqrt\.f32"),
    "RISC-V": ("riscv64-linux-gnu-gcc", (), r"fsqrt\.s"),
    "s390x": ("s390x-linux-gnu-gcc", (), r"sqebr"),
    "ARMv7": ("arm-linux-gnueabihf-gcc", (), r"vsqrt\.f32"),
}


def no_calls(name, compiler, flags, instruction):
    """The function alone is looked at: what else is called in a file is its kernels' affair."""
    here(compiler)
    folder = T.scratch(SCRATCH / re.sub(r"\W", "_", name))
    text = pieces()
    start = text.index("//@ sqrt_f32\n")
    text = text[:text.index("//@")].replace("<string.h>", "<stddef.h>").replace(
        "#include <math.h>", "#define NAN __builtin_nanf(\"\")\n#define memcpy __builtin_memcpy") + \
        text[start:text.index("//@", start + 3)]
    (folder / "root.c").write_text(text + "float root(float x) { return sqrt_f32(x); }\n")
    for level in ("-O1", "-O2", "-Os"):
        T.must(T.run([compiler, *flags, level, "-ffreestanding", "-w", "-S", "root.c"], cwd=folder))
        code = (folder / "root.s").read_text()
        calls = re.findall(r"\s(?:bl|blx|call|tail|brasl|jg|b)\s+(?:%r14,)?(\w*(?:sqrt|__)\w*)", code)
        expect(not calls, f"{level}: it calls {calls}")
        if instruction:
            expect(re.search(instruction, code), f"{level}: no {instruction}")


for name, (compiler, flags, instruction) in PROCESSORS.items():
    suite.add(f"a square root calls nothing: {name}", no_calls, name, compiler, flags, instruction)


@suite.case("no double on a Cortex-M4, whose unit has none, even at -O0")
def no_double():
    here("arm-none-eabi-gcc", "arm-none-eabi-nm")
    for name in ("image", "quantized"):
        for cpu in ("generic", "cortex-m4"):
            folder = emitted(name, f"--cpu={cpu}")
            for level in ("-O0", "-O2"):
                T.must(T.run(["arm-none-eabi-gcc", *M4F, level, "-c", "net.c", "-o", "net.o"], cwd=folder, timeout=120))
                said = T.must(T.run(["arm-none-eabi-nm", "-u", folder / "net.o"])).out.decode()
                calls = set(re.findall(r"U (\S+)", said)) - {"memset", "memcpy", "memmove", "copysignf"}
                expect("memset" in said and not calls, f"{name}, --cpu={cpu}, {level}: {sorted(calls)}")


PLACES = """SECTIONS
{
    .slow 0x00300000 : { *(.slow*) }
    .fast 0x20300000 (NOLOAD) : { *(.fast*) }
}
INSERT AFTER .noinit;
"""
PLACED = """#include "net.h"
__attribute__((section(".fast"))) static _Alignas(NET_ARENA_ALIGN) unsigned char memory[NET_SELFTEST_BYTES];
int main(void) { return net_selftest(memory, sizeof memory, NULL); }
"""


@suite.case("a linker script places weights and arena, and a Cortex-M4 runs from there")
def placed():
    here("arm-none-eabi-gcc", "qemu-system-arm", "arm-none-eabi-size")
    folder = T.scratch(SCRATCH / "placed")
    T.emit(TGC, T.ROOT / "models" / "digits.tg", folder / "net.c", "--cpu=cortex-m4", "--name=net")
    for name, text in (("places.ld", PLACES), ("main.c", PLACED), ("start.c", START)):
        (folder / name).write_text(text)
    T.must(T.run(["arm-none-eabi-gcc", *M4F, "-O2", "-DNET_SELFTEST", "-DNET_WEIGHTS_SECTION=\".slow\"", "-DSTACK=0x203f0000", "net.c", "main.c",
                  "start.c", "--specs=rdimon.specs", "-Wl,--section-start=.vectors=0", "-Wl,-Tdata=0x20000000", "-T", "places.ld", "-o", "net", "-lm"],
                 cwd=folder, timeout=120))
    said = T.must(T.run(["arm-none-eabi-size", "-A", folder / "net"])).out.decode()
    sizes = {name: (int(size), int(at)) for name, size, at in re.findall(r"^(\.\S+)\s+(\d+)\s+(\d+)", said, re.M)}
    expect(sizes[".slow"][0] > 7000 and sizes[".slow"][1] == 0x300000, said)
    expect(sizes[".fast"][0] > 0 and sizes[".fast"][1] == 0x20300000 and sizes[".rodata"][0] < 7000, said)
    done = T.run(["qemu-system-arm", "-M", "mps2-an386", "-nographic", "-semihosting-config", "enable=on,target=native", "-kernel", folder / "net"], timeout=60)
    expect(done.status == 0, done.describe())


suite.main()
