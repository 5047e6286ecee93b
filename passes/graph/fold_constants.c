/* fold_constants.c - values that depend on weights and constants alone become weights.
 *
 * The values are the interpreter's: computed in double, rounded to the dtype once at the end. A
 * node is folded if a consumer is not constant, and only if that pays and is bounded:
 *
 * - It computes something, or joins or pads. Other movement of a weight stays, since views are free
 * and copies are not.
 *
 * - It does not enlarge the program. It has at most the bytes of the largest weight below it, or at
 * most FOLD_NBYTES. Twice the weight's bytes are allowed in two cases: a run would have to pad or
 * join; or it contains sums or functions, and the weights have not grown by a FOLD_GROWTHth. Axes
 * along which all elements are equal are not stored (constant_axes.c), so they count once.
 *
 * - It is not an expression of the index that takes a few instructions (constant_axes.c).
 *
 * - Bytes that are only cast to a wider type stay bytes.
 *
 * - All folding together takes at most FOLD_OPS element operations, and FOLD_EACH more for each
 * element of a weight, but never more than FOLD_MOST. Weight standardization (convolutions whose
 * weights pass a BatchNormalization in training) takes about 20 for each. Of a product of two
 * weights, such as relative positions and a projection, the interpreter counts an eighth of the
 * multiply-adds, which is what they take (ir/eval_product.c).
 *
 * If a node is refused, its sources may be folded instead. A result with equal elements becomes a
 * constant. Masks that are comparisons of coordinates are not folded: they bound loops. The model's
 * own weights lose axes along which they repeat, too, unless a sum of products reads them, whose
 * tiles need the axes. */
#include "passes/analysis/stationary.h"
#include "ir/oracle.h"
#include "passes/passes.h"
#include "passes/graph/mask_tables.h"
#include "passes/target/target.h"

#include <string.h>

enum { FOLD_NBYTES = 1 << 16, FOLD_OPS = 200000000, FOLD_EACH = 40, FOLD_GROWTH = 4 };
/* The least savings for which a weight of the model loses repeated axes, and for one with equal
 * elements: a row of ones, as untrained norms have, stays for training. */
enum { REPEATED_NBYTES = 256, UNIFORM_NBYTES = 4096 };
static const int64_t FOLD_MOST = 4000000000;

struct fold_info {
    bool constant, wanted, costly;
    bool factor;                 /* a weight that is a factor of a sum of products */
    bool is_expression;  /* an expression of the index that stays one: a part of another one */
    uint32_t varying;            /* see varying_axes() */
    int cost;                    /* see index_cost() */
    struct uop *by;
    int64_t nbytes;
    const struct buffer *largest; /* the weight below it that has these bytes */
};
struct folding {
    struct tgc *t;
    struct uop **order; int n;
    struct uop_map place;        /* uop -> index in order[] + 1 */
    struct fold_info *info;
    int64_t budget;
    int64_t total, grown;        /* bytes of the weights, and those that folding has added */
    char *spare; size_t nspare;  /* memory of a refused evaluation, for the next */
    uint32_t *varying; size_t cap_varying;   /* of the sources of one uop */
    int *cost; size_t cap_cost;
};

static struct fold_info *info_of(struct folding *f, const struct uop *u)
{
    return &f->info[(uintptr_t)map_get(&f->place, u) - 1];
}

/* Collects what varying_axes(), index_cost() and is_no_table() need to know of u's sources. */
static void look_at_sources(struct folding *f, const struct uop *u)
{
    f->varying = mem_grow(f->t, f->varying, &f->cap_varying, (size_t)u->nsrc, sizeof *f->varying);
    f->cost = mem_grow(f->t, f->cost, &f->cap_cost, (size_t)u->nsrc, sizeof *f->cost);
    for (int k = 0; k < u->nsrc; k++) {
        f->varying[k] = info_of(f, u->src[k])->varying;
        f->cost[k] = info_of(f, u->src[k])->cost;
    }
}

