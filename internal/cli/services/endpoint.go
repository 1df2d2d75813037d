package services

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
	"loxilb/internal/cli/session"
	"loxilb/internal/kinds"
	"loxilb/internal/lb"
)

// endpointFlags are the flags of create endpoint.
type endpointFlags struct {
	session.FieldFlags[lb.EndpointProbe, v1.EndpointProbe]
	period time.Duration
}

func createEndpoint(o *session.Options) *cobra.Command {
	f := &endpointFlags{FieldFlags: session.NewFieldFlags[lb.EndpointProbe, v1.EndpointProbe](lb.EndpointProbeFields())}
	cmd := &cobra.Command{
		Use:     "endpoint IP",
		Aliases: kinds.Endpoint().Aliases,
		Short:   "Probe an address, or report the state of a service's endpoint",
		Long: "Probes an address, whether or not it is an endpoint of a service. If a monitored service has a\n" +
			"probe of the same name, such as 10.0.0.1_tcp_8080, this probe replaces it. The default probe is\n" +
			"a ping.",
		Example: "  loxicmd create endpoint 10.0.0.1 --probetype=http --probeport=8080 --probereq=/health --probe-interval=500ms\n" +
			"  loxicmd create endpoint 10.0.0.1 --name=10.0.0.1_tcp_8080 --probetype=ping",
		Args: session.Exactly("the address, as in: loxicmd create endpoint 10.0.0.1 --probetype=tcp --probeport=8080"),
		RunE: func(cmd *cobra.Command, args []string) error {
			e, err := f.request(args[0])
			if err != nil {
				return err
			}
			return o.Create(cmd.Context(), func(ctx context.Context, c *v1.Client) (*http.Response, error) {
				return c.CreateEndpoint(ctx, e)
			})
		},
	}
	f.register(cmd)
	return cmd
}

func (f *endpointFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.SortFlags = false
	f.FieldFlags.Register(cmd)
	fs.Lookup("probetype").DefValue = lb.ProbePing.String()
	alias := func(name, of string) { fs.Var(fs.Lookup(of).Value, name, "alias of --"+of) }
	alias("desc", "name")
	session.DurationVar(fs, &f.period, "period", "", 0, "alias of --probe-interval, in whole seconds up to 86400")
	alias("retries", "probe-retries")
	cmd.Annotations["probeDuration"] = "--period"
	cmd.MarkFlagsMutuallyExclusive("desc", "name")
	cmd.MarkFlagsMutuallyExclusive("period", "probe-interval")
	cmd.MarkFlagsMutuallyExclusive("retries", "probe-retries")
}

func (f *endpointFlags) request(ip string) (v1.EndpointProbe, error) {
	e := f.Entry()
	if f.period < 0 || f.period%time.Second != 0 {
		return e, fmt.Errorf("--period %s is out of range (allowed: whole seconds, up to 86400)", f.period)
	}
	if _, err := lb.ParseAddr(lb.FieldEndpointAddress, ip); err != nil {
		return e, err
	}
	e.HostName, e.ProbeDuration = ip, v1.Seconds(f.period/time.Second)
	e.ProbeType = cmp.Or(e.ProbeType, lb.ProbePing.String()) // the existing loxilb's server requires it
	return e, nil
}

