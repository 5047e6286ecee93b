/* steps.h - steps of all kinds for the target of docs/adding-a-target.md, which has kernels alone:
 * its op table gets "if" and "loop" as well. */
static void put_step(const tgc_program *p, const tgc_step *s)
{
    int last = s->code.n - 1, n = s->symbol;
    if (s->kind == TGC_STEP_IF || s->kind == TGC_STEP_LOOP || s->kind == TGC_STEP_BREAK_UNLESS)
        printf("{\n");
    put_code(p, s->code);
    switch (s->kind) {
    case TGC_STEP_KERNEL: printf("kernel%d();\n", s->kernel); break;
    case TGC_STEP_IF: printf("if (v%d) {\n", last); break;
    case TGC_STEP_ELSE: printf("} else {\n"); break;
    case TGC_STEP_LOOP:
        printf("for (symbol[%d] = 0; symbol[%d] < v%d; symbol[%d]++) {\n", n, n, last, n);
        break;
    case TGC_STEP_BREAK_UNLESS: printf("if (!v%d)\n    break;\n}\n", last); break;
    case TGC_STEP_ENDIF:
    case TGC_STEP_ENDLOOP: printf("}\n}\n"); break;
    }
}
