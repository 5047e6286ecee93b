/* SPDX-License-Identifier: 0BSD */
/* programs.c - programs and kernels; a launch from a kernel's arguments.
 */
#define _GNU_SOURCE
#include "driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------- programs */

static void end_program(struct object *o)
{
    struct program *p = (struct program *)o;
    module_close(p->module);
    free(p->text);
    free(p->binary);
    object_let(&p->context->o);
}

static struct program *create_program(struct context *c)
{
    struct program *p = object_create(KIND_PROGRAM, sizeof *p, end_program);
    if (p) {
        p->context = c;
        object_hold(&c->o);
    }
    return p;
}

static int32_t from_source(void *context, uint32_t count, const char *const *text,
                           const size_t *length, void **made)
{
    struct context *c = object_find(context, KIND_CONTEXT);
    struct text all = {NULL, 0, 0};
    if (!c)
        return INVALID_CONTEXT;
    if (count == 0 || !text)
        return misuse(INVALID_VALUE, "no text");
    for (uint32_t i = 0; i < count; i++) {
        if (!text[i])
            return misuse(INVALID_VALUE, "text %u of %u is NULL", i, count);
        text_add(&all, "%.*s", length && length[i] ? (int)length[i] : (int)strlen(text[i]),
                 text[i]);
    }
    struct program *p = create_program(c);
    if (p)
        p->text = all.s;
    else
        free(all.s);
    *made = p;
    return p && p->text ? SUCCESS : OUT_OF_HOST_MEMORY;
}

static int32_t from_binary(void *context, uint32_t count, void *const *device, const size_t *nbytes,
                           const unsigned char *const *binary, int32_t *each, void **made)
{
    struct context *c = object_find(context, KIND_CONTEXT);
    if (!c)
        return INVALID_CONTEXT;
    if (count != 1 || !device || device[0] != &the_device || !nbytes || !binary || !binary[0] ||
        !nbytes[0])
        return misuse(INVALID_VALUE, "not one binary for the device");
    struct module *m = build_from_binary(&language_opencl, binary[0], nbytes[0]);
    if (each)
        each[0] = m ? SUCCESS : INVALID_BINARY;
    if (!m)
        return INVALID_BINARY; /* a stale one is no misuse */
    struct program *p = create_program(c);
    if (!p) {
        module_close(m);
        return OUT_OF_HOST_MEMORY;
    }
    p->module = m;
    *made = p;
    return SUCCESS;
}

/* The options as words for clang, and what the device has not. */
static int build_flags(char *options, const char **flag, int most)
{
    const struct device_facts *d = device_facts();
    int n = 0;
    bool standard = false;
    for (char *word = strtok_r(options, " ", &options); word && n < most - 8;
         word = strtok_r(NULL, " ", &options)) {
        standard |= strncmp(word, "-cl-std=", 8) == 0;
        flag[n++] = word;
    }
    if (!standard)
        flag[n++] = "-cl-std=CL1.2";
    if (!d->is_double || !d->is_half) {
        flag[n++] = "-Xclang";
        flag[n++] = d->is_double ? "-cl-ext=-cl_khr_fp16"
                    : d->is_half ? "-cl-ext=-cl_khr_fp64"
                                 : "-cl-ext=-cl_khr_fp16,-cl_khr_fp64";
    }
#ifdef __x86_64__
    flag[n++] = "-mf16c"; /* so that halves need no library */
#endif
    flag[n] = NULL;
    return n;
}

/* The compiler's first error: "12:3: error: ...". */
static void report_build(const char *log)
{
    const char *error = strstr(log, ": error: "), *begin = error ? error : log;
    for (int colons = 0; begin > log && begin[-1] != '\n'; begin--)
        if (begin[-1] == ':' && ++colons == 2)
            break;
    report("clBuildProgram: %.*s", (int)strcspn(begin, "\n"), begin);
}

