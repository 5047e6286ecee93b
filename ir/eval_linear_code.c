/* eval_linear_code.c - what eval_linear.c runs: a linear program becomes instructions over numbered
 * registers, one register a uop, jumps for loops and guards. A uop that occurs several times
 * computes into the same register.
 */
#include <stdlib.h>

#include "ir/eval.h"

/* ------------------------------------------------------------------------------------ registers */

static struct slot *find_slot(const struct linear_eval *e, const struct uop *u)
{
    size_t i = (u->id * 0x9E3779B9u) & (e->table_size - 1);
    while (e->table[i].u && e->table[i].u != u)
        i = (i + 1) & (e->table_size - 1);
    return &e->table[i];
}

static bool table_grow(struct linear_eval *e)
{
    struct slot *old = e->table;
    size_t n = e->table_size;
    e->table_size = n ? 2 * n : 256;
    e->table = calloc(e->table_size, sizeof *e->table);
    if (!e->table) {
        e->table = old;
        e->table_size = n;
        return false;
    }
    for (size_t i = 0; i < n; i++)
        if (old[i].u)
            *find_slot(e, old[i].u) = old[i];
    free(old);
    return true;
}

/* The register of u; -1: it has none. Constants and symbols get their value here. */
static int reg_of(struct linear_eval *e, const struct uop *u)
{
    if (2 * (e->table_used + 1) > e->table_size && !table_grow(e)) {
        e->failed = true;
        return -1;
    }
    struct slot *s = find_slot(e, u);
    if (s->u)
        return s->reg;
    size_t n = (size_t)e->nreg + (size_t)u->lanes, cap = e->cap_reg, cap_set = e->cap_reg;
    if (!eval_reserve(&e->failed, &e->of, &e->cap_of, n, sizeof *e->of) ||
        !eval_reserve(&e->failed, &e->set, &cap_set, n, sizeof *e->set) ||
        !eval_reserve(&e->failed, &e->reg, &cap, n, sizeof *e->reg))
        return -1;
    e->cap_reg = cap;
    int r = e->nreg;
    *s = (struct slot){u, r};
    e->table_used++;
    for (; e->nreg < (int)n; e->nreg++) {
        e->of[e->nreg] = u;
        e->reg[e->nreg].i = 0;
        e->set[e->nreg] = u->op == OP_CONST || u->op == OP_VAR;
    }
    if (u->op == OP_CONST)
        e->reg[r].i = u->arg.i;
    if (u->op == OP_VAR) {
        const struct var *v = u->arg.p;
        if (v->id >= e->env->nvar)
            e->failed = true;
        else
            e->reg[r].i = e->env->var[v->id];
    }
    return r;
}

/* ------------------------------------------------------------------------------------ compiling */

static int memory_of(struct linear_eval *e, const struct uop *u)
{
    return eval_memory_of(&e->memory, uop_buffer_of(u->src[0]));
}

static void append(struct linear_eval *e, struct linstr in)
{
    if (eval_reserve(&e->failed, &e->code, &e->cap_code, (size_t)e->ncode + 1, sizeof *e->code))
        e->code[e->ncode++] = in;
}

static int lanes_of(const struct linear_eval *e, const struct uop *acc)
{
    for (int i = 0; i < e->nlanes; i++)
        if (e->lanes[i].acc == acc)
            return i;
    return -1;
}

static void declare_lanes(struct linear_eval *e, const struct uop *u)
{
    struct lanes l = {.acc = u, .n = u->nsrc - 1, .nelem = 1, .wide = u->lanes};
    if (l.n > LANES_RANK || !eval_reserve(&e->failed, &e->lanes, &e->cap_lanes,
                                          (size_t)e->nlanes + 1, sizeof *e->lanes)) {
        e->failed = true;
        return;
    }
    for (int k = 0; k < l.n; k++) {
        l.reg[k] = reg_of(e, u->src[k + 1]);
        if (!uop_const_int(u->src[k + 1]->src[0], &l.size[k]) ||
            __builtin_mul_overflow(l.nelem, l.size[k], &l.nelem))
            e->failed = true;
    }
    l.data = e->failed ? NULL : calloc((size_t)l.nelem, (size_t)l.wide * sizeof *l.data);
    e->failed |= !l.data;
    e->lanes[e->nlanes++] = l;
}

