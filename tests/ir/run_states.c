/* run_states.c - the places of states in a run on the interpreter: where a compile keeps a state in
 * one place, what reads it and what stores it share memory here, too.
 *
 *      grows:  [ rows that are there | new rows | what nobody may need ]    strides of the bound
 */
#include "tests/ir/run.h"
#include "ir/oracle.h"

/* Elements from one index to the next along each axis of a state's place, and all of them. */
static int64_t place_strides(struct memory_of_run *m, const struct buffer *b, int axis,
                             int64_t most, int64_t *stride)
{
    int64_t n = 1;
    for (int a = b->ndim - 1; a >= 0; a--) {
        int64_t dim = most;
        stride[a] = n;
        if (a != axis)
            sym_eval(b->dim[a], m->var, m->nvar, &dim);
        n *= dim;
    }
    return n;
}

static void add_leaf(struct memory_of_run *m, struct buffer *b, struct tensor *x)
{
    m->leaf[m->n] = uop_buffer(m->t, b);
    m->value[m->n++] = x;
}

static struct tensor *new_place(struct memory_of_run *m, enum dtype d, int64_t nelem)
{
    struct tensor *x = MEM_NEW(m->t, struct tensor);
    *x = (struct tensor){.dtype = d, .ndim = 1, .dim = {nelem}, .nelem = nelem};
    x->data = mem_array(m->t, (size_t)nelem + 1, 8);
    spoil(x);
    return x;
}

/* Element i of a dense tensor, in row-major order, in a place with these strides. */
static int64_t place_of(const struct tensor *x, int64_t i, const int64_t *stride)
{
    int64_t at = 0;
    for (int a = x->ndim - 1; a >= 0; a--) {
        at += i % x->dim[a] * stride[a];
        i /= x->dim[a];
    }
    return at;
}

static struct tensor *value_at(struct memory_of_run *m, struct buffer *b)
{
    for (int i = 0; i < m->n; i++)
        if (m->leaf[i] == uop_buffer(m->t, b))
            return m->value[i];
    return NULL;
}

/* The place from one of its elements on. */
static struct tensor *place_behind(struct memory_of_run *m, const struct tensor *place,
                                   int64_t first)
{
    struct tensor *x = mem_copy(m->t, place, sizeof *place);
    x->nelem = x->dim[0] = place->nelem - first;
    x->data = (int64_t *)place->data + first;
    return x;
}

void run_place_state(struct memory_of_run *m, struct state *st, const struct tensor *first)
{
    int64_t stride[MAX_RANK], nelem;
    nelem = place_strides(m, st->in, st->length ? st->axis : -1,
                          st->length ? st->in->dim[st->axis]->vmax : 0, stride);
    struct tensor *in = new_place(m, st->in->dtype, nelem);
    for (int64_t i = 0; i < first->nelem; i++)
        ((int64_t *)in->data)[place_of(first, i, stride)] = ((const int64_t *)first->data)[i];
    bool one = st->length || st->place[0] == st->place[1];
    struct tensor *out = one ? in : new_place(m, st->in->dtype, nelem);
    add_leaf(m, st->in, in);
    for (int i = 0; i < st->npart; i++)
        if (!value_at(m, st->part[i].out))
            add_leaf(m, st->part[i].out, place_behind(m, out, st->part[i].first));
    if (!value_at(m, st->out))
        add_leaf(m, st->out, out);
}

struct tensor *run_stored(struct memory_of_run *m, const struct state_part *part,
                          const struct tensor *like)
{
    struct buffer *b = part->out;
    const struct view *v = b->storage;
    int64_t stride[MAX_RANK], offset = 0;
    struct tensor *x = MEM_NEW(m->t, struct tensor), *place = value_at(m, b);
    bool grows = part->state->length != NULL;
    place_strides(m, b, grows ? part->axis : -1,
                  grows ? part->state->in->dim[part->state->axis]->vmax : 0, stride);
    for (int a = 0; v && a < b->ndim; a++)
        sym_eval(v->stride[a], m->var, m->nvar, &stride[a]);
    if (v)
        sym_eval(v->offset, m->var, m->nvar, &offset);
    *x = *like;
    x->data = mem_array(m->t, (size_t)x->nelem + 1, 8);
    for (int64_t i = 0; i < x->nelem; i++)
        ((int64_t *)x->data)[i] = ((int64_t *)place->data)[offset + place_of(x, i, stride)];
    return x;
}
