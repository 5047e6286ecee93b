"""What a device's run finds of its inputs, an index outside of its tensor, is said when it has ended: enqueue waits for nothing, NAME_wait()
and NAME_run() return the status, states are as before the run, and kernels touch nothing outside of tensors. On the emulated devices, which
check every access, by CUDA, AMD, OpenCL and Metal."""

import ctypes as C
import gc
import os
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/lib")]
import emulator  # noqa: E402
import graphs as G  # noqa: E402
import tgc as T  # noqa: E402
from library import Library  # noqa: E402
from opencl import Options  # noqa: E402
from suite import Suite, expect  # noqa: E402

suite = Suite("expect", jobs=1)      # a device is one of the process
F32, I32, I64, BAD_VALUE, CAPTURING = TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64, 10, 24
# target, its emulated driver, how the kernels' file ends, where the emulator finds it
TARGETS = {"cuda": (emulator.cuda_library, "cu", "TGC_EMULATOR_CUDA"), "amd": (emulator.amd_library, "hip", "TGC_EMULATOR_AMD"),
           "opencl": (emulator.library, None, None), "metal": (emulator.metal_library, None, None)}
DEVICES = {}


class Net(Library):
    """A model on an emulated device, in this process."""

    def __init__(self, name, target, model, *options, told="", onto=None):
        which, ending, variable = TARGETS[target]
        build = Path(suite.options.build).resolve()
        folder = T.scratch(build / "test-scratch" / "expect" / f"{name}-{target}".replace(" ", "-"))
        onnx.save(model, folder / "net.onnx")
        with T.environment(**emulator.stand_ins(build)):
            for out in ["net.c"] + ([f"net.{ending}"] if ending else []):
                T.must(T.run([T.find_tgc(build), "net.onnx", "-o", out, f"--target={target}", "--name=net", *options], cwd=folder))
        T.build_shared(folder / "net.c", *(emulator.METAL_FLAGS if target == "metal" else ()), "-ldl")
        if variable:
            os.environ[variable] = str(folder / f"net.{ending}")
        if target not in DEVICES:
            DEVICES[target] = emulator.Device(build, folder.parent, which)
        self.device = DEVICES[target]
        self.device.begin(told)
        self.text = (folder / "net.c").read_text()
        super().__init__(folder / "net.so", options=onto)

    def enqueue(self, feeds, sizes=None):
        self.give(feeds, sizes)
        _, *arguments = self.call
        return self.function("enqueue")(*arguments, None)

    def wait(self):
        return self.function("wait")(self.model)

    def end(self):
        """Nothing was misused, and nothing is left."""
        self.function("close")(self.model)
        self.model = None
        gc.collect()
        found = self.device.found()
        expect(not found, "\n".join(found[:8]))

    def end_on(self, driver, *memory):
        self.function("close")(self.model)
        self.model = None
        driver.close(*memory)
        found = self.device.found()
        expect(not found, "\n".join(found[:8]))

    def waits_within(self):
        """Whether an enqueue has the host look at the device's memory."""
        body = self.text.split("static int enqueue_list(")[-1].split("\n}\n")[0]
        return "to_host(" in body


def everywhere(name, targets=tuple(TARGETS)):
    def add(check):
        for target in targets:
            suite.case(f"{name}, {target}")(lambda target=target: check(target))
        return check
    return add


def gather(kind=I64, rows=10):
    return G.model([G.node("Gather", ["x", "i"], ["g"], axis=0), G.node("Exp", ["g"], ["y"])],
                   [G.value("x", [rows, 8]), G.value("i", [5], kind)], [G.value("y", [5, 8])])


X = (np.arange(80).reshape(10, 8) / 80).astype(np.float32)
GOOD, BAD = {"x": X, "i": np.array([0, -1, 9, -10, 3])}, {"x": X, "i": np.array([0, 1, 10, 2, 3])}


def right(got, feeds=GOOD):
    return np.allclose(got["y"], np.exp(feeds["x"][feeds["i"]]), rtol=1e-5)