/* Elements of a tensor of known shape; false: a symbol, or too many. */
static bool known_nelem(const struct uop *u, int64_t *nelem)
{
    int64_t d;
    *nelem = 1;
    for (int a = 0; a < u->ndim; a++)
        if (!uop_const_int(u->dim[a], &d) || d < 0 || __builtin_mul_overflow(*nelem, d, nelem))
            return false;
    return *nelem <= INT64_MAX / 16;
}

static bool computes(enum op op)
{
    return op_is_elementwise(op) || op == OP_REDUCE || op == OP_INDEX || op == OP_SCATTER;
}

/* Ops for which a run would have a kernel of its own. */
static bool is_stored(enum op op) { return op == OP_PAD || op == OP_CONCAT; }

/* Ops so expensive that twice the memory is worth it, if the weights have not grown much. */
static bool is_costly(enum op op)
{
    return op == OP_REDUCE || op == OP_EXP || op == OP_LOG || op == OP_SIN || op == OP_DIV ||
           op == OP_SQRT;
}

/* A node is constant if all below it are. nbytes: of the largest weight below it. Weights add to
 * the budget. */
static void find_constants(struct folding *f)
{
    for (int i = 0; i < f->n; i++) {
        struct uop *u = f->order[i];
        struct fold_info *self = &f->info[i];
        const struct buffer *b = known_buffer(u);
        int64_t nelem;
        bool weight = b != NULL;
        self->constant = u->op == OP_CONST || weight || computes(u->op) ||
                         op_class(u->op) == CLASS_MOVE;
        self->constant &= u->dtype != DTYPE_STRING && known_nelem(u, &nelem);
        self->cost = -1;
        if (self->constant) {
            look_at_sources(f, u);
            self->varying = varying_axes(u, f->varying);
            self->cost = index_cost(u, f->cost);
        }
        if (self->constant && weight) {
            self->nbytes = nelem * (int64_t)dtype_nbytes(u->dtype);
            self->largest = b;
            f->budget = sat_add(f->budget, sat_mul(nelem, FOLD_EACH));
            f->total = sat_add(f->total, self->nbytes);
        }
        self->costly = is_costly(u->op);
        for (int k = 0; k < u->nsrc; k++) {
            const struct fold_info *s = info_of(f, u->src[k]);
            self->constant &= s->constant;
            self->costly |= s->costly;
            if (s->nbytes > self->nbytes) {
                self->nbytes = s->nbytes;
                self->largest = s->largest;
            }
        }
    }
}

/* The data, of these sizes, as a tensor expanded to u's shape. */
static struct uop *as_tensor(struct tgc *t, const struct uop *u, char *data, int64_t *dim,
                             const char *name)
{
    size_t size = dtype_nbytes(u->dtype), nbytes;
    bool empty = false, uniform = true;
    for (int a = 0; a < u->ndim; a++)
        empty |= dim[a] == 0;
    nbytes = empty ? 0
                   : drop_axes(data, dim, u->ndim, size, equal_axes(data, dim, u->ndim, size));
    for (int a = 0; a < u->ndim; a++)
        uniform &= dim[a] == 1;
    if (uniform)
        return tensor_full(t, uop_const(t, u->dtype, scalar_load(u->dtype, data)), u->dim, u->ndim);
    return uop_expand(t, tensor_from_data(t, u->dtype, dim, u->ndim, data, nbytes, name), u->dim);
}

/* Bytes of a weight that are cast to a wider type, perhaps less a zero point: no work, a quarter of
 * the memory, and what sums of products of bytes are recognized by. Likewise halves, and floats of
 * 8 bits, that a device multiplies as such. */
static bool is_widened(const struct tgc *t, const struct uop *u)
{
    if (u->op == OP_CAST && u->dtype == DTYPE_F32 && dtype_bits(u->src[0]->dtype) <= 16 &&
        device_multiplies(t, u->src[0]->dtype))
        return true;
    if (u->op == OP_ADD && u->dtype == DTYPE_I32 && u->src[1]->op == OP_CONST)
        u = u->src[0];
    return u->op == OP_CAST && u->dtype == DTYPE_I32 &&
           dtype_is_byte(u->src[0]->dtype);
}

