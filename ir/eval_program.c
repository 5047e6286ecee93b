/* eval_program.c - the value of a graph uop at many coordinates at once.
 *
 * Pull model: asked for u at coordinates, movement ops answer by changing the coordinates and
 * asking their source, elementwise ops by asking all sources and combining, memory by loading. This
 * is done once, and emits a straight-line program over registers of LANES values; what depends on
 * fewer loops runs less often:
 *
 *      once;  for each batch of lanes { lane part;  for each step { step part;  sink } }
 *
 * and instructions of the step part that depend on slower axes alone run only when one of those has
 * changed.
 *
 * Coordinates are plain numbers in registers. Nothing here knows of views, strides of views or
 * symbolic simplification, so that all of those can be tested against it.
 */
#include <stdlib.h>
#include <string.h>

#include "ir/eval.h"

struct memo { const struct uop *u; int coord[MAX_RANK]; int reg; };

/* Grows a heap array to hold n elements; marks the program failed if it cannot. */
static bool reserve(struct program *p, void *array, size_t *cap, size_t n, size_t size)
{
    void **a = array;
    if (n <= *cap)
        return true;
    size_t want = n < 64 ? 64 : n, nbytes;
    void *grown = size_mul(want, 2, &want) && size_mul(want, size, &nbytes) ? realloc(*a, nbytes)
                                                                            : NULL;
    if (!grown) {
        p->failed = true;
        return false;
    }
    *a = grown;
    *cap = want;
    return true;
}

void eval_program_reset(struct program *p)
{
    p->ninstr = p->nreg = p->nmemo = p->nlane_axes = p->nstep_axes = 0;
    p->failed = false;
}

void eval_program_free(struct program *p)
{
    free(p->instr);
    free(p->reg);
    free(p->memo);
    free(p->list);
    free(p->slot);
    free(p->last_use);
    free(p->free_slot);
}

/* ------------------------------------------------------------------------------ building blocks */

static int reg_new(struct program *p, int varies)
{
    if (p->failed || !reserve(p, &p->reg, &p->cap_reg, (size_t)p->nreg + 1, sizeof *p->reg))
        return -1;
    p->reg[p->nreg] = (struct reg){.varies = varies, .pace = MAX_RANK, .producer = -1};
    return p->nreg++;
}

static int reg_const(struct program *p, union scalar v)
{
    int r = reg_new(p, 0);
    if (r >= 0) {
        p->reg[r].is_const = true;
        p->reg[r].value = v;
    }
    return r;
}

static int reg_int(struct program *p, int64_t v) { return reg_const(p, (union scalar){.i = v}); }

static int emit(struct program *p, struct instr in)
{
    int varies = 0, pace = MAX_RANK;
    for (int k = 0; k < in.nsrc; k++) {
        if (p->failed || in.src[k] < 0)
            return -1;
        varies |= p->reg[in.src[k]].varies;
        pace = p->reg[in.src[k]].pace < pace ? p->reg[in.src[k]].pace : pace;
    }
    if (!reserve(p, &p->instr, &p->cap_instr, (size_t)p->ninstr + 1, sizeof *p->instr))
        return -1;
    in.dst = reg_new(p, varies);
    if (in.dst >= 0) {
        p->reg[in.dst].producer = p->ninstr;
        p->reg[in.dst].pace = pace;
    }
    p->instr[p->ninstr++] = in;
    return in.dst;
}

static int emit_alu(struct program *p, enum op op, enum dtype d, enum dtype sd, const int *src,
                    int nsrc)
{
    struct instr in = {.kind = INSTR_ALU, .op = op, .dtype = d, .sdtype = sd, .nsrc = nsrc};
    for (int k = 0; k < nsrc; k++)
        in.src[k] = src[k];
    return emit(p, in);
}

static bool is_const_int(const struct program *p, int r, int64_t v)
{
    return r >= 0 && p->reg[r].is_const && p->reg[r].value.i == v;
}

