/* winograd.c - computes convolutions of stride 1 with fewer multiplications.
 *
 * F(m x m, 3 x 3) of Lavin and Gray (arXiv:1509.09308): tiles of m x m outputs are computed from
 * tiles of n x n inputs, n = m + 2, with n*n multiplications a channel instead of 9*m*m:
 *
 *      V[xi] = (B^T d B)[xi]         d: a tile of x; xi: one of n*n places in it
 *      M[xi] = sum over ic of U[xi] V[xi]             n*n matrix products
 *      Y     = A^T M A               U = G g G^T, computed here in double and rounded once
 *
 * Tiles have one axis or two, each with its own taps and size; a window without tiles (it has a
 * stride, or tiles do not pay) stays a sum over its taps. With a dilation d, tiles consist of every
 * d-th element: one row of tiles for each remainder.
 *
 * It is a rewrite of the graph. The graph has no convolutions: the pattern is a sum of products
 * with one operand that reads windows and one that is a weight. All other axes (batch, groups,
 * several axes of channels) keep their roles. The transforms (cook_toom.c) are sums of shifted
 * parts of a tensor, and the places xi a STACK, which becomes straight-line code once its
 * loop is unrolled.
 */
#include "passes/graph/conv/winograd.h"
#include "ir/oracle.h"

#include <stdio.h>
#include <string.h>

/* ------------------------------------------------------------------------------------ the layer */

static int64_t size_of(const struct uop *dim) { return dim->op == OP_CONST ? dim->arg.i : 0; }

int64_t window_tiles(const struct window *w, int m)
{
    int64_t each = (w->size + w->dilation - 1) / w->dilation;
    return (each + m - 1) / m * w->dilation;
}

/* Counts of tiles and outputs are sums and products of a window's sizes, in int64_t. */
static bool is_short(int64_t n) { return n >= 1 && n <= INT32_MAX; }

bool layer_is_reduced(const struct layer *l, int axis)
{
    return contraction_is_reduced(&l->c, axis);
}

/* Adds the window along an axis of x: stride * output + dilation * tap + begin. */
static bool add_window(struct layer *l, int axis, const struct run *r)
{
    int k = layer_is_reduced(l, r->axis[1]), o = r->axis[1 - k], tap = r->axis[k];
    struct uop *dim = l->product->dim[o];
    if (layer_is_reduced(l, o) || !layer_is_reduced(l, tap) || r->begin < 0 ||
        !is_short(dim->vmax) || !is_short(size_of(l->product->dim[tap])) ||
        !is_short(l->x->dim[axis]->vmax) || !is_short(r->stride[k]))
        return false;
    l->window[l->nwindow++] = (struct window){
        .axis = axis, .out = o, .tap = tap, .dim = dim, .size = dim->vmax,
        .taps = size_of(l->product->dim[tap]), .begin = r->begin, .stride = r->stride[1 - k],
        .dilation = r->stride[k],
        .open = dim->op != OP_CONST || l->x->dim[axis]->op != OP_CONST};
    return true;
}

/* Finds how the product's axes run along one axis of x: row-major along all of it, or as a window.
 * *seen: the product's axes found along earlier ones. */
static bool find_parts(struct layer *l, const struct factor *x, int axis, uint32_t *seen)
{
    struct run r = contraction_run(&l->c, x, axis);
    if (r.n < 0 || (*seen & x->axes[axis]) || (r.n > 0 && r.stride[r.n - 1] < 1))
        return false;
    *seen |= x->axes[axis];
    if (r.n == 2 && !r.whole)
        return add_window(l, axis, &r);
    memcpy(l->part[axis], r.axis, sizeof r.axis);
    l->npart[axis] = r.n;
    return r.whole;
}

/* Removes zero padding under the windows; it is added again for whole tiles. */
static struct uop *take_padding(struct layer *l, struct uop *x)
{
    struct uop *zero = uop_int(l->t, 0);
    bool padded = x->op == OP_PAD && move_is(x, MOVES_ZEROS);
    for (int a = 0; a < 2 * x->ndim; a++)
        l->pad[a] = padded ? x->src[2 + a] : zero;
    return padded ? x->src[0] : x;
}

