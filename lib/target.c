/* target.c - tgc_target.h: a schedule as data.
 *
 * Portable linear programs are copied, with three things made explicit:
 *
 *      leaves           they are not in a linear program: here they come first
 *      accumulators     what reads one gets a load before it, which names the element, and an
 *                       assignment is a store. The index is the open lane's range, r:
 *
 *                           a = ACC(0.0, r)          3  acc   (2)     i = 32
 *                           ASSIGN(a, ADD(a, x))     7  load  (3, 5)
 *                                                    8  add   (7, 6)
 *                                                    9  store (3, 5, 8)
 *
 *      small scratch    which other targets have on the stack: it follows the arena
 */
#include "lib/lib.h"
#include "lib/tgc_target.h"
#include "passes/target/legal.h"

#include <string.h>

struct program_copy {
    tgc_program seen;               /* first: callers have a pointer to it */
    struct tgc *t;
    const struct schedule *s;
    const struct options *o;
    const tgc_target *target;       /* the caller's, while it is made */
    tgc_buffer *buffer; size_t cap_buffer;
    tgc_symbol *symbol; size_t cap_symbol;
    int *buffer_at, *symbol_at;     /* by id, from 1; 0: not there yet */
};

/* ---------------------------------------------------------------------------------- what it has */

static bool has_word(const char *words, const char *word)
{
    size_t n = strlen(word);
    for (const char *s = words; s && (s = strstr(s, word)) != NULL; s += n)
        if ((s == words || s[-1] == ' ') && (s[n] == ' ' || !s[n]))
            return true;
    return !words;
}

static bool check_word(const struct program_copy *p, const char *words, const char *what,
                       const char *word, const char *whose)
{
    if (has_word(words, word))
        return true;
    return diag_error(p->t, &(struct place){.file = p->o->model, .text = whose},
                      "the target '%.100s' has no %s '%s', which this needs", p->target->name, what,
                      word);
}

static bool check_code(const struct program_copy *p, tgc_code code, const char *whose)
{
    for (int i = 0; i < code.n; i++) {
        enum op op;
        const tgc_uop *u = &code.uop[i];
        bool computes = op_parse(u->op, &op) && op_is_elementwise(op);
        if ((computes && !check_word(p, p->target->ops, "op", u->op, whose)) ||
            (strcmp(u->dtype, "void") != 0 &&
             !check_word(p, p->target->dtypes, "type", u->dtype, whose)))
            return false;
    }
    return true;
}

/* ----------------------------------------------------------------------------------------- code */

struct coder {
    struct program_copy *p;
    tgc_uop *uop; int n; size_t cap;
    struct uop_map at;              /* the position of a uop's value, from 1 */
};

static int buffer_number(struct program_copy *p, const struct buffer *b);

static int symbol_number(struct program_copy *p, const struct var *v)
{
    int *at = &p->symbol_at[v->id];
    if (!*at) {
        tgc_symbol symbol = {v->name, v->min, v->max, v->is_counter};
        VEC_PUSH(p->t, p->symbol, p->seen.nsymbol, p->cap_symbol, symbol);
        *at = p->seen.nsymbol;
    }
    return *at - 1;
}

static int put(struct coder *c, const char *op, enum dtype d, int64_t i, const int *src, int nsrc)
{
    tgc_uop u = {.op = op, .dtype = dtype_name(d), .i = i, .nsrc = nsrc};
    u.src = nsrc ? mem_copy(c->p->t, src, (size_t)nsrc * sizeof *src) : NULL;
    VEC_PUSH(c->p->t, c->uop, c->n, c->cap, u);
    return c->n - 1;
}

static void set_position(struct coder *c, const struct uop *u, int at)
{
    map_set(&c->at, u, (void *)((intptr_t)at + 1));
}

