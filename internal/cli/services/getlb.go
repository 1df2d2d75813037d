package services

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
	"loxilb/internal/cli/session"
	"loxilb/internal/lb"
)

func lbKind(o *session.Options) session.Kind[v1.LoadbalanceList, v1.LoadbalanceEntry] {
	return session.Kind[v1.LoadbalanceList, v1.LoadbalanceEntry]{
		Word: "lb", Aliases: []string{"loadbalancer", "lbs", "loadbalancers"},
		DescribeHelp: session.Help{
			Short: "Show a service in full, with its endpoints, status and events",
			Long: "Shows a service in full: one by its key, such as 20.20.20.1:2020/tcp, those with a name or VIP,\n" +
				"or every service. -o json and -o yaml print the server's object, without the events.",
			Example: "  loxicmd describe lb 20.20.20.1:2020/tcp\n  loxicmd describe lb web",
		},
		Key: "lbAttr", Object: "service", Called: "service", Hint: ": give its name, its VIP, or its key such as 20.20.20.1:2020/tcp",
		Served: true, Named: []string{"serviceArguments.name", "status.key"},
		Fetch: func(c *v1.Client, ctx context.Context, edit ...v1.RequestEditorFn) (*http.Response, error) {
			return c.GetLoadbalancers(ctx, &v1.GetLoadbalancersParams{}, edit...)
		},
		Items:      func(l *v1.LoadbalanceList) *[]v1.LoadbalanceEntry { return &l.LbAttr },
		Name:       keyOf,
		OtherNames: func(e *v1.LoadbalanceEntry) []string { return []string{e.ServiceArguments.Name} },
		Addresses:  addressesOf,
		Fields:     map[string]string{"state": "status.state", "vip": "serviceArguments.externalIP"},
		Words:      map[string][]string{"status.state": {"applied", "pending", "failed"}},
		Draw: func(l *v1.LoadbalanceList) *session.Table {
			if o.Output == "wide" {
				return wideLB(l.LbAttr, o.Compat())
			}
			return narrowLB(l.LbAttr, o.Compat())
		},
		Full: func(ctx context.Context, list []v1.LoadbalanceEntry) ([]string, error) {
			return describeServices(ctx, o, list)
		},
	}
}

func getLB(o *session.Options) *cobra.Command {
	kind := lbKind(o)
	cmd := kind.GetWith(o, &cobra.Command{
		Short: "Show services; -o wide shows their endpoints, counters and status",
		Example: "  loxicmd get lb -o wide\n  loxicmd get lb web\n  loxicmd get lb 20.20.20.1\n  loxicmd get lb -l mode=dsr,state!=applied --sort-by=name --limit=20\n" +
			"  loxicmd get lb -o custom-columns=NAME:.serviceArguments.name,VIP:.serviceArguments.externalIP\n  loxicmd get lb -o yaml >services.yaml",
	})
	kind.Choose(cmd, "servName", "show only services with this name", "serviceArguments.name")
	kind.Choose(cmd, "vip", "show only services with this VIP", "serviceArguments.externalIP")
	kind.Choose(cmd, "endpoint", "show only services that have an endpoint with this address", "endpoints.endpointIP")
	kind.Choose(cmd, "state", "show only services whose status is applied, pending or failed", "status.state")
	return cmd
}

func narrowLB(list []v1.LoadbalanceEntry, compat bool) *session.Table {
	t := session.NewTable("Ext IP", "Port", "Proto", "Name", "Mark", "Sel", "Mode", "# of Endpoints", "Timeout", "Monitor")
	t.LeaveOut("Name", "")
	t.LeaveOut("Mark", "0")
	t.LeaveOut("Timeout", "0", "-")
	for i := range list {
		a := &list[i].ServiceArguments
		monitor := "Off"
		if monitored(a) {
			monitor = "On"
		}
		t.Add(a.ExternalIP, ports(a), protocol(a), a.Name, strconv.Itoa(a.Block), algorithm(a), mode(a),
			strconv.Itoa(len(list[i].Endpoints)), timeoutCell(a.InactiveTimeOut, compat), monitor)
	}
	return t
}

// timeoutCell returns an idle timeout, or - for the protocol's default.
func timeoutCell(s v1.Seconds, compat bool) string {
	switch {
	case compat:
		return s.String()
	case s == 0:
		return "-"
	}
	return s.String() + "s"
}

