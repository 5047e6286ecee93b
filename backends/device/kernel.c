/* kernel.c - kernels in a device's language, as functions. Each tensor is a pointer argument, or,
 * if buffers have no addresses (driver.byte), a buffer and an offset in it.
 *
 *      kernel void NAME_conv1(global uchar *y_in, ulong y_at, global const uchar *x_in, ulong x_at)
 *      extern "C" __global__ void NAME_conv1(float *y, const float *x)
 *
 * If the language has argument buffers (driver.structure), the arguments are the fields of a
 * structure:
 *
 *      kernel void NAME_conv1(constant arguments_NAME_conv1 &arguments [[buffer(0)]])
 */
#include "backends/device/device.h"
#include "ir/device_ops.h"

#include <string.h>

/* The kernel's names of its parameters' buffers and offsets, by position in parameter[]; a symbol
 * has no buffer, and a pointer has no offset. */
struct signature {
    struct function f;
    const struct driver *d;
    const char **in, **at;
    const struct parameter *parameter;
    int n;
    const char *memory;                      /* the block's array that contains all others except
                                              * barriers; NULL: each array is one */
    const char *structure, *arguments;       /* the argument structure's type and parameter;
                                              * NULL: no structure */
};

static const char *global_of(const struct signature *s, const struct parameter *a)
{
    bool written = parameter_is_written(s->f.k, a);
    return mem_printf(s->f.p->t, "%s%s", s->d->global, written ? "" : "const ");
}

/* "global const float *restrict " */
static const char *pointer_to(const struct signature *s, const struct parameter *a)
{
    const bool is_alone = *s->d->restrict_ && parameter_is_restrict(s->f.k, a);
    return mem_printf(s->f.p->t, "%s%s *%s%s", global_of(s, a), dtype_ctype(a->b->dtype),
                      is_alone ? s->d->restrict_ : "", is_alone ? " " : "");
}

static bool is_image(const struct signature *s, const struct parameter *a)
{
    return a->b && !a->map && a->at < s->f.k->nbuffer && s->f.k->is_image &&
           s->f.k->is_image[a->at];
}

static void put_parameter(const struct signature *s, int i, struct text_list *list)
{
    const struct parameter *a = &s->parameter[i];
    struct tgc *t = s->f.p->t;
    if (is_image(s, a) || a->map)
        list_put(list, mem_printf(t, "%s%s", a->map ? s->d->map : s->d->image, s->in[i]));
    else if (a->b && !s->d->byte)
        list_put(list, mem_printf(t, "%s%s", pointer_to(s, a), s->in[i]));
    else if (a->b)
        list_put(list, mem_printf(t, "%s%s *%s", global_of(s, a), s->d->byte, s->in[i]));
    if (a->b && s->at[i])
        list_put(list, mem_printf(t, "%s %s", s->d->offset, s->at[i]));
    else if (!a->b)
        list_put(list, mem_printf(t, "%s %s", s->d->symbol, s->at[i]));
}

/* The structure of all parameters. */
static void write_structure(const struct signature *s, struct text *out)
{
    text_printf(out, "struct %s {\n", s->structure);
    for (int i = 0; i < s->n; i++) {
        struct text field = {.t = s->f.p->t};
        struct text_list list = {.out = &field, .separator = ","};
        put_parameter(s, i, &list);
        text_printf(out, "    %s%s;\n", field.s, s->d->slot(s->f.p, i));
    }
    text_puts(out, "};\n");
}

static void write_signature(struct signature *s, struct text *out)
{
    struct program *p = s->f.p;
    struct text_list list = {.out = out, .separator = ",", .line = out->n, .tail = strlen(")")};
    int block[GRID_RANK];
    device_block(s->f.k, block);
    s->d->head(p, s->f.k, block, out);
    for (size_t i = list.line; i < out->n; i++)
        if (out->s[i] == '\n')
            list.line = i + 1;
    text_printf(out, "%s_%s(", p->name, program_kernel_name(p, s->f.k));
    list.indent = out->n - list.line;
    if (s->structure)
        list_put(&list, mem_printf(p->t, "%s%s &%s%s", s->d->structure[0], s->structure,
                                   s->arguments, s->d->structure[1]));
    for (int i = 0; i < s->n && !s->structure; i++)
        put_parameter(s, i, &list);
    for (const char *const *place = s->d->places; place && *place; place++)
        list_put(&list, *place);
    text_puts(out, ")\n");
}

