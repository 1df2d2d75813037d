package network

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
	"loxilb/internal/cli/session"
	"loxilb/internal/kinds"
	"loxilb/internal/lb"
	"loxilb/internal/lb/bgp"
)

// neighborFlags are the flags of create bgpneighbor.
type neighborFlags struct {
	body         v1.BgpNeighbor
	passwordFile string
	noPassword   bool
	bfd          time.Duration
	multiplier   int
	hold, retry  time.Duration
	keepalive    time.Duration
}

func createBGPNeighbor(o *session.Options) *cobra.Command {
	f := &neighborFlags{}
	cmd := &cobra.Command{
		Use:     "bgpneighbor PEER ASN",
		Aliases: kinds.BGPNeighbor().Aliases,
		Short:   "Create or change a BGP neighbor",
		Long: "Creates a BGP neighbor at an IP address or, without one, behind an interface. Announces VIPs to\n" +
			"it once this node is a BGP speaker (loxicmd set bgp).",
		Example: "  loxicmd create bgpneighbor 10.0.0.254 65001\n" +
			"  loxicmd create bgpneighbor 10.0.0.254 65001 --bfd=100ms --password-file=/root/bgp-password\n" +
			"  loxicmd create bgpneighbor 192.0.2.1 4200000001 --setMultiHtop --source=10.0.0.1\n" +
			"  loxicmd create bgpneighbor eth0 65001",
		Args:        session.Arguments("PEER", "ASN"),
		Annotations: map[string]string{"bfd.interval": "--bfd"},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.complete(o, args); err != nil {
				return err
			}
			return o.CreateAt(cmd.Context(), kinds.BGPNeighbor(), &f.body)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.IntVar(&f.body.RemotePort, "remotePort", 179, "TCP port at which the neighbor listens")
	fs.BoolVar(&f.body.SetMultiHop, "setMultiHtop", false, "the neighbor is on no connected network (spelled as in earlier loxilb)")
	fs.IntVar(&f.body.MultihopTTL, "multihop-ttl", 0, "TTL of packets to a neighbor on no connected network (default 8)")
	fs.StringVar(&f.body.Source, "source", "", "address of this node for the session")
	fs.StringVar(&f.passwordFile, "password-file", "", "file with the password of TCP MD5 signatures; - is standard input")
	fs.BoolVar(&f.noPassword, "no-password", false, "remove the stored password, which stays otherwise")
	session.DurationVar(fs, &f.hold, "hold-time", "", 0, "end the session after this time without a message, 3s to 65535s (default 90s)")
	session.DurationVar(fs, &f.keepalive, "keepalive-time", "", 0, "time between keepalive messages (default: a third of --hold-time)")
	session.DurationVar(fs, &f.retry, "connect-retry", "", 0, "time between attempts to connect")
	fs.BoolVar(&f.body.Passive, "passive", false, "wait for the neighbor to connect")
	session.DurationVar(fs, &f.bfd, "bfd", "", 0, "detect a silent neighbor by BFD packets at this interval, such as 100ms")
	fs.IntVar(&f.multiplier, "bfd-multiplier", 0, "number of missing BFD packets (default 3)")
	fs.BoolVar(&f.body.NoGracefulRestart, "no-graceful-restart", false, "have the neighbor drop routes as soon as the session ends; --bfd implies it")
	return cmd
}

// complete sets properties that depend on several flags.
func (f *neighborFlags) complete(o *session.Options, args []string) (err error) {
	f.body.IpAddress = args[0]
	if _, err := netip.ParseAddr(args[0]); err != nil && lb.ValidateDevice("PEER", args[0]) == nil && !looksLikeAddress(args[0]) {
		f.body.IpAddress, f.body.Interface = "", args[0]
	}
	if f.body.RemoteAs, err = kinds.ParseASN("ASN", args[1]); err != nil {
		return err
	}
	if f.passwordFile != "" {
		if f.noPassword {
			return errors.New("--no-password cannot be combined with --password-file")
		}
		password, err := o.ReadSecret("password-file", f.passwordFile)
		if err != nil {
			return err
		}
		f.body.Password = &password
	}
	if f.noPassword {
		f.body.Password = new(string)
	}
	f.body.HoldTime, f.body.KeepaliveTime = kinds.TimeText(f.hold), kinds.TimeText(f.keepalive)
	f.body.ConnectRetry = kinds.TimeText(f.retry)
	if f.bfd != 0 || f.multiplier != 0 {
		f.body.Bfd = &v1.BgpBfd{Interval: kinds.TimeText(f.bfd), Multiplier: f.multiplier}
	}
	return nil
}

// looksLikeAddress reports whether a text is probably a mistyped address, and not an interface.
func looksLikeAddress(text string) bool { return strings.Trim(text, "0123456789.") == "" }

func deleteBGPNeighbor(o *session.Options) *cobra.Command {
	return &cobra.Command{
		Use:     "bgpneighbor PEER [ASN]",
		Aliases: kinds.BGPNeighbor().Aliases,
		Short:   "Delete a BGP neighbor",
		Long:    "Deletes a BGP neighbor. With an AS number, a neighbor with another one stays.",
		Example: "  loxicmd delete bgpneighbor 10.0.0.254\n  loxicmd delete bgpneighbor 10.0.0.254 65001",
		Args:    session.Arguments("PEER", "[ASN]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			query := url.Values{}
			if looksLikeAddress(args[0]) {
				if _, err := bgp.ParseNeighborAddr(args[0]); err != nil {
					return err
				}
			}
			if len(args) > 1 {
				asn, err := kinds.ParseASN("ASN", args[1])
				if err != nil {
					return err
				}
				query.Set("remoteAs", strconv.FormatInt(asn, 10))
			}
			return o.Change(cmd.Context(), func(ctx context.Context, c *v1.Client) (*http.Response, error) {
				return session.DeleteAt(ctx, c, kinds.BGPNeighbor(), args[0], query)
			})
		},
	}
}
