"""Trains the small network of models/digits.tg: 8x8 pictures of digits to ten scores.

The data is made here: ten drawn glyphs, shifted, thinned, blurred and covered with noise. The
network is 64-24-10 with ReLU; training is plain gradient descent with momentum and takes
seconds. Writes the text graph with its weights inline, rounded to three decimals, after it has
checked that the rounded network still reads at least 97 % of unseen pictures.

    python models/train_digits.py models/digits.tg
"""

import sys

import numpy as np

GLYPHS = """
.####... ...##... .####... .####... ....##.. .######. ..####.. .######. .####... .####...
##..##.. ..###... ##..##.. ##..##.. ...###.. .##..... .##..... .....##. ##..##.. ##..##..
##..##.. ...##... ....##.. ....##.. ..####.. .#####.. .##..... ....##.. ##..##.. ##..##..
##..##.. ...##... ...##... ..###... .##.##.. .....##. .#####.. ...##... .####... .#####..
##..##.. ...##... ..##.... ....##.. .######. .....##. .##..##. ...##... ##..##.. ....##..
##..##.. ...##... .##..... ##..##.. ....##.. .##..##. .##..##. ..##.... ##..##.. ....##..
.####... .######. ######.. .####... ....##.. ..####.. ..####.. ..##.... .####... .###....
........ ........ ........ ........ ........ ........ ........ ........ ........ ........
"""


def glyphs():
    rows = [line.split() for line in GLYPHS.strip().splitlines()]
    return np.array([[[c == "#" for c in row[d]] for row in rows] for d in range(10)], np.float32)


def pictures(random, count):
    labels = random.integers(0, 10, count)
    x = glyphs()[labels]
    for k in range(count):
        x[k] = np.roll(x[k], (random.integers(0, 2), random.integers(0, 2)), (0, 1))
    x *= random.random(x.shape) > 0.06
    blurred = (np.roll(x, 1, 1) + np.roll(x, -1, 1) + np.roll(x, 1, 2) + np.roll(x, -1, 2)) / 4
    mix = random.uniform(0, 0.4, (count, 1, 1))
    x = x * (1 - mix) + blurred * mix + 0.15 * random.standard_normal(x.shape)
    return np.clip(x, 0, 1).reshape(count, 64).astype(np.float32), labels


def forward(w, x):
    hidden = np.maximum(x @ w[0] + w[1], 0)
    return hidden, hidden @ w[2] + w[3]


def train(random):
    w = [random.standard_normal((64, 24)) * 0.15, np.zeros(24),
         random.standard_normal((24, 10)) * 0.2, np.zeros(10)]
    speed = [np.zeros_like(v) for v in w]
    for step in range(3000):
        x, labels = pictures(random, 100)
        hidden, scores = forward(w, x)
        p = np.exp(scores - scores.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        p[np.arange(len(p)), labels] -= 1
        p /= len(p)
        back = (p @ w[2].T) * (hidden > 0)
        for k, gradient in enumerate((x.T @ back, back.sum(0), hidden.T @ p, p.sum(0))):
            speed[k] = 0.9 * speed[k] - 0.1 * (1 - step / 3000) * (gradient + 1e-4 * w[k])
            w[k] = w[k] + speed[k]
    return [np.round(v, 3) for v in w]


def accuracy(w, x, labels):
    return float(np.mean(forward(w, x)[1].argmax(1) == labels))


def text_graph(w):
    """The network in the text format, its weights inline."""
    def values(array):
        numbers = [f"{v:.3f}".rstrip("0").rstrip(".") for v in array.ravel()]
        rows = [", ".join(numbers[k:k + 12]) for k in range(0, len(numbers), 12)]
        return "[\n    " + ",\n    ".join(rows) + "]"

    return f"""tg 1
# Reads a digit in a picture of 8x8 grey values from 0 to 1. Written by train_digits.py.
graph "digits"
input %picture : f32[1, 64] as "picture"
weight %w1 : f32[64, 24] as "hidden.weight" = {values(w[0])}
weight %b1 : f32[24] as "hidden.bias" = {values(w[1])}
weight %w2 : f32[24, 10] as "score.weight" = {values(w[2])}
weight %b2 : f32[10] as "score.bias" = {values(w[3])}
%h1 = matmul(%picture, %w1)
%h2 = add(%h1, %b1)
%hidden = relu(%h2)
%s1 = matmul(%hidden, %w2)
%scores = add(%s1, %b2)
%p = softmax(%scores) {{axis=1}}
output %p as "probabilities"
"""


def main():
    random = np.random.default_rng(2024)
    w = train(random)
    share = accuracy(w, *pictures(random, 5000))
    if share < 0.97:
        sys.exit(f"it reads only {100 * share:.1f} % of unseen pictures")
    with open(sys.argv[1], "w") as file:
        file.write(text_graph(w))
    print(f"{sys.argv[1]}: reads {100 * share:.1f} % of unseen pictures")


if __name__ == "__main__":
    main()