/* Operands are buffers of the graph, and tensors of ours that are filled whenever it runs. */
static int meaning_of(struct linear_eval *e, const struct uop *u)
{
    struct meaning m = {.n = u->nsrc};
    struct uop *in[INTRINSIC_OPERANDS], *dim[MAX_RANK];
    struct tgc *t = e->t;
    if (!eval_reserve(&e->failed, &e->meaning, &e->cap_meaning, (size_t)e->nmeaning + 1,
                      sizeof *e->meaning))
        return 0;
    for (int k = 0; k < m.n; k++) {
        struct intrinsic_shape shape = intrinsic_shape(u->arg.i, k);
        struct tensor *x = MEM_NEW(t, struct tensor);
        *x = (struct tensor){.dtype = shape.memory ? u->dtype : u->src[k]->dtype,
                              .ndim = shape.ndim, .nelem = shape.lanes};
        x->data = mem_array(t, (size_t)shape.lanes, sizeof(union scalar));
        for (int a = 0; a < shape.ndim; a++)
            dim[a] = uop_int(t, x->dim[a] = shape.dim[a]);
        in[k] = uop_buffer(t, buffer_new(t, BUFFER_INPUT, x->dtype, dim, shape.ndim, NULL));
        m.leaf[k] = in[k];
        m.value[k] = x;
    }
    m.root = intrinsic_meaning(t, u->arg.i, in);
    e->meaning[e->nmeaning] = m;
    return e->nmeaning++;
}

static void emit(struct linear_eval *e, struct linstr in, const struct uop *u, int first)
{
    for (int k = first; k < u->nsrc; k++) {
        int l = u->src[k]->op == OP_ACC ? lanes_of(e, u->src[k]) : -1;
        if (l >= 0)
            append(e, (struct linstr){
                          .code = CODE_LANES_GET, .memory = l, .dst = reg_of(e, u->src[k])});
    }
    in.lanes = u->lanes;
    in.period = u->nsrc ? u->src[first < u->nsrc ? first : 0]->lanes : 1;
    for (int k = first; k < u->nsrc && in.nsrc < 4; k++) {
        in.step[in.nsrc] = u->src[k]->lanes > 1;
        in.src[in.nsrc++] = reg_of(e, u->src[k]);
    }
    if (u->op == OP_STORE)
        in.lanes = u->src[2]->lanes;
    bool memory = u->op == OP_LOAD || u->op == OP_STORE, vector = memory && u->arg.i;
    in.part = vector && VECTOR_PART(u->arg.i) ? VECTOR_PART(u->arg.i) : in.lanes;
    in.stride = vector ? (int)VECTOR_STRIDE(u->arg.i) : 1;
    in.grouped = vector && VECTOR_IS_GROUPS(u->arg.i) && in.stride != 1;
    if (memory && TILE_IS(u->arg.i)) {
        in.part = in.lanes;
        in.columns = TILE_COLUMNS(u->arg.i);
        in.panel = uop_buffer_of(u->src[0])->scratch.panel;
        in.stride = (int)TILE_STRIDE(u->arg.i);
        in.grouped = false;
    }
    in.dtype = u->dtype;
    in.dst = reg_of(e, u);
    append(e, in);
}

static void open_region(struct linear_eval *e)
{
    if (eval_reserve(&e->failed, &e->open, &e->cap_open, (size_t)e->nopen + 1, sizeof *e->open))
        e->open[e->nopen++] = e->ncode - 1;
}

static void close_region(struct linear_eval *e, const struct uop *u)
{
    int at = e->nopen ? e->open[--e->nopen] : -1;
    if (at < 0 || e->of[e->code[at].dst] != u->src[0])
        TGC_BUG(e->t, "%s does not close what was opened last", op_name(u->op));
    if (u->op == OP_END) {
        struct linstr in = e->code[at];
        in.code = CODE_CLOSE;
        in.target = at + 1;
        in.nsrc = 0;
        emit(e, in, u->src[0], 0);
    }
    if (!e->failed)
        e->code[at].target = e->ncode;
}

/* Where a loop begins whose iterations are places of the grid, or threads of the block. */
static void open_worker(struct linear_eval *e, const struct uop *u, struct linstr *in)
{
    int64_t turns;
    int inner = linear_inner_workers(e->program, e->nprogram, e->at, &turns);
    bool first = true;
    for (int i = 0; i < e->nopen; i++) {
        const struct uop *around = e->of[e->code[e->open[i]].dst];
        bool same = around->op == OP_RANGE && RANGE_WORKER(around->arg.i) == RANGE_WORKER(u->arg.i);
        first &= !same;
        if (same && in->nouter < 2)
            in->outer[in->nouter++] = e->open[i];
    }
    in->grid = e->env->parts > 0 && range_is_grid(u) && inner == 0;
    in->item = e->threads > 1 && range_is_item(u) ? turns : 0;
    if (in->item && first && sat_mul(turns, u->src[0]->vmax) != e->items)
        e->failed = true;
}

