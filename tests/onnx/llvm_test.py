"""The LLVM target, in process: the onnx package's tests that pass by the C target, and the models of
models/ compared with C's results. Quick: every 24th test. Where libLLVM is absent all of it is
skipped, but for the message that says so. TGC_LLVM=15 asks for a version."""

import json
import os
import platform
import re
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(HERE.parent / "lib")]

import numpy as np
import onnx

import node_test as N
import tgc as T
from borders import border, graph_inputs
from suite import Failure, Skip, Suite, expect

EVERY = 24
LLVM = "--target=llvm"


class Way:
    """How a model is run other than by the C compiler: the option, what the last line of run and verify
    begins with, and what --version says if it is not there."""

    def __init__(self, option, maker, absent, reason):
        self.option, self.maker, self.absent, self.reason = option, maker, absent, reason

    def need(self, tgc):
        if self.absent in T.must(T.run([tgc, "--version"])).out.decode():
            raise Skip(self.reason)


BY_LLVM = Way(LLVM, "LLVM ", "libLLVM: none",
              "libLLVM is not installed (libllvm19), or tgc was built without the LLVM target")


def check_random(tgc, way, case, folder):
    """What is drawn at random has only a form."""
    for inputs, outputs in case.data_sets:
        given, options = border(graph_inputs(case.model), inputs)
        wanted, _ = border(case.model.graph.output, outputs)
        words = []
        for k, (name, array) in enumerate(given):
            np.save(folder / f"{k}.npy", T.as_npy(array))
            words += ["-i", f"{name}={k}.npy"]
        T.must(T.run([tgc, "run", "model.onnx", way.option, "--out-dir", "out", *words, *options], cwd=folder,
                     timeout=60))
        results = {name: np.load(folder / "out" / f"{name}.npy") for name, _ in wanted}
        dropout = N.training_dropout(case.model)
        if dropout:
            N.compare_dropout(dropout, dict(given), dict(wanted), results)
            continue
        for name, expected in wanted:
            N.compare_form(name, results[name], expected)


