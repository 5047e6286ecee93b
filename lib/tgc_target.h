/* tgc_target.h - compiled models as data, for targets outside tgc's own tree: link with -ltgc.
 *
 *      const tgc_program *p;
 *      tgc_target toy = {TGC_TARGET_VERSION, "toy", "add mul max ...", "f32 i32 i64 bool"};
 *      if (tgc_program_open(c, &toy, &p) == TGC_OK)
 *          ... write p->kernel[] and p->step[] in a language of your own ...
 *      tgc_program_free(p);
 *
 * A program is what tgc's own targets write as C or as LLVM's code, after all passes: kernels of
 * scalars for one thread, places of all buffers, the steps of a run. The structs are read only and
 * change with any version of tgc: a library takes only the targets that were compiled with its own
 * header.
 *
 * docs/adding-a-target.md has an example: a target of 150 lines.
 */
#ifndef TGC_TARGET_API_H
#define TGC_TARGET_API_H

#include "tgc.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TGC_TARGET_VERSION TGC_VERSION

/* Words with a blank between them; NULL: all. A model that needs others is an error, which says
 * what for. ops: those of tgc_uop.op that compute, and "if" and "loop" of steps. */
typedef struct tgc_target {
    const char *version;        /* TGC_TARGET_VERSION */
    const char *name;           /* for messages */
    const char *ops, *dtypes;
} tgc_target;

/* ----------------------------------------------------------------------------------------- code */

/* An instruction. Its value is what its last execution before the use computed, and has a position
 * in the code: src[] are positions, all of them earlier.
 *
 *      const                       i, or f if dtype is a float's
 *      var                         the symbol number i
 *      buffer                      the buffer number i: no value
 *      range (n)  ...  end (r)     a loop: the range's value is 0, 1, ... n - 1
 *      guard (b)  ...  endguard (g)    what is between runs only if b is true;
 *      acc (init)                  i elements of the dtype, each of which becomes init;
 *      load (m, at [, valid [, otherwise]])    element `at` of a buffer or an acc. Where not valid
 *                                  there may be no memory, and the value is otherwise, or 0
 *      store (m, at, x [, valid])  of the buffer's dtype
 *
 * All others compute from src[] what ir/ops.def of tgc says of that op. A bool is 0 or 1; an input
 * may hold any byte, of which all but 0 are true. Integers wrap, x / 0 is 0, floats become integers
 * towards zero and within bounds, NaN as 0; the maximum or minimum of NaN and another is NaN. i is
 * 1 where the operands do not need that: there a processor's own instruction does. */
typedef struct tgc_uop {
    const char *op;             /* "add" */
    const char *dtype;          /* of the value: "f32"; of a comparison: "bool"; "void": none */
    int64_t i;
    double f;
    const int *src;
    int nsrc;
} tgc_uop;

typedef struct tgc_code { const tgc_uop *uop; int n; } tgc_code;

/* -------------------------------------------------------------------------------------- program */

typedef enum tgc_place { TGC_IN_ARENA, TGC_IN_WEIGHTS, TGC_IN_INPUT, TGC_IN_OUTPUT } tgc_place;

typedef struct tgc_buffer {
    tgc_place place;
    size_t offset;              /* bytes, in the arena or in the weights: a multiple of 64 */
    int index;                  /* input[index] or output[index] of the program */
    /* an integer: the element of that place at which it begins; no code: 0 */
    tgc_code first;
    const char *dtype;
    size_t element_bytes, nbytes;       /* at most */
} tgc_buffer;

/* An input or an output, in memory of the caller. */
typedef struct tgc_port {
    const char *name;           /* the model's: any text */
    int buffer;
    int rank;
    const int64_t *shape;       /* at most */
    const tgc_code *dim;        /* of a run: integers, by the symbols */
} tgc_port;

/* A size that a run decides, or the counter of a loop of steps. */
typedef struct tgc_symbol {
    const char *name;           /* the model's: any text */
    int64_t min, max;
    int is_counter;             /* 0: the caller gives it */
} tgc_symbol;

typedef struct tgc_kernel {
    const char *name;           /* a C identifier, unique in the program */
    const char *title;          /* the model's nodes: any text, one line */
    tgc_code code;
    const int *buffer;          /* that it uses; the first nwritten are written */
    int nbuffer, nwritten;
    const int *symbol;          /* that it reads */
    int nsymbol;
    double flop;
} tgc_kernel;

typedef enum tgc_step_kind {
    TGC_STEP_KERNEL,
    TGC_STEP_IF, TGC_STEP_ELSE, TGC_STEP_ENDIF,     /* code: a bool; ELSE may be missing */
    /* code of LOOP: how often, computed once; of BREAK_UNLESS: a bool */
    TGC_STEP_LOOP, TGC_STEP_BREAK_UNLESS, TGC_STEP_ENDLOOP
} tgc_step_kind;

typedef struct tgc_step {
    tgc_step_kind kind;
    int kernel;                 /* KERNEL */
    int symbol;                 /* LOOP: the counter, from 0 */
    tgc_code code;              /* its last value */
} tgc_step;

typedef struct tgc_program {
    const char *name;           /* a C identifier */
    const tgc_port *input, *output; int ninput, noutput;
    const tgc_symbol *symbol; int nsymbol;          /* counters last */
    const tgc_buffer *buffer; int nbuffer;
    const tgc_kernel *kernel; int nkernel;
    const tgc_step *step; int nstep;    /* of a run, in order */
    size_t arena_bytes;         /* what a run needs, aligned to 64 bytes */
    size_t weights_bytes;
} tgc_program;

/* The compiler's model. Refused: another version, models that need host functions or C functions of
 * the user's, and the options "target", "cpu", "threads" and "state", which are for tgc's own
 * targets. *p: NULL if it fails. It outlives its compiler. */
TGC_API tgc_status tgc_program_open(tgc_compiler *c, const tgc_target *target,
                                    const tgc_program **p);
TGC_API void tgc_program_free(const tgc_program *p);         /* NULL: nothing */
/* Writes the weights, p->weights_bytes of them; elements are little-endian. */
TGC_API tgc_status tgc_program_weights(const tgc_program *p, void *to);

#ifdef __cplusplus
}
#endif

#endif
