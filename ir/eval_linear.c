/* eval_linear.c - runs a linear kernel program, one scalar after the other.
 *
 * eval_linear_code.c makes instructions of it, eval_linear_memory.c loads and stores. Registers
 * hold double or int64 as in the rest of the evaluator. Array order is execution order. A register
 * that is read before anything was computed into it is a bug of the compiler and ends the
 * evaluation as one.
 *
 * The threads of a block are evaluations of their own, of the same part, that share shared memory.
 * They run one after the other up to the next barrier, which ends a phase. Where some of them copy
 * for the others (ROLE), those others may have barriers of their own. Of a grid's places, part p of
 * P runs those whose number is p modulo P.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ir/eval.h"

static union scalar *lane_element(const struct linear_eval *e, const struct linstr *in)
{
    const struct lanes *l = &e->lanes[in->memory];
    int64_t at = 0;
    for (int k = 0; k < l->n; k++)
        at = at * l->size[k] + e->reg[l->reg[k]].i;
    return &l->data[at * l->wide];
}

/* What an operation marked as plain promises: see passes/target/widths.c. */
static bool keeps_promise(const struct linstr *in, const union scalar *v, union scalar r)
{
    const int64_t a = v[0].i, b = in->nsrc > 1 ? v[1].i : 0;
    int64_t exact = 0;
    bool over = false;
    switch (in->op) {
    case OP_NEG: over = __builtin_sub_overflow((int64_t)0, a, &exact); break;
    case OP_ABS: over = __builtin_sub_overflow((int64_t)0, a < 0 ? a : -a, &exact); break;
    case OP_ADD: over = __builtin_add_overflow(a, b, &exact); break;
    case OP_SUB: over = __builtin_sub_overflow(a, b, &exact); break;
    case OP_MUL: over = __builtin_mul_overflow(a, b, &exact); break;
    case OP_MULACC:
        over = __builtin_mul_overflow(a, b, &exact) ||
               __builtin_add_overflow(exact, v[2].i, &exact);
        break;
    case OP_SHL:
        over = a < 0 || b < 0 || b > 30 || __builtin_mul_overflow(a, (int64_t)1 << b, &exact);
        break;
    case OP_SHR: return a >= 0 && b >= 0 && b < dtype_bits(in->dtype);
    case OP_DIV: case OP_MOD: return b != 0 && (b != -1 || a != dtype_min(in->dtype));
    case OP_FLOORDIV: case OP_FLOORMOD: return a >= 0 && b > 0;
    case OP_MAX: case OP_MIN: return v[0].f == v[0].f;
    case OP_CAST:
        if (dtype_is_float(in->sdtype))
            return v[0].f != v[0].f || (v[0].f >= 0 && v[0].f <= 255);
        if (dtype_is_float(in->dtype))
            return a <= 1 << 24 && a >= -(1 << 24);
        exact = a;
        break;
    default: return false;
    }
    return !over && r.i == exact;
}

static void run_alu(struct linear_eval *e, const struct linstr *in)
{
    union scalar v[3];
    for (int l = 0; l < in->lanes; l++) {
        for (int k = 0; k < in->nsrc; k++)
            v[k] = e->reg[in->src[k] + l * in->step[k]];
        const union scalar r = eval_scalar(in->op, in->dtype, in->sdtype, v);
        if (in->plain && !keeps_promise(in, v, r))
            TGC_BUG(e->t, "%s of %lld and %lld is not plain", op_name(in->op), (long long)v[0].i,
                    in->nsrc > 1 ? (long long)v[1].i : 0LL);
        e->reg[in->dst + l] = r;
    }
}

static void run_fold(struct linear_eval *e, const struct linstr *in)
{
    union scalar v[2] = {e->reg[in->src[0]]};
    for (int l = 1; l < e->of[in->src[0]]->lanes; l++) {
        v[1] = e->reg[in->src[0] + l];
        v[0] = eval_scalar(in->op, in->dtype, in->dtype, v);
    }
    e->reg[in->dst] = v[0];
}

