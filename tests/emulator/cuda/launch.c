/* SPDX-License-Identifier: 0BSD */
/* launch.c - modules, launches, graphs. What the driver gets are PTX and machine code, which nobody
 * here can run: the kernels' text that they were made of, which `tgc -o NAME.cu` or NAME.hip
 * writes, is in the file $TGC_EMULATOR_CUDA or $TGC_EMULATOR_AMD.
 */
#define _GNU_SOURCE
#include "driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -------------------------------------------------------------------------------------- modules */

struct module_of {
    struct object o;
    struct module *module;
};

static void end_module(struct object *o) { module_close(((struct module_of *)o)->module); }

static char *read_text(void)
{
    const char *path = getenv(own_text);
    FILE *file = path ? fopen(path, "rb") : NULL;
    char *text = NULL;
    size_t n = 0;
    if (file && getdelim(&text, &n, 0, file) < 0) {
        free(text);
        text = NULL;
    }
    if (file)
        fclose(file);
    return text;
}

/* Whether the last module was machine code. */
API int emulator_is_code(void);
static bool is_code;
int emulator_is_code(void) { return is_code; }

static int32_t load(void **made, const char *image)
{
    static char log[4096];
    const char *const flags[] = {device_facts()->is_placed ? "-DTGC_PLACED=232448" : NULL, NULL};
    char *text = read_text();
    int32_t status =
        text ? own_check_image(image, text) : misuse(INVALID_IMAGE, "$%s is no file", own_text);
    is_code = memcmp(image, "\x7f" "ELF", 4) == 0;
    struct module_of *m =
        status == SUCCESS ? object_create(KIND_MODULE, sizeof *m, end_module) : NULL;
    if (m) {
        m->module = build_module(own_language, text, flags, log, sizeof log);
        if (!m->module)
            status = misuse(INVALID_IMAGE, "%.1500s", log);
        for (int i = 0; m->module && i < m->module->nkernel && status == SUCCESS; i++)
            status = own_check_kernel(image, &m->module->kernel[i].signature,
                                      m->module->kernel[i].nbytes);
        if (status != SUCCESS) {
            object_end(&m->o);
            m = NULL;
        }
    }
    free(text);
    *made = m;
    return m || status != SUCCESS ? status : OUT_OF_MEMORY;
}

API int32_t cuModuleLoadDataEx(void **module, const void *image, unsigned count, int *option,
                               void **value);
int32_t cuModuleLoadDataEx(void **module, const void *image, unsigned count, int *option,
                           void **value)
{
    int32_t status = in_context(CALL_cuModuleLoadDataEx);
    (void)count, (void)option, (void)value;
    *module = NULL;
    if (status == SUCCESS)
        status = load(module, image);
    return leave(CALL_cuModuleLoadDataEx, status);
}

API int32_t cuModuleUnload(void *module);
int32_t cuModuleUnload(void *module)
{
    return object_destroy(CALL_cuModuleUnload, module, KIND_MODULE);
}

/* A function is its code; its module is found by it. */
API int32_t cuModuleGetFunction(void **function, void *module, const char *name);
int32_t cuModuleGetFunction(void **function, void *module, const char *name)
{
    int32_t status = in_context(CALL_cuModuleGetFunction);
    const struct module_of *m = status == SUCCESS ? object_find(module, KIND_MODULE) : NULL;
    *function = NULL;
    for (int i = 0; m && i < m->module->nkernel; i++)
        if (strcmp(m->module->kernel[i].signature.name, name) == 0)
            *function = &m->module->kernel[i];
    if (status == SUCCESS && !*function)
        status = m ? misuse(NOT_FOUND, "no kernel '%s'", name) : INVALID_HANDLE;
    return leave(CALL_cuModuleGetFunction, status);
}

