"""NVIDIA's compiler and assembler, from the Python packages that the tests install."""

import ctypes
import functools
import importlib.util
import os
import re
from pathlib import Path

import tgc as T
from suite import Skip, expect


def file_of(package, name, wheel=None):
    found = importlib.util.find_spec(package) if importlib.util.find_spec("nvidia") else None
    for place in found.submodule_search_locations if found else ():
        for path in sorted(Path(place).glob(name)):
            return path
    raise Skip(f"{name} is not installed (PyPI's {wheel or package.replace('nvidia.', 'nvidia-').replace('_', '-') + '-cu12'})")


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
    options = [f"--gpu-architecture={architecture}".encode(), b"--std=c++17", b"--disable-warnings", b"--fmad=false"]
    status = library.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernels.cu", 0, None, None)
    status = status or library.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
    log = status != 0
    (library.nvrtcGetProgramLogSize if log else library.nvrtcGetPTXSize)(program, ctypes.byref(size))
    said = ctypes.create_string_buffer(size.value + 1)
    (library.nvrtcGetProgramLog if log else library.nvrtcGetPTX)(program, said)
    library.nvrtcDestroyProgram(ctypes.byref(program))
    expect(not log, said.value.decode()[:3000])
    return said.value.decode()


@functools.cache
def nvdisasm():
    return file_of("nvidia.cu13", "bin/nvdisasm", "nvidia-cuda-nvdisasm")


def machine_code(folder, text, architecture, of=None):
    """{kernel: its instructions, and its labels, which end in a colon} of kernels' text for sm_90a and the like, by NVRTC and ptxas. of: of PTX for that
    architecture, compute_90 say; None: for its own."""
    (folder / "m.ptx").write_text(ptx_of(text, of or architecture.replace("sm_", "compute_")))
    T.must(T.run([ptxas(), f"--gpu-name={architecture}", "m.ptx", "-o", "m.cubin"], cwd=folder, timeout=300))
    found, kernel = {}, None
    for line in T.must(T.run([nvdisasm(), "-c", "m.cubin"], cwd=folder)).out.decode().splitlines():
        section, label, code = re.match(r"\s*\.text\.(\w+):", line), re.match(r"(\.L_x_\d+:)", line), re.match(r"\s*/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;", line)
        if section:
            kernel = found.setdefault(section[1], [])
        elif kernel is not None and (label or code):
            kernel.append(label[1] if label else code[1])
    return found


def loops(code):
    """The instructions of each innermost loop of a kernel: from a label to the branch back to it, with no such loop of a dozen instructions in it. Behind
    the kernel's end are rare cases, which branch back, too."""
    code = code[:code.index("EXIT")]
    places, found = {line[:-1]: i for i, line in enumerate(code) if line.endswith(":")}, []
    for i, line in enumerate(code):
        back = re.search(r"\bBRA(?:\.U)? .*`\((\.L_x_\d+)\)", line)
        if back and places.get(back[1], i) < i and i - places[back[1]] > 12:
            found.append((places[back[1]], i))
    inner = [(a, b) for a, b in found if not any((a <= c and d <= b) and (c, d) != (a, b) for c, d in found)]
    return [[line for line in code[a:b + 1] if not line.endswith(":")] for a, b in inner]


def text_of(path):
    """In this process the emulator's kernels are those."""
    os.environ["TGC_EMULATOR_CUDA"] = str(path)
