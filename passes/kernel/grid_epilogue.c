/* grid_epilogue.c - the epilogue store of a block: direct from the threads' registers, or staged
 * through shared memory for coalesced vector stores (opts STAGE_EPILOGUE and ALIAS_EPILOGUE).
 *
 *      accumulators, of halves   row 0:  0 0 1 1 2 2 3 3       a store of two: 8 rows of 16 bytes
 *                                row 1:  4 4 5 5 6 6 7 7
 *      through shared memory     row 0:  0 0 0 0 0 0 0 0 1 1 1 1 ...    a store of eight: 512 bytes
 *
 * The finished value is staged if nothing else is loaded for it. Otherwise the sum is staged,
 * rounded as it first is, and the storing threads load the other operands (a bias, a residual),
 * coalesced, too.
 *
 * Cost model: per cycle a unit serves the words of a subgroup that lie in one line of memory. So a
 * store takes one cycle for each of its words or lines, whichever are more. Nothing hides them, as
 * the block's products are done. */
#include "passes/analysis/copied.h"
#include "passes/kernel/grid_product.h"
#include "passes/target/target.h"
#include "ir/device_ops.h"

enum { PAD_NBYTES = 16, WORD_NBYTES = 4 };

int64_t epilogue_width(struct tgc *t, const struct uop *store, struct uop *column)
{
    const struct buffer *b = uop_buffer_of(store->src[0]);
    int64_t nbytes = (int64_t)dtype_nbytes(b->dtype), width = COPY_NBYTES_MOST / nbytes;
    struct uop *rest = sym_sub(t, store->src[1], column),
               *valid = store_first_range(store) == 4 ? store->src[3] : NULL;
    while (width > 1 && (!device_stores(t, width * nbytes) || range_fixed_size(column) % width ||
                         index_divisor(t, rest) % width || !buffer_is_aligned(t, b, width) ||
                         (valid && !condition_of_first(t, valid, column, width))))
        width /= 2;
    return width;
}

/* Counts the store's loads other than the sum's. */
static void count_loads(struct tgc *t, const struct product *x, struct epilogue *g)
{
    int n;
    struct uop **order = nest_order(
        t, uop_substitute(t, x->m.store->src[2], x->m.reduce, uop_consti(t, x->m.reduce->dtype, 0)),
        &n);
    for (int i = 0; i < n; i++) {
        if (order[i]->op != OP_LOAD || !uop_depends_on(t, order[i], x->m.store->src[g->column]))
            continue;
        g->row_loads += !uop_depends_on(t, order[i], x->m.store->src[g->row]);
        g->loads += uop_depends_on(t, order[i], x->m.store->src[g->row]);
    }
}

bool grid_find_epilogue(struct tgc *t, const struct product *x, int m, int n, struct epilogue *g)
{
    const struct uop *store = x->m.store;
    const struct buffer *b = uop_buffer_of(store->src[0]);
    int64_t stride;
    *g = (struct epilogue){.row = m, .column = n};
    if (index_stride(t, store->src[1], store->src[m], &stride) && stride == 1)
        g->row = n, g->column = m;
    else if (!index_stride(t, store->src[1], store->src[n], &stride) || stride != 1)
        return false;
    if (dtype_bits(b->dtype) != 8 * (int)dtype_nbytes(b->dtype) ||
        !device_stores(t, COPY_NBYTES_MOST))
        return false;
    g->width = epilogue_width(t, store, store->src[g->column]);
    g->nbytes = (int64_t)dtype_nbytes(b->dtype);
    count_loads(t, x, g);
    g->of_sum = g->loads + g->row_loads > 0;
    g->passed_nbytes = g->of_sum ? (int64_t)dtype_nbytes(x->m.reduce->dtype) : g->nbytes;
    return true;
}

static int64_t pad_of(const struct epilogue *g) { return PAD_NBYTES / g->passed_nbytes; }

int64_t epilogue_nbytes(const struct epilogue *g, int64_t rows, int64_t columns)
{
    return rows * (columns + pad_of(g)) * g->passed_nbytes;
}

bool epilogue_fits(const struct tgc *t, const struct epilogue *g, int64_t rows, int64_t columns,
                   int64_t threads)
{
    return g->width > 0 && rows * columns % (threads * g->width) == 0 && columns % g->width == 0 &&
           epilogue_nbytes(g, rows, columns) <= device_local_nbytes(t);
}

int64_t epilogue_boxes_nbytes(const struct epilogue *g, int64_t rows, int64_t columns)
{
    return rows * columns * g->passed_nbytes;
}

bool epilogue_is_boxes(const struct tgc *t, const struct epilogue *g, int64_t rows, int64_t columns,
                       int64_t threads)
{
    return device_copies_boxes(t) && !g->of_sum && g->width * g->nbytes == COPY_NBYTES_MOST &&
           rows <= BULK_EXTENT && threads <= THREADS_MOST && rows % PANEL_ROWS == 0 &&
           columns * g->nbytes % PANEL_ROW_NBYTES == 0;
}

