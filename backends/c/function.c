/* function.c - a kernel as a C function: its parameters and locals, and how NAME_run() and threads
 * call it. cstyle/render.c writes its statements.
 *
 *      static void conv1(float *restrict y,       write_signature
 *                        const float *restrict x)
 *      {
 *          float tile[64];                        write_locals
 *          for (int oy = 0; ...                   render_body
 *      }
 *
 *      conv1(conv1_out, in->x);                   render_call
 *
 * Where threads share the kernel, the call's arguments are a struct conv1_task, and each thread
 * calls conv1_part() with it: write_task.
 */
#include "backends/cstyle/cstyle.h"

#include <string.h>

static const char *var_type(const struct var *v) { return var_is_int(v) ? "int" : "int64_t"; }

/* "float *" and "const float *" */
static const char *pointer_to(const struct function *f, const struct parameter *a)
{
    const char *type = dtype_ctype(a->b->dtype);
    bool star = type[strlen(type) - 1] == '*';
    return parameter_is_written(f->k, a) ? mem_printf(f->p->t, "%s%s*", type, star ? "" : " ")
                               : const_pointer(a->b->dtype);
}

/* "const float " */
static const char *pointer_base(const struct function *f, const struct parameter *a)
{
    const char *pointer = pointer_to(f, a);
    return mem_printf(f->p->t, "%.*s", (int)strlen(pointer) - 1, pointer);
}

/* "(float (*)[26])", before an argument of the function; "": it is a pointer to elements. */
static const char *cast_to(const struct function *f, const struct parameter *a)
{
    const char *dims = f->array[a->at].dims;
    return dims ? mem_printf(f->p->t, "(%s(*)%s)", pointer_base(f, a), dims) : "";
}

/* "float (*restrict x)[26]" and "float *restrict x" */
static const char *declaration(const struct function *f, const struct parameter *a)
{
    const char *dims = f->array[a->at].dims, *name = f->buffer_name[a->at],
               *alone = parameter_is_restrict(f->k, a) ? "restrict " : "";
    return dims ? mem_printf(f->p->t, "%s(*%s%s)%s", pointer_base(f, a), alone, name, dims)
                : mem_printf(f->p->t, "%s%s%s", pointer_to(f, a), alone, name);
}

/* --------------------------------------------------------------------------------- the function */

/* The text without line breaks and indentation. */
static const char *one_line(struct tgc *t, const char *s)
{
    struct text out = {.t = t};
    while (*s) {
        size_t n = strcspn(s, "\n");
        text_write(&out, s, n);
        s += n;
        if (*s)
            text_putc(&out, ' ');
        s += strspn(s, "\n ");
    }
    return out.s;
}

static void write_signature(struct function *f, struct text *out)
{
    const struct kernel *k = f->k;
    struct program *p = f->p;
    if (k->nvariant == 0)                             /* others are called by their address */
        text_puts(out, "OWN_FRAME\n");
    if (stack_carries(p->t, f->v ? f->v->isa : ISA_GENERIC, f->v ? f->v->linear : k->linear,
                      f->v ? f->v->nlinear : k->nlinear))
        text_puts(out, PROGRAM_LOAD_AGAIN "\n");
    struct text_list list = {
        .out = out, .separator = ",", .line = out->n, .tail = strlen(")")};
    int n;
    const struct parameter *a = kernel_parameters(p->t, k, &n);
    if (f->v)
        text_printf(out, "%s ", isa_table[f->v->isa].attribute);
    text_printf(out, "static void %s(",
                program_variant_name(p, k, f->v ? f->v->isa : ISA_GENERIC));
    size_t from = out->n;
    list.indent = from - list.line;
    for (int i = 0; i < n; i++)
        list_put(&list, a[i].b ? declaration(f, &a[i])
                               : mem_printf(p->t, "%s %s", var_type(a[i].v),
                                            program_var(p, a[i].v)));
    if (k->is_shared) {
        list_put(&list, "unsigned part");
        list_put(&list, "unsigned parts");
    }
    if (!list.any)
        text_puts(out, "void");
    if (!f->v)
        p->parameters[k->index] = one_line(p->t, out->s + from);
    text_puts(out, ")\n");
}

/* Scratch on the stack; and parameters that this variant does not use, such as weights packed for
 * another instruction set. */
static void write_locals(const struct function *f, struct text *out)
{
    const struct kernel *k = f->k;
    for (int i = 0; i < k->nbuffer + k->nscratch; i++) {
        const struct buffer *b = i < k->nbuffer ? k->buffer[i] : k->scratch[i - k->nbuffer];
        bool local = i >= k->nbuffer && scratch_is_on_stack(b);
        struct array_type array = f->array[i];
        size_t n = b->nbytes / dtype_nbytes(b->dtype);
        if (local && f->is_used[i])
            text_printf(out, "    %s %s[%zu]%s;\n", dtype_ctype(b->dtype), f->buffer_name[i],
                        array.dims ? n / (size_t)array.stride : n, array.dims ? array.dims : "");
        else if (!local && !f->is_used[i])
            text_printf(out, "    (void)%s;\n", f->buffer_name[i]);
    }
}

