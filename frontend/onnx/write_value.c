/* write_value.c - values of an ONNX graph that is written: nodes, attributes, constants, and sizes
 * that a run finds from its inputs' shapes.
 *
 * A size is a constant, or an i64 tensor of one element that Shape makes of an input with this
 * dimension, or arithmetic on these. Reshape copies sizes that stay where they are (0 in its
 * shape), and Squeeze and Unsqueeze need none, so most graphs with open dimensions compute no size
 * at all. -1 in a shape is not used: it is ambiguous where a run's size may be 0.
 */
#include "frontend/onnx/write.h"

#include <string.h>

bool write_refuse(struct onnx_writer *w, const struct uop *u, const char *what)
{
    const struct origin *o = uop_get_origin(w->t, u);
    struct place at = {.text = o && o->node && *o->node ? mem_printf(w->t, "'%s' (%s)", o->node,
                                                                     o->op_type ? o->op_type : "")
                                                        : NULL};
    return diag_error(w->t, &at, "%s %s", op_name(u->op), what);
}

enum dtype write_working(enum dtype d)
{
    switch (d) {
    case DTYPE_F16: case DTYPE_F32: case DTYPE_F64: case DTYPE_I32: case DTYPE_I64: case DTYPE_U64:
    case DTYPE_STRING:
        return d;
    case DTYPE_U32:
        return DTYPE_I64;
    default:
        return dtype_is_float(d) ? DTYPE_F32 : DTYPE_I32;
    }
}

/* ------------------------------------------------------------------------------------ in loops */

bool write_is_deeper(const struct onnx_writer *w, int a, int b)
{
    return a && (!b || w->loop[a - 1].depth > w->loop[b - 1].depth);
}

int write_loop_of(const struct onnx_writer *w, const struct uop *u)
{
    for (int i = 0; i < w->nloop; i++) {
        const struct loop *l = w->loop[i].loop;
        if (u->op == OP_VAR ? u->arg.p == l->counter
                            : ((const struct loop_param *)u->arg.p)->loop == l)
            return i;
    }
    TGC_BUG(w->t, "a value inside of no loop of the graph");
}

struct written *write_inside(struct onnx_writer *w, const struct uop *u)
{
    const struct written_loop *l = &w->loop[write_loop_of(w, u)];
    return l->in[u->op == OP_VAR ? 0 : 2 + ((const struct loop_param *)u->arg.p)->index];
}

/* ---------------------------------------------------------------------------------------- nodes */

static void set_dims(struct written *v, struct uop *const *dim, int ndim)
{
    v->ndim = ndim;
    for (int a = 0; a < ndim; a++)
        v->dim[a] = dim[a];
}

static struct written *value_new(struct onnx_writer *w, enum dtype d, struct uop *const *dim,
                                 int ndim)
{
    struct written *v = MEM_NEW(w->t, struct written);
    v->dtype = d;
    v->first = v;
    v->of = w->now;
    set_dims(v, dim, ndim);
    return v;
}

struct written *write_node(struct onnx_writer *w, const char *type, enum dtype d,
                           struct uop *const *dim, int ndim, struct written *const *in, int nin)
{
    struct written_node *n = MEM_NEW(w->t, struct written_node);
    n->type = type;
    n->in = mem_array(w->t, (size_t)nin + 1, sizeof *n->in);
    n->nin = nin;
    n->out = value_new(w, d, dim, ndim);
    for (int i = 0; i < nin; i++) {
        n->in[i] = in[i];
        if (write_is_deeper(w, in[i]->region, n->out->region))
            n->out->region = in[i]->region;
    }
    n->out->node = n;
    VEC_PUSH(w->t, w->node, w->nnode, w->cap_node, n);
    return n->out;
}

struct written *write_unary(struct onnx_writer *w, const char *type, struct written *x)
{
    return write_node(w, type, x->dtype, x->dim, x->ndim, &x, 1);
}

