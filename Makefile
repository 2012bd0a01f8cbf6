# The only commands a newcomer needs. Each does its own set-up on a machine with the toolchains.

CARGO ?= cargo
RELEASE := target/release
# What measurements say that they were made from; `-dirty` if files were changed. Empty outside a repository.
export QUOIT_COMMIT ?= $(shell git describe --always --dirty --abbrev=12 --exclude='*' 2>/dev/null)

.DEFAULT_GOAL := help
.PHONY: help demo test bench capi hunt hunt-proof lab lab-peers lab-peers-check soak toolchain

help: ## Say what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

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

test: toolchain ## Format check, lints, documentation, all tests
	@$(CARGO) fmt --version >/dev/null 2>&1 || { \
		echo "make: rustfmt is missing; run: rustup component add rustfmt clippy" >&2; exit 1; }
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --profile test -- --deny warnings
	RUSTDOCFLAGS="--deny warnings" $(CARGO) doc --package quoit --no-deps
	$(CARGO) test --workspace

bench: toolchain ## Measure both engines against minimal hand-written servers; takes an hour or two
	@$(CARGO) build --release --package quoit-cli --package floor-epoll --package floor-uring
	@$(RELEASE)/quoit lab run floor
	@$(RELEASE)/quoit lab run bulk
	@$(RELEASE)/quoit lab run idle

CAPI := target/capi
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)

capi: toolchain ## Build the C library into target/capi: include, lib (shared and static) and pkgconfig
	@$(CARGO) build --release --package quoit-capi
	@rm -rf $(CAPI) && mkdir -p $(CAPI)/include $(CAPI)/lib $(CAPI)/pkgconfig
	@cp crates/quoit-capi/include/quoit.h crates/quoit-capi/include/quoit-layout.txt $(CAPI)/include
	@cp $(RELEASE)/libquoit_capi.a $(CAPI)/lib/libquoit.a
	@cp $(RELEASE)/libquoit_capi.so $(CAPI)/lib/libquoit.so.$(VERSION)
	@ln -s libquoit.so.$(VERSION) $(CAPI)/lib/libquoit.so.0
	@ln -s libquoit.so.0 $(CAPI)/lib/libquoit.so
	@sed 's/@VERSION@/$(VERSION)/' crates/quoit-capi/quoit.pc.in > $(CAPI)/pkgconfig/quoit.pc
	@echo "built $(CAPI); use it with PKG_CONFIG_PATH=$(CURDIR)/$(CAPI)/pkgconfig"

lab: toolchain lab-peers ## Run every experiment quickly and make one page of the results; about half an hour
	@$(CARGO) build --release --package quoit-cli --package floor-epoll --package floor-uring
	@folder=quoit-lab-results/quick-$$(date -u +%Y%m%dT%H%M%SZ); failed=; \
	for file in lab/experiments/*.toml; do \
		name=$$(basename $$file .toml); \
		$(RELEASE)/quoit lab run $$name --quick --out $$folder/$$name || failed="$$failed $$name"; \
	done; \
	$(RELEASE)/quoit lab report $$folder/*/results.json --html $$folder/report.html; \
	test -z "$$failed" || { echo "make: not measured to the end:$$failed" >&2; exit 1; }

lab-peers: ## Build the rivals of the lab into target/peers; what cannot be built is named and left out
	@lab/peers/build target/peers

lab-peers-check: toolchain lab-peers ## Lint the rivals' sources and check that each answers as Quoit does
	cd lab/peers/rust/rivals && $(CARGO) fmt --all --check
	cd lab/peers/rust/rivals && $(CARGO) clippy --release --locked --all-targets --target-dir ../../../../target/rivals -- --deny warnings
	@command -v go >/dev/null || { echo "make: go was not found; the Go sources are not linted" >&2; exit 0; } && \
		cd lab/peers/go && test -z "$$(gofmt -l .)" && go vet -tags poll_opt ./...
	$(CARGO) test --package quoit-cli --test program rivals -- --nocapture

hunt: toolchain ## Run the loop on the simulated kernel, seed after seed, until a fault is found or you stop it
	@$(CARGO) build --profile hunt --package quoit-sim
	@target/hunt/quoit-sim run --seeds 0 --from $${FROM:-0}

soak: toolchain ## Serve under peers of every kind for MINUTES=n (5), and check bytes, memory and descriptors; SEED=n repeats
	@$(CARGO) test --package quoit-cli --test soak -- --ignored --nocapture

hunt-proof: toolchain ## Show that the simulator finds bugs: build it with each of a list, and count the seeds it takes
	@crates/quoit-sim/bugs/prove.sh
