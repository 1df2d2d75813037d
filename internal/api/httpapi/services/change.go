package services

import (
	"fmt"
	"net/http"
	"strconv"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/compat"
	"loxilb/internal/api/httpapi/objects"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/control/desired"
	"loxilb/internal/control/store"
	"loxilb/internal/lb"
)

// CreateLoadbalancer creates or updates one service, or the many of lbAttr in one transaction.
func (a *API) CreateLoadbalancer(w http.ResponseWriter, r *http.Request, _ v1.CreateLoadbalancerParams) {
	var bulk bool
	list, p := rest.DecodeLenient(a.Reader, w, r, func(data []byte) (list []request, p *rest.Problem) {
		list, bulk, p = a.codec.decodeServices(data)
		return list, p
	})
	if p != nil {
		p.Write(w)
		return
	}
	var notes rest.Warnings
	for i := range list {
		notes.Join(&list[i].notes)
	}
	a.Objects.Commit(w, r, !bulk, func(tx *store.Tx, pre *objects.Precondition) error {
		defer notes.Write(w)
		if !bulk {
			if err := pre.Check(tx, a.Store.Services, list[0].Key.String()); err != nil {
				return err
			}
		}
		roles := a.Store.Instances.OfThisNode(tx)
		for i := range list {
			if err := a.probeFiles(&list[i].Probe); err != nil {
				return entryProblem(list[i].at, -1, err)
			}
			if list[i].oper == operReplace { // others change only a part
				warnIneffective(&list[i].Service, &notes)
				a.warnNotOwned(&list[i].Service, roles, &notes)
			}
			if err := list[i].put(tx, a.Store.Services, a.codec, &notes); err != nil {
				return err
			}
		}
		// Creating an identical service is an error. Bulk requests are declarative, so duplicates
		// and missing services are fine there.
		if !bulk && !tx.Changed() && list[0].oper != operDetach {
			p := a.Objects.Exists("service", desired.ServiceID(list[0].Key))
			p.Body.Result = compat.ServiceExists
			return p
		}
		return nil
	})
}

// decodeServices reads and checks a request without looking at the store.
func (c *codec) decodeServices(data []byte) ([]request, bool, *rest.Problem) {
	o := rest.OutlineOf(data, rest.PartSize)
	if p := o.TooMany(); p != nil {
		return nil, false, p
	}
	if list, ok := c.decodeParts(&o); ok {
		return list, true, rest.UnclearProblem(data)
	}
	req, p := rest.UnmarshalObject[v1.LoadbalanceRequest](data)
	if p != nil {
		return nil, false, p
	}
	list, bulk, p := entries(req)
	if p != nil {
		return nil, false, p
	}
	out, p := c.services(list, bulk)
	return out, bulk, p
}

// DeleteLoadbalancerList deletes all services of a list of keys, or none.
func (a *API) DeleteLoadbalancerList(w http.ResponseWriter, r *http.Request, params v1.DeleteLoadbalancerListParams) {
	if p := rest.RefuseUnknownParameters(r, params); p != nil {
		p.Write(w)
		return
	}
	keys, p := rest.Decode(a.Reader, w, r, func(data []byte) ([]lb.Key, *rest.Problem) { return a.codec.decodeKeys(data, params.Bgp) })
	if p != nil {
		p.Write(w)
		return
	}
	var notes rest.Warnings
	a.Objects.Commit(w, r, false, func(tx *store.Tx, _ *objects.Precondition) error {
		defer notes.Write(w)
		for _, k := range keys {
			if err := a.deleteService(tx, k, &notes); err != nil {
				return err
			}
		}
		return nil
	})
}

// decodeKeys reads and checks a list of keys without looking at the store.
func (c *codec) decodeKeys(data []byte, bgp string) ([]lb.Key, *rest.Problem) {
	list, p := rest.Unmarshal[v1.ServiceKeyList](data)
	switch {
	case p != nil:
		return nil, p
	case len(list.LbAttr) == 0:
		return nil, rest.RefuseField(http.StatusBadRequest, "lbAttr", "", "is missing or empty", "a list of keys; DELETE config/loadbalancer/all deletes all services")
	}
	if p := withdrawal(bgp); p != nil {
		return nil, p
	}
	keys := make([]lb.Key, len(list.LbAttr))
	first := make(map[lb.Key]int, len(keys))
	for i := range list.LbAttr {
		at := fmt.Sprintf("lbAttr[%d]", i)
		if keys[i], p = c.serviceKey(at+".", &list.LbAttr[i]); p != nil {
			return nil, p
		}
		if j, ok := first[keys[i]]; ok {
			return nil, rest.RefuseField(http.StatusBadRequest, at, keys[i].String(),
				fmt.Sprintf("is given twice, in lbAttr[%d] and lbAttr[%d]", j, i), "each service once")
		}
		first[keys[i]] = i
	}
	return keys, nil
}

// deleteService deletes a service. A missing one is reported, not an error.
func (a *API) deleteService(tx *store.Tx, k lb.Key, notes *rest.Warnings) error {
	return objects.DeleteObject(tx, desired.ServiceID(k), notes)
}

// withdrawal checks whether the request withdraws the VIP from BGP without deleting the service.
func withdrawal(bgp string) *rest.Problem {
	if _, err := strconv.ParseBool(bgp); bgp != "" && err != nil {
		return rest.RefuseField(http.StatusBadRequest, "bgp", bgp, "is not known", "true or false")
	}
	return nil
}

