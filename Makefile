# Two commands are all the set-up: `make demo` and `make test`.

# One target directory outside the checkout, shared by every build, so that dependencies are compiled once.
export CARGO_TARGET_DIR ?= $(HOME)/.cache/millstream/target
# What the set-up had to fetch because the machine lacked it.
export PATH := $(HOME)/.cache/millstream/tools/bin:$(PATH)
MILLSTREAM := $(CARGO_TARGET_DIR)/release/millstream

.PHONY: demo test test-all build dist console setup

demo: build ## Replay a year of weather through the whole of Millstream: console in the browser, live table here.
	$(MILLSTREAM) demo $(ARGS)

build: console ## The binary with the console in it.
	cargo build --release --locked --bin millstream

dist: ## What is installed without a compiler, into dist/: archive, Debian package, image.
	scripts/dist

console: setup
	scripts/build-console

setup:
	scripts/setup build

test: ## The whole gate.
	scripts/setup test
	scripts/test

test-all: export MILLSTREAM_DIST_ALL := 1
test-all: export MILLSTREAM_TEST_ALL := 1
test-all: ## The gate, with everything that takes long.
	scripts/setup test
	scripts/fuzz store requests 60
	scripts/fuzz jexl expression 60
	scripts/fuzz amqp frames 60
	MILLSTREAM_CRASH_POINTS=1300 MILLSTREAM_BIT_FLIPS=1000 MILLSTREAM_KILLS=20 MILLSTREAM_CONTEXT_KILLS=100 \
		MILLSTREAM_JOB_KILLS=50 MILLSTREAM_RANDOM_JOBS=1000 MILLSTREAM_MIXED_KILLS=60 MILLSTREAM_IDLE_SECONDS=60 MILLSTREAM_MUTATIONS=10000000 \
		MILLSTREAM_API_EXAMPLES=60 MILLSTREAM_REDIS_ALL=1 MILLSTREAM_REDIS_COMMANDS=1000000 MILLSTREAM_STORE_KILLS=100 \
		MILLSTREAM_LARGE_FILE_MIB=2048 MILLSTREAM_SILENT_CONNECTIONS=3000 MILLSTREAM_TLS_DEVICES=2000 MILLSTREAM_PROGRAM_LIMIT_S=7200 scripts/test
