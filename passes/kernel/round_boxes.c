/* round_boxes.c - lets the copy engine round: a tensor that is only rounded before boxes of it are
 * copied is not stored.
 *
 *      kernel 0    t[i*1040 + j] = tf32(x[i*1024 + j])
 *      kernel 1    stage(%local, load(t, (16*q + i)*1040 + 8*k + j), ...)      how=bulk
 *  ->  kernel 1    stage(%local, tf32(load(x, (16*q + i)*1024 + 8*k + j)), ...)
 *
 * An element of t is one of x, rounded, at the same position, or in rows of another pitch: t's rows
 * may be padded (layout.c). All that is read of t was stored there, so where a condition lets an
 * element be read, x has it. If all kernels read t by boxes alone, nobody stores it. Kernels with
 * twins share their programs, so they read t as before.
 *
 * --math=tf32 rounds inputs of the model so; what a kernel computes is rounded where it is
 * stored. */
#include "passes/analysis/box.h"
#include "passes/analysis/nest.h"
#include "passes/kernel/opts_work.h"
#include "passes/passes.h"
#include "passes/target/target.h"

/* A kernel that rounds a tensor. Pitches: elements from a row to the next, of both tensors; 0:
 * positions are equal. */
struct rounding {
    struct kernel *k;
    int step;
    struct buffer *to, *from;
    int64_t pitch, pitch_from;
    bool stays;
};

/* ------------------------------------------------------------------------------------ roundings */

/* Whether the offset is a sum of ranges times known strides. */
static bool is_plain_sum(struct tgc *t, struct uop *offset, struct uop *const *range, int n,
                         int64_t *stride)
{
    struct uop *sum = uop_int(t, 0);
    for (int i = 0; i < n; i++) {
        if (range_fixed_size(range[i]) < 1 || !index_stride(t, offset, range[i], &stride[i]))
            return false;
        sum = sym_add(t, sum, sym_muli(t, range[i], stride[i]));
    }
    return sum == offset;
}

/* Finds rows of two pitches, contiguous in both tensors. */
static bool find_pitch(struct rounding *r, struct uop *const *range, int n, const int64_t *to,
                       const int64_t *from)
{
    int64_t last = 0;
    for (int i = 0; i < n; i++) {
        if (to[i] == from[i])
            last = sat_add(last, sat_mul(to[i], range_fixed_size(range[i]) - 1));
        else if (!r->pitch || to[i] < r->pitch)
            r->pitch = to[i], r->pitch_from = from[i];
    }
    for (int i = 0; i < n; i++)
        if (to[i] < 1 || from[i] < 1 ||
            (to[i] != from[i] && (to[i] % r->pitch || from[i] != to[i] / r->pitch * r->pitch_from)))
            return false;
    return !r->pitch || last < r->pitch;
}

/* A buffer of its own, of the run's. */
static bool is_whole(const struct buffer *b)
{
    return !b->base && !b->port.state && !b->port.first && !b->kept;
}

/* The buffer of a twin: its AST names those of the other kernel. */
static struct buffer *own_of(const struct kernel *k, const struct uop *access)
{
    struct buffer *b = (struct buffer *)(uintptr_t)uop_buffer_of(access->src[0]),
                  *here = kernel_buffer_here(k, b);
    return here ? here : b;
}

static bool find_rounding(struct tgc *t, struct kernel *k, struct rounding *r)
{
    const struct uop *store = k->ast->src[0], *value = store->src[2],
                     *load = value->op == OP_CAST ? value->src[0] : value;
    const int first = store_first_range(store), n = store->nsrc - first;
    if (k->ast->nsrc != 1 || first != 3 || n > RANGES_MAX || value->op != OP_CAST ||
        value->dtype != DTYPE_TF32 || load->op != OP_LOAD || load->dtype != DTYPE_F32 ||
        load->nsrc != 2 || load->src[0]->op != OP_BUFFER || store->src[0]->op != OP_BUFFER)
        return false;
    int64_t to[RANGES_MAX], from[RANGES_MAX];
    *r = (struct rounding){.k = k, .to = own_of(k, store), .from = own_of(k, load)};
    return r->to->kind == BUFFER_TEMP && is_whole(r->to) &&
           (r->from->kind == BUFFER_INPUT || r->from->kind == BUFFER_TEMP) && is_whole(r->from) &&
           is_plain_sum(t, store->src[1], store->src + first, n, to) &&
           is_plain_sum(t, load->src[1], store->src + first, n, from) &&
           find_pitch(r, store->src + first, n, to, from);
}

