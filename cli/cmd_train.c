/* cmd_train.c - tgc train: trains, writes the model, says on standard output what it came to. */
#include "cli/cli.h"
#include "runtime/ranks/ranks.h"

/* DEBUG=2: each kernel's least time of a step. `user`: struct kernel_times */
static void hook(void *user, struct tgc *t, struct instance *p)
{
    times_hook(t, user, p);
}

static void begin(void *user)
{
    times_begin(user);
}

static void end(void *user)
{
    times_end(user);
}

static void print(void *user, struct tgc *t, const struct model *m, const struct instance *p)
{
    times_print(t, m, p, user);
}

enum exit_status cmd_train(struct tgc *t, const struct options *o)
{
    struct train_epoch e;
    struct text x = {.t = t};
    struct kernel_times times;
    struct train_watch watch = {&times, hook, begin, end, print};
    if (ranks_launched() > 1)           /* what several ranks say is not mixed within a line */
        setvbuf(stderr, NULL, _IOLBF, BUFSIZ);
    if (!train_model(t, o, o->debug >= 2 ? &watch : NULL, &e))
        return EXIT_FAILED;
    if (!e.is_told)
        return EXIT_DONE;
    if (o->json) {
        train_put_json(&x, &e);
        fputs(x.s, stdout);
        return EXIT_DONE;
    }
    print_escaped(stdout, o->output);
    printf(": epoch %d, step %lld, loss %.6g", e.epoch, (long long)e.step, e.loss);
    if (e.has_accuracy)
        printf(", accuracy %.4f", e.accuracy);
    if (e.has_valid)
        printf(", valid_loss %.6g", e.valid_loss);
    if (e.has_valid && e.has_accuracy)
        printf(", valid_accuracy %.4f", e.valid_accuracy);
    printf(", seconds %.2f\n", e.seconds);
    return EXIT_DONE;
}
