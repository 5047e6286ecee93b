/* compile.c - a model becomes code in files, and a depfile if one is wanted. */
#include "lib/report/report.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------- depfiles */

/* A name as make and ninja read it. Backslashes are special only before a blank or #, where they
 * are doubled; % is not escaped, since ninja would keep the backslash. source: the GNU make manual,
 * 4.2 and 4.3; ninja's depfile_parser, whose rules differ for names such as a\#b, * or ?. */
static bool put_make_word(struct tgc *t, FILE *f, const char *s)
{
    size_t nbackslash = 0;
    if (strpbrk(s, "\n\r"))
        return diag_error(t, &(struct place){.file = s},
                          "a name with a line break cannot be written into a depfile");
    for (; *s; s++) {
        if (*s == '$')
            fputc('$', f);
        for (size_t i = 0; strchr(" \t#", *s) && i <= nbackslash; i++)
            fputc('\\', f);
        if (*s == ':')
            fputc('\\', f);
        fputc(*s, f);
        nbackslash = *s == '\\' ? nbackslash + 1 : 0;
    }
    return true;
}

/* The targets of -MT unchanged, since they may be several or make's variables; else OUT's name. */
static bool put_depfile_targets(struct tgc *t, FILE *f, const struct options *o)
{
    bool ok = o->ndepfile_target || put_make_word(t, f, o->output);
    for (int i = 0; i < o->ndepfile_target && ok; i++) {
        const struct depfile_target *target = &o->depfile_target[i];
        fputs(i ? " " : "", f);
        if (target->quote || strpbrk(target->text, "\n\r"))
            ok = put_make_word(t, f, target->text);
        else
            fputs(target->text, f);
    }
    return ok;
}

static const char *depfile_path(struct tgc *t, const struct options *o)
{
    if (o->depfile_name)
        return o->depfile_name;
    const char *slash = strrchr(o->output, '/'), *dot = strrchr(slash ? slash : o->output, '.');
    return mem_printf(t, "%.*s.d", (int)(dot ? dot - o->output : (ptrdiff_t)strlen(o->output)),
                      o->output);
}

/* The files that the output depends on; sets *count. */
static const char *const *find_needed(struct tgc *t, const struct options *o, const struct model *m,
                                      int *count)
{
    int nexternal, n = 0;
    const char *const *external = model_files(t, o, m, &nexternal);
    size_t most = 2 + (size_t)nexternal + (size_t)o->ninput + (size_t)o->nword_file;
    const char **need = mem_array(t, most, sizeof *need);
    if (strcmp(o->model, "-") != 0)
        need[n++] = o->model;
    if (o->tune)
        need[n++] = o->tune;
    for (int i = 0; i < nexternal; i++)
        need[n++] = external[i];
    for (int i = 0; i < o->ninput; i++)
        if (!feed_is_value(o->input[i].path))
            need[n++] = o->input[i].path;
    for (int i = 0; i < o->nword_file; i++)
        need[n++] = o->word_file[i];
    *count = n;
    return need;
}

static bool write_depfile(struct tgc *t, const struct options *o, const struct model *m,
                          struct outputs *files)
{
    int n;
    const char *const *need = find_needed(t, o, m, &n);
    FILE *f = outputs_open(files, depfile_path(t, o));
    bool ok = f && put_depfile_targets(t, f, o);
    if (f)
        fputc(':', f);
    for (int i = 0; i < n && ok; i++) {
        fputc(' ', f);
        ok = put_make_word(t, f, need[i]);
    }
    if (f)
        fputc('\n', f);
    for (int i = 0; i < n && ok && o->depfile_phony; i++) {
        ok = put_make_word(t, f, need[i]);
        fputs(":\n", f);
    }
    return ok;
}

/* -------------------------------------------------------------------------------------- outputs */

