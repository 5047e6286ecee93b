/* cmd_report.c - tgc report: the page of a saved .json, or of two, or of logs of trainings; what
 * VIZ=1 asks for where the command itself writes no report. */
#include "cli/cli.h"
#include "lib/report/report.h"

#include <string.h>

static enum exit_status end(struct outputs *files, bool ok)
{
    ok = ok && outputs_commit(files);
    if (!ok)
        outputs_discard(files);
    return ok ? EXIT_DONE : EXIT_FAILED;
}

enum exit_status cmd_report(struct tgc *t, const struct options *o)
{
    struct outputs *files = outputs_new(t);
    struct text page = {.t = t}, document[2] = {{0}};
    const char *const file[2] = {o->model, o->model2};
    int n = o->model2 ? 2 : 1;
    bool ok = true;
    for (int i = 0; i < n && ok; i++) {
        outputs_protect(files, file[i]);
        const char *s = tg_load(t, file[i], &document[i].n);
        document[i].s = (char *)(uintptr_t)s;
        ok = s != NULL;
    }
    bool logs = ok && report_is_log(&document[0]) && (n == 1 || report_is_log(&document[1]));
    if (logs && o->trace)
        ok = diag_error(t, &(struct place){.file = file[0]},
                        "is the log of a training; --trace is of a run: of a .json that tgc bench "
                        "MODEL -o m.json has written");
    ok = ok && (!o->trace || (outputs_may_write(files, o->trace) &&
                              report_put_trace(t, o->trace, file[0], &document[0], files)));
    if (!o->output)
        return end(files, ok);
    ok = ok && outputs_may_write(files, o->output) &&
         (logs     ? report_curves(&page, t, file, document, n)
          : n == 1 ? report_page(&page, t, file[0], document[0].s, document[0].n)
                   : report_compare(&page, t, file, document)) &&
         outputs_put(files, o->output, &page);
    return end(files, ok);
}

bool viz_is_apart(const struct options *o)
{
    const char *dot = o->model ? strrchr(o->model, '.') : NULL;
    bool is_model = o->command == COMMAND_RUN || o->command == COMMAND_VERIFY ||
                    o->command == COMMAND_TUNE || o->command == COMMAND_TRAIN ||
                    (o->command == COMMAND_INFO && !(dot && strcmp(dot, ".so") == 0));
    return o->viz && is_model;
}

bool viz_write(struct tgc *t, const struct options *given)
{
    struct options o = *given;
    struct model m;
    if (strcmp(o.model, "-") == 0) {
        diag_warn(t, NULL, "VIZ=1: no report, since the model on standard input can be read only "
                           "once; tgc - -o NAME.html writes it");
        return true;
    }
    o.command = COMMAND_COMPILE;
    o.emit = EMIT_HTML;
    o.any_target = false;
    o.ninner = o.nlink = 0;
    o.depfile = false;
    model_name(t, o.model, &m);
    o.output = report_path(t, &o, o.name ? o.name : program_name(t, m.stem));
    diag_note(t, &(struct place){.file = o.output}, "the visual report (VIZ=1)");
    return compile_model(t, &o, outputs_new(t));
}
