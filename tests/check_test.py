"""What runs the tests: which suites a change chooses, what a suite took, and that CONTRIBUTING.md names commands that exist."""

import json
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "lib")]

import check
import mutate
import since
from suite import Suite, expect

ROOT = HERE.parent
suite = Suite("check")
BUILD = Path(suite.parse().build).resolve()
SCRATCH = BUILD / "test-scratch" / "check"
case = suite.folder_case(SCRATCH)
NAMES = {"unit", *(row[0] for row in check.SUITES)}

# A changed file; what has to be chosen, and what must not be. Unit tests begin with "unit ".
CHOICES = [
    ("backends/cuda/nvrtc.c", "cuda bulk machine unit:clang", "models vision opencl onnx text unit:view"),
    ("backends/cuda/cuda.h", "cuda", "vision onnx"),
    ("backends/opencl/images.c", "opencl device_images", "cuda amd vision"),
    ("runtime/vector_avx2.c", "vectors exec models", "cuda grid onnx cli"),
    ("runtime/metal.c", "metal", "cuda amd onnx"),
    ("frontend/onnx/lower_svm.c", "ml lowering onnx models", "cuda passes grid"),
    ("frontend/text/slice.c", "entries text", "onnx cuda"),
    ("passes/kernel/grid_matrix.c", "grid opts passes unit:memory", "cli onnx python"),
    ("passes/kernel/grid_matrix.h", "grid opts passes", "cli onnx python"),
    ("passes/rules/index.rules", "rulegen passes unit:rules unit:fold", "cli cuda"),
    ("passes/graph/quant/byte_sums.c", "quantized integer passes", "cli"),
    ("cli/cmd_run.c", "cli unit:npy", "passes cuda onnx models"),
    ("lib/kept.c", "cache", "passes cuda onnx"),
    ("tests/exec/zero_test.py", "zero", "exec models passes unit:view"),
    ("tests/exec/threads.c", "threads", "exec models"),
    ("tests/lib/msl.py", "metal", "cuda models"),
    ("tests/lib/small.py", "stack", "onnx cuda"),
    ("tests/unit/test_view.c", "unit:view", "passes models unit:memory"),
    ("tests/unit/fixture.h", "unit:eval unit:linear", "passes unit:view"),
    ("tests/emulator/shadow.c", "emulator", "vision passes"),
    ("tests/ir/golden/passes/fuse/changes.tg", "passes", "models cuda"),
    ("docs/guide/first-model.md", "guide", "models passes onnx"),
    ("CONTRIBUTING.md", "check", "models passes onnx"),
]
EVERYTHING = ("ir/ir.h", "ir/ops.def", "passes/passes.h", "meson.build", "passes/meson.build", "tests/lib/tgc.py", "no/such" "/nofile" ".txt")


def chosen(*files):
    """The names of suites, and those of unit tests behind \"unit:\"."""
    found = check.suites_since(files, BUILD)
    return {*found, *(f"unit:{name}" for name in found.get("unit", ()))}, found


@suite.case("what is chosen for a changed file, and what is not")
def choices():
    for path, wanted, unwanted in CHOICES:
        names, _ = chosen(path)
        missing, extra = set(wanted.split()) - names, set(unwanted.split()) & names
        expect(not missing and not extra, f"{path}: misses {missing}, has {extra} of {sorted(names)}")


@suite.case("two files choose what each of them does")
def both():
    one, other = chosen("lib/kept.c")[0], chosen("tests/unit/test_view.c")[0]
    expect(chosen("lib/kept.c", "tests/unit/test_view.c")[0] == one | other, "not both")
    expect(set(chosen()[1]) == {"format"}, "something is chosen for nothing")


@suite.case("what is used everywhere, or unknown, chooses whatever is quick")
def everything():
    quick = {name: arguments for name, arguments, _ in check.QUICK}
    for path in EVERYTHING:
        _, found = chosen(path)
        expect({name: found.get(name) for name in quick} == quick, f"{path}: {found}")
        _, beside = chosen("lib/kept.c", path)
        expect(beside.keys() >= {*quick, "cache"}, f"{path} beside another file: {beside}")


