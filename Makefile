# The targets of this repository. `make` or `make help` lists them.

SHELL       := /bin/bash
.SHELLFLAGS := -o pipefail -c

GO        ?= go
MODULE    := github.com/musterhpc/muster
VERSION   ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS   := -s -w -X main.version=$(VERSION)
FUZZTIME  ?= 10s
BENCH     ?= .
COUNT     ?= 1
SEEDS     ?= 200
KILLS     ?= 50
FAULTS    ?= 6
JOBS      ?= 20000000
MONTHS    ?= 7
PICTURES  ?= /var/tmp/muster-pictures
SIDE      ?= /var/tmp/muster-side-by-side
TESTFLAGS ?= -vet=off -timeout 25m # vet is a step of its own; the time is for one package, since a busy machine is no fault
ATONCE    ?= 4           # packages: several of them wait more than they work

# What may run at once is tested with the race detector; test/rooms.sh says what that is.
SMALL := -std=gnu11 -Wall -Wextra -O2 -s
PLAIN  = $(shell GO=$(GO) test/rooms.sh plain)
RACING = $(shell GO=$(GO) test/rooms.sh racing)

.DEFAULT_GOAL := help
.PHONY: help build demo test test-clients test-long test-console test-vm side-by-side deps check vuln fmt bench sim mutants fuzz golden generate e2e packages pictures grafana chaos attack bench-accounting bench-peer bench-openb \
	lab-up lab-demo lab-drain lab-evidence lab-down series test-gpu clean engine vet gofmt fresh deadcode

help: ## show this list
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## build bin/muster, bin/muster-top, bin/musterd, bin/muster-agent, bin/muster-shepherd, bin/muster-munge, bin/muster-sbatch, bin/muster-bench and, with libpmix-dev and libpam0g-dev, bin/muster-pmix and bin/pam_muster.so
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/muster ./cmd/muster-top ./cmd/musterd ./cmd/muster-shepherd ./cmd/muster-munge
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/muster-bench ./test/bench
	CGO_ENABLED=1 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/muster-agent
	$(CC) $(SMALL) -static -o bin/muster-sbatch cmd/muster-sbatch/sbatch.c || $(CC) $(SMALL) -o bin/muster-sbatch cmd/muster-sbatch/sbatch.c
	@if pkg-config --exists pmix 2>/dev/null; then \
		echo '$(CC) -o bin/muster-pmix cmd/muster-pmix/pmix.c'; \
		$(CC) $(SMALL) $$(pkg-config --cflags pmix) -o bin/muster-pmix cmd/muster-pmix/pmix.c -lpmix -lpthread; \
	else rm -f bin/muster-pmix; echo 'bin/muster-pmix is left out: libpmix-dev is not installed, and srun --mpi=pmix needs it'; fi
	@if test -e /usr/include/security/pam_modules.h; then \
		echo '$(CC) -shared -o bin/pam_muster.so cmd/pam_muster/pam_muster.c'; \
		$(CC) $(SMALL) -fPIC -shared -o bin/pam_muster.so cmd/pam_muster/pam_muster.c -lpam; \
	else rm -f bin/pam_muster.so; echo 'bin/pam_muster.so is left out: libpam0g-dev is not installed, and logins with private folders need it'; fi

deps: ## install what building lacks (as root; otherwise say what is missing)
	deploy/deps/install.sh build

demo: deps build engine ## start a cluster with 16 simulated GPUs, run the tour, print what happens (KEEP=1 leaves it up)
	deploy/lab/demo.sh

test: deps gofmt vet ## run every test but the whole-program ones, with the race detector where anything is concurrent
	@rc=0; echo '$(GO) test (rooms without a goroutine)'; $(GO) test -p $(ATONCE) $(TESTFLAGS) $(PLAIN) || rc=1; \
	echo '$(GO) test -race (everything else)'; $(GO) test -race -p $(ATONCE) $(TESTFLAGS) $(RACING) || rc=1; exit $$rc

test-long: deps engine ## run the tests that "make test" runs in a shorter form, at full length
	GO=$(GO) test/long.sh $(TESTFLAGS)

check: gofmt vet fresh deadcode ## check formatting, vet, the house rules, dead code and that generated files are fresh
	$(GO) test -count=1 ./internal/tidy

gofmt:
	@bad=$$(git ls-files -co --exclude-standard '*.go' | grep -v -e /testdata/ -e '\.pb\.go$$' | xargs gofmt -l); \
	test -z "$$bad" || { echo "not gofmt-clean (run make fmt):" $$bad >&2; exit 1; }

vet:
	$(GO) vet ./...

# Functions that only tests reach are listed, with the reason, in deadcode.allow.
deadcode:
	deploy/deps/deadcode.sh internal/tidy/deadcode.allow

vuln: ## fail when code of ours calls a function with a known vulnerability (GOVULNDB=address of a mirror of the database)
	GO=$(GO) deploy/deps/vuln.sh

fresh:
	deploy/deps/protoc.sh --check
	$(GO) run ./docs/gen -check
	$(GO) test -count=1 -run TestPage ./test/clients