/* Whether a window's outputs end where the padded x does: what its last tile lacks is then padding
 * of less than a tile, whatever the size is. */
static bool ends_with_x(const struct layer *l, const struct window *w)
{
    struct tgc *t = l->t;
    struct uop *pad = sym_add(t, l->pad[2 * w->axis], l->pad[2 * w->axis + 1]);
    return sym_equal(t, sym_add(t, l->x->dim[w->axis], pad),
                     sym_addi(t, w->dim, w->begin + (w->taps - 1) * w->dilation));
}

/* Chooses the windows for tiles, the last two that qualify: of stride 1, with a weight that is the
 * same at all outputs. */
static bool find_sides(struct layer *l)
{
    for (int i = 0; i < l->nwindow; i++) {
        const struct window *w = &l->window[i];
        if ((l->of_weight >> w->out & 1) || !(l->of_weight >> w->tap & 1))
            return false;
        if (w->stride != 1 || w->taps < 2 || w->taps > TAPS_MAX || (w->open && !ends_with_x(l, w)))
            continue;
        if (l->nside == SIDES_MAX)
            l->side[0] = l->side[1], l->nside--;
        l->side[l->nside++] = w;
    }
    return l->nside > 0;
}

bool layer_find(struct tgc *t, struct uop *u, struct layer *l)
{
    *l = (struct layer){.t = t};
    if (u->dtype != DTYPE_F32 || u->ndim > MAX_RANK - 7 ||
        !contraction_find(t, u, MOVES_VIEW, &l->c))
        return false;
    const struct factor *x = &l->c.factor[l->c.streamed], *w = &l->c.factor[l->c.stationary];
    if (!is_known_f32(w->base) || x->base->dtype != DTYPE_F32 || x->base->ndim > MAX_RANK - 7 ||
        (x->base->op == OP_CAST && x->base->src[0]->dtype != DTYPE_F32))
        return false;
    l->reduce = u;
    l->product = l->c.product;
    l->weight = w->value;
    l->of_x = x->of;
    l->of_weight = w->of;
    l->x = x->base;                                   /* find_parts looks at the padded axes */
    uint32_t seen = 0;
    for (int a = 0; a < x->base->ndim; a++)
        if (!find_parts(l, x, a, &seen))
            return false;
    for (int p = 0; p < u->ndim; p++) {
        bool both = x->of & w->of & 1u << p, reduced = layer_is_reduced(l, p);
        if (l->c.range[p]->op == OP_RANGE && (reduced ? !both : l->c.role[p] == ROLE_NONE))
            return false;
    }
    l->x = take_padding(l, x->base);
    return find_sides(l);
}

/* ------------------------------------------------------------------------------------ the tiles */

/* A layer whose tiles are chosen: the windows with tiles, and their transforms. */
struct tiling {
    const struct layer *l;
    int nside, nplace, nout;
    const struct window *side[SIDES_MAX];
    struct transform f[SIDES_MAX];
};

static struct tiling make_tiling(const struct layer *l, struct sides s)
{
    struct tiling g = {.l = l, .nplace = 1, .nout = 1};
    for (int i = 0; i < l->nside; i++) {
        if (s.m[i] < 2)
            continue;
        struct transform *f = &g.f[g.nside];
        transform_make(f, s.m[i], (int)l->side[i]->taps);
        g.side[g.nside++] = l->side[i];
        g.nplace *= f->n;
        g.nout *= f->m;
    }
    return g;
}

/* The window's index among those with tiles, or -1. */
static int side_of(const struct tiling *g, const struct window *w)
{
    for (int s = 0; s < g->nside; s++)
        if (g->side[s] == w)
            return s;
    return -1;
}

/* Tiles along a side, of each remainder modulo the dilation. */
static struct uop *tiles_of(const struct tiling *g, int s)
{
    const struct window *w = g->side[s];
    return sym_ceildiv(g->l->t, sym_ceildiv(g->l->t, w->dim, w->dilation), g->f[s].m);
}

