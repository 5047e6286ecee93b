"""Kernels as text, and passes one by one.

golden/passes/ROW/ holds, for a row of passes.def, `changes`, which the pass changes, and `forbidden`, which is like it but for what a
legality condition forbids: it stays as it is. There may be several, `changes_WHY` and `forbidden_WHY`. .tgk is a kernel's AST or a linear
program, .tg a graph; passes behind those of graphs are run on a graph after all before them, and what is compared is the plan or the schedule. Beside each
stands what tgtool makes of it (--bless rewrites it), but for a forbidden one, whose text is its own. A first line `# flags: ...` has
tgtool's options; `# tolerance: 1e-3` says by how much of a value a pass may round otherwise (1e-5). Each row has such texts. What a pass makes of a kernel or of a graph computes the same: both
are run; and so are the programs that all passes make of a graph.
"""

import random
import re
import subprocess
import sys
import zlib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/lib"))
from suite import Failure, Suite, expect  # noqa: E402

suite = Suite("passes")
# beside the portable programs of one thread: vectors, threads, a grid; of a text one of them in the quick form, of each model all
VARIANTS = (["-i", "avx2"], ["-i", "avx512vnni", "-t", "3"], ["-d", "generic-gpu", "-t", "64"])
GOLDEN = ROOT / "tests/ir/golden/passes"
BY_BLOCKS_SLOW = {"transpose_keys", "byte_sums", "online_find", "prefetch_panel", "strassen", "twins"}     # the interpreter runs thread by thread
NO_CONDITION = {"linearize", "nodes", "blocks", "fuse", "emit_steps", "collect", "sizes", "arena", "weights"}   # done to everything


def tgtool(*arguments, text=None, timeout=60):
    command = [Path(suite.options.build).resolve() / "tests/ir/tgtool", *arguments]
    return subprocess.run(command, input=text, capture_output=True, timeout=timeout)


def tolerance(path):
    found = re.search(r"(?m)^# tolerance: (\S+)", path.read_text())
    return found.group(1) if found else "1e-5"


def flags(path):
    first = path.read_text().splitlines()[0]
    return first.removeprefix("# flags:").split() if first.startswith("# flags:") else []


def run_pass(path, *more):
    done = tgtool(*flags(path), *more, "pass", path.parent.name, path)
    expect(done.returncode == 0, f"{path.parent.name} ends with {done.returncode}: {done.stderr.decode()}")
    return numbered(done.stdout.decode()) if path.suffix == ".tg" else done.stdout.decode()


def numbered(text):
    """Ranges and intermediates are numbered as they appear: a pass that makes some on trial changes no golden."""
    if not text.startswith(("plan", "schedule", "kernel")):
        return text
    names = {}
    for name in re.findall(r"\b[rb]\d+\b|%(?:temp|scratch|weight|output|input)\d+\b", text):
        kind = name.rstrip("0123456789")
        names.setdefault(name, f"{kind}{sum(other.startswith(kind) for other in names.values())}")
    return re.sub(r"\b[rb]\d+\b|%(?:temp|scratch|weight|output|input)\d+\b", lambda match: names[match.group()], text)


def short(text):
    """Of large weights a sum."""
    return re.sub(r'base64\("([^"]{100,})"\)', lambda match: f'base64({len(match[1])} letters, {zlib.crc32(match[1].encode()):08x})', text)


def changes(path):
    before, after = run_pass(path, "-b"), run_pass(path)
    expect(before != after, "the pass changes nothing")
    expected = path.with_suffix(".expected")
    if suite.options.bless:
        expected.write_text(short(after))
    expect(expected.exists(), f"{expected.name} is missing; --bless writes it")
    expect(short(after) == expected.read_text(), f"differs from {expected.name}:\n{short(after)}")
    check_values(path, before, after)


def forbidden(path):
    before, after = run_pass(path, "-b"), run_pass(path)
    expect(forms(before) == forms(after), f"the pass changes what it must leave alone:\n{after}")
    if path.suffix == ".tg":
        check_values(path, before, after)