static int32_t build(void *handle, uint32_t count, void *const *device, const char *options)
{
    enum { MOST = 64 };
    struct program *p = object_find(handle, KIND_PROGRAM);
    const char *flag[MOST];
    char words[1024];
    if (!p)
        return INVALID_PROGRAM;
    if ((count > 0) != (device != NULL) || (count > 0 && device[0] != &the_device))
        return misuse(INVALID_DEVICE, "not the device");
    if (p->nkernel > 0)
        return misuse(INVALID_OPERATION, "program %u has kernels already", p->o.number);
    p->is_tried = true;
    if (!p->text) /* a binary */
        return SUCCESS;
    snprintf(words, sizeof words, "%s%s", options ? options : "",
             device_facts()->subgroup ? " -Dcl_khr_subgroups=1 -Dcl_khr_subgroup_shuffle=1" : "");
    build_flags(words, flag, MOST);
    module_close(p->module);
    p->module = build_module(&language_opencl, p->text, flag, p->log, sizeof p->log);
    if (!p->module)
        report_build(p->log);
    return p->module ? SUCCESS : BUILD_PROGRAM_FAILURE;
}

static int32_t kernel_names(const struct program *p, size_t size, void *to, size_t *need)
{
    struct text names = {NULL, 0, 0};
    text_add(&names, "%s", "");
    for (int i = 0; i < p->module->nkernel; i++)
        text_add(&names, "%s%s", i ? ";" : "", p->module->kernel[i].signature.name);
    const int32_t status = answer_text(names.s, size, to, need);
    free(names.s);
    return status;
}

static int32_t program_binary(struct program *p, bool is_size, size_t size, void *to, size_t *need)
{
    if (!p->module)
        return misuse(INVALID_PROGRAM_EXECUTABLE, "program %u is not built", p->o.number);
    if (!p->binary && !(p->binary = build_binary(p->module, &p->nbinary)))
        return OUT_OF_HOST_MEMORY;
    if (is_size)
        return answer_number(p->nbinary, 8, size, to, need);
    if (need)
        *need = sizeof(void *);
    if (to && size < sizeof(void *))
        return misuse(INVALID_VALUE, "%zu bytes for a pointer", size);
    if (to && *(void **)to)
        memcpy(*(void **)to, p->binary, p->nbinary);
    return SUCCESS;
}

static int32_t program_info(void *handle, uint32_t what, size_t size, void *to, size_t *need)
{
    enum {
        REFERENCES = 0x1160,
        CONTEXT,
        NDEVICE,
        DEVICES,
        SOURCE,
        SIZES,
        BINARIES,
        NKERNEL,
        NAMES
    };
    struct program *p = object_find(handle, KIND_PROGRAM);
    void *device = &the_device;
    if (!p)
        return INVALID_PROGRAM;
    if (what >= NKERNEL && !p->module)
        return misuse(INVALID_PROGRAM_EXECUTABLE, "program %u is not built", p->o.number);
    switch (what) {
    case REFERENCES:
        return answer_number((uint64_t)p->o.references, 4, size, to, need);
    case CONTEXT:
        return answer(&p->context, sizeof p->context, size, to, need);
    case NDEVICE:
        return answer_number(1, 4, size, to, need);
    case DEVICES:
        return answer(&device, sizeof device, size, to, need);
    case SOURCE:
        return answer_text(p->text ? p->text : "", size, to, need);
    case SIZES:
        return program_binary(p, true, size, to, need);
    case BINARIES:
        return program_binary(p, false, size, to, need);
    case NKERNEL:
        return answer_number((uint64_t)p->module->nkernel, 8, size, to, need);
    case NAMES:
        return kernel_names(p, size, to, need);
    default:
        return misuse(INVALID_VALUE, "unknown query 0x%x", what);
    }
}

