"""The command line as a build system and an attacker meet it.

Exit statuses, what is printed where, depfiles, reproducible bytes; then the table of bad
inputs (bad_inputs.py) and hostile names, each within 512 MB and 10 s, with nothing left
behind and an older output untouched.
"""

import json
import os
import re
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "lib")]

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

import bad_inputs
import graphs as G
import tgc as T
from suite import Failure, Suite, expect

MEMORY = 512 << 20
SECONDS = 10

suite = Suite("cli")
OPTIONS = suite.parse()
TGC = T.find_tgc(OPTIONS.build).resolve()
SCRATCH = Path(OPTIONS.build).resolve() / "test-scratch" / "cli"
case = suite.folder_case(SCRATCH)


def tgc(folder, *arguments, status=0, **more):
    return T.must(T.run([TGC, *arguments], cwd=folder, **more), status)


def perceptron(folder, name="model.onnx"):
    model = G.perceptron()
    onnx.save(model, folder / name)
    return model


def files(folder):
    return sorted(path.name for path in folder.iterdir())


# ------------------------------------------------------------------------------- exit statuses


@case("--help prints the options and exits with 0")
def _(folder):
    done = tgc(folder, "--help")
    text = done.out.decode()
    for option in ("-o", "--dim", "--shape", "--emit", "--weights", "--name", "-MD", "-O0"):
        expect(option in text, f"{option} is not in --help")


@case("no tensor has the name of a macro of an emitted file")
def _(folder):
    """The macros are read from files of several kinds; a tensor of such a name has another one in C."""
    macros = set()
    for model in sorted((HERE.parents[1] / "models").glob("*.tg")):
        for options in ([], ["--threads=2", "--weights=incbin"], ["--cpu=amx"], ["--target=opencl"]):
            tgc(folder, model, "-o", "qq.c", "--name=qq", "--vectors=never", *options)
            macros |= set(re.findall(r"(?m)^ *# *define (\w+)", (folder / "qq.c").read_text()))
    macros = sorted(name for name in macros if not re.match(r"(?i)qq_|_|restrict$", name))
    expect({"KEEP_LOOP", "IN_f32x8"} <= set(macros), f"{macros}")
    lines = [f"input %{name} : f32[8]\n%v{i} = exp(%{name})\noutput %v{i} as \"{name}_\"\n" for i, name in enumerate(macros)]
    (folder / "names.tg").write_text('tg 1\ngraph "g"\n' + "".join(lines))
    tgc(folder, "names.tg", "-o", "names.c")
    fields = re.findall(r"\*(\w+); ", (folder / "names.h").read_text())
    expect({f"{name}_2" for name in macros} <= set(fields) and not set(fields) & set(macros), f"{fields}")


@case("--version names the version and exits with 0")
def _(folder):
    expect(re.search(rb"tgc \d+\.\d+", tgc(folder, "--version").out), "no version in --version")
    for path, found in ((os.environ["PATH"], shutil.which("ld.lld") is not None), (str(folder), False)):
        line = re.search(r"^ld\.lld: (.*)$", T.must(T.run([TGC, "--version"], env={"PATH": path})).out.decode(), re.M)
        expect(line and (line[1].startswith("ld.lld") or not found) and (found or line[1].startswith("none: ")), f"{line}")


@case("no arguments is wrong usage")
def _(folder):
    expect(tgc(folder, status=2).err.strip(), "nothing said on standard error")


@case("an unknown option is wrong usage and is named")
def _(folder):
    perceptron(folder)
    done = tgc(folder, "model.onnx", "-o", "m.c", "--frobnicate", status=2)
    expect("--frobnicate" in done.err, f"the option is not named: {done.err}")
    expect(files(folder) == ["model.onnx"], f"files were left: {files(folder)}")


@case("an option without its value is wrong usage")
def _(folder):
    perceptron(folder)
    tgc(folder, "model.onnx", "-o", status=2)


@case("an unknown kind of output is wrong usage")
def _(folder):
    perceptron(folder)
    done = tgc(folder, "model.onnx", "-o", "model.docx", status=2)
    expect("docx" in done.err, f"the extension is not named: {done.err}")


@case("a missing model is an error that names it")
def _(folder):
    done = tgc(folder, "gone.onnx", "-o", "m.c", status=1)
    expect("gone.onnx" in done.err, f"the file is not named: {done.err}")


@case("a folder as model is an error that names it")
def _(folder):
    (folder / "sub.onnx").mkdir()
    done = tgc(folder, "sub.onnx", "-o", "m.c", status=1)
    expect("sub.onnx" in done.err, f"the file is not named: {done.err}")


@case("an output folder that is missing is an error that names it")
def _(folder):
    perceptron(folder)
    done = tgc(folder, "model.onnx", "-o", "no/such/m.c", status=1)
    expect("no/such" in done.err, f"the folder is not named: {done.err}")
    expect(files(folder) == ["model.onnx"], f"files were left: {files(folder)}")


@case("verify exits with 0 on a match and 3 on a mismatch")
def _(folder):
    model = perceptron(folder)
    x = np.linspace(-1, 1, 8, dtype=np.float32)[None]
    y = G.perceptron_reference(model, x)
    (folder / "data").mkdir()
    (folder / "data" / "input_0.pb").write_bytes(numpy_helper.from_array(x).SerializeToString())
    (folder / "data" / "output_0.pb").write_bytes(numpy_helper.from_array(y).SerializeToString())
    tgc(folder, "verify", "model.onnx", "--data", "data")
    wrong = numpy_helper.from_array(y + np.float32(0.1))
    (folder / "data" / "output_0.pb").write_bytes(wrong.SerializeToString())
    done = tgc(folder, "verify", "model.onnx", "--data", "data", status=3)
    expect("y" in done.out.decode() + done.err, "the output is not named")


@case("verify measures errors by the largest output, and finds a weight that is wrong by 1 %")
def _(folder):
    model = perceptron(folder)
    x = np.linspace(-1, 1, 8, dtype=np.float32)[None]
    y = G.perceptron_reference(model, x)
    np.save(folder / "input_0.npy", x)
    np.save(folder / "output_0.npy", y + np.abs(y).max() * np.float32(1e-4))
    done = tgc(folder, "verify", "model.onnx", "--data", ".")
    expect(b"0.0001 of the largest element" in done.out, f"it said: {done.out!r}")
    tgc(folder, "verify", "model.onnx", "--data", ".", "--rtol=1e-5", status=3)
    np.save(folder / "output_0.npy", y)
    for weight in [w for w in model.graph.initializer if len(w.dims) > 1]:
        right = weight.SerializeToString()
        weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight) * np.float32(1.01), weight.name))
        onnx.save(model, folder / "wrong.onnx")
        tgc(folder, "verify", "wrong.onnx", "--data", ".", status=3)
        weight.ParseFromString(right)


@case("a model and its data behind links into one cache are compiled; other links are refused")
def _(folder):
    model = perceptron(folder)
    for path in ("blobs", "snapshots/1", "elsewhere"):
        (folder / path).mkdir(parents=True)
    onnx.save(model, folder / "blobs" / "m.onnx", save_as_external_data=True, location="m.onnx_data", size_threshold=0)
    for name, blob in (("m.onnx", "0a"), ("m.onnx_data", "0b")):
        (folder / "blobs" / name).rename(folder / "blobs" / blob)
        (folder / "snapshots" / "1" / name).symlink_to(f"../../blobs/{blob}")
    tgc(folder, "snapshots/1/m.onnx", "-o", "m.c")
    (folder / "blobs" / "0b").rename(folder / "elsewhere" / "0b")
    (folder / "snapshots" / "1" / "m.onnx_data").unlink()
    (folder / "snapshots" / "1" / "m.onnx_data").symlink_to("../../elsewhere/0b")
    done = tgc(folder, "snapshots/1/m.onnx", "-o", "m.c", status=1)
    expect("cp -rL snapshots/1 DIR" in done.err, f"no cure: {done.err}")
    T.must(T.run(["cp", "-rL", "snapshots/1", "copy"], cwd=folder))
    tgc(folder, "copy/m.onnx", "-o", "m.c")


