/* state.c - the states that a context keeps from run to run: fields of struct NAME, NAME_reset(),
 * NAME_save(), NAME_restore(), and their part in NAME_run(). passes/graph/state.c pairs outputs and
 * inputs; passes/place/memory.c places them.
 *
 *      arena   struct NAME | states | intermediates
 *      block   "tgcstate" version hash bytes | kept[] | states, each at a multiple of 64 bytes
 *
 * kept[] holds the lengths of states that grow, and the sizes that must stay the same (-1 before
 * the first run). A block does not depend on the instruction set, the threads or the places.
 */
#include "backends/program/program.h"

enum { BLOCK_ALIGN = 64 };

const char *training_block(enum state_block block)
{
    static const char *const word[] = {"", "params", "gradients", "optimizer"};
    return word[block];
}

static size_t align_up(size_t n) { return (n + BLOCK_ALIGN - 1) / BLOCK_ALIGN * BLOCK_ALIGN; }

const struct var **state_vars(struct tgc *t, const struct schedule *s)
{
    const struct var **v = mem_array(t, (size_t)s->nvar + 1, sizeof *v);
    int n = 0;
    for (int sizes = 0; sizes < 2; sizes++)
        for (int i = 0; i < s->nvar; i++)
            if (sizes ? state_is_size(s->graph, s->var[i]) : state_is_length(s->graph, s->var[i]))
                v[n++] = s->var[i];
    return v;
}

int state_count_vars(const struct schedule *s)
{
    int n = 0;
    for (int i = 0; s->nstate && i < s->nvar; i++)
        n += state_is_size(s->graph, s->var[i]) || state_is_length(s->graph, s->var[i]);
    return n;
}

size_t state_head_bytes(const struct schedule *s)
{
    return s->nstate ? align_up(((size_t)state_count_vars(s) + 1) * sizeof(int64_t)) : 0;
}

size_t state_block_offset(struct tgc *t, const struct schedule *s, int k)
{
    size_t at = align_up(STATE_BLOCK_HEAD + (size_t)state_count_vars(s) * sizeof(int64_t));
    for (int i = 0; i < k; i++)
        if (!size_add(at, s->state[i]->nbytes, &at) || !size_align(at, BLOCK_ALIGN, &at))
            TGC_BUG(t, "the states' size overflows");
    return at;
}

size_t program_state_bytes(struct tgc *t, const struct schedule *s)
{
    return s->nstate ? state_block_offset(t, s, s->nstate) : 0;
}

/* They swap roles; what is copied to a block does not. */
bool state_has_two_places(const struct state *st)
{
    return st->place[0] != st->place[1] && !st->is_copied;
}

bool states_have_two_places(const struct schedule *s)
{
    for (int i = 0; i < s->nstate; i++)
        if (state_has_two_places(s->state[i]))
            return true;
    return false;
}

int state_var_position(const struct var *const *list, const struct var *v)
{
    for (int i = 0; v && list[i]; i++)
        if (list[i] == v)
            return i;
    return -1;
}

struct state_pieces state_pieces(const struct state *st)
{
    struct state_pieces p = {1, st->nbytes, st->nbytes};
    if (!st->length || st->nbytes == 0)
        return p;
    for (int a = 0; a < st->axis; a++)
        p.parts *= (size_t)dim_bound(st->in->dim[a]);
    p.stride = st->nbytes / p.parts;
    p.row = p.stride / (size_t)dim_bound(st->in->dim[st->axis]);
    return p;
}

int64_t state_first_length(const struct schedule *s, const struct var *v)
{
    for (int i = 0; i < s->nstate; i++)
        if (s->state[i]->length == v)
            return s->state[i]->in->port.first
                       ? s->state[i]->in->port.first->dim[s->state[i]->axis]->arg.i
                       : 0;
    return -1;
}

/* ---------------------------------------------------------------------------------- the context */

