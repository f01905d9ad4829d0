/* Runs a program instruction by instruction and tells, at each, the truth of its stack.
 *
 * stepper PROGRAM FUNCTION STEPS: runs PROGRAM up to the address FUNCTION (hexadecimal), then STEPS instructions of its first thread. The truth is
 * kept from calls as they are made: where each return address was pushed, which is forgotten once the stack pointer is above it.
 * Prints a line for each instruction (each three times at most) that runs on the stack on which FUNCTION was called:
 *   S ip sp fp end|walk,...|truth,...|bytes from sp on
 * where `walk` is what a walk of frame pointers finds, ip first, and `end` how it ends: R root, C cut, L lost. Then `P pid`, and waits for the end of
 * its input with the program stopped. x86-64. Source: ptrace(2). */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>
#include <signal.h>

#define DEPTH 4096
#define SEEN (1 << 20)
#define WALK 512

static struct { uint64_t slot, address; } calls[DEPTH];
static int depth;
static struct { uint64_t ip; int times; } seen[SEEN];
static pid_t child;

static int get(uint64_t address, void *into, size_t size) {
    struct iovec ours = {into, size}, theirs = {(void *)address, size};
    return process_vm_readv(child, &ours, 1, &theirs, 1, 0) == (ssize_t)size;
}

static uint64_t word(uint64_t address) {
    uint64_t value = 0;
    return get(address, &value, 8) ? value : 0;
}

static int often(uint64_t ip) {
    for (uint64_t at = ip * 0x9e3779b97f4a7c15u >> 44;; at = (at + 1) % SEEN) {
        if (seen[at].ip == 0) seen[at].ip = ip;
        if (seen[at].ip == ip) return ++seen[at].times > 3;
    }
}

static void die(const char *what) {
    perror(what);
    if (child > 0) kill(child, SIGKILL);
    exit(1);
}

/* Whether the instruction calls: E8, FF /2, each behind prefixes. */
static int is_call(const unsigned char *code) {
    while (*code == 0x66 || *code == 0xf2 || *code == 0xf3 || (*code & 0xf0) == 0x40) code++;
    return *code == 0xe8 || (*code == 0xff && (code[1] >> 3 & 7) == 2);
}

/* The walk of frame pointers, as the kernel side does it; fills `found`. */
static int walk(uint64_t ip, uint64_t fp, uint64_t *found, char *end) {
    int count = 1;
    found[0] = ip;
    for (*end = 'C'; count < WALK; count++) {
        uint64_t frame[2];
        if (fp == 0) { *end = 'R'; break; }
        if (!get(fp, frame, 16) || (frame[0] != 0 && frame[0] <= fp)) { *end = 'L'; break; }
        if (frame[1] == 0) { *end = 'R'; break; }
        found[count] = frame[1];
        fp = frame[0];
    }
    return count;
}

static void tell(const struct user_regs_struct *registers) {
    static uint64_t found[WALK];
    char end;
    int count = walk(registers->rip, registers->rbp, found, &end);
    printf("S %llx %llx %llx %c|", registers->rip, registers->rsp, registers->rbp, end);
    for (int i = 0; i < count; i++) printf("%lx,", found[i]);
    printf("|%llx,", registers->rip);
    for (int i = depth - 1; i >= 0; i--) printf("%lx,", calls[i].address);
    printf("|");
    unsigned char top[128];
    size_t size = sizeof top;
    while (size > 0 && !get(registers->rsp, top, size)) size -= 8;
    for (size_t i = 0; i < size; i++) printf("%02x", top[i]);
    printf("\n");
}

/* One instruction; signals are kept from the program. */
static struct user_regs_struct step(int request) {
    int status;
    struct user_regs_struct registers;
    do {
        if (ptrace(request, child, 0, 0) != 0) die("ptrace");
        if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status)) { fprintf(stderr, "the program ended\n"); exit(1); }
        if (WSTOPSIG(status) == SIGSEGV || WSTOPSIG(status) == SIGILL) { fprintf(stderr, "signal %d\n", WSTOPSIG(status)); exit(1); }
    } while (WSTOPSIG(status) != SIGTRAP);
    if (ptrace(PTRACE_GETREGS, child, 0, &registers) != 0) die("registers");
    return registers;
}

int main(int count, char **arguments) {
    if (count != 4) return 2;
    child = fork();
    if (child == 0) {
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        execl(arguments[1], arguments[1], (char *)0);
        _exit(127);
    }
    int status;
    waitpid(child, &status, 0);
    ptrace(PTRACE_SETOPTIONS, child, 0, PTRACE_O_EXITKILL);
    uint64_t entry = strtoull(arguments[2], 0, 16);
    errno = 0;
    long code = ptrace(PTRACE_PEEKTEXT, child, entry, 0);
    if (errno != 0 || ptrace(PTRACE_POKETEXT, child, entry, (code & ~0xffL) | 0xcc) != 0) die("breakpoint");
    struct user_regs_struct registers = step(PTRACE_CONT);
    if (registers.rip != entry + 1) { fprintf(stderr, "stopped elsewhere: %llx\n", registers.rip); exit(1); }
    registers.rip = entry;
    ptrace(PTRACE_POKETEXT, child, entry, code);
    ptrace(PTRACE_SETREGS, child, 0, &registers);

    /* At the entry, the frame pointer is the caller's: its walk is the truth from there on. */
    static uint64_t found[WALK];
    char end;
    int callers = walk(entry, registers.rbp, found, &end);
    for (int i = callers - 1; i > 0; i--) { calls[depth].slot = UINT64_MAX; calls[depth++].address = found[i]; }
    calls[depth].slot = registers.rsp;
    calls[depth++].address = word(registers.rsp);
    uint64_t highest = registers.rsp;
    for (long steps = strtol(arguments[3], 0, 10); steps > 0; steps--) {
        unsigned char bytes[16] = {0};
        for (size_t size = 16; size > 0 && !get(registers.rip, bytes, size); size--) {}
        int is_ours = registers.rsp <= highest && registers.rsp > highest - (64 << 10);
        if (is_ours) {
            while (depth > 0 && calls[depth - 1].slot < registers.rsp) depth--;
            if (!often(registers.rip)) tell(&registers);
        }
        if (registers.rsp > highest && registers.rsp < highest + 4096) break;
        uint64_t sp = registers.rsp;
        registers = step(PTRACE_SINGLESTEP);
        if (is_ours && registers.rsp == sp - 8 && is_call(bytes) && depth < DEPTH) {
            calls[depth].slot = registers.rsp;
            calls[depth++].address = word(registers.rsp);
        }
    }
    printf("P %d\n", child);
    fflush(stdout);
    while (getchar() != EOF) {}
    kill(child, SIGKILL);
    return 0;
}
