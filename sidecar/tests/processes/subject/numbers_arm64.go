package main

// Source: asm-generic/unistd.h.
const (
	memfdCreate = 279
	userfaultfd = 282
)