# --------------------------------------------------------------------------- what is written


@case("compile writes a C file and a header and says nothing")
def _(folder):
    perceptron(folder)
    done = tgc(folder, "model.onnx", "-o", "net.c")
    expect(files(folder) == ["model.onnx", "net.c", "net.h"], f"files: {files(folder)}")
    expect(not done.out and not done.err, f"it said: {done.out!r} {done.err!r}")
    header = (folder / "net.h").read_text()
    for word in ("NET_ARENA_BYTES", "net_init", "net_run", "net_close", "net_strerror",
                 "net_describe", "net_inputs", "net_outputs", "net_options"):
        expect(word in header, f"{word} is not in the header")


@case("the subcommand compile is the default")
def _(folder):
    perceptron(folder)
    tgc(folder, "compile", "model.onnx", "-o", "net.c")
    first = (folder / "net.c").read_bytes()
    tgc(folder, "model.onnx", "-o", "net.c")
    expect((folder / "net.c").read_bytes() == first, "the two differ")


@case("-o - writes the C file to standard output")
def _(folder):
    perceptron(folder)
    done = tgc(folder, "model.onnx", "--emit=c", "--name", "net", "-o", "-")
    expect(b"net_run" in done.out, "no net_run in the output")
    expect(files(folder) == ["model.onnx"], f"files were left: {files(folder)}")


@case("the model comes from standard input with -x onnx")
def _(folder):
    perceptron(folder)
    with open(folder / "model.onnx", "rb") as stdin:
        tgc(folder, "-x", "onnx", "-", "-o", "net.c", stdin=stdin)
    expect("net.c" in files(folder), "no net.c")


@case("options come from a file with @FILE")
def _(folder):
    perceptron(folder)
    (folder / "options").write_text("-o net.c\n--name other\n")
    tgc(folder, "model.onnx", "@options")
    expect("other_run" in (folder / "net.c").read_text(), "--name of the file had no effect")


@case("the same model gives the same bytes in any folder, twice, by any path")
def _(folder):
    outputs = []
    for number, name in enumerate(["a", "a", "b/deeper", "c d"]):
        place = folder / name
        place.mkdir(parents=True, exist_ok=True)
        perceptron(place)
        path = "model.onnx" if number % 2 == 0 else place / "model.onnx"
        env = {"LC_ALL": "C" if number % 2 else "C.UTF-8", "TZ": f"UTC+{number}",
               "TGC_TEST_PADDING": "x" * 1000 * number}
        tgc(place, path, "-o", "net.c", env=env)
        outputs.append(((place / "net.c").read_bytes(), (place / "net.h").read_bytes()))
    for number, output in enumerate(outputs):
        expect(output == outputs[0], f"output {number} differs")
        expect(str(folder).encode() not in output[0], "the path stands in the output")


@case("--cpu of an unknown name: what the target has, or what all have")
def _(folder):
    perceptron(folder)
    rows = {"cuda": "sm_80", "amd": "gfx90a", "metal": "m1", "opencl": "adreno630", "c": "avx512"}
    for target in (*rows, None):
        for words in (["--cpu=abacus", f"--target={target}"], [f"--target={target}", "--cpu=abacus"], ["--cpu=abacus"])[slice(2) if target else slice(2, 3)]:
            said = tgc(folder, "model.onnx", "-o", "m.c", *words, status=2).err
            known = re.search(r"--cpu=abacus is not known; (?:known are|--target=\w+ has) (.*)", said)
            expect(known, said)
            for other, row in rows.items():
                expect((row in re.split("[ ,]+", known.group(1))) == (target in (other, None)), f"{words}: {said}")
    for wrong, near in (("cortexm4", "cortex-m4 "), ("cortex-m34", "cortex-m33 cortex-m35p cortex-m3 "), ("haswel", "haswell")):
        said = tgc(folder, "model.onnx", "-o", "m.c", f"--cpu={wrong}", status=2).err
        expect(f"of which these are near: {near}" in said + " " and len(re.search("near: (.*)", said)[1].split()) <= 8, said)
    said = tgc(folder, "model.onnx", "-o", "m.c", "--target=amd", "--cpu=gfx90a,gfx9999", status=2).err
    expect("--cpu=gfx9999 is not known; --target=amd has gfx1100 " in said, said)


@case("--machine: the first row is the default, and each row, and the machine at hand, give right answers")
def _(folder):
    model = perceptron(folder)
    x = np.linspace(-2, 2, 8, dtype=np.float32)[None]
    known = re.search(r"known are host (.*)", tgc(folder, "model.onnx", "-o", "m.c", "--machine=abacus",
                                                  status=2).err)
    expect(known, "the rows are not named")
    rows = known.group(1).split()
    (folder / "plain").mkdir()
    tgc(folder, "model.onnx", "-o", "plain/net.c")
    tgc(folder, "model.onnx", "-o", "net.c", f"--machine={rows[0]}")
    expect((folder / "plain/net.c").read_bytes() == (folder / "net.c").read_bytes(),
           f"--machine={rows[0]} is not the default")
    for name in [*rows, "host"]:
        T.emit(TGC, folder / "model.onnx", folder / "m.c", f"--machine={name}")
        T.build(folder / "m.c", folder / "m")
        y = T.Program(folder / "m", ["y"]).run([x])["y"]
        T.compare("y", y, G.perceptron_reference(model, x), 1e-5, 1e-6)


@case("-O0 gives another program of the same answer")
def _(folder):
    model = perceptron(folder)
    x = np.linspace(-2, 2, 8, dtype=np.float32)[None]
    for name, options in (("plain", []), ("slow", ["-O0"])):
        T.emit(TGC, folder / "model.onnx", folder / f"{name}.c", *options)
        T.build(folder / f"{name}.c", folder / name)
        y = T.Program(folder / name, ["y"]).run([x])["y"]
        T.compare("y", y, G.perceptron_reference(model, x), 1e-5, 1e-6)
    expect((folder / "plain.c").read_bytes() != (folder / "slow.c").read_bytes(),
           "-O0 changed nothing")


def make_words(text):
    """Splits a depfile's rule the way make reads it: $$, \\#, backslash-space."""
    text = text.replace("\\\n", " ")
    words, word, position = [], "", 0
    while position < len(text):
        two = text[position:position + 2]
        if two in ("\\ ", "\\#", "\\:", "$$"):
            word, position = word + two[1], position + 2
            continue
        if text[position].isspace():
            if word:
                words.append(word)
            word = ""
        else:
            word += text[position]
        position += 1
    return words + ([word] if word else [])


@case("-MD writes a depfile that make reads")
def _(folder):
    perceptron(folder)
    tgc(folder, "model.onnx", "-o", "net.c", "-MD", "-MF", "net.d")
    target, *needs = make_words((folder / "net.d").read_text())
    expect(target.rstrip(":") == "net.c", f"target: {target}")
    expect("model.onnx" in needs, f"prerequisites: {needs}")


