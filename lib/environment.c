/* environment.c - the variables that the command line goes by.
 *
 * A value that is none of those expected is an error where the variable is tgc's own (TGC_...).
 * DEBUG, DEV and the like are other programs' variables, too: there it is a warning, and the
 * variable counts as unset.
 */
#include "lib/parse.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static const struct { const char *names, *values; } variables[] = {
#define ENVIRONMENT(name, values, text) {name, values},
#include "lib/options.def"
};
static const struct { const char *name; enum target target; } devices[] = {
#define DEVICE(name, target) {name, TARGET_##target},
#include "lib/options.def"
};
#define COUNT(array) (sizeof(array) / sizeof *(array))

static bool is_number(const char *s)
{
    const char *digits = s + (*s == '-'), *end = digits + strspn(digits, "0123456789");
    return end > digits && end - digits < 10 && !*end;
}

static bool is_word(const char *words, const char *s)
{
    size_t n = strlen(s);
    for (const char *w = words; n; w += strcspn(w, "|") + 1) {
        if (strncmp(w, s, n) == 0 && (w[n] == '|' || !w[n]))
            return true;
        if (!w[strcspn(w, "|")])
            return false;
    }
    return false;
}

static bool fits(const char *values, const char *s)
{
    size_t nbytes;
    return !*values                       ? true
           : strcmp(values, "N") == 0     ? is_number(s)
           : strcmp(values, "BYTES") == 0 ? read_size(s, 0, &nbytes)
                                          : is_word(values, s);
}

static const char *expected(struct parser *p, const char *values)
{
    return strcmp(values, "N") == 0 ? "a whole number"
           : strcmp(values, "BYTES") == 0
               ? "a number of bytes, as in 512M,"
               : mem_printf(p->t, "%.*s or %s", (int)strcspn(values, "|"), values,
                            strrchr(values, '|') + 1);
}

static bool check(struct parser *p, const char *name, const char *values)
{
    const char *s = p->getenv_(name);
    if (!s || !*s || fits(values, s))
        return true;
    const char *text =
        mem_printf(p->t, "the environment's %s has the value '%.100s'; %s is expected", name, s,
                   expected(p, values));
    if (strncmp(name, "TGC_", 4) == 0)
        return usage(p, "%s", text);
    diag_warn(p->t, NULL, "%s, so it counts as unset", text);
    return true;
}

static bool check_all(struct parser *p)
{
    bool ok = true;
    for (size_t i = 0; i < COUNT(variables); i++)
        for (const char *s = variables[i].names; *s; s += strspn(s, ", ")) {
            size_t n = strcspn(s, ",");
            ok = check(p, mem_printf(p->t, "%.*s", (int)n, s), variables[i].values) && ok;
            s += n;
        }
    return ok;
}

static int read_variable(struct parser *p, const char *name)
{
    const char *s = p->getenv_(name);
    return s && is_number(s) ? atoi(s) : 0;
}

static bool runs_model(enum command c)
{
    return c == COMMAND_RUN || c == COMMAND_VERIFY || c == COMMAND_BENCH || c == COMMAND_TUNE ||
           c == COMMAND_TRAIN;
}

static bool is_same_word(const char *upper, const char *s, size_t n)
{
    size_t i = 0;
    while (i < n && upper[i] && toupper((unsigned char)s[i]) == upper[i])
        i++;
    return i == n && !upper[i];
}

/* tinygrad's DEV=CUDA, also CUDA:1 and the like: which of several devices is the
 * program's caller's to say. */
static bool apply_device(struct parser *p, bool *found)
{
    const char *s = p->getenv_("DEV");
    size_t n = s ? strcspn(s, ":") : 0;
    struct text names = {.t = p->t};
    for (size_t i = 0; i < COUNT(devices) && n; i++) {
        text_printf(&names, "%s%s", i ? ", " : "", devices[i].name);
        if (!is_same_word(devices[i].name, s, n))
            continue;
        *found = true;
        if (s[n])
            diag_warn(p->t, NULL, "the environment's DEV is '%.100s', of which tgc reads '%.*s'", s,
                      (int)n, s);
        return set_target(p, target_rows[devices[i].target].name, "DEV");
    }
    if (n)
        diag_warn(p->t, NULL,
                  "the environment's DEV has the value '%.100s', and tgc has a target for %s, so "
                  "it counts as "
                  "unset; --target says the target",
                  s, names.s);
    return true;
}

bool environment_apply(struct parser *p, bool has_target, bool has_level)
{
    struct options *o = p->o;
    if (!check_all(p))
        return false;
    o->debug = read_variable(p, "DEBUG");
    if (!has_level && read_variable(p, "NOOPT"))
        o->level = 0;
    o->beam = read_variable(p, "BEAM");
    if (o->beam && o->command != COMMAND_TUNE)
        diag_warn(p->t, NULL,
                  "BEAM is set in the environment; it is for tgc tune, whose result --tune reads");
    const char *limit = p->getenv_("TGC_OPT_LIMIT");
    o->opt_limit = limit && *limit ? read_variable(p, "TGC_OPT_LIMIT") : -1;
    o->no_code_cache |= o->opt_limit >= 0;
    o->viz = read_variable(p, "VIZ") > 0;
    for (int i = 0; i < TARGET_COUNT && !has_target; i++)
        if (read_variable(p, target_rows[i].variable))
            return set_target(p, target_rows[i].name, target_rows[i].variable);
    if (!has_target && !apply_device(p, &has_target))
        return false;
    const char *cc = p->getenv_("CC");
    o->any_target = !has_target && runs_model(o->command) && !(cc && cc[strspn(cc, " ")]);
    return true;
}