static int position(const struct coder *c, const struct uop *u)
{
    intptr_t at = (intptr_t)map_get(&c->at, u);
    if (!at)
        TGC_BUG(c->p->t, "%s is used before its position", op_name(u->op));
    return (int)at - 1;
}

static bool is_leaf(const struct uop *u)
{
    return op_class(u->op) == CLASS_LEAF || u->op == OP_STAGE;
}

static void put_leaf(struct coder *c, const struct uop *u)
{
    int at;
    if (!is_leaf(u) || map_get(&c->at, u))
        return;
    if (u->op == OP_CONST) {
        bool is_float = dtype_is_float(u->dtype);
        at = put(c, "const", u->dtype, is_float ? 0 : u->arg.i, NULL, 0);
        c->uop[at].f = is_float ? u->arg.f : 0;
    } else if (u->op == OP_VAR) {
        at = put(c, "var", u->dtype, symbol_number(c->p, u->arg.p), NULL, 0);
    } else {
        at = put(c, "buffer", DTYPE_VOID, buffer_number(c->p, uop_buffer_of(u)), NULL, 0);
    }
    set_position(c, u, at);
}

/* The element of an accumulator that is meant by the open lanes, row-major. */
static int put_element(struct coder *c, const struct uop *acc)
{
    enum dtype d = acc->nsrc > 1 ? acc->src[1]->dtype : DTYPE_I32;
    int at = acc->nsrc > 1 ? position(c, acc->src[1]) : put(c, "const", d, 0, NULL, 0);
    for (int k = 2; k < acc->nsrc; k++) {
        int size[] = {at, position(c, acc->src[k]->src[0])};
        int sum[] = {put(c, op_name(OP_MUL), d, ARG_PLAIN, size, 2), position(c, acc->src[k])};
        at = put(c, op_name(OP_ADD), d, ARG_PLAIN, sum, 2);
    }
    return at;
}

static void put_acc(struct coder *c, const struct uop *u)
{
    int64_t nelem = 1, size;
    int init = position(c, u->src[0]);
    for (int k = 1; k < u->nsrc; k++) {
        if (!uop_const_int(u->src[k]->src[0], &size))
            TGC_BUG(c->p->t, "an accumulator's lanes are not constant");
        nelem = sat_mul(nelem, size);
    }
    set_position(c, u, put(c, op_name(OP_ACC), u->dtype, nelem, &init, 1));
}

static int operand(struct coder *c, const struct uop *u)
{
    if (u->op != OP_ACC)
        return position(c, u);
    int src[] = {position(c, u), put_element(c, u)};
    return put(c, op_name(OP_LOAD), u->dtype, 0, src, 2);
}

static void put_assign(struct coder *c, const struct uop *u)
{
    int value = operand(c, u->src[1]);
    int src[] = {position(c, u->src[0]), put_element(c, u->src[0]), value};
    put(c, op_name(OP_STORE), DTYPE_VOID, 0, src, 3);
    set_position(c, u, value);
}

static bool has_value(const struct uop *u)
{
    return op_is_elementwise(u->op) || u->op == OP_LOAD || u->op == OP_RANGE;
}

static void put_uop(struct coder *c, const struct uop *u)
{
    struct tgc *t = c->p->t;
    bool is_known = has_value(u) || u->op == OP_STORE || u->op == OP_END || u->op == OP_GUARD ||
                    u->op == OP_ENDGUARD;
    if (is_leaf(u) || u->op == OP_SINK || u->op == OP_PREFETCH || u->op == OP_BARRIER ||
        u->op == OP_COMMIT || u->op == OP_WAIT)
        return;
    if (u->op == OP_ACC) {
        put_acc(c, u);
        return;
    }
    if (u->op == OP_ASSIGN) {
        put_assign(c, u);
        return;
    }
    if (!is_known || u->lanes > 1)
        TGC_BUG(t, "%s of %d lanes in a portable program", op_name(u->op), u->lanes);
    bool has_condition = u->op == OP_STORE && u->nsrc > 3 && u->src[3]->dtype == DTYPE_BOOL;
    int nsrc = u->op == OP_STORE ? 3 + has_condition : u->nsrc;
    int *src = mem_array(t, (size_t)nsrc + 1, sizeof *src);
    for (int k = 0; k < nsrc; k++)
        src[k] = operand(c, u->src[k]);
    int64_t plain = op_is_elementwise(u->op) ? u->arg.i & ARG_PLAIN : 0;
    enum dtype d = has_value(u) ? u->dtype : DTYPE_VOID;
    set_position(c, u, put(c, op_name(u->op), d, plain, src, nsrc));
}

