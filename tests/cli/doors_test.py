"""What forgives a newcomer: usual spellings, hints, help by command, and completion in real shells."""

import json
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "lib")]

import numpy as np
import onnx
from onnx import numpy_helper

import graphs as G
import tgc as T
from suite import Skip, Suite, expect

suite = Suite("doors")
OPTIONS = suite.parse()
TGC = T.find_tgc(OPTIONS.build).resolve()
SCRATCH = Path(OPTIONS.build).resolve() / "test-scratch" / "doors"
case = suite.folder_case(SCRATCH)


def tgc(folder, *arguments, status=0, **more):
    return T.must(T.run([TGC, *arguments], cwd=folder, **more), status)


def perceptron(folder, name="model.onnx"):
    model = G.perceptron()
    onnx.save(model, folder / name)
    return model


# -------------------------------------------------------------------------------- usual spellings


@case("-h, -V, help and help COMMAND")
def _(folder):
    expect(tgc(folder, "-h").out == tgc(folder, "--help").out == tgc(folder, "help").out, "-h, --help and help differ")
    expect(tgc(folder, "-V").out == tgc(folder, "--version").out, "-V and --version differ")
    one = tgc(folder, "help", "verify").out.decode()
    expect(one == tgc(folder, "verify", "--help").out.decode(), "help verify is not verify --help")
    expect("--rtol" in one and "--out-dir" not in one and "tgc bench" not in one, f"not about verify alone:\n{one}")
    expect("'verify'" in tgc(folder, "help", "verfiy", status=2).err, "no hint")


@case("-MMD is -MD; -MF, -MT and -MP without it are wrong usage")
def _(folder):
    perceptron(folder)
    tgc(folder, "model.onnx", "-o", "net.c", "-MMD", "-MT", "a.h b.h")
    expect((folder / "net.d").read_text() == "a.h b.h: model.onnx\n", (folder / "net.d").read_text())
    for option in (["-MF", "x.d"], ["-MT", "x"], ["-MP"]):
        expect("-MD" in tgc(folder, "model.onnx", "-o", "net.c", *option, status=2).err, f"{option}: -MD is not named")


@case("misspelt commands and options are wrong usage with a hint")
def _(folder):
    perceptron(folder)
    for arguments, hint in ((["complie", "model.onnx", "-o", "m.c"], "did you mean 'compile'?"), (["hepl"], "'help'"),
                            (["Verify", "model.onnx"], "'verify'"), (["frobnicate", "model.onnx"], "there are compile"),
                            (["model.onnx", "-o", "m.c", "--dmi", "n=3"], "'--dim'"),
                            (["model.onnx", "-o", "m.c", "--cpu-type=x"], "unknown option"),
                            (["model.onnx", "-o", "m.c", "--wieghts=array"], "'--weights'"),
                            (["model.onnx", "-o", "m.c", "--external"], "'--external-data-dir'")):
        done = tgc(folder, *arguments, status=2)
        expect(hint in done.err, f"{arguments}: {done.err}")
    expect(not (folder / "m.c").exists(), "something was written")
    expect("missing.onnx" in tgc(folder, "missing.onnx", "-o", "m.c", status=1).err, "a file that is missing")


@case("--dim NAME=..N is --dim 'NAME<=N', and messages suggest it")
def _(folder):
    onnx.save(G.model([G.node("Relu", ["x"], ["y"])], [G.value("x", ["batch", "a b"])], [G.value("y", None)]), folder / "m.onnx")
    said = tgc(folder, "m.onnx", "-o", "m.c", status=1).err
    expect("--dim batch=..8 --dim 'a b=..8'" in said and "--dim batch=1 --dim 'a b=1'" in said, said)
    tgc(folder, "m.onnx", "-o", "m.c", "--dim", "batch=..8", "--dim", "a b=3")
    first = (folder / "m.c").read_bytes()
    tgc(folder, "m.onnx", "-o", "m.c", "--dim", "batch<=8", "--dim", "a b=3")
    expect((folder / "m.c").read_bytes() == first, "the two spellings differ")
    for bad in ("batch=..0", "batch=..", "batch=..x", "=..3", "batch=...3", "batch<=..3x"):
        tgc(folder, "m.onnx", "-o", "m.c", "--dim", bad, status=2)


@case("info takes the options that decide code")
def _(folder):
    perceptron(folder)
    np.save(folder / "x.npy", np.zeros((1, 8), np.float32))
    tgc(folder, "info", "model.onnx", "--weights=incbin", "-g", "-i", "x=x.npy", "--cpu=generic", "--threads=2")


# ------------------------------------------------------------------------------------------- ops


@case("ops: columns, one operator, the text format's functions")
def _(folder):
    lines = tgc(folder, "ops").out.decode().splitlines()
    expect(len({line.index(" opset ") for line in lines}) == 1, "the opsets do not stand in a column")
    for arguments in ([], ["--tg"], ["Conv"]):
        text = tgc(folder, "ops", *arguments).out.decode()
        expect(not re.search(r" +$", text, re.M), f"ops {arguments}: blanks at the end of a line")
    record = tgc(folder, "ops", "GRU").out.decode()
    expect(record.startswith("GRU\n    domain  ai.onnx\n    opsets  "), record)
    expect("    gradient  yes\n" in record and re.search(r"^Floor .*  gradient: zero$", "\n".join(lines), re.M), record)
    newest = onnx.defs.onnx_opset_version()
    expect(f"    opsets  1-{newest}\n" in record, f"not up to which opset it is known:\n{record}")
    until = {row["name"]: row["until"] for row in json.loads(tgc(folder, "ops", "--json").out) if row["domain"] == "ai.onnx"}
    expect(until["GRU"] == newest and until["Upsample"] < newest, f"{until['GRU']}, {until['Upsample']}")
    expect({row["domain"] for row in json.loads(tgc(folder, "ops", "Conv", "--json").out)} >= {"ai.onnx"}, "no JSON of Conv")
    expect("'Conv'" in tgc(folder, "ops", "cnov", status=1).err, "no hint")
    tgc(folder, "ops", "Conv", "Gemm", status=2)
    functions = json.loads(tgc(folder, "ops", "--tg", "--json").out)
    expect({"name": "full", "operands": "", "attributes": "shape, value=0, dtype=f32"} in functions["functions"], "no full")
    expect("topk_f32" in {f["name"] for f in functions["host"]}, "no host function")
    expect(tgc(folder, "ops", "--tg", "softmax").out == b"softmax(x) {axis=-1}\n", "not softmax alone")


@case("a signature says which operands and attributes a call may have")
def _(folder):
    for call, says in (("softmax(%x, %x)", "softmax takes 1 operands (x), found 2"), ("concat()", "takes 1 or more operands"),
                       ("full() {shape=[3], size=3}", "full has no attribute 'size'; it has shape, value=0"),
                       ("rope(%x, %x2, %x2) {base=3}", "rope has no use for 'base' here"),
                       ("sofmtax(%x)", "did you mean 'softmax'?")):
        (folder / "g.tg").write_text(f'tg 1\ninput %x : f32[4, 4]\n%x2 = full() {{shape=[4, 2]}}\n%y = {call}\noutput %y\n')
        said = tgc(folder, "g.tg", "-o", "g.c", status=1).err
        expect(says in said, f"{call}: {said}")


