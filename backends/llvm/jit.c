/* jit.c - a module becomes code in this process: an object in memory, linked by ORC's LLJIT. */
#include "backends/llvm/jit.h"

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
        return llvm_failed(t, l, error, "names of functions");
    error = l->OrcCreateDynamicLibrarySearchGeneratorForProcess(
        &process, l->OrcLLJITGetGlobalPrefix(jit), NULL, NULL);
    if (error)
        return llvm_failed(t, l, error, "names of this process");
    l->OrcJITDylibAddGenerator(library, process);
    return true;
}

LLVMOrcLLJITRef jit_module(struct tgc *t, const struct llvm *l, const struct llvm_machine *m,
                           LLVMModuleRef module, const struct llvm_name *name, int nname,
                           struct llvm_name *function, int nfunction)
{
    LLVMOrcLLJITRef jit = NULL;
    LLVMMemoryBufferRef object = machine_generate(t, l, m, module, CODE_OBJECT);
    if (!object)
        return NULL;
    LLVMErrorRef error = l->OrcCreateLLJIT(&jit, NULL);
    if (error)
        return llvm_failed(t, l, error, "its JIT"), NULL;
    if (define_names(t, l, jit, name, nname)) {
        error = l->OrcLLJITAddObjectFile(jit, l->OrcLLJITGetMainJITDylib(jit), object);
        for (int i = 0; i < nfunction && !error; i++)
            error = l->OrcLLJITLookup(jit, &function[i].address, function[i].name);
        if (!error)
            return jit;
        llvm_failed(t, l, error, "linking");
    }
    error = l->OrcDisposeLLJIT(jit);
    return error ? llvm_failed(t, l, error, "its JIT"), NULL : NULL;
}
