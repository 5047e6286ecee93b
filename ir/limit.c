/* limit.c - TGC_OPT_LIMIT=N: only the first N steps of optimization are made.
 *
 * A step is an optional pass over one graph or kernel, or one list of opts on a kernel's loops.
 * Any number of first steps gives a right program, so bisection over N finds the step after which a
 * program is wrong (tgc verify --bisect).
 */
#include "ir/ir.h"

#include <stdarg.h>

void limit_set(struct tgc *t, long most)
{
    t->limit = MEM_NEW(t, struct opt_limit);
    *t->limit = (struct opt_limit){.most = most, .last = "none", .next = "none"};
}

bool limit_takes(struct tgc *t, const char *format, ...)
{
    struct opt_limit *l = t->limit;
    if (!l)
        return true;
    long number = ++l->n;
    if (number == l->most || number == l->most + 1) {
        va_list args;
        va_start(args, format);
        const char *text = mem_vprintf(t, format, args);
        va_end(args);
        *(number == l->most ? &l->last : &l->next) = text;
    }
    return number <= l->most;
}
