// Package machine is built where the programs and what they share with user space can be: on
// little-endian machines of 64 bits. On others its error is the only one that go build has, as
// nothing that imports it is built then.
package machine
