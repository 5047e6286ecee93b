/* program.c - a schedule as a program in this process: its module, what NAME_describe() would
 * return, and NAME_init(), NAME_run(), NAME_close() around the code.
 *
 * struct head lies where struct NAME does in an emitted program, at the begin of the arena.
 */
#include "backends/llvm/jit.h"

#include <string.h>

struct llvm_program {
    struct tgc *t;
    const struct schedule *s;
    struct program_info info;
    int (*run)(void *self, const void *in, void *out);
    unsigned char *weights;
};

struct head {
    const struct head *opened;
    const struct llvm_program *program;
    struct program_run_options options;
};
_Static_assert(sizeof(struct head) <= LLVM_HEAD_NBYTES, "LLVM_HEAD_NBYTES");

/* ----------------------------------------------------------------------------------- describe() */

static struct program_dim *describe_dims(struct tgc *t, const struct buffer *b)
{
    struct program_dim *dim = mem_array(t, (size_t)b->ndim + 1, sizeof *dim);
    for (int a = 0; a < b->ndim; a++) {
        struct text symbol = {.t = t};
        if (b->dim[a]->op == OP_VAR)
            text_puts(&symbol, ((const struct var *)b->dim[a]->arg.p)->name);
        else if (b->dim[a]->op != OP_CONST)
            uop_print(&symbol, b->dim[a]);
        dim[a] = (struct program_dim){dim_bound(b->dim[a]), symbol.s};
    }
    return dim;
}

/* *nbytes: of the struct that has their pointers. */
static struct program_tensor *describe_tensors(struct tgc *t, struct buffer *const *b, int n,
                                               bool outputs, size_t *nbytes)
{
    struct program_tensor *x = mem_array(t, (size_t)n + 1, sizeof *x);
    size_t at = 0;
    for (int i = 0; i < n; i++) {
        bool shape = outputs && program_has_shape_field(b[i]);
        x[i] = (struct program_tensor){
            .name = b[i]->name ? b[i]->name : "", .dtype = dtype_name(b[i]->dtype),
            .element_bytes = dtype_nbytes(b[i]->dtype), .rank = b[i]->ndim,
            .dim = b[i]->ndim ? describe_dims(t, b[i]) : NULL, .offset = at,
            .shape_offset = shape ? at + 8 : PROGRAM_NO_OFFSET};
        at += 8 + (shape ? 8 * (size_t)b[i]->ndim : 0);
    }
    *nbytes = at;
    return x;
}

static void describe_symbols(struct tgc *t, const struct schedule *s, struct program_info *info)
{
    struct program_symbol *x = mem_array(t, (size_t)s->nvar + 1, sizeof *x);
    for (int i = 0; i < s->nvar; i++) {
        const struct var *v = s->var[i];
        if (v->is_counter)
            continue;
        x[info->symbol_count] =
            (struct program_symbol){v->name, v->min, v->max, PROGRAM_NO_OFFSET};
        if (schedule_passes_var(s, v)) {
            x[info->symbol_count].offset = info->inputs_bytes;
            info->inputs_bytes += 8;
        }
        info->symbol_count++;
    }
    info->symbols = x;
}

static void describe(struct llvm_program *p, const char *name, const char *producer)
{
    struct tgc *t = p->t;
    const struct schedule *s = p->s;
    struct program_info *info = &p->info;
    struct program_kernel *kernel = mem_array(t, (size_t)s->nkernel + 1, sizeof *kernel);
    *info = (struct program_info){.version = PROGRAM_INFO_VERSION, .name = name,
                                  .producer = producer, .target = "llvm",
                                  .input_count = s->ninput, .output_count = s->noutput,
                                  .kernel_count = s->nkernel, .arena_align = 64,
                                  .weights_bytes = s->weight_nbytes};
    for (int i = 0; i < s->nkernel; i++)
        kernel[i] = (struct program_kernel){s->kernel[i]->name,
                                            s->kernel[i]->title ? s->kernel[i]->title : "",
                                            s->kernel[i]->flop, s->kernel[i]->nbytes};
    info->kernels = kernel;
    info->inputs = describe_tensors(t, s->input, s->ninput, false, &info->inputs_bytes);
    info->outputs = describe_tensors(t, s->output, s->noutput, true, &info->outputs_bytes);
    describe_symbols(t, s, info);
    for (int i = 0; i < s->nstep; i++)
        info->flop += s->step[i].kind == STEP_KERNEL ? s->step[i].kernel->flop : 0;
    if (!size_align(s->arena_nbytes, 64, &info->arena_bytes) ||
        !size_add(info->arena_bytes, LLVM_HEAD_NBYTES, &info->arena_bytes))
        TGC_BUG(t, "the arena's size overflows");
    info->stack_bytes = program_stack_bytes(t, s);
}

/* -------------------------------------------------------------------------------------- running */