static int index_op(struct program *p, enum op op, int a, int b)
{
    return emit_alu(p, op, DTYPE_INDEX, DTYPE_INDEX, (int[]){a, b}, 2);
}

static int index_add(struct program *p, int a, int b)
{
    if (is_const_int(p, a, 0))
        return b;
    return is_const_int(p, b, 0) ? a : index_op(p, OP_ADD, a, b);
}

static int index_mul(struct program *p, int a, int64_t k)
{
    if (k == 1 || is_const_int(p, a, 0))
        return a;
    return k == 0 ? reg_int(p, 0) : index_op(p, OP_MUL, a, reg_int(p, k));
}

/* valid and 0 <= r < n; a negative valid stands for true. */
static int and_in_range(struct program *p, int valid, int r, int64_t n)
{
    int ok = emit(p, (struct instr){.kind = INSTR_IN_RANGE, .src = {r}, .nsrc = 1, .n = n});
    return valid < 0 ? ok : emit_alu(p, OP_AND, DTYPE_BOOL, DTYPE_BOOL, (int[]){valid, ok}, 2);
}

static int clamp(struct program *p, int r, int64_t n)
{
    return emit(p, (struct instr){.kind = INSTR_CLAMP, .src = {r}, .nsrc = 1, .n = n});
}

/* Adds r * k to the partial sum that changes as often as r. What changes by lane and what changes
 * by step is summed separately, so that each half is computed only when it changes: the offset o *
 * stride + k of a convolution's window costs nothing in the innermost loop. */
static void add_term(struct program *p, int *part, int r, int64_t k)
{
    if (p->failed || r < 0)
        return;
    const struct instr *in = p->reg[r].producer < 0 ? NULL : &p->instr[p->reg[r].producer];
    bool mixed = in && in->kind == INSTR_ALU && in->dtype == DTYPE_INDEX &&
                 p->reg[r].varies == (VARIES_LANE | VARIES_STEP);
    if (mixed && (in->op == OP_ADD || in->op == OP_SUB)) {
        int a = in->src[0], b = in->src[1];
        int64_t second = in->op == OP_ADD ? k : (int64_t)(0 - (uint64_t)k);
        add_term(p, part, a, k);
        add_term(p, part, b, second);
        return;
    }
    if (mixed && in->op == OP_MUL && p->reg[in->src[1]].is_const) {
        int64_t by = (int64_t)((uint64_t)k * (uint64_t)p->reg[in->src[1]].value.i);
        add_term(p, part, in->src[0], by);
        return;
    }
    int term = index_mul(p, r, k);
    if (term < 0)
        return;
    int *sum = &part[p->reg[term].varies];
    *sum = *sum < 0 ? term : index_add(p, *sum, term);
}

/* The flat offset of coordinates, as a part that changes by lane and a base that does not. */
static int load(struct program *p, struct node *n, const int *at)
{
    int part[4] = {-1, -1, -1, -1};
    int64_t stride = 1;
    if (n->nelem == 0)
        /* never read: the box is empty */
        return reg_int(p, 0);
    for (int a = n->u->ndim - 1; a >= 0; stride *= n->dim[a--])
        add_term(p, part, at[a], stride);
    if (p->failed)
        return -1;
    int zero = reg_int(p, 0), base = zero, offset = zero;
    for (int v = 0; v < 4; v++)
        if (part[v] >= 0) {
            int *sum = v & VARIES_LANE ? &offset : &base;
            *sum = index_add(p, *sum, part[v]);
        }
    const struct buffer *raw = eval_raw_weight(n);
    return emit(p, (struct instr){.kind = INSTR_LOAD,
                                  .dtype = n->u->dtype,
                                  .src = {offset, base},
                                  .nsrc = 2,
                                  .n = n->nelem,
                                  .data = raw ? raw->weight.data : n->value->data,
                                  .raw = raw != NULL});
}

