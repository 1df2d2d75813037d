package services

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/internal/cli/session"
	"loxilb/internal/lb"
)

// describeServices returns a description of each service.
func describeServices(ctx context.Context, o *session.Options, list []v1.LoadbalanceEntry) ([]string, error) {
	client, err := o.Client()
	if err != nil {
		return nil, err
	}
	events, err := eventsOf(ctx, o, client, list)
	if err != nil {
		return nil, err
	}
	problems, err := problems(ctx, o, client, list)
	if err != nil {
		return nil, err
	}
	down, err := endpointsDown(ctx, o, client, list)
	if err != nil {
		return nil, err
	}
	texts := make([]string, len(list))
	for i := range list {
		e := &list[i]
		rated := ""
		if e.Status != nil && len(list) <= maxRated {
			if rated, err = serviceRates(ctx, o, client, keyOf(e)); err != nil {
				return nil, err
			}
		}
		texts[i] = description(e) + rated + problemsOf(e, problems, down) + "Events:\n"
		if e.Status != nil {
			texts[i] += strings.Join(events[objectOf(e.Status)], "")
		}
	}
	return texts, nil
}

// keyOf returns the service's key; if the server does not return it, it is composed of its parts.
func keyOf(e *v1.LoadbalanceEntry) string {
	if e.Status != nil && e.Status.Key != "" {
		return e.Status.Key
	}
	var s lb.Service
	setFields(&s, lb.KeyFields(), e)
	return s.Key.String()
}

// addressesOf returns the addresses that select a service, as the server does.
func addressesOf(e *v1.LoadbalanceEntry) []string {
	var s lb.Service
	setFields(&s, lb.KeyFields(), e)
	for _, one := range e.SecondaryIPs {
		if a, err := netip.ParseAddr(one.SecondaryIP); err == nil {
			s.Secondary = append(s.Secondary, a)
		}
	}
	return s.OtherNames()
}

// setFields reads the fields of an entry. It leaves out unknown values of a newer server.
func setFields(s *lb.Service, fields []lb.Field[lb.Service], e *v1.LoadbalanceEntry) {
	properties := v1.PropertiesOf[v1.LoadbalanceEntry]()
	for i := range fields {
		if value, given := properties.Get(e, fields[i].Property); given {
			_ = fields[i].SetValue(s, value)
		}
	}
}

// description returns all of the server's data about a service, and its status.
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
		line(strings.ToUpper(f.Name[:1])+f.Name[1:], session.OneLine(f.Show(&s)))
	}
	if e.ObservedState != "" {
		line("State", e.ObservedState)
	}
	session.DescribeStatus(line, e.Status)
	b.WriteString("Endpoints:\n")
	header := []string{"Endpoint", "Port", "Weight", "State", "Packets", "Bytes"}
	if hasSources(e) {
		header = append(header, "Source")
	}
	t := session.NewTable(header...)
	for i := range e.Endpoints {
		p := &e.Endpoints[i]
		packets, bytes, _ := strings.Cut(p.Counter, ":")
		row := []string{p.EndpointIP, portCell(p.TargetPort, p.TargetPortMax), cmp.Or(weightCell(p), "-"), stateCell(&e.ServiceArguments, p), packets, bytes}
		t.Add(append(row, p.Source)[:len(header)]...)
	}
	b.WriteString(t.String())
	return b.String()
}

// objectOf returns the object's name in events.
func objectOf(s *v1.Status) string { return s.Kind + " " + s.Key }

// problems returns the current failures of objects other than services. A server without statuses
// of services has no others either.
func problems(ctx context.Context, o *session.Options, client *v1.Client, list []v1.LoadbalanceEntry) ([]v1.Status, error) {
	if len(list) == 0 || list[0].Status == nil {
		return nil, nil
	}
	failed, err := session.DecodeAs[v1.StatusList](o.Answer(client.GetStatuses(ctx, &v1.GetStatusesParams{Failed: true})))
	return failed.StatusAttr, err
}

