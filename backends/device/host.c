/* host.c - the C around the kernels: the tables of weights and places, copies, the
 * hooks of program.c. */
#include "backends/device/device.h"

#include <string.h>

static void write_check(struct program *p, struct text *out)
{
    text_printf(out, "if (status != %s_OK)\n    return status;\n", p->upper);
}

/* ------------------------------------------------------ the memory, as far as the host needs it */

enum { SPAN_READS = 1, SPAN_WRITES = 2 };
struct span { const struct buffer *root; int how; const char *nbytes; };
struct spans { struct span v[DEVICE_SPANS]; int n; };

static const char *size_of(struct program *p, const struct buffer *b);

/* Notes that the host accesses a buffer, unless it has it anyway: weights and the caller's inputs.
 * A part of a tensor needs all of it. */
static void need(struct program *p, struct spans *s, const struct buffer *b, int how, bool is_whole)
{
    const struct buffer *root = buffer_root(b);
    if (root->kind == BUFFER_WEIGHT || (root->kind == BUFFER_INPUT && !root->port.state))
        return;
    is_whole &= b == root && !root->port.state;
    if (!is_whole)
        how |= SPAN_READS;        /* elements that the host does not store must keep their values */
    int i = 0;
    while (i < s->n && s->v[i].root != root)
        i++;
    if (i == DEVICE_SPANS)
        TGC_BUG(p->t, "a step of the host with more than %d tensors", DEVICE_SPANS);
    s->v[i].root = root;
    s->v[i].how |= how;
    bool reads_run = is_whole && how == SPAN_READS && i == s->n && program_has_shape_field(root);
    s->v[i].nbytes = reads_run ? size_of(p, root) : mem_printf(p->t, "%zu", root->nbytes);
    s->n += i == s->n;
}

static void need_scalar(struct program *p, struct spans *s, struct uop *u)
{
    int n;
    struct uop **order = u ? uop_toposort(p->t, &u, 1, &n) : NULL;
    for (int i = 0; order && i < n; i++)
        if (order[i]->op == OP_LOAD)
            need(p, s, uop_buffer_of(order[i]->src[0]), SPAN_READS, false);
}

static void write_need(struct program *p, const char *list, int n, struct text *out)
{
    snippet_use(&p->snippets, "device_host");
    text_printf(
        out, "{\n    const struct span need[] = {%s};\n    status = to_host(self, need, %d);\n}\n",
        list, n);
    write_check(p, out);
}

static void device_to_host(struct program *p, const struct step *step, struct text *out)
{
    struct spans s = {.n = 0};
    struct text list = {.t = p->t};
    int nin = step->host ? step->narg - step->host->nout : 0;
    for (int i = 0; i < step->narg; i++)
        need(p, &s, step->arg[i],
             i < nin                ? SPAN_READS
             : step->host->external ? SPAN_READS | SPAN_WRITES
                                    : SPAN_WRITES,
             true);
    for (int i = 0; step->host && i < step->host->nparam; i++)
        need_scalar(p, &s, step->host->param[i]);
    need_scalar(p, &s, step->cond);
    need_scalar(p, &s, step->trip);
    memset(p->span, 0, (size_t)p->nbuffer_id * sizeof *p->span);
    size_t mapped = 0;
    for (int i = 0; i < s.n; i++) {
        const struct buffer *root = s.v[i].root;
        bool varies;
        size_t nbytes;
        if (!size_align(root->nbytes, 64, &nbytes) || !size_add(mapped, nbytes, &mapped))
            TGC_BUG(p->t, "a step of the host accesses more bytes than can be counted");
        const char *at = root->port.state ? device_offset(p, root, &varies)
                                     : mem_printf(p->t, "%zu", p->place[root->id]);
        if (root->port.state && p->place_of_states)
            at = mem_printf(p->t, "%zu + %s", p->device_states, at);
        text_printf(&list, "%s{%s, %s, %d}", i ? ", " : "", at, s.v[i].nbytes, s.v[i].how);
        p->span[root->id] = i + 1;
    }
    if (mapped > p->device_mapped_nbytes)
        p->device_mapped_nbytes = mapped;
    if (s.n > 0)
        write_need(p, list.s, s.n, out);
}

