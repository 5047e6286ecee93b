/* info_weights.c - of tgc info: which weights of the model are stored otherwise than the model has
 * them (Winograd's products of them, panels for vectors, smaller numbers), in how many bytes, by
 * layer.
 *
 *      model's w1 ── Winograd ──> b10 ── panels of 32 ──> b17      buffer.of points back
 *
 * A weight of the model stands at the end of each such chain; what is stored of it is the sum of
 * its chains' ends that the schedule has. Of equal weights the first one has the bytes.
 */
#include "lib/lib.h"
#include "backends/program/program.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_ROWS = 5 };

struct row {
    const struct buffer *of; /* the model's */
    size_t stored;
    bool is_plain;               /* among what is stored it is as the model has it */
    const struct origin *origin; /* the first node that computes with it; NULL: unknown */
    struct text why;             /* "; " between what differs */
    const char **how;
    int nhow;
    size_t cap_how;
    int index;
};
struct rows {
    struct tgc *t;
    struct row *row;
    int n;
    size_t cap;
};

static const struct buffer *root_of(const struct buffer *b)
{
    while (b->weight.of)
        b = b->weight.of;
    return b;
}

static struct row *row_of(struct rows *r, const struct buffer *root)
{
    for (int i = 0; i < r->n; i++)
        if (r->row[i].of == root)
            return &r->row[i];
    struct row new = {.of = root, .why = {.t = r->t}, .index = r->n};
    VEC_PUSH(r->t, r->row, r->n, r->cap, new);
    return &r->row[r->n - 1];
}

/* "Winograd F(4x4, 3x3), packed in panels of 32" */
static void put_how(struct text *x, const struct buffer *b)
{
    if (b->weight.of && b->weight.of->weight.how)
        put_how(x, b->weight.of);
    text_printf(x, "%s%s", x->n ? ", " : "", b->weight.how);
}

static void add_how(struct rows *r, struct row *row, const char *how)
{
    for (int i = 0; i < row->nhow; i++)
        if (strcmp(row->how[i], how) == 0)
            return;
    VEC_PUSH(r->t, row->how, row->nhow, row->cap_how, how);
    text_printf(&row->why, "%s%s", row->why.n ? "; " : "", how);
}

static void add_weight(struct rows *r, const struct buffer *b)
{
    struct row *row = row_of(r, root_of(b));
    struct text how = {.t = r->t};
    row->stored += b->weight.same ? 0 : b->nbytes;
    for (const struct buffer *of = b; of && !row->origin; of = of->weight.of)
        row->origin = of->weight.reader;
    if (b->weight.of)
        put_how(&how, b);
    else if (b->weight.same)
        text_printf(&how, "equal to %s",
                    b->weight.same->name ? b->weight.same->name : "another weight");
    row->is_plain |= !how.n;
    if (how.n)
        add_how(r, row, how.s);
}

static struct rows collect(struct tgc *t, const struct schedule *s)
{
    struct rows r = {.t = t};
    for (int i = 0; i < s->nweight; i++)
        if (s->weight[i]->dtype != DTYPE_STRING)
            add_weight(&r, s->weight[i]);
    return r;
}

/* -------------------------------------------------------------------------------------- writing */

static int compare_rows(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    const size_t n = x->stored > x->of->nbytes ? x->stored - x->of->nbytes : 0,
                 m = y->stored > y->of->nbytes ? y->stored - y->of->nbytes : 0;
    return n != m ? (n < m) - (n > m) : (x->index > y->index) - (x->index < y->index);
}

static size_t model_nbytes(const struct rows *r)
{
    size_t n = 0;
    for (int i = 0; i < r->n; i++)
        n += r->row[i].of->nbytes;
    return n;
}

double info_model_weight_bytes(struct tgc *t, const struct schedule *s)
{
    struct rows r = collect(t, s);
    return (double)model_nbytes(&r);
}

static void put_name(struct text *x, const struct buffer *of, const struct origin *origin)
{
    if (origin)
        text_printf(x, "%s%s%s%s", origin->op_type, *origin->node ? " \"" : "", origin->node,
                    *origin->node ? "\"" : "");
    text_printf(x, "%s%s", origin && of->name ? ", " : "",
                of->name ? of->name
                : origin ? ""
                         : "a constant");
}

