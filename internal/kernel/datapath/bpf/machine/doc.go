// Package machine is built only on little-endian 64-bit machines, for which the BPF programs and
// their shared types are made. On others its error is the only one of go build, as its importers
// are not built.
package machine
