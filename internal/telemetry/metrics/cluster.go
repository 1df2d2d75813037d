package metrics

import "loxilb/internal/lb/report"

// clusterFamilies are the metrics of nodes with which this one exchanges connections.
func clusterFamilies() []family {
	of := []string{"peer"}
	each := func(value func(p *report.ClusterPeer) float64) func(*view, *page) {
		return func(v *view, p *page) {
			for i := range v.clusterPeers() {
				one := &v.cluster.Peers[i]
				p.add(value(one), one.DisplayName())
			}
		}
	}
	return []family{
		{
			Metric{"loxilb_cluster_peer_up", Gauge, of, "1 if the other node has the connections of this one and gets what changes, else 0.", Always},
			each(func(p *report.ClusterPeer) float64 { return boolValue(p.State == report.PeerUp) }),
		},
		{
			Metric{"loxilb_cluster_peer_lag_seconds", Gauge, of, "Age of the oldest sent record that the other node has not applied.", Always},
			each(func(p *report.ClusterPeer) float64 { return p.Lag.Seconds() }),
		},
		{
			Metric{"loxilb_cluster_peer_queued_bytes", Gauge, of, "Records that wait for the other node, 8 MiB at most.", Always},
			each(func(p *report.ClusterPeer) float64 { return float64(p.Queued) }),
		},
		{
			Metric{"loxilb_cluster_peer_bulk_copies_total", Counter, of, "How often the other node got all connections since the daemon started.", Always},
			each(func(p *report.ClusterPeer) float64 { return float64(p.BulkCopies) }),
		},
		{
			Metric{"loxilb_cluster_sent_records_total", Counter, of, "Connection states sent to the other node since the daemon started.", Always},
			each(func(p *report.ClusterPeer) float64 { return float64(p.Sent) }),
		},
		{
			Metric{"loxilb_cluster_received_records_total", Counter, []string{"peer", "result"}, "Connection states that the other node has sent since the daemon started, by result; dropped: their service or endpoint did not appear here.", Always},
			clusterResults,
		},
		{
			Metric{"loxilb_cluster_lost_events_total", Counter, nil, "Connection states that found the packet path's ring full since the daemon started; scans of the table sent them later.", Always},
			func(v *view, p *page) {
				if v.cluster != nil {
					p.add(float64(v.cluster.Lost))
				}
			},
		},
	}
}

func clusterResults(v *view, out *page) {
	for i := range v.clusterPeers() {
		p := &v.cluster.Peers[i]
		for r, n := range p.Results {
			if n > 0 {
				out.add(float64(n), p.DisplayName(), report.CopyResult(r).String())
			}
		}
		if p.Dropped > 0 {
			out.add(float64(p.Dropped), p.DisplayName(), "dropped")
		}
	}
}

// clusterPeers returns the other nodes; none without a cluster.
func (v *view) clusterPeers() []report.ClusterPeer {
	if v.cluster == nil {
		return nil
	}
	return v.cluster.Peers
}