# -------------------------------------------------------------------------------- what went wrong


@case("missing external data is one message, however many tensors are in the file")
def _(folder):
    model = G.perceptron()
    onnx.save_model(model, folder / "m.onnx", save_as_external_data=True, location="m.bin", size_threshold=0)
    (folder / "m.bin").unlink()
    for options in ([], ["--no-external-data"]):
        said = tgc(folder, "m.onnx", "-o", "m.c", *options, status=1).err
        expect(said.count("error:") == 1, f"{options}: {said}")
    expect("m.bin" in tgc(folder, "m.onnx", "-o", "m.c", status=1).err, "the file is not named")


@case("messages of a run name the input, --shape says what can be done")
def _(folder):
    onnx.save(G.model([G.node("Gather", ["w", "ids"], ["y"])], [G.value("ids", [3], onnx.TensorProto.INT64)],
                      [G.value("y", [3, 2])], [G.weight("w", np.ones((5, 2), np.float32))]), folder / "m.onnx")
    np.save(folder / "ids.npy", np.array([0, 4, 77]))
    said = tgc(folder, "run", "m.onnx", "-i", "ids=ids.npy", status=1).err
    expect("'ids' holds 0 to 77" in said, said)
    np.save(folder / "ids.npy", np.array([0, 4, 7], np.float32))
    said = tgc(folder, "run", "m.onnx", "-i", "ids=ids.npy", status=1).err
    expect("input 'ids', which is i64[3]" in said, said)
    said = tgc(folder, "m.onnx", "-o", "m.c", "--shape", "ids=4", status=1).err
    expect("4 for axis 0" in said and "dynamic_axes" in said, said)
    (folder / "m.tg").write_text("tg 1\ninput %ids : f32[N<=4]\n%y = neg(%ids)\noutput %y\n")
    for model in ("m.onnx", "m.tg"):
        said = tgc(folder, model, "-o", "m.c", "--shape", "idz=3", status=1).err
        expect("no such input; it has 'ids'" in said, said)
    said = tgc(folder, "m.onnx", "-o", "m.c", "--threads=0", status=2).err
    expect("a number from 1 to" in said, said)


@case("--keep holds the files of a build that fails, and none of one that works")
def _(folder):
    perceptron(folder)
    tgc(folder, "model.onnx", "-o", "m.o", "--keep", "kept")
    expect(not (folder / "kept").exists(), "a build that works left files")
    for command in (["model.onnx", "-o", "n.o"], ["run", "model.onnx", "--name=n"]):
        done = tgc(folder, *command, "--keep", "kept", status=1, env={"CC": "gcc -no-such-flag"})
        named = "n.o" if "-o" in command else "model.onnx"
        expect(f"{named}: error: 'gcc' failed with status 1" in done.err, f"names a file that nobody knows: {done.err}")
        expect("kept: note:" in done.err and not (folder / "n.o").exists(), done.err)
        expect({p.name for p in (folder / "kept").iterdir()} == {"n.c", "n.h"}, "other files")
        T.must(T.run(["gcc", "-c", "n.c"], cwd=folder / "kept"))
        shutil.rmtree(folder / "kept")


@case("CC's words decide the level, the standard and position-independent objects; what it leaves open is -O2, C11, -fPIC")
def _(folder):
    perceptron(folder)
    compiler = folder / "cc"
    compiler.write_text('#!/bin/sh\necho "$@" > "$WORDS"\nexec gcc "$@"\n')
    compiler.chmod(0o755)

    def words(out, more):
        tgc(folder, "model.onnx", "-o", out, "--name=m", env={"CC": f"{compiler} {more}", "WORDS": str(folder / "words")})
        found = (folder / "words").read_text().split()
        return [w for w in found if w.startswith(("-O", "-std=", "-fPIC", "-fno-pic"))]
    for out in ("m.o", "m.a", "m.so"):
        expect(words(out, "") == ["-O2", "-std=c11", "-fPIC"], f"{out}: {words(out, '')}")
    own = "-Os -std=gnu17 -fno-pic"
    expect(words("m.o", own) == own.split(), words("m.o", own))
    expect(words("m.so", own) == own.split() + ["-fPIC"], "a library that is not position-independent")


@case("verify compares two models, and two sets of options, on the same inputs")
def _(folder):
    model = perceptron(folder, "a.onnx")
    for node in model.graph.node:
        for names in (node.input, node.output):
            names[:] = [{"x": "image"}.get(name, name) for name in names]
    model.graph.input[0].name = "image"
    onnx.save(model, folder / "renamed.onnx")
    first = numpy_helper.to_array(model.graph.initializer[0]) + np.float32(0.5)
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(first, model.graph.initializer[0].name))
    onnx.save(model, folder / "other.onnx")
    np.save(folder / "x.npy", np.linspace(-1, 1, 8, dtype=np.float32)[None])
    expect(tgc(folder, "verify", "a.onnx", "renamed.onnx").out.startswith(b"ok "), "not equal")
    expect(tgc(folder, "verify", "a.onnx", "--other=-O0 --cpu=generic", "-i", "x=x.npy").out.startswith(b"ok "), "-O0")
    expect(tgc(folder, "verify", "a.onnx", "other.onnx", status=3).out.startswith(b"MISMATCH "), "equal")
    expect("gone.onnx" in tgc(folder, "verify", "a.onnx", "gone.onnx", status=1).err, "the file is not named")
    tgc(folder, "verify", "a.onnx", status=2)
    tgc(folder, "verify", "a.onnx", "other.onnx", "--data", "x", status=2)
    (folder / "two.tg").write_text('tg 1\ninput %a : f32[2]\ninput %b : f32[2]\n%y = add(%a, %b)\noutput %y\n')
    expect("2 inputs" in tgc(folder, "verify", "a.onnx", "two.tg", status=1).err, "the counts are not named")


# ------------------------------------------------------------------------------- times and tables


def layers(folder):
    """Two chains of layers, of which the third has other weights, and their values by the reference evaluator."""
    rng = np.random.default_rng(1)
    weights = {f"w{k}": rng.standard_normal((4, 4)).astype(np.float32) for k in range(4)}
    nodes = [G.node("MatMul", [f"h{k}" if k else "x", f"w{k}"], [f"h{k + 1}" if k < 3 else "y"], name=f"layer{k}") for k in range(4)]
    for name in ("a.onnx", "b.onnx"):
        onnx.save(G.model(nodes, [G.value("x", [2, 4])], [G.value("y", [2, 4])], [G.weight(*w) for w in weights.items()]), folder / name)
        weights["w2"] = weights["w2"] + np.float32(0.5)
    x = np.ones((2, 4), np.float32)
    np.save(folder / "x.npy", x)
    return x, weights