bool write_broadcast(const struct written *x, const struct written *y, struct uop **dim, int *ndim)
{
    *ndim = x->ndim > y->ndim ? x->ndim : y->ndim;
    for (int a = 0; a < *ndim; a++) {
        int ax = a - (*ndim - x->ndim), ay = a - (*ndim - y->ndim);
        struct uop *dx = ax < 0 ? NULL : x->dim[ax], *dy = ay < 0 ? NULL : y->dim[ay];
        if (!dx || (dy && uop_is_int(dx, 1)))
            dim[a] = dy;
        else if (!dy || uop_is_int(dy, 1) || dx == dy)
            dim[a] = dx;
        else
            return false;
    }
    return true;
}

static struct written *binary(struct onnx_writer *w, const char *type, enum dtype d,
                              struct written *x, struct written *y)
{
    struct uop *dim[MAX_RANK];
    int ndim;
    if (!write_broadcast(x, y, dim, &ndim))
        TGC_BUG(w->t, "operands of %s do not broadcast", type);
    return write_node(w, type, d, dim, ndim, (struct written *[]){x, y}, 2);
}

struct written *write_binary(struct onnx_writer *w, const char *type, struct written *x,
                             struct written *y)
{
    return binary(w, type, x->dtype, x, y);
}

struct written *write_compare(struct onnx_writer *w, const char *type, struct written *x,
                              struct written *y)
{
    return binary(w, type, DTYPE_BOOL, x, y);
}

struct written *write_where(struct onnx_writer *w, struct written *c, struct written *x,
                            struct written *y)
{
    struct written both = {0};
    struct uop *dim[MAX_RANK];
    int ndim;
    bool ok = write_broadcast(x, y, both.dim, &both.ndim) && write_broadcast(c, &both, dim, &ndim);
    if (!ok)
        TGC_BUG(w->t, "operands of Where do not broadcast");
    return write_node(w, "Where", x->dtype, dim, ndim, (struct written *[]){c, x, y}, 3);
}

static AttributeProto *attribute(struct onnx_writer *w, struct written *v, const char *name,
                                 AttributeProto__AttributeType type)
{
    AttributeProto *a = MEM_NEW(w->t, AttributeProto);
    attribute_proto__init(a);
    a->name = mem_str(w->t, name);
    a->has_type = true;
    a->type = type;
    VEC_PUSH(w->t, v->node->attribute, v->node->nattribute, v->node->cap_attribute, a);
    return a;
}

void write_int(struct onnx_writer *w, struct written *v, const char *name, int64_t i)
{
    AttributeProto *a = attribute(w, v, name, ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT);
    a->has_i = true;
    a->i = i;
}

void write_ints(struct onnx_writer *w, struct written *v, const char *name, const int64_t *i, int n)
{
    AttributeProto *a = attribute(w, v, name, ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS);
    a->n_ints = (size_t)n;
    a->ints = mem_array(w->t, (size_t)n + 1, sizeof *a->ints);
    for (int k = 0; k < n; k++)
        a->ints[k] = i[k];
}

void write_string(struct onnx_writer *w, struct written *v, const char *name, const char *s)
{
    AttributeProto *a = attribute(w, v, name, ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING);
    a->has_s = true;
    a->s = (ProtobufCBinaryData){strlen(s), (uint8_t *)mem_str(w->t, s)};
}

void write_float(struct onnx_writer *w, struct written *v, const char *name, float f)
{
    AttributeProto *a = attribute(w, v, name, ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT);
    a->has_f = true;
    a->f = f;
}

void write_graph(struct onnx_writer *w, struct written *v, const char *name, GraphProto *g)
{
    attribute(w, v, name, ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__GRAPH)->g = g;
}

struct written *write_as(struct onnx_writer *w, struct written *x, enum dtype d)
{
    if (x->dtype == d)
        return x;
    struct written *v = write_node(w, "Cast", d, x->dim, x->ndim, &x, 1);
    write_int(w, v, "to", dtype_to_onnx(d));
    return v;
}

/* ------------------------------------------------------------------------------------ constants */

