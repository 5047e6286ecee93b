/* dump.c - a schedule as text for people (.uops), as a graph (.dot) and as data (.json). */
#include "backends/program/program.h"
#include "passes/analysis/kernel_cost.h"
#include "passes/analysis/stationary.h"

#include <math.h>

static const char *buffer_label(struct tgc *t, const struct buffer *b)
{
    static const char *const kind[] = {"input", "output", "weight", "temp", "state", "scratch"};
    if (b->name && *b->name)
        return mem_printf(t, "%s %s", kind[b->kind], b->name);
    return mem_printf(t, "%s b%d", kind[b->kind], b->id);
}

/* Inputs, outputs, weights and the arena's buffers. */
static const struct buffer *const *all_buffers(struct tgc *t, const struct schedule *s, int *n)
{
    struct {
        struct buffer *const *b;
        int n;
    } group[] = {{s->input, s->ninput},
                 {s->output, s->noutput},
                 {s->weight, s->nweight},
                 {s->buffer, s->nbuffer}};
    *n = s->ninput + s->noutput + s->nweight + s->nbuffer;
    const struct buffer **all = scratch_array(t, (size_t)*n + 1, sizeof *all), **at = all;
    for (size_t g = 0; g < sizeof group / sizeof *group; g++)
        for (int i = 0; i < group[g].n; i++)
            *at++ = group[g].b[i];
    return all;
}

void schedule_write_step(struct text *out, const struct step *step)
{
    switch (step->kind) {
    case STEP_KERNEL: text_printf(out, "run %s\n", step->kernel->name); break;
    case STEP_HOST: text_printf(out, "host %s\n", step->host->function); break;
    case STEP_IF: text_puts(out, "if "); uop_print(out, step->cond); text_putc(out, '\n'); break;
    case STEP_ELSE: text_puts(out, "else\n"); break;
    case STEP_ENDIF: text_puts(out, "endif\n"); break;
    case STEP_LOOP:
        text_puts(out, "loop ");
        uop_print(out, step->trip);
        text_putc(out, '\n');
        break;
    case STEP_BREAK_UNLESS:
        text_puts(out, "break unless ");
        uop_print(out, step->cond);
        text_putc(out, '\n');
        break;
    case STEP_ENDLOOP: text_puts(out, "endloop\n"); break;
    }
}

void schedule_write_kernel_head(struct text *out, struct tgc *t, const struct kernel *k,
                                const char *name)
{
    text_printf(out, "kernel %s  # ", name);
    text_comment(out, k->title ? k->title : "");
    text_putc(out, '\n');
    for (int j = 0; j < k->nbuffer; j++) {
        text_printf(out, "  %s %s ", j < k->noutput ? "out" : "in ",
                    dtype_name(k->buffer[j]->dtype));
        text_dims(out, k->buffer[j]->dim, k->buffer[j]->ndim, "[", "] ");
        text_comment(out, buffer_label(t, k->buffer[j]));
        text_putc(out, '\n');
    }
}

void schedule_write_uops(struct text *out, struct tgc *t, const struct schedule *s)
{
    for (int i = 0; i < s->nkernel; i++) {
        struct kernel *k = s->kernel[i];
        kernel_own_programs(t, k);
        schedule_write_kernel_head(out, t, k, k->name);
        linear_print(out, t, k->linear, k->nlinear);
        text_putc(out, '\n');
    }
    for (int i = 0; i < s->nstep; i++)
        schedule_write_step(out, &s->step[i]);
}

