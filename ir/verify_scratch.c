/* verify_scratch.c - proves that what a kernel reads of its scratch was stored before: in the same
 * iteration of the loops that contain both, and by the same thread.
 *
 *      for band                       D: the innermost loop that the load shares with any store
 *        for i < 6   t[i] = ...          before it
 *        for j < 4   ... = t[j + 2]
 *
 * Fix the counters of D and the loops around it. The stores before a load run all iterations of
 * their own loops, so the set of elements that they write is known. So is the set that the load
 * reads, which must be a subset. Offsets are affine: sums of coefficients times loop counters and
 * other atoms. An atom with the same coefficient in all offsets shifts both sets equally and is
 * left out; every other counter and symbol of the common loops is enumerated. So this is a proof
 * for all iterations, not a test of some. The sets are bitmaps, marked and compared by contiguous
 * runs: loops with affine offsets make boxes, and the contiguous elements of a box are one run.
 *
 * A store does not count if threads share one of its own loops: a thread runs only a part of it.
 * Nor does it if one of its own conditions cannot be evaluated. Nor if its offset is invariant in
 * one of its own loops: that leaves only the last iteration's value.
 *
 * What cannot be decided (an offset that is data, more iterations than the budget; memory with two
 * halves, of which the iteration before has stored one) is counted.
 */
#include <string.h>

#include "ir/device_ops.h"

enum {
    TERMS_MAX = 40,
    DEPTH_MAX = 96,
    NEEDED_MAX = 16,
    BUDGET = 1 << 20,            /* runs stored and read, for one program */
    RUN_NELEM = 64,              /* elements that cost as much to store or read as starting a run */
    ELEMENTS_MAX = 1 << 24       /* elements of a buffer */
};

/* An affine form: coefficients times atoms (RANGEs, VARs, and other expressions). */
struct term { const struct uop *atom; int64_t times; };
struct form { struct term term[TERMS_MAX]; int n; int64_t constant; };

struct region { const struct uop *opener; int parent, depth; };
struct access {
    const struct uop *u;
    const struct buffer *buffer;
    int region;
    struct form form;
};
/* Values of the counters and symbols that are fixed at the moment. */
struct value { const struct uop *of; int64_t is; };

struct scratch_verifier {
    struct tgc *t;
    const char *after;
    struct region *region; int nregion; size_t cap_region;
    struct access *access; int naccess; size_t cap_access;
    struct value value[DEPTH_MAX]; int nvalue;
    const struct uop *needed[NEEDED_MAX]; int nneeded;
    int common;                  /* D */
    unsigned char *bits; int64_t nelem, origin;
    bool moved;                  /* atoms common to all offsets were left out */
    int64_t left;                /* of the budget */
    bool unknown;                /* undecidable */
    bool unsure;                 /* whether the current access runs at all is not known */
    const char *unfit;           /* why a store of the group does not count; NULL: all do */
};

/* An access with its own loops and conditions, inside D, outermost first. */
struct walk {
    const struct access *a;
    int *path, n;
    const char *unfit;           /* a store: why it does not count; NULL: it does */
    bool *once;                  /* the offset is invariant in the loop */
    int linear;  /* from path[linear] on there are only loops, with affine offsets: a box */
};

static _Noreturn void scratch_violation(const struct scratch_verifier *v, const struct access *a,
                                        int64_t at, const char *what)
{
    struct text line = {.t = v->t};
    uop_print(&line, a->u);
    TGC_BUG(v->t, "after %s: %s of scratch %d: %s (element %lld of %lld)%s; it is %.200s", v->after,
            op_name(a->u->op), a->buffer->id, what, (long long)at, (long long)v->nelem,
            v->unfit ? v->unfit : "", line.s ? line.s : "");
}

/* ---------------------------------------------------------------------------------------- forms */

static bool form_add(struct form *f, const struct uop *atom, int64_t times)
{
    for (int i = 0; i < f->n; i++)
        if (f->term[i].atom == atom)
            return !__builtin_add_overflow(f->term[i].times, times, &f->term[i].times);
    if (f->n == TERMS_MAX)
        return false;
    f->term[f->n++] = (struct term){atom, times};
    return true;
}

