/* gpu_matrix.c - matrix products of a subgroup (ir/matrix.def): what each lane loads of the
 * factors, by the row's layout, and the instruction, which is a function of gpu_language.c.
 *
 *   { float, float, float, float } gpu.m16n8k16_f16(i32 a0 ... a3, i32 b0, b1, float sum0 ... sum3)
 *
 * A fragment is a vector of i32, each with two or four adjacent elements of the lane. The functions
 * of gpu_matrix.def's rows are written here, for intrinsics that take a whole fragment as one
 * vector.
 */
#include "backends/llvm/emit.h"
#include "ir/device_ops.h"

#include <string.h>

enum { WORD = 32, MOST_WORDS = 16 };

/* The offset of the lane's first element. Each bit of the lane's number is a bit of a coordinate;
 * coordinates are `step` apart. */
static value lane_offset(struct emit *e, const struct matrix_row *r, enum matrix_part part,
                         const int64_t *step)
{
    struct matrix_bit bit[MATRIX_BITS_MAX];
    int n = matrix_bits(r, part, true, bit);
    value lane = gpu_lane(e, r->lanes), at = const_int(e, e->i32, 0);
    for (int i = 0, run; i < n; i += run) {
        for (run = 1;
             i + run < n && bit[i + run].of == bit[i].of && bit[i + run].bit == bit[i].bit + run;
             run++)
            ;
        if (bit[i].of == MATRIX_NONE)
            continue;
        value part_of_it = binary(e, LLVM_AND, binary(e, LLVM_LSHR, lane, const_int(e, e->i32, i)),
                                  const_int(e, e->i32, (1 << run) - 1));
        int64_t apart = step[bit[i].of] << bit[i].bit;
        at = e->l->BuildNSWAdd(
            e->at, at, e->l->BuildNSWMul(e->at, part_of_it, const_int(e, e->i32, apart), ""), "");
    }
    return at;
}

/* The distance of the lane's element from its first one. */
static int64_t element_offset(const struct matrix_row *r, enum matrix_part part, int element,
                              const int64_t *step)
{
    int at[MATRIX_NONE + 1];
    int64_t offset = 0;
    matrix_place(r, part, 0, element, at);
    for (int c = 0; c < MATRIX_NONE; c++)
        offset += at[c] * step[c];
    return offset;
}

/* A word of elements from `first` on: one load if they are contiguous in memory. */
static value load_word(struct emit *e, const struct matrix_row *r, enum matrix_part part, int first,
                       value place, const int64_t *step)
{
    int bits = dtype_bits(r->dtype[part]), n = WORD / bits;
    LLVMTypeRef type = type_in_memory(e, r->dtype[part]);
    int64_t begin = element_offset(r, part, first, step),
            apart = element_offset(r, part, first + 1, step) - begin;
    if (apart == 1 || n == 1)
        return load_as(e, e->i32, pointer_at(e, place, type, const_int(e, e->i32, begin)),
                       WORD / 8);
    value word = const_int(e, e->i32, 0);
    for (int i = 0; i < n; i++) {
        int64_t at = element_offset(r, part, first + i, step);
        value v = load_as(e, type, pointer_at(e, place, type, const_int(e, e->i32, at)),
                          (unsigned)bits / 8);
        v = binary(e, LLVM_SHL, cast_to(e, LLVM_ZEXT, v, e->i32), const_int(e, e->i32, i * bits));
        word = binary(e, LLVM_OR, word, v);
    }
    return word;
}

/* Loads the tile as 8 x 16-byte matrices (ldmatrix): those along the rows first, then along k. Each
 * lane passes the begin of one row. */
