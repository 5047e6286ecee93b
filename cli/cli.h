/* cli.h - the command line: the private header of cli/.
 *
 *      main.c ──> options_parse() ──> one of cmd_*.c ──> lib/
 *
 * Diagnostics are recorded where they arise and printed by message.c when the command is over. Only
 * main.c ends the process.
 */
#ifndef TGC_CLI_H
#define TGC_CLI_H

#include "lib/lib.h"

/* --------------------------------------------------------------------------------------- help.c */

/* What a command does, and its options; COMMAND_COUNT: all commands. */
void help_write(struct text *out, enum command topic);
void version_write(struct text *out);
void man_write(struct text *out);
void completion_write(struct text *out, const char *shell);       /* bash, zsh or fish */

/* ------------------------------------------------------------------------------------ message.c */

/* Prints all diagnostics of t to `to` in the form that o asks for. Control characters of names are
 * escaped. */
void messages_print(const struct tgc *t, const struct options *o, FILE *to);
/* One name or text of unknown origin, escaped for a terminal. */
void print_escaped(FILE *to, const char *s);
/* print_escaped() for several lines, which may have tabs. */
void print_lines_escaped(FILE *to, const char *s);

/* --------------------------------------------------------------------------------- unfinished.c */

/* For a listener's on_temporary, on_process and on_critical: a signal that ends the process ends
 * these processes first and removes what is there. */
void unfinished_note(void *user, const char *path, bool is_directory, bool appears);
void unfinished_note_process(void *user, long pid, bool begins);
void unfinished_critical(void *user, bool begins);
/* From here on. Signals that are ignored stay so. */
void unfinished_catch_signals(void);

/* ----------------------------------------------------------------------------------- progress.c */

/* For the person at the terminal: lines of progress, with DEBUG=1 or -v each stage's time, and what
 * DEBUG asks for; and for unfinished_note(). Allocated in t. */
const struct listener *listen_for_terminal(struct tgc *t, const struct options *o);
/* "ran by LLVM 19", "ran by cc"; with what else ran, if that is another (NULL: nothing did). */
void instance_print_maker(const struct instance *p, const struct instance *other);

/* -------------------------------------------------------------------------------------- times.c */

/* Seconds: of each kernel in the present run, the least of all runs, and the least of whole
 * runs. */
struct kernel_times { double *now, *least, run; int n, open, nrun; double since; };
/* Sets p's hook, before instance_prepare() or instance_restart(). */
void times_hook(struct tgc *t, struct kernel_times *s, struct instance *p);
void times_on_kernel(void *user, int index, const char *kernel);
/* Begins the present run. */
void times_begin(struct kernel_times *s);
/* Runs several times: run and least[]. false: a diagnostic. */
bool times_of_runs(struct tgc *t, struct instance *p, struct kernel_times *s);
/* The present run, or runs, ended: least[]. */
void times_end(struct kernel_times *s);
/* least[] from the only run. */
void times_of_one_run(struct kernel_times *s);
/* A line for each kernel: us, share of all kernels, GFLOP/s and GB/s at the dimensions' upper
 * bounds, us by the cost model (kernel_cost.h). */
void times_write(struct text *out, struct tgc *t, const struct model *m, const struct instance *p,
                 const struct kernel_times *times);
/* The same as the elements of a JSON list. */
void times_write_json(struct text *out, struct tgc *t, const struct model *m,
                      const struct instance *p, const struct kernel_times *times);
/* The table on standard error. */
void times_print(struct tgc *t, const struct model *m, const struct instance *p,
                 const struct kernel_times *times);
/* The same at DEBUG=2, of the only run. */
void times_print_one_run(struct tgc *t, const struct model *m, const struct instance *p,
                         struct kernel_times *times);

/* ------------------------------------------------------------------------------------- values.c */

struct name_list { const char **name; int n; };
bool name_list_has(const struct name_list *names, const char *name);
/* The outputs of g, those of --value among them, that are floats rounded to integers; whether
 * any value of the graph is. */
struct name_list values_rounded(struct tgc *t, const struct graph *g);
bool values_are_rounded(struct tgc *t, const struct graph *g);
/* Makes the rounded values of --value that have a namesake of the same type among first[] inputs of
 * what is made of them, and feeds them with it. They stay outputs, as g computes them. */
void values_give(struct tgc *t, struct graph *g, const struct array *first, int nfirst,
                 struct feed *f);
/* array_compare() of rounded values: a step is allowed, though not to many elements; *nstep: to how
 * many it was. */
bool values_agree_rounded(struct tgc *t, struct text *out, const struct array *got,
                          const struct array *want, size_t *nstep);
/* "ok       y: f32[2]: equal", or MISMATCH. */
void print_comparison(struct tgc *t, bool agrees, const struct array *got, const char *how);
/* Prints how the values of --value compare, those of equal names, and which is the first to differ;
 * returns how many do. from[i]: what makes want[i]. */
int values_compare(struct tgc *t, const struct options *o, const struct array *want,
                   const char *const *from, int nwant, const struct array *got, int ngot,
                   const struct name_list *rounded);

/* -------------------------------------------------------------------------------------- cmd_*.c */

enum exit_status cmd_run(struct tgc *t, const struct options *o);
enum exit_status cmd_verify(struct tgc *t, const struct options *o);
/* bisect.c: verify --bisect, which step of optimization makes the answer wrong. EXIT_MISMATCH: it
 * is printed; EXIT_DONE: none does. */
enum exit_status cmd_bisect(struct tgc *t, const struct options *o);
/* How far TGC_OPT_LIMIT let the compile go, where it is set. */
void limit_print(const struct tgc *t, FILE *to);
enum exit_status cmd_bench(struct tgc *t, const struct options *o);
/* cmd_report.c: tgc report; whether VIZ=1 asks for a report beside what the command does, and that:
 * the model compiled once more, in a compile of its own. false: diagnostics. */
enum exit_status cmd_report(struct tgc *t, const struct options *o);
bool viz_is_apart(const struct options *o);
bool viz_write(struct tgc *t, const struct options *o);
enum exit_status cmd_train(struct tgc *t, const struct options *o);
enum exit_status cmd_tune(struct tgc *t, const struct options *o);
enum exit_status cmd_ops(struct tgc *t, const struct options *o);
enum exit_status cmd_cache(struct tgc *t, const struct options *o);
enum exit_status cmd_devices(struct tgc *t, const struct options *o);

#endif
