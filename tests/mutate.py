"""The mutation test: are the tests of passes/ good enough to notice that one operator is another?

    make mutate                          200 mutants, drawn by a seed, and those of tests/mutants_killed.txt
    tests/mutate.py --count 20 --seed 7  others
    tests/mutate.py --file 'plan/*.c'    of these files alone
    tests/mutate.py --part gradient      of the derivatives' rules, the losses and the optimizers, by the suites of gradients
    tests/mutate.py --part gradient --rules --count 9999    each line of a rule once, by what rules are written in (RULE_WORDS)
    tests/mutate.py --again              those that survived before, once more: after a test was added
    tests/mutate.py --first 2            with the first two of TESTS alone, which kill most; then --again runs all on the others
    tests/mutate.py --report             what is known so far, without running anything

A mutant is a pass, or another file of PARTS, in which one operator, constant or condition is another (OPERATORS). It is built in a copy of the tree of its own
(BUILD/mutate/tree), as far as it needs that, and the quick tests are run on it in the order of TESTS until one fails: it is killed then. One
that loops is killed by a limit of processor time. What a mutant became is appended to BUILD/mutate/results.jsonl, so that a run can be stopped and
goes on where it was.

A mutant whose object file is the same is equivalent and not counted; others that nothing can tell from the original, or that change what is
estimated to cost less and nothing else, stand with the reason in tests/mutants_equivalent.txt, and are not run:

    passes/plan/layout.c
    -     if (a < b)
    +     if (a <= b)
      both orders are the same where a is b

The lines are the file's, without their numbers: a mutant is still known when lines above it move. `-2` and so on: of several equal lines the
second. Exit status 1: a mutant of tests/mutants_killed.txt survived, or fewer than 90 % of the others were killed.
"""

import argparse
import fnmatch
import hashlib
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WANTED = 0.9
SOURCES = ("cli/", "lib/", "frontend/", "ir/", "passes/", "backends/", "runtime/", "tests/")    # what the tests depend on
MEMORY = 6 << 30        # bytes of address space that a unit test may take; sanitizers reserve more
COMPILE_SECONDS = 120   # of processor time, as all limits here

# name, of which files of passes/ (others cannot change it), command in the tree ({build}: its build folder; {sanitized}: one of tgtool with sanitizers, which
# see what is read behind an array and changes no result), environment, seconds at most. Ordered by what finds most in the least time.
PYTHON = str(ROOT / ".venv/bin/python")


def suite(name, files, part):
    return name, files, [PYTHON, f"tests/exec/{name}_test.py", "--build", "{build}", "--jobs", "1", "--stop", "--part", part], {}, 30


def golden(name, kind, what):
    return name, "", [PYTHON, f"tests/ir/{kind}_test.py", "--build", "{build}", "--jobs", "1", "--stop", "--filter", what], {}, 15


