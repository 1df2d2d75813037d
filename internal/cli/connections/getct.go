package connections

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
	"loxilb/internal/cli/session"
	"loxilb/internal/lb"
)

// chosen is what get ct asks for.
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
		Long: "Shows connections, a line for each direction, as they come from the server: any number of them takes no\n" +
			"memory. The server does the choosing, and looks no further when it has enough; several flags choose what has all of them.\n" +
			"CLIENT is an address, or a network as 10.0.0.0/8. --sort-by with --limit, up to 10000, sorts at the server.",
		Example: "  loxicmd get ct --service=web --state=est --limit=20\n  loxicmd get ct --service=20.20.20.1:2020/tcp --state=est\n" +
			"  loxicmd get ct 100.100.100.7\n  loxicmd get ct --sort-by=-bytes --limit=10\n" +
			"  loxicmd get ct --source=100.100.100.0/24 --limit=100 --offset=200\n" +
			"  loxicmd get ct -w --vip=20.20.20.1",
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	c.filter.flags(fs, "only ")
	fs.IntVar(&c.rate, "rate", 10000, "with --watch: so many events a second; of more, all of some connections are shown")
	fs.IntVar(&c.offset, "offset", 0, "leave out so many lines first")
	kind := c.kind()
	kind.Watch = func(ctx context.Context) error {
		if fs.Changed("limit") || fs.Changed("offset") || fs.Changed("state") {
			return fmt.Errorf("--limit, --offset and --state do not go with --watch, which shows what happens from now on")
		}
		if err := session.AtLeast(1, "rate", c.rate); err != nil {
			return err
		}
		params := c.filter.watch()
		params.Rate = c.rate
		return watchConntracks(ctx, o, &params)
	}
	kind.Get(o, cmd)
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

// check takes the argument for --source.
func (c *chosen) check(args []string) error {
	if err := session.AtLeast(0, "offset", c.offset); err != nil {
		return err
	}
	if len(args) == 0 {
		return nil
	}
	if c.filter.source != "" {
		return fmt.Errorf("%q does not go with --source %s: which client is meant?", args[0], c.filter.source)
	}
	if _, err := netip.ParseAddr(args[0]); err != nil {
		if _, err := netip.ParsePrefix(args[0]); err != nil {
			return fmt.Errorf("%q is neither an address of a client nor a network, as 10.0.0.0/8", args[0])
		}
	}
	c.filter.source = args[0]
	return nil
}

func (c *chosen) kind() session.Kind[v1.ConntrackList, v1.ConntrackEntry] {
	return session.Kind[v1.ConntrackList, v1.ConntrackEntry]{
		Word: "ct", Key: "ctAttr", Served: true, Stream: true,
		Ask: func(client *v1.Client, ctx context.Context, edit ...v1.RequestEditorFn) (*http.Response, error) {
			params := c.filter.get()
			params.Offset = c.offset
			return client.GetConntracks(ctx, &params, append(edit, unsorted)...)
		},
		Items: func(l *v1.ConntrackList) *[]v1.ConntrackEntry { return &l.CtAttr },
		Name: func(c *v1.ConntrackEntry) string {
			return netJoin(c.SourceIP, c.SourcePort) + ">" + netJoin(c.DestinationIP, c.DestinationPort) + "/" + c.Protocol
		},
		Fields: map[string]string{"state": "conntrackState"},
		Words:  map[string][]string{"conntrackState": lb.ConnectionStates()},
		Draw:   conntrackTable,
	}
}

// unsorted has the server sort only what it sends a part of.
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
