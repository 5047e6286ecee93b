/* gpu_ops.c - what only kernels of devices have: numbers of threads and blocks, barriers, shuffles,
 * ranges over the grid or a block. gpu_language.c has the device's functions.
 */
#include "backends/device/device.h"
#include "backends/llvm/emit.h"
#include "passes/analysis/access.h"

value gpu_number(const struct emit *e, const char *what, int axis)
{
    return call(e,
                gpu_function(e, mem_printf(e->t, "gpu.%s.%c", what, "xyz"[axis]), e->i32, NULL, 0),
                NULL, 0);
}

value gpu_lane(const struct emit *e, int lanes)
{
    return binary(e, LLVM_AND, gpu_number(e, "thread", 0), const_int(e, e->i32, lanes - 1));
}

void gpu_barrier(struct emit *e)
{
    if (e->gpu)                          /* elsewhere a block has one thread */
        call(e, gpu_function(e, "gpu.barrier", e->nothing, NULL, 0), NULL, 0);
}

void gpu_shuffle(struct emit *e, const struct uop *u)
{
    struct uop *acc = u->src[0], *both[2] = {acc, acc};
    if (!e->gpu)
        return;
    if (acc->dtype != DTYPE_F32 || acc->lanes != 1)
        TGC_BUG(e->t, "a shuffle of %s[%d]", dtype_name(acc->dtype), acc->lanes);
    value own = operand(e, acc);
    value f = gpu_function(e, mem_printf(e->t, "gpu.shuffle.%d", SHUFFLE_MASK(u->arg.i)), e->f32,
                           &e->f32, 1);
    const struct uop *op =
        uop_intern(e->t, SHUFFLE_OP(u->arg.i), u->dtype, both, 2, (union arg){0});
    store_as(e, apply(e, op, (value[]){own, call(e, f, &own, 1)}), acc_place(e, acc), 0);
}

value gpu_dot(struct emit *e, value sum, value a, value b, int n)
{
    enum { GFX10 = 0x1000 };
    const struct gpu_row *row = e->gpu->row;
    LLVMTypeRef words = vector_of(e, e->i32, n), type[3] = {e->i32, e->i32, e->i32};
    value f = gpu_function(
              e, row->kind == GPU_AMDGCN && row->number < GFX10 ? "gpu.dot.gfx9" : "gpu.dot",
              e->i32, type, 3),
          part[3] = {sum, e->l->BuildBitCast(e->at, a, words, ""),
                     e->l->BuildBitCast(e->at, b, words, "")},
          made = sum;
    for (int i = 0; i < n; i++) {
        value lane[3];
        for (int k = 0; k < 3; k++)
            lane[k] = e->l->BuildExtractElement(e->at, part[k], const_int(e, e->i32, i), "");
        made =
            e->l->BuildInsertElement(e->at, made, call(e, f, lane, 3), const_int(e, e->i32, i), "");
    }
    return made;
}

static value address_at(struct emit *e, struct uop *const *memory)
{
    const struct buffer *b = uop_buffer_of(memory[0]);
    return e->l->BuildPtrToInt(
        e->at,
        pointer_at(e, place_of(e, b), type_in_memory(e, b->dtype), offset_wide(e, memory[1])),
        e->i64, "");
}

void gpu_copy(struct emit *e, const struct uop *u)
{
    int nbytes = COPY_LANES(u->arg.i) * (int)dtype_nbytes(uop_buffer_of(u->src[0])->dtype);
    LLVMTypeRef type[3] = {e->i64, e->i64, e->i32};
    value all = const_int(e, e->i32, nbytes),
          arg[3] = {address_at(e, u->src), address_at(e, u->src + 2), all};
    if (u->nsrc > 4)
        arg[2] = e->l->BuildSelect(e->at, operand(e, u->src[4]), all, const_int(e, e->i32, 0), "");
    call(e, gpu_function(e, mem_printf(e->t, "gpu.copy.%d", nbytes), e->nothing, type, 3), arg, 3);
}

void gpu_put(struct emit *e, const struct uop *u)
{
    const struct buffer *b = uop_buffer_of(u->src[0]), *from = uop_buffer_of(u->src[2]);
    LLVMTypeRef element = type_in_memory(e, b->dtype),
                type = vector_of(e, element, COPY_LANES(u->arg.i));
    unsigned one = (unsigned)dtype_nbytes(b->dtype), all = (unsigned)COPY_LANES(u->arg.i) * one;
    value part =
        load_as(e, type, pointer_at(e, place_of(e, from), element, offset_wide(e, u->src[3])),
                from->scratch.is_register ? one : all);
    store_as(e, part, pointer_at(e, place_of(e, b), element, offset_wide(e, u->src[1])),
             b->scratch.is_register ? one : all);
}

void gpu_wait(struct emit *e, const struct uop *u)
{
    const char *name =
        u->op == OP_WAIT ? mem_printf(e->t, "gpu.wait.%d", WAIT_GROUPS(u->arg.i)) : "gpu.commit";
    call(e, gpu_function(e, name, e->nothing, NULL, 0), NULL, 0);
}

/* --------------------------------------------------------------------------------------- places */

/* The position along dimension d of the grid: of the block, or of the thread if the kernel has no
 * blocks of its own. */
static value place_in_grid(const struct emit *e, int d)
{
    int axis = device_axis(e->gpu->p, e->k, d);
    value block = gpu_number(e, "block", axis);
    if (e->k->block)
        return block;
    return binary(e, LLVM_ADD, binary(e, LLVM_MUL, block, const_int(e, e->i32, e->gpu->block[d])),
                  gpu_number(e, "thread", d));
}

/* The thread's number among `turns` iterations of the block, of which each has `between`
 * adjacent threads. */
static value place_in_block(const struct emit *e, const struct uop *u, int64_t between,
                            int64_t turns)
{
    value at = gpu_number(e, "thread", 0);
    if (between > 1)
        at = binary(e, LLVM_UDIV, at, const_int(e, e->i32, between));
    if (range_is_item(u) && sat_mul(between, turns) < e->k->block)
        at = binary(e, LLVM_UREM, at, const_int(e, e->i32, turns));
    return at;
}

/* Has every block of the grid work? Then no condition is needed around the kernel's barriers. */
static bool is_whole(const struct emit *e, const struct uop *u, int d)
{
    const struct kernel *k = e->k;
    int64_t n;
    if (!range_is_grid(u) || (k->block && (k->ast->nsrc == 1 || range_is(u, AXIS_BAND))))
        return true;
    return uop_const_int(k->grid[d], &n) && uop_is_int(u->src[0], n) &&
           (k->block || n % k->group[d] == 0);
}

bool gpu_range(struct emit *e, const struct uop *u)
{
    int64_t n, between, turns = u->src[0]->vmax;
    bool all = range_is_of_block(u) && uop_const_int(u->src[0], &n) && n == e->k->block;
    if (range_is_of_block(u) && !all) {
        range_stride(e, u, gpu_number(e, "thread", 0), e->k->block);
        return true;
    }
    if (!all && !range_is_grid(u) && !range_is_item(u))
        return false;
    int d = linear_inner_workers(e->linear, e->nlinear, e->position, &between);
    value size = offset_wide(e, u->src[0]);
    value at = range_is_grid(u) ? place_in_grid(e, d) : place_in_block(e, u, between, turns);
    at = cast_to(e, LLVM_ZEXT, at, e->l->TypeOf(size));
    guard_open(e, u, is_whole(e, u, d) ? NULL : compare_ints(e, LLVM_SLT, at, size));
    define(e, u, at);
    return true;
}