/* What a run changes of the states' lengths and places is taken back if its verdicts are bad. */
void state_write_taking_back(struct program *p, struct text *out)
{
    const bool kept = state_count_vars(p->s) > 0, odd = states_have_two_places(p->s);
    for (int back = 0; back < 2; back++) {
        text_printf(out, "%s\nstatic void %s(%s *self)\n{\n",
                    back ? "/* The states are what they were then. */"
                         : "/* Before a run: what it changes of the states' lengths and places. */",
                    back ? "take_back" : "note_states", p->name);
        if (kept)
            text_printf(out, "    memcpy(self->kept%s, self->kept%s, sizeof self->kept);\n",
                        back ? "" : "_before", back ? "_before" : "");
        if (odd)
            text_printf(out, "    self->odd%s = self->odd%s;\n", back ? "" : "_before",
                        back ? "_before" : "");
        text_puts(out, kept || odd ? "}\n\n" : "    (void)self;\n}\n\n");
    }
}

void state_write_fields(struct program *p, struct text *out)
{
    const struct var **v = p->s->nstate ? state_vars(p->t, p->s) : NULL;
    int n = state_count_vars(p->s);
    if (n > 0) {
        size_t start = out->n;
        text_printf(out, "    int64_t kept[%d];", n);
        text_pad(out, start, 36);
        text_puts(out, "/* ");
        for (int i = 0; i < n; i++) {
            text_puts(out, i ? ", " : "");
            text_comment(out, v[i]->name);
            text_puts(out, state_is_length(p->s->graph, v[i]) ? ": rows of states" : ": of states");
        }
        text_puts(out, " */\n");
    }
    if (states_have_two_places(p->s))
        text_puts(
            out,
            schedule_count_entries(p->s)
                ? "    uint64_t odd;                   /* a bit for states that are stored "
                  "together: how often */\n"
                : "    int odd;                        /* the number of runs: who lies where */\n");
    if (p->s->nverdict && n > 0)
        text_printf(out, "    int64_t kept_before[%d];\n", n);
    if (p->s->nverdict && states_have_two_places(p->s))
        text_printf(out, "    %s odd_before;\n", schedule_count_entries(p->s) ? "uint64_t" : "int");
}

static void write_table(struct program *p, struct text *out)
{
    const struct schedule *s = p->s;
    const struct var **v = state_vars(p->t, s);
    int n = state_count_vars(s);
    bool turns = states_have_two_places(s) && schedule_count_entries(s);
    text_printf(
        out,
        "/* Where a state lies among them in runs of even and of odd number, and in a block: "
        "`parts`\n"
        " * pieces of `row` bytes, times kept[length] where that is not -1, `stride` apart%s */\n"
        "struct state_place {\n    size_t place[2], block, parts, stride, row;\n    int "
        "length%s;\n};\n"
        "static const struct state_place state_places[] = {\n",
        turns ? "; its bit of `odd`." : ".", turns ? ", turn" : "");
    for (int i = 0; i < s->nstate; i++) {
        const struct state *st = s->state[i];
        struct state_pieces q = state_pieces(st);
        size_t start = out->n;
        text_printf(out, "    {{%zu, %zu}, %zu, %zu, %zu, %zu, %d", st->place[0], st->place[1],
                    state_block_offset(p->t, s, i), q.parts, q.stride, q.row,
                    state_var_position(v, st->length));
        if (turns)
            text_printf(out, ", %d", state_turn(s->state, s->nstate, st));
        text_puts(out, "},");
        text_pad(out, start, 52);
        text_puts(out, " /* ");
        text_comment(out, st->name);
        text_puts(out, " */\n");
    }
    text_puts(out, "};\n");
    if (n > 0) {
        text_puts(out, "/* The bounds of kept[]; -1: no run has said yet. */\n"
                       "static const int64_t kept_bounds[][2] = {");
        for (int i = 0; i < n; i++)
            text_printf(out, "%s{%d, %lld}", i ? ", " : "",
                        state_is_length(s->graph, v[i]) ? 0 : -1, (long long)v[i]->max);
        text_puts(out, "};\n");
    }
    text_putc(out, '\n');
}

