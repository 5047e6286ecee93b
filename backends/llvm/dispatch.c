/* dispatch.c - kernels for several instruction sets in one module, and the choice among them, which
 * NAME_init() makes once.
 *
 *      conv1 · conv1_avx2 · conv1_avx512      each with the features that it needs as attributes
 *      kernels_generic, kernels_avx2, ...     their addresses, for each set; where a kernel has no
 *                                             variant for a set, that of the widest set before it
 *      struct NAME                            has the address of the table for its processor
 *
 * A model without variants has no table, and calls its kernels directly; so does a file for one
 * processor, whose kernels are the best variants for it.
 */
#include "backends/llvm/machine.h"

#include <string.h>

enum { NWORD = 2 };
struct mask { uint32_t word[NWORD]; };

static const struct { const char *feature, *arch; int word, bit; } tests[] = {
#define TEST(feature, architecture, word, bit) {feature, architecture, word, bit},
#include "backends/llvm/tests.def"
#undef TEST
};

/* ------------------------------------------------------------------------------------- kernels */

/* The widest of those that the machine runs, in whatever order they are. */
const struct variant *variant_pick(const struct emit *e, const struct kernel *k)
{
    const struct variant *best = NULL;
    for (int i = 0; i < k->nvariant; i++)
        if ((!best || k->variant[i].isa > best->isa) && machine_has(e, k->variant[i].isa))
            best = &k->variant[i];
    return best;
}

static value emit_variant(struct emit *e, const struct kernel *k, const struct variant *v)
{
    const char *base = e->features;
    e->features = features_with(e->t, base, v->isa);
    value f = emit_kernel(e, k, v);
    e->features = base;
    return f;
}

void dispatch_emit(struct emit *e, const struct kernel *k)
{
    e->kernel[k->index] = emit_kernel(e, k, e->isa ? NULL : variant_pick(e, k));
    for (int i = 0; i < k->nvariant; i++) {
        enum isa isa = k->variant[i].isa;
        if (!(e->isa >> isa & 1))
            continue;
        if (!e->variant[isa])
            e->variant[isa] = mem_array(e->t, (size_t)e->s->nkernel, sizeof *e->variant[isa]);
        e->variant[isa][k->index] = emit_variant(e, k, &k->variant[i]);
        if (e->slot[k->index] < 0)
            e->slot[k->index] = e->nslot++;
    }
}

value dispatch_callee(struct emit *e, value self, const struct kernel *k)
{
    int slot = e->slot[k->index];
    if (slot < 0)
        return e->kernel[k->index];
    value table = field_load(e, e->head, self, HEAD_KERNELS);
    return load_as(e, e->pointer, pointer_at(e, table, e->pointer, const_int(e, e->i64, slot)), 0);
}

/* ---------------------------------------------------------------------------------- the choice */

static value table_for(struct emit *e, enum isa isa)
{
    value *row = mem_array(e->t, (size_t)e->nslot, sizeof *row);
    for (int k = 0; k < e->s->nkernel; k++) {
        value f = e->kernel[k];
        if (e->slot[k] < 0)
            continue;
        for (int i = ISA_GENERIC + 1; i <= (int)isa; i++)
            if (e->variant[i] && e->variant[i][k])
                f = e->variant[i][k];
        row[e->slot[k]] = e->l->ConstBitCast(f, e->pointer);
    }
    return constant_table(e, row, e->nslot, mem_printf(e->t, "kernels_%s", isa_name(isa)));
}

static struct mask mask_of(struct emit *e, enum isa isa)
{
    struct mask mask = {{0}};
    for (const char *s = isa_features(isa); *s;) {
        size_t n = strcspn(s, " "), i = 0, count = sizeof tests / sizeof *tests;
        if (strncmp(s, "amx ", n + 1) == 0) {                    /* has_tiles() */
            s += n + 1;
            continue;
        }
        while (i < count && (strncmp(tests[i].feature, s, n) != 0 || tests[i].feature[n] != 0))
            i++;
        if (i == count)
            TGC_BUG(e->t, "tests.def has no row for '%s'", s);
        mask.word[tests[i].word] |= 1u << tests[i].bit;
        s += n + (s[n] == ' ');
    }
    return mask;
}

static value declare(struct emit *e, const char *name, LLVMTypeRef result, LLVMTypeRef *type,
                     unsigned n)
{
    return e->l->AddFunction(e->module, name, e->l->FunctionType(result, type, n, 0));
}

static void read_x86(struct emit *e, value *word)
{
    enum { FEATURES = 3 };                                     /* after vendor, type and subtype */
    LLVMTypeRef type = e->l->ArrayType(e->i32, FEATURES + 1);
    value model = e->l->AddGlobal(e->module, type, "__cpu_model");
    value more = e->l->AddGlobal(e->module, e->l->ArrayType(e->i32, 1), "__cpu_features2");
    call(e, declare(e, "__cpu_indicator_init", e->i32, NULL, 0), NULL, 0);
    word[0] = load_as(e, e->i32, pointer_at(e, model, e->i32, const_int(e, e->i64, FEATURES)), 0);
    word[1] = load_as(e, e->i32, more, 0);
}

/* Linux alone says it: elsewhere processors have what all have. */
static void read_aarch64(struct emit *e, value *word)
{
    static const int which[NWORD] = {16, 26};                    /* AT_HWCAP, AT_HWCAP2 */
    if (!e->is_linux) {
        word[0] = word[1] = const_int(e, e->i32, 0);
        return;
    }
    value f = declare(e, "getauxval", e->i64, &e->i64, 1);
    for (int i = 0; i < NWORD; i++) {
        value arg = const_int(e, e->i64, which[i]);
        word[i] = cast_to(e, LLVM_TRUNC, call(e, f, &arg, 1), e->i32);
    }
}

static value has(struct emit *e, struct mask mask, const value *word)
{
    value all = const_int(e, e->i1, 1);
    for (int i = 0; i < NWORD; i++) {
        value wanted = const_int(e, e->i32, mask.word[i]);
        if (mask.word[i] == 0)
            continue;
        value found = binary(e, LLVM_AND, word[i], wanted);
        all = binary(e, LLVM_AND, all, e->l->BuildICmp(e->at, LLVM_EQ, found, wanted, ""));
    }
    return all;
}

/* Whether the processor has tiles, and the system lets this process use them. */
static value has_tiles(struct emit *e)
{
    value found = call_piece(e, "has_amx", e->i8, NULL, 0);
    return e->l->BuildICmp(e->at, LLVM_NE, found, const_int(e, e->i8, 0), "");
}

value dispatch_pick(struct emit *e)
{
    value word[NWORD];
    if (e->nslot == 0)
        return NULL;
    if (strcmp(e->arch, "__x86_64__") == 0)
        read_x86(e, word);
    else
        read_aarch64(e, word);
    value table = table_for(e, ISA_GENERIC);
    for (int isa = ISA_GENERIC + 1; isa < ISA_COUNT; isa++)      /* wider ones last */
        if (e->variant[isa]) {
            value runs = has(e, mask_of(e, (enum isa)isa), word);
            if (isa_has_tiles((enum isa)isa))
                runs = binary(e, LLVM_AND, runs, has_tiles(e));
            table = choose(e, runs, table_for(e, (enum isa)isa), table);
        }
    return table;
}