/* lines: lines of memory that one store of a subgroup's accumulators touches; neighbours:
 * contiguous elements of one lane. */
static void shape_of(const struct matrix_row *row, enum matrix_coordinate column, double *lines,
                     double *neighbours)
{
    struct matrix_bit bit[MATRIX_BITS_MAX];
    int n = matrix_bits(row, MATRIX_SUM, true, bit);
    *lines = *neighbours = 1;
    for (int i = 0; i < n && i < 5; i++)      /* each subgroup of a warpgroup stores its own */
        *lines *= bit[i].of != column ? 2 : 1;
    n = matrix_bits(row, MATRIX_SUM, false, bit);
    for (int i = 0; i < n && bit[i].of == column && bit[i].bit == i; i++)
        *neighbours *= 2;
}

/* Issue cost of `words` that lie in `lines` lines, in multiply-adds of a thread. */
static double access(const struct tgc *t, double words, double lines)
{
    return cost_grid_load(t->device) * (words > lines ? words : lines);
}

double epilogue_direct(const struct tgc *t, const struct epilogue *g, const struct matrix_row *row,
                       bool exchanged, double elements)
{
    double lines, neighbours, width = (double)g->width, words;
    shape_of(row, exchanged ? MATRIX_M : MATRIX_N, &lines, &neighbours);
    width = width < neighbours ? width : neighbours;
    words = width * (double)g->nbytes / WORD_NBYTES;
    return elements / width * access(t, words, lines) +
           elements * (g->loads * access(t, 1, lines) + g->row_loads * access(t, 1, 1));
}

/* Issue cost of the threads only: the copy engine stores in parallel. */
double epilogue_as_boxes(const struct tgc *t, const struct epilogue *g,
                         const struct matrix_row *row, bool exchanged, double elements)
{
    double lines, neighbours;
    shape_of(row, exchanged ? MATRIX_M : MATRIX_N, &lines, &neighbours);
    double passed = neighbours * (double)g->passed_nbytes / WORD_NBYTES;
    return elements / neighbours * cost_grid_local(t->device) * (passed > 1 ? passed : 1) +
           RATIO_GRID_BARRIER;
}

double epilogue_staged(const struct tgc *t, const struct epilogue *g, const struct matrix_row *row,
                       bool exchanged, double elements)
{
    double lines, neighbours, width = (double)g->width,
                              words = width * (double)g->nbytes / WORD_NBYTES,
                              local = cost_grid_local(t->device);
    shape_of(row, exchanged ? MATRIX_M : MATRIX_N, &lines, &neighbours);
    double passed = neighbours * (double)g->passed_nbytes / WORD_NBYTES,
           read = width * (double)g->passed_nbytes / WORD_NBYTES;
    passed = passed > 1 ? passed : 1;
    return elements / neighbours * local * passed + RATIO_GRID_BARRIER +
           elements / width *
               (local * (read > 1 ? read : 1) +
                (1 + g->loads + g->row_loads) * access(t, words, 1));
}

/* ------------------------------------------------------------------------------------- the opts */

static void add_stage(struct opt_list *l, int row, int column, const struct opt *like)
{
    int n = 0;
    struct opt *o = list_add(l, OPT_STAGE_EPILOGUE, row);
    o->of = like->of, o->number = like->number, o->n = like->n;
    o->to = list_position(l, column);
    for (int i = 0; i < l->nloop; i++)
        if (l->loop[i] != row && l->loop[i] != column)
            l->loop[n++] = l->loop[i];
    l->loop[n++] = row;
    l->loop[n++] = column;
}

void list_stage_epilogue(struct opt_list *l, const struct epilogue *g, int number, int row,
                         int column)
{
    const struct opt like = {
        .of = g->of_sum ? OF_SUM : OF_STORE, .number = g->of_sum ? number : 0, .n = pad_of(g)};
    add_stage(l, row, column, &like);
}

void list_stage_boxes(struct opt_list *l, int row, int column, int64_t columns)
{
    add_stage(l, row, column, &(struct opt){.of = OF_STORE});
    list_add(l, OPT_SWIZZLE, -1)->n = columns;
}

void list_epilogue_boxes(struct opt_list *l, int64_t threads)
{
    list_add(l, OPT_FIRST, -1)->n = threads;
    struct opt *o = list_add(l, OPT_BULK_EPILOGUE, -1);
    o->store--;
}

void list_epilogue(struct opt_list *l, const struct epilogue *g, int row, int64_t rows, int column,
                   int64_t columns, int64_t threads, int chunks)
{
    int64_t n = columns / g->width, items = n < threads ? n : threads;
    if (g->width > 1) {
        list_divide(l, column, columns, g->width, chunks);
        list_lanes(l, column, g->width, true);
    }
    if (n > 1)
        list_take(l, n, true, items, g->width > 1 ? chunks : column, OPT_ITEM);
    if (items < threads)
        list_take(l, rows, true, threads / items, row, OPT_ITEM);
}
