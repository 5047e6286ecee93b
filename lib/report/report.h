/* report.h - the visual report: a model's compile as one JSON document, and as one HTML page.
 *
 *      schedule ── facts.c, graph.c, advice.c ──> document (.json) ── page.c, views.c ──> page
 *                                                     │ (.html: tables, and the document inside)
 *      m.json ── json.c ──────────────────────────────┘
 *
 * The page needs no network: report.css and the scripts are embedded when tgc is built (embed.c).
 * Its tables are HTML, made here; report.js adds details and sorting, graph.js draws graphs, and
 * passes.js draws what passes changed. The schema of the document is in docs/guide/report.md. Equal
 * compiles have equal documents: no times of this machine are in them, but those that tgc bench has
 * measured.
 */
#ifndef TGC_REPORT_H
#define TGC_REPORT_H

#include "backends/backend.h"
#include "lib/lib.h"

enum { REPORT_VERSION = 2 };

/* Before model_schedule(): what a compile has to note for a report. */
void report_prepare(struct options *o);
/* Appends the document of a compile. bench: the object that tgc bench --json prints, or NULL.
 * false: diagnostics. needs: report_prepare(), a schedule. */
bool report_facts(struct text *out, struct tgc *t, const struct options *o, const struct model *m,
                  const char *name, const char *bench);
/* Appends the page of a document. file: for messages. false: it is no JSON, no document, or one of
 * another version; a diagnostic says which, and where. */
bool report_page(struct text *out, struct tgc *t, const char *file, const char *json,
                 size_t nbytes);
/* Appends the page that compares two documents; as report_page(). */
bool report_compare(struct text *out, struct tgc *t, const char *const file[2],
                    const struct text document[2]);
/* Whether a file begins as a log of tgc train --log=FILE.jsonl; the page of one or two of them,
 * which may end within a line. false: a diagnostic. */
bool report_is_log(const struct text *document);
bool report_curves(struct text *out, struct tgc *t, const char *const file[2],
                   const struct text document[2], int n);
/* Appends Chrome-trace JSON of a document's run; as report_page(). And as `path` in files. */
bool report_trace(struct text *out, struct tgc *t, const char *file, const char *json,
                  size_t nbytes);
bool report_put_trace(struct tgc *t, const char *path, const char *file,
                      const struct text *document, struct outputs *files);
/* The page, or with EMIT_JSON the document, of a compile, as `path` in files; NULL: neither. And
 * what o->trace asks for. */
bool report_write(struct tgc *t, const struct options *o, const struct model *m, const char *name,
                  const char *bench, const char *path, struct outputs *files);
/* "NAME.html" beside the output, or in the working folder: where VIZ=1 writes. */
const char *report_path(struct tgc *t, const struct options *o, const char *name);

/* --------------------------------------------------------------------------------------- json.c */

enum json_kind {
    JSON_NULL,
    JSON_FALSE,
    JSON_TRUE,
    JSON_NUMBER,
    JSON_STRING,
    JSON_LIST,
    JSON_OBJECT
};
/* A value; of a list or an object the first child, the others by `next`. */
struct json {
    enum json_kind kind;
    const char *key;            /* in an object */
    const char *string;         /* STRING: UTF-8 without NUL */
    double number;
    int n;                      /* children */
    const struct json *child, *next;
};
/* NULL: a diagnostic with line and column. Strings with NUL, and more than JSON_DEPTH levels, are
 * refused. source: RFC 8259. */
enum { JSON_DEPTH = 64 };
const struct json *json_read(struct tgc *t, const char *file, const char *s, size_t nbytes);
/* Of an object; NULL: it has none of that name, or v is NULL or no object. */
const struct json *json_get(const struct json *v, const char *key);
/* 0 or "" where there is none of that kind. */
double json_number(const struct json *v, const char *key);
/* The integer that v is, or -1: v is NULL, no number, or not in 0 .. INT32_MAX. */
int json_index(const struct json *v);
const char *json_string(const struct json *v, const char *key);

/* -------------------------------------------------------------- graph.c, advice.c, assembly.c */

/* ,"nodes":[...],"edges":[...]: the model's nodes that compute something, and which feeds which.
 * *number: by origin its index in "nodes", -1: none. needs: the roots before the passes. */
