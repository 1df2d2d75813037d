package httpapi

import (
	"bufio"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/internal/lb"
)

// stallLimit is how long a client may take to read a part of a streamed answer.
const stallLimit = 30 * time.Second

// GetLoadbalancers answers with all services.
func (a *API) GetLoadbalancers(w http.ResponseWriter, r *http.Request) {
	out := newStream(w, "lbAttr")
	for s := range a.Store.Services.All(a.Store.Snapshot()) {
		stats, _ := a.DataPath.ServiceStats(s.Key)
		if r.Context().Err() != nil || !out.item(entryOf(&s, &stats)) {
			return
		}
	}
	out.end()
}

// entryOf is a service as the contract writes it, so that it can be sent back as it is.
func entryOf(s *lb.Service, stats *lb.ServiceStats) v1.LoadbalanceEntry {
	e := v1.LoadbalanceEntry{
		ServiceArguments: v1.ServiceArguments{
			ExternalIP:      s.VIP.String(),
			Port:            int(s.Port),
			PortMax:         int(s.PortMax),
			Block:           int(s.Mark),
			Mss:             int(s.MSS),
			Protocol:        s.Protocol.String(),
			Sel:             v1.Choice(strconv.Itoa(int(s.Algorithm))),
			Mode:            v1.Choice(strconv.Itoa(int(s.Mode))),
			InactiveTimeOut: int(s.IdleTimeout / time.Second),
			PersistTimeout:  int(s.PersistTimeout / time.Second),
			PersistPrefix:   int(s.PersistPrefix),
			Name:            s.Name,
			Managed:         s.Managed,
			Egress:          s.Egress,
		},
		Endpoints: make([]v1.Endpoint, len(s.Endpoints)),
	}
	if s.Tunnel != lb.TunnelNone {
		e.ServiceArguments.Tunnel = s.Tunnel.String()
	}
	if s.Refuse != lb.RefuseReject {
		e.ServiceArguments.Refuse = s.Refuse.String()
	}
	for _, a := range s.SNAT {
		e.ServiceArguments.SnatIPs = append(e.ServiceArguments.SnatIPs, a.String())
	}
	for i := range s.Endpoints {
		ep := &s.Endpoints[i]
		var t lb.EndpointStats
		if i < len(stats.Endpoints) {
			t = stats.Endpoints[i]
		}
		e.Endpoints[i] = v1.Endpoint{
			EndpointIP: ep.Addr.String(), TargetPort: int(ep.Port), TargetPortMax: int(ep.PortMax), Weight: new(int(ep.Weight)),
			State: "active", Counter: counter(t),
		}
	}
	for _, a := range s.Secondary {
		e.SecondaryIPs = append(e.SecondaryIPs, v1.SecondaryIP{SecondaryIP: a.String()})
	}
	for _, p := range s.Sources {
		e.AllowedSources = append(e.AllowedSources, v1.AllowedSource{Prefix: p.String()})
	}
	return e
}

// counter is packets and bytes of both directions.
func counter(t lb.EndpointStats) string {
	return strconv.FormatUint(t.In.Packets+t.Out.Packets, 10) + ":" + strconv.FormatUint(t.In.Bytes+t.Out.Bytes, 10)
}

// stream writes {"key":[...]} an item at a time, one on a line, so that no answer is ever held in memory whole. A
// stream that is not ended is not JSON: that is how a client learns that something failed on the way.
type stream struct {
	control *http.ResponseController
	buf     *bufio.Writer
	enc     *json.Encoder
	started bool
	count   int
	err     error
}

func newStream(w http.ResponseWriter, key string) *stream {
	w.Header().Set("Content-Type", "application/json")
	s := &stream{control: http.NewResponseController(w), buf: bufio.NewWriterSize(w, 64<<10)}
	s.enc = json.NewEncoder(s.buf)
	s.extend()
	s.write(`{"` + key + `":[` + "\n")
	return s
}

// item writes one item, and is false when nobody reads any more.
func (s *stream) item(v any) bool {
	if s.started {
		s.write(",")
	}
	s.started = true
	if s.err == nil {
		s.err = s.enc.Encode(v)
	}
	if s.count++; s.count%256 == 0 {
		s.extend()
	}
	return s.err == nil
}

func (s *stream) end() {
	s.write("]}\n")
	_ = s.buf.Flush() // the client is gone if this fails
}

func (s *stream) write(text string) {
	if s.err == nil {
		_, s.err = s.buf.WriteString(text)
	}
}

// extend gives the client time for the next part. Writers of tests have no deadline, and need none.
func (s *stream) extend() { _ = s.control.SetWriteDeadline(time.Now().Add(stallLimit)) }
