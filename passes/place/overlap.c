/* overlap.c - how far a kernel's result may overlap a dying input.
 *
 *      in   |--------------------------------|       a pooling: row y of the result reads rows
 *      out |--------|                                2y and on of the input, so what iteration y
 *           ^ below                                  stores is below what is read from then on
 *
 * Stores trail loads, then the two share most of their memory: diagonal memory optimisation, as
 * Blacker, Bridges and Hadfield describe it (arXiv:2010.01668). It is decided on the linear
 * programs that run, the portable one and all variants, by the iterations of their outermost loops:
 * what an iteration stores must be below what it and all later ones load. Offsets are a multiple of
 * the loop counter plus a bounded rest; where they are not of that form, the bounds over all
 * iterations are taken.
 *
 * A kernel whose outermost loops count down is the mirror image: its result must begin at or above
 * some place within the input or below it, and may end far after it.
 */
#include "passes/place/memory.h"
#include "passes/passes.h"
#include "passes/analysis/access.h"

#include <math.h>

/* Loads or stores of one buffer at one uop: bytes [lo, hi) in iteration 0 of the outermost loop,
 * moved by `step` in each later one. */
struct touch {
    int loop;
    double iterations, step, lo, hi;
};

struct touches { struct touch *load, *store; int nload, nstore; size_t cap_load, cap_store; };

/* The extent of a vector in elements, from the offset: [lo, hi). */
static void vector_extent(const struct uop *u, double *lo, double *hi)
{
    int64_t bits = u->arg.i;
    if (TILE_IS(bits)) {
        *lo = 0;
        *hi = (double)((TILE_ROWS(bits) - 1) * TILE_STRIDE(bits) + TILE_COLUMNS(bits));
        return;
    }
    double lanes = VECTOR_LANES(u->arg.i), step = (double)VECTOR_STRIDE(u->arg.i), last;
    if (lanes == 0)
        lanes = 1;
    if (VECTOR_IS_GROUPS(u->arg.i))
        lanes *= DOT_BYTES;
    last = (lanes - 1) * step;
    *lo = last < 0 ? last : 0;
    *hi = (last < 0 ? 0 : last) + 1;
    if (VECTOR_IS_GROUPS(u->arg.i)) {  /* a group's bytes are strided, the groups are contiguous */
        double all = DOT_BYTES * (step < 0 ? -step : step) + lanes;
        *lo -= all, *hi += all;
    }
}

static struct touch touch_of(struct tgc *t, const struct uop *u, struct uop *loop, int nloop)
{
    struct uop *offset = u->src[1];
    double size = (double)dtype_nbytes(uop_buffer_of(u->src[0])->dtype), lo, hi;
    int64_t step = 0;
    vector_extent(u, &lo, &hi);
    if (loop && uop_depends_on(t, offset, loop) && index_stride(t, offset, loop, &step) &&
        step >= 0)
        offset = uop_substitute(t, offset, loop, uop_int(t, 0));
    else
        step = 0;
    return (struct touch){nloop, loop ? (double)loop->src[0]->vmax : 1, (double)step * size,
                          ((double)offset->vmin + lo) * size, ((double)offset->vmax + hi) * size};
}

/* Everything that a linear program loads of `in` and stores to `out`. */
static void find_touches(struct tgc *t, struct uop *const *u, int n, const struct buffer *out,
                         const struct buffer *in, struct touches *f)
{
    struct uop *outer = NULL;
    int depth = 0, nloop = 0;
    for (int i = 0; i < n; i++) {
        if (u[i]->op == OP_RANGE && depth++ == 0)
            outer = u[i], nloop++;
        if (u[i]->op == OP_END && --depth == 0)
            outer = NULL, nloop++;
        if (u[i]->op == OP_GATHER && uop_buffer_of(u[i]->src[0]) == in) {
            struct touch all = {nloop, outer ? (double)outer->src[0]->vmax : 1, 0, 0,
                                (double)in->nbytes};
            SCRATCH_PUSH(t, f->load, f->nload, f->cap_load, all);
        }
        if (u[i]->op != OP_LOAD && u[i]->op != OP_STORE)
            continue;
        const struct buffer *b = uop_buffer_of(u[i]->src[0]);
        if (u[i]->op == OP_LOAD && b == in)
            SCRATCH_PUSH(t, f->load, f->nload, f->cap_load, touch_of(t, u[i], outer, nloop));
        if (u[i]->op == OP_STORE && b == out)
            SCRATCH_PUSH(t, f->store, f->nstore, f->cap_store, touch_of(t, u[i], outer, nloop));
    }
}