static void compile_range(struct linear_eval *e, const struct uop *u)
{
    struct linstr in = {.code = CODE_OPEN, .shared = e->env->parts > 0 && range_is_shared(u),
                        .of_block = range_is_of_block(u), .place = range_is_grid(u)};
    if (range_is_grid(u) || range_is_item(u))
        open_worker(e, u, &in);
    emit(e, in, u, 0);
    open_region(e);
}

static void compile_elementwise(struct linear_eval *e, const struct uop *u)
{
    emit(e,
         (struct linstr){.code = CODE_ALU, .op = u->op, .plain = u->arg.i & ARG_PLAIN,
                         .sdtype = u->src[u->nsrc - 1]->dtype},
         u, 0);
}

/* acc op= the acc of another thread. */
static void compile_shuffle(struct linear_eval *e, const struct uop *u)
{
    struct uop *acc = u->src[0], *both[2] = {acc, (struct uop *)(uintptr_t)u};
    int lanes = lanes_of(e, acc);
    if (e->threads < 2)
        return;
    e->failed |= SHUFFLE_MASK(u->arg.i) >= e->threads;
    if (lanes >= 0)
        append(e, (struct linstr){.code = CODE_LANES_GET, .memory = lanes, .dst = reg_of(e, acc)});
    append(e, (struct linstr){.code = CODE_OFFER, .dst = reg_of(e, acc), .of_role = e->nrole > 0});
    append(e,
           (struct linstr){.code = CODE_TAKE, .dst = reg_of(e, u), .mask = SHUFFLE_MASK(u->arg.i)});
    struct uop *sum = uop_intern(e->t, SHUFFLE_OP(u->arg.i), acc->dtype, both, 2, (union arg){0});
    compile_elementwise(e, sum);
    append(e, (struct linstr){.code = CODE_COPY,
                              .dst = reg_of(e, acc),
                              .src = {reg_of(e, sum)},
                              .nsrc = 1,
                              .lanes = 1,
                              .period = 1});
    if (lanes >= 0)
        append(e, (struct linstr){.code = CODE_LANES_SET, .memory = lanes, .dst = reg_of(e, acc)});
}

/* The number of the thread that runs: of the iterations that are threads and open. */
static struct uop *compile_thread(struct linear_eval *e)
{
    struct uop *number = uop_int(e->t, 0);
    for (int i = 0; i < e->nopen; i++) {
        const struct uop *r = e->of[e->code[e->open[i]].dst];
        if (r->op != OP_RANGE || !range_is_item(r))
            continue;
        struct uop *by[2] = {number, uop_int(e->t, r->src[0]->vmax)};
        by[0] = uop_intern(e->t, OP_MUL, DTYPE_INDEX, by, 2, (union arg){0});
        compile_elementwise(e, by[0]);
        by[1] = (struct uop *)(uintptr_t)r;
        number = uop_intern(e->t, OP_ADD, DTYPE_INDEX, by, 2, (union arg){0});
        compile_elementwise(e, number);
    }
    return number;
}

static void compile_matrix(struct linear_eval *e, const struct uop *u)
{
    struct linstr in = {
        .code = CODE_MATRIX,
        .memory = lanes_of(e, u->src[0]),
        .bits = u->arg.i,
        .nsrc = 3,
        .src = {reg_of(e, u->src[1]), reg_of(e, u->src[2]), reg_of(e, compile_thread(e))},
        .dst = reg_of(e, u)};
    bool meet = false;
    for (int k = 0; k < 2; k++) {
        if (u->src[1 + k]->op == OP_ACC && lanes_of(e, u->src[1 + k]) >= 0)
            append(e, (struct linstr){.code = CODE_LANES_GET,
                                      .memory = lanes_of(e, u->src[1 + k]),
                                      .dst = reg_of(e, u->src[1 + k])});
        const struct buffer *b =
            u->src[1 + k]->op == OP_LOAD ? uop_buffer_of(u->src[1 + k]->src[0]) : NULL;
        in.step[k] = b && b->scratch.is_own                                               ? 3
                     : u->src[1 + k]->dtype != matrix_row(MATRIX_ROW(u->arg.i))->dtype[k] ? 2
                                                                                          : 1;
        meet |= in.step[k] == 3;
    }
    /* what other threads have in registers is there while none goes on */
    struct linstr barrier = {.code = CODE_BARRIER, .dst = in.dst, .of_role = e->nrole > 0};
    if (meet)
        append(e, barrier);
    append(e, in);
    if (meet)
        append(e, barrier);
}

