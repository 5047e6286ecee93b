/* run.c - NAME_run() as a function: the steps of the schedule, the shapes of the outputs.
 *
 *      i32 NAME_run(self, in, out)      see layout.c
 *
 * The arguments were checked before (program.c). Each step begins with a call of step(self, index),
 * which is program.c's as well; threads share a kernel by threads.c; state.c has what is kept for
 * the next run.
 */
#include "backends/llvm/emit.h"

#include <string.h>

/* Few bytes of intermediates are on the stack (elements are vectors of 64 bytes for the alignment),
 * the others follow struct NAME. */
static value arena_begin(struct emit *e, value self)
{
    enum { ALIGN = 64 };
    size_t n = e->s->arena_nbytes;
    if (!program_is_on_stack(e->s))
        return pointer_at(e, self, e->i8,
                          const_i64(e, (int64_t)(program_head_bytes(e->s) + e->s->state_nbytes)));
    return on_stack(e, e->l->ArrayType(vector_of(e, e->i8, ALIGN), (unsigned)(n / ALIGN + 1)));
}

static void bind_buffers(struct emit *e, value self, value in, value out)
{
    const struct schedule *s = e->s;
    int at = 0;
    value arena = arena_begin(e, self);
    for (int i = 0; i < s->ninput; i++)
        e->place[s->input[i]->id] = field_load(e, e->inputs, in, i);
    for (int i = 0; i < s->noutput; i++) {
        const struct buffer *b = s->output[i];
        e->place[b->id] = field_load(e, e->outputs, out, at++);
        at += program_has_shape_field(b) ? b->ndim : 0;
    }
    for (int i = 0; i < s->nbuffer; i++)
        if (!s->buffer[i]->base)
            e->place[s->buffer[i]->id] =
                pointer_at(e, arena, e->i8, const_i64(e, (int64_t)s->buffer[i]->offset));
    for (int i = 0; i < s->nweight; i++)
        e->place[s->weight[i]->id] = weight_place(e, self, s->weight[i]);
}

/* Where each symbol's value is: in the inputs, or on the stack if the run finds it. */
static void bind_symbols(struct emit *e, value in)
{
    int at = e->s->ninput;
    for (int i = 0; i < e->s->nvar; i++) {
        const struct var *v = e->s->var[i];
        if (schedule_passes_var(e->s, v))
            e->var[v->id] = field_at(e, e->inputs, in, at++);
        else
            store_as(e, const_i64(e, 0), e->var[v->id] = on_stack(e, e->i64), 0);
    }
}

static void emit_host(struct emit *e, const struct step *step)
{
    const struct host_call *h = step->host;
    if (h->external) {
        emit_external(e, step);
        return;
    }
    const struct host_function *f = host_function_find(h->function);
    if (!f || step->narg != f->nin + f->nout || h->nparam != f->nparam || h->nresult != f->nresult)
        TGC_BUG(e->t, "the call of '%s' does not match ir/host.def", h->function);
    value *arg = mem_array(e->t, (size_t)(step->narg + h->nparam + h->nresult) + 1, sizeof *arg);
    int n = 0;
    for (int i = 0; i < step->narg; i++)
        arg[n++] = host_argument(e, step->arg[i]);
    for (int i = 0; i < h->nparam; i++)
        arg[n++] = host_scalar(e, h->param[i]);
    for (int i = 0; i < h->nresult; i++)
        arg[n++] = e->var[h->result[i]->id];
    value status = call_piece(e, h->function, e->i32, arg, n);
    return_if(e, e->l->BuildICmp(e->at, LLVM_NE, status, const_int(e, e->i32, PROGRAM_OK), ""),
              status);
    for (int i = 0; i < h->nresult; i++) {
        value r = load_as(e, e->i64, e->var[h->result[i]->id], 0);
        value most = const_i64(e, h->result[i]->max);
        return_if(e, e->l->BuildICmp(e->at, LLVM_UGT, r, most, ""),
                  const_int(e, e->i32, PROGRAM_TOO_MANY_RESULTS));
    }
}

static void emit_step_hook(struct emit *e, value self, int index)
{
    LLVMTypeRef type[2] = {e->pointer, e->i32};
    value f = e->l->GetNamedFunction(e->module, "step");
    if (!f)
        f = e->l->AddFunction(e->module, "step", e->l->FunctionType(e->nothing, type, 2, 0));
    call(e, f, (value[]){self, const_int(e, e->i32, index)}, 2);
}

static void emit_call(struct emit *e, value self, const struct kernel *k)
{
    int n;
    const struct parameter *a = kernel_parameters(e->t, k, &n);
    value *arg = mem_array(e->t, (size_t)n + 1, sizeof *arg);
    emit_step_hook(e, self, k->index);
    for (int i = 0; i < n; i++)
        arg[i] = a[i].b ? host_argument(e, a[i].b) : load_as(e, e->i64, e->var[a[i].v->id], 0);
    if (k->is_shared)
        emit_share(e, self, k, arg, n);
    else
        kernel_call(e, e->twin[k->index], dispatch_callee(e, self, e->twin[k->index]), arg, n);
}

/* ------------------------------------------------------------------------------------- control */

/* IF and ELSE: `other` is where the other side begins. */
struct branch { LLVMBasicBlockRef other, after; };