@everywhere("a bad index is said by run, and by wait for all runs before")
def statuses(target):
    net = Net("gather", target, gather())
    expect(not net.waits_within(), "an enqueue waits")
    expect(right(net.run(GOOD)), "the first run")
    net.run(BAD, status=BAD_VALUE)
    expect(right(net.run(GOOD)), "a run behind a bad one")
    expect(net.enqueue(BAD) == 0 and net.wait() == BAD_VALUE and net.wait() == 0, "wait says it once")
    for order in ((BAD, GOOD), (GOOD, BAD)):
        expect([net.enqueue(feeds) for feeds in order] == [0, 0] and net.wait() == BAD_VALUE, "one of two runs is bad")
    expect(net.enqueue(GOOD) == 0 and net.wait() == 0 and right(net.results()), "the last run")
    expect(net.enqueue(BAD) == 0, "a bad run that nobody waits for")
    net.end()


EDGES = [-11, 10, 11, -2**31, 2**31 - 1]


@everywhere("whatever the indices, nothing outside of tensors is touched")
def bounds(target):
    x, i, row = G.value("x", [10, 8]), G.value("i", [5], I64), G.value("u", [5, 8])
    wide, ids = G.value("i", [10, 8], I64), G.value("i", [4, 2], I64)
    models = {
        "gather, i32": (gather(I32), None),
        "gather along columns": (G.model([G.node("Gather", ["x", "i"], ["y"], axis=1)], [G.value("x", [8, 10]), i], [G.value("y", [8, 5])]), None),
        "gather and a product": (G.model([G.node("Gather", ["x", "i"], ["g"]), G.node("MatMul", ["g", "w"], ["y"])], [x, i], [G.value("y", [5, 64])],
                                         [G.weight("w", np.ones((8, 64), np.float32))]), None),
        "elements": (G.model([G.node("GatherElements", ["x", "i"], ["y"])], [x, wide], [G.value("y", [10, 8])]), None),
        "rows and columns": (G.model([G.node("GatherND", ["x", "i"], ["y"])], [x, ids], [G.value("y", [4])]), None),
        "scattered rows": (G.model([G.node("ScatterND", ["x", "at", "u"], ["y"])], [x, G.value("at", [5, 1], I64), row], [G.value("y", [10, 8])]), "at"),
        "scattered elements": (G.model([G.node("ScatterElements", ["x", "i", "u"], ["y"])], [x, G.value("i", [5, 8], I64), row],
                                       [G.value("y", [10, 8])]), None),
        "scattered sums": (G.model([G.node("ScatterElements", ["x", "i", "u"], ["y"], reduction="add")], [x, G.value("i", [5, 8], I64), row],
                                   [G.value("y", [10, 8])]), None),
    }
    random = np.random.default_rng(3)
    for name, (model, at) in models.items():
        at = at or "i"
        net = Net(name.replace(",", ""), target, model)
        expect(not net.waits_within(), f"{name}: an enqueue waits")
        feeds = {}
        for v in model.graph.input:
            shape = [d.dim_value for d in v.type.tensor_type.shape.dim]
            kind = onnx.helper.tensor_dtype_to_np_dtype(v.type.tensor_type.elem_type)
            feeds[v.name] = random.integers(0, 8, shape).astype(kind)
        net.run(feeds)
        wide = feeds[at].dtype == np.int64
        for edge in EDGES + ([-2**63, 2**63 - 1] if wide else []):
            for place in (0, -1):
                bad = {**feeds, at: feeds[at].copy()}
                bad[at].reshape(-1)[place] = edge
                net.run(bad, status=BAD_VALUE)
        net.run(feeds)
        net.end()


def kept(nodes, inputs, outputs, weights=()):
    """y, and states, of rows of a table; `t` may hold a row that there is not."""
    return G.model([G.node("Gather", ["table", "t"], ["e"]), *nodes], [G.value("t", [2], I64), *inputs], outputs,
                   [G.weight("table", np.arange(12, dtype=np.float32).reshape(6, 2)), *weights])


TABLE = np.arange(12, dtype=np.float32).reshape(6, 2)


@everywhere("a state in two places is what it was before a bad run")
def two_places(target):
    net = Net("two", target, kept([G.node("Add", ["s", "e"], ["s_next"]), G.node("Identity", ["s"], ["y"])],
                                  [G.value("s", [2, 2])], [G.value("s_next", [2, 2]), G.value("y", [2, 2])]), "--state", "s_next=s")
    follow(net, lambda before, after: before)


