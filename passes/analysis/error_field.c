/* error_field.c - tensors of a network that is run on a few pixels, and movement of them.
 *
 * A field represents a tensor by entries, one for each index along the axes kept in full (channels,
 * along which weights vary). Each entry has PIXELS values that sample all the other axes (rows,
 * columns, batch). Movement is a view where possible; where axes in full merge with sampled ones,
 * or tensors are joined, values are picked one by one.
 *
 *      f32[1, 64, 56, 56]  ->  dim 1 64 1 1, shift 0 0 8 1: 64 entries of 64 pixels
 */
#include "passes/analysis/error_field.h"

#include <math.h>
#include <string.h>

uint32_t pixels_hash(uint32_t a, uint32_t b)
{
    uint32_t h = a * 0x9e3779b1u ^ (b + 0x7f4a7c15u) * 0x85ebca6bu;
    h = (h ^ h >> 15) * 0x2c1b3c6du;
    h = (h ^ h >> 12) * 0x297a2d39u;
    return h ^ h >> 15;
}

struct store *pixels_store(struct pixels *p, int64_t nentry, bool uniform)
{
    size_t each = uniform ? sizeof(float) : PIXELS * sizeof(float) + sizeof(double);
    p->nbytes += (size_t)nentry * each;
    p->full |= p->nbytes > p->most;
    if (p->full)
        nentry = 1;                      /* nothing reads it any more */
    struct store *s = scratch_array(p->t, 1, sizeof *s);
    *s = (struct store){.nentry = nentry, .uniform = uniform};
    s->x = scratch_array(p->t, (size_t)nentry * (uniform ? 1 : PIXELS), sizeof *s->x);
    if (!uniform)
        s->gain = scratch_array(p->t, (size_t)nentry, sizeof *s->gain);
    return s;
}

double pixels_mean_square(const struct store *s)
{
    double sum = 0;
    int64_t n = s->nentry * (s->uniform ? 1 : PIXELS);
    for (int64_t i = 0; i < n; i++)
        sum += (double)s->x[i] * s->x[i];
    return sum / (double)n;
}

struct pixel_step *pixels_step(struct pixels *p, enum step_of_pixels kind, struct uop *u,
                               const struct field *in, int nin)
{
    struct pixel_step s = {.kind = kind, .u = u, .nin = nin};
    s.in = scratch_array(p->t, (size_t)nin + 1, sizeof *s.in);
    ARRAY_COPY(s.in, in, nin);
    SCRATCH_PUSH(p->t, p->step, p->nstep, p->cap_step, s);
    return &p->step[p->nstep - 1];
}

int64_t field_nentry(const struct field *f)
{
    int64_t n = 1;
    for (int a = 0; a < f->ndim; a++)
        n = sat_mul(n, f->dim[a]);
    return n;
}

void field_read(const struct field *f, int64_t entry, int shift, float *v)
{
    if (f->s->uniform) {
        for (int k = 0; k < PIXELS; k++)
            v[k] = f->s->x[entry];
        return;
    }
    const float *x = f->s->x + entry * PIXELS;
    int from = shift & (PIXELS - 1);
    ARRAY_COPY(v, x + from, PIXELS - from);
    ARRAY_COPY(v + PIXELS - from, x, from);
}

int64_t field_entry(const struct field *f, const int64_t *at, int *shift)
{
    int64_t entry = f->offset;
    int by = 0;
    for (int a = 0; a < f->ndim; a++) {
        if (f->dim[a] > 1)
            entry += at[a] * f->stride[a];
        else
            by += (int)(at[a] & (PIXELS - 1)) * f->shift[a];
    }
    *shift = by & (PIXELS - 1);
    return entry;
}

bool next_place(int64_t *at, const int64_t *dim, int ndim)
{
    for (int a = ndim - 1; a >= 0; a--) {
        if (++at[a] < dim[a])
            return true;
        at[a] = 0;
    }
    return false;
}

static void set_rows(struct field *f)
{
    int64_t stride = 1;
    for (int a = f->ndim - 1; a >= 0; a--) {
        f->stride[a] = stride;
        stride *= f->dim[a];
    }
}

/* -------------------------------------------------------------------------------------- picking */