void report_graph(struct text *out, struct tgc *t, const struct model *m, int **number);
/* ,"advice":[...]: what is most worth doing next, by the compiler's own estimates, and by the times
 * of bench (report_facts()), unless that is NULL. */
void report_advice(struct text *out, struct tgc *t, const struct options *o,
                   const struct schedule *s, const char *bench);

/* Whether there are a C compiler and objdump. */
bool report_can_disassemble(struct tgc *t);
/* ,"assembly":{...}: of each source the instructions, and which of its lines each is of. c, h: the
 * program of the sources. needs: report_can_disassemble(). false: the compiler failed. */
bool report_assembly(struct text *out, struct tgc *t, const char *name, const struct text *c,
                     const struct text *h, const struct program_source *source, int n);

/* ------------------------------------------------------ page.c, views.c, choices.c, tables.c */

/* What the views read of a document, by number. */
struct page {
    struct tgc *t;
    const struct json *d;
    const struct json **kernel, **nodes;     /* of kernel_list, kernel_nodes */
    const struct json **node;
    /* of each kernel: measured, else estimated; their sum, and the largest */
    double *us, total, most;
    bool measured;
    int nkernel, nnode;
};
/* The elements of a list, as an array; *n of them. */
const struct json **json_elements(struct tgc *t, const struct json *list, int *n);
/* What ends the head, and the body up to its sections; what ends the page. document NULL: a page
 * without data. */
void page_begin(struct text *out, const char *title, const char *heading);
void page_end(struct text *out, const char *json, size_t nbytes);
/* Checks format and version. NULL: a diagnostic. */
const struct json *page_read(struct tgc *t, const char *file, const char *json, size_t nbytes);
void page_of(struct page *p, struct tgc *t, const struct json *d);
/* The node that a kernel is mainly of; -1: none. */
int page_main_node(const struct page *p, int kernel);

/* The sections of a page. */
void view_overview(struct text *out, const struct page *p);
void view_graph(struct text *out, const struct page *p);
void view_kernels(struct text *out, const struct page *p);
void view_memory(struct text *out, const struct page *p);
void view_passes(struct text *out, const struct page *p);
/* Tables of these; nothing where there are none. */
void view_blocks(struct text *out, const struct page *p);
void view_winograd(struct text *out, const struct page *p);
void view_device(struct text *out, const struct page *p);
/* A section, of a program that trains. */
void view_training(struct text *out, const struct page *p);
/* One of a row of figures; "Conv conv_3, with Relu, Add": what a kernel computes. */
void view_figure(struct text *out, const char *name, const char *value, const char *words);
const char *view_computes(const struct page *p, int kernel);
/* ", at B = 64": the sizes of dimensions that a run chooses of which a document's figures are, their
 * upper bounds; "": there are none. */
const char *view_bounds(const struct page *p);
/* The step of most live bytes, and that many by step. */
double *view_live(const struct page *p, int *nstep, int *peak);
/* The tensors that are alive then, by place: "result of conv_3", "scratch of conv_3, 2 x 4 kB, one
 * per thread"; more: of these the bytes of all copies but one. *shared: bytes that two of them have
 * in common, where a kernel stores over what it reads. */
struct alive { const char *what, *title; double from, to, more; };
struct alive *view_peak(const struct page *p, int *n, double *shared);

/* tables.c. Text of the model's, cut and escaped. */
void html_put(struct text *out, const char *s);
/* A link to a kernel's details. */
void html_kernel(struct text *out, const char *name);
void html_heading(struct text *out, const char *id, const char *title, const char *words);
/* columns: titles between |; # before one of numbers. */
void table_begin(struct text *out, const char *id, const char *caption, const char *columns);
void table_end(struct text *out);
/* A cell: plain text; a number by which rows are sorted, as text; a share of 0 to 1, with a bar
 * that is full at `most`. */
void cell_text(struct text *out, const char *s);
void cell_number(struct text *out, double v, const char *s);
void cell_bar(struct text *out, double share, double most);
/* "12.3 µs", "1.8 MB", "231 MFLOP": three digits */
const char *view_time(struct tgc *t, double us);
const char *view_bytes(struct tgc *t, double nbytes);
const char *view_flop(struct tgc *t, double flop);

#endif
