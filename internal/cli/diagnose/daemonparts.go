package diagnose

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/internal/cli/session"
	"loxilb/internal/diagnose/doctor"
)

const (
	// answerBytes bounds the bytes of an answer that are read, and countedConnections the
	// connections that are counted.
	answerBytes        = 16 << 20
	countedConnections = 20000
)

// bundleClient requests the parts of a bundle from the daemon.
type bundleClient struct{ o *session.Options }

// parts returns the daemon's parts.
func (a *bundleClient) parts() []archivePart {
	list := []archivePart{
		a.part("daemon/version.json", "/version", "versions of the daemon"),
		a.part("daemon/process.json", "/status/process", "the machine's processes"),
		a.part("daemon/device.json", "/status/device", "the machine"),
		a.part("daemon/filesystem.json", "/status/filesystem", "file systems"),
		a.part("objects/export.json", "/config/export", "the configuration"),
		a.part("objects/services.json", "/config/loadbalancer/all", "services, with the data path's counters"),
		a.part("objects/endpoints.json", "/config/endpoint/all", "endpoints, their health and evidence"),
		a.part("objects/firewall.json", "/config/firewall/all", "firewall rules, with their counters"),
		a.part("objects/drains.json", "/config/drain/all", "drains"),
		a.part("objects/hastate.json", "/config/cistate/all", "name, version and roles of this node"),
		a.part("objects/revisions.json", "/config/revisions", "the last revisions"),
		a.part("objects/status.json", "/status/objects", "the status of each object"),
		a.part("state/events.json", "/events?limit=2000", "recent events"),
		a.part("state/log.json", "/logs?lines=10000", "the log"),
		a.part("state/metrics.txt", "/metrics", "metrics"),
		a.part("state/rates.json", "/status/rates", "rates"),
		a.part("state/nodegraph.json", "/nodegraph/all", "services and endpoints as a graph"),
		{Name: "state/connections.json", What: "numbers of connections by service, protocol and state", Clients: true, Collect: a.connections},
		{Name: "checks/doctor.json", What: "problems of the machine and its network", Clients: true, Collect: a.doctor},
		a.part("checks/verify.json", "/verify", "the kernel's state, compared with the desired state"),
	}
	for i := range list {
		switch list[i].Name {
		case "state/events.json", "state/log.json", "state/metrics.txt", "checks/verify.json", "objects/status.json",
			"objects/export.json", "objects/services.json", "objects/firewall.json", "objects/revisions.json": // users, and authors of changes
			list[i].Clients = true
		}
	}
	list[len(list)-1].Time = time.Minute
	return list
}

func (a *bundleClient) part(name, path, what string) archivePart {
	return archivePart{Name: name, What: what, Collect: func(ctx context.Context) ([]byte, error) { return a.get(ctx, path) }}
}

// get requests a path.
func (a *bundleClient) get(ctx context.Context, path string) ([]byte, error) {
	client, err := a.o.Client()
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, client.Server+path[1:], nil)
	if err != nil {
		return nil, err
	}
	for _, edit := range client.RequestEditors {
		if err := edit(ctx, r); err != nil {
			return nil, err
		}
	}
	resp, err := client.Client.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close() //nolint:errcheck // the body was read
	body, err := io.ReadAll(io.LimitReader(resp.Body, answerBytes))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("the daemon answered %s", resp.Status)
	}
	return body, err
}

// connections counts connections, without listing them.
func (a *bundleClient) connections(ctx context.Context) ([]byte, error) {
	body, err := a.get(ctx, fmt.Sprintf("/config/conntrack/all?limit=%d", countedConnections))
	if err != nil {
		return nil, err
	}
	var list struct {
		Attr []struct {
			ServName string `json:"servName"`
			Protocol string `json:"protocol"`
			State    string `json:"conntrackState"`
		} `json:"ctAttr"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("the daemon's connections: %w", err)
	}
	counts := map[string]int{}
	for _, c := range list.Attr {
		counts[c.ServName+" "+c.Protocol+" "+c.State]++
	}
	type row struct {
		Of      string `json:"of"`
		Entries int    `json:"entries"`
	}
	out := struct {
		Counted int   `json:"counted"`
		Rows    []row `json:"rows"`
	}{Counted: len(list.Attr), Rows: []row{}}
	for _, of := range slices.Sorted(maps.Keys(counts)) {
		out.Rows = append(out.Rows, row{of, counts[of]})
	}
	return json.MarshalIndent(out, "", " ")
}

// doctor returns the daemon's diagnosis or, without a daemon, that of this process.
func (a *bundleClient) doctor(ctx context.Context) ([]byte, error) {
	if body, err := a.get(ctx, "/doctor"); err == nil {
		return body, nil
	}
	return json.MarshalIndent(doctor.ToAPI(doctor.Here(doctor.Facts{}).Examine()), "", " ")
}

// ownAddresses returns the addresses of this machine, of services and of endpoints: they are not
// clients'.
func (a *bundleClient) ownAddresses(ctx context.Context) (out []netip.Addr) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if list, err := net.InterfaceAddrs(); err == nil {
		for _, one := range list {
			if p, err := netip.ParsePrefix(one.String()); err == nil {
				out = append(out, p.Addr())
			}
		}
	}
	body, err := a.get(ctx, "/config/loadbalancer/all")
	var list v1.LoadbalanceList
	if err = errors.Join(err, json.Unmarshal(body, &list)); err != nil {
		return out // more is masked than necessary
	}
	add := func(text string) {
		if a, err := netip.ParseAddr(text); err == nil {
			out = append(out, a)
		}
	}
	for _, s := range list.LbAttr {
		add(s.ServiceArguments.ExternalIP)
		for _, a := range s.ServiceArguments.SnatIPs {
			add(a)
		}
		for _, v := range s.SecondaryIPs {
			add(v.SecondaryIP)
		}
		for _, e := range s.Endpoints {
			add(e.EndpointIP)
		}
	}
	return out
}
