/* regex.h - regular expressions as programs for runtime/host/regex.c. */
#ifndef TGC_REGEX_H
#define TGC_REGEX_H

#include "ir/ir.h"

struct regex {
    struct tgc *t;
    int32_t *code; int ncode;      /* [ncode][3]: operation, a, b; see runtime/host/regex.c */
    int32_t *range; int nrange;    /* [nrange][2]: first and last character */
    size_t cap_code, cap_range;
    const char *error; int where;  /* why it was refused, and at which byte */
};
/* The part of RE2's syntax that says whether a whole string matches: no flags, no Unicode classes.
 * false: error and where say why. */
bool regex_compile(struct regex *r, const char *pattern);

#endif
