"""Tests that CUDA and HIP share, whose drivers have one interface (runtime/graphs.c): programs on the emulated device, with every access and every
call of the driver checked."""

import base64
import gc
import re
import shutil
import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from random import Random

import numpy as np
import onnx
import onnx.reference

import emulator
import graphs as G
import node_test as N
import opencl_test as O
import tgc as T
from library import Library
from opencl import Options
from suite import expect

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "tests" / "emulator" / "programs"

# Programs beside C's: name, text, options.
ENTRIES = """tg 1
state %s : f32[8]
entry "add" {
    input %x : f32[8]
    %n = add(%s, %x)
    keep %s = %n
    output %n as "sum"
}
entry "look" {
    %1 = reduce_sum(%s) {axes=[0], keep=true}
    output %1 as "total"
}
"""
MLP = (ROOT / "models" / "mlp.tg").read_text()
VECTORS = "tg 1\ninput %x : f32[40, 128]\n%y = softmax(%x) {axis=-1}\noutput %y\n"
SAME = [("states and entries", ENTRIES, ()), ("half storage", MLP, ("--dim=B=3", "--half-storage")),
        ("no locals", MLP, ("--dim=B=3", "--no-locals")), ("weights beside", MLP, ("--dim=B=3", "--weights=file"))]
DEVICE_FAILED = 11
EVERY = 60                    # of the onnx package's tests: their kernels are compiled; quick: every other one
FUZZED = 8                    # random graphs
# The host's C of programs whose kernels are what is tested: models/ are built by T.LEVEL, too.
HOST = T.LEVEL if "--all" in sys.argv else "-O0"
FUZZED_LONG, PART = 5000, 250


def memory_of(folder):
    """M_DEVICE_BYTES, and what NAME_describe() has of the weights: all that m.c takes of the device."""
    own = re.search(r"#define M_DEVICE_BYTES (\d+)", (folder / "m.h").read_text())
    weights = re.search(r"M_ARENA_ALIGN, (\d+), ", (folder / "m.c").read_text())
    return int(own.group(1)), int(weights.group(1))


# Products for matrix instructions.
GEMM = """tg 1
input %a : {dtype}[{m}, {k}]
input %b : {dtype}[{k}, {n}]
%c = matmul(%a, %b)
%r = relu(%c)
output %r as "c"
"""
# Sums of as many terms as a run has.
TERMS = """tg 1
input %a : {dtype}[N<=64, K<=40]
input %b : {dtype}[K, M<=48]
%c = matmul(%a, %b)
output %c as "c"
"""
# Each sum is needed in each turn of two other reductions.
REDUCED = """tg 1
input %a : {dtype}[64, 40]
input %b : {dtype}[40, 48]
%c = matmul(%a, %b)
%e = reshape(%c) {{shape=[64, 48, 1]}}
%x = expand(%e) {{shape=[64, 48, 2]}}
%y = argmax(%x) {{axis=2}}
output %y as "c"
"""
ACROSS = """tg 1
input %a : {dtype}[3, {k}, {m}]
input %b : {dtype}[3, {n}, {k}]
%at = permute(%a) {{perm=[0, 2, 1]}}
%bt = permute(%b) {{perm=[0, 2, 1]}}
%c = matmul(%at, %bt)
output %c as "c"
"""
BYTES = """tg 1
input %a : {{dtype}}[40, 128]
weight %w : i8[128, 48] = {weight}
%ai = cast(%a) {{{{to=i32}}}}
%wi = cast(%w) {{{{to=i32}}}}
%c = matmul(%ai, %wi)
output %c as "c"
""".format(weight=(np.arange(128 * 48) % 251 - 125).tolist())
# Too few terms for matrices.
FEW_BYTES = """tg 1
input %x : u8[100, 48]
weight %w : i8[72, 48] = base64("{weight}")
%a = cast(%x) {{to=i32}}
%b = cast(%w) {{to=i32}}
%t = permute(%b) {{perm=[1, 0]}}
%y = matmul(%a, %t)
output %y
""".format(weight=base64.b64encode(Random(1).randbytes(72 * 48)).decode())
# Weights in blocks with a scale each, times halves: copies to local memory compute them. {scale}: how.
DEQUANTIZED = """tg 1
input %x : f16[{m}, 96]
weight %w : i8[72, 3, 32] = base64("{weight}")
weight %s : f16[72, 3, 1] = normal(std=0.05, seed=2)
%f = cast(%w) {{to=f16}}
%d = {scale}(%f, %s)
%r = reshape(%d) {{shape=[72, 96]}}
%t = permute(%r) {{perm=[1, 0]}}
%y = matmul(%x, %t)
output %y
""".replace("{weight}", base64.b64encode(Random(1).randbytes(72 * 96)).decode())
# Of two tensors that a run brings, with zero points or without; {x}, {y}: the bytes.
RUNTIME_BYTES = """tg 1
input %a : {x}[3, 40, 128]
input %b : {y}[3, 48, 128]
%ai = cast(%a) {{to=i32}}
%as = sub(%ai, i32({za}))
%af = cast(%as) {{to=f32}}
%am = mul(%af, f32(0.02))
%bi = cast(%b) {{to=i32}}
%bs = sub(%bi, i32({zb}))
%bf = cast(%bs) {{to=f32}}
%bt = permute(%bf) {{perm=[0, 2, 1]}}
%c = matmul(%am, %bt)
output %c as "c"
"""


