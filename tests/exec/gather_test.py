"""What is read at places that are data (passes/vector/gather.c): GridSample in all its modes, RoiAlign,
Gather, GatherElements and GatherND by indices that are inputs or computed. The answers for each
instruction set against ONNX Runtime's; whatever the grid holds, nothing outside of the tensor is
read; and that vectors do it.
"""

import ctypes
import functools
import mmap
import platform
import re
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "lib")]

import numpy as np
import onnx
import onnxruntime

import graphs as G
import tgc as T
from suite import Skip, Suite, expect

onnxruntime.set_default_logger_severity(3)
suite = Suite("gather")
OPTIONS = suite.parse()
TGC = T.find_tgc(OPTIONS.build).resolve()
SCRATCH = T.scratch(Path(OPTIONS.build).resolve() / "test-scratch" / "gather")
COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"
INT64 = onnx.TensorProto.INT64


def draw(*shape, seed=1):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def samples(shape, points, modes, paddings, made):
    """One GridSample for each mode, padding and alignment. made: the grid is no input, but the end
    of a network that has x's first channels."""
    rank = len(shape) - 2
    x = draw(*shape)
    grid = np.random.default_rng(2).uniform(-1.4, 1.4, (shape[0], *points, rank)).astype(np.float32)
    flat = grid.reshape(-1)
    flat[:8] = [-1, 1, 0, 1, -1, -1, 1, 1][:flat.size]
    feeds, weights = {"x": x}, []
    nodes, name = [], "grid"
    if made:
        weights = [G.weight(n, np.array([v])) for n, v in (("from", 0), ("to", rank), ("axis", 1))]
        nodes = [G.node("Slice", ["x", "from", "to", "axis"], ["part"]),
                 G.node("Transpose", ["part"], ["turned"], perm=[0, *range(2, 2 + rank), 1]),
                 G.node("Tanh", ["turned"], ["grid"])]
    else:
        feeds["grid"] = grid
    outputs = []
    for mode in modes:
        for padding in paddings:
            for align in (0, 1):
                outputs.append(f"{mode}_{padding}_{align}")
                nodes.append(G.node("GridSample", ["x", name], [outputs[-1]], mode=mode,
                                    padding_mode=padding, align_corners=align))
    model = G.model(nodes, [G.value(n, list(a.shape)) for n, a in feeds.items()],
                    [G.value(n, None) for n in outputs], weights, opset=20)
    return model, feeds, outputs


ALL = ("zeros", "border", "reflection")


def flat():
    return samples([2, 3, 9, 14], [7, 21], ("linear", "nearest", "cubic"), ALL, False)


def made():
    return samples([1, 5, 17, 17], [17, 17], ("linear", "nearest", "cubic"), ALL, True)


def volume():
    return samples([1, 3, 5, 6, 7], [3, 4, 9], ("linear", "nearest"), ALL, False)


def rows():
    """Channels enough for vectors: the input is copied, and points that are no whole block are left."""
    return samples([2, 20, 9, 14], [7, 21], ("linear", "cubic"), ALL, False)


def rows_made():
    return samples([1, 18, 17, 17], [17, 17], ("linear",), ALL, True)


def rows_volume():
    return samples([1, 16, 5, 6, 7], [3, 4, 9], ("linear", "nearest"), ALL, False)


def rows_between():
    """Values that the model computes, for layers that want channels innermost, and beside work
    whose operands lie in the other order; regions; a resize, whose places are tables."""
    x, roi = draw(1, 24, 13, 15), np.array([[0, 0, 9, 9], [2.3, 1.1, 12.5, 11.2]], np.float32)
    grid = np.random.default_rng(2).uniform(-1.3, 1.3, (1, 12, 11, 2)).astype(np.float32)
    feeds = {"x": x, "grid": grid, "beside": draw(1, 24, 12, 11, seed=4), "rois": roi}
    weights = [G.weight("w", draw(24, 24, 1, 1, seed=5) / 5), G.weight("v", draw(16, 24, 1, 1, seed=6)),
               G.weight("scale", draw(24, 1, 1, seed=7)), G.weight("of", np.array([0, 0], np.int64)),
               G.weight("by", np.array([1, 1, 1.7, 2.3], np.float32))]
    nodes = [G.node("Conv", ["x", "w"], ["c"]), G.node("Relu", ["c"], ["r"]),
             G.node("GridSample", ["r", "grid"], ["s"], padding_mode="border"),
             G.node("Conv", ["s", "v"], ["layers"]),
             G.node("GridSample", ["x", "grid"], ["t"]), G.node("Add", ["t", "beside"], ["added"]),
             G.node("Mul", ["t", "scale"], ["m"]), G.node("Sigmoid", ["m"], ["scaled"]),
             G.node("RoiAlign", ["x", "rois", "of"], ["regions"], output_height=3, output_width=5,
                    sampling_ratio=2),
             G.node("Resize", ["x", "", "by"], ["larger"], mode="linear")]
    outputs = ["layers", "added", "scaled", "regions", "larger"]
    return G.model(nodes, [G.value(n, list(a.shape)) for n, a in feeds.items()],
                   [G.value(n, None) for n in outputs], weights, opset=20), feeds, outputs