TESTS = [
    golden("summary", "summary", "summary"),
    ("contraction", "", ["{build}/tests/unit/test_contraction"], {}, 5),
    ("narrow", "graph/|analysis/", ["{build}/tests/unit/test_narrow"], {}, 5),
    ("tune", "kernel/|target/", ["{build}/tests/unit/test_tune"], {}, 5),
    ("target", "target/", ["{build}/tests/unit/test_target"], {}, 5),
    ("bounds", "rules/|target/", ["{build}/tests/unit/test_bounds"], {}, 5),
    ("fold", "rules/", ["{build}/tests/unit/test_fold"], {}, 5),
    ("rules", "rules/", ["{build}/tests/unit/test_rules"], {}, 10),
    ("access", "rules/|analysis/", ["{build}/tests/unit/test_access"], {}, 10),
    ("fold_constants", "graph/[^/]*$|rules/", ["{build}/tests/unit/test_fold_constants"], {}, 15),
    ("memory", "place/", ["{build}/tests/unit/test_memory"], {}, 15),
    golden("passes", "passes", "changes|forbidden"),
    golden("values", "summary", "values"),
    golden("models", "passes", "^run "),
    ("rulegen", "rules/rulegen", [PYTHON, "tests/rules/rulegen_test.py", "--build", "{build}", "--jobs", "1", "--stop"], {}, 10),
    ("opts", "kernel/opts", [PYTHON, "tests/ir/opts_test.py", "--build", "{build}", "--jobs", "1", "--stop"], {}, 15),
    ("schedule", "", ["{build}/tests/unit/test_schedule"], {"TGC_RANDOM_GRAPHS": "50", "TGC_CASES": "quick"}, 40),
    ("programs", "", ["{build}/tests/unit/test_programs"], {"TGC_CASES": "quick"}, 20),
    ("text", "", [PYTHON, "tests/ir/text_test.py", "--build", "{build}", "--jobs", "1", "--stop", "--filter", "golden|host calls"], {}, 20),
    ("lists", "kernel/thread", [PYTHON, "tests/cli/tune_test.py", "--build", "{build}", "--jobs", "1", "--stop", "--filter", "with threads"], {}, 30),
    suite("masks", "kernel/(online|pack_keys|share)|graph/(mask|transpose_keys)|analysis/(mask|softmax)", "1/6"),
    suite("state", "graph/state|plan/schedule|place/(memory|overlap)", "1/6"),
    suite("stack", "place/stack", "1/8"),
    suite("winograd", "graph/conv|analysis/(error|layer)", "1/10"),
    suite("influence", "analysis/samples|graph/matmul", "1/4"),
    suite("gather", "kernel/(gather|stage_places)|vector/(gather|transpose)|analysis/gathers|graph/copy", "1/18"),
    suite("integer", "graph/quant|vector/(byte|regroup)|kernel/(byte|merge_clamps)", "1/16"),
    suite("constants", "graph/(fold_constants|constant_axes|narrow)", "1/3"),
    ("sanitized", "", [PYTHON, "tests/ir/summary_test.py", "--build", "{sanitized}", "--jobs", "1", "--stop", "--filter", "summary"],
     {"ASAN_OPTIONS": "detect_leaks=0"}, 30),
]


def gradients(name, program, files, seconds, *more):
    return name, files, [PYTHON, f"tests/{program}_test.py", "--build", "{build}", "--jobs", "1", "--stop", *more], {}, seconds


GRADIENT_TESTS = [
    gradients("train", "train/train", "train/", 90, "--filter", "mlp|lamb|muon|clipped|distributions|scores|the digits"),
    gradients("gradient-loops", "onnx/gradient_loops", "gradient_(loop|control)", 90),
    gradients("gradient-points", "onnx/gradient_points", "(?!train/)", 30),
    gradients("gradient", "onnx/gradient", "(?!train/)", 60),
    gradients("derivatives", "exec/derivatives", "(?!train/)", 30),
    ("gradient-graphs", "(?!train/)", [PYTHON, "tests/fuzz/gradient_graphs.py", "--build", "{build}", "--jobs", "1", "--stop"], {}, 60),
    gradients("gradient-loops", "onnx/gradient_loops", "gradient_index|library", 90),
]


class Part:
    """Files whose mutants the same tests kill. first: what the first tests need, which alone is built for them; then: what is built, too."""

    def __init__(self, folder, files, tests, first, before_others, words=()):
        self.folder, self.files, self.tests, self.first, self.before_others, self.words = folder, files, tests, first, before_others, words
        unit = sorted({Path(command[0]).name for _, _, command, _, _ in tests if command[0].startswith("{build}")})
        self.targets = sorted({"cli/tgc", *first, *(f"tests/unit/{name}" for name in unit)})


# What the rules of derivatives are written in: each of these for another one of its kind.
RULE_WORDS = {"lib_add": ["lib_sub"], "lib_sub": ["lib_add"], "lib_mul": ["lib_div"], "lib_div": ["lib_mul"], "OP_ADD": ["OP_SUB"], "OP_SUB": ["OP_ADD"],
              "OP_MUL": ["OP_ADD"], "OP_LT": ["OP_EQ"], "OP_EQ": ["OP_LT"], "OP_SIN": ["OP_COS"], "OP_COS": ["OP_SIN"], "OP_SINH": ["OP_COSH"],
              "OP_COSH": ["OP_SINH"], "OP_SQRT": ["OP_ABS"], "OP_NEG": ["OP_ABS"], "OP_EXP": ["OP_EXP2"], "OP_LOG": ["OP_EXP"], "OP_TRUNC": ["OP_FLOOR"],
              "OP_FLOOR": ["OP_TRUNC"], "OP_OR": ["OP_AND"], "OP_AND": ["OP_OR"], "OP_ABS": ["OP_NEG"], "less": ["more"], "more": ["less"],
              "zero": ["one"], "one": ["zero"], "REDUCE_MEAN": ["REDUCE_SUM"], "lo": ["hi"], "hi": ["lo"]}