static void step(void *self, int index)
{
    const struct head *head = self;
    const struct program_run_options *o = &head->options;
    if (o->on_kernel)
        o->on_kernel(o->user, index < 0 ? head->program->info.kernel_count : index,
                     index < 0 ? NULL : head->program->info.kernels[index].name);
}

int llvm_program_init(const struct llvm_program *p, void **model, void *arena, size_t nbytes,
                      const struct program_run_options *options)
{
    struct head *head = arena;
    if (!model || !arena)
        return PROGRAM_NULL_ARGUMENT;
    *model = NULL;
    if ((uintptr_t)arena % p->info.arena_align != 0)
        return PROGRAM_ARENA_MISALIGNED;
    if (nbytes < p->info.arena_bytes)
        return PROGRAM_ARENA_TOO_SMALL;
    *head = (struct head){.opened = head, .program = p};
    if (options)
        head->options = *options;
    *model = head;
    return PROGRAM_OK;
}

static const void *field(const void *s, size_t offset)
{
    const void *p;
    memcpy(&p, (const char *)s + offset, sizeof p);
    return p;
}

int llvm_program_run(void *model, const void *inputs, void *outputs)
{
    const struct head *head = model;
    if (!head || !inputs || !outputs)
        return PROGRAM_NULL_ARGUMENT;
    if (head->opened != head)
        return PROGRAM_NOT_INITIALIZED;
    const struct program_info *info = &head->program->info;
    for (int i = 0; i < info->input_count; i++)
        if (!field(inputs, info->inputs[i].offset))
            return PROGRAM_MISSING_INPUT;
    for (int i = 0; i < info->output_count; i++)
        if (!field(outputs, info->outputs[i].offset))
            return PROGRAM_MISSING_OUTPUT;
    for (int i = 0; i < info->symbol_count; i++) {
        const struct program_symbol *v = &info->symbols[i];
        int64_t size = 0;
        if (v->offset == PROGRAM_NO_OFFSET)
            continue;
        memcpy(&size, (const char *)inputs + v->offset, sizeof size);
        if (size < v->min || size > v->max)
            return PROGRAM_DIM_OUT_OF_RANGE;
    }
    return head->program->run(model, inputs, outputs);
}

void llvm_program_close(void *model)
{
    struct head *head = model;
    if (head)
        head->opened = NULL;
}

const char *llvm_program_strerror(int status)
{
    switch (status) {
#define STATUS(name, value, text)                                                                  \
    case value:                                                                                    \
        return text;
#include "backends/program/statuses.def"
#undef STATUS
    default: return "unknown status";
    }
}

const struct program_info *llvm_program_info(const struct llvm_program *p) { return &p->info; }

/* ------------------------------------------------------------------------------------ compiling */

static const struct { const char *arch, *features; } isa_text[ISA_COUNT] = {
#define ISA(name, text, lanes, narrow, registers, title, arch, compilers, header, features,        \
            attribute)                                                                             \
    {arch, features},
#include "passes/target/isa.def"
#undef ISA
};

static const char *const own_arch =
#if defined __x86_64__
    "__x86_64__";
#elif defined __AARCH64EL__
    "__AARCH64EL__";
#else
    "";
#endif

/* Whether this processor has all that the instruction set needs; features: LLVM's "+avx2,-amx". */
static bool isa_runs_with(struct tgc *t, enum isa isa, const char *features)
{
    if (strcmp(isa_text[isa].arch, own_arch) != 0 || isa_has_tiles(isa))
        return false;
    for (const char *s = isa_text[isa].features; *s;) {
        int n = (int)strcspn(s, " ");
        const char *wanted = mem_printf(t, "+%.*s,", n, s);
        if (!strstr(mem_printf(t, "%s,", features), wanted))
            return false;
        s += n + (s[n] == ' ');
    }
    return true;
}

/* The best of the kernel's variants that this processor runs; NULL: the portable one. */
static const struct variant *pick(struct tgc *t, const struct kernel *k, const char *features)
{
    const struct variant *best = NULL;
    for (int i = 0; i < k->nvariant; i++)
        if (isa_runs_with(t, k->variant[i].isa, features))
            best = &k->variant[i];
    return best;
}

static void diagnose(LLVMDiagnosticInfoRef info, void *context)
{
    const struct llvm *l = context;
    enum { ERROR = 0 };
    if (l->GetDiagInfoSeverity(info) != ERROR)
        return;
    char *text = l->GetDiagInfoDescription(info);
    diag_error(l->t, NULL, "LLVM %d: %s", l->version, text);
    l->DisposeMessage(text);
}

