/* SPDX-License-Identifier: 0BSD */
/* csv.c - tables of numbers with commas between them, with one column of targets if that is named.
 *
 *      height,"width, mm",kind        header, if a target column is named or a field is no number
 *      1.5,20,cat                     input[0] = {1.5, 20}  target[0] = 0
 *      2,"30",dog                     input[1] = {2, 30}    target[1] = 1
 *
 * The file is gone through twice: for the number of records and columns, and for their values.
 * Targets are integers, else numbers, else names of classes. The decimal point is a point, whatever
 * the locale. source: RFC 4180, with any line ends
 */
#include "runtime/loader/parts.h"

//@ loader_csv loader_class loader_decimal
/* A field as it is in the file, without the quotes around it. */
struct csv_field {
    const uint8_t *text;
    size_t n, line;
    bool is_quoted, is_last; /* last: of its record */
};

struct csv {
    struct dataset *d;
    const char *path;
    const uint8_t *start, *at, *end;
    size_t line;
    bool has_header;
    int64_t nrecord, ncolumn, target; /* the column of targets; -1: none */
};

/* The field's text, with doubled quotes as one. needs: to[f->n + 1] */
static size_t csv_copy(const struct csv_field *f, char *to)
{
    size_t n = 0;
    for (size_t i = 0; i < f->n; i++) {
        to[n++] = (char)f->text[i];
        i += f->is_quoted && f->text[i] == '"';
    }
    to[n] = 0;
    return n;
}

/* Quotes the field, at most so much of it as fits. */
static const char *csv_quote(const struct csv_field *f, char to[48])
{
    size_t n = 0;
    for (; n < f->n && n < 40; n++)
        to[n] = (char)(f->text[n] < ' ' || f->text[n] > '~' ? '?' : f->text[n]);
    (void)snprintf(to + n, 48 - n, "%s", n < f->n ? "..." : "");
    return to;
}

static bool csv_begin(struct csv *c)
{
    c->at = c->start;
    c->line = 1;
    return true;
}

static bool csv_fail_line(const struct csv *c, size_t line, const char *what)
{
    return loader_fail(c->d->error, "%s:%zu: %s", c->path, line, what);
}

/* The end of a quoted field's text, which begins at `at`. NULL: c->d->error says why. */
static const uint8_t *csv_end_of_quoted(struct csv *c, const uint8_t *at, size_t line)
{
    for (; at < c->end; at++) {
        c->line += *at == '\n' || (*at == '\r' && (at + 1 == c->end || at[1] != '\n'));
        if (*at == 0)
            break;
        if (*at != '"')
            continue;
        if (at + 1 == c->end || at[1] != '"')
            return at;
        at++;
    }
    csv_fail_line(c, line,
                  at < c->end ? "a byte is 0 in a quoted field; save the table as text"
                              : "a quote is not closed; write \" at the field's end, and "
                                "a quote within it twice");
    return NULL;
}

/* The next field. needs: a record begins here, or the last field was not its last */
static bool csv_next(struct csv *c, struct csv_field *f)
{
    const uint8_t *at = c->at;
    f->line = c->line;
    f->is_quoted = at < c->end && *at == '"';
    f->text = at + f->is_quoted;
    if (f->is_quoted && !(at = csv_end_of_quoted(c, f->text, f->line)))
        return false;
    while (!f->is_quoted && at < c->end && *at != ',' && *at != '\n' && *at != '\r') {
        if (*at == 0 || *at == '"')
            return csv_fail_line(c, c->line,
                                 *at ? "a quote is within a field; put the whole field "
                                       "in quotes, and write those within it twice"
                                     : "a byte is 0; save the table as text");
        at++;
    }
    f->n = (size_t)(at - f->text);
    at += f->is_quoted;
    f->is_last = at == c->end || *at != ',';
    if (at < c->end && *at != ',' && *at != '\n' && *at != '\r')
        return csv_fail_line(c, c->line, "text follows a quoted field; a comma is expected");
    if (at < c->end && f->is_last) {
        c->line++;
        at += at + 1 < c->end && at[0] == '\r' && at[1] == '\n';
    }
    c->at = at + (at < c->end);
    return true;
}

/* Whether another record begins, after empty lines. */
static bool csv_has_record(struct csv *c)
{
    for (; c->at < c->end && (*c->at == '\n' || *c->at == '\r'); c->at++)
        c->line += *c->at == '\n' || c->at + 1 == c->end || c->at[1] != '\n';
    return c->at < c->end;
}

