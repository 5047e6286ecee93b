/* quantization.c - the scale and the zero point of an input that the model dequantizes first, or of
 * an output that it quantizes last, if they are one value for the whole tensor:
 *
 *      input    (x - zero) * scale
 *      output   cast(min(max(round(y / scale) + zero, least), most))
 *
 * The header has them as macros, since whoever fills the tensor needs them. They are found before
 * any pass: later the tensor may be an index into a table.
 */
#include "passes/analysis/quantization.h"

#include <math.h>

/* What the elements are, wherever they lie and whatever type holds them. */
static const struct uop *bare(const struct uop *u)
{
    while (u->op == OP_RESHAPE || u->op == OP_PERMUTE || u->op == OP_EXPAND || u->op == OP_CAST)
        u = u->src[0];
    return u;
}

/* Whether it is one known value. */
static bool read_value(const struct uop *u, double *v)
{
    u = bare(u);
    const struct buffer *b = u->op == OP_BUFFER ? u->arg.p : NULL;
    union scalar is = {0};
    if (u->op == OP_CONST)
        is.i = u->arg.i;
    else if (b && b->kind == BUFFER_WEIGHT && b->weight.data && !b->storage &&
             b->nbytes == dtype_nbytes(b->dtype))
        is = scalar_load(b->dtype, b->weight.data);
    else
        return false;
    bool real = dtype_is_float(u->dtype);
    *v = u->op == OP_CONST ? (real ? u->arg.f : (double)u->arg.i) : real ? is.f : (double)is.i;
    return true;
}

/* x of x + v or x - v, for a known v; u itself, if it is neither. */
static const struct uop *without_offset(const struct uop *u, double *offset)
{
    double v;
    u = bare(u);
    for (int k = 0; k < 2; k++)
        if ((u->op == OP_ADD || (u->op == OP_SUB && k == 0)) && read_value(u->src[1 - k], &v)) {
            *offset = u->op == OP_SUB ? -v : v;
            return bare(u->src[k]);
        }
    return u;
}

/* false: no integer of 32 bits is the zero point. */
static bool set(struct quantization *s, double scale, double zero)
{
    bool ok = zero >= INT32_MIN && zero <= INT32_MAX && zero == rint(zero);
    *s = (struct quantization){.scale = scale, .zero = ok ? (int64_t)zero : 0};
    return ok;
}

/* Of the product u, if it is what the input x stands for. */
static bool read_product(const struct uop *u, const struct uop *x, struct quantization *s)
{
    for (int k = 0; u->op == OP_MUL && k < 2; k++) {
        double offset = 0, scale;
        if (!read_value(u->src[1 - k], &scale) || without_offset(u->src[k], &offset) != x)
            continue;
        return set(s, scale, -offset);
    }
    return false;
}

static bool scales_are_equal(const struct quantization *a, const struct quantization *b)
{
    return a->scale == b->scale && a->zero == b->zero;
}

static bool scale_of_input(struct uop *const *u, int n, const struct uop *x,
                           struct quantization *s)
{
    int found = 0;
    for (int i = 0; i < n && found >= 0; i++) {
        struct quantization other;
        if (!read_product(u[i], x, &other))
            continue;
        found = found && !scales_are_equal(&other, s) ? -1 : 1;
        *s = other;
    }
    return found > 0;
}

static bool scale_of_output(const struct uop *y, struct quantization *s)
{
    double offset = 0, v;
    const struct uop *u = bare(y);
    while ((u->op == OP_MIN || u->op == OP_MAX) && read_value(u->src[1], &v))
        u = bare(u->src[0]);
    u = without_offset(u, &offset);
    if (u->op != OP_ROUND)
        return false;
    u = bare(u->src[0]);
    if ((u->op != OP_DIV && u->op != OP_MUL) || !read_value(u->src[1], &v))
        return false;
    return set(s, u->op == OP_DIV ? v : 1 / v, offset);
}

static bool is_small(enum dtype d) { return dtype_is_int(d) && dtype_bits(d) <= 16; }

static const struct quantization *keep(struct tgc *t, bool found, const struct quantization *s)
{
    return found && s->scale > 0 && isfinite(s->scale) ? mem_copy(t, s, sizeof *s) : NULL;
}

void quantization_find(struct tgc *t, struct graph *g)
{
    struct mem_mark mark = scratch_mark(t);
    int nroot, n;
    struct uop **root = graph_roots(t, g, &nroot), **u = uop_toposort(t, root, nroot, &n);
    for (int i = 0; i < g->ninput; i++) {
        struct buffer *b = (struct buffer *)(uintptr_t)g->input[i]->arg.p;
        struct quantization s;
        b->port.quantization =
            keep(t, is_small(b->dtype) && scale_of_input(u, n, g->input[i], &s), &s);
    }
    for (int i = 0; i < g->noutput; i++) {
        const struct uop *y = g->output[i].value;
        struct quantization s;
        g->output[i].quantization = keep(t, is_small(y->dtype) && scale_of_output(y, &s), &s);
    }
    scratch_release(t, mark);
}