def attention(dtype, heads, queries, keys, size, columns=None, mask="", more=""):
    """The text of attention alone; queries, keys: sizes, or symbols with their bounds. mask: its shape."""
    extent = [str(n).partition("<=")[0] for n in (queries, keys)]
    return (f"tg 1\ninput %q : {dtype}[{heads}, {queries}, {size}]\ninput %k : {dtype}[{heads}, {keys if keys != queries else extent[1]}, {size}]\n"
            f"input %v : {dtype}[{heads}, {extent[1]}, {columns or size}]\n" + (f"input %m : {dtype}[{mask}]\n" if mask else "") +
            f"%y = attention(%q, %k, %v{', %m' if mask else ''}) {more}\noutput %y\n")


# Attention that tiles of instructions compute: name, text, options; every target has a row for f16, some for what is said behind.
ATTENTIONS = [("heads of 64", attention("f16", "1, 8", 50, 130, 64), (), "f16"),
              ("heads of 40, none a whole tile", attention("f32", "2, 8", 37, 53, 40, 44), ("--math=f16",), "f16"),
              ("heads of 128", attention("bf16", "1, 8", 64, 96, 128), ("--math=bf16",), "bf16"),
              ("heads of 80, causal, of a run's length", attention("f16", "2, 8", "T<=70", "T<=70", 80, more="{causal=true}"), ("--dim=T=..70",), "f16"),
              ("in a window", attention("f32", "1, 8", 150, 150, 32, more="{causal=true, window=20}"), ("--math=bf16",), "bf16"),
              ("a mask of numbers", attention("f16", "16", 33, 70, 96, mask="33, 70"), (), "f16"),
              ("17 queries of 1000 keys", attention("f16", "16", 17, 1000, 64), (), "f16"),
              ("7 queries of 1025 keys, 96 heads", attention("f16", "96", 7, 1025, 32), ("--vectors=always",), "f16"),
              ("1000 queries of 17 keys", attention("f16", "2", 1000, 17, 64), (), "f16"),
              ("64 heads", attention("f16", "8, 8", 48, 80, 32), (), "f16"),
              ("many heads", attention("f16", "2, 8", 48, 80, 32), (), "f16")]
# A block of each head's few queries is a wave, of fewer blocks than there are units, that waits for all keys: a block for each query is faster.
FEW_HEADS = ("7 queries of 4097 keys, 24 heads", attention("f16", "24", 7, 4097, 32), ("--vectors=always",))


