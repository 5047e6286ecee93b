/* launch.c - a run's kernels as tables, which NAME_init() turns into kernel objects with their
 * arguments, and the statements that launch them.
 *
 *      argument_of[]   {place, whether it varies, byte}, of all kernels
 *      launch_of[]     {function, first argument, number of arguments, grid, block}
 *
 *      const uint64_t varying[] = {in->dim_batch};   arguments of kernel 7 that this run sets
 *      status = vary(self, 7, varying, NULL);
 *      status = run_part(self, 0, 12);               twelve kernels, as recorded or set
 */
#include "backends/device/device.h"
#include "ir/device_ops.h"

static int position_of(struct buffer *const *b, int n, const struct buffer *of)
{
    for (int i = 0; i < n; i++)
        if (b[i] == of)
            return i;
    return -1;
}

int device_count_places(const struct program *p)
{
    return PLACE_FIRST_INPUT + p->s->ninput + p->s->noutput + p->nown;
}

/* A place after those of inputs and outputs, or the memory's own. */
static int own_place(const struct program *p, const struct buffer *root)
{
    int own = root->port.state ? p->place_of_states : p->own_place[root->id];
    return own ? PLACE_FIRST_INPUT + p->s->ninput + p->s->noutput + own - 1 : PLACE_MEMORY;
}

int device_place(const struct program *p, const struct buffer *b)
{
    const struct schedule *s = p->s;
    const struct buffer *root = buffer_root(b);
    int input = position_of(s->input, s->ninput, root),
        output = position_of(s->output, s->noutput, root);
    return root->kind == BUFFER_WEIGHT ? PLACE_WEIGHTS
           : input >= 0                ? PLACE_FIRST_INPUT + input
           : output >= 0               ? PLACE_FIRST_INPUT + s->ninput + output
                                       : own_place(p, root);
}

const char *device_offset(struct program *p, const struct buffer *b, bool *varies)
{
    const struct buffer *root = buffer_root(b);
    const struct state *st = root->port.state;
    bool at_begin = device_place(p, b) >= PLACE_FIRST_INPUT, of_states = st && p->place_of_states;
    size_t at = of_states  ? p->place[root->id] - p->device_states
                : at_begin ? 0
                           : p->place[root->id];
    struct text s = {.t = p->t}, more = {.t = p->t};
    *varies = false;
    if (st && state_has_two_places(st)) {
        bool next = root != st->in;
        *varies = true;
        at = of_states ? 0 : p->device_states;
        text_printf(&more, " + (uint64_t)(%s ? %zu : %zu)", state_is_odd(p, st), st->place[!next],
                    st->place[next]);
    }
    for (; b->base; b = b->base) {
        if (!b->base_offset)
            continue;
        if (b->base_offset->op == OP_CONST) {
            at += dtype_nbytes(b->dtype) * (size_t)b->base_offset->arg.i;
            continue;
        }
        *varies = true;
        text_printf(&more, " + %zu * (uint64_t)(%s)", dtype_nbytes(b->dtype),
                    program_scalar(p, b->base_offset));
    }
    text_printf(&s, "%zu%s", at, more.n ? more.s : "");
    return s.s;
}

int device_image(const struct program *p, const struct buffer *b)
{
    return p->image_number[b->weight.same ? b->weight.same->id : b->id] - 1;
}

static bool is_image(const struct kernel *k, const struct parameter *a)
{
    return a->b && !a->map && a->at < k->nbuffer && k->is_image && k->is_image[a->at];
}

/* The byte of its place at which the argument begins. */
static const char *offset_of(struct program *p, const struct parameter *a, bool *varies)
{
    const char *at = device_offset(p, a->b, varies);
    const int64_t first = a->map ? a->map->src[bulk_source(a->map, BULK_FIRST)]->arg.i *
                                       (int64_t)dtype_nbytes(a->b->dtype)
                                 : 0;
    return first ? mem_printf(p->t, "%s + %lld", at, (long long)first) : at;
}

