/* help.c - --help, --version, --man and --completion, all made from options.def. */
#include "cli/cli.h"

#include <string.h>

static const struct { const char *group, *spelling, *value, *text, *commands; } lines[] = {
#define GROUP(title) {title, NULL, NULL, NULL, NULL},
#define OPTION(id, spelling, value, kind, commands, text) {NULL, spelling, value, text, commands},
#include "cli/options.def"
};
static const struct { const char *name, *operands, *text; } commands[] = {
#define COMMAND(id, name, operands, text) {name, operands, text},
#include "cli/options.def"
};
static const struct { const char *extension, *text; bool built; } emits[] = {
#define EMIT(id, extension, text, built) {extension, text, built},
#include "cli/options.def"
};
static const struct { const char *name; bool built; } targets[] = {
#define TARGET(id, name, variable, built) {name, built},
#include "cli/options.def"
};
static const struct { const char *name, *text; } variables[] = {
#define ENVIRONMENT(name, text) {name, text},
#include "cli/options.def"
};
static const struct { int status; const char *text; } exits[] = {
#define EXIT(id, status, text) {status, text},
#include "cli/options.def"
};
#define COUNT(array) (sizeof(array) / sizeof *(array))

/* "--name=VALUE", "-o OUT" */
static const char *option_form(struct tgc *t, size_t i)
{
    if (!lines[i].value)
        return lines[i].spelling;
    bool is_long = lines[i].spelling[1] == '-';
    return mem_printf(t, "%s%s%s", lines[i].spelling,
                      is_long                           ? "="
                      : strcmp(lines[i].spelling, "-O") ? " "
                                                        : "",
                      lines[i].value);
}

/* A term, and its text wrapped beside it. */
static void put_entry(struct text *out, const char *term, const char *text)
{
    enum { INDENT = 28, WIDTH = 100 };
    text_printf(out, "  %-*s", INDENT - 3, term);
    size_t column = strlen(term) + 3 > INDENT ? WIDTH : INDENT - 1;
    for (const char *s = text; *s;) {
        size_t n = strcspn(s, " ");
        if (column + n + 1 > WIDTH) {
            text_printf(out, "\n%*s", INDENT - 1, "");
            column = INDENT - 1;
        }
        text_printf(out, " %.*s", (int)n, s);
        column += n + 1;
        s += n + (s[n] == ' ');
    }
    text_putc(out, '\n');
}

void help_write(struct text *out)
{
    struct tgc *t = out->t;
    text_puts(out, "tgc compiles neural networks (ONNX) to self-contained C.\n\nUsage:\n");
    for (size_t i = 0; i < COUNT(commands); i++)
        put_entry(out, mem_printf(t, "tgc %s %s", commands[i].name, commands[i].operands),
                  commands[i].text);
    for (size_t i = 0; i < COUNT(lines); i++) {
        if (lines[i].group)
            text_printf(out, "\n%s:\n", lines[i].group);
        else
            put_entry(out, option_form(t, i), lines[i].text);
    }
    put_entry(out, "@FILE", "more words of the command line, from a file");
    text_puts(out, "\nWhat can be written (extension of OUT, or --emit):\n");
    for (size_t i = 0; i < COUNT(emits); i++)
        if (emits[i].built)
            put_entry(out, mem_printf(t, ".%s", emits[i].extension), emits[i].text);
    text_puts(out, "\nTargets:\n ");
    for (size_t i = 0; i < COUNT(targets); i++)
        if (targets[i].built)
            text_printf(out, " %s", targets[i].name);
    text_puts(out, "\n\nEnvironment (an option wins over a variable):\n");
    for (size_t i = 0; i < COUNT(variables); i++)
        put_entry(out, variables[i].name, variables[i].text);
    text_puts(out, "\nExit status:\n");
    for (size_t i = 0; i < COUNT(exits); i++)
        put_entry(out, mem_printf(t, "%d", exits[i].status), exits[i].text);
}

void version_write(struct text *out)
{
    text_puts(out, "tgc " TGC_VERSION "\ntargets:");
    for (size_t i = 0; i < COUNT(targets); i++)
        text_printf(out, " %s%s", targets[i].name, targets[i].built ? "" : "(no)");
    text_puts(out, "\noutputs:");
    for (size_t i = 0; i < COUNT(emits); i++)
        text_printf(out, " .%s%s", emits[i].extension, emits[i].built ? "" : "(no)");
    text_putc(out, '\n');
}