def check_values(path, before, after):
    """What the pass makes computes the same, and what all passes make of a graph does. `# values: WHERE` says of a large graph which other tests run it."""
    if re.search("(?m)^# values: ", path.read_text()):
        return
    if path.suffix == ".tgk" or before.startswith("tg "):
        given = flags(path)
        same_values(before, after, float(tolerance(path)), given[given.index("-B"):given.index("-B") + 2] if "-B" in given else ())
    if path.suffix == ".tgk":
        return
    for more in ([], *variants(path)):
        if more and ("-i" in flags(path) or ("-d" in more and path.parent.name in BY_BLOCKS_SLOW)):
            continue
        run_graph(path, *flags(path), *more, "-e", tolerance(path))


def variants(path):
    """In the quick form by the text's name, so that a new text changes no other's."""
    return VARIANTS if suite.options.all else (VARIANTS[zlib.crc32(f"{path.parent.name}/{path.name}".encode()) % len(VARIANTS)],)


def run_graph(path, *options):
    """The programs that all passes make of a graph compute what it says."""
    done = tgtool(*options, "run", path)
    expect(done.returncode == 0, f"{' '.join(options)}: the schedule computes something else:\n{done.stdout.decode()[:2000]}{done.stderr.decode()}")


def forms(text):
    """The kernels of a text, each from its first line on; what names instruction sets stands in front of a variant."""
    parts = re.split(r"(?m)^(?=kernel$|linear$|tg 1$|plan$|schedule:)", re.sub(r"(?m)^#.*\n", "", text))
    return [part for part in parts if part]


def values(text, *options):
    done = tgtool(*options, "eval", "-", text=text.encode())
    expect(done.returncode == 0, f"cannot be run: {done.stderr.decode()}\n{text}")
    return {line.split(" =")[0]: [float(v) for v in line.partition(" =")[2].split()] for line in done.stdout.decode().splitlines()}


def same_values(before, after, tolerance, block=()):
    """Every form of the kernel stores what it stored before; block: by so many threads."""
    want = values(forms(before)[0], *block)
    for form in forms(after):
        have = values(form, *block)
        expect([name.partition(" :")[2] for name in want] == [name.partition(" :")[2] for name in have], f"other results:\n{form}")
        for name, now in zip(want, have):             # a pass that makes memory numbers it otherwise
            close = all(a == b or (a != a and b != b) or abs(a - b) <= tolerance * (1 + abs(a)) for a, b in zip(want[name], have[now]))
            expect(len(want[name]) == len(have[now]) and close, f"%{name} has other values:\n{form}")


def read_again(path):
    """print(parse(print(k))) is print(k), of the text and of what the pass makes of it."""
    for text in [path.read_text(), *forms(run_pass(path))]:
        done = tgtool("print", "-", text=text.encode())
        expect(done.returncode == 0, done.stderr.decode())


VECTORS = ('linear\ninput %input0 : i32[8]\ninput %input1 : u8[32]\ninput %input2 : i8[32]\n%0 : i32 = load(%input0, 0) {lanes=8, part=0, stride=1, groups=0}\n'
           '%1 : u8 = load(%input1, 0) {lanes=32, part=0, stride=1, groups=1}\n%2 : i8 = load(%input2, 0) {lanes=32, part=0, stride=1, groups=1}\n')
