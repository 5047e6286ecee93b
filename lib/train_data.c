/* train_data.c - from files to the inputs of a training's entries.
 *
 * An array's leading axis counts the samples. Where the model's inputs have a first axis of open
 * size, a run takes a whole batch; where it is fixed, that many samples; where an array has one
 * axis more than the input, one sample.
 */
#include "lib/train.h"

#include <string.h>

/* -------------------------------------------------------------------------------------- opening */

static bool open_files(struct trainer *r, struct dataset *d, const struct input_file *f, int n)
{
    for (int i = 0; i < n; i++)
        if (!dataset_open(d, f[i].path, f[i].name))
            return diag_error(r->t, NULL, "%s", d->error);
    return true;
}

static void close_data(void *d) { dataset_close(d); }

bool train_open_data(struct trainer *r)
{
    const struct training_options *o = &r->o.training;
    held_add(r->t, close_data, &r->data);
    held_add(r->t, close_data, &r->valid);
    if (!open_files(r, &r->data, o->data, o->ndata) ||
        !open_files(r, &r->valid, o->valid, o->nvalid))
        return false;
    r->batch = o->batch ? o->batch : r->data.nsample < 32 ? r->data.nsample : 32;
    return r->batch <= r->data.nsample ||
           diag_error(r->t, NULL, "--batch=%lld is more than the %lld samples of --data",
                      (long long)r->batch, (long long)r->data.nsample);
}

/* ------------------------------------------------------------------------------------- matching */

static const char *names_of_arrays(struct tgc *t, const struct dataset *d)
{
    struct text x = {.t = t};
    text_puts(&x, "");
    for (int i = 0; i < d->narray; i++)
        text_printf(&x, "%s'%.60s'", i ? ", " : "", d->array[i].name);
    return x.s;
}

/* The array of an input; without a name of its own, the only array that is no target. */
static const struct dataset_array *array_for(const struct dataset *d, const char *name,
                                             bool is_only)
{
    const struct dataset_array *a = dataset_find(d, name);
    return a ? a : is_only ? dataset_find(d, "input") : NULL;
}

static enum loader_type loader_type_of(enum dtype d)
{
    switch (d) {
    case DTYPE_BOOL: return LOADER_BOOL;
    case DTYPE_U8: return LOADER_U8;
    case DTYPE_I8: return LOADER_I8;
    case DTYPE_U16: return LOADER_U16;
    case DTYPE_I16: return LOADER_I16;
    case DTYPE_U32: return LOADER_U32;
    case DTYPE_I32: return LOADER_I32;
    case DTYPE_U64: return LOADER_U64;
    case DTYPE_I64: return LOADER_I64;
    case DTYPE_F16: return LOADER_F16;
    case DTYPE_F32: return LOADER_F32;
    case DTYPE_F64: return LOADER_F64;
    default: return LOADER_NTYPE;
    }
}

static const char *shape_of(struct tgc *t, const struct dataset_array *a)
{
    struct text x = {.t = t};
    text_printf(&x, "%s[", loader_type_name(a->type));
    for (int i = 0; i < a->rank; i++)
        text_printf(&x, "%s%lld", i ? ", " : "", (long long)a->dim[i]);
    text_puts(&x, "]");
    return x.s;
}

/* The samples that a run takes, by this input; its other axes against the array's. */
static bool fit_input(struct trainer *r, const struct model_input *in,
                      const struct dataset_array *a, int64_t *micro)
{
    int extra = in->has_shape ? a->rank - in->ndim : 0;
    bool fits = (extra == 0 || extra == 1) && a->rank > 0;
    for (int i = 1; i < a->rank && fits && in->has_shape; i++)
        fits = in->dim[i - extra] < 0 || in->dim[i - extra] == a->dim[i];
    if (!fits)
        return diag_error(r->t, &(struct place){.file = a->file},
                          "holds %s, and the first axis counts samples; the input '%.100s' is of "
                          "another shape, see tgc info",
                          shape_of(r->t, a), in->name);
    *micro = extra == 1 ? 1 : in->has_shape && in->dim[0] > 0 ? in->dim[0] : r->batch;
    r->is_one |= extra == 1;
    struct onnx_shape_option shape = {.input = in->name, .ndim = a->rank - extra};
    for (int i = extra; i < a->rank; i++)
        shape.dim[i - extra] = i == 0 ? *micro : a->dim[i];
    VEC_PUSH(r->t, r->o.shape, r->o.nshape, r->o.cap_shape, shape);
    return true;
}

