package attach

import (
	"testing"

	"github.com/cilium/ebpf"

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

// Write makes the maps equal to the flows.
func (g *GTP) Write(flows []GTPFlow) error { return g.write(flows) }

// Uplink returns the program of interfaces with Ethernet headers.
func (g *GTP) Uplink() *ebpf.Program { return g.objects.LoxilbGtpEther }
