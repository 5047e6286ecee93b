/* driver.c - the clang program on PATH, its version, and what it is told for another machine. */
#include "backends/clang/clang.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct sysroot {
    const char *architecture, *system, *folder, *package, *flag;
} sysroots[] = {
#define SYSROOT(architecture, system, folder, package, flag)                                       \
    {architecture, system, folder, package, flag},
#include "backends/clang/sysroots.def"
#undef SYSROOT
};

bool program_is_on_path(struct tgc *t, const char *name)
{
    const char *path = getenv("PATH");
    for (const char *s = path; s && *s;) {
        size_t n = strcspn(s, ":");
        if (n && access(mem_printf(t, "%.*s/%s", (int)n, s, name), X_OK) == 0)
            return true;
        s += n + (s[n] == ':');
    }
    return false;
}

/* The first line that a command prints; "" if it fails. Its words are tgc's own. */
static const char *answer_of(struct tgc *t, const char *command)
{
    char line[PATH_MAX] = "";
    FILE *f = popen(mem_printf(t, "%s 2>/dev/null", command), "re");
    if (f && !fgets(line, sizeof line, f))
        line[0] = 0;
    if (!f || pclose(f) != 0)
        return "";
    line[strcspn(line, "\n")] = 0;
    return mem_str(t, line);
}

static bool is_wasm(const char *triple) { return triple && strncmp(triple, "wasm", 4) == 0; }

/* clang has no linker for WebAssembly but lld's, of whatever version; NULL: there is none. */
static const char *wasm_linker(struct tgc *t, int version)
{
    const char *own = mem_printf(t, "wasm-ld-%d", version);
    return program_is_on_path(t, own) ? own : program_is_on_path(t, "wasm-ld") ? "wasm-ld" : NULL;
}

/* clang, clang-19 ... clang-13; TGC_CLANG=15 asks for a version. For WebAssembly the first one that
 * comes with a linker, if one does. */
static const char *find_driver(struct tgc *t, const char *triple, const char **version)
{
    const char *without = NULL, *its_version = NULL;
    const char *wanted = getenv("TGC_CLANG");
    int only = wanted ? atoi(wanted) : 0;
    for (int v = CLANG_NEWEST + 1; v >= CLANG_OLDEST; v--) {
        const char *name = v > CLANG_NEWEST ? "clang" : mem_printf(t, "clang-%d", v);
        if (!program_is_on_path(t, name))
            continue;
        *version = answer_of(t, mem_printf(t, "%s -dumpversion", name));
        int major = atoi(*version);
        if (major < CLANG_OLDEST || (only && major != only))
            continue;
        if (!is_wasm(triple) || wasm_linker(t, major))
            return name;
        its_version = without ? its_version : *version;
        without = without ? without : name;
    }
    *version = its_version;
    return without;
}

const char *clang_found(struct tgc *t)
{
    const char *version, *name = find_driver(t, NULL, &version);
    return name ? mem_printf(t, "%s (%s)", version, name) : NULL;
}

static const struct sysroot *find_sysroot(const char *triple)
{
    for (size_t i = 0; i < sizeof sysroots / sizeof *sysroots; i++) {
        const struct sysroot *s = &sysroots[i];
        size_t n = strlen(triple), tail = strlen(s->system);
        if (strncmp(triple, s->architecture, strlen(s->architecture)) == 0 && n >= tail &&
            strcmp(triple + n - tail, s->system) == 0)
            return s;
    }
    return NULL;
}

static const char *headers_hint(const struct clang *l)
{
    const struct sysroot *s = l->triple ? find_sysroot(l->triple) : NULL;
    if (l->triple && !s)
        return "; C_INCLUDE_PATH names the folder where they are";
    return mem_printf(l->t, " (Debian: apt-get install %s); elsewhere C_INCLUDE_PATH names their "
                            "folder", s ? s->package : "libc6-dev");
}

static const char *place_of(const struct clang *l, const char *subject)
{
    return l->triple ? mem_printf(l->t, "--triple=%s", l->triple) : subject;
}

bool clang_refuse_machine(const struct clang *l, const char *by, const char *subject)
{
    struct place at = {.file = place_of(l, subject)};
    return diag_error(l->t, &at, "%s compiles for no such machine", by);
}

