"""The example at the head of NAME.h, and the macros of its tensors: the code in the comment compiles as it
stands, as the body of a function, without a warning, and its run is a success."""

import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(HERE.parent / "lib"), str(HERE.parent / "onnx")]

import numpy as np
import onnx

import graphs as G
import tgc as T
from suite import Suite, expect

suite = Suite("header")
OPTIONS = suite.parse()
TGC = T.find_tgc(OPTIONS.build)
SCRATCH = T.scratch(Path(OPTIONS.build).resolve() / "test-scratch" / "header")
case = suite.folder_case(SCRATCH)
WARNINGS = ["-Wall", "-Wextra", "-pedantic", "-Wconversion", "-Wshadow", "-Wvla", "-Werror"]
INCLUDES = '#include "net.h"\n#include <stdalign.h>\n#include <stdio.h>\n'
BAD_VALUE = 10
# Of the golden texts every one in the long form.
GOLDEN = sorted((ROOT / "tests/ir/golden").glob("*.tg")) + sorted((ROOT / "tests/ir/golden/summaries").glob("*.tg"))
MODELS = sorted((ROOT / "models").glob("*.tg")) + GOLDEN[::1 if OPTIONS.all else 12]


def example_of(header):
    """The code in the header's first comment."""
    comment = header.split("*/")[0]
    code = [line[7:] for line in comment.splitlines() if line.startswith(" *     ")]
    expect(len(code) > 5, f"no example in {comment}")
    return "\n".join(code) + "\n"


def write_main(folder, before=""):
    code = example_of((folder / "net.h").read_text())
    (folder / "main.c").write_text(f"{INCLUDES}{before}int main(void)\n{{\n{code}return status;\n}}\n")


def run_example(folder, *words, before=""):
    """Compiles net.c and the example in its header; its end."""
    write_main(folder, before)
    T.must(T.run(["gcc", "-std=c11", "-O0", *WARNINGS, "-c", "main.c"], cwd=folder))
    T.must(T.run(["gcc", "-std=c11", "-O0", "main.o", "net.c", "-o", "example", "-lm", "-pthread", *words], cwd=folder, timeout=300))
    return T.run([folder / "example"], cwd=folder)


def check(folder, model, *options, before=""):
    (folder / "net.tg").write_text(model)
    T.emit(TGC, folder / "net.tg", folder / "net.c", "--cpu=generic", *options)
    T.must(run_example(folder, before=before))
    return (folder / "net.h").read_text()


def macros_of(header):
    return dict(re.findall(r"^#define NET_(\w+) (.+)$", header, re.M))


@case("the examples of the repository's models compile and run")
def _(folder):
    ran = 0
    for path in MODELS:
        place = T.scratch(folder / path.stem)
        done = T.run([TGC, path, "-o", place / "net.c", "--cpu=generic"])
        if done.status:                          # a text of a later stage, which is no model
            expect("error: " in done.err, done.describe())
            continue
        done = run_example(place)
        expect(done.status in (0, BAD_VALUE), f"{path.name}: {done.describe()}")
        expect((done.status == 0) == (not done.out), f"{path.name}: {done.describe()}, {done.out}")
        ran += 1
    expect(ran >= 15, f"{ran} of {len(MODELS)} models ran")
    print(f"# {ran} models", flush=True)


@case("the examples of the node tests compile")
def _(folder):
    from node_test import generated_cases
    tests = list(generated_cases(OPTIONS.build).values())[::1 if OPTIONS.all else 40]
    sources = []
    for i, test in enumerate(tests):
        place = T.scratch(folder / str(i))
        (place / "net.onnx").write_bytes(test.model.SerializeToString())
        if T.run([TGC, place / "net.onnx", "-o", place / "net.c", "--cpu=generic"]).status == 0:
            write_main(place)
            sources.append(place / "main.c")
    expect(len(sources) > 0.8 * len(tests), f"{len(sources)} of {len(tests)} compile")
    for source in sources:
        T.must(T.run(["gcc", "-std=c11", *WARNINGS, "-fsyntax-only", source]))
    print(f"# {len(sources)} headers", flush=True)


