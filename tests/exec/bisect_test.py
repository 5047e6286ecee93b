"""tgc verify --bisect on mutants: it names the pass, or the list of opts, that makes the answer wrong.

Each mutant of tests/mutants_bisected.txt is one that tests/mutate.py makes: one operator or number of passes/ is another. It is built in a copy of
the tree (tests/lib/copied.py), where nothing else is compiled. With TGC_OPT_LIMIT its answer is wrong, or tgc crashes, from the named step on, and
right before. The long form takes all mutants, the quick one the first two: a pass of the plan, and a list of opts.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/lib"), str(ROOT / "tests")]

import copied
import mutate
import tgc as T
from suite import Suite, expect

suite = Suite("bisect", jobs=1)
OPTIONS = suite.parse()
LIST = mutate.read_list(ROOT / "tests/mutants_bisected.txt")
QUICK = 2
TREES = []


def tree():
    """One for all cases, made when the first needs it."""
    if not TREES:
        TREES.append(copied.Tree(Path(OPTIONS.build).resolve() / "test-scratch" / "bisect", OPTIONS.build))
    return TREES[0]


def verify(words, limit=None):
    return T.run([tree().build / "cli/tgc", "verify", *words], cwd=ROOT, timeout=300, env={"TGC_OPT_LIMIT": "" if limit is None else str(limit)})


def is_named(key, command, wanted):
    path = key.split("\n")[0]
    source = (ROOT / path).read_text()
    found = [mutant for mutant in mutate.mutants_of(path, source) if mutant.key == key]
    expect(len(found) == 1, f"tests/mutate.py makes {len(found)} such mutants of {path}")
    copy = tree().folder / path
    try:
        copy.write_text(found[0].apply(source))
        tree().make("cli/tgc", jobs=1)
        check_named(command.split(), wanted)
    finally:
        copy.write_text(source)


def check_named(words, wanted):
    done = verify([*words, "--bisect"])
    said = done.out.decode()
    step = re.search(r"^step (\d+): (.*)$", said, re.M)
    expect(done.status == 3 and step, f"no step is named: status {done.status}\n{said}{done.err}")
    expect(step[2].startswith(wanted) and not step[2][len(wanted):len(wanted) + 1].isalnum(), f"'{step[2]}' is named, not '{wanted}'")
    number = int(step[1])
    for limit in (number - 1, number):
        done = verify([*words, "--other=-O0"], limit)
        expect((done.status == 0) == (limit < number), f"with {limit} steps the status is {done.status}\n{done.out.decode()}{done.err}")


for number, (key, reason) in enumerate(LIST.items()):
    command, _, wanted = reason.partition(": ")
    suite.add(f"{wanted} is named, of {key.split()[0]}", is_named, key, command, wanted, slow=number >= QUICK)
try:
    suite.main()
finally:
    for made in TREES:
        made.remove()
