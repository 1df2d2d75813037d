package balancer

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
)

// Limits of a request.
const (
	objectsAtOnce = 500
	listsAtOnce   = 16      // balancers: after a start, hundreds at a time would all take too long
	bytesAtOnce   = 4 << 20 // of specs: a balancer reads 64 MiB, and applies these within some seconds
)

// put sends services, and finds the services that the balancer refuses.
func (m *member) put(ctx context.Context, list []entry, touched map[types.NamespacedName]bool) error {
	free := list[:0]
	for _, e := range list {
		if by, taken := m.foreign[e.key]; taken {
			m.refuse(e, "the address and port belong to "+by, touched)
			continue
		}
		free = append(free, e)
	}
	for len(free) > 0 {
		n := batch(free)
		if err := m.putSome(ctx, free[:n], touched); err != nil {
			return err
		}
		free = free[n:]
	}
	return nil
}

// batch returns how many of some services go into one request.
func batch(list []entry) (n int) {
	for bytes := 0; n < min(len(list), objectsAtOnce); n++ {
		if bytes += len(list[n].spec); bytes > bytesAtOnce && n > 0 {
			break
		}
	}
	return n
}
