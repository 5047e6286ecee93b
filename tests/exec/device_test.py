"""The host's side of a program for OpenCL: what NAME_options and the functions beside NAME_run promise.

A model's states stay on the device; inputs and results may be buffers of the caller's, in its context and queue; a run is enqueued and
waited for; programs that the driver has compiled are kept by the caller; what a device lacks is said.
"""

import ctypes as C
import json
import os
import re
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/lib"))
import tgc as T  # noqa: E402
from library import Library, pointer  # noqa: E402
from opencl import Driver, Options, need_device  # noqa: E402
from suite import Suite, expect  # noqa: E402

suite = Suite("device", jobs=1)      # a driver is one of the process
OK, NO_DEVICE, BAD_OPTIONS, NULL_ARGUMENT, NOT_INITIALIZED, MISSING_INPUT = 0, 19, 7, 1, 12, 4
MODEL = """tg 1
input %x : f32[B<=4, 8]
weight %w : f32[8, 8] = {weight}
%p = matmul(%x, %w)
%y = relu(%p)
%z = add(%y, 1.0)
output %z as "z"
output %y as "y"
"""
STATE = """tg 1
input %x : f32[3]
input %s : f32[3]
%t = add(%s, %x)
output %t as "t"
output %s as "before"
"""


def build(folder, text, *options):
    """The model as a shared object in `folder`."""
    (folder / "net.tg").write_text(text)
    T.must(T.run([T.find_tgc(suite.options.build), "net.tg", "-o", "net.c", "--target=opencl", *options], cwd=folder))
    T.must(T.run(["gcc", *T.WARNINGS, T.LEVEL, "-shared", "-fPIC", "net.c", "-o", "net.so", "-lm"], cwd=folder))
    return folder / "net.so"


def product(folder, *options):
    weight = (np.arange(64).reshape(8, 8) % 7 - 3).astype(np.float32)
    so = build(folder, MODEL.format(weight=weight.tolist()), *options)
    x = (np.arange(24).reshape(3, 8) % 5 - 2).astype(np.float32)
    y = np.maximum(x @ weight, 0)
    return so, x, y


def check(results, y):
    expect(np.array_equal(results["y"], y) and np.array_equal(results["z"], y + 1), f"{results} for {y}")


@suite.case("a run in the caller's context and queue, and its event")
def shared():
    driver = Driver()
    with tempfile.TemporaryDirectory() as name:
        so, x, y = product(Path(name))
        net = Library(so, options=Options(context=driver.context, queue=driver.queue))
        check(net.run({"x": x}, {"B": 3}), y)
        net.give({"x": x}, {"B": 3})
        event = C.c_void_p()
        _, model, given, taken = net.call
        expect(net.function("enqueue")(model, given, taken, C.byref(event)) == OK and event.value, "enqueue")
        expect(driver.cl.clWaitForEvents(1, C.byref(event)) == 0 and driver.cl.clReleaseEvent(event) == 0, "the event")
        check(net.results(), y)
        expect(net.function("enqueue")(model, given, taken, None) == OK and net.function("wait")(model) == OK, "enqueue without an event")
        check(net.results(), y)
        expect(net.function("enqueue")(None, given, taken, C.byref(event)) == NULL_ARGUMENT and not event.value, "no model")
        expect(net.function("wait")(None) == NULL_ARGUMENT, "wait without a model")


