package rig

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"sync"

	"loxilb/test/netnstest"
)

// Cluster is a cluster of two nodes and other hosts:
//
//	outside --- router --- LAN: control plane, n1, n2, lan
//
// The router is the nodes' default gateway. Pods run in real containers.
type Cluster struct {
	*ControlPlane
	Nodes   []*Node
	LAN     *netnstest.Host // a host in the nodes' network
	Outside *netnstest.Host // a host behind the router
	Router  *netnstest.Host

	lab    *netnstest.Lab
	fabric *netnstest.Host // the switch of the LAN
	dir    string
}

// ClusterOptions are the options of a cluster.
type ClusterOptions struct {
	CNI    string   // plugin for the pods' network: "bridge", or "ptp" for routed veths
	Images []string // archives that each node imports

	IPv4Only bool // nodes have no IPv6 addresses in Kubernetes
}

// Addresses of the hosts. Each also has an IPv6 address (v6).
const (
	controlPlaneAddress = "10.77.0.1"
	nodeAddress         = "10.77.0.1%d"
	lanAddress          = "10.77.0.21"
	routerAddress       = "10.77.0.254"
	routerOutside       = "10.88.0.1"
	outsideAddress      = "10.88.0.2"
)

// clustersDir returns the parent of clusters' directories, which have the names of their
// namespaces. It is short, since paths of sockets must be.
func clustersDir() string { return filepath.Join(os.TempDir(), "clusters") }

// StartCluster starts a cluster and waits until its nodes are ready. It ends with the lab.
func StartCluster(ctx context.Context, lab *netnstest.Lab, o ClusterOptions) (*Cluster, error) {
	removeLeftovers()
	c := &Cluster{lab: lab}
	hosts, err := c.buildNetwork(lab)
	if err != nil {
		return nil, err
	}
	c.dir = filepath.Join(clustersDir(), hosts.controlPlane.Namespace)
	lab.Cleanup(func() { _ = os.RemoveAll(c.dir) })
	c.ControlPlane, err = StartControlPlane(ctx, hosts.controlPlane, ControlPlaneOptions{
		Dir: c.dir, Address: netip.MustParseAddr(controlPlaneAddress), Controllers: true, Scheduler: true,
	})
	if err != nil {
		return nil, err
	}
	failures := make([]error, len(hosts.nodes))
	var all sync.WaitGroup
	for i, host := range hosts.nodes {
		node := newNode(host, c, i+1, o)
		c.Nodes = append(c.Nodes, node)
		lab.Cleanup(node.remove)
		all.Go(func() { failures[i] = node.Start(ctx) })
	}
	all.Wait()
	return c, errors.Join(failures...)
}

// Apply creates or updates the objects of a manifest.
func (c *Cluster) Apply(manifest string) error {
	file, err := os.CreateTemp(c.dir, "*.yaml")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	if _, err := file.WriteString(manifest); err != nil {
		return errors.Join(err, file.Close())
	}
	if err := file.Close(); err != nil {
		return err
	}
	_, err = c.Kubectl("apply", "--filename", file.Name())
	return err
}
