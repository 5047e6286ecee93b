"""Every function of runtime/vector_*.c and runtime/math.c by itself: built by every compiler that is
here, without a warning, at every level of optimization, for every instruction set that this machine
or an emulator has. C++ is one of the compilers: g++ warns of what its own headers leave undefined.

The functions are taken out of the table that tgc carries (build/runtime/snippets.inc), as emitted
programs do. A function's signature says which loop calls it: one of a signature that no loop is for
fails the suite, and so does one without an entry in WANT. Elementary functions are held against the
exact value within what docs/ulp.md states, all others have to be exact.
"""

import functools
import re
import shutil
import struct
import sys
import threading
import warnings
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "lib"))

import ml_dtypes
import numpy as np

import foreign
import tgc as T
from exact import F32, F64, FUNCTIONS, LONG, documented, ulps
from suite import Skip, Suite, expect

suite = Suite("vectors")
OPTIONS = suite.parse()
SCRATCH = T.scratch(Path(OPTIONS.build).resolve() / "test-scratch" / "vectors")
N = 16384 if OPTIONS.all else 4096
warnings.simplefilter("ignore", RuntimeWarning)

# -------------------------------------------------------------------------------- the functions


def read_pieces():
    """{name: (file, [names that it needs], C)} of all that programs carry."""
    text = (Path(OPTIONS.build) / "runtime" / "snippets.inc").read_text()
    string = r'"((?:[^"\\]|\\.)*)"'
    found = {}
    for piece in re.finditer(rf"SNIPPET\({string}, {string}, {string},((?:\s*{string})*)\)", text):
        file, name, needs = piece.group(1, 2, 3)
        lines = re.findall(string, piece.group(4))
        code = "".join(re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], s) for s in lines)
        found[name] = file, needs.split(), code
    return found


PIECES = read_pieces()

# the files' functions that an instruction set has
SETS = {
    "generic": ["math"],
    "avx2": ["vector_avx2", "f32x8"],
    "avx512": ["vector_avx512", "f32x16"],
    "avx512vnni": ["vector_avx512vnni"],
    "avx512bf16": ["vector_avx512bf16"],
    "neon": ["vector_neon", "f32x4"],
    "neondot": ["vector_neondot"],
    "neoni8mm": ["vector_neoni8mm"],
    "simd128": ["vector_simd128", "f32x4"],
    "neonbf16": ["vector_neonbf16"],
}
WEB = "simd128_"        # before the names of pieces that are there instead of NEON's
# parts of others, which are tested by them; what asks the system
HELPERS = {"reduce_f64", "sin_quadrant_f64", "half_f32x8", "first_f32x8", "whole_f32x16",
           "nearest_f32x16", "put_apart_f32x16", "lookup_f32x16", "has_neon", "has_dotprod", "has_i8mm", "has_bf16",
           "half_f32x4", "bytes_f32x4"}


def functions_of(isa):
    """{name: its signature}, vectors called V (floats), W (i32) and M (masks)"""
    file, *suffix = SETS[isa]
    found = {}
    for name, (of, _, code) in PIECES.items():
        name = name.removeprefix(WEB)
        mine = of == file or (suffix and of == "vector_math" and name.endswith(suffix[0]))
        head = re.search(rf"^static (?:inline )?(.*?)\b{name}\(([^)]*)\)", code, re.M)
        if not mine or not head or name in HELPERS:
            continue
        result = re.sub(r"\bIN_\w+ ", "", head.group(1)).strip()
        types = [re.sub(r"\w+$", "", re.sub(r"\bconst ", "", a.strip())).strip()
                 for a in head.group(2).split(",")]
        plain = f"{result}({', '.join(types)})"
        for pattern, letter in ((r"mask_f32x\d+", "M"), (r"i32x\d+", "W")):
            plain = re.sub(pattern, letter, plain)
        if name != "half_f32x16":
            plain = re.sub(r"f32x\d+", "V", plain)
        found[name] = plain.replace(" *", "*")
    return found