/* Of scratch, each thread has its own. */
static bool is_of_thread(const struct kernel *k, const struct parameter *a)
{
    return a->b && a->at >= k->nbuffer && a->b->scratch.space != SPACE_GLOBAL &&
           (k->is_shared || k->block);
}

/* How the function names its parameter, or the field that it is. */
static const char *name_of(const struct signature *s, const char *name)
{
    return s->structure ? mem_printf(s->f.p->t, "%s.%s", s->arguments, name) : name;
}

/* Declares a tensor as a pointer of its type. */
static void write_pointer(const struct signature *s, int i, struct text *out)
{
    const struct function *f = &s->f;
    const struct parameter *a = &s->parameter[i];
    const struct kernel *k = f->k;
    const char *type = mem_printf(f->p->t, "%s%s *", global_of(s, a), dtype_ctype(a->b->dtype));
    bool own = is_of_thread(k, a);
    if (!s->d->byte && !own && !s->structure)
        return;
    text_printf(out, "    %s%s = ", pointer_to(s, a), f->buffer_name[a->at]);
    if (s->d->byte)
        text_printf(out, "(%s)(%s + %s", type, s->in[i], s->at[i]);
    else if (own)
        text_printf(out, "(%s)((%sunsigned char *)%s", type, s->d->global, name_of(s, s->in[i]));
    else
        text_puts(out, name_of(s, s->in[i]));
    if (own)
        text_printf(out, " + %s * %zul",
                    !k->block       ? "part"
                    : !k->is_shared ? "thread"
                                    : "(part * threads + thread)",
                    scratch_stride(a->b));
    text_puts(out, s->d->byte || own ? ");\n" : ";\n");
}

/* Does an array of the block alias others? Then all are parts of one array. */
bool device_has_over(const struct kernel *k)
{
    bool any = false;
    for (int i = 0; i < k->nscratch; i++)
        any |= k->scratch[i]->scratch.is_alias;
    return any;
}

static bool begins_barriers(struct uop *const *linear, int n, const struct buffer *b)
{
    for (int i = 0; i < n; i++)
        if (linear[i]->op == OP_MBAR_INIT && uop_buffer_of(linear[i]->src[0]) == b)
            return true;
    return false;
}

/* Do the kernel's program or a variant's have barriers in this buffer? It aliases nothing then. */
static bool is_barriers(const struct kernel *k, const struct buffer *b)
{
    bool any = b->scratch.space == SPACE_SHARED && begins_barriers(k->linear, k->nlinear, b);
    for (int i = 0; i < k->nvariant && b->scratch.space == SPACE_SHARED; i++)
        any |= begins_barriers(k->variant[i].linear, k->variant[i].nlinear, b);
    return any;
}

/* The begin of an array within the block's one array, aligned for bulk copies. First the operands'
 * copies and the epilogue tile that aliases them, then barriers. */
int64_t device_local_at(const struct kernel *k, const struct buffer *b)
{
    enum { ALIGN = 128 };
    int64_t at = 0, over = 0;
    for (int barriers = 0; barriers < 2; barriers++) {
        for (int i = 0; i < k->nscratch; i++) {
            const struct buffer *x = k->scratch[i];
            if (x->scratch.space != SPACE_SHARED || !scratch_is_on_stack(x) ||
                is_barriers(k, x) != barriers)
                continue;
            int64_t align = x->scratch.panel ? PANEL_ALIGN : ALIGN,
                    from = x->scratch.is_alias ? 0 : (at + align - 1) / align * align;
            if (x == b)
                return from;
            *(x->scratch.is_alias ? &over : &at) = from + (int64_t)x->nbytes;
        }
        at = at > over ? at : over;
    }
    return at;
}

/* Bytes of the block's arrays, without barriers. */
static int64_t tiles_nbytes(const struct kernel *k)
{
    int64_t most = 0;
    for (int i = 0; i < k->nscratch; i++) {
        const struct buffer *b = k->scratch[i];
        int64_t end =
            b->scratch.space == SPACE_SHARED && !is_barriers(k, b) && scratch_is_on_stack(b)
                ? device_local_at(k, b) + (int64_t)b->nbytes
                : 0;
        most = end > most ? end : most;
    }
    return most;
}

int64_t device_launched_local(const struct driver *d, const struct kernel *k)
{
    const int64_t nbytes = d->declared_local ? device_local_at(k, NULL) : 0;
    return nbytes > d->declared_local ? nbytes : 0;
}

