package cluster

import (
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"loxilb/internal/cluster/transport"
)

// TestStrangers checks that connections that say nothing, or nonsense, do not keep nodes from
// finding each other: those have other addresses.
func TestStrangers(t *testing.T) {
	t.Parallel()
	all := newNodes(t, 2)
	first, _ := all.start(0, newTable(), nil)
	stranger := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 9)}}
	for n := range 40 {
		c, err := stranger.DialContext(t.Context(), "tcp", all.addresses[0])
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if n > 30 {
			_, _ = c.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
		}
	}
	began := time.Now()
	second, _ := all.start(1, newTable(), nil)
	eventually(t, "the nodes do not find each other", func() bool {
		return isUp(first) && isUp(second)
	})
	if took := time.Since(began); took > 2500*time.Millisecond {
		t.Errorf("strangers have kept the nodes apart for %v", took)
	}
}

func isUp(n *Node) bool {
	list := n.Status().Peers
	return len(list) == 1 && list[0].State == "up"
}

// TestHostilePeer checks that a node with the key that sends nonsense is disconnected, and that the
// other nodes lose nothing.
func TestHostilePeer(t *testing.T) {
	t.Parallel()
	all := newNodes(t, 2)
	one, two := newTable(), newTable()
	first, _ := all.start(0, one, nil)
	all.start(1, two, nil)
	eventually(t, "the nodes do not find each other", func() bool { return isUp(first) })
	head := func(kind, length uint32) []byte { return binary.BigEndian.AppendUint32(nil, kind<<24|length) }
	const records, clients, state = 3, 7, 8
	for name, bytes := range map[string][]byte{
		"a kind that is unknown":               head(200, 0),
		"a second greeting":                    append(head(1, 2), "{}"...),
		"a frame of 16 MiB":                    append(head(records, 1<<24-1), make([]byte, 1<<17)...),
		"records of random bytes":              append(head(records, 64), strings.Repeat("\xa5\x5a\xff\x01", 16)...),
		"half a record":                        append(head(records, 3), 4, 0, 1),
		"half a frame, then silence":           append(head(records, 64), 4, 0, 1),
		"silence":                              {},
		"a state of random bytes":              append(head(state, 64), strings.Repeat("\xff\x00\x7f\x80", 16)...),
		"clients of random bytes":              append(head(clients, 64), strings.Repeat("\xff\x00\x7f\x80", 16)...),
		"an acknowledgment by an unknown node": append(head(6, 8), make([]byte, 8)...),
	} {
		t.Run(name, func(t *testing.T) {
			c := all.connectAsNode(t, `{"version":2,"oldest":1,"node":"evil","self":-1,"boot":"x","seed":"`+transport.Fingerprint(0)+`","slots":509,"connections":-9000000000000000000}`)
			go func() { _, _ = c.Write(bytes) }() // it may be disconnected before it has sent all
			_ = c.SetReadDeadline(time.Now().Add(testTimeout))
			if _, err := io.Copy(io.Discard, c); isTimeout(err) {
				t.Errorf("the node is still connected: %v", err)
			}
		})
	}
	for _, greeting := range []string{"", "[]", `{"node":7}`, strings.Repeat("{", 60_000), `{"node":"` + strings.Repeat("n", 60_000) + `"}`} {
		c := all.connectAsNode(t, greeting)
		_ = c.SetReadDeadline(time.Now().Add(testTimeout))
		if _, err := io.Copy(io.Discard, c); isTimeout(err) {
			t.Errorf("a node with the greeting %.20q is connected: %v", greeting, err)
		}
	}
	one.open(0, 100, false)
	eventually(t, "connections are no longer exchanged", func() bool { return two.len() == 100 })
	if one.len() != 100 {
		t.Errorf("the node has inserted %d connections of nonsense", one.len()-100)
	}
}

func isTimeout(err error) bool {
	n, ok := err.(net.Error) //nolint:errorlint // as the connection returns it
	return ok && n.Timeout()
}

