/* state.c - what a context keeps from run to run, in LLVM's IR: its part in NAME_run(), and
 * NAME_reset(), NAME_save(), NAME_restore().
 *
 *      arena   struct NAME · kept[], odd | states | intermediates
 *
 * kept[] and odd (whether runs of odd number come next, which read the other of a state's two
 * places; where there are several entries, a bit for states that are stored together) are the last
 * words of struct NAME. backends/program/state.c has the layout of both arena and block, and writes
 * the same functions as C. A training's states are in the caller's blocks, and have no functions.
 */
#include "backends/llvm/emit.h"

#include <string.h>

enum { WORD = 8, VERSION = 1 };

static value size(const struct emit *e, size_t n) { return const_i64(e, (int64_t)n); }

static value at(struct emit *e, value base, size_t nbytes)
{
    return pointer_at(e, base, e->i8, size(e, nbytes));
}

static value load_word(struct emit *e, value base, size_t nbytes)
{
    return load_as(e, e->i64, at(e, base, nbytes), WORD);
}

static void store_word(struct emit *e, value v, value base, size_t nbytes)
{
    store_as(e, v, at(e, base, nbytes), WORD);
}

/* The offset of kept[i] in struct NAME; that of `odd` for the index after the last. */
static size_t kept_at(const struct emit *e, int i)
{
    return program_head_bytes(e->s) - state_head_bytes(e->s) + WORD * (size_t)i;
}

static size_t odd_at(const struct emit *e) { return kept_at(e, state_count_vars(e->s)); }

static value states_of(struct emit *e, value self) { return at(e, self, program_head_bytes(e->s)); }

/* ------------------------------------------------------------------------------------------ run */

static value odd(struct emit *e, value self, const struct state *st)
{
    value word = load_word(e, self, odd_at(e));
    uint64_t bit = UINT64_C(1) << state_turn(e->s->state, e->s->nstate, st);
    if (schedule_count_entries(e->s))
        word = binary(e, LLVM_AND, word, const_i64(e, (int64_t)bit));
    return compare_ints(e, LLVM_NE, word, const_i64(e, 0));
}

/* After a run: all states with two places have changed them, or those that its entry stores. */
static void turn(struct emit *e, value self)
{
    int n = schedule_count_entries(e->s);
    value word = load_word(e, self, odd_at(e));
    if (n == 0)
        word = binary(e, LLVM_XOR, word, const_i64(e, 1));
    for (int i = 0; i < n; i++) {
        value is = compare_ints(e, LLVM_EQ,
                                load_as(e, e->i64, e->var[e->s->graph->entry_number->id], WORD),
                                const_i64(e, i));
        value stored = const_i64(e, (int64_t)state_turns(e->s, i));
        word = binary(e, LLVM_XOR, word, choose(e, is, stored, const_i64(e, 0)));
    }
    store_word(e, word, self, odd_at(e));
}

/* Where the states of a block begin. */
static value block_of(struct emit *e, value self, enum state_block block)
{
    const int field = HEAD_PARAMS + (int)block - BLOCK_PARAMS;
    return block == BLOCK_ARENA ? states_of(e, self) : field_load(e, e->head, self, field);
}

static void bind_place(struct emit *e, value self, const struct buffer *b, size_t first)
{
    const struct state *st = b->port.state;
    int next = b != st->in;
    value place = size(e, st->place[next && st->is_copied] + first);
    if (state_has_two_places(st))
        place = choose(e, odd(e, self, st), size(e, st->place[!next]), size(e, st->place[next]));
    e->place[b->id] = pointer_at(e, block_of(e, self, b->port.block), e->i8, place);
}

static void bind_places(struct emit *e, value self)
{
    for (int i = 0; i < e->s->nstate; i++) {
        const struct state *st = e->s->state[i];
        size_t nbytes = dtype_nbytes(st->out->dtype);
        bind_place(e, self, st->in, 0);
        bind_place(e, self, st->out, 0);
        for (int k = 0; k < st->npart; k++)
            if (st->part[k].out != st->out)
                bind_place(e, self, st->part[k].out, (size_t)st->part[k].first * nbytes);
    }
}

/* A length is the context's, and what comes has to fit; a size stays what it was. */
static void check_var(struct emit *e, value self, const struct var *v, int i)
{
    const struct state *st = state_of_length(e->s, v);
    value kept = load_word(e, self, kept_at(e, i));
    if (st) {
        store_as(e, kept, e->var[v->id], WORD);
        value left = binary(e, LLVM_SUB, const_i64(e, v->max), host_scalar(e, st->rows));
        return_if(e, compare_ints(e, LLVM_SGT, kept, left), const_status(e, PROGRAM_STATE_FULL));
        return;
    }
    value other = compare_ints(e, LLVM_NE, load_as(e, e->i64, e->var[v->id], WORD), kept);
    value known = compare_ints(e, LLVM_SGE, kept, const_i64(e, 0));
    return_if(e, binary(e, LLVM_AND, known, other), const_status(e, PROGRAM_STATE_SIZE));
}

