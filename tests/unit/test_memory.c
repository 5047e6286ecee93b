/* test_memory.c - the memory plan, by running it.
 *
 * Random sets of lifetimes: whatever is alive in one step must not overlap; the size is compared
 * with the largest live set. Random schedules with branches and loops are run on a memory of owner
 * tags: a write leaves the buffer's tag on every block of its place, a read must find its own.
 * Branches and trip counts are drawn anew for each run. So a lifetime that is too short reads
 * somebody else's tag. So does a branch that shares what it must not, or an in-place kernel that is
 * not elementwise. */
#include "passes/place/memory.h"
#include "passes/passes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

struct random {
    uint64_t state;
};

static int draw(struct random *g, int n)
{
    g->state = g->state * 6364136223846793005u + 1442695040888963407u;
    return (int)((g->state >> 33) % (uint64_t)n);
}

/* ------------------------------------------------------------------------------------ intervals */

/* Whether one of them lies over the other as far as it may. */
static bool may_overlap(const struct slot *place, int i, int j)
{
    const struct slot *over = place[i].over == j + 1 ? &place[i] : &place[j],
                      *under = over == &place[i] ? &place[j] : &place[i];
    const struct slot *first = over->backwards ? under : over,
                      *then = over->backwards ? over : under;
    return over->over == (int)(under - place) + 1 &&
           (int64_t)first->offset <= (int64_t)then->offset + over->ahead;
}

static void check_packing(const struct slot *place, int n, size_t total)
{
    for (int i = 0; i < n; i++) {
        assert_int_equal(place[i].offset % ARENA_ALIGN, 0);
        assert_true(place[i].offset + place[i].nbytes <= total);
        for (int j = 0; j < i; j++) {
            bool apart = place[i].offset + place[i].nbytes <= place[j].offset ||
                         place[j].offset + place[j].nbytes <= place[i].offset ||
                         may_overlap(place, i, j);
            for (int a = 0; a < place[i].nspan && !apart && place[i].nbytes && place[j].nbytes;
                 a++) {
                for (int b = 0; b < place[j].nspan; b++) {
                    struct span x = place[i].span[a], y = place[j].span[b];
                    assert_true(x.end < y.begin || y.end < x.begin);
                }
            }
        }
    }
}

enum shape { SHAPE_ANY, SHAPE_SHORT, SHAPE_NETWORK, SHAPE_UNET, SHAPE_HOLES, SHAPE_COUNT };
static const char *const shape_name[] = {"any lifetimes", "short lifetimes", "residual network",
                                         "u-net", "with holes"};

/* Lifetimes as they come from chance, or from the models people run. */
static void random_life(struct random *g, enum shape shape, int i, int nstep, struct slot *p)
{
    int begin = draw(g, nstep), end = begin + draw(g, nstep - begin);
    size_t nbytes = 1 + (size_t)draw(g, 1 << draw(g, 18));
    switch (shape) {
    case SHAPE_SHORT:
        end = begin + draw(g, 4);
        break;
    case SHAPE_NETWORK: /* one value a step, read by the next, every fourth four steps on */
        begin = i;
        end = i + (i % 4 ? 1 : 4);
        nbytes = (size_t)(200704 >> (i * 4 / nstep)) * (i % 4 == 1 ? 1 : 4);
        break;
    case SHAPE_UNET: /* the way down is read on the way up */
        begin = i;
        end = i < nstep / 2 && i % 3 == 0 ? nstep - 1 - i : i + 1;
        nbytes = (size_t)65536 << (abs(i - nstep / 2) * 6 / nstep);
        break;
    default:
        break;
    }
    p->nbytes = nbytes;
    p->nspan = 1;
    p->span[0] = (struct span){begin, end < nstep ? end : nstep - 1};
    if (shape == SHAPE_HOLES && end - begin > 4) {
        p->span[1] = (struct span){end - draw(g, 2), end};
        p->span[0].end = begin + draw(g, 2);
        p->nspan = 2;
    }
}

/* Some places may lie over one that ends where they begin. */
static void draw_overlaps(struct random *g, struct slot *place, int n)
{
    bool under[300] = {false};
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n && n <= 300 && !place[i].over; j++) {
            const struct slot *a = &place[j];
            if (i == j || under[j] || draw(g, 4) == 0 ||
                a->span[a->nspan - 1].end != place[i].span[0].begin ||
                a->span[0].begin == place[i].span[0].begin)
                continue;
            bool backwards = draw(g, 2);
            int up = (int)((backwards ? &place[i] : a)->nbytes / ARENA_ALIGN),
                down = (int)((backwards ? a : &place[i])->nbytes / ARENA_ALIGN);
            place[i].over = j + 1;
            place[i].backwards = backwards;
            place[i].ahead = ARENA_ALIGN * (draw(g, up + down + 1) - down);
            under[j] = true;
        }
}

