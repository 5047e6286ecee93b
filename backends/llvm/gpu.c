/* gpu.c - a program's kernels for devices as code of one architecture: PTX for NVIDIA's, a linked
 * code object (ELF) for AMD's.
 *
 *      kernels ──gpu_kernel.c──> a module ──link──> with gpu_language.c's functions ──LLVM──> PTX
 *         │                       ^                                     or ──LLVM, ld.lld──> ELF
 *         └ what LLVM lacks: runtime/, by piece_code.c
 */
#include "backends/device/device.h"
#include "backends/llvm/machine.h"

#include <stdlib.h>
#include <string.h>

static const struct gpu_row row_of[] = {
#define GPU(kind, text, number, exact, since, features)                                            \
    {GPU_##kind, text, number, exact, since, features},
#include "backends/llvm/gpus.def"
#undef GPU
};

static bool is_nvidia(const char *architecture) { return strncmp(architecture, "sm_", 3) == 0; }

/* The row of that name, or, for NVIDIA's, the newest one that is no newer; NULL: there is none. */
static const struct gpu_row *find_row(const char *architecture, int version)
{
    const struct gpu_row *found = NULL;
    int number = is_nvidia(architecture) ? atoi(architecture + 3) : 0;
    for (size_t i = 0; i < sizeof row_of / sizeof *row_of; i++) {
        const struct gpu_row *r = &row_of[i];
        if (r->since > version)
            continue;
        if (strcmp(r->text, architecture) == 0)
            return r;
        if (!r->exact && r->number <= number)
            found = r;
    }
    return found;
}

static const char *known(struct tgc *t, int version)
{
    struct text s = {.t = t};
    for (size_t i = 0; i < sizeof row_of / sizeof *row_of; i++)
        if (row_of[i].since <= version)
            text_printf(&s, "%s%s", s.n ? ", " : "", row_of[i].text);
    return s.s;
}

/* ----------------------------------------------------------------------------------- the module */

/* The device's functions, where the module calls them. */
static bool add_functions(struct emit *e, const struct gpu_language *language)
{
    LLVMModuleRef functions = NULL;
    struct text text = {.t = e->t};
    char *why = NULL;
    for (const char *const *f = language->functions; *f; f++)
        text_puts(&text, *f);
    gpu_matrix_functions(e, &text);
    LLVMMemoryBufferRef buffer =
        e->l->CreateMemoryBufferWithMemoryRangeCopy(text.s, text.n, "device");
    if (e->l->ParseIRInContext(e->context, buffer, &functions, &why))
        return diag_error(e->t, NULL, "LLVM %d does not take the devices' functions: %s",
                          e->l->version, llvm_take(e->t, e->l, why));
    e->l->SetTarget(functions, language->triple);
    e->l->SetModuleDataLayout(functions, e->layout);
    return !e->l->LinkModules2(e->module, functions) ||
           diag_error(e->t, NULL, "LLVM %d does not link the devices' functions", e->l->version);
}

/* Version 4 of code objects: every ld.lld from 14 on takes it, as do all drivers with these
 * devices. LLVM 18 has renamed the flag. */
static void set_object_version(struct emit *e)
{
    enum { MUST_AGREE = 0, VERSION_4 = 400 };
    const char *key =
        e->l->version >= 18 ? "amdhsa_code_object_version" : "amdgpu_code_object_version";
    e->l->AddModuleFlag(e->module, MUST_AGREE, key, strlen(key),
                        e->l->ValueAsMetadata(const_int(e, e->i32, VERSION_4)));
}

static bool emit_module(struct emit *e, struct program *p, const struct gpu_row *row)
{
    struct gpu gpu = {.row = row, .p = p};
    e->size = e->i32;                    /* offsets have 32 bits */
    for (int i = 0; i < p->s->nkernel; i++) {
        const struct kernel *k = p->s->kernel[i];
        if (program_is_twin(p, k))
            continue;
        e->gpu = &gpu;
        gpu_emit_kernel(e, k, program_variant_on_device(p, k));
    }
    pieces_emit(e);
    if (row->kind == GPU_AMDGCN)
        set_object_version(e);
    if (!add_functions(e, &gpu_languages[row->kind]))
        return false;
    module_check(e);
    return true;
}

/* ------------------------------------------------------------------------------------- the code */

static bool generate(struct emit *e, const struct llvm_machine *m, const struct gpu_row *row,
                     struct llvm_gpu_code *code)
{
    struct code_error error = {""};
    LLVMMemoryBufferRef made = NULL;
    bool is_text = row->kind == GPU_NVPTX;
    if (!machine_code(e->l, m, e->module, "function(sroa,infer-address-spaces),default<O2>",
                      is_text ? CODE_ASSEMBLY : CODE_OBJECT, &made, &error))
        return diag_error(e->t, NULL, "LLVM %d does not compile the kernels for %s: %s",
                          e->l->version, row->text, error.text);
    struct text copy = {.t = e->t};
    text_write(&copy, e->l->GetBufferStart(made), e->l->GetBufferSize(made));
    e->l->DisposeMemoryBuffer(made);
    code->bytes = (const unsigned char *)copy.s;
    code->nbytes = copy.n;
    return is_text || gpu_link(e->t, code, e->l->version);
}

static bool compile(struct program *p, struct llvm *l, const struct gpu_row *row,
                    struct llvm_gpu_code *code, struct text *ir)
{
    struct llvm_machine m;
    struct emit e = {.t = p->t, .l = l, .s = p->s};
    if (!machine_of_gpu(p->t, l, gpu_languages[row->kind].triple, row->text, row->features, &m))
        return false;
    module_begin(&e, l, &m, p->name);
    bool ok = emit_module(&e, p, row);
    if (ok && ir)
        text_puts(ir, llvm_take(p->t, l, l->PrintModuleToString(e.module)));
    else
        ok = ok && generate(&e, &m, row, code);
    code->made_by = llvm_title(p->t, l);
    code->architecture = row->text;
    module_end(&e);
    machine_free(&m);
    return ok;
}

static bool compile_guarded(struct program *p, struct llvm *l, const struct gpu_row *row,
                            struct llvm_gpu_code *code, struct text *ir)
{
    struct fatal *guard = fatal_begin(p->t);
    const struct held *before = held_last(p->t);
    if (setjmp(guard->back)) {
        held_forget_since(p->t, before);           /* LLVM's objects are as it left them */
        return diag_error(p->t, NULL, "LLVM %d does not compile the kernels for %s: %s", l->version,
                          row->text, guard->error.text);
    }
    bool ok = compile(p, l, row, code, ir);
    fatal_end(guard);
    return ok;
}

bool llvm_gpu_compile(struct program *p, const char *architecture, struct llvm_gpu_code *code,
                      struct text *ir)
{
    struct llvm *l = llvm_open(p->t);
    const struct gpu_row *row = l ? find_row(architecture, l->version) : NULL;
    if (!l)
        return false;
    if (!row)
        return diag_error(p->t, NULL, "LLVM %d makes no code for %.40s, but for %s", l->version,
                          architecture, known(p->t, l->version));
    return compile_guarded(p, l, row, code, ir);
}
