"""How far results move when tgc stores weights in fewer bytes, and how much smaller they are.

    python bench/rounding.py [--models A,B] [--build build]

Prints a line a model for docs/weights.md: bytes of all weights as f32, bf16 and int8; the error of
the outputs, root mean square relative to that of the expected ones, the worst output of each model.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path[:0] = [str(HERE), str(ROOT / "tests" / "lib"), str(ROOT / "tests" / "models")]

import numpy as np

import models
import tgc as T

KINDS = ("f32", "bf16", "int8")


def relative(want, have):
    size = np.sqrt(np.mean(want.astype(np.float64) ** 2))
    return float(np.sqrt(np.mean((have.astype(np.float64) - want) ** 2)) / (size or 1))


def measure(tgc, folder, kind):
    """Bytes of the weights, the worst output's error."""
    option = f"--weight-type={kind}"
    facts = json.loads((folder / "facts.json").read_text())
    inputs, expected = models.load_arrays(folder / "inputs.npz"), models.load_arrays(
        folder / "expected.npz")
    nbytes = T.info(tgc, folder / "model.onnx", option)["weight_bytes"]
    with tempfile.TemporaryDirectory() as scratch:
        given = []
        for number, (tensor, array) in enumerate(zip(facts["inputs"], inputs)):
            np.save(f"{scratch}/in{number}.npy", array)
            given += ["-i", f"{tensor['name']}={scratch}/in{number}.npy"]
        T.must(T.run([tgc, "run", folder / "model.onnx", "--target=c", option, *given, "--out-dir", scratch],
                     timeout=600))
        results = [np.load(Path(scratch) / f"{T.file_stem(tensor['name'])}.npy")
                   for tensor in facts["outputs"]]
    errors = [relative(want, have) for want, have in zip(expected, results)
              if want.dtype.kind == "f"]
    return nbytes, max(errors)


def main():
    parser = argparse.ArgumentParser(description="what smaller weights do to results")
    parser.add_argument("--models", help="names, separated by commas; otherwise those of f32")
    parser.add_argument("--build", default="build")
    options = parser.parse_args()
    tgc = T.find_tgc(options.build)
    print("| model | f32 MB | bf16 MB | error | int8 MB | error |\n|---|---|---|---|---|---|")
    for model in models.MODELS:
        if options.models and model.name not in options.models.split(","):
            continue
        folder = models.prepare(model)
        if not options.models and json.loads((folder / "facts.json").read_text())["quantized"]:
            continue
        row = [measure(tgc, folder, kind) for kind in KINDS]
        print(f"| {model.name} | {row[0][0] / 1e6:.2f} |" + "".join(
            f" {nbytes / 1e6:.2f} | {error:.1g} |" for nbytes, error in row[1:]), flush=True)


if __name__ == "__main__":
    main()
