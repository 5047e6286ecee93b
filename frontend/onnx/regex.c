/* regex.c - regular expressions as programs for runtime/host/regex.c: one pass over the pattern, on
 * an explicit stack of open groups.
 *
 * A piece of the expression is a block of code that is entered at its beginning and left at its
 * end; jumps are relative, so that blocks can be moved and copied:
 *
 *      a*     split +1 +len+2 · a · jump -(len+1)
 *      a?     split +1 +len+1 · a
 *      a|b    split +1 +len(a)+2 · a · jump +len(b)+1 · b
 *      a{2,3} a · a · a?
 *
 * Greedy or not makes no difference to whether a whole string matches.
 */
#include "frontend/onnx/regex.h"

#include <string.h>

enum { MATCH, SPLIT, JUMP, EAT, AT_BEGIN, AT_END, AT_WORD_EDGE, AT_NO_WORD_EDGE };
enum { MAX_CODE = 20000, MAX_DEPTH = 200, MAX_REPEAT = 1000, LAST_CHAR = 0x10ffff };

/* An open group: where its code begins, its current branch, and the atom a repetition applies
 * to. */
struct group { int begin, branch, atom; bool has_left; };

struct parser {
    struct regex *r;
    const char *begin, *s;
    struct group open[MAX_DEPTH];
    int depth;
};

static bool refuse(struct parser *p, const char *why)
{
    if (!p->r->error) {
        p->r->error = why;
        p->r->where = (int)(p->s - p->begin);
    }
    return false;
}

static bool is_in(int32_t c, int32_t lo, int32_t hi) { return c >= lo && c <= hi; }

/* ----------------------------------------------------------------------------------------- code */

static int32_t *instruction(struct parser *p, int at) { return p->r->code + 3 * at; }

/* Makes room for n instructions at `at`; what follows moves as a whole. */
static bool insert(struct parser *p, int at, int n)
{
    struct regex *r = p->r;
    if (r->ncode + n > MAX_CODE)
        return refuse(p, "it is too long");
    r->code = mem_grow(r->t, r->code, &r->cap_code, 3 * ((size_t)r->ncode + (size_t)n), 4);
    memmove(r->code + 3 * (at + n), r->code + 3 * at, 12 * (size_t)(r->ncode - at));
    r->ncode += n;
    return true;
}

static bool put(struct parser *p, int at, int32_t op, int32_t a, int32_t b)
{
    if (!insert(p, at, 1))
        return false;
    memcpy(instruction(p, at), (int32_t[]){op, a, b}, 12);
    return true;
}

/* Appends a copy of the code [from, to). */
static bool copy(struct parser *p, int from, int to)
{
    int end = p->r->ncode;
    if (!insert(p, end, to - from))
        return false;
    memcpy(instruction(p, end), instruction(p, from), 12 * (size_t)(to - from));
    return true;
}

static bool optional(struct parser *p, int from, int to)
{
    return put(p, from, SPLIT, 1, to - from + 1);
}

static bool star(struct parser *p, int from)
{
    int n = p->r->ncode - from;
    return put(p, from, SPLIT, 1, n + 2) && put(p, p->r->ncode, JUMP, -(n + 1), 0);
}

/* most < 0: any number */
static bool repeat(struct parser *p, int from, int least, int most)
{
    int to = p->r->ncode, n = to - from;
    if (most == 0) {
        p->r->ncode = from;
        return true;
    }
    for (int i = 1; i < least; i++)
        if (!copy(p, from, to))
            return false;
    if (least == 0 && most < 0)
        return star(p, from);
    if (least == 0) { /* copy it before the first one becomes optional, too */
        for (int i = 1; i < most; i++)
            if (!copy(p, from, to) || !optional(p, p->r->ncode - n, p->r->ncode))
                return false;
        return optional(p, from, to);
    }
    if (most < 0)
        return copy(p, from, to) && star(p, p->r->ncode - n);
    for (int i = least; i < most; i++)
        if (!copy(p, from, to) || !optional(p, p->r->ncode - n, p->r->ncode))
            return false;
    return true;
}

