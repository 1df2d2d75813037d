package bfd

import (
	"bytes"
	"encoding/hex"
	"testing"
	"time"
)

const ms = time.Millisecond

// TestPacket checks the layout of RFC 5880, 4.1, and that invalid packets are refused.
func TestPacket(t *testing.T) {
	t.Parallel()
	p := Packet{
		State: Up, Diagnostic: TimeExpired, Poll: true, Multiplier: 3, My: 0x01020304, Your: 0x05060708,
		MinTx: 100 * ms, MinRx: 200 * ms, Extra: []byte("more"),
	}
	const want = "21e00318" + "01020304" + "05060708" + "000186a0" + "00030d40" + "00000000" + "6d6f7265"
	data := p.Append(nil)
	if got := hex.EncodeToString(data); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	got, err := Parse(data)
	if err != nil || !bytes.Equal(got.Extra, p.Extra) || got.My != p.My || got.MinRx != p.MinRx || !got.Poll || got.Final {
		t.Errorf("got %+v, %v, want no error, got.Extra == p.Extra, "+
			"got.My == p.My, got.MinRx == p.MinRx, got.Poll, not got.Final",
			got, err)
	}
	for name, change := range map[string]func(b []byte) []byte{
		"short": func(b []byte) []byte { return b[:23] }, "length": func(b []byte) []byte { b[3] = 29; return b },
		"version": func(b []byte) []byte { b[0] = 0x41; return b }, "authenticated": func(b []byte) []byte { b[1] |= 4; return b },
		"multipoint": func(b []byte) []byte { b[1] |= 1; return b }, "multiplier": func(b []byte) []byte { b[2] = 0; return b },
		"my": func(b []byte) []byte { copy(b[4:8], make([]byte, 4)); return b }, "your": func(b []byte) []byte { copy(b[8:12], make([]byte, 4)); return b },
	} {
		if _, err := Parse(change(bytes.Clone(data))); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// pairUp returns two sessions that are up.
func pairUp(t *testing.T, now time.Time) (a, b *session) {
	t.Helper()
	a, b = newSession(100*ms, 3), newSession(100*ms, 3)
	for range 4 {
		for _, x := range [][2]*session{{a, b}, {b, a}} {
			p := x[0].packet()
			if !x[1].receive(&p, now) {
				t.Fatalf("refused: %+v", p)
			}
		}
	}
	if a.state != Up || b.state != Up || a.polling || b.polling {
		t.Fatalf("got %v %t, %v %t, want a.state == Up, b.state == Up, not a.polling, not b.polling",
			a.state, a.polling, b.state, b.polling)
	}
	return a, b
}

// TestHandshake checks the states, intervals and detection time of a session.
func TestHandshake(t *testing.T) {
	t.Parallel()
	now := time.Now()
	a, b := newSession(100*ms, 3), newSession(50*ms, 5)
	if a.interval() != time.Second {
		t.Errorf("a session that is down sends every %s", a.interval())
	}
	p := a.packet()
	b.receive(&p, now)
	if b.state != Init {
		t.Errorf("got %v, want %v", b.state, Init)
	}
	p = b.packet()
	a.receive(&p, now)
	if a.state != Up || a.detection != 5*time.Second { // b is slow until it is up
		t.Errorf("got %v, %s, want a.state == Up, a.detection == 5*time.Second", a.state, a.detection)
	}
	p = a.packet()
	if !p.Poll || p.MinTx != 100*ms {
		t.Errorf("got %+v, want p.Poll, p.MinTx == 100*ms", p)
	}
	b.receive(&p, now)
	if b.state != Up || !b.reply || b.detection != 300*ms {
		t.Errorf("got %v, %s, want b.state == Up, b.reply, b.detection == 300*ms", b.state, b.detection)
	}
	p = b.packet()
	if !p.Final || p.Poll {
		t.Errorf("got %+v, want p.Final, not p.Poll", p)
	}
	a.receive(&p, now)
	if a.polling || a.detection != 500*ms || a.interval() != 100*ms || b.interval() != 100*ms {
		t.Errorf("got %+v, want not a.polling, a.detection == 500*ms, a.interval() == 100*ms, b.interval() == 100*ms",
			a)
	}
	a.expire(now.Add(499 * ms))
	if a.state != Up {
		t.Error("the session ended before its detection time")
	}
	a.expire(now.Add(500 * ms))
	if a.state != Down || a.diagnostic != TimeExpired || a.remoteDiscr != 0 {
		t.Errorf("got %+v, want a.state == Down, a.diagnostic == TimeExpired, a.remoteDiscr == 0", a)
	}
	p = a.packet()
	b.receive(&p, now) // its discriminator is that of the session
	if b.state != Down || b.diagnostic != NeighborDown {
		t.Errorf("got %+v, want b.state == Down, b.diagnostic == NeighborDown", b)
	}
}

// TestForged checks that a packet ends a session only if its sender knows a discriminator.
func TestForged(t *testing.T) {
	t.Parallel()
	now := time.Now()
	a, b := pairUp(t, now)
	for _, p := range []Packet{
		{State: Down, Multiplier: 3, My: 1, MinTx: ms, MinRx: ms},
		{State: AdminDown, Multiplier: 3, My: 1, MinTx: ms, MinRx: ms},
		{State: Down, Multiplier: 3, My: b.localDiscr, Your: a.localDiscr + 1, MinTx: ms, MinRx: ms},
	} {
		if a.receive(&p, now) || a.state != Up {
			t.Errorf("invalid packet %+v: accepted, or the session is now %v instead of Up", p, a.state)
		}
	}
	b.setState(AdminDown, AdminDownDiagn)
	p := b.packet()
	if !a.receive(&p, now) || a.state != Down || a.diagnostic != NeighborDown {
		t.Errorf("got %+v, want a.receive(&p, now), a.state == Down, a.diagnostic == NeighborDown", a)
	}
}

// TestForgedBeginning checks that the peer can begin a session after a forged first packet,
// whatever intervals that packet announces.
func TestForgedBeginning(t *testing.T) {
	t.Parallel()
	now := time.Now()
	a, b := newSession(100*ms, 3), newSession(100*ms, 3)
	forged := Packet{State: Down, Multiplier: 255, My: 1, MinTx: time.Hour, MinRx: ms}
	a.receive(&forged, now)
	for range 4 {
		p := b.packet()
		if !a.receive(&p, now) {
			t.Errorf("refused: %+v", p)
		}
		p = a.packet()
		b.receive(&p, now)
	}
	if a.state != Up || b.state != Up || a.detection != 300*ms {
		t.Errorf("got %v, %v, %s, want a.state == Up, b.state == Up, a.detection == 300*ms",
			a.state, b.state, a.detection)
	}
}

// TestConfigure checks that a change of intervals waits for the peer (RFC 5880, 6.8.3).
func TestConfigure(t *testing.T) {
	t.Parallel()
	now := time.Now()
	a, b := pairUp(t, now)
	a.configure(400*ms, 3)
	if a.interval() != 100*ms {
		t.Errorf("sends every %s before the peer knows", a.interval())
	}
	p := a.packet()
	b.receive(&p, now)
	p = b.packet()
	a.receive(&p, now)
	if a.interval() != 400*ms || b.detection != 1200*ms || b.interval() != 400*ms {
		t.Errorf("got %s, %s, %s, want a.interval() == 400*ms, b.detection == 1200*ms, b.interval() == 400*ms",
			a.interval(), b.detection, b.interval())
	}
	a.configure(100*ms, 3)
	p = b.packet()
	a.receive(&p, now)
	if a.detection != 1200*ms {
		t.Errorf("expects packets within %s before the peer knows", a.detection)
	}
}

// TestUnconfirmed checks that a session assumes no longer detection time of its peer than the peer
// has, even if packets that change the timing are lost. The peer must not detect a failure then.
func TestUnconfirmed(t *testing.T) {
	t.Parallel()
	now := time.Now()
	a, b := pairUp(t, now)
	lost := func() { _ = a.packet() }
	confirmed := func() {
		p := a.packet()
		b.receive(&p, now)
		p = b.packet()
		a.receive(&p, now)
	}
	check := func(what string, interval, detection time.Duration) {
		t.Helper()
		if a.interval() != interval || a.peerDetection() != detection || a.peerDetection() > b.detection {
			t.Errorf("%s: sends every %s, peer detects after %s (%s), want %s, %s", what, a.interval(), a.peerDetection(), b.detection, interval, detection)
		}
	}
	a.configure(400*ms, 3)
	lost()
	check("slower, lost", 100*ms, 300*ms)
	a.configure(200*ms, 3)
	lost()
	check("slower again, lost", 100*ms, 300*ms)
	confirmed()
	check("the first change is confirmed", 200*ms, 600*ms)
	confirmed()
	check("both changes are confirmed", 200*ms, 600*ms)
	a.configure(200*ms, 10)
	lost()
	check("larger multiplier, lost", 200*ms, 600*ms)
	confirmed()
	check("the larger multiplier is confirmed", 200*ms, 2*time.Second)
	a.configure(100*ms, 3)
	lost()
	check("faster, lost", 100*ms, 300*ms)
	confirmed()
	check("faster, confirmed", 100*ms, 300*ms)
}

// TestJitter checks the bounds of RFC 5880, 6.8.7.
func TestJitter(t *testing.T) {
	t.Parallel()
	for multiplier, most := range map[uint8]time.Duration{3: 100 * ms, 1: 90 * ms} {
		s := newSession(100*ms, multiplier)
		low, high := time.Hour, time.Duration(0)
		for range 10000 {
			d := s.jittered(100 * ms)
			low, high = min(low, d), max(high, d)
		}
		if low < 75*ms || high > most || high-low < 10*ms {
			t.Errorf("multiplier %d: %s to %s", multiplier, low, high)
		}
	}
}
