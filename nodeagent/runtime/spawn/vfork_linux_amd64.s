#include "textflag.h"

// func vforkCall(nr, a, b, c uintptr) (r uintptr)
//
// The child runs first, on this very stack, and its calls overwrite the slot
// of our return address: it is kept in R12, which the kernel preserves.
TEXT ·vforkCall(SB), NOSPLIT|NOFRAME, $0-40
	MOVQ nr+0(FP), AX
	MOVQ a+8(FP), DI
	MOVQ b+16(FP), SI
	MOVQ c+24(FP), DX
	XORL R10, R10
	XORL R8, R8
	MOVQ 0(SP), R12
	SYSCALL
	MOVQ R12, 0(SP)
	MOVQ AX, r+32(FP)
	RET