// connectAsNode connects to the first node, with the cluster's key, and greets it.
func (n *nodes) connectAsNode(t *testing.T, greeting string) *tls.Conn {
	t.Helper()
	c, _ := n.connectAsNodeFrom(t, "127.0.0.1", greeting)
	return c
}

// connectAsNodeFrom connects from an address, and also returns the answer to the greeting.
func (n *nodes) connectAsNodeFrom(t *testing.T, from, greeting string) (c *tls.Conn, answer string) {
	t.Helper()
	credentials, err := transport.KeyFile(n.key, "evil")
	if err != nil {
		t.Fatal(err)
	}
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	plain, err := dialer.DialContext(t.Context(), "tcp", n.addresses[0])
	if err != nil {
		t.Fatal(err)
	}
	c = tls.Client(plain, credentials.Config())
	t.Cleanup(func() { _ = c.Close() })
	if _, err := c.Write(append(binary.BigEndian.AppendUint32(nil, 1<<24|uint32(len(greeting))), greeting...)); err != nil {
		t.Fatal(err)
	}
	if !json.Valid([]byte(greeting)) {
		return c, ""
	}
	head := make([]byte, 4)
	if _, err := io.ReadFull(c, head); err == nil {
		b, _ := io.ReadAll(io.LimitReader(c, int64(binary.BigEndian.Uint32(head)&0xffffff)))
		answer = string(b)
	}
	return c, answer
}

// TestIPv6 checks that nodes find each other over IPv6.
func TestIPv6(t *testing.T) {
	t.Parallel()
	all := newNodes(t, 2)
	for i := range all.addresses {
		l, err := net.Listen("tcp", "[::1]:0")
		if err != nil {
			t.Skip("this machine has no IPv6:", err)
		}
		all.addresses[i] = l.Addr().String()
		_ = l.Close()
	}
	one, two := newTable(), newTable()
	one.open(0, 10, false)
	all.start(0, one, nil)
	node, _ := all.start(1, two, nil)
	<-node.Joined()
	if two.len() != 10 {
		t.Errorf("the node has %d connections of 10", two.len())
	}
}

// TestEight checks that eight nodes that start at once exchange the connections of all.
func TestEight(t *testing.T) {
	t.Parallel()
	const many = 8
	all := newNodes(t, many)
	var tables [many]*table
	for i := range tables {
		tables[i] = newTable()
		tables[i].open(100*i, 100*(i+1), false)
		all.start(i, tables[i], nil)
	}
	for i, f := range tables {
		eventually(t, fmt.Sprintf("node %d does not get all connections", i), func() bool { return f.len() == 100*many })
	}
}

// TestVersionsOverTheWire checks that a node whose build is one version of the protocol older or
// newer is greeted, and that one further away is refused with a sentence.
func TestVersionsOverTheWire(t *testing.T) {
	t.Parallel()
	all := newNodes(t, 1)
	first, _ := all.start(0, newTable(), nil)
	<-first.Joined()
	for _, c := range []struct {
		oldest, newest int
		fits           bool
	}{
		{transport.Version, transport.Version + 1, true},
		{transport.Oldest - 1, transport.Oldest, true},
		{transport.Version + 1, transport.Version + 2, false},
		{transport.Oldest - 2, transport.Oldest - 1, false},
	} {
		_, answer := all.connectAsNodeFrom(t, "127.0.0.1",
			fmt.Sprintf(`{"version":%d,"oldest":%d,"node":"evil","self":-1,"boot":"of version %d","seed":"%s","slots":509}`, c.newest, c.oldest, c.newest, transport.Fingerprint(0)))
		want := fmt.Sprintf(
			`node \"evil\" speaks versions %d to %d of the protocol between nodes, and node \"node0\" versions %d to %d: upgrade one version after the other`,
			c.oldest, c.newest, transport.Oldest, transport.Version)
		if refused := strings.Contains(answer, want); refused == c.fits || strings.Contains(answer, `"refused"`) == c.fits {
			t.Errorf("a node of versions %d to %d is answered %s, want a refusal: %t", c.oldest, c.newest, answer, !c.fits)
		}
	}
}