/* --------------------------------------------------------------------------------- movement ops */

/* Axes are matched in groups of equal numbers of elements: [2,12] -> [4,6] is one group, [5,2,3] ->
 * [5,6] are two. */
static void reshape_coords(struct program *p, const struct node *out, const struct node *in,
                           const int *at, int *src)
{
    int no = out->u->ndim, ni = in->u->ndim, i = 0, j = 0;
    for (int a = 0; a < ni; a++)
        src[a] = reg_int(p, 0);
    if (out->nelem == 0)
        return;
    while (i < no || j < ni) {
        int i0 = i, j0 = j;
        int64_t size_out = i < no ? out->dim[i++] : 1, size_in = j < ni ? in->dim[j++] : 1;
        while (size_out != size_in) {
            if (size_out < size_in)
                size_out *= out->dim[i++];
            else
                size_in *= in->dim[j++];
        }
        int flat = reg_int(p, 0);
        int64_t stride = 1;
        for (int a = i - 1; a >= i0; stride *= out->dim[a--])
            flat = index_add(p, flat, index_mul(p, at[a], stride));
        for (int a = j - 1; a >= j0; a--) {
            if (in->dim[a] == 1)
                continue;
            size_in /= in->dim[a];
            int n = size_in == 1 ? -1 : reg_int(p, in->dim[a]);
            src[a] = n < 0 ? flat : index_op(p, OP_FLOORMOD, flat, n);
            if (n < 0)
                break;
            flat = index_op(p, OP_FLOORDIV, flat, n);
        }
    }
}

static int pad_value(struct program *p, struct eval *e, struct uop *u, const int *at)
{
    const struct node *x = eval_node(e, u->src[0]), *n = eval_node(e, u);
    int src[MAX_RANK] = {0}, valid = -1;
    int other = eval_program_value(p, e, u->src[1], NULL);
    if (x->nelem == 0)
        return other;
    for (int a = 0; a < u->ndim; a++) {
        int lo = eval_program_value(p, e, u->src[2 + 2 * a], NULL);
        src[a] = at[a];
        if (is_const_int(p, lo, 0) && n->dim[a] == x->dim[a])
            continue;
        src[a] = is_const_int(p, lo, 0) ? at[a] : index_op(p, OP_SUB, at[a], lo);
        valid = and_in_range(p, valid, src[a], x->dim[a]);
        src[a] = clamp(p, src[a], x->dim[a]);
    }
    int v = eval_program_value(p, e, u->src[0], src);
    return valid < 0 ? v : emit_alu(p, OP_WHERE, u->dtype, u->dtype, (int[]){valid, v, other}, 3);
}

static int window_value(struct program *p, struct eval *e, struct uop *u, const int *at)
{
    int axis = WINDOW_AXIS(u->arg.i), src[MAX_RANK] = {0}, n = 0;
    for (int a = 0; a < u->src[0]->ndim; a++) {
        if (a == axis) {
            int o = index_mul(p, at[n], WINDOW_STRIDE(u->arg.i)),
                k = index_mul(p, at[n + 1], WINDOW_DILATION(u->arg.i));
            src[a] = index_add(p, o, k);
            n++;
        } else {
            src[a] = at[n];
        }
        n++;
    }
    return eval_program_value(p, e, u->src[0], src);
}

