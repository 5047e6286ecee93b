/* lib.h - the compiler without the command line: the header of lib/, which the command line uses.
 *
 *      options.c: what is asked for ──> model.c: file -> graph -> schedule
 *                                       ├─> emit.c: schedule -> C
 *                                       ├─> compile.c: schedule -> files
 *                                       │   └─> output.c: files that appear whole or not at all
 *                                       └─> instance.c: schedule -> code in this process, run here
 *                                           └─> feed.c, array.c, npy.c, image.c: its tensors
 *
 * Diagnostics are recorded where they arise. Nothing here prints, but to whom listens (listen.c).
 */
#ifndef TGC_LIB_H
#define TGC_LIB_H

#include "backends/backend.h"
#include "backends/clang/clang.h"
#include "backends/llvm/llvm.h"
#include "frontend/onnx/onnx.h"
#include "frontend/text/text.h"
#include "frontend/train/train.h"
#include "ir/ir.h"
#include "lib/tgc.h"
#include "passes/passes.h"
#include "passes/target/tune.h"


/* ------------------------------------------------------------------------------------ options.c */

enum { TUNE_WIDTH_MAX = 64 };       /* of the environment's BEAM */

enum command {
#define COMMAND(id, letter, name, operands, text) COMMAND_##id,
#include "lib/options.def"
    COMMAND_COUNT
};
enum option_id {
#define OPTION(id, spelling, value, kind, commands, text) OPTION_##id,
#include "lib/options.def"
    OPTION_COUNT
};
enum emit {
#define EMIT(id, extension, text, built) EMIT_##id,
#include "lib/options.def"
    EMIT_COUNT
};
enum target {
#define TARGET(id, name, variable, built) TARGET_##id,
#include "lib/options.def"
    TARGET_COUNT
};
enum exit_status {
#define EXIT(id, status, text) EXIT_##id = (status),
#include "lib/options.def"
};
enum model_format { FORMAT_BY_NAME, FORMAT_ONNX, FORMAT_TG };

struct depfile_target { const char *text; bool quote; };
struct input_file { const char *name, *path; };
/* How an input represents a picture (--image-layout). A byte b becomes (range[0] + b * (range[1] -
 * range[0]) / 255 - mean) / std. */
