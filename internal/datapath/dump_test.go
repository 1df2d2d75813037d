package datapath

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"loxilb/internal/datapath/bpf"
)

// dump writes what packets find in the maps as text, in an order that does not depend on ids: services with their
// endpoints slot by slot, VIPs, and endpoint rows that no slot leads to, those with a weight of 0 or ending.
func dump(t testing.TB, d *Datapath) string {
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
			if e.Flags != endpointInUse || e.Service != row.Id {
				fmt.Fprintf(&b, "(flags=%d service=%d, not %d)", e.Flags, e.Service, row.Id)
			}
		}
		lines = append(lines, b.String())
	}
	keys := map[uint32]string{}
	for key, row := range r.services {
		keys[row.Id] = key.String()
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

// rows are the maps as they are.
type rows struct {
	services  map[bpf.TcServiceKey]bpf.TcService
	endpoints map[uint32]bpf.TcEndpoint // in use
	vips      map[bpf.TcIpAddr]bpf.TcVip
	idle      []uint32
	slots     [][]uint32
}

func readMaps(t testing.TB, d *Datapath) rows {
	t.Helper()
	r := rows{
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
	check(eachBatch(d.obj.Services, everything, func(keys []bpf.TcServiceKey, rows []bpf.TcService) {
		for i, k := range keys {
			r.services[k] = rows[i]
		}
	}))
	check(eachBatch(d.obj.Endpoints, int(d.tables.endpointIDs.top), func(ids []uint32, rows []bpf.TcEndpoint) {
		for i, id := range ids {
			if rows[i].Flags != 0 {
				r.endpoints[id] = rows[i]
			}
		}
	}))
	check(eachBatch(d.obj.Vips, everything, func(keys []bpf.TcIpAddr, n []bpf.TcVip) {
		for i, k := range keys {
			r.vips[k] = n[i]
		}
	}))
	check(eachBatch(d.obj.IdleTimeouts, int(d.tables.serviceIDs.top), func(_, idle []uint32) { r.idle = append(r.idle, idle...) }))
	for _, m := range d.tables.slots.maps {
		var all []uint32
		check(eachBatch(m, slotsPerSegment, func(_, ids []uint32) { all = append(all, ids...) }))
		r.slots = append(r.slots, all)
	}
	return r
}
