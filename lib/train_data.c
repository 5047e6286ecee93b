/* train_data.c - from files to the inputs of a training's entries.
 *
 * An array's leading axis counts the samples. Where the model's inputs have a first axis of open
 * size, a run takes a whole batch, or its part where the batch has parts; where it is fixed, that
 * many samples; where an array has one axis more than the input, one sample.
 */
#include "lib/train.h"

#include <string.h>

/* -------------------------------------------------------------------------------------- opening */

/* The size that a folder's pictures have to have: that of the model's only input. */
static void set_picture_size(const struct trainer *r, struct dataset *d)
{
    int n;
    const struct model_input *in = model_inputs(r->t, &r->o, &r->model, &n);
    const char *layout = n == 1 && in->has_shape ? loader_layout(in->ndim, in->dim) : NULL;
    for (int a = 1; layout && layout[a]; a++) {
        int64_t *size = layout[a] == 'H'   ? &d->picture_height
                        : layout[a] == 'W' ? &d->picture_width
                                           : &d->picture_channels;
        *size = in->dim[a] > 0 ? in->dim[a] : 0;
    }
    if (layout && !strchr(layout, 'C'))
        d->picture_channels = 1;
}

static bool open_files(struct trainer *r, struct dataset *d, const struct input_file *f, int n)
{
    d->target_column = r->o.training.target_column;
    set_picture_size(r, d);
    for (int i = 0; i < n; i++)
        if (!dataset_open(d, f[i].path, f[i].name))
            return diag_error(r->t, NULL, "%s", d->error);
    return true;
}

static void close_data(void *d) { dataset_close(d); }

