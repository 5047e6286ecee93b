"""A GPT over characters, as a .tg for tgc train, and a text as its data.

    python3 gpt.py TEXT... [--layers 2] [--width 64] [--heads 4] [--context 32] [--samples 2000]

writes gpt.tg, its data in text.npz (x: what is read, target: each character's next one), and letters.h for sample.c.
"""

import argparse
from pathlib import Path

import numpy as np

BLOCK = """%n{k} = layer_norm(%x{k}, %norm{k}.scale, %norm{k}.shift)
%qkv{k} = linear(%n{k}, %qkv{k}.weight, %qkv{k}.bias)
%split{k} = reshape(%qkv{k}) {{shape=[N, {context}, 3, {heads}, {head}]}}
%parts{k} = transpose(%split{k}) {{perm=[2, 0, 3, 1, 4]}}
%q{k}.1, %k{k}.1, %v{k}.1 = split(%parts{k}) {{axis=0, sizes=[1, 1, 1]}}
%q{k} = squeeze(%q{k}.1) {{axes=[0]}}
%k{k} = squeeze(%k{k}.1) {{axes=[0]}}
%v{k} = squeeze(%v{k}.1) {{axes=[0]}}
%a{k}.1 = attention(%q{k}, %k{k}, %v{k}) {{causal=true}}
%a{k}.2 = transpose(%a{k}.1) {{perm=[0, 2, 1, 3]}}
%a{k} = reshape(%a{k}.2) {{shape=[N, {context}, {width}]}}
%o{k} = linear(%a{k}, %out{k}.weight, %out{k}.bias)
%h{k} = add(%x{k}, %o{k})
%m{k} = layer_norm(%h{k}, %mid{k}.scale, %mid{k}.shift)
%u{k} = linear(%m{k}, %up{k}.weight, %up{k}.bias)
%g{k} = gelu(%u{k})
%d{k} = linear(%g{k}, %down{k}.weight, %down{k}.bias)
%x{next} = add(%h{k}, %d{k})
"""


def params(name, rows, columns, seed):
    return [f"param %{name}.weight : f32[{rows}, {columns}] = normal(std=0.02, seed={seed})", f"param %{name}.bias : f32[{rows}] = zeros()"]


def norm(name, width):
    return [f"param %{name}.scale : f32[{width}] = ones()", f"param %{name}.shift : f32[{width}] = zeros()"]


def network(letters, o):
    width = o.width
    lines = [f"# A GPT of {o.layers} layers, {width} wide, over {letters} letters; the last layer is the table of the first.",
             "tg 1", 'graph "gpt"', f'input %letters : i64[N<=1024, {o.context}] as "x"',
             f"param %table : f32[{letters}, {width}] = normal(std=0.02, seed=1)",
             f"param %place : f32[{o.context}, {width}] = normal(std=0.02, seed=2)"]
    for k in range(o.layers):
        lines += [*norm(f"norm{k}", width), *params(f"qkv{k}", 3 * width, width, 10 * k + 3), *params(f"out{k}", width, width, 10 * k + 4),
                  *norm(f"mid{k}", width), *params(f"up{k}", 4 * width, width, 10 * k + 5), *params(f"down{k}", width, 4 * width, 10 * k + 6)]
    lines += [*norm("last", width), "%e = gather(%table, %letters) {axis=0}", "%x0 = add(%e, %place)"]
    for k in range(o.layers):
        lines += BLOCK.format(k=k, next=k + 1, width=width, context=o.context, heads=o.heads, head=width // o.heads).splitlines()
    return "\n".join([*lines, f"%y.1 = layer_norm(%x{o.layers}, %last.scale, %last.shift)", "%y = linear(%y.1, %table)",
                      'output %y as "scores"', ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("text", nargs="+", type=Path)
    for name, value in ("layers", 2), ("width", 64), ("heads", 4), ("context", 32), ("samples", 2000):
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()
    text = "".join(path.read_text() for path in options.text)
    letters = sorted(set(text))
    numbers = np.array([letters.index(c) for c in text])
    at = np.random.default_rng(0).integers(0, len(text) - options.context, options.samples)[:, None] + np.arange(options.context)
    np.savez("text.npz", x=numbers[at], target=numbers[at + 1])
    Path("gpt.tg").write_text(network(len(letters), options))
    codes = ", ".join(str(ord(c)) for c in letters)
    Path("letters.h").write_text(f"enum {{ LETTERS = {len(letters)}, CONTEXT = {options.context} }};\n"
                                 f"static const int letters[LETTERS] = {{{codes}}};\n")
    print(f"{len(text)} characters, {len(letters)} letters")


main()
