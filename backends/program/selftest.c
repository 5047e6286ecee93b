/* selftest.c - the -DNAME_MAIN program and its reference vectors.
 *
 * The reference is the interpreter, run on the model's graph and on pseudo-random inputs that the
 * program generates, too (runtime/fill.c, which is also compiled into tgc). Where the interpreter
 * would take long, or the results are large, there is none, unless the user asks for it. Nor is
 * there one where roundings decide the results, and the program says why.
 */
#include "backends/program/program.h"
#include "ir/oracle.h"
#include "passes/analysis/error.h"
#include "passes/analysis/kernel_cost.h"

#include <math.h>
#include <string.h>

#include "runtime/fill.c"

enum { MOST_VECTOR_BYTES = 1 << 18 };
/* About a second, and somewhat more for large models, which take the C compiler longer still.
 * (resnet50, 25 million weights: 1.9 s of the 3.9 that tgc takes; the C compiler takes 9.) */
static const int64_t most_element_operations = 400000000;
enum { OPERATIONS_A_WEIGHT = 30, FLOP_AN_OPERATION = 64 };
/* Orders of summing up, and functions of libraries. */
static const double default_rtol = 1e-3, default_atol = 1e-4;
/* Standard deviations of what rounding adds: one of 5e8 elements is farther off. More than so much
 * of the largest result is estimated of networks that amplify errors, several times too much
 * (error.c), and would let broken kernels pass. */
static const double rounding_deviations = 6, most_rounding = 0x1p-5;

/* What --selftest says where there is no reference. */
#define AND_ALWAYS "; tgc --vectors=always computes them"
static const char it_takes_long[] = "the interpreter would take long" AND_ALWAYS;
static const char they_are_large[] = "they would be large" AND_ALWAYS;
static const char it_is_told[] = "the program was made with --vectors=never";
static const char it_has_strings[] = "the model takes or makes strings";
static const char it_lacks_graph[] =
    "the interpreter knows no graph of the model, or it has no outputs";
static const char it_refuses[] =
    "the model refuses the inputs that are drawn, or the interpreter cannot run it";
static const char it_amplifies[] =
    "for the inputs that are drawn, roundings decide what the model computes";

/* ------------------------------------------------------------------------------ the interpreter */

/* A run-time dimension's value in the selftest: small, but not 1 where that is allowed. */
static int64_t symbol_value(const struct var *v)
{
    return v->min > 3 ? v->min : v->max < 3 ? v->max : 3;
}

static bool is_asked_for(const struct program *p)
{
    return p->o->vectors_mode == VECTORS_ALWAYS;
}

/* NULL: *why. */
static struct tensor *random_tensor(struct program *p, const struct buffer *b, const int64_t *var,
                                    int nvar, int index, const struct program_feed *feed,
                                    const char **why)
{
    struct tensor *x = MEM_NEW(p->t, struct tensor);
    x->dtype = b->dtype;
    x->ndim = b->ndim;
    size_t nelem = 1; /* the program allocates the upper bounds: these are the first elements */
    for (int a = 0; a < b->ndim; a++)
        if (!sym_eval(b->dim[a], var, nvar, &x->dim[a]) || x->dim[a] < 0 ||
            !size_mul(nelem, (size_t)x->dim[a], &nelem))
            return NULL;
    size_t size = dtype_nbytes(b->dtype);
    bool fits = nelem <= MOST_VECTOR_BYTES * 4 || is_asked_for(p);
    *why = b->dtype == DTYPE_STRING ? it_has_strings : fits ? *why : they_are_large;
    if (b->dtype == DTYPE_STRING || !fits)
        return NULL;
    x->nelem = (int64_t)nelem;
    unsigned char *bytes = mem_array(p->t, nelem + 1, size);
    fill_random(dtype_name(b->dtype), bytes, size, nelem, (uint32_t)index + 1, feed->least,
                feed->most);
    x->data = mem_array(p->t, (size_t)x->nelem + 1, 8);
    union scalar *v = x->data;
    for (int64_t i = 0; i < x->nelem; i++)
        v[i] = scalar_load(b->dtype, bytes + (size_t)i * size);
    return x;
}

