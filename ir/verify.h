/* verify.h - what verify.c, verify_linear.c and verify_kernel.c share; private to ir/. */
#ifndef TGC_VERIFY_H
#define TGC_VERIFY_H

#include "ir/ir.h"

/* found: NULL, or where a violation is written before it goes back to the caller; else it is a bug
 * of the pass `after`. */
struct verifier {
    struct tgc *t;
    const char *after;
    struct violation *found;
    jmp_buf *back;
};
_Noreturn void verify_violation(const struct verifier *v, const struct uop *u, const char *what);
static inline void require(const struct verifier *v, const struct uop *u, bool ok, const char *what)
{
    if (!ok)
        verify_violation(v, u, what);
}
/* Operands' and result's dtypes of an elementwise op. */
void verify_elementwise(const struct verifier *v, const struct uop *u);
/* Operands' and result's dtypes of a STACK. */
void verify_stack(const struct verifier *v, const struct uop *u);
/* TICKET: its counters, the range whose iterations count, and memory that all of them share. */
void verify_ticket(const struct verifier *v, const struct uop *u);
void verify_bounds(const struct verifier *v, const struct uop *u);
bool verify_is_reduction(enum op op);
bool verify_is_size(const struct uop *u); /* an i64 scalar */

#endif