/* Declares an array aligned to n bytes; 0: to its elements. */
static void write_aligned(const struct signature *s, int n, const char *space, const char *declared,
                          struct text *out)
{
    const char *aligned =
        n == 0
            ? ""
            : mem_printf(s->f.p->t,
                         s->d->has_alignas ? "alignas(%d) " : " __attribute__((aligned(%d)))", n);
    text_printf(out, "    %s%s%s%s;\n", s->d->has_alignas ? aligned : "", space, declared,
                s->d->has_alignas ? "" : aligned);
}

/* An array of the thread or of its block, aligned for vector loads. */
static void write_array(const struct signature *s, const struct buffer *b, const char *name,
                        struct text *out)
{
    const char *ctype = dtype_ctype(b->dtype);
    if (b->scratch.space == SPACE_SHARED && s->memory && !is_barriers(s->f.k, b)) {
        const char *space = *s->d->global ? s->d->local : "";
        text_printf(out, "    %s%s *const %s = (%s%s *)(%s + %lld);\n", space, ctype, name, space,
                    ctype, s->memory, (long long)device_local_at(s->f.k, b));
        return;
    }
    if (b->scratch.space == SPACE_SHARED && device_launched_local(s->d, s->f.k)) {
        snippet_use(&s->f.p->snippets,
                    mem_printf(s->f.p->t, "%s_block_array", s->f.p->backend->name));
        text_printf(out, "    BLOCK_ARRAY(%s, %s, %zu, %lld);\n", ctype, name,
                    b->nbytes / dtype_nbytes(b->dtype), (long long)device_local_at(s->f.k, b));
        return;
    }
    bool has_boxes =
        (b->scratch.pipeline.stages && b->scratch.pipeline.transfer == TRANSFER_BULK) ||
        b->scratch.is_bulk_stored;
    int n = b->scratch.panel ? PANEL_ALIGN : has_boxes ? BULK_MEMORY_ALIGNED : 16;
    bool needs_none =
        b->scratch.space != SPACE_SHARED || (!s->f.v && n == 16 && dtype_bits(b->dtype) >= 32);
    write_aligned(
        s, needs_none ? 0 : n, buffer_space(b) == SPACE_SHARED ? s->d->local : "",
        mem_printf(s->f.p->t, "%s %s[%zu]", ctype, name, b->nbytes / dtype_nbytes(b->dtype)), out);
}

/* Declares the parameters by their types, the scratch, and the part of the work. */
static void write_locals(const struct signature *s, struct text *out)
{
    const struct function *f = &s->f;
    const struct kernel *k = f->k;
    if (k->is_shared && !k->ngrid)
        text_printf(out, "    const %s part = %s, parts = %s;\n", s->d->count,
                    s->d->part[k->block > 0], s->d->parts[k->block > 0]);
    if (k->block)
        text_printf(out, "    const %s thread = %s, threads = %s;\n", s->d->count, s->d->thread,
                    s->d->threads);
    for (int i = 0; i < s->n; i++) {
        const struct parameter *a = &s->parameter[i];
        if (!a->b) {
            const char *type = var_is_int(a->v) ? "int" : s->d->symbol;
            text_printf(out, "    const %s %s = (%s)%s;\n", type, program_var(f->p, a->v), type,
                        name_of(s, s->at[i]));
        } else if (f->is_used[a->at] && !is_image(s, a) && !a->map) {
            write_pointer(s, i, out);
        }
    }
    if (s->memory && device_launched_local(s->d, k)) {
        snippet_use(&f->p->snippets, mem_printf(f->p->t, "%s_block_array", f->p->backend->name));
        text_printf(out, "    BLOCK_ARRAY(unsigned char, %s, %lld, 0);\n", s->memory,
                    (long long)tiles_nbytes(k));
    } else if (s->memory) {
        write_aligned(
            s, PANEL_ALIGN, s->d->local,
            mem_printf(f->p->t, "unsigned char %s[%lld]", s->memory, (long long)tiles_nbytes(k)),
            out);
    }
    for (int i = 0; i < k->nscratch; i++)
        if (scratch_is_on_stack(k->scratch[i]) && f->is_used[k->nbuffer + i])
            write_array(s, k->scratch[i], f->buffer_name[k->nbuffer + i], out);
    if (f->exchanged)
        text_printf(out, "    %sfloat %s[%d];\n", s->d->local, f->exchanged, k->block);
}

static bool exchanges(struct uop *const *u, int n)
{
    for (int i = 0; i < n; i++)
        if (u[i]->op == OP_SHUFFLE)
            return true;
    return false;
}

