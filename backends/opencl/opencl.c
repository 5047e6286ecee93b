/* opencl.c - the OpenCL target: kernels in OpenCL C 1.2, and the host code around them.
 *
 *      NAME.c:  kernel_text[]     pieces of runtime/ and the kernels, one string each
 *               NAME_init()       loads the driver, builds the text, copies the weights
 *               NAME_run()        copies the inputs, launches, copies the results
 *
 *      kernel void NAME_conv1(global uchar *memory, global const uchar *weights,
 *                             ulong y_at, ulong x_at, ulong w_at)
 *
 * Kernels are the portable ones: loops, no vectors. The loop that threads share on a processor is
 * the grid here, one work-group a part (passes/kernel/thread.c): of one work-item, or of a block's
 * threads, which share loops and local memory between barriers. Results do not depend on their
 * numbers. Intermediates, inputs and results are in one buffer of the device, and a kernel gets
 * offsets in it (sub-buffers would need the device's alignment); the host maps it to read a
 * condition or to run a host step.
 */
#include "backends/cstyle/cstyle.h"

#include <string.h>

/* --------------------------------------------------------------------------------------- places */

static bool grow(size_t *end, size_t nbytes)
{
    return size_add(*end, nbytes, end) && size_align(*end, 128, end);
}

static bool place_all(struct program *p, struct buffer *const *b, int n, size_t *end)
{
    for (int i = 0; i < n; i++) {
        p->place[b[i]->id] = *end;
        if (!grow(end, b[i]->nbytes))
            return false;
    }
    return true;
}

/* Diagnoses what kernels of a device cannot access: addresses of the host. */
static bool check_types(struct program *p, struct buffer *const *b, int n, const char *what)
{
    for (int i = 0; i < n; i++)
        if (b[i]->dtype == DTYPE_STRING)
            return diag_error(
                p->t, NULL,
                "%s '%.100s' is a tensor of strings, which devices do not have: compile "
                "with --target=c",
                what, b[i]->name ? b[i]->name : "of the model");
    return true;
}

static bool opencl_begin(struct program *p)
{
    const struct schedule *s = p->s;
    if (s->nstate > 0)
        return diag_error(p->t, NULL, "--state needs --target=c in this version");
    if (!check_types(p, s->input, s->ninput, "input") ||
        !check_types(p, s->output, s->noutput, "output") ||
        !check_types(p, s->buffer, s->nbuffer, "a value") ||
        !check_types(p, s->weight, s->nweight, "weight"))
        return false;
    p->place = mem_array(p->t, (size_t)p->nbuffer_id + 1, sizeof *p->place);
    for (int i = 0; i < s->nbuffer; i++)
        p->place[s->buffer[i]->id] = s->buffer[i]->offset;
    for (int i = 0; i < s->nweight; i++)
        p->place[s->weight[i]->id] = s->weight[i]->offset;
    p->device_nbytes = 128;      /* no device has buffers of 0 bytes */
    return (grow(&p->device_nbytes, s->arena_nbytes) &&
            place_all(p, s->input, s->ninput, &p->device_nbytes) &&
            place_all(p, s->output, s->noutput, &p->device_nbytes)) ||
           diag_error(p->t, NULL, "what the model computes, its inputs and its outputs take more "
                                  "memory than can be counted: give smaller bounds by --dim");
}

/* -------------------------------------------------------------------------------------- kernels */

/* The kernel's names of "memory" and "weights", and of its parameters' offsets. */
struct signature {
    struct function f;
    const char *memory, *weights, **at;      /* by position in parameter[] */
    const struct parameter *parameter;
    int n;
};

static const char *space_of(const struct signature *s, const struct parameter *a)
{
    return buffer_root(a->b)->kind == BUFFER_WEIGHT ? s->weights : s->memory;
}

static void write_signature(struct signature *s, struct text *out)
{
    struct program *p = s->f.p;
    struct text_list list = {.out = out, .separator = ",", .line = out->n, .tail = strlen(")")};
    text_printf(out, "kernel void %s_%s(", p->name, program_kernel_name(p, s->f.k));
    list.indent = out->n - list.line;
    list_put(&list, mem_printf(p->t, "global uchar *%s", s->memory));
    list_put(&list, mem_printf(p->t, "global const uchar *%s", s->weights));
    for (int i = 0; i < s->n; i++)
        list_put(&list, mem_printf(p->t, "%s %s", s->parameter[i].b ? "ulong" : "long", s->at[i]));
    text_puts(out, ")\n");
}

