/* SPDX-License-Identifier: 0BSD */
/* signature.c - what a text declares as kernels, by a scan of its words: names and parameters.
 * Types are for the compiler, which gives their sizes (struct language, wrap); what is asked here
 * is which parameters are pointers, and of which memory.
 */
#include "emulator.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A word, a number or one character. */
struct token {
    const char *at;
    size_t n;
};

static bool is_word(char c) { return isalnum((unsigned char)c) || c == '_'; }

/* The position after a comment, a string or a line of the preprocessor, if one begins here. */
static const char *skip(const char *s)
{
    if (s[0] == '/' && s[1] == '*') {
        const char *end = strstr(s + 2, "*/");
        return end ? end + 2 : s + strlen(s);
    }
    if ((s[0] == '/' && s[1] == '/') || *s == '#') {
        while (*s && *s != '\n')
            s += *s == '\\' && s[1] ? 2 : 1;
        return s;
    }
    if (*s == '"') {
        for (s++; *s && *s != '"'; s++)
            s += *s == '\\' && s[1];
        return *s ? s + 1 : s;
    }
    return s;
}

static struct token next(const char **at)
{
    const char *s = *at, *before;
    do {
        before = s;
        while (isspace((unsigned char)*s))
            s++;
        s = skip(s);
    } while (s != before);
    struct token t = {s, *s != '\0'};
    if (is_word(*s))
        while (is_word(s[t.n]))
            t.n++;
    *at = s + t.n;
    return t;
}

static bool is_token(struct token t, const char *s)
{
    return strlen(s) == t.n && memcmp(t.at, s, t.n) == 0;
}

/* The kind of a word; -1: it is none of the language's. */
static int kind_of(const struct word *word, struct token t)
{
    for (; word->text; word++) {
        const size_t n = strlen(word->text);
        if (word->text[n - 1] == '*' ? t.n >= n - 1 && memcmp(t.at, word->text, n - 1) == 0
                                     : is_token(t, word->text))
            return (int)word->kind;
    }
    return -1;
}

static void append(char *to, struct token t)
{
    const size_t n = strlen(to);
    if (n + t.n + 2 < MAX_NAME) {
        memcpy(to + n, t.at, t.n);
        strcpy(to + n + t.n, " ");
    }
}

static void copy_name(char *to, struct token t)
{
    const size_t n = t.n < MAX_NAME ? t.n : MAX_NAME - 1;
    memcpy(to, t.at, n);
    to[n] = '\0';
}

static void note_kind(struct parameter *p, int kind)
{
    switch (kind) {
    case WORD_GLOBAL:
        p->kind = PARAMETER_GLOBAL;
        break;
    case WORD_CONSTANT:
        p->kind = PARAMETER_CONSTANT;
        break;
    case WORD_LOCAL:
        p->kind = PARAMETER_LOCAL;
        break;
    case WORD_IMAGE:
        p->kind = PARAMETER_IMAGE;
        break;
    case WORD_SAMPLER:
        p->kind = PARAMETER_SAMPLER;
        break;
    case WORD_CONST:
        p->is_const = true;
        break;
    default:
        break;
    }
}

/* "[[buffer(2)]]", "[[id(2)]]", after its first bracket: which buffer, or what else
 * the parameter is. */
static void read_attribute(const char **at, struct parameter *p, char *place)
{
    struct token t;
    int depth = 1;
    while (depth > 0 && (t = next(at)).n > 0) {
        depth += is_token(t, "[") - is_token(t, "]");
        if (is_token(t, "buffer") || is_token(t, "id")) {
            next(at);
            p->slot = (int)strtol(next(at).at, NULL, 10);
            next(at);
        } else if (is_word(*t.at))
            copy_name(place, t);
    }
}

/* One parameter, up to the comma or parenthesis after it, or a field, up to the semicolon. Returns
 * the token that ends it. */