@case("--value: values inside of a model are outputs of what is compiled and run")
def _(folder):
    x, weights = layers(folder)
    tgc(folder, "run", "a.onnx", "-i", "x=x.npy", "--value", "*", "--value=h2", "--out-dir", "all")
    expect({p.name for p in (folder / "all").iterdir()} == {f"{n}.npy" for n in ("h1", "h2", "h3", "y")}, "not all values")
    want = x @ weights["w0"] @ weights["w1"]
    expect(np.allclose(np.load(folder / "all/h2.npy"), want, 1e-5), "h2 is not the second layer's value")
    tgc(folder, "a.onnx", "-o", "m.c", "--value=h3", "--value=h1", "--value=y")
    described = [v["name"] for v in json.loads(tgc(folder, "info", "a.onnx", "--json", "--value=h3", "--value=h1").out)["outputs"]]
    expect(described == ["y", "h1", "h3"], f"not in the order of the graph: {described}")
    fields = re.findall(r"^    float \*(\w+);", (folder / "m.h").read_text(), re.M)
    expect(fields == ["y", "h1", "h3"], f"the outputs of the header are {fields}")
    (folder / "m.tg").write_text("tg 1\ninput %x : f32[3]\nweight %w : f32[3] = [1, 2, 3]\n%n = add(2, 1)\n%w2 = mul(%w, %w)\n"
                                 "%a = mul(%x, %w2)\n%b = relu(%a)\noutput %b as \"y\"\n")
    listed = tgc(folder, "run", "m.tg", "--value", "*").out.decode()
    expect(re.findall(r"^(\w+):", listed, re.M) == ["y", "a"], f"constants and outputs are listed, too:\n{listed}")
    expect("\nw2: " in tgc(folder, "run", "m.tg", "--value", "%w2").out.decode(), "a constant that was asked for")


@case("--value: verify says which value is the first to differ")
def _(folder):
    layers(folder)
    said = tgc(folder, "verify", "a.onnx", "b.onnx", "--value", "*", status=3).out.decode()
    expect(re.search(r"^first to differ: h3, made by node 2 'layer2' \(MatMul\): .*largest difference [0-9.]+, ", said, re.M), said)
    expect("values inside: 2 agree, 1 differ\n" in said and "MISMATCH h3" in said and "ok       h2" in said, said)
    said = tgc(folder, "verify", "a.onnx", "--other=-O0", "--value", "h*").out.decode()
    expect("first to differ" not in said and "values inside: 3 agree, 0 differ\n" in said, said)
    model = onnx.load(folder / "a.onnx")
    for node in model.graph.node:
        for names in (node.input, node.output):
            names[:] = ["other" if name == "h2" else name for name in names]
    onnx.save(model, folder / "renamed.onnx")
    said = tgc(folder, "verify", "a.onnx", "renamed.onnx", "--value", "*").out.decode()
    expect("values inside: 2 agree, 0 differ; 2 in one model alone, not compared\n" in said, said)
    expect("renamed.onnx: error: --value h2:" in tgc(folder, "verify", "a.onnx", "renamed.onnx", "--value=h2", status=1).err, "not named")
    # what nearly cancels differs by much of itself, and by nothing of the tensor
    (folder / "c.tg").write_text("tg 1\ninput %x : f32[8]\n%a = add(%x, 1000)\n%b = sub(%a, 1000)\n%y = mul(%b, 0.0)\noutput %y\n")
    (folder / "d.tg").write_text("tg 1\ninput %x : f32[8]\n%a = add(%x, 1000.0001)\n%b = sub(%a, 1000)\n%y = mul(%b, 0.0)\noutput %y\n")
    said = tgc(folder, "verify", "c.tg", "d.tg", "--value=a", "--fast-math").out.decode()
    expect("ok       a" in said, said)


def rounding(folder, name, factor=1.0, scale=1.0):
    """x * factor as a byte, 50 times that as another one, and half of that as a float."""
    weights = {"f": np.float32(factor), "one": np.float32(scale), "gain": np.float32(50), "half": np.float32(0.5), "zero": np.uint8(100)}
    nodes = [G.node("Mul", ["x", "f"], ["h"], name="scale"), G.node("QuantizeLinear", ["h", "one", "zero"], ["q"], name="round"),
             G.node("DequantizeLinear", ["q", "one", "zero"], ["d"]), G.node("Mul", ["d", "gain"], ["e"], name="gain"),
             G.node("QuantizeLinear", ["e", "one", "zero"], ["r"]), G.node("DequantizeLinear", ["r", "half", "zero"], ["y"])]
    onnx.save(G.model(nodes, [G.value("x", [64])], [G.value("y", [64])], [G.weight(*w) for w in weights.items()]), folder / name)


@case("--value: a value that is rounded the other way is no difference, nor is what follows from it")
def _(folder):
    x = np.linspace(0.1, 0.4, 64, dtype=np.float32)
    x[[7, 40]] = [0.5, 2.5]                                  # to even, or up if they are a bit larger
    np.save(folder / "x.npy", x)
    np.save(folder / "middles.npy", np.full(64, 2.5, np.float32))
    for name, more in (("a.onnx", {}), ("b.onnx", {"factor": 1.000001}), ("c.onnx", {"factor": 1.5}), ("d.onnx", {"scale": 0.5}),
                       ("e.onnx", {"factor": 0.999999})):
        rounding(folder, name, **more)
    said = tgc(folder, "verify", "a.onnx", "b.onnx", "-i", "x=x.npy", status=3).out.decode()
    expect("MISMATCH y" in said and "--value '*'" in said, f"what grows of a rounding is not explained:\n{said}")
    said = tgc(folder, "verify", "a.onnx", "b.onnx", "-i", "x=x.npy", "--value", "*").out.decode()
    expect("ok       q: u8[64]: 2 of 64 elements are rounded to the neighbour, one step away" in said, said)
    expect("rounded to integers: 2 values, from which both models go on alike; 2 of" in said and "values inside: 5 agree, 0 differ\n" in said, said)
    said = tgc(folder, "verify", "a.onnx", "b.onnx", "-i", "x=middles.npy", "--value", "*", status=3).out.decode()
    expect("MISMATCH q" in said and "64 of 64" in said and "too many" in said, f"a rounding that is done otherwise is none:\n{said}")
    said = tgc(folder, "verify", "a.onnx", "c.onnx", "-i", "x=x.npy", "--value", "*", status=3).out.decode()
    expect("first to differ: h, made by node 0 'scale' (Mul)" in said and "ok       d" in said and "ok       y" in said, said)
    said = tgc(folder, "verify", "a.onnx", "d.onnx", "-i", "x=x.npy", "--value", "*", status=3).out.decode()
    expect("first to differ: q, made by node 1 'round' (QuantizeLinear)" in said and "ok       h" in said, said)
    for name in "be":                                       # text graphs, too
        tgc(folder, f"{name}.onnx", "-o", f"{name}.tg")
    said = tgc(folder, "verify", "b.tg", "e.tg", "-i", "x=x.npy", "--value", "*").out.decode()
    expect("ok       1: f32[64]: 2 of 64 elements are rounded to the neighbour" in said and "ok       5: u8[64]: equal" in said, said)
    tgc(folder, "verify", "b.tg", "e.tg", "-i", "x=x.npy", status=3)