def chains(count, length):
    """So many chains of convolutions that need nothing of each other, joined."""
    lines = ["tg 1", "input %x : f32[1, 8, 8, 8]"]
    for c in range(count):
        of = "x"
        for i in range(length):
            lines.append(f"weight %w{c}_{i} : f32[8, 8, 3, 3] = normal(std=0.1, seed={c * length + i + 1})")
            lines += [f"%c{c}_{i} = conv2d(%{of}, %w{c}_{i}) {{padding=1}}", f"%r{c}_{i} = relu(%c{c}_{i})"]
            of = f"r{c}_{i}"
    join = ", ".join(f"%r{c}_{length - 1}" for c in range(count))
    return "\n".join(sorted(lines, key=lambda line: "%" == line[0]) + [f"%y = concat({join}) {{axis=1}}", 'output %y as "y"', ""])


CHAINS = chains(4, 6)
PARTS = """tg 1
input %x : f32[1, 8, 8, 8]
weight %w1 : f32[8, 8, 3, 3] = normal(std=0.1, seed=1)
weight %w2 : f32[8, 8, 3, 3] = normal(std=0.1, seed=2)
weight %w3 : f32[8, 8, 3, 3] = normal(std=0.1, seed=3)
weight %w4 : f32[8, 8, 3, 3] = normal(std=0.1, seed=4)
weight %w5 : f32[8, 16, 1, 1] = normal(std=0.1, seed=5)
%a = conv2d(%x, %w1) {padding=1}
%b = conv2d(%x, %w2) {padding=1}
%c = concat(%a, %b) {axis=1}
%d = conv2d(%c, %w5)
%e = conv2d(%a, %w3) {padding=1}
%f = conv2d(%b, %w4) {padding=1}
%g = add(%e, %f)
%h = add(%g, %d)
output %h as "y"
"""
BRANCHES = """tg 1
input %x : f32[64, 64]
weight %v : f32[64, 64] = uniform(low=-1, high=1, seed=1)
weight %w : f32[64, 64] = uniform(low=-1, high=1, seed=2)
%a = matmul(%x, %v)
%b = matmul(%x, %w)
%c = softmax(%a) {axis=-1}
%d = softmax(%b) {axis=-1}
%e = matmul(%c, %d)
output %e
"""