static int32_t build_info(void *handle, void *device, uint32_t what, size_t size, void *to,
                          size_t *need)
{
    enum { STATUS = 0x1181, OPTIONS, LOG, BINARY_TYPE, NONE = -1, ERROR = -2, EXECUTABLE = 4 };
    const struct program *p = object_find(handle, KIND_PROGRAM);
    if (!p || device != &the_device)
        return p ? INVALID_DEVICE : INVALID_PROGRAM;
    const int32_t status = p->module ? SUCCESS : p->is_tried ? ERROR : NONE;
    switch (what) {
    case STATUS:
        return answer(&status, sizeof status, size, to, need);
    case OPTIONS:
        return answer_text("", size, to, need);
    case LOG:
        return answer_text(p->log, size, to, need);
    case BINARY_TYPE:
        return answer_number(p->module ? EXECUTABLE : 0, 4, size, to, need);
    default:
        return misuse(INVALID_VALUE, "unknown query 0x%x", what);
    }
}

/* -------------------------------------------------------------------------------------- kernels */

static void end_kernel(struct object *o)
{
    struct cl_kernel *k = (struct cl_kernel *)o;
    k->program->nkernel--;
    object_let(&k->program->o);
}

static int32_t create_kernel(void *handle, const char *name, void **made)
{
    struct program *p = object_find(handle, KIND_PROGRAM);
    if (!p)
        return INVALID_PROGRAM;
    if (!p->module || !p->is_tried)
        return misuse(INVALID_PROGRAM_EXECUTABLE, "program %u is not built", p->o.number);
    for (int i = 0; name && i < p->module->nkernel; i++) {
        if (strcmp(p->module->kernel[i].signature.name, name) != 0)
            continue;
        struct cl_kernel *k = object_create(KIND_KERNEL, sizeof *k, end_kernel);
        if (!k)
            return OUT_OF_HOST_MEMORY;
        k->program = p;
        k->code = &p->module->kernel[i];
        p->nkernel++;
        object_hold(&p->o);
        *made = k;
        return SUCCESS;
    }
    return misuse(INVALID_KERNEL_NAME, "no kernel '%s'", name ? name : "");
}

static bool is_memory(enum parameter_kind kind)
{
    return kind == PARAMETER_GLOBAL || kind == PARAMETER_CONSTANT || kind == PARAMETER_IMAGE;
}

/* The size and, for what handles are, whether it is one. */
static int32_t check_argument(const struct cl_kernel *k, uint32_t i, size_t nbytes,
                              const void *value)
{
    const struct signature *s = &k->code->signature;
    const struct parameter *a = &s->parameter[i];
    const size_t wanted = a->kind == PARAMETER_VALUE ? k->code->nbytes[i] : sizeof(void *);
    if (a->kind == PARAMETER_LOCAL)
        return nbytes == 0 || value ? misuse(value ? INVALID_ARG_VALUE : INVALID_ARG_SIZE,
                                             "%s: argument %u '%s' is local memory: a size alone",
                                             s->name, i, a->name)
                                    : SUCCESS;
    if (nbytes != wanted)
        return misuse(INVALID_ARG_SIZE, "%s: argument %u '%s' has %zu bytes, not %zu", s->name, i,
                      a->name, wanted, nbytes);
    if (!value)
        return misuse(INVALID_ARG_VALUE, "%s: argument %u '%s' has no value", s->name, i, a->name);
    if (a->kind == PARAMETER_VALUE)
        return SUCCESS;
    void *handle;
    memcpy(&handle, value, sizeof handle);
    if (a->kind == PARAMETER_SAMPLER)
        return object_find(handle, KIND_SAMPLER) ? SUCCESS : INVALID_SAMPLER;
    const struct cl_memory *m = handle ? object_find(handle, KIND_MEMORY) : NULL;
    if (handle && !m)
        return INVALID_MEM_OBJECT;
    if (m ? m->is_image != (a->kind == PARAMETER_IMAGE) : a->kind == PARAMETER_IMAGE)
        return misuse(INVALID_ARG_VALUE, "%s: argument %u '%s' is %s image", s->name, i, a->name,
                      a->kind == PARAMETER_IMAGE ? "an" : "no");
    return SUCCESS;
}

