"""What Winograd's tiles add to the error of a network, against exact arithmetic.

    python bench/error.py [--models A,B] [--networks A B] [--files X.onnx ...] [--inputs 5]

A line a model: the largest error of an output as a fraction of its largest element, as compiled by
default, by --error=0, and by ONNX Runtime; what tgc estimates that its tiles add, and what they may
add. It fails where the first is more than the second and the limit together. The exact outputs
are those of tests/lib/double.py, in double precision.
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
import onnx
import onnxruntime

import amplifying
import double
import models
import tgc as T

LIMIT = 1e-4


def variations(feeds, count):
    """The model's own input, then others like it: floats perturbed, mirrored, scaled."""
    random = np.random.default_rng(7)
    for turn in range(count):
        yield {name: array if turn == 0 or array.dtype.kind != "f" else
               (np.flip(array, -1) * random.uniform(0.5, 1.5)
                + 0.3 * array.std() * random.standard_normal(array.shape)).astype(array.dtype)
               for name, array in feeds.items()}


def build(tgc, model, folder, *options):
    T.must(T.run([tgc, model, "-o", folder / "net.c", *options], timeout=900))
    T.build(folder / "net.c", folder / "net", main_by=tgc)


def fraction(have, want):
    """Of the worst output."""
    worst = 0
    for name, y in want.items():
        if y.dtype.kind == "f" and y.size and np.abs(y).max() > 0:
            worst = max(worst, np.abs(have[name].astype(np.float64) - y).max() / np.abs(y).max())
    return worst


def measure(tgc, path, feeds, count, scratch, limit=LIMIT):
    """The errors by default, without tiles, by ONNX Runtime: those of the input where the first
    exceeds the second most; the largest excess; the estimate."""
    info = T.info(tgc, path, f"--error={limit}")
    if info["error_estimate"] == 0:
        return None
    for name, option in (("default", f"--error={limit}"), ("plain", "--error=0")):
        (scratch / name).mkdir()
        build(tgc, path, scratch / name, option)
    session = onnxruntime.InferenceSession(str(path))
    order = [value.name for value in session.get_inputs()]
    names = [value.name for value in session.get_outputs()]
    programs = [T.Program(scratch / name / "net", names) for name in ("default", "plain")]
    rows = []
    for given in variations(feeds, count):
        want = double.run(path, given)
        arrays = [given[name] for name in order]
        found = [program.run(arrays) for program in programs]
        found.append(dict(zip(names, session.run(None, given))))
        rows.append([fraction(have, want) for have in found])
    return max(rows, key=lambda row: row[0] - row[1]), info["error_estimate"]


def listed(options, scratch):
    for name in options.networks:
        made, feeds = amplifying.NETWORKS[name]()
        onnx.save(made, scratch / f"{name}.onnx")
        yield name, scratch / f"{name}.onnx", feeds
    for file in options.files:
        session = onnxruntime.InferenceSession(file)
        random = np.random.default_rng(3)
        yield Path(file).stem, Path(file), {
            value.name: random.standard_normal(value.shape).astype(np.float32)
            for value in session.get_inputs()}
    alone = (options.files or options.networks) and not options.models
    for model in [] if alone else models.MODELS:
        if options.models and model.name not in options.models.split(","):
            continue
        folder = models.prepare(model)
        facts = json.loads((folder / "facts.json").read_text())
        names = [tensor["name"] for tensor in facts["inputs"]]
        if not facts["quantized"]:
            yield model.name, folder / "model.onnx", dict(
                zip(names, models.load_arrays(folder / "inputs.npz")))


def main():
    parser = argparse.ArgumentParser(description="what Winograd's tiles add to errors")
    parser.add_argument("--models", help="names, separated by commas; otherwise those of f32")
    parser.add_argument("--files", nargs="*", default=[], help="other models, inputs random")
    parser.add_argument("--networks", nargs="*", default=[], choices=amplifying.NETWORKS,
                        help="of tests/lib/amplifying.py")
    parser.add_argument("--inputs", type=int, default=5)
    parser.add_argument("--error", type=float, default=LIMIT)
    parser.add_argument("--build", default="build")
    options = parser.parse_args()
    tgc = Path(T.find_tgc(options.build)).resolve()
    failed = []
    print("| model | tgc | --error=0 | ONNX Runtime | estimate | limit |\n|---|---|---|---|---|---|")
    folder = tempfile.TemporaryDirectory()
    for name, path, feeds in listed(options, Path(folder.name)):
        with tempfile.TemporaryDirectory() as scratch:
            found = measure(tgc, path, feeds, options.inputs, Path(scratch), options.error)
        if not found:
            print(f"| {name} | no tiles | | | 0 | |", flush=True)
            continue
        (ours, plain, theirs), estimate = found
        print(f"| {name} | {ours:.2g} | {plain:.2g} | {theirs:.2g} | {estimate:.2g} |"
              f" {options.error:g} |", flush=True)
        if ours > plain + options.error:
            failed.append(name)
    if failed:
        sys.exit(f"beyond the limit: {', '.join(failed)}")


if __name__ == "__main__":
    main()
