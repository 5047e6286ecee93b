/* SPDX-License-Identifier: 0BSD */
/* language.c - the Metal Shading Language, which clang reads as C++ with the words of metal_stdlib.
 * A kernel's parameter is a structure in constant memory, whose fields are pointers and numbers;
 * what a thread asks of its place are parameters, too.
 */
#include "../emulator.h"

#include <string.h>

static const struct word word[] = {
    {"kernel", WORD_KERNEL},
    {"device", WORD_GLOBAL},
    {"threadgroup", WORD_LOCAL},
    {"const", WORD_CONST},
    {"constant", WORD_SKIP},
    {"&", WORD_SKIP},
    {"max_total_threads_per_threadgroup", WORD_BOUND},
    {NULL, WORD_SKIP},
};

/* As builtins.c counts them; -1: the emulator has none such. */
static int place_of(const char *attribute)
{
    static const struct { const char *attribute; int what;
    } place[] = {{"thread_position_in_grid", 0},
                 {"thread_position_in_threadgroup", 2},
                 {"threads_per_threadgroup", 3},
                 {"threadgroup_position_in_grid", 4},
                 {"threadgroups_per_grid", 5}};
    for (size_t i = 0; i < sizeof place / sizeof *place; i++)
        if (strcmp(place[i].attribute, attribute) == 0)
            return place[i].what;
    return -1;
}

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
    text_add(out, "*(%s *)a[0]", s->structure);
    for (int i = 0; i < s->nplace; i++)
        text_add(out, ", emulator_dims(%d)", place_of(s->place[i]));
    text_add(out, ");\n}\n");
}

const struct language language_metal = {.name = "the Metal Shading Language",
                                        .file = "metal/metal",
                                        .word = word,
                                        .wrap = wrap,
                                        .linkage = "extern \"C\" "};