@everywhere("a state that one place would do for has two")
def could_stay(target):
    net = Net("stay", target, kept([G.node("Add", ["s", "e"], ["s_next"]), G.node("Mul", ["s_next", "two"], ["y"])], [G.value("s", [2, 2])],
                                   [G.value("s_next", [2, 2]), G.value("y", [2, 2])], [G.weight("two", np.float32(2))]), "--state", "s_next=s")
    follow(net, lambda before, after: 2 * after)


def follow(net, seen):
    """Good and bad runs, in each way to run: y is what is seen of the state before and after; what bad runs store goes."""
    good, bad, state = {"t": np.array([1, 2])}, {"t": np.array([1, 6])}, np.zeros((2, 2), np.float32)
    add = TABLE[good["t"]]

    def is_there():
        nonlocal state
        got, before, state = net.run(good)["y"], state, state + add
        expect(np.array_equal(got, seen(before, state)), f"{got} for {before}, {state}")
    is_there()
    net.run(bad, status=BAD_VALUE)
    is_there()
    is_there()
    expect(net.enqueue(bad) == 0 and net.wait() == BAD_VALUE, "enqueue and wait")
    is_there()
    for call in ("save", "restore", "reset"):
        block = net.save()
        expect(net.enqueue(bad) == 0, "a bad run")
        if call == "save":
            expect(np.array_equal(net.save(), block), "a bad run is in what is saved")
        elif call == "restore":
            net.restore(block)
        else:
            net.reset()
            state = np.zeros((2, 2), np.float32)
        expect(net.wait() == BAD_VALUE and net.wait() == 0, f"{call}: what the run before found is lost")
        is_there()
        is_there()
    # a run that goes on from a bad one
    expect(net.enqueue(bad) == 0, "a bad run")
    behind = net.enqueue(good)
    expect(BAD_VALUE in (behind, net.wait()) and net.wait() == 0, "a run behind a bad one")
    is_there()
    is_there()
    expect(net.enqueue(good) == 0 and net.enqueue(good) == 0 and net.wait() == 0, "two good runs")
    state = state + add + add
    is_there()
    net.end()


