/* program.c - the whole of NAME.c: what stands in it, in which order, and NAME_run().
 *
 *      comment · includes · struct NAME · pieces of runtime/ · kernels · tables · init, run, close
 *      · weights · main
 *
 * Kernels are rendered first, into a text of their own, since they decide which pieces of runtime/
 * the program carries.
 */
#include "backends/program.h"
#include "backends/c/exprs.h"

#include <string.h>

enum { LINE_WIDTH = 100 };

/* ------------------------------------------------------------------------------------ questions */

bool program_is_field(const struct program *p, const struct var *v)
{
    if (v->is_counter)
        return false;
    for (int i = 0; i < p->s->nstep; i++)
        for (int j = 0; p->s->step[i].host && j < p->s->step[i].host->nresult; j++)
            if (p->s->step[i].host->result[j] == v)
                return false;
    return true;
}

bool program_has_shape_field(const struct buffer *b)
{
    for (int a = 0; a < b->ndim; a++)
        if (b->dim[a]->op != OP_CONST)
            return true;
    return false;
}

int64_t dim_bound(const struct uop *dim) { return dim->vmax > 0 ? dim->vmax : 0; }

const char *const_pointer(enum dtype d)
{
    static const char *const pointer[] = {
#define DTYPE(name, text, ctype, bits, kind, onnx) "const " ctype " *",
#include "ir/dtypes.def"
#undef DTYPE
    };
    return d == DTYPE_STRING ? "const char *const *" : pointer[d];
}

int program_threads(const struct schedule *s)
{
    for (int i = 0; i < s->nkernel; i++)
        if (s->kernel[i]->is_shared)
            return s->threads;
    return 1;
}

/* A static_assert in the program sees to it that these are enough: what POSIX systems need for a
 * mutex, a condition and a thread differs. */
size_t program_head_bytes(const struct schedule *s)
{
    enum { STRUCT = 128, TEAM = 384, WORKER = 64 };
    size_t workers = (size_t)program_threads(s) - 1;
    return workers ? STRUCT + TEAM + workers * WORKER : STRUCT;
}

size_t program_arena_bytes(const struct program *p)
{
    size_t n;
    if (!size_align(p->s->arena_nbytes, 64, &n) || !size_add(n, p->head_bytes, &n))
        TGC_BUG(p->t, "the arena's size overflows");
    return n;
}

const char *program_kernel_name(const struct program *p, const struct kernel *k)
{
    if (k->index >= p->s->nkernel || p->s->kernel[k->index] != k)
        TGC_BUG(p->t, "kernel %s is not in the schedule", k->name);
    return p->kernel_name[p->twin[k->index]->index];
}

bool program_is_twin(const struct program *p, const struct kernel *k)
{
    return p->twin[k->index] != k;
}

const char *program_var(const struct program *p, const struct var *v)
{
    if (v->id < 0 || v->id >= p->nvar_id || !p->var_name[v->id])
        TGC_BUG(p->t, "symbol %s is not in the schedule", v->name);
    return p->var_name[v->id];
}

const char *program_var_in_run(const struct program *p, const struct var *v)
{
    const char *name = program_var(p, v);
    return program_is_field(p, v) ? mem_printf(p->t, "in->dim_%s", name) : name;
}

const char *program_buffer(struct program *p, const struct buffer *b)
{
    const struct buffer *root = buffer_root(b);
    const char *name = p->buffer_name[root->id];
    if (!name)
        TGC_BUG(p->t, "buffer %d is not in the schedule", root->id);
    p->buffer_used[root->id] = true;
    const char *s = root->kind == BUFFER_INPUT    ? mem_printf(p->t, "in->%s", name)
                    : root->kind == BUFFER_OUTPUT ? mem_printf(p->t, "out->%s", name)
                    : root->kind == BUFFER_WEIGHT ? mem_printf(p->t, "w->%s", name)
                                                  : name;
    for (; b->base; b = b->base)
        if (b->base_offset && !uop_is_int(b->base_offset, 0))
            s = mem_printf(p->t, "%s + %s", s, program_scalar(p, b->base_offset));
    return s;
}

const char *program_scalar(struct program *p, struct uop *root)
{
    int n;
    struct uop **order = uop_toposort(p->t, &root, 1, &n);
    struct expr *e = mem_array(p->t, (size_t)n, sizeof *e);
    struct uop_map place = {.t = p->t};
    for (int i = 0; i < n; i++) {
        struct uop *u = order[i];
        struct expr src[4] = {{0}, {0}, {0}, {0}};
        map_set(&place, u, (void *)(intptr_t)i);
        for (int k = 0; k < u->nsrc && k < 4; k++)
            src[k] = e[(intptr_t)map_get(&place, u->src[k])];
        if (u->op == OP_CONST) {
            e[i] = expr_const(p, u->dtype, u->arg);
        } else if (u->op == OP_VAR) {
            e[i] = expr_name(program_var_in_run(p, u->arg.p), 'L');
        } else if (u->op == OP_BUFFER) {
            e[i] = expr_name("", 'I');
        } else if (u->op == OP_LOAD) {
            const struct buffer *b = uop_buffer_of(u->src[0]);
            e[i] = expr_load(p, u->dtype,
                             mem_printf(p->t, "%s[%s]", program_buffer(p, b), src[1].s),
                             b->kind != BUFFER_INPUT);
            if (u->nsrc > 3)
                e[i] = expr_choose(p, &src[2], &e[i], &src[3]);
        } else if (op_is_elementwise(u->op)) {
            e[i] = expr_apply(p, u, src);
        } else {
            TGC_BUG(p->t, "%s in a scalar of the schedule", op_name(u->op));
        }
    }
    struct expr r = expr_resolve(p, e[n - 1]);
    return r.s;
}

