/* llvm.h - kernels as LLVM's intermediate representation, compiled, and run in this process.
 *
 *      schedule ──kernel.c, run.c──> a module ──jit.c──> code in this process
 *                    │                                     ^
 *                    └ ops.c, convert.c, memory.c, ...     pieces.c: runtime/, that the code calls
 *
 * libLLVM is opened when it is needed (api.c), so tgc needs neither its headers nor the library
 * itself. It works in a process of its own (apart.c), which ends with the compile.
 */
#ifndef TGC_LLVM_H
#define TGC_LLVM_H

#include "backends/backend.h"

/* The version of the libLLVM that is found here, "19.1"; NULL: none of those that are known, or tgc
 * was built without. */
const char *llvm_found(struct tgc *t);

/* "LLVM 19"; the library's file, NULL: unknown. */
struct llvm_by { const char *title, *library; int version; };

/* A schedule as code in this process. The functions are those of every compiled model
 * (backends/program/): what NAME_init, NAME_run and NAME_close do, by the same structs. */
struct llvm_program;
/* weights: where they are put, at a multiple of 64; they are the run's memory, not the compile's.
 * ir: NULL, or receives the module as text. NULL: an error says what cannot be run so. */
struct llvm_program *llvm_compile(struct tgc *t, const struct schedule *s, const char *name,
                                  const char *producer, unsigned char *weights, struct text *ir,
                                  struct llvm_by *by);
const struct program_info *llvm_program_info(const struct llvm_program *p);
int llvm_program_init(const struct llvm_program *p, void **model, void *arena, size_t nbytes,
                      const struct program_run_options *options);
int llvm_program_run(void *model, const void *inputs, void *outputs);
/* For a model with states. */
int llvm_program_reset(void *model);
int llvm_program_save(const void *model, void *block);
int llvm_program_restore(void *model, const void *block);
void llvm_program_close(void *model);
const char *llvm_program_strerror(int status);

/* The instruction sets of a triple (NULL: of this machine) among those that are asked for, with the
 * portable one. tiles: AMX among them, since the code asks the system, Linux, for it (objects with
 * a choice); otherwise the set before stands for it. */
isa_set llvm_isa(const char *triple, isa_set asked, bool tiles);

/* pack.c: a program as bytes, without its weights, which are info->weights_bytes. */
void llvm_program_pack(struct text *out, const struct llvm_program *p);
const void *llvm_program_weights(const struct llvm_program *p);
/* The program of such bytes; they and the weights (at their offsets, aligned to 64 bytes) stay the
 * caller's and are read as long as it is used. Needs no LLVM. NULL: they are damaged. */
struct llvm_program *llvm_program_unpack(struct tgc *t, const void *bytes, size_t nbytes,
                                         const void *weights, size_t weights_nbytes);

/* A schedule as a file: NAME.h's functions with kernels and weights (object.c). */
enum llvm_file { LLVM_FILE_IR, LLVM_FILE_ASM, LLVM_FILE_OBJECT };
struct llvm_request {
    enum llvm_file file;
    const char *name, *producer;
    const char *triple;          /* NULL: of the machine at hand */
    isa_set isa;                 /* of --cpu; 0: all of the triple's */
    const struct processor *processor;     /* the code is for it alone; NULL: for isa */
    enum weights_mode weights;
    const char *const *entry;    /* by entry: "NAME_ENTRY", which its function and structs have */
    const char *listing;         /* debugging information names lines of this file;
                                  * NULL: there is none */
};
/* What it needs of runtime/ beside it: functions that LLVM has none of (program_write_pieces()). */
struct llvm_output {
    struct text code;
    const char *const *piece; int npiece;
    struct text listing;
    bool swapped;                /* of NAME.weights, as in struct byte_sink */
};
/* false: an error says what is missing. */
bool llvm_write(struct tgc *t, const struct schedule *s, const struct llvm_request *r,
                struct llvm_output *out);

/* gpu.c: the kernels of a program for devices (--target=cuda, --target=amd) as code of one
 * architecture:
 *
 *      "sm_80", "sm_90a"       PTX, text that ends with a NUL, which nbytes does not count;
 *      "gfx90a", "gfx1100"     a linked code object (ELF, amdgcn-amd-amdhsa), for
 *                              hipModuleLoadData.
 *
 * The kernels' names, arguments and block sizes are those of the target's own language, so the same
 * host code launches both.
 *
 * needs: p as driver->compile() gets it (p->s, p->name, p->kernel_name, the backend's driver); a
 * libLLVM with the architecture (the newest that knows it); for a code object ld.lld on PATH, no
 * older than LLVM; no device. false: reported, with what is missing. */
struct llvm_gpu_code {
    const unsigned char *bytes; size_t nbytes;
    const char *made_by;         /* "LLVM 19" */
    const char *architecture;    /* that it is for; older LLVM makes PTX for an older
                                  * one than asked for */
};
struct program;
/* ir: NULL, or receives the module as LLVM's text instead. */
bool llvm_gpu_compile(struct program *p, const char *architecture, struct llvm_gpu_code *code,
                      struct text *ir);

/* gpu_link.c: the ld.lld on PATH that links code objects of the libLLVM that there is; NULL: there
 * is none of either. */
const char *gpu_linker_found(struct tgc *t);

/* pieces.c: the function of runtime/ or runtime/host/ of that name; NULL: there is none. */
void (*llvm_piece(const char *name))(void);

#endif
