/* cmd_verify.c - tgc verify: runs a model on recorded inputs and compares with recorded outputs, in
 * the layout of ONNX's tests. */
#include "cli/cli.h"

#include <string.h>
#include <unistd.h>

static const char *data_file(struct tgc *t, const struct options *o, const char *what, int k)
{
    return mem_printf(t, "%s/%s_%d.pb", o->data, what, k);
}

static bool read_inputs(struct tgc *t, struct options *o, const struct model *m, struct feed *f)
{
    f->input = model_inputs(t, o, m, &f->n);
    f->value = mem_array(t, (size_t)f->n, sizeof *f->value);
    f->source = mem_array(t, (size_t)f->n, sizeof *f->source);
    for (int i = 0; i < f->n; i++) {
        const char *path = data_file(t, o, "input", i);
        if (f->input[i].dtype == DTYPE_VOID)
            return diag_error(t, &(struct place){.file = o->model},
                              "the input '%.100s' is no tensor of a type that verify can read "
                              "(sequences and optionals are not in this version)",
                              f->input[i].name);
        if (!pb_read(t, path, &f->value[i]))
            return false;
        f->source[i] = path;
        if (f->value[i].dtype != f->input[i].dtype)
            return diag_error(
                t, &(struct place){.file = path}, "holds %s; the input '%.100s' is of %s",
                array_type_text(t, &f->value[i]), f->input[i].name, dtype_name(f->input[i].dtype));
        if (!feed_settle_shape(t, o, &f->input[i], &f->value[i], path))
            return false;
    }
    const char *more = data_file(t, o, "input", f->n);
    if (access(more, F_OK) == 0)
        return diag_error(t, &(struct place){.file = more}, "the model has only %d inputs", f->n);
    return true;
}

/* One line an output. *nbad counts those that differ. */
static bool compare_outputs(struct tgc *t, const struct options *o, const struct instance *p,
                            int *nbad)
{
    int ncompared = 0;
    *nbad = 0;
    for (int i = 0; i < p->info->output_count; i++) {
        const char *path = data_file(t, o, "output", i);
        struct array want;
        if (access(path, F_OK) != 0)
            continue;
        if (!pb_read(t, path, &want))
            return false;
        struct text x = {.t = t};
        bool agrees = array_compare(t, &x, &p->output[i], &want, o->rtol, o->atol);
        *nbad += !agrees;
        ncompared++;
        printf("%s ", agrees ? "ok      " : "MISMATCH");
        print_escaped(stdout, p->output[i].name);
        printf(": %s: ", array_type_text(t, &p->output[i]));
        print_escaped(stdout, x.s);
        putchar('\n');
    }
    if (!ncompared)
        return diag_error(t, &(struct place){.file = o->data},
                          "there is no output_0.pb to compare with");
    return true;
}

enum exit_status cmd_verify(struct tgc *t, const struct options *given)
{
    struct options o = *given;
    struct model m;
    struct feed f;
    struct instance p;
    int nbad;
    if (!model_load(t, &o, &m) || !read_inputs(t, &o, &m, &f) ||
        !model_schedule(t, &o, o.name ? o.name : program_name(t, m.stem), &m) ||
        !instance_build(t, &o, &m, &p) || !feed_instance(t, &f, &p) ||
        !instance_prepare(t, &o, &p) || !instance_run(t, &p) || !compare_outputs(t, &o, &p, &nbad))
        return EXIT_FAILED;
    instance_close(&p);
    model_close(&m);
    return nbad ? EXIT_MISMATCH : EXIT_DONE;
}