/* Where the states begin; a device's are made the host's before. */
static const char *states_begin(struct program *p, bool only_read, struct text *out)
{
    struct text map = {.t = p->t};
    if (!p->backend->device)
        return mem_printf(p->t, only_read ? "(const unsigned char *)(const void *)self + %zu"
                                          : "(unsigned char *)(void *)self + %zu", p->head_bytes);
    text_puts(&map, "int status;\n");
    const char *at = p->backend->device->states_to_host(p, only_read, !only_read, &map);
    text_lines(out, map.s, 1);
    return at;
}

static void write_begin(struct program *p, struct text *out)
{
    const struct schedule *s = p->s;
    const struct var **v = state_vars(p->t, s);
    bool copies = false;
    text_printf(out, "/* As before the first run. */\nstatic %s begin_states(%s *self)\n{\n",
                p->backend->device ? "int" : "void", p->name);
    for (int i = 0; i < s->nstate; i++)
        copies |= s->state[i]->in->port.first != NULL;
    if (copies && p->weights == WEIGHTS_FILE)
        text_puts(out, "    const struct weights table = place_weights((const unsigned char "
                       "*)self->options.weights);\n"
                       "    const struct weights *const w = &table;\n");
    else if (copies)
        text_puts(out, "    const struct weights *const w = get_weights();\n");
    const char *at = states_begin(p, false, out);
    text_printf(out, "    unsigned char *const states = %s;\n", at);
    text_puts(out, "    (void)states;\n");
    for (int i = 0; i < s->nstate; i++) {
        const struct state *st = s->state[i];
        const struct buffer *first = st->in->port.first;
        struct state_pieces q = state_pieces(st);
        if (st->nbytes == 0 || (first && first->nbytes == 0))
            continue;
        if (first && q.parts > 1)
            text_printf(
                out,
                "    for (size_t i = 0; i < %zu; i++)\n        memcpy(states + %zu + i * %zu, "
                "(const char *)(const void *)w->%s + i * %zu, %zu);\n",
                q.parts, st->place[0], q.stride, p->buffer_name[first->id], first->nbytes / q.parts,
                first->nbytes / q.parts);
        else if (first)
            text_printf(out, "    memcpy(states + %zu, w->%s, %zu);\n", st->place[0],
                        p->buffer_name[first->id], first->nbytes);
        else if (!st->length)
            text_printf(out, "    memset(states + %zu, 0, %zu);\n", st->place[0], st->nbytes);
    }
    for (int i = 0; v[i]; i++)
        text_printf(out, "    self->kept[%d] = %lld;\n", i, (long long)state_first_length(s, v[i]));
    text_puts(out, states_have_two_places(s) ? "    self->odd = 0;\n" : "");
    if (p->backend->device)
        text_puts(out, "    return to_device(self);\n");
    text_puts(out, "}\n\n");
}

static const char reset_text[] = "int model_reset(model_self *self)\n"
                                 "{\n"
                                 "    if (!self)\n"
                                 "        return MODEL_NULL_ARGUMENT;\n"
                                 "    if (self->opened != self)\n"
                                 "        return MODEL_NOT_INITIALIZED;\n"
                                 "BEGIN"
                                 "}\n\n";

static const char save_text[] =
    "int model_save(CONSTmodel_self *self, void *block)\n"
    "{\n"
    "    const uint32_t version = 1;\n"
    "    const uint64_t head[2] = {STATE_HASH, MODEL_STATE_BYTES};\n"
    "    if (!self || !block)\n"
    "        return MODEL_NULL_ARGUMENT;\n"
    "    if (self->opened != self)\n"
    "        return MODEL_NOT_INITIALIZED;\n"
    "VIEW    const unsigned char *const states = STATES_READ;\n"
    "    unsigned char *const to = (unsigned char *)block;\n"
    "    memset(to, 0, MODEL_STATE_BYTES);\n"
    "    memcpy(to, \"tgcstate\", 8);\n"
    "    memcpy(to + 8, &version, sizeof version);\n"
    "    memcpy(to + 16, head, sizeof head);\n"
    "SAVE_KEPT"
    "    for (size_t i = 0; i < sizeof state_places / sizeof *state_places; i++) {\n"
    "        const struct state_place *s = &state_places[i];\n"
    "        const size_t n = SAVED_BYTES;\n"
    "        for (size_t k = 0; k < s->parts; k++)\n"
    "            memcpy(to + s->block + k * s->stride, states + s->place[WHICH] + k * s->stride, "
    "n);\n"
    "    }\n"
    "    return DONE;\n"
    "}\n\n";

