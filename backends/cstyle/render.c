/* render.c - writes a linear kernel as C statements that a person would have written.
 *
 * The linear program is walked twice. The first walk counts uses and their positions; the second
 * writes. A value becomes text when it is reached. It stays text, inlined in its only use, unless
 * that is wrong, slow or hard to read. It gets a name if it is used twice or would be computed in a
 * deeper loop. It also gets one if it would move across a store to memory that it reads, or would
 * make the line too long:
 *
 *      r = RANGE(26)                       for (int oy = 0; oy < 26; oy++) {
 *      a = ACC(0.0)                            float sum = 0.0f;
 *      ...  ASSIGN(a, ADD(a, MUL(x, w)))       sum += x[...] * w[...];
 *      STORE(y, offset, MAX(a, 0))             y[...] = max_f32(sum, 0.0f);
 *      END(r)                              }
 *
 * Bodies are written into blocks of their own, so that a loop with one statement needs no braces.
 */
#include "backends/cstyle/writer.h"
#include "passes/analysis/access.h"
#include "ir/device_ops.h"

/* --------------------------------------------------------------------------------------- memory */

static bool is_written_here(const struct writer *w, const struct buffer *b)
{
    const struct kernel *k = w->f->k;
    for (int i = 0; i < k->noutput; i++)
        if (buffers_may_alias(k->buffer[i], b))
            return true;
    for (int i = 0; i < k->nscratch; i++)
        if (buffers_may_alias(k->scratch[i], b))
            return true;
    return false;
}

/* The name of a buffer, for text that loads or stores it. */
static const char *use_place(struct writer *w, const struct buffer *b)
{
    w->f->is_used[writer_place(w, b)] = true;
    return writer_place_name(w, b);
}

/* The element that u loads or stores. */
static const char *place_of(struct writer *w, const struct uop *u, const char *name,
                            const struct expr *offset)
{
    return map_get(&w->places, u) ? arrays_write(w, u, name)
                                  : mem_printf(w->t, "%s[%s]", name, offset->s);
}

static int image_shift(const struct writer *w, const struct buffer *b)
{
    return device_image_shift(w->t, b->nbytes / dtype_nbytes(b->dtype));
}

/* Where a pointer to it points, in languages of devices. */
static const char *space_of(const struct buffer *b)
{
    return buffer_space(b) == SPACE_SHARED ? "local" : "global";
}

/* Is the narrow float that u loads used only as its bits? It is not converted then. */
static bool is_read_as_bits(const struct writer *w, const struct uop *u)
{
    if (!dtype_is_float(u->dtype) || dtype_bits(u->dtype) != 16 || u->lanes > 1 ||
        w->use[w->position] != 1 || (u->nsrc > 2 && !load_is_zero_elsewhere(u)))
        return false;
    for (int i = w->position + 1; i < w->nlinear; i++)
        for (int k = 0; k < w->linear[i]->nsrc; k++)
            if (w->linear[i]->src[k] == u)
                return w->linear[i]->op == OP_BITCAST && dtype_is_int(w->linear[i]->dtype);
    return false;
}

static void write_load(struct writer *w, const struct uop *u)
{
    const struct buffer *b = uop_buffer_of(u->src[0]);
    struct value *v = scratch_array(w->t, 1, sizeof *v);
    struct expr src[4] = {{0}, {0}, {0}, {0}};
    const char *name = use_place(w, b);
    writer_operands(w, u, u->nsrc, src);
    const char *place = place_of(w, u, name, &src[1]);
    bool bits = is_read_as_bits(w, u), image = VECTOR_IS_IMAGE(u->arg.i),
         or_zeros = image && u->nsrc > 2 && load_is_zero_elsewhere(u);
    if (image)
        v->e = expr_load_pixel(w->p, name, &src[1], or_zeros ? &src[2] : NULL, image_shift(w, b));
    else
        v->e = u->lanes > 1 ? expr_load_vector(w->p, u->dtype, space_of(b), place, u->arg.i)
           : bits        ? expr_name(place, 'I')
                         : expr_load(w->p, u->dtype, place, b->kind != BUFFER_INPUT);
    /* a pointer would name its memory */
    if (w->p->backend->device && v->e.kind == 'P' && dtype_is_half(v->e.of))
        v->e = expr_load_halves(w->p, &v->e);
    if (u->nsrc > 2 && v->e.kind == 'P' && dtype_is_byte(u->dtype) && load_is_zero_elsewhere(u)) {
        v->e = expr_load_bytes_where(w->p, &v->e, &src[2]);
    } else if (u->nsrc > 2 && !or_zeros) {
        struct expr otherwise = u->nsrc > 3 && !bits ? expr_resolve(w->p, src[3])
                                                     : expr_const(w->p, bits ? DTYPE_I32 : u->dtype,
                                                                  (union arg){.i = 0});
        v->e = expr_choose(w->p, &src[2], &v->e, &otherwise);
    }
    v->nuse = w->use[w->position];
    writer_inherit(w, v, u);
    v->reads_any_memory = true;
    v->reads_memory |= is_written_here(w, b);
    writer_define(w, u, v);
}