PARTS = {
    "passes": Part("passes/", ["passes/**/*.c"], TESTS, ["tests/ir/tgtool"], ("summary",)),
    "gradient": Part("frontend/", ["frontend/gradient_*.c", "frontend/library_gradient.c", "frontend/train/loss.c", "frontend/train/optimizer.c"],
                     GRADIENT_TESTS, ["cli/tgc"], tuple(test[0] for test in GRADIENT_TESTS), RULE_WORDS),
}

# ------------------------------------------------------------------------------------------- mutants

TOKEN = re.compile(r"""
    (?P<skip>/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|^\#(?:\\\n|[^\n])*)
  | (?P<space>\s+)
  | (?P<float>\d+\.\d*(?:[eE][-+]?\d+)?f?|\d+[eE][-+]?\d+f?)
  | (?P<int>0[xX][0-9a-fA-F]+[uUlL]*|\d+[uUlL]*)
  | (?P<word>[A-Za-z_]\w*)
  | (?P<op><<=|>>=|<<|>>|<=|>=|==|!=|&&|\|\||\+\+|--|->|\+=|-=|\*=|/=|%=|&=|\|=|\^=|[-+*/%<>=!&|^~?:;,.(){}\[\]])
""", re.S | re.M | re.X)

# What stands for an operator with a blank on both sides, as the style has all binary ones.
OPERATORS = {
    "<": ["<=", ">"], "<=": ["<", ">="], ">": [">=", "<"], ">=": [">", "<="], "==": ["!="], "!=": ["=="],
    "&&": ["||"], "||": ["&&"], "+": ["-"], "-": ["+"], "*": ["/"], "/": ["*"], "%": ["*"],
    "|": ["&"], "&": ["|"], "<<": [">>"], ">>": ["<<"], "+=": ["-="], "-=": ["+="], "|=": ["&="], "&=": ["|="],
}
WORDS = {"true": ["false"], "false": ["true"], "OP_MIN": ["OP_MAX"], "OP_MAX": ["OP_MIN"], "vmin": ["vmax"], "vmax": ["vmin"]}


class Mutant:
    def __init__(self, path, source, lines, start, end, text):
        self.path, self.start, self.end, self.text = path, start, end, text
        first = source.rfind("\n", 0, start) + 1
        last = source.find("\n", end)
        self.line = source.count("\n", 0, start) + 1
        self.old = source[first:last]
        self.new = source[first:start] + text + source[end:last]
        self.lines = lines

    @property
    def key(self):
        nth = 1 + self.lines[:self.line - 1].count(self.lines[self.line - 1])
        return key_of(self.path, nth, self.old, self.new)

    def apply(self, source):
        return source[:self.start] + self.text + source[self.end:]


def key_of(path, nth, old, new):
    return "\n".join([path, f"-{nth if nth > 1 else ''} {squeeze(old)}", f"+ {squeeze(new)}"])


def squeeze(lines):
    return " ".join(lines.split())


def tokens_of(source):
    return [(match.lastgroup, match.group(), match.start(), match.end()) for match in TOKEN.finditer(source)
            if match.lastgroup != "space"]


def closing(tokens, at):
    """The token that closes the parenthesis at `at`."""
    depth = 0
    for i in range(at, len(tokens)):
        depth += (tokens[i][1] == "(") - (tokens[i][1] == ")")
        if depth == 0:
            return i
    return len(tokens) - 1


def statement_end(tokens, at):
    while tokens[at][1] != ";":
        at += 1
    return at


def is_guarded(tokens, at):
    """Whether the statement hangs on a condition: removed, others are still behind it."""
    before = tokens[at - 1][1]
    if before == "else":
        return True
    if before != ")":
        return False
    depth = 0
    for i in range(at - 1, -1, -1):
        depth += (tokens[i][1] == ")") - (tokens[i][1] == "(")
        if depth == 0:
            return tokens[i - 1][1] in ("if", "for", "while")
    return False


