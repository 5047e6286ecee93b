/* absent.c - instead of the other files, where tgc is built without the LLVM target
 * (-Dllvm=disabled). */
#include "backends/llvm/llvm.h"
#include "backends/program/program.h"

const char *llvm_found(struct tgc *t)
{
    (void)t;
    return NULL;
}

static bool absent(struct tgc *t)
{
    return diag_error(t, NULL,
                      "this tgc was built without the LLVM target (meson -Dllvm=disabled)");
}

struct llvm_program *llvm_compile(struct tgc *t, const struct schedule *s, const char *name,
                                  const char *producer, unsigned char *weights, struct text *ir,
                                  struct llvm_by *by)
{
    (void)s;
    (void)name;
    (void)producer;
    (void)weights;
    (void)ir;
    (void)by;
    absent(t);
    return NULL;
}

isa_set llvm_isa(const char *triple, isa_set asked, bool tiles)
{
    (void)triple;
    (void)tiles;
    return asked;
}

bool llvm_write(struct tgc *t, const struct schedule *s, const struct llvm_request *r,
                struct llvm_output *out)
{
    (void)s;
    (void)r;
    (void)out;
    return absent(t);
}

bool llvm_gpu_compile(struct program *p, const char *architecture, struct llvm_gpu_code *code,
                      struct text *ir)
{
    (void)code;
    (void)ir;
    return diag_error(
        p->t, NULL, "%s needs LLVM here, and this tgc was built without it (meson -Dllvm=disabled)",
        architecture);
}

const struct program_info *llvm_program_info(const struct llvm_program *p)
{
    (void)p;
    return NULL;
}

int llvm_program_init(const struct llvm_program *p, void **model, void *arena, size_t nbytes,
                      const struct program_run_options *options)
{
    (void)p;
    (void)model;
    (void)arena;
    (void)nbytes;
    (void)options;
    return PROGRAM_NOT_INITIALIZED;
}

int llvm_program_run(void *model, const void *inputs, void *outputs)
{
    (void)model;
    (void)inputs;
    (void)outputs;
    return PROGRAM_NOT_INITIALIZED;
}

int llvm_program_reset(void *model)
{
    (void)model;
    return PROGRAM_NOT_INITIALIZED;
}

int llvm_program_save(const void *model, void *block)
{
    (void)model;
    (void)block;
    return PROGRAM_NOT_INITIALIZED;
}

int llvm_program_restore(void *model, const void *block)
{
    (void)model;
    (void)block;
    return PROGRAM_NOT_INITIALIZED;
}

void llvm_program_close(void *model) { (void)model; }

const char *llvm_program_strerror(int status)
{
    (void)status;
    return "the LLVM target is not in this tgc";
}

void llvm_program_pack(struct text *out, const struct llvm_program *p)
{
    (void)out;
    (void)p;
}

const void *llvm_program_weights(const struct llvm_program *p)
{
    (void)p;
    return NULL;
}

struct llvm_program *llvm_program_unpack(struct tgc *t, const void *bytes, size_t nbytes,
                                         const void *weights, size_t weights_nbytes)
{
    (void)t;
    (void)bytes;
    (void)nbytes;
    (void)weights;
    (void)weights_nbytes;
    return NULL;
}
