package traffic

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
	"loxilb/internal/cli/session"
	"loxilb/internal/lb/report"
)

// chosen has the filters of get ct.
type chosen struct {
	filter       connectionFilter
	offset, rate int
}

func getCT(o *session.Options) *cobra.Command {
	c := &chosen{}
	cmd := &cobra.Command{
		Use:     "ct [CLIENT]",
		Aliases: []string{"conntrack", "cts", "conntracks"},
		Short:   "Show connections, one line per direction",
		Long: "Lists connections, one line per direction, as a stream that uses constant memory. The server\n" +
			"filters, and stops at the limit; a connection must match all given flags. CLIENT is an address\n" +
			"or a network, such as 10.0.0.0/8. --sort-by with --limit (up to 10000) sorts at the server.\n\n" +
			"A line ends with the translation: dnat-IP:PORT:wWEIGHT towards the endpoint, snat-IP:PORT:wWEIGHT\n" +
			"back to the client; fdnat- and fsnat- with both addresses if the source is translated too; ddsr-\n" +
			"in mode dsr, which has one line. --watch shows connections that are opened, assured (handshake\n" +
			"complete, or the client sent after an answer), closing and ended.",
		Example: "  loxicmd get ct --service=web --state=est --limit=20\n  loxicmd get ct --service=20.20.20.1:2020/tcp --state=est\n" +
			"  loxicmd get ct 100.100.100.7\n  loxicmd get ct --sort-by=-bytes --limit=10\n" +
			"  loxicmd get ct --source=100.100.100.0/24 --limit=100 --offset=200\n" +
			"  loxicmd get ct -w --vip=20.20.20.1",
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	c.filter.flags(fs, "show only ")
	fs.IntVar(&c.rate, "rate", 10000, "with --watch: maximum events per second; beyond it, only some connections are shown, each with all its events")
	fs.IntVar(&c.offset, "offset", 0, "skip the first N lines")
	kind := c.kind()
	kind.Watch = func(ctx context.Context) error {
		if fs.Changed("limit") || fs.Changed("offset") || fs.Changed("state") {
			return fmt.Errorf("--limit, --offset and --state cannot be combined with --watch")
		}
		if err := session.AtLeast(1, "rate", c.rate); err != nil {
			return err
		}
		params := c.filter.watch()
		params.Rate = c.rate
		return watchConntracks(ctx, o, &params)
	}
	kind.GetWith(o, cmd)
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := c.check(args); err != nil {
			return err
		}
		if err := c.filter.checkService(cmd.Context(), o); err != nil {
			return err
		}
		return run(cmd, nil)
	}
	cmd.Args, cmd.ValidArgsFunction = cobra.MaximumNArgs(1), cobra.NoFileCompletions
	completeFilter(cmd)
	return cmd
}

// check handles the argument as --source.
func (c *chosen) check(args []string) error {
	if err := session.AtLeast(0, "offset", c.offset); err != nil {
		return err
	}
	if len(args) == 0 {
		return nil
	}
	if c.filter.source != "" {
		return fmt.Errorf("client %q cannot be combined with --source %q", args[0], c.filter.source)
	}
	if _, err := netip.ParseAddr(args[0]); err != nil {
		if _, err := netip.ParsePrefix(args[0]); err != nil {
			return fmt.Errorf("client %q is not an IP address or a network such as 10.0.0.0/8", args[0])
		}
	}
	c.filter.source = args[0]
	return nil
}

func (c *chosen) kind() session.Kind[v1.ConntrackList, v1.ConntrackEntry] {
	return session.Kind[v1.ConntrackList, v1.ConntrackEntry]{
		Word: "ct", Key: "ctAttr", Served: true, Stream: true,
		Fetch: func(client *v1.Client, ctx context.Context, edit ...v1.RequestEditorFn) (*http.Response, error) {
			params := c.filter.get()
			params.Offset = c.offset
			return client.GetConntracks(ctx, &params, append(edit, unsorted)...)
		},
		Items: func(l *v1.ConntrackList) *[]v1.ConntrackEntry { return &l.CtAttr },
		Name: func(c *v1.ConntrackEntry) string {
			return netJoin(c.SourceIP, c.SourcePort) + ">" + netJoin(c.DestinationIP, c.DestinationPort) + "/" + c.Protocol
		},
		Fields: map[string]string{"state": "conntrackState"},
		Words:  map[string][]string{"conntrackState": report.ConnectionStates()},
		Draw:   conntrackTable,
	}
}

// unsorted asks the server to sort only if it returns a part of the list.
func unsorted(_ context.Context, r *http.Request) error {
	if q := r.URL.Query(); q.Get("limit") == "" {
		q.Del("sortBy")
		r.URL.RawQuery = q.Encode()
	}
	return nil
}

func netJoin(ip string, port uint16) string {
	a, err := netip.ParseAddr(ip)
	if err != nil {
		return ip + ":" + strconv.Itoa(int(port))
	}
	return netip.AddrPortFrom(a, port).String()
}

func conntrackTable(list *v1.ConntrackList) *session.Table {
	t := session.NewTable("Service Name", "destIP", "srcIP", "dport", "sport", "proto", "ident", "state", "act", "packets", "bytes")
	for i := range list.CtAttr {
		c := &list.CtAttr[i]
		t.Add(c.ServName, c.DestinationIP, c.SourceIP,
			strconv.Itoa(int(c.DestinationPort)), strconv.Itoa(int(c.SourcePort)),
			c.Protocol, c.Ident, c.ConntrackState, c.ConntrackAct,
			strconv.FormatUint(c.Packets, 10), strconv.FormatUint(c.Bytes, 10))
	}
	return t
}
