package metrics

const gtpHelp = "Packets of mobile users since the daemon started, by outcome: taken out of a GTP-U tunnel (taken), put into one (sent), " +
	"left in the tunnel because the source is not its user (forged), or dropped: to a user from an address without classifier (unclassified), " +
	"from a sender that ignores congestion marks (congestion), without route to the base station or memory (failed). No series before the first session."

// mobileFamilies are of mobile users' packets.
func mobileFamilies() []family {
	return []family{{Metric{"loxilb_gtp_packets_total", Counter, []string{"outcome"}, gtpHelp, Always}, func(v *view, p *page) {
		counts := v.src.GTPCounts()
		for _, outcome := range sorted(counts) {
			p.add(float64(counts[outcome]), outcome)
		}
	}}}
}
