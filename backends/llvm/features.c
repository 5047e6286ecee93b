/* features.c - instruction sets by LLVM's names: which of them a machine may have, and the features
 * of a function that is written for one. */
#include "backends/llvm/machine.h"

#include <string.h>

static const struct { const char *arch, *features; } isa_text[ISA_COUNT] = {
#define ISA(name, text, lanes, narrow, registers, title, arch, compilers, header, features,        \
            attribute)                                                                             \
    {arch, features},
#include "passes/target/isa.def"
#undef ISA
};

static const struct triple_row triples[] = {
#define TRIPLE(architecture, system, sets, cpu, features, abi)                                     \
    {architecture, system, sets, cpu, features, abi},
#include "backends/llvm/triples.def"
#undef TRIPLE
};

const struct triple_row *triple_find(const char *triple)
{
    for (size_t i = 0; i < sizeof triples / sizeof *triples; i++) {
        const struct triple_row *row = &triples[i];
        size_t n = strlen(triple), last = strlen(row->system);
        if (strncmp(triple, row->architecture, strlen(row->architecture)) == 0 && n >= last &&
            strcmp(triple + n - last, row->system) == 0)
            return row;
    }
    return NULL;
}

static const char *arch_of(const char *triple)
{
#if defined __x86_64__
    static const char here[] = "__x86_64__";
#elif defined __AARCH64EL__
    static const char here[] = "__AARCH64EL__";
#else
    static const char here[] = "";
#endif
    const struct triple_row *row = triple ? triple_find(triple) : NULL;
    return row ? row->sets : triple ? "" : here;
}

/* Who may be asked for tiles: has_amx() knows no other system. */
static bool is_linux(const char *triple)
{
#if defined __linux__
    static const bool here = true;
#else
    static const bool here = false;
#endif
    return triple ? strstr(triple, "-linux") != NULL : here;
}

isa_set llvm_isa(const char *triple, isa_set asked, bool tiles)
{
    tiles &= is_linux(triple);
    isa_set sets = 1u << ISA_GENERIC;
    const char *arch = arch_of(triple);
    for (int isa = ISA_GENERIC + 1; isa < ISA_COUNT; isa++) {
        bool has_tiles = isa_has_tiles((enum isa)isa);
        if ((asked >> isa & 1) && has_tiles && !tiles)
            asked |= 1u << isa_before((enum isa)isa);
        if (strcmp(isa_text[isa].arch, arch) == 0 && (tiles || !has_tiles))
            sets |= 1u << isa;
    }
    return (asked & sets) | 1u << ISA_GENERIC;
}

const char *triples_known(struct tgc *t)
{
    struct text out = {.t = t};
    for (size_t i = 0; i < sizeof triples / sizeof *triples; i++) {
        int n = (int)strcspn(triples[i].architecture, "-");
        if (i == 0 || strcmp(triples[i - 1].architecture, triples[i].architecture) != 0)
            text_printf(&out, "%s%.*s", out.n ? ", " : "", n, triples[i].architecture);
    }
    return out.s;
}

bool machine_has_feature(const struct emit *e, const char *name, int n)
{
    return strstr(mem_printf(e->t, "%s,", e->features), mem_printf(e->t, "+%.*s,", n, name)) !=
           NULL;
}

bool machine_has(const struct emit *e, enum isa isa)
{
    if (strcmp(isa_text[isa].arch, e->arch) != 0 || isa_has_tiles(isa))
        return false;
    for (const char *s = isa_text[isa].features; *s;) {
        int n = (int)strcspn(s, " ");
        if (!machine_has_feature(e, s, n))
            return false;
        s += n + (s[n] == ' ');
    }
    return true;
}

static const char amx[] = "amx-tile,+amx-int8,+amx-bf16";

const char *isa_features(enum isa isa) { return isa_text[isa].features; }

const char *features_with(struct tgc *t, const char *base, enum isa isa)
{
    struct text out = {.t = t};
    text_puts(&out, base);
    for (const char *s = isa_text[isa].features; *s;) {
        int n = (int)strcspn(s, " ");
        bool tiles = strncmp(s, "amx", (size_t)n) == 0;          /* LLVM counts it in parts */
        text_printf(&out, "%s+%.*s", out.n ? "," : "", tiles ? (int)strlen(amx) : n,
                    tiles ? amx : s);
        s += n + (s[n] == ' ');
    }
    return out.s ? out.s : "";
}

const char *features_of_processor(struct tgc *t, const char *arch, const char *base,
                                  const struct processor *p)
{
    enum isa isa = isa_has_tiles(p->isa) ? isa_before(p->isa) : p->isa;
    return strcmp(isa_text[isa].arch, arch) == 0 ? features_with(t, base, isa) : base;
}

bool features_check_processor(struct tgc *t, const char *triple, const struct processor *p,
                              int version)
{
    if (!processor_runs(p, triple))
        return diag_error(t, NULL,
                          "--cpu=%s is no processor of --triple=%s: its triples begin with %s",
                          p->name, triple, p->architectures);
    if (version < p->llvm)
        return diag_error(t, NULL,
                          "--cpu=%s: LLVM %d does not know it, version %d does (Debian: apt-get "
                          "install libllvm%d)",
                          p->name, version, p->llvm, p->llvm);
    return true;
}

/* All sets, or what every processor has, are no set that somebody has named. */
bool features_check(struct tgc *t, const char *triple, isa_set asked)
{
    const isa_set all = isa_all(), generic = 1u << ISA_GENERIC;
    const char *arch = arch_of(triple);
    enum isa named = ISA_GENERIC;
    for (int isa = 0; isa < ISA_COUNT; isa++)
        if (asked >> isa & 1)
            named = (enum isa)isa;
    if (asked == 0 || asked == all || asked == generic || strcmp(isa_text[named].arch, arch) == 0)
        return true;
    return diag_error(t, NULL, "--cpu=%s is no processor of --triple=%s", isa_table[named].text,
                      triple);
}