/* Outputs of whole tiles along a side. */
static struct uop *outputs_of(const struct tiling *g, int s)
{
    return sym_muli(g->l->t, tiles_of(g, s), g->f[s].m * g->side[s]->dilation);
}

/* Outputs that whole tiles have beyond the window's own, as an expression with constant bounds. */
static struct uop *excess_of(const struct tiling *g, int s)
{
    struct tgc *t = g->l->t;
    const struct window *w = g->side[s];
    return w->open ? sym_mod(t, sym_muli(t, w->dim, -1), uop_int(t, g->f[s].m * w->dilation))
                   : sym_sub(t, outputs_of(g, s), w->dim);
}

/* The length of x, with padding, along the window. */
static struct uop *length_of(const struct tiling *g, const struct window *w)
{
    struct tgc *t = g->l->t;
    int s = side_of(g, w);
    int64_t taps = (w->taps - 1) * w->dilation;
    if (s < 0)
        return sym_addi(t, sym_muli(t, sym_addi(t, w->dim, -1), w->stride), taps + 1);
    if (w->dilation > 1)                             /* which is divided by the dilation */
        return sym_addi(t, outputs_of(g, s), taps);
    return sym_addi(t, sym_add(t, w->dim, excess_of(g, s)), taps);
}

/* The weight's dims as axes of the product: 1 for taps of windows with tiles, and along axes where
 * it is invariant. */
static void weight_dims(const struct tiling *g, struct uop **dim)
{
    const struct layer *l = g->l;
    for (int p = 0; p < l->product->ndim; p++)
        dim[p] = l->of_weight >> p & 1 ? l->product->dim[p] : uop_int(l->t, 1);
    for (int s = 0; s < g->nside; s++)
        dim[g->side[s]->tap] = uop_int(l->t, 1);
}

/* x, padded for the windows, with axes split as in the product: axis_of[a] is the product's axis to
 * which axis a belongs. A window with a dilation has two. */
static struct uop *pad_to_tiles(const struct tiling *g, int *axis_of)
{
    const struct layer *l = g->l;
    struct tgc *t = l->t;
    struct uop *lo[MAX_RANK], *hi[MAX_RANK], *begin[MAX_RANK], *dim[MAX_RANK];
    const struct window *window[MAX_RANK] = {NULL};
    int ndim = 0;
    struct uop *x = l->x;
    for (int a = 0; a < x->ndim; a++) {
        lo[a] = l->pad[2 * a];
        hi[a] = l->pad[2 * a + 1];
        begin[a] = uop_int(t, 0);
        dim[a] = sym_add(t, x->dim[a], sym_add(t, lo[a], hi[a]));
    }
    for (int i = 0; i < l->nwindow; i++) {
        const struct window *w = &l->window[i];
        int a = w->axis;
        window[a] = w;
        begin[a] = uop_int(t, w->begin);
        dim[a] = length_of(g, w);
        struct uop *more = sym_sub(t, sym_add(t, begin[a], dim[a]),
                                   sym_add(t, x->dim[a], sym_add(t, lo[a], hi[a])));
        if (w->open)                                 /* without tiles the windows end within x */
            more = side_of(g, w) < 0 ? uop_int(t, 0) : excess_of(g, side_of(g, w));
        hi[a] = sym_max(t, sym_add(t, hi[a], more), uop_int(t, 0));
    }
    x = uop_pad(t, x, uop_constf(t, x->dtype, 0.0), lo, hi);
    x = uop_shrink(t, x, begin, dim);
    for (int a = 0; a < x->ndim; a++) {              /* splits the axes of groups and channels */
        const struct window *w = window[a];
        int64_t d = w && side_of(g, w) >= 0 ? w->dilation : 1;
        if (w)
            axis_of[ndim] = w->out, dim[ndim++] = sym_div(t, x->dim[a], uop_int(t, d));
        if (d > 1)
            axis_of[ndim] = w->out, dim[ndim++] = uop_int(t, d);
        for (int i = 0; i < l->npart[a]; i++)
            axis_of[ndim] = l->part[a][i], dim[ndim++] = l->product->dim[l->part[a][i]];
    }
    return uop_reshape(t, x, dim, ndim);
}

