/* stack.h - shared by stack.c, which bounds a kernel's stack, and unroll.c, which finds the loops
 * that would spill if they were unrolled. */
#ifndef TGC_STACK_H
#define TGC_STACK_H

#include "passes/passes.h"

enum {
    STACK_CALL_VECTORS = 3 /* of a function next to others in one block: they are interleaved */
};

/* Positions in the program; loops and guards are named by their opener's position. */
struct stack {
    struct tgc *t;
    struct uop *const *u;
    int n;
    int *parent, *close;
    struct uop_map at; /* uop -> position + 1 */
};

void stack_find_loops(struct stack *s);
int stack_around(const struct stack *s, int at); /* the loop around it; -1: none */
int64_t stack_array_nbytes(const struct uop *u); /* of an accumulator with lanes; 0: none */
int64_t stack_value_nbytes(const struct uop *u);
int64_t stack_widest_vector(struct uop *const *u, int n);  /* 0: the program is portable */
bool stack_is_function(enum isa isa, const struct uop *u); /* of vectors, inlined */
/* Of the functions that the program calls, as vectors. needs: stack_find_loops() */
int64_t stack_constants_nbytes(const struct stack *s, enum isa isa, int64_t widest);

#endif