@case("--value: names that cannot be, and values that do not fit")
def _(folder):
    layers(folder)
    for name, why in (("h22", "is 'h2' meant?"), ("nothing", "--value '*' lists all"), ("x", "is an input"), ("w1", "is a weight"),
                      ("q*", "no value of the graph has such a name")):
        said = tgc(folder, "run", "a.onnx", "--value", name, status=1).err
        expect("a.onnx: error: --value" in said and why in said, f"{name}: {said}")
    tgc(folder, "run", "a.onnx", "--value=", status=2)
    expect("--value" in tgc(folder, "verify", "a.onnx", "--data", ".", "--value=h1", status=2).err, "--data and --value")
    body = onnx.helper.make_graph([G.node("Identity", ["c"], ["c2"]), G.node("Mul", ["v", "v"], ["inside"], name="square")], "body",
                                  [G.value("i", [], onnx.TensorProto.INT64), G.value("c", [], onnx.TensorProto.BOOL), G.value("v", [2])],
                                  [G.value("c2", [], onnx.TensorProto.BOOL), G.value("inside", [2])])
    nodes = [G.node("Loop", ["n", "", "x"], ["l"], name="again", body=body), G.node("SequenceConstruct", ["l", "x"], ["s"]),
             G.node("SequenceAt", ["s", "k"], ["m"]), G.node("Neg", ["m"], ["y"])]
    model = G.model(nodes, [G.value("x", [2])], [G.value("y", [2])],
                    [G.weight("n", np.array(3, np.int64)), G.weight("k", np.array(0, np.int64))])
    onnx.save(model, folder / "loop.onnx")
    said = tgc(folder, "run", "loop.onnx", "--value=inside", status=1).err
    expect("node 0 'again' (Loop), body: node 1 'square' (Mul) makes it, in a subgraph" in said, said)
    expect("its tensors are 's[0]' to 's[1]'" in tgc(folder, "run", "loop.onnx", "--value=s", status=1).err, "a sequence")
    expect("l: f32[2]" in tgc(folder, "run", "loop.onnx", "--value=*").out.decode(), "a loop's result is a value")
    (folder / "loop.tg").write_text("tg 1\ninput %x : f32[2]\n%y = loop %i < 3 carry(%v = %x) {\n    %inside = mul(%v, %v)\n"
                                    "    next(%inside)\n}\noutput %y\n")
    expect("line 4 defines it inside of a branch or a loop" in tgc(folder, "run", "loop.tg", "--value=inside", status=1).err, "a region")
    (folder / "clash.tg").write_text('tg 1\ninput %x : f32[2]\n%a = relu(%x)\n%b = neg(%a)\noutput %b as "a"\n')
    expect("another output has that name" in tgc(folder, "run", "clash.tg", "--value=a", status=1).err, "a clash")
    (folder / "state.tg").write_text("tg 1\ninput %h : f32[2]\ninput %x : f32[2]\n%g = add(%h, %x)\n%y = neg(%g)\noutput %g\noutput %y\n")
    expect("--state g=h" in tgc(folder, "run", "state.tg", "--state=g=h", "--value=g", status=1).err, "a state")
    (folder / "large.tg").write_text("tg 1\ninput %x : f32[8, 1000, 1000]\n%a = exp(%x)\n%b = neg(%a)\n%s = reduce_sum(%b) {axes=[1, 2]}\n"
                                     "output %s\n")
    said = tgc(folder, "run", "large.tg", "--value=*", "--max-memory=50M", status=1).err
    expect("the 2 values of --value take 61 MB" in said and "--max-memory" in said, said)


@case("bench and DEBUG=2 give each kernel's time; info and .json list kernels")
def _(folder):
    perceptron(folder)
    about = json.loads(tgc(folder, "info", "model.onnx", "--json").out)
    names = [k["name"] for k in about["kernel_list"]]
    expect(len(names) == about["kernels"] and sum(k["flop"] for k in about["kernel_list"]) == about["flop"], f"{about}")
    table = tgc(folder, "info", "model.onnx").out.decode()
    expect(all(re.search(rf"^ +{name} .* FLOP .* bytes .* <- ", table, re.M) for name in names), table)
    times = json.loads(tgc(folder, "bench", "model.onnx", "--json").out)["kernel_times"]
    expect([k["name"] for k in times] == names and abs(sum(k["share"] for k in times) - 1) < 1e-3, f"{times}")
    expect(all(k["us"] > 0 and k["gflops"] > 0 and k["gbytes_per_second"] > 0 for k in times), f"{times}")
    for command in (["run"], ["verify", "--other=-O0"]):
        said = tgc(folder, command[0], "model.onnx", *command[1:], env={"DEBUG": "2"}).err
        expect("GFLOP/s     GB/s" in said and re.search(rf"^ +[\d.]+ +[\d.]+% .* {names[0]} ", said, re.M), said)
    tgc(folder, "model.onnx", "-o", "m.json")
    view = json.loads((folder / "m.json").read_text())
    buffers = {b["id"]: b for b in view["buffers"]}
    expect([s.split()[1] for s in view["steps"] if s.startswith("run ")] == names, f"{view['steps']}")
    for kernel in view["kernel_list"]:
        for edge in (*kernel["reads"], *kernel["writes"]):
            b = buffers[edge["buffer"]]
            expect(b["first_step"] <= names.index(kernel["name"]) <= b["last_step"], f"{kernel}: {b}")
    for b in buffers.values():
        expect(b["kind"] not in ("temp", "state") or b["offset"] + b["bytes"] <= view["arena_bytes"], f"{b}")


@case("DEBUG=1 gives the number of kernels, the time of each stage, and that of all of them")
def _(folder):
    perceptron(folder)
    by_c, by_llvm = ["emit C", "C compiler"], ["LLVM"] if T.has_llvm(TGC) else ["emit C", "C compiler"]
    for command, stages in ((["model.onnx", "-o", "m.c"], ["emit C"]), (["model.onnx", "-o", "m.so"], by_c),
                            (["run", "model.onnx", "--target=c"], [*by_c, "run"]), (["run", "model.onnx"], [*by_llvm, "run"]),
                            (["run", "model.onnx", "--steps=3"], [*by_llvm, "3 runs"]), (["bench", "model.onnx"], by_llvm)):
        said = tgc(folder, *command, env={"DEBUG": "1"}).err
        lines = re.findall(r"^(\w[\w ]*?) +([0-9.]+) ms +[0-9.]+ MB$", said, re.M)
        expect([name for name, _ in lines] == ["load", "lower to UOps", "schedule", *stages, "total"], f"{command}:\n{said}")
        expect(sum(float(ms) for _, ms in lines[:-1]) <= float(lines[-1][1]) + 0.01, f"more than the total:\n{said}")
        expect(re.search(r"^\d+ kernels, arena \d+ bytes", said, re.M), said)
    expect(not tgc(folder, "model.onnx", "-o", "m.c").err, "said without being asked")


