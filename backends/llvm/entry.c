/* entry.c - builds the public functions of NAME.h in LLVM's IR: NAME_init(), NAME_run(), which
 * checks its arguments, NAME_close(), NAME_strerror(), NAME_describe(). Weights are constants of
 * the module.
 *
 * They do what backends/program/ writes as C, by the same structs, which layout.c has. Of a
 * training, the functions of its entries are that C: NAME_train() and the like, NAME_describe().
 */
#include "backends/llvm/emit.h"

#include <string.h>

static value size(const struct emit *e, size_t v) { return const_int(e, e->size, (int64_t)v); }

/* ------------------------------------------------------------------------------------ constants */

/* s NULL: a null pointer */
static value string(const struct emit *e, const char *s)
{
    if (!s)
        return const_null(e);
    value g =
        constant_data(e, e->l->ConstStringInContext(e->context, s, (unsigned)strlen(s), 0), "");
    e->l->SetLinkage(g, LLVM_PRIVATE);
    return constant_address(e, g);
}

static value record(const struct emit *e, value *field, size_t n)
{
    return e->l->ConstStructInContext(e->context, field, (unsigned)n, 0);
}
#define RECORD(e, ...)                                                                             \
    record(e, (value[]){__VA_ARGS__}, sizeof(value[]){__VA_ARGS__} / sizeof(value))

/* The address of n records; none: a null pointer. */
static value table(const struct emit *e, value *row, int n)
{
    if (n == 0)
        return const_null(e);
    value g = constant_data(e, e->l->ConstArray(e->l->TypeOf(row[0]), row, (unsigned)n), "");
    e->l->SetLinkage(g, LLVM_PRIVATE);
    return constant_address(e, g);
}

/* ------------------------------------------------------------------------------------- describe */

static value dims(const struct emit *e, const struct program_dim *dim, int n)
{
    value *row = mem_array(e->t, (size_t)n + 1, sizeof *row);
    for (int i = 0; i < n; i++)
        row[i] = RECORD(e, const_i64(e, dim[i].size), string(e, dim[i].symbol));
    return table(e, row, n);
}

static value offset(const struct emit *e, LLVMTypeRef type, size_t here)
{
    if (here == PROGRAM_NO_OFFSET)
        return size(e, here);
    return size(e, (size_t)e->l->OffsetOfElement(e->layout, type, (unsigned)field_of(here)));
}

static value size_of(const struct emit *e, LLVMTypeRef type)
{
    return size(e, (size_t)e->l->ABISizeOfType(e->layout, type));
}

static value tensor(const struct emit *e, const struct program_tensor *x, value offset,
                    value shape_offset)
{
    return RECORD(e, string(e, x->name), string(e, x->dtype), size(e, x->element_bytes),
                  const_int(e, e->i32, x->rank), dims(e, x->dim, x->rank), offset, shape_offset);
}

static value tensors(const struct emit *e, LLVMTypeRef type, const struct program_tensor *x, int n)
{
    value *row = mem_array(e->t, (size_t)n + 1, sizeof *row);
    for (int i = 0; i < n; i++)
        row[i] = tensor(e, &x[i], offset(e, type, x[i].offset), offset(e, type, x[i].shape_offset));
    return table(e, row, n);
}

static value entries(const struct emit *e, const struct program_entry *x, int n)
{
    value *row = mem_array(e->t, (size_t)n + 1, sizeof *row);
    for (int i = 0; i < n; i++)
        row[i] = RECORD(e, string(e, x[i].name), const_int(e, e->i32, x[i].input),
                        const_int(e, e->i32, x[i].input_count), const_int(e, e->i32, x[i].output),
                        const_int(e, e->i32, x[i].output_count));
    return table(e, row, n);
}

static value slices(const struct emit *e, const struct program_slice *x, int n)
{
    value *row = mem_array(e->t, (size_t)n + 1, sizeof *row);
    for (int i = 0; i < n; i++)
        row[i] = RECORD(e, string(e, x[i].name), const_int(e, e->i32, x[i].output),
                        size(e, x[i].begin), size(e, x[i].size));
    return table(e, row, n);
}

