package report

import "slices"

// DropReason is why the data path drops a packet. loxilb-drops(7) has the same texts.
type DropReason struct {
	Name    string // in metrics: no-endpoint
	Meaning string
	Cause   string // the usual one
	Remedy  string // a command if possible
}

// DropReasons returns all reasons, in the order of bpf/abi.h.
func DropReasons() []DropReason { return slices.Clone(dropReasons[:]) }

// DropReasonOf returns the reason of a name.
func DropReasonOf(name string) (DropReason, bool) {
	i := slices.IndexFunc(dropReasons[:], func(r DropReason) bool { return r.Name == name })
	if i < 0 {
		return DropReason{Name: name}, false
	}
	return dropReasons[i], true
}
