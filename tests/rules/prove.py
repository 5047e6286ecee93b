"""Proves the integer rules with z3.

Reads what `rulegen --z3` wrote. A rule whose two sides are patterns over integers or bools is proved for words of WIDTH bits, once signed
and once unsigned: for all operands, and all bounds that contain them, guard implies left = right. Words wrap; guards are computed in a
wider word, where they cannot. Rules of named sets over f32 are proved over the reals, for all bounds that contain their operands: what
roundings do to them, and NaN, is left to test_rules.c. Rules that call a C helper are covered by the brute force of test_fold.c, those over floats, casts,
movement and memory by test_rules.c; they are counted, not proved.

    prove.py RULES.py
"""
import runpy
import sys

import z3

WIDTH, WIDE = 6, 18
TIMEOUT_MS = 60000


class NotInteger(Exception):
    """The rule is about something else than words and bools."""


class Model:
    """One rule under one reading of its words."""

    def __init__(self, rule, signed):
        self.rule, self.signed = rule, signed
        self.names, self.bounds, self.facts = {}, {}, []

    # ---- words

    def extend(self, x):
        return (z3.SignExt if self.signed else z3.ZeroExt)(WIDE - WIDTH, x)

    def name(self, kind, name):
        if name not in self.names:
            if self.rule["types"][name] == "bool":
                self.names[name] = z3.Bool(name)
            else:
                self.names[name] = z3.BitVec(name, WIDTH)
        return self.names[name]

    def less(self, a, b):
        return a < b if self.signed else z3.ULT(a, b)

    def trunc_div(self, a, b):
        q = a / b if self.signed else z3.UDiv(a, b)
        return z3.If(b == 0, z3.BitVecVal(0, a.size()), q)

    def trunc_mod(self, a, b):
        r = z3.SRem(a, b) if self.signed else z3.URem(a, b)
        return z3.If(b == 0, z3.BitVecVal(0, a.size()), r)

    def floor_mod(self, a, b):
        r = self.trunc_mod(a, b)
        if not self.signed:
            return r
        return z3.If(z3.And(r != 0, (r < 0) != (b < 0)), r + b, r)

    def floor_div(self, a, b):
        q = self.trunc_div(a, b)
        if not self.signed:
            return q
        r = self.trunc_mod(a, b)
        return z3.If(z3.And(r != 0, (r < 0) != (b < 0)), q - 1, q)

    def shift(self, op, a, b):
        zero = z3.BitVecVal(0, WIDTH)
        inside = z3.And(b >= 0, b < WIDTH) if self.signed else z3.ULT(b, WIDTH)
        self.facts.append(b >= 0 if self.signed else z3.BoolVal(True))
        if op == "SHL":
            return z3.If(inside, a << b, zero)
        self.facts.append(inside)                    # else the IR leaves the result open
        return a >> b if self.signed else z3.LShR(a, b)

    # ---- patterns

    def literal(self, value, like):
        if z3.is_bool(like):
            return z3.BoolVal(value != 0)
        return z3.BitVecVal(value, WIDTH)

    def operands(self, nodes):
        """Values of operands; literals take the kind of the others."""
        values = [None if n[0] == "int" else self.pattern(n) for n in nodes]
        like = next((v for v in values if v is not None), z3.BitVecVal(0, WIDTH))
        return [self.literal(n[1], like) if v is None else v for n, v in zip(nodes, values)]

    def pattern(self, n, like=None):
        kind = n[0]
        if kind in ("var", "const"):
            return self.name(kind, n[1])
        if kind == "int":
            return self.literal(n[1], like if like is not None else z3.BitVecVal(0, WIDTH))
        if kind != "op":
            raise NotInteger(kind)
        op = n[1]
        if op == "WHERE":
            c = self.operands([n[2]])[0] if n[2][0] != "int" else z3.BoolVal(n[2][1] != 0)
            a, b = self.operands(n[3:5])
            if n[3][0] == n[4][0] == "int":
                a, b = z3.BoolVal(n[3][1] != 0), z3.BoolVal(n[4][1] != 0)
            return z3.If(c, a, b)
        x = self.operands(n[2:])
        if all(z3.is_bool(v) for v in x):
            return self.bool_op(op, x)
        return self.word_op(op, x)

    def bool_op(self, op, x):
        table = {"NOT": lambda a: z3.Not(a), "AND": z3.And, "OR": z3.Or, "XOR": z3.Xor, "EQ": lambda a, b: a == b,
                 "NE": lambda a, b: a != b, "MAX": z3.Or, "MIN": z3.And, "ADD": z3.Or, "MUL": z3.And}
        if op not in table:
            raise NotInteger(op)
        return table[op](*x)

    def word_op(self, op, x):
        if op in ("SHL", "SHR"):
            return self.shift(op, *x)
        table = {
            "ADD": lambda a, b: a + b, "SUB": lambda a, b: a - b, "MUL": lambda a, b: a * b, "NEG": lambda a: -a, "NOT": lambda a: ~a,
            "AND": lambda a, b: a & b, "OR": lambda a, b: a | b, "XOR": lambda a, b: a ^ b,
            "DIV": self.trunc_div, "MOD": self.trunc_mod, "FLOORDIV": self.floor_div, "FLOORMOD": self.floor_mod,
            "MAX": lambda a, b: z3.If(self.less(a, b), b, a), "MIN": lambda a, b: z3.If(self.less(a, b), a, b),
            "ABS": lambda a: z3.If(a < 0, -a, a) if self.signed else a,
            "LT": self.less, "EQ": lambda a, b: a == b, "NE": lambda a, b: a != b,
            "FLOOR": lambda a: a, "CEIL": lambda a: a, "TRUNC": lambda a: a, "ROUND": lambda a: a,
        }
        if op not in table:
            raise NotInteger(op)
        return table[op](*x)

    # ---- guards

    def bound(self, which, node):
        """vmin(x), vmax(x): any bounds that hold, the same ones for the same x."""
        key = repr(node)
        if key not in self.bounds:
            lo, hi = (z3.BitVec(f"{w}{len(self.bounds)}", WIDTH) for w in ("lo", "hi"))
            x = self.pattern(node)
            if z3.is_bool(x):
                raise NotInteger("bounds of a bool")
            self.facts += [z3.Not(self.less(x, lo)), z3.Not(self.less(hi, x))]
            self.bounds[key] = lo, hi
        return self.extend(self.bounds[key][which == "vmax"])

    def ideal(self, n):
        """The value of a pattern without wrapping, and the claim that no part of it wraps."""
        if n[0] != "op" or n[1] not in ("ADD", "SUB", "MUL", "NEG"):
            return self.extend(self.operands([n])[0]), z3.BoolVal(True)
        parts = [self.ideal(k) for k in n[2:]]
        table = {"ADD": lambda a, b: a + b, "SUB": lambda a, b: a - b, "MUL": lambda a, b: a * b, "NEG": lambda a: -a}
        value = table[n[1]](*(v for v, _ in parts))
        return value, z3.And(value == self.extend(self.pattern(n)), *(c for _, c in parts))

    def call(self, n):
        name, args = n[1], n[2:]
        if name in ("vmin", "vmax"):
            return self.bound(name, args[0])
        if name == "exact":
            return self.ideal(args[0])[1]
        if name == "constant":
            return z3.Bool("constant_" + repr(args[0]))
        if name == "width":
            return z3.BitVecVal(WIDTH, WIDE)
        if name == "divides":
            a, b = (self.guard(k) for k in args)
            return z3.And(a != 0, z3.SRem(b, a) == 0)
        if name == "within":
            a, b = (self.guard(k) for k in args)
            return a & ~b == 0
        raise NotInteger(name)

    def guard(self, n):
        kind = n[0]
        if kind == "int":
            return z3.BitVecVal(n[1], WIDE)
        if kind == "const":
            return self.extend(self.name(*n))
        if kind == "call":
            return self.call(n)
        x = [self.guard(k) for k in n[2:]]
        table = {"&&": z3.And, "||": z3.Or, "!": z3.Not, "+": lambda a, b: a + b, "*": lambda a, b: a * b, "<": lambda a, b: a < b,
                 "<=": lambda a, b: a <= b, ">": lambda a, b: a > b, ">=": lambda a, b: a >= b, "==": lambda a, b: a == b,
                 "!=": lambda a, b: a != b}
        if n[1] == "-":
            return -x[0] if len(x) == 1 else x[0] - x[1]
        if n[1] == "%":
            return z3.SRem(*x)
        return table[n[1]](*x)


