package main

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"time"

	"loxilb/internal/control/compile"
	"loxilb/internal/control/health/probe"
	"loxilb/internal/control/reconcile"
	"loxilb/internal/control/servicestate"
	"loxilb/internal/control/status"
	"loxilb/internal/control/store"
	"loxilb/internal/diagnose/doctor"
	"loxilb/internal/diagnose/verify"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
	"loxilb/internal/telemetry/metrics"
)

// examinedEndpoints bounds the number of endpoints whose route is looked up.
const examinedEndpoints = 1000

// doctor returns the machine to check, with the daemon's knowledge of it.
func (p *daemon) doctor(started time.Time, statuses *status.Table) func() *doctor.Machine {
	return func() *doctor.Machine {
		f := doctor.Facts{Daemon: true, Interfaces: p.datapath.Interfaces(), StateDir: p.config.StateDir, Started: started}
		seen := map[netip.Addr]bool{}
		now := p.state.Snapshot()
		for s := range p.state.Services.All(now) {
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
		reported := map[status.ID]bool{}
		for _, known := range p.network.Problems() {
			reported[status.ID{Kind: known.Kind, Key: known.Key}] = true
			if strings.Contains(known.What, coveredByIPsec) {
				continue // another check reports it
			}
			f.Problems = append(f.Problems, doctor.Problem{About: known.Key, What: known.What, Hint: known.Hint})
		}
		f.Failed = failedObjects(statuses, func(id status.ID) bool {
			_, ok := now.Meta(store.ID(id))
			return ok
		}, reported)
		if p.sessions != nil {
			f.BGPSessions = p.sessions.problems()
		}
		f.BFDSessions, f.Availability = p.unprotected(), p.availability()
		f.ClusterPeers, f.ClusterProblems = p.clusterProblems()
		f.SharedStore = p.sharedStore()
		if p.cluster.Refused() {
			f.ClusterHeld = p.heldReason()
		}
		for _, h := range p.hiddenTags() {
			f.HiddenTags = append(f.HiddenTags, doctor.HiddenTags(h))
		}
		f.Mobile, f.MobileError = p.mobilePackets()
		f.FTP, f.FTPError = p.ftpConnections()
		f.Tables, f.TablesError = p.tables()
		return doctor.Here(f)
	}
}

// failedObjects returns objects, interfaces and parts of the daemon that fail, except those in
// reported, which other checks report.
func failedObjects(statuses *status.Table, isObject func(status.ID) bool, reported map[status.ID]bool) (list []doctor.Problem) {
	for _, s := range statuses.List("", true) {
		switch {
		case reported[s.ID]:
		case s.Removed, s.Kind == reconcile.InterfaceKind, s.Kind == reconcile.TaskKind && s.Key != sharedStoreTask, isObject(s.ID):
			list = append(list, doctor.Problem{About: s.ID.String(), What: s.Err.Error(), Hint: "loxicmd get status --failed"})
		}
	}
	return list
}

// mobilePackets leaves out congestion: senders expect these drops.
func (p *daemon) mobilePackets() (doctor.MobilePackets, error) {
	counts, err := p.datapath.GTPCounts()
	return doctor.MobilePackets{Forged: counts["forged"], Unclassified: counts["unclassified"], Failed: counts["failed"]}, err
}

func (p *daemon) ftpConnections() (doctor.FTPConnections, error) {
	e, err := p.datapath.FTPExpectations()
	return doctor.FTPConnections{Refused: e.Refused["client"], TLS: e.Refused["tls"], Rows: e.Rows, Max: e.Max}, err
}

// tables lists the tables that refuse further rows when they are full.
func (p *daemon) tables() (list []doctor.Table, err error) {
	uses, err := p.datapath.MapUses()
	for _, u := range uses {
		if !u.Recent {
			list = append(list, doctor.Table{Name: u.Name, Rows: u.Entries, Max: u.Max})
		}
	}
	return list, err
}

// refusedByIPsec lists packets that the kernel's IPsec policies refuse.
func (p *daemon) refusedByIPsec() (list []doctor.IPsecRefusal, err error) {
	for _, r := range p.ipsec.Refused(examinedEndpoints) {
		list = append(list, doctor.IPsecRefusal{
			About: r.About(), Packets: r.Packets(), Policy: r.Policy, RefusesAll: r.RefusesAll, Ignored: p.ipsec.Ignores(),
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

// unprobed returns the endpoints in state unprobed of TCP services: they have no probe, and no
// handshake has failed.
func (p *daemon) unprobed() (list []doctor.Unprobed) {
	now := p.state.Snapshot()
	drains := servicestate.DrainsOf(p.state.Drains.All(now))
	for s := range p.state.Services.All(now) {
		if !isConnectable(&s) {
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

// isConnectable reports whether doctor can connect to the endpoints of a service.
func isConnectable(s *lb.Service) bool {
	return s.Protocol == lb.TCP && s.Mode != lb.ModeDSR && s.PortMax == 0 && s.Port != 0
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

// overhead returns the bytes that a tunnel adds to a packet: the outer header, and UDP's.
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

// verifier returns the comparisons from the top down: objects with their copies in parts of the
// daemon, and these copies with the kernel.
func (p *daemon) verifier(statuses *status.Table) *verify.Verifier {
	return verify.New(
		func(context.Context, verify.Options) []report.Compared { return p.startComparison() },
		func(ctx context.Context, o verify.Options) []report.Compared {
			return []report.Compared{p.services.Audit(ctx, p.datapath, o.Repair)}
		},
		func(context.Context, verify.Options) []report.Compared {
			return []report.Compared{reconcile.AuditStatuses(statuses)}
		},
		func(_ context.Context, o verify.Options) []report.Compared { return p.datapath.Audit(o.Repair) },
		func(ctx context.Context, o verify.Options) []report.Compared {
			return []report.Compared{p.datapath.AuditConnections(ctx, o.Sample, o.Whole, o.Repair)}
		},
	)
}

// startComparison returns a failed comparison while the data path is being filled, since the others
// are impossible until then.
func (p *daemon) startComparison() []report.Compared {
	ready, why := p.ready()
	if ready {
		return nil
	}
	return []report.Compared{{Table: "start", Err: errors.New(why)}}
}

// certificates lists the certificates of the API and of probes. It rereads files that have changed.
func (p *daemon) certificates(probes []metrics.CertificateFile) (list []metrics.Certificate) {
	add := func(of metrics.CertificateFile, end time.Time, err error) {
		if err == nil { // otherwise it was logged, and a series would be wrong
			list = append(list, metrics.Certificate{CertificateFile: of, End: end})
		}
	}
	if c := p.config.API; !c.Disabled && c.TLS.IsValid() {
		if info, err := os.Stat(c.CertFile); err == nil {
			end, err := p.expiries.Of(c.CertFile, info.ModTime(), info.Size(), func() ([]byte, error) { return os.ReadFile(c.CertFile) })
			add(metrics.CertificateFile{Use: "api", File: c.CertFile}, end, err)
		}
	}
	files := probe.Files{Dir: p.config.ProbeFiles, Log: slog.New(slog.DiscardHandler)}
	for _, of := range probes {
		end, err := files.Expiry(of.File, &p.expiries)
		add(of, end, err)
	}
	return list
}
