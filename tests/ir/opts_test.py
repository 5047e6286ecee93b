"""OptOps: what passes do to a kernel's loops is a list that can be printed, read and done again.

golden/opts/OPT/ holds, for each opt, `kernel.tgk`, `legal*.opts`, lists that have the opt and that may be applied to it, with what comes of
them in `legal*.expected` (--bless rewrites it), and `forbidden*.opts`, lists whose last opt a legality condition refuses: their first line
says the reason; `# kernel: FOLDER` is a second one, a legal list's first one, with the kernel of another folder. What a legal list makes of a kernel computes the same. For the texts of golden/passes, too, the list that the passes print,
applied to the kernel, makes what the passes make.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/lib"))
from suite import Suite, expect  # noqa: E402

suite = Suite("opts")
OPTS = ROOT / "tests/ir/golden/opts"
PASSES = ROOT / "tests/ir/golden/passes"
ISAS = ["generic", "neon", "avx2", "avx512vnni", "amx"]


def tgtool(*arguments, text=None):
    command = [Path(suite.options.build).resolve() / "tests/ir/tgtool", *arguments]
    return subprocess.run(command, input=text, capture_output=True, timeout=60)


def output(*arguments, text=None):
    done = tgtool(*arguments, text=text)
    expect(done.returncode == 0, f"{arguments} ends with {done.returncode}: {done.stderr.decode()}")
    return done.stdout.decode()


def values(text):
    return {line.split(" =")[0]: [float(v) for v in line.partition(" =")[2].split()]
            for line in output("eval", "-", text=text.encode()).splitlines()}


def kernel_of(path, line):
    """The folder whose kernel the list is for, by its line of that number."""
    lines = path.read_text().splitlines()
    return OPTS / lines[line].removeprefix("# kernel: ") if lines[line].startswith("# kernel: ") else path.parent


def legal(path):
    folder = kernel_of(path, 0)
    before = (folder / "kernel.tgk").read_text()
    after = output("apply", path, folder / "kernel.tgk")
    expected = path.with_suffix(".expected")
    if suite.options.bless:
        expected.write_text(after)
    expect(expected.exists(), f"{expected.name} is missing; --bless writes it")
    expect(after == expected.read_text(), f"differs from {expected.name}:\n{after}")
    listed = [line.split()[0] for line in path.read_text().splitlines() if line and line[0] != "#"]
    expect(path.parent.name in listed, f"{path.name} lacks {path.parent.name}")
    compare(values(before), values(after), after)


def compare(want, have, text):
    for name in want:
        close = all(a == b or abs(a - b) <= 1e-6 * (1 + abs(a)) for a, b in zip(want[name], have[name]))
        expect(len(want[name]) == len(have[name]) and close, f"%{name} has other values:\n{text}")


def forbidden(path):
    lines = path.read_text().splitlines()
    reason = lines[0].removeprefix("# ")
    flags = re.findall(r"-t \d+", lines[1]) if lines[1].startswith("# flags:") else []
    folder = kernel_of(path, 1)
    done = tgtool(*" ".join(flags).split(), "apply", path, folder / "kernel.tgk")
    say = done.stderr.decode()
    expect(done.returncode == 1, f"ends with {done.returncode}: {say}{done.stdout.decode()}")
    expect(say == f"refused: {lines[-1]}: {reason}\n", f"have: {say}want: refused: {lines[-1]}: {reason}")


def sections(text):
    """{instruction set: its part}"""
    parts = re.split(r"(?m)^# (\w+)\n", text)
    return dict(zip(parts[1::2], parts[2::2]))


def by_order(text):
    """The text with ranges numbered in their order: trials of passes use up numbers."""
    names = re.findall(r"(?m)^range ([a-z]\d+)", text)
    number = {name: f"{name[0]}{i}" for i, name in enumerate(names)}
    return re.sub(r"\b[a-z]\d+\b", lambda found: number.get(found.group(0), found.group(0)), text)


def replayed(path, isa, threads):
    flags = ["-i", isa, "-t", str(threads)]
    lists, made = sections(output(*flags, "opts", path)), sections(output(*flags, "loops", path))
    expect(lists.keys() == made.keys() and lists, f"lists of {list(lists)}, kernels of {list(made)}")
    for name, opts in lists.items():
        with tempfile.NamedTemporaryFile("w", suffix=".opts") as file:
            file.write(opts)
            file.flush()
            again = output("-t", str(threads), "apply", file.name, path)
        expect(by_order(again) == by_order(made[name]), f"{name}: by\n{opts}there is\n{again}but the passes make\n{made[name]}")


def kept(path):
    """What threads share comes behind what was done before, and loses nothing of it."""
    alone, shared = sections(output("-i", "avx2", "opts", path)), sections(output("-i", "avx2", "-t", "4", "opts", path))
    for name, opts in alone.items():
        expect(shared[name].startswith(opts), f"{name}: with threads\n{shared[name]}without\n{opts}")
    expect("unroll" in alone["generic"] and "thread" in shared["generic"], f"no choices, or no threads:\n{shared['generic']}")


ERRORS = [
    ("lane 0\n", "1:1: this is no opt"),
    ("order 0 axis=1\n", "'order' lacks to="),
    ("order 0 axis=1 to=0 to=1\n", "1:21: this is no argument of 'order', or not the first"),
    ("divide 0 axis=1 n=x\n", "1:19: a whole number is expected"),
    ("divide 0.loop1 axis=1 n=2\n", "1:10: 'stage' or 'sum' is expected"),
    ("\n\nlanes 0 axis=0 n=4 kind=wide as=row\n", "3:25: a kind of loop is expected"),
    ("divide 0 axis=0 n=99999999999999999999\n", "1:19: a number of at most"),
    ("divide 2147483647 axis=0 n=2\n", "1:8: a number of at most 1048576 is expected"),
    ("divide 0.sum2147483647 axis=0 n=2\n", "1:13: a number of at most"),
    ("divide 0 axis=2147483647 n=2\n", "1:15: a number of at most"),
    ("order 0 axis=1 to=2147483647\n", "1:19: a number of at most"),
    ("pack 0.sum0 axis=0 n=4 operand=2147483647 space=scratch\n", "1:32: a number of at most"),
    ("pack 0.sum0 axis=0 n=4 operand=1 space=far\n", "1:40: a space of spaces.def is expected"),
    ("pipeline 0.sum0 n=2 how=early\n", "1:25: a transfer of transfers.def is expected"),
    ("divide 7 axis=0 n=2\n", "the kernel has no such store"),
    ("divide 0 axis=99 n=2\n", "the nest has no such loop"),
    ("lanes 0.stage3 axis=0 n=2 kind=lane as=row\n", "the store has no such stage"),
]


def error(text, message):
    with tempfile.NamedTemporaryFile("w", suffix=".opts") as file:
        file.write(text)
        file.flush()
        done = tgtool("apply", file.name, PASSES / "tile/changes.tgk")
    expect(done.returncode == 1, f"exit status {done.returncode}")
    expect(message in done.stderr.decode(), f"have {done.stderr.decode()}want {message}")


def deep(folder):
    """Nests of many loops are refused by a message, or done; whatever a text says, nothing crashes."""
    text = (folder / "kernel.tgk").read_text()
    for op in ("stage", "reduce", "store"):
        for count in (15, 40, 70):
            ranges = [f"r{900 + i}" for i in range(count)]
            more = "".join(f"range {r} < 1{i % 2}\n" for i, r in enumerate(ranges))
            lines = re.sub(rf"(?m)^((?:%\S+ : \S+ = )?{op}\([^)]*)\)", rf"\1, {', '.join(ranges)})", text)
            first = re.search(r"(?m)^range ", lines)
            if lines == text or not first:
                continue
            with tempfile.NamedTemporaryFile("w", suffix=".tgk") as file:
                file.write(lines[:first.start()] + more + lines[first.start():])
                file.flush()
                done = tgtool("apply", folder / "legal.opts", file.name)
            expect(done.returncode in (0, 1), f"{op}s of {count} more loops end with {done.returncode}")
            expect(done.returncode == 0 or done.stderr, "refused without a word")


def varied(lines):
    """Each line of a list, behind those before it, with one of its numbers, loops or nests changed, and each once more, said twice."""
    for i, line in enumerate(lines):
        number = [(found.span(1), str(by)) for found in re.finditer(r"=(\d+)", line) for by in (0, 1, 2, 3, 5, 1 << 40) if str(by) != found[1]]
        nest = re.match(r"\w+ (\d+)(\.\w+)?", line)
        place = [(nest.span(1), nest[1] + of) for of in (".sum0", ".stage0") if not nest[2]]
        place += [(nest.span(1), str(by)) for by in (0, 1, 9) if str(by) != nest[1]]
        for (begin, end), by in number + place:
            yield [*lines[:i], line[:begin] + by + line[end:]]
        yield [*lines[:i + 1], line]


def near(folder):
    """Lists next to a legal one are refused by a message, or leave what the kernel computes."""
    want = values((folder / "kernel.tgk").read_text())
    lines = [line for line in (folder / "legal.opts").read_text().splitlines() if line and line[0] != "#"]
    tried = applied = 0
    for opts in varied(lines):
        said = "\n".join(opts)
        with tempfile.NamedTemporaryFile("w", suffix=".opts") as file:
            file.write(said + "\n")
            file.flush()
            done = tgtool("apply", file.name, folder / "kernel.tgk")
        expect(done.returncode in (0, 1), f"{said}\nends with {done.returncode}: {done.stderr.decode()}")
        expect(done.returncode == 0 or done.stderr, f"{said}\nis refused without a word")
        tried += 1
        if done.returncode == 0:
            applied += 1
            compare(want, values(done.stdout.decode()), f"{said}\n{done.stdout.decode()}")
    expect(tried > applied, f"all of {tried} lists are legal")


def all_have_texts():
    """Each opt has a folder with both sides."""
    rows = re.findall(r'^OPT\(\w+,\s*"([\w-]+)"', (ROOT / "passes/opts.def").read_text(), re.M)
    have = {folder.name for folder in OPTS.iterdir() if (folder / "legal.opts").exists() and list(folder.glob("forbidden*.opts"))}
    expect(set(rows) == have, f"opts {sorted(rows)}, texts of {sorted(have)}")


def main():
    suite.parse(lambda parser: parser.add_argument("--bless", action="store_true", help="rewrite what is expected"))
    for folder in sorted(OPTS.iterdir()):
        for path in sorted(folder.glob("legal*.opts")):
            suite.add(f"{folder.name}: {path.stem}", legal, path)
        suite.add(f"{folder.name}: nests of many loops", deep, folder)
        suite.add(f"{folder.name}: lists next to the legal one", near, folder)
        for path in sorted(folder.glob("forbidden*.opts")):
            suite.add(f"{folder.name}: {path.stem}", forbidden, path)
    for path in sorted(PASSES.glob("*/*.tgk")):
        # neither programs nor what a block's threads share already
        if not re.search(r"(?m)^linear$|^range r\d+\.item", path.read_text()):
            for isa in ISAS:
                for threads in (1, 4):
                    suite.add(f"{path.parent.name}: {path.stem} again, {isa}, {threads} threads", replayed, path, isa, threads)
    suite.add("choices are kept with threads", kept, OPTS / "unroll/kernel.tgk")
    for number, (text, message) in enumerate(ERRORS):
        suite.add(f"error {number}: {message}", error, text, message)
    suite.add("all opts have texts", all_have_texts)
    suite.main()


if __name__ == "__main__":
    main()
