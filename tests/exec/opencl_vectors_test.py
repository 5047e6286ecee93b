"""Every function of runtime/ on OpenCL C's vectors by itself, on a device: each gives what vectors_test.py wants of C's function of its name, from the same
inputs, by the same loops, in one kernel for each width.
"""

import ctypes
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "lib"), str(HERE.parent / "emulator")]

import numpy as np

import vectors_test as V
from host import Host
from opencl import need_device
from suite import Suite, expect

suite = Suite("opencl vectors", jobs=1)      # a driver is one of the process
suite.parse()

FILES = ("opencl", "number", "math", "vector_opencl", "vector_math")      # in the order of programs
WIDTHS = {4: "neon", 8: "avx2"}              # and a set of C's whose functions have the same names
# what no kernel calls there: folds go by halves of vectors, tables of bytes are read byte by byte, and pairs of bf16 are of processors
ABSENT = {"turn", "lookup", "lookup_i8", "dot_bf16"}
INPUTS = {"x": "float", "y": "float", "z": "float", "i": "int", "j": "int", "h": "ushort", "b": "uchar"}
OUTPUTS = {"f": "float", "i": "int", "h": "ushort", "b": "uchar"}
# C's pointers have no address space, and lanes of bytes are stored to bytes
GLOBAL = (("(const int8_t *)", "(global const char *)"), ("(int8_t *)", "(global char *)"))
LOOPS = {"void(void*, W)": V.EACH + "F(out.b + 4 * k, load_W(in.i + k));"}
NBYTES = 4 * V.N                             # of each function's results


def piece(name):
    """OpenCL's version of a piece, or the common one; None: there is none."""
    found = f"opencl_{name}" if f"opencl_{name}" in V.PIECES else name
    return found if found in V.PIECES and V.PIECES[found][0] in FILES else None


def add(needed, name):
    for other in V.PIECES[name][1]:
        if piece(other) not in needed:
            add(needed, piece(other))
    needed.add(name)


def loop_of(name, signature, lanes):
    of = {"V": f"f32x{lanes}", "W": f"i32x{lanes}", "F": name, "L": str(lanes), "TURNS": str(lanes.bit_length() - 1)}
    loop = LOOPS.get(signature, V.LOOPS[signature][1])
    loop = re.sub(r"(?<=_)[VW]\b|\b(?:F|L|TURNS)\b", lambda m: of[m[0]], loop)
    for c, opencl in GLOBAL:
        loop = loop.replace(c, opencl)
    return loop


def kernel_of(lanes):
    """The text of kernel k, and the functions that it calls, in order."""
    functions = {name: signature for name, signature in V.functions_of(WIDTHS[lanes]).items() if V.lanes_of(name) == lanes}
    absent = {re.sub(r"_[fi]32x\d+$", "", name) for name in functions if not piece(name) or V.PIECES[piece(name)][0] not in FILES}
    names = [name for name in functions if re.sub(r"_[fi]32x\d+$", "", name) not in ABSENT]
    expect(absent <= ABSENT, f"OpenCL C has no {sorted(absent - ABSENT)}")
    needed, body = {"opencl_language"}, []
    for number, name in enumerate(names):
        loop = loop_of(name, functions[name], lanes)
        for called in re.findall(r"\w+(?=\()", loop):
            if piece(called):
                add(needed, piece(called))
        places = ", ".join(f"(global {kind} *)(o + {number * NBYTES})" for kind in OUTPUTS.values())
        body.append(f"{{ const struct output out = {{{places}}}; {loop} }}\n")
    order = list(V.PIECES)
    text = "".join(V.PIECES[name][2] + "\n" for name in sorted(needed, key=lambda n: (FILES.index(V.PIECES[n][0]), order.index(n))))
    fields = " ".join(f"global const {kind} *{name};" for name, kind in INPUTS.items())
    results = " ".join(f"global {kind} *{name};" for name, kind in OUTPUTS.items())
    arguments = ", ".join(f"global const {kind} *{name}" for name, kind in INPUTS.items())
    return (f"{text}\n#define N {V.N}\n#define EACH(lanes) for (int k = 0; k + (lanes) <= N; k += (lanes))\n"
            f"struct input {{ {fields} }};\nstruct output {{ {results} }};\n"
            f"kernel void k({arguments}, global uchar *o)\n{{\nconst struct input in = {{{', '.join(INPUTS)}}};\n"
            f"{''.join(body)}}}\n", {name: functions[name] for name in names})


def check_width(lanes):
    need_device()
    text, functions = kernel_of(lanes)
    results = np.zeros(len(functions) * NBYTES, np.uint8)
    with Host(ctypes.CDLL("libOpenCL.so.1"), device_type=0xFFFFFFFF) as host:
        expect(host.run(text, [*(V.IN[name] for name in INPUTS), results], (1,), (1,)) == 0, "the kernel does not end")
    records = {}
    for number, (name, signature) in enumerate(functions.items()):
        kind = V.RESULT[V.LOOPS[signature][0]]
        nbytes = min(NBYTES, V.N * kind.itemsize) if kind.itemsize > 1 else NBYTES
        records[name] = results[number * NBYTES:][:nbytes].view(kind)
    V.check(records, fused=True)


for width in WIDTHS:
    suite.add(f"vectors of {width}", check_width, width)

if __name__ == "__main__":
    suite.main()