def picks():
    """The other operators that pick, by indices that are inputs and such as are computed."""
    random = np.random.default_rng(3)
    feeds = {"x": draw(3, 40), "at": random.integers(-40, 40, (37,)),
             "each": random.integers(-40, 40, (3, 37)), "pair": random.integers(-3, 3, (35, 2)),
             "w": random.uniform(0, 39.9, (2, 45)).astype(np.float32), "image": draw(1, 4, 12, 13)}
    feeds["rois"] = np.array([[0, 0, 9, 9], [2.3, 1.1, 12.5, 11.2], [-3, -2, 20, 5]], np.float32)
    weights = [G.weight("of", np.array([0, 0, 0], np.int64)),
               G.weight("most", np.array(39, np.int64)), G.weight("shift", np.array(7, np.int64)),
               G.weight("none", np.array(0, np.int64))]
    nodes = [G.node("Gather", ["x", "at"], ["gather"], axis=1),
             G.node("GatherElements", ["x", "each"], ["elements"], axis=1),
             G.node("GatherND", ["x", "pair"], ["nd"]),
             G.node("Floor", ["w"], ["floor"]), G.node("Cast", ["floor"], ["whole"], to=INT64),
             G.node("Sub", ["whole", "shift"], ["moved"]), G.node("Max", ["moved", "none"], ["low"]),
             G.node("Min", ["low", "most"], ["place"]),
             G.node("Gather", ["x", "place"], ["picked"], axis=1),
             G.node("Mul", ["picked", "w"], ["computed"]),
             G.node("RoiAlign", ["image", "rois", "of"], ["roi"], output_height=5, output_width=9,
                    sampling_ratio=2, spatial_scale=0.9)]
    kinds = {"float32": onnx.TensorProto.FLOAT, "int64": INT64}
    outputs = ["gather", "elements", "nd", "computed", "roi"]
    model = G.model(nodes, [G.value(n, list(a.shape), kinds[a.dtype.name])
                            for n, a in feeds.items()],
                    [G.value(n, None) for n in outputs], weights, opset=16)
    return model, feeds, outputs


