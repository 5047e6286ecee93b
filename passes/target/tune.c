/* tune.c - tune files: reading, writing, finding the entry for a choice.
 *
 *      tgc-tune 1
 *      tile 3f9c21aa77e01b42 isa=avx512 columns=64@1 rows=6@2 vector=16 panels=outside us=101
 *      winograd 77e01b423f9c21aa side=4 us=812 model=901
 *      threads 9c21aa77e01b423f isa=avx512 loop=1 us=55
 *
 * A `#` begins a remark. Keys of nests: kernel/tune_key.c.
 */
#include "passes/target/tune.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char magic[] = "tgc-tune 1";
static const char *const kinds[TUNE_KIND_COUNT] = {"tile", "winograd", "threads"};
static const char *const panels_text[] = {"there", "outside", "inside"};

/* ----------------------------------------------------------------------------------------- keys */

uint64_t tune_mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * 0x9E3779B97F4A7C15u;
    return h ^ h >> 29;
}

uint64_t tune_key_of_numbers(const int64_t *v, int n)
{
    uint64_t h = (uint64_t)n;
    for (int i = 0; i < n; i++)
        h = tune_mix(h, (uint64_t)v[i]);
    return h;
}

/* -------------------------------------------------------------------------------------- entries */

bool tiles_are_equal(const struct tile *a, const struct tile *b)
{
    return a->column_axis == b->column_axis && a->columns == b->columns &&
           a->vector == b->vector && a->rows == b->rows && a->panels == b->panels &&
           (a->rows == 1 || a->row_axis == b->row_axis);
}

bool tuned_are_equal(const struct tuned *a, const struct tuned *b)
{
    return a->kind == b->kind && (a->kind == TUNE_WINOGRAD  ? a->winograd[0] == b->winograd[0] &&
                                                     a->winograd[1] == b->winograd[1]
                                  : a->kind == TUNE_THREADS ? a->loop == b->loop
                                                            : tiles_are_equal(&a->tile, &b->tile));
}

struct tuned *tune_find(struct tgc *t, enum tune_kind kind, uint64_t key, enum isa isa)
{
    for (int i = 0; t->tuning && i < t->tuning->nentry; i++) {
        struct tuned *e = &t->tuning->entry[i];
        if (e->kind != kind || e->key != key || (kind != TUNE_WINOGRAD && e->isa != isa))
            continue;
        e->used = true;
        return e;
    }
    return NULL;
}

void tune_note(struct tgc *t, struct choice c)
{
    struct tuning *s = t->tuning;
    VEC_PUSH(t, s->choice, s->nchoice, s->cap_choice, c);
}

bool tune_misfit(struct tgc *t, const struct tuned *e, const char *what)
{
    return diag_error(t, &(struct place){.file = t->tuning->file, .line = e->line, .column = 1},
                      "%s; the model, tgc or an option that changes kernels (--dim, --shape, "
                      "--cpu, --threads, --weight-type, --no-winograd, ...) is not as it was when "
                      "this was measured: run tgc tune again",
                      what);
}

bool tune_check(struct tgc *t, const struct tuning *tuning, isa_set isa)
{
    for (int i = 0; i < tuning->nentry; i++) {
        const struct tuned *e = &tuning->entry[i];
        if (!e->used && e->kind == TUNE_WINOGRAD)
            return tune_misfit(t, e, "no convolution of the model has this key");
        if (!e->used && (isa >> e->isa & 1))
            return tune_misfit(t, e, e->kind == TUNE_THREADS
                                         ? "no kernel that threads share has this key"
                                         : "no kernel of the model has this key");
    }
    return true;
}

/* -------------------------------------------------------------------------------------- writing */

void tune_write(struct text *out, const struct tuned *e)
{
    const struct tile *v = &e->tile;
    if (e->kind == TUNE_WINOGRAD) {
        text_printf(out, "winograd %016llx side=%d", (unsigned long long)e->key, e->winograd[0]);
        if (e->winograd[1] != e->winograd[0])
            text_printf(out, "x%d", e->winograd[1]);
    } else if (e->kind == TUNE_THREADS) {
        text_printf(out, "threads %016llx isa=%s loop=%d", (unsigned long long)e->key,
                    isa_name(e->isa), e->loop);
    } else {
        text_printf(out, "tile %016llx isa=%s columns=%lld@%d", (unsigned long long)e->key,
                    isa_name(e->isa), (long long)v->columns, v->column_axis);
        if (v->rows > 1)
            text_printf(out, " rows=%lld@%d", (long long)v->rows, v->row_axis);
        text_printf(out, " vector=%d panels=%s", v->vector, panels_text[v->panels]);
    }
    if (e->us > 0)
        text_printf(out, " us=%.4g", e->us);
    if (e->model_us > 0)
        text_printf(out, " model=%.4g", e->model_us);
}

/* -------------------------------------------------------------------------------------- reading */

struct reader { struct tgc *t; const char *file; int line; };

static bool wrong(const struct reader *r, const char *what, const char *word)
{
    return diag_error(r->t, &(struct place){.file = r->file, .line = r->line, .column = 1},
                      "%s '%.60s'; this line is none that tgc tune writes: remove it, or run tgc "
                      "tune again",
                      what, word);
}

