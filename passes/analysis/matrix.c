/* matrix.c - reads a sum that an instruction of ir/matrix.def computes: where its factors are, and
 * which of the store's loops are the lanes of the subgroup and the elements of each lane.
 *
 *      store y[...], sum over ko, k of a[..] * b[..]
 *         item wave, item m 8, item n 4                      lanes: the block's innermost items
 *         lane row, lane column, element m 2, element n 2    elements: lanes of the kind `element`
 *                                                            k: the sum's last loop
 *
 * The sum is a sum of scalars like any other: each thread's elements, written out. A subgroup can
 * compute it as a matrix product if the factors have fitting strides: m moves along a by one
 * stride, n along b, and k along both. */
#include "passes/analysis/matrix.h"
#include "passes/analysis/nest.h"
#include "passes/analysis/panels.h"
#include "passes/target/target.h"

#include <string.h>

/* Depth of expressions that may be factors. */
enum { COMPUTED_DEPTH = 8 };

static bool is_computed(const struct uop *u, int depth)
{
    if (u->op == OP_LOAD)
        return u->src[0]->op == OP_BUFFER && !uop_buffer_of(u->src[0])->scratch.is_register &&
               buffer_space(uop_buffer_of(u->src[0])) != SPACE_SHARED &&
               (u->nsrc == 2 || load_is_zero_elsewhere(u));
    bool any = u->op == OP_CAST || u->op == OP_MUL || u->op == OP_ADD || u->op == OP_SUB ||
               u->op == OP_AND || u->op == OP_SHR;
    for (int i = 0; any && i < u->nsrc; i++)
        any = depth > 0 && (u->src[i]->op == OP_CONST || is_computed(u->src[i], depth - 1));
    return any;
}

bool matrix_is_finite(const struct uop *u) { return is_computed(u, COMPUTED_DEPTH); }

static const struct uop *factor_load(const struct uop *u)
{
    const struct uop *load = u->op == OP_CAST || u->op == OP_BITCAST ? u->src[0] : u;
    return load->op == OP_LOAD ? load : NULL;
}

static double nelem_of(const struct uop *load)
{
    const struct buffer *b = uop_buffer_of(load->src[0]);
    return buffer_most_nbytes(b) / (double)dtype_nbytes(b->dtype);
}

bool matrix_reads(const struct uop *factor, const struct uop *load)
{
    bool reads = factor == load;
    for (int i = 0; !reads && factor->op != OP_LOAD && i < factor->nsrc; i++)
        reads = matrix_reads(factor->src[i], load);
    return reads;
}

bool matrix_is_computed(const struct uop *factor) { return !factor_load(factor); }

struct uop *matrix_factor_load(struct uop *factor)
{
    struct uop *best = NULL;
    if (factor->op == OP_LOAD)
        return factor;
    for (int i = 0; i < factor->nsrc; i++) {
        struct uop *load =
            factor->src[i]->op == OP_CONST ? NULL : matrix_factor_load(factor->src[i]);
        if (load && (!best || nelem_of(load) > nelem_of(best)))
            best = load;
    }
    return best;
}

double matrix_computed(const struct uop *factor)
{
    double n = factor->op == OP_LOAD || factor->op == OP_CONST ? 0 : 1;
    for (int i = 0; n > 0 && i < factor->nsrc; i++)
        n += matrix_computed(factor->src[i]);
    return n;
}

struct uop *matrix_factor(struct uop *u, enum dtype d)
{
    if (u->dtype != d && u->op == OP_CAST)
        u = u->src[0];
    if (u->dtype != d)
        return NULL;
    return factor_load(u) || (dtype_is_float(d) && matrix_is_finite(u)) ? u : NULL;
}

bool matrix_factors(const struct uop *sum, const struct matrix_row *row, bool exchanged,
                    struct uop **factor)
{
    const struct uop *product = sum->src[0];
    if (REDUCE_OP(sum->arg.i) != OP_ADD || product->op != OP_MUL ||
        product->dtype != row->dtype[MATRIX_SUM])
        return false;
    for (int i = 0; i < 2; i++)
        factor[i] = matrix_factor(product->src[exchanged ? 1 - i : i], row->dtype[i]);
    return factor[0] && factor[1] &&
           !(matrix_is_computed(factor[0]) && matrix_is_computed(factor[1]));
}

/* Finds the store's consecutive ranges that are the bits of the lane's number (or of the
 * element's), the last one at `from`. false: there are others. */
