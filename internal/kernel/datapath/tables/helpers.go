package tables

import (
	"fmt"
	"slices"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb"
)

// opensConnections reports whether endpoints of a service with these flags open connections.
func opensConnections(flags uint16) bool { return flags&(serviceEgress|serviceHelpers) != 0 }

// putHelpers makes the packet path expect related connections of a service if these flags have a
// helper. order are its endpoints.
func (t *Tables) putHelpers(s *service, flags uint16, order []*endpoint, undo *undoLog) error {
	was, is := t.helperOf[s], flags&serviceHelpers
	if was == 0 && is == 0 {
		return nil
	}
	undo.add(func() error {
		t.setHelper(s, was)
		return t.writeHelpers(nil, nil)
	})
	t.setHelper(s, is)
	return t.writeHelpers(s, order)
}

// dropHelpers removes the helpers of a deleted service.
func (t *Tables) dropHelpers(s *service) error {
	if t.helperOf[s] == 0 {
		return nil
	}
	t.setHelper(s, 0)
	return t.writeHelpers(nil, nil)
}

// setHelper records which helper a service has, or 0.
func (t *Tables) setHelper(s *service, helper uint16) {
	if helper != 0 {
		t.helperOf[s] = helper
	} else {
		delete(t.helperOf, s)
	}
}

// writeHelpers writes the ports of helpers for the packet path. order are the endpoints that
// service s is about to have, if it is not nil.
func (t *Tables) writeHelpers(s *service, order []*endpoint) error {
	if err := t.writeTFTPPorts(s, order); err != nil {
		return err
	}
	var services uint32
	for _, helper := range t.helperOf {
		if helper == serviceFTP {
			services++
		}
	}
	if services != t.ftpServices {
		if err := t.vars.FtpServices.Set(services); err != nil {
			return fmt.Errorf("write the number of FTP services: %w", err)
		}
		t.ftpServices = services
	}
	return t.countEgress()
}

// writeTFTPPorts writes the ports of TFTP servers: of the endpoints of services with that helper,
// and of replaced ones, which may still answer, as far as there is room.
func (t *Tables) writeTFTPPorts(s *service, order []*endpoint) error {
	var ports, former []uint16
	add := func(to *[]uint16, e *endpoint) {
		if !slices.Contains(*to, e.port) {
			*to = append(*to, e.port)
		}
	}
	for one, helper := range t.helperOf {
		if helper != serviceTFTP {
			continue
		}
		current := one.order
		if one == s {
			current = order
		}
		for _, e := range current {
			add(&ports, e)
		}
		for _, e := range one.order {
			add(&former, e)
		}
		for _, e := range one.ending {
			add(&former, e)
		}
	}
	if len(ports) > tftpPorts {
		return fmt.Errorf("endpoints of all services with helper tftp have %d different ports: %d are allowed", len(ports), tftpPorts)
	}
	slices.Sort(former)
	for _, p := range former {
		if len(ports) < tftpPorts && !slices.Contains(ports, p) {
			ports = append(ports, p)
		}
	}
	slices.Sort(ports)
	var word uint32
	for i, p := range ports {
		word |= uint32(p) << (16 * i)
	}
	if word != t.tftpPorts {
		if err := t.vars.TftpPorts.Set(word); err != nil {
			return fmt.Errorf("write ports of TFTP servers: %w", err)
		}
		t.tftpPorts = word
	}
	return nil
}

const tftpPorts = int(bpf.TcHelperLimitTFTP_PORTS)

// A commit refuses more ports than the data path has room for: the two limits must be equal.
var _ [tftpPorts]struct{} = [lb.MaxTFTPPorts]struct{}{}

// adoptHelpers restores the helpers of services that an earlier process applied.
func (t *Tables) adoptHelpers() error {
	for _, s := range t.services {
		t.setHelper(s, s.row.Flags&serviceHelpers)
	}
	return t.writeHelpers(nil, nil)
}
