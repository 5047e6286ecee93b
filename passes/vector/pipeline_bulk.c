/* pipeline_bulk.c - steps whose copies come in bulk (pipeline.c), as boxes that an engine copies; opts_cluster.c has
 * what blocks share.
 *
 *      thread 0: of steps 0 .. n - 2: expect their bytes, copy boxes
 *      for k
 *        wait until the bytes of part k % n are there: it is full
 *        sum += copy[k % n] ...
 *        release part (k + n - 1) % n, which step k - 1 has read
 *        thread 0, if k + n - 1 is a step:
 *          wait until all waves have released it: it is empty
 *          expect, copy boxes
 *
 * No thread waits for all others: barriers in memory tell of each part when it is full, and when it is empty. A part is
 * released a step late, so that products that are added behind the threads' backs go on meanwhile (products.c).
 */
#include "passes/analysis/nest.h"
#include "passes/vector/pipeline.h"
#include "ir/device_ops.h"

static void push_statement(struct expander *e, enum op op, struct uop *const *src, int nsrc, int64_t bits)
{
    for (int k = 0; k < nsrc; k++)
        if (!op_takes_memory(op, k))
            expand_need(e, src[k]);
    expand_push(e, uop_intern(e->t, op, DTYPE_VOID, src, nsrc, (union arg){.i = bits}));
}

/* A copy in step n: its box, or of that a panel's columns. */
static void write_box(struct steps *s, int i, struct uop *n, struct uop *part, int64_t panel)
{
    struct tgc *t = s->e->t;
    const struct box *b = &s->box[i];
    struct uop_map by = {.t = t, .scratch = true};
    struct uop *memory = s->copy[i].store->src[0], *src[BULK_AXES + BULK_AXIS * BULK_RANK];
    const struct buffer *to = uop_buffer_of(memory);
    int64_t row = to->panel ? PANEL_ROW_NBYTES / (int64_t)dtype_nbytes(to->dtype) : b->row;
    steps_map(s, &by, n);
    src[BULK_TO] = memory;
    src[BULK_OFFSET] = sym_addi(t, sym_muli(t, part, steps_part(memory)), panel * to->panel);
    src[BULK_BARRIERS] = s->full;
    src[BULK_NUMBER] = part;
    src[BULK_FROM] = b->memory;
    src[BULK_FIRST] = uop_int(t, b->first);
    for (int a = 0; a < b->rank; a++) {
        struct uop **axis = src + BULK_AXES + a * BULK_AXIS;
        axis[0] = uop_substitute_all(t, b->axis[a].coordinate, &by);
        axis[1] = uop_int(t, b->axis[a].size);
        axis[2] = uop_int(t, b->axis[a].stride);
        axis[3] = uop_int(t, b->axis[a].extent);
    }
    src[BULK_AXES] = sym_addi(t, src[BULK_AXES], panel * row);
    src[BULK_AXES + 3] = uop_int(t, row);
    push_statement(s->e, OP_BULK, src, BULK_AXES + b->rank * BULK_AXIS, BULK_BITS(to->panel ? PANEL_ROW_NBYTES : 0, to->cluster ? to->cluster : 1, to->cluster_of));
}

static void write_boxes(struct steps *s, struct uop *n, struct uop *part)
{
    struct uop *src[2] = {s->full, part};
    int64_t nbytes = 0;
    for (int i = 0; i < s->ncopy; i++)
        nbytes += s->box[i].nelem * (int64_t)dtype_nbytes(uop_buffer_of(s->copy[i].store->src[0])->dtype);
    push_statement(s->e, OP_MBAR_ARRIVE, src, 2, nbytes);
    for (int i = 0; i < s->ncopy; i++) {
        const struct buffer *to = uop_buffer_of(s->copy[i].store->src[0]);
        for (int64_t p = 0; p == 0 || (to->panel && p < s->box[i].nelem / to->panel); p++)
            write_box(s, i, n, part, p);
    }
}

static void read_boxes(struct steps *s)
{
    for (int i = 0; i < s->ncopy; i++) {
        struct of_step *c = &s->copy[i];
        struct uop *loop[STEP_LOOPS + 1] = {c->thread};
        const char *why;
        for (int k = 0; k < c->nturn; k++)
            loop[1 + k] = c->turn[k];
        if (!box_read(s->e->t, c->store->src[2], c->store->src[1], loop, 1 + c->nturn, uop_buffer_of(c->store->src[0])->panel,
                      &s->box[i], &why))
            TGC_BUG(s->e->t, "what comes in bulk is no box: %s", why);
    }
}

static struct uop *new_barriers(struct steps *s)
{
    struct buffer *b = kernel_new_scratch(s->e->t, s->kernel, DTYPE_U64, s->parts);
    b->is_local = true;
    b->nbytes = (size_t)s->parts * dtype_nbytes(DTYPE_U64);      /* what only this program has is in no AST */
    return uop_buffer(s->e->t, b);
}

/* The block's threads. */
static int64_t count_threads(const struct steps *s)
{
    int64_t n = 1;
    for (int i = 0; i < s->first; i++)
        if (range_is_item(s->e->in[i]) && expand_find_end(s->e, i) > s->first)
            n = sat_mul(n, range_fixed_size(s->e->in[i]));
    return n;
}

/* Begins the barriers: of a full part one thread arrives, of an empty one each wave does. Returns a wave's threads. */
static int begin_barriers(struct steps *s)
{
    struct expander *e = s->e;
    int64_t threads = count_threads(s), lanes = e->t->device ? e->t->device->wave : 1;
    lanes = threads % lanes ? 1 : lanes;
    s->full = new_barriers(s);
    s->empty = new_barriers(s);
    push_statement(e, OP_MBAR_INIT, &s->full, 1, MBAR_BITS(1, 1));
    push_statement(e, OP_MBAR_INIT, &s->empty, 1, MBAR_BITS(threads / lanes, s->cluster));
    steps_push(e, OP_BARRIER, e->next_acc++);
    if (s->cluster > 1)
        steps_push(e, OP_CLUSTER_BARRIER, e->next_acc++);
    return (int)lanes;
}

void steps_in_bulk(struct steps *s)
{
    struct expander *e = s->e;
    struct tgc *t = e->t;
    struct uop *step = steps_number(s), *parts = uop_int(t, s->parts), *ahead = sym_addi(t, step, s->parts - 1),
               *first = sym_lt(t, s->thread, uop_int(t, 1)), *part = sym_mod(t, step, parts), *other = sym_mod(t, ahead, parts),
               *parity = sym_mod(t, sym_div(t, step, parts), uop_int(t, 2));
    read_boxes(s);
    int lanes = begin_barriers(s);
    struct uop *guard = steps_open(e, first);
    for (int k = 0; k < s->parts - 1; k++)
        write_boxes(s, uop_int(t, k), uop_int(t, k));
    steps_close(e, guard);
    for (int i = s->start; i < s->begin; i++)
        steps_copy(e, e->in[i]);
    struct uop *until_full[3] = {s->full, part, parity}, *until_empty[3] = {s->empty, other, parity};
    push_statement(e, OP_MBAR_WAIT, until_full, 3, 0);
    for (int i = s->second + 1; i < s->end; i++)
        steps_write(s, e->in[i], part);
    push_statement(e, OP_MBAR_RELEASE, until_empty, 2, RELEASE_BITS(1, lanes, s->cluster));
    guard = steps_open(e, sym_and(t, first, sym_lt(t, ahead, s->count)));
    push_statement(e, OP_MBAR_WAIT, until_empty, 3, 0);
    write_boxes(s, ahead, other);
    steps_close(e, guard);
}
