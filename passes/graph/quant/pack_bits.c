/* pack_bits.c - on devices, packs known weights of few bits into words, which threads unpack in
 * registers.
 *
 *      y[n] = sum over b, k  x[b, k] * f32(q[n, b, k]) * s[n, b]           q: bytes, -8 .. 7
 *
 *      f32(q[n, b, 8*w + j])   ->   f32(i32(words[b, w, n] >> 4*j & 15) - 8)
 *
 * A product of one row is bound by the bandwidth of reading its weights. Only the numbers matter
 * here, not what an operator makes them of (nibbles, bytes, zero points): at most 4 or 16
 * consecutive integers overall, or 16 in each line of a block, relative to the line's least one. A
 * word packs terms that are contiguous along the sum, so one load serves 8 or 16 terms. Adjacent
 * words, and scales, belong to adjacent columns: threads with a column each have coalesced loads,
 * and share one value of x. */
#include "passes/analysis/contraction.h"
#include "passes/analysis/stationary.h"
#include "passes/analysis/value.h"
#include "passes/target/target.h"

#include <string.h>

/* Products of more rows stage weights in shared memory, as bytes. */
enum { WORD_BITS = 32, NELEM_LEAST = 256, DEPTH_MOST = 8 };

/* A weight, as floats, and two of its axes as a product reads them: that of its columns, and the
 * last one that is summed, along which words pack. */
struct packing { struct uop *of; int column, along; };
struct packer {
    struct tgc *t;
    struct uop_map by;           /* a weight as floats, or a scale -> the tensor that takes its
                                  * place */
    struct uop_map reads;        /* a weight -> itself, where one uop reads it; another
                                  * uop, where several do */
};

/* Walks the weight with its columns innermost: sizes and strides of its axes in that order. */
struct walk { int n, axis[MAX_RANK]; int64_t dim[MAX_RANK], stride[MAX_RANK], nelem; };

static bool begin_walk(const struct uop *u, int column, struct walk *w)
{
    int64_t stride = 1, size[MAX_RANK], step[MAX_RANK];
    *w = (struct walk){.nelem = 1};
    for (int a = u->ndim - 1; a >= 0; a--) {
        if (!uop_const_int(u->dim[a], &size[a]) || size[a] < 1)
            return false;
        step[a] = stride;
        stride = sat_mul(stride, size[a]);
    }
    for (int a = 0; a <= u->ndim; a++) {
        int axis = a < u->ndim ? a : column;
        if (a == column)
            continue;
        w->axis[w->n] = axis, w->dim[w->n] = size[axis], w->stride[w->n++] = step[axis];
    }
    w->nelem = stride;
    return stride <= INT32_MAX;
}

/* The offset, in the weight's own order, of element i of the walk. */
static int64_t walk_offset(const struct walk *w, int64_t i)
{
    int64_t at = 0;
    for (int a = w->n - 1; a >= 0; a--) {
        at += i % w->dim[a] * w->stride[a];
        i /= w->dim[a];
    }
    return at;
}

/* The axes of what the walk goes through, back in the order of the weight. */
static struct uop *in_order(struct tgc *t, const struct walk *w, struct uop *x)
{
    int perm[MAX_RANK];
    for (int a = 0; a < w->n; a++)
        perm[w->axis[a]] = a;
    return uop_permute(t, x, perm);
}

/* ------------------------------------------------------------------------------------ words */

/* Least numbers: of all, or of each line along an axis of the walk; how many bits
 * hold what is more. */
struct least { int64_t *of; bool lines; int bits; };

static int bits_for(int64_t range) { return range < 4 ? 2 : range < 16 ? 4 : 0; }

static int64_t number_at(const struct buffer *b, int64_t at)
{
    return scalar_load(b->dtype,
                       (const char *)b->weight.data + at * (int64_t)dtype_nbytes(b->dtype))
        .i;
}

/* line: elements of the walk from one of a line to the next one; of: those of a line. false: more
 * bits than a word is worth. */
