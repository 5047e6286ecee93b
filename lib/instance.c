/* instance.c - a compiled model in this process: emitted, compiled by the system's compiler or
 * by clang (--target=clang), opened with dlopen and run; or made by LLVM in this process
 * (--target=llvm), which looks the same.
 *
 * Nothing here knows a model: NAME_describe() gives each tensor's dtype, shape and the offset of
 * its field in NAME_inputs and NAME_outputs, so that the structs can be filled without their
 * declarations. Every array is allocated at its upper bound; run-time dimensions are taken from the
 * shapes of the inputs that are given, and checked against every input that has them.
 */
#include "lib/lib.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

bool file_write(struct tgc *t, const char *path, const struct text *x)
{
    FILE *f = fopen(path, "we");
    bool ok = f && fwrite(x->s ? x->s : "", 1, x->n, f) == x->n;
    ok = f && fclose(f) == 0 && ok;
    return ok ? true
              : diag_error(t, &(struct place){.file = path}, "cannot be written: %s",
                           strerror(errno));
}

static bool write_to_file(void *context, const void *p, size_t nbytes)
{
    return fwrite(p, 1, nbytes, context) == nbytes;
}

bool weights_write_file(struct tgc *t, const struct schedule *s, FILE *f, const char *path,
                        bool swapped)
{
    struct byte_sink sink = {write_to_file, f, swapped};
    return program_write_weights(t, s, &sink)
               ? true
               : diag_error(t, &(struct place){.file = path}, "cannot be written: %s",
                            strerror(errno));
}

/* clang: checks the program; NULL: another target */
static bool emit_files(struct tgc *t, const struct options *o, const struct model *m,
                       struct clang *clang, const char *name, const char *dir)
{
    struct emission e = {.name = name, .clang = clang, .no_main = true, .weights = o->weights};
    if (!program_emit(t, o, m, &e) || !file_write(t, mem_printf(t, "%s/%s.c", dir, name), &e.c) ||
        !file_write(t, mem_printf(t, "%s/%s.h", dir, name), &e.h))
        return false;
    if (!e.beside)
        return true;
    const char *path = mem_printf(t, "%s/%s.weights", dir, name);
    struct held *held;
    FILE *f = held_fopen(t, path, "we", &held);
    bool ok = f && weights_write_file(t, m->schedule, f, path, false) && fflush(f) == 0;
    held_release(held);
    return ok ||
           diag_error(t, &(struct place){.file = path}, "cannot be written: %s", strerror(errno));
}

static bool decodes_images(struct tgc *t, const struct graph *g)
{
    struct uop **root = mem_array(t, (size_t)g->noutput + 1, sizeof *root);
    int n;
    for (int i = 0; i < g->noutput; i++)
        root[i] = g->output[i].value;
    struct uop **u = uop_toposort(t, root, g->noutput, &n);
    for (int i = 0; i < n; i++)
        if (u[i]->op == OP_HOST &&
            strcmp(((const struct host_call *)u[i]->arg.p)->function, "image_decode") == 0)
            return true;
    return false;
}

/* The compiler's flags for the decoders' libraries that pkg-config finds here: words of its answer,
 * and the macro that the emitted image.c needs. */
static const char **decoder_flags(struct tgc *t, const char *name, int *n)
{
    static const struct {
        const char *command, *macro;
    } decoders[] = {{"pkg-config --cflags --libs libjpeg 2>/dev/null", "JPEG"},
                    {"pkg-config --cflags --libs libwebp 2>/dev/null", "WEBP"},
                    {"pkg-config --cflags --libs libopenjp2 2>/dev/null", "OPENJPEG"}};
    const char **word = NULL;
    size_t cap = 0;
    for (size_t i = 0; i < sizeof decoders / sizeof *decoders; i++) {
        char answer[4096] = "";
        FILE *f = popen(decoders[i].command, "re");
        size_t length = f ? fread(answer, 1, sizeof answer - 1, f) : 0;
        answer[length] = 0;
        if (!f || pclose(f) != 0)
            continue;
        for (const char *s = answer; *(s += strspn(s, " \n"));) {
            size_t k = strcspn(s, " \n");
            VEC_PUSH(t, word, *n, cap, mem_printf(t, "%.*s", (int)k, s));
            s += k;
        }
        struct text macro = {.t = t};
        text_puts(&macro, "-D");
        for (const char *s = name; *s; s++)
            text_putc(&macro, *s >= 'a' && *s <= 'z' ? (char)(*s - 'a' + 'A') : *s);
        text_printf(&macro, "_WITH_%s", decoders[i].macro);
        VEC_PUSH(t, word, *n, cap, macro.s);
    }
    return word;
}

