// Package dropreason says why packets are dropped, and what mends it: to whoever asks the API, the
// page and the command line the same as docs/drop-reasons.md and docs/operations.md.
package dropreason

import "slices"

// Reason is why the data path drops a packet.
type Reason struct {
	Name    string // as metrics have it: no-endpoint
	Meaning string
	Cause   string // the usual one
	Remedy  string // what to do, as a command where there is one
}

// All are the reasons that there are, in the order of bpf/abi.h.
func All() []Reason { return slices.Clone(reasons[:]) }

// Of is the reason of a name.
func Of(name string) (Reason, bool) {
	i := slices.IndexFunc(reasons[:], func(r Reason) bool { return r.Name == name })
	if i < 0 {
		return Reason{Name: name}, false
	}
	return reasons[i], true
}