static bool find_least(struct tgc *t, const struct buffer *b, const struct walk *w, int64_t line,
                       int64_t of, struct least *l)
{
    int64_t n = w->nelem / of, all[2] = {INT64_MAX, INT64_MIN}, most = 0;
    *l = (struct least){.of = mem_array(t, (size_t)n, sizeof *l->of)};
    for (int64_t i = 0; i < n; i++) {
        int64_t first = i / line * line * of + i % line, end[2] = {INT64_MAX, INT64_MIN};
        for (int64_t k = 0; k < of; k++) {
            int64_t v = number_at(b, walk_offset(w, first + k * line));
            end[0] = v < end[0] ? v : end[0];
            end[1] = v > end[1] ? v : end[1];
        }
        l->of[i] = end[0];
        most = end[1] - end[0] > most ? end[1] - end[0] : most;
        if (!bits_for(most))
            return false;
        all[0] = end[0] < all[0] ? end[0] : all[0];
        all[1] = end[1] > all[1] ? end[1] : all[1];
    }
    l->lines = bits_for(all[1] - all[0]) == 0;
    l->bits = bits_for(l->lines ? most : all[1] - all[0]);
    for (int64_t i = 0; i < n && !l->lines; i++)
        l->of[i] = all[0];
    return l->bits > 0;
}

/* The tensor of words: the walk's axes, with one word along `along` for what it packs. */
static struct uop *make_words(struct tgc *t, const struct buffer *b, const struct walk *w,
                              int along, int64_t line, const struct least *l)
{
    int64_t each = WORD_BITS / l->bits, of = w->dim[along], dim[MAX_RANK], n = w->nelem / each;
    uint32_t *to = mem_array(t, (size_t)n, sizeof *to);
    memcpy(dim, w->dim, sizeof dim);
    dim[along] /= each;
    for (int64_t i = 0; i < n; i++) {
        int64_t outer = i / line / dim[along], at = i / line % dim[along], inner = i % line;
        for (int64_t j = 0; j < each; j++) {
            int64_t v = number_at(b, walk_offset(w, (outer * of + at * each + j) * line + inner)) -
                        l->of[outer * line + inner];
            to[i] |= (uint32_t)v << (j * l->bits);
        }
    }
    return tensor_made_of(
        tensor_from_data(t, DTYPE_U32, dim, w->n, to, (size_t)n * sizeof *to, b->name), b,
        mem_printf(t, "words of %d-bit numbers", l->bits));
}

/* The numbers in the words, in i32, beside the least ones. */
static struct uop *take_apart(struct tgc *t, struct uop *words, int along, int bits)
{
    struct uop *dim[MAX_RANK], *x = tensor_insert_axis(t, words, along + 1);
    ARRAY_COPY(dim, x->dim, x->ndim);
    dim[along + 1] = uop_int(t, WORD_BITS / bits);
    struct uop *shift =
        tensor_binary(t, OP_MUL, uop_cast(t, DTYPE_U32, tensor_iota(t, dim, x->ndim, along + 1)),
                      tensor_full(t, uop_consti(t, DTYPE_U32, bits), dim, x->ndim));
    x = tensor_binary(t, OP_AND, tensor_binary(t, OP_SHR, uop_expand(t, x, dim), shift),
                      tensor_full(t, uop_consti(t, DTYPE_U32, (1 << bits) - 1), dim, x->ndim));
    ARRAY_COPY(dim, words->dim, words->ndim);
    dim[along] = sym_muli(t, dim[along], WORD_BITS / bits);
    return uop_reshape(t, uop_cast(t, DTYPE_I32, x), dim, words->ndim);
}

