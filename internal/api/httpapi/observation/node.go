package observation

import (
	"cmp"
	"net/http"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/host/machine"
	"loxilb/internal/lb"
)

// GetNode replies with the name, build, uptime, roles and maintenance of this node.
func (a *API) GetNode(w http.ResponseWriter, _ *http.Request) {
	d, err := machine.Describe()
	if err != nil {
		rest.Refuse(http.StatusServiceUnavailable, "the machine can't be described: %v", err).Write(w)
		return
	}
	rest.JSON(w, v1.Node{
		HostName: d.Host, Version: a.Version.Version, Commit: a.Version.Commit, Kernel: d.Kernel, Namespace: a.Version.Namespace,
		Started: time.Now().Add(-time.Since(a.started)), Uptime: time.Since(a.started).Seconds(), MachineUptime: d.Uptime.Seconds(),
		Instances: a.Roles(), Maintenance: a.maintenance(), Announcements: a.announcements(),
		Nodes: a.nodes(),
	})
}

// nodes returns all known nodes, or none if there is only this one.
func (a *API) nodes() (list []v1.ClusterNode) {
	if a.Nodes == nil {
		return nil
	}
	for _, n := range a.Nodes() {
		out := v1.ClusterNode{
			Name: n.Name, Own: n.Own, State: "up", Reason: cmp.Or(n.Away, n.SyncProblem), Since: n.Since, Version: n.Build, Roles: n.Roles, Maintenance: n.Maintenance, Revision: n.Revision,
			Behind: n.Behind, Connections: n.Connections, Exchange: string(n.State), Lag: n.Lag.Seconds(), Peers: n.Peers, Differing: n.Differing,
		}
		if n.Away != "" {
			out.State = "away"
		}
		list = append(list, out)
	}
	return list
}

// shownVIPs is the maximum number of VIPs in an answer.
const shownVIPs = 100

// announcements returns the announcements of VIPs, unannounced ones first; nil: BGP is off.
func (a *API) announcements() *v1.NodeAnnouncements {
	if a.Announcements == nil {
		return nil
	}
	out := &v1.NodeAnnouncements{Neighbors: []string{}, Vips: []v1.Announcement{}}
	for _, s := range a.Sessions() {
		if s.Up() {
			out.Neighbors = append(out.Neighbors, s.Neighbor)
		}
	}
	all := a.Announcements()
	for _, one := range all {
		if one.Announced {
			out.Announced++
		} else {
			out.Withdrawn++
		}
	}
	for _, announced := range []bool{false, true} {
		for _, one := range all {
			if one.Announced == announced && len(out.Vips) < shownVIPs {
				out.Vips = append(out.Vips, v1.Announcement{Prefix: one.Prefix.String(), Announced: announced, Reason: one.Why, Since: one.Since})
			}
		}
	}
	return out
}

// maintenance returns this node's maintenance; nil: it is in service.
func (a *API) maintenance() *v1.NodeMaintenance {
	one := a.Store.Maintenance.OfThisNode(a.Store.Snapshot())
	if one == nil {
		return nil
	}
	out := &v1.NodeMaintenance{Stage: string(one.Stage()), Since: one.Since, Deadline: one.Deadline, Exit: one.Exit}
	if a.Drain != nil && one.Stage() == lb.Draining {
		progress := a.Drain()
		out.Connections, out.PacketRate, out.Idle = int(progress.Connections), progress.PacketRate, progress.Idle.Seconds()
	}
	return out
}