def far(kind):
    """Places that come of floats beyond any tensor's, and are brought back: rows of a table."""
    x = np.random.default_rng(6).uniform(-3.7e9, 3.7e9, 48).astype(np.float32)
    off = np.random.default_rng(7).integers(0, 5, 48)
    feeds = {"x": x, "rows": draw(1280, 16)}
    if kind.startswith("sum"):
        feeds |= {"x": (2.0 ** 31 + 256 * off).astype(np.float32),
                  "y": np.full(48, -(2.0 ** 31), np.float32)}
    if kind in ("compared both", "larger", "smaller"):
        feeds["y"] = np.random.default_rng(8).choice([-3.3e9, -7, 3, 900, 2.9e9], 48).astype(np.float32)
    numbers = {"shift": 5, "prime": 61, "part": 100_000_007, "middle": 40, "mask": 0x3ff,
               "limit": 10 ** 9, "beyond": 2 * 10 ** 9, "two": 2, "none": 0, "last": 1279}
    weights = [G.weight(n, np.array(v, np.int64)) for n, v in numbers.items()]
    nodes = []
    for name in feeds.keys() - {"rows"}:
        nodes += [G.node("Floor", [name], ["floor_" + name]),
                  G.node("Cast", ["floor_" + name], ["whole_" + name], to=INT64)]
    for op, *names in {
            "remainder": [("Add", "whole_x", "shift", "a"), ("Mod", "a", "prime", "place")],
            "quotient": [("Add", "whole_x", "shift", "a"), ("Div", "a", "part", "b"),
                         ("Add", "b", "middle", "place")],
            "bits": [("BitwiseAnd", "whole_x", "mask", "place")],
            "compared": [("Less", "whole_x", "limit", "near")],
            "compared far": [("Less", "whole_x", "beyond", "near")],
            "compared both": [("Less", "whole_x", "whole_y", "near")],
            "sum": [("Add", "whole_x", "whole_y", "place")],
            "larger": [("Max", "whole_x", "whole_y", "a"), ("Max", "a", "none", "b"),
                       ("Min", "b", "last", "place")],
            "smaller": [("Min", "whole_x", "whole_y", "a"), ("Max", "a", "none", "b"),
                        ("Min", "b", "last", "place")],
            "sum twice": [("Add", "whole_x", "whole_y", "a"), ("Mul", "a", "two", "b"),
                          ("Mod", "b", "prime", "place")]}[kind]:
        nodes.append(G.node(op, names[:-1], names[-1:]))
    if kind.startswith("compared"):
        nodes.append(G.node("Cast", ["near"], ["place"], to=INT64))
    nodes.append(G.node("Gather", ["rows", "place"], ["picked"]))
    return G.model(nodes, [G.value(n, list(a.shape)) for n, a in feeds.items()],
                   [G.value("picked", None)], weights, opset=18), feeds, ["picked"]


def strides():
    """Windows of neighbours and every other row, by tables of flat places: sums of progressions,
    and whole ones."""
    x = draw(20, 24)
    rows, columns = np.arange(0, 14, 2)[:, None], np.arange(5)[None]
    whole = (rows[:, :, None] * 24 + columns[:, :, None] * 24 + np.arange(3, 19)).astype(np.int64)
    weights = [G.weight("flat", np.array([-1], np.int64)), G.weight("whole", whole),
               G.weight("rows", (rows * 24).astype(np.int64)),
               G.weight("columns", (columns * 2 + 7).astype(np.int64)),
               G.weight("back", np.arange(19, 0, -3))]
    nodes = [G.node("Relu", ["x"], ["r"]), G.node("Reshape", ["r", "flat"], ["f"]),
             G.node("Add", ["rows", "columns"], ["places"]),
             G.node("Gather", ["f", "places"], ["sums"], axis=0),
             G.node("Gather", ["f", "whole"], ["windows"], axis=0),
             G.node("Gather", ["r", "back"], ["picked"], axis=0)]
    outputs = ["sums", "windows", "picked"]
    model = G.model(nodes, [G.value("x", [20, 24])], [G.value(n, None) for n in outputs], weights,
                    opset=16)
    return model, {"x": x}, outputs


def no_tables():
    """Places that are a sum of multiples of the coordinates are no tables, nor divided."""
    model, _, _, _ = reference("strides")
    folder = T.scratch(SCRATCH / "tables")
    onnx.save(model, folder / "model.onnx")
    T.emit(TGC, folder / "model.onnx", folder / "net.uops")
    text = (folder / "net.uops").read_text()
    expect("weight" not in text, "the places are tables")
    expect("//" not in text and " if " not in text, "the places are divided, or tested")


MODELS = {"rows": rows, "rows_made": rows_made, "rows_volume": rows_volume,
          "rows_between": rows_between, "flat": flat, "made": made, "volume": volume, "picks": picks,
          "strides": strides}
FAR = ("remainder", "quotient", "bits", "compared", "compared far",
       "compared both", "sum", "sum twice", "larger", "smaller")
MODELS |= {f"far {kind}": functools.partial(far, kind) for kind in FAR}
REFERENCE = {}


def rows_of(extreme):
    """ONNX Runtime's Max and Min of such int64 differ from NumPy's."""
    def wanted(feeds):
        x, y = (np.floor(feeds[name]).astype(np.int64) for name in "xy")
        return [feeds["rows"][np.clip(extreme(x, y), 0, 1279)]]
    return wanted


EXACT = {"far larger": rows_of(np.maximum), "far smaller": rows_of(np.minimum)}


