package traffic

import (
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/api/listing"
	"loxilb/internal/lb/report"
)

// WholeWalks bounds the requests that read the whole connection table at once for counts or an
// order: each takes memory and, with a million connections, a second of CPU.
const WholeWalks = 2

// maxClients is the number of clients counted at a time: 4 MB.
const maxClients = 1 << 15

// WalkWait bounds how long a request waits for its turn to read the whole table.
const WalkWait = 5 * time.Second

// WholeWalkers returns the requests that read the whole table or wait for their turn.
func WholeWalkers() rest.ShareLimits {
	return rest.ShareLimits{All: 16, Users: 12, User: 4, Verb: "read all connections", Instead: "ask for an unsorted list"}
}

// walkAll waits for its turn and runs a walk through the whole table. The turn ends with the walk,
// before the response is written, so a slow reader does not hold it. If walkAll returns false, it
// has replied with an error.
func (a *API) walkAll(w http.ResponseWriter, r *http.Request, walk func() error) bool {
	who := rest.PrincipalOf(r)
	if p := a.Walkers.Enter(who); p != nil {
		w.Header().Set("Retry-After", "5")
		p.Write(w)
		return false
	}
	defer a.Walkers.Leave(who)
	late := time.NewTimer(a.WalkWait)
	defer late.Stop()
	select {
	case a.Walks <- struct{}{}:
		defer func() { <-a.Walks }()
	case <-r.Context().Done():
		return false
	case <-late.C:
		w.Header().Set("Retry-After", "5")
		rest.Refuse(http.StatusServiceUnavailable, "%d other requests are reading all connections: try again", WholeWalks).Write(w)
		return false
	}
	return replyError(w, walk())
}

// replyError replies with the error of a walk, and reports whether there was none.
func replyError(w http.ResponseWriter, err error) bool {
	if err != nil {
		rest.Refuse(http.StatusServiceUnavailable, "the connections can't be read: %v", err).Write(w)
	}
	return err == nil
}

// GetClients replies with the clients that have the most connections or traffic.
func (a *API) GetClients(w http.ResponseWriter, r *http.Request, params v1.GetClientsParams) {
	f, p := a.newFilter(&v1.GetConntracksParams{Service: params.Service, Endpoint: params.Endpoint})
	var part listing.Window
	if p == nil {
		part, p = rest.Window(listing.Bounds{Limit: 100, MaxLimit: 1000}, 0, params.Limit)
	}
	order := report.ByConnections
	if p == nil && params.Sort != "" {
		if order = report.ClientOrder(params.Sort); !slices.Contains(report.ClientOrders(), order) {
			p = rest.RefuseField(http.StatusBadRequest, "sort", params.Sort, "is not a sort order", "connections, bytes or packets")
		}
	}
	bits4, bits6 := 32, 128
	if p == nil {
		p = prefixBits("prefix4", params.Prefix4, &bits4)
	}
	if p == nil {
		p = prefixBits("prefix6", params.Prefix6, &bits6)
	}
	if p != nil {
		p.Write(w)
		return
	}
	counter := report.NewClientCounter(order, maxClients, bits4, bits6)
	ok := a.walkAll(w, r, func() error {
		_, err := a.DataPath.ConnectionsFrom(r.Context(), 0, f.query(), func(c report.Connection) bool {
			if f.matches(&c) {
				counter.Add(c.ClientAddr().Addr(), &c)
			}
			return true
		})
		return err
	})
	if ok {
		rest.JSON(w, clientList(counter, part.Limit))
	}
}

// prefixBits parses a prefix length, up to that of the address so far.
func prefixBits(name string, given int, bits *int) *rest.Problem {
	if given < 0 || given > *bits {
		return rest.RefuseField(http.StatusBadRequest, name, strconv.Itoa(given), "is out of range", "1 to "+strconv.Itoa(*bits))
	}
	if given > 0 {
		*bits = given
	}
	return nil
}

func clientList(counter *report.ClientCounter, limit int) v1.ClientList {
	all := counter.All()
	out := v1.ClientList{
		Total: counter.Clients(), Error: counter.Error(), Connections: all.Connections,
		Bytes: all.In.Bytes + all.Out.Bytes, Packets: all.In.Packets + all.Out.Packets, ClientAttr: []v1.ClientUse{},
	}
	for _, u := range counter.Top(limit) {
		out.ClientAttr = append(out.ClientAttr, v1.ClientUse{
			Client: clientName(u.Client), Connections: u.Connections,
			BytesIn: u.In.Bytes, BytesOut: u.Out.Bytes, PacketsIn: u.In.Packets, PacketsOut: u.Out.Packets,
		})
	}
	return out
}

// clientName returns an address, or a prefix that has more than one.
func clientName(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}
