"""Networks and single layers for bench/gpu.py, each written once: `Text` makes tgc's text of it, with weights in a file
beside, `Torch` runs it by PyTorch's functions with the same weights.

    text = Text("f16")
    resnet50(text, 1)
    text.save(folder)                       net.tg, net.safetensors

    resnet50(Torch(torch, "f16", weights, feeds), 1)

Weights and inputs are random by a seed: the arithmetic and the memory are a trained network's, the answers are not.
"""

import json
import zlib
from dataclasses import dataclass
from typing import Callable

import numpy as np

NUMPY = {"f32": np.float32, "f16": np.float16, "i64": np.int64, "i8": np.int8, "i32": np.int32}
STORED = {"f32": "F32", "f16": "F16"}


def random_array(name, shape, dtype, scale=1.0):
    """Uniform in [-scale, scale], by the name; zeros would flatter a device, which then takes less power."""
    generator = np.random.default_rng(zlib.crc32(name.encode()))
    if np.dtype(dtype).kind == "i":
        return generator.integers(-8, 8, shape).astype(dtype)
    return generator.uniform(-scale, scale, shape).astype(dtype)


class Text:
    def __init__(self, dtype):
        self.dtype, self.lines, self.weights, self.feeds, self.count = dtype, ["tg 1"], {}, {}, 0

    def save(self, folder):
        (folder / "net.tg").write_text("\n".join(self.lines) + "\n")
        head, blocks, at = {}, [], 0
        for name, array in self.weights.items():
            head[name] = {"dtype": STORED[self.dtype], "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
            blocks.append(array.tobytes())
            at += array.nbytes
        text = json.dumps(head).encode()
        text += b" " * (-len(text) % 8)
        (folder / "net.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + b"".join(blocks))

    def input(self, name, shape, dtype=None, values=None):
        dtype = dtype or self.dtype
        self.feeds[name] = random_array(name, shape, NUMPY[dtype]) if values is None else values
        self.lines.append(f"input %{name} : {dtype}[{', '.join(map(str, shape))}] as \"{name}\"")
        return f"%{name}"

    def weight(self, name, shape, scale):
        self.weights[name] = random_array(name, shape, NUMPY[self.dtype], scale)
        shape = ", ".join(map(str, shape))
        self.lines.append(f"weight %{name} : {self.dtype}[{shape}] = file(\"net.safetensors\", \"{name}\")")
        return f"%{name}"

    def op(self, text):
        self.count += 1
        self.lines.append(f"%v{self.count} = {text}")
        return f"%v{self.count}"

    def output(self, x, name):
        self.lines.append(f"output {x} as \"{name}\"")

    def conv(self, x, name, n_in, n_out, size, stride=1, padding=0):
        w, b = self.weight(f"{name}_w", (n_out, n_in, size, size), (3 / (n_in * size * size)) ** 0.5), self.weight(f"{name}_b", (n_out,), 0.1)
        return self.op(f"conv2d({x}, {w}, {b}) {{stride={stride}, padding={padding}}}")

    def linear(self, x, name, n_in, n_out):
        w, b = self.weight(f"{name}_w", (n_out, n_in), (3 / n_in) ** 0.5), self.weight(f"{name}_b", (n_out,), 0.1)
        return self.op(f"linear({x}, {w}, {b})")

    def layer_norm(self, x, name, width):
        return self.op(f"layer_norm({x}, {self.weight(f'{name}_s', (width,), 1)}, {self.weight(f'{name}_b', (width,), 0.1)})")

    def rows(self, ids, name, count, width):
        return self.op(f"gather({self.weight(name, (count, width), 1)}, {ids})")

    def relu(self, x): return self.op(f"relu({x})")
    def gelu(self, x): return self.op(f"gelu({x})")
    def add(self, x, y): return self.op(f"add({x}, {y})")
    def max_pool(self, x): return self.op(f"max_pool({x}) {{kernel=3, stride=2, padding=1}}")
    def global_avg_pool(self, x): return self.op(f"global_avg_pool({x})")
    def reshape(self, x, shape): return self.op(f"reshape({x}) {{shape={list(shape)}}}")
    def permute(self, x, perm): return self.op(f"permute({x}) {{perm={list(perm)}}}")
    def concat(self, x, y, axis): return self.op(f"concat({x}, {y}) {{axis={axis}}}")
    def expand(self, x, shape): return self.op(f"expand({x}) {{shape={list(shape)}}}")
    def part(self, x, axis, start, end): return self.op(f"slice({x}) {{axis={axis}, start={start}, end={end}}}")
    def attention(self, q, k, v, causal=False): return self.op(f"attention({q}, {k}, {v}) {{causal={str(causal).lower()}}}")


class Torch:
    """weights, feeds: by name, PyTorch's tensors where they are to be used."""

    def __init__(self, torch, weights, feeds):
        self.torch, self.f, self.weights, self.feeds, self.results = torch, torch.nn.functional, weights, feeds, {}

    def input(self, name, shape, dtype=None, values=None): return self.feeds[name]
    def weight(self, name, shape, scale): return self.weights[name]
    def output(self, x, name): self.results[name] = x
    def conv(self, x, name, n_in, n_out, size, stride=1, padding=0): return self.f.conv2d(x, self.weights[f"{name}_w"], self.weights[f"{name}_b"], stride, padding)
    def linear(self, x, name, n_in, n_out): return self.f.linear(x, self.weights[f"{name}_w"], self.weights[f"{name}_b"])
    def layer_norm(self, x, name, width): return self.f.layer_norm(x, (width,), self.weights[f"{name}_s"], self.weights[f"{name}_b"])
    def rows(self, ids, name, count, width): return self.weights[name][ids]
    def relu(self, x): return self.f.relu(x)
    def gelu(self, x): return self.f.gelu(x)
    def add(self, x, y): return x + y
    def max_pool(self, x): return self.f.max_pool2d(x, 3, 2, 1)
    def global_avg_pool(self, x): return x.mean((2, 3), keepdim=True)
    def reshape(self, x, shape): return x.reshape(shape)
    def permute(self, x, perm): return x.permute(perm)
    def concat(self, x, y, axis): return self.torch.cat((x, y), axis)
    def expand(self, x, shape): return x.expand(shape)
    def part(self, x, axis, start, end): return x.narrow(axis, start, end - start)

    def attention(self, q, k, v, causal=False):
        if hasattr(self.f, "scaled_dot_product_attention"):
            return self.f.scaled_dot_product_attention(q, k, v, is_causal=causal)
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        if causal:
            scores = scores + self.torch.full(scores.shape[-2:], float("-inf"), dtype=scores.dtype).triu(1)
        return scores.softmax(-1) @ v


# --------------------------------------------------------------------------------------- networks


def resnet50(b, batch, stages=(3, 4, 6, 3), side=224):
    """He et al. 2015, with strides in the 3x3 convolutions; normalization is part of the weights."""
    x = b.input("image", (batch, 3, side, side))
    x = b.max_pool(b.relu(b.conv(x, "stem", 3, 64, 7, 2, 3)))
    n_in = 64
    for stage, count in enumerate(stages):
        width = 64 << stage
        for block in range(count):
            name, stride = f"s{stage}_{block}", 2 if stage and not block else 1
            y = b.relu(b.conv(x, f"{name}_a", n_in, width, 1))
            y = b.relu(b.conv(y, f"{name}_b", width, width, 3, stride, 1))
            y = b.conv(y, f"{name}_c", width, 4 * width, 1)
            if not block:
                x = b.conv(x, f"{name}_d", n_in, 4 * width, 1, stride)
            x, n_in = b.relu(b.add(x, y)), 4 * width
    x = b.reshape(b.global_avg_pool(x), (batch, n_in))
    b.output(b.linear(x, "head", n_in, 1000), "logits")


def heads_of(b, x, batch, tokens, heads, size):
    return b.permute(b.reshape(x, (batch, tokens, heads, size)), (0, 2, 1, 3))


def block(b, x, name, batch, tokens, width, heads, past=None):
    """A transformer's layer, norms first. past: keys and values before these, each [batch, heads, n, size]."""
    size = width // heads
    y = b.linear(b.layer_norm(x, f"{name}_n1", width), f"{name}_qkv", width, 3 * width)
    q, k, v = (heads_of(b, b.part(y, 2, i * width, (i + 1) * width), batch, tokens, heads, size) for i in range(3))
    if past:
        b.output(k, f"{name}_k_new")
        b.output(v, f"{name}_v_new")
        k, v = b.concat(past[0], k, 2), b.concat(past[1], v, 2)
    y = b.reshape(b.permute(b.attention(q, k, v), (0, 2, 1, 3)), (batch, tokens, width))
    x = b.add(x, b.linear(y, f"{name}_out", width, width))
    y = b.gelu(b.linear(b.layer_norm(x, f"{name}_n2", width), f"{name}_up", width, 4 * width))
    return b.add(x, b.linear(y, f"{name}_down", 4 * width, width))


def vit_b(b, batch, layers=12, width=768, heads=12, side=224):
    """Dosovitskiy et al. 2020, patches of 16."""
    across = side // 16
    patches = b.conv(b.input("image", (batch, 3, side, side)), "patch", 3, width, 16, 16)
    x = b.permute(b.reshape(patches, (batch, width, across * across)), (0, 2, 1))
    x = b.concat(b.expand(b.weight("first", (1, 1, width), 1), (batch, 1, width)), x, 1)
    tokens = across * across + 1
    x = b.add(x, b.weight("places", (1, tokens, width), 0.1))
    for layer in range(layers):
        x = block(b, x, f"l{layer}", batch, tokens, width, heads)
    x = b.layer_norm(b.reshape(b.part(x, 1, 0, 1), (batch, width)), "norm", width)
    b.output(b.linear(x, "head", width, 1000), "logits")


def gpt2_decode(b, past, layers=12, width=768, heads=12, words=50257):
    """One token behind `past` others, whose keys and values are given; its own are outputs."""
    ids = b.input("ids", (1, 1), "i64", np.array([[464 % words]], np.int64))
    place = b.input("place", (1, 1), "i64", np.array([[past]], np.int64))
    x = b.add(b.rows(ids, "words", words, width), b.rows(place, "places", 1024 if past < 1024 else past + 1, width))
    size = width // heads
    for layer in range(layers):
        kept = [b.input(f"l{layer}_{kind}_past", (1, heads, past, size)) for kind in ("k", "v")]
        x = block(b, x, f"l{layer}", 1, 1, width, heads, kept)
    x = b.layer_norm(b.reshape(x, (1, width)), "norm", width)
    b.output(b.linear(x, "head", width, words), "logits")


# ------------------------------------------------------------------------------------ single layers


@dataclass
class Case:
    """What is timed: make(b) writes it; flop and nbytes are what it has to do and to move."""
    part: str
    name: str
    dtype: str
    make: Callable
    flop: float
    nbytes: float
    options: tuple = ()
    facts: tuple = ()           # (name, value)...: what the peers need to know of it

    def fact(self, name):
        return dict(self.facts).get(name)


BYTES = {"f32": 4, "f16": 2, "bf16": 2, "i8": 1, "tf32": 4}
# dtype: that of the tensors, options, how the result is made; of bf16 the peers, too, keep attention's softmax in f32
KINDS = {"f32": ("f32", ()), "f16": ("f16", ()), "bf16": ("bf16", ("--math=bf16",)), "i8": ("i8", ()),
         "tf32": ("f32", ("--math=tf32",)), "f32 by bf16": ("f32", ("--math=bf16",)), "f32 by f16": ("f32", ("--math=f16",)), "f8": ("f8e4m3fn", ())}


def product(kind, m, n, k):
    """x[m, k] times weights[n, k], as a Linear has them."""
    dtype, options = KINDS[kind]

    def make(b):
        b.lines += [f"input %x : {dtype}[{m}, {k}] as \"x\"", f"input %w : {dtype}[{n}, {k}] as \"w\""]
        x, w = "%x", "%w"
        if dtype in ("i8", "f8e4m3fn"):
            x, w = (b.op(f"cast({v}) {{to={'i32' if dtype == 'i8' else 'f32'}}}") for v in (x, w))
        b.output(b.op(f"linear({x}, {w})"), "y")
    size = BYTES.get(dtype, 1)
    out = 4 if dtype in ("i8", "f8e4m3fn", "f32") else 2
    return Case("gemm", f"{kind} {m}x{n}x{k}", kind, make, 2.0 * m * n * k, float(size * (m * k + n * k) + out * m * n), options,
                (("m", m), ("n", n), ("k", k), ("dtype", dtype)))


def products(kinds, small):
    if small:
        return [product(kind, 8, 24, 32) for kind in kinds]
    squares = [(size, size, size) for size in (1024, 4096, 8192)]
    layers = [(m, n, k) for m in (1, 16, 128, 4096) for n, k in ((4096, 4096), (14336, 4096), (4096, 14336))]
    return [product(kind, *shape) for kind in kinds for shape in dict.fromkeys(squares + layers)]


# resnet50's convolutions that differ: channels in, out, kernel, stride, side of the input, how many of them
CONVOLUTIONS = [(3, 64, 7, 2, 224, 1), (64, 64, 1, 1, 56, 1), (64, 64, 3, 1, 56, 3), (64, 256, 1, 1, 56, 4), (256, 64, 1, 1, 56, 2),
                (256, 128, 1, 1, 56, 1), (128, 128, 3, 2, 56, 1), (128, 512, 1, 1, 28, 4), (256, 512, 1, 2, 56, 1), (512, 128, 1, 1, 28, 3), (128, 128, 3, 1, 28, 3),
                (512, 256, 1, 1, 28, 1), (256, 256, 3, 2, 28, 1), (256, 1024, 1, 1, 14, 6), (512, 1024, 1, 2, 28, 1), (1024, 256, 1, 1, 14, 5), (256, 256, 3, 1, 14, 5),
                (1024, 512, 1, 1, 14, 1), (512, 512, 3, 2, 14, 1), (512, 2048, 1, 1, 7, 3), (1024, 2048, 1, 2, 14, 1), (2048, 512, 1, 1, 7, 2), (512, 512, 3, 1, 7, 2)]


def convolution(dtype, batch, n_in, n_out, size, stride, side, count=1):
    def make(b):
        x = b.input("x", (batch, n_in, side, side))
        b.output(b.conv(x, "conv", n_in, n_out, size, stride, size // 2), "y")
    out = (side + 2 * (size // 2) - size) // stride + 1
    nelem = batch * n_in * side * side + n_out * n_in * size * size + batch * n_out * out * out
    return Case("conv", f"{dtype} batch {batch}, {n_in}-{n_out} {size}x{size}/{stride} at {side}", dtype, make,
                2.0 * batch * n_out * out * out * n_in * size * size, float(BYTES[dtype] * nelem), (), (("stride", stride), ("padding", size // 2), ("count", count)))


def convolutions(dtypes, batches, small):
    if small:
        return [convolution(dtype, 1, 4, 8, 3, 1, 6) for dtype in dtypes]
    return [convolution(dtype, batch, *row) for dtype in dtypes for batch in batches for row in CONVOLUTIONS]


def heads(dtype, tokens, size, causal, batch, count):
    def make(b):
        q, k, v = (b.input(name, (batch, count, tokens, size)) for name in "qkv")
        b.output(b.attention(q, k, v, causal), "y")
    flop = 4.0 * batch * count * tokens * tokens * size * (0.5 if causal else 1)
    return Case("attention", f"{dtype} {batch}x{count}x{tokens}x{size}{' causal' if causal else ''}", dtype, make, flop,
                4.0 * BYTES[dtype] * batch * count * tokens * size, (), (("causal", causal),))


def attentions(dtypes, small):
    """16k tokens in all, width 2048, as the papers on attention have them."""
    if small:
        return [heads(dtype, 12, 8, causal, 1, 2) for dtype in dtypes for causal in (False, True)]
    return [heads(dtype, tokens, size, causal, 16384 // tokens, 2048 // size) for dtype in dtypes for size in (64, 128)
            for tokens in (1024, 2048, 4096, 8192, 16384) for causal in (False, True)]


def networks(dtypes, small):
    def network(name, dtype, make, flop, nbytes):
        return Case("models", f"{name} {dtype}", dtype, make, flop, nbytes * BYTES[dtype] / 4)
    if small:
        return [case for dtype in dtypes for case in
                (network("resnet", dtype, lambda b: resnet50(b, 1, (1,), 32), 1e6, 1e6),
                 network("ViT", dtype, lambda b: vit_b(b, 1, 1, 32, 2, 32), 1e6, 1e6),
                 network("GPT-2 decode", dtype, lambda b: gpt2_decode(b, 6, 1, 32, 2, 50), 1e6, 1e6))]
    return [case for dtype in dtypes for case in
            (network("resnet50, batch 1", dtype, lambda b: resnet50(b, 1), 8.2e9, 102e6),
             network("resnet50, batch 32", dtype, lambda b: resnet50(b, 32), 32 * 8.2e9, 102e6 + 32 * 0.6e6),
             network("ViT-B/16, batch 1", dtype, lambda b: vit_b(b, 1), 35.1e9, 346e6),
             network("GPT-2 decode, 256 before", dtype, lambda b: gpt2_decode(b, 256), 0.26e9, 344e6 + 19e6),
             network("GPT-2 decode, 1023 before", dtype, lambda b: gpt2_decode(b, 1023), 0.3e9, 344e6 + 75e6))]