static value meta(const struct emit *e, const struct program_meta *x, int n)
{
    value *row = mem_array(e->t, (size_t)n + 1, sizeof *row);
    for (int i = 0; i < n; i++)
        row[i] = RECORD(e, string(e, x[i].key), string(e, x[i].value));
    return table(e, row, n);
}

/* Offsets in a block are the same on all machines. */
static value states(const struct emit *e, const struct program_state *x, int n)
{
    value *row = mem_array(e->t, (size_t)n + 1, sizeof *row);
    for (int i = 0; i < n; i++) {
        const struct program_tensor *input = &x[i].input;
        row[i] = RECORD(e, string(e, x[i].from),
                        tensor(e, input, size(e, input->offset), size(e, input->shape_offset)),
                        const_int(e, e->i32, x[i].axis), size(e, x[i].length_offset));
    }
    return table(e, row, n);
}

static value feeds(const struct emit *e, const struct program_info *info)
{
    int n = info->input_count + info->state_count;
    value *row = mem_array(e->t, (size_t)n + 1, sizeof *row);
    for (int i = 0; i < n; i++) {
        const struct program_feed *x = &info->feeds[i];
        int rank = i < info->input_count ? info->inputs[i].rank
                                         : info->states[i - info->input_count].input.rank;
        value rule[MAX_RANK];
        for (int a = 0; a < rank; a++)
            rule[a] = string(e, x->rule[a]);
        row[i] = RECORD(e, table(e, rule, rank), const_i64(e, x->least), const_i64(e, x->most));
    }
    return table(e, row, n);
}

static value symbols(const struct emit *e, const struct program_symbol *x, int n)
{
    value *row = mem_array(e->t, (size_t)n + 1, sizeof *row);
    for (int i = 0; i < n; i++)
        row[i] = RECORD(e, string(e, x[i].name), const_i64(e, x[i].min), const_i64(e, x[i].max),
                        offset(e, e->inputs, x[i].offset));
    return table(e, row, n);
}

static value kernels(const struct emit *e, const struct program_kernel *x, int n)
{
    value *row = mem_array(e->t, (size_t)n + 1, sizeof *row);
    for (int i = 0; i < n; i++)
        row[i] = RECORD(e, string(e, x[i].name), string(e, x[i].title),
                        e->l->ConstReal(e->f64, x[i].flop), e->l->ConstReal(e->f64, x[i].bytes));
    return table(e, row, n);
}

/* struct program_info, field by field. */
static value info_record(const struct emit *e, const struct program_info *i)
{
    return RECORD(
        e, const_int(e, e->i32, i->version), string(e, i->name), string(e, i->producer),
        string(e, i->target), const_int(e, e->i32, i->input_count),
        const_int(e, e->i32, i->output_count), const_int(e, e->i32, i->symbol_count),
        const_int(e, e->i32, i->kernel_count), tensors(e, e->inputs, i->inputs, i->input_count),
        tensors(e, e->outputs, i->outputs, i->output_count),
        symbols(e, i->symbols, i->symbol_count), kernels(e, i->kernels, i->kernel_count),
        size(e, i->arena_bytes), size(e, i->arena_align), size(e, i->weights_bytes),
        const_int(e, e->i32, i->weights_external), e->l->ConstReal(e->f64, i->flop),
        size_of(e, e->inputs), size_of(e, e->outputs), size(e, i->stack_bytes),
        const_int(e, e->i32, i->state_count), states(e, i->states, i->state_count),
        size(e, i->state_bytes), const_int(e, e->i32, i->entry_count),
        entries(e, i->entries, i->entry_count), offset(e, e->inputs, i->entry_offset),
        const_int(e, e->i32, i->slice_count), const_int(e, e->i32, i->meta_count),
        slices(e, i->slices, i->slice_count), meta(e, i->meta, i->meta_count), feeds(e, i));
}

/* -------------------------------------------------------------------------------------- weights */

static void weights(const struct emit *e)
{
    enum { ALIGN = 64 };
    size_t n = e->s->weight_nbytes;
    unsigned char *bytes = mem_alloc(e->t, n + 1);
    program_copy_weights(e->s, bytes, e->swapped);
    value g = constant_data(
        e, e->l->ConstStringInContext(e->context, (const char *)bytes, (unsigned)n, 1), "weights");
    e->l->SetAlignment(g, ALIGN);
}

