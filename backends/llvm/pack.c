/* pack.c - a program in this process as bytes: what NAME_describe() returns and its objects,
 * without the weights; and back, without LLVM. */
#include "backends/llvm/bytes.h"
#include "backends/llvm/jit.h"

#include <string.h>

/* The least bytes that a record takes. */
enum {
    DIM_NBYTES = 16,
    TENSOR_NBYTES = 48,
    SYMBOL_NBYTES = 32,
    KERNEL_NBYTES = 32,
    STATE_NBYTES = 72,
    ENTRY_NBYTES = 40,
    SLICE_NBYTES = 32,
    META_NBYTES = 16
};

static void put_tensor(struct text *out, const struct program_tensor *x)
{
    bytes_put_string(out, x->name);
    bytes_put_string(out, x->dtype);
    bytes_put(out, x->element_bytes);
    bytes_put(out, (uint64_t)x->rank);
    for (int i = 0; i < x->rank; i++) {
        bytes_put(out, (uint64_t)x->dim[i].size);
        bytes_put_string(out, x->dim[i].symbol);
    }
    bytes_put(out, x->offset);
    bytes_put(out, x->shape_offset);
}

static void put_tensors(struct text *out, const struct program_tensor *x, int n)
{
    bytes_put(out, (uint64_t)n);
    for (int i = 0; i < n; i++)
        put_tensor(out, &x[i]);
}

static void put_slices(struct text *out, const struct program_info *info)
{
    bytes_put(out, (uint64_t)info->slice_count);
    for (int i = 0; i < info->slice_count; i++) {
        bytes_put_string(out, info->slices[i].name);
        bytes_put(out, (uint64_t)info->slices[i].output);
        bytes_put(out, info->slices[i].begin);
        bytes_put(out, info->slices[i].size);
    }
    bytes_put(out, (uint64_t)info->meta_count);
    for (int i = 0; i < info->meta_count; i++) {
        bytes_put_string(out, info->meta[i].key);
        bytes_put_string(out, info->meta[i].value);
    }
}

static const struct program_tensor *fed_tensor(const struct program_info *info, int i)
{
    return i < info->input_count ? &info->inputs[i] : &info->states[i - info->input_count].input;
}

static void put_feeds(struct text *out, const struct program_info *info)
{
    for (int i = 0; i < info->input_count + info->state_count; i++) {
        for (int a = 0; a < fed_tensor(info, i)->rank; a++)
            bytes_put_string(out, info->feeds[i].rule[a]);
        bytes_put(out, (uint64_t)info->feeds[i].least);
        bytes_put(out, (uint64_t)info->feeds[i].most);
    }
}

static void put_info(struct text *out, const struct program_info *info)
{
    bytes_put_string(out, info->name);
    bytes_put_string(out, info->producer);
    put_tensors(out, info->inputs, info->input_count);
    put_tensors(out, info->outputs, info->output_count);
    bytes_put(out, (uint64_t)info->symbol_count);
    for (int i = 0; i < info->symbol_count; i++) {
        bytes_put_string(out, info->symbols[i].name);
        bytes_put(out, (uint64_t)info->symbols[i].min);
        bytes_put(out, (uint64_t)info->symbols[i].max);
        bytes_put(out, info->symbols[i].offset);
    }
    bytes_put(out, (uint64_t)info->kernel_count);
    for (int i = 0; i < info->kernel_count; i++) {
        bytes_put_string(out, info->kernels[i].name);
        bytes_put_string(out, info->kernels[i].title);
        bytes_put_real(out, info->kernels[i].flop);
        bytes_put_real(out, info->kernels[i].bytes);
    }
    bytes_put(out, (uint64_t)info->state_count);
    for (int i = 0; i < info->state_count; i++) {
        bytes_put_string(out, info->states[i].from);
        put_tensor(out, &info->states[i].input);
        bytes_put(out, (uint64_t)(int64_t)info->states[i].axis);
        bytes_put(out, info->states[i].length_offset);
    }
    bytes_put(out, (uint64_t)info->entry_count);
    for (int i = 0; i < info->entry_count; i++) {
        const struct program_entry *x = &info->entries[i];
        const int number[] = {x->input, x->input_count, x->output, x->output_count};
        bytes_put_string(out, x->name);
        for (size_t k = 0; k < sizeof number / sizeof *number; k++)
            bytes_put(out, (uint64_t)number[k]);
    }
    put_slices(out, info);
    put_feeds(out, info);
    const size_t size[] = {info->arena_bytes,  info->arena_align,   info->weights_bytes,
                           info->inputs_bytes, info->outputs_bytes, info->stack_bytes,
                           info->state_bytes,  info->entry_offset};
    for (size_t i = 0; i < sizeof size / sizeof *size; i++)
        bytes_put(out, size[i]);
    bytes_put_real(out, info->flop);
}

