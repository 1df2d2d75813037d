# `make` alone lists the targets. Everything a target needs and the machine lacks, it installs (tools/setup).

GO      := tools/go
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
PREFIX  ?= /usr/local
MTU     ?= 1500
KEEP    ?=
KERNELS ?= 6.1 6.12 7
export CGO_ENABLED = 0

.PHONY: help build demo test test-kernels lint fmt generate check-generated update fuzz install clean

help:
	@sed -n 's/^\([a-z-]*\):.* ## /\1\t/p' $(MAKEFILE_LIST) | expand -t 18

build: ## bin/loxilb (the daemon) and bin/loxicmd (its command line)
	@tools/setup build
	$(GO) build -trimpath -ldflags '-s -w -X main.version=$(VERSION)' -o bin/ ./cmd/...

demo: build ## a balancer, a client and three servers in namespaces; KEEP=1 leaves it standing, MTU=9000
	@tools/setup demo
	@$(GO) build -o bin/demo ./test/demo
	@bin/demo -mtu $(MTU) $(if $(KEEP),-keep)

test: build ## all tests, under the race detector, as root; RUN=pattern for some
	@tools/setup test
	CGO_ENABLED=1 $(GO) tool gotestsum --format pkgname-and-test-fails -- -race -count=1 -timeout 15m $(if $(RUN),-run '$(RUN)') ./...

test-kernels: build ## the data path on other kernels in a virtual machine; KERNELS="6.1 6.12 7"
	@tools/setup kernels
	@test/kernels/run $(KERNELS)

lint: ## golangci-lint, clang-format, shellcheck
	@tools/setup build lint
	@tools/lint

fmt: ## format Go and C
	@tools/setup build lint
	$(GO) fmt ./...
	clang-format-19 -i bpf/*.h bpf/*.c

generate: ## remake what is generated: BPF objects, their Go types, the REST API, docs/drop-reasons.md
	@tools/setup build lint
	$(GO) generate ./...

check-generated: generate ## fail if the committed generated files are not what generate makes
	@git diff --exit-code --stat -- internal/datapath/bpf api/v1 docs/drop-reasons.md

update: build ## write the expected values of tests anew; review the diff
	UPDATE=1 $(GO) test -count=1 ./internal/...
	$(GO) test -count=1 ./test/packet -update
	$(GO) test -count=1 ./internal/datapath -run TestVerifierBudget -update-budget

fuzz: ## every fuzz target for FUZZTIME=30s each
	@tools/setup build
	@tools/fuzz $(or $(FUZZTIME),30s)

install: build ## into PREFIX=/usr/local
	install -D bin/loxilb $(DESTDIR)$(PREFIX)/sbin/loxilb
	install -D bin/loxicmd $(DESTDIR)$(PREFIX)/bin/loxicmd
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/man/man8 docs/man/*.8

clean: ## remove what build made
	rm -rf bin
