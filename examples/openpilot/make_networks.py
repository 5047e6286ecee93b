"""Writes vision.onnx and policy.onnx: two networks with the inputs and outputs of openpilot's, weights of our own by a seed.

    python3 make_networks.py [--folder .] [--size full|small] [--seed 1]

vision  two cameras of two frames each, u8[1, 12, 128, 256] (`img`, `big_img`), to `outputs`, f32[1, 1576]: blocks of 1x1, depthwise and
        1x1 convolutions with squeeze and excite, as in EfficientNet, of which 512 are the features that the policy remembers.
policy  25 of those features, 25 desires and the traffic convention to `outputs`, f32[1, 1000]: a transformer over time.

The networks have learned nothing: only what they cost is like openpilot's. `small` has the same inputs and outputs and a tenth of
the arithmetic, for tests.
"""

import argparse
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FEATURES, HISTORY = 512, 25
# channels, stride, kernel, how often the first 1x1 convolution repeats the channels; a number of blocks
STAGES = {"full": ((32, 16, 1, 3, 1, 1), (16, 24, 2, 3, 6, 2), (24, 48, 2, 5, 6, 2), (48, 88, 2, 3, 6, 3), (88, 120, 1, 5, 6, 3),
                   (120, 208, 2, 3, 6, 3)),
          "small": ((8, 8, 1, 3, 1, 1), (8, 16, 2, 3, 2, 1), (16, 24, 2, 5, 2, 1), (24, 32, 2, 3, 2, 1), (32, 48, 2, 3, 2, 1))}
POLICY = {"full": (256, 2), "small": (32, 1)}       # width, layers


class Network:
    """Nodes and weights, one after the other."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)
        self.nodes, self.weights = [], []

    def weight(self, *shape, scale=1.0, value=None):
        data = self.random.standard_normal(shape) * scale if value is None else value
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(data, np.float32), name))
        return name

    def shape(self, *sizes):
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.array(sizes, np.int64), name))
        return name

    def node(self, op, *inputs, **attributes):
        name = f"{op.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name, **attributes))
        return name

    def conv(self, x, cin, cout, k=1, stride=1, groups=1, gain=1.0):
        """gain: against what keeps the variance behind a swish, which leaves a third of it."""
        w = self.weight(cout, cin // groups, k, k, scale=gain * (2.8 / (cin // groups * k * k)) ** 0.5)
        return self.node("Conv", x, w, self.weight(cout, scale=0.1), kernel_shape=[k, k], strides=[stride] * 2, pads=[k // 2] * 4,
                         group=groups)

    def swish(self, x):
        return self.node("Mul", x, self.node("Sigmoid", x))

    def dense(self, x, cin, cout, scale=None):
        return self.node("Add", self.node("MatMul", x, self.weight(cin, cout, scale=scale or cin ** -0.5)), self.weight(cout, scale=0.1))

    def norm(self, x, n):
        return self.node("LayerNormalization", x, self.weight(n, value=np.ones(n)), self.weight(n, scale=0.1), axis=-1)

    def block(self, x, cin, cout, stride, k, expand):
        inner = cin * expand
        y = self.swish(self.conv(x, cin, inner, gain=0.6)) if expand > 1 else x
        y = self.swish(self.conv(y, inner, inner, k, stride, inner))
        squeezed = self.swish(self.conv(self.node("GlobalAveragePool", y), inner, max(4, cin // 4)))
        y = self.node("Mul", y, self.node("Sigmoid", self.conv(squeezed, max(4, cin // 4), inner, gain=0.3)))
        y = self.conv(y, inner, cout, gain=1.6)
        return self.node("Add", x, y) if stride == 1 and cin == cout else y

    def model(self, name, inputs, output, path):
        self.nodes[-1].output[0] = "outputs"
        graph = helper.make_graph(self.nodes, name, [helper.make_tensor_value_info(n, t, s) for n, t, s in inputs],
                                  [helper.make_tensor_value_info("outputs", TensorProto.FLOAT, output)], self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="make_networks.py")
        onnx.checker.check_model(model, full_check=True)
        onnx.save(model, path)


def vision(size, seed):
    net = Network(seed)
    both = net.node("Cast", net.node("Concat", "img", "big_img", axis=1), to=TensorProto.FLOAT)
    x = net.node("Div", net.node("Sub", both, net.weight(1, value=[128])), net.weight(1, value=[64]))
    stages = STAGES[size]
    x = net.swish(net.conv(x, 24, stages[0][0], 3, 2))
    for cin, cout, stride, k, expand, blocks in stages:
        for i in range(blocks):
            x = net.block(x, cout if i else cin, cout, 1 if i else stride, k, expand)
    x = net.swish(net.conv(x, stages[-1][1], 32))
    x = net.norm(net.node("Reshape", x, net.shape(1, 1024)), 1024)
    hidden = net.node("Tanh", net.dense(x, 1024, FEATURES))
    heads = net.dense(net.node("Elu", net.dense(hidden, FEATURES, 256)), 256, 1576 - FEATURES)
    net.node("Concat", heads, hidden, axis=1)
    return net


def policy(size, seed):
    net = Network(seed + 1)
    width, layers = POLICY[size]
    traffic = net.node("Expand", net.node("Reshape", "traffic_convention", net.shape(1, 1, 2)), net.shape(1, HISTORY, 2))
    x = net.node("Concat", "features_buffer", "desire_pulse", traffic, axis=2)
    x = net.node("Add", net.dense(x, FEATURES + 10, width), net.weight(HISTORY, width, scale=0.5))
    heads = width // 32
    for _ in range(layers):
        y = net.norm(x, width)
        parts = [net.node("Reshape", net.dense(y, width, width), net.shape(1, HISTORY, heads, 32)) for _ in range(3)]
        q, v = (net.node("Transpose", parts[i], perm=[0, 2, 1, 3]) for i in (0, 2))
        scores = net.node("Mul", net.node("MatMul", q, net.node("Transpose", parts[1], perm=[0, 2, 3, 1])), net.weight(1, value=[32 ** -0.5]))
        seen = net.node("Transpose", net.node("MatMul", net.node("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
        x = net.node("Add", x, net.dense(net.node("Reshape", seen, net.shape(1, HISTORY, width)), width, width))
        y = net.node("Relu", net.dense(net.norm(x, width), width, 4 * width))
        x = net.node("Add", x, net.dense(y, 4 * width, width, scale=(4 * width) ** -0.5))
    last = net.node("Reshape", net.node("Gather", net.norm(x, width), net.shape(HISTORY - 1), axis=1), net.shape(1, width))
    net.dense(net.node("Elu", net.dense(last, width, 2 * width)), 2 * width, 1000)
    return net


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, default=Path("."))
    parser.add_argument("--size", choices=STAGES, default="full")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    image, past = [1, 12, 128, 256], [1, HISTORY]
    vision(given.size, given.seed).model("vision", [("img", TensorProto.UINT8, image), ("big_img", TensorProto.UINT8, image)], [1, 1576],
                                         given.folder / "vision.onnx")
    policy(given.size, given.seed).model("policy", [("features_buffer", TensorProto.FLOAT, [*past, FEATURES]),
                                                    ("desire_pulse", TensorProto.FLOAT, [*past, 8]),
                                                    ("traffic_convention", TensorProto.FLOAT, [1, 2])], [1, 1000], given.folder / "policy.onnx")


if __name__ == "__main__":
    main()