static bool compile_shared(struct tgc *t, const struct options *o, const struct model *m,
                           const struct compiler *compiler, const char *dir, const char *name)
{
    const char *flags[] = {"-pthread", "-g"};
    int nlibrary = 0;
    const char **library = decodes_images(t, m->graph) ? decoder_flags(t, name, &nlibrary) : NULL;
    struct compile_request r = {
        .kind = BINARY_SHARED,
        .source = mem_printf(t, "%s/%s.c", dir, name),
        .temporary = dir,
        .out_path = mem_printf(t, "%s/%s.so", dir, name),
        .subject = o->model,
        .compiler = compiler,
        .flags = flags,
        .nflag = o->debug_info ? 2 : 1,
        .library = library,
        .nlibrary = nlibrary,
    };
    return compile_c(t, &r);
}

/* -------------------------------------------------------------------------------------- opening */

/* ISO C has no conversion from object to function pointers; POSIX promises this one. */
static bool find_function(struct tgc *t, void *handle, const char *path, const char *name,
                          const char *suffix, void *function)
{
    void *p = dlsym(handle, mem_printf(t, "%s_%s", name, suffix));
    memcpy(function, &p, sizeof p);
    return p ? true
             : diag_error(t, &(struct place){.file = path},
                          "has no function %s_%s; is it a model that tgc has compiled? (--name)",
                          name, suffix);
}

/* What both ways of opening a model have in common. */
static void allocate_fields(struct tgc *t, struct instance *p)
{
    p->first = mem_array(t, (size_t)p->info->state_count, sizeof *p->first);
    p->input = mem_array(t, (size_t)p->info->input_count, sizeof *p->input);
    p->output = mem_array(t, (size_t)p->info->output_count, sizeof *p->output);
    p->symbol = mem_array(t, (size_t)p->info->symbol_count, sizeof *p->symbol);
    p->given = mem_array(t, (size_t)p->info->input_count + (size_t)p->info->state_count + 1,
                         sizeof *p->given);
    p->inputs = mem_alloc(t, p->info->inputs_bytes);
    p->outputs = mem_alloc(t, p->info->outputs_bytes);
    for (int i = 0; i < p->info->symbol_count; i++)
        p->symbol[i] = -1;
}

bool instance_open(struct tgc *t, const char *path, const char *name, struct instance *p)
{
    *p = (struct instance){.entry = -1};
    const char *slash = strrchr(path, '/');
    if (!name) {
        char *stem = mem_str(t, slash ? slash + 1 : path);
        stem[strcspn(stem, ".")] = 0;
        name = program_name(t, stem);
    }
    p->handle = library_open(t, slash ? path : mem_printf(t, "./%s", path), RTLD_NOW | RTLD_LOCAL,
                             path);
    if (!p->handle)
        return false;
    const struct program_info *(*describe)(void);
    if (!find_function(t, p->handle, path, name, "describe", &describe) ||
        !find_function(t, p->handle, path, name, "init", &p->init) ||
        !find_function(t, p->handle, path, name, "run", &p->run) ||
        !find_function(t, p->handle, path, name, "close", &p->close) ||
        !find_function(t, p->handle, path, name, "strerror", &p->strerror))
        return false;
    p->info = describe();
    if (!p->info || p->info->version != PROGRAM_INFO_VERSION)
        return diag_error(t, &(struct place){.file = path},
                          "was made by another version of tgc; compile it anew");
    if (p->info->state_count && (!find_function(t, p->handle, path, name, "reset", &p->reset) ||
                                 !find_function(t, p->handle, path, name, "save", &p->save) ||
                                 !find_function(t, p->handle, path, name, "restore", &p->restore)))
        return false;
    allocate_fields(t, p);
    return true;
}

