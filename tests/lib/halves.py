"""Integers that are large, and what they are as f16 and bf16: rounded once, to even where two are as near."""

import ml_dtypes
import numpy as np
from onnx import TensorProto

from suite import expect

BF16 = np.dtype(ml_dtypes.bfloat16)
KINDS = (("f16", TensorProto.FLOAT16, np.dtype(np.float16)), ("bf16", TensorProto.BFLOAT16, BF16))
PRECISION = {"f16": 11, "bf16": 8}


def large(d):
    """Around ties of every size of the type, and its ends."""
    ends = np.iinfo(d)
    values = {0, 1, ends.min, ends.max, 65504, 65519, 65520}
    for bits in range(8, ends.bits):
        for precision in PRECISION.values():
            tie = 1 << bits | 1 << max(bits - precision, 0)
            values |= {tie - 1, tie, tie + 1, 3 * tie, -tie, -tie - 1}
    return np.array(sorted(v for v in values if ends.min <= v <= ends.max), d)


def rounded(v, precision):
    """The nearest number of so many bits."""
    size = abs(v)
    drop = max(size.bit_length() - precision, 0)
    kept, rest, half = size >> drop, size & (1 << drop) - 1, 1 << drop >> 1
    kept += drop > 0 and (rest > half or (rest == half and kept & 1 == 1))
    return (kept << drop) * (-1 if v < 0 else 1)


def check(x, got, name):
    for v, y in zip(x.tolist(), got.tolist()):
        want = rounded(v, PRECISION[name])
        if name == "f16" and abs(want) > 65504:
            want = np.inf if want > 0 else -np.inf
        expect(y == want, f"{v} as {name} is {y}, not {want}")
