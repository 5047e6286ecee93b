/* bulk.c - bulk copies and barriers in memory: the meaning of BULK and MBAR_..., for the verifier,
 * the interpreter and the passes.
 *
 * A box is contiguous in shared memory, innermost axis first. A swizzle of S bytes (32, 64, 128)
 * permutes 16-byte chunks within each 1024 bytes: the bits of a byte's address from 4 on, as many
 * as number the chunks of S bytes, are XORed with the bits from 7 on. So the same chunk of adjacent
 * rows of S bytes is in different banks. Memory of boxes is aligned to 1024 bytes.
 *
 * A barrier's u64, as the interpreter keeps it:
 *      expected bytes : 32 | count : 15 | missing : 15 | phase : 1
 */
#include "ir/device_ops.h"

enum { COUNT_MOST = (1 << 15) - 1 };

int bulk_rank(const struct uop *u) { return (u->nsrc - bulk_source(u, BULK_AXES)) / BULK_AXIS; }

struct bulk_axis bulk_axis(const struct uop *u, int a)
{
    struct uop *const *src = u->src + bulk_source(u, BULK_AXES) + a * BULK_AXIS;
    return (struct bulk_axis){src[0], src[1]->arg.i, src[2]->arg.i, src[3]->arg.i};
}

int64_t bulk_nelem(const struct uop *u)
{
    int64_t n = 1;
    for (int a = 0; a < bulk_rank(u); a++)
        n = sat_mul(n, bulk_axis(u, a).extent);
    return n;
}

bool bulk_rounds(const struct uop *u)
{
    return u->op == OP_BULK && uop_buffer_of(u->src[BULK_TO])->dtype == DTYPE_TF32 &&
           uop_buffer_of(u->src[BULK_FROM])->dtype == DTYPE_F32;
}

int bulk_part_axis(const struct uop *u)
{
    int part = 0;
    for (int a = 0; a < bulk_rank(u); a++)
        part = bulk_axis(u, a).extent > 1 ? a : part;
    return part;
}

int64_t bulk_part_extent(const struct uop *u, int a)
{
    return bulk_axis(u, a).extent / (a == bulk_part_axis(u) ? BULK_CLUSTER(u->arg.i) : 1);
}

int64_t bulk_swizzled(int64_t at, int64_t swizzle)
{
    return swizzle ? at ^ ((at >> 7 & (swizzle / 16 - 1)) << 4) : at;
}

const char *bulk_check(const struct uop *u)
{
    const struct buffer *to = uop_buffer_of(u->src[BULK_TO]),
                        *from = uop_buffer_of(u->src[bulk_source(u, BULK_FROM)]);
    const int64_t swizzle = BULK_SWIZZLE(u->arg.i);
    const int axes = bulk_source(u, BULK_AXES);
    if (!to || !from || buffer_space(to) != SPACE_SHARED || buffer_space(from) == SPACE_SHARED)
        return "copies from elsewhere than a tensor, or to elsewhere than shared memory";
    if (to->dtype != from->dtype && to->dtype != dtype_as_bits(from->dtype) && !bulk_rounds(u))
        return "copies to another dtype";
    if ((u->nsrc - bulk_source(u, BULK_AXES)) % BULK_AXIS || bulk_rank(u) < 1 ||
        bulk_rank(u) > BULK_RANK)
        return "a box of no axes, or of too many";
    for (int k = bulk_source(u, BULK_FIRST); k < u->nsrc; k++)
        if (u->src[k]->op != OP_CONST && (k < axes || (k - axes) % BULK_AXIS))
            return "a box whose sizes, strides or extents are not known";
    const int64_t nbytes = (int64_t)dtype_nbytes(from->dtype);
    if (u->src[bulk_source(u, BULK_FIRST)]->arg.i < 0 ||
        u->src[bulk_source(u, BULK_FIRST)]->arg.i * nbytes % BULK_ALIGNED)
        return "a tensor that begins at no multiple of 16 bytes";
    for (int a = 0; a < bulk_rank(u); a++) {
        struct bulk_axis x = bulk_axis(u, a);
        if (x.size < 1 || x.size > UINT32_MAX || x.extent < 1 || x.extent > BULK_EXTENT)
            return "an axis without elements, or a box of more than 256 along one";
        if (a ? x.stride < 1 || x.stride * nbytes % BULK_ALIGNED : x.stride != 1)
            return "rows that begin at no multiples of 16 bytes, or whose elements are no "
                   "neighbours";
    }
    int64_t row = bulk_axis(u, 0).extent * nbytes;
    if (row % BULK_ALIGNED || (swizzle && row > swizzle) ||
        (swizzle && swizzle != 32 && swizzle != 64 && swizzle != 128))
        return "a row of no multiple of 16 bytes, or of more than are swizzled";
    const int cluster = BULK_CLUSTER(u->arg.i), part = bulk_part_axis(u);
    if (cluster < 1 || cluster > CLUSTER_MOST || BULK_DIMENSION(u->arg.i) >= GRID_RANK ||
        (cluster > 1 && (part == 0 || bulk_axis(u, part).extent % cluster ||
                         bulk_nelem(u) / cluster * nbytes % BULK_MEMORY_ALIGNED)))
        return "a box of which no block of a cluster has a part that begins at a multiple of 1024 "
               "bytes";
    return NULL;
}

