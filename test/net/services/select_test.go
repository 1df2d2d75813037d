package services_test

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
)

// TestLeastConnections checks that the count of connections is exact, and returns to zero after
// FIN, RST and time-out.
//
// V160
func TestLeastConnections(t *testing.T) {
	t.Parallel()
	r := rig.Shared(t)
	rig.ServeEcho(r)
	r.Loxicmd("create lb %s --tcp=80:7 --select=lc --inatimeout=2 --endpoints=%s", rig.VIP4, rig.Endpoints4())
	address := rig.Join(rig.VIP4, 80)
	service := address + "/tcp"
	var conns []*net.TCPConn
	for range 6 {
		c := r.Dial(address)
		if err := rig.Exchange(c, "hello"); err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	r.WantActive(service, 2, 2, 2)
	for i, c := range conns[:4] {
		if i%2 == 0 {
			if err := c.SetLinger(0); err != nil { // RST
				t.Fatal(err)
			}
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	r.WantActive(service, 0, 0, 0) // two of them have timed out
}

// TestPersist checks that a client keeps its endpoint when others are added.
//
// V167
func TestPersist(t *testing.T) {
	t.Parallel()
	r := rig.Shared(t)
	r.ServeNames()
	all := strings.Split(rig.Endpoints4(), ",")
	for i, first := range all {
		port := 80 + i
		r.Loxicmd("create lb %s --tcp=%d:5001 --select=persist --endpoints=%s", rig.VIP4, port, first)
		name := fmt.Sprintf("ep%d", i+1)
		r.WantAnswers(rig.Join(rig.VIP4, port), name)
		r.Loxicmd("create lb %s --tcp=%d:5001 --select=persist --endpoints=%s", rig.VIP4, port, strings.Join(all, ","))
		r.WantAnswers(rig.Join(rig.VIP4, port), name, name, name)
		r.Loxicmd("create lb %s --tcp=%d:5001 --select=persist --endpoints=%s", rig.VIP4, port,
			strings.Join(append(append([]string{}, all[:i]...), all[i+1:]...), ","))
		who, err := r.Ask(rig.Join(rig.VIP4, port))
		if err != nil || strings.HasPrefix(who, name+" ") {
			t.Errorf("after %s was removed: %q %v", name, who, err)
		}
	}
}

// TestHashIgnoresOrder checks that two balancers with different orders of endpoints choose the same
// endpoint for each client port.
//
// V164
func TestHashIgnoresOrder(t *testing.T) {
	t.Parallel()
	var answers [2][]string
	for i := range answers {
		r := rig.Shared(t)
		for _, h := range r.Endpoints {
			if err := h.ServeUDPEcho(":5001"); err != nil {
				t.Fatal(err)
			}
		}
		list := strings.Split(rig.Endpoints4(), ",")
		if i == 1 {
			list[0], list[2] = list[2], list[0]
		}
		r.Loxicmd("create lb %s --udp=53:5001 --select=hash --endpoints=%s", rig.VIP4, strings.Join(list, ","))
		for port := range 20 {
			answers[i] = append(answers[i], fromPort(r, 20000+port, rig.Join(rig.VIP4, 53)))
		}
	}
	if fmt.Sprint(answers[0]) != fmt.Sprint(answers[1]) {
		t.Errorf("one balancer chose\n%v, the other\n%v", answers[0], answers[1])
	}
	t.Log(answers[0])
}

// fromPort sends a datagram from a port of the client and returns the name of the server.
func fromPort(r *rig.Rig, port int, address string) string {
	r.T.Helper()
	c, err := r.Client.ListenPacket("udp4", rig.Join(netnstest.StandardNetworks()[0].V4.Addr().String(), port))
	if err != nil {
		r.T.Fatal(err)
	}
	defer c.Close()
	to, err := net.ResolveUDPAddr("udp4", address)
	if err != nil {
		r.T.Fatal(err)
	}
	buf := make([]byte, 100)
	for range 5 { // the first one may be lost during neighbor discovery
		if _, err := c.WriteTo([]byte("x"), to); err != nil {
			r.T.Fatal(err)
		}
		_ = c.SetReadDeadline(time.Now().Add(2 * time.Second))
		n, _, err := c.ReadFrom(buf)
		if err == nil {
			name, _, _ := strings.Cut(string(buf[:n]), ":")
			return name
		}
	}
	r.T.Fatalf("no answer to a datagram from port %d", port)
	return ""
}
