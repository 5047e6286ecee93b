/* split_keys.c - attention of few queries on a device: keys are split over several blocks, and
 * another kernel combines their partial results (Dao, Haziza, Massa, Sizov: Flash-Decoding).
 *
 *      block (part s, head, query):   x[j] = sum over e  q[e] * k[j, e],  m = max over j of s  x[j]
 *        part[.., s, f]     = sum over j  e^(x[j] - m) * v[j, f]      f < F
 *        part[.., s, F]     = sum over j  e^(x[j] - m)
 *        part[.., s, F + 1] = m
 *      y[.., f] = sum over s  c[s] * part[s, f]  /  sum over s  c[s] * part[s, F],
 *                 c[s] = e^(part[s, F + 1] - max over s  part[s, F + 1])
 *
 * F: the features of a value. Decoding has one query for each head, so there would be one block per
 * head: fewer blocks than a device has units, while each block reads all keys and values of its
 * head. The number of parts is fixed at compile time. The number of keys of a part may be known
 * only at run time, and some parts may have none. As in online_softmax.c a maximum of -inf counts
 * as 0 where it is subtracted.
 *
 * Cost model: bytes from memory (or from the cache, for queries that share keys), at most at the
 * rate that the loads in flight sustain; and a launch and the parts' bytes for each further kernel.
 *
 * needs: the AST of one segment, whose stages hold a row of scores and of their exponentials */
#include "passes/analysis/softmax.h"
#include "passes/kernel/online_softmax.h"
#include "passes/kernel/tile.h"

#include <math.h>

enum { PARTS_MOST = 64, KEYS_LEAST = 256, THREADS = 256, QUERIES = 8 };

struct parts {
    struct tgc *t;
    struct online of;            /* the kernel as it was */
    struct uop *column;          /* the store's range over features of the values */
    struct uop *row[MAX_RANK]; int nrow;       /* its others: heads, queries */
    int64_t n, columns;          /* number of parts; elements of each: features, then sum and
                                  * maximum */
    struct buffer *part;
};

/* ------------------------------------------------------------------------------------- the cost */

/* ns to read keys and values by `blocks` blocks for each of n parts. unique: the bytes of all of
 * them. */
static double reading_ns(const struct device_row *d, double blocks, double keys, double features,
                         double unique, double n)
{
    double asked = 4 * blocks * keys * features, threads = blocks * n * THREADS;
    double rate = threads * RATIO_GRID_FLIGHT / d->latency;
    double memory = unique / (rate < d->gbytes ? rate : d->gbytes);
    double cached =
        asked / (rate < d->gbytes * RATIO_GRID_CACHE ? rate : d->gbytes * RATIO_GRID_CACHE);
    return memory > cached ? memory : cached;
}

/* The number of parts that is fastest; 1: no split, by blocks of some queries if they share keys
 * (grid_attention.c). */
static int64_t choose_parts(const struct tgc *t, const struct parts *p, double unique)
{
    const struct device_row *d = t->device;
    double rows = 1, keys = (double)p->of.nkey->vmax, least = 0,
           shared = p->of.nrow ? (double)p->of.nrow->vmax : 1;
    double features = (double)p->of.dot->src[1]->src[0]->vmax + (double)(p->columns - 2);
    int64_t best = 1, most = device_local_nbytes(t) / 12;
    for (int i = 0; i < p->nrow; i++)
        rows *= (double)p->row[i]->src[0]->vmax;
    if (rows >= d->units && (keys <= (double)most || shared >= QUERIES / 2))
        return 1;
    shared = shared > QUERIES ? QUERIES : shared;
    for (int64_t n = 1; n <= PARTS_MOST && (n == 1 || (int64_t)keys / n >= KEYS_LEAST); n++) {
        double ns = reading_ns(d, n > 1 ? rows : rows / shared, keys, features, unique, (double)n);
        ns += n > 1 ? RATIO_GRID_LAUNCH +
                          2 * 4 * rows * (double)(n * p->columns) / (d->gbytes * RATIO_GRID_CACHE)
                    : 0;
        bool fits = ((int64_t)keys + n - 1) / n <= most;
        if (fits && (least <= 0 || ns < least))
            least = ns, best = n;
    }
    return best;
}

/* --------------------------------------------------------------------------------- what is made */

static struct uop *range_of(struct parts *p, struct uop *size, const char *name)
{
    struct uop *r = uop_range(p->t, size, p->t->next_range++);
    uop_name_axes(p->t, r, name);
    return r;
}

static struct uop *load(struct parts *p, struct uop *memory, enum dtype d, struct uop *at)
{
    struct uop *src[2] = {memory, at};
    return uop_intern(p->t, OP_LOAD, d, src, 2, (union arg){0});
}

