package main

import (
	"cmp"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"loxilb/internal/control/store"
	"loxilb/internal/control/store/etcd"
	"loxilb/internal/event"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// describeNode returns this node as other nodes see it.
func (p *daemon) describeNode() store.RemoteNode {
	n := store.RemoteNode{Version: version, Started: p.startTime, Maintenance: p.maintenanceStage()}
	n.Roles = p.roles()
	tracked, _ := p.datapath.Occupancy()
	n.Connections = int(tracked)
	if c := &p.config.Cluster; c.Enabled() {
		n.Addresses = clusterAddresses(c.Listen)
	}
	return n
}

// maxAddresses bounds the addresses in a node's entry.
const maxAddresses = 16

// clusterAddresses returns the addresses of this node for other nodes, if it listens at listen.
func clusterAddresses(listen string) (list []string) {
	at, port, err := net.SplitHostPort(listen)
	if err != nil {
		return nil
	}
	if a, err := netip.ParseAddr(at); err == nil && !a.IsUnspecified() {
		return []string{net.JoinHostPort(a.String(), port)}
	}
	links, err := net.Interfaces()
	if err != nil {
		return nil
	}
	for _, link := range links {
		if link.Flags&net.FlagLoopback != 0 { // lo has the VIPs
			continue
		}
		addresses, _ := link.Addrs() // a link that is gone has none
		for _, one := range addresses {
			if prefix, ok := one.(*net.IPNet); ok && prefix.IP.IsGlobalUnicast() && len(list) < maxAddresses {
				list = append(list, net.JoinHostPort(prefix.IP.String(), port))
			}
		}
	}
	return list
}

// maintenanceStage returns whether this node is draining or drained; empty: it is in service.
func (p *daemon) maintenanceStage() string {
	if stage := p.state.Maintenance.OfThisNode(p.state.Snapshot()).Stage(); stage != lb.InService {
		return string(stage)
	}
	return ""
}

// roles returns the roles of this node, as INSTANCE ROLE.
func (p *daemon) roles() (list []string) {
	for _, one := range p.state.Instances.OfThisNode(p.state.Snapshot()) {
		list = append(list, one.Name+" "+string(one.Role))
	}
	slices.Sort(list)
	return list
}

// nodes returns this node and the nodes of --store and --cluster, sorted by name.
func (p *daemon) nodes() []report.Node {
	own := p.describeNode()
	all := map[string]*report.Node{}
	remote, shared := p.state.Remote()
	cluster := p.clusterNow()
	if !shared && cluster == nil {
		return nil
	}
	for i := range remote.Nodes {
		n := &remote.Nodes[i]
		one := &report.Node{
			Name: n.Name, Build: n.Version, Roles: n.Roles, Maintenance: n.Maintenance, Shared: true, Revision: uint64(n.Revision), Behind: n.Behind, Connections: n.Connections, Since: n.Started, Addresses: n.Addresses,
		}
		if !n.Gone.IsZero() {
			one.Away, one.Since = "its entry in the shared store is gone", n.Gone
		}
		all[n.Name] = one
	}
	name := nodeName(p.config)
	me := all[name]
	if me == nil {
		me = &report.Node{Name: name, Shared: shared, Revision: uint64(remote.Latest)}
		all[name] = me
	}
	me.Own, me.Away, me.Build, me.Roles, me.Connections, me.Since = true, "", own.Version, own.Roles, own.Connections, own.Started
	me.Maintenance = own.Maintenance
	me.Behind = shared && remote.Err != nil
	if cluster != nil {
		addPeers(all, cluster.Peers)
		for i := range cluster.Peers {
			if cluster.Peers[i].State.Exchanges() {
				me.Peers++
			}
		}
	}
	list := make([]report.Node, 0, len(all))
	for _, n := range all {
		if n.Away != "" { // its last state is outdated
			n.Roles, n.Maintenance, n.Connections, n.Peers = nil, "", 0, 0
		}
		list = append(list, *n)
	}
	slices.SortFunc(list, func(a, b report.Node) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// addPeers adds the state of the exchange of connections. A node that exchanges connections is
// present, even if it cannot reach the shared store.
func addPeers(all map[string]*report.Node, peers []report.ClusterPeer) {
	for i := range peers {
		peer := &peers[i]
		name := nameOf(all, peer)
		n := all[name]
		if n == nil {
			n = &report.Node{Name: name, Build: peer.Build, Since: peer.Since}
			if !peer.State.Exchanges() {
				n.Away = peer.Reason
			}
			all[n.Name] = n
		}
		if peer.State.Exchanges() && n.Away != "" {
			*n = report.Node{Name: n.Name, Build: peer.Build, Shared: true, Revision: n.Revision, Behind: true, SyncProblem: n.Away, Since: peer.Since}
		}
		if n.Away == "" && !isAlive(peer) {
			n.Away, n.Since = peer.Reason, peer.Since
		}
		if n.Away == "" {
			n.SyncProblem = cmp.Or(peer.Reason, n.SyncProblem)
		}
		n.Exchanges, n.State, n.Lag = true, peer.State, peer.Lag
		n.Peers, n.Differing = peer.Peers, peer.Differing
		n.Maintenance = cmp.Or(peer.Maintenance, n.Maintenance)
		if !n.Shared || peer.State.Exchanges() && peer.Peers > 0 { // its own report is newer than the store
			n.Roles, n.Connections = peer.Roles, peer.Connections
		}
	}
}

// nameOf returns the name of a peer. A peer with another key has not sent its name, so the shared
// store names it by its address.
func nameOf(all map[string]*report.Node, peer *report.ClusterPeer) string {
	for name, n := range all {
		if peer.Node == "" && slices.Contains(n.Addresses, peer.Address) {
			return name
		}
	}
	return peer.DisplayName()
}

// isAlive reports whether a node with an entry in the shared store is present. The entry remains
// for a while after the node has died.
func isAlive(peer *report.ClusterPeer) bool {
	return peer.State != report.PeerDown || peer.Sends || time.Since(peer.Since) > etcd.EntryLife
}

// storeChanged publishes that the shared store has become unavailable or available.
func (p *daemon) storeChanged(err error) {
	remote, _ := p.state.Remote()
	e := event.Store{Servers: remote.Servers, Action: event.Solved}
	if err != nil {
		e.Action, e.Reason = event.Failed, err.Error()
	}
	p.hub.Publish(e)
}
