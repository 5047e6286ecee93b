/* trained.c - a model with new values for its weights, as a file: what training ends with.
 *
 *      ONNX ──> .onnx           the loaded model, with other initializers
 *      .tg ──> .onnx            the graph as standard operators
 *      .tg, ONNX ──> .tg        the graph, with its weights in a .safetensors beside it
 *      .tg, ONNX ──> .safetensors     the weights
 *
 * Passes rewrite graphs, and training adds to them: so a graph that is written is read once more
 * from the model. A text graph stays as its author wrote it, but for the contents of its weights;
 * where it needs other files, its ops are written.
 */
#include "lib/lib.h"

#include <errno.h>
#include <string.h>

struct job {
    struct tgc *t;
    const struct options *o;
    const struct model *m;
    const struct array *weight;
    int nweight;
    const char *path;
    struct outputs *files;
};

/* ------------------------------------------------------------------------------------ the graph */

/* The weights of a graph, and what holds the first values of its states. */
struct weights { struct buffer **v; int n; size_t cap; };

static struct weights weights_of(struct tgc *t, const struct graph *g)
{
    struct weights w = {0};
    int nroot, n;
    struct uop **root = graph_roots(t, g, &nroot), **u = uop_toposort(t, root, nroot, &n);
    for (int i = 0; i < n; i++) {
        const struct buffer *b = u[i]->op == OP_BUFFER ? u[i]->arg.p : NULL;
        if (b && b->kind == BUFFER_WEIGHT)
            VEC_PUSH(t, w.v, w.n, w.cap, (struct buffer *)(uintptr_t)b);
    }
    for (int i = 0; i < g->ninput; i++) {
        struct buffer *first = uop_buffer_of(g->input[i])->port.first;
        if (first)
            VEC_PUSH(t, w.v, w.n, w.cap, first);
    }
    return w;
}

/* false: diagnostics. */
static bool read_again(const struct job *j, struct model *again)
{
    struct options as_text = *j->o;
    *again = *j->m;
    if (j->m->onnx)
        return model_lower(j->t, j->o, again);
    as_text.bytes = j->m->text;
    as_text.nbytes = j->m->text_nbytes;
    return model_load(j->t, &as_text, again);
}

static bool has_type(const struct buffer *b, const struct array *v)
{
    bool same = b->dtype == v->dtype && b->ndim == v->ndim;
    for (int a = 0; a < v->ndim && same; a++)
        same = uop_is_int(b->dim[a], v->dim[a]);
    return same;
}

static const char *type_of(struct tgc *t, const struct buffer *b)
{
    struct array v = {.dtype = b->dtype, .ndim = b->ndim};
    for (int a = 0; a < b->ndim; a++)
        v.dim[a] = b->dim[a]->arg.i;
    return array_type_text(t, &v);
}

static struct place place_of(const struct job *j, const char *name)
{
    return (struct place){.file = j->o->model, .text = mem_printf(j->t, "weight '%s'", name)};
}

/* Sets the values of what has the name: several, if a model uses it for several. */
static bool set_values(const struct job *j, const struct weights *w, const struct array *v)
{
    int n = 0;
    struct place at = place_of(j, v->name);
    for (int i = 0; i < w->n; i++) {
        struct buffer *b = w->v[i];
        if (!b->name || strcmp(b->name, v->name) != 0)
            continue;
        if (n++)
            return diag_error(j->t, &at, "several weights of the model have this name; give each "
                                         "its own");
        if (!has_type(b, v))
            return diag_error(j->t, &at, "is %s in the model, but its new values are %s",
                              type_of(j->t, b), array_type_text(j->t, v));
        b->weight.data = v->data;
    }
    return n ? true
             : diag_error(j->t, &at, "the model has no weight of this name, so its new values "
                                     "cannot be written");
}

/* Whether the model's own text can stay, with other contents of its weights: each of them is a
 * statement of it, and it names no other file. */