static struct uop *reduce(struct parts *p, enum op op, struct uop *value, struct uop *r)
{
    struct uop *src[2] = {value, r};
    return uop_intern(p->t, OP_REDUCE, DTYPE_F32, src, 2,
                      (union arg){.i = ARG_PACK(REDUCE, op, 0)});
}

/* e^(x - most), 0 where nothing is visible. */
static struct uop *power_of(struct parts *p, struct uop *x, struct uop *most)
{
    struct tgc *t = p->t;
    struct uop *none = uop_binary(t, OP_EQ, most, uop_constf(t, DTYPE_F32, -(double)INFINITY));
    struct uop *top = uop_where(t, none, uop_constf(t, DTYPE_F32, 0), most);
    return uop_unary(t, OP_EXP, uop_binary(t, OP_SUB, x, top));
}

/* A row in scratch, one element for each of the part's keys. */
static struct uop *stage_row(struct parts *p, struct uop *value, struct uop *r)
{
    struct uop *src[3] = {value, r, r}, *dim = r->src[0];
    union arg memory = {.p = buffer_new(p->t, BUFFER_SCRATCH, DTYPE_F32, &dim, 1, NULL)};
    return uop_intern(p->t, OP_STAGE, DTYPE_F32, src, 3, memory);
}

/* The condition that the row sees the key, as far as its mask has bounds: hidden keys are not read,
 * nor those after a cache's end. NULL: all keys are seen. */
static struct uop *is_seen(struct parts *p, struct uop *key)
{
    struct tgc *t = p->t;
    const struct visible *v = &p->of.visible;
    struct uop *behind = v->begin ? uop_not(t, sym_lt(t, key, v->begin)) : NULL,
               *before = v->end ? sym_lt(t, key, v->end) : NULL;
    return !behind ? before : !before ? behind : uop_binary(t, OP_AND, behind, before);
}

/* u, computed for a key of the AST's range `from`, for key r of part s: nothing is read after the
 * last one. */
static struct uop *for_key(struct parts *p, struct uop *u, struct uop *from, struct uop *s,
                           struct uop *r, struct uop **valid)
{
    struct tgc *t = p->t;
    int64_t n;
    struct uop *key = sym_add(t, sym_mul(t, s, r->src[0]), r);
    bool whole = uop_const_int(p->of.nkey, &n) && n % p->n == 0;
    struct uop *exists = whole ? NULL : sym_lt(t, key, p->of.nkey), *seen = is_seen(p, key);
    *valid = !exists ? seen : !seen ? exists : uop_binary(t, OP_AND, exists, seen);
    u = uop_substitute(t, u, from, key);
    return *valid ? loads_if(t, u, *valid, r, s) : u;
}

/* Offset of a row's part in `part`. */
static struct uop *place_of(struct parts *p, struct uop *s)
{
    struct tgc *t = p->t;
    struct uop *at = uop_int(t, 0);
    for (int i = 0; i < p->nrow; i++)
        at = sym_add(t, sym_mul(t, at, p->row[i]->src[0]), p->row[i]);
    return sym_muli(t, sym_add(t, sym_muli(t, at, p->n), s), p->columns);
}

static struct uop *store_over(struct parts *p, struct uop *memory, struct uop *at,
                              struct uop *value, struct uop *s, struct uop *column)
{
    struct uop *src[MAX_RANK + 8] = {memory, at, value};
    int n = 3;
    for (int i = 0; i < p->nrow; i++)
        src[n++] = p->row[i];
    if (s)
        src[n++] = s;
    src[n++] = column;
    struct uop *store = uop_intern(p->t, OP_STORE, DTYPE_F32, src, n, (union arg){0});
    return uop_intern(p->t, OP_SINK, DTYPE_VOID, &store, 1, (union arg){0});
}

