"""Shows a drawn digit to the network of digits.onnx and prints what it sees, as main.c does."""
import numpy as np
import tgc

PICTURE = (".######."
           ".....##."
           "....##.."
           "...##..."
           "...##..."
           "..##...."
           "..##...."
           "........")

model = tgc.compile("../digits.onnx")
grey = np.array([[pixel == "#" for pixel in PICTURE]], np.float32)
p = model(grey)[0]
print(f"a {p.argmax()}, to {100 * p.max():.0f}%")