/* A pooling: the result begins a little below its input, the next one over that. */
static void test_overlaps(void **state)
{
    (void)state;
    struct span span[3] = {{0, 1}, {1, 2}, {2, 3}};
    struct slot place[3] = {
        {.nbytes = 6400, .span = &span[0], .nspan = 1},
        {.nbytes = 3200, .span = &span[1], .nspan = 1, .over = 1, .ahead = -128},
        {.nbytes = 6400, .span = &span[2], .nspan = 1, .over = 2, .ahead = 0}};
    struct tgc *t = tgc_new(0);
    size_t total;
    assert_int_equal(arena_live_nbytes(t, place, 3, 4), 6528);
    assert_true(arena_pack(t, place, 3, 4, &total, NULL));
    check_packing(place, 3, total);
    assert_int_equal(total, 6528);
    place[1].ahead = 640;                                 /* within it, and not beyond */
    assert_true(arena_pack(t, place, 3, 4, &total, NULL));
    check_packing(place, 3, total);
    assert_int_equal(total, 6400);
    place[1].ahead = place[2].ahead = -128;               /* lower and lower, or up again */
    assert_true(arena_pack(t, place, 3, 4, &total, NULL));
    check_packing(place, 3, total);
    assert_int_equal(total, 6656);
    place[2].backwards = true;
    assert_true(arena_pack(t, place, 3, 4, &total, NULL));
    check_packing(place, 3, total);
    assert_int_equal(total, 6528);
    tgc_free(t);
}

static void test_random_lifetimes(void **state)
{
    (void)state;
    struct random g = {7};
    for (int shape = 0; shape < SHAPE_COUNT; shape++) {
        double sum = 0, worst = 0;
        long nplace = 0;
        int rounds = 60;
        for (int r = 0; r < rounds; r++) {
            struct tgc *t = tgc_new(0);
            int n = shape == SHAPE_NETWORK || shape == SHAPE_UNET ? 20 + draw(&g, 150)
                                                                  : 2 + draw(&g, 120);
            int nstep = shape == SHAPE_NETWORK || shape == SHAPE_UNET ? n : 2 + draw(&g, 100);
            struct slot *place = mem_array(t, (size_t)n, sizeof *place);
            for (int i = 0; i < n; i++) {
                place[i].span = mem_array(t, 2, sizeof *place[i].span);
                random_life(&g, (enum shape)shape, i, nstep, &place[i]);
            }
            if (r % 3 == 0)
                draw_overlaps(&g, place, n);
            size_t total, live = arena_live_nbytes(t, place, n, nstep);
            assert_true(arena_pack(t, place, n, nstep, &total, NULL));
            check_packing(place, n, total);
            assert_true(total >= live);
            double ratio = (double)total / (double)live;
            sum += ratio;
            worst = ratio > worst ? ratio : worst;
            nplace += n;
            tgc_free(t);
        }
        print_message("arena: %-16s %5ld places, %.4f of the lower bound, at worst %.4f\n",
                      shape_name[shape], nplace, sum / rounds, worst);
        assert_true(sum / rounds < 1.05);
    }
}

/* Results of random sizes, all of which are alive before they are read again in random order,
 * beside what they become: the work is counted, not timed. */
static void test_work_is_bounded(void **state)
{
    (void)state;
    struct random g = {11};
    for (int k = 150; k <= 1200; k *= 2) {
        struct tgc *t = tgc_new(0);
        int n = 3 * k, nstep = 4 * k, *order = mem_array(t, (size_t)k, sizeof *order);
        struct slot *place = mem_array(t, (size_t)n, sizeof *place);
        struct span *span = mem_array(t, (size_t)n, sizeof *span);
        for (int i = 0; i < k; i++) {
            int j = draw(&g, i + 1);
            order[i] = order[j];
            order[j] = i;
        }
        for (int i = 0; i < k; i++) {
            int from = k + 3 * i;
            span[i] = (struct span){i, k + 3 * order[i]};
            span[k + i] = (struct span){from, from + 1};
            span[2 * k + i] = (struct span){from + 1, from + 5 < nstep ? from + 5 : nstep - 1};
        }
        for (int i = 0; i < n; i++)
            place[i] = (struct slot){.nbytes = (size_t)(148 * (8 + draw(&g, 57))),
                                     .span = &span[i], .nspan = 1};
        size_t total;
        double work, packing = (double)n * n;
        assert_true(arena_pack(t, place, n, nstep, &total, &work));
        check_packing(place, n, total);
        print_message("arena: %d places read again, %.0f neighbours looked at\n", n, work);
        assert_true(work <= ARENA_WORK + 8 * packing);
        tgc_free(t);
    }
}

