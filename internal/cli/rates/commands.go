// Package rates has the commands about what is counted: stats, rate, top.
package rates

import "loxilb/internal/cli/session"

// Commands are those of this folder, by verb.
func Commands(o *session.Options) session.Commands {
	return session.Commands{session.Root: {statsCommand(o), rateCommand(o), topCommand(o)}}
}
