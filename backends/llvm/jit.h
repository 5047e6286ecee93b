/* jit.h - objects that LLVM has made become a program in this process, now or out of the cache. */
#ifndef TGC_LLVM_JIT_H
#define TGC_LLVM_JIT_H

#include "backends/llvm/loader.h"
#include "backends/llvm/machine.h"

/* A name that the code uses or defines, and its address. */
struct llvm_name { const char *name; uint64_t address; };
/* Links the objects; they use these names, functions of runtime/, and of libc and libm. Finds the
 * functions' addresses. NULL: why says it. */
struct loaded_code *jit_link(const struct code_object *object, int n, const struct llvm_name *name,
                      int nname, struct llvm_name *function, int nfunction, struct code_error *why);

void jit_free(struct loaded_code *c);

/* debugger.c: gdb knows the code's names until it is told to forget them. */
void debugger_tell(const struct loaded_code *c);
void debugger_forget(const struct loaded_code *c);

/* All of it is t's, or its maker's; the code is held by t. */
struct llvm_program {
    struct tgc *t;
    struct program_info info;
    int threads;                 /* the most of a run */
    struct code_object *object; int nobject;
    const void *weights;         /* at their offsets, aligned to 64 bytes */
    struct loaded_code *code;
    int (*run)(void *self, const void *in, void *out);
    /* NULL: the model has no state */
    int (*reset)(void *self);
    int (*save)(const void *self, void *block);
    int (*restore)(void *self, const void *block);
};
/* Bytes of what lies where struct NAME does in an emitted program, at the begin of the arena. */
size_t program_struct_nbytes(void);
/* Makes code of the objects. needs: info, objects and weights */
bool program_link(struct llvm_program *p, struct code_error *why);
/* pack.c: the program of the bytes that the reader has, see llvm_program_unpack(). NULL: why says
 * it. */
struct byte_reader;
struct llvm_program *program_unpack(struct tgc *t, struct byte_reader *r, const void *weights,
                                    struct code_error *why);

#endif
