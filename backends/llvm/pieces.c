/* pieces.c - the functions of runtime/ that work on the host's data (sort, find, strings,
 * trees) as tgc itself has them, for code that is made in this process. Arithmetic is the
 * module's own (piece_code.c). embed (runtime/embed.c) writes the pieces' text, and a list of
 * those that are functions. */
#include "backends/llvm/llvm.h"

#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __GNUC__
#pragma GCC diagnostic ignored "-Wunused-function"
#endif

#include "pieces.inc"

static const struct { const char *name; void (*function)(void); } table[] = {
#define PIECE(name) {#name, (void (*)(void))name},
#include "pieces.inc"
#undef PIECE
};

void (*llvm_piece(const char *name))(void)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strcmp(table[i].name, name) == 0)
            return table[i].function;
    return NULL;
}
