package datapath

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"loxilb/internal/control/compile"
	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/rows"
	"loxilb/internal/lb/policy"
	"loxilb/internal/lb/report"
	"loxilb/test/dptest"
)

// auditedDatapath is a data path with rows in each table that user space writes.
type auditedDatapath struct {
	*Datapath
	port     Interface
	services []*bpf.ServiceTable
}

func newAudited(t *testing.T) *auditedDatapath {
	t.Helper()
	d, err := Load(Config{Connections: 1024, PinDir: dptest.PinDir(t), Hook: HookTCX})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	a := &auditedDatapath{Datapath: d}
	path := func(addr netip.Addr) compile.Path { return compile.Path{Source: netip.MustParseAddr("192.168.1.1")} }
	var changes []Change
	for _, line := range []string{
		"10.0.0.1:80/tcp sources=1.1.0.0/16 deny=1.1.1.0/24 max-rate=100 mss=1200 idle=60s endpoints=192.168.1.10:8080:3,192.168.1.11:8080",
		"10.0.0.2:53/udp mode=fullnat snat=10.9.0.1,10.9.0.2 secips=10.0.0.3 endpoints=192.168.1.10:53,192.168.1.12:53",
		"10.0.0.4:1000-1900/tcp egress=true select=persist endpoints=192.168.1.10:1000",
		"10.0.0.5:80/tcp mode=dsr endpoints=192.168.1.13:80",
	} {
		s := parseChanged(t, line, "", "")
		table := compile.Service(s, nil, 0, path)
		a.services = append(a.services, &table)
		changes = append(changes, Change{Key: table.Key, Table: &table})
	}
	rule, err := policy.ParseRule("sourceIP:10.0.0.0/8,preference:5 allow mark=3")
	if err != nil {
		t.Fatal(err)
	}
	rules, err := compile.Rules([]policy.Rule{rule}, func(string) (int, bool) { return 0, false })
	both := bpf.TcAttachments{Policers: [2]uint64{bpf.NameKey("p")}, Mirrors: [2]uint64{0, bpf.NameKey("m")}}
	pair := vethPair(t)
	a.port = pair[0]
	errs := append(a.Apply(changes), err, a.SetRules(rules), a.SetLink(a.port), a.Attach(a.port),
		a.SetDefaultRoutes([]DefaultRoute{{Gateway: netip.MustParseAddr("192.168.1.254"), Interface: a.port.Index}}),
		a.SetLocalAddresses([]netip.Addr{netip.MustParseAddr("192.168.1.1")}))
	_, err = a.SetAttached(&bpf.Attached{
		Policers: map[string]bpf.TcPolicer{"p": compile.Policer(&policy.Policer{Name: "p", OneRate: true, Committed: policy.Rate{PerSecond: 1e6}})},
		Mirrors:  map[string]bpf.TcMirror{"m": {Ifindex: uint32(pair[1].Index), OneOf: 1}},
		Services: map[bpf.TcServiceKey]bpf.TcAttachments{a.services[0].Key: both}, Rules: map[uint64]bpf.TcAttachments{compile.RuleIdentity(&rule): both},
		Sources: map[netip.Prefix]bpf.TcAttachments{netip.MustParsePrefix("1.0.0.0/8"): both}, Ports: map[int]bpf.TcAttachments{a.port.Index: both},
	})
	if err := errors.Join(append(errs, err)...); err != nil {
		t.Fatal(err)
	}
	return a
}

// differences returns the tables that differ.
func (a *auditedDatapath) differences(t *testing.T, repair bool) (tables []string) {
	t.Helper()
	for _, c := range a.Audit(repair) {
		if c.Err != nil {
			t.Errorf("%s: %v", c.Table, c.Err)
		}
		for _, d := range c.Differences {
			t.Log(d)
			tables = append(tables, d.Table)
		}
	}
	for _, s := range a.services {
		for _, what := range a.Compare(s) {
			t.Log(s.Key, what)
			tables = append(tables, "compare")
		}
	}
	slices.Sort(tables)
	return slices.Compact(tables)
}

// changeFirst changes the first row of a map.
func changeFirst[K, V any](m *ebpf.Map, change func(*V)) func() error {
	return func() error {
		var key *K
		var row V
		each := func(k K, v V) {
			if key == nil {
				key, row = &k, v
			}
		}
		err := rows.Each(m, each)
		if err != nil || key == nil {
			return errors.Join(err, errors.New("there is no row"))
		}
		change(&row)
		return m.Put(*key, row)
	}
}

// removeFirst deletes the first row of a map.
func removeFirst[K, V any](m *ebpf.Map) func() error {
	return func() error {
		var keys []K
		if err := rows.Each(m, func(k K, _ V) { keys = append(keys, k) }); err != nil || len(keys) == 0 {
			return errors.Join(err, errors.New("there is no row"))
		}
		return m.Delete(keys[0])
	}
}

