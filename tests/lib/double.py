"""ONNX models in double precision: what errors are measured against.

The onnx package's reference implementation runs the model after its floats have become doubles;
convolutions and pooling are done here by NumPy's products, which is a hundred times as fast.
"""

import numpy as np
import onnx
from numpy.lib.stride_tricks import sliding_window_view
from onnx import TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

WIDER = {TensorProto.FLOAT: TensorProto.DOUBLE}


def wide_tensor(tensor):
    if tensor.data_type == TensorProto.FLOAT:
        array = numpy_helper.to_array(tensor).astype(np.float64)
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def wide_type(kind):
    if kind.HasField("tensor_type"):
        kind.tensor_type.elem_type = WIDER.get(kind.tensor_type.elem_type,
                                               kind.tensor_type.elem_type)


def wide_graph(graph):
    for tensor in graph.initializer:
        wide_tensor(tensor)
    for value in (*graph.input, *graph.output, *graph.value_info):
        wide_type(value.type)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                wide_tensor(attribute.t)
            elif attribute.type == onnx.AttributeProto.GRAPH:
                wide_graph(attribute.g)
            elif attribute.name == "to" and node.op_type == "Cast":
                attribute.i = WIDER.get(attribute.i, attribute.i)


def borders(auto_pad, pads, size, kernel, strides, dilations):
    count = len(kernel)
    if auto_pad in (None, "", "NOTSET"):
        pads = pads or [0] * 2 * count
        return list(zip(pads[:count], pads[count:]))
    if auto_pad == "VALID":
        return [(0, 0)] * count
    result = []
    for n, k, s, d in zip(size, kernel, strides, dilations):
        total = max(0, (-(-n // s) - 1) * s + (k - 1) * d + 1 - n)
        low = (total + (auto_pad == "SAME_LOWER")) // 2
        result.append((low, total - low))
    return result


def windows(x, kernel, strides, dilations, border, fill):
    """[N, C, outputs..., taps...]"""
    axes = tuple(range(2, x.ndim))
    x = np.pad(x, [(0, 0), (0, 0), *border], constant_values=fill)
    span = [(k - 1) * d + 1 for k, d in zip(kernel, dilations)]
    x = sliding_window_view(x, span, axes)
    step = [slice(None, None, s) for s in strides]
    taps = [slice(None, None, d) for d in dilations]
    return x[(slice(None), slice(None), *step, *taps)]


class Conv(OpRun):
    def _run(self, x, w, b=None, auto_pad=None, dilations=None, group=None, kernel_shape=None,
             pads=None, strides=None):
        count, group = x.ndim - 2, group or 1
        kernel, strides, dilations = w.shape[2:], strides or [1] * count, dilations or [1] * count
        border = borders(auto_pad, pads, x.shape[2:], kernel, strides, dilations)
        each, parts = w.shape[0] // group, []
        for g in range(group):
            part = windows(x[:, g * w.shape[1]:(g + 1) * w.shape[1]], kernel, strides, dilations,
                           border, 0)
            axes = ([1, *range(2 + count, 2 + 2 * count)], list(range(1, 2 + count)))
            parts.append(np.moveaxis(np.tensordot(part, w[g * each:(g + 1) * each], axes), -1, 1))
        y = np.concatenate(parts, 1)
        return (y if b is None else y + b.reshape(1, -1, *[1] * count),)


class MaxPool(OpRun):
    def _run(self, x, auto_pad=None, ceil_mode=None, dilations=None, kernel_shape=None, pads=None,
             storage_order=None, strides=None):
        count = x.ndim - 2
        strides, dilations = strides or [1] * count, dilations or [1] * count
        border = borders(auto_pad, pads, x.shape[2:], kernel_shape, strides, dilations)
        if ceil_mode:
            border = [(lo, hi + (lo + hi + n - (k - 1) * d - 1) % s and hi + s - 1)
                      for (lo, hi), n, k, s, d in zip(border, x.shape[2:], kernel_shape, strides,
                                                      dilations)]
        part = windows(x, kernel_shape, strides, dilations, border, -np.inf)
        return (part.max(tuple(range(2 + count, 2 + 2 * count))),)


class GlobalMaxPool(OpRun):
    """The reference implementation's result lacks the axes of length 1 that it should keep."""
    def _run(self, x):
        return (x.max(tuple(range(2, x.ndim)), keepdims=True),)


def run(path, feeds):
    """The outputs by name of the model at `path`, all floats being doubles."""
    model = onnx.load(path)
    wide_graph(model.graph)
    wide = {name: array.astype(np.float64) if array.dtype == np.float32 else array
            for name, array in feeds.items()}
    session = ReferenceEvaluator(model, new_ops=[Conv, MaxPool, GlobalMaxPool])
    return dict(zip(session.output_names, session.run(None, wide)))
