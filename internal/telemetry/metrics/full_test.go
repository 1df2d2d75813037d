package metrics

import (
	"net/netip"
	"time"

	"loxilb/internal/control/store"
	"loxilb/internal/lb"
	"loxilb/internal/lb/bgp"
	"loxilb/internal/lb/netobj"
	"loxilb/internal/lb/report"
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
		Announcements: func() []report.Announcement {
			return []report.Announcement{{Prefix: netip.MustParsePrefix("20.20.20.1/32"), Announced: true}}
		},
		SharedStore: func() (store.RemoteStatus, bool) {
			return store.RemoteStatus{Ready: true, Problems: []store.RemoteProblem{{Path: "service/x"}}}, true
		},
		Cluster: func() *report.Cluster {
			return &report.Cluster{Lost: 1, Peers: []report.ClusterPeer{{
				Node: "lb2", State: report.PeerUp, Lag: time.Second, Queued: 2, Sent: 3, BulkCopies: 4, Dropped: 5, Results: [report.CopyResults]uint64{report.CopyInserted: 6},
			}}}
		},
		Pairs: func() []netobj.BFDCount {
			return []netobj.BFDCount{{Session: "10.0.0.2", Up: true, Failures: 2, Changes: 3}}
		},
	}
}

type fakePeaks struct{}

func (fakePeaks) Table() uint64 { return 1234 }

func (fakePeaks) Service(key lb.Key) uint64 { return uint64(key.Port) }