/* NAME.weights, for programs that need them passed. */
static bool load_weights(struct tgc *t, const char *path, struct instance *p)
{
    if (!p->info->weights_external)
        return true;
    p->weights = pages_allocate(t, p->info->weights_bytes, "the model's weights");
    struct held *held;
    FILE *f = p->weights ? held_fopen(t, path, "re", &held) : NULL;
    bool ok = f && fread(p->weights, 1, p->info->weights_bytes, f) == p->info->weights_bytes;
    if (f)
        held_release(held);
    return ok ? true
              : diag_error(t, &(struct place){.file = path}, "the model's weights cannot be read");
}

/* Whether the values of --value find place in a run here, before time is spent on its code. */
static bool check_values_fit(struct tgc *t, const struct options *o, const struct graph *g)
{
    int64_t total = 0, limit = t->run_limit > INT64_MAX ? INT64_MAX : (int64_t)t->run_limit;
    int end = g->noutput - g->npart;
    for (int i = end - g->ninner; i < end; i++) {
        const struct uop *u = g->output[i].value;
        int64_t nbytes = (int64_t)dtype_nbytes(u->dtype);
        for (int a = 0; a < u->ndim; a++)
            nbytes = sat_mul(nbytes, u->dim[a]->vmax > 0 ? u->dim[a]->vmax : 0);
        total = sat_add(total, nbytes);
    }
    if (!limit || sat_add(total, (int64_t)t->run_used) <= limit)
        return true;
    return diag_error(t, &(struct place){.file = o->model},
                      "the %d values of --value take %lld MB, and a run here may take %lld MB, of "
                      "which %zu are taken; name fewer (--value NAME, --value 'layer1*'), or "
                      "%s=BYTES allows more",
                      g->ninner, (long long)(total >> 20), (long long)(limit >> 20),
                      t->run_used >> 20, option_spelling(OPTION_MAX_MEMORY));
}

void instance_adopt(struct tgc *t, struct instance *p, const struct llvm_program *code,
                    const char *made_by)
{
    *p = (struct instance){
        .entry = -1, .code = code, .made_by = made_by, .info = llvm_program_info(code)};
    p->run = llvm_program_run;
    p->close = llvm_program_close;
    if (p->info->state_count) {
        p->reset = llvm_program_reset;
        p->save = llvm_program_save;
        p->restore = llvm_program_restore;
    }
    p->strerror = llvm_program_strerror;
    allocate_fields(t, p);
}

/* A copy of the program, which is what it was made of, linked anew: its code has the addresses of
 * its weights, which stay where they are. */
static void move(struct tgc *t, struct tgc *to, struct instance *p)
{
    struct text packed = {.t = t};
    const char *made_by = mem_str(to, p->made_by);
    to->mem_limit = t->mem_limit;
    to->run_limit = t->run_limit;
    to->run_used = t->run_used;
    libraries_pass(t, to);
    held_pass_maps(t, to);
    if (p->code) {
        llvm_program_pack(&packed, p->code);
        const struct llvm_program *code =
            llvm_program_unpack(to, mem_copy(to, packed.s, packed.n), packed.n,
                                llvm_program_weights(p->code), p->info->weights_bytes);
        if (!code)
            TGC_BUG(t, "a program that was just packed cannot be unpacked");
        int entry = p->entry;
        instance_adopt(to, p, code, made_by);
        p->entry = entry;
    } else {
        p->made_by = made_by;
        allocate_fields(to, p);
    }
}

bool instance_move(struct tgc *t, struct tgc *to, struct instance *p)
{
    if (setjmp(to->stop) != 0)
        return false;
    move(t, to, p);
    return true;
}

/* By LLVM, in this process. */
static bool build_here(struct tgc *t, const struct options *o, const struct model *m,
                       struct instance *p)
{
    double start = clock_seconds();
    struct text ir = {.t = t};
    *p = (struct instance){.entry = -1};
    struct llvm_by by;
    void *weights = pages_allocate(t, m->schedule->weight_nbytes, "the model's weights");
    if (!weights)
        return false;
    progress(t, "%s: compiling by LLVM", m->stem);
    struct llvm_program *code =
        llvm_compile(t, m->schedule, o->name ? o->name : program_name(t, m->stem),
                     "tgc " TGC_VERSION, weights, t->debug >= 3 ? &ir : NULL, &by);
    progress_end(t);
    report_stage(t, "LLVM", start);
    if (ir.s)
        report_text(t, ir.s);
    if (!code)
        return false;
    instance_adopt(t, p, code, by.title);
    p->library = by.library;
    return true;
}

