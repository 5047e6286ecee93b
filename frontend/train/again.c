/* again.c - less memory of a step for more time: parts of the forward computation are computed
 * again when the gradients need them.
 *
 *      order    x ... ┊ a ... ┊ b ... ┊ c ... loss       cuts where little lives on: a, b, c
 *      kept     x       a       b       the last segment, what is small, results of control
 *      backward of the last segment, then x' = after(b, d): that from b again, its backward,
 *      then the one before from a ...
 *
 * AFTER keeps the copy of a segment apart from the segment, and until d is there: the gradient that
 * goes into it. Elements that were compared with their maximum are both computed again, since
 * another kernel may round them otherwise.
 * source: Chen et al., Training deep nets with sublinear memory cost, 2016
 */
#include "frontend/train/train.h"

/* SMALL: elements of the largest value for one of a value that is kept. */
enum { SMALL = 64 };

struct again {
    const struct lib *l;
    struct tgc *t;
    struct uop **order; int n;      /* the forward part, in topological order */
    struct uop_map at;              /* its uops -> their number + 1 */
    double *nbytes;                 /* [n] of memory; 0: leaves, movement */
    int *last;                      /* [n] the last forward reader */
    bool *saved;                    /* [n] the backward part reads it */
    double small;                   /* elements */
    struct compute_again *made;
};

static int number_of(const struct again *a, const struct uop *u)
{
    return (int)(uintptr_t)map_get(&a->at, u) - 1;
}

static bool is_view(const struct uop *u)
{
    return op_class(u->op) == CLASS_MOVE && u->op != OP_CONCAT && u->op != OP_IOTA;
}

static struct uop *base_of(struct uop *u)
{
    while (is_view(u))
        u = u->src[0];
    return u;
}

static double nelem_of(struct tgc *t, const struct uop *u)
{
    return (double)sym_prod(t, u->dim, u->ndim)->vmax;
}

/* Whether u is larger than all that it is made of: a product under its sum, which no memory
 * holds. */
static bool is_spread(const struct again *a, const struct uop *u)
{
    double n = 0;
    for (int k = 0; k < u->nsrc; k++)
        n += nelem_of(a->t, base_of(u->src[k]));
    return op_is_elementwise(u->op) && nelem_of(a->t, u) > n;
}

static void measure_forward(struct again *a, struct uop *const *dx, int ndx)
{
    double most = 0;
    a->nbytes = mem_array(a->t, (size_t)a->n + 1, sizeof *a->nbytes);
    a->last = mem_array(a->t, (size_t)a->n + 1, sizeof *a->last);
    a->saved = mem_array(a->t, (size_t)a->n + 1, sizeof *a->saved);
    for (int i = 0; i < a->n; i++) {
        struct uop *u = a->order[i];
        map_set(&a->at, u, (void *)(uintptr_t)(i + 1));
        if (is_view(u) || op_class(u->op) == CLASS_LEAF || u->op == OP_IOTA || u->ndim == 0 ||
            is_spread(a, u))
            continue;
        a->nbytes[i] = nelem_of(a->t, u) * (double)dtype_nbytes(u->dtype);
        most = nelem_of(a->t, u) > most ? nelem_of(a->t, u) : most;
    }
    a->small = most / SMALL;
    for (int i = 0; i < a->n; i++)
        for (int k = 0; k < a->order[i]->nsrc; k++)
            a->last[number_of(a, base_of(a->order[i]->src[k]))] = i;
    for (int i = a->n - 1; i >= 0; i--)
        for (int k = 0; k < a->order[i]->nsrc && is_spread(a, a->order[i]); k++) {
            int x = number_of(a, base_of(a->order[i]->src[k]));
            a->last[x] = a->last[i] > a->last[x] ? a->last[i] : a->last[x];
        }
    int n;
    struct uop **order = uop_toposort(a->t, dx, ndx, &n);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < order[i]->nsrc && number_of(a, order[i]) < 0; k++) {
            int x = number_of(a, base_of(order[i]->src[k]));
            if (x >= 0)
                a->saved[x] = true;
        }
}

/* Where the segments begin: cut[0] = 0, and the others where the least lives on near their share of
 * what is saved. Returns their number. */
