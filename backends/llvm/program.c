/* program.c - a program in this process: NAME_init(), NAME_run(), NAME_close() around the code.
 *
 * struct head lies where struct NAME does in an emitted program, at the begin of the arena.
 */
#include "backends/llvm/jit.h"
#include "backends/llvm/team.h"

#include <assert.h>
#include <string.h>

static_assert((int)MOST_THREADS <= (int)PROGRAM_THREADS,
              "a team has as many threads as --threads says");

struct head {
    const struct head *opened;
    const struct llvm_program *program;
    struct program_run_options options;
    int parts;                   /* of the work of a kernel that threads share */
    struct team *team;           /* NULL: the caller's parallel_for, or one thread */
};

/* -------------------------------------------------------------------------------------- running */

static void step(void *self, int index)
{
    const struct head *head = self;
    const struct program_run_options *o = &head->options;
    if (o->on_kernel)
        o->on_kernel(o->user, index < 0 ? head->program->info.kernel_count : index,
                     index < 0 ? NULL : head->program->info.kernels[index].name);
}

/* task: begins with the number of parts, see threads.c */
static void share(void *self, void (*body)(void *task, int part), void *task, int64_t saves)
{
    const struct head *head = self;
    int64_t parts = head->parts;
    memcpy(task, &parts, sizeof parts);
    if (parts == 1)
        body(task, 0);
    else if (head->options.parallel_for)
        head->options.parallel_for(head->options.user, head->parts, body, task);
    else
        team_share(head->team, body, task, (long)saves);
}

static bool open_team(struct head *head)
{
    int most = head->program->threads, wanted = head->options.threads;
    head->parts = wanted > 0 && wanted < most ? wanted : most;
    if (head->parts == 1 || head->options.parallel_for)
        return true;
    head->team = team_new(head->parts - 1);
    return head->team != NULL;
}

int llvm_program_init(const struct llvm_program *p, void **model, void *arena, size_t nbytes,
                      const struct program_run_options *options)
{
    struct head *head = arena;
    if (!model || !arena)
        return PROGRAM_NULL_ARGUMENT;
    *model = NULL;
    if ((uintptr_t)arena % p->info.arena_align != 0)
        return PROGRAM_ARENA_MISALIGNED;
    if (nbytes < p->info.arena_bytes)
        return PROGRAM_ARENA_TOO_SMALL;
    if (options && options->threads < 0)
        return PROGRAM_BAD_OPTIONS;
    *head = (struct head){.program = p};
    if (options)
        head->options = *options;
    if (!open_team(head))
        return PROGRAM_NO_THREADS;
    head->opened = head;
    if (p->reset)
        p->reset(head);
    *model = head;
    return PROGRAM_OK;
}

/* Whether a pointer is missing that the run needs: if it is one of an entry, those of the others
 * are not read. */
static bool is_missing(const struct program_info *info, bool output, const void *fields,
                       int64_t entry)
{
    const struct program_tensor *x = output ? info->outputs : info->inputs;
    for (int i = 0; i < (output ? info->output_count : info->input_count); i++) {
        const void *p;
        memcpy(&p, (const char *)fields + x[i].offset, sizeof p);
        if (!p && (entry < 0 || program_entry_of(info, output, i) == entry))
            return true;
    }
    return false;
}

int llvm_program_run(void *model, const void *inputs, void *outputs)
{
    const struct head *head = model;
    if (!head || !inputs || !outputs)
        return PROGRAM_NULL_ARGUMENT;
    if (head->opened != head)
        return PROGRAM_NOT_INITIALIZED;
    const struct program_info *info = &head->program->info;
    int64_t entry = -1;
    if (info->entry_count)
        memcpy(&entry, (const char *)inputs + info->entry_offset, sizeof entry);
    if (is_missing(info, false, inputs, entry))
        return PROGRAM_MISSING_INPUT;
    if (is_missing(info, true, outputs, entry))
        return PROGRAM_MISSING_OUTPUT;
    for (int i = 0; i < info->symbol_count; i++) {
        const struct program_symbol *v = &info->symbols[i];
        int64_t size = 0;
        if (v->offset == PROGRAM_NO_OFFSET)
            continue;
        memcpy(&size, (const char *)inputs + v->offset, sizeof size);
        if (size < v->min || size > v->max)
            return PROGRAM_DIM_OUT_OF_RANGE;
    }
    return head->program->run(model, inputs, outputs);
}

/* What the program has for an open model; NULL: that is none. */
static const struct llvm_program *program_of(const void *model)
{
    const struct head *head = model;
    return head && head->opened == head ? head->program : NULL;
}

int llvm_program_reset(void *model)
{
    const struct llvm_program *p = program_of(model);
    return p ? p->reset(model) : PROGRAM_NOT_INITIALIZED;
}

int llvm_program_save(const void *model, void *block)
{
    const struct llvm_program *p = program_of(model);
    return p ? p->save(model, block) : PROGRAM_NOT_INITIALIZED;
}

int llvm_program_restore(void *model, const void *block)
{
    const struct llvm_program *p = program_of(model);
    return p ? p->restore(model, block) : PROGRAM_NOT_INITIALIZED;
}

void llvm_program_close(void *model)
{
    struct head *head = model;
    if (!head)
        return;
    if (head->opened == head && head->team)
        team_free(head->team);
    head->opened = NULL;
}

const char *llvm_program_strerror(int status)
{
    switch (status) {
#define STATUS(name, value, text)                                                                  \
    case value:                                                                                    \
        return text;
#include "backends/program/statuses.def"
#undef STATUS
    default: return "unknown status";
    }
}

const struct program_info *llvm_program_info(const struct llvm_program *p) { return &p->info; }

/* -------------------------------------------------------------------------------------- linking */

static struct llvm_name name_of(const char *name, void (*function)(void))
{
    return (struct llvm_name){name, (uint64_t)(uintptr_t)function};
}

/* ISO C has no conversion from integers to function pointers that says more than this. */
static void set_function(void *function, const struct llvm_name *from)
{
    uintptr_t at = (uintptr_t)from->address;
    memcpy(function, &at, sizeof at);
}

static void free_code(void *what)
{
    struct llvm_program *p = what;
    jit_free(p->code);
    p->code = NULL;
}

bool program_link(struct llvm_program *p, struct code_error *why)
{
    struct tgc *t = p->t;
    const char *name = p->info.name;
    int nfunction = p->info.state_count ? 4 : 1;
    struct llvm_name function[] = {{mem_printf(t, "%s_run", name), 0},
                                   {mem_printf(t, "%s_reset", name), 0},
                                   {mem_printf(t, "%s_save", name), 0},
                                   {mem_printf(t, "%s_restore", name), 0}};
    const struct llvm_name outside[] = {name_of("step", (void (*)(void))step),
                                        name_of("share", (void (*)(void))share),
                                        {"weights", (uint64_t)(uintptr_t)p->weights}};
    int noutside = (int)(sizeof outside / sizeof *outside);
    held_add(t, free_code, p);
    p->code = jit_link(p->object, p->nobject, outside, noutside, function, nfunction, why);
    if (!p->code)
        return false;
    set_function(&p->run, &function[0]);
    set_function(&p->reset, &function[1]);
    set_function(&p->save, &function[2]);
    set_function(&p->restore, &function[3]);
    return true;
}

size_t program_struct_nbytes(void) { return sizeof(struct head); }