/* "gcc -m32", "clang 19.1.7", "cc and OpenCL" */
static const char *name_maker(struct tgc *t, const struct options *o, const struct clang *clang)
{
    const char *cc = compiler_of_environment();
    return clang                            ? clang->title
           : o->target == TARGET_CUDA       ? mem_printf(t, "%s and CUDA", cc ? cc : "cc")
           : o->target == TARGET_METAL      ? mem_printf(t, "%s and Metal", cc ? cc : "cc")
           : o->target == TARGET_AMD        ? mem_printf(t, "%s and HIP", cc ? cc : "cc")
           : o->target == TARGET_OPENCL     ? mem_printf(t, "%s and OpenCL", cc ? cc : "cc")
                                            : mem_str(t, cc ? cc : "cc");
}

/* As C, by a compiler. */
static bool build_shared(struct tgc *t, const struct options *o, const struct model *m,
                         struct instance *p)
{
    const char *name = o->name ? o->name : program_name(t, m->stem);
    struct clang *clang = o->target == TARGET_CLANG ? clang_open(t, NULL) : NULL;
    const struct compiler *compiler = clang ? clang_compiler(clang) : NULL;
    if (clang && !compiler)
        return false;
    struct held *held;
    const char *dir = directory_make(t, &held);
    if (!dir)
        return false;
    const char *maker = name_maker(t, o, clang);
    bool ok = emit_files(t, o, m, clang, name, dir);
    double start = clock_seconds();
    progress(t, "%s: compiling by %s", name, maker);
    ok = ok && compile_shared(t, o, m, compiler, dir, name);
    report_stage(t, "C compiler", start);
    progress_end(t);
    ok = ok && instance_open(t, mem_printf(t, "%s/%s.so", dir, name), name, p) &&
         load_weights(t, mem_printf(t, "%s/%s.weights", dir, name), p);
    p->made_by = maker;
    if (!ok && o->keep) {
        struct outputs *inputs = outputs_new(t);
        model_protect_files(o, m, inputs);
        directory_keep(t, dir, o->keep, inputs);
    }
    held_release(held);
    return ok;
}

static bool has_tiles_for(const struct schedule *s, isa_set host)
{
    for (int i = 0; i < s->nkernel; i++)
        for (int j = 0; j < s->kernel[i]->nvariant; j++) {
            enum isa isa = s->kernel[i]->variant[j].isa;
            if (isa_has_tiles(isa) && (host >> isa & 1))
                return true;
        }
    return false;
}

/* Why the C compiler has to make the model's code: what LLVM in this process would lack. NULL:
 * nothing. */
static const char *needs_compiler(struct tgc *t, const struct options *o, const struct model *m)
{
    return o->debug_info                                        ? "-g is for a debugger"
           : decodes_images(t, m->graph)                        ? "decoders of images are linked"
           : has_tiles_for(m->schedule, options_host_isa())     ? "this processor multiplies tiles"
                                                                : NULL;
}

/* By LLVM in this process, unless it is not here or cannot do the model: then as C. The stages'
 * times say why. */
static bool build_anyhow(struct tgc *t, const struct options *o, const struct model *m,
                         struct instance *p)
{
    int ndiag = t->ndiag;
    double start = clock_seconds();
    const char *why = needs_compiler(t, o, m);
    if (!why && build_here(t, o, m, p))
        return true;
    if (!why)
        why = diag_take_back(t, ndiag);
    report_stage(t, mem_printf(t, "not by LLVM: %s", why), start);
    bool ok = build_shared(t, o, m, p);
    if (!ok)
        diag_note(t, NULL, "LLVM, which needs no C compiler, does not run the model either: %s",
                  why);
    return ok;
}