def mutants_of(path, source, words=()):
    """All mutants of a file, in order; with words, only those of them."""
    tokens = [token for token in tokens_of(source) if token[0] != "skip"]
    depth, lines = 0, [squeeze(line) for line in source.split("\n")]
    for i, (kind, text, start, end) in enumerate(tokens):
        depth += (text == "{") - (text == "}")
        if words:
            if kind == "word" and text in words and depth:
                for other in words[text]:
                    yield Mutant(path, source, lines, start, end, other)
            if kind == "float" and depth:
                yield Mutant(path, source, lines, start, end, f"({text} * 2 + 1)")
            continue
        binary = source[start - 1] in " \n" and source[end:end + 1] in " \n"
        if kind == "op" and text in OPERATORS and binary:
            for other in OPERATORS[text]:
                yield Mutant(path, source, lines, start, end, other)
        elif text == "!" and depth:
            yield Mutant(path, source, lines, start, end, "")
        elif text == "if" and tokens[i + 1][1] == "(":
            close = closing(tokens, i + 1)
            inside = source[tokens[i + 1][3]:tokens[close][2]]
            yield Mutant(path, source, lines, tokens[i + 1][3], tokens[close][2], f"!({inside})")
        elif text in ("return", "continue", "break") and depth and is_guarded(tokens, i):
            yield Mutant(path, source, lines, start, tokens[statement_end(tokens, i)][2], "(void)0")
        elif kind == "word" and text in WORDS and depth:
            for other in WORDS[text]:
                yield Mutant(path, source, lines, start, end, other)
        elif kind == "int" and (depth or "enum" in source[source.rfind("\n", 0, start):start]):
            digits = re.match(r"0[xX][0-9a-fA-F]+|\d+", text).group()
            suffix, value = text[len(digits):], int(digits, 0) if not re.fullmatch(r"0\d+", digits) else int(digits, 8)
            if source[:start].rstrip().endswith("{") and value == 0:
                continue                # = {0}
            yield Mutant(path, source, lines, start, end, f"{value + 1}{suffix}")
            if value > 1:
                yield Mutant(path, source, lines, start, end, f"{value - 1}{suffix}")
        elif kind == "float" and depth:
            yield Mutant(path, source, lines, start, end, f"({text} * 2 + 1)")


def all_mutants(part, pattern, rules):
    found = []
    for path in sorted({path for files in part.files for path in ROOT.glob(files)}):
        name, source = str(path.relative_to(ROOT)), path.read_text()
        if fnmatch.fnmatch(name.removeprefix(part.folder), pattern):
            found += one_a_line(mutants_of(name, source, part.words)) if rules else mutants_of(name, source)
    return found


def one_a_line(mutants):
    """Of each line's mutants one, by its key."""
    by_line = {}
    for mutant in mutants:
        by_line.setdefault(mutant.line, []).append(mutant)
    return [min(those, key=lambda mutant: hashlib.sha1(mutant.key.encode()).digest()) for those in by_line.values()]


def read_list(path):
    """Key -> reason."""
    found, part = {}, []
    for line in [*(path.read_text().splitlines() if path.exists() else []), ""]:
        if line.startswith("#"):
            continue
        if line.strip():
            part.append(line)
        elif part:
            sign = re.match(r"-(\d*) ", part[1])
            key = key_of(part[0].strip(), int(sign.group(1) or 1), part[1][sign.end():], part[2][2:])
            found[key] = squeeze(" ".join(part[3:]))
            part = []
    return found


# ------------------------------------------------------------------------------------------- running

