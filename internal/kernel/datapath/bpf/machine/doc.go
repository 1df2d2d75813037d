// Package machine is built only on little-endian 64-bit machines, for which the BPF programs and
// their shared types are made. On other machines its error is the only one of go build, since its
// importers are not built.
package machine