bool instance_build(struct tgc *t, const struct options *o, const struct model *m,
                    struct instance *p)
{
    if (!externals_link(t, o, m))
        return false;
    if (!check_values_fit(t, o, m->graph))
        return false;
    return o->any_target              ? build_anyhow(t, o, m, p)
           : o->target == TARGET_LLVM ? build_here(t, o, m, p)
                                      : build_shared(t, o, m, p);
}

/* -------------------------------------------------------------------------------------- tensors */

static bool describe_array(struct tgc *t, const struct program_tensor *from, struct array *v)
{
    *v = (struct array){.name = from->name, .ndim = from->rank};
    if (!dtype_parse(from->dtype, &v->dtype) || from->rank > MAX_RANK ||
        dtype_nbytes(v->dtype) != from->element_bytes)
        return diag_error(
            t, NULL,
            "the compiled model describes '%.100s' as %.20s of rank %d, which is not known here",
            from->name, from->dtype, from->rank);
    for (int i = 0; i < from->rank; i++)
        v->dim[i] = from->dim[i].size;
    return true;
}

static int find_symbol(const struct program_info *info, const char *name)
{
    for (int i = 0; name && i < info->symbol_count; i++)
        if (strcmp(info->symbols[i].name, name) == 0 &&
            info->symbols[i].offset != PROGRAM_NO_OFFSET)
            return i;
    return -1;
}

static bool misfit(struct tgc *t, const struct array *v, const struct array *want,
                   const char *source, const char *why)
{
    return diag_error(t, &(struct place){.file = source}, "holds %s; the input '%.100s' is %s%s",
                      array_type_text(t, v), want->name, array_type_text(t, want), why);
}

/* Arrays are at least as large as the upper bound, since the program may read that much. */
static bool set_at_bound(struct tgc *t, struct instance *p, int index, const struct array *bound,
                         const struct array *v)
{
    struct array *in = &p->input[index];
    *in = *bound;
    if (!array_allocate(t, in))
        return false;
    memcpy(in->data, v->data, v->nbytes);
    memcpy(in->dim, v->dim, sizeof in->dim);
    in->nelem = v->nelem;
    in->nbytes = v->nbytes;
    return true;
}

bool instance_set_input(struct tgc *t, struct instance *p, int index, const struct array *v,
                        const char *source)
{
    const struct program_tensor *tensor = &p->info->inputs[index];
    struct array want;
    if (!describe_array(t, tensor, &want))
        return false;
    if (v->dtype != want.dtype || v->ndim != want.ndim)
        return misfit(t, v, &want, source, "");
    for (int i = 0; i < v->ndim; i++) {
        int s = find_symbol(p->info, tensor->dim[i].symbol);
        if (!tensor->dim[i].symbol ? v->dim[i] != tensor->dim[i].size
                                   : v->dim[i] > tensor->dim[i].size)
            return misfit(t, v, &want, source, tensor->dim[i].symbol ? " at most" : "");
        if (s >= 0 && v->dim[i] < p->info->symbols[s].min)
            return misfit(t, v, &want, source, ", and no dimension is below its bound");
    }
    if (!set_at_bound(t, p, index, &want, v))
        return false;
    p->given[index] = (struct sized){p->input[index].dim, source};
    return true;
}

/* --------------------------------------------------------------------------------------- states */

bool instance_set_state(struct tgc *t, struct instance *p, int index, const struct array *v,
                        const char *source)
{
    const struct program_state *st = &p->info->states[index];
    struct array want;
    if (!describe_array(t, &st->input, &want))
        return false;
    if (v->dtype != want.dtype || v->ndim != want.ndim)
        return misfit(t, v, &want, source, "");
    for (int i = 0; i < v->ndim; i++)
        if (st->input.dim[i].symbol ? v->dim[i] > want.dim[i] : v->dim[i] != want.dim[i])
            return misfit(t, v, &want, source, st->input.dim[i].symbol ? " at most" : "");
    for (int k = 0; k < p->info->state_count; k++) {
        bool same =
            p->first[k] && st->axis >= 0 && p->info->states[k].length_offset == st->length_offset;
        if (same && p->first[k]->dim[p->info->states[k].axis] != v->dim[st->axis])
            return diag_error(t, &(struct place){.file = source},
                              "has %lld rows, but the state '%.100s', which grows with it, %lld",
                              (long long)v->dim[st->axis], p->info->states[k].input.name,
                              (long long)p->first[k]->dim[p->info->states[k].axis]);
    }
    p->first[index] = v;
    p->given[p->info->input_count + index] = (struct sized){v->dim, source};
    return true;
}

