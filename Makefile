# The only commands a newcomer needs. Each does its own set-up on a machine with the toolchains.

CARGO ?= cargo
# Where cargo builds.
TARGET := $(or $(CARGO_TARGET_DIR),target)
RELEASE := $(TARGET)/release

.DEFAULT_GOAL := help
.PHONY: help demo check test locks rust-build rust-tests rust-tests-that-measure bench capi go go-build go-tools go-lints go-vet go-tests go-loaded go-linked go-without-cgo jni java java-build java-tests java-17 java-suite java-dist dotnet dotnet-build dotnet-lints dotnet-tests \
	doors doors-go doors-rust doors-websocket doors-java hunt hunt-proof siege siege-page kernels \
	kernels-quick kernels-page cold-turn ends restarts restarts-page dashboard seccomp seccomp-trace kubernetes kubernetes-base dist dist-check dist-page dist-twice workflow-lint soak loom miri public-api msrv deny asan fuzz lab named result results result-pages lab-peers door-peers lab-peers-check toolchain

help: ## Say what there is
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

toolchain:
	@command -v $(CARGO) >/dev/null || { \
		echo "make: cargo was not found; install Rust 1.88 or newer (rustup is the usual way) and try again" >&2; \
		exit 1; }
	@test "$$(uname -s)" = Linux || { \
		echo "make: Quoit runs on Linux only; this is $$(uname -s)" >&2; exit 1; }
	@command -v cc >/dev/null || { \
		echo "make: no C linker was found; install gcc or clang (Debian: apt install build-essential)" >&2; \
		exit 1; }

demo: toolchain ## Serve HTTP on io_uring and on epoll in turn, drive both, and print one table
	@$(CARGO) build --release --package quoit-cli
	@$(RELEASE)/quoit lab demo

# Says at the end how long it took.
STAGE := .ci/stage

# What takes seconds when little has changed. It builds the profile that `make test` builds, so that neither waits for the other.
check: toolchain ## Format check, lints and unit tests, for the loop of work: under two minutes when it was built before
	$(CARGO) fmt --all --check
	@$(STAGE) lints $(CARGO) clippy --quiet --workspace --all-targets --profile test -- --deny warnings
	@RUST_TEST_THREADS=$$((2 * $$(nproc))) $(STAGE) "the unit tests" $(CARGO) test --quiet --workspace --lib --bins -- --skip lab_

# Those that are quickly built, which the crate's own tests have too.
ASYNC_FEATURES := quoit-async/axum,quoit-async/futures-io,quoit-async/hyper,quoit-async/hyper-util,quoit-async/tracing

# Rust is built on less than two processors at the end, so that Java's and .NET's doors are built beside it. Twice as many Rust tests
# run at once as there are processors, as most of them wait for a peer; what else there is to build is built meanwhile. The doors are
# tested behind the Rust tests, all at once: some Rust tests take all memory that the kernel has for TCP, and Netty's own tests have a
# time in which they have to be over.
test: toolchain ## Format check, lints, documentation, all tests
	@$(CARGO) fmt --version >/dev/null 2>&1 || { \
		echo "make: rustfmt is missing; run: rustup component add rustfmt clippy" >&2; exit 1; }
	$(CARGO) fmt --all --check
	@$(MAKE) --no-print-directory locks
	@builds=; lints=; tests=; \
	if command -v $(MAVEN) >/dev/null && java/jdk >/dev/null; then builds="$$builds java-build"; tests="$$tests java-tests"; \
	else echo "make: Maven or a JDK 25 was not found; the Netty transport is not tested" >&2; fi; \
	if command -v $(DOTNET) >/dev/null; then builds="$$builds dotnet-build"; tests="$$tests dotnet-tests"; \
	elif test -n "$${CI:-}"; then echo "make: dotnet was not found; $(DOTNET_REMEDY)" >&2; exit 1; \
	else echo "make: dotnet was not found; the Kestrel transport is not tested ($(DOTNET_REMEDY))" >&2; fi; \
	if command -v $(GO) >/dev/null; then builds="$$builds capi go-tools"; lints=go-lints; tests="$$tests go-tests"; \
	else echo "make: go was not found; the Go module is not tested (https://go.dev/dl, 1.26 or newer)" >&2; fi; \
	side_by_side="$(MAKE) --no-print-directory --output-sync=target"; \
	$$side_by_side --jobs=2 rust-build $$builds && \
	$(MAKE) --no-print-directory rust-tests-that-measure && \
	$$side_by_side --jobs=4 rust-tests $$lints && \
	{ test -z "$$tests" || $$side_by_side --jobs=4 $$tests; }