static const char *device_states_to_host(struct program *p, bool reads, bool writes,
                                         struct text *out)
{
    if (p->s->nverdict > 0)
        text_printf(out, "status = self->is_pending ? settle(self) : %s_OK;\n", p->upper);
    if (p->s->nverdict > 0)
        write_check(p, out);
    write_need(p, mem_printf(p->t, "{%zu, %zu, %d}", p->device_states, p->s->state_nbytes,
                             (reads ? SPAN_READS : 0) | (writes ? SPAN_WRITES : 0)), 1, out);
    return "self->device.seen[0]";
}

static const char *device_host_view(struct program *p, const struct buffer *b)
{
    if (p->span[b->id] == 0)
        TGC_BUG(p->t, "the host accesses buffer %d, which it has not asked for", b->id);
    p->buffer_used[b->id] = b->kind == BUFFER_OUTPUT;      /* so it cannot be the caller's buffer */
    return mem_printf(p->t, "((%s *)(void *)self->device.seen[%d])", dtype_ctype(b->dtype),
                      p->span[b->id] - 1);
}

/* "(size_t)2 * (size_t)in->dim_n * 4": bytes of the tensor in this run. A computed dimension may
 * come out negative, which stands for 0. */
static const char *size_of(struct program *p, const struct buffer *b)
{
    struct text s = {.t = p->t};
    for (int a = 0; a < b->ndim; a++)
        text_printf(&s, "(size_t)(%s) * ",
                    program_scalar(p, sym_max(p->t, b->dim[a], uop_int(p->t, 0))));
    text_printf(&s, "%zu", dtype_nbytes(b->dtype));
    return s.s;
}

/* Does a kernel read it? Inputs that the host alone reads stay where the caller has them. */
static bool is_of_kernel(const struct schedule *s, const struct buffer *b)
{
    for (int i = 0; i < s->nkernel; i++)
        for (int k = 0; k < s->kernel[i]->nbuffer; k++)
            if (buffer_root(s->kernel[i]->buffer[k]) == b)
                return true;
    return false;
}

/* Copies an input or a result, in runs of its entry. */
static void copy(struct program *p, bool output, int i, struct text *out)
{
    const struct buffer *b = output ? p->s->output[i] : p->s->input[i];
    const char *how = output ? "get" : "put";
    int entry = output ? entry_of_output(p->s, i) : entry_of_input(p->s, i);
    struct text body = {.t = p->t};
    snippet_use(&p->snippets, output ? "device_get" : "device_put");
    text_printf(&body, "status = %s(self, %d, %s->%s, %s);\n", how, device_place(p, b),
                output ? "out" : "in", p->buffer_name[b->id], size_of(p, b));
    write_check(p, &body);
    if (entry < 0) {
        text_puts(out, body.s);
        return;
    }
    text_printf(out, "if (%s) {\n", entry_condition(p, entry));
    text_lines(out, body.s, 1);
    text_puts(out, "}\n");
}

static void device_begin_run(struct program *p, struct text *out)
{
    text_puts(out, "status = renew(self);\n");
    write_check(p, out);
    for (int i = 0; i < p->s->ninput; i++)
        if (is_of_kernel(p->s, p->s->input[i]))
            copy(p, false, i, out);
}

static void device_end_run(struct program *p, struct text *out)
{
    for (int i = 0; i < p->s->noutput; i++)
        copy(p, true, i, out);
}

static const char *device_is_absent(struct program *p, const struct buffer *b)
{
    return mem_printf(p->t, " && !self->place[%d].is_bound", device_place(p, b));
}

