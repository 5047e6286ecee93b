/* graphs.c - see graphs.h. */
#include "tests/unit/graphs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

int graph_setup(void **state, int rows, const int *columns)
{
    struct fixture *f = calloc(1, sizeof *f);
    f->t = tgc_new(0);
    passes_init(f->t);
    for (int k = 0; k < 2; k++) {
        struct uop *dim[2] = {uop_int(f->t, rows), uop_int(f->t, columns[k])};
        f->input[k] = uop_buffer(f->t, buffer_new(f->t, BUFFER_INPUT, DTYPE_F32, dim, 2,
                                                  k ? "z" : "x"));
    }
    f->g = (struct graph){.ninput = 2, .input = f->input, .noutput = 1, .output = &f->out};
    *state = f;
    return 0;
}

int graph_teardown(void **state)
{
    struct fixture *f = *state;
    tgc_free(f->t);
    free(f);
    return 0;
}

struct uop *graph_run(struct fixture *f, bool (*pass)(struct tgc *, struct graph *),
                      const char *name, struct uop *u)
{
    f->out = (struct graph_output){"y", u};
    if (setjmp(f->t->stop)) {
        for (int i = 0; i < f->t->ndiag; i++)
            print_message("%s\n", f->t->diag[i].message);
        fail();
    }
    assert_true(pass(f->t, &f->g));
    assert_true(graph_verify(f->t, &f->g, name));
    return f->out.value;
}
