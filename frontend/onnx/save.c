/* save.c - a ModelProto as a file: packed by protobuf-c, with the elements of tensors inside of it,
 * or in a second file beside it where protobuf's 2 GB would not hold them.
 *
 *      every tensor of the model   graphs, subgraphs, functions, attributes
 *        in another file           -> raw_data, mapped
 *        the model fits            -> one file
 *        it does not               -> raw_data of at least EXTERNAL_LEAST bytes -> the second file
 *
 * Tensors are changed for as long as that takes, and are then as they were: values that were
 * decoded from them stay valid. protobuf-c keeps fields that onnx.proto does not name
 * (documentation, metadata), and packs them behind the others of their message.
 */
#include "frontend/onnx/onnx.h"

#include <errno.h>
#include <string.h>

enum { EXTERNAL_LEAST = 1024, EXTERNAL_ALIGN = 64, PROTOBUF_MOST = INT32_MAX };

/* ---------------------------------------------------------------------------------- each tensor */

/* Lists of nodes and graphs that are still to be walked. */
struct walk {
    struct tgc *t;
    struct pending { NodeProto **node; size_t n; GraphProto *graph; } *pending;
    size_t npending, cap;
    TensorProto **tensor;
    size_t ntensor, cap_tensor;
};

static void take(struct walk *w, TensorProto *p)
{
    if (p)
        VEC_PUSH(w->t, w->tensor, w->ntensor, w->cap_tensor, p);
}

static void take_sparse(struct walk *w, const SparseTensorProto *p)
{
    if (p) {
        take(w, p->values);
        take(w, p->indices);
    }
}

static void walk_graph(struct walk *w, GraphProto *g)
{
    if (g)
        VEC_PUSH(w->t, w->pending, w->npending, w->cap, ((struct pending){g->node, g->n_node, g}));
}

static void walk_attributes(struct walk *w, AttributeProto *const *a, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        take(w, a[i]->t);
        take_sparse(w, a[i]->sparse_tensor);
        walk_graph(w, a[i]->g);
        for (size_t k = 0; k < a[i]->n_tensors; k++)
            take(w, a[i]->tensors[k]);
        for (size_t k = 0; k < a[i]->n_sparse_tensors; k++)
            take_sparse(w, a[i]->sparse_tensors[k]);
        for (size_t k = 0; k < a[i]->n_graphs; k++)
            walk_graph(w, a[i]->graphs[k]);
    }
}

TensorProto **onnx_tensors(struct tgc *t, const ModelProto *p, size_t *n)
{
    struct walk w = {.t = t};
    walk_graph(&w, p->graph);
    for (size_t i = 0; i < p->n_functions; i++) {
        const FunctionProto *f = p->functions[i];
        VEC_PUSH(t, w.pending, w.npending, w.cap, ((struct pending){f->node, f->n_node, NULL}));
        walk_attributes(&w, f->attribute_proto, f->n_attribute_proto);
    }
    while (w.npending) {
        struct pending next = w.pending[--w.npending];
        for (size_t i = 0; next.graph && i < next.graph->n_initializer; i++)
            take(&w, next.graph->initializer[i]);
        for (size_t i = 0; next.graph && i < next.graph->n_sparse_initializer; i++)
            take_sparse(&w, next.graph->sparse_initializer[i]);
        for (size_t i = 0; i < next.n; i++)
            walk_attributes(&w, next.node[i]->attribute, next.node[i]->n_attribute);
    }
    *n = w.ntensor;
    return w.tensor;
}

/* ---------------------------------------------------------------------------------------- edits */

void onnx_edit(struct tgc *t, struct onnx_edits *e, TensorProto *p)
{
    VEC_PUSH(t, e->edit, e->n, e->cap, ((struct onnx_edit){p, *p}));
}

void onnx_edits_undo(struct onnx_edits *e)
{
    while (e->n) {
        e->n--;
        *e->edit[e->n].tensor = e->edit[e->n].before;
    }
}

void onnx_set_raw(TensorProto *p, const void *data, size_t nbytes)
{
    p->n_float_data = p->n_int32_data = p->n_int64_data = 0;
    p->n_string_data = p->n_double_data = p->n_uint64_data = p->n_external_data = 0;
    p->has_data_location = false;
    p->data_location = TENSOR_PROTO__DATA_LOCATION__DEFAULT;
    p->has_raw_data = true;
    p->raw_data = (ProtobufCBinaryData){nbytes, (uint8_t *)(uintptr_t)data};
}

/* --------------------------------------------------------------------------------------- saving */

