"""The demo's program against the package it stands in for.

magika's own Python, run from its unpacked archive with ONNX Runtime, and our C program look
at the same files: kinds of every sort, sizes around every limit of the pre-processing. And what
a new user's first minute needs: the demo without a network, a build without the tests' packages.
"""

import configparser
import json
import os
import re
import shlex
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE.parent / "lib"), str(ROOT / "models" / "demo")]

import numpy as np

import packages
import prepare
import tgc as T
from suite import Skip, Suite, expect

suite = Suite("demo")
OPTIONS = suite.parse()
BUILD = Path(OPTIONS.build).resolve()
SCRATCH = BUILD / "test-scratch" / "demo"


def samples(folder):
    """Files of this repository and made ones; names sort as they are compared."""
    random = np.random.default_rng(11)
    made = {
        "empty": b"", "seven": b"1234567", "eight": b"12345678", "few spaces": b"   \n\t  abc \n",
        "blank": b" \n" * 3000, "bad utf-8": b"\xff\xfe\x80", "cut utf-8": "ü".encode()[:1],
        "overlong": b"\xc0\x80", "surrogate": b"\xed\xa0\x80", "noise": random.bytes(9000),
        "png": prepare.png(), "json": b'{"name": "x", "values": [1, 2, 3, 4.5], "ok": true}\n' * 30,
        "html": b"<!doctype html><html><head><title>t</title></head><body><p>a</p></body></html>",
        "4095": b"int main(void) { return 0; }\n" * 141 + b"/*   */", "4096": b"a = 1\n" * 682 + b"b = 2",
        "spaces round 4096": b" " * 4096 + b"#!/bin/sh\necho hello\n" + b"\n" * 4096,
        "csv": b"a,b,c\n" + b"1,2,3\n" * 200, "sql": b"SELECT a, b FROM t WHERE c = 1;\n" * 9,
        "pdf": b"%PDF-1.4\n1 0 obj\n<< /Type /Catalog /Pages 2 0 R >>\nendobj\n" * 20,
        "xml": b'<?xml version="1.0"?>\n<a><b c="d">e</b></a>\n' * 9,
        "vertical tab": b"\x0b\x0c\x1c\x1d hello world, this is text\x85\n" * 5,
    }
    paths = []
    for name, content in made.items():
        paths.append(folder / name)
        paths[-1].write_bytes(content)
    kinds = ("*.md", "*.py", "*.c", "*.h", "*.sh", "meson.build", "Makefile", "LICENSE", "*.def")
    for kind in kinds:
        paths += T.source_files(kind)[:4]
    return paths + [Path(sys.executable).resolve()]


@suite.case("magika in C says what magika in Python says")
def same_answers():
    try:
        package = packages.fetch("magika")
    except packages.Unreachable as reason:
        raise Skip(str(reason)) from None
    folder = T.scratch(SCRATCH)
    tgc = T.find_tgc(OPTIONS.build)
    T.emit(tgc, package / "magika/models/standard_v3_3/model.onnx", folder / "magika.c",
           "--dim", "unk__214=1")
    (folder / "types.h").write_text(prepare.types_header(package))
    T.must(T.run(["gcc", *T.WARNINGS, "-O2", f"-I{folder}", ROOT / "models/demo/filetype.c",
                  folder / "magika.c", "-o", folder / "filetype", "-lm"]))
    paths = samples(T.scratch(folder / "samples"))
    lines = T.must(T.run([folder / "filetype", *paths])).out.decode().splitlines()[1:]
    sys.path.insert(0, str(package))
    import magika
    judge = magika.Magika()
    expect(len(lines) == len(paths), f"{len(lines)} lines for {len(paths)} files")
    wrong = []
    for path, line in zip(paths, lines):
        answer = judge.identify_path(path)
        label, score = line[len(str(path)):].split()[:2]
        if label != answer.output.label or abs(float(score[:-1]) / 100 - answer.score) > 1.5e-3:
            wrong.append(f"{path}: {label} {score}, expected {answer.output.label} {answer.score:.4f}")
    expect(not wrong, "\n".join(wrong))


@suite.case("the demo falls back to a model of its own")
def without_pypi():
    done = T.must(T.run(["sh", "models/demo/demo.sh", OPTIONS.build], cwd=ROOT, timeout=300,
                        env={"TGC_DEMO_OFFLINE": "1"}))
    text = done.out.decode()
    expect("cannot be reached" in text, "it does not say that PyPI cannot be reached")
    expect("%" in text, f"no answer that a person can read:\n{text}")


