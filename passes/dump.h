/* dump.h - private to the driver: prints what each pass changed, for people who debug the
 * compiler. */
#ifndef TGC_DUMP_H
#define TGC_DUMP_H

#include "passes/passes.h"

struct dump *dump_new(struct tgc *t);
void dump_graph(struct tgc *t, struct dump *d, const struct graph *g, const char *after);
void dump_plan(struct tgc *t, struct dump *d, struct plan *p, const char *after);
void dump_kernel(struct tgc *t, struct dump *d, const struct kernel *k, const char *after);

#endif