/* x as [index within a tile, the product's axes]. */
static struct uop *tiles_of_x(const struct tiling *g)
{
    const struct layer *l = g->l;
    struct tgc *t = l->t;
    int axis_of[MAX_RANK];
    struct uop *x = pad_to_tiles(g, axis_of);
    int ndim = x->ndim;
    for (int s = 0; s < g->nside; s++) {
        int a = 0;
        while (axis_of[a] != g->side[s]->out)
            a++;
        x = uop_window(t, x, a, tiles_of(g, s), uop_int(t, g->f[s].n), g->f[s].m, 1);
        memmove(axis_of + a + 2, axis_of + a + 1, (size_t)(ndim++ - a - 1) * sizeof *axis_of);
        axis_of[a + 1] = s - g->nside;
    }
    for (int a = 0; a < ndim; a++)
        axis_of[a] += g->nside;
    return contraction_arrange(t, x, axis_of, l->product->ndim + g->nside);
}

struct uop *place_part(struct tgc *t, struct uop *x, int lead, const int *at, int keep)
{
    struct uop *begin[MAX_RANK], *size[MAX_RANK];
    for (int a = 0; a < x->ndim; a++) {
        begin[a] = uop_int(t, a < lead ? at[a] : 0);
        size[a] = a < lead ? uop_int(t, 1) : x->dim[a];
    }
    return uop_reshape(t, uop_shrink(t, x, begin, size), size + lead - keep, x->ndim - lead + keep);
}

/* Applies the windows without tiles to V. */
static struct uop *walk_windows(const struct tiling *g, struct uop *v)
{
    const struct layer *l = g->l;
    struct tgc *t = l->t;
    for (int i = 0; i < l->nwindow; i++) {
        const struct window *w = &l->window[i];
        int perm[MAX_RANK], out = w->out + 1, tap = w->tap + 1 + (w->tap > w->out);
        if (side_of(g, w) >= 0)
            continue;
        v = uop_window(t, v, out, w->dim, uop_int(t, w->taps), w->stride, w->dilation);
        for (int a = 0; a < v->ndim; a++)
            perm[a] = a == out + 1 ? tap : a == tap ? out + 1 : a;
        v = tensor_drop_axes(t, uop_permute(t, v, perm), 1u << (out + 1));
    }
    return v;
}

/* V: [xi, the product's axes] */
static struct uop *transform_input(const struct tiling *g)
{
    struct tgc *t = g->l->t;
    struct uop *d[PLACES_MAX], *v[PLACES_MAX], *tiles = tiles_of_x(g);
    const struct matrix *by[SIDES_MAX] = {&g->f[0].input, &g->f[1].input};
    int ncol = g->nside == 2 ? g->f[1].n : 1;
    for (int i = 0; i < g->nplace; i++)
        d[i] = place_part(t, tiles, g->nside, (int[]){i / ncol, i % ncol}, 1);
    transform_apply(t, by, g->nside, d, v);
    return walk_windows(g, tensor_stack_along(t, 0, v, g->nplace));
}

/* The weight's distinct elements, with the axes of the product, in scratch; NULL: over the memory
 * limit.
 */
static float *weight_values(const struct layer *l, struct uop **dim, int64_t *nelem)
{
    struct tgc *t = l->t;
    struct uop *w = axes_keep(t, l->weight, l->of_weight);
    *nelem = 1;
    for (int p = 0; p < l->product->ndim; p++)
        *nelem = sat_mul(*nelem, size_of(dim[p] = w->dim[p]));
    size_t nbytes, room = mem_room(t);
    if (*nelem < 1 || !size_mul((size_t)*nelem, sizeof(float), &nbytes) || nbytes > room / 16)
        return NULL;
    struct eval_env env = {.budget = -1};
    float *data = scratch_array(t, (size_t)*nelem, sizeof *data);
    bool ok = view_copy_weight(t, w, data) || eval_store(t, w, *nelem, &env, data, NULL);
    return ok ? data : NULL;
}

