package tables

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/rows"
)

// dump writes the packets' view of the maps as text, in an order that does not depend on ids:
// services with their endpoints slot by slot, VIPs, and endpoint rows without a slot, which have
// weight 0 or are ending.
func dump(t testing.TB, d *testTables) string {
	t.Helper()
	r := readMaps(t, d)
	var lines []string
	for key, row := range r.services {
		var b strings.Builder
		fmt.Fprintf(&b, "service %s idle=%d slots", key, r.idle[row.Id])
		for i := range row.SlotCount {
			id := r.slots[row.SlotSegment][uint32(row.SlotOffset)+i]
			e := r.endpoints[id]
			fmt.Fprintf(&b, " %s", bpf.AddrPort(e.Addr, e.Port))
			if e.Flags&^endpointShift != endpointInUse || e.Service != row.Id {
				fmt.Fprintf(&b, "(flags=%d service=%d, not %d)", e.Flags, e.Service, row.Id)
			}
		}
		lines = append(lines, b.String())
	}
	keys := map[uint32]string{}
	for key, row := range r.services {
		if row.Flags&serviceSecondary == 0 {
			keys[row.Id] = key.String()
		}
	}
	for _, e := range r.endpoints {
		of := keys[e.Service]
		if of == "" {
			of = "deleted"
		}
		lines = append(lines, fmt.Sprintf("endpoint %s of %s flags=%d", bpf.AddrPort(e.Addr, e.Port), of, e.Flags))
	}
	for vip, n := range r.vips {
		lines = append(lines, fmt.Sprintf("vip %s services=%d ranges=%d", vip.Netip(), n.Services, n.Ranges))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// mapRows holds the contents of the maps.
type mapRows struct {
	services  map[bpf.TcServiceKey]bpf.TcService
	endpoints map[uint32]bpf.TcEndpoint // those in use
	vips      map[bpf.TcIpAddr]bpf.TcVip
	idle      []uint32
	slots     [][]uint32
}

func readMaps(t testing.TB, d *testTables) mapRows {
	t.Helper()
	r := mapRows{
		services:  map[bpf.TcServiceKey]bpf.TcService{},
		endpoints: map[uint32]bpf.TcEndpoint{},
		vips:      map[bpf.TcIpAddr]bpf.TcVip{},
	}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(rows.EachBatch(d.c.Maps.Services, rows.All, func(keys []bpf.TcServiceKey, list []bpf.TcService) {
		for i, k := range keys {
			r.services[k] = list[i]
		}
	}))
	check(rows.EachOf(d.c.Endpoints, int(d.endpointIDs.Top()), func(ids []uint32, list []bpf.TcEndpoint) {
		for i, id := range ids {
			if list[i].Flags != 0 {
				r.endpoints[id] = list[i]
			}
		}
	}))
	check(rows.EachBatch(d.c.Maps.Vips, rows.All, func(keys []bpf.TcIpAddr, n []bpf.TcVip) {
		for i, k := range keys {
			r.vips[k] = n[i]
		}
	}))
	check(rows.EachBatch(d.c.Maps.IdleTimeouts, int(d.serviceIDs.Top()), func(_, idle []uint32) { r.idle = append(r.idle, idle...) }))
	for _, m := range d.c.Slots.Segments() {
		var all []uint32
		check(rows.EachBatch(m, rows.All, func(_ []uint32, blocks []bpf.TcSlotBlock) {
			for _, b := range blocks {
				all = append(all, b.Endpoints[:]...)
			}
		}))
		r.slots = append(r.slots, all)
	}
	return r
}
