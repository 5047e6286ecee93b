/* piece_code.c - functions of runtime/ as functions of a module, from their text, so that what they
 * compute is written once and a module with elementary functions needs no C. No function of C takes
 * vectors from a kernel: how these are passed depends on the compiler, its flags and the function's
 * features. The C is theirs: numbers and tables of them, vectors, pointers to a result,
 * expressions, if, for, while, return. What else it has is a bug (words_wrong()).
 *
 * One pass, by recursive descent; variables are places on the stack, which LLVM makes registers.
 */
#include "backends/llvm/piece_code.h"

enum { MOST_ELEMENTS = 64 };

/* --------------------------------------------------------------------------------- declarations */

static struct operand *add_variable(struct piece *p, struct variable v)
{
    VEC_PUSH(p->w.t, p->variable, p->nvariable, p->cap, v);
    return &p->variable[p->nvariable - 1].o;
}

/* "{1, 2, 3}", constants, in memory that nobody writes. */
static value read_table(struct piece *p, enum ctype type)
{
    enum { SPACE_OF_CONSTANTS = 4 };
    struct emit *e = p->e;
    value item[MOST_ELEMENTS];
    unsigned n = 0;
    words_need(&p->w, "{");
    while (!words_take(&p->w, "}")) {
        if (n == MOST_ELEMENTS)
            words_wrong(&p->w);
        item[n++] = piece_read_as(p, piece_assignment(p), type);
        words_take(&p->w, ",");
    }
    value all = e->l->ConstArray(ctype_memory(e, type), item, n);
    value g = e->l->AddGlobalInAddressSpace(e->module, e->l->TypeOf(all), "",
                                            e->gpu ? SPACE_OF_CONSTANTS : 0);
    e->l->SetInitializer(g, all);
    e->l->SetGlobalConstant(g, 1);
    e->l->SetLinkage(g, LLVM_PRIVATE);
    return generic_pointer(e, g);
}

/* "[6]", or "[] = {...}" */
static struct operand read_array(struct piece *p, enum ctype type)
{
    uint64_t n = p->w.kind == TOKEN_NUMBER ? p->w.whole : 0;
    if (n)
        words_next(&p->w);
    words_need(&p->w, "]");
    if (words_take(&p->w, "="))
        return (struct operand){.v = read_table(p, type), .type = type, .is_pointer = true};
    value place = on_stack(p->e, p->e->l->ArrayType(ctype_memory(p->e, type), (unsigned)n));
    return (struct operand){.v = place, .type = type, .is_pointer = true};
}

static bool declaration(struct piece *p)
{
    enum ctype type;
    if (!words_type(&p->w, &type))
        return false;
    do {
        struct variable v = {.name = p->w.s, .n = p->w.n};
        words_next(&p->w);
        if (words_take(&p->w, "[")) {
            v.o = read_array(p, type);
            add_variable(p, v);
            continue;
        }
        v.o = (struct operand){
            .v = on_stack(p->e, ctype_memory(p->e, type)), .type = type, .is_place = true};
        if (words_take(&p->w, "="))
            ctype_store(p->e, piece_read_as(p, piece_assignment(p), type), v.o.v, type);
        add_variable(p, v);
    } while (words_take(&p->w, ","));
    words_need(&p->w, ";");
    return true;
}

/* ----------------------------------------------------------------------------------- statements */

static void statement(struct piece *p);

static void go_to(struct piece *p, LLVMBasicBlockRef block)
{
    p->e->l->BuildBr(p->e->at, block);
    p->e->l->PositionBuilderAtEnd(p->e->at, block);
}

static void if_statement(struct piece *p)
{
    struct emit *e = p->e;
    LLVMBasicBlockRef then = block_new(e, "then"), other = block_new(e, "else"),
                      after = block_new(e, "after");
    words_need(&p->w, "(");
    e->l->BuildCondBr(e->at, piece_condition(p, piece_expression(p)), then, other);
    words_need(&p->w, ")");
    e->l->PositionBuilderAtEnd(e->at, then);
    statement(p);
    e->l->BuildBr(e->at, after);
    e->l->PositionBuilderAtEnd(e->at, other);
    if (words_take(&p->w, "else"))
        statement(p);
    go_to(p, after);
}

