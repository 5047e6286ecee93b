"""The Metal target without a Mac: kernels are C++ for clang and g++ with a metal_stdlib of the tests' own, and use nothing that the language's
version has not (tests/lib/msl.py); programs run on the emulated device, by an Objective-C runtime and a framework of the tests' own, which count
who holds what and see every access and every message. Quick: the models of models/, every 120th of the onnx package's tests."""

import gc
import re
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(HERE.parent / "lib"), str(HERE.parent / "exec")]

import numpy as np
import onnx

import emulator
import graphs as G
import halves
import msl
import node_test as N
import opencl_test as O
import tgc as T
from device_test import Options
from library import Library
from suite import Failure, Suite, expect
from twins import ACROSS, ATTENTIONS, DEQUANTIZED, FUZZED, FUZZED_LONG, GEMM, PART, REDUCED, TERMS, attention

EVERY = 120
NO_DEVICE, DEVICE_FAILED, DEVICE_MEMORY, OTHER_DEVICE = 19, 11, 22, 23
DOUBLES_INSIDE = {"Resize", "Upsample", "Range", "Pow", "DFT", "STFT", "MelWeightMatrix"}
PROGRAMS = HERE.parent / "emulator" / "programs"

suite = Suite("metal", jobs=1)      # the device is one of the process


def emit(tgc, model, folder, stem, *options):
    """STEM.c, and the kernels' text, which is checked."""
    for out in (f"{stem}.c", f"{stem}.metal"):
        T.must(T.run([tgc, model, "-o", out, f"--name={stem}", "--target=metal", *options], cwd=folder, timeout=120))
    msl.check((folder / f"{stem}.metal").read_text())


def built(tgc, model, folder, *options):
    """NAME.so of a model, in this process's device."""
    T.scratch(folder)
    onnx.save(model, folder / "net.onnx")
    emit(tgc, "net.onnx", folder, "net", *options)
    T.must(T.run(["gcc", T.LEVEL, *T.WARNINGS, *emulator.METAL_FLAGS, "-shared", "-fPIC", "net.c", "-o", "net.so"], cwd=folder))


def environment(build, folder, **more):
    return emulator.metal_environment(build, cache=folder / "kernels", **more)


# -------------------------------------------------------------------------------------------------- programs

def check_model(tgc, path, folder, build, *options):
    """The program's own check of its reference vectors."""
    T.scratch(folder)
    emit(tgc, path, folder, "m", *options)
    T.build(folder / "m.c", folder / "m", "gcc", (T.LEVEL, *emulator.METAL_FLAGS))
    done = T.run([folder / "m", "--selftest"], env=environment(build, folder))
    expect(done.status == 0 and not done.err, done.describe())


CONVOLUTIONS = """tg 1
input %x : f32[1, 16, 28, 28]
weight %v : f32[64, 16, 1, 1] = normal(std=0.3, seed=1)
weight %w : f32[64, 64, 3, 3] = normal(std=0.1, seed=2)
%a = conv2d(%x, %v)
%b = relu(%a)
%c = conv2d(%b, %w) {padding=1}
%d = relu(%c)
output %d as "y"
"""
# Products by simdgroup_multiply_accumulate: name, text, options, the instruction.
MATRICES = [("f16", GEMM.format(dtype="f16", m=64, n=64, k=128), (), "m8n8k8_f16"),
            ("f32", GEMM.format(dtype="f32", m=64, n=64, k=64), (), "m8n8k8_f32"),
            ("bf16", GEMM.format(dtype="bf16", m=64, n=64, k=128), (), "m8n8k8_bf16"),
            ("f32 as f16", GEMM.format(dtype="f32", m=64, n=64, k=64), ("--math=f16",), "m8n8k8_f16"),
            ("f32 as bf16, odd sizes", GEMM.format(dtype="f32", m=65, n=67, k=131), ("--math=bf16",), "m8n8k8_bf16"),
            ("odd sizes", GEMM.format(dtype="f16", m=97, n=67, k=131), (), "m8n8k8_f16"),
            ("odd sizes, f32", GEMM.format(dtype="f32", m=97, n=67, k=131), (), "m8n8k8_f32"),
            ("17 of each", GEMM.format(dtype="f16", m=17, n=17, k=33), (), "m8n8k8_f16"),
            ("both across", ACROSS.format(dtype="f16", m=33, n=40, k=48), (), "m8n8k8_f16"),
            ("both across, f32", ACROSS.format(dtype="f32", m=65, n=72, k=80), (), "m8n8k8_f32"),
            ("tiles of a group", GEMM.format(dtype="f16", m=256, n=256, k=64), (), "m8n8k8_f16"),
            ("tiles of a group, f32", GEMM.format(dtype="f32", m=256, n=256, k=64), (), "m8n8k8_f32"),
            ("attention", (ROOT / "models" / "transformer_block.tg").read_text(), ("--dim=B=1", "--dim=T=40", "--math=f16"), "m8n8k8_f16"),
            ("convolution", CONVOLUTIONS, (), "m8n8k8_f32"),
            ("sums that are reduced again", REDUCED.format(dtype="f32"), (), None),
            ("a run's terms", TERMS.format(dtype="f32"), (), None),
            ("weights in blocks", DEQUANTIZED.format(m=100, scale="mul"), (), "m8n8k8_f16"),
            ("no local memory", GEMM.format(dtype="f32", m=64, n=64, k=64), ("--no-locals",), None)]


