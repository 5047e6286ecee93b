"""Emitted models that run by threads: the same bits at any count, and no race.

Each model is compiled for seven threads and for one. tests/exec/threads.c runs it in every way; it
checks the answers against each other, this file compares those of the compilations.
"""

import json
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "lib")]

import numpy as np
import onnx
import onnxruntime

import graphs as G
import tgc as T
from suite import Skip, Suite, expect

suite = Suite("threads")
OPTIONS = suite.parse()
TGC = T.find_tgc(OPTIONS.build).resolve()
SCRATCH = T.scratch(Path(OPTIONS.build).resolve() / "test-scratch" / "threads")
THREAD_SANITIZER = ["-g", "-O1", "-fsanitize=thread"]


def draw(*shape, seed=5):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32) * 0.2


def convolutions():
    """Odd sizes, padding, a residual, pooling, a matrix-vector product."""
    return G.model(
        [G.node("Conv", ["x", "w1"], ["c1"], pads=[1] * 4),
         G.node("Relu", ["c1"], ["r1"]),
         G.node("Conv", ["r1", "w2"], ["c2"], pads=[1] * 4),
         G.node("Add", ["c2", "r1"], ["s2"]),
         G.node("MaxPool", ["s2"], ["p2"], kernel_shape=[3, 3], strides=[2, 2]),
         G.node("Conv", ["p2", "w3"], ["c3"], group=19, pads=[1] * 4),
         G.node("Relu", ["c3"], ["r3"]),
         G.node("Flatten", ["r3"], ["f"]),
         G.node("MatMul", ["f", "w4"], ["y"])],
        [G.value("x", [1, 3, 31, 29])], [G.value("y", [1, 203])],
        [G.weight("w1", draw(19, 3, 3, 3)), G.weight("w2", draw(19, 19, 3, 3)),
         G.weight("w3", draw(19, 1, 3, 3)), G.weight("w4", draw(19 * 15 * 14, 203))])


def winograd():
    """Two blocks of channels, of which each thread stores one, in turns of 64 bytes: gcc stored
    the other's back unchanged."""
    return G.model(
        [G.node("Conv", ["x", "w1"], ["c1"], pads=[1] * 4), G.node("Relu", ["c1"], ["r1"]),
         G.node("Conv", ["r1", "w2"], ["y"], pads=[1] * 4)],
        [G.value("x", [1, 128, 28, 28])], [G.value("y", [1, 32, 28, 28])],
        [G.weight("w1", draw(32, 128, 3, 3)), G.weight("w2", draw(32, 32, 3, 3))])


def elements():
    """A prime number of elements: the loop that is shared becomes strips of vectors."""
    return G.model(
        [G.node("Tanh", ["x"], ["t"]), G.node("Exp", ["t"], ["e"]),
         G.node("Mul", ["e", "x"], ["m"]), G.node("Erf", ["m"], ["y"])],
        [G.value("x", [1, 9973])], [G.value("y", [1, 9973])])


def rows():
    """Scratch of 6 kB for a row: each thread needs its own in the arena."""
    return G.model([G.node("Softmax", ["x"], ["s"], axis=1), G.node("Exp", ["s"], ["y"])],
                   [G.value("x", [37, 1501])], [G.value("y", [37, 1501])])


def joined():
    """Parts of one tensor, and stores to places that are data."""
    places = np.random.default_rng(3).integers(0, 40, (4000, 1))
    return G.model(
        [G.node("Exp", ["x"], ["a"]), G.node("Tanh", ["x"], ["b"]),
         G.node("Concat", ["a", "b"], ["c"], axis=1),
         G.node("ScatterND", ["zero", "places", "c"], ["y"])],
        [G.value("x", [4000, 30])], [G.value("y", [40, 60])],
        [G.weight("places", places), G.weight("zero", np.zeros((40, 60), np.float32))])


MODELS = {"convolutions": convolutions, "winograd": winograd, "elements": elements, "rows": rows, "joined": joined}
TEXTS = ("transformer_block", "sliding_window_attention", "mlp")


