# `make` alone lists the targets. Everything a target needs and the machine lacks, it installs (tools/setup).

GO      := tools/go
PREFIX  ?= /usr/local
MTU     ?= 1500
KEEP    ?=
KERNELS ?= 6.1 6.12 7
# of the benchmarks: what, by whom, how often, how long; empty: all of it
BENCH      ?=
CONTENDERS ?=
FLOODS     := $(filter flood%,$(BENCH))
ROUNDS     ?= $(if $(FLOODS),1,5)
SECONDS    ?= $(if $(FLOODS),10,2)
TABLE      ?= 0
OUT        ?= bench/results
LAYOUT     ?= one
WRK        ?= -t2 -c100
NAME       ?=
export CGO_ENABLED = 0
# Without it the build cache has another copy of everything for each folder the project is cloned into.
export GOFLAGS := -trimpath $(GOFLAGS)

.PHONY: help build build-bench demo check test test-long test-cluster soak package test-package release test-release test-manifests test-kube test-kube-e2e kube-loxilb kube-loxilb-image lint-kube image test-image test-kernels test-arm64 test-host bench bench-check bench-guest bench-packet bench-control bench-docs lint vulnerabilities fmt generate check-generated update fuzz mutate install clean

help:
	@sed -n 's/^\([a-z0-9-]*\):.* ## /\1\t/p' $(MAKEFILE_LIST) | expand -t 18

build: ## bin/loxilb (the daemon) and bin/loxicmd (its command line)
	@tools/setup build
	tools/build bin

demo: build ## a balancer, a client and three servers in namespaces; KEEP=1 leaves it standing, MTU=9000
	@tools/setup demo
	@$(GO) build -o bin/demo ./test/demo
	@bin/demo -mtu $(MTU) $(if $(KEEP),-keep)

check: ## the tests that need no root and touch no kernel, in seconds; what make test runs too
	tools/check

RETRY = --rerun-fails=$(RETRIES) --rerun-fails-max-failures=16 --rerun-fails-abort-on-data-race --rerun-fails-report=bin/retried

test: build ## all tests, as root, under the race detector what it can see; RUN=pattern for some, RETRIES=1 tries once more what failed
	@tools/setup test
	@rm -f bin/tests-ended
	$(GO) tool gotestsum --format pkgname-and-test-fails $(if $(RETRIES),$(RETRY)) --raw-command -- tools/tests $(if $(RUN),-run '$(RUN)')
	@[ -e bin/tests-ended ] || { echo "the tests did not come to their end: tools/tests, or go test, was killed" >&2; exit 1; }

test-long: build ## tests that take minutes, and a gigabyte: held connections, a kill before every step of the daemon
	@tools/setup test
	$(GO) test -count=1 -timeout 60m -v -p 1 ./test/net/... -run '$(or $(RUN),TestHold|TestHeldPorts|TestKilled|TestScale|TestSoak|TestServiceChangesKeepConnections|TestProxyProtocol|TestTransfer|TestPathMTU)' -long
	$(if $(RUN),,$(GO) test -count=1 -timeout 10m -v ./internal/kernel/datapath -run 'TestEndsOnce|TestRecycledMemory' -long)
	$(if $(RUN),,$(GO) test -count=1 -timeout 10m -v ./internal/control/health -run TestCost -long)
	$(if $(RUN),,CGO_ENABLED=1 $(GO) test -count=1 -timeout 30m -race ./internal/kernel/datapath/...)
	$(if $(RUN),,CGO_ENABLED=1 RACE_ALL=1 $(GO) test -count=1 -timeout 30m -race $(addprefix ./internal/,announce/election api/access api/httpapi api/manifest cluster control/health control/store))
	$(if $(RUN),,CGO_ENABLED=1 $(GO) test -count=1 -timeout 30m -race ./bench ./cmd/... ./internal/cli/... ./internal/telemetry/otlp)
	$(if $(RUN),,$(GO) test -count=1 -timeout 10m -v ./internal/api/httpapi -run TestMemoryOfWorstBodies -long)

