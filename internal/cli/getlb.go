package cli

import (
	"cmp"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
	"loxilb/internal/lb"
)

func getLB(o *options) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:     "lb",
		Aliases: []string{"loadbalancer", "lbs", "loadbalancers"},
		Short:   "show services; -o wide shows their endpoints, counters and status",
		Example: "  loxicmd get lb -o wide\n  loxicmd get lb -o yaml >services.yaml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := o.client()
			if err != nil {
				return err
			}
			body, err := o.answer(client.GetLoadbalancers(cmd.Context()))
			if err != nil {
				return err
			}
			return o.showLB(body, name)
		},
	}
	cmd.Flags().StringVar(&name, "servName", "", "only services of this name")
	return cmd
}

func (o *options) showLB(body []byte, name string) error {
	asIs := o.output == "json" || o.output == "yaml"
	if asIs && name == "" {
		return o.printRaw(body)
	}
	var list v1.LoadbalanceList
	if err := decode(body, &list); err != nil {
		return err
	}
	if name != "" {
		kept := []v1.LoadbalanceEntry{}
		for _, e := range list.LbAttr {
			if e.ServiceArguments.Name == name {
				kept = append(kept, e)
			}
		}
		list.LbAttr = kept
	}
	switch {
	case asIs:
		return o.printRaw(raw(list))
	case o.output == "wide":
		return o.print(wideLB(list.LbAttr).String())
	}
	return o.print(narrowLB(list.LbAttr).String())
}

func narrowLB(list []v1.LoadbalanceEntry) *table {
	t := newTable("Ext IP", "Port", "Proto", "Name", "Mark", "Sel", "Mode", "# of Endpoints", "Timeout", "Monitor")
	for i := range list {
		a := &list[i].ServiceArguments
		monitor := "Off"
		if monitored(a) {
			monitor = "On"
		}
		t.add(a.ExternalIP, ports(a), protocol(a), a.Name, strconv.Itoa(a.Block), algorithm(a), mode(a),
			strconv.Itoa(len(list[i].Endpoints)), strconv.Itoa(a.InactiveTimeOut), monitor)
	}
	return t
}

// wideLB gives each endpoint a line; what belongs to the service stands on the first only.
func wideLB(list []v1.LoadbalanceEntry) *table {
	t := newTable("Ext IP", "Sec IPs", "Sources", "Host", "Port", "Proto", "Name", "Mark", "Sel", "Mode",
		"Endpoint", "EPort", "Weight", "State", "Counters", "Status")
	for i := range list {
		e := &list[i]
		a := &e.ServiceArguments
		for line := range max(1, len(e.Endpoints), len(e.SecondaryIPs), len(e.AllowedSources)) {
			row := make([]string, len(t.header))
			if line == 0 {
				row[0], row[3], row[4], row[5], row[6] = a.ExternalIP, a.Host, ports(a), protocol(a), a.Name
				row[7], row[8], row[9] = strconv.Itoa(a.Block), algorithm(a), mode(a)
				row[15] = statusCell(e.Status)
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
			t.add(row...)
		}
	}
	return t
}

func endpointCells(row []string, a *v1.ServiceArguments, e *v1.Endpoint) {
	row[0], row[1], row[3], row[4] = e.EndpointIP, portCell(e.TargetPort, e.TargetPortMax), "-", e.Counter
	row[2] = weightCell(e)
	if monitored(a) || e.State == "inactive" || e.Drained || e.Standby { // handshakes of clients may say inactive, too
		row[3] = stateCell(e)
	}
}

// weightCell is the weight, and the level of a backup behind it.
func weightCell(e *v1.Endpoint) (s string) {
	if e.Weight != nil {
		s = strconv.Itoa(*e.Weight)
	}
	if e.Backup != 0 {
		s += "@" + strconv.Itoa(e.Backup)
	}
	return s
}

// stateCell is why an endpoint takes no new connections: it is not to, whether or not it could (drained); it cannot (inactive), or takes them all the
// same (panic); or it is a
// backup that is not needed (standby).
func stateCell(e *v1.Endpoint) string {
	switch {
	case e.Drained:
		return "drained"
	case e.Panic:
		return "panic"
	case e.Standby && e.State != "inactive":
		return "standby"
	}
	return cmp.Or(e.State, "-")
}

// monitored tells whether the service heeds the health of its endpoints. Servers of the contract tell a state anyway.
func monitored(a *v1.ServiceArguments) bool {
	var s lb.Service
	s.Monitor = a.Monitor
	s.Probe.Type, _ = lb.ParseProbeType(a.Probetype) // one that a newer server knows is not auto either, but what it is
	return s.Monitored()
}

func ports(a *v1.ServiceArguments) string { return portCell(a.Port, a.PortMax) }

// portCell is N or A-B.
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

// algorithm is the word; a server that is newer than this program has its number shown.
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
	if a.Egress {
		word += ":egress"
	}
	return word
}
