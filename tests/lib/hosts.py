"""The functions of runtime/host/ as ir/host.def has them, and a program that calls each of them."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DTYPES = {"uint8_t": "u8", "int32_t": "i32", "int64_t": "i64", "uint64_t": "u64", "float": "f32", "double": "f64",
          "string_t": "string"}
ENDINGS = {"f32": "float", "f64": "double", "i64": "int64_t", "u64": "uint64_t", "str": "string_t"}
# Functions that follow tables, which a .tg has as weights, by the places of these; and params that go with them. Of the trees the second one has a test:
# (feature, first child, value in two), leaves with NaN, which nothing is greater than; (test, feature, yes, no, a, b), of a set.
NAN = 0x7fffffff
WALK = [[0, 0, NAN, NAN], [5, 3, 0, 0], [0, 2, NAN, NAN], [0, 3, NAN, NAN], [0, 4, NAN, NAN]]
TREES = [[7, 0, 0, 0, 0, 1], [6, 5, 2, 3, 0, 2], [7, 0, 0, 0, 1, 3], [7, 0, 0, 0, 3, 4], [7, 0, 0, 0, 4, 5]]
TABLES = {
    "tfidf": {2: "i64[3] = [0, 1, 2]", 3: "i64[3] = [2, 0, 1]", 4: "i64[3] = [0, 1, 3]"},
    "svm_decide": {2: "i64[4] = [0, 3, 6, 9]"},
    "regex_full_match": {1: "i32[4, 3] = [[1, 1, 2], [3, 0, 1], [2, -2, 0], [0, 0, 0]]", 2: "i32[2, 2] = [[97, 122], [48, 57]]"},
    "tree_walk": {1: "i32[3] = [0, 1, 2]", 2: f"i32[5, 4] = {WALK}", 3: "i32[6] = [0, 1, 2, 3, 3, 5]", 4: "i32[5] = [0, 1, 1, 0, 1]"},
    "tree_ensemble": {1: "i32[3] = [0, 1, 4]", 2: f"i32[5, 6] = {TREES}", 5: "i32[5] = [0, 1, 1, 0, 1]"},
}
PARAMS = {"tfidf": [4, 4, 3, 1, 2, 1], "svm_decide": [4, 9, 3], "regex_full_match": [4, 4], "tree_walk": [4, 6, 3, 2, 0], "tree_ensemble": [4, 6, 3, 2, 0]}
DIMS = "ABCDEFGHI"      # as many as a function has params
MANY = 512              # elements: more than any function touches by params of at most 4


class Host:
    """A function: the numbers of its inputs, outputs, params and results, its stack, its parameters' C types."""

    def __init__(self, row, sources):
        self.name, *numbers = row.split(", ")
        self.nin, self.nout, self.nparam, self.nresult, self.stack = map(int, numbers)
        base, _, ending = self.name.rpartition("_")
        head = re.search(rf"^static int (?:{self.name}|{base}_T)\((.*?)\)\s*{{", sources, re.M | re.S)
        self.types = [re.sub(r"\bT\b", ENDINGS.get(ending, "T"), re.sub(r"\w+$", "", p.strip()).strip())
                      for p in head.group(1).split(",")]

    def dtypes(self):
        return [DTYPES[re.sub(r"const|\*|\s", "", t)] for t in self.types[:self.nin + self.nout]]

    def wrapper(self):
        """A function that others could call, so that no compiler knows its arguments."""
        parameters = ", ".join(f"{t} a{k}" for k, t in enumerate(self.types))
        arguments = ", ".join(f"a{k}" for k in range(len(self.types)))
        return f"int call_{self.name}({parameters});\nint call_{self.name}({parameters})\n{{\n" \
               f"    return {self.name}({arguments});\n}}\n"


def functions():
    sources = "\n".join(path.read_text() for path in sorted((ROOT / "runtime" / "host").glob("*.c")))
    rows = re.findall(r"^HOST\((\w+(?:, \d+)+), \"", (ROOT / "ir" / "host.def").read_text(), re.M)
    return [Host(row, sources) for row in rows]


def program(hosts):
    """In the text format. What has no output is not there: it takes part in programs of its own accord."""
    lines = ["tg 1", f"input %sizes : u8[{', '.join(d + '<=4' for d in DIMS[:8])}]", f"input %more : u8[{DIMS[8]}<=4]"]
    for number, host in enumerate(hosts):
        if not host.nout:
            continue
        dtypes = host.dtypes()
        inputs = [f"%x{number}_{k}" for k in range(host.nin)]
        kind = host.name if host.name in TABLES else host.name.rpartition("_")[0]
        tables, params = TABLES.get(kind, {}), PARAMS.get(kind, DIMS[:host.nparam])
        for k, (name, dtype) in enumerate(zip(inputs, dtypes)):
            lines.append(f"weight {name} : {tables[k]}" if k in tables else
                         f"input {name} : {'bool' if host.name == 'nonzero' else dtype}[{MANY}]")
        found = [f"K{number}_{k}" for k in range(host.nresult)]
        # the first result has the dimensions that are found
        shape = ", ".join(f"{k}<={MANY}" for k in found) or MANY
        results = [f"%y{number}_{k} : {dtype}[{MANY if k else shape}]" for k, dtype in enumerate(dtypes[host.nin:])]
        lines.append(f"{', '.join(results)} = host \"{host.name}\"({', '.join(inputs)}) "
                     f"{{params=[{', '.join(map(str, params))}], vars=[{', '.join(found)}]}}")
        lines += [f"output %y{number}_{k}" for k in range(host.nout)]
    return "\n".join(lines) + "\n"
