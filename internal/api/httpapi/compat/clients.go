package compat

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"strings"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/lb/report"
)

// MaxGroups bounds the memory that counting by clients takes: the clients beyond it are counted
// together, as OtherClients.
const MaxGroups = 10000

// OtherClients is the name of the clients that are not counted one by one.
const OtherClients = "others"

// interaction counts a client's connections to an endpoint of a service.
type interaction struct{ service, client, endpoint string }

// GetInteractions replies with packets and bytes of open connections, by service, client and
// endpoint.
func (a *API) GetInteractions(w http.ResponseWriter, r *http.Request) {
	groups := map[interaction]report.Traffic{}
	err := a.DataPath.Connections(r.Context(), func(c report.Connection) bool {
		p := interaction{c.Service, c.ClientAddr().Addr().String(), c.Endpoint.Addr().String()}
		if _, there := groups[p]; !there && len(groups) >= MaxGroups {
			p.client, p.endpoint = OtherClients, OtherClients
		}
		t := groups[p]
		t.Packets += c.Traffic.Packets
		t.Bytes += c.Traffic.Bytes
		groups[p] = t
		return true
	})
	if err != nil {
		rest.Refuse(http.StatusServiceUnavailable, "the connections can't be read: %v", err).Write(w)
		return
	}
	out := v1.Interactions{LbRuleInteractionBytes: []v1.Interaction{}, LbRuleInteractionPackets: []v1.Interaction{}}
	for _, p := range slices.SortedFunc(maps.Keys(groups), func(a, b interaction) int {
		return cmp.Or(strings.Compare(a.service, b.service), strings.Compare(a.client, b.client), strings.Compare(a.endpoint, b.endpoint))
	}) {
		t := groups[p]
		e := v1.Interaction{Service: p.service, Sip: p.client, Dip: p.endpoint, Value: float64(t.Bytes)}
		out.LbRuleInteractionBytes = append(out.LbRuleInteractionBytes, e)
		e.Value = float64(t.Packets)
		out.LbRuleInteractionPackets = append(out.LbRuleInteractionPackets, e)
	}
	rest.JSON(w, out)
}

// GetClientRequests replies with the number of connections of each client.
func (a *API) GetClientRequests(w http.ResponseWriter, r *http.Request) {
	counts := map[string]float64{}
	err := a.DataPath.Connections(r.Context(), func(c report.Connection) bool {
		if c.Reply {
			return true
		}
		client := c.ClientAddr().Addr().String()
		if _, there := counts[client]; !there && len(counts) >= MaxGroups {
			client = OtherClients
		}
		counts[client]++
		return true
	})
	if err != nil {
		rest.Refuse(http.StatusServiceUnavailable, "the connections can't be read: %v", err).Write(w)
		return
	}
	rest.JSON(w, counts)
}
