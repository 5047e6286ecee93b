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


def by_loops(text, pattern):
    """Of a disassembly {kernel: (instructions of that pattern, how many of them are in a loop)}, for those that have any. A loop is what a branch
    goes back over."""
    found = {}
    for kernel in re.split(r"^(?=[0-9a-f]{16} <)", text, flags=re.M)[1:]:
        start, name = re.match(r"([0-9a-f]+) <([^>]*)>:", kernel).groups()
        at = [int(place, 16) for place in re.findall(rf"^\s+{pattern}\b.*// ([0-9A-F]+):", kernel, re.M)]
        back = [(int(start, 16) + int(to, 16), int(place, 16))
                for place, to in re.findall(rf"^\s+s_c?branch\w* .*// ([0-9A-F]+): .*<{re.escape(name)}\+0x([0-9a-f]+)>", kernel, re.M)]
        if at:
            found[name] = len(at), sum(any(to <= place < of for to, of in back) for place in at)
    return found