/* Blanks before a comment: as many as keep its column, where the names before it are longer or
 * shorter than their placeholders. */
static size_t write_gap(struct text *out, const char *s, size_t column, size_t line_start)
{
    size_t n = strspn(s, " ");
    if (n < 2 || strncmp(s + n, "/*", 2) != 0 || out->n == line_start) {
        text_write(out, s, n);
        return n;
    }
    text_putc(out, ' ');
    while (out->n - line_start < column + n)
        text_putc(out, ' ');
    return n;
}

static size_t word_length(const char *s)
{
    return strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
}

/* Length of the comment, literal or #include that begins at s, or 0. */
static size_t literal_length(const char *s)
{
    if (!strncmp(s, "#include", 8))
        return strcspn(s, "\n");
    if (s[0] == '/' && s[1] == '*') {
        const char *end = strstr(s + 2, "*/");
        return end ? (size_t)(end + 2 - s) : strlen(s);
    }
    if (*s != '"' && *s != '\'')
        return 0;
    size_t n = 1;
    while (s[n] && s[n] != *s)
        n += s[n] == '\\' && s[n + 1] ? 2 : 1;
    return n + (s[n] != 0);
}

/* Is the word at s, in a text of ours, one that would hide the program's own name or be hidden by
 * it? Fields are not: they stand behind a point or an arrow, or in a struct's body, where only the
 * tags of other structs count. */
static bool is_name_of_ours(const struct program *p, const char *text, const char *s, size_t n,
                            bool in_struct)
{
    if (n != strlen(p->name) || strncmp(s, p->name, n) != 0)
        return false;
    if (in_struct)
        return s - text >= 7 && !strncmp(s - 7, "struct ", 7);
    return !(s > text && s[-1] == '.') && !(s - text >= 2 && s[-2] == '-' && s[-1] == '>');
}

/* The text with the program's name for model_, and its own words out of that name's way. */
void program_write_text(const struct program *p, struct text *out, const char *text)
{
    const char *s = text, *line = s;
    size_t line_start = out->n, inside = 0;
    bool in_struct = false, in_body = false;
    while (*s) {
        size_t n = word_length(s);
        if (inside == 0)
            inside = literal_length(s);
        bool code = inside == 0;
        if (code && n == 6 && !strncmp(s, "struct", n))
            in_struct = !strncmp(s + n + strcspn(s + n, ";{(),=*"), "{", 1);
        else if (code && *s == '{')
            in_body = in_struct;
        else if (code && *s == '}')
            in_struct = in_body = false;
        if (*s == ' ') {
            n = write_gap(out, s, (size_t)(s - line), line_start);
        } else if (*s == '\n') {
            text_putc(out, *s);
            n = 1;
            line = s + 1;
            line_start = out->n;
        } else if (*s == '\\' && s[1] &&
                   s[1] != '\n') { /* an escape's letter is no part of a word */
            text_write(out, s, n = 2);
        } else if (n == 0) {
            text_write(out, s, n = 1);
        } else if (n == 10 && !strncmp(s, "model_self", n)) {
            text_puts(out, p->name);
        } else if (!strncmp(s, "model_", 6) || !strncmp(s, "MODEL_", 6)) {
            text_puts(out, *s == 'm' ? p->name : p->upper);
            text_write(out, s + 5, n == 6 ? 0 : n - 5);
        } else {
            text_write(out, s, n);
            if (code && is_name_of_ours(p, text, s, n, in_body))
                text_putc(out, '_');
        }
        s += n;
        inside = inside > n ? inside - n : 0;
    }
}

/* ---------------------------------------------------------------------------------------- names */