rust-build: toolchain
	@$(STAGE) lints $(CARGO) clippy --workspace --all-targets --profile test -- --deny warnings
	@$(STAGE) "lints of what loom runs" $(CARGO) clippy $(addprefix --package ,$(LOOM_PACKAGES)) --lib --no-deps --profile test -- \
		--cfg quoit_loom --deny warnings
	@RUSTDOCFLAGS="--deny warnings" $(STAGE) documentation $(CARGO) doc --profile test --package quoit --package quoit-async --no-deps --features $(ASYNC_FEATURES)
	@$(STAGE) "building the Rust tests" $(CARGO) test --workspace --no-run

# They depend on crates of this workspace, so that a dependency which these get or lose makes their locks stale. With --locked they are
# not built then.
OTHER_WORKSPACES := fuzz lab/peers/rust/rivals

# The registry's index is asked, and nothing is fetched or built.
locks: toolchain
	@for other in $(OTHER_WORKSPACES); do \
		update="$(CARGO) update --workspace --manifest-path $$other/Cargo.toml"; \
		said=$$($$update --locked 2>&1) || case "$$said" in \
			*"--locked was passed"*) echo "make: $$other/Cargo.lock is stale; run: $$update" >&2; exit 1;; \
			*) echo "make: not known whether $$other/Cargo.lock is stale: $$said" >&2;; \
		esac; \
	done

# What the lab measures is tested when nothing else runs.
rust-tests-that-measure: toolchain
	@$(STAGE) "the Rust tests that measure" $(CARGO) test --workspace --lib --bins --tests -- lab_

rust-tests: toolchain
	@RUST_TEST_THREADS=$$((2 * $$(nproc))) $(STAGE) "the Rust tests" env CARGO=$(CARGO) .ci/rust-tests

bench: toolchain ## Measure both engines against minimal hand-written servers; takes an hour or two
	@$(CARGO) build --release --package quoit-cli --package floor-epoll --package floor-uring
	@$(RELEASE)/quoit lab run floor
	@$(RELEASE)/quoit lab run bulk
	@$(RELEASE)/quoit lab run idle

CAPI := target/capi
WITH_LIBRARY = QUOIT_LIBRARY=$(CURDIR)/$(CAPI)/lib/libquoit.so
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)

capi: toolchain ## Build the C library into target/capi: include, lib (shared and static) and pkgconfig
	@$(CARGO) build --release --package quoit-capi
	@rm -rf $(CAPI) && mkdir -p $(CAPI)/include $(CAPI)/lib $(CAPI)/pkgconfig
	@cp crates/quoit-capi/include/quoit.h crates/quoit-capi/include/quoit-layout.txt $(CAPI)/include
	@cp $(RELEASE)/libquoit_capi.a $(CAPI)/lib/libquoit.a
	@cp $(RELEASE)/libquoit_capi.so $(CAPI)/lib/libquoit.so.$(VERSION)
	@ln -s libquoit.so.$(VERSION) $(CAPI)/lib/libquoit.so.0
	@ln -s libquoit.so.0 $(CAPI)/lib/libquoit.so
	@sed 's/@VERSION@/$(VERSION)/; s,@PREFIX@,$${pcfiledir}/..,; s,@LIB@,lib,' crates/quoit-capi/quoit.pc.in > $(CAPI)/pkgconfig/quoit.pc
	@echo "built $(CAPI); use it with PKG_CONFIG_PATH=$(CURDIR)/$(CAPI)/pkgconfig"

GO ?= go
# Modules below go/, each tested by itself; those that have dependencies are apart from the one that users import.
GO_MODULES = $(patsubst %/go.mod,%,$(shell find go dist -name go.mod -not -path 'go/doors/*'))
# Those that are tested under the race detector.
GO_RACED := go go/fasthttp go/tests
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GO_TOOLS := $(CURDIR)/target/go-tools

# Where libquoit is loaded, all runs under the race detector; where it is linked, without. Whether it is loaded or linked makes no
# other difference, so that two runs see what four would. What is long (-short leaves it out) runs under the race detector alone.
# Without cgo the module's tests are run from go/nocgo, whose import is laid over them: the module itself cannot require that.
# A program under the race detector waits at its end for what other goroutines may still do: a tenth of a second in place
# of a whole one, as each package is such a program, and some of their tests start several.
go: go-build ## Build libquoit, and lint and test the Go module: with it under the race detector, linked, without it, and without cgo
	@$(MAKE) --no-print-directory go-tests

