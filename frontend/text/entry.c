/* entry.c - several runs over one context in a .tg text graph, what it keeps between them, and ONNX
 * files that it calls.
 *
 *      import vision = "vision.onnx"                        a function: %features = vision(%image)
 *      state %queue : u8[4, 6, 128, 256] [ "as" string ] [ "=" init ]    zeros, or as a weight's
 *      entry "warp" { input ... output ... keep %queue = %next }
 *
 * An entry is a graph that the program runs by itself: it has inputs, outputs and names of its own,
 * and sees the weights, states, symbols and functions of the text. A graph without entries may have
 * states, too. What several entries compute from states alone is one computation, in the runs of
 * each.
 */
#include "frontend/text/reader.h"

#include <string.h>

/* -------------------------------------------------------------------------------------- imports */

const struct import *import_find(const struct reader *r, const char *name)
{
    for (int i = 0; i < r->nimport; i++)
        if (!strcmp(r->import[i].name, name))
            return &r->import[i];
    return NULL;
}

bool read_import(struct reader *r)
{
    struct import one = {.at = r->token, .name = r->token.text};
    void *base;
    size_t nbytes;
    if (one.at.kind != TOKEN_NAME)
        return one.at.kind == TOKEN_BAD
                   ? false
                   : read_error(r, &one.at, "found %s, expected a name for the import",
                                token_describe(r, &one.at));
    if (call_is_known(one.name) || import_find(r, one.name) ||
        tg_library_find(r->library, one.name))
        return read_error(r, &one.at, "'%.60s' is the name of a function already", one.name);
    lex_next(r);
    struct token file = {0};
    const char *location;
    if (!expect(r, '=', "and the file"))
        return false;
    file = r->token;
    if (!read_text(r, &location, "the file's name"))
        return false;
    if (region_depth(r) || r->in_entry)
        return read_error(r, &one.at, "an import inside an entry or a region");
    if (!r->options.import)
        return read_error(r, &one.at, "ONNX files are not imported here");
    if (!map_file(r, &file, location, &base, &nbytes))
        return false;
    one.model = r->options.import(r->options.user, location, base, nbytes);
    VEC_PUSH(r->t, r->import, r->nimport, r->cap_import, one);
    return one.model != NULL;
}

/* Inputs of the imported graph, and what stands for them. */
struct binding { struct uop *const *input, *const *operand; int n; };

static struct uop *bind(struct tgc *t, void *context, struct uop *u)
{
    const struct binding *b = context;
    (void)t;
    for (int i = 0; i < b->n; i++)
        if (b->input[i] == u)
            return b->operand[i];
    return NULL;
}

static bool fits(struct call *c, int k, const struct uop *input, const struct uop *operand)
{
    struct type want = {.dtype = input->dtype, .ndim = input->ndim, .at = c->arg[k].at};
    ARRAY_COPY(want.dim, input->dim, input->ndim);
    return type_matches(c->r, &want, operand);
}

bool import_run(struct call *c, const struct import *import)
{
    struct reader *r = c->r;
    struct uop **operand = mem_array(r->t, (size_t)c->narg + 1, sizeof *operand);
    if (!import->model)
        return false;
    if (c->nattr)
        return read_error(r, &c->attr[0].at, "an imported model has no attributes");
    for (int i = 0; i < c->narg; i++) {
        if (!(operand[i] = call_arg(c, i)))
            return c->failed
                       ? false
                       : read_error(r, &c->arg[i].at, "an imported model's operand is absent");
        for (int a = 0; a < operand[i]->ndim; a++)
            if (operand[i]->dim[a]->op != OP_CONST)
                return read_error(r, &c->arg[i].at,
                                  "axis %d of this operand of %s has no fixed size; an imported "
                                  "model is compiled for one size: fix it by --dim",
                                  a, c->name);
    }
    int origin = r->t->current_origin;
    struct graph *g = r->options.lower(r->options.user, import->model, operand, c->narg);
    r->t->current_origin = origin;
    if (!g)
        return false;
    if (g->ninput != c->narg)
        return read_error(r, &c->at, "%s has %d inputs, and %d operands are given", c->name,
                          g->ninput, c->narg);
    if (c->nwanted > g->noutput)
        return read_error(r, &c->at, "%s has %d outputs, and %d results are named", c->name,
                          g->noutput, c->nwanted);
    for (int i = 0; i < c->narg; i++)
        if (!fits(c, i, g->input[i], operand[i]))
            return false;
    struct binding b = {g->input, operand, c->narg};
    r->t->current_origin = 0;            /* the model's nodes are those of its file */
    graph_rewrite(r->t, g, bind, &b);
    r->t->current_origin = origin;
    for (int i = 0; i < g->nhost; i++)
        VEC_PUSH(r->t, r->host, r->nhost, r->cap_host, g->host[i]);
    for (int i = 0; i < g->noutput; i++)
        call_result(c, g->output[i].value);
    return true;
}

/* --------------------------------------------------------------------------------------- states */

static struct uop *find_state(struct reader *r, const char *name)
{
    bool found;
    struct uop *u = read_lookup(r, name, &found);
    for (int i = 0; i < r->nstate && u; i++)
        if (r->state[i] == u)
            return u;
    return NULL;
}