static bool add_axes(const struct matrix_row *row, bool of_lane, const struct uop *store, int from,
                     struct matrix_axes *axes)
{
    struct matrix_bit bit[MATRIX_BITS_MAX];
    int n = matrix_bits(row, MATRIX_SUM, of_lane, bit);
    for (int i = 0; i < n; from--) {
        int same = 1;
        while (i + same < n && bit[i + same].of == bit[i].of &&
               bit[i + same].bit == bit[i].bit + same)
            same++;
        if (from < store_first_range(store) || range_fixed_size(store->src[from]) != 1 << same ||
            !(of_lane ? range_is_item(store->src[from]) : range_is(store->src[from], AXIS_ELEMENT)))
            return false;
        axes->v[axes->n++] =
            (struct matrix_axis){store->src[from], bit[i].of, (int64_t)1 << bit[i].bit};
        i += same;
    }
    return true;
}

static int last_item(const struct uop *store)
{
    int i = store->nsrc - 1;
    while (i >= store_first_range(store) && !range_is_item(store->src[i]))
        i--;
    return i;
}

bool matrix_find_lanes(const struct matrix_row *row, const struct uop *store,
                       struct matrix_axes *lanes)
{
    *lanes = (struct matrix_axes){.n = 0};
    return add_axes(row, true, store, last_item(store), lanes);
}

/* The stride of the coordinate; 0: the offset is invariant in it. */
static bool find_stride(struct tgc *t, struct uop *offset, const struct matrix_axes *axes,
                        enum matrix_coordinate of, int64_t *stride)
{
    bool any = false;
    for (int i = 0; i < axes->n; i++) {
        int64_t s;
        if (axes->v[i].of != of)
            continue;
        if (!index_stride(t, offset, axes->v[i].range, &s) || s % axes->v[i].scale ||
            (any && s / axes->v[i].scale != *stride))
            return false;
        *stride = s / axes->v[i].scale;
        any = true;
    }
    return any;
}

static bool find_tile(struct tgc *t, struct uop *load, enum matrix_coordinate side,
                      const struct matrix_axes *axes, struct matrix_tile *tile)
{
    int64_t along[MATRIX_NONE] = {0};
    struct uop_map zero = {.t = t, .scratch = true};
    struct uop *offset = load->src[1];
    for (int of = 0; of < MATRIX_NONE; of++)
        if (!find_stride(t, offset, axes, (enum matrix_coordinate)of, &along[of]))
            return false;
    if (along[side == MATRIX_M ? MATRIX_N : MATRIX_M] || along[side] < 1 || along[MATRIX_K] < 1)
        return false;
    for (int i = 0; i < axes->n; i++)
        map_set(&zero, axes->v[i].range, uop_int(t, 0));
    bool along_k = along[MATRIX_K] == 1;
    *tile = (struct matrix_tile){.load = load, .offset = uop_substitute_all(t, offset, &zero),
                                 .stride = along[along_k ? side : MATRIX_K], .along_k = along_k};
    return along_k || along[side] == 1;
}

/* ---- a factor that the instruction reads itself, in panels (SWIZZLE) */

/* The offset's step for each bit of the axis; false: it is not linear in them. */
static bool find_steps(struct tgc *t, struct uop *at, const struct matrix_axis *axis,
                       int64_t step[MATRIX_NONE][MATRIX_BITS_MAX])
{
    struct uop *zero = uop_substitute(t, at, axis->range, uop_int(t, 0));
    int64_t *of = step[axis->of] + __builtin_ctzll((unsigned long long)axis->scale),
            size = range_fixed_size(axis->range), d;
    for (int64_t i = 1; i < size; i++) {
        int bit = 63 - __builtin_clzll((unsigned long long)i);
        if (!uop_const_int(sym_sub(t, uop_substitute(t, at, axis->range, uop_int(t, i)), zero), &d))
            return false;
        if (i == (int64_t)1 << bit)
            of[bit] = d;
        for (int k = 0; k <= bit; k++)
            d -= i >> k & 1 ? of[k] : 0;
        if (d)
            return false;
    }
    return true;
}

/* Reads a tile in panels, which begins at a multiple of eight rows. Along k it reads a part of a
 * panel's rows; across k, whole rows, of 16-bit elements only. */
