"""A data set in MNIST's form, for who has none at hand: digits of five by seven dots, drawn somewhere in 28x28 pixels, with noise."""

import gzip
import struct

import numpy as np

ROWS = ("0e11131519110e 040c040404040e 0e11010204081f 1f02040201110e 02060a121f0202 1f101e0101110e 0608101e11110e 1f010204080808 "
        "0e11110e11110e 0e11110f01020c")
glyphs = [np.array([[byte >> (4 - x) & 1 for x in range(5)] for byte in bytes.fromhex(row)], np.float32) for row in ROWS.split()]


def idx(name, array):
    with gzip.open(name, "wb") as file:
        file.write(struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes())


rng = np.random.default_rng(0)
for name, n in ("train", 300), ("t10k", 100):
    labels = rng.integers(0, 10, n).astype(np.uint8)
    images = rng.integers(0, 60, (n, 28, 28))
    for image, label in zip(images, labels):
        y, x = rng.integers(2, 6), rng.integers(4, 12)
        image[y:y + 21, x:x + 10] += (180 * np.kron(glyphs[label], np.ones((3, 2)))).astype(int)
    idx(f"{name}-images-idx3-ubyte.gz", images.astype(np.uint8))
    idx(f"{name}-labels-idx1-ubyte.gz", labels)
