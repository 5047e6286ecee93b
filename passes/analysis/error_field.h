/* error_field.h - private to error_field.c, error_gain.c and error.c: a network run on a few
 * pixels, and how errors come from its sums to its outputs. See error.c for what it is for. */
#ifndef TGC_ERROR_FIELD_H
#define TGC_ERROR_FIELD_H

#include "passes/passes.h"

/* Pixels stand for whatever a tensor is large along: rows and columns of an image, its batch. They
 * are a ring: a step along a row is one pixel, one along a column ROW. */
enum { PIXELS = 64, ROW = 8, ENTRIES_MAX = 1 << 16 };

/* What is known of one tensor's elements, by entries: where the tensor is told apart. */
struct store {
    float *x;                    /* [nentry][PIXELS]; uniform: [nentry], equal at all pixels */
    double *gain;                /* [nentry], see pixels_back(); NULL: uniform */
    int64_t nentry;
    bool uniform;
};

/* A tensor as a view of a store. Along axis a it is told apart where dim[a] > 1; elsewhere one step
 * leads to the pixel `shift[a]` further: 0 where all elements are equal. */
struct field {
    struct store *s;
    int64_t offset, dim[MAX_RANK], stride[MAX_RANK];
    int shift[MAX_RANK], ndim;
};

enum step_of_pixels {
    STEP_PICK,                   /* element by element from in[0 ..] */
    STEP_EACH,                   /* an elementwise op */
    STEP_CONTRACT,               /* a sum of products of in[0] and in[1] */
    STEP_FOLD,                   /* any other reduction */
    STEP_OPAQUE                  /* what is not looked into */
};
/* How one store came from others. */
struct pixel_step {
    enum step_of_pixels kind;
    struct uop *u;
    struct field *in; int nin;
    struct field out;
    /* PICK: of each entry and pixel the source, -1: none, and the entry there */
    int32_t *entry; signed char *which;
};

struct pixels {
    struct tgc *t;
    struct uop **order; int n;
    int *at;                     /* by uop id: index into order[] */
    struct field *field;         /* by index */
    bool *has;                   /* by index: it is computed, or a product inside of a sum alone */
    struct pixel_step *step; int nstep; size_t cap_step;
    size_t nbytes, most;         /* of stores, and what they may take */
    bool full;
};

/* error_field.c */
struct store *pixels_store(struct pixels *p, int64_t nentry, bool uniform);
struct pixel_step *pixels_step(struct pixels *p, enum step_of_pixels kind, struct uop *u,
                               const struct field *in, int nin);
/* A pseudo-random number for a place. */
uint32_t pixels_hash(uint32_t a, uint32_t b);
int64_t field_nentry(const struct field *f);
/* PIXELS values of an entry, from a pixel on. */
void field_read(const struct field *f, int64_t entry, int shift, float *v);
/* The entry, and the pixel that one at 0 is read at, of the field's element at[..]. */
int64_t field_entry(const struct field *f, const int64_t *at, int *shift);
/* The next coordinates within dim[]; false: there are none. */
bool next_place(int64_t *at, const int64_t *dim, int ndim);
/* The same without telling axis a apart: pixels are of entries all along it. */
struct field field_blur(struct pixels *p, const struct field *f, int axis);
/* Makes room for the dims of in[] together, but for the axes of `reduced`: what is too much is
 * blurred. Writes them, and of the axes that no field tells apart the shifts. */
void fields_meet(struct pixels *p, struct field *in, int nin, uint32_t reduced, struct field *out);
/* The field of a movement op. */
struct field field_move(struct pixels *p, struct uop *u);
struct field field_index(struct pixels *p, struct uop *u);

/* error_gain.c: each makes a step, and pixels_..._back() takes the gains of its results back to
 * what it was made of. */
struct field pixels_each(struct pixels *p, struct uop *u);
void pixels_each_back(const struct pixel_step *s);
struct field pixels_contract(struct pixels *p, struct uop *u);
void pixels_contract_back(const struct pixels *p, const struct pixel_step *s);
struct field pixels_fold(struct pixels *p, struct uop *u);
void pixels_fold_back(const struct pixels *p, const struct pixel_step *s);
/* Of a CONTRACT step: over its results, the gain of each by the sum of the squares of its terms,
 * on an average of the pixels. */
double pixels_contract_terms(const struct pixels *p, const struct pixel_step *s);

#endif