static int find_cuts(const struct again *a, int nsegment, int *cut)
{
    double *live = mem_array(a->t, (size_t)a->n + 2, sizeof *live), all = 0, before = 0;
    int n = 0;
    for (int i = 0; i < a->n; i++) {
        all += a->saved[i] ? a->nbytes[i] : 0;
        live[i + 1] += a->nbytes[i];
        live[a->last[i] > i ? a->last[i] + 1 : i + 1] -= a->nbytes[i];
    }
    for (int i = 0; i < a->n; i++)
        live[i + 1] += live[i];
    cut[n++] = 0;
    for (int i = 1, best = -1; i < a->n && n < nsegment; i++) {
        double share = all / nsegment, off = before - share * n;
        before += a->saved[i - 1] ? a->nbytes[i - 1] : 0;
        if (off >= -share / 2 && off <= share / 2 && i > cut[n - 1] && live[i] > 0 &&
            (best < 0 || live[i] <= live[best]))
            best = i;
        if (off > share / 2 || i == a->n - 1) {
            if (best > cut[n - 1])
                cut[n++] = best;
            else
                nsegment--;
            best = -1;
        }
    }
    return n;
}

/* ---------------------------------------------------------------------------------- one segment */

struct segment_again {
    struct again *a;
    int begin, end;
    struct uop *after;
    struct uop_map copy;            /* of forward values: the same computed again */
    struct uop_map to;              /* what the backward part reads instead */
};

static bool is_copied(const struct segment_again *s, int i)
{
    struct uop *u = s->a->order[i];
    bool has_value = op_is_elementwise(u->op) || op_class(u->op) == CLASS_MOVE ||
                     u->op == OP_REDUCE || u->op == OP_INDEX || u->op == OP_SCATTER ||
                     u->op == OP_CONTIGUOUS;
    return i >= s->begin && i < s->end && has_value && u->ndim > 0 &&
           (s->a->nbytes[i] == 0 || nelem_of(s->a->t, u) > s->a->small);
}

/* What of the model stays in memory of its own: inputs are read anew, weights as before. */
static bool is_constant(const struct uop *u)
{
    bool is_leaf = op_class(u->op) == CLASS_LEAF || u->op == OP_IOTA || u->ndim == 0;
    const struct buffer *b = u->op == OP_BUFFER ? uop_buffer_of(u) : NULL;
    return is_leaf &&
           !(b && b->kind == BUFFER_INPUT && !b->port.first && b->port.block == BLOCK_ARENA);
}

/* u as a copy reads it. */
static struct uop *copied(struct segment_again *s, struct uop *u)
{
    struct uop *c = map_get(&s->copy, u), *src[2] = {u, s->after};
    if (c || is_constant(u) || number_of(s->a, u) < 0)
        return c ? c : u;
    c = uop_new(s->a->t, OP_AFTER, u->dtype, src, 2, (union arg){0});
    map_set(&s->copy, u, c);
    return c;
}

static struct uop *rebuilt(struct segment_again *s, struct uop *u)
{
    struct tgc *t = s->a->t;
    struct uop **src = mem_array(t, (size_t)u->nsrc + 1, sizeof *src);
    for (int k = 0; k < u->nsrc; k++)
        src[k] = u->src[k]->ndim || k == 0 ? copied(s, u->src[k]) : u->src[k];
    struct uop *c = uop_new(t, u->op, u->dtype, src, u->nsrc, u->arg);
    uop_set_origin(t, c, u);
    if (uop_get_axes(t, u))
        uop_name_axes(t, c, uop_get_axes(t, u));
    return c;
}

static bool stays(const struct segment_again *s, int base)
{
    return base < s->begin || base >= s->end || !is_copied(s, base) ||
           (s->a->nbytes[base] > 0 && s->a->last[base] >= s->end);
}

/* Copies the segment, and says what of it is read instead of the first ones. */
static void copy_segment(struct segment_again *s)
{
    struct again *a = s->a;
    for (int i = 0; i < s->end; i++)
        if (is_copied(s, i) || (i < s->begin && a->nbytes[i] == 0 && a->order[i]->nsrc))
            map_set(&s->copy, a->order[i], rebuilt(s, a->order[i]));
    for (int i = 0; i < a->n; i++) {
        struct uop *u = a->order[i], *copy = map_get(&s->copy, u);
        bool stay = !is_copied(s, i) || stays(s, number_of(a, base_of(u)));
        map_set(&s->to, u, stay ? u : copy);
    }
}

/* A view, in the backward part, too, of what is computed again. */
static struct uop *moved(struct segment_again *s, struct uop *u)
{
    struct uop *copy = map_get(&s->copy, u);
    if (copy || !is_view(u))
        return copy && is_copied(s, number_of(s->a, u)) ? copy : u;
    struct uop **src = mem_copy(s->a->t, u->src, (size_t)u->nsrc * sizeof *src);
    src[0] = moved(s, src[0]);
    return uop_new(s->a->t, u->op, u->dtype, src, u->nsrc, u->arg);
}

