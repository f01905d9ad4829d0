/* What main.go says of C: no function here keeps anything in the register of the frame pointer by itself. */
#include <pthread.h>

#include "_cgo_export.h"

static __attribute__((noinline)) unsigned inner_c(unsigned x) {
    for (int i = 0; i < 10000000; i++) x = x * 1664525u + 1013904223u;
    return x;
}

unsigned outer_c(unsigned x) { return inner_c(x) + 1; }

unsigned calls_go(unsigned x) { return goWorks(x) + 1; }

static void *thread_c(void *x) { return (void *)(unsigned long)(calls_go((unsigned)(unsigned long)x) + 1); }

unsigned in_thread(unsigned x) {
    pthread_t thread;
    void *got = 0;
    if (pthread_create(&thread, 0, thread_c, (void *)(unsigned long)x) == 0) pthread_join(thread, &got);
    return (unsigned)(unsigned long)got + 1;
}
