package rig

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"
)

// NameHandler answers requests with the endpoint's name and the source address of the request.
func NameHandler(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from, _, _ := net.SplitHostPort(r.RemoteAddr)
		_, _ = fmt.Fprintf(w, "%s sees %s\n", name, from)
	})
}

// ServeNames starts HTTP servers on :5001 of all endpoints. They answer with the endpoint's name
// and the client's address.
func (r *Rig) ServeNames() {
	r.T.Helper()
	for _, h := range r.Endpoints {
		if err := h.ServeHTTPWith(":5001", NameHandler(h.Name)); err != nil {
			r.T.Fatal(err)
		}
	}
}

// Ask sends an HTTP request from the client over a new connection, and returns the name of the
// endpoint that answered.
func (r *Rig) Ask(address string) (string, error) {
	ctx, cancel := context.WithTimeout(r.T.Context(), 5*time.Second)
	defer cancel()
	return r.Client.Get(ctx, address)
}

// AskFrom is Ask from a port of the client.
func (r *Rig) AskFrom(port int, address string) (string, error) {
	ctx, cancel := context.WithTimeout(r.T.Context(), 5*time.Second)
	defer cancel()
	return r.Client.GetFrom(ctx, port, address)
}

// WantAnswers fails the test unless these endpoints answer the next requests, in this order.
func (r *Rig) WantAnswers(address string, want ...string) {
	r.T.Helper()
	var got []string
	for range want {
		who, err := r.Ask(address)
		if err != nil {
			r.T.Fatalf("after answers by %v: %v", got, err)
		}
		name, _, _ := strings.Cut(who, " ")
		got = append(got, name)
	}
	if !slices.Equal(got, want) {
		r.T.Errorf("%s: answered by %v, want %v", address, got, want)
	}
}

// WantNoAnswer fails the test if a connection is established.
func (r *Rig) WantNoAnswer(address string) {
	r.T.Helper()
	ctx, cancel := context.WithTimeout(r.T.Context(), 500*time.Millisecond)
	defer cancel()
	if c, err := r.Client.DialContext(ctx, "tcp", address); err == nil {
		_ = c.Close()
		r.T.Errorf("%s answers", address)
	}
}

// Dial opens a TCP connection of the client.
func (r *Rig) Dial(address string) *net.TCPConn {
	r.T.Helper()
	ctx, cancel := context.WithTimeout(r.T.Context(), Patience)
	defer cancel()
	c, err := r.Client.DialContext(ctx, "tcp", address)
	if err != nil {
		r.T.Fatal(err)
	}
	r.Lab.Cleanup(func() { _ = c.Close() })
	return c.(*net.TCPConn)
}

// Exchange sends a line over a connection to an echo server, and returns an error unless the server
// returns the line.
func Exchange(c net.Conn, line string) error {
	if err := c.SetDeadline(time.Now().Add(Patience)); err != nil {
		return err
	}
	if _, err := c.Write([]byte(line)); err != nil {
		return err
	}
	buf := make([]byte, len(line))
	for n := 0; n < len(buf); {
		m, err := c.Read(buf[n:])
		if err != nil {
			return err
		}
		n += m
	}
	if string(buf) != line {
		return fmt.Errorf("sent %q, got %q back", line, buf)
	}
	return nil
}
