/* A program in C that loads a plugin with the profiler in it: host PLUGIN MILLISECONDS [again | jumps],
 * or host PLUGIN HOW watched.
 *
 * One of its threads is busy and never calls the plugin. On that thread every call of malloc and of __tls_get_addr is the
 * signal handler's, for the thread itself makes none: both are counted here, in front of the C library's own. Prints one
 * line of JSON.
 *
 * With `again` it takes SIGPROF over after the plugin's start, passes on what it gets, and starts the plugin again, whose handler
 * then stands in front of the one that calls it. With `jumps` its handler was there before the plugin's, and is left by jumps. With
 * `watched` it does nothing but let the plugin's threads change their tags, for whoever started it to look at. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static atomic_int stop;
static atomic_uintptr_t busy_thread;
static atomic_ulong allocations, resolutions;

/* The thread pointer, which is what pthread_self() returns, without a call. */
static uintptr_t self(void) { return (uintptr_t)__builtin_thread_pointer(); }

static int is_busy(void) { return self() == atomic_load_explicit(&busy_thread, memory_order_relaxed); }

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);

void *malloc(size_t size) {
    if (is_busy()) atomic_fetch_add(&allocations, 1);
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size) {
    if (is_busy()) atomic_fetch_add(&allocations, 1);
    return __libc_calloc(count, size);
}

static void *(*real_tls_get_addr)(void *);

void *__tls_get_addr(void *index) {
    if (is_busy()) atomic_fetch_add(&resolutions, 1);
    return real_tls_get_addr(index);
}

__attribute__((noinline)) static uint64_t host_burn(uint64_t x) {
    for (int i = 0; i < 1000; i++) x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    return x;
}

static void *busy(void *unused) {
    (void)unused;
    atomic_store(&busy_thread, self());
    uint64_t x = 88172645463325252u;
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) x = host_burn(x);
    atomic_store(&busy_thread, 0);
    return (void *)x;
}

struct run {
    const char *plugin;
    uint32_t milliseconds;
    int again, jumps, outcome, ended, fixed;
    unsigned long allocated, resolved;
    char account[1 << 16];
};

static struct sigaction theirs;
static atomic_ulong got;

static void passing(int signal, siginfo_t *info, void *context) {
    if (info->si_code == SI_TKILL) atomic_fetch_add(&got, 1);
    theirs.sa_sigaction(signal, info, context);
}

enum { SENT = 100 };

/* A thread that never called the plugin. */
static void *stranger(void *unused) {
    for (int i = 0; i < SENT; i++) raise(SIGPROF);
    return unused;
}

/* Two handlers each of which knows the other one as the one before it. */
static int start_again(int (*start)(void), int (*end)(char *, size_t), char *account, size_t size) {
    struct sigaction ours = {.sa_sigaction = passing, .sa_flags = SA_SIGINFO | SA_RESTART};
    if (start()) return 6;
    if (sigaction(SIGPROF, &ours, &theirs) || end(account, size)) return 7;
    if (start()) return 8;
    pthread_t thread;
    pthread_create(&thread, NULL, stranger, NULL);
    pthread_join(thread, NULL);
    return end(account, size) ? 9 : 0;
}

static __thread sigjmp_buf landing;

static void jumping(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    if (info->si_code != SI_TKILL) return;
    atomic_fetch_add(&got, 1);
    siglongjmp(landing, 1);
}

/* Gets a signal, and another one further down the stack. */
__attribute__((noinline)) static void down(long levels) {
    volatile char frame[1024] = {0};
    if (!sigsetjmp(landing, 1)) raise(SIGPROF);
    if (levels > 1) down(levels - 1);
    (void)frame[0];
}

static void *jumper(void *levels) { return down((long)levels), NULL; }

/* One thread after the other, each at the place of the one before it, and further down than that. */
static int start_and_jump(int (*start)(void), int (*end)(char *, size_t), char *account, size_t size) {
    struct sigaction ours = {.sa_sigaction = jumping, .sa_flags = SA_SIGINFO | SA_RESTART};
    if (sigaction(SIGPROF, &ours, &theirs) || start()) return 6;
    for (int i = 0; i < SENT / 5; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, jumper, (void *)5);
        pthread_join(thread, NULL);
    }
    return end(account, size) ? 9 : 0;
}

/* All that is done with the plugin, but closing it: a thread with destructors of a library keeps the library loaded. */
static void *use_plugin(void *argument) {
    struct run *run = argument;
    void *plugin = dlopen(run->plugin, RTLD_NOW | RTLD_LOCAL);
    if (!plugin) return fprintf(stderr, "%s\n", dlerror()), run->outcome = 3, NULL;
    int (*start)(void) = (int (*)(void))dlsym(plugin, "plugin_start");
    int (*is_fixed)(void) = (int (*)(void))dlsym(plugin, "plugin_is_fixed");
    void (*work)(uint32_t) = (void (*)(uint32_t))dlsym(plugin, "plugin_work");
    int (*end)(char *, size_t) = (int (*)(char *, size_t))dlsym(plugin, "plugin_stop");
    if (!start || !is_fixed || !work || !end) return run->outcome = 4, NULL;
    run->fixed = is_fixed();
    if (run->again) return run->outcome = start_again(start, end, run->account, sizeof run->account), plugin;
    if (run->jumps) return run->outcome = start_and_jump(start, end, run->account, sizeof run->account), plugin;
    if (start()) return run->outcome = 5, NULL;
    work(run->milliseconds);
    run->allocated = allocations, run->resolved = resolutions;
    run->ended = end(run->account, sizeof run->account);
    return plugin;
}

static int watch(const char *path, const char *how) {
    void *plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!plugin) return fprintf(stderr, "%s\n", dlerror()), 3;
    int (*watched)(const char *) = (int (*)(const char *))dlsym(plugin, "plugin_watched");
    return watched ? watched(how) : 4;
}

int main(int argc, char **argv) {
    static struct run run;
    if (argc < 3) return 2;
    run.again = argc > 3 && !strcmp(argv[3], "again"), run.jumps = argc > 3 && !strcmp(argv[3], "jumps");
    run.plugin = argv[1], run.milliseconds = (uint32_t)atoi(argv[2]);
    real_tls_get_addr = (void *(*)(void *))dlsym(RTLD_NEXT, "__tls_get_addr");
    if (argc > 3 && !strcmp(argv[3], "watched")) return watch(argv[1], argv[2]);
    pthread_t busy_one, user;
    pthread_create(&busy_one, NULL, busy, NULL);
    pthread_create(&user, NULL, use_plugin, &run);
    void *plugin = NULL;
    pthread_join(user, &plugin);
    if (run.outcome) return run.outcome;
    if (run.again || run.jumps) return printf("{\"fixed\": %d, \"sent\": %d, \"got\": %lu}\n", run.fixed, SENT, got), 0;
    /* The host has no more use for it: the handler must be there all the same. */
    dlclose(plugin);
    void *still = dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD);
    for (int i = 0; i < 100; i++) kill(getpid(), SIGPROF);
    atomic_store(&stop, 1);
    pthread_join(busy_one, NULL);
    printf("{\"ended\": %d, \"fixed\": %d, \"allocations\": %lu, \"resolutions\": %lu, \"stays\": %s, \"stats\": %s}\n", run.ended,
           run.fixed, run.allocated, run.resolved, still ? "true" : "false", run.ended ? "null" : run.account);
    return 0;
}