/* f += times * u. Index arithmetic is small, so recursion is no deeper than a sum has terms. */
static bool form_of(struct form *f, const struct uop *u, int64_t times)
{
    int64_t c, product;
    switch (u->op) {
    case OP_CONST:
        return !__builtin_mul_overflow(u->arg.i, times, &product) &&
               !__builtin_add_overflow(f->constant, product, &f->constant);
    case OP_ADD: return form_of(f, u->src[0], times) && form_of(f, u->src[1], times);
    case OP_SUB: return form_of(f, u->src[0], times) && form_of(f, u->src[1], -times);
    case OP_MUL:
        if (uop_const_int(u->src[1], &c) && !__builtin_mul_overflow(c, times, &product))
            return form_of(f, u->src[0], product);
        return form_add(f, u, times);
    default: return form_add(f, u, times);
    }
}

static int64_t times_of(const struct access *a, const struct uop *atom)
{
    for (int i = 0; i < a->form.n; i++)
        if (a->form.term[i].atom == atom)
            return a->form.term[i].times;
    return 0;
}

/* --------------------------------------------------------------------------------------- values */

static bool find_value(const struct scratch_verifier *v, const struct uop *u, int64_t *is)
{
    for (int i = v->nvalue - 1; i >= 0; i--)
        if (v->value[i].of == u) {
            *is = v->value[i].is;
            return true;
        }
    return false;
}

static bool evaluate(const struct scratch_verifier *v, const struct uop *u, int64_t *is);

/* A conjunction with a side that is false is false, whatever the other one loads; so is a true
 * disjunction. */
static bool evaluate_side(const struct scratch_verifier *v, const struct uop *u, int64_t *is)
{
    if (u->dtype != DTYPE_BOOL || (u->op != OP_AND && u->op != OP_OR))
        return false;
    for (int k = 0; k < 2; k++)
        if (evaluate(v, u->src[k], is) && (*is != 0) == (u->op == OP_OR))
            return true;
    return false;
}

/* The value of an expression of fixed counters and symbols; false: it depends on something else. */
static bool evaluate(const struct scratch_verifier *v, const struct uop *u, int64_t *is)
{
    union scalar src[3], r;
    if (u->op == OP_CONST && !dtype_is_float(u->dtype)) {
        *is = u->arg.i;
        return true;
    }
    if (u->op == OP_RANGE || u->op == OP_VAR)
        return find_value(v, u, is);
    if (!op_is_elementwise(u->op) || u->nsrc > 3 || dtype_is_float(u->dtype) ||
        dtype_is_float(u->src[u->nsrc - 1]->dtype))
        return false;
    for (int k = 0; k < u->nsrc; k++)
        if (!evaluate(v, u->src[k], &src[k].i))
            return evaluate_side(v, u, is);
    if (!scalar_apply(u->op, u->dtype, u->src[u->op == OP_WHERE]->dtype, src, &r))
        return false;
    *is = r.i;
    return true;
}

static bool depends(struct tgc *t, const struct uop *u, const struct uop *on)
{
    if (u == on)
        return true;
    if (u->op == OP_CONST || u->op == OP_VAR || (u->op == OP_RANGE && u->src[0]->op == OP_CONST))
        return false;
    struct mem_mark mark = scratch_mark(t);
    struct uop *root = (struct uop *)(uintptr_t)u;
    int n;
    bool found = false;
    struct uop **order = uop_toposort(t, &root, 1, &n);
    for (int i = 0; i < n && !found; i++)
        found = order[i] == on;
    scratch_release(t, mark);
    return found;
}

/* -------------------------------------------------------------------------------- what is where */

