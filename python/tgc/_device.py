"""Arrays in the memory of a device of NVIDIA's or AMD's: DLPack in and out, and what this takes of the driver.

A context of a model for CUDA or AMD has a stream of its own here, in the primary context of its device, which is where PyTorch,
CuPy and JAX have theirs. Who gives an array makes that stream wait for what still writes it (DLPack's `stream`); kernels
then read and write the array where it lies. Nothing is copied or converted: what does not fit is refused.

    take()          an array of another library's, of the shape, dtype and device that a port of the model has
    DeviceArray     what a run has written, for other libraries
"""

import ctypes
import functools
import os
import weakref
from ctypes import (CFUNCTYPE, POINTER, Structure, addressof, byref, c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint8,
                    c_uint16, c_uint32, c_uint64, c_void_p, py_object)
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import numpy as np

from ._error import Error

CUDA, CUDA_MANAGED, ROCM = 2, 13, 10      # DLPack's kDLCUDA, memory that the host sees, too, kDLROCM
ALIGN = 128                     # where a tensor of the caller's may begin
LEGACY, PER_THREAD = 1, 2       # streams without a handle, as DLPack and the driver number them
_ORDERED = -1                   # DLPack: who asks has seen to the order

# DLPack's codes of dtypes that NumPy has not; for the others it is the kind of number.
_CODES = {"bool": 6, "bf16": 4, "f8e4m3fn": 10, "f8e4m3fnuz": 11, "f8e5m2": 12, "f8e5m2fnuz": 13, "f8e8m0": 14}
_KINDS = {"i": 0, "u": 1, "f": 2}
_KIND_NAMES = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex", 6: "bool"}


class _Tensor(Structure):
    """DLTensor"""
    _fields_ = [("data", c_void_p), ("device_type", c_int32), ("device_id", c_int32), ("ndim", c_int32), ("code", c_uint8),
                ("bits", c_uint8), ("lanes", c_uint16), ("shape", POINTER(c_int64)), ("strides", POINTER(c_int64)),
                ("byte_offset", c_uint64)]


class _Managed(Structure):
    """DLManagedTensor"""


_DELETER = CFUNCTYPE(None, POINTER(_Managed))
_Managed._fields_ = [("tensor", _Tensor), ("manager", c_void_p), ("deleter", _DELETER)]

_END_CAPSULE = CFUNCTYPE(None, c_void_p)
_NAME = c_char_p(b"dltensor")


@functools.lru_cache(maxsize=None)
def _capsules() -> Any:
    """CPython's own functions for capsules; not those of ctypes.pythonapi, whose types somebody else may set."""
    python = ctypes.PyDLL(None)
    python.PyCapsule_New.restype, python.PyCapsule_New.argtypes = py_object, (c_void_p, c_char_p, c_void_p)
    python.PyCapsule_IsValid.restype, python.PyCapsule_IsValid.argtypes = c_int, (c_void_p, c_char_p)
    python.PyCapsule_GetPointer.restype, python.PyCapsule_GetPointer.argtypes = c_void_p, (c_void_p, c_char_p)
    return python


def _address_in(capsule: int) -> int:
    """Of a capsule's tensor, unless somebody has taken it; 0: there is none."""
    python = _capsules()
    return int(python.PyCapsule_GetPointer(capsule, _NAME)) if python.PyCapsule_IsValid(capsule, _NAME) else 0


# ------------------------------------------------------------------------------------ the driver


def _load(names: Sequence[str], missing: str) -> Any:
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            pass
    raise Error(missing)


