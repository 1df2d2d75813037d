package traffic

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/listing"
	"loxilb/internal/cli/session"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// connectionFilter selects connections.
type connectionFilter struct{ protocol, vip, servName, service, state, source, endpoint string }

// flags adds the filter's flags. begin is the beginning of their help.
func (f *connectionFilter) flags(fs *pflag.FlagSet, begin string) {
	fs.StringVar(&f.servName, "servName", "", begin+"connections of services with this name")
	fs.StringVar(&f.service, "service", "", begin+"connections of this service: IP:PORT/PROTOCOL, or a name")
	fs.StringVar(&f.vip, "vip", "", begin+"connections to this VIP")
	fs.StringVar(&f.protocol, "proto", "", begin+"connections of this protocol (tcp, udp, sctp, icmp)")
	fs.StringVar(&f.state, "state", "", begin+"connections in this state, as shown by get ct")
	fs.StringVar(&f.source, "source", "", begin+"connections of this client, IP or IP/LENGTH")
	fs.StringVar(&f.endpoint, "endpoint", "", begin+"connections with this endpoint, IP or IP:PORT")
}

func (f *connectionFilter) get() v1.GetConntracksParams {
	return v1.GetConntracksParams{
		Protocol: f.protocol, Vip: f.vip, ServName: f.servName, Service: f.service, State: f.state, Source: f.source, Endpoint: f.endpoint,
	}
}

func (f *connectionFilter) end() v1.EndConntracksParams {
	return v1.EndConntracksParams{
		Protocol: f.protocol, Vip: f.vip, ServName: f.servName, Service: f.service, State: f.state, Source: f.source, Endpoint: f.endpoint,
	}
}

func (f *connectionFilter) watch() v1.WatchConntracksParams {
	return v1.WatchConntracksParams{
		Protocol: f.protocol, Vip: f.vip, ServName: f.servName, Service: f.service, Source: f.source, Endpoint: f.endpoint,
	}
}

// completeFilter offers the states, and the protocols.
func completeFilter(cmd *cobra.Command) {
	for flag, words := range map[string][]string{"state": report.ConnectionStates(), "proto": lb.ProtocolWords()} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)) // fails only for unknown flags
	}
}

// checkService returns an error if neither a service nor a connection has the filter's name or key.
// Connections of a deleted service keep its name, so they are searched, too.
func (f *connectionFilter) checkService(ctx context.Context, o *session.Options) error {
	client, err := o.Client()
	if err != nil {
		return err
	}
	for _, name := range []string{f.servName, f.service} {
		if name == "" {
			continue
		}
		there, err := hasService(ctx, o, client, name)
		if err != nil || there {
			return err
		}
		only := v1.GetConntracksParams{ServName: f.servName, Service: f.service, Limit: 1}
		body, err := o.Answer(client.GetConntracks(ctx, &only))
		if err != nil {
			return err
		}
		var list v1.ConntrackList
		if err := session.Decode(body, &list); err != nil || len(list.CtAttr) > 0 {
			return err
		}
		return session.Refused("service %q not found: give its name, or its key such as 20.20.20.1:2020/tcp", name)
	}
	return nil
}

// hasService reports whether a service has a name or key; true if the server does not return keys.
func hasService(ctx context.Context, o *session.Options, client *v1.Client, name string) (bool, error) {
	if key, err := lb.ParseKey(name); err == nil {
		name = key.String()
	}
	list, err := session.DecodeAs[v1.LoadbalanceList](o.Answer(client.GetLoadbalancers(ctx, &v1.GetLoadbalancersParams{Name: listing.JoinNames([]string{name})})))
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(list.LbAttr, func(e v1.LoadbalanceEntry) bool {
		return e.ServiceArguments.Name == name || e.Status == nil || e.Status.Key == name
	}), nil
}

// watchConntracks prints events of connections until interrupted.
func watchConntracks(ctx context.Context, o *session.Options, params *v1.WatchConntracksParams) error {
	return o.Follow(ctx, func(client *v1.Client, asStream v1.RequestEditorFn) (*http.Response, error) {
		return client.WatchConntracks(ctx, params, asStream)
	}, func(item json.RawMessage) error {
		if o.Output == "json" {
			return o.Print(string(item) + "\n")
		}
		var e v1.ConntrackEvent
		if err := session.Decode(item, &e); err != nil {
			return err
		}
		return o.Print(conntrackEventLine(&e))
	})
}

func conntrackEventLine(e *v1.ConntrackEvent) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %-7s  %-4s  %s > %s  %s", e.Time.Format(time.RFC3339Nano), e.Act, e.Protocol, e.Client, e.Vip, e.Endpoint)
	if e.Source != e.Client {
		fmt.Fprintf(&b, " from %s", e.Source)
	}
	fmt.Fprintf(&b, "  %s", e.ServName)
	if e.Reason != "" {
		fmt.Fprintf(&b, "  %s", e.Reason)
	}
	if e.ClosedBy != "" {
		fmt.Fprintf(&b, " by %s", e.ClosedBy)
	}
	if e.Reason != "" {
		fmt.Fprintf(&b, "  in %d packets, %d bytes  out %d packets, %d bytes", e.PacketsIn, e.BytesIn, e.PacketsOut, e.BytesOut)
	}
	if e.OneOf > 1 {
		fmt.Fprintf(&b, "  (sampled 1 of %d connections)", e.OneOf)
	}
	return b.String() + "\n"
}
