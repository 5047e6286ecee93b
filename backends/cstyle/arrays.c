/* arrays.c - tensors as arrays of several dimensions in portable C: x[c][oy*2 + ky][ox*2 + kx] for
 * what is x[c*784 + oy*56 + ox*2 + ky*28 + kx] in a kernel's program.
 *
 * An offset is a sum of products of loop counters and constants, which is divided by a dimension's
 * stride: the quotients make that dimension's index, the remainders those of the inner ones.
 *
 *      c*784 + oy*56 + ox*2 + ky*28 + kx
 *          by 784:  c,         remainder  oy*56 + ox*2 + ky*28 + kx
 *          by 28:   oy*2 + ky, remainder  ox*2 + kx
 *
 * A remainder has to be proved to be within the stride, by the bounds of the counters and by the
 * conditions around an access. A buffer is such an array if that holds for all accesses. Where it
 * does not, several dimensions count as one: a loop over all pixels of a plane makes it x[c][o].
 *
 * Offsets of vectors, but for words of bytes, and of unrolled code, and buffers that others than
 * loads and stores use, stay as they are.
 */
#include "backends/cstyle/writer.h"

#include <assert.h>
#include <string.h>

enum { MAX_TERMS = 10, MAX_DIMS = 6 };
static_assert(MAX_TERMS * MAX_DIMS <= ARRAY_TERMS, "the terms of all indices");

/* The sum of c and of u[i] times k[i]. */
struct sum { struct uop *u[MAX_TERMS]; int64_t k[MAX_TERMS]; int n; int64_t c; };

struct array_place { int n; struct sum index[MAX_DIMS]; };

/* ----------------------------------------------------------------------------------------- sums */

static bool add_term(struct sum *s, struct uop *u, int64_t k)
{
    int i = 0;
    while (i < s->n && s->u[i] != u)
        i++;
    if (i == s->n && s->n == MAX_TERMS)
        return false;
    if (i == s->n)
        s->u[s->n] = u, s->k[s->n++] = 0;
    return !__builtin_add_overflow(s->k[i], k, &s->k[i]);
}

/* Adds k times u. Sums of offsets are not deep: their terms are few. */
static bool add(struct sum *s, struct uop *u, int64_t k, int depth)
{
    int64_t v;
    bool plain = (u->arg.i & ARG_PLAIN) && dtype_is_int(u->dtype);
    if (depth > 2 * MAX_TERMS)
        return false;
    if (uop_const_int(u, &v))
        return !__builtin_mul_overflow(k, v, &v) && !__builtin_add_overflow(s->c, v, &s->c);
    if (plain && u->op == OP_ADD)
        return add(s, u->src[0], k, depth + 1) && add(s, u->src[1], k, depth + 1);
    if (plain && u->op == OP_SUB)
        return add(s, u->src[0], k, depth + 1) && add(s, u->src[1], -k, depth + 1);
    if (plain && u->op == OP_NEG)
        return add(s, u->src[0], -k, depth + 1);
    for (int i = 0; i < 2 && plain && u->op == OP_MUL; i++)
        if (uop_const_int(u->src[i], &v))
            return !__builtin_mul_overflow(k, v, &v) && add(s, u->src[1 - i], v, depth + 1);
    if (plain && u->op == OP_CAST && u->src[0]->dtype == DTYPE_I32 && u->dtype == DTYPE_I64)
        return add(s, u->src[0], k, depth + 1);
    return add_term(s, u, k);
}

/* The bounds of the sum; false: beyond those of an int. */
static bool bounds(const struct sum *s, int64_t *lo, int64_t *hi)
{
    *lo = *hi = s->c;
    for (int i = 0; i < s->n; i++) {
        const struct uop *u = s->u[i];
        if (u->vmin < INT32_MIN || u->vmax > INT32_MAX || s->k[i] > INT32_MAX ||
            s->k[i] < -INT32_MAX)
            return false;
        *lo += s->k[i] * (s->k[i] > 0 ? u->vmin : u->vmax);
        *hi += s->k[i] * (s->k[i] > 0 ? u->vmax : u->vmin);
        if (*lo < INT32_MIN || *hi > INT32_MAX)
            return false;
    }
    return *lo >= INT32_MIN && *hi <= INT32_MAX;
}

/* What is known where an access is: these sums are not negative. */
enum { MAX_KNOWN = 8 };
struct known { struct sum sum[MAX_KNOWN]; int n; };

/* That b - a is not less than `least`. */
static void learn_difference(struct known *known, struct uop *a, struct uop *b, int64_t least)
{
    struct sum s = {.c = -least};
    if (known->n < MAX_KNOWN && add(&s, b, 1, 0) && add(&s, a, -1, 0))
        known->sum[known->n++] = s;
}

