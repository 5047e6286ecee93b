/* places.c - a target for devices: kernels in its language, and the host code around them.
 *
 *      NAME.c:  kernel_text[]   pieces of runtime/ and the kernels, in the target's
 *                               language (kernel.c);
 *               launch_of[]     what a run launches, with argument_of[] (launch.c);
 *               NAME_init()     loads the driver, builds the text, copies the weights, records;
 *               NAME_enqueue()  copies the inputs, launches, copies the results (host.c)
 *
 * A kernel is the variant for the language's vectors, if there is one, else the portable program.
 * The loop that threads share on a CPU is the grid here, one block (work-group) an iteration
 * (passes/kernel/thread.c). A block is one thread, or several that share loops and local memory
 * between barriers. Results do not depend on these numbers. An OpenCL device that is a CPU gets one
 * block for each core.
 *
 * Intermediates, states, inputs and results are in one buffer of the device, and kernels get
 * offsets in it: sub-buffers would need the device's alignment. The host maps the buffer to read a
 * condition or to run a host step. An input or a result may be a buffer of the caller's instead, so
 * kernels get a buffer with each offset.
 */
#include "backends/device/device.h"

static bool grow(const struct program *p, size_t *end, size_t nbytes)
{
    return size_add(*end, nbytes, end) && size_align(*end, p->t->image ? IMAGE_ALIGN : 128, end);
}

static bool place_all(struct program *p, struct buffer *const *b, int n, size_t *end)
{
    for (int i = 0; i < n; i++) {
        p->place[b[i]->id] = *end;
        if (!grow(p, end, b[i]->nbytes))
            return false;
    }
    return true;
}

/* Diagnoses what kernels of a device cannot access: addresses of the host. */
static bool check_types(struct program *p, struct buffer *const *b, int n, const char *what)
{
    for (int i = 0; i < n; i++)
        if (b[i]->dtype == DTYPE_STRING)
            return diag_error(
                p->t, NULL,
                "%s '%.100s' is a tensor of strings, which devices do not have: compile "
                "with --target=c",
                what, b[i]->name ? b[i]->name : "of the model");
    return true;
}

static bool complain_of_size(struct program *p)
{
    return diag_error(p->t, NULL, "what the model computes, its inputs and its outputs take more "
                                  "memory than can be counted: give smaller bounds by --dim");
}

static void place_states(struct program *p)
{
    const struct schedule *s = p->s;
    p->device_states = p->device_nbytes;
    for (int i = 0; i < s->nstate; i++) {
        const struct state *st = s->state[i];
        size_t at = p->device_states + st->place[0];
        p->place[st->in->id] = p->place[st->out->id] = at;
        for (int k = 0; k < st->npart; k++)
            if (st->part[k].out != st->out)
                p->place[st->part[k].out->id] =
                    at + (size_t)st->part[k].first * dtype_nbytes(st->out->dtype);
    }
}

/* If kernels read images of parts of the memory, their results must not alias those. So with images
 * each intermediate has a place of its own, and the states have one. */
static void give_own_places(struct program *p)
{
    const struct schedule *s = p->s;
    p->own_place = mem_array(p->t, (size_t)p->nbuffer_id + 1, sizeof *p->own_place);
    p->nown = 0;
    if (p->nimage == 0)
        return;
    for (int i = 0; i < s->nbuffer; i++)
        if (!s->buffer[i]->base && !s->buffer[i]->port.state && !s->buffer[i]->is_verdict)
            p->own_place[s->buffer[i]->id] = ++p->nown;
    p->place_of_states = s->state_nbytes > 0 ? ++p->nown : 0;
}

/* Equal weights are one image. */
static void number_images(struct program *p, struct buffer *const *b, int n)
{
    for (int i = 0; i < n; i++) {
        const struct buffer *of = b[i]->weight.same ? b[i]->weight.same : b[i];
        if (b[i]->is_image && !p->image_number[of->id])
            p->image_number[of->id] = ++p->nimage;
    }
}

/* Inputs and results. Those of entries, one of which runs at a time, share their bytes. */
static bool place_tensors(struct program *p)
{
    const struct schedule *s = p->s;
    const struct graph *g = s->graph;
    const size_t begin = p->device_nbytes;
    if (!g->nentry)
        return place_all(p, s->input, s->ninput, &p->device_nbytes) &&
               place_all(p, s->output, s->noutput, &p->device_nbytes);
    for (int i = 0; i < g->nentry; i++) {
        const struct graph_entry *e = &g->entry[i];
        size_t end = begin;
        if (!place_all(p, s->input + e->input, e->ninput, &end) ||
            !place_all(p, s->output + e->output, e->noutput, &end))
            return false;
        if (end > p->device_nbytes)
            p->device_nbytes = end;
    }
    return true;
}

static bool place_verdicts(struct program *p)
{
    p->device_verdicts = p->device_nbytes;
    for (int i = 0; i < p->s->nverdict; i++)
        p->place[p->s->verdict[i]->id] = p->device_verdicts + (size_t)i;
    return grow(p, &p->device_nbytes, (size_t)p->s->nverdict);
}

