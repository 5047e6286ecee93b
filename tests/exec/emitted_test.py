"""The emitted file as a C programmer meets it: its interface, its linkage, its discipline.

What a kernel computes is tested elsewhere; here one small model, with a run-time batch, is
compiled once and its C is held to what the project promises of every emitted file.
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
import tgc as T
from suite import Failure, Skip, Suite, expect

suite = Suite("emitted")
OPTIONS = suite.parse()
TGC = T.find_tgc(OPTIONS.build).resolve()
SCRATCH = T.scratch(Path(OPTIONS.build).resolve() / "test-scratch" / "exec")
WARNINGS = T.WARNINGS


def batched():
    model = G.perceptron()
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    return model


def varied():
    """Most of what a file can carry: convolution, pooling, softmax, integers, two outputs."""
    random = np.random.default_rng(8)
    w = random.standard_normal((6, 3, 3, 3)).astype(np.float32) * 0.3
    return G.model(
        [G.node("Conv", ["image", "w"], ["c"], name="conv", pads=[1, 1, 1, 1]),
         G.node("Relu", ["c"], ["r"], name="relu"),
         G.node("MaxPool", ["r"], ["p"], name="pool", kernel_shape=[2, 2], strides=[2, 2]),
         G.node("GlobalAveragePool", ["p"], ["g"], name="average"),
         G.node("Flatten", ["g"], ["f"], name="flat"),
         G.node("Softmax", ["f"], ["probabilities"], name="softmax", axis=1),
         G.node("ArgMax", ["f"], ["class"], name="best", axis=1, keepdims=0)],
        [G.value("image", [1, 3, 12, 12])],
        [G.value("probabilities", [1, 6]), G.value("class", [1], onnx.TensorProto.INT64)],
        [G.weight("w", w)])


def rests():
    """Sizes that vectors do not divide: parts of vectors, lanes apart, small weights, folds."""
    random = np.random.default_rng(10)
    floats = lambda *shape: (random.standard_normal(shape) * 0.3).astype(np.float32)
    small = random.integers(-100, 100, (214, 97)).astype(np.int8)
    return G.model(
        [G.node("Conv", ["x", "w"], ["c"], name="conv"),
         G.node("Tanh", ["c"], ["t"], name="tanh"),
         G.node("Reshape", ["t", "shape"], ["rows"], name="rows"),
         G.node("Gemm", ["rows", "v"], ["g"], name="gemm", transB=1),
         G.node("DequantizeLinear", ["small", "scale"], ["wide"], name="wide", axis=1),
         G.node("MatMul", ["g", "wide"], ["m"], name="matmul"),
         G.node("LayerNormalization", ["m", "gain"], ["n"], name="norm"),
         G.node("Softmax", ["n"], ["y"], name="softmax", axis=1)],
        [G.value("x", [1, 5, 9, 13])], [G.value("y", [12, 97]), G.value("t", [1, 12, 7, 11])],
        [G.weight("w", floats(12, 5, 3, 3)), G.weight("v", floats(214, 77)),
         G.weight("shape", np.array([12, 77])), G.weight("small", small),
         G.weight("scale", np.abs(floats(97)) / 64), G.weight("gain", floats(97))])


def keys():
    """Attention over 37 keys: they are packed and padded in scratch."""
    return G.model(
        [G.node("Transpose", ["k"], ["t"], name="turn", perm=[0, 2, 1]),
         G.node("MatMul", ["q", "t"], ["s"], name="scores"),
         G.node("Softmax", ["s"], ["p"], name="softmax", axis=2),
         G.node("MatMul", ["p", "v"], ["y"], name="mix")],
        [G.value("q", [2, 9, 8]), G.value("k", [2, 37, 8]), G.value("v", [2, 37, 6])],
        [G.value("y", [2, 9, 6])], [])


def halves():
    """Channels that are vectors of 16 and half of one, with all that layers do behind their sums."""
    random = np.random.default_rng(11)
    floats = lambda *shape: (random.standard_normal(shape) * 0.3).astype(np.float32)
    return G.model(
        [G.node("Conv", ["x", "a", "b"], ["wide"], name="wide"),
         G.node("Sigmoid", ["wide"], ["gate"], name="gate"),
         G.node("Mul", ["wide", "gate"], ["h"], name="swish"),
         G.node("Conv", ["h", "d"], ["deep"], name="deep", pads=[1, 1, 1, 1], group=40),
         G.node("Clip", ["deep", "least", "most"], ["r"], name="clip"),
         G.node("Conv", ["r", "c"], ["back"], name="back"),
         G.node("Add", ["back", "x"], ["sum"], name="add"),
         G.node("Transpose", ["sum"], ["y"], name="last", perm=[0, 2, 3, 1])],
        [G.value("x", [1, 24, 9, 11])], [G.value("y", [1, 9, 11, 24])],
        [G.weight("a", floats(40, 24, 1, 1)), G.weight("b", floats(40)),
         G.weight("d", floats(40, 1, 3, 3)), G.weight("c", floats(24, 40, 1, 1)),
         G.weight("least", np.float32(0)), G.weight("most", np.float32(0.5))])


def emit(name, model, *options):
    folder = SCRATCH / name
    if not (folder / "net.c").exists():
        T.scratch(folder)
        onnx.save(model, folder / "model.onnx")
        T.emit(TGC, folder / "model.onnx", folder / "net.c", *options)
    return folder


def net():
    return emit("net", batched(), "--dim", "batch<=4")


def compile_with(folder, compiler, *flags):
    return T.must(T.run([compiler, *flags], cwd=folder, timeout=300))


def program(folder, source, compiler, *flags):
    exe = f"{Path(source).stem}-{compiler}{''.join(flags).replace('=', '').replace(',', '')}"
    compile_with(folder, compiler, *WARNINGS, *flags, f"-I{folder}", source, "net.c", "-o", exe,
                 "-lm", "-lpthread")
    return folder / exe


for compiler in ("gcc", "clang"):
    for flags in (("-O2",), T.SANITIZE):
        suite.add(f"misuse is a status ({compiler} {flags[-1]})",
                  lambda c=compiler, f=flags: T.must(T.run([program(NET, HERE / "driver.c",
                                                                    c, *f)])))


@suite.case("a report of a sanitizer ends the program")
def reports():
    folder = T.scratch(SCRATCH / "reports")
    (folder / "wrong.c").write_text("""
