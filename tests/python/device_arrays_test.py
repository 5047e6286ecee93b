"""The Python module's models for CUDA and AMD, and arrays in the device's memory, by DLPack.

On the emulated device: its streams run when somebody waits, so that a run before its input is written, or a result that is
read too early, is seen; memory, streams and contexts that are not released are, too. The producer of arrays is one of the
test's own, and notes for which stream it was asked.
"""

import ctypes as C
import gc
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "lib")]

import numpy as np

import amd
import cuda
import emulator
import tgc as T
from module import import_module
from suite import Suite, expect

suite = Suite("arrays", jobs=1)      # the device is one of the process
OPTIONS = suite.parse()
TGC = T.find_tgc(OPTIONS.build).resolve()
SCRATCH = T.scratch(Path(OPTIONS.build).resolve() / "test-scratch" / "device_arrays")
tgc = import_module(TGC, SCRATCH / "cache")
case = suite.folder_case(SCRATCH)

PRODUCT = """tg 1
input %x : f32[B<=4, 8] as "x"
weight %w : f32[8, 8] = normal(seed=1)
%p = matmul(%x, %w)
%y = relu(%p)
%z = add(%y, 1.0)
output %z as "z"
output %y as "y"
"""
TWICE = """tg 1
input %x : f32[4, 64] as "x"
%y = add(%x, %x)
output %y as "y"
"""
ROWS = """tg 1
input %x : f32[4, 64] as "x"
input %i : i64[3] as "i"
%low : bool[3] = lt(i64(-1), %i)
%high : bool[3] = lt(%i, i64(4))
%inside : bool[3] = and(%low, %high)
%all : bool[1] = reduce(%inside) {op=and, axes=[0]}
%ok : bool = reshape(%all) {shape=[]}
host "expect" (%ok)
%y = gather(%x, %i)
output %y as "y"
"""
ENTRIES = """tg 1
state %s : f32[64]
entry "add" {
    input %x : f32[64]
    %n = add(%s, %x)
    keep %s = %n
    output %n as "sum"
}
entry "twice" {
    input %v : f32[64]
    %1 = add(%v, %v)
    output %1 as "twice"
}
"""
DEVICE_MEMORY = 22
# Of each target: its driver, DLPack's kind of device, what the module calls it, a device of the emulator's, the kernels' text.
TARGETS = {"cuda": (emulator.cuda_library, 2, "CUDA", "", "cu", cuda.text_of, cuda.need_nvrtc),
           "amd": (emulator.amd_library, 10, "ROCm", "version=gfx90a", "hip", amd.text_of, amd.need_compiler)}
# HIP's names of what CUDA's driver has, too.
HIP = {"cuInit": "hipInit", "cuStreamCreate": "hipStreamCreateWithFlags", "cuStreamDestroy_v2": "hipStreamDestroy", "cuStreamSynchronize": "hipStreamSynchronize",
       "cuStreamWaitEvent": "hipStreamWaitEvent", "cuEventCreate": "hipEventCreateWithFlags", "cuEventRecord": "hipEventRecord", "cuEventDestroy_v2": "hipEventDestroy",
       "cuMemAlloc_v2": "hipMalloc", "cuMemFree_v2": "hipFree", "cuMemcpyHtoDAsync_v2": "hipMemcpyHtoDAsync"}
devices, target, device = {}, "cuda", None


def both(name):
    """A case of either target."""
    def add(function):
        for which in TARGETS:
            @case(f"{TARGETS[which][2]}: {name}")
            def _(folder, which=which):
                global target
                target = which
                try:
                    function(folder)
                finally:
                    target = "cuda"
    return add


def compiled(folder, text, *options, device_words=""):
    """The model on the emulated device."""
    global device
    library, _, _, words, language, text_of, need = TARGETS[target]
    need()
    device = devices[target] = devices.get(target) or emulator.Device(OPTIONS.build, SCRATCH, library)
    device.begin(f"{words} {device_words}".strip())
    (folder / "m.tg").write_text(text)
    words = [f"--target={target}", *(["--cpu=gfx90a"] if target == "amd" else []), *options]
    T.must(T.run([TGC, "m.tg", "-o", f"m.{language}", "--name=model", *words], cwd=folder))
    text_of(folder / f"m.{language}")
    return tgc.compile(folder / "m.tg", options=words)


def nothing_is_left():
    gc.collect()
    found = device.found()
    expect(not found, "\n".join(found[:8]))