static void name_vars(struct program *p)
{
    const struct schedule *s = p->s;
    struct names *names = names_new(p->t, p->file);              /* of NAME_run and of kernels */
    for (int i = 0; i < s->nvar; i++)
        p->nvar_id = s->var[i]->id >= p->nvar_id ? s->var[i]->id + 1 : p->nvar_id;
    for (int i = 0; i < s->nstep; i++)
        if (s->step[i].counter && s->step[i].counter->id >= p->nvar_id)
            p->nvar_id = s->step[i].counter->id + 1;
    p->var_name = mem_array(p->t, (size_t)p->nvar_id + 1, sizeof *p->var_name);
    for (int i = 0; i < s->nvar; i++)
        if (!p->var_name[s->var[i]->id]) {
            p->var_name[s->var[i]->id] = names_unique(names, s->var[i]->name, "n");
            names_add(p->run, p->var_name[s->var[i]->id]);
        }
    for (int i = 0; i < s->nstep; i++) {
        const struct var *v = s->step[i].counter;
        if (v && !p->var_name[v->id]) {
            p->var_name[v->id] = names_unique(names, v->name ? v->name : "step_number",
                                              "step_number");
            names_add(p->run, p->var_name[v->id]);
        }
    }
}

static void note_buffers(struct program *p, struct buffer *const *b, int n)
{
    for (int i = 0; i < n; i++)
        for (const struct buffer *c = b[i]; c; c = c->base)
            p->nbuffer_id = c->id >= p->nbuffer_id ? c->id + 1 : p->nbuffer_id;
}

/* The locals of NAME_run that point to intermediates are called after what makes them first: stem[]
 * by buffer id. */
static void note_stem(const char **stem, const struct buffer *b, const char *s)
{
    b = buffer_root(b);
    if (!stem[b->id])
        stem[b->id] = s;
}

static void name_intermediates(struct program *p)
{
    const struct schedule *s = p->s;
    const char **stem = mem_array(p->t, (size_t)p->nbuffer_id + 1, sizeof *stem);
    for (int i = 0; i < s->nkernel; i++) {
        for (int j = 0; j < s->kernel[i]->noutput; j++)
            note_stem(stem, s->kernel[i]->buffer[j], mem_printf(p->t, "%s_out", p->kernel_name[i]));
        for (int j = 0; j < s->kernel[i]->nscratch; j++)
            note_stem(stem, s->kernel[i]->scratch[j],
                      mem_printf(p->t, "%s_scratch", p->kernel_name[i]));
    }
    for (int i = 0; i < s->nstep; i++)
        for (int j = 0; s->step[i].kind == STEP_HOST && j < s->step[i].narg; j++)
            if (j >= s->step[i].narg - s->step[i].host->nout)
                note_stem(stem, s->step[i].arg[j],
                          mem_printf(p->t, "%s_out", s->step[i].host->function));
    for (int i = 0; i < s->nbuffer; i++) {
        const struct buffer *b = s->buffer[i];
        const char *name = b->name ? b->name : stem[b->id];
        if (!b->base && !p->buffer_name[b->id])
            p->buffer_name[b->id] = names_unique(p->run, name ? name : "buffer", "buffer");
    }
}

static void name_buffers(struct program *p)
{
    const struct schedule *s = p->s;
    note_buffers(p, s->buffer, s->nbuffer);
    note_buffers(p, s->weight, s->nweight);
    note_buffers(p, s->input, s->ninput);
    note_buffers(p, s->output, s->noutput);
    p->buffer_name = mem_array(p->t, (size_t)p->nbuffer_id + 1, sizeof *p->buffer_name);
    p->buffer_used = mem_array(p->t, (size_t)p->nbuffer_id + 1, sizeof *p->buffer_used);
    struct names *reserved = names_reserved(p->t), *field = names_new(p->t, reserved);
    for (int i = 0; i < s->nvar; i++)
        if (program_is_field(p, s->var[i]))
            names_add(field, mem_printf(p->t, "dim_%s", p->var_name[s->var[i]->id]));
    for (int i = 0; i < s->ninput; i++)
        p->buffer_name[s->input[i]->id] = names_unique(field, s->input[i]->name, "input");
    field = names_new(p->t, reserved);
    for (int i = 0; i < s->noutput; i++) {
        /* two names at a time: the pointer's and its shape's */
        const char *name = names_unique(field, s->output[i]->name, "output");
        while (names_has(field, mem_printf(p->t, "%s_shape", name)))
            name = names_unique(field, s->output[i]->name, "output");
        names_add(field, mem_printf(p->t, "%s_shape", name));
        p->buffer_name[s->output[i]->id] = name;
    }
    /* fields of one struct and, with _data, file-scope objects */
    field = names_new(p->t, p->file);
    for (int i = 0; i < s->nweight; i++) {
        const char *name = names_unique(field, s->weight[i]->name, "weight");
        while (names_has(p->file, mem_printf(p->t, "%s_data", name)))
            name = names_unique(field, s->weight[i]->name, "weight");
        names_add(p->file, mem_printf(p->t, "%s_data", name));
        p->buffer_name[s->weight[i]->id] = name;
    }
    name_intermediates(p);
}