bool instance_fit(struct tgc *t, struct instance *p)
{
    return fit_inputs(t, p->info, p->given, true, p->symbol);
}

/* Copies between a block, where a state that grows has the strides of its upper bounds, and a
 * contiguous array: runs along the last axis. */
static void copy_state(const struct program_state *st, unsigned char *block, struct array *v,
                       bool to_block)
{
    size_t size = dtype_nbytes(v->dtype), run = size, nrun = 1;
    int last = v->ndim - 1;
    for (int i = 0; i <= last; i++)
        *(i == last ? &run : &nrun) *= (size_t)v->dim[i];
    for (size_t k = 0; k < nrun; k++) {
        size_t left = k, at = 0, stride = size;
        for (int i = last; i >= 0; i--) {
            size_t here = i == last ? 0 : left % (size_t)v->dim[i];
            left = i == last ? left : left / (size_t)v->dim[i];
            at += here * stride;
            stride *= (size_t)(st->axis >= 0 ? st->input.dim[i].size : v->dim[i]);
        }
        unsigned char *there = block + st->input.offset + at, *data = v->data;
        memcpy(to_block ? there : data + k * run, to_block ? data + k * run : there, run);
    }
}

static bool state_failed(struct tgc *t, const struct instance *p, const char *what, int status)
{
    return status == PROGRAM_OK ||
           diag_error(t, NULL, "the compiled model's %s reports: %s", what, p->strerror(status));
}

/* Writes the values given for the first run to a block: lengths and data. */
static bool restore_first(struct tgc *t, struct instance *p)
{
    unsigned char *block = NULL;
    for (int i = 0; i < p->info->state_count; i++) {
        const struct program_state *st = &p->info->states[i];
        if (!p->first[i])
            continue;
        if (!block && (!(block = pages_allocate(t, p->info->state_bytes, "the model's states")) ||
                       !state_failed(t, p, "save", p->save(p->model, block))))
            return false;
        struct array v = *p->first[i];
        copy_state(st, block, &v, true);
        if (st->axis >= 0)
            memcpy(block + st->length_offset, &v.dim[st->axis], sizeof(int64_t));
    }
    return !block || state_failed(t, p, "restore", p->restore(p->model, block));
}

bool instance_read_state(struct tgc *t, const struct instance *p, int index, struct array *v)
{
    const struct program_state *st = &p->info->states[index];
    unsigned char *block = pages_allocate(t, p->info->state_bytes, "the model's states");
    if (!block || !state_failed(t, p, "save", p->save(p->model, block)) ||
        !describe_array(t, &st->input, v))
        return false;
    v->name = st->from;
    for (int i = 0; i < v->ndim; i++) {
        const char *rule = p->info->feeds[p->info->input_count + index].rule[i];
        int64_t size;
        if (i == st->axis)
            memcpy(&v->dim[i], block + st->length_offset, sizeof(int64_t));
        else if (rule && fit_size(rule, p->symbol, &size) && size >= 0 && size < v->dim[i])
            v->dim[i] = size;
    }
    if (!array_allocate(t, v))
        return false;
    copy_state(st, block, v, false);
    return true;
}

static void set_pointer(void *s, size_t offset, void *p)
{
    memcpy((char *)s + offset, &p, sizeof p);
}

bool instance_allocate_inputs(struct tgc *t, struct instance *p)
{
    for (int i = 0; i < p->info->input_count; i++)
        if (!p->input[i].data && (!describe_array(t, &p->info->inputs[i], &p->input[i]) ||
                                  !array_allocate(t, &p->input[i])))
            return false;
    return true;
}

