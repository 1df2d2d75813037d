package translate

import (
	"cmp"
	"errors"
	"slices"

	v1 "loxilb/api/v1"
)

// MaxEndpoints is the number of endpoints that a balancer's service may have.
const MaxEndpoints = 4096

// maxSize limits the bytes of a Service's services on all balancers together. Each port repeats the
// endpoints, source ranges and texts of probes, so a Service of a megabyte could exhaust the
// controller's memory.
const maxSize = 16 << 20

// ErrTooLarge reports that a Service exceeds maxSize.
var ErrTooLarge = errors.New("endpoints and source ranges of all ports together take more than 16 MiB: distribute the ports among several Services")

// addSize adds the bytes of an entry, and returns ErrTooLarge beyond maxSize.
func (in *Input) addSize(bytes int) error {
	if in.size += bytes; in.size > maxSize {
		return ErrTooLarge
	}
	return nil
}

// limitEndpoints removes endpoints beyond MaxEndpoints, backups first, and reports whether it has
// removed any. Otherwise the balancer would refuse the service and keep its former endpoints, whose
// pods end one by one.
func limitEndpoints(spec *v1.LoadbalanceEntry) (omitted bool) {
	if len(spec.Endpoints) <= MaxEndpoints {
		return false
	}
	slices.SortStableFunc(spec.Endpoints, func(a, b v1.Endpoint) int { return cmp.Compare(a.Backup, b.Backup) })
	spec.Endpoints = spec.Endpoints[:MaxEndpoints]
	return true
}
