/* machine.h - what LLVM makes code for, and the code. */
#ifndef TGC_LLVM_MACHINE_H
#define TGC_LLVM_MACHINE_H

#include "backends/llvm/emit.h"
#include "backends/llvm/loader.h"

/* features.c: triples.def */
struct triple_row { const char *architecture, *system, *sets, *cpu, *features, *abi; };
const struct triple_row *triple_find(const char *triple);        /* NULL: it has no row */
/* their architectures, for messages */
const char *triples_known(struct tgc *t);
/* Whether the sets that --cpu asks for are the triple's; false: an error. */
bool features_check(struct tgc *t, const char *triple, isa_set asked);
/* Whether the processor is the triple's, and LLVM of this version knows it; false: an error. */
bool features_check_processor(struct tgc *t, const char *triple, const struct processor *p,
                              int version);

struct llvm_machine {
    const char *triple, *cpu, *features;
    const char *arch;            /* as in isa.def; "": it has no instruction sets there */
    const char *abi;             /* the module's "target-abi"; "": the triple's own */
    isa_set isa;                 /* kernels are written for each of them; 0: for what the machine
                                  * has */
    LLVMTargetRef target;
    int relocation;
    bool swapped;                /* another order of bytes than this process's */
    LLVMTargetMachineRef machine;
    LLVMTargetDataRef layout;
    struct held *held;           /* the two */
};
/* The processor at hand; false: an error. */
bool machine_of_host(struct tgc *t, const struct llvm *l, struct llvm_machine *m);
/* What all processors of the triple have (NULL: of this one), and the instruction sets of --cpu;
 * false: an error. */
bool machine_of_triple(struct tgc *t, const struct llvm *l, const char *triple, isa_set isa,
                       bool tiles, struct llvm_machine *m);
/* A processor that is the triple's (NULL: this one's), alone; false: an error. */
bool machine_of_processor(struct tgc *t, const struct llvm *l, const char *triple,
                          const struct processor *p, struct llvm_machine *m);
/* A device's architecture; false: an error. */
bool machine_of_gpu(struct tgc *t, const struct llvm *l, const char *triple, const char *cpu,
                    const char *features, struct llvm_machine *m);
void machine_free(struct llvm_machine *m);

/* Another of the same kind, for another thread. */
LLVMTargetMachineRef machine_again(const struct llvm *l, const struct llvm_machine *m);

/* Optimizes the module and makes code of it; the caller disposes of the buffer. NULL: an error. The
 * values are LLVM's (LLVMCodeGenFileType). */
enum code { CODE_ASSEMBLY, CODE_OBJECT };
LLVMMemoryBufferRef machine_generate(struct tgc *t, const struct llvm *l,
                                     const struct llvm_machine *m, LLVMModuleRef module,
                                     enum code code);
/* The same in any thread. false: *error says why. passes: of machine_passes() */
const char *machine_passes(struct tgc *t, const struct llvm *l);
bool machine_code(const struct llvm *l, const struct llvm_machine *m, LLVMModuleRef module,
                  const char *passes, enum code code, LLVMMemoryBufferRef *to,
                  struct code_error *error);
/* A context's handler: notes an error; user: a struct machine_notes. */
struct machine_notes { const struct llvm *l; struct code_error *error; };
void machine_note(LLVMDiagnosticInfoRef info, void *user);

/* api.c: for as long as the process; NULL: an error says which package is missing. */
struct llvm *llvm_load(struct tgc *t);
const char *llvm_file(const struct llvm *l);                     /* NULL: unknown */
/* fatal.c: where LLVM cannot go on the process ends, after tell(reason). */
void fatal_install(const struct llvm *l, void (*teller)(const char *reason));

/* apart.c: work(l, what, out) in a process of its own, which has libLLVM and copies of what it
 * reads, l->t among them; false: reported there. Meanwhile this one does meanwhile(what), unless it
 * is NULL. false: an error. */
struct llvm_work {
    bool (*work)(struct llvm *l, void *what, struct text *out);
    void (*meanwhile)(void *what);
    void *what;
};
/* by: which LLVM it was. */
struct llvm_result { struct llvm_by by; const char *bytes; size_t nbytes; };
bool llvm_do(struct tgc *t, const struct llvm_work *w, struct llvm_result *r);

/* split.c: the schedule's modules, for this process. */
struct emit *split_emit(struct tgc *t, struct llvm *l, const struct llvm_machine *m,
                        const struct schedule *s, const char *name, int *nmodule);
/* parallel.c: their objects. false: an error. */
bool parallel_generate(struct tgc *t, const struct llvm *l, const struct llvm_machine *m,
                       const struct emit *e, int n, struct code_object *object);

/* gpu_link.c: the object as a code object. version: of LLVM. false: an error. */
bool gpu_link(struct tgc *t, struct llvm_gpu_code *code, int version);

/* Records LLVM's error, which is freed; false. */
bool llvm_failed(struct tgc *t, const struct llvm *l, LLVMErrorRef error, const char *what);
/* A copy of LLVM's message, which is freed. */
const char *llvm_take(struct tgc *t, const struct llvm *l, char *message);

#endif
