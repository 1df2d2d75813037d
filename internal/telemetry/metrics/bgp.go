package metrics

import "loxilb/internal/lb/bgp"

// bgpFamilies are the metrics of sessions with BGP neighbors.
func bgpFamilies() []family {
	of := []string{"neighbor"}
	each := func(value func(s *bgp.Session) float64) func(*view, *page) {
		return func(v *view, p *page) {
			for i := range v.sessions {
				p.add(value(&v.sessions[i]), v.sessions[i].Neighbor)
			}
		}
	}
	return []family{
		{
			Metric{"loxilb_bgp_session_up", Gauge, of, "1 if the session with the BGP neighbor is established, else 0.", Always},
			each(func(s *bgp.Session) float64 { return boolValue(s.Up()) }),
		},
		{
			Metric{"loxilb_bgp_session_flaps_total", Counter, of, "Sessions with the BGP neighbor that ended since the daemon started.", Always},
			each(func(s *bgp.Session) float64 { return float64(s.Flaps) }),
		},
		{
			Metric{"loxilb_bgp_prefixes_sent", Gauge, of, "Prefixes announced to the BGP neighbor.", Always},
			each(func(s *bgp.Session) float64 { return float64(s.Sent) }),
		},
		{
			Metric{"loxilb_bgp_prefixes_received", Gauge, of, "Prefixes that the BGP neighbor announces, before policies.", Always},
			each(func(s *bgp.Session) float64 { return float64(s.Received) }),
		},
		{
			Metric{"loxilb_vip_announced", Gauge, []string{"prefix"}, "1 if the VIP, or the aggregate in its place, is announced by BGP, else 0.", Always},
			func(v *view, p *page) {
				for _, a := range v.announcements {
					p.add(boolValue(a.Announced), a.Prefix.String())
				}
			},
		},
	}
}
