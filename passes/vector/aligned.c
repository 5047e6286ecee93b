/* aligned.c - a device's memory transactions: marks aligned vector accesses, and joins contiguous
 * scalar loads into vectors.
 *
 *      a = load x[4*i + k*132]                   v = load.4 x[4*i + k*132], aligned
 *      b = load x[4*i + k*132 + 1] ...           a = lane v 0    b = lane v 1 ...
 *
 * A device loads 16 bytes at once from an address that is a multiple of 16. Buffers begin at one,
 * so an offset that is a multiple of 4 elements of 32 bits (or of as many bytes) is enough. The
 * offset's form proves it (index_divisor()); without proof nothing changes. Loads are joined if
 * nothing between them could change the memory: no store, barrier, loop or condition begins or ends
 * there. */
#include "passes/vector/expand.h"

enum { ALIGNED = 4 };

/* Contiguous loads, at offset + lane; n: their number. */
struct group { struct uop *memory, *offset, *valid; int n; struct uop *load[ALIGNED], *vector; };

struct joining {
    struct expander *e;
    struct group *group; int ngroup; size_t cap_group;
    struct uop_map group_of;     /* a load of `in` -> its group, numbered from 1 */
    struct uop_map now;          /* a uop of `in` -> what it is in `out`, where they differ */
    bool changed;
};

static bool is_word(enum dtype d) { return d == DTYPE_F32 || d == DTYPE_I32; }
/* Four contiguous loads become one vector; of halves only a pixel of an image (images.c). */
static bool may_join(const struct tgc *t, enum dtype d)
{
    return is_word(d) || (t->image && d == DTYPE_F16);
}

static bool is_whole_vector(int64_t bits)
{
    return bits != 0 && !TILE_IS(bits) && VECTOR_LANES(bits) == ALIGNED && VECTOR_PART(bits) == 0 &&
           VECTOR_STRIDE(bits) == 1 && !VECTOR_IS_GROUPS(bits);
}

/* Words of four bytes, scalar or as wide as the vector. */
static bool groups_are_aligned(struct tgc *t, const struct uop *u)
{
    int lanes = VECTOR_LANES(u->arg.i);
    return u->arg.i && !TILE_IS(u->arg.i) && VECTOR_IS_GROUPS(u->arg.i) &&
           VECTOR_STRIDE(u->arg.i) == 1 && (lanes == DOT_BYTES || lanes == ALIGNED * DOT_BYTES) &&
           index_divisor(t, u->src[1]) % lanes == 0 &&
           buffer_is_aligned(t, uop_buffer_of(u->src[0]), lanes);
}

static bool access_is_aligned(struct tgc *t, const struct uop *u)
{
    if (groups_are_aligned(t, u))
        return true;
    return is_whole_vector(u->arg.i) && is_word(uop_buffer_of(u->src[0])->dtype) &&
           is_word(u->op == OP_STORE ? u->src[2]->dtype : u->dtype) &&
           index_divisor(t, u->src[1]) % ALIGNED == 0 &&
           buffer_is_aligned(t, uop_buffer_of(u->src[0]), ALIGNED);
}

/* The offset as base + c; c alone has no base. */
static struct uop *split_offset(struct uop *offset, int64_t *c)
{
    bool sum = offset->op == OP_ADD && offset->src[1]->op == OP_CONST;
    *c = sum ? offset->src[1]->arg.i : 0;
    return sum ? offset->src[0] : offset;
}

/* ------------------------------------------------------------------------------- what is joined */

static bool ends_segment(const struct uop *u)
{
    switch (u->op) {
    case OP_STORE: case OP_COPY: case OP_WAIT: case OP_MBAR_WAIT: case OP_BARRIER:
    case OP_CLUSTER_BARRIER: case OP_TICKET: case OP_BULK_STORE: case OP_BULK_WAIT: case OP_RANGE:
    case OP_END: case OP_GUARD: case OP_ENDGUARD:
        return true;
    default:
        return false;
    }
}

/* Adds the load to a group of its segment; `first`: the segment's first group. */
static void note_load(struct joining *j, struct uop *u, int first)
{
    struct tgc *t = j->e->t;
    int64_t c;
    if (u->lanes != 1 || (u->nsrc > 2 && !load_is_zero_elsewhere(u)) || !may_join(t, u->dtype) ||
        u->src[1]->op == OP_CONST || uop_buffer_of(u->src[0])->dtype != u->dtype ||
        !buffer_is_aligned(t, uop_buffer_of(u->src[0]), ALIGNED))
        return;
    struct uop *base = split_offset(u->src[1], &c);
    int64_t lane = int_floormod(c, ALIGNED);
    if (index_divisor(t, base) % ALIGNED)
        return;
    struct uop *offset = sym_addi(t, base, c - lane), *valid = u->nsrc > 2 ? u->src[2] : NULL;
    int i = first;
    while (i < j->ngroup && (j->group[i].memory != u->src[0] || j->group[i].offset != offset ||
                             j->group[i].valid != valid))
        i++;
    if (i == j->ngroup)
        SCRATCH_PUSH(t, j->group, j->ngroup, j->cap_group,
                     ((struct group){u->src[0], offset, valid, 0, {0}, NULL}));
    struct group *g = &j->group[i];
    g->n += g->load[lane] == NULL;
    g->load[lane] = u;
    map_set(&j->group_of, u, (void *)(uintptr_t)(i + 1));
}