/* The C beside a training's object reads the weights, too. */
static void share_weights(const struct emit *e)
{
    const char *name = mem_printf(e->t, "%s_weights_data", e->name);
    value g = e->l->GetNamedGlobal(e->module, "weights");
    if (!g)
        return;
    e->l->SetLinkage(g, LLVM_EXTERNAL);
    e->l->SetVisibility(g, LLVM_HIDDEN);
    e->l->SetValueName2(g, name, strlen(name));
}

void entry_strings(const struct emit *e)
{
    for (int i = 0; i < e->s->nweight; i++) {
        const struct buffer *b = e->s->weight[i];
        if (b->dtype != DTYPE_STRING || b->weight.same)
            continue;
        const char *const *s = b->weight.data;
        size_t n = b->nbytes / dtype_nbytes(b->dtype);
        value *row = mem_array(e->t, n + 1, sizeof *row);
        for (size_t k = 0; k < n; k++)
            row[k] = string(e, s[k]);
        constant_data(e, e->l->ConstArray(e->pointer, row, (unsigned)n),
             mem_printf(e->t, "strings_%d", b->id));
    }
}

/* ------------------------------------------------------------------------------------ functions */

/* A field of struct NAME. */
static value head(struct emit *e, value self, int field)
{
    return field_load(e, e->head, self, field);
}

static void set_head(struct emit *e, value self, int field, value v)
{
    store_as(e, v, field_at(e, e->head, self, field), 0);
}

/* A field of NAME_options, by its number in struct NAME. */
static value option(struct emit *e, value options, int field)
{
    return field_load(e, e->options, options, field - HEAD_THREADS);
}

static void function(struct emit *e, const char *name, bool internal, LLVMTypeRef result,
                     LLVMTypeRef *type, unsigned n)
{
    function_begin(e, name, e->l->FunctionType(result, type, n, 0), internal);
    extend_function(e, e->function, result);
}

static value parameter(const struct emit *e, unsigned i) { return e->l->GetParam(e->function, i); }

static const char *public_name(const struct emit *e, const char *function)
{
    return mem_printf(e->t, "%s_%s", e->name, function);
}

/* step(self, index) calls the caller's on_kernel(); index -1: the run ends */
static void emit_step(struct emit *e, const struct program_info *info)
{
    LLVMTypeRef type[3] = {e->pointer, e->i32, e->pointer};
    function(e, "step", true, e->nothing, type, 2);
    value *name = mem_array(e->t, (size_t)info->kernel_count + 2, sizeof *name);
    for (int i = 0; i < info->kernel_count; i++)
        name[i] = string(e, info->kernels[i].name);
    name[info->kernel_count] = const_null(e);
    value names = table(e, name, info->kernel_count + 1);
    value index = parameter(e, 1), last = const_int(e, e->i32, info->kernel_count);
    value hook = head(e, parameter(e, 0), HEAD_ON_KERNEL);
    LLVMBasicBlockRef after = begin_when(e, e->l->BuildNot(e->at, is_null(e, hook), ""));
    index = choose(e, compare_ints(e, LLVM_SLT, index, const_int(e, e->i32, 0)), last, index);
    value at = pointer_at(e, names, e->pointer, cast_to(e, LLVM_ZEXT, index, e->i64));
    value arg[3] = {head(e, parameter(e, 0), HEAD_USER), index, load_as(e, e->pointer, at, 0)};
    call_hook(e, hook, type, arg, 3);
    begin_after(e, after);
    e->l->BuildRetVoid(e->at);
    function_end(e);
}

/* NULL for options is as options of zeros are. */
static value given_options(struct emit *e, value options)
{
    value zero = e->l->ConstNull(e->options);
    return choose(e, is_null(e, options), table(e, &zero, 1), options);
}

static void check_weights(struct emit *e, const struct program_info *info, value options)
{
    enum { ALIGN = 64 };
    value at = cast_to(e, LLVM_PTRTOINT, option(e, options, HEAD_WEIGHTS), e->size);
    value n = option(e, options, HEAD_WEIGHTS_NBYTES);
    value low = binary(e, LLVM_AND, at, size(e, ALIGN - 1));
    value missing = const_status(e, PROGRAM_MISSING_WEIGHTS);
    return_if(e, compare_ints(e, LLVM_EQ, at, size(e, 0)), missing);
    return_if(e, compare_ints(e, LLVM_NE, low, size(e, 0)), missing);
    return_if(e, compare_ints(e, LLVM_ULT, n, size(e, info->weights_bytes)), missing);
}