static void write_gather(struct writer *w, const struct uop *u)
{
    const struct buffer *b = uop_buffer_of(u->src[0]);
    struct value *v = scratch_array(w->t, 1, sizeof *v);
    struct expr src[5] = {{0}, {0}, {0}, {0}, {0}};
    const char *name = use_place(w, b);
    writer_operands(w, u, u->nsrc, src);
    const char *at = expr_operand(w->p, &src[1], PREC_ADD);
    const char *from = uop_is_int(u->src[1], 0) ? name : mem_printf(w->t, "%s + %s", name, at);
    v->e = expr_gather(w->p, from, src + 2, u->nsrc > 3);
    v->nuse = w->use[w->position];
    writer_inherit(w, v, u);
    v->reads_any_memory = true;
    v->reads_memory |= is_written_here(w, b);
    writer_define(w, u, v);
}

static void write_store(struct writer *w, const struct uop *u)
{
    const struct buffer *b = uop_buffer_of(u->src[0]);
    struct expr src[4] = {{0}, {0}, {0}, {0}};
    const char *name = use_place(w, b);
    bool guarded = u->nsrc > 3 && u->src[3]->dtype == DTYPE_BOOL;
    writer_operands(w, u, guarded ? 4 : 3, src);
    if (guarded)
        writer_open(w, mem_printf(w->t, "if (%s)", src[3].s), NULL);
    const char *place = place_of(w, u, name, &src[1]);
    if (u->src[2]->lanes > 1)
        writer_put(w, expr_store_vector(w->p, space_of(b), place, &src[2], u->arg.i), false);
    else
        writer_put(w, mem_printf(w->t, "%s = %s;", place, expr_stored(w->p, b->dtype, &src[2])),
                  false);
    if (guarded)
        writer_close(w);
}

/* The offset may be past the buffer's end, where C has no element's address: it is computed as an
 * integer. */
static void write_prefetch(struct writer *w, const struct uop *u)
{
    const struct buffer *b = uop_buffer_of(u->src[0]);
    struct expr src[2] = {{0}, {0}};
    if (w->p->backend->device)                     /* a device hides latency by its other threads */
        return;
    writer_operands(w, u, 2, src);
    writer_put(
        w,
        mem_printf(w->t,
                   "__builtin_prefetch((void *)((uintptr_t)%s + %zu * (uintptr_t)(%s)), 0, 2);",
                   use_place(w, b), dtype_nbytes(b->dtype), src[1].s),
        false);
}

/* Asynchronous copies: functions of runtime/ in the device's language. */
static void write_transfer(struct writer *w, const struct uop *u)
{
    const struct buffer *to = uop_buffer_of(u->src[0]), *from = uop_buffer_of(u->src[2]);
    struct expr src[5] = {{0}, {0}, {0}, {0}, {.s = "true"}};
    const char *places[2] = {use_place(w, to), use_place(w, from)};
    const char *function =
        mem_printf(w->t, "copy_async%zu", (size_t)COPY_LANES(u->arg.i) * dtype_nbytes(to->dtype));
    writer_operands(w, u, u->nsrc, src);
    const char *args = mem_printf(w->t, "&%s[%s], &%s[%s], %s", places[0], src[1].s, places[1],
                                  src[3].s, src[4].s);
    writer_put(w, mem_printf(w->t, "%s;", expr_call(w->p, function, args, 'I').s), false);
}

