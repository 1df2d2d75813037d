package metrics

const gtpHelp = "Packets of mobile users, by outcome: decapsulated from a GTP-U tunnel (taken), encapsulated (sent), " +
	"left in the tunnel because the source is not its user (forged), sent to a user without a tunnel from an address without classifier (routed), " +
	"balanced by tunnel (balanced), or dropped: to a user from an address without classifier or other route (unclassified), " +
	"from a sender that ignores congestion marks (congestion), without route to the base station or memory (failed). " +
	"No series before the first session or service with --select=n3."

// mobileFamilies are the metrics of mobile users' packets.
func mobileFamilies() []family {
	return []family{{Metric{"loxilb_gtp_packets_total", Counter, []string{"outcome"}, gtpHelp, Always}, func(v *view, p *page) {
		counts := v.src.GTPCounts()
		for _, outcome := range sorted(counts) {
			p.add(float64(counts[outcome]), outcome)
		}
	}}}
}