go-build: capi
	@$(MAKE) --no-print-directory go-lints

# Apart, so that they run side by side where make has jobs for it: most of these tests wait for a peer. Java's take longest of what
# `make test` runs beside these, and have to get the processors first.
go-tests:
	@$(STAGE) Go nice -n 5 $(MAKE) --no-print-directory go-loaded go-linked go-without-cgo

go-lints:
	@$(STAGE) "Go's lints" $(MAKE) --no-print-directory go-vet

go-tools:
	@command -v $(GO) >/dev/null || { \
		echo "make: go was not found; install Go 1.26 or newer (https://go.dev/dl) and try again" >&2; exit 1; }
	@GOBIN=$(GO_TOOLS) $(GO) install $(STATICCHECK) || \
		echo "make: staticcheck could not be fetched; the Go sources are linted by go vet alone" >&2

# What a vet has compiled, its tests do not compile once more; under the race detector all is compiled again: what users import is
# tested so, and the examples are in doors-go.
go-vet: go-tools
	@unformatted=$$(gofmt -l go); test -z "$$unformatted" || { echo "make: run gofmt -w on: $$unformatted" >&2; exit 1; }
	@set -e; for module in $(GO_MODULES); do \
		echo "go: $$module"; cd $(CURDIR)/$$module; $(GO) vet ./...; \
		if test -x $(GO_TOOLS)/staticcheck; then $(GO_TOOLS)/staticcheck ./...; fi; done
	@set -e; for module in $(GO_RACED); do cd $(CURDIR)/$$module; $(GO) build -race ./...; done
	@set -e; cd go; for build in "-tags=quoit_static" "-tags=quoit_std"; do echo "go: $$build"; $(GO) vet $$build ./...; done
	@set -e; cd go; export CGO_ENABLED=0; echo "go: CGO_ENABLED=0"; $(GO) vet ./...; (cd nocgo; $(GO) vet ./...); \
		echo "go: on macOS and Windows"; (cd tests; $(GO) build -o $(GO_TOOLS)/typecheck ./typecheck); $(GO_TOOLS)/typecheck darwin windows

# Go remembers results, and does not see that the library is another one: hence -count=1.
go-loaded:
	@set -e; for module in $(GO_RACED); do \
		echo "go: $$module"; cd $(CURDIR)/$$module; \
		$(WITH_LIBRARY) GORACE=atexit_sleep_ms=100 $(GO) test -count=1 -race ./...; done
	@set -e; for module in $(filter-out $(GO_RACED),$(GO_MODULES)); do \
		echo "go: $$module"; cd $(CURDIR)/$$module; $(WITH_LIBRARY) $(GO) test -count=1 ./...; done

go-linked:
	@set -e; cd go; for build in "-tags=quoit_static" "-tags=quoit_std"; do \
		echo "go: $$build"; $(GO) test -short -count=1 $$build ./...; done

go-without-cgo:
	@set -e; cd go; export CGO_ENABLED=0; echo "go: CGO_ENABLED=0"; $(GO) test -short -count=1 ./...; \
		echo "go: CGO_ENABLED=0 with go/nocgo"; cd nocgo; \
		$(WITH_LIBRARY) $(GO) test -short -count=1 -overlay testdata/overlay.json -tags quoit_nocgo github.com/quoit-io/quoit/go/...

MAVEN ?= mvn
JAVA_BUILD = JAVA_HOME=$$(java/jdk) $(WITH_LIBRARY) \
	$(MAVEN) --quiet --batch-mode --no-transfer-progress --file java/pom.xml

# Runs what a release runs, too: the documentation is linted. That costs a few seconds.
# What Java 17 to 21 call libquoit by, where they look for it: beside that.
jni: capi
	@$(CARGO) build --release --package quoit-jni
	@cp $(RELEASE)/libquoit_jni.so $(CAPI)/lib

java: java-build ## Build libquoit, and build and test the Netty transport with it, on both engines; a few minutes
	@$(MAKE) --no-print-directory java-tests

java-build: jni
	@java/jdk >/dev/null
	@command -v $(MAVEN) >/dev/null || { \
		echo "make: mvn was not found; install Maven 3.8 or newer (https://maven.apache.org) and try again" >&2; exit 1; }
	@# But what has the packed jars alone, which are not packed yet.
	@$(STAGE) "building for Java" env $(JAVA_BUILD) test-compile -Pdist --projects '!packed-jar-test'

