"""The inner loops of emitted kernels, as compilers make them, and the audit that reads them.

The hot loop of a contraction has its products, all sums in registers, nothing of the stack: for
each instruction set, with each compiler that is here. The audit itself (tests/lib/loops.py) is
tested on loops whose instructions are known: small files in the shape of emitted C, with register
tiles that fit or do not fit the machine. All are compiled and disassembled, never run, so that
AArch64 and AVX-512 are tested wherever a compiler is.
"""

import re
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "lib")]

import numpy as np
import onnx

import graphs as G
import loops
import tgc as T
from suite import Skip, Suite, expect

TABLE = """
struct net_kernel { const char *name, *title; double flop, bytes; };
static const struct net_kernel kernel_info[] = {
    {"tile_0", "conv \\"a\\"", 1e6, 100},
};
const struct net_kernel *net_describe(void) { return kernel_info; }
"""

X86 = """
#include <immintrin.h>
__attribute__((target("avx2,fma")))
static void tile_0(float *restrict y, const float *restrict x, const float *restrict w, int n)
{
    __m256 sum[ROWS][COLUMNS];
#pragma GCC unroll 16
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < COLUMNS; j++)
            sum[i][j] = _mm256_setzero_ps();
    for (int k = 0; k < n; k++)
#pragma GCC unroll 16
        for (int i = 0; i < ROWS; i++) {
            __m256 a = _mm256_broadcast_ss(x + k * ROWS + i);
#pragma GCC unroll 16
            for (int j = 0; j < COLUMNS; j++)
                sum[i][j] = _mm256_fmadd_ps(a, _mm256_load_ps(w + (k * COLUMNS + j) * 8),
                                            sum[i][j]);
        }
#pragma GCC unroll 16
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < COLUMNS; j++)
            _mm256_storeu_ps(y + (i * COLUMNS + j) * 8, sum[i][j]);
}
"""

ARM = """
#include <arm_neon.h>
static void tile_0(float *restrict y, const float *restrict x, const float *restrict w, int n)
{
    float32x4_t sum[4][2];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 2; j++)
            sum[i][j] = vdupq_n_f32(0);
    for (int k = 0; k < n; k++)
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
#pragma GCC unroll 2
            for (int j = 0; j < 2; j++)
                sum[i][j] = vfmaq_n_f32(sum[i][j], vld1q_f32(w + (k * 2 + j) * 4), x[k * 4 + i]);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 2; j++)
            vst1q_f32(y + (i * 2 + j) * 4, sum[i][j]);
}
"""

# A run function around the kernel, into which compilers inline it.
CALL = """
void net_run(float *y, const float *x, const float *w, int n);
TARGET void net_run(float *y, const float *x, const float *w, int n)
{
    for (int image = 0; image < 4; image++)
        tile_0(y + image, x + image, w, n);
}
"""


def hot_loop(scratch, compiler, text, *flags):
    if not shutil.which(compiler):
        raise Skip(f"no {compiler} here")
    folder = T.scratch(scratch)
    (folder / "net.c").write_text(text)
    T.must(T.run([compiler, "-O2", "-g", *flags, "-c", "net.c", "-o", "net.o"], cwd=folder))
    found = loops.hottest(loops.audit(folder / "net.o", folder / "net.c", (compiler,)))
    expect("tile_0" in found, "no loop is attributed to the kernel")
    return found["tile_0"]


def fits(scratch, compiler, rows, columns):
    loop = hot_loop(scratch, compiler, X86 + TABLE + CALL, f"-DROWS={rows}",
                    f"-DCOLUMNS={columns}", '-DTARGET=__attribute__((target("avx2,fma")))')
    unrolled = loop.fma // (rows * columns)
    expect(unrolled >= 1 and loop.fma == unrolled * rows * columns, f"FMAs: {loop}")
    expect(loop.sums == rows * columns, f"registers of sums: {loop}")
    expect(loop.stack == 0 and loop.stores == 0 and loop.calls == 0, f"traffic: {loop}")
    expect(loop.bits == 256, f"width: {loop}")


def spills(scratch, compiler):
    loop = hot_loop(scratch, compiler, X86 + TABLE + CALL, "-DROWS=6", "-DCOLUMNS=4",
                    '-DTARGET=__attribute__((target("avx2,fma")))')
    expect(loop.fma >= 24 and loop.fma % 24 == 0, f"FMAs: {loop}")
    expect(loop.stack > 0, f"24 sums cannot stay in 16 registers: {loop}")