static void run_intrinsic(struct linear_eval *e, const struct linstr *in)
{
    struct meaning *m = &e->meaning[in->target];
    struct eval_env env = {.leaf = m->leaf, .value = m->value, .n = m->n, .budget = -1};
    bool table = in->memory >= 0;
    for (int64_t i = 0; table && i < m->value[0]->nelem; i++)
        ((union scalar *)m->value[0]->data)[i] = eval_memory_get(&e->memory.v[in->memory], i);
    for (int k = table; k < m->n; k++)
        memcpy(m->value[k]->data, &e->reg[in->src[k - table]],
               (size_t)m->value[k]->nelem * sizeof(union scalar));
    if (!eval_values(e->t, m->root, in->lanes, &env, &e->reg[in->dst]))
        e->failed = true;
}

/* A factor's value: narrow floats are loaded as their bits. */
static double from_bits(enum dtype d, const struct linstr *in, int factor, union scalar v)
{
    const uint16_t bits = (uint16_t)v.i;
    const uint8_t low = (uint8_t)v.i;
    return in->step[factor] == 2
               ? scalar_load(d, dtype_nbytes(d) == 1 ? (const void *)&low : &bits).f
               : v.f;
}

enum { FACTOR_MOST = 1024 };

/* The factor's matrix, with k along its rows, of what the wave's threads have in registers, rounded
 * to its dtype. */
static const union scalar *gather_factor(struct linear_eval *e, const struct linstr *in, int factor,
                                         union scalar *matrix)
{
    const struct matrix_row *row = matrix_row(MATRIX_ROW(in->bits));
    enum matrix_part part = factor ? MATRIX_B : MATRIX_A;
    int thread = (int)e->reg[in->src[2]].i / row->lanes * row->lanes, at[MATRIX_NONE + 1];
    if (in->step[factor] != 3)
        return &e->reg[in->src[factor]];
    for (int lane = 0; lane < row->lanes; lane++)
        for (int i = 0; i < matrix_elements(row, part); i++) {
            uint64_t bits = 0;
            matrix_place(row, part, lane, i, at);
            scalar_store(row->dtype[part], &bits,
                         (e - e->thread + thread + lane)
                             ->reg[in->src[factor] + matrix_own_element(row, part, i)]);
            matrix[at[factor ? MATRIX_N : MATRIX_M] * row->size[MATRIX_K] + at[MATRIX_K]] =
                scalar_load(row->dtype[part], &bits);
        }
    return matrix;
}

/* A thread's elements of the product. All threads of the wave load the same tiles, so
 * each computes its own. */
static void run_matrix(struct linear_eval *e, const struct linstr *in)
{
    const struct lanes *l = &e->lanes[in->memory];
    const struct matrix_row *row = matrix_row(MATRIX_ROW(in->bits));
    union scalar own[2][FACTOR_MOST];
    const union scalar *a = gather_factor(e, in, 0, own[0]), *b = gather_factor(e, in, 1, own[1]);
    const int m = row->size[MATRIX_M], n = row->size[MATRIX_N], nk = row->size[MATRIX_K];
    int at[MATRIX_NONE + 1];
    int64_t first = 0;
    for (int k = 0; k < l->n; k++)
        first = first * l->size[k] +
                (range_is(l->acc->src[k + 1], AXIS_ELEMENT) ? 0 : e->reg[l->reg[k]].i);
    for (int i = 0; i < matrix_elements(row, MATRIX_SUM); i++) {
        union scalar *sum = &l->data[first + i];
        matrix_place(row, MATRIX_SUM, (int)(e->reg[in->src[2]].i % row->lanes), i, at);
        for (int k = 0; k < nk; k++) {
            union scalar
                x = a[MATRIX_ALONG_K(in->bits, 0) ? at[MATRIX_M] * nk + k : k * m + at[MATRIX_M]],
                y = b[MATRIX_ALONG_K(in->bits, 1) ? at[MATRIX_N] * nk + k : k * n + at[MATRIX_N]];
            if (dtype_is_float(row->dtype[MATRIX_SUM]))
                sum->f += from_bits(row->dtype[MATRIX_A], in, 0, x) *
                          from_bits(row->dtype[MATRIX_B], in, 1, y);
            else
                sum->i = (int32_t)((uint32_t)sum->i + (uint32_t)(x.i * y.i));
        }
    }
}