@everywhere("rows that a bad run appends are gone")
def grows(target):
    model = kept([G.node("Concat", ["past", "e"], ["now"], axis=0), G.node("ReduceSum", ["past", "zero"], ["y"], keepdims=0)],
                 [G.value("past", ["n", 2])], [G.value("now", ["n + 2", 2]), G.value("y", [2])], [G.weight("zero", np.array([0]))])
    net = Net("grows", target, model, "--state", "now=past", "--dim", "n<=20")
    expect(not net.waits_within(), "an enqueue waits")
    good, bad, rows = {"t": np.array([1, 2])}, {"t": np.array([1, 6])}, 0
    for feeds in (good, bad, good, bad, bad, good):
        fine = feeds is good
        if rows % 4:
            net.run(feeds, status=0 if fine else BAD_VALUE)
        else:
            expect(net.enqueue(feeds) == 0 and net.wait() == (0 if fine else BAD_VALUE), "enqueue and wait")
        if fine:
            expect(np.array_equal(net.results()["y"], TABLE[[1, 2]].sum(0) * (rows // 2)), f"{net.results()} behind {rows} rows")
            rows += 2
    net.end()


def scattered():
    return kept([G.node("ScatterElements", ["s", "at", "e"], ["s_next"], axis=0), G.node("Mul", ["s_next", "two"], ["y"])],
                [G.value("s", [50, 2]), G.value("at", [2, 2], I64)], [G.value("s_next", [50, 2]), G.value("y", [50, 2])], [G.weight("two", np.float32(2))])


@everywhere("elements of a state are not stored by a bad run")
def in_place(target):
    net = Net("in place", target, scattered(), "--state", "s_next=s")
    expect(not net.waits_within() and "odd_before" not in net.text, "an enqueue waits, or the state has two places")
    state, random = np.zeros((50, 2), np.float32), np.random.default_rng(5)
    for number in range(12):
        feeds = {"t": random.integers(0, 6, 2), "at": random.integers(0, 25, (2, 2)) * 2 + [[0], [1]]}
        what = number % 3
        bad = {**feeds, "t": np.array([3, 6])} if what == 1 else {**feeds, "at": np.array([[50, 1], [2, 3]])}
        if what:
            net.run(bad, status=BAD_VALUE)
        net.run(feeds)
        for row in range(2):
            for column in range(2):
                state[feeds["at"][row, column], column] = TABLE[feeds["t"][row], column]
        expect(np.array_equal(net.results()["y"], 2 * state), f"run {number}")
    expect(net.enqueue(bad) == 0 and net.enqueue(feeds) == 0 and net.wait() == BAD_VALUE, "a run behind a bad one")
    feeds["t"] = 5 - feeds["t"]
    net.run(feeds)
    net.end()


@everywhere("a check that sizes depend on comes first, and what it finds of others is said, too")
def early(target):
    """Slice by axes of the run: the run's sizes are of them; where an index is bad as well, either status is right, and the model goes on."""
    model = G.model([G.node("Gather", ["x", "i"], ["g"]), G.node("Slice", ["g", "from", "to", "axes"], ["y"])],
                    [G.value("x", [10, 8]), G.value("i", [5], I64), *(G.value(name, [1], I64) for name in ("from", "to", "axes"))],
                    [G.value("y", ["a", "b"])])
    net = Net("early", target, model, "--dim", "a=..5", "--dim", "b=..8")
    expect(net.waits_within(), "sizes of the run are not waited for")
    feeds = {**GOOD, "from": np.array([1]), "to": np.array([4]), "axes": np.array([0])}
    expect(np.array_equal(net.run(feeds)["y"], X[GOOD["i"]][1:4]), "rows")
    net.run({**feeds, "axes": np.array([2])}, status=BAD_VALUE)
    expect(np.array_equal(net.run({**feeds, "axes": np.array([1])})["y"], X[GOOD["i"]][:, 1:4]), "columns")
    net.run({**feeds, "i": BAD["i"]}, status=BAD_VALUE)
    net.run({**feeds, "axes": np.array([-3]), "i": BAD["i"]}, status=BAD_VALUE)
    expect(net.wait() == 0 and np.array_equal(net.run(feeds)["y"], X[GOOD["i"]][1:4]), "the next run")
    net.end()


# ------------------------------------------------------------------------------------------- captured runs

CALLS = {"cuda": ("cuInit", "cuCtxCreate_v2", "cuCtxDestroy_v2", "cuStreamCreate", "cuStreamDestroy_v2", "cuMemAlloc_v2", "cuMemFree_v2", "cuMemcpyHtoD_v2",
                  "cuMemcpyDtoH_v2", "cuStreamBeginCapture_v2", "cuStreamEndCapture", "cuGraphInstantiateWithFlags", "cuGraphLaunch", "cuGraphExecDestroy",
                  "cuGraphDestroy", "cuStreamSynchronize"),
         "amd": ("hipInit", None, None, "hipStreamCreateWithFlags", "hipStreamDestroy", "hipMalloc", "hipFree", "hipMemcpyHtoD", "hipMemcpyDtoH",
                 "hipStreamBeginCapture", "hipStreamEndCapture", "hipGraphInstantiateWithFlags", "hipGraphLaunch", "hipGraphExecDestroy", "hipGraphDestroy",
                 "hipStreamSynchronize")}
NAMES = ("init", "create_context", "destroy_context", "create_stream", "destroy_stream", "allocate", "release", "write", "read", "begin", "end", "instantiate",
         "launch", "destroy_list", "destroy_graph", "finish")


class Driver:
    """A context, a stream and memory of the caller's."""

    def __init__(self, target):
        library = C.CDLL(str(TARGETS[target][0](suite.options.build)))
        self.call = {name: getattr(library, function) for name, function in zip(NAMES, CALLS[target]) if function}
        self.context, self.stream = C.c_void_p(), C.c_void_p()
        self("init", 0)
        if "create_context" in self.call:
            self("create_context", C.byref(self.context), 0, 0)
        self("create_stream", C.byref(self.stream), 0)

    def __call__(self, name, *arguments):
        status = self.call[name](*arguments)
        expect(status == 0, f"{name}: {status}")

    def memory(self, nbytes):
        at = C.c_uint64()
        self("allocate", C.byref(at), C.c_size_t(nbytes))
        return at

    def write(self, at, array):
        self("write", at, array.ctypes.data_as(C.c_void_p), C.c_size_t(array.nbytes))

    def read(self, at, shape):
        array = np.zeros(shape, np.float32)
        self("read", array.ctypes.data_as(C.c_void_p), at, C.c_size_t(array.nbytes))
        return array

    def close(self, *memory):
        for at in memory:
            self("release", at)
        self("destroy_stream", self.stream)
        if self.context:
            self("destroy_context", self.context)


def capture(net, driver, feeds):
    """What launches the run, which the stream has captured."""
    graph, launch = C.c_void_p(), C.c_void_p()
    driver("begin", driver.stream, 0)
    expect(net.enqueue(feeds) == 0 and net.wait() == CAPTURING, "a run is not captured, or waited for")
    driver("end", driver.stream, C.byref(graph))
    driver("instantiate", C.byref(launch), graph, C.c_ulonglong(0))
    driver("destroy_graph", graph)
    return launch


def on_stream(name, target, model, *options):
    """The model on a stream of the caller's, whose memory its inputs and outputs are."""
    DEVICES[target] = DEVICES.get(target) or emulator.Device(Path(suite.options.build).resolve(), T.scratch(Path(suite.options.build).resolve() / "test-scratch" /
                                                                                                         "expect"), TARGETS[target][0])
    driver = Driver(target)
    net = Net(name, target, model, *options, onto=Options(queue=driver.stream))
    memory = []
    for direction, count, tensors in (("input", net.info.input_count, net.info.inputs), ("output", net.info.output_count, net.info.outputs)):
        for k in range(count):
            nbytes = int(np.prod(tensors[k].bounds())) * tensors[k].element_bytes
            memory.append(driver.memory(nbytes))
            expect(net.function(f"bind_{direction}")(net.model, k, C.c_void_p(memory[-1].value), C.c_size_t(0)) == 0, "bind")
    return driver, net, memory


@everywhere("a captured run, launched again and again, is judged by the next wait", CALLS)
def captured(target):
    driver, net, (x, i, y) = on_stream("captured", target, gather())
    launch = capture(net, driver, GOOD)
    for order in ((GOOD,), (BAD,), (GOOD,), (BAD, GOOD, GOOD), (GOOD, BAD), (GOOD, GOOD)):
        for feeds in order:
            driver.write(x, feeds["x"])
            driver.write(i, feeds["i"])
            driver("launch", launch, driver.stream)
            driver("finish", driver.stream)
        first = net.wait()
        expect(first == (BAD_VALUE if any(feeds is BAD for feeds in order) else 0) and net.wait() == 0, f"{[feeds is BAD for feeds in order]}: status {first}")
        expect(feeds is BAD or right({"y": driver.read(y, (5, 8))}), "what the last launch has stored")
    driver.write(i, BAD["i"])
    net.run(BAD, status=BAD_VALUE)
    driver("destroy_list", launch)
    net.end_on(driver, x, i, y)


@everywhere("a captured run of a state that is updated in place", CALLS)
def captured_state(target):
    driver, net, (t, at, y) = on_stream("captured state", target, scattered(), "--state", "s_next=s")
    feeds = {"t": np.array([1, 2]), "at": np.array([[0, 1], [2, 3]])}
    launch, state = capture(net, driver, feeds), np.zeros((50, 2), np.float32)
    driver.write(t, feeds["t"])
    for number in range(6):
        feeds["at"] = feeds["at"] + 5
        is_bad = number in (2, 4)
        driver.write(at, feeds["at"] + 50 * is_bad)
        driver("launch", launch, driver.stream)
        expect(net.wait() == (BAD_VALUE if is_bad else 0), f"launch {number}")
        if not is_bad:
            for row in range(2):
                for column in range(2):
                    state[feeds["at"][row, column], column] = TABLE[feeds["t"][row], column]
            expect(np.array_equal(driver.read(y, (50, 2)), 2 * state), f"what launch {number} has stored")
    driver("destroy_list", launch)
    net.end_on(driver, t, at, y)


suite.main()
