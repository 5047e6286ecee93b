/* cmd_verify.c - tgc verify: runs a model on recorded inputs and compares with recorded outputs, in
 * the layout of ONNX's tests: DIR/input_K.pb, DIR/output_K.pb, or .npy for tensors. Or runs two
 * models, or one with two sets of options, on the same inputs, and compares the second's outputs
 * with the first's. */
#include "cli/cli.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool run_once(struct tgc *t, struct instance *p)
{
    double start = clock_seconds();
    bool ok = instance_run(t, p);
    report_stage(t, "run", start);
    return ok;
}

/* The file of one input or output; NULL: there is none. */
static const char *data_file(struct tgc *t, const struct options *o, const char *what, int k)
{
    static const char *const extensions[] = {"pb", "npy"};
    for (size_t i = 0; i < sizeof extensions / sizeof *extensions; i++) {
        const char *path = mem_printf(t, "%s/%s_%d.%s", o->data, what, k, extensions[i]);
        if (access(path, F_OK) == 0)
            return path;
    }
    return NULL;
}

/* dtype: of a tensor in a .npy, which may not be able to name it; VOID: any. */
static bool read_file(struct tgc *t, const char *path, const struct model_value *v,
                      enum dtype dtype, struct recorded *r)
{
    size_t n = strlen(path);
    if (strcmp(path + n - strlen(".npy"), ".npy") != 0)
        return pb_read(t, path, v->is_optional, v->is_sequence, r);
    if (v->is_optional || v->is_sequence)
        return diag_error(t, &(struct place){.file = path},
                          "is a tensor; '%.100s' is %s, which a .pb file holds", v->name,
                          v->is_sequence ? "a sequence" : "an optional");
    *r = (struct recorded){.item = MEM_NEW(t, struct array), .n = 1};
    return npy_read(t, path, dtype, r->item);
}

/* Fixes the length of a sequence input, or the absence of an optional one, at what the file holds,
 * as --shape does. false: a diagnostic, --shape says otherwise. */
static bool settle_list(struct tgc *t, struct options *o, const struct model_value *v,
                        const struct recorded *r, const char *path)
{
    struct onnx_list_option list = {.input = v->name, .count = r->is_absent ? -1 : r->n};
    if (!v->is_sequence && !r->is_absent)
        return true;
    for (int i = 0; i < o->nlist; i++)
        if (strcmp(o->list[i].input, v->name) == 0)
            return o->list[i].count == list.count ||
                   diag_error(t, &(struct place){.file = path},
                              "holds %d tensors, but --shape says otherwise of '%.100s'", r->n,
                              v->name);
    VEC_PUSH(t, o->list, o->nlist, o->cap_list, list);
    return true;
}

static bool is_state_input(const struct options *o, const char *name)
{
    size_t n = strlen(name);
    for (int i = 0; i < o->nstate; i++) {
        size_t length = strlen(o->state[i]);
        if (length > n && o->state[i][length - n - 1] == '=' &&
            strcmp(o->state[i] + length - n, name) == 0)
            return true;
    }
    return false;
}

static bool read_inputs(struct tgc *t, struct options *o, const struct model *m, struct feed *f)
{
    int n, first;
    if (m->graph && m->graph->nentry && !o->entry)
        return diag_error(t, &(struct place){.file = o->model},
                          "it has %d entries, and %.200s holds the tensors of one: give --entry",
                          m->graph->nentry, o->data);
    struct model_value *v = model_border(t, m, false, &n);
    struct recorded *r = mem_array(t, (size_t)n + 1, sizeof *r);
    const char **path = mem_array(t, (size_t)n + 1, sizeof *path);
    int count = model_count_of_entry(o, m, false, n, &first), end = first + count, at = first;
    for (int k = first; k < end; k++) {
        if (v[k].dtype == DTYPE_VOID)
            return diag_error(t, &(struct place){.file = o->model},
                              "the input '%.100s' is no tensor, sequence of tensors or optional of "
                              "one, which verify can read",
                              v[k].name);
        if (!(path[k] = data_file(t, o, "input", k - first)) && is_state_input(o, v[k].name))
            continue; /* as before the first run */
        if (!path[k])
            return diag_error(t, &(struct place){.file = o->data},
                              "there is no input_%d.pb or input_%d.npy for the input '%.100s'",
                              k - first, k - first, v[k].name);
        if (!read_file(t, path[k], &v[k], v[k].dtype, &r[k]) ||
            !settle_list(t, o, &v[k], &r[k], path[k]))
            return false;
    }
    const char *more = data_file(t, o, "input", count);
    if (more)
        return diag_error(t, &(struct place){.file = more}, "the %s has only %d inputs",
                          count < n ? "entry" : "model", count);
    f->input = model_inputs(t, o, m, &f->n);
    f->value = mem_array(t, (size_t)f->n, sizeof *f->value);
    f->source = mem_array(t, (size_t)f->n, sizeof *f->source);
    for (int k = first; k < end; k++) {
        at += !path[k];
        for (int i = 0; i < r[k].n; i++, at++) {
            f->value[at] = r[k].item[i];
            f->source[at] = path[k];
            if (f->value[at].dtype != v[k].dtype)
                return diag_error(
                    t, &(struct place){.file = path[k]}, "holds %s; the input '%.100s' is of %s",
                    array_type_text(t, &f->value[at]), f->input[at].name, dtype_name(v[k].dtype));
            if (!feed_settle_shape(t, o, &f->input[at], &f->value[at], path[k]))
                return false;
        }
    }
    return true;
}

