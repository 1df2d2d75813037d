package tables

import (
	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/rows"
)

// Packets that have no bit in the filter are passed on without a look at services and connections.
// It has to know all that packets of a service, and of its connections, are addressed to or come
// from: VIPs with their ports, endpoints with theirs. Of endpoints that open connections, and of
// the addresses that these get, it has all ports.

// addToFilter adds the keys that a service will need, before its rows are written.
func (t *Tables) addToFilter(want *bpf.ServiceTable) {
	keysOfVIP(want.Key, want.PortMax, t.filter.Add)
	for _, vip := range want.Secondary {
		key := want.Key
		key.Vip = vip
		keysOfVIP(key, want.PortMax, t.filter.Add)
	}
	egress := want.Flags&serviceEgress != 0
	for _, e := range want.Endpoints {
		keysOfEndpoint(e.Addr, e.Port, e.Shift, egress, t.filter.Add)
	}
	if egress {
		keysOfSources(want.Key.Vip, want.SNAT, t.filter.Add)
	}
}

// filterKeys yields the keys of all existing rows, including endpoints that are ending.
func (t *Tables) filterKeys(add func(rows.FilterKey)) {
	for _, s := range t.services {
		keysOfVIP(s.key, s.portMax, add)
		for _, o := range s.extras().further {
			keysOfVIP(o.key, o.portMax, add)
		}
		if s.row.Flags&serviceEgress != 0 {
			keysOfSources(s.key.Vip, s.extras().snat, add)
		}
	}
	for _, e := range t.endpoints {
		if e != nil {
			keysOfEndpoint(e.addr, e.port, e.shift, e.service.row.Flags&serviceEgress != 0, add)
		}
	}
}

// keysOfVIP yields the keys of packets to a service. A service on every local address has its ports
// at every address, a range of ports each of them there, and all ports elsewhere.
func keysOfVIP(key bpf.TcServiceKey, last uint16, add func(rows.FilterKey)) {
	if !key.Vip.Netip().IsUnspecified() {
		if last > 0 {
			add(rows.AllPortsKey(key.Vip))
			return
		}
		add(rows.PortKey(key.Vip, key.Port))
		return
	}
	for port := uint32(bpf.Port(key.Port)); port <= max(uint32(last), uint32(bpf.Port(key.Port))); port++ {
		add(rows.PortKey(bpf.TcIpAddr{}, bpf.Port(uint16(port))))
	}
}

// keysOfEndpoint yields the keys of its answers, and of the connections that it opens.
func keysOfEndpoint(addr bpf.TcIpAddr, port uint16, shift, egress bool, add func(rows.FilterKey)) {
	add(rows.PortKey(addr, port))
	if shift || egress {
		add(rows.AllPortsKey(addr))
	}
}

// keysOfSources yields the keys of answers to connections that endpoints open, to the VIP or one of
// the service's own addresses.
func keysOfSources(vip bpf.TcIpAddr, pool []bpf.TcIpAddr, add func(rows.FilterKey)) {
	add(rows.AllPortsKey(vip))
	for _, a := range pool {
		add(rows.AllPortsKey(a))
	}
}

// BeginSweep must be called before each sweep: the sweep may then collect what connections need of
// the filter. quiesce waits for packets that have found removed rows (false: it cannot).
func (t *Tables) BeginSweep(quiesce func() bool) {
	t.mu.Lock()
	started := t.filter.Start(t.filterKeys)
	t.mu.Unlock()
	if started && !quiesce() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.filter.Abort()
	}
}

// EndSweep must be called after a sweep that visited the whole table.
func (t *Tables) EndSweep() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.filter.Swept()
}