static void name_everything(struct program *p)
{
    static const char *const file_words[] = {
#define WORD(name) #name,
#include "backends/words.def"
#undef WORD
    };
    static const char *const own[] = {"init",   "run",     "close",   "strerror", "describe",
                                      "inputs", "outputs", "options", "info",     "tensor",
                                      "dim",    "symbol",  "kernel",  "status",   "weights_data"};
    const struct schedule *s = p->s;
    p->file = names_new(p->t, names_reserved(p->t));
    names_add(p->file, p->name);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        names_add(p->file, mem_printf(p->t, "%s_%s", p->name, own[i]));
    for (size_t i = 0; i < sizeof file_words / sizeof *file_words; i++)
        names_add(p->file, file_words[i]);
    snippets_reserve(p->file);
    p->visible = names_new(p->t, names_reserved(p->t));
    names_add(p->visible, p->name);
    snippets_reserve(p->visible);
    p->kernel_name = mem_array(p->t, (size_t)s->nkernel + 1, sizeof *p->kernel_name);
    for (int i = 0; i < s->nkernel; i++)
        names_add(p->visible,
                  p->kernel_name[i] = names_unique(p->file, s->kernel[i]->name, "kernel"));
    p->twin = twins_find(p->t, s);
    p->task_name = mem_array(p->t, (size_t)s->nkernel + 1, sizeof *p->task_name);
    p->part_name = mem_array(p->t, (size_t)s->nkernel + 1, sizeof *p->part_name);
    for (int i = 0; i < s->nkernel; i++)
        if (s->kernel[i]->is_shared) {
            const char *name = p->kernel_name[i];
            p->task_name[i] = names_unique(p->file, mem_printf(p->t, "%s_task", name), "task");
            p->part_name[i] = names_unique(p->file, mem_printf(p->t, "%s_part", name), "part");
        }
    p->run = names_new(p->t, p->file);
    name_vars(p);
    name_buffers(p);
}

/* ------------------------------------------------------------------------------------------ run */

static void put_lines_indented(struct text *out, const char *lines, int indent)
{
    for (const char *s = lines; s && *s;) {
        size_t n = strcspn(s, "\n");
        if (n > 0)
            for (int i = 0; i < indent; i++)
                text_puts(out, "    ");
        text_write(out, s, n);
        text_putc(out, '\n');
        s += n + (s[n] == '\n');
    }
}

/* "if (!in->a || !in->b)", wrapped */
static void write_missing(struct program *p, struct text *out, struct buffer *const *b, int n,
                          const char *side, const char *status)
{
    if (n == 0)
        return;
    size_t start = out->n;
    text_puts(out, "    if (");
    for (int i = 0; i < n; i++) {
        const char *test = mem_printf(p->t, "!%s->%s", side, p->buffer_name[b[i]->id]);
        if (i > 0 && out->n - start + strlen(test) + 5 > LINE_WIDTH) {
            text_puts(out, " ||\n        ");
            start = out->n - 8;
        } else if (i > 0) {
            text_puts(out, " || ");
        }
        text_puts(out, test);
    }
    text_printf(out, ")\n        return %s_%s;\n", p->upper, status);
}

static void write_checks(struct program *p, struct text *out)
{
    const struct schedule *s = p->s;
    text_printf(out, "    if (!self || !in || !out)\n        return %s_NULL_ARGUMENT;\n", p->upper);
    text_printf(out, "    if (self->opened != self)\n        return %s_NOT_INITIALIZED;\n",
                p->upper);
    write_missing(p, out, s->input, s->ninput, "in", "MISSING_INPUT");
    write_missing(p, out, s->output, s->noutput, "out", "MISSING_OUTPUT");
    for (int i = 0; i < s->nvar; i++) {
        const struct var *v = s->var[i];
        if (program_is_field(p, v))
            text_printf(out,
                        "    if (in->dim_%s < %lld || in->dim_%s > %s_MAX_%s)\n        return "
                        "%s_DIM_OUT_OF_RANGE;\n",
                        p->var_name[v->id], (long long)v->min, p->var_name[v->id], p->upper,
                        name_upper(p->t, p->var_name[v->id]), p->upper);
    }
}

static void put_section(struct text *out, const char *title)
{
    text_puts(out, "/* ");
    for (size_t i = strlen(title); i < 90; i++)
        text_putc(out, '-');
    text_printf(out, " %s */\n\n", title);
}

/* Where the intermediates lie: one line each, so that the memory plan can be read here. */
static void write_places(struct program *p, struct text *out)
{
    const struct schedule *s = p->s;
    bool any = false;
    for (int i = 0; i < s->nbuffer; i++) {
        const struct buffer *b = s->buffer[i];
        if (b->base || !p->buffer_used[b->id])
            continue;
        if (!any)
            text_puts(
                out,
                "\n    /* the arena; what is not needed at the same time may share a place */\n"
                "    unsigned char *const arena = (unsigned char *)(void *)self;\n");
        any = true;
        size_t start = out->n;
        const char *type = dtype_ctype(b->dtype), *blank = b->dtype == DTYPE_STRING ? "" : " ";
        text_printf(out, "    %s%s*const %s = (%s%s*)(void *)(arena + %zu);", type, blank,
                    p->buffer_name[b->id], type, blank, p->head_bytes + b->offset);
        text_pad(out, start, 72);
        text_printf(out, " /* %s", dtype_name(b->dtype));
        text_dims(out, b->dim, b->ndim, "[", "]");
        text_puts(out, " */\n");
    }
}

