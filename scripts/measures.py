#!/usr/bin/env python3
"""Measures of passes/ and backends/: what the code still answers in many places, counted.

    scripts/measures.py [PATH]        a checkout, of any commit; this one without PATH
    scripts/measures.py PATH --where ROW...   the lines that a row counts, too

A line for each measure: the figure, and the pattern that was counted. Comments are no code: only the last
measure reads them. Needs nothing but Python and the sources.
"""

import argparse
import os
import re
import sys
from pathlib import Path

OWN = Path(__file__).resolve().parents[1]
STAGES = ["graph", "plan", "kernel", "vector", "place"]       # in the order of a compile

# ------------------------------------------------------------------ what a constant of a cost is
# By their names: definitions (`NAME = number`) anywhere in passes/.
COST_NAME = re.compile(
    r"\b([A-Z0-9_]*(?:FLOP|CYCLE|CACHE|LINE|ALIAS|PAGE|WAYS|UNITS|PORTS|ISSUE|LATENCY|L1_|L2_|FOOTPRINT|NEAR|FAR|"
    r"AHEAD|PANEL_N|WEIGHT_N|COST|APART|POWER|SCALAR|GAIN|EXPENSIVE|CHEAP|ALIKE|KEYS_N|COPIED|LONG_N)[A-Z0-9_]*|"
    r"[a-z0-9_]*(?:_ns|_nbytes|_share|_cycles|_caches|_factor|_steps|_speedup))\s*=\s*[(0-9]")
# Names that say such a word and are no cost: each with the reason.
NO_COST = {
    "FOLD_NBYTES": "what the compile itself may make", "TABLE_NBYTES": "what is a table at all",
    "REPEATED_NBYTES": "what a repetition is looked for in", "UNIFORM_NBYTES": "what a repetition is looked for in",
    "STACK_SCRATCH_NBYTES": "a promise: what is on the stack", "STACK_RUN_NBYTES": "a promise: what is on the stack",
    "TURN_SHARE": "how the arena is packed", "LAYER_NBYTES": "what a layer is, not what it costs",
    "live_nbytes": "a sum", "nbytes": "a sum", "along_nbytes": "a sum", "again_nbytes": "a sum",
    "APART": "how many samples of a constant the estimate of errors tells apart",
    "INDEX_COST": "what is an expression of the index, not what it takes a machine",
    "DIVISION_COST": "what is an expression of the index, not what it takes a machine",
}
# By where they stand: functions whose purpose is a cost. Every number in them but 0, 1, 2 and -1
# counts, whatever it is called or if it has no name at all.
COST_FUNCTIONS = {
    "graph/conv/winograd_cost.c": {"cost_of": "cycles of a convolution by tiles", "cost_apart": "of single taps",
                                   "doubt": "what larger tiles have to be worth", "sides_weigh": "which channels are few"},
    "graph/matmul/strassen.c": {"weigh": "cycles saved by seven parts", "find_keys": "what keys are copied"},
    "graph/quant/byte_table.c": {"cost_of": "cost of an operation", "find_chain": "of a look-up",
                                 "table_rewrite": "from where a table pays"},
    "analysis/value.c": {"value_cost": "cost of an operation", "operands_like_index": "what is cheap again",
                        "value_streams_weight": "which weights are large"},
    "plan/realize.c": {"stage_suits": "what a stage may read again"},
    "plan/layout.c": {"stores_of": "cost of strided stores", "vote_rows": "cost of a scalar power",
                      "pad_rows": "sets of a cache", "vote_layer": "cost of sums without vectors"},
    "plan/pitch.c": {"spread": "sets of a cache"},
    "plan/band.c": {"shrink_buffer": "sets of a cache"},
    "plan/band_cost.c": {"group_gain": "cycles saved by bands", "lost_in_room": "cycles lost by bands",
                         "band_find_budget": "cycles of the model", "gain_in_room": "what bands are worth",
                         "group_is_too_large": "what fits a cache"},
    "kernel/choose_tile.c": {"consider": "of equal orders", "try_vectors": "of a remainder"},
    "kernel/tile_cost.c": {"tile_gain_portable": "multiply-adds a load", "tile_gain": "elements a ns",
                           "window_fits": "what windows share", "rows_apart": "sets of a cache",
                           "tile_column_steps": "operations beside products", "vector_gain": "cycles of a step",
                           "rows_gain": "of a remainder", "store_lane": "cycles of a store",
                           "tile_evenness": "what threads wake up for"},
    "kernel/tile.c": {"tile_place_panels": "what lies in which cache", "move_panels": "what lies in which cache"},
    "kernel/pack.c": {"scratch_pitch": "sets of a cache"},
    "kernel/pack_keys.c": {"scratch_pitch": "sets of a cache", "pack_keys": "what is copied"},
    "kernel/share_stages.c": {"choose_rows": "what stages may hold"},
    "kernel/thread.c": {"time_of": "ns of an operation", "choose_range": "ns of a loop",
                        "find_sharing": "ns of a kernel", "find_sharings": "what threads are worth"},
    "vector/prefetch.c": {"distance": "how far ahead", "weights_are_far": "what stays in a cache",
                          "is_large_weight": "what is worth asking for"},
    "vector/prefetch_panel.c": {"find_panel": "what stays in a cache", "prefetch_panel": "lines of a cache"},
}
GONE = {"move_panels", "cost_of", "value_cost"}                              # answered by target/cost.c since
FORMER = {"saves_time": "weigh", "choose": "sides_weigh", "evenness": "tile_evenness",
          "expand_panel": "prefetch_panel", "taps_pay": "cost_apart"}                   # names of before