void llvm_program_pack(struct text *out, const struct llvm_program *p)
{
    put_info(out, &p->info);
    bytes_put(out, (uint64_t)p->threads);
    bytes_put(out, (uint64_t)p->nobject);
    for (int i = 0; i < p->nobject; i++)
        bytes_put_data(out, p->object[i].bytes, p->object[i].nbytes);
}

/* -------------------------------------------------------------------------------------- reading */

static void get_tensor(struct byte_reader *r, struct program_tensor *x)
{
    x->name = bytes_get_string(r);
    x->dtype = bytes_get_string(r);
    x->element_bytes = bytes_get(r);
    x->rank = bytes_get_count(r, DIM_NBYTES);
    struct program_dim *dim = mem_array(r->t, (size_t)x->rank + 1, sizeof *dim);
    for (int i = 0; i < x->rank; i++) {
        dim[i].size = (int64_t)bytes_get(r);
        dim[i].symbol = bytes_get_string(r);
    }
    x->dim = x->rank ? dim : NULL;
    x->offset = bytes_get(r);
    x->shape_offset = bytes_get(r);
    r->is_bad |= !x->name || !x->dtype;
}

/* Is a field of nbytes within a struct of `limit` bytes? */
static bool is_field(size_t offset, size_t nbytes, size_t limit)
{
    return offset <= limit && nbytes <= limit - offset;
}

static const struct program_tensor *get_tensors(struct byte_reader *r, int *n)
{
    *n = bytes_get_count(r, TENSOR_NBYTES);
    struct program_tensor *x = mem_array(r->t, (size_t)*n + 1, sizeof *x);
    for (int i = 0; i < *n; i++)
        get_tensor(r, &x[i]);
    return x;
}

static void get_entries(struct byte_reader *r, struct program_info *info)
{
    info->entry_count = bytes_get_count(r, ENTRY_NBYTES);
    struct program_entry *entry = mem_array(r->t, (size_t)info->entry_count + 1, sizeof *entry);
    for (int i = 0; i < info->entry_count; i++) {
        struct program_entry *x = &entry[i];
        x->name = bytes_get_string(r);
        x->input = bytes_get_int(r, 0, info->input_count);
        x->input_count = bytes_get_int(r, 0, info->input_count - x->input);
        x->output = bytes_get_int(r, 0, info->output_count);
        x->output_count = bytes_get_int(r, 0, info->output_count - x->output);
        r->is_bad |= !x->name;
    }
    info->entries = info->entry_count ? entry : NULL;
}

static void get_slices(struct byte_reader *r, struct program_info *info)
{
    info->slice_count = bytes_get_count(r, SLICE_NBYTES);
    struct program_slice *slice = mem_array(r->t, (size_t)info->slice_count + 1, sizeof *slice);
    for (int i = 0; i < info->slice_count; i++) {
        slice[i].name = bytes_get_string(r);
        slice[i].output = bytes_get_int(r, 0, info->output_count - 1);
        slice[i].begin = bytes_get(r);
        slice[i].size = bytes_get(r);
        r->is_bad |= !slice[i].name;
    }
    info->slices = info->slice_count ? slice : NULL;
    info->meta_count = bytes_get_count(r, META_NBYTES);
    struct program_meta *meta = mem_array(r->t, (size_t)info->meta_count + 1, sizeof *meta);
    for (int i = 0; i < info->meta_count; i++) {
        meta[i].key = bytes_get_string(r);
        meta[i].value = bytes_get_string(r);
        r->is_bad |= !meta[i].key || !meta[i].value;
    }
    info->meta = info->meta_count ? meta : NULL;
}

/* needs: inputs, states and symbols */
static void get_feeds(struct byte_reader *r, struct program_info *info)
{
    int n = info->input_count + info->state_count;
    struct program_feed *feed = mem_array(r->t, (size_t)n + 1, sizeof *feed);
    for (int i = 0; i < n; i++) {
        int rank = fed_tensor(info, i)->rank;
        const char **rule = mem_array(r->t, (size_t)rank + 1, sizeof *rule);
        for (int a = 0; a < rank; a++)
            rule[a] = bytes_get_string(r);
        feed[i].rule = rank ? rule : NULL;
        feed[i].least = (int64_t)bytes_get(r);
        feed[i].most = (int64_t)bytes_get(r);
    }
    info->feeds = feed;
}

