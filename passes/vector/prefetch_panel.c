/* prefetch_panel.c - prefetches a contraction's next panel of weights while the present one is
 * used.
 *
 *      for panel                             for panel
 *        for tile < 32                         for tile < 32
 *          for k < 768                           for k < 768
 *                                                  prefetch w[(panel + 1)*PANEL + (tile*768 + k)*2]
 *            ... w[panel*PANEL + k*64]             ... w[panel*PANEL + k*64]
 *
 * A panel is read once from memory, by the first tile of rows, and then by all others from the
 * cache: without prefetching the first tile waits for each line. The steps of all tiles together
 * fetch the next panel, evenly. After the last panel they fetch what is read next, since weights
 * are placed in order of use. A line may be prefetched more than once, which costs less than a
 * test.
 *
 * This works best while lanes are loops: expand.c keeps what is inserted here. */
#include "passes/analysis/stationary.h"
#include "passes/vector/expand.h"

enum { DEPTH_MAX = 32, TILES_MIN = 3 };

struct stream {
    struct expander *e;
    struct uop *loop[DEPTH_MAX]; int nloop;      /* open at `at`, outermost first */
    struct uop *load;
    int panel, tile;             /* indices into loop[] */
    int64_t size, tiles, steps;  /* floats of a panel; tiles that read it; steps of each tile */
};

/* The loops that are open after e->in[at]; false: too many, or of another form. */
static bool find_loops(struct stream *s, int at)
{
    s->nloop = 0;
    for (int i = 0; i <= at; i++) {
        struct uop *u = s->e->in[i];
        if (u->op == OP_END)
            s->nloop -= s->nloop > 0 && s->loop[s->nloop - 1] == u->src[0];
        if (u->op != OP_RANGE)
            continue;
        if (s->nloop == DEPTH_MAX || u->src[0]->op != OP_CONST)
            return false;
        s->loop[s->nloop++] = u;
    }
    return true;
}

static bool is_packed(const struct uop *u)
{
    const struct buffer *b = u->op == OP_LOAD ? uop_buffer_of(u->src[0]) : NULL;
    return b && buffer_is_stationary(b) && b->storage;
}

/* The single packed weight that is read in the innermost loop at `at`, by vectors. */
static bool find_load(struct stream *s, int at)
{
    int end = expand_find_end(s->e, at);
    bool vectors = false;
    s->load = NULL;
    for (int i = at + 1; i < end; i++) {
        struct uop *u = s->e->in[i];
        vectors |= range_is(u, AXIS_VECTOR);
        if (u->op == OP_RANGE && !range_is_lane(u))
            return false;
        if (!is_packed(u))
            continue;
        if (s->load || u->dtype != DTYPE_F32 || u->nsrc > 2)
            return false;
        s->load = u;
    }
    return s->load && vectors;
}

static int64_t size_of(const struct uop *range) { return range->src[0]->arg.i; }

/* The loops must nest as: panel · tiles, in which the weight is invariant · steps, which read the
 * panel in order. */
static bool find_panel(struct stream *s)
{
    struct tgc *t = s->e->t;
    struct uop *offset = s->load->src[1];
    int64_t stride, row;
    s->tile = s->nloop;
    s->tiles = s->steps = 1;
    while (s->tile > 0 && uop_depends_on(t, offset, s->loop[s->tile - 1]))
        s->steps = sat_mul(s->steps, size_of(s->loop[--s->tile]));
    s->panel = s->tile;
    while (s->panel > 0 && !uop_depends_on(t, offset, s->loop[s->panel - 1]))
        s->tiles = sat_mul(s->tiles, size_of(s->loop[--s->panel]));
    if (s->panel == 0 || s->tile == s->nloop || s->tiles < TILES_MIN)
        return false;
    s->panel--;
    if (range_is(s->loop[s->panel], AXIS_PART) ||
        !index_stride(t, offset, s->loop[s->panel], &s->size) ||
        !index_stride(t, offset, s->loop[s->nloop - 1], &row) || row < 1)
        return false;
    stride = row;
    for (int k = s->nloop - 1; k >= s->tile; k--) {
        int64_t is;
        if (!index_stride(t, offset, s->loop[k], &is) || is != stride)
            return false;
        stride = sat_mul(stride, size_of(s->loop[k]));
    }
    const struct machine *m = machine_of(t);
    int64_t nbytes = sat_mul(s->size, (int64_t)sizeof(float));
    int64_t all = sat_mul(nbytes, size_of(s->loop[s->panel]));
    return stride == s->size && (double)nbytes <= cost_fit(m, FIT_PANEL_KEPT) &&
           (double)all >= cost_fit(m, FIT_OPERAND);
}

/* Writes a PREFETCH after the loop opened at `at`, if it reads a panel of weights that others have
 * read before. */
static void prefetch_panel(struct expander *e, int at)
{
    struct tgc *t = e->t;
    struct stream s = {.e = e};
    if (!find_loops(&s, at) || !find_load(&s, at) || !find_panel(&s))
        return;
    int64_t all = sat_mul(s.tiles, s.steps), each = (s.size + all - 1) / all;
    struct uop *place = uop_int(t, 0);
    for (int k = s.panel + 1; k < s.nloop; k++)
        place = sym_add(t, sym_muli(t, place, size_of(s.loop[k])), s.loop[k]);
    place = sym_muli(t, place, each);
    for (int k = 0; k <= s.panel; k++) {
        int64_t stride;
        if (!index_stride(t, s.load->src[1], s.loop[k], &stride))
            return;
        struct uop *now = s.loop[k];
        place = sym_add(t, place, sym_muli(t, k == s.panel ? sym_addi(t, now, 1) : now, stride));
    }
    int64_t size = machine_of(t)->line / (int64_t)sizeof(float);
    for (int64_t line = 0; line < each && line < (int64_t)RATIO_PANEL_LINES * size; line += size) {
        struct uop *src[2] = {s.load->src[0], sym_addi(t, place, line)};
        expand_need(e, src[1]);
        expand_push(e, uop_intern(t, OP_PREFETCH, DTYPE_VOID, src, 2, (union arg){0}));
    }
}

/* The program with them; an expander that copies. */
static void prefetch_panels(struct tgc *t, struct uop ***linear, int *nlinear)
{
    struct mem_mark mark = scratch_mark(t);
    struct expander *e = scratch_array(t, 1, sizeof *e);
    *e = (struct expander){.t = t, .in = *linear, .nin = *nlinear};
    e->scopes.known = (struct uop_map){.t = t, .scratch = true};
    for (int i = 0, lanes = 0; i < e->nin; i++) {
        struct uop *u = e->in[i];
        expand_copy(e, u);
        lanes += range_is_lane(u) - (u->op == OP_END && range_is_lane(u->src[0]));
        if (u->op == OP_RANGE && lanes == 0)
            prefetch_panel(e, i);
    }
    if (e->nout > e->nin) {
        *linear = mem_copy(t, e->out, (size_t)e->nout * sizeof *e->out);
        *nlinear = e->nout;
    }
    scratch_release(t, mark);
}

bool pass_prefetch_panel(struct tgc *t, struct schedule *s, struct kernel *k)
{
    (void)s;
    for (int i = 0; i < k->nvariant; i++) {
        struct variant *v = &k->variant[i];
        bool packed = false;
        for (int j = 0; j < v->nlinear; j++)
            packed |= is_packed(v->linear[j]);
        if (packed)
            prefetch_panels(t, &v->linear, &v->nlinear);
    }
    return true;
}