void info_put_weight(struct text *x, const struct buffer *b)
{
    const struct origin *origin = NULL;
    struct text how = {.t = x->t};
    for (const struct buffer *of = b; of && !origin; of = of->weight.of)
        origin = of->weight.reader;
    if (b->weight.of)
        put_how(&how, b);
    text_puts(x, x->n ? "; " : "");
    put_name(x, root_of(b), origin);
    text_printf(x, ": %s", dtype_name(b->dtype));
    text_dims(x, b->dim, b->ndim, "[", "]");
    text_printf(x, " (%zu bytes%s%s)", b->nbytes, how.n ? ", " : "", how.n ? how.s : "");
}

bool info_weights_check(struct tgc *t, const struct schedule *s, const struct weight_limit *limit)
{
    enum { NAMED = 3 };
    if (limit->ratio <= 0 && limit->nbytes == 0)
        return true;
    struct rows r = collect(t, s);
    struct text who = {.t = t};
    size_t stored = 0;
    for (int i = 0; i < r.n; i++)
        stored += r.row[i].stored;
    double most =
        limit->ratio > 0 ? limit->ratio * (double)model_nbytes(&r) : (double)limit->nbytes;
    if ((double)stored <= most)
        return true;
    qsort(r.row, (size_t)r.n, sizeof *r.row, compare_rows);
    for (int i = 0; i < r.n && i < NAMED; i++) {
        const struct row *row = &r.row[i];
        if (row->stored <= row->of->nbytes)
            break;
        text_puts(&who, i ? ", " : "; most grow ");
        put_name(&who, row->of, row->origin);
        text_printf(&who, " (%zu to %zu%s%s)", row->of->nbytes, row->stored,
                    row->nhow ? ": " : "", row->why.s ? row->why.s : "");
    }
    return diag_error(t, NULL,
                      "the weights take %zu bytes, and %zu in the model: more than the %.0f that "
                      "--weights-budget allows%s; -Os packs weights without padding, "
                      "--weight-type=bf16 or int8 makes them smaller, with an error",
                      stored, model_nbytes(&r), most, who.n ? who.s : "");
}

void info_weights_write(struct text *x, struct tgc *t, const struct schedule *s, bool all)
{
    struct rows r = collect(t, s);
    int n = 0, nput = 0;
    for (int i = 0; i < r.n; i++)
        if (r.row[i].nhow && (all || r.row[i].stored != r.row[i].of->nbytes))
            n++;
    if (n == 0)
        return;
    text_printf(x, "    %zu bytes in the model; what is stored %s, bytes there and here:\n",
                model_nbytes(&r), all ? "otherwise" : "in another size");
    qsort(r.row, (size_t)r.n, sizeof *r.row, compare_rows);
    for (int i = 0; i < r.n && (all || nput < MOST_ROWS); i++) {
        const struct row *row = &r.row[i];
        if (!row->nhow || (!all && row->stored == row->of->nbytes))
            continue;
        nput++;
        text_printf(x, "    %10zu %10zu  ", row->of->nbytes, row->stored);
        put_name(x, row->of, row->origin);
        text_printf(x, ": %s%s\n", row->why.s, row->is_plain ? "; as it is" : "");
    }
    if (nput < n)
        text_printf(x, "    and %d more: --why lists all\n", n - nput);
}

void info_weights_write_json(struct text *x, struct tgc *t, const struct schedule *s)
{
    struct rows r = collect(t, s);
    bool any = false;
    text_printf(x, ",\"model_weight_bytes\":%zu,\"weights_changed\":[", model_nbytes(&r));
    for (int i = 0; i < r.n; i++) {
        const struct row *row = &r.row[i];
        if (!row->nhow)
            continue;
        text_puts(x, any ? ",{\"weight\":" : "{\"weight\":");
        any = true;
        if (row->of->name)
            text_json(x, row->of->name);
        else
            text_puts(x, "null");
        text_puts(x, ",\"operator\":");
        text_json(x, row->origin ? row->origin->op_type : "");
        text_puts(x, ",\"node\":");
        text_json(x, row->origin ? row->origin->node : "");
        text_printf(x, ",\"model_bytes\":%zu,\"bytes\":%zu,\"why\":", row->of->nbytes, row->stored);
        text_json(x, mem_printf(t, "%s%s", row->why.s, row->is_plain ? "; as it is" : ""));
        text_putc(x, '}');
    }
    text_puts(x, "]");
}