/* Allocates a store for `out`, whose entries and pixels are then picked one by one. */
static struct pixel_step *begin_pick(struct pixels *p, struct uop *u, const struct field *in,
                                     int nin, struct field *out)
{
    int64_t n = field_nentry(out);
    bool uniform = true;
    for (int k = 0; k < nin; k++)
        uniform &= in[k].s->uniform;
    for (int a = 0; a < out->ndim; a++)
        uniform &= out->shift[a] == 0;
    set_rows(out);
    out->offset = 0;
    out->s = pixels_store(p, n, uniform);
    struct pixel_step *s = pixels_step(p, STEP_PICK, u, in, nin);
    n = out->s->nentry;
    s->out = *out;
    if (!uniform) {
        s->entry = scratch_array(p->t, (size_t)n * PIXELS, sizeof *s->entry);
        s->which = scratch_array(p->t, (size_t)n * PIXELS, sizeof *s->which);
        p->nbytes += (size_t)n * PIXELS * (sizeof *s->entry + 1);
    }
    return s;
}

/* Sets an entry and pixel of the result: the element of in[which] at the coordinates; which -1:
 * `other`. */
static void pick(const struct pixel_step *s, int64_t entry, int pixel, int which, const int64_t *at,
                 float other)
{
    const struct store *to = s->out.s;
    int64_t i = to->uniform ? entry : entry * PIXELS + pixel, from = 0;
    int shift = 0;
    float v = other;
    if (which >= 0) {
        const struct field *f = &s->in[which];
        from = field_entry(f, at, &shift);
        v = f->s->uniform ? f->s->x[from]
                          : f->s->x[from * PIXELS + ((pixel + shift) & (PIXELS - 1))];
    }
    to->x[i] = v;
    if (s->entry) {
        s->entry[i] = (int32_t)from;
        s->which[i] = (signed char)which;
    }
}

static int pixels_of(const struct pixel_step *s) { return s->out.s->uniform ? 1 : PIXELS; }

struct field field_blur(struct pixels *p, const struct field *f, int axis)
{
    struct field out = *f;
    int64_t at[MAX_RANK] = {0}, entry = 0, from[MAX_RANK];
    out.dim[axis] = 1;
    out.shift[axis] = 1;
    struct pixel_step *s = begin_pick(p, NULL, f, 1, &out);
    do
        for (int k = 0; k < PIXELS && !p->full; k++) {
            memcpy(from, at, sizeof from);
            from[axis] =
                (int64_t)(pixels_hash((uint32_t)axis, (uint32_t)k) % (uint64_t)f->dim[axis]);
            pick(s, entry, k, 0, from, 0);
        }
    while (entry++, !p->full && next_place(at, out.dim, out.ndim));
    return out;
}

void fields_meet(struct pixels *p, struct field *in, int nin, uint32_t reduced, struct field *out)
{
    for (;;) {
        int64_t n = 1, largest = 1;
        int blur = -1;
        out->ndim = in[0].ndim;
        for (int a = 0; a < out->ndim; a++) {
            bool varies = false;
            int64_t size = 1;
            out->shift[a] = 0;
            for (int k = 0; k < nin; k++) {
                size = in[k].dim[a] > size ? in[k].dim[a] : size;
                varies |= in[k].dim[a] > 1 && !in[k].s->uniform;
                if (in[k].dim[a] == 1 && out->shift[a] == 0)
                    out->shift[a] = in[k].shift[a];
            }
            out->dim[a] = size;
            if (reduced >> a & 1)
                continue;
            n = sat_mul(n, size);
            /* axes along which only constants vary are blurred first */
            int64_t worth = varies ? size : sat_mul(size, ENTRIES_MAX);
            if (size > 1 && worth > largest)
                largest = worth, blur = a;
            out->shift[a] = size > 1 ? 0 : out->shift[a];
        }
        if (n <= ENTRIES_MAX || blur < 0 || p->full)
            return;
        for (int k = 0; k < nin; k++)
            if (in[k].dim[blur] > 1)
                in[k] = field_blur(p, &in[k], blur);
    }
}

/* ------------------------------------------------------------------------------------- movement */

static int64_t size_of(const struct uop *dim) { return dim->op == OP_CONST ? dim->arg.i : 0; }
/* The upper bound of a size that is not known. */
static int64_t most_of(const struct uop *dim) { return dim->vmax > 1 ? dim->vmax : 1; }

/* A group of axes that a reshape turns into others: a view if the group is entirely sampled, or
 * entirely in full and in order. false: neither. */
