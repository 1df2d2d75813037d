package cluster

import (
	"crypto/tls"
	"io"
	"net"
	"strings"
	"testing"

	"loxilb/internal/lb/report"
	"loxilb/test/certtest"
)

// TestForeignServers checks that a node describes a server of something else at the address of a
// node, and exchanges connections with the others meanwhile.
func TestForeignServers(t *testing.T) {
	t.Parallel()
	pair := certtest.NewAuthority(t, "elsewhere").Issue(t, "elsewhere").TLS(t)
	secured := func(c net.Conn, protocols ...string) {
		s := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: protocols})
		_, _ = io.Copy(io.Discard, s)
	}
	for name, one := range map[string]struct {
		serve func(net.Conn)
		state report.PeerState
		want  string
	}{
		"says nothing":         {func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }, report.PeerDown, "accepts connections, and does not answer within 3s"},
		"never reads":          {func(net.Conn) { select {} }, report.PeerDown, "accepts connections, and does not answer within 3s"},
		"speaks first":         {func(c net.Conn) { _, _ = io.WriteString(c, "SSH-2.0-OpenSSH_9.2\r\n"); _, _ = io.Copy(io.Discard, c) }, report.PeerRefused, "does not speak TLS"},
		"returns all":          {func(c net.Conn) { _, _ = io.Copy(c, c) }, report.PeerRefused, "--cluster-listen"},
		"closes":               {func(net.Conn) {}, report.PeerDown, "closed the connection"},
		"HTTPS":                {func(c net.Conn) { secured(c) }, report.PeerRefused, "another --cluster-key"},
		"HTTPS with strict h2": {func(c net.Conn) { secured(c, "h2") }, report.PeerRefused, "--cluster-listen"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = l.Close() })
			go func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					t.Cleanup(func() { _ = c.Close() })
					go func() {
						one.serve(c)
						_ = c.Close()
					}()
				}
			}()
			all := newNodes(t, 2)
			tables := []*table{newTable(), newTable()}
			all.addresses = append(all.addresses, l.Addr().String())
			var node *Node
			for i, f := range tables {
				node, _ = all.start(i, f, nil)
			}
			tables[0].open(0, 10, false)
			eventually(t, "connections are not exchanged", func() bool { return tables[1].len() == 10 })
			eventually(t, "the server is not described", func() bool {
				for _, p := range node.Status().Peers {
					if p.Address == l.Addr().String() && p.State == one.state && strings.Contains(p.Reason, one.want) {
						return true
					}
				}
				return false
			})
			eventually(t, "the node does not join", func() bool { return node.Status().Joined && node.HeldReason() == "" })
		})
	}
}
