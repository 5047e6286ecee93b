/* eval_linear_memory.c - what the instructions of a linear program do to memory, element by
 * element.
 *
 * A memory access outside its buffer is a bug of the compiler and ends the evaluation as one.
 * Threads that access an element in one phase, one of them storing to it, are a race, as are parts
 * of a grid that do so at any time; the first one that is met is noted in the environment.
 */
#include <math.h>

#include "ir/eval.h"

/* The offset of lane l from the first one. */
static int64_t lane_at(const struct linstr *in, int l)
{
    return in->columns   ? l % in->columns + (int64_t)(l / in->columns) * in->stride
           : in->grouped ? l / DOT_BYTES + (int64_t)(l % DOT_BYTES) * in->stride
                         : (int64_t)l * in->stride;
}

/* The element of lane l. */
static int64_t element_of(const struct linear_eval *e, const struct linstr *in, int64_t offset,
                          int l)
{
    if (!in->panel)
        return offset + lane_at(in, l);
    int64_t size = (int64_t)dtype_nbytes(e->memory.v[in->memory].buffer->dtype),
            row = PANEL_ROW_NBYTES / size, column = offset % row + l % in->columns;
    int64_t at = offset - offset % row + (int64_t)(l / in->columns) * row +
                 column / row * in->panel + column % row;
    return bulk_swizzled(at * size, PANEL_ROW_NBYTES) / size;
}

static int64_t element(struct linear_eval *e, const struct linstr *in, const char *what)
{
    int64_t offset = e->reg[in->src[0]].i;
    const struct memory *m = &e->memory.v[in->memory];
    int64_t last = element_of(e, in, offset, in->part - 1);
    if (offset < 0 || offset >= m->nelem || last < 0 || last >= m->nelem)
        TGC_BUG(e->t, "%s of %d at element %lld of buffer %d '%s' with %lld", what, in->part,
                (long long)offset, m->buffer->id, m->buffer->name ? m->buffer->name : "",
                (long long)m->nelem);
    return offset;
}

/* Who accessed an element, as noted: a thread's number from 1 on, several threads of one part, or
 * several parts. */
enum { OF_MANY_PARTS = INT32_MIN };
static int part_of(const struct linear_eval *e, int noted)
{
    return noted == OF_MANY_PARTS ? -1 : noted < 0 ? -noted - 1 : (noted - 1) / e->threads;
}

/* Does a noted access exclude one by this thread? One of another part always does, one of another
 * thread of the block in the same phase. */
static bool meets(const struct linear_eval *e, int noted, int phase)
{
    if (!noted || noted == e->env->part * e->threads + e->thread + 1)
        return false;
    return part_of(e, noted) != e->env->part || phase == e->phase;
}

/* Notes that this thread reads or writes the element, and reports a race with another one. */
static void touch(const struct linear_eval *e, const struct memory *m, int64_t at, bool writes)
{
    int me = e->env->part * e->threads + e->thread + 1, n = e->threads;
    if (!m->touch)
        return;
    struct touched *c = &m->touch[at];
    int other = meets(e, c->writer, c->write_phase)            ? c->writer
                : writes && meets(e, c->reader, c->read_phase) ? c->reader
                                                               : 0;
    if (other && !e->env->race->buffer)
        *e->env->race = (struct race){m->buffer,
                                      at,
                                      {e->env->part, other > 0 ? (other - 1) / n : -1},
                                      {e->thread, other > 0 ? (other - 1) % n : -1}};
    if (writes) {
        c->writer = me;
        c->write_phase = e->phase;
        return;
    }
    c->reader = !meets(e, c->reader, c->read_phase)       ? me
                : part_of(e, c->reader) == e->env->part ? -e->env->part - 1
                                                        : OF_MANY_PARTS;
    c->read_phase = e->phase;
}