static bool view_group(const struct field *f, int lo, int hi, struct field *out,
                       struct uop *const *dim, int olo, int ohi)
{
    int64_t stride = 0, told = 1, all = 1, last_stride = 0;
    int last = hi - 1, shift[MAX_RANK], nshift = 0;
    bool rows = true;
    for (int a = last; a >= lo; a--) {
        if (f->dim[a] == 1 && f->shift[a])
            shift[nshift++] = f->shift[a];
        if (f->dim[a] == 1)
            continue;
        rows &= told == 1 || f->stride[a] == stride;
        last_stride = told == 1 ? f->stride[a] : last_stride;
        stride = f->stride[a] * f->dim[a];
        told *= f->dim[a];
    }
    for (int a = olo; a < ohi; a++)
        all = sat_mul(all, size_of(dim[a]));
    if (told > 1 && (told != all || !rows))
        return false;
    for (int a = ohi - 1, n = 0; a >= olo; a--) {
        bool one = uop_is_int(dim[a], 1);
        out->dim[a] = told > 1 ? size_of(dim[a]) : 1;
        out->stride[a] = last_stride;
        last_stride *= out->dim[a];
        out->shift[a] = told > 1 || one || !nshift ? 0 : shift[n < nshift ? n : nshift - 1];
        n += !one;
    }
    return true;
}

/* Keeps as many axes in full as fit; along the others, each pixel has a random position. */
static struct field pick_reshape(struct pixels *p, struct uop *u, const struct field *f)
{
    const struct uop *x = u->src[0];
    struct field out = {.ndim = u->ndim};
    int64_t n = 1, at[MAX_RANK] = {0}, from[MAX_RANK], entry = 0;
    for (int a = 0; a < u->ndim; a++) {
        int64_t size = size_of(u->dim[a]);
        bool fits = size > 1 && sat_mul(n, size) <= ENTRIES_MAX;
        out.dim[a] = fits ? size : 1;
        out.shift[a] = fits || size == 1 ? 0 : 1;
        n *= out.dim[a];
    }
    struct pixel_step *s = begin_pick(p, u, f, 1, &out);
    do
        for (int k = 0; k < pixels_of(s) && !p->full; k++) {
            int64_t place = 0;
            for (int a = 0; a < u->ndim; a++) {
                int64_t size = most_of(u->dim[a]);
                int64_t c = out.dim[a] > 1 || size == 1
                                ? at[a]
                                : (int64_t)(pixels_hash((uint32_t)a, (uint32_t)k) % (uint64_t)size);
                place = sat_mul(place, size);
                place = sat_add(place, c);
            }
            for (int a = x->ndim - 1; a >= 0; a--) {
                from[a] = place % most_of(x->dim[a]);
                place /= most_of(x->dim[a]);
            }
            pick(s, entry, k, 0, from, 0);
        }
    while (entry++, !p->full && next_place(at, out.dim, out.ndim));
    return out;
}

static struct field reshape(struct pixels *p, struct uop *u, const struct field *f)
{
    const struct uop *x = u->src[0];
    struct field out = {.s = f->s, .offset = f->offset, .ndim = u->ndim};
    int i = 0, o = 0;
    while (i < x->ndim || o < u->ndim) {
        int64_t ni = 1, no = 1;
        int lo = i, olo = o;
        if (i < x->ndim)
            ni = most_of(x->dim[i++]);
        if (o < u->ndim)
            no = most_of(u->dim[o++]);
        while (ni != no && (i < x->ndim || o < u->ndim)) {
            if ((ni < no && i < x->ndim) || o == u->ndim)
                ni = sat_mul(ni, most_of(x->dim[i++]));
            else
                no = sat_mul(no, most_of(u->dim[o++]));
        }
        while (i < x->ndim && uop_is_int(x->dim[i], 1) && o == u->ndim)
            i++;
        if (!view_group(f, lo, i, &out, u->dim, olo, o))
            return pick_reshape(p, u, f);
    }
    return out;
}

/* How many pixels are border: the share that windows of 2 b + 1 elements, one from each element on,
 * find of it, b being its width. (Means of small images are much less than those of large ones, and
 * the next layers' biases expect that.) */
static int border_pixels(const struct uop *u, const struct field *f)
{
    double inside = 1;
    for (int a = 0; a < u->ndim; a++) {
        double n = (double)most_of(u->src[0]->dim[a]);
        double b = ((double)most_of(u->dim[a]) - n) / 2;
        if (f->dim[a] == 1 && b > 0 && f->shift[a])
            inside *= fmax(1 - b * (b + 1) / (2 * b + 1) / n, 0);
    }
    return (int)(PIXELS * (1 - inside) + 0.5);
}

