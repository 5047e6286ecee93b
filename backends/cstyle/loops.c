/* loops.c - loops, guards and accumulators of a kernel as C statements. */
#include "backends/cstyle/writer.h"
#include "passes/analysis/access.h"
#include "passes/target/target.h"

#include <string.h>

/* ---------------------------------------------------------------------------------------- loops */

enum { STEP_TURNS = 4 };         /* iterations of a block's reduction stage in straight-line code */

static const char *loop_stem(const struct writer *w, const struct uop *range)
{
    static const char *const letter[] = {"i", "j", "k", "l", "m"};
    const char *axes = uop_get_axes(w->t, range);
    int nloop = 0;
    for (int i = 0; i < w->depth; i++)
        nloop += w->block[i].counter != NULL;
    return axes && *axes ? axes : letter[nloop < 5 ? nloop : 4];
}

static const char *loop_name(struct writer *w, const char *stem)
{
    const char *base = name_mangle(w->t, stem);
    return names_number(w->f->names, *base ? base : "i", "");
}

/* An accumulator with lanes is an array; its name stands for the element of the open lanes' loops:
 * sum[i][j]. */
static void set_tile_element(struct writer *w, const struct uop *acc)
{
    struct value *v = writer_value(w, acc);
    struct text s = {.t = w->t};
    text_puts(&s, v->array);
    for (int k = 1; k < acc->nsrc; k++) {
        const struct value *lane = map_get(&w->value, acc->src[k]);
        text_printf(&s, "[%s]", lane ? lane->e.s : "0");
    }
    v->e.s = s.s;
}

/* The begin and end of this thread's part of a loop, as variables. The arithmetic is unsigned:
 * clang 14 analyses an unsigned quotient better. It then addresses a tile's rows by one pointer,
 * not by one each. */
static void write_share(struct writer *w, const struct uop *u, const char *type,
                        const struct expr *size, const char **begin, const char **end)
{
    const char *part = "part", *parts = "parts";
    bool wide = strcmp(type, "int") != 0 || sat_mul(u->src[0]->vmax, w->p->threads) > UINT32_MAX;
    const char *n = mem_printf(w->t, "(%s)%s", wide ? "uint64_t" : "unsigned",
                               expr_operand(w->p, size, PREC_UNARY));
    *begin = writer_local(w, "begin");
    *end = writer_local(w, "end");
    writer_put(w, mem_printf(w->t, "const %s %s = (%s)(%s * %s / %s);", type, *begin, type, n, part,
                             parts), true);
    writer_put(w, mem_printf(w->t, "const %s %s = (%s)(%s * (%s + 1) / %s);", type, *end, type, n,
                             part, parts), true);
}

/* Whether the loop that begins here contains an op of such kind. */
static bool loop_has(const struct writer *w, bool (*is)(const struct uop *))
{
    for (int i = w->position + 1, depth = 1; i < w->nlinear && depth > 0; i++) {
        if (is(w->linear[i]))
            return true;
        depth += w->linear[i]->op == OP_RANGE ? 1 : w->linear[i]->op == OP_END ? -1 : 0;
    }
    return false;
}

static bool is_load(const struct uop *u) { return u->op == OP_LOAD || u->op == OP_GATHER; }

static bool is_meeting(const struct uop *u)
{
    return u->op == OP_BARRIER || u->op == OP_SHUFFLE || u->op == OP_TICKET;
}

/* Stores outside the bands may have a larger grid. */
static bool all_have_bands(const struct kernel *k)
{
    bool all = true;
    for (int i = 0; i < k->ast->nsrc; i++)
        all &= range_is(k->ast->src[i]->src[store_first_range(k->ast->src[i])], AXIS_BAND);
    return all;
}

/* A position of the grid, or this thread of the block, is a constant, not a loop; threads outside
 * the grid compute nothing. Where the language wants no condition around barriers, a loop of at
 * most one iteration says so. */
static void write_place(struct writer *w, const struct uop *u, const char *type,
                        const struct expr *size, const char *name)
{
    const struct kernel *k = w->f->k;
    int64_t between, turns = u->src[0]->vmax, n;
    int dim = linear_inner_workers(w->linear, w->nlinear, w->position, &between);
    bool whole = true;
    const char *at = NULL;
    if (range_is_grid(u)) {
        at = w->p->backend->place(w->p, k, dim);
        /* the blocks of one store, or of stores in the same bands, are the grid: no condition
         * stands around their barriers then */
        whole = k->block && (k->ast->nsrc == 1 || (range_is(u, AXIS_BAND) && all_have_bands(k)));
        whole |= uop_const_int(k->grid[dim], &n) && uop_is_int(u->src[0], n) &&
                 (k->block || n % k->group[dim] == 0);
    } else {
        at = between > 1 ? mem_printf(w->t, "thread / %lld", (long long)between) : "thread";
        if (range_is_item(u) && sat_mul(between, turns) < k->block)
            at = mem_printf(w->t, "%s %% %lld", at, (long long)turns);
        at = mem_printf(w->t, between > 1 || turns < k->block ? "(%s)" : "%s", at);
    }
    const char *end = expr_operand(w->p, size, PREC_SHIFT);
    if (!whole && range_is_grid(u) && k->block && w->p->backend->blocks &&
        loop_has(w, is_meeting)) {
        writer_open(w,
                    mem_printf(w->t, "for (%s %s = (%s)%s; %s < %s; %s += (%s)%s)", type, name,
                               type, at, name, end, name, type, w->p->backend->blocks(w->p, dim)),
                    NULL);
        return;
    }
    writer_put(w, mem_printf(w->t, "const %s %s = (%s)%s;", type, name, type, at), true);
    writer_open(w, whole ? NULL : mem_printf(w->t, "if (%s < %s)", name, end), NULL);
}