class Reals(Model):
    """A rule of f32 as one of real numbers; a uop that is no arithmetic is any function of its operands."""

    def name(self, kind, name):
        return self.names.setdefault(name, z3.Bool(name) if self.rule["types"][name] == "bool" else z3.Real(name))

    def literal(self, value, like):
        return z3.BoolVal(value != 0) if z3.is_bool(like) else z3.RealVal(value)

    def pattern(self, n, like=None):
        if n[0] == "float":
            return z3.RealVal(n[1])
        if n[0] == "op" and n[1] in ("CAST", "BITCAST", "NEAREST"):
            raise NotInteger(n[1])
        return super().pattern(n, z3.RealVal(0) if like is None else like)

    def operands(self, nodes):
        return [self.pattern(n) for n in nodes]

    def word_op(self, op, x):
        table = {"ADD": lambda a, b: a + b, "SUB": lambda a, b: a - b, "MUL": lambda a, b: a * b, "NEG": lambda a: -a, "MULACC": lambda a, b, c: a * b + c,
                 "DIV": lambda a, b: a / b, "RECIP": lambda a: 1 / a, "MAX": lambda a, b: z3.If(a < b, b, a), "MIN": lambda a, b: z3.If(a < b, a, b),
                 "EQ": lambda a, b: a == b, "NE": lambda a, b: a != b, "LT": lambda a, b: a < b, "ROUND": self.round,
                 "EXP": self.exp}
        if op == "EXP1":
            return 1 + table["EXP"](-x[0])
        if op not in table:
            raise NotInteger(op)
        return table[op](*x)

    def exp(self, a):
        power = z3.Function("exp", z3.RealSort(), z3.RealSort())(a)
        self.facts.append(power > 0)
        return power

    def round(self, a):
        down = z3.ToReal(z3.ToInt(a))
        half = a - down
        up = z3.Or(half > 0.5, z3.And(half == 0.5, z3.ToInt(a) % 2 == 1))
        return z3.If(up, down + 1, down)

    def call(self, n):
        name, x = n[1], self.pattern(n[2])
        if name in ("lo", "hi"):
            bound = self.bounds.setdefault(name + repr(n[2]), z3.Real(f"{name}{len(self.bounds)}"))
            self.facts.append(bound <= x if name == "lo" else bound >= x)
            return bound
        known = {"number": lambda: z3.BoolVal(True), "whole": lambda: z3.IsInt(x), "small": lambda: z3.And(z3.IsInt(x), x >= -65536, x <= 65536),
                 "counted": lambda: z3.BoolVal(True), "known": lambda: z3.BoolVal(True), "repeats": lambda: z3.BoolVal(True)}
        if name not in known:
            raise NotInteger(name)
        return known[name]()

    def guard(self, n):
        if n[0] == "int":
            return z3.RealVal(n[1])
        if n[0] == "float":                                # an infinity: beyond all numbers
            return z3.RealVal(n[1]) if "inf" not in n[1] else z3.RealVal(n[1].replace("inf", "1e400"))
        return self.name(*n) if n[0] == "const" else super().guard(n)