class _Cuda:
    """NVIDIA's driver, in the primary context of a device. enter() makes that the thread's, until leave()."""
    title, kinds = "CUDA", (CUDA, CUDA_MANAGED)
    legacy, unnamed = LEGACY, (LEGACY, PER_THREAD)
    names: Dict[str, str] = {}

    def __init__(self, number: int):
        self.number, self.context = number, c_void_p()
        self.library = _load(("libcuda.so.1",), "NVIDIA's driver, libcuda.so.1, is not installed: a model for CUDA runs where it is")
        self._device = c_int()
        self.call("cuInit", c_uint32(0))
        self.call("cuDeviceGet", byref(self._device), c_int(number))
        self.call("cuDevicePrimaryCtxRetain", byref(self.context), self._device)

    def function(self, name: str) -> Any:
        """By CUDA's name."""
        return getattr(self.library, self.names.get(name, name))

    def call(self, name: str, *arguments: Any) -> None:
        status = self.function(name)(*arguments)
        if status:
            raise Error(f"{self.names.get(name, name)}: {self.words(status)} ({status})")

    def words(self, status: int) -> str:
        text = c_char_p()
        self.library.cuGetErrorString(c_int(status), byref(text))
        return (text.value or b"unknown error").decode()

    def enter(self) -> Any:
        self.call("cuCtxPushCurrent_v2", self.context)

    def leave(self, _: Any) -> None:
        self.library.cuCtxPopCurrent_v2(byref(c_void_p()))

    def has_stream(self, stream: int) -> bool:
        of = c_void_p()
        self.call("cuStreamGetCtx", c_void_p(stream), byref(of))
        return of.value == self.context.value

    def end(self) -> None:
        self.library.cuDevicePrimaryCtxRelease_v2(self._device)


class _Hip(_Cuda):
    """AMD's, whose contexts are devices; the same functions but for their names."""
    title, kinds = "ROCm", (ROCM,)
    legacy, unnamed = 0, (0,)
    names = {"cuStreamCreate": "hipStreamCreateWithFlags", "cuStreamDestroy_v2": "hipStreamDestroy", "cuStreamSynchronize": "hipStreamSynchronize",
             "cuStreamWaitEvent": "hipStreamWaitEvent", "cuEventCreate": "hipEventCreateWithFlags", "cuEventDestroy_v2": "hipEventDestroy",
             "cuEventRecord": "hipEventRecord", "cuEventSynchronize": "hipEventSynchronize", "cuMemAlloc_v2": "hipMalloc", "cuMemFree_v2": "hipFree",
             "cuMemcpyDtoH_v2": "hipMemcpyDtoH"}

    def __init__(self, number: int):
        self.number, self.context = number, c_void_p()
        self.library = _load(("libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"),
                             "AMD's driver, libamdhip64.so, is not installed: a model for AMD's devices runs where it is")
        self.library.hipGetErrorString.restype = c_char_p
        self.call("hipInit", c_uint32(0))
        self.leave(self.enter())

    def words(self, status: int) -> str:
        return (self.library.hipGetErrorString(c_int(status)) or b"unknown error").decode()

    def enter(self) -> Any:
        before = c_int()
        self.call("hipGetDevice", byref(before))
        self.call("hipSetDevice", c_int(self.number))
        return before

    def leave(self, before: Any) -> None:
        self.library.hipSetDevice(before)

    def has_stream(self, stream: int) -> bool:
        """Before ROCm 5.6 a stream does not say."""
        of = c_int(self.number)
        if hasattr(self.library, "hipStreamGetDevice"):
            self.call("hipStreamGetDevice", c_void_p(stream), byref(of))
        return of.value == self.number

    def end(self) -> None:
        pass


_INTERFACES = {"cuda": _Cuda, "amd": _Hip}