def portable(scratch, compiler):
    """Without intrinsics and FMA a product is a multiplication and an addition."""
    text = """
static void tile_0(float *restrict y, const float *restrict x, const float *restrict w, int n)
{
    float a = 0, b = 0;
    for (int k = 0; k < n; k++) {
        a += x[k] * w[2 * k];
        b += x[k] * w[2 * k + 1];
    }
    y[0] = a;
    y[1] = b;
}
""" + TABLE + CALL
    loop = hot_loop(scratch, compiler, text, "-DTARGET=", "-mno-fma")
    expect(loop.fma == 0 and loop.multiply == loop.add > 0, f"products: {loop}")
    expect(loop.stack == 0 and loop.stores == 0, f"traffic: {loop}")


def neon(scratch, compiler):
    loop = hot_loop(scratch, compiler, ARM + TABLE + CALL, "-DTARGET=")
    expect(loop.fma == 8 and loop.sums == 8 and loop.bits == 128, f"FMAs: {loop}")
    expect(loop.stack == 0 and loop.stores == 0, f"traffic: {loop}")


# ---------------------------------------------------------------------------- emitted kernels


def draw(*shape):
    return np.random.default_rng(2).standard_normal(shape).astype(np.float32)


def float_layers():
    """Layers of a ResNet's and a MobileNet's kinds; a product with a weight, one of two values."""
    return G.model(
        [G.node("Conv", ["x", "w1"], ["a"], pads=[1] * 4), G.node("Relu", ["a"], ["b"]),
         G.node("Conv", ["b", "w2"], ["c"]),
         G.node("Conv", ["c", "w3"], ["depthwise"], pads=[1] * 4, group=96),
         G.node("Conv", ["depthwise", "w4"], ["e"], strides=[2, 2], pads=[1] * 4),
         G.node("Conv", ["e", "w4"], ["f"], strides=[2, 2], pads=[1] * 4),
         G.node("Reshape", ["f", "shape"], ["g"]), G.node("MatMul", ["g", "w5"], ["h"]),
         G.node("Transpose", ["h"], ["i"]), G.node("MatMul", ["i", "g"], ["y"])],
        [G.value("x", [1, 64, 28, 28])], [G.value("y", [200, 98])],
        [G.weight("w1", draw(96, 64, 3, 3)), G.weight("w2", draw(96, 96, 1, 1)),
         G.weight("w3", draw(96, 1, 3, 3)), G.weight("w4", draw(96, 96, 3, 3)),
         G.weight("w5", draw(98, 200)), G.weight("shape", np.array([48, 98], np.int64))])


def first_layers():
    """Few channels: sums as large as a tile, over many pixels, which threads share. Their results lie
    as between layers, channels innermost."""
    layers = [G.node("Conv", ["x", f"w{k}"], [f"{y}0"], strides=[2, 2], pads=[pad] * 4)
              for k, (y, pad) in enumerate((("a", 1), ("b", 1), ("c", 2)), 1)]
    return G.model(
        layers + [G.node("Transpose", [f"{y}0"], [y], perm=[0, 2, 3, 1]) for y in "abc"],
        [G.value("x", [1, 3, 224, 224])],
        [G.value("a", [1, 112, 112, 16]), G.value("b", [1, 112, 112, 32]),
         G.value("c", [1, 112, 112, 16])],
        [G.weight("w1", draw(16, 3, 3, 3)), G.weight("w2", draw(32, 3, 3, 3)),
         G.weight("w3", draw(16, 3, 5, 5))])


def byte_layers():
    random = np.random.default_rng(3)
    weight = {name: random.integers(-127, 128, shape).astype(np.int8)
              for name, shape in (("w1", (96, 64, 3, 3)), ("w2", (96, 64, 1, 1)))}
    return G.model(
        [G.node("ConvInteger", ["x", "w1", "zero"], ["a"], pads=[1] * 4),
         G.node("ConvInteger", ["x", "w2", "zero"], ["b"]),
         G.node("MatMulInteger", ["u", "w3"], ["c"])],
        [G.value("x", [1, 64, 28, 28], onnx.TensorProto.UINT8),
         G.value("u", [64, 256], onnx.TensorProto.UINT8)],
        [G.value(name, shape, onnx.TensorProto.INT32)
         for name, shape in (("a", [1, 96, 28, 28]), ("b", [1, 96, 28, 28]), ("c", [64, 192]))],
        [G.weight(name, array) for name, array in weight.items()] +
        [G.weight("w3", random.integers(-127, 128, (256, 192)).astype(np.int8)),
         G.weight("zero", np.array(131, np.uint8))])


# --cpu=: bits of a vector, sums of a tile at least
WIDTHS = {"avx2": (256, 7), "avx512": (512, 12), "avx512vnni": (512, 12), "neon": (128, 12)}