/* The least numbers, of the shape of x. */
static struct uop *least_numbers(struct tgc *t, const struct walk *w, int along,
                                 const struct least *l, struct uop *x)
{
    int64_t dim[MAX_RANK], n = w->nelem / w->dim[along];
    if (!l->lines)
        return tensor_full(t, uop_consti(t, DTYPE_I32, l->of[0]), x->dim, x->ndim);
    int8_t *to = mem_array(t, (size_t)n, sizeof *to);
    memcpy(dim, w->dim, sizeof dim);
    dim[along] = 1;
    for (int64_t i = 0; i < n; i++)
        to[i] = (int8_t)l->of[i];
    return uop_expand(
        t, uop_cast(t, DTYPE_I32, tensor_from_data(t, DTYPE_I8, dim, w->n, to, (size_t)n, NULL)),
        x->dim);
}

/* The weight that v casts to floats, with a reshape before or after; NULL: v is no such cast. */
static struct uop *widened_weight(struct uop *v)
{
    struct uop *x = v->op == OP_RESHAPE ? v->src[0] : v;
    if (x->op != OP_CAST || !dtype_is_float(x->dtype))
        return NULL;
    x = x == v && x->src[0]->op == OP_RESHAPE ? x->src[0]->src[0] : x->src[0];
    const struct buffer *b = known_buffer(x);
    return b && dtype_is_int(b->dtype) && dtype_nbytes(b->dtype) == 1 ? x : NULL;
}

/* The weight as words, in i32, or NULL: its numbers take more bits, or lines are no whole words. */
static struct uop *packed(struct tgc *t, const struct packing *p)
{
    const struct buffer *b = known_buffer(widened_weight(p->of));
    struct walk w;
    struct least l;
    int along = 0;
    if (!begin_walk(p->of, p->column, &w) || w.nelem < NELEM_LEAST || p->of->ndim == MAX_RANK)
        return NULL;
    while (w.axis[along] != p->along)
        along++;
    int64_t line = 1;
    for (int a = along + 1; a < w.n; a++)
        line *= w.dim[a];
    if (w.dim[along] % (WORD_BITS / 4))
        return NULL;
    if (!find_least(t, b, &w, line, w.dim[along], &l) || w.dim[along] % (WORD_BITS / l.bits))
        return NULL;
    for (int64_t i = 0; l.lines && i < w.nelem / w.dim[along]; i++)
        if (l.of[i] < INT8_MIN || l.of[i] > INT8_MAX)
            return NULL;
    struct uop *x = take_apart(t, make_words(t, b, &w, along, line, &l), along, l.bits);
    return in_order(t, &w, tensor_binary(t, OP_ADD, x, least_numbers(t, &w, along, &l, x)));
}

/* ------------------------------------------------------------------------------------ scales */

/* The known tensor with axis 0, of columns, innermost in memory. NULL: it is so, or has none. */
static struct uop *by_columns(struct tgc *t, struct uop *u, int64_t columns)
{
    const struct buffer *b = known_buffer(u);
    struct walk w;
    if (!b || u->ndim < 2 || !uop_is_int(u->dim[0], columns) || !begin_walk(u, 0, &w) ||
        dtype_bits(b->dtype) < 8)
        return NULL;
    size_t nbytes = dtype_nbytes(b->dtype);
    char *to = mem_array(t, (size_t)w.nelem, nbytes);
    for (int64_t i = 0; i < w.nelem; i++)
        memcpy(to + (size_t)i * nbytes,
               (const char *)b->weight.data + (size_t)walk_offset(&w, i) * nbytes, nbytes);
    return in_order(
        t, &w,
        tensor_made_of(
            tensor_from_data(t, b->dtype, w.dim, w.n, to, (size_t)w.nelem * nbytes, b->name), b,
            "columns innermost"));
}

/* ------------------------------------------------------------------------------------ products */

/* The weight, as floats, among what v is computed from element by element. NULL: there is none. */
static struct uop *find_weight(struct uop *v, int depth)
{
    struct uop *found = widened_weight(v) ? v : NULL;
    for (int k = 0; depth > 0 && !found && op_is_elementwise(v->op) && k < v->nsrc; k++)
        found = find_weight(v->src[k], depth - 1);
    return found;
}