class Driver:
    """A device, alive as long as something is of it."""

    def __init__(self, target: str, number: int):
        self.number, self.calls = number, _INTERFACES[target](number)
        self.title, self.kinds, self.legacy, self.context = self.calls.title, self.calls.kinds, self.calls.legacy, self.calls.context
        weakref.finalize(self, _end_calls, self.calls, os.getpid())

    def call_within(self, name: str, *arguments: Any) -> None:
        """With the device as the thread's."""
        before = self.calls.enter()
        try:
            self.calls.call(name, *arguments)
        finally:
            self.calls.leave(before)

    def make(self, name: str, end: str, *arguments: Any) -> "Handle":
        handle = c_uint64()
        self.call_within(name, byref(handle), *arguments)
        return Handle(self, handle.value, end)

    def stream(self) -> "Handle":
        return self.make("cuStreamCreate", "cuStreamDestroy_v2", c_uint32(1))        # it waits for no other one

    def event(self) -> "Handle":
        return self.make("cuEventCreate", "cuEventDestroy_v2", c_uint32(2))          # it has no time

    def own_event(self, value: int) -> "Handle":
        return Handle(self, value, "cuEventDestroy_v2")

    def memory(self, nbytes: int) -> "Handle":
        return self.make("cuMemAlloc_v2", "cuMemFree_v2", c_size_t(max(nbytes, 1)))

    def is_ours(self, stream: int) -> bool:
        """Whether a stream is of this device, and its context."""
        if stream in self.calls.unnamed:
            return True
        before = self.calls.enter()
        try:
            return self.calls.has_stream(stream)
        finally:
            self.calls.leave(before)


def _end_calls(calls: Any, process: int) -> None:
    if process == os.getpid():
        calls.end()


class Handle:
    """A stream, an event or memory of the driver's: ends with this object."""

    def __init__(self, driver: Driver, value: int, end: str):
        self.driver, self.value = driver, value
        self.until: List[Handle] = []       # events before which it is in use
        weakref.finalize(self, _end, driver.calls, end, c_uint64(value), os.getpid(), self.until)


def _end(calls: Any, name: str, what: Any, process: int, until: Sequence[Any] = ()) -> None:
    """A forked process has nothing of its parent's device."""
    if process != os.getpid():
        return
    before = calls.enter()
    for event in until:
        calls.function("cuEventSynchronize")(c_uint64(event.value))
    calls.function(name)(what)
    calls.leave(before)


def check_stream(driver: Driver, stream: Any) -> int:
    """The caller's stream as DLPack numbers it; 0 is the driver's own name of the legacy one."""
    if isinstance(stream, bool) or not hasattr(stream, "__index__") or stream.__index__() < 0:
        raise Error(f"stream: {stream!r} is no stream; give its handle, as torch.cuda.current_stream().cuda_stream")
    handle = stream.__index__() or driver.legacy
    if not driver.is_ours(handle):
        raise Error(f"stream: {handle:#x} is of another context than the model's, which is the primary one of device "
                    f"{driver.number}; give a stream of that one, as PyTorch's are")
    return int(handle)


def wait_for_event(driver: Driver, stream: int, event: Handle) -> None:
    driver.call_within("cuStreamWaitEvent", c_void_p(stream), c_uint64(event.value), c_uint32(0))


def wait_for(driver: Driver, stream: int, other: int) -> None:
    """What comes next in the stream waits for what is in the other one now."""
    event = driver.event()
    driver.call_within("cuEventRecord", c_uint64(event.value), c_void_p(other))
    wait_for_event(driver, stream, event)


_drivers: "weakref.WeakValueDictionary[Tuple[int, str, int], Driver]" = weakref.WeakValueDictionary()


def open_driver(target: str = "cuda", number: int = 0) -> Driver:
    """The device of that number, counted from 0, of models for that target."""
    key = os.getpid(), target, number
    driver = _drivers.get(key)
    if driver is None:
        driver = _drivers[key] = Driver(target, number)
    return driver


# ------------------------------------------------------------------------------------ arrays in