func deleteEndpoint(o *session.Options) *cobra.Command {
	params := &v1.DeleteEndpointParams{}
	var port uint16
	cmd := &cobra.Command{
		Use:     "endpoint IP",
		Aliases: kinds.Endpoint().Aliases,
		Short:   "Delete a probe made by create endpoint",
		Long: "Deletes a probe made by create endpoint. Endpoints of a monitored service are still probed as\n" +
			"the service configures it.",
		Example: "  loxicmd delete endpoint 10.0.0.1 --probetype=tcp --probeport=8080\n" +
			"  loxicmd delete endpoint 10.0.0.1 --name=10.0.0.1_tcp_8080",
		Args: session.Exactly("the address, as in: loxicmd delete endpoint 10.0.0.1 --probetype=tcp --probeport=8080"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := lb.ParseAddr(lb.FieldEndpointAddress, args[0]); err != nil {
				return err
			}
			params.ProbePort = strconv.Itoa(int(port))
			return o.Change(cmd.Context(), func(ctx context.Context, c *v1.Client) (*http.Response, error) {
				return c.DeleteEndpoint(ctx, args[0], params)
			})
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&params.Name, "name", "", "name of the probe, if it has one")
	fs.StringVar(&params.ProbeType, "probetype", lb.ProbePing.String(), "type of the probe")
	fs.Uint16Var(&port, "probeport", 0, "port of the probe")
	return cmd
}

func endpointKind(o *session.Options) session.Kind[v1.EndpointProbeList, v1.EndpointProbe] {
	return session.Kind[v1.EndpointProbeList, v1.EndpointProbe]{
		Word: "endpoint", Aliases: kinds.Endpoint().Aliases,
		DescribeHelp: session.Help{Short: "Show an endpoint in full, with its probe, services, status and events", Example: "  loxicmd describe endpoint 10.0.0.1"},
		Key:          "Attr", Hint: ": give its address, with :PORT or not, or its name such as 10.0.0.1_tcp_8080",
		Served: true, Named: []string{"name", "hostName"},
		Fetch: func(c *v1.Client, ctx context.Context, edit ...v1.RequestEditorFn) (*http.Response, error) {
			return c.GetEndpoints(ctx, &v1.GetEndpointsParams{}, edit...)
		},
		Items:      func(l *v1.EndpointProbeList) *[]v1.EndpointProbe { return &l.Attr },
		Name:       func(e *v1.EndpointProbe) string { return e.Name },
		OtherNames: func(e *v1.EndpointProbe) []string { return []string{e.HostName} },
		Addresses: func(e *v1.EndpointProbe) []string {
			return []string{net.JoinHostPort(e.HostName, strconv.Itoa(e.ProbePort))}
		},
		Fields: map[string]string{"state": "observedState", "host": "hostName", "service": "services", "port": "probePort"},
		Words:  map[string][]string{"observedState": {"up", "unprobed", "standby", "draining", "drained", "panic", "down"}},
		Draw: func(l *v1.EndpointProbeList) *session.Table {
			return endpointTable(l.Attr, o.Output == "wide", o.Compat())
		},
		Correct: func(e *v1.EndpointProbe, shown map[string]any) {
			if !sinceKnown(e) {
				shown["since"] = "-"
			}
			if downElsewhere(e) {
				shown["evidence"] = e.Evidence + foundElsewhere
			}
		},
		More: func(ctx context.Context, e *v1.EndpointProbe) (string, error) { return endpointRates(ctx, o, e) },
		Events: func(e *v1.EndpointProbe) []string {
			return []string{net.JoinHostPort(e.HostName, strconv.Itoa(e.ProbePort)), e.HostName, "endpoint " + e.HostName}
		},
	}
}

func getEndpoint(o *session.Options) *cobra.Command {
	kind := endpointKind(o)
	cmd := kind.GetWith(o, &cobra.Command{
		Short:   "Show endpoints and their probe results; -o wide shows the last changes",
		Example: "  loxicmd get endpoint\n  loxicmd get ep 10.0.0.1 -o wide\n  loxicmd get ep --state=down --sort-by=-since --limit=20\n  loxicmd get ep -o wide --name=10.0.0.1_tcp_8080",
	})
	kind.Choose(cmd, "name", "show only the endpoint with this name, or endpoints with this address", "")
	kind.Choose(cmd, "state", "show only endpoints in this state: up, unprobed, standby, draining, drained, panic or down", "observedState")
	kind.Choose(cmd, "service", "show only endpoints of this service, IP:PORT/PROTOCOL", "services")
	return cmd
}

// probeState returns the state of a probed address: the contract's state if the server returns no
// other.
func probeState(e *v1.EndpointProbe) string { return cmp.Or(e.ObservedState, e.CurrState) }

// sinceKnown reports whether the server knows the start of an endpoint's state: it knows the time
// of a probe's result, not of a drain, nor of the failure that another check has found.
func sinceKnown(e *v1.EndpointProbe) bool {
	return e.ObservedState != "draining" && e.ObservedState != "drained" && !downElsewhere(e)
}

// downElsewhere reports whether a check other than this probe has found the endpoint down, such as
// clients' handshakes.
func downElsewhere(e *v1.EndpointProbe) bool {
	return e.CurrState == "ok" && (e.ObservedState == "down" || e.ObservedState == "panic")
}

func sinceCell(e *v1.EndpointProbe) string {
	if !sinceKnown(e) {
		return "-"
	}
	return session.ShortTime(e.Since)
}

// endpointTable has the contract's columns, and columns that explain the state. A wide table adds
// the last changes of each endpoint. With compat, the cells are also the contract's.
func endpointTable(list []v1.EndpointProbe, wide, compat bool) *session.Table {
	header := []string{"Host", "Name", "ptype", "port", "duration", "retries", "minDelay", "avgDelay", "maxDelay", "State", "Since", "Evidence"}
	if wide {
		header = append(header, "Services", "History")
	}
	t := session.NewTable(header...)
	t.LeaveOut("duration", lb.DefaultProbeInterval.String())
	t.LeaveOut("retries", strconv.Itoa(lb.DefaultProbeFall))
	t.LeaveOut("avgDelay", "")
	if !wide {
		t.LeaveOut("minDelay")
		t.LeaveOut("maxDelay")
	}
	for i := range list {
		e := &list[i]
		period, state := cmp.Or(string(e.ProbeInterval), e.ProbeDuration.String()+"s"), probeState(e)
		if compat {
			period, state = e.ProbeDuration.String(), e.CurrState
		}
		evidence := evidenceCell(e, e.Evidence)
		if downElsewhere(e) && !compat {
			evidence += foundElsewhere
		}
		row := []string{
			e.HostName, e.Name, probeCell(e), strconv.Itoa(e.ProbePort), period,
			strconv.Itoa(e.InactiveReTries), e.MinDelay, e.AvgDelay, e.MaxDelay, state, sinceCell(e), evidence,
		}
		if !wide {
			t.Add(row...)
			continue
		}
		for line := range max(1, len(e.History), len(e.Services)) {
			if line > 0 {
				row = make([]string, len(header)-2)
			}
			service, change := "", ""
			if line < len(e.Services) {
				service = e.Services[line]
			}
			if n := len(e.History) - 1 - line; n >= 0 {
				c := &e.History[n]
				change = fmt.Sprintf("%s %s: %s", session.ShortTime(c.Time), c.To, evidenceCell(e, c.Evidence))
			}
			t.Add(append(row, service, change)...)
		}
	}
	return t
}

// evidenceCell returns a probe's evidence without the probe and the address, which other columns
// show.
func evidenceCell(e *v1.EndpointProbe, evidence string) string {
	at := e.ProbeType + " " + net.JoinHostPort(e.HostName, strconv.Itoa(e.ProbePort)) + ": "
	return cmp.Or(session.OneLine(strings.TrimPrefix(evidence, at)), "-")
}

// foundElsewhere is appended to the evidence of a successful probe of an endpoint that is down.
const foundElsewhere = "; another check has found it down"

// probeCell returns the type and the request of a probe.
func probeCell(e *v1.EndpointProbe) string { return e.ProbeType + ":" + session.OneLine(e.ProbeReq) }