/* Reports what happens to weights that no linker accepts. */
static void mention_weights(struct tgc *t, const struct schedule *s, enum weights_mode wanted,
                            const char *name)
{
    double gigabytes = (double)s->weight_nbytes / 1e9;
    if (s->weight_nbytes < WEIGHTS_FILE_FROM || wanted == WEIGHTS_FILE)
        return;
    if (wanted == WEIGHTS_AUTO)
        diag_warn(t, NULL,
                  "%.1f GB of weights are more than can be linked: %s.weights is a file that "
                  "%s_init() is given, in its options (as with --weights=file)",
                  gigabytes, name, name);
    else
        diag_warn(t, NULL,
                  "%.1f GB of weights are to be linked, but code reaches 2 GB in the usual code "
                  "models: linkers say 'relocation truncated to fit'; --weights=file has no limit",
                  gigabytes);
}

/* The size of a C file is nearly always its weights'. */
static void mention_size(struct tgc *t, const struct options *o, const struct emission *e)
{
    const size_t large = 10 << 20;
    if (o->emit == EMIT_C && e->c.n > large && !e->beside && strcmp(o->output, "-") != 0)
        diag_note(t, &(struct place){.file = o->output},
                  "%.0f MB of C, most of it weights; --weights=incbin puts them into %s.weights "
                  "beside it, which makes the C small and quick to compile",
                  (double)e->c.n / 1e6, e->name);
}

static struct clang *clang_of(struct tgc *t, const struct options *o)
{
    return o->target == TARGET_CLANG ? clang_open(t, o->triple) : NULL;
}

/* What the compiler of a program's C is told. */
enum { MOST_FLAGS = 6 };
static int find_flags(struct tgc *t, const struct options *o, const char *name,
                      const char *flags[MOST_FLAGS])
{
    int n = 0;
    if (o->nlink)
        flags[n++] = "-I.";      /* a .c of --link finds the header */
    if (o->threads > 1)
        flags[n++] = compiler_threads_flag(t, o, name);
    if (isa_of_triple(o->triple, o->isa ? o->isa : isa_all()) >> ISA_SIMD128 & 1)
        flags[n++] = "-msimd128";
    if (o->emit == EMIT_WASM)
        flags[n++] = mem_printf(t, "-D%s_API=__attribute__((visibility(\"default\")))",
                                name_upper(t, name));
    if (o->small && o->emit == EMIT_SHARED)      /* tools load it, and ask what it is */
        flags[n++] = mem_printf(t, "-D%s_STRINGS", name_upper(t, name));
    return n;
}

static bool emit(struct tgc *t, const struct options *o, const struct model *m, struct emission *e)
{
    bool to_stdout = strcmp(o->output, "-") == 0;
    e->no_main = o->emit != EMIT_C;
    e->weights = to_stdout && o->weights == WEIGHTS_AUTO ? WEIGHTS_STRING : o->weights;
    mention_weights(t, m->schedule, e->weights, e->name);
    if (!program_emit(t, o, m, e))
        return false;
    if (e->beside && to_stdout)
        return diag_error(t, NULL,
                          "-o - has no place for the weights' file; --weights=string or array puts "
                          "them into the C");
    mention_size(t, o, e);
    return true;
}

/* swapped: as in struct byte_sink */
static bool put_weights(struct tgc *t, const struct model *m, struct outputs *files,
                        const char *path, bool swapped)
{
    FILE *f = outputs_open(files, path);
    return f && weights_write_file(t, m->schedule, f, path, swapped);
}

/* The C refers to NAME.weights by the C name, in the output's directory. */
static const char *weights_path(struct tgc *t, const char *output, const char *name)
{
    const char *slash = strrchr(output, '/');
    return mem_printf(t, "%.*s%s.weights", slash ? (int)(slash + 1 - output) : 0, output, name);
}