static int32_t set_argument(void *handle, uint32_t i, size_t nbytes, const void *value)
{
    struct cl_kernel *k = object_find(handle, KIND_KERNEL);
    if (!k)
        return INVALID_KERNEL;
    if (i >= (uint32_t)k->code->signature.n)
        return misuse(INVALID_ARG_INDEX, "%s has %d arguments, none %u", k->code->signature.name,
                      k->code->signature.n, i);
    const int32_t status = check_argument(k, i, nbytes, value);
    struct argument *a = &k->argument[i];
    if (status != SUCCESS)
        return status;
    if (value && nbytes > sizeof a->value)
        return misuse(INVALID_ARG_SIZE, "%zu bytes are more than are emulated", nbytes);
    a->is_set = true;
    a->nbytes = nbytes;
    if (value)
        memcpy(a->value, value, nbytes);
    return SUCCESS;
}

static int32_t kernel_info(void *handle, uint32_t what, size_t size, void *to, size_t *need)
{
    enum { NAME = 0x1190, COUNT, REFERENCES, CONTEXT, PROGRAM };
    const struct cl_kernel *k = object_find(handle, KIND_KERNEL);
    if (!k)
        return INVALID_KERNEL;
    switch (what) {
    case NAME:
        return answer_text(k->code->signature.name, size, to, need);
    case COUNT:
        return answer_number((uint64_t)k->code->signature.n, 4, size, to, need);
    case REFERENCES:
        return answer_number((uint64_t)k->o.references, 4, size, to, need);
    case CONTEXT:
        return answer(&k->program->context, sizeof(void *), size, to, need);
    case PROGRAM:
        return answer(&k->program, sizeof(void *), size, to, need);
    default:
        return misuse(INVALID_VALUE, "unknown query 0x%x", what);
    }
}

static size_t local_bytes(const struct cl_kernel *k)
{
    size_t n = k->code->local;
    for (int i = 0; i < k->code->signature.n; i++)
        if (k->code->signature.parameter[i].kind == PARAMETER_LOCAL)
            n += k->argument[i].nbytes;
    return n;
}

static int32_t group_info(void *handle, void *device, uint32_t what, size_t size, void *to,
                          size_t *need)
{
    enum { MOST = 0x11b0, REQUIRED, LOCAL, MULTIPLE, PRIVATE };
    const struct cl_kernel *k = object_find(handle, KIND_KERNEL);
    if (!k || (device && device != &the_device))
        return k ? INVALID_DEVICE : INVALID_KERNEL;
    switch (what) {
    case MOST:
        return answer_number((uint64_t)device_facts()->group, 8, size, to, need);
    case REQUIRED:
        return answer(k->code->signature.block, 3 * sizeof(size_t), size, to, need);
    case LOCAL:
        return answer_number(local_bytes(k), 8, size, to, need);
    case MULTIPLE:
        return answer_number((uint64_t)device_facts()->subgroup, 8, size, to, need);
    case PRIVATE:
        return answer_number(0, 8, size, to, need);
    default:
        return misuse(INVALID_VALUE, "unknown query 0x%x", what);
    }
}

/* ------------------------------------------------------------------------------------- launches */