/* Comparisons of floats of which one would be computed again, and the other not. */
static void copy_comparisons(struct segment_again *s, struct uop *const *order, int n)
{
    for (int i = 0; i < n; i++) {
        struct uop *u = order[i];
        if ((u->op != OP_EQ && u->op != OP_NE) || !dtype_is_float(u->src[0]->dtype) ||
            number_of(s->a, u) >= 0)
            continue;
        struct uop *x = moved(s, u->src[0]), *y = moved(s, u->src[1]);
        bool again = false;
        for (int k = 0; k < 2; k++) {
            struct uop *base = base_of(u->src[k]), *to = map_get(&s->to, base);
            again |= to && to != base;
        }
        if (again)
            map_set(&s->to, u, uop_binary(s->a->t, u->op, x, y));
    }
}

/* The value of the backward part, of those that do not depend on the segment's, that is computed
 * last and is read beside these: by the length of the path to it. NULL: there is none. */
static struct uop *find_after(const struct segment_again *s, struct uop *const *order, int n)
{
    struct again *a = s->a;
    struct uop_map number = {.t = a->t};
    int *level = mem_array(a->t, (size_t)n + 1, sizeof *level), most = 0;
    bool *of_segment = mem_array(a->t, (size_t)n + 1, sizeof *of_segment);
    struct uop *found = NULL;
    for (int i = 0; i < n; i++) {
        struct uop *u = order[i];
        map_set(&number, u, (void *)(uintptr_t)(i + 1));
        int own = number_of(a, u);
        if (own >= 0) {
            int base = number_of(a, base_of(u));
            of_segment[i] = is_copied(s, own) && !stays(s, base);
            continue;
        }
        for (int k = 0; k < u->nsrc; k++) {
            int x = (int)(uintptr_t)map_get(&number, u->src[k]) - 1;
            of_segment[i] |= of_segment[x];
            level[i] = level[x] >= level[i] ? level[x] + 1 : level[i];
        }
        for (int k = 0; k < u->nsrc && of_segment[i]; k++) {
            int x = (int)(uintptr_t)map_get(&number, u->src[k]) - 1;
            if (of_segment[x] || number_of(a, u->src[k]) >= 0 || level[x] <= most)
                continue;
            most = level[x];
            found = u->src[k];
        }
    }
    return found;
}

static void count(struct again *a, const struct segment_again *s)
{
    for (int i = s->begin; i < s->end; i++) {
        struct uop *u = a->order[i];
        if (!is_copied(s, i) || is_view(u))
            continue;
        double flop = u->op == OP_REDUCE ? 2 * nelem_of(a->t, u->src[0]) : nelem_of(a->t, u);
        a->made->flop += flop;
        if (!a->saved[i] || stays(s, i))
            continue;
        struct compute_again *made = a->made;
        VEC_PUSH(a->t, made->value, made->nvalue, made->cap_value,
                 ((struct again_value){u, a->nbytes[i]}));
        made->nbytes += a->nbytes[i];
    }
}

static bool compute_segment_again(struct again *a, int begin, int end, struct uop **dx, int ndx)
{
    struct segment_again s = {
        .a = a, .begin = begin, .end = end, .copy = {.t = a->t}, .to = {.t = a->t}};
    int n;
    struct uop **sorted = uop_toposort(a->t, dx, ndx, &n);
    struct uop **order = mem_copy(a->t, sorted, (size_t)(n + 1) * sizeof(struct uop *));
    s.after = find_after(&s, order, n);
    if (!s.after)
        return true;
    copy_segment(&s);
    copy_comparisons(&s, order, n);
    count(a, &s);
    return lib_copy(a->t, dx, ndx, NULL, &s.to);
}

bool train_compute_again(const struct lib *l, struct uop *loss, struct uop **dx, int ndx,
                         int nsegment, struct compute_again *made)
{
    struct tgc *t = l->t;
    struct again a = {.l = l, .t = t, .at = {.t = t}, .made = made};
    struct uop **order = uop_toposort(t, &loss, 1, &a.n);
    bool ok = true;
    a.order = mem_copy(t, order, (size_t)(a.n + 1) * sizeof(struct uop *));
    measure_forward(&a, dx, ndx);
    int *cut = mem_array(t, (size_t)nsegment + 1, sizeof *cut), n = find_cuts(&a, nsegment, cut);
    for (int i = 0; i < a.n; i++)
        made->all += a.order[i]->op == OP_REDUCE ? 2 * nelem_of(t, a.order[i]->src[0])
                                                 : nelem_of(t, a.order[i]);
    for (int k = n - 2; k >= 0 && ok; k--)
        ok = compute_segment_again(&a, cut[k], cut[k + 1], dx, ndx);
    return ok;
}
