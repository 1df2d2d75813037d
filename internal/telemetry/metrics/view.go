package metrics

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"loxilb/internal/control/desired"
	"loxilb/internal/control/servicestate"
	"loxilb/internal/control/status"
	"loxilb/internal/control/store"
	"loxilb/internal/lb"
	"loxilb/internal/lb/bgp"
	"loxilb/internal/lb/netobj"
	"loxilb/internal/lb/policy"
	"loxilb/internal/lb/report"
)

// Source has the data that a scrape reads.
type Source interface {
	// AllStats yields the counters of the listed services that the data path has, by their index
	// in the list, and returns the sums of all present and former endpoints.
	AllStats(keys []lb.Key, yield func(index int, s *report.ServiceStats)) report.EndpointStats
	// RuleHits returns the packets decided by a firewall rule, and whether the data path has
	// the rule.
	RuleHits(r *policy.Rule) (report.Traffic, bool)
	// RuleCost returns the highest cost of a packet to find its firewall rule.
	RuleCost() policy.RuleCost
	// Jiffy returns the length of a tick of the clock that measures handshakes.
	Jiffy() time.Duration
	// Drops counts packets dropped, by the name of the reason.
	Drops() map[string]uint64
	// DropBytes returns the bytes of their IP packets.
	DropBytes() map[string]uint64
	// Lifetimes returns the lifetimes of ended connections, by protocol.
	Lifetimes() []report.Lifetimes
	// MapUses returns the use of the data path's maps.
	MapUses() []report.MapUse
	// Occupancy returns the number of tracked connections and its limit.
	Occupancy() (connections, limit uint64)
	// Pressure returns the state of the defence against forged clients.
	Pressure() report.Pressure
	// XDP returns the interfaces with the XDP program, how it is attached, and the number of
	// packets that it has forwarded.
	XDP() (interfaces []string, mode string, forwarded uint64)
	NextHopsFull() uint64 // packets for which the table of next hops had no room
	IdleEnds() report.IdleEnds
	// GTPCounts returns the packets of mobile users by outcome; empty before the first session.
	GTPCounts() map[string]uint64
	// FTPExpectations returns the data connections that FTP expects.
	FTPExpectations() report.FTPExpectations
	// SourcePorts returns the pairs of source address and endpoint with the most ports in use.
	SourcePorts(least, most int) []report.SourcePorts
	// Sweeps returns the results of the sweeps of the connection table.
	Sweeps() Sweeps
	// Programs returns the programs at the tc hooks.
	Programs() []Program
	// Counts returns the objects by kind and state.
	Counts() map[string]map[status.State]int
	// LastApplied returns when the data path last applied a change. Zero: never.
	LastApplied() time.Time
	servicestate.Health
	// Endpoints yields all probed addresses.
	Endpoints(yield func(*report.EndpointHealth) bool)
	// EndpointCount returns the number of probed addresses by state.
	EndpointCount() report.HealthCount
}

// Sweeps are the results of sweeps of the connection table, and the CPU time of the last one.
type Sweeps struct {
	Visited, Ended uint64 // entries, connections
	Last           time.Duration
}

// Program is a program of the data path.
type Program struct {
	Name         string
	Instructions uint64 // processed by the verifier; 0: unknown
	Runs         uint64 // while kernel.bpf_stats_enabled was 1
	Time         time.Duration
}

// view is the data of one scrape.
type view struct {
	Options
	store   *desired.State
	src     Source
	snap    *store.Snapshot
	jiffy   time.Duration
	rows    []row // of services
	machine report.EndpointStats
	drops   map[string]uint64
	maps    []report.MapUse
	tracked uint64 // connections
	limit   uint64
	drains  []drain
	drained map[netip.Addr][]int // their places, by address
	health  report.HealthCount   // of probed endpoints

	pressure report.Pressure
	ports    []report.SourcePorts

	instances map[string]lb.Instance // that have a role
	troubles  map[lb.Key]trouble
	probed    probed

	lifetimes []report.Lifetimes
	ftp       report.FTPExpectations
	sessions  []bgp.Session
	pairs     []netobj.BFDCount
	cluster   *report.Cluster // nil: there is none
	remote    store.RemoteStatus
	shared    bool // objects are shared, by remote

	announcements []report.Announcement
}

