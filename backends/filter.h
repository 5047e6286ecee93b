/* filter.h - a program that reads its standard input and writes its standard output. */
#ifndef TGC_FILTER_H
#define TGC_FILTER_H

#include "ir/ir.h"

/* What a program gave: its exit status, or 128 and the signal; its output, and what it said on
 * standard error. */
struct filtered { int status; struct text out, said; };
/* Runs it, found on PATH, with its words, up to NULL. Files without names are between: nothing is
 * left behind. false: reported, it was not started. */
bool filter_run(struct tgc *t, const char *const *word, const void *in, size_t nbytes,
                struct filtered *f);

#endif
