/* A program that computes for 50 ms, and then has the kernel read zeros in a thread of the kernel's own (io_uring), until MILLISECONDS of CPU time are spent. It prints
   that in nanoseconds; 0 where the kernel has no io_uring, or forbids it. */
#include <fcntl.h>
#include <linux/io_uring.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static char zeros[16 << 20];

static void *mapped(int ring, size_t bytes, off_t part) {
    return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, part);
}

int main(void) {
    struct io_uring_params made = {0};
    int ring = syscall(__NR_io_uring_setup, 1, &made), file = open("/dev/zero", O_RDONLY);
    if (ring < 0 || file < 0) {
        puts("0");
        return 0;
    }
    char *asked = mapped(ring, made.sq_off.array + made.sq_entries * sizeof(unsigned), IORING_OFF_SQ_RING);
    char *done = mapped(ring, made.cq_off.cqes + made.cq_entries * sizeof(struct io_uring_cqe), IORING_OFF_CQ_RING);
    struct io_uring_sqe *entry = mapped(ring, made.sq_entries * sizeof *entry, IORING_OFF_SQES);
    if (asked == MAP_FAILED || done == MAP_FAILED || entry == MAP_FAILED)
        return 1;
    struct timespec used;
    do {
        for (volatile unsigned turns = 1000000; turns > 0; turns--) {
        }
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    } while (used.tv_sec == 0 && used.tv_nsec < 50000000);
    do {
        entry[0] = (struct io_uring_sqe){
            .opcode = IORING_OP_READ, .flags = IOSQE_ASYNC, .fd = file, .addr = (unsigned long)zeros, .len = sizeof zeros};
        unsigned *tail = (unsigned *)(asked + made.sq_off.tail);
        ((unsigned *)(asked + made.sq_off.array))[*tail & (made.sq_entries - 1)] = 0;
        __atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
        if (syscall(__NR_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) < 0)
            return 1;
        __atomic_store_n((unsigned *)(done + made.cq_off.head),
                         __atomic_load_n((unsigned *)(done + made.cq_off.tail), __ATOMIC_ACQUIRE), __ATOMIC_RELEASE);
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    } while (used.tv_sec * 1000000000 + used.tv_nsec < MILLISECONDS * 1000000L);
    printf("%ld\n", used.tv_sec * 1000000000 + used.tv_nsec);
    return 0;
}