/* -1: no limit. Models that certainly exceed it get little, so that no time is wasted. */
static int64_t operation_budget(const struct program *p)
{
    const struct schedule *s = p->s;
    int64_t nelem = 0;
    double flop = run_use(p->t, s, -1).flop;
    for (int i = 0; i < s->nweight; i++)
        nelem += (int64_t)(s->weight[i]->nbytes / dtype_nbytes(s->weight[i]->dtype));
    int64_t budget = sat_add(most_element_operations, sat_mul(nelem, OPERATIONS_A_WEIGHT));
    return is_asked_for(p)                               ? -1
           : flop / FLOP_AN_OPERATION < (double)budget ? budget
                                                         : 1;
}

/* A state's value before the first run. */
static struct tensor *first_tensor(struct program *p, const struct buffer *b, const int64_t *var,
                                   int nvar)
{
    struct tensor *x = MEM_NEW(p->t, struct tensor);
    size_t nelem = 1, size = dtype_nbytes(b->dtype);
    x->dtype = b->dtype;
    x->ndim = b->ndim;
    for (int a = 0; a < b->ndim; a++)
        if (!sym_eval(b->dim[a], var, nvar, &x->dim[a]) || x->dim[a] < 0 ||
            !size_mul(nelem, (size_t)x->dim[a], &nelem))
            return NULL;
    if ((nelem > MOST_VECTOR_BYTES * 4 && !is_asked_for(p)) ||
        (b->port.first && b->port.first->nbytes != nelem * size))
        return NULL;
    x->nelem = (int64_t)nelem;
    x->data = mem_array(p->t, nelem + 1, 8);
    union scalar *v = x->data;
    for (size_t i = 0; i < nelem && b->port.first; i++)
        v[i] = scalar_load(b->dtype, (const unsigned char *)b->port.first->weight.data + i * size);
    return x;
}

/* The results of one run of each entry in turn, over states that each of them leaves to the
 * next. */
static bool compute_entries(struct program *p, struct eval_env *env, int64_t *var,
                            struct uop *const *root, struct tensor **result)
{
    const struct graph *g = p->s->graph;
    int caller = g->noutput - g->npart, first = g->ninput - g->nstate;
    struct uop **part = mem_array(p->t, (size_t)g->noutput, sizeof *part);
    struct tensor **value = mem_array(p->t, (size_t)g->noutput, sizeof *value);
    for (int e = 0; e < g->nentry; e++) {
        const struct graph_entry *x = &g->entry[e];
        int n = 0;
        for (int i = 0; i < x->noutput; i++)
            part[n++] = root[x->output + i];
        for (int k = 0; k < g->npart; k++)
            if (g->part[k]->entry == e)
                part[n++] = root[caller + k];
        var[g->entry_number->id] = e;
        env->host = g->host + x->host;
        env->nhost = x->nhost;
        if (n > 0 && !eval_graph(p->t, part, n, env, value))
            return false;
        ARRAY_COPY(result + x->output, value, x->noutput);
        n = x->noutput;
        for (int k = 0; k < g->npart; k++)
            for (int i = 0; i < g->nstate && g->part[k]->entry == e; i++)
                if (g->state[i] == g->part[k]->state)
                    env->value[first + i] = value[n++];
    }
    return true;
}

/* Results of a narrow type differ by one step of the format at most; a rounding within the model
 * propagates to them. */
static void set_tolerance(struct program *p, struct tensor *const *result,
                          struct program_vectors *v)
{
    double neighbour = 0;
    for (int i = 0; i < p->s->noutput; i++)
        if (dtype_is_float(result[i]->dtype) && dtype_bits(result[i]->dtype) < 32)
            neighbour = fmax(neighbour, 2 * error_unit(result[i]->dtype));
    v->rtol = default_rtol + neighbour;
    v->atol = default_atol +
              fmin(most_rounding, rounding_deviations * error_of_rounding(p->t, p->s->graph));
}