static int move_value(struct program *p, struct eval *e, struct uop *u, const int *at)
{
    const struct node *n = eval_node(e, u);
    int src[MAX_RANK] = {0};
    switch (u->op) {
    case OP_RESHAPE:
        reshape_coords(p, n, eval_node(e, u->src[0]), at, src);
        break;
    case OP_PERMUTE:
        for (int a = 0; a < u->ndim; a++)
            src[PERM_GET(u->arg.i, a)] = at[a];
        break;
    case OP_EXPAND: /* axes of size 1 are set to 0 where they arrive */
        for (int a = 0; a < u->ndim; a++)
            src[a] = at[a];
        break;
    case OP_SHRINK:
        for (int a = 0; a < u->ndim; a++)
            src[a] = index_add(p, at[a], eval_program_value(p, e, u->src[1 + 2 * a], NULL));
        break;
    case OP_FLIP:
        for (int a = 0; a < u->ndim; a++)
            src[a] = u->arg.i >> a & 1 ? index_op(p, OP_SUB, reg_int(p, n->dim[a] - 1), at[a])
                                       : at[a];
        break;
    default:
        p->failed = true;
        return -1;
    }
    return eval_program_value(p, e, u->src[0], src);
}

/* -------------------------------------------------------------------------------------- any uop */

static int index_value(struct program *p, struct eval *e, struct uop *u, const int *at)
{
    const struct node *x = eval_node(e, u->src[0]);
    int src[MAX_RANK] = {0}, valid = -1;
    int zero = reg_const(p, dtype_is_float(u->dtype) ? (union scalar){.f = 0}
                                                     : (union scalar){.i = 0});
    if (x->nelem == 0)
        return zero;
    for (int a = 0; a < x->u->ndim; a++) {
        src[a] = eval_program_value(p, e, u->src[1 + a], u->src[1 + a]->ndim ? at : NULL);
        valid = and_in_range(p, valid, src[a], x->dim[a]);
        src[a] = clamp(p, src[a], x->dim[a]);
    }
    int v = eval_program_value(p, e, u->src[0], src);
    return valid < 0 ? v : emit_alu(p, OP_WHERE, u->dtype, u->dtype, (int[]){valid, v, zero}, 3);
}

static int elementwise_value(struct program *p, struct eval *e, struct uop *u, const int *at)
{
    int src[3];
    for (int k = 0; k < u->nsrc; k++)
        src[k] = eval_program_value(p, e, u->src[k], u->src[k]->ndim ? at : NULL);
    return emit_alu(p, u->op, u->dtype, u->src[u->nsrc - 1]->dtype, src, u->nsrc);
}

/* From the last source to the first: which is chosen is decided from the first on. */
static int stack_value(struct program *p, struct eval *e, struct uop *u, const int *at)
{
    struct uop *last = u->src[u->nsrc - 1];
    int index = eval_program_value(p, e, u->src[0], u->src[0]->ndim ? at : NULL);
    int v = eval_program_value(p, e, last, last->ndim ? at : NULL);
    for (int k = u->nsrc - 3; k >= 0; k--) {
        int x = eval_program_value(p, e, u->src[1 + k], u->src[1 + k]->ndim ? at : NULL);
        int up_to =
            emit_alu(p, OP_LT, DTYPE_BOOL, DTYPE_INDEX, (int[]){index, reg_int(p, k + 1)}, 2);
        v = emit_alu(p, OP_WHERE, u->dtype, u->dtype, (int[]){up_to, x, v}, 3);
    }
    return v;
}

/* Whether the sizes fit now that they are numbers. A proof of equality between symbols does not
 * hold if the symbols' values are wrong. */