java-tests:
	@$(STAGE) Java env $(JAVA_BUILD) verify -Pdist

java-17: jni ## Test the Netty transport, and what stands on it, on Java 17, where it calls libquoit by JNI; ARGS=-Psuite as java-suite
	@java/jdk >/dev/null
	@java/jdk 17 >/dev/null
	JAVA_17_HOME=$$(java/jdk 17) $(JAVA_BUILD) verify -Pjava-17 $(ARGS)

java-suite: jni ## Test the Netty transport with all of Netty's own tests, also with limits that are always short
	@java/jdk >/dev/null
	$(JAVA_BUILD) verify -Psuite

JAVA_DIST := target/java

java-dist: jni ## Pack the Netty transport into target/java: its jars, those of their sources and documentation, libquoit's
	@java/jdk >/dev/null
	$(JAVA_BUILD) clean package -Pdist -Dmaven.test.skip=true
	@rm -rf $(JAVA_DIST) && mkdir -p $(JAVA_DIST)
	@cp java/quoit-*/target/quoit-*-$(VERSION)*.jar $(JAVA_DIST)
	@echo "packed $(JAVA_DIST)"

DOTNET ?= dotnet
DOTNET_REMEDY := install the .NET SDK 10 or newer, https://dotnet.microsoft.com/download
# A folder or feed of packages to use in place of the configured ones.
DOTNET_SOURCE = $(if $(DOTNET_NUGET_OFFLINE),--source "$(DOTNET_NUGET_OFFLINE)")

# The build has every analyzer's warnings and those of code style as errors, so that format looks for white space alone.
dotnet: dotnet-build ## Build libquoit, and lint and test the Kestrel transport, its samples and its package
	@$(MAKE) --no-print-directory dotnet-tests

dotnet-build: capi
	@$(STAGE) "building for .NET" $(MAKE) --no-print-directory dotnet-lints

dotnet-lints:
	@command -v $(DOTNET) >/dev/null || { echo "make: dotnet was not found; $(DOTNET_REMEDY)" >&2; exit 1; }
	$(DOTNET) restore dotnet/Quoit.slnx --nologo --verbosity quiet $(DOTNET_SOURCE)
	$(DOTNET) format whitespace dotnet/Quoit.slnx --no-restore --verify-no-changes
	$(DOTNET) build dotnet/Quoit.slnx --no-restore --nologo --verbosity quiet

dotnet-tests:
	@$(STAGE) .NET env $(WITH_LIBRARY) $(DOTNET) test dotnet/Quoit.slnx --no-build --nologo \
		--results-directory target/dotnet/results

AUTOBAHN := target/autobahn
GO_DOORS = $(WITH_LIBRARY) QUOIT_PEERS=$(CURDIR)/$(TARGET)/peers

doors: doors-go doors-java doors-rust ## Run software that people use over the doors: gRPC, QUIC, DNS, Caddy, h2spec, Autobahn, WebFlux, Vert.x, Redis
	@if go/doors/autobahn/install --check; then $(MAKE) --no-print-directory doors-websocket; \
	elif test -n "$${CI:-}"; then exit 1; \
	else echo "make: doors-websocket is left out, for what is said above" >&2; fi

doors-rust: toolchain ## Run what takes long in async Rust: examples with TLS, tonic, WebSockets and QUIC, 1 GiB through each, 20,000 connections
	$(CARGO) clippy --package quoit-async --all-targets --features examples --profile test -- --deny warnings
	RUSTDOCFLAGS="--deny warnings" $(CARGO) doc --profile test --package quoit-async --no-deps --all-features
	QUOIT_TEST_BYTES=1073741824 QUOIT_TEST_CONNECTIONS=20000 $(CARGO) test --package quoit-async --features examples

doors-go: capi door-peers
	@command -v $(GO) >/dev/null || { \
		echo "make: go was not found; install Go 1.26 or newer (https://go.dev/dl) and try again" >&2; exit 1; }
	cd go/doors && $(GO) vet ./... && $(GO_DOORS) $(GO) test -timeout 20m ./...
	cd go/examples && $(WITH_LIBRARY) $(GO) test -race -count=1 ./...
	cd go/prometheus && $(WITH_LIBRARY) $(GO) test -race -count=1 ./...
	@# `make test` finds what does not compile there; this finds the rest.
	cd go && for system in darwin windows; do CGO_ENABLED=0 GOOS=$$system $(GO) vet ./... || exit 1; done

