/* eval_linear.c - runs a linear kernel program, one scalar after the other.
 *
 * The array is first compiled to instructions over numbered registers: one register a uop, jumps
 * for loops and guards. Registers hold double or int64 as in the rest of the evaluator. Array order
 * is execution order; a uop that occurs several times computes into the same register. A memory
 * access outside its buffer is a bug of the compiler and ends the evaluation as one, as does a
 * register that is read before anything was computed into it.
 *
 * The threads of a block are evaluations of their own, of the same part, that share local memory.
 * They run one after the other up to the next barrier, which ends a phase: threads that access an
 * element in one phase, one of them storing to it, are a race. Of a grid's places, part p of P runs
 * those whose number is p modulo P.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ir/eval.h"

enum code {
    CODE_ALU,
    CODE_LOAD,
    CODE_STORE,
    CODE_TRANSFER,               /* COPY, at once: that is one of the times at which it may be there */
    CODE_OPEN,
    CODE_CLOSE,
    CODE_COPY,
    CODE_PICK,
    CODE_LANE,
    CODE_FOLD,
    CODE_INTRINSIC,
    CODE_MATRIX,
    CODE_NEAREST,
    CODE_COUNT,
    CODE_NARROW,
    CODE_GATHER,
    CODE_RAMP,
    CODE_SKIP_UNLESS,
    CODE_BARRIER,
    CODE_MBAR,                   /* by op: MBAR_INIT, MBAR_ARRIVE, MBAR_WAIT */
    CODE_BULK,
    CODE_OFFER,                  /* SHUFFLE: the value is there for others, behind the end of the phase */
    CODE_TAKE,                   /* likewise: another thread's value */
    CODE_LANES_INIT,
    CODE_LANES_GET,
    CODE_LANES_SET
};
struct linstr {
    enum code code;
    enum op op;
    enum dtype dtype, sdtype;
    int dst, src[4], nsrc;
    /* lanes of the result, or of a stored value; those in memory; the stride between them */
    int lanes, part, stride;
    int step[4]; /* per source: 1 where it is a vector, 0 where all lanes read one; MATRIX: 2 where it is bits */
    int period;                  /* COPY: the source's lanes, which are repeated */
    int columns;                 /* LOAD, STORE of a tile: of a row; the rows are `stride` apart */
    int64_t panel;               /* LOAD of a tile: of memory in panels of so many elements */
    bool grouped;                /* LOAD: of groups of bytes, whose bytes are `stride` apart */
    bool plain;   /* ALU: bounds exclude what a language's operator does not define */
    /* OPEN, CLOSE: this run executes a part of the loop's iterations, or this thread of a block */
    bool shared, of_block;
    /* likewise: of a grid's first dimension, the loops of the others around it; of a block's threads,
     * how many are between two iterations */
    bool grid; int outer[2], nouter;
    bool place;                  /* OPEN, CLOSE: iterations are places of a grid, each with memory of its own */
    int64_t item;
    int mask;                    /* TAKE */
    int64_t bits;                /* MATRIX: its row and the order of its tiles; MBAR: the op's argument */
    int memory;                  /* LOAD, STORE; INTRINSIC: its table; index into memory[] */
    int from;                    /* TRANSFER: likewise, what is copied */
    /* OPEN, SKIP_UNLESS: where to continue if the loop or guard is skipped; CLOSE: the first
     * instruction inside; INTRINSIC: index into meaning[]; BULK: into bulk[]; PICK: the least index that takes the
     * source instead of what dst holds, 0: any */
    int target;
};

/* An accumulator with lanes: one element per combination of them, row-major. */
enum { LANES_RANK = 8 };
struct lanes {
    const struct uop *acc;
    int reg[LANES_RANK], n;
    int64_t size[LANES_RANK], nelem;
    union scalar *data;
};

/* What an INTRINSIC does: a graph of its operands. */
struct meaning {
    struct uop *root;
    const struct uop *leaf[INTRINSIC_OPERANDS];
    struct tensor *value[INTRINSIC_OPERANDS];
    int n;
};

/* A bulk copy: its memory, and the registers of what it is told. */
struct bulk { const struct uop *u; int to, barriers, from, offset, number, coordinate[BULK_RANK]; };