static void collect(struct scratch_verifier *v, struct uop *const *u, int n)
{
    int current = 0;
    SCRATCH_PUSH(v->t, v->region, v->nregion, v->cap_region, ((struct region){NULL, -1, 0}));
    for (int i = 0; i < n; i++) {
        if (u[i]->op == OP_RANGE || u[i]->op == OP_GUARD) {
            struct region r = {u[i]->op == OP_RANGE ? u[i] : u[i]->src[0], current,
                               v->region[current].depth + 1};
            SCRATCH_PUSH(v->t, v->region, v->nregion, v->cap_region, r);
            current = v->nregion - 1;
        } else if (u[i]->op == OP_END || u[i]->op == OP_ENDGUARD) {
            current = v->region[current].parent;
        }
        const struct buffer *b =
            u[i]->op == OP_LOAD || u[i]->op == OP_STORE ? uop_buffer_of(u[i]->src[0]) : NULL;
        if (!b || b->kind != BUFFER_SCRATCH || b->scratch.space == SPACE_GLOBAL)
            continue;
        struct access a = {.u = u[i], .buffer = b, .region = current};
        if (!form_of(&a.form, u[i]->src[1], 1)) {
            a.form = (struct form){0};
            (void)form_add(&a.form, u[i]->src[1], 1);
        }
        SCRATCH_PUSH(v->t, v->access, v->naccess, v->cap_access, a);
    }
}

static int common_region(const struct scratch_verifier *v, int a, int b)
{
    while (a != b)
        if (v->region[a].depth > v->region[b].depth)
            a = v->region[a].parent;
        else
            b = v->region[b].parent;
    return a;
}

/* Whether the region is D or contains it. */
static bool is_common(const struct scratch_verifier *v, int region)
{
    return common_region(v, region, v->common) == region;
}

/* Whether a counter belongs to one of the access's own loops, inside D. */
static bool is_own(const struct scratch_verifier *v, const struct access *a, const struct uop *r)
{
    for (int i = a->region; !is_common(v, i); i = v->region[i].parent)
        if (v->region[i].opener == r)
            return true;
    return false;
}

/* Marks the counters and symbols that u depends on, except for the access's own, to be enumerated.
 * false: it depends on something else, or on too many. */
static bool need(struct scratch_verifier *v, const struct access *a, const struct uop *u)
{
    if (u->op == OP_CONST || (u->op == OP_RANGE && u->src[0]->op == OP_CONST && is_own(v, a, u)))
        return true;
    struct mem_mark mark = scratch_mark(v->t);
    struct uop *root = (struct uop *)(uintptr_t)u;
    int n;
    bool ok = true;
    struct uop **order = uop_toposort(v->t, &root, 1, &n);
    for (int i = 0; i < n && ok; i++) {
        const struct uop *x = order[i];
        if (x->op != OP_RANGE && x->op != OP_VAR) {
            ok = x->op == OP_CONST || (op_is_elementwise(x->op) && !dtype_is_float(x->dtype));
            continue;
        }
        bool known = is_own(v, a, x);
        for (int k = 0; k < v->nneeded && !known; k++)
            known = v->needed[k] == x;
        ok = known || v->nneeded < NEEDED_MAX;
        if (!known && ok)
            v->needed[v->nneeded++] = x;
    }
    scratch_release(v->t, mark);
    return ok;
}

/* ---------------------------------------------------------------------------------- enumerating */

/* Marks or checks elements [at, at + n) of the offsets: stored, or read. */
static void visit_run(struct scratch_verifier *v, const struct access *a, int64_t at, int64_t n)
{
    v->left -= 1 + n / RUN_NELEM;
    if (!v->moved && !v->unsure && (at < 0 || n > v->nelem - at))
        scratch_violation(v, a, at < 0 || at >= v->nelem ? at : v->nelem, "it is out of bounds");
    if (at < -v->origin || n > v->nelem + v->origin - at) {
        v->unknown = true;
        return;
    }
    at += v->origin;
    if (a->u->op == OP_STORE) {
        memset(v->bits + at, 1, (size_t)n);
        return;
    }
    const unsigned char *hole = memchr(v->bits + at, 0, (size_t)n);
    if (hole && v->unsure)
        v->unknown = true;
    else if (hole)
        scratch_violation(v, a, hole - v->bits - v->origin,
                          "reads what nothing stored before it in this iteration");
}