doors-websocket: capi door-peers
	@command -v $(GO) >/dev/null || { \
		echo "make: go was not found; install Go 1.26 or newer (https://go.dev/dl) and try again" >&2; exit 1; }
	go/doors/autobahn/install $(AUTOBAHN)
	cd go/doors && $(GO_DOORS) QUOIT_WSTEST=$(CURDIR)/$(AUTOBAHN)/wstest $(GO) test -timeout 60m -v -run WebSocket ./...

doors-java: jni
	@java/jdk >/dev/null
	@command -v $(MAVEN) >/dev/null || { \
		echo "make: mvn was not found; install Maven 3.8 or newer (https://maven.apache.org) and try again" >&2; exit 1; }
	$(JAVA_BUILD) verify -Pdoors --projects doors --also-make -Dtest='io.quoit.doors.*Test' \
		-Dsurefire.failIfNoSpecifiedTests=false

lab: toolchain lab-peers ## Run every experiment quickly and make one page of the results; about half an hour
	@$(CARGO) build --release $(LAB_PROGRAMS)
	@folder=quoit-lab-results/quick-$$(date -u +%Y%m%dT%H%M%SZ); failed=; lacking=; \
	for file in lab/experiments/*.toml; do \
		name=$$(basename $$file .toml); \
		$(RELEASE)/quoit lab run $$name --quick --out $$folder/$$name || \
			case $$? in 4) lacking="$$lacking $$name";; *) failed="$$failed $$name";; esac; \
	done; \
	$(RELEASE)/quoit lab report $$folder/*/results.json --html $$folder/report.html; \
	test -z "$$lacking" || echo "make: left out, as this machine lacks what they need (said above):$$lacking" >&2; \
	test -z "$$failed" || { echo "make: not measured to the end:$$failed" >&2; exit 1; }

# Each experiment's results take the place of its file in lab/results, from which `quoit lab pages` writes the pages.
LAB_PROGRAMS := --package quoit-cli --package floor-epoll --package floor-uring --package lab-sinks --package lab-dns
RUNS := quoit-lab-results/kept

# Asked before anything is built.
named:
	@test -n "$(NAME)" || { echo "make: say which: make result NAME=plaintext (\`quoit lab list\` has all)" >&2; exit 1; }

result: named toolchain lab-peers ## Run the experiment NAME, keep its results and write its page; ARGS="--pairs 6 --seconds 0.5"
	@$(CARGO) build --release $(LAB_PROGRAMS)
	@rm -rf $(RUNS)/$(NAME)
	@$(RELEASE)/quoit lab run $(NAME) --out $(RUNS)/$(NAME) $(ARGS)
	@$(RELEASE)/quoit lab pages $(RUNS)/$(NAME)/results.json

