/* fit.c - run-time sizes: the values of a model's symbols by the shapes of its inputs, by the rules
 * of NAME_describe(). runtime/fit.c, which emitted programs carry, too, solves and compares.
 */
#include "lib/lib.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/fit.c"

static const struct program_tensor *tensor_of(const struct program_info *info, int i)
{
    return i < info->input_count ? &info->inputs[i] : &info->states[i - info->input_count].input;
}

static bool misfit(struct tgc *t, const struct program_info *info, const struct sized *x, size_t at,
                   int64_t expected)
{
    int i = (int)(at / MAX_RANK), a = (int)(at % MAX_RANK);
    const struct program_tensor *tensor = tensor_of(info, i);
    const struct place place = {.file = x[i].source};
    return expected < 0
               ? diag_error(
                     t, &place,
                     "dimension %d of the input '%.100s' is %lld, which no value of its symbol "
                     "makes: it is '%.100s'",
                     a, tensor->name, (long long)x[i].dim[a], tensor->dim[a].symbol)
               : diag_error(
                     t, &place,
                     "dimension %d of the input '%.100s' is %lld, but by the other sizes '%.100s' "
                     "is %lld",
                     a, tensor->name, (long long)x[i].dim[a], tensor->dim[a].symbol,
                     (long long)expected);
}

/* The first input that has the symbol in a size. NULL: none of those that are given. */
static const struct program_tensor *user_of(const struct program_info *info, const struct sized *x,
                                            int symbol)
{
    for (int i = 0; i < info->input_count + info->state_count; i++)
        for (int a = 0; x[i].dim && a < tensor_of(info, i)->rank; a++)
            for (const char *s = info->feeds[i].rule[a]; s && (s = strchr(s, '$')); s++)
                if (atoi(s + 1) == symbol)
                    return tensor_of(info, i);
    return NULL;
}

static bool check_symbol(struct tgc *t, const struct program_info *info, const struct sized *x,
                         int i, int64_t value, bool all)
{
    const struct program_symbol *s = &info->symbols[i];
    const struct program_tensor *user = user_of(info, x, i);
    if (value < 0 && all && user && s->offset != PROGRAM_NO_OFFSET)
        return diag_error(t, NULL,
                          "the size of the input '%.100s' does not say how large '%.100s' is: give "
                          "the inputs that do, "
                          "or compile with --dim '%.100s=%lld'",
                          user->name, s->name, s->name, (long long)s->max);
    if (value >= 0 && (value < s->min || value > s->max))
        return diag_error(
            t, NULL,
            "'%.100s' is %lld by the input '%.100s'; the model was compiled for %lld to %lld",
            s->name, (long long)value, user ? user->name : "", (long long)s->min,
            (long long)s->max);
    return true;
}

static bool find_symbols(struct tgc *t, const struct program_info *info, const struct sized *x,
                         bool all, int64_t *symbol)
{
    int n = info->input_count + info->state_count;
    struct fit_size *at = scratch_array(t, (size_t)n * MAX_RANK + 1, sizeof *at);
    int64_t *value = scratch_array(t, (size_t)info->symbol_count + 1, sizeof *value), expected = 0;
    for (int i = 0; i < info->symbol_count; i++)
        value[i] = -1;
    for (int i = 0; i < n; i++)
        for (int a = 0; x[i].dim && a < tensor_of(info, i)->rank; a++)
            at[(size_t)i * MAX_RANK + (size_t)a] =
                (struct fit_size){info->feeds[i].rule[a], x[i].dim[a]};
    size_t bad = fit_sizes(at, (size_t)n * MAX_RANK, value, &expected);
    if (bad < (size_t)n * MAX_RANK)
        return misfit(t, info, x, bad, expected);
    for (int i = 0; i < info->symbol_count; i++)
        if (!check_symbol(t, info, x, i, value[i], all))
            return false;
    ARRAY_COPY(symbol, value, info->symbol_count);
    return true;
}

bool fit_inputs(struct tgc *t, const struct program_info *info, const struct sized *x, bool all,
                int64_t *symbol)
{
    struct mem_mark mark = scratch_mark(t);
    bool fits = find_symbols(t, info, x, all, symbol);
    scratch_release(t, mark);
    return fits;
}

bool fit_size(const char *rule, const int64_t *symbol, int64_t *size)
{
    const struct fit_rule r = fit_read(rule, symbol);
    *size = (int64_t)r.value.base;
    return !r.is_open && r.value.slope == 0;
}