@case("DEBUG=3 prints kernels alone, DEBUG=4 what a pass changed")
def _(folder):
    perceptron(folder)
    text = tgc(folder, "model.onnx", "-o", "m.c", env={"DEBUG": "3"}).err
    expect("restrict" in text and "m_run(" not in text and "unsigned char byte" not in text, text[-2000:])
    text = tgc(folder, "model.onnx", "-o", "m.c", env={"DEBUG": "4"}).err
    titles = re.findall(r"^\*\*\* (.*)", text, re.M)
    expect(titles[0] == "graph after the frontend" and all(": what changed" in x for x in titles if x.startswith("graph") and x != titles[0]),
           f"{titles}")
    expect(not re.search(r"what changed\n\*\*\*", text), "a pass that changed nothing is shown")


# --------------------------------------------------------------------------------------- weights


def product(folder, n, name="model.onnx"):
    w = np.random.default_rng(0).standard_normal((n, n)).astype(np.float32)
    onnx.save(G.model([G.node("MatMul", ["x", "w"], ["y"])], [G.value("x", [1, n])], [G.value("y", [1, n])],
                      [G.weight("w", w)]), folder / name)
    return w


@case("weights are ASCII, 2.9 characters a byte, whatever their bytes are, and no compiler warns")
def _(folder):
    # every value of 16 bits, and each one that is written as an escape before a digit of any kind
    units = list(range(1 << 16)) + [u for c in (0, 1, 7, 0x7f, 0x9f, 0x200b, 0xd800, 0xdfff, 0xfeff, 0xffff)
                                    for d in "09afAFg?\"" for u in (c, ord(d))]
    units = np.array(units + [0] * (len(units) % 2), "<u2")
    w = np.frombuffer(units.tobytes() + bytes([1, 2, 3, 4]), np.int32)
    i8 = np.frombuffer(w.tobytes()[:999], np.int8)
    onnx.save(G.model([G.node("Add", ["x", "w"], ["y"]), G.node("Add", ["a", "b"], ["c"])],
                      [G.value("x", w.shape, onnx.TensorProto.INT32), G.value("a", i8.shape, onnx.TensorProto.INT8)],
                      [G.value("y", w.shape, onnx.TensorProto.INT32), G.value("c", i8.shape, onnx.TensorProto.INT8)],
                      [numpy_helper.from_array(w, "w"), numpy_helper.from_array(i8, "b")], opset=14), folder / "m.onnx")
    T.emit(TGC, folder / "m.onnx", folder / "m.c", "--cpu=generic")
    size = (folder / "m.c").stat().st_size
    T.emit(TGC, folder / "m.onnx", folder / "beside.c", "--cpu=generic", "--weights=incbin", "--name=m")
    density = (size - (folder / "beside.c").stat().st_size) / (w.nbytes + i8.nbytes)
    expect(density < 2.95, f"{density:.2f} characters a byte")
    expect((folder / "m.c").read_bytes().isascii() and max(map(len, (folder / "m.c").read_text().splitlines())) < 200, "nobody can open it")
    for compiler in ("gcc", "clang"):
        T.build(folder / "m.c", folder / "m", compiler=compiler, flags=("-O1",))
        outputs = T.Program(folder / "m", ["y", "c"]).run([np.zeros_like(w), np.zeros_like(i8)])
        expect(np.array_equal(outputs["y"], w) and np.array_equal(outputs["c"], i8), f"{compiler} reads other weights")
    T.must(T.run(["gcc", "-finput-charset=latin1", "-fsyntax-only", "m.c"], cwd=folder))


@case("-Os: no names and texts but where NAME_STRINGS is defined; the library that tools load has them")
def _(folder):
    onnx.save(G.model([G.node("Conv", ["picture", "w"], ["c"], name="first_convolution", pads=[1, 1, 1, 1]), G.node("Relu", ["c"], ["scores"])],
                      [G.value("picture", [1, 8, 28, 28])], [G.value("scores", [1, 16, 28, 28])],
                      [G.weight("w", np.random.default_rng(4).standard_normal((16, 8, 3, 3)).astype(np.float32))]), folder / "model.onnx")
    tgc(folder, "model.onnx", "-o", "net.c", "-Os")
    nbytes = {}
    for words in ((), ("-DNET_STRINGS",)):
        T.must(T.run(["gcc", "-std=c11", *T.WARNINGS, "-Os", *words, "-c", "net.c", "-o", "net.o"], cwd=folder))
        text = (folder / "net.o").read_bytes().split(b".symtab")[0]
        has = [b"picture" in text, b"first_convolution" in text, b"an input's pointer is NULL" in text]
        expect(all(has) if words else not any(has), f"{words}: {has}")
        defined = b" T net_describe" in T.must(T.run(["nm", "net.o"], cwd=folder)).out
        expect(defined == bool(words), f"{words}: net_describe() is {'' if defined else 'not '}there")
        nbytes[words] = (folder / "net.o").stat().st_size
    expect(nbytes[()] < nbytes[("-DNET_STRINGS",)] - 1000, f"{nbytes}")
    for name in ("net.h", "net.c"):
        text = (folder / name).read_text()
        expect("-DNET_STRINGS" in text and "MODEL_" not in text, f"{name} does not say so")
    T.must(T.run(["gcc", "-O1", *T.WARNINGS, "-DNET_MAIN", "net.c", "-o", "net", "-lm"], cwd=folder))
    T.must(T.run(["./net", "--selftest"], cwd=folder))
    tgc(folder, "model.onnx", "-o", "net.so", "-Os", "--target=c")
    expect(b" T net_describe" in T.must(T.run(["nm", "net.so"], cwd=folder)).out, "the library does not say what it is")
    tgc(folder, "run", "model.onnx", "-Os", "--target=c")


@case("--main: the program around the model is a file of its own")
def _(folder):
    product(folder, 40)
    tgc(folder, "model.onnx", "-o", "net.c", "--main=run.c", "--cpu=generic")
    text = (folder / "net.c").read_text()
    expect("NET_MAIN" not in text and "selftest" not in text and "stdio" not in text, "net.c has a part of it")
    command = re.search(r"cc -O2 (net.c run.c -o net) ", text)
    expect(command, text[:600])
    for compiler in ("gcc", "clang"):
        T.must(T.run([compiler, "-std=c11", *T.WARNINGS, "-O1", *command[1].split(), "-lm"], cwd=folder))
        T.must(T.run(["./net", "--selftest"], cwd=folder))
    tgc(folder, "model.onnx", "-o", "net.c", "--main=run.c", "-Os")
    command = re.search(r"cc -O2 (-DNET_STRINGS net.c run.c -o net) ", (folder / "net.c").read_text())
    T.must(T.run(["gcc", "-std=c11", *command[1].split(), "-lm"], cwd=folder))
    T.must(T.run(["./net", "--selftest"], cwd=folder))
    for words in (("-o", "net.so", "--main=run.c"), ("-o", "-", "--emit=c", "--main=run.c"), ("-o", "net.c", "--main=net.c"),
                  ("-o", "net.c", "--main=-"), ("-o", "net.c", "--main=run.c", "--train", "--loss=mse")):
        tgc(folder, "model.onnx", *words, status=2)