/* Inputs a few roundings away from x. */
static struct tensor *nudged(struct tgc *t, const struct tensor *x)
{
    struct tensor *y = MEM_NEW(t, struct tensor);
    *y = *x;
    if (x->dtype != DTYPE_F32 && x->dtype != DTYPE_F64)
        return y;
    union scalar *v = mem_array(t, (size_t)x->nelem + 1, sizeof *v);
    for (int64_t i = 0; i < x->nelem; i++) {
        double value = ((const union scalar *)x->data)[i].f;
        value += value * (i % 2 ? 0x1p-21 : -0x1p-21);
        v[i].f = x->dtype == DTYPE_F32 ? (double)(float)value : value;
    }
    y->data = v;
    return y;
}

static bool is_near(const struct tensor *a, const struct tensor *b, const struct program_vectors *v)
{
    const union scalar *x = a->data, *y = b->data;
    double largest = 0;
    if (a->nelem != b->nelem)
        return false;
    for (int64_t i = 0; i < a->nelem && dtype_is_float(a->dtype); i++)
        largest = isfinite(y[i].f) ? fmax(largest, fabs(y[i].f)) : largest;
    for (int64_t i = 0; i < a->nelem; i++) {
        bool same = !dtype_is_float(a->dtype) ? x[i].i == y[i].i
                    : isfinite(x[i].f) && isfinite(y[i].f)
                        ? fabs(x[i].f - y[i].f) <= v->rtol * fabs(y[i].f) + v->atol * largest
                        : isnan(x[i].f) == isnan(y[i].f);
        if (!same)
            return false;
    }
    return true;
}

/* Whether inputs that are a few roundings apart give the same results, as far as that is
 * quickly found out. */
static bool is_conditioned(struct program *p, const struct eval_env *env, struct uop *const *root,
                           struct tensor *const *result, const struct program_vectors *v)
{
    enum { PART = 4 };
    int n = p->s->noutput;
    struct tensor **value = mem_array(p->t, (size_t)env->n + 1, sizeof *value),
                  **other = mem_array(p->t, (size_t)n + 1, sizeof *other);
    struct eval_env again = *env;
    for (int i = 0; i < env->n; i++)
        value[i] = nudged(p->t, env->value[i]);
    again.value = value;
    again.budget = most_element_operations / PART;
    if (p->s->graph->nentry || !eval_graph(p->t, root, n, &again, other))
        return true;
    for (int i = 0; i < n; i++)
        if (!is_near(other[i], result[i], v))
            return false;
    return true;
}

/* NULL: *why, which is it_takes_long where nothing else is known. */
static const struct program_vectors *compute_vectors(struct program *p, const char **why)
{
    const struct schedule *s = p->s;
    const struct graph *g = s->graph;
    *why = it_lacks_graph;
    if (!g || s->noutput == 0)
        return NULL;
    *why = it_takes_long;
    struct program_vectors *v = MEM_NEW(p->t, struct program_vectors);
    int64_t *by_id = mem_array(p->t, (size_t)p->nvar_id + 1, sizeof *by_id),
            *by_position = mem_array(p->t, (size_t)s->nvar + 1, sizeof *by_position);
    for (int i = 0; i < s->nvar; i++)
        by_id[s->var[i]->id] = by_position[i] = state_is_length(g, s->var[i])
                                                    ? state_first_length(s, s->var[i])
                                                    : symbol_value(s->var[i]);
    const struct uop **leaf = mem_array(p->t, (size_t)g->ninput + 1, sizeof *leaf);
    struct tensor **value = mem_array(p->t, (size_t)g->ninput + 1, sizeof *value);
    const struct program_feed *feed = feeds_describe(p->t, s);
    for (int i = 0; i < g->ninput; i++) {
        leaf[i] = g->input[i];
        const struct buffer *b = g->input[i]->arg.p;
        value[i] = b->port.state ? first_tensor(p, b, by_id, p->nvar_id)
                            : random_tensor(p, b, by_id, p->nvar_id, i, &feed[i], why);
        if (!value[i])
            return NULL;
    }
    struct uop **root = mem_array(p->t, (size_t)g->noutput, sizeof *root);
    struct tensor **result = mem_array(p->t, (size_t)g->noutput, sizeof *result);
    state_whole_values(p->t, g, root);
    struct eval_env env = {.leaf = leaf,
                           .value = value,
                           .n = g->ninput,
                           .var = by_id,
                           .nvar = p->nvar_id,
                           .budget = operation_budget(p),
                           .host = g->host,
                           .nhost = g->nhost};
    if (!(g->nentry ? compute_entries(p, &env, by_id, root, result)
                    : eval_graph(p->t, root, s->noutput, &env, result))) {
        *why = is_asked_for(p) || !eval_graph(p->t, root, 0, &env, result) ? it_refuses
                                                                           : it_takes_long;
        return NULL;
    }
    v->output = mem_array(p->t, (size_t)s->noutput, sizeof *v->output);
    v->output_nbytes = mem_array(p->t, (size_t)s->noutput, sizeof *v->output_nbytes);
    v->var = by_position;
    set_tolerance(p, result, v);
    if (!is_conditioned(p, &env, root, result, v)) {
        *why = it_amplifies;
        return NULL;
    }
    size_t total = 0;
    for (int i = 0; i < s->noutput; i++) {
        size_t size = dtype_nbytes(result[i]->dtype);
        unsigned char *bytes = mem_array(p->t, (size_t)result[i]->nelem + 1, size);
        if (result[i]->dtype == DTYPE_STRING) {
            *why = it_has_strings;
            return NULL;
        }
        for (int64_t k = 0; k < result[i]->nelem; k++)
            scalar_store(result[i]->dtype, bytes + (size_t)k * size,
                         ((const union scalar *)result[i]->data)[k]);
        v->output[i] = bytes;
        v->output_nbytes[i] = (size_t)result[i]->nelem * size;
        total += v->output_nbytes[i];
    }
    *why = they_are_large;
    return total <= MOST_VECTOR_BYTES || is_asked_for(p) ? v : NULL;
}