def counterexample(rule, signed):
    """None if the rule holds, else a model, or 'unknown'. signed is None: over the reals."""
    m = Reals(rule, True) if signed is None else Model(rule, signed)
    left = m.pattern(rule["left"])
    right = m.pattern(rule["right"], left)
    guard = m.guard(rule["guard"]) if rule["guard"] else z3.BoolVal(True)
    solver = z3.Solver()
    solver.set("timeout", TIMEOUT_MS)
    solver.add(guard, left != right, *m.facts)
    answer = solver.check()
    return None if answer == z3.unsat else str(solver.model()) if answer == z3.sat else "unknown"


def has_helper(rule):
    return rule["right"][0] == "call"


def prove(rule):
    """'proved', or why it is not; a string that starts with 'WRONG' fails."""
    if has_helper(rule):
        return "helper"
    if rule["class"] == "float" or "float" in rule["types"].values():
        return "other"
    try:
        for signed in ([None] if rule["class"] == "f32" else [True] if "index" in rule["types"].values() else [True, False]):
            found = counterexample(rule, signed)
            if found is not None:
                return f"WRONG ({'reals' if signed is None else 'signed' if signed else 'unsigned'}): {found}"
    except NotInteger:
        return "other"
    return "proved"


def main():
    spec = runpy.run_path(sys.argv[1])
    count = {"proved": 0, "helper": 0, "other": 0}
    failed = tested = 0
    for rule in spec["rules"]:
        result = prove(rule)
        if result in count:
            count[result] += 1
        if result in ("helper", "other"):
            continue
        tested += 1
        if result == "proved":
            print(f"ok {tested} - {rule['name']}")
        else:
            failed += 1
            print(f"not ok {tested} - {rule['name']}\n# {rule['at']}: {result}")
    print(f"1..{tested}")
    print(f"# figure: {len(spec['rules'])} rules, {count['proved']} proved (words of {WIDTH} bits, or reals), {count['helper']} with C helpers (brute force), "
          f"{count['other']} over floats, casts, movement or memory (evaluated), {failed} wrong")
    return 1 if failed or not count["proved"] else 0


if __name__ == "__main__":
    sys.exit(main())