/* Elements whose taps are transformed at once; their positions are stored side by side. */
enum { ABREAST = 16 };
typedef double abreast[ABREAST];

/* u = G g, or G g G^T */
static void transform_taps(const struct tiling *g, const abreast *tap, abreast *u)
{
    abreast half[SIDE_MAX * SIDE_MAX] = {{0}};
    const struct matrix *a = &g->f[0].weight, *b = &g->f[1].weight;
    int ncol = g->nside == 2 ? b->ncol : 1, nrow = g->nside == 2 ? b->nrow : 1;
    for (int i = 0; i < a->nrow; i++)
        for (int k = 0; k < a->ncol; k++)
            for (int j = 0; j < ncol; j++)
                for (int e = 0; e < ABREAST; e++)
                    half[i * ncol + j][e] += a->at[i][k] * tap[k * ncol + j][e];
    for (int i = 0; i < a->nrow; i++)
        for (int j = 0; j < nrow; j++) {
            double *sum = u[i * nrow + j];
            for (int e = 0; e < ABREAST; e++)
                sum[e] = 0;
            for (int k = 0; k < ncol; k++) {
                double f = g->nside == 2 ? b->at[j][k] : 1;
                for (int e = 0; e < ABREAST; e++)
                    sum[e] += half[i * ncol + k][e] * f;
            }
        }
}

/* Where U's elements are in the weight. below[p], step[p]: strides of axis p in U and in the
 * weight; row: how many elements of U are contiguous along its innermost axis, which is `inner`. */
struct taps { int ndim, inner; int64_t row, below[MAX_RANK], step[MAX_RANK]; };

static struct taps taps_of(struct uop *const *udim, struct uop *const *dim, int ndim)
{
    struct taps s = {.ndim = ndim, .row = 1};
    for (int p = ndim - 1; p >= 0; p--) {
        s.below[p] = p == ndim - 1 ? 1 : s.below[p + 1] * size_of(udim[p + 1]);
        s.step[p] = p == ndim - 1 ? 1 : s.step[p + 1] * size_of(dim[p + 1]);
        if (s.row == 1) {
            s.inner = p;
            s.row = size_of(udim[p]);
        }
    }
    return s;
}

/* The places of the first taps of n elements of U, from element i on. */
static void first_taps(const struct taps *s, int64_t i, int n, int64_t *from)
{
    for (int e = 0; e < n; e++) {
        if (e && (i + e) % s->row) {
            from[e] = from[e - 1] + s->step[s->inner];
            continue;
        }
        from[e] = 0;
        for (int64_t p = 0, rest = i + e; p < s->ndim; rest %= s->below[p++])
            from[e] += rest / s->below[p] * s->step[p];
    }
}

/* "Winograd F(4x4, 3x3)": outputs of a tile and taps, of each side that has tiles */
static const char *title_of(const struct tiling *g)
{
    struct tgc *t = g->l->t;
    const struct transform *f = g->f;
    if (g->nside == 1)
        return mem_printf(t, "Winograd F(%d, %d)", f->m, f->taps);
    return mem_printf(t, "Winograd F(%dx%d, %dx%d)", f[0].m, f[1].m, f[0].taps, f[1].taps);
}

