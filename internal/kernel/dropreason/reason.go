// Package dropreason lists the reasons why packets are dropped, and remedies, for the API, the page
// and the command line. loxilb-drops(7) has the same texts.
package dropreason

import "slices"

// Reason is why the data path drops a packet.
type Reason struct {
	Name    string // in metrics: no-endpoint
	Meaning string
	Cause   string // the usual one
	Remedy  string // a command if possible
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
