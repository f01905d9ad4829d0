package main

// asm-generic/unistd.h.
const memfdCreate = 279
