package speaker

import (
	"errors"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/osrg/gobgp/v4/pkg/config/oc"

	"loxilb/internal/lb/bgp"
)

// FileDir is where the existing loxilb has its configuration of gobgpd.
const FileDir = "/etc/gobgp"

// File is what a configuration file of gobgpd configures.
type File struct {
	Path         string
	Speaker      bgp.Speaker
	Neighbors    []bgp.Neighbor
	Sets         []bgp.DefinedSet
	Policies     []bgp.Policy
	Applications []bgp.Application
	Notes        []string // unsupported settings, a sentence each
}

// FindFile returns the file that the existing loxilb would read on a host; "": there is none.
func FindFile(dir, host string) string {
	for _, name := range []string{"gobgp" + host + ".conf", "gobgp.conf", "gobgp_loxilb.yaml"} {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			return path
		}
	}
	return ""
}

// ReadFile reads a file: YAML, or TOML if its name ends otherwise.
func ReadFile(path string) (*File, error) {
	format := "toml"
	if ext := filepath.Ext(path); ext == ".yaml" || ext == ".yml" {
		format = "yaml"
	}
	text, err := oc.ReadConfigfile(path, format)
	if err != nil {
		return nil, err
	}
	c := &File{Path: path}
	c.readGlobal(&text.Global)
	for i := range text.Neighbors {
		n := &text.Neighbors[i]
		// The library has given each neighbor the settings of its peer group.
		if g := n.Config.PeerGroup; g != "" && !slices.ContainsFunc(text.PeerGroups, func(p oc.PeerGroup) bool { return p.Config.PeerGroupName == g }) {
			c.note("a neighbor of peer group " + strconv.Quote(g) + " is left out: there is no such group")
			continue
		}
		c.readNeighbor(n)
	}
	c.readSets(&text.DefinedSets)
	for i := range text.PolicyDefinitions {
		c.Policies = append(c.Policies, c.policyOf(&text.PolicyDefinitions[i]))
	}
	for what, count := range map[string]int{
		"dynamic-neighbors": len(text.DynamicNeighbors), "rpki-servers": len(text.RpkiServers), "bmp-servers": len(text.BmpServers),
		"vrfs": len(text.Vrfs), "mrt-dump": len(text.MrtDump),
	} {
		if count > 0 {
			c.note(what + " are left out")
		}
	}
	if text.Zebra.Config.Enabled {
		c.note("zebra is left out: set install, to have routes of neighbors in the kernel")
	}
	return c, nil
}

func (c *File) note(text string) { c.Notes = append(c.Notes, text) }

func (c *File) readGlobal(g *oc.Global) {
	c.Speaker = bgp.Speaker{ASN: g.Config.As, RouterID: g.Config.RouterId}
	switch port := g.Config.Port; {
	case port < 0:
		c.note("port -1 is left out: the speaker listens")
	case port != bgp.DefaultPort:
		c.Speaker.Port = uint16(port)
	}
	if restart := g.GracefulRestart.Config; restart.Enabled {
		c.Speaker.GracefulRestart = time.Duration(restart.RestartTime) * time.Second
	}
	c.apply(bgp.AllNeighbors, &g.ApplyPolicy.Config)
}

// apply adds the policies for routes from and to a neighbor.
func (c *File) apply(neighbor string, p *oc.ApplyPolicyConfig) {
	for _, a := range []bgp.Application{
		{Neighbor: neighbor, Import: true, Policies: p.ImportPolicyList, Reject: p.DefaultImportPolicy == oc.DEFAULT_POLICY_TYPE_REJECT_ROUTE},
		{Neighbor: neighbor, Policies: p.ExportPolicyList, Reject: p.DefaultExportPolicy == oc.DEFAULT_POLICY_TYPE_REJECT_ROUTE},
	} {
		if len(a.Policies) > 0 || a.Reject {
			c.Applications = append(c.Applications, a)
		}
	}
}