LOCAL = "linear\ninput %input1 : f32[8]\nscratch %scratch0 : f32[8] shared\n"
TICKET = "linear\nscratch %scratch0 : u32[1] global counts\nscratch %scratch1 : f32[4] global\noutput %output2 : f32[4]\nfor r0.grid < 4\n"
ROLE = "linear\n%0 : bool = role() {role=consumers, n=4}\n%1 = guard(%0) {id=1}\n"
ERRORS = [
    ("kernel\n", "2:1: a kernel that stores nothing"),
    ("kernel\nrange r0 < 4\n", "a kernel that stores nothing"),
    ("kernel\noutput %output0 : f32[4] \"y\"\nrange r0 < 4\nstore(%output0, r0, f32(0.0))\n",
     "4:1: store: depends on a range that nothing around it binds"),
    ("kernel\noutput %output0 : f32[4] \"y\"\nrange r0 < 4\nstore(%output0, r0, f64(0.0), r0)\n",
     "4:1: store: stores another dtype than is there"),
    ("kernel\ninput %input0 : f32[4] \"x\"\nrange r0 < 4\nstore(%input0, r0, f32(0.0), r0)\n", "4:1: store: writes to an input or a weight"),
    ("kernel\n%0 : f32 = add(f32(1.0), r7)\n", "2:26: there is no range 'r7' before this line"),
    ("kernel\n%0 : f32 = conv(%1)\n", "2:12: 'conv' is no op of a kernel"),
    ("kernel\nweight %weight0 : f32[4] order[2:1] + 0 \"w\"\n", "2:26: no order of all elements of a weight"),
    ("kernel\ninput %input0 : f32[4] order[4:1] + 0 \"w\"\n", "2:24: no order of all elements of a weight"),
    ("kernel\nweight %weight0 : f32[4] order[4:-1] + 3 \"w\"\n", "2:26: no order of all elements of a weight"),
    ("kernel\nweight %weight0 : f32[2] order[2:99999] + 0 \"w\" = 1.0\n", "values of what is no weight of at most"),
    ("kernel\ntemp %temp0 : f32[4] shared\n", "2:22: only scratch is shared"),
    ("kernel\nscratch %scratch0 : f32[4] shared\noutput %output1 : f32[4]\nrange r0 < 4\nrange r1 < 4\n%0 : f32 = stage(%scratch0, f32(1.0), r1, r1)\n"
     "%1 : f32 = load(%0, r0)\nstore(%output1, r0, %1, r0)\n", "8:1: store: no loop, or several, of a store are a block's"),
    ("kernel\nrange x1 < 4\n", "2:7: found 'x1', expected a range's name"),
    ("kernel\noutput %output0 : f32[4]\nrange v0 < 4\nrange r1 < 2\nstore(%output0, r1*4 + v0, f32(0.0), v0, r1)\n",
     "5:1: store: a loop inside of its lanes"),
    ("kernel\noutput %output0 : f32[4]\nrange o0.grid < 4\nstore(%output0, o0.grid, f32(1.0), o0.grid)\n",
     "3:7: range: threads share a loop whose turns may store at the same place"),
    ("kernel\nscratch %scratch0 : f32[4]\noutput %output1 : f32[4]\nrange r0 < 4\n%0 : f32 = load(%scratch0, r0)\nstore(%output1, r0, %0, r0)\n",
     "reads scratch that no store before it wrote"),
    ("linear\nfor r0 < 4\n", "a loop is still open"),
    ("linear\nfor r0 < 4\nend r1\n", "3:5: found 'r1', expected the range of the innermost open loop"),
    ("linear\noutput %output0 : f32[4]\nfor r0 < 4\n%0 : f32 = splat(f32(1.0)) {lanes=900}\nend r0\n", "with arguments that are none of its own"),
    (f"{VECTORS}%3 : i32 = dot(%0, %1, %2) {{n=0}}\n", "8:12: intrinsic with arguments that are none of its own"),
    (f"{VECTORS}%3 : i32 = dot(%0, %1, %2) {{n=4}}\n", "8:12: dot: an operand or a result of another shape"),
    (f"{VECTORS}%3 : i32 = dot(%0, %2, %1) {{n=8}}\n", "8:12: dot: an operand or a result of another dtype"),
    (f"{VECTORS}%3 : i32 = dot(%0, %1) {{n=8}}\n", "8:12: dot: not as many operands as its row has"),
    (f"{VECTORS}%3 : i32 = dot(%0, %1, %2) {{m=8}}\n", "8:29: 'm' is no argument"),
    (f"{VECTORS}%3 : u8 = lookup(%1, %1) {{n=32}}\n", "8:11: operand 1 of intrinsic is no memory"),
    (f"{VECTORS}%3 : u8 = lookup(%input1, %1) {{n=32}}\n", "8:11: lookup: no table of as many elements as its row says"),
    (f"{VECTORS}%3 : i32 = intrinsic(%0)\n", "8:12: 'intrinsic' is no op of a linear program"),
    (f"{LOCAL}copy(%scratch0, 0, %input1, 0) {{lanes=3}}\n", "4:1: copy: copies other than 4, 8 or 16 bytes"),
    (f"{LOCAL}copy(%scratch0, 0, %scratch0, 4) {{lanes=4}}\n", "4:1: copy: no copy from global to shared memory"),
    (f"{LOCAL}copy(%scratch0, 0, %input1, 0, 1) {{lanes=4}}\n", "4:1: copy: offset or condition of another dtype"),
    (f"{LOCAL}wait() {{id=1, n=99}}\n", "4:1: wait with arguments that are none of its own"),
    ("linear\nscratch %scratch0 : f32[8] shared ring 1 async\n", "2:40: a ring of 1 parts; it has 2 to 8"),
    ("linear\nscratch %scratch0 : f32[8] shared ring 2 slow\n", "2:42: found 'slow', expected a transfer of transfers.def"),
    ("linear\nscratch %scratch0 : f32[8] shared ring 2 bulk producers 0\n", "2:57: 0 producers; there are 1 to 1024"),
    ("linear\n%0 : bool = role() {role=bosses, n=4}\n", "2:26: found 'bosses', expected a role of roles.def"),
    (f"{ROLE}barrier() {{id=2}}\nendguard(%1)\n", "4:1: barrier: a barrier of the whole block where only threads of a role come"),
    (f"{ROLE}barrier() {{id=2, n=8}}\nendguard(%1)\n", "4:1: barrier: a barrier of so many threads where no role has as many"),
    ("linear\nbarrier() {id=2, n=4}\n", "2:1: barrier: a barrier of so many threads where no role has as many"),
    ("linear\nbarrier() {id=2, n=1025}\n", "2:1: barrier with arguments that are none of its own"),
    ("linear\nscratch %scratch0 : f32[64] shared bulk_stored\noutput %output1 : f32[64]\nbulk_store(%scratch0, 0, %output1, 0, 0, 64, 1, 64) {swizzle=0}\n", "4:1: bulk_store: a box of memory that nobody has stored to"),
    ("linear\nscratch %scratch0 : f32[64] shared bulk_stored\noutput %output1 : f32[64]\nbulk_store(%scratch0, 0, %output1, 0, 0, 64, 2, 64) {swizzle=0}\n", "4:1: bulk_store: rows that begin at no multiples of 16 bytes, or whose elements are no neighbours"),
    ("linear\nscratch %scratch0 : u64[1] shared\nscratch %scratch1 : f16[64] shared\ninput %input2 : f32[64]\nmbar_init(%scratch0) {count=1}\n"
     "bulk(%scratch1, 0, %scratch0, 0, %input2, 0, 0, 64, 1, 64) {swizzle=0}\n", "6:1: bulk: copies to another dtype"),
    ("linear\nbulk_wait() {all=2}\n", "2:1: bulk_wait with arguments that are none of its own"),
    (f"{ROLE}cluster_barrier() {{id=2}}\nendguard(%1)\n", "4:1: cluster_barrier: a barrier of the whole block where only threads of a role come"),
    (f"{ROLE}%2 : bool = role() {{role=producer, n=4}}\n%3 = guard(%2) {{id=2}}\nendguard(%3)\nendguard(%1)\n", "4:13: role: a role inside of another one"),
    (f"{ROLE}registers() {{n=20}}\nendguard(%1)\n", "4:1: registers with arguments that are none of its own"),
    (f"{ROLE}registers() {{n=36}}\nendguard(%1)\n", "4:1: registers: no number of registers that a thread may have"),
    ("linear\nregisters() {n=40}\n", "2:1: registers: registers of no role"),
    (f"{TICKET}%0 : bool = ticket(%scratch0, 0, r0.grid, %scratch1)\nend r0.grid\n", "6:13: ticket: hands over what nobody has stored, or its counter's number is no integer"),
    (f"{TICKET}%0 : bool = ticket(%scratch1, 0, r0.grid, %scratch1)\nend r0.grid\n", "6:13: ticket: its counters are no u32 that count"),
    (f"{TICKET}%0 : bool = ticket(%scratch0, 0, r0.grid, %scratch0)\nend r0.grid\n", "6:13: ticket: what it hands over is no memory that all blocks share"),
    (f"{TICKET}store(%scratch1, r0.grid, f32(1.0))\n%0 : bool = ticket(%scratch0, 0, 3, %scratch1)\nend r0.grid\n", "7:13: ticket: of no range of known size"),
    (f"{TICKET}store(%scratch1, r0.grid, f32(1.0))\n%0 : f32 = load(%scratch1, 0)\nend r0.grid\n", "7:12: load: reads what other blocks store without a ticket"),
    (f"{TICKET}store(%scratch0, r0.grid, u32(1))\nend r0.grid\n", "6:1: store: writes to an input, a weight or counters"),
    (f"{TICKET}store(%scratch1, r0.grid, f32(1.0))\n%0 : bool = lt(r0.grid, 1)\n%1 = guard(%0) {{id=1}}\n%2 : bool = ticket(%scratch0, 0, r0.grid, %scratch1)\nendguard(%1)\nend r0.grid\n", "9:13: ticket: not all threads of a block come here equally often"),
    ("kernel\nscratch %scratch0 : f32[4] global\noutput %output1 : f32[4]\nrange b0 < 4\nrange r1 < 4\n%0 : f32 = load(%scratch0, r1)\nstore(%scratch0, b0, f32(1.0), b0)\nstore(%output1, r1, %0, b0, r1)\n",
     "6:12: load: reads what other blocks store without a ticket"),
    ("kernel\nweight %weight0 : i8[2] = 1 200\n", "2:29: i8 does not hold this number"),
    ("kernel\n%0 : i64 = add(" + "(" * 500 + "\n", "more than 64 expressions in each other"),
]


