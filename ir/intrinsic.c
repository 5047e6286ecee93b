/* intrinsic.c - the rows of intrinsics.def: their operands' shapes, and their semantics as tensor
 * graphs.
 *
 * The semantics are a graph like a model's, so all readers of graphs can use it: the interpreter
 * runs an INTRINSIC by it, without knowing the rows.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "ir/ir.h"

/* ------------------------------------------------------------------------------------- meanings */

static struct uop *sum_of_products(struct tgc *t, struct uop *sum, struct uop *a, struct uop *b)
{
    struct uop *products = uop_binary(t, OP_MUL, a, uop_cast(t, sum->dtype, b));
    uint32_t last = 1u << (products->ndim - 1);
    return uop_binary(t, OP_ADD, sum, tensor_sum(t, products, last, false));
}

static struct uop *dot(struct tgc *t, struct uop *const *in)
{
    return sum_of_products(t, in[0], uop_cast(t, DTYPE_I32, in[1]), in[2]);
}

static struct uop *dot_centered(struct tgc *t, struct uop *const *in)
{
    struct uop *middle = uop_consti(t, DTYPE_I32, DOT_MIDDLE);
    struct uop *a = uop_binary(t, OP_SUB, uop_cast(t, DTYPE_I32, in[1]), middle);
    return sum_of_products(t, in[0], a, in[2]);
}

static struct uop *dot_bf16(struct tgc *t, struct uop *const *in)
{
    return sum_of_products(t, in[0], uop_cast(t, DTYPE_F32, in[1]), in[2]);
}

/* Rows and columns as axes of both, the groups and their elements last. */
static struct uop *tile_dot(struct tgc *t, struct uop *const *in)
{
    static const int columns_first[3] = {1, 0, 2};
    struct uop *b = uop_permute(t, in[2], columns_first), *one = uop_int(t, 1);
    struct uop *all[4] = {in[0]->dim[0], in[0]->dim[1], b->dim[1], b->dim[2]};
    struct uop *of_a[4] = {all[0], one, all[2], all[3]}, *of_b[4] = {one, all[1], all[2], all[3]};
    enum dtype d = in[0]->dtype;
    struct uop *a = uop_cast(t, d, uop_expand(t, uop_reshape(t, in[1], of_a, 4), all));
    b = uop_expand(t, uop_reshape(t, b, of_b, 4), all);
    struct uop *products = uop_binary(t, OP_MUL, a, uop_cast(t, d, b));
    return uop_binary(t, OP_ADD, in[0], tensor_sum(t, products, 1u << 2 | 1u << 3, false));
}

static struct uop *lookup(struct tgc *t, struct uop *const *in)
{
    struct uop *least = uop_int(t, dtype_min(in[1]->dtype));
    struct uop *at = uop_binary(t, OP_SUB, uop_cast(t, DTYPE_INDEX, in[1]), least);
    return uop_index(t, in[0], &at);
}

/* x where the axis is `at`; the axis goes, or becomes 1. */
static struct uop *part(struct tgc *t, struct uop *x, int axis, int64_t at, bool keep)
{
    struct uop *begin[MAX_RANK], *size[MAX_RANK];
    for (int a = 0; a < x->ndim; a++) {
        begin[a] = uop_int(t, a == axis ? at : 0);
        size[a] = a == axis ? uop_int(t, 1) : x->dim[a];
    }
    x = uop_shrink(t, x, begin, size);
    return keep ? x : tensor_drop_axes(t, x, 1u << axis);
}

static struct uop *half(struct tgc *t, struct uop *const *in)
{
    return part(t, in[0], 0, 0, false);
}

static struct uop *interleave(struct tgc *t, struct uop *const *in, int64_t odd)
{
    struct uop *x[2] = {part(t, in[0], 1, odd, true), part(t, in[1], 1, odd, true)};
    return uop_concat(t, x, 2, 1);
}

static struct uop *evens(struct tgc *t, struct uop *const *in) { return interleave(t, in, 0); }
static struct uop *odds(struct tgc *t, struct uop *const *in) { return interleave(t, in, 1); }

/* ------------------------------------------------------------------------------------- the rows */

