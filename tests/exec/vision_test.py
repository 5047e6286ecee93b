"""What stands between the layers of image networks, and has no weights that would say how its values
are to lie: norms of an image, resizes, transposed convolutions. The answers, and that vectors run along the
channels throughout.
"""

import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "lib")]

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

import graphs as G
import tgc as T
from suite import Suite, expect

suite = Suite("vision")
OPTIONS = suite.parse()
TGC = T.find_tgc(OPTIONS.build).resolve()
SCRATCH = T.scratch(Path(OPTIONS.build).resolve() / "test-scratch" / "vision")


class Net:
    """A convolution, what is to be tested, a convolution."""

    def __init__(self, channels, side, seed=1, wider=3):
        self.random = np.random.default_rng(seed)
        self.nodes, self.weights, self.shape = [], [], [1, 3, side, side + wider]
        self.inner, self.outer, self.taps = channels, 8, 3
        self.put("Conv", ["x", self.draw("w0", channels, 3, 3, 3), self.draw("b0", channels)], pads=[1] * 4)

    def draw(self, name, *shape):
        self.weights.append(G.weight(name, (self.random.standard_normal(shape) / 3).astype(np.float32)))
        return name

    def const(self, name, values, dtype=np.float32):
        self.weights.append(G.weight(name, np.array(values, dtype)))
        return name

    def put(self, kind, inputs, **attributes):
        self.last = f"t{len(self.nodes)}"
        self.nodes.append(G.node(kind, inputs, [self.last], **attributes))
        return self.last

    def done(self):
        weights = self.draw("w1", self.outer, self.inner, self.taps, self.taps)
        self.nodes.append(G.node("Conv", [self.last, weights], ["y"], pads=[self.taps // 2] * 4))
        return G.model(self.nodes, [G.value("x", self.shape)], [G.value("y", None)], self.weights)


def transposed(channels, side):
    net = Net(channels, side)
    net.put("ConvTranspose", [net.last, net.draw("w", channels, channels, 3, 3)], strides=[2, 2], pads=[1] * 4)
    net.put("InstanceNormalization", [net.last, net.draw("s", channels), net.draw("b", channels)])
    return net


def decoder(channels, side, taps=2):
    """What a U-Net does on its way up: twice the size, beside what had that size before."""
    net = Net(channels, side)
    skip = net.put("Relu", [net.last])
    x = net.put("MaxPool", [skip], kernel_shape=[2, 2], strides=[2, 2])
    net.put("ConvTranspose", [x, net.draw("w", channels, channels, taps, taps), net.draw("b", channels)],
            strides=[2, 2], pads=[0, 0, taps - 2, taps - 2], output_padding=[side % 2, (side + 3) % 2])
    net.put("Concat", [net.put("Relu", [net.last]), skip], axis=1)
    net.inner = 2 * channels
    return net


def window(channels, side, taps=9):
    net = Net(channels, side)
    net.put("Conv", [net.last, net.draw("w", channels, 1, taps, taps)], group=channels, pads=[taps // 2] * 4)
    net.put("Relu", [net.last])
    return net


def instance_norm(channels, side):
    net = Net(channels, side)
    net.put("InstanceNormalization", [net.last, net.draw("s", channels), net.draw("b", channels)])
    net.put("Relu", [net.last])
    return net


def group_norm(channels, side, groups=4):
    net = Net(channels, side)
    x = net.put("Reshape", [net.last, net.const("cut", [0, groups, -1], np.int64)])
    net.put("InstanceNormalization", [x, net.draw("s", groups), net.draw("b", groups)])
    net.put("Reshape", [net.last, net.const("whole", [1, channels, side, side + 3], np.int64)])
    x = net.put("Mul", [net.last, net.draw("scale", channels, 1, 1)])
    net.put("Mul", [x, net.put("Sigmoid", [x])])
    return net


def resize(channels, side, **attributes):
    net = Net(channels, side)
    net.put("Relu", [net.last])
    skip = net.put("Conv", [net.last, net.draw("w2", channels, channels, 3, 3)], pads=[1] * 4)
    x = net.put("MaxPool", [skip], kernel_shape=[2, 2], strides=[2, 2])
    net.put("Resize", [x, "", "", net.const("size", [1, channels, side, side + 3], np.int64)], **attributes)
    net.put("Concat", [skip, net.last], axis=1)
    net.inner = 2 * channels
    return net


def pooled(channels, side, kind="MaxPool"):
    """Windows that overlap, over what takes long, and over channels that are weighed (squeeze and excite)."""
    net = Net(channels, side)
    x = net.put("Mul", [net.last, net.put("Sigmoid", [net.last])])
    x = net.put(kind, [x], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    gate = net.put("Conv", [net.put("GlobalAveragePool", [x]), net.draw("fc", channels, channels, 1, 1)])
    net.put("Mul", [x, net.put("HardSigmoid", [gate])])
    net.put(kind, [net.last], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
    return net


def wide_result(channels, side):
    """The model wants its pixels side by side, while the layer's channels are lanes."""
    net = Net(channels, side)
    net.outer, net.taps = 2 * channels + 5, 1
    return net


def gated(channels, side):
    """The end of a block of SENet whose shortcut is a layer: a gate of each channel, and that layer."""
    net = Net(channels, side)
    image = net.put("Relu", [net.last])
    x = net.put("Conv", [image, net.draw("w2", channels, channels, 3, 3)], pads=[1] * 4, strides=[2, 2])
    gate = net.put("Conv", [net.put("GlobalAveragePool", [x]), net.draw("fc1", 4, channels, 1, 1)])
    gate = net.put("Conv", [net.put("Relu", [gate]), net.draw("fc2", channels, 4, 1, 1), net.draw("fb", channels)])
    scaled = net.put("Mul", [x, net.put("Sigmoid", [gate])])
    short = net.put("Conv", [image, net.draw("w", channels, channels, 1, 1), net.draw("b", channels)], strides=[2, 2])
    net.put("Relu", [net.put("Add", [scaled, short])])
    return net


def write(name, net, *options):
    folder = T.scratch(SCRATCH / re.sub(r"\W+", "_", name))
    model = net.done()
    onnx.save(model, folder / "net.onnx")
    T.emit(TGC, folder / "net.onnx", folder / "net.c", *options)
    return folder, model


WIDEST = ((), ("--threads=2", "--cache=4K", "--cpu=native"))


def check(name, net, turn):
    x = np.random.default_rng(2).standard_normal(net.shape).astype(np.float32)
    for options in (("--cpu=generic",), *(WIDEST if OPTIONS.all else WIDEST[turn % 2:][:1])):       # in turn in the quick form
        folder, model = write(name, net, *options)
        want = ReferenceEvaluator(model).run(None, {"x": x})[0]
        T.build(folder / "net.c", folder / "net", main_by=TGC)
        got = T.Program(folder / "net", ["y"]).run([x])["y"]
        worst = float(np.abs(got - want).max())
        expect(worst < 1e-4 * max(1, np.abs(want).max()), f"{options}: wrong by {worst}")
        net.weights.pop()                             # the last layer's, which done() draws anew
        net.nodes.pop()


def kernels(name, net):
    """Kernels of the variant for AVX-512, by name."""
    folder, _ = write(name, net, "--cpu=avx512")
    source = (folder / "net.c").read_text()
    return {m[1]: m[2] for m in re.finditer(r"static void (\w+)\((?:[^)]*)\)\n\{\n(.*?)\n\}", source, re.S)}


KINDS = {"a gate beside a layer": gated, "a result of many channels": wide_result, "overlapping windows": pooled, "overlapping means": lambda c, n: pooled(c, n, "AveragePool"),
         "a transposed convolution of 3 taps": transposed, "one of 2 taps": decoder,
         "one of 3 taps beside a skip connection": lambda c, n: decoder(c, n, 3),
         "a window of 9 taps": window, "a window of 11 taps": lambda c, n: window(c, n, 11),
         "instance norm": instance_norm,
         "group norm": group_norm,
         "a linear resize": lambda c, n: resize(c, n, mode="linear", coordinate_transformation_mode="align_corners"),
         "a cubic resize": lambda c, n: resize(c, n, mode="cubic"),
         "a nearest resize": lambda c, n: resize(c, n, mode="nearest", nearest_mode="floor",
                                                 coordinate_transformation_mode="asymmetric")}
for number, (title, kind) in enumerate(KINDS.items()):
    for turn, size in enumerate(((16, 12), (12, 9), (20, 7)), number):
        suite.add(f"{title}: {size[0]} channels, {size[1]}", lambda title=title, kind=kind, size=size, turn=turn:
                  check(f"{title}_{size[0]}", kind(*size), turn))


@suite.case("weights of a transposed convolution are padded at compile time")
def padded():
    made = kernels("padded", transposed(16, 12))
    copies = [name for name in made if name.startswith("copy") and "load" not in made[name] and "x[" not in made[name]]
    layers = [body for name, body in made.items() if name.startswith("convtranspose") and "fma_f32x16" in body]
    expect(layers and all(" w[" in body or "&w[" in body for body in layers), f"no weights in {sorted(made)}")
    expect(not any("load_part" in body for body in layers), "parts of vectors: phases are the columns")
    expect(not copies, f"{copies}")


@suite.case("phases of a transposed convolution do not decide how it lies: its channels do")
def phases():
    net = Net(32, 64, wider=0)
    net.put("MaxPool", [net.last], kernel_shape=[2, 2], strides=[2, 2])
    net.put("Relu", [net.put("ConvTranspose", [net.last, net.draw("w", 32, 32, 2, 2)], strides=[2, 2])])
    net.put("Conv", [net.last, net.draw("w2", 32, 32, 3, 3)], pads=[1] * 4)    # by Winograd: no vote
    made = kernels("phases", net)
    layers = [body for name, body in made.items() if name.startswith("convtranspose") and "fma_f32x16" in body]
    expect(layers and not any("store_apart" in body for body in layers), "results are stored apart")


@suite.case("pixels of a wide window are neighbours, as many as registers hold twice")
def windows():
    for taps, most in ((9, 12), (11, 15)):
        made = kernels(f"windows_{taps}", window(48, 25, taps))
        read = [{int(at or 0) for at in re.findall(r"load_f32x16\(&x\[at\d*(?: \+ (\d+))?\]", body)}
                for name, body in made.items() if f"kx < {taps}; kx" in body and "_avx512" in name]
        expect(len(read) == 1 and 4 <= len(read[0]) <= most, f"{taps} taps: {read}")
        expect(max(read[0]) < 25 * 48, f"{taps} taps: pixels of several rows: {read}")


@suite.case("bands do not cut channels into less than a vector")
def bands():
    net = Net(32, 112)
    net.nodes, net.last, net.shape = [], "x", [1, 32, 112, 112]
    for k in range(2):
        net.put("Conv", [net.last, net.draw(f"w{k + 2}", 32, 1, 5, 5)], group=32, pads=[2] * 4)
    net.nodes[-1].output[0] = "y"
    net.done = lambda: G.model(net.nodes, [G.value("x", net.shape)], [G.value("y", None)], net.weights)
    made = {name: body for name, body in kernels("bands", net).items() if "fma_f32x16" in body}
    expect(made and not any("load_part" in body for body in made.values()), "parts of vectors")


@suite.case("an image's mean is summed up once, by vectors of channels")
def means():
    bodies = [body for name, body in kernels("means", instance_norm(32, 16)).items()
              if re.match(r"instancenorm\w+_avx512$", name)]
    expect(len(bodies) == 1, f"{len(bodies)} kernels have vectors")
    expect(len(re.findall(r"^    f32x16 sum\d* =", bodies[0], re.M)) == 4, "the sums are within a loop over pixels")


@suite.case("sums of group norm are vectors of channels")
def groups():
    made = kernels("groups", group_norm(32, 16))
    sums = [name for name, body in made.items() if re.match(r"instancenorm\w+_avx512$", name) and "sum2" in body]
    expect(len(sums) == 2, f"{sums} of {sorted(made)}")
    expect(any(re.match(r"mul\w+_avx512$", name) for name in made), f"none scales: {sorted(made)}")


@suite.case("what a stride steps over does not count: many weights are read once")
def strided():
    net = Net(256, 28)
    net.nodes, net.last, net.shape = [], "x", [1, 256, 28, 28]
    net.put("Conv", [net.last, net.draw("w", 512, 256, 1, 1)], strides=[2, 2])
    net.inner = 512
    made = kernels("strided", net)
    loops = [re.findall(r"for \(int (\w+)", body) for name, body in made.items()
             if "_avx512" in name and "ic < 256" in body and "kx" not in body]
    expect(len(loops) == 1 and loops[0][:2] == ["oc", "ox"], f"{loops}")


@suite.case("a gate is computed before the layer that it is added to")
def gates():
    made = kernels("gates", gated(32, 16))
    layers = [body for body in made.values() if "exp_f32" in body and re.search(r"for \(int ic", body)]
    tiles = [body for body in layers if "sum[row][column]" in body or "fma_f32x16" in body]
    expect(layers and layers == tiles, f"a layer's sum without vectors: {layers}")


@suite.case("what takes long is no part of overlapping windows")
def pools():
    made = kernels("pools", pooled(32, 16))
    largest = [body for body in made.values() if "max_f32x16(" in body and body.count("for (") >= 4]
    expect(len(largest) >= 2, f"{len(largest)} poolings have vectors")
    for body in largest:
        window = body[body.index("for ("):]
        expect("exp_f32" not in window and "fma_f32" not in window, f"computed again and again: {window}")


@suite.case("pixels that are side by side are stored together, where channels are lanes")
def together():
    made = kernels("together", wide_result(32, 32))
    last = [body for body in made.values() if "evens_f32x16(" in body and "fma_f32x16(" in body]
    expect(last and not any("store_apart_f32x16(" in body for body in last), f"{len(last)} layers by columns")


@suite.case("anchors of a detector's head, each with weights of its own, are a loop outside of its pixels")
def anchors():
    net = Net(128, 10, wider=0)
    net.outer, net.taps = 6 * 91, 1
    folder, model = write("anchors", net)
    model.graph.node[-1].output[0] = "head"
    model.graph.node.extend([G.node("Reshape", ["head", "split"], ["parts"]),
                             G.node("Transpose", ["parts"], ["last"], perm=[0, 3, 4, 1, 2]),
                             G.node("Reshape", ["last", "rows"], ["y"])])
    model.graph.initializer.extend([G.weight("split", np.array([1, 6, 91, 10, 10], np.int64)),
                                    G.weight("rows", np.array([1, 600, 91], np.int64))])
    onnx.save(model, folder / "net.onnx")
    T.emit(TGC, folder / "net.onnx", folder / "net.c", "--cpu=avx512")
    source = (folder / "net.c").read_text()
    heads = [m[1] for m in re.finditer(r"_avx512\([^)]*\)\n\{\n(.*?)\n\}", source, re.S) if " < 6;" in m[1]]
    expect(heads and all(re.search(r"for \(int (\w+) = 0; \1 < \d+;", body)[0].endswith(" < 6;") for body in heads),
           f"{len(heads)} heads by pixels")


@suite.case("a resize is as wide as its channels, and what it joins needs no copy in another order")
def resized():
    for mode in ("linear", "nearest"):
        net = resize(16, 12, mode=mode, coordinate_transformation_mode="asymmetric", nearest_mode="floor")
        made = kernels(f"resized_{mode}", net)
        named = [name for name in made if re.match(r"(resize|maxpool|concat)\w*_\d+$", name)]
        expect(len(named) >= 1, f"{sorted(made)}")
        for name in named:
            expect(f"{name}_avx512" in made, f"{mode}: {name} has no vectors")


suite.main()
