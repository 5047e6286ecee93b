/* piece_vectors.c - what the functions of vectors in runtime/vector_math.c are made of: each
 * instruction set's file has these by its intrinsics (vector_avx2.c, vector_neon.c), a module has
 * LLVM's own operations. */
#include "backends/llvm/piece_code.h"

#include <string.h>

enum kind { COMPARES, CHOOSES, INTRINSIC, BITS, SPLATS, SELECTS, CONVERTS, LOOKS_UP };

/* is: a comparison, or a cast, of LLVM's. CHOOSES: the first argument where the comparison holds,
 * so the second where one of them is no number. LOOKS_UP: in a table of 16, AVX-512's. */
static const struct lane_function {
    const char *name;
    enum kind kind;
    int n;
    enum ctype to;
    int is;
    const char *intrinsic;
} table[] = {
    {"less_f32x4", COMPARES, 2, C_MASKS, LLVM_OLT, NULL},
    {"equal_f32x4", COMPARES, 2, C_MASKS, LLVM_OEQ, NULL},
    {"differ_f32x4", COMPARES, 2, C_MASKS, LLVM_UNE, NULL},
    {"higher_f32x4", CHOOSES, 2, C_FLOATS, LLVM_OGT, NULL},
    {"lower_f32x4", CHOOSES, 2, C_FLOATS, LLVM_OLT, NULL},
    {"fma_f32x4", INTRINSIC, 3, C_FLOATS, 0, "llvm.fma"},
    {"abs_f32x4", INTRINSIC, 1, C_FLOATS, 0, "llvm.fabs"},
    {"copysign_f32x4", INTRINSIC, 2, C_FLOATS, 0, "llvm.copysign"},
    {"as_f32x4", BITS, 1, C_FLOATS, 0, NULL},
    {"as_bits_f32x4", BITS, 1, C_BITS, 0, NULL},
    {"as_ints_f32x4", BITS, 1, C_INTS, 0, NULL},
    {"splat_f32x4", SPLATS, 1, C_FLOATS, 0, NULL},
    {"select_f32x4", SELECTS, 3, C_FLOATS, 0, NULL},
    {"from_i32_f32x4", CONVERTS, 1, C_FLOATS, LLVM_SITOFP, NULL},
    {"from_bool_f32x4", CONVERTS, 1, C_FLOATS, LLVM_UITOFP, NULL},
    {"lookup_f32x4", LOOKS_UP, 2, C_BITS, 0, "llvm.x86.avx512.permvar.si.512"}};

static value apply_function(struct piece *p, const struct lane_function *f, value *arg)
{
    struct emit *e = p->e;
    LLVMTypeRef type = ctype_register(e, f->to);
    switch (f->kind) {
    case COMPARES: return e->l->BuildFCmp(e->at, f->is, arg[0], arg[1], "");
    case CHOOSES:
        return choose(e, e->l->BuildFCmp(e->at, f->is, arg[0], arg[1], ""), arg[0], arg[1]);
    case INTRINSIC: return call_intrinsic(e, f->intrinsic, &type, 1, arg, f->n);
    case BITS: return e->l->BuildBitCast(e->at, arg[0], type, "");
    case SELECTS: return choose(e, arg[0], arg[1], arg[2]);
    case CONVERTS: return cast_to(e, (enum llvm_opcode)f->is, arg[0], type);
    case LOOKS_UP:
        arg[0] = load_as(e, type, arg[0], sizeof(uint32_t));
        return call_intrinsic(e, f->intrinsic, NULL, 0, arg, f->n);
    case SPLATS: break;
    }
    return arg[0];
}

bool piece_call_vectors(struct piece *p, const char *name, const struct operand *a, int n,
                        struct operand *r)
{
    value arg[3];
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const struct lane_function *f = &table[i];
        if (strcmp(name, f->name) != 0)
            continue;
        if (n != f->n)
            words_wrong(&p->w);
        for (int k = 0; k < n; k++)
            arg[k] = f->kind == SPLATS ? ctype_convert(p->e, a[k].v, a[k].type, C_FLOATS) : a[k].v;
        *r = (struct operand){.v = apply_function(p, f, arg), .type = f->to};
        return true;
    }
    return false;
}