static void test_nothing_and_too_much(void **state)
{
    (void)state;
    struct tgc *t = tgc_new(0);
    struct span always = {0, 1};
    struct slot place[3] = {{SIZE_MAX / 2, &always, 1, 0},
                            {SIZE_MAX / 2, &always, 1, 0},
                            {SIZE_MAX / 2, &always, 1, 0}};
    size_t total = 1;
    assert_true(arena_pack(t, NULL, 0, 0, &total, NULL));
    assert_int_equal(total, 0);
    assert_false(arena_pack(t, place, 3, 2, &total, NULL));
    place[0].nbytes = SIZE_MAX - 8;
    assert_false(arena_pack(t, place, 1, 2, &total, NULL));
    tgc_free(t);
}

/* ----------------------------------------------------------------------------- random schedules */

enum { MAX_BUFFERS = 400, MAX_STEPS = 500, MAX_READS = 4, NITERATION = 4 };

/* What the oracle knows of a kernel, beside the schedule. */
struct effect {
    struct buffer *in[MAX_READS];
    bool elementwise[MAX_READS];
    int nin;
    struct buffer *out;
    bool slice; /* writes one slice of out: the iteration's */
    bool conditional; /* its store has a condition */
};

struct program {
    struct tgc *t;
    struct random *g;
    struct schedule s;
    struct effect effect[MAX_STEPS];
    struct buffer *defined[MAX_BUFFERS];
    int ndefined, depth;
    size_t cap_step, cap_buffer;
    struct var *counter; /* of the innermost loop */
};

static struct buffer *new_buffer(struct program *p, enum buffer_kind kind, enum dtype d, int64_t n)
{
    struct uop *dim = uop_int(p->t, n);
    struct buffer *b = buffer_new(p->t, kind, d, &dim, 1, NULL);
    if (kind != BUFFER_OUTPUT)
        VEC_PUSH(p->t, p->s.buffer, p->s.nbuffer, p->cap_buffer, b);
    return b;
}

static int64_t random_size(struct program *p)
{
    static const int64_t size[] = {1, 16, 100, 256, 256, 1000, 1024, 1024, 3000};
    return size[draw(p->g, 9)];
}

static int push_step(struct program *p, struct step st)
{
    assert_true(p->s.nstep < MAX_STEPS);
    VEC_PUSH(p->t, p->s.step, p->s.nstep, p->cap_step, st);
    return p->s.nstep - 1;
}

static struct uop *load(struct program *p, struct buffer *b, struct uop *offset)
{
    struct uop *src[2] = {uop_buffer(p->t, b), offset};
    return uop_intern(p->t, OP_LOAD, b->dtype, src, 2, (union arg){0});
}

/* out = f(in...): inputs of out's size mostly at the stored element, others at its mirror image. */
static void push_kernel(struct program *p, struct effect e)
{
    struct tgc *t = p->t;
    struct kernel *k = MEM_NEW(t, struct kernel);
    struct uop *range = uop_range(t, e.out->dim[0], t->next_range++);
    struct uop *value = uop_constf(t, DTYPE_F32, 1);
    k->buffer = mem_array(t, MAX_READS + 1, sizeof *k->buffer);
    k->buffer[k->nbuffer++] = e.out;
    k->noutput = 1;
    for (int i = 0; i < e.nin; i++) {
        struct uop *mirror = sym_sub(t, sym_addi(t, e.in[i]->dim[0], -1), range);
        struct uop *x = load(p, e.in[i], e.elementwise[i] ? range : mirror);
        x = x->dtype == DTYPE_F32 ? x : uop_cast(t, DTYPE_F32, x);
        value = uop_binary(t, OP_ADD, value, x);
        bool known = false;
        for (int j = 0; j < k->nbuffer; j++)
            known |= k->buffer[j] == e.in[i];
        if (!known)
            k->buffer[k->nbuffer++] = e.in[i];
    }
    value = e.out->dtype == DTYPE_F32 ? value : uop_cast(t, e.out->dtype, value);
    struct uop *at = e.slice ? sym_add(t, range, uop_var(t, p->counter)) : range;
    struct uop *some = uop_binary(t, OP_LT, range, uop_int(t, 7));
    struct uop *src[5] = {uop_buffer(t, e.out), at, value, e.conditional ? some : range, range};
    struct uop *store =
        uop_intern(t, OP_STORE, value->dtype, src, e.conditional ? 5 : 4, (union arg){0});
    k->ast = uop_intern(t, OP_SINK, DTYPE_VOID, &store, 1, (union arg){0});
    if (draw(p->g, 6) == 0) {
        k->scratch = mem_array(t, 1, sizeof *k->scratch);
        k->scratch[k->nscratch++] = new_buffer(p, BUFFER_SCRATCH, DTYPE_F32, draw(p->g, 3000));
    }
    p->effect[push_step(p, (struct step){.kind = STEP_KERNEL, .kernel = k})] = e;
}