static const char restore_text[] =
    "int model_restore(model_self *self, const void *block)\n"
    "{\n"
    "    uint32_t version;\n"
    "    uint64_t head[2];\n"
    "DECLARE_KEPT"
    "    if (!self || !block)\n"
    "        return MODEL_NULL_ARGUMENT;\n"
    "    if (self->opened != self)\n"
    "        return MODEL_NOT_INITIALIZED;\n"
    "    const unsigned char *const from = (const unsigned char *)block;\n"
    "    memcpy(&version, from + 8, sizeof version);\n"
    "    memcpy(head, from + 16, sizeof head);\n"
    "    if (memcmp(from, \"tgcstate\", 8) != 0 || version != 1 || head[0] != STATE_HASH ||\n"
    "        head[1] != MODEL_STATE_BYTES)\n"
    "        return MODEL_BAD_STATE;\n"
    "CHECK_KEPT"
    "MAP    unsigned char *const states = STATES_BEGIN;\n"
    "    for (size_t i = 0; i < sizeof state_places / sizeof *state_places; i++) {\n"
    "        const struct state_place *s = &state_places[i];\n"
    "        const size_t n = RESTORED_BYTES;\n"
    "        for (size_t k = 0; k < s->parts; k++)\n"
    "            memcpy(states + s->place[0] + k * s->stride, from + s->block + k * s->stride, "
    "n);\n"
    "    }\n"
    "RESTORE_KEPT"
    "    return DONE;\n"
    "}\n\n";

static const char check_kept_text[] =
    "    memcpy(kept, from + 32, sizeof kept);\n"
    "    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)\n"
    "        if (kept[i] < kept_bounds[i][0] || kept[i] > kept_bounds[i][1])\n"
    "            return MODEL_BAD_STATE;\n";

void state_write_functions(struct program *p, struct text *out)
{
    const struct schedule *s = p->s;
    if (s->nstate == 0 || program_training(s))
        return;
    int n = state_count_vars(s);
    bool two = states_have_two_places(s);
    const char *size = "s->row";
    bool of_device = p->backend->device != NULL;
    struct text map = {.t = p->t}, map_read = {.t = p->t};
    const char *begin = states_begin(p, false, &map), *read = states_begin(p, true, &map_read);
    const struct text_word word[] = {
        {"STATE_HASH",
         mem_printf(p->t, "UINT64_C(0x%016llx)", (unsigned long long)s->graph->state_hash)},
        {"BEGIN", of_device ? "    return begin_states(self);\n"
                            : "    begin_states(self);\n    return MODEL_OK;\n"},
        {"CONST", of_device ? "" : "const "},
        {"DONE", of_device ? "to_device(self)" : "MODEL_OK"},
        {"MAP", map.s ? map.s : ""},
        {"VIEW", map_read.s ? map_read.s : ""},
        {"STATES_READ", read},
        {"STATES_BEGIN", begin},
        {"SAVE_KEPT", n ? "    memcpy(to + 32, self->kept, sizeof self->kept);\n" : ""},
        {"SAVED_BYTES", n ? "s->row * (s->length < 0 ? 1 : (size_t)self->kept[s->length])" : size},
        {"RESTORED_BYTES", n ? "s->row * (s->length < 0 ? 1 : (size_t)kept[s->length])" : size},
        {"WHICH", !two                      ? "0"
                  : schedule_count_entries(s) ? "self->odd >> s->turn & 1"
                                              : "self->odd"},
        {"DECLARE_KEPT", n ? mem_printf(p->t, "    int64_t kept[%d];\n", n) : ""},
        {"CHECK_KEPT", n ? check_kept_text : ""},
        {"RESTORE_KEPT",
         mem_printf(p->t, "%s%s", n ? "    memcpy(self->kept, kept, sizeof kept);\n" : "",
                    two ? "    self->odd = 0;\n" : "")},
        {NULL, NULL}};
    write_table(p, out);
    write_begin(p, out);
    program_write_words(p, out, reset_text, word);
    program_write_words(p, out, save_text, word);
    program_write_words(p, out, restore_text, word);
}

