/* bytes.h - values as bytes, for files that this machine alone reads: words of 8 bytes, and texts
 * and data that follow their length. */
#ifndef TGC_LLVM_BYTES_H
#define TGC_LLVM_BYTES_H

#include "ir/ir.h"

void bytes_put(struct text *out, uint64_t v);
void bytes_put_real(struct text *out, double v);
void bytes_put_data(struct text *out, const void *p, size_t nbytes);
void bytes_put_string(struct text *out, const char *s);          /* NULL is kept as that */

/* What is read of damaged bytes is 0, "" or NULL, and is_bad is set. */
struct byte_reader { struct tgc *t; const unsigned char *at, *end; bool is_bad; };
uint64_t bytes_get(struct byte_reader *r);
double bytes_get_real(struct byte_reader *r);
int bytes_get_int(struct byte_reader *r, int least, int most);
/* How many records follow, of `each` bytes at least. */
int bytes_get_count(struct byte_reader *r, size_t each);
const void *bytes_get_data(struct byte_reader *r, size_t *nbytes);        /* in place */
const char *bytes_get_string(struct byte_reader *r);                      /* in t's arena */

#endif