static void write_buffer(struct program *p, struct buffer *out, bool slice)
{
    struct effect e = {.out = out, .slice = slice};
    for (int want = draw(p->g, MAX_READS + 1); want > 0 && p->ndefined; want--) {
        /* mostly recent ones, so that others die */
        int back = draw(p->g, draw(p->g, 4) ? 4 : p->ndefined);
        struct buffer *in = p->defined[back < p->ndefined ? p->ndefined - 1 - back : 0];
        bool twice = false;
        for (int i = 0; i < e.nin; i++)
            twice |= e.in[i] == in;
        if (twice || in == out)
            continue;
        e.elementwise[e.nin] = in->dim[0] == out->dim[0] && !slice && draw(p->g, 4);
        e.in[e.nin++] = in;
    }
    push_kernel(p, e);
}

static void define(struct program *p, struct buffer *b)
{
    assert_true(p->ndefined < MAX_BUFFERS);
    p->defined[p->ndefined++] = b;
}

static struct buffer *push_scalar(struct program *p, enum dtype d)
{
    struct buffer *b = new_buffer(p, BUFFER_TEMP, d, 1);
    write_buffer(p, b, false);
    return b;
}

static void push_block(struct program *p, int nstatement);
static void push_loop(struct program *p, struct buffer *scan);

static struct buffer *new_scan(struct program *p)
{
    return new_buffer(p, BUFFER_TEMP, DTYPE_F32, 1024 * NITERATION);
}

static void push_if(struct program *p)
{
    struct buffer *cond = push_scalar(p, DTYPE_BOOL);
    struct buffer *result[2] = {new_buffer(p, BUFFER_TEMP, DTYPE_F32, random_size(p)), new_scan(p)};
    bool by_loop = p->depth < 3 && draw(p->g, 2);
    int outer = p->ndefined;
    push_step(p, (struct step){.kind = STEP_IF, .cond = load(p, cond, uop_int(p->t, 0))});
    for (int side = 0; side < 2; side++) {
        if (side)
            push_step(p, (struct step){.kind = STEP_ELSE});
        push_block(p, 1 + draw(p->g, 3));
        write_buffer(p, result[0], false);
        if (side && by_loop)
            push_loop(p, result[1]);
        else
            write_buffer(p, result[1], false);
        p->ndefined = outer;
    }
    push_step(p, (struct step){.kind = STEP_ENDIF});
    define(p, result[0]);
    define(p, result[1]);
}

/* Stacks slices in `scan`. */
static void push_loop(struct program *p, struct buffer *scan)
{
    struct buffer *trip = push_scalar(p, DTYPE_I64);
    struct buffer *cond = new_buffer(p, BUFFER_STATE, DTYPE_BOOL, 1);
    struct buffer *carried = new_buffer(p, BUFFER_STATE, DTYPE_F32, random_size(p));
    struct var *outer_counter = p->counter;
    write_buffer(p, carried, false);
    write_buffer(p, cond, false);
    struct uop *trip_value = load(p, trip, uop_int(p->t, 0));
    p->counter = var_new(p->t, "i", 0, NITERATION);
    push_step(p, (struct step){.kind = STEP_LOOP, .counter = p->counter, .trip = trip_value});
    push_step(p, (struct step){.kind = STEP_BREAK_UNLESS, .cond = load(p, cond, uop_int(p->t, 0))});
    int outer = p->ndefined;
    define(p, carried);
    push_block(p, 1 + draw(p->g, 4));
    struct buffer *fresh = new_buffer(p, BUFFER_TEMP, DTYPE_F32, carried->dim[0]->arg.i);
    struct buffer *next_cond = push_scalar(p, DTYPE_BOOL);
    write_buffer(p, fresh, false);
    write_buffer(p, scan, true);
    push_kernel(p, (struct effect){.in = {fresh}, .elementwise = {true}, .nin = 1, .out = carried});
    push_kernel(p,
                (struct effect){.in = {next_cond}, .elementwise = {true}, .nin = 1, .out = cond});
    push_step(p, (struct step){.kind = STEP_ENDLOOP});
    p->ndefined = outer;
    p->counter = outer_counter;
    define(p, carried);
    define(p, scan);
}

