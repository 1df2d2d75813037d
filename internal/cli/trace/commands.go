// Package trace shows live packets, before and after translation.
package trace

import "loxilb/internal/cli/session"

// Commands are those of this folder, by verb.
func Commands(o *session.Options) session.Commands {
	return session.Commands{session.Root: {command(o)}}
}
