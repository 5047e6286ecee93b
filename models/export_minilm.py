"""Writes a sentence encoder in MiniLM's shape: 6 layers, 384 wide, 12 heads, random weights.

The graph is spelled the way exporters spell it: layer normalization and GELU as chains of
elementwise operators, heads split by Reshape with 0 and -1, the mask added to the scores.
Batch and length stay symbolic; fix them with --dim.

    python models/export_minilm.py OUT.onnx [--vocabulary N]
"""

import argparse

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

LAYERS, WIDTH, HEADS, INNER, POSITIONS = 6, 384, 12, 1536, 512


class Graph:
    """Collects nodes and weights; every method returns the name of what it computes."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)
        self.nodes, self.weights = [], []
        self.scope = ""
        self.count = 0

    def op(self, kind, *inputs, **attributes):
        self.count += 1
        output = f"{self.scope}/{kind}_{self.count}_output"
        self.nodes.append(helper.make_node(kind, list(inputs), [output],
                                           name=f"{self.scope}/{kind}_{self.count}", **attributes))
        return output

    def weight(self, name, array):
        name = f"{self.scope}.{name}".strip("./").replace("/", ".")
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def normal(self, name, *shape, scale):
        return self.weight(name, (self.random.standard_normal(shape) * scale).astype(np.float32))

    def constant(self, value, dtype=np.float32):
        self.count += 1
        return self.weight(f"constant_{self.count}", np.array(value, dtype))

    def linear(self, name, x, n_in, n_out):
        product = self.op("MatMul", x, self.normal(f"{name}.weight", n_in, n_out,
                                                   scale=n_in ** -0.5))
        return self.op("Add", product, self.normal(f"{name}.bias", n_out, scale=0.1))

    def layer_norm(self, name, x):
        gain = (1 + 0.2 * self.random.standard_normal(WIDTH)).astype(np.float32)
        centred = self.op("Sub", x, self.op("ReduceMean", x, axes=[-1]))
        variance = self.op("ReduceMean", self.op("Pow", centred, self.constant(2.0)), axes=[-1])
        deviation = self.op("Sqrt", self.op("Add", variance, self.constant(1e-12)))
        scaled = self.op("Mul", self.op("Div", centred, deviation),
                         self.weight(f"{name}.weight", gain))
        return self.op("Add", scaled, self.normal(f"{name}.bias", WIDTH, scale=0.1))

    def gelu(self, x):
        erf = self.op("Erf", self.op("Div", x, self.constant(2 ** 0.5)))
        both = self.op("Mul", x, self.op("Add", erf, self.constant(1.0)))
        return self.op("Mul", both, self.constant(0.5))

    def heads(self, x, axes):
        shape = self.constant([0, 0, HEADS, WIDTH // HEADS], np.int64)
        return self.op("Transpose", self.op("Reshape", x, shape), perm=axes)

    def attention(self, x, mask):
        query = self.heads(self.linear("query", x, WIDTH, WIDTH), [0, 2, 1, 3])
        key = self.heads(self.linear("key", x, WIDTH, WIDTH), [0, 2, 3, 1])
        value = self.heads(self.linear("value", x, WIDTH, WIDTH), [0, 2, 1, 3])
        scores = self.op("Div", self.op("MatMul", query, key),
                         self.constant((WIDTH // HEADS) ** 0.5))
        weights = self.op("Softmax", self.op("Add", scores, mask), axis=-1)
        context = self.op("Transpose", self.op("MatMul", weights, value), perm=[0, 2, 1, 3])
        flat = self.op("Reshape", context, self.constant([0, 0, WIDTH], np.int64))
        return self.linear("output", flat, WIDTH, WIDTH)


def embeddings(graph, vocabulary):
    graph.scope = "/embeddings"
    words = graph.op("Gather", graph.normal("word", vocabulary, WIDTH, scale=1.0), "input_ids")
    kinds = graph.op("Gather", graph.normal("type", 2, WIDTH, scale=0.3), "token_type_ids")
    length = graph.op("Gather", graph.op("Shape", "input_ids"), graph.constant(1, np.int64))
    ends = graph.op("Unsqueeze", length, graph.constant([0], np.int64))
    table = graph.normal("position", POSITIONS, WIDTH, scale=0.3)
    places = graph.op("Slice", table, graph.constant([0], np.int64), ends,
                      graph.constant([0], np.int64))
    return graph.layer_norm("norm", graph.op("Add", graph.op("Add", words, kinds), places))


def additive_mask(graph):
    graph.scope = "/mask"
    wide = graph.op("Unsqueeze", "attention_mask", graph.constant([1, 2], np.int64))
    inverse = graph.op("Sub", graph.constant(1.0), graph.op("Cast", wide, to=TensorProto.FLOAT))
    return graph.op("Mul", inverse, graph.constant(-10000.0))


def encoder(vocabulary=30522, seed=384):
    graph = Graph(seed)
    x = embeddings(graph, vocabulary)
    mask = additive_mask(graph)
    for layer in range(LAYERS):
        graph.scope = f"/layer.{layer}/attention"
        attended = graph.op("Add", x, graph.attention(x, mask))
        x = graph.layer_norm("norm", attended)
        graph.scope = f"/layer.{layer}/mlp"
        inner = graph.gelu(graph.linear("in", x, WIDTH, INNER))
        x = graph.layer_norm("norm", graph.op("Add", x, graph.linear("out", inner, INNER, WIDTH)))
    graph.scope = ""
    graph.nodes.append(helper.make_node("Identity", [x], ["last_hidden_state"], name="output"))
    shape = ["batch", "length"]
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, shape)
              for name in ("input_ids", "attention_mask", "token_type_ids")]
    output = helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, shape + [WIDTH])
    body = helper.make_graph(graph.nodes, "encoder", inputs, [output], graph.weights)
    model = helper.make_model(body, opset_imports=[helper.make_opsetid("", 14)], ir_version=8,
                              producer_name="export_minilm")
    onnx.checker.check_model(model)
    return model


def main():
    parser = argparse.ArgumentParser(description="write a MiniLM-like encoder")
    parser.add_argument("out")
    parser.add_argument("--vocabulary", type=int, default=30522)
    options = parser.parse_args()
    onnx.save(encoder(options.vocabulary), options.out)


if __name__ == "__main__":
    main()
