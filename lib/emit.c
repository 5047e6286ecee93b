/* emit.c - a schedule becomes C, which libclang checks where that is the target. */
#include "lib/lib.h"

#include <string.h>

static bool check_by_clang(struct tgc *t, struct clang *clang, const struct clang_source *source)
{
    double start = clock_seconds();
    bool ok = clang_check(clang, source);
    report_stage(t, "libclang", start);
    return ok;
}

const char *compiler_threads_flag(struct tgc *t, const struct options *o, const char *name)
{
    bool bare = o->triple && strstr(o->triple, "-none-");
    return o->threads <= 1 ? NULL
           : bare          ? mem_printf(t, "-D%s_NO_PTHREADS", name_upper(t, name))
                           : "-pthread";
}

bool program_emit(struct tgc *t, const struct options *o, const struct model *m, struct emission *e)
{
    double start = clock_seconds();
    struct program_options po = model_program_options(o, m, e->name);
    struct program_lines lines = {0};
    po.lines = e->clang ? &lines : NULL;
    po.header = e->header;
    po.kernels = &e->kernels;
    po.device_code = o->command == COMMAND_COMPILE && (o->emit == EMIT_PTX || o->emit == EMIT_HSACO)
                         ? &e->device_code
                         : NULL;
    po.device_ir = o->command == COMMAND_COMPILE && o->emit == EMIT_LL ? &e->device_code : NULL;
    po.no_main = e->no_main;
    po.main = o->main && !e->no_main ? &e->main : NULL;
    po.main_name = o->main ? path_base(o->main) : NULL;
    po.weights = e->weights;
    e->c.t = e->h.t = e->main.t = e->kernels.t = e->device_code.t = t;
    progress(t, "%s: writing C%s", e->name,
             po.no_main || o->vectors == VECTORS_NEVER ? "" : ", with reference vectors");
    bool ok = program_write_c(t, m->schedule, &po, &e->c, &e->h, &e->beside);
    progress_end(t);
    if (!ok)
        return false;
    if (t->debug >= 3)
        report_text(t, e->kernels.s);
    report_stage(t, "emit C", start);
    struct clang_source source = {
        .subject = o->model, .c_name = mem_printf(t, "%s.c", e->name), .c = &e->c, .h = &e->h,
        .h_name = e->header ? e->header : mem_printf(t, "%s.h", e->name), .lines = &lines,
        .flag = compiler_threads_flag(t, o, e->name)};
    return !e->clang || check_by_clang(t, e->clang, &source);
}
