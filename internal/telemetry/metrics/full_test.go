package metrics

import (
	"time"

	"loxilb/internal/lb"
	"loxilb/internal/lb/bgp"
)

// full returns options that show everything.
func full() Options {
	return Options{
		Build: Build{Version: "v1", Kernel: "6.18.5", Hook: "tcx"}, Endpoints: true, Compat: true, Peaks: fakePeaks{},
		Certificates: func([]CertificateFile) []Certificate {
			return []Certificate{{CertificateFile{"api", "/etc/loxilb/tls.crt"}, time.Unix(1800000000, 0)}}
		},
		Sessions: func() []bgp.Session {
			return []bgp.Session{{Neighbor: "10.0.0.2", State: bgp.Established, Flaps: 1, Sent: 2, Received: 3}, {Neighbor: "eth0", State: "Active"}}
		},
	}
}

type fakePeaks struct{}

func (fakePeaks) Table() uint64 { return 1234 }

func (fakePeaks) Service(key lb.Key) uint64 { return uint64(key.Port) }