static void get_tables(struct byte_reader *r, struct program_info *info)
{
    info->inputs = get_tensors(r, &info->input_count);
    info->outputs = get_tensors(r, &info->output_count);
    info->symbol_count = bytes_get_count(r, SYMBOL_NBYTES);
    struct program_symbol *symbol = mem_array(r->t, (size_t)info->symbol_count + 1, sizeof *symbol);
    for (int i = 0; i < info->symbol_count; i++) {
        const char *name = bytes_get_string(r);
        int64_t min = (int64_t)bytes_get(r), max = (int64_t)bytes_get(r);
        symbol[i] = (struct program_symbol){name ? name : "", min, max, bytes_get(r)};
    }
    info->symbols = symbol;
    info->kernel_count = bytes_get_count(r, KERNEL_NBYTES);
    struct program_kernel *kernel = mem_array(r->t, (size_t)info->kernel_count + 1, sizeof *kernel);
    for (int i = 0; i < info->kernel_count; i++) {
        const char *name = bytes_get_string(r), *title = bytes_get_string(r);
        double flop = bytes_get_real(r);
        kernel[i] = (struct program_kernel){name ? name : "", title, flop, bytes_get_real(r)};
    }
    info->kernels = kernel;
    info->state_count = bytes_get_count(r, STATE_NBYTES);
    struct program_state *state = mem_array(r->t, (size_t)info->state_count + 1, sizeof *state);
    for (int i = 0; i < info->state_count; i++) {
        state[i].from = bytes_get_string(r);
        get_tensor(r, &state[i].input);
        state[i].axis = bytes_get_int(r, -1, MAX_RANK);
        state[i].length_offset = bytes_get(r);
        r->is_bad |= !state[i].from;
    }
    info->states = info->state_count ? state : NULL;
    get_entries(r, info);
    get_slices(r, info);
    get_feeds(r, info);
}

/* Whether the fields that callers write and read are in their structs. */
static bool is_sound(const struct program_info *info)
{
    for (int i = 0; i < info->input_count; i++)
        if (!is_field(info->inputs[i].offset, sizeof(void *), info->inputs_bytes))
            return false;
    for (int i = 0; i < info->output_count; i++) {
        const struct program_tensor *x = &info->outputs[i];
        if (!is_field(x->offset, sizeof(void *), info->outputs_bytes) ||
            (x->shape_offset != PROGRAM_NO_OFFSET &&
             !is_field(x->shape_offset, sizeof(int64_t) * (size_t)x->rank, info->outputs_bytes)))
            return false;
    }
    for (int i = 0; i < info->symbol_count; i++)
        if (info->symbols[i].offset != PROGRAM_NO_OFFSET &&
            !is_field(info->symbols[i].offset, sizeof(int64_t), info->inputs_bytes))
            return false;
    if (info->entry_count && !is_field(info->entry_offset, sizeof(int64_t), info->inputs_bytes))
        return false;
    return info->arena_align && !(info->arena_align & (info->arena_align - 1));
}

static bool get_info(struct byte_reader *r, struct program_info *info)
{
    *info = (struct program_info){.version = PROGRAM_INFO_VERSION, .target = "llvm"};
    info->name = bytes_get_string(r);
    info->producer = bytes_get_string(r);
    get_tables(r, info);
    size_t *const size[] = {&info->arena_bytes, &info->arena_align, &info->weights_bytes,
                            &info->inputs_bytes, &info->outputs_bytes, &info->stack_bytes,
                            &info->state_bytes, &info->entry_offset};
    for (size_t i = 0; i < sizeof size / sizeof *size; i++)
        *size[i] = bytes_get(r);
    info->flop = bytes_get_real(r);
    return !r->is_bad && info->name && info->producer && is_sound(info);
}

struct llvm_program *program_unpack(struct tgc *t, struct byte_reader *r, const void *weights,
                                    struct code_error *why)
{
    struct llvm_program *p = MEM_NEW(t, struct llvm_program);
    *p = (struct llvm_program){.t = t, .weights = weights};
    *why = (struct code_error){"its bytes are damaged"};
    if (!get_info(r, &p->info))
        return NULL;
    p->threads = bytes_get_int(r, 1, INT32_MAX);
    p->nobject = bytes_get_count(r, sizeof(uint64_t));
    p->object = mem_array(t, (size_t)p->nobject + 1, sizeof *p->object);
    for (int i = 0; i < p->nobject; i++)
        p->object[i].bytes = bytes_get_data(r, &p->object[i].nbytes);
    return !r->is_bad && r->at == r->end && program_link(p, why) ? p : NULL;
}

struct llvm_program *llvm_program_unpack(struct tgc *t, const void *bytes, size_t nbytes,
                                         const void *weights, size_t weights_nbytes)
{
    struct byte_reader r = {.t = t, .at = bytes, .end = (const unsigned char *)bytes + nbytes};
    struct code_error why;
    struct llvm_program *p = program_unpack(t, &r, weights, &why);
    return p && p->info.weights_bytes == weights_nbytes ? p : NULL;
}

const void *llvm_program_weights(const struct llvm_program *p) { return p->weights; }