static bool sizes_fit(struct eval *e, const struct uop *u)
{
    const struct node *n = eval_node(e, u), *x = u->nsrc ? eval_node(e, u->src[0]) : NULL;
    if (u->op == OP_RESHAPE)
        return x->nelem == n->nelem;
    if (u->op == OP_WINDOW) {
        int axis = WINDOW_AXIS(u->arg.i);
        int64_t o = n->dim[axis], k = n->dim[axis + 1];
        int64_t last = sat_add(sat_mul(o - 1, WINDOW_STRIDE(u->arg.i)),
                               sat_mul(k - 1, WINDOW_DILATION(u->arg.i)));
        return n->nelem == 0 || last < x->dim[axis];
    }
    for (int a = 0; a < u->ndim; a++) {
        if (u->op == OP_EXPAND && x->dim[a] != 1 && x->dim[a] != n->dim[a])
            return false;
        if (u->op == OP_PAD && n->dim[a] < x->dim[a])
            return false;
        if (u->op == OP_SHRINK && n->nelem != 0) {
            const struct node *begin = eval_node(e, u->src[1 + 2 * a]);
            if (begin->has_scalar &&
                (begin->scalar < 0 || sat_add(begin->scalar, n->dim[a]) > x->dim[a]))
                return false;
        }
        for (int k = u->op == OP_INDEX;
             k < u->nsrc && (op_is_pointwise(u->op) || u->op == OP_INDEX); k++)
            if (u->src[k]->ndim != 0 && eval_node(e, u->src[k])->dim[a] != n->dim[a])
                return false;
    }
    return true;
}

static int inline_value(struct program *p, struct eval *e, struct uop *u, const int *at)
{
    const struct node *n = eval_node(e, u);
    if (n->has_scalar)
        return reg_int(p, n->scalar);
    if (!sizes_fit(e, u)) {
        p->failed = true;
        return -1;
    }
    if (op_is_elementwise(u->op))
        return elementwise_value(p, e, u, at);
    switch (u->op) {
    case OP_CONTIGUOUS: case OP_STOP: case OP_AFTER:
        return eval_program_value(p, e, u->src[0], at);
    case OP_CONST:
        return reg_const(p, (union scalar){.i = u->arg.i});
    case OP_IOTA:
        return at[0];
    case OP_PAD:
        return pad_value(p, e, u, at);
    case OP_WINDOW:
        return window_value(p, e, u, at);
    case OP_INDEX:
        return index_value(p, e, u, at);
    case OP_STACK:
        return stack_value(p, e, u, at);
    default:
        return move_value(p, e, u, at);
    }
}

/* Recurses down to materialized nodes; eval.c's limit on a tree's weight bounds the depth. */
int eval_program_value(struct program *p, struct eval *e, struct uop *u, const int *coord)
{
    struct node *n = eval_node(e, u);
    struct memo m = {.u = u};
    for (int a = 0; a < u->ndim; a++)
        m.coord[a] = n->dim[a] == 1 ? -1 : coord[a];
    for (int i = 0; i < p->nmemo; i++)
        if (p->memo[i].u == u && !memcmp(p->memo[i].coord, m.coord, sizeof m.coord))
            return p->memo[i].reg;
    int at[MAX_RANK];
    for (int a = 0; a < u->ndim; a++)
        at[a] = m.coord[a] < 0 ? reg_int(p, 0) : m.coord[a];
    if (p->failed)
        return -1;
    m.reg = eval_is_inline(e, n) ? inline_value(p, e, u, at) : load(p, n, at);
    if (!reserve(p, &p->memo, &p->cap_memo, (size_t)p->nmemo + 1, sizeof *p->memo))
        return -1;
    p->memo[p->nmemo++] = m;
    return m.reg;
}

int eval_program_body(struct program *p, struct eval *e, struct uop *u, const int *coord)
{
    return eval_is_inline(e, eval_node(e, u)) ? eval_program_value(p, e, u, coord)
                                              : inline_value(p, e, u, coord);
}

void eval_program_lanes(struct program *p, const int64_t *dim, int ndim)
{
    p->nlane_axes = ndim;
    for (int a = 0; a < ndim; a++) {
        p->lane_dim[a] = dim[a];
        p->lane_reg[a] = reg_new(p, VARIES_LANE);
    }
}

void eval_program_steps(struct program *p, const int64_t *dim, int ndim, bool first_fastest)
{
    p->nstep_axes = ndim;
    p->first_fastest = first_fastest;
    for (int a = 0; a < ndim; a++) {
        p->step_dim[a] = dim[a];
        p->step_reg[a] = reg_new(p, VARIES_STEP);
        if (p->step_reg[a] >= 0)
            p->reg[p->step_reg[a]].pace = first_fastest ? a : ndim - 1 - a;
    }
}