/* -------------------------------------------------------------------------------------- the run */

const struct state *state_of_length(const struct schedule *s, const struct var *v)
{
    for (int i = 0; i < s->nstate; i++)
        if (s->state[i]->length == v)
            return s->state[i];
    return NULL;
}

void state_write_checks(struct program *p, struct text *out)
{
    const struct schedule *s = p->s;
    const struct var **v = s->nstate ? state_vars(p->t, s) : NULL;
    for (int i = 0; v && v[i]; i++) {
        const struct state *st = state_of_length(s, v[i]);
        const char *name = program_var(p, v[i]);
        if (st)
            text_printf(out,
                        "    const int64_t %s = self->kept[%d];\n"
                        "    if (%s > %s_MAX_%s - %s)\n        return %s_STATE_FULL;\n",
                        name, i, program_scalar(p, st->rows), p->upper, name_upper(p->t, name),
                        name, p->upper);
        else
            text_printf(out,
                        "    if (self->kept[%d] >= 0 && in->dim_%s != self->kept[%d])\n"
                        "        return %s_STATE_SIZE;\n",
                        i, name, i, p->upper);
    }
}

static void write_place(struct program *p, struct text *out, const struct buffer *b, size_t first)
{
    const struct state *st = b->port.state;
    bool next = b != st->in;
    size_t start = out->n;
    if (!p->buffer_used[b->id])
        return;
    text_printf(out, "    %s *const %s = (%s *)%s", dtype_ctype(b->dtype), p->buffer_name[b->id],
                dtype_ctype(b->dtype), b->port.block == BLOCK_ARENA ? "(void *)" : "");
    if (b->port.block != BLOCK_ARENA)
        text_printf(out, "(%s + %zu);", training_block(b->port.block), st->place[0]);
    else if (state_has_two_places(st))
        text_printf(out, "(states + (%s ? %zu : %zu));", state_is_odd(p, st), st->place[!next],
                    st->place[next]);
    else
        text_printf(out, "(states + %zu);", st->place[st->is_copied] + first);
    text_pad(out, start, 72);
    text_printf(out, " /* %s", dtype_name(b->dtype));
    text_dims(out, b->dim, b->ndim, "[", "]");
    text_puts(out, " */\n");
}

static bool is_in_arena(const struct program *p, const struct buffer *b)
{
    return p->buffer_used[b->id] && b->port.block == BLOCK_ARENA;
}

/* The caller may give no block that nothing in a run needs: NULL has no places, numbers have. */
static void write_blocks(struct program *p, struct text *out)
{
    bool used[BLOCK_COUNT] = {false};
    for (int i = 0; i < p->s->nstate; i++) {
        const struct buffer *const side[] = {p->s->state[i]->in, p->s->state[i]->out};
        for (int k = 0; k < 2; k++)
            used[side[k]->port.block] |= p->buffer_used[side[k]->id];
    }
    for (int b = BLOCK_PARAMS, any = 0; b < BLOCK_COUNT; b++) {
        const char *name = training_block((enum state_block)b);
        if (used[b] && any++ == 0)
            text_puts(out, "\n    /* the caller's blocks; 0: there is none, and this run needs "
                           "none */\n");
        if (used[b])
            text_printf(out, "    const uintptr_t %s = (uintptr_t)self->options.%s;\n", name, name);
    }
}