/* U: [xi, the product's axes], a weight; NULL: over the memory limit. */
static struct uop *transform_weight(const struct tiling *g)
{
    const struct layer *l = g->l;
    struct tgc *t = l->t;
    struct uop *dim[MAX_RANK], *udim[MAX_RANK];
    int64_t nelem, stride[SIDES_MAX] = {1, 1}, size[MAX_RANK], from[ABREAST];
    int ndim = l->product->ndim, ntap = 1, ncol = g->nside == 2 ? g->f[1].taps : 1;
    struct mem_mark mark = scratch_mark(t);
    float *w = weight_values(l, dim, &nelem);
    if (!w) {
        scratch_release(t, mark);
        return NULL;
    }
    for (int s = 0; s < g->nside; s++) {
        ntap *= g->f[s].taps;
        for (int p = g->side[s]->tap + 1; p < ndim; p++)
            stride[s] *= size_of(dim[p]);
    }
    weight_dims(g, udim);
    struct taps places = taps_of(udim, dim, ndim);
    int64_t each = nelem / ntap;
    float *u = mem_array(t, (size_t)each * (size_t)g->nplace, sizeof *u);
    abreast tap[SIDE_MAX * SIDE_MAX] = {{0}}, place[PLACES_MAX];
    for (int64_t i = 0; i < each; i += ABREAST) {
        int n = each - i < ABREAST ? (int)(each - i) : ABREAST;
        first_taps(&places, i, n, from);
        for (int k = 0; k < ntap; k++) {
            const float *first = w + k / ncol * stride[0] + k % ncol * stride[1];
            for (int e = 0; e < n; e++)
                tap[k][e] = first[from[e]];
        }
        transform_taps(g, (const abreast *)tap, place);
        for (int k = 0; k < g->nplace; k++)
            for (int e = 0; e < n; e++)
                u[k * each + i + e] = (float)place[k][e];
    }
    scratch_release(t, mark);
    size[0] = g->nplace;
    for (int p = 0; p < ndim; p++)
        size[p + 1] = size_of(udim[p]);
    return tensor_made_of(tensor_from_data(t, DTYPE_F32, size, ndim + 1, u,
                                           (size_t)each * (size_t)g->nplace * sizeof *u, NULL),
                          tensor_weight_below(t, l->weight), title_of(g));
}

static void name_product(const struct tiling *g, struct uop *product)
{
    const struct layer *l = g->l;
    struct text s = {.t = l->t};
    const char *w = uop_get_axes(l->t, l->product);
    text_puts(&s, "xi");
    for (int p = 0; w && *w && p < l->product->ndim; p++) {
        size_t n = strcspn(w, " ");
        bool tile = false;
        for (int i = 0; i < g->nside; i++)
            tile |= p == g->side[i]->out;
        text_printf(&s, " %s%.*s", tile ? "tile_" : "", (int)n, w);
        w += n + (w[n] == ' ');
    }
    if (w)
        uop_name_axes(l->t, product, s.s);
}

/* Y: from M, [xi, the product's axes, reduced], to the shape of the original sum. An axis with
 * tiles consists of the tiles, the outputs in them and, with a dilation, its remainders. */
static struct uop *transform_output(const struct tiling *g, struct uop *sums)
{
    const struct layer *l = g->l;
    struct tgc *t = l->t;
    struct uop *m[PLACES_MAX], *y[PLACES_MAX], *row[SIDE_MAX], *dim[MAX_RANK], *zero[MAX_RANK];
    const struct matrix *by[SIDES_MAX] = {&g->f[0].output, &g->f[1].output};
    int at[SIDES_MAX] = {0}, n = 0, ncol = g->nside == 2 ? g->f[1].m : 1;
    for (int p = 0; p < l->product->ndim; p++) {
        int s = -1;
        for (int i = 0; i < g->nside; i++)
            s = g->side[i]->out == p ? i : s;
        int64_t d = s < 0 ? 1 : g->side[s]->dilation;
        dim[n++] = s < 0 ? l->reduce->dim[p] : tiles_of(g, s);
        if (s >= 0)
            at[s] = n, dim[n++] = uop_int(t, 1);
        if (d > 1)
            dim[n++] = uop_int(t, d);
    }
    for (int i = 0; i < g->nplace; i++)
        m[i] = place_part(t, sums, 1, &i, 0);
    transform_apply(t, by, g->nside, m, y);
    for (int i = 0; i < g->nout; i++)
        y[i] = uop_reshape(t, y[i], dim, n);
    for (int i = 0; i < g->f[0].m; i++)
        row[i] = tensor_stack_along(t, at[1], y + i * ncol, ncol);
    struct uop *r = tensor_stack_along(t, at[0], row, g->f[0].m);
    r = uop_new(t, OP_CONTIGUOUS, r->dtype, &r, 1, (union arg){0});
    for (int p = 0; p < l->product->ndim; p++) {
        dim[p] = l->reduce->dim[p];
        zero[p] = uop_int(t, 0);
    }
    for (int s = 0; s < g->nside; s++)
        dim[g->side[s]->out] = outputs_of(g, s);
    r = uop_reshape(t, r, dim, l->product->ndim);
    for (int s = 0; s < g->nside; s++)
        dim[g->side[s]->out] = l->product->dim[g->side[s]->out];
    return uop_shrink(t, r, zero, dim);
}

