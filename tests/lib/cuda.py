"""NVIDIA's compiler and assembler, from the Python packages that the tests install."""

import functools
import importlib.util
import os
from pathlib import Path

from suite import Skip


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


def text_of(path):
    """In this process the emulator's kernels are those."""
    os.environ["TGC_EMULATOR_CUDA"] = str(path)
