/* queues.c - assigns the kernels of a part of a run to queues: independent kernels may overlap
 * where one alone leaves a part of the device idle.
 *
 *      a ── b ── d ── join      queue 0, the caller's
 *        └─ c ───┘              queue 1: c waits for a, d waits for c
 *
 * Two kernels depend on each other if they access the same bytes, and one of them stores. Tensors
 * share places in the memory, so bytes count, not values. (extent.c tells parts of one tensor
 * apart.) Each kernel goes to the queue where it can begin first (list scheduling, in the
 * schedule's order). Several queues are used only if a simulated run is shorter with them. In the
 * simulation kernels that overlap share the device.
 */
#include "backends/device/device.h"
#include "passes/analysis/kernel_cost.h"
#include "passes/target/cost.h"

#include <math.h>

enum { MOST_KERNELS = 512, MOST_ACCESSES = 64 };

struct access {
    int place;
    size_t from, to;
    bool writes;
    const struct buffer *root;
    const struct extent *extent;
};
struct job {
    const struct kernel *kernel;
    struct access access[MOST_ACCESSES];
    int naccess;
    double ns, share;          /* its time alone; the share of the device that it uses, at most 1 */
    int queue, wait[DEVICE_QUEUES], nwait;       /* waits: for jobs, by their index */
    bool signals;
};
/* depends[j * n + i]: j on i */
struct part { struct tgc *t; struct job *job; int n; uint8_t *depends; };

/* ------------------------------------------------------------------------------- dependences */

static bool add_access(struct program *p, struct job *j, const struct parameter *a)
{
    const struct buffer *root = buffer_root(a->b);
    const struct state *st = root->port.state;
    struct access x = {
        .place = device_place(p, a->b), .writes = parameter_is_written(j->kernel, a), .root = root};
    if (x.place == PLACE_WEIGHTS)
        return true;
    if (j->naccess == MOST_ACCESSES ||
        (root->kind == BUFFER_SCRATCH && root->scratch.space != SPACE_GLOBAL))
        return false;
    if (st) {
        size_t low = st->place[0] < st->place[1] ? st->place[0] : st->place[1];
        size_t high = st->place[0] < st->place[1] ? st->place[1] : st->place[0];
        x.from = p->device_states + low;
        x.to = p->device_states + high + st->nbytes;
    } else {
        x.from = x.place >= PLACE_FIRST_INPUT ? 0 : p->place[root->id];
        x.to = x.from + root->nbytes;
        x.extent = root->kind == BUFFER_SCRATCH ? NULL : device_extent(p->t, j->kernel, a->b);
    }
    j->access[j->naccess++] = x;
    return true;
}

static bool conflict(const struct job *a, const struct job *b)
{
    for (int i = 0; i < a->naccess; i++)
        for (int k = 0; k < b->naccess; k++) {
            const struct access *x = &a->access[i], *y = &b->access[k];
            if (x->place == y->place && (x->writes || y->writes) && x->from < y->to &&
                y->from < x->to &&
                (x->root != y->root || !x->extent || !y->extent ||
                 device_extents_meet(x->extent, y->extent)))
                return true;
        }
    return false;
}

/* false: it is not known which memory a kernel accesses. */
static bool read_jobs(struct program *p, struct part *x, int from)
{
    double full = cost_full_threads(p->t->device);
    for (int i = 0; i < x->n; i++) {
        struct job *j = &x->job[i];
        int n;
        *j = (struct job){.kernel = p->s->kernel[from + i]};
        const struct parameter *a = kernel_parameters(p->t, j->kernel, &n);
        for (int k = 0; k < n; k++)
            if (a[k].b && !add_access(p, j, &a[k]))
                return false;
        double busy = device_use(p->t, j->kernel).threads / full;
        j->ns = kernel_cost(p->t, p->s, j->kernel).ns;
        j->share = busy < 1 ? busy : 1;
        for (int k = 0; k < i; k++)
            x->depends[i * x->n + k] = conflict(&x->job[k], j);
    }
    return true;
}

/* --------------------------------------------------------------------------------- assignment */

/* Assigns a kernel to the queue where it can begin first; of several, to that of
 * its last operand. */
