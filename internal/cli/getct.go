package cli

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
)

// tableChunk is how many rows are held to find the widths of columns.
const tableChunk = 1000

func getCT(o *options) *cobra.Command {
	var filter connectionFilter
	var watch bool
	var limit, offset, rate int
	cmd := &cobra.Command{
		Use:     "ct",
		Aliases: []string{"conntrack", "cts", "conntracks"},
		Short:   "show connections, a line for each direction",
		Long: "Shows connections, a line for each direction, as they come from the server: any number of them takes no\n" +
			"memory. The server does the choosing; several flags choose what has all of them.",
		Example: "  loxicmd get ct --service=20.20.20.1:2020/tcp --state=est\n" +
			"  loxicmd get ct --source=100.100.100.0/24 --limit=100 --offset=200\n" +
			"  loxicmd get ct -w --vip=20.20.20.1",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 0 || offset < 0 {
				return fmt.Errorf("--limit and --offset are 0 or more")
			}
			if watch {
				if cmd.Flags().Changed("limit") || cmd.Flags().Changed("offset") || cmd.Flags().Changed("state") {
					return fmt.Errorf("--limit, --offset and --state stand beside --watch, which shows what happens from now on")
				}
				if rate < 1 {
					return fmt.Errorf("--rate is 1 or more")
				}
				params := filter.watch()
				params.Rate = rate
				return o.watchConntracks(cmd.Context(), &params)
			}
			client, err := o.client()
			if err != nil {
				return err
			}
			params := filter.get()
			params.Limit, params.Offset = limit, offset
			resp, err := client.GetConntracks(cmd.Context(), &params)
			if o.output == "json" || o.output == "yaml" {
				list := &rawList{o: o, key: "ctAttr"}
				if err := o.eachOf(resp, err, "ctAttr", list.add); err != nil {
					return err
				}
				return list.end()
			}
			return o.printConntracks(func(f func(json.RawMessage) error) error { return o.eachOf(resp, err, "ctAttr", f) })
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	filter.flags(fs, "only ")
	fs.IntVar(&limit, "limit", 0, "at most so many lines; 0 is all")
	fs.BoolVarP(&watch, "watch", "w", false, "show connections as they are opened, assured, closing and ended, until interrupted")
	fs.IntVar(&rate, "rate", 10000, "with --watch: so many events a second; of more, all of some connections are shown")
	fs.IntVar(&offset, "offset", 0, "leave out so many lines first")
	return cmd
}

// printConntracks prints a table in chunks; columns are as wide as they have to be so far.
func (o *options) printConntracks(each func(func(json.RawMessage) error) error) error {
	t := newTable("Service Name", "destIP", "srcIP", "dport", "sport", "proto", "ident", "state", "act", "packets", "bytes")
	err := each(func(item json.RawMessage) error {
		var c v1.ConntrackEntry
		if err := decode(item, &c); err != nil {
			return err
		}
		t.add(c.ServName, c.DestinationIP, c.SourceIP,
			strconv.Itoa(int(c.DestinationPort)), strconv.Itoa(int(c.SourcePort)),
			c.Protocol, c.Ident, c.ConntrackState, c.ConntrackAct,
			strconv.FormatUint(c.Packets, 10), strconv.FormatUint(c.Bytes, 10))
		if len(t.rows) < tableChunk {
			return nil
		}
		return o.print(t.chunk())
	})
	if err != nil {
		return err
	}
	return o.print(t.chunk())
}
