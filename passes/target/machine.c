/* machine.c - the rows of machines.def. */
#include "passes/target/target.h"

#include <string.h>

static const struct machine rows[] = {
#define MACHINE(name, text, title, processors, ...) {text, title, processors, __VA_ARGS__},
#include "passes/target/machines.def"
#undef MACHINE
};

const struct machine *machine_rows(int *n)
{
    *n = sizeof rows / sizeof *rows;
    return rows;
}

const struct machine *machine_find(const char *text)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].text, text) == 0)
            return &rows[i];
    return NULL;
}

const struct machine *machine_of(const struct tgc *t) { return t->machine ? t->machine : rows; }

const struct machine *machine_with_thrift(struct tgc *t, const struct machine *m, double thrift)
{
    struct machine *own = mem_copy(t, m ? m : rows, sizeof *m);
    own->thrift = thrift;
    return own;
}

const struct machine *machine_with_l2(struct tgc *t, const struct machine *m, size_t nbytes)
{
    struct machine *own = mem_copy(t, m, sizeof *m);
    own->level[LEVEL_L2].nbytes = (double)nbytes;
    return own;
}

int64_t machine_way_nbytes(const struct machine *m, enum memory_level level)
{
    return (int64_t)(m->level[level].nbytes / m->level[level].ways);
}
