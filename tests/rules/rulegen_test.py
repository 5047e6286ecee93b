"""What rulegen makes of a file with a rule of each kind (golden/sample.rules), in each of its modes, and what it says of mistakes: place, text, caret.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/lib"))
from suite import Suite, expect  # noqa: E402

suite = Suite("rulegen")
GOLDEN = ROOT / "tests/rules/golden"
MODES = {"c": [], "sets": ["--sets"], "table": ["--table"], "py": ["--z3"]}

# a file of rules, and what is said of it
MISTAKES = [
    ("a: x => x\n", "1:4: error: the left side of a rule must be an op\n  a: x => x\n     ^"),
    ("# nothing\na: x + 0 =>\n", "3:1: error: expected an expression"),
    ("a: x + 0 = x\n", "1:10: error: expected '=>'"),
    ("a x + 0 => x\n", "1:3: error: expected ':'"),
    ("1: x + 0 => x\n", "1:1: error: expected a name"),
    ("a: x + 0 => x y\n", "1:15: error: expected the end of the rule"),
    ("a: x + 0 => x\n   # more\n   if 1 < 2 3\n", "3:13: error: expected the end of the rule"),
    ("a: max(x, y, z) => x\n", "1:4: error: 'max' takes 2 operands, not 3"),
    ("a: max(x) => x\n", "1:4: error: 'max' takes 2 operands, not 1"),
    ("a: concat(x, y, z, u, v, w, m) => x\n", "1:29: error: more than 6 arguments"),
    ("a: concat(x y) => x\n", "1:13: error: expected ','"),
    ("a: most(x, y) => x\n", "1:4: error: 'most' is neither an op nor a helper; helpers are listed in passes/rules/rules.def"),
    ("a: x + y => fold_sum(x)\n", "1:13: error: helper 'fold_sum' takes 2 arguments, not 1"),
    ("a: fold_sum(x, y) => x\n", "1:4: error: 'fold_sum' is neither an op nor a helper"),
    ("a: x + c0 => x if odd(c0)\n", "1:19: error: 'odd' is no guard function; they are listed in passes/rules/rules.def"),
    ("a: x:number + 0 => x\n", "1:6: error: 'number' is no dtype class; they are listed in passes/rules/rules.def"),
    ("a: ~x + 0 => x\n", "1:4: error: '~' stands before a constant: one that may be repeated"),
    ("a: where(x <= y, x, y) => x\n", "1:12: error: '<=' has no place in a pattern: write it with '<', '!' or in the guard"),
    ("a: [x] + [y] => x\n", "1:10: error: more than one part behind movement"),
    ("a: x + 0 => [x]\n", "1:13: error: the left side has no part behind movement"),
    ("a: [x + 0 => x\n", "1:11: error: expected ']'"),
    ("a: x + 0 => y\n", "1:13: error: 'y' does not stand on the left side"),
    ("a: x + c0 => x if c1 > 0\n", "1:19: error: 'c1' does not stand on the left side"),
    ("a: x + c0 => x if x > 0\n", "1:19: error: a guard computes with integers: 'x' is a uop; vmin(), vmax() give its bounds"),
    ("a: x + c0 => x if exact(x * c0)\n", "1:27: error: this does not stand on the left side"),
    ("a: x + c0 => x if lo(x) > 0\n", "1:19: error: 'lo' needs what a pass knows: it has its place in a named set"),
    ("a: load(x, y) => where(y, load(x, y), x)\n", "1:24: error: a bool where an integer is needed, or the reverse"),
    ("a: load(x, true) => x\n", "1:4: error: a bool where an integer is needed, or the reverse"),
    ("a: cast(x) => y@max(x, 0)\n", "1:16: error: expected the end of the rule"),
    ("a: cast(x) => cast(x + 1 < 2)\n", None),
    ("a: x < y => cast(3) < cast(4)\n", "error: the left side does not say what dtype this has"),
    ("a: a0@max(a1@max(a2@max(a3@max(a4@max(a5@max(a6@max(a7@max(a8@max(x, 1), 1), 1), 1), 1), 1), 1), 1), 1) => x\n",
     "error: more than 8 names of patterns"),
    ("a: " + "-(" * 64 + "x" + ")" * 64 + " => x\n", "error: a rule of more than 64 parts"),
    ("a: (x * -y + z * -u) ^ (v * -w + (m * -n | -x)) => x\n", "1: error: rule 'a' has more than"),
    ("@leve always\n", "1:2: error: unknown directive 'leve': @level, @class and @set exist"),
    ("@level sometimes\n", "1:8: error: unknown level 'sometimes'"),
    ("@class number\n", "1:8: error: unknown class 'number'"),
    ("@set games\n", "1:6: error: unknown set 'games'"),
    ("a: x + 0 => x\n\nb: x * 1 => x\na: x - 0 => x\n", "4:1: error: a rule of this name stands at "),
]


def rulegen(*arguments):
    return subprocess.run([Path(suite.options.build).resolve() / "passes/rules/rulegen", *arguments], capture_output=True, text=True, timeout=30)


def mode(ending):
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        done = rulegen(*MODES[ending], out, GOLDEN / "sample.rules")
        expect(done.returncode == 0, done.stderr)
        expected = GOLDEN / f"sample.{ending}.expected"
        if suite.options.bless:
            expected.write_text(out.read_text())
        expect(out.read_text() == expected.read_text(), f"differs from {expected.name}:\n{out.read_text()}")


def mistake(text, message):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bad.rules"
        path.write_text(text)
        done = rulegen(Path(folder) / "out", path)
        expect(done.returncode == (message is not None), f"ends with {done.returncode}: {done.stderr}")
        expect(message is None or (done.stderr.startswith((str(path) + ":", "bad.rules:")) and message in done.stderr), f"says {done.stderr}")


def usage():
    for words in ([], ["out"], ["--table", "out"], ["--what", "out", str(GOLDEN / "sample.rules")]):
        done = rulegen(*words)
        expect(done.returncode == 2 and done.stderr.startswith("usage: rulegen"), f"{words}: {done.returncode}, {done.stderr}")
    done = rulegen("/dev/null", "nowhere.rules")
    expect(done.returncode == 1 and done.stderr == "rulegen: cannot read nowhere.rules\n", done.stderr)


def main():
    suite.parse(lambda parser: parser.add_argument("--bless", action="store_true", help="rewrite what is expected"))
    for ending in MODES:
        suite.add(f"sample: {ending}", mode, ending)
    for text, message in MISTAKES:
        suite.add(f"mistake: {message or text}".split("\n")[0], mistake, text, message)
    suite.add("usage", usage)
    suite.main()


if __name__ == "__main__":
    main()