static void push_block(struct program *p, int nstatement)
{
    for (int i = 0; i < nstatement; i++) {
        int what = p->depth < 2 && p->s.nstep < 150 ? draw(p->g, 8) : 7;
        p->depth++;
        if (what == 0)
            push_if(p);
        else if (what == 1)
            push_loop(p, new_scan(p));
        p->depth--;
        if (what > 1) {
            struct buffer *b = new_buffer(p, BUFFER_TEMP, DTYPE_F32, random_size(p));
            write_buffer(p, b, false);
            define(p, b);
        }
    }
}

/* ----------------------------------------------------------------------------------- running it */

struct replay {
    struct program *p;
    struct random *g;
    int *owner; /* buffer id by block of the arena, -1: nobody */
    size_t nblock;
    int written[MAX_BUFFERS * 4]; /* by buffer id: slices written */
    int iteration;
    long checks;
};

static bool in_arena(const struct buffer *b)
{
    bool small = b->kind == BUFFER_SCRATCH && b->nbytes <= STACK_SCRATCH_NBYTES;
    return b->kind != BUFFER_OUTPUT && b->nbytes && !small;
}

static void range_of(const struct replay *m, const struct buffer *b, int slice, size_t *at,
                     size_t *end)
{
    size_t nbytes = slice < 0 ? b->nbytes : b->nbytes / NITERATION;
    size_t first = b->offset + (slice < 0 ? 0 : (size_t)slice * nbytes);
    assert_int_equal(b->offset % ARENA_ALIGN, 0);
    *at = first / ARENA_ALIGN;
    *end = (first + nbytes + ARENA_ALIGN - 1) / ARENA_ALIGN;
    assert_true(*end <= m->nblock);
}

static void run_write(struct replay *m, const struct buffer *b, int slice)
{
    size_t at, end;
    if (!in_arena(b))
        return;
    range_of(m, b, slice, &at, &end);
    for (; at < end; at++)
        m->owner[at] = b->id;
    m->written[b->id] = slice < 0 ? -1 : slice + 1;
}

static void run_read(struct replay *m, const struct buffer *b)
{
    int nslice = m->written[b->id];
    if (!in_arena(b))
        return;
    for (int slice = nslice < 0 ? -1 : 0; slice < nslice || slice < 0; slice++) {
        size_t at, end;
        range_of(m, b, slice, &at, &end);
        for (; at < end; at++) {
            m->checks++;
            if (m->owner[at] != b->id)
                fail_msg("buffer %d was overwritten by %d", b->id, m->owner[at]);
        }
        if (slice < 0)
            break;
    }
}

static void run_expression(struct replay *m, const struct uop *load_of)
{
    run_read(m, load_of->src[0]->arg.p);
}

static void run_kernel(struct replay *m, const struct kernel *k, const struct effect *e)
{
    for (int i = 0; i < e->nin; i++)
        run_read(m, e->in[i]);
    for (int i = 0; i < k->nscratch; i++)
        run_write(m, k->scratch[i], -1);
    for (int i = 0; i < e->nin; i++)
        run_read(m, e->in[i]);
    run_write(m, e->out, e->slice ? m->iteration : -1);
    for (int i = 0; i < e->nin; i++) {
        if (!e->elementwise[i])
            run_read(m, e->in[i]);
    }
    for (int i = 0; i < k->nscratch; i++)
        run_read(m, k->scratch[i]);
}

/* The step that closes the region opened at `step`, or its ELSE. */
static int matching(const struct schedule *s, int step, bool or_else)
{
    for (int depth = 0, i = step + 1;; i++) {
        enum step_kind k = s->step[i].kind;
        assert_true(i < s->nstep);
        if (depth == 0 && (k == STEP_ENDIF || k == STEP_ENDLOOP || (or_else && k == STEP_ELSE)))
            return i;
        depth += k == STEP_IF || k == STEP_LOOP ? 1 : k == STEP_ENDIF || k == STEP_ENDLOOP ? -1 : 0;
    }
}

