package loader

import (
	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/bpf"
)

// sctpTail describes the programs of SCTP packets.
func sctpTail() tail {
	return tail{
		packets: "SCTP",
		read:    bpf.LoadTcSCTP,
		indexes: map[string]uint32{
			programName(false, false): uint32(bpf.TcTailProgramTAIL_SCTP_ETHER),
			programName(true, false):  uint32(bpf.TcTailProgramTAIL_SCTP_LAYER3),
			programName(false, true):  uint32(bpf.TcTailProgramTAIL_SCTP_ETHER_OUT),
			programName(true, true):   uint32(bpf.TcTailProgramTAIL_SCTP_LAYER3OUT),
		},
		make: func(spec *ebpf.CollectionSpec) (map[string]*ebpf.Map, error) {
			const crcs = "sctp_crcs"
			m, err := filledArray(spec.Maps[crcs], newCRCTable())
			return map[string]*ebpf.Map{crcs: m}, err
		},
	}
}

// HandleSCTP loads the programs that balance SCTP packets.
func (c *Collection) HandleSCTP() error { return c.handle(&c.sctp, sctpTail()) }

// HandlesSCTP reports whether SCTP packets are balanced.
func (c *Collection) HandlesSCTP() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sctp.all != nil
}

// RemoveOldSCTP leaves SCTP packets to the kernel: an earlier process may have handled them.
func (c *Collection) RemoveOldSCTP() error { return c.removeOld(sctpTail()) }

// HandleSCTP makes the sandbox balance SCTP packets, for interfaces with or without a link layer.
func (s *Sandbox) HandleSCTP(layer3 bool) error { return s.handle(&s.sctp, sctpTail(), layer3) }