/* The call's shape must be the function's: the C compiler would see too many arguments, but not the
 * wrong ones. */
static void check_host_call(struct program *p, const struct step *step)
{
    static const struct { const char *name; int nin, nout, nparam, nresult; } table[] = {
#define HOST(function, inputs, outputs, params, results)                                           \
    {#function, inputs, outputs, params, results},
#include "runtime/host/host.def"
#undef HOST
    };
    const struct host_call *h = step->host;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strcmp(table[i].name, h->function) == 0) {
            if (step->narg != table[i].nin + table[i].nout || h->nout != table[i].nout ||
                h->nparam != table[i].nparam || h->nresult != table[i].nresult)
                TGC_BUG(p->t, "the call of '%s' does not match runtime/host/host.def", h->function);
            return;
        }
    TGC_BUG(p->t, "runtime/host/host.def has no function '%s'", h->function);
}

static void write_host_call(struct program *p, struct text *out, const struct step *step)
{
    const struct host_call *h = step->host;
    check_host_call(p, step);
    snippet_use(&p->snippets, h->function);
    struct text call = {.t = p->t};
    text_printf(&call, "status = %s(", h->function);
    bool first = true;
    for (int i = 0; i < step->narg; i++, first = false)
        text_printf(&call, "%s%s", first ? "" : ", ", program_buffer(p, step->arg[i]));
    for (int i = 0; i < h->nparam; i++, first = false)
        text_printf(&call, "%s%s", first ? "" : ", ", program_scalar(p, h->param[i]));
    for (int i = 0; i < h->nresult; i++, first = false)
        text_printf(&call, "%s&%s", first ? "" : ", ", program_var(p, h->result[i]));
    text_printf(out, "%s);\nif (status != %s_OK)\n    return status;\n", call.s, p->upper);
    for (int i = 0; i < h->nresult; i++) {
        const char *name = program_var(p, h->result[i]);
        text_printf(out, "if (%s < 0 || %s > %s_MAX_%s)\n    return %s_TOO_MANY_RESULTS;\n", name,
                    name, p->upper, name_upper(p->t, name), p->upper);
    }
}

static void write_steps(struct program *p, struct text *out)
{
    const struct schedule *s = p->s;
    int indent = 1;
    for (int i = 0; i < s->nstep; i++) {
        const struct step *step = &s->step[i];
        struct text line = {.t = p->t};
        switch (step->kind) {
        case STEP_KERNEL:
            text_printf(&line, "step(self, %d);\n", step->kernel->index);
            p->backend->call(p, step->kernel, &line);
            break;
        case STEP_HOST: write_host_call(p, &line, step); break;
        case STEP_IF: text_printf(&line, "if (%s) {\n", program_scalar(p, step->cond)); break;
        case STEP_ELSE: text_puts(&line, "} else {\n"); break;
        case STEP_LOOP: {
            const char *n = program_var(p, step->counter), *trip = program_scalar(p, step->trip);
            /* the run may change what the number was read from */
            if (step->trip->op != OP_CONST) {
                const char *end = names_unique(p->run, mem_printf(p->t, "%s_end", n), "end");
                text_printf(&line, "const int64_t %s = %s;\n", end, trip);
                trip = end;
            }
            text_printf(&line, "for (int64_t %s = 0; %s < %s; %s++) {\n", n, n, trip, n);
            break;
        }
        case STEP_BREAK_UNLESS:
            text_printf(&line, "if (!(%s))\n    break;\n", program_scalar(p, step->cond));
            break;
        case STEP_ENDIF: case STEP_ENDLOOP: text_puts(&line, "}\n"); break;
        }
        if (step->kind == STEP_ENDIF || step->kind == STEP_ELSE || step->kind == STEP_ENDLOOP)
            indent--;
        put_lines_indented(out, line.s, indent);
        if (step->kind == STEP_IF || step->kind == STEP_ELSE || step->kind == STEP_LOOP)
            indent++;
    }
}

static void write_shapes(struct program *p, struct text *out)
{
    for (int i = 0; i < p->s->noutput; i++) {
        const struct buffer *b = p->s->output[i];
        if (program_has_shape_field(b))
            for (int a = 0; a < b->ndim; a++)
                text_printf(out, "    out->%s_shape[%d] = %s;\n", p->buffer_name[b->id], a,
                            program_scalar(p, b->dim[a]));
    }
}

