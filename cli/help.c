/* help.c - --help, --version, --man and --completion, made from options.def and tiers.def. */
#include "cli/cli.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    const char *group, *spelling, *value, *text, *commands;
    enum option_id id;
} lines[] = {
#define GROUP(title) {title, NULL, NULL, NULL, NULL, OPTION_COUNT},
#define OPTION(id, spelling, value, kind, commands, text)                                          \
    {NULL, spelling, value, text, commands, OPTION_##id},
#include "lib/options.def"
};
static const struct { enum option_id id; const char *spelling; } aliases[] = {
#define ALIAS(id, spelling) {OPTION_##id, spelling},
#include "lib/options.def"
};
static const struct { const char *name, *operands, *text; char letter; } commands[] = {
#define COMMAND(id, letter, name, operands, text) {name, operands, text, letter},
#include "lib/options.def"
};
static const struct { const char *extension, *text; bool built; } emits[] = {
#define EMIT(id, extension, text, built) {extension, text, built},
#include "lib/options.def"
};
static const struct { const char *name; bool built; } targets[] = {
#define TARGET(id, name, variable, built) {name, built},
#include "lib/options.def"
};
static const struct { const char *name, *note; int tier; } tiers[] = {
#define TIER(kind, name, tier, note) {name, note, tier},
#include "cli/tiers.def"
};
static const char *const tier_means[] = {"tested on hardware", "tested by an emulator", "builds"};
static const struct { const char *name, *text; } variables[] = {
#define ENVIRONMENT(name, values, text) {name, text},
#include "lib/options.def"
};
static const struct { int status; const char *text; } exits[] = {
#define EXIT(id, status, text) {status, text},
#include "lib/options.def"
};
#define COUNT(array) (sizeof(array) / sizeof *(array))

/* "--name=VALUE", "-o OUT", "--help, -h" */
static const char *option_form(struct tgc *t, size_t i)
{
    struct text x = {.t = t};
    text_puts(&x, lines[i].spelling);
    if (lines[i].value)
        text_printf(&x, "%s%s",
                    lines[i].spelling[1] == '-'       ? "="
                    : lines[i].id != OPTION_LEVEL ? " "
                                                      : "",
                    lines[i].value);
    for (size_t k = 0; k < COUNT(aliases); k++)
        if (aliases[k].id == lines[i].id)
            text_printf(&x, ", %s", aliases[k].spelling);
    return x.s;
}

/* A term, and its text wrapped in a second column. */
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

/* The titles of groups that have such an option, and the options. */
static void put_options(struct text *out, enum command topic)
{
    const char *title = NULL;
    for (size_t i = 0; i < COUNT(lines); i++) {
        if (lines[i].group)
            title = lines[i].group;
        if (lines[i].group || (topic != COMMAND_COUNT && !option_fits(lines[i].id, topic)))
            continue;
        if (title)
            text_printf(out, "\n%s:\n", title);
        title = NULL;
        put_entry(out, option_form(out->t, i), lines[i].text);
    }
    put_entry(out, "@FILE", "more words of the command line, from a file");
}

static void put_outputs(struct text *out)
{
    text_puts(out, "\nWhat can be written (extension of OUT, or --emit):\n");
    for (size_t i = 0; i < COUNT(emits); i++)
        if (emits[i].built)
            put_entry(out, mem_printf(out->t, ".%s", emits[i].extension), emits[i].text);
}

void help_write(struct text *out, enum command topic)
{
    struct tgc *t = out->t;
    text_puts(out, "tgc compiles neural networks (ONNX) to self-contained C.\n\nUsage:\n");
    for (size_t i = 0; i < COUNT(commands); i++)
        if (topic == COMMAND_COUNT || topic == (enum command)i)
            put_entry(out, mem_printf(t, "tgc %s %s", commands[i].name, commands[i].operands),
                      commands[i].text);
    put_options(out, topic);
    if (topic == COMMAND_COUNT || topic == COMMAND_COMPILE)
        put_outputs(out);
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

/* A line for each tier that something has; a note stands in parentheses. */
static void put_tiers(struct text *out)
{
    for (int tier = 1; tier <= (int)COUNT(tier_means); tier++) {
        const char *between = ":";
        for (size_t i = 0; i < COUNT(tiers); i++) {
            if (tiers[i].tier != tier)
                continue;
            if (*between == ':')
                text_printf(out, "\ntier %d, %s", tier, tier_means[tier - 1]);
            text_printf(out, "%s %s", between, tiers[i].name);
            if (*tiers[i].note)
                text_printf(out, " (%s)", tiers[i].note);
            between = ",";
        }
    }
}

void version_write(struct text *out)
{
    text_puts(out, "tgc " TGC_VERSION "\ntargets:");
    for (size_t i = 0; i < COUNT(targets); i++)
        text_printf(out, " %s%s", targets[i].name, targets[i].built ? "" : "(no)");
    put_tiers(out);
    const char *clang = clang_found(out->t);
    const char *library = clang_library_found(out->t, clang ? atoi(clang) : 0);
    const char *llvm = llvm_found(out->t);
    const char *nvrtc = cuda_found(out->t);
    text_printf(out, "\nclang: %s\nlibclang: %s\nlibLLVM: %s\nNVRTC: %s", clang ? clang : "none",
                library ? library : "none, so that --target=clang checks nothing",
                llvm ? llvm : "none",
                nvrtc  ? nvrtc
                : llvm ? "none, so that --target=cuda takes libLLVM"
                       : "none, so that --target=cuda writes .cu alone");
    const char *linker = gpu_linker_found(out->t);
    text_printf(out, "\nld.lld: %s",
                linker ? linker : "none: --target=amd needs it, or TGC_AMD=clang");
    text_puts(out, "\noutputs:");
    for (size_t i = 0; i < COUNT(emits); i++)
        text_printf(out, " .%s%s", emits[i].extension, emits[i].built ? "" : "(no)");
    text_printf(out, "\nimages: %s\n", image_formats());
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

/* ------------------------------------------------------------------------------- completion
 *
 * All three shells get the same: the commands, the options of the present command (its initial is
 * in the option's list), and the words of which a value is one. Values without such words are
 * directories if the table says DIR, files otherwise.
 */

static bool is_directory(size_t i)
{
    return lines[i].value && strcmp(lines[i].value, "DIR") == 0;
}

/* Quoted for '...' of a shell; zsh's lists also escape brackets and colons. */
static void put_quoted(struct text *out, const char *s, const char *special)
{
    for (; *s; s++)
        if (*s == '\'')
            /* works in fish, too: two quoted parts with a quote between them */
            text_puts(out, "'\\''");
        else
            text_printf(out, strchr(special, *s) ? "\\%c" : "%c", *s);
}

static void put_command_names(struct text *out, const char *between)
{
    for (size_t i = 0; i < COUNT(commands); i++)
        text_printf(out, "%s%s", i ? between : "", commands[i].name);
}

/* The spellings of an option, k = 0, 1, ...; NULL: no more. */
static const char *spelling_at(size_t i, size_t k)
{
    if (k == 0)
        return lines[i].spelling;
    for (size_t a = 0; a < COUNT(aliases); a++)
        if (aliases[a].id == lines[i].id && --k == 0)
            return aliases[a].spelling;
    return NULL;
}

static void put_bash_options(struct text *out)
{
    for (size_t c = 0; c < COUNT(commands); c++) {
        text_printf(out, "    %s) options='", commands[c].name);
        for (size_t i = 0, n = 0; i < COUNT(lines); i++)
            for (size_t k = 0; lines[i].spelling && option_fits(lines[i].id, (enum command)c) &&
                               spelling_at(i, k);
                 k++)
                text_printf(out, "%s%s%s", n++ ? " " : "", spelling_at(i, k),
                            lines[i].value && lines[i].spelling[1] == '-' ? "=" : "");
        text_puts(out, "' ;;\n");
    }
}

static void put_bash_values(struct text *out)
{
    for (size_t i = 0; i < COUNT(lines); i++) {
        struct text choices = {.t = out->t};
        if (!lines[i].value)
            continue;
        option_put_choices(&choices, lines[i].id);
        if (choices.n)
            text_printf(out, "    %s) values='%s' ;;\n", lines[i].spelling, choices.s);
        else
            text_printf(out, "    %s) files=-%c ;;\n", lines[i].spelling,
                        is_directory(i) ? 'd' : 'f');
    }
}

/* "=" is a word of its own in COMP_WORDS unless COMP_WORDBREAKS lacks it. */
static void put_bash(struct text *out)
{
    text_puts(out, "# bash completion for tgc; needs bash 4\n"
                   "_tgc()\n{\n"
                   "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}\n"
                   "    local command=compile option=$before options= values= files=\n"
                   "    if [[ $word == = ]]; then\n        word=\n"
                   "    elif [[ $before == = ]]; then\n        option=${COMP_WORDS[COMP_CWORD-2]}\n"
                   "    fi\n"
                   "    case ${COMP_WORDS[1]} in\n    ");
    put_command_names(out, "|");
    text_puts(out, ") command=${COMP_WORDS[1]} ;;\n    esac\n    case $command in\n");
    put_bash_options(out);
    text_puts(out, "    esac\n    case $option in\n");
    put_bash_values(out);
    text_puts(out, "    esac\n    if [[ $values ]]; then\n"
                   "        mapfile -t COMPREPLY < <(compgen -W \"$values\" -- \"$word\")\n"
                   "    elif [[ $files ]]; then\n"
                   "        mapfile -t COMPREPLY < <(compgen $files -- \"$word\")\n"
                   "    elif [[ $word == -* ]]; then\n"
                   "        mapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$word\")\n"
                   "        [[ ${COMPREPLY-} == *= ]] && compopt -o nospace 2>/dev/null\n"
                   "    else\n        [[ $COMP_CWORD == 1 || $before == help ]] && values='");
    put_command_names(out, " ");
    text_puts(out, "'\n        mapfile -t COMPREPLY < <(compgen -W \"$values\" -- \"$word\"; "
                   "compgen -f -- \"$word\")\n    fi\n    return 0\n}\n"
                   "complete -o filenames -F _tgc tgc\n");
}

static void put_zsh(struct text *out)
{
    text_puts(out, "#compdef tgc\n_tgc()\n{\n    local c=c\n    local -a specs commands\n"
                   "    commands=(\n");
    for (size_t i = 0; i < COUNT(commands); i++) {
        text_printf(out, "        '%s:", commands[i].name);
        put_quoted(out, commands[i].text, "");
        text_puts(out, "'\n");
    }
    text_puts(out, "    )\n    case $words[2] in\n");
    for (size_t i = 0; i < COUNT(commands); i++)
        text_printf(out, "    (%s) c=%c ;;\n", commands[i].name, commands[i].letter);
    text_puts(out, "    esac\n");
    for (size_t i = 0; i < COUNT(lines); i++) {
        struct text choices = {.t = out->t};
        for (size_t k = 0; lines[i].spelling && spelling_at(i, k); k++) {
            text_printf(out, "    [[ %s == *$c* ]] && specs+=('*%s%s[", lines[i].commands,
                        spelling_at(i, k),
                        !lines[i].value                 ? ""
                        : lines[i].spelling[1] == '-' ? "="
                                                        : "+");
            put_quoted(out, lines[i].text, "[]:");
            text_puts(out, "]");
            choices.n = 0;
            if (lines[i].value)
                option_put_choices(&choices, lines[i].id);
            if (choices.n)
                text_printf(out, ":value:(%s)", choices.s);
            else if (lines[i].value)
                text_printf(out, ":value:_files%s", is_directory(i) ? " -/" : "");
            text_puts(out, "')\n");
        }
    }
    text_puts(out, "    _tgc_first() { _describe -t commands command commands; _files }\n"
                   "    if [[ $words[2] == help ]]; then\n"
                   "        _describe -t commands command commands\n    else\n"
                   "        _arguments $specs '1:command or model:_tgc_first' '*:file:_files'\n"
                   "    fi\n}\n"
                   "if [[ $funcstack[1] == _tgc ]]; then\n    _tgc \"$@\"\nelse\n"
                   "    compdef _tgc tgc\nfi\n");
}

static void put_fish(struct text *out)
{
    text_puts(out, "function __tgc_takes\n    set -l words (commandline -opc)\n    set -l c c\n"
                   "    switch \"$words[2]\"\n");
    for (size_t i = 0; i < COUNT(commands); i++)
        text_printf(out, "        case %s\n            set c %c\n", commands[i].name,
                    commands[i].letter);
    text_puts(out, "    end\n"
                   "    string match -q -- \"*$c*\" $argv[1]\nend\n");
    for (size_t i = 0; i < COUNT(commands); i++) {
        text_printf(out,
                    "complete -c tgc -n '__fish_use_subcommand; or __fish_seen_subcommand_from "
                    "help' -a %s -d '",
                    commands[i].name);
        put_quoted(out, commands[i].text, "");
        text_puts(out, "'\n");
    }
    for (size_t i = 0; i < COUNT(lines); i++) {
        struct text choices = {.t = out->t};
        if (!lines[i].spelling)
            continue;
        text_printf(out, "complete -c tgc -n '__tgc_takes %s'", lines[i].commands);
        for (size_t k = 0; spelling_at(i, k); k++) {
            const char *s = spelling_at(i, k);
            text_printf(out, " %s %s", s[1] == '-' ? "-l" : s[2] ? "-o" : "-s",
                        s + (s[1] == '-' ? 2 : 1));
        }
        if (lines[i].value)
            option_put_choices(&choices, lines[i].id);
        if (choices.n)
            text_printf(out, " -x -a '%s'", choices.s);
        else if (lines[i].value)
            text_puts(out, is_directory(i) ? " -x -a '(__fish_complete_directories)'" : " -r");
        text_puts(out, " -d '");
        put_quoted(out, lines[i].text, "");
        text_puts(out, "'\n");
    }
}

void completion_write(struct text *out, const char *shell)
{
    if (strcmp(shell, "fish") == 0)
        put_fish(out);
    else if (strcmp(shell, "zsh") == 0)
        put_zsh(out);
    else
        put_bash(out);
}