int64_t bulk_element(const struct uop *u, int64_t i, const int64_t *coordinate, int64_t *to)
{
    const int64_t nbytes = (int64_t)dtype_nbytes(uop_buffer_of(u->src[BULK_TO])->dtype);
    int64_t from = u->src[bulk_source(u, BULK_FIRST)]->arg.i;
    bool inside = true;
    *to = bulk_swizzled(i * nbytes, BULK_SWIZZLE(u->arg.i)) / nbytes;
    for (int a = 0; a < bulk_rank(u); a++) {
        struct bulk_axis x = bulk_axis(u, a);
        int64_t at = coordinate[a] + i % x.extent;
        i /= x.extent;
        inside &= at >= 0 && at < x.size;
        from += at * x.stride;
    }
    return inside ? from : -1;
}

bool bulk_is_of_same_map(const struct uop *a, const struct uop *b)
{
    const int axes = bulk_source(a, BULK_AXES);
    bool same = a->op == b->op && a->nsrc == b->nsrc && bulk_rounds(a) == bulk_rounds(b) &&
                a->arg.i == b->arg.i &&
                a->src[bulk_source(a, BULK_FROM)] == b->src[bulk_source(b, BULK_FROM)];
    for (int k = bulk_source(a, BULK_FIRST); k < a->nsrc && same; k++)
        same = a->src[k] == b->src[k] || (k >= axes && (k - axes) % BULK_AXIS == 0);
    return same;
}

/* ------------------------------------------------------------------------------------ barriers */

static int64_t packed(int64_t expected, int64_t count, int64_t missing, int64_t phase)
{
    if (missing == 0 && expected == 0)
        missing = count, phase ^= 1;
    return (int64_t)((uint64_t)expected << 32) | count << 16 | missing << 1 | phase;
}

int64_t mbar_begin(int64_t count) { return packed(0, count, count, 0); }

int64_t mbar_arrive(int64_t bar, int64_t nbytes)
{
    return packed((bar >> 32) + nbytes, bar >> 16 & COUNT_MOST, (bar >> 1 & COUNT_MOST) - 1,
                  bar & 1);
}

int64_t mbar_complete(int64_t bar, int64_t nbytes)
{
    return packed((bar >> 32) - nbytes, bar >> 16 & COUNT_MOST, bar >> 1 & COUNT_MOST, bar & 1);
}

bool mbar_has_ended(int64_t bar, int64_t parity) { return (bar & 1) != (parity & 1); }