/* u at index 0 of each axis along which it is invariant; dim: its remaining dims. */
static struct uop *without_repeats(struct tgc *t, struct uop *u, uint32_t varying, int64_t *dim,
                                   int64_t *nelem)
{
    struct uop *begin[MAX_RANK], *size[MAX_RANK];
    *nelem = 1;
    for (int a = 0; a < u->ndim; a++) {
        dim[a] = varying >> a & 1 ? u->dim[a]->arg.i : 1;
        begin[a] = uop_int(t, 0);
        size[a] = uop_int(t, dim[a]);
        *nelem = sat_mul(*nelem, dim[a]);
    }
    return uop_shrink(t, u, begin, size);
}

static struct uop *try_fold(struct folding *f, struct uop *u)
{
    struct fold_info *self = info_of(f, u);
    int64_t nelem, nbytes, limit = self->nbytes > FOLD_NBYTES ? self->nbytes : FOLD_NBYTES;
    int64_t dim[MAX_RANK];
    if (!(computes(u->op) || is_stored(u->op)) || is_widened(f->t, u) || self->is_expression)
        return NULL;
    struct uop *once = without_repeats(f->t, u, self->varying, dim, &nelem);
    bool twice = is_stored(u->op) || (self->costly && f->grown < f->total / FOLD_GROWTH);
    if (twice && self->nbytes > FOLD_NBYTES / 2)
        limit = sat_mul(self->nbytes, 2);
    nbytes = nelem * (int64_t)dtype_nbytes(u->dtype);
    if (nbytes > limit || (u->ndim == 0 && u->dtype == DTYPE_INDEX && self->nbytes == 0))
        return NULL;
    look_at_sources(f, u);
    if (is_no_table(u, nbytes, self->cost, self->varying, f->varying)) {
        self->is_expression = self->cost >= 0;
        return NULL;
    }
    size_t room = mem_room(f->t);
    if ((size_t)nbytes > room / 4)
        return NULL;  /* folding must not cause an out-of-memory error */
    struct eval_env env = {.budget = f->budget};
    if (f->nspare < (size_t)nbytes || !f->spare) {
        f->spare = mem_alloc(f->t, (size_t)nbytes);
        f->nspare = (size_t)nbytes;
    }
    char *data = f->spare;
    if (!eval_store(f->t, once, nelem, &env, data, &f->budget))
        return NULL;
    f->spare = NULL;
    f->nspare = 0;
    f->grown += nbytes > self->nbytes ? nbytes - self->nbytes : 0;
    return tensor_made_of(as_tensor(f->t, u, data, dim, NULL), self->largest,
                          "computed at compile time");
}

/* A weight of the model without repeated axes; NULL: that saves too little. */
static struct uop *try_drop(struct folding *f, struct uop *u)
{
    const struct fold_info *self = info_of(f, u);
    const struct buffer *b = u->op == OP_BUFFER ? u->arg.p : NULL;
    int64_t dim[MAX_RANK];
    size_t size = dtype_nbytes(u->dtype), nbytes = size;
    if (!b || self->factor || b->storage || self->nbytes < REPEATED_NBYTES)
        return NULL;
    for (int a = 0; a < u->ndim; a++)
        dim[a] = u->dim[a]->arg.i;
    uint32_t equal = equal_axes(b->weight.data, dim, u->ndim, size);
    for (int a = 0; a < u->ndim; a++)
        nbytes *= equal >> a & 1 ? 1 : (size_t)dim[a];
    size_t worth = nbytes == size ? UNIFORM_NBYTES : REPEATED_NBYTES;
    if (!equal || (size_t)self->nbytes - nbytes < worth ||
        (size_t)self->nbytes > mem_room(f->t) / 4)
        return NULL;
    char *data = mem_alloc(f->t, (size_t)self->nbytes);
    memcpy(data, b->weight.data, (size_t)self->nbytes);
    return tensor_made_of(as_tensor(f->t, u, data, dim, b->name), b, "without its repetitions");
}

