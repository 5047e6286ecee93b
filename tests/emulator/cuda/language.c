/* SPDX-License-Identifier: 0BSD */
/* language.c - CUDA C and HIP C, which clang reads as C++ with the words of cuda.h and amd/amd.h.
 */
#include "../emulator.h"

static const struct word word[] = {
    {"__global__", WORD_KERNEL},
    {"const", WORD_CONST},
    {"__restrict__", WORD_SKIP},
    {"__grid_constant__", WORD_SKIP},
    {"__launch_bounds__", WORD_BOUND},
    {"__cluster_dims__", WORD_CLUSTER},
    {NULL, WORD_SKIP},
};

static void wrap(const struct signature *s, struct text *out)
{
    text_add(out, "\nextern \"C\" const uint64_t %s_nbytes[];\nconst uint64_t %s_nbytes[] = {",
             s->name, s->name);
    for (int i = 0; i < s->n; i++)
        text_add(out, "sizeof(%s), ", s->parameter[i].type);
    text_add(out,
             "0};\nextern \"C\" __attribute__((no_sanitize(\"address\"))) void %s_call(void "
             "**a)\n{\n    %s(",
             s->name, s->name);
    for (int i = 0; i < s->n; i++)
        text_add(out, "%s*(%s *)a[%d]", i ? ", " : "", s->parameter[i].type, i);
    text_add(out, ");\n}\n");
}

const struct language language_cuda = {"CUDA C", "cuda/cuda", word, wrap, NULL};
const struct language language_hip = {"HIP C", "amd/amd", word, wrap, NULL};
