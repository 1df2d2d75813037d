package datapath

import (
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"

	"loxilb/internal/control/compile"
	"loxilb/internal/lb"
	"loxilb/test/dptest"
)

// TestSYNFlood checks that during a flood of challenges a SYN is challenged before its connection
// is looked up, also if it is a retransmission of an unknown client. Otherwise it belongs to the
// connection.
func TestSYNFlood(t *testing.T) {
	t.Parallel()
	o := newOpener(t, "10.0.0.1:80/tcp endpoints=192.0.2.1:8080")
	o.open(0)
	o.challengeAlways()
	o.open(0)
	if n := challenged(t, o.d); n != 0 {
		t.Fatalf("%d challenges of a SYN that has a connection", n)
	}
	// other work of the machine may split each burst in two
	for burst := range 50 {
		for i := range 200 {
			o.open(1 + 200*burst + i)
		}
		before := challenged(t, o.d)
		o.open(0)
		if challenged(t, o.d) == before+1 {
			return
		}
	}
	t.Error("among many challenges the SYN of a connection is looked up")
}

// TestSYNFloodAtXDP checks the answer to a challenge that XDP has sent to a SYN of a connection
// during a flood: the program at the tc hook must not treat it as a packet of the connection.
func TestSYNFloodAtXDP(t *testing.T) {
	t.Parallel()
	o := newOpener(t, "10.0.0.1:80/tcp endpoints=192.0.2.1:8080")
	syn := func(sport uint16) []byte {
		frame := dptest.TCPFrame(netip.MustParseAddr("198.51.100.1"), o.service.VIP, sport, o.service.Port)
		frame[14+3], frame[14+20+13] = 40, 0x02
		return frame[:14+40]
	}
	const sport = 4000
	if _, err := program(t, o.d).Run(&ebpf.RunOptions{Data: syn(sport)}); err != nil {
		t.Fatal(err)
	}
	o.challengeAlways()
	if err := o.d.SetXDP(XDPInterface{Index: 1, Name: "lo", Target: true}); err != nil {
		t.Fatal(err)
	}
	xdp, err := o.d.XDP.Program()
	if err != nil {
		t.Fatal(err)
	}
	const redirect = 4
	send := func(sport uint16) (uint32, []byte) {
		t.Helper()
		opts := ebpf.RunOptions{Data: syn(sport), DataOut: make([]byte, 256)}
		verdict, err := xdp.Run(&opts)
		if err != nil {
			t.Fatal(err)
		}
		return verdict, opts.DataOut
	}
	if verdict, _ := send(sport); verdict == redirect {
		t.Fatal("the SYN of a connection is challenged")
	}
	for range 50 { // as above
		for i := range uint16(200) {
			send(5000 + i)
		}
		verdict, challenge := send(sport)
		if verdict != redirect {
			continue
		}
		reset := syn(sport)
		reset[14+20+13] = 0x04
		copy(reset[14+20+4:14+20+8], challenge[14+20+8:])
		if _, err := program(t, o.d).Run(&ebpf.RunOptions{Data: reset}); err != nil {
			t.Fatal(err)
		}
		if _, answered, err := o.d.Challenges(); err != nil || answered != 1 {
			t.Errorf("%d answers to challenges are counted, want 1 (%v)", answered, err)
		}
		return
	}
	t.Error("among many challenges XDP looks up the SYN of a connection")
}

// challengeAlways makes the service challenge all unknown clients.
func (o *opener) challengeAlways() {
	o.t.Helper()
	o.service.SynProtect = lb.SynProtectAlways
	table := compile.Service(o.service, nil, 0, nil)
	if err := o.d.Apply([]Change{{Key: table.Key, Table: &table}})[0]; err != nil {
		o.t.Fatal(err)
	}
}

// challenged returns the number of challenges sent.
func challenged(t *testing.T, d *Datapath) uint64 {
	t.Helper()
	sent, _, err := d.Challenges()
	if err != nil {
		t.Fatal(err)
	}
	return sent
}
