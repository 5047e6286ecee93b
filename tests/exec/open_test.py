"""Networks whose heights, widths or lengths only the run knows: at each size, from none to the bound, the answer is ONNX Runtime's.

Sizes leave every kind of remainder: of a tile's rows, of vectors, of Winograd's tiles, of strides and pools. Beyond the bound a run has a
status. Programs are portable, by each instruction set that is here, by LLVM, of several threads, and watched by sanitizers. Layers that
no form for open sizes suits are those of which the compiler warns. Layers of sizes between near bounds, and of multiples of a symbol, are
drawn at random: of such loops some parts have a fixed size.
"""

import platform
import random
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


class Layer:
    """A convolution of its own input: of rows that are open or not, and columns W, or c*W after a reshape, with lo <= W <= hi."""

    def __init__(self, number, channels, results, taps, padding, bounds, times=1, rows=None):
        self.name, self.symbol, self.rowsymbol = f"x{number}", f"W{number}", f"H{number}"
        self.channels, self.results, self.taps, self.padding = channels, results, taps, padding
        self.bounds, self.times, self.rows = bounds, times, rows

    @staticmethod
    def drawn(number, draw):
        taps, padding = draw.choice(((1, 0), (3, 1), (5, 2), (6, 3), (4, 0)))
        times = draw.choice((1, 1, 1, 2, 3, 8, 16, 32))
        hi = draw.randint(6, 60 if times == 1 else 8)
        lo = max(4, hi - draw.choice((0, 1, 1, 2, 3, 7, 8, 15)))
        rows = draw.choice((None, None, (4, 4), (4, 5), (6, 9), (15, 17)))
        return Layer(number, draw.choice((1, 3, 8)), draw.choice((1, 4, 8, 24)), taps, padding, (lo, hi), times, rows)

    def text(self):
        k, rank = self.name[1:], 1 + bool(self.rows)
        rows = [f"{self.rows[0]}<={self.rowsymbol}<={self.rows[1]}"] if self.rows else []
        dims = [*rows, f"{self.bounds[0]}<={self.symbol}<={self.bounds[1]}", *([str(self.times)] if self.times > 1 else [])]
        shape = [*([self.rowsymbol] if self.rows else []), f"{self.times}*{self.symbol}"]
        weight = ", ".join(map(str, (self.results, self.channels, *[self.taps] * rank)))
        head = f"input %{self.name} : f32[1, {self.channels}, {', '.join(dims)}]"
        return head, [f"weight %w{k} : f32[{weight}] = kaiming_uniform(seed={int(k) + 1})",
                      f"%r{k} = reshape(%{self.name}) {{shape=[1, {self.channels}, {', '.join(shape)}]}}",
                      f"%v{k} = conv(%r{k}, %w{k}) {{padding={[self.padding] * 2 * rank}}}", f"output %v{k} as \"y{k}\""]

    def at(self, turn):
        """Sizes of a run: the bounds, or one between."""
        def pick(bounds):
            return (*bounds, sum(bounds) // 2)[turn]

        return {self.symbol: pick(self.bounds), **({self.rowsymbol: pick(self.rows)} if self.rows else {})}

    def input(self, sizes):
        shape = [1, self.channels, *([sizes[self.rowsymbol]] if self.rows else []), sizes[self.symbol], *([self.times] if self.times > 1 else [])]
        return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def layers_of(seed):
    """Columns of which a part has a fixed size: whole vectors; one vector of 8*W + 1; none of these."""
    draw = random.Random(seed)
    known = [(3, 4, 5, 2, (24, 25)), (3, 4, 6, 3, (2, 20), 8), (8, 8, 3, 1, (50, 52)), (3, 24, 6, 3, (2, 6), 16), (1, 4, 3, 1, (17, 17)),
             (3, 4, 3, 1, (33, 40), 1, (5, 6))]
    first = known if seed == 0 else []
    return [Layer(k, *first[k]) if k < len(first) else Layer.drawn(k, draw) for k in range(10)]


def near_bounds(seed, way, *options):
    """Ten layers are one program."""
    layers = layers_of(seed)
    parts = [layer.text() for layer in layers]
    lines = [*(head for head, _ in parts), *(line for _, lines in parts for line in lines[:-1]), *(lines[-1] for _, lines in parts)]

    def run_at(turn):
        sizes = {symbol: size for layer in layers for symbol, size in layer.at(turn).items()}
        return sizes, {layer.name: layer.input(sizes) for layer in layers}
    compare(f"near {seed} {way}", lines, map(run_at, range(3)), options)


def many_terms(*options):
    """Offsets with a product of symbols for each axis have more terms than the normal form of a sum."""
    lines = ["input %x : f32[2, 1, H<=5, 3, 50<=W<=53, 16]", "%r = reshape(%x) {shape=[2, 1, 3*H, 16*W]}",
             "weight %w : f32[8, 1, 3, 2] = kaiming_uniform(seed=1)", "%a = conv(%r, %w) {padding=[3, 1, 1, 1]}", "%p = max_pool(%a) {kernel=2}",
             "weight %v : f32[2, 4, 3, 3] = kaiming_uniform(seed=2)", "%b = conv(%p, %v) {padding=[2, 2, 3, 3], groups=2, dilation=2}",
             'output %b as "y"']
    sizes = ({"H": 1, "W": 50}, {"H": 4, "W": 53})
    draw = np.random.default_rng(1)
    runs = [(s, {"x": draw.standard_normal((2, 1, s["H"], 3, s["W"], 16)).astype(np.float32)}) for s in sizes]
    compare("many terms", lines, runs, options)


def below_windows():
    """Of W < 4 the second window has a result of negative size: its loops have no iterations, cut or not, in each band. What the compiler itself
    verifies of scratch is for all W."""
    lines = ["input %x : f32[2, 2, W<=34]", "weight %w : f32[4, 1, 6] = kaiming_uniform(seed=1)",
             "%a = conv(%x, %w) {padding=[3, 3], groups=2, stride=2}", "weight %v : f32[4, 2, 3] = kaiming_uniform(seed=2)",
             "%b = conv(%a, %v) {padding=[3, 0], groups=2, dilation=3}", 'output %b as "y"']
    runs = [({"W": size}, {"x": np.random.default_rng(size).standard_normal((2, 2, size)).astype(np.float32)}) for size in (6, 20, 34)]
    compare("below windows", lines, runs, ("--cpu=avx2", "--cache=0"))
    lines = ["input %x : f32[1, 40, W<=12, 4]", "%r = reshape(%x) {shape=[1, 40, 4*W]}",
             "weight %w : f32[64, 40, 5] = kaiming_uniform(seed=1)", "%a = conv(%r, %w) {padding=[4, 0], dilation=3}",
             "%b = softmax(%a) {axis=-1}", 'output %b as "y"']
    runs = [({"W": size}, {"x": np.random.default_rng(size).standard_normal((1, 40, size, 4)).astype(np.float32)}) for size in (3, 7, 12)]
    compare("softmax below windows", lines, runs, ("--cpu=avx2",))


def compare(name, lines, runs, options):
    """runs: sizes and inputs, at which the program's outputs are those of ONNX Runtime."""
    folder = T.scratch(SCRATCH / name)
    (folder / "net.tg").write_text("\n".join(["tg 1", 'graph "net"', *lines]) + "\n")
    T.must(T.run([TGC, folder / "net.tg", "-o", folder / "net.onnx"], timeout=120))
    session = onnxruntime.InferenceSession(str(folder / "net.onnx"), providers=["CPUExecutionProvider"])
    T.must(T.run([TGC, folder / "net.tg", "-o", folder / "net.c", *options], timeout=300))
    cpu = next((c for c in CPUS if f"--cpu={c}" in options), None)
    if cpu and (platform.machine() != "x86_64" or CPUS[cpu] not in FLAGS["cpuinfo"]):
        raise Skip(f"this processor has no {cpu}: the layers are compiled, not run")
    T.must(T.run(["gcc", "-O1", "-shared", "-fPIC", "net.c", "-o", "net.so", "-lm", "-lpthread"], cwd=folder, timeout=600))
    net = Library(folder / "net.so")
    for sizes, inputs in runs:
        got, names = net.run(inputs, sizes), [output.name for output in session.get_outputs()]
        for output, want in zip(names, session.run(names, inputs)):
            have, what = got[output], f"{output} at {sizes}"
            expect(have.shape == want.shape, f"{what}: shape {have.shape}, not {want.shape}")
            worst = float(np.abs(have - want).max(initial=0) / max(np.abs(want).max(initial=0), 1e-3))
            expect(worst <= 2e-4, f"{what}: off by {worst:.2g} of the largest")


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
for number in range(12):
    for kind in ("portable", "avx2", "avx512", "threads"):
        suite.add(f"near bounds {number}: {kind}", near_bounds, number, kind, *WAYS[kind], slow=number > 0 or kind == "threads")
suite.add("many terms", many_terms, *WAYS["avx2"])
suite.add("below windows", below_windows)
@suite.case("what has no form for open sizes warns, with the dimension, and its advice helps")
def warning():
    folder = T.scratch(SCRATCH / "warning")
    def said(dtype, *options):
        (folder / "m.tg").write_text(f"""tg 1
input %x : {dtype}[1, 64, H<=64, W<=64]
weight %w : {dtype}[64, 64, 3, 3] = uniform(seed=1)
%y = conv(%x, %w) {{padding=1}}
output %y
""")
        return T.must(T.run([TGC, folder / "m.tg", "-o", folder / "m.c", "--cpu=avx2", "--vectors=never", *options])).err
    first = said("f64")
    expect('conv "y" is computed element by element' in first and "--dim H=N" in first, first)
    second = said("f64", "--dim", "H=64")
    expect("--dim W=N" in second and "'H'" not in second, second)
    expect("warning" not in said("f64", "--dim", "H=64", "--dim", "W=64"), "fixed sizes warn")
    expect("warning" not in said("f32"), "what is tiled warns")


suite.main()
