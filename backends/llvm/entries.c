/* entries.c - the function of one entry: NAME_ENTRY_run() over NAME_run(), whose structs have the
 * tensors of all entries and the number of the one that runs. backends/program/entries.c writes the
 * same in C.
 */
#include "backends/llvm/emit.h"

/* A field of the entry's struct, and where it is in that of all entries. */
struct field { LLVMTypeRef type; int all; };
struct fields { struct field *v; int n; size_t cap; };

static void add(const struct emit *e, struct fields *f, LLVMTypeRef type, size_t offset)
{
    VEC_PUSH(e->t, f->v, f->n, f->cap, ((struct field){type, field_of(offset)}));
}

/* Pointers, then the sizes that all entries share. */
static struct fields inputs_of(const struct emit *e, const struct program_info *info,
                               const struct program_entry *x)
{
    struct fields f = {0};
    for (int i = 0; i < x->input_count; i++)
        add(e, &f, e->pointer, info->inputs[x->input + i].offset);
    for (int i = 0; i < info->symbol_count; i++) {
        size_t at = info->symbols[i].offset;
        if (at != PROGRAM_NO_OFFSET && at != info->entry_offset)
            add(e, &f, e->i64, at);
    }
    return f;
}

/* Each pointer, followed by its shape if a run finds that. */
static struct fields outputs_of(const struct emit *e, const struct program_info *info,
                                const struct program_entry *x)
{
    struct fields f = {0};
    for (int i = 0; i < x->output_count; i++) {
        const struct program_tensor *b = &info->outputs[x->output + i];
        add(e, &f, e->pointer, b->offset);
        for (int a = 0; a < b->rank && b->shape_offset != PROGRAM_NO_OFFSET; a++)
            add(e, &f, e->i64, b->shape_offset + 8 * (size_t)a);
    }
    return f;
}

static LLVMTypeRef struct_of(const struct emit *e, const struct fields *f)
{
    LLVMTypeRef *type = mem_array(e->t, (size_t)f->n + 1, sizeof *type);
    for (int i = 0; i < f->n; i++)
        type[i] = f->v[i].type;
    return e->l->StructTypeInContext(e->context, type, (unsigned)f->n, 0);
}

/* From the entry's struct to that of all, or back; of pointers or of sizes alone
 * where type is given. */
static void copy(struct emit *e, const struct fields *f, LLVMTypeRef all_type, value all, value own,
                 bool back, LLVMTypeRef type)
{
    LLVMTypeRef own_type = struct_of(e, f);
    for (int i = 0; i < f->n; i++) {
        int at = f->v[i].all;
        if (type && f->v[i].type != type)
            continue;
        if (back)
            store_as(e, field_load(e, all_type, all, at), field_at(e, own_type, own, i), 0);
        else
            store_as(e, field_load(e, own_type, own, i), field_at(e, all_type, all, at), 0);
    }
}

static value zeroed(struct emit *e, LLVMTypeRef type)
{
    value place = on_stack(e, type);
    store_as(e, e->l->ConstNull(type), place, 0);
    return place;
}

/* int NAME_ENTRY_run(NAME *self, const NAME_ENTRY_inputs *in, NAME_ENTRY_outputs *out) */
void entries_emit(struct emit *e, const struct program_info *info, int entry, const char *name)
{
    const struct program_entry *x = &info->entries[entry];
    LLVMTypeRef type[3] = {e->pointer, e->pointer, e->pointer};
    struct fields in = inputs_of(e, info, x), out = outputs_of(e, info, x);
    function_begin(e, mem_printf(e->t, "%s_run", name), e->l->FunctionType(e->i32, type, 3, 0),
                   false);
    extend_function(e, e->function, e->i32);
    value self = e->l->GetParam(e->function, 0), given = e->l->GetParam(e->function, 1),
          taken = e->l->GetParam(e->function, 2);
    return_if(e, is_null(e, given), const_status(e, PROGRAM_NULL_ARGUMENT));
    return_if(e, is_null(e, taken), const_status(e, PROGRAM_NULL_ARGUMENT));
    value all_in = zeroed(e, e->inputs), all_out = zeroed(e, e->outputs);
    copy(e, &in, e->inputs, all_in, given, false, NULL);
    copy(e, &out, e->outputs, all_out, taken, false, e->pointer);
    store_as(e, const_i64(e, entry), field_at(e, e->inputs, all_in, field_of(info->entry_offset)),
             0);
    value run = e->l->GetNamedFunction(e->module, mem_printf(e->t, "%s_run", e->name));
    value status = call(e, run, (value[]){self, all_in, all_out}, 3);
    copy(e, &out, e->outputs, all_out, taken, true, e->i64);
    e->l->BuildRet(e->at, status);
    function_end(e);
}