test-cluster: build ## three nodes behind an ECMP router: what survives when nodes, links and processes fail; ROUNDS=10, BEFORE=directory of the previous version's programs, LOAD="-held=3000 -new=500 -pace=400ms -certificates"
	@tools/setup test
	$(GO) test -count=1 -timeout 4h -v ./test/net/cluster -run 'TestFailures|TestStoreFailures|TestTwoRouters|TestConntrackd' -long -rounds=$(if $(filter file,$(origin ROUNDS)),1,$(ROUNDS)) -before='$(BEFORE)' -out=$(CURDIR)/$(OUT) $(LOAD)

soak: build ## ten minutes in which all that can come and go does, the daemon too; SECONDS=600
	@tools/setup test
	$(GO) test -count=1 -timeout 24h -v ./test/net/lifecycle -run '^TestSoak$$' -soak=$(if $(filter file,$(origin SECONDS)),600,$(SECONDS))

test-kernels: ## the data path on other kernels in a virtual machine; KERNELS="6.1 6.12 7", SHORT=1 for what finds most, ONLY=bond for checks of this name, CPUS=8
	@tools/setup build kernels
	@CPUS='$(CPUS)' test/kernels/run amd64 $(KERNELS)

test-arm64: ## the same on an emulated arm64 machine; KERNELS="6.12"
	@tools/setup build kernels arm64
	@test/kernels/run arm64 $(if $(filter file,$(origin KERNELS)),6.12,$(KERNELS))

test-host: ## HTTP and iperf3 through a dedicated virtual machine, in each mode; MATRIX=1, ONLY=trunk, KERNEL=6.12
	@tools/setup build kernels host
	@MATRIX='$(MATRIX)' ONLY='$(ONLY)' KERNEL='$(KERNEL)' test/host/run

bench: build-bench ## rates beside plain routing and rivals; BENCH="rps cps" CONTENDERS="routing loxilb nft" ROUNDS=5 SECONDS=3 MTU=1500 LAYOUT=one|pinned WRK="-t2 -c100"; BENCH=flood: under attack
	@$(RUN_BENCH)

bench-check: build-bench ## the same, into bin/, compared with bench/results: fails when ratios to plain routing are worse
	@$(RUN_BENCH) -out bin/bench-check -check bench/results/$(or $(NAME),net-$(LAYOUT)-$(MTU)).json

bench-guest: build-bench ## with IPVS, in a virtual machine whose clock counts instructions; CHECK=1 compares with bench/results
	@tools/setup kernels
	@BENCH='$(BENCH)' CONTENDERS='$(CONTENDERS)' bench/guest/run net $(if $(CHECK),-out bin/bench-check -check bench/results/guest.json)

bench-packet: build-bench ## what each path through the program costs: time, instructions (in the same virtual machine), look-ups
	@tools/setup kernels
	@bench/guest/run packet bin/instructions.json
	@$(GO) test ./internal/kernel/datapath -run '^$$' -bench Established -benchtime 1000x >bin/established.txt
	@bin/bench packet -instructions bin/instructions.json -established bin/established.txt

bench-control: build-bench ## apply times, start-up, sweep, memory
	@bin/bench control

bench-docs: ## the numbers in docs/performance.md, from bench/results
	@$(GO) run ./bench docs bench/results docs/performance.md

build-bench: build
	@tools/setup bench
	@$(GO) build -o bin/ ./bench

RUN_BENCH = bin/bench -works '$(BENCH)' -contenders '$(CONTENDERS)' -rounds $(ROUNDS) -seconds $(SECONDS) \
	-mtu $(MTU) -layout $(LAYOUT) -wrk '$(WRK)' -table $(TABLE) -name '$(NAME)' -out '$(OUT)'

lint: ## golangci-lint, clang-format, shellcheck
	@tools/setup build lint
	@tools/lint

vulnerabilities: ## govulncheck: known faults of the libraries that are used, where its database can be reached
	@tools/setup build demo
	@tools/vulnerabilities

