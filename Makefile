# Each command does its own set-up: what the machine lacks is installed from the distribution, or named.
# `make` alone prints this list.

SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:

# Put before a command that opens many sockets and processes: the usual soft limit of files is low.
FILES := ulimit -n "$$(ulimit -Hn)" 2>/dev/null || true;

.PHONY: help
help: ## Print this list
	@echo 'Tidegate: a durable, fenced queue in front of GPU pools that speak the OpenAI API.'
	@echo
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(firstword $(MAKEFILE_LIST)) | awk -F'|' '{ printf "%-20s%s\n", $$1, $$2 }'
	@echo
	@echo 'UPSTREAM=http://host:port make demo    asks a real model server instead of the simulated one'
	@echo 'ARGS="..." make bench                  further arguments of tidegate-loadtest bench'

.PHONY: setup
setup: ## Install what the commands need and this machine lacks
	@scripts/setup

.PHONY: build
build: setup ## Build the binaries of the product
	cargo build --locked --workspace --bins

.PHONY: demo
demo: setup ## Start everything in one process, run a job, print its life and answer
	cargo build --locked -p tidegate-cli
	@$(FILES) exec target/debug/tidegate dev --demo $(if $(UPSTREAM),--upstream '$(UPSTREAM)')

.PHONY: demo-llama
demo-llama: setup ## The same with a real llama.cpp server on this machine's CPU
	cargo build --locked -p tidegate-cli
	@$(FILES) exec scripts/llama-demo

# The binaries first: the tests start them as they are started in production.
.PHONY: test
test: setup ## Run every test
	cargo build --locked --workspace --bins
	@$(FILES) scripts/test

.PHONY: mutation
mutation: setup ## Take each guard out in turn, of the protocol and of its users; print what notices
	@$(FILES) scripts/mutation-check
	@$(FILES) scripts/mutation-rust

.PHONY: soak
soak: setup ## Half a million jobs under thousands of faults, about an hour; writes its figures to docs/FAILURES.md
	cargo build --locked --release --workspace --bins
	@$(FILES) target/release/soak --write docs/FAILURES.md $(ARGS)

.PHONY: check
check: fmt clippy structure lua deny compose ## Everything but the tests: format, lints, licences, structure, Lua, compose

.PHONY: fmt
fmt: setup ## Is the code formatted?
	cargo fmt --all --check

# Twice: what is shipped is held to the bans of clippy.toml too, tests are not.
.PHONY: clippy
clippy: setup ## Clippy with warnings denied
	cargo clippy --locked --workspace --lib --bins -- -D warnings
	cargo clippy --locked --workspace --all-targets -- -D warnings -A clippy::disallowed_methods -A clippy::disallowed_macros

.PHONY: structure
structure: ## The rules of the layout that no compiler checks
	@scripts/setup check
	@scripts/lint-structure

.PHONY: lua
lua: setup ## Luacheck over the protocol, each step with the pieces it uses
	@scripts/setup check
	@scripts/lint-lua

.PHONY: deny
deny: setup ## Licences, bans, sources and advisories of the dependencies
	@scripts/deny

.PHONY: compose
compose: setup ## Is the compose file right, and does Tidegate take the settings in it?
	@scripts/setup check
	cargo build --locked -p tidegate-cli
	@scripts/check-compose

.PHONY: bench
bench: setup ## Measure the store, pick-up and cost per job (a release build)
	@$(FILES) cargo run --locked --release -p tidegate-loadtest -- bench $(ARGS)

MATRIX := matrix::each_step_at_each_moment_under_each_fault_is_done_once_or_not_at_all

.PHONY: matrix
matrix: setup ## Each step at each moment under each fault, 20 times each; writes docs/FAULT_MATRIX.md
	@$(FILES) MATRIX_ROUNDS=$(or $(ROUNDS),20) MATRIX_PAGE='$(CURDIR)/docs/FAULT_MATRIX.md' \
	  cargo test --locked -p tidegate-tests --test it -- --nocapture --exact $(MATRIX)