/* Copies contiguous elements unconverted between a thread's array, which may begin anywhere, and
 * memory or a block's array. */
static void write_put(struct writer *w, const struct uop *u)
{
    const struct buffer *to = uop_buffer_of(u->src[0]), *from = uop_buffer_of(u->src[2]);
    struct expr src[4];
    const char *places[2] = {use_place(w, to), use_place(w, from)};
    const char *function = mem_printf(w->t, "%s%zu",
                                      to->scratch.is_register     ? "get"
                                      : from->scratch.is_register ? "put"
                                                                  : "move",
                                      (size_t)COPY_LANES(u->arg.i) * dtype_nbytes(to->dtype));
    writer_operands(w, u, u->nsrc, src);
    const char *args =
        mem_printf(w->t, "&%s[%s], &%s[%s]", places[0], src[1].s, places[1], src[3].s);
    writer_put(w, mem_printf(w->t, "%s;", expr_call(w->p, function, args, 'I').s), false);
}

static void write_wait(struct writer *w, const struct uop *u)
{
    snippet_use(&w->p->snippets, u->op == OP_WAIT ? "wait_copies" : "commit_copies");
    writer_put(w,
               u->op == OP_WAIT ? mem_printf(w->t, "wait_copies<%d>();", WAIT_GROUPS(u->arg.i))
                                : "commit_copies();",
               false);
}

/* ------------------------------------------------------------------------------------- the walk */

static void define_as(struct writer *w, const struct uop *u, struct expr e)
{
    struct value *v = scratch_array(w->t, 1, sizeof *v);
    v->e = e;
    v->nuse = w->use[w->position];
    writer_inherit(w, v, u);
    writer_define(w, u, v);
}

static void write_elementwise(struct writer *w, const struct uop *u)
{
    struct expr src[3];
    struct value *v = scratch_array(w->t, 1, sizeof *v);
    writer_operands(w, u, u->nsrc, src);
    v->e = expr_apply(w->p, u, src);
    v->nuse = w->use[w->position];
    /* a cast of which nothing is seen has its operand's name */
    v->written = u->op == OP_CAST && v->e.s == src[0].s && writer_value(w, u->src[0])->written;
    writer_inherit(w, v, u);
    writer_define(w, u, v);
}

static void write_splat(struct writer *w, const struct uop *u)
{
    struct expr src;
    writer_operands(w, u, 1, &src);
    src = expr_resolve(w->p, src);
    /* a group is one int */
    bool group = dtype_is_byte(u->dtype) || u->dtype == DTYPE_BF16;
    int each = group ? dtype_group(u->dtype) : 1;
    if (dtype_is_byte(u->dtype) && u->src[0]->lanes == 1 && !uop_is_int(u->src[0], 0))
        TGC_BUG(w->t, "a vector of one byte");
    if (group && u->lanes == each) {                    /* zeros, a word of them */
        struct value *v = scratch_array(w->t, 1, sizeof *v);
        *v = (struct value){.e = expr_const(w->p, DTYPE_I32, (union arg){.i = 0}), .leaf = true};
        map_set(&w->value, u, v);
        return;
    }
    define_as(w, u, expr_splat(w->p, &src, u->lanes / each));
}

static void write_ramp(struct writer *w, const struct uop *u)
{
    struct expr src;
    writer_operands(w, u, 1, &src);
    src = expr_resolve(w->p, src);
    define_as(w, u, expr_ramp(w->p, &src, u->lanes));
}

static void write_nearest(struct writer *w, const struct uop *u)
{
    struct expr e;
    writer_operands(w, u, 1, &e);
    e = expr_resolve(w->p, e);
    e.of = u->dtype;
    e.rounds = true;
    define_as(w, u, e);
}

static void write_lanes(struct writer *w, const struct uop *u)
{
    define_as(w, u, expr_lanes(w->p, u->lanes));
}

