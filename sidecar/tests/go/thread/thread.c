/* The thread of main.go: named "c-thread", it calls Go once, after which Go's runtime keeps what it needs for the next call, then computes in `inner_c` for so many seconds of
   processor time. */
#include <pthread.h>
#include <sys/prctl.h>
#include <time.h>

#include "_cgo_export.h"

static double used(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

__attribute__((noinline)) static unsigned inner_c(unsigned x) {
    for (int i = 0; i < 100000; i++) x = x * 1664525u + 1013904223u;
    return x;
}

static unsigned result;

__attribute__((noinline)) static void *thread_c(void *seconds) {
    prctl(PR_SET_NAME, "c-thread");
    called();
    for (double end = used() + *(double *)seconds; used() < end;) result = inner_c(result) + 1;
    return 0;
}

void work_in_thread(double seconds) {
    pthread_t thread;
    if (pthread_create(&thread, 0, thread_c, &seconds) == 0) pthread_join(thread, 0);
}