void eval_linear_load(struct linear_eval *e, const struct linstr *in)
{
    const struct memory *m = &e->memory.v[in->memory];
    bool outside = in->nsrc > 2 && !e->reg[in->src[1]].i;
    int64_t offset = outside ? 0 : element(e, in, "load");
    for (int l = 0; l < in->part && !outside; l++)
        touch(e, m, element_of(e, in, offset, l), false);
    for (int l = 0; l < in->lanes; l++)
        e->reg[in->dst + l] = l >= in->part ? (union scalar){.f = NAN}
                              : outside     ? e->reg[in->src[2] + l * in->step[2]]
                                            : eval_memory_get(m, element_of(e, in, offset, l));
}

void eval_linear_store(struct linear_eval *e, const struct linstr *in)
{
    int64_t offset = element(e, in, "store");
    if (!e->memory.v[in->memory].data)
        TGC_BUG(e->t, "store to a weight");
    for (int l = 0; l < in->part; l++) {
        int64_t at = offset + lane_at(in, l);
        touch(e, &e->memory.v[in->memory], at, true);
        e->memory.v[in->memory].data[at] = e->reg[in->src[1] + l * in->step[1]];
    }
}

void eval_linear_transfer(struct linear_eval *e, const struct linstr *in)
{
    const struct memory *to = &e->memory.v[in->memory], *from = &e->memory.v[in->from];
    int64_t at = e->reg[in->src[0]].i, source = e->reg[in->src[1]].i;
    bool valid = in->nsrc < 3 || e->reg[in->src[2]].i;
    if (at < 0 || at > to->nelem - in->lanes ||
        (valid && (source < 0 || source > from->nelem - in->lanes)))
        TGC_BUG(e->t,
                "copy of %d at element %lld of buffer %d with %lld to element %lld of buffer %d "
                "with %lld",
                in->lanes, (long long)source, from->buffer->id, (long long)from->nelem,
                (long long)at, to->buffer->id, (long long)to->nelem);
    for (int l = 0; l < in->lanes; l++) {
        if (valid)
            touch(e, from, source + l, false);
        touch(e, to, at + l, true);
        unsigned char bits[8] = {0};                  /* the dtypes may differ */
        if (valid)
            scalar_store(from->buffer->dtype, bits, eval_memory_get(from, source + l));
        to->data[at + l] = scalar_load(to->buffer->dtype, bits);
    }
}

void eval_linear_gather(struct linear_eval *e, const struct linstr *in)
{
    const struct memory *m = &e->memory.v[in->memory];
    for (int l = 0; l < in->lanes; l++) {
        int64_t at = e->reg[in->src[0]].i + e->reg[in->src[1] + l].i;
        if (in->nsrc > 2 && !e->reg[in->src[2] + l].i) {
            e->reg[in->dst + l] = e->reg[in->src[3] + l];
            continue;
        }
        if (at < 0 || at >= m->nelem)
            TGC_BUG(e->t, "gather of element %lld of buffer %d with %lld", (long long)at,
                    m->buffer->id, (long long)m->nelem);
        touch(e, m, at, false);
        e->reg[in->dst + l] = eval_memory_get(m, at);
    }
}

static int64_t *barrier_at(struct linear_eval *e, int memory, int64_t i)
{
    const struct memory *m = &e->memory.v[memory];
    if (i < 0 || i >= m->nelem)
        TGC_BUG(e->t, "barrier %lld of %lld", (long long)i, (long long)m->nelem);
    return &m->data[i].i;
}

/* MBAR_RELEASE: the last thread of a subgroup arrives, since the others have run by then. */
bool eval_linear_mbar(struct linear_eval *e, const struct linstr *in)
{
    if (in->op == OP_MBAR_INIT) {
        for (int64_t i = 0; i < e->memory.v[in->memory].nelem && e->thread == 0; i++)
            *barrier_at(e, in->memory, i) = mbar_begin(MBAR_COUNT(in->bits));
        return true;
    }
    int64_t *bar = barrier_at(e, in->memory, e->reg[in->src[0]].i);
    if (in->op == OP_MBAR_ARRIVE)
        *bar = mbar_arrive(*bar, in->bits);
    else if (in->op == OP_MBAR_RELEASE && (e->thread + 1) % RELEASE_LANES(in->bits) == 0)
        *bar = mbar_arrive(*bar, 0);
    return in->op != OP_MBAR_WAIT || mbar_has_ended(*bar, e->reg[in->src[1]].i);
}

