/* option_values.c - the values of options, each read by its type into a struct options. */
#include "lib/parse.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TRIPLE_LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.+-"

static bool bad_value(struct parser *p, const struct given *g)
{
    return usage(p, "option %s has the value '%.200s'; %s is expected", option_rows[g->id].spelling,
                 g->value, option_rows[g->id].value);
}

/* The index of a value in "a|b|c"; -1: it is not there. */
static int choice(const char *choices, const char *value)
{
    int k = 0;
    for (const char *s = choices;; k++) {
        size_t n = strcspn(s, "|");
        if (strlen(value) == n && strncmp(s, value, n) == 0)
            return k;
        s += n;
        if (!*s++)
            return -1;
    }
}

static bool read_int(const char *s, const char **end, int64_t lo, int64_t hi, int64_t *v)
{
    char *stop;
    errno = 0;
    long long n = *s >= '0' && *s <= '9' ? strtoll(s, &stop, 10) : -1;
    if (n < 0 || errno || n < lo || n > hi)
        return false;
    *end = stop;
    *v = n;
    return true;
}

static bool read_tolerance(const char *s, double *v)
{
    char *end;
    *v = strtod(s, &end);
    return *s && !*end && *v >= 0 && *v < 1e300;
}

bool read_size(const char *s, int64_t least, size_t *v)
{
    int64_t n;
    const char *end;
    if (!read_int(s, &end, least, INT64_MAX, &n))
        return false;
    int shift = *end == 'K' || *end == 'k'   ? 10
                : *end == 'M' || *end == 'm' ? 20
                : *end == 'G' || *end == 'g' ? 30
                                             : 0;
    end += shift != 0;
    end += *end == 'B';
    *v = (size_t)n;
    return !*end && size_mul(*v, (size_t)1 << shift, v);
}

/* 1.5x, or BYTES. */
static bool read_budget(const char *s, struct weight_limit *limit)
{
    char *end;
    *limit = (struct weight_limit){0};
    if (strchr("0123456789", *s) && s[strspn(s, "0123456789.")] == 'x') {
        limit->ratio = strtod(s, &end);
        return strcmp(end, "x") == 0 && limit->ratio >= 1;
    }
    return read_size(s, 1, &limit->nbytes);
}

/* N, ..N or N..M: the sizes that a dimension may have. */
static bool read_range(const char *s, int64_t *min, int64_t *max)
{
    const char *end = s;
    bool dots = strncmp(s, "..", 2) == 0, has_least = !dots && read_int(s, &end, 0, INT32_MAX, min);
    if (!dots && !has_least)
        return false;
    *max = *min;
    if (!*end && has_least)
        return true;
    return strncmp(end, "..", 2) == 0 && read_int(end + 2, &end, 1, INT32_MAX, max) && !*end &&
           *min <= *max;
}

/* NAME=N, NAME=..N, NAME=N..M or NAME<=N; the last = splits, since names may contain some. The last
 * option for a name counts, as of options with one value. */
static bool read_dim(struct parser *p, const char *s)
{
    const char *equals = strrchr(s, '='), *end;
    if (!equals || equals == s)
        return false;
    bool is_bound = equals[-1] == '<';
    size_t n = (size_t)(equals - s) - is_bound;
    struct onnx_dim_option d = {.min = 0};
    if (!n || !(is_bound ? read_int(equals + 1, &end, 1, INT32_MAX, &d.max) && !*end
                         : read_range(equals + 1, &d.min, &d.max)))
        return false;
    char *name = mem_copy(p->t, s, n + 1);
    name[n] = 0;
    d.name = name;
    for (int i = 0; i < p->o->ndim; i++)
        if (strcmp(p->o->dim[i].name, name) == 0) {
            p->o->dim[i] = d;
            return true;
        }
    VEC_PUSH(p->t, p->o->dim, p->o->ndim, p->o->cap_dim, d);
    return true;
}

