/* SPDX-License-Identifier: 0BSD */
#define WEIGHTS_PLACE
//@ incbin
/* model_.weights lies beside this file. Compilers with #embed find it there. For the others the
 * assembler, which looks for files only where the compiler was started, spells out the folder of
 * this file from __FILE__, character by character. If that fails (a path that was remapped, say),
 * define MODEL_WEIGHTS as the path, a string. */
#if defined __has_embed
#if __has_embed("model_.weights")
#define MODEL_EMBED
#endif
#endif

#ifdef MODEL_EMBED
#ifdef __clang__
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wc23-extensions"
#pragma clang diagnostic ignored "-Wsign-conversion"
#endif
alignas(64) static const unsigned char model_weights_data[] WEIGHTS_PLACE = {
#embed "model_.weights"
};
#ifdef __clang__
#pragma clang diagnostic pop
#endif
#else
#ifdef __wasm__
#error "without #embed (clang 19 has it) WebAssembly takes weights by --weights=string or file"
#elif defined _WIN32
extern const unsigned char model_weights_data[] __asm__("model_weights_data");
#else
extern const unsigned char model_weights_data[] __asm__("model_weights_data")
    __attribute__((visibility("hidden")));
#endif
#ifdef MODEL_WEIGHTS
#define MODEL_INCBIN ".incbin \"" MODEL_WEIGHTS "\"\n"
#define MODEL_INCBIN_MACROS ""
#else
#define MODEL_INCBIN "model_folder model_take\n"
#define MODEL_INCBIN_MACROS \
    /* model_text passes on the characters so far, model_folder those up to the last slash */ \
    ".macro model_text next, c\n\\next \"\", \"\\c\"\n.endm\n" \
    ".macro model_folder next\n\\next \"\"\n.endm\n" \
    ".macro model_push text, last\n" \
    ".purgem model_text\n" \
    ".macro model_text next, c\n\\next \"\\text\\last\", \"\\c\"\n.endm\n" \
    ".ifeqs \"\\last\", \"/\"\n" \
    ".purgem model_folder\n" \
    ".macro model_folder next\n\\next \"\\text\\last\"\n.endm\n" \
    ".endif\n" \
    ".endm\n" \
    ".macro model_take folder\n.incbin \"\\folder\\()model_.weights\"\n.endm\n" \
    ".irpc c, \"" __FILE__ "\"\n" \
    ".if '\\c' - 34\n" /* clang takes the quotes along */ \
    "model_text model_push, \"\\c\"\n" \
    "/* \" */\n" \
    ".endif\n" \
    ".endr\n"
#endif
#ifdef __APPLE__
#ifndef MODEL_WEIGHTS_SECTION
#define MODEL_WEIGHTS_SECTION "__DATA,__const"
#endif
#define MODEL_SECTION ".section " MODEL_WEIGHTS_SECTION "\n"
#define MODEL_SECTION_END ".text\n"
#elif defined _WIN32
#ifndef MODEL_WEIGHTS_SECTION
#define MODEL_WEIGHTS_SECTION ".rdata"
#endif
#define MODEL_SECTION ".section " MODEL_WEIGHTS_SECTION ",\"dr\"\n"
#define MODEL_SECTION_END ".text\n"
#else
#ifndef MODEL_WEIGHTS_SECTION
#define MODEL_WEIGHTS_SECTION ".rodata"
#endif
#define MODEL_SECTION ".pushsection " MODEL_WEIGHTS_SECTION ",\"a\"\n"
#define MODEL_SECTION_END ".popsection\n"
#endif
__asm__(MODEL_INCBIN_MACROS MODEL_SECTION
        ".balign 64\nmodel_weights_data:\n" MODEL_INCBIN MODEL_SECTION_END);
#endif
