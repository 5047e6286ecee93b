/* module.c - a schedule as a module: its kernels, and the function of a run. In this process a
 * kernel is the variant for the best instruction set that the machine has, in a file there may be
 * several (dispatch.c). */
#include "backends/llvm/machine.h"

#include <string.h>

static void diagnose(LLVMDiagnosticInfoRef info, void *context)
{
    const struct llvm *l = context;
    enum { ERROR = 0 };
    if (l->GetDiagInfoSeverity(info) != ERROR)
        return;
    char *text = l->GetDiagInfoDescription(info);
    diag_error(l->t, NULL, "LLVM %d: %s", l->version, text);
    l->DisposeMessage(text);
}

/* What a compile that ends early leaves to be disposed of. */
struct open_module {
    const struct llvm *l;
    LLVMContextRef context;
    LLVMModuleRef module;
    LLVMBuilderRef at;
};

static void dispose(void *what)
{
    const struct open_module *open = what;
    if (!open->context)
        return;
    open->l->DisposeBuilder(open->at);
    open->l->DisposeModule(open->module);
    open->l->ContextDispose(open->context);
}

void module_begin(struct emit *e, struct llvm *l, const struct llvm_machine *m, const char *name)
{
    struct open_module *open = MEM_NEW(l->t, struct open_module);
    e->name = name;
    e->held = held_add(l->t, dispose, open);
    e->context = l->ContextCreate();
    l->ContextSetDiagnosticHandler(e->context, diagnose, l);
    e->module = l->ModuleCreateWithNameInContext(name, e->context);
    e->at = l->CreateBuilderInContext(e->context);
    *open = (struct open_module){l, e->context, e->module, e->at};
    l->SetTarget(e->module, m->triple);
    l->SetModuleDataLayout(e->module, m->layout);
    e->arch = m->arch;
    e->cpu = m->cpu;
    e->features = m->features;
    e->isa = m->isa;
    e->swapped = m->swapped;
    e->is_linux = strstr(m->triple, "-linux") != NULL;
    e->i1 = l->IntTypeInContext(e->context, 1);
    e->i8 = l->IntTypeInContext(e->context, 8);
    e->i16 = l->IntTypeInContext(e->context, 16);
    e->i32 = l->IntTypeInContext(e->context, 32);
    e->i64 = l->IntTypeInContext(e->context, 64);
    e->f32 = l->FloatTypeInContext(e->context);
    e->f64 = l->DoubleTypeInContext(e->context);
    e->nothing = l->VoidTypeInContext(e->context);
    e->pointer = l->PointerType(e->i8, 0);
    e->layout = m->layout;
    e->size = l->IntPtrTypeInContext(e->context, m->layout);
    layout_begin(e);
}

void module_tables(struct emit *e)
{
    size_t n = (size_t)e->s->nkernel + 1;
    e->twin = twins_find(e->t, e->s);
    e->kernel = mem_array(e->t, n, sizeof *e->kernel);
    e->slot = mem_array(e->t, n, sizeof *e->slot);
    for (size_t i = 0; i < n; i++)
        e->slot[i] = -1;
}

value module_emit(struct emit *e, const char *function)
{
    const struct schedule *s = e->s;
    externals_declare(e);
    module_tables(e);
    for (int i = 0; i < s->nkernel; i++) {
        const struct kernel *k = s->kernel[i];
        if (e->twin[i] != k)
            continue;
        dispatch_emit(e, k);
        if (k->is_shared)
            emit_part(e, k, e->kernel[i]);
    }
    emit_run(e, function);
    value run = e->function;
    if (s->nstate && !program_training(s))
        emit_states(e);
    return run;
}

void module_check(const struct emit *e)
{
    char *message = NULL;
    enum { RETURN_STATUS = 2 };
    if (e->l->VerifyModule(e->module, RETURN_STATUS, &message))
        TGC_BUG(e->t, "LLVM %d refuses the module: %s", e->l->version, message);
    e->l->DisposeMessage(message);
}

void module_end(struct emit *e) { held_release(e->held); }
