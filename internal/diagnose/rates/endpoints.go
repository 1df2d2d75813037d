package rates

import (
	"hash/maphash"
	"net/netip"
	"sync"

	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// endpoint is the last reading of a row of the data path.
type endpoint struct { // there are many: 184 bytes
	identity uint64 // of service and address: a reused row is another endpoint
	last     counts
	rates    Rates
	recent   Recent
	answered times // as last counted
	times    latest
	active   uint32
	window   uint32 // of the last reading; 0: none
}

const blockRows = 256

// block is endpoints with adjacent IDs. Only the sampler writes, with the lock; it reads without
// the lock.
type block struct {
	mu   sync.Mutex
	rows [blockRows]endpoint
}

func (b *block) row(id uint32) *endpoint { return &b.rows[id%blockRows] }

// identify distinguishes endpoints that used the same row.
func identify(seed maphash.Seed, c *report.EndpointCount) uint64 {
	return maphash.Comparable(seed, struct {
		service lb.Key
		at      netip.AddrPort
	}{c.Service, c.Addr})
}

func countsOf(c *report.EndpointCount) counts {
	h := &c.Handshakes
	return counts{
		Connections: c.Connections, PacketsIn: c.In.Packets, PacketsOut: c.Out.Packets, BytesIn: c.In.Bytes, BytesOut: c.Out.Bytes,
		RepeatedSYNs: h.Repeated, FailedHandshakes: h.Failed(),
	}
}

// read reads an endpoint, and returns the increase of its counts and handshakes since the previous
// reading. For a new endpoint, the increase is the whole counter, except in the first reading, when
// counters include those of earlier processes.
func (e *endpoint) read(identity uint64, c *report.EndpointCount, first bool) (added counts, handshakes times) {
	now, answered := countsOf(c), timesOf(&c.Handshakes)
	switch {
	case e.window > 0 && e.identity == identity:
		var ok bool
		if added, ok = now.since(&e.last); ok {
			handshakes = answered.since(&e.answered)
		} else { // it was removed from the service and added again
			e.recent, e.times = Recent{}, latest{}
		}
	case !first:
		added, handshakes = now, answered
	}
	if e.identity != identity {
		e.recent, e.times = Recent{}, latest{}
	}
	e.identity, e.last, e.answered = identity, now, answered
	e.times.add(&handshakes)
	return added, handshakes
}
