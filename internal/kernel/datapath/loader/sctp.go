package loader

import (
	"errors"
	"fmt"
	"maps"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/bpf"
)

// SCTP packets have programs of their own, to which the other programs hand them over by a tail
// call. They are loaded when the first service has SCTP, so nobody else pays for them
// (docs/adr/0093-sctp.md).

// sctpPlaces has the places of SCTP's programs in the map sctp_programs, by the name of the program
// that hands packets over.
func sctpPlaces() map[string]uint32 {
	return map[string]uint32{
		programName(false, false): uint32(bpf.TcSctpProgramSCTP_ETHER),
		programName(true, false):  uint32(bpf.TcSctpProgramSCTP_LAYER3),
		programName(false, true):  uint32(bpf.TcSctpProgramSCTP_ETHER_OUT),
		programName(true, true):   uint32(bpf.TcSctpProgramSCTP_LAYER3OUT),
	}
}

// sctpTwins loads SCTP's programs over the maps of a collection or a sandbox. The zero value has
// none. The owner's lock protects it.
type sctpTwins struct {
	all map[string]*ebpf.Map // those of the other programs, and the table of CRC32c; nil: none are wanted
	crc *ebpf.Map
}

// open makes the maps that only these programs have.
func (s *sctpTwins) open(all map[string]*ebpf.Map) error {
	spec, err := bpf.LoadTcSCTP()
	if err != nil {
		return fmt.Errorf("read the object of SCTP's programs: %w", err)
	}
	const crcs = "sctp_crcs"
	m, err := ebpf.NewMap(spec.Maps[crcs])
	if err != nil {
		return fmt.Errorf("make the table of CRC32c: %w", err)
	}
	if err := m.Put(uint32(0), newCRCTable()); err != nil {
		return errors.Join(fmt.Errorf("write the table of CRC32c: %w", err), m.Close())
	}
	s.crc, s.all = m, maps.Clone(all)
	s.all[crcs] = m
	return nil
}

// put loads the program to which another one hands SCTP packets over, and hands them over from now
// on. The kernel keeps it in the map.
func (s *sctpTwins) put(name string) error {
	if s.all == nil {
		return nil
	}
	p, err := s.load(name)
	if err != nil {
		return err
	}
	defer p.Close()
	if err := s.all["sctp_programs"].Put(sctpPlaces()[name], p); err != nil {
		return fmt.Errorf("hand SCTP packets over: %w", err)
	}
	return nil
}

func (s *sctpTwins) load(name string) (*ebpf.Program, error) {
	spec, err := bpf.LoadTcSCTP()
	if err != nil {
		return nil, fmt.Errorf("read the object of SCTP's programs: %w", err)
	}
	ShareMaps(spec, s.all)
	p, err := LoadProgram(spec, s.all, name)
	if err != nil {
		return nil, fmt.Errorf("this kernel refuses the programs of SCTP packets: %w", err)
	}
	return p, nil
}

func (s *sctpTwins) close() error { return s.crc.Close() }

// HandleSCTP loads SCTP's programs for those that are loaded, and later for each further one. It
// may be retried, and costs nothing once it has succeeded.
func (c *Collection) HandleSCTP() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sctp.all != nil {
		return nil
	}
	if err := c.sctp.open(c.all); err != nil {
		return err
	}
	for name := range c.programs {
		if err := c.sctp.put(name); err != nil {
			err = errors.Join(err, c.sctp.close())
			c.sctp = sctpTwins{}
			return err
		}
	}
	return nil
}

// HandlesSCTP reports whether SCTP packets are balanced.
func (c *Collection) HandlesSCTP() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sctp.all != nil
}

// LeaveSCTP leaves SCTP packets to the kernel: an earlier process may have handled them.
func (c *Collection) LeaveSCTP() error {
	for _, place := range sctpPlaces() {
		if err := c.Maps.SctpPrograms.Delete(place); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("leave SCTP packets to the kernel: %w", err)
		}
	}
	return nil
}

// HandleSCTP loads the program of SCTP packets for interfaces with, or without (layer3), a
// link-layer header. It costs nothing once it has succeeded.
func (s *Sandbox) HandleSCTP(layer3 bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sctp.all == nil {
		if err := s.sctp.open(s.all); err != nil {
			return err
		}
		s.handed = map[string]bool{}
	}
	name := programName(layer3, false)
	if s.handed[name] {
		return nil
	}
	if err := s.sctp.put(name); err != nil {
		return err
	}
	s.handed[name] = true
	return nil
}
