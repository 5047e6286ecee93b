/* jit.c - a module becomes code in this process: LLVM's passes, an object in memory, and its linking
 * by ORC's LLJIT. */
#include "backends/llvm/jit.h"

#include <dlfcn.h>
#include <string.h>

/* Records LLVM's error, which is freed; false. */
static bool failed(struct tgc *t, const struct llvm *l, LLVMErrorRef error, const char *what)
{
    char *text = l->GetErrorMessage(error);
    diag_error(t, NULL, "LLVM %d: %s: %s", l->version, what, text);
    l->DisposeErrorMessage(text);
    return false;
}

/* ----------------------------------------------------------------------------------- the machine */

/* The functions that make an architecture known. */
static bool register_target(struct tgc *t, const struct llvm *l)
{
#if defined __x86_64__ || defined __i386__
    static const char arch[] = "X86";
#elif defined __aarch64__
    static const char arch[] = "AArch64";
#elif defined __arm__
    static const char arch[] = "ARM";
#elif defined __riscv
    static const char arch[] = "RISCV";
#else
    static const char arch[] = "";
#endif
    static const char *const part[] = {"TargetInfo", "Target", "TargetMC", "AsmPrinter"};
    for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
        const char *name = mem_printf(t, "LLVMInitialize%s%s", arch, part[i]);
        void *p = dlsym(l->library, name);
        void (*function)(void);
        memcpy(&function, &p, sizeof function);
        if (!p)
            return diag_error(t, NULL, "LLVM %d makes no code for this processor: it has no %s",
                              l->version, name);
        function();
    }
    return true;
}

static const char *take(struct tgc *t, const struct llvm *l, char *s)
{
    const char *r = mem_str(t, s);
    l->DisposeMessage(s);
    return r;
}

bool machine_of_host(struct tgc *t, const struct llvm *l, struct llvm_machine *m)
{
    enum { LEVEL_DEFAULT = 2, RELOC_PIC = 2, CODE_MODEL_DEFAULT = 0 };
    LLVMTargetRef target;
    char *error = NULL;
    if (!register_target(t, l))
        return false;
    m->triple = take(t, l, l->GetDefaultTargetTriple());
    m->cpu = take(t, l, l->GetHostCPUName());
    m->features = take(t, l, l->GetHostCPUFeatures());
    if (l->GetTargetFromTriple(m->triple, &target, &error))
        return diag_error(t, NULL, "LLVM %d: %s", l->version, error);
    m->machine = l->CreateTargetMachine(target, m->triple, m->cpu, m->features,
                                        LEVEL_DEFAULT, RELOC_PIC, CODE_MODEL_DEFAULT);
    m->layout = l->CreateTargetDataLayout(m->machine);
    return true;
}

void machine_free(const struct llvm *l, struct llvm_machine *m)
{
    l->DisposeTargetData(m->layout);
    l->DisposeTargetMachine(m->machine);
}

/* -------------------------------------------------------------------------------------- the code */

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
    return error ? failed(t, l, error, "passes") : true;
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
    diag_error(t, NULL, "LLVM %d: %s", l->version, take(t, l, message));
    return NULL;
}

static bool define_names(struct tgc *t, const struct llvm *l, LLVMOrcLLJITRef jit,
                         const struct llvm_name *name, int n)
{
    enum { EXPORTED = 1, CALLABLE = 4 };
    LLVMOrcJITDylibRef library = l->OrcLLJITGetMainJITDylib(jit);
    LLVMOrcDefinitionGeneratorRef process;
    struct llvm_symbol *symbol = mem_array(t, (size_t)n + 1, sizeof *symbol);
    for (int i = 0; i < n; i++) {
        symbol[i].name = l->OrcLLJITMangleAndIntern(jit, name[i].name);
        symbol[i].at.address = name[i].address;
        symbol[i].at.flags.generic = EXPORTED | CALLABLE;
    }
    LLVMErrorRef error = n ? l->OrcJITDylibDefine(library,
                                                  l->OrcAbsoluteSymbols(symbol, (size_t)n))
                           : NULL;
    if (error)
        return failed(t, l, error, "names of functions");
    error = l->OrcCreateDynamicLibrarySearchGeneratorForProcess(
        &process, l->OrcLLJITGetGlobalPrefix(jit), NULL, NULL);
    if (error)
        return failed(t, l, error, "names of this process");
    l->OrcJITDylibAddGenerator(library, process);
    return true;
}

LLVMOrcLLJITRef jit_module(struct tgc *t, const struct llvm *l, const struct llvm_machine *m,
                           LLVMModuleRef module, const struct llvm_name *name, int nname,
                           const char *function, uint64_t *address)
{
    LLVMOrcLLJITRef jit = NULL;
    LLVMMemoryBufferRef object = machine_generate(t, l, m, module, CODE_OBJECT);
    if (!object)
        return NULL;
    LLVMErrorRef error = l->OrcCreateLLJIT(&jit, NULL);
    if (error)
        return failed(t, l, error, "its JIT"), NULL;
    if (define_names(t, l, jit, name, nname)) {
        error = l->OrcLLJITAddObjectFile(jit, l->OrcLLJITGetMainJITDylib(jit), object);
        if (!error)
            error = l->OrcLLJITLookup(jit, address, function);
        if (!error)
            return jit;
        failed(t, l, error, "linking");
    }
    error = l->OrcDisposeLLJIT(jit);
    return error ? failed(t, l, error, "its JIT"), NULL : NULL;
}