fmt: ## format every Go file
	git ls-files -co --exclude-standard '*.go' | grep -v -e /testdata/ -e '\.pb\.go$$' | xargs gofmt -w

generate: ## write generated code and pages: api/*.pb.go, docs/*.md, default.yaml
	deploy/deps/protoc.sh
	$(GO) run ./docs/gen

golden: ## rewrite golden files and transcripts with what the code does now (the diff is the review)
	grep -rl --include='*_test.go' UPDATE_GOLDEN . | grep -v -e '^./test/grafana/' -e '^./kube/' | xargs -r -n1 dirname | sort -u | UPDATE_GOLDEN=1 xargs -r $(GO) test -count=1
	grep -rl --include='*_test.go' cockroachdb/datadriven . | xargs -r -n1 dirname | sort -u | xargs -r -n1 -I{} $(GO) test -count=1 {} -rewrite

# Inputs are made smaller in 100 tries at most: by default in a minute each, during which
# nothing else is tried.
fuzz: ## run each fuzz target for FUZZTIME (default 10s)
	@grep -rHoE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' . | sed 's/:func / /' | sort | while read -r file name; do \
		echo "== $$(dirname $$file) $$name"; \
		$(GO) test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 100x "$$(dirname $$file)" || exit 1; \
	done

bench: ## run the Go benchmarks matching BENCH, COUNT times, into bin/bench.txt
	@mkdir -p bin
	grep -rlE --include='*_test.go' '^func Benchmark' . | xargs -n1 dirname | sort -u | \
		xargs $(GO) test -run '^$$' -bench '$(BENCH)' -benchmem -count $(COUNT) | tee bin/bench.txt
	@echo
	@echo 'To compare two versions: make bench COUNT=10 on each, keep the files, then'
	@echo '  $(GO) tool benchstat old.txt new.txt'

sim: ## run the deterministic simulation over SEEDS seeds (default 200)
	MUSTER_SIM_SEEDS=$(SEEDS) $(GO) test -count=1 -timeout 60m ./sim/...

mutants: ## plant known bugs one after the other and see that the simulation, or a test, finds each
	MUSTER_MUTANTS=1 $(GO) test -count=1 -timeout 60m -run TestMutants -v ./sim

engine:
	deploy/engine/fetch.sh

e2e: build engine ## test the real programs together (RUN='TestA|TestB' for some, E2E_TIMEOUT=30m)
	$(GO) test -count=1 -timeout $(or $(E2E_TIMEOUT),30m) -parallel 5 $(if $(RUN),-run '^($(RUN))$$') ./test/...

test-clients: build engine ## run the command lines of client programs against a cluster (RUN=Parsl for one); make e2e does too
	$(GO) test -count=1 -parallel 8 -timeout 10m -run '^TestClients$$$(if $(RUN),/^$(RUN))' ./test/clients

side-by-side: build engine ## type the same command lines at a real Slurm of Debian and at Muster, and compare (root; SIDE=folder, RUN=arrays for one)
	test/sidebyside/cluster.sh up slurm $(SIDE)/slurm
	test/sidebyside/cluster.sh up muster $(SIDE)/muster || { test/sidebyside/cluster.sh down $(SIDE)/slurm; exit 1; }
	MUSTER_SIDE_SLURM=$(SIDE)/slurm MUSTER_SIDE_MUSTER=$(SIDE)/muster $(GO) test -count=1 -v -timeout 20m \
		-run '^TestSideBySide$$$(if $(RUN),/^($(RUN))$$)' ./test/sidebyside; code=$$?; \
		test/sidebyside/cluster.sh down $(SIDE)/slurm; test/sidebyside/cluster.sh down $(SIDE)/muster; exit $$code

test-vm: build ## prove the isolation on a kernel with cgroup v2 only, in a virtual machine (VM_LIMIT=1800 seconds)
	deploy/deps/install.sh vm
	test/vm/run.sh

test-console: build engine ## test the web console in Chromium (MUSTER_SCREENSHOTS=FOLDER writes pictures of its pages)
	command -v chromium >/dev/null || deploy/deps/install.sh test
	MUSTER_TEST_CONSOLE=1 $(GO) test -count=1 -v ./test/console

pictures: build engine ## take the pictures of docs/images from a lab under load, as root (PICTURES_AGE=300 seconds)
	command -v chromium >/dev/null || deploy/deps/install.sh test
	rm -rf $(PICTURES) && test/console/pictures.sh $(PICTURES)
	for picture in docs/images/console-*.png; do cp "$(PICTURES)/$${picture##*/}" "$$picture" || exit 1; done

grafana: ## hold the dashboards to Grafana's own library and types (needs npm for the second)
	test/grafana/check.sh

chaos: build engine ## kill -9 every process KILLS times under load and count what was lost (KILLS=50)
	KILLS=$(KILLS) deploy/lab/chaos.sh

