"""Several emitted files built as one: the headers are parsed, gcc and the linker started once.

Each file is still C of its own: what it declares at file scope is renamed by macros before its
text, which go, with its own macros, behind it, and so do its pragmas for warnings. Files stand in
one unit only if they include the same headers, so a header that one forgets is still missed. The
program is called by a file's name and then is that file's program.

    built = together.build({"m1": folder1 / "net.c", "m2": folder2 / "net.c"}, folder, tgc)
    built["m1"]         the path of its program, or the Failure to raise

Where a unit does not build without a warning, each of its files is built alone, as tgc.build()
does, and only those fail that fail alone. All of them fail if none does.
"""

import re

import tgc as T
from suite import Failure

IGNORED = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
CPLUSPLUS = re.compile(r"^#ifdef __cplusplus\n.*?^#endif\n", re.M | re.S)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*\n", re.M)
MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", re.M)
VISIBLE = re.compile(r"^[ \t]*#[ \t]*(?:include[ \t]*<.*>|define[ \t]+_\w+.*)", re.M)
# Assembly that may name something: neither a barrier nor one instruction on operands alone, as runtime/ has it of square roots.
ASSEMBLY = re.compile(r'\b(?:__asm__|asm)\b(?!\("(?:[\w.]+ %\w+(?:, %\w+)*)?")')
ATTRIBUTE = re.compile(r"(?:__attribute__|_?[Aa]lignas|_?[Ss]tatic_assert) "
                       r"(\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\))")
NO_NAMES = {"__attribute__", "alignas", "_Alignas", "static_assert", "_Static_assert", "_Pragma"}

DISPATCHER = """#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
struct model {
    const char *name;
    const void *(*describe)(void);
    int (*init)(void **, void *, size_t, const void *);
    int (*run)(void *, const void *, void *);
    void (*close)(void *);
    const char *(*strerror)(int);
};
#define DECLARE(m) extern const void *m##_describe(void); \\
    extern int m##_init(void **, void *, size_t, const void *); \\
    extern int m##_run(void *, const void *, void *); \\
    extern void m##_close(void *); extern const char *m##_strerror(int);
#define ENTRY(name, m) {name, m##_describe, m##_init, m##_run, m##_close, m##_strerror},
%s
static const struct model models[] = {%s};
static const struct model *called(void)
{
    size_t i = 0;
    while (strcmp(models[i].name, program_invocation_short_name))
        if (++i == sizeof models / sizeof *models)
            abort();
    return &models[i];
}
const void *STEM_describe(void) { return called()->describe(); }
int STEM_init(void **made, void *arena, size_t bytes, const void *options)
{
    return called()->init(made, arena, bytes, options);
}
int STEM_run(void *self, const void *in, void *out) { return called()->run(self, in, out); }
void STEM_close(void *self) { called()->close(self); }
const char *STEM_strerror(int status) { return called()->strerror(status); }
"""


def plain(text):
    """The C without comments, strings, directives and what only C++ sees."""
    text = IGNORED.sub(lambda m: " " if m[0][0] == "/" else '""', CPLUSPLUS.sub("", text))
    return DIRECTIVE.sub("", text)


def declared(text):
    """The names that C text declares at file scope, those of tags and enumerators too; its macros
    there stand for attributes."""
    names, words, depth, parens, listing = set(), [], 0, 0, False
    macros = set(MACRO.findall(text))
    tokens = [token for token in re.findall(r'\w+|""|\S', plain(text)) if token not in macros]
    for k, token in enumerate(tokens):
        if token == "{":
            if depth == 0:
                head = [word for word in words if word]
                listing = "enum" in head[-2:] and "=" not in head
                if len(head) > 1 and head[-2] in ("struct", "union", "enum"):
                    names.add(head[-1])
            depth += 1
        elif token == "}":
            depth -= 1
            if depth == 0 and words and words[-1] == ")" and "=" not in words:     # a function
                names |= declarators(words)
                words = []
            if depth == 0:
                words, listing = words and [*words, "{}"], False
        elif depth == 0 and token == ";" and parens == 0:
            names |= declarators(words)
            words = []
        elif depth == 0:
            parens += (token == "(") - (token == ")")
            words.append(token)
        elif depth == 1 and listing and tokens[k - 1] in "{,":
            names.add(token)
    if depth or parens or words:
        raise Failure(f"not understood at file scope: {' '.join(words)[:200]}")
    return {name for name in names if re.match(r"[A-Za-z_]", name)}


