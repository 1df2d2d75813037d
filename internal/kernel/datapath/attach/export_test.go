package attach

import "github.com/cilium/ebpf"

// Ether returns the program for interfaces with Ethernet headers.
func (d *Decap) Ether() *ebpf.Program { return d.obj.LoxilbDecapEther }