def emit(name, threads, use, *options):
    folder = T.scratch(SCRATCH / f"{name}-{threads}-{use}")
    source = T.ROOT / "models" / f"{name}.tg"
    if name in MODELS:
        source = folder / "model.onnx"
        onnx.save(MODELS[name](), source)
    T.emit(TGC, source, folder / "net.c", f"--threads={threads}", *options)
    expect("NET_THREADS 7" in (folder / "net.h").read_text() or threads < 7, "nothing is shared")
    return folder


def run_driver(folder, compiler, *flags):
    T.must(T.run([compiler, *T.WARNINGS, *flags, f"-I{folder}", f"-I{T.ROOT / 'runtime'}",
                  HERE / "threads.c", "-o", folder / "program", "-lm", "-lpthread"], timeout=300))
    return T.must(T.run([folder / "program"], timeout=120)).out.decode().strip()


def equal(name, compiler):
    """The kernels of other processors, which do not run here, are built once: by gcc, for seven threads."""
    counts = (1, 2, 7) if name == "winograd" else (1, 7)
    hashes = [run_driver(emit(name, n, compiler, *([] if (compiler, n) == ("gcc", 7) else ["--cpu=native"])), compiler, "-O2")
              for n in counts]
    expect(len(set(hashes)) == 1, f"compiled for {counts} threads: {hashes}")


def attention():
    """Heads that threads share, of rows that a tile leaves over: those have a loop of their own over the scratch
    that the tiles stored their keys in."""
    return G.model(
        [G.node("MatMul", ["q", "k"], ["s"]), G.node("Mul", ["s", "c"], ["t"]),
         G.node("Softmax", ["t"], ["p"], axis=-1), G.node("MatMul", ["p", "v"], ["y"])],
        [G.value("q", [1, 3, 29, 16]), G.value("k", [1, 3, 16, 29]), G.value("v", [1, 3, 29, 16])],
        [G.value("y", [1, 3, 29, 16])], [G.weight("c", np.array(0.25, np.float32))])


def joined_band():
    """Nests that meet in what a band keeps, and in what they store parts of: the last kernel was taken apart."""
    return G.model(
        [G.node("Exp", ["x"], ["e"]),
         G.node("Conv", ["e", "w", "b"], ["c"], kernel_shape=[3], pads=[1, 1], strides=[2]),
         G.node("Concat", ["c", "k", "e"], ["j"], axis=-1), G.node("Softmax", ["j"], ["y"], axis=0)],
        [G.value("x", [64, 3, 8]), G.value("k", [64, 3, 3])], [G.value("y", [64, 3, 15])],
        [G.weight("w", draw(3, 3, 3)), G.weight("b", draw(3))])


def shared_scratch(name, graph, *options):
    """What threads share of kernels whose nests meet in scratch, against ONNX Runtime."""
    folder = T.scratch(SCRATCH / f"{name}-{len(options)}")
    onnx.save(graph, folder / "model.onnx")
    T.emit(TGC, folder / "model.onnx", folder / "net.c", *options)
    T.build(folder / "net.c", folder / "net")
    inputs = {v.name: draw(*(d.dim_value for d in v.type.tensor_type.shape.dim), seed=i)
              for i, v in enumerate(graph.graph.input)}
    got = T.Program(folder / "net", ["y"]).run(list(inputs.values()))["y"]
    want = onnxruntime.InferenceSession(graph.SerializeToString()).run(None, inputs)[0]
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)     # sums in another order


for name, made in (("attention", attention), ("joined band", joined_band)):
    for options in (("--threads=2",), ("--threads=2", "--cache=0"), ("--cache=0", "--threads=3", "--cpu=generic")):
        suite.add(f"{name}: {' '.join(options)} agrees with ONNX Runtime", shared_scratch, name.replace(" ", "_"), made(), *options)

for number, name in enumerate((*MODELS, *TEXTS)):
    for k, compiler in enumerate(("gcc", "clang")):     # in turn in the quick form
        suite.add(f"{name}: the same bits by any number of threads ({compiler})", equal, name,
                  compiler, slow=number % 2 != k)
    suite.add(f"{name}: the threads do not race",
              lambda name=name: run_driver(emit(name, 7, "race", "--cpu=native"), "clang", *THREAD_SANITIZER))


