package datapath

import (
	"context"
	"math"
	"slices"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// serviceProxy are the flags of services whose segments have the program of the PROXY protocol.
const serviceProxy = uint16(bpf.TcServiceFlagSERVICE_PROXY | bpf.TcServiceFlagSERVICE_FTP)

// applyWithTails is Tables.Apply, and loads the programs of SCTP, QUIC, GTP-U and the PROXY
// protocol before the first service needs them. If that fails, changes of these services fail.
func (d *Datapath) applyWithTails(changes []Change) []error {
	errs := make([]error, len(changes))
	applied := make([]Change, 0, len(changes))
	var at []int
	tunnels := d.HasGTPServices() || slices.ContainsFunc(changes, func(c Change) bool { return c.Table != nil && c.Table.Algorithm == algorithmN3 })
	var before []bpf.TcIpAddr
	if tunnels { // otherwise each change would read all services
		before = d.VIPsOf(algorithmN3)
	}
	for i, c := range changes {
		if errs[i] = d.loadFor(c); errs[i] == nil {
			applied, at = append(applied, c), append(at, i)
		}
	}
	for i, err := range d.Tables.Apply(applied) {
		errs[at[i]] = err
	}
	if tunnels {
		d.balanceTunnels(before)
	}
	if err := d.GatherLoads(d.ComparedSince()); err != nil {
		d.collection.Log.Error("loads of endpoints are compared inexactly until the next sweep", "error", err)
	}
	return errs
}

// balanceTunnels balances GTP-U packets by tunnel after services have changed. before has the VIPs
// for which they were until now.
func (d *Datapath) balanceTunnels(before []bpf.TcIpAddr) {
	balanced := d.VIPsOf(algorithmN3)
	if err := d.endUntunneled(before, balanced); err != nil {
		d.collection.Log.Error("XDP may not balance GTP-U packets of earlier connections by tunnel", "error", err)
	}
	if err := d.SetGTPServices(balanced); err != nil {
		d.collection.Log.Error("GTP-U packets of deleted services are still balanced by tunnel", "error", err)
	}
}

// endUntunneled ends the connections of base stations to VIPs that are balanced by tunnel now, and
// were not before: XDP would forward the packets of all tunnels by such a connection, before they
// get the source port of their tunnel.
func (d *Datapath) endUntunneled(before, now []bpf.TcIpAddr) error {
	vips := slices.DeleteFunc(slices.Clone(now), func(a bpf.TcIpAddr) bool { return slices.Contains(before, a) })
	if len(vips) == 0 {
		return nil
	}
	_, err := d.EndConnections(context.Background(), 0, math.MaxInt32, func(c *report.Connection) bool {
		return c.Protocol == lb.UDP && c.Dst.Port() == lb.GTPPort && slices.Contains(vips, bpf.TcIpAddr(bpf.Addr(c.Dst.Addr())))
	})
	return err
}

func (d *Datapath) loadFor(c Change) error {
	switch {
	case c.Table == nil:
		return nil
	case c.Key.Protocol == uint8(lb.SCTP):
		return d.collection.HandleSCTP()
	case c.Table.Algorithm == uint8(bpf.TcAlgorithmALGORITHM_QUIC):
		return d.collection.HandleQUIC()
	case c.Table.Algorithm == algorithmN3:
		return d.SetGTPServices(append(append(d.VIPsOf(algorithmN3), c.Key.Vip), c.Table.Secondary...))
	case c.Table.Flags&serviceProxy != 0:
		return d.collection.HandleProxy()
	}
	return nil
}

const algorithmN3 = uint8(bpf.TcAlgorithmALGORITHM_N3)

// adoptTails removes tail programs of an earlier process unless adopted services need them. They
// serve until these services are applied.
func (d *Datapath) adoptTails() error {
	if !d.HasProtocol(uint8(lb.SCTP)) {
		if err := d.collection.RemoveOldSCTP(); err != nil {
			return err
		}
	}
	if !d.HasFlag(serviceProxy) {
		if err := d.collection.RemoveOldProxy(); err != nil {
			return err
		}
	}
	d.ExpectGTPServices(d.VIPsOf(algorithmN3))
	if d.HasAlgorithm(uint8(bpf.TcAlgorithmALGORITHM_QUIC)) {
		return nil
	}
	return d.collection.RemoveOldQUIC()
}
