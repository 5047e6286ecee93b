/* SPDX-License-Identifier: 0BSD */
/* parts.h - what the files of runtime/ranks have in common, and others do not see. */
#include "runtime/ranks/ranks.h"

//@ ranks_parts ranks_interface
#ifndef RANKS_PARTS_H
#define RANKS_PARTS_H

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#if defined _WIN32 && !defined MODEL_NO_RANKS
#define MODEL_NO_RANKS
#endif

/* Always false. */
#ifdef __GNUC__
__attribute__((format(printf, 2, 3)))
#endif
RANKS_API bool
ranks_fail(struct ranks *r, const char *format, ...);

/* Of a clock that only goes forward. */
RANKS_API double ranks_seconds(void);
/* false: some of n messages are not done when the time is over; r->error names their ranks. */
RANKS_API bool ranks_too_late(struct ranks *r, const struct ranks_message *m, const bool *is_done,
                              int n);

#endif