# Attention, on a device that has no instruction for bf16: name, text, options, the instruction.
FLASH = [("many heads", ATTENTIONS[-1][1], (), "m8n8k8_f16"),
         *((name, text, options, "m8n8k8_f16") for name, text, options, dtype in ATTENTIONS[:-1] if dtype == "f16" and "96 heads" not in name),      # units for matrices are those of threads
         ("f32, heads of 40", attention("f32", "2, 8", 37, 53, 40, 44), (), "m8n8k8_f32")]


def matrices(tgc, text, folder, build, options, row):
    """A product is computed by the instruction, or not: rightly, on the emulated device, which looks for SIMD groups whose threads are not all there."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "net.tg").write_text(text)
    check_model(tgc, folder / "net.tg", folder / "run", build, *options)
    kernels = (folder / "run" / "m.metal").read_text()
    expect(bool(re.search(rf"^ +{row}\(", kernels, re.M)) if row else "simdgroup_" not in kernels, f"by another instruction than {row}:\n{kernels}")


def matrices_diverge(tgc, folder, build):
    """Half of a SIMD group goes around the instruction: the emulated device says so."""
    T.scratch(folder)
    (folder / "net.tg").write_text(MATRICES[0][1])
    emit(tgc, "net.tg", folder, "net")
    text = (folder / "net.c").read_text()
    broken = re.sub(r"( +)(m8n8k8_f16\(acc)", r"\1if (thread % 2) \2", text)
    expect(broken != text, "no instruction")
    (folder / "net.c").write_text(broken)
    T.build_quickly(folder / "net.c", folder / "net", *emulator.METAL_FLAGS)
    done = T.run([folder / "net", "--selftest"], env=environment(build, folder))
    expect(done.status != 0 and re.search(r"emulator: net_\w+: divergent operation of a sub-group", done.err), done.describe())


def has_doubles(case):
    """Whether the model has 64-bit floats, or an operator that computes with them inside."""
    text = str(case.model)
    return "11" in re.findall(r"\b(?:data_type|elem_type|i): (\d+)", text) or DOUBLES_INSIDE & set(re.findall(r'op_type: "(\w+)"', text))


def check_case(device, tgc, case, folder, told):
    with device.watch():
        try:
            N.emit_case(tgc, case, folder, ("--target=metal",), told)
            options = N.case_options(case, folder, ("--target=metal",), told)
            T.must(T.run([tgc, "model.onnx", "-o", "node.metal", *options], cwd=folder, timeout=60))
            msl.check((folder / "node.metal").read_text())
            T.build_shared(folder / "node.c", *emulator.METAL_FLAGS, *N.libraries_of(case))
            O.check_results(case, Library(folder / "node.so", "node"))
        except N.Refused as refusal:
            if "64-bit floats, which Metal does not have" in str(refusal):
                expect(has_doubles(case), f"refused, and the model has no 64-bit floats: {refusal}")
            else:
                O.check_refusal(case, refusal)
        gc.collect()
    shutil.rmtree(folder, ignore_errors=True)


def random_graphs(first, count, build):
    command = [sys.executable, ROOT / "tests" / "fuzz" / "random_graphs.py", "--build", build, "--emulator=metal", "--joined", "--seed", first, "--count", count,
               "--jobs", 2]
    done = T.run(command, timeout=3600)
    expect(done.status == 0, "\n".join(line for line in done.out.decode().splitlines() if not line.startswith("ok "))[:6000] or done.err)


# -------------------------------------------------------------------------------------------------- the language

def as_cxx(tgc, folder):
    """Kernels as C++14 by clang and g++, with halves of the library's and, where the compiler has them, its own."""
    T.scratch(folder)
    for stem in ("mlp", "transformer_block", "mnist_cnn"):
        emit(tgc, ROOT / "models" / f"{stem}.tg", folder, stem)
    for number, (_, text, options, _) in enumerate(MATRICES[:3]):
        (folder / f"matrices{number}.tg").write_text(text)
        emit(tgc, f"matrices{number}.tg", folder, f"matrices{number}", *options)
    x = np.arange(6, dtype=np.float16).reshape(2, 3)
    onnx.save(G.model([G.node("Sin", ["x"], ["s"]), G.node("Add", ["s", "x"], ["y"])], [G.value("x", list(x.shape), onnx.TensorProto.FLOAT16)],
                      [G.value("y", list(x.shape), onnx.TensorProto.FLOAT16)]), folder / "halves.onnx")
    emit(tgc, "halves.onnx", folder, "halves")
    words = ["-std=c++14", "-fsyntax-only", "-Werror=all", "-Wno-unknown-pragmas", "-Wno-attributes", f"-I{emulator.SOURCES / 'metal'}"]
    compilers = [[emulator.need_clang(), "-Wno-unknown-attributes", "-Wno-ignored-attributes"], ["g++"]]
    (folder / "own.cc").write_text("_Float16 x;\n")
    for compiler in compilers:
        own = T.run([*compiler, "-fsyntax-only", "own.cc"], cwd=folder).status == 0
        for flags in ([], ["-DMETAL_STDLIB_FLOAT16"])[:1 + own]:
            for text in sorted(folder.glob("*.metal")):
                T.must(T.run([*compiler, *words, *flags, "-Wno-unused-function", "-Wno-unused-variable", "-x", "c++", text], timeout=120))


