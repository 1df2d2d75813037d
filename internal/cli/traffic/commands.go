// Package traffic has the commands about connections, and about handling of packets besides load
// balancing: firewall rules, policers, mirrors.
package traffic

import "loxilb/internal/cli/session"

// Commands returns the commands of this area, by verb.
func Commands(o *session.Options) session.Commands {
	return session.Commands{
		session.Describe: {firewallKind(o).Describe(o)},
		session.Get:      {getCT(o), firewallKind(o).Get(o)},
		session.Create:   {createFirewall(o), createMirror(o), createPolicy(o), createSession(o), createSessionFlow(o)},
		session.Kill:     {killCT(o)},
		session.Delete:   {deleteFirewall(o), deleteSessionFlow(o)},
	}
}