/* The offset, without the atoms common to all. */
static bool offset_of(struct scratch_verifier *v, const struct access *a, int64_t *offset)
{
    *offset = a->form.constant;
    for (int i = 0; i < a->form.n; i++) {
        const struct uop *atom = a->form.term[i].atom;
        int64_t is, product;
        bool leaf = atom->op == OP_RANGE || atom->op == OP_VAR;
        if (leaf ? !find_value(v, atom, &is) : !evaluate(v, atom, &is))
            is = 0;  /* a box's counter, or an atom of is_moving_all() */
        if (__builtin_mul_overflow(a->form.term[i].times, is, &product) ||
            __builtin_add_overflow(*offset, product, offset))
            return false;
    }
    return true;
}

static bool is_masked(const struct access *a) { return a->u->op == OP_LOAD && a->u->nsrc == 4; }

/* Whether the range affects the elements in another way than by a coefficient: through the mask,
 * conditions, sizes of inner loops, or non-affine atoms. */
static bool bends(struct scratch_verifier *v, const struct walk *w, const struct uop *range,
                  int from)
{
    const struct form *f = &w->a->form;
    for (int i = 0; i < f->n; i++)
        if (f->term[i].times && f->term[i].atom != range && depends(v->t, f->term[i].atom, range))
            return true;
    for (int i = from; i < w->n; i++) {
        const struct uop *inner = v->region[w->path[i]].opener;
        if (depends(v->t, inner->op == OP_RANGE ? inner->src[0] : inner, range))
            return true;
    }
    return is_masked(w->a) && depends(v->t, w->a->u->src[2], range);
}

/* Evaluates the access's own condition. false: it does not run. */
static bool passes_mask(struct scratch_verifier *v, const struct access *a)
{
    int64_t is;
    if (!is_masked(a))
        return true;
    bool known = evaluate(v, a->u->src[2], &is);
    v->unsure |= !known;
    return !known || is;
}

/* Elements first + sum of i[k] * times[k] for all i[k] < n[k]. */
struct box { int64_t first, times[DEPTH_MAX + 3], n[DEPTH_MAX + 3]; int ndim; };

/* Adds an axis, sorted by stride. false: overflow. */
static bool box_add(struct box *b, int64_t times, int64_t n)
{
    int64_t back;
    if (n <= 1 || !times)
        return true;
    if (times < 0) {
        if (__builtin_mul_overflow(times, n - 1, &back) ||
            __builtin_add_overflow(b->first, back, &b->first))
            return false;
        times = -times;
    }
    int k = b->ndim++;
    for (; k > 0 && b->times[k - 1] > times; k--) {
        b->times[k] = b->times[k - 1];
        b->n[k] = b->n[k - 1];
    }
    b->times[k] = times;
    b->n[k] = n;
    return true;
}

static bool box_add_lanes(struct box *b, const struct access *a)
{
    int64_t bits = a->u->arg.i;
    if (!bits)
        return true;
    int64_t panel = a->buffer->scratch.panel,
            row = panel ? PANEL_ROW_NBYTES / (int64_t)dtype_nbytes(a->buffer->dtype) : 1;
    if (TILE_IS(bits) && panel && TILE_COLUMNS(bits) > row)
        return box_add(b, 1, row) && box_add(b, row, TILE_ROWS(bits)) &&
               box_add(b, panel, TILE_COLUMNS(bits) / row);
    if (TILE_IS(bits))
        return box_add(b, 1, TILE_COLUMNS(bits)) && box_add(b, TILE_STRIDE(bits), TILE_ROWS(bits));
    int64_t stride = VECTOR_STRIDE(bits), part = VECTOR_PART(bits) ? VECTOR_PART(bits)
                                                                   : VECTOR_LANES(bits);
    if (a->u->op != OP_LOAD || !VECTOR_IS_GROUPS(bits) || stride == 1)
        return box_add(b, stride, part);
    return part % DOT_BYTES == 0 && box_add(b, 1, part / DOT_BYTES) &&
           box_add(b, stride, DOT_BYTES);
}