class Bench:
    """A copy of the tree, built; one mutant at a time is in it."""

    def __init__(self, build, part, ntest):
        self.part, self.tests = part, part.tests[:ntest]
        self.folder = build.resolve() / "mutate"
        self.tree, self.build, self.sanitized = (self.folder / name for name in ("tree", "build", "sanitized"))
        self.results = self.folder / "results.jsonl"

    def prepare(self):
        self.tree.mkdir(parents=True, exist_ok=True)
        fresh = False
        known = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
        for name in filter(None, known):
            source, copy = ROOT / name, self.tree / name
            if not source.exists():
                continue
            copy.parent.mkdir(parents=True, exist_ok=True)
            if not copy.exists() or copy.read_bytes() != source.read_bytes():
                shutil.copy(source, copy)
                fresh |= name.startswith(SOURCES) and "mutants_" not in name
        for link in (".venv", ".cache"):
            if (ROOT / link).exists() and not (self.tree / link).exists():
                (self.tree / link).symlink_to((ROOT / link).resolve())
        self.setup(self.build)
        if any("{sanitized}" in test[2] for test in self.tests):
            self.setup(self.sanitized, "-Db_sanitize=address,undefined", "-Dc_args=-fno-sanitize-recover=undefined")
        done = self.ninja()
        if done.returncode:
            raise SystemExit(f"the tree does not build:\n{done.stdout}")
        self.objects = {name: self.object_of(name) for name in known if name.startswith(self.part.folder) and name.endswith(".c")}
        failing = self.first_failing() if fresh else None
        if failing:
            raise SystemExit(f"without a mutant {failing[0]} fails: {failing[1]}")

    def setup(self, build, *options):
        if not (build / "build.ninja").exists():
            compiler = "ccache gcc" if shutil.which("ccache") else "gcc"
            env = {**os.environ, "CC": os.environ.get("CC", compiler), "LDFLAGS": "-fuse-ld=lld" if shutil.which("ld.lld") else ""}
            subprocess.run(["meson", "setup", build, self.tree, "-Dtests=enabled", "-Ddebug=false", "-Doptimization=1", *options], env=env, check=True,
                           stdout=subprocess.DEVNULL)

    def ninja(self, targets=None, build=None):
        command = ["ninja", "-C", build or self.build, "-j1", *(targets or self.part.targets)]
        memory = build != self.sanitized        # a build runs programs of its own, which reserve more there
        return subprocess.run(command, capture_output=True, text=True, preexec_fn=limits(COMPILE_SECONDS, memory))

    def object_of(self, path):
        """What the file is compiled to, as a sum."""
        folder = self.part.folder
        names = (path.removeprefix(folder).replace("/", "_") + ".o", Path(path).name + ".o")
        sums = [hashlib.sha1(o.read_bytes()).digest() for o in sorted(self.build.glob(f"{folder}**/*.o")) if o.name in names]
        return b"".join(sums)

    def first_failing(self, path=None):
        """The name of the first test that fails, and what it said; None: all pass."""
        self.spent, others = {}, False
        for name, files, command, env, seconds in self.tests:
            if path and not re.match(files, path.removeprefix(self.part.folder)):
                continue
            if name not in self.part.before_others and not others:
                others = True
                self.ninja()
            if "{sanitized}" in command and self.ninja(self.part.first, self.sanitized).returncode:
                return name, "does not build"          # rulegen runs then
            used = processor_seconds()
            command = [part.format(build=self.build, sanitized=self.sanitized) for part in command]
            try:
                done = subprocess.run(command, cwd=self.tree, env={**os.environ, **env}, capture_output=True, timeout=60 * seconds, start_new_session=True,
                                      preexec_fn=limits(seconds, memory=command[0] != PYTHON))
            except subprocess.TimeoutExpired:
                return name, "no end"
            self.spent[name] = round(processor_seconds() - used, 1)
            if done.returncode:
                said = (done.stdout + done.stderr).decode(errors="replace")
                fail = re.search(r"not ok[^\n]*|\[  FAILED  \][^\n]*|[^\n]*bug[^\n]*", said)
                return name, fail.group() if fail else f"ends with {done.returncode}"
        return None

    def run(self, mutant):
        source = (ROOT / mutant.path).read_text()
        copy = self.tree / mutant.path
        self.spent, start = {}, time.monotonic()
        used = processor_seconds()
        try:
            copy.write_text(mutant.apply(source))
            done = self.ninja(self.part.first)
            if done.returncode:
                verdict, by = "invalid", ""
            elif self.objects[mutant.path] == self.object_of(mutant.path):
                verdict, by = "same", ""
            else:
                failing = self.first_failing(mutant.path)
                verdict, by = ("killed", ": ".join(failing)) if failing else ("survived", "")
        finally:
            copy.write_text(source)
        return {"key": mutant.key, "line": mutant.line, "verdict": verdict, "by": by, "seconds": round(time.monotonic() - start, 1),
                "cpu": round(processor_seconds() - used, 1), "tests": self.spent}

    def known(self):
        lines = self.results.read_text().splitlines() if self.results.exists() else []
        return {row["key"]: row for row in map(json.loads, lines)}      # of two, the later

    def note(self, row):
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.results.open("a") as file:
            file.write(json.dumps(row) + "\n")