static bool find_panel_tile(struct tgc *t, struct uop *load, enum matrix_coordinate side,
                            const struct matrix_row *r, const struct matrix_axes *axes,
                            struct matrix_tile *tile)
{
    const struct layout l = buffer_layout(uop_buffer_of(load->src[0]));
    int64_t rest;
    if (!l.row || !find_tile(t, load, side, axes, tile) || tile->stride != l.row)
        return false;
    const int64_t columns = tile->along_k ? r->size[MATRIX_K] : l.in_panel;
    struct uop *at = panels_in_order(t, &l, tile->offset),
               *in_row = sym_mod(t, at, uop_int(t, columns)),
               *of_eight =
                   sym_mod(t, sym_div(t, at, uop_int(t, l.in_panel)), uop_int(t, PANEL_ROWS));
    tile->offset = at;
    tile->stride = l.in_panel;
    return (tile->along_k ||
            (l.in_panel * 2 == PANEL_ROW_NBYTES && r->size[side] % columns == 0)) &&
           uop_const_int(in_row, &rest) && rest == 0 && uop_const_int(of_eight, &rest) && rest == 0;
}

/* ---- a factor that a thread has in registers */

bool matrix_sums_are_factor(const struct matrix_row *row, enum matrix_part part)
{
    struct matrix_bit sum[MATRIX_BITS_MAX], factor[MATRIX_BITS_MAX];
    enum matrix_coordinate side = part == MATRIX_A ? MATRIX_M : MATRIX_N;
    int n = matrix_bits(row, MATRIX_SUM, true, sum);
    bool same = !matrix_in_shared(row, part) && matrix_bits(row, part, true, factor) == n &&
                row->dtype[MATRIX_SUM] == DTYPE_F32;
    for (int i = 0; i < n && same; i++)
        same = sum[i].bit == factor[i].bit &&
               (sum[i].of == side ? factor[i].of == side : factor[i].of == MATRIX_K);
    return same;
}

/* The bits of k that are a lane's own elements, with consecutive ones as one axis. */
static int element_axes(const struct matrix_row *row, enum matrix_part part,
                        enum matrix_coordinate of, struct matrix_axis *axis)
{
    struct matrix_bit bit[MATRIX_BITS_MAX];
    int n = matrix_bits(row, part, false, bit), found = 0;
    for (int b = 0; b < MATRIX_BITS_MAX; b++)
        for (int i = 0; i < n; i++)
            if (bit[i].of == of && bit[i].bit == b)
                axis[found++] = (struct matrix_axis){NULL, of, (int64_t)1 << b};
    return found;
}

struct uop *matrix_own_terms(struct tgc *t, const struct uop *store, const struct matrix_row *row,
                             enum matrix_part part, struct uop *offset, const struct uop *k,
                             struct matrix_axis *element, int *n)
{
    struct matrix_axes lanes;
    enum matrix_coordinate side = part == MATRIX_A ? MATRIX_M : MATRIX_N;
    struct uop *at = uop_int(t, 0);
    if (!matrix_sums_are_factor(row, part) || !matrix_find_lanes(row, store, &lanes))
        return NULL;
    *n = element_axes(row, part, MATRIX_K, element);
    for (int i = 0; i < lanes.n; i++)
        if (lanes.v[i].of != side)
            at = sym_add(t, at, sym_muli(t, lanes.v[i].range, lanes.v[i].scale));
    for (int i = 0; i < *n; i++) {
        element[i].range = uop_axis(t, uop_int(t, 2), AXIS_LOOP, WORKER_EACH);
        at = sym_add(t, at, sym_muli(t, element[i].range, element[i].scale));
    }
    return uop_substitute(t, offset, k, at);
}

/* The tile that a load from the thread's own array describes: terms of a row contiguous, rows at
 * one common stride, in elements. false: it is no such tile. */
static bool find_own_tile(struct tgc *t, struct uop *load, enum matrix_part part,
                          const struct matrix_row *r, const struct matrix_axes *axes,
                          struct matrix_tile *tile)
{
    int64_t step[MATRIX_NONE][MATRIX_BITS_MAX] = {{0}}, stride = 0;
    enum matrix_coordinate side = part == MATRIX_A ? MATRIX_M : MATRIX_N;
    struct matrix_axis term[MATRIX_BITS_MAX], row[MATRIX_BITS_MAX];
    int nterm = element_axes(r, part, MATRIX_K, term), nrow = element_axes(r, part, side, row);
    struct uop *at = load->src[1];
    for (int i = 0; i < axes->n; i++)
        if (!find_steps(t, at, &axes->v[i], step))
            return false;
    for (int i = 0; i < axes->n; i++)
        at = uop_substitute(t, at, axes->v[i].range, uop_int(t, 0));
    for (int i = 0; i < nterm; i++) {
        int64_t *of = &step[MATRIX_K][__builtin_ctzll((unsigned long long)term[i].scale)];
        if (*of != 1 << i)
            return false;
        *of = 0;
    }
    for (int i = 0; i < nrow; i++) {
        int64_t *of = &step[side][__builtin_ctzll((unsigned long long)row[i].scale)];
        stride = i ? stride : *of;
        if (*of != stride << i || stride < 1 << nterm)
            return false;
        *of = 0;
    }
    for (int c = 0; c < MATRIX_NONE; c++)
        for (int i = 0; i < MATRIX_BITS_MAX; i++)
            if (step[c][i])
                return false;
    *tile = (struct matrix_tile){.load = load,
                                 .offset = at,
                                 .stride = stride ? stride : 1 << nterm,
                                 .along_k = true,
                                 .own_rows = 1 << nrow,
                                 .own_terms = 1 << nterm};
    return true;
}