results: toolchain lab-peers ## Run all experiments on a quiet machine, keep their results and write the pages; many hours
	@$(CARGO) build --release $(LAB_PROGRAMS)
	@failed=; lacking=; \
	for file in lab/experiments/*.toml; do \
		name=$$(basename $$file .toml); rm -rf $(RUNS)/$$name; \
		$(RELEASE)/quoit lab run $$name --out $(RUNS)/$$name $(ARGS) && \
			$(RELEASE)/quoit lab pages $(RUNS)/$$name/results.json || \
			case $$? in 4) lacking="$$lacking $$name";; *) failed="$$failed $$name";; esac; \
	done; \
	test -z "$$lacking" || echo "make: left out, as this machine lacks what they need (said above):$$lacking" >&2; \
	test -z "$$failed" || { echo "make: not measured to the end, so what was kept of them stays:$$failed" >&2; exit 1; }

result-pages: toolchain ## Write the pages of results and the charts from the files in lab/results
	@$(CARGO) run --quiet --package quoit-cli -- lab pages

lab-peers: jni ## Build the rivals of the lab into target/peers; what cannot be built is named and left out
	@lab/peers/build $(TARGET)/peers

# Those that serve on Quoit, which the siege and the doors need.
door-peers: jni ## Build the lab's servers on the doors of Go, Java and .NET into target/peers
	@lab/peers/build $(TARGET)/peers quoit-go netty kestrel axum async-services

lab-peers-check: toolchain lab-peers ## Lint the rivals' sources and check that each answers as Quoit does
	cd lab/peers/rust/rivals && $(CARGO) fmt --all --check
	cd lab/peers/rust/rivals && $(CARGO) clippy --release --locked --all-targets --target-dir ../../../../target/rivals -- --deny warnings
	@command -v go >/dev/null || { echo "make: go was not found; the Go sources are not linted" >&2; exit 0; } && \
		cd lab/peers/go && test -z "$$(gofmt -l .)" && go vet -tags "poll_opt quoit_static" ./...
	@if command -v $(MAVEN) >/dev/null && java/jdk >/dev/null; then \
		$(JAVA_BUILD) -P lab --projects ../lab/peers/java --also-make -Dtest='io.quoit.peers.*Test' \
			-Dsurefire.failIfNoSpecifiedTests=false verify; \
	else echo "make: Maven or a JDK 25 was not found; the Java sources are not tested" >&2; fi
	$(CARGO) test --package quoit-cli --test program rivals -- --nocapture

hunt: toolchain ## Fuzz each decoder for a few seconds, then run the loop on the simulated kernel until a fault is found or you stop it
	@$(MAKE) --no-print-directory fuzz SECONDS=$${FUZZ_SECONDS:-5}
	@$(CARGO) build --profile hunt --package quoit-sim
	@$(TARGET)/hunt/quoit-sim run --seeds 0 --from $${FROM:-0}

soak: toolchain ## Serve under peers of every kind for MINUTES=n (5), and check bytes, memory and descriptors; SEED=n repeats
	@$(CARGO) test --package quoit-cli --test soak -- --ignored --nocapture

SIEGE := $(CARGO) test --package quoit-cli --test siege -- --ignored

siege: toolchain door-peers ## Serve a client that behaves among peers of each kind that keeps others from being served; ONLY=netty
	@$(SIEGE) --nocapture --skip page $(ONLY)

siege-page: toolchain ## Add what sieges have found to lab/siege/results.json, and write the table of docs/reliability.md from it
	@$(SIEGE) --exact results::page

hunt-proof: toolchain ## Show that the simulator finds bugs: build it with each of a list, and count the seeds it takes
	@crates/quoit-sim/bugs/prove.sh

KERNELS := $(CARGO) run --quiet --profile test --package quoit-kernels --bin quoit-kernels --

kernels: toolchain ## Boot the kernels of lab/kernels/list.toml in virtual machines and run everything there; ARGS="--help" says more
	@$(KERNELS) $(ARGS)

kernels-quick: toolchain ## The same with two kernels and the checks that find most: before engine/ or event_loop/ is committed
	@$(KERNELS) --quick $(ARGS)

kernels-page: toolchain ## Add the results of RUNS="folder ..." to lab/kernels/results.json, and write docs/kernels.md from it
	@$(KERNELS) --keep $(RUNS)

COLD_TURN := $(CARGO) run --quiet --release --package quoit-cold-turn --

cold-turn: toolchain ## Count what a turn executes and touches, under valgrind, keep it in lab/turn/results.json and write docs/performance.md
	@command -v valgrind >/dev/null || { \
		echo "make: valgrind was not found; install it (Debian: apt install valgrind)" >&2; exit 1; }
	@$(COLD_TURN) trace --keep lab/turn/results.json $(ARGS)
	@$(COLD_TURN) page lab/turn/results.json lab/turn/ends.json docs/performance.md

ends: toolchain ## Measure what it costs when up to 10,000 connections end at once, keep it in lab/turn/ends.json and write docs/performance.md
	@$(COLD_TURN) ends --keep lab/turn/ends.json $(ARGS)
	@$(COLD_TURN) page lab/turn/results.json lab/turn/ends.json docs/performance.md

DEPLOY := $(CARGO) run --quiet --profile test --package quoit-deploy --

restarts: capi ## Restart quoit serve and the doors under load, fail if a request is lost, and keep the results; a few minutes
	@DOTNET_NUGET_OFFLINE="$(DOTNET_NUGET_OFFLINE)" $(WITH_LIBRARY) lab/restarts/run
	@$(MAKE) --no-print-directory restarts-page

restarts-page: toolchain ## Write the table of docs/restarts.md from lab/restarts/results.json
	@$(DEPLOY) restarts-page > $(TARGET)/restarts.md && mv $(TARGET)/restarts.md docs/restarts.md

dashboard: toolchain ## Write deploy/grafana/dashboard.json from the table of counters
	@$(DEPLOY) dashboard > $(TARGET)/dashboard.json && mv $(TARGET)/dashboard.json deploy/grafana/dashboard.json

# What go.mod there names is what the runtimes have: `go get -u` in that folder takes newer ones.
seccomp: toolchain ## Write the default profiles of Docker and containerd, with io_uring allowed, into target/seccomp
	@command -v $(GO) >/dev/null || { \
		echo "make: go was not found; install Go 1.26 or newer (https://go.dev/dl) and try again" >&2; exit 1; }
	@mkdir -p $(TARGET)/seccomp
	@set -e; for runtime in docker containerd; do \
		(cd deploy/seccomp/upstream && $(GO) run . $$runtime) > $(TARGET)/seccomp/$$runtime-default.json; \
		version=$$(sed -n 's/^\t\(.*\(profiles\|containerd\/v2\)[^ ]*\) \(v[^ ]*\)$$/\1 \3/p' deploy/seccomp/upstream/go.mod | \
			grep -e $$(test $$runtime = docker && echo moby || echo containerd)); \
		$(DEPLOY) add --default $(TARGET)/seccomp/$$runtime-default.json --origin "the default of $$version" \
			> $(TARGET)/seccomp/$$runtime.json; \
		echo "wrote $(TARGET)/seccomp/$$runtime.json: the default of $$version and io_uring"; done

# Under strace tests take longer, and some fail for it: what counts is what was called. Left out is what starts strace itself, or
# other programs.
seccomp-trace: toolchain ## Trace the suites of the program, and write deploy/seccomp/quoit.json from it; needs strace
	@command -v strace >/dev/null || { echo "make: strace was not found (Debian: apt install strace)" >&2; exit 1; }
	@$(CARGO) build --quiet --profile test --package quoit-deploy
	@$(CARGO) test --quiet --profile test --package quoit-cli --no-run
	@strace -f -q -s 64 -e signal=none -o '|$(TARGET)/debug/quoit-deploy trace > $(TARGET)/seccomp-trace.json' \
		$(CARGO) test --quiet --profile test --package quoit-cli --test program --test load --no-fail-fast -- \
		--skip lab --skip rivals --skip faults --skip network --skip profiles --skip units || true
	@test -s $(TARGET)/seccomp-trace.json && mv $(TARGET)/seccomp-trace.json deploy/seccomp/quoit.json

KUBERNETES := target/kubernetes

kubernetes: toolchain ## Fetch helm, kubeconform and an API server once, and let them judge deploy/kubernetes; minutes the first time
	@command -v $(GO) >/dev/null || { \
		echo "make: go was not found, by which helm and an API server are fetched; install Go 1.26 or newer (https://go.dev/dl)" >&2; \
		exit 1; }
	@deploy/kubernetes/fetch $(KUBERNETES)
	@$(CARGO) test --package quoit-deploy --test kubernetes
	@$(CARGO) test --package quoit-cli --test program kubernetes

kubernetes-base: ## Write what kustomize has of the chart, after that was changed
	@test -x $(KUBERNETES)/bin/helm || { echo "make: helm is not there; run: make kubernetes" >&2; exit 1; }
	@deploy/kubernetes/write-base $(KUBERNETES)/bin/helm deploy/kubernetes

DIST := $(CARGO) run --quiet --profile test --package quoit-dist --

dist: toolchain ## Build all packages into target/dist: libraries, programs, archives, deb, rpm, image, crates, modules for Go, Java and .NET
	@$(DIST) build $(ARGS)

dist-check: toolchain ## Install and use what target/dist has in root file systems of distributions, as root; ARGS="--only debian-12"
	@$(DIST) check $(ARGS)

dist-page: toolchain ## Keep what the last dist-check found in dist/results.json, and write the tables of docs/install.md from it
	@$(DIST) page

dist-twice: toolchain ## Build all packages in two clean copies of the commit, and compare every byte
	@$(DIST) twice

# It comes by the Go proxy, once; the version is fixed, so that a new one fails nothing by itself.
ACTIONLINT := github.com/rhysd/actionlint/cmd/actionlint@v1.7.7

workflow-lint: ## Check the workflows of .github/workflows with actionlint, which Go fetches once
	@command -v $(GO) >/dev/null || { echo "make: go was not found (https://go.dev/dl, 1.26 or newer)" >&2; exit 1; }
	@$(GO) run $(ACTIONLINT) && echo "the workflows have no faults that actionlint knows"

public-api: toolchain ## Write crates/quoit/public-api.txt, the public API of the core, after it was changed on purpose
	@QUOIT_WRITE_PUBLIC_API=1 $(CARGO) test --quiet --package quoit-public-api the_public_api

# The oldest Rust that builds it, as Cargo.toml says: what a newer one has is used by mistake too easily.
MSRV = $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml | head -1)

msrv: toolchain ## Build everything with the oldest Rust that Cargo.toml allows, if rustup has it
	@command -v rustup >/dev/null || { echo "make: rustup was not found, so Rust $(MSRV) was not tried" >&2; exit 0; }; \
	if rustup run $(MSRV) rustc --version >/dev/null 2>&1; then \
		rustup run $(MSRV) cargo check --workspace --all-targets --locked --target-dir target/msrv; \
	elif test -n "$${CI:-}"; then \
		echo "make: Rust $(MSRV) is missing; run: rustup toolchain install $(MSRV) --profile minimal" >&2; exit 1; \
	else echo "make: Rust $(MSRV) was not tried; run: rustup toolchain install $(MSRV) --profile minimal" >&2; fi

deny: toolchain ## Check licences, advisories and doubled versions of all dependencies, with cargo-deny
	@$(CARGO) deny --version >/dev/null 2>&1 || { \
		echo "make: cargo-deny was not found; run: cargo install cargo-deny --locked" >&2; exit 1; }
	$(CARGO) deny --locked check

# What loom runs takes its types in place of the standard library's, so the cfg is given to one test program, not to what it
# depends on.
LOOM := quoit:sync quoit-async:mailbox
LOOM_PACKAGES = $(foreach models,$(LOOM),$(firstword $(subst :, ,$(models))))

loom: toolchain ## Try every order in which threads can meet in the core and in quoit-async, with loom; minutes
	@set -e; for models in $(LOOM); do \
		program=$$($(CARGO) rustc --profile test --lib --package $${models%:*} --message-format json-render-diagnostics -- --cfg quoit_loom | \
			sed -n 's/.*"executable":"\([^"]*\)".*/\1/p'); test -n "$$program"; \
		(cd crates/$${models%:*} && $$program $${models#*:}::); done