static void write_run(struct program *p, struct text *out)
{
    const struct schedule *s = p->s;
    struct text body = {.t = p->t};
    write_steps(p, &body);
    write_shapes(p, &body);
    text_printf(out, "int %s_run(%s *self, const %s_inputs *in, %s_outputs *out)\n{\n", p->name,
                p->name, p->name, p->name);
    write_checks(p, out);
    if (s->nweight > 0 && p->weights == WEIGHTS_FILE)
        text_puts(out, "\n    const struct weights table = place_weights((const unsigned char "
                       "*)self->options.weights);\n"
                       "    const struct weights *const w = &table;\n");
    else if (s->nweight > 0)
        text_puts(out, "\n    const struct weights *const w = get_weights();\n");
    bool host = false;
    for (int i = 0; i < s->nstep; i++) {
        host |= s->step[i].kind == STEP_HOST;
        for (int j = 0; s->step[i].host && j < s->step[i].host->nresult; j++)
            text_printf(out, "    int64_t %s = 0;\n", program_var(p, s->step[i].host->result[j]));
    }
    if (host)
        text_puts(out, "    int status;\n");
    write_places(p, out);
    text_putc(out, '\n');
    text_puts(out, body.s ? body.s : "");
    text_puts(out, "    step(self, -1);\n    return ");
    text_printf(out, "%s_OK;\n}\n\n", p->upper);
}

/* ------------------------------------------------------------------------ init, close, strerror */

static const char struct_text[] =
    "struct model_self {\n"
    "    const model_self *opened;       /* itself, from model_init to model_close */\n"
    "    model_options options;\n"
    "FIELDS"
    "};\n"
    "static_assert(sizeof(struct model_self) <= HEAD_BYTES, \"the intermediates begin behind the "
    "struct\");\n\n";

static const char team_fields_text[] =
    "    int parts;                      /* of the work of a kernel that threads share */\n"
    "    struct team team;\n";

static const char share_text[] =
    "/* Runs body(context, 0) ... body(context, parts - 1), each in a thread, which saves so many\n"
    " * nanoseconds, more or less. */\n"
    "static void share(model_self *self, void (*body)(void *context, int part), void *context,\n"
    "                  long saves)\n"
    "{\n"
    "    if (self->parts == 1)\n"
    "        body(context, 0);\n"
    "    else if (self->options.parallel_for)\n"
    "        self->options.parallel_for(self->options.user, self->parts, body, context);\n"
    "    else\n"
    "        team_run(&self->team, body, context, saves);\n"
    "}\n\n";

static const char team_open_text[] =
    "    self->parts = MODEL_THREADS;\n"
    "    if (self->options.threads > 0 && self->options.threads < MODEL_THREADS)\n"
    "        self->parts = self->options.threads;\n"
    "    if (self->parts > 1 && !self->options.parallel_for &&\n"
    "        team_open(&self->team, self->parts - 1) != 0)\n"
    "        return MODEL_NO_THREADS;\n";

static const char team_close_text[] =
    "    if (self && self->opened == self && self->parts > 1 && !self->options.parallel_for)\n"
    "        team_close(&self->team);\n";

static const char step_text[] =
    "/* Tells the caller's hook which kernel comes now; -1: the run ends. */\n"
    "static void step(const model_self *self, int index)\n"
    "{\n"
    "    if (self->options.on_kernel)\n"
    "        self->options.on_kernel(self->options.user, index < 0 ? KERNEL_COUNT : index,\n"
    "                                index < 0 ? NULL : kernel_info[index].name);\n"
    "}\n\n";

static const char init_text[] = "int model_init(model_self **made, void *arena, size_t "
                                "arena_bytes, const model_options *options)\n"
                                "{\n"
                                "    if (made)\n"
                                "        *made = NULL;\n"
                                "    if (!made || !arena)\n"
                                "        return MODEL_NULL_ARGUMENT;\n"
                                "    if ((uintptr_t)arena % MODEL_ARENA_ALIGN != 0)\n"
                                "        return MODEL_ARENA_MISALIGNED;\n"
                                "    if (arena_bytes < MODEL_ARENA_BYTES)\n"
                                "        return MODEL_ARENA_TOO_SMALL;\n"
                                "    if (options && options->threads < 0)\n"
                                "        return MODEL_BAD_OPTIONS;\n"
                                "CHECK_WEIGHTS"
                                "    model_self *self = (model_self *)arena;\n"
                                "    memset(CASTself, 0, sizeof *self);\n"
                                "    if (options)\n"
                                "        self->options = *options;\n"
                                "PICK"
                                "    self->opened = self;\n"
                                "    *made = self;\n"
                                "    return MODEL_OK;\n"
                                "}\n\n";

static const char weights_check_text[] =
    "    if (!options || !options->weights || options->weights_bytes < MODEL_WEIGHTS_BYTES ||\n"
    "        (uintptr_t)options->weights % 64 != 0)\n"
    "        return MODEL_MISSING_WEIGHTS;\n";

static const char close_text[] =
    "void model_close(model_self *self)\n"
    "{\n"
    "CLOSE_TEAM"
    "    if (self)\n"
    "        self->opened = NULL;\n"
    "}\n\n"
    "const char *model_strerror(int status)\n"
    "{\n"
    "    switch (status) {\n"
    "STATUS_CASES"
    "    default: return \"unknown status\";\n"
    "    }\n"
    "}\n\n";

