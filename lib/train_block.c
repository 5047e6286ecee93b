/* train_block.c - tgc weights: a block of parameters, as a program of --train has it, becomes the
 * model with these weights.
 *
 *      head | key and offset of each tensor | tensors       runtime/train.c
 *
 * A key is of a tensor's name, dtype and shape, so a block finds its weights in the model whatever
 * was frozen. Halves train as f32, and are rounded here. The head's identity is of all weights that
 * are not in the block. Products of --lora are added to their matrices, whose names and shapes say
 * what the keys of A and B are.
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
        if (w && w->kind == BUFFER_WEIGHT && w->name && w->weight.data && train_key(w) == key)
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

/* Whether rows i and i + 1 are A and B of some rank, which is set in *of. B begins at the first
 * multiple of 64 after A, so few ranks are possible. */
static bool find_rank(const struct block *b, int i, int64_t rows, int64_t cols, struct buffer of[2])
{
    const uint64_t nbytes = b->offset[i + 1] - b->offset[i];
    const uint64_t row = (uint64_t)rows * dtype_nbytes(of[0].dtype);
    const uint64_t least = (uint64_t)(rows < cols ? rows : cols), fits = row ? nbytes / row : 0;
    for (uint64_t rank = fits < least ? fits : least;
         rank > 0 && nbytes - row * rank < BLOCK_ALIGNMENT; rank--) {
        of[0].dim[1] = of[1].dim[0] = uop_int(b->t, (int64_t)rank);
        if (buffer_key(&of[0]) == b->key[i] && buffer_key(&of[1]) == b->key[i + 1])
            return true;
    }
    return false;
}

/* The matrix of the model beside which rows i and i + 1 are A and B of --lora, and their shapes in
 * *of; NULL: they are not. */
static const struct buffer *find_adapter(const struct block *b, struct uop *const *order, int n,
                                         int i, struct buffer of[2])
{
    static const char *const suffix[] = {"lora_a", "lora_b"};
    const bool is_last = i + 1 == b->n || b->offset[i + 1] < b->offset[i];
    int64_t rows, cols;
    for (int k = 0; k < n && !is_last; k++) {
        const struct buffer *w = order[k]->op == OP_BUFFER ? order[k]->arg.p : NULL;
        if (!w || w->kind != BUFFER_WEIGHT || !w->name || !w->weight.data || w->ndim != 2 ||
            !uop_const_int(w->dim[0], &rows) || !uop_const_int(w->dim[1], &cols))
            continue;
        for (int side = 0; side < 2; side++) {
            of[side] = *w;
            of[side].dtype = train_dtype(w->dtype);
            of[side].name = mem_printf(b->t, "%s.%s", w->name, suffix[side]);
        }
        if (find_rank(b, i, rows, cols, of))
            return w;
    }
    return NULL;
}

/* W + A B of rows i and i + 1. */
static bool take_sum(const struct block *b, int i, const struct buffer *w,
                     const struct buffer of[2], struct array *v)
{
    struct array a, c;
    if (!take_weight(b, i, &of[0], &a) || !take_weight(b, i + 1, &of[1], &c))
        return false;
    *v = (struct array){
        .name = w->name, .dtype = w->dtype, .ndim = 2, .dim = {a.dim[0], c.dim[1]}};
    if (!array_allocate(b->t, v))
        return false;
    lora_add(v, w->weight.data, &a, &c);
    return true;
}

/* The weights of the model that the block holds, up to [b->n], and how many. */
static bool match(const struct block *b, const struct graph *g, struct array *weight, int *nweight)
{
    int nroot, n;
    struct uop **root = graph_roots(b->t, g, &nroot), **order = uop_toposort(b->t, root, nroot, &n);
    struct buffer of[2];
    *nweight = 0;
    for (int i = 0; i < b->n; i++) {
        const struct buffer *w = find_weight(order, n, b->key[i]);
        const struct buffer *beside = w ? NULL : find_adapter(b, order, n, i, of);
        if (beside && !take_sum(b, i++, beside, of, &weight[(*nweight)++]))
            return false;
        if (beside)
            continue;
        if (!w)
            return diag_error(b->t, &b->at,
                              "holds parameters of '%s', not of this model: the weight %d of %d "
                              "has a name, dtype or shape that no weight of %s has",
                              b->head.name, i + 1, b->n, b->o->model);
        if (!take_weight(b, i, w, &weight[(*nweight)++]))
            return false;
    }
    return train_identity(b->t, g, b->key, b->n) == b->head.identity ||
           diag_error(b->t, &b->at,
                      "holds parameters of '%s', and the weights that are not among them are not "
                      "those of %s: give the model that the program was made of",
                      b->head.name, b->o->model);
}

void lora_add(struct array *w, const void *of, const struct array *a, const struct array *b)
{
    size_t size = dtype_nbytes(w->dtype), each = dtype_nbytes(a->dtype);
    size_t rank = (size_t)a->dim[1], cols = (size_t)b->dim[1];
    for (size_t i = 0; i < w->nelem; i++) {
        const char *row = (const char *)a->data + i / cols * rank * each;
        const char *col = (const char *)b->data + i % cols * each;
        union scalar sum = scalar_load(w->dtype, (const char *)of + i * size);
        for (size_t k = 0; k < rank; k++)
            sum.f += scalar_load(a->dtype, row + k * each).f *
                     scalar_load(b->dtype, col + k * cols * each).f;
        scalar_store(w->dtype, (char *)w->data + i * size, sum);
    }
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
    int nweight;
    bool ok = match(&b, m.graph, weight, &nweight) &&
              trained_write(t, &o, &m, weight, nweight, o.output, files) && outputs_commit(files);
    if (!ok)
        outputs_discard(files);
    return ok;
}
