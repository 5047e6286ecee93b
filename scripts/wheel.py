"""Makes dist/*.whl: the program tgc, the library libtgc and the Python module, for Linux on x86-64 and aarch64.

    python scripts/wheel.py [--targets all|x86_64-glibc,...] [--folder .cache/wheel] [--jobs 2]

Without --targets for this machine and glibc alone.

Each is cross-compiled by PyPI's ziglang, for glibc 2.17 or musl, with protobuf-c's runtime (one
file of Debian's source package) inside, so that libc is all that both need. What is not
installed here (that source, musl, an aarch64 libc) comes from Debian's archive by apt-get, without
root, into the folder. A wheel is written only when its program has run: natively or by qemu-user,
with the libc that its tag names, and has written the same C as its siblings. The same sources give
the same bytes.
"""

import argparse
import base64
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# tgc on PyPI is another project's; the module and the program keep that name.
NAME, FILE_NAME = "tgc-compiler", "tgc_compiler"
ZIGLANG = "ziglang==0.17.1"
DATE = (2020, 1, 1, 0, 0, 0)
OLDEST_GLIBC = (2, 17)
SAMPLE = "models/dot_product.tg"
INTERPRETERS = {"x86_64-musl": "lib/ld-musl-x86_64.so.1", "aarch64-musl": "lib/ld-musl-aarch64.so.1"}


@dataclass
class Target:
    machine: str            # as uname -m and the wheel's tag say it
    libc: str
    debian: str             # Debian's name of the machine

    @property
    def name(self):
        return f"{self.machine}-{self.libc}"

    @property
    def triple(self):
        return f"{self.machine}-linux-" + ("gnu.2.17" if self.libc == "glibc" else "musl")

    @property
    def tag(self):
        old = {"glibc": "manylinux2014", "musl": "musllinux_1_1"}[self.libc]
        return f"py3-none-{old}_{self.machine}"

    @property
    def is_native(self):
        return os.uname().machine == self.machine

    @property
    def packages(self):
        """Whose libraries the program is run with."""
        if self.libc == "musl":
            return [f"musl:{self.debian}"]
        return [] if self.is_native else [f"libc6:{self.debian}"]


TARGETS = [Target(machine, libc, debian) for machine, debian in [("x86_64", "amd64"),
                                                                ("aarch64", "arm64")]
           for libc in ("glibc", "musl")]


def say(text):
    print(f"wheel: {text}", flush=True)


def must(words, **more):
    done = subprocess.run([str(w) for w in words], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, **more)
    if done.returncode:
        raise SystemExit(f"wheel: {' '.join(map(str, words))}\n{done.stdout[-3000:]}")
    return done.stdout


# ------------------------------------------------------------------------------- what it takes


class Archive:
    """Debian's archive as this machine's apt knows it, with lists of our own."""

    def __init__(self, folder):
        self.folder = folder / "apt"
        self.options = [f"-oDir::Etc::sourcelist={self.folder}/sources.list",
                        "-oDir::Etc::sourceparts=/dev/null",
                        f"-oDir::State::lists={self.folder}/lists",
                        f"-oDir::Cache={self.folder}/cache",
                        "-oAPT::Architectures::=amd64", "-oAPT::Architectures::=arm64",
                        "-oAPT::Sandbox::User=root"]
        self.is_ready = False

    def update(self):
        if self.is_ready:
            return
        for below in ("lists/partial", "cache/archives/partial"):
            (self.folder / below).mkdir(parents=True, exist_ok=True)
        lines = sorted(set(must(["apt-get", "indextargets", "--format",
                                 "$(REPO_URI) $(RELEASE) $(COMPONENT)",
                                 "Created-By: Packages", "Origin: Debian"]).split("\n")) - {""})
        if not lines:
            raise SystemExit("wheel: apt-get knows no archive of Debian's, where protobuf-c's "
                             "source, musl and libc for aarch64 are from")
        (self.folder / "sources.list").write_text(
            "".join(f"deb [arch=amd64,arm64] {line}\ndeb-src {line}\n" for line in lines))
        say("reading the lists of Debian's archive")
        must(["apt-get", *self.options, "-q", "update"])
        self.is_ready = True

    def source(self, name):
        """The folder of a source package, unpacked."""
        into = self.folder / name
        if not into.exists():
            self.update()
            must(["apt-get", *self.options, "-q", "--download-only", "source", name],
                 cwd=self.folder)
            part = self.folder / f"{name}.part"
            shutil.rmtree(part, ignore_errors=True)
            with tarfile.open(next(self.folder.glob(f"{name}_*.orig.tar.*"))) as tar:
                tar.extractall(part)
            part.rename(into)
        return next(into.iterdir())

    def libraries(self, package):
        """The folder of an installed tree that holds the package."""
        into = self.folder / package.replace(":", "-")
        if not into.exists():
            self.update()
            name, debian = package.split(":")
            for old in self.folder.glob(f"{name}_*_{debian}.deb"):
                old.unlink()
            must(["apt-get", *self.options, "-q", "download", package], cwd=self.folder)
            part = self.folder / f"{into.name}.part"
            shutil.rmtree(part, ignore_errors=True)
            must(["dpkg-deb", "-x", next(self.folder.glob(f"{name}_*_{debian}.deb")), part])
            part.rename(into)
        return into