static value load_rows(struct emit *e, const struct matrix_row *r, enum matrix_part part,
                       const struct uop *u, bool along, int n)
{
    int parts = n / 2, each = 128 / dtype_bits(r->dtype[part]);
    int64_t stride = TILE_STRIDE(u->arg.i);
    LLVMTypeRef result[4] = {e->i32, e->i32, e->i32, e->i32};
    const struct buffer *b = uop_buffer_of(u->src[0]);
    value lane = gpu_lane(e, r->lanes), row = binary(e, LLVM_AND, lane, const_int(e, e->i32, 7)),
          matrix = binary(e, LLVM_AND, binary(e, LLVM_LSHR, lane, const_int(e, e->i32, 3)),
                          const_int(e, e->i32, n - 1)),
          of_side = binary(e, LLVM_AND, matrix, const_int(e, e->i32, parts - 1)),
          of_k = binary(e, LLVM_LSHR, matrix, const_int(e, e->i32, parts / 2));
    value of_rows = along ? of_side : of_k, of_columns = along ? of_k : of_side;
    row = binary(e, LLVM_ADD, row, binary(e, LLVM_MUL, of_rows, const_int(e, e->i32, 8)));
    value at = binary(e, LLVM_ADD, binary(e, LLVM_MUL, row, const_int(e, e->i32, stride)),
                      binary(e, LLVM_MUL, of_columns, const_int(e, e->i32, along ? each : 8)));
    at = e->l->BuildNSWAdd(e->at, operand(e, u->src[1]), at, "");
    value place = e->l->BuildPtrToInt(
        e->at, pointer_at(e, place_of(e, b), type_in_memory(e, b->dtype), at), e->i64, "");
    value f =
        gpu_function(e, mem_printf(e->t, "gpu.rows%d%s", n, along ? "" : "_across"),
                     e->l->StructTypeInContext(e->context, result, (unsigned)n, 0), &e->i64, 1);
    value made = call(e, f, &place, 1), words = e->l->GetUndef(vector_of(e, e->i32, n));
    for (int i = 0; i < n; i++)
        words = e->l->BuildInsertElement(e->at, words,
                                         e->l->BuildExtractValue(e->at, made, (unsigned)i, ""),
                                         const_int(e, e->i32, i), "");
    return words;
}

/* Makes a fragment of the thread's own registers: rounds a word's elements, which are adjacent
 * there, to the factor's dtype. */
static value load_own(struct emit *e, const struct matrix_row *r, enum matrix_part part,
                      const struct uop *u, int n)
{
    int each = WORD / dtype_bits(r->dtype[part]);
    const struct buffer *b = uop_buffer_of(u->src[0]);
    value words = e->l->GetUndef(e->l->VectorType(e->i32, (unsigned)n));
    for (int i = 0; i < n; i++) {
        value word = const_int(e, e->i32, 0);
        for (int k = 0; k < each; k++) {
            int64_t element = matrix_own_element(r, part, i * each + k),
                    row = element / TILE_COLUMNS(u->arg.i), term = element % TILE_COLUMNS(u->arg.i);
            value at =
                e->l->BuildNSWAdd(e->at, operand(e, u->src[1]),
                                  const_int(e, e->i32, row * TILE_STRIDE(u->arg.i) + term), "");
            value v = load_as(e, e->f32, pointer_at(e, place_of(e, b), e->f32, at), 0);
            v = each == 1 ? e->l->BuildBitCast(e->at, v, e->i32, "")
                          : cast_to(e, LLVM_ZEXT, to_memory(e, r->dtype[part], v, 1), e->i32);
            word = binary(
                e, LLVM_OR, word,
                binary(e, LLVM_SHL, v, const_int(e, e->i32, k * dtype_bits(r->dtype[part]))));
        }
        words = e->l->BuildInsertElement(e->at, words, word, const_int(e, e->i32, i), "");
    }
    return words;
}

