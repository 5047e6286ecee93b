"""The models that the benchmark times, each with fixed shapes, inputs and expected outputs.

Every model becomes a folder under .cache/bench/ (made once, anew when its recipe changes):

    model.onnx    what every contender reads; input shapes fixed
    inputs.npz    arrays named 0, 1, ... in the graph's order of inputs
    expected.npz  the same for the outputs, by ONNX Runtime
    facts.json    names, dtypes and shapes of both, and the nominal floating-point work

The expected outputs of a quantized model come from a session without graph optimizations,
which computes each QuantizeLinear and DequantizeLinear as it stands: contenders that stay in
integers round differently by a quantum, so these are held to the root mean square instead.

    python bench/models.py [NAME...]     makes them and prints the table
"""

import argparse
import functools
import hashlib
import inspect
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
CACHE = ROOT / ".cache" / "bench"
sys.path[:0] = [str(HERE), str(ROOT / "tests" / "lib"), str(ROOT / "tests" / "models")]

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

import architectures
import catalog
from suite import Failure, Skip

onnxruntime.set_default_logger_severity(3)

# Least geometric mean of (best runtime's time / tgc's time) that the project wants per set.
SETS = {"cnn": 1.35, "mobile": 1.25, "transformer": 1.1, "decode": 1.15, "small": 2.0,
        "int8": 1.3, "attention": 1.0}


@dataclass
class Model:
    name: str
    set: str
    make: Callable[[], object]      # an onnx.ModelProto, or the path of one
    feed: Callable[[], dict]        # input -> array
    quantized: bool = False

    def stamp(self):
        """Changes when the recipe does."""
        text = [self.name, recipe(self.make), recipe(self.feed), inspect.getsource(prepare)]
        return hashlib.sha256("\n".join(text).encode()).hexdigest()[:12]


def recipe(what):
    """The source of a function, and what a partial binds to it."""
    if isinstance(what, functools.partial):
        return "\n".join(recipe(part) for part in (what.func, *what.args))
    return inspect.getsource(what) if callable(what) else repr(what)


def from_catalog(name):
    return next(model for model in catalog.MODELS if model.name == name).locate()


def torchvision(name):
    return catalog.torchvision(name)()


def minilm():
    return catalog.minilm()()


def image():
    return {"image": catalog.photo(1, 224, 224, "torchvision")}


def sentence():
    return catalog.sentences((1, 128), 0, None)


def observation():
    return {"observation": catalog.seeded("mlp").standard_normal((1, 64)).astype(np.float32)}


def digits(batch):
    random = catalog.seeded("digits", batch)
    return {"image": random.random((batch, 1, 28, 28)).astype(np.float32)}


def frames():
    random = catalog.seeded("frames")
    feeds = {"features": random.standard_normal((1, 20, 40)).astype(np.float32)}
    for layer in range(2):
        feeds[f"h{layer}"] = np.tanh(random.standard_normal((1, 1, 64))).astype(np.float32)
        feeds[f"c{layer}"] = random.standard_normal((1, 1, 64)).astype(np.float32)
    return feeds


def decode_step():
    random = catalog.seeded("decode")
    feeds = {"input_ids": np.array([[464]], np.int64), "position_ids": np.array([[256]], np.int64)}
    for layer in range(12):
        for kind in ("key", "value"):
            feeds[f"past_{kind}_{layer}"] = random.standard_normal(
                (1, 12, 256, 64)).astype(np.float32)
    return feeds


def heads(tokens):
    random = catalog.seeded("heads", tokens)
    shape = (1, architectures.ATTENTION_HEADS, tokens, architectures.ATTENTION_SIZE)
    return {name: random.standard_normal(shape).astype(np.float32)
            for name in ("query", "key", "value")}


# --------------------------------------------------------------------------------- quantization


class Calibration:
    """Feeds of a model with their floats perturbed, for the quantizer to see ranges."""

    def __init__(self, feeds, count):
        random = catalog.seeded("calibration")
        self.rest = [{name: (array * random.uniform(0.7, 1.3)).astype(array.dtype)
                      if array.dtype.kind == "f" else array for name, array in feeds.items()}
                     for _ in range(count)]

    def get_next(self):
        return self.rest.pop() if self.rest else None


