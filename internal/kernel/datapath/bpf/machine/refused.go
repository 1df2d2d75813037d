//go:build !(amd64 || arm64 || loong64 || ppc64le || riscv64)

package machine

// The compiler's error contains this sentence, twice if it is longer than 70 characters.
const _ bool = "loxilb is for little-endian 64-bit machines: amd64 and arm64"
