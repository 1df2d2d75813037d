package tables

import (
	"time"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// ClientOrigin fills in the service and the endpoint of a remembered client. It returns false if
// the service no longer remembers it.
func (t *Tables) ClientOrigin(c *report.ClientCopy, key bpf.TcPersistKey, row bpf.TcPersistEntry, now uint32) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	e := t.endpoint(row.Endpoint)
	if e == nil || e.service.id != key.Service || now-row.Seen > e.service.persist {
		return false
	}
	k := e.service.key
	c.Protocol, c.Ranged, c.Mark = lb.Protocol(k.Protocol), k.Ranged(), k.Mark
	c.VIP, c.Endpoint = bpf.AddrPort(k.Vip, k.Port), e.at()
	c.Client, c.Idle = bpf.AddrPort(key.Client, 0).Addr(), time.Duration(now-row.Seen)*t.settings.Jiffy()
	return true
}

// ClientPlace returns the place of the endpoint that a client keeps, and for how long its service
// remembers clients, in ticks. It returns false if the service or the endpoint does not exist here.
func (t *Tables) ClientPlace(c *report.ClientCopy) (at CopyPlace, timeout uint32, ok bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	key := bpf.TcServiceKey{Vip: bpf.Addr(c.VIP.Addr()), Port: bpf.Port(c.VIP.Port()), Protocol: uint8(c.Protocol), Mark: c.Mark}
	if c.Ranged {
		key.Kind = uint8(bpf.TcServiceKindSERVICE_RANGE)
	}
	s := t.services[key]
	if s == nil {
		return at, 0, false
	}
	for _, e := range s.order {
		if e.at() == c.Endpoint {
			return CopyPlace{Endpoint: e.id, Service: s.id, PersistPrefix: s.persistPrefix()}, s.persist, true
		}
	}
	return at, 0, false
}