static bool bad_dim(struct parser *p, const struct given *g)
{
    const char *equals = strrchr(g->value, '=');
    const char *number = equals ? equals + 1 : "";
    if (equals == g->value || !number[strspn(number, ".")] || number[strspn(number, "0123456789.")])
        return bad_value(p, g);
    return usage(p, "option %s has the value '%.200s'; a dimension is a number to %d, and a bound "
                    "begins with 1, or with the least size: 2..64",
                 option_rows[g->id].spelling, g->value, INT32_MAX);
}

/* 1x3x?x224 up to the string's end or one of `ends`; empty for a scalar. */
static bool read_sizes(const char *d, const char *ends, const char **end,
                       struct onnx_shape_option *shape)
{
    while (!strchr(ends, *d)) {
        if (shape->ndim == MAX_RANK)
            return false;
        if (*d == '?') {
            shape->dim[shape->ndim++] = -1;
            d++;
        } else if (!read_int(d, &d, 0, INT32_MAX, &shape->dim[shape->ndim++])) {
            return false;
        }
        if (!strchr(ends, *d) && (*d != 'x' || strchr(ends, *++d)))
            return false;
    }
    *end = d;
    return true;
}

/* [2x3,scalar], []: each item's shape becomes the shape of an input NAME[i]. */
static bool read_shape_list(struct parser *p, const char *name, const char *d)
{
    static const char scalar[] = "scalar";
    struct onnx_list_option list = {.input = name};
    bool empty = !strcmp(d, "[]");
    for (; !empty && (*d == '[' || *d == ','); list.count++) {
        struct onnx_shape_option item = {.input = mem_printf(p->t, "%s[%d]", name, list.count)};
        if (!strncmp(++d, scalar, sizeof scalar - 1))
            d += sizeof scalar - 1;
        else if (!read_sizes(d, ",]", &d, &item) || !item.ndim)
            return false;
        VEC_PUSH(p->t, p->o->shape, p->o->nshape, p->o->cap_shape, item);
    }
    VEC_PUSH(p->t, p->o->list, p->o->nlist, p->o->cap_list, list);
    return empty || !strcmp(d, "]");
}

/* NAME=1x3x?x224, NAME= for a scalar; NAME=[2x3,4] for a sequence, NAME=absent for an optional. */
static bool read_shape(struct parser *p, const char *s)
{
    const char *equals = strrchr(s, '='), *end;
    if (!equals || equals == s)
        return false;
    char *name = mem_copy(p->t, s, (size_t)(equals - s) + 1);
    name[equals - s] = 0;
    if (equals[1] == '[')
        return read_shape_list(p, name, equals + 1);
    if (!strcmp(equals + 1, "absent")) {
        VEC_PUSH(p->t, p->o->list, p->o->nlist, p->o->cap_list,
                 ((struct onnx_list_option){name, -1}));
        return true;
    }
    struct onnx_shape_option shape = {.input = name};
    if (!read_sizes(equals + 1, "", &end, &shape))
        return false;
    for (int i = 0; i < p->o->nshape; i++)
        if (strcmp(p->o->shape[i].input, name) == 0) {
            p->o->shape[i] = shape;
            return true;
        }
    VEC_PUSH(p->t, p->o->shape, p->o->nshape, p->o->cap_shape, shape);
    return true;
}

static bool read_input(struct parser *p, const char *s)
{
    const char *equals = strrchr(s, '=');
    if (!equals || equals == s || !equals[1])
        return false;
    char *name = mem_copy(p->t, s, (size_t)(equals - s) + 1);
    name[equals - s] = 0;
    struct input_file f = {name, equals + 1};
    VEC_PUSH(p->t, p->o->input, p->o->ninput, p->o->cap_input, f);
    return true;
}

/* --math=NODE=f32 */
static bool read_unrounded(struct parser *p, const struct given *g)
{
    const char *end = strrchr(g->value, '=');
    if (strcmp(end, "=f32") != 0 || end == g->value)
        return usage(p,
                     "--math=%.100s: NODE=f32 leaves a node in f32; --math=bf16 says to what the "
                     "others are rounded",
                     g->value);
    VEC_PUSH(p->t, p->o->unrounded, p->o->nunrounded, p->o->cap_unrounded,
             mem_printf(p->t, "%.*s", (int)(end - g->value), g->value));
    return true;
}

