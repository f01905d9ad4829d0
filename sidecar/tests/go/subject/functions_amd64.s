#include "textflag.h"

// func assembly(a uint64) uint64: keeps no frame.
TEXT ·assembly(SB), NOSPLIT, $0-16
	MOVQ a+0(FP), AX
	MOVQ $10, CX
again:
	ADDQ CX, AX
	DECQ CX
	JNZ  again
	MOVQ AX, ret+8(FP)
	RET

// func framedAssembly(a uint64) uint64: calls back, and pushes by itself.
TEXT ·framedAssembly(SB), 0, $24-16
	MOVQ  a+0(FP), AX
	PUSHQ AX
	PUSHQ CX
	POPQ  CX
	POPQ  AX
	MOVQ  AX, 0(SP)
	CALL  ·called(SB)
	MOVQ  8(SP), AX
	MOVQ  AX, ret+8(FP)
	RET