@suite.case("tgc needs protobuf-c to be built, and none of what its tests need")
def few_dependencies():
    folder = T.scratch(SCRATCH / "few")
    search = T.run(["pkg-config", "--variable=pcfiledir", "libprotobuf-c"])
    source = Path(T.must(search).out.decode().strip()) / "libprotobuf-c.pc"
    (folder / source.name).write_text(source.read_text())
    alone = {"PKG_CONFIG_LIBDIR": str(folder)}
    build = folder / "build"
    T.must(T.run(["meson", "setup", build, ROOT], env=alone))
    names = [target["name"] for target in json.loads(
        T.must(T.run(["meson", "introspect", "--targets", build])).out)]
    expect("tgc" in names, f"no tgc among {names}")
    expect("test_uop" not in names, "the unit tests are built without cmocka")
    T.must(T.run(["meson", "configure", "-Dtests=enabled", build], env=alone))
    refused = T.run(["ninja", "-C", build, "build.ninja"], env=alone)
    expect(refused.status != 0 and b"cmocka" in refused.out, "tests=enabled goes on without cmocka")


def tools(folder, without=(), **replaced):
    """A PATH that has what this machine has, but for some."""
    T.scratch(folder)
    for place in os.environ["PATH"].split(":"):
        for tool in Path(place).glob("*") if Path(place).is_dir() else ():
            link = folder / tool.name
            if tool.name not in without and not link.is_symlink():
                link.symlink_to(tool)
    for name, script in replaced.items():
        (folder / name).unlink(missing_ok=True)
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    return {"PATH": str(folder)}


@suite.case("setup goes by what works: without dpkg, without apt-get, without root")
def setup_elsewhere():
    setup = ["sh", str(ROOT / "scripts/setup.sh"), "build"]
    debian = ("dpkg-query", "apt-get", "apt-cache", "sudo")
    done = T.must(T.run(setup, env=tools(SCRATCH / "no-dpkg", debian)))
    expect(not done.out and not done.err, f"something is said where nothing is missing: {done.out}")
    done = T.must(T.run(setup, env=tools(SCRATCH / "no-apt", (*debian, "protoc-c"))), 1)
    text = done.out.decode() + done.err
    for words in ("no apt-get", "protobuf-c-compiler", "cannot be built"):
        expect(words in text, f"'{words}' is not said: {text}")
    done = T.must(T.run(setup, env=tools(SCRATCH / "no-root", ("sudo", "protoc-c"), id="echo 1000",
                                         **{"apt-get": "exit 1"})), 1)
    text = done.out.decode() + done.err
    for words in ("by root: apt-get install protobuf-c-compiler", "cannot be built"):
        expect(words in text, f"'{words}' is not said: {text}")


def tree_that_is_built(folder):
    """This tree again, and in it a build folder that make has just set up, with the objects of the one under test, so that little
    is left to compile. What they were compiled by is taken from there: where that differs, all is compiled."""
    for place in ROOT.iterdir():
        if place != BUILD and place.name[0] != ".":
            (folder / place.name).symlink_to(place)
    given = configparser.ConfigParser(interpolation=None)
    given.read(BUILD / "meson-private/cmd_line.txt")
    options = [f"-D{name}={value}" for name, value in given["options"].items() if name not in ("tests", "prefix")]
    compiler = re.search(r"^rule c_COMPILER\n command = (.*?) \$ARGS", (BUILD / "build.ninja").read_text(), re.M)[1]
    make = ["make", "-C", folder, "BUILD=build"]
    T.must(T.run([*make, "build/build.ninja", f"MESON_OPTIONS=-Dtests=disabled {shlex.join(options)}"], env={"CC": compiler}))
    shutil.copytree(BUILD, folder / "build", symlinks=True, dirs_exist_ok=True,
                    ignore=shutil.ignore_patterns("meson-*", "build.ninja", "compile_commands.json", "libtgc.so*", "test-*", "tests", "sanitized"))
    return make


@suite.case("make install goes to the PREFIX that it is given, after a build for another one")
def install_elsewhere():
    folder = SCRATCH / "install"
    make = tree_that_is_built(T.scratch(folder / "tree"))
    T.must(T.run(make, timeout=600))
    T.must(T.run([*make, "install", f"DESTDIR={folder / 'a'}"], timeout=600))
    expect((folder / "a/usr/local/bin/tgc").exists(), "it is not in /usr/local by default")
    T.must(T.run([*make, "install", "PREFIX=/opt/a b", f"DESTDIR={folder / 'b'}"], timeout=600))
    expect((folder / "b/opt/a b/bin/tgc").exists(), "it is not where PREFIX says")
    expect(not (folder / "b/usr").exists(), "something went to the former prefix")


suite.main()
