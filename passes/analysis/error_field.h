/* error_field.h - private to error_field.c, error_gain.c and error.c: a network run on a few
 * pixels, and the propagation of errors from its sums to its outputs. error.c says what for. */
#ifndef TGC_ERROR_FIELD_H
#define TGC_ERROR_FIELD_H

#include "passes/passes.h"

/* Pixels sample the large axes of a tensor: rows and columns of an image, the batch. They are a
 * ring: one step along a row is one pixel, one along a column ROW pixels. */
enum { PIXELS = 64, ROW = 8, ENTRIES_MAX = 1 << 16 };

/* The values of one tensor, by entries: an index along each axis kept in full. */
struct store {
    float *x;                    /* [nentry][PIXELS]; uniform: [nentry], equal at all pixels */
    double *gain;                /* [nentry], see pixels_back(); NULL: uniform */
    int64_t nentry;
    bool uniform;
};

/* A tensor as a view of a store. Axes with dim[a] > 1 are in full; along the others one step leads
 * `shift[a]` pixels further, 0 where all elements are equal. */
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
    STEP_OPAQUE                  /* an opaque op */
};
/* How one store is computed from others. */
struct pixel_step {
    enum step_of_pixels kind;
    struct uop *u;
    struct field *in; int nin;
    struct field out;
    /* PICK: the source of each entry and pixel (-1: none), and its entry there */
    int32_t *entry; signed char *which;
};

struct pixels {
    struct tgc *t;
    struct uop **order; int n;
    int *at;                     /* by uop id: index into order[] */
    struct field *field;         /* by index */
    bool *has;  /* by index: it is computed, or it is a product that only sums read */
    struct pixel_step *step; int nstep; size_t cap_step;
    size_t nbytes, most;         /* bytes of stores, and their limit */
    bool full;
};

/* error_field.c */
struct store *pixels_store(struct pixels *p, int64_t nentry, bool uniform);
double pixels_mean_square(const struct store *s);    /* of its elements */
struct pixel_step *pixels_step(struct pixels *p, enum step_of_pixels kind, struct uop *u,
                               const struct field *in, int nin);
/* A pseudo-random number, a hash of two numbers. */
uint32_t pixels_hash(uint32_t a, uint32_t b);
int64_t field_nentry(const struct field *f);
/* PIXELS values of an entry, from a pixel on. */
void field_read(const struct field *f, int64_t entry, int shift, float *v);
/* The entry of the field's element at[..]; *shift: the pixel at which its pixel 0 is read. */
int64_t field_entry(const struct field *f, const int64_t *at, int *shift);
/* Advances to the next coordinates within dim[]; false: there are none. */
bool next_place(int64_t *at, const int64_t *dim, int ndim);
/* The same field with axis a sampled: its pixels are of entries all along it. */
struct field field_blur(struct pixels *p, const struct field *f, int axis);
/* Finds dims that all of in[] can share, except for the axes of `reduced`, and blurs axes until the
 * entries fit. Writes these dims, and the shifts of axes that are sampled in all fields. */
void fields_meet(struct pixels *p, struct field *in, int nin, uint32_t reduced, struct field *out);
/* The field of a movement op. */
struct field field_move(struct pixels *p, struct uop *u);
struct field field_index(struct pixels *p, struct uop *u);
struct field field_stack(struct pixels *p, struct uop *u);

/* error_gain.c: each adds a step; its pixels_..._back() propagates the gains of the results to the
 * operands. */
struct field pixels_each(struct pixels *p, struct uop *u);
void pixels_each_back(const struct pixel_step *s);
struct field pixels_contract(struct pixels *p, struct uop *u);
void pixels_contract_back(const struct pixels *p, const struct pixel_step *s);
struct field pixels_fold(struct pixels *p, struct uop *u);
void pixels_fold_back(const struct pixels *p, const struct pixel_step *s);
/* Of a CONTRACT step: the sum over its results of gain times the sum of the squares of the terms,
 * averaged over the pixels. */
double pixels_contract_terms(const struct pixels *p, const struct pixel_step *s);

#endif
