package observation

import (
	"net/http"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/lb/report"
)

// GetCluster replies with the nodes that exchange connections with this one.
func (a *API) GetCluster(w http.ResponseWriter, _ *http.Request) {
	out := v1.Cluster{Peers: []v1.ClusterPeer{}}
	var c *report.Cluster
	if a.Cluster != nil {
		c = a.Cluster()
	}
	if c == nil {
		rest.JSON(w, out)
		return
	}
	out.Enabled, out.Node, out.Listen, out.Joined, out.Held, out.Lost = true, c.Node, c.Listen, c.Joined, c.Held, c.Lost
	if c.Self >= 0 {
		out.Self = &c.Self
	}
	for i := range c.Peers {
		out.Peers = append(out.Peers, clusterPeer(&c.Peers[i]))
	}
	out.Problems = c.Problems
	var notes rest.Warnings
	if c.Held != "" {
		notes.Add("VIPs are not announced: %s", c.Held)
	}
	for _, problem := range c.Problems {
		notes.Add("%s", problem)
	}
	notes.Write(w)
	rest.JSON(w, out)
}

func clusterPeer(p *report.ClusterPeer) v1.ClusterPeer {
	out := v1.ClusterPeer{
		Node: p.Node, Address: p.Address, State: string(p.State), Reason: p.Reason, Since: p.Since, Version: p.Build, Revision: p.Revision,
		Lag: p.Lag.Seconds(), Queued: p.Queued, Sent: p.Sent, Received: p.Received, Parked: p.Parked, Dropped: p.Dropped, BulkCopies: p.BulkCopies,
		Results: []v1.ClusterResult{}, Differing: p.Differing, Differences: p.Differences,
	}
	for r, n := range p.Results {
		if n > 0 {
			out.Results = append(out.Results, v1.ClusterResult{Result: report.CopyResult(r).String(), Records: n})
		}
	}
	return out
}
