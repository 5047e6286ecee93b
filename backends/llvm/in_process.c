/* in_process.c - a schedule becomes a program in this process. LLVM, in a process of its own
 * (apart.c), makes its objects and describes it; this one copies the weights meanwhile, and links.
 */
#include "backends/llvm/bytes.h"
#include "backends/llvm/jit.h"

/* What the process that has LLVM reads, and the weights, which this one copies meanwhile. */
struct request {
    const struct schedule *s;
    const char *name, *producer;
    unsigned char *weights;
    bool wants_ir;
};

static bool compile(struct llvm *l, void *what, struct text *out)
{
    const struct request *r = what;
    struct tgc *t = l->t;
    struct llvm_program p = {.t = t, .threads = program_threads(r->s)};
    struct llvm_machine m = {0};
    struct text ir = {.t = t};
    describe_program(t, r->s, r->name, r->producer, &p.info);
    if (!machine_of_host(t, l, &m))
        return false;
    if (program_head_bytes(r->s) < program_struct_nbytes())
        TGC_BUG(t, "the intermediates begin within the program's struct");
    struct emit *e = split_emit(t, l, &m, r->s, r->name, &p.nobject);
    for (int i = 0; i < p.nobject && r->wants_ir; i++)
        text_puts(&ir, llvm_take(t, l, l->PrintModuleToString(e[i].module)));
    p.object = mem_array(t, (size_t)p.nobject, sizeof *p.object);
    if (!parallel_generate(t, l, &m, e, p.nobject, p.object))
        return false;
    bytes_put_data(out, ir.s, ir.n);
    llvm_program_pack(out, &p);
    return true;
}

static void copy_weights(void *what)
{
    const struct request *r = what;
    program_copy_weights(r->s, r->weights, false);
}

struct llvm_program *llvm_compile(struct tgc *t, const struct schedule *s, const char *name,
                                  const char *producer, unsigned char *weights, struct text *ir,
                                  struct llvm_by *by)
{
    struct request request = {s, name, producer, weights, ir != NULL};
    struct llvm_result made;
    size_t nbytes;
    if (!llvm_do(t, &(struct llvm_work){compile, copy_weights, &request}, &made))
        return NULL;
    struct byte_reader r = {.t = t, .at = (const unsigned char *)made.bytes,
                            .end = (const unsigned char *)made.bytes + made.nbytes};
    const char *text = bytes_get_data(&r, &nbytes);
    if (ir)
        text_write(ir, text, nbytes);
    *by = made.by;
    struct code_error why = {""};
    struct llvm_program *p = program_unpack(t, &r, weights, &why);
    if (!p)
        diag_error(t, NULL, "%s: its code cannot be linked here: %s", by->title, why.text);
    return p;
}