/* ---------------------------------------------------------------------------- reference vectors */

static void write_vector(struct text *out, const char *table, int i, const void *data,
                         size_t nbytes)
{
    text_printf(out, "alignas(64) static const unsigned char %s_%d[%zu] =", table, i, nbytes + 1);
    text_literal(out, data, nbytes);
    text_puts(out, ";\n");
}

static void write_table(struct text *out, const char *table, const void *const *data,
                        const size_t *nbytes, int n)
{
    text_printf(out, "static const struct vector %s[] = {", table);
    for (int i = 0; i < n; i++) {
        if (data && data[i])
            text_printf(out, "{%s_%d, %zu}, ", table, i, nbytes[i]);
        else
            text_puts(out, "{NULL, 0}, ");
    }
    text_puts(out, "{NULL, 0}};\n");
}

static void write_symbols(struct program *p, const struct program_vectors *v, struct text *out)
{
    const struct schedule *s = p->s;
    text_puts(out, "static const int64_t selftest_symbol[] = {");
    for (int i = 0; i < s->nvar; i++)
        if (!s->var[i]->is_counter)
            text_printf(out, "%lld, ",
                        (long long)(v->var ? v->var[i] : symbol_value(s->var[i])));
    text_puts(out, "0};\n");
}

/* ------------------------------------------------------------------------------ NAME_selftest() */

static const char selftest_begin[] =
    "/* Runs the model on inputs that it draws, once, and compares; no files, no printing. */\n"
    "int model_selftest(void *memory, size_t memory_bytes, const model_options *options)\n"
    "{\n"
    "    if (!memory)\n"
    "        return MODEL_NULL_ARGUMENT;\n"
    "    if ((uintptr_t)memory % MODEL_ARENA_ALIGN != 0)\n"
    "        return MODEL_ARENA_MISALIGNED;\n"
    "    if (memory_bytes < MODEL_SELFTEST_BYTES)\n"
    "        return MODEL_ARENA_TOO_SMALL;\n"
    "    unsigned char *const place = (unsigned char *)memory;\n"
    "    model_self *self;\n"
    "    model_inputs in;\n"
    "    model_outputs out;\n"
    "    int status = model_init(&self, memory, MODEL_ARENA_BYTES, options);\n"
    "    if (status != MODEL_OK)\n"
    "        return status;\n"
    "    memset(&in, 0, sizeof in);\n"
    "    memset(&out, 0, sizeof out);\n";