# What meets no system call: the rest of their tests say so, or stand in modules that are not listed. Miri is slow, so that a few
# random cases have to do, and those that take many steps each are left out.
MIRI_CORE := chunks:: pool:: outbound:: timers:: remote:: reserved:: event_loop::table engine::completions engine::enters \
	engine::uring::buffer_ring engine::uring::user_data id::

miri: toolchain ## Interpret the unit tests of memory, timers, queues and mailboxes with Miri, which sees undefined behaviour
	@$(CARGO) +nightly miri --version >/dev/null 2>&1 || { \
		echo "make: Miri was not found; run: rustup toolchain install nightly --profile minimal --component miri,rust-src" >&2; \
		exit 1; }
	MIRIFLAGS=-Zmiri-disable-isolation PROPTEST_CASES=4 $(CARGO) +nightly miri test --package quoit --lib --target-dir target/miri -- $(MIRI_CORE)
	@# The threads that look names up end some time after who asked them, which Miri takes for a leak.
	MIRIFLAGS=-Zmiri-disable-isolation PROPTEST_CASES=4 $(CARGO) +nightly miri test --package quoit-async --lib --target-dir target/miri -- --skip lookups::

# The stable compiler has the sanitizer and its runtime; RUSTC_BOOTSTRAP=1 lets it use them.
ASAN := RUSTC_BOOTSTRAP=1 CARGO_PROFILE_TEST_DEBUG=line-tables-only RUSTFLAGS="-Zsanitizer=address -Cforce-frame-pointers=yes" \
	LSAN_OPTIONS=suppressions=$(CURDIR)/crates/quoit/tests/leaks-on-purpose:print_suppressions=0
# Tests of what is mapped, of which the sanitizer maps much itself.
ASAN_SKIPPED := --skip what_a_loop_takes_is_known --skip pools_are_as_large_as_configured_and_stay_so_in_a_flood
HOST = $(shell rustc -vV | sed -n 's/^host: //p')

asan: toolchain ## Run the core's tests, both engines' conformance suite among them, under AddressSanitizer
	@# As programs, which the tests start: `cargo test --examples` would make test binaries of them.
	$(ASAN) $(CARGO) build --package quoit --examples --target $(HOST) --target-dir target/asan
	$(ASAN) $(CARGO) test --package quoit --lib --tests --target $(HOST) --target-dir target/asan --no-fail-fast \
		-- $(ASAN_SKIPPED)

fuzz: toolchain ## Give the decoders of untrusted bytes whatever a fuzzer invents, each for SECONDS (default 60)
	@fuzz/run $(or $(SECONDS),60)