def reference(name):
    if name not in REFERENCE:
        model, feeds, outputs = MODELS[name]()
        if name in EXACT:
            wanted = EXACT[name](feeds)
        else:
            session = onnxruntime.InferenceSession(model.SerializeToString(),
                                                   providers=["CPUExecutionProvider"])
            wanted = session.run(None, feeds)
        REFERENCE[name] = model, feeds, outputs, wanted
    return REFERENCE[name]


def emit(name, model, *options):
    folder = T.scratch(SCRATCH / name)
    onnx.save(model, folder / "model.onnx")
    T.emit(TGC, folder / "model.onnx", folder / "net.c", *options)
    return folder


def program(folder, cpu, outputs):
    if cpu != "neon":
        T.build(folder / "net.c", folder / "net", main_by=TGC)
        return T.Program(folder / "net", outputs)
    if not shutil.which(COMPILER) or not shutil.which(EMULATOR):
        raise Skip(f"{COMPILER} or {EMULATOR} is not there")
    T.build(folder / "net.c", folder / "net", COMPILER, (T.LEVEL, "-static"), main_by=TGC)
    return T.Program(folder / "net", outputs, [EMULATOR])


def answers(name, least, cpu, *options):
    """least: how many GATHERs AVX2's kernels have, each kind of operator at least one."""
    if cpu.startswith("avx") and cpu.replace("avx512", "avx512f") not in Path("/proc/cpuinfo").read_text():
        raise Skip(f"this machine has no {cpu}")
    model, feeds, outputs, wanted = reference(name)
    folder = emit("-".join([name, cpu, *options]), model, f"--cpu={cpu}", *options)
    found = program(folder, cpu, outputs).run(list(feeds.values()))
    for output, want in zip(outputs, wanted):
        have = found[output]
        expect(have.shape == want.shape, f"{output}: shape {have.shape}, expected {want.shape}")
        wrong = np.abs(have - want) > 2e-5 * max(1, np.abs(want).max())
        expect(not wrong.any(), f"{output}: {wrong.sum()} of {want.size} are wrong, "
                                f"by {np.abs(have - want).max():.3g}")
    if cpu == "avx2":
        text = (folder / "net.c").read_text()
        count = len(re.findall(r"(?<!IN_f32x8 f32x8 )gather(?:_where)?_f32x8\(", text))
        expect(count >= least, f"{count} vectors are gathered, at least {least} are expected")
        if name.startswith("rows") and "-O0" not in options:
            wide = len(re.findall(r"inside\w* && .*\? load_f32x8\(|\? load_f32x8\(", text))
            expect(wide >= 12, f"{wide} rows are read at places that are data, at least 12 are expected")


# ------------------------------------------------------------------------------- what is no number


