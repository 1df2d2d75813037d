package tables

import (
	"fmt"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/rows"
)

// countService updates what packets know about services before they look one up: by is 1 for an
// added service, -1 for a removed one.
func (t *Tables) countService(key bpf.TcServiceKey, by int) error {
	v := t.count(key, by)
	if key.Ranged() || key.Mark != 0 {
		if err := t.writeCounts(); err != nil {
			return err
		}
	}
	if v.Services == 0 {
		if err := rows.Delete(t.maps.Vips, key.Vip); err != nil {
			return fmt.Errorf("delete VIP: %w", err)
		}
		return nil
	}
	if err := t.maps.Vips.Put(key.Vip, v); err != nil {
		return fmt.Errorf("write VIP: %w", full(err))
	}
	return nil
}

// count updates the sums, and returns those of the VIP.
func (t *Tables) count(key bpf.TcServiceKey, by int) bpf.TcVip {
	v := t.vips[key.Vip]
	n := uint32(by) // wraps for -1: subtracts
	v.Services += n
	if key.Ranged() {
		v.Ranges += n
		t.counts.ranged += n
	}
	if key.Mark != 0 {
		t.counts.marked += n
	}
	t.vips[key.Vip] = v
	if v.Services == 0 {
		delete(t.vips, key.Vip)
	}
	return v
}

// countHost counts the services of every local address.
func (t *Tables) countHost(key bpf.TcServiceKey, by int) error {
	if !key.Vip.Netip().IsUnspecified() {
		return nil
	}
	t.counts.hosts += uint32(by) // wraps for -1: subtracts
	return t.writeCounts()
}

// writeCounts writes the programs' counts of rare services.
func (t *Tables) writeCounts() error {
	for _, set := range t.countSets {
		if err := t.counts.write(set); err != nil {
			return err
		}
	}
	return nil
}

func (c counts) write(set map[string]*ebpf.Variable) error {
	for name, n := range map[string]uint32{"range_services": c.ranged, "marked_services": c.marked, "host_services": c.hosts} {
		if err := set[name].Set(n); err != nil {
			return fmt.Errorf("count services (%s): %w", name, err)
		}
	}
	return nil
}

// AddCounts makes another object's variables range_services, marked_services and host_services
// follow from now on.
func (t *Tables) AddCounts(set map[string]*ebpf.Variable) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.counts.write(set); err != nil {
		return err
	}
	t.countSets = append(t.countSets, set)
	return nil
}

// adoptVIPs mends the counts that an earlier process did not get to.
func (t *Tables) adoptVIPs() error {
	have, err := rows.Read[bpf.TcIpAddr, bpf.TcVip](t.maps.Vips)
	if err != nil {
		return fmt.Errorf("read VIPs: %w", err)
	}
	if _, err := rows.Sync(t.maps.Vips, have, t.vips); err != nil {
		return fmt.Errorf("write VIPs: %w", err)
	}
	return nil
}