def checker(_, folder):
    """The checker sees what it is there for."""
    head = "// Metal Shading Language 2.4\n#include <metal_stdlib>\nusing namespace metal;\n"
    kernel = "kernel void f(device float *y [[buffer(0)]])\n{{\n    {}\n}}\n"
    msl.check(head + kernel.format("y[0] = precise::sin(1.0f);"))
    for wrong in ("double x = 1;", "float *p = y;", "y[0] = simd_sum_of(1.0f);", "static int n;", "goto end;", "long long n = 1;", "y[0] = 0x1p3f;", "y[0] = 1ll;"):
        try:
            msl.check(head + kernel.format(wrong))
        except Failure:
            continue
        expect(False, f"passes: {wrong}")
    for dtype, version, before in (("float", "2.4", "2.2"), ("bfloat", "3.1", "2.4")):
        matrix = kernel.format(f"simdgroup_{dtype}8x8 m;")
        msl.check(head.replace("2.4", version) + matrix)
        try:
            msl.check(head.replace("2.4", before) + matrix)
        except Failure:
            continue
        expect(False, f"a matrix of {dtype} in version {before} passes")


def integers_as_halves(device, tgc, folder):
    """In one rounding, and without 64-bit floats."""
    for name in ("int64", "uint64"):
        x = halves.large(np.dtype(name))
        model = G.model([G.node("Cast", ["x"], [half], to=to) for half, to, _ in halves.KINDS],
                        [G.value("x", list(x.shape), onnx.helper.np_dtype_to_tensor_dtype(x.dtype))],
                        [G.value(half, list(x.shape), to) for half, to, _ in halves.KINDS])
        built(tgc, model, folder / name)
        with device.watch():
            library = Library(folder / name / "net.so", "net")
            got = library.run({"x": x})
            for half, _, kind in halves.KINDS:
                halves.check(x, got[half].view(kind), half)
            del library
            gc.collect()


# -------------------------------------------------------------------------------------------------- refusals

def refuses(tgc, folder):
    """64-bit floats: the kernel and its node are named, and no file is left."""
    T.scratch(folder)
    onnx.save(G.model([G.node("Sin", ["x"], ["y"], name="wave")], [G.value("x", [4], onnx.TensorProto.DOUBLE)], [G.value("y", [4], onnx.TensorProto.DOUBLE)]), folder / "m.onnx")
    for out in ("m.c", "m.metal"):
        done = T.run([tgc, "m.onnx", "-o", out, "--target=metal"], cwd=folder)
        expect(done.status == 1 and re.search(r'kernel \w+, of Sin "wave", computes with 64-bit floats', done.err) and not (folder / out).exists(), done.describe())