/* An #include has no escapes: not every file name can be in one. "??" may be part of a trigraph. */
static bool can_be_included(struct tgc *t, const struct options *o, const char *header)
{
    if (!strpbrk(header, "\"\\\n\r") && !strstr(header, "??"))
        return true;
    return diag_error(t, &(struct place){.file = o->output},
                      "its header would be '%.200s', which no #include can name; an OUT without "
                      "\", \\, ?? and line breaks is expected",
                      header);
}

/* NAME.weights in the output's directory. Two outputs with the same --name share the path: the
 * existing file may be another output's. */
static bool put_weights_beside(struct tgc *t, const struct options *o, const struct model *m,
                               struct outputs *files, const char *name, bool swapped)
{
    const char *path = weights_path(t, o->output, name), *slash = strrchr(o->output, '/');
    const char *base = slash ? slash + 1 : o->output, *dot = strrchr(base, '.');
    const char *stem =
        mem_printf(t, "%.*s", (int)(dot ? (size_t)(dot - base) : strlen(base)), base);
    bool is_own = strcmp(name, program_name(t, stem)) == 0;
    if (!is_own && outputs_replace(files, path))
        diag_warn(
            t, &(struct place){.file = path},
            "is replaced; another output that is called '%.100s' would read these weights, too: "
            "give each its own --name or directory",
            name);
    return put_weights(t, m, files, path, swapped);
}

static bool write_c(struct tgc *t, const struct options *o, const struct model *m,
                    struct outputs *files, const char *name)
{
    const char *header = path_sibling(t, o->output, "h"), *slash = strrchr(header, '/');
    struct emission e = {.name = name,
                         .clang = clang_of(t, o),
                         .header = strcmp(o->output, "-") == 0 ? NULL
                                   : slash                     ? slash + 1
                                                               : header};
    if ((e.header && !can_be_included(t, o, e.header)) || !emit(t, o, m, &e) ||
        !outputs_put(files, o->output, &e.c))
        return false;
    if (strcmp(o->output, "-") == 0)
        return true;
    return outputs_put(files, path_sibling(t, o->output, "h"), &e.h) &&
           (!o->main || outputs_put(files, o->main, &e.main)) &&
           (!e.beside || put_weights_beside(t, o, m, files, name, false));
}

static enum binary_kind binary_kind_of(enum emit emit)
{
    return emit == EMIT_SHARED    ? BINARY_SHARED
           : emit == EMIT_ARCHIVE ? BINARY_ARCHIVE
           : emit == EMIT_WASM    ? BINARY_WASM
                                  : BINARY_OBJECT;
}

/* The .mjs beside a module. */
static bool put_web(struct tgc *t, const struct options *o, const struct emission *e,
                    struct outputs *files)
{
    const char *slash = strrchr(o->output, '/'), *base = slash ? slash + 1 : o->output,
               *dot = strrchr(base, '.');
    struct text out = {.t = t};
    program_write_web(e->name, mem_printf(t, "%.*s", (int)(dot ? dot - base : 0), base),
                      e->beside && e->weights == WEIGHTS_FILE, &out);
    return outputs_put(files, path_sibling(t, o->output, "mjs"), &out);
}

/* A module's stack: libc's functions need some, too. */
static size_t module_stack(struct tgc *t, const struct schedule *s)
{
    const size_t page = 65536;
    return (2 * program_stack_bytes(t, s) + page) / page * page + page;
}