/* "64@1", with an axis only if `at`. */
static bool read_size(const char *s, int64_t *size, int *axis)
{
    char *end;
    long long n = strtoll(s, &end, 10);
    if (end == s || n < 1 || n > 1 << 20)
        return false;
    *size = n;
    if (!axis)
        return *end == 0;
    if (*end != '@')
        return false;
    s = end + 1;
    n = strtoll(s, &end, 10);
    *axis = (int)n;
    return end != s && *end == 0 && n >= 0 && n < 64;
}

static bool read_time(const char *s, double *us)
{
    char *end;
    *us = strtod(s, &end);
    return end != s && *end == 0 && isfinite(*us) && *us >= 0;
}

static bool read_field(struct tuned *e, const char *name, const char *value)
{
    int64_t n;
    if (strcmp(name, "us") == 0)
        return read_time(value, &e->us);
    if (strcmp(name, "model") == 0)
        return read_time(value, &e->model_us);
    if (e->kind == TUNE_WINOGRAD) {
        size_t length = strlen(value), last = length == 3 && value[1] == 'x' ? 2 : 0;
        bool known = strcmp(name, "side") == 0 && length == last + 1 &&
                     strchr("023456", *value) &&
                     strchr("023456", value[last]);
        e->winograd[0] = known ? *value - '0' : -1;
        e->winograd[1] = known ? value[last] - '0' : -1;
        return known;
    }
    if (strcmp(name, "isa") == 0)
        return isa_find(value, &e->isa);
    if (e->kind == TUNE_THREADS) {
        bool known = strcmp(name, "loop") == 0 && *value && strspn(value, "0123456789") < 3 &&
                     value[strspn(value, "0123456789")] == 0;
        e->loop = atoi(value);
        return known;
    }
    if (strcmp(name, "columns") == 0)
        return read_size(value, &e->tile.columns, &e->tile.column_axis);
    if (strcmp(name, "rows") == 0)
        return read_size(value, &e->tile.rows, &e->tile.row_axis);
    if (strcmp(name, "vector") == 0) {
        bool known = strcmp(value, "0") == 0 || read_size(value, &n, NULL);
        e->tile.vector = atoi(value);
        return known;
    }
    for (int i = 0; i < 3 && strcmp(name, "panels") == 0; i++)
        if (strcmp(value, panels_text[i]) == 0) {
            e->tile.panels = (enum panels)i;
            return true;
        }
    return false;
}

static char *next_word(char **at)
{
    char *word = *at + strspn(*at, " \t\r");
    *at = word + strcspn(word, " \t\r");
    if (**at)
        *(*at)++ = 0;
    return *word ? word : NULL;
}

static bool read_entry(const struct reader *r, char *line, struct tuning *tuning)
{
    struct tuned e = {.line = r->line, .winograd = {-1, -1}, .loop = -1,
                      .tile = {.rows = 1, .row_axis = -1, .column_axis = -1, .vector = -1}};
    char *kind = next_word(&line), *key = next_word(&line), *end = NULL, *word;
    if (!kind)
        return true;
    while (e.kind < TUNE_KIND_COUNT && strcmp(kind, kinds[e.kind]) != 0)
        e.kind++;
    if (e.kind == TUNE_KIND_COUNT)
        return wrong(r, "found", kind);
    e.key = key ? strtoull(key, &end, 16) : 0;
    if (!key || *end || strlen(key) != 16)
        return wrong(r, "a key of 16 hexadecimal digits is expected, found", key ? key : "");
    while ((word = next_word(&line))) {
        char *value = strchr(word, '=');
        if (!value)
            return wrong(r, "name=value is expected, found", word);
        *value++ = 0;
        if (!read_field(&e, word, value))
            return wrong(r, mem_printf(r->t, "bad value for '%.40s':", word), value);
    }
    if (e.kind == TUNE_TILE       ? e.tile.column_axis < 0 || e.tile.vector < 0
        : e.kind == TUNE_THREADS ? e.loop < 0
                                 : e.winograd[0] < 0)
        return wrong(r, "something is missing behind", key);
    for (int i = 0; i < tuning->nentry; i++)
        if (tuning->entry[i].kind == e.kind && tuning->entry[i].key == e.key &&
            (e.kind == TUNE_WINOGRAD || tuning->entry[i].isa == e.isa))
            return wrong(r, "a second line for the key", key);
    VEC_PUSH(r->t, tuning->entry, tuning->nentry, tuning->cap_entry, e);
    return true;
}

bool tune_read(struct tgc *t, const char *file, const char *text, size_t nbytes,
               struct tuning *tuning)
{
    struct reader r = {t, file, 0};
    tuning->file = file;
    for (size_t at = 0; at < nbytes || r.line == 0;) {
        const char *newline = at < nbytes ? memchr(text + at, '\n', nbytes - at) : NULL;
        size_t n = (newline ? (size_t)(newline - text) : nbytes) - at;
        char *line = mem_alloc(t, n + 1);
        memcpy(line, text + at, n);
        line[strcspn(line, "#\r")] = 0;
        at += n + 1;
        r.line++;
        if (r.line == 1) {
            while (*line && line[strlen(line) - 1] == ' ')
                line[strlen(line) - 1] = 0;
            if (strcmp(line, magic) != 0)
                return diag_error(t, &(struct place){.file = file, .line = 1, .column = 1},
                                  "found '%.40s', expected '%s': this is no file of tgc tune, or "
                                  "of another version; tgc tune MODEL -o MODEL.tune writes one",
                                  line, magic);
        } else if (!read_entry(&r, line, tuning)) {
            return false;
        }
    }
    return true;
}