static tgc_code code_of(struct program_copy *p, struct uop *const *u, int n)
{
    struct coder c = {.p = p, .at = {.t = p->t}};
    for (int i = 0; i < n; i++) {
        put_leaf(&c, u[i]);
        for (int k = 0; k < u[i]->nsrc; k++)
            put_leaf(&c, u[i]->src[k]);
    }
    for (int i = 0; i < n; i++)
        put_uop(&c, u[i]);
    return (tgc_code){c.uop, c.n};
}

/* Of an expression of the steps, whose value comes last. */
static tgc_code scalar_of(struct program_copy *p, struct uop *root)
{
    int n;
    struct mem_mark mark = scratch_mark(p->t);
    root = legal_scalar(p->t, root);
    struct uop **u = uop_toposort(p->t, &root, 1, &n);
    tgc_code code = code_of(p, u, n);
    scratch_release(p->t, mark);
    return code;
}

/* -------------------------------------------------------------------------------------- buffers */

/* A new place after all others. */
static size_t place_behind(struct program_copy *p, size_t nbytes)
{
    size_t offset, end;
    if (!size_align(p->seen.arena_bytes, 64, &offset) || !size_add(offset, nbytes, &end))
        TGC_BUG(p->t, "an arena that is too large");
    p->seen.arena_bytes = end;
    return offset;
}

static int port_of(struct buffer *const *port, int n, const struct buffer *b)
{
    for (int i = 0; i < n; i++)
        if (port[i] == b)
            return i;
    return 0;
}

static tgc_buffer place_of(struct program_copy *p, const struct buffer *b)
{
    const struct schedule *s = p->s;
    tgc_buffer r = {.place = TGC_IN_ARENA, .offset = b->offset};
    if (b->kind == BUFFER_WEIGHT)
        r.place = TGC_IN_WEIGHTS;
    else if (b->kind == BUFFER_INPUT)
        r = (tgc_buffer){.place = TGC_IN_INPUT, .index = port_of(s->input, s->ninput, b)};
    else if (b->kind == BUFFER_OUTPUT)
        r = (tgc_buffer){.place = TGC_IN_OUTPUT, .index = port_of(s->output, s->noutput, b)};
    else if (b->kind == BUFFER_SCRATCH && scratch_is_on_stack(b))
        r.offset = place_behind(p, b->nbytes);
    return r;
}

static int buffer_number(struct program_copy *p, const struct buffer *b)
{
    if (p->buffer_at[b->id])
        return p->buffer_at[b->id] - 1;
    struct uop *first = NULL;
    for (const struct buffer *of = b; of->base; of = of->base)
        if (of->base_offset)
            first = first ? sym_add(p->t, first, of->base_offset) : of->base_offset;
    tgc_buffer r = place_of(p, buffer_root(b));
    if (first && !uop_is_int(first, 0))
        r.first = scalar_of(p, first);
    r.dtype = dtype_name(b->dtype);
    r.element_bytes = dtype_nbytes(b->dtype);
    r.nbytes = b->nbytes;
    VEC_PUSH(p->t, p->buffer, p->seen.nbuffer, p->cap_buffer, r);
    return (p->buffer_at[b->id] = p->seen.nbuffer) - 1;
}

