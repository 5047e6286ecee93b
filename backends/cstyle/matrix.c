/* matrix.c - matrix products of a subgroup in a kernel's text: tiles that its threads load
 * together, and the instruction that adds their product to the sums that each thread holds.
 *
 *      const auto a = a_m16n8k16_f16(&tile[at], 40);
 *      m16n8k16_f16(sum[row][column][0], a, b);
 *
 * Factors that the instruction reads itself are descriptors:
 *
 *      const auto a = panel_rows(&tile[at]);
 *      matrix_begin(sum);
 *      m64n128k16_f16(sum[row][column][0], a, b);
 *      matrix_commit();
 *
 * Tiles that the device loads by rows (ldmatrix) have a function of their own, a_rows_ROW. So have
 * those that threads hold in registers, a_own_ROW.
 *
 * The functions are pieces of runtime/ in the device's language. A product has the name of its row
 * of ir/matrix.def, a load those of the factor and the row.
 */
#include "backends/cstyle/writer.h"
#include "ir/device_ops.h"

#include <string.h>

/* The function that loads the tile. *name: its role in products, a or b; *along: are its rows
 * contiguous along k? */
static const char *function_of(struct writer *w, const struct uop *tile, const char **name,
                               bool *along)
{
    int factor;
    const struct uop *product =
        matrix_of_tile(w->linear + w->position, w->nlinear - w->position, tile, &factor);
    if (!product)
        TGC_BUG(w->t, "kernel %s: a tile without a product", w->f->k->name);
    *name = factor ? "b" : "a";
    *along = MATRIX_ALONG_K(product->arg.i, factor);
    return mem_printf(w->t, "%s%s%s_%s", *name,
                      uop_buffer_of(tile->src[0])->scratch.is_own ? "_own"
                      : TILE_IS_BY_ROWS(tile->arg.i)      ? "_rows"
                                                          : "",
                      *along ? "" : "_across", matrix_row(MATRIX_ROW(product->arg.i))->text);
}

/* The arguments of the function that loads it, at `at`. */
static const char *arguments_of(struct writer *w, const struct uop *tile, const char *at)
{
    const struct buffer *b = uop_buffer_of(tile->src[0]);
    w->f->is_used[writer_place(w, b)] = true;
    return mem_printf(w->t, "&%s[%s], %lld", writer_place_name(w, b), at,
                      (long long)TILE_STRIDE(tile->arg.i));
}

void matrix_load(struct writer *w, const struct uop *u)
{
    struct tgc *t = w->t;
    const struct buffer *b = uop_buffer_of(u->src[0]);
    struct value *v = scratch_array(t, 1, sizeof *v);
    struct expr src[2] = {{0}, {0}};
    bool along;
    const char *stem, *function = function_of(w, u, &stem, &along), *name = writer_local(w, stem);
    writer_operands(w, u, 2, src);
    const char *args = arguments_of(w, u, src[1].s);
    if (b->scratch.panel && along)
        function = "panel_rows", args = mem_printf(t, "&%s[%s]", writer_place_name(w, b), src[1].s);
    else if (b->scratch.panel)
        function = "panel_columns",
        args = mem_printf(t, "&%s[%s], %lld", writer_place_name(w, b), src[1].s,
                          (long long)b->scratch.panel * (long long)dtype_nbytes(b->dtype));
    writer_put(w,
               mem_printf(t, "const auto %s = %s;", name, expr_call(w->p, function, args, 'I').s),
               true);
    v->e = expr_name(name, 'I');
    v->leaf = v->written = true;
    map_set(&w->value, u, v);
}

/* Declares an array of tiles, of the type that their loads return. */
bool matrix_acc(struct writer *w, const struct uop *u)
{
    const struct uop *tile = matrix_kept_tile(w->linear + w->position, w->nlinear - w->position, u);
    struct text declaration = {.t = w->t};
    bool along;
    if (!tile || !w->p->backend->device)
        return false;
    const char *stem, *function = function_of(w, tile, &stem, &along);
    struct value *v = scratch_array(w->t, 1, sizeof *v);
    v->e = expr_name(writer_local(w, stem), 'I');
    v->array = v->e.s;
    v->leaf = true;
    map_set(&w->value, u, v);
    VEC_PUSH(w->t, w->tile, w->ntile, w->cap_tile, u);
    text_printf(&declaration, "decltype(%s) %s",
                expr_call(w->p, function, arguments_of(w, tile, "0"), 'I').s, v->array);
    for (int k = 1; k < u->nsrc; k++)
        text_printf(&declaration, "[%lld]", (long long)u->src[k]->src[0]->vmax);
    writer_put(w, mem_printf(w->t, "%s;", declaration.s), true);
    return true;
}

void matrix_product(struct writer *w, const struct uop *u)
{
    const struct uop *acc = u->src[0];
    struct text args = {.t = w->t};
    text_puts(&args, writer_value(w, acc)->array);
    for (int k = 1; k + 1 < acc->nsrc; k++)
        text_printf(&args, "[%s]",
                    range_is(acc->src[k], AXIS_ELEMENT) ? "0" : writer_value(w, acc->src[k])->e.s);
    text_printf(&args, ", %s, %s", writer_value(w, u->src[1])->e.s,
                writer_value(w, u->src[2])->e.s);
    writer_put(w,
               mem_printf(w->t, "%s;",
                          expr_call(w->p, matrix_row(MATRIX_ROW(u->arg.i))->text, args.s, 'I').s),
               false);
}

void matrix_group(struct writer *w, const struct uop *u)
{
    struct text args = {.t = w->t};
    for (int k = 0; k < u->nsrc; k++)
        text_printf(&args, "%s%s", k ? ", " : "", writer_value(w, u->src[k])->array);
    struct expr call = expr_call(w->p, op_name(u->op), args.s ? args.s : "", 'I');
    if (u->op == OP_MATRIX_WAIT)
        call.s = mem_printf(w->t, "matrix_wait<%d>(%s)", WAIT_GROUPS(u->arg.i), args.s);
    writer_put(w, mem_printf(w->t, "%s;", call.s), false);
}
