package connections

import (
	"net/netip"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb"
)

// Tracked is one direction of a connection, and where TCP is in it.
type Tracked struct {
	lb.Connection
	Seq, Ack uint32 // of the next segment
}

// Lookup finds the connection of packets from one end to the other, whether or not it is past its
// time.
func (t *Table) Lookup(protocol lb.Protocol, from, to netip.AddrPort) (*Tracked, error) {
	key := bpf.TcConnectionKey{
		Saddr: bpf.Addr(from.Addr()), Daddr: bpf.Addr(to.Addr()), Sport: bpf.Port(from.Port()), Dport: bpf.Port(to.Port()), Protocol: uint8(protocol),
	}
	row, there, err := t.shared.Conntrack.Lookup(key)
	if err != nil || !there {
		return nil, err
	}
	c, ok := t.connection(key, row)
	if !ok {
		return nil, nil
	}
	found := &Tracked{Connection: c, Seq: row.SeqEnd, Ack: row.Ack}
	other, there, err := t.shared.Conntrack.Lookup(bpf.TcConnectionKey{Saddr: row.Daddr, Daddr: row.Saddr, Sport: row.Dport, Dport: row.Sport, Protocol: key.Protocol})
	if there {
		found.Ack = other.SeqEnd
	}
	return found, err
}
