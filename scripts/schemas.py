#!/usr/bin/env python3
"""Writes frontend/onnx/schemas.def: the signatures of the operators that operators.def serves.

    scripts/schemas.py             writes the file
    scripts/schemas.py --check     exit status 1 if the file is not what would be written

Those of ONNX itself, in every version, are the schemas that the onnx package holds; com.microsoft's are
those of the onnxruntime package, which has one version of each. Versions that differ in types alone
share a row. Packages: those of tests/requirements.txt.
"""

import re
import sys
from pathlib import Path

from onnx import defs
from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

FOLDER = Path(__file__).resolve().parents[1] / "frontend" / "onnx"
OUT = FOLDER / "schemas.def"
HEADER = """\
/* DOMAIN("domain", newest)
 * SCHEMA("domain", "Name", since, until, "inputs", "outputs", "attributes")
 *
 * Written by scripts/schemas.py; not by hand. newest: the last opset of the domain that its
 * packages knew. Sorted by name, domain, since. since, until: opsets, until 0: up to the
 * newest. Inputs and outputs by position: x must be there, x? may, x+ is one or more, x* any
 * number of them. An attribute's type is a name of AttributeProto's types in small letters; one
 * with ! must be there. */
"""
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def served():
    """{(domain, name): the first opset of it}"""
    rows = re.findall(r'^OPERATOR\("([^"]*)",\s*"([^"]*)",\s*(\d+)', (FOLDER / "operators.def").read_text(), re.M)
    first = {}
    for domain, name, since in rows:
        first[domain, name] = min(int(since), first.get((domain, name), 1000))
    return first


def formals(parameters, at_least):
    """Names with what may be left out. A variadic one is the last: at_least counts all of them."""
    words = []
    for p in parameters:
        name = p.name.rstrip(".")
        assert NAME.fullmatch(name), name
        many = "+" if at_least >= len(parameters) else "*"
        words.append(name + {"Single": "", "Optional": "?", "Variadic": many}[p.option.name])
    return " ".join(words)


def signature(schema):
    attributes = [f"{a.name}:{a.type.name.lower()}{'!' if a.required else ''}"
                  for a in schema.attributes.values()]
    assert all(NAME.fullmatch(name) for name in schema.attributes)
    return (formals(schema.inputs, schema.min_input), formals(schema.outputs, schema.min_output),
            " ".join(sorted(attributes)))


def schemas():
    """{(domain, name): schemas by version}. What onnxruntime adds to ONNX's own domain serves the
    versions before ONNX's first."""
    found = {}
    for schema in defs.get_all_schemas_with_history():
        found.setdefault((schema.domain, schema.name), []).append(schema)
    first = {key: min(s.since_version for s in versions) for key, versions in found.items()}
    for schema in get_all_operator_schema():
        key = schema.domain, schema.name
        if schema.since_version < first.get(key, 1000):
            found.setdefault(key, []).append(schema)
    return {key: sorted(versions, key=lambda s: s.since_version) for key, versions in found.items()}


def newest(every):
    """{domain: the last opset in which something of it changed}; ONNX's own has a number of its own"""
    last = {}
    for (domain, _), versions in every.items():
        last[domain] = max(last.get(domain, 1), *(schema.since_version for schema in versions))
    last[""] = defs.onnx_opset_version()
    return last


def table():
    every = schemas()
    last = newest(every)
    rows = [f'DOMAIN("{domain}", {last[domain]})\n' for domain in sorted({domain for domain, _ in served()})]
    for (domain, name), first in sorted(served().items(), key=lambda item: (item[0][1], item[0][0])):
        versions = []   # [since, signature]
        for schema in every[domain, name]:
            if schema.since_version < first:
                continue
            if not versions or versions[-1][1] != signature(schema):
                versions.append((schema.since_version, signature(schema)))
        ends = [since - 1 for since, _ in versions[1:]] + [0]
        for (since, words), until in zip(versions, ends):
            quoted = ", ".join(f'"{word}"' for word in words)
            rows.append(f'SCHEMA("{domain}", "{name}", {since}, {until}, {quoted})\n')
    return HEADER + "".join(rows)


def main():
    text = table()
    if sys.argv[1:] == ["--check"]:
        sys.exit(OUT.read_text() != text)
    OUT.write_text(text)


if __name__ == "__main__":
    main()