# -------------------------------------------------------------------------------------------------- the host

def other_devices(device, tgc, folder):
    """No device; too little memory; threadgroups that are too large; another SIMD group."""
    built(tgc, G.perceptron(), folder)
    device.refuses(folder / "net.so", "units=0", NO_DEVICE, "Metal has no device here")
    device.refuses(folder / "net.so", "memory=100", DEVICE_MEMORY, "needs [0-9]+ bytes and [0-9]+ for its weights.*of 100 bytes at most")
    device.refuses(folder / "net.so", "subgroup=16", OTHER_DEVICE, "SIMD groups of 32 threads, and the device's have 16: compile with --no-locals")
    alone = folder / "alone"
    built(tgc, G.perceptron(), alone, "--no-locals")            # its threads exchange nothing
    with device.watch("subgroup=16"):
        Library(alone / "net.so", "net").run({"x": np.ones((1, 8), np.float32)})
        gc.collect()
    folder = folder / "products"         # another file: the first one may still be loaded
    built(tgc, products(), folder)
    device.refuses(folder / "net.so", "group=8", OTHER_DEVICE, "kernel net_.* threads in a threadgroup, and the device runs 8 of it: compile with --no-locals")
    device.refuses(folder / "net.so", "local=16", OTHER_DEVICE, "kernel net_.* bytes of threadgroup memory, and the device 16: compile with --no-locals")
    device.refuses(folder / "net.so", "family=6", OTHER_DEVICE, "multiply matrices by SIMD groups, and the device is older than Apple's M1 and A14.*--no-locals")


def products():
    w = np.random.default_rng(7).random((512, 512), np.float32)
    return G.model([G.node("MatMul", ["x", "w"], ["y"])], [G.value("x", [512, 512])], [G.value("y", [512, 512])], [onnx.numpy_helper.from_array(w, "w")])


def broken_text(device, tgc, folder):
    """Kernels that do not compile: what the device's compiler says."""
    built(tgc, G.perceptron(), folder)
    source = (folder / "net.c").read_text()
    (folder / "net.c").write_text(source.replace("using namespace metal;", "using namespace mettle;"))
    T.build_shared(folder / "net.c", *emulator.METAL_FLAGS, "-ldl")
    device.refuses(folder / "net.so", "", DEVICE_FAILED, "(?s)the kernels do not compile: .*mettle")


def recorded(device, tgc, folder):
    """A run is one command buffer with one encoder, which is told of each kernel its code, where its arguments are, and the threads, and
    of buffers once: what is read, what is written."""
    built(tgc, G.perceptron(), folder)
    with device.watch():
        library = Library(folder / "net.so", "net")
        library.run({"x": np.ones((1, 8), np.float32)})         # arguments are written before their first use
        with device.log(folder / "calls"):
            library.run({"x": np.ones((1, 8), np.float32)})
        calls = (folder / "calls").read_text().split("\n")
        for call in ("commandBuffer", "computeCommandEncoder", "commit", "waitUntilCompleted"):
            expect(calls.count(call) == 1, f"{call}: {calls.count(call)} times")
        for call in ("setComputePipelineState:", "setBuffer:offset:atIndex:", "dispatchThreadgroups:threadsPerThreadgroup:"):
            expect(calls.count(call) == library.info.kernel_count, f"{call}: {calls.count(call)} times, of {library.info.kernel_count} kernels")
        expect(calls.count("useResources:count:usage:") == 2, "the encoder is told of what is read and what is written")
        for call in ("newBufferWithLength:options:", "newLibraryWithSource:options:error:", "newFunctionWithName:", "addAllocation:"):
            expect(call not in calls, f"a run calls {call}")
        del library
        gc.collect()


def many_tensors(device, tgc, folder):
    """A kernel of 40 tensors, by an argument buffer of the second tier; the first one has 31."""
    many = [f"x{i}" for i in range(40)]
    built(tgc, G.model([G.node("Sum", many, ["y"])], [G.value(x, [4]) for x in many], [G.value("y", [4])]), folder)
    device.refuses(folder / "net.so", "tier=1", OTHER_DEVICE, "more than 31 tensors and run-time sizes.*compile with -O0")
    x = np.random.default_rng(5).integers(-99, 99, (40, 4)).astype(np.float32)
    with device.watch():
        library = Library(folder / "net.so", "net")
        y = library.run(dict(zip(many, x)))["y"]
        expect(library.info.kernel_count == 1 and (y == x.sum(0)).all(), f"{y}, not {x.sum(0)}")
        del library
        gc.collect()