/* The block's first thread counts; it runs before the others. Stores of other parts are visible,
 * even before the count: only the emulated device finds parts that have not counted themselves. */
void eval_linear_ticket(struct linear_eval *e, const struct linstr *in)
{
    struct linear_eval *first = e - e->thread;
    const struct memory *counters = &e->memory.v[in->memory], *memory = &e->memory.v[in->from];
    int64_t at = e->reg[in->src[0]].i;
    if (at < 0 || at >= counters->nelem)
        TGC_BUG(e->t, "counter %lld of %lld", (long long)at, (long long)counters->nelem);
    if (e == first) {
        int64_t *n = &counters->data[at].i;
        first->is_last = ++*n >= in->target;
        *n = first->is_last ? 0 : *n;
        for (int64_t i = 0; first->is_last && memory->touch && i < memory->nelem; i++)
            memory->touch[i] = (struct touched){0};
    }
    e->reg[in->dst].i = first->is_last;
}

/* The bits of the value as an element of another dtype. */
static union scalar as_element(enum dtype to, enum dtype from, union scalar v)
{
    uint64_t bits = 0;
    if (to == from)
        return v;
    scalar_store(from, &bits, v);
    return scalar_load(to, &bits);
}

/* A bulk store completes at once. The emulated device finds stores to its memory
 * that come too early. */
void eval_linear_bulk_store(struct linear_eval *e, const struct bulk *b)
{
    const struct memory *local = &e->memory.v[b->to], *tensor = &e->memory.v[b->from];
    const int64_t n = bulk_nelem(b->u), offset = e->reg[b->offset].i;
    int64_t coordinate[BULK_RANK], at;
    for (int a = 0; a < bulk_rank(b->u); a++)
        coordinate[a] = e->reg[b->coordinate[a]].i;
    for (int64_t i = 0; i < n; i++) {
        int64_t element = bulk_element(b->u, i, coordinate, &at);
        at += offset;
        if (at < 0 || at >= local->nelem || element >= tensor->nelem)
            TGC_BUG(e->t, "a box of element %lld of buffer %d leaves for element %lld of buffer %d",
                    (long long)at, local->buffer->id, (long long)element, tensor->buffer->id);
        touch(e, local, at, false);
        if (element < 0)
            continue;
        touch(e, tensor, element, true);
        tensor->data[element] =
            as_element(tensor->buffer->dtype, local->buffer->dtype, eval_memory_get(local, at));
    }
}

/* A bulk copy completes at once. */
void eval_linear_bulk(struct linear_eval *e, const struct bulk *b)
{
    const struct memory *to = &e->memory.v[b->to], *from = &e->memory.v[b->from];
    const int64_t n = bulk_nelem(b->u), offset = e->reg[b->offset].i;
    int64_t coordinate[BULK_RANK], at, *bar = barrier_at(e, b->barriers, e->reg[b->number].i);
    for (int a = 0; a < bulk_rank(b->u); a++)
        coordinate[a] = e->reg[b->coordinate[a]].i;
    for (int64_t i = 0; i < n; i++) {
        int64_t element = bulk_element(b->u, i, coordinate, &at);
        at += offset;
        if (at < 0 || at >= to->nelem || element >= from->nelem)
            TGC_BUG(e->t, "a bulk copy of element %lld of buffer %d to element %lld of buffer %d",
                    (long long)element, from->buffer->id, (long long)at, to->buffer->id);
        union scalar v = {.i = 0};
        if (element >= 0) {
            touch(e, from, element, false);
            v = eval_memory_get(from, element);
        }
        if (bulk_rounds(b->u)) {
            v = scalar_cast(DTYPE_TF32, DTYPE_F32, v);
        } else if (to->buffer->dtype != from->buffer->dtype && element >= 0) {
            uint16_t bits = 0;
            scalar_store(from->buffer->dtype, &bits, v);
            v.i = bits;
        }
        if (to->touch)
            /* the emulated device finds readers that have not waited */
            to->touch[at] = (struct touched){0};
        to->data[at] = v;
    }
    *bar = mbar_complete(*bar, n * (int64_t)dtype_nbytes(to->buffer->dtype));
}
