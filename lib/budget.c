/* budget.c - --max-arena and --max-flash: a model that takes more is refused, with what takes it
 * and with the options that take less.
 *
 * No option's effect is guessed: the whole model is compiled once more with each of them, in memory
 * of its own, and then with all that helped, if none is enough. So an error takes some times as
 * long as a compile. A training's step has --train-memory and --batch, and is not tried.
 */
#include "backends/program/program.h"
#include "lib/lib.h"

#include <stdlib.h>
#include <string.h>

enum { LARGEST = 3, CHANGES = 5 };

/* ---------------------------------------------------------------------------- what takes memory */

size_t budget_arena_nbytes(struct tgc *t, const struct schedule *s)
{
    size_t n;
    if (!s->on_device)
        return program_arena_bytes(t, s);
    return size_add(s->arena_nbytes, s->state_nbytes, &n) ? n : SIZE_MAX;
}

static const struct kernel *kernel_that_stores(const struct schedule *s, const struct buffer *b)
{
    for (int i = 0; i < s->nkernel; i++) {
        const struct kernel *k = s->kernel[i];
        for (int j = 0; j < k->noutput; j++)
            if (buffer_root(k->buffer[j]) == b)
                return k;
        for (int j = 0; j < k->nscratch; j++)
            if (k->scratch[j] == b)
                return k;
    }
    return NULL;
}

static void put_kernel(struct text *out, const struct kernel *k)
{
    text_puts(out, k->name);
    if (k->title && *k->title)
        text_printf(out, ", %.80s", k->title);
}

void budget_put_tensor(struct text *out, const struct schedule *s, const struct buffer *b)
{
    const struct kernel *by = kernel_that_stores(s, b);
    text_printf(out, "%s%s", out->n ? "; " : "", dtype_name(b->dtype));
    text_dims(out, b->dim, b->ndim, "[", "]");
    text_printf(out, " (%zu bytes)%s", b->placed > b->nbytes ? b->placed : b->nbytes,
                b->kind == BUFFER_SCRATCH ? ", scratch" : "");
    if (by) {
        text_puts(out, " of ");
        put_kernel(out, by);
    }
}

static const char *largest_tensors(struct tgc *t, const struct schedule *s)
{
    struct text out = {.t = t};
    for (int i = 0; i < s->nlive && i < LARGEST; i++)
        budget_put_tensor(&out, s, s->live[i]);
    return out.s ? out.s : "none";
}

static const char *largest_weights(struct tgc *t, const struct schedule *s)
{
    struct text out = {.t = t};
    bool *told = mem_array(t, (size_t)s->nweight + 1, sizeof *told);
    for (int n = 0; n < LARGEST; n++) {
        int best = -1;
        for (int i = 0; i < s->nweight; i++)
            if (!told[i] && !s->weight[i]->weight.same &&
                (best < 0 || s->weight[i]->nbytes > s->weight[best]->nbytes))
                best = i;
        if (best < 0)
            break;
        told[best] = true;
        info_put_weight(&out, s->weight[best]);
    }
    return out.s ? out.s : "none";
}

/* --------------------------------------------------------------------------- what would help */

/* An option, and whether it can change anything. */
struct change {
    const char *text;
    void (*apply)(struct options *o);
    bool applies;
};

static void apply_small(struct options *o)
{
    o->level = 2;
    o->small = true;
}

static void apply_no_error(struct options *o) { o->error = 0; }
static void apply_int8(struct options *o) { o->weight_dtype = DTYPE_I8; }

static void apply_portable(struct options *o)
{
    o->isa = 1u << isa_portable();
    o->machine = o->machine ? o->machine : machine_find("small");
}

static void apply_dims(struct options *o) { (void)o; }      /* as in `dim` */

static bool is_of_input(const struct schedule *s, const struct var *v)
{
    for (int i = 0; i < s->ninput; i++)
        for (int a = 0; a < s->input[i]->ndim; a++) {
            const struct uop *d = s->input[i]->dim[a];
            if (d->op == OP_VAR && d->arg.p == v)
                return true;
        }
    return false;
}

/* Dimensions of inputs at their least, of 1 at least; *n of them. Sets *text: "--dim B=1". */
static const struct onnx_dim_option *least_dims(struct tgc *t, const struct schedule *s, int *n,
                                                const char **text)
{
    struct text x = {.t = t};
    struct onnx_dim_option *dim = mem_array(t, (size_t)s->nvar + 1, sizeof *dim);
    *n = 0;
    for (int i = 0; i < s->nvar; i++) {
        const struct var *v = s->var[i];
        int64_t least = v->min > 1 ? v->min : 1;
        if (v->max <= least || !is_of_input(s, v))
            continue;
        dim[(*n)++] = (struct onnx_dim_option){v->name, least, least};
        put_dim_option(&x, v->name, mem_printf(t, "%lld", (long long)least));
    }
    *text = x.s ? x.s + 1 : NULL;                     /* without the first blank */
    return dim;
}

/* The model compiled with other options. */
struct trial {
    struct tgc *t;
    struct options o;
    const char *name;
    struct model m;
    bool ok;
    size_t arena, flash;
};

/* x is not a local of the function that calls setjmp. */
static void run_trial(struct trial *x)
{
    if (setjmp(x->t->stop) == 0)
        x->ok = model_load(x->t, &x->o, &x->m) &&
                model_schedule(x->t, &x->o, x->name, &x->m);
    if (x->ok) {
        x->arena = budget_arena_nbytes(x->t, x->m.schedule);
        x->flash = x->m.schedule->weight_nbytes;
    }
}

