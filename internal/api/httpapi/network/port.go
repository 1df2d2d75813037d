package network

import (
	"net"
	"net/http"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/objects"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/control/status"
	"loxilb/internal/lb/netobj"
)

// zone is the existing loxilb's name of the only zone.
const zone = "root"

// interfaceKind is the kind of the statuses of interfaces that the data path is attached to.
const interfaceKind = "interface"

// GetPorts replies with the interfaces of this network namespace.
func (a *API) GetPorts(w http.ResponseWriter, _ *http.Request) {
	ports, err := a.Network.Devices.Ports()
	if err != nil {
		objects.KernelProblem(err).Write(w)
		return
	}
	xdp := map[string]string{}
	if a.XDP != nil {
		xdp = a.XDP()
	}
	out := v1.PortList{PortAttr: []v1.PortEntry{}}
	for i := range ports {
		e := portAnswer(&ports[i])
		s, known := a.Statuses.Get(status.ID{Kind: interfaceKind, Key: e.PortName})
		e.PortSoftwareInformation.BpfLoaded = known && s.State() == status.Applied
		e.PortSoftwareInformation.Xdp = xdp[e.PortName]
		out.PortAttr = append(out.PortAttr, e)
	}
	rest.JSON(w, out)
}

func portAnswer(p *netobj.Port) v1.PortEntry {
	e := v1.PortEntry{
		PortName: p.Name, PortNo: p.Index, Zone: zone,
		PortSoftwareInformation: v1.PortSoftware{OsId: p.Index, PortType: int(p.Type), PortActive: p.Up && p.Carrier},
		PortHardwareInformation: v1.PortHardware{
			RawMacAddress: []int{}, MacAddress: net.HardwareAddr(p.MAC).String(), Mtu: p.MTU, Link: p.Carrier, State: p.Up,
			Master: p.Master, Real: p.Real, TunnelId: p.Tunnel,
		},
		PortStatisticInformation: v1.PortStatistic{
			RxBytes: int64(p.Rx.Bytes), RxPackets: int64(p.Rx.Packets), RxErrors: int64(p.Rx.Errors),
			TxBytes: int64(p.Tx.Bytes), TxPackets: int64(p.Tx.Packets), TxErrors: int64(p.Tx.Errors),
		},
		PortL3Information: v1.PortL3{Routed: len(p.Addresses) > 0, IPv4Address: []string{}, IPv6Address: []string{}},
		PortL2Information: v1.PortL2{Vid: p.VLAN, IsPvid: p.VLAN != 0 && !p.Tagged},
	}
	for _, b := range p.MAC {
		e.PortHardwareInformation.RawMacAddress = append(e.PortHardwareInformation.RawMacAddress, int(b))
	}
	for _, a := range p.Addresses {
		l3 := &e.PortL3Information
		if a.Addr().Is4() {
			l3.IPv4Address = append(l3.IPv4Address, a.String())
		} else {
			l3.IPv6Address = append(l3.IPv6Address, a.String())
		}
	}
	return e
}
