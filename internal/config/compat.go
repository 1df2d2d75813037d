package config

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"

	"github.com/spf13/pflag"
)

// existingRoleHook is what the existing loxilb runs if it is there.
const existingRoleHook = "/opt/loxilb/ka_hook.sh"

// asExisting gives options that were not given the defaults of the existing loxilb, and takes those
// that are its alone.
func (f *flags) asExisting(fs *pflag.FlagSet) error {
	for flag, value := range map[string]string{"host": "0.0.0.0", "insecure": "true", "loglevel": "debug"} {
		if fs.Changed(flag) {
			continue
		}
		if err := fs.Set(flag, value); err != nil {
			return err
		}
	}
	given := func(flag string) bool { return fs.Lookup(flag).Value.String() == "true" }
	f.bootFiles = fs.Lookup("config-path").Value.String()
	f.metrics = given("prometheus")
	f.aside = given("peer") || given("proxyonlymode")
	return nil
}

// existing is what --compat makes of the rest. Without a data path, as --peer and --proxyonlymode
// want it, is with programs at no interface.
func (f *flags) existing(c *Config) {
	if f.compat && f.roleHook == "" {
		c.RoleHook, c.RoleHookOptional = existingRoleHook, true
	}
	c.Compat, c.BootFiles, c.MetricsOff = f.compat, f.bootFiles, f.compat && !f.metrics
	if f.aside {
		c.Whitelist, c.LocalSockets = regexp.MustCompile("^$"), false
	}
}

// open says what whoever is not known may do. A server without a token is what the existing loxilb
// is by default.
func (a *API) open() string {
	var list []string
	for _, at := range []netip.AddrPort{a.Plain, a.TLS} {
		asks := a.Token != "" || a.Users
		switch {
		case !at.IsValid() || asks && (at == a.TLS || at.Addr().IsLoopback()):
		case asks:
			list = append(list, fmt.Sprintf("tokens go to %s unencrypted", at))
		case !a.Insecure: // users of this machine are asked who they are
		case at.Addr().IsLoopback():
			list = append(list, fmt.Sprintf("every user of this machine can change everything at %s", at))
		default:
			list = append(list, fmt.Sprintf("anyone who can reach %s can change everything without a token", at))
		}
	}
	return strings.Join(list, ", and ")
}