static void run_nearest(struct linear_eval *e, const struct linstr *in)
{
    for (int l = 0; l < in->lanes; l++) {
        double v = rint(e->reg[in->src[0] + l].f);
        double lo = (double)dtype_min(in->dtype), hi = (double)dtype_max(in->dtype);
        if (!(fabs(v) < 0x1p31))
            TGC_BUG(e->t, "nearest of %g", v);
        e->reg[in->dst + l].i = (int64_t)(v < lo ? lo : v > hi ? hi : v);
    }
}

static void run_narrow(struct linear_eval *e, const struct linstr *in)
{
    for (int l = 0; l < in->lanes; l++) {
        union scalar v = e->reg[in->src[0] + l];
        int64_t most = in->target,
                n = in->sdtype != DTYPE_F32 ? v.i : v.f != v.f ? 0
                    : v.f >= (double)most   ? most
                    : v.f <= -(double)most  ? -most
                                            : (int64_t)v.f;
        e->reg[in->dst + l].i = n > most ? most : n < -most ? -most : n;
    }
}

/* STORE's ranges and CLOSE's size are not read as values. */
static void check_set(const struct linear_eval *e, const struct linstr *in)
{
    int n = in->code == CODE_STORE ? 2 : in->code == CODE_CLOSE ? 0 : in->nsrc;
    for (int k = 0; k < n; k++)
        if (!e->set[in->src[k]])
            TGC_BUG(e->t, "%s reads %s before it is computed", op_name(e->of[in->dst]->op),
                    op_name(e->of[in->src[k]]->op));
}

/* The first iteration whose place in the grid is this part's. */
static int64_t first_place(const struct linear_eval *e, const struct linstr *in, int64_t n)
{
    int64_t parts = e->env->parts, row = 0;
    for (int i = 0; i < in->nouter; i++) {
        const struct linstr *around = &e->code[in->outer[i]];
        row = (row * e->reg[around->src[0]].i + e->reg[around->dst].i) % parts;
    }
    return (e->env->part + parts - row * (n % parts) % parts) % parts;
}

/* The first iteration of a loop (end 0) and the end of its iterations (end 1). */
static int64_t loop_bound(const struct linear_eval *e, const struct linstr *in, int end)
{
    int64_t n = e->reg[in->src[0]].i;
    if (in->grid)
        return end ? n : first_place(e, in, n);
    if (in->item)
        return e->thread / in->item % n + end;
    return in->shared     ? n * (e->env->part + end) / e->env->parts
           : in->of_block ? n * (e->thread + end) / e->threads
                          : n * end;
}