/* An input that is not given: its true shape from the symbols, pseudo-random contents. */
static bool fill_input(struct tgc *t, struct instance *p, int index)
{
    const struct program_tensor *tensor = &p->info->inputs[index];
    struct array *in = &p->input[index];
    if (!describe_array(t, tensor, in) || !array_allocate(t, in))
        return false;
    array_fill_random(in, index, p->info->feeds[index].least, p->info->feeds[index].most);
    for (int i = 0; i < in->ndim; i++) {
        const char *rule = p->info->feeds[index].rule[i];
        int64_t size;
        if (rule && fit_size(rule, p->symbol, &size) && size >= 0 && size < in->dim[i])
            in->dim[i] = size;
    }
    return true;
}

/* A model that is open: it may have threads, which its code and arena must outlive. */
struct open_model { void (*close)(void *model); void *model; };

static void close_model(void *what)
{
    const struct open_model *open = what;
    if (open->model)
        open->close(open->model);
}

bool instance_choose_entry(struct tgc *t, const struct options *o, bool needs_one,
                           struct instance *p)
{
    const struct program_info *info = p->info;
    struct place at = {.file = o->model};
    struct text names = {.t = t};
    p->entry = -1;
    if (info->entry_count == 0)
        return !o->entry ||
               diag_error(t, &at, "--entry %.100s: the model has no entries", o->entry);
    for (int i = 0; i < info->entry_count; i++) {
        const char *name = info->entries[i].name;
        text_printf(&names, "%s--entry=%.100s",
                    i == 0                      ? ""
                    : i + 1 < info->entry_count ? ", "
                                                : " or ",
                    name);
        if (o->entry && strcmp(o->entry, name) == 0)
            p->entry = i;
    }
    if (p->entry >= 0 || (!o->entry && !needs_one))
        return true;
    return diag_error(t, &at, "%s: give %s",
                      o->entry ? mem_printf(t, "it has no entry '%.100s'", o->entry)
                               : "it has several entries",
                      names.s);
}

bool instance_has(const struct instance *p, bool output, int i)
{
    return p->entry < 0 || program_entry_of(p->info, output, i) == p->entry;
}

bool instance_is_of_device(const struct instance *p)
{
    const struct backend *b = backend_find(p->info->target);
    return b && backend_is_of_device(b);
}

/* What a device lacks, which the message of init's status does not say. */
static void note_error(void *user, const char *text)
{
    struct instance *p = user;
    p->why = mem_str(p->t, text);
}

/* needs: inputs, outputs and the arena */
static bool start(struct tgc *t, const struct options *o, struct instance *p)
{
    struct program_device_options options = {.run = {.threads = o->threads,
                                                     .weights = p->weights,
                                                     .weights_bytes = p->info->weights_bytes,
                                                     .on_kernel = p->on_kernel,
                                                     .user = p->user}};
    if (instance_is_of_device(p)) {
        options.on_kernel_time = p->on_kernel_time;
        if (!p->user) {
            p->t = t;
            options.on_error = note_error;
            options.run.user = p;
        }
    }
    size_t nbytes = p->info->arena_bytes;
    struct open_model *open = MEM_NEW(t, struct open_model);
    p->open = held_add(t, close_model, open);
    int status = p->code ? llvm_program_init(p->code, &p->model, p->arena, nbytes, &options.run)
                         : p->init(&p->model, p->arena, nbytes, &options.run);
    if (status != PROGRAM_OK)
        return diag_error(t, NULL, "the compiled model's init reports: %s%s%s", p->strerror(status),
                          p->why ? "; " : "", p->why ? p->why : "");
    *open = (struct open_model){p->close, p->model};
    return restore_first(t, p);
}

bool instance_prepare(struct tgc *t, const struct options *o, struct instance *p)
{
    const struct program_info *info = p->info;
    for (int i = 0; i < info->symbol_count; i++) {
        if (info->symbols[i].offset == PROGRAM_NO_OFFSET)
            continue;
        if (p->symbol[i] < 0)
            p->symbol[i] = info->symbols[i].max;
        memcpy((char *)p->inputs + info->symbols[i].offset, &p->symbol[i], sizeof p->symbol[i]);
    }
    for (int i = 0; i < info->input_count; i++) {
        if (!p->input[i].data && !fill_input(t, p, i))
            return false;
        set_pointer(p->inputs, info->inputs[i].offset, p->input[i].data);
    }
    for (int i = 0; i < info->output_count; i++) {
        if (!describe_array(t, &info->outputs[i], &p->output[i]) ||
            !array_allocate(t, &p->output[i]))
            return false;
        set_pointer(p->outputs, info->outputs[i].offset, p->output[i].data);
    }
    p->arena = pages_allocate(t, info->arena_bytes, "the model's arena");
    if (!p->arena)
        return false;
    return start(t, o, p);
}