void state_begin_run(struct emit *e, value self)
{
    const struct var **v = state_vars(e->t, e->s);
    for (int i = 0; e->s->nstate && v[i]; i++)
        check_var(e, self, v[i], i);
    bind_places(e, self);
}

static void copy(struct emit *e, value to, value from, value nbytes)
{
    LLVMTypeRef type[3] = {e->pointer, e->pointer, e->i64};
    value arg[4] = {to, from, nbytes, const_int(e, e->i1, 0)};
    call_intrinsic(e, "llvm.memcpy", type, 3, arg, 4);
}

/* Next values of blocks that have a place of their own, in runs of their entry. */
static void copy_next(struct emit *e, int entry)
{
    LLVMBasicBlockRef after = NULL;
    for (int i = 0; i < e->s->nstate; i++) {
        const struct state *st = e->s->state[i];
        for (int k = 0; k < st->npart && st->is_copied && st->nbytes > 0; k++) {
            if (st->part[k].entry != entry)
                continue;
            value number = load_as(e, e->i64, e->var[e->s->graph->entry_number->id], WORD);
            if (!after)
                after = begin_when(e, compare_ints(e, LLVM_EQ, number, const_i64(e, entry)));
            copy(e, e->place[st->in->id], e->place[st->out->id], size(e, st->nbytes));
        }
    }
    if (after)
        begin_after(e, after);
}

void state_end_run(struct emit *e, value self)
{
    const struct var **v = state_vars(e->t, e->s);
    for (int i = 0; e->s->nstate && v[i]; i++) {
        const struct state *st = state_of_length(e->s, v[i]);
        value now = load_as(e, e->i64, e->var[v[i]->id], WORD);
        store_word(e, st ? binary(e, LLVM_ADD, now, host_scalar(e, st->rows)) : now, self,
                   kept_at(e, i));
    }
    if (states_have_two_places(e->s))
        turn(e, self);
    for (int i = 0; i < schedule_count_entries(e->s); i++)
        copy_next(e, i);
}

/* ------------------------------------------------------------------------------------ functions */

static void clear(struct emit *e, value to, size_t nbytes)
{
    LLVMTypeRef type[2] = {e->pointer, e->i64};
    value arg[4] = {to, const_int(e, e->i8, 0), size(e, nbytes), const_int(e, e->i1, 0)};
    call_intrinsic(e, "llvm.memset", type, 2, arg, 4);
}

/* Copies pieces of nbytes, which are to_stride and from_stride bytes apart. */
static void copy_pieces(struct emit *e, size_t parts, value to, size_t to_stride, value from,
                        size_t from_stride, value nbytes)
{
    if (parts == 1) {
        copy(e, to, from, nbytes);
        return;
    }
    loop_open(e, NULL, const_i64(e, 0), size(e, parts), false);
    value k = e->region[e->nregion - 1].counter;
    copy(e, pointer_at(e, to, e->i8, binary(e, LLVM_MUL, k, size(e, to_stride))),
         pointer_at(e, from, e->i8, binary(e, LLVM_MUL, k, size(e, from_stride))), nbytes);
    loop_close(e);
}

/* One of the functions: i32 NAME_reset(self), or with a block beside it. */
static void begin_function(struct emit *e, const char *what, unsigned nparameter)
{
    LLVMTypeRef type[2] = {e->pointer, e->pointer};
    function_begin(e, mem_printf(e->t, "%s_%s", e->name, what),
                   e->l->FunctionType(e->i32, type, nparameter, 0), false);
    value self = e->l->GetParam(e->function, 0);
    for (unsigned i = 0; i < nparameter; i++)
        return_if(e, is_null(e, e->l->GetParam(e->function, i)),
                  const_status(e, PROGRAM_NULL_ARGUMENT));
    return_if(e, compare_ints(e, LLVM_NE, load_as(e, e->pointer, self, 0), self),
              const_status(e, PROGRAM_NOT_INITIALIZED));
}

static void end_function(struct emit *e)
{
    e->l->BuildRet(e->at, const_status(e, PROGRAM_OK));
    function_end(e);
}

static void begin_state(struct emit *e, value self, const struct state *st)
{
    const struct buffer *first = st->in->port.first;
    struct state_pieces p = state_pieces(st);
    value place = at(e, states_of(e, self), st->place[0]);
    if (st->nbytes == 0 || (first && first->nbytes == 0))
        return;
    if (first) {
        size_t piece = first->nbytes / p.parts;
        copy_pieces(e, p.parts, place, p.stride, weight_place(e, self, first), piece,
                    size(e, piece));
    } else if (!st->length) {
        clear(e, place, st->nbytes);
    }
}

/* void NAME.begin(self): as before the first run. */
static value emit_begin(struct emit *e)
{
    const struct var **v = state_vars(e->t, e->s);
    function_begin(e, mem_printf(e->t, "%s.begin", e->name),
                   e->l->FunctionType(e->nothing, &e->pointer, 1, 0), true);
    value self = e->l->GetParam(e->function, 0), function = e->function;
    for (int i = 0; i < e->s->nstate; i++)
        begin_state(e, self, e->s->state[i]);
    for (int i = 0; v[i]; i++)
        store_word(e, const_i64(e, state_first_length(e->s, v[i])), self, kept_at(e, i));
    store_word(e, const_i64(e, 0), self, odd_at(e));
    e->l->BuildRetVoid(e->at);
    function_end(e);
    return function;
}

