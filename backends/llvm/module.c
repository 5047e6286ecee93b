/* module.c - a schedule as a module: its kernels, each the variant for the best instruction set that
 * the machine has, and the function of a run. */
#include "backends/llvm/jit.h"

#include <string.h>

static const struct { const char *arch, *features; } isa_text[ISA_COUNT] = {
#define ISA(name, text, lanes, narrow, registers, title, arch, compilers, header, features,        \
            attribute)                                                                             \
    {arch, features},
#include "passes/target/isa.def"
#undef ISA
};

/* The architecture of a triple, as isa.def names it; "": none that has instruction sets there. */
static const char *arch_of(const char *triple)
{
    return strncmp(triple, "x86_64", 6) == 0                                      ? "__x86_64__"
           : strncmp(triple, "aarch64-", 8) == 0 || strncmp(triple, "arm64-", 6) == 0 ? "__AARCH64EL__"
                                                                                      : "";
}

/* Whether the machine has all that the instruction set needs. */
static bool machine_has(const struct emit *e, enum isa isa)
{
    if (strcmp(isa_text[isa].arch, e->arch) != 0 || isa_has_tiles(isa))
        return false;
    for (const char *s = isa_text[isa].features; *s;) {
        int n = (int)strcspn(s, " ");
        const char *wanted = mem_printf(e->t, "+%.*s,", n, s);
        if (!strstr(mem_printf(e->t, "%s,", e->features), wanted))
            return false;
        s += n + (s[n] == ' ');
    }
    return true;
}

/* "+avx2,+fma" */
static const char *features_text(struct tgc *t, const char *features)
{
    struct text out = {.t = t};
    for (const char *s = features; *s;) {
        int n = (int)strcspn(s, " ");
        text_printf(&out, "%s+%.*s", out.n ? "," : "", n, s);
        s += n + (s[n] == ' ');
    }
    return out.s ? out.s : "";
}

const char *features_of(struct tgc *t, const char *triple, isa_set set)
{
    const char *arch = arch_of(triple), *features = "";
    bool all = set == 0 || set == (1u << ISA_COUNT) - 1, known = all;
    enum isa named = ISA_GENERIC;
    for (int isa = 0; isa < ISA_COUNT && !all; isa++) {
        if (!(set >> isa & 1))
            continue;
        named = (enum isa)isa;
        if (isa == ISA_GENERIC || strcmp(isa_text[isa].arch, arch) != 0)
            continue;
        if (isa_has_tiles(named)) {
            diag_error(t, NULL, "--target=llvm has no form for %s's tiles yet: --cpu=%s has none",
                       isa_table[isa].title, isa_table[isa - 1].text);
            return NULL;
        }
        known = true;
        features = isa_text[isa].features;
    }
    if (known || named == ISA_GENERIC)
        return features_text(t, features);
    diag_error(t, NULL, "--cpu=%s is no processor of --triple=%s", isa_table[named].text, triple);
    return NULL;
}

/* The widest of the kernel's variants that the machine runs, in whatever order they are; NULL: the
 * portable one. */
static const struct variant *pick(const struct emit *e, const struct kernel *k)
{
    const struct variant *best = NULL;
    for (int i = 0; i < k->nvariant; i++)
        if ((!best || k->variant[i].isa > best->isa) && machine_has(e, k->variant[i].isa))
            best = &k->variant[i];
    return best;
}

static void diagnose(LLVMDiagnosticInfoRef info, void *context)
{
    const struct llvm *l = context;
    enum { ERROR = 0 };
    if (l->GetDiagInfoSeverity(info) != ERROR)
        return;
    char *text = l->GetDiagInfoDescription(info);
    diag_error(l->t, NULL, "LLVM %d: %s", l->version, text);
    l->DisposeMessage(text);
}

void module_begin(struct emit *e, struct llvm *l, const struct llvm_machine *m, const char *name)
{
    e->name = name;
    e->context = l->ContextCreate();
    l->ContextSetDiagnosticHandler(e->context, diagnose, l);
    e->module = l->ModuleCreateWithNameInContext(name, e->context);
    e->at = l->CreateBuilderInContext(e->context);
    l->SetTarget(e->module, m->triple);
    l->SetModuleDataLayout(e->module, m->layout);
    e->arch = arch_of(m->triple);
    e->cpu = m->cpu;
    e->features = m->features;
    e->i1 = l->IntTypeInContext(e->context, 1);
    e->i8 = l->IntTypeInContext(e->context, 8);
    e->i16 = l->IntTypeInContext(e->context, 16);
    e->i32 = l->IntTypeInContext(e->context, 32);
    e->i64 = l->IntTypeInContext(e->context, 64);
    e->f32 = l->FloatTypeInContext(e->context);
    e->f64 = l->DoubleTypeInContext(e->context);
    e->nothing = l->VoidTypeInContext(e->context);
    e->pointer = l->PointerType(e->i8, 0);
}

bool module_supports(struct tgc *t, const struct schedule *s)
{
    if (s->nstate)
        return diag_error(t, NULL, "--target=llvm does not keep states yet (--state): --target=c does");
    if (s->threads > 1)
        return diag_error(t, NULL,
                          "--target=llvm runs in one thread as yet: leave --threads out, or take "
                          "--target=c");
    return true;
}

void module_emit(struct emit *e, const char *function)
{
    const struct schedule *s = e->s;
    e->twin = twins_find(e->t, s);
    e->kernel = mem_array(e->t, (size_t)s->nkernel + 1, sizeof *e->kernel);
    for (int i = 0; i < s->nkernel; i++)
        if (e->twin[i] == s->kernel[i])
            e->kernel[i] = emit_kernel(e, s->kernel[i], pick(e, s->kernel[i]));
    emit_run(e, function);
}

void module_check(const struct emit *e)
{
    char *message = NULL;
    enum { RETURN_STATUS = 2 };
    if (e->l->VerifyModule(e->module, RETURN_STATUS, &message))
        TGC_BUG(e->t, "LLVM %d refuses the module: %s", e->l->version, message);
    e->l->DisposeMessage(message);
}

void module_end(struct emit *e)
{
    e->l->DisposeBuilder(e->at);
    e->l->DisposeModule(e->module);
    e->l->ContextDispose(e->context);
}