static bool compare_tensor(struct tgc *t, const struct options *o, const struct array *got,
                           const struct array *want)
{
    struct text x = {.t = t};
    double rtol, atol;
    array_tolerances(want, o->rtol, o->atol, &rtol, &atol);
    bool agrees = array_compare(t, &x, got, want, rtol, atol);
    print_comparison(t, agrees, got, x.s);
    return agrees;
}

static bool mismatch_count(const struct model_value *v, int got, int want)
{
    fputs("MISMATCH ", stdout);
    print_escaped(stdout, v->name);
    printf(": %d tensors; %d are expected\n", got, want);
    return false;
}

/* How many of the program's outputs, from `at` on, belong to the model's output: a sequence's
 * items, none for an absent optional. */
static int output_count(struct tgc *t, const struct instance *p, const struct model_value *v,
                        int at)
{
    int n = 0;
    if (at < p->info->output_count && strcmp(p->output[at].name, v->name) == 0)
        return 1;
    while (at + n < p->info->output_count &&
           strcmp(p->output[at + n].name, mem_printf(t, "%s[%d]", v->name, n)) == 0)
        n++;
    return n;
}

/* The state of an output; -1: none. */
static int find_state(const struct instance *p, const char *output)
{
    for (int i = 0; i < p->info->state_count; i++)
        if (strcmp(p->info->states[i].from, output) == 0)
            return i;
    return -1;
}

/* The model's outputs, then those that options add (--gradient, --value), which it does not
 * declare; of a graph with entries all are in the graph. */
static struct model_value *program_outputs(struct tgc *t, const struct model *m,
                                           const struct instance *p, int *n)
{
    int at = 0, count = p->info->output_count;
    const struct model_value *declared = model_border(t, m, true, n);
    struct model_value *v = mem_array(t, (size_t)(*n + count) + 1, sizeof *v);
    memcpy(v, declared, (size_t)*n * sizeof *v);
    for (int k = 0; k < *n; k++)
        at += output_count(t, p, &v[k], at);
    for (; at < count && p->info->entry_count == 0; at++)
        v[(*n)++] = (struct model_value){.name = p->output[at].name, .dtype = p->output[at].dtype};
    return v;
}

/* *nbad counts the outputs that differ. */
static bool compare_outputs(struct tgc *t, const struct options *o, const struct model *m,
                            const struct instance *p, int *nbad)
{
    int ncompared = 0, n, at;
    struct model_value *v = program_outputs(t, m, p, &n);
    int end = model_count_of_entry(o, m, true, n, &at), begin = at;
    end += begin;
    *nbad = 0;
    for (int k = begin; k < end; k++) {
        const char *path = data_file(t, o, "output", k - begin);
        int count = output_count(t, p, &v[k], at), first = at, state = find_state(p, v[k].name);
        struct recorded want;
        struct array kept;
        at += count;
        if (!path)
            continue;
        if (state >= 0) {
            if (!instance_read_state(t, p, state, &kept) ||
                !read_file(t, path, &v[k], kept.dtype, &want))
                return false;
            *nbad += want.n != 1 || !compare_tensor(t, o, &kept, &want.item[0]);
            ncompared++;
            continue;
        }
        if (!read_file(t, path, &v[k], count ? p->output[first].dtype : DTYPE_VOID, &want))
            return false;
        bool agrees = count == want.n || mismatch_count(&v[k], count, want.n);
        for (int i = 0; i < count && i < want.n; i++)
            agrees &= compare_tensor(t, o, &p->output[first + i], &want.item[i]);
        if (!count && !want.n) {
            fputs("ok       ", stdout);
            print_escaped(stdout, v[k].name);
            printf(": %s\n", v[k].is_sequence && !want.is_absent ? "empty" : "absent");
        }
        *nbad += !agrees;
        ncompared++;
    }
    if (!ncompared)
        return diag_error(t, &(struct place){.file = o->data},
                          "there is no output_0.pb or output_0.npy to compare with");
    return true;
}

