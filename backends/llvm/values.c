/* values.c - types and small operations on values.
 *
 * A value of the IR is one of LLVM's: bool an i1; integers of less than 32 bits an i32, with the
 * bits above them as their sign says; narrow floats a float that their format has; strings a
 * pointer. In a vector, bytes are i8. In memory every element has the size that its dtype has
 * there. Pointers point to bytes, since version 14 still types them.
 */
#include "backends/llvm/emit.h"

#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------------------------------- types */

LLVMTypeRef vector_of(const struct emit *e, LLVMTypeRef type, int lanes)
{
    return lanes > 1 ? e->l->VectorType(type, (unsigned)lanes) : type;
}

LLVMTypeRef type_of(const struct emit *e, enum dtype d, int lanes)
{
    LLVMTypeRef type = d == DTYPE_BOOL                        ? e->i1
                       : d == DTYPE_STRING                    ? e->pointer
                       : d == DTYPE_F64                       ? e->f64
                       : dtype_is_float(d)                    ? e->f32
                       : dtype_bits(d) == 64                  ? e->i64
                       : lanes > 1 && dtype_bits(d) == 8      ? e->i8
                                                              : e->i32;
    return vector_of(e, type, lanes);
}

LLVMTypeRef type_in_memory(const struct emit *e, enum dtype d)
{
    if (d == DTYPE_STRING || d == DTYPE_F32 || d == DTYPE_TF32 || d == DTYPE_F64)
        return type_of(e, d, 1);
    switch (dtype_nbytes(d)) {
    case 1: return e->i8;
    case 2: return e->i16;
    case 4: return e->i32;
    default: return e->i64;
    }
}

/* ------------------------------------------------------------------------------------ constants */

value const_int(const struct emit *e, LLVMTypeRef type, int64_t v)
{
    return e->l->ConstInt(type, (unsigned long long)v, 1);
}

value const_i64(const struct emit *e, int64_t v) { return const_int(e, e->i64, v); }

value const_status(const struct emit *e, enum program_status s) { return const_int(e, e->i32, s); }

value const_null(const struct emit *e) { return e->l->ConstNull(e->pointer); }

value is_null(const struct emit *e, value pointer)
{
    return compare_ints(e, LLVM_EQ, pointer, const_null(e));
}

value compare_ints(const struct emit *e, enum llvm_icmp how, value a, value b)
{
    return e->l->BuildICmp(e->at, (int)how, a, b, "");
}

value splat(const struct emit *e, value v, int lanes)
{
    if (lanes == 1)
        return v;
    LLVMTypeRef type = vector_of(e, e->l->TypeOf(v), lanes);
    value one =
        e->l->BuildInsertElement(e->at, e->l->GetUndef(type), v, const_int(e, e->i32, 0), "");
    return e->l->BuildShuffleVector(e->at, one, e->l->GetUndef(type),
                                    e->l->ConstNull(vector_of(e, e->i32, lanes)), "");
}

value shuffle(const struct emit *e, value a, value b, const int *from, int n)
{
    value *lane = scratch_array(e->t, (size_t)n, sizeof *lane);
    for (int i = 0; i < n; i++)
        lane[i] = from[i] < 0 ? e->l->GetUndef(e->i32) : const_int(e, e->i32, from[i]);
    if (n == 1)
        return e->l->BuildExtractElement(e->at, a, lane[0], "");
    return e->l->BuildShuffleVector(e->at, a, b ? b : e->l->GetUndef(e->l->TypeOf(a)),
                                    e->l->ConstVector(lane, (unsigned)n), "");
}

/* ----------------------------------------------------------------------------------- operations */

value binary(const struct emit *e, enum llvm_opcode op, value a, value b)
{
    return e->l->BuildBinOp(e->at, (int)op, a, b, "");
}

value cast_to(const struct emit *e, enum llvm_opcode op, value v, LLVMTypeRef type)
{
    return e->l->TypeOf(v) == type ? v : e->l->BuildCast(e->at, (int)op, v, type, "");
}

value choose(const struct emit *e, value cond, value a, value b)
{
    return e->l->BuildSelect(e->at, cond, a, b, "");
}

value call(const struct emit *e, value function, value *arg, int n)
{
    return e->l->BuildCall2(e->at, e->l->GlobalGetValueType(function), function, arg, (unsigned)n,
                            "");
}

