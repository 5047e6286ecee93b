"""The functions of runtime/host/ as ir/host.def has them, and a program that calls each of them."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DTYPES = {"uint8_t": "u8", "int32_t": "i32", "int64_t": "i64", "uint64_t": "u64", "float": "f32", "double": "f64",
          "string_t": "string"}
ENDINGS = {"f32": "float", "f64": "double", "i64": "int64_t", "u64": "uint64_t", "str": "string_t"}
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
        lines += [f"input {name} : {'bool' if host.name == 'nonzero' else dtype}[{MANY}]" for name, dtype in zip(inputs, dtypes)]
        found = [f"K{number}_{k}" for k in range(host.nresult)]
        # the first result has the dimensions that are found
        shape = ", ".join(f"{k}<={MANY}" for k in found) or MANY
        results = [f"%y{number}_{k} : {dtype}[{MANY if k else shape}]" for k, dtype in enumerate(dtypes[host.nin:])]
        lines.append(f"{', '.join(results)} = host \"{host.name}\"({', '.join(inputs)}) "
                     f"{{params=[{', '.join(DIMS[:host.nparam])}], vars=[{', '.join(found)}]}}")
        lines += [f"output %y{number}_{k}" for k in range(host.nout)]
    return "\n".join(lines) + "\n"
