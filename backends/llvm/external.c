/* external.c - C functions of the user's (docs/custom-operators.md) in LLVM's IR: their
 * declarations, which stand first, so that no other function takes their names, and their calls in
 * the run. The signature is the one that backends/program/external.c writes into NAME.h.
 */
#include "backends/llvm/emit.h"

#include <string.h>

void externals_declare(struct emit *e)
{
    const struct host_call *h;
    for (int step = 0; (h = schedule_next_external(e->s, &step));) {
        const struct external *x = h->external;
        LLVMTypeRef *type = mem_array(e->t, 2 * (size_t)x->nargument + 1, sizeof *type);
        unsigned n = 0;
        for (int i = 0; i < x->nargument; i++)
            switch (x->argument[i].kind) {
            case EXTERNAL_INT: type[n++] = e->i64; break;
            case EXTERNAL_FLOAT: type[n++] = e->f32; break;
            case EXTERNAL_STRING: type[n++] = e->pointer; break;
            case EXTERNAL_OPERAND: case EXTERNAL_RESULT:
                type[n++] = e->pointer;
                type[n++] = e->pointer;
                break;
            case EXTERNAL_INTS: case EXTERNAL_FLOATS: case EXTERNAL_SCRATCH:
                type[n++] = e->pointer;
                type[n++] = e->size;
                break;
            }
        value f = e->l->AddFunction(e->module, x->symbol, e->l->FunctionType(e->i32, type, n, 0));
        extend_function(e, f, e->i32);
    }
}

static value as_pointer(struct emit *e, value v)
{
    return e->l->BuildBitCast(e->at, v, e->pointer, "");
}

static value shape(struct emit *e, struct uop *const *size, int n)
{
    if (n == 0)
        return const_null(e);
    value place = as_pointer(e, on_stack(e, e->l->ArrayType(e->i64, (unsigned)n)));
    for (int i = 0; i < n; i++)
        store_as(e, host_scalar(e, size[i]),
                 pointer_at(e, place, e->i64, const_int(e, e->i64, i)), 0);
    return place;
}

static value list(struct emit *e, const struct external_value *v)
{
    value *item = mem_array(e->t, (size_t)v->nitem + 1, sizeof *item);
    for (int i = 0; i < v->nitem; i++)
        item[i] = v->ints ? const_int(e, e->i64, v->ints[i])
                          : e->l->ConstReal(e->f32, v->floats[i]);
    return v->nitem ? constant_table(e, item, v->nitem, "") : const_null(e);
}

static value string(struct emit *e, const char *s)
{
    value text = e->l->ConstStringInContext(e->context, s, (unsigned)strlen(s), 0);
    value g = e->l->AddGlobal(e->module, e->l->TypeOf(text), "");
    e->l->SetInitializer(g, text);
    e->l->SetGlobalConstant(g, 1);
    e->l->SetLinkage(g, LLVM_PRIVATE);
    return e->l->ConstBitCast(g, e->pointer);
}

void emit_external(struct emit *e, const struct step *step)
{
    const struct host_call *h = step->host;
    const struct external *x = h->external;
    value *arg = mem_array(e->t, 2 * (size_t)x->nargument + 1, sizeof *arg);
    int n = 0, buffer = 0, param = 0;
    for (int i = 0; i < x->nargument; param += external_params(h, i), i++) {
        const struct external_argument *a = &x->argument[i];
        const struct external_value *v = &h->value[i];
        switch (a->kind) {
        case EXTERNAL_OPERAND: case EXTERNAL_RESULT:
            arg[n++] =
                v->absent ? const_null(e) : as_pointer(e, host_argument(e, step->arg[buffer++]));
            arg[n++] = shape(e, h->param + param, external_params(h, i));
            break;
        case EXTERNAL_INT: arg[n++] = host_scalar(e, h->param[param]); break;
        case EXTERNAL_FLOAT: arg[n++] = e->l->ConstReal(e->f32, v->f); break;
        case EXTERNAL_STRING: arg[n++] = string(e, v->s); break;
        case EXTERNAL_INTS: case EXTERNAL_FLOATS:
            arg[n++] = list(e, v);
            arg[n++] = const_int(e, e->size, v->nitem);
            break;
        case EXTERNAL_SCRATCH:
            arg[n++] = as_pointer(e, host_argument(e, step->arg[buffer++]));
            arg[n++] = cast_to(e, LLVM_TRUNC, host_scalar(e, h->param[param]), e->size);
            break;
        }
    }
    value status = call(e, e->l->GetNamedFunction(e->module, x->symbol), arg, n);
    return_if(e, e->l->BuildICmp(e->at, LLVM_NE, status, const_int(e, e->i32, PROGRAM_OK), ""),
              status);
}
