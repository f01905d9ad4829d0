# What there is to do here; `make` lists it. Each target finds or installs the tools it needs (.ci/tools.sh).

.PHONY: help demo test setup format lint measure fuzz torture ebpf

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-9s %s\n", $$1, $$2 }' Makefile

demo: ## A web shop in Rust, its inventory in Go, the sidecar of both: one flame graph page, tables here; ends with Ctrl-C or DEMO_SECONDS=30
	@.ci/demo

test: ## Everything that must hold: formatting, lints, docs, licences, tests, fuzzing; what CI runs
	@.ci/test

setup: ## Find or install the tools that `make test` needs, and nothing else
	@bash -c '. .ci/tools.sh; status=0; for tool in rust lints deny go_for_tests collector python chromium aarch64 older_kernels musl rust_source; do need_$$tool || status=1; done; exit $$status'

format: ## Format the code
	@.ci/cargo fmt --all

lint: ## The lints of `make test` alone
	@.ci/cargo clippy --locked --workspace --all-targets --all-features -- -D warnings

measure: ## Ours beside the `pprof` and `pyroscope` crates, `jemalloc_pprof`, and the OpenTelemetry eBPF profiler: a table, and target/measure/*.json
	@.ci/cargo run --locked --release --package profiler-tests --no-default-features --features peers --bin measure

fuzz: ## Fuzz the decoders for FUZZ_SECONDS (600)
	@FUZZ_SECONDS=$${FUZZ_SECONDS:-600} .ci/cargo test --locked --release --package profiler-proto --package profiler-sidecar --test fuzz_smoke -- --nocapture

torture: ## What the sampler must survive at 1 kHz, TORTURE_SECONDS (60) each; a tenth of it under AddressSanitizer
	@.ci/torture

ebpf: ## Build the sidecar's eBPF programs anew, for both architectures, into sidecar/src/bpf/object
	@.ci/ebpf