/* A run of an access; of a tile in panels chunk by chunk, each where it lies. */
static void visit_chunks(struct scratch_verifier *v, const struct access *a, int64_t at,
                         int64_t run)
{
    const int64_t nbytes = (int64_t)dtype_nbytes(a->buffer->dtype),
                  chunk = PANEL_CHUNK_NBYTES / nbytes;
    if (!a->buffer->scratch.panel || !TILE_IS(a->u->arg.i) || at < 0) {
        visit_run(v, a, at, run);
        return;
    }
    for (int64_t n; run > 0 && v->left >= 0; at += n, run -= n) {
        n = chunk - at % chunk < run ? chunk - at % chunk : run;
        visit_run(v, a, bulk_swizzled(at * nbytes, PANEL_ROW_NBYTES) / nbytes, n);
    }
}

/* All runs of a box; elements that are contiguous or overlap are one run. */
static bool visit_box(struct scratch_verifier *v, const struct access *a, const struct box *b)
{
    int64_t run = 1, i[DEPTH_MAX + 3], at = b->first, reach = b->first;
    int from = 0;
    for (int k = 0; k < b->ndim; k++) {
        int64_t far;
        i[k] = 0;
        if (__builtin_mul_overflow(b->times[k], b->n[k] - 1, &far) ||
            __builtin_add_overflow(reach, far, &reach))
            return false;
        if (from == k && b->times[k] <= run) {
            run += far;
            from = k + 1;
        }
    }
    for (;;) {
        int k = from;
        visit_chunks(v, a, at, run);
        if (v->left < 0 || v->unknown)
            return true;
        for (; k < b->ndim && ++i[k] == b->n[k]; k++) {
            at -= b->times[k] * (b->n[k] - 1);
            i[k] = 0;
        }
        if (k == b->ndim)
            return true;
        at += b->times[k];
    }
}

/* The loops from path[k] on, which make a box. false: a size is not known. */
static bool walk_box(struct scratch_verifier *v, const struct walk *w, int k)
{
    struct box b;                /* its axes are set as they are added: boxes are many */
    b.ndim = 0;
    if (!offset_of(v, w->a, &b.first) || !box_add_lanes(&b, w->a))
        return false;
    bool empty = false;
    for (int i = k; i < w->n; i++) {
        const struct uop *range = v->region[w->path[i]].opener;
        int64_t n;
        if (!evaluate(v, range->src[0], &n) || !box_add(&b, times_of(w->a, range), n))
            return false;
        empty |= n <= 0;
    }
    return empty || !passes_mask(v, w->a) || visit_box(v, w->a, &b);
}

/* The access in all iterations of its own loops from path[k] on. */
static void walk_from(struct scratch_verifier *v, const struct walk *w, int k)
{
    bool store = w->a->u->op == OP_STORE;
    int64_t is, n;
    if (v->left < 0 || v->unknown || (k >= w->linear && walk_box(v, w, k)))
        return;
    if (k == w->n) {
        v->unknown = true;
        return;
    }
    const struct uop *u = v->region[w->path[k]].opener;
    if (u->op != OP_RANGE) {
        bool known = evaluate(v, u, &is);
        v->unknown |= !known && store;
        v->unsure |= !known;
        if (!known || is)
            walk_from(v, w, k + 1);
        return;
    }
    bool sized = evaluate(v, u->src[0], &n);
    if (!sized) {
        v->unknown |= !w->once[k] || (store && u->src[0]->vmin < 1);
        v->unsure |= u->src[0]->vmin < 1;
        n = 1;
    }
    if (w->once[k])
        n = n > 0;
    struct value *value = &v->value[v->nvalue++];
    value->of = u;
    for (value->is = 0; value->is < n && v->left >= 0; value->is++)
        walk_from(v, w, k + 1);
    v->nvalue--;
}

