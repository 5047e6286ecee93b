/* grid_vector.c - which loops of a store become vectors of a device's threads: float4, 16 bytes in
 * one transaction.
 *
 * A vector covers the last iterations of a loop along which all accesses are contiguous and
 * aligned, or invariant. What is not proved aligned stays scalar, since a device would split such a
 * load. In products of bytes the columns are vectors, each lane with four bytes of the weights. */
#include "passes/kernel/grid.h"
#include "passes/target/target.h"

int grid_vector_lanes(const struct tgc *t)
{
    return device_has_grid(t) && !isa_is_portable(t->device->isa) ? isa_lanes(t->device->isa) : 1;
}

/* Whether accesses at the offset are contiguous and aligned along r, or invariant. */
static bool offset_fits(struct tgc *t, const struct uop *memory, struct uop *offset, struct uop *r,
                        int64_t n)
{
    int64_t stride;
    return index_stride(t, offset, r, &stride) &&
           (stride == 0 ||
            (stride == 1 && index_divisor(t, sym_sub(t, offset, r)) % n == 0 &&
             (memory->op == OP_STAGE || buffer_is_aligned(t, uop_buffer_of(memory), n))));
}

/* Whether the weights of a product of bytes have a group for each iteration of r, contiguous and
 * aligned. */
static bool groups_fit(const struct nest *m, const struct uop *load, struct uop *r, int64_t n)
{
    struct tgc *t = m->t;
    int64_t stride;
    if (load->dtype != DTYPE_I8 || !index_stride(t, load->src[1], r, &stride) ||
        stride != DOT_BYTES)
        return false;
    struct uop *begin = sym_sub(t, load->src[1], sym_muli(t, r, stride));
    begin = sym_sub(t, begin, m->reduce->src[m->reduce->nsrc - 1]);
    return index_divisor(t, begin) % (stride * n) == 0 &&
           buffer_is_aligned(t, uop_buffer_of(load->src[0]), stride * n);
}

/* Vectors of small elements are converted on load, so a conditional load's alternative must be
 * 0. */
static bool load_fits(struct tgc *t, const struct uop *load, struct uop *r, int64_t n)
{
    return offset_fits(t, load->src[0], load->src[1], r, n) &&
           (load->nsrc < 4 || (!uop_depends_on(t, load->src[2], r) &&
                               (dtype_nbytes(load->dtype) == 4 || load_is_zero_elsewhere(load))));
}

/* Whether a WHERE picks between a load and something else by data that varies along r. A load whose
 * position is masked takes that condition into its mask (rule where_load_and), and the lanes of one
 * vector load cannot have different masks. */
static bool data_chooses_loads(struct tgc *t, struct uop *store, const struct uop *r)
{
    struct mem_mark mark = scratch_mark(t);
    bool found = false;
    int n;
    struct uop **order = uop_toposort(t, &store->src[2], 1, &n);
    for (int i = 0; i < n && !found; i++) {
        const struct uop *u = order[i];
        found = u->op == OP_WHERE && (u->src[1]->op == OP_LOAD || u->src[2]->op == OP_LOAD) &&
                uop_depends_on(t, u->src[0], r) && uop_reads_memory(t, u->src[0]);
    }
    scratch_release(t, mark);
    return found;
}

static bool iterations_fit(struct tgc *t, struct uop *store, int at, int64_t n)
{
    struct nest m;
    int64_t stride;
    struct uop *r = store->src[at];
    if (!nest_find(t, store, &m) || RANGE_AXIS(r->arg.i) != AXIS_LOOP || range_fixed_size(r) < n ||
        !index_stride(t, store->src[1], r, &stride) || stride != 1 ||
        !offset_fits(t, store->src[0], store->src[1], r, n) || !nest_vectors_fit(&m, r) ||
        data_chooses_loads(t, store, r))
        return false;
    for (int i = 0; i < m.nload; i++)
        if (!load_fits(t, m.load[i], r, n) && !(m.grouped && groups_fit(&m, m.load[i], r, n)))
            return false;
    for (int i = 0; i < m.nother; i++)
        if (!load_fits(t, m.other[i], r, n))
            return false;
    return true;
}

bool grid_vector_fits(struct tgc *t, struct uop *store, int at, int64_t n)
{
    return iterations_fit(t, store, at, n) && range_fixed_size(store->src[at]) % n == 0;
}

int grid_vector_part(struct tgc *t, struct uop *store, int64_t n)
{
    for (int at = store->nsrc - 1; n > 1 && at >= store_first_range(store); at--)
        if (iterations_fit(t, store, at, n))
            return at;
    return -1;
}

int grid_vector_loop(struct tgc *t, struct uop *store, int64_t n)
{
    for (int at = store->nsrc - 1; n > 1 && at >= store_first_range(store); at--)
        if (grid_vector_fits(t, store, at, n))
            return at;
    return -1;
}