static bool read_layout(struct parser *p, const struct given *g)
{
    struct image_layout v;
    if (!image_layout_read(p->t, g->value, &v))
        return bad_value(p, g);
    VEC_PUSH(p->t, p->o->layout, p->o->nlayout, p->o->cap_layout, v);
    return true;
}

/* "c, clang and llvm": the targets that are built. */
static const char *targets_built(struct parser *p)
{
    struct text x = {.t = p->t};
    int last = 0;
    for (int i = 0; i < TARGET_COUNT; i++)
        last = target_rows[i].built ? i : last;
    for (int i = 0; i <= last; i++)
        if (target_rows[i].built)
            text_printf(&x, "%s%s", !x.n ? "" : i == last ? " and " : ", ", target_rows[i].name);
    return x.s;
}

bool set_target(struct parser *p, const char *name, const char *from)
{
    for (int i = 0; i < TARGET_COUNT; i++) {
        if (strcmp(target_rows[i].name, name) != 0)
            continue;
        p->o->target = (enum target)i;
        return target_rows[i].built
                   ? true
                   : usage(p, "%s: the target '%s' is not in this version of tgc; it has %s", from,
                           name, targets_built(p));
    }
    return usage(p, "%s: there is no target '%.100s'; %s are", from, name, targets_built(p));
}

bool set_emit(struct parser *p, const char *kind, const char *from)
{
    for (int i = 0; i < EMIT_COUNT; i++) {
        if (strcmp(emit_rows[i].extension, kind) != 0)
            continue;
        p->o->emit = (enum emit)i;
        return emit_rows[i].built ? true
                              : usage(p, "%s: to write .%s (%s) is not in this version of tgc",
                                      from, kind, emit_rows[i].text);
    }
    struct text x = {.t = p->t};
    for (int i = 0; i < EMIT_COUNT; i++)
        if (emit_rows[i].built)
            text_printf(&x, " .%s", emit_rows[i].extension);
    return usage(p, "%s: '%.100s' is no kind of output; known are%s", from, kind, x.s);
}

static size_t common_beginning(const char *a, const char *b)
{
    size_t n = 0;
    while (a[n] && a[n] == b[n])
        n++;
    return n;
}

/* Processors that may be meant: those that begin like what was written where all but the last of
 * its letters agree, else like the nearest name; the longer the common beginning, the earlier. */
static void put_near(struct text *out, const char *name)
{
    enum { BEGIN = 3, MOST = 8 };
    struct nearest near = nearest_to(name);
    int n, put = 0;
    const struct processor *row = processor_rows(&n);
    for (int i = 0; i < n; i++)
        nearest_offer(&near, row[i].name);
    const char *like = near.best ? near.best : name;
    for (int i = 0; i < n; i++)
        if (common_beginning(row[i].name, name) + 1 >= strlen(name))
            like = name;
    for (size_t common = strlen(like) + 1; common-- > BEGIN && put < MOST;)
        for (int i = 0; i < n && put < MOST; i++)
            if (common_beginning(row[i].name, like) == common) {
                text_printf(out, " %s", row[i].name);
                put++;
            }
}

/* The last --target; NULL: there is none. */
static const char *given_target(const struct parser *p)
{
    const char *target = NULL;
    for (size_t i = 0; i < p->ngiven; i++)
        if (p->given[i].id == OPTION_TARGET)
            target = p->given[i].value;
    return target;
}

/* Of an architecture that the target has no row for: which --cpu does for its cards, or that none
 * does. Cards take PTX of older architectures, and no code object of another one. */
