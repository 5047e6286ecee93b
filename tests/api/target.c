/* target.c - tgc_target.h as its comments say.   target MODEL HOST STATE MODEL...
 *
 * The first three are refused, with what their options or their needs are. */
#include "check.h"

#include <tgc_target.h>

static const tgc_target any = {TGC_TARGET_VERSION, "any", NULL, NULL};

static void refused(tgc_compiler *c, const tgc_target *target, const char *text)
{
    const tgc_program *p = (const void *)c;
    EXPECT(c, tgc_program_open(c, target, &p), TGC_FAILED);
    CHECK(!p && says(c, text));
    tgc_compiler_free(c);
}

/* A compiler with an option set. */
static tgc_compiler *with(const char *model, const char *option, const char *value)
{
    tgc_compiler *c = compiler_for(model);
    EXPECT(c, tgc_set(c, option, value), TGC_OK);
    return c;
}

static void refuse(const char *model, const char *host, const char *state)
{
    tgc_target old = any, few = any, ints = any;
    old.version = "0.0.9";
    refused(compiler_for(model), &old,
            "compiled with tgc_target.h of tgc 0.0.9, the library is tgc " TGC_VERSION);
    old.version = NULL;
    refused(compiler_for(model), &old, "tgc_target.h of tgc (none)");
    few.ops = "madd add mul";
    refused(compiler_for(model), &few, "the target 'any' has no op 'max'");
    ints.dtypes = "i32 i64 bool";
    refused(compiler_for(model), &ints, "the target 'any' has no type 'f32'");
    refused(compiler_for(host), &any, "which only tgc's own targets call");
    refused(with(model, "threads", "4"), &any, "the option threads");
    refused(with(model, "cpu", "generic"), &any, "the option cpu");
    refused(with(model, "target", "opencl"), &any, "the option target");
    refused(with(state, "state", "sum=before"), &any, "the option state");
}

static void nothing(const char *model)
{
    tgc_compiler *c = compiler_for(model);
    tgc_target nameless = any;
    const tgc_program *p;
    nameless.name = NULL;
    CHECK(tgc_program_open(NULL, &any, &p) == TGC_MISUSE && !p);
    CHECK(tgc_program_open(c, NULL, &p) == TGC_MISUSE);
    CHECK(tgc_program_open(c, &any, NULL) == TGC_MISUSE);
    CHECK(tgc_program_open(c, &nameless, &p) == TGC_MISUSE);
    CHECK(tgc_program_weights(NULL, &p) == TGC_MISUSE);
    tgc_program_free(NULL);
    EXPECT(c, tgc_program_open(c, &any, &p), TGC_OK);
    CHECK(tgc_program_weights(p, NULL) == TGC_MISUSE);
    tgc_compiler_free(c);
    CHECK(p->nkernel > 0 && p->kernel[0].code.n > 0);       /* it outlives its compiler */
    tgc_program_free(p);
}

static void check_code(const tgc_program *p, tgc_code code)
{
    int open = 0;
    for (int i = 0; i < code.n; i++) {
        const tgc_uop *u = &code.uop[i];
        for (int k = 0; k < u->nsrc; k++)
            CHECK(u->src[k] >= 0 && u->src[k] < i);
        if (strcmp(u->op, "buffer") == 0)
            CHECK(u->i >= 0 && u->i < p->nbuffer);
        if (strcmp(u->op, "var") == 0)
            CHECK(u->i >= 0 && u->i < p->nsymbol);
        open += !strcmp(u->op, "range") + !strcmp(u->op, "guard");
        open -= !strcmp(u->op, "end") + !strcmp(u->op, "endguard");
        CHECK(open >= 0);
    }
    CHECK(open == 0);
}

/* All numbers are of something that is there. */
static void check_program(const char *model)
{
    tgc_compiler *c = compiler_for(model);
    const tgc_program *p;
    EXPECT(c, tgc_program_open(c, &any, &p), TGC_OK);
    CHECK(p->ninput > 0 && p->noutput > 0 && p->nstep >= p->nkernel);
    for (int i = 0; i < p->nbuffer; i++) {
        const tgc_buffer *b = &p->buffer[i];
        size_t room = b->place == TGC_IN_ARENA ? p->arena_bytes : p->weights_bytes;
        CHECK(b->place > TGC_IN_WEIGHTS || b->first.n || b->offset + b->nbytes <= room);
        CHECK(b->offset % 64 == 0);
        check_code(p, b->first);
    }
    for (int i = 0; i < p->nkernel; i++) {
        check_code(p, p->kernel[i].code);
        CHECK(p->kernel[i].nwritten > 0 && p->kernel[i].nwritten <= p->kernel[i].nbuffer);
    }
    for (int i = 0; i < p->ninput; i++) {
        const tgc_buffer *b = &p->buffer[p->input[i].buffer];
        CHECK(b->place == TGC_IN_INPUT && b->index == i);
    }
    for (int i = 0; i < p->noutput; i++)
        for (int a = 0; a < p->output[i].rank; a++)
            CHECK(p->output[i].shape[a] > 0 && p->output[i].dim[a].n > 0);
    tgc_program_free(p);
    tgc_compiler_free(c);
}

int main(int argc, char **argv)
{
    CHECK(argc > 3);
    refuse(argv[1], argv[2], argv[3]);
    nothing(argv[1]);
    for (int i = 4; i < argc; i++)
        check_program(argv[i]);
    return 0;
}
