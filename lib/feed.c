/* feed.c - the inputs of run, verify and bench: read from files, matched with the model's, and used
 * to settle its open dimensions.
 *
 * Files are read before the model is lowered, since their shapes may be the only source of a
 * dimension: they act as if
 * --shape had been given, but for dimensions that --dim leaves to run time.
 */
#include "lib/lib.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool is_given_by_option(const struct options *o, const char *dim)
{
    for (int i = 0; i < o->ndim; i++)
        if (strcmp(o->dim[i].name, dim) == 0)
            return true;
    return false;
}

/* Whether --dim names it, or what it is a sum of: "past + new". */
static bool is_bounded_by_option(struct tgc *t, const struct options *o, const char *dim)
{
    bool given = is_given_by_option(o, dim), sum = strchr(dim, '+') != NULL;
    for (const char *rest = dim; sum && !given && *rest;)
        given = is_given_by_option(o, onnx_next_term(t, &rest));
    return given;
}

static const char *declared_text(struct tgc *t, const struct model_input *v)
{
    struct text x = {.t = t};
    text_printf(&x, "%s[", dtype_name(v->dtype));
    for (int i = 0; i < v->ndim; i++) {
        text_puts(&x, i ? "," : "");
        if (v->dim[i] >= 0)
            text_printf(&x, "%lld", (long long)v->dim[i]);
        else
            text_printf(&x, "%.60s", v->symbol[i] ? v->symbol[i] : "?");
    }
    text_putc(&x, ']');
    return x.s;
}

enum { MAX_TOLD = 4096 };

/* Small inputs may determine shapes (a list of axes, the length of a range): passes their values to
 * the frontend. */
static void tell_value(struct tgc *t, struct options *o, const struct model_input *input,
                       const struct array *v)
{
    if (!v->data || v->nelem > MAX_TOLD || v->dtype == DTYPE_STRING)
        return;
    struct onnx_value_option value = {.input = input->name,
                                      .dtype = v->dtype,
                                      .ndim = v->ndim,
                                      .data = v->data,
                                      .nbytes = v->nbytes};
    memcpy(value.dim, v->dim, sizeof value.dim);
    VEC_PUSH(t, o->value, o->nvalue, o->cap_value, value);
}

bool feed_settle_shape(struct tgc *t, struct options *o, const struct model_input *input,
                       const struct array *v, const char *source)
{
    tell_value(t, o, input, v);
    for (int i = 0; i < o->nshape; i++)
        if (strcmp(o->shape[i].input, input->name) == 0)
            return true; /* the user has given it; instance_set_input() compares */
    struct onnx_shape_option s = {.input = input->name, .ndim = v->ndim};
    memcpy(s.dim, v->dim, sizeof s.dim);
    bool fits = !input->has_shape || input->ndim == v->ndim;
    for (int i = 0; i < v->ndim && fits && input->has_shape; i++) {
        if (input->dim[i] >= 0)
            fits = input->dim[i] == v->dim[i];
        const char *name = input->symbol[i] ? input->symbol[i]
                                            : mem_printf(t, "%s_dim%d", input->name, i);
        if (input->dim[i] == -2 || is_bounded_by_option(t, o, name))
            s.dim[i] = -1;                           /* instance_fit() compares */
    }
    if (!fits)
        return diag_error(t, &(struct place){.file = source}, "holds %s; the input '%.100s' is %s",
                          array_type_text(t, v), input->name, declared_text(t, input));
    VEC_PUSH(t, o->shape, o->nshape, o->cap_shape, s);
    return true;
}

static const struct input_file *find_file(const struct options *o, const char *name)
{
    const struct input_file *found = NULL;
    for (int i = 0; i < o->ninput; i++)
        if (strcmp(o->input[i].name, name) == 0)
            found = &o->input[i];
    return found;
}

const char *names_of_inputs(struct tgc *t, const struct model_input *input, int n)
{
    struct text x = {.t = t};
    for (int i = 0; i < n; i++)
        text_printf(&x, "%s'%.100s'", i ? ", " : "", input[i].name);
    return n ? x.s : "none";
}

/* Whether the model itself gives the value. */
static bool is_constant(const struct model *m, const char *name)
{
    const GraphProto *g = m->onnx ? m->onnx->proto->graph : NULL;
    for (size_t i = 0; g && i < g->n_initializer; i++)
        if (strcmp(g->initializer[i]->name, name) == 0)
            return true;
    return false;
}