/* Elements of less than a byte as ONNX packs them: a stream of bits, low ones first. */
static void pack_bits(uint8_t *to, const uint8_t *from, size_t nelem, unsigned bits)
{
    for (size_t i = 0; i < nelem; i++) {
        size_t byte = i / 8 * bits + i % 8 * bits / 8;
        unsigned shift = (unsigned)(i % 8) * bits % 8, v = from[i] & ((1u << bits) - 1);
        to[byte] = (uint8_t)(to[byte] | v << shift);
        if (shift + bits > 8)
            to[byte + 1] = (uint8_t)(to[byte + 1] | v >> (8 - shift));
    }
}

static void set_elements(struct onnx_writer *w, TensorProto *p, enum dtype d, const void *data,
                         size_t nbytes)
{
    unsigned bits = (unsigned)dtype_bits(d);
    if (d == DTYPE_STRING) {
        const char *const *s = data;
        p->n_string_data = nbytes / sizeof *s;
        p->string_data = mem_array(w->t, p->n_string_data + 1, sizeof *p->string_data);
        for (size_t i = 0; i < p->n_string_data; i++)
            p->string_data[i] =
                (ProtobufCBinaryData){strlen(s[i]), (uint8_t *)(uintptr_t)s[i]};
    } else if (bits < 8) {
        size_t npacked = nbytes / 8 * bits + (nbytes % 8 * bits + 7) / 8;
        uint8_t *packed = mem_alloc(w->t, npacked + 1);
        pack_bits(packed, data, nbytes, bits);
        onnx_set_raw(p, packed, npacked);
    } else {
        onnx_set_raw(p, data, nbytes);
    }
}

struct written *write_tensor(struct onnx_writer *w, enum dtype d, const int64_t *dim, int ndim,
                             const void *data, size_t nbytes)
{
    TensorProto *p = MEM_NEW(w->t, TensorProto);
    struct uop *size[MAX_RANK];
    tensor_proto__init(p);
    p->has_data_type = true;
    p->data_type = dtype_to_onnx(d);
    p->n_dims = (size_t)ndim;
    p->dims = mem_array(w->t, (size_t)ndim + 1, sizeof *p->dims);
    for (int a = 0; a < ndim; a++) {
        p->dims[a] = dim[a];
        size[a] = uop_int(w->t, dim[a]);
    }
    set_elements(w, p, d, data, nbytes);
    struct written *v = value_new(w, d, size, ndim);
    v->tensor = p;
    v->of = NULL;
    VEC_PUSH(w->t, w->constant, w->nconstant, w->cap_constant, v);
    return v;
}

struct written *write_weight(struct onnx_writer *w, const struct buffer *b)
{
    int64_t dim[MAX_RANK];
    for (int a = 0; a < b->ndim; a++)
        dim[a] = b->dim[a]->arg.i;
    struct written *v = write_tensor(w, b->dtype, dim, b->ndim, b->weight.data, b->nbytes);
    v->name = b->name && *b->name ? b->name : NULL;
    return v;
}

/* One initializer for equal constants. */
static struct written *constant(struct onnx_writer *w, enum dtype d, const int64_t *dim, int ndim,
                                const void *data, size_t nbytes)
{
    struct text key = {.t = w->t};
    text_printf(&key, "%s/%d/%lld/", dtype_name(d), ndim, ndim ? (long long)dim[0] : 1);
    for (size_t i = 0; i < nbytes; i++)
        text_printf(&key, "%02x", ((const uint8_t *)data)[i]);
    void **known = dict_enter(w->t, &w->constant_by_text, key.s);
    if (!*known)
        *known = write_tensor(w, d, dim, ndim, mem_copy(w->t, data, nbytes), nbytes);
    return *known;
}

struct written *write_scalar(struct onnx_writer *w, enum dtype d, union scalar v)
{
    char element[16] = {0};
    scalar_store(d, element, v);
    return constant(w, d, NULL, 0, element, dtype_nbytes(d));
}

struct written *write_scalar_int(struct onnx_writer *w, enum dtype d, int64_t v)
{
    return write_scalar(w, d, scalar_cast(d, DTYPE_I64, (union scalar){.i = v}));
}