static void assign(struct part *x, double *end, int nqueue)
{
    double idle[DEVICE_QUEUES] = {0};
    for (int j = 0; j < x->n; j++) {
        double best = HUGE_VAL, last = -1;
        int of = 0;
        for (int i = 0; i < j; i++)
            if (x->depends[j * x->n + i] && end[i] > last) {
                last = end[i];
                of = x->job[i].queue;
            }
        for (int k = 0; k < nqueue; k++) {
            int q = (of + k) % nqueue;
            double begin = idle[q];
            for (int i = 0; i < j; i++) {
                double ready = end[i] + (x->job[i].queue == q ? 0 : RATIO_GRID_WAIT);
                begin = x->depends[j * x->n + i] && ready > begin ? ready : begin;
            }
            if (begin < best) {
                best = begin;
                x->job[j].queue = q;
            }
        }
        idle[x->job[j].queue] = end[j] = best + x->job[j].ns;
    }
}

/* Finds the waits. seen[q][r]: the last kernel of queue r that is known to be done after the last
 * kernel of queue q. A kernel waits for others only if its queue does not know them to be done. At
 * the end each queue but the first is waited for. */
static void find_waits(struct part *x, int nqueue)
{
    int (*known)[DEVICE_QUEUES] = mem_array(x->t, (size_t)x->n + 1, sizeof *known);
    int last[DEVICE_QUEUES];
    for (int q = 0; q < DEVICE_QUEUES; q++)
        last[q] = -1;
    for (int j = 0; j < x->n; j++) {
        struct job *job = &x->job[j];
        int q = job->queue, *mine = known[j];
        job->nwait = 0;
        job->signals = false;
        for (int r = 0; r < nqueue; r++)
            mine[r] = last[q] < 0 ? -1 : known[last[q]][r];
        for (int i = j - 1; i >= 0; i--) {
            int r = x->job[i].queue;
            if (!x->depends[j * x->n + i] || r == q || mine[r] >= i)
                continue;
            job->wait[job->nwait++] = i;
            x->job[i].signals = true;
            for (int k = 0; k < nqueue; k++)
                mine[k] = known[i][k] > mine[k] ? known[i][k] : mine[k];
        }
        mine[q] = last[q] = j;
    }
    for (int q = 1; q < nqueue; q++)
        if (last[q] >= 0)
            x->job[last[q]].signals = true;
}

/* The part's time in ns. Kernels that overlap slow down if together they want more
 * than the device. */
static double simulate(const struct part *x, int nqueue)
{
    double *left = mem_array(x->t, (size_t)x->n + 1, sizeof *left), now = 0;
    int next[DEVICE_QUEUES] = {0}, ndone = 0;
    bool *done = mem_array(x->t, (size_t)x->n + 1, sizeof *done);
    for (int i = 0; i < x->n; i++)
        left[i] = x->job[i].ns + RATIO_GRID_WAIT * x->job[i].nwait;
    while (ndone < x->n) {
        double share = 0, least = HUGE_VAL;
        int runs[DEVICE_QUEUES];
        for (int q = 0; q < nqueue; q++) {
            while (next[q] < x->n && (done[next[q]] || x->job[next[q]].queue != q))
                next[q]++;
            runs[q] = next[q] < x->n ? next[q] : -1;
            for (int k = 0; runs[q] >= 0 && k < x->job[next[q]].nwait; k++)
                if (!done[x->job[next[q]].wait[k]])
                    runs[q] = -1;
            if (runs[q] >= 0)
                share += x->job[runs[q]].share;
        }
        double rate = share > 1 ? 1 / share : 1;
        for (int q = 0; q < nqueue; q++)
            if (runs[q] >= 0 && left[runs[q]] < least)
                least = left[runs[q]];
        now += least / rate;
        for (int q = 0; q < nqueue; q++)
            if (runs[q] >= 0 && (left[runs[q]] -= least) <= 0) {
                done[runs[q]] = true;
                ndone++;
            }
    }
    return now;
}

