/* option_rows.c - options.def as tables: what options, commands, outputs and targets there are. */
#include "lib/parse.h"

#include <string.h>

const struct option_row option_rows[] = {
#define OPTION(id, spelling, value, kind, commands, text) {spelling, value, kind, commands},
#include "lib/options.def"
};
const struct command_row command_rows[] = {
#define COMMAND(id, letter, name, operands, text) {name, letter},
#include "lib/options.def"
};
const struct emit_row emit_rows[] = {
#define EMIT(id, extension, text, built) {extension, text, built},
#include "lib/options.def"
};
const struct target_row target_rows[] = {
#define TARGET(id, name, variable, built) {name, variable, built},
#include "lib/options.def"
};

const char *option_spelling(enum option_id id) { return option_rows[id].spelling; }
const char *target_name(enum target target) { return target_rows[target].name; }
const char *command_name(enum command c) { return command_rows[c].name; }
const char *emit_extension(enum emit e) { return emit_rows[e].extension; }

bool option_fits(enum option_id id, enum command c)
{
    return strchr(option_rows[id].commands, command_rows[c].letter) != NULL;
}

void option_put_devices(struct text *out, const char *target)
{
    int n;
    const struct device_row *row = device_rows(&n);
    for (int i = 0; i < n; i++)
        if (!target || strcmp(row[i].target, target) == 0)
            text_printf(out, " %s", row[i].text);
}

void option_put_processors(struct text *out)
{
    text_puts(out, "auto native");
    for (int i = 0; i < ISA_COUNT; i++)
        if (!isa_is_of_device((enum isa)i))
            text_printf(out, " %s", isa_table[i].text);
}

void option_put_choices(struct text *out, enum option_id id)
{
    const char *value = option_rows[id].value;
    if (id == OPTION_CPU) {
        option_put_processors(out);
        option_put_devices(out, NULL);
    } else if (id == OPTION_MACHINE) {
        int n;
        const struct machine *m = machine_rows(&n);
        text_puts(out, "host");
        for (int i = 0; i < n; i++)
            text_printf(out, " %s", m[i].text);
    } else if (id == OPTION_EMIT) {
        for (int i = 0, n = 0; i < EMIT_COUNT; i++)
            if (emit_rows[i].built)
                text_printf(out, "%s%s", n++ ? " " : "", emit_rows[i].extension);
    } else if (id == OPTION_TARGET) {
        for (int i = 0, n = 0; i < TARGET_COUNT; i++)
            if (target_rows[i].built)
                text_printf(out, "%s%s", n++ ? " " : "", target_rows[i].name);
    } else if (id == OPTION_LEVEL) {
        text_puts(out, "0 1 2 3 s");
    } else if (value && strchr(value, '|') && !strpbrk(value, "=ABCDEFGHIJKLMNOPQRSTUVWXYZ")) {
        for (; *value; value++)
            text_putc(out, *value == '|' ? ' ' : *value);
    } else {
        text_puts(out, "");
    }
}
