/* SPDX-License-Identifier: 0BSD */
/* language_opencl.c - OpenCL C, which clang reads itself; its built-ins are opencl.cl and
 * builtins.c.
 */
#include "emulator.h"

#include <string.h>

static const struct word word[] = {
    {"kernel", WORD_KERNEL},
    {"__kernel", WORD_KERNEL},
    {"global", WORD_GLOBAL},
    {"__global", WORD_GLOBAL},
    {"constant", WORD_CONSTANT},
    {"__constant", WORD_CONSTANT},
    {"local", WORD_LOCAL},
    {"__local", WORD_LOCAL},
    {"image1d_*", WORD_IMAGE},
    {"image2d_*", WORD_IMAGE},
    {"image3d_*", WORD_IMAGE},
    {"sampler_t", WORD_SAMPLER},
    {"const", WORD_CONST},
    {"read_only", WORD_CONST},
    {"__read_only", WORD_CONST},
    {"restrict", WORD_SKIP},
    {"reqd_work_group_size", WORD_BLOCK},
    {NULL, WORD_SKIP},
};

/* Declares the kernel again, by another name, as a function that takes images and samplers as
 * pointers, which is what they are: no variable can have their types. */
static void wrap(const struct signature *s, struct text *out)
{
    text_add(out, "\nconstant ulong %s_nbytes[] = {", s->name);
    for (int i = 0; i < s->n; i++)
        text_add(out, s->parameter[i].kind >= PARAMETER_IMAGE ? "8, " : "sizeof(%s), ",
                 s->parameter[i].type);
    text_add(out, "0};\n__asm__(\".set %s_again, %s\");\nvoid %s_again(", s->name, s->name,
             s->name);
    for (int i = 0; i < s->n; i++)
        text_add(out, "%s%s", i ? ", " : "",
                 s->parameter[i].kind >= PARAMETER_IMAGE ? "global void *" : s->parameter[i].type);
    text_add(
        out,
        ");\n__attribute__((no_sanitize(\"address\"))) void %s_call(void **a)\n{\n    %s_again(",
        s->name, s->name);
    for (int i = 0; i < s->n; i++)
        text_add(out, "%s*(%s *)a[%d]", i ? ", " : "",
                 s->parameter[i].kind >= PARAMETER_IMAGE ? "global void *" : s->parameter[i].type,
                 i);
    text_add(out, ");\n}\n");
}

const struct language language_opencl = {"OpenCL C", "opencl", word, wrap, NULL};