/* Of a training: there are parameters, and all blocks are aligned. */
static void check_blocks(struct emit *e, value options)
{
    value bad = const_status(e, PROGRAM_BAD_OPTIONS);
    return_if(e, is_null(e, option(e, options, HEAD_PARAMS)), bad);
    for (int i = HEAD_PARAMS; i <= HEAD_OPTIMIZER; i++) {
        value at = cast_to(e, LLVM_PTRTOINT, option(e, options, i), e->size);
        value low = binary(e, LLVM_AND, at, size(e, BLOCK_ALIGNMENT - 1));
        return_if(e, compare_ints(e, LLVM_NE, low, size(e, 0)), bad);
    }
}

/* int NAME_init(NAME **made, void *arena, size_t arena_bytes, const NAME_options *options) */
static void emit_init(struct emit *e, const struct program_info *info)
{
    LLVMTypeRef type[4] = {e->pointer, e->pointer, e->size, e->pointer};
    function(e, public_name(e, "init"), false, e->i32, type, 4);
    value made = parameter(e, 0), arena = parameter(e, 1);
    return_if(e, is_null(e, made), const_status(e, PROGRAM_NULL_ARGUMENT));
    store_as(e, const_null(e), made, 0);
    return_if(e, is_null(e, arena), const_status(e, PROGRAM_NULL_ARGUMENT));
    value low = binary(e, LLVM_AND, cast_to(e, LLVM_PTRTOINT, arena, e->size),
                       size(e, info->arena_align - 1));
    return_if(e, compare_ints(e, LLVM_NE, low, size(e, 0)),
              const_status(e, PROGRAM_ARENA_MISALIGNED));
    return_if(e, compare_ints(e, LLVM_ULT, parameter(e, 2), size(e, info->arena_bytes)),
              const_status(e, PROGRAM_ARENA_TOO_SMALL));
    value options = given_options(e, parameter(e, 3));
    return_if(e,
              compare_ints(e, LLVM_SLT, option(e, options, HEAD_THREADS), const_int(e, e->i32, 0)),
              const_status(e, PROGRAM_BAD_OPTIONS));
    if (info->weights_external)
        check_weights(e, info, options);
    const bool trains = program_training(e->s) != NULL;
    if (trains)
        check_blocks(e, options);
    set_head(e, arena, HEAD_OPENED, const_null(e));
    for (int i = HEAD_THREADS; i <= (trains ? HEAD_RANK : HEAD_USER); i++)
        set_head(e, arena, i, option(e, options, i));
    value kernels = dispatch_pick(e);
    if (kernels)
        set_head(e, arena, HEAD_KERNELS, kernels);
    if (program_threads(e->s) > 1)
        pool_open(e, arena);
    set_head(e, arena, HEAD_OPENED, arena);
    if (e->s->nstate && !trains)
        call(e, e->l->GetNamedFunction(e->module, mem_printf(e->t, "%s.begin", e->name)), &arena,
             1);
    store_as(e, arena, made, 0);
    e->l->BuildRet(e->at, const_status(e, PROGRAM_OK));
    function_end(e);
}

/* entry: the number of the one that runs; NULL: the model has none. Pointers of the
 * others are not read. */
static void check_fields(struct emit *e, const struct program_info *info, bool output, value s,
                         value entry)
{
    const struct program_tensor *x = output ? info->outputs : info->inputs;
    value missing = const_status(e, output ? PROGRAM_MISSING_OUTPUT : PROGRAM_MISSING_INPUT);
    for (int i = 0; i < (output ? info->output_count : info->input_count); i++) {
        value bad =
            is_null(e, field_load(e, output ? e->outputs : e->inputs, s, field_of(x[i].offset)));
        if (entry)
            bad = binary(
                e, LLVM_AND, bad,
                compare_ints(e, LLVM_EQ, entry, const_i64(e, program_entry_of(info, output, i))));
        return_if(e, bad, missing);
    }
}