static void write_role(struct writer *w, const struct uop *u)
{
    static const char *const compares[ROLE_COUNT] = {
#define ROLE(name, text, by) #by,
#include "ir/roles.def"
#undef ROLE
    };
    define_as(w, u,
              (struct expr){.kind = 'B',
                            .prec = PREC_COMPARE,
                            .s = mem_printf(w->t, "thread %s %d", compares[ROLE_OF(u->arg.i)],
                                            ROLE_CONSUMERS_OF(u->arg.i))});
}

/* The call stays where it is: it is a barrier of the block. */
static void write_ticket(struct writer *w, const struct uop *u)
{
    struct value *v = scratch_array(w->t, 1, sizeof *v);
    struct expr src[4];
    writer_operands(w, u, u->nsrc, src);
    const char *counters = use_place(w, uop_buffer_of(u->src[TICKET_COUNTERS]));
    const char *args = mem_printf(w->t, "&%s[%s], %lld", counters, src[TICKET_NUMBER].s,
                                  (long long)u->src[TICKET_OF]->src[0]->arg.i);
    v->e = expr_call(w->p, "ticket", args, 'B');
    v->nuse = 2;
    writer_inherit(w, v, u);
    writer_define(w, u, v);
}

static void write_narrow(struct writer *w, const struct uop *u)
{
    struct expr e;
    writer_operands(w, u, 1, &e);
    define_as(w, u, expr_narrow(w->p, u, &e));
}

static void write_intrinsic(struct writer *w, const struct uop *u)
{
    struct expr src[INTRINSIC_OPERANDS];
    writer_operands(w, u, u->nsrc, src);
    for (int k = 0; k < u->nsrc; k++)
        if (u->src[k]->op == OP_BUFFER)
            src[k].s = use_place(w, uop_buffer_of(u->src[k]));
    define_as(w, u, expr_intrinsic(w->p, w->f->v ? w->f->v->isa : ISA_GENERIC, u, src));
}

static void write_fold(struct writer *w, const struct uop *u)
{
    struct expr src;
    writer_operands(w, u, 1, &src);
    define_as(w, u, expr_fold(w->p, (enum op)u->arg.i, &src));
}

static void write_lane(struct writer *w, const struct uop *u)
{
    struct expr src;
    writer_operands(w, u, 1, &src);
    define_as(w, u, expr_lane(w->p, (int)u->arg.i, &src));
}

static bool is_value(const struct uop *u)
{
    return op_is_elementwise(u->op) || u->op == OP_LOAD || u->op == OP_SPLAT || u->op == OP_RAMP ||
           u->op == OP_FOLD || u->op == OP_LANE || u->op == OP_INTRINSIC || u->op == OP_NEAREST ||
           u->op == OP_LANES || u->op == OP_ROLE || u->op == OP_NARROW || u->op == OP_GATHER;
}

