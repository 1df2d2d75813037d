package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
	"loxilb/internal/lb"
)

// describedEvents is how many events describe shows of a service.
const describedEvents = 10

func describeLB(o *options) *cobra.Command {
	return &cobra.Command{
		Use:     "lb [NAME|KEY]",
		Aliases: []string{"loadbalancer", "lbs", "loadbalancers"},
		Short:   "show a service in full: what it is, its endpoints, its status, what happened to it",
		Long: "Shows one service in full, by its KEY as in 20.20.20.1:2020/tcp; all services of a NAME; or every service.\n" +
			"With -o json or yaml it is what the server has of them, without the events.",
		Example: "  loxicmd describe lb 20.20.20.1:2020/tcp\n  loxicmd describe lb web",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			which := ""
			if len(args) == 1 {
				which = args[0]
			}
			return o.describeServices(cmd.Context(), which)
		},
	}
}

func (o *options) describeServices(ctx context.Context, which string) error {
	client, err := o.client()
	if err != nil {
		return err
	}
	body, err := o.answer(client.GetLoadbalancers(ctx))
	if err != nil {
		return err
	}
	var all v1.LoadbalanceList
	if err := decode(body, &all); err != nil {
		return err
	}
	chosen := v1.LoadbalanceList{LbAttr: []v1.LoadbalanceEntry{}}
	for _, e := range all.LbAttr {
		if which == "" || which == e.ServiceArguments.Name || which == keyOf(&e) {
			chosen.LbAttr = append(chosen.LbAttr, e)
		}
	}
	if which != "" && len(chosen.LbAttr) == 0 {
		return refused("there is no service %q: write its name, or its key as in 20.20.20.1:2020/tcp", which)
	}
	if o.output == "json" || o.output == "yaml" {
		return o.printRaw(raw(chosen))
	}
	events, err := o.eventsOf(ctx, client, chosen.LbAttr)
	if err != nil {
		return err
	}
	problems, err := o.problems(ctx, client, chosen.LbAttr)
	if err != nil {
		return err
	}
	down, err := o.endpointsDown(ctx, client, chosen.LbAttr)
	if err != nil {
		return err
	}
	for i := range chosen.LbAttr {
		e := &chosen.LbAttr[i]
		text := description(e) + problemsOf(e, problems, down) + "Events:\n"
		if e.Status != nil {
			text += strings.Join(events[objectOf(e.Status)], "")
		}
		if i > 0 {
			text = "\n" + text
		}
		if err := o.print(text); err != nil {
			return err
		}
	}
	return nil
}

// keyOf is the service's key; a server that does not tell it has it made of its parts.
func keyOf(e *v1.LoadbalanceEntry) string {
	if e.Status != nil && e.Status.Key != "" {
		return e.Status.Key
	}
	var s lb.Service
	setFields(&s, lb.KeyFields(), e)
	return s.Key.String()
}

// setFields reads what an entry has of the fields. A value of a newer server, that this program does not know, is left out.
func setFields(s *lb.Service, fields []lb.Field[lb.Service], e *v1.LoadbalanceEntry) {
	properties := v1.PropertiesOf[v1.LoadbalanceEntry]()
	for i := range fields {
		if value, given := properties.Get(e, fields[i].Property); given {
			_ = fields[i].SetValue(s, value)
		}
	}
}

// description is all that the server has of a service, and its status.
func description(e *v1.LoadbalanceEntry) string {
	var b strings.Builder
	line := func(name, value string) { fmt.Fprintf(&b, "%-18s %s\n", name+":", value) }
	line("Service", keyOf(e))
	var s lb.Service
	fields := slices.DeleteFunc(lb.Fields(), func(f lb.Field[lb.Service]) bool { return f.Name == lb.FieldEndpoints })
	setFields(&s, fields, e)
	for i := range fields {
		f := &fields[i]
		if f.IsDefault(&s) && !f.Always {
			continue
		}
		line(strings.ToUpper(f.Name[:1])+f.Name[1:], oneLine(f.Show(&s)))
	}
	describeStatus(line, e.Status)
	b.WriteString("Endpoints:\n")
	t := newTable("Endpoint", "Port", "Weight", "State", "Packets", "Bytes")
	for i := range e.Endpoints {
		p := &e.Endpoints[i]
		packets, bytes, _ := strings.Cut(p.Counter, ":")
		t.add(p.EndpointIP, portCell(p.TargetPort, p.TargetPortMax), cmp.Or(weightCell(p), "-"), stateCell(p), packets, bytes)
	}
	b.WriteString(t.String())
	return b.String()
}

