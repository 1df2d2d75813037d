package main

import (
	"context"

	"loxilb/internal/api/httpapi/objects"
	"loxilb/internal/config"
	"loxilb/internal/control/reconcile"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// followMaintenance makes the parts that announce VIPs by BGP and that drain this node.
func (p *daemon) followMaintenance(source view, o reconcile.Observers) {
	c := reconcile.MaintenanceConfig{
		Observers: o, Desired: p.state, Owner: objects.Owner, Traffic: func() (packets, connections uint64) { return p.traffic(source) },
		Decline: p.bfd.Decline, Exit: func() { p.requestExit(config.ErrDrained) },
	}
	if p.sessions != nil {
		p.routes = reconcile.NewRoutes(reconcile.RoutesConfig{
			Observers: o, Desired: p.state, Announcer: p.sessions.speaker, Health: p.health, Receiving: source.Receiving, Held: p.heldReason,
		})
		p.services.FollowPasses(p.routes.Mark)
		p.network.Neighbours().FollowRouteErrors(p.routes.MarkAll)
		c.Sessions, c.Applied = p.pausable, p.routes.Applied
	}
	p.maintenance = reconcile.NewMaintenance(c)
}

// traffic returns the number of packets of all services, in both directions, and of their open
// connections.
func (p *daemon) traffic(source view) (packets, connections uint64) {
	var keys []lb.Key
	for s := range p.state.Services.EachShared(p.state.Snapshot()) {
		keys = append(keys, s.Key)
	}
	source.EachServiceStats(keys, func(_ int, s *report.ServiceStats) {
		packets += s.In.Packets + s.Out.Packets
		connections += s.Active
	})
	return packets, connections
}

// announcements returns the function that reports whether VIPs are announced; nil: BGP is off.
func (p *daemon) announcements() func(*lb.Service) []report.Announcement {
	if p.routes == nil {
		return nil
	}
	return p.routes.Announcements
}

// allAnnouncements returns the function that reports on all VIPs; nil: BGP is off.
func (p *daemon) allAnnouncements() func() []report.Announcement {
	if p.routes == nil {
		return nil
	}
	return p.routes.All
}

// openRoutes allows announcing VIPs, once the data path serves them.
func (p *daemon) openRoutes() {
	if p.routes != nil {
		p.routes.Open()
	}
}

// runMaintenance runs the parts of followMaintenance until ctx ends.
func (p *daemon) runMaintenance(run func(func(context.Context))) {
	if p.routes != nil {
		run(p.routes.Run)
	}
	run(p.maintenance.Run)
}