/* The loops and conditions of an access inside D. */
static bool find_walk(struct scratch_verifier *v, const struct access *a, struct walk *w)
{
    int region = a->region, common = common_region(v, region, v->common);
    *w = (struct walk){.a = a, .n = v->region[region].depth - v->region[common].depth};
    if (w->n + v->nneeded >= DEPTH_MAX)
        return false;
    w->path = scratch_array(v->t, (size_t)w->n + 1, sizeof *w->path);
    w->once = scratch_array(v->t, (size_t)w->n + 1, sizeof *w->once);
    for (int i = w->n - 1; i >= 0; i--, region = v->region[region].parent)
        w->path[i] = region;
    w->linear = w->n;
    for (int i = w->n - 1; i >= 0; i--) {
        const struct uop *u = v->region[w->path[i]].opener;
        bool straight = u->op == OP_RANGE && !bends(v, w, u, i + 1);
        w->once[i] = straight && !times_of(a, u);
        if (straight && w->linear == i + 1)
            w->linear = i;
    }
    return true;
}

/* Why a store does not count: all iterations of its own loops must be this thread's, and must leave
 * their values. NULL: it counts. */
static const char *why_not(struct scratch_verifier *v, const struct walk *w)
{
    for (int i = 0; i < w->n; i++) {
        const struct uop *u = v->region[w->path[i]].opener;
        if (u->op != OP_RANGE)
            continue;
        if (range_is_shared(u))
            return "; a store of it is in a loop that threads share, and that ends before";
        /* each thread has one iteration, and its own element */
        bool own = w->a->buffer->scratch.is_register && range_is_item(u);
        if (!own && w->once[i] && u->src[0]->vmax > 1 &&
            !depends(v->t, w->a->u->src[2], w->a->u->src[0]))
            return "; a store of it is in a loop that stores it again, and that ends before";
    }
    return NULL;
}

static bool visit_access(struct scratch_verifier *v, const struct walk *w)
{
    v->unsure = false;
    walk_from(v, w, 0);
    return !v->unknown && v->left >= 0;
}

/* ----------------------------------------------------------------------------------- the groups */

/* Loads of one buffer with the same D and the same preceding stores. */
struct group {
    const struct access *const *store; int nstore;
    const struct access *const *load; int nload;
    struct walk *walk;           /* of the stores, then of the loads */
};

static const struct access *group_access(const struct group *g, int i)
{
    return i < g->nstore ? g->store[i] : g->load[i - g->nstore];
}

static bool is_outside(struct scratch_verifier *v, const struct access *a, const struct uop *atom)
{
    for (int i = a->region; !is_common(v, i); i = v->region[i].parent)
        if (v->region[i].opener->op == OP_RANGE && depends(v->t, atom, v->region[i].opener))
            return false;
    return true;
}

/* Whether an atom has the same coefficient in all offsets of the group: it shifts stored and read
 * elements equally. */
static bool is_moving_all(struct scratch_verifier *v, const struct group *g, const struct access *a,
                          const struct uop *atom)
{
    for (int i = 0; i < g->nstore + g->nload; i++) {
        const struct access *other = group_access(g, i);
        if (times_of(other, atom) != times_of(a, atom) || !is_outside(v, other, atom))
            return false;
    }
    return true;
}

/* Finds the counters and symbols to enumerate; false: something else matters. */
static bool find_needed(struct scratch_verifier *v, const struct group *g)
{
    struct uop_map moving = {.t = v->t, .scratch = true};
    static const char yes = 'y', no = 'n';
    v->nneeded = 0;
    v->moved = false;
    for (int i = 0; i < g->nstore + g->nload; i++) {
        const struct access *a = group_access(g, i);
        for (int k = 0; k < a->form.n; k++) {
            const struct uop *atom = a->form.term[k].atom;
            if (!a->form.term[k].times)
                continue;
            const void *known = map_get(&moving, atom);      /* the same atom shifts all offsets */
            if (!known) {
                known = is_moving_all(v, g, a, atom) ? &yes : &no;
                map_set(&moving, atom, (void *)(uintptr_t)known);
            }
            if (known == &yes)
                v->moved = true;
            else if (!need(v, a, atom))
                return false;
        }
        if (a->u->op == OP_LOAD && a->u->nsrc == 4)
            (void)need(v, a, a->u->src[2]);
        for (int r = a->region; !is_common(v, r); r = v->region[r].parent) {
            const struct uop *u = v->region[r].opener;
            (void)need(v, a, u->op == OP_RANGE ? u->src[0] : u);
        }
    }
    for (int i = 0; i < v->nneeded; i++)
        if (v->needed[i]->op == OP_RANGE && !need(v, g->load[0], v->needed[i]->src[0]))
            return false;
    return true;
}