SELFTEST = """#include "net.h"
#include <stdalign.h>
static alignas(64) unsigned char memory[NET_SELFTEST_BYTES];
static alignas(64) unsigned char weights[1 << 20];
int main(int argc, char **argv)
{
    (void)argv;
    const net_options options = {.weights = weights, .weights_bytes = sizeof weights};
    if (net_selftest(memory, sizeof memory, NULL) == NET_NO_REFERENCE)
        return NET_NO_REFERENCE;
    if (net_selftest(NULL, sizeof memory, NULL) != NET_NULL_ARGUMENT || net_selftest(memory + 1, sizeof memory, NULL) != NET_ARENA_MISALIGNED ||
        net_selftest(memory, sizeof memory - 1, NULL) != NET_ARENA_TOO_SMALL)
        return 99;
    return net_selftest(memory, sizeof memory, argc > 1 ? &options : NULL);
}
"""


@case("NAME_selftest() compares without files or printing; wrong weights are found")
def _(folder):
    product(folder, 40)
    (folder / "test.c").write_text(SELFTEST)
    flags = ["-std=c11", *T.WARNINGS, "-O1", "-DNET_SELFTEST"]

    def outcome(*words, sources=("net.c",), run=()):
        tgc(folder, "model.onnx", "-o", "net.c", *words)
        T.must(T.run(["gcc", *flags, *sources, "test.c", "-o", "test", "-lm"], cwd=folder))
        return T.run(["./test", *run], cwd=folder).status

    for words in ((), ("--cpu=generic",), ("-Os",)):
        expect(outcome(*words) == 0, f"{words}")
    undefined = T.must(T.run(["nm", "-u", "test"], cwd=folder)).out.decode()
    expect(not re.search(r"printf|malloc|fopen", undefined), undefined)
    expect(outcome("--main=run.c", sources=("net.c", "run.c")) == 0, "--main")
    wrong, none = 26, 27
    expect(outcome("--weights=file", run=["zeros"]) == wrong, "weights of 0 are right")
    expect(outcome("--vectors=never") == none, "a reference that is not there")
    tgc(folder, "model.onnx", "-o", "net.so")
    expect("selftest" not in (folder / "net.h").read_text(), "a library has none")


@case("NAME_selftest(): sizes of the run, results of unknown size, states, entries")
def _(folder):
    models = {"sizes": ("input %x : f32[B<=5, 3] as \"x\"\n%y = exp(%x)\noutput %y as \"y\"\n", []),
              "states": ("input %s : f32[3] as \"s\"\ninput %x : f32[3] as \"x\"\n%y = add(%s, %x)\n%z = exp(%y)\noutput %y as \"y\"\noutput %z as \"z\"\n", ["--state=y=s"]),
              "entries": ("entry \"a\" {\ninput %x : f32[3] as \"x\"\n%y = exp(%x)\noutput %y as \"y\"\n}\n"
                          "entry \"b\" {\ninput %x : i8[2] as \"x\"\n%y = neg(%x)\noutput %y as \"y\"\n}\n", [])}
    for name, (text, words) in models.items():
        place = T.scratch(folder / name)
        (place / "net.tg").write_text("tg 1\n" + text)
        (place / "test.c").write_text(SELFTEST)
        tgc(place, "net.tg", "-o", "net.c", "--cpu=generic", *words)
        for compiler in ("gcc", "clang"):
            T.must(T.run([compiler, "-std=c11", *T.WARNINGS, *T.SANITIZE, "-DNET_SELFTEST", "net.c", "test.c", "-o", "test", "-lm"], cwd=place))
            T.must(T.run(["./test"], cwd=place))


@case("the program around the model has only what the model needs")
def _(folder):
    product(folder, 8)
    tgc(folder, "model.onnx", "-o", "net.c", "--cpu=generic")
    text = (folder / "net.c").read_text()
    expect(not re.search(r"//\?|utf8|fit_size|find_entry|extend_sign|set_symbol|--entry|STATE_FULL", text.partition("#ifdef NET_MAIN")[2]),
           "it has parts for other models")
    onnx.save(G.model([G.node("Relu", ["x"], ["y"])], [G.value("x", ["n", 3])], [G.value("y", ["n", 3])]), folder / "m.onnx")
    tgc(folder, "m.onnx", "-o", "net.c", "--cpu=generic", "--dim=n=..9")
    expect("fit_sizes" in (folder / "net.c").read_text(), "it cannot find dimensions")


@case("the section of the weights is the caller's choice, in every form of them")
def _(folder):
    product(folder, 40)
    for form in ("string", "array", "incbin"):
        tgc(folder, "model.onnx", "-o", "net.c", f"--weights={form}", "--cpu=generic")
        expect("NET_WEIGHTS_SECTION" in (folder / "net.h").read_text(), "the header does not say so")
        T.must(T.run(["gcc", "-O1", "-DNET_MAIN", "-DNET_WEIGHTS_SECTION=\".flash\"", "net.c", "-o", "net", "-lm"], cwd=folder))
        sections = T.must(T.run(["readelf", "-SW", "net"], cwd=folder)).out.decode()
        expect(re.search(r" \.flash +PROGBITS", sections), f"{form}: {sections}")
        T.must(T.run(["./net", "--selftest"], cwd=folder))


@case("--vectors: a self-test of whatever size, or none")
def _(folder):
    product(folder, 64, "small.onnx")
    tgc(folder, "small.onnx", "-o", "net.c", "--vectors=never")
    expect("selftest_why" in (folder / "net.c").read_text(), "vectors though nobody wants them")
    weight = G.weight("w", np.random.default_rng(3).standard_normal((40, 3, 3, 3)).astype(np.float32))
    onnx.save(G.model([G.node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])], [G.value("x", [1, 3, 90, 110])],
                      [G.value("y", [1, 40, 90, 110])], [weight]), folder / "large.onnx")
    for mode, count in (("auto", 0), ("always", 1)):
        tgc(folder, "large.onnx", "-o", "net.c", f"--vectors={mode}", "--cpu=generic")
        expect(("selftest_output_0[" in (folder / "net.c").read_text()) == count, f"{mode}: not {count}")
    T.must(T.run(["gcc", "-O1", "-DNET_MAIN", "net.c", "-o", "net", "-lm"], cwd=folder))
    T.must(T.run(["./net", "--selftest"], cwd=folder))
    tgc(folder, "small.onnx", "-o", "net.c", "--vectors=some", status=2)
    onnx.save(G.model([G.node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]), G.node("Relu", ["c"], ["r"]),
                       G.node("Conv", ["r", "v"], ["d"]), G.node("GlobalAveragePool", ["d"], ["y"])], [G.value("x", [1, 3, 224, 224])],
                      [G.value("y", [1, 40, 1, 1])], [weight, G.weight("v", np.full((40, 40, 1, 1), 1 / 40, np.float32))]), folder / "deep.onnx")
    tgc(folder, "deep.onnx", "-o", "net.c", "--cpu=generic")
    expect("selftest_output_0[" in (folder / "net.c").read_text(), "a network that reads its weights often has no vectors")