static struct field pad(struct pixels *p, struct uop *u, const struct field *f)
{
    struct field out = *f;
    bool any = false;
    float other = u->src[1]->op == OP_CONST && dtype_is_float(u->dtype) ? (float)u->src[1]->arg.f
                                                                        : 0;
    /* a border of -inf does not exist for a maximum */
    int border = f->s->uniform || !(fabsf(other) < 1e30f) ? 0 : border_pixels(u, f);
    for (int a = 0; a < u->ndim; a++) {
        int64_t lo = size_of(u->src[2 + 2 * a]), size = size_of(u->dim[a]);
        if (f->dim[a] == 1 || size == f->dim[a])
            continue;
        any |= size > 0 || lo > 0;
        out.dim[a] = size > 0 ? size : 1;
    }
    if ((!any && border == 0) || field_nentry(&out) > ENTRIES_MAX)
        return *f;
    int64_t at[MAX_RANK] = {0}, from[MAX_RANK], entry = 0;
    struct pixel_step *s = begin_pick(p, u, f, 1, &out);
    do {
        int which = 0;
        for (int a = 0; a < u->ndim; a++) {
            from[a] = at[a] - (out.dim[a] > 1 ? size_of(u->src[2 + 2 * a]) : 0);
            if (from[a] < 0 || from[a] >= f->dim[a])
                which = -1;
        }
        for (int k = 0; k < pixels_of(s) && !p->full; k++) {
            /* an odd factor permutes all pixels */
            bool inside = ((k * 23 + 5) & (PIXELS - 1)) >= border;
            pick(s, entry, k, inside ? which : -1, from, other);
        }
    } while (entry++, !p->full && next_place(at, out.dim, out.ndim));
    return out;
}

/* In full along the axis if there is room for that; a mixture of all sources otherwise. */
static struct field concat(struct pixels *p, struct uop *u)
{
    int axis = (int)u->arg.i, nin = u->nsrc < 100 ? u->nsrc : 100;
    struct field *in = scratch_array(p->t, (size_t)nin, sizeof *in), out = {.ndim = u->ndim};
    int64_t total = 0;
    for (int k = 0; k < nin; k++) {
        in[k] = p->field[p->at[u->src[k]->id]];
        total = sat_add(total, most_of(u->src[k]->dim[axis]));
    }
    fields_meet(p, in, nin, 1u << axis, &out);
    out.dim[axis] = 1;
    bool apart =
        size_of(u->dim[axis]) == total && sat_mul(total, field_nentry(&out)) <= ENTRIES_MAX;
    out.dim[axis] = apart ? total : 1;
    out.shift[axis] = !apart;
    int64_t at[MAX_RANK] = {0}, from[MAX_RANK], entry = 0;
    struct pixel_step *s = begin_pick(p, u, in, nin, &out);
    do
        for (int k = 0; k < pixels_of(s) && !p->full; k++) {
            int which = 0;
            memcpy(from, at, sizeof from);
            if (!apart)
                from[axis] =
                    (int64_t)(pixels_hash((uint32_t)axis, (uint32_t)k) % (uint64_t)total);
            while (which + 1 < nin && from[axis] >= most_of(u->src[which]->dim[axis]))
                from[axis] -= most_of(u->src[which++]->dim[axis]);
            pick(s, entry, k, which, from, 0);
        }
    while (entry++, !p->full && next_place(at, out.dim, out.ndim));
    return out;
}

static struct field shrink(struct pixels *p, struct uop *u, const struct field *f)
{
    struct field out = *f;
    for (int a = 0; a < u->ndim; a++) {
        int64_t begin, size;
        if (out.dim[a] == 1) {
            if (uop_is_int(u->dim[a], 1))
                out.shift[a] = 0;
            continue;
        }
        if (!uop_const_int(u->src[1 + 2 * a], &begin) || !uop_const_int(u->dim[a], &size) ||
            size < 1) {
            out = field_blur(p, &out, a);
            continue;
        }
        out.offset += begin * out.stride[a];
        out.dim[a] = size;
    }
    return out;
}

/* Axis a of x becomes outputs and taps. */
static struct field window(struct uop *u, const struct field *f)
{
    int axis = WINDOW_AXIS(u->arg.i);
    int64_t stride = WINDOW_STRIDE(u->arg.i), dilation = WINDOW_DILATION(u->arg.i);
    struct field out = *f;
    out.ndim++;
    for (int a = f->ndim; a > axis + 1; a--) {
        out.dim[a] = f->dim[a - 1];
        out.stride[a] = f->stride[a - 1];
        out.shift[a] = f->shift[a - 1];
    }
    bool apart = f->dim[axis] > 1;
    out.dim[axis] = apart ? size_of(u->dim[axis]) : 1;
    out.dim[axis + 1] = apart ? size_of(u->dim[axis + 1]) : 1;
    out.stride[axis] = f->stride[axis] * stride;
    out.stride[axis + 1] = f->stride[axis] * dilation;
    /* neighbours in a coarser image are neighbouring pixels, too; so are taps, whatever their
     * dilation */
    out.shift[axis] = uop_is_int(u->dim[axis], 1) ? 0 : f->shift[axis];
    out.shift[axis + 1] = f->shift[axis] * (dilation % ROW ? (int)(dilation % ROW) : 3);
    return out;
}