/* The touch for a loop that counts down: addresses are negated, so that it counts up. */
static struct touch mirror(struct touch x)
{
    double moved = (x.iterations - 1) * x.step, lo = x.lo;
    x.lo = -(x.hi + moved);
    x.hi = -(lo + moved);
    return x;
}

/* Whether a program's outermost loops can count down: no iteration reads what another one computed,
 * and each is a loop in C. */
static bool may_count_down(struct uop *const *u, int n, const struct buffer *out)
{
    for (int i = 0, depth = 0; i < n; i++) {
        bool inner = u[i]->op == OP_GUARD || u[i]->op == OP_ACC ||
                     range_is_lane(u[i]);
        bool loads = u[i]->op == OP_LOAD || u[i]->op == OP_GATHER;
        if ((inner && depth == 0) || (loads && uop_buffer_of(u[i]->src[0]) == out))
            return false;
        depth += u[i]->op == OP_RANGE ? 1 : u[i]->op == OP_END ? -1 : 0;
    }
    return true;
}

/* The least distance from an element stored to one that is loaded at the same time or later. */
static double distance(const struct touch *store, const struct touch *load)
{
    double last = store->iterations - 1;
    if (last < 0 || load->iterations < 1 || store->loop > load->loop)
        return HUGE_VAL;
    if (store->loop < load->loop)
        return load->lo - (store->hi + last * store->step);
    double first = load->lo - store->hi, end = first + last * (load->step - store->step);
    return first < end ? first : end;
}

static double distance_in(struct tgc *t, struct uop *const *u, int n, const struct buffer *out,
                          const struct buffer *in, bool backwards)
{
    struct touches f = {0};
    double least = HUGE_VAL;
    if (backwards && !may_count_down(u, n, out))
        return -HUGE_VAL;
    find_touches(t, u, n, out, in, &f);
    for (int i = 0; i < f.nstore && backwards; i++)
        f.store[i] = mirror(f.store[i]);
    for (int i = 0; i < f.nload && backwards; i++)
        f.load[i] = mirror(f.load[i]);
    for (int i = 0; i < f.nstore; i++)
        for (int k = 0; k < f.nload; k++) {
            double d = distance(&f.store[i], &f.load[k]);
            least = d < least ? d : least;
        }
    return f.nload ? least : -HUGE_VAL;
}

bool overlap_find(struct tgc *t, const struct kernel *k, const struct buffer *out,
                  const struct buffer *in, bool backwards, int64_t *ahead)
{
    /* compilers may move a store before a load of another type, unless one of them is a byte */
    bool same = in->dtype == out->dtype || dtype_is_byte(in->dtype) || dtype_is_byte(out->dtype);
    /* threads, of a block, too, are in several iterations at a time */
    if (!same || k->is_shared || k->block || k->noutput != 1 || in->nbytes == 0 || out->nbytes == 0)
        return false;
    if (backwards && k->is_serial)
        return false;
    struct mem_mark mark = scratch_mark(t);
    const struct buffer *to = kernel_buffer_there(k, out), *from = kernel_buffer_there(k, in);
    double least = distance_in(t, k->linear, k->nlinear, to, from, backwards);
    for (int i = 0; i < k->nvariant; i++) {
        double d = distance_in(t, k->variant[i].linear, k->variant[i].nlinear, to, from, backwards);
        least = d < least ? d : least;
    }
    scratch_release(t, mark);
    double trailing = (double)(backwards ? in : out)->nbytes,
           most = (double)(backwards ? out : in)->nbytes;
    if (!(least > -trailing) || most > (double)INT64_MAX / 4)
        return false;
    least = floor((least < most ? least : most) / ARENA_ALIGN) * ARENA_ALIGN;
    *ahead = (int64_t)least;
    return true;
}
