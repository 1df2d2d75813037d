// Package connections has the commands about connections.
package connections

import "loxilb/internal/cli/session"

// Commands are those of this folder, by verb.
func Commands(o *session.Options) session.Commands {
	return session.Commands{
		session.Get:  {getCT(o)},
		session.Kill: {killCT(o)},
	}
}