/* A factor converted from registers. While its offsets are not a thread's own yet, MATRIX has
 * checked that threads hold what they supply. */
static struct uop *kept_by_threads(struct uop *factor)
{
    struct uop *load = factor->op == OP_CAST ? factor->src[0] : factor;
    return load->op == OP_LOAD && load->nsrc == 2 && load->src[0]->op == OP_BUFFER &&
                   uop_buffer_of(load->src[0])->scratch.is_register
               ? load
               : NULL;
}

static bool find_kept(struct tgc *t, const struct uop *store, struct uop *load,
                      enum matrix_part part, const struct matrix_row *r,
                      const struct matrix_axes *axes, struct matrix_tile *tile)
{
    struct matrix_axis element[MATRIX_BITS_MAX];
    int n;
    if (uop_buffer_of(load->src[0])->scratch.is_own)
        return find_own_tile(t, load, part, r, axes, tile);
    *tile = (struct matrix_tile){.load = load, .offset = load->src[1], .along_k = true};
    return matrix_own_terms(t, store, r, part, load->src[1], axes->v[axes->n - 1].range, element,
                            &n) != NULL;
}

/* 16-bit floats are kept in shared memory as bits. */
static struct uop *bits_of(struct uop *u) { return u->op == OP_BITCAST ? u->src[0] : u; }

static bool fail(const char **why, const char *text)
{
    *why = text;
    return false;
}

static bool read_product(struct tgc *t, const struct uop *store, const struct uop *sum,
                         struct matrix_product *p, const char **why)
{
    const struct matrix_row *row = matrix_row(p->of);
    struct matrix_axes axes = {.n = 0};
    struct uop *factor[2], *k = sum->src[sum->nsrc - 1];
    if (!add_axes(row, true, store, last_item(store), &axes))
        return fail(why, "the block's last threads are not the lanes of the instruction");
    int lanes = axes.n;
    if (!add_axes(row, false, store, store->nsrc - 1, &axes))
        return fail(why, "the thread's last elements are not those of the instruction");
    for (int i = axes.n - 1; i >= lanes; i--)
        p->element[p->nelement++] = axes.v[i].range;
    if (range_fixed_size(k) != row->size[MATRIX_K])
        return fail(why, "the sum's last loop does not have the instruction's K iterations");
    axes.v[axes.n++] = (struct matrix_axis){k, MATRIX_K, 1};
    for (int exchanged = 0; exchanged < 2; exchanged++) {
        bool fits = matrix_factors(sum, row, exchanged, factor);
        for (int i = 0; i < 2 && fits; i++) {
            enum matrix_part part = i ? MATRIX_B : MATRIX_A;
            struct uop *kept = kept_by_threads(factor[i]);
            if (kept) {
                fits = find_kept(t, store, kept, part, row, &axes, &p->factor[i]);
                continue;
            }
            enum matrix_coordinate side = i ? MATRIX_N : MATRIX_M;
            struct matrix_tile *tile = &p->factor[i];
            struct uop *load = factor[i] = bits_of(factor[i]);
            fits = load->op == OP_LOAD && load->nsrc == 2 &&
                   buffer_space(uop_buffer_of(load->src[0])) == SPACE_SHARED &&
                   (matrix_in_shared(row, part) ? find_panel_tile(t, load, side, row, &axes, tile)
                                               : find_tile(t, load, side, &axes, tile));
        }
        if (fits)
            return true;
    }
    return fail(why,
                "the factors are not in shared memory, in the order that the instruction takes");
}

bool matrix_read(struct tgc *t, const struct uop *store, const struct uop *sum,
                 struct matrix_product *p, const char **why)
{
    struct mem_mark mark = scratch_mark(t);
    *p = (struct matrix_product){.of = (enum matrix_unit)(REDUCE_MATRIX(sum->arg.i) - 1)};
    bool ok = read_product(t, store, sum, p, why);
    scratch_release(t, mark);
    return ok;
}

/* Whether eight rows of 16 bytes, with word l % 4 of row l / 4 in lane l, are a part of the row's
 * factor. */