def quantized(float_model, feed, kinds):
    """Static QDQ as ONNX Runtime's own tool writes it: u8 activations, s8 weights per channel."""
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process
    folder = CACHE / f"quantize-{os.getpid()}"
    folder.mkdir(parents=True)
    try:
        feeds = feed()
        onnx.save(with_fixed_inputs(onnx.load(float_model()), feeds), folder / "float.onnx")
        quant_pre_process(folder / "float.onnx", folder / "ready.onnx", skip_symbolic_shape=True)
        quantize_static(folder / "ready.onnx", folder / "quantized.onnx", Calibration(feeds, 4),
                        quant_format=QuantFormat.QDQ, op_types_to_quantize=kinds,
                        per_channel=True, activation_type=QuantType.QUInt8,
                        weight_type=QuantType.QInt8)
        return onnx.load(folder / "quantized.onnx")
    finally:
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()


# ---------------------------------------------------------------------------------------- table


def make_list():
    part = functools.partial
    from_images = [("cnn", "resnet18"), ("cnn", "resnet50"), ("cnn", "vgg16"),
                   ("cnn", "squeezenet1_1"), ("cnn", "densenet121"), ("cnn", "inception_v3"),
                   ("mobile", "mobilenet_v2"), ("mobile", "mobilenet_v3_small"),
                   ("mobile", "efficientnet_b0")]
    table = [Model(name, kind, part(torchvision, name), image) for kind, name in from_images]
    table += [
        Model("minilm_128", "transformer", minilm, sentence),
        Model("vit_b_16", "transformer", part(torchvision, "vit_b_16"), image),
        Model("gpt2_decode", "decode", part(architectures.gpt2_decode, 256), decode_step),
        Model("policy_mlp", "small", part(architectures.policy_mlp, 1), observation),
        Model("mnist_cnn", "small", part(architectures.mnist_cnn, 1), part(digits, 1)),
        Model("mnist_cnn_b64", "small", part(architectures.mnist_cnn, 64), part(digits, 64)),
        Model("lstm_vad", "small", part(architectures.lstm_vad, 20), frames),
        Model("magika", "small", part(from_catalog, "magika"),
              lambda: catalog.file_bytes(1)),
        Model("swift_f0", "small", part(from_catalog, "swift_f0"),
              lambda: catalog.swift_f0(16000, 0, None)),
        Model("basic_pitch", "small", part(from_catalog, "basic_pitch"),
              lambda: catalog.basic_pitch(1, 0, None)),
        # The variant without If: with its shapes fixed, the branch of the other rate of the usual
        # file is ill-formed, and ONNX Runtime refuses it.
        Model("silero_vad", "small", part(from_catalog, "silero_vad_op18_ifless"),
              lambda: catalog.silero()(None, 0, None)),
        Model("resnet50_int8", "int8", part(quantized, part(torchvision, "resnet50"), image,
                                            ["Conv", "Gemm", "Add", "MaxPool",
                                             "GlobalAveragePool"]), image, quantized=True),
        Model("minilm_int8", "int8", part(quantized, minilm, sentence, ["MatMul", "Gemm"]), sentence,
              quantized=True),
    ]
    table += [Model(f"attention_{form}_{tokens}", "attention",
                    part(architectures.attention, tokens, form), part(heads, tokens))
              for tokens in (128, 256, 512, 1024, 2048, 4096)
              for form in ("bare", "causal", "window")]
    return table


MODELS = make_list()


# --------------------------------------------------------------------------------------- making


def with_fixed_inputs(model, feeds):
    """Every declared input gets its feed's shape; what the file says of other tensors goes."""
    weights = {tensor.name for tensor in model.graph.initializer}
    kept = [value for value in model.graph.input if value.name not in weights]
    del model.graph.input[:]
    for value in kept:
        shape = value.type.tensor_type.shape
        del shape.dim[:]
        for size in feeds[value.name].shape:
            shape.dim.add().dim_value = size
        model.graph.input.append(value)
    del model.graph.value_info[:]
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    return model


def nominal_flop(model):
    """Two per multiply-add of every contraction at the top level; None if a shape is unknown."""
    graph = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    shapes = {value.name: [d.dim_value for d in value.type.tensor_type.shape.dim]
              for group in (graph.input, graph.value_info, graph.output) for value in group
              if value.type.tensor_type.HasField("shape")}
    shapes.update((tensor.name, list(tensor.dims)) for tensor in graph.initializer)
    total = 0
    for node in graph.node:
        if node.op_type not in CONTRACTIONS:
            if node.op_type in ("If", "Loop", "Scan"):
                return None
            continue
        found = [shapes.get(name) for name in (*node.input[:3], node.output[0])]
        if any(not shape or 0 in shape for shape in found[:2] + found[-1:]):
            return None
        total += CONTRACTIONS[node.op_type](node, found)
    return total


