/* option_training.c - the values of tgc train's options. */
#include "lib/parse.h"

#include <stdlib.h>
#include <string.h>

/* NAME=FILE, or a FILE that names its arrays. */
static struct input_file read_samples(struct parser *p, const char *s)
{
    const char *equals = strchr(s, '=');
    const char *slash = strchr(s, '/');
    if (!equals || equals == s || (slash && slash < equals))
        return (struct input_file){NULL, s};
    char *name = mem_copy(p->t, s, (size_t)(equals - s) + 1);
    name[equals - s] = 0;
    return (struct input_file){name, equals + 1};
}

static bool read_count(struct parser *p, const struct given *g, int64_t least, int64_t most,
                       int64_t *v)
{
    char *end;
    *v = strtoll(g->value, &end, 10);
    return (*g->value >= '0' && *g->value <= '9' && !*end && *v >= least && *v <= most) ||
           usage(p, "option %s has the value '%.200s'; a number from %lld to %lld is expected",
                 option_spelling(g->id), g->value, (long long)least, (long long)most);
}

static bool read_positive(struct parser *p, const struct given *g, double *v)
{
    char *end;
    *v = strtod(g->value, &end);
    return (*g->value && !*end && *v > 0 && *v < 1e30) ||
           usage(p, "option %s has the value '%.200s'; a positive number is expected",
                 option_spelling(g->id), g->value);
}

/* A positive number, or dynamic. */
static bool read_loss_scale(struct parser *p, const struct given *g)
{
    char *end;
    double *v = &p->o->training.loss_scale;
    bool is_dynamic = strcmp(g->value, "dynamic") == 0;
    *v = is_dynamic ? -1 : strtod(g->value, &end);
    return is_dynamic || (*g->value && !*end && *v > 0 && *v < 1e30) ||
           usage(p, "option --loss-scale has the value '%.200s'; a positive number or dynamic is "
                    "expected", g->value);
}

/* cosine,warmup=100 */
static bool read_schedule(struct parser *p, const struct given *g)
{
    static const char *const names[] = {"constant", "linear", "cosine"};
    static const char warmup[] = ",warmup=";
    size_t n = strcspn(g->value, ",");
    for (int i = 0; i < 3; i++) {
        if (strlen(names[i]) != n || memcmp(g->value, names[i], n) != 0)
            continue;
        p->o->training.schedule = (enum rate_schedule)i;
        const char *rest = g->value + n;
        int64_t steps = 0;
        if (*rest && strncmp(rest, warmup, strlen(warmup)) != 0)
            break;
        struct given count = {g->id, rest + (*rest ? strlen(warmup) : 0)};
        if (*rest && !read_count(p, &count, 1, INT32_MAX, &steps))
            return false;
        p->o->training.warmup = (int)steps;
        return true;
    }
    return usage(p, "option --schedule has the value '%.200s'; %s is expected", g->value,
                 option_rows[g->id].value);
}

/* w*:8 */
static bool read_lora(struct parser *p, const struct given *g)
{
    struct training_options *o = &p->o->training;
    const char *colon = strrchr(g->value, ':');
    int64_t rank;
    if (!colon || colon == g->value)
        return usage(p, "option --lora has the value '%.200s'; NAME:RANK is expected, as in "
                        "'layer*.weight:8'",
                     g->value);
    struct given count = {g->id, colon + 1};
    if (!read_count(p, &count, 1, INT32_MAX, &rank))
        return false;
    char *name = mem_copy(p->t, g->value, (size_t)(colon - g->value) + 1);
    name[colon - g->value] = 0;
    VEC_PUSH(p->t, o->lora, o->nlora, o->cap_lora, ((struct lora){name, (int)rank}));
    return true;
}

static bool read_log(struct parser *p, const struct given *g)
{
    const char *dot = strrchr(g->value, '.');
    p->o->training.log = g->value;
    return (dot && (strcmp(dot, ".jsonl") == 0 || strcmp(dot, ".csv") == 0)) ||
           usage(p, "--log=%.200s: the extension says the form, .jsonl or .csv", g->value);
}

static bool read_plot(struct parser *p, const struct given *g)
{
    const char *dot = strrchr(g->value, '.');
    p->o->training.plot = g->value;
    return (dot && strcmp(dot, ".svg") == 0) ||
           usage(p, "--plot=%.200s: the picture is a .svg", g->value);
}

