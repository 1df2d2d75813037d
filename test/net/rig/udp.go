package rig

import (
	"context"
	"net"
	"testing"
	"time"
)

// ServeUDPEcho starts UDP echo servers on port 5353 of every endpoint.
func (r *Rig) ServeUDPEcho() {
	r.T.Helper()
	for _, h := range r.Endpoints {
		if err := h.ServeUDPEcho(":5353"); err != nil {
			r.T.Fatal(err)
		}
	}
}

// DialUDP opens a UDP socket of the client, connected to an address.
func DialUDP(t testing.TB, r *Rig, address string) net.Conn {
	t.Helper()
	c, err := r.Client.DialContext(context.Background(), "udp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Datagram sends a datagram and returns the answer. It retries, since UDP may lose packets.
func Datagram(c net.Conn, text string) (string, error) {
	var last error
	for range 3 {
		if _, err := c.Write([]byte(text)); err != nil {
			return "", err
		}
		if err := c.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			return "", err
		}
		buf := make([]byte, 65536)
		n, err := c.Read(buf)
		if err == nil {
			return string(buf[:n]), nil
		}
		last = err
	}
	return "", last
}