static void free_trial(void *x) { tgc_free(((struct trial *)x)->t); }

struct result { bool ok; size_t arena, flash; };

/* With those of the changes whose bit is set. */
static struct result try_changes(struct tgc *t, const struct options *o, const char *name,
                                 const struct change *change, unsigned set,
                                 const struct onnx_dim_option *dim, int ndim)
{
    struct trial *x = MEM_NEW(t, struct trial);
    *x = (struct trial){.t = tgc_new(t->mem_limit), .o = *o, .name = name};
    if (!x->t)
        return (struct result){0};
    struct held *held = held_add(t, free_trial, x);
    x->o.max_arena = x->o.max_flash = x->o.stack = 0;
    x->o.records = x->o.passes = x->o.why = false;
    for (int i = 0; i < CHANGES; i++)
        if (set >> i & 1) {
            change[i].apply(&x->o);
            if (change[i].apply != apply_dims)
                continue;
            x->o.dim = mem_array(t, (size_t)(o->ndim + ndim), sizeof *x->o.dim);
            x->o.ndim = 0;
            for (int k = 0; k < ndim; k++)
                x->o.dim[x->o.ndim++] = dim[k];
            for (int k = 0; k < o->ndim; k++) {
                bool replaced = false;
                for (int j = 0; j < ndim; j++)
                    replaced |= strcmp(dim[j].name, o->dim[k].name) == 0;
                if (!replaced)
                    x->o.dim[x->o.ndim++] = o->dim[k];
            }
        }
    x->t->run_limit = t->run_limit;
    run_trial(x);
    struct result r = {x->ok, x->arena, x->flash};
    held_release(held);
    return r;
}

/* "--dim=B=1 takes 22016 (enough), -Os takes 90112" */
static const char *find_cures(struct tgc *t, const struct options *o, const char *name,
                              const struct schedule *s, bool flash, size_t now, size_t limit)
{
    const char *dims;
    int ndim, helps = 0;
    const struct onnx_dim_option *dim = least_dims(t, s, &ndim, &dims);
    bool c = !s->on_device, vectors = (o->isa ? o->isa : isa_all()) != 1u << isa_portable();
    const struct change change[CHANGES] = {
        {dims, apply_dims, ndim > 0},
        {"--cpu=generic", apply_portable, c && vectors && !o->processor && !o->tune},
        {"-Os", apply_small, c && !o->small && o->level > 0},
        {"--error=0", apply_no_error, o->error > 0 && !o->no_winograd && o->level > 0},
        {"--weight-type=int8", apply_int8, o->weight_dtype == DTYPE_VOID},
    };
    struct text out = {.t = t};
    unsigned set = 0;
    bool enough = false;
    if (strcmp(o->model, "-") == 0 && !o->bytes)
        return "standard input cannot be read again, to try options: give a file";
    for (int i = 0; i < CHANGES; i++) {
        if (!change[i].applies)
            continue;
        struct result r = try_changes(t, o, name, change, 1u << i, dim, ndim);
        size_t takes = flash ? r.flash : r.arena;
        if (!r.ok || takes >= now)
            continue;
        text_printf(&out, "%s%s takes %zu%s", helps ? ", " : "", change[i].text, takes,
                    takes <= limit ? " (enough)" : "");
        helps++;
        set |= 1u << i;
        enough |= takes <= limit;
    }
    if (!helps)
        return "no option takes less: a smaller model is needed";
    if (enough)
        return out.s;
    if (helps > 1) {
        struct result r = try_changes(t, o, name, change, set, dim, ndim);
        size_t takes = flash ? r.flash : r.arena;
        if (r.ok) {
            enough = takes <= limit;
            text_printf(&out, ", all of these %zu%s", takes, enough ? " (enough)" : "");
        }
    }
    return enough ? out.s : mem_printf(t, "%s: not enough, a smaller model is needed", out.s);
}

static const char *cures(struct tgc *t, const struct options *o, const char *name,
                         const struct schedule *s, bool flash, size_t now, size_t limit)
{
    if (o->training.emits)
        return flash ? "a smaller model is needed"
                     : "--train-memory computes values again, and a smaller --batch takes less";
    return find_cures(t, o, name, s, flash, now, limit);
}

bool budget_check(struct tgc *t, const struct options *o, const char *name,
                  const struct schedule *s)
{
    const struct place place = {.file = o->model};
    size_t arena = budget_arena_nbytes(t, s), flash = s->weight_nbytes;
    bool ok = true;
    if (o->max_arena && arena > o->max_arena) {
        struct text at = {.t = t};
        const struct step *step = s->nlive ? &s->step[s->live_step] : NULL;
        if (step && step->kernel)
            put_kernel(&at, step->kernel);
        else
            text_puts(&at, step && step->host ? step->host->function : "a run");
        ok = diag_error(t, &place,
                        "%s %zu bytes, %zu more than --max-arena=%zu; the most is alive in %s; the "
                        "largest tensors then are %s; %s",
                        s->on_device ? "the tensors on the device take" : "the arena takes", arena,
                        arena - o->max_arena, o->max_arena, at.s, largest_tensors(t, s),
                        cures(t, o, name, s, false, arena, o->max_arena));
    }
    if (o->max_flash && flash > o->max_flash)
        ok = diag_error(t, &place,
                        "the weights take %zu bytes, %zu more than --max-flash=%zu; the largest "
                        "are %s; %s",
                        flash, flash - o->max_flash, o->max_flash, largest_weights(t, s),
                        cures(t, o, name, s, true, flash, o->max_flash));
    return ok;
}