bool option_apply_training(struct parser *p, const struct given *g)
{
    struct training_options *o = &p->o->training;
    const char *why;
    int64_t n = 0;
    bool ok = true;
    switch (g->id) {
    case OPTION_VALID:
        VEC_PUSH(p->t, o->valid, o->nvalid, o->cap_valid, read_samples(p, g->value));
        break;
    case OPTION_TARGET_COLUMN: o->target_column = g->value; break;
    case OPTION_TRAIN: o->emits = true; break;
    case OPTION_LOSS:
        o->has_loss = true;
        ok = loss_parse(p->t, g->value, &o->loss, &o->output, &why) ||
             usage(p, "--loss=%.200s: %s", g->value, why);
        break;
    case OPTION_OPTIMIZER:
        ok = optimizer_parse(p->t, g->value, &o->optimizer, &why) ||
             usage(p, "--optimizer=%.200s: %s", g->value, why);
        break;
    case OPTION_EPOCHS: ok = read_count(p, g, 1, INT32_MAX, &n), o->epochs = (int)n; break;
    case OPTION_BATCH: ok = read_count(p, g, 1, INT32_MAX, &n), o->batch = (int)n; break;
    case OPTION_LEARNING_RATE: ok = read_positive(p, g, &o->learning_rate); break;
    case OPTION_SCHEDULE: ok = read_schedule(p, g); break;
    case OPTION_CLIP: ok = read_positive(p, g, &o->clip); break;
    case OPTION_LOSS_SCALE: ok = read_loss_scale(p, g); break;
    case OPTION_TRAIN_MEMORY:
        ok = read_size(g->value, 1, &o->memory) ||
             usage(p, "option --train-memory has the value '%.200s'; bytes are expected, as in 16M",
                   g->value);
        break;
    case OPTION_SEED: ok = read_count(p, g, 0, INT64_MAX, &n), o->seed = (uint64_t)n; break;
    case OPTION_INIT:
        ok = read_count(p, g, 0, INT64_MAX, &n), o->init = (uint64_t)n;
        o->has_init = true;
        break;
    case OPTION_FREEZE:
        VEC_PUSH(p->t, o->freeze, o->nfreeze, o->cap_freeze, g->value);
        break;
    case OPTION_LORA: ok = read_lora(p, g); break;
    case OPTION_AUGMENT: o->augment = g->value; break;
    case OPTION_EARLY_STOP:
        ok = read_count(p, g, 1, INT32_MAX, &n), o->early_stop = (int)n;
        break;
    case OPTION_DEVICES: ok = read_count(p, g, 1, 256, &n), o->devices = (int)n; break;
    case OPTION_PARTS: ok = read_count(p, g, 1, 65536, &n), o->parts = (int)n; break;
    case OPTION_TIMEOUT: ok = read_positive(p, g, &o->timeout); break;
    case OPTION_LOG: ok = read_log(p, g); break;
    case OPTION_PLOT: ok = read_plot(p, g); break;
    case OPTION_CHECKPOINT: o->checkpoint = g->value; break;
    case OPTION_RESUME: o->resume = true; break;
    case OPTION_DETECT_NAN: o->detect_nan = true; break;
    default: TGC_BUG(p->t, "option %d is not one of training", (int)g->id);
    }
    return ok;
}

/* --data of verify is a directory, of train samples. */
void option_apply_data(struct parser *p, const struct given *g)
{
    struct training_options *o = &p->o->training;
    p->o->data = g->value;
    VEC_PUSH(p->t, o->data, o->ndata, o->cap_data, read_samples(p, g->value));
}

static bool is_of_training(enum option_id id)
{
    return id == OPTION_LOSS || id == OPTION_OPTIMIZER || id == OPTION_BATCH ||
           id == OPTION_LEARNING_RATE || id == OPTION_CLIP || id == OPTION_SEED ||
           id == OPTION_FREEZE || id == OPTION_LORA || id == OPTION_LOSS_SCALE ||
           id == OPTION_TRAIN_MEMORY;
}

bool options_check_emitted_training(struct parser *p)
{
    const struct options *o = p->o;
    const char *apart = o->nstate      ? "--state"
                        : o->ngradient ? "--gradient"
                        : o->ninner    ? "--value"
                        : o->ninput    ? "-i"
                                       : NULL;
    for (size_t i = 0; i < p->ngiven && !o->training.emits; i++)
        if (is_of_training(p->given[i].id))
            return usage(p, "%s is of a training: add --train for a program that trains, or say "
                            "tgc train for a training here",
                         option_spelling(p->given[i].id));
    if (!o->training.emits)
        return true;
    if (!o->training.has_loss)
        return usage(p, "--train needs --loss=LOSS: cross_entropy for classes, mse for numbers; "
                        "tgc help train lists them");
    const bool is_program = o->emit == EMIT_C || o->emit == EMIT_OBJECT ||
                            o->emit == EMIT_SHARED || o->emit == EMIT_ARCHIVE;
    const bool is_report = o->emit == EMIT_HTML || o->emit == EMIT_JSON;
    const bool is_kernels = o->emit == EMIT_CL || o->emit == EMIT_CU || o->emit == EMIT_HIP ||
                            o->emit == EMIT_METAL || o->emit == EMIT_PTX || o->emit == EMIT_HSACO;
    if (o->command == COMMAND_COMPILE && !is_program && !is_report && !is_kernels)
        return usage(p, "--train writes .c, .o, .so, .a, .html, .json, or a device's kernels, and "
                        "'.%s' is none of these",
                     emit_extension(o->emit));
    return !apart || usage(p, "%s does not go with --train", apart);
}

bool options_check_training(struct parser *p)
{
    const struct options *o = p->o;
    const struct training_options *r = &o->training;
    const char *dot = o->output ? strrchr(o->output, '.') : NULL;
    if (!dot || (strcmp(dot, ".onnx") != 0 && strcmp(dot, ".tg") != 0 &&
                 strcmp(dot, ".safetensors") != 0))
        return usage(p, "tgc train needs -o OUT, the trained model: a .onnx, .tg or .safetensors");
    if (!r->ndata)
        return usage(p, "tgc train needs --data NAME=FILE for each input of the model, and for "
                        "target");
    if (!r->has_loss)
        return usage(p, "tgc train needs --loss=LOSS: cross_entropy for classes, mse for numbers; "
                        "tgc help train lists them");
    if (r->early_stop && !r->nvalid)
        return usage(p, "--early-stop looks at the loss of --valid, which is not given");
    if (r->has_init && r->nlora)
        return usage(p, "--init draws the weights anew, which --lora keeps; give one of them");
    if (r->resume && !r->checkpoint)
        return usage(p, "--resume needs --checkpoint DIR, where the training was kept");
    if (r->detect_nan && backend_is_of_device(backend_find(target_name(o->target))))
        return usage(p, "--detect-nan looks at the results of kernels in this machine's memory, "
                        "and --target=%s has them on a device; leave out --target",
                     target_name(o->target));
    return true;
}