@suite.case("gcc's sanitizers find nothing")
def sanitizers():
    run_driver(emit("convolutions", 7, "race-gcc", "--cpu=native"), "gcc", *THREAD_SANITIZER)
    run_driver(emit("rows", 7, "sanitize", "--cpu=native"), "gcc", *T.SANITIZE)


@suite.case("no heap, and no mutable data")
def discipline():
    folder = emit("convolutions", 7, "discipline")
    T.must(T.run(["gcc", "-std=c11", "-O2", "-fno-pic", "-c", "net.c"], cwd=folder))
    for line in T.must(T.run(["nm", "net.o"], cwd=folder)).out.decode().splitlines():
        kind, name = line.split()[-2:]
        expect(kind not in "dDbBC", f"{name} is mutable data ({kind})")
        libc = ("pthread_", "sched_yield", "timespec_get", "mem", "__cpu_", "__stack_chk")
        expect(kind != "U" or name.startswith(libc), f"it refers to {name}")


@suite.case("without threads of the system's the caller's are left")
def no_pthreads():
    folder = emit("rows", 7, "none")
    T.must(T.run(["gcc", *T.WARNINGS, "-O2", "-DNET_NO_PTHREADS", "-c", "net.c"], cwd=folder))
    names = T.must(T.run(["nm", "-u", "net.o"], cwd=folder)).out.decode()
    expect("pthread" not in names, names)


@suite.case("the file is C++17, and a program, too")
def program():
    folder = emit("elements", 7, "program")
    for compiler in ("g++", "clang++"):
        T.must(T.run([compiler, "-std=c++17", "-Wall", "-Wextra", "-Werror", "-Wno-deprecated",
                      "-fsyntax-only", "-x", "c++", "net.c"], cwd=folder))
    T.build(folder / "net.c", folder / "program", "gcc", ("-O2",))
    for words in (["--selftest"], ["--selftest", "--threads", "3"], ["--threads", "1", "--bench", "0"]):
        done = T.must(T.run([folder / "program", *words], timeout=60))
        expect(done.out.strip(), f"{words} says nothing")


@suite.case("a model that is soon done has no threads")
def small():
    folder = T.scratch(SCRATCH / "small")
    onnx.save(G.perceptron(), folder / "model.onnx")
    for n in (1, 4):
        T.emit(TGC, folder / "model.onnx", folder / "net.c", f"--threads={n}")
        (folder / "net.c").rename(folder / f"net{n}.c")
    expect((folder / "net1.c").read_bytes() == (folder / "net4.c").read_bytes(),
           "--threads changes a model whose kernels nothing shares")


def answers(model, folder, target, counts):
    """The outputs of tgc run by so many threads, each the bytes of all files."""
    outputs = []
    for n in counts:
        out = T.scratch(folder / f"out{n}")
        T.must(T.run([TGC, "run", model, target, f"--threads={n}", "--out-dir", out], env=T.quickly()))
        outputs.append({path.name: path.read_bytes() for path in out.iterdir()})
    expect(outputs[0] and all(other == outputs[0] for other in outputs), "the answers differ")
    return out


@suite.case("tgc runs and measures by threads")
def commands():
    folder = emit("convolutions", 7, "commands")
    answers(folder / "model.onnx", folder, "--target=c", (1, 2, 7) if OPTIONS.all else (1, 7))
    done = T.must(T.run([TGC, "bench", folder / "model.onnx", "--target=c", "--threads=2", "--json"], env=T.quickly()))
    expect(json.loads(done.out)["threads"] == 2, done.describe())


def by_llvm(name):
    """What LLVM makes in this process is shared as the C is; in the quick form two threads are asked for of rows alone, and
    every second model is compared with C."""
    T.need_llvm(TGC)
    folder = emit(name, 7, "llvm")
    model = folder / "model.onnx" if name in MODELS else T.ROOT / "models" / f"{name}.tg"
    ours = answers(model, folder, "--target=llvm", (1, 2, 7) if OPTIONS.all or name == "rows" else (1, 7))
    code = T.must(T.run([TGC, "run", model, "--target=llvm", "--threads=7"], env={"DEBUG": "3"})).err
    expect("call void @share(" in code, "nothing is shared")
    if not OPTIONS.all and (*MODELS, *TEXTS).index(name) % 2:
        return
    theirs = answers(model, T.scratch(folder / "c"), "--target=c", (7,))
    for path in sorted(theirs.iterdir()):
        T.compare(path.name, np.load(ours / path.name), np.load(path), 1e-5, 1e-6)


