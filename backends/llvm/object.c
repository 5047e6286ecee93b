/* object.c - writes a schedule by LLVM: its intermediate representation (.ll), assembly (.s), or an
 * object file (.o).
 *
 * The module has the functions of NAME.h (entry.c), the weights as data, and the kernels, for
 * several instruction sets or for one processor. Arithmetic of runtime/ is a part of it; it calls
 * libc's functions, and the host's functions of runtime/, which the caller compiles beside it.
 */
#include "backends/llvm/bytes.h"
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
    return true;
}

/* What comes before the code, which is the rest. */
static void put_needs(struct text *out, const struct emit *e, const struct text *listing,
                      bool swapped)
{
    bytes_put(out, (uint64_t)e->npiece);
    for (int i = 0; i < e->npiece; i++)
        bytes_put_string(out, e->piece[i]);
    bytes_put_data(out, listing->s, listing->n);
    bytes_put(out, swapped);
}

static void take(struct tgc *t, const struct llvm_result *made, struct llvm_output *out)
{
    struct byte_reader r = {.t = t, .at = (const unsigned char *)made->bytes,
                            .end = (const unsigned char *)made->bytes + made->nbytes};
    size_t nbytes;
    const int n = bytes_get_count(&r, sizeof(uint64_t));
    const char **piece = mem_array(t, (size_t)n + 1, sizeof *piece);
    for (int i = 0; i < n; i++)
        piece[i] = bytes_get_string(&r);
    *out = (struct llvm_output){.code = {.t = t}, .piece = piece, .npiece = n, .listing = {.t = t}};
    const char *listing = bytes_get_data(&r, &nbytes);
    text_write(&out->listing, listing, nbytes);
    out->swapped = bytes_get(&r) != 0;
    text_write(&out->code, (const char *)r.at, (size_t)(r.end - r.at));
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

struct file { const struct schedule *s; const struct llvm_request *r; };

static bool write_file(struct llvm *l, void *what, struct text *out)
{
    const struct file *file = what;
    const struct llvm_request *r = file->r;
    struct tgc *t = l->t;
    struct llvm_machine m = {0};
    struct program_info info;
    struct emit e = {.t = t, .l = l, .s = file->s};
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
    for (int i = 0; i < info.entry_count && !program_training(file->s); i++)
        entries_emit(&e, &info, i, r->entry[i]);
    struct text listing = debug_end(&e);
    pieces_emit(&e);
    module_check(&e);
    if (!name_pieces(t, &e, r->file))
        return false;
    put_needs(out, &e, &listing, m.swapped);
    if (r->file != LLVM_FILE_IR)
        return generate(&e, &m, r->file, out);
    text_puts(out, llvm_take(t, l, l->PrintModuleToString(e.module)));
    return true;
}

bool llvm_write(struct tgc *t, const struct schedule *s, const struct llvm_request *r,
                struct llvm_output *out)
{
    struct llvm_result made;
    if (!llvm_do(t, &(struct llvm_work){write_file, NULL, &(struct file){s, r}}, &made))
        return false;
    take(t, &made, out);
    return true;
}
