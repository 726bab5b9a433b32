# What a person types. `make` alone lists it.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c

# `make run DATA=/var/lib/situ`, `make fuzz SECONDS_EACH=600`, `make simulate ROUNDS=100`
DATA ?= situ-data
SECONDS_EACH ?= 60
ROUNDS ?= 20

RUST := $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
# Cargo knows where it puts programs: CARGO_TARGET_DIR or its settings may say otherwise than `target`.
SITU := cargo run --quiet --release --locked -p situ-cli --
LOCKED_APART := lab/compare fuzz
# Pages without a sentence of more than 25 words.
PAGES := README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md docs/*.md docs/rooms/*.md docs/guide/*.md docs/formats/*.md

# What `make quick` leaves to `make test`: what takes seconds a test, most of it simulated crashes and faults at every step.
QUICK_LEAVES := alone:: power_failure random_faults manifest_copy:: spandb_holes:: postponed:: placement:: opened_for_one_write:: \
  open_tables:: crash full_disk metamorphic:: damage:: a_repaired_store_opens no_write_survives items_on_flash_outlive \
  closing_tells_the_device both_of_whose_disks names_that_are_no_lines total_memory:: physical_space:: throttle:: unit_elsewhere:: \
  unit_misbehaves:: debts:: kill:: transaction_threads:: a_store_closes_while an_iterator_gives_each_entry that_lose_power \
  random_tasks emulated:: on_device:: chip:: little_memory:: many_keyspaces:: item_count:: wrong_clock:: back_pressure:: memccapable \
  failures:: engines:: calibrate:: node::promise_1 serve::promise_1
QUICK_LEAVES_UNITS := promises_hold_at_every_crash_point a_run_that_is_stopped_leaves_nothing crash full_disk flash::tests::cache:: \
  checkpoints_give_up_log a_device_without_space simulated:: it_is_a_map_but_for an_item_takes_32_bytes

.PHONY: help run build release publish-check test quick bench-trimming arrows test-import cargo packages form locks deny evidence features fuzz simulate bench loom miri scripts study-postgres compare-builds paper-x-engine paper-spandb paper-u2cache paper-u2cache-page kills first-day fpga fpga-prove fpga-route java python python-wheel clients soft-roce test-nvme

help:
	@echo 'make run       build the program and serve memcached clients on 127.0.0.1:11211'
	@echo 'make release   an archive to install from: program, licenses, man pages, completions, systemd unit'
	@echo 'make publish-check  what a registry of crates demands of our manifests, and the order of publishing'
	@echo 'make test      everything that has to pass: format, lints, documentation, all tests'
	@echo 'make deny      licenses and known flaws of dependencies (cargo-deny); make test does this where cargo-deny is installed'
	@echo 'make evidence  the raw results behind docs/evidence, unpacked; tests read them'
	@echo 'make features  the library and the program with few of their features'
	@echo 'make arrows    the rooms of the code and their imports; fails if one runs up'
	@echo 'make quick     under three minutes where all is built: format, lints, unit tests, and a part of the other tests. It leaves out:'
	@echo '               crashes and faults at every step, rot, SpanDB'"'"'s holes, placement, what has to run alone, documentation, loom'
	@echo 'make test-import  situ import rocksdb (not in make test: compiles RocksDB, a quarter of an hour the first time)'
	@echo 'make bench     measure this machine: a few workloads, and a page to look at'
	@echo 'make compare-builds OLD=<commit>  that build and this one in turns: speed, processor time, tail, memory'
	@echo 'make paper-x-engine  experiments of X-Engine with an accelerator, which is a model (15 minutes)'
	@echo 'make paper-spandb    synced writes, as in the paper on SpanDB, on a disk in memory that takes time (8 minutes)'
	@echo 'make paper-u2cache  latencies of U2cache over shared memory and sockets, of Rust, Java and stock clients (six minutes)'
	@echo 'make kills     $(KILLS) kills of a served store and of the commands that copy it; every copy is compared (five minutes)'
	@echo 'make first-day  a new user'"'"'s first day, from the release archive to a restored backup (builds the archive; openssl)'
	@echo 'make paper-u2cache-page  its web pages: Tomcat, a database, and caches in turns (five minutes; mariadb-server, apache2-utils)'
	@echo 'make bench-trimming  what space costs a value log in writes, with and without trimming (docs/evidence/trimming.md)'
	@echo 'make study-postgres  what a fill factor costs and brings in PostgreSQL, on a plain and on a compressing disk (root; 40 minutes)'
	@echo 'make simulate  the simulated tests with $(ROUNDS) times as many seeds, new ones each time'
	@echo 'make miri      the unsafe code under Miri (needs a nightly compiler with miri)'
	@echo 'make fpga      the compaction unit in hardware, simulated: tests, cycles an entry, a waveform (needs verilator)'
	@echo 'make fpga-prove  proofs of its queues and its tournament (needs yosys; a minute)'
	@echo 'make fpga-route  that unit, routed for an ECP5-85F with three seeds (needs yosys and nextpnr-ecp5; half an hour)'
	@echo 'make soft-roce  tests over RDMA, in a virtual machine with Soft-RoCE (needs QEMU; downloads a kernel the first time)'
	@echo 'make test-nvme  tests of the driver for NVMe drives, in a virtual machine with drives and an IOMMU (as make soft-roce)'
	@echo 'make java      the Java client: build and test (needs Maven and a JDK from 22 on in JAVA_HOME)'
	@echo 'make python    the package for Python: build and test (needs Python 3.9 or later, and once the internet)'
	@echo 'make python-wheel  a wheel of it in python/dist'
	@echo 'make kafka-kills  an application of Kafka Streams with Situ'"'"'s stores, killed at random for two minutes (as make java; the internet)'
	@echo 'make clients   stock memcached clients against each engine and memcached (needs the internet; ten minutes)'
	@echo 'make fuzz      each fuzz target for $(SECONDS_EACH) s (needs cargo-fuzz and a nightly compiler)'

cargo:
	@command -v cargo >/dev/null || { \
	  echo "cargo is missing. Get Rust $(RUST) or later:"; \
	  echo "  curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh"; exit 1; }
	@found=$$(cargo --version | awk '{ print $$2 }'); \
	oldest=$$(printf '%s\n' "$(RUST)" "$${found%%-*}" | sort -V | head -n 1); \
	[ "$$oldest" = "$(RUST)" ] || { \
	  echo "cargo $$found is too old: Rust $(RUST) or later is needed. Get it with: rustup update"; \
	  echo "or, without rustup: curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh"; exit 1; }
	@command -v "$${CC:-cc}" >/dev/null || { \
	  echo "a C compiler ($${CC:-cc}) is missing: it links Rust programs and builds Zstandard."; \
	  echo "  Debian, Ubuntu: sudo apt-get install gcc libc6-dev      Fedora: sudo dnf install gcc"; exit 1; }

build: cargo
	cargo build --release --locked -p situ-cli

# `situ-<version>-<target>.tar.gz`, in target/release-archive. TARGET=x86_64-unknown-linux-musl makes a program for that target.
TARGET ?=
release: cargo
	scripts/release.sh $(if $(TARGET),--target $(TARGET))

# Nothing is sent. The first half needs no network.
publish-check: cargo
	scripts/publish-order.py check
	@echo 'order of publishing:' $$(scripts/publish-order.py)
	cargo publish --workspace --dry-run --no-verify --allow-dirty --locked

run: build
	$(SITU) serve "$(DATA)"

# The tests compare with memcached and its clients, ask a PostgreSQL server, and make ext4 on drives that compress. Without these, the
# tests say that they are skipped. So do those of OpenCL: they run where a driver is installed (pocl-opencl-icd), which is not done here,
# because PoCL compiles the kernels for 80 s on two cores, once.
packages: cargo
	@missing=(); \
	command -v memcached >/dev/null || missing+=(memcached); \
	command -v memccapable >/dev/null || missing+=(libmemcached-tools); \
	ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null || missing+=(postgresql); \
	command -v mkfs.ext4 >/dev/null || [ -x /sbin/mkfs.ext4 ] || missing+=(e2fsprogs); \
	if [ $${#missing[@]} -gt 0 ]; then \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$${missing[@]}" \
	      || echo "could not install $${missing[*]}: the tests that need them are skipped"; \
	  else \
	    echo "missing: $${missing[*]}: the tests that need them are skipped."; \
	    echo "  Debian, Ubuntu: sudo apt-get install $${missing[*]}"; \
	  fi; \
	fi

# What checks the form of the code comes with rustup, but not with every cargo.
form: cargo
	@for tool in fmt clippy; do \
	  cargo "$$tool" --version >/dev/null 2>&1 || { \
	    echo "cargo $$tool is missing: rustup component add rustfmt clippy"; exit 1; }; \
	done

# Two crates are workspaces of their own, and `make test` does not build them: their lock files must not be forgotten.
locks: cargo
	@for crate in $(LOCKED_APART); do \
	  said=$$(cargo update --quiet --workspace --locked --manifest-path "$$crate/Cargo.toml" 2>&1) || { \
	    echo "$$said"; \
	    case "$$said" in \
	    *--locked*) echo "$$crate/Cargo.lock is out of date: cargo update --workspace --manifest-path $$crate/Cargo.toml" ;; \
	    *) echo "$$crate/Cargo.lock could not be checked, for the reason above" ;; \
	    esac; exit 1; }; \
	done

# Licenses, sources and known flaws of the packages that Situ builds on (deny.toml). The list of flaws comes over the network.
DENY = cargo deny --locked --workspace --all-features
deny: cargo
	@if ! cargo deny --version >/dev/null 2>&1; then \
	  echo "SKIPPED: licenses and known flaws of dependencies: cargo-deny is missing (cargo install cargo-deny)"; \
	else \
	  $(DENY) check licenses bans sources; \
	  if cargo deny fetch db >/dev/null 2>&1; then $(DENY) check --disable-fetch advisories; \
	  else echo "SKIPPED: known flaws of dependencies: the list of them cannot be fetched"; fi; \
	fi

# Tests read the raw results behind docs/evidence, which lie there packed.
evidence:
	@scripts/evidence.sh unpack

# Assertions that are too costly for a store in use.
# The second line has what tests of several crates ask for: with it, the libraries for C and Python need no other build of the engine.
CHECKS = --features situ-engine/costly-checks,situ-engine/tracing,situ-cli/postgres,situ-fpga/simulated,situ-accel/opencl,$\
situ-compaction/testing,situ-server/verbs,situ-client/tls

# A build of the whole workspace switches on every feature of `situ`. Here each build has one at most.
features: cargo
	cargo clippy --locked -p situ --all-targets -- -D warnings
	for feature in backup cache hash offload tracing; do cargo clippy --locked -p situ --features "$$feature" -- -D warnings || exit 1; done
	cargo clippy --locked -p situ-cli --no-default-features -- -D warnings
	cargo clippy --locked -p situ-accel --all-targets --features cuda -- -D warnings
	cargo clippy --locked -p situ-accel --all-targets --features opencl -- -D warnings

# Tests of modules named `alone` measure their process or the machine: they run one after another when all others are done.
# A test that has failed runs once more, alone in a process. If it passes then, the last lines call it FLAKY.
test: packages form locks deny evidence
	scripts/prose.sh $(PAGES)
	cargo fmt --all --check
	$(MAKE) --no-print-directory arrows >/dev/null || { $(MAKE) --no-print-directory arrows; exit 1; }
	cargo clippy --workspace --all-targets --locked --features situ-cli/postgres -- -D warnings
	$(MAKE) --no-print-directory features
	RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --locked
	cargo build --profile test --workspace --lib --locked $(CHECKS)
	@log=$$(mktemp); code=0; export SITU_LIBRARIES=built; \
	$(MAKE) --no-print-directory scripts >"$$log.scripts" 2>&1 & scripts=$$!; \
	$(MAKE) --no-print-directory loom TEST_LOG="$$log" || code=$$?; \
	wait $$scripts || code=$$?; cat "$$log.scripts"; cat "$$log.scripts" >>"$$log"; \
	scripts/tests.sh run "$$log" cargo test --workspace --no-fail-fast --locked $(CHECKS) -- --skip alone:: || code=$$?; \
	scripts/tests.sh run "$$log" cargo test --workspace --no-fail-fast --locked $(CHECKS) --test all -- alone:: --test-threads=1 \
	  || code=$$?; \
	scripts/tests.sh pytest "$$log" || code=$$?; \
	scripts/tests.sh junit "$$log" || code=$$?; \
	scripts/tests.sh summary "$$log"; \
	rm -f "$$log" "$$log.scripts"; exit $$code

# Shell scripts parse, and those that can try themselves do. What needs root or a feature of the kernel says that it is skipped.
scripts:
	@for script in scripts/*.sh lab/compare/*.sh; do bash -n "$$script" || exit 1; done
	scripts/words.py >/dev/null || { scripts/words.py; exit 1; }
	scripts/testbed-node.sh selftest
	scripts/postgres-study.sh selftest
	scripts/tests.sh selftest
	scripts/evidence.sh selftest
	@if command -v python3 >/dev/null; then \
	  python3 scripts/near-data/selftest.py; python3 scripts/compare-builds.py selftest; python3 scripts/links.py; \
	  python3 scripts/publish-order.py check; \
	else echo "SKIPPED: the drivers of the near-data experiments and of compare-builds, links of pages: there is no python3"; fi
	@if command -v promtool >/dev/null; then promtool check rules packaging/monitoring/prometheus-alerts.yml; \
	else echo "SKIPPED: alerts for Prometheus: there is no promtool"; fi

# `lab/arrows/rooms.txt` names the rooms from the ground up.
arrows: cargo
	@cargo run --quiet --locked -p situ-arrows

# Without documentation, loom, and what QUICK_LEAVES names: mostly tests that take more than three seconds. Many tests wait, so
# more of them run than there are cores.
quick: form arrows evidence
	scripts/prose.sh $(PAGES)
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked --features situ-cli/postgres -- -D warnings
	export RUST_TEST_THREADS=$$((2 * $$(nproc))); \
	cargo test --workspace --no-fail-fast --locked $(CHECKS) --lib --bins -- $(QUICK_LEAVES_UNITS:%=--skip %) && \
	cargo test --workspace --no-fail-fast --locked $(CHECKS) --test all -- $(QUICK_LEAVES:%=--skip %)

# Apart from `make test`: RocksDB's C++ takes a quarter of an hour to compile. All of it under one profile, so that it is
# compiled once.
test-import: form
	@command -v "$${CXX:-c++}" >/dev/null || { \
	  echo "a C++ compiler ($${CXX:-c++}) is missing: it builds RocksDB, which also takes libclang."; \
	  echo "  Debian, Ubuntu: sudo apt-get install g++ libclang-dev      Fedora: sudo dnf install gcc-c++ clang-devel"; exit 1; }
	cargo clippy --release --locked -p situ-cli --all-targets --features rocksdb -- -D warnings
	cargo test --release --locked -p situ-cli --features rocksdb --lib
	cargo test --release --locked -p situ-cli --features rocksdb --test all import_rocksdb::

# Where `make test` gathers what the tests say.
TEST_LOG ?= /dev/null

# Every interleaving of two and three threads on the memtable, the engine's only unsafe part, on gaps, and on work that one
# thread does for all.
loom: cargo
	RUSTFLAGS='--cfg loom' LOOM_MAX_PREEMPTIONS=2 CARGO_TARGET_DIR=target/loom CARGO_PROFILE_TEST_OPT_LEVEL=0 CARGO_PROFILE_TEST_DEBUG=0 \
	  scripts/tests.sh run "$(TEST_LOG)" cargo test --no-fail-fast --locked -p situ-engine -p situ-base --lib model::

# The driver for NVMe drives, with a controller in software that reaches its memory from other threads: six minutes.
MIRI_DRIVER := a_failed_write_is_tried a_dropped_queue_frees one_writer_locks a_drive_that_is_pulled_out a_command_without_an_answer
miri: cargo
	@cargo +nightly miri --version >/dev/null 2>&1 || { echo "miri is missing: rustup +nightly component add miri"; exit 1; }
	MIRIFLAGS=-Zmiri-strict-provenance cargo +nightly miri test --locked -p situ-engine --lib memtable
	MIRIFLAGS=-Zmiri-strict-provenance cargo +nightly miri test --locked -p situ-device --lib -- buffer:: in_flight:: driver::function::
	MIRIFLAGS=-Zmiri-strict-provenance cargo +nightly miri test --locked -p situ-sim --test all -- $(MIRI_DRIVER)
	MIRIFLAGS=-Zmiri-strict-provenance cargo +nightly miri test --locked -p situ-transport --lib rings

# The tests run over the server too, if `make build` has made it, and over memcached, if it is there.
java:
	@command -v mvn >/dev/null || { echo "mvn is missing (Debian, Ubuntu: sudo apt-get install maven)"; exit 1; }
	cd java; mvn -q -B verify

# The package for Python: builds the module, and tests it with pytest in an environment of its own, all in the target directory.
python: cargo
	@scripts/tests.sh pytest "$(TEST_LOG)"

# A wheel in python/dist, for CPython 3.9 and later.
python-wheel: cargo
	@target=$$(cargo metadata --format-version 1 --no-deps --locked | sed 's/.*"target_directory":"\([^"]*\)".*/\1/'); \
	if ! "$$target/maturin/bin/maturin" --version >/dev/null 2>&1; then \
	  python3 -m venv --clear "$$target/maturin"; "$$target/maturin/bin/pip" install -q 'maturin>=1.9.4,<2'; fi; \
	cd python; "$$target/maturin/bin/maturin" build --release --strip --locked --out dist

