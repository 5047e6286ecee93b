/* sizes.c - NAME_ARENA_BYTES, what the caller provides, and NAME_STACK_BYTES, the most that
 * NAME_run() takes of its caller's stack, and --stack.
 *
 *      NAME_run -> kernel                        frames of run and kernel, the call's arguments
 *      NAME_run -> share -> team_run -> part -> kernel        where threads share it: the caller
 *                                                runs a part, other threads have their own stacks
 *      NAME_run -> host function                 ir/host.def
 *
 * passes/place/stack.c estimates the upper bound for kernels.
 */
#include "backends/program/program.h"
#include "ir/device_ops.h"

#include <string.h>

/* --------------------------------------------------------------------------------------- memory */

int program_threads(const struct schedule *s)
{
    for (int i = 0; i < s->nkernel; i++)
        if (s->kernel[i]->is_shared)
            return s->threads;
    return 1;
}

/* Static assertions in the program check that these suffice: the sizes of a mutex, a condition and
 * a thread differ between POSIX systems. */
enum {
    STRUCT = 128,
    TEAM = 384,
    WORKER = 64,
    DEVICE = 2560,
    KERNEL = 64,
    ARGUMENT = 16,
    PLACE = 32,
    IMAGE = 24
};

size_t program_team_offset(void) { return STRUCT; }

size_t program_team_bytes(const struct schedule *s)
{
    size_t workers = (size_t)program_threads(s) - 1;
    return workers ? TEAM + workers * WORKER : 0;
}

/* What programs have for images (runtime/opencl_image.c); *places: those of all tensors. */
static size_t image_bytes(const struct schedule *s, size_t *places)
{
    size_t n = 0;
    for (int i = 0; i < s->nbuffer; i++)
        n += s->buffer[i]->is_image;
    for (int i = 0; i < s->nweight; i++)
        n += s->weight[i]->is_image;
    *places += n > 0 ? (size_t)s->nbuffer + 1 : 0;
    return n > 0 ? n * IMAGE + *places * KERNEL + 8 : 0;
}

/* The program's tensor maps, and what there is for all of them: the function that makes them, room
 * to align them. */
static size_t map_bytes(struct uop *const *u, int n)
{
    const size_t MAP = 128, MAPS = MAP + 8;
    size_t nbytes = 0;
    for (int i = 0; i < n; i++) {
        bool known = !op_is_box(u[i]->op);
        for (int k = 0; k < i && !known; k++)
            known = op_is_box(u[k]->op) && bulk_is_of_same_map(u[k], u[i]);
        nbytes += known ? 0 : MAP + ARGUMENT + (nbytes ? 0 : MAPS);
    }
    return nbytes;
}

size_t program_head_bytes(const struct schedule *s)
{
    size_t maps = 0;
    size_t places = (size_t)s->ninput + (size_t)s->noutput + 2, arguments = 1;
    size_t images = image_bytes(s, &places);
    for (int i = 0; i < s->nkernel; i++)
        arguments += (size_t)(s->kernel[i]->nbuffer + s->kernel[i]->nscratch + s->kernel[i]->nvar);
    for (int i = 0; i < s->nkernel; i++) {
        const struct kernel *k = s->kernel[i];
        maps += map_bytes(k->linear, k->nlinear);
        for (int v = 0; v < k->nvariant; v++)
            maps += map_bytes(k->variant[v].linear, k->variant[v].nlinear);
    }
    size_t own = state_head_bytes(s) + training_head_bytes(s);
    if (s->on_device)
        return (STRUCT + DEVICE + ((size_t)s->nkernel + 1) * KERNEL + arguments * ARGUMENT +
                places * PLACE + images + maps + own + 63) / 64 * 64;
    return STRUCT + program_team_bytes(s) + own;
}

int program_arena_places(const struct schedule *s, const struct buffer *b, size_t place[2])
{
    const struct state *st = b->port.state;
    size_t states = program_head_bytes(s);
    bool in_arena = st ? b->port.block == BLOCK_ARENA
                       : (b->kind == BUFFER_TEMP || b->kind == BUFFER_STATE) && !s->on_device &&
                             !program_is_on_stack(s);
    if (!in_arena)
        return 0;
    place[0] = states + (st ? st->place[0] : s->state_nbytes + b->offset);
    if (!st || !state_has_two_places(st))
        return 1;
    place[1] = states + st->place[1];
    return 2;
}

size_t program_arena_bytes(struct tgc *t, const struct schedule *s)
{
    size_t head = program_head_bytes(s), n;
    if (s->on_device)
        return head;
    if (!size_add(s->state_nbytes, head, &head))
        TGC_BUG(t, "the arena's size overflows");
    if (program_is_on_stack(s))
        return head;
    if (!size_align(s->arena_nbytes, 64, &n) || !size_add(n, head, &n))
        TGC_BUG(t, "the arena's size overflows");
    return n;
}

size_t program_bound_nelem(const struct buffer *b)
{
    size_t n = 1;
    for (int a = 0; a < b->ndim; a++)
        if (!size_mul(n, (size_t)dim_bound(b->dim[a]), &n))
            return SIZE_MAX;
    return n;
}