static bool is_place(const struct writer *w, const struct uop *u)
{
    int64_t n;
    bool all = w->p->backend->barrier && range_is_of_block(u) && uop_const_int(u->src[0], &n) &&
               n == w->f->k->block;
    return all || range_is_grid(u) || range_is_item(u);
}

/* A tile's sums are registers if its loops are straight-line code; what vectorizes loops is better
 * at that by itself. */
static bool unrolls(const struct writer *w, const struct uop *u)
{
    return !w->p->backend->unroll && machine_of(w->t)->registers && range_is_lane(u);
}

void loops_range(struct writer *w, const struct uop *u)
{
    struct expr size;
    struct value *v = scratch_array(w->t, 1, sizeof *v);
    writer_operands(w, u, 1, &size);
    const char *stem = loop_stem(w, u);
    const char *name =
        is_place(w, u) ? writer_local(w, name_mangle(w->t, stem)) : loop_name(w, stem);
    v->e = expr_name(name, expr_kind(u->dtype));
    v->e.is_index = true;
    v->leaf = true;
    map_set(&w->value, u, v);
    for (int i = 0; i < w->ntile; i++)
        set_tile_element(w, w->tile[i]);
    if (range_is_shared(u) && uop_is_int(u->src[0], 1)) {
        v->e = expr_const(w->p, DTYPE_INDEX, (union arg){.i = 0});
        /* the last part, which is handled as in any loop */
        writer_open(w, "if (part == parts - 1)", NULL);
        return;
    }
    const char *type = expr_type(w->p, &v->e), *begin = "0",
               *end = expr_operand(w->p, &size, PREC_SHIFT);
    if (is_place(w, u)) {
        write_place(w, u, type, &size, name);
        return;
    }
    /* adjacent iterations belong to adjacent threads, so that their loads coalesce */
    bool strided = range_is_of_block(u) && w->p->backend->barrier;
    if (range_is_shared(u)) {
        write_share(w, u, type, &size, &begin, &end);
    } else if (w->kept[w->position] && uop_is_int(u->src[0], 2)) {
        end = PROGRAM_KEPT_TWICE;
        size = expr_name(end, expr_kind(u->dtype));
    }
    const char *head =
        strided ? mem_printf(w->t, "for (%s %s = (%s)thread; %s < %s; %s += (%s)threads)", type,
                             name, type, name, end, name, type)
                : mem_printf(w->t, "for (%s %s = %s; %s < %s; %s++)", type, name, begin, name, end,
                             name);
    if (w->f->k->counts_down && w->depth == 1 && loop_has(w, is_load)) {
        writer_put(w, "/* the last first: results may overlap what is still to be read */", false);
        head = mem_printf(w->t, "for (%s %s = %s - 1; %s >= 0; %s--)", type, name,
                          expr_operand(w->p, &size, PREC_ADD), name, name);
    }
    bool unrolled =
        w->p->backend->unroll &&
        (range_is_lane(u) || stack_is_over_registers(w->t, w->linear, w->nlinear, w->position));
    bool step = w->p->backend->unroll && !unrolled && !w->kept[w->position] &&
                loop_is_step(w->linear, w->nlinear, w->position);
    if (unrolled || step)
        writer_put(w,
                   step ? mem_printf(w->t, "%s %d", w->p->backend->unroll, STEP_TURNS)
                        : w->p->backend->unroll,
                   false);
    if (unrolls(w, u))
        head = mem_printf(w->t, PROGRAM_UNROLL " %s", head);
    else if (w->kept[w->position] && !unrolled)
        head = mem_printf(w->t, "KEEP_LOOP %s", head);
    writer_open(w, head, name);
}

void loops_guard(struct writer *w, const struct uop *u)
{
    struct expr cond;
    writer_operands(w, u, 1, &cond);
    writer_open(w, mem_printf(w->t, "if (%s)", cond.s), NULL);
}

/* --------------------------------------------------------------------------------- accumulators */

