/* library_einsum.c - einsum: labels instead of axes, one MUL and one REDUCE(ADD) for each pair of
 * operands.
 *
 * Operands are contracted from left to right. The axes of a pair's product are the labels needed
 * later, then the labels to be summed; an operand without a label has size 1 there. Axes under
 * "..." get labels of their own, aligned to the right.
 */
#include "frontend/library.h"

#include <ctype.h>
#include <string.h>

enum { LETTERS = 52, LABELS = LETTERS + MAX_RANK };

struct term { int n, label[2 * MAX_RANK]; struct uop *x; };

static int letter_label(char c) { return c >= 'a' ? c - 'a' + 26 : c - 'A'; }

/* One operand's or the result's subscripts, up to ',' or '-' or the end. nellipsis: axes that "..."
 * stands for. */
static bool parse_term(const struct lib *l, const char **s, int nellipsis, struct term *t,
                       bool *ellipsis)
{
    t->n = 0;
    *ellipsis = false;
    for (; **s && **s != ',' && **s != '-'; (*s)++) {
        if (isspace((unsigned char)**s))
            continue;
        bool dots = !strncmp(*s, "...", 3);
        if ((!dots && !isalpha((unsigned char)**s)) || (dots && *ellipsis) ||
            t->n + (dots ? nellipsis : 1) > 2 * MAX_RANK) {
            lib_error(l,
                      "einsum: unexpected '%c' in the equation; it has letters, one '...' an "
                      "operand, ',' and '->'",
                      isprint((unsigned char)**s) ? **s : '?');
            return false;
        }
        if (dots) {
            *ellipsis = true;
            for (int i = 0; i < nellipsis; i++)
                t->label[t->n++] = LETTERS + MAX_RANK - nellipsis + i;
            *s += 2;
        } else {
            t->label[t->n++] = letter_label(**s);
        }
    }
    return true;
}

/* A label that an operand names twice: its diagonal, of axes of one size. */
static bool take_diagonals(const struct lib *l, struct term *m)
{
    int label[MAX_RANK], n = 0;
    struct uop *dim[MAX_RANK], *index[MAX_RANK];
    for (int a = 0; a < m->n; a++) {
        int k = 0;
        while (k < n && label[k] != m->label[a])
            k++;
        if (k == n) {
            label[n] = m->label[a];
            dim[n++] = m->x->dim[a];
        } else if (!sym_must_equal(l->t, dim[k], m->x->dim[a])) {
            lib_error(l, "einsum: a label names two axes of %s, whose sizes differ",
                      lib_describe(l, m->x));
            return false;
        }
    }
    if (n == m->n)
        return true;
    for (int a = 0; a < m->n; a++)
        for (int k = 0; k < n; k++)
            if (label[k] == m->label[a])
                index[a] = tensor_iota(l->t, dim, n, k);
    m->x = uop_index(l->t, m->x, index);
    m->n = n;
    ARRAY_COPY(m->label, label, n);
    return true;
}

static bool has_label(const struct term *m, int label)
{
    for (int a = 0; a < m->n; a++)
        if (m->label[a] == label)
            return true;
    return false;
}

/* x with the axes of `to`, size 1 where it has none. */
static struct uop *align(const struct lib *l, const struct term *m, const struct term *to)
{
    int perm[MAX_RANK], n = 0;
    struct uop *dim[MAX_RANK];
    for (int a = 0; a < to->n; a++) {
        dim[a] = uop_int(l->t, 1);
        for (int k = 0; k < m->n; k++)
            if (m->label[k] == to->label[a]) {
                perm[n++] = k;
                dim[a] = m->x->dim[k];
            }
    }
    return uop_reshape(l->t, uop_permute(l->t, m->x, perm), dim, to->n);
}

static const char *label_names(const struct lib *l, const struct term *m)
{
    struct text s = {.t = l->t};
    for (int a = 0; a < m->n; a++) {
        int i = m->label[a];
        if (i >= LETTERS)
            text_printf(&s, "%sb%d", a ? " " : "", i - LETTERS);
        else
            text_printf(&s, "%s%c", a ? " " : "", i < 26 ? 'A' + i : 'a' + i - 26);
    }
    return s.s;
}

/* All labels, the result's first, in its order: then the stored result needs no permutation. */
static void order_labels(const struct term *out, int *order)
{
    int n = 0;
    for (int a = 0; a < out->n; a++)
        order[n++] = out->label[a];
    for (int i = 0; i < LABELS; i++)
        if (!has_label(out, i))
            order[n++] = i;
}

