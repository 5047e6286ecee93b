"""Networks as PyTorch exports them, trained by AdamW in f32: the loss of each step beside PyTorch's. --all: at their usual sizes.

All steps see the same samples, so that what is compared does not depend on their order. Texts are the documents of this repository.
"""

import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "lib"))

import tgc as T
from suite import Suite, expect

suite = Suite("parity")
OPTIONS = suite.parse()
TGC = T.find_tgc(OPTIONS.build).resolve()
SCRATCH = T.scratch(Path(OPTIONS.build).resolve() / "test-scratch" / "parity")
ROOT = HERE.parents[1]
APART = 1e-3        # what a loss may be apart from PyTorch's

# name, network, shape, samples, steps, learning rate
SMALL = [("a GPT of 2 layers, 64 wide", "gpt", {"steps": 32, "width": 64, "layers": 2, "heads": 4}, 8, 10, 3e-3),
         ("an LSTM, 48 wide", "lstm", {"steps": 24, "width": 48, "layers": 1}, 8, 10, 1e-2),
         ("a ViT of 2 layers, 48 wide", "vit", {"size": 32, "patch": 8, "width": 48, "layers": 2, "heads": 3, "classes": 10}, 8, 10, 1e-3)]
LARGE = [("a GPT of 6 layers, 384 wide, 50 steps", "gpt", {"steps": 64, "width": 384, "layers": 6, "heads": 6}, 8, 50, 3e-4),
         ("an LSTM of 2 layers, 256 wide, 20 steps", "lstm", {"steps": 64, "width": 256, "layers": 2}, 8, 20, 2e-3),
         ("ViT-tiny, 12 layers, 192 wide, 20 steps", "vit",
          {"size": 224, "patch": 16, "width": 192, "layers": 12, "heads": 3, "classes": 100}, 2, 20, 3e-4)]


def text():
    return "".join(path.read_text() for path in sorted((ROOT / "docs").glob("*.md")) if path.name[0] < "d")


def by_torch(folder, cases):
    """The losses of each network's steps, and its folder, with the model and the data: all by one process."""
    todo = [{"folder": str(T.scratch(folder / network)), "network": network, "shape": shape, "batch": batch, "steps": steps, "lr": lr, "text": text()}
            for _, network, shape, batch, steps, lr in cases]
    (folder / "todo.json").write_text(json.dumps(todo))
    with open(folder / "todo.json") as file:
        losses = json.loads(T.must(T.run([T.TORCH, HERE / "parity_reference.py"], stdin=file, timeout=3600)).out)
    return {one["network"]: (Path(one["folder"]), want) for one, want in zip(todo, losses)}


def check(cases, name, network, batch, steps, lr):
    T.need_torch()
    folder, want = T.shared("torch", lambda folder, _: by_torch(folder, cases), id(cases))[network]
    T.must(T.run([TGC, "train", "m.onnx", "--data", "d.npz", "--loss=cross_entropy", "--optimizer=adamw:weight_decay=0.1,beta2=0.95",
                  f"--lr={lr}", f"--batch={batch}", f"--epochs={steps}", "--log=log.jsonl", "-o", "trained.onnx"], cwd=folder, timeout=3600))
    got = [json.loads(line)["loss"] for line in open(folder / "log.jsonl")]
    apart = max(abs(a - b) for a, b in zip(got, want))
    print(f"# {name}: {len(got)} steps, from {want[0]:.4f} to {want[-1]:.4f}, at most {apart:.1e} apart", flush=True)
    expect(len(got) == len(want) == steps and apart <= APART, f"losses\n{got}, by PyTorch\n{want}")
    expect(want[-1] < want[0] - 0.1, f"nothing was learned: {want}")


for cases in SMALL, LARGE:
    for name, network, shape, *more in cases:
        suite.add(name, check, cases, name, network, *more, slow=cases is LARGE)
suite.main()