/* -------------------------------------------------------------------------------------- readers */

/* The terms of an offset: rows, whose pitch changes, and elements in a row. */
struct terms { struct uop *row, *rest; };

static void add_terms(struct tgc *t, const struct rounding *r, struct uop *u, int64_t times,
                      struct terms *at)
{
    int64_t c;
    if (u->op == OP_ADD) {
        add_terms(t, r, u->src[0], times, at);
        add_terms(t, r, u->src[1], times, at);
    } else if (u->op == OP_MUL && uop_const_int(u->src[1], &c)) {
        add_terms(t, r, u->src[0], sat_mul(times, c), at);
    } else if (u->op == OP_CONST) {
        const int64_t all = sat_mul(u->arg.i, times);
        at->row = sym_addi(t, at->row, all / r->pitch * r->pitch_from);
        at->rest = sym_addi(t, at->rest, all % r->pitch);
    } else if (times % r->pitch == 0) {
        at->row = sym_add(t, at->row, sym_muli(t, u, times / r->pitch * r->pitch_from));
    } else {
        at->rest = sym_add(t, at->rest, sym_muli(t, u, times));
    }
}

/* The load from the other tensor that replaces a load of the rounded one; NULL: the position is
 * unknown. */
static struct uop *loaded_from(struct tgc *t, const struct rounding *r, const struct uop *load)
{
    struct terms at = {uop_int(t, 0), uop_int(t, 0)};
    struct uop *src[4] = {uop_buffer(t, r->from), load->src[1]};
    if (load->arg.i || (load->nsrc > 2 && !load_is_zero_elsewhere(load)))
        return NULL;
    if (r->pitch) {
        add_terms(t, r, load->src[1], 1, &at);
        if (at.rest->vmin < 0 || at.rest->vmax >= r->pitch)
            return NULL;
        src[1] = sym_add(t, at.row, at.rest);
    }
    if (load->nsrc > 2)
        src[2] = load->src[2], src[3] = uop_constf(t, DTYPE_F32, 0);
    return uop_cast(t, DTYPE_TF32, uop_intern(t, OP_LOAD, DTYPE_F32, src, load->nsrc, load->arg));
}

static bool loads(const struct uop *u, const struct buffer *b)
{
    return u->op == OP_LOAD && u->src[0]->op == OP_BUFFER && uop_buffer_of(u->src[0]) == b;
}

/* Whether the copy would be a box of the other tensor. */
static bool is_box(struct tgc *t, const struct rounding *r, const struct uop *stage)
{
    struct uop *value = loaded_from(t, r, stage->src[0]);
    struct box b;
    const char *why;
    return value && box_read(t, value, stage->src[1], stage->src + 2, stage->nsrc - 2,
                             (struct box_to){uop_buffer_of(stage), false}, &b, &why);
}

/* Whether the AST reads the rounded tensor by boxes alone. */
static bool reads_boxes(struct tgc *t, const struct rounding *r, struct uop *ast)
{
    int n;
    bool boxes = true;
    struct uop **order = uop_toposort(t, &ast, 1, &n);
    for (int i = 0; i < n && boxes; i++)
        for (int j = 0; j < order[i]->nsrc && boxes; j++) {
            const struct uop *u = order[i];
            const bool of_box = u->op == OP_STAGE && j == 0 &&
                                uop_buffer_of(u)->scratch.pipeline.stages &&
                                uop_buffer_of(u)->scratch.pipeline.transfer == TRANSFER_BULK;
            boxes = !loads(u->src[j], r->to) || (of_box && is_box(t, r, u));
        }
    return boxes;
}

static bool has_buffer(const struct kernel *k, const struct buffer *b, bool stored)
{
    bool has = false;
    for (int i = 0; i < (stored ? k->noutput : k->nbuffer); i++)
        has |= buffer_root(k->buffer[i]) == b;
    return has;
}

static bool has_twins(const struct schedule *s, const struct kernel *k)
{
    bool has = k->like != NULL;
    for (int i = 0; i < s->nkernel; i++)
        has |= s->kernel[i]->like && s->kernel[i]->like->kernel == k;
    return has;
}