void schedule_write_dot(struct text *out, struct tgc *t, const struct schedule *s)
{
    text_puts(out, "digraph schedule {\n  node [shape=box, fontname=\"monospace\"];\n");
    for (int i = 0; i < s->nkernel; i++) {
        const struct kernel *k = s->kernel[i];
        text_printf(out, "  k%d [label=\"%s\\n", i, k->name);
        text_dot(out, k->title ? k->title : "");
        text_puts(out, "\"];\n");
        for (int j = 0; j < k->nbuffer; j++) {
            const struct buffer *b = buffer_root(k->buffer[j]);
            bool written = j < k->noutput;
            text_printf(out, written ? "  k%d -> b%d;\n" : "  b%d -> k%d;\n", written ? i : b->id,
                        written ? b->id : i);
        }
    }
    int n;
    const struct buffer *const *all = all_buffers(t, s, &n);
    for (int i = 0; i < n; i++) {
        const struct buffer *b = all[i];
        text_printf(out, "  b%d [shape=ellipse, label=\"", b->id);
        text_dot(out, buffer_label(t, b));
        text_printf(out, "\\n%s", dtype_name(b->dtype));
        struct text dims = {.t = t};
        text_dims(&dims, b->dim, b->ndim, "[", "]");
        text_dot(out, dims.s);
        text_puts(out, "\"];\n");
    }
    for (int i = 0; i < 2 * s->nstate + s->npart; i++) {
        int part = i - 2 * s->nstate;
        const struct buffer *b = part >= 0 ? s->part[part]->out
                                 : i % 2   ? s->state[i / 2]->out
                                           : s->state[i / 2]->in;
        if (part >= 0 && b == s->part[part]->state->out)
            continue;
        text_printf(out, "  b%d [shape=ellipse, label=\"state ", b->id);
        text_dot(out, b->name);
        text_puts(out, "\"];\n");
    }
    text_puts(out, "}\n");
}

static void json_shape(struct text *out, struct tgc *t, const struct buffer *b)
{
    text_printf(out, "\"dtype\":\"%s\",\"shape\":[", dtype_name(b->dtype));
    for (int a = 0; a < b->ndim; a++) {
        const struct uop *d = b->dim[a];
        int64_t v;
        text_puts(out, a > 0 ? "," : "");
        if (uop_const_int(d, &v)) {
            text_printf(out, "%lld", (long long)v);
        } else if (d->op == OP_VAR) {
            text_json(out, ((const struct var *)d->arg.p)->name);
        } else {
            struct text s = {.t = t};
            uop_print(&s, d);
            text_json(out, s.s);
        }
    }
    text_putc(out, ']');
}

static void json_tensors(struct text *out, struct tgc *t, const char *key, struct buffer *const *b,
                         int n)
{
    text_printf(out, "  \"%s\": [", key);
    for (int i = 0; i < n; i++) {
        text_printf(out, "%s\n    {\"name\": ", i > 0 ? "," : "");
        text_json(out, b[i]->name ? b[i]->name : "");
        text_puts(out, ", ");
        json_shape(out, t, b[i]);
        text_putc(out, '}');
    }
    text_puts(out, n > 0 ? "\n  ],\n" : "],\n");
}

/* Of the weights that it reads, whole. */
static double weight_bytes(const struct kernel *k)
{
    double n = 0;
    for (int i = k->noutput; i < k->nbuffer; i++)
        n += buffer_is_stationary(k->buffer[i]) ? buffer_most_nbytes(k->buffer[i]) : 0;
    return n;
}

/* Of a device's unit: blocks that it has room for by its threads, its shared memory and the
 * estimate of registers, and how many are its share of the grid; the least of them is resident. */
enum { BY_BLOCKS, BY_THREADS, BY_SHARED, BY_REGISTERS, RESIDENT_LIMITS };
static const char *const resident_limit[] = {"too few blocks", "threads", "shared memory",
                                             "registers"};

/* The limit, of equal ones the first; "": all of the unit's threads are resident. */
static const char *find_resident(const double *most, double threads, double unit_threads)
{
    int limit = BY_BLOCKS;
    for (int i = 1; i < RESIDENT_LIMITS; i++)
        limit = most[i] < most[limit] ? i : limit;
    return most[limit] * threads < unit_threads ? resident_limit[limit] : "";
}

