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
                     struct text *out)
{
    struct code_error error = {""};
    LLVMMemoryBufferRef made = NULL;
    if (!machine_code(e->l, m, e->module, "function(sroa,infer-address-spaces),default<O2>",
                      row->kind == GPU_NVPTX ? CODE_ASSEMBLY : CODE_OBJECT, &made, &error))
        return diag_error(e->t, NULL, "LLVM %d does not compile the kernels for %s: %s",
                          e->l->version, row->text, error.text);
    text_write(out, e->l->GetBufferStart(made), e->l->GetBufferSize(made));
    return true;
}

struct request { struct program *p; const char *architecture; bool wants_ir; };

static bool compile(struct llvm *l, void *what, struct text *out)
{
    const struct request *r = what;
    struct program *p = r->p;
    const struct gpu_row *row = find_row(r->architecture, l->version);
    struct llvm_machine m;
    struct emit e = {.t = p->t, .l = l, .s = p->s};
    if (!row)
        return diag_error(p->t, NULL, "LLVM %d makes no code for %.40s, but for %s", l->version,
                          r->architecture, known(p->t, l->version));
    if (!machine_of_gpu(p->t, l, gpu_languages[row->kind].triple, row->text, row->features, &m))
        return false;
    module_begin(&e, l, &m, p->name);
    if (!emit_module(&e, p, row))
        return false;
    if (!r->wants_ir)
        return generate(&e, &m, row, out);
    text_puts(out, llvm_take(p->t, l, l->PrintModuleToString(e.module)));
    return true;
}

bool llvm_gpu_compile(struct program *p, const char *architecture, struct llvm_gpu_code *code,
                      struct text *ir)
{
    struct request request = {p, architecture, ir != NULL};
    struct llvm_result made;
    if (!llvm_do(p->t, &(struct llvm_work){compile, NULL, &request}, &made))
        return false;
    const struct gpu_row *row = find_row(architecture, made.by.version);
    *code = (struct llvm_gpu_code){(const unsigned char *)made.bytes, made.nbytes, made.by.title,
                                   row->text};
    if (ir)
        text_write(ir, made.bytes, made.nbytes);
    return ir || row->kind == GPU_NVPTX || gpu_link(p->t, code, made.by.version);
}
