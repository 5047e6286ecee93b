"""The harness that builds several emitted files as one (tests/lib/together.py): what is wrong with
one file, in its results, its run, its warnings or its link, is reported of that file alone."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "lib"))

import numpy as np

import tgc as T
import together
from suite import Failure, Suite, expect

suite = Suite("together")
OPTIONS = suite.parse()
TGC = T.find_tgc(OPTIONS.build)
SCRATCH = T.scratch(Path(OPTIONS.build).resolve() / "test-scratch" / "together")
case = suite.folder_case(SCRATCH)
COUNT = 5
MODEL = """tg 1
graph "net"
input %x : f32[8]
%y = mul(%x, f32({k}))
output %y as "y"
"""
X = np.arange(8, dtype=np.float32)


def emit(folder):
    """Models that multiply by 1 to COUNT, each with a file of the same name."""
    sources = {}
    for k in range(1, COUNT + 1):
        place = T.scratch(folder / f"m{k}")
        (place / "net.tg").write_text(MODEL.format(k=float(k)))
        T.emit(TGC, place / "net.tg", place / "net.c", "--cpu=generic")
        sources[f"m{k}"] = place / "net.c"
    return sources


def change(source, old, new):
    text = source.read_text()
    expect(old in text, f"no {old} in {source}")
    source.write_text(text.replace(old, new, 1))


def verdicts(sources, folder):
    """By name, what a test would say of it; None: right."""
    said = {}
    for name, exe in together.build(sources, T.scratch(folder / "built"), TGC).items():
        try:
            if isinstance(exe, Failure):
                raise exe
            T.compare("y", T.Program(exe, ["y"]).run([X])["y"], X * float(name[1:]), 1e-6, 1e-6)
            said[name] = None
        except Failure as failure:
            said[name] = str(failure)
    return said


def only(said, wrong, *words):
    expect([name for name, text in said.items() if text] == [wrong], f"{said}")
    for word in words:
        expect(word in said[wrong], f"no {word!r} in {said[wrong]}")


RUN = "int net_run(net *self, const net_inputs *in, net_outputs *out)\n{\n"


@case("files of one unit are programs of their own")
def _(folder):
    sources = emit(folder)
    expect([len(unit) for unit in together.units(sources)] == [COUNT], "more than one unit")
    said = verdicts(sources, folder)
    expect(list(said) == list(sources) and not any(said.values()), f"{said}")
    expect(len(list((folder / "built").iterdir())) == 1, "not built at once")


@case("a wrong result")
def _(folder):
    sources = emit(folder)
    change(sources["m3"], "* 3.0f", "* 3.5f")
    only(verdicts(sources, folder), "m3", "elements beyond", "expected 3.0")


@case("a crash")
def _(folder):
    sources = emit(folder)
    change(sources["m2"], RUN, RUN + "    *(volatile int *)(uintptr_t)8 = 1;\n")
    only(verdicts(sources, folder), "m2", "SIGSEGV")


@case("a warning")
def _(folder):
    sources = emit(folder)
    narrow = "    int narrow = (int)sizeof *in + 1.5f;\n    (void)narrow;\n"
    change(sources["m4"], RUN, RUN + narrow)
    only(verdicts(sources, folder), "m4", "[-Werror=float-conversion]", "net.c")


@case("a warning that another one turns off for itself")
def _(folder):
    sources = emit(folder)
    change(sources["m3"], RUN, '#pragma GCC diagnostic ignored "-Wshadow"\n' + RUN)
    change(sources["m4"], RUN, RUN + "    { int out = 1; (void)out; }\n")
    only(verdicts(sources, folder), "m4", "[-Werror=shadow]")


@case("a link error")
def _(folder):
    sources = emit(folder)
    missing = "int missing_function(void);\n"
    change(sources["m5"], RUN, missing + RUN + "    missing_function();\n")
    only(verdicts(sources, folder), "m5", "undefined reference", "missing_function")


@case("a header that one of them forgets")
def _(folder):
    sources = emit(folder)
    change(sources["m1"], "#include <string.h>\n", "")
    only(verdicts(sources, folder), "m1", "memset")


@case("a name that only another one declares")
def _(folder):
    sources = emit(folder)
    mine = "static int mine(void) { return 1; }\n"
    change(sources["m1"], RUN, mine + RUN + "    (void)mine();\n")
    change(sources["m2"], RUN, RUN + "    (void)mine();\n")
    only(verdicts(sources, folder), "m2", "mine")


@case("a macro that only another one defines")
def _(folder):
    sources = emit(folder)
    change(sources["m1"], RUN, "#define MINE 1\n" + RUN + "    (void)MINE;\n")
    change(sources["m2"], RUN, RUN + "    (void)MINE;\n")
    only(verdicts(sources, folder), "m2", "MINE")


@case("all fail if what builds alone does not build with others")
def _(folder):
    sources = emit(folder)
    for name in ("m1", "m2"):       # a name that only the preprocessor can know
        same = "#define JOIN(a, b) a##b\nextern int JOIN(sa, me);\nint JOIN(sa, me) = 1;\n"
        change(sources[name], RUN, same + RUN)
    said = verdicts(sources, folder)
    for text in said.values():
        expect(text and "builds alone, not beside others" in text, f"{said}")


@case("assembly that may name something stays alone")
def _(folder):
    for text, alone in (('__asm__("" : "+r"(n));', 0), ('__asm__("fsqrt.s %0, %1" : "=f"(n) : "f"(n));', 0), ('__asm__("vsqrt.f64 %P0, %P1" : "=w"(n) : "w"(n));', 0),
                        ('__asm__("call mine" : : );', 1), ('__asm__("mov %0, mine" : "=r"(n));', 1), ('__asm__(".globl mine");', 1), ('int a __asm__("mine");', 1),
                        ('__asm__ volatile("" : : : "memory");', 1)):
        sources = emit(folder)
        change(sources["m1"], RUN, RUN + f"    /* */ {text}\n")
        found = [len(unit) for unit in together.units(sources)]
        expect(sorted(found) == ([1, len(sources) - 1] if alone else [len(sources)]), f"{text}: units of {found}")


@case("names at file scope, of every form of declaration")
def _(folder):
    text = """static PLACE union { unsigned char b[3]; double d; } const in_union = {{1, 2}};
#define PLACE __attribute__((section("a")))
alignas(64) static const struct { int a; } behind PLACE = { 3 };
static __attribute__((target("a,b"))) void function(int a, float (*b)[3]) { int local = a; }
enum { A1, B1 = 3, C1 };
enum state { S1, S2 };
typedef struct { int field; } type_of_struct;
typedef struct node node_type;
struct node { int a; };
static const struct node list[] = {{3}, {4}}, more[2] = {{1}, {2}};
static void (*hook)(void *user, int x), (*hooks[2])(void);
typedef uint32_t bits __attribute__((vector_size(32)));
static_assert(sizeof(int) == 4, "no; {");
int prototype(int argument); /* not { this */
"""
    names = together.declared(text)
    expect(names == set("in_union behind function A1 B1 C1 state S1 S2 type_of_struct node_type "
                        "node list more hook hooks bits prototype".split()), f"{sorted(names)}")


suite.main()
