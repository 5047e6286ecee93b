"""The device emulator: that right kernels and hosts pass and give right numbers, that each check fires on one mistake; and emitted
OpenCL programs under it: models, the onnx package's tests, random graphs, every call of the driver failing once."""

import functools
import gc
import os
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(HERE.parent / "lib"), str(HERE.parent / "onnx"), str(HERE.parent / "exec")]

import numpy as np
import onnx
from onnx import TensorProto

import emulator
import graphs as G
import host as H
import hosts                 # before what puts the folder of another one in front
import images_test as I
import kernels as K
import local_test as L
import node_test as N
import opencl_test as O
from device_test import Options
import tgc as T
from library import Library
from suite import Failure, Suite, expect

DEVICE_FAILED, DEVICE_LACKS = 11, 20

suite = Suite("emulator", jobs=1)      # the device is one of the process
X = np.arange(128, dtype=np.float32)


def reported(device, words):
    found = device.found()
    expect(any(re.search(words, line) for line in found), f"no report like '{words}': {found}")


# ------------------------------------------------------------------------------------------------- kernels

ORDERS = ("order=1", "order=5 wave=2", "wave=8")      # of blocks: the last one first, mixed and two in turns, all in turns


def right(device, text, wanted, order=""):
    with device.watch(order), H.Host(device.library) as host:
        y = np.zeros(128, np.float32)
        expect(host.run(text, [y, X, np.int32(128)], [128], [64]) == 0, "the launch fails")
        wanted = np.array(wanted(X), np.float32)
        expect(np.array_equal(y[:len(wanted)], wanted), f"{y}, not {wanted}")


def turns(device):
    """Blocks run in the order, and as many at once, as the device is told."""
    for order, first, second in (("", [0, 2, 4, 6], [1, 3, 5, 7]), ("order=1", [6, 4, 2, 0], [7, 5, 3, 1]), ("wave=4", [0, 1, 2, 3], [4, 5, 6, 7]),
                                 ("wave=3 order=1", [6, 2, 1, 0], [7, 5, 4, 3])):
        with device.watch(order), H.Host(device.library) as host:
            y = np.zeros(9, np.int32)
            expect(host.run(K.TURNS, [y, X, np.int32(128)], [128], [32]) == 0, "the launch fails")
            expect(list(y[1::2]) == first and list(y[2::2]) == second, f"{order}: {y}")
    seen = set()
    for seed in range(2, 12):
        with device.watch(f"order={seed}"), H.Host(device.library) as host:
            y = np.zeros(17, np.int32)
            expect(host.run(K.TURNS, [y, X, np.int32(128)], [128], [16]) == 0, "the launch fails")
            expect(sorted(y[1:]) == list(range(16)), f"{y}")
            seen.add(tuple(y[1::2]))
    expect(len(seen) > 4, f"ten seeds, and {len(seen)} orders")


def builtins(device):
    """Each built-in of the table, by one work-item."""
    text = "kernel void k(global float *y, global half *h)\n{\n    vstore_half4((float4)(0, 1.5f, 2, 65519), 0, h);\n" + "".join(
        f"    y[{k}] = {words};\n" for k, (words, _) in enumerate(K.BUILTINS)) + "}\n"
    with device.watch(), H.Host(device.library) as host:
        y = np.zeros(len(K.BUILTINS), np.float32)
        expect(host.run(text, [y, np.zeros(4, np.float16)], [1], [1]) == 0, "the launch fails")
        for (words, value), got in zip(K.BUILTINS, y):
            expect(got == value, f"{words} is {got}, not {value}")


def wrong(device, text, change, words):
    """The launch fails, and the report says what and where."""
    broken = text.replace(*change, 1)
    expect(broken != text or change == ("", ""), "the text has nothing to change")
    device.begin()
    with H.Host(device.library) as host:
        kernel = host.kernel(broken)
        y, x = host.buffer(nbytes=512), host.buffer(X, flags=H.READ_ONLY)
        for index, value in enumerate([y, x, np.int32(128)]):
            expect(host.set(kernel, index, value) == 0, "an argument cannot be set")
        expect(host.enqueue(kernel, [128], [64]) == 0, "the kernel cannot be enqueued")
        expect(host.finish() != 0, "the wait does not fail")
    reported(device, words)