static void compile_bulk(struct linear_eval *e, const struct uop *u)
{
    const bool leaves = u->op == OP_BULK_STORE;
    struct bulk b = {.u = u,
                     .to = memory_of(e, u),
                     .offset = reg_of(e, u->src[BULK_OFFSET]),
                     .number = leaves ? 0 : reg_of(e, u->src[BULK_NUMBER])};
    b.barriers = leaves ? 0 : eval_memory_of(&e->memory, uop_buffer_of(u->src[BULK_BARRIERS]));
    b.from = eval_memory_of(&e->memory, uop_buffer_of(u->src[bulk_source(u, BULK_FROM)]));
    for (int a = 0; a < bulk_rank(u); a++)
        b.coordinate[a] = reg_of(e, bulk_axis(u, a).coordinate);
    if (eval_reserve(&e->failed, &e->bulk, &e->cap_bulk, (size_t)e->nbulk + 1, sizeof *e->bulk))
        e->bulk[e->nbulk] = b;
    append(e, (struct linstr){.code = leaves ? CODE_BULK_STORE : CODE_BULK,
                              .target = e->nbulk++,
                              .dst = reg_of(e, u)});
}

static void compile_transfer(struct linear_eval *e, const struct uop *u)
{
    struct linstr in = {.code = CODE_TRANSFER,
                        .memory = memory_of(e, u),
                        .dst = reg_of(e, u),
                        .lanes = COPY_LANES(u->arg.i),
                        .from = eval_memory_of(&e->memory, uop_buffer_of(u->src[2])),
                        .src = {reg_of(e, u->src[1]), reg_of(e, u->src[3])},
                        .nsrc = u->nsrc - 2};
    if (u->nsrc > 4)
        in.src[2] = reg_of(e, u->src[4]);
    append(e, in);
}