NUMBER = re.compile(r"(?<![\w.])(?:0x[0-9a-fA-F.]+(?:p[+-]?\d+)?|\d+\.?\d*(?:[eE][+-]?\d+)?)[uUlLfF]*(?![\w.])")
TRIVIAL = {"0", "1", "2", "0.0", "1.0", "2.0"}


class Source:
    """One file: where it stands today, its text, its code (comments and strings blanked), its functions."""

    def __init__(self, path, now):
        self.path, self.now = path, now
        self.text = path.read_text(encoding="utf-8", errors="replace")
        self.lines = self.text.split("\n")
        self.code = blank(self.text).split("\n")
        parts = now.split("/")
        self.folder = parts[1] if parts[0] == "passes" and len(parts) > 2 else ""

    def functions(self):
        """(name, first line, last line) of each, counted from 0."""
        at = None
        for i, line in enumerate(self.code):
            if re.match(r"[a-zA-Z].*\(", line) and not line.rstrip().endswith(";"):
                at = i
            if at is not None and re.match(r"\{|.*\)\s*\{", line) and (line[0] == "{" or at == i):
                name = re.search(r"(\w+)\s*\(", self.code[at])
                end = i
                while end < len(self.code) - 1 and not (self.code[end].startswith("}") or
                                                        (end == i and line.rstrip().endswith("}"))):
                    end += 1
                if name:
                    yield name.group(1), at, end
                at = None
            elif line.startswith("}"):
                at = None


def blank(text):
    """The text with comments and strings as spaces."""
    pattern = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.S)
    return pattern.sub(lambda m: re.sub(r"[^\n]", " ", m.group(0)), text)


def sources(root, top):
    found = []
    for path in sorted((root / top).rglob("*")):
        if path.suffix in (".c", ".h"):
            found.append(Source(path, path.relative_to(root).as_posix()))
    return found


def matches(files, pattern, outside=()):
    """Lines of code that match."""
    pattern = re.compile(pattern)
    return [(f, i) for f in files if f.folder not in outside
            for i, line in enumerate(f.code) if pattern.search(line)]


def is_home(f, name):
    """Whether the file is the one of analysis/ that is to answer the question."""
    return f.now.startswith(f"passes/analysis/{name}")


def heads(files):
    """Where a REDUCE of ADD over MUL is recognized: the test for ADD, and one for MUL at most three lines below."""
    add, mul = re.compile(r"REDUCE_OP\([^()]*(?:\([^()]*\))?[^()]*\)\s*[!=]=\s*OP_ADD"), re.compile(r"[!=]=\s*OP_MUL")
    return [(f, i) for f in files if f.folder != "rules" and not is_home(f, "contraction") for i, line in enumerate(f.code)
            if add.search(line) and mul.search(" ".join(f.code[i:i + 4]))]


def cost_constants(files):
    """By name: definitions; by place: numbers of cost functions. A number counts once."""
    named, placed, wanted, there = [], [], {}, set()
    for f in files:
        if f.folder in ("target", "rules", "place"):
            continue
        for i, line in enumerate(f.code):
            named += [(f, i) for m in COST_NAME.finditer(line) if m.group(1) not in NO_COST]
        listed = {} if not f.now.startswith("passes/") else COST_FUNCTIONS.get(f.now[len("passes/"):], {})
        wanted.update({name: f.now for name in listed if name not in GONE})
        for name, first, last in f.functions():
            name = FORMER.get(name, name)
            if name not in listed:
                continue
            there.add(name)
            for i in range(first, last + 1):
                clean = COST_NAME.sub(" ", f.code[i])
                clean = re.sub(r"\[\d+\]", " ", clean)
                placed += [(f, i) for n in NUMBER.findall(clean) if n.rstrip("uUlLfF") not in TRIVIAL]
    return named, placed, [f"{now}: {name}" for name, now in wanted.items() if name not in there]


def later_files(files):
    """Comments of graph/ and plan/ that name a file of a later stage: of kernel/, vector/ or place/, or of plan/."""
    stage_of = {}
    for f in files:
        if f.folder in STAGES:
            stage_of[Path(f.now).name] = STAGES.index(f.folder)
    far, near = [], []
    for f in files:
        if f.folder not in ("graph", "plan") or f.now.endswith(".h"):
            continue
        for i, line in enumerate(f.lines):
            if f.code[i] == line:
                continue
            for name in re.findall(r"\b(\w+\.c)\b", line):
                if name == Path(f.now).name or name == f.path.name or name not in stage_of:
                    continue
                if stage_of[name] >= STAGES.index("kernel"):
                    far.append((f, i))
                elif stage_of[name] > STAGES.index(f.folder):
                    near.append((f, i))
    return far, near


