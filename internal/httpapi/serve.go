package httpapi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// socketMode lets the owner and the group of the daemon in.
const socketMode = 0o660

// Listen says where to answer. What is not valid or empty is not served.
type Listen struct {
	Plain             netip.AddrPort // HTTP
	TLS               netip.AddrPort // HTTPS
	CertFile, KeyFile string
	Socket            string // path of a UNIX socket
}

// Server has the API's sockets open.
type Server struct {
	log   *slog.Logger
	ports []port
}

type port struct {
	listener net.Listener
	server   *http.Server
}

// Listen opens all sockets, or none and says why.
func (a *API) Listen(ctx context.Context, l Listen) (*Server, error) {
	s := &Server{log: a.Log}
	err := s.open(ctx, a, l)
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *Server) open(ctx context.Context, a *API, l Listen) error {
	var lc net.ListenConfig
	if l.Plain.IsValid() {
		ln, err := lc.Listen(ctx, "tcp", l.Plain.String())
		if err != nil {
			return fmt.Errorf("listen on %s: %w", l.Plain, err)
		}
		s.add(a, ln, doorOf(l.Plain))
	}
	if l.TLS.IsValid() {
		cert, err := tls.LoadX509KeyPair(l.CertFile, l.KeyFile)
		if err != nil {
			return fmt.Errorf("load certificate %s: %w", l.CertFile, err)
		}
		ln, err := lc.Listen(ctx, "tcp", l.TLS.String())
		if err != nil {
			return fmt.Errorf("listen on %s: %w", l.TLS, err)
		}
		conf := &tls.Config{
			Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12,
			NextProtos: []string{"http/1.1"},
		}
		s.add(a, tls.NewListener(ln, conf), doorOf(l.TLS))
	}
	if l.Socket != "" {
		ln, err := listenUnix(ctx, l.Socket)
		if err != nil {
			return err
		}
		s.add(a, ln, doorSocket)
	}
	return nil
}

func doorOf(at netip.AddrPort) door {
	if at.Addr().IsLoopback() {
		return doorLoopback
	}
	return doorNetwork
}

func (s *Server) add(a *API, ln net.Listener, d door) {
	s.ports = append(s.ports, port{ln, &http.Server{
		Handler:           a.handler(d),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    32 << 10,
		ErrorLog:          slog.NewLogLogger(a.Log.Handler(), slog.LevelDebug),
		// No WriteTimeout: a long answer is given time as it goes (stream).
	}})
}

// Addrs are the addresses that the sockets got.
func (s *Server) Addrs() []net.Addr {
	var out []net.Addr
	for _, p := range s.ports {
		out = append(out, p.listener.Addr())
	}
	return out
}

// Serve answers until ctx ends, then finishes what is being answered, for five seconds at most.
func (s *Server) Serve(ctx context.Context) error {
	failed := make(chan error, len(s.ports))
	for _, p := range s.ports {
		go func() { failed <- p.server.Serve(p.listener) }()
		s.log.Info("API listens", "address", p.listener.Addr().String())
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
		err = fmt.Errorf("serve the API: %w", err)
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	for _, p := range s.ports {
		if e := p.server.Shutdown(stop); e != nil {
			_ = p.server.Close() // those that did not end by themselves are cut
		}
	}
	return err
}

func (s *Server) close() {
	for _, p := range s.ports {
		_ = p.listener.Close() // nobody has been answered yet
	}
}

// listenUnix takes the place of a socket that nobody answers any more, and of nothing else.
func listenUnix(ctx context.Context, path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("make the directory of socket %s: %w", path, err)
	}
	if err := removeStale(ctx, path); err != nil {
		return nil, err
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen on socket %s: %w", path, err)
	}
	if err := os.Chmod(path, socketMode); err != nil {
		_ = ln.Close() // the error that matters is the first
		return nil, fmt.Errorf("set the mode of socket %s: %w", path, err)
	}
	return ln, nil
}

func removeStale(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at socket %s: %w", path, err)
	}
	if info.Mode().Type() != os.ModeSocket {
		return fmt.Errorf("listen on socket %s: there is a file that is not a socket", path)
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", path)
	if err == nil {
		_ = conn.Close() // it was opened to see whether somebody answers
		return fmt.Errorf("listen on socket %s: another process answers there", path)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("look at socket %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("remove the old socket %s: %w", path, err)
	}
	return nil
}
