# The only commands a newcomer needs. Each does its own set-up on a machine with the toolchains.

CARGO ?= cargo
RELEASE := target/release

.DEFAULT_GOAL := help
.PHONY: help demo test bench hunt hunt-proof toolchain

help: ## Say what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

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

bench: toolchain ## Measure both engines against minimal hand-written servers; takes about half an hour
	@$(CARGO) build --release --package quoit-cli --package floor-epoll --package floor-uring
	@$(RELEASE)/quoit lab bench

hunt: toolchain ## Run the loop on the simulated kernel, seed after seed, until a fault is found or you stop it
	@$(CARGO) build --profile hunt --package quoit-sim
	@target/hunt/quoit-sim run --seeds 0 --from $${FROM:-0}

hunt-proof: toolchain ## Show that the simulator finds bugs: build it with each of a list, and count the seeds it takes
	@crates/quoit-sim/bugs/prove.sh