bool instance_restart(struct tgc *t, const struct options *o, struct instance *p)
{
    instance_close(p);
    return start(t, o, p);
}

/* The true shape of an output, as the run has reported it. */
static bool read_shape(struct tgc *t, struct instance *p, int index)
{
    const struct program_tensor *tensor = &p->info->outputs[index];
    struct array *out = &p->output[index];
    out->nelem = 1;
    for (int i = 0; i < out->ndim; i++) {
        out->dim[i] = tensor->dim[i].size;
        if (tensor->shape_offset != PROGRAM_NO_OFFSET)
            memcpy(&out->dim[i],
                   (const char *)p->outputs + tensor->shape_offset + (size_t)i * sizeof(int64_t),
                   sizeof(int64_t));
        if (out->dim[i] < 0 || out->dim[i] > tensor->dim[i].size)
            TGC_BUG(t, "output %d says that dimension %d is %lld, its bound is %lld", index, i,
                    (long long)out->dim[i], (long long)tensor->dim[i].size);
        out->nelem *= (size_t)out->dim[i];
    }
    out->nbytes = out->nelem * dtype_nbytes(out->dtype);
    return true;
}

/* Integer inputs, which may be indices, with their bounds. */
static const char *suspects(struct tgc *t, const struct instance *p)
{
    struct text x = {.t = t};
    text_puts(&x, "");
    for (int i = 0; i < p->info->input_count; i++) {
        const struct array *v = &p->input[i];
        size_t width = dtype_nbytes(v->dtype);
        if (!dtype_is_int(v->dtype) || !v->nelem)
            continue;
        int64_t least = INT64_MAX, most = INT64_MIN;
        for (size_t k = 0; k < v->nelem; k++) {
            int64_t s = scalar_load(v->dtype, (const char *)v->data + k * width).i;
            least = s < least ? s : least;
            most = s > most ? s : most;
        }
        text_printf(&x, "%s'%.100s' holds %lld to %lld", x.n ? ", " : "; ", v->name,
                    (long long)least, (long long)most);
    }
    return x.s;
}

/* One run, or one of each entry. */
static int run(const struct instance *p)
{
    const struct program_info *info = p->info;
    int status = PROGRAM_OK;
    if (info->entry_count == 0)
        return p->run(p->model, p->inputs, p->outputs);
    for (int64_t e = 0; e < info->entry_count && status == PROGRAM_OK; e++) {
        memcpy((char *)p->inputs + info->entry_offset, &e, sizeof e);
        if (p->entry < 0 || p->entry == e)
            status = p->run(p->model, p->inputs, p->outputs);
    }
    return status;
}

static bool run_once(struct tgc *t, struct instance *p, bool again)
{
    int status = run(p);
    if (status == PROGRAM_STATE_FULL && again && p->reset(p->model) == PROGRAM_OK)
        status = run(p);
    if (status == PROGRAM_BAD_VALUE)
        return diag_error(t, NULL, "the compiled model's run reports: %s%s", p->strerror(status),
                          suspects(t, p));
    if (status < 0 || status >= PROGRAM_OWN_STATUS)
        return diag_error(
            t, NULL, "the run ends with status %d, of a C function that the model calls", status);
    if (status != PROGRAM_OK)
        return diag_error(t, NULL, "the compiled model's run reports: %s", p->strerror(status));
    for (int i = 0; i < p->info->output_count; i++)
        if (!read_shape(t, p, i))
            return false;
    return true;
}

bool instance_run(struct tgc *t, struct instance *p) { return run_once(t, p, false); }

bool instance_run_again(struct tgc *t, struct instance *p) { return run_once(t, p, true); }

void instance_close(struct instance *p)
{
    held_release(p->open);
    p->open = NULL;
    p->model = NULL;
    /* The object stays open as long as the compile: info's names are in it, and
     * diagnostics may quote them. */
}