API int32_t cuFuncGetAttribute(int *value, int what, void *function);
int32_t cuFuncGetAttribute(int *value, int what, void *function)
{
    const int32_t status = in_context(CALL_cuFuncGetAttribute);
    const struct kernel_code *code = function;
    enum { THREADS, SHARED };
    *value = what == THREADS ? (int)device_facts()->group : what == SHARED ? (int)code->local : 0;
    return leave(CALL_cuFuncGetAttribute, status);
}

/* ------------------------------------------------------------------------------------- launches */

/* The memory of an argument; a tensor without elements may begin at its end. */
static struct device_memory *memory_of(uint64_t at)
{
    struct device_memory *m = memory_find(at);
    return m || at == 0 ? m : memory_find(at - 1);
}

/* The module of a function; NULL: it is none. */
static const struct module *find_module(const void *function)
{
    for (const struct object *o = objects_live(); o; o = o->next) {
        const struct module_of *m = (const struct module_of *)o;
        for (int i = 0; o->kind == KIND_MODULE && i < m->module->nkernel; i++)
            if (&m->module->kernel[i] == function)
                return m->module;
    }
    return NULL;
}

static int32_t check_sizes(const struct kernel_node *n, const struct kernel_code *code)
{
    enum { MOST_X = 0x7fffffff, MOST = 65535 };
    const struct device_facts *d = device_facts();
    const char *name = code->signature.name;
    size_t items = 1, all = 1, cluster = 1;
    for (int a = 0; a < 3; a++) {
        if (n->groups[a] == 0 || n->block[a] == 0)
            return misuse(INVALID_VALUE, "%s: no threads along axis %d", name, a);
        if (n->groups[a] > (a ? MOST : MOST_X))
            return misuse(INVALID_VALUE, "%s: %u blocks along axis %d", name, n->groups[a], a);
        if (code->signature.cluster[a] && n->groups[a] % code->signature.cluster[a])
            return misuse(INVALID_VALUE, "%s: %u blocks along axis %d are no whole clusters of %zu",
                          name, n->groups[a], a, code->signature.cluster[a]);
        cluster *= code->signature.cluster[a] ? code->signature.cluster[a] : 1;
        items *= n->block[a];
        all *= (size_t)n->block[a] * n->groups[a];
    }
    if (items > (size_t)d->group || (code->signature.bound && items > code->signature.bound))
        return misuse(INVALID_VALUE,
                      "%s: a block of %zu threads, it is bound to %zu and the device to %ld", name,
                      items, code->signature.bound, d->group);
    if (cluster > CLUSTER_MOST)
        return misuse(INVALID_VALUE, "%s: clusters of %zu blocks, the device has up to %d", name,
                      cluster, CLUSTER_MOST);
    if (n->shared_bytes == 0 && code->local > (size_t)d->local && code->local > own_shared)
        return misuse(LAUNCH_OUT_OF_RESOURCES, "%s takes %zu bytes of shared memory", name,
                      code->local);
    if (n->shared_bytes > own_shared && n->shared_bytes > code->allowed)
        return misuse(
            INVALID_VALUE,
            "%s: the launch names %u bytes of shared memory, and its function was told %zu", name,
            n->shared_bytes, code->allowed);
    if (n->shared_bytes && n->shared_bytes < code->local)
        return misuse(INVALID_VALUE,
                      "%s: the launch names %u bytes of shared memory, and it has %zu", name,
                      n->shared_bytes, code->local);
    return all < (size_t)1 << 24
               ? SUCCESS
               : misuse(INVALID_VALUE, "%s: %zu threads are more than are emulated", name, all);
}

