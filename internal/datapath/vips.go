package datapath

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"loxilb/internal/datapath/bpf"
)

// countService keeps what packets are told of services before they are looked up: by is 1 for one that comes, -1 for
// one that goes.
func (d *Datapath) countService(key bpf.TcServiceKey, by int) error {
	v := d.tables.count(key, by)
	if key.Ranged() || key.Mark != 0 {
		if err := d.tellCounts(); err != nil {
			return err
		}
	}
	if v.Services == 0 {
		if err := d.obj.Vips.Delete(key.Vip); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("delete VIP: %w", err)
		}
		return nil
	}
	if err := d.obj.Vips.Put(key.Vip, v); err != nil {
		return fmt.Errorf("write VIP: %w", err)
	}
	return nil
}

// count does the sums, and returns those of the VIP.
func (t *tables) count(key bpf.TcServiceKey, by int) bpf.TcVip {
	v := t.vips[key.Vip]
	n := uint32(by) // wraps for -1: subtracts
	v.Services += n
	if key.Ranged() {
		v.Ranges += n
		t.ranged += n
	}
	if key.Mark != 0 {
		t.marked += n
	}
	t.vips[key.Vip] = v
	if v.Services == 0 {
		delete(t.vips, key.Vip)
	}
	return v
}

// tellCounts tells the programs whether there is a range or a mark anywhere: while there is none, no packet looks.
func (d *Datapath) tellCounts() error {
	for v, n := range map[*ebpf.Variable]uint32{d.obj.RangeServices: d.tables.ranged, d.obj.MarkedServices: d.tables.marked} {
		if err := v.Set(n); err != nil {
			return fmt.Errorf("count services: %w", err)
		}
	}
	return d.sockets.tell(&d.tables)
}