/* The number that a field is, with blanks around it. as_integer: an integer of 64 bits, or the
 * field is none. Infinity stands for what is beyond f32. */
static bool csv_number(const struct csv_field *f, float *v, int64_t *as_integer)
{
    const char *s = (const char *)f->text, *last = s + f->n;
    double number;
    while (s < last && (*s == ' ' || *s == '\t'))
        s++;
    while (last > s && (last[-1] == ' ' || last[-1] == '\t'))
        last--;
    if (as_integer)
        return loader_read_integer(s, (size_t)(last - s), as_integer);
    if (!loader_read_number(s, (size_t)(last - s), true, &number))
        return false;
    *v = (float)number;
    return true;
}

/* Columns and records; every record has as many fields as the first. */
static bool csv_count(struct csv *c)
{
    struct csv_field f;
    float v;
    bool is_table = true, is_first = true;
    for (csv_begin(c); csv_has_record(c); c->nrecord++, is_first = false) {
        size_t line = c->line;
        int64_t n = 0;
        do {
            if (!csv_next(c, &f))
                return false;
            is_table = is_table && (!is_first || csv_number(&f, &v, NULL));
            n++;
        } while (!f.is_last);
        if (!is_first && n != c->ncolumn)
            return loader_fail(c->d->error, "%s:%zu: has %lld fields; the first line has %lld",
                               c->path, line, (long long)n, (long long)c->ncolumn);
        c->ncolumn = n;
    }
    c->has_header = c->d->target_column || !is_table;
    c->nrecord -= c->has_header && c->nrecord;
    return true;
}

/* The name of a column in the header, shortened; "" without a header. */
static void csv_column_name(const struct csv *c, int64_t column, char name[48])
{
    struct csv copy = *c;
    struct csv_field f;
    *name = 0;
    csv_begin(&copy);
    if (!c->has_header || !csv_has_record(&copy))
        return;
    for (int64_t i = 0; i <= column; i++)
        if (!csv_next(&copy, &f))
            return;
    csv_quote(&f, name);
}

static bool csv_bad_field(const struct csv *c, const struct csv_field *f, int64_t column,
                          const char *what)
{
    char name[48], text[48];
    csv_column_name(c, column, name);
    return loader_fail(c->d->error, "%s:%zu: column %lld%s%s%s: '%s' %s", c->path, f->line,
                       (long long)column + 1, *name ? " ('" : "", name, *name ? "')" : "",
                       csv_quote(f, text), what);
}

/* The number of the column of that name. */
static bool csv_find_target(struct csv *c)
{
    const char *wanted = c->d->target_column;
    size_t length = wanted ? strlen(wanted) : 0;
    struct csv_field f;
    c->target = -1;
    if (!wanted)
        return true;
    csv_begin(c);
    if (!csv_has_record(c))
        return true;
    for (int64_t i = 0; i < c->ncolumn; i++) {
        if (!csv_next(c, &f))
            return false;
        char *name = (char *)malloc(f.n + 1);
        if (!name)
            return loader_fail(c->d->error, "%s: no memory for its header", c->path);
        bool is_it = csv_copy(&f, name) == length && memcmp(name, wanted, length) == 0;
        free(name);
        if (is_it && c->target >= 0)
            return csv_bad_field(c, &f, i, "names two columns; give one of them another name");
        c->target = is_it ? i : c->target;
    }
    if (c->target < 0)
        return loader_fail(c->d->error,
                           "%s: no column is named '%s'; its first line names the "
                           "columns, and one of them has the targets",
                           c->path, wanted);
    if (c->ncolumn == 1)
        return loader_fail(c->d->error, "%s: has no column beside the targets; inputs are expected",
                           c->path);
    return true;
}

/* The values of all records: input[nrecord][columns but the target's], and the fields of targets.
 */
static bool csv_read_values(struct csv *c, float *input, struct csv_field *target)
{
    struct csv_field f;
    csv_begin(c);
    for (int64_t i = c->has_header ? -1 : 0; i < c->nrecord && csv_has_record(c); i++)
        for (int64_t k = 0; k < c->ncolumn; k++) {
            if (!csv_next(c, &f))
                return false;
            if (i < 0)
                continue;
            if (k == c->target) {
                if (f.n == 0)
                    return csv_bad_field(c, &f, k, "is no target; fill it in, or remove the line");
                target[i] = f;
                continue;
            }
            float v;
            if (!csv_number(&f, &v, NULL))
                return csv_bad_field(c, &f, k,
                                     "is no number; write one, or remove the line or the "
                                     "column");
            if (v - v != 0)
                return csv_bad_field(c, &f, k, "is beyond f32; scale the column");
            *input++ = v;
        }
    return true;
}

