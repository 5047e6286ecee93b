"""Whether OpenCL programs can run here."""

import ctypes

from suite import Skip


def need_device():
    """Skips where there is no driver with a device."""
    try:
        library = ctypes.CDLL("libOpenCL.so.1")
    except OSError:
        raise Skip("no OpenCL driver is installed (pocl-opencl-icd)") from None
    count = ctypes.c_uint(0)
    if library.clGetPlatformIDs(0, None, ctypes.byref(count)) != 0 or count.value == 0:
        raise Skip("OpenCL has no device here (pocl-opencl-icd)")