/* ----------------------------------------------------------------------------------- two models */

/* The second model: a compile of its own, since a struct tgc belongs to one compile. */
struct second {
    struct tgc *t;
    struct options o;
    struct model m;
    struct instance p;
    struct name_list rounded;       /* outputs that are rounded to integers */
    bool rounds, ok;            /* some value is; it could be run */
};

static const char *variable(const char *name) { return getenv(name); }

/* The command line again, with the second model instead of the first, and --other's words
 * appended. */
static bool second_options(struct tgc *t, const struct options *o, struct options *other)
{
    const char **word = mem_array(t, o->nword + o->nother + 2, sizeof *word);
    int n = 0;
    word[n++] = "tgc";
    for (size_t i = 0; i < o->nword; i++)
        word[n++] = o->word[i];
    for (size_t i = 0; i < o->nother; i++)
        word[n++] = o->other[i];
    if (!options_parse(t, n, word, variable, other))
        return false;
    other->subject = other->model = o->model2 ? o->model2 : o->model;
    return true;
}

/* Inputs are matched by name if all names are equal, else by position. */
static bool second_inputs(struct tgc *t, struct options *o, const struct model *m,
                          const struct instance *first, struct feed *f)
{
    f->input = model_inputs(t, o, m, &f->n);
    f->value = mem_array(t, (size_t)f->n + 1, sizeof *f->value);
    f->source = mem_array(t, (size_t)f->n + 1, sizeof *f->source);
    int count = first->info->input_count;
    if (f->n != count)
        return diag_error(t, NULL, "has %d inputs, the first model has %d", f->n, count);
    bool by_name = true;
    int *at = mem_array(t, (size_t)count + 1, sizeof *at);
    for (int i = 0; i < count; i++) {
        at[i] = count;
        for (int k = 0; k < count; k++)
            if (strcmp(first->input[k].name, f->input[i].name) == 0)
                at[i] = k;
        by_name &= at[i] < count && first->info->entry_count == 0;    /* whose names may be equal */
    }
    for (int i = 0; i < count; i++) {
        f->value[i] = first->input[by_name ? at[i] : i];
        f->source[i] = mem_printf(t, "the first model's input '%.100s'", f->value[i].name);
        if (f->value[i].dtype != f->input[i].dtype)
            return diag_error(t, NULL, "input '%.100s' is of %s, %s is of %s", f->input[i].name,
                              dtype_name(f->input[i].dtype), f->source[i],
                              dtype_name(f->value[i].dtype));
        if (!feed_settle_shape(t, o, &f->input[i], &f->value[i], f->source[i]))
            return false;
    }
    return true;
}

static bool lower_second(struct second *s, const struct instance *first, int ninner,
                         struct feed *f)
{
    if (!model_lower(s->t, &s->o, &s->m))
        return false;
    s->rounded = values_rounded(s->t, s->m.graph);
    s->rounds = values_are_rounded(s->t, s->m.graph);
    values_give(s->t, s->m.graph, first->output + first->info->output_count - ninner, ninner, f);
    return true;
}

/* ninner: how many of the first one's outputs are values of --value. */
static bool run_second(struct second *s, const struct instance *first, int ninner)
{
    struct tgc *t = s->t;
    struct options *o = &s->o;
    struct model *m = &s->m;
    struct feed f;
    return model_load(t, o, m) && second_inputs(t, o, m, first, &f) &&
           lower_second(s, first, ninner, &f) &&
           model_optimize(t, o, program_name(t, m->stem), m) && instance_build(t, o, m, &s->p) &&
           feed_instance(t, &f, &s->p) && instance_choose_entry(t, o, false, &s->p) &&
           instance_prepare(t, o, &s->p) && run_once(t, &s->p);
}

/* s is not a local of the function that calls setjmp. */
static void start_second(struct second *s, const struct instance *first, int ninner)
{
    if (setjmp(s->t->stop) == 0)
        s->ok = run_second(s, first, ninner);
}

