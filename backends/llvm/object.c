/* object.c - writes a schedule by LLVM: its intermediate representation (.ll), assembly (.s), or an
 * object file (.o).
 *
 * The module has the functions of NAME.h (entry.c), the weights as data, and the kernels, for
 * several instruction sets or for one processor. Arithmetic of runtime/ is a part of it; it calls
 * libc's functions, and the host's functions of runtime/, which the caller compiles beside it.
 */
#include "backends/llvm/machine.h"

#include <string.h>

static void set_interface(const struct emit *e, const struct llvm_machine *m)
{
    enum { MUST_AGREE = 0 };
    static const char key[] = "target-abi";
    if (*m->abi)
        e->l->AddModuleFlag(e->module, MUST_AGREE, key, strlen(key),
                            e->l->MDStringInContext2(e->context, m->abi, strlen(m->abi)));
}

/* Functions of runtime/ get names of the program's own: two programs may be linked together. */
static bool name_pieces(struct tgc *t, const struct emit *e, enum llvm_file file)
{
    for (int i = 0; i < e->npiece; i++) {
        const char *name = program_piece_symbol(t, e->name, e->piece[i]);
        e->l->SetValueName2(e->l->GetNamedFunction(e->module, e->piece[i]), name, strlen(name));
    }
    if (e->npiece == 0 || file == LLVM_FILE_OBJECT)
        return true;
    return diag_error(
        t, NULL,
        "the model calls %s() of tgc's runtime, which is C: only a .o can have it, by the C "
        "compiler",
        e->piece[0]);
}

static bool generate(const struct emit *e, const struct llvm_machine *m, enum llvm_file file,
                     struct text *out)
{
    LLVMMemoryBufferRef code = machine_generate(
        e->t, e->l, m, e->module, file == LLVM_FILE_ASM ? CODE_ASSEMBLY : CODE_OBJECT);
    if (!code)
        return false;
    text_write(out, e->l->GetBufferStart(code), e->l->GetBufferSize(code));
    e->l->DisposeMemoryBuffer(code);
    return true;
}

static void describe(struct emit *e, const struct llvm_request *r, struct program_info *info)
{
    describe_program(e->t, e->s, r->name, r->producer, info);
    e->weights_outside = program_weights_mode(e->s, r->weights) == WEIGHTS_FILE &&
                         e->s->nweight > 0;
    info->weights_external = e->weights_outside;
}

/* LLVM's constants count their bytes in 32 bits. */
static bool weights_fit(struct tgc *t, const struct emit *e)
{
    if (e->weights_outside || e->s->weight_nbytes <= UINT32_MAX)
        return true;
    return diag_error(t, NULL,
                      "weights of more than 4 GB are no data of an object: --weights=file");
}

static bool write_file(struct tgc *t, struct llvm *l, const struct schedule *s,
                       const struct llvm_request *r, struct llvm_output *out)
{
    struct llvm_machine m = {0};
    struct program_info info;
    struct emit e = {.t = t, .l = l, .s = s};
    describe(&e, r, &info);
    if (!weights_fit(t, &e) ||
        !(r->processor
              ? machine_of_processor(t, l, r->triple, r->processor, &m)
              : machine_of_triple(t, l, r->triple, r->isa, r->file == LLVM_FILE_OBJECT, &m)))
        return false;
    module_begin(&e, l, &m, r->name);
    set_interface(&e, &m);
    if (r->listing)
        debug_begin(&e, r->listing, r->producer);
    entry_begin(&e, &info);
    value run = module_emit(&e, mem_printf(t, "%s.run", r->name));
    entry_end(&e, &info, run);
    for (int i = 0; i < info.entry_count; i++)
        entries_emit(&e, &info, i, r->entry[i]);
    struct text listing = debug_end(&e);
    pieces_emit(&e);
    module_check(&e);
    bool ok = name_pieces(t, &e, r->file);
    *out = (struct llvm_output){{.t = t}, e.piece, e.npiece, listing, m.swapped};
    if (ok && r->file == LLVM_FILE_IR)
        text_puts(&out->code, llvm_take(t, l, l->PrintModuleToString(e.module)));
    else
        ok = ok && generate(&e, &m, r->file, &out->code);
    module_end(&e);
    machine_free(&m);
    return ok;
}

bool llvm_write(struct tgc *t, struct llvm *l, const struct schedule *s,
                const struct llvm_request *r, struct llvm_output *out)
{
    struct fatal *guard = fatal_begin(t);
    const struct held *before = held_last(t);
    if (setjmp(guard->back)) {
        held_forget_since(t, before);           /* LLVM's objects are as it left them */
        return diag_error(t, NULL, "LLVM %d: %s", l->version, guard->error.text);
    }
    bool ok = write_file(t, l, s, r, out);
    fatal_end(guard);
    return ok;
}
