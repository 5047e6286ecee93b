"""TGC_OPT_LIMIT and verify --bisect.

Any number of first steps of optimization gives a right program: no optional pass may depend on a later one. So each model
is compiled with some limits, all of them in the long form, and compared with -O0. Bisection is tried on a difference that is there
without any mistake: with tolerances of 0, the first step that changes the order of a sum is "wrong".
"""

import random
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/lib"))
import tgc as T  # noqa: E402
from suite import Suite, expect  # noqa: E402

suite = Suite("limit")
OPTIONS = suite.parse()
TGC = T.find_tgc(OPTIONS.build).resolve()
case = suite.folder_case(Path(OPTIONS.build).resolve() / "test-scratch" / "limit")
MODELS = sorted((ROOT / "models").glob("*.tg"))
DEVICES = (["--target=opencl", "--cpu=generic-gpu"], ["--target=cuda", "--cpu=sm_90a", "--math=f16"], ["--target=amd", "--cpu=gfx90a"])
SAMPLE = 3


def tgc(folder, *words, limit=None):
    return T.run([TGC, *words], cwd=folder, env={"TGC_OPT_LIMIT": "" if limit is None else str(limit)})


def steps(done):
    found = re.search(r"^TGC_OPT_LIMIT: (\d+) of (\d+) steps\n  the last: (.*)\n  the next: (.*)$", done.err, re.M)
    expect(found, f"no figures of the limit in\n{done.err}")
    return int(found[1]), int(found[2]), found[3], found[4]


def limits(count, name):
    """0, and some others: by the model's name, so that a new model changes no other's."""
    if OPTIONS.all:
        return range(count)
    return sorted({0, *random.Random(name).sample(range(1, count), SAMPLE)})


def right_at_each_limit(folder, model):
    command = ["verify", model, "--other=-O0"]
    count = steps(tgc(folder, *command, limit=10**8))[1]
    expect(count > 20, f"{count} steps")
    for limit in limits(count, model.stem):
        done = tgc(folder, *command, limit=limit)
        made, _, last, _ = steps(done)
        expect(done.status == 0 and made == limit, f"TGC_OPT_LIMIT={limit}: status {done.status}, {made} steps made\n{done.out}{done.err}")
        expect((last == "none") == (limit == 0), f"TGC_OPT_LIMIT={limit}: the last step is '{last}'")


def compiles_at_each_limit(folder, model, options):
    command = [model, "-o", "m.c", *options]
    count = steps(tgc(folder, *command, limit=10**8))[1]
    for limit in limits(count, model.stem):
        done = tgc(folder, *command, limit=limit)
        expect(done.status == 0, f"TGC_OPT_LIMIT={limit}: status {done.status}\n{done.err}")


def bisects(folder):
    command = ["verify", ROOT / "models/mlp.tg", "--other=-O0", "--rtol=0", "--atol=0"]
    done = tgc(folder, *command, "--bisect")
    found = re.search(r"^step (\d+): (pass \w+.*)$", done.out.decode(), re.M)
    expect(done.status == 3 and found, f"status {done.status}\n{done.out}{done.err}")
    number, what = int(found[1]), found[2]
    expect(tgc(folder, *command, limit=number - 1).status == 0, f"with {number - 1} steps the answer is wrong already")
    wrong = tgc(folder, *command, limit=number)
    expect(wrong.status == 3 and steps(wrong)[2] == what, f"with {number} steps: status {wrong.status}, {steps(wrong)[2]}; not {what}")


def finds_nothing(folder):
    """... where nothing is wrong, and where the command itself fails."""
    done = tgc(folder, "verify", ROOT / "models/mlp.tg", "--bisect")
    expect(done.status == 0 and done.out.startswith(b"ok: "), f"status {done.status}\n{done.out}{done.err}")
    done = tgc(folder, "verify", ROOT / "models/dot_product.tg", "--bisect", "--data", ".")
    expect(done.status == 1 and "input_0" in done.err, f"status {done.status}\n{done.out}{done.err}")


def refusals(folder):
    done = tgc(folder, "verify", ROOT / "models/mlp.tg", ROOT / "models/mlp.tg", "--bisect")
    expect(done.status == 2 and "--other=-O0" in done.err, f"status {done.status}\n{done.err}")
    done = tgc(folder, "verify", "-", "-x", "tg", "--bisect")
    expect(done.status == 1 and "give a file" in done.err, f"status {done.status}\n{done.err}")
    done = tgc(folder, ROOT / "models/mlp.tg", "-o", "-", limit="many")
    expect(done.status == 2 and "TGC_OPT_LIMIT" in done.err, f"status {done.status}\n{done.err}")


def with_folder(function, *arguments):
    return lambda folder: function(folder, *arguments)


for model in MODELS:
    case(f"{model.stem}: right with any number of first steps")(with_folder(right_at_each_limit, model))
for options in DEVICES:
    for stem in ("mnist_cnn", "transformer_block"):
        case(f"{stem} {' '.join(options)}: compiles with any number of first steps")(
            with_folder(compiles_at_each_limit, ROOT / f"models/{stem}.tg", options))
case("bisection finds the first step that changes a sum")(bisects)
case("bisection where nothing is wrong, or the command fails")(finds_nothing)
case("what cannot be bisected")(refusals)
suite.main()
