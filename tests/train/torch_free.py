"""A convolution by NumPy, for what train_test.py checks without PyTorch."""

import numpy as np


def conv_relu(x, w, b):
    """3x3, stride 1, padded by 1."""
    x = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    h, width = x.shape[2] - 2, x.shape[3] - 2
    y = sum(np.einsum("nchw,oc->nohw", x[:, :, i:i + h, j:j + width], w[:, :, i, j]) for i in range(3) for j in range(3))
    return np.maximum(y + b[:, None, None], 0)