static void find_groups(struct joining *j)
{
    for (int i = 0, first = 0; i < j->e->nin; i++) {
        if (ends_segment(j->e->in[i]))
            first = j->ngroup;
        if (j->e->in[i]->op == OP_LOAD)
            note_load(j, j->e->in[i], first);
    }
}

/* ---------------------------------------------------------------------------------- the program */

static struct uop *with_operands(struct joining *j, struct uop *u, union arg arg)
{
    struct uop **src = scratch_array(j->e->t, (size_t)u->nsrc + 1, sizeof *src);
    bool changed = arg.i != u->arg.i;
    for (int k = 0; k < u->nsrc; k++) {
        struct uop *now = map_get(&j->now, u->src[k]);
        src[k] = now ? now : u->src[k];
        changed |= now != NULL;
    }
    if (!changed)
        return u;
    struct uop *now = uop_intern(j->e->t, u->op, u->dtype, src, u->nsrc, arg);
    uop_set_origin(j->e->t, now, u);
    if (u->op == OP_RANGE && uop_get_axes(j->e->t, u))
        uop_name_axes(j->e->t, now, uop_get_axes(j->e->t, u));
    map_set(&j->now, u, now);
    return now;
}

/* An element of its group's vector, which is loaded at the first of the group's loads. */
static void write_lane(struct joining *j, struct uop *u, struct group *g)
{
    struct expander *e = j->e;
    struct uop *src[4] = {g->memory, g->offset, g->valid};
    int lane = 0;
    while (g->load[lane] != u)
        lane++;
    if (!g->vector) {
        expand_need(e, g->offset);
        if (g->valid)
            src[3] = expand_splat(e, uop_consti(e->t, u->dtype, 0), ALIGNED);
        g->vector =
            uop_intern(e->t, OP_LOAD, u->dtype, src, g->valid ? 4 : 2,
                       (union arg){.i = ARG_PACK(VECTOR, ALIGNED, 0, 1, false, is_word(u->dtype))});
        expand_need(e, g->vector);
    }
    struct uop *now = uop_intern(e->t, OP_LANE, u->dtype, &g->vector, 1, (union arg){.i = lane});
    map_set(&j->now, u, now);
    expand_need(e, now);
    j->changed = true;
}

static void write_program(struct joining *j)
{
    struct expander *e = j->e;
    for (int i = 0; i < e->nin; i++) {
        struct uop *u = e->in[i];
        intptr_t number = u->op == OP_LOAD ? (intptr_t)map_get(&j->group_of, u) : 0;
        if (number && j->group[number - 1].n == ALIGNED) {
            write_lane(j, u, &j->group[number - 1]);
            continue;
        }
        union arg arg = u->arg;
        if ((u->op == OP_LOAD || u->op == OP_STORE) && access_is_aligned(e->t, u))
            arg.i = arg_with(arg.i, ARG_VECTOR_IS_ALIGNED, true);
        struct uop *now = with_operands(j, u, arg);
        j->changed |= now != u;
        expand_copy(e, now);
    }
}

static void align_program(struct tgc *t, struct uop ***linear, int *nlinear)
{
    struct mem_mark mark = scratch_mark(t);
    struct expander *e = scratch_array(t, 1, sizeof *e);
    *e = (struct expander){.t = t, .in = *linear, .nin = *nlinear};
    struct joining j = {.e = e};
    e->scopes.known = j.group_of = j.now = (struct uop_map){.t = t, .scratch = true};
    find_groups(&j);
    write_program(&j);
    if (j.changed) {
        *linear = mem_copy(t, e->out, (size_t)e->nout * sizeof *e->out);
        *nlinear = e->nout;
    }
    scratch_release(t, mark);
}

bool pass_aligned(struct tgc *t, struct schedule *s, struct kernel *k)
{
    (void)s;
    for (int i = 0; i < k->nvariant && device_has_grid(t); i++)
        align_program(t, &k->variant[i].linear, &k->variant[i].nlinear);
    return true;
}