# Two instances over a broker of their own, killed at random for SECONDS; STORE=rocksdb shows the difference.
STORE ?= situ
SECONDS ?= 120
SEED ?= 1
kafka-kills:
	cargo build --release --locked -p situ-c
	scripts/kafka-trial.sh Kills $(STORE) $(SECONDS) $(SEED)

# Clients that cannot be installed are skipped. The table and the results come into target/clients.
clients: build
	python3 scripts/clients/run.py

# The virtual machine is emulated: its tests take minutes.
soft-roce: cargo
	scripts/soft-roce.sh test

# The tests of the driver for NVMe drives on QEMU's drives.
test-nvme: cargo
	scripts/test-nvme.sh

simulate: cargo
	SITU_SIM_ROUNDS=$(ROUNDS) SITU_SIM_FROM=$$(date +%s) cargo test --release --locked $(CHECKS) \
	  -p situ-engine -p situ-pipeline -p situ-log -p situ-tiers -p situ-compaction -p situ-values -p situ-hash -p situ-sim --no-fail-fast -- --skip alone::

fuzz: cargo
	@cargo fuzz --version >/dev/null 2>&1 || { echo "cargo-fuzz is missing: cargo install cargo-fuzz"; exit 1; }
	@cd fuzz; cargo run --example corpus; \
	for target in $$(cargo +nightly fuzz list); do \
	  echo "== $$target"; cargo +nightly fuzz run "$$target" -- -max_total_time=$(SECONDS_EACH); done

