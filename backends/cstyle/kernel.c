/* kernel.c - what all C-like languages have in common about a kernel: its function's parameters,
 * their names, and the comment above the function.
 */
#include "backends/cstyle/cstyle.h"
#include "ir/device_ops.h"

#include <string.h>

/* ----------------------------------------------------------------------------------- parameters */

/* The maps that a program's copies need and the list has not. */
static void add_maps(struct tgc *t, const struct kernel *k, struct uop *const *u, int nuop,
                     struct parameter **list, int *n, size_t *cap)
{
    for (int i = 0; i < nuop; i++) {
        bool known = !op_is_box(u[i]->op);
        for (int j = 0; j < *n && !known; j++)
            known = (*list)[j].map && bulk_is_of_same_map((*list)[j].map, u[i]);
        const struct buffer *b =
            known ? NULL
                  : kernel_buffer_here(k, uop_buffer_of(u[i]->src[bulk_source(u[i], BULK_FROM)]));
        int at = 0;
        while (!known && k->buffer[at] != b)
            at++;
        if (!known)
            VEC_PUSH(t, *list, *n, *cap, ((struct parameter){.b = b, .at = at, .map = u[i]}));
    }
}

struct parameter *kernel_parameters(struct tgc *t, const struct kernel *k, int *n)
{
    size_t cap = (size_t)(k->nbuffer + k->nscratch + k->nvar) + 1;
    struct parameter *list = mem_array(t, cap, sizeof *list);
    *n = 0;
    for (int i = 0; i < k->nbuffer; i++)
        list[(*n)++] = (struct parameter){.b = k->buffer[i], .at = i};
    for (int i = 0; i < k->nscratch; i++)
        if (!scratch_is_on_stack(k->scratch[i]))
            list[(*n)++] = (struct parameter){.b = k->scratch[i], .at = k->nbuffer + i};
    for (int i = 0; i < k->nvar; i++)
        list[(*n)++] = (struct parameter){.v = k->var[i]};
    add_maps(t, k, k->linear, k->nlinear, &list, n, &cap);
    for (int i = 0; i < k->nvariant; i++)
        add_maps(t, k, k->variant[i].linear, k->variant[i].nlinear, &list, n, &cap);
    return list;
}

bool parameter_is_written(const struct kernel *k, const struct parameter *a)
{
    return a->at < k->noutput || a->at >= k->nbuffer;
}

bool parameter_is_restrict(const struct kernel *k, const struct parameter *a)
{
    if (a->at >= k->nbuffer)
        return a->b->scratch.space != SPACE_GLOBAL; /* what other blocks store there is read, too */
    for (int j = 0; j < k->nbuffer; j++)
        if (j != a->at && (a->at < k->noutput || j < k->noutput) &&
            buffers_may_alias(a->b, k->buffer[j]))
            return false;
    return true;
}

bool var_is_int(const struct var *v) { return v->max <= INT32_MAX && v->min >= INT32_MIN; }

/* ---------------------------------------------------------------------------------------- names */

const char *parameter_name(struct function *f, const char *stem)
{
    const char *s = names_number(f->names, stem, "");
    names_add(f->names, s);
    return s;
}

void kernel_name_parameters(struct function *f)
{
    const struct kernel *k = f->k;
    struct tgc *t = f->p->t;
    f->names = names_new(t, f->p->visible);
    f->buffer_name = mem_array(t, (size_t)(k->nbuffer + k->nscratch), sizeof *f->buffer_name);
    f->is_used = mem_array(t, (size_t)(k->nbuffer + k->nscratch) + 1, sizeof *f->is_used);
    for (int i = 0; i < k->nvar; i++)
        names_add(f->names, program_var(f->p, k->var[i]));
    if (k->is_shared) {
        names_add(f->names, "part");
        names_add(f->names, "parts");
    }
    if (k->block) {
        names_add(f->names, "thread");
        names_add(f->names, "threads");
    }
    for (int i = 0; i < k->nbuffer; i++)
        f->buffer_name[i] = parameter_name(f, stem_of_parameter(f, i));
    for (int i = 0; i < k->nscratch; i++)
        f->buffer_name[k->nbuffer + i] = parameter_name(f, stem_of_tile(f, k->scratch[i]));
}

/* ------------------------------------------------------------------------------------- comment */

/* "[27][7][64]" of a tensor whose axes are stored in another order than they are counted in; NULL:
 * in that order. Axes of one element count for nothing. */
static const char *stored_dims(struct tgc *t, const struct buffer *b)
{
    struct text x = {.t = t};
    bool differs = false;
    int last = -1;
    for (int i = 0; b->order.is_set && i < b->ndim; i++) {
        int a = b->order.axis[i];
        if (uop_is_int(b->dim[a], 1))
            continue;
        differs |= a < last;
        last = a;
        text_dims(&x, &b->dim[a], 1, "[", "]");
    }
    return differs ? x.s : NULL;
}

static void write_tensor(struct tgc *t, const struct buffer *b, struct text *out)
{
    const char *stored = stored_dims(t, b);
    text_printf(out, " %s", dtype_name(b->dtype));
    text_dims(out, b->dim, b->ndim, "[", "]");
    if (stored)
        text_printf(out, ", stored %s", stored);
}