/* The arguments are copied: who launches may change them. */
static int32_t prepare(struct launch_of *l, const struct kernel_node *n)
{
    const struct kernel_code *code = n->function;
    *l = (struct launch_of){.code = code, .module = find_module(code)};
    if (!l->module)
        return misuse(INVALID_HANDLE, "%p is no function of a module that is loaded", n->function);
    if (n->extra || !n->parameters)
        return misuse(INVALID_VALUE, "%s: parameters as the emulator has not",
                      code->signature.name);
    const int32_t status = check_sizes(n, code);
    memcpy(l->groups, n->groups, sizeof l->groups);
    memcpy(l->block, n->block, sizeof l->block);
    for (int i = 0; i < code->signature.n && status == SUCCESS; i++) {
        if (code->nbytes[i] == MAP_NBYTES && l->nmap < MAX_MAPS) {
            l->value[i] = (uint64_t)l->nmap;
            memcpy(&l->map[l->nmap++], n->parameters[i], sizeof *l->map);
            if (l->map[l->value[i]].magic != TENSOR_MAP)
                return misuse(INVALID_VALUE, "%s: argument %d is no tensor map",
                              code->signature.name, i);
            continue;
        }
        if (code->nbytes[i] > sizeof l->value[i])
            return misuse(INVALID_VALUE, "%s: argument %d has %zu bytes", code->signature.name, i,
                          (size_t)code->nbytes[i]);
        memcpy(&l->value[i], n->parameters[i], code->nbytes[i]);
        if (code->signature.parameter[i].kind == PARAMETER_GLOBAL && !memory_of(l->value[i]))
            return misuse(INVALID_VALUE, "%s: argument %d '%s' is no address of the device's",
                          code->signature.name, i, code->signature.parameter[i].name);
    }
    return status;
}

API int32_t cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                           unsigned by, unsigned bz, unsigned shared_bytes, void *stream,
                           void **parameters, void **extra);
int32_t cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                       unsigned by, unsigned bz, unsigned shared_bytes, void *stream,
                       void **parameters, void **extra)
{
    const struct kernel_node n = {.function = function,
                                  .groups = {gx, gy, gz},
                                  .block = {bx, by, bz},
                                  .shared_bytes = shared_bytes,
                                  .parameters = parameters,
                                  .extra = extra};
    struct command c = {.work = WORK_LAUNCH};
    int32_t status = in_context(CALL_cuLaunchKernel);
    if (status == SUCCESS)
        status = prepare(&c.launch, &n);
    if (status == SUCCESS)
        status = stream_add(stream, &c);
    return leave(CALL_cuLaunchKernel, status);
}

/* An argument that points to memory has a window there: the tensor, if the text says how long it
 * is. */
static bool pass(struct launch *l, const struct launch_of *c, int i)
{
    const struct parameter *a = &c->code->signature.parameter[i];
    struct launch_values v = {.signature = &c->code->signature,
                              .items = (size_t)c->groups[0] * c->block[0],
                              .threads = c->block[0],
                              .is_pointer = true};
    const struct device_memory *m = a->kind == PARAMETER_GLOBAL ? memory_of(c->value[i]) : NULL;
    if (a->kind != PARAMETER_GLOBAL)
        return true;
    if (!m || l->nwindow == MAX_WINDOWS) {
        report("%s: the memory of argument %d '%s' was freed before it has run",
               c->code->signature.name, i, a->name);
        return false;
    }
    for (int k = 0; k < v.signature->n; k++)
        v.value[k] = v.signature->parameter[k].kind == PARAMETER_VALUE
                         ? (const unsigned char *)&c->value[k]
                         : NULL;
    const size_t from = (size_t)(c->value[i] - (uintptr_t)m->memory.at),
                 room = m->memory.nbytes - from;
    size_t begin = 0, nbytes = room;
    if (tensor_extent(&v, i, &begin, &nbytes) && nbytes > room)
        report("%s: argument %d '%s' has %zu bytes where memory ends after %zu",
               c->code->signature.name, i, a->name, nbytes, room);
    struct window *w = &l->window[l->nwindow++];
    *w = (struct window){.memory = (struct memory *)&m->memory, .from = from, .to = from + nbytes,
                         .is_writable = !a->is_const};
    snprintf(w->name, sizeof w->name, "%s", a->name);
    return true;
}

