package httpapi

import (
	"net/http"
	"net/netip"
	"strconv"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/lb"
)

// agentWord is what an agent says of an endpoint.
type agentWord struct {
	addr  netip.Addr
	port  uint16       // 0: any
	probe lb.ProbeType // ProbeAuto: any
	out   bool
}

func decodeHostState(data []byte) (s agentWord, p *rest.Problem) {
	body, p := rest.Unmarshal[v1.EndpointHostState](data)
	if p != nil {
		return s, p
	}
	var err error
	if s.addr, err = lb.ParseAddr("hostName", body.HostName); err != nil {
		return s, rest.BadRequest(err)
	}
	if s.port, err = lb.ParsePort("epPort", strconv.Itoa(body.EpPort)); err != nil {
		return s, rest.BadRequest(err)
	}
	if s.probe, err = lb.ParseProbeType(body.EpProto); err != nil {
		return s, rest.BadRequest(rest.RenameField("epProto", err))
	}
	if s.out, err = lb.ParseHostState(body.State); err != nil {
		return s, rest.BadRequest(err)
	}
	return s, nil
}

// SetEndpointHostState takes an endpoint out as an agent of the user's says, or leaves it to its
// probe again.
func (a *servicesAPI) SetEndpointHostState(w http.ResponseWriter, r *http.Request) {
	s, p := rest.DecodeLenient(a.Reader, w, r, decodeHostState)
	if p != nil {
		p.Write(w)
		return
	}
	if a.Health.SetHostState(s.addr, s.port, s.probe, s.out) == 0 {
		p := rest.Refuse(http.StatusNotFound, "nothing is probed at %s, port %d, by %s: loxicmd get endpoint shows what is", s.addr, s.port, s.probe)
		p.Body.Field, p.Body.Value = "hostName", s.addr.String()
		p.Write(w)
		return
	}
	rest.Success(w)
}
