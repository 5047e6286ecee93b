"""--weight-type: models whose large weights are stored as bf16 or int8.

What the program computes has to be what the model with these very weights computes: they are
rounded here, independently, and ONNX Runtime runs the model with them. That the rounding itself
errs as little as docs/weights.md says is checked beside it.
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "lib")]

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

import graphs as G
import tgc as T
from suite import Suite, expect

suite = Suite("weights")
OPTIONS = suite.parse()
TGC = T.find_tgc(OPTIONS.build).resolve()
SCRATCH = T.scratch(Path(OPTIONS.build).resolve() / "test-scratch" / "weights")


def as_bf16(w):
    bits = np.ascontiguousarray(w).view(np.uint32).astype(np.uint64)
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
    return bits.astype(np.uint32).view(np.float32)


def as_int8(w, axes):
    """axes: those along which a scale is shared."""
    scale = np.abs(w).max(axis=axes, keepdims=True) / np.float32(127)
    q = np.clip(np.rint(w / np.where(scale > 0, scale, 1)), -127, 127)
    return (q * scale).astype(np.float32)


def rounded(model, kind, shared):
    """The model with rounded weights; shared: of each of them, the axes of one scale."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for tensor in copy.graph.initializer:
        if tensor.name in shared:
            w = numpy_helper.to_array(tensor)
            w = as_bf16(w) if kind == "bf16" else as_int8(w, shared[tensor.name])
            tensor.CopyFrom(numpy_helper.from_array(w, tensor.name))
    return copy


def weight(random, name, *shape):
    values = random.standard_normal(shape) / np.sqrt(shape[-1])
    if len(shape) > 1:
        values *= np.exp2(random.integers(-3, 3, (shape[0],) + (1,) * (len(shape) - 1)))
    return G.weight(name, values.astype(np.float32))


def check(name, model, inputs, shared, kind, *options):
    import onnxruntime
    folder = T.scratch(SCRATCH / name)
    onnx.save(model, folder / "net.onnx")
    about = T.info(TGC, folder / "net.onnx", f"--weight-type={kind}", *options)["narrowed"]
    expect(about["weights"] == len(shared) and about["dtype"] == {"int8": "i8"}.get(kind, kind),
           f"info says {about}; {len(shared)} weights were expected")
    size = 2 if kind == "bf16" else 4
    expect(about["bytes"] <= about["bytes_before"] / size * 1.1, f"too many bytes: {about}")
    expect(about["rms_error"] <= {"bf16": 2e-3, "int8": 1.2e-2}[kind]
           and about["max_error"] <= 0.00395, f"the weights err too much: {about}")
    if "-O0" not in options:      # nothing is widened by a kernel of its own
        plain, small = (T.info(TGC, folder / "net.onnx", "--no-winograd", f"--weight-type={k}",
                               *options) for k in ("f32", kind))
        lookups = plain["operators"].get("Gather", 0)     # the rows and their scales
        expect(small["kernels"] <= plain["kernels"] + 2 * lookups
               and small["live_bytes"] <= plain["live_bytes"] + 1024 * lookups,
               f"{small['kernels']} kernels in place of {plain['kernels']}, "
               f"{small['live_bytes']} live bytes in place of {plain['live_bytes']}")
    T.emit(TGC, folder / "net.onnx", folder / "net.c", f"--weight-type={kind}", *T.HERE, *options)
    expect(f"stored as {kind}" in (folder / "net.c").read_text()[:4000],
           "the C file does not say what was done to its weights")
    T.build(folder / "net.c", folder / "net", main_by=TGC)
    names = [output.name for output in model.graph.output]
    have = T.Program(folder / "net", names).run(list(inputs.values()))
    run = lambda m: dict(zip(names, onnxruntime.InferenceSession(m.SerializeToString()).run(
        None, inputs)))
    T.compare_to_reference(have, run(rounded(model, kind, shared)), rtol=1e-4, atol=1e-5)
    exact = run(model)
    for output in names:
        error = np.sqrt(np.mean((have[output] - exact[output]) ** 2) / np.mean(exact[output] ** 2))
        expect(0 < error <= {"bf16": 5e-3, "int8": 3e-2}[kind],
               f"{output} errs by {error:.2g} in all: nothing was rounded, or too much")


def perceptron():
    random = np.random.default_rng(1)
    nodes, weights, shared, x, width = [], [], {}, "x", 100
    for k, out in enumerate((257, 96, 83)):
        weights += [weight(random, f"w{k}", width, out), weight(random, f"b{k}", out)]
        nodes += [G.node("MatMul", [x, f"w{k}"], [f"m{k}"], name=f"m{k}"),
                  G.node("Add", [f"m{k}", f"b{k}"], [f"a{k}"], name=f"a{k}"),
                  G.node("Relu" if k < 2 else "Identity", [f"a{k}"], [f"y{k}"], name=f"y{k}")]
        shared[f"w{k}"] = 0
        x, width = f"y{k}", out
    model = G.model(nodes, [G.value("x", [3, 100])], [G.value("y2", [3, 83])], weights)
    return model, {"x": random.standard_normal((3, 100)).astype(np.float32)}, shared


