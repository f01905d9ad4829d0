/* Becomes a command that cannot touch other processes: whoever sends a signal, attaches, or writes into somebody's memory is killed by SIGSYS.
     untouching COMMAND...      no kill and its like, no ptrace, no process_vm_writev, no write at a place (as into /proc/PID/mem)
     untouching -w COMMAND...   nor a write to anything but standard input, output and error
   Source: seccomp(2); linux/seccomp.h: the data that a filter sees, whose arguments are of 64 bits, the low half first where we run. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define KILL BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)
#define ALLOW BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
/* The next instruction is for this call alone. */
#define IF(call) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_##call, 0, 1)
#define NEVER(call) IF(call), KILL
/* Killed where the descriptor is another one than 0, 1 or 2; else the call is loaded again. */
#define STANDARD_ONLY(call) \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_##call, 0, 4), LOAD(args[0]), \
        BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, 2, 0, 1), KILL, LOAD(nr)

static struct sock_filter touching[] = {
    LOAD(nr),
    NEVER(kill), NEVER(tkill), NEVER(tgkill), NEVER(rt_sigqueueinfo), NEVER(rt_tgsigqueueinfo), NEVER(pidfd_send_signal),
    NEVER(ptrace), NEVER(process_vm_writev), NEVER(process_madvise), NEVER(pidfd_getfd),
    NEVER(pwrite64), NEVER(pwritev), NEVER(pwritev2),
    ALLOW,
};

static struct sock_filter writing[] = {
    LOAD(nr),
    STANDARD_ONLY(write), STANDARD_ONLY(writev),
    NEVER(sendfile), NEVER(splice), NEVER(copy_file_range), NEVER(io_uring_setup),
    ALLOW,
};

static int install(struct sock_filter *filter, size_t bytes) {
    struct sock_fprog program = {.len = bytes / sizeof *filter, .filter = filter};
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

int main(int argc, char **argv) {
    int standard_only = argc > 1 && strcmp(argv[1], "-w") == 0;
    char **command = argv + 1 + standard_only;
    /* Whoever is killed leaves no core. */
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || install(touching, sizeof touching) != 0 ||
        (standard_only && install(writing, sizeof writing) != 0)) {
        fprintf(stderr, "untouching: no filter: %s\n", strerror(errno));
        return 1;
    }
    execvp(command[0], command);
    fprintf(stderr, "untouching: %s: %s\n", command[0], strerror(errno));
    return 1;
}