static bool check_names(struct tgc *t, const struct options *o, const struct model *m,
                        const struct model_input *input, int n)
{
    for (int i = 0; i < o->ninput; i++) {
        bool known = false;
        for (int k = 0; k < n && !known; k++)
            known = strcmp(o->input[i].name, input[k].name) == 0;
        if (!known && is_constant(m, o->input[i].name))
            return diag_error(
                t, &(struct place){.file = o->model},
                "-i %.100s=%.200s: the model gives '%.100s' a value (an initializer), "
                "which is compiled in; remove that from the model to make it an input",
                o->input[i].name, o->input[i].path, o->input[i].name);
        if (!known)
            return diag_error(t, &(struct place){.file = o->model},
                              "the model has no input '%.100s' (-i %.100s=%.200s); it has %s",
                              o->input[i].name, o->input[i].name, o->input[i].path,
                              names_of_inputs(t, input, n));
    }
    return true;
}

/* A layout that no input uses is a mistake in its name. */
static bool check_layouts(struct tgc *t, const struct options *o, const struct feed *f,
                          const bool *is_image)
{
    for (int i = 0; i < o->nlayout; i++) {
        const char *name = o->layout[i].input;
        bool used = false;
        for (int k = 0; k < f->n; k++)
            used |= is_image[k] && (!name || strcmp(name, f->input[k].name) == 0);
        if (!used)
            return diag_error(t, &(struct place){.file = o->model},
                              "--image-layout is given, but -i gives no picture%s%.100s%s",
                              name ? " for an input '" : "", name ? name : "", name ? "'" : "");
    }
    return true;
}

/* ------------------------------------------------------------------------ values without a file */

enum word { WORD_NONE, WORD_NUMBER, WORD_ZEROS, WORD_ONES, WORD_RANDOM };

static enum word word_of(const char *s)
{
    char *end;
    strtod(s, &end);
    return end != s && !*end          ? WORD_NUMBER
           : strcmp(s, "zeros") == 0  ? WORD_ZEROS
           : strcmp(s, "ones") == 0   ? WORD_ONES
           : strcmp(s, "random") == 0 ? WORD_RANDOM
                                      : WORD_NONE;
}

bool feed_is_value(const char *given) { return word_of(given) != WORD_NONE; }

/* The number as the input's dtype has it. false: it has no such number. */
static bool read_scalar(const char *s, enum dtype d, union scalar *v)
{
    char *end;
    if (dtype_is_float(d)) {
        v->f = strtod(s, &end);
        return true;
    }
    errno = 0;
    v->i = d == DTYPE_U64 ? (int64_t)strtoull(s, &end, 10) : strtoll(s, &end, 10);
    if (*end || errno || (d == DTYPE_U64 && *s == '-'))
        return false;
    return d == DTYPE_BOOL ? v->i == 0 || v->i == 1
                           : d == DTYPE_U64 || (v->i >= dtype_min(d) && v->i <= dtype_max(d));
}

/* A dimension that is open: what --dim says, else what an input has that is a file. -1: neither. */
static int64_t find_size(const struct options *o, const struct feed *f, const char *symbol)
{
    int64_t size = -1;
    for (int i = 0; symbol && i < o->ndim; i++)
        if (strcmp(o->dim[i].name, symbol) == 0)
            size = o->dim[i].max;
    for (int k = 0; symbol && k < f->n; k++)
        for (int i = 0;
             i < f->input[k].ndim && f->value[k].data && f->value[k].ndim == f->input[k].ndim; i++)
            if (f->input[k].symbol[i] && strcmp(f->input[k].symbol[i], symbol) == 0)
                size = f->value[k].dim[i];
    return size;
}

static bool find_shape(struct tgc *t, const struct options *o, const struct feed *f,
                       const struct model_input *in, const char *given, struct array *v)
{
    const struct onnx_shape_option *said = NULL;
    for (int i = 0; i < o->nshape; i++)
        said = strcmp(o->shape[i].input, in->name) == 0 ? &o->shape[i] : said;
    struct place at = {.file = o->model};
    if (!in->has_shape && !said)
        return diag_error(
            t, &at,
            "-i %.100s=%.60s: the model does not say the shape of this input; expected "
            "--shape %.100s=SIZES, too",
            in->name, given, in->name);
    v->ndim = said ? said->ndim : in->ndim;
    for (int i = 0; i < v->ndim; i++) {
        v->dim[i] = said && said->dim[i] >= 0 ? said->dim[i] : i < in->ndim ? in->dim[i] : -1;
        if (v->dim[i] < 0)
            v->dim[i] = find_size(
                o, f, in->symbol[i] ? in->symbol[i] : mem_printf(t, "%s_dim%d", in->name, i));
        if (v->dim[i] < 0)
            return diag_error(t, &at,
                              "-i %.100s=%.60s: axis %d of this input is open%s%.60s%s; expected "
                              "--dim or --shape, "
                              "or a file that has it",
                              in->name, given, i, in->symbol[i] ? ": '" : "",
                              in->symbol[i] ? in->symbol[i] : "", in->symbol[i] ? "'" : "");
    }
    return true;
}

