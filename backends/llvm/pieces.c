/* pieces.c - the functions of runtime/ as tgc itself has them: code that is made in this process
 * calls them, so nothing of runtime/ is written a second time. embed (runtime/embed.c) writes the
 * pieces' text, and a list of those that are functions. */
#include "backends/llvm/llvm.h"

#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __GNUC__
#pragma GCC diagnostic ignored "-Wunused-function"
#endif
#if defined __x86_64__ && defined __GNUC__
#include <immintrin.h>
#endif

#include "pieces.inc"
#if defined __x86_64__ && defined __GNUC__
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wpsabi"
#endif
#include "pieces_x86.inc"
#endif

static const struct { const char *name; void (*function)(void); } table[] = {
#define PIECE(name) {#name, (void (*)(void))name},
#include "pieces.inc"
#if defined __x86_64__ && defined __GNUC__
#include "pieces_x86.inc"
#endif
#undef PIECE
};

void (*llvm_piece(const char *name))(void)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strcmp(table[i].name, name) == 0)
            return table[i].function;
    return NULL;
}
