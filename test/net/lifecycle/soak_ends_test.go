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
	// mortalPort is the port of servers that come and go.
	mortalPort = 6000
	// idleService is a service whose connections are idle until they time out.
	idleService = "20.20.20.7:7"
)

// endsServices creates the services whose servers come and go, and those whose connections time
// out.
func (s *soak) endsServices(lasting string) {
	s.Loxicmd("create lb 20.20.20.6 --tcp=80:%d --endpoints=%s --monitor --probe-interval=100ms", mortalPort, rig.Endpoints4())
	s.Loxicmd("create lb 20.20.20.7 --tcp=7:7 --endpoints=%s --inatimeout=1", lasting)
}

// changeServer starts a server of the probed service, waits until it is reported as up, and stops
// it.
func (s *soak) changeServer() {
	l, err := s.Endpoints[s.upTo(len(s.Endpoints))].Listen("tcp", fmt.Sprintf(":%d", mortalPort))
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
		if out, err := s.Command("get", "ep"); err == nil && strings.Contains(out, " up ") { // the daemon may be away
			s.count("servers seen to come")
			break
		}
	}
	_ = l.Close()
	serving.Wait()
}

// visitMortal opens a connection to the service whose servers come and go.
func (s *soak) visitMortal() { s.tryOut("20.20.20.6:80", "connections to servers that come and go") }

// tryOut opens a connection, which may fail, and closes it.
func (s *soak) tryOut(address, what string) {
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	conn, err := s.Client.DialContext(ctx, "tcp", address)
	if err == nil {
		_ = conn.Close()
		s.count(what)
	}
}

// drain drains the endpoint that only changed services have, and undrains it.
func (s *soak) drain() {
	if _, err := s.Command("drain", "endpoint", "17.17.17.1", "--deadline=1s"); err == nil {
		s.count("endpoints drained")
	}
	time.Sleep(time.Second) // sometimes after its deadline
	s.undrain()
}

func (s *soak) undrain() { _, _ = s.Command("undrain", "endpoint", "17.17.17.1") }

// kill ends the connections of the changed services.
func (s *soak) kill() {
	if _, err := s.Command("kill", "ct", "--vip=20.20.20.3"); err == nil {
		s.count("connections killed")
	}
}

// idle waits until the idle timeout ends a connection by a RST.
func (s *soak) idle() {
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
	killed := s.done("daemons killed")
	err = untilReset(conn)
	if err != nil && s.done("daemons killed") > killed { // killed between finding the connection and sending the RST
		s.count("idle ends that went with a killed daemon")
		return
	}
	if err != nil {
		s.T.Errorf("a connection that is idle: %v", err)
		return
	}
	s.count("idle connections ended")
}

const idleOpened = "idle connections opened"

// untilReset waits for a RST.
func untilReset(conn net.Conn) error {
	_ = conn.SetReadDeadline(time.Now().Add(3 * rig.Patience))
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		return fmt.Errorf("the connection ended otherwise: %w", err)
	}
	return nil
}

// wantIdleCounts checks that the service of idle connections has counted what clients have opened.
func (s *soak) wantIdleCounts() {
	s.T.Helper()
	if got := s.Metric("service_connections_total", "service="+idleService+"/tcp"); int(got) != s.did[idleOpened] {
		s.T.Errorf("%s has counted %v connections, the clients %d", idleService, got, s.did[idleOpened])
	}
}

// done returns how often something was done so far.
func (s *soak) done(what string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.did[what]
}
