package connections

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	v1 "loxilb/api/v1"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// connectionFilter chooses connections.
type connectionFilter struct{ protocol, vip, servName, service, state, source, endpoint string }

// flags adds a flag for each choice. begin is how their help begins.
func (f *connectionFilter) flags(fs *pflag.FlagSet, begin string) {
	fs.StringVar(&f.servName, "servName", "", begin+"connections of services with this name")
	fs.StringVar(&f.service, "service", "", begin+"connections of this service: IP:PORT/PROTOCOL, or a name")
	fs.StringVar(&f.vip, "vip", "", begin+"connections to this VIP")
	fs.StringVar(&f.protocol, "proto", "", begin+"connections of this protocol (tcp, udp, icmp)")
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
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
	}
}