#include <limits.h>
#include <stdlib.h>
int main(int argc, char **argv)
{
    char *volatile heap = calloc(4, 1);
    volatile int sum = INT_MAX;
    if (argv[argc - 1][0] == 'o')
        sum += argc;
    else
        free(heap);
    return heap[0];
}
""")
    for compiler in ("gcc", "clang"):
        compile_with(folder, compiler, *T.SANITIZE, "wrong.c", "-o", "wrong")
        for word, report in (("overflow", "signed integer overflow"),
                             ("freed", "heap-use-after-free")):
            done = T.run([folder / "wrong", word])
            expect(done.status != 0 and report in done.err, f"{compiler}: {done.describe()}")


@suite.case("two contexts in two threads do not race")
def threads():
    T.must(T.run([program(NET, HERE / "race.c", "clang", "-g", "-O1", "-fsanitize=thread")]))


@suite.case("the header is C99 and C++17")
def header():
    (NET / "only.c").write_text('#include "net.h"\nint used;\n')
    for standard, compiler in (("c99", "gcc"), ("c99", "clang"), ("c11", "gcc"),
                               ("c++17", "g++"), ("c++17", "clang++")):
        language = "c++" if "++" in standard else "c"
        compile_with(NET, compiler, f"-std={standard}", "-Wall", "-Wextra", "-pedantic", "-Werror",
                     "-fsyntax-only", "-x", language, "only.c")


@suite.case("the C file is C++17 too")
def as_cpp():
    for model in MODELS:
        for compiler in ("g++", "clang++"):
            compile_with(model, compiler, "-std=c++17", "-Wall", "-Wextra", "-Werror",
                         "-Wno-deprecated", "-fsyntax-only", "-x", "c++", "net.c")


@suite.case("the file compiles without a warning, alone and at every level")
def warnings():
    for number, model in enumerate(MODELS):
        for turn, level in enumerate(("-O0", "-O2", "-O3", "-Os"), number):
            for compiler in ("gcc", "clang") if OPTIONS.all else (("gcc", "clang")[turn % 2],):        # in turn in the quick form
                compile_with(model, compiler, *WARNINGS, level, "-c", "net.c", "-o", "net.o")


@suite.case("half precision is stored without a warning, though intrinsics are macros at -O0")
def stored_halves():
    folder = emit("stored-halves", G.model(
        [G.node("Relu", ["x"], ["r"]),
         G.node("Cast", ["r"], ["y"], to=onnx.TensorProto.FLOAT16)],
        [G.value("x", [4, 64])], [G.value("y", [4, 64], onnx.TensorProto.FLOAT16)], []))
    expect("store_f16_f32x16" in (folder / "net.c").read_text(), "no vector of them is stored")
    for compiler in ("gcc", "clang"):
        compile_with(folder, compiler, *WARNINGS, "-O0", "-c", "net.c", "-o", "net.o")


@suite.case("a newer compiler, which has #embed, has nothing to say either")
def newer():
    if not shutil.which("clang-19"):
        raise Skip("clang-19 is not here")
    folder = emit("newer", rests(), "--weights=incbin", "--threads=3")
    compile_with(folder, "clang-19", *WARNINGS, "-c", "net.c", "-o", "net.o")


def symbols(folder):
    # Without PIC, constants that hold addresses are constants for the linker too.
    compile_with(folder, "gcc", "-std=c11", "-O2", "-fno-pic", "-c", "net.c", "-o", "plain.o")
    lines = T.must(T.run(["nm", folder / "plain.o"])).out.decode().splitlines()
    return [line.split()[-2:] for line in lines]


@suite.case("no heap, no input or output, no mutable data")
def discipline():
    allowed = re.compile(r"(__stack_chk_fail|_GLOBAL_OFFSET_TABLE_|mem(cpy|set|move|cmp)|"
                         r"__cpu_(model|indicator_init)|(exp|log|sin|cos|tan|tanh|erf|pow|sqrt|"
                         r"floor|ceil|rint|nearbyint|round|trunc|fmod|fma|fmax|fmin|expm1|log1p|"
                         r"atan|asin|acos|sinh|cosh|asinh|acosh|atanh|exp2|log2|ldexp|lrint)f?)$")
    for model in MODELS:
        for kind, name in symbols(model):
            if kind == "U":
                expect(allowed.match(name), f"it refers to {name}")
            expect(kind not in "dDbBC", f"{name} is mutable data ({kind})")
            if kind in "TRV":
                expect(name.startswith("net_"), f"it exports {name}")


@suite.case("two models link into one program")
def link():
    folder = T.scratch(SCRATCH / "link")
    onnx.save(G.perceptron(seed=1), folder / "one.onnx")
    onnx.save(varied(), folder / "two.onnx")
    for name in ("one", "two"):
        T.emit(TGC, folder / f"{name}.onnx", folder / f"{name}.c")
    (folder / "main.c").write_text("""