/* The kernel that computes the partial results. */
static struct uop *make_parts(struct parts *p)
{
    struct tgc *t = p->t;
    struct online *x = &p->of;
    struct uop *s = range_of(p, uop_int(t, p->n), "part"),
               *f = range_of(p, uop_int(t, p->columns), "column");
    struct uop *size = sym_ceildiv(t, x->nkey, p->n), *r = range_of(p, size, "j"), *valid;
    struct uop *value = for_key(p, x->scores->src[0], x->key, s, r, &valid);
    if (valid)
        value = uop_where(t, valid, value, uop_constf(t, DTYPE_F32, -(double)INFINITY));
    struct uop *scores = stage_row(p, value, r);
    r = range_of(p, size, "j");
    struct uop *most = reduce(p, OP_MAX, load(p, scores, DTYPE_F32, r), r);
    r = range_of(p, size, "j");
    value = power_of(p, load(p, scores, DTYPE_F32, r), most);
    if (x->scale != 1)
        value = uop_binary(t, OP_MUL, value, uop_constf(t, DTYPE_F32, x->scale));
    struct uop *power = stage_row(p, value, r);
    r = range_of(p, size, "j");
    struct uop *sum = reduce(p, OP_ADD, load(p, power, DTYPE_F32, r), r);
    r = range_of(p, size, "j");
    struct uop *is_value = sym_lt(t, f, uop_int(t, p->columns - 2)),
               *is_sum = sym_lt(t, f, uop_int(t, p->columns - 1));
    value =
        uop_substitute(t, for_key(p, x->values, x->product->src[1], s, r, &valid), p->column, f);
    value = loads_if(t, value, is_value, f, f);
    struct uop *weight = uop_substitute(t, x->weight, x->read, load(p, power, DTYPE_F32, r));
    struct uop *product = reduce(p, OP_ADD, uop_binary(t, OP_MUL, weight, value), r);
    value = uop_where(t, is_value, product, uop_where(t, is_sum, sum, most));
    return store_over(p, uop_buffer(t, p->part), sym_add(t, place_of(p, s), f), value, s, f);
}

/* Sums column `at` over all parts, each scaled by its factor. */
static struct uop *combine(struct parts *p, struct uop *most, struct uop *at)
{
    struct tgc *t = p->t;
    struct uop *s = range_of(p, uop_int(t, p->n), "part"), *place = place_of(p, s),
               *part = uop_buffer(t, p->part);
    struct uop *own = load(p, part, DTYPE_F32, sym_addi(t, place, p->columns - 1));
    struct uop *value = load(p, part, DTYPE_F32, sym_add(t, place, at));
    return reduce(p, OP_ADD, uop_binary(t, OP_MUL, power_of(p, own, most), value), s);
}

/* The kernel that combines the partial results. */
static struct uop *make_result(struct parts *p)
{
    struct tgc *t = p->t;
    const struct online *x = &p->of;
    struct uop *s = range_of(p, uop_int(t, p->n), "part"), *value = x->store->src[2];
    struct uop *most =
        load(p, uop_buffer(t, p->part), DTYPE_F32, sym_addi(t, place_of(p, s), p->columns - 1));
    most = reduce(p, OP_MAX, most, s);
    value = uop_substitute(t, value, x->product, combine(p, most, p->column));
    value = uop_substitute(t, value, x->sum, combine(p, most, uop_int(t, p->columns - 2)));
    value = uop_substitute(t, value, x->most, most);
    struct uop *now = uop_substitute(t, x->store, x->store->src[2], value);
    return uop_intern(t, OP_SINK, DTYPE_VOID, &now, 1, (union arg){0});
}

/* -------------------------------------------------------------------------------- which kernels */

static struct uop *row_load(struct tgc *t, struct uop *u, const struct uop *r)
{
    int n;
    struct uop **order = nest_order(t, u, &n), *found = NULL;
    for (int i = 0; i < n; i++)
        if (order[i]->op == OP_LOAD && order[i]->src[0]->op == OP_STAGE) {
            if (found || order[i]->nsrc > 2 || order[i]->src[1] != r || order[i]->src[0]->nsrc != 3)
                return NULL;
            found = order[i];
        }
    return found;
}

/* The store with rows of finished scores, if it kept what they are computed from: products that are
 * scaled or masked where they are read. */
static struct uop *keep_scores(struct tgc *t, struct uop *store)
{
    struct softmax s;
    int n;
    struct uop **order = uop_toposort(t, &store, 1, &n);
    for (int i = 0; i < n; i++) {
        struct uop *u = order[i];
        if (u->op != OP_STAGE || u->nsrc != 3 || !softmax_match(u->src[0], &s) ||
            s.most->nsrc != 2 || s.from->dtype != DTYPE_F32)
            continue;
        struct uop *read = row_load(t, s.from, u->src[1]),
                   *again = uop_substitute(t, s.from, u->src[1], s.most->src[1]);
        if (!read || read == s.from || s.most->src[0] != again)
            return store;
        struct uop *was = read->src[0], *r = was->src[1],
                   *src[3] = {uop_substitute(t, s.from, u->src[1], r), r, r}, *dim = r->src[0];
        src[0] = uop_substitute(t, src[0], uop_substitute(t, read, u->src[1], r), was->src[0]);
        union arg memory = {.p = buffer_new(t, BUFFER_SCRATCH, DTYPE_F32, &dim, 1, NULL)};
        struct uop *at[2] = {uop_intern(t, OP_STAGE, DTYPE_F32, src, 3, memory), s.most->src[1]};
        store = uop_substitute(t, store, again,
                               uop_intern(t, OP_LOAD, DTYPE_F32, at, 2, (union arg){0}));
        at[1] = u->src[1];
        return uop_substitute(t, store, s.from,
                              uop_intern(t, OP_LOAD, DTYPE_F32, at, 2, (union arg){0}));
    }
    return store;
}

