package desired

import (
	"fmt"
	"slices"

	"loxilb/internal/control/store"
	"loxilb/internal/lb"
)

// EndpointKind is the name of the kind, as messages and journals have it: an address that is probed
// as users say.
const EndpointKind = "endpoint"

// maxEndpointProbes bounds them: each costs a probe every so often, whether or not a service uses
// it.
const maxEndpointProbes = 65536

// Endpoints is the table of addresses that are probed as users say, whatever services want.
type Endpoints struct {
	*store.Table[lb.EndpointProbe]
}

func newEndpoints() *Endpoints {
	e, fields := &Endpoints{}, lb.EndpointProbeFields()
	e.Table = store.NewTable(store.Kind[lb.EndpointProbe]{
		Name: EndpointKind,
		Key:  func(e lb.EndpointProbe) string { return e.Key() },
		Equal: func(a, b lb.EndpointProbe) bool {
			return !slices.ContainsFunc(fields, func(f lb.Field[lb.EndpointProbe]) bool { return !f.Same(&a, &b) })
		},
		Validate: lb.EndpointProbe.Validate,
		Clone: func(e lb.EndpointProbe) lb.EndpointProbe {
			e.Probe.Statuses = slices.Clone(e.Probe.Statuses)
			return e
		},
		Format: 1,
		Encode: func(e lb.EndpointProbe) (int, []byte, error) { b, err := e.MarshalRecord(); return 1, b, err },
		Decode: func(_ int, object []byte) (lb.EndpointProbe, error) { return lb.UnmarshalEndpointProbe(object) },
		Check: func(before, after *store.Snapshot, _ []store.ID) error {
			if n := e.Len(after); n > maxEndpointProbes && n > e.Len(before) {
				return fmt.Errorf("a total of %d endpoints that are probed as users say %w of %d", n, store.ErrLimit, maxEndpointProbes)
			}
			return nil
		},
	})
	return e
}