def refused(call, *words):
    try:
        call()
    except tgc.Error as error:
        missing = [word for word in words if word not in str(error)]
        expect(not missing, f"{missing} not in: {error}")
        return error
    raise AssertionError(f"no tgc.Error was raised: {words}")


# ------------------------------------------------------------------------------ another library


class Tensor(C.Structure):
    _fields_ = [("data", C.c_void_p), ("kind", C.c_int32), ("number", C.c_int32), ("ndim", C.c_int32), ("code", C.c_uint8), ("bits", C.c_uint8),
                ("lanes", C.c_uint16), ("shape", C.POINTER(C.c_int64)), ("strides", C.POINTER(C.c_int64)), ("offset", C.c_uint64)]


class Managed(C.Structure):
    _fields_ = [("tensor", Tensor), ("manager", C.c_void_p), ("deleter", C.CFUNCTYPE(None, C.c_void_p))]


PYTHON = C.PyDLL(None)              # not ctypes.pythonapi, whose functions' types are the module's
PYTHON.PyCapsule_New.restype = C.py_object
PYTHON.PyCapsule_New.argtypes = [C.c_void_p, C.c_char_p, C.c_void_p]
PYTHON.PyCapsule_GetPointer.restype = C.c_void_p
PYTHON.PyCapsule_GetPointer.argtypes = [C.py_object, C.c_char_p]
PYTHON.PyCapsule_SetName.argtypes = [C.py_object, C.c_char_p]
NAME, USED = b"dltensor", b"used_dltensor"


class Other:
    """Another library in the same primary context: a stream, memory, DLPack in and out."""

    def __init__(self):
        self.driver = C.CDLL("libcuda.so.1" if target == "cuda" else "libamdhip64.so.6")
        self.context, self.stream, self.names = C.c_void_p(), C.c_void_p(), HIP if target == "amd" else {}
        self.must("cuInit", 0)
        if target == "cuda":
            self.must("cuDevicePrimaryCtxRetain", C.byref(self.context), 0)
            self.must("cuCtxPushCurrent_v2", self.context)
        self.must("cuStreamCreate", C.byref(self.stream), 1)
        self.memory = []

    def must(self, name, *arguments):
        status = getattr(self.driver, self.names.get(name, name))(*arguments)
        expect(status == 0, f"{name}: {status}")

    def close(self):
        for at in self.memory:
            self.must("cuMemFree_v2", at)
        self.must("cuStreamDestroy_v2", self.stream)
        if target == "cuda":
            self.must("cuCtxPopCurrent_v2", C.byref(C.c_void_p()))
            self.must("cuDevicePrimaryCtxRelease_v2", 0)

    def array(self, values, **more):
        """What will be these values when the stream is there."""
        values = np.ascontiguousarray(values)
        at = C.c_uint64()
        self.must("cuMemAlloc_v2", C.byref(at), C.c_size_t(max(values.nbytes, 1) + 256))
        self.memory.append(at)
        made = Array(self, at.value, values, **more)
        if values.nbytes:
            self.must("cuMemcpyHtoDAsync_v2", C.c_uint64(made.at), C.c_void_p(values.ctypes.data), C.c_size_t(values.nbytes), self.stream)
        return made

    def wait(self):
        self.must("cuStreamSynchronize", self.stream)


class Array:
    def __init__(self, other, at, values, kind=None, number=0, code=None, bits=None, lanes=1, strides=None, offset=0):
        self.other, self.values, self.asked = other, values, []
        self.at, self.number, self.lanes, self.strides, self.offset = at + offset, number, lanes, strides, offset
        self.kind = TARGETS[target][1] if kind is None else kind
        self.code = {"i": 0, "u": 1, "f": 2}[values.dtype.kind] if code is None else code
        self.bits = bits or 8 * values.itemsize

    def __dlpack_device__(self):
        return self.kind, self.number

    def __dlpack__(self, *, stream=None):
        self.asked.append(stream)
        event = C.c_void_p()
        self.other.must("cuEventCreate", C.byref(event), 2)
        self.other.must("cuEventRecord", event, self.other.stream)
        self.other.must("cuStreamWaitEvent", C.c_void_p(stream), event, 0)
        self.other.must("cuEventDestroy_v2", event)
        shape = (C.c_int64 * 8)(*self.values.shape)
        strides = (C.c_int64 * 8)(*self.strides) if self.strides else None
        self.held = Managed(Tensor(self.at - self.offset, self.kind, self.number, self.values.ndim, self.code, self.bits, self.lanes, shape, strides, self.offset)), shape, strides
        return PYTHON.PyCapsule_New(C.addressof(self.held[0]), NAME, None)

    def now(self):
        """What the memory holds."""
        return peek(self.at, self.values.nbytes).view(self.values.dtype).reshape(self.values.shape)


