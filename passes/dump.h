/* dump.h - private to the driver: what each pass changed, printed for people who debug the
 * compiler, or added to a log for the report. */
#ifndef TGC_DUMP_H
#define TGC_DUMP_H

#include "passes/passes.h"

/* log NULL: prints on standard error. */
struct dump *dump_new(struct tgc *t, struct pass_log *log);
void dump_graph(struct tgc *t, struct dump *d, const struct graph *g, const char *after);
void dump_plan(struct tgc *t, struct dump *d, struct plan *p, const char *after);
void dump_kernel(struct tgc *t, struct dump *d, const struct kernel *k, const char *after);

#endif
