package apitest

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"loxilb/internal/api/httpapi"
	"loxilb/internal/lb/netobj"
)

// table has the fake kernel's objects of a kind.
type table[T netobj.Object[T]] struct {
	Objects []T
	Err     error
}

func (k *table[T]) All() (map[string][]T, error) {
	out := map[string][]T{}
	for _, o := range k.Objects {
		out[o.Key()] = append(out[o.Key()], o)
	}
	return out, k.Err
}

func (k *table[T]) Make(o T) error { k.Objects = append(k.Objects, o); return k.Err }

func (k *table[T]) Remove(o T) error {
	for i := range k.Objects {
		if k.Objects[i] == o {
			k.Objects = append(k.Objects[:i], k.Objects[i+1:]...)
			break
		}
	}
	return k.Err
}

type addressTable struct{ table[netobj.Address] }

func (k *addressTable) Observed() (out []netobj.DeviceAddresses, err error) {
	for _, a := range k.Objects {
		out = append(out, netobj.DeviceAddresses{Dev: a.Dev, Addresses: []netip.Prefix{a.Prefix}})
	}
	return out, k.Err
}

type routeTable struct {
	table[netobj.Route]
	Tos map[netobj.Route]uint8
}

func (k *routeTable) EachObserved(yield func(*netobj.ObservedRoute) bool) error {
	if k.Err != nil {
		return k.Err
	}
	for _, r := range k.Objects {
		if !yield(&netobj.ObservedRoute{Route: r, Dev: "eth0", TOS: k.Tos[r]}) {
			break
		}
	}
	return nil
}

type neighborTable struct {
	table[netobj.Neighbor]
	Learned   []netobj.Neighbor
	Answering []netobj.Neighbor
}

func (k *neighborTable) Confirmed() ([]netobj.Neighbor, error) { return k.Answering, k.Err }

func (k *neighborTable) Observed() ([]netobj.Neighbor, error) {
	return append(k.Objects, k.Learned...), k.Err
}

func (k *neighborTable) Remove(o netobj.Neighbor) error {
	k.Learned = nil
	return k.table.Remove(o)
}

type fdbTable struct{ table[netobj.FDB] }

func (k *fdbTable) Observed() ([]netobj.FDB, error) { return k.Objects, k.Err }

type vlanTable struct {
	table[netobj.VLAN]
	Members *table[netobj.VLANMember]
}

func (k *vlanTable) Observed() (out []netobj.ObservedVLAN, err error) {
	for _, v := range k.Objects {
		out = append(out, netobj.ObservedVLAN{ID: v.ID, Dev: v.Device(), Members: k.Members.Objects, In: netobj.Traffic{Bytes: 1, Packets: 2}, Out: netobj.Traffic{Bytes: 3, Packets: 4}})
	}
	return out, k.Err
}

type vxlanTable struct {
	table[netobj.VXLAN]
	Peers *table[netobj.VXLANPeer]
}

func (k *vxlanTable) Observed() (out []netobj.ObservedVXLAN, err error) {
	for _, v := range k.Objects {
		seen := netobj.ObservedVXLAN{ID: v.ID, Name: v.Device(), Real: v.Dev}
		for _, p := range k.Peers.Objects {
			seen.Peers = append(seen.Peers, p.Peer)
		}
		out = append(out, seen)
	}
	return out, k.Err
}

// devices are lo, eth0, a VLAN and a tunnel.
type devices struct{}

func (devices) HasDevice(name string) (bool, error) {
	return slices.Contains([]string{"lo", "eth0", "vlan100", "vxlan78"}, name), nil
}

func (devices) Ports() ([]netobj.Port, error) {
	return []netobj.Port{{
		Index: 2, Name: "eth0", MAC: []byte{2, 0, 0, 0, 0, 9}, MTU: 1500, Up: true, Carrier: true, Type: netobj.PortReal | netobj.PortVLANMember,
		Master: "vlan100", VLAN: 100, Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/24"), netip.MustParsePrefix("2001:db8::1/64")},
		Rx: netobj.Traffic{Bytes: 1, Packets: 2, Errors: 3}, Tx: netobj.Traffic{Bytes: 4, Packets: 5, Errors: 6},
	}}, nil
}

// NetBench is a Bench with a fake network of the kernel.
type NetBench struct {
	*Bench
	Addresses *addressTable
	Routes    *routeTable
	Neighbors *neighborTable
	Fdbs      *fdbTable
	Vlans     *vlanTable
	Vxlans    *vxlanTable
	Created   bool // loxilb has created the existing objects
}

// NewNet runs the API with a network in memory.
func NewNet(t testing.TB) *NetBench {
	t.Helper()
	b := &NetBench{
		Addresses: &addressTable{}, Routes: &routeTable{}, Neighbors: &neighborTable{}, Fdbs: &fdbTable{},
		Vlans: &vlanTable{Members: &table[netobj.VLANMember]{}}, Vxlans: &vxlanTable{Peers: &table[netobj.VXLANPeer]{}},
	}
	b.Bench = New(t, func(o *httpapi.Options) {
		o.Network = &netobj.Network{
			Devices: devices{}, Addresses: b.Addresses, Routes: b.Routes, Neighbors: b.Neighbors, FDBs: b.Fdbs,
			VLANs: b.Vlans, Members: b.Vlans.Members, VXLANs: b.Vxlans, Peers: b.Vxlans.Peers,
			Created: func(string, string) bool { return b.Created },
		}
		o.XDP = func() map[string]string { return map[string]string{"eth0": "native"} }
	})
	return b
}

// Answer is an HTTP status code and its message.
func (b *NetBench) Answer(method, path, body string) string {
	b.T.Helper()
	w := b.Call(method, httpapi.BaseURL+path, body)
	text := strings.TrimSpace(w.Body.String())
	if w.Code != 200 {
		text = ProblemOf(b.T, w).Message
	} else if said, found := strings.CutPrefix(w.Header().Get("Warning"), "299 loxilb "); found {
		text = strings.Trim(said, `"`)
	}
	return fmt.Sprint(w.Code, " ", text)
}
