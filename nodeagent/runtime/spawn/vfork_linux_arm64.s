#include "textflag.h"

// func vforkCall(nr, a, b, c uintptr) (r uintptr)
//
// The return address stays in R30, which the kernel preserves; the frame is
// empty, so the child has nothing of ours to overwrite.
TEXT ·vforkCall(SB), NOSPLIT|NOFRAME, $0-40
	MOVD nr+0(FP), R8
	MOVD a+8(FP), R0
	MOVD b+16(FP), R1
	MOVD c+24(FP), R2
	MOVD $0, R3
	MOVD $0, R4
	SVC
	MOVD R0, r+32(FP)
	RET
