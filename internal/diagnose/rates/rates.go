// Package rates measures how fast the counters of the data path grow: now, and over the last hour.
// It reads them periodically, more often while a client watches. Queries use the last reading, so
// they never wait.
//
// Its memory is bounded: totals of the last hour take 20 kB, and 2 kB for each reason of drops.
// Each endpoint that has ever had a connection takes 184 bytes (262,144 fit into the data path),
// each service with recent connections takes 350 bytes, and the last hour of a service 5 kB, for at
// most 10,000 services.
package rates

import (
	"math"
	"time"
)

// Quantity is a kind of counter of an endpoint.
type Quantity int

// The quantities, in the order of Rates.
const (
	Connections Quantity = iota
	PacketsIn            // from clients
	PacketsOut           // to clients
	BytesIn
	BytesOut
	RepeatedSYNs     // SYNs repeated before an answer
	FailedHandshakes // SYNs that were refused or could not be delivered, and connections that were reset before data
	quantities
)

// Rates are quantities per second.
type Rates [quantities]float32

// Add adds the rates of another endpoint.
func (r *Rates) Add(o *Rates) {
	for q := range r {
		r[q] += o[q]
	}
}

// Packets returns the packets of both directions.
func (r *Rates) Packets() float32 { return r[PacketsIn] + r[PacketsOut] }

// Bytes returns the bytes of both directions.
func (r *Rates) Bytes() float32 { return r[BytesIn] + r[BytesOut] }

// counts are counters of the quantities.
type counts [quantities]uint64

// since returns the increase since an earlier reading. It returns false if a counter decreased, so
// the increase is unknown.
func (c *counts) since(earlier *counts) (added counts, ok bool) {
	for q := range c {
		if c[q] < earlier[q] {
			return counts{}, false
		}
		added[q] = c[q] - earlier[q]
	}
	return added, true
}

func (c *counts) add(o *counts) {
	for q := range c {
		c[q] += o[q]
	}
}

// perSecondOver returns the rates of an increase over a time; 0: unknown.
func (c *counts) perSecondOver(d time.Duration) (r Rates) {
	if d <= 0 {
		return r
	}
	for q := range c {
		r[q] = perSecond(c[q], d)
	}
	return r
}

func perSecond(n uint64, d time.Duration) float32 { return float32(float64(n) / d.Seconds()) }

// Window is the time over which rates are measured.
type Window struct {
	End    time.Time
	Length time.Duration // 0: no window yet
}

// Load is the rates and the number of connections of a service or endpoint.
type Load struct {
	Rates
	Active  uint64
	Refused float32 // refused packets of clients per second, of a service
	Recent  Recent  // of an endpoint
	Times   Times   // of the latest handshakes
	Now     Times   // of the handshakes in the window, of a service
}

// Recent summarizes recent handshakes with an endpoint. After windows in which most fail, only
// Failed is not 0; after windows in which most succeed, only Made is not 0.
type Recent struct{ Made, Failed uint32 }

// follow adds the handshakes of a window, if there are any.
func (l *Recent) follow(added *counts) {
	made, failed := added[Connections], added[RepeatedSYNs]+added[FailedHandshakes]
	switch {
	case failed > 0 && 2*failed >= made:
		l.Made, l.Failed = 0, l.Failed+uint32(min(failed, math.MaxUint16))
	case made > 10*failed:
		l.Made, l.Failed = l.Made+uint32(min(made-failed, math.MaxUint16)), 0
	}
}

// Totals are the rates of all services together, and the state of the data path at the end of the
// window.
type Totals struct {
	Rates
	Drops      map[string]Drop // packets dropped, by reason; never changed
	Dropped    float32         // packets a second, of any reason
	Challenged float32         // SYNs a second
	Refused    float32         // packets a second of clients that services refused
	Times      Times           // of the handshakes in the window
	Tracked    uint64          // connections
	Limit      uint64          // of connections
	HalfOpen   uint64          // half-open connections of all protocols
}

// Drop is the rate of drops of a reason.
type Drop struct {
	Packets uint64  // so far
	Rate    float32 // a second
}