/* int NAME_run(NAME *self, const NAME_inputs *in, NAME_outputs *out); of a training the function of
 * all entries, which the C beside it calls (training_write_glue()). */
static void emit_checked_run(struct emit *e, const struct program_info *info, value run)
{
    LLVMTypeRef type[3] = {e->pointer, e->pointer, e->pointer};
    if (program_training(e->s)) {
        function(e, program_piece_symbol(e->t, e->name, "run_entry"), false, e->i32, type, 3);
        e->l->SetVisibility(e->function, LLVM_HIDDEN);
    } else {
        function(e, public_name(e, "run"), false, e->i32, type, 3);
    }
    value arg[3] = {parameter(e, 0), parameter(e, 1), parameter(e, 2)};
    for (int i = 0; i < 3; i++)
        return_if(e, is_null(e, arg[i]), const_status(e, PROGRAM_NULL_ARGUMENT));
    return_if(e, compare_ints(e, LLVM_NE, head(e, arg[0], HEAD_OPENED), arg[0]),
              const_status(e, PROGRAM_NOT_INITIALIZED));
    value entry =
        info->entry_count ? field_load(e, e->inputs, arg[1], field_of(info->entry_offset)) : NULL;
    check_fields(e, info, false, arg[1], entry);
    check_fields(e, info, true, arg[2], entry);
    for (int i = 0; i < info->symbol_count; i++) {
        const struct program_symbol *v = &info->symbols[i];
        if (v->offset == PROGRAM_NO_OFFSET)
            continue;
        value size = field_load(e, e->inputs, arg[1], field_of(v->offset));
        value bad = const_status(e, PROGRAM_DIM_OUT_OF_RANGE);
        return_if(e, compare_ints(e, LLVM_SLT, size, const_i64(e, v->min)), bad);
        return_if(e, compare_ints(e, LLVM_SGT, size, const_i64(e, v->max)), bad);
    }
    e->l->BuildRet(e->at, call(e, run, arg, 3));
    function_end(e);
}

/* void NAME_close(NAME *self) */
static void emit_close(struct emit *e)
{
    function(e, public_name(e, "close"), false, e->nothing, &e->pointer, 1);
    LLVMBasicBlockRef after = begin_when(e, e->l->BuildNot(e->at, is_null(e, parameter(e, 0)), ""));
    if (program_threads(e->s) > 1)
        pool_close(e, parameter(e, 0));
    set_head(e, parameter(e, 0), HEAD_OPENED, const_null(e));
    begin_after(e, after);
    e->l->BuildRetVoid(e->at);
    function_end(e);
}

/* const char *NAME_strerror(int status) */
static void emit_strerror(struct emit *e)
{
    function(e, public_name(e, "strerror"), false, e->pointer, &e->i32, 1);
    value text = string(e, "unknown status");
#define STATUS(name, number, words)                                                                \
    text = choose(e, compare_ints(e, LLVM_EQ, parameter(e, 0), const_int(e, e->i32, number)),      \
                  string(e, words), text);
#define TRAINING_STATUS(name, number, words)                                                       \
    if (program_training(e->s))                                                                   \
        STATUS(name, number, words)
#define DEVICE_STATUS(name, number, words)                       /* of programs for devices */
#include "backends/program/statuses.def"
#undef STATUS
    e->l->BuildRet(e->at, text);
    function_end(e);
}

/* const struct NAME_info *NAME_describe(void) */
static void emit_describe(struct emit *e, const struct program_info *info)
{
    function(e, public_name(e, "describe"), false, e->pointer, NULL, 0);
    e->l->BuildRet(e->at, constant_address(e, constant_data(e, info_record(e, info), "info")));
    function_end(e);
}

void entry_begin(struct emit *e, const struct program_info *info)
{
    emit_step(e, info);
    if (program_threads(e->s) > 1)
        pool_emit_share(e);
    if (!info->weights_external)
        weights(e);
    entry_strings(e);
}

void entry_end(struct emit *e, const struct program_info *info, value run)
{
    e->l->SetLinkage(run, LLVM_INTERNAL);
    emit_init(e, info);
    emit_checked_run(e, info, run);
    emit_close(e);
    emit_strerror(e);
    if (program_training(e->s))
        share_weights(e);
    else
        emit_describe(e, info);
}