/* '"conv1.weight", packed in panels of 8': the model's own weight, and what became of it. */
static void write_weight(struct tgc *t, const struct buffer *b, struct text *out)
{
    const char *how = b->weight.how;
    for (; b->weight.of; b = b->weight.of)
        if (b->weight.of->weight.how)
            how = how ? mem_printf(t, "%s, %s", b->weight.of->weight.how, how)
                      : b->weight.of->weight.how;
    if (b->name && *b->name) {
        text_puts(out, "  weight \"");
        text_comment(out, b->name);
        text_putc(out, '"');
    }
    if (how)
        text_printf(out, ", %s", how);
}

/* "y may overlap x": where a run has them in one place. */
static void write_overlaps(const struct function *f, struct text *out)
{
    const struct kernel *k = f->k;
    for (int i = 0; i < k->noutput; i++)
        for (int j = 0; j < k->nbuffer; j++)
            if (j != i && (j >= k->noutput || j > i) &&
                buffers_may_alias(k->buffer[i], k->buffer[j]))
                text_printf(out, "\n * %s may overlap %s: what a run puts there was read before.",
                            f->buffer_name[i], f->buffer_name[j]);
}

/* The first kernel of a range that reads what k has written, and that a node of the model names. */
static const struct kernel *named_reader(const struct program *p, const struct kernel *k, int from,
                                         int end)
{
    for (int i = from; i < end; i++) {
        const struct kernel *r = p->s->kernel[i];
        for (int j = r->noutput; j < r->nbuffer && r->nnode > 0; j++)
            for (int o = 0; o < k->noutput; o++)
                if (buffer_root(r->buffer[j]) == buffer_root(k->buffer[o]))
                    return r;
    }
    return NULL;
}

/* The model's nodes that the kernel computes; of a copy, those that read it. */
static void write_nodes(const struct program *p, const struct kernel *k, const char *name,
                        struct text *out)
{
    nodes_write(k->nodes && *k->nodes ? k->nodes : name, out);
    if (k->nnode > 0)
        return;
    /* what an earlier kernel reads is for a loop's next iteration, or for the next run */
    const struct kernel *next = named_reader(p, k, 0, k->index),
                        *reader = next ? next : named_reader(p, k, k->index + 1, p->s->nkernel);
    if (reader) {
        text_puts(out, next ? ", for the next step of " : ", for ");
        text_comment(out, reader->title);
    }
}

/* How its nodes are computed, a line each, where that is not what their operators say. */
static void write_steps(const struct function *f, struct text *out)
{
    for (const char *s = f->k->steps; s && *s;) {
        int n = (int)strcspn(s, "\n");
        text_printf(out, "\n * %.*s.", n, s);
        s += n + (s[n] == '\n');
    }
    if (f->k->by_blocks && !f->p->backend->device)
        text_puts(out, "\n * Online softmax: a row's maximum and sum follow the keys, block by block.");
}

/* A kernel that calls the same function, and which of its tensors have other sizes. */
static void write_twin(const struct function *f, const struct kernel *twin, struct text *out)
{
    text_puts(out, "\n * the same: ");
    write_nodes(f->p, twin, twin->name, out);
    for (int i = 0; i < twin->nbuffer; i++)
        if (twin->buffer[i]->nbytes != f->k->buffer[i]->nbytes) {
            text_printf(out, ", %s", f->buffer_name[i]);
            write_tensor(f->p->t, twin->buffer[i], out);
        }
}

void kernel_write_comment(const struct function *f, struct text *out)
{
    const struct kernel *k = f->k;
    const struct program *p = f->p;
    text_puts(out, "/* ");
    write_nodes(p, k, program_kernel_name(p, k), out);
    write_steps(f, out);
    for (int i = 0; i < k->nbuffer; i++) {
        const struct buffer *b = k->buffer[i];
        text_puts(out, "\n *   ");
        size_t start = out->n;
        text_puts(out, f->buffer_name[i]);
        text_pad(out, start, 3);
        write_tensor(p->t, b, out);
        if (b->kind == BUFFER_WEIGHT) {
            write_weight(p->t, b, out);
        } else if (b->name && *b->name) {
            text_puts(out, b->port.state             ? "  state \""
                           : b->kind == BUFFER_INPUT ? "  input \""
                                                     : "  \"");
            text_comment(out, b->name);
            text_puts(out, "\"");
        }
        if (i < k->noutput)
            text_puts(out, "  <- result");
    }
    for (int i = 0; i < k->nscratch; i++)
        if (k->scratch[i]->scratch.space == SPACE_GLOBAL) {
            text_printf(out, "\n *   %s", f->buffer_name[k->nbuffer + i]);
            write_tensor(p->t, k->scratch[i], out);
            text_puts(out, k->scratch[i]->scratch.counts ? "  blocks that have come"
                                                         : "  parts of sums");
        }
    for (int i = k->index + 1; i < p->s->nkernel; i++)
        if (p->twin[i] == k)
            write_twin(f, p->s->kernel[i], out);
    write_overlaps(f, out);
    if (k->flop > 0 || k->nbytes > 0) {
        text_printf(out, "\n * %s", text_si(p->t, k->flop, "FLOP"));
        text_puts(out, ", touches ");
        text_bytes(out, k->nbytes);
        text_putc(out, '.');
    }
    text_puts(out, " */\n");
}