class Taken:
    """Another library's array, which stays alive as long as this does."""

    def __init__(self, array: Any, tensor: _Tensor, capsule: Any):
        self.array, self.capsule = array, capsule
        self.code, self.bits, self.lanes = tensor.code, tensor.bits, tensor.lanes
        self.shape = tuple(tensor.shape[axis] for axis in range(tensor.ndim))
        self.strides = tuple(tensor.strides[axis] for axis in range(tensor.ndim)) if tensor.strides else None
        self.address = (tensor.data or 0) + tensor.byte_offset
        self.count = count_of(self.shape)
        self.nbytes = (self.count * self.bits * self.lanes + 7) // 8

    def __str__(self) -> str:
        name = "bool" if self.code == 6 else f"{_KIND_NAMES.get(self.code, f'DLPack code {self.code}, ')}{self.bits}"
        return f"{name}{f'x{self.lanes}' if self.lanes > 1 else ''}[{','.join(map(str, self.shape))}]"

    def is_contiguous(self) -> bool:
        expected = 1
        for size, stride in reversed(list(zip(self.shape, self.strides or ()))):
            if size > 1 and stride != expected:
                return False
            expected *= size
        return True


def count_of(shape: Sequence[int]) -> int:
    return functools.reduce(lambda count, size: count * size, shape, 1)


def code_of(dtype: str, numpy_dtype: np.dtype) -> Tuple[int, int]:
    """DLPack's code and bits of a dtype of tgc's, whose arrays are of that dtype of NumPy's."""
    code = _CODES.get(dtype)
    return (_KINDS[numpy_dtype.kind] if code is None else code), 8 * numpy_dtype.itemsize


def is_of_device(value: Any) -> bool:
    """Whether it is an array in the memory of a device of NVIDIA's or AMD's."""
    device = getattr(value, "__dlpack_device__", None)
    return device is not None and device()[0] in (CUDA, CUDA_MANAGED, ROCM)


def take(value: Any, driver: Driver, stream: int, fail: Callable[[str, str], Error],
         codes: Sequence[Tuple[int, int]], dtype_name: str) -> Taken:
    """The array as kernels of the stream may use it. codes: of the dtypes that it may have; fail: makes the error of what
    was found and what to do."""
    kind, number = value.__dlpack_device__()
    if kind not in driver.kinds:
        raise fail(f"{type(value).__name__} on device {getattr(value, 'device', f'DLPack kind {int(kind)}')}",
                   f"the model runs on {driver.title} device {driver.number}: copy it there")
    if kind != CUDA_MANAGED and number != driver.number:
        raise fail(f"{type(value).__name__} on {driver.title} device {number}",
                   f"the model runs on device {driver.number}: copy it there, as x.to('cuda:{driver.number}') does")
    try:
        capsule = value.__dlpack__(stream=stream)
    except (AttributeError, BufferError, RuntimeError, TypeError, ValueError) as why:
        raise fail(type(value).__name__, f"it cannot be taken by DLPack: {why}") from None
    at = _address_in(id(capsule))
    if not at:
        raise fail(type(value).__name__, "its __dlpack__(stream=...) gives no capsule 'dltensor'")
    found = Taken(value, _Managed.from_address(at).tensor, capsule)
    if (found.code, found.bits) not in codes or found.lanes != 1:
        raise fail(str(found), f"convert it on the device, as x.to(torch.{dtype_name}) does")
    if not found.is_contiguous():
        raise fail(f"{found} with strides {list(found.strides or ())}",
                   "the elements have to be contiguous: give x.contiguous()")
    if found.count and found.address % ALIGN:
        raise fail(f"{found} at an address that is no multiple of {ALIGN} bytes",
                   "it is a part of an array: copy it, as x.clone() does")
    return found


# ----------------------------------------------------------------------------------- arrays out