static void write_uop(struct writer *w, const struct uop *u)
{
    if (is_value(u) && w->use[w->position] == 0)
        return;
    writer_leaves(w, u);
    if (w->p->backend->device && u->op == OP_LOAD && uop_is_tile(u)) {
        matrix_load(w, u);
        return;
    }
    if (!w->p->backend->device && uop_is_tile(u)) {
        tiles_write(w, u);
        return;
    }
    switch (u->op) {
    case OP_CONST: case OP_VAR: case OP_BUFFER: case OP_STAGE: writer_leaf(w, u); break;
    case OP_RANGE: loops_range(w, u); break;
    case OP_END: case OP_ENDGUARD: writer_close(w); break;
    case OP_GUARD: loops_guard(w, u); break;
    case OP_SPLAT: write_splat(w, u); break;
    case OP_RAMP: write_ramp(w, u); break;
    case OP_FOLD: write_fold(w, u); break;
    case OP_LANE: write_lane(w, u); break;
    case OP_NEAREST: write_nearest(w, u); break;
    case OP_LANES: write_lanes(w, u); break;
    case OP_ROLE: write_role(w, u); break;
    case OP_TICKET: write_ticket(w, u); break;
    case OP_NARROW: write_narrow(w, u); break;
    case OP_GATHER: write_gather(w, u); break;
    case OP_INTRINSIC: write_intrinsic(w, u); break;
    case OP_ACC: loops_acc(w, u); break;
    case OP_ASSIGN: loops_assign(w, u); break;
    case OP_SHUFFLE: loops_shuffle(w, u); break;
    case OP_MATRIX: matrix_product(w, u); break;
    case OP_PUBLISH:
    case OP_MATRIX_BEGIN:
    case OP_MATRIX_COMMIT:
    case OP_MATRIX_WAIT:
        matrix_group(w, u);
        break;
    case OP_BULK:
    case OP_BULK_STORE:
    case OP_BULK_WAIT:
    case OP_MBAR_INIT:
    case OP_MBAR_ARRIVE:
    case OP_MBAR_RELEASE:
    case OP_MBAR_WAIT:
    case OP_CLUSTER_BARRIER:
    case OP_REGISTERS:
        bulk_write(w, u);
        break;
    case OP_LOAD: write_load(w, u); break;
    case OP_STORE: write_store(w, u); break;
    case OP_PREFETCH: write_prefetch(w, u); break;
    case OP_COPY: write_transfer(w, u); break;
    case OP_PUT: write_put(w, u); break;
    case OP_COMMIT: case OP_WAIT: write_wait(w, u); break;
    case OP_BARRIER:
        if (BARRIER_THREADS(u->arg.i))
            bulk_write(w, u);
        else if (w->p->backend->barrier)
            writer_put(w, w->p->backend->barrier, false);
        break;
    case OP_SINK: break;
    default:
        if (!op_is_elementwise(u->op))
            TGC_BUG(w->t, "kernel %s: %s in a linear program", w->f->k->name, op_name(u->op));
        write_elementwise(w, u);
    }
}

static void count_use(struct writer *w, const struct uop *u)
{
    map_set(&w->nuse, u, (void *)((intptr_t)map_get(&w->nuse, u) + 1));
}

/* Backwards, so that uses by dead values do not count. */
static void count_uses(struct writer *w)
{
    w->use = mem_array(w->t, (size_t)w->nlinear + 1, sizeof *w->use);
    for (int i = w->nlinear - 1; i >= 0; i--) {
        const struct uop *u = w->linear[i];
        w->use[i] = (int)(intptr_t)map_get(&w->nuse, u);
        map_set(&w->nuse, u, NULL);
        if (u->op == OP_SINK || u->op == OP_END || u->op == OP_ENDGUARD || u->op == OP_STAGE ||
            (is_value(u) && w->use[i] == 0))
            continue;
        int nsrc = u->op == OP_STORE ? (u->nsrc > 3 && u->src[3]->dtype == DTYPE_BOOL ? 4 : 3)
                   : u->op == OP_ACC ? 1
                                     : u->nsrc;
        struct uop *term[ARRAY_TERMS];
        bool is_array = map_get(&w->places, u) != NULL;
        int nterm = is_array ? arrays_terms(w, u, term) : 0;
        for (int s = 0; s < nterm; s++)
            count_use(w, term[s]);
        for (int s = 0; s < nsrc; s++)
            if (!is_array || s != 1)
                count_use(w, u->src[s]);
    }
}

const char *render_body(struct function *f)
{
    struct program *p = f->p;
    struct writer *w = scratch_array(p->t, 1, sizeof *w);
    *w = (struct writer){.f = f, .p = p, .t = p->t};
    w->linear = f->v ? f->v->linear : f->k->linear;
    w->nlinear = f->v ? f->v->nlinear : f->k->nlinear;
    f->tiles = (struct tile_registers){.t = p->t, .kernel = f->k->name, .linear = w->linear,
                                       .nlinear = w->nlinear};
    w->value = w->nuse = (struct uop_map){.t = p->t, .scratch = true};
    w->kept = stack_find_kept(p->t, f->v ? f->v->isa : ISA_GENERIC, w->linear, w->nlinear);
    arrays_find(w);
    count_uses(w);
    writer_open(w, NULL, NULL);
    for (w->position = 0; w->position < w->nlinear; w->position++)
        write_uop(w, w->linear[w->position]);
    if (w->depth != 1)
        TGC_BUG(p->t, "kernel %s: %d loops are not closed", f->k->name, w->depth - 1);
    return writer_block(w)->body.s;
}
