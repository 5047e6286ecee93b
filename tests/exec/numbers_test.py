"""Numbers in emitted programs: conversions of every value of the 8- and 16-bit types, and how far
functions are from the exact result.

Conversions are exact, so that they are compared with numpy and ml_dtypes, over all values of a
type; what the specification leaves open (floats beyond an integer's range) is left out.

Functions are measured in units in the last place of the result's type: over all values of f16 and
bf16, over a sample of f32 and f64 that has as many in each binade. The exact result is computed in
x87's 64-bit significands. docs/ulp.md holds the largest ones; --write writes it anew, and a test
fails where a function has become worse than it says.
"""

import re
import shutil
import sys
import warnings
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "lib"))

import ml_dtypes
import numpy as np
import onnx
from onnx import helper

import halves
import tgc as T
from exact import (BF16, COLUMNS, DOCUMENT, F16, F32, F64, FUNCTIONS, LONG, NORMAL_ONLY, documented,
                   ulps)
from suite import Failure, Suite, expect

suite = Suite("numbers")
OPTIONS = suite.parse(lambda parser: parser.add_argument(
    "--write", action="store_true", help="measure, and write docs/ulp.md"))
TGC = T.find_tgc(OPTIONS.build).resolve()
SCRATCH = Path(OPTIONS.build).resolve() / "test-scratch" / "numbers"
warnings.simplefilter("ignore", RuntimeWarning)


def program(folder, nodes, x, outputs, *options):
    """The results of a model of these nodes on x, by name, in the types of `outputs`."""
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", kind, x.shape)],
        [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(d)), x.shape)
         for name, d in outputs.items()])
    m = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    onnx.save(m, folder / "m.onnx")
    T.must(T.run([TGC, "m.onnx", "-o", "m.c", *options], cwd=folder))
    T.build(folder / "m.c", folder / "m", main_by=TGC)
    results = T.Program(folder / "m", list(outputs)).run([x])
    return {name: results[name].view(d) if results[name].dtype != d else results[name]
            for name, d in outputs.items()}


def in_folder(name, function, *arguments):
    folder = T.scratch(SCRATCH / name)
    try:
        return function(folder, *arguments)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# ----------------------------------------------------------------------------------- conversions

F8 = [np.dtype(d) for d in (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fnuz,
                            ml_dtypes.float8_e5m2, ml_dtypes.float8_e5m2fnuz)]
FLOATS = [F64, F32, F16, BF16, *F8]
INTS = [np.dtype(d) for d in (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64,
                              np.uint64)]
BOOL = np.dtype(bool)


def all_values(d):
    if d == BOOL:
        return np.array([False, True])
    bits = np.arange(1 << (8 * d.itemsize), dtype=np.uint32)
    return bits.astype(f"u{d.itemsize}").view(d)


def converted(x, to, saturate):
    """x in the type `to`, and which elements the specification settles."""
    settled = np.ones(x.shape, bool)
    if x.dtype not in FLOATS or to == BOOL:
        source = x.astype(F64) if to in FLOATS else x
        y = (source != 0) if to == BOOL else source.astype(to)
    elif to in FLOATS:
        y = x.astype(F64).astype(to)
    else:
        info, wide = np.iinfo(to), np.trunc(x.astype(F64))
        settled = (wide >= float(info.min)) & (wide <= float(info.max)) & (wide < 2.0**63)
        y = np.where(settled, wide, 0).astype(to)
    if to in F8 and saturate and to != x.dtype:
        most = float(ml_dtypes.finfo(to).max)
        wide = x.astype(F64)
        y = np.where(np.isnan(wide), wide, np.clip(wide, -most, most)).astype(to)
    return y, settled


def same_bits(a, b):
    bits = f"u{a.dtype.itemsize}"
    if a.dtype not in FLOATS:
        return a.view(bits) == b.view(bits)
    return (a.view(bits) == b.view(bits)) | (np.isnan(a.astype(F64)) & np.isnan(b.astype(F64)))


def conversions(folder, d):
    x = all_values(d)
    nodes, outputs, wanted = [], {}, {}
    for to in [*FLOATS, *INTS, BOOL]:
        for saturate in ((1, 0) if to in F8 and d in FLOATS else (1,)):
            name = f"{to.name}_{saturate}"
            more = {} if saturate else {"saturate": 0}
            nodes.append(helper.make_node("Cast", ["x"], [name],
                                          to=helper.np_dtype_to_tensor_dtype(to), **more))
            outputs[name] = to
            wanted[name] = converted(x, to, saturate)
    problems = []
    for name, y in program(folder, nodes, x, outputs).items():
        want, settled = wanted[name]
        wrong = np.flatnonzero(~same_bits(y, want) & settled)
        if wrong.size:
            k = wrong[0]
            problems.append(f"{d.name} to {name}: {wrong.size} of {x.size}; {x[k]!r} becomes "
                            f"{y[k]!r}, should be {want[k]!r}")
    expect(not problems, "\n".join(problems))


for one in [F16, BF16, *F8, *INTS[:4], BOOL]:
    suite.add(f"every {one.name}", in_folder, f"from_{one.name}", conversions, one)