# What a function of a signature is called with. F is the function, L the lanes, V and W the vectors.
EACH = "EACH(L) "
LOOPS = {
    "float(float)": ("f", "EACH(1) out.f[k] = F(in.x[k]);"),
    "float(float, float)": ("f", "EACH(1) out.f[k] = F(in.x[k], in.y[k]);"),
    "float(float, float, float)": ("f", "EACH(1) out.f[k] = F(in.x[k], in.y[k], in.z[k]);"),
    "double(double)": ("d", "EACH(1) out.d[k] = F(in.d[k]);"),
    "double(double, double)": ("d", "EACH(1) out.d[k] = F(in.d[k], in.e[k]);"),
    "bool(float)": ("b", "EACH(1) out.b[k] = F(in.x[k]);"),
    "bool(double)": ("b", "EACH(1) out.b[k] = F(in.d[k]);"),
    "V(V)": ("f", EACH + "store_V(out.f + k, F(load_V(in.x + k)));"),
    "V(V, V)": ("f", EACH + "store_V(out.f + k, F(load_V(in.x + k), load_V(in.y + k)));"),
    "V(V, V, V)": ("f", EACH + "store_V(out.f + k, F(load_V(in.x + k), load_V(in.y + k), load_V(in.z + k)));"),
    "V(V, int)": ("f", EACH + "switch (k / L % 4 < TURNS ? k / L % 4 : 0) {"
                  + "".join(f"case {c}: store_V(out.f + k, F(load_V(in.x + k), {1 << c} < L ? {1 << c} : 1)); break;"
                            for c in range(4)) + "}"),
    "V(V, V, int)": ("f", EACH + "switch (k / L % 4 < TURNS ? k / L % 4 : 0) {"
                     + "".join(f"case {c}: store_V(out.f + k, F(load_V(in.x + k), load_V(in.y + k), "
                               f"{1 << c} < L ? {1 << c} : 1)); break;" for c in range(4)) + "}"),
    "f32x8(f32x16)": ("f", EACH + "store_f32x8(out.f + k / 2, F(load_V(in.x + k)));"),
    "float(V)": ("f", EACH + "out.f[k / L] = F(load_V(in.x + k));"),
    "V(float)": ("f", EACH + "store_V(out.f + k, F(in.x[k]));"),
    "M(V, V)": ("f", EACH + "store_V(out.f + k, from_bool_V(F(load_V(in.x + k), load_V(in.y + k))));"),
    "M(M)": ("f", EACH + "store_V(out.f + k, from_bool_V(F(load_bool_V(in.b + k))));"),
    "V(M)": ("f", EACH + "store_V(out.f + k, F(load_bool_V(in.b + k)));"),
    "M(bool)": ("f", EACH + "store_V(out.f + k, from_bool_V(F(in.b[k] % 2 != 0)));"),
    "M(uint8_t*)": ("f", EACH + "store_V(out.f + k, from_bool_V(F(in.b + k)));"),
    "V(M, V, V)": ("f", EACH + "store_V(out.f + k, F(load_bool_V(in.b + k), load_V(in.x + k), load_V(in.y + k)));"),
    "V(float*)": ("f", EACH + "store_V(out.f + k, F(in.x + k));"),
    "V(int8_t*)": ("f", EACH + "store_V(out.f + k, F((const int8_t *)in.b + k));"),
    "V(uint8_t*)": ("f", EACH + "store_V(out.f + k, F(in.b + k));"),
    "V(uint16_t*)": ("f", EACH + "store_V(out.f + k, F(in.h + k));"),
    "V(float*, int)": ("f", EACH + "store_V(out.f + k, F(in.x + k, 1 + k / L % (L - 1)));"),
    "V(float*, int64_t, int)": ("f", EACH + "store_V(out.f + k, F(in.x + k / 4, 3, 1 + k / L % L));"),
    "void(float*, V)": ("f", EACH + "F(out.f + k, load_V(in.x + k));"),
    "void(float*, V, int)": ("f", EACH + "F(out.f + k, load_V(in.x + k), 1 + k / L % (L - 1));"),
    "void(float*, V, int64_t, int)": ("f", EACH + "F(out.f + k / 4, load_V(in.x + k), 3, 1 + k / L % L);"),
    "void(uint8_t*, V)": ("b", EACH + "F(out.b + k, load_V(in.x + k));"),
    "void(int8_t*, V)": ("b", EACH + "F((int8_t *)out.b + k, load_V(in.x + k));"),
    "void(uint16_t*, V)": ("h", EACH + "F(out.h + k, load_V(in.x + k));"),
    "void(uint8_t*, V, int64_t, int)": ("b", EACH + "F(out.b + 4 * k, load_V(in.x + k), 3 + k / L / L % 2, 1 + k / L % L);"),
    "void(int8_t*, V, int64_t, int)": ("b", EACH + "F((int8_t *)out.b + 4 * k, load_V(in.x + k), 3 + k / L / L % 2, 1 + k / L % L);"),
    "void(uint16_t*, V, int64_t, int)": ("h", EACH + "F(out.h + k / 4, load_V(in.x + k), 3, 1 + k / L % L);"),
    "W(int32_t*)": ("i", EACH + "store_W(out.i + k, F(in.i + k));"),
    "W(int32_t)": ("i", EACH + "store_W(out.i + k, F(in.i[k]));"),
    "W(int8_t*)": ("i", EACH + "store_W(out.i + k, F((const int8_t *)in.b + k));"),
    "W(uint8_t*)": ("i", EACH + "store_W(out.i + k, F(in.b + k));"),
    "W(void*)": ("i", EACH + "store_W(out.i + k, F(in.b + 4 * k));"),
    "W(void*, W)": ("i", EACH + "store_W(out.i + k, F(in.b + k % 256, load_bytes_W(in.b + 4 * k)));"),
    "W(void*, int64_t)": ("i", EACH + "store_W(out.i + k, F(in.b + 2 * k, L + 3));"),
    "V(V, W, W)": ("f", EACH + "store_V(out.f + k, F(load_V(in.x + k), load_bytes_W(in.b + 4 * k), load_W(in.j + k)));"),
    "W(W, W, W)": ("i", EACH + "store_W(out.i + k, F(load_W(in.i + k), load_bytes_W(in.b + 4 * k), load_W(in.j + k)));"),
    "M(W, W)": ("f", EACH + "store_V(out.f + k, from_bool_V(F(load_W(in.i + k), load_W(in.j + k))));"),
    "W(W, W)": ("i", EACH + "store_W(out.i + k, F(load_W(in.i + k), load_W(in.j + k)));"),
    "W(M, W, W)": ("i", EACH + "store_W(out.i + k, F(load_bool_V(in.b + k), load_W(in.i + k), load_W(in.j + k)));"),
    "W()": ("i", EACH + "store_W(out.i + k, F());"),
    "W(V, int)": ("i", EACH + "store_W(out.i + k, F(load_V(in.x + k), 1 << 20));"),
    "W(int64_t*, int)": ("i", EACH + "{ int64_t a[L]; for (int l = 0; l < L; l++) "
                         "a[l] = (int64_t)in.i[k + l] * (k / L % 2 ? 4099 : 1); store_W(out.i + k, F(a, 1 << 30)); }"),
    "W(int64_t*, int64_t, int)": ("i", EACH + "{ int64_t a[3 * L]; for (int l = 0; l < L; l++) "
                                  "a[3 * l] = (int64_t)in.i[k + l] * (k / L % 2 ? 4099 : 1); "
                                  "store_W(out.i + k, F(a, 3, 1 << 30)); }"),
    "V(float*, W)": ("f", EACH + "store_V(out.f + k, F(in.x, load_u8_W(in.b + k)));"),
    "V(float*, W, M, V)": ("f", EACH + "store_V(out.f + k, F(in.x, load_u8_W(in.b + k), load_bool_V(in.b + k), "
                           "load_V(in.y + k)));"),
    "V(W)": ("f", EACH + "store_V(out.f + k, F(load_W(in.i + k)));"),
    "void(int32_t*, W)": ("i", EACH + "F(out.i + k, load_W(in.i + k));"),
    "void(void*, W)": ("i", EACH + "F(out.i + k, load_W(in.i + k));"),
    "void(int32_t*, W, int64_t, int)": ("i", EACH + "F(out.i + k / 4, load_W(in.i + k), 3, 1 + k / L % L);"),
}
# the results, by LOOPS' letters
RESULT = {"f": F32, "d": F64, "i": np.dtype(np.int32), "h": np.dtype(np.uint16), "b": np.dtype(np.uint8)}


