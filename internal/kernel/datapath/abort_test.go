package datapath

import (
	"fmt"
	"testing"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/connections"
	"loxilb/internal/kernel/datapath/testrun"
	"loxilb/internal/pkt"
	"loxilb/test/dptest"
)

// TestAbortTags checks that an association with one known tag ends for both sides: an ABORT in a
// direction whose tag is unknown has the tag of the other direction, and flag T (RFC 9260 section
// 8.5.1).
func TestAbortTags(t *testing.T) {
	t.Parallel()
	const client, vip, endpoint = "198.51.100.1:40000", "10.0.0.1:2020", "192.0.2.1:5001"
	toEndpoint, toClient := client+" > "+vip, endpoint+" > "+client
	for _, one := range []struct {
		name string
		tags [2]uint32 // of packets to the endpoint and to the client
		want [2]string // the ABORTs to them; "": none
	}{
		{"both", [2]uint32{222, 111}, [2]string{"tag 222 chunks abort", "tag 111 chunks abort"}},
		{"the client's is unknown", [2]uint32{0, 111}, [2]string{"tag 111 chunks abort+t", "tag 111 chunks abort"}},
		{"the endpoint's is unknown", [2]uint32{222, 0}, [2]string{"tag 222 chunks abort", "tag 222 chunks abort+t"}},
		{"none", [2]uint32{}, [2]string{}},
	} {
		t.Run(one.name, func(t *testing.T) {
			t.Parallel()
			o := newOpener(t, vip+"/sctp endpoints="+endpoint)
			for _, line := range []string{
				toEndpoint + " chunks init=111", toClient + " tag 111 chunks init-ack=222:40",
				toEndpoint + " tag 222 chunks cookie-echo:40", toClient + " tag 111 chunks cookie-ack",
			} {
				o.sctp(line)
			}
			var context testrun.SKB
			err := dptest.ChangeConnections(o.d.collection.Conntrack, func(_ bpf.TcConnectionKey, row *bpf.TcConnection) bool {
				context.CB = [5]uint32{row.Endpoint, uint32(row.Generation) << 24, 0xff << 24}
				row.Ack = one.tags[row.Flags&uint8(bpf.TcConnectionFlagCONN_REPLY_DIRECTION)]
				return true
			})
			if err != nil {
				t.Fatal(err)
			}
			sweep, err := connections.LoadSweep(o.d.collection)
			if err != nil {
				t.Fatal(err)
			}
			defer sweep.Close()
			reset, err := sweep.Program("loxilb_reset")
			if err != nil {
				t.Fatal(err)
			}
			for i, way := range []string{toEndpoint, toClient} {
				frame := o.frame(way + " tag 0 chunks abort")
				run := &ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)), Context: context}
				found, err := reset.Run(run)
				if err != nil {
					t.Fatal(err)
				}
				if one.want[i] == "" {
					if found != 0 {
						t.Errorf("%s: an ABORT without tag is sent", way)
					}
					continue
				}
				const checksum = 14 + 20 + 8
				want := o.frame(way + " " + one.want[i])
				copy(run.DataOut[checksum:checksum+4], want[checksum:])
				if string(run.DataOut) != string(want) {
					t.Errorf("%s: the ABORT is %s, want %s", way, pkt.Decode(run.DataOut), one.want[i])
				}
				for _, sent := range []bool{false, true} {
					if !sent {
						want[14+20+13] ^= 1 // flag T
					}
					context.Mark = 1
					got, err := reset.Run(&ebpf.RunOptions{Data: want, Context: context})
					if err != nil || (got == 1) != sent {
						t.Errorf("%s: the ABORT was sent: %t (%v), want %t", way, got == 1, err, sent)
					}
					want, context.Mark = o.frame(way+" "+one.want[i]), 0
				}
				if i == 0 {
					continue
				}
				o.sctp(way + " " + one.want[i])
				for key, row := range dptest.Connections(t, o.d.collection) {
					if row.Flags&uint8(bpf.TcConnectionFlagCONN_RESET) == 0 {
						t.Errorf("the ABORT has not ended %v", key)
					}
				}
			}
		})
	}
}

// frame builds a packet of SCTP that arrives at lo.
func (o *opener) frame(line string) []byte {
	o.t.Helper()
	p, err := pkt.Parse("sctp " + line)
	if err != nil {
		o.t.Fatal(err)
	}
	frame := p.Build()
	clear(frame[:12])
	return frame
}

// sctp runs the program on an SCTP packet.
func (o *opener) sctp(line string) {
	o.t.Helper()
	if _, err := program(o.t, o.d).Run(&ebpf.RunOptions{Data: o.frame(line)}); err != nil {
		o.t.Fatal(fmt.Errorf("%s: %w", line, err))
	}
}
