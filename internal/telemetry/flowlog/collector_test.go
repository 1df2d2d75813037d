package flowlog

import (
	"encoding/binary"
	"fmt"
	"net"
	"testing"
	"time"

	"loxilb/test/await"
)

// TestCollectorMoves checks that records follow the collector's name to another address, where
// templates come first and sequence numbers begin again.
func TestCollectorMoves(t *testing.T) {
	t.Parallel()
	var servers [2]net.PacketConn
	for i := range servers {
		var err error
		if servers[i], err = net.ListenPacket("udp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		defer servers[i].Close()
	}
	dials := 0
	x := NewIPFIX("collector.example:4739", 1)
	defer x.Close()
	x.collector.dial = func(string) (net.Conn, error) {
		dials++
		return net.Dial("udp", servers[min(dials/3, 1)].LocalAddr().String()) // the third one finds another address
	}
	now := time.Now()
	read := func(of int, wantSequence uint32) error {
		bytes := make([]byte, 2000)
		_ = servers[of].SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		_, _, err := servers[of].ReadFrom(bytes)
		if got := binary.BigEndian.Uint32(bytes[8:]); err == nil && got != wantSequence {
			t.Errorf("server %d: got sequence number %d, want %d", of, got, wantSequence)
		}
		if kind := binary.BigEndian.Uint16(bytes[headerSize:]); err == nil && wantSequence == 0 && kind != templateSet {
			t.Errorf("server %d: got a set of kind %d first, want templates", of, kind)
		}
		return err
	}
	await.NoError(t, 10*time.Second, func() error { return x.Write(now, events(), 0) })
	if err := read(0, 0); err != nil {
		t.Fatal(err)
	}
	sent := x.sequence
	await.NoError(t, 10*time.Second, func() error { // the second dial finds the same address
		if x.collector.next.Equal(now.Add(2 * dialEvery)) {
			return nil
		}
		err := x.Write(now.Add(dialEvery), events(), 0)
		if got := x.sequence; got <= sent {
			t.Errorf("got sequence number %d after %d", got, sent)
		}
		return fmt.Errorf("not dialed again: %w", err)
	})
	await.NoError(t, 10*time.Second, func() error {
		if err := x.Write(now.Add(2*dialEvery), events(), 0); err != nil {
			return err
		}
		return read(1, 0)
	})
}

// TestCollectorUnresolved checks that events do not wait for the resolver, and that it is asked
// once at a time.
func TestCollectorUnresolved(t *testing.T) {
	t.Parallel()
	dials, never := make(chan bool, 10), make(chan bool)
	defer close(never)
	x := NewIPFIX("collector.example:4739", 1)
	defer x.Close()
	x.collector.dial = func(string) (net.Conn, error) {
		dials <- true
		<-never
		return nil, net.ErrClosed
	}
	for i := range 5 {
		if err := x.Write(time.Now().Add(time.Duration(i)*dialEvery), events(), 0); err == nil {
			t.Error("events are written without a socket")
		}
	}
	<-dials
	if n := len(dials); n > 0 {
		t.Errorf("got %d more dials, want none", n)
	}
}
