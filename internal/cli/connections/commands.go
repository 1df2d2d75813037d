// Package connections has the commands about connections.
package connections

import "loxilb/internal/cli/session"

// Commands returns the commands of this area, by verb.
func Commands(o *session.Options) session.Commands {
	return session.Commands{
		session.Get:  {getCT(o)},
		session.Kill: {killCT(o)},
	}
}