class DeviceArray:
    """What a run has written to the device's memory: torch.from_dlpack(y), cupy.from_dlpack(y), jax.dlpack.from_dlpack(y)
    take it without a copy, y.numpy() copies it to the host.

    dtype: NumPy's; of bfloat16 and float8 that of their bits.
    """

    def __init__(self, memory: Any, shape: Sequence[int], dtype: np.dtype, code: Tuple[int, int]):
        self._memory, self._code = memory, code
        self._event: Optional[Handle] = None            # when it is written; None: it is
        self.shape, self.dtype = tuple(shape), dtype

    def set_event(self, event: Handle) -> None:
        self._event = event
        self._memory.until.append(event)

    @property
    def address(self) -> int:
        return self._memory.value

    @property
    def nbytes(self) -> int:
        return count_of(self.shape) * self.dtype.itemsize

    def __repr__(self) -> str:
        return f"<tgc.DeviceArray {self.dtype}[{','.join(map(str, self.shape))}] on {self._memory.driver.title} device {self._memory.driver.number}>"

    def numpy(self) -> np.ndarray:
        """A copy in the host's memory."""
        driver, array = self._memory.driver, np.empty(self.shape, self.dtype)
        self._order(None)
        if array.nbytes:
            driver.call_within("cuMemcpyDtoH_v2", c_void_p(array.ctypes.data), c_uint64(self.address), c_size_t(array.nbytes))
        return array

    def __dlpack_device__(self) -> Tuple[int, int]:
        return self._memory.driver.kinds[0], self._memory.driver.number

    def __dlpack__(self, *, stream: Optional[int] = None, max_version: Optional[Tuple[int, int]] = None,
                   dl_device: Optional[Tuple[int, int]] = None, copy: Optional[bool] = None) -> Any:
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError("the array stays on its device: numpy() copies it to the host")
        if copy:
            raise BufferError("no copy is made: copy what from_dlpack() returns")
        if stream != _ORDERED:
            self._order(self._memory.driver.legacy if stream is None else stream)
        return _capsule(self)

    def _order(self, stream: Optional[int]) -> None:
        """What comes next in the stream, or this thread, finds the array written."""
        if self._event is None:
            return
        driver = self._memory.driver
        if stream is None:
            driver.call_within("cuEventSynchronize", c_uint64(self._event.value))
        else:
            wait_for_event(driver, stream, self._event)


def new_array(driver: Driver, port: Any) -> DeviceArray:
    """Of the port's bound."""
    return DeviceArray(driver.memory(port.count * port.dtype.itemsize), port.bound, port.dtype, code_of(port.tensor.dtype, port.dtype))


class _Lent:
    """Memory of another library's, as a handle."""

    def __init__(self, driver: Driver, taken: Taken):
        self.driver, self.value, self._taken = driver, taken.address, taken
        self.until: List[Handle] = []


def result(array: Any, driver: Driver, shape: Sequence[int], port: Any, event: Optional[Handle]) -> Any:
    """What is returned for the memory that a run wrote to: what the caller gave, or an array of the run's shape."""
    if isinstance(array, Taken) and port.shape:
        return array.array
    if isinstance(array, Taken):
        array = DeviceArray(_Lent(driver, array), shape, port.dtype, code_of(port.tensor.dtype, port.dtype))
    array.shape = tuple(shape)
    if event is not None:
        array.set_event(event)
    return array


# What other libraries have of ours, by the address of its structure.
_given: Dict[int, Any] = {}


def _capsule(array: DeviceArray) -> Any:
    rank = len(array.shape)
    shape = (c_int64 * max(rank, 1))(*array.shape)
    strides = (c_int64 * max(rank, 1))(*(count_of(array.shape[axis + 1:]) for axis in range(rank)))
    managed = _Managed(_Tensor(array.address, *array.__dlpack_device__(), rank, *array._code, 1, shape, strides, 0),
                       None, _delete)
    _given[addressof(managed)] = array, managed
    return _capsules().PyCapsule_New(addressof(managed), _NAME, ctypes.cast(_end_capsule, c_void_p))


@_DELETER
def _delete(managed: Any) -> None:
    _given.pop(addressof(managed.contents), None)


@_END_CAPSULE
def _end_capsule(capsule: int) -> None:
    """Of one that nobody has taken."""
    _given.pop(_address_in(capsule), None)
