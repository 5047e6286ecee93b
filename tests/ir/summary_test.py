"""What a compile decides, for graphs of all kinds: golden/summaries/NAME.tg is compiled with each of the flags of its first line, and what tgtool's
verb `summary` prints (estimates, tiles, opts, places, stacks, how many ops each program has: tests/ir/summary.c) stands in NAME.expected. A change
of what is chosen shows there; --bless rewrites it, and the difference is to be read. The programs are run, too: on the interpreter they compute what
the graph says, within `# tolerance: 1e-4`, but where a line `# values: WHY NOT` says that they are not.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/lib"))
from suite import Suite, expect  # noqa: E402

suite = Suite("summary")
GOLDEN = ROOT / "tests/ir/golden/summaries"
NAMES = r"\br\d+\b|%(?:temp|scratch|weight|output|input)\d+\b"


def tgtool(*arguments):
    command = [Path(suite.options.build).resolve() / "tests/ir/tgtool", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def flags(path):
    first = path.read_text().splitlines()[0]
    expect(first.startswith("# flags: "), f"{path.name}: its first line has no flags")
    return [part.split() for part in first.removeprefix("# flags: ").split("|")]


def numbered(text):
    """Ranges and buffers are numbered as they appear: what a pass makes on trial changes nothing."""
    names = {}
    for name in re.findall(NAMES, text):
        kind = name.rstrip("0123456789")
        names.setdefault(name, f"{kind}{sum(other.startswith(kind) for other in names.values())}")
    return re.sub(NAMES, lambda match: names[match.group()], text)


def summary(path):
    text = ""
    for words in flags(path):
        done = tgtool(*words, "summary", path)
        expect(done.returncode in (0, 1), f"{' '.join(words)}: ends with {done.returncode}: {done.stderr}")
        expect(done.returncode == 0 or "--state" in done.stderr, f"{' '.join(words)}: fails: {done.stderr}")
        text += f"== {' '.join(words)}\n{numbered(done.stdout)}{done.stderr}"
    expected = path.with_suffix(".expected")
    if suite.options.bless:
        expected.write_text(text)
    expect(expected.exists(), f"{expected.name} is missing; --bless writes it")
    want = expected.read_text()
    if text != want:
        apart = next((n for n, (a, b) in enumerate(zip(want.split("\n"), text.split("\n"))) if a != b), 0)
        have = text.split("\n")[apart:apart + 3]
        expect(False, f"differs from {expected.name}, line {apart + 1}:\n" + "\n".join([*want.split("\n")[apart:apart + 3], "is now", *have]))


def values(path):
    found = re.search(r"(?m)^# tolerance: (\S+)", path.read_text())
    for words in flags(path):
        done = tgtool(*words, "-e", found.group(1) if found else "1e-4", "run", path)
        expect(done.returncode == 0, f"{' '.join(words)}: the programs compute something else:\n{done.stdout[:1000]}{done.stderr}")


def in_turn(paths):
    """The first of each kind, the second of each, and so on: what is wrong shows early."""
    seen, order = {}, {}
    for path in paths:
        kind = path.stem.split("_")[0]
        seen[kind] = seen.get(kind, 0) + 1
        order[path] = seen[kind]
    return sorted(paths, key=lambda path: (order[path], path))


def main():
    suite.parse(lambda parser: parser.add_argument("--bless", action="store_true", help="rewrite what is expected"))
    paths = in_turn(sorted(GOLDEN.glob("*.tg")))
    for path in paths:
        suite.add(f"summary of {path.stem}", summary, path)
    for path in paths:
        if not re.search(r"(?m)^# values: ", path.read_text()):
            suite.add(f"values of {path.stem}", values, path)
    suite.main()


if __name__ == "__main__":
    main()
