/* extent.c - which elements of a tensor a kernel accesses, so that kernels that store parts of one
 * (a concat's) need no order.
 *
 * An offset is a sum of terms, each a factor times a bounded value. Two offsets never meet if the
 * range of one ends before the range of the other begins. They do not either if, for some factor P,
 * that holds for the remainders after multiples of P:
 *
 *      pixel * 96 +      channel      0 <= channel < 64        of each 96 elements the first 64
 *      pixel * 96 + 64 + channel      0 <= channel < 32        and the last 32
 *
 * Offsets are those of the AST, regardless of conditions: the set that is found may be larger than
 * the set that is accessed.
 */
#include "backends/device/device.h"

enum { MOST_TERMS = 16, MOST_REACHES = 48 };

struct term { int64_t factor, low, high; };
/* An access at first + the terms' sum, which lies within low .. high. */
struct reach { struct term term[MOST_TERMS]; int n; int64_t first, low, high; };
struct extent { struct reach *reach; int n; size_t cap; bool is_whole; };

static void add_term(struct reach *r, const struct uop *u, int64_t factor)
{
    int64_t c;
    if (uop_const_int(u, &c)) {
        r->first = sat_add(r->first, sat_mul(factor, c));
        return;
    }
    if (u->op == OP_MUL && uop_const_int(u->src[1], &c)) {
        factor = sat_mul(factor, c);
        u = u->src[0];
    }
    const int64_t a = sat_mul(factor, u->vmin), b = sat_mul(factor, u->vmax);
    r->term[r->n++] = (struct term){factor, a < b ? a : b, a < b ? b : a};
}

/* The terms of a sum; false: they are too many. */
static bool read_offset(struct reach *r, const struct uop *u)
{
    const struct uop *left[MOST_TERMS] = {u};
    int n = 1;
    while (n > 0) {
        u = left[--n];
        if (u->op == OP_ADD && n + 2 <= MOST_TERMS) {
            left[n++] = u->src[0];
            left[n++] = u->src[1];
        } else if (u->op == OP_ADD || r->n == MOST_TERMS) {
            return false;
        } else {
            add_term(r, u, 1);
        }
    }
    r->low = r->high = r->first;
    for (int i = 0; i < r->n; i++) {
        r->low = sat_add(r->low, r->term[i].low);
        r->high = sat_add(r->high, r->term[i].high);
    }
    return true;
}

/* Where the part begins in its root; false: the run says. */
static bool find_begin(const struct buffer *b, int64_t *first)
{
    int64_t at = 0, more;
    for (; b->base; b = b->base) {
        if (b->base_offset && !uop_const_int(b->base_offset, &more))
            return false;
        at = b->base_offset ? sat_add(at, more) : at;
    }
    *first = at;
    return true;
}

static void add_access(struct tgc *t, struct extent *e, const struct uop *u, int64_t begin)
{
    struct reach r = {.first = begin};
    e->is_whole |= e->n == MOST_REACHES || !read_offset(&r, u->src[1]);
    if (!e->is_whole)
        VEC_PUSH(t, e->reach, e->n, e->cap, r);
}

const struct extent *device_extent(struct tgc *t, const struct kernel *k, const struct buffer *b)
{
    struct extent *e = MEM_NEW(t, struct extent);
    const struct buffer *there = kernel_buffer_there(k, b);
    struct uop *ast = k->ast;
    int64_t begin = 0;
    e->is_whole = !there || !find_begin(b, &begin);
    struct mem_mark mark = scratch_mark(t);
    int n;
    struct uop **order = uop_toposort(t, &ast, 1, &n);
    for (int i = 0; i < n && !e->is_whole; i++)
        for (int s = 0; s < order[i]->nsrc && !e->is_whole; s++) {
            const struct uop *from = order[i]->src[s];
            if (from->op != OP_BUFFER || from->arg.p != there)
                continue;
            if ((order[i]->op == OP_LOAD || order[i]->op == OP_STORE) && s == 0)
                add_access(t, e, order[i], begin);
            else
                e->is_whole = true;
        }
    scratch_release(t, mark);
    return e;
}

/* The range of the access's remainder after multiples of p; false: unbounded. */
static bool find_rest(const struct reach *r, int64_t p, int64_t *low, int64_t *high)
{
    *low = *high = r->first;
    for (int i = 0; i < r->n; i++)
        if (r->term[i].factor % p != 0) {
            *low = sat_add(*low, r->term[i].low);
            *high = sat_add(*high, r->term[i].high);
        }
    const int64_t below = (*low % p + p) % p;
    *high = sat_add(below, sat_add(*high, sat_mul(*low, -1)));
    *low = below;
    return *high < p;
}

static bool is_apart(const struct reach *a, const struct reach *b)
{
    if (a->high < b->low || b->high < a->low)
        return true;
    for (int i = 0; i < a->n; i++) {
        const int64_t factor = a->term[i].factor, p = factor < 0 ? sat_mul(factor, -1) : factor;
        int64_t low[2], high[2];
        if (p > 1 && find_rest(a, p, &low[0], &high[0]) && find_rest(b, p, &low[1], &high[1]) &&
            (high[0] < low[1] || high[1] < low[0]))
            return true;
    }
    return false;
}

bool device_extents_meet(const struct extent *a, const struct extent *b)
{
    if (a->is_whole || b->is_whole)
        return true;
    for (int i = 0; i < a->n; i++)
        for (int k = 0; k < b->n; k++)
            if (!is_apart(&a->reach[i], &b->reach[k]))
                return true;
    return false;
}