static void begin_loop(struct emit *e, const struct step *step)
{
    value end = host_scalar(e, step->trip);
    value counter = on_stack(e, e->i64);
    e->var[step->counter->id] = counter;
    loop_open(e, NULL, const_i64(e, 0), end, false);
    store_as(e, e->region[e->nregion - 1].counter, counter, 0);
}

static void break_unless(struct emit *e, const struct step *step)
{
    LLVMBasicBlockRef on = block_new(e, "on");
    e->l->BuildCondBr(e->at, host_scalar(e, step->cond), on, e->region[e->nregion - 1].exit);
    e->l->PositionBuilderAtEnd(e->at, on);
}

static void begin_if(struct emit *e, const struct step *step, struct branch *b)
{
    LLVMBasicBlockRef then = block_new(e, "then");
    *b = (struct branch){block_new(e, "else"), block_new(e, "endif")};
    e->l->BuildCondBr(e->at, host_scalar(e, step->cond), then, b->other);
    e->l->PositionBuilderAtEnd(e->at, then);
}

static void begin_else(struct emit *e, struct branch *b)
{
    e->l->BuildBr(e->at, b->after);
    e->l->PositionBuilderAtEnd(e->at, b->other);
    b->other = NULL;
}

static void end_if(struct emit *e, struct branch *b)
{
    if (b->other)
        begin_else(e, b);
    e->l->BuildBr(e->at, b->after);
    e->l->PositionBuilderAtEnd(e->at, b->after);
}

static void emit_steps(struct emit *e, value self)
{
    struct branch *open = NULL;
    int n = 0;
    size_t cap = 0;
    for (int i = 0; i < e->s->nstep; i++) {
        const struct step *step = &e->s->step[i];
        struct branch b;
        debug_step(e, step);
        /* what was computed in a branch, or from what a kernel changed, is not known any more */
        e->known = (struct uop_map){.t = e->t, .scratch = true};
        switch (step->kind) {
        case STEP_KERNEL: emit_call(e, self, step->kernel); break;
        case STEP_HOST: emit_host(e, step); break;
        case STEP_IF:
            begin_if(e, step, &b);
            VEC_PUSH(e->t, open, n, cap, b);
            break;
        case STEP_ELSE: begin_else(e, &open[n - 1]); break;
        case STEP_ENDIF: end_if(e, &open[--n]); break;
        case STEP_LOOP: begin_loop(e, step); break;
        case STEP_BREAK_UNLESS: break_unless(e, step); break;
        case STEP_ENDLOOP: loop_close(e); break;
        }
    }
}

static void emit_shapes(struct emit *e, value out)
{
    int at = 0;
    e->known = (struct uop_map){.t = e->t, .scratch = true};
    for (int i = 0; i < e->s->noutput; i++) {
        const struct buffer *b = e->s->output[i];
        at++;
        for (int a = 0; a < b->ndim && program_has_shape_field(b); a++)
            store_as(e, host_scalar(e, b->dim[a]), field_at(e, e->outputs, out, at++), 0);
    }
}

static int id_after(int n, const struct buffer *b) { return b->id >= n ? b->id + 1 : n; }

static int buffer_ids(const struct schedule *s)
{
    int n = 0;
    for (int i = 0; i < s->nbuffer; i++)
        n = id_after(n, s->buffer[i]);
    for (int i = 0; i < s->nweight; i++)
        n = id_after(n, s->weight[i]);
    for (int i = 0; i < s->ninput; i++)
        n = id_after(n, s->input[i]);
    for (int i = 0; i < s->noutput; i++)
        n = id_after(n, s->output[i]);
    for (int i = 0; i < s->nstate; i++)
        n = id_after(id_after(n, s->state[i]->in), s->state[i]->out);
    for (int i = 0; i < s->npart; i++)
        n = id_after(n, s->part[i]->out);
    return n;
}

static int var_ids(const struct schedule *s)
{
    int n = 0;
    for (int i = 0; i < s->nvar; i++)
        n = s->var[i]->id >= n ? s->var[i]->id + 1 : n;
    for (int i = 0; i < s->nstep; i++)
        if (s->step[i].counter && s->step[i].counter->id >= n)
            n = s->step[i].counter->id + 1;
    return n;
}

void emit_run(struct emit *e, const char *name)
{
    LLVMTypeRef type[3] = {e->pointer, e->pointer, e->pointer};
    e->k = NULL;
    function_begin(e, name, e->l->FunctionType(e->i32, type, 3, 0), false);
    value self = e->l->GetParam(e->function, 0), out = e->l->GetParam(e->function, 2);
    e->place = mem_array(e->t, (size_t)buffer_ids(e->s) + 1, sizeof *e->place);
    e->var = mem_array(e->t, (size_t)var_ids(e->s) + 1, sizeof *e->var);
    debug_run(e, name);
    bind_buffers(e, self, e->l->GetParam(e->function, 1), out);
    bind_symbols(e, e->l->GetParam(e->function, 1));
    state_begin_run(e, self);
    emit_steps(e, self);
    emit_shapes(e, out);
    state_end_run(e, self);
    emit_step_hook(e, self, -1);
    e->l->BuildRet(e->at, const_int(e, e->i32, PROGRAM_OK));
    function_end(e);
    debug_leave(e);
}
