"""Networks written node by node, with seeded random weights of a sane scale.

What no package carries as ONNX: a GPT-2 decode step with its cache, a recurrent voice
detector, the two-convolution MNIST network, a policy MLP. Spelled the way exporters spell
them, with fixed sizes.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "models"))

import numpy as np
import onnx
from onnx import TensorProto, helper

import export_minilm


class Network(export_minilm.Graph):
    """Collects inputs and outputs too; every tensor here has a fixed shape."""

    def __init__(self, seed):
        super().__init__(seed)
        self.inputs, self.outputs = [], []

    def input(self, name, *shape, dtype=TensorProto.FLOAT):
        self.inputs.append(helper.make_tensor_value_info(name, dtype, shape))
        return name

    def output(self, name, value, *shape):
        self.nodes.append(helper.make_node("Identity", [value], [name], name=f"output_{name}"))
        self.outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))

    def many(self, kind, *inputs, count, **attributes):
        """A node of several outputs."""
        self.count += 1
        outputs = [f"{self.scope}/{kind}_{self.count}_output_{k}" for k in range(count)]
        self.nodes.append(helper.make_node(kind, list(inputs), outputs,
                                           name=f"{self.scope}/{kind}_{self.count}",
                                           **attributes))
        return outputs

    def gemm(self, name, x, n_in, n_out):
        """A Gemm of weights stored [n_out, n_in], as PyTorch's Linear is exported."""
        return self.op("Gemm", x, self.normal(f"{name}.weight", n_out, n_in, scale=n_in ** -0.5),
                       self.normal(f"{name}.bias", n_out, scale=0.1), transB=1)

    def model(self, name, opset=17):
        graph = helper.make_graph(self.nodes, name, self.inputs, self.outputs, self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)],
                                  ir_version=8, producer_name="architectures")
        onnx.checker.check_model(model)
        return model


def policy_mlp(batch=1):
    """64-128-128-8 with tanh, as reinforcement learning uses it."""
    net = Network(64)
    x = net.input("observation", batch, 64)
    for layer, (n_in, n_out) in enumerate([(64, 128), (128, 128)]):
        x = net.op("Tanh", net.gemm(f"hidden{layer}", x, n_in, n_out))
    net.output("action", net.gemm("action", x, 128, 8), batch, 8)
    return net.model("policy_mlp")


def mnist_cnn(batch=1):
    """Two 3x3 convolutions, a pool, two dense layers: PyTorch's MNIST example."""
    net = Network(28)
    x = net.input("image", batch, 1, 28, 28)
    for layer, (n_in, n_out) in enumerate([(1, 32), (32, 64)]):
        weight = net.normal(f"conv{layer}.weight", n_out, n_in, 3, 3,
                            scale=(2 / (9 * n_in)) ** 0.5)
        bias = net.normal(f"conv{layer}.bias", n_out, scale=0.1)
        x = net.op("Relu", net.op("Conv", x, weight, bias, kernel_shape=[3, 3]))
    x = net.op("Flatten", net.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]))
    x = net.op("Relu", net.gemm("dense", x, 64 * 12 * 12, 128))
    x = net.op("LogSoftmax", net.gemm("head", x, 128, 10), axis=-1)
    net.output("log_probability", x, batch, 10)
    return net.model("mnist_cnn")


def lstm_vad(frames=20, bands=40, width=64):
    """A voice detector: two LSTMs over log-mel frames, state carried by the caller."""
    net = Network(20)
    x = net.op("Transpose", net.input("features", 1, frames, bands), perm=[1, 0, 2])
    for layer, n_in in enumerate([bands, width]):
        net.scope = f"/lstm{layer}"
        hidden = net.input(f"h{layer}", 1, 1, width)
        cell = net.input(f"c{layer}", 1, 1, width)
        y, h, c = net.many(
            "LSTM", x, net.normal("W", 1, 4 * width, n_in, scale=n_in ** -0.5),
            net.normal("R", 1, 4 * width, width, scale=width ** -0.5),
            net.normal("B", 1, 8 * width, scale=0.1), "", hidden, cell, count=3,
            hidden_size=width)
        x = net.op("Squeeze", y, net.constant([1], np.int64))
        net.output(f"h{layer}_next", h, 1, 1, width)
        net.output(f"c{layer}_next", c, 1, 1, width)
    net.scope = ""
    x = net.op("Transpose", x, perm=[1, 0, 2])
    x = net.op("Sigmoid", net.linear("head", x, width, 1))
    net.output("speech", x, 1, frames, 1)
    return net.model("lstm_vad")


