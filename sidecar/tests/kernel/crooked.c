/* A program of x86_64 that is busy for MILLISECONDS of CPU time while its frame pointer leads to two words of its own: as if there were no caller above, behind
   an address that is none. So it is in code that uses the register for something else. It prints its CPU time in nanoseconds. */
#include <stdio.h>
#include <time.h>

static const unsigned long words[2] = {0, 0xe8fcf9895850006f};

int main(void) {
    struct timespec used;
    do {
        unsigned long turns = 1000000;
        __asm__ volatile("mov %%rbp, %%r8\n mov %1, %%rbp\n 0: dec %0\n jnz 0b\n mov %%r8, %%rbp" : "+r"(turns) : "r"(words) : "r8", "cc");
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    } while (used.tv_sec * 1000000000 + used.tv_nsec < MILLISECONDS * 1000000L);
    printf("%ld\n", used.tv_sec * 1000000000 + used.tv_nsec);
    return 0;
}
