package traffic

import (
	"net/http"
	"net/netip"
	"strings"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// filter chooses connections.
type filter struct {
	protocol lb.Protocol // 0: any
	vip      netip.Addr  // invalid: any
	name     string      // of the service; "": any
	state    string      // "": any
	source   netip.Prefix
	endpoint netip.AddrPort // without an address: any; without a port: any of its ports
	service  *lb.Key        // nil: any
	vips     []netip.Addr   // of service
}

func (a *API) newFilter(params *v1.GetConntracksParams) (f filter, p *rest.Problem) {
	f.name = params.ServName
	var err error
	if params.State != "" {
		if f.state, err = report.ParseConnectionState(params.State); err != nil {
			return f, rest.BadRequest(err)
		}
	}
	if params.Protocol != "" {
		if f.protocol, err = lb.ParseProtocol(params.Protocol); err != nil {
			return f, rest.BadRequest(err)
		}
	}
	if params.Vip != "" {
		if f.vip, err = lb.ParseAddr("vip", params.Vip); err != nil {
			return f, rest.BadRequest(err)
		}
	}
	if params.Source != "" {
		if f.source, err = prefix(params.Source); err != nil {
			return f, rest.RefuseField(http.StatusBadRequest, "source", params.Source, "is neither an address nor a prefix", "IP or IP/LENGTH")
		}
	}
	if params.Endpoint != "" {
		if f.endpoint, err = endpoint(params.Endpoint); err != nil {
			return f, rest.RefuseField(http.StatusBadRequest, "endpoint", params.Endpoint, "is not an endpoint", "IP or IP:PORT, IPv6 in brackets before a port")
		}
	}
	if params.Service != "" {
		key, err := lb.ParseKey(params.Service)
		if err != nil && !strings.Contains(params.Service, "/") && f.name == "" {
			f.name = params.Service // not a key: a key has a protocol
			return f, nil
		}
		if err != nil {
			return f, rest.BadRequest(rest.RenameField("service", err))
		}
		f.service, f.vips = &key, []netip.Addr{key.VIP}
		if s, ok := a.Store.Services.Get(a.Store.Snapshot(), key); ok {
			f.vips = append(f.vips, s.AdditionalVIPs()...)
		}
	}
	return f, nil
}

func prefix(text string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(text); err == nil {
		a = a.Unmap() // connections never have mapped IPv4 addresses
		return a.Prefix(a.BitLen())
	}
	p, err := netip.ParsePrefix(text)
	if mapped := 96; err == nil && p.Addr().Is4In6() && p.Bits() >= mapped {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-mapped)
	}
	return p.Masked(), err
}

// endpoint reads one as drains name it.
func endpoint(text string) (netip.AddrPort, error) {
	d, err := lb.ParseDrain(text)
	return netip.AddrPortFrom(d.Addr, d.Port), err
}

func (f *filter) matches(c *report.Connection) bool {
	return (f.protocol == 0 || f.protocol.Includes(c.Protocol)) &&
		(!f.vip.IsValid() || f.vip == c.VIPAddr().Addr()) &&
		(f.name == "" || f.name == c.Service) &&
		(f.state == "" || f.state == c.State) &&
		(!f.source.IsValid() || f.source.Contains(c.ClientAddr().Addr())) &&
		(!f.endpoint.IsValid() || f.endpoint.Addr() == c.Endpoint.Addr() && (f.endpoint.Port() == 0 || f.endpoint.Port() == c.Endpoint.Port())) &&
		(f.service == nil || c.BelongsTo(*f.service, f.vips))
}

// query returns the filter that the data path can apply.
func (f *filter) query() report.ConnectionQuery {
	s := report.ConnectionQuery{Client: f.source, VIP: f.vip, Endpoint: f.endpoint.Addr(), State: f.state}
	if k := f.service; k != nil {
		if len(f.vips) == 1 && !k.VIP.IsUnspecified() && !f.vip.IsValid() {
			s.VIP = k.VIP
		}
		if k.Protocol.HasPorts() {
			s.Ports = [2]uint16{k.Port, max(k.Port, k.PortMax)}
		}
	}
	if f.name != "" {
		s.MatchEndpoint = func(service string, _ netip.AddrPort) bool { return service == f.name }
	}
	return s
}
