/* layout.c - the structs that callers share with a program, as LLVM's types: NAME_inputs,
 * NAME_outputs, NAME_options and struct NAME. LLVM knows size and alignment of each field on the
 * module's machine, so other files count fields, not bytes.
 *
 *      NAME_inputs     a pointer for each input, then an i64 for each dimension that the caller
 *                      passes;
 *      NAME_outputs    a pointer for each output, followed by its shape if a run finds that;
 *      struct NAME     itself if it is open, NAME_options, the table of kernels (dispatch.c),
 *                      parts (pool.c).
 *
 * A training's inputs and outputs are those of all entries: NAME_all_inputs, NAME_all_outputs.
 */
#include "backends/llvm/emit.h"

static LLVMTypeRef struct_of(const struct emit *e, LLVMTypeRef *field, int n)
{
    return e->l->StructTypeInContext(e->context, field, (unsigned)n, 0);
}

static LLVMTypeRef inputs_type(const struct emit *e)
{
    const struct schedule *s = e->s;
    LLVMTypeRef *field = mem_array(e->t, (size_t)s->ninput + (size_t)s->nvar + 1, sizeof *field);
    int n = 0;
    while (n < s->ninput)
        field[n++] = e->pointer;
    for (int i = 0; i < s->nvar; i++)
        if (schedule_passes_var(s, s->var[i]))
            field[n++] = e->i64;
    return struct_of(e, field, n);
}

static LLVMTypeRef outputs_type(const struct emit *e)
{
    LLVMTypeRef *field = NULL;
    int n = 0;
    size_t cap = 0;
    for (int i = 0; i < e->s->noutput; i++) {
        const struct buffer *b = e->s->output[i];
        VEC_PUSH(e->t, field, n, cap, e->pointer);
        for (int a = 0; a < b->ndim && program_has_shape_field(b); a++)
            VEC_PUSH(e->t, field, n, cap, e->i64);
    }
    return struct_of(e, field, n);
}

void layout_begin(struct emit *e)
{
    LLVMTypeRef head[HEAD_NFIELD];
    for (int i = 0; i < HEAD_NFIELD; i++)
        head[i] = i == HEAD_THREADS || i == HEAD_PARTS || i == HEAD_RANKS || i == HEAD_RANK
                      ? e->i32
                  : i == HEAD_WEIGHTS_NBYTES           ? e->size
                                                       : e->pointer;
    e->head = struct_of(e, head, HEAD_NFIELD);
    if (e->l->ABISizeOfType(e->layout, e->head) > program_team_offset())
        TGC_BUG(e->t, "the threads begin within the program's struct");
    e->options = struct_of(e, head + HEAD_THREADS, HEAD_KERNELS - HEAD_THREADS);
    e->inputs = inputs_type(e);
    e->outputs = outputs_type(e);
}

value field_at(const struct emit *e, LLVMTypeRef type, value s, int field)
{
    value typed = e->l->BuildBitCast(e->at, s, e->l->PointerType(type, 0), "");
    value p = e->l->BuildStructGEP2(e->at, type, typed, (unsigned)field, "");
    return e->l->BuildBitCast(e->at, p, e->pointer, "");
}

value field_load(const struct emit *e, LLVMTypeRef type, value s, int field)
{
    return load_as(e, e->l->StructGetTypeAtIndex(type, (unsigned)field),
                   field_at(e, type, s, field), 0);
}