@suite.case("what is chosen runs in a part that is soon done; a changed suite as it is")
def shares():
    seconds = {row[0]: row[4] for row in check.SUITES}
    quick = {name for name, *_ in check.QUICK}
    for path in ("backends/device/launch.c", "frontend/onnx/lower_svm.c", "runtime/vector_avx2.c"):
        found = {name: words for name, words in chosen(path)[1].items() if name not in quick}
        parts = [int(words[1].split("/")[1]) if words else 1 for words in found.values()]
        taken = sum(seconds[name] / n for name, n in zip(found, parts))
        expect(found and taken <= check.SINCE_SECONDS, f"{path}: {taken:.0f} s: {found}")
    expect(chosen("tests/onnx/cuda_test.py")[1]["cuda"] == [], "a part of the suite that has changed")


@suite.case("a suite has one row: two runs of one would share a folder")
def once():
    names = [row[0] for row in check.SUITES]
    expect(len(names) == len(set(names)), f"{sorted(n for n in set(names) if names.count(n) > 1)}")


@suite.case("every row has a program and parts that exist; every source of the build is of some part")
def rows():
    files = since.listed()
    for name, program, *_, parts in check.SUITES:
        expect((ROOT / program).exists() and parts, f"{name}: {program}, {parts!r}")
    for name, parts in [(row[0], row[-1]) for row in [*check.SUITES, *check.QUICK]]:
        for part in parts.split():
            expect(any(path.startswith(part) for path in files), f"{name}: no file begins with {part}")
    expect({name for name, *_ in check.QUICK} <= NAMES, "a row of QUICK is no suite")
    choice = check.choice_of(BUILD)
    lost = [path for path in sorted(set(choice.build.sources.values())) if path.startswith(("backends", "cli", "frontend", "ir", "lib", "passes", "runtime"))
            and not (choice.of_file(path) and (choice.of_file(path)[0] or choice.of_file(path)[1]))]
    expect(not lost, f"no suite is found for {lost}")


@suite.case("sources of a header are those that include it")
def includers():
    build = since.Build(BUILD)
    for header in ("backends/cuda/cuda.h", "passes/kernel/grid_matrix.h", "frontend/onnx/ml.h", "lib/kept.h"):
        name = re.escape(Path(header).name)
        direct = {path for path in set(build.sources.values()) if (ROOT / path).exists() and re.search(rf'^#include "(?:[\w/]*/)?{name}"', since.text_of(path), re.M)}
        found = build.sources_of(header)
        expect(direct and direct <= found, f"{header}: {sorted(direct - found)} are missing")
        expect(len(found) < 100, f"{header}: {len(found)} sources")


@case("files that differ from a revision: changed, committed, new, renamed, deleted, of any name")
def _(folder):
    def git(*words):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=folder, check=True, capture_output=True)
    git("init", "-q")
    for name in ("same", "changed", "committed", "renamed", "deleted"):
        (folder / name).write_text(f"{name}\n" * 9)
    git("add", "-A")
    git("commit", "-qm", "one")
    expect(since.changed_files("HEAD", folder) == [], "something differs")
    (folder / "committed").write_text("other\n")
    git("mv", "renamed", "name")
    git("commit", "-qam", "two")
    (folder / "changed").write_text("other\n")
    (folder / "new é").write_text("")
    (folder / "deleted").unlink()
    found = since.changed_files("HEAD~1", folder)
    expect(found == sorted(["changed", "committed", "name", "renamed", "deleted", "new é"]), f"{found}")
    expect(since.changed_files("HEAD", folder) == sorted(["changed", "deleted", "new é"]), "of what is not committed")


@case("seconds of a processor are those of all processes; a limit ends a suite")
def _(folder):
    work = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass\n"
    (folder / "work.py").write_text(f"import subprocess, sys\nif len(sys.argv) < 2: sys.exit(subprocess.run([sys.executable, sys.argv[0], 'x']).returncode)\n{work}")
    status, worked = check.run_counted([sys.executable, folder / "work.py"], folder / "log")
    expect(status == 0 and 0.3 <= worked < 10, f"status {status}, {worked} s")
    start = time.monotonic()
    status, worked = check.run_counted(["sleep", "60"], folder / "log", 0.2)
    expect(status is None and time.monotonic() - start < 30 and worked < 1, f"status {status}, {worked} s")


