/* api_model.c - tgc.h: models that run in this process.
 *
 * A model is an instance (instance.c), out of the cache (kept.c) or from a compile. All that
 * belongs to it is in the arena of a struct tgc, or held by it. That is the struct tgc in which the
 * cache was searched. After a compile it is a fresh one, and the compile's graph, schedule and
 * copies of weights are freed.
 */
#include "lib/lib.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <string.h>

/* Of one input or output: what the caller sees, and its sizes. */
struct port {
    tgc_tensor seen;
    int64_t shape[MAX_RANK];
    const char *symbol[MAX_RANK];
    bool is_set;
};

struct tgc_model {
    struct tgc *t;
    struct options o;               /* its threads alone */
    struct instance p;
    struct port *input, *output;
    bool is_prepared;               /* instance_prepare() has been called */
    struct sized *given;            /* [input_count + state_count]: of one call */
    int64_t *symbol;                /* [symbol_count], likewise */
    const char *message;
};

static void describe(struct port *port, const struct program_tensor *from)
{
    for (int i = 0; i < from->rank; i++) {
        port->shape[i] = from->dim[i].size;
        port->symbol[i] = from->dim[i].symbol;
    }
    port->seen = (tgc_tensor){.name = from->name,
                              .dtype = from->dtype,
                              .element_bytes = from->element_bytes,
                              .rank = from->rank,
                              .shape = port->shape,
                              .symbol = port->symbol};
}

static void describe_ports(struct tgc_model *m)
{
    const struct program_info *info = m->p.info;
    m->input = mem_array(m->t, (size_t)info->input_count + 1, sizeof *m->input);
    m->output = mem_array(m->t, (size_t)info->output_count + 1, sizeof *m->output);
    m->given = mem_array(m->t, (size_t)info->input_count + (size_t)info->state_count + 1,
                         sizeof *m->given);
    m->symbol = mem_array(m->t, (size_t)info->symbol_count + 1, sizeof *m->symbol);
    for (int i = 0; i < info->input_count; i++)
        describe(&m->input[i], &info->inputs[i]);
    for (int i = 0; i < info->output_count; i++)
        describe(&m->output[i], &info->outputs[i]);
}

/* Memory for tensors and the arena, once it is used. */
static bool prepare(struct tgc_model *m)
{
    m->is_prepared = m->is_prepared || (instance_allocate_inputs(m->t, &m->p) &&
                                        instance_prepare(m->t, &m->o, &m->p));
    return m->is_prepared;
}

/* No input has a value before the model is open. */
static bool read_nothing(struct tgc *t, struct options *o, const struct model *m, struct feed *f)
{
    (void)t;
    (void)o;
    (void)m;
    *f = (struct feed){0};
    return true;
}

/* In `home`, whose setjmp() is the caller's. */
static tgc_model *model_in(struct tgc *home, const struct instance *p, int threads)
{
    tgc_model *m = MEM_NEW(home, tgc_model);
    *m = (tgc_model){.t = home, .o.threads = threads, .p = *p, .message = ""};
    describe_ports(m);
    return m;
}

static tgc_model *model_apart(struct tgc *home, const struct instance *p, int threads)
{
    return setjmp(home->stop) == 0 ? model_in(home, p, threads) : NULL;
}

static void free_home(void *what) { tgc_free(*(struct tgc **)what); }

struct opened { tgc_model *made; struct held *home; };

/* The compile's instance in a struct tgc of its own, which t holds until it is held_forget()ed. */
static bool move_out(struct tgc *t, struct instance *p, int threads, struct opened *made)
{
    struct tgc **home = MEM_NEW(t, struct tgc *);
    made->home = held_add(t, free_home, home);
    *home = tgc_new(0);
    if (*home && instance_move(t, *home, p))
        made->made = model_apart(*home, p, threads);
    return made->made != NULL;
}

static void open_model(struct tgc *t, tgc_compiler *c, void *arg)
{
    struct opened *made = arg;
    struct options o;
    struct model m = {0};
    struct feed f;
    struct instance p;
    if (!api_options(t, c, COMMAND_RUN, NULL, "--target=llvm", &o) ||
        !instance_obtain(t, &o, &m, &f, read_nothing, &p) ||
        !instance_choose_entry(t, &o, false, &p))
        return;
    if (!m.schedule) {                               /* out of the cache: t holds little else */
        made->made = model_in(t, &p, o.threads);
    } else if (!move_out(t, &p, o.threads, made)) {
        t->exhausted = true;
        t->nerror++;
    }
}

