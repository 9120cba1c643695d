# The targets of scaffe. `make help` lists them.
#
# MPI chooses the library to build and run with: openmpi, mpich, mvapich2, the
# path of any MPI's mpicc, or none.
MPI ?= openmpi

export PATH := $(CURDIR)/.tools/go/bin:$(PATH)

# Every command that depends on the library runs through WITH; the go and the
# mpirun found in there are the right ones.
WITH := scripts/with-mpi $(MPI)

.DEFAULT_GOAL := help
.PHONY: help
help: ## list the targets
	@echo "make <target> [MPI=openmpi|mpich|mvapich2|PATH/mpicc|none]"
	@echo
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "%-16s%s\n", $$1, $$2}'

.PHONY: install-deps
install-deps: ## install what is missing (apt on Debian and Ubuntu)
	@scripts/install-deps

# The version that the programs print. The Go toolchain takes it from the
# repository; VERSION=v1.2.0 sets another. The revision is for builds that the
# toolchain does not stamp.
VERSION ?=
version := github.com/scaffe/scaffe/internal/version
revision := $(shell git describe --always --dirty --abbrev=12 --exclude '*' 2>/dev/null)

.PHONY: build
build: install-deps ## build bin/scaffe and bin/osu_* with the chosen MPI
	SCAFFE_LDFLAGS="-X $(version).number=$(VERSION) -X $(version).revision=$(revision)" \
		$(WITH) go build -o bin/ ./cmd/scaffe ./osu-bench/...

.PHONY: lib
lib: install-deps ## build what serves other people's MPI programs: build/<mpi>/lib
	$(WITH) scripts/build-lib

# As the GNU coding standards have it: DESTDIR is for packagers.
PREFIX ?= /usr/local
DESTDIR ?=
prefix := $(DESTDIR)$(PREFIX)
bash_completion := $(prefix)/share/bash-completion/completions/scaffe
zsh_completion := $(prefix)/share/zsh/site-functions/_scaffe
fish_completion := $(prefix)/share/fish/vendor_completions.d/scaffe.fish

# Where the programs are that are installed.
BIN := bin
$(BIN)/scaffe:
	$(MAKE) --no-print-directory build

