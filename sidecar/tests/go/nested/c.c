/* What main.go says of C: no function here keeps anything in the register of the frame pointer, but cgo's own that calls Go keeps its argument there. */
#include <pthread.h>

#include "_cgo_export.h"

typedef unsigned long word;

static __attribute__((noinline)) word inner_c(word x) {
    for (int i = 0; i < 10000000; i++) x = x * 1664525u + 1013904223u;
    return x;
}

word outer_c(word x) { return inner_c(x) + 1; }

word calls_go(word x) { return goWorks(x) + 1; }

static void *thread_c(void *x) { return (void *)(calls_go((word)x) + 1); }

word in_thread(word x) {
    pthread_t thread;
    void *got = 0;
    if (pthread_create(&thread, 0, thread_c, (void *)x) == 0) pthread_join(thread, &got);
    return (word)got + 1;
}

/* Where there are only zeros. */
word zeros(void) {
    static word none[4];
    return (word)none;
}