/* That a condition holds: comparisons of offsets that "and" joins. */
static void learn(struct known *known, const struct uop *cond, int depth)
{
    const struct uop *other = cond->op == OP_NOT ? cond->src[0] : NULL;
    bool joins = cond->op == OP_AND || cond->op == OP_MUL || cond->op == OP_MIN;
    for (int i = 0; i < 2 && joins && depth < MAX_KNOWN; i++)
        learn(known, cond->src[i], depth + 1);
    if (cond->op == OP_LT && dtype_is_int(cond->src[0]->dtype))
        learn_difference(known, cond->src[0], cond->src[1], 1);
    else if (other && other->op == OP_LT && dtype_is_int(other->src[0]->dtype))
        learn_difference(known, other->src[1], other->src[0], 0);
}

static bool add_times(struct sum *s, const struct sum *a, int64_t k)
{
    int64_t v;
    bool ok = !__builtin_mul_overflow(k, a->c, &v) && !__builtin_add_overflow(s->c, v, &s->c);
    for (int i = 0; i < a->n && ok; i++)
        ok = !__builtin_mul_overflow(k, a->k[i], &v) && add_term(s, a->u[i], v);
    return ok;
}

/* Whether k times the sum, plus c, is proved not to be negative. What is not negative is subtracted
 * as often as a term has it, if the rest has a larger lower bound. */
static bool is_positive(const struct known *known, const struct sum *s, int64_t k, int64_t c)
{
    int64_t lo, least, hi;
    struct sum d = {.c = c};
    if (!add_times(&d, s, k) || !bounds(&d, &least, &hi))
        return false;
    for (int i = 0; i < known->n && least < 0; i++) {
        const struct sum *g = &known->sum[i];
        for (int j = 0; j < d.n && least < 0; j++)
            for (int m = 0; m < g->n && least < 0; m++) {
                struct sum less = d;
                int64_t times = d.u[j] == g->u[m] && g->k[m] ? d.k[j] / g->k[m] : 0;
                if (times <= 0 || times > INT32_MAX || !add_times(&less, g, -times) ||
                    !bounds(&less, &lo, &hi) || lo <= least)
                    continue;
                d = less;
                least = lo;
            }
    }
    return least >= 0;
}

/* Divides s by the stride: s becomes the remainder. false: it is not proved to be one. */
static bool divide(struct sum *s, int64_t stride, const struct known *known, struct sum *quotient)
{
    struct sum rest = {.n = 0};
    int64_t lo, hi, c;
    *quotient = (struct sum){.n = 0};
    for (int i = 0; i < s->n; i++) {
        int64_t q = s->k[i] / stride, r = s->k[i] % stride;
        if (q)
            quotient->u[quotient->n] = s->u[i], quotient->k[quotient->n++] = q;
        if (r)
            rest.u[rest.n] = s->u[i], rest.k[rest.n++] = r;
    }
    if (!bounds(&rest, &lo, &hi))
        return false;
    /* the constant that makes the least remainder the least that is not negative */
    c = ((s->c + lo) % stride + stride) % stride - lo;
    if (hi + c >= stride) {
        /* or the one nearest to 0, if conditions say enough */
        c = s->c % stride;
        c += c > stride / 2 ? -stride : c < -stride / 2 ? stride : 0;
        rest.c = c;
        if (!is_positive(known, &rest, 1, 0) || !is_positive(known, &rest, -1, stride - 1))
            return false;
    }
    quotient->c = (s->c - c) / stride;
    rest.c = c;
    *s = rest;
    return true;
}

/* --------------------------------------------------------------------------------------- arrays */

/* Four bytes that a portable kernel loads as a word. */
static bool is_word(const struct writer *w, const struct uop *u)
{
    return !w->f->v && u->op == OP_LOAD && u->lanes == DOT_BYTES && u->nsrc == 2 &&
           VECTOR_IS_GROUPS(u->arg.i) && VECTOR_STRIDE(u->arg.i) == 1;
}

static bool is_access(const struct writer *w, const struct uop *u)
{
    if (is_word(w, u))
        return true;
    return (u->op == OP_LOAD || u->op == OP_STORE) && u->arg.i == 0 && u->lanes <= 1 &&
           (u->op == OP_LOAD || u->src[2]->lanes <= 1);
}

/* A load or store of an element, what its offset is, and what is known there. */
struct access {
    const struct uop *u;
    const struct buffer *b;
    bool is_sum, is_word;
    struct sum sum;
    struct known known;
};
struct accesses { struct access *v; int n; size_t cap; };