@suite.case("inputs and results in buffers of the caller's")
def bound():
    driver = Driver()
    with tempfile.TemporaryDirectory() as name:
        so, x, y = product(Path(name))
        told = []
        net = Library(so, options=Options(queue=driver.queue, on_error=Options.ERROR(lambda user, text: told.append(text.decode()))))
        bind_input, bind_output = net.function("bind_input"), net.function("bind_output")
        at = C.c_size_t(256)
        source, result = driver.buffer(256 + 4 * 8 * 4), driver.buffer(4 * 8 * 4)
        driver.write(source, x, 256)
        expect(bind_input(net.model, 0, source, at) == OK and bind_output(net.model, 1, result, C.c_size_t(0)) == OK, f"bind: {told}")
        net.give({"x": x}, {"B": 3})
        run, model, given, taken = net.call
        net.given[net.info.inputs[0].offset:][:8] = 0        # no pointer is needed
        net.taken[net.info.outputs[1].offset:][:8] = 0
        expect(run(model, given, taken) == OK, "run")
        expect(np.array_equal(net.results()["z"], y + 1), "z")
        expect(np.array_equal(driver.read(result, np.zeros_like(y)), y), "y")
        driver.write(source, x + 1, 256)                    # the same buffer, other frames
        expect(run(model, given, taken) == OK and not np.array_equal(driver.read(result, np.zeros_like(y)), y), "the second run")
        expect(bind_input(net.model, 0, None, at) == OK and bind_output(net.model, 1, None, at) == OK, "unbind")
        expect(run(model, given, taken) == MISSING_INPUT, "a pointer is needed again")
        check(net.run({"x": x}, {"B": 3}), y)
        for status, call, text in (
                (BAD_OPTIONS, lambda: bind_input(net.model, 1, source, at), None),
                (BAD_OPTIONS, lambda: bind_input(net.model, -1, source, at), None),
                (BAD_OPTIONS, lambda: bind_output(net.model, 2, result, at), None),
                (BAD_OPTIONS, lambda: bind_input(net.model, 0, source, C.c_size_t(100)), "multiple of 128"),
                (BAD_OPTIONS, lambda: bind_input(net.model, 0, source, C.c_size_t(384)), "ends before"),
                (BAD_OPTIONS, lambda: bind_input(net.model, 0, Driver().buffer(4096), at), "another context"),
                (NULL_ARGUMENT, lambda: bind_input(None, 0, source, at), None)):
            del told[:]
            got = call()
            expect(got == status and (text is None or any(text in t for t in told)), f"status {got}, not {status}; told {told}")
        check(net.run({"x": x}, {"B": 3}), y)
        rows = driver.buffer(3 * 8 * 4)                     # less than the bound holds what the run says
        driver.write(rows, x)
        expect(bind_input(net.model, 0, rows, C.c_size_t(0)) == OK, "a buffer of three rows")
        check(net.run({"x": x}, {"B": 3}), y)
        del told[:]
        net.give({"x": np.concatenate([x, x[:1]])}, {"B": 4})
        expect(net.step() == BAD_OPTIONS and "this run's size" in told[0], f"four rows: {told}")


@suite.case("a tensor that the host computes with cannot be the caller's buffer")
def of_host():
    driver = Driver()
    with tempfile.TemporaryDirectory() as name:
        so = build(Path(name), 'tg 1\ninput %x : f32[8]\n%v, %i = topk(%x) {k=3}\n%w = add(%v, 1.0)\noutput %w as "w"\n')
        told = []
        net = Library(so, options=Options(queue=driver.queue, on_error=Options.ERROR(lambda user, text: told.append(text.decode()))))
        expect(net.function("bind_input")(net.model, 0, driver.buffer(1024), C.c_size_t(0)) == BAD_OPTIONS and "host" in told[0], f"{told}")
        got = net.run({"x": np.arange(8, dtype=np.float32)})["w"]
        expect(np.array_equal(got, [8, 7, 6]), f"{got}")