static bool pass_shared(struct launch *l, const struct local_array *a)
{
    if (l->nwindow == MAX_WINDOWS)
        return false;
    struct window *w = &l->window[l->nwindow++];
    *w = (struct window){
        .memory = a->memory, .to = a->memory->nbytes, .in_shared = true, .is_writable = true};
    snprintf(w->name, sizeof w->name, "%s", a->name);
    return true;
}

bool launch_go(const struct launch_of *c)
{
    struct launch *l = calloc(1, sizeof *l);
    void *argument[MAX_PARAMETERS] = {NULL};
    union { struct tensor_map of; _Alignas(64) unsigned char bytes[MAP_NBYTES]; } map[MAX_MAPS];
    for (int i = 0; i < c->nmap; i++)
        map[i].of = c->map[i];
    bool done = l != NULL;
    for (int i = 0; done && i < c->code->signature.n; i++) {
        const bool is_map = c->code->nbytes[i] == MAP_NBYTES;
        argument[i] = is_map ? (void *)&map[c->value[i]] : (void *)(uintptr_t)&c->value[i];
        done = pass(l, c, i);
    }
    for (int i = 0; done && i < c->module->nlocal; i++)
        if (strcmp(c->module->local[i].kernel, c->code->signature.name) == 0)
            done = pass_shared(l, &c->module->local[i]);
    if (done) {
        l->module = c->module;
        l->kernel = c->code;
        l->argument = argument;
        l->dimensions = 3;
        for (int a = 0; a < 3; a++) {
            l->block[a] = c->block[a];
            l->global[a] = (size_t)c->groups[a] * c->block[a];
        }
        l->nsubgroup = own_wave();
        l->order = c->order.several ? &c->order : NULL;
        done = launch_run(l);
    }
    free(l);
    return done;
}

/* --------------------------------------------------------------------------------------- graphs */

struct node {
    struct node *next; /* the one that was added after it */
    enum work work;
    struct launch_of launch;
    void *host; /* of a copy, as in a command */
    uint64_t at;
    size_t nbytes;
    int *behind, count; /* the nodes before it, by their numbers in the order of addition */
    bool is_done;       /* in a launch of the graph */
};
struct graph {
    struct object o;
    struct node *first, *last;
};

static struct node *node_at(const struct graph *g, int i)
{
    struct node *n = g->first;
    while (n && i-- > 0)
        n = n->next;
    return n;
}

/* -1: it is none of the graph's */
static int number_of(const struct graph *g, const struct node *node)
{
    int i = 0;
    for (const struct node *n = g->first; n; n = n->next, i++)
        if (n == node)
            return i;
    return -1;
}

static void end_graph(struct object *o)
{
    for (struct node *n = ((struct graph *)o)->first, *next; n; n = next) {
        next = n->next;
        free(n->behind);
        free(n);
    }
}

API int32_t cuGraphCreate(void **graph, unsigned flags);
int32_t cuGraphCreate(void **graph, unsigned flags)
{
    int32_t status = in_context(CALL_cuGraphCreate);
    struct graph *g = status == SUCCESS ? object_create(KIND_GRAPH, sizeof *g, end_graph) : NULL;
    if (status == SUCCESS && flags)
        status = misuse(INVALID_VALUE, "flags are 0");
    *graph = g;
    return leave(CALL_cuGraphCreate, g || status != SUCCESS ? status : OUT_OF_MEMORY);
}

static struct node *append(struct graph *g, const int *behind, int count)
{
    struct node *n = calloc(1, sizeof *n);
    if (n)
        n->behind = calloc((size_t)count + 1, sizeof *n->behind);
    if (n && !n->behind) {
        free(n);
        n = NULL;
    }
    if (n) {
        for (int i = 0; i < count; i++)
            n->behind[i] = behind[i];
        n->count = count;
        *(g->first ? &g->last->next : &g->first) = n;
        g->last = n;
    }
    return n;
}

