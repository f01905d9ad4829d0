/* A library that comes and goes while its code runs; and ways to make a process that Rust does not offer. */
#define _GNU_SOURCE
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile uint64_t sink;

/* Works in a few frames of this library. */
__attribute__((noinline)) static uint64_t library_leaf(uint64_t x, unsigned rounds) {
    for (unsigned i = 0; i < rounds; i++) x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    return x;
}

__attribute__((noinline)) static uint64_t library_frames(unsigned depth, unsigned rounds) {
    uint64_t x = depth ? library_frames(depth - 1, rounds) : library_leaf(88172645463325252u, rounds);
    sink = x;
    return x + 1;
}

uint64_t library_work(unsigned depth, unsigned rounds) { return library_frames(depth, rounds); }

/* Runs a program in a child of vfork(2), which borrows this process's memory until then; its exit code. */
int library_vfork(const char *program) {
    int status;
    pid_t child = vfork();
    if (child == 0) {
        execl(program, program, (char *)0);
        _exit(127);
    }
    while (waitpid(child, &status, 0) < 0)
        ;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
