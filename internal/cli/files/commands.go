// Package files has the commands that apply and save files of objects, and those about the
// resulting revisions.
package files

import "loxilb/internal/cli/session"

// Commands returns the commands of this area, by verb.
func Commands(o *session.Options) session.Commands {
	return session.Commands{
		session.Describe: {revisionsKind().Describe(o)},
		session.Get:      {revisionsKind().Get(o)},
		session.Root: {
			applyCommand(o),
			planCommand(o),
			importCommand(o),
			exportCommand(o),
			confirmCommand(o),
			rollbackCommand(o),
			saveCommand(o),
		},
	}
}
