/* options.c - the words of losses and optimizers. */
#include "frontend/train/train.h"

#include <stdlib.h>
#include <string.h>

static const char *const losses[] = {
#define LOSS(id, name) name,
#include "frontend/train/train.def"
};
static const struct { const char *name; double learning_rate; } optimizers[] = {
#define OPTIMIZER(id, name, learning_rate) {name, learning_rate},
#include "frontend/train/train.def"
};
static const struct { const char *name; double least, most; } settings[] = {
#define SETTING(id, name, least, most) {name, least, most},
#include "frontend/train/train.def"
};
static const struct {
    enum optimizer of;
    enum optimizer_setting which;
    double value;
} defaults[] = {
#define OPTIMIZER_OPTION(optimizer, setting, value) \
    {OPTIMIZER_##optimizer, SETTING_##setting, value},
#include "frontend/train/train.def"
};
enum { DEFAULT_COUNT = sizeof defaults / sizeof *defaults };

const char *loss_name(enum loss loss) { return losses[loss]; }
const char *optimizer_name(enum optimizer kind) { return optimizers[kind].name; }

bool loss_parse(struct tgc *t, const char *s, enum loss *loss, const char **output,
                const char **why)
{
    struct text all = {.t = t};
    size_t n = strcspn(s, ":");
    *output = s[n] ? s + n + 1 : NULL;
    for (int i = 0; i < LOSS_COUNT; i++) {
        text_printf(&all, "%s%s", i ? ", " : "", losses[i]);
        if (strlen(losses[i]) != n || memcmp(s, losses[i], n) != 0)
            continue;
        *loss = (enum loss)i;
        *why = "output:NAME names a scalar output of the model";
        return *loss != LOSS_OUTPUT || (*output && **output);
    }
    *why = mem_printf(t, "the losses are %s", all.s);
    return false;
}

static bool has(enum optimizer o, enum optimizer_setting which)
{
    for (int i = 0; i < DEFAULT_COUNT; i++)
        if (defaults[i].of == o && defaults[i].which == which)
            return true;
    return false;
}

/* "beta2=0.95" */
static bool read_setting(struct tgc *t, const char *s, size_t n, struct optimizer_options *o,
                         const char **why)
{
    const char *word = mem_printf(t, "%.*s", (int)n, s);
    size_t length = strcspn(word, "=");
    struct text all = {.t = t};
    for (int i = 0; i < SETTING_COUNT; i++) {
        if (!has(o->kind, (enum optimizer_setting)i))
            continue;
        text_printf(&all, "%s%s", all.n ? ", " : "", settings[i].name);
        if (strlen(settings[i].name) != length || memcmp(word, settings[i].name, length) != 0)
            continue;
        char *end = NULL;
        double v = word[length] ? strtod(word + length + 1, &end) : 1;
        *why = mem_printf(t, "'%s' is a number from %g to %g", settings[i].name, settings[i].least,
                          settings[i].most);
        if ((end && (*end || end == word + length + 1)) ||
            !(v >= settings[i].least && v <= settings[i].most))
            return false;
        o->setting[i] = v;
        return true;
    }
    *why = mem_printf(t, "%s has no '%.*s'; its options are %s", optimizers[o->kind].name,
                      (int)length, word, all.s);
    return false;
}

struct optimizer_options optimizer_default(enum optimizer kind)
{
    struct optimizer_options o = {kind, optimizers[kind].learning_rate, {0}};
    for (int i = 0; i < DEFAULT_COUNT; i++)
        if (defaults[i].of == kind)
            o.setting[defaults[i].which] = defaults[i].value;
    return o;
}

bool optimizer_parse(struct tgc *t, const char *s, struct optimizer_options *o, const char **why)
{
    struct text all = {.t = t};
    size_t n = strcspn(s, ":");
    int kind = OPTIMIZER_COUNT;
    for (int i = 0; i < OPTIMIZER_COUNT; i++) {
        text_printf(&all, "%s%s", i ? ", " : "", optimizers[i].name);
        if (strlen(optimizers[i].name) == n && memcmp(s, optimizers[i].name, n) == 0)
            kind = i;
    }
    *why = mem_printf(t, "the optimizers are %s", all.s);
    if (kind == OPTIMIZER_COUNT)
        return false;
    *o = optimizer_default((enum optimizer)kind);
    for (s += n; *s;) {
        n = strcspn(++s, ",");
        if (!read_setting(t, s, n, o, why))
            return false;
        s += n;
    }
    return true;
}