/* -------------------------------------------------------------------------- characters, classes */

static bool add_range(struct parser *p, int32_t lo, int32_t hi)
{
    struct regex *r = p->r;
    if (r->nrange > MAX_CODE)
        return refuse(p, "it has too many classes");
    r->range = mem_grow(r->t, r->range, &r->cap_range, 2 * ((size_t)r->nrange + 1), 4);
    r->range[2 * r->nrange] = lo;
    r->range[2 * r->nrange++ + 1] = hi;
    return true;
}

/* Adds the complement of the ranges since `from`. */
static bool negate_since(struct parser *p, int from)
{
    struct regex *r = p->r;
    int n = r->nrange - from;
    int32_t *old = mem_array(r->t, (size_t)n + 1, 8), next = 0;
    if (n)
        memcpy(old, r->range + 2 * from, 8 * (size_t)n);
    r->nrange = from;
    while (next <= LAST_CHAR) {
        int32_t lo = LAST_CHAR + 1,
                past = next; /* the range that begins first, and those that overlap it */
        for (int i = 0; i < n; i++) {
            if (old[2 * i] <= past && old[2 * i + 1] >= past)
                past = old[2 * i + 1] + 1;
            else if (old[2 * i] > past && old[2 * i] < lo)
                lo = old[2 * i];
        }
        if (past != next) {
            next = past;
            continue;
        }
        if (!add_range(p, next, lo - 1))
            return false;
        next = lo;
    }
    return true;
}

static bool add_named(struct parser *p, char name)
{
    int from = p->r->nrange;
    bool ok = true;
    switch (name | 0x20) {
    case 'd': ok = add_range(p, '0', '9'); break;
    case 's':
        ok = add_range(p, '\t', '\n') && add_range(p, '\f', '\r') && add_range(p, ' ', ' ');
        break;
    case 'w':
        ok = add_range(p, '0', '9') && add_range(p, 'A', 'Z') && add_range(p, '_', '_') &&
             add_range(p, 'a', 'z');
        break;
    }
    return ok && (name & 0x20 || negate_since(p, from));
}

static const struct { const char *name; int32_t range[8]; } posix[] = {
    {"alnum", {'0', '9', 'A', 'Z', 'a', 'z'}}, {"alpha", {'A', 'Z', 'a', 'z'}}, {"ascii", {0, 127}},
    {"blank", {' ', ' ', '\t', '\t'}}, {"cntrl", {0, 31, 127, 127}}, {"digit", {'0', '9'}},
    {"graph", {'!', '~'}}, {"lower", {'a', 'z'}}, {"print", {' ', '~'}},
    {"punct", {'!', '/', ':', '@', '[', '`', '{', '~'}}, {"space", {'\t', '\r', ' ', ' '}},
    {"upper", {'A', 'Z'}}, {"word", {'0', '9', 'A', 'Z', '_', '_', 'a', 'z'}},
    {"xdigit", {'0', '9', 'A', 'F', 'a', 'f'}},
};

static bool add_posix(struct parser *p)
{
    const char *end = strstr(p->s, ":]");
    bool negated = *p->s == '^';
    int from = p->r->nrange;
    p->s += negated;
    for (size_t i = 0; end && i < sizeof posix / sizeof *posix; i++)
        if (strlen(posix[i].name) == (size_t)(end - p->s) &&
            !strncmp(posix[i].name, p->s, (size_t)(end - p->s))) {
            for (int k = 0; k < 8 && (posix[i].range[k + 1] || k == 0); k += 2)
                if (!add_range(p, posix[i].range[k], posix[i].range[k + 1]))
                    return false;
            p->s = end + 2;
            return !negated || negate_since(p, from);
        }
    return refuse(p, "this class is not supported");
}

static int32_t read_char(struct parser *p)
{
    const unsigned char *b = (const unsigned char *)p->s;
    int more = b[0] < 0xc2 ? 0 : b[0] < 0xe0 ? 1 : b[0] < 0xf0 ? 2 : b[0] < 0xf5 ? 3 : 0, i = 1;
    int32_t c = more ? b[0] & (0x3f >> more) : b[0];
    for (; i <= more && (b[i] & 0xc0) == 0x80; i++)
        c = (int32_t)((uint32_t)c << 6 | (b[i] & 0x3fu));
    p->s += i;
    return c;
}