/* U = GgG' of the weights is computed at compile time. source: Lavin and Gray, Fast algorithms for
 * convolutional neural networks, 2015 */
static void begin_step(const struct tiling *g, const char *what)
{
    origin_begin_step(g->l->t, mem_printf(g->l->t, "%s, %s", title_of(g), what));
}

static struct uop *rewrite_layer(const struct layer *l, struct sides s)
{
    struct tgc *t = l->t;
    struct tiling g = make_tiling(l, s);
    struct uop *u = transform_weight(&g);
    if (!u)
        return NULL;
    begin_step(&g, "step 1 of 3: V = B'dB of each tile d of the input");
    struct uop *v = transform_input(&g);
    begin_step(&g, "step 2 of 3: M = UV at each place of a tile, summed over channels");
    struct uop *product = tensor_binary(t, OP_MUL, v, u);
    name_product(&g, product);
    uint32_t axes = REDUCE_AXES(l->reduce->arg.i);
    for (int i = 0; i < g.nside; i++)
        axes &= ~(1u << g.side[i]->tap);
    struct uop *sums = uop_reduce(t, OP_ADD, product, axes << 1);
    begin_step(&g, "step 3 of 3: Y = A'MA, the outputs of each tile");
    return transform_output(&g, sums);
}

/* ------------------------------------------------------------------------------------- the pass */

/* side 0: tiles as planned, where `at` is the next uop's index. */
struct winograd { int side, at; struct plan plan; };

/* Tiles of one side for all windows that they fit. */
static struct sides same_sides(const struct layer *l, int m)
{
    const struct sides all[] = {{.m = {m, m}}, {.m = {m, 1}}, {.m = {1, m}}};
    for (int i = l->nside > 1 ? 0 : 1; i < (l->nside > 1 ? 3 : 2); i++)
        if (sides_fit(l, all[i]))
            return all[i];
    return (struct sides){.m = {1, 1}};
}

static struct uop *rewrite(struct tgc *t, void *ctx, struct uop *u)
{
    struct winograd *w = ctx;
    const struct weighed *planned = w->side ? NULL : w->plan.layer[w->at++];
    struct layer l;
    if (!w->side && !planned)
        return NULL;
    struct mem_mark mark = scratch_mark(t);
    bool found = layer_find(t, u, &l);
    scratch_release(t, mark);
    if (!found)
        return NULL;
    struct sides s = planned ? planned->list[planned->taken] : same_sides(&l, w->side);
    int outer = t->current_origin;
    if (!s.apart && !sides_fit(&l, s))
        return NULL;
    t->current_origin = u->id < t->cap_uop_origin ? t->uop_origin[u->id] : 0;
    struct uop *r = s.apart ? taps_apart(&l) : rewrite_layer(&l, s);
    t->current_origin = outer;
    return r;
}

bool winograd_apply(struct tgc *t, struct graph *g, int side, conv_cost *cost)
{
    struct winograd w = {.side = side};
    g->layers_nbytes = room_of_layers(t, g);
    if (!side)
        w.plan = winograd_plan(t, g, cost);
    graph_rewrite(t, g, rewrite, &w);
    return true;
}

bool pass_winograd(struct tgc *t, struct graph *g)
{
    return t->no_winograd || t->math != DTYPE_VOID || winograd_apply(t, g, 0, NULL);
}