def processor_seconds():
    now = os.times()
    return now.children_user + now.children_system


def limits(seconds, memory=True):
    def set_limits():
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 2))
        if memory:
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    return set_limits


# ------------------------------------------------------------------------------------------- reports

def report(rows, equivalent, must):
    survived = [row for row in rows if row["verdict"] == "survived" and row["key"] not in equivalent]
    listed = [row for row in rows if row["verdict"] == "survived" and row["key"] in equivalent]
    killed = [row for row in rows if row["verdict"] == "killed"]
    for row in survived:
        path, *diff = row["key"].split("\n")
        print(f"survived: {path}:{row['line']}", *diff, sep="\n    ")
    missing = [row["key"] for row in survived if row["key"] in must]
    n = len(killed) + len(survived)
    print(f"{len(killed)} of {n} killed ({100 * len(killed) / max(n, 1):.1f} %); {len(listed)} equivalent or of cost alone, "
          f"{sum(row['verdict'] == 'same' for row in rows)} compiled to the same, {sum(row['verdict'] == 'invalid' for row in rows)} did not compile")
    ran = [row for row in rows if row["seconds"]]
    if ran:
        print(f"seconds a mutant: mean {sum(row['seconds'] for row in ran) / len(ran):.0f}, most {max(row['seconds'] for row in ran):.0f}; "
              f"of the processor {sum(row['cpu'] for row in ran) / len(ran):.0f}, most {max(row['cpu'] for row in ran):.0f}")
    return 1 if missing or len(killed) < WANTED * n else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default="build", type=Path, help="its folder `mutate` holds the copy and the results")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=200, help="mutants that compile to something else")
    parser.add_argument("--more", type=int, default=-1, help="stop after so many that were not known")
    parser.add_argument("--part", default="passes", choices=list(PARTS), help="which files, and by which tests")
    parser.add_argument("--file", default="*", help="of these files of passes/, or of the part's folder")
    parser.add_argument("--rules", action="store_true", help="a mutant of each line, by what the part's rules are written in")
    parser.add_argument("--again", action="store_true", help="run those that survived once more")
    parser.add_argument("--first", type=int, help="run so many of the tests")
    parser.add_argument("--report", action="store_true", help="run nothing")
    parser.add_argument("--list", action="store_true", help="print all mutants and stop")
    options = parser.parse_args()
    part = PARTS[options.part]
    mutants = all_mutants(part, options.file, options.rules)
    if options.list:
        for mutant in mutants:
            print(f"{mutant.path}:{mutant.line}\n- {squeeze(mutant.old)}\n+ {squeeze(mutant.new)}")
        print(len(mutants), "mutants")
        return 0
    equivalent, must = (read_list(ROOT / f"tests/mutants_{name}.txt") for name in ("equivalent", "killed"))
    bench = Bench(options.build, part, options.first)
    known, rows = bench.known(), []
    places = {tuple(key.split("\n")[::2]): key for key in must}
    first = [mutant for mutant in mutants if (mutant.path, f"+ {squeeze(mutant.new)}") in places and mutant.key in must]
    mutants.sort(key=lambda mutant: hashlib.sha1(f"{options.seed} {mutant.key}".encode()).digest())    # the same ones where other files change
    ready, count, more = False, -len(first), options.more
    for mutant in first + [mutant for mutant in mutants if mutant not in first]:
        if count >= options.count:
            break
        row = known.get(mutant.key)
        if row and options.again and row["verdict"] == "survived" and mutant.key not in equivalent:
            row = None
        if not row and options.report:
            continue
        if not row and mutant.key in equivalent:
            row = {"key": mutant.key, "verdict": "survived", "seconds": 0, "cpu": 0}
            bench.note(row)
        if not row and more == 0:
            return 0
        if not row:
            more -= 1
            if not ready:
                bench.prepare()
                ready = True
            row = bench.run(mutant)
            bench.note(row)
            path, *diff = row["key"].split("\n")
            print(f"{row['verdict']} {path}:{row['line']} ({row['seconds']} s) {row['by']}", *diff, sep="\n    ", flush=True)
        row["line"] = mutant.line
        rows.append(row)
        count += row["verdict"] in ("killed", "survived")
    return report(rows, equivalent, must)


if __name__ == "__main__":
    sys.exit(main())
