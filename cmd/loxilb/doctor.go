package main

import (
	"net/netip"
	"strings"
	"time"

	"loxilb/internal/control/compile"
	"loxilb/internal/control/servicestate"
	"loxilb/internal/diagnose/doctor"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// examinedEndpoints bounds the endpoints to which ways are looked up.
const examinedEndpoints = 1000

// doctor returns the machine, with what the daemon knows of it.
func (p *daemon) doctor(started time.Time) func() *doctor.Machine {
	return func() *doctor.Machine {
		f := doctor.Facts{Daemon: true, Interfaces: p.datapath.Interfaces(), StateDir: p.config.StateDir, Started: started}
		seen := map[netip.Addr]bool{}
		for s := range p.state.Services.All(p.state.Snapshot()) {
			for _, vip := range append([]netip.Addr{s.VIP}, s.Secondary...) {
				if !seen[vip] && !vip.IsUnspecified() {
					f.VIPs = append(f.VIPs, vip)
				}
				seen[vip] = true
			}
			for _, e := range s.Endpoints {
				if len(f.Endpoints) < examinedEndpoints && !seen[e.Addr] {
					f.Endpoints = append(f.Endpoints, doctor.Endpoint{
						Addr: e.Addr, Overhead: overhead(s.Tunnel, e.Addr), MSS: int(s.MSS), Direct: s.Mode == lb.ModeDSR,
					})
					seen[e.Addr] = true
				}
			}
		}
		f.Down = p.down()
		f.Unprobed = p.unprobed()
		p.unserved.each(func(key lb.Key, _ uint64, s *servicestate.Service) {
			if !s.State.Serves() {
				f.Unserved = append(f.Unserved, doctor.Unserved{
					Service: key.String(), State: string(s.State), Endpoints: s.Summary(), Receiving: s.Receiving > 0, Drained: s.Drained > 0,
				})
			}
		})
		for _, o := range p.datapath.Others() {
			f.Programs = append(f.Programs, doctor.Program(o))
		}
		f.IPsec, f.IPsecError = p.refusedByIPsec()
		for _, known := range p.network.Problems() {
			if strings.Contains(known.What, coveredByIPsec) {
				continue // a check of its own reports it
			}
			f.Problems = append(f.Problems, doctor.Problem{About: known.Key, What: known.What, Hint: known.Hint})
		}
		for _, h := range p.hiddenTags() {
			f.HiddenTags = append(f.HiddenTags, doctor.HiddenTags(h))
		}
		return doctor.Here(f)
	}
}

// refusedByIPsec lists what policies of the kernel's IPsec refuse.
func (p *daemon) refusedByIPsec() (list []doctor.IPsecRefusal, err error) {
	for _, r := range p.ipsec.Refused(examinedEndpoints) {
		list = append(list, doctor.IPsecRefusal{
			About: r.About(), Packets: r.Packets(), Policy: r.Policy, Whole: r.Whole, Ignored: p.ipsec.Ignores(),
		})
	}
	_, err = p.network.IPsecPolicies()
	return list, err
}

// down returns the endpoints that take no new connections, as probes or clients' handshakes have
// found.
func (p *daemon) down() (list []doctor.Down) {
	for h := range p.health.Endpoints {
		if h.State == report.HealthDown && len(h.Services) > 0 {
			list = append(list, doctor.Down{At: netip.AddrPortFrom(h.Addr, h.Probe.Port), Evidence: h.Evidence})
		}
	}
	return list
}

// unprobed are TCP endpoints in state unprobed: nobody has checked them, and no handshake has
// failed.
func (p *daemon) unprobed() (list []doctor.Unprobed) {
	now := p.state.Snapshot()
	drains := servicestate.DrainsOf(p.state.Drains.All(now))
	for s := range p.state.Services.All(now) {
		if s.Protocol != lb.TCP || s.Mode == lb.ModeDSR || s.PortMax != 0 || s.Port == 0 {
			continue
		}
		if stats, known := p.datapath.ServiceStats(compile.Key(s.Key)); known {
			list = append(list, unprobedOf(&s, &stats, drains, p.health)...)
		}
		if len(list) >= examinedEndpoints {
			return list[:examinedEndpoints]
		}
	}
	return list
}

// unprobedOf returns the endpoints of a service in state unprobed.
func unprobedOf(s *lb.Service, stats *report.ServiceStats, drains servicestate.Drains, h servicestate.Health) (list []doctor.Unprobed) {
	all := servicestate.Gather(s, stats, drains, h)
	for n := range min(len(all), len(stats.Endpoints)) {
		if all[n].State() == servicestate.Unprobed {
			shakes := &stats.Endpoints[n].Handshakes
			list = append(list, doctor.Unprobed{At: s.Endpoints[n].AddrPort(), SYNs: shakes.Opened + shakes.Repeated, Answered: shakes.AllAnswered()})
		}
	}
	return list
}

// overhead returns what a tunnel adds to a packet: the outer header, and that of UDP.
func overhead(t lb.Tunnel, to netip.Addr) int {
	header := 20
	if to.Is6() {
		header = 40
	}
	switch t {
	case lb.TunnelIPIP:
		return header
	case lb.TunnelGUE:
		return header + 8
	}
	return 0
}