bool train_open_data(struct trainer *r)
{
    const struct training_options *o = &r->o.training;
    r->valid.classes = &r->data;
    held_add(r->t, close_data, &r->data);
    held_add(r->t, close_data, &r->valid);
    if (!open_files(r, &r->data, o->data, o->ndata) ||
        !open_files(r, &r->valid, o->valid, o->nvalid))
        return false;
    r->batch = o->batch ? o->batch : r->data.nsample < 32 ? r->data.nsample : 32;
    if (r->batch > r->data.nsample)
        return diag_error(r->t, NULL, "--batch=%lld is more than the %lld samples of --data",
                          (long long)r->batch, (long long)r->data.nsample);
    return train_divide(r);
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
    case DTYPE_BF16: return LOADER_BF16;
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

/* The size of the array's axis as it is delivered: of pictures, after crop. */
static int64_t delivered(const struct trainer *r, const struct dataset_array *a, int axis)
{
    const char *crop = r->o.training.augment ? strstr(r->o.training.augment, "crop:") : NULL;
    long long h, w;
    const char *layout = a->rank >= 3 ? loader_layout(a->rank, a->dim) : NULL;
    if (!crop || !layout || sscanf(crop, "crop:%lldx%lld", &h, &w) != 2)
        return a->dim[axis];
    return layout[axis] == 'H' ? h : layout[axis] == 'W' ? w : a->dim[axis];
}

/* A folder's pictures have their channels last, and the model perhaps first. */
static bool set_layout(struct trainer *r, const struct model_input *in,
                       const struct dataset_array *a, struct fed *f)
{
    if (a->rank < 3 || !(r->o.training.augment || a->pictures))
        return true;
    f->augment = r->o.training.augment;
    f->layout = a->pictures ? "NHWC" : loader_layout(a->rank, a->dim);
    f->to_layout = a->pictures && in->has_shape ? loader_layout(in->ndim, in->dim) : f->layout;
    return (f->layout && f->to_layout) ||
           diag_error(r->t, &(struct place){.file = a->file},
                      "%s for '%.100s': where the channels of a picture are cannot be told; they "
                      "are 1, 3 or 4, in the second axis or in the last",
                      shape_of(r->t, a), in->name);
}

/* The axis of the array that is delivered as the input's. */
static int source_axis(const struct fed *f, const struct dataset_array *a, int axis)
{
    if (!f->to_layout || strlen(f->to_layout) != (size_t)a->rank)
        return axis;
    return (int)(strchr(f->layout, f->to_layout[axis]) - f->layout);
}

/* The samples that a run takes, by this input; its other axes against the array's. */
static bool fit_input(struct trainer *r, const struct model_input *in,
                      const struct dataset_array *a, struct fed *f, int64_t *micro)
{
    if (!set_layout(r, in, a, f))
        return false;
    int rank = f->to_layout ? (int)strlen(f->to_layout) : a->rank;
    int extra = in->has_shape ? rank - in->ndim : 0;
    bool fits = extra == 0 || extra == 1;
    *micro = extra == 1 ? 1 : in->has_shape && in->dim[0] > 0 ? in->dim[0] : r->part;
    struct onnx_shape_option shape = {.input = in->name, .ndim = rank - extra};
    for (int i = extra; i < rank && fits; i++) {
        shape.dim[i - extra] = i == 0 ? *micro : delivered(r, a, source_axis(f, a, i));
        int64_t want = in->has_shape ? in->dim[i - extra] : -1;
        fits = i == 0 || want < 0 || want == shape.dim[i - extra];
    }
    if (!fits)
        return diag_error(r->t, &(struct place){.file = a->file},
                          "holds %s, and the first axis counts samples; the input '%.100s' is of "
                          "another shape, see tgc info",
                          shape_of(r->t, a), in->name);
    r->is_one |= extra == 1;
    VEC_PUSH(r->t, r->o.shape, r->o.nshape, r->o.cap_shape, shape);
    return true;
}

static bool add_fed(struct trainer *r, const char *name, enum dtype dtype, bool is_only)
{
    const struct dataset_array *a = array_for(&r->data, name, is_only), *valid = NULL;
    struct fed *f = &r->fed[r->nfed++];
    if (!a)
        return diag_error(r->t, NULL,
                          "--data has nothing for '%.100s': give --data %.100s=FILE%s%s",
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

/* Axes of size 1 that the input has and the file has not, in the array: MNIST's files hold pictures
 * of one channel as [n, 28, 28], which a model takes as [n, 1, 28, 28]. Nothing changes where the
 * other axes differ. */
static void add_ones(struct dataset_array *a, const struct model_input *in)
{
    int64_t dim[LOADER_RANK] = {a->dim[0]};
    int at = 1;
    if (!in->has_shape || in->ndim > LOADER_RANK || a->pictures)
        return;
    for (int k = 1; k < in->ndim; k++) {
        bool is_missing = in->dim[k] == 1 && in->ndim - k > a->rank - at;
        if (!is_missing && (at >= a->rank || a->dim[at++] != in->dim[k]))
            return;
        dim[k] = in->dim[k];
    }
    if (at != a->rank)
        return;
    memcpy(a->dim, dim, (size_t)in->ndim * sizeof *dim);
    a->rank = in->ndim;
}

static void add_ones_to(struct dataset *d, const char *name, const struct model_input *in)
{
    for (int i = 0; i < d->narray && name; i++)
        if (strcmp(d->array[i].name, name) == 0)
            add_ones(&d->array[i], in);
}

bool train_match_data(struct trainer *r)
{
    int n;
    const struct model_input *input = model_inputs(r->t, &r->o, &r->model, &n);
    r->fed = mem_array(r->t, (size_t)n + 1, sizeof *r->fed);
    for (int i = 0; i < n; i++) {
        int64_t micro = 1;
        if (!add_fed(r, input[i].name, input[i].dtype, n == 1))
            return false;
        add_ones_to(&r->data, r->fed[i].source, &input[i]);
        add_ones_to(&r->valid, r->fed[i].valid, &input[i]);
        if (!fit_input(r, &input[i], dataset_find(&r->data, r->fed[i].source), &r->fed[i], &micro))
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
            if (!(v[i] >= 0 && v[i] < (double)r->graph.nclass && v[i] == (double)(int64_t)v[i]))
                return diag_error(r->t, &(struct place){.file = a->file},
                                  "the target of sample %lld is %g; the model has the classes 0 "
                                  "to %lld",
                                  (long long)(at + i / a->row_nelem), v[i],
                                  (long long)r->graph.nclass - 1);
    }
    return true;
}

bool train_check_classes(struct trainer *r)
{
    return !r->graph.nclass || (check_targets(r, &r->data) &&
                          (!r->o.training.nvalid || check_targets(r, &r->valid)));
}

/* -------------------------------------------------------------------------------------- batches */

bool train_stream(struct trainer *r, bool is_valid, const struct stream_options *given,
                  struct stream *s)
{
    struct stream_field *field = mem_array(r->t, (size_t)r->nfed + 1, sizeof *field);
    struct stream_options o = *given;
    for (int i = 0; i < r->nfed; i++) {
        const struct array *in = train_input(r, &r->graph.train, i);
        const struct fed *f = &r->fed[i];
        field[i] = (struct stream_field){is_valid ? f->valid : f->source, loader_type_of(in->dtype),
                                         f->augment, f->layout, f->to_layout};
    }
    o.field = field;
    o.nfield = r->nfed;
    if (!dataset_stream_start(s, is_valid ? &r->valid : &r->data, &o))
        return diag_error(r->t, NULL, "%s", s->error);
    for (int i = 0; i < r->nfed; i++) {
        const struct array *in = train_input(r, &r->graph.train, i);
        const int64_t row = s->array[i].row_nelem, nelem = (int64_t)in->nelem;
        if (sat_mul(row, r->micro) == nelem)
            continue;
        dataset_stream_stop(s);
        if (row > 0 && nelem % row == 0)
            return diag_error(r->t, NULL,
                              "a run has %lld samples, and '%.100s' takes %lld: leave out --shape "
                              "or --dim of its first axis",
                              (long long)r->micro, r->fed[i].name, (long long)(nelem / row));
        return diag_error(r->t, NULL, "--data delivers %lld elements a sample for '%.100s', which "
                          "takes %lld", (long long)row, r->fed[i].name,
                          (long long)(nelem / r->micro));
    }
    return true;
}

struct array *train_input(struct trainer *r, const struct train_entry *e, int fed)
{
    return &r->program.input[fed < r->graph.ninput ? e->input + fed : e->target];
}
