//go:build withc

package main

/*
// So many numbers at once that they take all registers, that of the frame pointer, too.
static unsigned long spun(unsigned long n) {
    unsigned long a = n, b = 1, c = 2, d = 3, e = 4, f = 5, g = 6, h = 7, i = 8, j = 9, k = 10, l = 11, m = 12, o = 13;
    for (unsigned long turn = n / 4; turn > 0; turn--) {
        a = a * 31 + o; b ^= a; c += b; d ^= c; e += d; f ^= e; g += f; h ^= g; i += h; j ^= i; k += j; l ^= k; m += l; o ^= m;
    }
    return a ^ b ^ c ^ d ^ e ^ f ^ g ^ h ^ i ^ j ^ k ^ l ^ m ^ o;
}
*/
import "C"

// Time in C, of which Go's tables know nothing.
//
//go:noinline
func inC(n int) uint64 { return uint64(C.spun(C.ulong(n))) }

func init() { other = inC }