struct written *write_vector(struct onnx_writer *w, const int64_t *v, int n)
{
    int64_t dim = n;
    return constant(w, DTYPE_I64, &dim, 1, v, (size_t)n * sizeof *v);
}

/* ---------------------------------------------------------------------------------------- sizes */

bool write_same_dims(struct uop *const *a, int na, struct uop *const *b, int nb)
{
    bool same = na == nb;
    for (int i = 0; i < na && same; i++)
        same = a[i] == b[i];
    return same;
}

bool write_same_but_ones(struct uop *const *a, int na, struct uop *const *b, int nb)
{
    int i = 0, k = 0;
    for (;;) {
        while (i < na && uop_is_int(a[i], 1))
            i++;
        while (k < nb && uop_is_int(b[k], 1))
            k++;
        if (i == na || k == nb)
            return i == na && k == nb;
        if (a[i++] != b[k++])
            return false;
    }
}

/* Shape of an input with this dimension, as an i64 of one element. */
static struct written *size_of_symbol(struct onnx_writer *w, struct uop *symbol)
{
    struct uop *one = uop_int(w->t, 1);
    for (int i = 0; i < w->g->ninput; i++)
        for (int a = 0; a < w->g->input[i]->ndim; a++) {
            if (w->g->input[i]->dim[a] != symbol)
                continue;
            struct written *x = write_value(w, w->g->input[i]);
            struct written *v = write_node(w, "Shape", DTYPE_I64, &one, 1, &x, 1);
            write_int(w, v, "start", a);
            write_int(w, v, "end", a + 1);
            return v;
        }
    w->unsourced_symbol = symbol;
    return w->unsourced = value_new(w, DTYPE_I64, &one, 1);
}

struct written *write_size(struct onnx_writer *w, struct uop *u)
{
    int n;
    struct written *v = map_get(&w->value, u);
    if (v)
        return v;
    struct uop **order = uop_toposort(w->t, &u, 1, &n);
    for (int i = 0; i < n; i++) {
        struct uop *x = order[i];
        if (map_get(&w->value, x))
            continue;
        if (x->op == OP_CONST)
            write_set(w, x, write_scalar(w, x->dtype, (union scalar){.i = x->arg.i}));
        else if (x->op == OP_VAR && ((const struct var *)x->arg.p)->is_counter)
            write_set(w, x, write_inside(w, x));
        else if (x->op == OP_VAR)
            write_set(w, x, size_of_symbol(w, x));
        else if (!op_is_elementwise(x->op) || !w->elementwise(w, x))
            TGC_BUG(w->t, "a size is no arithmetic: %s", op_name(x->op));
    }
    return map_get(&w->value, u);
}

/* As a vector of one element. */
static struct written *size_vector(struct onnx_writer *w, struct uop *u)
{
    struct uop *one = uop_int(w->t, 1);
    struct written *v = write_size(w, u);
    return v->ndim == 1 ? v : write_reshaped(w, v, &one, 1);
}

struct written *write_sizes(struct onnx_writer *w, struct uop *const *dim, int n)
{
    struct written *part[MAX_RANK];
    int64_t value[MAX_RANK] = {0};
    int npart = 0;
    for (int a = 0; a < n;) {
        int run = 0;
        while (a + run < n && uop_const_int(dim[a + run], &value[run]))
            run++;
        part[npart++] = run || !n ? write_vector(w, value, run) : size_vector(w, dim[a]);
        a += run ? run : 1;
    }
    if (!n)
        return write_vector(w, value, 0);
    if (npart == 1)
        return part[0];
    struct uop *count = uop_int(w->t, n);
    struct written *v = write_node(w, "Concat", DTYPE_I64, &count, 1, part, npart);
    write_int(w, v, "axis", 0);
    return v;
}

/* -------------------------------------------------------------------------------------- reshape */

static struct written *find_form(struct written *v, struct uop *const *dim, int ndim)
{
    for (v = v->first; v; v = v->form)
        if (write_same_dims(v->dim, v->ndim, dim, ndim))
            return v;
    return NULL;
}