enum channel_order { CHANNELS_RGB, CHANNELS_BGR, CHANNELS_RGBA, CHANNELS_GRAY };
enum image_resize { RESIZE_NONE, RESIZE_STRETCH, RESIZE_CROP };
struct image_layout {
    const char *input;              /* NULL: all inputs that are not named */
    const char *words;              /* as given */
    char axes[5];                   /* NCHW, HWC, ... */
    enum channel_order channels;
    enum image_resize resize;
    bool has_channels, has_range;
    double range[2], mean[4], std[4];
    int nmean, nstd;                /* 1: one value for all channels */
};
enum rate_schedule { RATE_CONSTANT, RATE_LINEAR, RATE_COSINE };
/* Of tgc train. */
struct training_options {
    /* name NULL: the file names its arrays, or is of the only input */
    struct input_file *data; int ndata; size_t cap_data;
    struct input_file *valid; int nvalid; size_t cap_valid;
    const char *target_column, *augment, *log, *plot, *checkpoint;
    bool has_loss;
    enum loss loss;
    const char *output;             /* that the loss is of; NULL: the first */
    struct optimizer_options optimizer;
    int epochs, batch, warmup;
    double learning_rate, clip;     /* < 0: the optimizer's own; 0: none */
    double loss_scale;              /* as in struct train_options */
    size_t memory;                  /* bytes of a step, without parameters and states; 0: any */
    enum rate_schedule schedule;
    uint64_t seed, init;
    bool has_init, resume, detect_nan;
    const char **freeze; int nfreeze; size_t cap_freeze;
    struct lora *lora; int nlora; size_t cap_lora;
    int early_stop;                 /* 0: all epochs */
    int devices, parts;             /* processes, parts of a step; 0: one, as many as processes */
    double timeout;                 /* seconds that a process waits for others; 0: the default */
    bool emits;                     /* --train: compile writes a program that trains */
};
struct options {
    enum command command;
    const char *model;              /* the operand; NULL: none was given */
    const void *bytes; size_t nbytes;                /* its contents; NULL: they are in the file */
    const char *model2;             /* verify: the model to compare with; NULL: recorded outputs */
    /* the command line with files of options expanded; the words of --other */
    const char **word; size_t nword;
    const char *key; size_t nkey;   /* the options that decide what is made, as text */
    const char **other; size_t nother;
    enum model_format format;
    struct onnx_dim_option *dim; int ndim; size_t cap_dim;
    struct onnx_shape_option *shape; int nshape; size_t cap_shape;
    struct onnx_list_option *list; int nlist; size_t cap_list;
    /* values of inputs that are read from files: shapes may depend on them */
    struct onnx_value_option *value; int nvalue; size_t cap_value;
    const char **state; int nstate; size_t cap_state; /* OUT=IN */
    const char **inner; int ninner; size_t cap_inner; /* of --value */
    const char **gradient; int ngradient; size_t cap_gradient; /* of --gradient */
    const char **library; int nlibrary; size_t cap_library; /* files of --library */
    const char **link; int nlink; size_t cap_link;    /* files of --link */
    const char *entry;              /* NULL: none is named */
    int steps;                      /* of tgc run */
    struct onnx_load_options load;
    int nchwc_block;                /* 0: as the model implies */
    const char *output;             /* NULL: none; "-": standard output */
    enum emit emit;
    const char *name;               /* NULL: from the output or the model */
    enum weights_mode weights;
    enum vectors_mode vectors;
    const char *main;               /* --main; NULL: the program is a part of the C */
    bool depfile, depfile_phony;
    const char *depfile_name;
    struct depfile_target *depfile_target; int ndepfile_target; size_t cap_depfile_target;
    enum target target;
    /* the command runs the model, and neither an option nor the environment says how: by LLVM in
     * this process where that can be, else by the C compiler (target is C) */
    bool any_target;
    const char *triple;             /* NULL: this machine */
    int level, threads;
    bool small;                     /* -Os */
    isa_set isa;                    /* --cpu; 0: auto */
    const struct processor *processor;     /* --cpu of a processor; NULL: of instruction sets */
    const struct device_row *device;       /* --cpu of a device; NULL: the target's first row */
    const char *architectures;             /* --cpu as it was given: "sm_80,sm_90a"; NULL: nothing
                                            * was */
    enum dtype weight_dtype;        /* VOID: as in the model */
    enum dtype math;                /* VOID: f32 */
    const char **unrounded; int nunrounded; size_t cap_unrounded;   /* --math=NODE=f32 */
    bool fast_math, no_winograd, strassen, debug_info, json, tg, verbose, why, passes, clear;
    bool records;                   /* passes are logged, for a report */
    bool viz;                       /* VIZ=1 */
    bool no_code_cache;
    bool bisect;                    /* verify */
    int opt_limit;                  /* TGC_OPT_LIMIT; -1: none */
    const char *folder;             /* of tgc cache */
    enum option_id folder_use;      /* FOLDER, SEAL or CHECK */
    bool image, half_storage, no_locals;   /* of a device's kernels */
    double error;                   /* --error; ERROR_LIMIT otherwise */
    struct weight_limit weight_limit;      /* --weights-budget */
    size_t stack;                   /* bytes of stack that a run may take; 0: any */
    size_t max_arena, max_flash;    /* bytes, 0: any */
    const struct machine *machine;  /* --machine, or that of --cpu; NULL: the first row */
    size_t cache;                   /* bytes; CACHE_OF_MACHINE otherwise */
    const char *tune;               /* --tune FILE; NULL: none */
    int beam;                       /* BEAM=n; 0: not set */
    struct input_file *input; int ninput; size_t cap_input;
    struct image_layout *layout; int nlayout; size_t cap_layout;
    const char **word_file; int nword_file; size_t cap_word_file;   /* of @FILE */
    const char *out_dir, *data, *keep, *trace;
    const char *params;             /* the file of --params */
    struct training_options training;
    double rtol, atol;              /* < 0: not given */
    size_t max_memory;              /* 0: by the model's size */
    bool diagnostics_json, color;
    int debug;                      /* DEBUG=n */
    /* HELP, VERSION, MAN or COMPLETION: print that and be done; else OPTION_COUNT */
    enum option_id print;
    enum command topic;             /* of HELP; COMMAND_COUNT: all */
    const char *shell;
    /* the file of diagnostics without a place; NULL: tgc itself */
    const char *subject;
};

/* Reads the command line, files of options (@FILE) and the environment (getenv_ is getenv but for
 * tests). false: wrong usage, reported. Everything is allocated in t. `o` is valid for printing
 * diagnostics even then. */
bool options_parse(struct tgc *t, int argc, const char *const *argv,
                   const char *(*getenv_)(const char *), struct options *o);
/* For callers without a command line: the word of the option `name` ("cpu"), whose value (NULL: it
 * is a flag) has been read and is valid. NULL: diagnostics. */
const char *option_word(struct tgc *t, const char *name, const char *value);
/* option_word() for words of a command line, which are options: a word for each, *count in all. */
const char *const *option_words(struct tgc *t, const char *const *word, size_t n, size_t *count);
/* "64", "64K", "64M" or "64G" bytes. */
bool read_size(const char *s, int64_t least, size_t *v);
/* Whether a command takes the option of such a word. */
bool option_word_fits(struct tgc *t, const char *word, enum command c);
/* host_isa.c: the instruction sets of the processor that tgc runs on; the best of them; and with a
 * set the one for kernels without products of bytes, on which it is based. */