static const char selftest_none[] =
    "int model_selftest(void *memory, size_t memory_bytes, const model_options *options)\n"
    "{\n"
    "    (void)memory;\n"
    "    (void)memory_bytes;\n"
    "    (void)options;\n"
    "    return MODEL_NO_REFERENCE;\n"
    "}\n\n";

static const char selftest_run[] = "    if (status == MODEL_OK)\n"
                                   "        status = model_run(self, &in, &out);\n";
static const char selftest_end[] = "    return status;\n}\n\n";

static void write_fields(struct program *p, const struct program_vectors *v, struct text *out)
{
    const struct schedule *s = p->s;
    const struct program_feed *feed = feeds_describe(p->t, s);
    for (int i = 0; i < s->ninput; i++) {
        const struct buffer *b = s->input[i];
        const char *field = p->buffer_name[b->id], *type = dtype_ctype(b->dtype);
        size_t at = selftest_place(p, i);
        text_printf(out, "    fill_random(\"%s\", place + %zu, %zu, %zu, %d, %lld, %lld);\n",
                    dtype_name(b->dtype), at, dtype_nbytes(b->dtype), program_bound_nelem(b), i + 1,
                    (long long)feed[i].least, (long long)feed[i].most);
        text_printf(out, "    in.%s = (const %s *)(const void *)(place + %zu);\n", field, type, at);
    }
    for (int i = 0; i < s->nvar; i++)
        if (program_is_shared_field(p, s->var[i]))
            text_printf(out, "    in.dim_%s = %lld;\n", p->var_name[s->var[i]->id],
                        (long long)(v->var ? v->var[i] : symbol_value(s->var[i])));
    for (int i = 0; i < s->noutput; i++)
        text_printf(out, "    out.%s = (%s *)(void *)(place + %zu);\n",
                    p->buffer_name[s->output[i]->id], dtype_ctype(s->output[i]->dtype),
                    selftest_place(p, s->ninput + i));
}

/* One run, or one of each entry. */
static void write_runs(struct program *p, struct text *out)
{
    const struct schedule *s = p->s;
    for (int e = 0; e < schedule_count_entries(s); e++) {
        text_printf(out, "    in.dim_%s = %d;\n", p->var_name[s->graph->entry_number->id], e);
        program_write_text(p, out, selftest_run);
    }
    if (schedule_count_entries(s) == 0)
        program_write_text(p, out, selftest_run);
    text_printf(out, "    %s_close(self);\n", p->name);
}

static void write_comparison(struct program *p, const struct program_vectors *v, struct text *out)
{
    const struct schedule *s = p->s;
    for (int i = 0; i < s->noutput; i++) {
        const struct buffer *b = s->output[i];
        const char *field = p->buffer_name[b->id];
        size_t size = dtype_nbytes(b->dtype), n = v->output_nbytes[i] / size;
        text_printf(out, "    if (status == %s_OK && (", p->upper);
        for (int a = 0; a < b->ndim && program_has_shape_field(b); a++)
            text_printf(out, "%sout.%s_shape[%d]", a ? " * " : "", field, a);
        if (program_has_shape_field(b))
            text_printf(out, " != %zu ||\n        ", n);
        text_printf(out, "count_wrong(\"%s\", %zu, out.%s, selftest_output_%d, %zu)))\n",
                    dtype_name(b->dtype), size, field, i, n);
        text_printf(out, "        status = %s_WRONG_RESULT;\n", p->upper);
    }
}

static void write_function(struct program *p, const struct program_vectors *v, struct text *out)
{
    if (!v) {
        program_write_text(p, out, selftest_none);
        return;
    }
    program_write_text(p, out, selftest_begin);
    write_fields(p, v, out);
    write_runs(p, out);
    write_comparison(p, v, out);
    program_write_text(p, out, selftest_end);
}

/* ---------------------------------------------------------------------------------- the program */

/* Of programs for devices. */
static const char device_functions[] =
    "static void on_error(void *user, const char *text)\n"
    "{\n"
    "    (void)user;\n"
    "    fprintf(stderr, \"%s: %s\\n\", model_describe()->name, text);\n"
    "}\n\n";