/* Names of classes as targets. */
static bool csv_read_classes(struct csv *c, const struct csv_field *target, int64_t *number)
{
    size_t nbytes = 0, n = (size_t)c->nrecord;
    for (size_t i = 0; i < n; i++)
        nbytes += target[i].n + 1;
    char **name = (char **)malloc(2 * n * sizeof *name), *text = (char *)malloc(nbytes);
    bool ok = name && text;
    char *at = text;
    for (size_t i = 0; ok && i < n; i++) {
        name[i] = at;
        at += csv_copy(&target[i], at) + 1;
    }
    ok = ok ? loader_number_classes(c->d, c->path, name, name + n, c->nrecord, number)
            : loader_fail(c->d->error, "%s: no memory for its classes", c->path);
    free(name);
    free(text);
    return ok;
}

static bool csv_add_targets(struct csv *c, const struct csv_field *target)
{
    struct loader_shape s;
    bool are_integers = true, are_numbers = true;
    bool has_classes = c->d->classes && c->d->classes->nclass;
    float v;
    memset(&s, 0, sizeof s);
    s.rank = 1;
    s.dim[0] = c->nrecord;
    s.nbytes = (size_t)c->nrecord * sizeof(int64_t);
    int64_t *whole = (int64_t *)loader_take(c->d, c->path, s.nbytes);
    if (!whole)
        return false;
    for (int64_t i = 0; i < c->nrecord && are_numbers && !has_classes; i++) {
        are_integers = are_integers && csv_number(&target[i], &v, &whole[i]);
        are_numbers = csv_number(&target[i], &v, NULL);
        if (!are_numbers && c->d->classes)
            return csv_bad_field(
                c, &target[i], c->target,
                "is no number, and the targets of the training data are; write one");
    }
    bool are_classes = has_classes || !are_numbers;
    s.type = are_integers || are_classes ? LOADER_I64 : LOADER_F32;
    if (s.type == LOADER_F32) {
        s.nbytes = (size_t)c->nrecord * sizeof v;
        for (int64_t i = 0; i < c->nrecord; i++) {
            (void)csv_number(&target[i], &v, NULL);
            if (v - v != 0)
                return csv_bad_field(c, &target[i], c->target, "is beyond f32; scale the column");
            memcpy((uint8_t *)whole + (size_t)i * sizeof v, &v, sizeof v);
        }
    }
    return (!are_classes || csv_read_classes(c, target, whole)) &&
           loader_add_array(c->d, c->path, "target", &s, whole);
}

LOADER_API bool loader_open_csv(struct dataset *d, const char *path, const char *as,
                                const uint8_t *data, size_t n)
{
    struct csv c;
    struct loader_shape s;
    memset(&c, 0, sizeof c);
    memset(&s, 0, sizeof s);
    c.d = d;
    c.path = path;
    c.start = data + (n >= 3 && memcmp(data, "\xef\xbb\xbf", 3) == 0 ? 3 : 0); /* UTF-8's mark */
    c.end = data + n;
    if (!csv_count(&c) || !csv_find_target(&c))
        return false;
    if (c.nrecord == 0)
        return loader_fail(d->error, "%s: has no samples; a line of numbers is expected%s", path,
                           c.has_header ? " after its header" : "");
    s.type = LOADER_F32;
    s.rank = 2;
    s.dim[0] = c.nrecord;
    s.dim[1] = c.ncolumn - (c.target >= 0);
    size_t nrecord = (size_t)c.nrecord;
    if (!loader_mul(nrecord, (size_t)s.dim[1] * sizeof(float), &s.nbytes) ||
        nrecord > SIZE_MAX / sizeof(struct csv_field))
        return loader_fail(d->error, "%s: has more numbers than can be addressed", path);
    float *input = (float *)loader_take(d, path, s.nbytes);
    if (!input)
        return false;
    struct csv_field *target =
        c.target < 0 ? NULL : (struct csv_field *)malloc(nrecord * sizeof *target);
    bool ok = target || c.target < 0 || loader_fail(d->error, "%s: no memory for targets", path);
    ok = ok && csv_read_values(&c, input, target) &&
         loader_add_array(d, path, as ? as : "input", &s, input) &&
         (!target || csv_add_targets(&c, target));
    free(target);
    return ok;
}
