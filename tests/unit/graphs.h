/* graphs.h - what tests of one graph pass share: a graph of one output, and the pass run on it. */
#ifndef TGC_TEST_GRAPHS_H
#define TGC_TEST_GRAPHS_H

#include "passes/passes.h"

struct fixture {
    struct tgc *t;
    struct uop *input[2];        /* matrices of f32 */
    struct graph g;
    struct graph_output out;
};

/* A graph of two inputs with these rows and columns, as *state. */
int graph_setup(void **state, int rows, const int *columns);
int graph_teardown(void **state);
/* The output after the pass, which was u before. */
struct uop *graph_run(struct fixture *f, bool (*pass)(struct tgc *, struct graph *),
                      const char *name, struct uop *u);

#endif
