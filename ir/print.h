/* print.h - what print.c and print_kernel.c share; private to ir/. */
#ifndef TGC_PRINT_H
#define TGC_PRINT_H

#include "ir/ir.h"

/* escaped, for between quotes */
void print_name(struct text *out, const char *s);
/* a CONST's value, without its dtype */
void print_const(struct text *out, const struct uop *u);
/* %weight12 */
void print_buffer(struct text *out, const struct buffer *b);
/* "weight" */
const char *buffer_kind_name(enum buffer_kind k);

#endif
