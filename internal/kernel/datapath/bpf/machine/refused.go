//go:build !(amd64 || arm64 || loong64 || ppc64le || riscv64)

package machine

// The compiler's error has this sentence. Of at most 70 characters, or it has it twice.
const _ bool = "loxilb is for little-endian 64-bit machines: amd64 and arm64"
