package datapath

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"loxilb/internal/control/compile"
	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb"
	"loxilb/test/netnstest/labtest"
)

// handshaker sends packets of connections to several services.
type handshaker struct {
	t *testing.T
	d *Datapath
}

// add adds a service.
func (s *handshaker) add(line string) {
	s.t.Helper()
	service, err := lb.ParseService(line)
	if err == nil {
		err = service.Validate()
	}
	if err != nil {
		s.t.Fatal(err)
	}
	table := compile.Service(service, nil, 0, nil)
	if err := errors.Join(s.d.Apply([]Change{{Key: table.Key, Table: &table}})...); err != nil {
		s.t.Fatal(err)
	}
}

func (s *handshaker) send(from, to netip.AddrPort, flags byte, seq, ack uint32) {
	s.t.Helper()
	if _, err := program(s.t, s.d).Run(&ebpf.RunOptions{Data: segment(from, to, flags, seq, ack)}); err != nil {
		s.t.Fatal(err)
	}
}

// request completes a handshake, and sends data of the client.
func (s *handshaker) request(client, vip, endpoint netip.AddrPort) {
	s.t.Helper()
	const length = 100
	s.send(client, vip, tcpSYN, isn, 0)
	s.send(endpoint, client, tcpSYN|tcpACK, isn, isn+1+length)
	s.send(client, vip, tcpACK, isn+1+length, isn+1+length)
	s.send(client, vip, tcpACK, isn+1+2*length, isn+1+length)
}

// TestStalls checks that successive connections without an answer count once if they are of one
// client, and that each client counts once in total. One client is watched on one connection at a
// time. A connection that the client has reset does not count.
func TestStalls(t *testing.T) {
	t.Parallel()
	const several = 20                                                               // number of connections, of which at most 8 are watched
	s := &handshaker{t, newOwnOpener(t, "10.0.0.1:80/tcp endpoints=192.0.2.1:80").d} // ids of endpoints begin at 0
	s.add("10.0.0.2:80/tcp endpoints=192.0.2.2:80")
	s.add("10.0.0.3:80/tcp endpoints=192.0.2.3:80")
	at := func(addr string) netip.AddrPort { return netip.MustParseAddrPort(addr + ":80") }
	client := func(host, port int) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 51, 100, byte(host)}), uint16(2000+port))
	}
	s.request(client(1, 0), at("10.0.0.1"), at("192.0.2.1"))
	s.send(client(1, 0), at("10.0.0.1"), tcpRST, isn+1+3*100, 0)
	for i := range several {
		s.request(client(2, i), at("10.0.0.2"), at("192.0.2.2"))
	}
	for i := range several {
		s.request(client(10+i, 0), at("10.0.0.3"), at("192.0.2.3"))
	}
	stalled := func(endpoint uint32) uint32 { return s.d.collection.Bell.Outcomes(endpoint).Stalled }
	clients := func(endpoint uint32) uint16 { return s.d.collection.Bell.Outcomes(endpoint).StalledClients }
	s.add("10.0.0.4:80/tcp select=hash endpoints=192.0.2.4:80")
	for round := range 3 { // two clients with a place each
		for i := range several {
			s.request(client(40+2*(i%2), 100*round+i), at("10.0.0.4"), at("192.0.2.4"))
		}
		began := stalled(3)
		labtest.Eventually(t, 10*time.Second, func(context.Context) error {
			if err := s.d.JudgeConnections(); err != nil {
				return err
			}
			if n := stalled(3) - began; n < 2 {
				return fmt.Errorf("%d of 2 connections are judged", n)
			}
			return nil
		})
	}
	if all, n := stalled(3), clients(3); all != 6 || n != 2 {
		t.Errorf("%d connections of %d clients count, want 6 of 2", all, n)
	}
	labtest.Eventually(t, 10*time.Second, func(context.Context) error { // the last connections are judged last
		if err := s.d.JudgeConnections(); err != nil {
			return err
		}
		if n := stalled(2); n < 2 {
			return fmt.Errorf("%d connections of several clients count", n)
		}
		return nil
	})
	if n := stalled(0); n != 0 {
		t.Error("a connection counts that its client has reset")
	}
	if n := stalled(1); n != 1 {
		t.Errorf("%d connections of one client count, want 1", n)
	}
}

// TestTrialOfKnownClient checks that SYNs of unknown clients, which can be forged, leave the trial
// of an endpoint to known clients for 3 s.
func TestTrialOfKnownClient(t *testing.T) {
	t.Parallel()
	const out = uint32(1)                                                                           // the endpoint without a slot in the service's table
	s := &handshaker{t, newOwnOpener(t, "10.0.0.1:80/tcp endpoints=192.0.2.1:80,192.0.2.2:80:0").d} // ids of endpoints begin at 0
	vip, endpoint := netip.MustParseAddrPort("10.0.0.1:80"), netip.MustParseAddrPort("192.0.2.1:80")
	ports := uint16(2000)
	client := func(host byte) netip.AddrPort {
		ports++
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 51, 100, host}), ports)
	}
	opened := func() uint64 {
		var state bpf.TcEndpointState
		if err := s.d.collection.EndpointStates.Lookup(out, &state); err != nil {
			t.Fatal(err)
		}
		return state.Connections
	}
	service := bpf.TcService{}
	if err := s.d.collection.Maps.Services.Lookup(compile.Key(lb.Key{VIP: vip.Addr(), Port: 80, Protocol: lb.TCP}), &service); err != nil {
		t.Fatal(err)
	}
	s.request(client(1), vip, endpoint)
	s.d.collection.Bell.Try(service.Id, out)
	for range 100 {
		s.send(client(2), vip, tcpSYN, isn, 0)
	}
	if n := opened(); n != 0 {
		t.Fatalf("%d connections of an unknown client try the endpoint", n)
	}
	for range 2 {
		s.send(client(1), vip, tcpSYN, isn, 0)
	}
	if n := opened(); n != 1 {
		t.Fatalf("%d connections of a known client try the endpoint, want 1", n)
	}
	s.d.collection.Bell.Try(service.Id, out)
	begun := time.Now()
	labtest.Eventually(t, 10*time.Second, func(context.Context) error {
		s.send(client(2), vip, tcpSYN, isn, 0)
		if opened() == 1 {
			return errors.New("no connection of an unknown client tries the endpoint")
		}
		return nil
	})
	if took := time.Since(begun); took < 2900*time.Millisecond {
		t.Errorf("an unknown client tries the endpoint after %v", took)
	}
}
