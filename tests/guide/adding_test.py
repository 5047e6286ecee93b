"""docs/adding-a-pass.md and docs/adding-an-operator.md are followed to the letter: a pass and an operator are added, and work.

The tree is copied with its objects (tests/lib/copied.py), so that only what changed is compiled. A page is Markdown; what is done:

    `PATH`, a new file:      the next fenced block is that file, whole
    `PATH` ...               at a line's beginning; a ```diff block below: lines with `+` are added. The others must be in the file, once
    ```console               `$ command`. `make` builds tgc and tgtool; `.venv/bin/python` is this Python

Both pages are followed in one tree, files first, so that it is built once. Then the pass and the operator are compared with the interpreter and
with NumPy, and the tree's own tests of both are run: they are what fails when a page forgets a file. --all leaves out each change of a page in
turn, and each command that writes something, and requires that this is noticed.

A row of a .def file is no more than a prototype to whoever includes it through a header. So of those files only .c files that include one
directly are compiled again.
"""

import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/lib"))

import numpy as np
import onnx

import copied
import graphs as G
import tgc as T
from suite import Failure, Suite, expect

suite = Suite("adding", jobs=1)
OPTIONS = suite.parse()
SCRATCH = Path(OPTIONS.build).resolve() / "test-scratch" / "adding"
PAGES = [ROOT / "docs" / name for name in ("adding-a-pass.md", "adding-an-operator.md")]
TARGETS = ["cli/tgc", "tests/ir/tgtool"]
WRITES = ("--bless", "--support", "schemas.py")     # commands that write something


# ---------------------------------------------------------------------------------------- a page


@dataclass
class Change:
    page: str
    line: int
    kind: str       # "new", "diff" or "command"
    path: str       # of a file in the tree
    text: str       # the block, or the command

    def what(self):
        return self.kind, self.path, self.text

    def name(self):
        return f"{self.page}: {self.text if self.kind == 'command' else self.path}"


def read_page(path):
    """The changes that a page shows, in its order."""
    changes, named, lines, at = [], None, path.read_text().splitlines(), 0
    while at < len(lines):
        line = lines[at]
        at += 1
        head = re.match(r"`([\w./-]+\.\w+)`(, a new file:$)?", line)
        if head:
            named = head
        fence = re.match(r"```(\w*)$", line)
        if not fence:
            continue
        end = lines.index("```", at)
        block, first, at = lines[at:end], at + 1, end + 1
        if fence[1] == "console":
            changes += [Change(path.name, first + k, "command", "", text[2:]) for k, text in enumerate(block) if text.startswith("$ ")]
        elif fence[1] == "diff" or named and named[2]:
            expect(named, f"{path.name}:{first}: no line above says `PATH`")
            kind = "diff" if fence[1] == "diff" else "new"
            changes.append(Change(path.name, first, kind, named[1], "\n".join(block) + "\n"))
            named = None
    return changes


def apply(change, tree):
    path = tree / change.path
    if change.kind == "new":
        expect(not path.exists(), f"{change.page}:{change.line}: {change.path} is no new file")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(change.text)
        return
    lines = change.text.splitlines()
    expect(all(line[:1] in ("", " ", "+", "-") for line in lines), f"{change.page}:{change.line}: lines begin with ' ', '+' or '-'")
    before = "".join(line[1:] + "\n" for line in lines if line[:1] != "+")
    after = "".join(line[1:] + "\n" for line in lines if line[:1] != "-")
    old = path.read_text()
    expect(("\n" + old).count("\n" + before) == 1, f"{change.page}:{change.line}: these lines are not once in {change.path}:\n{before}")
    path.write_text(("\n" + old).replace("\n" + before, "\n" + after)[1:])


# ---------------------------------------------------------------------------------------- a tree


def build(tree):
    """Compiles what changed. Of a changed .def those .c files alone that include it."""
    tree.configure()
    for path in tree.folder.rglob("*.def"):
        name = path.relative_to(tree.folder)
        if path.read_bytes() == (ROOT / name).read_bytes():
            continue
        since = (ROOT / name).stat().st_mtime_ns
        os.utime(path, ns=(since, since))
        users = [source for source in path.parent.glob("*.c") if f'#include "{name}"' in source.read_text()]
        expect(users, f"no .c file beside {name} includes it")
        for user in users:
            user.touch()
    tree.make(*TARGETS)


def command(change, tree):
    """Returns what is printed."""
    if change.text == "make":
        build(tree)
        return ""
    words = [sys.executable if word == ".venv/bin/python" else word.strip("'") for word in change.text.split()]
    done = T.run(words, cwd=tree.folder, timeout=300)
    expect(done.status == 0, f"{change.page}:{change.line}: {done.describe()}\n{done.out.decode()[-2000:]}")
    printed = done.out.decode()
    expect(not printed.startswith("1..0"), f"{change.page}:{change.line}: no test runs")
    return printed


def follow(tree, without=None):
    """Does what the pages say but for one change; returns what each command printed."""
    changes = [change for page in PAGES for change in read_page(page) if not without or change.what() != without.what()]
    for change in changes:
        if change.kind != "command":
            apply(change, tree.folder)
    commands = [change for change in changes if change.kind == "command"]
    before = [change for change in commands if "schemas.py" in change.text]
    make = [change for change in commands if change.text == "make"]
    expect(len(make) == len(PAGES), "each page says `make` once")
    printed = {}
    for change in [*before, make[0], *(c for c in commands if c not in before and c not in make)]:
        printed[change.text] = command(change, tree)
    return printed