def lanes_of(name):
    return int(re.search(r"x(\d+)$", name).group(1)) if re.search(r"32x\d+$", name) else 1


def source(sets):
    """A program that calls the functions of these instruction sets."""
    body, calls, needed = [], [], []

    def need(name):
        name = WEB + name if "simd128" in sets and WEB + name in PIECES else name
        if name not in needed and name in PIECES:
            for other in PIECES[name][1]:
                need(other)
            if name not in needed:
                needed.append(name)

    for isa in sets:
        for name, signature in functions_of(isa).items():
            expect(signature in LOOPS, f"{name}: no loop for functions of {signature}")
            letter, loop = LOOPS[signature]
            lanes = lanes_of(name)
            of = {"V": f"f32x{lanes}", "W": f"i32x{lanes}", "F": name, "L": str(lanes),
                  "TURNS": str(lanes.bit_length() - 1)}
            loop = re.sub(r"(?<=_)[VW]\b|\b(?:F|L|TURNS)\b", lambda m: of[m[0]], loop)
            need(name)
            for other in re.findall(r"\w+(?=\()", loop):
                need(other)
            attribute = re.search(r"\bIN_\w+", PIECES.get(WEB + name if "simd128" in sets else name, PIECES.get(name))[2]) or [""]
            body.append(f"static {attribute[0]} void call_{name}(void)\n{{\n    {loop}\n"
                        f'    put("{name}", out.{letter}, sizeof out.{letter});\n}}\n')
            calls.append(f"    call_{name}();\n")
    needed.sort(key=list(PIECES).index)          # as programs have them
    head = ("#include <arm_neon.h>\n" if "neon" in sets
            else "#include <wasm_simd128.h>\n" if "simd128" in sets
            else "#include <immintrin.h>\n" if "avx2" in sets else "")
    return (head + (HERE / "vectors.c").read_text() + "".join(PIECES[n][2] + "\n" for n in needed)
            + "\n".join(body) + "\nint main(int argc, char **argv)\n{\n    if (argc != 2)\n"
            "        return 2;\n    read_input(argv[1]);\n" + "".join(calls) + "    return 0;\n}\n")


# ------------------------------------------------------------------------------------ the inputs

# where a function's pieces meet, or its power leaves the range
BOUNDS = [0.5, 0.625, 0.9140625, 0.921875, 1, 1.5, 2, 2.5, 3, 4, 6, 15, 16, 17, 87.3, 88, 88.73, 88.8, 89, 104,
          127, 127.5, 128, 254.5, 255, 255.5, 256, 700, 710, 745, 746, 65504, 65519, 65520, 2**20, 2**22,
          2**23, 2**24, 2**31, 2**32, 2.0**52, 2.0**53, 2.0**63, 0.70710678, 1.41421356, 0.41421356, 0.785398163,
          1.57079633, 3.14159265, 6e-8, 6.1e-5, 2**-28, 1e-30]