def command_problem(words):
    """What of a command does not exist, or None. Words in capitals stand for something of the reader's."""
    program, *rest = words
    if program == "make":
        text = (ROOT / "Makefile").read_text()
        for word in rest:
            name, is_set, value = word.partition("=")
            if not re.search(rf"\$\({name}\)" if is_set else rf"^(?:[\w-]+ )*{name}(?: [\w-]+)*:", text, re.M):
                return f"make knows no {name}"
            if name == "SUITES" and set(value.split()) - NAMES and value != "...":
                return f"no suite {value}"
        return None
    if program == "meson":
        if rest[0] == "configure":
            return next((f"no option {word}" for word in rest if word.startswith("-D") and
                         f"option('{word[2:].partition('=')[0]}'" not in (ROOT / "meson_options.txt").read_text()), None)
        known = {test["name"] for test in json.loads((BUILD / "meson-info/intro-tests.json").read_text())}
        return next((f"no unit test {name}" for name in rest[3:] if name not in known), None)
    if program == ".venv/bin/python":
        program, *rest = rest
    program = program.replace("build/", f"{BUILD}/", 1) if program.startswith("build/") else program
    if "/" not in program:
        program = str(next((path.relative_to(ROOT) for path in (ROOT / "tests").rglob(program)), program))
    if not (ROOT / program).exists():
        return f"no {program}"
    rest = rest[:next((i for i, word in enumerate(rest) if word.startswith("./")), None)]     # another program's words
    if program.endswith("tgtool"):
        return None if re.search(rf"^\w*PASS\((?:\w+, *)?\"?{rest[1]}\b", (ROOT / "passes/passes.def").read_text(), re.M) else f"no pass {rest[1]}"
    if program.endswith(".py"):
        known = " ".join(since.text_of(module) for module in since.modules(program))
        return next((f"{program} knows no {word}" for word in rest if word.startswith("--") and f'"{word.partition("=")[0]}"' not in known), None)
    return None


def commands(text):
    """The commands that a page names between backquotes, one of each word list."""
    for code in re.findall(r"`([^`\n]+)`", text):
        for command in re.split(r" && ", code):
            words = shlex.split(command)
            if words and re.match(r"make$|meson$|(?:\.venv|tests|build|scripts)/.*[^/]$|\w+\.py$", words[0]) and not words[0].endswith((".c", ".def", ".md")):
                yield words


@suite.case("CONTRIBUTING.md names commands that exist")
def contributing():
    found = list(commands((ROOT / "CONTRIBUTING.md").read_text()))
    expect(len(found) >= 20, f"{len(found)} commands")
    problems = [f"{shlex.join(words)}: {problem}" for words in found if (problem := command_problem(words))]
    expect(not problems, "\n".join(problems))


def stale(key):
    """Whether the mutated line of a row is no line of its file any more."""
    path, old, _ = key.split("\n")
    file = ROOT / path
    lines = file.read_text().splitlines() if file.exists() else []
    return old.split(" ", 1)[1] not in map(mutate.squeeze, lines)


@suite.case("rows of the lists of mutants are lines of the code")
def mutants():
    keys = [key for name in ("equivalent", "killed") for key in mutate.read_list(ROOT / f"tests/mutants_{name}.txt")]
    expect(len(keys) > 20 and not any(map(stale, keys)), "\n\n".join(filter(stale, keys)))
    expect(stale("passes/driver.c\n- no such line\n+ another") and stale("passes/none.c\n- }\n+ {"), "a stale row is not found")


@suite.case("a command that does not exist is found")
def planted():
    for command in ("make chekc", "make check SUITS=cuda", "make quick SUITES='cuda no'", "meson test -C build folds", "meson configure build -Dtest=enabled",
                    ".venv/bin/python tests/exec/band_test.py --build build", ".venv/bin/python tests/exec/bands_test.py --filtre x", "scripts/set-up.sh check",
                    "build/tests/ir/tgtool pass no_such_pass FILE.tg", "build/tests/ir/tool"):
        words = list(commands(f"say `{command}`."))
        expect(len(words) == 1 and command_problem(words[0]), f"nothing is wrong with {command}: {words}")


suite.main()
