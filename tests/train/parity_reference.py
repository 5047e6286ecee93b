"""Networks in PyTorch for parity_test.py, by the interpreter that has it: reads a list of what to do as JSON from standard input. Each is
written as m.onnx, as PyTorch exports it, with its data d.npz, and trained by AdamW; prints the losses of all steps of each as JSON."""

import json
import sys
import warnings

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, width, heads, causal):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        n, steps, width = x.shape
        q, k, v = (m.reshape(n, steps, self.heads, width // self.heads).transpose(1, 2) for m in self.qkv(x).chunk(3, 2))
        scores = q @ k.transpose(2, 3) * (width // self.heads) ** -0.5
        if self.causal:
            scores = scores.masked_fill(torch.ones(steps, steps).triu(1).bool(), float("-inf"))
        return self.out((scores.softmax(3) @ v).transpose(1, 2).reshape(n, steps, width))


class Block(nn.Module):
    def __init__(self, width, heads, causal):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, causal)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    """Characters -> scores of the next one; the table of characters is the last layer's, too."""

    def __init__(self, letters, steps, width, layers, heads):
        super().__init__()
        self.table, self.place = nn.Embedding(letters, width), nn.Parameter(torch.zeros(steps, width))
        self.blocks = nn.Sequential(*(Block(width, heads, True) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        nn.init.normal_(self.table.weight, 0, 0.02)
        nn.init.normal_(self.place, 0, 0.02)

    def forward(self, x):
        return F.linear(self.norm(self.blocks(self.table(x) + self.place)), self.table.weight)


class LSTM(nn.Module):
    """Characters -> scores of the next one."""

    def __init__(self, letters, steps, width, layers):
        super().__init__()
        self.table, self.cells = nn.Embedding(letters, width), nn.LSTM(width, width, layers, batch_first=True)
        self.out = nn.Linear(width, letters)

    def forward(self, x):
        return self.out(self.cells(self.table(x))[0])


class ViT(nn.Module):
    """Pictures, in squares of `patch` pixels -> scores of classes, from a token of its own."""

    def __init__(self, size, patch, width, layers, heads, classes):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        self.place = nn.Parameter(torch.randn(1, (size // patch) ** 2 + 1, width) * 0.02)
        self.blocks = nn.Sequential(*(Block(width, heads, False) for _ in range(layers)))
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.place
        return self.out(self.norm(self.blocks(x))[:, 0])


def characters(text, steps, n):
    """n places of the text, each with the place after it."""
    letters = sorted(set(text))
    numbers = torch.tensor([letters.index(c) for c in text])
    at = torch.randint(0, len(text) - steps - 1, (n, 1)) + torch.arange(steps + 1)
    return len(letters), numbers[at[:, :-1]], numbers[at[:, 1:]]


def steps_of(todo):
    torch.manual_seed(0)
    shape, n = todo["shape"], todo["batch"]
    if todo["network"] == "vit":
        x, target = torch.randn(n, 3, shape["size"], shape["size"]), torch.randint(0, shape["classes"], (n,))
        network = ViT(**shape)
    else:
        letters, x, target = characters(todo["text"], shape["steps"], n)
        network = {"gpt": GPT, "lstm": LSTM}[todo["network"]](letters, **shape)
    axes = {"x": {0: "n"}, "y": {0: "n"}}
    torch.onnx.export(network, x, f"{todo['folder']}/m.onnx", input_names=["x"], output_names=["y"], dynamic_axes=axes, opset_version=17,
                      do_constant_folding=False, training=torch.onnx.TrainingMode.TRAINING)
    np.savez(f"{todo['folder']}/d.npz", x=x.numpy(), target=target.numpy())
    parameters = list(network.parameters())
    optimizer = torch.optim.AdamW([{"params": [p for p in parameters if p.ndim >= 2], "weight_decay": 0.1},
                                   {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0}], todo["lr"], (0.9, 0.95))
    losses = []
    for _ in range(todo["steps"]):
        optimizer.zero_grad()
        loss = F.cross_entropy(network(x).flatten(0, -2), target.flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    said, sys.stdout = sys.stdout, sys.stderr   # the exporter talks
    json.dump([steps_of(todo) for todo in json.load(sys.stdin)], said)