def check_hot_loop(name, loop, bits, least):
    """A tile's sums in registers, products for each of them, and nothing that is stored."""
    products = loop.fma or loop.multiply
    expect(loop.bits == bits, f"{name} has vectors of {loop.bits} bits: {loop}")
    expect(products >= least, f"{name} has few products: {loop}")
    # two cases have room for few of their values: a depthwise layer whose whole sum is unrolled (the
    # loop that is left is that of tiles), and bytes whose products no instruction adds up
    few = loop.sums == 0 if loop.fma else bits == 128
    if loop.fma and not few:
        expect(loop.sums >= least and products % loop.sums == 0, f"{name}'s sums: {loop}")
    expect(loop.stack == loop.stores == 0 or few and 3 * loop.stack <= products,
           f"{name} has traffic: {loop}")
    expect(loop.calls == 0, f"{name} calls: {loop}")


def emitted(tgc, scratch, make, cpu, compiler, *flags):
    """Every contraction's hot loop: the sums of its tile, products of whole tiles, nothing else."""
    if not shutil.which(compiler):
        raise Skip(f"no {compiler} here")
    folder = T.scratch(scratch)
    onnx.save(make(), folder / "model.onnx")
    T.emit(tgc, folder / "model.onnx", folder / "net.c", f"--cpu={cpu}", "--no-winograd",
           *["--threads=2"] * (make is first_layers))
    T.must(T.run([compiler, *flags, "-O2", "-g", "-c", "net.c", "-o", "net.o"], cwd=folder))
    found = loops.hottest(loops.audit(folder / "net.o", folder / "net.c", (compiler, *flags)))
    hot = {name: loop for name, loop in found.items() if loop.kernel.startswith(("conv", "matmul"))
           and loop.variant != loop.kernel}
    expect(len(hot) >= 3, f"of {sorted(found)} few are contractions")
    for name, loop in hot.items():
        check_hot_loop(name, loop, *WIDTHS[cpu])


# ------------------------------------------------------------------------- choosing bit by bit

# vpternlog's tables of `selector ? one : other`: which of its operands is the selector (the last
# one that is named in AT&T's order is 0, and is written)
SELECTOR = {0xca: 0, 0xac: 0, 0xe2: 1, 0xb8: 1, 0xe4: 2, 0xd8: 2}


def wrong_choices(assembly):
    """The vpternlog that choose bit by bit by what is no constant, or store into chosen lanes alone.

    Clang 19 makes `select(v != v, v, copysign(l, v))` that was written with and, or, not one
    `vpternlogd $184, sign(%rip){1to16}, l, v {%k1}`: its operands have changed places, and the
    table has not followed, so that l chooses between v and the sign's bit."""
    found, constant = [], set()
    for line in assembly.splitlines():
        code = line.split("#")[0].strip()
        if code.endswith(":") and not code.startswith("."):
            constant = set()                # a function
        name, _, operands = code.partition("\t")
        if not name.startswith("v") or not operands:
            continue
        words = [word.strip() for word in re.split(r",(?![^(]*\))", operands)]
        written = re.match(r"%[xyz]mm(\d+)", words[-1])
        if name.startswith("vpternlog"):
            table = int(words[0].lstrip("$"), 0) & 255
            sources = [words[3], words[2], words[1]]
            choice = sources[SELECTOR[table]] if table in SELECTOR else None
            register = choice and re.match(r"%[xyz]mm(\d+)", choice)
            if register and register.group(1) not in constant or re.search(r"\{%k\d\}(?! *\{z\})", words[3]):
                found.append(code)
        literal = re.match(r"\.?LC\w*\(%rip\)", words[0]) or words[0].startswith("$")
        moves = re.match(r"vp?broadcast|vmov[au]p|vmovdq[au]", name)
        source = re.sub(r"%[xyz]mm(\d+)$", r"\1", words[0])       # registers, and what is spilled
        target = written.group(1) if written else words[-1]
        (constant.add if moves and (literal or source in constant) else constant.discard)(target)
    return found