struct linear_eval {
    struct tgc *t;
    const struct eval_env *env;
    struct linstr *code; int ncode; size_t cap_code;
    union scalar *reg; bool *set; int nreg; size_t cap_reg;
    struct eval_memory memory;
    struct lanes *lanes; int nlanes; size_t cap_lanes;
    struct meaning *meaning; int nmeaning; size_t cap_meaning;
    struct bulk *bulk; int nbulk; size_t cap_bulk;
    struct slot { const struct uop *u; int reg; } *table; size_t table_size, table_used;
    const struct uop **of; size_t cap_of;        /* by register */
    /* code positions of loops and guards to be closed */
    int *open; int nopen; size_t cap_open;
    int64_t budget;
    bool failed;
    int thread, threads;         /* of the block */
    int phase;                   /* barriers that were passed */
    union scalar offered[2];     /* in this phase and the one before, by the last bit of its number */
    int pc;                      /* where it goes on: behind a barrier, or at the end */
    struct uop *const *program; int nprogram, at;    /* what is compiled, and how far */
};

static bool reserve(struct linear_eval *e, void *array, size_t *cap, size_t n, size_t size)
{
    void **a = array;
    if (n <= *cap)
        return true;
    size_t want = n < 32 ? 64 : 2 * n, nbytes;
    void *grown = size_mul(want, size, &nbytes) ? realloc(*a, nbytes) : NULL;
    if (!grown) {
        e->failed = true;
        return false;
    }
    *a = grown;
    *cap = want;
    return true;
}

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
    if (!reserve(e, &e->of, &e->cap_of, n, sizeof *e->of) ||
        !reserve(e, &e->set, &cap_set, n, sizeof *e->set) ||
        !reserve(e, &e->reg, &cap, n, sizeof *e->reg))
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
    if (reserve(e, &e->code, &e->cap_code, (size_t)e->ncode + 1, sizeof *e->code))
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
    struct lanes l = {.acc = u, .n = u->nsrc - 1, .nelem = 1};
    if (l.n > LANES_RANK ||
        !reserve(e, &e->lanes, &e->cap_lanes, (size_t)e->nlanes + 1, sizeof *e->lanes)) {
        e->failed = true;
        return;
    }
    for (int k = 0; k < l.n; k++) {
        l.reg[k] = reg_of(e, u->src[k + 1]);
        if (!uop_const_int(u->src[k + 1]->src[0], &l.size[k]) ||
            __builtin_mul_overflow(l.nelem, l.size[k], &l.nelem))
            e->failed = true;
    }
    l.data = e->failed ? NULL : calloc((size_t)l.nelem, sizeof *l.data);
    e->failed |= !l.data;
    e->lanes[e->nlanes++] = l;
}

/* Operands are buffers of the graph, and tensors of ours that are filled whenever it runs. */
static int meaning_of(struct linear_eval *e, const struct uop *u)
{
    struct meaning m = {.n = u->nsrc};
    struct uop *in[INTRINSIC_OPERANDS], *dim[MAX_RANK];
    struct tgc *t = e->t;
    if (!reserve(e, &e->meaning, &e->cap_meaning, (size_t)e->nmeaning + 1, sizeof *e->meaning))
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
        in.panel = uop_buffer_of(u->src[0])->panel;
        in.stride = (int)TILE_STRIDE(u->arg.i);
        in.grouped = false;
    }
    in.dtype = u->dtype;
    in.dst = reg_of(e, u);
    append(e, in);
}

static void open_region(struct linear_eval *e)
{
    if (reserve(e, &e->open, &e->cap_open, (size_t)e->nopen + 1, sizeof *e->open))
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
    if (in->item && first && sat_mul(turns, u->src[0]->vmax) != e->threads)
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
    if (e->threads < 2)
        return;
    e->failed |= SHUFFLE_MASK(u->arg.i) >= e->threads;
    append(e, (struct linstr){.code = CODE_OFFER, .dst = reg_of(e, acc)});
    append(e, (struct linstr){.code = CODE_TAKE, .dst = reg_of(e, u), .mask = SHUFFLE_MASK(u->arg.i)});
    struct uop *sum = uop_intern(e->t, SHUFFLE_OP(u->arg.i), acc->dtype, both, 2, (union arg){0});
    compile_elementwise(e, sum);
    append(e, (struct linstr){.code = CODE_COPY, .dst = reg_of(e, acc), .src = {reg_of(e, sum)}, .nsrc = 1,
                              .lanes = 1, .period = 1});
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
    struct linstr in = {.code = CODE_MATRIX, .memory = lanes_of(e, u->src[0]), .bits = u->arg.i, .nsrc = 3,
                        .src = {reg_of(e, u->src[1]), reg_of(e, u->src[2]), reg_of(e, compile_thread(e))},
                        .dst = reg_of(e, u)};
    for (int k = 0; k < 2; k++)
        in.step[k] = u->src[1 + k]->dtype == DTYPE_U16 ? 2 : 1;
    append(e, in);
}