/* a times b (b may be NULL), summed over the labels that are not in `keep`. */
static bool contract_pair(const struct lib *l, struct term *a, const struct term *b,
                          const int *order, const bool *keep)
{
    struct term full = {0};
    int nkept = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < LABELS; i++) {
            int label = order[i];
            if (keep[label] != (pass == 0) || (!has_label(a, label) && !(b && has_label(b, label))))
                continue;
            if (full.n == MAX_RANK) {
                lib_error(l, "einsum: a product of more than %d axes", MAX_RANK);
                return false;
            }
            full.label[full.n++] = label;
        }
        nkept = pass == 0 ? full.n : nkept;
    }
    struct uop *product = align(l, a, &full);
    if (b && !(product = lib_mul(l, product, align(l, b, &full))))
        return false;
    uop_name_axes(l->t, product, label_names(l, &full));
    uint32_t axes = ((1u << full.n) - 1) & ~((1u << nkept) - 1);
    a->x = tensor_sum(l->t, product, axes, false);
    a->n = nkept;
    ARRAY_COPY(a->label, full.label, nkept);
    return true;
}

/* Splits the equation. out: the result's labels. */
static bool parse_equation(const struct lib *l, const char *s, struct uop *const *x, int n,
                           struct term *term, struct term *out)
{
    int widest = 0, count[LABELS] = {0};
    bool ellipsis;
    for (int i = 0; i < n; i++) {
        struct term probe;
        const char *at = s;
        if (!parse_term(l, &at, 0, &probe, &ellipsis))
            return false;
        int nellipsis = x[i]->ndim - probe.n;
        if (nellipsis < 0 || (nellipsis && !ellipsis)) {
            lib_error(l, "einsum: operand %d is %s, the equation gives it %d subscripts", i,
                      lib_describe(l, x[i]), probe.n);
            return false;
        }
        if (!parse_term(l, &s, nellipsis, &term[i], &ellipsis))
            return false;
        widest = nellipsis > widest ? nellipsis : widest;
        term[i].x = x[i];
        for (int a = 0; a < term[i].n; a++)
            count[term[i].label[a]]++;
        if (*s == ',' ? i == n - 1 : i < n - 1) {
            lib_error(l, "einsum: the equation does not have one term for each of the %d operands",
                      n);
            return false;
        }
        s += *s == ',';
    }
    if (!strncmp(s, "->", 2)) {
        s += 2;
        if (!parse_term(l, &s, widest, out, &ellipsis))
            return false;
    } else { /* labels that occur once, in alphabetical order, after the ellipsis */
        for (int i = 0; i < LABELS; i++) {
            int label = (i + LETTERS) % LABELS;
            if (label >= LETTERS ? count[label] > 0 : count[label] == 1)
                out->label[out->n++] = label;
        }
    }
    if (*s)
        lib_error(l, "einsum: unexpected '%s' at the end of the equation", s);
    return !*s;
}

struct uop *lib_einsum(const struct lib *l, const char *equation, struct uop *const *x, int n)
{
    struct term out = {0};
    enum { MAX_OPERANDS = 32 };
    if (n < 1 || n > MAX_OPERANDS)
        return lib_error(l, "einsum: %d operands; 1..%d are supported", n, MAX_OPERANDS);
    for (int i = 0; i < n; i++) {
        if (!x[i])
            return NULL;
        if (x[i]->dtype != x[0]->dtype ||
            (!dtype_is_float(x[i]->dtype) && !dtype_is_int(x[i]->dtype)))
            return lib_error(l, "einsum: operand %d is %s; all must have one numeric dtype", i,
                             lib_describe(l, x[i]));
    }
    struct term *term = mem_array(l->t, (size_t)n, sizeof *term);
    if (!parse_equation(l, equation, x, n, term, &out))
        return NULL;
    for (int a = 0; a < out.n; a++) {
        bool found = false;
        for (int i = 0; i < n; i++)
            found |= has_label(&term[i], out.label[a]);
        for (int b = 0; b < a; b++)
            found &= out.label[b] != out.label[a];
        if (!found)
            return lib_error(l,
                             "einsum: a subscript of the result is in no operand, or there twice");
    }
    for (int i = 0; i < n; i++) {
        if (!take_diagonals(l, &term[i]))
            return NULL;
        term[i].x = uop_cast(l->t, lib_acc_dtype(x[i]->dtype), term[i].x);
    }
    int order[LABELS];
    order_labels(&out, order);
    for (int i = n > 1 ? 1 : 0; i < n; i++) {
        bool keep[LABELS] = {false};
        for (int k = 0; k < LABELS; k++) {
            keep[k] = has_label(&out, k);
            for (int later = i + 1; later < n; later++)
                keep[k] |= has_label(&term[later], k);
        }
        if (!contract_pair(l, &term[0], n > 1 ? &term[i] : NULL, order, keep))
            return NULL;
    }
    return uop_cast(l->t, x[0]->dtype, align(l, &term[0], &out));
}