/* Of a device: its blocks; those that a unit has room for, and of its threads the share that they
 * are, with what limits it; registers of a thread, estimated and at most; the parts of the
 * estimated time. */
static void json_device_use(struct text *out, struct tgc *t, const struct kernel *k)
{
    const struct device_row *d = t->device;
    const struct device_use use = device_use(t, k);
    double threads = kernel_threads(k);
    text_printf(out, ",\"threads\":%.0f,\"block\":%d,\"local_bytes\":%.0f,\"asked_bytes\":%.0f",
                use.threads, k->block, use.local_nbytes, use.asked);
    if (threads > 0 && d->unit_threads) {
        double blocks = use.threads / threads, registers = (double)kernel_registers(t, k);
        double most[RESIDENT_LIMITS] = {
            ceil(blocks / d->units), floor(d->unit_threads / threads), HUGE_VAL,
            d->registers ? fmax(floor((double)d->registers * d->group / (threads * registers)), 1)
                         : HUGE_VAL};
        if (use.local_nbytes > 0 && d->unit_local_nbytes)
            most[BY_SHARED] = floor((double)d->unit_local_nbytes / use.local_nbytes);
        double room = fmin(most[BY_THREADS], fmin(most[BY_SHARED], most[BY_REGISTERS]));
        text_printf(out, ",\"blocks\":%.0f,\"room\":%.0f,\"occupancy\":%.3g,"
                         "\"occupancy_limit\":\"%s\",\"registers\":%.0f,\"registers_most\":%lld",
                    blocks, room, fmin(fmin(room, most[BY_BLOCKS]) * threads / d->unit_threads, 1),
                    find_resident(most, threads, d->unit_threads), registers,
                    (long long)device_registers(d, (int64_t)threads));
    }
    text_puts(out, ",\"parts_us\":{");
    for (int i = 0; i < PART_COUNT; i++)
        text_printf(out, "%s\"%s\":%.4g", i ? "," : "", cost_part_name((enum grid_part)i),
                    use.parts.ns[i] / 1000);
    text_putc(out, '}');
}

void schedule_kernels_json(struct text *out, struct tgc *t, const struct schedule *s)
{
    for (int i = 0; i < s->nkernel; i++) {
        const struct kernel *k = s->kernel[i];
        text_printf(out, "%s\n{\"name\":\"%s\",\"title\":", i > 0 ? "," : "", k->name);
        text_json(out, k->title ? k->title : "");
        if (k->is_adjoint)
            text_printf(out, ",\"backward\":true,\"again\":%s", k->is_again ? "true" : "false");
        for (int side = 0; side < 2; side++) {
            int end = side ? k->nbuffer : k->noutput, begin = side ? k->noutput : 0;
            text_puts(out, side ? ",\"reads\":[" : ",\"writes\":[");
            for (int j = begin; j < end; j++) {
                text_printf(out, "%s{\"buffer\":%d,", j > begin ? "," : "",
                            buffer_root(k->buffer[j])->id);
                json_shape(out, t, k->buffer[j]);
                text_putc(out, '}');
            }
            text_putc(out, ']');
        }
        if (device_has_grid(t))
            json_device_use(out, t, k);
        const struct kernel_cost cost = kernel_cost(t, s, k);
        text_puts(out, ",\"limit\":");
        text_json(out, kernel_limit_name(t, k, &cost));
        text_printf(out, ",\"weight_bytes\":%.0f", weight_bytes(k));
        if (!device_has_grid(t))
            text_printf(out, ",\"arithmetic_us\":%.4g", cost.compute_ns / 1000);
        text_printf(out, ",\"flop\":%.0f,\"bytes\":%.0f,\"predicted_us\":%.4g}", k->flop,
                    k->nbytes, cost.ns / 1000);
    }
}

/* The first and last step of a buffer's accesses, both from 1 on; 0: none. */
struct span { int first, last; };