def error(text, message):
    done = tgtool("print", "-", text=text.encode())
    expect(done.returncode == 1, f"exit status {done.returncode}")
    expect(message in done.stderr.decode(), f"have {done.stderr.decode()}want {message}")


def hostile():
    """Damaged texts are refused with a place, or are other kernels; nothing crashes or is a bug of tgc's."""
    source = [path.read_text() for path in sorted(GOLDEN.glob("*/*.tgk"))]
    chance = random.Random(7)
    tokens = ["-1", "999999999999999999999", "r0", "%0", "%input0", "(", ")", "{", "}", "=", "f64", "'N'", "load", "reduce", "stage", "store", "end",
              "kernel", "<", "nan", ".team", "\0", "\"", "0", "{lanes=3}", "symbol 'N' -5 5\n"]
    for _ in range(400 if suite.options.all else 120):
        text = chance.choice(source)
        parts = re.findall(r"\w+|\s+|.", text)
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(parts))
            parts[at] = chance.choice(["", chance.choice(tokens), chance.choice(parts), parts[at] * 2])
        text = "".join(parts)
        done = tgtool("print", "-", text=text.encode())
        say = done.stderr.decode(errors="replace")
        expect(done.returncode in (0, 1), f"exit status {done.returncode} of\n{text}")
        expect("bug" not in say.lower(), f"{say} of\n{text}")
        expect(done.returncode == 0 or re.search(r":\d+:\d+: ", say), f"no place in '{say}' of\n{text}")


