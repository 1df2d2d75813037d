package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"

	"loxilb/test/net/rig"
)

const (
	// changedServerPort is the port of servers that are started and stopped.
	changedServerPort = 6000
	// idleService is a service whose connections are idle until they time out.
	idleService = "20.20.20.7:7"
)

// createEndingServices creates a service whose servers are started and stopped, and a service whose
// connections time out.
func (s *soak) createEndingServices(lasting string) {
	s.Loxicmd("create lb 20.20.20.6 --tcp=80:%d --endpoints=%s --monitor --probe-interval=100ms", changedServerPort, rig.Endpoints4())
	s.Loxicmd("create lb 20.20.20.7 --tcp=7:7 --endpoints=%s --inatimeout=1", lasting)
}

// changeServer starts a server of the probed service, waits until it is reported as up, and stops
// it.
func (s *soak) changeServer() {
	l, err := s.Endpoints[s.randomBelow(len(s.Endpoints))].Listen("tcp", fmt.Sprintf(":%d", changedServerPort))
	if errors.Is(err, syscall.EADDRINUSE) { // connections of the previous server exist
		return
	}
	if err != nil {
		s.T.Error(err)
		return
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	})
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); {
		if out, err := s.Command("get", "ep"); err == nil && strings.Contains(out, " up ") { // fails while no daemon runs
			s.count("servers reported up")
			break
		}
	}
	_ = l.Close()
	serving.Wait()
}

// connectToChangedServer opens a connection to the service whose servers are started and stopped.
func (s *soak) connectToChangedServer() {
	s.tryConnect("20.20.20.6:80", "connections to changed servers")
}

// tryConnect opens a connection, which may fail, and closes it.
func (s *soak) tryConnect(address, what string) {
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	conn, err := s.Client.DialContext(ctx, "tcp", address)
	if err == nil {
		_ = conn.Close()
		s.count(what)
	}
}

// drain drains an endpoint that only changed services have, and undrains it.
func (s *soak) drain() {
	if _, err := s.Command("drain", "endpoint", "17.17.17.1", "--deadline=1s"); err == nil {
		s.count("endpoints drained")
	}
	time.Sleep(time.Second) // sometimes longer than the deadline
	s.undrain()
}

func (s *soak) undrain() { _, _ = s.Command("undrain", "endpoint", "17.17.17.1") }

// killConnections ends the connections of the changed services.
func (s *soak) killConnections() {
	if _, err := s.Command("kill", "ct", "--vip=20.20.20.3"); err == nil {
		s.count("connections killed")
	}
}

// awaitIdleTimeout opens a connection, and waits until the idle timeout ends it by a RST.
func (s *soak) awaitIdleTimeout() {
	ctx, cancel := context.WithTimeout(context.Background(), rig.Patience)
	defer cancel()
	conn, err := s.Client.DialContext(ctx, "tcp", idleService)
	if err != nil {
		s.T.Error(err)
		return
	}
	defer conn.Close()
	if err := rig.Exchange(conn, "x"); err != nil {
		s.T.Error(err)
	}
	s.count(idleOpened)
	killed := s.countOf("daemons killed")
	err = awaitReset(conn)
	if err != nil && s.countOf("daemons killed") > killed { // killed between finding the connection and sending the RST
		s.count("idle ends lost by a kill")
		return
	}
	if err != nil {
		s.T.Errorf("an idle connection: %v", err)
		return
	}
	s.count("idle connections ended")
}

const idleOpened = "idle connections opened"

// awaitReset waits for a RST.
func awaitReset(conn net.Conn) error {
	_ = conn.SetReadDeadline(time.Now().Add(3 * rig.Patience))
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		return fmt.Errorf("the connection did not end by a RST: %w", err)
	}
	return nil
}

// wantIdleCounts checks that the service of idle connections has counted all of them.
func (s *soak) wantIdleCounts() {
	s.T.Helper()
	if got := s.Metric("service_connections_total", "service="+idleService+"/tcp"); int(got) != s.counts[idleOpened] {
		s.T.Errorf("%s has counted %v connections, the clients %d", idleService, got, s.counts[idleOpened])
	}
}

// countOf returns how often a kind of change was made.
func (s *soak) countOf(what string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts[what]
}