/* Writes text up to a marker, leaves the rest to the caller. */
static const char *write_up_to(const struct program *p, struct text *out, const char *text,
                               const char *marker)
{
    const char *at = strstr(text, marker);
    program_write_text(p, out, mem_printf(p->t, "%.*s", (int)(at - text), text));
    return at + strlen(marker);
}

static void write_lifetime(struct program *p, struct text *out)
{
    const char *rest = write_up_to(p, out, init_text, "CHECK_WEIGHTS");
    if (p->weights == WEIGHTS_FILE && p->s->nweight > 0)
        program_write_text(p, out, weights_check_text);
    rest = write_up_to(p, out, rest, "CAST");
    /* in C++ an atomic counter is no plain memory */
    text_puts(out, p->threads > 1 ? "(void *)" : "");
    rest = write_up_to(p, out, rest, "PICK");
    if (program_has_variants(p))
        text_puts(out, "    self->kernels = pick_kernels();\n");
    if (p->threads > 1)
        program_write_text(p, out, team_open_text);
    program_write_text(p, out, rest);
    write_run(p, out);
    rest = write_up_to(p, out, close_text, "CLOSE_TEAM");
    if (p->threads > 1)
        program_write_text(p, out, team_close_text);
    rest = write_up_to(p, out, rest, "STATUS_CASES");
#define STATUS(name, value, text)                                                                  \
    text_printf(out, "    case %s_" #name ": return \"%s\";\n", p->upper, text);
#include "backends/statuses.def"
#undef STATUS
    program_write_text(p, out, rest);
}

/* ------------------------------------------------------------------------------------- the file */

static double run_flop(const struct schedule *s)
{
    double flop = 0;
    for (int i = 0; i < s->nstep; i++)
        flop += s->step[i].kind == STEP_KERNEL ? s->step[i].kernel->flop : 0;
    return flop;
}

static void write_title(struct program *p, struct text *out)
{
    const struct schedule *s = p->s;
    text_printf(out, "/* %s.c - ", p->name);
    text_comment(out, p->o->model ? p->o->model : p->name);
    text_puts(out, " in C, by ");
    text_comment(out, p->o->producer);
    text_puts(out, ".");
    if (s->graph && s->graph->producer && *s->graph->producer) {
        text_puts(out, " The model was made by ");
        text_comment(out, s->graph->producer);
        text_putc(out, '.');
    }
    text_puts(out, "\n *");
    struct {
        struct buffer *const *b;
        int n;
        const char *title;
    } side[2] = {{s->input, s->ninput, "input "}, {s->output, s->noutput, "output"}};
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < side[k].n; i++) {
            const struct buffer *b = side[k].b[i];
            text_printf(out, "\n *   %s %s", side[k].title, p->buffer_name[b->id]);
            text_printf(out, " %s", dtype_name(b->dtype));
            text_dims(out, b->dim, b->ndim, "[", "]");
        }
    text_printf(out, "\n *\n * %d kernel%s, %s a run, arena ", s->nkernel,
                s->nkernel == 1 ? "" : "s", text_si(p->t, run_flop(s), "FLOP"));
    text_bytes(out, (double)program_arena_bytes(p));
    text_puts(out, ", weights ");
    text_bytes(out, (double)s->weight_nbytes);
    if (s->graph && s->graph->narrowing.nweight > 0) {
        text_puts(out, ":\n * ");
        text_narrowing(out, &s->graph->narrowing);
    }
    const char *pthread = p->threads > 1 ? " -pthread" : "";
    text_printf(out, ".\n *\n *     cc -O2%s -c %s.c                     a library, see %s.h\n",
                pthread, p->name, p->name);
    if (!p->o->no_main)
        text_printf(out, " *     cc -O2%s -D%s_MAIN %s.c -o %s     a program, see %s --help\n",
                    pthread, p->upper, p->name, p->name, p->name);
    text_puts(out, " */\n");
}

static const char long_strings[] =
    "#ifdef __GNUC__\n#pragma GCC diagnostic ignored \"-Woverlength-strings\"\n#endif\n\n";

/* Does describe() hold a name longer than the string that every C compiler has to take? */
static bool has_long_names(const struct schedule *s)
{
    enum { C99_STRING_MAX = 4095 };
    bool is_long = false;
    for (int i = 0; i < s->ninput; i++)
        is_long |= s->input[i]->name && strlen(s->input[i]->name) > C99_STRING_MAX;
    for (int i = 0; i < s->noutput; i++)
        is_long |= s->output[i]->name && strlen(s->output[i]->name) > C99_STRING_MAX;
    for (int i = 0; i < s->nvar; i++)
        is_long |= s->var[i]->name && strlen(s->var[i]->name) > C99_STRING_MAX;
    for (int i = 0; i < s->nkernel; i++)
        is_long |= s->kernel[i]->title && strlen(s->kernel[i]->title) > C99_STRING_MAX;
    return is_long;
}