/* ---------------------------------------------------------------------------- --shape of a text */

/* The symbols of a text's inputs. */
struct symbols { struct tgc *t; const struct var **var; int n; size_t cap; };

static int number_of(void *user, const struct var *v)
{
    struct symbols *s = user;
    for (int i = 0; i < s->n; i++)
        if (s->var[i] == v)
            return i;
    VEC_PUSH(s->t, s->var, s->n, s->cap, v);
    return s->n - 1;
}

/* An axis whose size an option says. */
struct said { const struct onnx_shape_option *option; struct uop *dim; int axis; };

static bool refuse(struct tgc *t, const struct options *o, const struct said *x, const char *why)
{
    return diag_error(t, &(struct place){.file = o->model}, "--shape %.100s=...: %s",
                      x->option->input, why);
}

static const char *why_not(struct tgc *t, const struct said *x, int64_t expected)
{
    struct text text = {.t = t};
    uop_print(&text, x->dim);
    if (x->dim->op == OP_VAR)
        return mem_printf(t, "dimension '%.100s' would have two sizes",
                          ((const struct var *)x->dim->arg.p)->name);
    return expected < 0
               ? mem_printf(t, "axis %d cannot be %lld: it is %.100s", x->axis,
                            (long long)x->option->dim[x->axis], text.s)
               : mem_printf(
                     t, "axis %d cannot be %lld: it is %.100s, which the other sizes make %lld",
                     x->axis, (long long)x->option->dim[x->axis], text.s, (long long)expected);
}

/* The value of a symbol joins what --dim says. */
static bool add_dimension(struct tgc *t, const struct var *v, int64_t value,
                          struct tg_dimension *dim, int *n)
{
    int k = 0;
    (void)t;
    while (k < *n && strcmp(dim[k].name, v->name) != 0)
        k++;
    if (k < *n && (dim[k].min > value || dim[k].max < value))
        return false;
    dim[k] = (struct tg_dimension){v->name, value, value};
    *n += k == *n;
    return true;
}

static struct uop *input_named(const struct graph *g, const char *name)
{
    for (int i = 0; i < g->ninput; i++)
        if (strcmp(((const struct buffer *)g->input[i]->arg.p)->name, name) == 0)
            return g->input[i];
    return NULL;
}

bool fit_shape_options(struct tgc *t, const struct options *o, const struct graph *g,
                       struct tg_dimension *dim, int *n)
{
    struct said *said = mem_array(t, (size_t)o->nshape * MAX_RANK + 1, sizeof *said);
    struct fit_size *at = mem_array(t, (size_t)o->nshape * MAX_RANK + 1, sizeof *at);
    struct symbols symbols = {.t = t};
    size_t count = 0;
    int64_t expected = 0;
    for (int i = 0; i < o->nshape; i++) {
        const struct onnx_shape_option *s = &o->shape[i];
        struct uop *input = input_named(g, s->input);
        for (int a = 0; a < s->ndim; a++) {
            int64_t fixed;
            struct said x = {s, input->dim[a], a};
            if (s->dim[a] < 0)
                continue;
            if (uop_const_int(input->dim[a], &fixed) && fixed != s->dim[a])
                return refuse(t, o, &x,
                              mem_printf(t, "axis %d cannot be %lld", a, (long long)s->dim[a]));
            said[count] = x;
            at[count++] =
                (struct fit_size){size_rule(t, input->dim[a], number_of, &symbols), s->dim[a]};
        }
    }
    int64_t *value = mem_array(t, (size_t)symbols.n + 1, sizeof *value);
    for (int i = 0; i < symbols.n; i++) {
        value[i] = -1;
        for (int k = 0; k < *n; k++)
            if (dim[k].min == dim[k].max && strcmp(dim[k].name, symbols.var[i]->name) == 0)
                value[i] = dim[k].min;
    }
    size_t bad = fit_sizes(at, count, value, &expected);
    if (bad < count)
        return refuse(t, o, &said[bad], why_not(t, &said[bad], expected));
    for (int i = 0; i < symbols.n; i++)
        if (value[i] >= 0 && !add_dimension(t, symbols.var[i], value[i], dim, n))
            return diag_error(t, &(struct place){.file = o->model},
                              "--shape makes '%.100s' %lld, and --dim gives it other bounds",
                              symbols.var[i]->name, (long long)value[i]);
    return true;
}
