package connections_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
)

// TestTableWithoutDaemon checks that TCP, UDP and ICMP clients can open connections after the
// daemon was killed, even ten times as many as the table holds: the packet path removes expired
// ones.
func TestTableWithoutDaemon(t *testing.T) {
	t.Parallel()
	const connections, turnovers, rate = 1024, 10, 250
	// All these connections are half-open for a second. A service may use half of the share for
	// half-open connections, so the test configures the largest share.
	r := rig.New(t, rig.Options{Args: []string{fmt.Sprintf("--ct-max=%d", connections), "--half-open-max=33"}})
	for _, h := range r.Endpoints {
		if err := h.ServeTCP(":5001", netnstest.Echo); err != nil {
			t.Fatal(err)
		}
	}
	r.ServeUDPEcho()
	r.Loxicmd("create lb %s --tcp=80:5001 --endpoints=%s", rig.VIP4, rig.Endpoints4())
	r.Loxicmd("create lb %s --udp=53:5353 --endpoints=%s --inatimeout=1", rig.VIP4, rig.Endpoints4())
	r.Loxicmd("create lb %s --icmp --endpoints=%s --inatimeout=1", rig.VIP4, rig.Endpoints4())
	kinds := []func(*rig.Rig, int) error{exchangeTCP, exchangeUDP, exchangeTCP, exchangePing, exchangeTCP}
	for i, open := range kinds {
		if err := open(r, i); err != nil {
			t.Fatal(err)
		}
	}
	r.Kill()

	var clients sync.WaitGroup
	failed := make(chan error, 1)
	began := time.Now()
	tick := time.NewTicker(time.Second / rate)
	defer tick.Stop()
	served := 0
	for ; served < turnovers*connections && len(failed) == 0; served++ {
		<-tick.C
		n := served
		clients.Go(func() {
			if err := kinds[n%len(kinds)](r, n); err != nil {
				select {
				case failed <- fmt.Errorf("flow %d: %w", n, err):
				default:
				}
			}
		})
	}
	clients.Wait()
	t.Logf("%d flows in %v", served, time.Since(began).Round(time.Millisecond))
	select {
	case err := <-failed:
		t.Error(err)
	default:
	}
	r.Restart()
	if n := r.Metric("drops_total", "reason=conntrack-full"); n > 0 {
		t.Errorf("%v packets were dropped because the table was full", n)
	}
}

// exchangeTCP opens a connection, exchanges a line with an echo server, and closes the connection.
func exchangeTCP(r *rig.Rig, _ int) error {
	c, err := r.Client.DialContext(r.T.Context(), "tcp", rig.Join(rig.VIP4, 80))
	if err != nil {
		return err
	}
	defer c.Close()
	return rig.Exchange(c, "hello")
}

// exchangeUDP exchanges a datagram with an echo server.
func exchangeUDP(r *rig.Rig, _ int) error {
	c, err := r.Client.DialContext(r.T.Context(), "udp", rig.Join(rig.VIP4, 53))
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = rig.Datagram(c, "hello")
	return err
}

// exchangePing sends an ICMP echo request with the given identifier, and waits for the reply.
func exchangePing(r *rig.Rig, id int) error {
	c, err := r.Client.DialContext(r.T.Context(), "ip4:icmp", rig.VIP4)
	if err != nil {
		return err
	}
	defer c.Close()
	const request = 8
	message := []byte{request, 0, 0, 0, byte(id >> 8), byte(id), 0, 1}
	sum := request<<8 + id&0xffff + 1
	binary.BigEndian.PutUint16(message[2:], ^uint16(sum+sum>>16))
	var last error
	for range 3 {
		if _, err := c.Write(message); err != nil {
			return err
		}
		if last = awaitEcho(c, message[4:]); last == nil {
			return nil
		}
	}
	return last
}

// awaitEcho reads until a reply ends with want.
func awaitEcho(c net.Conn, want []byte) error {
	if err := c.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	buf := make([]byte, 2048)
	for {
		n, err := c.Read(buf)
		if err != nil {
			return err
		}
		if n >= 8 && buf[n-8] == 0 && bytes.HasSuffix(buf[:n], want) { // the IP header comes first
			return nil
		}
	}
}
