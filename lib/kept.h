/* kept.h - compiled models are found again: the private header of kept.c and identity.c. */
#ifndef TGC_KEPT_H
#define TGC_KEPT_H

#include "lib/cache.h"
#include "lib/lib.h"

/* Adds a file's contents; false: it cannot be read. */
bool identity_add_file(struct digest *d, const char *path);
/* Adds this tgc, this processor, and what decides which libLLVM is found. false: tgc's own file
 * cannot be read. */
bool identity_add(struct digest *d);
/* Adds the version of the libLLVM in that file. */
void identity_add_library(struct digest *d, const char *path);

#endif