def range_flags(root):
    """Bits of a RANGE's argument beside its number."""
    text = (root / "ir" / "ir.h").read_text()
    return re.findall(r"#define (RANGE_\w+) \(\(int64_t\)1 << \d+\)", text)


def pass_rows(root):
    text = (root / "passes" / "passes.def").read_text()
    return re.findall(r'^[A-Z]+_PASS\((\w+), ', text, re.M)


def goldens(root, rows):
    """Passes with a text that they change and one that a condition forbids, in a folder of their name; and those
    without a condition, which are done to everything, with the first alone."""
    folder, test = root / "tests" / "ir" / "golden" / "passes", root / "tests" / "ir" / "passes_test.py"
    listed = re.search(r"^NO_CONDITION = \{([^}]*)\}", test.read_text() if test.exists() else "", re.M)
    free = set(re.findall(r'"([^"]+)"', listed.group(1))) if listed else set()
    changed = [r for r in rows if list(folder.glob(f"{r}/changes*.tg*"))]
    both = [r for r in changed if list(folder.glob(f"{r}/forbidden*.tg*"))]
    return both, [r for r in changed if r in free and r not in both]


def show(where):
    return [f"      {f.path}:{i + 1}: {f.lines[i].strip()[:100]}" for f, i in where]


def table(root):
    """(key, figure, pattern, places) of each measure."""
    passes, backends = sources(root, "passes"), sources(root, "backends")
    rows = pass_rows(root)
    named, placed, missing = cost_constants(passes)
    far, near = later_files(passes)
    weights = sorted({f.now for f, _ in matches(passes, r"\bBUFFER_WEIGHT\b")})
    flags = range_flags(root)
    stride = matches([f for f in passes if not is_home(f, "access")], r"\bnest_(?:stride|depends)\(")
    every = [(f, name, last - first + 1) for f in passes + backends for name, first, last in f.functions()]
    longest = max(every, key=lambda e: e[2])
    long_files = [(f, len(f.lines) - 1) for f in passes + backends if len(f.lines) - 1 > 600]
    yield "stride", len(stride), "lines with nest_stride( or nest_depends( in passes/, outside analysis/access", stride
    found = heads(passes)
    yield "heads", len(found), "REDUCE_OP(..) == or != OP_ADD, and == or != OP_MUL at most three lines below, outside " \
        "analysis/contraction and rules/", found
    yield "weight", len(weights), "files of passes/ with BUFFER_WEIGHT", matches(passes, r"\bBUFFER_WEIGHT\b")
    yield "rows", len(rows), "rows of passes.def", []
    both, free = goldens(root, rows)
    yield "goldens", len(both) + len(free), f"of them with goldens in tests/ir/golden/passes/NAME/: {len(both)} with " \
        f"changes*.tg* and forbidden*.tg*, {len(free)} with the first alone, since they have no condition (NO_CONDITION of passes_test.py)", []
    isa = matches(passes, r"\bISA_|\bisa_table\b|\bisa_info\b", ("target", "vector"))
    yield "isa", len(isa), "lines with ISA_*, isa_table, isa_info in .c and .h of passes/, outside target/ and vector/", isa
    yield "cost", len(named) + len(placed), f"cost constants outside target/: {len(named)} by name (COST_NAME), " \
        f"{len(placed)} numbers but 0, 1, 2 in the functions of COST_FUNCTIONS", named + placed
    if missing:
        yield "unknown", len(missing), "functions of COST_FUNCTIONS that are not there: " + ", ".join(missing), []
    yield "flags", len(flags), "RANGE flag bits: " + " ".join(flags), []
    yield "later", len(far), "comments in .c of graph/ and plan/ that name a .c of kernel/, vector/ or place/", far
    yield "soon", len(near), "comments in .c of graph/ that name a .c of plan/", near
    yield "passes", sum(len(f.lines) - 1 for f in passes), "lines of .c and .h of passes/", []
    yield "backends", sum(len(f.lines) - 1 for f in backends), "lines of .c and .h of backends/", []
    yield "long", len(long_files), "files of both over 600 lines: " + \
        ", ".join(f"{Path(f.now).name} {n}" for f, n in sorted(long_files, key=lambda e: -e[1])), []
    yield "mean", round(sum(e[2] for e in every) / len(every), 1), f"lines of a function of both in the mean, of {len(every)}", []
    yield "longest", longest[2], f"lines of the longest one: {longest[1]} of {longest[0].now}", []


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("path", type=Path, nargs="?", default=OWN)
    parser.add_argument("--where", nargs="*", default=[], metavar="ROW", help="the lines that these rows count, too")
    options = parser.parse_args()
    if not (options.path / "passes" / "passes.def").exists():
        sys.exit(f"{options.path}: no checkout of tgc: it has no passes/passes.def")
    for key, figure, pattern, places in table(options.path):
        print(f"{key:>9} {figure:>7}  {pattern}")
        if key in options.where:
            print("\n".join(show(places)))


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:
        os._exit(0)
