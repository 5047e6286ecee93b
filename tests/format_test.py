"""C within 100 columns, and sentences of comments that are read once.

A line of *.c or *.h has at most 100 columns. Tables (between `clang-format off` and `on`), annotations (`//@`) and
lines that are long because of their string literals are exempt, and so are .def files, which are tables.

A sentence of a comment has at most 40 words. A sentence ends with . ; : ? or !, with its paragraph, or with the
comment. Lines of a drawing or table (box characters, columns set apart by spaces) end one, too, and are not counted.

LEFT has how many there are beyond that, by folder: none today. Its numbers may only become smaller. More than LEFT
says is a failure that names each place; fewer is said in a line of the output.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "lib"))

from suite import Suite, expect

COLUMNS, WORDS = 100, 40
FOLDERS = ("backends", "bench", "cli", "examples", "frontend", "integration", "ir", "lib", "models", "passes", "python", "runtime", "tests")

# folder: lines beyond COLUMNS, sentences beyond WORDS
LEFT = {}

STRING = re.compile(r'"(?:\\.|[^"\\\n])*"')
CODE = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|(/\*.*?\*/|//[^\n]*(?:\n[ \t]*//[^\n]*)*)', re.S)
DRAWN = re.compile(r"[─-▟]|\S {3,}\S|^\s*\||->|^ {5,}\S")
WORD = re.compile(r"[A-Za-z][\w'-]*")


def long_lines(text):
    """(line, how many columns it has) of those that are too long."""
    table = False
    for number, line in enumerate(text.split("\n"), 1):
        table = "clang-format off" in line or table and "clang-format on" not in line
        if not table and "//@" not in line and len(STRING.sub('""', line)) > COLUMNS:
            yield number, len(line)


def comments(text):
    """(line, text without the stars and slashes) of each."""
    for found in CODE.finditer(text):
        if found[1] and not found[1].startswith("//@"):
            lines = [re.sub(r"^\s*(?:/\*+|\*(?!/)|//+)?", "", line).removesuffix("*/") for line in found[1].split("\n")]
            yield text.count("\n", 0, found.start()) + 1, lines


def long_sentences(text):
    """(line in which it begins, how many words it has) of those that are too long."""
    for first, lines in comments(text):
        start, words = first, 0
        for number, line in enumerate([*lines, ""], first):
            ends = not line.strip() or DRAWN.search(line) or re.match(r"\s*(?:[-+=]{3,}|[-*·] |\d+[.)] )", line)
            parts = [] if not line.strip() or DRAWN.search(line) else re.split(r"(?<=[.;:?!])\s+", line.strip())
            if ends:
                if words > WORDS:
                    yield start, words
                start, words = number, 0
            for part in parts:
                start = start if words else number
                words += len(WORD.findall(part))
                if re.search(r"[.;:?!]$", part):
                    if words > WORDS:
                        yield start, words
                    words = 0


def sources(folder):
    return sorted((ROOT / folder).rglob("*.[ch]"))


def check(folder):
    """No more of a kind than LEFT says."""
    for kind, (find, unit) in enumerate(((long_lines, "columns"), (long_sentences, "words"))):
        places = [f"{path.relative_to(ROOT)}:{number}: {size} {unit}" for path in sources(folder)
                  for number, size in find(path.read_text(encoding="utf-8"))]
        allowed = LEFT.get(folder, (0, 0))[kind]
        expect(len(places) <= allowed, f"{len(places)} where LEFT has {allowed}:\n" + "\n".join(places))
        if len(places) < allowed:
            print(f"# {folder}: {len(places)} {unit}, LEFT may say so instead of {allowed}")


LONG = "so " * 20
# C text, then what is found in it: [lines that are too long], [first lines of sentences that are too long].
PLANTED = [
    ("a line of code", f"int a;\nint b = {'1 + ' * 30}1;\n", [2], []),
    ("100 columns are within, and characters count, not bytes", "/* " + "é" * 94 + " */\n", [], []),
    ("101 are not", "/* " + "é" * 95 + " */\n", [1], []),
    ("a literal makes it long", f'puts("{LONG * 2}");\n', [], []),
    ("code beside a short literal", f'puts("{LONG}"), {"f(), " * 20}g();\n', [1], []),
    ("a table", f"/* clang-format off */\n{'1, ' * 60}\n/* clang-format on */\n{'1, ' * 60}\n", [4], []),
    ("an annotation", f"//@ {LONG * 3}\n", [], []),
    ("a sentence over lines", f"/* A short one. {LONG}\n * {LONG}\n * word. */\n", [], [1]),
    ("one that begins later", f"/* A short one.\n * {LONG}\n * {LONG}\n * word. */\n", [], [2]),
    ("line comments", f"int a; // {LONG}\n// {LONG}\n// word\n", [], [1]),
    ("two sentences of forty words", f"/* {LONG}\n * {LONG.strip()}.\n * {LONG}\n * {LONG} */\n", [], []),
    ("a colon or semicolon ends one", f"/* {LONG.strip()};\n * {LONG.strip()}:\n * {LONG} */\n", [], []),
    ("an empty line ends one", f"/* {LONG}\n *\n * {LONG} word */\n", [], []),
    ("a drawing is none", f"/* {LONG}\n *     a ── b ──> c\n * {LONG} word */\n", [], []),
    ("no comment within a string", f'char s[] = "/* {LONG * 3} */";\n', [], []),
    ("a quote in a comment begins no string", f'/* "{LONG}\n * {LONG}\n * word. */\n', [], [1]),
]


def planted(text, lines, sentences):
    found = [n for n, _ in long_lines(text)], [n for n, _ in long_sentences(text)]
    expect(found == (lines, sentences), f"found {found}, not {(lines, sentences)} in\n{text}")


def whole():
    """The folders are all of those that have C, and LEFT knows no other."""
    found = {path.relative_to(ROOT).parts[0] for kind in ("*/*.[ch]", "*/*/*.[ch]") for path in ROOT.glob(kind)
             if not (ROOT / path.relative_to(ROOT).parts[0] / "build.ninja").exists() and path.relative_to(ROOT).parts[0][0] != "."}
    expect(found <= set(FOLDERS) and set(LEFT) <= set(FOLDERS), f"{sorted(found - set(FOLDERS))} are not in FOLDERS")
    expect(sum(1 for folder in FOLDERS for _ in sources(folder)) > 400, "few files are read")


def main():
    suite = Suite("format")
    suite.parse()
    for name, *rest in PLANTED:
        suite.add(f"planted: {name}", planted, *rest)
    suite.add("every folder of C", whole)
    for folder in FOLDERS:
        suite.add(folder, check, folder)
    suite.main()


if __name__ == "__main__":
    main()