.PHONY: install
install: | $(BIN)/scaffe ## install programs, man pages, shell completions, and what make lib has built (PREFIX=/usr/local DESTDIR=)
	install -d $(prefix)/bin $(prefix)/share/man/man1 $(dir $(bash_completion) $(zsh_completion) $(fish_completion))
	install -m 755 $(BIN)/scaffe $(BIN)/osu_* $(prefix)/bin
	$(BIN)/scaffe man --out $(prefix)/share/man/man1
	$(BIN)/scaffe completion bash > $(bash_completion)
	$(BIN)/scaffe completion zsh > $(zsh_completion)
	$(BIN)/scaffe completion fish > $(fish_completion)
	for lib in build/*/lib/libscaffe-mpi.so; do \
		[ -e $$lib ] || continue; \
		to=$(prefix)/lib/scaffe/$$(basename $$(dirname $$(dirname $$lib))); \
		install -d $$to && install -m 755 $$(dirname $$lib)/*.so $$to; \
		[ ! -e $${lib%.so}.a ] || install -m 644 $${lib%.so}.a $$to; \
	done

.PHONY: uninstall
uninstall: ## remove what make install installed (with the same PREFIX and DESTDIR)
	rm -f $(prefix)/bin/scaffe $(addprefix $(prefix)/bin/,$(notdir $(wildcard osu-bench/osu_*)))
	rm -f $(prefix)/share/man/man1/scaffe.1 $(prefix)/share/man/man1/scaffe-*.1
	rm -f $(bash_completion) $(zsh_completion) $(fish_completion)
	rm -rf $(prefix)/lib/scaffe

# The data set is made once; `make clean` removes it.
glyphs := examples/glyphs
$(glyphs)/mean.binaryproto: | build
	bin/scaffe data glyphs --force --out $(glyphs)
	bin/scaffe data mean --in $(glyphs)/train_lmdb --out $@

.PHONY: demo
demo: build $(glyphs)/mean.binaryproto ## train CIFAR-10 quick on drawn digits with two ranks, a minute or two
	$(WITH) mpirun -np 2 bin/scaffe train --solver $(glyphs)/cifar10_quick_solver.prototxt

# The yardstick in C is compiled for the processor that it runs on.
.PHONY: floor
floor: build
	@$(WITH) sh -c 'if [ -n "$$SCAFFE_MPICC" ]; then \
		"$$SCAFFE_MPICC" -std=c11 -Wall -Wextra -O3 -march=native -o bin/floor osu-bench/floor/floor.c -lm; fi'

.PHONY: bench
bench: build floor ## compare the collectives with the MPI library's own here, a minute
	$(WITH) scripts/bench

.PHONY: gpu-check
gpu-check: install-deps ## an archive that checks a GPU, with all it takes; run here where there is one
	SCAFFE_LDFLAGS="-s -w -X $(version).number=$(VERSION) -X $(version).revision=$(revision)" \
		scripts/with-mpi openmpi scripts/gpu-check

.PHONY: bench-dropin
bench-dropin: lib ## compare a plain MPI program with scaffe's collectives and without, some minutes
	$(WITH) scripts/bench-dropin

.PHONY: test-dropin
test-dropin: ## MPICH's, mpi4py's and OMB's own tests with scaffe's collectives, under both MPIs, some 20 minutes
	$(MAKE) --no-print-directory lib MPI=openmpi
	$(MAKE) --no-print-directory lib MPI=mpich
	scripts/with-mpi openmpi scripts/test-dropin
	scripts/with-mpi mpich scripts/test-dropin

.PHONY: lint
lint: install-deps ## format, imports, go.mod, generated files, vet, staticcheck, with and without MPI
	@scripts/lint
	@$(WITH) scripts/lint

.PHONY: check
check: ## before a commit: lint and the unit tests of what changed, under a minute
	@scripts/check

.PHONY: generate
generate: ## make generated files again: assembly, protocol buffers
	@scripts/generate

.PHONY: test
# Tests and the tools that look at them live too briefly to collect much garbage.
test: export GOGC = 400
test: export GOMEMLIMIT = 2GiB
# Ranks need not know which devices are behind PCI: each mpirun begins 25 to 40 ms sooner (two cores of a Xeon).
test: export HWLOC_COMPONENTS = -linuxpci,-pci,-opencl
# Lint has vetted, and tests that are parallel wait for ranks.
test: export GOFLAGS := $(strip $(GOFLAGS) -vet=off -parallel=4)
test: lint ## lint, unit tests, race tests, and ranks under Open MPI and MPICH
	scripts/test-pure
	scripts/with-mpi openmpi scripts/test-mpi all
	$(MAKE) --no-print-directory -j2 --output-sync=line MPI=mpich test-mpi test-away # each waits for processes, much of its time

.PHONY: test-mpi
# MAKEFLAGS is of the make that does two things at a time: what tests make is their own.
test-mpi: install-deps ## tests that need several processes, under the chosen MPI
	MAKEFLAGS= $(WITH) scripts/test-mpi

.PHONY: test-away
test-away: install-deps ## what is built here under another mpirun, from gpu-check's archive, in the lab
	MAKEFLAGS= scripts/test-wrong-mpirun
	MAKEFLAGS= SCAFFE_LDFLAGS="-s -w" scripts/with-mpi openmpi scripts/test-gpu-check
	MAKEFLAGS= scripts/test-lab

# FOR is how long. SEED, OVER and RANKS run a series again, as a failure says.
FOR ?= $(if $(SEED),0,1m)
SOAK := -soak.for $(FOR) $(if $(SEED),-soak.seed $(SEED)) $(if $(OVER),-soak.over $(OVER)) $(if $(RANKS),-soak.ranks $(RANKS))
# KILLS is how many times a rank is killed in training.
KILLS ?= $(if $(SEED),0,30)
.PHONY: soak
soak: install-deps ## training in slices killed at random moments (KILLS=30); random programs of collectives over all transports, for a time (FOR=1m)
	$(if $(filter-out 0,$(KILLS)),$(WITH) go test ./cmd/scaffe -count=1 -timeout 0 -run TestKilledAtAnyMoment -v -args -kill.soak $(KILLS))
	$(WITH) go test ./collectives/soak -count=1 -timeout 0 -run TestSoak -v -args $(SOAK)

# docs/lab.md tells about the lab. NODES, RATE and PPN shape it.
NODES ?= 4
RATE ?= 1gbit
PPN ?= 1
LAB := --nodes $(NODES) --rate $(RATE) --ppn $(PPN)

.PHONY: lab
lab: build ## a cluster on this machine (as root): up, a short comparison, down
	$(WITH) hostfiles/lab with $(LAB) -- hostfiles/lab run -- \
		bin/osu_reduce -T mpi_float -m 1M:16M -i 7 -x 1 --algorithm mpi,tuned,chain,binomial

.PHONY: lab-up
lab-up: ## bring the cluster up (NODES=4 RATE=1gbit PPN=1); then hostfiles/lab run -- ...
	hostfiles/lab up $(LAB)

.PHONY: lab-down
lab-down: ## take the cluster down
	hostfiles/lab down

.PHONY: clean
clean: ## remove what was built here
	rm -rf bin build $(glyphs)/*_lmdb $(glyphs)/mean.binaryproto $(glyphs)/*.caffemodel $(glyphs)/*.solverstate $(glyphs)/*.schemes
