"""Whether OpenCL programs can run here; a context and buffers of a test's own; options of models for devices."""

import ctypes
import functools
import os
import sys

from library import pointer
from suite import Skip, expect

# PoCL optimizes kernels for twice the time that it takes else. What is tested is their text, so in the quick form it optimizes where a test says
# OPTIMIZED, in the long one everywhere.
if "--all" not in sys.argv:
    os.environ.setdefault("POCL_EXTRA_BUILD_FLAGS", "-cl-opt-disable")
OPTIMIZED = {"POCL_EXTRA_BUILD_FLAGS": ""}

ANY_DEVICE = ctypes.c_ulong(0xFFFFFFFF)


def need_device():
    """Skips where there is no driver with a device."""
    try:
        library = ctypes.CDLL("libOpenCL.so.1")
    except OSError:
        raise Skip("no OpenCL driver is installed (pocl-opencl-icd)") from None
    count = ctypes.c_uint(0)
    if library.clGetPlatformIDs(0, None, ctypes.byref(count)) != 0 or count.value == 0:
        raise Skip("OpenCL has no device here (pocl-opencl-icd)")


@functools.cache
def keep_context():
    """A context of the first device that is never released: a driver then keeps what it has loaded for its compiler (PoCL: 10 MB of
    functions, half a second) for the models that are run in this process."""
    need_device()
    library = ctypes.CDLL("libOpenCL.so.1")
    library.clCreateContext.restype = ctypes.c_void_p
    platform, device = ctypes.c_void_p(), ctypes.c_void_p()
    library.clGetPlatformIDs(1, ctypes.byref(platform), None)
    if library.clGetDeviceIDs(platform, ANY_DEVICE, 1, ctypes.byref(device), None) == 0:
        library.clCreateContext(None, 1, ctypes.byref(device), None, None, None)


class Options(ctypes.Structure):
    LOAD = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t)
    SAVE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t)
    KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)
    TIME = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_double)
    ERROR = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p)
    _fields_ = [("threads", ctypes.c_int), ("weights", ctypes.c_void_p), ("weights_bytes", ctypes.c_size_t), ("parallel_for", ctypes.c_void_p),
                ("on_kernel", KERNEL), ("user", ctypes.c_void_p), ("device", ctypes.c_int), ("context", ctypes.c_void_p), ("queue", ctypes.c_void_p),
                ("load_program", LOAD), ("save_program", SAVE), ("on_kernel_time", TIME), ("on_error", ERROR),
                ("images", ctypes.c_int)]


class Driver:
    """A context and a queue of the test's own."""

    def __init__(self):
        need_device()
        cl = self.cl = ctypes.CDLL("libOpenCL.so.1")
        for name in ("clCreateContext", "clCreateCommandQueue", "clCreateBuffer"):
            getattr(cl, name).restype = ctypes.c_void_p
        platform, self.device, error = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int()
        cl.clGetPlatformIDs(1, ctypes.byref(platform), None)
        cl.clGetDeviceIDs(platform, ctypes.c_ulong(0xFFFFFFFF), 1, ctypes.byref(self.device), None)
        self.context = ctypes.c_void_p(cl.clCreateContext(None, 1, ctypes.byref(self.device), None, None, ctypes.byref(error)))
        self.queue = self.new_queue(0)

    def new_queue(self, properties):
        return ctypes.c_void_p(self.cl.clCreateCommandQueue(self.context, self.device, ctypes.c_ulong(properties), None))

    def buffer(self, nbytes, context=None):
        return ctypes.c_void_p(self.cl.clCreateBuffer(context or self.context, ctypes.c_ulong(1), ctypes.c_size_t(nbytes), None, None))

    def write(self, buffer, array, at=0):
        expect(self.cl.clEnqueueWriteBuffer(self.queue, buffer, 1, ctypes.c_size_t(at), ctypes.c_size_t(array.nbytes), pointer(array), 0, None, None) == 0,
               "the test cannot write")

    def read(self, buffer, array, at=0):
        expect(self.cl.clEnqueueReadBuffer(self.queue, buffer, 1, ctypes.c_size_t(at), ctypes.c_size_t(array.nbytes), pointer(array), 0, None, None) == 0,
               "the test cannot read")
        return array