static int depth_of(const struct scratch_verifier *v, const struct uop *u)
{
    for (int i = v->common; i > 0; i = v->region[i].parent)
        if (v->region[i].opener == u)
            return v->region[i].depth;
    return u->op == OP_VAR ? 0 : -1;
}

/* Symbols first, then loops from the outermost on; false: a counter belongs to no loop around D. */
static bool sort_needed(struct scratch_verifier *v)
{
    for (int i = 0; i < v->nneeded; i++) {
        const struct uop *u = v->needed[i];
        int k = i, depth = depth_of(v, u);
        if (depth < 0)
            return false;
        for (; k > 0 && depth_of(v, v->needed[k - 1]) > depth; k--)
            v->needed[k] = v->needed[k - 1];
        v->needed[k] = u;
    }
    return true;
}

/* False if a condition around D excludes the loads. */
static bool is_reached(const struct scratch_verifier *v)
{
    int64_t is;
    for (int i = v->common; i > 0; i = v->region[i].parent)
        if (v->region[i].opener->op != OP_RANGE && evaluate(v, v->region[i].opener, &is) && !is)
            return false;
    return true;
}

static bool check_iteration(struct scratch_verifier *v, const struct group *g)
{
    if (!is_reached(v))
        return true;
    size_t nbits = (size_t)(v->nelem + 2 * v->origin);
    memset(v->bits, 0, nbits);
    v->left -= (int64_t)(nbits / RUN_NELEM) + 1;
    for (int i = 0; i < g->nstore + g->nload; i++)
        if (!g->walk[i].unfit && !visit_access(v, &g->walk[i]))
            return false;
    return true;
}

/* Enumerates needed[k] and those after it. */
static bool check_from(struct scratch_verifier *v, const struct group *g, int k)
{
    if (k == v->nneeded)
        return check_iteration(v, g);
    const struct uop *u = v->needed[k];
    int64_t lo = 0, n;
    if (u->op == OP_VAR) {
        const struct var *var = u->arg.p;
        lo = var->min;
        if (__builtin_sub_overflow(var->max, lo, &n) || n == INT64_MAX)
            return false;
        n++;
    } else if (!evaluate(v, u->src[0], &n)) {
        return false;
    }
    bool ok = true;
    struct value *value = &v->value[v->nvalue++];
    value->of = u;
    for (int64_t i = 0; i < n && ok; i++) {
        value->is = lo + i;
        ok = v->left >= 0 && check_from(v, g, k + 1);
    }
    v->nvalue--;
    return ok;
}

/* Where atoms were left out, the bitmap does not show whether offsets are in bounds. */
static bool are_bounded(const struct group *g, int64_t nelem)
{
    for (int i = 0; i < g->nstore + g->nload; i++) {
        const struct uop *u = group_access(g, i)->u, *offset = u->src[1];
        int64_t lanes = u->arg.i ? VECTOR_LANES(u->arg.i) : 1;
        int64_t part = u->arg.i && VECTOR_PART(u->arg.i) ? VECTOR_PART(u->arg.i) : lanes;
        int64_t stride = u->arg.i ? VECTOR_STRIDE(u->arg.i) : 1;
        int64_t last = sat_mul(part - 1, stride);
        if (TILE_IS(u->arg.i))
            last = (TILE_ROWS(u->arg.i) - 1) * TILE_STRIDE(u->arg.i) + TILE_COLUMNS(u->arg.i) - 1;
        if (offset->vmin < 0 || sat_add(offset->vmax, last) >= nelem)
            return false;
    }
    return true;
}