/* .o, .so, .a and .wasm: the C file is in a private directory while the compiler runs. */
static bool write_binary(struct tgc *t, const struct options *o, const struct model *m,
                         struct outputs *files, const char *name)
{
    if (strcmp(o->output, "-") == 0)
        return diag_error(t, NULL, "-o - is for text; a .%s needs a file", emit_extension(o->emit));
    struct emission e = {.name = name, .clang = clang_of(t, o)};
    const struct compiler *compiler = NULL;
    if (e.clang && !(compiler = clang_compiler(e.clang)))
        return false;
    const char *out = outputs_reserve(files, o->output);
    if (!out || !emit(t, o, m, &e) ||
        !(o->emit == EMIT_WASM ? put_web(t, o, &e, files)
                               : outputs_put(files, path_sibling(t, o->output, "h"), &e.h)))
        return false;
    struct held *held;
    const char *const *library = externals_files(t, o);
    const char *dir = library ? directory_make(t, &held) : NULL;
    if (!dir)
        return false;
    const char *c_path = mem_printf(t, "%s/%s.c", dir, name);
    struct outputs *inside = outputs_new(t);
    const char *flags[MOST_FLAGS];
    int nflag = find_flags(t, o, name, flags);
    if (o->debug_info)
        flags[nflag++] = "-g";
    struct compile_request r = {.kind = binary_kind_of(o->emit),
                                .source = c_path,
                                .temporary = dir,
                                .out_path = out,
                                .subject = o->output,
                                .compiler = compiler,
                                .flags = flags,
                                .nflag = nflag,
                                .library = library,
                                .nlibrary = o->nlink,
                                .small = o->small,
                                .stack = module_stack(t, m->schedule)};
    bool ok = outputs_put(inside, c_path, &e.c) &&
              outputs_put(inside, mem_printf(t, "%s/%s.h", dir, name), &e.h) &&
              (!e.beside ||
               put_weights(t, m, inside, mem_printf(t, "%s/%s.weights", dir, name), false)) &&
              outputs_commit(inside);
    double start = clock_seconds();
    ok = ok && compile_c(t, &r);
    report_stage(t, "C compiler", start);
    outputs_discard(inside);
    if (!ok && o->keep)
        directory_keep(t, dir, o->keep, files);
    held_release(held);
    if (ok && e.beside && program_weights_mode(m->schedule, o->weights) == WEIGHTS_FILE)
        ok = put_weights_beside(t, o, m, files, name, false);
    return ok;
}

/* Which compiler, linker and archiver work on LLVM's code: $CC's, or for another machine clang and
 * what it brings. *compiler NULL: $CC. */
static bool find_tools(struct tgc *t, const struct options *o, const struct compiler **compiler)
{
    const char *cc = getenv("CC");
    *compiler = NULL;
    if (!o->triple || (cc && *cc))
        return true;
    return (*compiler = clang_compiler(clang_open(t, o->triple))) != NULL;
}

/* Whether a part of the program is C: functions of runtime/, those of a training's entries. */
static bool has_c_beside(const struct model *m, const struct llvm_output *code)
{
    return code->npiece || m->graph->training;
}

/* Into a folder: NAME.h, and NAME.o, LLVM's object; or, where a part is C, NAME.c with that and
 * NAME_kernels.o. Sets the first one's path. */
static bool put_parts(struct tgc *t, const struct model *m, const struct program_options *po,
                      const struct llvm_output *code, const char *dir, const char **source)
{
    struct text c = {.t = t}, h = {.t = t};
    struct outputs *inside = outputs_new(t);
    const char *base = mem_printf(t, "%s/%s", dir, po->name);
    bool ok;
    const bool has_c = has_c_beside(m, code);
    *source = mem_printf(t, "%s.%s", base, has_c ? "c" : "o");
    program_write_header(t, m->schedule, po, &h);
    ok = outputs_put(inside, mem_printf(t, "%s.h", base), &h);
    if (has_c) {
        program_write_pieces(t, m->schedule, po, code->piece, code->npiece, &c);
        ok = ok && outputs_put(inside, *source, &c) &&
             outputs_put(inside, mem_printf(t, "%s_kernels.o", base), &code->code);
    } else {
        ok = ok && outputs_put(inside, *source, &code->code);
    }
    ok = ok && outputs_commit(inside);
    outputs_discard(inside);
    return ok;
}

/* LLVM's object, and what the C compiler makes of the functions that it calls, as one object,
 * archive or library. */