// wideLB has a line for each endpoint; the first one also has the service's cells.
func wideLB(list []v1.LoadbalanceEntry, compat bool) *session.Table {
	header := []string{
		"Ext IP", "Sec IPs", "Sources", "Host", "Port", "Proto", "Name", "Mark", "Sel", "Mode",
		"Endpoint", "EPort", "Weight", "State", "Counters", "Status",
	}
	if !compat {
		header = append(header, "Active:Inact", "Refused", "BGP")
	}
	sources := slices.ContainsFunc(list, func(e v1.LoadbalanceEntry) bool { return hasSources(&e) })
	if sources {
		header = append(header, "Source")
	}
	t := session.NewTable(header...)
	t.LeaveOut("Mark", "0")
	t.LeaveOut("Active:Inact", "0:0")
	t.LeaveOut("Refused", "0")
	t.LeaveOut("BGP", "-", "")
	t.Rename("Counters", "Packets:Bytes")
	for i := range list {
		e := &list[i]
		a := &e.ServiceArguments
		for line := range max(1, len(e.Endpoints), len(e.SecondaryIPs), len(e.AllowedSources)) {
			row := make([]string, t.Columns())
			if line == 0 {
				row[0], row[3], row[4], row[5], row[6] = a.ExternalIP, a.Host, ports(a), protocol(a), a.Name
				row[7], row[8], row[9] = strconv.Itoa(a.Block), algorithm(a), mode(a)
				row[15] = session.StatusCell(e.Status)
			}
			if line < len(e.SecondaryIPs) {
				row[1] = e.SecondaryIPs[line].SecondaryIP
			}
			if line < len(e.AllowedSources) {
				row[2] = e.AllowedSources[line].Prefix
			}
			if line < len(e.Endpoints) {
				endpointCells(row[10:], a, &e.Endpoints[line])
			}
			if !compat {
				connectionCells(row[16:], e, line)
			}
			if sources && line < len(e.Endpoints) {
				row[len(row)-1] = e.Endpoints[line].Source
			}
			t.Add(row...)
		}
	}
	return t
}

// hasSources reports whether the server reports the source that each endpoint sees.
func hasSources(e *v1.LoadbalanceEntry) bool {
	return slices.ContainsFunc(e.Endpoints, func(p v1.Endpoint) bool { return p.Source != "" })
}

// connectionCells adds the open and closed connections of a line's endpoint, and refused clients:
// on the first line by the service, for any reason, on others because of the endpoint. The first
// line also has whether the VIPs are announced.
func connectionCells(row []string, e *v1.LoadbalanceEntry, line int) {
	if line < len(e.Endpoints) {
		p := &e.Endpoints[line]
		row[0] = fmt.Sprintf("%d:%d", p.ActiveConnections, p.InactiveConnections)
		row[1] = strconv.FormatUint(p.Refused, 10)
	}
	if line == 0 {
		row[1], row[2] = strconv.FormatUint(e.Refused, 10), session.AnnouncementCell(e.Status)
	}
}

func endpointCells(row []string, a *v1.ServiceArguments, e *v1.Endpoint) {
	row[0], row[1], row[4] = e.EndpointIP, portCell(e.TargetPort, e.TargetPortMax), e.Counter
	row[2] = weightCell(e)
	row[3] = stateCell(a, e)
}

// weightCell returns the weight, followed by the level of a backup, by a server ID, and by its
// current fraction during slow start.
func weightCell(e *v1.Endpoint) (s string) {
	if e.Weight != nil {
		s = strconv.Itoa(*e.Weight)
	}
	if e.Backup != 0 {
		s += "@" + strconv.Itoa(e.Backup)
	}
	if e.ServerID != "" {
		s += "#" + e.ServerID
	}
	if e.Share != 0 {
		s += fmt.Sprintf(" (%d%%)", e.Share)
	}
	return s
}

// stateCell returns the server's state of an endpoint. The existing loxilb's server knows only
// active and inactive, and returns them for endpoints that are not probed, too.
func stateCell(a *v1.ServiceArguments, e *v1.Endpoint) string {
	switch {
	case e.ObservedState != "":
		return e.ObservedState
	case monitored(a), e.State == "inactive":
		return cmp.Or(e.State, "-")
	}
	return "-"
}

// monitored reports whether the service considers the health of its endpoints. The existing
// loxilb's server returns a state anyway.
func monitored(a *v1.ServiceArguments) bool {
	var s lb.Service
	s.Monitor = a.Monitor
	s.Probe.Type, _ = lb.ParseProbeType(a.Probetype) // a type of a newer server is not auto either
	return s.Monitored()
}

func ports(a *v1.ServiceArguments) string { return portCell(a.Port, a.PortMax) }

// portCell returns a port, or a range as FIRST-LAST.
func portCell(first, last int) string {
	if last > first {
		return fmt.Sprintf("%d-%d", first, last)
	}
	return strconv.Itoa(first)
}

func protocol(a *v1.ServiceArguments) string {
	switch a.Security {
	case 1:
		return a.Protocol + ":https"
	case 2:
		return a.Protocol + ":e2ehttps"
	}
	return a.Protocol
}

// algorithm returns the algorithm's name, or its number if a newer server has added it.
func algorithm(a *v1.ServiceArguments) string {
	if v, err := lb.ParseAlgorithm(cmp.Or(string(a.Sel), "0")); err == nil {
		return v.String()
	}
	return string(a.Sel)
}

func mode(a *v1.ServiceArguments) string {
	word := string(a.Mode)
	if v, err := lb.ParseMode(cmp.Or(word, "0")); err == nil {
		word = v.String()
	}
	if a.Proxyprotocolv2 {
		word += ":ppv2"
	}
	if helper := a.Helper; helper != "" && helper != lb.HelperNone.String() {
		word += ":" + helper
	}
	if a.Egress {
		word += ":egress"
	}
	return word
}