def guarded(array):
    """The array between two pages that nobody may read."""
    page = mmap.PAGESIZE
    whole = -(-array.nbytes // page) * page
    expect(whole == array.nbytes, "the array must fill its pages")
    room = mmap.mmap(-1, whole + 2 * page)
    base = ctypes.addressof(ctypes.c_char.from_buffer(room))
    libc = ctypes.CDLL(None, use_errno=True)
    for at in (base, base + page + whole):
        expect(libc.mprotect(ctypes.c_void_p(at), ctypes.c_size_t(page), 0) == 0, "mprotect failed")
    ctypes.memmove(base + page, array.ctypes.data, array.nbytes)
    return room, base + page


def call(folder, x_at, grid, shape):
    """The model's run(), by its library."""
    library = ctypes.CDLL(str(folder / "net.so"))
    text = (folder / "net.h").read_text()
    size = int(re.search(r"ARENA_BYTES\s+(\d+)", text)[1])
    arena = np.zeros(size + 64, np.uint8)
    model = ctypes.c_void_p()
    status = library.net_init(ctypes.byref(model), ctypes.c_void_p(
        arena.ctypes.data + -arena.ctypes.data % 64), ctypes.c_size_t(size), None)
    expect(status == 0, f"init: status {status}")
    y = np.zeros(shape, np.float32)
    inputs = (ctypes.c_void_p * 2)(x_at, grid.ctypes.data)
    outputs = (ctypes.c_void_p * 1)(y.ctypes.data)
    status = library.net_run(model, inputs, outputs)
    expect(status == 0, f"run: status {status}")
    library.net_close(model)
    return y


ODD = [np.nan, np.inf, -np.inf, 3e38, -3e38, 1e30, -1e30, 2147483648.0, -2147483649.0, 4294967296.0,
       1e10, -1e10, 65536.0, -65536.0, 1.0000001, -1.0000001, 1e-45, -0.0]


def hostile(mode, padding, channels=4):
    """Numbers that no grid should hold: the same as by scalars, and nothing outside is read."""
    if platform.machine() != "x86_64":
        raise Skip("vectors that are run here are x86-64's")
    shape, points = [1, channels, 32, 32], [5, 37]
    random = np.random.default_rng(7)
    x, grid = draw(*shape), random.uniform(-2, 2, (1, *points, 2)).astype(np.float32)
    spots = random.integers(0, grid.size, 120)
    grid.reshape(-1)[spots] = np.resize(np.array(ODD, np.float32), 120)
    model = G.model([G.node("GridSample", ["x", "grid"], ["y"], mode=mode, padding_mode=padding)],
                    [G.value("x", shape), G.value("grid", list(grid.shape))],
                    [G.value("y", [1, channels, *points])], opset=20)
    found = {}
    flags = Path("/proc/cpuinfo").read_text()
    for cpu in ("generic", *(c for c, f in (("avx2", "avx2"), ("avx512", "avx512f")) if f in flags)):
        folder = emit(f"hostile-{mode}-{padding}-{channels}-{cpu}", model, f"--cpu={cpu}")
        T.must(T.run(["gcc", T.LEVEL, "-shared", "-fPIC", "net.c", "-o", "net.so", "-lm"], cwd=folder))
        room, at = guarded(x)
        (folder / f"net-{cpu}.so").write_bytes((folder / "net.so").read_bytes())
        found[cpu] = call(folder, at, grid, [1, channels, *points])
        del room
    for cpu, y in found.items():
        want = found["generic"]
        expect(np.array_equal(np.isnan(y), np.isnan(want)), f"{cpu}: NaN elsewhere than by scalars")
        expect(np.allclose(y, want, rtol=1e-4, atol=1e-5, equal_nan=True),
               f"{cpu}: wrong by {np.nanmax(np.abs(y - want)):.3g}")


QUICK = {"rows by avx2", "rows by avx512", "rows_made by avx512", "rows_volume by avx2",
         "rows_between by avx2", "rows_between by avx512", "rows_between by neon", "flat by avx2", "flat by avx512", "made by avx2", "volume by neon", "picks by generic",
         "picks by avx2", "picks by neon"}
# Kernels share what is computed of a grid, and twins their functions, so that each kind of sample
# has its vectors in some kernels.
for model_name, gathers in (("rows", 0), ("rows_made", 0), ("rows_volume", 0), ("rows_between", 0), ("flat", 60), ("made", 60), ("volume", 30), ("picks", 4)):
    for isa in ("generic", "avx2", "avx512", "neon"):
        title = f"{model_name} by {isa}"
        suite.add(title, answers, model_name, gathers, isa, slow=title not in QUICK)
suite.add("rows by three threads", answers, "rows", 0, "avx2", "--threads=3")
suite.add("volume by three threads", answers, "volume", 30, "avx2", "--threads=3")
suite.add("volume without optimization", answers, "volume", 0, "generic", "-O0", slow=True)
for isa in ("generic", "avx2"):
    suite.add(f"strides by {isa}", answers, "strides", 0, isa)
    for kind in FAR:
        suite.add(f"far places, {kind} by {isa}", answers, f"far {kind}", 0, isa)
suite.add("places that are progressions", no_tables)
for sample_mode, sample_padding in (("linear", "zeros"), ("nearest", "border"), ("cubic", "zeros"),
                                    ("linear", "reflection")):
    suite.add(f"a hostile grid, {sample_mode}, {sample_padding}", hostile, sample_mode,
              sample_padding, slow=sample_mode == "cubic")

for sample_mode, sample_padding in (("linear", "zeros"), ("nearest", "border"), ("cubic", "reflection")):
    suite.add(f"a hostile grid for many channels, {sample_mode}, {sample_padding}", hostile,
              sample_mode, sample_padding, 16, slow=sample_mode == "nearest")

suite.main()