static void write_arguments(struct program *p, const struct kernel *k, struct text *out)
{
    int n;
    const struct parameter *a = kernel_parameters(p->t, k, &n);
    struct text_list list = {.out = out, .separator = ",", .line = out->n, .indent = 4, .tail = 1};
    text_puts(out, "    ");
    for (int i = 0; i < n; i++) {
        bool varies = true;
        if (is_image(k, &a[i])) {
            list_put(&list, mem_printf(p->t, "{%d, 0, 0}",
                                       device_count_places(p) + device_image(p, a[i].b)));
            continue;
        }
        const char *at = a[i].b ? offset_of(p, &a[i], &varies) : NULL;
        list_put(&list, mem_printf(p->t, "{%d, %d, %s}", a[i].b ? device_place(p, a[i].b) : -1,
                                   varies, varies ? "0" : at));
    }
    text_printf(out, "%s    /* %s */\n", n ? "," : "", p->kernel_name[k->index]);
}

static int count_arguments(struct program *p, const struct kernel *k)
{
    int n;
    kernel_parameters(p->t, k, &n);
    return n;
}

void device_block(const struct kernel *k, int block[GRID_RANK])
{
    for (int d = 0; d < GRID_RANK; d++)
        block[d] = k->block ? (d ? 1 : kernel_threads(k)) : d < k->ngrid ? k->group[d] : 1;
}

/* The blocks (work-groups) in a dimension. */
static struct uop *groups_of(struct program *p, const struct kernel *k, int d)
{
    int block[GRID_RANK];
    device_block(k, block);
    if (!k->ngrid)
        return uop_int(p->t, k->is_shared && d == 0 ? p->threads : 1);
    return d >= k->ngrid ? uop_int(p->t, 1)
           : k->block    ? k->grid[d]
                         : sym_ceildiv(p->t, k->grid[d], block[d]);
}

int64_t device_most_groups(struct program *p, const struct kernel *k, int d)
{
    return groups_of(p, k, d)->vmax;
}

int device_axis(struct program *p, const struct kernel *k, int d)
{
    const int64_t *most = p->backend->driver->most_groups;
    int largest = 0;
    bool fits = true;
    for (int i = 0; i < GRID_RANK && most; i++) {
        fits &= device_most_groups(p, k, i) <= most[i];
        if (device_most_groups(p, k, i) > device_most_groups(p, k, largest))
            largest = i;
    }
    return fits ? d : d == largest ? 0 : d == 0 ? largest : d;
}

/* The blocks along axis a. */
static struct uop *blocks_along(struct program *p, const struct kernel *k, int a)
{
    return groups_of(p, k, device_axis(p, k, a));
}

static bool grid_varies(struct program *p, const struct kernel *k)
{
    int64_t n;
    for (int d = 0; d < GRID_RANK; d++)
        if (!uop_const_int(groups_of(p, k, d), &n))
            return true;
    return false;
}

/* A grid that each run computes; a computed dimension may be negative, which stands for 0. */
static const char *write_groups(struct program *p, const struct kernel *k, struct text *out)
{
    if (!grid_varies(p, k))
        return "NULL";
    text_puts(out, "    const size_t groups[] = {");
    for (int d = 0; d < GRID_RANK; d++)
        text_printf(out, "%s(size_t)(%s)", d ? ", " : "",
                    program_scalar(p, sym_max(p->t, blocks_along(p, k, d), uop_int(p->t, 0))));
    text_puts(out, "};\n");
    return "groups";
}