/* Up to the next barrier, to one in memory whose phase has not ended, or to the end. */
static bool run(struct linear_eval *e)
{
    int pc = e->pc;
    int64_t n = 0;
    for (e->pc = e->ncode; pc < e->ncode && !e->failed;) {
        const struct linstr *in = &e->code[pc++];
        n++;
        if (e->budget >= 0 && e->budget-- == 0)
            return false;
        check_set(e, in);
        switch (in->code) {
        case CODE_ALU:
            run_alu(e, in);
            break;
        case CODE_LOAD:
            eval_linear_load(e, in);
            break;
        case CODE_STORE:
            eval_linear_store(e, in);
            break;
        case CODE_TRANSFER:
            eval_linear_transfer(e, in);
            break;
        case CODE_COPY:
            for (int l = 0; l < in->lanes; l++)
                e->reg[in->dst + l] = e->reg[in->src[0] + l % in->period];
            break;
        case CODE_PICK:
            if (in->target == 0 || e->reg[in->src[0]].i >= in->target)
                e->reg[in->dst] = e->reg[in->src[1]];
            break;
        case CODE_MATRIX:
            run_matrix(e, in);
            break;
        case CODE_NEAREST:
            run_nearest(e, in);
            break;
        case CODE_COUNT:
            for (int l = 0; l < in->lanes; l++)
                e->reg[in->dst + l].i = l;
            break;
        case CODE_NARROW:
            run_narrow(e, in);
            break;
        case CODE_GATHER:
            eval_linear_gather(e, in);
            break;
        case CODE_RAMP:
            for (int l = 0; l < in->lanes; l++)
                e->reg[in->dst + l].f = e->reg[in->src[0]].f + l;
            break;
        case CODE_INTRINSIC:
            run_intrinsic(e, in);
            break;
        case CODE_LANE:
            e->reg[in->dst] = e->reg[in->src[0] + in->target];
            break;
        case CODE_FOLD:
            run_fold(e, in);
            break;
        case CODE_LANES_INIT:
            for (int64_t i = 0; i < e->lanes[in->memory].nelem * e->lanes[in->memory].wide; i++)
                e->lanes[in->memory].data[i] = e->reg[in->src[0]];
            break;
        case CODE_LANES_GET:
            ARRAY_COPY(&e->reg[in->dst], lane_element(e, in), e->lanes[in->memory].wide);
            break;
        case CODE_LANES_SET:
            ARRAY_COPY(lane_element(e, in), &e->reg[in->dst], e->lanes[in->memory].wide);
            break;
        case CODE_OPEN:
            e->reg[in->dst].i = loop_bound(e, in, 0);
            if (e->reg[in->dst].i >= loop_bound(e, in, 1))
                pc = in->target;
            break;
        case CODE_CLOSE:
            e->reg[in->dst].i += in->grid ? e->env->parts : 1;
            if (e->reg[in->dst].i < loop_bound(e, in, 1))
                pc = in->target;
            if (!in->place || e->threads < 2)
                break;
            e->pc = pc;          /* the next place begins when all threads have left this one */
            e->of_role = false;
            e->phase++;
            return true;
        case CODE_TAKE:
            e->reg[in->dst] = (e - e->thread + (e->thread ^ in->mask))->offered[(e->phase - 1) & 1];
            break;
        case CODE_OFFER:
            e->offered[e->phase & 1] = e->reg[in->dst];
            e->of_role = in->of_role;
            e->pc = pc;
            e->phase++;
            return true;
        case CODE_BARRIER:
            e->of_role = in->of_role;
            e->pc = pc;
            e->phase++;
            return true;
        case CODE_TICKET:
            eval_linear_ticket(e, in);
            break;
        case CODE_ROLE:
            e->reg[in->dst].i = role_has(ROLE_OF(in->bits), ROLE_CONSUMERS_OF(in->bits), e->thread);
            break;
        case CODE_MBAR:
            if (eval_linear_mbar(e, in))
                break;
            e->pc = pc - 1;
            e->polls = true;
            e->went = n > 1;
            return true;
        case CODE_BULK:
            eval_linear_bulk(e, &e->bulk[in->target]);
            break;
        case CODE_BULK_STORE:
            eval_linear_bulk_store(e, &e->bulk[in->target]);
            break;
        case CODE_SKIP_UNLESS:
            if (!e->reg[in->src[0]].i)
                pc = in->target;
            break;
        }
        e->set[in->dst] = true;
    }
    return !e->failed;
}

/* Those threads that nothing holds, each up to where it waits or ends; *went: some of
 * them have gone on. */