/* Passes on to u's sources that they are read as a part of u: a product's weight, a part of an
 * expression. */
static void pass_on(struct folding *f, const struct uop *u)
{
    const struct fold_info *self = info_of(f, u);
    bool sums = u->op == OP_REDUCE && REDUCE_OP(u->arg.i) == OP_ADD;
    bool passes = u->op == OP_MUL || u->op == OP_CAST || op_class(u->op) == CLASS_MOVE;
    for (int k = 0; k < u->nsrc; k++) {
        struct fold_info *s = info_of(f, u->src[k]);
        s->factor |= sums || (passes && self->factor);
        s->is_expression |= self->is_expression && s->cost >= 0;
    }
}

/* From the outputs down: tries constants that are read by something that is not constant, or that
 * was not folded. */
static void fold_wanted(struct folding *f, const struct graph *g)
{
    for (int i = 0; i < g->noutput; i++)
        info_of(f, g->output[i].value)->wanted = true;
    for (int i = 0; i < g->nhost; i++)
        info_of(f, g->host[i])->wanted = true;
    for (int i = f->n - 1; i >= 0; i--) {
        struct uop *u = f->order[i];
        struct fold_info *self = &f->info[i];
        /* a mask of coordinates bounds loops: it does not become a table */
        bool stays = self->constant && self->wanted && places_stay(u) && places_compares(f->t, u);
        if ((!self->constant || self->wanted) && !stays)
            self->by = !self->constant      ? NULL
                       : u->op == OP_BUFFER ? try_drop(f, u)
                                            : try_fold(f, u);
        pass_on(f, u);
        if (self->by || stays || (self->constant && !self->wanted))
            continue;
        for (int k = 0; k < u->nsrc; k++)
            info_of(f, u->src[k])->wanted = true;
    }
}

static void replace_folded(struct folding *f, struct graph *g)
{
    struct uop **src = NULL;
    size_t cap = 0;
    for (int i = 0; i < f->n; i++) {
        struct uop *u = f->order[i];
        struct fold_info *self = &f->info[i];
        bool changed = false;
        if (self->by) {
            uop_set_origin(f->t, self->by, u);
            continue;
        }
        src = mem_grow(f->t, src, &cap, (size_t)u->nsrc, sizeof *src);
        for (int k = 0; k < u->nsrc; k++) {
            src[k] = info_of(f, u->src[k])->by;
            changed |= src[k] != u->src[k];
        }
        self->by = changed ? uop_replace_src(f->t, u, src) : u;
        if (changed) {
            uop_set_origin(f->t, self->by, u);
            if (uop_get_axes(f->t, u) && !uop_get_axes(f->t, self->by))
                uop_name_axes(f->t, self->by, uop_get_axes(f->t, u));
        }
    }
    for (int i = 0; i < g->noutput; i++)
        g->output[i].value = info_of(f, g->output[i].value)->by;
    for (int i = 0; i < g->nhost; i++)
        g->host[i] = info_of(f, g->host[i])->by;
}

bool pass_fold_constants(struct tgc *t, struct graph *g)
{
    struct folding f = {.t = t, .place = {.t = t}, .budget = FOLD_OPS};
    int nroot;
    struct uop **root = graph_roots(t, g, &nroot);
    f.order = uop_toposort(t, root, nroot, &f.n);
    f.info = mem_array(t, (size_t)f.n + 1, sizeof *f.info);
    for (int i = 0; i < f.n; i++)
        map_set(&f.place, f.order[i], (void *)(uintptr_t)(i + 1));
    find_constants(&f);
    f.budget = f.budget < FOLD_MOST ? f.budget : FOLD_MOST;
    fold_wanted(&f, g);
    replace_folded(&f, g);
    return true;
}
