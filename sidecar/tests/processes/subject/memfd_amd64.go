package main

// asm/unistd_64.h, which syscall of this architecture does not have.
const memfdCreate = 319