static void run_steps(struct replay *m, int from, int to);

static void run_loop(struct replay *m, int begin, int end)
{
    int outer = m->iteration, trips = draw(m->g, NITERATION + 1);
    for (int i = begin; i < end; i++) {
        if (m->p->effect[i].slice)
            m->written[m->p->effect[i].out->id] = 0; /* nothing stacked yet */
    }
    for (m->iteration = 0;; m->iteration++) {
        run_expression(m, m->p->s.step[begin].trip);
        if (m->iteration >= trips)
            break;
        run_expression(m, m->p->s.step[begin + 1].cond);
        if (draw(m->g, 10) == 0)
            break;
        run_steps(m, begin + 2, end);
    }
    m->iteration = outer;
}

static void run_steps(struct replay *m, int from, int to)
{
    const struct schedule *s = &m->p->s;
    for (int i = from; i < to; i++) {
        const struct step *st = &s->step[i];
        if (st->kind == STEP_KERNEL) {
            run_kernel(m, st->kernel, &m->p->effect[i]);
        } else if (st->kind == STEP_IF) {
            int other = matching(s, i, true), end = matching(s, i, false);
            run_expression(m, st->cond);
            if (draw(m->g, 2))
                run_steps(m, i + 1, other);
            else
                run_steps(m, other + 1, end);
            i = end;
        } else if (st->kind == STEP_LOOP) {
            int end = matching(s, i, false);
            run_loop(m, i, end);
            i = end;
        }
    }
}

struct totals {
    long nstep, nbuffer, nrun, checks, tight;
    double ratio;
};

static bool plan_memory(struct tgc *t, struct schedule *s)
{
    return pass_sizes(t, s) && pass_arena(t, s) && pass_weights(t, s);
}

static void plan_and_run(struct tgc *t, struct random *g, struct totals *sum)
{
    struct program *p = MEM_NEW(t, struct program);
    p->t = t;
    p->g = g;
    push_block(p, 3 + draw(g, 20));
    write_buffer(p, new_buffer(p, BUFFER_OUTPUT, DTYPE_F32, 100), false);
    assert_true(plan_memory(t, &p->s));
    assert_true(p->s.arena_nbytes >= p->s.live_nbytes);
    for (int run = 0; run < 8; run++) {
        struct replay *m = MEM_NEW(t, struct replay);
        assert_true(t->next_buffer < MAX_BUFFERS * 4);
        *m = (struct replay){.p = p, .g = g, .nblock = p->s.arena_nbytes / ARENA_ALIGN};
        m->owner = mem_array(t, m->nblock, sizeof *m->owner);
        memset(m->owner, -1, m->nblock * sizeof *m->owner);
        run_steps(m, 0, p->s.nstep);
        sum->checks += m->checks;
        sum->nrun++;
    }
    sum->nstep += p->s.nstep;
    sum->nbuffer += p->s.nbuffer;
    sum->tight += p->s.arena_nbytes == p->s.live_nbytes;
    sum->ratio += p->s.live_nbytes ? (double)p->s.arena_nbytes / (double)p->s.live_nbytes : 1;
}

/* A compile that stops is a failure with a message, not a jump into nowhere. */
static void guarded_plan_and_run(struct random *g, struct totals *sum)
{
    struct tgc *t = tgc_new(0);
    if (setjmp(t->stop))
        fail_msg("%s", t->ndiag ? t->diag[0].message : "stopped");
    plan_and_run(t, g, sum);
    tgc_free(t);
}

static void test_random_schedules(void **state)
{
    (void)state;
    struct random g = {11};
    struct totals sum = {0};
    int nprogram = 400;
    for (int k = 0; k < nprogram; k++)
        guarded_plan_and_run(&g, &sum);
    print_message(
        "memory: %d schedules of %ld steps and %ld buffers, %ld runs, %ld blocks checked; "
        "%.4f of the lower bound, %ld equal it\n",
        nprogram, sum.nstep, sum.nbuffer, sum.nrun, sum.checks, sum.ratio / nprogram, sum.tight);
    assert_true(sum.checks > 100000);
    assert_true(sum.ratio / nprogram < 1.05);
}

/* -------------------------------------------------------------------------------- known answers */

static struct program *program_new(struct random *g)
{
    struct tgc *t = tgc_new(0);
    struct program *p = MEM_NEW(t, struct program);
    p->t = t;
    p->g = g;
    return p;
}

