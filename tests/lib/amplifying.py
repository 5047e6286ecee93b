"""Deep networks of random weights that enlarge rounding, or do not.

Those with calibrated statistics have what trained networks have and freshly made ones lack: every
layer's mean is taken away, so that what is left of a signal is small beside what was computed.
"""

import numpy as np

import double
import graphs as G


class Net:
    """A graph under construction, with the values that its tensors have for one image."""

    def __init__(self, name, size, channels=3):
        self.random = np.random.default_rng(sum(map(ord, name)))
        self.nodes, self.weights, self.shape = [], [], [1, channels, size, size]
        coarse = self.random.standard_normal((1, channels, size // 8 + 1, size // 8 + 1))
        smooth = np.kron(coarse, np.ones((1, 1, 8, 8)))[..., :size, :size]
        self.value = {"x": smooth + 0.3 * self.random.standard_normal(self.shape)}

    def add(self, kind, inputs, value, **attributes):
        out = f"{kind.lower()}{len(self.nodes)}"
        self.nodes.append(G.node(kind, inputs, [out], name=out, **attributes))
        self.value[out] = value
        return out

    def weight(self, array):
        self.weights.append(G.weight(f"w{len(self.weights)}", array.astype(np.float32)))
        return f"w{len(self.weights) - 1}"

    def conv(self, x, channels, kernel=(3, 3), stride=1, calibrated=True, gain=2.0):
        v = self.value[x]
        w = self.random.standard_normal((channels, v.shape[1], *kernel))
        w *= np.sqrt(gain / (v.shape[1] * np.prod(kernel)))
        border = [(k // 2, k // 2) for k in kernel]

        def run(w):
            part = double.windows(v, kernel, [stride] * 2, [1, 1], border, 0)
            return np.moveaxis(np.tensordot(part, w, ([1, 4, 5], [1, 2, 3])), -1, 1)
        y, b = run(w), np.zeros(channels)
        if calibrated:
            scale = self.random.uniform(0.7, 1.3, channels) / y.std((0, 2, 3))
            b = 0.1 * self.random.standard_normal(channels) - y.mean((0, 2, 3)) * scale
            w, y = w * scale.reshape(-1, 1, 1, 1), y * scale.reshape(-1, 1, 1)
        return self.add("Conv", [x, self.weight(w), self.weight(b)], y + b.reshape(-1, 1, 1),
                        strides=[stride] * 2, pads=[k // 2 for k in kernel] * 2,
                        kernel_shape=list(kernel))

    def relu(self, x):
        return self.add("Relu", [x], np.maximum(self.value[x], 0))

    def layer(self, x, channels, *kernel, **more):
        return self.relu(self.conv(x, channels, *kernel, **more))

    def join(self, parts):
        return self.add("Concat", parts, np.concatenate([self.value[p] for p in parts], 1), axis=1)

    def sum(self, a, b):
        return self.add("Add", [a, b], self.value[a] + self.value[b])

    def norm(self, x):
        v = self.value[x]
        y = (v - v.mean((2, 3), keepdims=True)) / v.std((2, 3), keepdims=True)
        one = np.ones(v.shape[1])
        return self.add("InstanceNormalization", [x, self.weight(one), self.weight(0 * one)], y)

    def wider(self, x, times=2):
        y = self.value[x].repeat(times, 2).repeat(times, 3)
        self.weights.append(G.weight(f"s{len(self.nodes)}", np.array([1, 1, times, times], np.float32)))
        return self.add("Resize", [x, "", self.weights[-1].name], y, mode="nearest")

    def head(self, x, classes=100):
        pooled = self.add("GlobalAveragePool", [x], self.value[x].mean((2, 3), keepdims=True))
        return self.conv(pooled, classes, (1, 1), calibrated=False, gain=1.0)

    def model(self, y):
        """The model, and the image that it was calibrated by."""
        made = G.model(self.nodes, [G.value("x", self.shape)],
                       [G.value(y, list(self.value[y].shape))], self.weights)
        return made, {"x": self.value["x"].astype(np.float32)}


def chain(depth=14, calibrated=False, channels=64, size=48):
    """Convolutions and nothing else between them than their activations."""
    net = Net("chain", size)
    x = "x"
    for _ in range(depth):
        x = net.layer(x, channels, calibrated=calibrated)
    return net.model(net.head(x))


def linear():
    """No activations at all: nothing takes noise away, or a mean."""
    net = Net("linear", 48)
    x = "x"
    for _ in range(12):
        x = net.conv(x, 48, calibrated=False, gain=1.0)
    return net.model(x)


def residual(depth=16, channels=64, size=56):
    net = Net("residual", size)
    x = net.layer("x", channels)
    for _ in range(depth):
        x = net.relu(net.sum(x, net.conv(net.layer(x, channels), channels)))
    return net.model(net.head(x))


def inception(depth=10, channels=48, size=28):
    """Branches of 1x1, 1x7, 7x1 and 3x3 windows, joined, as in Inception-v4."""
    net = Net("inception", size)
    x = net.layer("x", 2 * channels)
    for _ in range(depth):
        a = net.layer(x, channels, (1, 1))
        b = net.layer(net.layer(net.layer(x, channels, (1, 1)), channels, (1, 7)), channels, (7, 1))
        c = net.layer(net.layer(net.layer(x, channels, (1, 1)), channels), channels)
        x = net.join([a, b, c])
    return net.model(net.head(x))


def vovnet():
    """Stages that join all of their layers, as VoVNet-39."""
    net = Net("vovnet", 64)
    x = net.layer(net.layer("x", 64), 64)
    for channels, wide, blocks, stride in ((64, 128, 1, 1), (80, 256, 1, 2), (96, 384, 2, 2),
                                           (112, 512, 2, 2)):
        for block in range(blocks):
            parts = [x]
            for number in range(5):
                down = stride if block == 0 and number == 0 else 1
                x = net.layer(x, channels, stride=down)
                parts.append(x)
            x = net.layer(net.join(parts[1:] if stride > 1 and block == 0 else parts), wide, (1, 1))
    return net.model(net.head(x))


def generator(depth=9, least=32, size=64):
    """An image to an image, each layer normalized by its own image, as CycleGAN's."""
    net = Net("generator", size)
    x, most = "x", 4 * least
    for channels, stride in ((least, 1), (2 * least, 2), (most, 2)):
        x = net.relu(net.norm(net.conv(x, channels, stride=stride)))
    for _ in range(depth):
        y = net.relu(net.norm(net.conv(x, most)))
        x = net.sum(x, net.norm(net.conv(y, most)))
    for channels in (2 * least, least):
        x = net.relu(net.norm(net.conv(net.wider(x), channels)))
    y = net.conv(x, 3, calibrated=False)
    return net.model(net.add("Tanh", [y], np.tanh(net.value[y])))


NETWORKS = {"chain": chain, "calibrated_chain": lambda: chain(14, True), "linear": linear,
            "residual": residual, "inception": inception, "vovnet": vovnet,
            "generator": generator}