static void note_access(struct span *of, const struct buffer *b, int step)
{
    struct span *s = &of[b->id];
    s->first = s->first ? s->first : step;
    s->last = step;
}

/* By buffer id. */
static struct span *find_spans(struct tgc *t, const struct schedule *s)
{
    struct span *of = mem_array(t, (size_t)t->next_buffer + 1, sizeof *of);
    for (int i = 0; i < s->nstep; i++) {
        const struct step *step = &s->step[i];
        const struct kernel *k = step->kernel;
        for (int j = 0; k && j < k->nbuffer; j++)
            note_access(of, buffer_root(k->buffer[j]), i + 1);
        for (int j = 0; k && j < k->nscratch; j++)
            note_access(of, k->scratch[j], i + 1);
        for (int j = 0; j < step->narg; j++)
            note_access(of, buffer_root(step->arg[j]), i + 1);
    }
    return of;
}

/* What stands for a buffer without a name of the model's: of a weight that a pass made, the name of
 * the model's weight that it is made of; else the step that makes it. of: its first step. */
static const char *made_label(struct tgc *t, const struct schedule *s, const struct buffer *b,
                              const struct span *of)
{
    int before = 0, n = 0, first = of[buffer_root(b)->id].first;
    const struct step *step = first ? &s->step[first - 1] : NULL;
    const struct buffer *model = b;
    while (model->weight.of)
        model = model->weight.of;
    if (b->kind == BUFFER_WEIGHT) {
        for (const struct buffer *x = b; x; x = x->weight.of)
            if (x->weight.reader && *x->weight.reader->node && !(model->name && *model->name))
                return mem_printf(t, "constant of %s", x->weight.reader->node);
        return model->name && *model->name ? model->name : "constant";
    }
    if (b->base)
        return mem_printf(t, "part of %s", made_label(t, s, buffer_root(b), of));
    if (b->name && *b->name)
        return b->name;
    for (int i = 0; i < s->nbuffer && step; i++) {
        const struct buffer *x = s->buffer[i];
        bool is_like = x->kind == b->kind && !x->base && of[x->id].first == first;
        before += is_like && x->id < b->id;
        n += is_like;
    }
    return mem_printf(t, "%s%s of %s", b->kind == BUFFER_SCRATCH ? "scratch" : "result",
                      n > 1 ? mem_printf(t, " %d", before + 1) : "",
                      step && step->kernel ? step->kernel->name
                      : step && step->host ? step->host->function
                                           : "the host");
}

/* A buffer's place, and the first and last step of its accesses; the memory plan extends live
 * ranges to whole loops. */
static void json_buffers(struct text *out, struct tgc *t, const struct schedule *s)
{
    static const char *const kind[] = {"input", "output", "weight", "temp", "state", "scratch"};
    int n;
    const struct span *of = find_spans(t, s);
    const struct buffer *const *all = all_buffers(t, s, &n);
    text_puts(out, "  \"buffers\":[");
    for (int i = 0; i < n; i++) {
        const struct buffer *b = all[i];
        text_printf(out, "%s\n{\"id\":%d,\"kind\":\"%s\", ", i ? "," : "", b->id,
                    kind[b->kind]);
        if (b->name && *b->name) {
            text_puts(out, "\"name\":");
            text_json(out, b->name);
            text_putc(out, ',');
        } else if (b->kind != BUFFER_INPUT && b->kind != BUFFER_OUTPUT) {
            text_puts(out, "\"label\":");
            text_json(out, made_label(t, s, b, of));
            text_putc(out, ',');
        }
        json_shape(out, t, b);
        text_printf(out, ",\"bytes\":%zu", b->nbytes);
        if (b->why) {
            text_puts(out, ",\"why\":");
            text_json(out, b->why);
        }
        if (b->kind != BUFFER_INPUT && b->kind != BUFFER_OUTPUT)
            text_printf(out, ",\"offset\":%zu", b->offset);
        if (b->kind == BUFFER_TEMP || b->kind == BUFFER_STATE || b->kind == BUFFER_SCRATCH)
            text_printf(out, ",\"placed\":%zu", b->placed);
        if (b->kind == BUFFER_SCRATCH && b->nbytes && b->placed)
            text_printf(out, ",\"copies\":%zu", b->placed / scratch_stride(b) > 1
                                                     ? b->placed / scratch_stride(b) : 1);
        if (scratch_is_on_stack(b))
            text_printf(out, ",\"in\":\"%s\"",
                        b->scratch.is_register             ? "registers"
                        : b->scratch.space == SPACE_SHARED ? "shared memory"
                                                           : "stack");
        if (of[b->id].first)
            text_printf(out, ",\"first_step\":%d,\"last_step\":%d", of[b->id].first - 1,
                        of[b->id].last - 1);
        text_putc(out, '}');
    }
    text_puts(out, n ? "\n  ],\n" : "],\n");
}