/* All elements are the number, zeros or ones. random: no data, but a shape, so that the run draws
 * what an input has that is not given. */
static bool make_value(struct tgc *t, const struct options *o, const struct feed *f,
                       const struct model_input *in, const char *given, struct array *v)
{
    enum word word = word_of(given);
    const char *number = word == WORD_NUMBER ? given : word == WORD_ONES ? "1" : "0";
    union scalar s = {0};
    *v = (struct array){.name = in->name, .dtype = in->dtype};
    bool fits =
        in->dtype != DTYPE_VOID &&
        (word == WORD_RANDOM || (in->dtype != DTYPE_STRING && read_scalar(number, in->dtype, &s)));
    if (!fits)
        return diag_error(t, &(struct place){.file = o->model},
                          "-i %.100s=%.60s: the input is %s, which has no such value", in->name,
                          given, in->dtype == DTYPE_VOID ? "no tensor" : declared_text(t, in));
    if (!find_shape(t, o, f, in, given, v))
        return false;
    if (word == WORD_RANDOM)
        return true;
    if (!array_allocate(t, v))
        return false;
    for (size_t i = 0; i < v->nelem; i++)
        scalar_store(v->dtype, (char *)v->data + i * dtype_nbytes(v->dtype), s);
    return true;
}

/* After all files, whose shapes say what is open. */
static bool read_values(struct tgc *t, struct options *o, int from, int count, struct feed *f)
{
    for (int i = from; i < from + count; i++) {
        const struct input_file *given = find_file(o, f->input[i].name);
        if (!given || !feed_is_value(given->path))
            continue;
        f->source[i] = mem_printf(t, "-i %s=%s", given->name, given->path);
        if (!make_value(t, o, f, &f->input[i], given->path, &f->value[i]) ||
            !feed_settle_shape(t, o, &f->input[i], &f->value[i], f->source[i]))
            return false;
        if (!f->value[i].data && word_of(given->path) == WORD_RANDOM)
            f->source[i] = NULL;                                /* not given, but for its shape */
    }
    return true;
}

bool feed_read(struct tgc *t, struct options *o, const struct model *m, struct feed *f)
{
    f->input = model_inputs(t, o, m, &f->n);
    f->value = mem_array(t, (size_t)f->n, sizeof *f->value);
    f->source = mem_array(t, (size_t)f->n, sizeof *f->source);
    bool *is_image = mem_array(t, (size_t)f->n + 1, sizeof *is_image);
    int from, count = model_count_of_entry(o, m, false, f->n, &from);
    if (!check_names(t, o, m, f->input + from, count))
        return false;
    for (int i = from; i < from + count; i++) {
        const struct input_file *file = find_file(o, f->input[i].name);
        if (!file || feed_is_value(file->path))
            continue;
        f->source[i] = file->path;
        is_image[i] = image_is(file->path);
        if (is_image[i] && !image_input(t, o, file->path, &f->input[i], &f->value[i]))
            return false;
        if (!is_image[i] && !npy_read(t, file->path, f->input[i].dtype, &f->value[i]))
            return diag_error(t, &(struct place){.file = file->path},
                              "is given for the input '%.100s', which is %s", f->input[i].name,
                              declared_text(t, &f->input[i]));
        if (!feed_settle_shape(t, o, &f->input[i], &f->value[i], file->path))
            return false;
    }
    return read_values(t, o, from, count, f) && check_layouts(t, o, f, is_image);
}

bool feed_instance(struct tgc *t, const struct feed *f, struct instance *p)
{
    for (int i = 0; i < p->info->state_count; i++)
        for (int k = 0; k < f->n; k++)
            if (f->source[k] && strcmp(f->input[k].name, p->info->states[i].input.name) == 0 &&
                !instance_set_state(t, p, i, &f->value[k], f->source[k]))
                return false;
    for (int i = 0; i < p->info->input_count; i++) {
        for (int k = 0; k < f->n; k++) {
            bool is_it = f->source[k] && strcmp(f->input[k].name, p->info->inputs[i].name) == 0 &&
                         /* entries may have the same names */
                         (p->info->entry_count == 0 || k == i);
            if (is_it && !instance_set_input(t, p, i, &f->value[k], f->source[k]))
                return false;
        }
    }
    return instance_fit(t, p);
}
