/* confine.h - opens files that a model names, without trusting the model about where they are. */
#ifndef TGC_CONFINE_H
#define TGC_CONFINE_H

#include "ir/ir.h"

/* Maps the regular file `location`, a plain relative path beneath `directory`, read-only and
 * private. No symbolic links, no "..", no further hard links. An empty file: *base NULL, *nbytes 0.
 * false: a diagnostic at `at`. */
bool confine_map(struct tgc *t, const struct place *at, const char *directory, const char *location,
                 void **base, size_t *nbytes);
/* The directory part of a path, "." if it has none. */
const char *confine_directory(struct tgc *t, const char *path);

#endif