// DeleteLoadbalancers deletes every service.
func (a *API) DeleteLoadbalancers(w http.ResponseWriter, r *http.Request) {
	if p := rest.RefuseUnknownParameters(r, nil); p != nil {
		p.Write(w)
		return
	}
	a.Objects.Commit(w, r, false, func(tx *store.Tx, _ *objects.Precondition) error {
		for s := range a.Store.Services.All(tx) {
			if err := a.Store.Services.Delete(tx, s.Key); err != nil {
				return err
			}
		}
		return nil
	})
}

// DeleteLoadbalancerByName deletes all services with a name. Without any it succeeds, like the
// existing loxilb.
func (a *API) DeleteLoadbalancerByName(w http.ResponseWriter, r *http.Request, name string) {
	if p := rest.RefuseUnknownParameters(r, nil); p != nil {
		p.Write(w)
		return
	}
	a.Objects.Commit(w, r, false, func(tx *store.Tx, _ *objects.Precondition) error {
		list := a.Store.Services.ByName(tx, name)
		if len(list) == 0 {
			var notes rest.Warnings
			notes.Add("no service named %s", lb.Printable(name))
			notes.Write(w)
		}
		for i := range list {
			if err := a.Store.Services.Delete(tx, list[i].Key); err != nil {
				return err
			}
		}
		return nil
	})
}

// DeleteLoadbalancer deletes a service by its key.
func (a *API) DeleteLoadbalancer(w http.ResponseWriter, r *http.Request, ip v1.Address, port v1.Port, proto v1.Protocol, params v1.DeleteLoadbalancerParams) {
	a.deleteKey(w, r, keyPath{ip: ip, port: port, proto: proto, bgp: params.Bgp, block: params.Block})
}

// DeleteLoadbalancerRange deletes a service of a range of ports.
func (a *API) DeleteLoadbalancerRange(w http.ResponseWriter, r *http.Request, ip v1.Address, port v1.Port, portMax v1.PortMax, proto v1.Protocol, params v1.DeleteLoadbalancerRangeParams) {
	a.deleteKey(w, r, keyPath{ip: ip, port: port, portMax: portMax, proto: proto, bgp: params.Bgp, block: params.Block})
}

// DeleteLoadbalancerHost deletes a service of a host; "any" means no host.
func (a *API) DeleteLoadbalancerHost(w http.ResponseWriter, r *http.Request, host v1.HostURL, ip v1.Address, port v1.Port, proto v1.Protocol, params v1.DeleteLoadbalancerHostParams) {
	a.deleteKey(w, r, keyPath{host: host, ip: ip, port: port, proto: proto, bgp: params.Bgp, block: params.Block})
}

// DeleteLoadbalancerHostRange deletes a service of a host and a range of ports.
func (a *API) DeleteLoadbalancerHostRange(w http.ResponseWriter, r *http.Request, host v1.HostURL, ip v1.Address,
	port v1.Port, portMax v1.PortMax, proto v1.Protocol, params v1.DeleteLoadbalancerHostRangeParams) {
	a.deleteKey(w, r, keyPath{host: host, ip: ip, port: port, portMax: portMax, proto: proto, bgp: params.Bgp, block: params.Block})
}

func (a *API) deleteKey(w http.ResponseWriter, r *http.Request, path keyPath) {
	key, p := path.key()
	if p == nil && !a.Reader.IsLenient() {
		p = rest.RefuseUnknownParameters(r, v1.DeleteLoadbalancerParams{})
	}
	if p != nil {
		p.Write(w)
		return
	}
	a.Objects.Commit(w, r, true, func(tx *store.Tx, pre *objects.Precondition) error {
		if err := pre.Check(tx, a.Store.Services, key.String()); err != nil {
			return err
		}
		var notes rest.Warnings
		defer notes.Write(w)
		return a.deleteService(tx, key, &notes)
	})
}

// keyPath is a key as the paths of DELETE write it.
type keyPath struct{ host, ip, port, portMax, proto, bgp, block string }

func (k keyPath) key() (key lb.Key, p *rest.Problem) {
	if p := compat.RefuseHost("hosturl", k.host); p != nil {
		return key, p
	}
	if p := withdrawal(k.bgp); p != nil {
		return key, p
	}
	var err error
	if k.block != "" {
		if key.Mark, err = lb.ParseMark(k.block); err != nil {
			return key, rest.BadRequest(rest.RenameField("block", err))
		}
	}
	if key.VIP, err = lb.ParseAddr("ip_address", k.ip); err != nil {
		return key, rest.BadRequest(err)
	}
	if key.Port, err = lb.ParsePort("port", k.port); err != nil {
		return key, rest.BadRequest(err)
	}
	if key.Protocol, err = lb.ParseProtocol(k.proto); err != nil {
		return key, rest.BadRequest(err)
	}
	if k.portMax != "" {
		if key.PortMax, err = lb.ParsePort("portmax", k.portMax); err != nil {
			return key, rest.BadRequest(err)
		}
	}
	if err := onePort(&key); err != nil {
		return key, rest.BadRequest(rest.RenameField("portmax", err))
	}
	return key, nil
}