static void write_tile(struct writer *w, const struct uop *u, struct value *v, const char *init)
{
    struct text declaration = {.t = w->t};
    bool zero = u->src[0]->op == OP_CONST &&
                (dtype_is_float(u->dtype) ? uop_is_constf(u->src[0], 0) : uop_is_int(u->src[0], 0));
    v->array = v->e.s;
    VEC_PUSH(w->t, w->tile, w->ntile, w->cap_tile, u);
    text_printf(&declaration, "%s %s", expr_type(w->p, &v->e), v->array);
    for (int k = 1; k < u->nsrc; k++)
        text_printf(&declaration, "[%lld]", (long long)u->src[k]->src[0]->vmax);
    if (zero) {
        text_printf(&declaration, " = %.*s0%.*s", u->nsrc - 1, "{{{{{{{{{{{{{{{{", u->nsrc - 1,
                    "}}}}}}}}}}}}}}}}");
    }
    text_putc(&declaration, ';');
    writer_put(w, declaration.s, true);
    for (int k = 1; k < u->nsrc && !zero; k++) {
        writer_leaves(w, u->src[k]);
        loops_range(w, u->src[k]);
    }
    if (!zero) {
        set_tile_element(w, u);
        writer_put(w, mem_printf(w->t, "%s = %s;", v->e.s, init), false);
    }
    for (int k = 1; k < u->nsrc && !zero; k++)
        writer_close(w);
}

void loops_acc(struct writer *w, const struct uop *u)
{
    if (matrix_acc(w, u))
        return;
    struct expr init;
    struct value *v = scratch_array(w->t, 1, sizeof *v);
    writer_operands(w, u, 1, &init);
    init = expr_resolve(w->p, init);
    v->e = expr_name(writer_local(w, stem_of_acc(w->t, w->linear, w->nlinear, u)),
                     u->lanes > 1 ? init.kind : expr_kind(u->dtype));
    v->e.lanes = init.lanes;
    /* its name may be repeated, but not moved across its ASSIGN */
    v->leaf = true;
    v->nacc = 1;
    v->acc[0] = u;
    map_set(&w->value, u, v);
    if (u->nsrc > 1)
        write_tile(w, u, v, init.s);
    else
        writer_put(w, mem_printf(w->t, "%s %s = %s;", expr_type(w->p, &v->e), v->e.s, init.s),
                   true);
}

/* The x of ASSIGN(acc, acc op x), if that can be written acc op= x. */
static const struct uop *compound_operand(struct writer *w, const struct uop *u)
{
    const struct uop *acc = u->src[0], *v = u->src[1];
    if (u->lanes > 1 && v->op != OP_ADD && v->op != OP_MUL)
        return NULL;
    bool compound = (v->op == OP_ADD || v->op == OP_MUL) &&
                    (dtype_is_float(v->dtype) || v->dtype == DTYPE_U32 || v->dtype == DTYPE_U64);
    if (!compound || (dtype_is_float(v->dtype) && v->dtype != DTYPE_F32 && v->dtype != DTYPE_F64))
        return NULL;
    if (writer_value(w, v)->written || (v->src[0] == acc) == (v->src[1] == acc))
        return NULL;
    return v->src[0] == acc ? v->src[1] : v->src[0];
}

void loops_assign(struct writer *w, const struct uop *u)
{
    /* reading the assignment means reading the accumulator */
    map_set(&w->value, u, writer_value(w, u->src[0]));
    const char *name = writer_value(w, u->src[0])->e.s;
    const struct uop *x = compound_operand(w, u);
    struct expr src[2];
    if (!x) {
        writer_operands(w, u, 2, src);
        src[1] = expr_resolve(w->p, src[1]);
        writer_put(w, mem_printf(w->t, "%s = %s;", name, src[1].s), false);
        return;
    }
    struct expr e = expr_resolve(w->p, writer_value(w, x)->e);
    const char *sign = u->src[1]->op == OP_MUL ? "*=" : "+=";
    if (u->src[1]->op == OP_ADD && e.s[0] == '-' && e.prec >= PREC_MUL) {
        sign = "-=";
        e.s++;
    }
    writer_put(w, mem_printf(w->t, "%s %s %s;", name, sign, e.s), false);
}

void loops_shuffle(struct writer *w, const struct uop *u)
{
    struct uop *acc = u->src[0], *both[2] = {acc, acc};
    const struct expr *sum = &writer_value(w, acc)->e;
    const char *shuffle = w->p->backend->shuffle;
    if (!shuffle)                /* a block has one thread */
        return;
    const char *args = mem_printf(w->t, "%s%s, %d",
                                  w->f->exchanged ? mem_printf(w->t, "%s, ", w->f->exchanged) : "",
                                  sum->s, SHUFFLE_MASK(u->arg.i));
    struct expr operand[2] = {*sum, expr_call(w->p, shuffle, args, expr_kind(u->dtype))};
    struct uop *op = uop_intern(w->t, SHUFFLE_OP(u->arg.i), u->dtype, both, 2, (union arg){0});
    struct expr e = expr_resolve(w->p, expr_apply(w->p, op, operand));
    writer_put(w, mem_printf(w->t, "%s = %s;", sum->s, e.s), false);
}