def gpt2_decode(past=256, layers=12, width=768, heads=12, vocabulary=50257, positions=1024, joined=False):
    """One token of GPT-2 (124M) behind `past` others: keys and values come in and go out. joined: a
    layer's in one tensor, as older exports have them."""
    net = Network(2)
    size = width // heads
    token = net.input("input_ids", 1, 1, dtype=TensorProto.INT64)
    place = net.input("position_ids", 1, 1, dtype=TensorProto.INT64)
    words = net.normal("wte", vocabulary, width, scale=0.02)
    x = net.op("Add", net.op("Gather", words, token),
               net.op("Gather", net.normal("wpe", positions, width, scale=0.02), place))
    split = net.weight("split", np.array([width] * 3, np.int64))
    for layer in range(layers):
        net.scope = f"/h.{layer}"
        query, key, value = net.many("Split", net.linear("c_attn", norm(net, "ln_1", x, width),
                                                         width, 3 * width),
                                     split, count=3, axis=2)
        query, key, value = (head_split(net, part, heads, size) for part in (query, key, value))
        if joined:
            both = net.input(f"past_{layer}", 2, 1, heads, past, size)
            cache = [net.op("Gather", both, net.constant(k, np.int64), axis=0) for k in range(2)]
        else:
            cache = [net.input(f"past_{kind}_{layer}", 1, heads, past, size)
                     for kind in ("key", "value")]
        key = net.op("Concat", cache[0], key, axis=2)
        value = net.op("Concat", cache[1], value, axis=2)
        if joined:
            rows = [net.op("Unsqueeze", x, net.constant([0], np.int64)) for x in (key, value)]
            net.output(f"present_{layer}", net.op("Concat", *rows, axis=0), 2, 1, heads, past + 1, size)
        for kind, tensor in (("key", key), ("value", value)) if not joined else ():
            net.output(f"present_{kind}_{layer}", tensor, 1, heads, past + 1, size)
        scores = net.op("Div", net.op("MatMul", query,
                                      net.op("Transpose", key, perm=[0, 1, 3, 2])),
                        net.constant(size ** 0.5))
        mixed = net.op("MatMul", net.op("Softmax", scores, axis=-1), value)
        flat = net.op("Reshape", net.op("Transpose", mixed, perm=[0, 2, 1, 3]),
                      net.constant([1, 1, width], np.int64))
        x = net.op("Add", x, net.linear("c_proj", flat, width, width))
        inner = gelu_tanh(net, net.linear("c_fc", norm(net, "ln_2", x, width), width, 4 * width))
        x = net.op("Add", x, net.linear("mlp_proj", inner, 4 * width, width))
    net.scope = ""
    row = net.op("Reshape", norm(net, "ln_f", x, width), net.constant([1, width], np.int64))
    net.output("logits", net.op("Gemm", row, words, transB=1), 1, vocabulary)
    return net.model("gpt2_decode")


ATTENTION_HEADS, ATTENTION_SIZE, ATTENTION_WINDOW = 4, 32, 64


def attention(tokens, form):
    """Attention alone: "bare", "causal", or "window": causal, and no further back than 64 tokens."""
    net = Network(7)
    shape = (1, ATTENTION_HEADS, tokens, ATTENTION_SIZE)
    query, key, value = (net.input(name, *shape) for name in ("query", "key", "value"))
    scores = net.op("Mul", net.op("MatMul", query, net.op("Transpose", key, perm=[0, 1, 3, 2])),
                    net.constant(ATTENTION_SIZE ** -0.5))
    if form != "bare":
        places = net.op("Range", *(net.constant(n, np.int64) for n in (0, tokens, 1)))
        row = net.op("Unsqueeze", places, net.constant([1], np.int64))
        column = net.op("Unsqueeze", places, net.constant([0], np.int64))
        seen = net.op("LessOrEqual", column, row)
        if form == "window":
            near = net.op("Less", net.op("Sub", row, column), net.constant(ATTENTION_WINDOW, np.int64))
            seen = net.op("And", seen, near)
        scores = net.op("Where", seen, scores, net.constant(-np.inf))
    net.output("mixed", net.op("MatMul", net.op("Softmax", scores, axis=-1), value), *shape)
    return net.model(f"attention_{form}_{tokens}")


def norm(net, name, x, width):
    gain = (1 + 0.2 * net.random.standard_normal(width)).astype(np.float32)
    return net.op("LayerNormalization", x, net.weight(f"{name}.weight", gain),
                  net.normal(f"{name}.bias", width, scale=0.1), axis=-1, epsilon=1e-5)


def head_split(net, x, heads, size):
    shape = net.constant([1, 1, heads, size], np.int64)
    return net.op("Transpose", net.op("Reshape", x, shape), perm=[0, 2, 1, 3])


def gelu_tanh(net, x):
    cube = net.op("Mul", net.op("Pow", x, net.constant(3.0)), net.constant(0.044715))
    inner = net.op("Mul", net.op("Add", x, cube), net.constant((2 / np.pi) ** 0.5))
    both = net.op("Mul", x, net.op("Add", net.op("Tanh", inner), net.constant(1.0)))
    return net.op("Mul", both, net.constant(0.5))