fmt: ## format Go and C
	@tools/setup build lint
	$(GO) fmt ./...
	find bpf test/netnstest/faulty -name "*.[hc]" -print0 | xargs -0 clang-format-19 -i

generate: ## remake what is generated: BPF objects, their Go types, the REST API, docs/compatibility.md, docs/metrics.md, docs/man
	@tools/setup build lint
	$(GO) generate ./tools/dropdoc ./... # a drop reason that no document explains is reported first

check-generated: generate ## fail if the committed generated files, or go.mod, are not what they are made to be
	$(GO) mod tidy -diff
	@git diff --exit-code --stat -- internal/kernel/datapath/bpf test/netnstest/faulty internal/lb/report api/v1 docs/compatibility.md docs/metrics.md docs/man

update: build ## write the expected values of tests anew; review the diff
	UPDATE=1 $(GO) test -count=1 ./internal/... ./bench
	$(GO) test -count=1 ./test/packet -update
	$(GO) test -count=1 ./test/differential -run Documentation -update
	$(GO) test -count=1 ./internal/kernel/datapath -run TestVerifierBudget -update-budget

fuzz: ## every fuzz target for FUZZTIME=30s each
	@tools/setup build
	@tools/fuzz $(or $(FUZZTIME),30s)

mutate: ## one-line mistakes that tests let pass: OF=internal/lb or bpf/limit/limit.h, N=20, SEED=1, RUN=pattern, TESTS=test/packet
	@tools/setup build lint
	@$(GO) run ./tools/mutate -n $(or $(N),20) -seed $(or $(SEED),1) -run '$(RUN)' $(OF) $(TESTS)

package: build ## bin/package: a Debian and an RPM package for this architecture; ARCH=arm64 for another
	@tools/package $(ARCH)

test-package: build ## the packages on real Debians 12 and 13: installed, upgraded under load, removed
	@tools/setup test package
	@test/install/run

release: build ## bin/release: archives, packages, bills of materials and checksums of a commit, for amd64 and arm64; the same bytes each time
	@tools/release

test-release: build ## a release of a tag, made twice in different folders by different caches: complete, and the same bytes
	@tools/setup test
	LOXILB_RELEASE=1 $(GO) test -count=1 -timeout 30m -v ./test/release

test-manifests: ## the Helm chart and deploy/kubernetes: against Kubernetes' own schemas, the daemon's flags and each other; UPDATE=1 makes what is generated
	@tools/setup build
	@test/manifests/run

test-kube: ## the chart in a cluster of two Kubernetes nodes, in namespaces of this machine; RUN=TestCells; LONG=1: 5,000 pods; the first time it builds Kubernetes
	@tools/setup build kube
	@RUN='$(RUN)' kube/test/run

test-kube-e2e: ## Kubernetes' own specs of Services in that cluster, some 15 minutes; SPECS=pattern; UPDATE=1 writes their results
	@tools/setup build kube kube-e2e
	@SPECS='$(SPECS)' kube/test/run e2e

kube-loxilb: ## bin/kube-loxilb: the controller for Kubernetes, which build leaves out
	@tools/setup build
	@tools/build bin kube-loxilb

lint-kube: ## golangci-lint of the module of Kubernetes, whose libraries take minutes to compile
	@tools/setup build
	@tools/lint kube

kube-loxilb-image: ## bin/kube-image: its container image for amd64 and arm64, like that of image
	@tools/setup build
	@PROGRAM=kube-loxilb tools/image

image: ## bin/image: a container image for amd64 and arm64 (an OCI layout), without a container engine, and bills of materials
	@tools/setup build
	@tools/image

test-image: ## the container image by runc: made twice, run with the capabilities that it needs, restarted under load
	@tools/setup build test image
	@test/image/run

install: build ## into PREFIX=/usr/local
	install -D bin/loxilb $(DESTDIR)$(PREFIX)/sbin/loxilb
	install -D bin/loxicmd $(DESTDIR)$(PREFIX)/bin/loxicmd
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/man/man1 docs/man/*.1
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/man/man7 docs/man/*.7
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/man/man8 docs/man/*.8

clean: ## remove what build made
	rm -rf bin
