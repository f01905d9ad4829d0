package main

// Source: asm/unistd_64.h, which package syscall of this architecture does not have.
const (
	memfdCreate = 319
	userfaultfd = 323
)
