package loader

import (
	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/bpf"
)

// proxyTail describes the programs of connections with a header of the PROXY protocol.
func proxyTail() tail {
	return tail{
		packets: "PROXY protocol",
		read:    bpf.LoadTcProxy,
		indexes: map[string]uint32{
			programName(false, false): uint32(bpf.TcTailProgramTAIL_PROXY_ETHER),
			programName(true, false):  uint32(bpf.TcTailProgramTAIL_PROXY_LAYER3),
			programName(false, true):  uint32(bpf.TcTailProgramTAIL_PROXY_ETHER_OUT),
			programName(true, true):   uint32(bpf.TcTailProgramTAIL_PROXY_LAYER3OUT),
		},
		make: func(*ebpf.CollectionSpec) (map[string]*ebpf.Map, error) { return map[string]*ebpf.Map{}, nil },
	}
}

// HandleProxy loads the programs that send headers of the PROXY protocol.
func (c *Collection) HandleProxy() error { return c.handle(&c.proxy, proxyTail()) }

// HandlesProxy reports whether the programs that send headers are loaded.
func (c *Collection) HandlesProxy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.proxy.all != nil
}

// RemoveOldProxy removes the programs of an earlier process.
func (c *Collection) RemoveOldProxy() error { return c.removeOld(proxyTail()) }

// HandleProxy makes the sandbox send PROXY headers, for interfaces with or without a link layer.
func (s *Sandbox) HandleProxy(layer3 bool) error { return s.handle(&s.proxy, proxyTail(), layer3) }