// row is a service with its counters, read once for all families.
type row struct {
	key         string
	name        string
	protocol    lb.Protocol
	serviceKey  lb.Key
	limit       uint32   // of open connections; 0: none
	weights     []uint16 // of endpoints; only if endpoints have series, like endpoints
	endpoints   []string
	stats       report.ServiceStats
	known       bool // to the data path
	unavailable int  // endpoints that take no new connections
	states      servicestate.Service
}

// up reports whether the service serves clients.
func (r *row) up() bool { return r.known && r.states.Up() }

// drain is a drain of an endpoint, with the number of its remaining connections.
type drain struct {
	lb.Drain
	connections uint64
}

// newView reads the store and the data path.
func newView(o Options, st *desired.State, src Source) *view {
	v := &view{Options: o, store: st, src: src, snap: st.Snapshot(), jiffy: src.Jiffy(), drops: src.Drops(), maps: src.MapUses(), lifetimes: src.Lifetimes()}
	v.ftp = src.FTPExpectations()
	v.pressure, v.ports = src.Pressure(), src.SourcePorts(minPortsUsed, maxPortPools)
	if o.Sessions != nil {
		v.sessions = o.Sessions()
	}
	if o.Announcements != nil {
		v.announcements = o.Announcements()
	}
	if o.Cluster != nil {
		v.cluster = o.Cluster()
	}
	if o.SharedStore != nil {
		v.remote, v.shared = o.SharedStore()
	}
	if o.Pairs != nil {
		v.pairs = o.Pairs()
	}
	v.tracked, v.limit = src.Occupancy()
	for d := range st.Drains.All(v.snap) {
		v.drains = append(v.drains, drain{Drain: d})
	}
	slices.SortFunc(v.drains, func(a, b drain) int { return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Port, b.Port)) })
	v.drained = make(map[netip.Addr][]int, len(v.drains))
	for i := range v.drains {
		v.drained[v.drains[i].Addr] = append(v.drained[v.drains[i].Addr], i)
	}
	services := v.readServices()
	v.health = src.EndpointCount()
	v.instances = st.Instances.OfThisNode(v.snap)
	v.probed = newProbed(o.Endpoints, src.Endpoints)
	v.troubles = o.troubles.update(services, v.probed.troubles)
	return v
}

func (v *view) readServices() (services []*lb.Service) {
	count := v.store.Services.Len(v.snap)
	keys := make([]lb.Key, 0, count)
	services = make([]*lb.Service, 0, count)
	v.rows = make([]row, 0, count)
	drains := servicestate.DrainsOf(v.store.Drains.All(v.snap))
	for s := range v.store.Services.EachShared(v.snap) {
		keys, services = append(keys, s.Key), append(services, s)
		v.rows = append(v.rows, row{key: s.Key.String(), serviceKey: s.Key, name: s.Name, protocol: s.Protocol, limit: s.MaxConnections})
	}
	v.machine = v.src.AllStats(keys, func(index int, s *report.ServiceStats) {
		r := &v.rows[index]
		r.stats, r.known = *s, true
		r.stats.Endpoints = nil
		r.states = servicestate.Of(servicestate.Gather(services[index], s, drains, v.src), servicestate.SyncApplied)
		for i, e := range services[index].Endpoints[:min(len(services[index].Endpoints), len(s.Endpoints))] {
			if !s.Endpoints[i].Available {
				r.unavailable++
			}
			v.countDrained(e.AddrPort(), s.Endpoints[i].Active)
		}
		if v.Endpoints || v.Compat {
			r.stats.Endpoints = s.Endpoints
		}
	})
	for i := range v.rows {
		r := &v.rows[i]
		r.weights = make([]uint16, len(services[i].Endpoints))
		for j, e := range services[i].Endpoints {
			r.weights[j] = e.Weight
			if v.Endpoints || v.Compat {
				r.endpoints = append(r.endpoints, e.AddrPort().String())
			}
		}
	}
	return services
}

func (v *view) countDrained(at netip.AddrPort, active uint64) {
	for _, i := range v.drained[at.Addr()] {
		if v.drains[i].Matches(at.Addr(), at.Port()) {
			v.drains[i].connections += active
		}
	}
}

// each calls f for each endpoint whose counters are known.
func (r *row) each(f func(at string, s *report.EndpointStats)) {
	for i := range min(len(r.endpoints), len(r.stats.Endpoints)) {
		f(r.endpoints[i], &r.stats.Endpoints[i])
	}
}