/* -------------------------------------------------------------------------------------- running */

static struct operand operand_of(const struct program *p, int r)
{
    const struct reg *g = &p->reg[r];
    if (g->varies & VARIES_LANE)
        return (struct operand){p->slot + (size_t)g->slot * LANES, false};
    return (struct operand){&g->value, true};
}

static void load_one(const struct instr *in, uint64_t at, union scalar *r)
{
    float f;
    if (!in->raw) {
        *r = ((const union scalar *)in->data)[at];
    } else if (in->dtype == DTYPE_F32) {
        memcpy(&f, (const char *)in->data + at * sizeof f, sizeof f);
        r->f = (double)f;
    } else {
        *r = scalar_load(in->dtype, (const char *)in->data + at * dtype_nbytes(in->dtype));
    }
}

static void run_load(struct program *p, const struct instr *in, int n, union scalar *r)
{
    struct operand offset = operand_of(p, in->src[0]);
    uint64_t base = (uint64_t)p->reg[in->src[1]].value.i, limit = (uint64_t)in->n, top = 0;
    int step = offset.uniform ? 0 : 1;
    for (int i = 0; i < n; i++) {
        uint64_t at = (uint64_t)offset.v[i * step].i + base;
        top = at > top ? at : top;
    }
    if (top >= limit) {
        p->failed = true;
        return;
    }
    const union scalar *wide = in->raw ? NULL : in->data;
    for (int i = 0; i < n && wide; i++)
        r[i] = wide[(uint64_t)offset.v[i * step].i + base];
    for (int i = 0; i < n && !wide; i++)
        load_one(in, (uint64_t)offset.v[i * step].i + base, &r[i]);
}

static void run_instr(struct program *p, const struct instr *in, int lanes)
{
    struct reg *dst = &p->reg[in->dst];
    bool uniform = !(dst->varies & VARIES_LANE);
    int n = uniform ? 1 : lanes;
    union scalar *r = uniform ? &dst->value : p->slot + (size_t)dst->slot * LANES;
    struct operand x[3];
    for (int k = 0; k < in->nsrc; k++)
        x[k] = operand_of(p, in->src[k]);
    switch (in->kind) {
    case INSTR_ALU:
        if (uniform) {
            union scalar v[3];
            for (int k = 0; k < in->nsrc; k++)
                v[k] = x[k].v[0];
            *r = eval_scalar(in->op, in->dtype, in->sdtype, v);
        } else {
            alu_vector(in->op, in->dtype, in->sdtype, n, r, x, in->nsrc);
        }
        break;
    case INSTR_LOAD:
        run_load(p, in, n, r);
        break;
    case INSTR_IN_RANGE:
        for (int i = 0; i < n; i++)
            r[i].i = (uint64_t)x[0].v[i].i < (uint64_t)in->n;
        break;
    case INSTR_CLAMP:
        for (int i = 0; i < n; i++) {
            int64_t v = x[0].v[i].i;
            r[i].i = v < 0 ? 0 : v >= in->n ? in->n - 1 : v;
        }
        break;
    }
}

static int part_of(const struct program *p, const struct instr *in)
{
    int varies = p->reg[in->dst].varies;
    return varies & VARIES_STEP ? 2 : varies ? 1 : 0;
}

static void mark_needed(struct program *p, const int *root, int nroot)
{
    for (int k = 0; k < nroot; k++)
        p->reg[root[k]].needed = true;
    for (int i = p->ninstr - 1; i >= 0; i--)
        if (p->reg[p->instr[i].dst].needed)
            for (int k = 0; k < p->instr[i].nsrc; k++)
                p->reg[p->instr[i].src[k]].needed = true;
}