// endpointsDown returns the services' endpoints that probes or agents report as down; none if no
// service considers it.
func endpointsDown(ctx context.Context, o *session.Options, client *v1.Client, list []v1.LoadbalanceEntry) ([]v1.EndpointProbe, error) {
	var names []string
	for i := range list {
		for j := range list[i].Endpoints {
			if e := &list[i].Endpoints[j]; e.State == "inactive" && !slices.Contains(names, e.EndpointIP) {
				names = append(names, e.EndpointIP)
			}
		}
	}
	if len(names) == 0 {
		return nil, nil
	}
	params := &v1.GetEndpointsParams{Selector: "currState in (nok,red)"}
	if len(names) <= maxNamed {
		params.Name = strings.Join(names, ",")
	}
	all, err := session.DecodeAs[v1.EndpointProbeList](o.Answer(client.GetEndpoints(ctx, params)))
	return slices.DeleteFunc(all.Attr, func(e v1.EndpointProbe) bool { return e.CurrState != "nok" && e.CurrState != "red" }), err
}

// maxNamed bounds the endpoints in a request.
const maxNamed = 100

// problemsOf returns what prevents packets from reaching the VIPs and endpoints of a service, a
// line each.
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
			text += fmt.Sprintf("%s  %s\n", session.Clock(failed[i].Since), failed[i].Error)
		}
	}
	seen := map[string]bool{}
	for i := range down {
		d := &down[i]
		at := probedAddress(d)
		if seen[at] {
			continue // probed in two ways
		}
		if slices.ContainsFunc(e.Endpoints, func(p v1.Endpoint) bool { return p.State == "inactive" && p.EndpointIP == d.HostName }) &&
			(slices.Contains(d.Services, keyOf(e)) || len(d.Services) >= 100) { // with more services the list is truncated
			seen[at] = true
			text += fmt.Sprintf("%s  endpoint %s is %s: %s\n", session.Clock(downSince(d)), at, probeState(d), downEvidence(d))
		}
	}
	if text == "" {
		return ""
	}
	return "Problems:\n" + text
}

// downSince returns when an endpoint went down.
func downSince(d *v1.EndpointProbe) time.Time {
	if n := len(d.History); n > 0 {
		return d.History[n-1].Time
	}
	return d.Since
}

// downEvidence returns the reason for which an endpoint went down, and the result of its last check
// if that is another: an endpoint without a route may refuse connections by now.
func downEvidence(d *v1.EndpointProbe) string {
	now := session.OneLine(d.Evidence)
	n := len(d.History)
	if n == 0 {
		return now
	}
	then := session.OneLine(d.History[n-1].Evidence)
	if now == "" || withoutCount(now) == withoutCount(then) {
		return then
	}
	if d.Checked.IsZero() {
		return then + "; last check: " + now
	}
	return then + "; last check " + session.Clock(d.Checked) + ": " + now
}

// withoutCount returns evidence without the number of equal results at its end, such as ", 2 of 3".
func withoutCount(evidence string) string {
	text, count, found := cutLast(evidence, ", ")
	var have, of int
	if n, err := fmt.Sscanf(count, "%d of %d", &have, &of); !found || n != 2 || err != nil {
		return evidence
	}
	return text
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// probedAddress returns the address and port of a probe; without a port, the address.
func probedAddress(d *v1.EndpointProbe) string {
	if d.ProbePort == 0 {
		return d.HostName
	}
	return net.JoinHostPort(d.HostName, strconv.Itoa(d.ProbePort))
}

// eventsOf returns the last events about each of the services, a line each, by object. A server
// that returns no status has no events either.
func eventsOf(ctx context.Context, o *session.Options, client *v1.Client, list []v1.LoadbalanceEntry) (map[string][]string, error) {
	if len(list) == 0 || list[0].Status == nil {
		return nil, nil
	}
	params := &v1.GetEventsParams{}
	if len(list) == 1 {
		params.Object = objectOf(list[0].Status)
	}
	events, err := session.DecodeAs[v1.EventList](o.Answer(client.GetEvents(ctx, params)))
	if err != nil {
		return nil, err
	}
	out := map[string][]string{}
	add := func(object string, e *v1.Event) {
		all := append(out[object], session.EventLine(e))
		out[object] = all[max(0, len(all)-session.DescribedEvents):]
	}
	for i := range events.EventAttr {
		e := &events.EventAttr[i]
		if e.Kind != "health" {
			add(e.Object, e)
			continue
		}
		for j := range list {
			if s := list[j].Status; s != nil && names(e.Message, s.Key) {
				add(objectOf(s), e)
			}
		}
	}
	return out, nil
}

// names reports whether the text of an event contains a service's whole key.
func names(text, key string) bool {
	return slices.Contains(strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" ,()", r) }), key)
}