def within_buffers(device, changes, words):
    """Tensors in one buffer, 64 bytes apart: an access between or beyond them is out of bounds though it is the buffer's."""
    device.begin()
    with H.Host(device.library) as host:
        memory = host.buffer(np.arange(256, dtype=np.float32))
        kernel = host.kernel(functools.reduce(lambda text, change: text.replace(*change), changes, K.TENSORS))
        for index, value in enumerate([memory, np.uint64(64), memory, np.uint64(384), np.int64(4)]):
            expect(host.set(kernel, index, value) == 0, "an argument cannot be set")
        expect(host.enqueue(kernel, [64], [16]) == 0 and (host.finish() == 0) == (not words), f"{device.found()}")
    expect(not device.found() if not words else True, f"{device.found()}")
    if words:
        reported(device, words)


# --------------------------------------------------------------------------------------------------- hosts

def right_host(device, act, properties):
    with device.watch(), H.Host(device.library, properties) as host:
        act(host)


def wrong_host(device, act, facts, status, words):
    device.begin(facts)
    with H.Host(device.library) as host:
        got = act(host)
        expect(got == status, f"status {got}, not {status}: {device.found()}")
    reported(device, words)
    while device.library.emulator_live():       # what a mistake has left
        device.library.clReleaseContext(host.context)


# ------------------------------------------------------------------------------------------------ programs

EVERY = 80                    # of the onnx package's tests, in the quick form
FUZZED = 32                   # random graphs
FUZZED_LONG, PART = 5000, 250


SHARING = """tg 1
state %s : f32[8]
entry "add" {
    input %x : f32[8]
    input %factor : f32[1]
    %p = mul(%x, %factor)
    %n = add(%s, %p)
    keep %s = %n
    output %n as "sum"
    %t = add(%n, %n)
    output %t as "twice"
}
entry "look" {
    %1 = reduce_sum(%s) {axes=[0], keep=true}
    output %1 as "total"
}
"""


# Two inputs, and three chains of small products that do not depend on each other.
CHAINS = """tg 1
input %x : f32[4, 16] as "x"
input %z : f32[4, 16] as "z"
weight %a : f32[16, 16] = kaiming_uniform(seed=1)
weight %b : f32[16, 16] = kaiming_uniform(seed=2)
weight %c : f32[16, 16] = kaiming_uniform(seed=3)
%s = softmax(%x) {axis=-1}
%p1 = matmul(%s, %a)
%q1 = softmax(%p1) {axis=-1}
%r1 = matmul(%q1, %b)
%p2 = matmul(%s, %b)
%q2 = softmax(%p2) {axis=-1}
%r2 = matmul(%q2, %c)
%p3 = matmul(%z, %c)
%q3 = softmax(%p3) {axis=-1}
%r3 = matmul(%q3, %a)
%t = add(%r1, %r2)
%u = add(%t, %r3)
%v = matmul(%u, %c)
output %v as "y"
output %r3 as "r"
"""


def build_queued(tgc, folder, change=lambda text: text):
    T.scratch(folder)
    (folder / "net.tg").write_text(CHAINS)
    T.emit(tgc, folder / "net.tg", folder / "net.c", "--target=opencl")
    text = (folder / "net.c").read_text()
    (folder / "net.c").write_text(change(text))
    T.build_shared(folder / "net.c", "-ldl")
    return text


def several_queues(device, tgc, folder):
    """Chains go by several queues: the numbers are those of one queue, bit by bit, and nothing races; without one of the waits there
    is a race, each time."""
    random = np.random.default_rng(3)
    feeds = {name: random.standard_normal((4, 16), np.float32) for name in "xz"}
    with device.watch():
        text = build_queued(tgc, folder / "right")
        results = []
        for options in (None, Options(on_kernel=Options.KERNEL(lambda user, k, name: None))):   # which makes it one queue
            library = Library(folder / "right" / "net.so", "net", options=options)
            results.append([library.run(feeds) for _ in range(3)][-1])
            del library
            gc.collect()
        for name in "yr":
            expect(np.array_equal(results[0][name], results[1][name]), f"{name} by several queues and by one")
    rows = re.findall(r"\{[0-9], [1-9], (?:true|false), \{[^}]*\}\}", text)
    expect(len(rows) >= 2, f"kernels that wait: {rows}")
    without = [(row, re.sub(r"^\{([0-9]), [0-9]", r"{\1, 0", row)) for row in rows]
    without += [("turn_of[i].queue && *of_queue < 0 ? begin : NULL", "NULL"), ("if (done && count)", "if (0)")]
    for number, (now, then) in enumerate(without):
        expect(text.count(now) >= 1, f"no '{now}'")
        device.begin()
        build_queued(tgc, folder / str(number), lambda text, now=now, then=then: text.replace(now, then, 1))
        library = Library(folder / str(number) / "net.so", "net")
        run, *arguments = library.give(feeds) or library.call
        run(*arguments)
        del library
        gc.collect()
        reported(device, "race: .* another queue that no event orders")