/* Declares the parameters as pointers of their types, the scratch, and the part of the work. */
static void write_locals(const struct signature *s, struct text *out)
{
    const struct function *f = &s->f;
    const struct kernel *k = f->k;
    if (k->is_shared)
        text_printf(out, "    const uint part = (uint)%s(0), parts = (uint)%s(0);\n",
                    k->block ? "get_group_id" : "get_global_id",
                    k->block ? "get_num_groups" : "get_global_size");
    if (k->block)
        text_puts(out, "    const uint thread = (uint)get_local_id(0), threads = "
                       "(uint)get_local_size(0);\n");
    for (int i = 0; i < s->n; i++) {
        const struct parameter *a = &s->parameter[i];
        if (!a->b) {
            const char *type = var_is_int(a->v) ? "int" : "long";
            text_printf(out, "    const %s %s = (%s)%s;\n", type, program_var(f->p, a->v), type,
                        s->at[i]);
            continue;
        }
        if (!f->is_used[a->at])
            continue;
        const char *type = mem_printf(f->p->t, "global %s%s *",
                                      parameter_is_written(k, a) ? "" : "const ",
                                      dtype_ctype(a->b->dtype));
        text_printf(out, "    %s%s%s = (%s)(%s + %s", type,
                    parameter_is_restrict(k, a) ? "restrict " : "", f->buffer_name[a->at], type,
                    space_of(s, a), s->at[i]);
        if (a->at >= k->nbuffer && (k->is_shared || k->block))      /* each thread has its own */
            text_printf(out, " + %s * %zul",
                        !k->block       ? "part"
                        : !k->is_shared ? "thread"
                                        : "(part * threads + thread)",
                        scratch_stride(a->b));
        text_puts(out, ");\n");
    }
    for (int i = 0; i < k->nscratch; i++)
        if (scratch_is_on_stack(k->scratch[i]) && f->is_used[k->nbuffer + i])
            text_printf(out, "    %s%s %s[%zu];\n",
                        buffer_space(k->scratch[i]) == SPACE_LOCAL ? "local " : "",
                        dtype_ctype(k->scratch[i]->dtype),
                        f->buffer_name[k->nbuffer + i],
                        k->scratch[i]->nbytes / dtype_nbytes(k->scratch[i]->dtype));
}

static bool has_doubles(struct uop *const *u, int n)
{
    for (int i = 0; i < n; i++)
        if (u[i]->dtype == DTYPE_F64)
            return true;
    return false;
}

/* Code rendered between two calls uses pieces of the device's language. */
static void swap_snippets(struct program *p)
{
    struct snippet_set host = p->snippets;
    p->snippets = p->device_snippets;
    p->device_snippets = host;
}

/* A text as a string of several lines: an element of kernel_text[]. */
static void write_string(struct text *out, const char *s)
{
    while (*s) {
        size_t n = strcspn(s, "\n");
        struct text line = {.t = out->t};
        text_string(&line, mem_printf(out->t, "%.*s", (int)n, s));
        s += n + (s[n] == '\n');
        text_printf(out, "    %.*s\\n\"%s\n", (int)line.n - 1, line.s, *s ? "" : ",");
    }
}

static void opencl_kernel(struct program *p, const struct kernel *k, const struct variant *v,
                          struct text *out)
{
    if (v)
        TGC_BUG(p->t, "kernel %s has a variant, but no device has these", k->name);
    struct mem_mark mark = scratch_mark(p->t);
    struct signature s = {.f = {.p = p, .k = k}};
    struct text kernel = {.t = p->t};
    swap_snippets(p);
    kernel_name_parameters(&s.f);
    s.memory = parameter_name(&s.f, "memory");
    s.weights = parameter_name(&s.f, "weights");
    s.parameter = kernel_parameters(p->t, k, &s.n);
    s.at = mem_array(p->t, (size_t)s.n + 1, sizeof *s.at);
    for (int i = 0; i < s.n; i++)
        s.at[i] = parameter_name(
            &s.f, s.parameter[i].b ? mem_printf(p->t, "%s_at", s.f.buffer_name[s.parameter[i].at])
                                   : mem_printf(p->t, "%s_is", program_var(p, s.parameter[i].v)));
    const char *body = render_body(&s.f);
    kernel_write_comment(&s.f, &kernel);
    write_signature(&s, &kernel);
    text_puts(&kernel, "{\n");
    write_locals(&s, &kernel);
    text_lines(&kernel, body, 1);
    text_puts(&kernel, "}\n\n");
    write_string(out, kernel.s);
    p->device_doubles |= has_doubles(k->linear, k->nlinear);
    swap_snippets(p);
    scratch_release(p->t, mark);
}

