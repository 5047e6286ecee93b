/* host.c - the C around the kernels: the tables of kernels and weights, launches, copies. */
#include "backends/opencl/opencl.h"

#include <string.h>

static void write_check(struct program *p, struct text *out)
{
    text_printf(out, "if (status != %s_OK)\n    return status;\n", p->upper);
}

static void opencl_to_host(struct program *p, struct text *out)
{
    snippet_use(&p->snippets, "opencl_host");
    text_puts(out, "status = to_host(self);\n");
    write_check(p, out);
}

static const char *opencl_host_view(struct program *p, const struct buffer *b)
{
    bool varies;
    const char *at = b->state ? opencl_offset(p, b, &varies) : mem_printf(p->t, "%zu", p->place[b->id]);
    p->buffer_used[b->id] = b->kind == BUFFER_OUTPUT;      /* so it cannot be the caller's buffer */
    return mem_printf(p->t, "((%s *)(void *)(self->device.mapped + %s))", dtype_ctype(b->dtype), at);
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

/* Copies an input or a result, in runs of its entry. */
static void copy(struct program *p, bool output, int i, struct text *out)
{
    const struct buffer *b = output ? p->s->output[i] : p->s->input[i];
    const char *how = output ? "get" : "put";
    int entry = output ? entry_of_output(p->s, i) : entry_of_input(p->s, i);
    struct text body = {.t = p->t};
    snippet_use(&p->snippets, mem_printf(p->t, "opencl_%s", how));
    text_printf(&body, "status = %s(self, %d, %s->%s, %s);\n", how, opencl_place(p, b), output ? "out" : "in",
                p->buffer_name[b->id], size_of(p, b));
    write_check(p, &body);
    if (entry < 0) {
        text_puts(out, body.s);
        return;
    }
    text_printf(out, "if (%s) {\n", entry_condition(p, entry));
    text_lines(out, body.s, 1);
    text_puts(out, "}\n");
}

static void opencl_begin_run(struct program *p, struct text *out)
{
    for (int i = 0; i < p->s->ninput; i++)
        copy(p, false, i, out);
}

static void opencl_end_run(struct program *p, struct text *out)
{
    for (int i = 0; i < p->s->noutput; i++)
        copy(p, true, i, out);
}

static const char *opencl_is_absent(struct program *p, const struct buffer *b)
{
    return mem_printf(p->t, " && !self->place[%d].is_bound", opencl_place(p, b));
}

/* ------------------------------------------------------------------------------------- the file */

/* The text as strings, an element of kernel_text[] for each of its paragraphs. */
static void write_strings(struct text *out, const char *s)
{
    while (*s) {
        size_t n = strcspn(s, "\n");
        struct text line = {.t = out->t};
        text_string(&line, mem_printf(out->t, "%.*s", (int)n, s));
        s += n + (s[n] == '\n');
        text_printf(out, "    %.*s\\n\"%s\n", (int)line.n - 1, line.s, n > 0 && *s ? "" : ",");
    }
}

static void opencl_kernels(struct program *p, const char *text, struct text *out)
{
    (void)p;
    text_puts(out, "/* The kernels in OpenCL C, and the functions that they call. */\n"
                   "static const char *const kernel_text[] = {\n");
    write_strings(out, text);
    text_puts(out, "};\n\n");
}

static void opencl_types(struct program *p, struct text *out)
{
    program_write_text(p, out, snippet_find("opencl")->text);
    text_putc(out, '\n');
    opencl_write_list(p, out);
}

static void opencl_fields(struct program *p, struct text *out)
{
    text_printf(out, "    struct opencl device;\n    struct place place[%d];\n    void *kernel[%d];\n",
                opencl_count_places(p->s), p->s->nkernel + 1);
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

/* The table of the places of inputs and outputs. */
static void write_places(struct program *p, struct text *out)
{
    const struct schedule *s = p->s;
    struct buffer *const *side[] = {s->input, s->output};
    const int n[] = {s->ninput, s->noutput};
    text_puts(out, "/* Of each place the byte of the memory where it begins, its size, and whether the host\n"
                   " * computes with it. */\n"
                   "static const struct { size_t at, nbytes; bool is_of_host; } place_info[] = {\n"
                   "    {0, 0, true}, {0, 0, true},\n");
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < n[k]; i++) {
            const struct buffer *b = side[k][i];
            text_printf(out, "    {%zu, %zu, %s},\n", p->place[b->id], b->nbytes,
                        p->buffer_used[b->id] ? "true" : "false");
        }
    text_puts(out, "};\n\n");
}

static void opencl_functions(struct program *p, struct text *out)
{
    snippet_use(&p->snippets, "opencl_open");
    snippet_use(&p->snippets, "opencl_calls");
    write_places(p, out);
    snippets_write(p, out, "opencl", NULL);
    write_weight_table(p, out);
}

static void opencl_open(struct program *p, struct text *out)
{
    size_t weights = p->s->weight_nbytes ? p->s->weight_nbytes : 1;
    text_printf(out,
                "    int status = device_open(self, kernel_text, sizeof kernel_text / sizeof "
                "*kernel_text,\n                             %s, %zu);\n",
                p->device_doubles ? "true" : "false", weights);
    text_printf(out, "    if (status == %s_OK)\n        status = put_weights(self);\n", p->upper);
    if (p->s->nstate > 0)
        text_printf(out, "    if (status == %s_OK)\n        status = begin_states(self);\n", p->upper);
    text_printf(out, "    if (status != %s_OK) {\n        device_close(self);\n        return "
                     "status;\n    }\n", p->upper);
}

static void opencl_close(struct program *p, struct text *out)
{
    (void)p;
    text_puts(out, "    if (self && self->opened == self)\n        device_close(self);\n");
}

static const struct device device = {
    opencl_begin, opencl_types, opencl_fields, opencl_text, opencl_kernels, opencl_functions, opencl_open,
    opencl_close, opencl_host_view, opencl_to_host, opencl_is_absent, opencl_begin_run, opencl_launches,
    opencl_end_run};
const struct backend backend_opencl = {"opencl", opencl_kernel, NULL, &device,
                                       "barrier(CLK_LOCAL_MEM_FENCE);", "#pragma unroll",
                                       {"get_global_id", "get_group_id"}};