static bool read_hex(struct parser *p, int32_t *c)
{
    bool braces = *p->s == '{';
    *c = 0;
    p->s += braces;
    for (int i = 0; braces ? *p->s != '}' : i < 2; i++, p->s++) {
        int32_t digit = is_in(*p->s, '0', '9')          ? *p->s - '0'
                        : is_in(*p->s | 32, 'a', 'f') ? (*p->s | 32) - 'a' + 10
                                                        : -1;
        if (digit < 0 || i > 5)
            return refuse(p, "\\x needs hexadecimal digits");
        *c = *c * 16 + digit;
    }
    p->s += braces;
    return *c <= LAST_CHAR || refuse(p, "there is no such character");
}

/* After a backslash: a single character into *c, or a class, whose ranges are added (*c is -1). */
static bool read_escape(struct parser *p, int32_t *c)
{
    static const char from[] = "afnrtv", to[] = "\a\f\n\r\t\v";
    char e = *p->s;
    const char *control = e ? strchr(from, e) : NULL;
    *c = -1;
    if (!e)
        return refuse(p, "it ends with a backslash");
    if (strchr("dDsSwW", e))
        return p->s++, add_named(p, e);
    if (control) {
        *c = to[control - from];
    } else if (e == 'x') {
        p->s++;
        return read_hex(p, c);
    } else if (is_in(e, '0', '9') || is_in(e | 32, 'a', 'z')) {
        return refuse(p, "this escape is not supported");
    } else {
        *c = read_char(p);
        return true;
    }
    p->s++;
    return true;
}

/* After [ */
static bool read_class(struct parser *p)
{
    int from = p->r->nrange;
    bool negated = *p->s == '^', first = true;
    p->s += negated;
    for (; *p->s && (first || *p->s != ']'); first = false) {
        int32_t lo, hi;
        if (p->s[0] == '[' && p->s[1] == ':') {
            p->s += 2;
            if (!add_posix(p))
                return false;
            continue;
        }
        bool escaped = *p->s == '\\';
        p->s += escaped;
        if (escaped && !read_escape(p, &lo))
            return false;
        if (escaped && lo < 0)
            continue;
        lo = hi = escaped ? lo : read_char(p);
        if (p->s[0] == '-' && p->s[1] && p->s[1] != ']') {
            escaped = *++p->s == '\\';
            p->s += escaped;
            if (escaped && !read_escape(p, &hi))
                return false;
            hi = escaped ? hi : read_char(p);
        }
        if (hi < lo)
            return refuse(p, "a range of this class is empty");
        if (!add_range(p, lo, hi))
            return false;
    }
    if (!*p->s)
        return refuse(p, "a class is not closed");
    p->s++;
    return (!negated || negate_since(p, from)) && put(p, p->r->ncode, EAT, from, p->r->nrange);
}

/* ------------------------------------------------------------------------------------ structure */

/* The branches read so far, as one. */
static bool close_branch(struct parser *p)
{
    struct group *g = &p->open[p->depth];
    if (g->has_left) {
        int right = p->r->ncode - g->branch, left = g->branch - g->begin;
        if (!put(p, g->branch, JUMP, right + 1, 0) || !put(p, g->begin, SPLIT, 1, left + 2))
            return false;
    }
    g->branch = p->r->ncode;
    g->atom = -1;
    return true;
}

static bool open_group(struct parser *p)
{
    if (*p->s == '?') {
        if (p->s[1] == ':') {
            p->s += 2;
        } else if (p->s[1] == 'P' && p->s[2] == '<' && strchr(p->s, '>')) {
            p->s = strchr(p->s, '>') + 1;
        } else {
            return refuse(p, "flags and look-around are not supported");
        }
    }
    if (p->depth + 1 == MAX_DEPTH)
        return refuse(p, "its groups are nested too deeply");
    p->open[p->depth].atom = p->r->ncode; /* the group itself will be */
    p->open[++p->depth] = (struct group){p->r->ncode, p->r->ncode, -1, false};
    return true;
}