/* Whether the kernel may read the other tensor: its program is not shared, and it copies boxes. */
static bool may_read(struct tgc *t, const struct schedule *s, const struct rounding *r,
                     const struct kernel *k)
{
    bool may = !has_twins(s, k) && reads_boxes(t, r, k->ast);
    for (int i = 0; i < k->nvariant; i++)
        may = may && reads_boxes(t, r, k->variant[i].ast);
    return may;
}

/* ------------------------------------------------------------------------------------- schedule */

/* Whether the rounded tensor is not needed: only kernels that read boxes use it, and its source
 * still exists for them. All steps from its kernel to the last reader must be of one branch or
 * loop, and none may store to the source. */
static bool may_go(struct tgc *t, const struct schedule *s, const struct rounding *r)
{
    bool may = true, same = true;
    for (int i = 0; i < s->nstep && may; i++) {
        const struct step *st = &s->step[i];
        same = same && (i <= r->step || st->kind == STEP_KERNEL || st->kind == STEP_HOST);
        for (int j = 0; j < st->narg; j++)
            may = may && buffer_root(st->arg[j]) != r->to &&
                  (i < r->step || buffer_root(st->arg[j]) != r->from);
        if (!st->kernel || i == r->step)
            continue;
        may = may && !has_buffer(st->kernel, r->to, true) &&
              (i < r->step || !has_buffer(st->kernel, r->from, true));
        if (may && has_buffer(st->kernel, r->to, false))
            may = i > r->step && same && may_read(t, s, r, st->kernel);
    }
    return may;
}

/* Keeps kernels whose program twins share that stay. */
static void keep_programs(const struct schedule *s, struct rounding *r, int n)
{
    for (int i = 0; i < n; i++)
        for (int k = 0; k < s->nkernel && !r[i].stays; k++) {
            bool goes = !s->kernel[k]->like || s->kernel[k]->like->kernel != r[i].k;
            for (int j = 0; j < n; j++)
                goes |= r[j].k == s->kernel[k] && !r[j].stays;
            r[i].stays = !goes;
        }
}

static void read_boxes(struct tgc *t, struct kernel *k, const struct rounding *r)
{
    for (int i = 0; i <= k->nvariant; i++) {
        struct uop **ast = i ? &k->variant[i - 1].ast : &k->ast;
        struct uop_map by = {.t = t, .scratch = true};
        int n;
        struct uop **order = uop_toposort(t, ast, 1, &n);
        for (int j = 0; j < n; j++)
            if (loads(order[j], r->to))
                map_set(&by, order[j], loaded_from(t, r, order[j]));
        *ast = uop_substitute_all(t, *ast, &by);
    }
    kernel_collect_buffers(t, k);
}

static void drop(struct schedule *s, const struct kernel *k)
{
    int nstep = 0, nkernel = 0;
    for (int i = 0; i < s->nstep; i++)
        if (s->step[i].kernel != k)
            s->step[nstep++] = s->step[i];
    for (int i = 0; i < s->nkernel; i++)
        if (s->kernel[i] != k) {
            s->kernel[i]->index = nkernel;
            s->kernel[nkernel++] = s->kernel[i];
        }
    s->nstep = nstep;
    s->nkernel = nkernel;
}

bool pass_round_boxes(struct tgc *t, struct schedule *s)
{
    struct rounding *r = NULL, one;
    const int nstep = s->nstep;
    int n = 0;
    size_t cap = 0;
    if (!device_copies_boxes(t))
        return true;
    for (int i = 0; i < s->nstep; i++)
        if (s->step[i].kernel && find_rounding(t, s->step[i].kernel, &one)) {
            one.step = i;
            if (may_go(t, s, &one))
                SCRATCH_PUSH(t, r, n, cap, one);
        }
    for (int i = 0; i < n; i++)                       /* keeping one may require keeping another */
        keep_programs(s, r, n);
    for (int i = 0; i < n; i++) {
        if (r[i].stays)
            continue;
        for (int k = 0; k < s->nkernel; k++)
            if (s->kernel[k] != r[i].k && has_buffer(s->kernel[k], r[i].to, false))
                read_boxes(t, s->kernel[k], &r[i]);
        drop(s, r[i].k);
    }
    if (s->nstep < nstep)
        schedule_collect_buffers(t, s);
    return true;
}
