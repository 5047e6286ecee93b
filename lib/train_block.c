/* train_block.c - tgc weights: a block of parameters, as a program of --train has it, becomes the
 * model with these weights.
 *
 *      head | key and offset of each tensor | tensors       runtime/train.c
 *
 * A key is of a tensor's name, dtype and shape, so a block finds its weights in the model whatever
 * was frozen. Halves train as f32, and are rounded here. The head's identity is of all weights that
 * are not in the block.
 */
#include "lib/lib.h"

#include <string.h>

struct head {                       /* as struct block_head of runtime/train.c */
    char magic[8];
    uint32_t version, kind;
    uint64_t identity, nbytes;
    int64_t runs;
    char name[24];
};
struct row { uint64_t key, offset; };

struct block {
    struct tgc *t;
    struct place at;
    const struct options *o;
    const char *bytes;
    size_t nbytes;
    struct head head;
    uint64_t *key; int n;           /* [n] of the tensors */
    uint64_t *offset;
};

static bool damaged(const struct block *b, const char *how)
{
    return diag_error(b->t, &b->at, "is no whole block of parameters: %s; save NET_PARAMS_BYTES "
                                    "bytes of what NET_options.params points to", how);
}

static bool read_head(struct block *b)
{
    static const char *const kinds[] = {"gradients", "an optimizer's state"};
    struct head *h = &b->head;
    if (b->nbytes < sizeof *h)
        return damaged(b, "it is shorter than a block's head");
    memcpy(h, b->bytes, sizeof *h);
    h->name[sizeof h->name - 1] = 0;
    if (memcmp(h->magic, "tgcblock", sizeof h->magic) != 0)
        return damaged(b, "it does not begin with 'tgcblock'");
    if (h->version == 1u << 24)
        return diag_error(b->t, &b->at, "is of a machine of another byte order; read it there");
    if (h->version != 1)
        return diag_error(b->t, &b->at, "is of version %u of blocks, and this tgc reads 1",
                          (unsigned)h->version);
    if (h->kind == BLOCK_GRADIENTS || h->kind == BLOCK_OPTIMIZER)
        return diag_error(b->t, &b->at, "holds %s of '%s'; --params takes the block of parameters",
                          kinds[h->kind - BLOCK_GRADIENTS], h->name);
    if (h->kind != BLOCK_PARAMS)
        return damaged(b, "its kind is unknown");
    return h->nbytes == b->nbytes ||
           damaged(b, mem_printf(b->t, "it has %zu bytes, and its head says %llu", b->nbytes,
                                 (unsigned long long)h->nbytes));
}

/* The table ends where the first tensor begins; rows of zeros fill it. */
static bool read_rows(struct block *b)
{
    size_t end = b->nbytes, at = sizeof b->head;
    size_t most = (b->nbytes - at) / BLOCK_ROW_BYTES;
    b->key = mem_array(b->t, most + 1, sizeof *b->key);
    b->offset = mem_array(b->t, most + 1, sizeof *b->offset);
    for (; at + BLOCK_ROW_BYTES <= end; at += BLOCK_ROW_BYTES, b->n++) {
        struct row r;
        memcpy(&r, b->bytes + at, sizeof r);
        if (r.key == 0 && r.offset == 0)
            break;
        if (r.offset > b->nbytes || r.offset < at || r.offset % BLOCK_ALIGNMENT != 0)
            return damaged(b, "a tensor's place is outside of it");
        end = r.offset < end ? (size_t)r.offset : end;
        b->key[b->n] = r.key;
        b->offset[b->n] = r.offset;
    }
    return b->n > 0 || damaged(b, "it has no tensors");
}

/* The weight of that key; NULL: the graph has none. */
static const struct buffer *find_weight(struct uop *const *order, int n, uint64_t key)
{
    for (int i = 0; i < n; i++) {
        const struct buffer *w = order[i]->op == OP_BUFFER ? order[i]->arg.p : NULL;
        if (w && w->kind == BUFFER_WEIGHT && w->name && w->data && train_key(w) == key)
            return w;
    }
    return NULL;
}

static bool take_weight(const struct block *b, int i, const struct buffer *w, struct array *v)
{
    size_t nelem = 1;
    *v = (struct array){.name = w->name, .dtype = train_dtype(w->dtype), .ndim = w->ndim};
    for (int a = 0; a < w->ndim; a++)
        if (!uop_const_int(w->dim[a], &v->dim[a]) || !size_mul(nelem, (size_t)v->dim[a], &nelem))
            return damaged(b, "a tensor's size is unknown");
    if (!array_allocate(b->t, v))
        return false;
    if (v->nbytes > b->nbytes - b->offset[i])
        return damaged(b, mem_printf(b->t, "'%.100s' ends after it", w->name));
    memcpy(v->data, b->bytes + b->offset[i], v->nbytes);
    return array_convert(b->t, v, w->dtype);
}

/* The weights of the model that the block holds, [b->n]. */
static bool match(const struct block *b, const struct graph *g, struct array *weight)
{
    int nroot, n;
    struct uop **root = graph_roots(b->t, g, &nroot), **order = uop_toposort(b->t, root, nroot, &n);
    for (int i = 0; i < b->n; i++) {
        const struct buffer *w = find_weight(order, n, b->key[i]);
        if (!w)
            return diag_error(b->t, &b->at,
                              "holds parameters of '%s', not of this model: the weight %d of %d "
                              "has a name, dtype or shape that no weight of %s has",
                              b->head.name, i + 1, b->n, b->o->model);
        if (!take_weight(b, i, w, &weight[i]))
            return false;
    }
    return train_identity(b->t, g, b->key, b->n) == b->head.identity ||
           diag_error(b->t, &b->at,
                      "holds parameters of '%s', and the weights that are not among them are not "
                      "those of %s: give the model that the program was made of",
                      b->head.name, b->o->model);
}

bool weights_from_block(struct tgc *t, const struct options *given, struct outputs *files)
{
    struct options o = *given;
    struct model m;
    struct block b = {.t = t, .at = {.file = o.params}, .o = given};
    o.training.emits = true;
    if (!model_load(t, &o, &m))
        return false;
    model_protect_files(&o, &m, files);
    outputs_protect(files, o.params);
    b.bytes = outputs_may_write(files, o.output) ? tg_load(t, o.params, &b.nbytes) : NULL;
    if (!b.bytes || !read_head(&b) || !read_rows(&b) || !training_lower_model(t, &o, &m))
        return false;
    struct array *weight = mem_array(t, (size_t)b.n, sizeof *weight);
    bool ok = match(&b, m.graph, weight) &&
              trained_write(t, &o, &m, weight, b.n, o.output, files) && outputs_commit(files);
    if (!ok)
        outputs_discard(files);
    return ok;
}