attack: build engine ## attack a cluster of its own as a user and count the breaches (as root; SHORT=1 for fewer tries, ONLY=hidden,tokens for some)
	$(GO) build -o bin/attack ./test/attack
	bin/attack -bin bin $(if $(SHORT),-short) $(if $(ONLY),-only $(ONLY))

bench-openb: build ## fill the cluster of the openb traces ten times (TRACES=folder): best published mean 95.39 % of its GPUs
	bin/muster simulate --openb $(or $(TRACES),$(MUSTER_TRACES),../shared/traces)

# A module of its own: neither muster nor musterd nor the agent links Kubernetes.
.PHONY: kube test-kube demo-kube bench-kube
kube: ## build bin/muster-kube, which keeps Kubernetes and the ledger in step, and the programs beside it
	cd kube && CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o ../bin/ ./cmd/...

test-kube: build engine kube ## test muster-kube between real servers of Kubernetes (their first build takes 5 to 20 minutes)
	command -v etcd >/dev/null || deploy/deps/install.sh kube
	test/kube/servers.sh
	cd kube && $(GO) mod tidy -diff && $(GO) vet ./... && MUSTER_TEST_KUBE=1 $(GO) test -count=1 -timeout 40m $(if $(RUN),-run '^($(RUN))$$') ./...

bench-kube: build engine kube ## pods of 1,000 nodes without machines: bound a second by Muster and by kube-scheduler, what colocation adds, memory
	command -v etcd >/dev/null || deploy/deps/install.sh kube
	test/kube/servers.sh
	cd kube && MUSTER_TEST_KUBE=1 MUSTER_BENCH_KUBE=1 $(GO) test -count=1 -timeout 40m -v -run '^TestBench$$' ./test

demo-kube: build engine kube ## pods and jobs on one node: the walks of a colocated cluster and of two whose pods Muster schedules, with guaranteed shares too, printed
	command -v etcd >/dev/null || deploy/deps/install.sh kube
	test/kube/servers.sh
	cd kube && MUSTER_TEST_KUBE=1 $(GO) test -count=1 -timeout 25m -v -run '^TestWalk(Scheduled|Floors)?$$' ./test

.PHONY: demo-ha chaos-ha
demo-ha: build ## start three controllers, kill the leader twice under load, show that nothing was lost, take a job through REST
	deploy/lab/demo-ha.sh

chaos-ha: build ## kill or stop members of three controllers, and of two with a witness, KILLS times under load and count what was lost, and check FAULTS faults' histories for linearizability (KILLS=50 FAULTS=6)
	FAULTS=$(FAULTS) ELECTION=500ms $(GO) test -count=1 -timeout 60m -v -run '^TestHistories' ./test/e2e
	KILLS=$(KILLS) ELECTION=500ms $(GO) test -count=1 -timeout 60m -v -run '^Test(Controllers|Witness)$$' ./test/e2e

bench-accounting: build engine ## ask a store of JOBS jobs over MONTHS months, and one of 1,000,000 of a month beside it (JOBS=20000000 MONTHS=7)
	bin/muster-bench accounting --jobs $(JOBS) --months $(MONTHS) --beside 1000000

.PHONY: bench-agents
bench-agents: build ## kill the leader of three controllers under AGENTS agents, TIMES times: when they are connected to the next one, and which heartbeats were late (AGENTS=10000 TIMES=3)
	bin/muster-bench agents --agents $(or $(AGENTS),10000) --times $(or $(TIMES),3)

.PHONY: bench-boards
bench-boards: build engine ## ask a store of 1,000 nodes x 8 GPUs and 1,000,000 jobs of a month what every panel of the dashboards asks it: CPU and wall seconds of each
	bin/muster-bench boards

bench-peer: build engine ## compare with the real Slurm that PEER points to
	deploy/lab/bench-peer.sh

packages: build ## make .deb and .rpm of the programs, with services, manual pages and completion, in bin/packages (ENGINE=1 for the ClickHouse engine too)
	deploy/packages/build.sh

lab-up: build engine ## start the lab cluster and leave it running
	deploy/lab/lab.sh up

lab-demo: ## run the tour's jobs on the lab cluster
	deploy/lab/lab.sh demo

lab-drain: ## drain a node of the lab cluster, watch jobs route around it, resume it
	deploy/lab/lab.sh drain

lab-evidence: ## write sinfo, squeue, sacct, QOS and KPIs of the lab cluster into a folder
	deploy/lab/lab.sh evidence

lab-down: ## stop the lab cluster
	deploy/lab/lab.sh down

series: ## report the series that VictoriaMetrics has after 10,000 jobs, for each label mode
	MUSTER_SERIES=1 $(GO) test -count=1 -v -run TestSeriesCreated ./nodeagent/telemetry

bin/gpu-test: FORCE
	$(GO) test -c -o $@ ./nodeagent/gpu/auto

FORCE:

test-gpu: bin/gpu-test ## run the NVML and DCGM paths on this machine's GPUs, with a report (bin/gpu-test alone can be carried elsewhere)
	MUSTER_TEST_GPU=1 bin/gpu-test -test.v -test.run TestRealGPU

clean: ## remove what was built
	rm -rf bin