/* ------------------------------------------------------------------------------------- the file */

void device_write_strings(struct text *out, const char *s)
{
    while (*s) {
        size_t n = strcspn(s, "\n");
        struct text line = {.t = out->t};
        text_string(&line, mem_printf(out->t, "%.*s", (int)n, s));
        s += n + (s[n] == '\n');
        text_printf(out, "    %.*s\\n\"%s\n", (int)line.n - 1, line.s, n > 0 && *s ? "" : ",");
    }
}

static bool device_compile(struct program *p, const char *text)
{
    return !p->backend->driver->compile || p->backend->driver->compile(p, text);
}

static void device_embed(struct program *p, const char *text, struct text *out)
{
    p->backend->driver->embed(p, text, out);
}

/* Together with its own address, tells an open model of this name from earlier
 * contents of the arena. */
static unsigned long long open_key(const struct program *p)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    for (const char *c = p->name; *c; c++)
        hash = (hash ^ (unsigned char)*c) * UINT64_C(1099511628211);
    return hash;
}

static void device_types(struct program *p, struct text *out)
{
    const char *interface = p->backend->interface;
    text_printf(out, "enum { %s_SPANS = %d };\n", p->upper, DEVICE_SPANS);
    text_puts(out, "/* Whether runs differ by more than their inputs: states alternate between two "
                   "places, or have a length that grows. */\n");
    text_printf(out, "enum { %s_RUNS_DIFFER = %d };\n", p->upper,
                states_have_two_places(p->s) || state_count_vars(p->s) > 0);
    text_printf(out, "#define OPEN_KEY UINT64_C(0x%016llx)\n", open_key(p));
    device_write_turns(p, out);
    program_write_text(p, out, snippet_find(p->backend->name)->text);
    text_putc(out, '\n');
    if (interface) {
        program_write_text(p, out, snippet_find(interface)->text);
        text_putc(out, '\n');
    }
    program_write_text(p, out, snippet_find("device_types")->text);
    text_putc(out, '\n');
    if (p->nimage > 0)
        p->backend->driver->image_tables(p, out);
    if (device_write_maps(p, NULL) > 0) {
        program_write_text(p, out,
                           snippet_find(mem_printf(p->t, "%s_map_types", p->backend->name))->text);
        text_puts(out, "\nstatic const struct map_of map_of[] = {\n");
        const int n = device_write_maps(p, out);
        text_printf(out,
                    "};\nenum { %s_MAPS = %d };\nstruct maps { encode_map *encode; unsigned char "
                    "bytes[(%s_MAPS + 1) * sizeof(struct map)]; };\n\n",
                    p->upper, n, p->upper);
    }
    device_write_list(p, out);
}

static void device_fields(struct program *p, struct text *out)
{
    text_printf(out,
                "    uint64_t open_key;              /* OPEN_KEY while it is open: arenas may hold "
                "anything before */\n"
                "    struct %s device;\n    struct place place[%d];\n    size_t groups[%d][3];\n",
                p->backend->interface ? "driver" : p->backend->name, device_count_places(p),
                p->s->nkernel + 1);
    if (p->s->nverdict > 0)
        text_puts(out, "    bool is_pending, is_bad;        /* verdicts of a run that nobody has "
                       "looked at; that were bad, which nobody was told */\n");
    p->backend->driver->fields(p, out);
}