@suite.case("the caller keeps what the driver has compiled")
def cache():
    need_device()
    with tempfile.TemporaryDirectory() as name:
        so, x, y = product(Path(name))
        kept, asked = {}, []

        def load(user, key, to, size):
            asked.append(key.decode())
            binary = kept.get(key.decode(), b"")
            if to and size >= len(binary):
                C.memmove(to, binary, len(binary))
            return len(binary)

        def save(user, key, binary, size):
            kept[key.decode()] = C.string_at(binary, size)

        hooks = {"load_program": Options.LOAD(load), "save_program": Options.SAVE(save)}
        check(Library(so, options=Options(**hooks)).run({"x": x}, {"B": 3}), y)
        expect(len(kept) == 1 and all(len(key) == 32 and key.isalnum() for key in kept), f"{list(kept)}")
        saved = dict(kept)
        kept_before = len(asked)
        check(Library(so, options=Options(**hooks)).run({"x": x}, {"B": 3}), y)
        expect(len(asked) == kept_before + 2 and kept == saved, "the second one is read and not compiled again")
        whole = next(iter(saved.values()))
        for damaged in (b"no binary", whole[:100], b"", whole[:-1] + bytes([whole[-1] ^ 1]), whole[:8] + bytes(8) + whole[16:]):
            kept.update({key: damaged for key in kept})
            check(Library(so, options=Options(**hooks)).run({"x": x}, {"B": 3}), y)
            expect(all(len(binary) > 100 for binary in kept.values()), "a damaged one is replaced")
        (Path(name) / "other").mkdir()
        other = build(Path(name) / "other", MODEL.format(weight=(2 * np.eye(8)).tolist()).replace("add(%y, 1.0)", "add(%y, 3.0)"))
        before = dict(kept)
        Library(other, options=Options(**hooks)).run({"x": x}, {"B": 3})
        mixed = [binary for key, binary in kept.items() if key not in before]
        expect(len(mixed) == 1, "the other model's has a key of its own")
        kept.update({key: mixed[0] for key in kept})        # a cache that mixes up keys
        check(Library(so, options=Options(**hooks)).run({"x": x}, {"B": 3}), y)


@suite.case("times by the device's clock, and the hook before each kernel")
def times():
    need_device()
    with tempfile.TemporaryDirectory() as name:
        so, x, y = product(Path(name))
        seen, timed = [], []
        net = Library(so, options=Options(on_kernel=Options.KERNEL(lambda user, k, text: seen.append((k, text))),
                                          on_kernel_time=Options.TIME(lambda user, k, text, ns: timed.append((k, text, ns)))))
        check(net.run({"x": x}, {"B": 3}), y)
        expect(seen == [*((k, net.info.kernels[k].name) for k in range(net.info.kernel_count)), (net.info.kernel_count, None)], f"{seen}")
        expect([(k, text) for k, text, _ in timed] == seen[:-1] and all(0 < ns < 1e9 for *_, ns in timed), f"{timed}")


@suite.case("states stay on the device")
def states():
    need_device()
    with tempfile.TemporaryDirectory() as name:
        net = Library(build(Path(name), STATE, "--state", "t=s"))
        x = np.array([1, 2, 4], np.float32)
        for _ in range(2):
            for k in range(3):
                got = net.run({"x": x})["before"]
                expect(np.array_equal(got, k * x), f"step {k}: {got}")
            block = net.save()
            net.run({"x": x})
            net.restore(block)
            got = net.run({"x": x})["before"]
            expect(np.array_equal(got, 3 * x), f"after restore: {got}")
            net.reset()


@suite.case("options that do not go together, devices that are not there")
def refused():
    driver = Driver()
    with tempfile.TemporaryDirectory() as name:
        so, *_ = product(Path(name))
        for status, options, text in ((NO_DEVICE, {"device": 99}, "more than there are devices"),
                                      (BAD_OPTIONS, {"device": -1}, None),
                                      (BAD_OPTIONS, {"queue": driver.new_queue(1)}, "out of order"),
                                      (BAD_OPTIONS, {"queue": driver.queue, "context": Driver().context}, "another context"),
                                      (BAD_OPTIONS, {"queue": driver.queue, "device": 99}, "another device"),
                                      (BAD_OPTIONS, {"context": driver.context, "device": 99}, "options.device")):
            told = []
            hooks = Options(on_error=Options.ERROR(lambda user, said, told=told: told.append(said.decode())), **options)
            net = Library(so, options=hooks, status=status)
            expect(text is None or any(text in t for t in told), f"{options}: {told}")
            expect(net.model.value is None, "a model in spite of that")


@suite.case("a .cl is what the driver compiles")
def kernels():
    tgc = T.find_tgc(suite.options.build)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for out in ("net.c", "net.cl"):
            T.must(T.run([tgc, ROOT / "models/mnist_cnn.tg", "-o", out, "--name=net", "--target=opencl"], cwd=folder))
        table = re.search(r"kernel_text\[\] = \{\n(.*?)\n\};", (folder / "net.c").read_text(), re.S)[1]
        strings = re.findall(r'"((?:[^"\\]|\\.)*)"', table)
        text = (folder / "net.cl").read_text()
        strings = "".join(strings).replace(r"\?", "?").encode().decode("unicode_escape")
        expect(strings == text and "kernel void net_" in text, "other kernels")
        said = T.run([tgc, ROOT / "models/mnist_cnn.tg", "-o", "net.cl"], cwd=folder)
        expect(said.status == 2 and "--target=opencl" in said.err, said.err)