static const char device_flags[] =
    "        else if (strcmp(argv[i], \"--device\") == 0 && i + 1 < argc)\n"
    "            options.device = atoi(argv[++i]);\n";
static const char image_flags[] =
    "        else if (strcmp(argv[i], \"--images\") == 0 && i + 1 < argc)\n"
    "            options.images = atoi(argv[++i]);\n";
static const char device_usage[] = "    fprintf(out, \"       --device N     the N-th that `tgc "
                                   "devices` lists; 0: the first GPU, else the first\\n\");\n";

/* What the program around the model has, by the words of runtime/main.c. */
static bool has_part(const struct program *p, const char *word, size_t n)
{
    static const char *const plain[] = {"f32", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"};
    const struct schedule *s = p->s;
    bool symbols = false, strings = false, bits = false;
    for (int i = 0; i < s->nvar; i++)
        symbols |= !s->var[i]->is_counter;
    for (int i = 0; i < s->noutput; i++)
        strings |= s->output[i]->dtype == DTYPE_STRING;
    for (int i = 0; i < s->ninput; i++) {
        bool named = s->input[i]->dtype == DTYPE_STRING;
        strings |= named;
        for (size_t k = 0; k < sizeof plain / sizeof *plain; k++)
            named |= strcmp(dtype_name(s->input[i]->dtype), plain[k]) == 0;
        bits |= !named;
    }
    const struct { const char *word; bool has; } part[] = {
        {"symbols", symbols}, {"strings", strings}, {"bits", bits},
        {"entries", schedule_count_entries(s) > 0}, {"states", s->nstate > 0},
        {"file", p->weights == WEIGHTS_FILE && s->nweight > 0}};
    for (size_t i = 0; i < sizeof part / sizeof *part; i++)
        if (strlen(part[i].word) == n && strncmp(part[i].word, word, n) == 0)
            return part[i].has;
    TGC_BUG(p->t, "runtime/main.c has parts for '%.*s'", (int)n, word);
}

/* Reads the line after "//? " of a part's begin, middle or end: whether the next lines are kept. */
struct parts { bool around[4], has[4], within, reference; int depth; };

static void read_mark(const struct program *p, struct parts *x, const char *word, size_t n)
{
    if (strncmp(word, "end\n", n) == 0 && x->depth > 0) {
        x->within = x->around[--x->depth];
    } else if (strncmp(word, "else\n", n) == 0 && x->depth > 0) {
        x->within = x->around[x->depth - 1] && !x->has[x->depth - 1];
    } else if (x->depth < (int)(sizeof x->has / sizeof *x->has)) {
        x->around[x->depth] = x->within;
        x->has[x->depth] =
            strncmp(word, "reference\n", n) == 0 ? x->reference : has_part(p, word, n - 1);
        x->within &= x->has[x->depth++];
    } else {
        TGC_BUG(p->t, "runtime/main.c has too many parts within each other");
    }
}

/* The lines of runtime/main.c that this program has. */
static const char *parts_of_main(const struct program *p, bool reference)
{
    static const char mark[] = "//? ";
    struct text kept = {.t = p->t};
    struct parts x = {.within = true, .reference = reference};
    for (const char *line = snippet_find("main")->text; *line;) {
        size_t n = strcspn(line, "\n") + 1, head = strlen(mark);
        if (strncmp(line, mark, head) == 0)
            read_mark(p, &x, line + head, n - head);
        else if (x.within)
            text_write(&kept, line, n);
        line += n;
    }
    return kept.s;
}

/* What draws inputs, and knows the byte order. */
static void write_tools(const struct program *p, struct text *out)
{
    program_write_text(p, out, snippet_find("fill_random")->text);
    text_putc(out, '\n');
    program_write_text(p, out, snippet_find("is_little_endian")->text);
    text_putc(out, '\n');
}

/* Reference vectors, what draws inputs and compares, NAME_selftest(). */
static void write_reference(struct program *p, const struct program_vectors *v, struct text *out)
{
    const struct schedule *s = p->s;
    text_puts(out, "/* What the interpreter of tgc computed from the inputs of fill_random(). */\n"
                   "static const double SELFTEST_RTOL = ");
    text_double(out, v->rtol);
    text_puts(out, ", SELFTEST_ATOL = ");
    text_double(out, v->atol);
    text_puts(out, ";\n");
    for (int i = 0; i < s->noutput; i++)
        write_vector(out, "selftest_output", i, v->output[i], v->output_nbytes[i]);
    text_putc(out, '\n');
    write_tools(p, out);
    program_write_text(p, out, snippet_find("count_wrong")->text);
    text_putc(out, '\n');
}

/* With standard input and output. v NULL: `why`. */
static void write_main(struct program *p, const struct program_vectors *v, const char *why,
                       struct text *out)
{
    const struct schedule *s = p->s;
    const struct device *d = p->backend->device;
    bool symbols = has_part(p, "symbols", strlen("symbols"));
    if (!v)
        write_tools(p, out);
    if (!v)
        text_printf(out, "static const char selftest_why[] = \"%s\";\n", why);
    if (v && symbols)
        write_symbols(p, v, out);
    if (v) {
        text_puts(out, "struct vector { const void *data; size_t nbytes; };\n");
        write_table(out, "selftest_output", v->output, v->output_nbytes, s->noutput);
    }
    text_putc(out, '\n');
    if (symbols)
        program_write_text(p, out, snippet_find("fit_sizes")->text);
    const struct text_word word[] = {
        {"MODEL_FILE", p->name},
        {"DEVICE_FUNCTIONS", d ? device_functions : ""},
        {"DEVICE_HOOKS", d ? "    options.on_error = on_error;\n" : ""},
        {"DEVICE_FLAGS", p->nimage > 0 ? mem_printf(p->t, "%s%s", device_flags, image_flags)
                         : d           ? device_flags
                                       : ""},
        {"DEVICE_USAGE", d ? device_usage : ""},
        {NULL, NULL}};
    program_write_words(p, out, parts_of_main(p, v != NULL), word);
}

/* The texts of a program, or of a file of its own. */
static void write_program(struct program *p, const struct program_vectors *v, const char *reference,
                          const char *main, struct text *out)
{
    const char *why = it_is_told;
    if (!v && p->o->vectors_mode != VECTORS_NEVER)
        v = compute_vectors(p, &why);
    if (!v && is_asked_for(p))
        diag_warn(p->t, NULL, "the program has no reference vectors for --selftest: %s", why);
    program_write_text(p, out, reference);
    if (v)
        write_reference(p, v, out);
    write_function(p, v, out);
    program_write_text(p, out, main);
    write_main(p, v, why, out);
    text_puts(out, "\n#endif\n");
}

void selftest_write(struct program *p, const struct program_vectors *v, struct text *out)
{
    static const char reference[] =
        "/* ------------------------------------ NAME_selftest(): -DMODEL_SELFTEST; the program: "
        "-DMODEL_MAIN */\n\n#if defined MODEL_SELFTEST || defined MODEL_MAIN\n\n";
    write_program(p, v, reference, "#endif\n\n#ifdef MODEL_MAIN\n\n", out);
}

/* Names and vectors are string literals of any length; the model's type may have the name of a
 * local. */
static const char apart_pragmas[] =
    "#ifdef __GNUC__\n#pragma GCC diagnostic ignored \"-Woverlength-strings\"\n"
    "#pragma GCC diagnostic ignored \"-Wshadow\"\n#endif\n\n";

void selftest_write_apart(struct program *p, const struct program_vectors *v, struct text *out)
{
    text_printf(out, "/* %s - the program around %s.c, by ", p->o->main_name, p->name);
    text_comment(out, p->o->producer);
    text_printf(out, ": it runs, checks and measures the model.\n *\n"
                     " * Its user's without obligation. SPDX-License-Identifier: 0BSD */\n");
    program_include_header(p, out);
    text_puts(out, "\n#include <math.h>\n#include <stdalign.h>\n#include <string.h>\n\n");
    write_program(p, v, apart_pragmas, "#ifndef MODEL_SELFTEST\n\n", out);
}
