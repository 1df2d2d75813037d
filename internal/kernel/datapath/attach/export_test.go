package attach

import (
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/loader"
)

// Ether returns the program for interfaces with Ethernet headers.
func (d *Decap) Ether() *ebpf.Program { return d.obj.LoxilbDecapEther }

// NewGTPForTest loads the programs of GTP-U, and attaches none.
func NewGTPForTest(t testing.TB) *GTP {
	t.Helper()
	g := &GTP{shared: &loader.Collection{}, at: map[int]Place{}}
	if err := g.load(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.objects.Close() })
	return g
}

// Write makes the maps equal to the flows and services.
func (g *GTP) Write(flows []GTPFlow, vips ...netip.Addr) error {
	g.flows, g.vips = flows, nil
	for _, a := range vips {
		g.vips = append(g.vips, bpf.GtpIpAddr(bpf.Addr(a)))
	}
	return g.write()
}

// Uplink returns the program of interfaces with Ethernet headers.
func (g *GTP) Uplink() *ebpf.Program { return g.objects.LoxilbGtpEther }

// Downlink returns the program of packets to users.
func (g *GTP) Downlink() *ebpf.Program { return g.objects.LoxilbGtpSend }