static bool text_can_stay(const struct job *j, const struct model *again, const struct weights *w)
{
    struct dict names = {0};
    int n = 0;
    if (again->onnx || again->imports)
        return false;
    for (int i = 0; i < again->nweight_text; i++) {
        struct buffer *b = again->weight_text[i].buffer;
        void **seen = b->name ? dict_enter(j->t, &names, b->name) : NULL;
        if (!seen || *seen || !safetensors_holds(b->dtype))
            return false;
        *seen = b;
    }
    for (int i = 0; i < w->n; i++)
        for (int k = 0; k < again->nweight_text; k++)
            n += again->weight_text[k].buffer == w->v[i];
    return n == w->n;
}

/* The model's text, in which each weight is read from the file beside it. */
static void put_source(const struct job *j, const struct model *again, const char *side_file,
                       struct text *out, struct text *side)
{
    int n = again->nweight_text;
    const char *at = j->m->text;
    struct buffer **w = mem_array(j->t, (size_t)n + 1, sizeof *w);
    const char **name = mem_array(j->t, (size_t)n + 1, sizeof *name);
    for (int i = 0; i < n; i++) {
        const struct weight_text *x = &again->weight_text[i];
        w[i] = x->buffer;
        name[i] = x->buffer->name;
        text_write(out, at, (size_t)(x->begin - at));
        text_puts(out, "file(");
        tg_put_quoted(out, side_file, '"');
        text_puts(out, ", ");
        tg_put_quoted(out, name[i], '"');
        text_putc(out, ')');
        at = x->end;
    }
    text_write(out, at, (size_t)(j->m->text + j->m->text_nbytes - at));
    if (n)
        safetensors_write(side, w, name, n);
}

static bool write_text(const struct job *j, const struct model *again, const struct weights *w)
{
    struct text x = {.t = j->t}, side = {.t = j->t};
    const char *beside = path_sibling(j->t, j->path, "safetensors");
    struct tg_write_options write = {.side_file = path_base(beside)};
    if (text_can_stay(j, again, w))
        put_source(j, again, write.side_file, &x, &side);
    else if (!tg_write(j->t, again->graph, &write, &x, &side))
        return false;
    return outputs_put(j->files, j->path, &x) &&
           (!side.n || outputs_put(j->files, beside, &side));
}

/* ----------------------------------------------------------------------------------------- ONNX */

/* The model as it was read. */
static bool write_model(const struct job *j)
{
    struct onnx_replacement *r = mem_array(j->t, (size_t)j->nweight + 1, sizeof *r);
    for (int i = 0; i < j->nweight; i++) {
        const struct array *v = &j->weight[i];
        r[i] = (struct onnx_replacement){v->name, v->dtype, v->ndim, v->dim, v->data, v->nbytes};
    }
    struct onnx_sink to = onnx_file(j->t, j->path, j->files);
    return to.file && onnx_save_replaced(j->m->onnx, r, j->nweight, &to);
}

static bool write_graph(const struct job *j, const struct graph *g)
{
    ModelProto *p = onnx_write(j->t, g, "tgc", TGC_VERSION);
    struct onnx_sink to = {0};
    if (p)
        to = onnx_file(j->t, j->path, j->files);
    return to.file && onnx_save(j->t, NULL, p, &to);
}

/* ---------------------------------------------------------------------------------- safetensors */

/* The initializers of an ONNX model, also those that the graph does not use, with new values. */
static bool find_initializers(const struct job *j, struct weights *w)
{
    struct onnx_model *m = j->m->onnx;
    const GraphProto *g = m->proto->graph;
    bool ok = true;
    for (size_t i = 0; i < g->n_initializer; i++) {
        struct onnx_tensor x;
        struct uop *dim[MAX_RANK];
        struct place at = onnx_place_value(m, "initializer", g->initializer[i]->name);
        if (!onnx_decode_tensor(m, &at, g->initializer[i], &x))
            return false;
        for (int a = 0; a < x.ndim; a++)
            dim[a] = uop_int(j->t, x.dim[a]);
        struct buffer *b = buffer_new(j->t, BUFFER_WEIGHT, x.dtype, dim, x.ndim, x.name);
        b->weight.data = x.data;
        b->nbytes = x.nbytes;
        VEC_PUSH(j->t, w->v, w->n, w->cap, b);
    }
    return ok;
}