/* The C library may keep what a compile has freed, a few times the model, for later. */
static void free_compile(struct tgc *t)
{
    tgc_free(t);
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

tgc_status tgc_open(tgc_compiler *c, tgc_model **m)
{
    struct opened opened = {0};
    struct tgc *kept;
    if (!m)
        return TGC_MISUSE;
    tgc_status status = api_call(c, open_model, &opened, &kept);
    *m = kept ? opened.made : NULL;
    if (kept && opened.home) {
        held_forget(opened.home);
        free_compile(kept);
    }
    return status;
}

void tgc_model_free(tgc_model *m)
{
    if (m)
        tgc_free(m->t);
}

const char *tgc_model_maker(const tgc_model *m) { return m ? m->p.made_by : NULL; }

const char *tgc_model_message(const tgc_model *m) { return m ? m->message : NULL; }

/* -------------------------------------------------------------------------------------- tensors */

size_t tgc_input_count(const tgc_model *m) { return m ? (size_t)m->p.info->input_count : 0; }

size_t tgc_output_count(const tgc_model *m) { return m ? (size_t)m->p.info->output_count : 0; }

const tgc_tensor *tgc_input(const tgc_model *m, size_t index)
{
    return index < tgc_input_count(m) ? &m->input[index].seen : NULL;
}

const tgc_tensor *tgc_output(const tgc_model *m, size_t index)
{
    return index < tgc_output_count(m) ? &m->output[index].seen : NULL;
}

const void *tgc_output_data(const tgc_model *m, size_t index)
{
    return index < tgc_output_count(m) ? m->p.output[index].data : NULL;
}

/* ---------------------------------------------------------------------------------------- calls */

/* The first message of a call that fails is what it says. */
static tgc_status finish(tgc_model *m)
{
    tgc_status status = api_status(m->t);
    if (status != TGC_OK)
        m->message = m->t->ndiag ? m->t->diag[0].message : tgc_status_text(status);
    return status;
}

static void begin(tgc_model *m)
{
    m->t->ndiag = m->t->nerror = 0;
    m->t->bug = m->t->exhausted = false;
}

/* Whether the input may have this shape, whatever the others have. */
static bool check_shape(tgc_model *m, int index, const int64_t *shape)
{
    const struct program_info *info = m->p.info;
    const struct program_tensor *want = &info->inputs[index];
    for (int i = 0; i < info->input_count; i++)
        m->given[i] = (struct sized){i == index ? shape : NULL, NULL};
    for (int i = 0; i < want->rank; i++)
        if (want->dim[i].symbol ? shape[i] < 0 || shape[i] > want->dim[i].size
                                : shape[i] != want->dim[i].size)
            return diag_error(m->t, NULL, "the input '%.100s': size %d is %lld, %s%lld is expected",
                              want->name, i, (long long)shape[i],
                              want->dim[i].symbol ? "at most " : "", (long long)want->dim[i].size);
    return fit_inputs(m->t, info, m->given, false, m->symbol);
}

/* What is refused changes nothing. */
static bool set_input(tgc_model *m, int index, const void *data, const int64_t *given)
{
    const struct program_tensor *want = &m->p.info->inputs[index];
    int64_t shape[MAX_RANK] = {0};
    for (int i = 0; i < want->rank; i++)
        shape[i] = given ? given[i] : want->dim[i].size;
    if (!check_shape(m, index, shape) || !prepare(m))
        return false;
    struct array *v = &m->p.input[index];
    v->nelem = 1;
    for (int i = 0; i < want->rank; i++) {
        v->dim[i] = shape[i];
        v->nelem *= (size_t)shape[i];
    }
    v->nbytes = v->nelem * dtype_nbytes(v->dtype);
    if (v->nbytes)
        memcpy(v->data, data, v->nbytes);
    m->input[index].is_set = true;
    return true;
}

tgc_status tgc_set_input(tgc_model *m, size_t index, const void *data, const int64_t *shape)
{
    if (index >= tgc_input_count(m) || !data)
        return TGC_MISUSE;
    begin(m);
    if (setjmp(m->t->stop) == 0)
        set_input(m, (int)index, data, shape);
    tgc_status status = finish(m);
    return status == TGC_FAILED ? TGC_MISUSE : status;
}

/* The run-time sizes are those of the inputs, which have to agree. */
static bool bind_sizes(tgc_model *m)
{
    const struct program_info *info = m->p.info;
    for (int i = 0; i < info->input_count; i++) {
        m->given[i].dim = NULL;
        if (!instance_has(&m->p, false, i))
            continue;
        if (!m->input[i].is_set)
            return diag_error(m->t, NULL, "the input '%.100s' has not been set",
                              info->inputs[i].name);
        m->given[i].dim = m->p.input[i].dim;
    }
    if (!fit_inputs(m->t, info, m->given, true, m->symbol))
        return false;
    for (int i = 0; i < info->symbol_count; i++)
        if (m->symbol[i] >= 0 && info->symbols[i].offset != PROGRAM_NO_OFFSET) {
            m->p.symbol[i] = m->symbol[i];
            memcpy((char *)m->p.inputs + info->symbols[i].offset, &m->symbol[i],
                   sizeof m->symbol[i]);
        }
    return true;
}

static void run(tgc_model *m)
{
    if (!prepare(m) || !bind_sizes(m) || !instance_run(m->t, &m->p))
        return;
    for (int i = 0; i < m->p.info->output_count; i++)
        if (instance_has(&m->p, true, i))
            memcpy(m->output[i].shape, m->p.output[i].dim, sizeof m->output[i].shape);
}

tgc_status tgc_run(tgc_model *m)
{
    if (!m)
        return TGC_MISUSE;
    begin(m);
    if (m->p.info->entry_count && m->p.entry < 0) {
        m->message = "the model has several entries: tgc_run_entry() runs one";
        return TGC_MISUSE;
    }
    if (setjmp(m->t->stop) == 0)
        run(m);
    return finish(m);
}

size_t tgc_entry_count(const tgc_model *m) { return m ? (size_t)m->p.info->entry_count : 0; }

tgc_entry tgc_entry_get(const tgc_model *m, size_t index)
{
    if (index >= tgc_entry_count(m))
        return (tgc_entry){0};
    const struct program_entry *x = &m->p.info->entries[index];
    return (tgc_entry){x->name, (size_t)x->input, (size_t)x->input_count, (size_t)x->output,
                       (size_t)x->output_count};
}

tgc_status tgc_run_entry(tgc_model *m, size_t index)
{
    if (index >= tgc_entry_count(m))
        return TGC_MISUSE;
    int chosen = m->p.entry;
    m->p.entry = (int)index;
    tgc_status status = tgc_run(m);
    m->p.entry = chosen;
    return status;
}

tgc_status tgc_reset(tgc_model *m)
{
    if (!m)
        return TGC_MISUSE;
    bool has_run = m->p.reset && m->is_prepared;
    return !has_run || m->p.reset(m->p.model) == PROGRAM_OK ? TGC_OK : TGC_DEFECT;
}

/* --------------------------------------------------------------------------------- as functions */

tgc_status tgc_model_functions(const tgc_model *m, tgc_functions *functions)
{
    if (!m || !functions)
        return TGC_MISUSE;
    *functions = (tgc_functions){.info = m->p.info,
                                 .run = m->p.run,
                                 .close = m->p.close,
                                 .strerror = m->p.strerror,
                                 .reset = m->p.reset,
                                 .save = m->p.save,
                                 .restore = m->p.restore};
    return TGC_OK;
}

int tgc_model_init(const tgc_model *m, void **self, void *arena, size_t nbytes,
                   const void *options)
{
    struct program_run_options o = {0};
    if (!m || !self || !arena)
        return PROGRAM_NULL_ARGUMENT;
    if (options)
        o = *(const struct program_run_options *)options;
    else
        o.threads = m->o.threads;
    if (!o.weights) {
        o.weights = m->p.weights;
        o.weights_bytes = m->p.info->weights_bytes;
    }
    return m->p.code ? llvm_program_init(m->p.code, self, arena, nbytes, &o)
                     : m->p.init(self, arena, nbytes, &o);
}
