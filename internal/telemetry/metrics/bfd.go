package metrics

import "loxilb/internal/lb/netobj"

// bfdFamilies are the metrics of BFD sessions with other nodes.
func bfdFamilies() []family {
	of := []string{"session"}
	each := func(value func(s *netobj.BFDCount) float64) func(*view, *page) {
		return func(v *view, p *page) {
			for i := range v.pairs {
				p.add(value(&v.pairs[i]), v.pairs[i].Session)
			}
		}
	}
	return []family{
		{
			Metric{"loxilb_bfd_session_up", Gauge, of, "1 if the BFD session with the other node is up, else 0.", Always},
			each(func(s *netobj.BFDCount) float64 { return boolValue(s.Up) }),
		},
		{
			Metric{"loxilb_bfd_session_failures_total", Counter, of, "BFD sessions with the other node that ended since the daemon started.", Always},
			each(func(s *netobj.BFDCount) float64 { return float64(s.Failures) }),
		},
		{
			Metric{"loxilb_bfd_role_changes_total", Counter, of, "Changes of the role of this node that were elected since the daemon started.", Always},
			each(func(s *netobj.BFDCount) float64 { return float64(s.Changes) }),
		},
	}
}
