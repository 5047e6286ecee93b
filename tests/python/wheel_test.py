"""Wheels, as scripts/wheel.py makes them: installed into an empty environment with NumPy from the
tests' own, run, and made once more to the same bytes. Building takes minutes, so with --all; the
quick case packs the build's own tgc, which is no wheel to give away."""

import os
import re
import shutil
import sys
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT / "tests" / "lib"), str(ROOT / "scripts")]

import numpy as np
import onnx

import graphs as G
import tgc as T
import wheel as W
from suite import Skip, Suite, expect

suite = Suite("wheel", jobs=1)
OPTIONS = suite.parse()
SCRATCH = T.scratch(Path(OPTIONS.build).resolve() / "test-scratch" / "wheel")
TARGETS = {"x86_64-glibc": "manylinux2014_x86_64", "x86_64-musl": "musllinux_1_1_x86_64",
           "aarch64-glibc": "manylinux2014_aarch64", "aarch64-musl": "musllinux_1_1_aarch64"}
MADE = {}


def make(target, again=False):
    """The wheel of a target; made once, or once more in another folder."""
    if (target, again) not in MADE:
        for program in ("readelf", "qemu-aarch64", "dpkg-source", "apt-get"):
            if not shutil.which(program):
                raise Skip(f"no {program}: scripts/setup.sh wheel installs it")
        folder = ROOT / ".cache" / ("wheel-again" if again else "wheel")
        dist = SCRATCH / f"{target}{again}"
        T.must(T.run([sys.executable, ROOT / "scripts" / "wheel.py", "--targets", target,
                      "--folder", folder, "--dist", dist], timeout=1200))
        (MADE[target, again],) = dist.glob("*.whl")
    return MADE[target, again]