void gpu_matrix_load(struct emit *e, const struct uop *u)
{
    int factor;
    const struct uop *product =
        matrix_of_tile(e->linear + e->position, e->nlinear - e->position, u, &factor);
    if (!product)
        TGC_BUG(e->t, "kernel %s: a tile without a product", e->k->name);
    const struct matrix_row *r = matrix_row(MATRIX_ROW(product->arg.i));
    enum matrix_part part = factor ? MATRIX_B : MATRIX_A;
    const struct buffer *b = uop_buffer_of(u->src[0]);
    bool along = MATRIX_ALONG_K(product->arg.i, factor);
    int64_t stride = TILE_STRIDE(u->arg.i), step[MATRIX_NONE] = {0};
    step[factor ? MATRIX_N : MATRIX_M] = along ? stride : 1;
    step[MATRIX_K] = along ? 1 : stride;
    int each = WORD / dtype_bits(r->dtype[part]), n = matrix_elements(r, part) / each;
    if (b->scratch.is_own) {
        define(e, u, load_own(e, r, part, u, n));
        return;
    }
    if (TILE_IS_BY_ROWS(u->arg.i)) {
        define(e, u, load_rows(e, r, part, u, along, n));
        return;
    }
    value begin = operand(e, u->src[1]);         /* of a constant 64 bits */
    value at = e->l->BuildNSWAdd(e->at, cast_to(e, LLVM_TRUNC, begin, e->i32),
                                 lane_offset(e, r, part, step), "");
    value place = pointer_at(e, place_of(e, b), type_in_memory(e, b->dtype), at);
    value words = e->l->GetUndef(e->l->VectorType(e->i32, (unsigned)n));
    for (int i = 0; i < n; i++)
        words = e->l->BuildInsertElement(e->at, words, load_word(e, r, part, i * each, place, step),
                                         const_int(e, e->i32, i), "");
    define(e, u, words);
}

void gpu_matrix_product(struct emit *e, const struct uop *u)
{
    const struct matrix_row *r = matrix_row(MATRIX_ROW(u->arg.i));
    const struct uop *acc = u->src[0];
    LLVMTypeRef sum = type_of(e, acc->dtype, 1), type[2 * MOST_WORDS + MOST_WORDS],
                result[MOST_WORDS];
    value arg[2 * MOST_WORDS + MOST_WORDS], place = acc_place(e, acc);
    int n = 0, nsum = matrix_elements(r, MATRIX_SUM);
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < matrix_words(r, k ? MATRIX_B : MATRIX_A); i++) {
            type[n] = e->i32;
            arg[n++] = e->l->BuildExtractElement(e->at, operand(e, u->src[1 + k]),
                                                 const_int(e, e->i32, i), "");
        }
    for (int i = 0; i < nsum; i++) {
        type[n] = result[i] = sum;
        arg[n++] = load_as(e, sum, pointer_at(e, place, sum, const_int(e, e->i32, i)), 0);
    }
    value f =
        gpu_function(e, mem_printf(e->t, "gpu.%s", r->text),
                     e->l->StructTypeInContext(e->context, result, (unsigned)nsum, 0), type, n);
    value made = call(e, f, arg, n);
    for (int i = 0; i < nsum; i++)
        store_as(e, e->l->BuildExtractValue(e->at, made, (unsigned)i, ""),
                 pointer_at(e, place, sum, const_int(e, e->i32, i)), 0);
}

/* -------------------------------------------------------------------------------- the functions */

struct gpu_intrinsic { const char *name, *factor, *sum, *sums, *arguments; };

static const char letter[] = "abs";

static void put_parameters(struct text *out, const struct matrix_row *r, const char *sum)
{
    for (int part = MATRIX_A; part <= MATRIX_SUM; part++)
        for (int i = 0; i < matrix_words(r, (enum matrix_part)part); i++)
            text_printf(out, "%s%s %%%c%d", part + i ? ", " : "", part == MATRIX_SUM ? sum : "i32",
                        letter[part], i);
}

/* %av, of %a0, %a1, ... */
static void put_vector(struct text *out, char part, const char *type, int n)
{
    const char *before = "undef";
    for (int i = 0; i < n; i++) {
        const char *made =
            i + 1 < n ? mem_printf(out->t, "%%%cv%d", part, i) : mem_printf(out->t, "%%%cv", part);
        text_printf(out, "  %s = insertelement <%d x %s> %s, %s %%%c%d, i32 %d\n", made, n, type,
                    before, type, part, i, i);
        before = made;
    }
}

