"""Writes digits.h: 300 noisy pictures of ten digits, which the board learns, and 60 that it never sees, a byte for each of 64 grey values."""

import numpy as np

rows = "0e11111111110e 040c040404040e 0e11010608101f 1e01010e01011e 02060a121f0202 1f101e0101111e 0610101e11110e 1f010204080808 0e11110e11110e 0e11110f01020c"
glyphs = np.zeros((10, 8, 8), np.float32)
for k, row in enumerate(rows.split()):
    for y, byte in enumerate(bytes.fromhex(row)):
        glyphs[k, y, :5] = [byte >> (4 - x) & 1 for x in range(5)]

rng = np.random.default_rng(0)
lines = ["enum { LEARNED = 300, NEW = 60 };", "static const unsigned char picture[LEARNED + NEW][64] = {"]
for digit in rng.integers(0, 10, 360):
    image = np.roll(glyphs[digit], (rng.integers(0, 2), rng.integers(0, 3)), (0, 1)) * 200 + 10 * rng.standard_normal((8, 8))
    lines.append("    {" + ",".join(str(v) for v in image.clip(0, 255).astype(int).ravel()) + "},")
with open("digits.h", "w") as f:
    f.write("\n".join([*lines, "};"]) + "\n")