static struct token read_parameter(const struct word *word, const char **at, struct parameter *p,
                                   char *place)
{
    struct token last = {NULL, 0}, t;
    int depth = 0;
    *p = (struct parameter){.kind = PARAMETER_VALUE, .slot = -1};
    *place = '\0';
    for (t = next(at);
         t.n > 0 && (depth > 0 || !(is_token(t, ",") || is_token(t, ")") || is_token(t, ";")));
         t = next(at)) {
        if (is_token(t, "[")) {
            read_attribute(at, p, place);
            continue;
        }
        depth += is_token(t, "(") - is_token(t, ")");
        const int kind = kind_of(word, t);
        note_kind(p, kind);
        if (is_token(t, "*") && p->kind == PARAMETER_VALUE) /* memory without a word for it */
            p->kind = PARAMETER_GLOBAL;
        if (last.n > 0)
            append(p->type, last);
        last = kind == WORD_SKIP ? (struct token){NULL, 0} : t;
    }
    if (last.n > 0)
        copy_name(p->name, last);
    return t;
}

/* If a kernel's one parameter is a structure, the fields become its parameters. */
static void read_structure(const struct word *word, const char *text, struct signature *s)
{
    char type[MAX_NAME], place[MAX_NAME];
    snprintf(type, sizeof type, "%.*s", (int)strcspn(s->parameter[0].type, " "),
             s->parameter[0].type);
    while (*text) {
        const struct token t = next(&text);
        if (t.n == 0)
            return;
        const char *ahead = text;
        if (!is_token(t, "struct") || !is_token(next(&ahead), type) || !is_token(next(&ahead), "{"))
            continue;
        snprintf(s->structure, sizeof s->structure, "%s", type);
        for (s->n = 0; s->n < MAX_PARAMETERS; s->n++) {
            text = ahead;
            if (is_token(next(&ahead), "}"))
                return;
            ahead = text;
            read_parameter(word, &ahead, &s->parameter[s->n], place);
        }
        return;
    }
}

/* "(8, 1, 1)" */
static void read_block(const char **at, size_t *block)
{
    next(at);
    for (int a = 0; a < 3; a++) {
        block[a] = strtoul(next(at).at, NULL, 10);
        next(at);
    }
}

static bool read_kernel(const struct word *word, const char **at, struct signature *s)
{
    struct token t, name = {NULL, 0};
    int depth = 0;
    for (t = next(at); t.n > 0 && !(depth == 0 && is_token(t, "(")); t = next(at)) {
        if (is_token(t, "__attribute__")) {
            do {
                t = next(at);
                depth += is_token(t, "(") - is_token(t, ")");
                if (kind_of(word, t) == WORD_BLOCK)
                    read_block(at, s->block);
            } while (t.n > 0 && depth > 0);
            continue;
        }
        if (kind_of(word, t) == WORD_BOUND) { /* "(256)", "(128, 1)" */
            next(at);
            s->bound = strtoul(next(at).at, NULL, 10);
            for (t = next(at); t.n > 0 && !is_token(t, ")");)
                t = next(at);
            continue;
        }
        name = t;
    }
    copy_name(s->name, name);
    const char *ahead = *at;
    if (is_token(next(&ahead), ")"))
        *at = ahead;
    else
        for (t = (struct token){",", 1};
             is_token(t, ",") && s->n < MAX_PARAMETERS && s->nplace < MAX_PLACES;) {
            t = read_parameter(word, at, &s->parameter[s->n], s->place[s->nplace]);
            *(*s->place[s->nplace] ? &s->nplace : &s->n) += 1;
        }
    ahead = *at;
    return is_token(next(&ahead), "{") || is_token(next(&ahead), "__attribute__");
}

bool signature_next(const struct word *word, const char **at, struct signature *s)
{
    const char *text = *at;
    size_t bound = 0, cluster[3] = {0}; /* in front of the kernel's word */
    for (struct token t = next(at); t.n > 0; t = next(at)) {
        const int kind = kind_of(word, t);
        if (kind == WORD_BOUND) {
            next(at);
            bound = strtoul(next(at).at, NULL, 10);
        } else if (kind == WORD_CLUSTER) { /* "(1, 2, 1)" */
            for (int a = 0; a < 3; a++) {
                next(at);
                cluster[a] = strtoul(next(at).at, NULL, 10);
            }
        } else if (kind == WORD_KERNEL) {
            memset(s, 0, sizeof *s);
            s->bound = bound;
            memcpy(s->cluster, cluster, sizeof cluster);
            memset(cluster, 0, sizeof cluster);
            if (!read_kernel(word, at, s))
                continue;
            if (s->n == 1 && s->parameter[0].kind == PARAMETER_VALUE)
                read_structure(word, text, s);
            tensors_read(text, t.at, s);
            return true;
        }
    }
    return false;
}