static bool run_threads(struct linear_eval *e, bool *went)
{
    bool ok = true;
    *went = false;
    for (int i = 0; i < e->threads && ok; i++) {
        if (e[i].stops)
            continue;
        e[i].polls = false, e[i].went = true;
        ok = run(&e[i]);
        e[i].stops = !e[i].polls;
        *went |= e[i].went;
    }
    return ok;
}

/* Whether the first n threads are all at the same barrier, or at their end. */
static bool have_met(const struct linear_eval *e, int n)
{
    for (int i = 0; i < n; i++)
        if (!e[i].stops || e[i].pc != e[0].pc)
            return false;
    return true;
}

/* Lets the block's threads go on that have come to a barrier of all of them, or else the consumers
 * at one of theirs. */
static bool release(struct linear_eval *e)
{
    int n = have_met(e, e->threads)                                   ? e->threads
            : have_met(e, e->items) && e->of_role && e->pc < e->ncode ? e->items
                                                                      : 0;
    for (int i = 0; i < n; i++)
        e[i].stops = false;
    return n > 0;
}

static _Noreturn void report_stuck(const struct linear_eval *e)
{
    int polling = 0;
    for (int i = 0; i < e->threads; i++)
        polling += e[i].polls;
    if (polling)
        TGC_BUG(e->t, "%d threads wait for phases that do not end", polling);
    TGC_BUG(e->t, "threads of a block are at different barriers");
}

/* All threads of the block, from barrier to barrier. Those that wait at one in memory go on when
 * others have gone on. */
static bool run_block(struct linear_eval *e)
{
    bool ok, went;
    do {
        ok = run_threads(e, &went);
        if (ok && have_met(e, e->threads) && e->pc == e->ncode)
            return true;
        if (ok && !release(e) && !went)
            report_stuck(e);
    } while (ok);
    return false;
}

static void block_free(struct linear_eval *e)
{
    for (int i = e->threads - 1; i >= 0; i--)
        eval_linear_free(&e[i]);
    free(e);
}

/* Threads beside those that the caller's block has, of a program in which they have roles: as many
 * as its copies say. */
static int count_producers(struct uop *const *u, int n)
{
    int most = 0;
    bool roles = false;
    for (int i = 0; i < n; i++) {
        const struct buffer *to = u[i]->op == OP_BULK ? uop_buffer_of(u[i]->src[BULK_TO]) : NULL;
        roles |= u[i]->op == OP_ROLE;
        most = to && to->scratch.pipeline.producers > most ? to->scratch.pipeline.producers : most;
    }
    return roles ? most : 0;
}

bool eval_linear(struct tgc *t, struct uop *const *u, int n, const struct eval_env *env)
{
    const int items = env->block > 0 ? env->block : 1, threads = items + count_producers(u, n);
    struct linear_eval *const e = calloc((size_t)threads, sizeof *e);
    jmp_buf outer;
    if (!e)
        return false;
    for (int i = 0; i < threads; i++) {
        e[i] = (struct linear_eval){.t = t,
                                    .env = env,
                                    .budget = env->budget,
                                    .thread = i,
                                    .threads = threads,
                                    .items = items};
        e[i].memory = (struct eval_memory){
            .t = t, .env = env, .failed = &e[i].failed, .block = i ? &e[0].memory : NULL};
    }
    memcpy(&outer, &t->stop, sizeof outer);
    /* a stop of the compile must not leak */
    if (setjmp(t->stop)) {
        memcpy(&t->stop, &outer, sizeof outer);
        block_free(e);
        tgc_stop(t);
    }
    bool failed = false;
    for (int i = 0; i < e->threads; i++) {
        eval_linear_compile(&e[i], u, n);
        failed |= e[i].failed;
    }
    bool ok = !failed && run_block(e);
    memcpy(&t->stop, &outer, sizeof outer);
    block_free(e);
    return ok;
}