/* Text for troff: backslashes and hyphens are escaped; no line begins with a control character. */
static void put_roff(struct text *out, const char *s)
{
    if (*s == '.' || *s == '\'')
        text_puts(out, "\\&");
    for (; *s; s++) {
        if (*s == '\\')
            text_puts(out, "\\e");
        else if (*s == '-')
            text_puts(out, "\\-");
        else
            text_putc(out, *s);
    }
}

static void put_roff_entry(struct text *out, const char *term, const char *text)
{
    text_puts(out, ".TP\n.B ");
    put_roff(out, term);
    text_putc(out, '\n');
    put_roff(out, text);
    text_putc(out, '\n');
}

void man_write(struct text *out)
{
    struct tgc *t = out->t;
    text_puts(out,
              ".TH TGC 1 \"\" \"tgc " TGC_VERSION
              "\"\n.SH NAME\ntgc \\- compile neural networks to self-contained C\n.SH SYNOPSIS\n");
    for (size_t i = 0; i < COUNT(commands); i++) {
        text_printf(out, ".B tgc %s\n", commands[i].name);
        put_roff(out, *commands[i].operands ? commands[i].operands : "[options]");
        text_puts(out, "\n.br\n");
    }
    text_puts(out, ".SH COMMANDS\n");
    for (size_t i = 0; i < COUNT(commands); i++)
        put_roff_entry(out, commands[i].name, commands[i].text);
    text_puts(out, ".SH OPTIONS\n");
    for (size_t i = 0; i < COUNT(lines); i++) {
        if (lines[i].group)
            text_printf(out, ".SS %s\n", lines[i].group);
        else
            put_roff_entry(out, option_form(t, i), lines[i].text);
    }
    text_puts(out, ".SH OUTPUTS\n");
    for (size_t i = 0; i < COUNT(emits); i++)
        if (emits[i].built)
            put_roff_entry(out, mem_printf(t, ".%s", emits[i].extension), emits[i].text);
    text_puts(out, ".SH ENVIRONMENT\n");
    for (size_t i = 0; i < COUNT(variables); i++)
        put_roff_entry(out, variables[i].name, variables[i].text);
    text_puts(out, ".SH EXIT STATUS\n");
    for (size_t i = 0; i < COUNT(exits); i++)
        put_roff_entry(out, mem_printf(t, "%d", exits[i].status), exits[i].text);
}

/* Words that complete: commands and options. Files are the shell's own. */
static void put_words(struct text *out)
{
    for (size_t i = 0; i < COUNT(commands); i++)
        text_printf(out, "%s%s", i ? " " : "", commands[i].name);
    for (size_t i = 0; i < COUNT(lines); i++)
        if (lines[i].spelling)
            text_printf(out, " %s%s", lines[i].spelling,
                        lines[i].value && lines[i].spelling[1] == '-' ? "=" : "");
}

static void put_fish(struct text *out)
{
    for (size_t i = 0; i < COUNT(commands); i++)
        text_printf(out, "complete -c tgc -n __fish_use_subcommand -a %s -d '%s'\n",
                    commands[i].name, commands[i].text);
    for (size_t i = 0; i < COUNT(lines); i++) {
        if (!lines[i].spelling)
            continue;
        const char *s = lines[i].spelling;
        text_printf(out, "complete -c tgc %s %s%s -d '",
                    s[1] == '-' ? "-l"
                    : s[2]      ? "-o"
                                : "-s",
                    s + (s[1] == '-' ? 2 : 1), lines[i].value ? " -r" : "");
        for (const char *d = lines[i].text; *d; d++)
            text_puts(out, *d == '\'' ? "\\'" : (char[]){*d, 0});
        text_puts(out, "'\n");
    }
}

void completion_write(struct text *out, const char *shell)
{
    if (strcmp(shell, "fish") == 0) {
        put_fish(out);
        return;
    }
    if (strcmp(shell, "zsh") == 0)
        text_puts(out, "autoload -U +X bashcompinit && bashcompinit\n");
    text_puts(out,
              "_tgc()\n{\n    local word=${COMP_WORDS[COMP_CWORD]}\n    COMPREPLY=($(compgen -W '");
    put_words(out);
    text_puts(out, "' -- \"$word\") $(compgen -f -- \"$word\"))\n    [[ ${COMPREPLY-} == *= ]] && "
                   "compopt -o nospace\n}\n"
                   "complete -o filenames -F _tgc tgc\n");
}
