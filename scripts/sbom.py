#!/usr/bin/env python3
"""What tgc depends on, with licences: an SBOM as SPDX 2.3 JSON, and the table of docs/dependencies.md.

    scripts/sbom.py [-o tgc.spdx.json]    the SBOM; to standard output without -o
    scripts/sbom.py --write               writes the table of docs/dependencies.md anew
    scripts/sbom.py --check               exit status 1 where that table is old

COMPONENTS is the one list. tests/guide/documents_test.py looks in the sources for every library
that is opened, every dependency of the build and every package of the tests, and asks for a row.
Nothing is read but this checkout, so the same commit gives the same bytes: the time is that of
SOURCE_DATE_EPOCH, or of the last commit.
"""

import argparse
import datetime
import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "dependencies.md"
MARKS = ("<!-- table: dependencies -->\n", "<!-- end of table -->")

# How tgc uses it: what the table says, and SPDX's relationship to tgc.
USES = {
    "linked": ("linked into tgc", "DEPENDS_ON"),
    "built": ("needed to build tgc", "BUILD_TOOL_OF"),
    "opened": ("opened by dlopen where present", "OPTIONAL_DEPENDENCY_OF"),
    "run": ("run as a program where present", "OPTIONAL_DEPENDENCY_OF"),
    "emitted": ("opened by emitted programs for that device", "OPTIONAL_DEPENDENCY_OF"),
    "decoder": ("linked by users into programs that decode such images", "OPTIONAL_DEPENDENCY_OF"),
    "module": ("used by the Python module", "DEPENDS_ON"),
    "test": ("used by tests", "TEST_DEPENDENCY_OF"),
    "bench": ("used by the benchmark", "DEV_DEPENDENCY_OF"),
    "docs": ("builds the site of documents", "DEV_DEPENDENCY_OF"),
}

# name, SPDX licence, use, where it comes from, the names by which sources and lists call it
PROPRIETARY = "LicenseRef-proprietary"
COMPONENTS = [
    ("protobuf-c", "BSD-2-Clause", "linked", "https://github.com/protobuf-c/protobuf-c", "libprotobuf-c protobuf-c-compiler libprotobuf-c-dev"),
    ("ONNX's schema (onnx.proto)", "Apache-2.0", "linked", "https://github.com/onnx/onnx", "onnx.proto"),
    ("libjpeg-turbo", "IJG AND BSD-3-Clause", "linked", "https://libjpeg-turbo.org", "libjpeg libjpeg-dev"),
    ("C library", "LGPL-2.1-or-later", "linked", "https://www.gnu.org/software/libc/", "m dl libc6-dev threads"),
    ("Meson", "Apache-2.0", "built", "https://mesonbuild.com", "meson"),
    ("Ninja", "Apache-2.0", "built", "https://ninja-build.org", "ninja ninja-build"),
    ("GCC", "GPL-3.0-or-later WITH GCC-exception-3.1", "built", "https://gcc.gnu.org", "gcc"),
    ("GNU Make", "GPL-3.0-or-later", "built", "https://www.gnu.org/software/make/", "make"),
    ("pkg-config", "GPL-2.0-or-later", "built", "https://www.freedesktop.org/wiki/Software/pkg-config/", "pkg-config"),
    ("LLVM", "Apache-2.0 WITH LLVM-exception", "opened", "https://llvm.org", "libLLVM"),
    ("libclang", "Apache-2.0 WITH LLVM-exception", "opened", "https://clang.llvm.org", "libclang"),
    ("NVRTC", PROPRIETARY, "opened", "https://docs.nvidia.com/cuda/nvrtc/", "libnvrtc"),
    ("Open MPI", "BSD-3-Clause", "opened", "https://www.open-mpi.org", "libmpi openmpi-bin"),
    ("clang", "Apache-2.0 WITH LLVM-exception", "run", "https://clang.llvm.org", "clang"),
    ("LLD", "Apache-2.0 WITH LLVM-exception", "run", "https://lld.llvm.org", "ld.lld wasm-ld"),
    ("a C compiler and archiver", "NOASSERTION", "run", "https://gcc.gnu.org", "cc ar"),
    ("OpenCL driver", "NOASSERTION", "emitted", "https://www.khronos.org/opencl/", "libOpenCL"),
    ("CUDA driver", PROPRIETARY, "emitted", "https://developer.nvidia.com/cuda-toolkit", "libcuda"),
    ("HIP", "MIT", "emitted", "https://github.com/ROCm/clr", "libamdhip64"),
    ("Metal, Objective-C runtime", PROPRIETARY, "emitted", "https://developer.apple.com/metal/", "Metal libobjc"),
    ("libwebp", "BSD-3-Clause", "decoder", "https://developers.google.com/speed/webp", "libwebp libwebp-dev webp"),
    ("OpenJPEG", "BSD-2-Clause", "decoder", "https://www.openjpeg.org", "libopenjp2 libopenjp2-7-dev"),
    ("NumPy", "BSD-3-Clause", "module", "https://numpy.org", "numpy"),
    ("cmocka", "Apache-2.0", "test", "https://cmocka.org", "cmocka libcmocka-dev"),
    ("onnx", "Apache-2.0", "test", "https://github.com/onnx/onnx", "onnx"),
    ("ONNX Runtime", "MIT", "test", "https://onnxruntime.ai", "onnxruntime"),
    ("wasmtime", "Apache-2.0 WITH LLVM-exception", "test", "https://github.com/bytecodealliance/wasmtime-py", "wasmtime"),
    ("z3", "MIT", "test", "https://github.com/Z3Prover/z3", "z3-solver"),
    ("CUDA compiler and disassembler", PROPRIETARY, "test", "https://developer.nvidia.com/cuda-toolkit",
     "nvidia-cuda-nvrtc-cu12 nvidia-cuda-nvcc-cu12 nvidia-cuda-nvdisasm"),
    ("PyTorch, torchvision", "BSD-3-Clause", "test", "https://pytorch.org", "python3-torch python3-torchvision"),
    ("PoCL", "MIT", "test", "http://portablecl.org", "pocl-opencl-icd clinfo"),
    ("CMake", "BSD-3-Clause", "test", "https://cmake.org", "cmake"),
    ("G++", "GPL-3.0-or-later WITH GCC-exception-3.1", "test", "https://gcc.gnu.org", "g++"),
    ("OpenVINO", "Apache-2.0", "bench", "https://github.com/openvinotoolkit/openvino", "openvino"),
    ("ncnn", "BSD-3-Clause", "bench", "https://github.com/Tencent/ncnn", "ncnn"),
    ("emx-onnx-cgen", "NOASSERTION", "bench", "https://pypi.org/project/emx-onnx-cgen/", "emx-onnx-cgen"),
    ("tinygrad", "MIT", "bench", "https://github.com/tinygrad/tinygrad", "tinygrad"),
    ("MkDocs", "BSD-2-Clause", "docs", "https://www.mkdocs.org", "mkdocs"),
    ("PyMdown Extensions", "MIT", "docs", "https://facelessuser.github.io/pymdown-extensions/", "pymdown-extensions"),
    ("Pygments", "BSD-2-Clause", "docs", "https://pygments.org", "Pygments"),
]