static bool has_rows(const struct matrix_row *r, enum matrix_part part)
{
    struct matrix_bit lane[MATRIX_BITS_MAX], element[MATRIX_BITS_MAX];
    int n = matrix_bits(r, part, true, lane), words = 0;
    enum matrix_coordinate side = part == MATRIX_A ? MATRIX_M : MATRIX_N;
    (void)matrix_bits(r, part, false, element);
    while (dtype_bits(r->dtype[part]) << words < 32)
        words++;
    bool fits = n == 5;
    for (int i = 0; i < words; i++)
        fits &= element[i].of == MATRIX_K && element[i].bit == i;
    for (int i = 0; i < 5 && fits; i++)
        fits =
            lane[i].of == (i < 2 ? MATRIX_K : side) && lane[i].bit == (i < 2 ? words + i : i - 2);
    return fits;
}

/* Rows along k are transposed on load, which works on words of two halves. */
bool matrix_is_by_rows(const struct tgc *t, const struct matrix_row *r, enum matrix_part part,
                       bool along_k, int64_t stride)
{
    return device_loads_rows(t) && has_rows(r, part) &&
           (along_k || dtype_bits(r->dtype[part]) == 16) &&
           stride * dtype_bits(r->dtype[part]) % (8 * COPY_NBYTES_MOST) == 0;
}

static bool is_by_rows(struct tgc *t, const struct matrix_row *r, enum matrix_part part,
                       const struct matrix_tile *tile)
{
    int64_t nbits = index_divisor(t, tile->offset) * dtype_bits(r->dtype[part]);
    return matrix_is_by_rows(t, r, part, tile->along_k, tile->stride) &&
           !uop_buffer_of(tile->load->src[0])->scratch.panel && nbits % (8 * COPY_NBYTES_MOST) == 0;
}

struct uop *matrix_linear_ast(struct tgc *t, const struct uop *ast)
{
    struct uop **store = scratch_array(t, (size_t)ast->nsrc, sizeof *store);
    for (int i = 0; i < ast->nsrc; i++) {
        struct uop_map by = {.t = t, .scratch = true};
        int n;
        store[i] = ast->src[i];
        struct uop **order = uop_toposort(t, &store[i], 1, &n);
        for (int j = 0; j < n; j++) {
            struct uop *sum = order[j], *src[MAX_RANK + 8];
            struct matrix_product p;
            const char *why;
            if (sum->op != OP_REDUCE || !REDUCE_MATRIX(sum->arg.i))
                continue;
            if (!matrix_read(t, store[i], sum, &p, &why))
                TGC_BUG(t, "a sum by %s: %s", matrix_row(p.of)->text, why);
            const int *size = matrix_row(p.of)->size;
            for (int k = 0; k < 2; k++) {
                struct uop *load[2] = {p.factor[k].load->src[0], p.factor[k].offset};
                int side = size[k ? MATRIX_N : MATRIX_M];
                union arg tile = {
                    .i = p.factor[k].along_k
                             ? ARG_PACK(TILE, side, size[MATRIX_K], p.factor[k].stride)
                             : ARG_PACK(TILE, size[MATRIX_K], side, p.factor[k].stride)};
                if (p.factor[k].own_terms)
                    tile.i = ARG_PACK(TILE, p.factor[k].own_rows, p.factor[k].own_terms,
                                      p.factor[k].stride);
                else
                    tile.i = arg_with(
                        tile.i, ARG_TILE_HAS_ALIGNED_ROWS,
                        is_by_rows(t, matrix_row(p.of), k ? MATRIX_B : MATRIX_A, &p.factor[k]));
                src[k] = uop_intern(t, OP_LOAD, p.factor[k].load->dtype, load, 2, tile);
            }
            for (int k = 0; k < p.nelement; k++)
                src[2 + k] = p.element[k];
            union arg arg = {.i = ARG_PACK(MATRIX, p.of, p.factor[0].along_k, p.factor[1].along_k)};
            struct uop *product = uop_intern(t, OP_MATRIX, sum->dtype, src, 2 + p.nelement, arg);
            ARRAY_COPY(src, sum->src, sum->nsrc);
            src[0] = product;
            map_set(&by, sum, uop_intern(t, OP_REDUCE, sum->dtype, src, sum->nsrc - 1, sum->arg));
        }
        if (by.used)
            store[i] = uop_substitute_all(t, store[i], &by);
        store[i] = panels_linear_store(t, store[i]);
    }
    return uop_intern(t, OP_SINK, DTYPE_VOID, store, ast->nsrc, ast->arg);
}
