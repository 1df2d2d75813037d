// Package dptest has helpers for tests of the data path: pin directories, frames, and rows of the
// connection table.
package dptest

import (
	"encoding/binary"
	"net/netip"
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/conntrack"
	"loxilb/internal/kernel/datapath/loader"
	"loxilb/internal/kernel/datapath/pins"
)

// PinDir returns a directory for the test in the BPF file system. It mounts the file system if
// necessary.
func PinDir(t testing.TB) string {
	t.Helper()
	root, err := pins.Root()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(root, "loxilb-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// TCPFrame returns an ACK of 100 bytes of payload, to the MAC of lo.
func TCPFrame(src, dst netip.Addr, sport, dport uint16) []byte {
	eth := make([]byte, 14)
	var ip []byte
	if src.Is4() {
		binary.BigEndian.PutUint16(eth[12:], 0x0800)
		ip = make([]byte, 20)
		ip[0], ip[8], ip[9] = 0x45, 255, 6
		binary.BigEndian.PutUint16(ip[2:], 140)
		copy(ip[12:], src.AsSlice())
		copy(ip[16:], dst.AsSlice())
	} else {
		binary.BigEndian.PutUint16(eth[12:], 0x86dd)
		ip = make([]byte, 40)
		ip[0], ip[6], ip[7] = 0x60, 6, 255
		binary.BigEndian.PutUint16(ip[4:], 120)
		copy(ip[8:], src.AsSlice())
		copy(ip[24:], dst.AsSlice())
	}
	tcp := make([]byte, 120)
	binary.BigEndian.PutUint16(tcp, sport)
	binary.BigEndian.PutUint16(tcp[2:], dport)
	tcp[12], tcp[13] = 5<<4, 0x10
	return append(append(eth, ip...), tcp...)
}

// Segment returns a TCPFrame with the given flags and numbers.
func Segment(src, dst netip.AddrPort, flags byte, seq, ack uint32) []byte {
	f := TCPFrame(src.Addr(), dst.Addr(), src.Port(), dst.Port())
	tcp := f[len(f)-120:]
	binary.BigEndian.PutUint32(tcp[4:], seq)
	binary.BigEndian.PutUint32(tcp[8:], ack)
	tcp[13] = flags
	return f
}

// Jiffies returns the clock of the packet path.
func Jiffies(t testing.TB) uint32 {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{asm.FnJiffies64.Call(), asm.Return()},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	now, err := p.Run(&ebpf.RunOptions{Data: make([]byte, 64)})
	if err != nil {
		t.Fatal(err)
	}
	return now
}

// UDPFrame returns a datagram of 112 bytes without checksum, to the MAC of lo.
func UDPFrame(src, dst netip.Addr, sport, dport uint16) []byte {
	f := TCPFrame(src, dst, sport, dport)
	f[14+9] = 17
	udp := f[14+20:]
	clear(udp[4:])
	binary.BigEndian.PutUint16(udp[4:], uint16(len(udp)))
	return f
}

// Connections reads the connection table.
func Connections(t testing.TB, c *loader.Collection) map[bpf.TcConnectionKey]bpf.TcConnection {
	t.Helper()
	out := map[bpf.TcConnectionKey]bpf.TcConnection{}
	err := c.Conntrack.Each(t.Context(), func(key bpf.TcConnectionKey, row bpf.TcConnection) bool {
		out[key] = row
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Fill adds n connections to the table: established, last seen at the given time in jiffies.
func Fill(t testing.TB, c *loader.Collection, n int, seen uint32) {
	t.Helper()
	flags := uint8(bpf.TcConnectionFlagCONN_REPLIED | bpf.TcConnectionFlagCONN_ASSURED)
	entries := make([]conntrack.Entry, 0, 2*n)
	client := bpf.TcIpAddr{Word: [4]uint32{0, 0, 0xffff0000, 0}}
	vip, endpoint := client, client
	vip.Word[3], endpoint.Word[3] = 0x01000014, 0x0100001f
	for i := range n {
		client.Word[3] = uint32(0x0a000000 + i>>14)
		port := uint16(i & 0x3fff)
		entries = append(entries,
			conntrack.Entry{
				Key: bpf.TcConnectionKey{Saddr: client, Daddr: vip, Sport: port, Dport: 80, Protocol: 6},
				Row: bpf.TcConnection{Saddr: client, Daddr: endpoint, Sport: port, Dport: 80, Seen: seen, Flags: flags},
			},
			conntrack.Entry{
				Key: bpf.TcConnectionKey{Saddr: endpoint, Daddr: client, Sport: 80, Dport: port, Protocol: 6},
				Row: bpf.TcConnection{
					Saddr: vip, Daddr: client, Sport: 80, Dport: port, Seen: seen,
					Flags: flags | uint8(bpf.TcConnectionFlagCONN_REPLY_DIRECTION),
				},
			})
	}
	if err := c.Conntrack.Fill(entries); err != nil {
		t.Fatal(err)
	}
}