/* Places what follows the intermediates, which take nbytes. */
static bool place_behind(struct program *p, size_t nbytes)
{
    p->device_nbytes = 128;      /* no device has buffers of 0 bytes */
    if (!grow(p, &p->device_nbytes, nbytes))
        return false;
    place_states(p);
    return grow(p, &p->device_nbytes, p->s->state_nbytes) && place_verdicts(p) && place_tensors(p);
}

/* apart: independent intermediates share no bytes, so that their kernels can overlap. */
static bool place_memory(struct program *p, bool apart)
{
    const struct schedule *s = p->s;
    size_t end = 0;
    for (int i = 0; i < s->nbuffer; i++) {
        const struct buffer *b = s->buffer[i];
        bool is_scratch = b->kind == BUFFER_SCRATCH && b->scratch.space != SPACE_GLOBAL;
        p->place[b->id] = apart && !b->base ? end : b->offset;
        if (apart && is_scratch && !scratch_is_on_stack(b))
            return false;                  /* each thread has its own: the plan knows how many */
        if (apart && !b->base && !is_scratch && !grow(p, &end, b->nbytes))
            return false;
    }
    return place_behind(p, apart ? end : s->arena_nbytes);
}

/* By the arena's plan. If the device overlaps the kernels of a graph, only tensors share bytes
 * whose kernels are ordered anyway. */
static bool place_as_planned(struct program *p)
{
    const struct schedule *s = p->s;
    if (!place_memory(p, false))
        return false;
    const double more = DEVICE_APART_SHARE * ((double)p->device_nbytes + (double)s->weight_nbytes);
    size_t most, nbytes;
    if (!p->backend->interface ||
        !size_add(s->arena_nbytes, more > DEVICE_APART_NBYTES ? (size_t)more : DEVICE_APART_NBYTES,
                  &most))
        return true;
    const double ns = device_graph_ns(p);
    if (!device_place_apart(p, most, &nbytes))
        return true;
    if (!place_behind(p, nbytes))
        return false;
    return device_graph_ns(p) < ns * (1 - DEVICE_APART_GAIN) || place_memory(p, false);
}

/* The bytes that places for several queues may take in addition. */
enum { APART_NBYTES = 32 << 20 };

static bool place_for_queues(struct program *p)
{
    size_t most, nbytes;
    if (!size_add(p->s->arena_nbytes, APART_NBYTES, &most))
        return false;
    return device_place_apart(p, most, &nbytes) ? place_behind(p, nbytes) : place_memory(p, true);
}

bool device_begin(struct program *p)
{
    const struct schedule *s = p->s;
    if (!check_types(p, s->input, s->ninput, "input") ||
        !check_types(p, s->output, s->noutput, "output") ||
        !check_types(p, s->buffer, s->nbuffer, "a value") ||
        !check_types(p, s->weight, s->nweight, "weight"))
        return false;
    for (int i = 0; i < s->nstep; i++)
        if (s->step[i].narg + 1 > DEVICE_SPANS)
            return diag_error(
                p->t, NULL,
                "a C function of %d tensors is called, and programs for devices call those of up "
                "to %d: compile with --target=c",
                s->step[i].narg, DEVICE_SPANS - 1);
    p->place = mem_array(p->t, (size_t)p->nbuffer_id + 1, sizeof *p->place);
    p->device_part = mem_array(p->t, (size_t)s->nkernel + 1, sizeof *p->device_part);
    p->span = mem_array(p->t, (size_t)p->nbuffer_id + 1, sizeof *p->span);
    for (int i = 0; i < s->nweight; i++)
        p->place[s->weight[i]->id] = s->weight[i]->offset;
    p->image_number = mem_array(p->t, (size_t)p->nbuffer_id + 1, sizeof *p->image_number);
    p->nimage = 0;
    number_images(p, s->buffer, s->nbuffer);
    number_images(p, s->weight, s->nweight);
    give_own_places(p);
    if (!place_as_planned(p))
        return complain_of_size(p);
    if (p->nimage > 0)
        p->backend->driver->use_images(p);
    if (s->nverdict > 0)
        snippet_replace(&p->snippets, "judge", "device_judge_verdicts");
    if (device_write_maps(p, NULL) > 0)
        snippet_replace(&p->snippets, "argument",
                        mem_printf(p->t, "%s_driver_map_argument", p->backend->name));
    double ns = device_choose_queues(p);
    if (ns <= 0)
        return true;
    size_t nbytes = p->device_nbytes;
    if (place_for_queues(p) && p->device_nbytes - nbytes <= APART_NBYTES &&
        device_choose_queues(p) < ns * (1 - DEVICE_QUEUES_GAIN))
        return true;
    if (!place_as_planned(p))
        return complain_of_size(p);
    device_choose_queues(p);
    return true;
}