static const struct row {
    const char *name, *params, *shapes;
    struct uop *(*meaning)(struct tgc *t, struct uop *const *in);
} rows[INTRINSIC_COUNT] = {
#define INTRINSIC(name, text, params, shapes, meaning) {text, params, shapes, meaning},
#include "ir/intrinsics.def"
#undef INTRINSIC
};

const char *intrinsic_name(enum intrinsic of) { return rows[of].name; }

bool intrinsic_find(const char *name, enum intrinsic *of)
{
    for (int i = 0; i < INTRINSIC_COUNT; i++)
        if (strcmp(name, rows[i].name) == 0) {
            *of = (enum intrinsic)i;
            return true;
        }
    return false;
}

const char *intrinsic_params(enum intrinsic of) { return rows[of].params; }

/* "u8[n,4]" or "*byte[256]" at s; returns what follows. */
static const char *read_shape(const char *s, int64_t bits, struct intrinsic_shape *shape)
{
    const char *params = rows[INTRINSIC_ROW(bits)].params;
    char name[8] = {0};
    *shape = (struct intrinsic_shape){.lanes = 1, .memory = *s == '*'};
    s += *s == '*';
    size_t n = strcspn(s, "[");
    memcpy(name, s, n < sizeof name ? n : sizeof name - 1);
    shape->byte = strcmp(name, "byte") == 0;
    if (!dtype_parse(name, &shape->dtype))
        shape->dtype = DTYPE_VOID;
    for (s += n + 1; s[-1] != ']'; s++) {
        char *end = (char *)(uintptr_t)s + 1;
        int64_t size = isdigit((unsigned char)*s)
                           ? strtol(s, &end, 10)
                           : INTRINSIC_PARAM(bits, strchr(params, *s) - params);
        shape->dim[shape->ndim++] = size;
        shape->lanes = (int)sat_mul(shape->lanes, size);
        s = end;
    }
    while (*s == ' ' || *s == '-' || *s == '>')    /* strspn() makes a table of what it looks for */
        s++;
    return s;
}

int intrinsic_nsrc(enum intrinsic of)
{
    int n = 0;
    for (const char *s = rows[of].shapes; *s; s++)
        n += *s == '[';
    return n - 1;
}

struct intrinsic_shape intrinsic_shape(int64_t bits, int k)
{
    struct intrinsic_shape shape;
    const char *s = rows[INTRINSIC_ROW(bits)].shapes;
    for (int i = 0; i <= k; i++)
        s = read_shape(s, bits, &shape);
    return shape;
}

struct intrinsic_shape intrinsic_result(int64_t bits)
{
    return intrinsic_shape(bits, intrinsic_nsrc(INTRINSIC_ROW(bits)));
}

struct uop *intrinsic_meaning(struct tgc *t, int64_t bits, struct uop *const *in)
{
    return rows[INTRINSIC_ROW(bits)].meaning(t, in);
}

bool uop_is_intrinsic(const struct uop *u, enum intrinsic of)
{
    return u->op == OP_INTRINSIC && INTRINSIC_ROW(u->arg.i) == of;
}

bool intrinsic_is_of_tiles(enum intrinsic of)
{
    return of == INTRINSIC_TILE_DOT || of == INTRINSIC_TILE_DOT_BF16;
}

int access_lanes(int64_t bits)
{
    return bits == 0       ? 1
           : TILE_IS(bits) ? TILE_ROWS(bits) * TILE_COLUMNS(bits)
                           : VECTOR_LANES(bits);
}

/* Sums have at least two rows: no vector has as many. */
bool uop_is_tile(const struct uop *u)
{
    enum { VECTOR_MAX = 16 };
    switch (u->op) {
    case OP_LOAD: case OP_STORE: return TILE_IS(u->arg.i);
    case OP_INTRINSIC: return intrinsic_is_of_tiles(INTRINSIC_ROW(u->arg.i));
    case OP_ACC: case OP_ASSIGN: case OP_SPLAT:
        return (u->dtype == DTYPE_I32 || u->dtype == DTYPE_F32) && u->lanes > VECTOR_MAX;
    default: return false;
    }
}

const char *uop_op_name(const struct uop *u)
{
    return u->op == OP_INTRINSIC ? intrinsic_name(INTRINSIC_ROW(u->arg.i)) : op_name(u->op);
}