static bool find_walks(struct scratch_verifier *v, struct group *g)
{
    int n = g->nstore + g->nload;
    g->walk = scratch_array(v->t, (size_t)n, sizeof *g->walk);
    v->unfit = NULL;
    for (int i = 0; i < n; i++) {
        if (!find_walk(v, group_access(g, i), &g->walk[i]))
            return false;
        if (i < g->nstore && (g->walk[i].unfit = why_not(v, &g->walk[i])))
            v->unfit = g->walk[i].unfit;
    }
    return true;
}

static bool prove_group(struct scratch_verifier *v, struct group *g)
{
    const struct buffer *b = g->load[0]->buffer;
    v->nelem = 1;
    for (int a = 0; a < b->ndim; a++)
        v->nelem = sat_mul(v->nelem, b->dim[a]->vmax > 0 ? b->dim[a]->vmax : 0);
    if (v->nelem > ELEMENTS_MAX || !find_needed(v, g) || !sort_needed(v) ||
        (v->moved && !are_bounded(g, v->nelem)) || !find_walks(v, g))
        return false;
    v->origin = v->moved ? v->nelem : 0;
    v->bits = scratch_array(v->t, (size_t)(v->nelem + 2 * v->origin) + 1, 1);
    v->unknown = false;
    v->nvalue = 0;
    return check_from(v, g, 0);
}

/* The innermost region that the load shares with a store before it; -1: none. */
static int find_common(const struct scratch_verifier *v, int load)
{
    int best = -1;
    for (int i = 0; i < load; i++) {
        const struct access *s = &v->access[i];
        if (s->buffer != v->access[load].buffer || s->u->op != OP_STORE)
            continue;
        int r = common_region(v, s->region, v->access[load].region);
        if (best < 0 || v->region[r].depth > v->region[best].depth)
            best = r;
    }
    return best;
}

/* Collects the group that starts with this load; false if the load is in one already. */
static bool find_group(struct scratch_verifier *v, int load, bool *taken, struct group *g)
{
    const struct access **list = scratch_array(v->t, (size_t)v->naccess, sizeof *list);
    const struct buffer *b = v->access[load].buffer;
    int n = 0;
    for (int i = 0; i < load; i++)
        if (v->access[i].buffer == b && v->access[i].u->op == OP_STORE)
            list[n++] = &v->access[i];
    *g = (struct group){.store = list, .nstore = n, .load = list + n};
    for (int i = load; i < v->naccess; i++) {
        if (v->access[i].buffer != b || taken[i])
            continue;
        if (v->access[i].u->op == OP_STORE)
            break;
        if (find_common(v, i) == v->common) {
            taken[i] = true;
            list[n++] = &v->access[i];
        }
    }
    g->nload = n - g->nstore;
    return g->nload > 0;
}

void scratch_verify(struct tgc *t, struct uop *const *u, int n, const char *after,
                    struct scratch_proof *proof)
{
    struct mem_mark mark = scratch_mark(t);
    struct scratch_verifier v = {.t = t, .after = after, .left = BUDGET};
    collect(&v, u, n);
    bool *taken = scratch_array(t, (size_t)v.naccess + 1, sizeof *taken);
    for (int i = 0; i < v.naccess; i++) {
        struct group g;
        if (taken[i] || v.access[i].u->op != OP_LOAD || (v.common = find_common(&v, i)) < 0)
            continue;
        struct mem_mark inner = scratch_mark(t);
        if (find_group(&v, i, taken, &g)) {
            bool proved = !v.access[i].buffer->scratch.pipeline.stages && prove_group(&v, &g);
            *(proved ? &proof->proved : &proof->open) += g.nload;
        }
        scratch_release(t, inner);
    }
    scratch_release(t, mark);
}