bench: build
	@mkdir -p target
	$(SITU) bench --workloads fillseq,fillrandom,readrandom,readseq,seekrandom --keys 1m \
	  --directory target/bench --output target/bench.json
	$(SITU) bench report target/bench.json --output target/bench.html

# Two builds in turns, for changes of a hot path: `make compare-builds OLD=origin/main`. Nothing else should run on the machine.
OLD ?=
TURNS ?= 5
KEYS ?= 1m
VALUE ?= 240
DIRECTORY ?= target/compare-builds/data
BEDS ?= one
# X-Engine's experiments. The accelerator is a model: a core of this machine.
paper-x-engine: build
	python3 scripts/paper-x-engine.py

# SpanDB's writes on a disk in memory that takes time, and no processor.
paper-spandb: cargo
	cargo build --release --locked -p situ-tiers --example timed_store -p situ-sim --example timed_drive
	python3 scripts/paper-spandb.py

# U2cache's latencies: client and server are two processes of this machine.
paper-u2cache: build
	cargo build --release --locked -p situ-client --example latency
	python3 scripts/paper-u2cache.py

# Kills of a served store and of the commands that copy it; every copy is compared with a model.
KILLS ?= 200
kills: build
	python3 scripts/kills.py --kills "$(KILLS)"

# From the release archive to a restored backup.
first-day: cargo
	python3 scripts/first-day.py

