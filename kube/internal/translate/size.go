package translate

import (
	"cmp"
	"errors"
	"slices"

	v1 "loxilb/api/v1"
)

// MaxEndpoints is the number of endpoints that a balancer's service may have.
const MaxEndpoints = 4096

// maxSize bounds the size of a Service on all balancers together. Endpoints, source ranges and
// texts of probes are repeated for each port, so a Service of a megabyte could exhaust the
// controller's memory.
const maxSize = 16 << 20

// ErrTooLarge reports that a Service exceeds maxSize.
var ErrTooLarge = errors.New("endpoints and source ranges of all ports together take more than 16 MiB: distribute the ports among several Services")

// count adds the size of an entry.
func (in *Input) count(bytes int) error {
	if in.size += bytes; in.size > maxSize {
		return ErrTooLarge
	}
	return nil
}

// limit leaves out endpoints beyond MaxEndpoints, backups first, and reports whether there are any.
// A balancer would refuse all endpoints, and go on with former ones, which end one by one.
func limit(spec *v1.LoadbalanceEntry) (omitted bool) {
	if len(spec.Endpoints) <= MaxEndpoints {
		return false
	}
	slices.SortStableFunc(spec.Endpoints, func(a, b v1.Endpoint) int { return cmp.Compare(a.Backup, b.Backup) })
	spec.Endpoints = spec.Endpoints[:MaxEndpoints]
	return true
}
