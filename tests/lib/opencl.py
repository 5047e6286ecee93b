"""Whether OpenCL programs can run here."""

import ctypes
import functools

from suite import Skip

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
