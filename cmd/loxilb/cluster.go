package main

import (
	"context"
	"crypto/rand"

	"loxilb/internal/cluster"
	"loxilb/internal/cluster/transport"
	"loxilb/internal/config"
	"loxilb/internal/control/compile"
	"loxilb/internal/control/reconcile"
	"loxilb/internal/diagnose/doctor"
	"loxilb/internal/kernel/datapath"
	"loxilb/internal/lb/report"
)

// newCluster makes the cluster node if a cluster is configured, and the loop that passes created
// nodes to it.
func (p *daemon) newCluster(o reconcile.Observers) error {
	c := &p.config.Cluster
	if !c.Enabled() {
		p.clusterNodes = reconcile.NewClusterNodes(nil, p.state, o)
		return nil
	}
	name := nodeName(p.config)
	credentials, err := credentialsOf(c, name)
	if err != nil {
		return err
	}
	p.cluster, err = cluster.New(cluster.Config{
		Peers: c.Peers, Nodes: reconcile.ClusterAddresses(p.state), Listen: c.Listen, Credentials: credentials, Table: p.datapath.Copies, Events: p.hub, Log: p.log,
		Hello: transport.Hello{
			Build: version, Node: name, Self: c.Self, Boot: rand.Text(), Seed: transport.Fingerprint(p.config.HashSeed), Slots: compile.MaglevSize([]compile.MaglevNode{{}, {}}),
		},
		Revision: func() uint64 { return p.state.Snapshot().Revision() },
		State:    p.shownState,
		HoldChanged: func() {
			p.bfd.SetCluster(p.heldReason() != "", p.cluster.Refused())
			if p.routes != nil {
				p.routes.MarkAll()
			}
		},
	})
	if err != nil {
		return err
	}
	p.clusterNodes = reconcile.NewClusterNodes(p.cluster, p.state, o)
	return nil
}

// credentialsOf reads the key of the cluster, or the certificates.
func credentialsOf(c *config.Cluster, name string) (*transport.Credentials, error) {
	if c.Key == "" {
		credentials, err := transport.CertFiles(c.CA, c.Cert, c.CertKey)
		if err != nil {
			return nil, &config.Error{Flag: "--cluster-cert", Value: c.Cert, Reason: "cannot be used: " + err.Error()}
		}
		return credentials, nil
	}
	credentials, err := transport.KeyFile(c.Key, name)
	if err != nil {
		return nil, &config.Error{Flag: "--cluster-key", Value: c.Key, Reason: err.Error()}
	}
	return credentials, nil
}

// checkCredentials checks that this build accepts the key or certificates. An older build may
// accept others, and an upgrade would then end in a daemon that does not start.
func checkCredentials(c *config.Cluster) error {
	if !c.Enabled() {
		return nil
	}
	_, err := credentialsOf(c, c.Node)
	return err
}

// shownState returns what other nodes see of this one.
func (p *daemon) shownState(withServices bool) cluster.State {
	s := cluster.State{Roles: p.roles(), Maintenance: p.maintenanceStage()}
	if withServices {
		s.Services = map[string]string{}
		for one := range p.state.Services.All(p.state.Snapshot()) {
			s.Services[one.Key.String()] = one.Fingerprint()
		}
	}
	return s
}

// clusterNow returns the state of the exchange of connections with other nodes, or nil without a
// cluster.
func (p *daemon) clusterNow() *report.Cluster {
	if p.cluster == nil {
		return nil
	}
	now := p.cluster.Status()
	return &now
}

// clusterProblems returns the nodes that do not get this node's connections, the nodes with
// different services, and the problems of this node itself.
func (p *daemon) clusterProblems() (list []doctor.ClusterPeer, own []string) {
	now := p.clusterNow()
	if now == nil {
		return nil, nil
	}
	for i := range now.Peers {
		one := &now.Peers[i]
		if !one.State.Exchanges() || one.Reason != "" {
			list = append(list, doctor.ClusterPeer{Node: one.DisplayName(), Why: one.Reason, Since: one.Since})
		}
		if one.Differing > 0 {
			list = append(list, doctor.ClusterPeer{Node: one.DisplayName(), Differing: one.Differing, Differences: one.Differences})
		}
	}
	return list, now.Problems
}

// heldReason returns why other nodes keep this one from announcing VIPs, or "".
func (p *daemon) heldReason() string { return p.cluster.HeldReason() }

// awaitCluster waits for the connections of the other nodes, for a limited time. It returns false
// if ctx ended.
func (p *daemon) awaitCluster(ctx context.Context) bool {
	if p.cluster == nil {
		return true
	}
	select {
	case <-ctx.Done():
		return false
	case <-p.cluster.Joined():
		return true
	}
}

// elect runs the elections with other nodes. A node first gets the connections of the others, since
// a MASTER without them would reset them.
func (p *daemon) elect(ctx context.Context) {
	if p.datapath.NewTable() && p.cluster != nil {
		select {
		case <-ctx.Done():
			return
		case <-p.cluster.Serving():
		}
	}
	p.elections.Run(ctx)
}

// portStripe returns which source ports this node takes first: nodes that share source addresses
// must not give the same port to two clients. It returns 0 if the node's number is missing or not
// below PortStripes.
func portStripe(c *config.Cluster) int {
	if !c.Enabled() || c.Self < 0 || c.Self >= datapath.PortStripes {
		return 0
	}
	return c.Self + 1
}