/* --------------------------------------------------------------------------------------- launch */

/* The offset of a buffer, in bytes of the memory or of the weights. */
static const char *place_of(struct program *p, const struct buffer *b)
{
    const struct buffer *root = buffer_root(b);
    struct text s = {.t = p->t};
    text_printf(&s, "%zu", p->place[root->id]);
    for (; b->base; b = b->base)
        if (b->base_offset && !uop_is_int(b->base_offset, 0))
            text_printf(&s, " + %zu * (uint64_t)(%s)", dtype_nbytes(b->dtype),
                        program_scalar(p, b->base_offset));
    return s.s;
}

static void write_check(struct program *p, struct text *out)
{
    text_printf(out, "if (status != %s_OK)\n    return status;\n", p->upper);
}

static void opencl_call(struct program *p, const struct kernel *k, struct text *out)
{
    enum { DEPTH = 4 };
    int n;
    const struct parameter *a = kernel_parameters(p->t, k, &n);
    text_puts(out, "{\n");
    struct text_list list = {.out = out, .separator = ",", .line = out->n, .tail = DEPTH + 3};
    text_puts(out, "    const uint64_t argument[] = {");
    list.indent = out->n - list.line;
    for (int i = 0; i < n; i++)
        list_put(&list, a[i].b ? place_of(p, a[i].b)
                               : mem_printf(p->t, "(uint64_t)(%s)", program_var_in_run(p, a[i].v)));
    text_printf(out, "};\n    status = launch(self, %d, %d, %d, argument, %d);\n}\n",
                p->twin[k->index]->index, k->is_shared ? p->threads : 1, k->block ? k->block : 1,
                n);
    write_check(p, out);
}

static void opencl_to_host(struct program *p, struct text *out)
{
    text_puts(out, "status = to_host(self);\n");
    write_check(p, out);
}

static const char *opencl_host_view(struct program *p, const struct buffer *b)
{
    return mem_printf(p->t, "((%s *)(void *)(self->device.mapped + %zu))", dtype_ctype(b->dtype),
                      p->place[b->id]);
}

/* "(size_t)2 * (size_t)in->dim_n * 4": bytes of the tensor in this run. A computed dimension may
 * come out negative, which stands for 0. */
static const char *size_of(struct program *p, const struct buffer *b)
{
    struct text s = {.t = p->t};
    for (int a = 0; a < b->ndim; a++)
        text_printf(&s, "(size_t)(%s) * ", program_scalar(p, sym_max(p->t, b->dim[a], uop_int(p->t, 0))));
    text_printf(&s, "%zu", dtype_nbytes(b->dtype));
    return s.s;
}

static void opencl_begin_run(struct program *p, struct text *out)
{
    opencl_to_host(p, out);
    for (int i = 0; i < p->s->ninput; i++) {
        const struct buffer *b = p->s->input[i];
        text_printf(out, "memcpy(self->device.mapped + %zu, in->%s, %s);\n", p->place[b->id],
                    p->buffer_name[b->id], size_of(p, b));
    }
}

static void opencl_end_run(struct program *p, struct text *out)
{
    opencl_to_host(p, out);
    for (int i = 0; i < p->s->noutput; i++) {
        const struct buffer *b = p->s->output[i];
        text_printf(out, "memcpy(out->%s, self->device.mapped + %zu, %s);\n",
                    p->buffer_name[b->id], p->place[b->id], size_of(p, b));
    }
}

/* ------------------------------------------------------------------------------------- the file */

static void opencl_types(struct program *p, struct text *out)
{
    snippet_use(&p->snippets, "opencl_open");
    snippet_use(&p->snippets, "opencl_run");
    program_write_text(p, out, snippet_find("opencl")->text);
    text_putc(out, '\n');
}

static void opencl_fields(struct program *p, struct text *out)
{
    text_puts(out, "    struct opencl device;\n");
    text_printf(out, "    void *kernel[%d];%*s/* by kernel_info[] */\n", p->s->nkernel + 1, 15, "");
}

