/* variants.c - the kernels for each instruction set, and the choice between them when a model is
 * opened.
 *
 *      #if the compiler and the architecture have it
 *      vectors and what is computed with them · kernels for AVX2 · kernels for AVX-512
 *      #endif
 *      struct kernels: a pointer for each kernel that has variants · a table for each instruction
 *      set · pick_kernels()
 *
 * Nothing depends on the compiler's flags, which the user chooses: each function has an attribute
 * with the features it needs.
 */
#include "backends/program/program.h"

#include <string.h>

static const struct { const char *arch, *compilers, *header, *features; } isa_text[ISA_COUNT] = {
#define ISA(name, text, lanes, narrow, registers, title, arch, compilers, header, features,        \
            attribute)                                                                             \
    {arch, compilers, header, features},
#include "passes/target/isa.def"
#undef ISA
};

bool program_has_variants(const struct program *p)
{
    for (int i = 0; i < p->s->nkernel && !p->backend->device; i++)
        if (p->s->kernel[i]->nvariant > 0)
            return true;
    return false;
}

static const struct variant *find_variant(const struct kernel *k, enum isa isa)
{
    for (int i = 0; i < k->nvariant; i++)
        if (k->variant[i].isa == isa)
            return &k->variant[i];
    return NULL;
}

static bool isa_is_used(const struct program *p, enum isa isa)
{
    for (int i = 0; i < p->s->nkernel; i++)
        if (find_variant(p->s->kernel[i], isa))
            return true;
    return false;
}

const char *variants_pieces(const struct program *p)
{
    const char *prefix = NULL;
    for (int isa = 0; isa < ISA_COUNT && !prefix; isa++)
        if (!isa_is_of_device((enum isa)isa) && isa_is_used(p, (enum isa)isa))
            prefix = isa_pieces((enum isa)isa);
    return prefix;
}

const char *program_variant_name(const struct program *p, const struct kernel *k, enum isa isa)
{
    const char *name = program_kernel_name(p, k);
    return isa == ISA_GENERIC ? name : mem_printf(p->t, "%s_%s", name, isa_table[isa].text);
}

/* "#if defined __GNUC__ && defined __x86_64__" and further conditions on the compiler. */
static void write_condition(int isa, struct text *out)
{
    text_printf(out, "#if defined __GNUC__ && defined %s%s%s\n", isa_text[isa].arch,
                *isa_text[isa].compilers ? " && " : "", isa_text[isa].compilers);
}

/* Renders kernels first, since they decide which pieces of runtime/ come before them. */
static void write_architecture(struct program *p, const char *arch, struct text *out)
{
    struct text kernels[ISA_COUNT] = {{0}};
    const char *header = NULL;
    for (int isa = 0; isa < ISA_COUNT; isa++) {
        if (strcmp(isa_text[isa].arch, arch) != 0 || !isa_is_used(p, (enum isa)isa))
            continue;
        header = isa_text[isa].header;
        kernels[isa].t = p->t;
        for (int i = 0; i < p->s->nkernel; i++) {
            const struct variant *v = find_variant(p->s->kernel[i], (enum isa)isa);
            if (v && !program_is_twin(p, p->s->kernel[i]))
                lines_write_kernel(p, p->s->kernel[i], v, &kernels[isa]);
        }
    }
    if (!header)
        return;
    text_printf(out, "#if defined __GNUC__ && defined %s\n#include <%s>\n\n", arch, header);
    for (int isa = 0; isa < ISA_COUNT; isa++)
        if (strcmp(isa_text[isa].arch, arch) == 0) {
            if (*isa_text[isa].compilers && isa_is_used(p, (enum isa)isa))
                write_condition(isa, out);
            snippets_write(p, out, mem_printf(p->t, "vector_%s", isa_table[isa].text), NULL);
            if (*isa_text[isa].compilers && isa_is_used(p, (enum isa)isa))
                text_puts(out, "#endif\n\n");
            /* sets of one architecture with vectors of one size share them */
            if (isa == 0 || strcmp(isa_text[isa - 1].arch, arch) != 0 ||
                isa_table[isa].lanes != isa_table[isa - 1].lanes)
                snippets_write(p, out, "vector_math",
                               mem_printf(p->t, "f32x%d", isa_table[isa].lanes));
        }
    for (int isa = 0; isa < ISA_COUNT; isa++) {
        if (!kernels[isa].t)
            continue;
        if (*isa_text[isa].compilers)
            write_condition(isa, out);
        text_puts(out, kernels[isa].s);
        lines_move(p, &kernels[isa], out);
        if (*isa_text[isa].compilers)
            text_puts(out, "#endif\n\n");
    }
    text_puts(out, "#endif\n\n");
}

/* The best of the narrower instruction sets of the same architecture for which the kernel has a
 * variant. */
static const char *best_name(const struct program *p, const struct kernel *k, int isa)
{
    for (int i = isa; i > ISA_GENERIC; i--)
        if (strcmp(isa_text[i].arch, isa_text[isa].arch) == 0 && find_variant(k, (enum isa)i))
            return program_variant_name(p, k, (enum isa)i);
    return program_kernel_name(p, k);
}