uint32_t eval_program_axes(struct program *p, int reg)
{
    uint32_t axes = 0;
    if (p->failed || reg < 0)
        return 0;
    mark_needed(p, &reg, 1);
    for (int a = 0; a < p->nlane_axes; a++)
        axes |= (uint32_t)p->reg[p->lane_reg[a]].needed << a;
    return axes;
}

/* Lists the instructions that the roots need: once, lane, step; end[] are the ends of the three
 * parts. */
static bool make_lists(struct program *p, const int *root, int nroot, int end[3])
{
    mark_needed(p, root, nroot);
    if (!reserve(p, &p->list, &p->cap_list, (size_t)p->ninstr, sizeof *p->list))
        return false;
    int n = 0;
    for (int part = 0; part < 3; part++) {
        for (int i = 0; i < p->ninstr; i++)
            if (p->reg[p->instr[i].dst].needed && part_of(p, &p->instr[i]) == part)
                p->list[n++] = i;
        end[part] = n;
    }
    return true;
}

/* Assigns vectors to slots by live range. A slot is free again after the last use in the part that
 * computes the vector; it stays occupied if later steps read it without recomputing it. */
static bool assign_slots(struct program *p, const int *root, int nroot, const int end[3])
{
    if (!reserve(p, &p->last_use, &p->cap_last_use, (size_t)p->nreg, sizeof *p->last_use) ||
        !reserve(p, &p->free_slot, &p->cap_free_slot, (size_t)p->nreg, sizeof *p->free_slot))
        return false;
    int nfree = 0, nslot = 0, forever = end[2];
    for (int r = 0; r < p->nreg; r++)
        p->last_use[r] = -1;
    for (int i = 0; i < end[2]; i++) {
        const struct instr *in = &p->instr[p->list[i]];
        for (int k = 0; k < in->nsrc; k++) {
            bool same_part = i < end[1] || p->reg[in->src[k]].varies & VARIES_STEP;
            p->last_use[in->src[k]] = same_part ? i : forever;
        }
    }
    for (int k = 0; k < nroot; k++)
        p->last_use[root[k]] = forever;
    for (int a = 0; a < p->nlane_axes; a++) {
        p->reg[p->lane_reg[a]].slot = nslot++;
        p->last_use[p->lane_reg[a]] = forever;
    }
    for (int i = end[0]; i < end[2]; i++) {
        const struct instr *in = &p->instr[p->list[i]];
        struct reg *dst = &p->reg[in->dst];
        bool stays = i >= end[1] && dst->pace > 0;
        if (stays)
            p->last_use[in->dst] = forever;
        if (dst->varies & VARIES_LANE)
            dst->slot = nfree && !stays ? p->free_slot[--nfree] : nslot++;
        for (int k = 0; k < in->nsrc; k++)
            if (p->last_use[in->src[k]] == i && p->reg[in->src[k]].varies & VARIES_LANE) {
                p->free_slot[nfree++] = p->reg[in->src[k]].slot;
                /* free it once, though it may be two sources */
                p->last_use[in->src[k]] = -1;
            }
    }
    size_t nvalue;
    return size_mul((size_t)nslot, LANES, &nvalue) &&
           reserve(p, &p->slot, &p->cap_slot, nvalue, sizeof *p->slot);
}

/* Runs the instructions [from, to) with pace `most` or less. */
static void run_part(struct program *p, int from, int to, int lanes, int most)
{
    for (int i = from; i < to && !p->failed; i++) {
        const struct instr *in = &p->instr[p->list[i]];
        if (p->reg[in->dst].pace <= most)
            run_instr(p, in, lanes);
    }
}