isa_set options_host_isa(void);
isa_set options_native_isa(void);
isa_set options_with_base(enum isa isa);
/* host_machine.c: its caches and units, as far as they are known; allocated in t. */
const struct machine *host_machine(struct tgc *t);
/* The option's spelling, for messages. */
const char *option_spelling(enum option_id id);
const char *target_name(enum target target);
const char *command_name(enum command c);
/* Whether the command takes the option. */
bool option_fits(enum option_id id, enum command c);
/* The words of which an option's value is one, separated by blanks; "": any value. */
void option_put_choices(struct text *out, enum option_id id);
/* "auto native generic": the processors that --cpu names, but those that LLVM's names are for. */
void option_put_processors(struct text *out);
/* " generic-gpu pocl": the devices that --cpu names, all or those of a target. */
void option_put_devices(struct text *out, const char *target);
const char *emit_extension(enum emit e);

/* ------------------------------------------------------------------------------------- limits.c */

/* Sets the limits of memory in t and o. needs: o->model, o->bytes. */
void limits_set(struct tgc *t, struct options *o);

/* ------------------------------------------------------------------------------------- budget.c */

/* --max-arena and --max-flash. false: a diagnostic names what takes the memory, and the options by
 * which the model, compiled once more with each of them, takes less. */
bool budget_check(struct tgc *t, const struct options *o, const char *name,
                  const struct schedule *s);
/* Bytes of the arena, or of the tensors in a device's memory. */
size_t budget_arena_nbytes(struct tgc *t, const struct schedule *s);
/* "f32[64,32,24,24] (4718592 bytes) of conv_1, conv2d "c1""; appended after "; " */
void budget_put_tensor(struct text *out, const struct schedule *s, const struct buffer *b);

/* ------------------------------------------------------------------------------------- listen.c */