int32_t launch_prepare(struct prepared *p, struct cl_kernel *k)
{
    const struct signature *s = &k->code->signature;
    *p = (struct prepared){.kernel = k};
    for (int i = 0; i < s->n; i++) {
        if (!k->argument[i].is_set)
            return misuse(INVALID_KERNEL_ARGS, "%s: argument %d '%s' was not set", s->name, i,
                          s->parameter[i].name);
        p->argument[i] = k->argument[i];
        if (!is_memory(s->parameter[i].kind))
            continue;
        void *handle;
        memcpy(&handle, k->argument[i].value, sizeof handle);
        struct cl_memory *m = handle ? object_find(handle, KIND_MEMORY) : NULL;
        if (handle && !m)
            return INVALID_MEM_OBJECT;
        if (m && memory_is_mapped(m))
            return misuse(INVALID_OPERATION,
                          "%s: argument %d '%s' is mapped by the host, which may write it", s->name,
                          i, s->parameter[i].name);
        p->memory[i] = m;
        for (struct cl_memory *of = m; of; of = of->parent)
            of->is_used = true;
    }
    if (local_bytes(k) > (size_t)device_facts()->local)
        return misuse(OUT_OF_RESOURCES, "%s takes %zu bytes of local memory, the device has %ld",
                      s->name, local_bytes(k), device_facts()->local);
    object_hold(&k->o);
    for (int i = 0; i < s->n; i++)
        if (p->memory[i])
            object_hold(&p->memory[i]->o);
    return SUCCESS;
}

void launch_end(struct prepared *p)
{
    for (int i = 0; i < p->kernel->code->signature.n; i++)
        if (p->memory[i])
            object_let(&p->memory[i]->o);
    object_let(&p->kernel->o);
}

static struct window *add_window(struct launch *l, struct memory *m, size_t from, size_t nbytes,
                                 const char *name)
{
    if (l->nwindow == MAX_WINDOWS)
        return NULL;
    struct window *w = &l->window[l->nwindow++];
    *w = (struct window){.memory = m, .from = from, .to = from + nbytes};
    snprintf(w->name, sizeof w->name, "%s", name);
    return w;
}

/* An argument as a work-item gets it. */
struct passed {
    void *pointer;
    struct image image;
    struct memory local;
};

/* Memory of the launch's own, for a local argument. */
static bool pass_local(struct launch *l, const struct parameter *a, size_t nbytes,
                       struct passed *to)
{
    to->pointer = malloc(nbytes);
    struct window *w = to->pointer && memory_create(&to->local, to->pointer, nbytes)
                           ? add_window(l, &to->local, 0, nbytes, a->name)
                           : NULL;
    if (w)
        w->in_shared = w->is_writable = true;
    return w != NULL;
}

/* The window is the tensor's, if the text says where in the memory that is, or else the object's.
 */
static bool pass_memory(struct launch *l, const struct prepared *p, int i, struct passed *to)
{
    const struct signature *s = &p->kernel->code->signature;
    const struct parameter *a = &s->parameter[i];
    const struct cl_memory *m = p->memory[i];
    struct launch_values v = {.signature = s, .items = p->global[0], .threads = p->block[0]};
    size_t from, begin = 0, nbytes = m->nbytes;
    for (int k = 0; k < s->n; k++)
        v.value[k] = s->parameter[k].kind == PARAMETER_VALUE ? p->argument[k].value : NULL;
    struct memory *memory = memory_of(m, &from);
    if (tensor_extent(&v, i, &begin, &nbytes) && (begin > m->nbytes || nbytes > m->nbytes - begin))
        report("%s: argument %d '%s' has its bytes %zu..%zu in memory of %zu", s->name, i, a->name,
               begin, begin + nbytes, m->nbytes);
    struct window *w = add_window(l, memory, from + begin, nbytes, a->name);
    if (!w)
        return false;
    w->is_writable = !a->is_const && a->kind != PARAMETER_CONSTANT && !(m->flags & MEM_READ_ONLY);
    to->pointer = memory->at + from;
    if (a->kind == PARAMETER_IMAGE) {
        to->image = m->image;
        to->image.memory = memory;
        to->image.from = from;
        snprintf(to->image.name, sizeof to->image.name, "%s", a->name);
        to->pointer = &to->image;
    }
    return true;
}

