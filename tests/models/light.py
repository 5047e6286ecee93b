"""The onnx package's `light` models with weights of a sane scale in place of constants.

They come as architectures: every weight is a ConstantOfShape. Each is replaced by a drawn
tensor whose scale follows from the operator that reads it; batch normalization gets the statistics that
an image brings there, jittered, without which the signal drowns in the biases; and the last
matrix is scaled so that the softmax at the end neither saturates nor is flat.
"""

import os
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

onnxruntime.set_default_logger_severity(3)

NAMES = ["bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet",
         "squeezenet", "vgg19", "zfnet512"]


def path(name):
    return Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / f"light_{name}.onnx"


def _draw(random, shape, consumer, position):
    """A tensor for that input of that operator."""
    if consumer in ("Conv", "Gemm", "MatMul") and position == 1:
        fan_in = int(np.prod(shape[1:])) if consumer != "MatMul" else shape[0]
        return random.standard_normal(shape) * (2.0 / fan_in) ** 0.5
    if consumer == "BatchNormalization":
        return {1: random.uniform(0.7, 1.3, shape), 2: 0.1 * random.standard_normal(shape),
                3: 0.1 * random.standard_normal(shape), 4: random.uniform(0.7, 1.4, shape)}[position]
    if consumer == "Mul":
        return random.uniform(0.7, 1.3, shape)
    return 0.1 * random.standard_normal(shape)  # biases, and shifts after a Mul


def _readers(graph):
    """tensor -> (operator, input position) of its first reader that is not an Unsqueeze."""
    readers = {}
    for node in reversed(graph.node):
        for position, name in enumerate(node.input):
            if node.op_type == "Unsqueeze":
                readers[name] = readers.get(node.output[0], (node.op_type, 0))
            else:
                readers[name] = (node.op_type, position)
    return readers


def with_weights(name):
    model = onnx.load(path(name))
    graph = model.graph
    shapes = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    readers = _readers(graph)
    random = np.random.default_rng(sum(name.encode()))
    kept = []
    for node in graph.node:
        if node.op_type != "ConstantOfShape":
            kept.append(node)
            continue
        consumer, position = readers[node.output[0]]
        values = _draw(random, [int(n) for n in shapes[node.input[0]]], consumer, position)
        graph.initializer.append(numpy_helper.from_array(values.astype(np.float32),
                                                         node.output[0]))
    del graph.node[:]
    graph.node.extend(kept)
    used = {i for node in kept for i in node.input}
    for group in (graph.initializer, graph.input):
        for entry in [e for e in group if e.name not in used]:
            group.remove(entry)
    # The format of these files wants every weight among the inputs too; tools since do not.
    weights = {t.name for t in graph.initializer}
    for entry in [e for e in graph.input if e.name in weights]:
        graph.input.remove(entry)
    model.ir_version = max(model.ir_version, 4)
    _measure_norms(model, random)
    _calm_the_softmax(model)
    return model


def _spelled_norm(node, number):
    """A BatchNormalization by its own input's statistics; returns nodes, mean, variance."""
    x, scale, bias = node.input[:3]
    names = {key: f"norm{number}_{key}" for key in
             ("mean", "centred", "square", "variance", "above_zero", "deviation", "unit",
              "scale", "bias", "scaled")}
    make = helper.make_node
    nodes = [make("ReduceMean", [x], [names["mean"]], axes=[0, 2, 3]),
             make("Sub", [x, names["mean"]], [names["centred"]]),
             make("Mul", [names["centred"]] * 2, [names["square"]]),
             make("ReduceMean", [names["square"]], [names["variance"]], axes=[0, 2, 3]),
             make("Clip", [names["variance"]], [names["above_zero"]], min=1e-5),
             make("Sqrt", [names["above_zero"]], [names["deviation"]]),
             make("Div", [names["centred"], names["deviation"]], [names["unit"]]),
             make("Unsqueeze", [scale], [names["scale"]], axes=[0, 2, 3]),
             make("Unsqueeze", [bias], [names["bias"]], axes=[0, 2, 3]),
             make("Mul", [names["unit"], names["scale"]], [names["scaled"]]),
             make("Add", [names["scaled"], names["bias"]], [node.output[0]])]
    return nodes, names["mean"], names["variance"]


def _measure_norms(model, random):
    """Sets every BatchNormalization's statistics to what one image brings there, jittered."""
    probe = onnx.ModelProto()
    probe.CopyFrom(model)
    del probe.graph.node[:], probe.graph.output[:], probe.graph.value_info[:]
    measured = []
    for number, node in enumerate(model.graph.node):
        if node.op_type != "BatchNormalization":
            probe.graph.node.append(node)
            continue
        nodes, mean, variance = _spelled_norm(node, number)
        probe.graph.node.extend(nodes)
        probe.graph.output.extend(onnx.ValueInfoProto(name=name) for name in (mean, variance))
        measured.extend(node.input[3:5])
    if not measured:
        return
    feed = {image_input(model.graph).name: image(model.graph, 0)}
    session = onnxruntime.InferenceSession(probe.SerializeToString())
    values = {name: value.ravel() for name, value in zip(measured, session.run(None, feed))}
    for is_variance, name in zip([False, True] * len(measured), measured):
        if is_variance:
            values[name] = values[name] * random.uniform(0.8, 1.25, values[name].shape) + 1e-3
    for tensor in model.graph.initializer:
        if tensor.name in values:
            tensor.CopyFrom(numpy_helper.from_array(values[tensor.name].astype(np.float32),
                                                    tensor.name))


def _calm_the_softmax(model):
    """Scales the last matrix until the logits have a deviation of about two."""
    graph = model.graph
    softmax = [node for node in graph.node if node.op_type == "Softmax"]
    last = [node for node in graph.node if node.op_type in ("Conv", "Gemm")][-1]
    watched = softmax[-1].input[0] if softmax else graph.output[0].name
    probe = onnx.ModelProto()
    probe.CopyFrom(model)
    del probe.graph.output[:]
    probe.graph.output.append(onnx.ValueInfoProto(name=watched))
    session = onnxruntime.InferenceSession(probe.SerializeToString())
    feed = {image_input(graph).name: image(graph, 0)}
    deviation = float(np.std(session.run(None, feed)[0]))
    assert np.isfinite(deviation) and deviation > 0
    for tensor in graph.initializer:
        if tensor.name in last.input[1:]:
            scaled = numpy_helper.to_array(tensor) * np.float32(2.0 / deviation)
            tensor.CopyFrom(numpy_helper.from_array(scaled, tensor.name))


def image_input(graph):
    weights = {tensor.name for tensor in graph.initializer}
    return next(value for value in graph.input if value.name not in weights)


def image(graph, seed):
    shape = [d.dim_value for d in image_input(graph).type.tensor_type.shape.dim]
    random = np.random.default_rng(seed)
    coarse = random.standard_normal((1, shape[1], 14, 14))
    smooth = np.kron(coarse, np.ones((shape[2] // 14, shape[3] // 14)))
    return (smooth + 0.3 * random.standard_normal(shape)).astype(np.float32)


def write(name, target):
    onnx.save(with_weights(name), str(target) + ".part")
    os.replace(str(target) + ".part", target)