def each_call_fails(tgc, model, folder, build, program="failing.c", options=(), facts=""):
    """Out of memory, device lost, build failed: at each call of the driver in turn, in a build with sanitizers."""
    T.scratch(folder)
    source = folder / ("net.tg" if isinstance(model, str) else "net.onnx")
    if isinstance(model, str):
        source.write_text(model)
    else:
        onnx.save(model, source)
    T.emit(tgc, source, folder / "net.c", "--target=opencl", *options)
    T.must(T.run(["gcc", *T.WARNINGS, *T.SANITIZE, "net.c", HERE / "programs" / program, "-I.", "-o", "failing", "-lm", "-ldl"],
                 cwd=folder))
    done = T.must(T.run([folder / "failing", "", "+", ":-6"], env=emulator.environment(build, device=facts, cache=folder / "kernels")))
    expect("emulator: " not in done.err, done.err)
    expect(int(re.search(r"each of (\d+) calls", done.out.decode()).group(1)) > 20, done.out)


def model(tgc, path, folder, row, order):
    """The program's own check of its reference vectors, with blocks in an order of this number, up to three at once."""
    T.scratch(folder)
    T.must(T.run([tgc, path, "-o", "m.c", "--target=opencl", f"--cpu={row}"], cwd=folder))
    T.build(folder / "m.c", folder / "m")
    done = T.run([folder / "m", "--selftest"], env=emulator.environment(suite.options.build, cache=folder / "kernels", device=f"order={order} wave={1 + order % 3}"))
    expect(done.status == 0 and not done.err, done.describe())


# How the onnx package's tests are compiled: a device's row, options, what the emulated device is told of itself.
NODE_WAYS = [*((row, (), "") for row in O.DEVICES), ("intel-xe", (), "local=65536 subgroup=16"), ("adreno630", ("--image",), ""),
             ("generic-gpu", ("--image", "--half-storage"), ""), ("adreno630", ("--image", "--no-locals"), "pitch=0"), ("intel-xe", ("--half-storage",), "")]


def node(device, tgc, case, folder, told, row, options, facts):
    with device.watch(facts):
        O.run_case(tgc, case, folder, told, row, options)
        gc.collect()


def broken_program(tgc, folder, build):
    """An emitted program, one of whose kernels stores one vector too far: a status, and the line of the kernel's text."""
    T.scratch(folder)
    T.emit(tgc, ROOT / "models" / "mlp.tg", folder / "net.c", "--target=opencl", "--dim", "B=2")
    text = (folder / "net.c").read_text()
    broken = re.sub(r"(store_aligned_f32x4\(global, &y\[[^]]*)\]", r"\1 + 4]", text, count=1)
    expect(broken != text, "no kernel stores vectors to y[...]")
    (folder / "net.c").write_text(broken)
    T.build_quickly(folder / "net.c", folder / "net")
    done = T.run([folder / "net", "--selftest"], env=emulator.environment(build, cache=folder / "kernels"))
    expect(done.status != 0 and re.search(r"emulator: net_\w+: out of bounds: .*, at line \d+: store_aligned_f32x4\(global, &y\[.* \+ 4\]", done.err),
           done.describe())