static bool join_parts(struct tgc *t, const struct options *o, const struct model *m,
                       struct outputs *files, const struct program_options *po,
                       const struct llvm_output *code)
{
    const char *flags[MOST_FLAGS];
    const char *const *link = externals_files(t, o);
    const char **library = mem_array(t, (size_t)o->nlink + 1, sizeof *library);
    struct compile_request r = {
        .kind = o->emit == EMIT_OBJECT ? BINARY_JOINED : binary_kind_of(o->emit),
        .out_path = link ? outputs_reserve(files, o->output) : NULL,
        .subject = o->output,
        .flags = flags,
        .nflag = find_flags(t, o, po->name, flags),
        .library = library};
    if (has_c_beside(m, code))
        library[r.nlibrary++] = mem_printf(t, "%s_kernels.o", po->name);
    for (int i = 0; link && i < o->nlink; i++)
        library[r.nlibrary++] = link[i];
    struct held *held;
    const char *dir = r.out_path && find_tools(t, o, &r.compiler) ? directory_make(t, &held) : NULL;
    if (!dir)
        return false;
    r.temporary = dir;
    progress(t, "%s: the C compiler%s%s", po->name, code->npiece ? ", for " : "",
             code->npiece ? mem_printf(t, "%s() and the like", code->piece[0]) : "");
    double start = clock_seconds();
    bool ok = put_parts(t, m, po, code, dir, &r.source) && compile_c(t, &r);
    progress_end(t);
    report_stage(t, "C compiler", start);
    if (!ok && o->keep)
        directory_keep(t, dir, o->keep, files);
    held_release(held);
    return ok;
}

/* .o, .so, .a, .s and .ll by libLLVM. */
static bool write_llvm(struct tgc *t, const struct options *o, const struct model *m,
                       struct outputs *files, const char *name)
{
    bool to_stdout = strcmp(o->output, "-") == 0;
    const char *listing = path_sibling(t, o->output, "uops");
    struct program_options po = model_program_options(o, m, name);
    po.no_main = true;
    struct llvm_request r = {.file = o->emit == EMIT_LL    ? LLVM_FILE_IR
                                     : o->emit == EMIT_ASM ? LLVM_FILE_ASM
                                                           : LLVM_FILE_OBJECT,
                             .name = name,
                             .producer = po.producer,
                             .triple = o->triple,
                             .isa = o->isa,
                             .processor = o->processor,
                             .weights = po.weights,
                             .entry = program_entry_names(t, m->schedule, &po),
                             .listing = o->debug_info ? path_base(listing) : NULL};
    bool outside = program_weights_mode(m->schedule, po.weights) == WEIGHTS_FILE &&
                   m->schedule->nweight > 0;
    struct text h = {.t = t};
    struct llvm_output code;
    if (to_stdout && r.file == LLVM_FILE_OBJECT)
        return diag_error(t, NULL, "-o - is for text; a .%s needs a file", emit_extension(o->emit));
    if (to_stdout && outside)
        return diag_error(t, NULL, "-o - has no place for the weights' file");
    if (to_stdout && r.listing)
        return diag_error(t, NULL, "-o - has no place for the file whose lines -g names");
    mention_weights(t, m->schedule, po.weights, name);
    progress(t, "%s: compiling by LLVM", name);
    double start = clock_seconds();
    bool ok = llvm_write(t, m->schedule, &r, &code);
    progress_end(t);
    report_stage(t, "LLVM", start);
    bool joins = ok && (has_c_beside(m, &code) || binary_kind_of(o->emit) != BINARY_OBJECT);
    if (!ok || !(joins ? join_parts(t, o, m, files, &po, &code)
                       : outputs_put(files, o->output, &code.code)))
        return false;
    if (to_stdout)
        return true;
    program_write_header(t, m->schedule, &po, &h);
    return outputs_put(files, path_sibling(t, o->output, "h"), &h) &&
           (!r.listing || outputs_put(files, listing, &code.listing)) &&
           (!outside || put_weights_beside(t, o, m, files, name, code.swapped));
}