static void write_weight_table(struct program *p, struct text *out)
{
    const struct schedule *s = p->s;
    text_printf(out,
                "/* Copies the weights to the device. */\nstatic int put_weights(%s *self)\n{\n",
                p->name);
    if (s->nweight == 0) {
        text_printf(out, "    (void)self;\n    return %s_OK;\n}\n\n", p->upper);
        return;
    }
    text_puts(out,
              p->weights == WEIGHTS_FILE
                  ? "    const struct weights table =\n        place_weights((const unsigned char "
                    "*)self->options.weights);\n    const struct weights *const w = &table;\n"
                  : "    const struct weights *const w = get_weights();\n");
    text_puts(out, "    const struct { size_t at, nbytes; const void *from; } weight[] = {\n");
    for (int i = 0; i < s->nweight; i++)
        text_printf(out, "        {%zu, %zu, w->%s},\n", s->weight[i]->offset, s->weight[i]->nbytes,
                    p->buffer_name[s->weight[i]->id]);
    text_puts(
        out,
        "    };\n"
        "    for (size_t i = 0; i < sizeof weight / sizeof *weight; i++)\n"
        "        if (weight[i].nbytes > 0 &&\n"
        "            !write_buffer(self, self->device.weights, weight[i].at, weight[i].nbytes, "
        "weight[i].from, true))\n");
    text_printf(out, "            return %s_DEVICE_FAILED;\n    return %s_OK;\n}\n\n", p->upper,
                p->upper);
}

static bool counts(const struct schedule *s)
{
    bool any = false;
    for (int i = 0; i < s->nbuffer; i++)
        any |= s->buffer[i]->scratch.counts;
    return any;
}

/* Counters are 0 before the first run; each run leaves them so. */
static void write_counters(struct program *p, struct text *out)
{
    const struct schedule *s = p->s;
    size_t most = 0;
    if (!counts(s))
        return;
    text_printf(out,
                "/* Counters of blocks, of which the last one goes on: a run finds them 0, and "
                "leaves them so. */\nstatic int begin_counters(%s *self)\n{\n"
                "    static const struct { size_t at, nbytes; } counter[] = {\n",
                p->name);
    for (int i = 0; i < s->nbuffer; i++) {
        if (!s->buffer[i]->scratch.counts)
            continue;
        text_printf(out, "        {%zu, %zu},\n", p->place[s->buffer[i]->id], s->buffer[i]->nbytes);
        most = s->buffer[i]->nbytes > most ? s->buffer[i]->nbytes : most;
    }
    text_printf(out,
                "    };\n    static const unsigned char zeros[%zu];\n    for (size_t i = 0; i < "
                "sizeof counter / sizeof *counter; i++)\n"
                "        if (!write_buffer(self, self->device.memory, counter[i].at, "
                "counter[i].nbytes, zeros, true))\n"
                "            return %s_DEVICE_FAILED;\n    return %s_OK;\n}\n\n",
                most, p->upper, p->upper);
}

/* The least bytes of a buffer that the caller binds. 0 for an input whose size each run says: the
 * run checks it. */
static size_t needed(const struct buffer *b)
{
    for (int a = 0; a < b->ndim; a++)
        if (b->kind == BUFFER_INPUT && b->dim[a]->op != OP_CONST)
            return 0;
    return b->nbytes;
}

/* The table of the places of inputs and outputs. */
static void write_places(struct program *p, struct text *out)
{
    const struct schedule *s = p->s;
    struct buffer *const *side[] = {s->input, s->output};
    const int n[] = {s->ninput, s->noutput};
    text_puts(out, "/* Of each place the byte of the memory where it begins, what a buffer of the "
                   "caller's must\n"
                   " * have (0: each run tells), and whether the host computes with it. */\n"
                   "static const struct { size_t at, nbytes; bool is_of_host; } place_info[] = {\n"
                   "    {0, 0, true}, {0, 0, true},\n");
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < n[k]; i++) {
            const struct buffer *b = side[k][i];
            text_printf(out, "    {%zu, %zu, %s},\n", p->place[b->id], needed(b),
                        p->buffer_used[b->id] ? "true" : "false");
        }
    for (int i = 0; i < s->nbuffer; i++)             /* what no caller binds */
        if (p->own_place[s->buffer[i]->id])
            text_printf(out, "    {%zu, %zu, true},\n", p->place[s->buffer[i]->id],
                        s->buffer[i]->nbytes);
    if (p->place_of_states)
        text_printf(out, "    {%zu, %zu, true},\n", p->device_states, s->state_nbytes);
    text_puts(out, "};\n\n");
}