static bool add_fed(struct trainer *r, const char *name, enum dtype dtype, bool is_only)
{
    const struct dataset_array *a = array_for(&r->data, name, is_only), *valid = NULL;
    struct fed *f = &r->fed[r->nfed++];
    if (!a)
        return diag_error(r->t, NULL, "--data has nothing for '%.100s': give --data %.100s=FILE%s%s",
                          name, name, r->data.narray ? "; it has " : "",
                          names_of_arrays(r->t, &r->data));
    *f = (struct fed){.name = name, .source = a->name};
    if (loader_type_of(dtype) == LOADER_NTYPE)
        return diag_error(r->t, NULL, "the input '%.100s' is of %s, which no file of --data holds",
                          name, dtype_name(dtype));
    if (!r->o.training.nvalid)
        return true;
    valid = array_for(&r->valid, name, is_only);
    if (!valid)
        return diag_error(r->t, NULL, "--valid has nothing for '%.100s', which --data has", name);
    f->valid = valid->name;
    bool same = valid->rank == a->rank;
    for (int i = 1; i < a->rank && same; i++)
        same = valid->dim[i] == a->dim[i];
    return same || diag_error(r->t, &(struct place){.file = valid->file},
                              "holds %s for '%.100s', and --data %s: only the first axis, the "
                              "samples, may differ",
                              shape_of(r->t, valid), name, shape_of(r->t, a));
}

bool train_match_data(struct trainer *r)
{
    int n;
    const struct model_input *input = model_inputs(r->t, &r->o, &r->model, &n);
    r->fed = mem_array(r->t, (size_t)n + 1, sizeof *r->fed);
    for (int i = 0; i < n; i++) {
        int64_t micro = 1;
        if (!add_fed(r, input[i].name, input[i].dtype, n == 1) ||
            !fit_input(r, &input[i], dataset_find(&r->data, r->fed[i].source), &micro))
            return false;
        if (i && micro != r->micro)
            return diag_error(r->t, NULL,
                              "the input '%.100s' takes %lld samples in a run, '%.100s' %lld: the "
                              "first axes of all inputs count the same",
                              input[0].name, (long long)r->micro, input[i].name, (long long)micro);
        r->micro = micro;
    }
    return r->o.training.loss == LOSS_OUTPUT || add_fed(r, "target", DTYPE_F32, false);
}

/* --------------------------------------------------------------------------------------- values */

static bool check_targets(struct trainer *r, struct dataset *d)
{
    enum { MOST = 4096 };
    const struct dataset_array *a = dataset_find(d, "target");
    int64_t rows = a->row_nelem > MOST ? 1 : MOST / (a->row_nelem ? a->row_nelem : 1);
    double *v = mem_array(r->t, (size_t)(rows * a->row_nelem), sizeof *v);
    int64_t *index = mem_array(r->t, (size_t)rows, sizeof *index);
    for (int64_t at = 0; at < d->nsample; at += rows) {
        int64_t n = d->nsample - at < rows ? d->nsample - at : rows;
        for (int64_t i = 0; i < n; i++)
            index[i] = at + i;
        if (!dataset_gather(d, a, index, n, v, LOADER_F64))
            return diag_error(r->t, NULL, "%s", d->error);
        for (int64_t i = 0; i < n * a->row_nelem; i++)
            if (!(v[i] >= 0 && v[i] < (double)r->nclass && v[i] == (double)(int64_t)v[i]))
                return diag_error(r->t, &(struct place){.file = a->file},
                                  "the target of sample %lld is %g; the model has the classes 0 "
                                  "to %lld",
                                  (long long)(at + i / a->row_nelem), v[i],
                                  (long long)r->nclass - 1);
    }
    return true;
}

bool train_check_classes(struct trainer *r)
{
    return !r->nclass || (check_targets(r, &r->data) &&
                          (!r->o.training.nvalid || check_targets(r, &r->valid)));
}

/* --------------------------------------------------------------------------------------- batches */

bool train_stream(struct trainer *r, bool is_valid, const struct stream_options *given,
                  struct stream *s)
{
    struct stream_field *field = mem_array(r->t, (size_t)r->nfed + 1, sizeof *field);
    struct stream_options o = *given;
    for (int i = 0; i < r->nfed; i++) {
        const struct array *in = train_input(r, &r->graph.train, i);
        field[i] = (struct stream_field){is_valid ? r->fed[i].valid : r->fed[i].source,
                                         loader_type_of(in->dtype)};
    }
    o.field = field;
    o.nfield = r->nfed;
    return dataset_stream_start(s, is_valid ? &r->valid : &r->data, &o) ||
           diag_error(r->t, NULL, "%s", s->error);
}

struct array *train_input(struct trainer *r, const struct train_entry *e, int fed)
{
    return &r->program.input[fed < r->graph.ninput ? e->input + fed : e->target];
}
