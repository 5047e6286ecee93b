/* tune.c - tune files: reading, writing, finding the entry for a choice.
 *
 *      tgc-tune 3
 *      machine icelake-sp
 *      winograd 77e01b423f9c21aa side=4 us=812 model=901
 *      rows 51e0aa3f9c21aa77 us=95: cut 0 axis=1 n=192 from=192 to=1; rows 0 axis=1 n=12
 *      tile 3f9c21aa77e01b42 isa=avx512 us=101: lanes 0 axis=1 n=6 kind=lane as=row; ...
 *      threads 9c21aa77e01b423f isa=avx512 us=55: thread 0 axis=1
 *
 * A `#` begins a remark. Keys of nests: kernel/tune_key.c; opts: passes/opts.def.
 */
#include "passes/target/tune.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char tune_head[] = "tgc-tune 3";
static const struct { const char *name, *missing; bool has_isa; } kinds[TUNE_KIND_COUNT] = {
    [TUNE_WINOGRAD] = {"winograd", "no convolution of the model has this key", false},
    [TUNE_KEYS] = {"keys", "no kernel of the model has keys of this key", false},
    [TUNE_ROWS] = {"rows", "no kernel of the model has rows of this key", false},
    [TUNE_TILE] = {"tile", "no kernel of the model has this key", true},
    [TUNE_GRID] = {"grid", "no kernel of the model that a device's grid runs has this key", false},
    [TUNE_THREADS] = {"threads", "no kernel that threads share has this key", true},
};

const char *tune_kind_name(enum tune_kind kind) { return kinds[kind].name; }
bool tune_has_isa(enum tune_kind kind) { return kinds[kind].has_isa; }

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
    return a->kind == b->kind && a->apart == b->apart && a->winograd[0] == b->winograd[0] &&
           a->winograd[1] == b->winograd[1] && opts_are_equal(&a->opts, &b->opts);
}

static bool is_key_of(const struct tuned *e, enum tune_kind kind, uint64_t key, enum isa isa)
{
    return e->kind == kind && e->key == key && (!kinds[kind].has_isa || e->isa == isa);
}

struct tuned *tune_find(struct tgc *t, enum tune_kind kind, uint64_t key, enum isa isa)
{
    for (int i = 0; t->tuning && i < t->tuning->nentry; i++) {
        struct tuned *e = &t->tuning->entry[i];
        if (!is_key_of(e, kind, key, isa))
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
        if (!e->used && (!kinds[e->kind].has_isa || (isa >> e->isa & 1)))
            return tune_misfit(t, e, kinds[e->kind].missing);
    }
    return true;
}

/* -------------------------------------------------------------------------------------- writing */

void tune_write_machine(struct text *out, const struct machine *m)
{
    text_printf(out, "machine %s\n", m->text);
}