static StringStringEntryProto *entry_new(struct tgc *t, const char *key, const char *value)
{
    StringStringEntryProto *e = MEM_NEW(t, StringStringEntryProto);
    string_string_entry_proto__init(e);
    e->key = mem_str(t, key);
    e->value = mem_str(t, value);
    return e;
}

static void set_external(struct tgc *t, TensorProto *p, const char *location, size_t offset)
{
    enum { NKEY = 3 };
    size_t nbytes = p->raw_data.len;
    onnx_set_raw(p, NULL, 0);
    p->has_raw_data = false;
    p->has_data_location = true;
    p->data_location = TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
    p->external_data = mem_array(t, NKEY, sizeof *p->external_data);
    p->n_external_data = NKEY;
    p->external_data[0] = entry_new(t, "location", location);
    p->external_data[1] = entry_new(t, "offset", mem_printf(t, "%zu", offset));
    p->external_data[2] = entry_new(t, "length", mem_printf(t, "%zu", nbytes));
}

static bool write_failed(struct tgc *t, const char *path)
{
    return diag_error(t, &(struct place){.file = path}, "writing failed: %s", strerror(errno));
}

/* Moves what is large into the second file. */
static bool move_out(struct tgc *t, TensorProto *const *tensor, size_t n,
                     const struct onnx_sink *to, struct onnx_edits *edits)
{
    static const char zeros[EXTERNAL_ALIGN];
    size_t at = 0;
    if (!to->open_data)
        return diag_error(t, &(struct place){.file = to->path},
                          "is larger than 2 GB, so its weights need a second file, which standard "
                          "output has no place for; name a file (-o)");
    FILE *f = to->open_data(to->user, to->data_path);
    if (!f)
        return false;
    for (size_t i = 0; i < n; i++) {
        TensorProto *p = tensor[i];
        size_t begin, nbytes = p->has_raw_data ? p->raw_data.len : 0;
        if (nbytes < EXTERNAL_LEAST)
            continue;
        if (!size_align(at, EXTERNAL_ALIGN, &begin))
            tgc_stop(t);
        if (fwrite(zeros, 1, begin - at, f) != begin - at ||
            fwrite(p->raw_data.data, 1, nbytes, f) != nbytes)
            return write_failed(t, to->data_path);
        onnx_edit(t, edits, p);
        set_external(t, p, to->location, begin);
        at = begin + nbytes;
    }
    return true;
}

static bool take_in(struct onnx_model *m, TensorProto *const *tensor, size_t n,
                    struct onnx_edits *edits)
{
    for (size_t i = 0; i < n; i++) {
        const void *data;
        size_t nbytes;
        if (tensor[i]->data_location != TENSOR_PROTO__DATA_LOCATION__EXTERNAL)
            continue;
        struct place at = onnx_place_value(m, "tensor", tensor[i]->name);
        if (!onnx_map_external(m, &at, tensor[i], &data, &nbytes))
            return false;
        onnx_edit(m->tgc, edits, tensor[i]);
        onnx_set_raw(tensor[i], data, nbytes);
    }
    return true;
}

/* protobuf-c's stream. */
struct stream { ProtobufCBuffer base; FILE *file; bool failed; };

static void append(ProtobufCBuffer *buffer, size_t nbytes, const uint8_t *bytes)
{
    struct stream *s = (struct stream *)buffer;
    if (nbytes && !s->failed)
        s->failed = fwrite(bytes, 1, nbytes, s->file) != nbytes;
}

bool onnx_save(struct tgc *t, struct onnx_model *from, const ModelProto *p,
               const struct onnx_sink *to)
{
    struct onnx_edits edits = {0};
    size_t n, most = to->most ? to->most : PROTOBUF_MOST;
    TensorProto **tensor = onnx_tensors(t, p, &n);
    struct stream s = {{append}, to->file, false};
    bool ok = !from || take_in(from, tensor, n, &edits);
    if (ok && protobuf_c_message_get_packed_size(&p->base) > most)
        ok = move_out(t, tensor, n, to, &edits);
    if (ok && protobuf_c_message_get_packed_size(&p->base) > PROTOBUF_MOST)
        ok = diag_error(t, &(struct place){.file = to->path},
                        "is larger than 2 GB even without its weights, which is more than protobuf "
                        "can hold");
    if (ok) {
        protobuf_c_message_pack_to_buffer(&p->base, &s.base);
        ok = !s.failed || write_failed(t, to->path);
    }
    onnx_edits_undo(&edits);
    return ok;
}