def chooses(tgc, scratch, compiler):
    """Tanh and its like, a gate of an LSTM, comparisons: at each level, for AVX-512."""
    if not shutil.which(compiler):
        raise Skip(f"no {compiler} here")
    folder = T.scratch(scratch)
    shape, hidden = [64, 48], 16
    ops = ["Tanh", "Erf", "Gelu", "Log", "Sign", "Softplus", "Mish"]
    nodes = [G.node(op, ["x"], [op]) for op in ops]
    nodes += [G.node("Gelu", ["x"], ["tanh"], approximate="tanh"),
              G.node("Less", ["x", "Erf"], ["m"]), G.node("Where", ["m", "x", "Tanh"], ["w"]),
              G.node("LSTM", ["s", "W", "R"], ["h"], hidden_size=hidden)]
    onnx.save(G.model(nodes, [G.value("x", shape), G.value("s", [8, 4, hidden])],
                      [*(G.value(name, shape) for name in [*ops, "tanh", "w"]),
                       G.value("h", [8, 1, 4, hidden])],
                      [G.weight("W", draw(1, 4 * hidden, hidden)), G.weight("R", draw(1, 4 * hidden, hidden))],
                      opset=20), folder / "model.onnx")
    T.emit(tgc, folder / "model.onnx", folder / "net.c", "--cpu=avx512")
    text = (folder / "net.c").read_text()
    expect(all(f"{name}_f32x16(" in text for name in ("tanh", "erf", "log", "select", "copysign")),
           "few functions")
    wrong = []
    for level in ("-O1", "-O2", "-O3"):
        T.must(T.run([compiler, level, "-S", "net.c", "-o", "net.s"], cwd=folder))
        assembly = (folder / "net.s").read_text()
        expect("zmm" in assembly, "there are no vectors")
        wrong += [f"{level}: {line}" for line in wrong_choices(assembly)]
    expect(not wrong, "chosen by what is no constant, or in part:\n" + "\n".join(wrong))


def finds_wrong_choices():
    """The audit itself, on what clang 19 made of the former code, and what it makes of other code."""
    wrong = "f:\n\tvcmpordps\t%zmm2, %zmm0, %k1\n\tvpternlogd\t$184, .LCPI1_1(%rip){1to16}, %zmm1, %zmm0 {%k1}\n"
    expect(len(wrong_choices(wrong)) == 1, "the wrong one is not found")
    expect(len(wrong_choices(wrong.replace(" {%k1}\n", "\n"))) == 1, "not found where it has no mask")
    right = "\tvpternlogd\t$216, .LCPI1_1(%rip){1to16}, %zmm1, %zmm0\n"
    expect(not wrong_choices("f:\n" + right), "by a constant in memory")
    loaded = "\tvbroadcastss\t.LCPI1_1(%rip), %zmm7\n\tvpternlogd\t$226, %zmm0, %zmm7, %zmm1\n"
    expect(not wrong_choices("f:\n" + loaded), "by a constant in a register")
    expect(wrong_choices("f:\n" + loaded.replace("$226", "$228")), "by a register that is none")


def main():
    suite = Suite("audit")
    options = suite.parse()
    scratch = Path(options.build).resolve() / "test-scratch" / "audit"
    x86 = shutil.which("objdump") and T.run(["uname", "-m"]).out.strip() == b"x86_64"
    for compiler in ("gcc", "clang", "clang-19") if x86 else ():
        for rows, columns in ((6, 2), (4, 2)):
            name = f"{compiler} keeps a tile of {rows}x{columns}"
            suite.add(name, fits, scratch / name.replace(" ", "_"), compiler, rows, columns)
        suite.add(f"{compiler} spills a tile of 6x4", spills, scratch / f"{compiler}_spills",
                  compiler)
        suite.add(f"{compiler} without FMA", portable, scratch / f"{compiler}_portable", compiler)
    suite.add("NEON by a cross compiler", neon, scratch / "neon", "aarch64-linux-gnu-gcc")
    tgc = T.find_tgc(options.build).resolve()
    for compiler in ("gcc", "clang", "clang-19") if x86 else ():
        for make, cpu in ((float_layers, "avx2"), (float_layers, "avx512"),
                          (first_layers, "avx2"), (first_layers, "avx512"), (byte_layers, "avx2"),
                          (byte_layers, "avx512"), (byte_layers, "avx512vnni")):
            name = f"{make.__name__} for {cpu} by {compiler}"
            suite.add(name, emitted, tgc, scratch / name.replace(" ", "_"), make, cpu, compiler)
    suite.add("the audit finds wrong choices", finds_wrong_choices)
    if x86:
        suite.add("tanh chooses by constants, by clang-19", chooses, tgc, scratch / "chooses", "clang-19")
    for make in (float_layers, byte_layers):
        for compiler, *flags in (("aarch64-linux-gnu-gcc",),
                                 ("clang-19", "--target=aarch64-linux-gnu")):
            name = f"{make.__name__} for neon by {compiler}"
            suite.add(name, emitted, tgc, scratch / name.replace(" ", "_"), make, "neon", compiler,
                      *flags)
    suite.main()


if __name__ == "__main__":
    main()
