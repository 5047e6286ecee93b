/* verify_scratch.c - what a kernel reads of its scratch, it stored before: in the same iteration of
 * the loops that both stand in, and in the same thread.
 *
 *      for band                       D: the innermost loop that the load shares with any store
 *        for i < 6   t[i] = ...          before it
 *        for j < 4   ... = t[j + 2]
 *
 * For fixed values of the loops around D, the stores before a load run through all of their own
 * loops, so the elements that they write are known; so are those that the load reads. The second
 * set has to be a part of the first. Elements are offsets, sums of coefficients times loop counters
 * and what is no such sum. What occurs in all offsets with the same coefficient moves both sets
 * alike and is left out; every other counter and symbol of the common loops is enumerated. So this
 * is a proof for all iterations, not a test of some. The sets are bitmaps.
 *
 * A store does not count if threads share a loop of its own, since a thread runs a part of it, or
 * if a condition of its own cannot be evaluated. A loop of its own that its offset does not depend
 * on leaves the last iteration's value alone: that is a violation of its own.
 *
 * What cannot be decided (an offset that is data, more iterations than the budget) is counted.
 */
#include <string.h>

#include "ir/ir.h"

enum {
    TERMS_MAX = 40,
    DEPTH_MAX = 96,
    NEEDED_MAX = 16,
    BUDGET = 1 << 22,            /* elements stored and read, of a program */
    ELEMENTS_MAX = 1 << 24       /* of a buffer */
};

/* Sum of coefficients times atoms: RANGEs, VARs, and expressions that are no such sum. */
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
    bool moved;                  /* what all offsets have in common was left out */
    int64_t left;                /* of the budget */
    bool unknown;                /* something cannot be decided */
    bool unsure;                 /* whether the access that is looked at runs at all */
};

static _Noreturn void scratch_violation(const struct scratch_verifier *v, const struct access *a,
                                        int64_t at, const char *what)
{
    struct text line = {.t = v->t};
    uop_print(&line, a->u);
    TGC_BUG(v->t, "after %s: %s of scratch %d: %s (element %lld of %lld); it is %.200s", v->after,
            op_name(a->u->op), a->buffer->id, what, (long long)at, (long long)v->nelem,
            line.s ? line.s : "");
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

/* f += times * u. Index arithmetic is small, and a sum no deeper than it has terms. */
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
            return false;
    if (!scalar_apply(u->op, u->dtype, u->src[u->op == OP_WHERE]->dtype, src, &r))
        return false;
    *is = r.i;
    return true;
}

