/* pool.c - a program's threads in a file, in LLVM's IR: what NAME_init(), NAME_close() and the call
 * of a shared kernel do with them. The pool itself is runtime/threads.c, which the C compiler makes
 * a part of the object. Its struct team is in the arena, after the fields that layout.c has:
 *
 *      struct NAME    itself if it is open · NAME_options · kernels · parts
 *      struct team
 *      kept[], odd
 *
 * In this process program.c has the same functions in C.
 */
#include "backends/llvm/emit.h"

static value team_of(const struct emit *e, value self)
{
    return pointer_at(e, self, e->i8, const_i64(e, (int64_t)program_team_offset()));
}

/* Whether threads of the model's own share its kernels. */
static value has_team(struct emit *e, value self)
{
    value several = compare_ints(e, LLVM_SGT, field_load(e, e->head, self, HEAD_PARTS),
                                 const_int(e, e->i32, 1));
    return binary(e, LLVM_AND, several,
                  is_null(e, field_load(e, e->head, self, HEAD_PARALLEL_FOR)));
}

void pool_emit_share(struct emit *e)
{
    LLVMTypeRef type[4] = {e->pointer, e->pointer, e->pointer, e->i64};
    LLVMTypeRef body_type[2] = {e->pointer, e->i32};
    LLVMTypeRef for_type[4] = {e->pointer, e->i32, e->pointer, e->pointer};
    function_begin(e, "share", e->l->FunctionType(e->nothing, type, 4, 0), true);
    value self = e->l->GetParam(e->function, 0), body = e->l->GetParam(e->function, 1);
    value task = e->l->GetParam(e->function, 2);
    value parts = field_load(e, e->head, self, HEAD_PARTS);
    value hook = field_load(e, e->head, self, HEAD_PARALLEL_FOR);
    store_as(e, cast_to(e, LLVM_ZEXT, parts, e->i64), task, 8);
    LLVMBasicBlockRef after =
        begin_when(e, compare_ints(e, LLVM_EQ, parts, const_int(e, e->i32, 1)));
    call_hook(e, body, body_type, (value[]){task, const_int(e, e->i32, 0)}, 2);
    e->l->BuildRetVoid(e->at);
    e->l->PositionBuilderAtEnd(e->at, after);
    after = begin_when(e, e->l->BuildNot(e->at, is_null(e, hook), ""));
    call_hook(e, hook, for_type,
              (value[]){field_load(e, e->head, self, HEAD_USER), parts, body, task}, 4);
    e->l->BuildRetVoid(e->at);
    e->l->PositionBuilderAtEnd(e->at, after);
    value saves = e->l->GetParam(e->function, 3);                /* a C long */
    saves = e->size == e->i64 ? saves : cast_to(e, LLVM_TRUNC, saves, e->size);
    call_piece(e, "team_run", e->nothing, (value[]){team_of(e, self), body, task, saves}, 4);
    e->l->BuildRetVoid(e->at);
    function_end(e);
}

void pool_open(struct emit *e, value self)
{
    value most = const_int(e, e->i32, program_threads(e->s));
    value wanted = field_load(e, e->head, self, HEAD_THREADS);
    value fewer = binary(e, LLVM_AND, compare_ints(e, LLVM_SGT, wanted, const_int(e, e->i32, 0)),
                         compare_ints(e, LLVM_SLT, wanted, most));
    value parts = choose(e, fewer, wanted, most);
    store_as(e, parts, field_at(e, e->head, self, HEAD_PARTS), 0);
    LLVMBasicBlockRef after = begin_when(e, has_team(e, self));
    value workers = binary(e, LLVM_SUB, parts, const_int(e, e->i32, 1));
    value status = call_piece(e, "team_open", e->i32, (value[]){team_of(e, self), workers}, 2);
    return_if(e, compare_ints(e, LLVM_NE, status, const_int(e, e->i32, 0)),
              const_status(e, PROGRAM_NO_THREADS));
    begin_after(e, after);
}

void pool_close(struct emit *e, value self)
{
    value open = compare_ints(e, LLVM_EQ, field_load(e, e->head, self, HEAD_OPENED), self);
    LLVMBasicBlockRef after = begin_when(e, binary(e, LLVM_AND, open, has_team(e, self)));
    value team = team_of(e, self);
    call_piece(e, "team_close", e->nothing, &team, 1);
    begin_after(e, after);
}
