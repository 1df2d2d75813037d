package kinds

import (
	"slices"

	v1 "loxilb/api/v1"
	"loxilb/internal/lb"
)

// Endpoint registers addresses with users' own probes, independent of services.
func Endpoint() *Kind[lb.EndpointProbe, v1.EndpointProbe] {
	fields := lb.EndpointProbeFields()
	return &Kind[lb.EndpointProbe, v1.EndpointProbe]{
		Words: Words{
			Name: "endpoint", Document: EndpointDocument, Command: "endpoint", Aliases: []string{"ep", "Endpoint", "endpoints"},
			List: "Attr", Member: "hostName", Exported: true,
		},
		Stored: Stored[lb.EndpointProbe]{
			Key: func(e lb.EndpointProbe) string { return e.Key() },
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
			Max:    65536, // each is probed, whether or not a service uses it
			Plural: "endpoints with their own probes",
			Shared: true,
		},
	}
}
