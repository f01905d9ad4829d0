/* Programs that make it hard for whoever looks at them from outside; MODE says how. Each is busy until it is killed.
     forks   children that end at once, as fast as they come; says of each second how many there were
     maps    120,000 mappings, or as many as the kernel allows; busy in one of the program's own functions
     frames  frame pointers that run in a circle, that point nowhere, that cross a page that is not there, and that are rewritten, with the page that they are on, all the time
     busy    nothing else
     first, second: becomes the other one again and again, so that what is looked up may be another program's */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile unsigned long sink;

static double used(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

__attribute__((noinline)) void MODE(void) {
    for (unsigned long i = 0; i < 3000000; i++) sink = sink * 31 + i;
    __asm__ volatile("" ::: "memory");
}

#if defined(FORKS)
static void work(void) {
    static double since;
    static unsigned long forks;
    struct timespec t;
    /* Several at once, so that they need not be waited for one by one. */
    for (int i = 0; i < 16; i++) {
        pid_t child = fork();
        if (child == 0) _exit(0);
        forks += child > 0;
    }
    while (wait(NULL) > 0);
    clock_gettime(CLOCK_MONOTONIC, &t);
    double now = t.tv_sec + t.tv_nsec / 1e9;
    if (since == 0) since = now, forks = 0;
    if (now - since < 1) return;
    printf("forked %lu in %.3f\n", forks, now - since);
    fflush(stdout);
    since = now, forks = 0;
}
static void prepare(void) {}
#elif defined(MAPS)
static void work(void) { MODE(); }
static void prepare(void) {
    long page = sysconf(_SC_PAGESIZE), most = 120000;
    for (long i = 0; i < most; i++) {
        /* Neighbours with other rights are not joined. */
        int rights = PROT_READ | (i % 2 ? PROT_EXEC : 0);
        if (mmap(NULL, page, rights, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED) break;
    }
}
#elif defined(FRAMES)
#include <pthread.h>
static uintptr_t circle[4];
static char *edge;
static uintptr_t *chain;
static long page;
/* Frames that lead to each other, or nowhere, on a page that is there or not. */
static void *rewrite(void *none) {
    unsigned long state = 1;
    for (;;) {
        for (int i = 0; i < 20000; i++) {
            state = state * 6364136223846793005UL + 1442695040888963407UL;
            uintptr_t to = state >> 60 ? (uintptr_t)(chain + (state >> 33) % (page / 8 - 1) / 2 * 2) : state;
            chain[(state >> 17) % (page / 8)] = state >> 59 & 1 ? to : (uintptr_t)MODE + 4;
        }
        mprotect(chain, page, PROT_NONE);
        usleep(100);
        mprotect(chain, page, PROT_READ | PROT_WRITE);
        usleep(1000);
    }
    return none;
}
/* Busy with this value in the frame pointer. */
__attribute__((noinline)) static void spin(uintptr_t fp) {
#if defined(__x86_64__)
    __asm__ volatile("push %%rbp\n mov %0, %%rbp\n mov $2000000, %%rcx\n1: dec %%rcx\n jnz 1b\n pop %%rbp" ::"r"(fp) : "rcx", "memory", "cc");
#else
    (void)fp;
    MODE();
#endif
}
static void work(void) {
    spin((uintptr_t)circle);
    spin(0xdead);
    spin(UINTPTR_MAX - 7);
    spin((uintptr_t)edge - 8);
    spin((uintptr_t)chain);
}
static void prepare(void) {
    circle[0] = (uintptr_t)(circle + 2), circle[1] = (uintptr_t)MODE;
    circle[2] = (uintptr_t)circle, circle[3] = (uintptr_t)MODE;
    page = sysconf(_SC_PAGESIZE);
    chain = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    chain[0] = (uintptr_t)chain, chain[1] = (uintptr_t)MODE;
    pthread_t thread;
    pthread_create(&thread, NULL, rewrite, NULL);
    edge = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(edge + page, page);
    edge += page;
}
#elif defined(BUSY)
static void work(void) { MODE(); }
static void prepare(void) {}
#else
#define SWAPS
static void work(void) { MODE(); }
static void prepare(void) {}
#endif

int main(int count, char **arguments) {
    prepare();
    if (count < 3) {
        puts("ready");
        fflush(stdout);
    }
#ifdef SWAPS
    double until = used() + 0.05;
    while (used() < until) work();
    char *next[] = {arguments[1], arguments[0], "again", NULL};
    execv(next[0], next);
    return 1;
#else
    (void)arguments;
    for (;;) work();
#endif
}