@case("a large C file says once what makes it small; large weights have a self-test")
def _(folder):
    product(folder, 2900)
    done = tgc(folder, "model.onnx", "-o", "net.c", "--weights=string", "--cpu=generic")
    expect(done.err.count("--weights=incbin") == 1 and done.err.startswith("net.c: note: "), done.err)
    expect(not tgc(folder, "model.onnx", "-o", "net.c", "--weights=incbin", "--cpu=generic").err, "a note without need")
    text = (folder / "net.c").read_text()
    expect("selftest_output_0[" in text, "no reference vectors")
    expect("the end of this file" not in text and "which net.weights holds" in text, "where the numbers are")


@case("of --dim and --shape given twice for one name the last one counts")
def _(folder):
    onnx.save(G.model([G.node("Relu", ["x"], ["y"])], [G.value("x", ["n", 3])], [G.value("y", ["n", 3])]), folder / "m.onnx")
    tgc(folder, "m.onnx", "-o", "net.c", "--dim", "n<=9")
    wanted = (folder / "net.c").read_bytes()
    for before in ("n<=9", "n=4", "n=..5"):
        tgc(folder, "m.onnx", "-o", "net.c", "--dim", before, "--dim", "n<=9")
        expect((folder / "net.c").read_bytes() == wanted, f"{before} before n<=9")
    done = tgc(folder, "run", "m.onnx", "--shape", "x=4x3", "--shape", "x=2x3")
    expect(b"f32[2,3]" in done.out, done.out)


# --------------------------------------------------------------------------------------- licence


@case("the head of what is emitted says that it is its user's; so do LICENSE and the runtime's sources")
def _(folder):
    perceptron(folder)
    tgc(folder, "model.onnx", "-o", "net.c")
    for name in ("net.c", "net.h"):
        head = (folder / name).read_text().partition("*/")[0]
        expect("without obligation" in head and "0BSD" in head, f"{name} begins with\n{head}")
    expect("0BSD" in (T.ROOT / "LICENSE").read_text() and "0BSD" in (T.ROOT / "README.md").read_text(), "no licence of the output")
    for source in (T.ROOT / "runtime").rglob("*.c"):
        tagged = "SPDX-License-Identifier: 0BSD" in source.read_text().split("\n")[0]
        expect(tagged or source.name in ("embed.c", "taken.c"), f"{source.name} has no SPDX line")


# ------------------------------------------------------------------------------------ completion


def shell(name):
    found = shutil.which(name)
    if not found:
        raise Skip(f"{name} is not installed")
    return found


# What is typed, and what the last word may become.
COMPLETED = (("be", "bench"), ("verify --rt", "--rtol="), ("m.onnx -o x.c --cpu=gen", "generic"), ("m.onnx --weights=inc", "incbin"),
             ("m.onnx --emit=uo", "uops"), ("m.onnx --target=o", "opencl"), ("m.onnx -x on", "onnx"), ("run mod", "model.onnx"),
             ("help ver", "verify"), ("m.onnx --tune=mo", "model.onnx"), ("m.onnx --no-wi", "--no-winograd"))


@case("bash completes commands, options, values and files")
def _(folder):
    perceptron(folder)
    (folder / "c.bash").write_bytes(tgc(folder, "--completion=bash").out)
    script = ("source ./c.bash; line=$1; COMP_LINE=$line; read -ra COMP_WORDS <<< \"${line//=/ = }\"; "
              "[[ $line == *= ]] && COMP_WORDS+=('') && unset 'COMP_WORDS[-1]'; COMP_CWORD=$((${#COMP_WORDS[@]}-1)); "
              "_tgc; printf '%s\\n' \"${COMPREPLY[@]}\"")
    for typed, wanted in COMPLETED:
        done = T.must(T.run([shell("bash"), "--norc", "-c", script, "bash", f"tgc {typed}"], cwd=folder))
        expect(wanted in done.out.decode().split("\n"), f"{typed!r}: {done.out.decode()!r}, {done.err}")
    done = T.must(T.run([shell("bash"), "--norc", "-c", script, "bash", "tgc bench --o"], cwd=folder))
    expect("--out-dir=" not in done.out.decode(), "bench does not take --out-dir")


