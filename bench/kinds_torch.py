"""Exports networks that bench/kinds.py names, by the distribution's own torch and torchvision, with
random weights of a fixed seed. The blocks are those of the papers, written anew and shortened to
few layers, which repeat in the whole networks.

    /usr/bin/python3 bench/kinds_torch.py NAME OUT.onnx
"""

import sys
import warnings

import torch
import torchvision
from torch import nn
from torch.nn import functional as F

OPSET = 16


class Residual(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.norm, self.inner = nn.LayerNorm(width), inner

    def forward(self, x):
        return x + self.inner(self.norm(x))


def mlp(width, by=4):
    return nn.Sequential(nn.Linear(width, by * width), nn.GELU(), nn.Linear(by * width, width))


def split_heads(x, heads):
    batch, tokens, width = x.shape
    return x.reshape(batch, tokens, heads, width // heads).transpose(1, 2)


class Attention(nn.Module):
    """Of several heads; mixed: talking heads, mixed before the softmax and behind it, as in CaiT."""

    def __init__(self, width, heads, mixed=False):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.before = nn.Linear(heads, heads) if mixed else None
        self.behind = nn.Linear(heads, heads) if mixed else None

    def forward(self, x):
        q, k, v = (split_heads(part, self.heads) for part in self.qkv(x).chunk(3, -1))
        scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
        if self.before:
            scores = self.before(scores.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        scores = scores.softmax(-1)
        if self.behind:
            scores = self.behind(scores.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        y = (scores @ v).transpose(1, 2)
        return self.out(y.reshape(x.shape))


class Linformer(nn.Module):
    """Keys and values are sums over the tokens: `rank` of them."""

    def __init__(self, width, heads, tokens, rank):
        super().__init__()
        self.heads, self.out = heads, nn.Linear(width, width)
        self.q, self.k, self.v = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.down_k = nn.Parameter(torch.randn(tokens, rank) * tokens ** -0.5)
        self.down_v = nn.Parameter(torch.randn(tokens, rank) * tokens ** -0.5)

    def forward(self, x):
        q = split_heads(self.q(x), self.heads)
        k = split_heads(torch.einsum("bnd,nk->bkd", self.k(x), self.down_k), self.heads)
        v = split_heads(torch.einsum("bnd,nk->bkd", self.v(x), self.down_v), self.heads)
        scores = (torch.einsum("bhnd,bhkd->bhnk", q, k) * q.shape[-1] ** -0.5).softmax(-1)
        y = torch.einsum("bhnk,bhkd->bhnd", scores, v).transpose(1, 2)
        return self.out(y.reshape(x.shape))


class Probe(nn.Module):
    """Pooling by one query that is a weight, of one head."""

    def __init__(self, width):
        super().__init__()
        self.probe = nn.Parameter(torch.randn(1, 1, width))
        self.attention = nn.MultiheadAttention(width, 1, batch_first=True)
        self.mlp = Residual(width, mlp(width))

    def forward(self, x):
        scores = self.attention(self.probe.expand(x.shape[0], -1, -1), x, x, need_weights=False)[0]
        return self.mlp(scores)[:, 0]


class Factored(nn.Module):
    """CoaT's attention: keys are normalized over the tokens and meet the values first; a depthwise
    convolution of the values stands for their places."""

    def __init__(self, width, heads, side):
        super().__init__()
        self.heads, self.side = heads, side
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.place = nn.Conv2d(width, width, 3, padding=1, groups=width)

    def forward(self, x):
        q, k, v = (split_heads(part, self.heads) for part in self.qkv(x).chunk(3, -1))
        y = q @ (k.softmax(2).transpose(-1, -2) @ v) * q.shape[-1] ** -0.5
        image = v.transpose(1, 2).reshape(x.shape).transpose(1, 2)
        image = self.place(image.reshape(x.shape[0], -1, self.side, self.side)).flatten(2)
        y = y + q * split_heads(image.transpose(1, 2), self.heads)
        return self.out(y.transpose(1, 2).reshape(x.shape))


class Focal(nn.Module):
    """Focal modulation: depthwise contexts of growing windows, gated, and one of the whole image."""

    def __init__(self, width, side, levels=2):
        super().__init__()
        self.width, self.side, self.levels = width, side, levels
        self.f = nn.Linear(width, 2 * width + levels + 1)
        self.h, self.out = nn.Conv2d(width, width, 1), nn.Linear(width, width)
        self.context = nn.ModuleList(
            nn.Sequential(nn.Conv2d(width, width, 3 + 2 * k, padding=1 + k, groups=width, bias=False),
                          nn.GELU()) for k in range(levels))

    def forward(self, x):
        image = self.f(x).transpose(1, 2).reshape(x.shape[0], -1, self.side, self.side)
        q, context, gates = image.split((self.width, self.width, self.levels + 1), 1)
        every = 0
        for level, layer in enumerate(self.context):
            context = layer(context)
            every = every + context * gates[:, level:level + 1]
        whole = F.gelu(context.mean((2, 3), keepdim=True))
        y = q * self.h(every + whole * gates[:, self.levels:])
        return self.out(y.flatten(2).transpose(1, 2))


class Mobile(nn.Module):
    """EfficientFormerV2's attention over strided tokens: talking heads, a bias of places, values with a
    depthwise convolution."""

    def __init__(self, width, side, heads=8):
        super().__init__()
        self.heads, self.side, key = heads, side, 32
        self.q, self.k = nn.Conv2d(width, heads * key, 1), nn.Conv2d(width, heads * key, 1)
        self.v = nn.Conv2d(width, 4 * heads * key, 1)
        self.local = nn.Conv2d(4 * heads * key, 4 * heads * key, 3, padding=1, groups=4 * heads * key)
        self.bias = nn.Parameter(torch.randn(heads, side * side, side * side) * 0.1)
        self.before, self.behind = nn.Conv2d(heads, heads, 1), nn.Conv2d(heads, heads, 1)
        self.out = nn.Sequential(nn.GELU(), nn.Conv2d(4 * heads * key, width, 1))
        self.mlp = nn.Sequential(nn.Conv2d(width, 4 * width, 1), nn.GELU(),
                                 nn.Conv2d(4 * width, 4 * width, 3, padding=1, groups=4 * width),
                                 nn.GELU(), nn.Conv2d(4 * width, width, 1))

    def forward(self, x):
        n, v = self.side * self.side, self.v(x)
        q = self.q(x).reshape(1, self.heads, -1, n).transpose(-1, -2)
        scores = q @ self.k(x).reshape(1, self.heads, -1, n) * 32 ** -0.5 + self.bias
        scores = self.behind(self.before(scores).softmax(-1))
        y = scores @ v.reshape(1, self.heads, -1, n).transpose(-1, -2)
        y = y.transpose(-1, -2).reshape(1, -1, self.side, self.side) + self.local(v)
        x = x + self.out(y)
        return x + self.mlp(x)


class NonLocal(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.q, self.k, self.v = (nn.Conv2d(channels, channels // 2, 1) for _ in range(3))
        self.out, self.conv = nn.Conv2d(channels // 2, channels, 1), nn.Conv2d(channels, channels, 3,
                                                                               padding=1)

    def forward(self, x):
        x = F.relu(self.conv(x))
        q, k, v = self.q(x).flatten(2), self.k(x).flatten(2), self.v(x).flatten(2)
        scores = (q.transpose(1, 2) @ k).softmax(-1)
        y = (scores @ v.transpose(1, 2)).transpose(1, 2)
        return x + self.out(y.reshape(x.shape[0], -1, *x.shape[2:]))


class Window(nn.Module):
    """Longformer's sliding window: neighbours of each token by strides, which the exporter makes
    flat indices of."""

    def __init__(self, width, heads, tokens, window):
        super().__init__()
        self.heads, self.tokens, self.window, self.width = heads, tokens, window, width
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        places = torch.arange(tokens)[:, None] + torch.arange(-window, window + 1)[None]
        self.register_buffer("hidden", (places < 0) | (places >= tokens))

    def neighbours(self, x):
        """[tokens, heads, features] -> [tokens, places, heads, features]"""
        heads, features = x.shape[1:]
        padded = F.pad(x, (0, 0, 0, 0, self.window, self.window))
        return padded.as_strided((self.tokens, 2 * self.window + 1, heads, features),
                                 (heads * features, heads * features, features, 1))

    def forward(self, x):
        q, k, v = (part[0].reshape(self.tokens, self.heads, -1) for part in self.qkv(x).chunk(3, -1))
        k, v = self.neighbours(k), self.neighbours(v)
        scores = torch.einsum("thd,tphd->thp", q, k) * q.shape[-1] ** -0.5
        scores = scores.masked_fill(self.hidden[:, None], -1e4).softmax(-1)
        return self.out(torch.einsum("thp,tphd->thd", scores, v).reshape(x.shape))


class Groups(nn.Module):
    """Odd numbers of channels, some in groups."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 10, 3, padding=1), nn.ReLU(), nn.Conv2d(10, 10, 3, padding=1, groups=2),
            nn.ReLU(), nn.Conv2d(10, 17, 3, 2, 1), nn.ReLU(), nn.Conv2d(17, 33, 1), nn.ReLU(),
            nn.Conv2d(33, 33, 3, padding=1, groups=3), nn.ReLU(), nn.Conv2d(33, 33, 3, 2, 1, groups=33),
            nn.ReLU(), nn.Conv2d(33, 17, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(17, 10))

    def forward(self, x):
        return self.layers(x)


class Graph(nn.Module):
    """Graph convolution by a dense adjacency matrix that is an input."""

    def __init__(self, *widths):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(widths, widths[1:]))

    def forward(self, x, adjacency):
        for layer in self.layers:
            x = F.relu(adjacency @ layer(x))
        return x


class Spotter(nn.Module):
    """DS-CNN, keyword spotting: small depthwise layers."""

    def __init__(self, width=64):
        super().__init__()
        layers = [nn.Conv2d(1, width, (10, 4), 2, (5, 1)), nn.ReLU()]
        for _ in range(4):
            layers += [nn.Conv2d(width, width, 3, padding=1, groups=width), nn.ReLU(),
                       nn.Conv2d(width, width, 1), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 12))

    def forward(self, x):
        return self.layers(x)


class Recurrent(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.lstm = nn.LSTM(width, width)

    def forward(self, x):
        return self.lstm(x)[0]


class Patches(nn.Module):
    """A vision transformer of DeiT's tiny size."""

    def __init__(self, width=192, heads=3, layers=12):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 16, 16)
        self.first, self.place = (nn.Parameter(torch.randn(1, n, width) * 0.1) for n in (1, 197))
        self.layers = tokens(width, lambda: Attention(width, heads), layers)
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 1000))

    def forward(self, x):
        x = self.stem(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(x.shape[0], -1, -1), x], 1) + self.place
        return self.head(self.layers(x)[:, 0])


class Segments(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torchvision.models.segmentation.deeplabv3_mobilenet_v3_large(
            weights=None, weights_backbone=None)

    def forward(self, x):
        return self.inner(x)["out"]


def tokens(width, attention, layers):
    return nn.Sequential(*[Residual(width, inner) for _ in range(layers)
                           for inner in (attention(), mlp(width))])


NETWORKS = {
    "vit_tiny": (Patches, [(1, 3, 224, 224)]),
    "deeplab_mobile": (Segments, [(1, 3, 224, 224)]),
    "probe": (lambda: Probe(768), [(1, 577, 768)]),
    "linformer": (lambda: tokens(256, lambda: Linformer(256, 8, 512, 128), 4), [(1, 512, 256)]),
    "cait": (lambda: tokens(192, lambda: Attention(192, 4, True), 4), [(1, 196, 192)]),
    "coat_lite": (lambda: tokens(128, lambda: Factored(128, 8, 28), 4), [(1, 784, 128)]),
    "focalnet": (lambda: tokens(96, lambda: Focal(96, 28), 4), [(1, 784, 96)]),
    "efficientformer": (lambda: nn.Sequential(*[Mobile(176, 7) for _ in range(4)]), [(1, 176, 7, 7)]),
    "non_local": (lambda: nn.Sequential(NonLocal(64), NonLocal(64)), [(1, 64, 28, 28)]),
    "longformer": (lambda: tokens(256, lambda: Window(256, 8, 512, 32), 2), [(1, 512, 256)]),
    "odd_groups": (Groups, [(1, 3, 64, 64)]),
    "graph": (lambda: Graph(64, 128, 128, 16), [(256, 64), (256, 256)]),
    "spotting": (Spotter, [(1, 1, 49, 10)]),
    "lstm_512": (lambda: Recurrent(512), [(16, 32, 512)]),
}


def main():
    warnings.simplefilter("ignore")
    torch.manual_seed(7)
    make, shapes = NETWORKS[sys.argv[1]]
    network = make().eval()
    inputs = tuple(torch.randn(shape) for shape in shapes)
    torch.onnx.export(network, inputs, sys.argv[2], opset_version=OPSET,
                      input_names=[f"x{k}" for k in range(len(inputs))], output_names=["y"])


if __name__ == "__main__":
    main()
