package dryrun

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/rows"
)

// copyExpectations copies the data connections of FTP that the packet may open: ftp_find_service()
// of bpf/helper/ftp_data.h.
func (d *replica) copyExpectations(key bpf.TcConnectionKey) error {
	for _, e := range []bpf.TcExpectationKey{
		{Client: key.Saddr, Server: key.Daddr, Port: key.Dport, Kind: uint8(bpf.TcExpectationKindEXPECT_PASSIVE)},
		{Client: key.Daddr, Server: key.Saddr, Port: key.Dport, Kind: uint8(bpf.TcExpectationKindEXPECT_ACTIVE)},
	} {
		if err := d.copyExpectation(e); err != nil {
			return fmt.Errorf("copy an expected connection of FTP: %w", err)
		}
	}
	return nil
}

// copyExpectation copies a row, or deletes that of an earlier dry run.
func (d *replica) copyExpectation(key bpf.TcExpectationKey) error {
	var row bpf.TcExpectation
	err := d.live.Maps.Fragments.Lookup(key, &row)
	if err == nil {
		return d.Maps.Fragments.Put(key, row)
	}
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return rows.Delete(d.Maps.Fragments, key)
	}
	return err
}