/* The first bytes of a block: a mark, the layout's version, a hash of the model, the block's
 * size. */
enum { HEAD_FIELDS = 4 };
struct head_field { size_t at; value v; };
static void head_of_block(struct emit *e, struct head_field field[HEAD_FIELDS])
{
    uint64_t mark;
    memcpy(&mark, "tgcstate", sizeof mark);
    mark = e->swapped ? __builtin_bswap64(mark) : mark;
    field[0] = (struct head_field){0, const_i64(e, (int64_t)mark)};
    field[1] = (struct head_field){WORD, const_int(e, e->i32, VERSION)};
    field[2] = (struct head_field){2 * WORD, const_i64(e, (int64_t)e->s->graph->state_hash)};
    field[3] =
        (struct head_field){3 * WORD, const_i64(e, (int64_t)program_state_bytes(e->t, e->s))};
}

/* The bytes of each piece of state k, of the length that kept[] at `kept` says. */
static value piece_bytes(struct emit *e, const struct state *st, value kept)
{
    int length = state_var_position(state_vars(e->t, e->s), st->length);
    value row = size(e, state_pieces(st).row);
    return length < 0 ? row
                      : binary(e, LLVM_MUL, row, load_word(e, kept, WORD * (size_t)length));
}

static void emit_save(struct emit *e)
{
    struct head_field head[HEAD_FIELDS];
    begin_function(e, "save", 2);
    value self = e->l->GetParam(e->function, 0), block = e->l->GetParam(e->function, 1);
    value states = states_of(e, self), kept = at(e, self, kept_at(e, 0));
    head_of_block(e, head);
    clear(e, block, program_state_bytes(e->t, e->s));
    for (int i = 0; i < HEAD_FIELDS; i++)
        store_as(e, head[i].v, at(e, block, head[i].at), 1);
    copy(e, at(e, block, STATE_BLOCK_HEAD), kept, size(e, WORD * (size_t)state_count_vars(e->s)));
    for (int i = 0; i < e->s->nstate; i++) {
        const struct state *st = e->s->state[i];
        struct state_pieces p = state_pieces(st);
        value place = choose(e, odd(e, self, st), size(e, st->place[1]), size(e, st->place[0]));
        copy_pieces(e, p.parts, at(e, block, state_block_offset(e->t, e->s, i)), p.stride,
                    pointer_at(e, states, e->i8, place), p.stride, piece_bytes(e, st, kept));
    }
    end_function(e);
}

/* Whatever is no block of this model's is refused before anything changes. */
static void check_block(struct emit *e, value block)
{
    struct head_field head[HEAD_FIELDS];
    const struct var **v = state_vars(e->t, e->s);
    value bad = const_status(e, PROGRAM_BAD_STATE);
    head_of_block(e, head);
    for (int i = 0; i < HEAD_FIELDS; i++) {
        value found = load_as(e, e->l->TypeOf(head[i].v), at(e, block, head[i].at), 1);
        return_if(e, compare_ints(e, LLVM_NE, found, head[i].v), bad);
    }
    for (int i = 0; v[i]; i++) {
        value kept = load_as(e, e->i64, at(e, block, STATE_BLOCK_HEAD + WORD * (size_t)i), 1);
        int64_t least = state_is_length(e->s->graph, v[i]) ? 0 : -1;
        return_if(e, compare_ints(e, LLVM_SLT, kept, const_i64(e, least)), bad);
        return_if(e, compare_ints(e, LLVM_SGT, kept, const_i64(e, v[i]->max)), bad);
    }
}

static void emit_restore(struct emit *e)
{
    begin_function(e, "restore", 2);
    value self = e->l->GetParam(e->function, 0), block = e->l->GetParam(e->function, 1);
    value states = states_of(e, self), kept = at(e, self, kept_at(e, 0));
    check_block(e, block);
    copy(e, kept, at(e, block, STATE_BLOCK_HEAD), size(e, WORD * (size_t)state_count_vars(e->s)));
    for (int i = 0; i < e->s->nstate; i++) {
        const struct state *st = e->s->state[i];
        struct state_pieces p = state_pieces(st);
        copy_pieces(e, p.parts, at(e, states, st->place[0]), p.stride,
                    at(e, block, state_block_offset(e->t, e->s, i)), p.stride,
                    piece_bytes(e, st, kept));
    }
    store_word(e, const_i64(e, 0), self, odd_at(e));
    end_function(e);
}

void emit_states(struct emit *e)
{
    value first = emit_begin(e);
    begin_function(e, "reset", 1);
    value self = e->l->GetParam(e->function, 0);
    call(e, first, &self, 1);
    end_function(e);
    emit_save(e);
    emit_restore(e);
}
