"""Compilers of kernels for AMD's devices, and what they say of a code object."""

import os
import re
import shutil

import tgc as T
from suite import Skip

VERSIONS = range(30, 18, -1)      # of clang and LLVM's tools: those that know all architectures


def tool(name):
    """NAME-19 or a newer one."""
    for version in VERSIONS:
        if shutil.which(f"{name}-{version}"):
            return f"{name}-{version}"
    raise Skip(f"{name}-19 is not installed")


def need_compiler():
    """tgc takes libLLVM, or clang where it has none; both link by ld.lld."""
    tool("ld.lld")
    tool("clang")


def text_of(path):
    """In this process the emulator's kernels are those."""
    os.environ["TGC_EMULATOR_AMD"] = str(path)


def notes(path):
    """The kernels of a code object by name, each with its numbers: .vgpr_count, .group_segment_fixed_size, ..."""
    text = T.must(T.run([tool("llvm-readobj"), "--notes", path])).out.decode()
    kernels = re.split(r"^  - \.agpr_count|^  - \.args", text, flags=re.M)[1:]
    return {re.search(r"^    \.name: +(\S+)", k, re.M).group(1): {key: int(n) for key, n in re.findall(r"^    (\.\w+): +(\d+)$", k, re.M)}
            for k in kernels}


def disassembly(path):
    return T.must(T.run([tool("llvm-objdump"), "-d", path])).out.decode()