static void push_copy(struct program *p, struct buffer *out, struct buffer *in, bool elementwise)
{
    struct effect e = {.in = {in}, .elementwise = {elementwise}, .nin = in ? 1 : 0, .out = out};
    p->g->state = 0; /* no scratch */
    push_kernel(p, e);
}

static void test_in_place(void **state)
{
    (void)state;
    for (int elementwise = 0; elementwise < 2; elementwise++) {
        struct random g = {0};
        struct program *p = program_new(&g);
        struct buffer *a = new_buffer(p, BUFFER_TEMP, DTYPE_F32, 1024);
        struct buffer *b = new_buffer(p, BUFFER_TEMP, DTYPE_I32, 1024);
        push_copy(p, a, NULL, true);
        push_copy(p, b, a, elementwise);
        push_copy(p, new_buffer(p, BUFFER_OUTPUT, DTYPE_F32, 1024), b, true);
        assert_true(plan_memory(p->t, &p->s));
        assert_int_equal(p->s.arena_nbytes, elementwise ? 4096 : 8192);
        assert_true((a->offset == b->offset) == elementwise);
        tgc_free(p->t);
    }
}

/* A conditional store keeps the result's old elements where its condition is false: it must not
 * share the input's memory. */
static void test_conditional_is_not_in_place(void **state)
{
    (void)state;
    struct random g = {0};
    struct program *p = program_new(&g);
    struct buffer *a = new_buffer(p, BUFFER_TEMP, DTYPE_F32, 1024);
    struct buffer *b = new_buffer(p, BUFFER_TEMP, DTYPE_F32, 1024);
    push_copy(p, a, NULL, true);
    g.state = 0; /* no scratch */
    push_kernel(p, (struct effect){.in = {a}, .elementwise = {true}, .nin = 1, .out = b,
                                   .conditional = true});
    push_copy(p, new_buffer(p, BUFFER_OUTPUT, DTYPE_F32, 1024), b, true);
    assert_true(plan_memory(p->t, &p->s));
    assert_int_equal(p->s.arena_nbytes, 8192);
    tgc_free(p->t);
}

static void test_branches_share(void **state)
{
    (void)state;
    struct random g = {0};
    struct program *p = program_new(&g);
    struct buffer *cond = new_buffer(p, BUFFER_TEMP, DTYPE_BOOL, 1), *side[2];
    struct buffer *r = new_buffer(p, BUFFER_TEMP, DTYPE_F32, 2048);
    push_copy(p, cond, NULL, true);
    for (int k = 0; k < 2; k++) {
        side[k] = new_buffer(p, BUFFER_TEMP, DTYPE_F32, 1024);
        push_step(p, k ? (struct step){.kind = STEP_ELSE}
                       : (struct step){.kind = STEP_IF, .cond = load(p, cond, uop_int(p->t, 0))});
        push_copy(p, side[k], NULL, true);
        struct buffer *big = new_buffer(p, BUFFER_TEMP, DTYPE_F32, 2048);
        push_copy(p, big, side[k], false);
        push_copy(p, r, big, false);
    }
    push_step(p, (struct step){.kind = STEP_ENDIF});
    push_copy(p, new_buffer(p, BUFFER_OUTPUT, DTYPE_F32, 2048), r, true);
    assert_true(plan_memory(p->t, &p->s));
    /* r is not alive in ELSE before it is written there: never more than two large ones */
    assert_int_equal(p->s.arena_nbytes, 2 * 8192);
    tgc_free(p->t);
}

/* In ELSE `r` is read before it is written, within an IF there by both branches: it is alive in all
 * of ELSE, and nothing else is in its place. */
static void test_read_first_in_else(void **state)
{
    (void)state;
    struct random g = {0};
    struct program *p = program_new(&g);
    struct buffer *cond = new_buffer(p, BUFFER_TEMP, DTYPE_BOOL, 1);
    struct buffer *r = new_buffer(p, BUFFER_TEMP, DTYPE_F32, 1024);
    struct buffer *other = new_buffer(p, BUFFER_TEMP, DTYPE_F32, 1024);
    struct buffer *out = new_buffer(p, BUFFER_OUTPUT, DTYPE_F32, 1024);
    struct step begins = {.kind = STEP_IF, .cond = load(p, cond, uop_int(p->t, 0))};
    push_copy(p, cond, NULL, true);
    push_step(p, begins);
    push_copy(p, r, NULL, true);
    push_step(p, (struct step){.kind = STEP_ELSE});
    push_copy(p, r, r, true);
    push_step(p, begins);
    push_copy(p, other, NULL, true);
    g.state = 0; /* no scratch */
    push_kernel(p, (struct effect){.in = {r, other}, .nin = 2, .out = out});
    push_step(p, (struct step){.kind = STEP_ELSE});
    push_copy(p, out, r, false);
    push_step(p, (struct step){.kind = STEP_ENDIF});
    push_step(p, (struct step){.kind = STEP_ENDIF});
    assert_true(plan_memory(p->t, &p->s));
    assert_int_equal(p->s.arena_nbytes, 2 * 4096);
    assert_int_not_equal(r->offset, other->offset);
    tgc_free(p->t);
}

