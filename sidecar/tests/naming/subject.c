/* Prints addresses of functions, then waits for the end of its input. With an argument, a library to load first; then, at each line of its input,
 * unloads it and loads the other one. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static __attribute__((noinline)) int inner(int a) { return a * 3 + 1; }
__attribute__((noinline)) int outer(int a) { return inner(a) + inner(a + 1); }

/* Its last instruction is a call: what it returns to is behind the function. */
__attribute__((noinline, noreturn)) void last(void) { abort(); }

int main(int count, char **arguments) {
    unsigned char *code = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(code, 0xc3, 4096);
    void *qsorts = dlsym(RTLD_DEFAULT, "qsort");
    printf("%p\n%p\n%p\n%p\n%p\n", (void *)inner, (void *)outer, qsorts, (void *)code, (void *)last);
    fflush(stdout);
    int next = 1;
    void *library = 0;
    while (getchar() == '\n' && next < count) {
        if (library != 0) dlclose(library);
        library = dlopen(arguments[next++], RTLD_NOW);
        if (library == 0) { fprintf(stderr, "%s\n", dlerror()); return 1; }
        printf("%p\n", *(void **)dlsym(library, "work"));
        fflush(stdout);
    }
    while (getchar() != EOF) {}
    if (count > 100) last();
    return outer(count) == 0;
}