value call_intrinsic(const struct emit *e, const char *name, LLVMTypeRef *type, int ntype,
                     value *arg, int n)
{
    unsigned id = e->l->LookupIntrinsicID(name, strlen(name));
    if (!id)
        TGC_BUG(e->t, "LLVM has no %s", name);
    return call(e, e->l->GetIntrinsicDeclaration(e->module, id, type, (size_t)ntype), arg, n);
}

static LLVMAttributeRef extension(const struct emit *e, LLVMTypeRef type)
{
    const char *name = type == e->i32                    ? "signext"
                       : type == e->i8 || type == e->i16 ? "zeroext"
                                                         : NULL;
    if (!name)
        return NULL;
    return e->l->CreateEnumAttribute(
        e->context, e->l->GetEnumAttributeKindForName(name, strlen(name)), 0);
}

void extend_function(const struct emit *e, value function, LLVMTypeRef result)
{
    unsigned n = e->l->CountParams(function);
    LLVMAttributeRef of_result = extension(e, result);
    if (of_result)
        e->l->AddAttributeAtIndex(function, 0, of_result);
    for (unsigned i = 0; i < n; i++) {
        LLVMAttributeRef a = extension(e, e->l->TypeOf(e->l->GetParam(function, i)));
        if (a)
            e->l->AddAttributeAtIndex(function, i + 1, a);
    }
}

void extend_call(const struct emit *e, value made, const LLVMTypeRef *type, int n)
{
    for (int i = 0; i < n; i++) {
        LLVMAttributeRef a = extension(e, type[i]);
        if (a)
            e->l->AddCallSiteAttribute(made, (unsigned)i + 1, a);
    }
}

/* Files of pieces that compute with numbers and vectors alone. */
static bool is_arithmetic(const struct snippet *s)
{
    return strcmp(s->file, "number") == 0 || strcmp(s->file, "math") == 0 ||
           strcmp(s->file, "vector_math") == 0;
}

/* The text of a function of vectors with the types' names of four lanes. */
static const char *in_fours(const struct emit *e, const char *text)
{
    char *copy = mem_str(e->t, text), *to = copy;
    for (const char *from = text; *from;) {
        bool is_type = strncmp(from, "f32x", 4) == 0;
        size_t digits = is_type ? strspn(from + 4, "0123456789") : 0;
        memmove(to, is_type ? "f32x4" : from, is_type ? 5 : 1);
        to += is_type ? 5 : 1;
        from += is_type ? 4 + digits : 1;
    }
    *to = '\0';
    return copy;
}

/* A function of vectors, "exp_f32x8", has OpenCL C's name where C has a cast. */
const char *piece_text(const struct emit *e, const char *name, int *lanes)
{
    const char *x = strstr(name, "_f32x");
    const struct snippet *s = snippet_find(name);
    *lanes = x ? atoi(x + strlen("_f32x")) : 1;
    if (x) {
        const struct snippet *cast = snippet_find(mem_printf(e->t, "opencl_%s", name));
        s = cast ? cast : s;
    }
    if (!s || (!e->gpu && !is_arithmetic(s)))
        return NULL;
    return x ? in_fours(e, s->text) : s->text;
}

static value own_piece(struct emit *e, const char *name, LLVMTypeRef type)
{
    for (int i = 0; i < e->nown; i++)
        if (strcmp(e->own[i].name, name) == 0 && strcmp(e->own[i].features, e->features) == 0)
            return e->own[i].function;
    value f = e->l->AddFunction(e->module, mem_printf(e->t, "%s.%d", name, e->nown), type);
    e->l->SetLinkage(f, LLVM_INTERNAL);
    struct own_piece own = {mem_str(e->t, name), e->features, f};
    VEC_PUSH(e->t, e->own, e->nown, e->cap_own, own);
    return f;
}

static value c_piece(struct emit *e, const char *name, LLVMTypeRef type, LLVMTypeRef result)
{
    value f = e->l->GetNamedFunction(e->module, name);
    if (f)
        return f;
    if (!snippet_find(name))
        TGC_BUG(e->t, "runtime/ has no function %s", name);
    f = e->l->AddFunction(e->module, name, type);
    extend_function(e, f, result);
    const char *kept = mem_str(e->t, name);
    VEC_PUSH(e->t, e->piece, e->npiece, e->cap_piece, kept);
    return f;
}