void state_write_places(struct program *p, struct text *out)
{
    const struct schedule *s = p->s;
    bool any = false;
    write_blocks(p, out);
    for (int i = 0; i < s->nstate; i++)
        any |= is_in_arena(p, s->state[i]->in) || is_in_arena(p, s->state[i]->out);
    for (int i = 0; i < s->npart; i++)
        any |= is_in_arena(p, s->part[i]->out);
    if (any)
        text_printf(out,
                    "\n    /* what runs keep for the next one */\n"
                    "    unsigned char *const states = (unsigned char *)(void *)self + %zu;\n",
                    p->head_bytes);
    for (int i = 0; i < s->nstate; i++) {
        const struct state *st = s->state[i];
        write_place(p, out, st->in, 0);
        write_place(p, out, st->out, 0);
        for (int k = 0; k < st->npart; k++)
            if (st->part[k].out != st->out)
                write_place(p, out, st->part[k].out,
                            (size_t)st->part[k].first * dtype_nbytes(st->out->dtype));
    }
}

uint64_t state_turns(const struct schedule *s, int entry)
{
    uint64_t stored = 0;
    for (int i = 0; i < s->nstate; i++)
        for (int k = 0; k < s->state[i]->npart; k++)
            if (s->state[i]->part[k].entry == entry && state_has_two_places(s->state[i]))
                stored |= UINT64_C(1) << state_turn(s->state, s->nstate, s->state[i]);
    return stored;
}

static void write_turns(struct program *p, int entry, struct text *out)
{
    uint64_t stored = state_turns(p->s, entry);
    if (stored)
        text_printf(out, "    if (%s)\n        self->odd ^= UINT64_C(%llu);\n",
                    entry_condition(p, entry), (unsigned long long)stored);
}

const char *state_is_odd(struct program *p, const struct state *st)
{
    if (!schedule_count_entries(p->s))
        return "self->odd";
    return mem_printf(p->t, "self->odd >> %d & 1", state_turn(p->s->state, p->s->nstate, st));
}

/* Next values of blocks that have a place of their own. */
static void write_copies(struct program *p, int entry, struct text *out)
{
    bool any = false;
    for (int i = 0; i < p->s->nstate; i++) {
        const struct state *st = p->s->state[i];
        for (int k = 0; k < st->npart && st->is_copied && st->nbytes > 0; k++) {
            if (st->part[k].entry != entry)
                continue;
            if (!any)
                text_printf(out, "    if (%s) {\n", entry_condition(p, entry));
            any = true;
            text_printf(out, "        memcpy(%s, %s, %zu);\n", p->buffer_name[st->in->id],
                        p->buffer_name[st->out->id], st->nbytes);
        }
    }
    text_puts(out, any ? "    }\n" : "");
}

void state_write_end(struct program *p, struct text *out)
{
    const struct schedule *s = p->s;
    const struct var **v = s->nstate ? state_vars(p->t, s) : NULL;
    for (int i = 0; v && v[i]; i++) {
        const struct state *st = state_of_length(s, v[i]);
        if (st)
            text_printf(out, "    self->kept[%d] = %s + %s;\n", i, program_var(p, v[i]),
                        program_scalar(p, st->rows));
        else
            text_printf(out, "    self->kept[%d] = in->dim_%s;\n", i, program_var(p, v[i]));
    }
    for (int e = 0; e < schedule_count_entries(s); e++) {
        write_turns(p, e, out);
        write_copies(p, e, out);
    }
    if (states_have_two_places(s) && !schedule_count_entries(s))
        text_puts(out, "    self->odd = !self->odd;\n");
}

/* --------------------------------------------------------------------------- NAME.h, describe() */

void state_write_macro(struct program *p, struct text *out)
{
    if (p->s->nstate > 0 && !program_training(p->s))
        text_printf(out, "#define %s_STATE_BYTES %zu      /* of a block of %s_save */\n", p->upper,
                    program_state_bytes(p->t, p->s), p->name);
}