func (c *File) readNeighbor(from *oc.Neighbor) {
	n := bgp.Neighbor{
		Addr: from.Config.NeighborAddress, Interface: from.Config.NeighborInterface, ASN: from.Config.PeerAs, Password: from.Config.AuthPassword,
		Source: sourceOf(from.Transport.Config.LocalAddress), Passive: from.Transport.Config.PassiveMode,
		Hold: secondsOr(from.Timers.Config.HoldTime, oc.DEFAULT_HOLDTIME), Retry: secondsOr(from.Timers.Config.ConnectRetry, oc.DEFAULT_CONNECT_RETRY),
		Keepalive: secondsOr(from.Timers.Config.KeepaliveInterval, from.Timers.Config.HoldTime/3),
	}
	if n.Interface != "" {
		n.Addr = netip.Addr{} // the library looks it up
	}
	if port := from.Transport.Config.RemotePort; port != bgp.DefaultPort {
		n.Port = port
	}
	if from.EbgpMultihop.Config.Enabled {
		n.Multihop = from.EbgpMultihop.Config.MultihopTtl
	}
	if b := from.Bfd.Config; b.Enabled {
		n.BFD = bgp.BFD{Interval: time.Duration(b.DesiredMinimumTxInterval) * time.Microsecond, Multiplier: b.DetectionMultiplier}
	}
	if from.Config.AdminDown {
		c.note("neighbor " + n.Key() + " is left out: it is admin-down")
		return
	}
	c.Neighbors = append(c.Neighbors, n)
	c.apply(n.Key(), &from.ApplyPolicy.Config)
}

// sourceOf returns the source of sessions; the library's defaults stand for none.
func sourceOf(a netip.Addr) netip.Addr {
	if a.IsValid() && a.IsUnspecified() {
		return netip.Addr{}
	}
	return a
}

// secondsOr returns a time; 0 for the default.
func secondsOr(value, byDefault float64) time.Duration {
	if value == byDefault {
		return 0
	}
	return time.Duration(value * float64(time.Second))
}

func (c *File) readSets(from *oc.DefinedSets) {
	for _, s := range from.PrefixSets {
		set := bgp.DefinedSet{Type: bgp.PrefixSet, Name: s.PrefixSetName}
		for _, p := range s.PrefixList {
			set.Prefixes = append(set.Prefixes, bgp.PrefixRule{Prefix: p.IpPrefix.String(), Lengths: p.MasklengthRange})
		}
		c.Sets = append(c.Sets, set)
	}
	add := func(kind bgp.SetType, name string, members []string) {
		c.Sets = append(c.Sets, bgp.DefinedSet{Type: kind, Name: name, Members: members})
	}
	for _, s := range from.NeighborSets {
		add(bgp.NeighborSet, s.NeighborSetName, s.NeighborInfoList)
	}
	for _, s := range from.BgpDefinedSets.CommunitySets {
		add(bgp.CommunitySet, s.CommunitySetName, s.CommunityList)
	}
	for _, s := range from.BgpDefinedSets.ExtCommunitySets {
		add(bgp.ExtCommunitySet, s.ExtCommunitySetName, s.ExtCommunityList)
	}
	for _, s := range from.BgpDefinedSets.AsPathSets {
		add(bgp.ASPathSet, s.AsPathSetName, s.AsPathList)
	}
	for _, s := range from.BgpDefinedSets.LargeCommunitySets {
		add(bgp.LargeCommunitySet, s.LargeCommunitySetName, s.LargeCommunityList)
	}
}

// Log writes the file's configuration, and its unsupported settings.
func (c *File) Log(log *slog.Logger) {
	log.Info("BGP is configured by the file of gobgpd", "file", c.Path, "neighbors", len(c.Neighbors), "sets", len(c.Sets), "policies", len(c.Policies))
	for _, note := range c.Notes {
		log.Warn("file of gobgpd", "file", c.Path, "note", note)
	}
}
