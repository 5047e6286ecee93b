/* model.c - the first steps of most commands: from the file to a graph, and to a schedule. */
#include "frontend/library.h"
#include "lib/lib.h"
#include "passes/analysis/quantization.h"

#include <string.h>

void model_name(struct tgc *t, const char *path, struct model *m)
{
    *m = (struct model){.tgc = t};
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

static enum model_format format_of(const struct options *o, const char *base)
{
    if (o->format != FORMAT_BY_NAME)
        return o->format;
    const char *dot = strrchr(base, '.');
    return dot && strcmp(dot, ".tg") == 0 ? FORMAT_TG : FORMAT_ONNX;
}

/* What the reader of a text gives back to its callers. */
struct importing { struct tgc *t; const struct options *o; struct model *m; };

static struct importing *importing_new(struct tgc *t, const struct options *o, struct model *m)
{
    struct importing *x = MEM_NEW(t, struct importing);
    *x = (struct importing){t, o, m};
    return x;
}

static void note_file(void *user, const char *path)
{
    struct model *m = ((const struct importing *)user)->m;
    for (int i = 0; i < m->ntext_file; i++)
        if (strcmp(m->text_file[i], path) == 0)
            return;
    VEC_PUSH(m->tgc, m->text_file, m->ntext_file, m->cap_text_file, path);
}

static void note_weight(void *user, struct buffer *b, const char *begin, const char *end)
{
    struct model *m = ((const struct importing *)user)->m;
    VEC_PUSH(m->tgc, m->weight_text, m->nweight_text, m->cap_weight_text,
             ((struct weight_text){b, begin, end}));
}

static bool is_filled(const GraphProto *g, const char *name)
{
    for (size_t k = 0; k < g->n_initializer; k++)
        if (strcmp(g->initializer[k]->name, name) == 0)
            return true;
    return false;
}

/* An ONNX file that a text imports. */
struct imported { struct onnx_model *onnx; const char *path; };

static void *import_model(void *user, const char *path, const void *bytes, size_t nbytes)
{
    const struct importing *x = user;
    struct imported *i = MEM_NEW(x->t, struct imported);
    x->m->imports = true;
    i->path = path;
    i->onnx = onnx_load_bytes(x->t, path, bytes, nbytes, &x->o->load);
    return i->onnx ? i : NULL;
}

/* Lowered for operands of these sizes, by position. */
static struct graph *lower_import(void *user, void *imported, struct uop *const *operand, int n)
{
    const struct importing *x = user;
    const struct imported *i = imported;
    const GraphProto *g = i->onnx->proto->graph;
    struct onnx_shape_option *shape = mem_array(x->t, (size_t)n + 1, sizeof *shape);
    int nshape = 0;
    for (size_t k = 0; k < g->n_input && nshape < n; k++) {
        if (is_filled(g, g->input[k]->name))
            continue;
        const struct uop *u = operand[nshape];
        struct onnx_shape_option *s = &shape[nshape++];
        *s = (struct onnx_shape_option){.input = g->input[k]->name, .ndim = u->ndim};
        for (int a = 0; a < u->ndim; a++)
            s->dim[a] = u->dim[a]->arg.i;
    }
    struct onnx_graph_options options = {
        .shape = shape, .nshape = nshape, .library = x->m->library,
        .keep_scalars = x->o->ngradient > 0};
    return onnx_lower(x->t, i->onnx, &options);
}

static bool read_text(struct tgc *t, const struct options *o, struct model *m,
                      const struct tg_dimension *dim, int ndim)
{
    struct tg_read_options read = {.dim = dim,
                                   .ndim = ndim,
                                   .external_data_dir = o->load.external_data_dir,
                                   .no_external_data = o->load.no_external_data,
                                   .inner = o->inner,
                                   .ninner = o->ninner,
                                   .keep_scalars = o->ngradient > 0,
                                   .on_file = note_file,
                                   .on_weight = note_weight,
                                   .user = importing_new(t, o, m),
                                   .library = m->library,
                                   .import = import_model,
                                   .lower = lower_import};
    m->ntext_file = m->nweight_text = 0;
    passes_init(t);
    m->graph = tg_read_bytes(t, strcmp(o->model, "-") ? o->model : "<stdin>", m->text,
                             m->text_nbytes, &read);
    return m->graph != NULL;
}

static bool shape_mismatch(struct tgc *t, const struct options *o,
                           const struct onnx_shape_option *s, const char *why)
{
    return diag_error(t, &(struct place){.file = o->model}, "--shape %.100s=...: %s", s->input,
                      why);
}

/* Reads the text again if options say more about its dimensions. */
static bool settle_text(struct tgc *t, const struct options *o, struct model *m)
{
    int ninput, n = 0;
    struct model_input *input = model_inputs(t, o, m, &ninput);
    size_t most = (size_t)o->ndim;
    for (int i = 0; i < o->nshape; i++)
        most += (size_t)o->shape[i].ndim;
    struct tg_dimension *dim = mem_array(t, most + 1, sizeof *dim);
    if (o->nlist)
        return diag_error(t, &(struct place){.file = o->model},
                          "--shape %.100s=...: a text graph has no sequences or optionals",
                          o->list[0].input);
    for (int i = 0; i < o->ndim; i++)
        dim[n++] = (struct tg_dimension){o->dim[i].name, o->dim[i].min, o->dim[i].max};
    for (int i = 0; i < o->nshape; i++) {
        int k = 0;
        while (k < ninput && strcmp(input[k].name, o->shape[i].input) != 0)
            k++;
        if (k == ninput)
            return shape_mismatch(t, o, &o->shape[i],
                                  mem_printf(t, "the graph has no such input; it has %s",
                                             names_of_inputs(t, input, ninput)));
        if (input[k].ndim != o->shape[i].ndim)
            return shape_mismatch(
                t, o, &o->shape[i],
                mem_printf(t, "the input has rank %d, not %d", input[k].ndim, o->shape[i].ndim));
    }
    if (!fit_shape_options(t, o, m->graph, dim, &n))
        return false;
    return n == 0 || read_text(t, o, m, dim, n);
}

/* Large graphs need memory for their lowered form: this much per node, for nodes that were read and
 * checked, on top of the default limit. */
static void allow_for_nodes(struct tgc *t, const struct options *o, size_t nnode)
{
    const size_t each = 48 << 10, most = (size_t)2 << 30;
    size_t more = nnode > most / each ? most : nnode * each;
    if (!o->max_memory && t->mem_limit < SIZE_MAX - more)
        t->mem_limit += more;
}

static bool load_libraries(struct tgc *t, const struct options *o, struct model *m)
{
    struct tg_library_options options = {o->load.no_external_data, note_file,
                                         importing_new(t, o, m)};
    m->library = o->nlibrary ? tg_library_new(t, &options) : NULL;
    for (int i = 0; i < o->nlibrary; i++)
        if (!tg_library_read(t, m->library, o->library[i]))
            return false;
    return true;
}

bool model_load(struct tgc *t, const struct options *o, struct model *m)
{
    double start = clock_seconds();
    model_name(t, o->model, m);
    t->debug = o->debug;
    t->noopt = o->level == 0;
    if (o->opt_limit >= 0)
        limit_set(t, o->opt_limit);
    t->fast_math = o->fast_math;
    t->no_winograd = o->no_winograd;
    t->strassen = o->strassen;
    t->image = o->image;
    t->half_storage = o->half_storage;
    t->no_locals = o->no_locals;
    t->error_limit = o->error;
    t->weight_limit = o->weight_limit;
    t->machine = o->small ? machine_with_thrift(t, o->machine, THRIFT_SMALLEST) : o->machine;
    t->cache_nbytes = o->cache;
    if (o->cache > 0 && o->cache != CACHE_OF_MACHINE)
        t->machine = machine_with_l2(t, machine_of(t), o->cache);
    t->weight_dtype = o->weight_dtype;
    t->math = o->math;
    t->unrounded = o->unrounded;
    t->nunrounded = o->nunrounded;
    if (!load_libraries(t, o, m))
        return false;
    if (format_of(o, m->base) == FORMAT_TG) {
        m->text_nbytes = o->nbytes;
        m->text = o->bytes ? o->bytes : tg_load(t, o->model, &m->text_nbytes);
        if (!m->text || !read_text(t, o, m, NULL, 0))
            return false;
    } else if (!(m->onnx = o->bytes ? onnx_load_bytes(t, o->model, o->bytes, o->nbytes, &o->load)
                                    : onnx_load(t, o->model, &o->load))) {
        return false;
    } else {
        allow_for_nodes(t, o, m->onnx->nsite);
    }
    report_stage(t, "load", start);
    return true;
}

static struct model_input input_of_graph(const struct uop *u)
{
    struct model_input v = {.name = ((const struct buffer *)u->arg.p)->name,
                            .dtype = u->dtype,
                            .has_shape = true,
                            .ndim = u->ndim};
    for (int a = 0; a < u->ndim; a++) {
        if (!uop_const_int(u->dim[a], &v.dim[a]))
            v.dim[a] = u->dim[a]->op == OP_VAR ? -1 : -2;
        v.symbol[a] = u->dim[a]->op == OP_VAR ? ((const struct var *)u->dim[a]->arg.p)->name : NULL;
    }
    return v;
}

/* The tensors of a sequence or an optional have the type inside it. */
static struct model_input input_of_onnx(const ValueInfoProto *p)
{
    struct model_input v = {.name = p->name};
    const TypeProto *inner = p->type;
    if (inner && inner->value_case == TYPE_PROTO__VALUE_OPTIONAL_TYPE)
        inner = inner->optional_type->elem_type;
    if (inner && inner->value_case == TYPE_PROTO__VALUE_SEQUENCE_TYPE)
        inner = inner->sequence_type->elem_type;
    const TypeProto__Tensor *type =
        inner && inner->value_case == TYPE_PROTO__VALUE_TENSOR_TYPE ? inner->tensor_type : NULL;
    const TensorShapeProto *shape = type ? type->shape : NULL;
    v.dtype = type ? dtype_from_onnx(type->elem_type) : DTYPE_VOID;
    v.has_shape = shape != NULL;
    v.ndim = shape ? (int)shape->n_dim : 0;
    for (int a = 0; a < v.ndim; a++) {
        const TensorShapeProto__Dimension *d = shape->dim[a];
        bool sized = d->value_case == TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE &&
                     d->dim_value >= 0;
        v.dim[a] = sized ? d->dim_value : -1;
        v.symbol[a] = onnx_dim_is_named(d) ? d->dim_param : NULL;
    }
    return v;
}

struct model_value *model_border(struct tgc *t, const struct model *m, bool outputs, int *n)
{
    if (m->facts) {
        *n = m->facts->nborder[outputs];
        return m->facts->border[outputs];
    }
    const GraphProto *g = m->onnx ? m->onnx->proto->graph : NULL;
    size_t count =
        g ? (outputs ? g->n_output : g->n_input)
          : (size_t)(outputs ? graph_count_outputs(m->graph) : graph_count_inputs(m->graph));
    struct model_value *v = mem_array(t, count + 1, sizeof *v);
    *n = 0;
    for (size_t i = 0; i < count; i++) {
        if (!g) {
            const struct uop *u = outputs ? m->graph->output[i].value : m->graph->input[i];
            v[*n].name = outputs ? m->graph->output[i].name
                                 : ((const struct buffer *)u->arg.p)->name;
            v[*n].dtype = u->dtype;
        } else {
            const ValueInfoProto *p = outputs ? g->output[i] : g->input[i];
            if (!outputs && is_filled(g, p->name))
                continue;
            const TypeProto *type = onnx_element_type(p->type, &v[*n].is_optional,
                                                      &v[*n].is_sequence);
            v[*n].name = p->name;
            v[*n].dtype = type ? dtype_from_onnx(type->tensor_type->elem_type) : DTYPE_VOID;
        }
        ++*n;
    }
    return v;
}

static const struct onnx_list_option *find_list(const struct options *o, const char *name)
{
    for (int i = 0; i < o->nlist; i++)
        if (strcmp(o->list[i].input, name) == 0)
            return &o->list[i];
    return NULL;
}

/* The inputs as the model declares them: a sequence is one. */
static struct model_input *declared_inputs(struct tgc *t, const struct model *m, int *n)
{
    const GraphProto *g = m->onnx ? m->onnx->proto->graph : NULL;
    size_t count = g ? g->n_input : (size_t)graph_count_inputs(m->graph);
    struct model_input *input = mem_array(t, count + 1, sizeof *input);
    *n = 0;
    for (size_t i = 0; i < count; i++)
        if (!g || !is_filled(g, g->input[i]->name))
            input[(*n)++] = g ? input_of_onnx(g->input[i]) : input_of_graph(m->graph->input[i]);
    return input;
}

struct model_input *model_inputs(struct tgc *t, const struct options *o,
                                 const struct model *m, int *n)
{
    int ndeclared = m->facts ? m->facts->ninput : 0;
    const struct model_input *declared =
        m->facts ? m->facts->input : declared_inputs(t, m, &ndeclared);
    struct model_input *input = NULL;
    size_t cap = 0;
    *n = 0;
    for (int i = 0; i < ndeclared; i++) {
        const struct onnx_list_option *list = find_list(o, declared[i].name);
        if (!list)
            VEC_PUSH(t, input, *n, cap, declared[i]);
        for (int k = 0; list && k < list->count; k++) {
            struct model_input item = declared[i];
            item.name = mem_printf(t, "%s[%d]", declared[i].name, k);
            VEC_PUSH(t, input, *n, cap, item);
        }
    }
    return input;
}

int model_count_of_entry(const struct options *o, const struct model *m, bool outputs, int total,
                         int *from)
{
    const struct graph *g = m->graph;
    *from = 0;
    for (int i = 0; g && o->entry && i < g->nentry; i++)
        if (strcmp(g->entry[i].name, o->entry) == 0) {
            *from = outputs ? g->entry[i].output : g->entry[i].input;
            return outputs ? g->entry[i].noutput : g->entry[i].ninput;
        }
    return total;
}

struct model_facts *model_facts(struct tgc *t, const struct model *m)
{
    struct model_facts *f = MEM_NEW(t, struct model_facts);
    f->input = declared_inputs(t, m, &f->ninput);
    for (int outputs = 0; outputs < 2; outputs++)
        f->border[outputs] = model_border(t, m, outputs, &f->nborder[outputs]);
    return f;
}

struct model_input *model_declared_outputs(struct tgc *t, const struct model *m, int *n)
{
    const GraphProto *g = m->onnx ? m->onnx->proto->graph : NULL;
    struct model_input *output = mem_array(t, (g ? g->n_output : 0) + 1, sizeof *output);
    *n = g ? (int)g->n_output : 0;
    for (int i = 0; i < *n; i++)
        output[i] = input_of_onnx(g->output[i]);
    return output;
}

static void report_kernels(struct tgc *t, const struct schedule *s)
{
    struct text x = {.t = t};
    if (t->debug < 1)
        return;
    text_printf(&x, "%d kernels, arena %zu bytes, weights %zu bytes\n", s->nkernel,
                s->arena_nbytes, s->weight_nbytes);
    for (int i = 0; i < s->nkernel && t->debug >= 2; i++) {
        const struct kernel *k = s->kernel[i];
        text_printf(&x, "%4d %-32s %10.3g FLOP %10.3g bytes  %s\n", i, k->name, k->flop,
                    k->nbytes, k->title ? k->title : "");
    }
    report_text(t, x.s);
}

/* What --state keeps is no output, whoever asks for it. */
static bool check_states_kept(struct tgc *t, const struct options *o)
{
    for (int i = 0; i < o->ninner; i++)
        for (int k = 0; k < o->nstate; k++) {
            size_t n = strlen(o->inner[i]);
            if (strncmp(o->state[k], o->inner[i], n) == 0 && o->state[k][n] == '=')
                return diag_error(
                    t, &(struct place){.file = o->model},
                    "--value %.100s: it is no output, but the state of --state %.200s", o->inner[i],
                    o->state[k]);
        }
    return true;
}

static bool add_gradients(struct tgc *t, const struct options *o, struct graph *g)
{
    struct gradient_options gradient = {.of = o->gradient,
                                        .n = o->ngradient,
                                        .state = o->state,
                                        .nstate = o->nstate,
                                        .file = o->model};
    bool ok = gradient_outputs(t, g, &gradient);
    graph_settle(t, g, false);
    return ok;
}

/* Of the lines in a report that passes changed, at most. */
enum { LOG_NBYTES = 4 << 20 };

bool model_lower(struct tgc *t, const struct options *o, struct model *m)
{
    double start = clock_seconds();
    struct onnx_graph_options graph_options = {.dim = o->dim,
                                               .ndim = o->ndim,
                                               .shape = o->shape,
                                               .nshape = o->nshape,
                                               .list = o->list,
                                               .nlist = o->nlist,
                                               .state = o->state,
                                               .nstate = o->nstate,
                                               .inner = o->inner,
                                               .ninner = o->ninner,
                                               .keep_scalars = o->ngradient > 0,
                                               .library = m->library,
                                               .value = o->value,
                                               .nvalue = o->nvalue,
                                               .trains = o->command == COMMAND_TRAIN ||
                                                         o->training.emits,
                                               .draw = m->draw,
                                               .nchwc_block = o->nchwc_block};
    passes_init(t);
    if (o->records)
        m->log = pass_log_new(t, LOG_NBYTES);
    if (!check_states_kept(t, o))
        return false;
    if (m->onnx)
        m->graph = onnx_lower(t, m->onnx, &graph_options);
    else if (!settle_text(t, o, m))
        return false;
    if (!m->graph || t->nerror || !add_gradients(t, o, m->graph))
        return false;
    report_stage(t, "lower to UOps", start);
    return true;
}

/* Reads the file of --tune. Candidates are noted if someone asks for reasons. */
static bool read_tuning(struct tgc *t, const struct options *o)
{
    enum { ALTERNATIVES = 4 };
    if (t->tuning || (!o->tune && !o->why))
        return true;                                  /* tgc tune has its own */
    struct tuning *tuning = MEM_NEW(t, struct tuning);
    size_t n;
    const char *text = o->tune ? tg_load(t, o->tune, &n) : NULL;
    tuning->width = o->why ? ALTERNATIVES : 1;
    tuning->compares = o->why;
    if (o->tune && (!text || !tune_read(t, o->tune, text, n, tuning)))
        return false;
    t->tuning = tuning;
    return true;
}

/* The instruction sets that kernels have variants for: files for all of them, a run here for what
 * its code uses, by LLVM or, where that cannot be, by the C compiler. Keys of tune files depend on
 * the layout, which the widest set decides: so what has choices of them, or measures them, is
 * scheduled as a file is. */
static isa_set instruction_sets(const struct tgc *t, const struct options *o)
{
    bool runs =
        o->command == COMMAND_RUN || o->command == COMMAND_VERIFY || o->command == COMMAND_BENCH ||
        o->command == COMMAND_TRAIN;
    bool by_llvm = o->target == TARGET_LLVM,
         here = runs && (!t->tuning || (o->why && !o->tune)) && (by_llvm || o->any_target);
    isa_set set = isa_of_triple(o->triple, o->isa ? o->isa
                                           : here ? options_native_isa()
                                                  : isa_all());
    bool asks = o->command == COMMAND_COMPILE && !o->processor &&
                (o->emit == EMIT_OBJECT || o->emit == EMIT_SHARED || o->emit == EMIT_ARCHIVE);
    return by_llvm         ? llvm_isa(o->triple, set, asks)
           : o->any_target ? set | llvm_isa(NULL, set, false)
                           : set;
}

/* The most work-items of a kernel on a device. */
enum { DEVICE_PARTS = 64 };

bool model_optimize(struct tgc *t, const struct options *o, const char *name, struct model *m)
{
    struct compile_options compile_options = {
        .noopt = o->level == 0, .level = o->level, .threads = o->threads,
        .name = name};
    if (backend_is_of_device(backend_find(target_name(o->target)))) {
        compile_options.on_device = true;
        compile_options.device = o->device ? o->device : device_default(target_name(o->target));
        compile_options.architectures = o->device ? o->architectures : NULL;
        compile_options.by_llvm =
            o->emit != EMIT_CU &&
            backend_is_by_llvm(backend_find(target_name(o->target)), t, o->emit == EMIT_LL);
        if (!compile_options.device->is_processor)
            compile_options.threads = DEVICE_PARTS;
        compile_options.isa = 1u << ISA_GENERIC | 1u << compile_options.device->isa;
    }
    if (!read_tuning(t, o))
        return false;
    if (!compile_options.on_device)
        compile_options.isa = instruction_sets(t, o);
    if (o->passes)
        m->record = mem_array(t, (size_t)pass_count(), sizeof *m->record);
    compile_options.record = m->record;
    compile_options.log = m->log;
    double start = clock_seconds();
    graph_settle(t, m->graph, true);
    if (!state_apply(t, m->graph, o->state, o->nstate, o->model))
        return false;
    quantization_find(t, m->graph);
    m->root = graph_roots(t, m->graph, &m->nroot);
    m->schedule = passes_run(t, m->graph, &compile_options);
    if (!m->schedule || t->nerror ||
        (t->tuning && !tune_check(t, t->tuning, compile_options.isa)))
        return false;
    report_stage(t, "schedule", start);
    report_kernels(t, m->schedule);
    return program_check_externals(t, m->schedule, name) &&
           (!o->stack || program_check_stack(t, m->schedule, o->stack)) &&
           info_weights_check(t, m->schedule, &o->weight_limit) &&
           budget_check(t, o, name, m->schedule);
}

bool model_schedule(struct tgc *t, const struct options *o, const char *name, struct model *m)
{
    return model_lower(t, o, m) && model_optimize(t, o, name, m);
}

const char *const *model_files(struct tgc *t, const struct options *o, const struct model *m,
                               int *n)
{
    if (m->facts) {
        *n = m->facts->nfile;
        return m->facts->file;
    }
    int nexternal = 0;
    const char *const *external = m->onnx ? onnx_external_files(m->onnx, &nexternal) : NULL;
    size_t most = (size_t)(nexternal + m->ntext_file + o->nlibrary + o->nlink);
    const char **file = mem_array(t, most + 1, sizeof *file);
    *n = 0;
    for (int i = 0; i < nexternal; i++)
        file[(*n)++] = external[i];
    for (int i = 0; i < o->nlibrary; i++)
        file[(*n)++] = o->library[i];
    for (int i = 0; i < o->nlink; i++)
        file[(*n)++] = o->link[i];
    for (int i = 0; i < m->ntext_file; i++)
        file[(*n)++] = m->text_file[i];
    return file;
}

void model_facts_add_files(struct model_facts *f, const struct options *o, const struct model *m)
{
    f->file = model_files(m->tgc, o, m, &f->nfile);
}

void model_protect_files(const struct options *o, const struct model *m, struct outputs *files)
{
    int nfile;
    const char *const *file = model_files(m->tgc, o, m, &nfile);
    outputs_protect(files, o->model);
    outputs_protect(files, o->tune);
    for (int i = 0; i < nfile; i++)
        outputs_protect(files, file[i]);
    for (int i = 0; i < o->ninput; i++)
        outputs_protect(files, o->input[i].path);
}

struct program_options model_program_options(const struct options *o, const struct model *m,
                                             const char *name)
{
    return (struct program_options){
        .name = name,
        .backend = backend_find(target_name(o->target)),
        .model = m->base,
        .producer = "tgc " TGC_VERSION,
        .weights = o->weights,
        .vectors_mode = o->vectors,
        .small = o->small && o->command == COMMAND_COMPILE,
        .architectures = o->device ? o->architectures : NULL,
        .only_kernels =
            o->command == COMMAND_COMPILE && (o->emit == EMIT_CU || o->emit == EMIT_CL ||
                                              o->emit == EMIT_METAL || o->emit == EMIT_HIP),
    };
}