// TestAudit checks that a damaged row of each table that user space writes is found and repaired,
// and that nothing is found without damage.
func TestAudit(t *testing.T) {
	inNamespace(t, func() {
		a := newAudited(t)
		if got := a.differences(t, false); got != nil {
			t.Errorf("nothing is damaged, but these differ: %v", got)
			return
		}
		maps, vars := &a.collection.Maps, &a.collection.Variables
		pin := func(parts ...string) string { return filepath.Join(append([]string{a.collection.PinDir}, parts...)...) }
		for name, c := range map[string]struct {
			damage func() error
			tables string
		}{
			"service":                    {changeFirst[bpf.TcServiceKey](maps.Services, func(r *bpf.TcService) { r.Algorithm ^= 1 }), "services"},
			"service gone":               {removeFirst[bpf.TcServiceKey, bpf.TcService](maps.Services), "services"},
			"unknown service":            {func() error { return maps.Services.Put(bpf.TcServiceKey{Port: 7}, bpf.TcService{}) }, "services"},
			"endpoint":                   {changeFirst[uint32](a.collection.Endpoints.Segments()[0], func(r *bpf.TcEndpoint) { r.Port ^= 1 }), "endpoints"},
			"endpoint without a service": {func() error { return a.collection.Endpoints.Put(99, bpf.TcEndpoint{Flags: 1}) }, "endpoints"},
			"vip":                        {changeFirst[bpf.TcIpAddr](maps.Vips, func(r *bpf.TcVip) { r.Services++ }), "vips"},
			"range":                      {removeFirst[bpf.TcRangeKey, uint32](maps.ServiceRanges), "service_ranges"},
			"source":                     {removeFirst[bpf.TcSourceKey, uint8](maps.AllowedSources), "allowed_sources"},
			"snat":                       {changeFirst[bpf.TcSnatSourceKey](maps.SnatSources, func(r *bpf.TcIpAddr) { r.Word[3]++ }), "snat_sources"},
			"idle":                       {func() error { return maps.IdleTimeouts.Put(uint32(0), uint32(77)) }, "idle_timeouts"},
			"persist":                    {func() error { return maps.PersistTimeouts.Put(uint32(2), uint32(77)) }, "persist_timeouts"},
			"mss":                        {func() error { return maps.MssLimits.Put(uint32(0), uint32(77)) }, "mss_limits"},
			"egress":                     {removeFirst[bpf.TcEgressKey, bpf.TcEgressEndpoint](a.collection.EgressEndpoints.Table()), "egress_endpoints"},
			"local address":              {removeFirst[bpf.TcIpAddr, uint8](maps.LocalAddresses), "local_addresses"},
			"default route":              {removeFirst[bpf.TcDefaultRoute, uint8](maps.DefaultRoutes), "default_routes"},
			"link":                       {changeFirst[uint32](maps.Links, func(r *uint32) { *r ^= 2 }), "links"},
			"generation":                 {func() error { return maps.Generations.Put(uint32(0), bpf.TcHopGenerations{}) }, "generations"},
			"kept ports":                 {func() error { return maps.KeptPorts.Put(uint32(0), bpf.TcHostPorts{Limit: 7}) }, "kept_ports"},
			"policer":                    {changeFirst[uint64](maps.Policers, func(r *bpf.TcPolicer) { r.Cost++ }), "policers"},
			"mirror":                     {removeFirst[uint64, bpf.TcMirror](maps.Mirrors), "mirrors"},
			"of a service":               {changeFirst[uint32](maps.AttachedServices, func(r *bpf.TcAttachments) { r.Mirrors[0]++ }), "attached_services"},
			"of a source":                {removeFirst[bpf.TcAttachedSource, bpf.TcAttachments](maps.AttachedSources), "attached_sources"},
			"of a rule":                  {removeFirst[uint32, bpf.TcAttachments](maps.AttachedRules), "attached_rules"},
			"of a port":                  {changeFirst[uint32](maps.AttachedPorts, func(r *bpf.TcAttachments) { r.Policers[0]++ }), "attached_ports"},
			"rules":                      {func() error { return maps.RuleSets.Delete(uint32(0)) }, "rule_sets"},
			"variable":                   {func() error { return vars.RangeServices.Set(uint32(0)) }, "variables"},
			"shared next hops":           {func() error { return vars.NextHopsShared.Set(uint32(1)) }, "variables"},
			"filter": {func() error {
				memory, err := maps.BloomFilter.Memory()
				if err == nil {
					_, err = memory.WriteAt(make([]byte, len(bpf.TcBloom{}.Bits)*8), 0)
				}
				return err
			}, "bloom_filter"},
			"detached": {func() error {
				l, err := link.LoadPinnedLink(pin("links", rowName(a.port.Index)), nil)
				if err != nil {
					return err
				}
				return errors.Join(l.(interface{ Detach() error }).Detach(), l.Close())
			}, "attachments"},
			"link's pin": {func() error { return os.Remove(pin("links", rowName(a.port.Index))) }, "attachments"},
			"map's pin":  {func() error { return os.Remove(pin("maps", "services")) }, "pins"},
		} {
			if err := c.damage(); err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if got := strings.Join(a.differences(t, false), " "); got != c.tables {
				t.Errorf("with a damaged %s, these differ: %q, want %q", name, got, c.tables)
			}
			a.differences(t, true)
			if got := a.differences(t, false); got != nil {
				t.Errorf("after the repair of %s, these differ: %v", name, got)
			}
		}
		a.damageSlots(t)
		a.damageConnections(t)
	})
}