/* %result, of the elements of %sums */
static void put_result(struct text *out, const char *result, const struct gpu_intrinsic *f, int n)
{
    const char *before = "undef";
    for (int i = 0; i < n; i++) {
        const char *made = i + 1 < n ? mem_printf(out->t, "%%result%d", i) : "%result";
        text_printf(out, "  %%sum%d = extractelement %s %%sums, i32 %d\n", i, f->sums, i);
        text_printf(out, "  %s = insertvalue %s %s, %s %%sum%d, %d\n", made, result, before, f->sum,
                    i, i);
        before = made;
    }
}

/* The arguments' types and, if they have names, what they are. */
static void put_arguments(struct text *out, const struct gpu_intrinsic *f, bool named)
{
    int n;
    for (const char *at = f->arguments; *at; at += n + (int)strspn(at + n, ", ")) {
        n = (int)strcspn(at, ",");
        int type = (int)strcspn(at, " ,");          /* of a mode, which follows it */
        text_puts(out, at > f->arguments ? ", " : "");
        if (n == 1)
            text_printf(out, "%s%s", *at == 'S' ? f->sums : f->factor,
                        !named       ? ""
                        : *at == 'A' ? " %a"
                        : *at == 'B' ? " %b"
                                     : " %sv");
        else
            text_printf(out, "%.*s", named ? n : type, at);
    }
}

/* Rows whose modes differ are one intrinsic. */
static void declare_once(struct text *out, const struct gpu_intrinsic *f)
{
    struct text line = {.t = out->t};
    text_printf(&line, "declare %s @llvm.amdgcn.%s(", f->sums, f->name);
    put_arguments(&line, f, false);
    text_puts(&line, ")\n");
    if (!out->s || !strstr(out->s, line.s))
        text_puts(out, line.s);
}

static void put_function(struct text *out, const struct matrix_row *r,
                         const struct gpu_intrinsic *f)
{
    struct text result = {.t = out->t};
    int words = matrix_words(r, MATRIX_A), nsum = matrix_words(r, MATRIX_SUM);
    for (int i = 0; i < nsum; i++)
        text_printf(&result, "%s%s", i ? ", " : "{ ", f->sum);
    text_puts(&result, " }");
    declare_once(out, f);
    text_printf(out, "define linkonce_odr hidden %s @gpu.%s(", result.s, r->text);
    put_parameters(out, r, f->sum);
    text_puts(out, ") alwaysinline convergent nounwind {\n");
    put_vector(out, 'a', "i32", words);
    put_vector(out, 'b', "i32", words);
    put_vector(out, 's', f->sum, nsum);
    text_printf(out,
                "  %%a = bitcast <%d x i32> %%av to %s\n  %%b = bitcast <%d x i32> %%bv to %s\n",
                words, f->factor, words, f->factor);
    text_printf(out, "  %%sums = call %s @llvm.amdgcn.%s(", f->sums, f->name);
    put_arguments(out, f, true);
    text_puts(out, ")\n");
    put_result(out, result.s, f, nsum);
    text_printf(out, "  ret %s %%result\n}\n", result.s);
}

void gpu_matrix_functions(const struct emit *e, struct text *out)
{
    static const struct { enum matrix_unit of; struct gpu_intrinsic f; } by[] = {
#define GPU_MATRIX(row, intrinsic, factor, arguments)                                              \
    {MATRIX_##row, {intrinsic, factor, NULL, NULL, arguments}},
#include "backends/llvm/gpu_matrix.def"
#undef GPU_MATRIX
    };
    for (size_t i = 0; i < sizeof by / sizeof *by; i++) {
        const struct matrix_row *r = matrix_row(by[i].of);
        struct gpu_intrinsic f = by[i].f;
        f.sum = r->dtype[MATRIX_SUM] == DTYPE_I32 ? "i32" : "float";
        f.sums = mem_printf(e->t, "<%d x %s>", matrix_elements(r, MATRIX_SUM), f.sum);
        if (e->l->GetNamedFunction(e->module, mem_printf(e->t, "gpu.%s", r->text)))
            put_function(out, r, &f);
    }
}