static void write_table(const struct program *p, int isa, struct text *out)
{
    text_printf(out, "static const struct kernels kernels_%s = {", isa_table[isa].text);
    size_t line = out->n - 100;
    for (int i = 0; i < p->s->nkernel; i++) {
        const struct kernel *k = p->s->kernel[i];
        if (k->nvariant == 0 || program_is_twin(p, k))
            continue;
        const char *name = best_name(p, k, isa);
        if (out->n - line + strlen(name) + 3 > 100) {
            text_puts(out, "\n    ");
            line = out->n - 4;
        } else {
            text_putc(out, ' ');
        }
        text_printf(out, "%s,", name);
    }
    text_puts(out, "\n};\n\n");
}

/* "__builtin_cpu_supports("avx2") && ...", or has_dotprod() where compilers have no such
 * builtin. */
static void write_test(const char *features, struct text *out)
{
    for (const char *s = features; *s;) {
        int n = (int)strcspn(s, " ");
        bool own = snippet_find(mem_printf(out->t, "has_%.*s", n, s)) != NULL;
        text_printf(out, own ? "%shas_%.*s()" : "%s__builtin_cpu_supports(\"%.*s\")",
                    s == features ? "" : " &&\n        ", n, s);
        s += n + (s[n] == ' ');
    }
}

/* The functions of runtime/ that write_test() calls. */
static void use_tests(struct program *p)
{
    for (int isa = 0; isa < ISA_COUNT; isa++)
        for (const char *s = isa_text[isa].features; *s && isa_is_used(p, (enum isa)isa);) {
            int n = (int)strcspn(s, " ");
            const char *own = mem_printf(p->t, "has_%.*s", n, s);
            if (snippet_find(own))
                snippet_use(&p->snippets, own);
            s += n + (s[n] == ' ');
        }
}

/* Wider ones first. */
static void write_pick(const struct program *p, struct text *out)
{
    text_puts(out, "/* The kernels for the processor that this runs on. */\n"
                   "static const struct kernels *pick_kernels(void)\n{\n");
    for (int isa = ISA_COUNT - 1; isa > ISA_GENERIC; isa--) {
        if (!isa_is_used(p, (enum isa)isa))
            continue;
        write_condition(isa, out);
        if (*isa_text[isa].features) {
            text_puts(out, "    if (");
            write_test(isa_text[isa].features, out);
            text_puts(out, ")\n    ");
        }
        text_printf(out, "    return &kernels_%s;\n#endif\n", isa_table[isa].text);
    }
    text_puts(out, "    return &kernels_generic;\n}\n\n");
}

static bool is_first_of_architecture(int isa)
{
    if (isa_is_of_device((enum isa)isa))
        return false;
    for (int j = ISA_GENERIC + 1; j < isa; j++)
        if (strcmp(isa_text[j].arch, isa_text[isa].arch) == 0)
            return false;
    return true;
}

void variants_write_pieces(struct program *p, struct text *out)
{
    for (int first = ISA_GENERIC + 1; first < ISA_COUNT; first++) {
        struct text pieces = {.t = p->t};
        if (!is_first_of_architecture(first))
            continue;
        for (int isa = first; isa < ISA_COUNT; isa++) {
            if (strcmp(isa_text[isa].arch, isa_text[first].arch) != 0)
                continue;
            snippets_write(p, &pieces, mem_printf(p->t, "vector_%s", isa_table[isa].text), NULL);
            if (isa == first || isa_table[isa].lanes != isa_table[isa - 1].lanes)
                snippets_write(p, &pieces, "vector_math",
                               mem_printf(p->t, "f32x%d", isa_table[isa].lanes));
        }
        if (pieces.n)
            text_printf(out, "#if defined __GNUC__ && defined %s\n#include <%s>\n\n%s#endif\n\n",
                        isa_text[first].arch, isa_text[first].header, pieces.s);
    }
}

void variants_write(struct program *p, struct text *out)
{
    if (!program_has_variants(p))
        return;
    use_tests(p);
    for (int isa = ISA_GENERIC + 1; isa < ISA_COUNT; isa++) {
        if (is_first_of_architecture(isa))
            write_architecture(p, isa_text[isa].arch, out);
    }
    text_puts(out, "struct kernels {\n");
    for (int i = 0; i < p->s->nkernel; i++)
        if (p->s->kernel[i]->nvariant > 0 && !program_is_twin(p, p->s->kernel[i]))
            text_printf(out, "    void (*%s)(%s);\n", program_kernel_name(p, p->s->kernel[i]),
                        p->parameters[i]);
    text_puts(out, "};\n");
    for (int isa = 0; isa < ISA_COUNT; isa++) {
        if (isa != ISA_GENERIC && !isa_is_used(p, (enum isa)isa))
            continue;
        if (isa != ISA_GENERIC)
            write_condition(isa, out);
        write_table(p, isa, out);
        if (isa != ISA_GENERIC) {
            out->n--;
            text_puts(out, "#endif\n\n");
        }
    }
    write_pick(p, out);
}

const struct variant *program_variant_on_device(const struct program *p, const struct kernel *k)
{
    bool may = device_has_grid(p->t) || (k->ngrid == 0 && k->block == 0);
    return p->backend->device && k->nvariant && may ? k->variant : NULL;
}