bool clang_refuse_headers(const struct clang *l, const char *subject)
{
    struct place at = {.file = place_of(l, subject)};
    return diag_error(l->t, &at, "libc's headers for this machine are not found%s",
                      headers_hint(l));
}

static void add_word(struct clang *l, const char *word)
{
    VEC_PUSH(l->t, l->word, l->nword, l->cap, word);
}

struct clang *clang_open(struct tgc *t, const char *triple)
{
    struct clang *l = MEM_NEW(t, struct clang);
    const char *version;
    *l = (struct clang){.t = t, .triple = triple, .driver = find_driver(t, triple, &version)};
    if (l->driver) {
        l->version = atoi(version);
        l->title = mem_printf(t, "clang %s", version);
        l->resources = answer_of(t, mem_printf(t, "%s -print-resource-dir", l->driver));
    }
    if (triple) {
        const struct sysroot *s = find_sysroot(triple);
        add_word(l, mem_printf(t, "--target=%s", triple));
        if (s && *s->flag)
            add_word(l, s->flag);
        if (s && access(s->folder, R_OK) == 0) {
            add_word(l, "-isystem");
            add_word(l, s->folder);
        }
    }
    return l;
}

/* Whether the program accepts an empty file with these words. Letters of triples and the folders of
 * sysroots.def are safe in a shell. */
static bool accepts(struct clang *l, const char *words)
{
    struct text x = {.t = l->t};
    text_puts(&x, l->driver);
    for (int i = 0; i < l->nword; i++)
        text_printf(&x, " %s", l->word[i]);
    text_printf(&x, " %s -fsyntax-only -x c /dev/null && echo ok", words);
    return strcmp(answer_of(l->t, x.s), "ok") == 0;
}

/* Another machine's compiler may be there without its libc. */
static bool check_triple(struct clang *l)
{
    if (!accepts(l, ""))
        return clang_refuse_machine(l, l->title, NULL);
    return accepts(l, "-include assert.h -include math.h -include stdint.h -include string.h") ||
           clang_refuse_headers(l, NULL);
}

/* lld, if clang would take this machine's own linker for another machine; NULL: it finds that
 * one's. */
static const char *linker_for(const struct clang *l)
{
    const char *own = answer_of(l->t, mem_printf(l->t, "%s -print-prog-name=ld", l->driver));
    const char *there = answer_of(
        l->t, mem_printf(l->t, "%s --target=%s -print-prog-name=ld", l->driver, l->triple));
    return strcmp(own, there) == 0 && program_is_on_path(l->t, "ld.lld") ? "-fuse-ld=lld" : NULL;
}

const struct compiler *clang_compiler(struct clang *l)
{
    struct tgc *t = l->t;
    if (!l->driver) {
        diag_error(t, NULL,
                   "none of clang, clang-%d ... clang-%d is on PATH (Debian: apt-get install "
                   "clang); without it --target=c takes the C compiler at hand",
                   CLANG_NEWEST, CLANG_OLDEST);
        return NULL;
    }
    if (l->triple && !check_triple(l))
        return NULL;
    struct compiler *c = MEM_NEW(t, struct compiler);
    *c = (struct compiler){.command = l->driver, .word = l->word, .nword = l->nword};
    /* the system's own may not know another machine's objects: its ar leaves their index empty */
    const char *ar = mem_printf(t, "llvm-ar-%d", l->version);
    if (is_wasm(l->triple)) {
        c->libraries = "-L/usr/lib/wasm32-wasi";
        if (!wasm_linker(t, l->version)) {
            diag_error(t, &(struct place){.file = place_of(l, NULL)},
                       "neither wasm-ld-%d nor wasm-ld is on PATH (Debian: apt-get install lld-%d)",
                       l->version, l->version);
            return NULL;
        }
    } else {
        c->linker = l->triple ? linker_for(l) : NULL;
    }
    if (l->triple)
        c->archiver = program_is_on_path(t, ar)          ? ar
                      : program_is_on_path(t, "llvm-ar") ? "llvm-ar"
                                                         : NULL;
    return c;
}
