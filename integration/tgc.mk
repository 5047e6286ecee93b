# Rules for GNU make: a model, .onnx or .tg, becomes C.
#
#     TGC_MODELS := net.onnx nets/other.onnx
#     include $(shell pkg-config --variable=mk tgc)
#
#     app: app.o net.o nets/other.o
#     app.o: net.h nets/other.h
#
# net.c and net.h are made beside net.onnx, and again when the model, its external data, a file that
# options name or tgc has changed. What may be set:
#
#   TGC             the program
#   TGCFLAGS        options for every model
#   TGCFLAGS_net    options for net.onnx, in whatever folder
#   TGC_MODELS      the models whose dependencies are read
#
# Names with blanks are nothing that make can handle; those of folders above the Makefile may have them.

TGC ?= tgc

# A new tgc writes anew what it has written; blanks are quoted, for its own folder is not the user's.
tgc_blank := $(subst ,, )
tgc_file := $(subst $(tgc_blank),\$(tgc_blank),$(shell command -v "$(TGC)"))

define tgc_emit
"$(TGC)" compile $< -o $*.c -MD -MF $*.tgc.d -MP -MT $*.c -MT $*.h $(TGCFLAGS) $(TGCFLAGS_$(*F))
endef

%.c %.h: %.onnx $(tgc_file)
	$(tgc_emit)

%.c %.h: %.tg $(tgc_file)
	$(tgc_emit)

# The first target of a depfile is not to become what `make` makes.
tgc_goal := $(.DEFAULT_GOAL)
-include $(addsuffix .tgc.d,$(basename $(TGC_MODELS)))
.DEFAULT_GOAL := $(tgc_goal)
