/* A program that publishes a thread context as OTEP 4947 lays it out. It prints how far the pointer to the record is from the thread pointer,
   waits for a line, gives itself another name in two ways, and is busy for MILLISECONDS of CPU time. */
#include <stdint.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <time.h>

struct __attribute__((packed)) record {
    uint8_t trace_id[16], span_id[8], valid, flags;
    uint16_t size;
    uint8_t attributes[612];
};

static struct record record = {
    {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}, {21, 22, 23, 24, 25, 26, 27, 28}, 1, 1, 9, {1, 3, 'a', 'b', 'c', 7, 2, 'x', 'y'}};

static __thread long other[4];
__thread struct record *volatile otel_thread_ctx_v1;

static volatile long sink;

int main(void) {
    struct timespec used;
    otel_thread_ctx_v1 = &record;
    other[1] = 1;
    printf("%ld\n", (long)((char *)&otel_thread_ctx_v1 - (char *)__builtin_thread_pointer()));
    fflush(stdout);
    getchar();
    FILE *name = fopen("/proc/self/comm", "w");
    if (name == NULL || fputs("written", name) < 0 || fclose(name) != 0) return 1;
    prctl(PR_SET_NAME, "renamed");
    do {
        for (long i = 0; i < 100000; i++) sink = sink * 31 + i;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    } while (used.tv_sec * 1000 + used.tv_nsec / 1000000 < MILLISECONDS);
    return 0;
}