/* The offset of tensor i in the self-test's memory, which has the arena, the inputs and the outputs
 * in this order. For the index after the last one: the size of that memory. SIZE_MAX: no memory is
 * large enough. */
size_t selftest_place(const struct program *p, int i)
{
    const struct schedule *s = p->s;
    size_t at = program_arena_bytes(p->t, s), n;
    for (int k = 0; k < i; k++) {
        const struct buffer *b = k < s->ninput ? s->input[k] : s->output[k - s->ninput];
        if (!size_mul(program_bound_nelem(b), dtype_nbytes(b->dtype), &n) ||
            !size_add(at, n, &at) || !size_align(at, 64, &at))
            return SIZE_MAX;
    }
    return at;
}

size_t selftest_bytes(const struct program *p)
{
    return selftest_place(p, p->s->ninput + p->s->noutput);
}

/* ---------------------------------------------------------------------------------------- stack */

enum { RUN = 64, ALIGN = 56 /* to 64; of a stack to 8 */, PART = 192, TURN = 256, WORD = 8 };

static size_t host_bytes(const struct host_call *h)
{
    const struct host_function *f = host_function_find(h->function);
    if (h->external)    /* its shapes are arrays; what it takes itself is not known */
        return WORD * (size_t)(h->nparam + 2 * h->external->nargument);
    if (!f)
        return 0; /* run.c reports the missing function */
    return f->stack_nbytes + WORD * (size_t)(f->nin + f->nout + f->nparam + f->nresult);
}

static size_t argument_bytes(const struct kernel *k)
{
    return WORD * (size_t)(k->nbuffer + k->nscratch + k->nvar);
}

/* A kernel's call, with all frames between it and NAME_run(). */
static size_t call_bytes(struct tgc *t, const struct kernel *k)
{
    size_t shared = k->is_shared ? argument_bytes(k) + PART + TURN : 0;
    return kernel_stack_nbytes(t, k) + argument_bytes(k) + shared;
}

/* The structs of all entries' tensors, which NAME_ENTRY_run() fills for NAME_run(). */
static size_t entry_bytes(const struct schedule *s)
{
    size_t n = (size_t)s->ninput + (size_t)s->nvar + (size_t)s->noutput;
    for (int i = 0; i < s->noutput; i++)
        n += program_has_shape_field(s->output[i]) ? (size_t)s->output[i]->ndim : 0;
    return schedule_count_entries(s) ? RUN + WORD * n : 0;
}

/* NAME_run() itself. */
static size_t run_bytes(const struct schedule *s)
{
    size_t own = program_is_on_stack(s) && s->arena_nbytes > 0 ? s->arena_nbytes + ALIGN : 0;
    /* of a training, compilers keep the addresses of many tensors between its kernels */
    size_t places = program_training(s) ? WORD * (size_t)(s->nbuffer + s->nstate + s->npart) : 0;
    return RUN + 2 * WORD * (size_t)s->nvar + own + entry_bytes(s) + places;
}

/* The stack that a run takes in this step. */
static size_t step_bytes(struct tgc *t, const struct schedule *s, const struct step *step)
{
    size_t n = step->kind == STEP_KERNEL ? call_bytes(t, step->kernel)
               : step->kind == STEP_HOST ? host_bytes(step->host)
                                         : 0;
    return (run_bytes(s) + n + 15) / 16 * 16;
}

size_t program_stack_bytes(struct tgc *t, const struct schedule *s)
{
    size_t most = run_bytes(s);
    for (int i = 0; i < s->nstep; i++) {
        size_t n = step_bytes(t, s, &s->step[i]);
        most = n > most ? n : most;
    }
    return most;
}

bool program_check_stack(struct tgc *t, const struct schedule *s, size_t limit)
{
    enum { NAMED = 8 };
    size_t total = program_stack_bytes(t, s);
    struct text who = {.t = t};
    int n = 0;
    bool vectors = false;
    if (total <= limit)
        return true;
    for (int i = 0; i < s->nstep; i++) {
        const struct step *step = &s->step[i];
        bool kernel = step->kind == STEP_KERNEL;
        size_t need = step_bytes(t, s, step);
        if (need <= limit || (!kernel && step->kind != STEP_HOST))
            continue;
        vectors |= kernel && step->kernel->nvariant > 0;
        if (n++ < NAMED)
            text_printf(&who, "%s%s (%zu)", n > 1 ? ", " : "",
                        kernel ? step->kernel->name : step->host->function, need);
    }
    if (n > NAMED)
        text_printf(&who, " and %d more", n - NAMED);
    return diag_error(t, NULL,
                      "a run takes up to %zu bytes of stack, more than --stack=%zu: %s; %s%s",
                      total, limit, n ? who.s : "its own frame",
                      vectors ? "--cpu=generic needs less, since compilers keep vectors on the "
                                "stack that have no register; or "
                              : "",
                      "allow more by --stack");
}
