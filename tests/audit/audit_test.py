"""The audit of inner loops (tests/lib/loops.py) on loops whose instructions are known.

Small files in the shape of emitted C: a table of kernels, and kernels of intrinsics whose
register tiles fit or do not fit the machine. Compiled and disassembled, never run, so that
AArch64 is tested wherever its compiler is.
"""

import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "lib")]

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
    suite.main()


if __name__ == "__main__":
    main()
