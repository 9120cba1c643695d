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

.PHONY: build
build: install-deps ## build bin/scaffe and bin/osu_* with the chosen MPI
	$(WITH) go build -o bin/ ./cmd/scaffe ./osu-bench/...

# The data set is made once; `make clean` removes it.
glyphs := examples/glyphs
$(glyphs)/mean.binaryproto: | build
	bin/scaffe data glyphs --force --out $(glyphs)
	bin/scaffe data mean --in $(glyphs)/train_lmdb --out $@

.PHONY: demo
demo: build $(glyphs)/mean.binaryproto ## train CIFAR-10 quick on drawn digits with two ranks, a minute or two
	$(WITH) mpirun -np 2 bin/scaffe train --solver $(glyphs)/cifar10_quick_solver.prototxt

.PHONY: bench
bench: build ## compare the collectives with the MPI library's own here, a minute
	$(WITH) scripts/bench

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
test: lint ## lint, unit tests, race tests, and ranks under Open MPI and MPICH
	scripts/test-pure
	scripts/with-mpi openmpi go test ./...
	$(MAKE) --no-print-directory test-mpi MPI=openmpi
	$(MAKE) --no-print-directory test-mpi MPI=mpich
	scripts/test-wrong-mpirun
	scripts/test-lab

.PHONY: test-mpi
test-mpi: install-deps ## tests that need several processes, under the chosen MPI
	$(WITH) scripts/test-mpi

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
	rm -rf bin build $(glyphs)/*_lmdb $(glyphs)/mean.binaryproto $(glyphs)/*.caffemodel $(glyphs)/*.solverstate