def conv_flop(node, shapes):
    return 2 * int(np.prod(shapes[-1])) * int(np.prod(shapes[1][1:]))


def transposed_conv_flop(node, shapes):
    return 2 * int(np.prod(shapes[0])) * int(np.prod(shapes[1][1:]))


def gemm_flop(node, shapes):
    inner = next((a.i for a in node.attribute if a.name == "transA"), 0)
    return 2 * int(np.prod(shapes[-1])) * shapes[0][0 if inner else -1]


def matmul_flop(node, shapes):
    return 2 * int(np.prod(shapes[-1])) * shapes[0][-1]


def recurrent_flop(node, shapes):
    length, batch = shapes[0][:2]
    return 2 * length * batch * (int(np.prod(shapes[1])) + int(np.prod(shapes[2])))


CONTRACTIONS = {"Conv": conv_flop, "ConvTranspose": transposed_conv_flop, "Gemm": gemm_flop,
                "MatMul": matmul_flop, "LSTM": recurrent_flop, "GRU": recurrent_flop,
                "RNN": recurrent_flop}


def describe(names, arrays):
    return [{"name": name, "dtype": array.dtype.name, "shape": list(array.shape)}
            for name, array in zip(names, arrays)]


def expected_outputs(path, feeds, exactly):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = len(os.sched_getaffinity(0))
    if exactly:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return names, session.run(None, feeds)


def prepare(model):
    """The model's folder, made if it is not there. Raises Skip where its source is missing."""
    folder = CACHE / f"{model.name}-{model.stamp()}"
    if (folder / "facts.json").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    made = model.make()
    made = made if isinstance(made, onnx.ModelProto) else onnx.load(made)
    feeds = model.feed()
    made = with_fixed_inputs(made, feeds)
    order = [value.name for value in made.graph.input]
    onnx.save(made, folder / "model.onnx")
    names, outputs = expected_outputs(folder / "model.onnx", feeds, model.quantized)
    for name, output in zip(names, outputs):
        if output.dtype.kind == "f" and not np.isfinite(output).all():
            raise Failure(f"{model.name}: the reference's {name} is not finite")
    inputs = [np.array(feeds[name], order="C") for name in order]
    np.savez(folder / "inputs.npz", **{str(k): array for k, array in enumerate(inputs)})
    np.savez(folder / "expected.npz", **{str(k): array for k, array in enumerate(outputs)})
    facts = {"name": model.name, "set": model.set, "quantized": model.quantized,
             "flop": nominal_flop(made), "nodes": len(made.graph.node),
             "parameter_bytes": sum(numpy_helper.to_array(t).nbytes
                                    for t in made.graph.initializer),
             "inputs": describe(order, inputs), "outputs": describe(names, outputs)}
    (folder / "facts.json.part").write_text(json.dumps(facts, indent=1) + "\n")
    os.replace(folder / "facts.json.part", folder / "facts.json")
    return folder


def load_arrays(path):
    with np.load(path) as archive:
        return [archive[str(k)] for k in range(len(archive.files))]


def main():
    parser = argparse.ArgumentParser(description="make the benchmark's models")
    parser.add_argument("names", nargs="*", default=[model.name for model in MODELS])
    for name in parser.parse_args().names:
        model = next((m for m in MODELS if m.name == name), None)
        if model is None:
            sys.exit(f"no model {name}; there are: {' '.join(m.name for m in MODELS)}")
        try:
            facts = json.loads((prepare(model) / "facts.json").read_text())
        except (Failure, Skip) as reason:
            print(f"{name:20s} {' '.join(str(reason).split())[:200]}", flush=True)
            continue
        flop = f"{facts['flop'] / 1e6:.2f} MFLOP" if facts["flop"] else "? MFLOP"
        print(f"{name:20s} {model.set:12s} {facts['nodes']:5d} nodes "
              f"{facts['parameter_bytes'] / 1e6:8.1f} MB {flop:>16s}", flush=True)


if __name__ == "__main__":
    main()
