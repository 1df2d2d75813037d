package outlier

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"loxilb/internal/lb"
)

// TestManyFail: a client that has all of very many endpoints reset its connections costs no more than the reading of their counters.
func TestManyFail(t *testing.T) {
	t.Parallel()
	const endpoints = 10000
	d := New(jiffy)
	d.Watch([]Service{{Key: web, Resets: true}})
	rows := make([]lb.HandshakeRow, endpoints)
	for i := range rows {
		rows[i] = lb.HandshakeRow{At: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 80), ID: uint32(i)}
	}
	now := time.Unix(1000, 0)
	d.Observe(web, rows)
	for i := range rows {
		rows[i].Count.Opened, rows[i].Count.Answered[0] = 10, 10
		rows[i].Count.Reset = 5 + uint64(i*7919%5)
	}
	d.Observe(web, rows)
	start := time.Now()
	for range 10 {
		now = now.Add(Pace)
		if a := d.Decide(now); len(a) > 0 {
			t.Fatalf("%v", a[0])
		}
	}
	if took := time.Since(start); took > 10*Pace {
		t.Errorf("ten decisions take %s", took)
	}
	d.Observe(web, slices.Clone(rows)[1:]) // the service has another list of endpoints
	if took := time.Since(start); took > 11*Pace {
		t.Errorf("another list takes %s", took)
	}
}

// TestMedian: endpoints that are out, and get no connections, do not stand for others that are well.
func TestMedian(t *testing.T) {
	t.Parallel()
	r := newRig(t, 8)
	for i := range 3 {
		r.rows[i].Count.Opened, r.rows[i].Count.Refused = 3, 3
	}
	r.tick()
	for i := range 3 {
		r.answer(i, "connection refused")
	}
	for range window / Pace {
		r.tick()
	}
	for i := range 3 {
		delete(r.asks, at(i))
	}
	r.news = nil
	for i := 3; i < 8; i++ {
		r.serve(i, 10)
	}
	r.rows[3].Count.Reset, r.rows[4].Count.Reset = 6, 4
	r.tick()
	r.want("out 3 passive: 6 of 10 connections reset before an answer")
}

// TestIdle: endpoints of weight 0, and those that are drained, are not among those of which half may be out; nor is one of them that is out.
func TestIdle(t *testing.T) {
	t.Parallel()
	r := newRig(t, 4)
	fail := func(i int) {
		r.rows[i].Count.Opened, r.rows[i].Count.Refused = r.rows[i].Count.Opened+3, r.rows[i].Count.Refused+3
		r.tick()
		r.answer(i, "refused")
	}
	r.rows[2].Idle, r.rows[3].Idle = true, true
	r.tick()
	fail(0)
	if len(r.news) != 1 {
		t.Errorf("%q", r.news)
	}
	fail(1)
	if len(r.news) != 1 {
		t.Errorf("both are out: %q", r.news)
	}
	r.rows[0].Idle, r.rows[2].Idle = true, false
	for range askAgain / Pace {
		r.tick()
	}
	fail(1)
	if len(r.news) != 2 {
		t.Errorf("none but one of weight 0 is out: %q", r.news)
	}
}

// TestOutElsewhere: an endpoint that is out for another service counts for one that comes.
func TestOutElsewhere(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2)
	r.rows[0].Count.Opened, r.rows[0].Count.Refused = 3, 3
	r.tick()
	r.answer(0, "refused")
	other := web
	other.Port = 443
	r.d.Watch([]Service{{Key: web, Resets: true}, {Key: other, Resets: true}})
	rows := []lb.HandshakeRow{{At: at(0), ID: 10}, {At: at(9), ID: 11}}
	r.d.Observe(other, rows)
	rows = slices.Clone(rows)
	rows[1].Count.Opened, rows[1].Count.Refused = 3, 3
	r.d.Observe(other, rows)
	r.news = nil
	r.tick()
	r.answer(9, "refused")
	r.want()
}