@case("names of the model that are those of the example, of macros, or of functions")
def _(folder):
    names = ["arena", "in", "out", "status", "model", "puts", "net", "net_run", "net_inputs", "NET_OK", "NET_ARENA_BYTES", "i", "int",
             "x", "X", "x_size", "X_SIZE", "weights", "alignas", "NULL", "state", "status_OK", "café", "*/", ""]
    inputs = "".join(f'input %v{i} : f32[{i % 3 + 1}] as {quoted(name)}\n' for i, name in enumerate(names))
    outputs = "".join(f"%y{i} = neg(%v{i})\noutput %y{i} as {quoted(name)}\n" for i, name in enumerate(names))
    header = check(folder, "tg 1\n" + inputs + outputs)
    defined = re.findall(r"^#define (\w+)", header, re.M)
    expect(len(defined) == len(set(defined)), "a macro is defined twice")
    expect(sum(name.endswith("_RANK") for name in defined) >= 2 * len(names), f"{defined}")


def quoted(name):
    return '"' + name.replace('"', '\\"') + '"'


@case("macros are what the tensors are")
def _(folder):
    header = check(folder, """tg 1
input %a : f16[B<=5, 3, B*2] as "a"
input %b : i64[] as "b"
input %none : f32[0, 7] as "none"
%a32 = cast(%a) {to=f32}
%b32 = cast(%b) {to=f32}
%y = add(%a32, %b32)
%z = neg(%none)
output %y as "y"
output %z as "z"
""")
    macros = macros_of(header)
    want = {"A": (150, 300, 3, "{5, 3, 10}"), "B": (1, 8, 0, None), "NONE": (0, 0, 2, "{0, 7}"),
            "Y": (150, 600, 3, "{5, 3, 10}"), "Z": (0, 0, 2, "{0, 7}")}
    for name, (size, nbytes, rank, dims) in want.items():
        got = tuple(macros.get(f"{name}_{word}") for word in ("SIZE", "BYTES", "RANK", "DIMS"))
        expect(got == (str(size), str(nbytes), str(rank), dims), f"{name}: {got}")


@case("dtypes, the version, struct tags, the export macro")
def _(folder):
    header = check(folder, """tg 1
input %a : i8[4] as "a"
%y = cast(%a) {to=f32}
output %y as "y"
""")
    macros = macros_of(header)
    expect(macros["A_DTYPE"] == "NET_I8" and macros["Y_DTYPE"] == "NET_F32" and "A_SCALE" not in macros, f"{macros}")
    expect(re.search(r" NET_I8 = 3,", header) and re.search(r" NET_F32 = 1,", header), "the numbers are not ONNX's")
    version = T.must(T.run([TGC, "--version"])).out.decode().split()[1]
    expect(macros["TGC_VERSION"] == f'"{version}"', f"{macros['TGC_VERSION']}, not {version}")
    for name in ("inputs", "outputs", "options"):
        expect(f"typedef struct net_{name} {{" in header, f"struct net_{name} has no tag")
    flags = ["-DNET_API=__attribute__((visibility(\"default\")))", "-fvisibility=hidden", "-fPIC", "-shared"]
    T.must(T.run(["gcc", "-std=c11", "-O0", *WARNINGS, *flags, "net.c", "-o", "net.so", "-lm"], cwd=folder))
    exported = set(re.findall(r" T (net_\w+)", T.must(T.run(["nm", "-D", "net.so"], cwd=folder)).out.decode()))
    declared = set(re.findall(r"^NET_API .*?\b(net_\w+)\(", header, re.M)) - {"net_selftest"}
    expect(exported == declared and "net_run" in exported, f"{exported} are exported, {declared} declared")


