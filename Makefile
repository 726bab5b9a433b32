# What a person types. `make` alone lists it.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c

# `make run DATA=/var/lib/situ`, `make fuzz SECONDS_EACH=600`, `make simulate ROUNDS=100`
DATA ?= situ-data
SECONDS_EACH ?= 60
ROUNDS ?= 20

LOCKED_APART := crates/compare fuzz

.PHONY: help run build test cargo packages locks fuzz simulate bench loom miri

help:
	@echo 'make run       build the program and serve memcached clients on 127.0.0.1:11211'
	@echo 'make test      everything that has to pass: format, lints, documentation, all tests'
	@echo 'make bench     measure this machine: a few workloads, and a page to look at'
	@echo 'make simulate  the simulated tests with $(ROUNDS) times as many seeds, new ones each time'
	@echo 'make miri      the unsafe code under Miri (needs a nightly compiler with miri)'
	@echo 'make fuzz      each fuzz target for $(SECONDS_EACH) s (needs cargo-fuzz and a nightly compiler)'

cargo:
	@command -v cargo >/dev/null || { \
	  echo "cargo is missing. Get Rust 1.88 or later:"; \
	  echo "  curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh"; exit 1; }

build: cargo
	cargo build --release --locked -p situ-cli

run: build
	target/release/situ serve "$(DATA)"

# The tests compare with memcached and its clients; without them, those tests say that they are skipped.
packages: cargo
	@missing=(); \
	command -v gcc >/dev/null || missing+=(gcc libc6-dev); \
	command -v memcached >/dev/null || missing+=(memcached); \
	command -v memccapable >/dev/null || missing+=(libmemcached-tools); \
	if [ $${#missing[@]} -gt 0 ]; then \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$${missing[@]}" \
	      || echo "could not install: $${missing[*]}"; \
	  else \
	    echo "missing: $${missing[*]}; install with: sudo apt-get install $${missing[*]}"; \
	  fi; \
	  command -v gcc >/dev/null || { echo "without a C compiler, Zstandard cannot be built"; exit 1; }; \
	fi

# Two crates are workspaces of their own, and `make test` does not build them: their lock files must not be forgotten.
locks: cargo
	@for crate in $(LOCKED_APART); do \
	  cargo update --quiet --workspace --locked --manifest-path $$crate/Cargo.toml \
	    || { echo "$$crate/Cargo.lock is out of date: cargo update --workspace --manifest-path $$crate/Cargo.toml"; exit 1; }; \
	done

test: packages locks
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --locked
	@log=$$(mktemp); code=0; \
	$(MAKE) --no-print-directory loom 2>&1 | tee "$$log" || code=$$?; \
	cargo test --workspace --no-fail-fast --locked 2>&1 | tee -a "$$log" || code=$$?; \
	awk '/^test result:/ { passed += $$4; failed += $$6 } END { printf "%d passed, %d failed\n", passed, failed }' "$$log"; \
	rm -f "$$log"; exit $$code

# Every interleaving of two and three threads on the memtable, the engine's only lock-free and only unsafe part.
loom: cargo
	RUSTFLAGS='--cfg loom' LOOM_MAX_PREEMPTIONS=2 CARGO_TARGET_DIR=target/loom \
	  cargo test --locked -p situ-engine --lib memtable::model

miri: cargo
	@cargo +nightly miri --version >/dev/null 2>&1 || { echo "miri is missing: rustup +nightly component add miri"; exit 1; }
	MIRIFLAGS=-Zmiri-strict-provenance cargo +nightly miri test --locked -p situ-engine --lib memtable

simulate: cargo
	SITU_SIM_ROUNDS=$(ROUNDS) SITU_SIM_FROM=$$(date +%s) cargo test --release --locked \
	  -p situ-engine -p situ-log -p situ-compaction -p situ-sim --no-fail-fast

fuzz: cargo
	@cargo fuzz --version >/dev/null 2>&1 || { echo "cargo-fuzz is missing: cargo install cargo-fuzz"; exit 1; }
	@cd fuzz; cargo run --example corpus; \
	for target in $$(cargo +nightly fuzz list); do \
	  echo "== $$target"; cargo +nightly fuzz run "$$target" -- -max_total_time=$(SECONDS_EACH); done

bench: build
	target/release/situ bench --workloads fillseq,fillrandom,readrandom,readseq,seekrandom --keys 1m \
	  --directory target/bench --output target/bench.json
	target/release/situ bench report target/bench.json --output target/bench.html