func describeStatus(line func(name, value string), s *v1.Status) {
	if s == nil {
		return
	}
	line("Status", s.State)
	line("Version", fmt.Sprintf("%d wanted, %s in the data path", s.Desired, version(s.Applied)))
	if !s.Since.IsZero() {
		line("Since", clock(s.Since))
	}
	for _, c := range s.Conditions {
		line("Condition "+c.Type, c.Message)
	}
	if s.Error == "" {
		return
	}
	line("Error", s.Error)
	next := "-"
	if !s.NextTry.IsZero() {
		next = fmt.Sprintf("%s, in %s", clock(s.NextTry), max(0, time.Until(s.NextTry).Round(time.Second)))
	}
	line("Next try", next)
	line("Failed tries", tries(s))
}

// objectOf is what events call the object.
func objectOf(s *v1.Status) string { return s.Kind + " " + s.Key }

// problems are what fails now besides services. A server that tells no status of a service tells of nothing else either.
func (o *options) problems(ctx context.Context, client *v1.Client, list []v1.LoadbalanceEntry) ([]v1.Status, error) {
	if len(list) == 0 || list[0].Status == nil {
		return nil, nil
	}
	body, err := o.answer(client.GetStatuses(ctx, &v1.GetStatusesParams{Failed: true}))
	if err != nil {
		return nil, err
	}
	var failed v1.StatusList
	err = decode(body, &failed)
	return failed.StatusAttr, err
}

// endpointsDown are those that their probes, or agents, say are down; none where no service heeds it.
func (o *options) endpointsDown(ctx context.Context, client *v1.Client, list []v1.LoadbalanceEntry) ([]v1.EndpointProbe, error) {
	inactive := func(e v1.Endpoint) bool { return e.State == "inactive" }
	if !slices.ContainsFunc(list, func(e v1.LoadbalanceEntry) bool { return slices.ContainsFunc(e.Endpoints, inactive) }) {
		return nil, nil
	}
	body, err := o.answer(client.GetEndpoints(ctx))
	if err != nil {
		return nil, err
	}
	var all v1.EndpointProbeList
	err = decode(body, &all)
	return slices.DeleteFunc(all.Attr, func(e v1.EndpointProbe) bool { return e.CurrState != "nok" && e.CurrState != "red" }), err
}

// problemsOf are what keeps packets from the VIPs and endpoints of a service, a line each.
func problemsOf(e *v1.LoadbalanceEntry, failed []v1.Status, down []v1.EndpointProbe) string {
	about := map[string]bool{"vip " + e.ServiceArguments.ExternalIP: true}
	for i := range e.SecondaryIPs {
		about["vip "+e.SecondaryIPs[i].SecondaryIP] = true
	}
	for i := range e.Endpoints {
		about["endpoint "+e.Endpoints[i].EndpointIP] = true
	}
	text := ""
	for i := range failed {
		if about[objectOf(&failed[i])] {
			text += fmt.Sprintf("%s  %s\n", clock(failed[i].Since), failed[i].Error)
		}
	}
	for i := range down {
		d := &down[i]
		if slices.ContainsFunc(e.Endpoints, func(p v1.Endpoint) bool { return p.State == "inactive" && p.EndpointIP == d.HostName }) &&
			(slices.Contains(d.Services, keyOf(e)) || len(d.Services) >= 100) { // of more services not all are told
			text += fmt.Sprintf("%s  endpoint %s is %s: %s\n", clock(d.Since), d.Name, d.CurrState, oneLine(d.Evidence))
		}
	}
	if text == "" {
		return ""
	}
	return "Problems:\n" + text
}

// eventsOf are the last events about each of the services, a line each, by object. A server that tells no status has no
// events either.
func (o *options) eventsOf(ctx context.Context, client *v1.Client, list []v1.LoadbalanceEntry) (map[string][]string, error) {
	if len(list) == 0 || list[0].Status == nil {
		return nil, nil
	}
	params := &v1.GetEventsParams{}
	if len(list) == 1 {
		params.Object = objectOf(list[0].Status)
	}
	body, err := o.answer(client.GetEvents(ctx, params))
	if err != nil {
		return nil, err
	}
	var events v1.EventList
	if err := decode(body, &events); err != nil {
		return nil, err
	}
	out := map[string][]string{}
	for i := range events.EventAttr {
		e := &events.EventAttr[i]
		all := append(out[e.Object], eventLine(e))
		out[e.Object] = all[max(0, len(all)-describedEvents):]
	}
	return out, nil
}
