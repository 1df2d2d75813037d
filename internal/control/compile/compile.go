// Package compile converts the desired state, and the health of endpoints, to the tables of the
// data path. Its functions are pure: the same input gives the same tables, which print as text.
package compile

import (
	"net/netip"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb"
)

// Key returns the map key of a service. Ranges with the same first port have the same key: they
// overlap, so only one of them exists at a time.
func Key(k lb.Key) bpf.TcServiceKey {
	key := bpf.TcServiceKey{Vip: bpf.Addr(k.VIP), Port: bpf.Port(k.Port), Protocol: uint8(k.Protocol.ForIPVersion(k.VIP.Is6())), Mark: k.Mark}
	if k.PortMax != 0 {
		key.Kind = uint8(bpf.TcServiceKindSERVICE_RANGE)
	}
	return key
}

// Service compiles a service that has passed lb.Service.Validate. up reports whether an endpoint is
// eligible for new connections; nil means all are. seed is the key of the tables of hash and
// persist: machines with the same seed choose the same endpoints. path returns the path to an
// endpoint, if known; it may be nil.
func Service(s lb.Service, up func(lb.Endpoint) bool, seed uint64, path func(netip.Addr) Path) bpf.ServiceTable {
	return Weighted(s, Weights{Current: EffectiveWeights(&s, up)}, seed, path)
}

// Weighted is Service with these weights for new connections.
func Weighted(s lb.Service, w Weights, seed uint64, path func(netip.Addr) Path) bpf.ServiceTable {
	t := bpf.ServiceTable{
		Key:       Key(s.Key),
		PortMax:   s.PortMax,
		Sources:   s.Sources,
		Denied:    s.Denied,
		Name:      s.Name,
		Idle:      s.IdleTimeout,
		Algorithm: uint8(s.Algorithm),
		Mode:      modeOf(s.Mode),
		MSS:       s.MSS,
		Flags:     refusal(s.Refuse) | synProtect(s.SynProtect) | tunnel(s.Tunnel),
		Endpoints: make([]bpf.EndpointTable, len(s.Endpoints)),
	}
	if s.HasEgressSource() {
		t.Flags |= uint16(bpf.TcServiceFlagSERVICE_EGRESS)
	}
	if s.ProxyProtocol {
		t.Flags |= uint16(bpf.TcServiceFlagSERVICE_PROXY)
	}
	t.Flags |= helper(s.Helper)
	if s.Limited() {
		t.Flags |= uint16(bpf.TcServiceFlagSERVICE_LIMITED)
		t.Limits = connectionLimits(s)
	}
	switch s.Algorithm {
	case lb.QUIC:
		t.QUIC = quicConfigs(&s)
	case lb.N3:
		t.Flags |= uint16(bpf.TcServiceFlagSERVICE_NO_XDP)
	}
	if s.Algorithm == lb.Persist {
		t.Persist, t.PersistPrefix = persist(s)
	}
	for _, a := range s.AdditionalVIPs() {
		t.Secondary = append(t.Secondary, bpf.Addr(a))
	}
	for _, a := range s.SNAT {
		t.SNAT = append(t.SNAT, bpf.Addr(a))
	}
	for i, e := range s.Endpoints {
		t.Endpoints[i] = bpf.EndpointTable{
			Addr: bpf.Addr(e.Addr), Port: bpf.Port(e.Port), Shift: e.PortMax != 0, Weight: e.Weight, CurrentWeight: w.rowWeight(&s, i),
			ServerID: serverID(e.ServerID),
		}
		if NeedsPath(s, e) {
			pathOf(e.Addr, path).writeTo(&s, e, &t.Endpoints[i])
		}
	}
	t.Tenths = s.SlowStart != 0
	t.Slots = slotsOf(s, &w, seed)
	t.Leave.After, t.Leave.Ends = s.ClosingDelay(s.OnRemove)
	return t
}

// modeOf returns the packet path's mode. For the packet path, auto is default with a flag for each
// endpoint.
func modeOf(m lb.Mode) uint8 {
	if m == lb.ModeAuto {
		m = lb.ModeDefault
	}
	return uint8(m)
}

func pathOf(endpoint netip.Addr, path func(netip.Addr) Path) Path {
	if path == nil {
		return Path{}
	}
	return path(endpoint)
}

// connectionLimits returns the limits in the layout of the maps.
func connectionLimits(s lb.Service) bpf.Limits {
	l, bits := s.ConnectionLimits, uint32(s.ClientPrefix)
	switch {
	case s.VIP.Is4() && bits != 0:
		bits += mappedBits
	case s.VIP.Is4():
		bits = 128
	case bits == 0:
		bits = 64
	}
	return bpf.Limits{
		Rate: l.MaxRate, Connections: l.MaxConnections, ClientRate: l.ClientRate, ClientConnections: l.ClientConnections, ClientPrefix: bits,
	}
}

func tunnel(t lb.Tunnel) uint16 {
	switch t {
	case lb.TunnelIPIP:
		return uint16(bpf.TcServiceFlagSERVICE_TUNNEL_IPIP)
	case lb.TunnelGUE:
		return uint16(bpf.TcServiceFlagSERVICE_TUNNEL_GUE)
	}
	return 0
}

func synProtect(p lb.SynProtect) uint16 {
	switch p {
	case lb.SynProtectAlways:
		return uint16(bpf.TcServiceFlagSERVICE_SYN_ALWAYS)
	case lb.SynProtectOff:
		return uint16(bpf.TcServiceFlagSERVICE_SYN_OFF)
	}
	return 0
}

func refusal(r lb.Refusal) uint16 {
	switch r {
	case lb.RefuseDrop:
		return uint16(bpf.TcServiceFlagSERVICE_REFUSE_DROP)
	case lb.RefusePass:
		return uint16(bpf.TcServiceFlagSERVICE_REFUSE_PASS)
	}
	return 0
}

func helper(h lb.Helper) uint16 {
	switch h {
	case lb.HelperTFTP:
		return uint16(bpf.TcServiceFlagSERVICE_TFTP)
	case lb.HelperFTP:
		return uint16(bpf.TcServiceFlagSERVICE_FTP)
	}
	return 0
}