static bool pass(struct launch *l, struct prepared *p, int i, struct passed *to, void **argument)
{
    const struct parameter *a = &p->kernel->code->signature.parameter[i];
    void *handle;
    *argument = &to->pointer;
    if (p->memory[i])
        return pass_memory(l, p, i, to);
    switch (a->kind) {
    case PARAMETER_LOCAL:
        return pass_local(l, a, p->argument[i].nbytes, to);
    case PARAMETER_SAMPLER:
        memcpy(&handle, p->argument[i].value, sizeof handle);
        to->pointer = (void *)(uintptr_t)((struct sampler *)handle)->bits;
        return true;
    case PARAMETER_VALUE:
        *argument = p->argument[i].value;
        return true;
    default:
        return true; /* no buffer: a null pointer */
    }
}

/* What a kernel stores is no part of an image that it has: reads of pixels do not see it. */
static bool images_are_apart(const struct prepared *p)
{
    const struct signature *s = &p->kernel->code->signature;
    for (int i = 0; i < s->n; i++)
        for (int j = 0; j < s->n; j++) {
            const struct cl_memory *image = p->memory[i], *other = p->memory[j];
            size_t from, at;
            if (i == j || !image || !other || !image->is_image || s->parameter[j].is_const ||
                memory_of(image, &from) != memory_of(other, &at) || from >= at + other->nbytes ||
                at >= from + image->nbytes)
                continue;
            report("%s: '%s' may be stored, and '%s' is an image of the same bytes", s->name,
                   s->parameter[j].name, s->parameter[i].name);
            return false;
        }
    return true;
}

bool launch_go(struct prepared *p)
{
    const struct kernel_code *code = p->kernel->code;
    struct launch *l = calloc(1, sizeof *l);
    struct passed *passed = calloc(MAX_PARAMETERS, sizeof *passed);
    void *argument[MAX_PARAMETERS] = {NULL};
    bool done = l && passed && images_are_apart(p);
    for (int i = 0; done && i < code->signature.n; i++)
        done = pass(l, p, i, &passed[i], &argument[i]);
    const struct module *m = p->kernel->program->module;
    for (int i = 0; done && i < m->nlocal; i++) {
        if (strcmp(m->local[i].kernel, code->signature.name) != 0)
            continue;
        struct window *w =
            add_window(l, m->local[i].memory, 0, m->local[i].memory->nbytes, m->local[i].name);
        done = w != NULL;
        if (w)
            w->in_shared = w->is_writable = true;
    }
    if (done) {
        l->module = m;
        l->kernel = code;
        l->argument = argument;
        l->order = p->order;
        l->dimensions = (int)p->dimensions;
        memcpy(l->offset, p->offset, sizeof l->offset);
        memcpy(l->global, p->global, sizeof l->global);
        memcpy(l->block, p->block, sizeof l->block);
        l->nsubgroup = device_facts()->subgroup > 0 ? (uint32_t)device_facts()->subgroup : 1;
        done = launch_run(l);
    } else if (!l || !passed)
        report("%s: no memory for a launch", code->signature.name);
    for (int i = 0; passed && i < code->signature.n; i++)
        if (passed[i].local.at) {
            memory_release(&passed[i].local);
            free(passed[i].pointer);
        }
    free(passed);
    free(l);
    return done;
}

/* ------------------------------------------------------------------------------------ functions */

static void *finish(enum call call, enum kind kind, int32_t status, void *made, int32_t *error)
{
    if (status != SUCCESS && made) {
        object_release(made, kind);
        made = NULL;
    }
    if (error)
        *error = status;
    leave(call, status);
    return made;
}

API void *clCreateProgramWithSource(void *context, uint32_t count, const char *const *text,
                                    const size_t *length, int32_t *error);
void *clCreateProgramWithSource(void *context, uint32_t count, const char *const *text,
                                const size_t *length, int32_t *error)
{
    void *made = NULL;
    int32_t status = enter(CALL_clCreateProgramWithSource);
    if (status == SUCCESS)
        status = from_source(context, count, text, length, &made);
    return finish(CALL_clCreateProgramWithSource, KIND_PROGRAM, status, made, error);
}