def nothing_written(tgc, folder):
    """A program that puts nothing into the device's memory, for nobody reads its input: no function of it is idle."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "net.tg").write_text('tg 1\ninput %x : f32[8, 2]\n%y = slice(%x) {axis=0, start=0, end=0}\noutput %y as "y"\n')
    for target in ("metal", "cuda", "amd", "opencl"):
        T.must(T.run([tgc, "net.tg", "-o", f"{target}.c", f"--target={target}"], cwd=folder))
        T.must(T.run(["gcc", *T.WARNINGS, "-c", f"{target}.c", "-o", f"{target}.o"], cwd=folder))


# What a host may forget of its buffers and arguments: what is taken out of it, the device's facts, what is reported, or wrong.
FORGOTTEN = {"a buffer that is written": (r"use\(m->encoder, [^;]*writes[^;]*;", "", r"'\w+' is in a buffer that the encoder was not told to be (read|written)"),
             "buffers, without a residency set": (r"use\(m->encoder, [^;]*;", "resident=0", "'\\w+' is in a buffer that is not resident"),
             "what is under way": (r"t->is_read = true;", "", "'y' is in a buffer that is not resident")}


def forgotten(tgc, folder, build, pattern, facts, words):
    """Programs that forget it, in the program that shares the device with them."""
    build_sharing(tgc, folder, lambda text: re.sub(pattern, "", text))
    done = T.run([folder / "sharing"], env=environment(build, folder, device=facts))
    expect(done.status != 0 and re.search(words, done.err), done.describe())


def without_framework(tgc, folder):
    """On a system that is no macOS, as this one is: the status, and why."""
    T.scratch(folder)
    emit(tgc, ROOT / "models" / "mlp.tg", folder, "m")
    T.must(T.run([emulator.need_clang(), *T.WARNINGS, "-fsyntax-only", "m.c"], cwd=folder))
    T.build(folder / "m.c", folder / "m")
    done = T.run([folder / "m", "--selftest"], cwd=folder)
    expect(done.status != 0 and "Metal is of macOS, and this system has no" in done.err and "driver of the device" in done.err, done.describe())


def older_system(tgc, folder):
    """A runtime that lacks a function."""
    T.scratch(folder)
    emit(tgc, ROOT / "models" / "mlp.tg", folder, "m")
    (folder / "old.c").write_text("void *objc_getClass(const char *name);\nvoid *objc_getClass(const char *name) { return (void *)name; }\n")
    T.must(T.run(["gcc", "-shared", "-fPIC", "old.c", "-o", "old.so"], cwd=folder))
    T.build(folder / "m.c", folder / "m", "gcc", ("-O0", *(f'-DMETAL_{what}="{folder / "old.so"}"' for what in ("RUNTIME", "FRAMEWORK"))))
    done = T.run([folder / "m", "--selftest"], cwd=folder)
    expect(done.status != 0 and "the system has no sel_registerName: it is older than macOS 12" in done.err, done.describe())


def each_call_fails(tgc, model, folder, build):
    """At each message in turn, in a build with sanitizers."""
    T.scratch(folder)
    onnx.save(model, folder / "net.onnx")
    emit(tgc, "net.onnx", folder, "net")
    T.must(T.run(["gcc", *T.WARNINGS, *T.SANITIZE, f'-DDRIVER="{emulator.METAL}"', *emulator.METAL_FLAGS, "net.c", PROGRAMS / "failing.c", "-I.", "-o",
                  "failing", "-lm", "-ldl"], cwd=folder))
    done = T.must(T.run([folder / "failing", "", "+"], env=environment(build, folder)))
    expect("emulator: " not in done.err, done.err)
    expect(int(re.search(r"each of (\d+) calls", done.out.decode()).group(1)) > 15, done.out)


def broken_program(tgc, folder, build):
    """A kernel that stores one vector too far: a status, and the line of its text."""
    T.scratch(folder)
    emit(tgc, ROOT / "models" / "mlp.tg", folder, "net", "--dim", "B=2")
    text = (folder / "net.c").read_text()
    broken = re.sub(r"\by\[([^]]*)\](?=, | = )", r"y[\1 + 4]", text, count=1)
    expect(broken != text, "no kernel stores to y[...]")
    (folder / "net.c").write_text(broken)
    T.build_quickly(folder / "net.c", folder / "net", *emulator.METAL_FLAGS)
    done = T.run([folder / "net", "--selftest"], env=environment(build, folder))
    expect(done.status != 0 and re.search(r"emulator: net_\w+: out of bounds: .*, at line \d+: .*\by\[.* \+ 4\]", done.err), done.describe())


def build_sharing(tgc, folder, change=None):
    """The program sharing, of metal.c and a model; change: makes another text of the model's."""
    T.scratch(folder)
    emit(tgc, ROOT / "models" / "digits.tg", folder, "net")
    if change:
        text = (folder / "net.c").read_text()
        expect(change(text) != text, "nothing is changed")
        (folder / "net.c").write_text(change(text))
    warnings = () if change else T.WARNINGS
    T.must(T.run(["gcc", *warnings, *T.SANITIZE, *emulator.METAL_FLAGS, "net.c", PROGRAMS / "metal.c", "-I.", "-o", "sharing", "-lm", "-ldl"], cwd=folder))