@case("-MT and -MP, and names that make would misread")
def _(folder):
    name = "a b#c$d.onnx"
    perceptron(folder, name)
    tgc(folder, name, "-o", "net.c", "-MD", "-MF", "net.d", "-MT", "the-target", "-MP")
    first, *others = (folder / "net.d").read_text().replace("\\\n", " ").split("\n")
    target, *needs = make_words(first)
    expect(target.rstrip(":") == "the-target", f"target: {target}")
    expect(name in needs, f"prerequisites: {needs}")
    phony = [make_words(line)[0] for line in others if line.strip()]
    expect(name + ":" in phony, f"-MP's rules: {phony}")


@case("several -MT name several targets, as they are written; -MQ quotes")
def _(folder):
    perceptron(folder)
    tgc(folder, "model.onnx", "-o", "net.c", "-MD", "-MF", "net.d", "-MT", "net.c", "-MT",
        "$(out)/net.h", "-MQ", "a b$")
    expect((folder / "net.d").read_text() == "net.c $(out)/net.h a\\ b$$: model.onnx\n",
           f"the rule: {(folder / 'net.d').read_text()}")


# Of a prerequisite. What make and ninja cannot agree on (a\#b, =, *, |, ;) is left out.
DEPFILE_NAMES = ("a%b.onnx", "a#b.onnx", "a\\b.onnx", "a b.onnx", "a$b.onnx", "a:b.onnx",
                 "a\\ b.onnx", "a\\%b.onnx", "a[b]c.onnx", "~b.onnx", "a\\\\b.onnx")


@case("a depfile's names are read by make and by ninja as they are")
def _(folder):
    wrong = []
    (folder / "build.ninja").write_text("rule r\n  command = cp net.d n.d; touch net.c\n"
                                        "  depfile = n.d\nbuild net.c: r\n")
    (folder / "Makefile").write_text("net.c:\n\ttouch net.c\ninclude net.d\n")
    for name in DEPFILE_NAMES:
        perceptron(folder, name)
        tgc(folder, name, "-o", "net.c", "-MD", "-MF", "net.d")
        model = folder / name
        for tool, ask, due, built in (("make", "-q", lambda d: d.status == 1, lambda d: d.status == 0),
                                      ("ninja", "-n", lambda d: b"no work" not in d.out,
                                       lambda d: b"no work" in d.out)):
            os.utime(model, (1e9, 1e9))
            if tool == "ninja":
                (folder / "net.c").unlink()
                T.must(T.run(["ninja"], cwd=folder))
            fresh = T.run([tool, ask], cwd=folder)
            os.utime(model, (4e9, 4e9))
            if not built(fresh) or not due(T.run([tool, ask], cwd=folder)):
                wrong.append(f"{tool} reads {name!r} otherwise")
        model.unlink()
    expect(not wrong, "\n".join(wrong))


