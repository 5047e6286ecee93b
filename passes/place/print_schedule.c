/* print_schedule.c - a schedule as text, for tests and people: the steps in order, and the place of
 * every buffer. ir/print_kernel.c prints kernels. There is no reader for it.
 *
 *      schedule: arena 192, weights 64
 *      %temp3 f32[4, 8]: 128 bytes at 64
 *      %weight1 f32[16]: 64 bytes at 0, as %weight2
 *      kernel relu: %output4, %temp3, %input0; scratch %scratch5; shared by 2
 *      if %temp3
 */
#include "passes/passes.h"

static void print_name(struct text *out, struct tgc *t, struct buffer *b)
{
    uop_print(out, uop_buffer(t, b));
}

static void print_place(struct text *out, struct tgc *t, struct buffer *b)
{
    print_name(out, t, b);
    text_printf(out, " %s[", dtype_name(b->dtype));
    for (int a = 0; a < b->ndim; a++) {
        text_printf(out, a ? ", " : "");
        uop_print(out, b->dim[a]);
    }
    text_printf(out, "]: %zu bytes at %zu", b->nbytes, b->offset);
    if (b->base) {
        text_printf(out, ", a part of ");
        print_name(out, t, b->base);
    }
    if (b->weight.same) {
        text_printf(out, ", as ");
        print_name(out, t, (struct buffer *)(uintptr_t)b->weight.same);
    }
    text_printf(out, "%s\n", b->kept ? ", kept through the run" : "");
}

static void print_names(struct text *out, struct tgc *t, const char *before,
                        struct buffer *const *b, int n)
{
    for (int i = 0; i < n; i++) {
        text_printf(out, "%s", i ? ", " : before);
        print_name(out, t, b[i]);
    }
}

static void print_kernel_line(struct text *out, struct tgc *t, const struct kernel *k)
{
    text_printf(out, "kernel %s: ", k->name);
    print_names(out, t, "", k->buffer, k->noutput);
    print_names(out, t, " from ", k->buffer + k->noutput, k->nbuffer - k->noutput);
    print_names(out, t, ", scratch ", k->scratch, k->nscratch);
    for (int i = 0; i < k->nbuffer && k->is_image; i++)
        if (k->is_image[i])
            print_names(out, t, ", pixels of ", &k->buffer[i], 1);
    text_printf(out, "%s%s%s%s%s\n", k->like ? ", like " : "", k->like ? k->like->kernel->name : "",
                k->is_shared ? ", shared by threads" : "",
                k->is_serial ? ", of one thread" : "",
                k->counts_down ? ", from the last turn on" : "");
}

void schedule_print(struct text *out, struct tgc *t, const struct schedule *s)
{
    static const char *const word[] = {"kernel", "host",  "if ",           "else",
                                       "end",    "loop ", "leave unless ", "end"};
    text_printf(out, "schedule: arena %zu, most alive %zu, weights %zu, states %zu\n",
                s->arena_nbytes, s->live_nbytes, s->weight_nbytes, s->state_nbytes);
    for (int i = 0; i < s->nbuffer; i++)
        print_place(out, t, s->buffer[i]);
    for (int i = 0; i < s->nweight; i++)
        print_place(out, t, s->weight[i]);
    for (int i = 0; i < s->nstep; i++) {
        const struct step *step = &s->step[i];
        if (step->kind == STEP_KERNEL) {
            print_kernel_line(out, t, step->kernel);
            continue;
        }
        text_printf(out, "%s", word[step->kind]);
        print_names(out, t, " ", step->arg, step->narg);
        if (step->kind == STEP_IF || step->kind == STEP_BREAK_UNLESS)
            uop_print(out, step->cond);
        if (step->kind == STEP_LOOP)
            uop_print(out, step->trip);
        text_printf(out, "\n");
    }
}
