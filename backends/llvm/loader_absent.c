/* loader_absent.c - instead of loader.c, where objects are not ELF or the processor's relocations
 * are not known. */
#include "backends/llvm/loader.h"

#include <stdio.h>

struct loaded_code *code_link(const struct code_object *object, int n,
                              const struct code_outside *outside, struct code_error *error)
{
    (void)object;
    (void)n;
    (void)outside;
    snprintf(error->text, sizeof error->text,
             "code can be loaded on x86-64 and AArch64 with ELF alone; --target=c runs the model");
    return NULL;
}

uint64_t code_find(const struct loaded_code *c, const char *name)
{
    (void)c;
    (void)name;
    return 0;
}

void code_each_function(const struct loaded_code *c,
                        void (*call)(void *user, const char *name, uint64_t address,
                                     uint64_t nbytes),
                        void *user)
{
    (void)c;
    (void)call;
    (void)user;
}

const struct code_object *code_images(const struct loaded_code *c, int *n)
{
    (void)c;
    *n = 0;
    return NULL;
}

void code_free(struct loaded_code *c) { (void)c; }