# --------------------------------------------------------------------------------------- checks


def python(tree, *words):
    T.must(T.run([sys.executable, *words], cwd=tree, timeout=300))


def check_own_tests(tree):
    """The suites of the tree that know whether something is forgotten."""
    python(tree, "tests/ir/passes_test.py", "--build", "build", "--filter", "^negate_once|^rows have", "--jobs", "1")
    python(tree, "tests/guide/documents_test.py", "--build", "build", "--filter", "^counts")
    python(tree, "scripts/schemas.py", "--check")
    python(tree, "tests/onnx/node_test.py", "--build", "build", "--filter", "is current$")
    python(tree, "tests/format_test.py", "--build", "build")


def check_pass(tree, printed):
    text = tree / "tests/ir/golden/passes/negate_once/changes.tg"
    tool, tgc = (tree / "build" / name for name in ("tests/ir/tgtool", "cli/tgc"))
    before = T.must(T.run([tool, "print", text], cwd=tree)).out.decode()
    after = printed[f"build/tests/ir/tgtool pass negate_once {text.relative_to(tree)}"]
    expect("op=max" in before and "op=min" in after and "op=max" not in after, f"the pass made\n{after}of\n{before}")
    (tree / "after.tg").write_text(after)
    x = np.random.default_rng(3).standard_normal((4, 16)).astype(np.float32)
    np.save(tree / "x.npy", x)
    for model in (text, tree / "after.tg"):
        T.must(T.run([tgc, "run", model, "-i", "x=x.npy", "--out-dir", "out"], cwd=tree))
        y = np.load(tree / "out/y.npy")
        expect(np.array_equal(y, (-x).max(1)), f"{model.name} is {y}, not {(-x).max(1)}")
    evaluated = [T.must(T.run([tool, "eval", model], cwd=tree)).out for model in (text, tree / "after.tg")]
    expect(evaluated[0] == evaluated[1] and evaluated[0], f"the interpreter says {evaluated}")
    listed = printed[f"build/cli/tgc info --passes {text.relative_to(tree)}"]
    row = re.search(r"^.*\bnegate_once\b.*$", listed, re.M)
    expect(row, f"info --passes does not list it:\n{listed}")


def check_operator(tree, printed):
    tool, tgc = (tree / "build" / name for name in ("tests/ir/tgtool", "cli/tgc"))
    expect("ImageScaler" in printed["build/cli/tgc ops ImageScaler"], "tgc ops does not know it")
    bias = [0.5, -1.0, 3.0]
    model = G.model([G.node("ImageScaler", ["x"], ["y"], scale=-1.5, bias=bias)], [G.value("x", [2, 3, 4, 5])], [G.value("y", [2, 3, 4, 5])], opset=9)
    onnx.save(model, tree / "scaler.onnx")
    x = np.random.default_rng(4).standard_normal((2, 3, 4, 5)).astype(np.float32)
    np.save(tree / "x.npy", x)
    for options in ([], ["-O0"]):
        T.must(T.run([tgc, "run", "scaler.onnx", "-i", "x=x.npy", "--out-dir", "out", *options], cwd=tree))
        y, wanted = np.load(tree / "out/y.npy"), np.float32(-1.5) * x + np.array(bias, np.float32).reshape(3, 1, 1)
        expect(np.allclose(y, wanted, 1e-6, 1e-6), f"{options}: {y}\nexpected\n{wanted}")
    T.must(T.run([tgc, "scaler.onnx", "-o", "scaler.tg"], cwd=tree))
    T.must(T.run([tool, "run", "scaler.tg"], cwd=tree))         # the program and the interpreter agree
    wrong = G.model([G.node("ImageScaler", ["x"], ["y"], bais=bias)], [G.value("x", [2, 3, 4, 5])], [G.value("y", [2, 3, 4, 5])], opset=9)
    onnx.save(wrong, tree / "wrong.onnx")
    done = T.run([tgc, "wrong.onnx", "-o", "wrong.c"], cwd=tree)
    expect(done.status == 1 and "bais" in done.err and "bias" in done.err, f"an attribute that the signature does not have: {done.err}")


def follow_and_check(without=None):
    tree = copied.Tree(SCRATCH / "tree", OPTIONS.build)
    try:
        printed = follow(tree, without)
        check_pass(tree.folder, printed)
        check_operator(tree.folder, printed)
        check_own_tests(tree.folder)
    finally:
        tree.remove()


def notices(change):
    try:
        follow_and_check(change)
    except Failure:
        return
    raise Failure(f"nothing fails without this change of {change.page}:{change.line}")


def files_are_listed():
    """The table of a page has every file that the page changes or that its commands write."""
    for page in PAGES:
        table = page.read_text().partition("## Files that change")[2]
        for change in read_page(page):
            expect(change.kind == "command" or change.path in table or str(Path(change.path).parent) in table, f"{change.name()} is not in the table")


suite.add("the pages' tables list the files", files_are_listed)
suite.add("a pass and an operator are added as the pages say", follow_and_check)
CHANGES = [change for page in PAGES for change in read_page(page) if change.kind != "command" or any(word in change.text for word in WRITES)]
for change in {change.what(): change for change in CHANGES}.values():      # both pages count
    suite.add(f"noticed if forgotten: {change.name()}", notices, change, slow=True)
suite.main()
