# Builds and tests for platforms other than the one at hand. Sourced by .ci/test, after tools.sh; see `need_…` there for
# what they need. All of it is built by Debian's Rust into a target directory of its own.
#
# Tests there take what depends on the platform: the sampler's own, and the program `capture` (sdk/tests/capture.rs), which
# goes the whole way of a sample. Dependencies have no debug information. To optimize the SDK takes longer than it saves. Build scripts ask the
# compiler what it can: RUSTC_BOOTSTRAP, which musl needs, would have what depends on them built once more if it were not there for all.

platforms_target=${CARGO_TARGET_DIR:-$root/target}/platforms
platform_cargo() {
    CARGO_TARGET_DIR=$platforms_target RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1 \
        cargo --config 'profile.dev.package."*".debug=false' --config profile.dev.package.profiler-sdk.opt-level=0 "$@"
}
# What depends on the platform, but for what needs compilers there, and what takes long.
sampler=(cpu:: unwind:: context:: libraries_and_the_vdso unresolved_addresses turned_off_addresses
    work_is_found a_stack_goes --skip rules_belong_to --skip large_sets_are_bounded --skip any_order_gives --skip a_change_beyond)

# In an emulated machine with a kernel of its own: .ci/machine. With all that changes a thread's context, for what is seen behind each instruction. Without debug
# information: unoptimized and emulated, each test that names something would read it for a minute.
on_aarch64() {
    CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc \
        CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
        CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="$root/.ci/machine aarch64" \
        platform_cargo test --locked --no-fail-fast --config profile.dev.debug=false --package profiler-sdk --features tracing-layer \
        --target aarch64-unknown-linux-gnu --lib --test capture -- "${sampler[@]}"
}

# The sidecar's eBPF programs on older kernels, with the tests' own C and Go programs, which are compiled here, before: a test or two of each kind on the
# oldest, whether they are taken and see all that there is on the others, for what is emulated is slow; `make torture` has all on each. None compares samples
# with CPU time. One machine after the other, with nothing beside: held up, they lose ticks.
on_older_kernels() (
    export PROFILER_TEST_PROGRAMS=$work/programs
    kernel_tests what_another_machine_needs_is_built || exit 1
    tests=("${of_each_kind[@]}") status=0
    for version in "${older_kernels[@]}"; do
        CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER="$root/.ci/machine x86_64-$version" kernel_tests --test-threads=1 "${tests[@]}" || status=1
        [ -n "${TORTURE_SECONDS:-}" ] || tests=("${whether_taken[@]}")
    done
    exit "$status"
)
kernel_tests() { cargo test --locked --workspace --test kernel -- "$@"; }
of_each_kind=(a_stack_of what_was_seen a_full_ring a_system_call who_works_for a_register_that the_rate_changes a_process_is_told a_number_of_its_own a_published
    a_pod_sees who_comes_from samples_of_every_version more_labels stacks_end_at a_program_that_ran what_is_told_too)
whether_taken=(a_stack_of a_process_is_told a_published a_pod_sees more_labels a_program_that_ran)

# The same on aarch64, for which the object is another one.
on_aarch64_kernel() (
    export PROFILER_TEST_PROGRAMS=$work/programs-aarch64
    PROFILER_TEST_CC=aarch64-linux-gnu-gcc GOARCH=arm64 kernel_tests what_another_machine_needs_is_built || exit 1
    CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc \
        CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
        CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="$root/.ci/machine aarch64" \
        platform_cargo test --locked --package profiler-sidecar --test kernel --target aarch64-unknown-linux-gnu -- --test-threads=1 "${of_each_kind[@]}"
)

# The whole agent there, optimized, with programs of Go that are compiled here, before: the way of a sample, against what the programs know of themselves.
on_aarch64_agent() (
    export PROFILER_TEST_PROGRAMS=$work/agent-aarch64
    mkdir -p "$PROFILER_TEST_PROGRAMS"
    PROFILER_TEST_CC=aarch64-linux-gnu-gcc GOARCH=arm64 cargo test --locked --workspace --test agent -- what_another_machine_needs_is_built || exit 1
    export CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
    platform_cargo build --locked --release --package profiler-sidecar --target aarch64-unknown-linux-gnu || exit 1
    cp "$platforms_target/aarch64-unknown-linux-gnu/release/profiler-sidecar" "$PROFILER_TEST_PROGRAMS" || exit 1
    CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="$root/.ci/machine aarch64" \
        platform_cargo test --locked --package profiler-sidecar --test agent --target aarch64-unknown-linux-gnu -- --test-threads=1 --nocapture \
        a_go_program_is_profiled_and a_process_is_recorded many_goroutines_that programs_are_recorded_as
)

# The sidecar's eBPF programs are what the source gives. Built by other tools than those that are committed they have other bytes: they must pass the same tests, of which
# those that compare samples with CPU time are left to `make torture`.
ebpf_anew() {
    .ci/ebpf --compare "$work/objects"
    local status=$? tests=()
    [ "$status" = 3 ] || return "$status"
    [ -n "${TORTURE_SECONDS:-}" ] || tests=("${of_each_kind[@]}")
    PROFILER_SIDECAR_EBPF_OBJECT=$work/objects/$(uname -m).o kernel_tests "${tests[@]}"
}

# As static programs. The standard library is built with them; `__fprintf_chk` is glibc's, in messages of the unwinder.
on_musl() {
    CC_x86_64_unknown_linux_musl=musl-gcc \
        CARGO_TARGET_X86_64_UNKNOWN_LINUX_MUSL_LINKER=musl-gcc \
        CARGO_TARGET_X86_64_UNKNOWN_LINUX_MUSL_RUSTFLAGS="-C link-self-contained=no -C relocation-model=static \
            -C link-arg=-Wl,--defsym=__fprintf_chk=abort -L native=$cache/musl" \
        platform_cargo -Zbuild-std=std,panic_unwind,test test --locked --no-fail-fast --package profiler-sdk \
        --target x86_64-unknown-linux-musl --lib --test capture -- "${sampler[@]}" own_functions_have
}

# Where nothing samples, the crate must build, without a warning. Nothing is linked and no code is made, so no compiler of
# that platform is needed: `stand-in` takes its place.
builds_elsewhere() {
    local target status=0
    for target in aarch64-apple-darwin x86_64-pc-windows-msvc riscv64gc-unknown-linux-gnu; do
        builds_on "$target" --features axum,heap,tls || status=1
    done
    builds_on aarch64-apple-darwin --no-default-features --features cpu || status=1
    return "$status"
}

builds_on() (
    name=${1//-/_}
    export "CC_$name=$root/.ci/stand-in" "AR_$name=$root/.ci/stand-in" \
        "CARGO_TARGET_${name^^}_RUSTFLAGS=-Zno-codegen -Dwarnings"
    platform_cargo -Zbuild-std=std,panic_unwind check --quiet --locked --package profiler-sdk --target "$@" ||
        { printf 'does not build: %s\n' "$*" && exit 1; }
)
