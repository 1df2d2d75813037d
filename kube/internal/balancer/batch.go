package balancer

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
)

// Limits of requests.
const (
	maxObjects   = 500
	maxLists     = 16      // balancers whose services are read at a time: hundreds would all take too long after a start
	maxSpecBytes = 4 << 20 // a balancer reads 64 MiB, but needs seconds to apply these
)

// put sends services, and records which of them the balancer refuses.
func (m *member) put(ctx context.Context, list []entry, touched map[types.NamespacedName]bool) error {
	free := list[:0]
	for _, e := range list {
		if owner, taken := m.foreign[e.key]; taken {
			m.recordRefused(e, "the address and port belong to "+owner, touched)
			continue
		}
		free = append(free, e)
	}
	for len(free) > 0 {
		n := batchSize(free)
		if err := m.putBatch(ctx, free[:n], touched); err != nil {
			return err
		}
		free = free[n:]
	}
	return nil
}

// batchSize returns how many of the first services fit into one request.
func batchSize(list []entry) (n int) {
	for bytes := 0; n < min(len(list), maxObjects); n++ {
		if bytes += len(list[n].spec); bytes > maxSpecBytes && n > 0 {
			break
		}
	}
	return n
}
