/* tiles.c - tiles of AMX by LLVM's intrinsics, which name registers by constants, as the
 * instructions do.
 *
 *      call void @llvm.x86.ldtilecfg(ptr @tiles)    ; the shapes, known at the kernel's end
 *      call void @llvm.x86.tilezero(i8 0)
 *      call void @llvm.x86.tileloadd64(i8 1, ptr %x, i64 256)
 *      call void @llvm.x86.tdpbusd(i8 0, i8 1, i8 2)
 *      call void @llvm.x86.tilestored64(i8 0, ptr %y, i64 64)
 *      call void @llvm.x86.tilerelease()
 *
 * Only files have such kernels: their NAME_init() asks has_amx() of runtime/vector_amx.c, which
 * asks the system for the registers.
 */
#include "backends/llvm/emit.h"

/* What ldtilecfg reads: a palette, the bytes of each register's rows, how many rows. */
enum { CONFIG_NBYTES = 64, CONFIG_ROW_NBYTES = 16, CONFIG_ROWS = 48 };

void tiles_open(struct emit *e)
{
    bool any = false;
    for (int i = 0; i < e->nlinear; i++)
        any |= !e->gpu && uop_is_tile(e->linear[i]);      /* a device has none */
    e->tiles = NULL;
    if (!any)
        return;
    e->tiles = scratch_array(e->t, 1, sizeof *e->tiles);
    *e->tiles = (struct tile_registers){.t = e->t, .kernel = e->k->name, .linear = e->linear,
                                        .nlinear = e->nlinear};
    e->tile_config = e->l->AddGlobal(e->module, e->l->ArrayType(e->i8, CONFIG_NBYTES), "tiles");
    value config = e->l->ConstBitCast(e->tile_config, e->pointer);
    call_intrinsic(e, "llvm.x86.ldtilecfg", NULL, 0, &config, 1);
}

void tiles_close(struct emit *e)
{
    if (!e->tiles)
        return;
    unsigned char config[CONFIG_NBYTES] = {1};
    value byte[CONFIG_NBYTES];
    for (int r = 0; r < TILE_REGISTERS; r++) {
        config[CONFIG_ROW_NBYTES + 2 * r] = (unsigned char)e->tiles->shape[r].nbytes;
        config[CONFIG_ROWS + r] = (unsigned char)e->tiles->shape[r].rows;
    }
    for (int i = 0; i < CONFIG_NBYTES; i++)
        byte[i] = const_int(e, e->i8, config[i]);
    e->l->SetInitializer(e->tile_config, e->l->ConstArray(e->i8, byte, CONFIG_NBYTES));
    e->l->SetGlobalConstant(e->tile_config, 1);
    e->l->SetLinkage(e->tile_config, LLVM_PRIVATE);
    call_intrinsic(e, "llvm.x86.tilerelease", NULL, 0, NULL, 0);
}

static value number_of(const struct emit *e, const struct uop *u)
{
    return const_int(e, e->i8, tile_register(e->tiles, u, e->position));
}

static void move(struct emit *e, const char *intrinsic, value tile, const struct uop *u)
{
    const struct buffer *b = uop_buffer_of(u->src[0]);
    int64_t stride = TILE_STRIDE(u->arg.i) * (int64_t)dtype_nbytes(b->dtype);
    value place =
        pointer_at(e, place_of(e, b), type_in_memory(e, b->dtype), offset_wide(e, u->src[1]));
    call_intrinsic(e, intrinsic, NULL, 0, (value[]){tile, place, const_int(e, e->i64, stride)}, 3);
}

void emit_tile(struct emit *e, const struct uop *u)
{
    value tile;
    switch (u->op) {
    case OP_SPLAT:
        if (!uop_is_int(u->src[0], 0) && !uop_is_constf(u->src[0], 0))
            TGC_BUG(e->t, "a tile of a number other than 0");
        break;
    case OP_ACC:
        tile = const_int(e, e->i8, tile_take(e->tiles, u, e->position));
        call_intrinsic(e, "llvm.x86.tilezero", NULL, 0, &tile, 1);
        break;
    case OP_LOAD:
        tile = const_int(e, e->i8, tile_take(e->tiles, u, e->position));
        move(e, "llvm.x86.tileloadd64", tile, u);
        break;
    case OP_INTRINSIC:
        call_intrinsic(
            e,
            INTRINSIC_ROW(u->arg.i) == INTRINSIC_TILE_DOT ? "llvm.x86.tdpbusd"
                                                          : "llvm.x86.tdpbf16ps",
            NULL, 0,
            (value[]){number_of(e, u->src[0]), number_of(e, u->src[1]), number_of(e, u->src[2])},
            3);
        break;
    case OP_ASSIGN:
        if (!uop_is_tile(u->src[1]) || u->src[1]->op != OP_INTRINSIC ||
            u->src[1]->src[0] != u->src[0])
            TGC_BUG(e->t, "a tile that becomes another one");
        break;
    default: move(e, "llvm.x86.tilestored64", number_of(e, u->src[2]), u);
    }
}
