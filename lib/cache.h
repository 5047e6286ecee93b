/* cache.h - the directory where compiled models are kept. */
#ifndef TGC_CACHE_H
#define TGC_CACHE_H

#include "ir/ir.h"
#include "lib/digest.h"

/* In $XDG_CACHE_HOME/tgc or ~/.cache/tgc, which only its owner can read. NULL: *why says why there
 * is none; nothing else happens. */
struct cache;
struct cache *cache_open(struct tgc *t, const char **why);
void cache_close(struct cache *c);
const char *cache_path(const struct cache *c);
/* For hashes of what is kept here: nobody else knows it. */
const struct digest_key *cache_digest_key(const struct cache *c);

/* A file: a name (of letters, digits and a dot), a head, and a tail that begins at a page. */
struct cache_file {
    const unsigned char *head, *tail; size_t head_nbytes, tail_nbytes;
    void *map; size_t map_nbytes;
};
/* Maps it; false: it is not there, or it is damaged. It counts as used now. */
bool cache_read(struct cache *c, const char *name, struct cache_file *f);
void cache_unmap(struct cache_file *f);
/* Writes it, in place of an older one; whoever reads that meanwhile goes on. What was used longest
 * ago goes, to keep the limit of all. false: it could not be, and nothing has changed. */
bool cache_write(struct cache *c, const char *name, const struct text *head, const void *tail,
                 size_t tail_nbytes);

struct cache_size { int nfile; uint64_t nbytes; };
struct cache_size cache_measure(struct cache *c);
/* Removes all that tgc has written there, whether it is whole or not; folders stay. false: *why
 * says what cannot be removed. */
bool cache_clear(struct tgc *t, const char **why);

/* cache_folder.c: folders in there, NAME or NAME/NAME, that another program fills. Each returns the
 * real path, or NULL: *why says why others could have changed what is in it, or that it is not as
 * it was sealed. The seal covers names and contents of its files, by the directory's secret. */
const char *cache_folder_make(struct cache *c, const char *name, const char **why);
const char *cache_folder_seal(struct cache *c, const char *name, const char **why);
const char *cache_folder_check(struct cache *c, const char *name, const char **why);

/* For cache_folder.c. NULL: nobody but the owner can change it. */
struct stat;
const char *cache_refuse(struct tgc *t, const struct stat *st, const char *path);
int cache_fd(const struct cache *c);
struct tgc *cache_owner(const struct cache *c);

#endif