def convolutions():
    """Of 3x3, in groups, and of one dimension; some channels too few for a vector."""
    random = np.random.default_rng(2)
    weights = [weight(random, "w0", 48, 24, 3, 3), weight(random, "b0", 48),
               weight(random, "w1", 44, 12, 3, 3), weight(random, "w2", 20, 44, 7)]
    nodes = [G.node("Conv", ["x", "w0", "b0"], ["c0"], name="c0", pads=[1, 1, 1, 1]),
             G.node("Relu", ["c0"], ["r0"], name="r0"),
             G.node("Conv", ["r0", "w1"], ["c1"], name="c1", group=4, strides=[2, 2]),
             G.node("Reshape", ["c1", "shape"], ["flat"], name="flat"),
             G.node("Conv", ["flat", "w2"], ["y"], name="y")]
    weights.append(G.weight("shape", np.array([1, 44, 36], np.int64)))
    model = G.model(nodes, [G.value("x", [1, 24, 14, 14])], [G.value("y", [1, 20, 30])], weights)
    return (model, {"x": random.standard_normal((1, 24, 14, 14)).astype(np.float32)},
            {"w0": (1, 2, 3), "w1": (1, 2, 3), "w2": (1, 2)})


def tied_embedding():
    """One weight is looked up in and multiplied with."""
    random = np.random.default_rng(3)
    weights = [weight(random, "words", 203, 64), weight(random, "up", 64, 64)]
    nodes = [G.node("Gather", ["words", "token"], ["e"], name="e"),
             G.node("MatMul", ["e", "up"], ["h"], name="h"),
             G.node("Gemm", ["h", "words"], ["y"], name="y", transB=1)]
    model = G.model(nodes, [G.value("token", [2], TensorProto.INT64)], [G.value("y", [2, 203])],
                    weights)
    return model, {"token": np.array([7, 202], np.int64)}, {"words": 1, "up": 0}


def recurrent():
    """Weights inside of a loop, in slices."""
    random = np.random.default_rng(4)
    weights = [weight(random, "w", 1, 256, 48), weight(random, "r", 1, 256, 64)]
    nodes = [G.node("LSTM", ["x", "w", "r"], ["", "y", ""], name="lstm", hidden_size=64)]
    model = G.model(nodes, [G.value("x", [5, 1, 48])], [G.value("y", [1, 1, 64])], weights)
    return (model, {"x": random.standard_normal((5, 1, 48)).astype(np.float32)},
            {"w": (0, 2), "r": (0, 2)})


for make in (perceptron, convolutions, tied_embedding, recurrent):
    for kind in ("bf16", "int8"):
        for option in ("--cpu=auto", "--cpu=generic", "-O0"):
            def run(make=make, kind=kind, option=option):
                check(f"{make.__name__}_{kind}{option}", *make(), kind, option)
            suite.add(f"{make.__name__}, {kind}, {option}", run)


@suite.case("threads agree to the bit")
def threads():
    folder = T.scratch(SCRATCH / "threads")
    model, inputs, _ = perceptron()
    onnx.save(model, folder / "net.onnx")
    results = []
    for count in (1, 3):
        T.emit(TGC, folder / "net.onnx", folder / "net.c", "--weight-type=int8",
               f"--threads={count}")
        T.build(folder / "net.c", folder / "net", main_by=TGC)
        results.append(T.Program(folder / "net", ["y2"]).run(list(inputs.values()))["y2"])
    expect(np.array_equal(*results), "results depend on the number of threads")


@suite.case("what cannot be stored small stays as it is")
def refused():
    random = np.random.default_rng(6)
    folder = T.scratch(SCRATCH / "refused")
    wide = random.standard_normal((64, 80)).astype(np.float32)
    wide[3, 5] = np.inf
    for case, weights, outputs in (("infinite", [G.weight("w", wide)], []),
                                   ("small", [weight(random, "w", 64, 16)], []),
                                   ("an output", [weight(random, "w", 64, 80)], ["w2"])):
        columns = weights[0].dims[1]
        nodes = [G.node("MatMul", ["x", "w"], ["y"], name="y"),
                 G.node("Identity", ["w"], ["w2"], name="w2")]
        model = G.model(nodes, [G.value("x", [2, 64])],
                        [G.value("y", [2, columns])] + [G.value(o, [64, columns]) for o in outputs],
                        weights)
        onnx.save(model, folder / "net.onnx")
        about = T.info(TGC, folder / "net.onnx", "--weight-type=bf16")
        expect("narrowed" not in about, f"{case}: {about}")


suite.main()