static bool depends(struct tgc *t, const struct uop *u, const struct uop *on)
{
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

/* ----------------------------------------------------------------------------------- what is where */

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
        if (!b || b->kind != BUFFER_SCRATCH)
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

/* Whether the region is D or around it. */
static bool is_common(const struct scratch_verifier *v, int region)
{
    return common_region(v, region, v->common) == region;
}

/* Whether a counter belongs to a loop of the access's own, inside of D. */
static bool is_own(const struct scratch_verifier *v, const struct access *a, const struct uop *r)
{
    for (int i = a->region; !is_common(v, i); i = v->region[i].parent)
        if (v->region[i].opener == r)
            return true;
    return false;
}

/* Every counter and symbol that u depends on and that is not the access's own is to be enumerated.
 * false: it depends on something else, or on too much. */
static bool need(struct scratch_verifier *v, const struct access *a, const struct uop *u)
{
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

/* ----------------------------------------------------------------------------------- enumerating */

/* What is done at each element: NULL, or where the load reads what nobody stored. */
typedef void (*visitor)(struct scratch_verifier *v, const struct access *a, int64_t at);

static void mark_element(struct scratch_verifier *v, const struct access *a, int64_t at)
{
    (void)a;
    v->bits[at] = 1;
}

static void check_element(struct scratch_verifier *v, const struct access *a, int64_t at)
{
    if (!v->bits[at] && v->unsure)
        v->unknown = true;
    else if (!v->bits[at])
        scratch_violation(v, a, at - v->origin,
                          "reads what nothing stored before it in this iteration");
}

static void visit_lanes(struct scratch_verifier *v, const struct access *a, int64_t first,
                        visitor visit)
{
    int64_t bits = a->u->arg.i, stride = bits ? VECTOR_STRIDE(bits) : 1;
    int lanes = bits ? VECTOR_LANES(bits) : 1;
    int part = bits && VECTOR_PART(bits) ? VECTOR_PART(bits) : lanes;
    bool grouped = a->u->op == OP_LOAD && bits && VECTOR_IS_GROUPS(bits) && stride != 1;
    v->left -= part;
    for (int l = 0; l < part; l++) {
        int64_t at = first + (grouped ? l / DOT_BYTES + l % DOT_BYTES * stride : l * stride);
        if (!v->moved && (at < 0 || at >= v->nelem))
            scratch_violation(v, a, at, "it is out of bounds");
        at += v->origin;
        if (at < 0 || at >= v->nelem + 2 * v->origin) {
            v->unknown = true;
            return;
        }
        visit(v, a, at);
    }
}

/* The offset, without what is common to all. */
static bool offset_of(struct scratch_verifier *v, const struct access *a, int64_t *offset)
{
    *offset = a->form.constant;
    for (int i = 0; i < a->form.n; i++) {
        const struct uop *atom = a->form.term[i].atom;
        int64_t is, product;
        bool leaf = atom->op == OP_RANGE || atom->op == OP_VAR;
        if (leaf ? !find_value(v, atom, &is) : !evaluate(v, atom, &is))
            is = 0;                                   /* see cancel_common() */
        if (__builtin_mul_overflow(a->form.term[i].times, is, &product) ||
            __builtin_add_overflow(*offset, product, offset))
            return false;
    }
    return true;
}

static bool matters(struct scratch_verifier *v, const struct access *a, const struct uop *range,
                    const int *path, int from, int n)
{
    for (int i = 0; i < a->form.n; i++)
        if (a->form.term[i].times && depends(v->t, a->form.term[i].atom, range))
            return true;
    for (int i = from; i < n; i++) {
        const struct uop *inner = v->region[path[i]].opener;
        if (depends(v->t, inner->op == OP_RANGE ? inner->src[0] : inner, range))
            return true;
    }
    return a->u->op == OP_LOAD && a->u->nsrc == 4 && depends(v->t, a->u->src[2], range);
}

struct walk {
    const struct access *a;
    int path[DEPTH_MAX], n;
    bool once[DEPTH_MAX];        /* the loop changes no offset */
    visitor visit;
};

/* The access in all iterations of its own loops from path[k] on. */
static void walk_from(struct scratch_verifier *v, const struct walk *w, int k)
{
    const struct access *a = w->a;
    bool store = a->u->op == OP_STORE;
    int64_t is, n;
    if (v->left < 0 || v->unknown)
        return;
    if (k == w->n) {
        v->left--;
        if (!store && a->u->nsrc == 4) {
            bool known = evaluate(v, a->u->src[2], &is);
            if (known && !is)
                return;
            v->unsure |= !known;
        }
        if (!offset_of(v, a, &n))
            v->unknown = true;
        else
            visit_lanes(v, a, n, w->visit);
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

/* The loops and conditions of an access inside of D, outermost first. */
static bool find_path(struct scratch_verifier *v, struct walk *w)
{
    int region = w->a->region, common = common_region(v, region, v->common);
    w->n = v->region[region].depth - v->region[common].depth;
    if (w->n + v->nneeded >= DEPTH_MAX)
        return false;
    for (int i = w->n - 1; i >= 0; i--, region = v->region[region].parent)
        w->path[i] = region;
    for (int i = 0; i < w->n; i++) {
        const struct uop *u = v->region[w->path[i]].opener;
        w->once[i] = u->op == OP_RANGE && !matters(v, w->a, u, w->path, i + 1, w->n);
    }
    return true;
}

/* A store's own loops: all of their iterations must be this thread's, and leave something. */
static void check_own_loops(struct scratch_verifier *v, const struct walk *w)
{
    for (int i = 0; i < w->n; i++) {
        const struct uop *u = v->region[w->path[i]].opener;
        if (u->op != OP_RANGE)
            continue;
        if (RANGE_IS_THREAD(u->arg.i))
            scratch_violation(v, w->a, 0, "threads share a loop behind which it is read");
        if (w->once[i] && u->src[0]->vmax > 1 && !depends(v->t, w->a->u->src[2], w->a->u->src[0]))
            scratch_violation(v, w->a, 0, "a loop behind which it is read stores it again");
    }
}

static bool visit_access(struct scratch_verifier *v, const struct access *a, visitor visit)
{
    struct walk w = {.a = a, .visit = visit};
    if (!find_path(v, &w))
        return false;
    if (a->u->op == OP_STORE)
        check_own_loops(v, &w);
    v->unsure = false;
    walk_from(v, &w, 0);
    return !v->unknown && v->left >= 0;
}

/* ------------------------------------------------------------------------------------- the groups */

/* Loads of one buffer with the same D and the same stores before them. */
struct group {
    const struct access *const *store; int nstore;
    const struct access *const *load; int nload;
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

static int64_t times_of(const struct access *a, const struct uop *atom)
{
    for (int i = 0; i < a->form.n; i++)
        if (a->form.term[i].atom == atom)
            return a->form.term[i].times;
    return 0;
}

/* Whether an atom of a's offset stands in all offsets alike: it moves what is stored and what is
 * read by the same distance. */
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

/* Which counters and symbols have to be enumerated; false: something else matters. */
static bool find_needed(struct scratch_verifier *v, const struct group *g)
{
    v->nneeded = 0;
    v->moved = false;
    for (int i = 0; i < g->nstore + g->nload; i++) {
        const struct access *a = group_access(g, i);
        for (int k = 0; k < a->form.n; k++) {
            const struct uop *atom = a->form.term[k].atom;
            if (!a->form.term[k].times)
                continue;
            if (is_moving_all(v, g, a, atom))
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

/* Symbols first, then outer loops before inner ones; false: a counter is of no loop around D. */
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

/* False where a condition around D says that the loads do not run. */
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
    v->left -= (int64_t)(nbits / 16) + 1;
    for (int i = 0; i < g->nstore; i++)
        if (!visit_access(v, g->store[i], mark_element))
            return false;
    for (int i = 0; i < g->nload; i++)
        if (!visit_access(v, g->load[i], check_element))
            return false;
    return true;
}

/* All values of needed[k] and those behind it. */
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

/* Where offsets are moved, the bitmap does not say whether they are inside. */
static bool are_bounded(const struct group *g, int64_t nelem)
{
    for (int i = 0; i < g->nstore + g->nload; i++) {
        const struct uop *u = group_access(g, i)->u, *offset = u->src[1];
        int64_t lanes = u->arg.i ? VECTOR_LANES(u->arg.i) : 1;
        int64_t part = u->arg.i && VECTOR_PART(u->arg.i) ? VECTOR_PART(u->arg.i) : lanes;
        int64_t stride = u->arg.i ? VECTOR_STRIDE(u->arg.i) : 1;
        if (offset->vmin < 0 || sat_add(offset->vmax, sat_mul(part - 1, stride)) >= nelem)
            return false;
    }
    return true;
}

static bool prove_group(struct scratch_verifier *v, const struct group *g)
{
    const struct buffer *b = g->load[0]->buffer;
    v->nelem = 1;
    for (int a = 0; a < b->ndim; a++)
        v->nelem = sat_mul(v->nelem, b->dim[a]->vmax > 0 ? b->dim[a]->vmax : 0);
    if (v->nelem > ELEMENTS_MAX || !find_needed(v, g) || !sort_needed(v) ||
        (v->moved && !are_bounded(g, v->nelem)))
        return false;
    v->origin = v->moved ? v->nelem : 0;
    v->bits = scratch_array(v->t, (size_t)(v->nelem + 2 * v->origin) + 1, 1);
    v->unknown = false;
    v->nvalue = 0;
    return check_from(v, g, 0);
}

/* The innermost region that the load shares with a store before it; -1: there is none. */
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

/* The group that the load begins; true where it begins one. */
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
            bool proved = prove_group(&v, &g);
            *(proved ? &proof->proved : &proof->open) += g.nload;
        }
        scratch_release(t, inner);
    }
    scratch_release(t, mark);
}