/* struct conv1_task, which holds a call's arguments, and conv1_part(), which runs a part of it. */
static void write_task(const struct function *f)
{
    const struct kernel *k = f->k;
    struct program *p = f->p;
    struct text *out = &p->tasks;
    const char *task = p->task_name[k->index];
    int n;
    const struct parameter *a = kernel_parameters(p->t, k, &n);
    text_printf(out, "struct %s {\n    %s *self;\n", task, p->name);
    for (int i = 0; i < n; i++)
        if (a[i].b)
            text_printf(out, "    %s%s;\n", pointer_to(f, &a[i]), f->buffer_name[a[i].at]);
        else
            text_printf(out, "    %s %s;\n", var_type(a[i].v), program_var(p, a[i].v));
    text_printf(out, "};\nstatic void %s(void *context, int part)\n{\n", p->part_name[k->index]);
    text_printf(out, "    const struct %s *t = (const struct %s *)context;\n", task, task);
    text_puts(out, "    if (part < 0 || part >= t->self->parts)\n"
                   "        return;              /* a parallel_for that counts too far */\n");
    struct text_list list = {
        .out = out, .separator = ",", .line = out->n, .tail = strlen(");")};
    text_printf(out, "    %s%s(", k->nvariant ? "t->self->kernels->" : "",
                program_kernel_name(p, k));
    list.indent = out->n - list.line;
    for (int i = 0; i < n; i++) {
        const char *name = a[i].b ? f->buffer_name[a[i].at] : program_var(p, a[i].v);
        bool own = a[i].b && a[i].at >= k->nbuffer;   /* each thread has its own scratch */
        const char *cast = a[i].b ? cast_to(f, &a[i]) : "";
        if (own)
            name = mem_printf(p->t, *cast ? "(t->%s + part * %zu)" : "t->%s + part * %zu", name,
                              scratch_stride(a[i].b) / dtype_nbytes(a[i].b->dtype));
        else
            name = mem_printf(p->t, "t->%s", name);
        list_put(&list, mem_printf(p->t, "%s%s", cast, name));
    }
    list_put(&list, "(unsigned)part");
    list_put(&list, "(unsigned)t->self->parts");
    text_puts(out, ");\n}\n\n");
}

/* For the calls of the function. */
static void note_casts(const struct function *f)
{
    struct program *p = f->p;
    int n;
    const struct parameter *a = kernel_parameters(p->t, f->k, &n);
    const char **cast = mem_array(p->t, (size_t)n + 1, sizeof *cast);
    for (int i = 0; i < n; i++)
        cast[i] = a[i].b ? cast_to(f, &a[i]) : "";
    p->casts[f->k->index] = cast;
}

static void render_kernel(struct program *p, const struct kernel *k, const struct variant *v,
                          struct text *out)
{
    struct mem_mark mark = scratch_mark(p->t);
    struct function f = {.p = p, .k = k, .v = v};
    kernel_name_parameters(&f);
    const char *body = render_body(&f);
    if (v) {
        snippet_use(&p->snippets, isa_table[v->isa].attribute + strlen("IN_"));
        text_printf(out, "/* %s, for %s */\n", program_kernel_name(p, k), isa_table[v->isa].title);
    } else {
        kernel_write_comment(&f, out);
    }
    write_signature(&f, out);
    text_puts(out, "{\n");
    write_locals(&f, out);
    if (tiles_are_used(&f.tiles))
        tiles_begin(&f, out);
    text_lines(out, body, 1);
    text_puts(out, tiles_are_used(&f.tiles) ? "    end_tiles();\n}\n\n" : "}\n\n");
    if (!v)
        note_casts(&f);
    if (k->is_shared && !v)
        write_task(&f);
    scratch_release(p->t, mark);
}

/* ------------------------------------------------------------------------------------- the call */

/* A cast binds tighter than a sum. */
static const char *cast_argument(struct program *p, const char *cast, const char *s)
{
    return *cast ? mem_printf(p->t, strchr(s, ' ') ? "%s(%s)" : "%s%s", cast, s) : s;
}

static void render_call(struct program *p, const struct kernel *k, struct text *out)
{
    enum { DEPTH = 4 };          /* indentation of the statement in NAME_run() */
    struct text_list list = {
        .out = out, .separator = ",", .line = out->n, .tail = DEPTH + strlen(");")};
    int n, twin = p->twin[k->index]->index;
    const struct parameter *a = kernel_parameters(p->t, k, &n);
    if (k->is_shared) {
        text_puts(out, "{\n");
        list.line = out->n;
        text_printf(out, "    struct %s task = {self, ", p->task_name[twin]);
    } else {
        text_printf(out, "%s%s(", k->nvariant ? "self->kernels->" : "", program_kernel_name(p, k));
    }
    list.indent = out->n - list.line;
    for (int i = 0; i < n; i++)
        list_put(&list, a[i].b ? cast_argument(p, k->is_shared ? "" : p->casts[twin][i],
                                               program_buffer(p, a[i].b))
                               : mem_printf(p->t, "%s%s", var_is_int(a[i].v) ? "(int)" : "",
                                            program_var_in_run(p, a[i].v)));
    if (k->is_shared)
        text_printf(out, "};\n    share(self, %s, &task, %.0f);\n}\n", p->part_name[twin],
                    k->shared_ns);
    else
        text_puts(out, ");\n");
}

const struct backend backend_c = {
    .name = "c", .has_arrays = true, .kernel = render_kernel, .call = render_call};