# What random graphs have found.
FOUND = {
    "a mask of bytes chooses what is loaded, lane by lane": G.model(
        [G.node("CumSum", ["x", "axis"], ["c"]), G.node("Transpose", ["c"], ["y"], perm=[1, 0])],
        [G.value("x", [20, 4])], [G.value("y", [4, 20])], [G.weight("axis", np.array(0))], opset=14),
    "a mask of bytes that one condition holds for": G.model(
        [G.node("MatMul", ["x", "w"], ["p"]), G.node("Trilu", ["p"], ["y"], upper=0)],
        [G.value("x", [2, 4, 64])], [G.value("y", [2, 4, 16])], [G.weight("w", np.linspace(-1, 1, 2048).reshape(2, 64, 16).astype(np.float32))], opset=14),
    "a block's threads sum what its result would overlap": G.model(
        [G.node("Softmax", ["x"], ["y"], axis=1), G.node("Reshape", ["y", "shape"], ["z"])],
        [G.value("x", [1, 2, 64, 7], TensorProto.FLOAT16)], [G.value("y", [1, 2, 64, 7], TensorProto.FLOAT16), G.value("z", [1, 7, 64, 2, 1], TensorProto.FLOAT16)],
        [G.weight("shape", np.array([1, 7, -1, 2, 1]))], opset=11),
    "a concat of more tensors than a kernel takes": G.model(
        [G.node("Concat", [f"x{i}" for i in range(125)], ["y"], axis=1)], [G.value(f"x{i}", [2, 1 + i % 3]) for i in range(125)],
        [G.value("y", [2, sum(1 + i % 3 for i in range(125))])], [], opset=14),
    "a sum of more tensors than a kernel takes": G.model(
        [G.node("Sum", [f"x{i}" for i in range(125)], ["y"])], [G.value(f"x{i}", [2, 5]) for i in range(125)], [G.value("y", [2, 5])], [], opset=14),
    "a maximum of more tensors than a kernel takes": G.model(
        [G.node("Max", [f"x{i}" for i in range(125)], ["s"]), G.node("Add", ["s", "x124"], ["y"])], [G.value(f"x{i}", [2, 5]) for i in range(125)], [G.value("y", [2, 5])], [], opset=14),
}


def found(tgc, model, folder, build):
    """Right by the program's own reference vectors, and nothing is reported."""
    T.scratch(folder)
    onnx.save(model, folder / "net.onnx")
    T.emit(tgc, folder / "net.onnx", folder / "net.c", "--target=opencl")
    T.build_quickly(folder / "net.c", folder / "net")
    done = T.run([folder / "net", "--selftest"], env=emulator.environment(build, cache=folder / "kernels"))
    expect(done.status == 0 and not done.err, done.describe())


# target -> what its kernels are written to, bytes of arguments that its drivers take for sure, of a pointer or a number 8.
ARGUMENTS = {"cuda": ("cu", 4096), "amd": ("hip", 4096), "opencl": ("cl", 1024)}


def arguments(tgc, folder, target, model):
    """Kernels of models with 600 tensors have no more bytes of arguments than every device takes."""
    T.scratch(folder)
    onnx.save(model, folder / "net.onnx")
    end, most = ARGUMENTS[target]
    for level in ("-O0", "-O2"):
        T.must(T.run([tgc, "net.onnx", "-o", f"net.{end}", f"--target={target}", *[level] * (level == "-O0")], cwd=folder, timeout=120))
        found = re.findall(r"^net_\w+\(([^{]*)\)\s*\{|^kernel void[^(]*\bnet_\w+\(([^{]*)\)\s*\{", (folder / f"net.{end}").read_text(), re.M)
        counts = [text.count(",") + 1 for text in map("".join, found)]
        expect(counts and 8 * max(counts) <= most, f"{level}: {counts} arguments")


MANY = [f"x{i}" for i in range(600)]
MANY_VALUES = [G.value(name, [3, 5]) for name in MANY]
WITH_MANY = {"Concat": G.model([G.node("Concat", MANY, ["y"], axis=1)], MANY_VALUES, [G.value("y", [3, 3000])], [], opset=14),
             "Sum": G.model([G.node("Sum", MANY, ["y"])], MANY_VALUES, [G.value("y", [3, 5])], [], opset=14),
             "Max": G.model([G.node("Max", MANY, ["y"])], MANY_VALUES, [G.value("y", [3, 5])], [], opset=14),
             "Mean": G.model([G.node("Mean", MANY, ["y"])], MANY_VALUES, [G.value("y", [3, 5])], [], opset=14),
             "Split": G.model([G.node("Split", ["x"], MANY, axis=1)], [G.value("x", [3, 3000])], MANY_VALUES, [], opset=11)}


