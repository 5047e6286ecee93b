/* device_cost.c - estimates what a kernel takes of a device that has a grid: threads, local memory, bytes that
 * its threads ask for, time.
 *
 * The longest of: its operations, as far as there are threads to keep the device's units busy; its buffers'
 * bytes from memory, each once; what the threads load and store, from the cache. To that comes the launch.
 */
#include "passes/analysis/access.h"
#include "passes/analysis/kernel_cost.h"

static double places_of(const struct kernel *k)
{
    double n = 1;
    for (int d = 0; d < k->ngrid; d++)
        n *= k->grid[d]->vmax > 0 ? (double)k->grid[d]->vmax : 0;
    return n;
}

/* What all threads do: those of a block have a loop of their own, or share one; what each of them loads from the
 * same place, outside of such loops, is loaded once. */
static void walk(const struct kernel *k, struct device_use *use)
{
    double open[128], trips = 1;
    int depth = 0, items = 0;
    for (int i = 0; i < k->nlinear; i++) {
        const struct uop *u = k->linear[i];
        if (u->op == OP_RANGE && depth < 128) {
            open[depth] = u->src[0]->vmax > 0 ? (double)u->src[0]->vmax : 1;
            if (range_is_of_block(u) && k->ngrid && items)
                open[depth] /= k->block;
            trips *= open[depth++];
            items += range_is_item(u);
        }
        if (u->op == OP_END && depth > 0) {
            trips /= open[--depth];
            items -= range_is_item(u->src[0]);
        }
        if (u->op == OP_COPY) {
            const double copied = trips * COPY_LANES(u->arg.i) * (double)dtype_nbytes(uop_buffer_of(u->src[0])->dtype);
            use->local_asked += copied;
            use->asked += copied;
        }
        if (u->op != OP_LOAD && u->op != OP_STORE && u->op != OP_GATHER)
            continue;
        const struct buffer *b = uop_buffer_of(u->src[0]);
        double nbytes = trips * (double)dtype_nbytes(b->dtype);
        if (buffer_space(b) == SPACE_LOCAL)
            use->local_asked += nbytes;
        else if (b->kind != BUFFER_SCRATCH)
            use->asked += nbytes;
    }
}

struct device_use device_use(struct tgc *t, const struct kernel *k)
{
    const struct device_row *d = t->device;
    struct device_use use = {.threads = places_of(k) * (k->block ? k->block : 1)};
    if (!device_has_grid(t))
        return (struct device_use){0};
    for (int i = 0; i < k->nscratch; i++)
        use.local_nbytes += k->scratch[i]->is_local ? buffer_most_nbytes(k->scratch[i]) : 0;
    walk(k, &use);
    /* threads of tiles wait for what all of them copy, a step early or while another block computes, and not for each term */
    double full = use.local_asked > 0 && use.local_asked > use.asked ? cost_tile_threads(d) : cost_full_threads(d);
    double busy = use.threads / full;
    use.moved = use.asked < k->nbytes ? use.asked : k->nbytes;       /* of a table that is gathered from, a part */
    double compute = k->flop / d->gflops / (busy < 1 ? busy : 1), memory = use.moved / d->gbytes,
           cache = use.asked / (d->gbytes * RATIO_GRID_CACHE);
    use.ns = compute > memory ? compute : memory;
    use.ns = (use.ns > cache ? use.ns : cache) + RATIO_GRID_LAUNCH;
    return use;
}

static bool is_known(const struct buffer *const *b, int n, const struct buffer *x)
{
    for (int i = 0; i < n; i++)
        if (b[i] == x)
            return true;
    return false;
}

/* Whether the condition, which names an entry, is false in its run. */
static bool is_of_another(struct tgc *t, const struct schedule *s, struct uop *cond, int entry)
{
    int64_t is = 1;
    struct uop *now = uop_substitute(t, cond, uop_var(t, s->graph->entry_number), uop_int(t, entry));
    return uop_const_int(now, &is) && is == 0;
}

