/* jit.h - a module becomes code in this process. */
#ifndef TGC_LLVM_JIT_H
#define TGC_LLVM_JIT_H

#include "backends/llvm/machine.h"

/* A name that the code uses or defines, and its address. */
struct llvm_name { const char *name; uint64_t address; };
/* Compiles the module, and finds the functions' addresses. NULL: an error. The module stays the
 * caller's. */
LLVMOrcLLJITRef jit_module(struct tgc *t, const struct llvm *l, const struct llvm_machine *m,
                           LLVMModuleRef module, const struct llvm_name *name, int nname,
                           struct llvm_name *function, int nfunction);

#endif