void tune_write(struct text *out, const struct tuned *e)
{
    text_printf(out, "%s %016llx", kinds[e->kind].name, (unsigned long long)e->key);
    if (kinds[e->kind].has_isa)
        text_printf(out, " isa=%s", isa_name(e->isa));
    if (e->apart)
        text_puts(out, " side=apart");
    else if (e->kind == TUNE_WINOGRAD)
        text_printf(out, " side=%d", e->winograd[0]);
    if (e->winograd[1] != e->winograd[0])
        text_printf(out, "x%d", e->winograd[1]);
    if (e->us > 0)
        text_printf(out, " us=%.4g", e->us);
    if (e->model_us > 0)
        text_printf(out, " model=%.4g", e->model_us);
    if (e->kind != TUNE_WINOGRAD)
        text_putc(out, ':');
    for (int i = 0; i < e->opts.n; i++) {
        text_puts(out, i ? "; " : " ");
        opt_print(out, &e->opts.v[i]);
    }
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

static bool read_time(const char *s, double *us)
{
    char *end;
    *us = strtod(s, &end);
    return end != s && *end == 0 && isfinite(*us) && *us >= 0;
}

static bool read_side(struct tuned *e, const char *value)
{
    size_t length = strlen(value), last = length == 3 && value[1] == 'x' ? 2 : 0;
    e->apart = strcmp(value, "apart") == 0;
    bool sides = length == last + 1 && strchr("023456", *value) && strchr("023456", value[last]);
    for (size_t i = 0; i < 2; i++)
        e->winograd[i] = sides ? value[i * last] - '0' : 0;
    return sides || e->apart;
}

/* *seen: whether the line has what its kind needs. */
static bool read_field(struct tuned *e, const char *name, const char *value, bool *seen)
{
    if (strcmp(name, "us") == 0)
        return read_time(value, &e->us);
    if (strcmp(name, "model") == 0)
        return read_time(value, &e->model_us);
    bool isa = strcmp(name, "isa") == 0 && kinds[e->kind].has_isa,
         side = strcmp(name, "side") == 0 && e->kind == TUNE_WINOGRAD;
    *seen |= isa || side;
    return isa ? isa_find(value, &e->isa) : side && read_side(e, value);
}

static char *next_word(char **at)
{
    char *word = *at + strspn(*at, " \t\r");
    *at = word + strcspn(word, " \t\r");
    if (**at)
        *(*at)++ = 0;
    return *word ? word : NULL;
}

/* Reads the opts after the colon. */
static bool read_opts(const struct reader *r, const char *list, struct tuned *e)
{
    if (!opts_read(r->t, r->file, r->line, list, strlen(list), &e->opts))
        return false;
    return e->opts.n <= TUNE_OPTS_MAX ||
           wrong(r, mem_printf(r->t, "at most %d opts are expected, found", TUNE_OPTS_MAX),
                 mem_printf(r->t, "%d", e->opts.n));
}

static bool read_machine(const struct reader *r, char *line, struct tuning *tuning)
{
    const char *name = next_word(&line), *more = next_word(&line);
    if (!name || more || tuning->machine)
        return wrong(r, "one line with the name of one machine is expected, found",
                     more   ? more
                     : name ? name
                            : "");
    tuning->machine = name;
    return true;
}

static bool read_entry(const struct reader *r, char *line, struct tuning *tuning)
{
    struct tuned e = {.line = r->line};
    char *list = strchr(line, ':');
    if (list)
        *list++ = 0;
    char *kind = next_word(&line), *key, *end = NULL, *word;
    if (!kind)
        return !list || wrong(r, "a kind of choice is expected, found", ":");
    if (strcmp(kind, "machine") == 0 && !list)
        return read_machine(r, line, tuning);
    key = next_word(&line);
    while (e.kind < TUNE_KIND_COUNT && strcmp(kind, kinds[e.kind].name) != 0)
        e.kind++;
    if (e.kind == TUNE_KIND_COUNT)
        return wrong(r, "found", kind);
    e.key = key ? strtoull(key, &end, 16) : 0;
    if (!key || *end || strlen(key) != 16)
        return wrong(r, "a key of 16 hexadecimal digits is expected, found", key ? key : "");
    bool seen = e.kind != TUNE_WINOGRAD && !kinds[e.kind].has_isa;
    while ((word = next_word(&line))) {
        char *value = strchr(word, '=');
        if (!value)
            return wrong(r, "name=value is expected, found", word);
        *value++ = 0;
        if (!read_field(&e, word, value, &seen))
            return wrong(r, mem_printf(r->t, "bad value for '%.40s':", word), value);
    }
    if (!seen || (e.kind == TUNE_WINOGRAD) == (list != NULL))
        return wrong(r, list ? "too much behind" : "something is missing behind", key);
    if (list && !read_opts(r, list, &e))
        return false;
    for (int i = 0; i < tuning->nentry; i++)
        if (is_key_of(&tuning->entry[i], e.kind, e.key, e.isa))
            return wrong(r, "a second line for the key", key);
    VEC_PUSH(r->t, tuning->entry, tuning->nentry, tuning->cap_entry, e);
    return true;
}

static void set_aside(struct tgc *t, struct tuning *tuning)
{
    const char *here = machine_of(t)->text;
    if (!tuning->nentry || !tuning->machine || strcmp(tuning->machine, here) == 0)
        return;
    diag_warn(
        t, &(struct place){.file = tuning->file},
        "not used: its lines gained over what is chosen for the machine '%.60s', and this compile "
        "chooses for '%s'; give the --machine that it was measured with, or run tgc tune again",
        tuning->machine, here);
    tuning->nentry = 0;
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
            if (strcmp(line, tune_head) != 0)
                return diag_error(t, &(struct place){.file = file, .line = 1, .column = 1},
                                  "found '%.40s', expected '%s': this is no file of tgc tune, or "
                                  "of another version; tgc tune MODEL -o MODEL.tune writes one",
                                  line, tune_head);
        } else if (!read_entry(&r, line, tuning)) {
            return false;
        }
    }
    set_aside(t, tuning);
    return true;
}
