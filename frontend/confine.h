/* confine.h - opens files that a model names, without trusting the model about where they are. */
#ifndef TGC_CONFINE_H
#define TGC_CONFINE_H

#include "ir/ir.h"

/* A mapped file. An empty one: base NULL. stored: the bytes that are no holes, of a file of very
 * many holes those of its beginning. */
struct confined { void *base; size_t nbytes, stored; };
/* Maps the regular file `location`, a relative path beneath `directory`, read-only and private. No
 * "..", no further hard links, and no symbolic links, but for one into the directory where the file
 * `model` really is (NULL: none): a cache keeps both there, and links to them. false: a diagnostic
 * at `at`. */
bool confine_map(struct tgc *t, const struct place *at, const char *directory, const char *location,
                 const char *model, struct confined *file);
/* The bytes of an open file of nbytes that are no holes, of very many holes those before; all where
 * the file system does not say. */
size_t confine_stored(int fd, size_t nbytes);
/* The directory part of a path, "." if it has none. */
const char *confine_directory(struct tgc *t, const char *path);

#endif
