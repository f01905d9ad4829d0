/* A library with one function; which one, the build says. */
static int NAME(int a) { return a * 7; }
int (*work)(int) = NAME;