struct graph *graph_create(void)
{
    return object_create(KIND_GRAPH, sizeof(struct graph), end_graph);
}

bool graph_append(struct graph *g, const struct command *c)
{
    const int last = number_of(g, g->last);
    struct node *n = append(g, &last, last >= 0);
    if (n) {
        n->work = c->work;
        n->launch = c->launch;
        n->host = c->host;
        n->at = c->at;
        n->nbytes = c->nbytes;
    }
    return n != NULL;
}

API int32_t cuGraphAddKernelNode(void **node, void *graph, void *const *after, size_t count,
                                 const struct kernel_node *kernel);
int32_t cuGraphAddKernelNode(void **node, void *graph, void *const *after, size_t count,
                             const struct kernel_node *kernel)
{
    int32_t status = in_context(CALL_cuGraphAddKernelNode);
    struct graph *g = status == SUCCESS ? object_find(graph, KIND_GRAPH) : NULL;
    struct launch_of launch;
    int *behind = calloc(count + 1, sizeof *behind);
    *node = NULL;
    if (!behind)
        status = OUT_OF_MEMORY;
    if (status == SUCCESS && !g)
        status = INVALID_HANDLE;
    for (size_t i = 0; i < count && status == SUCCESS; i++) {
        behind[i] = number_of(g, after[i]);
        if (behind[i] < 0)
            status = misuse(INVALID_VALUE, "%p is no node of the graph", after[i]);
    }
    if (status == SUCCESS)
        status = own_check_graph();
    if (status == SUCCESS)
        status = prepare(&launch, kernel);
    struct node *n = status == SUCCESS ? append(g, behind, (int)count) : NULL;
    free(behind);
    if (n)
        n->launch = launch;
    *node = n;
    return leave(CALL_cuGraphAddKernelNode, n || status != SUCCESS ? status : OUT_OF_MEMORY);
}

API int32_t cuGraphInstantiateWithFlags(void **list, void *graph, unsigned long long flags);
int32_t cuGraphInstantiateWithFlags(void **list, void *graph, unsigned long long flags)
{
    int32_t status = in_context(CALL_cuGraphInstantiateWithFlags);
    const struct graph *g = status == SUCCESS ? object_find(graph, KIND_GRAPH) : NULL;
    struct graph *made = g ? object_create(KIND_LIST, sizeof *made, end_graph) : NULL;
    if (flags)
        status = misuse(INVALID_VALUE, "flags are 0");
    for (const struct node *n = g ? g->first : NULL; n && made; n = n->next) {
        struct node *copy = append(made, n->behind, n->count);
        if (!copy)
            continue;
        copy->work = n->work;
        copy->launch = n->launch;
        copy->host = n->host;
        copy->at = n->at;
        copy->nbytes = n->nbytes;
    }
    *list = made;
    return leave(CALL_cuGraphInstantiateWithFlags,
                 made || status != SUCCESS ? status : INVALID_HANDLE);
}

/* The node is the graph's; what changes is its copy. */
API int32_t cuGraphExecKernelNodeSetParams(void *list, void *node,
                                           const struct kernel_node *kernel);
int32_t cuGraphExecKernelNodeSetParams(void *list, void *node, const struct kernel_node *kernel)
{
    int32_t status = in_context(CALL_cuGraphExecKernelNodeSetParams);
    const struct graph *run = status == SUCCESS ? object_find(list, KIND_LIST) : NULL;
    struct node *copy = NULL;
    for (struct object *o = objects_live(); o && run; o = o->next) {
        const struct graph *g = (const struct graph *)o;
        struct node *c = run->first;
        for (const struct node *n = o->kind == KIND_GRAPH ? g->first : NULL; n && c;
             n = n->next, c = c->next)
            if (n == node)
                copy = c;
    }
    if (status == SUCCESS && !copy)
        status = misuse(INVALID_VALUE, "%p is no node of the graph", node);
    struct launch_of launch;
    if (status == SUCCESS)
        status = prepare(&launch, kernel);
    if (status == SUCCESS && launch.code != copy->launch.code)
        status = misuse(INVALID_VALUE, "another function than the node's");
    if (status == SUCCESS)
        copy->launch = launch;
    return leave(CALL_cuGraphExecKernelNodeSetParams, status);
}