def lacks(device, folder, facts, words):
    """A model that the device cannot run: init's status and words say so, nothing is misused."""
    told = []
    with device.watch(facts):
        options = Options(on_error=Options.ERROR(lambda user, text: told.append(text.decode())))
        Library(folder / "net.so", "net", options=options, status=DEVICE_LACKS)
        expect(len(told) == 1 and re.search(words, told[0]), f"{facts}: {told}")
        gc.collect()


def lacking_devices(device, tgc, scratch):
    """Without doubles, with too little memory, too small work-groups, too little local memory."""
    T.scratch(scratch)
    double = G.model([G.node("Exp", ["x"], ["y"])], [G.value("x", [4], TensorProto.DOUBLE)], [G.value("y", [4], TensorProto.DOUBLE)])
    onnx.save(double, scratch / "net.onnx")
    T.emit(tgc, scratch / "net.onnx", scratch / "net.c", "--target=opencl")
    T.build_shared(scratch / "net.c", "-ldl")
    for facts, words in (("double=0", "64-bit floats"), ("memory=100", "needs [0-9]+ bytes in one buffer, and the device allows 100")):
        lacks(device, scratch, facts, words)
    L.build_product(T.scratch(scratch / "local"), L.SCHEDULES["both operands"])
    kernel = "kernel net_[a-z0-9_]+ needs "
    for facts, words in (("group=4", kernel + "work-groups of [0-9]+, and the device allows it 4"),
                         ("axis=4", kernel + "[0-9]+ work-items along axis 0, and the device allows 4"),
                         ("local=8192", kernel + "[0-9]+ bytes of local memory, and the device has 8192")):
        lacks(device, scratch / "local", facts, words)


def buffers_asked_for(tgc, folder, model, build, facts, wanted, options=()):
    """The buffers that a program asks for, which is right on that device: `wanted` tells of their number and of failures that are named."""
    T.scratch(folder)
    onnx.save(model, folder / "net.onnx") if not isinstance(model, str) else (folder / "net.tg").write_text(model)
    T.must(T.run([tgc, "net.tg" if isinstance(model, str) else "net.onnx", "-o", "net.c", "--target=opencl", *options], cwd=folder))
    T.must(T.run(["gcc", *T.WARNINGS, *T.SANITIZE, "-DNET_MAIN", "net.c", "-o", "net", "-lm", "-ldl"], cwd=folder))
    done = T.run([folder / "net", "--selftest"],
                 env=emulator.environment(build, device=facts, log=folder / "calls", cache=folder / "kernels"))
    expect(done.status == 0 and not done.err, f"{facts}: {done.describe()}")
    made = (folder / "calls").read_text().split("\n").count("clCreateBuffer 0")
    expect(wanted(made), f"{facts}: {made} buffers")