def rows_have_texts():
    """Each row of passes.def has texts of its own."""
    rows = {line.split()[1] for line in tgtool("passes").stdout.decode().splitlines()}
    have = {folder.name for folder in GOLDEN.iterdir() if list(folder.glob("changes.*"))}
    expect(have == rows, f"texts of what is no pass: {have - rows}; rows without texts: {rows - have}")


def rows_have_names(text=None, sources=None):
    """A row of passes.def is the function pass_ROW() or plan_ROW(), in a file ROW.c, and has a sentence of its own."""
    text = (ROOT / "passes/passes.def").read_text() if text is None else text
    rows = re.findall(r'^([A-Z]+)_PASS\((\w+),[^"]*"([^"]+)"\)$', text, re.M)
    expect(len(rows) > 60 and len(rows) == len(re.findall(r"^[A-Z]+_PASS\(", text, re.M)), f"{len(rows)} rows are understood")
    sources = sources or {path: path.read_text() for path in (ROOT / "passes").rglob("*.c")}
    for stage, name, _ in rows:
        function = f"{'plan' if stage == 'PLAN' else 'pass'}_{name}"
        where = [path for path, code in sources.items() if re.search(rf"^(bool|void) {function}\(", code, re.M)]
        expect([path.name for path in where] == [f"{name}.c"], f"{function}() is in {[str(path) for path in where]}, not in {name}.c")
    sentences = [sentence for _, _, sentence in rows]
    expect(len(set(sentences)) == len(sentences), "two passes have one description")