static const char header_text[] =
    "/* A model keeps its states from run to run; a run that returns anything but MODEL_OK leaves "
    "them as\n"
    " * they were. model_reset: as before the first run. model_save writes MODEL_STATE_BYTES, "
    "which\n"
    " * model_restore of this model, in any arena, takes back; MODEL_BAD_STATE if it is "
    "another's.\n"
    " *\n"
    " * A block, in the machine's byte order:\n"
    " * - 8 bytes \"tgcstate\", uint32_t version of this layout (1), uint32_t 0,\n"
    " * - uint64_t hash of the model's weights and states, uint64_t MODEL_STATE_BYTES,\n"
    "BLOCK_KEPT"
    " * - each state in the order of the table, at a multiple of 64 bytes, with room for its\n"
    " *   bounds. */\n"
    "MODEL_API int model_reset(model_self *self);\n"
    "MODEL_API int model_save(CONSTmodel_self *self, void *block);\n"
    "MODEL_API int model_restore(model_self *self, const void *block);\n\n";

void state_write_header(struct program *p, struct text *out)
{
    const struct schedule *s = p->s;
    const struct var **v = s->nstate ? state_vars(p->t, s) : NULL;
    if (!v || program_training(s))
        return;
    text_puts(out, "/* States, from output to next input:\n");
    for (int i = 0; i < s->nstate; i++) {
        const struct state *st = s->state[i];
        text_puts(out, " *   ");
        text_comment(out, st->from);
        text_puts(out, " -> ");
        text_comment(out, st->name);
        text_printf(out, "  %s", dtype_name(st->in->dtype));
        text_dims(out, st->in->dim, st->in->ndim, "[", "]");
        if (st->length) {
            text_puts(out, "  ");
            text_comment(out, st->length->name);
            text_printf(out, " grows from %lld to %lld",
                        (long long)state_first_length(s, st->length), (long long)st->length->max);
        } else if (st->in->port.first) {
            text_puts(out, "  begins as in the model");
        }
        text_putc(out, '\n');
    }
    text_puts(out, " */\n");
    struct text kept = {.t = p->t};
    for (int i = 0; v[i]; i++) {
        text_puts(&kept, i ? ", " : " * - int64_t ");
        text_comment(&kept, v[i]->name);
    }
    const struct text_word word[] = {
        {"BLOCK_KEPT", kept.n ? mem_printf(p->t, "%s (-1: any);\n", kept.s) : ""},
        {"CONST", p->backend->device ? "" : "const "}, {NULL, NULL}};
    program_write_words(p, out, header_text, word);
}

void state_write_info(struct program *p, struct text *out)
{
    const struct schedule *s = p->s;
    const struct var **v = s->nstate ? state_vars(p->t, s) : NULL;
    for (int i = 0; i < s->nstate; i++)
        describe_write_dims(p, out, "state", s->state[i]->in, i);
    if (s->nstate)
        text_printf(out, "static const struct %s_state state_info[] = {\n", p->name);
    for (int i = 0; i < s->nstate; i++) {
        const struct state *st = s->state[i];
        int length = state_var_position(v, st->length);
        text_puts(out, "    {");
        text_string(out, st->from);
        text_puts(out, ", {");
        text_string(out, st->name);
        text_printf(out, ", \"%s\", %zu, %d, ", dtype_name(st->in->dtype),
                    dtype_nbytes(st->in->dtype), st->in->ndim);
        text_puts(out, st->in->ndim ? mem_printf(p->t, "state_dim_%d", i) : "NULL");
        text_printf(out, ", %zu, (size_t)-1}, %d, ", state_block_offset(p->t, s, i),
                    st->length ? st->axis : -1);
        if (length >= 0)
            text_printf(out, "%zu},\n",
                        (size_t)STATE_BLOCK_HEAD + (size_t)length * sizeof(int64_t));
        else
            text_puts(out, "(size_t)-1},\n");
    }
    if (s->nstate)
        text_puts(out, "};\n");
}