@case("fish completes commands, options, values and files")
def _(folder):
    perceptron(folder)
    (folder / "c.fish").write_bytes(tgc(folder, "--completion=fish").out)
    env = {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    lines = "".join(f"echo -n; complete -C 'tgc {typed}'; echo ----\n" for typed, _ in (*COMPLETED, ("bench --o", None)))
    done = T.must(T.run([shell("fish"), "--no-config", "-c", f"source c.fish\n{lines}"], cwd=folder, env=env))
    answers = done.out.decode().split("----\n")
    for (typed, wanted), answer in zip(COMPLETED, answers):
        offered = {line.split("\t")[0] for line in answer.splitlines()}
        expect(any(word.rstrip("=").endswith(wanted.rstrip("=")) for word in offered), f"{typed!r}: {answer!r}")
    expect("--out-dir" not in answers[len(COMPLETED)], "bench does not take --out-dir")


def type_into(command, cwd, env, lines, prompt, seconds=20):
    """What a program on a terminal of its own prints, each line typed once it asks for it."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(cwd)
        os.execvpe(command[0], command, env)
    shown, end = b"", time.monotonic() + seconds
    for asked, line in enumerate(lines, 1):
        while shown.count(prompt.encode()) < asked and time.monotonic() < end:
            if select.select([terminal], [], [], 0.2)[0]:
                shown += os.read(terminal, 65536)
        os.write(terminal, line.encode())
    try:
        while time.monotonic() < end:
            shown += os.read(terminal, 65536)
    except OSError:  # it has ended
        pass
    os.close(terminal)
    os.waitpid(pid, 0)
    return shown.decode(errors="replace")


@case("zsh completes commands, options, values and files")
def _(folder):
    perceptron(folder)
    zsh = shell("zsh")
    (folder / "_tgc").write_bytes(tgc(folder, "--completion=zsh").out)
    (folder / "start").write_text("PS1='type'': '; fpath=($PWD $fpath); autoload -U compinit; compinit -u -d ./dump; setopt no_beep no_list_beep\n"
                                  "tgc() { print -r -- \"<${(j:|:)@}>\" }\n")
    env = {**os.environ, "HOME": str(folder), "TERM": "dumb"}
    lines = [". ./start\n", *(f"tgc {line}\t\n" for line, _ in COMPLETED), "exit\n"]
    shown = type_into([zsh, "-f", "-i"], folder, {**env, "PS1": "type: "}, lines, "type: ")
    got = re.findall(r"^<(.*)>\r?$", shown, re.M)
    expect(len(got) == len(COMPLETED), f"{len(got)} answers:\n{shown}")
    for (line, wanted), answer in zip(COMPLETED, got):
        expect(answer.split("|")[-1].rstrip("=").endswith(wanted.rstrip("=")), f"{line!r}: {answer!r}")


def on_terminal(folder, *arguments, env):
    """What tgc writes to stderr, which is a terminal."""
    ours, theirs = pty.openpty()
    child = subprocess.Popen([TGC, *arguments], cwd=folder, stdout=subprocess.DEVNULL, stderr=theirs, env={**os.environ, **env, "TERM": "xterm"})
    os.close(theirs)
    said = b""
    try:
        while piece := os.read(ours, 4096):
            said += piece
    except OSError:             # the other end is closed
        pass
    os.close(ours)
    expect(child.wait() == 0, said.decode())
    return said.decode()


@case("what takes long shows on a terminal how far it is, and leaves nothing there")
def _(folder):
    perceptron(folder)
    for command, more, words in (("bench", ["--target=c"], ["writing C", "compiling by cc", "measuring"]),
                                 ("run", [], ["compiling by"]), ("tune", ["-o", "m.tune"], ["[#", "s left"])):
        env = {**T.quickly(), **({"BEAM": "1"} if command == "tune" else {})}
        said = on_terminal(folder, command, "model.onnx", *more, env=env)
        for word in words:
            expect(word in said, f"{command} does not say '{word}': {said!r}")
        lines = said.split("\r\x1b[K")
        expect("\n" not in "".join(lines[:-1]) and not lines[-1].strip("\r\n"), f"{command} leaves something: {said!r}")
        quiet = tgc(folder, command, "model.onnx", *more, env=env)
        expect(quiet.err == "", f"{command} is not silent without a terminal: {quiet.err}")
        expect("compiling" not in on_terminal(folder, command, "model.onnx", *more, "-v", env=env), f"{command} -v says it twice")


def write_open_model(folder):
    """y = x * k + m, of open batches; k a scalar of integers, m a mask."""
    import onnx
    from onnx import TensorProto, helper
    value = helper.make_tensor_value_info
    nodes = [helper.make_node("Cast", ["k"], ["kf"], to=1), helper.make_node("Cast", ["m"], ["mf"], to=1),
             helper.make_node("Mul", ["x", "kf"], ["xk"]), helper.make_node("Add", ["xk", "mf"], ["y"])]
    graph = helper.make_graph(nodes, "g", [value("x", TensorProto.FLOAT, ["batch", 3]), value("k", TensorProto.INT64, []),
                                           value("m", TensorProto.BOOL, ["batch", 3])], [value("y", TensorProto.FLOAT, ["batch", 3])])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "m.onnx")


@case("-i gives a number, zeros, ones or random without a file")
def _(folder):
    write_open_model(folder)
    np.save(folder / "x.npy", np.arange(6, dtype=np.float32).reshape(2, 3))

    def ran(*words, status=0):
        done = T.must(T.run([TGC, "run", "m.onnx", "--out-dir", ".", *words], cwd=folder), status)
        return np.load(folder / "y.npy") if not status else done.err

    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(ran("-i", "x=x.npy", "-i", "k=16000", "-i", "m=ones"), x * 16000 + 1)
    np.testing.assert_array_equal(ran("-i", "x=ones", "-i", "k=-3", "-i", "m=0", "--dim", "batch=2"), np.full((2, 3), -3))
    np.testing.assert_array_equal(ran("-i", "x=0.5", "-i", "k=2", "-i", "m=zeros", "--shape", "x=4x3"), np.ones((4, 3)))
    np.testing.assert_array_equal(ran("-i", "x=x.npy", "-i", "k=zeros", "-i", "m=1", "--dim", "batch=..8"), np.ones((2, 3)))
    given = ran("-i", "x=random", "-i", "k=1", "-i", "m=0", "--dim", "batch=2")
    np.testing.assert_array_equal(given, ran("-i", "k=1", "-i", "m=0", "--dim", "batch=2"))
    np.save(folder / "ones", x + 5)
    (folder / "ones.npy").rename(folder / "ones")
    np.testing.assert_array_equal(ran("-i", "x=./ones", "-i", "k=1", "-i", "m=0"), x + 5)
    for word, *texts in (("k=1.5", "i64[]", "no such value"), ("m=2", "no such value"), ("k=99999999999999999999", "no such value"),
                         ("x=ones", "axis 0 of this input is open: 'batch'", "--dim"), ("z=ones", "no input 'z'")):
        said = ran("-i", word, status=1)
        expect(all(text in said for text in texts), f"-i {word}: {said}")
    T.must(T.run([TGC, "m.onnx", "-o", "m.c", "-MD", "-i", "x=x.npy", "-i", "k=3", "-i", "m=ones"], cwd=folder))
    expect((folder / "m.d").read_text() == "m.c: m.onnx x.npy\n", (folder / "m.d").read_text())


@case("bench says which sizes it has measured")
def _(folder):
    write_open_model(folder)
    np.save(folder / "x.npy", np.ones((5, 3), np.float32))
    for words, size in ((["--dim", "batch=..8"], 8), (["--dim", "batch=..8", "-i", "x=x.npy"], 5)):
        first = T.must(T.run([TGC, "bench", "m.onnx", *words], cwd=folder)).out.decode().splitlines()[0]
        expect(first.startswith(f"m at batch={size}: min "), first)
        said = json.loads(T.must(T.run([TGC, "bench", "m.onnx", "--json", *words], cwd=folder)).out)
        expect(said["sizes"] == {"batch": size}, str(said["sizes"]))
    first = T.must(T.run([TGC, "bench", "m.onnx", "--dim", "batch=4"], cwd=folder)).out.decode()
    expect(first.startswith("m: min "), first)


@case("a call within a call says that calls do not nest, at its place")
def _(folder):
    for line, column, name in (("%y = relu(add(%x, 1))", 11, "add"), ("%y = mul(%x, exp(%x))", 14, "exp")):
        (folder / "n.tg").write_text(f'tg 1\ngraph "n"\ninput %x : f32[2, 3]\n{line}\noutput %y as "y"\n')
        done = T.must(T.run([TGC, "n.tg", "-o", "-"], cwd=folder), 1)
        expect(done.err.startswith(f"n.tg:4:{column}: error: ") and
               f"calls do not nest: name the result, as in %h = {name}(...)" in done.err, done.err)


suite.main()