value call_piece(struct emit *e, const char *name, LLVMTypeRef result, value *arg, int n)
{
    enum { VECTOR = 13 };
    LLVMTypeRef *type = scratch_array(e->t, (size_t)n + 1, sizeof *type);
    bool has_vector = e->l->GetTypeKind(result) == VECTOR;
    for (int i = 0; i < n; i++) {
        type[i] = e->l->TypeOf(arg[i]);
        has_vector |= e->l->GetTypeKind(type[i]) == VECTOR;
    }
    int lanes;
    bool is_own = piece_text(e, name, &lanes) != NULL;
    if (has_vector && !is_own)       /* how C takes them depends on its compiler and flags */
        TGC_BUG(e->t, "%s() of runtime/ is C, and would have a vector", name);
    LLVMTypeRef of = e->l->FunctionType(result, type, (unsigned)n, 0);
    value f = is_own ? own_piece(e, name, of) : c_piece(e, name, of, result);
    return call(e, f, arg, n);
}

/* --------------------------------------------------------------------------------------- memory */

value pointer_at(const struct emit *e, value base, LLVMTypeRef element, value offset)
{
    LLVMTypeRef type = e->l->PointerType(element, 0);
    value typed = e->l->BuildBitCast(e->at, base, type, "");
    value p = e->l->BuildGEP2(e->at, element, typed, &offset, 1, "");
    return e->l->BuildBitCast(e->at, p, e->pointer, "");
}

value load_as(const struct emit *e, LLVMTypeRef type, value pointer, unsigned align)
{
    value typed = e->l->BuildBitCast(e->at, pointer, e->l->PointerType(type, 0), "");
    value v = e->l->BuildLoad2(e->at, type, typed, "");
    if (align)
        e->l->SetAlignment(v, align);
    return v;
}

void store_as(const struct emit *e, value v, value pointer, unsigned align)
{
    LLVMTypeRef type = e->l->PointerType(e->l->TypeOf(v), 0);
    value typed = e->l->BuildBitCast(e->at, pointer, type, "");
    value stored = e->l->BuildStore(e->at, v, typed);
    if (align)
        e->l->SetAlignment(stored, align);
}

value generic_pointer(const struct emit *e, value p)
{
    return e->l->GetPointerAddressSpace(e->l->TypeOf(p))
               ? e->l->BuildAddrSpaceCast(e->at, p, e->pointer, "")
               : e->l->BuildBitCast(e->at, p, e->pointer, "");
}

value on_stack(struct emit *e, LLVMTypeRef type)
{
    LLVMBasicBlockRef here = e->l->GetInsertBlock(e->at);
    e->l->PositionBuilderAtEnd(e->at, e->entry);
    value place = e->l->BuildAlloca(e->at, type, "");
    value p = generic_pointer(e, place);
    e->l->PositionBuilderAtEnd(e->at, here);
    return p;
}

LLVMBasicBlockRef block_new(const struct emit *e, const char *name)
{
    return e->l->AppendBasicBlockInContext(e->context, e->function, name);
}

void function_attribute(const struct emit *e, value function, unsigned at, const char *name)
{
    unsigned kind = e->l->GetEnumAttributeKindForName(name, strlen(name));
    e->l->AddAttributeAtIndex(function, at, e->l->CreateEnumAttribute(e->context, kind, 0));
}

value gpu_function(const struct emit *e, const char *name, LLVMTypeRef result, LLVMTypeRef *type,
                   int n)
{
    value f = e->l->GetNamedFunction(e->module, name);
    if (f)
        return f;
    f = e->l->AddFunction(e->module, name, e->l->FunctionType(result, type, (unsigned)n, 0));
    function_attribute(e, f, ~0u, "convergent");
    function_attribute(e, f, ~0u, "nounwind");
    return f;
}

void function_attribute_text(const struct emit *e, value function, const char *name,
                             const char *text)
{
    e->l->AddAttributeAtIndex(function, ~0u,
                              e->l->CreateStringAttribute(e->context, name, (unsigned)strlen(name),
                                                          text, (unsigned)strlen(text)));
}