static void json_steps(struct text *out, struct tgc *t, const struct schedule *s)
{
    text_puts(out, "  \"steps\": [");
    for (int i = 0; i < s->nstep; i++) {
        struct text x = {.t = t};
        schedule_write_step(&x, &s->step[i]);
        text_puts(out, i ? ",\n    " : "\n    ");
        text_json(out, mem_printf(t, "%.*s", (int)(x.n - 1), x.s));
    }
    text_puts(out, s->nstep ? "\n  ],\n" : "],\n");
}

void schedule_write_members(struct text *out, struct tgc *t, const struct schedule *s,
                            const char *name)
{
    static const char *const block[] = {"arena", "parameters", "gradients", "optimizer"};
    text_puts(out, "  \"name\": ");
    text_json(out, name);
    text_puts(out, ",\n");
    json_tensors(out, t, "inputs", s->input, s->ninput);
    json_tensors(out, t, "outputs", s->output, s->noutput);
    text_puts(out, "  \"states\": [");
    for (int i = 0; i < s->nstate; i++) {
        text_puts(out, i > 0 ? ", {\"output\": " : "{\"output\": ");
        text_json(out, s->state[i]->from);
        text_puts(out, ", \"input\": ");
        text_json(out, s->state[i]->name);
        text_printf(out,
                    ", \"grows\": %s, \"in\": %d, \"out\": %d, \"block\": \"%s\", "
                    "\"bytes\": %zu}",
                    s->state[i]->length ? mem_printf(t, "%d", s->state[i]->axis) : "null",
                    s->state[i]->in->id, s->state[i]->out->id, block[s->state[i]->in->port.block],
                    s->state[i]->nbytes);
    }
    text_puts(out, "],\n  \"symbols\": [");
    for (int i = 0; i < s->nvar; i++) {
        text_puts(out, i > 0 ? ", {\"name\": " : "{\"name\": ");
        text_json(out, s->var[i]->name);
        text_printf(out, ", \"min\": %lld, \"max\": %lld}", (long long)s->var[i]->min,
                    (long long)s->var[i]->max);
    }
    text_puts(out, "],\n  \"kernel_list\": [");
    schedule_kernels_json(out, t, s);
    text_puts(out, s->nkernel ? "\n  ],\n" : "],\n");
    json_buffers(out, t, s);
    json_steps(out, t, s);
    text_printf(out,
                "  \"kernels\": %d,\n  \"flop\": %.0f,\n  \"arena_bytes\": %zu,\n  "
                "\"stack_bytes\": %zu,\n  \"weight_bytes\": %zu,\n  \"live_bytes\": %zu",
                s->nkernel, run_use(t, s, -1).flop, program_arena_bytes(t, s),
                program_stack_bytes(t, s), s->weight_nbytes, s->live_nbytes);
    text_printf(out, ",\n  \"tensor_bytes\": %zu,\n  \"tensors_in\": \"%s\"", s->arena_nbytes,
                s->on_device ? "device" : program_is_on_stack(s) ? "stack" : "arena");
}