/* Finds the store's ranges: one over features of known number, and those of the scores. */
static bool find_ranges(struct parts *p)
{
    struct uop *store = p->of.store;
    for (int i = store_first_range(store); i < store->nsrc; i++) {
        struct uop *r = store->src[i];
        bool of_scores = uop_depends_on(p->t, p->of.scores, r);
        if (!range_is(r, AXIS_LOOP) || (!of_scores && (p->column || range_fixed_size(r) < 1)) ||
            p->nrow == MAX_RANK - 3)
            return false;
        if (of_scores)
            p->row[p->nrow++] = r;
        else
            p->column = r;
    }
    return p->column && (store->src[2]->dtype == DTYPE_F32 || store->src[2]->dtype == DTYPE_F16) &&
           store_first_range(store) == 3;
}

static bool find_parts(struct tgc *t, const struct kernel *k, struct parts *p)
{
    *p = (struct parts){.t = t, .of = {.t = t}};
    if (k->ast->nsrc != 1 || k->is_serial)
        return false;
    p->of.store = keep_scores(t, online_without_conditions(t, k->ast->src[0]));
    if (!online_sums(&p->of) || !find_ranges(p))
        return false;
    visible_find(t, p->of.scores->src[0], p->of.key, p->of.dot, &p->of.visible);
    if (p->of.visible.is_finite)                        /* keys under a finite mask may count */
        p->of.visible = (struct visible){0};
    struct online of = {.t = t, .store = p->of.store};
    p->of.nrow = online_parts(&of) ? of.nrow : NULL;
    p->columns = range_fixed_size(p->column) + 2;
    double nbytes = 0;                                  /* of queries, keys, values, masks */
    for (int i = k->noutput; i < k->nbuffer; i++)
        nbytes += buffer_most_nbytes(k->buffer[i]);
    p->n = choose_parts(t, p, nbytes);
    return p->n > 1;
}

/* The kernel of the parts; k becomes that of the result. */
static struct kernel *split(struct tgc *t, struct kernel *k, struct parts *p)
{
    struct kernel *first = mem_copy(t, k, sizeof *k);
    struct uop *dim[MAX_RANK];
    for (int i = 0; i < p->nrow; i++)
        dim[i] = p->row[i]->src[0];
    dim[p->nrow] = uop_int(t, p->n);
    dim[p->nrow + 1] = uop_int(t, p->columns);
    p->part = buffer_new(t, BUFFER_TEMP, DTYPE_F32, dim, p->nrow + 2, NULL);
    const char *name = k->name, *title = k->title, *nodes = k->nodes;
    first->ast = make_parts(p);
    k->ast = make_result(p);
    first->by_blocks = k->by_blocks = false;
    kernel_describe(t, first);
    kernel_describe(t, k);
    first->name = mem_printf(t, "%s_parts", name);
    first->title = mem_printf(t, "%lld parts of the keys of %s", (long long)p->n, title);
    first->nodes = mem_printf(t, "%lld parts of the keys of %s", (long long)p->n, nodes);
    k->name = name;
    k->title = title;
    k->nodes = nodes;
    return first;
}

bool pass_split_keys(struct tgc *t, struct schedule *s)
{
    struct kernel **kernel = NULL;
    struct step *step = NULL;
    int nkernel = 0, nstep = 0;
    size_t cap_kernel = 0, cap_step = 0;
    struct parts p;
    if (!device_has_grid(t) || t->no_locals)
        return true;
    for (int i = 0; i < s->nstep; i++) {
        struct step st = s->step[i];
        if (st.kernel && find_parts(t, st.kernel, &p)) {
            struct step first = st;
            first.kernel = split(t, st.kernel, &p);
            first.kernel->index = nkernel;
            VEC_PUSH(t, kernel, nkernel, cap_kernel, first.kernel);
            VEC_PUSH(t, step, nstep, cap_step, first);
        }
        if (st.kernel) {
            st.kernel->index = nkernel;
            VEC_PUSH(t, kernel, nkernel, cap_kernel, st.kernel);
        }
        VEC_PUSH(t, step, nstep, cap_step, st);
    }
    s->kernel = kernel, s->nkernel = nkernel;
    s->step = step, s->nstep = nstep;
    return true;
}
