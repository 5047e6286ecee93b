"""Kernels of devices in LLVM's text (tgc -o NAME.ll), compiled for this machine and the emulator: the same functions, but that memory has no
spaces, a kernel is a plain function, and what it asks of its device is left to the emulator (tests/emulator/gpu.c)."""

import contextlib
import os
import re
import shutil
from pathlib import Path

import tgc as T
from emulator import HALVES, SOURCES
from suite import Skip


VERSIONS = (19, 15, 14)       # of which Debian has clang


def need(version):
    """The clang that reads that LLVM's text: of its version, with whose library Debian's comes."""
    name = f"clang-{version}"
    if not shutil.which(name):
        raise Skip(f"{name} is not installed")
    return name


MATRIX = "declare void @gpu_matrix_word(i32, i32, i32)\ndeclare void @gpu_matrix(i32)\ndeclare i32 @gpu_matrix_sum(i32)\n"


def rows():
    """Of ir/matrix.def, in order."""
    return re.findall(r'^MATRIX\(\w+, *"(\w+)"', (SOURCES.parents[1] / "ir" / "matrix.def").read_text(), re.M)


def matrix(found):
    """An instruction of ir/matrix.def as calls of the emulator."""
    result, name, row, parameters = found.groups()
    lines = []
    if row.startswith("rows"):
        n = int(row[4])
        lines = [f"  call void @gpu_rows({parameters}, i32 {n}, i32 {int(row.endswith('_across'))})"]
        lines += [f"  %word{i} = call i32 @gpu_rows_word(i32 {i})" for i in range(n)]
        lines += [f"  %made{i} = insertvalue {result} {f'%made{i - 1}' if i else 'undef'}, i32 %word{i}, {i}" for i in range(n)]
        return "\n".join((f"define internal {result} {name}({parameters}) {{", *lines, f"  ret {result} %made{n - 1}", "}", ""))
    for number, (kind, parameter) in enumerate(word.split() for word in parameters.split(", ")):
        part, word = "abs".index(parameter[1]), parameter
        if kind == "float":
            word = f"%word{number}"
            lines.append(f"  {word} = bitcast float {parameter} to i32")
        lines.append(f"  call void @gpu_matrix_word(i32 {part}, i32 {parameter[2:]}, i32 {word})")
    lines.append(f"  call void @gpu_matrix(i32 {rows().index(row)})")
    made = "undef"
    for i, kind in enumerate(result.strip("{ }").split(", ")):
        lines += [f"  %given{i} = call i32 @gpu_matrix_sum(i32 {i})", f"  %sum{i} = bitcast i32 %given{i} to {kind}",
                  f"  %made{i} = insertvalue {result} {made}, {kind} %sum{i}, {i}"]
        made = f"%made{i}"
    return "\n".join((f"define internal {result} {name}({parameters}) {{", *lines, f"  ret {result} {made}", "}", ""))


def launched(text):
    """Memory that launches name: a kernel's array of as many bytes as its attribute says."""
    for name in re.findall(r'^@"([\w.]+)\$memory" = ', text, re.M):
        group = re.search(rf"^define [^\n]*@{re.escape(name)}\([^\n]*\) [^\n]*(#\d+) ", text, re.M)[1]
        nbytes = re.search(rf'^attributes {group} = .*"tgc-local"="(\d+)"', text, re.M)[1]
        array, old, new = f"[{nbytes} x i8]", f'@"{name}$memory"', f'@"{name}.memory"'
        text = re.sub(rf"^{re.escape(old)} = [^\n]*", f"{new} = internal global {array} undef, align 128", text, flags=re.M)
        text = text.replace(f"[0 x i8], [0 x i8]* {old}", f"{array}, {array}* {new}").replace(f"[0 x i8]* {old}", f"{array}* {new}").replace(old, new)
    return text


def for_host(text):
    """The module without what only its device has."""
    text = re.sub(r"^target (triple|datalayout) = .*\n", "", text, flags=re.M)
    text = re.sub(r"\b(ptx_kernel|amdgpu_kernel) ", "", text)
    text = launched(re.sub(r",? addrspace\(\d+\)", "", text).replace("addrspacecast", "bitcast"))
    text = re.sub(r"^define linkonce_odr hidden (\{.*?\}) (@gpu\.(\w+))\(([^)]*)\)[^{]*\{.*?^\}\n", matrix, text, flags=re.M | re.S)
    text = re.sub(r"^define linkonce_odr hidden (\w+ @gpu\.[\w.]+)\(([^)]*)\)[^{]*\{.*?^\}\n", lambda found: f"declare {found[1]}({re.sub(r' %[^,]*', '', found[2])})\n",
                  text, flags=re.M | re.S)
    text += MATRIX if "@gpu_matrix(" in text else ""
    text += "declare void @gpu_rows(i64, i32, i32)\ndeclare i32 @gpu_rows_word(i32)\n" if "@gpu_rows(" in text else ""
    text = re.sub(r"^declare [^\n]*@llvm\.(nvvm|amdgcn)\.[^\n]*\n", "", text, flags=re.M)
    text = re.sub(r"\"(target-cpu|target-features|amdgpu-[\w-]+|uniform-work-group-size)\"(=\"[^\"]*\")?", "", text)
    text = re.sub(r"^(attributes #\d+ = \{ )", r"\1sanitize_address ", text, flags=re.M)
    return text


def compile_for_host(path, version):
    """NAME.o beside NAME.ll."""
    clang, text = need(version), Path(path).read_text()
    host = path.with_suffix(".host.ll")
    host.write_text(for_host(text))
    flags = [word for line in (SOURCES / "cuda" / "cuda.flags").read_text().splitlines() for word in line.split()]
    kept = flags[flags.index("-fsanitize=address"):]
    T.must(T.run([clang, "-c", "-O1", "-fPIC", "-fno-omit-frame-pointer", *HALVES, *kept, "-Wno-override-module", host, "-o", path.with_suffix(".o")], timeout=300))
    return path.with_suffix(".o")


@contextlib.contextmanager
def by_llvm(version):
    """In this process tgc compiles for CUDA by that LLVM, and the emulator takes the object that use() names."""
    need(version)
    with T.environment(TGC_NVRTC="none", TGC_LLVM=version, TGC_EMULATOR_OBJECT=""):
        yield


def use(path):
    os.environ["TGC_EMULATOR_OBJECT"] = str(path)