API void *clCreateProgramWithBinary(void *context, uint32_t count, void *const *device,
                                    const size_t *nbytes, const unsigned char *const *binary,
                                    int32_t *each, int32_t *error);
void *clCreateProgramWithBinary(void *context, uint32_t count, void *const *device,
                                const size_t *nbytes, const unsigned char *const *binary,
                                int32_t *each, int32_t *error)
{
    void *made = NULL;
    int32_t status = enter(CALL_clCreateProgramWithBinary);
    if (status == SUCCESS)
        status = from_binary(context, count, device, nbytes, binary, each, &made);
    return finish(CALL_clCreateProgramWithBinary, KIND_PROGRAM, status, made, error);
}

API int32_t clBuildProgram(void *program, uint32_t count, void *const *device, const char *options,
                           void (*notify)(void *, void *), void *user);
int32_t clBuildProgram(void *program, uint32_t count, void *const *device, const char *options,
                       void (*notify)(void *, void *), void *user)
{
    int32_t status = enter(CALL_clBuildProgram);
    if (status == SUCCESS)
        status = build(program, count, device, options);
    leave(CALL_clBuildProgram, status);
    if (notify)
        notify(program, user);
    return status;
}

API int32_t clGetProgramInfo(void *program, uint32_t what, size_t size, void *to, size_t *need);
int32_t clGetProgramInfo(void *program, uint32_t what, size_t size, void *to, size_t *need)
{
    int32_t status = enter(CALL_clGetProgramInfo);
    if (status == SUCCESS)
        status = program_info(program, what, size, to, need);
    return leave(CALL_clGetProgramInfo, status);
}

API int32_t clGetProgramBuildInfo(void *program, void *device, uint32_t what, size_t size, void *to,
                                  size_t *need);
int32_t clGetProgramBuildInfo(void *program, void *device, uint32_t what, size_t size, void *to,
                              size_t *need)
{
    int32_t status = enter(CALL_clGetProgramBuildInfo);
    if (status == SUCCESS)
        status = build_info(program, device, what, size, to, need);
    return leave(CALL_clGetProgramBuildInfo, status);
}

API void *clCreateKernel(void *program, const char *name, int32_t *error);
void *clCreateKernel(void *program, const char *name, int32_t *error)
{
    void *made = NULL;
    int32_t status = enter(CALL_clCreateKernel);
    if (status == SUCCESS)
        status = create_kernel(program, name, &made);
    return finish(CALL_clCreateKernel, KIND_KERNEL, status, made, error);
}

API int32_t clSetKernelArg(void *kernel, uint32_t index, size_t size, const void *value);
int32_t clSetKernelArg(void *kernel, uint32_t index, size_t size, const void *value)
{
    int32_t status = enter(CALL_clSetKernelArg);
    if (status == SUCCESS)
        status = set_argument(kernel, index, size, value);
    return leave(CALL_clSetKernelArg, status);
}

API int32_t clGetKernelInfo(void *kernel, uint32_t what, size_t size, void *to, size_t *need);
int32_t clGetKernelInfo(void *kernel, uint32_t what, size_t size, void *to, size_t *need)
{
    int32_t status = enter(CALL_clGetKernelInfo);
    if (status == SUCCESS)
        status = kernel_info(kernel, what, size, to, need);
    return leave(CALL_clGetKernelInfo, status);
}

API int32_t clGetKernelWorkGroupInfo(void *kernel, void *device, uint32_t what, size_t size,
                                     void *to, size_t *need);
int32_t clGetKernelWorkGroupInfo(void *kernel, void *device, uint32_t what, size_t size, void *to,
                                 size_t *need)
{
    int32_t status = enter(CALL_clGetKernelWorkGroupInfo);
    if (status == SUCCESS)
        status = group_info(kernel, device, what, size, to, need);
    return leave(CALL_clGetKernelWorkGroupInfo, status);
}