static const int *buffer_numbers(struct program_copy *p, struct buffer *const *b, int n)
{
    int *number = mem_array(p->t, (size_t)n + 1, sizeof *number);
    for (int i = 0; i < n; i++)
        number[i] = buffer_number(p, b[i]);
    return number;
}

static const tgc_port *copy_ports(struct program_copy *p, struct buffer *const *b, int n)
{
    tgc_port *port = mem_array(p->t, (size_t)n + 1, sizeof *port);
    for (int i = 0; i < n; i++) {
        int64_t *shape = mem_array(p->t, (size_t)b[i]->ndim + 1, sizeof *shape);
        tgc_code *dim = mem_array(p->t, (size_t)b[i]->ndim + 1, sizeof *dim);
        for (int a = 0; a < b[i]->ndim; a++) {
            shape[a] = b[i]->dim[a]->vmax > 0 ? b[i]->dim[a]->vmax : 0;
            dim[a] = scalar_of(p, b[i]->dim[a]);
        }
        port[i] = (tgc_port){b[i]->name, buffer_number(p, b[i]), b[i]->ndim, shape, dim};
    }
    return port;
}

/* ---------------------------------------------------------------------------- kernels and steps */

static bool copy_kernel(struct program_copy *p, struct kernel *k, tgc_kernel *to)
{
    kernel_own_programs(p->t, k);
    int *symbol = mem_array(p->t, (size_t)k->nvar + 1, sizeof *symbol);
    for (int i = 0; i < k->nvar; i++)
        symbol[i] = symbol_number(p, k->var[i]);
    *to = (tgc_kernel){.name = k->name, .title = k->title ? k->title : "", .flop = k->flop,
                       .buffer = buffer_numbers(p, k->buffer, k->nbuffer), .nbuffer = k->nbuffer,
                       .nwritten = k->noutput, .symbol = symbol, .nsymbol = k->nvar,
                       .code = code_of(p, k->linear, k->nlinear)};
    return check_code(p, to->code, to->title);
}

static bool copy_step(struct program_copy *p, const struct step *step, tgc_step *to)
{
    static const tgc_step_kind kind[] = {
        [STEP_KERNEL] = TGC_STEP_KERNEL,   [STEP_IF] = TGC_STEP_IF,
        [STEP_ELSE] = TGC_STEP_ELSE,       [STEP_ENDIF] = TGC_STEP_ENDIF,
        [STEP_LOOP] = TGC_STEP_LOOP,       [STEP_BREAK_UNLESS] = TGC_STEP_BREAK_UNLESS,
        [STEP_ENDLOOP] = TGC_STEP_ENDLOOP,
    };
    if (step->kind == STEP_HOST)
        return diag_error(p->t, &(struct place){.file = p->o->model},
                          "the model needs the host function %s(), which only tgc's own targets "
                          "call",
                          step->host->function);
    *to = (tgc_step){.kind = kind[step->kind]};
    const char *control = step->kind == STEP_IF ? op_name(OP_IF)
                          : step->kind == STEP_LOOP ? op_name(OP_LOOP) : NULL;
    if (control && !check_word(p, p->target->ops, "op", control, NULL))
        return false;
    if (step->kernel)
        to->kernel = step->kernel->index;
    if (step->counter)
        to->symbol = symbol_number(p, step->counter);
    if (step->cond || step->trip)
        to->code = scalar_of(p, step->cond ? step->cond : step->trip);
    return check_code(p, to->code, NULL);
}