static const char complain_text[] =
    "/* Says what went wrong, in a sentence. */\n"
    "static void complain(const model_self *self, const char *text)\n"
    "{\n"
    "    if (self->options.on_error)\n"
    "        self->options.on_error(self->options.user, text);\n"
    "}\n\n";

/* Copies begin at multiples of 64 bytes. */
static size_t most_mapped(const struct program *p)
{
    const size_t verdicts = ((size_t)p->s->nverdict + 63) / 64 * 64;
    return verdicts > p->device_mapped_nbytes ? verdicts : p->device_mapped_nbytes;
}

static void device_functions(struct program *p, struct text *out)
{
    if (!program_training(p->s))
        snippet_use(&p->snippets, "device_calls");
    if (p->s->nweight > 0 || counts(p->s))
        snippet_use(&p->snippets, "write");
    program_write_text(p, out, complain_text);
    text_printf(
        out,
        "/* Bytes of the memory that a step of the host's reads and stores at once, at most. */\n"
        "#define %s_MAPPED ((size_t)%zu)\n\n",
        p->upper, most_mapped(p));
    if (p->s->nverdict > 0) {
        text_printf(out, "#define %s_VERDICTS_AT ((size_t)%zu)\nenum { %s_VERDICTS = %d };\n\n",
                    p->upper, p->device_verdicts, p->upper, p->s->nverdict);
        state_write_taking_back(p, out);
    }
    write_places(p, out);
    if (p->backend->driver->tables)
        p->backend->driver->tables(p, out);
    if (p->backend->interface)
        snippets_write(p, out, p->backend->interface, NULL);
    snippets_write(p, out, p->backend->name, NULL);
    if (p->nimage > 0)
        snippets_write(p, out, mem_printf(p->t, "%s_image", p->backend->name), NULL);
    snippets_write(p, out, "device", NULL);
    write_weight_table(p, out);
    write_counters(p, out);
}

static void device_check(struct program *p, struct text *out)
{
    text_printf(out,
                "    const %s *const before = (const %s *)arena;\n"
                "    if (before->opened == before && before->open_key == OPEN_KEY)\n        return "
                "%s_OPEN_ALREADY;\n",
                p->name, p->name, p->upper);
}

static void device_open(struct program *p, struct text *out)
{
    text_printf(out, "    int status = device_open(self, %s);\n", p->backend->driver->open(p));
    text_printf(out, "    if (status == %s_OK)\n        status = begin_list(self);\n", p->upper);
    text_printf(out, "    if (status == %s_OK)\n        status = put_weights(self);\n", p->upper);
    if (counts(p->s))
        text_printf(out, "    if (status == %s_OK)\n        status = begin_counters(self);\n",
                    p->upper);
    if (p->s->nverdict > 0)
        text_printf(out, "    if (status == %s_OK)\n        status = clear_verdicts(self);\n",
                    p->upper);
    if (p->s->nstate > 0)
        text_printf(out, "    if (status == %s_OK)\n        status = %s(self);\n", p->upper,
                    program_training(p->s) ? "upload" : "begin_states");
    text_printf(out, "    if (status != %s_OK) {\n        device_close(self);\n        return "
                     "status;\n    }\n    self->open_key = OPEN_KEY;\n", p->upper);
}

static void device_close(struct program *p, struct text *out)
{
    (void)p;
    text_puts(out, "    if (self && self->opened == self)\n        device_close(self);\n");
}

const struct device device_hooks = {
    device_begin,     device_types,     device_fields,         device_text,      device_compile,
    device_embed,     device_functions, device_check,          device_open,      device_close,
    device_host_view, device_to_host,   device_states_to_host, device_is_absent, device_begin_run,
    device_launches,  device_end_run};
