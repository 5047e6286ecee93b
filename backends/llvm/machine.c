/* machine.c - what LLVM makes code for, this processor or that of a triple, and the code of a
 * module: optimized, as an object or as assembly. */
#include "backends/llvm/machine.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
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

/* ----------------------------------------------------------------------------------- machines */

/* Makes the architectures of triples.def known. LLVM has one list of them for the process, which
 * two threads must not enter them into at once; a second time changes nothing. */
static void register_targets(const struct llvm *l)
{
    static pthread_mutex_t registering = PTHREAD_MUTEX_INITIALIZER;
    static const char *const arch[] = {"X86",     "AArch64", "RISCV", "ARM",
                                       "SystemZ", "NVPTX",   "AMDGPU"};
    static const char *const part[] = {"TargetInfo", "Target", "TargetMC", "AsmPrinter"};
    pthread_mutex_lock(&registering);
    for (size_t a = 0; a < sizeof arch / sizeof *arch; a++)
        for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
            char name[64];
            snprintf(name, sizeof name, "LLVMInitialize%s%s", arch[a], part[i]);
            void *p = dlsym(l->library, name);
            void (*function)(void);
            memcpy(&function, &p, sizeof function);
            if (p)
                function();
        }
    pthread_mutex_unlock(&registering);
}

LLVMTargetMachineRef machine_again(const struct llvm *l, const struct llvm_machine *m)
{
    enum { LEVEL_DEFAULT = 2, CODE_MODEL_DEFAULT = 0 };
    return l->CreateTargetMachine(m->target, m->triple, m->cpu, m->features, LEVEL_DEFAULT,
                                  m->relocation, CODE_MODEL_DEFAULT);
}

/* As LLVM names it. */
static int own_order(void)
{
    enum { LEAST_LAST, LEAST_FIRST };
    const uint16_t one = 1;
    unsigned char first;
    memcpy(&first, &one, 1);
    return first ? LEAST_FIRST : LEAST_LAST;
}

struct open_machine {
    const struct llvm *l;
    LLVMTargetMachineRef machine;
    LLVMTargetDataRef layout;
};

static void dispose(void *what)
{
    const struct open_machine *open = what;
    if (open->layout)
        open->l->DisposeTargetData(open->layout);
    if (open->machine)
        open->l->DisposeTargetMachine(open->machine);
}

/* m: its triple, cpu and features are known; title: what names the triple in messages. A program
 * that runs without a system is linked to fixed addresses. */
static bool machine_make(struct tgc *t, const struct llvm *l, const char *title,
                         struct llvm_machine *m)
{
    enum { RELOC_STATIC = 1, RELOC_PIC = 2 };
    char *error = NULL;
    m->relocation = strstr(m->triple, "-none-unknown-eabi") ? RELOC_STATIC : RELOC_PIC;
    register_targets(l);
    if (l->GetTargetFromTriple(m->triple, &m->target, &error))
        return diag_error(t, NULL, "%s: LLVM %d: %s", title, l->version, llvm_take(t, l, error));
    struct open_machine *open = MEM_NEW(t, struct open_machine);
    m->held = held_add(t, dispose, open);
    *open = (struct open_machine){l, machine_again(l, m), NULL};
    m->machine = open->machine;
    m->layout = open->layout = l->CreateTargetDataLayout(m->machine);
    m->swapped = l->ByteOrder(m->layout) != own_order();
    return true;
}

bool machine_of_host(struct tgc *t, const struct llvm *l, struct llvm_machine *m)
{
    *m = (struct llvm_machine){.triple = llvm_take(t, l, l->GetDefaultTargetTriple())};
    const struct triple_row *row = triple_find(m->triple);
    m->arch = row ? row->sets : "";
    m->cpu = llvm_take(t, l, l->GetHostCPUName());
    m->features = llvm_take(t, l, l->GetHostCPUFeatures());
    return machine_make(t, l, "this processor", m);
}

/* What triples.def says of a triple; false: an error. */
static bool read_triple(struct tgc *t, const struct llvm *l, const char *triple,
                        struct llvm_machine *m)
{
    *m = (struct llvm_machine){.triple = llvm_take(t, l, triple ? l->NormalizeTargetTriple(triple)
                                                                : l->GetDefaultTargetTriple())};
    const struct triple_row *row = triple_find(m->triple);
    if (!row)
        return diag_error(
            t, NULL,
            "--triple=%.200s: --target=llvm writes for %s; --target=c and CC=TRIPLE-gcc "
            "compile for all others",
            m->triple, triples_known(t));
    m->arch = row->sets;
    m->cpu = row->cpu;
    m->features = row->features;
    m->abi = row->abi;
    return true;
}