paper-u2cache-page: build
	python3 scripts/paper-u2cache-page.py

compare-builds: cargo
	@[ -n "$(OLD)" ] || { echo 'which build to compare with? make compare-builds OLD=<commit>'; exit 2; }
	python3 scripts/compare-builds.py "$(OLD)" --turns "$(TURNS)" --keys "$(KEYS)" --value "$(VALUE)" --directory "$(DIRECTORY)" --beds "$(BEDS)"

# Where the results go: TRIMMING=docs/evidence/trimming writes them where the page expects them (then: scripts/evidence.sh pack trimming).
TRIMMING ?= target/trimming
bench-trimming: cargo
	scripts/trimming.sh "$(TRIMMING)"

# Needs PostgreSQL, and root for the disk that compresses. Nothing else should run on the machine.
study-postgres:
	@mkdir -p target
	scripts/postgres-study.sh run target target/postgres-study

# The compaction unit of fpga/rtl, cycle by cycle. `FPGA_ROUNDS=20` tries as many more tasks.
fpga: cargo
	@command -v "$${VERILATOR:-verilator}" >/dev/null || { \
	  echo "SKIPPED: the simulated compaction unit: verilator is missing"; \
	  echo "  Debian, Ubuntu: sudo apt-get install verilator g++"; }
	SITU_SIM_ROUNDS=$(FPGA_ROUNDS) cargo test --locked -p situ-fpga --features simulated
	cargo run --quiet --locked --profile test -p situ-fpga --features simulated --example cycles
	cargo run --quiet --locked --profile test -p situ-fpga --features simulated --example wave

FPGA_ROUNDS ?= 1

fpga-prove:
	fpga/scripts/prove.sh

# The unit is routed out of context: its ports are no pins.
fpga-route:
	fpga/scripts/route.sh target/fpga