/* while: head, body. for: the step is built after the body, from its saved words. */
static void loop_statement(struct piece *p, bool is_for)
{
    struct emit *e = p->e;
    LLVMBasicBlockRef head = block_new(e, "head"), body = block_new(e, "body"),
                      after = block_new(e, "after");
    int nvariable = p->nvariable;
    words_need(&p->w, "(");
    if (is_for && !declaration(p) && !words_take(&p->w, ";")) {
        piece_expression(p);
        words_need(&p->w, ";");
    }
    go_to(p, head);
    e->l->BuildCondBr(e->at, piece_condition(p, piece_expression(p)), body, after);
    e->l->PositionBuilderAtEnd(e->at, body);
    if (is_for)
        words_need(&p->w, ";");
    struct words step_words = p->w;
    for (int depth = 0; depth || !words_are(&p->w, ")"); words_next(&p->w))
        depth += words_are(&p->w, "(") - words_are(&p->w, ")");
    words_need(&p->w, ")");
    statement(p);
    struct words behind = p->w;
    p->w = step_words;
    if (is_for)
        piece_expression(p);
    p->w = behind;
    e->l->BuildBr(e->at, head);
    e->l->PositionBuilderAtEnd(e->at, after);
    p->nvariable = nvariable;
}

static void statement(struct piece *p)
{
    struct emit *e = p->e;
    int nvariable = p->nvariable;
    if (words_take(&p->w, "{")) {
        while (!words_take(&p->w, "}"))
            statement(p);
        p->nvariable = nvariable;
    } else if (words_take(&p->w, "if")) {
        if_statement(p);
    } else if (words_are(&p->w, "for") || words_are(&p->w, "while")) {
        bool is_for = words_are(&p->w, "for");
        words_next(&p->w);
        loop_statement(p, is_for);
    } else if (words_take(&p->w, "return")) {
        e->l->BuildRet(e->at, piece_read_as(p, piece_expression(p), p->result));
        words_need(&p->w, ";");
        e->l->PositionBuilderAtEnd(e->at, block_new(e, "behind"));       /* nothing comes here */
    } else if (!declaration(p)) {
        piece_expression(p);
        words_need(&p->w, ";");
    }
}

/* ------------------------------------------------------------------------------------ functions */

static void bind_parameters(struct piece *p)
{
    struct variable a;
    for (unsigned i = 0; piece_parameter(&p->w, &a); i++) {
        a.o.v = p->e->l->GetParam(p->e->function, i);
        if (!a.o.is_pointer) {
            value place = on_stack(p->e, ctype_memory(p->e, a.o.type));
            ctype_store(p->e, a.o.v, place, a.o.type);
            a.o.v = place;
            a.o.is_place = true;
        }
        add_variable(p, a);
    }
}

static void emit_piece(struct emit *e, const struct own_piece *own)
{
    struct piece p = {.e = e};
    words_begin(&p.w, e->t, own->name, piece_text(e, own->name, &e->lanes));
    piece_head(&p.w, &p.result);
    e->features = own->features;
    function_open(e, own->function);
    if (e->gpu || e->lanes > 1)
        function_attribute(e, e->function, ~0u, "alwaysinline");
    bind_parameters(&p);
    statement(&p);
    e->l->BuildRet(e->at, e->l->GetUndef(ctype_register(e, p.result)));
    function_end(e);
    if (p.w.kind != TOKEN_END)
        words_wrong(&p.w);
}

void pieces_emit(struct emit *e)
{
    const char *features = e->features;
    for (int i = 0; i < e->nown; i++) {         /* the list grows by what they call */
        struct own_piece own = e->own[i];
        emit_piece(e, &own);
    }
    e->features = features;
}
