package config

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"

	"github.com/spf13/pflag"
)

// compatRoleHook is the hook that the existing loxilb runs if it exists.
const compatRoleHook = "/opt/loxilb/ka_hook.sh"

// CompatFiles returns the directory of the default client certificate of https probes, which only
// the existing loxilb has; "": none.
func (c *Config) CompatFiles() string {
	if !c.Compat {
		return ""
	}
	return "/opt/loxilb/cert"
}

// setCompatDefaults sets the defaults of the existing loxilb for flags that were not given, and
// handles the flags that only the existing loxilb has.
func (f *flags) setCompatDefaults(fs *pflag.FlagSet) error {
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
	f.withoutDataPath = given("proxyonlymode")
	return nil
}

// applyCompat applies the rest of --compat. With --peer and --proxyonlymode, which mean no data
// path, it attaches no programs.
func (f *flags) applyCompat(c *Config) {
	if f.compat && f.roleHook == "" {
		c.RoleHook, c.RoleHookOptional = compatRoleHook, true
	}
	c.Compat, c.BootFiles, c.MetricsOff = f.compat, f.bootFiles, f.compat && !f.metrics
	if f.withoutDataPath || f.peer {
		c.Whitelist, c.LocalSockets, c.ClusterInterface = regexp.MustCompile("^$"), false, ""
	}
}

// openAccess describes what clients can do without authentication. The existing loxilb requires
// none by default.
func (a *API) openAccess() string {
	var list []string
	for _, at := range []netip.AddrPort{a.Plain, a.TLS} {
		asks := a.Token != "" || a.Users
		switch {
		case !at.IsValid() || asks && (at == a.TLS || at.Addr().IsLoopback()):
		case asks:
			list = append(list, fmt.Sprintf("tokens go to %s unencrypted", at))
		case !a.Insecure: // local users must authenticate
		case at.Addr().IsLoopback():
			list = append(list, fmt.Sprintf("every user of this machine can change everything at %s", at))
		default:
			list = append(list, fmt.Sprintf("anyone who can reach %s can change everything without a token", at))
		}
	}
	return strings.Join(list, ", and ")
}