/* Coordinates of the lanes first .. first+n. */
static void fill_lanes(struct program *p, int64_t first, int n)
{
    int64_t at[MAX_RANK], rest = first;
    for (int a = p->nlane_axes - 1; a >= 0; a--) {
        at[a] = rest % p->lane_dim[a];
        rest /= p->lane_dim[a];
    }
    for (int i = 0; i < n; i++) {
        for (int a = 0; a < p->nlane_axes; a++)
            p->slot[(size_t)p->reg[p->lane_reg[a]].slot * LANES + (size_t)i].i = at[a];
        for (int a = p->nlane_axes - 1; a >= 0 && ++at[a] == p->lane_dim[a]; a--)
            at[a] = 0;
    }
}

static bool box_nelem(const int64_t *dim, int ndim, int64_t *nelem)
{
    *nelem = 1;
    for (int a = 0; a < ndim; a++)
        if (__builtin_mul_overflow(*nelem, dim[a], nelem))
            return false;
    return true;
}

/* The step axis of a pace. */
static int axis_of(const struct program *p, int pace)
{
    return p->first_fastest ? pace : p->nstep_axes - 1 - pace;
}

/* Charges the program's cost to the budget; false: over budget. An instruction costs as much for
 * few lanes as for FEWEST. */
static bool pay(struct program *p, const int end[3], int64_t lanes, int64_t steps)
{
    enum { FEWEST = 32 };
    lanes = lanes < FEWEST ? FEWEST : lanes;
    int64_t cost = sat_add(sat_mul(end[1] - end[0], lanes), sat_mul(lanes, steps));
    for (int i = end[1]; i < end[2]; i++) {
        int64_t times = lanes;
        for (int k = p->reg[p->instr[p->list[i]].dst].pace; k < p->nstep_axes; k++)
            times = sat_mul(times, p->step_dim[axis_of(p, k)]);
        cost = sat_add(cost, times);
    }
    if (*p->budget < 0)
        return true;
    if (cost > *p->budget)
        return false;
    *p->budget -= cost;
    return true;
}

/* Advances the step coordinates; returns the slowest pace that has changed. */
static int next_step(const struct program *p, int64_t *at)
{
    for (int k = 0; k < p->nstep_axes; k++) {
        int a = axis_of(p, k);
        if (++at[a] < p->step_dim[a])
            return k;
        at[a] = 0;
    }
    return MAX_RANK;
}

static int64_t step_number(const struct program *p, const int64_t *at)
{
    int64_t number = 0;
    for (int a = 0; a < p->nstep_axes; a++)
        number = number * p->step_dim[a] + at[a];
    return number;
}

bool eval_program_run(struct program *p, const int *root, int nroot, program_sink sink, void *ctx)
{
    int end[3];
    int64_t lanes, steps;
    struct operand value[MAX_RANK + 1];
    for (int k = 0; k < nroot; k++)
        if (root[k] < 0)
            return false;
    if (p->failed || !box_nelem(p->lane_dim, p->nlane_axes, &lanes) ||
        !box_nelem(p->step_dim, p->nstep_axes, &steps))
        return false;
    if (lanes == 0 || steps == 0)
        return true;
    if (!make_lists(p, root, nroot, end) || !pay(p, end, lanes, steps) ||
        !assign_slots(p, root, nroot, end))
        return false;
    run_part(p, 0, end[0], 1, MAX_RANK);
    for (int64_t first = 0; first < lanes && !p->failed; first += LANES) {
        int n = lanes - first < LANES ? (int)(lanes - first) : LANES;
        int64_t at[MAX_RANK] = {0};
        int changed = MAX_RANK;
        fill_lanes(p, first, n);
        run_part(p, end[0], end[1], n, MAX_RANK);
        for (int64_t step = 0; step < steps && !p->failed; step++) {
            for (int a = 0; a < p->nstep_axes; a++)
                p->reg[p->step_reg[a]].value.i = at[a];
            run_part(p, end[1], end[2], n, changed);
            for (int k = 0; k < nroot; k++)
                value[k] = operand_of(p, root[k]);
            sink(ctx, first, n, step_number(p, at), value);
            changed = next_step(p, at);
        }
    }
    return !p->failed;
}