/* To t->listener, if there is one. */
void progress(struct tgc *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
void progress_end(struct tgc *t);
/* A stage that began at `since`, by clock_seconds(). */
void report_stage(const struct tgc *t, const char *what, double since);
void report_text(const struct tgc *t, const char *text);

/* ------------------------------------------------------------------------------------- output.c */

/* Files that appear whole or not at all: each is written under a temporary name in its own
 * directory, and all are renamed together. Anything but a regular file (/dev/null, a pipe) is
 * written directly. "-" is standard output. What is unfinished is removed with t. */
struct outputs;
struct outputs *outputs_new(struct tgc *t);
/* The same in memory: outputs_commit() makes them complete, and they are there as long as t. */
struct outputs *outputs_new_in_memory(struct tgc *t);
struct memory_file { const char *path; const void *bytes; size_t nbytes; };
/* The file of that index; all zeros: there are fewer. */
struct memory_file outputs_in_memory(const struct outputs *s, size_t index);
/* A file that is read: no output may replace it, under this path, another one or a link. */
void outputs_protect(struct outputs *s, const char *path);
/* Whether the path can be an output, before time is spent on its contents. false: a diagnostic. */
bool outputs_may_write(const struct outputs *s, const char *path);
/* Whether a file of that path is there, which the output would replace. */
bool outputs_replace(const struct outputs *s, const char *path);
/* Opens a file to be written; NULL: a diagnostic names it. */
FILE *outputs_open(struct outputs *s, const char *path);
/* A whole file. */
bool outputs_put(struct outputs *s, const char *path, const struct text *x);
/* The last name of a path; a path with another extension. */
const char *path_base(const char *path);
const char *path_sibling(struct tgc *t, const char *path, const char *extension);
/* The name under which another program writes the file, in a directory of its own beside it, where
 * what else the program writes goes, too. NULL: a diagnostic. */
const char *outputs_reserve(struct outputs *s, const char *path);
/* Puts all on the disk and renames all. false: a diagnostic; then nothing is left behind, and older
 * files are unchanged. No signal ends the process between two of the renames. */
bool outputs_commit(struct outputs *s);
/* Removes everything that is not committed. */
void outputs_discard(struct outputs *s);
/* A new private directory under $TMPDIR; removed with all that is in it by held_release(*h), or
 * with t. NULL: a diagnostic. */
const char *directory_make(struct tgc *t, struct held **h);
/* Removes a directory and all that is in it. Safe in a handler of signals. */
void directory_remove(const char *path);
/* Copies the files of a private directory into the one that --keep names; no file that `protect`
 * knows as an input is replaced. A note says so, or a diagnostic why not. */
void directory_keep(struct tgc *t, const char *from, const char *to, struct outputs *protect);
/* -------------------------------------------------------------------------------------- model.c */

/* An input of the caller, as the model declares it. */
struct model_input {
    const char *name;
    enum dtype dtype;               /* VOID: no tensor */
    bool has_shape;
    int ndim;
    int64_t dim[MAX_RANK];          /* -1: not fixed; -2: it follows from others */
    const char *symbol[MAX_RANK];   /* its name then; NULL: none */
};
/* Where a text graph's own text has a weight's contents. */
struct weight_text { struct buffer *buffer; const char *begin, *end; };
struct model_value { const char *name; bool is_optional, is_sequence; enum dtype dtype; };
/* What is asked of a model whose program is there already. */
struct model_facts {
    const char *const *file; int nfile;       /* that are read beside the model's own */
    struct model_input *input; int ninput;    /* as declared: a sequence is one */
    struct model_value *border[2]; int nborder[2];               /* of inputs, of outputs */
};
struct model {
    const struct model_facts *facts;/* NULL: the model itself is loaded */
    struct onnx_model *onnx;        /* NULL: a text graph */
    const char *text;               /* the text graph's bytes */
    size_t text_nbytes;
    struct weight_text *weight_text;
    int nweight_text;
    size_t cap_weight_text;
    bool imports;                   /* it has graphs of other files */
    struct tg_library *library;     /* of --library; NULL: none */
    const char **text_file;         /* the files with the weights of text graphs and libraries */
    int ntext_file;
    size_t cap_text_file;
    struct tgc *tgc;
    struct graph *graph;
    struct uop **root; int nroot;   /* of the graph, before its first pass */
    struct uop **draw;              /* of onnx_graph_options, before model_lower() */
    struct schedule *schedule;
    struct pass_log *log;           /* for a report: what passes change */
    struct pass_record *record;     /* with --passes: the record of each pass */
    /* of a training: bytes of a step beside parameters and states, and where nothing is computed
     * again; what is */
    struct training_fit { size_t nbytes, whole; struct compute_again again; } fit;
    const char *base;               /* the file's name without directories; "stdin" */
    const char *stem;               /* without its extension either */
};
/* Sets base and stem alone. */
void model_name(struct tgc *t, const char *path, struct model *m);
/* All but the files. needs: a loaded model, not lowered yet */
struct model_facts *model_facts(struct tgc *t, const struct model *m);
/* needs: a lowered model, which has read them */
void model_facts_add_files(struct model_facts *f, const struct options *o, const struct model *m);
/* Loads what o->model names. false: diagnostics. */
bool model_load(struct tgc *t, const struct options *o, struct model *m);
/* The files beside o->model that were read so far: weights, libraries. */
const char *const *model_files(struct tgc *t, const struct options *o, const struct model *m,
                               int *n);
/* The inputs of the caller: those without an initializer. */
struct model_input *model_inputs(struct tgc *t, const struct options *o,
                                 const struct model *m, int *n);
/* The graph's own inputs, without those that have an initializer, or its outputs: a sequence or an
 * optional is one entry here. */
struct model_value *model_border(struct tgc *t, const struct model *m, bool outputs, int *n);
/* The outputs as an ONNX file declares them, like model_inputs() for its inputs. */
struct model_input *model_declared_outputs(struct tgc *t, const struct model *m, int *n);
/* Which of the inputs or outputs, from *from on, the entry of --entry has; all of them without
 * it. */
int model_count_of_entry(const struct options *o, const struct model *m, bool outputs, int total,
                         int *from);
/* Makes m->graph, with o's dimensions and shapes. */
bool model_lower(struct tgc *t, const struct options *o, struct model *m);
/* The rest, up to m->schedule. */
bool model_optimize(struct tgc *t, const struct options *o, const char *name, struct model *m);
/* Both. */
bool model_schedule(struct tgc *t, const struct options *o, const char *name, struct model *m);
/* train_emit.c: up to the schedule of a program that trains the model, --train. needs: a loaded
 * model. false: diagnostics. */
bool training_schedule(struct tgc *t, const struct options *o, const char *name, struct model *m);
/* train_fit.c: a loaded model becomes the graph of its training, whose forward part has that many
 * segments; *again: what is computed again. false: diagnostics */
typedef bool training_lowering(struct tgc *t, void *user, int nsegment, struct model *m,
                               struct compute_again *again);
/* The schedule of a training within --train-memory. needs: a loaded model. false: diagnostics, as
 * where nothing fits. */
bool training_fit(struct tgc *t, const struct options *o, const char *name, struct model *m,
                  training_lowering *lower, void *user);
/* As in struct train_options: that of --loss-scale, or what --math asks for. */
double training_loss_scale(const struct options *o);
/* train_build.c: a weight of rank 2 or more drawn anew, --init, or A of --lora: uniform with
 * variance 1/3 over the fan-in, as PyTorch draws it. Biases and norms keep the model's values.
 * source: He et al., Delving Deep into Rectifiers, 2015; torch.nn.Linear.reset_parameters() */
void training_draw(struct tgc *t, struct buffer *b, uint64_t seed);
/* The A of all products of --lora. */
void training_draw_adapters(struct tgc *t, const struct train_graph *g, uint64_t seed);
/* The model alone as it is lowered there: an open first axis of an input is of --batch, or 32. */
bool training_lower_model(struct tgc *t, const struct options *o, struct model *m);
/* train_block.c: tgc weights, the model with the values of the block o->params. */
bool weights_from_block(struct tgc *t, const struct options *o, struct outputs *files);
/* Protects every file that the compile reads: model, external data, tune file, inputs. */
void model_protect_files(const struct options *o, const struct model *m, struct outputs *files);
/* The options that the emitted program is written with. */
struct program_options model_program_options(const struct options *o, const struct model *m,
                                             const char *name);

/* --------------------------------------------------------------------------------------- emit.c */

/* NAME.c and NAME.h. header: what the C includes; NULL: it is self-contained. clang: its libclang,
 * if it is there, must find no errors; NULL: another target. Set afterwards: the texts, and whether
 * NAME.weights belongs beside them. kernels: those alone, for DEBUG=3. */
struct emission {
    const char *name, *header;
    struct clang *clang;
    bool no_main;
    enum weights_mode weights;
    struct text c, h, kernels; bool beside;
    struct text main;               /* of --main */
    struct text device_code;        /* of -o NAME.ptx or NAME.hsaco, and of a device's .ll */
};
/* What a compiler is told of threads; NULL: nothing. Where there is no system there are none but
 * those of the caller's parallel_for. */
const char *compiler_threads_flag(struct tgc *t, const struct options *o, const char *name);
/* false: diagnostics. */
bool program_emit(struct tgc *t, const struct options *o, const struct model *m,
                  struct emission *e);

/* ------------------------------------------------------------------------------------ compile.c */

/* Writes what o->output and o->emit ask for, with a depfile if one is wanted. false: diagnostics,
 * and no files. */
bool compile_model(struct tgc *t, const struct options *o, struct outputs *files);
/* A file for onnx_save(), which writes what is beyond protobuf's 2 GB into PATH.data. Its file
 * NULL: a diagnostic. */
struct onnx_sink onnx_file(struct tgc *t, const char *path, struct outputs *files);

/* ------------------------------------------------------------------------------------ trained.c */

/* Writes the model with other values for some weights, each of a name, dtype and shape as the model
 * has it. By the extension of `path`:
 *   - .onnx: an ONNX model as it was read, but for these initializers; a text graph as
 *     onnx_write() does
 *   - .tg: the graph as text, with all its weights in a .safetensors of the same stem
 *   - .safetensors: the weights alone, by their names in the model
 * needs: model_load(), model_protect_files(); o is what they were given. The files are opened in
 * `files`, and complete after outputs_commit(). false: diagnostics. */
struct array;
bool trained_write(struct tgc *t, const struct options *o, const struct model *m,
                   const struct array *weight, int nweight, const char *path,
                   struct outputs *files);

/* --------------------------------------------------------------------------------------- info.c */

/* Appends a report on the model that o names, or on a shared object that tgc has made. false:
 * diagnostics. */
bool info_write(struct text *out, struct tgc *t, const struct options *o);

/* A line for each pass, in order of execution, or the elements of a JSON list. Changes by passes of
 * the plan or the schedule are not counted. timed: JSON with the seconds of each. */
void info_put_passes(struct text *x, bool json, bool timed, const struct pass_record *record);
/* info_training.c: what a step of --train keeps for its gradients, and what it computes again, as
 * lines or a JSON object. needs: a scheduled training with the caller's blocks */
void info_training_write(struct text *x, struct tgc *t, const struct model *m, bool json);

/* ------------------------------------------------------------------------------- info_weights.c */

/* Lines for the weights of the model of which the program stores more or fewer bytes; all: also for
 * those that are stored in another order. Nothing where there is none. */
void info_weights_write(struct text *out, struct tgc *t, const struct schedule *s, bool all);
/* "Conv "c1", w1: f32[9,32] (1152 bytes, packed in panels of 32)", after "; " */
void info_put_weight(struct text *out, const struct buffer *b);
/* Of the model's weights that the program has, as the model stores them. */
double info_model_weight_bytes(struct tgc *t, const struct schedule *s);
/* An error if the stored weights exceed --weights-budget, with what grows most. */
bool info_weights_check(struct tgc *t, const struct schedule *s, const struct weight_limit *limit);
/* ,"model_weight_bytes":N,"weights_changed":[...] */
void info_weights_write_json(struct text *out, struct tgc *t, const struct schedule *s);

/* ----------------------------------------------------------------------------------- info_run.c */

/* What a run takes, of an entry: a line, or the last members of a JSON object, and its end. */
void info_run_write(struct text *out, const struct schedule *s, int entry);
void info_run_write_json(struct text *out, const struct schedule *s, int entry);
/* What it takes of the device (needs: t->device), of an entry or of all together (-1): lines, or a
 * JSON object. */
void info_run_write_device(struct text *out, const struct schedule *s, int entry);
void info_run_write_device_json(struct text *out, const struct schedule *s, int entry);

/* ---------------------------------------------------------------------------------------- why.c */

/* The reasons for the schedule's choices. needs: t->tuning has noted them. */
void why_write(struct text *out, struct tgc *t, const struct schedule *s);
/* The same as the elements of a JSON list; the choice and the candidates as lines of a tune file,
 * and the number of the line that decided (0: the cost model). in_words: candidates with tiles by
 * the tile's words alone, of the portable program and of the variant that the machine runs. */
void why_write_json(struct text *out, struct tgc *t, bool in_words);
/* What was done to a kernel's loops, in each variant or in `only` one and the portable one, as
 * elements of a JSON list. */
void why_opts_json(struct text *out, const struct kernel *k, const struct variant *only);
/* why_device.c: the kinds of schedules that were compared for the kernel on a device, with the
 * parts of their times: a line each; of all kernels, as elements of a JSON list. */
void why_compared(struct text *out, const struct schedule *s, const struct kernel *k);
void why_compared_legend(struct text *out);
void why_compared_json(struct text *out, struct tgc *t, const struct schedule *s);

/* ------------------------------------------------------------------------------- array.c, npy.c */

/* A tensor of known shape with its elements in the storage format. */
struct array {
    const char *name;
    enum dtype dtype;
    int ndim;
    int64_t dim[MAX_RANK];
    size_t nelem, nbytes;
    void *data;                     /* 64-byte aligned where array_allocate() made it */
};
/* Zeroed, page-aligned, from the run's budget and not the compile's: the data of a run. Lives as
 * long as t. NULL: a diagnostic that names `what` it is for. */
void *pages_allocate(struct tgc *t, size_t nbytes, const char *what);
/* train_block.c: w = of + a b, what training with --lora makes of the matrix `of`.
 * a: [rows, rank], b: [rank, cols]; w: [rows, cols], allocated. */
void lora_add(struct array *w, const void *of, const struct array *a, const struct array *b);
/* Sets nelem and nbytes from dtype and dims and allocates data, zeroed. false: a diagnostic (too
 * large). */
bool array_allocate(struct tgc *t, struct array *v);
/* Floats to a float type that is no larger, rounded to nearest, in place. false: a diagnostic, an
 * element is beyond it. */
bool array_convert(struct tgc *t, struct array *v, enum dtype d);
/* The same values each time, by the input's number: runtime/fill.c. */
void array_fill_random(struct array *v, int index, int64_t least, int64_t most);
/* "f32[1,28,28]" */
const char *array_type_text(struct tgc *t, const struct array *v);
/* One line for a person: first elements, least, greatest, mean. */
void array_summary(struct text *out, const struct array *v);
/* Compares with the expected array: integers, bools and strings exactly, floats |got - want| <=
 * atol + rtol * |want|, NaN equal to NaN. Appends the differences, or how closely they agree. */
/* What verify allows, from what was given (< 0: nothing). Without either, errors are measured by
 * the largest magnitude of `want`: what nearly cancels differs by much of itself in any runtime.
 * One step of the dtype there, but no less than 2e-4: half of it is what --error lets rewrites add,
 * half is for sums in another order, which are some 1e-5 in the deepest networks. */
void array_tolerances(const struct array *want, double given_rtol, double given_atol, double *rtol,
                      double *atol);
bool array_compare(struct tgc *t, struct text *out, const struct array *got,
                   const struct array *want, double rtol, double atol);
bool array_has_type(const struct array *v, const struct array *as);
/* How many elements of two arrays of a type differ by one; *nmore: by anything else. */
size_t array_count_steps(const struct array *a, const struct array *b, size_t *nmore);
/* The largest finite |element|; 0 for strings. */
double array_largest(const struct array *v);
/* How many of n elements are NaN or infinite; 0: the dtype has no such values. */
size_t array_count_special(enum dtype d, const void *data, size_t n);

/* .npy, versions 1 to 3, both orders and both byte orders; the dtype is `wanted`'s or a diagnostic
 * says so (bf16 and fp8 are read from the integers of their bits; VOID takes any). */
bool npy_read(struct tgc *t, const char *path, enum dtype wanted, struct array *v);
bool npy_write(struct tgc *t, FILE *to, const char *path, const struct array *v);
/* A tensor's name as a file name: characters outside [A-Za-z0-9._-] become _. */
const char *file_name_of(struct tgc *t, const char *tensor);
/* The contents of a file: a tensor, the tensors of a sequence, or an absent optional. */
struct recorded { struct array *item; int n; bool is_absent; };
/* An ONNX TensorProto, SequenceProto or OptionalProto of one of these. */
bool pb_read(struct tgc *t, const char *path, bool is_optional, bool is_sequence,
             struct recorded *r);

/* -------------------------------------------------------------------------------------- image.c */

/* "NAME:NCHW,RGB,0..1". false: invalid; no diagnostic. */
bool image_layout_read(struct tgc *t, const char *s, struct image_layout *v);
/* Whether the file begins like a picture. */
bool image_is(const char *path);
/* A picture as the input's tensor, by --image-layout. false: a diagnostic. */
bool image_input(struct tgc *t, const struct options *o, const char *path,
                 const struct model_input *in, struct array *v);
/* The formats that can be decoded, for --version. */
const char *image_formats(void);

/* ----------------------------------------------------------------------------------- instance.c */

struct sized;
/* A compiled model, opened in this process. */
struct instance {
    const struct program_info *info;
    void *handle, *arena, *model, *weights;
    struct held *open;              /* model, from init to close */
    const struct llvm_program *code;           /* in this process; NULL: a shared object */
    const char *library;            /* the file of that LLVM; NULL: not by LLVM */
    const double *predicted;        /* ns of each kernel, by the cost model; NULL:
                                     * the schedule is there */
    const char *made_by;            /* "LLVM 19", "gcc -m32", "clang 19.1.7" */
    int (*init)(void **model, void *arena, size_t nbytes,
                const struct program_run_options *options);
    int (*run)(void *model, const void *inputs, void *outputs);
    void (*close)(void *model);
    const char *(*strerror)(int status);
    /* NULL: the model has no state */
    int (*reset)(void *model);
    int (*save)(const void *model, void *block);
    int (*restore)(void *model, const void *block);
    const struct array **first;     /* [state_count]: given values for the first run; or NULL */
    /* [input_count], [output_count]; data allocated at the upper bounds */
    struct array *input, *output;
    int64_t *symbol;                /* [symbol_count]; -1: not known */
    struct sized *given;            /* [input_count + state_count] */
    void *inputs, *outputs;         /* the model's structs */
    /* called before each kernel, see NAME_options; NULL: none */
    void (*on_kernel)(void *user, int index, const char *kernel);
    /* likewise, of programs for devices alone: told each kernel's time by the device's clock */
    void (*on_kernel_time)(void *user, int index, const char *kernel, double ns);
    void *user;
    int entry;                      /* that runs; -1: each in turn, or the model has none */
    struct tgc *t;
    const char *why;                /* what a device has said, with t's memory; NULL: nothing */
};
/* A device of a target's. Sizes 0: there are none, or the driver does not tell;
 * image_pitch: pixels. */
struct device_facts {
    const char *target;             /* "opencl" */
    int number;                     /* in NAME_options.device, from 1 */
    const char *kind, *name, *vendor, *version, *driver;
    uint64_t units, work_group, memory_bytes, buffer_bytes, local_bytes;
    uint64_t image_width, image_height, image_pitch;
    bool halves, doubles;
};
/* devices.c, devices_gpu.c: lists the OpenCL devices; appends those of CUDA, of AMD. Each returns
 * NULL, or why there are none, as a sentence. */
const char *devices_list(struct tgc *t, struct device_facts **list, int *n);
const char *devices_add_cuda(struct tgc *t, struct device_facts **list, int *n);
const char *devices_add_amd(struct tgc *t, struct device_facts **list, int *n);

/* The entry that --entry names; without it each in turn, or an error where needs_one. false:
 * reported, with their names. */
bool instance_choose_entry(struct tgc *t, const struct options *o, bool needs_one,
                           struct instance *p);
/* Whether input or output i belongs to the entry that runs. */
bool instance_has(const struct instance *p, bool output, int i);
/* Whether it runs on a device, in memory of its own. */
bool instance_is_of_device(const struct instance *p);
/* Writes a file in a directory of ours. false: a diagnostic. */
bool file_write(struct tgc *t, const char *path, const struct text *x);
/* dlopen(), until the compile is freed. NULL: a diagnostic names the subject. */
void *library_open(struct tgc *t, const char *path, int flags, const char *subject);
/* link.c: all that `from` has opened so is `to`'s from now on. */
void libraries_pass(struct tgc *from, struct tgc *to);
/* Opens what defines the C functions that a schedule calls. false: diagnostics. */
bool externals_link(struct tgc *t, const struct options *o, const struct model *m);
/* The absolute paths of --link, for a linker. NULL: a diagnostic. */
const char *const *externals_files(struct tgc *t, const struct options *o);
/* Makes code of m's schedule, by LLVM in this process, or as a shared object by a C compiler, and
 * opens it. false: diagnostics. */
bool instance_build(struct tgc *t, const struct options *o, const struct model *m,
                    struct instance *p);
/* Moves it from the compile t, where it was made, to another one, so that t can be freed: all that
 * a run needs is in `to` afterwards, and nothing else. false: memory for that is exhausted. needs:
 * it is not prepared. */
bool instance_move(struct tgc *t, struct tgc *to, struct instance *p);
/* A program by LLVM as an instance. */
void instance_adopt(struct tgc *t, struct instance *p, const struct llvm_program *code,
                    const char *made_by);
/* Opens a shared object that tgc has made. `name`: its C name, NULL: from the file's name. */
bool instance_open(struct tgc *t, const char *path, const char *name, struct instance *p);
/* Sets input `index`, whose sizes instance_fit() compares. false: it does not fit; a diagnostic
 * names `source`. */
bool instance_set_input(struct tgc *t, struct instance *p, int index, const struct array *v,
                        const char *source);
/* instance_set_input() for state `index`, before the first run. */
bool instance_set_state(struct tgc *t, struct instance *p, int index, const struct array *v,
                        const char *source);
/* The run-time dimensions by all that is set. false: they do not go together; a diagnostic. */
bool instance_fit(struct tgc *t, struct instance *p);
/* The present value of state `index`, with its present shape. false: a diagnostic. */
bool instance_read_state(struct tgc *t, const struct instance *p, int index, struct array *v);
/* Allocates the inputs that are not set yet, zeroed, at their upper bounds. */
bool instance_allocate_inputs(struct tgc *t, struct instance *p);
/* After all inputs are set that shall be: allocates and fills the others, calls init. */
bool instance_prepare(struct tgc *t, const struct options *o, struct instance *p);
/* One run, or one of each entry in turn; afterwards output[] has the true shapes. */
bool instance_run(struct tgc *t, struct instance *p);
/* instance_run() for repeated runs: if a state is full, all states are reset. */
bool instance_run_again(struct tgc *t, struct instance *p);
void instance_close(struct instance *p);

/* Prepares again with the present p->on_kernel; needs: instance_prepare(). */
bool instance_restart(struct tgc *t, const struct options *o, struct instance *p);

/* Writes the weights; false: a diagnostic. */
bool weights_write_file(struct tgc *t, const struct schedule *s, FILE *f, const char *path,
                        bool swapped);

/* -------------------------------------------------------------------------------------- train.c */

/* What an epoch came to; the accuracies are shares. */
struct train_epoch {
    int epoch;                      /* from 1 */
    int64_t step;                   /* steps made so far */
    double loss, seconds, accuracy, valid_loss, valid_accuracy;
    bool has_valid, has_accuracy, has_scale;
    bool is_told;                   /* by this process: others that trained with it are silent */
    double loss_scale; int64_t skipped;     /* has_scale: of the next step; steps so far */
};
/* Who watches the program that trains: when it is built, but not prepared; around each step's runs;
 * and after the last one. */
struct train_watch {
    void *user;
    void (*built)(void *user, struct tgc *t, struct instance *p);
    void (*begin_step)(void *user);
    void (*end_step)(void *user);
    void (*done)(void *user, struct tgc *t, const struct model *m, const struct instance *p);
};
/* Trains the model of o by o->training, and writes o->output. A line for each epoch goes to the
 * listener. watch: NULL, nobody does. *written: what was written, measured again on all data.
 * false: diagnostics; a checkpoint is as it was before. */
bool train_model(struct tgc *t, const struct options *o, const struct train_watch *watch,
                 struct train_epoch *written);
/* "{"epoch": 3, ...}\n" */
void train_put_json(struct text *x, const struct train_epoch *e);

/* ---------------------------------------------------------------------------------------- fit.c */

/* The shape of an input or state, and whence it is; dim NULL: it is not given. */
struct sized { const int64_t *dim; const char *source; };
/* The values of the symbols, -1 where x has none, by the shapes of inputs, then states. all: each
 * symbol of an input that is given has a value. false: sizes do not go together, or a value is
 * beyond its bounds: a diagnostic, and symbol[] is as it was. */
bool fit_inputs(struct tgc *t, const struct program_info *info, const struct sized *x, bool all,
                int64_t *symbol);
/* A size by its rule. false: a symbol's value is not known. */
bool fit_size(const char *rule, const int64_t *symbol, int64_t *size);
/* Adds to dim[n], which has what --dim says of a text, what --shape does. false: a diagnostic.
 * needs: the inputs exist, and have these ranks. */
bool fit_shape_options(struct tgc *t, const struct options *o, const struct graph *g,
                       struct tg_dimension *dim, int *n);

/* --------------------------------------------------------------------------------------- feed.c */

/* Values for the model's inputs; source[i] NULL: input i has none. */
struct feed { struct model_input *input; struct array *value; const char **source; int n; };
/* Checks a value against the model's declaration, and adds its shape to o's. false: a diagnostic
 * names `source`. */
bool feed_settle_shape(struct tgc *t, struct options *o, const struct model_input *input,
                       const struct array *v, const char *source);
/* "'x', 'mask'", for messages. */
const char *names_of_inputs(struct tgc *t, const struct model_input *input, int n);
/* Is the value that -i gives no file, but a number, zeros, ones or random? */
bool feed_is_value(const char *given);
/* Reads the files of -i; needs: a loaded model. */
bool feed_read(struct tgc *t, struct options *o, const struct model *m, struct feed *f);
bool feed_instance(struct tgc *t, const struct feed *f, struct instance *p);

/* ---------------------------------------------------------------------------------------- api.c */

/* Calls f in a compile of its own, whose diagnostics c has afterwards. *kept: the compile, if all
 * went well; NULL: it is freed. */
typedef void api_work(struct tgc *t, tgc_compiler *c, void *arg);
tgc_status api_call(tgc_compiler *c, api_work *f, void *arg, struct tgc **kept);
/* How a compile went, by what it has recorded. */
tgc_status api_status(const struct tgc *t);
/* The options of c for a command. output: NULL or as -o; first: NULL or a word that those of c may
 * overrule. false: diagnostics. */
bool api_options(struct tgc *t, tgc_compiler *c, enum command command, const char *output,
                 const char *first, struct options *o);

/* --------------------------------------------------------------------------------------- kept.c */

/* Reads the values of the inputs, and adds their shapes to o's: feed_read(), or another. */
typedef bool feed_reader(struct tgc *t, struct options *o, const struct model *m, struct feed *f);
/* From the model's file to code that runs here, with the inputs read: model_load(), read(),
 * model_schedule(), instance_build(), or without these out of the cache, where m has neither graph
 * nor schedule. What was made is kept. false: diagnostics. */
bool instance_obtain(struct tgc *t, struct options *o, struct model *m, struct feed *f,
                     feed_reader *read, struct instance *p);

#endif
