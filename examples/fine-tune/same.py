"""Prints of each weight of two ONNX models whether it is the same in both."""

import sys

import onnx
from onnx import numpy_helper

first, second = ({w.name: numpy_helper.to_array(w) for w in onnx.load(name).graph.initializer} for name in sys.argv[1:])
for name, weight in first.items():
    print(name, "same" if (weight == second[name]).all() else "trained")