static bool write_view(struct tgc *t, const struct options *o, const struct model *m,
                       struct outputs *files)
{
    struct text x = {.t = t};
    if (o->emit == EMIT_UOPS)
        schedule_write_uops(&x, t, m->schedule);
    else
        schedule_write_dot(&x, t, m->schedule);
    return outputs_put(files, o->output, &x);
}

/* The kernels of a device, as text, as PTX, a code object or LLVM's text, and
 * nothing of the host's. */
static bool write_kernels(struct tgc *t, const struct options *o, const struct model *m,
                          struct outputs *files, const char *name)
{
    struct emission e = {.name = name};
    return emit(t, o, m, &e) &&
           outputs_put(files, o->output, e.device_code.n > 0 ? &e.device_code : &e.kernels);
}

static size_t weight_nbytes(struct tgc *t, const struct graph *g)
{
    struct uop **root = mem_array(t, (size_t)g->noutput, sizeof *root);
    size_t total = 0;
    int n;
    for (int i = 0; i < g->noutput; i++)
        root[i] = g->output[i].value;
    struct uop **u = uop_toposort(t, root, g->noutput, &n);
    for (int i = 0; i < n; i++) {
        const struct buffer *b = uop_buffer_of(u[i]);
        total += b && b->kind == BUFFER_WEIGHT ? b->nbytes : 0;
    }
    for (int i = 0; i < g->ninput; i++) {
        const struct buffer *first = uop_buffer_of(g->input[i])->port.first;
        total += first ? first->nbytes : 0;
    }
    return total;
}

/* The graph as read, in primitive ops. Weights of more than 1 MB in total go into NAME.safetensors
 * next to it, unless --weights says otherwise. */
static bool write_graph(struct tgc *t, const struct options *o, const struct model *m,
                        struct outputs *files)
{
    enum { INLINE_NBYTES = 1 << 20 };
    struct text x = {.t = t}, side = {.t = t};
    bool to_stdout = strcmp(o->output, "-") == 0;
    bool beside = o->weights == WEIGHTS_FILE ||
                  (o->weights == WEIGHTS_AUTO && weight_nbytes(t, m->graph) > INLINE_NBYTES);
    const char *path = path_sibling(t, o->output, "safetensors"), *slash = strrchr(path, '/');
    struct tg_write_options write = {.side_file = beside && !to_stdout ? slash ? slash + 1 : path
                                                                       : NULL};
    return tg_write(t, m->graph, &write, &x, &side) && outputs_put(files, o->output, &x) &&
           (!side.n || outputs_put(files, path, &side));
}

static FILE *open_beside(void *user, const char *path) { return outputs_open(user, path); }

struct onnx_sink onnx_file(struct tgc *t, const char *path, struct outputs *files)
{
    const char *data_path = mem_printf(t, "%s.data", path);
    return (struct onnx_sink){.file = outputs_open(files, path),
                              .path = path,
                              .open_data = strcmp(path, "-") == 0 ? NULL : open_beside,
                              .user = files,
                              .data_path = data_path,
                              .location = path_base(data_path)};
}

static bool write_onnx(struct tgc *t, const struct options *o, const struct model *m,
                       struct outputs *files)
{
    ModelProto *p = onnx_write(t, m->graph, "tgc", TGC_VERSION);
    struct onnx_sink to = {0};
    if (p)
        to = onnx_file(t, o->output, files);
    return to.file && onnx_save(t, NULL, p, &to);
}

