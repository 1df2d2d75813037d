package loader

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/bpf"
)

// quicTail describes the programs that choose the endpoints of QUIC connections. They run at
// ingress only.
func quicTail() tail {
	return tail{
		packets: "QUIC",
		read:    bpf.LoadTcQUIC,
		indexes: map[string]uint32{
			programName(false, false): uint32(bpf.TcTailProgramTAIL_QUIC_ETHER),
			programName(true, false):  uint32(bpf.TcTailProgramTAIL_QUIC_LAYER3),
		},
		make: func(spec *ebpf.CollectionSpec) (map[string]*ebpf.Map, error) {
			const tables, scratches = "quic_aes_tables", "quic_scratches"
			aes, err := filledArray(spec.Maps[tables], bpf.AESTables())
			if err != nil {
				return nil, err
			}
			scratch, err := ebpf.NewMap(spec.Maps[scratches])
			if err != nil {
				return nil, errors.Join(fmt.Errorf("make the map %s: %w", scratches, err), aes.Close())
			}
			return map[string]*ebpf.Map{tables: aes, scratches: scratch}, nil
		},
	}
}

// HandleQUIC loads the programs that read QUIC connection IDs.
func (c *Collection) HandleQUIC() error { return c.handle(&c.quic, quicTail()) }

// HandlesQUIC reports whether connection IDs of QUIC are read.
func (c *Collection) HandlesQUIC() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.quic.all != nil
}

// RemoveOldQUIC removes the programs of an earlier process.
func (c *Collection) RemoveOldQUIC() error { return c.removeOld(quicTail()) }

// HandleQUIC makes the sandbox read connection IDs, for interfaces with or without a link layer.
func (s *Sandbox) HandleQUIC(layer3 bool) error { return s.handle(&s.quic, quicTail(), layer3) }