/* The number of queues that pays; adds the part's time. */
static int choose(struct part *x, double *ns)
{
    double *end = mem_array(x->t, (size_t)x->n + 1, sizeof *end), one = 0, best;
    int chosen = 1;
    for (int i = 0; i < x->n; i++)
        one += x->job[i].ns;
    best = one * (1 - DEVICE_QUEUES_GAIN);
    for (int n = 2; n <= DEVICE_QUEUES; n++) {
        assign(x, end, n);
        find_waits(x, n);
        double taken = simulate(x, n) + RATIO_GRID_WAIT * n;     /* the begin, and each one's end */
        if (taken < best) {
            best = taken;
            chosen = n;
        }
    }
    *ns += chosen > 1 ? best : one;
    if (chosen > 1) {
        assign(x, end, chosen);
        find_waits(x, chosen);
    }
    return chosen;
}

/* ----------------------------------------------------------------------------------- the tables */

static bool read_part(struct program *p, struct part *x, int from, int n)
{
    *x = (struct part){.t = p->t, .n = n};
    if (n < 3 || n > MOST_KERNELS)
        return false;
    x->job = mem_array(p->t, (size_t)n, sizeof *x->job);
    x->depends = mem_array(p->t, (size_t)n * (size_t)n, sizeof *x->depends);
    return read_jobs(p, x, from);
}

/* The number of kernels that device_launches() launches together at this step. */
static int count_kernels(const struct schedule *s, int step)
{
    int n = 0;
    while (step + n < s->nstep && s->step[step + n].kind == STEP_KERNEL &&
           s->step[step + n].kernel->index == s->step[step].kernel->index + n)
        n++;
    return n;
}

double device_choose_queues(struct program *p)
{
    const struct schedule *s = p->s;
    double ns = 0;
    p->device_queues = 1;
    p->turn = mem_array(p->t, (size_t)s->nkernel + 1, sizeof *p->turn);
    if (!device_has_grid(p->t) || !p->backend->driver->has_queues || p->nimage > 0)
        return 0;                  /* images are copies of tensors, or alias them */
    for (int i = 0, n; i < s->nstep; i += n > 0 ? n : 1) {
        struct part x;
        n = count_kernels(s, i);
        int from = n ? s->step[i].kernel->index : 0;
        int nqueue = n && read_part(p, &x, from, n) ? choose(&x, &ns) : 1;
        if (nqueue == 1)
            continue;
        p->device_queues = nqueue > p->device_queues ? nqueue : p->device_queues;
        for (int j = 0; j < n; j++) {
            struct device_turn *t = &p->turn[from + j];
            *t = (struct device_turn){.queue = x.job[j].queue,
                                      .nwait = x.job[j].nwait,
                                      .signals = x.job[j].signals,
                                      .by_queues = true};
            for (int k = 0; k < t->nwait; k++)
                t->wait[k] = from + x.job[j].wait[k];
        }
    }
    return ns;
}

/* The kernels of the part that must precede kernel j, without those that precede another one of
 * these. behind[j * n + i]: i precedes j, directly or not. */
static int find_nearest(const struct part *x, uint8_t *behind, int j, int *of)
{
    uint8_t *mine = &behind[j * x->n];
    int count = 0;
    for (int i = j - 1; i >= 0; i--) {
        if (!x->depends[j * x->n + i] || mine[i])
            continue;
        of[count++] = i;
        mine[i] = 1;
        for (int k = 0; k < i; k++)
            mine[k] |= behind[i * x->n + k];
    }
    return count;
}

static void put_numbers(struct text *out, const char *name, const int *v, int n)
{
    text_printf(out, "static const int %s[] = {\n    ", name);
    struct text_list list = {
        .out = out, .separator = ",", .line = out->n - 4, .indent = 4, .tail = 1};
    for (int i = 0; i < n; i++)
        list_put(&list, mem_printf(out->t, "%d", v[i]));
    text_puts(out, "};\n");
}

/* A part's kernels: how many there are and in the longest chain of dependences, and the ns of both.
 * ns: the estimate, the larger of the chain's time and the sum of each kernel's time times its
 * share of the device. */