static bool make_triple(struct tgc *t, const struct llvm *l, struct llvm_machine *m)
{
    return machine_make(t, l, mem_printf(t, "--triple=%.200s", m->triple), m);
}

bool machine_of_triple(struct tgc *t, const struct llvm *l, const char *triple, isa_set isa,
                       bool tiles, struct llvm_machine *m)
{
    if (!read_triple(t, l, triple, m) || !features_check(t, m->triple, isa))
        return false;
    m->isa = llvm_isa(m->triple, isa ? isa : isa_all(), tiles);
    return make_triple(t, l, m);
}

bool machine_of_processor(struct tgc *t, const struct llvm *l, const char *triple,
                          const struct processor *p, struct llvm_machine *m)
{
    if (!read_triple(t, l, triple, m) || !features_check_processor(t, m->triple, p, l->version))
        return false;
    m->cpu = p->name;
    m->features = features_of_processor(t, m->arch, m->features, p);
    return make_triple(t, l, m);
}

bool machine_of_gpu(struct tgc *t, const struct llvm *l, const char *triple, const char *cpu,
                    const char *features, struct llvm_machine *m)
{
    *m = (struct llvm_machine){
        .triple = triple, .cpu = cpu, .features = features, .arch = "", .abi = ""};
    return machine_make(t, l, cpu, m);
}

void machine_free(struct llvm_machine *m) { held_release(m->held); }

/* --------------------------------------------------------------------------------------- code */

/* The passes that kernels gain by: their loops are blocked, unrolled and vectors already, so no
 * pass unrolls another, which costs the code generator most of its time. Scalar loops become
 * vectors. Counters are as wide as addresses and count from 0 by 1, so the slowest of all, indvars,
 * has nothing to do. From version 18 on instcombine would check itself. */
const char *machine_passes(struct tgc *t, const struct llvm *l)
{
    const char *combine = l->version >= 18 ? "instcombine<no-verify-fixpoint>" : "instcombine";
    return mem_printf(
        t,
        "always-inline,function(sroa,early-cse,simplifycfg,%s,loop-mssa(loop-rotate,licm),"
        "loop(loop-unroll-full),sroa,early-cse,loop-vectorize,%s,"
        "loop-mssa(licm),simplifycfg)",
        combine, combine);
}

static void note(struct code_error *error, const char *text)
{
    if (!error->text[0])
        snprintf(error->text, sizeof error->text, "%s", text);
}

void machine_note(LLVMDiagnosticInfoRef info, void *user)
{
    enum { ERROR = 0 };
    const struct machine_notes *n = user;
    if (n->l->GetDiagInfoSeverity(info) != ERROR)
        return;
    char *text = n->l->GetDiagInfoDescription(info);
    note(n->error, text);
    n->l->DisposeMessage(text);
}

bool machine_code(const struct llvm *l, const struct llvm_machine *m, LLVMModuleRef module,
                  const char *passes, enum code code, LLVMMemoryBufferRef *to,
                  struct code_error *error)
{
    LLVMPassBuilderOptionsRef options = l->CreatePassBuilderOptions();
    LLVMErrorRef failed = l->RunPasses(module, passes, m->machine, options);
    char *text = NULL;
    l->DisposePassBuilderOptions(options);
    if (failed) {
        text = l->GetErrorMessage(failed);
        note(error, text);
        l->DisposeErrorMessage(text);
        return false;
    }
    if (l->TargetMachineEmitToMemoryBuffer(m->machine, module, (int)code, &text, to)) {
        note(error, text);
        l->DisposeMessage(text);
        return false;
    }
    return !error->text[0];
}

LLVMMemoryBufferRef machine_generate(struct tgc *t, const struct llvm *l,
                                     const struct llvm_machine *m, LLVMModuleRef module,
                                     enum code code)
{
    LLVMMemoryBufferRef r = NULL;
    struct code_error error = {""};
    if (machine_code(l, m, module, machine_passes(t, l), code, &r, &error))
        return r;
    diag_error(t, NULL, "LLVM %d: %s", l->version, error.text);
    return NULL;
}
