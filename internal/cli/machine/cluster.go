package machine

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
	"loxilb/internal/cli/session"
)

func getCluster(o *session.Options) *cobra.Command {
	return &cobra.Command{
		Use:   "cluster",
		Short: "Show the nodes that exchange connections with this one",
		Long: "Shows the peers of --cluster: whether each has the connections of this node (up), gets all of them\n" +
			"(copying), is not connected (down), or does not fit this node (refused). Lag is how far its\n" +
			"connection table lags behind this one. The reason names services that differ from those of this\n" +
			"node. -o wide also shows the outcomes of the records that it sent.",
		Example: "  loxicmd get cluster\n  loxicmd get cluster -o wide",
		Args:    cobra.NoArgs,
		RunE:    session.Show(o, (*v1.Client).GetCluster, func(c *v1.Cluster) *session.Table { return clusterTable(o, c) }),
	}
}

func clusterTable(o *session.Options, c *v1.Cluster) *session.Table {
	columns := []string{"Node", "Address", "State", "Since", "Lag", "Sent", "Received", "Reason"}
	if o.Output == "wide" {
		columns = append(columns, "Version", "Queued", "Results")
	}
	t := session.NewTable(columns...)
	for i := range c.Peers {
		p := &c.Peers[i]
		row := []string{
			p.Node, p.Address, p.State, session.Clock(p.Since), lagText(p.State, p.Lag), strconv.FormatUint(p.Sent, 10), strconv.FormatUint(p.Received, 10), reasonText(p),
		}
		if o.Output == "wide" {
			row = append(row, p.Version, strconv.Itoa(p.Queued), resultsText(p))
		}
		t.Add(row...)
	}
	return t
}

// reasonText returns why a node is not connected, or which services differ.
func reasonText(p *v1.ClusterPeer) string {
	if p.Differing == 0 || len(p.Differences) == 0 {
		return p.Reason
	}
	text := p.Differences[0]
	if p.Differing > 1 {
		text = fmt.Sprintf("%d services differ: %s, ...", p.Differing, text)
	}
	if p.Reason != "" {
		text = p.Reason + "; " + text
	}
	return text
}

// lagText returns how far a node lags behind; "-" if it gets nothing.
func lagText(state string, seconds float64) string {
	if state != "up" && state != "copying" {
		return "-"
	}
	return time.Duration(seconds * float64(time.Second)).Round(time.Millisecond).String()
}

// resultsText returns the outcomes of a peer's records.
func resultsText(p *v1.ClusterPeer) string {
	var parts []string
	all := append(slices.Clone(p.Results), v1.ClusterResult{Result: "parked", Records: uint64(p.Parked)}, v1.ClusterResult{Result: "dropped", Records: p.Dropped})
	for _, r := range all {
		if r.Records > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", r.Records, r.Result))
		}
	}
	return strings.Join(parts, ", ")
}