class Twin:
    """One of the two. name: of --target; language: the kernels' file, "cu"; need(): skips where its compiler is missing; driver: the library's name;
    environment(build, text, **more), text_of(path): where the emulator finds the kernels' text. rows: architectures that the onnx package's tests
    are compiled for in turn, each with what the emulated device is told of itself."""

    def __init__(self, suite, name, language, driver, need, environment, text_of, rows):
        self.suite, self.name, self.language, self.driver = suite, name, language, driver
        self.need, self.environment, self.text_of = need, environment, text_of
        self.rows = rows

    def emit(self, tgc, model, folder, stem, *options):
        """STEM.c, and the kernels' text, which the emulator needs."""
        self.need()
        for out in (f"{stem}.c", f"{stem}.{self.language}"):
            T.must(T.run([tgc, model, "-o", out, f"--name={stem}", f"--target={self.name}", *options], cwd=folder, timeout=120))

    def stand_ins(self):
        """Within, nothing compiles the kernels of programs that are emitted for the emulated device, which has their text: of cases that give the same
        kernels to the compilers themselves, or break them."""
        self.need()
        return T.environment(**emulator.stand_ins(self.suite.options.build))

    def environment_of(self, folder, stem, **more):
        return self.environment(self.suite.options.build, folder / f"{stem}.{self.language}", cache=folder / "kernels", **more)

    def built(self, tgc, model, folder, *options):
        """net.so of a model, in this process's device."""
        T.scratch(folder)
        onnx.save(model, folder / "net.onnx")
        self.emit(tgc, "net.onnx", folder, "net", *options)
        T.must(T.run(["gcc", T.LEVEL, *T.WARNINGS, "-shared", "-fPIC", "net.c", "-o", "net.so"], cwd=folder))
        self.text_of(folder / f"net.{self.language}")

    def float8(self, device, tgc, folder, kind, arch, told, row):
        """Layers of floats of 8 bits are multiplied as such, with their scales behind the sum: as onnx's own evaluator computes them, but for the
        order of sums in f32. What is beyond the largest number saturates."""
        made = G.float8_layers(kind)
        random = np.random.default_rng(1)
        feeds = {v.name: random.standard_normal([d.dim_value for d in v.type.tensor_type.shape.dim]).astype(np.float32) for v in made.graph.input}
        feeds["x"][3, 5], feeds["x"][7, 2] = 1e6, -0.0
        wanted = onnx.reference.ReferenceEvaluator(made).run(None, feeds)
        self.built(tgc, made, folder, f"--cpu={arch}")
        text = (folder / f"net.{self.language}").read_text()
        expect(len(re.findall(rf"^ +{row}\(", text, re.M)) >= 2 if row else not re.search(r"\bm\w+k32_e", text), f"products by another instruction than {row}")
        with device.watch(told):
            library = Library(folder / "net.so", "net")
            results = library.run(feeds)
            del library
            gc.collect()
        for v, right in zip(made.graph.output, wanted):
            error = np.abs(results[v.name] - right).max() / np.abs(right).max()
            expect(error < 3e-6, f"{v.name} is off by {error}")

    # ---------------------------------------------------------------------------------------------- programs

    @staticmethod
    def build_host(folder):
        """m.c as a program, of which the kernels are what is tested."""
        if HOST == "-O0":
            T.build_quickly(folder / "m.c", folder / "m")
        else:
            T.build(folder / "m.c", folder / "m", "gcc", (HOST,))

    def quickly(self):
        """Within, in the quick form nothing compiles kernels: of those whose like other cases give the compiler."""
        return self.stand_ins() if HOST == "-O0" else nullcontext()

    def check_text(self, tgc, path, folder, *options, device=""):
        """check_model() of such kernels."""
        with self.quickly():
            self.check_model(tgc, path, folder, *options, device=device)

    def check_model(self, tgc, path, folder, *options, device="", level=HOST):
        """The program's own check of its reference vectors, on a device that has just the memory that is known before; one with a byte less is
        refused, with the sizes."""
        T.scratch(folder)
        quickly = level == HOST == "-O0"
        self.emit(tgc, path, folder, "m", *options, *(T.ARRAYS if quickly else ()))
        if quickly:
            T.build_quickly(folder / "m.c", folder / "m")
        else:
            T.build(folder / "m.c", folder / "m", "gcc", (level,))
        own, weights = memory_of(folder)
        done = T.run([folder / "m", "--selftest"], env=self.environment_of(folder, "m", device=f"{device} memory={own + weights}"))
        expect(done.status == 0 and not done.err, done.describe())
        done = T.run([folder / "m", "--selftest"], env=self.environment_of(folder, "m", device=f"{device} memory={own + weights - 1}"))
        said = done.out.decode() + done.err
        expect(done.status == 1 and f"needs {own} bytes and {weights} for its weights, and of the device's {own + weights - 1} bytes" in said, done.describe())

    def check_case(self, device, tgc, case, folder, told, row, facts, is_quick):
        """One of the onnx package's tests. In the long form what the kernels are compiled to is of one in EVERY."""
        self.need()
        way = (f"--target={self.name}", f"--cpu={row}")
        with T.environment(**({} if is_quick else emulator.stand_ins(self.suite.options.build))), device.watch(facts):
            try:
                N.emit_case(tgc, case, folder, way, told)
                options = N.case_options(case, folder, way, told)
                T.must(T.run([tgc, "model.onnx", "-o", f"node.{self.language}", *options], cwd=folder, timeout=60))
                T.build_shared(folder / "node.c", *N.libraries_of(case))
                self.text_of(folder / f"node.{self.language}")
                O.check_results(case, Library(folder / "node.so", "node"))
            except N.Refused as refusal:
                O.check_refusal(case, refusal)
            gc.collect()
        shutil.rmtree(folder, ignore_errors=True)

    def same_as_c(self, tgc, folder, model, options, device=""):
        """tgc verify of a program for the device beside C's. model: text, or what the onnx package makes."""
        T.scratch(folder)
        self.need()
        name = "net.tg" if isinstance(model, str) else "net.onnx"
        if name == "net.tg":
            (folder / name).write_text(model)
        else:
            onnx.save(model, folder / name)
        T.must(T.run([tgc, name, "-o", f"net.{self.language}", f"--target={self.name}", *options], cwd=folder))
        environment = {**self.environment_of(folder, "net", **({"device": device} if device else {})), "TGC_CACHE": "0", **T.quickly()}
        done = T.must(T.run([tgc, "verify", name, "--target=c", *(option for option in options if option.startswith("--dim")),
                             f"--other={' '.join([f'--target={self.name}', *options])}", *(["--atol=3e-3"] if "--half-storage" in options else [])],
                            cwd=folder, env=environment))
        expect("emulator:" not in done.err, done.err)

    def named(self, tgc, folder, name, text):
        """A model may be called what the host's text calls the interface's own functions, or what the kernels' vectors, their template or a part of
        them are called."""
        T.scratch(folder)
        (folder / "net.tg").write_text(text)
        self.emit(tgc, "net.tg", folder, name)
        expect(f"{name}_init({name} **made, " in (folder / f"{name}.h").read_text(), "the model has another name")
        T.must(T.run(["gcc", T.LEVEL, *T.WARNINGS, f"-D{name.upper()}_MAIN", f"{name}.c", "-o", "program", "-lm", "-ldl"], cwd=folder))
        done = T.run([folder / "program", "--selftest"], env=self.environment_of(folder, name))
        expect(done.status == 0 and not done.err, done.describe())

    def random_graphs(self, first, count):
        command = [sys.executable, ROOT / "tests" / "fuzz" / "random_graphs.py", "--build", self.suite.options.build, f"--emulator={self.name}",
                   "--joined", "--seed", first, "--count", count, "--jobs", 2]
        done = T.run(command, timeout=3600)
        expect(done.status == 0, "\n".join(line for line in done.out.decode().splitlines() if not line.startswith("ok "))[:6000] or done.err)

    # ---------------------------------------------------------------------------------------------- the host

    def large_grids(self, device, tgc, folder):
        """The grid's second and third axes have at most 65535 blocks: a larger dimension is the first one; two of them are refused."""
        x = np.random.default_rng(5).random((2, 70000, 3), np.float32)
        turned = G.model([G.node("Transpose", ["x"], ["y"], perm=[1, 0, 2])], [G.value("x", list(x.shape))], [G.value("y", [70000, 2, 3])])
        with device.watch():
            self.built(tgc, turned, folder)
            library = Library(folder / "net.so", "net")
            expect(np.array_equal(library.run({"x": x})["y"], x.transpose(1, 0, 2)), "other numbers")
            del library
            gc.collect()
        huge, text = [1, 1 << 24, 1 << 24, 2], f"m.{self.language}"
        T.scratch(folder)
        onnx.save(G.model([G.node("Transpose", ["x"], ["y"], perm=[0, 2, 1, 3])], [G.value("x", huge)], [G.value("y", huge)]), folder / "m.onnx")
        done = T.run([tgc, "m.onnx", "-o", text, f"--target={self.name}"], cwd=folder)
        expect(done.status == 1 and "blocks along axis" in done.err and not (folder / text).exists(), done.describe())

    def recorded(self, device, tgc, folder, wanted, own):
        """A run is its copies and one graph, and the wait: all the rest was done by init. own: calls that make the device the thread's."""
        self.built(tgc, G.perceptron(), folder)
        with device.watch():
            library = Library(folder / "net.so", "net")
            with device.log(folder / "calls"):
                library.run({"x": np.ones((1, 8), np.float32)})
            calls = [line for line in (folder / "calls").read_text().split("\n")[:-1] if not line.startswith(own)]
            expect(calls == wanted, f"{calls}, not {wanted}")
            del library
            gc.collect()

    def without_driver(self, tgc, folder):
        """No library of the driver's, or one that does not load: the status, and which it is."""
        T.scratch(folder)
        with self.stand_ins():
            self.emit(tgc, ROOT / "models" / "mlp.tg", folder, "m")
        self.build_host(folder)
        done = T.run([folder / "m", "--selftest"], cwd=folder, env={"LD_LIBRARY_PATH": str(folder)})
        said = done.out.decode() + done.err
        expect(done.status != 0 and "driver of the device" in said and re.search(rf"no {self.driver.partition('.so')[0]}\.so.* is found: ", said), done.describe())
        (folder / self.driver).write_text("no library")
        done = T.run([folder / "m", "--selftest"], cwd=folder, env={"LD_LIBRARY_PATH": str(folder)})
        expect(done.status != 0 and f"{self.driver} does not load: " in done.out.decode() + done.err, done.describe())

    def old_driver(self, tgc, folder):
        """A driver that lacks a function is older than what programs need."""
        T.scratch(folder)
        with self.stand_ins():
            self.emit(tgc, ROOT / "models" / "mlp.tg", folder, "m")
        self.build_host(folder)
        (folder / "old.c").write_text("int cuInit(unsigned flags) { (void)flags; return 0; }\nint hipInit(unsigned flags) { (void)flags; return 0; }\n")
        T.must(T.run(["gcc", "-shared", "-fPIC", "old.c", "-o", self.driver, f"-Wl,-soname,{self.driver}"], cwd=folder))
        done = T.run([folder / "m", "--selftest"], cwd=folder, env={"LD_LIBRARY_PATH": str(folder)})
        said = done.out.decode() + done.err
        expect(done.status == 1 and re.search(r"the driver has no \w+: it is older than \w+ \d+\.\d", said) and "older than the program needs" in said, done.describe())

    def stays_wrong(self, device, tgc, folder, patch=None, after=0):
        """An error of a kernel stays: each call says so, and close releases all. after: the status of opening a model then; a context of CUDA's ends
        with what is wrong in it."""
        self.broken(tgc, folder, patch)
        T.build_shared(folder / "net.c", "-lm", "-ldl")
        self.text_of(folder / f"net.{self.language}")
        told = []
        options = Options(on_error=Options.ERROR(lambda user, text: told.append(text.decode())))
        device.begin()
        library = Library(folder / "net.so", "net", options=options)
        x = np.ones([library.info.inputs[0].dim[a].size for a in range(library.info.inputs[0].rank)], np.float32)
        for _ in range(2):
            library.run({library.info.inputs[0].name.decode(): x}, status=DEVICE_FAILED)
        expect(len(told) >= 2 and all("(700), of a kernel that ran before" in line for line in told), f"{told}")
        Library(folder / "net.so", "net", options=options, status=DEVICE_FAILED)        # another model in the same context
        del library
        gc.collect()
        expect(device.library.emulator_live() == 0, "something is left")
        Library(folder / "net.so", "net", options=options, status=after)
        gc.collect()
        expect(device.library.emulator_live() == 0, "something is left")

    def each_call_fails(self, tgc, model, folder, device=""):
        """At each call of the driver in turn, in a build with sanitizers."""
        T.scratch(folder)
        onnx.save(model, folder / "net.onnx")
        with self.stand_ins():
            self.emit(tgc, "net.onnx", folder, "net")
        T.must(T.run(["gcc", *T.WARNINGS, *T.SANITIZE, f'-DDRIVER="{self.driver}"', "net.c", PROGRAMS / "failing.c", "-I.", "-o", "failing", "-lm", "-ldl"],
                     cwd=folder))
        done = T.must(T.run([folder / "failing", "", "+", ":2"], env=self.environment_of(folder, "net", device=device)))
        expect("emulator: " not in done.err, done.err)
        expect(int(re.search(r"each of (\d+) calls", done.out.decode()).group(1)) > 20, done.out)

    def broken(self, tgc, folder, patch=None):
        """net.c with a kernel that stores elsewhere. patch(program, text, broken): the program of the other text."""
        T.scratch(folder)
        self.emit(tgc, ROOT / "models" / "mlp.tg", folder, "net", "--dim", "B=2")
        path = folder / f"net.{self.language}"
        text = path.read_text()
        broken = re.sub(r"\by\[([^]]*)\](?=, | = )", r"y[\1 + 1000000]", text, count=1)
        expect(broken != text, "no kernel stores to y[...]")
        path.write_text(broken)
        if patch:
            (folder / "net.c").write_text(patch((folder / "net.c").read_text(), text, broken))

    def broken_program(self, tgc, folder, patch=None):
        """A kernel that stores elsewhere: a status, and the line of its text."""
        self.broken(tgc, folder, patch)
        T.build_quickly(folder / "net.c", folder / "net")
        done = T.run([folder / "net", "--selftest"], env=self.environment_of(folder, "net"))
        expect(done.status != 0 and re.search(r"emulator: net_\w+: out of bounds: .*, at line \d+: .*\by\[.* \+ 1000000\]", done.err), done.describe())

    def order(self, tgc, folder):
        """Kernels of a graph that need nothing of each other are not ordered; where one that does is not, the device says so."""
        T.scratch(folder)
        (folder / "two.tg").write_text(BRANCHES)
        self.emit(tgc, "two.tg", folder, "net")
        T.build_quickly(folder / "net.c", folder / "net")
        done = T.must(T.run([folder / "net", "--selftest"], env=self.environment_of(folder, "net")))
        expect(not done.err, done.err)
        source = (folder / "net.c").read_text()
        first = [int(word) for word in re.search(r"behind_first\[\] = \{([^}]*)\}", source).group(1).split(",")]
        expect(sum(a == b for a, b in zip(first, first[1:])) > 1, f"one behind the other: {first}")
        broken = source.replace("const int count = behind_first[i + 1] - behind_first[i];", "const int count = 0 * behind_first[i];")
        expect(broken != source, "no order in NAME.c")
        (folder / "net.c").write_text(broken)
        T.build_quickly(folder / "net.c", folder / "net", "-w")
        done = T.run([folder / "net", "--selftest"], env=self.environment_of(folder, "net"))
        expect("emulator: " in done.err and re.search("race|nobody has written", done.err), done.describe())

    def apart(self, tgc, folder):
        """Places of intermediates make no chain of kernels wait for another one: four chains of six convolutions and the join of two of them, whose
        parts other kernels read, too. A kernel of a chain that comes before the one it needs is a race that is seen."""
        for name, text, longest in (("chains", CHAINS, 6), ("parts", PARTS, 3)):
            T.scratch(folder / name)
            (folder / name / "net.tg").write_text(text)
            self.emit(tgc, "net.tg", folder / name, "net")
            found = re.search(r"Of (\d+) kernels the longest chain has\n \* (\d+);", (folder / name / "net.c").read_text())
            expect(found and int(found.group(2)) == longest, f"{name}: {found and found.group()}, not a longest chain of {longest}")
            T.build_quickly(folder / name / "net.c", folder / name / "net")
            done = T.must(T.run([folder / name / "net", "--selftest"], env=self.environment_of(folder / name, "net")))
            expect(not done.err, done.err)

    def sharing(self, tgc, folder, device=""):
        """In a program that uses the driver itself: its context, stream, device memory and event, times of kernels."""
        T.scratch(folder)
        self.emit(tgc, ROOT / "models" / "digits.tg", folder, "net")
        T.must(T.run(["gcc", *T.WARNINGS, *T.SANITIZE, "net.c", PROGRAMS / f"{self.name}.c", "-I.", "-o", "sharing", "-lm", "-ldl"], cwd=folder))
        done = T.must(T.run([folder / "sharing"], env=self.environment_of(folder, "net", device=device)))
        expect(done.out.decode() == "right\n" and not done.err, done.describe())

    def host_access(self, tgc, folder):
        """The device's memory is not the host's: a step of the host that reads it there, and not a copy of it, is reported."""
        T.scratch(folder)
        onnx.save(G.loops(), folder / "net.onnx")
        with self.stand_ins():
            self.emit(tgc, "net.onnx", folder, "net")
        text = (folder / "net.c").read_text()
        for name, source in (("right", text), ("wrong", text.replace("d->seen[i] = place_copy(self, part);", "d->seen[i] = (unsigned char *)d->memory + s->at;"))):
            expect((name == "right") == (source == text), "the host has no copies")
            (folder / "net.c").write_text(source)
            T.build_quickly(folder / "net.c", folder / "net", "-w")
            done = T.run([folder / "net", "--selftest"], env=self.environment_of(folder, "net"))
            expect(("the host accesses byte" in done.err) == (name == "wrong") and (name == "wrong" or done.status == 0), done.describe())

    # ---------------------------------------------------------------------------------------------- the suite

    @staticmethod
    def models():
        return sorted((ROOT / "models").glob("*.tg"))

    def add_all(self, device, tgc, scratch):
        """What both suites have with the same arguments."""
        suite = self.suite
        for number, path in enumerate(self.models()):
            suite.add(path.name, partial(self.check_model, level=T.LEVEL), tgc, path, scratch / path.stem, slow=number % 2 == 0)
        for name, model, options in SAME:
            suite.add(f"as by C: {name}", self.same_as_c, tgc, scratch / f"as_c-{name.replace(' ', '_')}", model, options)
        for name, text in (("own", MLP), ("x", VECTORS), ("lanes", VECTORS), ("E", VECTORS)):
            suite.add(f"a model named {name}", self.named, tgc, scratch / f"named_{name}", name, text, slow=name in ("lanes", "E"))
        suite.add("no driver", self.without_driver, tgc, scratch / "no_driver")
        suite.add("an old driver", self.old_driver, tgc, scratch / "old_driver")
        suite.add("the host reads the device's memory", self.host_access, tgc, scratch / "host_access")
        suite.add("large grids", self.large_grids, device, tgc, scratch / "grid")
        for name, make in G.FAILING.items():
            suite.add(f"each call of the driver fails: {name}", self.each_call_fails, tgc, make(), scratch / f"fails-{name.replace(' ', '_')}",
                      slow=(name == "control flow") == (self.name == "cuda"))       # the text is one
        cases = N.load_cases(suite.options.build)
        passing, _ = N.read_lists()
        for number, (name, told) in enumerate(passing.items()):
            if name in cases:
                row, facts = self.rows[number // EVERY // 2 % len(self.rows) if number % EVERY == 0 else number % len(self.rows)]
                suite.add(f"{name}, {row}", self.check_case, device, tgc, cases[name], scratch / N.flat(name), told, row, facts, number % EVERY == 0,
                          slow=number % (2 * EVERY) != 0)
        suite.add(f"{FUZZED} random graphs", self.random_graphs, 100000, FUZZED)
        for first in range(0, FUZZED_LONG, PART):
            suite.add(f"random graphs {first}-{first + PART - 1}", self.random_graphs, first, PART, slow=True)
