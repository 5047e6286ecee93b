"""Run-time sizes by the shapes of inputs: runtime/fit.c in Python.

A rule of NAME_describe()'s feeds is a size in postfix: "$0 2 mul" is twice the first symbol.
"""

from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

_APPLY: Dict[str, Callable[[int, int], int]] = {
    "floordiv": lambda a, b: a // b if b else 0, "floormod": lambda a, b: a % b if b else 0, "min": min, "max": max}


class Size(NamedTuple):
    """A size that has a rule: of input number `input` along `axis`."""
    input: int
    axis: int
    rule: Tuple[str, ...]


class Misfit(Exception):
    """The size does not go with the others, which make it `expected`; None: no value of its symbol makes it."""

    def __init__(self, size: Size, expected: Optional[int]):
        super().__init__()
        self.size, self.expected = size, expected


def symbols_of(rule: Sequence[str]) -> List[int]:
    return [int(word[1:]) for word in rule if word.startswith("$")]


def _read(rule: Sequence[str], values: Dict[int, int]) -> Optional[Tuple[int, int, Optional[int]]]:
    """base, slope and the one symbol that is not known; None: there are several, or it is in no sum."""
    unknown = {k for k in symbols_of(rule) if k not in values}
    if len(unknown) > 1:
        return None
    stack: List[Tuple[int, int]] = []
    for word in rule:
        if word.startswith("$"):
            k = int(word[1:])
            stack.append((values[k], 0) if k in values else (0, 1))
        elif word == "neg":
            stack.append((-stack[-1][0], -stack.pop()[1]))
        elif word[-1].isdigit():
            stack.append((int(word), 0))
        else:
            (b, b_slope), (a, a_slope) = stack.pop(), stack.pop()
            if word in ("add", "sub"):
                sign = 1 if word == "add" else -1
                stack.append((a + sign * b, a_slope + sign * b_slope))
            elif word == "mul" and not (a_slope and b_slope):
                stack.append((a * b, a_slope * b + b_slope * a))
            elif not a_slope and not b_slope:
                stack.append((_APPLY[word](a, b), 0))
            else:
                return None
    (base, slope), = stack
    return base, slope, next(iter(unknown), None)


def find(sizes: Sequence[Size], given: Callable[[Size], int], values: Dict[int, int]) -> None:
    """Adds the symbols that the sizes say to `values`, by number, and compares. Raises Misfit."""
    for size in sizes:
        if len(size.rule) == 1:             # a symbol that stands alone: these first
            known = values.setdefault(int(size.rule[0][1:]), given(size))
            if known != given(size):
                raise Misfit(size, known)
    found, rest_of = True, [size for size in sizes if len(size.rule) > 1]
    while found:
        found = False
        for size in rest_of:
            read = _read(size.rule, values)
            if read is None:
                continue
            base, slope, unknown = read
            rest = given(size) - base
            if slope and unknown is not None and rest % slope == 0 and rest // slope >= 0:
                values[unknown] = rest // slope
                found = True
            elif rest:
                raise Misfit(size, None if slope else base)