def version():
    return re.search(r"version: '([^']+)'", (ROOT / "meson.build").read_text()).group(1)


def pins():
    """The versions that lists of Python packages ask for."""
    text = "\n".join((ROOT / folder / "requirements.txt").read_text() for folder in ("tests", "bench", "docs"))
    return dict(re.findall(r"^([\w.-]+)==(\S+)$", text, re.M))


def created():
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    if epoch is None:
        said = subprocess.run(["git", "-C", str(ROOT), "log", "-1", "--format=%ct"], capture_output=True, text=True)
        epoch = said.stdout.strip() or "0"
    return datetime.datetime.fromtimestamp(int(epoch), datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def identity(name):
    return "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]+", "-", name).strip("-")


def package(name, licence, **more):
    # concluded: nobody but the licence's own text says more than what is declared
    return {"SPDXID": identity(name), "name": name, "licenseDeclared": licence, "licenseConcluded": licence,
            "copyrightText": "NOASSERTION", "filesAnalyzed": False, **more}


def document():
    found = pins()
    own = package("tgc", "MIT AND 0BSD", versionInfo=version(), downloadLocation="NOASSERTION")
    packages, relations = [own], [{"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": own["SPDXID"]}]
    for name, licence, use, home, names in COMPONENTS:
        versions = [found[n] for n in names.split() if n in found]
        packages.append(package(name, licence, downloadLocation=home, comment=USES[use][0], **({"versionInfo": versions[0]} if versions else {})))
        kind = USES[use][1]
        ends = (own["SPDXID"], identity(name)) if kind == "DEPENDS_ON" else (identity(name), own["SPDXID"])
        relations.append({"spdxElementId": ends[0], "relationshipType": kind, "relatedSpdxElement": ends[1]})
    return {"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": f"tgc-{version()}",
            "documentNamespace": f"https://tgc.example/spdx/tgc-{version()}",
            "creationInfo": {"created": created(), "creators": ["Tool: scripts/sbom.py", "Organization: the tgc authors"]},
            "packages": packages, "relationships": relations,
            "hasExtractedLicensingInfos": [{"licenseId": PROPRIETARY, "name": "The vendor's own licence",
                                            "extractedText": "Terms of the vendor's end user licence agreement."}]}


def table():
    rows = [f"| [{name}]({home}) | {licence.replace('LicenseRef-', '') if licence != 'NOASSERTION' else 'the vendor says'} | {USES[use][0]} |"
            for name, licence, use, home, _ in COMPONENTS]
    return "\n".join(["| what | licence | how tgc uses it |", "|---|---|---|", *rows]) + "\n"


def main():
    parser = argparse.ArgumentParser(description="tgc's dependencies as SPDX JSON")
    parser.add_argument("-o", type=Path, metavar="FILE", help="write the SBOM here")
    parser.add_argument("--write", action="store_true", help="write the table of docs/dependencies.md")
    parser.add_argument("--check", action="store_true", help="whether that table is what the list says")
    options = parser.parse_args()
    if options.write or options.check:
        text = PAGE.read_text()
        begin, end = text.index(MARKS[0]) + len(MARKS[0]), text.index(MARKS[1])
        made = text[:begin] + table() + text[end:]
        if options.write:
            PAGE.write_text(made)
        elif made != text:
            print("docs/dependencies.md is old: run scripts/sbom.py --write")
            return 1
        return 0
    text = json.dumps(document(), indent=1) + "\n"
    if options.o:
        options.o.write_text(text)
    else:
        sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
