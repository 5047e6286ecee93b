/* stack.h - shared by four files. stack.c bounds a kernel's stack, vectorized.c the part that
 * compilers add by vectorization. unroll.c finds the loops that would spill if they were unrolled.
 * registers.c estimates the registers of a device's thread. */
#ifndef TGC_STACK_H
#define TGC_STACK_H

#include "passes/passes.h"

enum {
    STACK_CALL_VECTORS = 3, /* of a function next to others in one block: they are interleaved */
    STACK_UNROLLED_TRIPS = 16,  /* of a loop that compilers unroll completely */
    STACK_ARRAY_UNROLLED = 256, /* bytes of the largest array over which loops are unrolled */
    STACK_WORD = 8
};

/* Positions in the program; loops and guards are named by their opener's position. */
struct stack {
    struct tgc *t;
    struct uop *const *u;
    int n;
    int *parent, *close;
    struct uop_map at; /* uop -> position + 1 */
};

/* What is live at once in a program of vectors, in bytes. */
struct stack_live {
    int64_t vectors; /* the program's values */
    int64_t widest;  /* a vector */
    int64_t locals;  /* small scratch */
    int peak;        /* where most of the values are live */
    bool copies;     /* there are no sums */
    bool stages;     /* there is scratch, between stages */
};

void stack_find_loops(struct stack *s);
/* By position the last one at which its value is live, on the scratch stack. needs:
 * stack_find_loops(), an empty `at` */
int *stack_find_ends(struct stack *s);
bool stack_is_closer(const struct uop *u); /* the end of a loop or a guard */
int stack_around(const struct stack *s, int at); /* the loop around it; -1: none */
int64_t stack_array_nbytes(const struct uop *u); /* of an accumulator with lanes; 0: none */
int64_t stack_value_nbytes(const struct uop *u);
/* Whether u is in a processor's tile registers. On devices only loads are tiles. */
bool stack_is_tile(const struct tgc *t, const struct uop *u);
/* 0: the program is portable */
int64_t stack_widest_vector(const struct tgc *t, struct uop *const *u, int n);
bool stack_is_dot(const struct uop *u);  /* products of bytes, four for each lane */
bool stack_is_function(enum isa isa, const struct uop *u); /* of vectors, inlined */
/* Constants of the functions that the program calls, as vectors. needs: stack_find_loops() */
int64_t stack_constants_nbytes(const struct stack *s, enum isa isa, int64_t widest);
/* Bytes of a program of vectors, besides its scalars. needs: stack_find_loops() */
int64_t stack_vectors_nbytes(const struct stack *s, enum isa isa, const struct stack_live *live);
/* Bytes of a portable program that compilers vectorize, besides its scalars. needs:
 * stack_find_loops() */
int64_t stack_vectorized_nbytes(const struct stack *s);

#endif
