"""What is stored with a program: nothing twice, no broadcast, no table of what is an expression.

Each case states how many bytes of weights a model takes, builds it and compares what it computes
with onnx's reference.
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "lib")]

import numpy as np
import onnx
import onnx.numpy_helper
from onnx.reference import ReferenceEvaluator

import graphs as G
import tgc as T
from suite import Suite, expect

suite = Suite("constants")
OPTIONS = suite.parse()
TGC = T.find_tgc(OPTIONS.build).resolve()
SCRATCH = T.scratch(Path(OPTIONS.build).resolve() / "test-scratch" / "constants")


def draw(*shape, seed=1):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def weight_bytes(name, model, *options):
    folder = SCRATCH / name
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(model, folder / "model.onnx")
    return T.info(TGC, folder / "model.onnx", *options)["weight_bytes"]


def run(name, model, feeds, *options):
    """The outputs of the model that weight_bytes() saved under this name."""
    folder = SCRATCH / name
    outputs = [o.name for o in model.graph.output]
    T.emit(TGC, folder / "model.onnx", folder / "net.c", *T.HERE, *options)
    T.build(folder / "net.c", folder / "net", main_by=TGC)
    got = T.Program(folder / "net", outputs).run([feeds[i.name] for i in model.graph.input])
    return [got[o] for o in outputs]


def check(name, nodes, shape, weights, most, opset=19):
    """y of x takes at most `most` bytes of weights, and is right."""
    x = draw(*shape)
    model = G.model(nodes, [G.value("x", shape)], [G.value("y", None)],
                    [G.weight(k, v) for k, v in weights.items()], opset=opset)
    stored = weight_bytes(name, model)
    want = ReferenceEvaluator(model).run(None, {"x": x})[0]
    for option in ("--cpu=auto", "--cpu=generic"):
        got = run(name, model, {"x": x}, option)[0]
        expect(got.shape == want.shape and np.allclose(got, want, rtol=1e-4, atol=1e-5),
               f"{option}: wrong by {np.abs(got - want).max()}")
    expect(stored <= most, f"{stored} bytes of weights; at most {most} were expected")


# ------------------------------------------------------------------------- expressions of the index

for mode in ("edge", "reflect", "wrap"):
    suite.add(f"a border by {mode}", check, f"pad-{mode}",
              [G.node("Pad", ["x", "p"], ["y"], mode=mode)], [66, 66], {"p": np.array([1, 3, 2, 1])}, 0)
suite.add("every third row, by a range", check, "range",
          [G.node("Range", ["from", "to", "by"], ["i"]), G.node("Gather", ["x", "i"], ["y"], axis=0)],
          [200, 12], {"from": np.array(1), "to": np.array(200), "by": np.array(3)}, 0)
# one table for each axis: 101 and 93 of eight bytes
suite.add("the nearest pixel", check, "nearest",
          [G.node("Resize", ["x", "", "", "size"], ["y"], mode="nearest", coordinate_transformation_mode="half_pixel",
                  nearest_mode="floor")],
          [1, 2, 66, 62], {"size": np.array([1, 2, 101, 93])}, 8 * (101 + 93) + 64)
# what is looked up, a list of numbers for each axis, is joined by one addition
suite.add("coordinates of two axes", check, "joined",
          [G.node("Mul", ["rows", "width"], ["starts"]), G.node("Add", ["starts", "columns"], ["at"]),
           G.node("Gather", ["x", "at"], ["y"], axis=0)],
          [80 * 90], {"rows": np.random.default_rng(2).permutation(80)[:60].reshape(60, 1),
                      "columns": np.random.default_rng(3).permutation(90)[:70].reshape(1, 70),
                      "width": np.array(90)}, 8 * (60 + 70) + 64)

# ---------------------------------------------------------------------------------------- broadcasts

suite.add("a function of what is expanded", check, "function",
          [G.node("Expand", ["w", "shape"], ["e"]), G.node("Exp", ["e"], ["f"]), G.node("Add", ["x", "f"], ["y"])],
          [1, 64, 25, 5], {"w": draw(64, 1, 1), "shape": np.array([1, 64, 25, 5])}, 256)
suite.add("larger than what would be folded", check, "large",
          [G.node("Expand", ["w", "shape"], ["e"]), G.node("Exp", ["e"], ["f"]), G.node("Add", ["x", "f"], ["y"])],
          [1, 64, 75, 55], {"w": draw(64, 1, 1), "shape": np.array([1, 64, 75, 55])}, 256)
suite.add("a weight that was expanded", check, "expanded", [G.node("Add", ["x", "w"], ["y"])],
          [1, 64, 25, 5], {"w": np.broadcast_to(draw(1, 64, 1, 1), (1, 64, 25, 5)).copy()}, 256)
suite.add("the inner rows repeat", check, "inner", [G.node("Add", ["x", "w"], ["y"])],
          [6, 30, 40], {"w": np.broadcast_to(draw(6, 1, 40), (6, 30, 40)).copy()}, 960)
suite.add("one value", check, "uniform", [G.node("Mul", ["x", "w"], ["y"])],
          [30, 60], {"w": np.full((30, 60), 0.5, np.float32)}, 0)
suite.add("through a reshape", check, "reshape",
          [G.node("Expand", ["w", "shape"], ["e"]), G.node("Reshape", ["e", "flat"], ["r"]), G.node("Exp", ["r"], ["f"]),
           G.node("Add", ["x", "f"], ["y"])],
          [4, 16, 600], {"w": draw(4, 16, 1, 1), "shape": np.array([4, 16, 20, 30]), "flat": np.array([4, 16, 600])},
          256)
# a product reads its weights as they are, whatever is in them
suite.add("rows of a matrix that repeat", check, "matrix", [G.node("MatMul", ["x", "w"], ["y"])],
          [8, 32], {"w": np.broadcast_to(draw(1, 48), (32, 48)).copy() / 8}, 32 * 48 * 4)


# ------------------------------------------------------------------- the same network in two notations

class Network:
    """Depthwise and pointwise layers of bytes, as QLinearConv or between QuantizeLinear and
    DequantizeLinear."""

    def __init__(self, qlinear):
        self.random = np.random.default_rng(5)
        self.qlinear, self.nodes, self.weights = qlinear, [], []

    def weight(self, name, array):
        self.weights.append(G.weight(name, array))
        return name

    def conv(self, x, name, out, channels, kernel, group=1, stride=1, pads=None):
        taps = channels // group * kernel[0] * kernel[1]
        shape = [out, channels // group, *kernel]
        w = self.weight(f"{name}_w", self.random.integers(-127, 128, shape).astype(np.int8))
        b = self.weight(f"{name}_b", self.random.integers(-999, 1000, out).astype(np.int32))
        ws = self.weight(f"{name}_ws", (0.5 + self.random.random(out)).astype(np.float32) / (75 * taps ** 0.5))
        bs = self.weight(f"{name}_bs", np.float32(0.02) * numpy_of(self.weights[-1]))
        wz = self.weight(f"{name}_wz", np.zeros(out, np.int8))
        bz = self.weight(f"{name}_bz", np.zeros(out, np.int32))
        more = {"group": group, "strides": [stride] * 2, "pads": pads or [k // 2 for k in kernel] * 2}
        if self.qlinear:
            self.nodes.append(G.node("QLinearConv", [x, "s", "z", w, ws, wz, "s", "z", b], [name], **more))
            return name
        for source, scale, zero, axis in ((x, "s", "z", {}), (w, ws, wz, {"axis": 0}), (b, bs, bz, {"axis": 0})):
            self.nodes.append(G.node("DequantizeLinear", [source, scale, zero], [f"{name}_{source}_d"], **axis))
        self.nodes += [G.node("Conv", [f"{name}_{source}_d" for source in (x, w, b)], [f"{name}_c"], **more),
                       G.node("QuantizeLinear", [f"{name}_c", "s", "z"], [name])]
        return name

    def model(self):
        self.weight("s", np.float32(0.02))
        self.weight("z", np.uint8(100))
        self.nodes.append(G.node("QuantizeLinear", ["x", "s", "z"], ["q"]))
        v = self.conv("q", "stem", 64, 1, (10, 4), stride=2, pads=[4, 1, 5, 1])
        for k in range(4):
            v = self.conv(v, f"depth{k}", 64, 64, (3, 3), group=64)
            v = self.conv(v, f"point{k}", 64, 64, (1, 1))
        self.nodes.append(G.node("DequantizeLinear", [v, "s", "z"], ["y"]))
        return G.model(self.nodes, [G.value("x", [1, 1, 49, 10])], [G.value("y", [1, 64, 25, 5])], self.weights)


def numpy_of(tensor):
    return onnx.numpy_helper.to_array(tensor)


@suite.case("a network of bytes by QLinearConv takes what it takes by QDQ")
def notations():
    x = draw(1, 1, 49, 10)
    models = [Network(qlinear).model() for qlinear in (False, True)]
    stored = [weight_bytes(f"notation{i}", m, "--cpu=generic") for i, m in enumerate(models)]
    got = [run(f"notation{i}", m, {"x": x}, "--cpu=generic")[0] for i, m in enumerate(models)]
    wrong = np.abs(got[0] - got[1])
    expect((wrong > 0.021).sum() == 0 and (wrong > 0).mean() < 0.02, f"they differ by {wrong.max()}")
    expect(stored[1] <= stored[0] * 1.05, f"{stored[1]} bytes of weights by QLinearConv, {stored[0]} by QDQ")
    kernels, channels = 64 * 40 + 4 * (64 * 9 + 64 * 64), 9 * 64
    # a scale, a bias and what the zero point adds for each channel
    expect(stored[0] <= kernels + 12 * channels, f"{stored[0]} bytes for {kernels} weights of a byte")


@suite.case("weights of u8 with a zero point stay bytes where there are no vectors")
def bytes_less_zero():
    random = np.random.default_rng(6)
    for zero in (0, 117, 255):
        nodes = [G.node("DequantizeLinear", ["x", "s", "z"], ["xd"]), G.node("DequantizeLinear", ["w", "s", "wz"], ["wd"]),
                 G.node("Conv", ["xd", "wd"], ["y"], group=64, pads=[1] * 4)]
        weights = {"s": np.float32(0.02), "z": np.uint8(120), "wz": np.uint8(zero),
                   "w": random.integers(0, 256, [64, 1, 3, 3]).astype(np.uint8)}
        model = G.model(nodes, [G.value("x", [1, 64, 9, 9], onnx.TensorProto.UINT8)], [G.value("y", None)],
                        [G.weight(k, v) for k, v in weights.items()], opset=19)
        x = random.integers(0, 256, [1, 64, 9, 9]).astype(np.uint8)
        want = ReferenceEvaluator(model).run(None, {"x": x})[0]
        stored = weight_bytes(f"zero{zero}", model, "--cpu=generic")
        got = run(f"zero{zero}", model, {"x": x}, "--cpu=generic")[0]
        expect(np.allclose(got, want, rtol=1e-4, atol=1e-4), f"zero point {zero}: wrong by {np.abs(got - want).max()}")
        expect(stored <= 576 + 512, f"zero point {zero}: {stored} bytes for 576 weights")


suite.main()
