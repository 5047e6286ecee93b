"""What functions give exactly, in x87's 64-bit significands, and how far results are from that, in
units in the last place; the errors that docs/ulp.md states."""

from pathlib import Path

import ml_dtypes
import numpy as np

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "ulp.md"
LONG = np.longdouble
F16, BF16, F32, F64 = (np.dtype(d) for d in (np.float16, ml_dtypes.bfloat16, np.float32,
                                             np.float64))


def exact_erf(x):
    """By the series whose terms have one sign: 2 / sqrt(pi) exp(-x^2) sum (2 x^2)^n x / (2n+1)!!"""
    term = total = np.minimum(np.abs(x), LONG(7))
    square = term * term
    scale = np.exp(-square)
    for n in range(1, 250):
        term = term * 2 * square / (2 * n + 1)
        total = total + term
    return np.copysign(total * scale * 2 / np.sqrt(LONG("3.14159265358979323846264338")), x)


FUNCTIONS = {
    "Acos": np.arccos, "Acosh": np.arccosh, "Asin": np.arcsin, "Asinh": np.arcsinh,
    "Atan": np.arctan, "Atanh": np.arctanh, "Cos": np.cos, "Cosh": np.cosh, "Erf": exact_erf,
    "Exp": np.exp, "Log": np.log, "Reciprocal": lambda x: 1 / x,
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)), "Sin": np.sin, "Sinh": np.sinh,
    "Softplus": lambda x: np.logaddexp(x, LONG(0)), "Softsign": lambda x: x / (1 + np.abs(x)),
    "Sqrt": np.sqrt, "Tan": np.tan, "Tanh": np.tanh,
}

# Where the result is below the smallest normal number, it may be 0.
NORMAL_ONLY = {"Sigmoid"}


def ulps(y, exact, d):
    """|y - exact| in units in the last place of exact, where that is in the type's range."""
    info = ml_dtypes.finfo(d)
    bits = {F16: 11, BF16: 8, F32: 24, F64: 53}[d]
    inside = np.isfinite(exact) & (np.abs(exact) <= LONG(info.max))
    exponent = np.frexp(np.where(inside, exact, 1))[1]
    unit = np.ldexp(LONG(1), np.maximum(exponent, np.frexp(LONG(info.smallest_normal))[1]) - bits)
    error = np.where(inside, np.abs(y.astype(F64).astype(LONG) - exact) / unit, 0)
    nan = np.isnan(exact) != np.isnan(y.astype(F64))
    return np.where(nan | np.isnan(error) & inside, np.inf, error)


COLUMNS = [F64, F32, F16, BF16]


def documented():
    table = {}
    for line in DOCUMENT.read_text().splitlines() if DOCUMENT.exists() else []:
        cells = [c.strip() for c in line.strip("|").split("|")]
        if cells[0] in FUNCTIONS:
            table[cells[0]] = dict(zip(COLUMNS, (float(c) for c in cells[1:])))
    return table