static void begin_module(struct emit *e, struct llvm *l, const struct llvm_machine *m,
                         const char *name)
{
    e->context = l->ContextCreate();
    l->ContextSetDiagnosticHandler(e->context, diagnose, l);
    e->module = l->ModuleCreateWithNameInContext(name, e->context);
    e->at = l->CreateBuilderInContext(e->context);
    l->SetTarget(e->module, m->triple);
    l->SetModuleDataLayout(e->module, m->layout);
    e->cpu = m->cpu;
    e->features = m->features;
    e->i1 = l->IntTypeInContext(e->context, 1);
    e->i8 = l->IntTypeInContext(e->context, 8);
    e->i16 = l->IntTypeInContext(e->context, 16);
    e->i32 = l->IntTypeInContext(e->context, 32);
    e->i64 = l->IntTypeInContext(e->context, 64);
    e->f32 = l->FloatTypeInContext(e->context);
    e->f64 = l->DoubleTypeInContext(e->context);
    e->nothing = l->VoidTypeInContext(e->context);
    e->pointer = l->PointerType(e->i8, 0);
}

static bool supported(struct tgc *t, const struct schedule *s)
{
    if (s->nstate)
        return diag_error(t, NULL, "--target=llvm does not keep states yet (--state): --target=c does");
    if (s->threads > 1)
        return diag_error(t, NULL,
                          "--target=llvm runs in one thread as yet: leave --threads out, or take "
                          "--target=c");
    return true;
}

static bool append(void *context, const void *p, size_t nbytes)
{
    unsigned char **at = context;
    memcpy(*at, p, nbytes);
    *at += nbytes;
    return true;
}

static bool load_weights(struct llvm_program *p)
{
    enum { ALIGN = 64 };
    size_t n;
    if (!size_add(p->s->weight_nbytes, ALIGN, &n))
        TGC_BUG(p->t, "the weights' size overflows");
    unsigned char *at = mem_alloc(p->t, n);
    at += (ALIGN - (uintptr_t)at % ALIGN) % ALIGN;
    p->weights = at;
    struct byte_sink sink = {append, &at};
    return program_write_weights(p->t, p->s, &sink);
}

static struct llvm_name name_of(const char *name, void (*function)(void))
{
    return (struct llvm_name){name, (uint64_t)(uintptr_t)function};
}

static bool link_code(struct llvm_program *p, struct emit *e, const struct llvm_machine *m,
                      const char *function)
{
    struct tgc *t = p->t;
    int n = 0;
    struct llvm_name *name =
        mem_array(t, (size_t)(e->npiece + p->s->nweight) + 2, sizeof *name);
    for (int i = 0; i < e->npiece; i++)
        name[n++] = name_of(e->piece[i], llvm_piece(e->piece[i]));
    name[n++] = name_of("step", (void (*)(void))step);
    name[n++] = (struct llvm_name){"weights", (uint64_t)(uintptr_t)p->weights};
    for (int i = 0; i < p->s->nweight; i++) {
        const struct buffer *b = p->s->weight[i];
        if (b->dtype == DTYPE_STRING && !b->same)
            name[n++] = (struct llvm_name){mem_printf(t, "strings_%d", b->id),
                                           (uint64_t)(uintptr_t)b->data};
    }
    uint64_t address = 0;
    if (!jit_module(t, e->l, m, e->module, name, n, function, &address))
        return false;
    uintptr_t at = (uintptr_t)address;
    memcpy(&p->run, &at, sizeof p->run);
    return true;
}

static void emit_all(struct emit *e, const char *function)
{
    const struct schedule *s = e->s;
    e->twin = twins_find(e->t, s);
    e->kernel = mem_array(e->t, (size_t)s->nkernel + 1, sizeof *e->kernel);
    for (int i = 0; i < s->nkernel; i++)
        if (e->twin[i] == s->kernel[i])
            e->kernel[i] = emit_kernel(e, s->kernel[i], pick(e->t, s->kernel[i], e->features));
    emit_run(e, function);
    char *message = NULL;
    enum { RETURN_STATUS = 2 };
    if (e->l->VerifyModule(e->module, RETURN_STATUS, &message))
        TGC_BUG(e->t, "LLVM %d refuses the module: %s", e->l->version, message);
    e->l->DisposeMessage(message);
}

struct llvm_program *llvm_compile(struct tgc *t, struct llvm *l, const struct schedule *s,
                                  const char *name, const char *producer, struct text *ir)
{
    struct llvm_program *p = MEM_NEW(t, struct llvm_program);
    struct llvm_machine m = {0};
    struct emit e = {.t = t, .l = l, .s = s};
    const char *function = mem_printf(t, "%s_run", name);
    *p = (struct llvm_program){.t = t, .s = s};
    describe(p, name, producer);
    if (!supported(t, s) || !machine_of_host(t, l, &m))
        return NULL;
    begin_module(&e, l, &m, name);
    emit_all(&e, function);
    if (ir) {
        char *text = l->PrintModuleToString(e.module);
        text_puts(ir, text);
        l->DisposeMessage(text);
    }
    bool ok = load_weights(p) && link_code(p, &e, &m, function);
    l->DisposeBuilder(e.at);
    l->DisposeModule(e.module);
    l->ContextDispose(e.context);
    machine_free(l, &m);
    return ok ? p : NULL;
}