def zig(folder):
    """The words that start zig."""
    python = folder / "zig" / "bin" / "python"
    if not python.exists():
        say(f"installing {ZIGLANG} into {python.parents[1]}")
        venv.create(folder / "zig", with_pip=True)
    must([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", ZIGLANG])
    return [str(python), "-m", "ziglang"]


# ------------------------------------------------------------------------------------ building

COMPILER = """#!/bin/sh
# zig cc as Meson takes it: a linker whose name it knows, and no glibc's version when only
# preprocessing, which zig hands on to clang.
triple={triple}
for word; do
    case $word in
    -Wl,--version) echo 'LLD 17.0.0 (compatible with GNU linkers)'; exit ;;
    -E) triple={plain} ;;
    esac
done
exec {zig} cc -target "$triple" "$@"
"""

CROSS = """[binaries]
c = '{folder}/cc'
ar = {ar}
pkgconfig = 'pkg-config'
{wrapper}
[host_machine]
system = 'linux'
cpu_family = '{machine}'
cpu = '{machine}'
endian = 'little'
[properties]
pkg_config_libdir = '{folder}'
needs_exe_wrapper = {wrapped}
"""

PACKAGE = """Name: libprotobuf-c
Description: protobuf-c's runtime
Version: 1
Libs: -L{folder} -lprotobuf-c
Cflags: -I{folder}/include
"""


def build(target, folder, archive, zig_words, jobs):
    """The program and the library, stripped."""
    here = folder / target.name
    shutil.rmtree(here, ignore_errors=True)
    (here / "include" / "protobuf-c").mkdir(parents=True)
    (here / "cc").write_text(COMPILER.format(triple=target.triple, zig=" ".join(zig_words),
                                             plain=target.triple.split(".")[0]))
    (here / "cc").chmod(0o755)
    wrapper = runner(target, archive)
    (here / "cross.ini").write_text(CROSS.format(
        folder=here, machine=target.machine, ar=[*zig_words, "ar"],
        wrapper=f"exe_wrapper = {wrapper}" if wrapper else "",
        wrapped="true" if wrapper else "false"))
    (here / "libprotobuf-c.pc").write_text(PACKAGE.format(folder=here))
    source = archive.source("protobuf-c")
    shutil.copy(source / "protobuf-c" / "protobuf-c.h", here / "include" / "protobuf-c")
    # zig's linker has no --exclude-libs: what is in the library is hidden as it is compiled
    hidden = "-fvisibility=hidden"
    must([here / "cc", "-O2", "-fPIC", hidden, "-DNDEBUG", "-I", source, "-c",
          source / "protobuf-c" / "protobuf-c.c", "-o", here / "protobuf-c.o"])
    must([*zig_words, "ar", "rcsD", here / "libprotobuf-c.a", here / "protobuf-c.o"])
    flags = [f"-ffile-prefix-map={ROOT}=.", "-g0", hidden]
    # musl's dynamic loader, since tgc run opens shared objects
    links = ["-s"] + (["-dynamic"] if target.libc == "musl" else [])
    must(["meson", "setup", here / "build", ROOT, "--cross-file", here / "cross.ini",
          "-Dtests=disabled", "-Dbuildtype=release", "-Db_ndebug=true",
          f"-Dc_args={flags}", f"-Dc_link_args={links}"])
    library = f"lib/libtgc.so.{project_version()}"
    must(["ninja", "-C", here / "build", "-j", jobs, "cli/tgc", library])
    return here / "build" / "cli" / "tgc", here / "build" / library


# -------------------------------------------------------------------------------------- trying


def runner(target, archive):
    """The words that run its programs with the libc of its tag."""
    roots = [archive.libraries(package) for package in target.packages]
    emulator = [] if target.is_native else [f"qemu-{target.machine}"]
    if target.libc == "musl":
        loader = roots[0] / INTERPRETERS[target.name]
        if not loader.exists():     # on a merged /usr it is a link to an absolute path
            loader = next(roots[0].rglob("libc.so"))
        return [*emulator, str(loader)]
    return [*emulator, "-L", str(roots[0])] if emulator else []


def try_program(target, program, archive, folder):
    """What it writes for the sample; raises if it does not run or needs more than its libc."""
    words = [*runner(target, archive), str(program)]
    version = must([*words, "--version"]).splitlines()[0]
    if version != f"tgc {project_version()}":
        raise SystemExit(f"wheel: {program} says {version!r}")
    check_needs(target, program)
    out = folder / target.name / "sample.c"
    must([*words, ROOT / SAMPLE, "-o", out])
    say(f"{target.name}: runs ({' '.join(Path(w).name for w in words)})")
    return out.read_bytes()


def check_needs(target, program):
    """Libraries and glibc's versions, as the tags promise them; of a program or a library."""
    dynamic = must(["readelf", "--wide", "--dynamic", program])
    needed = set(re.findall(r"NEEDED.*\[(.*)\]", dynamic))
    allowed = {"glibc": r"lib(c|m|dl|pthread)\.so\.\d|ld-linux-\S+", "musl": r"libc\.so"}
    if any(not re.fullmatch(allowed[target.libc], name) for name in needed):
        raise SystemExit(f"wheel: {program} needs {', '.join(sorted(needed))}")
    versions = re.findall(r"GLIBC_(\d+)\.(\d+)", must(["readelf", "--wide", "--version-info",
                                                      program]))
    newest = max([tuple(map(int, v)) for v in versions], default=(0, 0))
    if newest > OLDEST_GLIBC:
        raise SystemExit(f"wheel: {program} needs glibc {newest[0]}.{newest[1]}")


def check_library(target, library):
    """What the program is held to, and that only tgc.h's functions can be seen."""
    check_needs(target, library)
    lines = must(["readelf", "--wide", "--dyn-syms", library]).splitlines()
    rows = [line.split() for line in lines if re.match(r"\s*\d+:", line)]
    seen = {row[7] for row in rows if len(row) > 7 and row[4] in ("GLOBAL", "WEAK") and row[6] != "UND"}
    others = sorted(name for name in seen if not name.startswith("tgc_"))
    if not seen or others:
        raise SystemExit(f"wheel: {library} exports {', '.join(others[:9]) or 'nothing'}")


# --------------------------------------------------------------------------------------- wheel


def project_version():
    return re.search(r"version: '([^']+)'", (ROOT / "meson.build").read_text()).group(1)


def metadata(version):
    return f"""Metadata-Version: 2.1
Name: {NAME}
Version: {version}
Summary: A compiler from ONNX neural networks to self-contained C
License: MIT
License-File: LICENSE
Requires-Python: >=3.8
Requires-Dist: numpy
Classifier: License :: OSI Approved :: MIT License
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: C
Classifier: Programming Language :: Python :: 3
Classifier: Typing :: Typed
Description-Content-Type: text/markdown

{(ROOT / "docs" / "guide" / "python.md").read_text()}"""


def write_wheel(target, program, library, runtime_licence, dist):
    """runtime_licence: protobuf-c's, where its runtime is in the program and in the library; else None."""
    version = project_version()
    info = f"{FILE_NAME}-{version}.dist-info"
    files = {f"tgc/{path.name}": path.read_bytes()
             for path in sorted((ROOT / "python" / "tgc").iterdir()) if path.is_file()}
    files["tgc/libtgc.so.0"] = library.read_bytes()
    files[f"{FILE_NAME}-{version}.data/scripts/tgc"] = program.read_bytes()
    files[f"{info}/METADATA"] = metadata(version).encode()
    files[f"{info}/WHEEL"] = (f"Wheel-Version: 1.0\nGenerator: tgc scripts/wheel.py\n"
                              f"Root-Is-Purelib: false\nTag: {target.tag}\n").encode()
    files[f"{info}/LICENSE"] = (ROOT / "LICENSE").read_bytes()
    if runtime_licence:
        files[f"{info}/LICENSE.protobuf-c"] = runtime_licence
    record = "".join(f"{name},sha256={digest(data)},{len(data)}\n"
                     for name, data in files.items()) + f"{info}/RECORD,,\n"
    files[f"{info}/RECORD"] = record.encode()
    dist.mkdir(parents=True, exist_ok=True)
    path = dist / f"{FILE_NAME}-{version}-{target.tag}.whl"
    part = path.with_suffix(".part")
    with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as wheel:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, DATE)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3
            mode = 0o100755 if "/scripts/" in name else 0o100644
            entry.external_attr = mode << 16
            wheel.writestr(entry, data)
    part.rename(path)
    return path


def digest(data):
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--targets", default=f"{os.uname().machine}-glibc")
    parser.add_argument("--folder", default=str(ROOT / ".cache" / "wheel"))
    parser.add_argument("--dist", default=str(ROOT / "dist"))
    parser.add_argument("--jobs", default="2")
    options = parser.parse_args()
    names = [t.name for t in TARGETS] if options.targets == "all" else options.targets.split(",")
    unknown = set(names) - {t.name for t in TARGETS}
    if unknown:
        parser.error(f"no target {', '.join(sorted(unknown))}; there are "
                     f"{', '.join(t.name for t in TARGETS)}")
    folder = Path(options.folder).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    archive, words = Archive(folder), zig(folder)
    made, samples = [], {}
    for target in TARGETS:
        if target.name in names:
            say(f"{target.name}: building")
            program, library = build(target, folder, archive, words, options.jobs)
            samples[target.name] = try_program(target, program, archive, folder)
            check_library(target, library)
            made.append((target, program, library))
    if len(set(samples.values())) != 1:
        raise SystemExit("wheel: the programs write different C: " + ", ".join(samples))
    licence = (archive.source("protobuf-c") / "LICENSE").read_bytes()
    for target, program, library in made:
        path = write_wheel(target, program, library, licence, Path(options.dist).resolve())
        say(f"{path}, {path.stat().st_size >> 10} KB")


if __name__ == "__main__":
    main()