def floats(random, dtype, shuffled=False):
    """N of them: edges with their neighbours, usual ones of all sizes, any bits"""
    info = ml_dtypes.finfo(dtype)
    bits = f"u{dtype.itemsize}"
    ends = np.array([np.nan, np.inf, 0, info.max, info.smallest_normal, info.smallest_subnormal,
                     float(info.smallest_normal) / 2, *BOUNDS], dtype)
    near = ends.view(bits)[:, None] + np.arange(-3, 4, dtype=np.int64).astype(bits)
    edges = np.concatenate([near.reshape(-1), near.reshape(-1) ^ np.array(1 << (8 * dtype.itemsize - 1), bits)])
    edges = edges.view(dtype)
    any_bits = random.integers(0, 1 << 63, N // 4, np.uint64) * 2 + random.integers(0, 2, N // 4, np.uint64)
    any_bits = (any_bits >> np.uint64(64 - 8 * dtype.itemsize)).astype(bits).view(dtype)
    n = N - edges.size - any_bits.size
    usual = (random.standard_normal(n) * np.exp2(random.integers(-12, 9, n))).astype(dtype)
    x = np.concatenate([edges, any_bits, usual])
    return random.permutation(x) if shuffled else x


def make_inputs():
    random = np.random.default_rng(5)
    x = {"x": floats(random, F32), "y": floats(random, F32, True), "z": floats(random, F32, True),
         "d": floats(random, F64), "e": floats(random, F64, True)}
    # where two operands are asked for, some are equal, and some integers
    same = slice(N // 2, N // 2 + N // 8)
    for a, b in (("x", "y"), ("d", "e")):
        x[b][same] = x[a][same]
        whole = slice(N - N // 8, N)
        x[b][whole] = np.round(x[b][whole])
    limits = np.iinfo(np.int32)
    for name in "ij":
        x[name] = random.integers(limits.min, limits.max + 1, N).astype(np.int32)
        x[name][:6] = [limits.min, limits.max, 0, -1, 1, limits.min + 1]
    x["h"] = random.permutation(np.arange(65536, dtype=np.uint16))[:N]
    x["h"][:8] = [0, 0x8000, 0x7c00, 0xfc00, 0x7e00, 0x0001, 0x03ff, 0x7bff]
    x["b"] = random.integers(0, 256, 4 * N).astype(np.uint8)
    x["b"][:N:3] = 0
    return x


IN = make_inputs()
X, Y, Z, D, E, I, J, H, B = (IN[name] for name in "xyzdeijhb")
B4 = B.reshape(-1, 4)
SIGNED = B.view(np.int8)

# ------------------------------------------------------------------------------- what is expected

LIMITS = documented()


def within(title, x, normal_only=False):
    """An elementary function of x: within a tenth more than the document's ULP, which are those of
    another sample; infinite beyond the range, NaN where there is no result."""
    exact_of_x = functools.cache(lambda: FUNCTIONS[title](x.astype(F64).astype(LONG)))

    def check(y, _):
        exact = exact_of_x()
        error = ulps(y, exact, y.dtype)
        if normal_only:
            error[np.abs(exact) < LONG(ml_dtypes.finfo(y.dtype).smallest_normal)] = 0
        beyond = np.abs(exact) > LONG(ml_dtypes.finfo(y.dtype).max) * (1 + LONG(2) ** -20)
        error[beyond & (y != np.copysign(np.inf, exact.astype(F64)))] = np.inf
        error[np.isfinite(x) & np.isnan(exact) & ~np.isnan(y)] = np.inf
        return error <= 1.1 * LIMITS[title][y.dtype], exact, error
    return check


def same(y, want, settled=None):
    """Equal, zeros by their sign, NaN as NaN; where it is settled."""
    want = np.asarray(want, y.dtype)
    if y.dtype.kind == "f":
        good = ((y == want) & (np.signbit(y) == np.signbit(want))) | (np.isnan(y) & np.isnan(want))
    else:
        good = y == want
    return (good if settled is None else good | ~settled), want, None


def equal(want, settled=None):
    return lambda y, lanes: same(y, want(lanes) if callable(want) else want, settled)


def relative(want, error):
    def check(y, _):
        good = (np.abs(y - want) <= error * np.abs(want)) | (y == want) | (np.isnan(y) & np.isnan(want))
        return good, want, None
    return check


def groups(lanes):
    """of lanes: their number, and each one's place"""
    k = np.arange(N // lanes)
    return k, np.arange(lanes)


def turned(lanes):
    k, lane = groups(lanes)
    turns = lanes.bit_length() - 1
    c = np.where(k % 4 < turns, k % 4, 0)
    return np.take_along_axis(X.reshape(-1, lanes), lane ^ (1 << c)[:, None], 1).reshape(-1)


def crossed(odd):
    def want(lanes):
        turns, out = lanes.bit_length() - 1, []
        for k, (a, b) in enumerate(zip(X.reshape(-1, lanes), Y.reshape(-1, lanes))):
            by = 1 << (k % 4 if k % 4 < turns else 0)
            pair = np.stack([a.reshape(-1, 2, by)[:, odd], b.reshape(-1, 2, by)[:, odd]], 1)
            out.append(pair.reshape(-1))
        return np.concatenate(out)
    return want


def folded(function, error=0.0):
    def check(y, lanes):
        rows = X.reshape(-1, lanes).astype(F64)
        usual = np.all(np.isfinite(rows) & (np.abs(rows) < 50) & (np.abs(rows) > 0.02), axis=1)
        want, n = function(rows), rows.shape[0]
        if error:
            scale = np.abs(rows).sum(axis=1) if function is np_sum else np.abs(want)
            good = ~usual | (np.abs(y[:n] - want) <= error * scale)
            expect(usual.sum() > 8, "few usual rows")
        else:
            good = (y[:n] == want) | (np.isnan(y[:n]) & np.isnan(want))
        return good, want, None
    return check


def np_sum(rows):
    return rows.sum(axis=1)


def rows_part(n_of):
    """x, zero behind the first n of each vector"""
    def want(lanes):
        k, lane = groups(lanes)
        return np.where(lane < n_of(k, lanes)[:, None], X.reshape(-1, lanes), np.float32(0)).reshape(-1)
    return want


def load_apart(lanes):
    k, lane = groups(lanes)
    at = np.minimum((k * lanes // 4)[:, None] + 3 * lane, N - 1)
    return np.where(lane < (1 + k % lanes)[:, None], X[at], np.float32(0)).reshape(-1)


def store_apart(values, dtype, scale=0.25, by4=False):
    """What lies in memory when vector k's first n elements were stored at scale*k*lanes by steps of 3
    (and 4, of bytes), one after the other."""
    def want(lanes):
        memory = np.zeros(4 * N if dtype.itemsize == 1 else N, dtype)
        for k, row in enumerate(np.asarray(values, dtype).reshape(-1, lanes)):
            n, step = 1 + k % lanes, 3 + (k // lanes % 2 if by4 else 0)
            memory[int(k * lanes * scale) + step * np.arange(n)] = row[:n]
        return memory
    return want


def to_byte(dtype, rounded=False):
    """x as a byte, and where that is settled"""
    info = np.iinfo(dtype)
    wide = np.where(np.isnan(X), 0, X).astype(F64)
    y = np.clip(np.rint(wide) if rounded else np.trunc(wide), info.min, info.max).astype(dtype).view(np.uint8)
    return y, (np.abs(wide) < 2.0**31) & ~np.isnan(X) if rounded else np.ones(N, bool)


def bytes_apart(dtype, rounded):
    y, settled = to_byte(dtype, rounded)
    def check(got, lanes):
        want = store_apart(y, np.dtype(np.uint8), 4, True)(lanes)
        known = store_apart(settled, np.dtype(np.uint8), 4, True)(lanes) != 0
        nothing = store_apart(np.ones(N), np.dtype(np.uint8), 4, True)(lanes) == 0
        return same(got, want, known | nothing)
    return check


def bytes_at_once(dtype, rounded=False, number=False):
    y, settled = to_byte(dtype, rounded)
    if number:
        settled &= np.isnan(X) | ((X >= 0) & (X <= 255))
    return lambda got, lanes: same(got[:N], y, settled)


def f16_bits(values):
    return values.astype(np.float16).view(np.uint16)


def bf16_bits(values):
    return values.astype(ml_dtypes.bfloat16).view(np.uint16)


def narrow(bits_of, dtype):
    """Bits of a narrow float: NaN as any NaN"""
    want = bits_of(X)
    return lambda y, lanes: same(y.view(dtype).astype(F32), want.view(dtype).astype(F32))


def narrow_apart(bits_of, dtype):
    def check(y, lanes):
        want = store_apart(bits_of(X), np.dtype(np.uint16))(lanes)
        return same(y.view(dtype).astype(F32), want.view(dtype).astype(F32))
    return check


def looked_up(number):
    def want(lanes):
        k, _ = groups(lanes)
        at = (k * lanes % 256)[:, None] + number.astype(np.int64).reshape(-1, 4 * lanes)
        return B[at].reshape(-1).view(np.int32)
    return want


def load_groups(lanes):
    k, lane = groups(lanes)
    at = (2 * k * lanes)[:, None, None] + lane[None, :, None] + np.arange(4) * (lanes + 3)
    return B[at].reshape(-1).view(np.int32)


def dot(zero=0):
    products = (B4.astype(np.int64) - zero) * J.view(np.int8).reshape(-1, 4)
    return (I + products.sum(axis=1)).astype(np.int32)


def pairs(y, _):
    """A float plus two products of any two bf16: three roundings of the largest of them at most, and what is subnormal may be 0. Where their
    order decides on what is not finite, any of these."""
    a, b = ((v.view(np.uint16).astype(np.uint32) << 16).view(F32).astype(F64).reshape(-1, 2) for v in (B, J))
    with np.errstate(invalid="ignore", over="ignore"):
        parts = np.concatenate([X[:N, None].astype(F64), a * b], axis=1)
        want, size = parts.sum(axis=1), np.abs(parts).sum(axis=1)
        flushed = np.abs(np.where((np.abs(a) < 2.0**-126) | (np.abs(b) < 2.0**-126), a * b, 0)).sum(axis=1)
        close = np.abs(y - want) <= 2.0**-22 * size + 2.0**-120 + flushed
    beyond = size > 2.0**127
    nothing = np.isnan(parts).any(axis=1)
    return np.where(nothing, np.isnan(y), close | (beyond & ~np.isfinite(y)) | (np.isnan(want) & np.isnan(y))), want, None


def wide_integers(lanes):
    """I by turns times 4099, one vector and the next, as far as 2^30."""
    k, _ = groups(lanes)
    wide = I.astype(np.int64).reshape(-1, lanes) * np.where(k % 2, 4099, 1)[:, None]
    return np.clip(wide, -(1 << 30), 1 << 30).reshape(-1)


def where_true():
    return (B[:N] != 0).astype(F32)


def larger(function):
    """NaN if either is; zeros by any sign"""
    want = np.where(np.isnan(X) | np.isnan(Y), np.float32(np.nan), function(X, Y))
    return lambda y, lanes: same(y + np.float32(0), want + np.float32(0))


def larger_known(function):
    """the same where x is a number"""
    want = np.where(np.isnan(Y), np.float32(np.nan), function(X, Y))
    return lambda y, lanes: same(y + np.float32(0), want + np.float32(0), ~np.isnan(X))


def fma_exact():
    """Rounded once: where the sum of the product and z is exact in x87's significands."""
    exact = X.astype(F64).astype(LONG) * Y.astype(F64).astype(LONG) + Z.astype(F64).astype(LONG)
    product = X.astype(F64) * Y.astype(F64)
    spread = np.abs(np.frexp(product)[1] - np.frexp(Z.astype(F64))[1])
    settled = np.isfinite(product) & np.isfinite(Z) & (spread < 12)
    expect(settled.sum() > 64, "few sums")
    return equal(exact.astype(F32), settled | np.isnan(product + Z))


def twice():
    """a*b + c where no instruction rounds once."""
    with np.errstate(all="ignore"):
        return equal(X * Y + Z)


def twice_or_once():
    """A product and a sum: rounded twice, or once by compilers that fuse them (gcc for aarch64)."""
    once = fma_exact()
    with np.errstate(all="ignore"):
        twice = X * Y + Z

    def check(y, lanes):
        fused, want, _ = once(y, lanes)
        return fused | same(y, twice)[0], twice, None
    return check


def floormod(a, b):
    r = np.fmod(a, b)
    return np.where(r == 0, np.copysign(0, b), np.where((r < 0) != (b < 0), r + b, r))


def tf32(x):
    """10 bits of mantissa, half away from zero."""
    return np.where(np.isnan(x), x, ((x.view(np.uint32) + 0x1000) & 0xffffe000).view(F32))


U8, I8 = np.dtype(np.uint8), np.dtype(np.int8)
whole_n = lambda k, lanes: 1 + k % (lanes - 1)      # noqa: E731
WANT = {   # by the name without its type: functions of vectors, then those of scalars
    "load": equal(X), "store": equal(X), "splat": equal(lambda n: np.repeat(X[::n], n)),
    "load_i8": equal(SIGNED[:N].astype(F32)), "load_u8": equal(B[:N].astype(F32)),
    "load_f16": equal(H.view(np.float16).astype(F32)), "load_bool": equal(where_true()),
    "load_bf16": equal(H.view(ml_dtypes.bfloat16).astype(F32)),
    "store_f16": narrow(f16_bits, np.float16), "store_bf16": narrow(bf16_bits, ml_dtypes.bfloat16),
    "round_f16": equal(X.astype(np.float16).astype(F32)), "round_bf16": equal(X.astype(ml_dtypes.bfloat16).astype(F32)),
    "load_tf32": equal(X), "store_tf32": equal(tf32(X)), "round_tf32": equal(tf32(X)),
    "store_apart_tf32": equal(store_apart(tf32(X), F32)),
    "load_part": equal(rows_part(whole_n)), "store_part": equal(rows_part(whole_n)),
    "load_apart": equal(load_apart), "store_apart": equal(store_apart(X, F32)),
    "store_apart_f16": narrow_apart(f16_bits, np.float16),
    "store_apart_bf16": narrow_apart(bf16_bits, ml_dtypes.bfloat16),
    "store_u8": bytes_at_once(U8), "store_i8": bytes_at_once(I8),
    "store_number_u8": bytes_at_once(U8, number=True),
    "store_nearest_u8": bytes_at_once(U8, True), "store_nearest_i8": bytes_at_once(I8, True),
    "store_apart_u8": bytes_apart(U8, False), "store_apart_i8": bytes_apart(I8, False),
    "store_apart_nearest_u8": bytes_apart(U8, True), "store_apart_nearest_i8": bytes_apart(I8, True),
    "less": equal((X < Y).astype(F32)), "equal": equal((X == Y).astype(F32)), "differ": equal((X != Y).astype(F32)),
    "not": equal(1 - where_true()), "from_bool": equal(where_true()),
    "splat_mask": equal(lambda n: np.repeat((B[:N:n] % 2).astype(F32), n)),
    "select": equal(np.where(B[:N] != 0, X, Y)), "abs": equal(np.abs(X)), "copysign": equal(np.copysign(X, Y)),
    "higher": larger_known(np.maximum), "lower": larger_known(np.minimum),
    "max": larger(np.maximum), "min": larger(np.minimum), "fma": fma_exact(),
    "floor": equal(np.floor(X)), "ceil": equal(np.ceil(X)), "trunc": equal(np.trunc(X)), "round": equal(np.rint(X)),
    "turn": equal(turned), "evens": equal(crossed(0)), "odds": equal(crossed(1)),
    "half": lambda y, lanes: same(y[:N // 2], X.reshape(-1, 2, 8)[:, 0].reshape(-1)),
    "sum": folded(np_sum, 1e-6), "product": folded(lambda rows: rows.prod(axis=1), 2e-6),
    "largest": folded(lambda rows: rows.max(axis=1)), "smallest": folded(lambda rows: rows.min(axis=1)),
    "sqrt": within("Sqrt", X), "exp": within("Exp", X), "log": within("Log", X), "tanh": within("Tanh", X),
    "erf": within("Erf", X),
    # 1 + e^-x, whose reciprocal is the sigmoid
    "exp1": lambda y, lanes: within("Sigmoid", X, normal_only=True)((1 / y).astype(F32), lanes),
    "i32:load": equal(I), "i32:store": equal(I), "i32:splat": equal(lambda n: np.repeat(I[::n], n)),
    "i32:load_bytes": equal(B.view(np.int32)), "i32:store_bytes": equal(I),
    "i32:load_i8": equal(SIGNED[:N].astype(np.int32)), "i32:load_u8": equal(B[:N].astype(np.int32)),
    "i32:store_apart": equal(store_apart(I, np.dtype(np.int32))), "i32:load_groups": equal(load_groups),
    "i32:lookup": equal(looked_up(B)), "i32:lookup_i8": equal(looked_up(SIGNED.astype(np.int64) + 128)),
    "i32:dot": equal(dot()), "i32:dot_vnni": equal(dot()), "i32:dot_mixed": equal(dot()),
    "i32:less": equal((I < J).astype(F32)), "i32:equal": equal((I == J).astype(F32)),
    "i32:differ": equal((I != J).astype(F32)), "i32:max": equal(np.maximum(I, J)), "i32:min": equal(np.minimum(I, J)),
    "i32:select": equal(np.where(B[:N] != 0, I, J)), "i32:lanes": equal(lambda n: np.arange(N) % n),
    "i32:narrow_f32": equal(np.clip(np.trunc(np.where(np.isnan(X), 0, X)), -(1 << 20), 1 << 20)),
    "i32:narrow_i64": equal(wide_integers), "i32:narrow_apart_i64": equal(wide_integers),
    "gather": equal(X[B[:N]]), "gather_where": equal(np.where(B[:N] != 0, X[B[:N]], Y)),
    "ramp": equal(lambda n: (np.repeat(X[::n], n) + (np.arange(N) % n).astype(F32)).astype(F32)),
    "i32:dot_centered": equal(dot(128)), "dot_bf16": pairs, "dot_pairs": pairs, "from_i32": equal(I.astype(F32)),
}
for kind, a, b in (("f32", X, Y), ("f64", D, E)):
    dtype = a.dtype
    for op in ("Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cos", "Cosh", "Erf", "Exp", "Log", "Sin", "Sinh", "Sqrt",
               "Tan", "Tanh"):
        WANT[f"{op.lower()}_{kind}"] = within(op, a)
    wide = a.astype(F64).astype(LONG), b.astype(F64).astype(LONG)
    WANT.update({
        f"is_nan_{kind}": lambda y, lanes, a=a: same(y[:N], np.isnan(a)),
        f"floor_{kind}": equal(np.floor(a)), f"ceil_{kind}": equal(np.ceil(a)),
        f"trunc_{kind}": equal(np.trunc(a)), f"round_{kind}": equal(np.rint(a)),
        f"mod_{kind}": equal(np.fmod(a, b)), f"floormod_{kind}": equal(floormod(a.astype(F64), b.astype(F64)).astype(dtype)),
        f"atan2_{kind}": relative(np.arctan2(*wide).astype(dtype), 4 * float(ml_dtypes.finfo(dtype).eps)),
        f"pow_{kind}": relative(np.power(*wide).astype(dtype), 2e-13 if kind == "f64" else 1.2e-7),
    })
# of the product with log(2) half an ulp, up to 150 of them
with np.errstate(over="ignore"):
    WANT["exp2_f32"] = relative(np.exp2(X.astype(LONG)).astype(F32), 150 * 0.7 * 2.0**-23)
WANT["mul_add_f32"] = twice_or_once()
WANT["log1p_f64"] = relative(np.log1p(D.astype(LONG)).astype(F64), 1e-15)
WANT["expm1_f64"] = relative(np.expm1(D.astype(LONG)).astype(F64), 2e-15)


def wanted(name):
    stem = re.sub(r"_[fi]32x\d+$", "", name)
    for key in (name, ("i32:" if "_i32x" in name else "") + stem):
        if key in WANT:
            return WANT[key]
    expect(False, f"{name}: nothing says what it should give")


def check(records, fused):
    wrong = []
    for name, y in records.items():
        expected = wanted(name) if fused or not name.startswith("fma_") else twice()
        good, want, error = expected(y, lanes_of(name))
        good = np.asarray(good)
        if not good.all():
            k = int(np.flatnonzero(~good)[0])
            more = f", off by up to {float(np.max(error)):.2f} ulp" if error is not None else ""
            wrong.append(f"{name}: {int((~good).sum())} of {good.size} wrong{more}; element {k} is "
                         f"{np.asarray(y).reshape(-1)[k]!r}, should be {np.asarray(want).reshape(-1)[k]!r}")
    expect(not wrong, "\n".join(wrong))


# ------------------------------------------------------------------------------------- the builds

CPU = set(Path("/proc/cpuinfo").read_text().split()) if Path("/proc/cpuinfo").exists() else set()
FLAG = {"avx2": "fma", "avx512": "avx512dq", "avx512vnni": "avx512_vnni", "avx512bf16": "avx512_bf16"}
X86 = ("generic", "avx2", "avx512", "avx512vnni", "avx512bf16")
ARM = ("generic", "neon", "neondot", "neoni8mm", "neonbf16")
EMULATOR = "qemu-aarch64"


def parse_records(data, sets):
    found, at = {}, 0
    while at < len(data):
        name = data[at:at + 32].rstrip(b"\0").decode()
        size = struct.unpack_from("<Q", data, at + 32)[0]
        signature = SIGNATURES[name]
        found[name] = np.frombuffer(data, RESULT[LOOPS[signature][0]], offset=at + 40,
                                    count=size // RESULT[LOOPS[signature][0]].itemsize)
        at += 40 + size
    missing = {n for isa in sets for n in functions_of(isa)} - set(found)
    expect(not missing, f"no results of {sorted(missing)}")
    return found


SIGNATURES = {name: s for isa in SETS for name, s in functions_of(isa).items()}
WRITING = threading.Lock()


def input_file():
    path = SCRATCH / "in.bin"
    with WRITING:
        if not path.exists():
            path.write_bytes(b"".join(IN[n].tobytes() for n in "xyzdeijhb"))
    return path


def build(sets, compiler, flags):
    if not shutil.which(compiler):
        raise Skip(f"no {compiler} here")
    runner = ()
    if "simd128" in sets:
        foreign.need_wasi()
        runner = foreign.wasi()
    emulated = "neon" in sets
    if emulated and not shutil.which(EMULATOR):
        raise Skip(f"no {EMULATOR} here")
    folder = T.scratch(SCRATCH / "-".join([compiler, *flags]).replace("=", "-"))
    (folder / "vectors.c").write_text(source(sets))
    T.must(T.run([compiler, *flags, f"-DN={N}", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function",
                  *(["-static"] if emulated else []), "vectors.c", "-o", "vectors", "-lm"], cwd=folder))
    done = T.must(T.run([*([EMULATOR, "-cpu", "max"] if emulated else runner), folder / "vectors", input_file()]))
    check(parse_records(done.out, sets), "simd128" not in sets)
    shutil.rmtree(folder)


def lacks(isa):
    raise Skip(f"this processor has no {isa}")


x86 = T.run(["uname", "-m"]).out.strip() == b"x86_64"
here = [isa for isa in X86 if isa == "generic" or x86 and FLAG[isa] in CPU]
for isa in X86:
    if isa not in here:
        suite.add(f"{isa}, by every compiler", lacks, isa)
CPP = ["-std=c++17", "-x", "c++"]
ARM_TARGET = "--target=aarch64-linux-gnu"
for sets, compiler, more, quick in (
        (here, "gcc", [], ("-O0", "-O2")), (here, "clang", [], ("-O3",)), (here, "clang-19", [], ("-O2",)),
        (here, "g++", CPP, ("-O2",)), (here, "clang++", CPP, ()),
        (here, "gcc-11", [], ()), (here, "clang-13", [], ()), (here, "clang-15", [], ()),
        (here, "clang-16", [], ()), (ARM, "aarch64-linux-gnu-gcc", [], ("-O2", "-O3")),
        (ARM, "clang-19", [ARM_TARGET], ("-O0", "-O2")), (ARM, "clang", [ARM_TARGET], ()),
        (ARM, "clang-16", [ARM_TARGET], ()),
        (("simd128",), "clang-19", ["--target=wasm32-wasi", "-msimd128"], ("-O2",))):
    # Quick: C++ is another parser alone; -O2 does all that -O1 does; of either processor each compiler has a level, and each level a compiler.
    for level in ("-O0", "-O1", "-O2", "-O3"):
        suite.add(f"{', '.join(sets)} by {' '.join([compiler, *more, level])}", build, sets, compiler,
                  [*more, level], slow=level not in quick)


@suite.case("every function of the files is called")
def called():
    files = {file for file, *_ in SETS.values()} | {"vector_math"}
    for name, (file, _, code) in PIECES.items():
        name = name.removeprefix(WEB)
        is_function = re.search(rf"^(?:static|extern).*\b{name}\(", code, re.M)
        if file in files and is_function and name not in HELPERS:
            expect(name in SIGNATURES, f"{name} is called by no instruction set's program")
            wanted(name)


if __name__ == "__main__":
    suite.main()