struct field field_move(struct pixels *p, struct uop *u)
{
    struct field f = u->op == OP_IOTA ? (struct field){0} : p->field[p->at[u->src[0]->id]], out = f;
    switch (u->op) {
    case OP_RESHAPE: return reshape(p, u, &f);
    case OP_PERMUTE:
        for (int a = 0; a < u->ndim; a++) {
            int from = PERM_GET(u->arg.i, a);
            out.dim[a] = f.dim[from];
            out.stride[a] = f.stride[from];
            out.shift[a] = f.shift[from];
        }
        return out;
    case OP_EXPAND: return out;
    case OP_PAD: return pad(p, u, &f);
    case OP_SHRINK: return shrink(p, u, &f);
    case OP_FLIP:
        for (int a = 0; a < u->ndim; a++)
            if (u->arg.i >> a & 1 && f.dim[a] > 1) {
                out.offset += (f.dim[a] - 1) * f.stride[a];
                out.stride[a] = -f.stride[a];
            }
        return out;
    case OP_WINDOW: return window(u, &f);
    default: return concat(p, u);
    }
}

/* A position among n that a pixel of a field stands for. */
static int64_t place_at(const struct field *f, const int64_t *at, int pixel, int64_t n)
{
    int shift;
    int64_t entry = field_entry(f, at, &shift);
    float c = f->s->uniform ? f->s->x[entry]
                            : f->s->x[entry * PIXELS + ((pixel + shift) & (PIXELS - 1))];
    return !(c > 0) ? 0 : c < (float)(n - 1) ? (int64_t)c : n - 1;
}

struct field field_stack(struct pixels *p, struct uop *u)
{
    int nin = u->nsrc < 100 ? u->nsrc : 100;
    struct field *in = scratch_array(p->t, (size_t)nin, sizeof *in), out = {.ndim = u->ndim};
    int64_t at[MAX_RANK] = {0}, entry = 0;
    for (int k = 0; k < nin; k++)
        in[k] = p->field[p->at[u->src[k]->id]];
    in[0].ndim = u->ndim;                             /* one scalar is the same everywhere */
    fields_meet(p, in, nin, 0, &out);
    struct pixel_step *s = begin_pick(p, u, in, nin, &out);
    do
        for (int k = 0; k < pixels_of(s) && !p->full; k++)
            pick(s, entry, k, 1 + (int)place_at(&in[0], at, k, nin - 1), at, 0);
    while (entry++, !p->full && next_place(at, out.dim, out.ndim));
    return out;
}

/* src[0] at computed coordinates; coordinates along sampled axes do not matter. */
struct field field_index(struct pixels *p, struct uop *u)
{
    const struct uop *x = u->src[0];
    struct field in[MAX_RANK + 1], out = {.ndim = u->ndim}, f = p->field[p->at[x->id]];
    int64_t at[MAX_RANK] = {0}, from[MAX_RANK], entry = 0;
    int n = 0, of[MAX_RANK];
    for (int a = 0; a < x->ndim; a++)
        if (f.dim[a] > 1)
            of[n] = a, in[n++] = p->field[p->at[u->src[1 + a]->id]];
    if (n)
        fields_meet(p, in, n, 0, &out);
    for (int a = 0; a < u->ndim; a++) {
        out.dim[a] = n ? out.dim[a] : 1;
        out.shift[a] = out.dim[a] > 1 || uop_is_int(u->dim[a], 1) ? 0 : a == u->ndim - 1 ? 1 : ROW;
    }
    struct pixel_step *s = begin_pick(p, u, &f, 1, &out);
    do
        for (int k = 0; k < pixels_of(s) && !p->full; k++) {
            memset(from, 0, sizeof from);
            for (int i = 0; i < n; i++)
                from[of[i]] = place_at(&in[i], at, k, f.dim[of[i]]);
            pick(s, entry, k, 0, from, 0);
        }
    while (entry++, !p->full && next_place(at, out.dim, out.ndim));
    return out;
}
