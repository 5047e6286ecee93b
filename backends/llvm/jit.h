/* jit.h - a module becomes code in this process. */
#ifndef TGC_LLVM_JIT_H
#define TGC_LLVM_JIT_H

#include "backends/llvm/emit.h"

/* What the code is for. */
struct llvm_machine {
    const char *triple, *cpu, *features;
    LLVMTargetMachineRef machine;
    LLVMTargetDataRef layout;
};
/* The processor at hand; false: an error. */
bool machine_of_host(struct tgc *t, const struct llvm *l, struct llvm_machine *m);
void machine_free(const struct llvm *l, struct llvm_machine *m);
/* Optimizes the module and makes code of it; the caller disposes of the buffer. NULL: an error. The
 * values are LLVM's (LLVMCodeGenFileType). */
enum code { CODE_ASSEMBLY, CODE_OBJECT };
LLVMMemoryBufferRef machine_generate(struct tgc *t, const struct llvm *l,
                                     const struct llvm_machine *m, LLVMModuleRef module,
                                     enum code code);

/* A name that the code uses, and its address. */
struct llvm_name { const char *name; uint64_t address; };
/* Compiles the module, and finds `function` in it. NULL: an error. The module stays the caller's. */
LLVMOrcLLJITRef jit_module(struct tgc *t, const struct llvm *l, const struct llvm_machine *m,
                           LLVMModuleRef module, const struct llvm_name *name, int nname,
                           const char *function, uint64_t *address);

#endif