/* Of the nodes that may run now the one that was added last: what is not ordered runs in another
 * order than it was written in. */
static struct node *next_node(const struct graph *g)
{
    struct node *ready = NULL;
    for (struct node *n = g->first; n; n = n->next) {
        bool waits = n->is_done;
        for (int i = 0; i < n->count && !waits; i++)
            waits = !node_at(g, n->behind[i])->is_done;
        ready = waits ? ready : n;
    }
    return ready;
}

static void join_order(struct order *o, const struct node *before)
{
    const struct order *b = &before->launch.order;
    for (int q = 0; q < MAX_QUEUES; q++)
        o->before[q] = b->before[q] > o->before[q] ? b->before[q] : o->before[q];
    o->before[b->queue] = b->number > o->before[b->queue] ? b->number : o->before[b->queue];
}

/* What precedes each node, as if nodes were commands of queues. A node is appended to a queue whose
 * last node precedes it, else begins another queue; if there are no more queues, it goes to the
 * last one. All earlier graphs precede all of it. */
static void order_nodes(const struct graph *g)
{
    static uint32_t last;
    const uint32_t first = last;
    struct node *tail[MAX_QUEUES] = {NULL};
    unsigned nqueue = 0;
    for (struct node *n = g->first; n; n = n->next) {
        struct order o = {.several = true, .queue = nqueue, .number = ++last};
        for (int q = 0; q < MAX_QUEUES; q++)
            o.before[q] = first;
        for (int i = 0; i < n->count; i++) {
            const struct node *b = node_at(g, n->behind[i]);
            join_order(&o, b);
            if (tail[b->launch.order.queue] == b)
                o.queue = b->launch.order.queue;
        }
        if (o.queue == MAX_QUEUES)
            join_order(&o, tail[--o.queue]);
        else
            nqueue += o.queue == nqueue;
        n->launch.order = o;
        tail[o.queue] = n;
    }
}

API int32_t cuGraphLaunch(void *list, void *stream);
int32_t cuGraphLaunch(void *list, void *stream)
{
    int32_t status = in_context(CALL_cuGraphLaunch);
    const struct graph *run = status == SUCCESS ? object_find(list, KIND_LIST) : NULL;
    if (status == SUCCESS && !run)
        status = INVALID_HANDLE;
    struct stream *s =
        status == SUCCESS && !stream_is_eager(stream) ? object_find(stream, KIND_STREAM) : NULL;
    if (s)
        status = stream_check(s);
    if (status != SUCCESS)
        run = NULL;
    for (struct node *n = run ? run->first : NULL; n; n = n->next)
        n->is_done = false;
    if (run)
        order_nodes(run);
    for (struct node *n = run ? next_node(run) : NULL; n && status == SUCCESS; n = next_node(run)) {
        n->is_done = true;
        status = stream_add(stream, &(struct command){.work = n->work,
                                                      .host = n->host,
                                                      .at = n->at,
                                                      .nbytes = n->nbytes,
                                                      .launch = n->launch});
    }
    return leave(CALL_cuGraphLaunch, status);
}

API int32_t cuGraphExecDestroy(void *list);
int32_t cuGraphExecDestroy(void *list)
{
    return object_destroy(CALL_cuGraphExecDestroy, list, KIND_LIST);
}
API int32_t cuGraphDestroy(void *graph);
int32_t cuGraphDestroy(void *graph)
{
    return object_destroy(CALL_cuGraphDestroy, graph, KIND_GRAPH);
}
