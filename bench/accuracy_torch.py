"""A network of accuracy.py in PyTorch, by the interpreter that has it: reads the training as JSON from standard input, w.npz, train.npz
and valid.npz from the working folder; prints the share of the held-out samples that is right."""

import json
import math
import sys

import numpy as np
import torch
from torch.nn import functional as F


def arrays(name):
    return {key: torch.tensor(value) for key, value in np.load(name).items()}


def forward(how, w, state, x, training):
    for k, (pad, pools) in enumerate(how["layers"]):
        x = F.relu(F.conv2d(x, w[f"w{k}"], w[f"b{k}"], padding=pad))
        if pools:
            x = F.batch_norm(x, state[f"mean{k}"], state[f"var{k}"], w[f"scale{k}"], w[f"shift{k}"], training=training, momentum=0.1)
            x = F.max_pool2d(x, 2)
    return F.linear(x.flatten(1), w["w"], w["b"])


def shifted(x, most):
    """Each picture by up to so many pixels, with zeros behind it."""
    wide, size = F.pad(x, (most,) * 4), x.shape[-1]
    at = torch.randint(0, 2 * most + 1, (len(x), 2)).tolist()
    return torch.stack([one[:, i:i + size, j:j + size] for one, (i, j) in zip(wide, at)])


def main():
    torch.set_num_threads(1)
    how = json.load(sys.stdin)
    torch.manual_seed(how["seed"])
    w, train, valid = arrays("w.npz"), arrays("train.npz"), arrays("valid.npz")
    state = {name: w.pop(name) for name in list(w) if name.startswith(("mean", "var"))}
    w = {name: x.requires_grad_() for name, x in w.items()}
    n, batch = len(train["x"]), how["batch"]
    optimizer = torch.optim.Adam(w.values(), lr=how["lr"])
    total, step = how["epochs"] * -(-n // batch), 0
    for _ in range(how["epochs"]):
        for part in torch.randperm(n).split(batch):
            for group in optimizer.param_groups:
                group["lr"] = how["lr"] * (1 + math.cos(math.pi * step / total)) / 2
            x = shifted(train["x"][part], how["shift"]) if how["shift"] else train["x"][part]
            optimizer.zero_grad()
            F.cross_entropy(forward(how, w, state, x, True), train["target"][part]).backward()
            optimizer.step()
            step += 1
    with torch.no_grad():
        right = forward(how, w, state, valid["x"], False).argmax(1) == valid["target"]
    print(right.double().mean().item())


main()