# --------------------------------------------------------------------------------- small integers


def quotient(x, c):
    return np.sign(x) * np.sign(c) * (abs(x) // abs(c))


def small_integers(folder, d):
    """Sums, differences, products and quotients that leave their type wrap at once, not only where they are stored."""
    names = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": quotient}
    least, most = np.iinfo(d).min, np.iinfo(d).max
    others = np.array([least or 1, 3, most, -1 if least else most - 1], d)
    x, c = np.tile(all_values(d), others.size), np.repeat(others, all_values(d).size)
    nodes = [helper.make_node("Constant", [], ["c"], value=onnx.numpy_helper.from_array(c))]
    for name in names:
        nodes += [helper.make_node(name, ["x", "c"], [f"narrow_{name}"]),
                  helper.make_node("Cast", [f"narrow_{name}"], [name], to=onnx.TensorProto.INT32)]
    for more in ([], ["-O0"]):
        got = program(folder, nodes, x, dict.fromkeys(names, np.int32), *more)
        for name, function in names.items():
            want = function(x.astype(np.int64), c.astype(np.int64)).astype(d)
            expect((got[name] == want.astype(np.int32)).all(), f"{name} of {d.name}: {got[name]}, not {want} {more}")


for one in INTS[:4]:
    suite.add(f"small integers {one.name}", in_folder, f"small_{one.name}", small_integers, one)

# --------------------------------------------------------------------------------- large integers


def large_integers(folder, d):
    """To halves in one rounding: next to a tie, and far from what a float or a double has exactly."""
    x = halves.large(d)
    got = program(folder, [helper.make_node("Cast", ["x"], [name], to=to) for name, to, _ in halves.KINDS], x,
                  {name: kind for name, _, kind in halves.KINDS})
    np.save(folder / "x.npy", x)
    T.must(T.run([TGC, "run", "m.onnx", "-i", "x=x.npy", "--out-dir", "out"], cwd=folder))
    run = T.read_outputs(folder / "out", list(got))
    for name, _, kind in halves.KINDS:
        halves.check(x, got[name], name)
        halves.check(x, run[name].view(kind), name)


for one in ("int64", "uint64", "int32"):
    suite.add(f"large integers {one}", in_folder, f"large_{one}", large_integers, np.dtype(one))

# ------------------------------------------------------------------------------------- functions


def sample(d):
    """All values of a narrow type; else some of each binade, of both signs."""
    if d.itemsize == 2:
        x = all_values(d)
    else:
        draws = np.random.default_rng(1)
        bits = draws.integers(0, 1 << 63, 100_000, np.uint64, endpoint=False) * 2
        bits += draws.integers(0, 2, bits.size, np.uint64)
        x = bits.view(F64) if d == F64 else (bits >> 32).astype(np.uint32).view(F32)
        usual = draws.standard_normal(50_000) * np.exp2(draws.integers(-12, 7, 50_000))
        x = np.concatenate([x, usual.astype(d)])
    return x[np.isfinite(x.astype(F64))]


def measure(folder, d):
    x = sample(d)
    nodes = [helper.make_node(op, ["x"], [op]) for op in FUNCTIONS]
    results = program(folder, nodes, x, {op: d for op in FUNCTIONS})
    wide = x.astype(F64).astype(LONG)
    found = {}
    for op, function in FUNCTIONS.items():
        exact = function(wide)
        error = ulps(results[op], exact, d)
        if op in NORMAL_ONLY:
            error[np.abs(exact) < LONG(ml_dtypes.finfo(d).smallest_normal)] = 0
        k = int(np.argmax(error))
        found[op] = (float(error[k]), x[k])
    return found


def functions(folder, d):
    table, worse = documented(), []
    for op, (error, at) in measure(folder, d).items():
        if op not in table:
            worse.append(f"{op} is not in docs/ulp.md")
        elif not error <= table[op][d] + 0.005:
            worse.append(f"{op}({at!r}) in {d.name} is off by {error:.2f} ulp; docs/ulp.md says "
                         f"{table[op][d]}")
    expect(not worse, "\n".join(worse))


for one in COLUMNS:
    suite.add(f"functions in {one.name}", in_folder, f"functions_{one.name}", functions, one)


def sigmoid(folder, cpu):
    """Each instruction set has a function of its own for 1 / (1 + exp(-x)), and uses it."""
    x = sample(F32)
    node = helper.make_node("Sigmoid", ["x"], ["y"])
    y = program(folder, [node], x, {"y": F32}, f"--cpu={cpu}")["y"]
    text = (folder / "m.c").read_text()
    expect(text.count("exp1_f32x") > 1, "exp1_f32x is not called")
    expect("exp_f32x" not in text, "there is a power beside it")
    exact = FUNCTIONS["Sigmoid"](x.astype(F64).astype(LONG))
    error = ulps(y, exact, F32)
    least = ml_dtypes.finfo(F32).smallest_normal
    expect(np.all(y[exact < LONG(least)] <= least), "a value below the normal ones is none")
    error[exact < LONG(least)] = 0
    k = int(np.argmax(error))
    expect(error[k] <= documented()["Sigmoid"][F32] + 0.005, f"{error[k]:.2f} ulp at {x[k]!r}")
    ends = program(folder, [node], np.array([np.inf, -np.inf, np.nan, 0, -0.0, -105] * 7, F32),
                   {"y": F32}, f"--cpu={cpu}")["y"][:6]
    expect(np.array_equal(ends, np.array([1, 0, np.nan, 0.5, 0.5, 0], F32), equal_nan=True),
           f"of inf, -inf, NaN, 0, -0 and -105: {ends}")


FLAGS = set(Path("/proc/cpuinfo").read_text().split()) if Path("/proc/cpuinfo").exists() else set()
for cpu, flag in (("avx2", "fma"), ("avx512", "avx512dq")):
    if flag in FLAGS:
        suite.add(f"sigmoid with {cpu}", in_folder, f"sigmoid_{cpu}", sigmoid, cpu)


# ---------------------------------------------------------------------------------- .npy files


# What numpy has no name for: ml_dtypes writes '<V1', '<V2' and '<f1', and int4 and int2 as bits below zeros.
UNNAMED = ("bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn", "int2", "int4", "uint2", "uint4")
CALL = """
import sys
import ml_dtypes
import numpy as np
import tgc
names = sys.argv[1].split(",")
model = tgc.compile("m.onnx")
results = model(*[np.fromfile(f"{n}.bits", getattr(ml_dtypes, n)) for n in names])
for name, array in results.items():
    np.save(f"py/{name}.npy", array)
"""


@suite.case("arrays of ml_dtypes: run, verify, the program, Python")
def _():
    folder = T.scratch(SCRATCH / "unnamed")
    kinds = {name: np.dtype(getattr(ml_dtypes, name)) for name in UNNAMED}
    inputs, outputs, nodes, wanted = [], [], [], {}
    for name, d in kinds.items():
        bits = int(re.search(r"\d+", name)[0])
        array = (np.arange(1 << min(bits, 8)) * (257 if bits == 16 else 1)).astype(f"u{d.itemsize}").view(d)
        np.save(folder / f"{name}.npy", array)
        array.tofile(folder / f"{name}.bits")
        wanted[name] = array.astype(np.float32)
        inputs.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(d), array.shape))
        outputs.append(helper.make_tensor_value_info(f"{name}_y", onnx.TensorProto.FLOAT, array.shape))
        nodes.append(helper.make_node("Cast", [name], [f"{name}_y"], to=onnx.TensorProto.FLOAT))
    m = helper.make_model(helper.make_graph(nodes, "g", inputs, outputs), opset_imports=[helper.make_opsetid("", 25)], ir_version=12)
    onnx.save(m, folder / "m.onnx")

    def check(place):
        for name, y in wanted.items():
            have = np.load(folder / place / f"{name}_y.npy")
            expect(np.array_equal(have, y, equal_nan=True), f"{place}: {name}: {have[have != y][:4]}, expected {y[have != y][:4]}")

    for place in ("run", "main", "py", "data"):
        (folder / place).mkdir()
    T.must(T.run([TGC, "run", "m.onnx", "--out-dir", "run", *[f"-i{name}={name}.npy" for name in kinds]], cwd=folder))
    check("run")
    for k, name in enumerate(kinds):
        shutil.copy(folder / f"{name}.npy", folder / "data" / f"input_{k}.npy")
        np.save(folder / "data" / f"output_{k}.npy", wanted[name])
    T.must(T.run([TGC, "verify", "m.onnx", "--data", "data"], cwd=folder))
    T.must(T.run([TGC, "m.onnx", "-o", "m.c", *T.HERE], cwd=folder))
    T.build_quickly(folder / "m.c", folder / "m")
    T.must(T.run(["./m", *[f"{name}.npy" for name in kinds], "-o", "main"], cwd=folder))
    check("main")
    paths = {"PYTHONPATH": str(T.ROOT / "python"), "TGC": str(TGC)}
    T.must(T.run([sys.executable, "-c", CALL, ",".join(kinds)], cwd=folder, env=paths))
    check("py")


def write():
    found = {d: in_folder(f"functions_{d.name}", measure, d) for d in COLUMNS}
    rows = [f"| {op} | " + " | ".join(f"{found[d][op][0]:.2f}" for d in COLUMNS) + " |"
            for op in sorted(FUNCTIONS)]
    DOCUMENT.write_text(f"""# How exact functions are

The largest error of a function in an emitted program, in units in the last place of the result: 0.50 is a result that is rounded correctly. f16 and bf16
over all values, f32 and f64 over 150,000 of all sizes; Sigmoid where its result is a normal number; below, it may be 0. Written by `tests/exec/numbers_test.py --write`, which also fails where a function becomes worse.

| | f64 | f32 | f16 | bf16 |
|---|---|---|---|---|
""" + "\n".join(rows) + """

Conversions between types are exact: `tests/exec/numbers_test.py` compares those from every value of every 8- and 16-bit type.
""")
    print(DOCUMENT.read_text())


if __name__ == "__main__":
    write() if OPTIONS.write else suite.main()