/* Axes of `more` at which it has a 1 that `less` has not; -1: the two differ by more than that. */
static int find_ones(struct uop *const *more, int nmore, struct uop *const *less, int nless,
                     int64_t *axis)
{
    int n = 0, k = 0;
    for (int a = 0; a < nmore; a++)
        if (k < nless && more[a] == less[k])
            k++;
        else if (uop_is_int(more[a], 1))
            axis[n++] = a;
        else
            return -1;
    return k == nless ? n : -1;
}

static struct written *by_axes(struct onnx_writer *w, const char *type, struct written *v,
                               struct uop *const *dim, int ndim, const int64_t *axis, int n)
{
    struct written *in[2] = {v, write_vector(w, axis, n)};
    return write_node(w, type, v->dtype, dim, ndim, in, 2);
}

/* Reshape: sizes that stay at their place are copied. */
static struct written *by_sizes(struct onnx_writer *w, struct written *v, struct uop *const *dim,
                                int ndim)
{
    struct uop *size[MAX_RANK];
    bool has_zero = false;
    for (int a = 0; a < ndim; a++)
        has_zero |= uop_is_int(dim[a], 0);
    for (int a = 0; a < ndim; a++) {
        bool stays = !has_zero && dim[a]->op != OP_CONST && a < v->ndim && v->dim[a] == dim[a];
        size[a] = stays ? uop_int(w->t, 0) : dim[a];
    }
    struct written *in[2] = {v, write_sizes(w, size, ndim)};
    struct written *r = write_node(w, "Reshape", v->dtype, dim, ndim, in, 2);
    if (has_zero)
        write_int(w, r, "allowzero", 1);
    return r;
}

/* Nodes that give v these dimensions; NULL: it takes more than adding, or dropping, ones. */
static struct written *by_ones(struct onnx_writer *w, struct written *v, struct uop *const *dim,
                               int ndim)
{
    int64_t axis[MAX_RANK];
    int n = find_ones(dim, ndim, v->dim, v->ndim, axis);
    if (n > 0)
        return by_axes(w, "Unsqueeze", v, dim, ndim, axis, n);
    n = find_ones(v->dim, v->ndim, dim, ndim, axis);
    return n > 0 ? by_axes(w, "Squeeze", v, dim, ndim, axis, n) : NULL;
}

static void add_form(struct written *v, struct written *form)
{
    form->first = v->first;
    form->form = v->first->form;
    v->first->form = form;
}

struct written *write_reshaped(struct onnx_writer *w, struct written *v, struct uop *const *dim,
                               int ndim)
{
    struct uop *bare[MAX_RANK];
    int nbare = 0;
    bool open = false;
    struct written *r = find_form(v, dim, ndim);
    if (r)
        return r;
    v = v->first;
    for (int a = 0; a < ndim; a++) {
        open |= dim[a]->op != OP_CONST;
        if (!uop_is_int(dim[a], 1))
            bare[nbare++] = dim[a];
    }
    r = by_ones(w, v, dim, ndim);
    if (!r && open && write_same_but_ones(dim, ndim, v->dim, v->ndim))
        r = by_ones(w, write_reshaped(w, v, bare, nbare), dim, ndim);
    if (!r)
        r = by_sizes(w, v, dim, ndim);
    add_form(v, r);
    return r;
}

/* --------------------------------------------------------------------------------- uops' values */

void write_set(struct onnx_writer *w, const struct uop *u, struct written *v)
{
    map_set(&w->value, u, v);
}

struct written *write_value(struct onnx_writer *w, struct uop *u)
{
    struct written *v = map_get(&w->value, u);
    if (v)
        return v;
    if (u->ndim == 0)
        return write_size(w, u);
    TGC_BUG(w->t, "%s has no value yet", op_name(u->op));
}

struct written *write_exact(struct onnx_writer *w, struct uop *u)
{
    return write_reshaped(w, write_value(w, u), u->dim, u->ndim);
}