static bool is_read_once(const struct packer *p, const struct uop *u)
{
    return map_get(&p->reads, u) == u;
}

static void store_scales(struct packer *p, struct uop *v, int64_t columns, int depth)
{
    if (map_get(&p->by, v))
        return;
    struct uop *u = value_behind(v, MOVES_ANY), *by = is_read_once(p, u) && !map_get(&p->by, u)
                                                          ? by_columns(p->t, u, columns)
                                                          : NULL;
    if (by)
        map_set(&p->by, u, by);
    for (int k = 0; depth > 0 && op_is_elementwise(u->op) && k < u->nsrc; k++)
        store_scales(p, u->src[k], columns, depth - 1);
}

/* Whether each thread of a subgroup has a part of the sum: blocks, or words. */
static bool is_shared_by_wave(const struct packer *p, const struct contraction *c,
                              const struct factor *f, int along)
{
    int64_t size, most = 0;
    for (int a = 0; a < f->base->ndim; a++)
        if (f->axes[a] & c->reduced && uop_const_int(f->base->dim[a], &size)) {
            size /= a == along ? WORD_BITS / 4 : 1;
            most = size > most ? size : most;
        }
    return most >= p->t->device->wave;
}

/* How the product of one row reads a weight of its factor, all of whose axes but one are of the
 * sum. */
static bool find_packing(const struct packer *p, const struct contraction *c,
                         const struct factor *f, struct packing *of)
{
    *of = (struct packing){find_weight(f->base, DEPTH_MOST), -1, -1};
    if (!of->of || !is_read_once(p, of->of) || !is_read_once(p, widened_weight(of->of)) ||
        of->of->ndim != f->base->ndim || value_nelem(c->product) > value_nelem(f->base))
        return false;
    for (int a = 0; a < f->base->ndim; a++) {
        if (f->axes[a] & c->reduced)
            of->along = a;
        else if (of->column >= 0 || uop_is_int(f->base->dim[a], 1))
            return false;
        else
            of->column = a;
    }
    return of->along >= 0 && of->column >= 0 && is_shared_by_wave(p, c, f, of->along);
}

static void pack_factor(struct packer *p, const struct contraction *c, const struct factor *f)
{
    struct packing of;
    int64_t columns;
    struct uop *by = find_packing(p, c, f, &of) ? packed(p->t, &of) : NULL;
    if (!by)
        return;
    map_set(&p->by, of.of, by);
    if (of.column == 0 && uop_const_int(of.of->dim[0], &columns))
        store_scales(p, f->base, columns, DEPTH_MOST);
}

static struct uop *rewrite(struct tgc *t, void *ctx, struct uop *u)
{
    const struct packer *p = ctx;
    struct uop *by = map_get(&p->by, u);
    return by && by->dtype != u->dtype ? uop_cast(t, u->dtype, by) : by;
}

bool pass_pack_bits(struct tgc *t, struct graph *g)
{
    struct packer p = {.t = t, .by = {.t = t}, .reads = {.t = t}};
    int n, nroot;
    if (!device_has_grid(t))
        return true;
    struct uop **root = graph_roots(t, g, &nroot), **order = uop_toposort(t, root, nroot, &n);
    for (int i = 0; i < nroot; i++)
        map_set(&p.reads, root[i], g);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < order[i]->nsrc; k++)
            map_set(&p.reads, order[i]->src[k],
                    map_get(&p.reads, order[i]->src[k]) ? order[i] : order[i]->src[k]);
    for (int i = 0; i < n; i++) {
        struct contraction c;
        struct mem_mark mark = scratch_mark(t);
        for (int k = 0;
             summed_product(order[i]) && contraction_find(t, order[i], MOVES_VIEW, &c) && k < 2;
             k++)
            pack_factor(&p, &c, &c.factor[k]);
        scratch_release(t, mark);
    }
    graph_rewrite(t, g, rewrite, &p);
    return true;
}