static bool has_doubles(struct uop *const *u, int n)
{
    for (int i = 0; i < n; i++)
        if (u[i]->dtype == DTYPE_F64)
            return true;
    return false;
}

bool device_has_doubles(const struct kernel *k) { return has_doubles(k->linear, k->nlinear); }

/* Code rendered between two calls uses pieces of the device's language. */
static void swap_snippets(struct program *p)
{
    struct snippet_set host = p->snippets;
    p->snippets = p->device_snippets;
    p->device_snippets = host;
}

static void name_parameter(struct signature *s, int i)
{
    const struct parameter *a = &s->parameter[i];
    struct tgc *t = s->f.p->t;
    const char *name = a->b ? s->f.buffer_name[a->at] : program_var(s->f.p, a->v);
    if (a->map) {
        snippet_use(&s->f.p->snippets, "tensor_map");
        s->in[i] = parameter_name(&s->f, mem_printf(t, "%s_map", name));
        s->f.map[s->f.nmap] = a->map;
        s->f.map_name[s->f.nmap++] = s->in[i];
        return;
    }
    if (is_image(s, a) || (a->b && !s->d->byte && !is_of_thread(s->f.k, a))) {
        s->in[i] = name;
        return;
    }
    if (a->b)
        s->in[i] = parameter_name(&s->f, mem_printf(t, "%s_in", name));
    if (!a->b || s->d->byte)
        s->at[i] = parameter_name(&s->f, mem_printf(t, a->b ? "%s_at" : "%s_is", name));
}

void device_kernel(struct program *p, const struct kernel *k, const struct variant *v,
                   struct text *out)
{
    struct mem_mark mark = scratch_mark(p->t);
    struct signature s = {.f = {.p = p, .k = k, .v = v}, .d = p->backend->driver};
    struct text kernel = {.t = p->t};
    swap_snippets(p);
    kernel_name_parameters(&s.f);
    s.parameter = kernel_parameters(p->t, k, &s.n);
    s.in = mem_array(p->t, (size_t)s.n + 1, sizeof *s.in);
    s.at = mem_array(p->t, (size_t)s.n + 1, sizeof *s.at);
    s.f.map = mem_array(p->t, (size_t)s.n + 1, sizeof *s.f.map);
    s.f.map_name = mem_array(p->t, (size_t)s.n + 1, sizeof *s.f.map_name);
    for (int i = 0; i < s.n; i++)
        name_parameter(&s, i);
    if (v)
        snippet_use(&p->snippets, mem_printf(p->t, "f32x%d", isa_lanes(v->isa)));
    if (exchanges(k->linear, k->nlinear)) {
        snippet_use(&p->snippets, mem_printf(p->t, "%s_%s", p->backend->name, p->backend->shuffle));
        s.f.exchanged = s.d->keeps_exchanged ? parameter_name(&s.f, "exchanged") : NULL;
    }
    if (device_has_over(k))
        s.memory = parameter_name(&s.f, "memory");
    if (s.d->structure) {
        s.structure = mem_printf(p->t, "arguments_%s_%s", p->name, program_kernel_name(p, k));
        s.arguments = parameter_name(&s.f, "arguments");
    }
    const char *body = render_body(&s.f);
    if (s.structure)
        write_structure(&s, &kernel);
    kernel_write_comment(&s.f, &kernel);
    write_signature(&s, &kernel);
    text_puts(&kernel, "{\n");
    write_locals(&s, &kernel);
    text_lines(&kernel, body, 1);
    text_puts(&kernel, "}\n\n");
    text_puts(out, kernel.s);
    p->device_doubles |= v ? has_doubles(v->linear, v->nlinear)
                           : has_doubles(k->linear, k->nlinear);
    swap_snippets(p);
    scratch_release(p->t, mark);
}

/* The pieces of runtime/ that kernels use. */
static void write_pieces(struct program *p, struct text *out)
{
    for (const char *const *file = p->backend->driver->file; *file; file++) {
        struct text piece = {.t = p->t};
        snippets_write(p, &piece, *file, NULL);
        if (piece.n > 0) {
            p->device_doubles |= strstr(piece.s, "double") != NULL;
            text_puts(out, piece.s);
        }
    }
}

const char *device_text(struct program *p, const char *kernels)
{
    struct text pieces = {.t = p->t};
    swap_snippets(p);
    snippet_use(&p->snippets, mem_printf(p->t, "%s_language", p->backend->name));
    write_pieces(p, &pieces);
    swap_snippets(p);
    return p->backend->driver->text(p, pieces.s, kernels);
}