static void test_parts_live_in_their_base(void **state)
{
    (void)state;
    struct random g = {0};
    struct program *p = program_new(&g);
    struct buffer *base = new_buffer(p, BUFFER_TEMP, DTYPE_F32, 48);
    struct buffer *part[2];
    for (int k = 0; k < 2; k++) {
        part[k] = new_buffer(p, BUFFER_TEMP, DTYPE_F32, k ? 32 : 16);
        part[k]->base = base;
        part[k]->base_offset = uop_int(p->t, k ? 16 : 0);
        push_copy(p, part[k], NULL, true);
        push_copy(p, new_buffer(p, BUFFER_TEMP, DTYPE_F32, 5000), NULL, true);
    }
    push_copy(p, new_buffer(p, BUFFER_OUTPUT, DTYPE_F32, 48), base, true);
    assert_true(plan_memory(p->t, &p->s));
    assert_int_equal(part[0]->offset, base->offset);
    assert_int_equal(part[1]->offset, base->offset + 64);
    assert_int_equal(p->s.arena_nbytes, 20032 + 192);
    tgc_free(p->t);
}

static struct buffer *new_weight(struct program *p, const void *data, int64_t nelem)
{
    struct uop *dim = uop_int(p->t, nelem);
    struct buffer *b = buffer_new(p->t, BUFFER_WEIGHT, DTYPE_F32, &dim, 1, "w");
    b->weight.data = data;
    b->nbytes = (size_t)nelem * 4;
    return b;
}

static void test_weights(void **state)
{
    (void)state;
    struct random g = {0};
    struct program *p = program_new(&g);
    float a[20] = {1, 2, 3}, same[20] = {1, 2, 3}, other[20] = {1, 2, 4};
    struct buffer *w[6] = {new_weight(p, a, 20), new_weight(p, other, 20), new_weight(p, same, 20),
                           new_weight(p, a, 19), new_weight(p, a, 0),      new_weight(p, same, 20)};
    p->s.weight = w;
    p->s.nweight = 6;
    assert_true(plan_memory(p->t, &p->s));
    assert_int_equal(w[0]->offset, 0);
    assert_int_equal(w[1]->offset, 128);
    assert_int_equal(w[2]->offset, 0);
    assert_int_equal(w[3]->offset, 256);
    assert_int_equal(w[5]->offset, 0);
    assert_int_equal(p->s.weight_nbytes, 256 + 76);
    tgc_free(p->t);
}

static void test_limits(void **state)
{
    (void)state;
    struct random g = {0};
    static const int64_t bound[] = {INT64_MAX, (int64_t)1 << 62, 1 << 20};
    for (int k = 0; k < 3; k++) {
        struct program *p = program_new(&g);
        struct uop *dim[2] = {uop_var(p->t, var_new(p->t, "N", 1, bound[k])), uop_int(p->t, 3)};
        struct buffer *b = buffer_new(p->t, BUFFER_TEMP, DTYPE_F32, dim, 2, "x");
        VEC_PUSH(p->t, p->s.buffer, p->s.nbuffer, p->cap_buffer, b);
        push_copy(p, b, NULL, true);
        p->t->mem_limit = (size_t)8 << 20;
        assert_false(plan_memory(p->t, &p->s));
        assert_int_equal(p->t->nerror, 1);
        print_message("  %s\n", p->t->diag[0].message);
        tgc_free(p->t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_overlaps),
        cmocka_unit_test(test_random_lifetimes),
        cmocka_unit_test(test_work_is_bounded),
        cmocka_unit_test(test_nothing_and_too_much),
        cmocka_unit_test(test_random_schedules),
        cmocka_unit_test(test_in_place),
        cmocka_unit_test(test_conditional_is_not_in_place),
        cmocka_unit_test(test_branches_share),
        cmocka_unit_test(test_read_first_in_else),
        cmocka_unit_test(test_parts_live_in_their_base),
        cmocka_unit_test(test_weights),
        cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