bool *steps_of_entry(struct tgc *t, const struct schedule *s, int entry)
{
    bool *takes = scratch_array(t, (size_t)s->nstep + 1, sizeof *takes);
    int depth = 0, out = 0;      /* out: the depth of the branch that another entry takes */
    for (int i = 0; i < s->nstep; i++) {
        const struct step *st = &s->step[i];
        depth += st->kind == STEP_IF;
        if (st->kind == STEP_IF && !out && entry >= 0 && is_of_another(t, s, st->cond, entry))
            out = depth;
        else if (st->kind == STEP_ELSE && out == depth)
            out = 0;
        takes[i] = !out;
        if (st->kind == STEP_ENDIF) {
            out = out == depth ? 0 : out;
            depth--;
        }
    }
    return takes;
}

struct run_use run_use(struct tgc *t, const struct schedule *s, int entry)
{
    struct mem_mark mark = scratch_mark(t);
    const bool *takes = steps_of_entry(t, s, entry);
    struct run_use use = {0};
    for (int i = 0; i < s->nstep; i++)
        if (takes[i] && s->step[i].kernel) {
            use.kernels++;
            use.flop += s->step[i].kernel->flop;
        }
    scratch_release(t, mark);
    return use;
}

/* Bytes that no schedule could spare. */
static double least_nbytes(struct tgc *t, const struct schedule *s, const bool *takes)
{
    const struct buffer **seen = NULL;
    int nseen = 0;
    size_t cap = 0;
    double nbytes = 0;
    for (int i = 0; i < s->nstep; i++)
        for (int j = 0; takes[i] && s->step[i].kernel && j < s->step[i].kernel->nbuffer; j++) {
            const struct buffer *b = buffer_root(s->step[i].kernel->buffer[j]);
            bool counts = b->kind == BUFFER_INPUT || b->kind == BUFFER_OUTPUT || b->kind == BUFFER_WEIGHT;
            if (!counts || is_known(seen, nseen, b))
                continue;
            SCRATCH_PUSH(t, seen, nseen, cap, b);
            nbytes += buffer_most_nbytes(b);
        }
    return nbytes;
}

struct device_run device_run(struct tgc *t, const struct schedule *s, int entry)
{
    struct mem_mark mark = scratch_mark(t);
    const bool *takes = steps_of_entry(t, s, entry);
    struct device_run run = {.least = least_nbytes(t, s, takes)};
    for (int i = 0; i < s->nstep; i++) {
        const struct kernel *k = s->step[i].kernel;
        if (!k || !takes[i])
            continue;
        struct device_use use = device_use(t, k);
        run.launches++;
        run.moved += device_has_grid(t) ? use.moved : k->nbytes;
        run.asked += use.asked;
        run.local_nbytes = use.local_nbytes > run.local_nbytes ? use.local_nbytes : run.local_nbytes;
        run.ns += kernel_cost(t, s, k).ns;
    }
    scratch_release(t, mark);
    return run;
}

/* Reads of the program of a kernel. */
static void count_reads(struct uop *const *u, int n, struct image_use *use)
{
    for (int i = 0; i < n; i++) {
        if (u[i]->op != OP_LOAD || !VECTOR_IS_IMAGE(u[i]->arg.i))
            continue;
        use->reads++;
        use->gated += u[i]->nsrc > 2 && !load_is_zero_elsewhere(u[i]);
    }
}

static bool is_read_in_floats(const struct kernel *k, int i)
{
    return i >= k->noutput && (k->buffer[i]->dtype == DTYPE_F32 || k->buffer[i]->dtype == DTYPE_F16);
}

struct image_use image_use(struct tgc *t, const struct schedule *s, int entry)
{
    struct mem_mark mark = scratch_mark(t);
    struct image_use use = {0};
    const bool *takes = steps_of_entry(t, s, entry);
    bool *seen = scratch_array(t, 2 * ((size_t)t->next_buffer + 1), sizeof *seen);
    for (int i = 0; i < s->nstep && t->image; i++) {
        const struct kernel *k = s->step[i].kernel, *code = k && k->like ? k->like->kernel : k;
        if (!k || !takes[i])
            continue;
        if (code->nvariant > 0)
            count_reads(code->variant->linear, code->variant->nlinear, &use);
        else
            count_reads(code->linear, code->nlinear, &use);
        for (int j = 0; j < k->nbuffer; j++) {
            bool image = k->is_image && k->is_image[j];
            size_t at = 2 * (size_t)k->buffer[j]->id + image;
            if (!is_read_in_floats(k, j) || seen[at])
                continue;
            seen[at] = true;
            use.images += image;
            use.buffers += !image;
        }
    }
    scratch_release(t, mark);
    return use;
}