def peek(at, nbytes):
    """Bytes of the emulated device's memory, whatever is still to be done."""
    found = np.empty(nbytes, np.uint8)
    device.library.emulator_peek(C.c_void_p(found.ctypes.data), C.c_void_p(at), C.c_size_t(nbytes))
    return found


def taken(array, stream):
    """(shape, dtype's code and bits, values) of what the module gives, as a library takes it: the capsule is used up, and the memory released."""
    capsule = array.__dlpack__(stream=stream)
    managed = Managed.from_address(PYTHON.PyCapsule_GetPointer(capsule, NAME))
    PYTHON.PyCapsule_SetName(capsule, USED)
    t = managed.tensor
    shape = tuple(t.shape[:t.ndim])
    expect(tuple(t.strides[:t.ndim]) == tuple(int(np.prod(shape[k + 1:])) for k in range(t.ndim)), "other strides")
    values = peek(t.data, int(np.prod(shape)) * t.bits // 8)
    del array
    managed.deleter(C.addressof(managed))
    return shape, (t.code, t.bits), values


# ----------------------------------------------------------------------------------------- cases


@both("arrays of the device and of the host, in and out, in any mixture")
def _(folder):
    m = compiled(folder, TWICE)
    other = Other()
    x = np.random.default_rng(1).standard_normal((4, 64)).astype(np.float32)
    given = other.array(x)
    expect(np.array_equal(m(x), 2 * x), "host to host")
    y = m(given)
    expect(isinstance(y, np.ndarray) and np.array_equal(y, 2 * x), "device to host")
    expect(len(given.asked) == 1 and given.asked[0] > 2, f"asked for the stream {given.asked}")
    y = m(given, device=True)
    expect(isinstance(y, type(m(x, device=True))) and y.shape == (4, 64) and y.dtype == np.float32, repr(y))
    expect(np.array_equal(y.numpy(), 2 * x) and f"float32[4,64] on {TARGETS[target][2]} device 0" in repr(y), repr(y))
    out = other.array(np.zeros((4, 64), np.float32))
    with device.log(folder / "calls"):
        expect(m(given, out=out) is out, "out= is what is returned")
    calls = (folder / "calls").read_text()
    expect(not any(call in calls for call in ("cuMemcpy", "cuMemAlloc", "hipMemcpy", "hipMalloc")), calls)
    expect(np.array_equal(out.now(), 2 * x), "device to device")
    expect(np.array_equal(m({"x": y}), 4 * x), "what a run gave is what the next one takes")
    host = np.empty((4, 64), np.float32)
    expect(m(given, out=host) is host and np.array_equal(host, 2 * x), "device to the host's out=")
    expect(np.array_equal(m(x), 2 * x), "host to host again")
    del m, y, given, out
    other.wait()
    other.close()
    nothing_is_left()


@both("the caller's stream: nobody waits, and what comes next there finds the result")
def _(folder):
    m = compiled(folder, TWICE)
    other = Other()
    x = np.random.default_rng(2).standard_normal((4, 64)).astype(np.float32)
    given, out = other.array(x), other.array(np.zeros((4, 64), np.float32))
    expect(m(given, out=out, stream=other.stream.value) is out, "out= is what is returned")
    expect(given.asked == [other.stream.value] and not np.array_equal(given.now(), x), "somebody has waited")
    again = m(out, stream=other.stream.value)               # by that stream's order
    shape, code, early = taken(again, -1)
    expect(shape == (4, 64) and code == (2, 32) and not np.array_equal(early.view(np.float32), 4 * x.ravel()), "somebody has waited")
    again = m(out, stream=other.stream.value)
    expect(np.array_equal(again.numpy(), 4 * x), "a copy to the host waits")
    again = m(out, stream=other.stream.value)
    _, _, late = taken(again, None)                         # the legacy stream, which the emulator runs at once
    expect(np.array_equal(late.view(np.float32).reshape(4, 64), 4 * x), "the taker's stream waits")
    other.wait()
    expect(np.array_equal(out.now(), 2 * x), "device to device")
    expect(m(given, stream=0).numpy().shape == (4, 64), "0 is the driver's name of the legacy stream")
    del m, again, given, out
    other.close()
    nothing_is_left()


@both("what a run in the caller's stream finds is raised by wait(), or by the next call")
def _(folder):
    m = compiled(folder, ROWS)
    other = Other()
    x, right, wrong = np.ones((4, 64), np.float32), np.array([0, 3, 1]), np.array([0, 4, 1])
    given, good, bad = other.array(x), other.array(right), other.array(wrong)
    m.wait()
    m(given, good, stream=other.stream.value)
    m.wait()
    m(given, bad, stream=other.stream.value)
    refused(m.wait, "index out of range")
    m.wait()
    m(given, bad, stream=other.stream.value)
    refused(lambda: m(x, right), "index out of range")
    expect(np.array_equal(m(x, right), x[right]), "other rows")
    compiled(folder, TWICE).wait()
    other.wait()
    del m, given, good, bad
    other.close()
    nothing_is_left()


@both("run-time sizes, several outputs, no elements")
def _(folder):
    m = compiled(folder, PRODUCT, "--dim", "B<=4")
    other = Other()
    w = m(np.eye(8, dtype=np.float32)[:4])["y"]
    expect(w.shape == (4, 8), "the weights' first rows, but for what is negative")
    x = np.random.default_rng(3).standard_normal((3, 8)).astype(np.float32)
    want = m(x)
    given = other.array(x)
    got = m(given, device=True)
    expect(set(got) == {"y", "z"} and got["y"].shape == (3, 8), f"{got}")
    expect(all(np.array_equal(got[name].numpy(), want[name]) for name in want), "other numbers")
    out = other.array(np.zeros((4, 8), np.float32))
    got = m(given, out={"y": out}, device=True)
    expect(got["y"].shape == (3, 8) and got["y"].address == out.at and np.array_equal(got["y"].numpy(), want["y"]), f"{got}")
    expect(np.array_equal(taken(got["z"], -1)[2].view(np.float32).reshape(3, 8), want["z"]), "other numbers")
    empty = m(other.array(np.zeros((0, 8), np.float32)), device=True)
    expect(empty["y"].shape == (0, 8) and empty["y"].numpy().shape == (0, 8), f"{empty}")
    refused(lambda: m(given, out={"y": other.array(np.zeros((3, 8), np.float32))}), "output 'y': expected float32[B<=4,8], found float32[3,8]", "out= holds the bound")
    refused(lambda: m(other.array(np.zeros((5, 8), np.float32))), "input 'x'", "found float32[5,8]", "dimension 0 is 4 at most")
    del m, given, got, out, empty
    other.wait()
    other.close()
    nothing_is_left()


@both("entries and a state that share a context")
def _(folder):
    m = compiled(folder, ENTRIES)
    other = Other()
    x, v = np.arange(64, dtype=np.float32), np.full(64, 3, np.float32)
    given, second = other.array(x), other.array(v)
    expect(np.array_equal(m.entries["add"](given), x), "the first sum")
    expect(np.array_equal(m.entries["twice"](second, device=True).numpy(), 2 * v), "another entry's own input")
    expect(np.array_equal(m.entries["add"](v, device=True).numpy(), x + v), "the host's array after the device's")
    expect(np.array_equal(m.entries["add"](given, stream=other.stream.value).numpy(), 2 * x + v), "in the caller's stream")
    del m, given, second
    other.wait()
    other.close()
    nothing_is_left()


@both("dtypes that NumPy has not")
def _(folder):
    m = compiled(folder, TWICE.replace("f32[4, 64]", "bf16[4, 64]"))
    other = Other()
    bits = (np.arange(256, dtype=np.float32).view(np.uint32) >> 16).astype(np.uint16).reshape(4, 64)
    want = m(bits)
    for given in (other.array(bits), other.array(bits, code=4)):
        got = m(given, device=True)
        expect(np.array_equal(got.numpy(), want) and taken(got, -1)[1] == (4, 16), "other bits, or another dtype")
    refused(lambda: m(other.array(bits.astype(np.float16))), "expected bfloat16 as uint16[4,64], found float16[4,64]", "x.to(torch.bfloat16)")
    del m, given, got
    other.wait()
    other.close()
    nothing_is_left()


@case("what does not fit is refused, and what to pass is said")
def _(folder):
    m = compiled(folder, TWICE)
    other = Other()
    x = np.zeros((4, 64), np.float32)
    right = other.array(x)
    for wrong, words in [
            (other.array(x, number=1), ("Array on CUDA device 1", "the model runs on device 0", "x.to('cuda:0')")),
            (other.array(x, kind=7), ("Array on device DLPack's kind 7", "x.cpu()")),
            (other.array(x, kind=10), ("Array on device DLPack kind 10", "the model runs on CUDA device 0")),
            (other.array(x.astype(np.float64)), ("found float64[4,64]", "x.to(torch.float32)")),
            (other.array(x, code=5, bits=64), ("found complex64[4,64]",)),
            (other.array(x, lanes=2), ("found float32x2[4,64]",)),
            (other.array(x, strides=(1, 4)), ("found float32[4,64] with strides [1, 4]", "x.contiguous()")),
            (other.array(x, offset=64), ("no multiple of 128 bytes", "x.clone()")),
            (other.array(x[:3]), ("found float32[3,64]", "dimension 0 has to be 4")),
            (other.array(x[0]), ("found float32[64]", "give 2 dimensions"))]:
        refused(lambda: m(wrong), "input 'x': expected float32[4,64]", *words)
        refused(lambda: m(x, out=wrong), "output 'y': expected float32[4,64]", *(words[:1] if wrong.kind == 2 and wrong.values.shape == x.shape else ()))
    refused(lambda: m(right, out=right), "overlaps an input")
    refused(lambda: m(x, stream=other.stream.value), "input 'x'", "with stream= nobody waits", "x.cuda()")
    refused(lambda: m(right, out=x.copy(), stream=other.stream.value), "output 'y'", "with stream= nobody waits")
    refused(lambda: m(right, stream="main"), "stream: 'main' is no stream", "cuda_stream")
    strange, foreign = C.c_void_p(), C.c_void_p()
    other.must("cuCtxCreate_v2", C.byref(strange), 0, 0)
    other.must("cuStreamCreate", C.byref(foreign), 1)
    at = C.c_uint64()
    other.must("cuMemAlloc_v2", C.byref(at), C.c_size_t(2048))
    other.must("cuCtxPopCurrent_v2", C.byref(C.c_void_p()))
    refused(lambda: m(right, stream=foreign.value), "is of another context than the model's")
    refused(lambda: m(Array(other, at.value, x)), "input 'x': this array cannot be used where it lies", "the memory is of another context")
    refused(lambda: m(Array(other, 4096, x)), "input 'x': this array cannot be used where it lies")
    expect(np.array_equal(m(right), x), "a call after all of them")
    other.must("cuCtxPushCurrent_v2", strange)
    other.must("cuMemFree_v2", at)
    other.must("cuStreamDestroy_v2", foreign)
    other.must("cuCtxDestroy_v2", strange)
    del m, right, wrong
    other.wait()
    other.close()
    nothing_is_left()


@case("DLPack of the host's memory, and a model for C that is given a device's")
def _(folder):
    class Plain:                # a library that NumPy knows by DLPack alone
        def __init__(self, values):
            self.values = values

        def __dlpack__(self, **more):
            return self.values.__dlpack__(**more)

        def __dlpack_device__(self):
            return self.values.__dlpack_device__()
    m = compiled(folder, TWICE)
    x = np.random.default_rng(4).standard_normal((4, 64)).astype(np.float32)
    expect(np.array_equal(m(Plain(x)), 2 * x), "DLPack's kDLCPU")
    plain = tgc.compile(folder / "m.tg", options=["--target=c"])
    expect(np.array_equal(plain(Plain(x)), 2 * x), "the same by C")
    refused(lambda: plain(m(x, device=True)), "input 'x'", "copy it to the processor's memory")
    refused(lambda: plain(x, device=True), "device= and stream= are for models that run on CUDA or AMD's devices, this one is for c", "--target=cuda")
    del m
    nothing_is_left()


@case("what the device lacks is in the error")
def _(folder):
    status = refused(lambda: compiled(folder, TWICE, device_words="memory=100"), "cannot be set up", "the model needs", "of the device's 100 bytes").status
    expect(status == DEVICE_MEMORY, f"status {status}")
    nothing_is_left()
    refused(lambda: compiled(folder, TWICE, device_words="arch=75"), "sm_75: compile with --cpu=sm_75")
    nothing_is_left()
    refused(lambda: compiled(folder, TWICE, device_words="units=0"), "cuDeviceGet")
    gc.collect()


suite.main()