static void write_prelude(struct program *p, struct text *out)
{
    write_title(p, out);
    bool odd = !p->o->header || strpbrk(p->o->header, "\"\\\n?");   /* an include has no escapes */
    text_printf(out, "#include \"%s\"", odd ? mem_printf(p->t, "%s.h", p->name) : p->o->header);
    text_puts(out, "\n\n#include <assert.h>\n#include <math.h>\n#include <stdalign.h>\n#include "
                   "<stdbool.h>\n#include <string.h>\n\n");
    text_puts(out, "#ifdef __cplusplus\n#define restrict __restrict\n#endif\n\n");
    if (has_long_names(p->s))
        text_puts(out, long_strings);
    if (p->threads > 1)
        program_write_text(p, out, snippet_find("team")->text);
    if (p->threads > 1)
        text_putc(out, '\n');
    const char *rest = write_up_to(p, out, struct_text, "FIELDS");
    if (program_has_variants(p))
        text_puts(out, "    const struct kernels *kernels;  /* for this processor */\n");
    if (p->threads > 1)
        program_write_text(p, out, team_fields_text);
    rest = write_up_to(p, out, rest, "HEAD_BYTES");
    text_printf(out, "%zu", p->head_bytes);
    program_write_text(p, out, rest);
    weights_write_declaration(p, out);
}

static void write_step_hook(struct program *p, struct text *out)
{
    const char *rest = step_text, *at = strstr(rest, "KERNEL_COUNT");
    program_write_text(p, out,
                       mem_printf(p->t, "%.*s%d%s", (int)(at - rest), rest, p->s->nkernel,
                                  at + strlen("KERNEL_COUNT")));
}

static void write_pieces(struct program *p, struct text *out)
{
    if (snippets_any(&p->snippets, "number") || snippets_any(&p->snippets, "math")) {
        put_section(out, "arithmetic");
        snippets_write(p, out, "number", NULL);
        snippets_write(p, out, "math", NULL);
    }
    if (snippets_any(&p->snippets, "host")) {
        put_section(out, "what is not tensor algebra");
        snippets_write(p, out, "host", NULL);
    }
}

/* Predictive commoning (with -O2 since gcc 12, as part of vectorization) may load elements beyond a
 * loop's last iteration and store them back unchanged, which C11 forbids: 5.1.2.4, note 27. */
static const char no_invented_stores[] =
    "/* Elements that another thread writes must not even be stored back unchanged, as gcc's\n"
    " * predictive commoning does. */\n"
    "#if defined __GNUC__ && !defined __clang__\n"
    "#pragma GCC optimize(\"no-predictive-commoning\")\n"
    "#endif\n\n";

bool program_write_c(struct tgc *t, const struct schedule *s, const struct program_options *o,
                     struct text *c, struct text *h, bool *weights_beside)
{
    struct program *p = MEM_NEW(t, struct program);
    p->t = t;
    p->s = s;
    p->o = o;
    p->backend = &backend_c;
    p->name = o->name;
    p->upper = name_upper(t, o->name);
    p->weights = program_weights_mode(s, o->weights);
    p->snippets.t = t;
    p->threads = program_threads(s);
    p->head_bytes = program_head_bytes(s);
    p->tasks.t = t;
    *weights_beside = s->nweight > 0 &&
                      (p->weights == WEIGHTS_INCBIN || p->weights == WEIGHTS_FILE);
    name_everything(p);

    struct text kernels = {.t = t}, lifetime = {.t = t};
    p->parameters = mem_array(t, (size_t)s->nkernel + 1, sizeof *p->parameters);
    for (int i = 0; i < s->nkernel; i++)
        if (!program_is_twin(p, s->kernel[i]))
            p->backend->kernel(p, s->kernel[i], NULL, &kernels);
    variants_write(p, &kernels);
    if (p->tasks.n > 0)
        text_printf(&kernels, "/* The kernels' parts, as threads call them. */\n%s", p->tasks.s);
    write_lifetime(p, &lifetime);

    header_write(p, h);
    write_prelude(p, c);
    /* the model's type is called like a local below, which C allows */
    if (snippets_mention(p->name))
        text_puts(c, "#ifdef __GNUC__\n#pragma GCC diagnostic ignored \"-Wshadow\"\n#endif\n\n");
    write_pieces(p, c);
    put_section(c, "kernels");
    if (p->threads > 1)
        text_puts(c, no_invented_stores);
    text_puts(c, kernels.s ? kernels.s : "");
    put_section(c, "the model");
    /* names, weights and reference vectors are string literals, and any of them can be long */
    text_puts(
        c, "#ifdef __GNUC__\n#pragma GCC diagnostic ignored \"-Woverlength-strings\"\n#endif\n\n");
    describe_write(p, c);
    write_step_hook(p, c);
    if (p->threads > 1) {
        program_write_text(p, c, snippet_find("team_run")->text);
        text_putc(c, '\n');
        program_write_text(p, c, share_text);
    }
    text_puts(c, lifetime.s);
    weights_write_data(p, c);
    if (!o->no_main)
        selftest_write(p, o->vectors, c);
    return true;
}
