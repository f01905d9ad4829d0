/* A library in two builds (LIBRARY=alpha, or beta with SECOND) of one size, so that one can take the place of the other: at an
   address the other one has another function, with other unwind tables. */
#include <stdint.h>

#define JOINED(library, part) library##part
#define NAMED(library, part) JOINED(library, part)
#define FUNCTION(part) __attribute__((noinline)) static uint64_t NAMED(LIBRARY, part)

static volatile uint64_t sink;

#define SHIFT \
    FUNCTION(_shift)(uint64_t x, unsigned rounds) { \
        for (unsigned i = 0; i < rounds; i++) x ^= x << 13, x ^= x >> 7, x ^= x << 17; \
        return x; \
    }
#define SPREAD \
    FUNCTION(_spread)(uint64_t x, unsigned rounds) { \
        volatile uint64_t many[100]; \
        for (unsigned i = 0; i < rounds; i++) many[i % 100] = x = x * 6364136223846793005u + many[(i + 7) % 100]; \
        return x; \
    }

#ifdef SECOND
SPREAD
SHIFT
#else
SHIFT
SPREAD
#endif

FUNCTION(_frames)(unsigned depth, unsigned rounds) {
    uint64_t x = depth ? NAMED(LIBRARY, _frames)(depth - 1, rounds)
                       : NAMED(LIBRARY, _shift)(88172645463325252u, rounds) + NAMED(LIBRARY, _spread)(1, rounds);
    sink = x;
    return x + 1;
}

/* Calls back, from below functions of this library. */
FUNCTION(_calls)(unsigned depth, void (*call)(void *), void *data) {
    if (depth) return NAMED(LIBRARY, _calls)(depth - 1, call, data) + 1;
    call(data);
    return sink;
}

uint64_t library_call(unsigned depth, void (*call)(void *), void *data) {
    return NAMED(LIBRARY, _calls)(depth, call, data) + 1;
}

uint64_t library_work(unsigned depth, unsigned rounds) { return NAMED(LIBRARY, _frames)(depth, rounds); }