/* The pieces of runtime/ that kernels use. */
static void write_pieces(struct program *p, struct text *out)
{
    static const char *const file[] = {"opencl", "number", "math"};
    for (size_t i = 0; i < sizeof file / sizeof *file; i++) {
        struct text piece = {.t = p->t};
        snippets_write(p, &piece, file[i], NULL);
        if (piece.n > 0) {
            p->device_doubles |= strstr(piece.s, "double") != NULL;
            write_string(out, piece.s);
        }
    }
}

static void write_weight_table(struct program *p, struct text *out)
{
    const struct schedule *s = p->s;
    text_printf(out,
                "/* Copies the weights to the device. */\nstatic int put_weights(%s *self)\n{\n",
                p->name);
    if (s->nweight == 0) {
        text_printf(out, "    (void)self;\n    return %s_OK;\n}\n\n", p->upper);
        return;
    }
    text_puts(out,
              p->weights == WEIGHTS_FILE
                  ? "    const struct weights table =\n        place_weights((const unsigned char "
                    "*)self->options.weights);\n    const struct weights *const w = &table;\n"
                  : "    const struct weights *const w = get_weights();\n");
    text_puts(out, "    const struct { size_t at, nbytes; const void *from; } weight[] = {\n");
    for (int i = 0; i < s->nweight; i++)
        text_printf(out, "        {%zu, %zu, w->%s},\n", s->weight[i]->offset, s->weight[i]->nbytes,
                    p->buffer_name[s->weight[i]->id]);
    text_puts(out,
              "    };\n    const struct opencl *cl = &self->device;\n"
              "    for (size_t i = 0; i < sizeof weight / sizeof *weight; i++)\n"
              "        if (weight[i].nbytes > 0 &&\n"
              "            cl->write(cl->queue, cl->weights, 1, weight[i].at, weight[i].nbytes, "
              "weight[i].from,\n                      0, NULL, NULL) != 0)\n");
    text_printf(out, "            return %s_DEVICE_FAILED;\n    return %s_OK;\n}\n\n", p->upper,
                p->upper);
}

static void opencl_kernels(struct program *p, const char *kernels, struct text *out)
{
    struct text pieces = {.t = p->t};
    swap_snippets(p);
    snippet_use(&p->snippets, "opencl_language");
    write_pieces(p, &pieces);
    swap_snippets(p);
    text_puts(out, "/* The kernels in OpenCL C, and the functions that they call. */\n"
                   "static const char *const kernel_text[] = {\n");
    if (p->device_doubles)
        text_puts(out, "    \"#pragma OPENCL EXTENSION cl_khr_fp64 : enable\\n\",\n");
    text_puts(out, pieces.s);
    text_puts(out, kernels);
    text_puts(out, "};\n\n/* Their functions; NULL: another one's. */\n"
                   "static const char *const kernel_function[] = {\n");
    for (int i = 0; i < p->s->nkernel; i++)
        if (program_is_twin(p, p->s->kernel[i]))
            text_puts(out, "    NULL,\n");
        else
            text_printf(out, "    \"%s_%s\",\n", p->name, p->kernel_name[i]);
    text_puts(out, "    NULL,\n};\n\n");
    snippets_write(p, out, "opencl", NULL);
    write_weight_table(p, out);
}

static void opencl_open(struct program *p, struct text *out)
{
    text_printf(out,
                "    int status = device_open(self, kernel_text, sizeof kernel_text / sizeof "
                "*kernel_text,\n                             kernel_function, %s, %s_DEVICE_BYTES, "
                "%zu);\n",
                p->device_doubles ? "true" : "false", p->upper,
                p->s->weight_nbytes ? p->s->weight_nbytes : 1);
    text_printf(out, "    if (status == %s_OK)\n        status = put_weights(self);\n", p->upper);
    text_printf(out, "    if (status != %s_OK) {\n        device_close(self);\n        return "
                     "status;\n    }\n", p->upper);
}

static void opencl_close(struct program *p, struct text *out)
{
    (void)p;
    text_puts(out, "    if (self && self->opened == self)\n        device_close(self);\n");
}

static const struct device device = {
    opencl_begin, opencl_types, opencl_fields, opencl_kernels, opencl_open, opencl_close,
    opencl_host_view, opencl_to_host, opencl_begin_run, opencl_end_run};
const struct backend backend_opencl = {"opencl", opencl_kernel, opencl_call, &device,
                                       "barrier(CLK_LOCAL_MEM_FENCE);"};