static void compile_one(struct linear_eval *e, const struct uop *u)
{
    bool table;
    switch (u->op) {
    case OP_CONST: case OP_VAR: case OP_BUFFER: case OP_STAGE: case OP_SINK: case OP_PREFETCH:
    case OP_COMMIT: case OP_WAIT:
        break;
    case OP_RANGE:
        compile_range(e, u);
        break;
    case OP_SHUFFLE:
        compile_shuffle(e, u);
        break;
    case OP_CLUSTER_BARRIER:                     /* blocks run one by one, each with all of a box */
    case OP_PUBLISH:
    case OP_MATRIX_BEGIN:
    case OP_MATRIX_COMMIT:
    case OP_MATRIX_WAIT:
    case OP_REGISTERS:
        break;                                        /* the interpreter's products are
                                                       * there at once, its registers are
                                                       * as many as it needs */
    case OP_BARRIER:
        e->failed |= BARRIER_THREADS(u->arg.i) && BARRIER_THREADS(u->arg.i) != e->items;
        append(e, (struct linstr){.code = CODE_BARRIER,
                                  .dst = reg_of(e, u),
                                  .of_role = BARRIER_THREADS(u->arg.i) > 0});
        break;
    case OP_MATRIX:
        compile_matrix(e, u);
        break;
    case OP_MBAR_INIT: case OP_MBAR_ARRIVE: case OP_MBAR_RELEASE: case OP_MBAR_WAIT:
        emit(e,
             (struct linstr){
                 .code = CODE_MBAR, .op = u->op, .bits = u->arg.i, .memory = memory_of(e, u)},
             u, 1);
        break;
    case OP_BULK_WAIT:                                /* boxes are stored at once */
        break;
    case OP_BULK: case OP_BULK_STORE:
        compile_bulk(e, u);
        break;
    case OP_GUARD:
        emit(e, (struct linstr){.code = CODE_SKIP_UNLESS}, u, 0);
        e->nrole += u->src[0]->op == OP_ROLE;
        open_region(e);
        break;
    case OP_END: case OP_ENDGUARD:
        e->nrole -= u->op == OP_ENDGUARD && u->src[0]->src[0]->op == OP_ROLE;
        close_region(e, u);
        break;
    case OP_TICKET:
        append(e, (struct linstr){.code = CODE_BARRIER, .dst = reg_of(e, u)});
        append(e, (struct linstr){
                      .code = CODE_TICKET,
                      .dst = reg_of(e, u),
                      .memory = memory_of(e, u),
                      .src = {reg_of(e, u->src[TICKET_NUMBER])},
                      .nsrc = 1,
                      .from = eval_memory_of(&e->memory, uop_buffer_of(u->src[TICKET_MEMORY])),
                      .target = (int)u->src[TICKET_OF]->src[0]->arg.i});
        break;
    case OP_ROLE:
        e->failed |= ROLE_CONSUMERS_OF(u->arg.i) != e->items;
        append(e, (struct linstr){.code = CODE_ROLE, .dst = reg_of(e, u), .bits = u->arg.i});
        break;
    case OP_ACC:
        if (u->nsrc > 1 && lanes_of(e, u) < 0)
            declare_lanes(e, u);
        append(e, (struct linstr){.code = u->nsrc > 1 ? CODE_LANES_INIT : CODE_COPY,
                                  .memory = lanes_of(e, u),
                                  .dst = reg_of(e, u),
                                  .src = {reg_of(e, u->src[0])},
                                  .period = u->src[0]->lanes,
                                  .lanes = u->lanes,
                                  .nsrc = 1});
        break;
    case OP_ASSIGN:
        emit(e, (struct linstr){.code = CODE_COPY}, u, 1);
        emit(e, (struct linstr){.code = CODE_COPY}, u, 1);
        if (!e->failed)
            e->code[e->ncode - 1].dst = reg_of(e, u->src[0]);
        if (lanes_of(e, u->src[0]) >= 0)
            append(e, (struct linstr){.code = CODE_LANES_SET,
                                      .memory = lanes_of(e, u->src[0]),
                                      .dst = reg_of(e, u->src[0])});
        break;
    case OP_SPLAT:
        emit(e, (struct linstr){.code = CODE_COPY}, u, 0);
        break;
    case OP_RAMP:
        emit(e, (struct linstr){.code = CODE_RAMP}, u, 0);
        break;
    case OP_FOLD:
        emit(e, (struct linstr){.code = CODE_FOLD, .op = (enum op)u->arg.i}, u, 0);
        break;
    case OP_LANE:
        emit(e, (struct linstr){.code = CODE_LANE, .target = (int)u->arg.i}, u, 0);
        break;
    case OP_LANES:
        emit(e, (struct linstr){.code = CODE_COUNT}, u, 0);
        break;
    case OP_NARROW:
        emit(e, (struct linstr){.code = CODE_NARROW, .sdtype = u->src[0]->dtype,
                                .target = (int)u->arg.i},
             u, 0);
        break;
    case OP_GATHER:
        emit(e, (struct linstr){.code = CODE_GATHER, .memory = memory_of(e, u)}, u, 1);
        break;
    case OP_NEAREST:
        emit(e, (struct linstr){.code = CODE_NEAREST}, u, 0);
        break;
    case OP_INTRINSIC:
        table = intrinsic_shape(u->arg.i, 0).memory;  /* has no register */
        emit(e, (struct linstr){.code = CODE_INTRINSIC, .target = meaning_of(e, u),
                                .memory = table ? memory_of(e, u) : -1},
             u, table);
        break;
    case OP_LOAD:
        emit(e, (struct linstr){.code = CODE_LOAD, .memory = memory_of(e, u)}, u, 1);
        break;
    case OP_STORE:
        emit(e, (struct linstr){.code = CODE_STORE, .memory = memory_of(e, u)}, u, 1);
        break;
    case OP_COPY: case OP_PUT:
        compile_transfer(e, u);
        break;
    case OP_STACK:
        for (int k = 1; k < u->nsrc; k++)
            append(e, (struct linstr){.code = CODE_PICK, .dst = reg_of(e, u), .nsrc = 2,
                                      .src = {reg_of(e, u->src[0]), reg_of(e, u->src[k])},
                                      .lanes = u->lanes, .target = k - 1});
        break;
    default:
        if (!op_is_elementwise(u->op))
            TGC_BUG(e->t, "%s in a linear program", op_name(u->op));
        compile_elementwise(e, u);
    }
}

void eval_linear_compile(struct linear_eval *e, struct uop *const *u, int n)
{
    e->program = u;
    e->nprogram = n;
    for (e->at = 0; e->at < n && !e->failed; e->at++)
        compile_one(e, u[e->at]);
    if (!e->failed && e->nopen)
        TGC_BUG(e->t, "a linear program with %d open loops at its end", e->nopen);
}

void eval_linear_free(struct linear_eval *e)
{
    eval_memory_free(&e->memory);
    for (int i = 0; i < e->nlanes; i++)
        free(e->lanes[i].data);
    free(e->lanes);
    free(e->meaning);
    free(e->bulk);
    free(e->code);
    free(e->reg);
    free(e->set);
    free(e->of);
    free(e->table);
    free(e->open);
}