@case("scales and zero points of quantized inputs and outputs")
def _(folder):
    F, U = onnx.TensorProto.FLOAT, onnx.TensorProto.UINT8
    w = lambda name, value, dtype: G.weight(name, np.array(value, dtype))
    nodes = [G.node("DequantizeLinear", ["x", "sx", "zx"], ["d"]), G.node("Tanh", ["d"], ["t"]), G.node("QuantizeLinear", ["t", "sy", "zy"], ["y"]),
             G.node("DequantizeLinear", ["u", "sx"], ["e"]), G.node("Exp", ["e"], ["f"]), G.node("QuantizeLinear", ["f", "sv", "zv"], ["v"]),
             G.node("Cast", ["plain"], ["p"], to=F)]
    # neither half a zero point nor one that no integer is
    for k, zero in enumerate((0.5, 1e30)):
        nodes += [G.node("Cast", [f"odd{k}"], [f"c{k}"], to=F), G.node("Sub", [f"c{k}", f"o{k}"], [f"m{k}"]), G.node("Mul", [f"m{k}", "sx"], [f"r{k}"])]
    onnx.save(G.model(nodes, [G.value("x", [4], U), G.value("u", [3, 2], onnx.TensorProto.INT8), G.value("plain", [4], U), G.value("odd0", [4], U), G.value("odd1", [4], U)],
                      [G.value("r0", [4]), G.value("r1", [4]), G.value("y", [4], U), G.value("v", [3, 2], onnx.TensorProto.INT8), G.value("p", [4])],
                      [w("sx", 0.03125, np.float32), w("zx", 128, np.uint8), w("sy", 0.0078, np.float32), w("zy", 127, np.uint8),
                       w("sv", 0.5, np.float32), w("zv", -3, np.int8), w("o0", 0.5, np.float32), w("o1", 1e30, np.float32)]), folder / "net.onnx")
    T.emit(TGC, folder / "net.onnx", folder / "net.c", "--cpu=generic")
    macros = macros_of((folder / "net.h").read_text())
    got = {name: (macros.get(f"{name}_SCALE"), macros.get(f"{name}_ZERO_POINT")) for name in ("X", "Y", "U", "V", "PLAIN", "P", "ODD0", "ODD1")}
    want = {"X": ("0.03125f", "128"), "Y": ("0.0078f", "127"), "U": ("0.03125f", "0"), "V": ("0.5f", "-3"), "PLAIN": (None, None), "P": (None, None),
            "ODD0": (None, None), "ODD1": (None, None)}
    expect(got == want, f"{got}")
    T.must(run_example(folder))


@case("strings, weights in a file, threads, several entries, training")
def _(folder):
    place = T.scratch(folder / "strings")
    onnx.save(G.model([G.node("Equal", ["s", "s"], ["y"])], [G.value("s", [3], onnx.TensorProto.STRING)],
                      [G.value("y", [3], onnx.TensorProto.BOOL)]), place / "net.onnx")
    T.emit(TGC, place / "net.onnx", place / "net.c", "--cpu=generic")
    T.must(run_example(place))
    expect('s[i] = "";' in (place / "net.h").read_text(), "strings stay NULL")
    mlp = (ROOT / "models/mlp.tg").read_text()
    bytes_of = "static alignas(64) unsigned char weights[NET_WEIGHTS_BYTES];\n"
    check(T.scratch(folder / "file"), mlp, "--weights=file", before=bytes_of)
    check(T.scratch(folder / "threads"), mlp, "--threads=2")
    digits = (ROOT / "models/digits.tg").read_text()
    T.must(T.run(["cp", "-r", ROOT / "models", folder / "models"]))
    check(folder / "models", digits, "--train", "--loss=cross_entropy", "--optimizer=adam")
    entries = check(T.scratch(folder / "entries"), ENTRIES)
    expect("net_warp_inputs in = {.image = image};" in entries and "#define NET_WARP_IMAGE_SIZE 6\n" in entries, entries)


ENTRIES = """tg 1
entry "warp" {
    input %image : f32[2, 3] as "image"
    %y = neg(%image)
    output %y as "y"
}
entry "score" {
    input %x : f32[4] as "image"
    %z = exp(%x)
    output %z as "y"
}
"""

suite.main()
