"""Networks whose heights, widths or lengths only the run knows: at each size, from none to the bound, the answer is ONNX Runtime's.

Sizes leave every kind of remainder: of a tile's rows, of vectors, of Winograd's tiles, of strides and pools. Beyond the bound a run has a
status. Programs are portable, by each instruction set that is here, by LLVM, of several threads, and watched by sanitizers. Layers that
no form for open sizes suits are those of which the compiler warns.
"""

import platform
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "lib"), str(HERE.parent / "models")]

import numpy as np
import onnxruntime

import tgc as T
from library import Library
from open_sizes import MODELS
from suite import Skip, Suite, expect

suite = Suite("open")
OPTIONS = suite.parse()
TGC = T.find_tgc(OPTIONS.build).resolve()
SCRATCH = T.scratch(Path(OPTIONS.build).resolve() / "test-scratch" / "open")
SIZES = (1, 2, 3, 4, 5, 7, 8, 12, 13, 16, 17, 23, 31, 32, 33)
BOUND = 37
FLAGS = {"cpuinfo": Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""}
CPUS = {"avx2": "avx2", "avx512": "avx512f"}


class Reference:
    """ONNX Runtime's answers; made once for each model."""

    def __init__(self, name):
        make, _, square = MODELS[name]
        self.name, self.symbols = name, ("H", "W") if square else ("W",)
        self.net = make()
        self.folder = T.scratch(SCRATCH / name)
        (self.folder / "net.tg").write_text(self.net.text(BOUND))
        T.must(T.run([TGC, self.folder / "net.tg", "-o", self.folder / "net.onnx"], timeout=120))
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = 1, 3
        self.session = onnxruntime.InferenceSession(str(self.folder / "net.onnx"), options, providers=["CPUExecutionProvider"])
        self.kept = {}

    def input(self, sizes):
        shape = [1, *(sizes[d] if isinstance(d, str) else d for d in self.net.shape)]
        return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)

    def expected(self, sizes):
        key = tuple(sizes.values())
        if key not in self.kept:
            self.kept[key] = self.session.run(None, {"x": self.input(sizes)})[0]
        return self.kept[key]

    def least(self):
        """Below it the model has a pool or a convolution without outputs, of which ONNX Runtime makes an error."""
        return self.net.least

    def at(self):
        """Sizes of the runs: squares, and sides that differ."""
        sizes = [s for s in SIZES if s >= self.least()] + [BOUND]
        each = [dict.fromkeys(self.symbols, s) for s in sizes]
        pairs = ((BOUND, self.least()), (self.least(), BOUND), (19, 30))
        return each + [dict(zip(self.symbols, p)) for p in pairs if len(self.symbols) > 1]


def check(of, run, sizes, tolerance=2e-4):
    want, got = of.expected(sizes), run(of.input(sizes), sizes)
    expect(got.shape == want.shape, f"{sizes}: shape {got.shape}, not {want.shape}")
    worst = float(np.abs(got - want).max(initial=0) / max(np.abs(want).max(initial=0), 1e-3))
    expect(worst <= tolerance, f"{sizes}: off by {worst:.2g} of the largest")


def load(of, way, compiler, options):
    folder = T.scratch(of.folder / way)
    T.must(T.run([TGC, of.folder / "net.tg", "-o", folder / "net.c", *options], timeout=300))
    T.must(T.run(["gcc", *compiler, "-shared", "-fPIC", "net.c", "-o", "net.so", "-lm", "-lpthread"], cwd=folder, timeout=600))
    return Library(folder / "net.so")


def by_library(of, way, *options, compiler=("-O1",)):
    cpu = next((c for c in CPUS if f"--cpu={c}" in options), None)
    if cpu and (platform.machine() != "x86_64" or CPUS[cpu] not in FLAGS["cpuinfo"]):
        raise Skip(f"this processor has no {cpu}")
    net = load(of, way, compiler, options)

    def run(x, sizes):
        return net.run({"x": x}, sizes)["y"]
    for sizes in of.at():
        check(of, run, sizes)
    none = dict.fromkeys(of.symbols, 0)
    net.give({"x": np.zeros([1, *of.net.shape[:0], 1], np.float32)}, none)
    expect(net.step() == 0, "a run with no elements fails")
    for symbol in of.symbols:
        beyond = {**dict.fromkeys(of.symbols, BOUND), symbol: BOUND + 1}
        net.give({"x": np.zeros(1, np.float32)}, beyond)
        expect(net.step() != 0, f"{symbol} beyond its bound has no status")


def by_llvm(of):
    T.need_llvm(TGC)
    for sizes in of.at()[::3]:
        np.save(of.folder / "x.npy", of.input(sizes))
        T.must(T.run([TGC, "run", "net.tg", "--target=llvm", "-i", "x=x.npy", "--out-dir", "out"], cwd=of.folder, timeout=300))
        check(of, lambda x, s: np.load(of.folder / "out" / "y.npy"), sizes)


def by_sanitizers(of):
    folder = T.scratch(of.folder / "watched")
    T.must(T.run([TGC, of.folder / "net.tg", "-o", folder / "net.c"], timeout=300))
    T.build(folder / "net.c", folder / "net", "gcc", T.SANITIZE)
    program = T.Program(folder / "net", ["y"])
    for sizes in of.at()[::4]:
        check(of, lambda x, s: program.run([x])["y"], sizes)


QUICK = ("convolutions", "tcn", "superresolution")
WAYS = {"portable": ("--cpu=generic",), "avx2": ("--cpu=avx2",), "avx512": ("--cpu=avx512",), "threads": ("--threads=3",),
        "no Winograd": ("--error=0",)}


def all_ways(name):
    of = Reference(name)
    for way, options in WAYS.items():
        suite.add(f"{name}: {way}", by_library, of, way, *options, slow=name not in QUICK or way in ("threads", "no Winograd"))
    suite.add(f"{name}: LLVM", by_llvm, of, slow=name not in QUICK)
    suite.add(f"{name}: sanitizers", by_sanitizers, of, slow=name != "superresolution")


for model in MODELS:
    all_ways(model)
suite.main()
