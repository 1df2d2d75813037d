package cluster

import (
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"loxilb/internal/cluster/transport"
)

// TestPackedPeers checks that a node of a build that knows no packed records gets and sends others,
// while those of this build exchange packed ones.
func TestPackedPeers(t *testing.T) {
	t.Parallel()
	all := newNodes(t, 3)
	tables := []*table{newTable(), newTable(), newTable()}
	tables[0].open(0, 1000, false)
	for i, f := range tables {
		all.start(i, f, func(c *Config) {
			c.features = transport.Features()
			if i == 1 {
				c.features = []transport.Feature{transport.FeatureState, transport.FeatureSCTP}
			}
		})
	}
	tables[1].open(1000, 1100, false)
	tables[2].open(1100, 1200, false)
	for i, f := range tables {
		eventually(t, fmt.Sprintf("node %d does not get all connections", i), func() bool { return f.len() == 1200 })
	}
	for _, packed := range []bool{false, true} {
		if got := kindOfRecords(t, all, packed); got != map[bool]byte{false: 3, true: 9}[packed] {
			t.Errorf("a node that understands packed records (%v) gets frames of kind %d", packed, got)
		}
	}
}

// listenAs has a node that begins now connect to a further one, which answers with a welcome.
func (n *nodes) listenAs(t *testing.T, welcome string) *tls.Conn {
	t.Helper()
	credentials, err := transport.KeyFile(n.key, "evil")
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	f := newTable()
	f.open(0, 10, false)
	more := &nodes{t: t, key: n.key, addresses: []string{freeAddress(t), l.Addr().String()}}
	more.start(0, f, nil)
	plain, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c := tls.Server(plain, credentials.Config())
	t.Cleanup(func() { _ = c.Close() })
	head := make([]byte, 4)
	if _, err := io.ReadFull(c, head); err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(io.Discard, c, int64(binary.BigEndian.Uint32(head)&0xffffff)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write(append(binary.BigEndian.AppendUint32(nil, 2<<24|uint32(len(welcome))), welcome...)); err != nil {
		t.Fatal(err)
	}
	return c
}

// kindOfRecords listens as a further node, and returns the kind of the first records that it gets.
func kindOfRecords(t *testing.T, all *nodes, packed bool) byte {
	t.Helper()
	features := `["state","sctp"]`
	if packed {
		features = `["state","sctp","packed"]`
	}
	greeting := fmt.Sprintf(`{"hello":{"version":2,"oldest":1,"node":"evil","self":-1,"boot":"x","seed":%q,"slots":509,"features":%s}}`, transport.Fingerprint(0), features)
	c := all.listenAs(t, greeting)
	head := make([]byte, 4)
	_ = c.SetReadDeadline(time.Now().Add(testTimeout))
	for {
		if _, err := io.ReadFull(c, head); err != nil {
			t.Fatal(err)
		}
		if _, err := io.CopyN(io.Discard, c, int64(binary.BigEndian.Uint32(head)&0xffffff)); err != nil {
			t.Fatal(err)
		}
		if head[0] == 3 || head[0] == 9 {
			return head[0]
		}
	}
}
