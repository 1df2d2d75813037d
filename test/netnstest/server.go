package netnstest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// ServeHTTP answers every HTTP request on an address of the host, such as ":5001", with the host's
// name and a newline, until the lab is closed.
func (h *Host) ServeHTTP(address string) error {
	return h.ServeHTTPWith(address, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintln(w, h.Name)
	}))
}

// ServeHTTPWith serves HTTP with the caller's handler until the lab is closed.
func (h *Host) ServeHTTPWith(address string, handler http.Handler) error {
	l, err := h.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("serve http in %s: %w", h.Name, err)
	}
	s := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	h.lab.Cleanup(func() { _ = s.Close() })
	go func() { _ = s.Serve(l) }()
	return nil
}

// ServeTCP calls handle with every connection to an address of the host until the lab is closed.
// Each call has its own goroutine, and ServeTCP closes the connection after it.
func (h *Host) ServeTCP(address string, handle func(*net.TCPConn)) error {
	l, err := h.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("serve tcp in %s: %w", h.Name, err)
	}
	h.lab.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil { // no free file descriptor, or the client has reset: the next call may succeed
				time.Sleep(time.Millisecond)
				continue
			}
			go func() {
				defer c.Close()
				handle(c.(*net.TCPConn))
			}()
		}
	}()
	return nil
}

// Echo is a handler of ServeTCP that returns the received data, and ends when the client has
// finished sending.
func Echo(c *net.TCPConn) {
	_, _ = io.Copy(c, c)
}

// ServeUDPEcho answers every datagram to an address of the host with "NAME: " and the datagram.
func (h *Host) ServeUDPEcho(address string) error {
	p, err := h.ListenPacket("udp", address)
	if err != nil {
		return fmt.Errorf("serve udp in %s: %w", h.Name, err)
	}
	h.lab.Cleanup(func() { _ = p.Close() })
	go func() {
		buf := make([]byte, 65536)
		for {
			n, from, err := p.ReadFrom(buf)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				_, _ = p.WriteTo(append([]byte(h.Name+": "), buf[:n]...), from)
			}
		}
	}()
	return nil
}

// HTTPClient returns a client in the host. It opens a new connection for each request.
func (h *Host) HTTPClient(timeout time.Duration) *http.Client {
	return &http.Client{
		Timeout:   timeout,
		Transport: &http.Transport{DialContext: h.DialContext, DisableKeepAlives: true},
	}
}

// Get requests http://ADDRESS/ from the host over a new connection, and returns the body without
// leading and trailing space.
func (h *Host) Get(ctx context.Context, address string) (string, error) {
	return get(ctx, h.HTTPClient(0), address)
}

// GetFrom is Get with the given source port.
func (h *Host) GetFrom(ctx context.Context, port int, address string) (string, error) {
	dial := func(ctx context.Context, network, to string) (net.Conn, error) {
		return h.dial(ctx, &net.Dialer{LocalAddr: &net.TCPAddr{Port: port}}, network, to)
	}
	return get(ctx, &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}, address)
}

func get(ctx context.Context, client *http.Client, address string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/", nil)
	if err != nil {
		return "", err
	}
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("get %s: status %s", address, resp.Status)
	}
	return strings.TrimSpace(string(body)), nil
}