struct length { int all, longest; double all_ns, longest_ns, ns; };
static void add_lengths(const struct part *x, struct length *sum)
{
    struct length most = {0};
    double busy = 0;
    struct length *at = mem_array(x->t, (size_t)x->n + 1, sizeof *at);
    for (int j = 0; j < x->n; j++) {
        for (int i = 0; i < j; i++)
            if (x->depends[j * x->n + i] && at[i].longest_ns > at[j].longest_ns)
                at[j] = at[i];
        at[j].longest++;
        at[j].longest_ns += x->job[j].ns;
        most = at[j].longest_ns > most.longest_ns ? at[j] : most;
        sum->all++;
        sum->all_ns += x->job[j].ns;
        busy += x->job[j].ns * x->job[j].share;
    }
    sum->ns += busy > most.longest_ns ? busy : most.longest_ns;
    sum->longest += most.longest;
    sum->longest_ns += most.longest_ns;
}

double device_graph_ns(struct program *p)
{
    struct length sum = {0};
    for (int i = 0, n; i < p->s->nstep; i += n > 0 ? n : 1) {
        struct part x;
        n = count_kernels(p->s, i);
        if (n && read_part(p, &x, p->s->step[i].kernel->index, n))
            add_lengths(&x, &sum);
    }
    return sum.ns;
}

void device_write_order(struct program *p, struct text *out)
{
    const int nkernel = p->s->nkernel;
    int *first = mem_array(p->t, (size_t)nkernel + 2, sizeof *first), *of = NULL, most = 1, n = 0;
    struct length sum = {0};
    size_t cap = 0;
    for (int i = 0, size; i < nkernel; i += size) {
        struct part x = {0};
        uint8_t *behind = NULL;
        size = p->device_part[i] ? p->device_part[i] - i : 1;
        if (read_part(p, &x, i, size)) {
            behind = mem_array(p->t, (size_t)size * (size_t)size, sizeof *behind);
            add_lengths(&x, &sum);
        }
        for (int j = 0; j < size; j++) {
            int *near = mem_array(p->t, (size_t)j + 1, sizeof *near), count = j > 0;
            near[0] = j - 1;              /* if accesses are not known, kernels run one by one */
            if (behind)
                count = find_nearest(&x, behind, j, near);
            for (int k = 0; k < count; k++)
                VEC_PUSH(p->t, of, n, cap, i + near[k]);
            first[i + j + 1] = n;
            most = count > most ? count : most;
        }
    }
    VEC_PUSH(p->t, of, n, cap, 0);
    text_puts(out,
              "/* By kernel: where those of its graph that it is behind begin in behind_of[].");
    if (sum.longest < sum.all)
        text_printf(out,
                    " Of %d kernels the longest chain has\n * %d; one by one they take %.0f us by "
                    "estimate, so ordered %.0f.",
                    sum.all, sum.longest, sum.all_ns / 1e3, sum.ns / 1e3);
    text_printf(out, " */\nenum { %s_BEHIND = %d };\n", p->upper, most);
    put_numbers(out, "behind_first", first, nkernel + 1);
    put_numbers(out, "behind_of", of, n);
    text_putc(out, '\n');
}

void device_write_turns(struct program *p, struct text *out)
{
    const struct schedule *s = p->s;
    text_printf(out, "enum { %s_QUEUES = %d };\n", p->upper, p->device_queues);
    if (p->device_queues == 1)
        return;
    text_puts(out, "/* Of each kernel its queue, 0: the caller's; how many kernels of other queues "
                   "it waits for, and which;\n"
                   " * whether others wait for it. */\n"
                   "static const struct { int queue, count; bool signals; int wait[");
    text_printf(out, "%d]; } turn_of[] = {\n", p->device_queues);
    for (int i = 0; i < s->nkernel; i++) {
        const struct device_turn *t = &p->turn[i];
        text_printf(out, "    {%d, %d, %s, {", t->queue, t->nwait, t->signals ? "true" : "false");
        for (int k = 0; k < t->nwait || k == 0; k++)
            text_printf(out, "%s%d", k ? ", " : "", t->nwait ? t->wait[k] : 0);
        text_printf(out, "}},    /* %s */\n", p->kernel_name[i]);
    }
    text_puts(out, "};\n\n");
}