void device_write_list(struct program *p, struct text *out)
{
    const struct schedule *s = p->s;
    int first = 0;
    text_printf(out, "enum { %s_KERNELS = %d, %s_PLACES = %d, %s_INPUTS = %d };\n", p->upper,
                s->nkernel, p->upper, device_count_places(p), p->upper, s->ninput);
    text_printf(out,
                "/* On a processor a kernel has a work-group for each core, at most those of "
                "launch_of[]. */\n"
                "enum { %s_PER_CORE = %d };\n\n",
                p->upper, p->t->device && p->t->device->is_processor);
    text_printf(out,
                "/* Where tensors lie: 0, the memory; 1, the weights; from 2 on the inputs, then "
                "the outputs%s. */\n",
                p->nown ? ", then\n * all else, then what is read as an image" : "");
    text_puts(out,
                   "static const struct argument argument_of[] = {\n");
    for (int i = 0; i < s->nkernel; i++)
        write_arguments(p, s->kernel[i], out);
    text_puts(out, "    {-1, 0, 0}\n};\n\nstatic const struct launch launch_of[] = {\n");
    for (int i = 0; i < s->nkernel; i++) {
        const struct kernel *k = s->kernel[i];
        int n = count_arguments(p, k);
        int block[GRID_RANK];
        int64_t groups[GRID_RANK];
        device_block(k, block);
        for (int d = 0; d < GRID_RANK; d++)
            if (!uop_const_int(blocks_along(p, k, d), &groups[d]))
                groups[d] = 1;               /* the run tells */
        text_printf(out, "    {\"%s_%s\", %d, %d, {%lld, %lld, %lld}, {%d, %d, %d}},\n", p->name,
                    program_kernel_name(p, k), first, n, (long long)groups[0], (long long)groups[1],
                    (long long)groups[2], block[0], block[1], block[2]);
        first += n;
    }
    p->device_arguments = first;
    text_puts(out, "    {NULL, 0, 0, {1, 1, 1}, {1, 1, 1}}\n};\n\n");
}

/* The arguments of a kernel that each run sets, as a list; NULL: there are none. */
static const char *varying(struct program *p, const struct kernel *k)
{
    enum { DEPTH = 4 };
    int n;
    const struct parameter *a = kernel_parameters(p->t, k, &n);
    struct text s = {.t = p->t};
    struct text_list list = {.out = &s, .separator = ",", .tail = DEPTH + 3};
    text_puts(&s, "    const uint64_t varying[] = {");
    list.indent = s.n;
    bool any = false;
    for (int i = 0; i < n; i++) {
        bool varies = true;
        if (is_image(k, &a[i]))
            continue;
        const char *at = a[i].b ? offset_of(p, &a[i], &varies)
                                : mem_printf(p->t, "(uint64_t)(%s)", program_var_in_run(p, a[i].v));
        if (varies)
            list_put(&list, at);
        any |= varies;
    }
    text_puts(&s, "};\n");
    return any ? s.s : NULL;
}

/* Is the step's kernel the n-th one from `first` on? */
static bool goes_on(const struct schedule *s, int step, const struct kernel *first, int n)
{
    return step < s->nstep && s->step[step].kind == STEP_KERNEL &&
           s->step[step].kernel->index == first->index + n;
}

int device_launches(struct program *p, int step, struct text *out)
{
    const struct schedule *s = p->s;
    const struct kernel *first = s->step[step].kernel;
    int n = 0;
    for (; goes_on(s, step + n, first, n); n++) {
        const struct kernel *k = s->step[step + n].kernel;
        const char *list = varying(p, k);
        if (!list && !grid_varies(p, k))
            continue;
        snippet_use(&p->snippets, "device_vary");
        text_printf(out, "{\n%s", list ? list : "");
        const char *groups = write_groups(p, k, out);
        text_printf(out, "    status = vary(self, %d, %s, %s);\n}\n", k->index,
                    list ? "varying" : "NULL", groups);
        text_printf(out, "if (status != %s_OK)\n    return status;\n", p->upper);
    }
    bool by_queues = p->turn[first->index].by_queues;
    snippet_use(&p->snippets, by_queues ? "device_launch_queued" : "device_launch");
    p->device_part[first->index] = first->index + n;
    text_printf(out, "status = run_part%s(self, %d, %d);\n", by_queues ? "_queued" : "",
                first->index, first->index + n);
    return n;
}