def names_are_compared():
    """... and a row of another name, or one whose function is elsewhere, is found."""
    text = (ROOT / "passes/passes.def").read_text()
    sources = {path: path.read_text() for path in (ROOT / "passes").rglob("*.c")}
    moved = {Path("passes/elsewhere.c") if path.name == "onehot.c" else path: code for path, code in sources.items()}
    for wrong in ((text.replace("(onehot,", "(one_hot,"), sources), (text, moved)):
        try:
            rows_have_names(*wrong)
        except Failure:
            continue
        expect(False, "a wrong name is taken")


# Folders by level: a file includes headers of its own level and of lower ones. Within a level the folders include each other, but no
# header includes itself on any way. docs/architecture.md, "Folders".
LEVELS = [["ir"], ["frontend", "passes/rules"], ["passes/target"], ["passes/analysis"], ["passes/graph"], ["passes/plan"], ["passes/kernel"],
          ["passes/vector"], ["passes/place"], ["passes"], ["backends"], ["lib"], ["cli"]]
OPEN_HEADERS = {"passes/passes.h", "passes/passes.def", "passes/opts.h", "passes/opts.def"}     # of all passes


def level_of(path):
    return max((len(folder), level) for level, folders in enumerate(LEVELS) for folder in folders if path.startswith(folder + "/"))[1]


def includes(root):
    """What each source file includes of the others."""
    files = [path for folder in ("ir", "passes", "frontend", "backends", "lib", "cli") for path in (root / folder).rglob("*.[ch]")]
    found = {str(path.relative_to(root)): re.findall(r'^#include "([^"]+)"', path.read_text(), re.M) for path in files}
    return {path: [other for other in others if other.split("/")[0] in ("ir", "passes", "frontend", "backends", "lib", "cli")]
            for path, others in found.items()}


def wrong_arrows(found):
    wrong = []
    for path, others in sorted(found.items()):
        for other in others:
            if other in OPEN_HEADERS and path.startswith("passes/"):
                continue
            frontend = path.startswith("frontend/") and not other.startswith(("frontend/", "ir/"))
            backend = path.startswith("backends/") and other.startswith("frontend/")
            if frontend or backend or level_of(other) > level_of(path):
                wrong.append(f"{path} includes {other}")
    return wrong


