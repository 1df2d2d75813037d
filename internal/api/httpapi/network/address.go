package network

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/objects"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/lb/netobj"
)

func addressKind(a *API) netKind[netobj.Address] {
	return netKind[netobj.Address]{table: a.Store.Addresses, kernel: a.Network.Addresses, inUse: a.isVIP}
}

// CreateAddress adds an address to an interface.
func (a *API) CreateAddress(w http.ResponseWriter, r *http.Request) {
	createNet(a, w, r, addressKind(a), func(body *v1.DeviceAddress) (netobj.Address, error) {
		return netobj.ParseAddress(body.Dev, body.IpAddress)
	})
}

// DeleteAddress removes an address from an interface.
func (a *API) DeleteAddress(w http.ResponseWriter, r *http.Request, ip, mask, dev string, params v1.DeleteAddressParams) {
	o, err := netobj.ParseAddress(dev, ip+"/"+mask)
	if err != nil {
		rest.BadRequest(err).Write(w)
		return
	}
	at := o.Prefix.Addr()
	_, wanted := a.Store.Addresses.Get(a.Store.Snapshot(), o.Key())
	switch {
	case !wanted && a.isVIP(o):
		rest.Refuse(http.StatusConflict, "address %s of %s is the VIP of a service: delete the service", at, dev).Write(w)
	case params.Force != "true" && localAddressOf(r) == at:
		rest.Refuse(http.StatusConflict, "this request came to address %s: deleting it may disconnect you; to delete it nevertheless, use loxicmd delete ip --force, or ?force=true", at).Write(w)
	default:
		deleteNet(a, w, r, addressKind(a), o.Key())
	}
}

// isVIP reports whether an address exists for a service, and is removed with it.
func (a *API) isVIP(o netobj.Address) bool {
	return o.Prefix.IsSingleIP() && a.Store.Services.HasVIP(a.Store.Snapshot(), o.Prefix.Addr()) && !a.Network.Created(netobj.AddressKind, o.Key())
}

// localAddressOf returns the address of this machine that a request came to by TCP.
func localAddressOf(r *http.Request) netip.Addr {
	if at, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr); ok {
		return at.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}

// GetAddresses replies with the addresses of all interfaces.
func (a *API) GetAddresses(w http.ResponseWriter, _ *http.Request) {
	seen, err := a.Network.Addresses.Observed()
	if err != nil {
		objects.KernelProblem(err).Write(w)
		return
	}
	out := v1.AddressList{IpAttr: []v1.DeviceAddresses{}}
	for _, d := range seen {
		out.IpAttr = append(out.IpAttr, v1.DeviceAddresses{Dev: d.Dev, IpAddress: texts(d.Addresses)})
	}
	rest.JSON(w, out)
}

func texts[T fmt.Stringer](list []T) []string {
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = v.String()
	}
	return out
}
