/* digest.h - hashes that name what the cache holds, and guard it. */
#ifndef TGC_DIGEST_H
#define TGC_DIGEST_H

#include <stddef.h>
#include <stdint.h>

enum { DIGEST_NBYTES = 32, CHUNK_NWORD = 512, KEY_NWORD = CHUNK_NWORD + 2 };

struct sha256 { uint32_t h[8]; unsigned char block[64]; size_t n; uint64_t total; };
struct digest_key { uint64_t word[KEY_NWORD]; };
struct digest { const struct digest_key *key; struct sha256 sha; };

/* SHA-256 of bytes. */
void digest_sha256(const void *data, size_t nbytes, unsigned char out[DIGEST_NBYTES]);
/* Of a secret, which has to be random where others may choose what is hashed. */
void digest_key(struct digest_key *key, const void *secret, size_t nbytes);
/* The key stays the caller's. */
void digest_begin(struct digest *d, const struct digest_key *key);
/* Each is an item: its length counts, too. */
void digest_add(struct digest *d, const void *data, size_t nbytes);
void digest_add_string(struct digest *d, const char *s);         /* NULL differs from "" */
void digest_add_number(struct digest *d, uint64_t v);
void digest_end(struct digest *d, unsigned char out[DIGEST_NBYTES]);

#endif
