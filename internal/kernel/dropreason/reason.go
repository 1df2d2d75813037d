// Package dropreason has the reasons why packets are dropped, and their remedies: the same for the
// API, the page and the command line as in docs/drop-reasons.md and docs/operations.md.
package dropreason

import "slices"

// Reason is why the data path drops a packet.
type Reason struct {
	Name    string // as metrics have it: no-endpoint
	Meaning string
	Cause   string // the usual one
	Remedy  string // what to do, as a command where there is one
}

// All returns all reasons, in the order of bpf/abi.h.
func All() []Reason { return slices.Clone(reasons[:]) }

// Of returns the reason of a name.
func Of(name string) (Reason, bool) {
	i := slices.IndexFunc(reasons[:], func(r Reason) bool { return r.Name == name })
	if i < 0 {
		return Reason{Name: name}, false
	}
	return reasons[i], true
}
