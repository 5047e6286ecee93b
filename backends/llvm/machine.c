/* machine.c - what LLVM makes code for, this processor or that of a triple, and the code of a module:
 * optimized, as an object or as assembly. */
#include "backends/llvm/machine.h"

#include <dlfcn.h>
#include <string.h>

bool llvm_failed(struct tgc *t, const struct llvm *l, LLVMErrorRef error, const char *what)
{
    char *text = l->GetErrorMessage(error);
    diag_error(t, NULL, "LLVM %d: %s: %s", l->version, what, text);
    l->DisposeErrorMessage(text);
    return false;
}

const char *llvm_take(struct tgc *t, const struct llvm *l, char *message)
{
    const char *r = mem_str(t, message);
    l->DisposeMessage(message);
    return r;
}

/* --------------------------------------------------------------------------- instruction sets */

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

bool machine_has_feature(const struct emit *e, const char *name, int n)
{
    return strstr(mem_printf(e->t, "%s,", e->features), mem_printf(e->t, "+%.*s,", n, name)) != NULL;
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

/* The features of the widest instruction set of --cpu, "+avx2,+fma"; "": of none beyond what all
 * processors of the triple have. NULL: an error says that it is another architecture's. */
static const char *features_of(struct tgc *t, const char *triple, isa_set set)
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

/* ----------------------------------------------------------------------------------- machines */

/* Makes architectures known: those whose interface between functions is set here, and two for which
 * object.c has a message. */
static void register_targets(struct tgc *t, const struct llvm *l)
{
    static const char *const arch[] = {"X86", "AArch64", "RISCV", "ARM", "SystemZ"};
    static const char *const part[] = {"TargetInfo", "Target", "TargetMC", "AsmPrinter"};
    for (size_t a = 0; a < sizeof arch / sizeof *arch; a++)
        for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
            void *p = dlsym(l->library, mem_printf(t, "LLVMInitialize%s%s", arch[a], part[i]));
            void (*function)(void);
            memcpy(&function, &p, sizeof function);
            if (p)
                function();
        }
}

/* m: its triple, cpu and features are known; title: what names the triple in messages. */
static bool machine_make(struct tgc *t, const struct llvm *l, const char *title,
                         struct llvm_machine *m)
{
    enum { LEVEL_DEFAULT = 2, RELOC_PIC = 2, CODE_MODEL_DEFAULT = 0 };
    LLVMTargetRef target;
    char *error = NULL;
    register_targets(t, l);
    m->arch = arch_of(m->triple);
    if (l->GetTargetFromTriple(m->triple, &target, &error))
        return diag_error(t, NULL, "%s: LLVM %d: %s", title, l->version, llvm_take(t, l, error));
    m->machine = l->CreateTargetMachine(target, m->triple, m->cpu, m->features, LEVEL_DEFAULT,
                                        RELOC_PIC, CODE_MODEL_DEFAULT);
    m->layout = l->CreateTargetDataLayout(m->machine);
    return true;
}

bool machine_of_host(struct tgc *t, const struct llvm *l, struct llvm_machine *m)
{
    *m = (struct llvm_machine){.triple = llvm_take(t, l, l->GetDefaultTargetTriple())};
    m->cpu = llvm_take(t, l, l->GetHostCPUName());
    m->features = llvm_take(t, l, l->GetHostCPUFeatures());
    return machine_make(t, l, "this processor", m);
}

/* Linux's RISC-V has numbers of 64 bits; LLVM begins with less than that, and with an interface that
 * passes floats in registers of integers. */
static void set_riscv(struct llvm_machine *m)
{
    m->features = "+m,+a,+f,+d,+c";
    m->abi = "lp64d";
}

bool machine_of_triple(struct tgc *t, const struct llvm *l, const char *triple, isa_set isa,
                       struct llvm_machine *m)
{
    *m = (struct llvm_machine){.cpu = ""};
    m->triple = llvm_take(t, l, triple ? l->NormalizeTargetTriple(triple)
                                       : l->GetDefaultTargetTriple());
    m->features = features_of(t, m->triple, isa);
    if (!m->features)
        return false;
    if (strncmp(m->triple, "riscv64", 7) == 0)
        set_riscv(m);
    return machine_make(t, l, mem_printf(t, "--triple=%.200s", m->triple), m);
}

void machine_free(const struct llvm *l, struct llvm_machine *m)
{
    l->DisposeTargetData(m->layout);
    l->DisposeTargetMachine(m->machine);
}

/* --------------------------------------------------------------------------------------- code */

/* The passes that kernels gain by: their loops are blocked, unrolled and vectors already, so no pass
 * unrolls another, which costs the code generator most of its time. Scalar loops become vectors.
 * From version 18 on instcombine would check itself. */
static const char *pipeline(struct tgc *t, const struct llvm *l)
{
    const char *combine = l->version >= 18 ? "instcombine<no-verify-fixpoint>" : "instcombine";
    return mem_printf(t, "function(sroa,early-cse,simplifycfg,%s,loop-mssa(loop-rotate,licm),"
                         "loop(indvars,loop-unroll-full),sroa,early-cse,loop-vectorize,%s,"
                         "loop-mssa(licm),simplifycfg)", combine, combine);
}

static bool optimize(struct tgc *t, const struct llvm *l, const struct llvm_machine *m,
                     LLVMModuleRef module)
{
    LLVMPassBuilderOptionsRef options = l->CreatePassBuilderOptions();
    LLVMErrorRef error = l->RunPasses(module, pipeline(t, l), m->machine, options);
    l->DisposePassBuilderOptions(options);
    return error ? llvm_failed(t, l, error, "passes") : true;
}

LLVMMemoryBufferRef machine_generate(struct tgc *t, const struct llvm *l,
                                     const struct llvm_machine *m, LLVMModuleRef module,
                                     enum code code)
{
    LLVMMemoryBufferRef r = NULL;
    char *message = NULL;
    if (!optimize(t, l, m, module))
        return NULL;
    if (!l->TargetMachineEmitToMemoryBuffer(m->machine, module, code, &message, &r))
        return r;
    diag_error(t, NULL, "LLVM %d: %s", l->version, llvm_take(t, l, message));
    return NULL;
}