/* An output that is rounded to integers may be rounded to a neighbour. */
static bool compare_output(const struct second *s, const struct options *o,
                           const struct array *want, const struct array *got)
{
    struct text x = {.t = s->t};
    size_t nstep;
    if (!name_list_has(&s->rounded, got->name))
        return compare_tensor(s->t, o, got, want);
    bool agrees = values_agree_rounded(s->t, &x, got, want, &nstep);
    print_comparison(s->t, agrees, got, x.s);
    return agrees;
}

/* Values go by name, in the first model's order. */
static int compare_values(struct tgc *t, const struct options *o, const struct model *m,
                          const struct instance *first, const struct second *s)
{
    int n = m->graph->ninner, other = s->m.graph->ninner;
    return values_compare(t, o, first->output + first->info->output_count - n,
                          m->graph->inner_from, n,
                          s->p.output + s->p.info->output_count - other, other, &s->rounded);
}

/* Said where a difference may be no mistake. */
static void explain_rounding(void)
{
    puts("the model rounds to integers inside: a sum in another order may be rounded to the "
         "neighbour there, which layers behind it make larger; --value '*' judges each value by "
         "itself");
}

/* What the runs have kept. */
static bool compare_states(struct tgc *t, const struct options *o, const struct instance *first,
                           const struct second *s, int *nbad)
{
    int n = first->info->state_count;
    if (n != s->p.info->state_count)
        return diag_error(t, &(struct place){.file = s->o.model},
                          "has %d states, the first model has %d", s->p.info->state_count, n);
    for (int i = 0; i < n; i++) {
        struct array want, got;
        if (!instance_read_state(t, first, i, &want) || !instance_read_state(t, &s->p, i, &got))
            return false;
        *nbad += !compare_tensor(t, o, &got, &want);
    }
    return true;
}

static void free_second(void *what) { tgc_free(((struct second *)what)->t); }

/* *other: the second one's instance */
static bool compare_models(struct tgc *t, const struct options *o, const struct model *m,
                           const struct instance *first, const struct instance **other, int *nbad)
{
    struct second *s = MEM_NEW(t, struct second);
    *nbad = 0;
    *other = &s->p;
    held_add(t, free_second, s);
    s->t = tgc_new(0);
    if (!s->t || !second_options(t, o, &s->o))
        return false;
    s->t->listener = t->listener;
    s->t->mem_limit = t->mem_limit;
    s->t->run_limit = t->run_limit;
    s->t->run_used = t->run_used;
    s->o.load.budget_per_external_byte = o->load.budget_per_external_byte;
    start_second(s, first, m->graph->ninner);
    messages_print(s->t, &s->o, stderr);
    if (!s->ok)
        return diag_error(t, &(struct place){.file = s->o.model},
                          "the second model could not be run; see above");
    int n = first->info->output_count - m->graph->ninner;
    int count = s->p.info->output_count - s->m.graph->ninner;
    if (n != count)
        return diag_error(t, &(struct place){.file = s->o.model},
                          "has %d outputs, the first model has %d", count, n);
    for (int i = 0; i < n; i++)
        if (instance_has(first, true, i))
            *nbad += !compare_output(s, o, &first->output[i], &s->p.output[i]);
    if (!compare_states(t, o, first, s, nbad))
        return false;
    if (o->ninner)
        *nbad += compare_values(t, o, m, first, s);
    else if (*nbad && s->rounds)
        explain_rounding();
    instance_close(&s->p);
    return true;
}

enum exit_status cmd_verify(struct tgc *t, const struct options *given)
{
    struct options o = *given;
    struct model m;
    struct feed f;
    struct instance p;
    const struct instance *other = NULL;
    struct kernel_times times;
    int nbad;
    if (!instance_obtain(t, &o, &m, &f, o.data ? read_inputs : feed_read, &p) ||
        !feed_instance(t, &f, &p) || !instance_choose_entry(t, &o, false, &p))
        return EXIT_FAILED;
    if (t->debug >= 2)
        times_hook(t, &times, &p);
    progress(t, "%s: running", m.stem);
    bool ran = instance_prepare(t, &o, &p) && run_once(t, &p);
    progress_end(t);
    if (!ran)
        return EXIT_FAILED;
    times_print_one_run(t, &m, &p, &times);
    if (!(o.data ? compare_outputs(t, &o, &m, &p, &nbad)
                : compare_models(t, given, &m, &p, &other, &nbad)))
        return EXIT_FAILED;
    instance_print_maker(&p, other);
    instance_close(&p);
    return nbad ? EXIT_MISMATCH : EXIT_DONE;
}
