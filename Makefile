# What there is to do here: `make run` shows what this is, `make test` runs every check.

# A Rust toolchain from rustup is found also where the shell's profile has not been read.
export PATH := $(PATH):$(HOME)/.cargo/bin

TARGET := $(or $(CARGO_TARGET_DIR),target)
HOURS ?= 1

.PHONY: help run test check soak build clean

help:
	@echo "make run    build, then show what 48 CPUs do to each other when memory runs short"
	@echo "make test   every check: format, lints, docs, licences, bare metal, tests"
	@echo "make check  format, lints, and unit tests of what was changed since main: a minute"
	@echo "make soak   long, random, exploring tests for HOURS=$(HOURS); the last result is docs/soak.md"
	@echo "make build  build the command: $(TARGET)/release/quietmm"
	@echo "make clean  remove what was built"

run: build
	@"$(TARGET)/release/quietmm" demo

test:
	@scripts/test

check:
	@scripts/check

soak: build
	@scripts/soak --hours $(HOURS)

build:
	@scripts/need
	@cargo build --release --locked -p quietmm-lab

clean:
	@cargo clean
