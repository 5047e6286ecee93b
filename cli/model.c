/* model.c - what most commands begin with: the file becomes a graph, the graph a schedule. */
#include "cli/cli.h"

#include <string.h>
#include <time.h>

double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void split_path(struct tgc *t, const char *path, struct model *m)
{
    if (strcmp(path, "-") == 0)
        path = "stdin";
    const char *slash = strrchr(path, '/');
    m->base = slash ? slash + 1 : path;
    char *stem = mem_str(t, m->base);
    char *dot = strrchr(stem, '.');
    if (dot && dot != stem)
        *dot = 0;
    m->stem = stem;
}

static void report_time(const struct tgc *t, const struct options *o, const char *what, double since)
{
    if (o->verbose || t->debug >= 1)
        fprintf(stderr, "%-28s %8.1f ms\n", what, 1e3 * (seconds_now() - since));
}

static enum model_format format_of(const struct options *o, const char *base)
{
    if (o->format != FORMAT_BY_NAME)
        return o->format;
    const char *dot = strrchr(base, '.');
    return dot && strcmp(dot, ".tg") == 0 ? FORMAT_TG : FORMAT_ONNX;
}

bool model_load(struct tgc *t, const struct options *o, struct model *m)
{
    double start = seconds_now();
    *m = (struct model){0};
    split_path(t, o->model, m);
    t->debug = o->debug;
    t->noopt = o->level == 0;
    t->fast_math = o->fast_math;
    if (format_of(o, m->base) == FORMAT_TG)
        return diag_error(t, &(struct place){.file = o->model}, "text graphs cannot be read by this version of tgc; it reads ONNX");
    m->onnx = onnx_load(t, o->model, &o->load);
    if (m->onnx)
        report_time(t, o, "load", start);
    return m->onnx;
}

static void report_kernels(const struct tgc *t, const struct schedule *s)
{
    if (t->debug >= 1)
        fprintf(stderr, "%d kernels, arena %zu bytes, weights %zu bytes\n", s->nkernel, s->arena_nbytes, s->weight_nbytes);
    for (int i = 0; i < s->nkernel && t->debug >= 2; i++) {
        const struct kernel *k = s->kernel[i];
        fprintf(stderr, "%4d %-32s %10.3g FLOP %10.3g bytes  ", i, k->name, k->flop, k->nbytes);
        print_escaped(stderr, k->title ? k->title : "");
        fputc('\n', stderr);
    }
}

bool model_schedule(struct tgc *t, const struct options *o, const char *name, struct model *m)
{
    double start = seconds_now();
    struct onnx_graph_options graph_options = {.dim = o->dim, .ndim = o->ndim, .shape = o->shape, .nshape = o->nshape,
                                                .value = o->value, .nvalue = o->nvalue};
    struct compile_options compile_options = {.noopt = o->level == 0, .level = o->level, .threads = o->threads, .name = name};
    passes_init(t);
    m->graph = onnx_lower(t, m->onnx, &graph_options);
    if (!m->graph || t->nerror)
        return false;
    report_time(t, o, "lower to UOps", start);
    start = seconds_now();
    m->schedule = passes_run(t, m->graph, &compile_options);
    if (!m->schedule || t->nerror)
        return false;
    report_time(t, o, "schedule", start);
    report_kernels(t, m->schedule);
    return true;
}

void model_close(struct model *m) { onnx_close(m->onnx); }

struct program_options model_program_options(const struct options *o, const struct model *m, const char *name)
{
    return (struct program_options){
        .name = name,
        .model = m->base,
        .producer = "tgc " TGC_VERSION,
        .weights = o->weights,
        .threads = o->threads,
    };
}
