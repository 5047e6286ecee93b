"""NVIDIA's compiler and assembler, from the Python packages that the tests install."""

import ctypes
import functools
import importlib.util
import os
from pathlib import Path

from suite import Skip, expect


def file_of(package, name):
    found = importlib.util.find_spec(package) if importlib.util.find_spec("nvidia") else None
    for place in found.submodule_search_locations if found else ():
        for path in sorted(Path(place).glob(name)):
            return path
    raise Skip(f"{name} is not installed (PyPI's {package.replace('nvidia.', 'nvidia-').replace('_', '-')}-cu12)")


@functools.cache
def need_nvrtc():
    """tgc finds this one, whatever else is installed."""
    os.environ["TGC_NVRTC"] = str(file_of("nvidia.cuda_nvrtc", "lib/libnvrtc.so.*"))


@functools.cache
def ptxas():
    return file_of("nvidia.cuda_nvcc", "bin/ptxas")


def ptx_of(text, architecture):
    """What NVRTC makes of the text, for an architecture as it names them: compute_90a."""
    need_nvrtc()
    library = ctypes.CDLL(os.environ["TGC_NVRTC"])
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    options = [f"--gpu-architecture={architecture}".encode(), b"--std=c++17", b"--disable-warnings"]
    status = library.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernels.cu", 0, None, None)
    status = status or library.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
    log = status != 0
    (library.nvrtcGetProgramLogSize if log else library.nvrtcGetPTXSize)(program, ctypes.byref(size))
    said = ctypes.create_string_buffer(size.value + 1)
    (library.nvrtcGetProgramLog if log else library.nvrtcGetPTX)(program, said)
    library.nvrtcDestroyProgram(ctypes.byref(program))
    expect(not log, said.value.decode()[:3000])
    return said.value.decode()


def text_of(path):
    """In this process the emulator's kernels are those."""
    os.environ["TGC_EMULATOR_CUDA"] = str(path)
