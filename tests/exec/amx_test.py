"""Products of tiles of bytes and of bf16 (AMX): by the processor, where it has them. On any machine with AVX-512, VNNI and BF16: emitted programs run with
tests/lib/amx_model.h, which is what the instructions do and which stops where the processor would; the instructions themselves, where the processor has none, by amx_trap.c, which does
what it traps. Results are those of integers, and the same bits as without tiles.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "lib")]

import numpy as np
import onnx
from onnx import TensorProto

import graphs as G
import tgc as T
from suite import Skip, Suite, expect

suite = Suite("amx")
OPTIONS = suite.parse()
TGC = T.find_tgc(OPTIONS.build).resolve()
SCRATCH = T.scratch(Path(OPTIONS.build).resolve() / "test-scratch" / "amx")
MODEL = (f'-DTGC_AMX_MODEL="{HERE.parent / "lib" / "amx_model.h"}"',)
KIND = {np.dtype(np.uint8): TensorProto.UINT8, np.dtype(np.int8): TensorProto.INT8, np.dtype(np.int32): TensorProto.INT32, np.dtype(np.float32): TensorProto.FLOAT}


def bytes_of(random, shape, dtype):
    ends = np.iinfo(dtype)
    if random.random() < 0.3:                                         # sums as large as they can be
        return random.choice([ends.min, ends.max], shape).astype(dtype)
    return random.integers(ends.min, ends.max + 1, shape).astype(dtype)


class Products:
    """A model of layers that have nothing to do with each other, and what integers make of them."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)
        self.nodes, self.weights, self.inputs, self.outputs, self.feeds, self.want = [], [], [], [], [], {}

    def input(self, array):
        name = f"x{len(self.inputs)}"
        self.inputs.append(G.value(name, list(array.shape), KIND[array.dtype]))
        self.feeds.append(array)
        return name

    def weight(self, array):
        name = f"w{len(self.weights)}"
        self.weights.append(G.weight(name, array))
        return name

    def output(self, kind, sources, want, **more):
        name = f"y{len(self.outputs)}"
        self.nodes.append(G.node(kind, sources, [name], **more))
        self.outputs.append(G.value(name, list(want.shape), KIND[want.dtype]))
        self.want[name] = want

    def matmul(self, m, k, n, signed=False, batch=(), run_time=False):
        a = bytes_of(self.random, (*batch, m, k), np.int8 if signed else np.uint8)
        b = bytes_of(self.random, (*(batch if run_time else ()), k, n), np.int8)
        zero = [bytes_of(self.random, (), a.dtype), np.int8(0 if run_time else self.random.integers(-3, 4))]
        want = (a.astype(np.int64) - int(zero[0])) @ (b.astype(np.int64) - int(zero[1]))
        self.output("MatMulInteger", [self.input(a), self.input(b) if run_time else self.weight(b), *map(self.weight, zero)],
                    want.astype(np.int32))

    def conv(self, channels, out, size, kernel, stride=1):
        x = bytes_of(self.random, (1, channels, size, size), np.uint8)
        w = bytes_of(self.random, (out, channels, kernel, kernel), np.int8)
        zero, pad = np.uint8(117), kernel // 2
        wide = np.pad(x.astype(np.int64) - int(zero), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
        windows = np.lib.stride_tricks.sliding_window_view(wide, (kernel, kernel), (2, 3))[:, :, ::stride, ::stride]
        self.output("ConvInteger", [self.input(x), self.weight(w), self.weight(zero)],
                    np.einsum("nchwij,ocij->nohw", windows, w.astype(np.int64)).astype(np.int32), pads=[pad] * 4, strides=[stride] * 2)

    def halves(self, *shape):
        """Integers that bf16 holds, whose sums f32 holds, in whatever order."""
        return self.random.integers(-31, 32, shape).astype(np.float32)

    def matmul_halves(self, m, k, n):
        a, b = self.halves(m, k), self.halves(k, n)
        self.output("MatMul", [self.input(a), self.weight(b)], a @ b)

    def conv_halves(self, channels, out, size, kernel, stride=1):
        x, w, pad = self.halves(1, channels, size, size), self.halves(out, channels, kernel, kernel), kernel // 2
        wide = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
        windows = np.lib.stride_tricks.sliding_window_view(wide, (kernel, kernel), (2, 3))[:, :, ::stride, ::stride]
        self.output("Conv", [self.input(x), self.weight(w)], np.einsum("nchwij,ocij->nohw", windows, w), pads=[pad] * 4, strides=[stride] * 2)

    def save(self, path):
        onnx.save(G.model(self.nodes, self.inputs, self.outputs, self.weights), path)


def build(folder, products, *options, flags=(T.LEVEL,), cpu="amx"):
    products.save(folder / "model.onnx")
    T.emit(TGC, folder / "model.onnx", folder / "net.c", f"--cpu={cpu}", *options)
    T.build(folder / "net.c", folder / "net", flags=(*flags, *MODEL), main_by=TGC)
    return (folder / "net.c").read_text()


def agrees(folder, products, *arguments):
    have = T.Program(folder / "net", list(products.want)).run(products.feeds)
    for name, want in products.want.items():
        T.compare(name, have[name], want, 0, 0)


def needs_vectors():
    flags = Path("/proc/cpuinfo")
    if not flags.exists() or "avx512_bf16" not in flags.read_text():
        raise Skip("this processor lacks AVX-512 with VNNI and BF16, which the rest of the kernels needs")


SIZES = [(16, 64, 16), (32, 64, 32), (32, 128, 64), (33, 64, 48), (17, 68, 32), (70, 60, 70), (15, 64, 17), (31, 256, 33), (64, 40, 64),
         (2, 256, 32), (3, 512, 16), (1, 64, 64), (49, 96, 64), (50, 1024, 16), (5, 63, 32), (20, 44, 32), (16, 4, 16), (16, 8, 16)]


def odd_sizes(seed, count):
    random = np.random.default_rng(seed)
    near = [16, 32, 48, 64]
    def one():
        return int(random.integers(1, 71)) if random.random() < 0.5 else max(1, int(random.choice(near) + random.integers(-1, 2)))
    return [(one(), one() * int(random.choice([1, 4])), one()) for _ in range(count)]


def matmuls(name, sizes, *options, flags=(T.LEVEL,), **more):
    needs_vectors()
    products = Products(len(name))
    for i, size in enumerate(sizes):
        products.matmul(*size, signed=i % 3 == 1, **more)
    folder = T.scratch(SCRATCH / name)
    text = build(folder, products, *options, flags=flags)
    agrees(folder, products)
    return text


@suite.case("products with weights, of sizes around those of tiles")
def weights():
    text = matmuls("weights", SIZES)
    taken = len(re.findall(r"begin_tiles\(shape", text))
    expect(taken >= 12, f"only {taken} kernels have tiles")


@suite.case("whatever tiles a tune file asks for, and none")
def tuned():
    needs_vectors()
    products = Products(11)
    products.matmul(70, 256, 48)
    folder = T.scratch(SCRATCH / "tuned")
    products.save(folder / "model.onnx")
    choices = T.info(TGC, folder / "model.onnx", "--why", "--cpu=amx")["choices"]
    lines = [line for c in choices if " isa=amx" in c["taken"] for line in c["candidates"]]
    with_tiles = [line for line in lines if "fragment" in line]
    expect(len(with_tiles) >= 3 and len(lines) > len(with_tiles), f"candidates: {lines}")
    texts = set()
    for line in [*with_tiles, next(line for line in lines if "fragment" not in line)]:
        (folder / "one.tune").write_text(f"tgc-tune 3\n{line}\n")
        texts.add(build(folder, products, "--tune", folder / "one.tune"))
        agrees(folder, products)
    # the panels' order may be said before the weights are packed, or behind: that is one program
    expect(len(texts) >= 4, f"{len(texts)} programs of {len(with_tiles) + 1} lists")
    other = with_tiles[0].replace("isa=amx", "isa=avx512")
    (folder / "one.tune").write_text(f"tgc-tune 3\n{other}\n")
    refused = T.run([TGC, folder / "model.onnx", "-o", folder / "net.c", "--cpu=amx", "--tune", folder / "one.tune"])
    expect(refused.status == 1 and "one.tune:2" in refused.err, refused.err)


@suite.case("products with weights, of any sizes")
def any_sizes():
    matmuls("any", odd_sizes(5, 40))


@suite.case("products of two values of the run, and of batches")
def run_time():
    text = matmuls("values", [(32, 64, 32), (17, 64, 16), (48, 128, 64), (33, 36, 48)], batch=(2,), run_time=True)
    expect("tile_dot(" in text, "no tiles")
    matmuls("batches", [(32, 64, 32), (17, 64, 48)], batch=(3,))


@suite.case("convolutions")
def convolutions():
    needs_vectors()
    products = Products(3)
    for size in ((16, 32, 12, 3), (64, 16, 7, 1), (32, 48, 9, 3, 2), (64, 64, 16, 1), (20, 32, 10, 3), (128, 32, 5, 3)):
        products.conv(*size)
    folder = T.scratch(SCRATCH / "conv")
    text = build(folder, products)
    agrees(folder, products)
    expect(len(re.findall(r"begin_tiles\(shape", text)) >= 4, "few convolutions have tiles")


def some_halves(seed, sizes):
    products = Products(seed)
    for m, k, n in sizes:
        products.matmul_halves(m, k, n)
    for size in ((16, 32, 12, 3), (64, 16, 7, 1), (32, 48, 9, 3, 2), (6, 32, 10, 3)):
        products.conv_halves(*size)
    return products


@suite.case("products of bf16, and convolutions")
def halves():
    needs_vectors()
    products, folder = some_halves(31, SIZES), T.scratch(SCRATCH / "halves")
    text = build(folder, products, "--math=bf16")
    agrees(folder, products)
    taken = len(re.findall(r"begin_tiles\(shape", text))
    expect(taken >= 12 and "tile_dot_bf16(" in text, f"only {taken} kernels have tiles")
    text = build(folder, products, "--math=bf16", cpu="auto")
    agrees(folder, products)
    expect("tile_dot_bf16(0, " in text, "no tiles")


@suite.case("products of bf16, of any sizes, sanitized")
def any_halves():
    needs_vectors()
    products, folder = some_halves(32, odd_sizes(6, 20)), T.scratch(SCRATCH / "any-halves")
    build(folder, products, "--math=bf16", flags=(T.LEVEL, "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"))
    agrees(folder, products)


@suite.case("two threads")
def threads():
    matmuls("threads", [(256, 512, 512), (33, 64, 48), (128, 768, 96)], "--threads", "2")


@suite.case("sanitized")
def sanitized():
    matmuls("sanitized", SIZES[:12], flags=(T.LEVEL, "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"))


@suite.case("the model stops at what the processor refuses")
def refused():
    folder = T.scratch(SCRATCH / "refused")
    begin = "const unsigned char s[16] = {16, 64, 16, 64, 16, 64, 8, 64};\nstatic unsigned char m[1024];\nbegin_tiles(s);\n"
    for number, (body, why) in enumerate((
            ("zero_tile(0);", "not configured"), (begin + "zero_tile(4);", "not configured"),
            (begin + begin.split("\n")[2], "configured twice"), (begin + "end_tiles(); end_tiles();", "released twice"),
            ("const unsigned char s[16] = {17, 64}; begin_tiles(s);", "more rows or bytes"),
            ("const unsigned char s[16] = {16, 68}; begin_tiles(s);", "more rows or bytes"),
            (begin + "store_tile(0, m, 64);", "nothing was stored"),
            (begin + "zero_tile(0); load_tile(1, m, 64); tile_dot(0, 1, 1);", "one register"),
            (begin + "zero_tile(0); load_tile(1, m, 64); load_tile(3, m, 64); tile_dot(0, 1, 3);", "shapes do not match"))):
        source = folder / f"wrong{number}.c"
        source.write_text(f"#include TGC_AMX_MODEL\nint main(void)\n{{\n{body}\nreturn 0;\n}}\n")
        T.must(T.run(["gcc", "-std=c11", "-Wno-unused-function", MODEL[0], source, "-o", folder / "wrong"]))
        done = subprocess.run([folder / "wrong"], capture_output=True)
        expect(done.returncode != 0 and why in done.stderr.decode(), f"{body}: {done.returncode}, {done.stderr.decode()}")


def assembly(compiler, source, *flags):
    objects = source.with_suffix(f".{compiler}.o")
    T.must(T.run([compiler, "-std=c11", "-O2", "-c", *flags, source, "-o", objects]))
    text = T.must(T.run(["objdump", "-d", "--no-show-raw-insn", objects])).out.decode()
    return dict(re.findall(r"<(\w+_amx)>:\n(.*?)(?=\n\n|\Z)", text, re.S))


@suite.case("compilers keep tiles in registers; configure once, release at the end")
def compiled():
    folder = T.scratch(SCRATCH / "assembly")
    products = Products(7)
    products.matmul(64, 256, 128)
    products.save(folder / "model.onnx")
    T.emit(TGC, folder / "model.onnx", folder / "net.c", "--cpu=amx")
    compilers = [name for name in ("gcc", "clang-14", "clang-19") if shutil.which(name)]
    for compiler in compilers:
        kernels = assembly(compiler, folder / "net.c")
        expect(len(kernels) == 1, f"{compiler}: kernels {list(kernels)}")
        body = next(iter(kernels.values()))
        count = {word: len(re.findall(rf"\b{word}\b", body)) for word in
                 ("ldtilecfg", "tilerelease", "tdpbusd", "tileloadd", "tilestored", "tilezero")}
        expect(count["ldtilecfg"] == 1 and count["tilerelease"] == len(re.findall(r"\bret\b", body)), f"{compiler}: {count}")
        inner = re.findall(r"tileloadd.*?\n.*?tdpbusd", body, re.S)
        expect(inner and count["tdpbusd"] == count["tileloadd"] and count["tilestored"] == count["tilezero"],
               f"{compiler}: tiles are spilled: {count}")


def needs_traps():
    needs_vectors()
    if "amx_int8" in Path("/proc/cpuinfo").read_text():
        raise Skip("this processor has AMX: nothing is trapped")


def run_by_traps(folder, products):
    """How many instructions of AMX the program ran."""
    def make(place):
        T.must(T.run(["gcc", "-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-O2", "-shared", "-fPIC", HERE / "amx_trap.c", "-o",
                      place / "trap.so"]))
        return place / "trap.so"
    environment = {"LD_PRELOAD": str(T.shared("trap", make)), "AMX_TRAPS": str(folder / "traps")}
    have = T.Program(folder / "net", list(products.want), env=environment).run(products.feeds)
    for name, want in products.want.items():
        T.compare(name, have[name], want, 0, 0)
    return int((folder / "traps").read_text())


def some_products(seed):
    products = Products(seed)
    for i, size in enumerate(SIZES[:8 if OPTIONS.all else 4]):
        products.matmul(*size, signed=i % 3 == 1)
    products.conv(64, 48, 9, 3)
    products.matmul(32, 64, 32, batch=(2,), run_time=True)
    return products


@suite.case("LLVM's objects have the instructions, and ask whether they may")
def by_llvm():
    needs_traps()
    T.need_llvm(TGC)
    products, folder = some_products(21), T.scratch(SCRATCH / "llvm")
    products.save(folder / "model.onnx")
    main = T.shared("main", T.compile_main, TGC, "net", "gcc", (T.LEVEL,))
    for version, options in ((19, ["--threads=2"]), *([(14, []), (16, [])] if OPTIONS.all else [])):
        if "libLLVM: none" in T.must(T.run([TGC, "--version"], env={"TGC_LLVM": str(version)})).out.decode():
            continue
        T.must(T.run([TGC, folder / "model.onnx", "-o", folder / "net.o", "--target=llvm", "--triple=x86_64-linux-gnu", *options],
                     env={"TGC_LLVM": str(version)}))
        for asked, least, most in (("", 0, 0), ("bool net_piece_has_amx(void);\nbool net_piece_has_amx(void) { return true; }\n", 200, 10 ** 6)):
            (folder / "asked.c").write_text(f"#include <stdbool.h>\n{asked}")
            T.must(T.run(["objcopy", *(["--weaken-symbol=net_piece_has_amx"] if asked else []), "net.o", "linked.o"], cwd=folder))
            T.must(T.run(["gcc", "-no-pie", "linked.o", "asked.c", main, "-o", "net", "-lm", "-lpthread"], cwd=folder))
            count = run_by_traps(folder, products)
            expect(least <= count <= most, f"LLVM {version}: {count} instructions ran")
    kernels = re.findall(r"<((?!net_piece)\w+_amx)>:\n(.*?)(?=\n\n|\Z)", T.must(T.run(["objdump", "-d", folder / "net.o"])).out.decode(), re.S)
    expect(len(kernels) >= 4, f"{len(kernels)} kernels")
    for name, body in kernels:
        expect(len(re.findall("ldtilecfg", body)) == 1 and len(re.findall("tilerelease", body)) == len(re.findall(r"\bret\b", body)), f"{name}")


@suite.case("where nobody can ask for the registers, LLVM's code has none")
def not_by_llvm():
    T.need_llvm(TGC)
    products, folder = Products(22), T.scratch(SCRATCH / "text")
    products.matmul(32, 128, 64)
    products.save(folder / "model.onnx")
    for words in (["--emit=s"], ["--emit=ll"], ["--emit=s", "--cpu=amx"], ["--emit=s", "--cpu=sapphirerapids"]):
        text = T.must(T.run([TGC, folder / "model.onnx", "-o", "-", "--target=llvm", "--triple=x86_64-linux-gnu", *words])).out.decode()
        expect("vpdpbusd" in text and "tdpbusd" not in text and "has_amx" not in text, f"{words}: tiles")


@suite.case("compilers' own instructions compute what the model does")
def by_instructions():
    needs_traps()
    products, folder = some_products(23), T.scratch(SCRATCH / "instructions")
    products.save(folder / "model.onnx")
    T.emit(TGC, folder / "model.onnx", folder / "net.c", "--cpu=amx")
    text = (folder / "net.c").read_text()
    head = "static inline bool has_amx(void)\n{"
    expect(text.count(head) == 1, "no has_amx()")
    (folder / "net.c").write_text(text.replace(head, head + "\n    if (1)\n        return true;"))
    for compiler in ("gcc", "clang") if OPTIONS.all else ("gcc",):
        T.build(folder / "net.c", folder / "net", compiler, ("-O2",), main_by=TGC)
        count = run_by_traps(folder, products)
        expect(count >= 200, f"{compiler}: {count} instructions ran")


@suite.case("bf16 by compilers' own instructions, and LLVM's")
def halves_by_instructions():
    needs_traps()
    products, folder = some_halves(33, SIZES[:4]), T.scratch(SCRATCH / "halves-instructions")
    products.save(folder / "model.onnx")
    T.emit(TGC, folder / "model.onnx", folder / "net.c", "--cpu=amx", "--math=bf16")
    text = (folder / "net.c").read_text()
    head = "static inline bool has_amx(void)\n{"
    expect(text.count(head) == 1, "no has_amx()")
    (folder / "net.c").write_text(text.replace(head, head + "\n    if (1)\n        return true;"))
    T.build(folder / "net.c", folder / "net", "gcc", ("-O2",), main_by=TGC)
    count = run_by_traps(folder, products)
    expect(count >= 100, f"{count} instructions ran")
    T.need_llvm(TGC)
    main = T.shared("main", T.compile_main, TGC, "net", "gcc", (T.LEVEL,))
    T.must(T.run([TGC, folder / "model.onnx", "-o", folder / "net.o", "--target=llvm", "--triple=x86_64-linux-gnu", "--math=bf16"]))
    (folder / "asked.c").write_text("#include <stdbool.h>\nbool net_piece_has_amx(void);\nbool net_piece_has_amx(void) { return true; }\n")
    T.must(T.run(["objcopy", "--weaken-symbol=net_piece_has_amx", "net.o", "linked.o"], cwd=folder))
    T.must(T.run(["gcc", "-no-pie", "linked.o", "asked.c", main, "-o", "net", "-lm", "-lpthread"], cwd=folder))
    count = run_by_traps(folder, products)
    expect(count >= 100, f"LLVM: {count} instructions ran")


# A program that ends without a product of tiles fails.
COUNTED = """#include <stdlib.h>
static long tile_products;
__attribute__((destructor)) static void ran_tiles(void)
{
    if (!tile_products)
        abort();
}
#define tile_dot(sum, a, b) do { tile_products++; _tile_dpbusd(sum, a, b); } while (0)
"""


@suite.case("a processor that has AMX computes what the model does, by C and LLVM")
def by_processor():
    cpuinfo = Path("/proc/cpuinfo")
    if not cpuinfo.exists() or "amx_int8" not in cpuinfo.read_text():
        raise Skip("this processor has no AMX")
    products, folder = some_products(25), T.scratch(SCRATCH / "processor")
    products.save(folder / "model.onnx")
    for options in ([], ["--cpu=native"], ["--threads=2"]):
        T.emit(TGC, folder / "model.onnx", folder / "net.c", *options)
        text = (folder / "net.c").read_text()
        line = "#define tile_dot(sum, a, b) _tile_dpbusd(sum, a, b)\n"
        expect(text.count(line) == 1, f"{options}: no kernel has tiles")
        (folder / "net.c").write_text(text.replace(line, COUNTED))
        for compiler in ("gcc", "clang"):
            T.build(folder / "net.c", folder / "net", compiler, ("-O2",), main_by=TGC)
            agrees(folder, products)
    if "libLLVM: none" in T.must(T.run([TGC, "--version"])).out.decode():
        return
    main = T.shared("main", T.compile_main, TGC, "net", "gcc", (T.LEVEL,))
    T.must(T.run([TGC, folder / "model.onnx", "-o", folder / "net.o", "--target=llvm"]))
    T.must(T.run(["gcc", "-no-pie", "net.o", main, "-o", "net", "-lm", "-lpthread"], cwd=folder))
    agrees(folder, products)
    expect("tdpbusd" in T.must(T.run(["objdump", "-d", folder / "net.o"])).out.decode(), "no tiles by LLVM")


@suite.case("where the compiler or the system has none, there are the vectors")
def absent():
    needs_vectors()
    folder = T.scratch(SCRATCH / "absent")
    products = Products(9)
    products.matmul(64, 128, 64)
    products.save(folder / "model.onnx")
    T.emit(TGC, folder / "model.onnx", folder / "net.c")
    text = (folder / "net.c").read_text()
    condition = re.search(r"\(defined TGC_AMX_MODEL .*\)\)$", text, re.M).group(0)
    (folder / "net.c").write_text(text.replace(condition, "0"))
    T.build(folder / "net.c", folder / "net", main_by=TGC)
    agrees(folder, products)
    (folder / "net.c").write_text(text.replace("static inline bool has_amx(void)\n{", "static inline bool has_amx(void)\n{\n    return false;"))
    T.build(folder / "net.c", folder / "net", main_by=TGC)
    agrees(folder, products)


suite.main()