def declarators(words):
    """The names that one declaration at file scope gives to objects, functions or types."""
    names, depth, found, skip, start, value = set(), 0, None, None, 0, False
    for k, word in enumerate([*words, ","]):
        if word == "(":
            before = words[k - 1] if k else ""
            if skip is None and before in NO_NAMES:
                skip = depth
            elif depth == 0 and words[k + 1] == "*" and words[k + 3] in (")", "["):
                found = words[k + 2]
            elif depth == 0 and not value and found is None:
                found = before
            depth += 1
        elif word == ")":
            depth -= 1
            skip = None if skip == depth else skip
        elif depth == 0 and word in ("=", ","):
            if not value:
                names.add(found or last_name(words[start:k]))
            value, found, start = word == "=", None, k + 1
    return names - NO_NAMES - {""}


def last_name(words):
    """What stands last of a declaration, but for array bounds, attributes and a tag's braces."""
    text = " ".join(words)
    text = ATTRIBUTE.sub(" ", text)
    text = re.sub(r"\[[^\]]*\]", " ", text).strip()
    if not text or text.endswith("{}"):
        return ""
    kind, name = ["", *text.split()][-2:]
    return "" if kind in ("struct", "union", "enum") else name


def library_of(source):
    """The emitted file's text up to its program, its header in its place."""
    text = source.read_text().partition(f"\n#ifdef {source.stem.upper()}_MAIN\n")[0]
    header = source.with_suffix(".h").read_text()
    return text.replace(f'#include "{source.stem}.h"\n', header), header


def section(name, source, text):
    """The file as a part of a unit: every name of its own begins with `name`."""
    macros = list(dict.fromkeys(MACRO.findall(text)))
    names = sorted(declared(text))
    return "".join(["#pragma GCC diagnostic push\n#pragma GCC push_options\n",
                    *(f"#define {n} {name}_{n}\n" for n in names),
                    f'#line 1 "{name}/{source.name}"\n', text, "\n",
                    *(f"#undef {n}\n" for n in [*names, *macros] if not n.startswith("_")),
                    "#pragma GCC pop_options\n#pragma GCC diagnostic pop\n"])


def units(sources):
    """The files in groups that see the same headers; those with assembly that
    may have names, which no macro changes, stay alone. An empty one has none."""
    groups = {}
    for name, source in sources.items():
        text, _ = library_of(source)
        seen = name if ASSEMBLY.search(text) else frozenset(VISIBLE.findall(text))
        groups.setdefault(seen, {})[name] = (source, text)
    return groups.values()


def build(sources, folder, main_by, flags=None):
    """Builds the files, all of one stem, each in a folder of its own. By name: the path of its
    program, or its Failure. Without flags a third of the units is optimized (tgc.py)."""
    built, given = {}, flags
    for number, unit in enumerate(units(sources)):
        flags = given or (T.level_by_turns(next(iter(unit.values()))[0]),)
        if len(unit) == 1:
            built |= each_alone(unit, main_by, flags)
            continue
        try:
            exe = build_unit(unit, T.scratch(folder / f"unit{number}"), main_by, flags)
        except Failure as failure:
            alone = each_alone(unit, main_by, flags)
            if not any(isinstance(result, Failure) for result in alone.values()):
                alone = dict.fromkeys(unit, Failure(f"builds alone, not beside others: {failure}"))
            built |= alone
            continue
        for name in unit:
            built[name] = exe.with_name(name)
            built[name].symlink_to(exe.name)
    return built


def build_unit(unit, folder, main_by, flags):
    stem = next(iter(unit.values()))[0].stem
    (folder / "unit.c").write_text("".join(section(name, *part) for name, part in unit.items()))
    command = ["gcc", *T.WARNINGS, *flags]
    main = T.shared("main", T.compile_main, main_by, stem, "gcc", tuple(flags))
    (folder / "called.c").write_text((DISPATCHER % (
        "\n".join(f"DECLARE({name}_{stem})" for name in unit),
        " ".join(f'ENTRY("{name}", {name}_{stem})' for name in unit))).replace("STEM", stem))
    T.must(T.run(["gcc", "-c", "called.c"], cwd=folder))
    T.must(T.run([*command, "unit.c", "called.o", main, "-o", "program", "-lm", "-lpthread"],
                 timeout=300, cwd=folder))
    return folder / "program"


def each_alone(unit, main_by, flags):
    built = {}
    for name, (source, _) in unit.items():
        try:
            built[name] = source.with_suffix("")
            T.build(source, built[name], "gcc", flags, main_by=main_by)
        except Failure as failure:
            built[name] = failure
    return built
