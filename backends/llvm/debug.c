/* debug.c - debugging information: which line of a listing an instruction comes from.
 *
 *      12  kernel conv1_avx2  # conv_1 (Conv), relu        a function, by the names of its nodes
 *      13    out f32 [1,64,56,56] ...
 *      14  for r2 < 8   # k                                each uop has its line
 *      15      %0 : f32x8 = ...   loc("conv_1")
 *
 * The listing is the .uops file with all programs of a kernel. Debuggers and profilers show it as
 * the source. Its name has no folder, so the same model gives the same bytes anywhere.
 */
#include "backends/llvm/emit.h"

#include <string.h>

struct debug {
    LLVMDIBuilderRef builder;
    LLVMMetadataRef file, scope;
    struct text listing;
    int line;                    /* of the listing's end */
    int first, position;         /* the line of e->linear[position], or of the next one that has
                                  * any */
};

static void set_flag(struct emit *e, const char *name, int v)
{
    enum { THE_OTHERS_WARN = 1 };
    e->l->AddModuleFlag(e->module, THE_OTHERS_WARN, name, strlen(name),
                        e->l->ValueAsMetadata(const_int(e, e->i32, v)));
}

void debug_begin(struct emit *e, const char *listing, const char *producer)
{
    enum { C99 = 11, FULL = 1, VERSION = 3, DWARF = 4 };
    struct debug *d = MEM_NEW(e->t, struct debug);
    *d = (struct debug){.listing = {.t = e->t}, .line = 1};
    d->builder = e->l->CreateDIBuilder(e->module);
    d->file = e->l->DIBuilderCreateFile(d->builder, listing, strlen(listing), "", 0);
    e->l->DIBuilderCreateCompileUnit(d->builder, C99, d->file, producer, strlen(producer), 1, "", 0,
                                     0, "", 0, FULL, 0, 0, 0, "", 0, "", 0);
    set_flag(e, "Debug Info Version", VERSION);
    set_flag(e, "Dwarf Version", DWARF);
    e->debug = d;
}

/* The lines that were appended since it was n characters. */
static void count_lines(struct debug *d, size_t n)
{
    for (; n < d->listing.n; n++)
        d->line += d->listing.s[n] == '\n';
}

static void set_line(struct emit *e, int line)
{
    e->l->SetCurrentDebugLocation2(
        e->at,
        e->l->DIBuilderCreateDebugLocation(e->context, (unsigned)line, 0, e->debug->scope, NULL));
}

/* title: what a debugger calls the function */
static void begin_function(struct emit *e, const char *title, const char *name, int line)
{
    struct debug *d = e->debug;
    LLVMMetadataRef type = e->l->DIBuilderCreateSubroutineType(d->builder, d->file, NULL, 0, 0);
    d->scope = e->l->DIBuilderCreateFunction(d->builder, d->file, title, strlen(title), name,
                                             strlen(name), d->file, (unsigned)line, type, 1, 1,
                                             (unsigned)line, 0, 1);
    e->l->SetSubprogram(e->function, d->scope);
    set_line(e, line);
}

void debug_kernel(struct emit *e, const struct kernel *k, const char *name)
{
    struct debug *d = e->debug;
    if (!d)
        return;
    size_t n = d->listing.n;
    int line = d->line;
    schedule_write_kernel_head(&d->listing, e->t, k, name);
    for (int i = 0; i < e->s->nkernel; i++)
        if (e->twin[i] == k && e->s->kernel[i] != k) {
            text_puts(&d->listing, "  # also ");
            text_comment(&d->listing, e->s->kernel[i]->title ? e->s->kernel[i]->title : "");
            text_putc(&d->listing, '\n');
        }
    count_lines(d, n);
    d->first = d->line;
    d->position = 0;
    n = d->listing.n;
    linear_print(&d->listing, e->t, e->linear, e->nlinear);
    text_putc(&d->listing, '\n');
    count_lines(d, n);
    begin_function(e, k->title && *k->title ? k->title : name, name, line);
}

void debug_uop(struct emit *e)
{
    struct debug *d = e->debug;
    if (!d)
        return;
    for (; d->position < e->position; d->position++)
        d->first += linear_has_line(e->linear[d->position]);
    if (linear_has_line(e->linear[e->position]))
        set_line(e, d->first);
}

void debug_run(struct emit *e, const char *name)
{
    if (e->debug)
        begin_function(e, name, name, e->debug->line);
}

void debug_step(struct emit *e, const struct step *step)
{
    struct debug *d = e->debug;
    if (!d)
        return;
    size_t n = d->listing.n;
    set_line(e, d->line);
    schedule_write_step(&d->listing, step);
    count_lines(d, n);
}

void debug_leave(struct emit *e)
{
    if (e->debug)
        e->l->SetCurrentDebugLocation2(e->at, NULL);
}

struct text debug_end(struct emit *e)
{
    struct debug *d = e->debug;
    if (!d)
        return (struct text){.t = e->t};
    e->l->DIBuilderFinalize(d->builder);
    e->l->DisposeDIBuilder(d->builder);
    return d->listing;
}