def sharing(tgc, folder, build):
    """In a program that uses Metal itself: its device, queue, buffers and command buffer, times of kernels; on systems with residency sets and
    without."""
    build_sharing(tgc, folder)
    for facts in ("", "resident=0"):
        done = T.must(T.run([folder / "sharing"], env=environment(build, folder, device=facts)))
        expect(done.out.decode() == "right\n" and not done.err, done.describe())


def main():
    suite.parse()
    build = suite.options.build
    tgc = T.find_tgc(build)
    scratch = T.scratch(Path(build).resolve() / "test-scratch" / "metal")
    device = emulator.Device(build, scratch, emulator.metal_library)
    for path in sorted((ROOT / "models").glob("*.tg")):
        suite.add(path.name, check_model, tgc, path, scratch / path.stem, build, slow=path.stem in ("mnist_cnn", "transformer_block"))
        suite.add(f"-O0: {path.name}", check_model, tgc, path, scratch / f"{path.stem}-O0", build, "-O0", slow=True)
    for number, (name, text, options, row) in enumerate(MATRICES):
        suite.add(f"matrices: {name}", matrices, tgc, text, scratch / f"matrices-{name.replace(' ', '_')}", build, options, row, slow=number % 2 == 1)
    for number, (name, text, options, row) in enumerate(FLASH):
        suite.add(f"attention by matrices: {name}", matrices, tgc, text, scratch / f"attention{number}", build, options, row, slow=number not in (0, 2))
    suite.add("matrices: threads that diverge", matrices_diverge, tgc, scratch / "matrices-diverge", build)
    suite.add("as C++", as_cxx, tgc, scratch / "cxx")
    suite.add("the checker", checker, tgc, scratch / "checker")
    suite.add("integers as halves", integers_as_halves, device, tgc, scratch / "halves")
    suite.add("what Metal has not", refuses, tgc, scratch / "refuses")
    suite.add("no macOS", without_framework, tgc, scratch / "no_framework")
    suite.add("an older macOS", older_system, tgc, scratch / "older")
    suite.add("devices that lack something", other_devices, device, tgc, scratch / "lacks")
    suite.add("kernels that do not compile", broken_text, device, tgc, scratch / "broken_text")
    suite.add("a run's messages", recorded, device, tgc, scratch / "recorded")
    suite.add("nothing is written to the device", nothing_written, tgc, scratch / "nothing")
    suite.add("a kernel of 40 tensors", many_tensors, device, tgc, scratch / "many_tensors")
    for number, (name, what) in enumerate(FORGOTTEN.items()):
        suite.add(f"a host that forgets {name}", forgotten, tgc, scratch / f"forgotten{number}", build, *what)
    suite.add("a kernel out of bounds", broken_program, tgc, scratch / "broken", build)
    suite.add("device, queue, buffers and command buffer of the caller's", sharing, tgc, scratch / "sharing", build)
    for name, make in G.FAILING.items():
        suite.add(f"each message fails: {name}", each_call_fails, tgc, make(), scratch / f"fails-{name.replace(' ', '_')}", build)
    cases = N.load_cases(build)
    passing, _ = N.read_lists()
    for number, (name, told) in enumerate(passing.items()):
        if name in cases:
            suite.add(name, check_case, device, tgc, cases[name], scratch / N.flat(name), told, slow=number % EVERY != 0)
    suite.add(f"{FUZZED} random graphs", random_graphs, 100000, FUZZED, build)
    for first in range(0, FUZZED_LONG, PART):
        suite.add(f"random graphs {first}-{first + PART - 1}", random_graphs, first, PART, build, slow=True)
    suite.main()


if __name__ == "__main__":
    main()