static void compile_bulk(struct linear_eval *e, const struct uop *u)
{
    struct bulk b = {.u = u, .to = memory_of(e, u), .offset = reg_of(e, u->src[BULK_OFFSET]), .number = reg_of(e, u->src[BULK_NUMBER])};
    b.barriers = eval_memory_of(&e->memory, uop_buffer_of(u->src[BULK_BARRIERS]));
    b.from = eval_memory_of(&e->memory, uop_buffer_of(u->src[BULK_FROM]));
    for (int a = 0; a < bulk_rank(u); a++)
        b.coordinate[a] = reg_of(e, bulk_axis(u, a).coordinate);
    if (reserve(e, &e->bulk, &e->cap_bulk, (size_t)e->nbulk + 1, sizeof *e->bulk))
        e->bulk[e->nbulk] = b;
    append(e, (struct linstr){.code = CODE_BULK, .target = e->nbulk++, .dst = reg_of(e, u)});
}

static void compile_transfer(struct linear_eval *e, const struct uop *u)
{
    struct linstr in = {.code = CODE_TRANSFER, .memory = memory_of(e, u), .dst = reg_of(e, u), .lanes = COPY_LANES(u->arg.i),
                        .from = eval_memory_of(&e->memory, uop_buffer_of(u->src[2])),
                        .src = {reg_of(e, u->src[1]), reg_of(e, u->src[3])}, .nsrc = u->nsrc - 2};
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
    case OP_PUBLISH: case OP_MATRIX_BEGIN: case OP_MATRIX_COMMIT: case OP_MATRIX_WAIT:
        break;                                        /* the interpreter's products are there at once */
    case OP_BARRIER:
        append(e, (struct linstr){.code = CODE_BARRIER, .dst = reg_of(e, u)});
        break;
    case OP_MATRIX:
        compile_matrix(e, u);
        break;
    case OP_MBAR_INIT: case OP_MBAR_ARRIVE: case OP_MBAR_WAIT:
        emit(e, (struct linstr){.code = CODE_MBAR, .op = u->op, .bits = u->arg.i, .memory = memory_of(e, u)}, u, 1);
        break;
    case OP_BULK:
        compile_bulk(e, u);
        break;
    case OP_GUARD:
        emit(e, (struct linstr){.code = CODE_SKIP_UNLESS}, u, 0);
        open_region(e);
        break;
    case OP_END: case OP_ENDGUARD:
        close_region(e, u);
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
    case OP_COPY:
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

/* -------------------------------------------------------------------------------------- running */

/* The offset of lane l from the first one. */
static int64_t lane_at(const struct linstr *in, int l)
{
    return in->columns   ? l % in->columns + (int64_t)(l / in->columns) * in->stride
           : in->grouped ? l / DOT_BYTES + (int64_t)(l % DOT_BYTES) * in->stride
                         : (int64_t)l * in->stride;
}

/* The element of lane l. */
static int64_t element_of(const struct linear_eval *e, const struct linstr *in, int64_t offset, int l)
{
    if (!in->panel)
        return offset + lane_at(in, l);
    int64_t size = (int64_t)dtype_nbytes(e->memory.v[in->memory].buffer->dtype), row = PANEL_ROW_NBYTES / size,
            column = offset % row + l % in->columns;
    int64_t at = offset - offset % row + (int64_t)(l / in->columns) * row + column / row * in->panel + column % row;
    return bulk_swizzled(at * size, PANEL_ROW_NBYTES) / size;
}

static int64_t element(struct linear_eval *e, const struct linstr *in, const char *what)
{
    int64_t offset = e->reg[in->src[0]].i;
    const struct memory *m = &e->memory.v[in->memory];
    int64_t last = element_of(e, in, offset, in->part - 1);
    if (offset < 0 || offset >= m->nelem || last < 0 || last >= m->nelem)
        TGC_BUG(e->t, "%s of %d at element %lld of buffer %d '%s' with %lld", what, in->part,
                (long long)offset, m->buffer->id, m->buffer->name ? m->buffer->name : "",
                (long long)m->nelem);
    return offset;
}

/* Who is noted of an element: a thread's number from 1 on, several of one part, or of many. */
enum { OF_MANY_PARTS = INT32_MIN };
static int part_of(const struct linear_eval *e, int noted)
{
    return noted == OF_MANY_PARTS ? -1 : noted < 0 ? -noted - 1 : (noted - 1) / e->threads;
}

/* Whether who was noted in this phase excludes this thread: one of another part always, another one
 * of the block in the same phase. */
static bool meets(const struct linear_eval *e, int noted, int phase)
{
    if (!noted || noted == e->env->part * e->threads + e->thread + 1)
        return false;
    return part_of(e, noted) != e->env->part || phase == e->phase;
}

/* Notes that this thread reads or writes the element, and reports a race with another one. */
static void touch(const struct linear_eval *e, const struct memory *m, int64_t at, bool writes)
{
    int me = e->env->part * e->threads + e->thread + 1, n = e->threads;
    if (!m->touch)
        return;
    struct touched *c = &m->touch[at];
    int other = meets(e, c->writer, c->write_phase)            ? c->writer
                : writes && meets(e, c->reader, c->read_phase) ? c->reader
                                                               : 0;
    if (other && !e->env->race->buffer)
        *e->env->race = (struct race){m->buffer,
                                      at,
                                      {e->env->part, other > 0 ? (other - 1) / n : -1},
                                      {e->thread, other > 0 ? (other - 1) % n : -1}};
    if (writes) {
        c->writer = me;
        c->write_phase = e->phase;
        return;
    }
    c->reader = !meets(e, c->reader, c->read_phase)       ? me
                : part_of(e, c->reader) == e->env->part ? -e->env->part - 1
                                                        : OF_MANY_PARTS;
    c->read_phase = e->phase;
}

static void run_load(struct linear_eval *e, const struct linstr *in)
{
    const struct memory *m = &e->memory.v[in->memory];
    bool outside = in->nsrc > 2 && !e->reg[in->src[1]].i;
    int64_t offset = outside ? 0 : element(e, in, "load");
    for (int l = 0; l < in->part && !outside; l++)
        touch(e, m, element_of(e, in, offset, l), false);
    for (int l = 0; l < in->lanes; l++)
        e->reg[in->dst + l] = l >= in->part ? (union scalar){.f = NAN}
                              : outside     ? e->reg[in->src[2] + l * in->step[2]]
                                            : eval_memory_get(m, element_of(e, in, offset, l));
}

static union scalar *lane_element(const struct linear_eval *e, const struct linstr *in)
{
    const struct lanes *l = &e->lanes[in->memory];
    int64_t at = 0;
    for (int k = 0; k < l->n; k++)
        at = at * l->size[k] + e->reg[l->reg[k]].i;
    return &l->data[at];
}

static void run_store(struct linear_eval *e, const struct linstr *in)
{
    int64_t offset = element(e, in, "store");
    if (!e->memory.v[in->memory].data)
        TGC_BUG(e->t, "store to a weight");
    for (int l = 0; l < in->part; l++) {
        int64_t at = offset + lane_at(in, l);
        touch(e, &e->memory.v[in->memory], at, true);
        e->memory.v[in->memory].data[at] = e->reg[in->src[1] + l * in->step[1]];
    }
}

static void run_transfer(struct linear_eval *e, const struct linstr *in)
{
    const struct memory *to = &e->memory.v[in->memory], *from = &e->memory.v[in->from];
    int64_t at = e->reg[in->src[0]].i, source = e->reg[in->src[1]].i;
    bool valid = in->nsrc < 3 || e->reg[in->src[2]].i;
    if (at < 0 || at > to->nelem - in->lanes || (valid && (source < 0 || source > from->nelem - in->lanes)))
        TGC_BUG(e->t, "copy of %d at element %lld of buffer %d with %lld to element %lld of buffer %d with %lld", in->lanes,
                (long long)source, from->buffer->id, (long long)from->nelem, (long long)at, to->buffer->id, (long long)to->nelem);
    for (int l = 0; l < in->lanes; l++) {
        if (valid)
            touch(e, from, source + l, false);
        touch(e, to, at + l, true);
        unsigned char bits[8] = {0};                  /* the dtypes may differ */
        if (valid)
            scalar_store(from->buffer->dtype, bits, eval_memory_get(from, source + l));
        to->data[at + l] = scalar_load(to->buffer->dtype, bits);
    }
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
    return in->step[factor] == 2 ? scalar_load(d, &bits).f : v.f;
}

/* A thread's elements of the product. All threads of the wave load the same tiles, so each computes its own. */
static void run_matrix(struct linear_eval *e, const struct linstr *in)
{
    const struct lanes *l = &e->lanes[in->memory];
    const struct matrix_row *row = matrix_row(MATRIX_ROW(in->bits));
    const union scalar *a = &e->reg[in->src[0]], *b = &e->reg[in->src[1]];
    const int m = row->size[MATRIX_M], n = row->size[MATRIX_N], nk = row->size[MATRIX_K];
    int at[MATRIX_NONE + 1];
    int64_t first = 0;
    for (int k = 0; k < l->n; k++)
        first = first * l->size[k] + (range_is(l->acc->src[k + 1], AXIS_ELEMENT) ? 0 : e->reg[l->reg[k]].i);
    for (int i = 0; i < matrix_elements(row, MATRIX_SUM); i++) {
        union scalar *sum = &l->data[first + i];
        matrix_place(row, MATRIX_SUM, (int)(e->reg[in->src[2]].i % row->lanes), i, at);
        for (int k = 0; k < nk; k++) {
            union scalar x = a[MATRIX_ALONG_K(in->bits, 0) ? at[MATRIX_M] * nk + k : k * m + at[MATRIX_M]],
                         y = b[MATRIX_ALONG_K(in->bits, 1) ? at[MATRIX_N] * nk + k : k * n + at[MATRIX_N]];
            if (dtype_is_float(row->dtype[MATRIX_SUM]))
                sum->f += from_bits(row->dtype[MATRIX_A], in, 0, x) * from_bits(row->dtype[MATRIX_B], in, 1, y);
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

static void run_gather(struct linear_eval *e, const struct linstr *in)
{
    const struct memory *m = &e->memory.v[in->memory];
    for (int l = 0; l < in->lanes; l++) {
        int64_t at = e->reg[in->src[0]].i + e->reg[in->src[1] + l].i;
        if (in->nsrc > 2 && !e->reg[in->src[2] + l].i) {
            e->reg[in->dst + l] = e->reg[in->src[3] + l];
            continue;
        }
        if (at < 0 || at >= m->nelem)
            TGC_BUG(e->t, "gather of element %lld of buffer %d with %lld", (long long)at,
                    m->buffer->id, (long long)m->nelem);
        touch(e, m, at, false);
        e->reg[in->dst + l] = eval_memory_get(m, at);
    }
}

static int64_t *barrier_at(struct linear_eval *e, int memory, int64_t i)
{
    const struct memory *m = &e->memory.v[memory];
    if (i < 0 || i >= m->nelem)
        TGC_BUG(e->t, "barrier %lld of %lld", (long long)i, (long long)m->nelem);
    return &m->data[i].i;
}

/* A thread that waits for what another one has still to do would go on later; passes make none. */
static void run_mbar(struct linear_eval *e, const struct linstr *in)
{
    if (in->op == OP_MBAR_INIT) {
        for (int64_t i = 0; i < e->memory.v[in->memory].nelem && e->thread == 0; i++)
            *barrier_at(e, in->memory, i) = mbar_begin(in->bits);
        return;
    }
    int64_t *bar = barrier_at(e, in->memory, e->reg[in->src[0]].i);
    if (in->op == OP_MBAR_ARRIVE)
        *bar = mbar_arrive(*bar, in->bits);
    else if (!mbar_has_ended(*bar, e->reg[in->src[1]].i))
        TGC_BUG(e->t, "thread %d waits for a phase of parity %lld that does not end", e->thread, (long long)e->reg[in->src[1]].i);
}

/* What arrives is there at once. */
static void run_bulk(struct linear_eval *e, const struct bulk *b)
{
    const struct memory *to = &e->memory.v[b->to], *from = &e->memory.v[b->from];
    const int64_t n = bulk_nelem(b->u), offset = e->reg[b->offset].i;
    int64_t coordinate[BULK_RANK], at, *bar = barrier_at(e, b->barriers, e->reg[b->number].i);
    for (int a = 0; a < bulk_rank(b->u); a++)
        coordinate[a] = e->reg[b->coordinate[a]].i;
    for (int64_t i = 0; i < n; i++) {
        int64_t element = bulk_element(b->u, i, coordinate, &at);
        at += offset;
        if (at < 0 || at >= to->nelem || element >= from->nelem)
            TGC_BUG(e->t, "a bulk copy of element %lld of buffer %d to element %lld of buffer %d", (long long)element, from->buffer->id,
                    (long long)at, to->buffer->id);
        union scalar v = {.i = 0};
        if (element >= 0) {
            touch(e, from, element, false);
            v = eval_memory_get(from, element);
        }
        if (to->buffer->dtype != from->buffer->dtype && element >= 0) {
            uint16_t bits = 0;
            scalar_store(from->buffer->dtype, &bits, v);
            v.i = bits;
        }
        touch(e, to, at, true);
        if (to->touch)
            to->touch[at].writer = 0;        /* who reads it has waited, or not: the emulated device finds that */
        to->data[at] = v;
    }
    *bar = mbar_complete(*bar, n * (int64_t)dtype_nbytes(to->buffer->dtype));
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

/* Up to the next barrier, or to the end. */
static bool run(struct linear_eval *e)
{
    int pc = e->pc;
    for (e->pc = e->ncode; pc < e->ncode && !e->failed;) {
        const struct linstr *in = &e->code[pc++];
        if (e->budget >= 0 && e->budget-- == 0)
            return false;
        check_set(e, in);
        switch (in->code) {
        case CODE_ALU:
            run_alu(e, in);
            break;
        case CODE_LOAD:
            run_load(e, in);
            break;
        case CODE_STORE:
            run_store(e, in);
            break;
        case CODE_TRANSFER:
            run_transfer(e, in);
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
            run_gather(e, in);
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
            for (int64_t i = 0; i < e->lanes[in->memory].nelem; i++)
                e->lanes[in->memory].data[i] = e->reg[in->src[0]];
            break;
        case CODE_LANES_GET:
            e->reg[in->dst] = *lane_element(e, in);
            break;
        case CODE_LANES_SET:
            *lane_element(e, in) = e->reg[in->dst];
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
            e->phase++;
            return true;
        case CODE_TAKE:
            e->reg[in->dst] = (e - e->thread + (e->thread ^ in->mask))->offered[(e->phase - 1) & 1];
            break;
        case CODE_OFFER:
            e->offered[e->phase & 1] = e->reg[in->dst];
            e->pc = pc;
            e->phase++;
            return true;
        case CODE_BARRIER:
            e->pc = pc;
            e->phase++;
            return true;
        case CODE_MBAR:
            run_mbar(e, in);
            break;
        case CODE_BULK:
            run_bulk(e, &e->bulk[in->target]);
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

/* All threads of the block, phase by phase. */
static bool run_block(struct linear_eval *e)
{
    bool ok = true;
    do {
        for (int i = 0; i < e->threads && ok; i++) {
            ok = run(&e[i]);
            if (ok && e[i].pc != e[0].pc)
                TGC_BUG(e->t, "threads of a block are at different barriers");
        }
    } while (ok && e->pc < e->ncode);
    return ok;
}

static void linear_free(struct linear_eval *e)
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

static void block_free(struct linear_eval *e)
{
    for (int i = e->threads - 1; i >= 0; i--)
        linear_free(&e[i]);
    free(e);
}

static void compile_all(struct linear_eval *e, struct uop *const *u, int n)
{
    e->program = u;
    e->nprogram = n;
    for (e->at = 0; e->at < n && !e->failed; e->at++)
        compile_one(e, u[e->at]);
    if (!e->failed && e->nopen)
        TGC_BUG(e->t, "a linear program with %d open loops at its end", e->nopen);
}

bool eval_linear(struct tgc *t, struct uop *const *u, int n, const struct eval_env *env)
{
    int threads = env->block > 0 ? env->block : 1;
    struct linear_eval *const e = calloc((size_t)threads, sizeof *e);
    jmp_buf outer;
    if (!e)
        return false;
    for (int i = 0; i < threads; i++) {
        e[i] = (struct linear_eval){
            .t = t, .env = env, .budget = env->budget, .thread = i, .threads = threads};
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
        compile_all(&e[i], u, n);
        failed |= e[i].failed;
    }
    bool ok = !failed && run_block(e);
    memcpy(&t->stop, &outer, sizeof outer);
    block_free(e);
    return ok;
}