static const char *hint_architecture(struct parser *p, const char *target, const char *name)
{
    enum { PREFIX = 3 };
    const struct device_row *best = NULL, *row;
    int n;
    if (strcmp(target, "amd") == 0 && strncmp(name, "gfx", PREFIX) == 0)
        return ": a code object runs on its own architecture alone, and --target=opencl on others";
    if (strcmp(target, "cuda") != 0 || strncmp(name, "sm_", PREFIX) != 0 ||
        atoi(name + PREFIX) == 0)
        return "";
    row = device_rows(&n);
    for (int i = 0; i < n; i++)
        if (strcmp(row[i].target, target) == 0 &&
            atoi(row[i].text + PREFIX) <= atoi(name + PREFIX) &&
            (!best || atoi(row[i].text + PREFIX) > atoi(best->text + PREFIX)))
            best = &row[i];
    return best ? mem_printf(p->t, ": a card of %.100s runs what --cpu=%s compiles", name,
                             best->text)
                : ": older cards run --target=opencl";
}

/* --cpu of a name that is none: what the target has, or, where none is given, all. */
static bool refuse_cpu(struct parser *p, const char *name)
{
    const char *target = given_target(p);
    const struct backend *backend = target ? backend_find(target) : NULL;
    struct text known = {.t = p->t}, near = {.t = p->t};
    if (backend && backend_is_of_device(backend)) {
        option_put_devices(&known, target);
        return usage(p, "--cpu=%.100s is not known; --target=%s has%s%s", name, target, known.s,
                     hint_architecture(p, target, name));
    }
    option_put_processors(&known);
    if (!backend)
        option_put_devices(&known, NULL);
    put_near(&near, name);
    return usage(p, "--cpu=%.100s is not known; known are %s, and processors by LLVM's names%s%s",
                 name, known.s, near.s ? ", of which these are near:" : ", haswell or cortex-a72",
                 near.s ? near.s : "");
}

/* "sm_80,sm_90a", "gfx1100,gfx90a": architectures of one target, for each of which there is code;
 * the first one's row says how kernels are cut. */
static bool read_architectures(struct parser *p, const char *value)
{
    const struct device_row *first = NULL;
    for (const char *s = value, *end; s; s = *end ? end + 1 : NULL) {
        size_t n = strcspn(s, ",");
        const struct device_row *row = device_find(mem_printf(p->t, "%.*s", (int)n, s));
        end = s + n;
        if (n == 0)
            return usage(p, "--cpu=%.100s: names stand between commas", value);
        if (!row)
            return refuse_cpu(p, mem_printf(p->t, "%.*s", (int)n, s));
        if (strcmp(row->target, "cuda") != 0 && strcmp(row->target, "amd") != 0)
            return usage(p, "--cpu=%s: a list is of architectures of CUDA or AMD, and %s is none",
                         value, row->text);
        first = first ? first : row;
        if (strcmp(row->target, first->target) != 0)
            return usage(p, "--cpu=%s: %s is of --target=%s, and %s of --target=%s", value,
                         first->text, first->target, row->text, row->target);
    }
    p->o->device = first;
    return true;
}

static bool read_cpu(struct parser *p, const struct given *g)
{
    p->o->architectures = g->value;
    p->o->isa = 0;
    if (strchr(g->value, ','))
        return read_architectures(p, g->value);
    p->o->device = device_find(g->value);
    p->o->processor = processor_find(g->value);
    p->o->isa = 0;
    if (p->o->device)
        return true;
    if (p->o->processor)
        p->o->isa = options_with_base(p->o->processor->isa);
    if (strcmp(g->value, "auto") == 0)
        p->o->isa = isa_all();
    else if (strcmp(g->value, "native") == 0)
        p->o->isa = options_native_isa();
    enum isa isa;
    if (isa_find(g->value, &isa) && !isa_is_of_device(isa))
        p->o->isa = options_with_base(isa);
    return p->o->isa || refuse_cpu(p, g->value);
}