def check_case(tgc, way, case, folder):
    way.need(tgc)
    T.scratch(folder)
    (folder / "model.onnx").write_bytes(case.model.SerializeToString())
    try:
        if N.is_random(case.model) or N.training_dropout(case.model):
            check_random(tgc, way, case, folder)
            return
        for inputs, outputs in case.data_sets:
            for kind, infos, values in (("input", graph_inputs(case.model), inputs),
                                        ("output", case.model.graph.output, outputs)):
                for k, (info, value) in enumerate(zip(infos, values)):
                    N.record(folder / f"{kind}_{k}.pb", info, value)
            done = T.run([tgc, "verify", "model.onnx", way.option, "--data", ".", "--rtol", case.rtol,
                          "--atol", case.atol], cwd=folder, timeout=60)
            if done.status == 1 and "image's format needs a library" in done.err:
                raise Skip("tgc itself is built with no decoder of this format")
            T.must(done)
            *lines, last = done.out.decode().splitlines()
            expect(last.startswith(f"ran by {way.maker}"), f"the last line is {last!r}")
            expect(len(lines) >= len(outputs) and all(line.startswith("ok ") for line in lines),
                   f"{len(outputs)} outputs: {lines}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def check_model(tgc, way, path, folder, options):
    """The same inputs by both targets."""
    way.need(tgc)
    T.scratch(folder)
    for out, target in (("c", "--target=c"), ("l", way.option)):
        T.must(T.run([tgc, "run", path, target, "--out-dir", out, *options], cwd=folder, timeout=120, env=T.quickly()))
    files = sorted(path.name for path in (folder / "c").iterdir())
    expect(files and files == sorted(path.name for path in (folder / "l").iterdir()), "other outputs")
    for name in files:
        T.compare(name, np.load(folder / "l" / name), np.load(folder / "c" / name), 1e-4, 1e-6)


def check_absent(tgc, folder):
    """A version that is not there is an error that names the package."""
    T.scratch(folder)
    done = T.run([tgc, "run", ROOT / "models" / "mlp.tg", LLVM], cwd=folder,
                 env={**os.environ, "TGC_LLVM": "1"})
    expect(done.status == 1 and ("libllvm19" in done.err or "without the LLVM target" in done.err),
           f"status {done.status}: {done.err}")


def check_default(tgc, folder):
    """What runs a model where nothing says how, and that the last line names it."""
    T.scratch(folder)
    model = ROOT / "models" / "digits.tg"          # quick to compile

    def last(*words, **variables):
        done = T.must(T.run([tgc, *words], cwd=folder, env={"CC": "", **variables}))
        return done.out.decode().splitlines()[-1], done.err

    here = "ran by LLVM " if T.has_llvm(tgc) else "ran by cc"
    for words in (["run", model], ["bench", model], ["verify", model, "--other=-O0"]):
        line, said = last(*words)
        expect(line.startswith(here), f"{words[0]}: {line}, {said}")
        expect(last(*words, "--target=c")[0] == "ran by cc", f"{words[0]} --target=c")
    expect(last("run", model, CC="gcc -O1")[0] == "ran by gcc -O1", "CC")
    expect(last("run", model, C="1")[0] == "ran by cc", "C=1")
    expect(last("run", model, C="1", CC="gcc")[0] == "ran by gcc", "C=1 CC=gcc")
    line, said = last("run", model, "-v", TGC_LLVM="1")
    expect(line == "ran by cc" and "not by LLVM: " in said, f"without LLVM: {line}, {said}")
    line, said = last("run", model, "-v", "-g")
    expect(line == "ran by cc" and "not by LLVM: -g" in said, f"-g: {line}, {said}")
    one, both = last("run", model)[0], last("verify", model, "--other=--target=c")[0]
    expect(both == one if one == "ran by cc" else both == f"{one}; the second one by cc", both)
    told = json.loads(T.must(T.run([tgc, "bench", model, "--json"], cwd=folder, env={"CC": ""})).out)
    expect(f"ran by {told['ran_by']}".startswith(here), told["ran_by"])
    done = T.run([tgc, "run", model], cwd=folder, env={"CC": "", "TGC_LLVM": "1", "PATH": "/nowhere"})
    without = ("libLLVM is not installed", "without the LLVM target")
    expect(done.status == 1 and "install a C compiler" in done.err and any(text in done.err for text in without),
           f"neither: {done.describe()}")
    if T.has_llvm(tgc):
        expect(last("run", model, LLVM="1", CC="gcc")[0].startswith(here), "LLVM=1")
        T.must(T.run([tgc, "run", model], env={"CC": "", "PATH": "/nowhere"}))


def check_widest(tgc, folder):
    """Kernels are made for the widest vectors that this processor has."""
    BY_LLVM.need(tgc)
    cpuinfo = Path("/proc/cpuinfo")
    has = set(cpuinfo.read_text().split()) if cpuinfo.exists() else set()
    lanes = (16 if {"avx512f", "avx512vl", "avx512dq", "avx512bw", "avx2", "fma"} <= has
             else 8 if {"avx2", "fma"} <= has else 4)
    T.scratch(folder)
    done = T.must(T.run([tgc, "run", ROOT / "models" / "mlp.tg", LLVM, "--out-dir", "out"], cwd=folder,
                        env={**os.environ, "DEBUG": "3"}))
    expect(f"@llvm.fma.v{lanes}f32(" in done.err, f"no sum of products has {lanes} lanes")


def check_saturation(tgc, folder):
    """Floats become integers by vectors as by the C target: towards zero, saturated, 0 for NaN."""
    BY_LLVM.need(tgc)
    T.scratch(folder)
    edges = [0.5, 1.5, 127.5, 128, 255.5, 256, 32767.5, 32768, 65535.5, 65536, 2147483520, 2147483648,
             4294967040, 4294967296, 1e30, np.inf]
    x = np.array([sign * edge for edge in edges for sign in (1, -1)] + [np.nan] * 16 + [-0.0] * 16,
                 np.float32)
    np.save(folder / "x.npy", x)
    make, kinds = onnx.helper, ("INT8", "UINT8", "INT16", "UINT16", "INT32", "UINT32", "INT64")
    of = {kind: getattr(onnx.TensorProto, kind) for kind in kinds}
    graph = make.make_graph([make.make_node("Cast", ["x"], [kind], to=of[kind]) for kind in kinds], "g",
                            [make.make_tensor_value_info("x", onnx.TensorProto.FLOAT, x.shape)],
                            [make.make_tensor_value_info(kind, of[kind], x.shape) for kind in kinds])
    onnx.save(make.make_model(graph), folder / "m.onnx")
    for out, target in (("c", "--target=c"), ("l", LLVM)):
        T.must(T.run([tgc, "run", "m.onnx", target, "-i", "x=x.npy", "--out-dir", out], cwd=folder,
                     timeout=60, env=T.quickly()))
    for kind in kinds:
        c, l = (np.load(folder / out / f"{kind}.npy") for out in "cl")
        wrong = [f"{x[i]}: {l[i]}, not {c[i]}" for i in np.flatnonzero(c != l)]
        expect(not wrong, f"{kind}: {wrong}")


def check_lookup(tgc, folder):
    """A function of bytes, which is a table by vectors: each byte's value as by the C target."""
    BY_LLVM.need(tgc)
    make = onnx.helper
    for name, dtype in (("UINT8", np.uint8), ("INT8", np.int8)):
        T.scratch(folder)
        of, x = getattr(onnx.TensorProto, name), np.arange(4096).astype(dtype)
        np.save(folder / "x.npy", x)
        constants = [onnx.numpy_helper.from_array(value, what) for what, value in
                     (("s", np.float32(0.01)), ("r", np.float32(0.0079)), ("z", dtype(100)))]
        nodes = [make.make_node("DequantizeLinear", ["x", "s", "z"], ["f"]),
                 make.make_node("Tanh", ["f"], ["g"]),
                 make.make_node("QuantizeLinear", ["g", "r", "z"], ["y"])]
        graph = make.make_graph(nodes, "g", [make.make_tensor_value_info("x", of, x.shape)],
                                [make.make_tensor_value_info("y", of, x.shape)], constants)
        onnx.save(make.make_model(graph), folder / "m.onnx")
        for out, target in (("c", "--target=c"), ("l", LLVM)):
            T.must(T.run([tgc, "run", "m.onnx", target, "-i", "x=x.npy", "--out-dir", out], cwd=folder,
                         timeout=60, env=T.quickly()))
        c, l = (np.load(folder / out / "y.npy") for out in "cl")
        wrong = [f"{x[i]}: {l[i]}, not {c[i]}" for i in np.flatnonzero(c != l)]
        expect(len(set(c.tolist())) > 64 and not wrong, f"{name}: {wrong[:8]}")


def check_elementary(tgc, folder):
    """The bits of elementary functions are the C target's, by vectors of each width that this processor has."""
    BY_LLVM.need(tgc)
    T.scratch(folder)
    make, kinds = onnx.helper, ("Exp", "Log", "Tanh", "Erf", "Sigmoid", "Sqrt", "Sin", "Softplus", "Mish", "Gelu")
    random = np.random.default_rng(1)
    x = np.concatenate([random.standard_normal(1500), 30 * random.standard_normal(1500), np.linspace(-105, 105, 1096)])
    np.save(folder / "x.npy", x.astype(np.float32))
    graph = make.make_graph([make.make_node(kind, ["x"], [kind]) for kind in kinds], "g",
                            [make.make_tensor_value_info("x", onnx.TensorProto.FLOAT, x.shape)],
                            [make.make_tensor_value_info(kind, onnx.TensorProto.FLOAT, x.shape) for kind in kinds])
    onnx.save(make.make_model(graph, opset_imports=[make.make_opsetid("", 20)]), folder / "m.onnx")
    for cpu in "native", "x86-64-v3" if platform.machine() == "x86_64" else "generic":
        for out, target in (("c", "--target=c"), ("l", LLVM)):
            T.must(T.run([tgc, "run", "m.onnx", target, f"--cpu={cpu}", "-i", "x=x.npy", "--out-dir", out], cwd=folder,
                         timeout=60, env=T.quickly()))
        for kind in kinds:
            c, l = (np.load(folder / out / f"{kind}.npy").view(np.uint32) for out in "cl")
            wrong = [f"{x[i]}: {l[i]:#x}, not {c[i]:#x}" for i in np.flatnonzero(c != l)]
            expect(not wrong, f"{kind}, {cpu}: {len(wrong)} differ: {wrong[:4]}")


def check_memory(tgc, folder):
    """Weights are memory of the run, not of the compile, whose limit follows from the model's size."""
    BY_LLVM.need(tgc)
    T.scratch(folder)
    make, nbytes = onnx.helper, 16 << 20
    weight = onnx.numpy_helper.from_array(np.ones((2048, nbytes // 8192), np.float32), "w")
    graph = make.make_graph([make.make_node("MatMul", ["x", "w"], ["y"])], "g",
                            [make.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [8, 2048])],
                            [make.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [8, nbytes // 8192])], [weight])
    onnx.save(make.make_model(graph), folder / "m.onnx")
    said = T.must(T.run([tgc, "run", "m.onnx", LLVM, "-v"], cwd=folder, env={"TGC_CACHE": "0"})).err
    used = {stage: float(re.search(rf"^{stage} .* ([0-9.]+) MB$", said, re.M)[1]) for stage in ("schedule", "LLVM")}
    expect(used["LLVM"] - used["schedule"] < nbytes / 2e6, f"{used}:\n{said}")


def check_refusals(tgc, folder):
    """What the target does not do yet is an error, never another way in its place."""
    T.scratch(folder)
    model = ROOT / "models" / "mlp.tg"
    done = T.run([tgc, "compile", model, "-o", "m.c", LLVM], cwd=folder)
    expect(done.status == 2 and "--target=llvm" in done.err, f"status {done.status}: {done.err}")
    expect(not list(folder.iterdir()), "a file is left")


# a table of no strings, whose section is empty
ALWAYS = ("test_strnormalizer_nostopwords_nochangecase",)


def add_cases(suite, tgc, way, scratch, cases, every):
    """The onnx package's tests that tgc passes; all but each `every`-th and ALWAYS are slow."""
    passing, _ = N.read_lists()
    for number, name in enumerate(passing):
        if name in cases:
            suite.add(name, check_case, tgc, way, cases[name], scratch / N.flat(name),
                      slow=number % every != 0 and name not in ALWAYS)


def main():
    suite = Suite("llvm")
    options = suite.parse()
    tgc = T.find_tgc(options.build)
    scratch = T.scratch(Path(options.build).resolve() / "test-scratch" / "llvm")
    suite.add("absent", check_absent, tgc, scratch / "absent")
    suite.add("default", check_default, tgc, scratch / "default")
    suite.add("widest", check_widest, tgc, scratch / "widest")
    suite.add("saturation", check_saturation, tgc, scratch / "saturation")
    suite.add("lookup", check_lookup, tgc, scratch / "lookup")
    suite.add("elementary", check_elementary, tgc, scratch / "elementary")
    suite.add("memory", check_memory, tgc, scratch / "memory")
    suite.add("refusals", check_refusals, tgc, scratch / "refusals")
    for number, path in enumerate(sorted((ROOT / "models").glob("*.tg"))):
        for how in ((), ("--cpu=generic",), ("--cpu=avx2",), ("-O0",)):     # quick: portable or not optimized, in turn
            name = f"{path.stem} {' '.join(how)}".strip()
            suite.add(name, check_model, tgc, BY_LLVM, path, scratch / N.flat(name), how, slow=how and how != (("--cpu=generic",), ("-O0",))[number % 2])
    add_cases(suite, tgc, BY_LLVM, scratch, N.load_cases(options.build), EVERY)
    suite.main()


if __name__ == "__main__":
    main()