/* All of them, in the program's order. */
static struct accesses find_accesses(const struct writer *w)
{
    struct accesses all = {0};
    const struct uop **guard = scratch_array(w->t, (size_t)w->nlinear + 1, sizeof *guard);
    int depth = 0;
    for (int i = 0; i < w->nlinear; i++) {
        const struct uop *u = w->linear[i];
        if (u->op == OP_GUARD)
            guard[depth++] = u->src[0];
        depth -= u->op == OP_ENDGUARD;
        if (!is_access(w, u))
            continue;
        struct access a = {.u = u, .b = uop_buffer_of(u->src[0]), .is_word = is_word(w, u)};
        int cond = u->op == OP_LOAD ? 2 : 3;
        a.is_sum = add(&a.sum, u->src[1], 1, 0);
        if (u->nsrc > cond && u->src[cond]->dtype == DTYPE_BOOL)
            learn(&a.known, u->src[cond], 0);
        for (int k = depth - 1; k >= 0; k--)
            learn(&a.known, guard[k], 0);
        SCRATCH_PUSH(w->t, all.v, all.n, all.cap, a);
    }
    return all;
}

/* Whether words that begin at multiples of their size lie within rows of this length. */
static bool is_of_words(const struct sum *s, int64_t length)
{
    bool multiples = length % DOT_BYTES == 0 && s->c % DOT_BYTES == 0;
    for (int i = 0; i < s->n; i++)
        multiples &= s->k[i] % DOT_BYTES == 0;
    return multiples;
}

/* The indices of an access to an array whose dimensions, but the innermost, have these strides. */
static bool find_place(const struct access *a, const int64_t *stride, int n,
                       struct array_place *place)
{
    struct sum s = a->sum;
    int64_t lo, hi;
    place->n = n + 1;
    for (int i = 0; i < n; i++)
        if (!a->is_sum || !divide(&s, stride[i], &a->known, &place->index[i]))
            return false;
    place->index[n] = s;
    if (n > 0 && a->is_word && !is_of_words(&s, stride[n - 1]))
        return false;
    return n > 0 && bounds(&place->index[0], &lo, &hi);
}

static bool fits(const struct accesses *all, const struct buffer *b, const int64_t *stride, int n)
{
    struct array_place place;
    for (int i = 0; i < all->n; i++)
        if (all->v[i].b == b && !find_place(&all->v[i], stride, n, &place))
            return false;
    return true;
}

/* Whether only loads and stores of single elements, and prefetches, use it. */
static bool is_plain(const struct writer *w, const struct buffer *b)
{
    bool any = false;
    for (int i = 0; i < w->nlinear; i++) {
        const struct uop *u = w->linear[i];
        for (int s = 0; s < u->nsrc; s++) {
            if (uop_buffer_of(u->src[s]) != b)
                continue;
            if (u->op != OP_PREFETCH && !(is_access(w, u) && s == 0))
                return false;
            any |= u->op != OP_PREFETCH;
        }
    }
    return any && b->dtype != DTYPE_STRING;
}

static bool differ_by_constant(const struct sum *a, const struct sum *b)
{
    bool same = a->n == b->n && a->c != b->c;
    for (int i = 0; i < a->n && same; i++)
        same = a->u[i] == b->u[i] && a->k[i] == b->k[i];
    return same;
}

/* Whether straight-line code accesses many elements at fixed distances: compilers address them from
 * one offset, and would extend each of an array's indices to 64 bits. */
static bool is_unrolled(const struct accesses *all, const struct buffer *b)
{
    enum { FEW = 6 };
    int n = 0;
    for (int i = 0; i < all->n && n <= FEW; i++) {
        n = 0;
        for (int j = 0; j < all->n && all->v[i].b == b && n <= FEW; j++)
            n += all->v[j].b == b && differ_by_constant(&all->v[i].sum, &all->v[j].sum);
    }
    return n > FEW;
}

/* The strides of the tensor's dimensions in memory, but of the innermost, smallest first. */
static int strides_of(const struct buffer *b, int64_t *stride)
{
    int64_t inner = 1, size;
    int n = 0;
    for (int i = b->ndim - 1; i > 0 && !b->storage; i--) {
        if (!uop_const_int(b->dim[b->order.is_set ? b->order.axis[i] : i], &size) || size < 1 ||
            size > INT32_MAX / inner)
            break;
        inner *= size;
        if (size > 1 && n < MAX_DIMS - 1)
            stride[n++] = inner;
    }
    return n;
}

/* The strides of tiles and of packed weights, whose layout is that of the loops: those factors of
 * the offsets' terms that divide each other, smallest first. */
static int strides_of_loops(const struct accesses *all, const struct buffer *b, int64_t *stride)
{
    int64_t last = 1;
    int n = 0;
    while (n < MAX_DIMS - 1) {
        int64_t next = INT64_MAX;
        for (int i = 0; i < all->n; i++)
            for (int j = 0; j < all->v[i].sum.n && all->v[i].b == b; j++) {
                int64_t k = all->v[i].sum.k[j];
                next = k > last && k % last == 0 && k < next ? k : next;
            }
        if (next > INT32_MAX)
            break;
        stride[n++] = last = next;
    }
    return n;
}

