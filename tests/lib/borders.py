"""What stands at the border of a model's graph as tensors: those that programs take and give."""

import numpy as np
import onnx
from onnx import numpy_helper

from suite import Failure


class Unfit(Failure):
    """The test cannot be put as tensors in .npy files."""


def graph_inputs(model):
    """Weights stand among the inputs of old files; the data is for the others."""
    weights = {tensor.name for tensor in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in weights]


def border(declared, values):
    """Tensors, as the program takes and gives them, of what the model declares: (name, array)
    pairs; and the options that say how many and of which shapes a sequence or optional has."""
    pairs, options = [], []
    for info, value in zip(declared, values):
        kind = info.type.WhichOneof("value")
        if kind == "tensor_type":
            pairs.append((info.name, as_array(value)))
            shape = info.type.tensor_type.shape
            if any(not dim.HasField("dim_value") for dim in shape.dim):
                options.append(f"--shape={info.name}={'x'.join(map(str, pairs[-1][1].shape))}")
        elif value is None:
            options.append(f"--shape={info.name}=absent")
        elif isinstance(value, list):
            items = [as_array(item) for item in value]
            shapes = ["x".join(map(str, item.shape)) or "scalar" for item in items]
            options.append(f"--shape={info.name}=[{','.join(shapes)}]")
            pairs += [(f"{info.name}[{i}]", item) for i, item in enumerate(items)]
        else:
            pairs.append((info.name, as_array(value)))
    return pairs, options


def as_array(value):
    if isinstance(value, onnx.TensorProto):
        value = numpy_helper.to_array(value)
    if value is None or isinstance(value, (list, dict)):
        raise Unfit("a map has no .npy file")
    value = np.asarray(value)
    if value.dtype == object:
        value = value.astype(np.str_)
    return value