#include "one.h"
#include "two.h"
int main(void) { return one_describe()->input_count + two_describe()->output_count == 3 ? 0 : 1; }
""")
    compile_with(folder, "gcc", *WARNINGS, "one.c", "two.c", "main.c", "-o", "both", "-lm", "-lpthread")
    T.must(T.run([folder / "both"]))


@suite.case("the program tests itself and measures itself")
def selftest():
    for model in MODELS:
        compile_with(model, "gcc", *WARNINGS, "-O2", "-DNET_MAIN", "net.c", "-o", "program", "-lm", "-lpthread")
        for words in (["--selftest"], ["--bench", "0.1"]):
            done = T.must(T.run([model / "program", *words], timeout=60))
            expect(done.out.strip(), f"{words} says nothing")


def drawn():
    """By name: nodes, inputs, outputs, weights, options, and the integers that are drawn for each input that has some."""
    I, table = onnx.TensorProto.INT64, lambda *shape: (np.arange(np.prod(shape)).reshape(shape) % 97 / 7).astype(np.float32)
    one = lambda name, value: G.weight(name, np.array(value))
    rows = lambda n, index="i": ([G.node("Gather", ["t", index], ["y"])], G.weight("t", table(n, 4)))
    (gather, t2), (gather_j, t10) = rows(2), rows(10, "j")
    floats = lambda v, shape: G.value(v, shape)
    ids = lambda *names: [G.value(v, [1, 8], I) for v in names]
    mask = [G.node("Cast", ["m"], ["f"], to=1), G.node("Sub", ["one", "f"], ["n"]), G.node("Mul", ["n", "far"], ["b"]),
            G.node("MatMul", ["x", "k"], ["s"]), G.node("Add", ["s", "b"], ["z"]), G.node("Softmax", ["z"], ["y"], axis=-1)]
    return {
        "token types": (gather, ids("i"), [floats("y", [1, 8, 4])], [t2], [], [(0, 1)]),
        "x + 1": ([G.node("Add", ["i", "one"], ["j"]), *gather_j], ids("i"), [floats("y", [1, 8, 4])], [t10, one("one", 1)], [], [(0, 8)]),
        "3 * x - 1": ([G.node("Mul", ["i", "three"], ["k"]), G.node("Sub", ["k", "one"], ["j"]), *gather_j], ids("i"),
                      [floats("y", [1, 8, 4])], [t10, one("three", 3), one("one", 1)], [], [(1, 3)]),
        "x / 4": ([G.node("Div", ["i", "four"], ["j"]), *gather_j], ids("i"), [floats("y", [1, 8, 4])], [t10, one("four", 4)], [], [(0, 39)]),
        "two indices": ([G.node("Add", ["i", "k"], ["j"]), *gather_j], ids("i", "k"), [floats("y", [1, 8, 4])], [t10], [], [(0, 4), (0, 4)]),
        "BERT's three": ([G.node("Gather", ["t", "i"], ["a"]), G.node("Gather", ["p", "q"], ["b"]), G.node("Gather", ["s", "k"], ["c"]),
                          G.node("Add", ["a", "b"], ["d"]), G.node("Add", ["d", "c"], ["y"])], ids("i", "q", "k"), [floats("y", [1, 8, 4])],
                         [G.weight("t", table(1000, 4)), G.weight("p", table(64, 4)), G.weight("s", table(2, 4))], [], [(0, 999), (0, 63), (0, 1)]),
        "a mask": (mask, [*ids("m"), floats("x", [1, 1, 4])], [floats("y", [1, 1, 8])],
                   [G.weight("one", np.float32(1)), G.weight("far", np.float32(-10000)), G.weight("k", table(4, 8))], [], [(0, 1), None]),
        "one-hot": ([G.node("OneHot", ["i", "d", "v"], ["y"])], ids("i"), [floats("y", [1, 8, 12])],
                    [one("d", 12), G.weight("v", np.array([0, 1], np.float32))], [], [(0, 11)]),
        "coordinates": ([G.node("GatherND", ["t", "i"], ["y"])], [G.value("i", [8, 2], I)], [floats("y", [8])], [t10], [], [(0, 3)]),
        "elements": ([G.node("GatherElements", ["t", "i"], ["y"], axis=0)], [G.value("i", [8, 4], I)], [floats("y", [8, 4])], [t10], [], [(0, 9)]),
        "rows that are written": ([G.node("ScatterND", ["t", "i", "u"], ["y"])], [G.value("i", [2, 1], I), floats("u", [2, 4])],
                                  [floats("y", [10, 4])], [t10], [], [(0, 9), None]),
        "lengths": ([G.node("Less", ["r", "i"], ["b"]), G.node("Cast", ["b"], ["y"], to=1)], [G.value("i", [3, 1], I)], [floats("y", [3, 9])],
                    [G.weight("r", np.arange(9).reshape(1, 9))], [], [(0, 8)]),
        "rows of run-time number": ([G.node("Gather", ["x", "i"], ["y"])], [floats("x", ["n", 4]), *ids("i")], [floats("y", [1, 8, 4])], [],
                                    ["--dim=n=..9"], [None, (0, 0)]),
        "a shape": ([G.node("Expand", ["x", "i"], ["y"])], [floats("x", [1, 4]), G.value("i", [2], I)], [floats("y", ["n", 4])], [],
                    ["--dim=n=..9"], [None, (4, 4)]),
        "sums": ([G.node("Add", ["i", "k"], ["y"])], ids("i", "k"), [G.value("y", [1, 8], I)], [], [], [(0, 3), (0, 3)]),
        "pixels": ([G.node("Cast", ["i"], ["y"], to=1)], [G.value("i", [1, 8], onnx.TensorProto.UINT8)], [floats("y", [1, 8])], [], [], [(0, 255)]),
    }


@suite.case("integers that are drawn are such as the graph can use, in the program, tgc run and tgc bench")
def draws():
    for number, (name, (nodes, inputs, outputs, weights, options, wanted)) in enumerate(drawn().items()):
        folder = T.scratch(SCRATCH / f"drawn_{number}")
        onnx.save(G.model(nodes, inputs, outputs, weights), folder / "net.onnx")
        T.emit(TGC, folder / "net.onnx", folder / "net.c", *options)
        T.build_quickly(folder / "net.c", folder / "net")
        rows = re.search(r"feed_info\[\] = \{\n(.*?)\n\};", (folder / "net.c").read_text(), re.S).group(1)
        found = [(int(least), int(most)) for least, most in re.findall(r", (-?\d+), (-?\d+)\}", rows)]
        expect(found == [pair or (0, -1) for pair in wanted], f"{name}: {found}, expected {wanted}")
        for words in (["--selftest"], ["--bench", "0.001"]):
            T.must(T.run([folder / "net", *words], timeout=60))
        for command in ("run", "bench") if number % 4 == 0 or OPTIONS.all else ("run",):
            T.must(T.run([TGC, command, folder / "net.onnx", *options], timeout=60))


@suite.case("tgc run and the self-test draw the same; where there are no reference vectors both say why")
def same_draws():
    nodes, inputs, outputs, weights, _, _ = drawn()["BERT's three"]
    folder = T.scratch(SCRATCH / "same_draws")
    onnx.save(G.model(nodes, inputs, outputs, weights), folder / "net.onnx")
    T.emit(TGC, folder / "net.onnx", folder / "net.c")
    T.must(T.run([TGC, "run", folder / "net.onnx", "--out-dir", folder]))
    text = re.search(r"selftest_output_0\[\d+\] =((?:\s*\"(?:\\.|[^\"\\])*\")+);", (folder / "net.c").read_text()).group(1)
    literal = "".join(re.findall(r'"((?:\\.|[^"\\])*)"', text))
    reference = re.sub(rb"\\([0-7]{1,3}|.)", lambda m: bytes([int(m[1], 8)]) if m[1][:1].isdigit() else m[1], literal.encode())
    T.compare("y", np.load(folder / "y.npy").ravel(), np.frombuffer(reference, np.float32), 1e-6, 1e-6)
    chaos = [G.node("Mul", ["x", "big"], ["a"]), G.node("Sin", ["a"], ["y"])]
    strings = [G.node("StringConcat", ["x", "x"], ["y"])]
    text = onnx.TensorProto.STRING
    big = G.weight("big", np.float32(1e8))
    for name, model, options, why in (
            ("chaos", G.model(chaos, [G.value("x", [64])], [G.value("y", [64])], [big]), [], "roundings decide"),
            ("strings", G.model(strings, [G.value("x", [4], text)], [G.value("y", [4], text)], [], opset=20), [], "takes or makes strings"),
            ("large", G.model([G.node("Relu", ["x"], ["y"])], [G.value("x", [1 << 18])], [G.value("y", [1 << 18])], []), [],
             "large; tgc --vectors=always"),
            ("never", G.perceptron(), ["--vectors=never"], "--vectors=never")):
        folder = T.scratch(SCRATCH / f"no_vectors_{name}")
        onnx.save(model, folder / "net.onnx")
        for always in ([], ["--vectors=always"]) if not options else ([],):
            done = T.must(T.run([TGC, folder / "net.onnx", "-o", folder / "net.c", *options, *always]))
            T.build_quickly(folder / "net.c", folder / "net")
            tested = T.run([folder / "net", "--selftest"])
            if name == "large" and always:
                expect(tested.status == 0, tested.describe())
                continue
            expect(tested.status == 77 and why in tested.out.decode(), tested.describe())
            expect((why in done.err) == bool(always), f"{name}: {done.err}")


@suite.case("the program knows libraries older than C11, as newlib is, and times what takes nanoseconds")
def old_library():
    folder = T.scratch(SCRATCH / "old")
    onnx.save(G.perceptron(), folder / "net.onnx")
    T.emit(TGC, folder / "net.onnx", folder / "net.c")
    (folder / "old.h").write_text("#include <time.h>\n#undef TIME_UTC\n")
    expect("%zu" not in (folder / "net.c").read_text(), "newlib's printf has no %zu")
    for flags in ([], ["-include", "old.h"]):
        compile_with(folder, "gcc", *WARNINGS, "-O2", *flags, "-DNET_MAIN", "net.c", "-o", "program", "-lm")
        T.must(T.run([folder / "program", "--selftest"]))
        out = T.must(T.run([folder / "program", "--bench", "0.01"])).out.decode()
        best, mean, runs = re.match(r"net: best (\S+) us, mean (\S+) us of (\d+) runs", out).groups()
        expect(0 < float(best) <= float(mean) < 1e3 and int(runs) > 3, out)
        expect(flags or all(float(us) > 0 for us in re.findall(r"^ +(\d\S*) ", out, re.M)), out)


@suite.case("the benchmark reads what a library says of itself, and runs it")
def benchmark():
    sys.path.append(str(HERE.parent.parent / "bench"))
    import worker

    folder = T.scratch(SCRATCH / "benchmark")
    batch, outputs = np.ones((1, 8), np.float32), {"outputs": [{"shape": [1, 4], "dtype": "float32"}]}
    onnx.save(G.perceptron(), folder / "net.onnx")
    T.emit(TGC, folder / "net.onnx", folder / "net.c")
    compile_with(folder, "gcc", "-O2", "-shared", "-fPIC", "net.c", "-o", "net.so", "-lm", "-lpthread")
    T.must(T.run(["gcc", "-O2", "-shared", "-fPIC", Path(worker.__file__).with_name("driver.c"), "-o", folder / "driver.so", "-lpthread"]))
    np.savez(folder / "inputs.npz", **{"0": batch})
    emitted = worker.Emitted({"folder": str(folder), "driver": str(folder / "driver.so"), "library": str(folder / "net.so"), "symbol": "net"}, outputs)
    emitted.run_once()
    T.compare("y", emitted.results()[0], G.perceptron_reference(G.perceptron(), batch), 1e-5, 1e-6)
    expect(emitted.about["kernels"] == T.info(TGC, folder / "net.onnx")["kernels"], "the number of kernels is another one")


@suite.case("every instruction set of this machine computes the same")
def instruction_sets():
    flags = set(re.findall(r"\w+", Path("/proc/cpuinfo").read_text()))
    here = ["generic"] + ["avx2"] * ({"avx2", "fma"} <= flags) + ["avx512"] * ("avx512bw" in flags)
    for k, cpu in enumerate(here):
        for i, (name, model) in enumerate((("rests", rests()), ("keys", keys()), ("halves", halves()))):
            folder = emit(f"{name}-{cpu}", model, f"--cpu={cpu}")
            compilers = ("gcc", "clang")
            for compiler in compilers if OPTIONS.all else compilers[(k + i) % 2:][:1]:      # in turn in the quick form
                compile_with(folder, compiler, *WARNINGS, "-O2", "-DNET_MAIN", "net.c", "-o",
                             compiler, "-lm")
                T.must(T.run([folder / compiler, "--selftest"], timeout=60))


@suite.case("AVX-512: half a vector of channels is computed as that, not as a whole one")
def half_vectors():
    text = (emit("halves-avx512", halves(), "--cpu=avx512") / "net.c").read_text()
    kernels = text[text.index("_avx512("):]
    for call in ("fma_f32x8(half_f32x16(", " / exp1_f32x8(", "min_f32x8(", "store_f32x8("):
        expect(call in kernels, f"no {call}")
    expect("_part_f32x16(" not in kernels, "a part of a whole vector is read or stored")


@suite.case("NEON, emulated, computes the same")
def neon():
    compiler, emulator = "aarch64-linux-gnu-gcc", "qemu-aarch64"
    if not shutil.which(compiler) or not shutil.which(emulator):
        raise Skip(f"{compiler} and {emulator} are not here")
    for folder in (*MODELS[:2], emit("rests-neon", rests(), "--cpu=neon")):
        compile_with(folder, compiler, *WARNINGS, "-O2", "-static", "-DNET_MAIN", "net.c", "-o",
                     "neon", "-lm")
        T.must(T.run([emulator, folder / "neon", "--selftest"], timeout=120))


@suite.case("the self-test finds a changed weight")
def selftest_fails():
    # every stored number is read: another instruction set's kernels may have a copy of their own
    folder = emit("changed", varied(), "--weights=array", "--cpu=generic")
    source = (folder / "net.c").read_text()
    numbers = [m for m in re.finditer(r"-?\d\.\d+(e-?\d+)?f?(?=,)", source) if float(
        m.group().rstrip("f")) != 0]
    expect(len(numbers) > 20, "no weights as numbers in the file")
    middle = numbers[len(numbers) // 2]
    changed = source[:middle.start()] + "9.75f" + source[middle.end():]
    (folder / "bad.c").write_text(changed)
    compile_with(folder, "gcc", "-O2", "-DNET_MAIN", "bad.c", "-o", "bad", "-lm", "-lpthread")
    done = T.run([folder / "bad", "--selftest"])
    expect(done.status not in (0, -11, -6), f"it passed: {done.describe()}")


@suite.case("weights in every form give the same answer")
def weights():
    x = np.random.default_rng(9).standard_normal((1, 3, 12, 12)).astype(np.float32)
    answers = {}
    for form in ("string", "array", "incbin"):
        folder = emit(f"weights-{form}", varied(), f"--weights={form}")
        T.build(folder / "net.c", folder / "program", "gcc", ("-O2",))
        answers[form] = T.Program(folder / "program", ["probabilities", "class"]).run([x])
    for form, answer in answers.items():
        for name, value in answer.items():
            expect(np.array_equal(value, answers["string"][name]), f"{form}: {name} differs")


@suite.case("layers with the same loops share a function, others do not")
def shared_functions():
    random = np.random.default_rng(11)

    def floats(*shape):
        return random.standard_normal(shape).astype(np.float32) / 4
    sizes = [16, 16, 16, 16, 24]
    nodes = []
    for k in range(4):
        nodes += [G.node("MatMul", [f"x{k}", f"w{k}"], [f"m{k}"], name=f"layer{k}"),
                  G.node("Softmax", [f"m{k}"], [f"x{k + 1}"], name=f"softmax{k}")]
    model = G.model(nodes, [G.value("x0", [12, 16])], [G.value("x4", [12, 24])],
                    [G.weight(f"w{k}", floats(sizes[k], sizes[k + 1])) for k in range(4)])
    folder = emit("shared", model)
    text = (folder / "net.c").read_text()
    made = re.findall(r"^static void (matmul_\d+|softmax_\d+)\(", text, re.M)
    expect(len(made) == 4, f"functions of two sizes of two layers: {made}")
    expect(text.count("the same: ") == 4, "the others are not named where their function stands")
    for k in range(4):
        expect(f"layer{k}" in text, f"no word of layer{k}")
    x = floats(12, 16)
    T.build(folder / "net.c", folder / "net")
    T.must(T.run([folder / "net", "--selftest"]))
    want = x
    for k in range(4):
        weight = next(w for w in model.graph.initializer if w.name == f"w{k}")
        exp = np.exp(want @ onnx.numpy_helper.to_array(weight))
        want = exp / exp.sum(axis=1, keepdims=True)
    T.compare("x4", T.Program(folder / "net", ["x4"]).run([x])["x4"], want, 1e-4, 1e-6)


@suite.case("the comments name the model's nodes and shapes")
def readable():
    for folder in MODELS:
        text = (folder / "net.c").read_text()
        comments = " ".join(re.findall(r"/\*.*?\*/|//[^\n]*", text, re.S))
        model = onnx.load(folder / "model.onnx")
        for node in model.graph.node:
            if node.op_type not in ("Flatten", "Reshape"):
                expect(node.name in comments, f"no comment names {node.name}")
        for word in ("f32[",):
            expect(word in comments or word in (folder / "net.h").read_text(), f"no {word}")
        long = [line for line in text.splitlines() if len(line) > 200 and '"' not in line]
        expect(not long, f"a line of {len(long[0]) if long else 0} characters")


def prepare():
    try:
        return [net(), emit("varied", varied()), emit("varied-O0", varied(), "-O0")]
    except Failure as failure:
        suite.add("the models of this suite compile", lambda: (_ for _ in ()).throw(failure))
        suite.cases[:] = suite.cases[-1:]
        return [None]


MODELS = prepare()
NET = MODELS[0]
suite.main()