@case("an output that would replace an input is refused, by any path or link")
def _(folder):
    model = G.perceptron()
    onnx.save_model(model, folder / "m.onnx", save_as_external_data=True, location="m.bin",
                    size_threshold=0)
    perceptron(folder, "self.onnx")
    perceptron(folder, "net.h")
    np.save(folder / "y.npy", np.ones((1, 8), np.float32))
    (folder / "sub").mkdir()
    (folder / "link.c").symlink_to("m.onnx")
    os.link(folder / "m.onnx", folder / "hard.c")
    (folder / "run").mkdir()
    (folder / "run" / "y.npy").symlink_to("../y.npy")
    before = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    for arguments, names in (
            (("m.onnx", "-o", "m.onnx", "--emit=c"), ("m.onnx",)),
            (("m.onnx", "-o", "sub/../m.onnx", "--emit=so"), ("sub/../m.onnx", "'m.onnx'")),
            (("m.onnx", "-o", str(folder / "m.onnx"), "--emit=uops"), ("'m.onnx'",)),
            (("m.onnx", "-o", "link.c"), ("link.c", "'m.onnx'")),
            (("m.onnx", "-o", "hard.c"), ("hard.c", "'m.onnx'")),
            (("m.onnx", "-o", "m.bin", "--emit=c"), ("m.bin",)),
            (("m.onnx", "-o", "net.c", "-MD", "-MF", "m.bin"), ("m.bin",)),
            (("net.h", "-x", "onnx", "-o", "net.c"), ("net.h",)),
            (("net.h", "-x", "onnx", "-o", "net.o"), ("net.h",)),
            (("self.onnx", "-o", "self.c", "-MD", "-MF", "self.h"), ("self.h", "two names")),
            (("run", "self.onnx", "-i", "x=y.npy", "--out-dir", "run"), ("run/y.npy", "'y.npy'")),
            (("tune", "self.onnx", "-o", "self.onnx"), ("self.onnx",))):
        done = tgc(folder, *arguments, status=1)
        for name in names:
            expect(name in done.err, f"{arguments}: {name} is not named: {done.err}")
        expect({path: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before,
               f"{arguments} changed the folder's files")


@case("run reads and writes strings as .npy, as the emitted program does")
def _(folder):
    onnx.save(G.model([G.node("StringConcat", ["a", "b"], ["y"]), G.node("Identity", ["a"], ["z"])],
                      [G.value("a", [2, 2], onnx.TensorProto.STRING), G.value("b", [2], onnx.TensorProto.STRING)],
                      [G.value("y", [2, 2], onnx.TensorProto.STRING), G.value("z", [2, 2], onnx.TensorProto.STRING)],
                      opset=20), folder / "m.onnx")
    a, b = np.array([["x", "\u20acuro"], ["", "\U0001f600"]]), np.array(["", "-\xe4"])
    for order, fortran in (("<", False), (">", False), ("<", True)):
        np.save(folder / "a.npy", (np.asfortranarray(a) if fortran else a).astype(a.dtype.newbyteorder(order)))
        np.save(folder / "b.npy", b.astype(b.dtype.newbyteorder(order)))
        tgc(folder, "run", "m.onnx", "-i", "a=a.npy", "-i", "b=b.npy", "--out-dir", "out")
        expect((np.load(folder / "out" / "y.npy") == np.char.add(a, b)).all(), f"{order}: y is other")
        expect((np.load(folder / "out" / "z.npy") == a).all(), f"{order}: z is other")
    np.save(folder / "data.npy", a)
    for name, array in (("input_0", a), ("input_1", b), ("output_0", np.char.add(a, b)), ("output_1", a)):
        np.save(folder / f"{name}.npy", array)
    tgc(folder, "verify", "m.onnx", "--data", ".")
    np.save(folder / "output_1.npy", np.array([["x", "euro"], ["", ""]]))
    tgc(folder, "verify", "m.onnx", "--data", ".", status=3)
    done = tgc(folder, "run", "m.onnx", "-i", "a=a.npy", "-i", "b=out/none.npy", status=1)
    np.save(folder / "n.npy", np.zeros((2, 2)))
    done = tgc(folder, "run", "m.onnx", "-i", "a=n.npy", status=1)
    expect("strings" in done.err and "'f8'" in done.err, f"the message: {done.err}")


@case("verify reads .npy, and says which file it lacks")
def _(folder):
    model = perceptron(folder)
    x = np.linspace(-1, 1, 8, dtype=np.float32)[None]
    y = G.perceptron_reference(model, x)
    done = tgc(folder, "verify", "model.onnx", "--data", ".", status=1)
    expect("input_0.npy" in done.err and "'x'" in done.err, f"the message: {done.err}")
    np.save(folder / "input_0.npy", x)
    done = tgc(folder, "verify", "model.onnx", "--data", ".", status=1)
    expect("output_0" in done.err, f"the message: {done.err}")
    np.save(folder / "output_0.npy", y)
    expect(b"ok" in tgc(folder, "verify", "model.onnx", "--data", ".", "--rtol", "1e-4", "--atol", "1e-5").out,
           "nothing is said")
    np.save(folder / "output_0.npy", y + 1)
    tgc(folder, "verify", "model.onnx", "--data", ".", status=3)
    np.save(folder / "input_1.npy", x)
    done = tgc(folder, "verify", "model.onnx", "--data", ".", status=1)
    expect("input_1.npy" in done.err, f"the message: {done.err}")


@case("weights that another output of the same name may read are not replaced in silence")
def _(folder):
    perceptron(folder)
    options = ("--name=net", "--weights=file")
    expect(not tgc(folder, "model.onnx", "-o", "a.c", *options).err, "a warning for the first one")
    done = tgc(folder, "model.onnx", "-o", "b.c", *options)
    expect("net.weights" in done.err and "--name" in done.err, f"said: {done.err}")
    for name in 2 * ("own.c", "float.c"):               # a name that C has not left is another, and still the output's own
        expect(not tgc(folder, "model.onnx", "-o", name, "--weights=incbin").err, "a warning for a rebuild")


@case("--max-memory holds below what tgc takes before it knows of it")
def _(folder):
    for name in ("examples/digits.onnx", "models/mlp.tg"):
        done = T.must(T.run([TGC, T.ROOT / name, "-o", folder / "net.c", "--max-memory=100K"]), 1)
        expect("--max-memory" in done.err and not list(folder.iterdir()), done.describe())


@case("names of inputs and dimensions stay inside of the strings of .dot")
def _(folder):
    name = '"]; pwn [label="x\\", URL="javascript:alert(1)"]; z [label="'
    onnx.save(G.model([G.node("Relu", [name], ["r"], name=name), G.node("Softmax", ["r"], ["y"], name=name)], [G.value(name, [name, 3])],
                      [G.value("y", [name, 3])]), folder / "m.onnx")
    tgc(folder, "m.onnx", "-o", "m.dot", "--dim", f"{name}=..8")
    text = (folder / "m.dot").read_text()
    outside = re.sub(r'"(?:[^"\\]|\\.)*"', "", text)
    expect("pwn" in text and not re.search(r"pwn|URL|alert|[\\\"]", outside), outside)


@case("holes of external data give a compile no memory")
def _(folder):
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", "w.bin"), ("offset", 0), ("length", 16)):
        tensor.external_data.add(key=key, value=str(value))
    nodes, last = [], "w"
    for n in range(40):                                 # constants that double
        nodes.append(G.node("Concat", [last, last], [f"c{n}"], axis=0))
        last = f"c{n}"
    model = G.model([*nodes, G.node("ReduceSum", [last], ["s"], keepdims=0), G.node("Add", ["x", "s"], ["y"])], [G.value("x", [1])], [G.value("y", [1])])
    model.graph.initializer.append(tensor)
    onnx.save(model, folder / "m.onnx")
    with open(folder / "w.bin", "wb") as file:
        file.write(bytes(4096))
        file.truncate(4 << 40)
    done = tgc(folder, "m.onnx", "-o", "m.c", status=1)
    expect("--max-memory" in done.err and done.peak < 600 << 20, f"{done.peak >> 20} MB: {done.err}")
    for key in ("model", "tg"):                         # nor do those of the model's own file
        with open(folder / f"hole.{key}", "wb") as file:
            file.write(b"tg 1\n" if key == "tg" else model.SerializeToString())
            file.truncate(1 << 40)
        done = T.run_for_peak([TGC, folder / f"hole.{key}", "-x", "tg" if key == "tg" else "onnx", "-o", folder / "h.c"], timeout=60)
        expect(done.status == 1 and done.peak < 600 << 20, f"{done.peak >> 20} MB: {done.describe()}")


@case("run's own buffers keep to --max-memory")
def _(folder):
    for options in (("--max-memory=100M",), ("--max-memory=5G",), ()):
        wide = "[4000000, 4000000]" if not options else "[40000, 40000]"
        (folder / "big.tg").write_text('tg 1\ninput %x : f32[1,1]\n%y = expand(%x) {shape=' + wide
                                       + '}\n%z = add(%y, %y)\noutput %z as "z"\n')
        done = tgc(folder, "run", "big.tg", *options, status=1)
        for word in ("--max-memory", "'z'", "MB"):
            expect(word in done.err, f"{word} is not in the message: {done.err}")
        expect(done.peak < MEMORY, f"{done.peak >> 20} MB were taken")


@case("bench prints a unit that fits")
def _(folder):
    perceptron(folder)
    text = tgc(folder, "bench", "model.onnx").out.decode()
    figure = re.search(r"min ([\d.]+) (ns|µs|ms), median ([\d.]+) (ns|µs|ms)", text)
    expect(figure and float(figure[1]) >= 1, f"printed: {text}")


@case("a header that no #include can name is refused")
def _(folder):
    perceptron(folder)
    for name in ('we"ird', "a\\b", "ends\\", "tri??", "line\nbreak"):
        done = tgc(folder, "model.onnx", "-o", f"{name}.c", status=1)
        expect("#include" in done.err, f"{name!r}: {done.err}")
        expect(files(folder) == ["model.onnx"], f"files were left: {files(folder)}")


@case("-MD lists the tensors of -i and the files of options")
def _(folder):
    perceptron(folder)
    np.save(folder / "x.npy", np.zeros((1, 8), np.float32))
    (folder / "more.txt").write_text("-i x=x.npy @last.txt")
    (folder / "last.txt").write_text("-O0")
    tgc(folder, "model.onnx", "-o", "net.c", "-MD", "-MF", "net.d", "@more.txt")
    needs = make_words((folder / "net.d").read_text())[1:]
    expect(sorted(needs) == ["last.txt", "model.onnx", "more.txt", "x.npy"], f"prerequisites: {needs}")


@case("-MD lists external data")
def _(folder):
    model = G.perceptron()
    onnx.save_model(model, folder / "model.onnx", save_as_external_data=True,
                    location="weights.bin", size_threshold=0)
    tgc(folder, "model.onnx", "-o", "net.c", "-MD", "-MF", "net.d")
    expect("weights.bin" in make_words((folder / "net.d").read_text()), "weights.bin is missing")


@case("external data gives the same bytes as data inside")
def _(folder):
    outputs = []
    for name, options in (("inside", {}), ("outside", {"save_as_external_data": True,
                          "location": "weights.bin", "size_threshold": 0})):
        (folder / name).mkdir()
        onnx.save_model(G.perceptron(), folder / name / "model.onnx", **options)
        tgc(folder / name, "model.onnx", "-o", "net.c")
        outputs.append((folder / name / "net.c").read_bytes())
    expect((folder / "outside" / "weights.bin").exists(), "the weights are not outside")
    expect(outputs[0] == outputs[1], "the two differ")


def sparse_weight(folder, name, shape, file, offset=0):
    """A weight that is all holes of a file, but for its last element."""
    nbytes = 4 * shape[0] * shape[1]
    with open(folder / file, "ab") as out:
        out.truncate(max(out.tell(), offset + nbytes))
    with open(folder / file, "r+b") as out:
        out.seek(offset + nbytes - 4)
        out.write(np.float32(3).tobytes())
    tensor = onnx.TensorProto(name=name, data_type=onnx.TensorProto.FLOAT, dims=shape,
                              data_location=onnx.TensorProto.EXTERNAL)
    for key, value in (("location", file), ("offset", offset), ("length", nbytes)):
        tensor.external_data.add(key=key, value=str(value))
    return tensor


@case("2.4 GB of weights in two files are mapped, written in pieces, and shared ones once", slow=True)
def _(folder):
    tall, wide = [290000, 1024], [16384, 20000]
    weights = [sparse_weight(folder, "table", tall, "a.bin", 4096), sparse_weight(folder, "w", wide, "b.bin"),
               sparse_weight(folder, "again", tall, "a.bin", 4096)]
    (folder / "model.onnx").write_bytes(G.model(
        [G.node("Gather", ["table", "i"], ["y"]), G.node("Gather", ["again", "i"], ["z"]),
         G.node("MatMul", ["x", "w"], ["t"])],
        [G.value("i", [1], onnx.TensorProto.INT64), G.value("x", [1, wide[0]])],
        [G.value("y", [1, 1024]), G.value("z", [1, 1024]), G.value("t", [1, wide[1]])],
        weights).SerializeToString())
    nbytes = 4 * (tall[0] * tall[1] + wide[0] * wide[1])
    done = T.must(T.run_for_peak([TGC, "model.onnx", "-o", "net.c"], cwd=folder))
    expect("net.weights" in done.err and "linked" in done.err, f"no word about the weights' file: {done.err}")
    size = (folder / "net.weights").stat().st_size
    expect(nbytes <= size < nbytes + 4096, f"{size} bytes of weights, {nbytes} are expected")
    expect(done.peak < nbytes + (64 << 20), f"a peak of {done.peak} bytes for {nbytes} of weights")
    T.build(folder / "net.c", folder / "net")
    np.save(folder / "i.npy", np.array([-1]))
    np.save(folder / "x.npy", np.ones((1, wide[0]), np.float32))
    T.must(T.run([folder / "net", "--weights", "net.weights", "i.npy", "x.npy", "-o", "."], cwd=folder))
    for name in "yzt":
        last = np.load(folder / f"{name}.npy")[0, -3:]
        expect(list(last) == [0, 0, 3], f"{name} ends with {last}")


@case("info --json has what tools rely on")
def _(folder):
    perceptron(folder)
    info = json.loads(tgc(folder, "info", "model.onnx", "--json").out)
    for key in ("name", "inputs", "outputs", "arena_bytes", "weight_bytes", "kernels", "flop"):
        expect(key in info, f"no {key} in {sorted(info)}")
    expect(info["inputs"] == [{**info["inputs"][0], "name": "x", "shape": [1, 8]}],
           f"inputs: {info['inputs']}")
    expect(info["inputs"][0]["dtype"] in ("f32", "float32"), f"dtype: {info['inputs'][0]}")
    expect(info["outputs"][0]["name"] == "y" and info["outputs"][0]["shape"] == [1, 4],
           f"outputs: {info['outputs']}")
    expect(0 < info["live_bytes"] <= info["arena_bytes"],
           f"{info['live_bytes']} bytes alive in an arena of {info['arena_bytes']}")
    expect(info["weight_bytes"] == 4 * (8 * 16 + 16 + 16 * 4 + 4), f"{info['weight_bytes']} bytes")


@case("info --json predicts each kernel's time, by the machine that --machine names")
def _(folder):
    def predict(rows, *options):
        onnx.save(G.model([G.node("MatMul", ["x", "w"], ["y"])], [G.value("x", [rows, 64])], [G.value("y", [rows, 256])],
                          [G.weight("w", np.ones((64, 256), np.float32))]), folder / "product.onnx")
        kernels = json.loads(tgc(folder, "info", "product.onnx", "--json", *options).out)["kernel_list"]
        return sum(k["predicted_us"] for k in kernels)
    few, many = predict(64), predict(512)
    expect(4 < many / few < 16, f"eight times as many rows: {few} us, then {many}")
    expect(predict(512, "--machine=icelake-sp") != many, "another machine takes as long")


@case("equal weights are written once, and info counts them once")
def _(folder):
    w = np.arange(4096, dtype=np.float32).reshape(64, 64) % 7
    branch = [onnx.helper.make_graph([G.node("MatMul", ["u", name], [f"r{name}"])], name, [], [G.value(f"r{name}", [5, 64])],
                                     [G.weight(name, w)]) for name in "ab"]
    m = G.model([G.node("MatMul", ["x", "w"], ["t"]), G.node("Tanh", ["t"], ["h"]), G.node("MatMul", ["h", "v"], ["u"]),
                 G.node("If", ["c"], ["y"], then_branch=branch[0], else_branch=branch[1])],
                [G.value("x", [5, 64]), G.value("c", [], onnx.TensorProto.BOOL)], [G.value("y", [5, 64])],
                [G.weight("w", w), G.weight("v", w)])
    onnx.save(m, folder / "model.onnx")
    for level in ("-O0", "-O2"):
        info = json.loads(tgc(folder, "info", "model.onnx", "--json", level).out)
        expect(info["weight_bytes"] == w.nbytes, f"{level}: {info['weight_bytes']} bytes")
        tgc(folder, "model.onnx", "-o", "m.c", "--weights=file", level)
        size = (folder / "m.weights").stat().st_size
        expect(size == w.nbytes, f"{level}: {size} bytes in the file")


@case("info says which weights are stored otherwise than the model has them, by layer")
def _(folder):
    rng = np.random.default_rng(1)
    shapes = {"w1": (64, 64, 3, 3), "w2": (64, 64, 3, 3), "fc": (64, 256), "bias": (256,)}
    weights = [G.weight(name, rng.standard_normal(shape).astype(np.float32)) for name, shape in shapes.items()]
    nodes = [G.node("Conv", ["x", "w1"], ["a"], name="first", pads=[1] * 4), G.node("Relu", ["a"], ["b"]),
             G.node("Conv", ["b", "w2"], ["c"], name="second", pads=[1] * 4), G.node("GlobalAveragePool", ["c"], ["d"]),
             G.node("Flatten", ["d"], ["e"]), G.node("MatMul", ["e", "fc"], ["f"], name="head"), G.node("Add", ["f", "bias"], ["y"])]
    onnx.save(G.model(nodes, [G.value("x", [4, 64, 56, 56])], [G.value("y", [4, 256])], weights), folder / "model.onnx")
    model_bytes = {name: 4 * int(np.prod(shape)) for name, shape in shapes.items()}

    def changed(*options):
        info = json.loads(tgc(folder, "info", "model.onnx", "--json", *options).out)
        rows = {row["weight"]: row for row in info["weights_changed"]}
        expect(info["model_weight_bytes"] == sum(model_bytes.values()), f"the model has {info['model_weight_bytes']} bytes")
        expect(all(rows[name]["model_bytes"] == model_bytes[name] for name in rows), f"{rows}")
        added = sum(row["bytes"] - row["model_bytes"] for row in rows.values())
        expect(info["weight_bytes"] == info["model_weight_bytes"] + added, f"{info['weight_bytes']} bytes, {added} added: {rows}")
        return rows

    rows = changed("--cpu=avx2")
    for name, node in (("w1", "first"), ("w2", "second")):          # the second kernel is like the first one
        expect(rows[name]["operator"] == "Conv" and rows[name]["node"] == node, f"{rows[name]}")
        m = int(re.search(r"Winograd F\((\d)x\1, 3x3\)", rows[name]["why"]).group(1))
        expect(rows[name]["bytes"] == model_bytes[name] // 9 * (m + 2)**2, f"{rows[name]}")
    expect(rows["fc"]["node"] == "head" and re.search(r"^packed in panels of \d+$", rows["fc"]["why"]), f"{rows}")
    expect("bias" not in rows and rows["fc"]["bytes"] == model_bytes["fc"], f"{rows}")
    for options, shown in (([], ["first", "second"]), (["--why"], ["first", "second", "head"])):
        lines = re.search(r"^weights: .*?(?=^kernels)", tgc(folder, "info", "model.onnx", "--cpu=avx2", *options).out.decode(), re.M | re.S).group()
        expect(re.findall(r'"(\w+)", \w+: ', lines) == shown, lines)
    narrow = changed("--cpu=avx2", "--weight-type=int8")
    expect(narrow["w1"]["why"].startswith("int8 (--weight-type)") and narrow["w1"]["bytes"] < model_bytes["w1"] // 3, f"{narrow}")
    expect(not changed("-O0"), "nothing is changed by -O0")
    lines = tgc(folder, "info", "model.onnx", "-O0").out.decode()
    expect(re.search(r"^weights: \d+ bytes\nkernels", lines, re.M), lines)


@case("info names open dimensions as --dim takes them")
def _(folder):
    nodes = [G.node("Constant", [], ["w"], value=onnx.numpy_helper.from_array(
        np.ones((3, 1, 1), np.float32))), G.node("Mul", ["x", "w"], ["y"])]
    m = G.model(nodes, [G.value("x", ["n", 3, "?", "n"])], [G.value("y", ["n", 3, "?", "n"])])
    onnx.save(m, folder / "model.onnx")
    info = tgc(folder, "info", "model.onnx").out.decode()
    expect("depend on n, x_dim2;" in info, f"not each name once: {info}")
    expect("weights: 12 bytes" in info, f"a constant is a weight, too: {info}")
    tgc(folder, "model.onnx", "-o", "net.c", "--dim", "n=1", "--dim", "x_dim2=4")


@case("ops --json lists the operators")
def _(folder):
    text = tgc(folder, "ops", "--json").out.decode()
    json.loads(text)
    for name in ("Conv", "MatMul", "Softmax", "If"):
        expect(f'"{name}"' in text, f"{name} is not listed")


@case("run writes .npy files, and a summary without --out-dir")
def _(folder):
    model = perceptron(folder)
    x = np.linspace(-1, 1, 8, dtype=np.float32)[None]
    np.save(folder / "x.npy", x)
    tgc(folder, "run", "model.onnx", "-i", "x=x.npy", "--out-dir", "out")
    T.compare("y", np.load(folder / "out" / "y.npy"), G.perceptron_reference(model, x), 1e-5, 1e-6)
    expect("y" in tgc(folder, "run", "model.onnx", "-i", "x=x.npy").out.decode(), "no summary")


@case("compile takes the value of an input that a shape depends on")
def _(folder):
    m = G.model([G.node("Tile", ["x", "r"], ["y"])],
                [G.value("x", [2]), G.value("r", [1], onnx.TensorProto.INT64)],
                [G.value("y", ["n"])])
    onnx.save(m, folder / "model.onnx")
    expect("--dim" in tgc(folder, "model.onnx", "-o", "net.c", status=1).err, "no reason")
    np.save(folder / "r.npy", np.array([3]))
    done = tgc(folder, "model.onnx", "-o", "net.c", "-i", "r=r.npy")
    expect("'r'" in done.err, f"no warning that the program holds for one value: {done.err}")
    expect("f32[6]" in (folder / "net.h").read_text(), "y has not 6 elements")
    tgc(folder, "model.onnx", "-o", "net.c", "-i", "nosuch=r.npy", status=1)
    tgc(folder, "model.onnx", "-o", "net.c", "--nchwc-block", "12", status=2)


@case("run refuses inputs that do not fit")
def _(folder):
    perceptron(folder)
    np.save(folder / "wide.npy", np.zeros((1, 9), np.float32))
    np.save(folder / "double.npy", np.zeros((1, 8), np.float64))
    (folder / "broken.npy").write_bytes(b"\x93NUMPY\x01\x00\xff\xff{'descr'")
    for name in ("wide", "double", "broken", "gone"):
        done = tgc(folder, "run", "model.onnx", "-i", f"x={name}.npy", "--out-dir", "out", status=1)
        expect(f"{name}.npy" in done.err or "'x'" in done.err, f"{name}: {done.err}")
    tgc(folder, "run", "model.onnx", "-i", "nosuch=wide.npy", "--out-dir", "out", status=1)


@case("a dimension is fixed and bounded with --dim and --shape")
def _(folder):
    m = G.model([G.node("Relu", ["x"], ["y"], name="n")], [G.value("x", ["batch", 3])],
                [G.value("y", ["batch", 3])])
    onnx.save(m, folder / "model.onnx")
    x = np.array([[-1, 0, 1], [2, -2, 3]], np.float32)
    for name, options in (("fixed", ["--dim", "batch=2"]), ("shape", ["--shape", "x=2x3"]),
                          ("bounded", ["--dim", "batch<=5"])):
        T.emit(TGC, folder / "model.onnx", folder / f"{name}.c", *options)
        T.build(folder / f"{name}.c", folder / name)
        T.compare(name, T.Program(folder / name, ["y"]).run([x])["y"], np.maximum(x, 0), 0, 0)
    done = T.run([folder / "bounded", save(folder, np.zeros((6, 3), np.float32)), "-o", folder])
    expect(done.status not in (0, -6, -11), f"a batch beyond the bound: {done.describe()}")


@case("sizes that are expressions are compared with what they follow from: run, verify, --shape, the program")
def _(folder):
    """n stands alone nowhere in `sums`; every size of `all` that is off by one is refused."""
    texts = {"pair": ["x : f32[n<=8, 2*n]"],
             "sums": ["x : f32[2*n+1]", "z : f32[n+m, 3*m]"],
             "all": ["x : f32[n<=8, m<=8]", "z : f32[n+m, floordiv(n+1,2), n*m+1, max(n,m), 16-n, floormod(n,3), m]"]}
    right = {"pair": [(3, 6)], "sums": [(7,), (5, 6)], "all": [(3, 2), (5, 2, 7, 3, 13, 0, 2)]}
    bounds = "dim n<=8\ndim m<=8\n"
    for name, inputs in texts.items():
        lines = [f"input %{v}\n%{v[0]}2 = add(%{v[0]}, 1)\noutput %{v[0]}2 as \"y{v[0]}\"\n" for v in inputs]
        (folder / f"{name}.tg").write_text(f'tg 1\ngraph "g"\n{bounds if name == "sums" else ""}' + "".join(lines))
        names = [v[0] for v in inputs]
        T.emit(TGC, folder / f"{name}.tg", folder / f"{name}.c", "--vectors=never")
        T.build(folder / f"{name}.c", folder / name, flags=("-O1", "-g", "-fsanitize=address,undefined"))

        def give(shapes, wanted):
            for v, shape in zip(names, shapes):
                np.save(folder / f"{v}.npy", np.arange(np.prod(shape), dtype=np.float32).reshape(shape))
            files = [folder / f"{v}.npy" for v in names]
            done = [T.run([folder / name, *files, "-o", folder]),
                    tgc(folder, "run", f"{name}.tg", *[w for v in names for w in ("-i", f"{v}={v}.npy")], "--out-dir", "out", "--dim", "n=..8",
                        status=0 if wanted else 1)]
            ran = [d for d in done if d.status == 0]
            expect(len(ran) == 2 * wanted and not any("Sanitizer" in d.err or d.status < 0 for d in done), f"{name} {shapes}: "
                   + "; ".join(d.describe() for d in done))
            for v in names if wanted else ():
                for out in (folder, folder / "out"):
                    T.compare(v, np.load(out / f"y{v}.npy"), np.load(folder / f"{v}.npy") + 1, 0, 0)

        give(right[name], True)
        for k, shape in enumerate(right[name]):
            for axis in range(len(shape)):
                for step in (-1, 1):
                    other = list(shape)
                    other[axis] += step
                    if other[axis] >= 0 and (name != "sums" or (k, axis) != (1, 0)):         # n+m: another m
                        give([*right[name][:k], tuple(other), *right[name][k + 1:]], False)
    expect("axis 1 cannot be 5: it is n*2, which the other sizes make 6" in
           tgc(folder, "pair.tg", "-o", "q.c", "--shape=x=3x5", status=1).err, "--shape")
    tgc(folder, "pair.tg", "-o", "q.c", "--shape=x=3x6")
    expect("f32[3,6]" in (folder / "q.h").read_text(), "--shape=x=3x6")
    tgc(folder, "sums.tg", "-o", "q.c", "--shape=x=7", "--shape=z=5x6")
    expect("f32[5,6]" in (folder / "q.h").read_text(), "symbols that stand alone nowhere")
    np.save(folder / "x.npy", np.ones((3, 6), np.float32))
    tgc(folder, "verify", "pair.tg", "pair.tg", "-i", "x=x.npy")
    tgc(folder, "verify", "all.tg", "all.tg", "--dim", "n=..8")
    (folder / "data").mkdir()
    for shape, status in (((3, 6), 0), ((3, 5), 1), ((8, 0), 1)):
        np.save(folder / "data" / "input_0.npy", np.ones(shape, np.float32))
        np.save(folder / "data" / "output_0.npy", np.full(shape, 2, np.float32))
        tgc(folder, "verify", "pair.tg", "--data", "data", status=status)


@case("a .npy file that is shorter or longer than its shape says is refused")
def _(folder):
    (folder / "m.tg").write_text('tg 1\ngraph "m"\ninput %x : f32[n<=8, 4]\n%y = add(%x, 1)\noutput %y as "y"\n')
    T.emit(TGC, folder / "m.tg", folder / "m.c", "--vectors=never")
    T.build(folder / "m.c", folder / "m")
    whole = save(folder, np.ones((3, 4), np.float32)).read_bytes()
    for change, status in ((0, 0), (-1, 1), (-48, 1), (1, 1), (16, 1)):
        (folder / "x.npy").write_bytes(whole[:len(whole) + min(change, 0)] + b"\0" * max(change, 0))
        tgc(folder, "run", "m.tg", "-i", "x=x.npy", status=status)
        done = T.run([folder / "m", folder / "x.npy", "-o", folder])
        expect(done.status == status, f"{change}: {done.describe()}")


def save(folder, array):
    np.save(folder / "array.npy", array)
    return folder / "array.npy"


@case("diagnostics as JSON have file, node and message")
def _(folder):
    onnx.save(bad_inputs.one("Frobnicate", ["x"]), folder / "model.onnx")
    done = tgc(folder, "model.onnx", "-o", "m.c", "--diagnostics=json", status=1)
    text = done.err.strip() or done.out.decode().strip()
    lines = [json.loads(line) for line in text.splitlines()]
    expect("model.onnx" in json.dumps(lines) and "culprit" in json.dumps(lines),
           f"no file or node in {lines}")


@case("the README's example, which the guide's tests run, has no warning")
def _(folder):
    example, = re.findall(r'```c title="main.c"\n(.*?)```', (T.ROOT / "README.md").read_text(), re.S)
    tgc(folder, T.ROOT / "models" / "layer_norm.tg", "-o", "layer_norm.c")
    (folder / "main.c").write_text(example)
    T.must(T.run(["gcc", *T.WARNINGS, "-O2", "main.c", "layer_norm.c", "-o", "example", "-lm"], cwd=folder))
    T.must(T.run(["./example"], cwd=folder))


# The emitted file's own words; a model may be called so.
OWN_WORDS = ("step", "shape", "plain", "block", "x", "self", "fail", "data", "weights", "vector",
             "name", "in", "next", "session", "main", "printf", "int")


def check_called(word, by_clang, folder):
    T.scratch(folder)
    model = perceptron(folder)
    x = np.linspace(-2, 2, 8, dtype=np.float32)[None]
    T.emit(TGC, folder / "model.onnx", folder / f"{word}.c")
    prefix = re.search(r"define (\w+)_ARENA_BYTES", (folder / f"{word}.h").read_text()).group(1)
    if by_clang:
        T.must(T.run(["clang", *T.WARNINGS, "-fsyntax-only", f"-D{prefix}_MAIN", f"{word}.c"], cwd=folder))
    T.must(T.run(["gcc", *T.WARNINGS, T.LEVEL, f"-D{prefix}_MAIN", f"{word}.c", "-o", "program", "-lm"], cwd=folder))
    y = T.Program(folder / "program", ["y"]).run([x])["y"]
    T.compare("y", y, G.perceptron_reference(model, x), 1e-5, 1e-6)
    shutil.rmtree(folder)


for number, word in enumerate(OWN_WORDS):
    suite.add(f"a model called {word}", check_called, word, OPTIONS.all or number % 2 == 0, SCRATCH / f"called_{word}")


def emitted_words(folder, target):
    """The identifiers of the program and header that models become for a target, with NET for their names."""
    words = set()
    for model in ("mlp", "transformer_block"):
        for options in ([], ["--threads=2", "--weights=incbin"]) if target == "c" else ([],):
            tgc(folder, HERE.parents[1] / "models" / f"{model}.tg", "-o", "qzq.c", "--name=qzq", f"--target={target}", *options)
            for name in ("qzq.c", "qzq.h"):
                code = re.sub(r"(?s)/\*.*?\*/", "", (folder / name).read_text())
                words |= set(re.findall(r"\b[A-Za-z_]\w*", re.sub(r'"(\\.|[^"\\])*"', "", code)))
    return sorted({re.sub("^qzq", "net", re.sub("^QZQ", "NET", word)) for word in words})


def nameable(target):
    return target != "cuda" or "NVRTC" in T.run([TGC, "--version"]).out.decode()


def check_named(folder, words, what, target):
    """A program with a tensor, dimension or node of each of these names compiles without a warning."""
    nodes, inputs, outputs, dims = [], [], [], []
    for i, word in enumerate(words):
        name = {kind: word if kind == what else f"{kind}{i}" for kind in ("input", "output", "dim", "node")}
        shape = [word if what == "dim" else 3, 4]
        dims += ["--dim", f"{word}=..3"] if what == "dim" else []
        nodes.append(G.node("Softmax" if what == "node" else "Relu", [name["input"]], [name["output"]], name=name["node"]))
        inputs.append(G.value(name["input"], shape))
        outputs.append(G.value(name["output"], shape))
    onnx.save(G.model(nodes, inputs, outputs), folder / "names.onnx")
    out = "net.o" if target == "llvm" else "net.c"
    tgc(folder, "names.onnx", "-o", out, f"--target={target}", "--vectors=never", "--max-memory=4G", *dims)
    (folder / "user.c").write_text('#include "net.h"\nint main(void) { return net_describe()->version; }\n')
    T.must(T.run(["gcc", *T.WARNINGS, *(["user.c", "net.o", "-o", "user", "-lm"] if target == "llvm" else ["-fsyntax-only", "-DNET_MAIN", "net.c"])],
                 cwd=folder, timeout=300))


@case("tensors, dimensions and nodes may be called like any word of what is emitted for any target")
def _(folder):
    targets = ["c", "opencl", "cuda", "metal", "amd"]
    by_target = {target: emitted_words(folder, target) for target in targets if nameable(target)}
    if T.has_llvm(TGC):                                # its objects have the words of the C that they are made of
        by_target["llvm"] = by_target["c"]
    # in the quick form what is no plain word of small letters, and of these some
    some = lambda words, k: words if OPTIONS.all else [word for i, word in enumerate(words) if i % 24 == k or not re.search("[a-z]", word)]
    for number, (target, words) in enumerate(by_target.items()):
        expect(len(words) > 300, f"{target}: {len(words)} words")
        for k, what in enumerate(("input", "output", "dim", "node")):
            if OPTIONS.all or (target == "c" and what in ("input", "dim")) or number == k + 1 or (target == "llvm" and what == "dim"):
                check_named(folder, some(words, k), what, target)


@case("dimensions and tensors that differ in case alone, and those that are called like the program's own macros")
def _(folder):
    names = ["t", "T", "NET_MAX_T", "NET_ARENA_BYTES", "NET_OK", "NET_MAIN", "INT64_MAX", "RTLD_NOW", "max_f32", "feed_rule_0"]
    for what in ("input", "dim"):
        check_named(folder, names, what, "c")
    bounds = re.findall(r"define (NET_MAX_\w+)", (folder / "net.h").read_text())
    expect(len(bounds) == len(set(bounds)) == len(names), f"{bounds}")


@case("a model may be called like any word of what is emitted for any target", slow=True)
def _(folder):
    perceptron(folder)
    wrong = []
    for target in ("c", "opencl", "cuda", "metal", "amd"):
        if not nameable(target):
            continue
        for word in emitted_words(folder, target):
            if word.lower().startswith("net"):
                continue
            tgc(folder, "model.onnx", "-o", f"{word}.c", f"--target={target}", "--vectors=never")
            wrong += called_wrongly(folder, word)
    expect(not wrong, f"{len(wrong)} words; " + "\n".join(wrong[:5]))


def called_wrongly(folder, word):
    prefix = re.search(r"define (\w+)_ARENA_BYTES", (folder / f"{word}.h").read_text()).group(1)
    done = T.run(["gcc", *T.WARNINGS, "-fsyntax-only", f"-D{prefix}_MAIN", f"{word}.c"], cwd=folder)
    return [done.describe()[:300]] if done.status else []


@case("a model may be called like a word that a device's program has for itself")
def _(folder):
    (folder / "m.tg").write_text('tg 1\ngraph "m"\ninput %x : f32[8]\n%y = exp(%x)\noutput %y as "y"\n')
    wrong = []
    for target, words in DEVICE_WORDS.items():
        for word in words:
            tgc(folder, "m.tg", "-o", f"{word}.c", f"--target={target}")
            wrong += called_wrongly(folder, word)
    expect(not wrong, "\n".join(wrong))


DEVICE_WORDS = {"opencl": ["context", "queue", "load_program", "on_error", "ifdef", "dlopen", "time_t", "INT64_MIN", "feed_rule_0", "input_dim_0"],
                "amd": ["init", "load", "wait", "call", "get_device"], "metal": ["init", "load", "wait", "call"]}


@case("a declared output shape that the nodes do not make is said, and the nodes count")
def _(folder):
    for declared, warned in (([1, 4], True), ([1, 3, 1], True), ([1, 3], False), (["n", 3], False),
                             (["n", 4], True), ([None, 3], False)):
        onnx.save(G.model([G.node("Relu", ["x"], ["y"])], [G.value("x", [1, 3])],
                          [G.value("y", declared)]), folder / "m.onnx")
        done = tgc(folder, "m.onnx", "-o", "m.c")
        expect(("f32[1, 3]" in done.err and "'y'" in done.err) == warned, f"{declared}: {done.err}")


# ---------------------------------------------------------------------------- bad inputs


def check_bounds(done):
    expect(not done.timed_out and done.seconds < SECONDS, f"too slow: {done.describe()}")
    expect(done.peak < MEMORY, f"{done.peak >> 20} MB: {done.describe()}")


def check_bad(entry, folder):
    model = entry.write(T.scratch(folder))
    before = files(folder)
    try:
        done = T.run([TGC, model.name, "-o", "out.c", *entry.options], cwd=folder,
                     timeout=2 * SECONDS)
        check_bounds(done)
        if entry.may_pass and done.status == 0:
            return
        T.must(done, 1)
        for word in (model.name, *entry.names):
            expect(word in done.err, f"the message does not name {word}:\n{done.err}")
        expect(files(folder) == before, f"files were left: {set(files(folder)) - set(before)}")
        for name in ("out.c", "out.h"):
            (folder / name).write_text("older")
        T.must(T.run([TGC, model.name, "-o", "out.c", *entry.options], cwd=folder), 1)
        for name in ("out.c", "out.h"):
            expect((folder / name).read_text() == "older", f"the older {name} was harmed")
        expect(files(folder) == sorted(before + ["out.c", "out.h"]), f"files: {files(folder)}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        (folder.parent / (folder.name + "-secret.bin")).unlink(missing_ok=True)


for number, entry in enumerate(bad_inputs.TABLE):
    suite.add(f"bad input: {entry.name}", check_bad, entry, SCRATCH / f"bad{number}",
              slow=entry.slow)


def check_hostile(name, place, folder):
    """The model is valid, whatever it is called: it compiles, and the C is right and clean."""
    T.scratch(folder)
    try:
        (folder / "model.onnx").write_bytes(bad_inputs.hostile_model(name, place))
        portable = [] if OPTIONS.all else ["--cpu=generic"]      # kernels for others have names of their own alone
        done = T.run([TGC, "model.onnx", "-o", "net.c", "-MD", "-MF", "net.d", *portable], cwd=folder)
        check_bounds(done)
        if done.status == 1:
            # A tensor's name that is no UTF-8 may be refused; a crash or a leak may not.
            expect(isinstance(name, bytes), f"refused: {done.describe()}")
            return
        T.must(done)
        T.must(T.run(["clang", *T.WARNINGS, "-fsyntax-only", "-DNET_MAIN", "net.c"], cwd=folder))
        T.build(folder / "net.c", folder / "net", "gcc", ("-O0",))
        x = np.array([[1, -2, 3], [4, 5, -6]], np.float32)
        np.save(folder / "x.npy", x)
        (folder / "out").mkdir()
        T.must(T.run(["./net", "x.npy", "-o", "out"], cwd=folder))
        made = list((folder / "out").iterdir())
        expect(len(made) == 1, f"outputs: {made}")
        w = np.arange(12, dtype=np.float32).reshape(3, 4) - 5
        T.compare("output", np.load(made[0]), np.maximum(x @ w, 0), 1e-6, 1e-6)
        expect(not (folder / "evil").exists(), "a command from a name was run")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


for number, (label, name) in enumerate(bad_inputs.HOSTILE.items()):
    for place in bad_inputs.PLACES:
        suite.add(f"hostile {place}: {label}", check_hostile, name, place,
                  SCRATCH / f"hostile{number}{place}",
                  slow=place in ("doc", "producer", "graph", "weight", "inner") and number >= 10)


# -------------------------------------------------------------------------- large graphs


def check_blocks(nodes, folder):
    model = G.blocks(nodes)
    T.scratch(folder)
    try:
        onnx.save(model, folder / "model.onnx")
        x = np.random.default_rng(5).standard_normal((4, 16)).astype(np.float32)
        import onnxruntime
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        expected = onnxruntime.InferenceSession(model.SerializeToString(), options).run(
            None, {"x": x})[0]
        T.must(T.run([TGC, "model.onnx", "-o", "net.c"], cwd=folder, timeout=60))
        T.build(folder / "net.c", folder / "net", timeout=600)
        name = model.graph.output[0].name
        outputs = T.Program(folder / "net", [name]).run([x])
        T.compare_to_reference(outputs, {name: expected})
    finally:
        shutil.rmtree(folder, ignore_errors=True)


suite.add("a graph of 2,000 nodes is right", check_blocks, 2000, SCRATCH / "blocks2000")
suite.add("a graph of 20,000 nodes is right", check_blocks, 20000, SCRATCH / "blocks20000",
          slow=True)

suite.main()