/* As many of n dimensions as all accesses allow. */
static int choose(const struct accesses *all, const struct buffer *b, const int64_t *stride, int n,
                  int64_t *chosen)
{
    int64_t some[MAX_DIMS];
    int best = 0;
    for (unsigned set = 1; set < 1u << n; set++) {
        int k = 0;
        for (int i = n - 1; i >= 0; i--)
            if (set >> i & 1)
                some[k++] = stride[i];
        if (k <= best || !fits(all, b, some, k))
            continue;
        best = k;
        memcpy(chosen, some, (size_t)k * sizeof *some);
    }
    return best;
}

void arrays_find(struct writer *w)
{
    struct function *f = w->f;
    const struct kernel *k = f->k;
    int n = k->nbuffer + k->nscratch;
    w->places = (struct uop_map){.t = w->t, .scratch = true};
    f->array = mem_array(w->t, (size_t)n + 1, sizeof *f->array);
    if (!w->p->backend->has_arrays || f->v || k->nvariant > 0)
        return;
    struct accesses all = find_accesses(w);
    for (int i = 0; i < n; i++) {
        const struct buffer *b = i < k->nbuffer ? k->buffer[i] : k->scratch[i - k->nbuffer];
        int64_t found[MAX_DIMS], stride[MAX_DIMS];
        int nstride = 0;
        bool may_be = is_plain(w, b) && !is_unrolled(&all, b);
        if (may_be)
            nstride = choose(&all, b, found, strides_of(b, found), stride);
        if (may_be && nstride == 0)
            nstride = choose(&all, b, found, strides_of_loops(&all, b, found), stride);
        if (nstride == 0 || (i >= k->nbuffer && b->nbytes / dtype_nbytes(b->dtype) %
                                                        (uint64_t)stride[0] != 0))
            continue;
        struct text type = {.t = w->t};
        for (int j = 0; j < nstride; j++)
            text_printf(&type, "[%lld]",
                        (long long)(stride[j] / (j + 1 < nstride ? stride[j + 1] : 1)));
        f->array[i] = (struct array_type){type.s, stride[0]};
        for (int j = 0; j < all.n; j++) {
            if (all.v[j].b != b || map_get(&w->places, all.v[j].u))
                continue;
            struct array_place *place = scratch_array(w->t, 1, sizeof *place);
            (void)find_place(&all.v[j], stride, nstride, place);
            map_set(&w->places, all.v[j].u, place);
        }
    }
}

/* ----------------------------------------------------------------------------------------- text */

int arrays_terms(const struct writer *w, const struct uop *access, struct uop **term)
{
    const struct array_place *place = map_get(&w->places, access);
    int n = 0;
    for (int i = 0; place && i < place->n; i++)
        for (int j = 0; j < place->index[i].n; j++)
            term[n++] = place->index[i].u[j];
    return n;
}

static void write_term(struct writer *w, struct uop *u, int64_t k, struct text *out)
{
    const struct value *v = map_get(&w->value, u);
    if (!v)
        TGC_BUG(w->t, "kernel %s: an index before it is computed", w->f->k->name);
    const struct expr *e = &v->e;
    bool one = k == 1 || k == -1;
    enum prec least = one && k > 0 ? PREC_ADD : PREC_MUL;
    text_puts(out, out->n == 0 ? (k < 0 ? "-" : "") : k < 0 ? " - " : " + ");
    text_puts(out, expr_operand(w->p, e, one ? least : PREC_UNARY));
    if (!one)
        text_printf(out, "*%lld", (long long)(k < 0 ? -k : k));
}

static const char *write_sum(struct writer *w, const struct sum *s)
{
    struct text out = {.t = w->t};
    bool negative = true;
    for (int i = 0; i < s->n; i++)
        negative &= s->k[i] < 0;
    if (negative && s->c)
        text_printf(&out, "%lld", (long long)s->c);
    for (int sign = 1; sign >= -1; sign -= 2)
        for (int i = 0; i < s->n; i++)
            if ((s->k[i] < 0) == (sign < 0) && s->k[i] != 0)
                write_term(w, s->u[i], s->k[i], &out);
    if (!negative && s->c)
        text_printf(&out, s->c < 0 ? " - %lld" : " + %lld", (long long)(s->c < 0 ? -s->c : s->c));
    return out.n ? out.s : "0";
}

const char *arrays_write(struct writer *w, const struct uop *access, const char *name)
{
    const struct array_place *place = map_get(&w->places, access);
    struct text out = {.t = w->t};
    text_puts(&out, name);
    for (int i = 0; i < place->n; i++)
        text_printf(&out, "[%s]", write_sum(w, &place->index[i]));
    return out.s;
}