static bool read_machine(struct parser *p, const struct given *g)
{
    int n;
    const struct machine *rows = machine_rows(&n);
    struct text known = {.t = p->t};
    p->o->machine = strcmp(g->value, "host") == 0 ? host_machine(p->t) : machine_find(g->value);
    for (int i = 0; i < n; i++)
        text_printf(&known, " %s", rows[i].text);
    return p->o->machine ||
           usage(p, "--machine: '%.100s' is not known; known are host%s", g->value, known.s);
}

static bool read_other(struct parser *p, const char *s)
{
    struct options *o = p->o;
    const char **word;
    size_t n;
    if (!split_words(p, s, &word, &n))
        return usage(p, "--other=%.200s: a quote is not closed", s);
    const char **all = mem_array(p->t, o->nother + n + 1, sizeof *all);
    ARRAY_COPY(all, o->other, o->nother);
    ARRAY_COPY(all + o->nother, word, n);
    o->other = all;
    o->nother += n;
    return true;
}

bool option_apply(struct parser *p, const struct given *g)
{
    struct options *o = p->o;
    const char *end;
    int64_t n;
    int k = 0;
    switch (g->id) {
    case OPTION_FORMAT:
        k = choice(option_rows[g->id].value, g->value);
        o->format = k == 0 ? FORMAT_ONNX : FORMAT_TG;
        return k >= 0 || bad_value(p, g);
    case OPTION_SHAPE:
        return read_shape(p, g->value) || bad_value(p, g);
    case OPTION_DIM:
        return read_dim(p, g->value) || bad_dim(p, g);
    case OPTION_STATE:
        VEC_PUSH(p->t, o->state, o->nstate, o->cap_state, g->value);
        return (strchr(g->value, '=') && g->value[0] != '=' &&
                g->value[strlen(g->value) - 1] != '=') ||
               bad_value(p, g);
    case OPTION_VALUE:
        VEC_PUSH(p->t, o->inner, o->ninner, o->cap_inner, g->value);
        return *g->value || bad_value(p, g);
    case OPTION_GRADIENT:
        VEC_PUSH(p->t, o->gradient, o->ngradient, o->cap_gradient, g->value);
        return *g->value || bad_value(p, g);
    case OPTION_LIBRARY:
        VEC_PUSH(p->t, o->library, o->nlibrary, o->cap_library, g->value);
        return (*g->value && strcmp(g->value, "-") != 0) || bad_value(p, g);
    case OPTION_LINK:
        VEC_PUSH(p->t, o->link, o->nlink, o->cap_link, g->value);
        return *g->value || bad_value(p, g);
    case OPTION_ENTRY:
        o->entry = g->value;
        return true;
    case OPTION_STEPS:
        if (!read_int(g->value, &end, 1, INT32_MAX, &n) || *end)
            return bad_value(p, g);
        o->steps = (int)n;
        return true;
    case OPTION_EXTERNAL_DIR:
        o->load.external_data_dir = g->value;
        return true;
    case OPTION_NO_EXTERNAL:
        o->load.no_external_data = true;
        return true;
    case OPTION_OUTPUT:
        o->output = g->value;
        return *g->value || usage(p, "option -o has an empty name; a path or - is expected");
    case OPTION_EMIT:
        return set_emit(p, g->value, "--emit");
    case OPTION_NAME:
        o->name = program_name(p->t, g->value);
        return strcmp(o->name, g->value) == 0 ||
               usage(p, "--name=%.100s is not a C identifier that can be used; '%s' could be",
                     g->value, o->name);
    case OPTION_WEIGHTS:
        k = choice(option_rows[g->id].value, g->value);
        o->weights = (enum weights_mode)(WEIGHTS_STRING + k);
        return k >= 0 || bad_value(p, g);
    case OPTION_VECTORS:
        k = choice(option_rows[g->id].value, g->value);
        o->vectors = (enum vectors_mode)(VECTORS_AUTO + k);
        return k >= 0 || bad_value(p, g);
    case OPTION_MAIN:
        o->main = g->value;
        return (*g->value && strcmp(g->value, "-") != 0) ||
               usage(p, "option --main has the value '%s'; a file is expected", g->value);
    case OPTION_WEIGHT_TYPE:
        k = choice(option_rows[g->id].value, g->value);
        o->weight_dtype = k == 1 ? DTYPE_BF16 : k == 2 ? DTYPE_I8 : DTYPE_VOID;
        return k >= 0 || bad_value(p, g);
    case OPTION_MATH:
        if (strrchr(g->value, '='))
            return read_unrounded(p, g);
        k = choice(option_rows[g->id].value, g->value);
        o->math = k == 1 ? DTYPE_TF32 : k == 2 ? DTYPE_BF16 : k == 3 ? DTYPE_F16 : DTYPE_VOID;
        return k >= 0 || bad_value(p, g);
    case OPTION_DEPFILE:
        o->depfile = true;
        return true;
    case OPTION_DEPFILE_NAME:
        o->depfile_name = g->value;
        return true;
    case OPTION_DEPFILE_TARGET:
    case OPTION_DEPFILE_QUOTED:
        VEC_PUSH(p->t, o->depfile_target, o->ndepfile_target, o->cap_depfile_target,
                 ((struct depfile_target){g->value, g->id == OPTION_DEPFILE_QUOTED}));
        return *g->value || usage(p, "option %s has an empty name; a target is expected",
                                  option_rows[g->id].spelling);
    case OPTION_DEPFILE_PHONY:
        o->depfile_phony = true;
        return true;
    case OPTION_TARGET:
        return set_target(p, g->value, "--target");
    case OPTION_CPU:
        return read_cpu(p, g);
    case OPTION_MACHINE:
        return read_machine(p, g);
    case OPTION_TRIPLE:
        o->triple = g->value;
        return (strspn(g->value, TRIPLE_LETTERS) == strlen(g->value) && strchr(g->value, '-') &&
                g->value[0] != '-') ||
               usage(p, "--triple=%.200s: a machine like aarch64-linux-gnu is expected", g->value);
    case OPTION_LEVEL:
        o->small = strcmp(g->value, "s") == 0;
        o->level = 2;
        if (o->small)
            return true;
        if (!read_int(g->value, &end, 0, 3, &n) || *end)
            return bad_value(p, g);
        o->level = (int)n;
        return true;
    case OPTION_NCHWC_BLOCK:
        k = choice(option_rows[g->id].value, g->value);
        o->nchwc_block = k == 0 ? 8 : 16;
        return k >= 0 || bad_value(p, g);
    case OPTION_THREADS:
        if (!read_int(g->value, &end, 1, MOST_THREADS, &n) || *end)
            return usage(p, "option --threads has the value '%.200s'; a number from 1 to %d is "
                            "expected", g->value, MOST_THREADS);
        o->threads = (int)n;
        return true;
    case OPTION_FAST_MATH:
        o->fast_math = true;
        return true;
    case OPTION_NO_WINOGRAD:
        o->no_winograd = true;
        return true;
    case OPTION_STRASSEN:
        o->strassen = true;
        return true;
    case OPTION_IMAGE:
        o->image = true;
        return true;
    case OPTION_HALF_STORAGE:
        o->half_storage = true;
        return true;
    case OPTION_NO_LOCALS:
        o->no_locals = true;
        return true;
    case OPTION_ERROR:
        return read_tolerance(g->value, &o->error) || bad_value(p, g);
    case OPTION_TUNE:
        o->tune = g->value;
        return *g->value || usage(p, "option --tune has an empty name; a file is expected");
    case OPTION_TRACE:
        o->trace = g->value;
        return *g->value || usage(p, "option --trace has an empty name; a file is expected");
    case OPTION_PASSES:
        o->passes = true;
        return true;
    case OPTION_BISECT:
        o->bisect = true;
        return true;
    case OPTION_WHY:
        o->why = true;
        return true;
    case OPTION_DEBUG_INFO:
        o->debug_info = true;
        return true;
    case OPTION_INPUT:
        return read_input(p, g->value) || bad_value(p, g);
    case OPTION_IMAGE_LAYOUT:
        return read_layout(p, g);
    case OPTION_OUT_DIR:
        o->out_dir = g->value;
        return true;
    case OPTION_DATA:
        option_apply_data(p, g);
        return true;
    case OPTION_PARAMS:
        o->params = g->value;
        return *g->value || usage(p, "option --params has an empty name; a file is expected");
    case OPTION_TRAIN:
    case OPTION_VALID:
    case OPTION_TARGET_COLUMN:
    case OPTION_LOSS:
    case OPTION_OPTIMIZER:
    case OPTION_EPOCHS:
    case OPTION_BATCH:
    case OPTION_LEARNING_RATE:
    case OPTION_SCHEDULE:
    case OPTION_CLIP:
    case OPTION_LOSS_SCALE:
    case OPTION_TRAIN_MEMORY:
    case OPTION_SEED:
    case OPTION_INIT:
    case OPTION_FREEZE:
    case OPTION_LORA:
    case OPTION_AUGMENT:
    case OPTION_EARLY_STOP:
    case OPTION_DETECT_NAN:
    case OPTION_LOG:
    case OPTION_DEVICES:
    case OPTION_PARTS:
    case OPTION_TIMEOUT:
    case OPTION_PLOT:
    case OPTION_CHECKPOINT:
    case OPTION_RESUME:
        return option_apply_training(p, g);
    case OPTION_KEEP:
        o->keep = g->value;
        return *g->value || usage(p, "option --keep has an empty name; a directory is expected");
    case OPTION_OTHER:
        return read_other(p, g->value);
    case OPTION_TG:
        o->tg = true;
        return true;
    case OPTION_CLEAR:
        o->clear = true;
        return true;
    case OPTION_FOLDER:
    case OPTION_SEAL:
    case OPTION_CHECK:
        o->folder = g->value;
        o->folder_use = g->id;
        return *g->value || bad_value(p, g);
    case OPTION_RTOL:
        return read_tolerance(g->value, &o->rtol) || bad_value(p, g);
    case OPTION_ATOL:
        return read_tolerance(g->value, &o->atol) || bad_value(p, g);
    case OPTION_JSON:
        o->json = true;
        return true;
    case OPTION_NO_CODE_CACHE:
        o->no_code_cache = true;
        return true;
    case OPTION_CACHE:
        return read_size(g->value, 0, &o->cache) || bad_value(p, g);
    case OPTION_WEIGHTS_BUDGET:
        return read_budget(g->value, &o->weight_limit) || bad_value(p, g);
    case OPTION_STACK:
        return read_size(g->value, 1, &o->stack) || bad_value(p, g);
    case OPTION_MAX_ARENA:
        return read_size(g->value, 1, &o->max_arena) || bad_value(p, g);
    case OPTION_MAX_FLASH:
        return read_size(g->value, 1, &o->max_flash) || bad_value(p, g);
    case OPTION_MAX_MEMORY:
        return read_size(g->value, 1, &o->max_memory) || bad_value(p, g);
    case OPTION_DIAGNOSTICS:
        k = choice(option_rows[g->id].value, g->value);
        o->diagnostics_json = k == 1;
        return k >= 0 || bad_value(p, g);
    case OPTION_COLOR:
        k = choice(option_rows[g->id].value, g->value);
        o->color = k == 1 || (k == 0 && o->color);
        return k >= 0 || bad_value(p, g);
    case OPTION_VERBOSE:
        o->verbose = true;
        return true;
    case OPTION_COMPLETION:
        if (choice(option_rows[g->id].value, g->value) < 0)
            return bad_value(p, g);
        o->shell = g->value;
        o->print = g->id;
        return true;
    case OPTION_HELP:
    case OPTION_VERSION:
    case OPTION_MAN:
        o->print = g->id;
        return true;
    case OPTION_COUNT:
        break;
    }
    TGC_BUG(p->t, "option %d is not applied", (int)g->id);
}
