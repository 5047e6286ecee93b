/* uop.c - the hash-consed UOp: construction, order, rewriting, provenance.
 *
 * A uop is found by (op, dtype, src, arg); the same four always give the same pointer. Shape and
 * bounds are derived from the sources once, when the uop is interned (derive.c). uop_new() then
 * asks the fold hook what the uop simplifies to, once; so whatever a builder hands out is in normal
 * form, as in LuaJIT's fold engine.
 */
#include "ir/device_ops.h"

#include <stdlib.h>
#include <string.h>

struct op_info { const char *name; enum opclass class; int nsrc; enum argkind arg; };
static const struct op_info ops[] = {
#define OP(name, text, class, nsrc, arg) [OP_##name] = {text, CLASS_##class, nsrc, ARG_##arg},
#include "ir/ops.def"
#undef OP
};

const char *op_name(enum op op) { return ops[op].name; }
enum opclass op_class(enum op op) { return ops[op].class; }
enum argkind op_argkind(enum op op) { return ops[op].arg; }
int op_nsrc(enum op op) { return ops[op].nsrc; }

static const struct arg_field fields[ARG_COUNT] = {
#define FIELD_ALWAYS true
#define FIELD_UNLESS false
#define FIELD(layout, name, type, text, kind, at, bits, bias, least, most, otherwise, said)        \
    [ARG_##layout##_##                                                                             \
        name] = {text, ARG_IS_##kind, at, bits, bias, least, most, otherwise, FIELD_##said},
#include "ir/ops.def"
};
#undef FIELD_ALWAYS
#undef FIELD_UNLESS

const struct arg_field *arg_field(enum argkind field) { return &fields[field]; }

enum argkind op_layout(enum op op, int64_t arg)
{
    if (op_is_elementwise(op))
        return ARG_ELEMENTWISE;
    if (ops[op].arg != ARG_VECTOR)
        return ops[op].arg;
    return arg == 0 ? ARG_NONE : VECTOR_LANES(arg) == 0 ? ARG_TILE : ARG_VECTOR;
}

bool arg_fits(enum argkind field, int64_t v)
{
    const struct arg_field *f = &fields[field];
    bool fits = v >= f->least && v <= f->most;
    switch (f->type) {
    case ARG_IS_FOLD:
        return v == OP_ADD || v == OP_MUL || v == OP_MAX || v == OP_MIN || v == OP_AND ||
               v == OP_OR || v == OP_XOR;
    case ARG_IS_POWER:
        return fits && (v & (v - 1)) == 0;
    case ARG_IS_SWIZZLE:
        return v == 0 || v == 32 || v == 64 || v == PANEL_ROW_NBYTES;
    default:
        return fits;
    }
}

static uint64_t mask_of(const struct arg_field *f)
{
    return (UINT64_MAX >> (64 - f->bits)) << f->at;
}

int64_t arg_get(int64_t arg, enum argkind field)
{
    const struct arg_field *f = &fields[field];
    return arg_bits(arg, f->at, f->bits, f->least - f->bias < 0) + f->bias;
}

int64_t arg_with(int64_t arg, enum argkind field, int64_t value)
{
    const struct arg_field *f = &fields[field];
    uint64_t mask = mask_of(f);
    return (int64_t)(((uint64_t)arg & ~mask) | ((uint64_t)(value - f->bias) << f->at & mask));
}

bool arg_is_valid(enum op op, int64_t arg)
{
    enum argkind layout = op_layout(op, arg);
    int64_t all = 0;
    if (layout < 0)
        return true;
    for (int f = layout + 1; f < ARG_COUNT && fields[f].text; f++) {
        int64_t v = arg_get(arg, (enum argkind)f);
        if (!arg_fits((enum argkind)f, v))
            return false;
        all = arg_with(all, (enum argkind)f, v);
    }
    return all == arg;
}

int64_t arg_pack(enum argkind layout, const int64_t *value, int n)
{
    int64_t arg = 0;
    for (int i = 0, f = layout + 1; f < ARG_COUNT && fields[f].text; i++, f++)
        arg = arg_with(arg, (enum argkind)f, i < n ? value[i] : fields[f].otherwise);
    return arg;
}

bool op_parse(const char *s, enum op *op)
{
    for (int i = 0; i < OP_COUNT; i++)
        if (!strcmp(ops[i].name, s)) {
            *op = (enum op)i;
            return true;
        }
    return false;
}

bool op_is_pointwise(enum op op) { return op_is_elementwise(op) || op_class(op) == CLASS_CHOICE; }

bool op_is_elementwise(enum op op)
{
    enum opclass c = ops[op].class;
    return c == CLASS_UNARY || c == CLASS_BINARY || c == CLASS_TERNARY;
}

bool op_is_statement(enum op op)
{
    switch (op) {
    case OP_STORE:
    case OP_PREFETCH:
    case OP_ASSIGN:
    case OP_ENDGUARD:
    case OP_BARRIER:
    case OP_SHUFFLE:
    case OP_MATRIX:
    case OP_MBAR_INIT:
    case OP_MBAR_ARRIVE:
    case OP_MBAR_RELEASE:
    case OP_MBAR_WAIT:
    case OP_BULK:
    case OP_CLUSTER_BARRIER:
    case OP_BULK_STORE:
    case OP_BULK_WAIT:
    case OP_COPY: case OP_PUT: case OP_COMMIT: case OP_WAIT:
    case OP_PUBLISH:
    case OP_MATRIX_BEGIN:
    case OP_MATRIX_COMMIT:
    case OP_MATRIX_WAIT:
    case OP_REGISTERS:
        return true;
    default:
        return false;
    }
}

bool op_takes_memory(enum op op, int k)
{
    switch (op) {
    case OP_LOAD:
    case OP_STORE:
    case OP_PREFETCH:
    case OP_GATHER:
    case OP_MBAR_INIT:
    case OP_MBAR_ARRIVE:
    case OP_MBAR_RELEASE: case OP_MBAR_WAIT:
        return k == 0;
    case OP_COPY: case OP_PUT: case OP_BULK_STORE:
        return k == 0 || k == 2;
    case OP_TICKET:
        return k == TICKET_COUNTERS || k == TICKET_MEMORY;
    case OP_BULK:
        return k == BULK_TO || k == BULK_BARRIERS || k == BULK_FROM;
    default:
        return false;
    }
}

bool op_is_commutative(enum op op)
{
    switch (op) {
    case OP_ADD: case OP_MUL: case OP_MAX: case OP_MIN: case OP_AND: case OP_OR: case OP_XOR:
    case OP_EQ: case OP_NE:
        return true;
    default:
        return false;
    }
}

int64_t perm_pack(const int *perm, int n)
{
    uint64_t bits = 0;
    for (int i = 0; i < n; i++)
        bits |= (uint64_t)perm[i] << (4 * i);
    return (int64_t)bits;
}

/* ---- interning */

static uint32_t hash_mix(uint32_t h, uint64_t v)
{
    uint64_t x = (h ^ v) * 0x9E3779B97F4A7C15u;
    return (uint32_t)(x ^ x >> 32);
}

/* Pointers with an id hash by it, in order of creation. The table's order is never visible anyway,
 * so nothing depends on addresses. */
static uint32_t uop_hash(enum op op, enum dtype dtype, struct uop *const *src, int nsrc,
                         union arg arg)
{
    uint32_t h = hash_mix((uint32_t)op * 31 + (uint32_t)dtype, (uint64_t)arg.i);
    for (int i = 0; i < nsrc; i++)
        h = hash_mix(h, src[i]->id);
    return h;
}

/* Open addressing. A slot keeps the hash, so that a lookup touches only the uop that it returns. */
static struct intern_slot *table_slot(const struct tgc *t, uint32_t hash)
{
    return &t->table[hash & (t->table_size - 1)];
}

static struct intern_slot *table_next(const struct tgc *t, struct intern_slot *s)
{
    return ++s == t->table + t->table_size ? t->table : s;
}

static void table_add(struct tgc *t, uint32_t hash, struct uop *u)
{
    struct intern_slot *s = table_slot(t, hash);
    while (s->uop)
        s = table_next(t, s);
    *s = (struct intern_slot){u, hash};
}

static void table_grow(struct tgc *t)
{
    struct intern_slot *old = t->table;
    size_t n = t->table_size;
    t->table_size = n ? n * 2 : 4096;
    t->table = mem_array(t, t->table_size, sizeof *t->table);
    for (size_t i = 0; i < n; i++)
        if (old[i].uop)
            table_add(t, old[i].hash, old[i].uop);
}

static bool uop_is(const struct uop *u, enum op op, enum dtype dtype, struct uop *const *src,
                   int nsrc, union arg arg)
{
    return u->op == op && u->dtype == dtype && u->nsrc == nsrc && u->arg.i == arg.i &&
           (nsrc == 0 || !memcmp(u->src, src, (size_t)nsrc * sizeof *src));
}

static void origin_inherit(struct tgc *t, const struct uop *u)
{
    if (!t->current_origin || op_class(u->op) == CLASS_LEAF)
        return;
    t->uop_origin = mem_grow(t, t->uop_origin, &t->cap_uop_origin, (size_t)u->id + 1,
                             sizeof *t->uop_origin);
    t->uop_origin[u->id] = t->current_origin;
}

static bool is_computed(const struct uop *u)
{
    return (op_is_elementwise(u->op) || u->op == OP_REDUCE) && u->dtype != DTYPE_INDEX &&
           u->op != OP_CAST && u->op != OP_BITCAST;
}

static void merge_node(struct tgc *t, const struct uop *u, const struct origin *node)
{
    const struct merged *list = uop_get_merged(t, u);
    int n = list ? list->n : 0;
    if (!node || node == uop_get_origin(t, u) || !is_computed(u) || n == MERGED_MOST)
        return;
    for (const struct merged *m = list; m; m = m->next)
        if (m->node == node)
            return;
    t->uop_merged = mem_grow(t, t->uop_merged, &t->cap_uop_merged, (size_t)u->id + 1,
                             sizeof *t->uop_merged);
    struct merged *m = MEM_NEW(t, struct merged);
    *m = (struct merged){node, t->uop_merged[u->id], n + 1};
    t->uop_merged[u->id] = m;
}

static void merge_list(struct tgc *t, const struct uop *u, const struct uop *from)
{
    for (const struct merged *m = uop_get_merged(t, from); m; m = m->next)
        merge_node(t, u, m->node);
}

static bool is_within(const struct uop *u, const struct uop *of, int depth)
{
    bool found = u == of;
    for (int i = 0; i < of->nsrc && depth > 0 && !found; i++)
        found = is_within(u, of->src[i], depth - 1);
    return found;
}

/* A rule made r of u, which depends on one value alone: if r does not, it computes that, too. */
static void merge_operand(struct tgc *t, const struct uop *r, const struct uop *u)
{
    enum { DEPTH = 3 };
    const struct uop *only = NULL;
    int n = 0;
    for (int i = 0; i < u->nsrc; i++)
        if (op_class(u->src[i]->op) != CLASS_LEAF && u->src[i]->op != OP_RANGE) {
            only = u->src[i];
            n++;
        }
    if (n == 1 && is_computed(u) && is_computed(only) && !is_within(only, r, DEPTH)) {
        merge_node(t, r, uop_get_origin(t, only));
        merge_list(t, r, only);
    }
}

/* NULL: there is none yet. */
static struct uop *table_find(const struct tgc *t, uint32_t hash, enum op op, enum dtype dtype,
                              struct uop *const *src, int nsrc, union arg arg)
{
    if (t->table_size)
        for (struct intern_slot *s = table_slot(t, hash); s->uop; s = table_next(t, s))
            if (s->hash == hash && uop_is(s->uop, op, dtype, src, nsrc, arg))
                return s->uop;
    return NULL;
}

static struct uop *intern_new(struct tgc *t, uint32_t h, enum op op, enum dtype dtype,
                              struct uop *const *src, int nsrc, union arg arg)
{
    struct uop *u = MEM_NEW(t, struct uop);
    u->op = op;
    u->dtype = dtype;
    u->nsrc = nsrc;
    u->arg = arg;
    u->src = nsrc ? mem_copy(t, src, (size_t)nsrc * sizeof *src) : NULL;
    uop_derive(t, u);                                 /* may intern other uops */
    u->id = (uint32_t)t->nuop++;
    if (2 * t->nuop > t->table_size)
        table_grow(t);
    table_add(t, h, u);
    origin_inherit(t, u);
    return u;
}

static void check_sources(struct tgc *t, enum op op, int nsrc)
{
    if (op_nsrc(op) >= 0 && op_nsrc(op) != nsrc)
        TGC_BUG(t, "%s with %d sources", op_name(op), nsrc);
}

struct uop *uop_intern(struct tgc *t, enum op op, enum dtype dtype, struct uop *const *src,
                       int nsrc, union arg arg)
{
    check_sources(t, op, nsrc);
    uint32_t h = uop_hash(op, dtype, src, nsrc, arg);
    struct uop *u = table_find(t, h, op, dtype, src, nsrc, arg);
    return u ? u : intern_new(t, h, op, dtype, src, nsrc, arg);
}

/* Most index arithmetic is in normal form already, or has one at hand: then no uop is made that
 * nothing would use. */
static struct uop *index_in_normal_form(struct tgc *t, enum op op, enum dtype dtype,
                                        struct uop *const *src)
{
    bool is_arithmetic = op == OP_ADD || op == OP_SUB || op == OP_MUL;
    if (!is_arithmetic || dtype != DTYPE_INDEX || !t->fold)
        return NULL;
    struct uop *r = t->fold_index(t, op, src[0], src[1]);
    if (r && t->current_origin && !uop_get_origin(t, r))
        origin_inherit(t, r);
    return r;
}

struct uop *uop_new(struct tgc *t, enum op op, enum dtype dtype, struct uop *const *src, int nsrc,
                    union arg arg)
{
    check_sources(t, op, nsrc);
    uint32_t h = uop_hash(op, dtype, src, nsrc, arg);
    struct uop *u = table_find(t, h, op, dtype, src, nsrc, arg), *made;
    if (!u && (made = index_in_normal_form(t, op, dtype, src)) != NULL)
        return made;
    u = u ? u : intern_new(t, h, op, dtype, src, nsrc, arg);
    if (u->folded)
        return u->folded;
    if (!t->fold || u->nsrc == 0)
        return u;
    struct uop *r = t->fold(t, u);
    if (r != u && t->norigin)
        merge_operand(t, r, u);
    if (r != u && (r->dtype != u->dtype || r->ndim != u->ndim))
        TGC_BUG(t, "fold of %s changed dtype or rank", op_name(u->op));
    if (r != u)
        uop_set_origin(t, r, u);
    u->folded = r;
    return r;
}

/* ---- builders of scalars and elementwise ops */

struct uop *uop_const(struct tgc *t, enum dtype d, union scalar v)
{
    union arg arg = {.i = v.i};
    if (dtype_is_float(d) && v.f != v.f)
        arg.f = __builtin_nan("");                    /* one NaN, so that equal constants are == */
    return uop_intern(t, OP_CONST, d, NULL, 0, arg);
}

struct uop *uop_int(struct tgc *t, int64_t v)
{
    return uop_intern(t, OP_CONST, DTYPE_INDEX, NULL, 0, (union arg){.i = v});
}
struct uop *uop_bool(struct tgc *t, bool v)
{
    return uop_intern(t, OP_CONST, DTYPE_BOOL, NULL, 0, (union arg){.i = v});
}

struct uop *uop_consti(struct tgc *t, enum dtype d, int64_t v)
{
    return uop_const(t, d, scalar_cast(d, DTYPE_I64, (union scalar){.i = v}));
}

struct uop *uop_constf(struct tgc *t, enum dtype d, double v)
{
    return uop_const(t, d, scalar_cast(d, DTYPE_F64, (union scalar){.f = v}));
}

struct uop *uop_unary(struct tgc *t, enum op op, struct uop *a)
{
    return uop_new(t, op, op == OP_ISNAN ? DTYPE_BOOL : a->dtype, &a, 1, (union arg){0});
}

struct uop *uop_binary(struct tgc *t, enum op op, struct uop *a, struct uop *b)
{
    if (a->dtype != b->dtype)
        TGC_BUG(t, "%s of %s and %s", op_name(op), dtype_name(a->dtype), dtype_name(b->dtype));
    struct uop *src[2] = {a, b};
    bool compare = op == OP_LT || op == OP_EQ || op == OP_NE;
    return uop_new(t, op, compare ? DTYPE_BOOL : a->dtype, src, 2, (union arg){0});
}

struct uop *uop_where(struct tgc *t, struct uop *c, struct uop *a, struct uop *b)
{
    if (a->dtype != b->dtype || c->dtype != DTYPE_BOOL)
        TGC_BUG(t, "where of %s, %s and %s", dtype_name(c->dtype), dtype_name(a->dtype),
                dtype_name(b->dtype));
    struct uop *src[3] = {c, a, b};
    return uop_new(t, OP_WHERE, a->dtype, src, 3, (union arg){0});
}

struct uop *uop_stack(struct tgc *t, struct uop *index, struct uop *const *x, int n)
{
    struct uop **src = scratch_array(t, (size_t)n + 1, sizeof *src);
    src[0] = index;
    for (int k = 0; k < n; k++) {
        if (x[k]->dtype != x[0]->dtype || index->dtype != DTYPE_INDEX)
            TGC_BUG(t, "stack of %s and %s by %s", dtype_name(x[0]->dtype),
                    dtype_name(x[k]->dtype), dtype_name(index->dtype));
        src[k + 1] = x[k];
    }
    return uop_new(t, OP_STACK, x[0]->dtype, src, n + 1, (union arg){0});
}

struct uop *uop_cast(struct tgc *t, enum dtype d, struct uop *a)
{
    return a->dtype == d ? a : uop_new(t, OP_CAST, d, &a, 1, (union arg){0});
}

struct uop *uop_not(struct tgc *t, struct uop *a) { return uop_unary(t, OP_NOT, a); }

struct uop *uop_replace_src(struct tgc *t, struct uop *u, struct uop *const *src)
{
    return uop_new(t, u->op, u->dtype, src, u->nsrc, u->arg);
}

bool uop_const_int(const struct uop *u, int64_t *v)
{
    if (u->op != OP_CONST || dtype_is_float(u->dtype))
        return false;
    *v = u->arg.i;
    return true;
}

bool uop_is_int(const struct uop *u, int64_t v)
{
    int64_t c;
    return uop_const_int(u, &c) && c == v;
}

bool uop_is_constf(const struct uop *u, double v)
{
    union arg a = {.f = v};
    return u->op == OP_CONST && dtype_is_float(u->dtype) && u->arg.i == a.i;
}

/* ---- symbols, memory, ranges */

struct var *var_new(struct tgc *t, const char *name, int64_t min, int64_t max)
{
    struct var *v = MEM_NEW(t, struct var);
    *v = (struct var){.name = name, .min = min, .max = max, .id = t->next_var++};
    return v;
}

struct uop *uop_var(struct tgc *t, struct var *v)
{
    return uop_intern(t, OP_VAR, DTYPE_INDEX, NULL, 0, (union arg){.p = v});
}

uint64_t buffer_key(const struct buffer *b)
{
    const uint64_t prime = 0x100000001b3u;
    uint64_t h = hash_bytes(0xcbf29ce484222325u, b->name, strlen(b->name) + 1);
    h = (h ^ (uint64_t)b->dtype) * prime;
    for (int a = 0; a < b->ndim; a++)
        h = (h ^ (uint64_t)b->dim[a]->vmax) * prime;
    return h;
}

int64_t buffer_fan(const struct buffer *b)
{
    int64_t fan = 1;
    for (int a = 1; a < b->ndim; a++)
        fan = sat_mul(fan, b->dim[a]->vmax);
    int64_t first = b->ndim < 2 ? 0 : b->dim[0]->vmax;
    return first == 0 || fan == 0 ? 0 : b->ndim == 2 && first > fan ? first : fan;
}

struct buffer *buffer_new(struct tgc *t, enum buffer_kind kind, enum dtype d,
                          struct uop *const *dim, int ndim, const char *name)
{
    struct buffer *b = MEM_NEW(t, struct buffer);
    *b = (struct buffer){
        .kind = kind, .dtype = d, .ndim = ndim, .name = name, .id = t->next_buffer++,
        .scratch.space = SPACE_SCRATCH};
    if (ndim > MAX_RANK)
        TGC_BUG(t, "buffer of rank %d", ndim);
    for (int a = 0; a < ndim; a++)
        b->dim[a] = dim[a];
    return b;
}

struct uop *uop_buffer(struct tgc *t, struct buffer *b)
{
    return uop_intern(t, OP_BUFFER, b->dtype, NULL, 0, (union arg){.p = b});
}
struct uop *uop_range(struct tgc *t, struct uop *size, int id)
{
    return uop_intern(t, OP_RANGE, DTYPE_INDEX, &size, 1, (union arg){.i = id});
}
struct uop *uop_axis(struct tgc *t, struct uop *size, enum axis a, enum worker w)
{
    return uop_intern(t, OP_RANGE, DTYPE_INDEX, &size, 1,
                      (union arg){.i = ARG_PACK(RANGE, t->next_range++, a, w)});
}

static const struct { const char *text; char letter; bool lane; } axes[AXIS_COUNT] = {
#define AXIS(name, text, letter, lane) {text, letter, lane},
#include "ir/axes.def"
#undef AXIS
};

const char *axis_name(enum axis a) { return axes[a].text; }
char axis_letter(enum axis a) { return axes[a].letter; }

bool range_is(const struct uop *u, enum axis a)
{
    return u->op == OP_RANGE && RANGE_AXIS(u->arg.i) == a;
}
bool range_is_lane(const struct uop *u)
{
    return u->op == OP_RANGE && axes[RANGE_AXIS(u->arg.i)].lane;
}
const char *worker_suffix(enum worker w)
{
    static const char *const suffix[] = {"", ".team", ".block", ".grid", ".item"};
    return suffix[w];
}
bool range_is_shared(const struct uop *u)
{
    return u->op == OP_RANGE && RANGE_WORKER(u->arg.i) == WORKER_TEAM;
}
bool range_is_of_block(const struct uop *u)
{
    return u->op == OP_RANGE && RANGE_WORKER(u->arg.i) == WORKER_BLOCK;
}
bool range_is_grid(const struct uop *u)
{
    return u->op == OP_RANGE && RANGE_WORKER(u->arg.i) == WORKER_GRID;
}
bool range_is_item(const struct uop *u)
{
    return u->op == OP_RANGE && RANGE_WORKER(u->arg.i) == WORKER_ITEM;
}

/* Nests that share loops have as many of each worker, so the first way inside tells. */
int linear_inner_workers(struct uop *const *u, int n, int at, int64_t *turns)
{
    enum worker worker = RANGE_WORKER(u[at]->arg.i);
    int found = 0;
    *turns = 1;
    for (int i = at + 1; i < n && !(u[i]->op == OP_END && u[i]->src[0] == u[at]); i++) {
        bool inner = u[i]->op == OP_RANGE && RANGE_WORKER(u[i]->arg.i) == worker;
        if (u[i]->op == OP_END && RANGE_WORKER(u[i]->src[0]->arg.i) == worker)
            break;
        found += inner;
        *turns = inner ? sat_mul(*turns, u[i]->src[0]->vmax) : *turns;
    }
    return found;
}

const char *space_name(enum space s)
{
    static const char *const text[SPACE_COUNT] = {
#define SPACE(name, text) text,
#include "ir/spaces.def"
#undef SPACE
    };
    return text[s];
}

const char *transfer_name(enum transfer of)
{
    static const char *const text[TRANSFER_COUNT] = {
#define TRANSFER(name, text) text,
#include "ir/transfers.def"
#undef TRANSFER
    };
    return text[of];
}

const char *role_name(enum thread_role of)
{
    static const char *const text[ROLE_COUNT] = {
#define ROLE(name, text, compares) text,
#include "ir/roles.def"
#undef ROLE
    };
    return text[of];
}

bool role_has(enum thread_role of, int consumers, int thread)
{
    switch (of) {
#define ROLE(name, text, compares) case ROLE_##name: return thread compares consumers;
#include "ir/roles.def"
#undef ROLE
    case ROLE_COUNT: break;
    }
    return false;
}

enum space buffer_space(const struct buffer *b)
{
    return b->kind == BUFFER_WEIGHT           ? SPACE_WEIGHTS
           : b->kind != BUFFER_SCRATCH        ? SPACE_GLOBAL
           : b->scratch.space == SPACE_GLOBAL ? SPACE_GLOBAL
           : b->scratch.space == SPACE_SHARED ? SPACE_SHARED
                                              : SPACE_SCRATCH;
}

const struct buffer *buffer_root(const struct buffer *b)
{
    while (b->base)
        b = b->base;
    return b;
}

bool buffer_is_part_of(const struct buffer *b, const struct buffer *whole)
{
    while (b && b != whole)
        b = b->base;
    return b != NULL;
}

const struct buffer *uop_buffer_of(const struct uop *u)
{
    return u->op == OP_BUFFER || u->op == OP_STAGE ? u->arg.p : NULL;
}

/* ---- order and rewriting */

/* Eight neighbouring ids share a cache line or two, since uops are mostly looked up in order. */
static struct uop_slot *map_slot(const struct uop_map *m, uint32_t key)
{
    size_t block = (uint64_t)(key >> 3) * 0x9E3779B97F4A7C15u >> 32;
    size_t i = (block << 3 | (key & 7)) & (m->size - 1);
    while (m->slot[i].key && m->slot[i].key != key)
        i = (i + 1) & (m->size - 1);
    return &m->slot[i];
}

void *map_get(const struct uop_map *m, const struct uop *u)
{
    return m->size ? map_slot(m, u->id + 1)->value : NULL;
}

void map_set(struct uop_map *m, const struct uop *u, void *value)
{
    if (2 * (m->used + 1) > m->size) {
        struct uop_map old = *m;
        m->size = m->size ? 2 * m->size : 64;
        m->slot = m->scratch ? scratch_array(m->t, m->size, sizeof *m->slot)
                             : mem_array(m->t, m->size, sizeof *m->slot);
        for (size_t i = 0; i < old.size; i++)
            if (old.slot[i].key)
                *map_slot(m, old.slot[i].key) = old.slot[i];
    }
    struct uop_slot *s = map_slot(m, u->id + 1);
    m->used += s->key == 0;
    *s = (struct uop_slot){u->id + 1, value};
}

struct uop_frame { struct uop *u; int next; };

struct uop **uop_toposort(struct tgc *t, struct uop *const *root, int nroot, int *n)
{
    size_t cap_order = 0;
    int depth = 0, norder = 0;
    struct uop **order = NULL;
    uint32_t mark = ++t->mark;
    for (int r = 0; r < nroot; r++) {
        if (root[r]->mark == mark)
            continue;
        root[r]->mark = mark;
        VEC_PUSH(t, t->visit, depth, t->cap_visit, ((struct uop_frame){root[r], 0}));
        while (depth) {
            struct uop_frame *f = &t->visit[depth - 1];
            if (f->next == f->u->nsrc) {
                SCRATCH_PUSH(t, order, norder, cap_order, f->u);
                depth--;
                continue;
            }
            struct uop *s = f->u->src[f->next++];
            if (s->mark != mark) {
                s->mark = mark;
                VEC_PUSH(t, t->visit, depth, t->cap_visit, ((struct uop_frame){s, 0}));
            }
        }
    }
    *n = norder;
    return order;
}

bool uop_reads_memory(struct tgc *t, struct uop *u)
{
    struct mem_mark mark = scratch_mark(t);
    bool found = false;
    int n = 0;
    struct uop **order = u ? uop_toposort(t, &u, 1, &n) : NULL;
    for (int i = 0; i < n && !found; i++)
        found = order[i]->op == OP_LOAD;
    scratch_release(t, mark);
    return found;
}

/* Replaces each uop with an entry in `by` by that, without rebuilding it; fn NULL: replaces nothing
 * else. */
static void rewrite(struct tgc *t, struct uop **root, int nroot, const struct uop_map *by,
                    uop_rewriter fn, void *ctx)
{
    struct mem_mark mark = scratch_mark(t);
    int n, most = 0;
    struct uop **order = uop_toposort(t, root, nroot, &n);
    struct uop_map done = {.t = t, .scratch = true};
    for (int i = 0; i < n; i++)
        most = order[i]->nsrc > most ? order[i]->nsrc : most;
    struct uop **src = scratch_array(t, (size_t)most, sizeof *src);
    for (int i = 0; i < n; i++) {
        struct uop *u = order[i], *r = u, *given = by ? map_get(by, u) : NULL;
        bool changed = false;
        for (int k = 0; k < u->nsrc && !given; k++) {
            src[k] = map_get(&done, u->src[k]);
            changed |= src[k] != u->src[k];
        }
        if (changed) {
            r = uop_replace_src(t, u, src);
            uop_set_origin(t, r, u);
            if (uop_get_axes(t, u) && r->op == u->op && !uop_get_axes(t, r))
                uop_name_axes(t, r, uop_get_axes(t, u));
        }
        given = given ? given : fn ? fn(t, ctx, r) : NULL;
        if (given)
            r = given;
        if (r != u)
            uop_set_origin(t, r, u);
        map_set(&done, u, r);
    }
    for (int i = 0; i < nroot; i++)
        root[i] = map_get(&done, root[i]);
    scratch_release(t, mark);
}

void uop_rewrite(struct tgc *t, struct uop **root, int nroot, uop_rewriter fn, void *ctx)
{
    rewrite(t, root, nroot, NULL, fn, ctx);
}

struct uop *uop_substitute_all(struct tgc *t, struct uop *u, const struct uop_map *by)
{
    rewrite(t, &u, 1, by, NULL, NULL);
    return u;
}

struct uop *uop_substitute(struct tgc *t, struct uop *u, const struct uop *from, struct uop *to)
{
    struct mem_mark mark = scratch_mark(t);
    struct uop_map by = {.t = t, .scratch = true};
    map_set(&by, from, to);
    u = uop_substitute_all(t, u, &by);
    scratch_release(t, mark);
    return u;
}

/* ---- provenance */

int origin_new(struct tgc *t, const char *node, const char *op_type, int index)
{
    struct origin *o = MEM_NEW(t, struct origin);
    *o = (struct origin){.node = node, .op_type = op_type, .index = index, .id = (int)t->norigin};
    VEC_PUSH(t, t->origin, t->norigin, t->cap_origin, o);
    return t->current_origin = (int)t->norigin;
}

/* A step of o becomes current. */
static void begin_step_of(struct tgc *t, const struct origin *o, const char *text, bool is_adjoint)
{
    int made = origin_new(t, o->node, o->op_type, o->index);
    t->origin[made - 1]->of = o;
    t->origin[made - 1]->step = text;
    t->origin[made - 1]->is_adjoint = is_adjoint;
}

static const struct origin *current_origin(const struct tgc *t)
{
    return t->current_origin ? t->origin[t->current_origin - 1] : NULL;
}

void origin_begin_step(struct tgc *t, const char *text)
{
    const struct origin *o = current_origin(t);
    if (o)
        begin_step_of(t, o->of ? o->of : o, text, o->is_adjoint);
}

static const struct origin *origin_of(const struct tgc *t, const struct uop *u)
{
    int o = u->id < t->cap_uop_origin ? t->uop_origin[u->id] : 0;
    return o ? t->origin[o - 1] : NULL;
}

const struct origin *uop_get_origin(const struct tgc *t, const struct uop *u)
{
    const struct origin *o = origin_of(t, u);
    return o && o->of ? o->of : o;
}

void origin_begin_adjoint(struct tgc *t, const struct uop *u)
{
    const struct origin *o = uop_get_origin(t, u), *now = current_origin(t);
    if (o && (!now || (now->is_adjoint && now->of != o)))
        begin_step_of(t, o, NULL, true);
}

bool uop_is_adjoint(const struct tgc *t, const struct uop *u)
{
    const struct origin *o = origin_of(t, u);
    return o && o->is_adjoint;
}

const struct merged *uop_get_merged(const struct tgc *t, const struct uop *u)
{
    return u->id < t->cap_uop_merged ? t->uop_merged[u->id] : NULL;
}

const char *uop_get_step(const struct tgc *t, const struct uop *u)
{
    const struct origin *o = origin_of(t, u);
    return o ? o->step : NULL;
}

const char *origin_title(struct tgc *t, const struct origin *o)
{
    return *o->node ? mem_printf(t, "%s \"%s\"", o->op_type, o->node) : o->op_type;
}

int origin_compare(const struct origin *a, const struct origin *b)
{
    int order = a->index < b->index ? -1 : a->index > b->index;
    order = order ? order : strcmp(a->op_type, b->op_type);
    return order ? order : strcmp(a->node, b->node);
}

static int compare_origins(const void *a, const void *b)
{
    return origin_compare(*(const struct origin *const *)a, *(const struct origin *const *)b);
}

const struct origin **origin_list(struct tgc *t, int *n)
{
    const struct origin **list = mem_array(t, t->norigin + 1, sizeof *list);
    int all = 0;
    *n = 0;
    for (size_t i = 0; i < t->norigin; i++)
        if (!t->origin[i]->of && !t->origin[i]->is_past)
            list[all++] = t->origin[i];
    qsort(list, (size_t)all, sizeof *list, compare_origins);
    for (int i = 0; i < all; i++)
        if (*n == 0 || origin_compare(list[i], list[*n - 1]) != 0)
            list[(*n)++] = list[i];
    return list;
}

static void set_word(struct tgc *t, const struct uop *u, const char *word)
{
    t->uop_word = mem_grow(t, t->uop_word, &t->cap_uop_word, (size_t)u->id + 1,
                           sizeof *t->uop_word);
    t->uop_word[u->id] = word;
}

void uop_name_value(struct tgc *t, const struct uop *u, const char *word)
{
    while (u && op_class(u->op) != CLASS_LEAF) {
        set_word(t, u, word);
        u = op_class(u->op) == CLASS_MOVE || u->op == OP_CAST ? u->src[0] : NULL;
    }
}

const char *uop_get_word(const struct tgc *t, const struct uop *u)
{
    return u->id < t->cap_uop_word ? t->uop_word[u->id] : NULL;
}

void uop_set_origin(struct tgc *t, const struct uop *u, const struct uop *from)
{
    if (uop_get_word(t, from) && !uop_get_word(t, u) && op_class(u->op) != CLASS_LEAF)
        set_word(t, u, uop_get_word(t, from));
    int o = from->id < t->cap_uop_origin ? t->uop_origin[from->id] : 0;
    merge_list(t, u, from);
    if (!o || uop_get_origin(t, u) || op_class(u->op) == CLASS_LEAF)
        return;
    t->uop_origin = mem_grow(t, t->uop_origin, &t->cap_uop_origin, (size_t)u->id + 1,
                             sizeof *t->uop_origin);
    t->uop_origin[u->id] = o;
}

void uop_name_axes(struct tgc *t, const struct uop *u, const char *words)
{
    t->uop_axes = mem_grow(t, t->uop_axes, &t->cap_uop_axes, (size_t)u->id + 1,
                           sizeof *t->uop_axes);
    t->uop_axes[u->id] = words;
}

const char *uop_get_axes(const struct tgc *t, const struct uop *u)
{
    return u->id < t->cap_uop_axes ? t->uop_axes[u->id] : NULL;
}

int graph_count_inputs(const struct graph *g)
{
    return g->ninput - (g->nstate ? g->nstate : g->ndeclared);
}

int graph_count_outputs(const struct graph *g)
{
    return g->noutput - (g->npart ? g->npart : g->nkept);
}

struct uop **graph_roots(struct tgc *t, const struct graph *g, int *n)
{
    struct uop **root = mem_array(t, (size_t)(g->noutput + g->nhost) + 1, sizeof *root);
    *n = 0;
    for (int i = 0; i < g->noutput; i++)
        root[(*n)++] = g->output[i].value;
    for (int i = 0; i < g->nhost; i++)
        root[(*n)++] = g->host[i];
    return root;
}

void graph_rewrite(struct tgc *t, struct graph *g, uop_rewriter fn, void *ctx)
{
    int nroot;
    struct uop **root = graph_roots(t, g, &nroot);
    uop_rewrite(t, root, nroot, fn, ctx);
    for (int i = 0; i < g->noutput; i++)
        g->output[i].value = root[i];
    for (int i = 0; i < g->nhost; i++)
        g->host[i] = root[g->noutput + i];
}

bool uop_is_check(const struct uop *u)
{
    const struct host_call *h = u->op == OP_HOST ? u->arg.p : NULL;
    return h && h->nout == 0 && h->nresult == 0;
}
