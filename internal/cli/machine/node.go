package machine

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
	"loxilb/internal/cli/session"
)

func getNode(o *session.Options) *cobra.Command {
	return &cobra.Command{
		Use:   "node",
		Short: "Show this node: name, version, roles, and whether it is drained; or all nodes of a cluster",
		Long: "Shows this node. With --store or --cluster, shows all nodes: whether each is up, draining, drained or\n" +
			"away, its version, connections, the number of nodes with which it exchanges them, and how far its\n" +
			"connections are behind those of this node. The store revision is that of the last change of any\n" +
			"node in the shared store that the node has applied; revisions of apply count changes of one node.",
		Example: "  loxicmd get node\n  loxicmd get node -o wide",
		Args:    cobra.NoArgs,
		RunE: session.Show(o, (*v1.Client).GetNode, func(n *v1.Node) *session.Table {
			if len(n.Nodes) > 0 {
				return nodesTable(o, n)
			}
			t := session.NewTable("Name", "Version", "Uptime", "Roles", "Maintenance")
			roles := make([]string, len(n.Instances))
			for i, one := range n.Instances {
				roles[i] = one.Instance + " " + one.State
			}
			cells := [][]string{{n.HostName}, {n.Version}, {(time.Duration(n.Uptime) * time.Second).String()}, roles, {maintenanceText(n.Maintenance)}}
			if a := n.Announcements; a != nil {
				t = session.NewTable("Name", "Version", "Uptime", "Roles", "Maintenance", "VIPs")
				cells = append(cells, []string{fmt.Sprintf("%d announced", a.Announced), fmt.Sprintf("%d not announced", a.Withdrawn)})
			}
			t.AddLines(cells...)
			return t
		}),
	}
}

// nodesTable lists the nodes of a cluster.
func nodesTable(o *session.Options, n *v1.Node) *session.Table {
	columns := []string{"Node", "State", "Version", "Roles", "Store revision", "Connections", "Peers", "Exchange", "Lag"}
	if o.Output == "wide" {
		columns = append(columns, "Since", "Maintenance", "Reason")
	}
	t := session.NewTable(columns...)
	for i := range n.Nodes {
		one := &n.Nodes[i]
		name, revision, maintenance := one.Name, "-", "-"
		state := cmp.Or(one.Maintenance, one.State)
		if one.State != "up" {
			state = one.State
		}
		if one.Own {
			name, maintenance = name+" (this)", maintenanceText(n.Maintenance)
		}
		if one.Revision > 0 {
			revision = strconv.FormatUint(one.Revision, 10)
		}
		if one.Behind {
			revision += " (behind)"
		}
		connections, peers := "-", "-"
		if isDescribed(one) {
			connections, peers = strconv.Itoa(one.Connections), strconv.Itoa(one.Peers)
		}
		row := []string{
			name, state, one.Version, strings.Join(one.Roles, ", "), revision, connections, peers, cmp.Or(one.Exchange, "-"), lagText(one.Exchange, one.Lag),
		}
		if o.Output == "wide" {
			row = append(row, session.Clock(one.Since), maintenance, nodeReason(one))
		}
		t.Add(row...)
	}
	return t
}

// isDescribed reports whether the numbers of a node are known. They are unknown while the node is
// away, or has not sent any yet.
func isDescribed(n *v1.ClusterNode) bool {
	return n.State != "away" && (n.Own || n.Exchange != "up" || n.Connections > 0 || n.Peers > 0)
}

// nodeReason returns why a node is away, or that its services differ.
func nodeReason(n *v1.ClusterNode) string {
	if n.Reason != "" || n.Differing == 0 {
		return n.Reason
	}
	if n.Differing == 1 {
		return "a service differs: loxicmd get cluster"
	}
	return fmt.Sprintf("%d services differ: loxicmd get cluster", n.Differing)
}

// maintenanceText returns the stage of a node, and the progress of its drain.
func maintenanceText(m *v1.NodeMaintenance) string {
	switch {
	case m == nil:
		return "in service"
	case m.Stage != "draining":
		return m.Stage + " since " + session.Clock(m.Since)
	}
	text := fmt.Sprintf("draining: %d connections, %.0f packets/s", m.Connections, m.PacketRate)
	if m.Idle >= 0.5 {
		text += fmt.Sprintf(", none for %.1f s", m.Idle)
	}
	if !m.Deadline.IsZero() {
		text += ", until " + session.Clock(m.Deadline)
	}
	return text
}

func drainNode(o *session.Options) *cobra.Command {
	var (
		deadline   time.Duration
		exit, wait bool
	)
	cmd := &cobra.Command{
		Use:   "drain",
		Short: "Take this node out of service: other nodes get its connections",
		Long: "Asks routers to prefer other nodes (graceful shutdown, a worse MED), waits until two seconds pass\n" +
			"without packets of services, or until the deadline, and then withdraws all VIPs, ends BGP sessions\n" +
			"and gives up the role MASTER. The node stays drained until resume, also across restarts.\n" +
			"Endpoints are drained by: loxicmd drain endpoint.",
		Example: "  loxicmd node drain --deadline=5m --wait\n  loxicmd node drain --deadline=5m --exit --wait",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("deadline") && deadline < time.Second {
				return fmt.Errorf("--deadline %v is out of range (allowed: 1s or more)", deadline)
			}
			err := o.Change(cmd.Context(), func(ctx context.Context, c *v1.Client) (*http.Response, error) {
				return c.DrainNode(ctx, v1.NodeDrainRequest{Within: v1.Seconds(deadline / time.Second), Exit: exit})
			})
			if err != nil || !wait {
				return err
			}
			return waitDrained(cmd, o, exit)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	session.DurationVar(fs, &deadline, "deadline", "", 0, "withdraw after this time even if packets still arrive, such as 90s or 5m; 0: never")
	fs.BoolVar(&wait, "wait", false, "wait until the node is drained, and show the progress")
	fs.BoolVar(&exit, "exit", false, "the daemon exits once the node is drained; the data path stays attached")
	return cmd
}

// progressEvery is how often the progress of a drain is shown.
const progressEvery = time.Second

// waitDrained shows the progress until the node is drained. A daemon that exits is drained as well.
func waitDrained(cmd *cobra.Command, o *session.Options, exit bool) error {
	for {
		c, err := o.Client()
		if err != nil {
			return err
		}
		node, err := session.DecodeAs[v1.Node](o.Answer(c.GetNode(cmd.Context())))
		switch {
		case err != nil && exit && cmd.Context().Err() == nil:
			fmt.Fprintln(cmd.OutOrStdout(), "drained; the daemon has exited")
			return nil
		case err != nil:
			return err
		case node.Maintenance == nil:
			return fmt.Errorf("the node was put into service again meanwhile")
		}
		fmt.Fprintln(cmd.OutOrStdout(), maintenanceText(node.Maintenance))
		if node.Maintenance.Stage == "drained" && !exit {
			return nil
		}
		select {
		case <-cmd.Context().Done():
			return cmd.Context().Err()
		case <-time.After(progressEvery):
		}
	}
}

func resumeNode(o *session.Options) *cobra.Command {
	return &cobra.Command{
		Use:     "resume",
		Short:   "Put this node into service again",
		Example: "  loxicmd node resume",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.Change(cmd.Context(), func(ctx context.Context, c *v1.Client) (*http.Response, error) {
				return c.ResumeNode(ctx)
			})
		},
	}
}