static bool copy_program(struct program_copy *p)
{
    const struct schedule *s = p->s;
    struct tgc *t = p->t;
    tgc_step *step = mem_array(t, (size_t)s->nstep + 1, sizeof *step);
    tgc_kernel *kernel = mem_array(t, (size_t)s->nkernel + 1, sizeof *kernel);
    p->buffer_at = mem_array(t, (size_t)t->next_buffer + 1, sizeof *p->buffer_at);
    p->symbol_at = mem_array(t, (size_t)t->next_var + 1, sizeof *p->symbol_at);
    for (int i = 0; i < s->nvar; i++)
        symbol_number(p, s->var[i]);
    for (int i = 0; i < s->nstep; i++) /* before kernels: why a model is refused at all */
        if (!copy_step(p, &s->step[i], &step[i]))
            return false;
    for (int i = 0; i < s->nkernel; i++)
        if (!copy_kernel(p, s->kernel[i], &kernel[i]))
            return false;
    p->seen.input = copy_ports(p, s->input, p->seen.ninput = s->ninput);
    p->seen.output = copy_ports(p, s->output, p->seen.noutput = s->noutput);
    p->seen.step = step;
    p->seen.nstep = s->nstep;
    p->seen.kernel = kernel;
    p->seen.nkernel = s->nkernel;
    p->seen.buffer = p->buffer;
    p->seen.symbol = p->symbol;
    return true;
}

/* ---------------------------------------------------------------------------------------- calls */

/* What the caller asks for, and gets. */
struct asked { const tgc_target *target; struct program_copy *made; };

static bool check_target(struct tgc *t, const tgc_target *target, const struct options *o)
{
    const char *refused = o->target != TARGET_C ? "target"
                          : o->isa              ? "cpu"
                          : o->threads > 1      ? "threads"
                          : o->nstate           ? "state"
                                                : NULL;
    if (!target->version || strcmp(target->version, TGC_VERSION) != 0)
        return diag_error(t, NULL,
                          "the target '%.100s' was compiled with tgc_target.h of tgc %.50s, the "
                          "library is tgc %s; compile it with the header of this library",
                          target->name, target->version ? target->version : "(none)", TGC_VERSION);
    return !refused ||
           diag_error(t, NULL, "the option %s is for tgc's own targets, and '%.100s' is none",
                      refused, target->name);
}

static bool schedule_it(struct tgc *t, struct options *o, struct model *m, const char **name)
{
    o->isa = 1u << ISA_GENERIC;
    o->threads = 1;
    if (!model_load(t, o, m))
        return false;
    *name = o->name ? o->name : program_name(t, m->stem);
    return model_schedule(t, o, *name, m);
}

static void open_program(struct tgc *t, tgc_compiler *c, void *arg)
{
    struct asked *asked = arg;
    struct options o;
    struct model m;
    struct program_copy *p = MEM_NEW(t, struct program_copy);
    if (!api_options(t, c, COMMAND_COMPILE, "program.c", "--emit=c", &o) ||
        !check_target(t, asked->target, &o) || !schedule_it(t, &o, &m, &p->seen.name))
        return;
    p->t = t;
    p->s = m.schedule;
    p->o = &o;
    p->target = asked->target;
    p->seen.arena_bytes = m.schedule->arena_nbytes;
    p->seen.weights_bytes = m.schedule->weight_nbytes;
    if (copy_program(p))
        asked->made = p;
    p->o = NULL;
    p->target = NULL;
}

tgc_status tgc_program_open(tgc_compiler *c, const tgc_target *target, const tgc_program **p)
{
    struct asked asked = {.target = target};
    struct tgc *kept;
    if (p)
        *p = NULL;
    if (!p || !target || !target->name)
        return TGC_MISUSE;
    tgc_status status = api_call(c, open_program, &asked, &kept);
    if (kept)
        *p = &asked.made->seen;
    return status;
}

void tgc_program_free(const tgc_program *p)
{
    if (p)
        tgc_free(((const struct program_copy *)(const void *)p)->t);
}

tgc_status tgc_program_weights(const tgc_program *p, void *to)
{
    const struct program_copy *copy = (const void *)p;
    if (!copy || !to)
        return TGC_MISUSE;
    program_copy_weights(copy->s, to, false);
    return TGC_OK;
}
