/* kernel.c - kernels in OpenCL C: functions whose arguments are, of each tensor, the buffer that it
 * is in and the byte where it begins.
 *
 *      kernel void NAME_conv1(global uchar *y_in, ulong y_at, global const uchar *x_in, ulong x_at)
 */
#include "backends/opencl/opencl.h"

#include <string.h>

/* The kernel's names of its parameters' buffers and offsets, by position in parameter[]; a symbol has
 * no buffer. */
struct signature {
    struct function f;
    const char **in, **at;
    const struct parameter *parameter;
    int n;
};

static const char *global_of(const struct kernel *k, const struct parameter *a)
{
    return parameter_is_written(k, a) ? "global" : "global const";
}

static void write_signature(struct signature *s, struct text *out)
{
    struct program *p = s->f.p;
    struct text_list list = {.out = out, .separator = ",", .line = out->n, .tail = strlen(")")};
    int block[GRID_RANK];
    opencl_block(s->f.k, block);
    if (block[0] * block[1] * block[2] > 1)
        text_printf(out, "__attribute__((reqd_work_group_size(%d, %d, %d)))\n", block[0], block[1],
                    block[2]);
    list.line = out->n;
    text_printf(out, "kernel void %s_%s(", p->name, program_kernel_name(p, s->f.k));
    list.indent = out->n - list.line;
    for (int i = 0; i < s->n; i++) {
        const struct parameter *a = &s->parameter[i];
        if (a->b)
            list_put(&list, mem_printf(p->t, "%s uchar *%s", global_of(s->f.k, a), s->in[i]));
        list_put(&list, mem_printf(p->t, "%s %s", a->b ? "ulong" : "long", s->at[i]));
    }
    text_puts(out, ")\n");
}

/* Declares the parameters as pointers of their types, the scratch, and the part of the work. */
static void write_locals(const struct signature *s, struct text *out)
{
    const struct function *f = &s->f;
    const struct kernel *k = f->k;
    if (k->is_shared && !k->ngrid)
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
        const char *type = mem_printf(f->p->t, "%s %s *", global_of(k, a), dtype_ctype(a->b->dtype));
        text_printf(out, "    %s%s%s = (%s)(%s + %s", type,
                    parameter_is_restrict(k, a) ? "restrict " : "", f->buffer_name[a->at], type,
                    s->in[i], s->at[i]);
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

void opencl_kernel(struct program *p, const struct kernel *k, const struct variant *v,
                   struct text *out)
{
    struct mem_mark mark = scratch_mark(p->t);
    struct signature s = {.f = {.p = p, .k = k, .v = v}};
    struct text kernel = {.t = p->t};
    swap_snippets(p);
    kernel_name_parameters(&s.f);
    s.parameter = kernel_parameters(p->t, k, &s.n);
    s.in = mem_array(p->t, (size_t)s.n + 1, sizeof *s.in);
    s.at = mem_array(p->t, (size_t)s.n + 1, sizeof *s.at);
    for (int i = 0; i < s.n; i++) {
        const struct parameter *a = &s.parameter[i];
        const char *name = a->b ? s.f.buffer_name[a->at] : program_var(p, a->v);
        if (a->b)
            s.in[i] = parameter_name(&s.f, mem_printf(p->t, "%s_in", name));
        s.at[i] = parameter_name(&s.f, mem_printf(p->t, a->b ? "%s_at" : "%s_is", name));
    }
    if (v)
        snippet_use(&p->snippets, mem_printf(p->t, "f32x%d", isa_lanes(v->isa)));
    const char *body = render_body(&s.f);
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
    static const char *const file[] = {"opencl", "number", "math", "vector_opencl", "vector_math"};
    for (size_t i = 0; i < sizeof file / sizeof *file; i++) {
        struct text piece = {.t = p->t};
        snippets_write(p, &piece, file[i], NULL);
        if (piece.n > 0) {
            p->device_doubles |= strstr(piece.s, "double") != NULL;
            text_puts(out, piece.s);
        }
    }
}

const char *opencl_text(struct program *p, const char *kernels)
{
    struct text pieces = {.t = p->t}, all = {.t = p->t};
    swap_snippets(p);
    snippet_use(&p->snippets, "opencl_language");
    write_pieces(p, &pieces);
    swap_snippets(p);
    text_printf(&all, "%s%s%s", p->device_doubles ? "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n" : "",
                pieces.s, kernels);
    return all.s;
}