def circles(arrows):
    """Sets of nodes that reach each other (Tarjan)."""
    index, low, stack, result = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in arrows.get(node, ()):
            if other not in index:
                visit(other)
            if other in stack:
                low[node] = min(low[node], low[other])
        if low[node] == index[node]:
            at = stack.index(node)
            if len(stack) - at > 1 or node in arrows.get(node, ()):
                result.append(sorted(stack[at:]))
            del stack[at:]

    for node in sorted(arrows):
        if node not in index:
            visit(node)
    return result


def include_arrows():
    found = includes(ROOT)
    expect(len(found) > 200, f"{len(found)} files")
    expect(not wrong_arrows(found), "\n".join(wrong_arrows(found)))
    expect(not circles(found), f"headers include each other: {circles(found)}")


def calls(archive):
    """Which object file of an archive uses what another one defines."""
    lines = subprocess.run(["nm", "-gA", archive], capture_output=True, text=True, check=True).stdout.splitlines()
    symbols = [(line.rsplit(":", 1)[0], line.split()[-2], line.split()[-1]) for line in lines]
    home = {name: file for file, kind, name in symbols if kind in "TDRBCV"}
    arrows = {file: set() for file, _, _ in symbols}
    for file, kind, name in symbols:
        if kind == "U" and home.get(name, file) != file:
            arrows[file].add(home[name])
    return arrows


# Guards of named sets ask for what passes know (rules/rules.def): who runs such a set hands the facts over.
CALLS_UP = {("rules/sets.c", "analysis/rule_facts.c")}


def call_levels():
    """No file of passes/ calls one of a later folder, by whatever header: passes.h declares what all of them do."""
    found = calls(Path(suite.options.build) / "passes/libpasses.a")
    name = {file: re.split("[:/]", file)[-1].removesuffix(".o").replace("_", "/", 1) for file in found}
    level = {file: level_of("passes/" + name[file]) for file in found}
    expect(len(found) > 100 and len(set(level.values())) > 5, f"{len(found)} files of levels {set(level.values())}")
    wrong = {(name[file], name[other]) for file, others in found.items() for other in others if level[other] > level[file]}
    expect(wrong == CALLS_UP, "\n".join(f"{file} calls {other}" for file, other in sorted(wrong ^ CALLS_UP)))


def call_arrows(archive, least):
    """No file of an archive uses one that uses it."""
    found = calls(Path(suite.options.build) / archive)
    expect(len(found) > least, f"{len(found)} files")
    expect(not circles(found), f"files use each other: {circles(found)}")


def main():
    suite.parse(lambda parser: parser.add_argument("--bless", action="store_true", help="rewrite what is expected"))
    for folder in sorted(GOLDEN.iterdir()):
        found = {path.stem: path for path in folder.glob("*.tg*")}
        expect("changes" in found and ("forbidden" in found or folder.name in NO_CONDITION), f"{folder} has not both, changes and forbidden")
        for stem, path in sorted(found.items()):
            suite.add(f"{folder.name}: {stem}", changes if stem.startswith("changes") else forbidden, path)
            if path.suffix == ".tgk":
                suite.add(f"{folder.name}: {stem} is read again", read_again, path)
    for path in sorted((ROOT / "models").glob("*.tg")):
        for more in ([], *VARIANTS, ["-i", "neon", "-c", "0"]):
            suite.add(f"run {path.stem} {' '.join(more)}", run_graph, path, *more)
    for number, (text, message) in enumerate(ERRORS):
        suite.add(f"error {number}: {message}", error, text, message)
    suite.add("hostile texts", hostile)
    suite.add("rows have texts", rows_have_texts)
    suite.add("rows have names", rows_have_names)
    suite.add("rows of other names are found", names_are_compared)
    suite.add("includes go one way", include_arrows)
    suite.add("calls go one way", call_levels)
    suite.add("backends: no file uses one that uses it", call_arrows, "backends/libbackends.a", 15)
    suite.add("frontend/onnx: no file uses one that uses it", call_arrows, "frontend/onnx/libonnx.a", 30)
    suite.main()


if __name__ == "__main__":
    main()