static bool write_outputs(struct tgc *t, const struct options *o, const struct model *m,
                          struct outputs *files, const char *name)
{
    switch (o->emit) {
    case EMIT_C:
        return write_c(t, o, m, files, name);
    case EMIT_LL:
        return o->target == TARGET_LLVM ? write_llvm(t, o, m, files, name)
                                        : write_kernels(t, o, m, files, name);
    case EMIT_ASM:
        return write_llvm(t, o, m, files, name);
    case EMIT_OBJECT:
    case EMIT_SHARED:
    case EMIT_ARCHIVE:
    case EMIT_WASM:
        return o->target == TARGET_LLVM ? write_llvm(t, o, m, files, name)
                                        : write_binary(t, o, m, files, name);
    case EMIT_UOPS:
    case EMIT_DOT:
        return write_view(t, o, m, files);
    case EMIT_JSON:
    case EMIT_HTML:
        return report_write(t, o, m, name, NULL, o->output, files);
    case EMIT_CL:
    case EMIT_CU:
    case EMIT_HIP:
    case EMIT_METAL:
    case EMIT_PTX:
    case EMIT_HSACO:
        return write_kernels(t, o, m, files, name);
    case EMIT_TG:
        return write_graph(t, o, m, files);
    case EMIT_ONNX:
        return write_onnx(t, o, m, files);
    default:
        TGC_BUG(t, "no writer for .%s", emit_extension(o->emit));
    }
}

static const char *name_of(struct tgc *t, const struct options *o, const struct model *m)
{
    if (o->name)
        return o->name;
    if (strcmp(o->output, "-") == 0)
        return program_name(t, m->stem);
    const char *slash = strrchr(o->output, '/');
    char *stem = mem_str(t, slash ? slash + 1 : o->output), *dot = strrchr(stem, '.');
    if (dot)
        *dot = 0;
    return program_name(t, stem);
}

static bool asks_for_report(const struct options *o)
{
    return o->viz || o->emit == EMIT_HTML || o->emit == EMIT_JSON;
}

/* VIZ=1: the report, unless it is the output itself. */
static bool write_beside(struct tgc *t, const struct options *o, const struct model *m,
                         struct outputs *files, const char *name)
{
    const char *path = report_path(t, o, name);
    if (strcmp(path, o->output) == 0)
        return true;
    diag_note(t, &(struct place){.file = path}, "the visual report (VIZ=1)");
    return report_write(t, o, m, name, NULL, path, files);
}

/* Inputs that are given determine shapes and the lengths of sequences; they stay inputs. */
bool compile_model(struct tgc *t, const struct options *given, struct outputs *files)
{
    struct options told = *given;
    const struct options *o = &told;
    struct model m;
    struct feed f;
    if (asks_for_report(o))
        report_prepare(&told);
    if (!model_load(t, o, &m) || (told.ninput && !feed_read(t, &told, &m, &f)))
        return false;
    bool of_graph = o->emit == EMIT_TG || o->emit == EMIT_ONNX;
    if (of_graph && o->nstate)
        return diag_error(t, &(struct place){.file = o->output},
                          "%s has no states of --state; give it where that is compiled",
                          o->emit == EMIT_TG ? "a text graph" : "an ONNX model");
    if (o->nlink && o->emit != EMIT_SHARED)
        return diag_error(t, &(struct place){.file = o->output},
                          "%s is for a .so; leave it out here, and give the file to your linker",
                          option_spelling(OPTION_LINK));
    const char *name = name_of(t, o, &m);
    model_protect_files(o, &m, files);
    bool made = outputs_may_write(files, o->output) &&
                (of_graph            ? model_lower(t, o, &m)
                 : o->training.emits ? training_schedule(t, o, name, &m)
                                     : model_schedule(t, o, name, &m));
    model_protect_files(o, &m, files); /* including external data, which lowering has read */
    bool ok = made && write_outputs(t, o, &m, files, name) &&
              (!o->viz || of_graph || write_beside(t, o, &m, files, name)) &&
              (!o->depfile || write_depfile(t, o, &m, files)) && outputs_commit(files);
    if (!ok)
        outputs_discard(files);
    return ok;
}