static bool read_number(struct parser *p, int *v)
{
    const char *begin = p->s;
    for (*v = 0; is_in(*p->s, '0', '9') && *v <= MAX_REPEAT; p->s++)
        *v = *v * 10 + (*p->s - '0');
    return p->s > begin && *v <= MAX_REPEAT;
}

/* {n}, {n,}, {n,m}; anything else is no repetition, as in RE2. */
static bool read_counts(struct parser *p, int *least, int *most)
{
    const char *begin = p->s;
    if (*p->s++ == '{' && read_number(p, least)) {
        *most = *least;
        if (*p->s == ',' && *++p->s == '}')
            *most = -1;
        else if (p->s[-1] == ',' && (!read_number(p, most) || *most < *least))
            *least = -1;
        if (*least >= 0 && *p->s == '}') {
            p->s++;
            return true;
        }
    }
    p->s = begin;
    return false;
}

static bool read_repetition(struct parser *p, int least, int most)
{
    struct group *g = &p->open[p->depth];
    if (g->atom < 0)
        return refuse(p, "there is nothing to repeat");
    if (*p->s == '?') /* lazy repetition: the same strings match */
        p->s++;
    bool ok = repeat(p, g->atom, least, most);
    g->atom = -1;
    return ok;
}

static bool read_atom(struct parser *p)
{
    int32_t c = -1;
    int from = p->r->nrange, at = p->r->ncode;
    bool ok = true;
    switch (*p->s) {
    case '[':
        p->s++;
        ok = read_class(p);
        break;
    case '.':
        p->s++;
        ok = add_range(p, 0, '\n' - 1) && add_range(p, '\n' + 1, LAST_CHAR) &&
             put(p, at, EAT, from, p->r->nrange);
        break;
    case '\\':
        p->s++;
        switch (*p->s) {
        case 'A': p->s++; return put(p, at, AT_BEGIN, 0, 0);
        case 'z': p->s++; return put(p, at, AT_END, 0, 0);
        case 'b': p->s++; return put(p, at, AT_WORD_EDGE, 0, 0);
        case 'B': p->s++; return put(p, at, AT_NO_WORD_EDGE, 0, 0);
        default: break;
        }
        ok = read_escape(p, &c) && (c < 0 || add_range(p, c, c)) &&
             put(p, at, EAT, from, p->r->nrange);
        break;
    default:
        c = read_char(p);
        ok = add_range(p, c, c) && put(p, at, EAT, from, p->r->nrange);
    }
    p->open[p->depth].atom = at;
    return ok;
}

static bool read_next(struct parser *p)
{
    int least, most;
    if (*p->s == '{' && read_counts(p, &least, &most))
        return read_repetition(p, least, most);
    switch (*p->s) {
    case '*': p->s++; return read_repetition(p, 0, -1);
    case '+': p->s++; return read_repetition(p, 1, -1);
    case '?': p->s++; return read_repetition(p, 0, 1);
    case '^': p->s++; return put(p, p->r->ncode, AT_BEGIN, 0, 0);
    case '$': p->s++; return put(p, p->r->ncode, AT_END, 0, 0);
    case '(': p->s++; return open_group(p);
    case '|':
        p->s++;
        if (!close_branch(p))
            return false;
        p->open[p->depth].has_left = true;
        return true;
    case ')':
        if (!p->depth)
            return refuse(p, "a ) closes nothing");
        p->s++;
        if (!close_branch(p))
            return false;
        p->depth--;
        return true;
    default:
        return read_atom(p);
    }
}

bool regex_compile(struct regex *r, const char *pattern)
{
    struct parser *p = MEM_NEW(r->t, struct parser);
    p->r = r;
    p->begin = p->s = pattern;
    p->open[0].atom = -1;
    while (*p->s)
        if (!read_next(p))
            return false;
    if (p->depth)
        return refuse(p, "a group is not closed");
    return close_branch(p) && put(p, r->ncode, MATCH, 0, 0);
}