def object_hash(model, threads, folder, compiler="gcc", triple=(), runner=()):
    """What threads.c says of an object that LLVM has made."""
    T.must(T.run([TGC, "compile", model, "-o", folder / "net.o", "--target=llvm", f"--threads={threads}", *triple],
                 env={"CC": compiler}))
    T.must(T.run([*compiler.split(), *T.WARNINGS, "-O1", "-DNET_OBJECT", f"-I{folder}", f"-I{T.ROOT / 'runtime'}",
                  HERE / "threads.c", folder / "net.o", "-Wl,--wrap=pthread_create", "-o", folder / "program",
                  "-lm", "-lpthread", *(["-static"] if triple else [])]))
    return T.must(T.run([*runner, folder / "program"], timeout=120)).out.decode()


def model_of(name, use="llvm-object"):
    folder = emit(name, 7, use)
    return folder, folder / "model.onnx" if name in MODELS else T.ROOT / "models" / f"{name}.tg"


def by_llvm_object(name):
    T.need_llvm(TGC)
    folder, model = model_of(name)
    hashes = [object_hash(model, n, folder) for n in (1, 7)]
    expect(hashes[0] == hashes[1], f"compiled for one thread and for seven: {hashes}")


def by_llvm_elsewhere(triple, *flags):
    T.need_llvm(TGC)
    compiler, emulator = f"{triple}-gcc", f"qemu-{triple.split('-')[0]}"
    for tool in (compiler, emulator):
        if not shutil.which(tool):
            raise Skip(f"{tool} is not installed")
    compiler = " ".join((compiler, *flags))
    folder, model = model_of("rows", triple)      # beside the cases of other machines
    object_hash(model, 7, folder, compiler, (f"--triple={triple}",), (emulator,))


@suite.case("without a system the caller's threads are left")
def bare():
    if not shutil.which("arm-none-eabi-gcc") or not shutil.which("clang"):
        raise Skip("arm-none-eabi-gcc or clang is not installed")
    folder, model = model_of("rows")
    for target in ["clang"] + ["llvm"] * T.has_llvm(TGC):
        T.must(T.run([TGC, "compile", model, "-o", "net.o", f"--target={target}", "--threads=2",
                      "--triple=thumbv7em-none-eabihf"], cwd=folder))
        names = T.must(T.run(["nm", "-u", "net.o"], cwd=folder)).out.decode()
        expect("pthread" not in names, f"{target}: {names}")


@suite.case("objects of LLVM that cannot have threads")
def llvm_refusals():
    T.need_llvm(TGC)
    folder, model = model_of("rows")
    for out in ("net.s", "net.ll"):
        done = T.run([TGC, "compile", model, "-o", out, "--target=llvm", "--threads=2"], cwd=folder)
        expect(done.status == 1 and "runtime" in done.err and not (folder / out).exists(), done.describe())
    done = T.run([TGC, "compile", model, "-o", "none.o", "--target=llvm", "--threads=2"], cwd=folder,
                 env={"CC": "/nowhere/cc"})
    expect(done.status == 1 and "/nowhere/cc" in done.err and not (folder / "none.o").exists(), done.describe())


for name in (*MODELS, *TEXTS):
    suite.add(f"{name}: the same bits by any number of threads (LLVM)", by_llvm, name)
    suite.add(f"{name}: the same bits by any number of threads (LLVM's object)", by_llvm_object, name, slow=name not in ("rows", "joined", "mlp"))
for machine in (("aarch64-linux-gnu",), ("riscv64-linux-gnu",), ("s390x-linux-gnu", "-fexcess-precision=fast")):
    suite.add(f"rows: LLVM's object shared by threads on {machine[0]}", by_llvm_elsewhere, *machine)


suite.main()