def weights_apart(tgc, folder, build):
    """Weights are as many buffers as the device's largest one asks for, with and without images of them; a weight that is larger is refused."""
    for name, model, options in (("plain", (ROOT / "models" / "digits.tg").read_text(), ()), ("images", I.MODELS["twins"], ("--cpu=adreno630", "--image"))):
        T.scratch(folder)
        (folder / "net.tg").write_text(model)
        T.must(T.run([tgc, "net.tg", "-o", "net.c", "--target=opencl", *options], cwd=folder))
        begin = [int(word) for word in re.search(r"weight_begin\[\] = \{([^}]*)", (folder / "net.c").read_text())[1].split(",")]
        memory = int(re.search(r"#define NET_DEVICE_BYTES (\d+)", (folder / "net.h").read_text())[1])
        largest = max(memory, *(b - a for a, b in zip(begin, begin[1:])))
        for most in (largest, (largest + begin[-1]) // 2):
            buffers_asked_for(tgc, folder / name, model, build, f"most={most}", lambda made: made >= 1 + -(-begin[-1] // most), options)
        buffers_asked_for(tgc, folder / name, model, build, "", lambda made: made == 2, options)


def host_memory(tgc, folder, build):
    """The host's memory is asked for where the host maps it and has the device's; the emulated device says where it is not."""
    for name, model in (("mapped", G.hosts_between()), ("plain", G.perceptron())):
        for facts in ("", "unified=1"):
            buffers_asked_for(tgc, folder / name, model, build, facts, lambda made: made == 2)
        asks = re.search(r"HOST_MEMORY : 0", (folder / name / "net.c").read_text())
        expect(asks, "no condition")


def named_failures(device, tgc, folder):
    """Each function of the driver's whose failure ends init or a run is named, with its status, but for those that have words of their own."""
    T.scratch(folder)
    onnx.save(G.hosts_between(), folder / "net.onnx")
    T.emit(tgc, folder / "net.onnx", folder / "net.c", "--target=opencl")
    T.build_shared(folder / "net.c", "-ldl")
    quiet = {"clGetPlatformIDs", "clGetDeviceIDs", "clBuildProgram", "clGetProgramBuildInfo", "clGetProgramInfo"}
    number, failed = 0, [""]
    while failed:
        number, told = number + 1, []
        os.environ["TGC_EMULATOR_FAIL"], os.environ["TGC_EMULATOR_LOG"] = f"{number}:-5", str(folder / "calls")
        (folder / "calls").unlink(missing_ok=True)
        try:
            device.begin()
            options = Options(on_error=Options.ERROR(lambda user, text: told.append(text.decode())))
            library = Library(folder / "net.so", "net", options=options, status=None)
            if library.model:
                library.give({"x": X46})
            goes_on = library.model and library.step() == 0
            del library
            gc.collect()
        finally:
            del os.environ["TGC_EMULATOR_FAIL"], os.environ["TGC_EMULATOR_LOG"]
            device.begin()
        failed = [line.split()[0] for line in (folder / "calls").read_text().splitlines() if line.endswith(" -5")]
        for name in () if goes_on else set(failed) - quiet:
            expect(any(line.startswith(f"{name}: ") and "(-5)" in line for line in told), f"call {number}, {name}: {told}")
    expect(number > 20, f"{number - 1} calls fail")


def device_tests(build):
    """The tests of the host's interface, which run on an installed driver otherwise: context, queue, buffers and cache of the caller's."""
    done = T.run([sys.executable, HERE.parent / "exec" / "device_test.py", "--build", build, "--filter", "^(?!tgc devices)"],
                 env=emulator.environment(build))
    expect(done.status == 0 and " # SKIP" not in done.out.decode(), done.describe() + done.out.decode())
    misused = [line for line in done.err.splitlines() if line.startswith("emulator: ") and "is not released" not in line]
    expect(not misused, misused)              # the test keeps contexts of its own


def recorded(device, tgc, folder):
    """A run calls the driver for its copies, its kernels and the wait, and for nothing else: all the rest was done by init."""
    T.scratch(folder)
    onnx.save(G.perceptron(), folder / "net.onnx")
    T.emit(tgc, folder / "net.onnx", folder / "net.c", "--target=opencl")
    T.build_shared(folder / "net.c", "-ldl")
    device.begin()
    library = Library(folder / "net.so", "net")
    os.environ["TGC_EMULATOR_LOG"] = str(folder / "calls")
    device.library.emulator_reset()
    del os.environ["TGC_EMULATOR_LOG"]
    library.run({"x": np.ones((1, 8), np.float32)})
    device.library.emulator_reset()
    calls = (folder / "calls").read_text().split("\n")[:-1]
    wanted = ["clEnqueueWriteBuffer 0", *["clEnqueueNDRangeKernel 0"] * library.info.kernel_count, "clEnqueueReadBuffer 0", "clFlush 0", "clFinish 0"]
    expect(calls == wanted, f"{calls}, not {wanted}")
    del library
    gc.collect()


X46 = (np.arange(24, dtype=np.float32) - 11.5).reshape(4, 6)
# to the host: y; the condition of the If, y; the mask of what is not 0, a check, y in its size. Back: x, and where it is not 0, as it may be
COPIES = [("plain", G.perceptron, {"x": np.ones((1, 8), np.float32)}, 16, 32),
          ("loop", G.loops, {"x": X46, "trips": np.int64(3)}, 97, 96),
          ("found", G.hosts_between, {"x": X46}, 73, 288)]


def moved(device, tgc, folder):
    """What a run moves between device and host: its inputs, its results, and of all else what the host computes with."""
    for name, model, feeds, to_host, to_device in COPIES:
        T.scratch(folder / name)
        onnx.save(model(), folder / name / "net.onnx")
        T.emit(tgc, folder / name / "net.onnx", folder / name / "net.c", "--target=opencl")
        T.build_shared(folder / name / "net.c", "-ldl")
        with device.watch():
            library = Library(folder / name / "net.so", "net")
            library.run(feeds)
            got = [device.library.emulator_moved(k) for k in (0, 1)]
            library.run(feeds)
            got = [device.library.emulator_moved(k) for k in (0, 1)]
            del library
            gc.collect()
        expect(got == [to_host, to_device], f"{name}: {got} bytes to the host and back, not {[to_host, to_device]}")


BARRIER = "barrier(CLK_LOCAL_MEM_FENCE);"


def local_product(device, opts, scratch):
    """A product with local memory by these opts: right; and a race without its last barrier, or without any, if threads read what
    others have stored (columns and sums are each thread's own)."""
    with device.watch():
        L.build_product(T.scratch(scratch / "right"), opts)
        L.run_product(scratch / "right")
        gc.collect()
    parts = (scratch / "right" / "net.c").read_text().split(BARRIER)
    for name, broken in (("last", BARRIER.join(parts[:-1]) + parts[-1]), ("none", "".join(parts))) if "operand=0" in opts else ():
        device.begin()
        L.build_product(T.scratch(scratch / name), opts, lambda text: broken)
        L.run_product(scratch / name, DEVICE_FAILED)
        gc.collect()
        reported(device, "race: .* shared memory '.*', which .* without a barrier between, at line|reads .* of shared memory '.*', which nobody")


def random_graphs(first, count):
    command = [sys.executable, HERE.parent / "fuzz" / "random_graphs.py", "--build", suite.options.build, "--emulator", "--joined",
               "--seed", first, "--count", count, "--jobs", suite.options.jobs]
    done = T.run(command, timeout=3600)
    expect(done.status == 0, "\n".join(line for line in done.out.decode().splitlines() if not line.startswith("ok "))[:6000] or done.err)


# How a program makes its images on a device of these facts; what keeps it from that, where there are none.
WAYS = {"rows of the memory": "", "lines of the memory": "pitch=0", "copies": "pitch=0 pixels=8"}
NO_WAY = {"image=0": "the device has no images", "width=32 pixels=8": "an image has up to 32 x 32 pixels on the device, and a tensor needs 64 x"}


def images(tgc, name, options, folder, build):
    """Pixels in each of the three ways: what the interpreter computes; what cannot be made, in words. A kernel that stores what it has an
    image of would be reported."""
    T.scratch(folder)
    (folder / "m.tg").write_text(I.MODELS[name])
    T.must(T.run([tgc, "m.tg", "-o", "m.c", "--target=opencl", "--cpu=adreno630", "--image", *options], cwd=folder))
    if "read_only" not in (folder / "m.c").read_text():
        expect("--no-locals" not in options, "the program has no images")
        return
    T.must(T.run(["gcc", *T.WARNINGS, *T.SANITIZE, "-DM_MAIN", "m.c", "-o", "m", "-lm", "-ldl"], cwd=folder))
    for way, facts in WAYS.items():
        done = T.run([folder / "m", "--selftest"], env=emulator.environment(build, device=facts, cache=folder / "kernels"))
        expect(done.status == 0 and not done.err, f"{way}: {done.describe()}")
    for facts, words in NO_WAY.items():
        done = T.run([folder / "m", "--selftest"], env=emulator.environment(build, device=facts, cache=folder / "kernels"))
        expect(done.status != 0 and words in done.err + done.out.decode() and "emulator: " not in done.err, f"{facts}: {done.describe()}")


def add_programs(device, tgc, scratch, build):
    for number, name in enumerate(I.MODELS):
        for k, options in enumerate(I.OPTIONS):
            suite.add(f"images: {name}, {' '.join(options) or 'floats'}", images, tgc, name, options,
                      scratch / f"images-{number}-{k}", build, slow=(number + k) % len(I.OPTIONS) != 0)
    for name, make in G.FAILING.items():
        suite.add(f"each call of the driver fails: {name}", each_call_fails, tgc, make(), scratch / name.replace(" ", "_"), build)
    suite.add("each call of the driver fails: context, queue, buffers, cache of the caller's, states, two entries", each_call_fails, tgc,
              SHARING, scratch / "sharing", build, "sharing.c")
    suite.add("each call of the driver fails: several queues", each_call_fails, tgc, CHAINS, scratch / "queues", build, slow=True)    # 23 s
    suite.add("several queues", several_queues, device, tgc, scratch / "several")
    for number, (way, facts) in enumerate(WAYS.items()):
        suite.add(f"each call of the driver fails: images, {way}", each_call_fails, tgc, I.MODELS["twins"], scratch / f"fail-images-{number}",
                  build, "failing.c", ("--cpu=adreno630", "--image", "--no-locals"), facts, slow=way != "copies")
    suite.add("devices that lack something", lacking_devices, device, tgc, scratch / "lacks")
    suite.add("the host's interface", device_tests, build)
    suite.add("weights in several buffers", weights_apart, tgc, scratch / "weights-apart", build)
    suite.add("memory where the host is", host_memory, tgc, scratch / "host-memory", build)
    suite.add("failures are named", named_failures, device, tgc, scratch / "named")
    suite.add("a run's calls of the driver", recorded, device, tgc, scratch / "recorded")
    suite.add("bytes between host and device", moved, device, tgc, scratch / "moved")
    suite.add("an emitted kernel out of bounds", broken_program, tgc, scratch / "broken", build)
    for name, model_of in FOUND.items():
        suite.add(f"found by random graphs: {name}", found, tgc, model_of, scratch / f"found-{name.replace(' ', '-')}", build)
    for number, (name, made) in enumerate(WITH_MANY.items()):
        for which, target in enumerate(ARGUMENTS):
            suite.add(f"arguments: {name} of 600, {target}", arguments, tgc, scratch / f"arguments-{name}-{target}", target, made, slow=number > 1 and number % 3 != which)
    for name, opts in L.SCHEDULES.items():
        suite.add(f"local memory: {name}", local_product, device, opts, T.scratch(scratch / f"local-{name.replace(' ', '-')}"))
    for which, row in enumerate(O.DEVICES):
        for number, path in enumerate(sorted((ROOT / "models").glob("*.tg"))):
            suite.add(f"{path.name}, {row}", model, tgc, path, scratch / f"{path.stem}-{row}", row, number,
                      slow=number % len(O.DEVICES) != which)
    cases = N.load_cases(build)
    passing, _ = N.read_lists()
    for number, (name, told) in enumerate(passing.items()):
        for which, (row, options, facts) in enumerate(NODE_WAYS if name in cases else ()):
            way = " ".join((row, *options))
            suite.add(f"{name}, {way}", node, device, tgc, cases[name], scratch / N.flat(f"{name}-{way}"), told, row, options, facts,
                      slow=number % EVERY != 0 or number // EVERY % len(NODE_WAYS) != which)
    suite.add(f"{FUZZED} random graphs", random_graphs, 100000, FUZZED)
    for first in range(0, FUZZED_LONG, PART):
        suite.add(f"random graphs {first}-{first + PART - 1}", random_graphs, first, PART, slow=True)


def main():
    suite.parse()
    L.suite.options = suite.options
    build = suite.options.build
    scratch = T.scratch(Path(build).resolve() / "test-scratch" / "emulator")
    device = emulator.Device(build, scratch)
    for name, (text, wanted) in K.RIGHT.items():
        suite.add(f"right: {name}", right, device, text, wanted)
        for order in ORDERS:
            suite.add(f"right, {order}: {name}", right, device, text, wanted, order)
    suite.add("the order of blocks", turns, device)
    suite.add("built-ins of OpenCL C", builtins, device)
    for name, text, change, words in K.WRONG:
        suite.add(f"wrong: {name}", wrong, device, text, change, words)
    for name, changes, words in K.WITHIN:
        suite.add(f"tensors in a buffer: {name}", within_buffers, device, changes, words)
    for name, act, properties in hosts.RIGHT:
        suite.add(f"right host: {name}", right_host, device, act, properties)
    for name, act, *expected in hosts.WRONG:
        suite.add(f"wrong host: {name}", wrong_host, device, act, *expected)
    add_programs(device, T.find_tgc(build), scratch, build)
    suite.main()


if __name__ == "__main__":
    main()
