# A thin door to the Meson build: every target does its own set-up and says what it installs.
#
#   make            build tgc into build/
#   make demo       compile a real model to C, build it, run it on real files
#   make check      build and pass every test, in about 15 minutes on two cores
#                   SUITES='cuda text' runs these suites alone (tests/check.py names them)
#   make quick      the inner loop: in a built tree a minute's choice of them; SUITES, too
#                   SINCE=HEAD~3 runs what a change since then can affect (tests/since.py)
#   make check-all  make check with every model, size and compiler
#   make bench      compare with the runtimes, then print the figures: compile time, memory, ...
#                   BENCH='--quick --models resnet50' narrows it; tables go to build/bench.json
#   make fuzz       damaged inputs of every kind by every target, for TIME seconds (3600), with a tgc that
#                   sanitizers watch, built in build/sanitized; SEED=7000 begins at another one
#   make mutate     the mutation test: 200 changed operators of passes/, which the quick tests should
#                   notice; hours. MUTATE='--count 20 --seed 7' draws others
#   make wheel      the Python wheel of this machine, in dist/, in some two minutes
#   make wheels     those for x86-64 and aarch64, glibc and musl
#   make site       the documents as a site, build/site/index.html
#   make install    install tgc (PREFIX, /usr/local otherwise; DESTDIR honoured)
#   make uninstall  remove what make install has put there

BUILD  ?= build
JOBS   ?= 2
suites  = $(if $(SUITES),--suites '$(SUITES)')
since   = $(if $(SINCE),--since '$(SINCE)')
destdir = $(if $(DESTDIR),--destdir "$$(realpath -m '$(DESTDIR)')")

all: build

$(BUILD)/build.ninja:
	scripts/setup.sh build
	meson setup $(BUILD) $(if $(PREFIX),--prefix '$(PREFIX)') $(MESON_OPTIONS)

build: $(BUILD)/build.ninja
	ninja -C $(BUILD) -j $(JOBS)

demo:
	scripts/setup.sh demo
	$(MAKE) --no-print-directory build
	models/demo/demo.sh $(BUILD)

# A page that reads digits: files for any web server, and how to start one.
web-demo:
	scripts/setup.sh web
	$(MAKE) --no-print-directory build
	mkdir -p $(BUILD)/web-demo
	$(BUILD)/cli/tgc models/digits.tg -o $(BUILD)/web-demo/digits.wasm
	cp examples/web/index.html $(BUILD)/web-demo/
	@echo "$(BUILD)/web-demo holds the page; to see it: python3 -m http.server --directory $(BUILD)/web-demo"

# Where tgc was built before the tests' packages came, Meson has to look for them again.
with-tests:
	scripts/setup.sh check
	$(MAKE) --no-print-directory $(BUILD)/build.ninja
	meson configure $(BUILD) -Dtests=enabled
	$(MAKE) --no-print-directory build

check: with-tests
	.venv/bin/python tests/check.py --build $(BUILD) --jobs $(JOBS) $(suites)

# Sets up where nothing was built yet; else only builds.
quick: $(if $(wildcard .venv/bin/python),build,with-tests)
	.venv/bin/python tests/check.py --build $(BUILD) --jobs $(JOBS) --quick $(suites) $(since)

check-all: with-tests
	scripts/setup.sh check-all
	.venv/bin/python tests/check.py --build $(BUILD) --jobs $(JOBS) --all $(suites)

TIME ?= 3600
SEED ?= 0
fuzz: with-tests
	.venv/bin/python tests/fuzz/mutants.py --build $(BUILD) --sanitize --jobs $(JOBS) --time $(TIME) --seed $(SEED)

mutate:
	scripts/setup.sh check
	.venv/bin/python tests/mutate.py --build $(BUILD) $(MUTATE)

bench:
	scripts/setup.sh bench
	$(MAKE) --no-print-directory build
	.venv/bin/python bench/compare.py --build $(BUILD) --json $(BUILD)/bench.json \
	    --plot $(BUILD)/bench.svg $(BENCH)
	.venv/bin/python bench/figures.py --build $(BUILD)

wheel wheels:
	scripts/setup.sh wheel
	.venv/bin/python scripts/wheel.py --jobs $(JOBS) $(if $(filter wheels,$@),--targets all)

site:
	scripts/setup.sh site
	.venv/bin/mkdocs build --quiet --strict --site-dir '$(abspath $(BUILD))/site'

# A prefix that is given counts, whatever the build was set up with.
install: build
	$(if $(PREFIX),meson configure $(BUILD) --prefix '$(PREFIX)' && ninja -C $(BUILD))
	meson install -C $(BUILD) --no-rebuild $(destdir) || { python3 scripts/installed.py undo $(BUILD); exit 1; }
	python3 scripts/installed.py add $(BUILD)

# What make install has put there, with the same PREFIX and DESTDIR.
uninstall:
	python3 scripts/installed.py remove $(BUILD) $(destdir) $(if $(PREFIX),--prefix '$(PREFIX)')

clean:
	rm -rf $(BUILD)

.PHONY: all build demo web-demo with-tests quick check check-all fuzz mutate bench wheel wheels site install uninstall clean