func rowName(index int) string { return netip.AddrFrom4([4]byte{0, 0, 0, byte(index)}).String()[6:] }

// damageSlots checks that slots are compared with the compiled table, and that applying a service
// again repairs them.
func (a *auditedDatapath) damageSlots(t *testing.T) {
	t.Helper()
	var block bpf.TcSlotBlock
	var row bpf.TcService
	err := a.collection.Maps.Services.Lookup(a.services[0].Key, &row)
	at := uint32(row.SlotOffset) / uint32(len(block.Endpoints))
	segment := a.collection.Slots.Segments()[row.SlotSegment]
	if err := errors.Join(err, segment.Lookup(at, &block)); err != nil {
		t.Error(err)
		return
	}
	block.Endpoints[0] = 3
	if err := segment.Put(at, block); err != nil {
		t.Error(err)
	}
	if got := a.differences(t, false); !slices.Equal(got, []string{"compare"}) {
		t.Errorf("with a damaged slot, these differ: %v", got)
	}
	if err := errors.Join(a.Apply([]Change{{Key: a.services[0].Key, Table: a.services[0]}})...); err != nil {
		t.Error(err)
	}
	if got := a.differences(t, false); got != nil {
		t.Errorf("after applying the state again, these differ: %v", got)
	}
}

// damageConnections checks that an entry without its other direction, and one of an unknown
// endpoint, are found.
func (a *auditedDatapath) damageConnections(t *testing.T) {
	t.Helper()
	dptest.Fill(t, a.collection, 100, dptest.Jiffies(t))
	for _, whole := range []bool{false, true} {
		if c := a.AuditConnections(t.Context(), 7, whole, false); c.Err != nil || len(c.Differences) > 0 || c.Rows != 200 {
			t.Errorf("nothing is damaged: %+v", c)
		}
	}
	var orphan, stray bpf.TcConnectionKey
	for k, r := range dptest.Connections(t, a.collection) {
		switch {
		case r.Flags&uint8(bpf.TcConnectionFlagCONN_REPLY_DIRECTION) == 0 && bpf.Port(k.Sport) < 1000:
			orphan = k
		case r.Flags&uint8(bpf.TcConnectionFlagCONN_REPLY_DIRECTION) == 0:
			stray = k
		}
	}
	err := dptest.ChangeConnections(a.collection.Conntrack, func(k bpf.TcConnectionKey, r *bpf.TcConnection) bool {
		if k == stray {
			r.Endpoint = 5000
		}
		return k == stray
	})
	reply := orphan
	reply.Saddr, reply.Daddr, reply.Sport, reply.Dport = a.connection(t, orphan).Daddr, orphan.Saddr, 80, orphan.Sport
	if err := errors.Join(err, a.collection.Conntrack.Remove(reply)); err != nil {
		t.Error(err)
	}
	c := a.AuditConnections(t.Context(), 0, true, false)
	if text := strings.Join(texts(c.Differences), "\n"); len(c.Differences) < 2 ||
		!strings.Contains(text, "no entry for its other direction") || !strings.Contains(text, "endpoint row 5000, which is unused") {
		t.Errorf("found: %s %v", text, c.Err)
	}
	a.AuditConnections(t.Context(), 0, true, true)
	for _, d := range a.AuditConnections(t.Context(), 0, true, false).Differences {
		if !strings.HasPrefix(d.Row, "tcp 31.0.0.1:") && !strings.Contains(d.What, "other direction") {
			t.Errorf("after the repair: %s", d)
		}
	}
	if rows := dptest.Connections(t, a.collection); len(rows) > 199 {
		t.Errorf("%d entries are left", len(rows))
	}
}

func (a *auditedDatapath) connection(t *testing.T, k bpf.TcConnectionKey) bpf.TcConnection {
	t.Helper()
	row, found, err := a.collection.Conntrack.Lookup(k)
	if err != nil || !found {
		t.Errorf("%v is not found: %v", k, err)
	}
	return row
}

func texts(list []report.Difference) (out []string) {
	for _, d := range list {
		out = append(out, d.String())
	}
	return out
}