/* Those with a name of which the format has the dtype; a warning counts the others. */
static void keep_writable(const struct job *j, struct weights *w)
{
    int n = 0, nleft = 0;
    const char *left = NULL;
    for (int i = 0; i < w->n; i++) {
        struct buffer *b = w->v[i];
        bool named = b->name && *b->name;
        if (named && safetensors_holds(b->dtype)) {
            w->v[n++] = b;
            continue;
        }
        left = named ? mem_printf(j->t, "'%s' (%s)", b->name, dtype_name(b->dtype))
                     : "one without a name";
        nleft++;
    }
    w->n = n;
    if (nleft)
        diag_warn(j->t, &(struct place){.file = j->path},
                  "%d of the model's weights are not in it, such as %s: the format has no such "
                  "tensors; .onnx or .tg has all of them",
                  nleft, left);
}

static bool check_written(const struct job *j, const struct weights *w)
{
    struct dict names = {0};
    for (int i = 0; i < w->n; i++) {
        void **seen = dict_enter(j->t, &names, w->v[i]->name);
        struct place at = place_of(j, w->v[i]->name);
        if (*seen)
            return diag_error(j->t, &at, "several weights of the model have this name; give each "
                                         "its own");
        *seen = w->v[i];
    }
    for (int i = 0; i < j->nweight; i++) {
        struct place at = place_of(j, j->weight[i].name);
        if (!dict_has(&names, j->weight[i].name))
            return diag_error(j->t, &at, "cannot be written to a .safetensors: it is of %s",
                              dtype_name(j->weight[i].dtype));
    }
    return true;
}

static bool write_safetensors(const struct job *j, struct weights *w)
{
    struct text begin = {.t = j->t};
    keep_writable(j, w);
    if (!check_written(j, w))
        return false;
    const char **name = mem_array(j->t, (size_t)w->n + 1, sizeof *name);
    for (int i = 0; i < w->n; i++)
        name[i] = w->v[i]->name;
    safetensors_begin(&begin, w->v, name, w->n);
    FILE *f = outputs_open(j->files, j->path);
    if (!f)
        return false;
    bool ok = fwrite(begin.s, 1, begin.n, f) == begin.n;
    for (int i = 0; i < w->n && ok; i++)
        ok = !w->v[i]->nbytes ||
             fwrite(w->v[i]->weight.data, 1, w->v[i]->nbytes, f) == w->v[i]->nbytes;
    return ok || diag_error(j->t, &(struct place){.file = j->path}, "writing failed: %s",
                            strerror(errno));
}

static bool write_weights(const struct job *j, const char *extension)
{
    bool alone = strcmp(extension, "safetensors") == 0, ok = true;
    struct weights w = {0};
    struct model again = {0};
    if (alone && j->m->onnx) {
        ok = find_initializers(j, &w);
    } else {
        ok = read_again(j, &again);
        if (ok)
            w = weights_of(j->t, again.graph);
    }
    for (int i = 0; i < j->nweight && ok; i++)
        ok = set_values(j, &w, &j->weight[i]);
    return ok && (alone                             ? write_safetensors(j, &w)
                  : strcmp(extension, "onnx") == 0 ? write_graph(j, again.graph)
                                                   : write_text(j, &again, &w));
}

bool trained_write(struct tgc *t, const struct options *o, const struct model *m,
                   const struct array *weight, int nweight, const char *path,
                   struct outputs *files)
{
    struct job j = {t, o, m, weight, nweight, path, files};
    const char *dot = strrchr(path_base(path), '.'), *extension = dot ? dot + 1 : "";
    bool to_onnx = strcmp(extension, "onnx") == 0;
    if (to_onnx && m->onnx)
        return write_model(&j);
    if (to_onnx || strcmp(extension, "tg") == 0 || strcmp(extension, "safetensors") == 0)
        return write_weights(&j, extension);
    return diag_error(t, &(struct place){.file = path},
                      "a model with new weights is written as .onnx, .tg or .safetensors; name "
                      "such a file (-o)");
}
