/* threads.c - kernels that threads share, in LLVM's IR. A call's arguments are a task on the stack
 * of the run, and each thread calls a function of the kernel with it.
 *
 *      void share(self, body, task, i64 saves)  the program's own (program.c; in a file, pool.c):
 *                                               writes the number of parts into the task, runs
 *      void KERNEL.part(task, i32 part)         for part 0 to parts - 1, each in a thread
 *
 * A task, in words of 8 bytes: the number of parts, the kernel's function if the processor chooses
 * it (dispatch.c), then the kernel's arguments.
 */
#include "backends/llvm/emit.h"

enum { TASK_PARTS, TASK_FUNCTION, TASK_ARGUMENTS };

static value word_at(struct emit *e, value task, LLVMTypeRef type, int at)
{
    return load_as(e, type, pointer_at(e, task, e->i64, const_int(e, e->i64, at)), 8);
}

static void set_word(struct emit *e, value v, value task, int at)
{
    store_as(e, v, pointer_at(e, task, e->i64, const_int(e, e->i64, at)), 8);
}

static const char *part_name(const struct emit *e, const struct kernel *k)
{
    return mem_printf(e->t, "%s.part", k->name);
}

/* Begins the function: returns if there is no such part, since a caller's parallel_for
 * may count too far. */
static void check_part(struct emit *e, value part, value parts)
{
    LLVMBasicBlockRef none = block_new(e, "none"), some = block_new(e, "some");
    e->l->BuildCondBr(e->at, e->l->BuildICmp(e->at, LLVM_UGE, part, parts, ""), none, some);
    e->l->PositionBuilderAtEnd(e->at, none);
    e->l->BuildRetVoid(e->at);
    e->l->PositionBuilderAtEnd(e->at, some);
}

void emit_part(struct emit *e, const struct kernel *k, value kernel)
{
    int n;
    const struct parameter *a = kernel_parameters(e->t, k, &n);
    LLVMTypeRef type[2] = {e->pointer, e->i32};
    value *arg = mem_array(e->t, (size_t)n + 2, sizeof *arg);
    function_begin(e, part_name(e, k), e->l->FunctionType(e->nothing, type, 2, 0), true);
    value task = e->l->GetParam(e->function, 0);
    value part = cast_to(e, LLVM_SEXT, e->l->GetParam(e->function, 1), e->i64);
    value parts = word_at(e, task, e->i64, TASK_PARTS);
    check_part(e, part, parts);
    for (int i = 0; i < n; i++) {
        arg[i] = word_at(e, task, a[i].b ? e->pointer : e->i64, TASK_ARGUMENTS + i);
        if (a[i].b && a[i].at >= k->nbuffer) {       /* each thread has its own scratch */
            value stride = const_int(e, e->i64, (int64_t)scratch_stride(a[i].b));
            arg[i] = pointer_at(e, arg[i], e->i8, binary(e, LLVM_MUL, part, stride));
        }
    }
    arg[n] = part;
    arg[n + 1] = parts;
    if (e->slot[k->index] < 0)
        call(e, kernel, arg, n + 2);
    else
        kernel_call(e, k, word_at(e, task, e->pointer, TASK_FUNCTION), arg, n + 2);
    e->l->BuildRetVoid(e->at);
    function_end(e);
}

/* One place is enough for all tasks: the next kernel begins when this one is done. */
static value task_place(struct emit *e)
{
    int most = 0, n;
    for (int i = 0; i < e->s->nkernel && !e->task; i++)
        if (e->s->kernel[i]->is_shared) {
            kernel_parameters(e->t, e->s->kernel[i], &n);
            most = n > most ? n : most;
        }
    if (!e->task)
        e->task = on_stack(e, e->l->ArrayType(e->i64, (unsigned)(TASK_ARGUMENTS + most)));
    return e->task;
}

void emit_share(struct emit *e, value self, const struct kernel *k, value *arg, int n)
{
    LLVMTypeRef type[4] = {e->pointer, e->pointer, e->pointer, e->i64};
    const struct kernel *twin = e->twin[k->index];
    value f = e->l->GetNamedFunction(e->module, "share"), task = task_place(e);
    value part = e->l->GetNamedFunction(e->module, part_name(e, twin));
    if (!f)
        f = e->l->AddFunction(e->module, "share", e->l->FunctionType(e->nothing, type, 4, 0));
    for (int i = 0; i < n; i++)
        set_word(e, arg[i], task, TASK_ARGUMENTS + i);
    if (e->slot[twin->index] >= 0)
        set_word(e, dispatch_callee(e, self, twin), task, TASK_FUNCTION);
    call(e, f, (value[]){self, e->l->ConstBitCast(part, e->pointer), task,
                         const_int(e, e->i64, (int64_t)k->shared_ns)}, 4);
}