bool read_state(struct reader *r)
{
    struct token at = r->token;
    struct type type;
    const char *name = at.text;
    struct uop *first = NULL;
    if (at.kind != TOKEN_REF)
        return at.kind == TOKEN_BAD
                   ? false
                   : read_error(r, &at, "found %s, expected the state's name, as in %%x",
                                token_describe(r, &at));
    lex_next(r);
    bool ok = expect(r, ':', "and the type") && read_type(r, &type) &&
              (!accept_word(r, "as") || read_text(r, &name, "a name"));
    if (ok && accept(r, '='))
        ok = read_weight(r, &type, mem_printf(r->t, "%s_first", name), WEIGHT_KEPT, &first);
    if (!ok)
        return define_name(r, &at, NULL) && false;
    if (r->in_entry || r->region)
        return read_error(r, &at, "a state inside an entry or a region: all entries share it");
    for (int a = 0; a < type.ndim; a++)
        if (type.dim[a]->op != OP_CONST)
            return read_error(r, &type.at, "a state has a fixed size: fix it by --dim");
    struct buffer *b = buffer_new(r->t, BUFFER_INPUT, type.dtype, type.dim, type.ndim, name);
    b->port.first = first ? (struct buffer *)(uintptr_t)uop_buffer_of(first) : NULL;
    struct uop *x = uop_buffer(r->t, b);
    VEC_PUSH(r->t, r->state, r->nstate, r->cap_state, x);
    return define_name(r, &at, x);
}

bool read_keep(struct reader *r)
{
    struct token at = r->token;
    struct operand o;
    struct uop *state = at.kind == TOKEN_REF ? find_state(r, at.text) : NULL;
    int entry = r->in_entry ? r->nentry - 1 : -1;
    if (!state)
        return at.kind == TOKEN_BAD
                   ? false
                   : read_error(r, &at, "found %s, expected a state: state %%x : f32[8]",
                                token_describe(r, &at));
    lex_next(r);
    if (!expect(r, '=', "and the next value") || !read_operand(r, &o) ||
        !settle_operand(r, &o, DTYPE_I64))
        return false;
    if (region_depth(r))
        return read_error(r, &at, "what is kept inside a region");
    struct type want = {.dtype = state->dtype, .ndim = state->ndim, .at = o.at};
    ARRAY_COPY(want.dim, state->dim, state->ndim);
    if (!type_matches(r, &want, o.value))
        return false;
    for (int i = 0; i < r->nkept; i++)
        if (r->kept[i].to.in == state && r->kept[i].to.entry == entry)
            return read_error(r, &at, "%s is kept here already", token_describe(r, &at));
    VEC_PUSH(r->t, r->kept, r->nkept, r->cap_kept, ((struct kept_value){{state, entry}, o.value}));
    return true;
}

/* -------------------------------------------------------------------------------------- entries */

bool read_entry(struct reader *r)
{
    struct token at = r->token;
    struct graph_entry e = {.input = r->ninput, .output = r->noutput, .host = r->nhost};
    if (!read_text(r, &e.name, "the entry's name"))
        return false;
    if (r->region)
        return read_error(r, &at, "an entry inside an entry or a region");
    for (int i = 0; i < r->nentry; i++)
        if (!strcmp(r->entry[i].name, e.name))
            return read_error(r, &at, "there is an entry '%.100s' already", e.name);
    if ((r->ninput || r->noutput || r->nhost) && !r->nentry)
        return read_error(r, &at, "the graph has inputs, outputs or checks outside of its entries");
    if (!expect(r, '{', "after the entry's name"))
        return false;
    VEC_PUSH(r->t, r->entry, r->nentry, r->cap_entry, e);
    r->in_entry = true;
    r->region++;
    bool ok = read_statements(r, "}", NULL);
    leave_region(r);
    r->in_entry = false;
    struct graph_entry *made = &r->entry[r->nentry - 1];
    made->ninput = r->ninput - e.input;
    made->noutput = r->noutput - e.output;
    made->nhost = r->nhost - e.host;
    return expect(r, '}', "at the entry's end") && ok;
}

bool entries_check(struct reader *r)
{
    int of_entries = 0;
    for (int i = 0; i < r->nentry; i++)
        of_entries += r->entry[i].ninput + r->entry[i].noutput + r->entry[i].nhost;
    if (r->nentry && of_entries != r->ninput + r->noutput + r->nhost)
        return read_error(r, &r->token,
                          "the graph has inputs, outputs or checks outside of its entries");
    for (int i = 0; i < r->nkept; i++)
        if (r->nentry && r->kept[i].to.entry < 0)
            return read_error(r, &r->token, "a state is kept outside of the entries");
    for (int i = 0; i < r->nstate; i++) {
        bool kept = false;
        for (int k = 0; k < r->nkept; k++)
            kept |= r->kept[k].to.in == r->state[i];
        if (!kept)
            return read_error(r, &r->token,
                              "nothing keeps the state '%.100s': make it a weight, or add keep "
                              "%%%s = ...",
                              uop_buffer_of(r->state[i])->name, uop_buffer_of(r->state[i])->name);
    }
    return true;
}

/* States are inputs after the caller's, and what is kept are outputs after the caller's. */
void entries_finish(struct reader *r, struct graph *g)
{
    for (int i = 0; i < r->nstate; i++)
        VEC_PUSH(r->t, r->input, r->ninput, r->cap_input, r->state[i]);
    g->kept = mem_array(r->t, (size_t)r->nkept + 1, sizeof *g->kept);
    for (int i = 0; i < r->nkept; i++) {
        const char *name = uop_buffer_of(r->kept[i].to.in)->name;
        g->kept[i] = r->kept[i].to;
        VEC_PUSH(r->t, r->output, r->noutput, r->cap_output,
                 ((struct graph_output){.name = name, .value = r->kept[i].value}));
    }
    g->ninput = r->ninput, g->input = r->input;
    g->noutput = r->noutput, g->output = r->output;
    g->ndeclared = r->nstate;
    g->nkept = r->nkept;
    g->nentry = r->nentry;
    g->entry = r->entry;
    if (r->nentry)
        g->entry_number = var_new(r->t, "entry", 0, r->nentry - 1);
}