def contents(target):
    wheel = make(target)
    tag = f"py3-none-{TARGETS[target]}"
    expect(wheel.name == f"tgc_compiler-{version()}-{tag}.whl", wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        expect(archive.testzip() is None, "checksums")
        names = {entry.filename: entry for entry in archive.infolist()}
        program = names[f"tgc_compiler-{version()}.data/scripts/tgc"]
        expect(program.external_attr >> 16 == 0o100755, "the program may be run")
        expect({"tgc/__init__.py", "tgc/py.typed", "tgc/libtgc.so.0"} <= set(names), str(sorted(names)))
        info = f"tgc_compiler-{version()}.dist-info"
        expect(f"Tag: {tag}\n" in archive.read(f"{info}/WHEEL").decode(), "the tag")
        expect("License: MIT" in archive.read(f"{info}/METADATA").decode(), "the licence")
        lines = archive.read(f"{info}/RECORD").decode().splitlines()
        expect({line.split(",")[0] for line in lines} == set(names), "RECORD names every file")
        for file in (program, "tgc/libtgc.so.0"):
            expect(str(ROOT).encode() not in archive.read(file), f"a path of the machine is in {file}")


def version():
    return re.search(r"version: '([^']+)'", (ROOT / "meson.build").read_text()).group(1)


for name in TARGETS:
    suite.add(f"{name}: runs with its libc, and holds what a wheel holds", contents, name,
              slow=True)


@suite.case("packed: the same bytes each time, a program that may be run, installed by pip --target")
def packed():
    target = next(t for t in W.TARGETS if t.is_native and t.libc == "glibc")
    program = T.find_tgc(OPTIONS.build).resolve()
    library = next((Path(OPTIONS.build).resolve() / "lib").glob("libtgc.so.*.*"))
    wheel, again = [W.write_wheel(target, program, library, b"licence\n", SCRATCH / name)
                    for name in ("one", "two")]
    expect(wheel.read_bytes() == again.read_bytes(), "the second one differs")
    here = SCRATCH / "target"
    T.must(T.run([sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check",
                  "--no-index", "--no-deps", "--no-compile", "--target", here, wheel]))
    # neither TGC nor a tgc on PATH
    environment = {name: value for name, value in os.environ.items() if name != "TGC"}
    words = [f"{name}={value}" for name, value in {**environment, "PYTHONPATH": str(here),
                                                   "PATH": "/usr/bin:/bin"}.items()]
    done = T.must(T.run(["env", "-i", *words, sys.executable, "-c",
                         "import tgc; print(tgc.find_tgc())"]))
    expect(done.out.decode().strip() == str(here / "bin" / "tgc"), done.out.decode())
    done = T.run(["env", "-i", *words, sys.executable, "-m", "tgc", "info", SCRATCH / "none.onnx"])
    expect(done.status == 1 and done.err.startswith("tgc: error: ") or "none.onnx" in done.err, done.describe())
    said = T.must(T.run(["env", "-i", *words, sys.executable, "-m", "tgc", "--version"])).out.decode()
    expect(said.startswith(f"tgc {version()}\n"), said)
    T.need_llvm(program)
    check_in_process(["env", "-i", *words, "PATH=/nowhere", sys.executable], SCRATCH)


def check_in_process(python, folder):
    """A wheel's library runs a model by LLVM where there is no C compiler."""
    onnx.save(G.perceptron(), folder / "m.onnx")
    done = T.must(T.run([*python, "-c", "import numpy, tgc\nm = tgc.compile('m.onnx')\nprint(m(numpy.ones((1, 8), 'f')).tolist())"],
                        cwd=folder))
    want = G.perceptron_reference(G.perceptron(), np.ones((1, 8), np.float32))
    np.testing.assert_allclose(eval(done.out.decode()), want, rtol=1e-5, atol=1e-6)


def same_as_c(tgc, model, folder):
    """The wheel's tgc, which another compiler made than the build's, runs a model in process as the build's C does."""
    said = []
    folder.mkdir()
    for name, program, more in (("wheel", tgc, []), ("c", [T.find_tgc(OPTIONS.build).resolve()], ["--target=c"])):
        done = T.must(T.run([*program, "run", model, *more, "--out-dir", folder / name], cwd=SCRATCH, timeout=120))
        expect(("ran by LLVM" in done.out.decode()) == (name == "wheel"), done.out.decode())
        said.append({file.name: np.load(file) for file in (folder / name).glob("*.npy")})
    expect(said[0].keys() == said[1].keys() and said[0], f"outputs {said[0].keys()} and {said[1].keys()}")
    for output, want in said[1].items():
        np.testing.assert_allclose(said[0][output], want, rtol=1e-4, atol=1e-5, err_msg=f"{model.name}: {output}")


@suite.case("installed: tgc on PATH, a model compiled and run; uninstalled without a trace",
            slow=True)
def installed():
    if os.uname().machine != "x86_64":
        raise Skip("the machine is no x86-64")
    wheel = make("x86_64-glibc")
    home = SCRATCH / "venv"
    T.must(T.run([sys.executable, "-m", "venv", home]))
    pip = [home / "bin" / "pip", "--disable-pip-version-check"]
    T.must(T.run([*pip, "install", "-q", f"numpy=={np.__version__}", wheel], timeout=300))
    onnx.save(G.perceptron(), SCRATCH / "m.onnx")
    environment = {"PATH": f"{home}/bin:/usr/bin:/bin", "XDG_CACHE_HOME": str(SCRATCH / "cache"),
                   "HOME": str(SCRATCH)}
    clean = ["env", "-i", *(f"{name}={value}" for name, value in environment.items())]
    said = T.must(T.run([*clean, "tgc", "--version"])).out.decode()
    expect(said.startswith(f"tgc {version()}\n"), said)
    done = T.must(T.run([*clean, "python", "-c", "import numpy, tgc\n"
                         "m = tgc.compile('m.onnx')\n"
                         "print(tgc.find_tgc(), m(numpy.ones((1, 8), 'f')).tolist())"],
                        cwd=SCRATCH))
    path, _, row = done.out.decode().partition(" ")
    expect(path == str(home / "bin" / "tgc"), path)
    want = G.perceptron_reference(G.perceptron(), np.ones((1, 8), np.float32))
    np.testing.assert_allclose(eval(row), want, rtol=1e-5, atol=1e-6)
    T.must(T.run([*clean, "tgc", "run", "m.onnx"], cwd=SCRATCH))
    # for the same processor as a compiler of this machine finds it
    native = [T.must(T.run([tgc, "m.onnx", "-o", "-", "--cpu=native"], cwd=SCRATCH)).out
              for tgc in (home / "bin" / "tgc", T.find_tgc(OPTIONS.build).resolve())]
    expect(native[0] == native[1], "--cpu=native is another processor")
    if T.has_llvm(home / "bin" / "tgc"):
        check_in_process([*clean, f"PATH={home}/bin", "python"], SCRATCH)
        for model in sorted((ROOT / "models").glob("*.tg")):
            same_as_c([*clean, "tgc"], model, SCRATCH / model.stem)
    T.must(T.run([*pip, "uninstall", "-q", "-y", "tgc-compiler"]))
    left = [p for p in home.rglob("*tgc*")]
    expect(not left, f"left: {left}")


@suite.case("pip install . of a copy: the module, the program and the library of one build; python -m tgc", slow=True)
def from_source():
    home, source = SCRATCH / "from-source", SCRATCH / "source"
    T.must(T.run(["git", "-C", ROOT, "worktree", "list"]))          # a clone, whose files git knows
    names = T.must(T.run(["git", "-C", ROOT, "ls-files", "-z"])).out.decode().split("\0")[:-1]
    for name in names:
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, source / name)
    T.must(T.run([sys.executable, "-m", "venv", home]))
    pip = [home / "bin" / "pip", "--disable-pip-version-check"]
    T.must(T.run([*pip, "install", "-q", f"numpy=={np.__version__}", source], timeout=1200))
    clean = ["env", "-i", f"PATH={home}/bin:/usr/bin:/bin", f"HOME={SCRATCH}"]
    said = T.must(T.run([*clean, "python", "-m", "tgc", "--version"])).out.decode()
    expect(said.startswith(f"tgc {version()}\n"), said)
    where = T.must(T.run([*clean, "python", "-c", "import tgc; print(tgc.find_tgc(), tgc.__file__)"], cwd=SCRATCH)).out.decode()
    expect(all(path.startswith(str(home)) for path in where.split()), where)
    T.need_llvm(home / "bin" / "tgc")
    check_in_process([*clean, "python"], SCRATCH)


@suite.case("the same sources give the same bytes", slow=True)
def same_bytes():
    expect(make("x86_64-glibc").read_bytes() == make("x86_64-glibc", True).read_bytes(),
           "the second wheel differs")


suite.main()