FALLBACK = """#include "on_device.h"
#include "on_cpu.h"
#include <stdalign.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
_Static_assert(sizeof(on_device_inputs) == sizeof(on_cpu_inputs) && sizeof(on_device_outputs) == sizeof(on_cpu_outputs), "structs");
_Static_assert(offsetof(on_device_inputs, dim_B) == offsetof(on_cpu_inputs, dim_B), "fields");
alignas(64) static unsigned char device[ON_DEVICE_ARENA_BYTES], cpu[ON_CPU_ARENA_BYTES];
int main(void)
{
    float x[8] = {1, 2, 3, 4, 5, 6, 7, 8}, z[4 * 8], y[4 * 8], want[4 * 8];
    on_device_inputs in = {.x = x, .dim_B = 1};
    on_device_outputs out = {.z = z, .y = y};
    on_cpu_inputs in_cpu;
    on_cpu_outputs out_cpu;
    on_device *a;
    on_cpu *b;
    int status = on_device_init(&a, device, sizeof device, NULL);
    memcpy(&in_cpu, &in, sizeof in);
    memcpy(&out_cpu, &out, sizeof out);
    if (on_cpu_init(&b, cpu, sizeof cpu, NULL) || on_cpu_run(b, &in_cpu, &out_cpu))
        return 2;
    memcpy(want, y, sizeof y);
    memset(y, 0, sizeof y);
    if (status == ON_DEVICE_NO_DEVICE)
        return puts("no device"), 0;
    if (status || on_device_run(a, &in, &out))
        return 3;
    on_device_close(a);
    return memcmp(y, want, 8 * sizeof *y) != 0;
}
"""


@suite.case("a program for the processor has the same structs, and links beside it")
def fallback():
    need_device()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        product(folder)
        tgc = T.find_tgc(suite.options.build)
        T.must(T.run([tgc, "net.tg", "-o", "on_device.c", "--target=opencl"], cwd=folder))
        T.must(T.run([tgc, "net.tg", "-o", "on_cpu.c"], cwd=folder))
        (folder / "main.c").write_text(FALLBACK)
        T.must(T.run(["gcc", *T.WARNINGS, T.LEVEL, "main.c", "on_device.c", "on_cpu.c", "-o", "main", "-lm"], cwd=folder))
        expect("no device" not in T.must(T.run([folder / "main"])).out.decode(), "with a device")
        none = {**os.environ, "OCL_ICD_VENDORS": "/none", "OPENCL_VENDOR_PATH": "/none", "LD_LIBRARY_PATH": ""}
        expect("no device" in T.must(T.run([folder / "main"], env=none)).out.decode(), "without a driver")


@suite.case("tgc devices lists what programs find")
def listed():
    need_device()
    tgc = T.find_tgc(suite.options.build)
    devices = json.loads(T.must(T.run([tgc, "devices", "--json"])).out)
    expect([d["number"] for d in devices] == list(range(1, len(devices) + 1)) and all(d["name"] and d["units"] for d in devices), f"{devices}")
    said = T.must(T.run([tgc, "devices"])).out.decode()
    expect(all(f"opencl {d['number']}: {d['name']}" in said for d in devices), said)
    with tempfile.TemporaryDirectory() as name:
        so, x, y = product(Path(name))
        check(Library(so, options=Options(device=len(devices))).run({"x": x}, {"B": 3}), y)
    none = {**os.environ, "OCL_ICD_VENDORS": "/none", "OPENCL_VENDOR_PATH": "/none"}
    said = T.must(T.run([tgc, "devices"], env=none)).out.decode()
    expect("no device of OpenCL" in said and "pocl-opencl-icd" in said, said)
    expect(T.run([tgc, "devices", "x"]).status == 2, "an operand")


if __name__ == "__main__":
    suite.parse()
    suite.main()
