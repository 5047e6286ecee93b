/* host.c - the C around the kernels: the tables of kernels and weights, launches, copies. */
#include "backends/opencl/opencl.h"

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

void opencl_call(struct program *p, const struct kernel *k, struct text *out)
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
    opencl_write_text(p, kernels, out);
    text_puts(out, "/* The kernels' functions; NULL: another one's. */\n"
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

const struct device opencl_device = {
    opencl_begin, opencl_types, opencl_fields, opencl_kernels, opencl_open, opencl_close,
    opencl_host_view, opencl_to_host, opencl_begin_run, opencl_end_run};
